#!/bin/sh
# SPDX-License-Identifier: MIT
# A program that was built against an older library runs on this one. Its library is made anew from
# the frozen list of exports, as an empty shell: the program is linked to that, and run on the real
# one, so that nothing of today is in the binary.
# usage: old_client_test.sh <folder with header, symbols and client> <library> <checkpoint> <cc...>
set -eu
old=$1 library=$2 checkpoint=$3
shift 3
cc=$*
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

mkdir "$scratch/old"
while read -r name _; do
  printf '.globl %s\n.type %s, @function\n%s: ret\n' "$name" "$name" "$name"
done <"$old/symbols.txt" >"$scratch/shell.s"
echo '.section .note.GNU-stack,"",@progbits' >>"$scratch/shell.s"
for node in $(cut -d' ' -f2 "$old/symbols.txt" | sort -u); do
  echo "$node { global:"
  sed -n "s/ $node\$/;/p" "$old/symbols.txt"
  echo "local: *; };"
done >"$scratch/shell.map"
$cc -shared -nostdlib -Wl,-soname,libmainarch.so.0 -Wl,--version-script="$scratch/shell.map" \
  -o "$scratch/old/libmainarch.so" "$scratch/shell.s"
$cc -std=c99 -Wall -Wextra -Werror -O1 -I "$old" -o "$scratch/client" "$old/client.c" \
  -L "$scratch/old" -lmainarch

used=$(nm -D --undefined-only "$scratch/client" | sed -n 's/.* \(mainarch_[a-z_]*@.*\)/\1/p' | tr '@' ' ' | LC_ALL=C sort)
[ "$used" = "$(cat "$old/symbols.txt")" ] ||
  fail "the client does not use all that there was: $(echo "$used" | diff - "$old/symbols.txt")"
LD_LIBRARY_PATH=$(dirname "$library") LD_BIND_NOW=1 "$scratch/client" "$checkpoint" || fail "ended with $?"
