// SPDX-License-Identifier: MIT
//
// A target that differs from another, MAINARCH_TARGET, in products of 8 bits alone: MAINARCH_INT8_TARGET, for which
// matmul_int8.cc is compiled once more.
#include "backend/cpu/kernels/table.h"

namespace mainarch::cpu::MAINARCH_INT8_TARGET {

void RunMatmulInt8(const MatmulArgs& a);
void RunExpertsDownInt8(const ExpertsDownArgs& a);

namespace {

constexpr Kernels WithBytes() {
  Kernels kernels = MAINARCH_TARGET::kTable;
  kernels.name = MAINARCH_STRING(MAINARCH_INT8_TARGET);
  kernels.matmul_int8 = RunMatmulInt8;
  kernels.experts_down_int8 = RunExpertsDownInt8;
  return kernels;
}

}  // namespace

constinit const Kernels kKernels = WithBytes();

}  // namespace mainarch::cpu::MAINARCH_INT8_TARGET
