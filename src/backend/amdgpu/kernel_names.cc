// SPDX-License-Identifier: MIT
#include "backend/amdgpu/kernel_names.h"

#include <iterator>

namespace mainarch::amdgpu {
namespace {

using kernels::KvFormat;
using kernels::Taken;
using kernels::TileFormat;
using absl::string_view;

constexpr size_t kKvFormats = std::size(quant::kKvTypes);

struct TileKernels {
  TileFormat format;
  using Names = string_view[kernels::kTakens];  // by Taken; scaled ones of MXFP4 and fp8 alone; of many rows alone tiled ones of bf16, and through a ring those of MXFP4 and fp8
  Names matmul, matmul_reduce, gate_up, gate_up_half, experts;
  Names gate_up_any, experts_any;
  Names experts_reduce, experts_reduce_any;  // empty: the reduction is a launch of its own
  string_view heads_matmul;
};
constexpr TileKernels kTileKernels[] = {
    {TileFormat::kBf16,
     {"matmul_bf16", "matmul_bf16_rounded"},
     {"matmul_reduce_bf16", "matmul_reduce_bf16_rounded"},
     {"gate_up_bf16", "gate_up_bf16_rounded"},
     {"gate_up_half_bf16", "gate_up_half_bf16_rounded"},
     {"experts_bf16", "experts_bf16_rounded"},
     {"gate_up_bf16_any", "gate_up_bf16_any_rounded"},
     {"experts_bf16_any", "experts_bf16_any_rounded"},
     {"experts_reduce_bf16", "experts_reduce_bf16_rounded"},
     {"experts_reduce_bf16_any", "experts_reduce_bf16_any_rounded"},
     "heads_matmul_bf16"},
    {TileFormat::kBf16Pair,
     {"matmul_pair", "matmul_pair"},
     {"matmul_reduce_pair", "matmul_reduce_pair"},
     {"gate_up_pair", "gate_up_pair"},
     {"gate_up_half_pair", "gate_up_half_pair"},
     {"experts_pair", "experts_pair"},
     {"gate_up_pair_any", "gate_up_pair_any"},
     {"experts_pair_any", "experts_pair_any"},
     {"experts_reduce_pair", "experts_reduce_pair"},
     {"experts_reduce_pair_any", "experts_reduce_pair_any"},
     "heads_matmul_pair"},
    {TileFormat::kFp8,
     {"matmul_fp8", "matmul_fp8_rounded", "matmul_fp8_scaled"},
     {"matmul_reduce_fp8", "matmul_reduce_fp8_rounded", "matmul_reduce_fp8_scaled"},
     {"gate_up_fp8", "gate_up_fp8_rounded", "gate_up_fp8_scaled"},
     {"gate_up_half_fp8", "gate_up_half_fp8_rounded", "gate_up_half_fp8_scaled"},
     {"experts_fp8", "experts_fp8_rounded", "experts_fp8_scaled"},
     {"gate_up_fp8_any", "gate_up_fp8_any_rounded", "gate_up_fp8_any_scaled"},
     {"experts_fp8_any", "experts_fp8_any_rounded", "experts_fp8_any_scaled"},
     {"experts_reduce_fp8", "experts_reduce_fp8_rounded", "experts_reduce_fp8_scaled"},
     {"experts_reduce_fp8_any", "experts_reduce_fp8_any_rounded", "experts_reduce_fp8_any_scaled"},
     "heads_matmul_fp8"},
    {TileFormat::kMxfp4,
     {"matmul_mxfp4", "matmul_mxfp4_rounded", "matmul_mxfp4_scaled"},
     {"matmul_reduce_mxfp4", "matmul_reduce_mxfp4_rounded", "matmul_reduce_mxfp4_scaled"},
     {"gate_up_mxfp4", "gate_up_mxfp4_rounded", "gate_up_mxfp4_scaled"},
     {"gate_up_half_mxfp4", "gate_up_half_mxfp4_rounded", "gate_up_half_mxfp4_scaled"},
     {"experts_mxfp4", "experts_mxfp4_rounded", "experts_mxfp4_scaled"},
     {"gate_up_mxfp4_any", "gate_up_mxfp4_any_rounded", "gate_up_mxfp4_any_scaled"},
     {"experts_mxfp4_any", "experts_mxfp4_any_rounded", "experts_mxfp4_any_scaled"},
     {"experts_reduce_mxfp4", "experts_reduce_mxfp4_rounded", "experts_reduce_mxfp4_scaled"},
     {"experts_reduce_mxfp4_any", "experts_reduce_mxfp4_any_rounded", "experts_reduce_mxfp4_any_scaled"},
     "heads_matmul_mxfp4"},
    {TileFormat::kNibble,
     {"matmul_nibble", "matmul_nibble"},
     {"matmul_reduce_nibble", "matmul_reduce_nibble"},
     {"gate_up_nibble", "gate_up_nibble"},
     {"gate_up_half_nibble", "gate_up_half_nibble"},
     {"experts_nibble", "experts_nibble"},
     {"gate_up_nibble_any", "gate_up_nibble_any"},
     {"experts_nibble_any", "experts_nibble_any"},
     {"experts_reduce_nibble", "experts_reduce_nibble"},
     {"", ""},
     "heads_matmul_nibble"},
    {TileFormat::kByte,
     {"matmul_byte", "matmul_byte"},
     {"matmul_reduce_byte", "matmul_reduce_byte"},
     {"gate_up_byte", "gate_up_byte"},
     {"gate_up_half_byte", "gate_up_half_byte"},
     {"experts_byte", "experts_byte"},
     {"gate_up_byte_any", "gate_up_byte_any"},
     {"experts_byte_any", "experts_byte_any"},
     {"experts_reduce_byte", "experts_reduce_byte"},
     {"", ""},
     "heads_matmul_byte"},
};

// By TallKind, and by Taken.
struct TallKernels {
  TileFormat format;
  string_view of[4][kernels::kTakens];
  string_view experts[2][kernels::kTakens];  // plain, any
  string_view down[kernels::kTakens];
};
constexpr TallKernels kTallKernels[] = {
    {TileFormat::kBf16, {{"tall_bf16", "tall_bf16_rounded", "", "tall_bf16_tiled"}, {"tall_parts_bf16", "tall_parts_bf16_rounded", "", "tall_parts_bf16_tiled"},
     {"tall_gate_up_bf16", "tall_gate_up_bf16_rounded", "", "tall_gate_up_bf16_tiled"}, {"tall_gate_up_any_bf16", "tall_gate_up_any_bf16_rounded", "", "tall_gate_up_any_bf16_tiled"}},
     {{"experts_tall_bf16", "experts_tall_bf16_rounded"}, {"experts_tall_any_bf16", "experts_tall_any_bf16_rounded"}},
     {"experts_tall_down_bf16", "experts_tall_down_bf16_rounded"}},
    {TileFormat::kFp8, {{"tall_fp8", "tall_fp8_rounded", "tall_fp8_scaled", "", "tall_fp8_ring"}, {"tall_parts_fp8", "tall_parts_fp8_rounded", "tall_parts_fp8_scaled", "", "tall_parts_fp8_ring"},
     {"tall_gate_up_fp8", "tall_gate_up_fp8_rounded", "tall_gate_up_fp8_scaled", "", "tall_gate_up_fp8_ring"}, {"tall_gate_up_any_fp8", "tall_gate_up_any_fp8_rounded", "tall_gate_up_any_fp8_scaled", "", "tall_gate_up_any_fp8_ring"}},
     {{"experts_tall_fp8", "experts_tall_fp8_rounded", "experts_tall_fp8_scaled"}, {"experts_tall_any_fp8", "experts_tall_any_fp8_rounded", "experts_tall_any_fp8_scaled"}},
     {"experts_tall_down_fp8", "experts_tall_down_fp8_rounded", "experts_tall_down_fp8_rounded"}},
    {TileFormat::kMxfp4, {{"tall_mxfp4", "tall_mxfp4_rounded", "tall_mxfp4_scaled", "", "tall_mxfp4_ring"}, {"tall_parts_mxfp4", "tall_parts_mxfp4_rounded", "tall_parts_mxfp4_scaled", "", "tall_parts_mxfp4_ring"},
     {"tall_gate_up_mxfp4", "tall_gate_up_mxfp4_rounded", "tall_gate_up_mxfp4_scaled", "", "tall_gate_up_mxfp4_ring"}, {"tall_gate_up_any_mxfp4", "tall_gate_up_any_mxfp4_rounded", "tall_gate_up_any_mxfp4_scaled", "", "tall_gate_up_any_mxfp4_ring"}},
     {{"experts_tall_mxfp4", "experts_tall_mxfp4_rounded", "experts_tall_mxfp4_scaled"}, {"experts_tall_any_mxfp4", "experts_tall_any_mxfp4_rounded", "experts_tall_any_mxfp4_scaled"}},
     {"experts_tall_down_mxfp4", "experts_tall_down_mxfp4_rounded", "experts_tall_down_mxfp4_scaled"}},
    {TileFormat::kNibble, {{"tall_nibble", "tall_nibble"}, {"tall_parts_nibble", "tall_parts_nibble"},
     {"tall_gate_up_nibble", "tall_gate_up_nibble"}, {"tall_gate_up_any_nibble", "tall_gate_up_any_nibble"}},
     {{"experts_tall_nibble", "experts_tall_nibble"}, {"experts_tall_any_nibble", "experts_tall_any_nibble"}},
     {"experts_tall_down_nibble", "experts_tall_down_nibble"}},
    {TileFormat::kByte, {{"tall_byte", "tall_byte"}, {"tall_parts_byte", "tall_parts_byte"},
     {"tall_gate_up_byte", "tall_gate_up_byte"}, {"tall_gate_up_any_byte", "tall_gate_up_any_byte"}},
     {{"experts_tall_byte", "experts_tall_byte"}, {"experts_tall_any_byte", "experts_tall_any_byte"}},
     {"experts_tall_down_byte", "experts_tall_down_byte"}},
};

struct HeadKernels {
  backend::HeadDims heads;
  string_view prepare[kKvFormats], attend[kKvFormats], attend_long[kKvFormats], attend_far[kKvFormats];  // by KvFormat
  string_view attend_tall[kKvFormats], attend_tall_far[kKvFormats];
  string_view attend_near, attend_tall_near, prepare_near[2];  // turned
};
#define MAINARCH_OF_FORMATS(kernel, hd) \
  {kernel "_bf16_" #hd, kernel "_fp8_" #hd, kernel "_pair_" #hd, kernel "_fp4_" #hd, kernel "_k8v4_" #hd}
#define MAINARCH_OF_HEADS(key, value, hd)                                                                  \
  {{key, value}, MAINARCH_OF_FORMATS("prepare", hd), MAINARCH_OF_FORMATS("attend", hd),                              \
   MAINARCH_OF_FORMATS("attend_long", hd), {"", "", "", "attend_far_fp4_" #hd, "attend_far_k8v4_" #hd},    \
   MAINARCH_OF_FORMATS("attend_tall", hd), {"", "", "", "attend_tall_far_fp4_" #hd, "attend_tall_far_k8v4_" #hd},      \
   "attend_near_" #hd, "attend_tall_near_" #hd, {"prepare_near_" #hd, "prepare_near_turned_" #hd}}
// The smaller ones first.
constexpr HeadKernels kHeadKernels[] = {MAINARCH_OF_HEADS(32, 32, 32),    MAINARCH_OF_HEADS(64, 64, 64),
                                        MAINARCH_OF_HEADS(96, 96, 96),    MAINARCH_OF_HEADS(128, 128, 128),
                                        MAINARCH_OF_HEADS(192, 128, 192_128), MAINARCH_OF_HEADS(192, 192, 192),
                                        MAINARCH_OF_HEADS(256, 256, 256)};
#undef MAINARCH_OF_HEADS
#undef MAINARCH_OF_FORMATS

struct LatentKernels {
  string_view latent, attend, attend_tall;
};
// By KvFormat.
constexpr LatentKernels kLatentKernels[kKvFormats] = {
    {"latent_bf16", "attend_latent_bf16", "attend_latent_tall_bf16"},
    {"latent_fp8", "attend_latent_fp8", "attend_latent_tall_fp8"},
    {"latent_pair", "attend_latent_pair", ""},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kTileKernels); ++i) {
    if (kTileKernels[i].format != static_cast<TileFormat>(i)) return false;
  }
  return true;
}
static_assert(InOrder());

size_t At(Taken taken) { return static_cast<size_t>(taken); }
const TileKernels& Of(TileFormat format) { return kTileKernels[static_cast<size_t>(format)]; }

string_view HeadKernel(backend::HeadDims heads, KvFormat format,
                       string_view (HeadKernels::*names)[kKvFormats]) {
  for (const HeadKernels& one : kHeadKernels) {
    if (one.heads == heads) return (one.*names)[static_cast<size_t>(format)];
  }
  return "";
}

}  // namespace

string_view MatmulKernel(TileFormat format, Taken taken) { return Of(format).matmul[At(taken)]; }
string_view MatmulReduceKernel(TileFormat format, Taken taken) {
  return Of(format).matmul_reduce[At(taken)];
}
string_view GateUpKernel(TileFormat format, Taken taken) { return Of(format).gate_up[At(taken)]; }
string_view GateUpHalfKernel(TileFormat format, Taken taken) { return Of(format).gate_up_half[At(taken)]; }
string_view ExpertsKernel(TileFormat up, TileFormat down, Taken taken) {
  if (up == down) return Of(up).experts[At(taken)];
  if (up == TileFormat::kNibble && down == TileFormat::kByte) return "experts_nibble_byte";
  if (up == TileFormat::kByte && down == TileFormat::kNibble) return "experts_byte_nibble";
  return "";
}
string_view GateUpAnyKernel(TileFormat format, Taken taken) {
  return Of(format).gate_up_any[At(taken)];
}
string_view ExpertsAnyKernel(TileFormat up, TileFormat down, Taken taken) {
  if (up == down) return Of(up).experts_any[At(taken)];
  if (up == TileFormat::kNibble && down == TileFormat::kByte) return "experts_nibble_byte_any";
  if (up == TileFormat::kByte && down == TileFormat::kNibble) return "experts_byte_nibble_any";
  return "";
}
string_view ExpertsReduceKernel(TileFormat up, TileFormat down, Taken taken) {
  if (up == down) return Of(up).experts_reduce[At(taken)];
  if (up == TileFormat::kNibble && down == TileFormat::kByte) return "experts_reduce_nibble_byte";
  if (up == TileFormat::kByte && down == TileFormat::kNibble) return "experts_reduce_byte_nibble";
  return "";
}
string_view ExpertsReduceAnyKernel(TileFormat up, TileFormat down, Taken taken) {
  return up == down ? Of(up).experts_reduce_any[At(taken)] : "";
}
string_view TallKernel(kernels::TallKind kind, TileFormat format, Taken taken) {
  for (const TallKernels& one : kTallKernels) {
    if (one.format == format) return one.of[static_cast<size_t>(kind)][At(taken)];
  }
  return "";
}
string_view ExpertsTallKernel(TileFormat format, bool any, Taken taken) {
  for (const TallKernels& one : kTallKernels) {
    if (one.format == format) return one.experts[any][At(taken)];
  }
  return "";
}
string_view ExpertsTallDownKernel(TileFormat format, Taken taken) {
  for (const TallKernels& one : kTallKernels) {
    if (one.format == format) return one.down[At(taken)];
  }
  return "";
}
string_view HeadsMatmulKernel(TileFormat format) { return Of(format).heads_matmul; }

string_view LatentKernel(KvFormat format) { return kLatentKernels[static_cast<size_t>(format)].latent; }
string_view AttendLatentKernel(KvFormat format) {
  return kLatentKernels[static_cast<size_t>(format)].attend;
}
string_view AttendLatentTallKernel(KvFormat format) {
  return kLatentKernels[static_cast<size_t>(format)].attend_tall;
}

string_view PrepareKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::prepare);
}
string_view AttendKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::attend);
}
string_view AttendLongKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::attend_long);
}
string_view AttendTallKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::attend_tall);
}
string_view AttendPromptKernel(KvFormat format, backend::HeadDims heads) {
  if (format != KvFormat::kBF16) return "";
  if (heads == backend::HeadDims{64, 64}) return "attend_prompt_bf16_64";
  return heads == backend::HeadDims{128, 128} ? "attend_prompt_bf16_128" : "";
}
string_view AttendFarKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::attend_far);
}
string_view AttendTallFarKernel(KvFormat format, backend::HeadDims heads) {
  return HeadKernel(heads, format, &HeadKernels::attend_tall_far);
}
string_view AttendNearKernel(backend::HeadDims heads, bool tall) {
  for (const HeadKernels& one : kHeadKernels) {
    if (one.heads == heads) return tall ? one.attend_tall_near : one.attend_near;
  }
  return "";
}
string_view PrepareNearKernel(backend::HeadDims heads, bool turned) {
  for (const HeadKernels& one : kHeadKernels) {
    if (one.heads == heads) return one.prepare_near[turned];
  }
  return "";
}

backend::HeadDims StoredHeadDims(backend::HeadDims of) {
  for (const HeadKernels& one : kHeadKernels) {
    if (one.heads.key >= of.key && one.heads.value >= of.value) return one.heads;
  }
  return backend::HeadsBySixteen(of);
}

}  // namespace mainarch::amdgpu
