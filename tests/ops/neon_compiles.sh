#!/bin/sh
# SPDX-License-Identifier: MIT
# The CPU's kernels for AArch64 are understood by a compiler, on machines that are none: clang is a cross compiler as it
# is, and kernel files include none but plain C headers. What they compute only tools/arm64 test can say.
# usage: neon_compiles.sh <source root>
set -eu
cd "$1"
command -v clang++-22 >/dev/null || { echo "skipped: no clang++-22"; exit 77; }
for target in neon:armv8-a neon_dot:armv8.2-a+dotprod neon_bf16:armv8.2-a+dotprod+bf16; do
  for name in attention delta matmul matmul_blocks matmul_int8 rows table; do
    clang++-22 --target=aarch64-linux-gnu -march="${target#*:}" -ffreestanding -nostdinc++ -fsyntax-only -std=c++20 -Isrc -I. \
      -Wall -Wextra -Werror -Wno-unused-const-variable \
      -DMAINARCH_TARGET="${target%:*}" -DMAINARCH_TARGET_"${target%:*}" "src/backend/cpu/kernels/$name.cc"
  done
done
clang++-22 --target=aarch64-linux-gnu -march=armv8.2-a+dotprod+i8mm -ffreestanding -nostdinc++ -fsyntax-only -std=c++20 -Isrc -I. \
  -Wall -Wextra -Werror -Wno-unused-const-variable -DMAINARCH_TARGET=neon_i8mm -DMAINARCH_TARGET_neon_i8mm \
  src/backend/cpu/kernels/matmul_int8.cc
