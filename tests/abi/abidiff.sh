#!/bin/sh
# SPDX-License-Identifier: MIT
# The types and functions of the library, as its debug information tells them, are those of
# mainarch.abi. Of types only what the public header defines counts: handles are names.
# usage: abidiff.sh <source root> <library> [--print]     --print: the baseline it would be
set -eu
root=$1 library=$2
baseline=$root/tests/abi/mainarch.abi
command -v abidiff >/dev/null || { echo "skipped: abidiff is absent"; exit 77; }

if [ "${3:-}" = --print ]; then
  # Nothing of this machine, of the compiler's run or of other libraries, and of the structs behind
  # handles that they are structs.
  exec abidw --exported-interfaces-only --headers-dir "$root/include" --drop-private-types \
    --no-comp-dir-path --no-corpus-path --no-show-locs \
    --no-elf-needed --no-parameter-names "$library"
fi

grep -qs '<function-decl name=.mainarch_version' "$baseline" || { echo "FAIL: no baseline"; exit 1; }
# Neither blind nor asleep: a field that has moved is found.
moved=$(mktemp) && trap 'rm -f "$moved"' EXIT
sed "/name='mainarch_engine_info' size/,/<.class-decl>/s/offset-in-bits='192'/offset-in-bits='256'/" "$baseline" >"$moved"
if abidiff --exported-interfaces-only --harmless "$moved" "$library" >/dev/null; then
  echo "FAIL: abidiff does not see a field that has moved"
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
