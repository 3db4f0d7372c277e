#!/bin/sh
# SPDX-License-Identifier: MIT
# The public header alone compiles as C99, C11, C17, C++11, C++17 and C++20 with every warning on,
# uses no construct that bindings cannot follow, and has the project's version.
# usage: header_test.sh <include dir> <project version> <compiler>...
set -u
include=$1 version=$2
shift 2
failed=0
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
printf '#include <mainarch.h>\n#include <mainarch.h>\nint unused_but_whole;\n' >"$scratch/a.c"
cp "$scratch/a.c" "$scratch/a.cc"
for compiler in "$@"; do
  command -v "$compiler" >/dev/null || { echo "skip $compiler: absent"; continue; }
  for std in c99 c11 c17; do
    "$compiler" -x c -std=$std -pedantic -Wall -Wextra -Wconversion -Wstrict-prototypes -Wpadded \
      -Werror -fsyntax-only -I "$include" "$scratch/a.c" || { echo "FAIL $compiler $std"; failed=1; }
  done
  for std in c++11 c++17 c++20; do
    "$compiler" -x c++ -std=$std -pedantic -Wall -Wextra -Wconversion -Wpadded -Werror \
      -fsyntax-only -I "$include" "$scratch/a.cc" || { echo "FAIL $compiler $std"; failed=1; }
  done
done
# Without comments: no inline functions, bool, bit-fields or enum types.
"${1:-cc}" -fpreprocessed -dD -E -P "$include/mainarch.h" 2>/dev/null >"$scratch/bare.h"
for bad in '\binline\b' '\bbool\b' '\b_Bool\b' '\benum  *[a-z]' ':  *[0-9][0-9]*;' '\bFILE\b' '\blong\b'; do
  if grep -nE "$bad" "$scratch/bare.h"; then echo "FAIL header has $bad"; failed=1; fi
done
parts=$(sed -n 's/^#define MAINARCH_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$include/mainarch.h" | paste -sd.)
[ "$parts" = "$version" ] || { echo "FAIL header version $parts, project version $version"; failed=1; }
[ $failed = 0 ] && echo "header is clean"
exit $failed
