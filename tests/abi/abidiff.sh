#!/bin/sh
# SPDX-License-Identifier: MIT
# The types and functions of the library, as its debug information tells them, are those of
# mainarch.abi. Of types only what the public header defines counts: handles are names.
# usage: abidiff.sh <source root> <library> [--print]     --print: the baseline it would be
set -eu
root=$1 library=$2
baseline=$root/tests/abi/mainarch.abi
command -v abidiff >/dev/null || { echo "skipped: abidiff is absent"; exit 77; }
view="--exported-interfaces-only --drop-private-types"

if [ "${3:-}" = --print ]; then
  # Nothing of this machine, of the compiler's run or of other libraries.
  # shellcheck disable=SC2086
  exec abidw $view --headers-dir "$root/include" --no-comp-dir-path --no-corpus-path --no-show-locs \
    --no-elf-needed --no-parameter-names "$library"
fi

grep -qs '<function-decl name=.mainarch_version' "$baseline" || { echo "FAIL: no baseline"; exit 1; }
# shellcheck disable=SC2086
if abidiff $view --headers-dir2 "$root/include" "$baseline" "$library"; then
  echo "as $baseline says"
else
  code=$?
  [ $((code & 8)) = 0 ] || echo "FAIL: programs break"
  echo "FAIL: abidiff ends with $code; what may change within a soname is put on record by tests/abi/update"
  exit 1
fi
