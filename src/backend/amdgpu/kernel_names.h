// SPDX-License-Identifier: MIT
//
// Names of the kernels that there are once a format or a head size (kernels/entry/decoder.cc), as
// tables. "" is a kernel that there is not.
#ifndef MAINARCH_BACKEND_AMDGPU_KERNEL_NAMES_H_
#define MAINARCH_BACKEND_AMDGPU_KERNEL_NAMES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "backend/head_dims.h"
#include "kernels/tall_args.h"

namespace mainarch::amdgpu {

// `taken`: of rows, where the format has it. Weights that are themselves two bf16 are there for their precision: they take
// both halves always; so do those of codes. Scaled ones are of MXFP4 and fp8 alone.
absl::string_view MatmulKernel(kernels::TileFormat format, kernels::Taken taken);
absl::string_view MatmulReduceKernel(kernels::TileFormat format, kernels::Taken taken);
absl::string_view GateUpKernel(kernels::TileFormat format, kernels::Taken taken);
// Of few rows, with any activation.
absl::string_view GateUpHalfKernel(kernels::TileFormat format, kernels::Taken taken);
// `down` may differ from `up` where both are codes.
absl::string_view ExpertsKernel(kernels::TileFormat up, kernels::TileFormat down, kernels::Taken taken);
// With biases of gate and up, or another activation than SiLU.
absl::string_view GateUpAnyKernel(kernels::TileFormat format, kernels::Taken taken);
absl::string_view ExpertsAnyKernel(kernels::TileFormat up, kernels::TileFormat down, kernels::Taken taken);
// The same with the all-reduce behind them; empty: there is none.
absl::string_view ExpertsReduceKernel(kernels::TileFormat up, kernels::TileFormat down, kernels::Taken taken);
absl::string_view ExpertsReduceAnyKernel(kernels::TileFormat up, kernels::TileFormat down, kernels::Taken taken);
// Of weights that kernels::TallTakes.
absl::string_view TallKernel(kernels::TallKind kind, kernels::TileFormat format, kernels::Taken taken);
absl::string_view ExpertsTallKernel(kernels::TileFormat format, bool any, kernels::Taken taken);
absl::string_view ExpertsTallDownKernel(kernels::TileFormat format, kernels::Taken taken);
absl::string_view HeadsMatmulKernel(kernels::TileFormat format);
absl::string_view LatentKernel(kernels::KvFormat format);
absl::string_view AttendLatentKernel(kernels::KvFormat format);
absl::string_view AttendLatentTallKernel(kernels::KvFormat format);  // where kernels::LatentTallTakes
absl::string_view PrepareKernel(kernels::KvFormat format, backend::HeadDims heads);
absl::string_view AttendKernel(kernels::KvFormat format, backend::HeadDims heads);
// Of many rows.
absl::string_view AttendTallKernel(kernels::KvFormat format, backend::HeadDims heads);
// Of whole runs of rows; "": attend_tall_* has them, too.
absl::string_view AttendPromptKernel(kernels::KvFormat format, backend::HeadDims heads);
// Of two caches (kernels/near_args.h): of the far one of this format ("": there is none), and of the near one, whose keys are
// turned if the far one's are. Tall: of many rows.
absl::string_view AttendFarKernel(kernels::KvFormat format, backend::HeadDims heads);
absl::string_view AttendTallFarKernel(kernels::KvFormat format, backend::HeadDims heads);
absl::string_view AttendNearKernel(backend::HeadDims heads, bool tall);
absl::string_view PrepareNearKernel(backend::HeadDims heads, bool turned);
// Of contexts that have more than kernels::kLongSplits splits.
absl::string_view AttendLongKernel(kernels::KvFormat format, backend::HeadDims heads);
// The least of the sizes that these have which hold such heads; beyond them all, sizes that have none.
backend::HeadDims StoredHeadDims(backend::HeadDims of);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_KERNEL_NAMES_H_
