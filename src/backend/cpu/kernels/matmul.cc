// SPDX-License-Identifier: MIT
#include "backend/cpu/kernels/multiply.h"

namespace mainarch::cpu::MAINARCH_TARGET {

void RunMatmul(const MatmulArgs& a) {
  switch (a.w.format) {
    case PanelFormat::kBF16:
      return Matmul<FormatBF16>(a);
    case PanelFormat::kF16:
      return Matmul<FormatF16>(a);
    case PanelFormat::kF32:
      return Matmul<FormatF32>(a);
    case PanelFormat::kFp8:
      return Matmul<FormatFp8>(a);
    case PanelFormat::kMxfp4:
      return Matmul<FormatMxfp4>(a);
    default:
      return RunMatmulBlocks(a);
  }
}

void RunExpertsDown(const ExpertsDownArgs& a) {
  switch (a.experts[a.active[0]].format) {
    case PanelFormat::kBF16:
      return ExpertsDown<Fp32<FormatBF16>>(a, a.act);
    case PanelFormat::kF16:
      return ExpertsDown<Fp32<FormatF16>>(a, a.act);
    case PanelFormat::kF32:
      return ExpertsDown<Fp32<FormatF32>>(a, a.act);
    case PanelFormat::kFp8:
      return ExpertsDown<Fp32<FormatFp8>>(a, a.act);
    case PanelFormat::kMxfp4:
      return ExpertsDown<Fp32<FormatMxfp4>>(a, a.act);
    default:
      return RunExpertsDownBlocks(a);
  }
}

#if defined(MAINARCH_BF16_DOT)
void RunMatmulBF16(const MatmulArgs& a) {
  switch (a.w.format) {
    case PanelFormat::kBF16:
      return MatmulBF16<FormatBF16>(a);
    case PanelFormat::kFp8:
      return MatmulBF16<FormatFp8>(a);
    case PanelFormat::kMxfp4:
      return MatmulBF16<FormatMxfp4>(a);
    default:
      return RunMatmulBlocksBF16(a);
  }
}

void RunExpertsDownBF16(const ExpertsDownArgs& a) {
  switch (a.experts[a.active[0]].format) {
    case PanelFormat::kBF16:
      return ExpertsDown<Bf16<FormatBF16>>(a, a.act16);
    case PanelFormat::kFp8:
      return ExpertsDown<Bf16<FormatFp8>>(a, a.act16);
    case PanelFormat::kMxfp4:
      return ExpertsDown<Bf16<FormatMxfp4>>(a, a.act16);
    default:
      return RunExpertsDownBlocksBF16(a);
  }
}
#endif

}  // namespace mainarch::cpu::MAINARCH_TARGET
