#!/bin/sh
# SPDX-License-Identifier: MIT
# What README.md tells a user to do with the library: its C program, exactly as it stands there, is
# compiled against an installed copy by pkg-config alone, and run.
# usage: consumer_test.sh <source root> <build root> <cc...>
set -eu
source=$1 build=$2
shift 2
cc=$*  # with its launcher, if it has one
command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

page=$source/README.md
grep -q '^```c$' "$page" || fail "no C program in README.md"
sed -n '/^```c$/,/^```$/p' "$page" | sed '/^```/d' >"$scratch/program.c"
[ -s "$scratch/program.c" ] || fail "no C program in $page"
lines=$(grep -vc '^[[:space:]]*$' "$scratch/program.c")
[ "$lines" -le 38 ] || fail "the program of $page has grown to $lines lines"

meson install -C "$build" --no-rebuild --quiet --destdir "$scratch/root" >"$scratch/install.log" 2>&1 ||
  { cat "$scratch/install.log"; fail "meson install"; }
pc=$(find "$scratch/root" -name mainarch.pc)
[ -n "$pc" ] || fail "no mainarch.pc was installed"
prefix=$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/*}"
config() { pkg-config --define-variable=prefix="$scratch/root$prefix" "$@" mainarch; }
[ -z "$(grep -i '^requires' "$pc")" ] || fail "mainarch.pc asks a user for other packages"

warnings="-std=c99 -Wall -Wextra -pedantic -Werror"
# shellcheck disable=SC2046,SC2086
$cc $warnings "$scratch/program.c" -o "$scratch/program" $(config --cflags --libs)
# The same, linked as the page says it: nothing but the library is needed by name.
needed=$(readelf -d "$scratch/program" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | tr '\n' ' ')
case $needed in *libmainarch.so.0*) ;; *) fail "the program needs $needed" ;; esac

LD_LIBRARY_PATH=$(config --variable=libdir)
export LD_LIBRARY_PATH
"$scratch/program" "$source/tests/golden/trained" "In the beginning God" >"$scratch/out" ||
  fail "the program ended with $?"
cat "$scratch/out"
[ "$(wc -w <"$scratch/out")" -ge 20 ] || fail "hardly any text"
"$scratch/program" "$source/tests/golden/trained" "In the beginning God" | cmp - "$scratch/out" ||
  fail "a second run says something else"
if "$scratch/program" /nonexistent x 2>"$scratch/err"; then fail "a missing checkpoint is no error"; fi
grep -q '^not found: .*/nonexistent' "$scratch/err" || { cat "$scratch/err"; fail "message"; }
echo "ok: $lines lines, needs $needed"
