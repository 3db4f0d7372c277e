#!/bin/sh
# SPDX-License-Identifier: MIT
# The types and functions of the library, as its debug information tells them, are those of
# mainarch.abi. Of types only what the public header defines counts: handles are names.
# usage: abidiff.sh <source root> <library> [--print]     --print: the baseline it would be
set -eu
root=$1 library=$2
baseline=$root/tests/abi/mainarch.abi
command -v abidiff >/dev/null || { echo "skipped: abidiff is absent"; exit 77; }

# Of a library without debug information abidw says nothing, and is content.
print_abi() {
  # Nothing of this machine, of the compiler's run or of other libraries, and of the structs behind
  # handles that they are structs.
  abidw --exported-interfaces-only --headers-dir "$root/include" --drop-private-types \
    --no-comp-dir-path --no-corpus-path --no-show-locs \
    --no-elf-needed --no-parameter-names "$1" >"$2"
  grep -qs '<function-decl name=.mainarch_version' "$2" || {
    echo "refused: $1 has no debug information: meson configure -Ddebug=true" >&2
    return 1
  }
}
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
if [ "${3:-}" = --print ]; then
  print_abi "$library" "$scratch/abi" && cat "$scratch/abi"
  exit
fi

grep -qs '<function-decl name=.mainarch_version' "$baseline" || { echo "FAIL: no baseline"; exit 1; }
# Neither blind nor asleep: a field that has moved is found.
moved=$scratch/moved
sed "/name='mainarch_engine_info' size/,/<.class-decl>/s/offset-in-bits='192'/offset-in-bits='256'/" "$baseline" >"$moved"
if abidiff --exported-interfaces-only --harmless "$moved" "$library" >/dev/null; then
  echo "FAIL: abidiff does not see a field that has moved"
  exit 1
fi
strip -g -o "$scratch/stripped.so" "$library"
if print_abi "$scratch/stripped.so" "$scratch/abi" 2>/dev/null; then
  echo "FAIL: a library without debug information would be put on record"
  exit 1
fi
# Without --headers-dir: with it abidiff 2.2 takes all types for private, as the baseline has no places.
if abidiff --exported-interfaces-only --harmless "$baseline" "$library"; then
  echo "as $baseline says"
else
  code=$?
  [ $((code & 8)) = 0 ] || echo "FAIL: programs break"
  echo "FAIL: abidiff ends with $code; what may change within a soname is put on record by tests/abi/update"
  exit 1
fi
