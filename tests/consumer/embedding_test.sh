#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs of this folder, built by nothing but pkg-config against an installed copy, and run:
# batch.c (C99) against the command, server.cc (C++17) with many clients at once.
# usage: embedding_test.sh <source root> <build root> <mainarch>
set -eu
source=$1 build=$2 mainarch=$(realpath "$3")
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is absent"; exit 77; }
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
checkpoint=$source/tests/golden/trained

meson install -C "$build" --no-rebuild --quiet --destdir "$scratch/root" >"$scratch/install.log" 2>&1 ||
  { cat "$scratch/install.log"; fail "meson install"; }
pc=$(find "$scratch/root" -name mainarch.pc)
export PKG_CONFIG_LIBDIR="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$scratch/root"
LD_LIBRARY_PATH=$scratch/root$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir mainarch)
export LD_LIBRARY_PATH
cd "$scratch"
# What mainarch.pc says is what there is.
[ "$(pkg-config --modversion mainarch)" = "$("$mainarch" version | sed -n '1s/mainarch //p')" ] || fail "version"
[ -z "$(pkg-config --print-requires --print-requires-private mainarch)" ] || fail "it asks for other packages"

warnings="-Wall -Wextra -pedantic -Werror"
# shellcheck disable=SC2046,SC2086
cc -std=c99 $warnings -o batch "$source/tests/consumer/batch.c" $(pkg-config --cflags --libs mainarch)
# shellcheck disable=SC2046,SC2086
c++ -std=c++17 -O1 $warnings -o server "$source/tests/consumer/server.cc" $(pkg-config --cflags --libs mainarch)

./batch "$checkpoint" "In the beginning" "And God said" "The earth" >out || fail "batch ended with $?"
for prompt in "In the beginning" "And God said" "The earth"; do
  "$mainarch" generate --model "$checkpoint" --greedy --repetition-penalty 1 --max-tokens 32 --echo \
    --no-statistics "$prompt"
done >want
cmp out want || { cat out want; fail "batch and the command disagree"; }
if ./batch /nowhere x 2>err; then fail "a missing checkpoint is no error"; fi
grep -q '^not found: .*/nowhere' err || { cat err; fail "message"; }

"${PYTHON:-python3}" -W error "$source/tests/consumer/server_test.py" ./server "$mainarch" "$checkpoint"
