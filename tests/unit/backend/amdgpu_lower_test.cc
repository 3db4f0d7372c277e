// SPDX-License-Identifier: MIT
//
// Lowering with no device: names and refusals. What the launches compute is
// tests/golden/gpu_golden_test.cc's.
#include <limits>

#include "absl/strings/match.h"
#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lower.h"
#include "isa/kernel_images.h"
#include "support/test.h"
#include "unit/backend/amdgpu_programs.h"

namespace mainarch::amdgpu {
namespace {

using backend::HeadDims;
using kernels::KvFormat;
using kernels::TileFormat;
using kernels::TallKind;
using kernels::Taken;

constexpr TileFormat kTileFormats[] = {TileFormat::kBf16,  TileFormat::kBf16Pair, TileFormat::kFp8,
                                       TileFormat::kMxfp4, TileFormat::kNibble,   TileFormat::kByte};

std::vector<Taken> TakensOf(TileFormat format) {
  if (format == TileFormat::kMxfp4 || format == TileFormat::kFp8) return {Taken::kBoth, Taken::kRounded, Taken::kScaled};
  return {Taken::kBoth, Taken::kRounded};
}

TEST(every_name_is_a_kernel) {
  std::vector<std::string> names;
  for (TileFormat format : kTileFormats) {
    for (const Taken taken : TakensOf(format)) {
      names.emplace_back(MatmulKernel(format, taken));
      names.emplace_back(MatmulReduceKernel(format, taken));
      names.emplace_back(GateUpKernel(format, taken));
      names.emplace_back(GateUpHalfKernel(format, taken));
      names.emplace_back(ExpertsKernel(format, format, taken));
      names.emplace_back(GateUpAnyKernel(format, taken));
      names.emplace_back(ExpertsAnyKernel(format, format, taken));
      names.emplace_back(ExpertsReduceKernel(format, format, taken));
      if (!kernels::HasCodes(format)) names.emplace_back(ExpertsReduceAnyKernel(format, format, taken));
    }
  }
  const auto nibble = TileFormat::kNibble, byte = TileFormat::kByte;
  for (const auto& [up, down] : {std::pair{nibble, byte}, std::pair{byte, nibble}}) {
    names.emplace_back(ExpertsKernel(up, down, Taken::kBoth));
    names.emplace_back(ExpertsAnyKernel(up, down, Taken::kRounded));
    names.emplace_back(ExpertsReduceKernel(up, down, Taken::kBoth));
    CHECK_EQ(ExpertsReduceAnyKernel(up, down, Taken::kBoth), "");
  }
  CHECK_EQ(ExpertsKernel(nibble, TileFormat::kMxfp4, Taken::kBoth), "");
  CHECK_EQ(ExpertsReduceKernel(nibble, TileFormat::kMxfp4, Taken::kBoth), "");
  CHECK_EQ(ExpertsReduceAnyKernel(nibble, nibble, Taken::kBoth), "");
  for (TileFormat format : kTileFormats) {
    names.emplace_back(HeadsMatmulKernel(format));
  }
  for (TileFormat format : {TileFormat::kBf16, TileFormat::kFp8, TileFormat::kMxfp4, nibble, byte}) {
    for (const Taken taken : TakensOf(format)) {
      for (const TallKind kind : {TallKind::kMatmul, TallKind::kParts, TallKind::kGateUp, TallKind::kGateUpAny}) {
        names.emplace_back(TallKernel(kind, format, taken));
      }
      for (const bool any : {false, true}) names.emplace_back(ExpertsTallKernel(format, any, taken));
      names.emplace_back(ExpertsTallDownKernel(format, taken));
    }
  }
  for (const TallKind kind : {TallKind::kMatmul, TallKind::kParts, TallKind::kGateUp, TallKind::kGateUpAny}) {
    names.emplace_back(TallKernel(kind, TileFormat::kBf16, Taken::kTiled));
    CHECK_EQ(TallKernel(kind, TileFormat::kMxfp4, Taken::kTiled), "");
    names.emplace_back(TallKernel(kind, TileFormat::kMxfp4, Taken::kRing));
    names.emplace_back(TallKernel(kind, TileFormat::kFp8, Taken::kRing));
    CHECK_EQ(TallKernel(kind, TileFormat::kBf16, Taken::kRing), "");
  }
  names.emplace_back("tile_rows");
  CHECK_EQ(ExpertsTallKernel(TileFormat::kBf16Pair, false, Taken::kBoth), "");
  CHECK_EQ(ExpertsTallDownKernel(TileFormat::kBf16Pair, Taken::kBoth), "");
  for (KvFormat format : {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kF32}) {
    names.emplace_back(LatentKernel(format));
    names.emplace_back(AttendLatentKernel(format));
    if (format != KvFormat::kF32) names.emplace_back(AttendLatentTallKernel(format));
  }
  CHECK_EQ(AttendLatentTallKernel(KvFormat::kF32), "");
  for (const HeadDims heads : {HeadDims{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}) {
    for (KvFormat format : {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kF32, KvFormat::kFp4, KvFormat::kK8V4}) {
      names.emplace_back(PrepareKernel(format, heads));
      names.emplace_back(AttendKernel(format, heads));
      names.emplace_back(AttendLongKernel(format, heads));
      names.emplace_back(AttendTallKernel(format, heads));
      if (const absl::string_view prompt = AttendPromptKernel(format, heads); !prompt.empty()) names.emplace_back(prompt);
    }
    names.emplace_back(AttendFarKernel(KvFormat::kFp4, heads));
    names.emplace_back(AttendFarKernel(KvFormat::kK8V4, heads));
    CHECK_EQ(AttendFarKernel(KvFormat::kFp8, heads), "");
    names.emplace_back(AttendTallFarKernel(KvFormat::kFp4, heads));
    names.emplace_back(AttendTallFarKernel(KvFormat::kK8V4, heads));
    CHECK_EQ(AttendTallFarKernel(KvFormat::kBF16, heads), "");
    for (const bool tall : {false, true}) names.emplace_back(AttendNearKernel(heads, tall));
    names.emplace_back(PrepareNearKernel(heads, false));
    names.emplace_back(PrepareNearKernel(heads, true));
  }
  for (const char* name : {"gated_delta", "gated_delta_wide", "gated_delta_norm", "attend_merge", "attend_long_merge", "attend_long_merge_wide",
                           "attend_shared_merge", "attend_merge_rows", "attend_near_merge", "attend_near_merge_rows", "share_queries",
                           "experts_group"}) {
    names.emplace_back(name);
  }
  for (const std::string& name : names) {
    const bool one = absl::StrContains(name, "_scaled") || absl::StrContains(name, "_tiled") || absl::StrContains(name, "_ring") ||
                     name == "tile_rows";
    for (const char* isa : {"gfx942", "gfx950"}) {
      if (one && std::string(isa) == "gfx942") continue;  // whose matrix units, or LDS, have nothing of the kind
      const auto found = isa::FindKernel(isa, name);
      CHECK_OK(found);
      CHECK_EQ(found->image->name, "decoder");
    }
  }
  CHECK_EQ(MatmulKernel(TileFormat::kFp8, Taken::kBoth), "matmul_fp8");
  CHECK_EQ(MatmulKernel(TileFormat::kFp8, Taken::kRounded), "matmul_fp8_rounded");
  CHECK_EQ(GateUpKernel(TileFormat::kBf16Pair, Taken::kRounded), "gate_up_pair");
  CHECK_EQ(ExpertsKernel(TileFormat::kMxfp4, TileFormat::kMxfp4, Taken::kBoth), "experts_mxfp4");
  CHECK_EQ(ExpertsKernel(TileFormat::kMxfp4, TileFormat::kMxfp4, Taken::kRounded), "experts_mxfp4_rounded");
  CHECK_EQ(ExpertsKernel(TileFormat::kMxfp4, TileFormat::kMxfp4, Taken::kScaled), "experts_mxfp4_scaled");
  CHECK_EQ(MatmulKernel(TileFormat::kBf16, Taken::kScaled), "");
  CHECK_EQ(TallKernel(TallKind::kParts, TileFormat::kFp8, Taken::kScaled), "tall_parts_fp8_scaled");
  CHECK_EQ(ExpertsTallDownKernel(TileFormat::kFp8, Taken::kScaled), "experts_tall_down_fp8_rounded");
  CHECK_EQ(GateUpHalfKernel(TileFormat::kMxfp4, Taken::kScaled), "gate_up_half_mxfp4_scaled");
  CHECK_EQ(GateUpAnyKernel(TileFormat::kFp8, Taken::kBoth), "gate_up_fp8_any");
  CHECK_EQ(GateUpAnyKernel(TileFormat::kFp8, Taken::kRounded), "gate_up_fp8_any_rounded");
  CHECK_EQ(ExpertsAnyKernel(TileFormat::kBf16Pair, TileFormat::kBf16Pair, Taken::kRounded), "experts_pair_any");
  CHECK_EQ(ExpertsAnyKernel(TileFormat::kMxfp4, TileFormat::kMxfp4, Taken::kRounded), "experts_mxfp4_any_rounded");
  CHECK_EQ(PrepareKernel(KvFormat::kFp8, {64, 64}), "prepare_fp8_64");
  CHECK_EQ(AttendKernel(KvFormat::kF32, {128, 128}), "attend_pair_128");
  CHECK_EQ(AttendLongKernel(KvFormat::kK8V4, {256, 256}), "attend_long_k8v4_256");
  CHECK_EQ(AttendTallKernel(KvFormat::kFp4, {192, 128}), "attend_tall_fp4_192_128");
  CHECK_EQ(AttendPromptKernel(KvFormat::kBF16, {128, 128}), "attend_prompt_bf16_128");
  CHECK_EQ(AttendPromptKernel(KvFormat::kFp8, {128, 128}), "");
  CHECK_EQ(AttendKernel(KvFormat::kF32, {160, 160}), "");
  CHECK_EQ(AttendKernel(KvFormat::kF32, {128, 64}), "");
  CHECK_EQ(HeadsMatmulKernel(TileFormat::kMxfp4), "heads_matmul_mxfp4");
  CHECK_EQ(AttendLatentKernel(KvFormat::kF32), "attend_latent_pair");
  CHECK_EQ(AttendLatentTallKernel(KvFormat::kFp8), "attend_latent_tall_fp8");
  CHECK_EQ(LatentKernel(KvFormat::kFp4), "");
}

// Of a code only what weights have as factors; of several codes no gate and up.
TEST(many_rows_take_codes) {
  using kernels::TallTakes, kernels::TileCode, kernels::TileFactors;
  kernels::Tiles w;
  w.outputs = 3;
  w.steps = 16;
  kernels::SetPartEnd(&w, 0, w.steps);
  for (const TileFormat format : {TileFormat::kNibble, TileFormat::kByte}) {
    kernels::SetLeafTiles(format, &w);
    w.code = TileCode::kAffine;
    for (const TileFactors factors : {TileFactors::kNone, TileFactors::kBytes}) {
      w.factors = factors;
      for (const TallKind kind : {TallKind::kMatmul, TallKind::kParts, TallKind::kGateUp, TallKind::kGateUpAny}) {
        CHECK(TallTakes(format, w, kind, Taken::kBoth));
      }
    }
    w.factors = TileFactors::kE4m3;
    CHECK(!TallTakes(format, w, TallKind::kMatmul, Taken::kBoth));
  }
  w.factors = TileFactors::kNone;
  w.code = TileCode::kByTile;
  CHECK(TallTakes(TileFormat::kByte, w, TallKind::kMatmul, Taken::kBoth));
  CHECK(!TallTakes(TileFormat::kByte, w, TallKind::kGateUp, Taken::kBoth));
}

// Gate and up of many rows have any leaves of a k of one part, but for a last tile of one or three steps.
TEST(what_kernels_for_many_rows_take) {
  const auto tiles = [](TileFormat format, uint32_t columns, uint32_t parts) {
    kernels::Tiles w;
    w.steps = columns / kernels::kStepColumns;
    w.parts = static_cast<uint8_t>(parts);
    for (uint32_t part = 0; part < parts; ++part) SetPartEnd(&w, part, w.steps * (part + 1) / parts);
    SetLeafTiles(format, &w);
    return w;
  };
  const auto takes = [&](TileFormat format, uint32_t columns, TallKind kind, uint32_t parts = 1) {
    return kernels::TallTakes(format, tiles(format, columns, parts), kind, Taken::kBoth);
  };
  for (const TileFormat format : {TileFormat::kBf16, TileFormat::kFp8, TileFormat::kMxfp4}) {
    for (const TallKind kind : {TallKind::kGateUp, TallKind::kGateUpAny}) {
      for (const uint32_t columns : {448u, 512u, 896u, 1152u, 2304u, 2880u}) CHECK(takes(format, columns, kind));
      CHECK(!takes(format, 2848, kind));
      CHECK(!takes(format, 2880, kind, 2));
    }
    CHECK(!takes(format, 2880, TallKind::kMatmul));
  }
  CHECK(takes(TileFormat::kBf16, 128, TallKind::kGateUp));
  CHECK(!takes(TileFormat::kFp8, 128, TallKind::kGateUp));
  CHECK(takes(TileFormat::kBf16, 2880, TallKind::kParts));
  CHECK(!takes(TileFormat::kMxfp4, 2880, TallKind::kParts));
  // As many rows of them as registers hold.
  const auto rows = [&](TileFormat format, uint32_t columns, TallKind kind) {
    return kernels::TallRowsOf(format, tiles(format, columns, 1), kind, Taken::kRounded);
  };
  CHECK_EQ(rows(TileFormat::kMxfp4, 2880, TallKind::kGateUp), 96u);
  CHECK_EQ(rows(TileFormat::kBf16, 2880, TallKind::kGateUp), 64u);
  CHECK_EQ(rows(TileFormat::kBf16, 3072, TallKind::kGateUp), 96u);
  CHECK_EQ(rows(TileFormat::kBf16, 2880, TallKind::kParts), 96u);
  // Rows in tiles want leaves of blocks, of bf16.
  const auto takes_tiled = [&](TileFormat format, uint32_t columns) {
    return kernels::TallTakes(format, tiles(format, columns, 1), TallKind::kGateUp, Taken::kTiled);
  };
  CHECK(takes_tiled(TileFormat::kBf16, 3072));
  CHECK(!takes_tiled(TileFormat::kBf16, 2880));
  CHECK(!takes_tiled(TileFormat::kFp8, 3072));
  CHECK_EQ(kernels::TallRows(Taken::kTiled), 128u);
  // A ring in LDS wants such leaves, too, of MXFP4 and FP8.
  const auto takes_ring = [&](TileFormat format, uint32_t columns) {
    return kernels::TallTakes(format, tiles(format, columns, 1), TallKind::kGateUp, Taken::kRing);
  };
  CHECK(takes_ring(TileFormat::kMxfp4, 512));
  CHECK(!takes_ring(TileFormat::kMxfp4, 2880));
  CHECK(takes_ring(TileFormat::kFp8, 3072));
  CHECK(!takes_ring(TileFormat::kFp8, 2880));
  CHECK(!takes_ring(TileFormat::kBf16, 3072));
  CHECK_EQ(kernels::TallRows(Taken::kRing), 128u);
}

// The program as `change` leaves it is refused, in words that hold `text`.
template <class Change>
std::string Refusal(Change change) {
  Program p = Small();
  change(p);
  const Status status = CheckProgram(p);
  if (CodeOf(status) != Code::kUnsupported) return "not refused";
  return std::string(status.message());
}

// As Refusal says it, of a Program of latents.
template <class Change>
std::string LatentRefusal(Change change) {
  Program p = Latents();
  change(p);
  const Status status = CheckProgram(p);
  if (status.ok()) return "not refused";
  return CodeOf(status) == Code::kUnsupported ? std::string(status.message()) : "another code";
}

TEST(latents_that_the_kernels_do_not_take_are_refused) {
  const auto latent = [](Program& p) -> backend::LatentOp& { return std::get<backend::LatentOp>(p.ops[0]); };
  const auto attention = [](Program& p) -> backend::AttentionOp& { return std::get<backend::AttentionOp>(p.ops[1]); };
  CHECK_EQ(LatentRefusal([](Program&) {}), "not refused");
  CHECK(Holds(LatentRefusal([&](Program& p) { latent(p).latent = 96; }), "latents of 96"));
  CHECK(Holds(LatentRefusal([&](Program& p) { latent(p).latent = 576; }), "latents of 576"));
  CHECK(Holds(LatentRefusal([&](Program& p) { latent(p).latent = 16; }), "latents of 16"));
  CHECK(Holds(LatentRefusal([&](Program& p) { latent(p).turning = 80; }), "80 elements of a head turn"));
  CHECK(Holds(LatentRefusal([&](Program& p) { latent(p).turning = 18; }), "18 elements of a head turn"));
  CHECK(Holds(LatentRefusal([](Program& p) { Paged(p).window = 99; }), "a window of 99 tokens"));
  CHECK(Holds(LatentRefusal([&](Program& p) { attention(p).sinks = 0; }), "sinks or a gate"));
  CHECK(Holds(LatentRefusal([&](Program& p) { attention(p).rope = 0; }), "RoPE"));
  // Another attention to the same cache, of no LatentOp's keys; and a LatentOp that nobody takes.
  CHECK(Holds(LatentRefusal([](Program& p) { p.ops.push_back(p.ops[1]); }), "that no op makes right before it"));
  CHECK(Holds(LatentRefusal([](Program& p) { p.ops.push_back(p.ops[0]); }), "want its attention right behind it"));
  CHECK(Holds(LatentRefusal([](Program& p) { p.ops.erase(p.ops.begin()); }), "keys of 80 and values of 64"));
  // Split rows are whole steps a head, fp32 rows fours.
  CHECK(Holds(LatentRefusal([](Program& p) { std::get<backend::HeadsMatmulOp>(p.ops[2]).in_step = 48; }),
              "heads of 64 in \"attention\", from 0 on, 48 apart: the GPU kernels multiply multiples of 32"));
  CHECK_EQ(LatentRefusal([](Program& p) { p.ops.insert(p.ops.begin(), backend::HeadsMatmulOp{kLatentQ, 0, kLatentQkv, 4, 68, 16, 80}); }),
           "not refused");
  CHECK(Holds(LatentRefusal([](Program& p) {
                p.ops.insert(p.ops.begin(), backend::HeadsMatmulOp{kLatentQ, 0, kLatentQkv, 2, 68, 16, 80});
              }),
              "multiples of 4"));
  const Program p = Latents();
  CHECK_OK(CheckKvType(p, KvFormat::kFp8));
  CHECK_OK(CheckKvType(p, KvFormat::kBF16));
  for (const KvFormat type : {KvFormat::kFp4, KvFormat::kK8V4}) {
    CHECK(CodeOf(CheckKvType(p, type)) == Code::kUnsupported);
    CHECK(Holds(std::string(CheckKvType(p, type).message()), "in cache \"latents\""));
    CHECK_OK(CheckKvType(Small(), type));
  }
}

TEST(programs_the_kernels_cannot_run_are_refused) {
  CHECK_OK(CheckProgram(Small()));
  CHECK_OK(CheckProgram(WithExperts(quant::Format::kMxfp4, quant::Format::kMxfp4)));
  CHECK(Holds(Refusal([](Program& p) { Paged(p).key_dim = Paged(p).value_dim = 160; }), "heads of 160"));
  CHECK(Holds(Refusal([](Program& p) { Paged(p).value_dim = 32; }), "keys of 64 and values of 32"));
  CHECK_EQ(Refusal([](Program& p) { Paged(p).window = 128; }), "not refused");
  CHECK_EQ(Refusal([](Program& p) { p.caches.push_back(p.caches[0]); }), "not refused");
  CHECK_EQ(Refusal([](Program& p) { p.caches.push_back(backend::SlotCache{"state", 1, 64}); }),
           "not refused");
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::RecurrentOp{}); }), "no kernel"));
  CHECK(Holds(Refusal([](Program& p) {
                backend::GatedDeltaOp delta = {};
                delta.key_dim = 16;
                delta.value_dim = 272;
                p.ops.push_back(delta);
              }),
              "heads of 16 and 272"));
  CHECK_EQ(Refusal([](Program& p) { Attention(p).rope = backend::kNone; }), "not refused");
  CHECK_EQ(Refusal([](Program& p) {
             p.ropes.push_back(p.ropes[0]);
             Attention(p).rope = 1;
           }),
           "not refused");
  CHECK(Holds(Refusal([](Program& p) { Attention(p).k_norm = backend::kNone; }),
              "a norm of Q or K alone"));
  CHECK_EQ(Refusal([](Program& p) { Attention(p).q_norm = Attention(p).k_norm = backend::kNone; }),
           "not refused");
  CHECK_EQ(Refusal([](Program& p) { Attention(p).bias = 0; }), "not refused");
  CHECK_EQ(Refusal([](Program& p) { Attention(p).gate = 2; }), "not refused");
  CHECK(Holds(Refusal([](Program& p) { Attention(p).gate = Attention(p).out; }), "a gate of"));
  CHECK_EQ(Refusal([](Program& p) { p.ropes[0].rotary_dim = 32; }), "not refused");
  CHECK_EQ(Refusal([](Program& p) { Paged(p).key_dim = Paged(p).value_dim = 256; }), "not refused");
  CHECK_EQ(Refusal([](Program& p) { Attention(p).heads = 34; }), "not refused");  // seventeen to a key head
  CHECK_EQ(Refusal([](Program& p) { Attention(p).heads = 32; }), "not refused");
  CHECK(Holds(Refusal([](Program& p) { p.hidden = 1164; }), "hidden size 1164"));
  CHECK(Holds(Refusal([](Program& p) { p.experts = 513; }), "513 experts"));
  CHECK(Holds(Refusal([](Program& p) { p.experts_per_token = 17; }), "17 a token"));
  CHECK_EQ(Refusal([](Program& p) {
             p.experts = 513;
             p.shared_expert = true;
           }),
           "not refused");
  CHECK_EQ(Refusal([](Program& p) { p.ops.push_back(backend::AddBiasOp{}); }), "not refused");
  // Ops without a function in amdgpu/ops/.
  CHECK_EQ(Refusal([](Program& p) {
             p.buffers.push_back({"sum", backend::BufferType::kF32, 1160, 1});
             p.ops.push_back(backend::AddNormedOp{4, 0, 1, 0});
           }),
           "not refused");
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::AddNormedOp{3, 0, 1, 0}); }),
              "op add_normed of \"act\""));
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::ExpertsBiasOp{1, 2, 0, 0}); }),
              "op experts_bias of \"moe.ids\": the GPU kernels take what experts were chosen by"));
  Program biased = WithExperts(quant::Format::kMxfp4, quant::Format::kMxfp4);
  biased.ops.push_back(backend::ExpertsBiasOp{1, 2, 0, 0});
  CHECK_OK(CheckProgram(biased));
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::RowGateOp{}); }),
              "op row_gate of \"x\": the GPU kernels take what gate-up leaves"));
  // Taps: rows as wide as x, for other contexts only; norms of what has sums of squares.
  CHECK_EQ(Refusal([](Program& p) { p.ops.push_back(backend::InputOp{0, 0}); }), "not refused");
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::TapOp{0, 3}); }),
              "a tap or an input of \"act\", 6 of 96 a row"));
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::InputOp{0, 1}); }),
              "a tap or an input of \"moe.ids\""));
  CHECK(Holds(Refusal([](Program& p) { p.ops.push_back(backend::NormMatmulOp{2, 0, 0, 0}); }),
              "op norm_matmul of \"moe.weights\": the GPU kernels have sums of squares of x"));
  const auto tapped = [](Program& p) {
    p.buffers.push_back({"tap.0", backend::BufferType::kF32, 1160, 1});
    p.taps = {4};
    p.ops.push_back(backend::TapOp{0, 4});
  };
  CHECK_EQ(Refusal(tapped), "not refused");
  CHECK(Holds(Refusal([&](Program& p) {
                tapped(p);
                p.ops.push_back(backend::MatmulAddOp{4, 0, 0});
              }),
              "op matmul_add of \"tap.0\": the GPU kernels keep a tap for other contexts"));
  CHECK_OK(CheckProgram(WithExperts(quant::Format::kQ4K, quant::Format::kQ6K)));
  CHECK_OK(CheckProgram(WithExperts(quant::Format::kQ5K, quant::Format::kIq4Nl)));
  const Program mixed = WithExperts(quant::Format::kBF16, quant::Format::kMxfp4);
  CHECK(Holds(std::string(CheckProgram(mixed).message()), "layers.0.down"));
  // Of FP8 in blocks that only one of the two has whole tiles of.
  Program blocks = WithExperts(quant::Format::kFp8Block, quant::Format::kFp8Block);
  for (backend::Weight& weight : blocks.weights) {
    quant::Matrix& m = weight.sources[0];
    m.rows = m.cols = 128;
    m.block_rows = m.block_cols = 128;
    weight.ranks = {{{0, 0, 128, 0, 128}}};
  }
  CHECK_OK(CheckProgram(blocks));
  blocks.weights[1].sources[0].block_rows = blocks.weights[1].sources[0].block_cols = 16;
  CHECK(Holds(std::string(CheckProgram(blocks).message()), "layers.0.down: the experts' two products"));
  Program alone = WithExperts(quant::Format::kBF16, quant::Format::kBF16);
  alone.ops.erase(alone.ops.begin() + 1);  // nothing before it
  CHECK(CodeOf(CheckProgram(alone)) == Code::kUnsupported);
}

// What an op has beside what its kernel does.
TEST(what_an_op_asks_beyond_its_kernel_is_refused_by_name) {
  const auto refused = [](backend::Op op) {
    return Refusal([&op](Program& p) { p.ops.push_back(op); });
  };
  CHECK(Holds(refused(backend::AddBiasOp{0, 1}), "op add_bias of \"moe.ids\", 1 of 6 a row: the GPU kernels add to fp32"));
  CHECK_EQ(refused(backend::AddBiasOp{0, 2}), "not refused");
  CHECK_EQ(refused(backend::MatmulOp{0, 0, 1}), "not refused");
  CHECK(Holds(refused(backend::MatmulOp{2, 0, 1}), "a product with \"moe.weights\": the GPU kernels multiply"));
  CHECK(Holds(refused(backend::AllReduceAddOp{1, 0, false}), "a product's sums right behind it"));
  CHECK(Holds(refused(backend::AllReduceAddOp{1, 3}), "add to x and to inputs"));
  backend::NormGateUpOp gate_up = {0, backend::kNone, 0, 3};
  CHECK_EQ(refused(gate_up), "not refused");
  gate_up.x = 2;
  CHECK(Holds(refused(gate_up), "op norm_gate_up of \"moe.weights\": the GPU kernels have sums"));
  backend::RouterOp router = {};
  router.groups = 65;
  CHECK(Holds(refused(router), "65 groups of experts: the GPU kernels take 64"));
  router.groups = 8;
  CHECK(Holds(refused(router), "groups of equally many, at least two"));
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    router = {};
    router.scale = scale;
    CHECK(Holds(refused(router), "the GPU kernels take a factor above 0"));
  }
}

// Heads before and behind attention: norms of all of them, and sizes that it does not have.
TEST(heads_of_other_sizes_and_norms_of_all) {
  const auto with = [](backend::ResizeHeadsOp op, bool product, std::vector<int64_t> splits) {
    return Refusal([&](Program& p) {
      p.buffers.push_back({"attention", backend::BufferType::kF32, 8 * 64, 1});    // 4
      p.buffers.push_back({"narrow", backend::BufferType::kF32, 8 * 40, 1});       // 5
      p.buffers.push_back({"qkv", backend::BufferType::kF32, 12 * 64, 1});         // 6
      p.buffers.push_back({"qkv.narrow", backend::BufferType::kF32, 12 * 40, 1});  // 7
      Attention(p).out = 4;
      p.ops.push_back(op);
      if (!product) return;
      p.weights.resize(1);
      p.weights[0].label = "o";
      p.weights[0].splits = splits;
      p.ops.push_back(backend::MatmulAddOp{5, 0, 0});
    });
  };
  const std::vector<int64_t> parts = {0, 40, 80, 120, 160, 200, 240, 280, 320};
  CHECK_EQ(with({7, 6, 40, 64}, false, {}), "not refused");
  CHECK_EQ(with({4, 5, 64, 40}, true, parts), "not refused");
  CHECK(Holds(with({4, 5, 64, 40}, false, {}), "for a product by parts"));
  CHECK(Holds(with({4, 5, 64, 40}, true, {}), "for a product by parts"));
  CHECK(Holds(with({4, 5, 64, 40, 8, 0, 0, 0}, true, parts), "for a product by parts"));
  CHECK(Holds(with({7, 6, 40, 264}, false, {}), "widen what products leave, up to 256"));
  CHECK(Holds(with({7, 6, 64, 40}, false, {}), "widen what products leave"));
  CHECK(Holds(with({7, 6, 44, 64}, false, {}), "take multiples of 8"));
  backend::ResizeHeadsOp values = {7, 6, 40, 64, 8, 4};
  values.value_from = 40, values.value_to = 64;
  CHECK_EQ(with(values, false, {}), "not refused");
  values.value_to = 24;
  CHECK(Holds(with(values, false, {}), "widen what products leave"));
  values.value_to = 260;
  CHECK(Holds(with(values, false, {}), "take multiples of 8"));
  values.value_to = 264;
  CHECK(Holds(with(values, false, {}), "up to 256"));
  values = {4, 5, 64, 40};
  values.value_from = 64, values.value_to = 40;
  CHECK(Holds(with(values, true, parts), "for a product by parts"));
  // A product whose input lies one head behind the other.
  CHECK(Holds(Refusal([&](Program& p) {
                p.buffers.push_back({"attention", backend::BufferType::kF32, 320, 1});
                Attention(p).out = 4;
                p.weights.resize(1);
                p.weights[0].label = "o";
                p.weights[0].splits = parts;
                p.ops.push_back(backend::MatmulAddOp{4, 0, 0});
              }),
              "o: a part of its columns begins at 40"));
  const auto wide = [](int32_t heads, int32_t kv, backend::BufferId qkv, int32_t value_dim = 8) {
    return Refusal([&](Program& p) {
      p.buffers.push_back({"qkv", backend::BufferType::kF32, (heads + kv) * 8 + kv * value_dim, 1});  // 4
      backend::WideNormOp op = {};
      op.qkv = qkv;
      op.key_dim = 8;
      op.heads = heads;
      op.kv_heads = op.total_kv_heads = kv;
      p.ops.push_back(op);
    });
  };
  CHECK_EQ(wide(1152, 8, 4), "not refused");
  CHECK(Holds(wide(8, 2, 4, 16), "beside values of another size than keys"));
  CHECK(Holds(wide(1153, 8, 4), "op wide_norm of 1161 heads: the GPU kernels take as many as the hidden size, 1160"));
  CHECK(Holds(wide(8, 8, 0), "the GPU kernels norm fp32 rows"));
  const std::pair<HeadDims, HeadDims> stored[] = {
      {{8, 8}, {32, 32}},         {{64, 64}, {64, 64}},       {{72, 72}, {96, 96}},      {{104, 104}, {128, 128}},
      {{192, 192}, {192, 192}},   {{200, 200}, {256, 256}},   {{64, 32}, {64, 64}},      {{192, 128}, {192, 128}},
      {{176, 96}, {192, 128}},    {{192, 136}, {192, 192}},   {{128, 192}, {192, 192}},
      {{264, 264}, {272, 272}},  // for which there is no kernel
  };
  for (const auto& [own, as] : stored) CHECK(StoredHeadDims(own) == as);
  CHECK_EQ(AttendKernel(KvFormat::kF32, StoredHeadDims({264, 264})), "");
}

// Experts take the rows of x that their router took: x may be written in between, but not normed.
TEST(x_between_a_router_and_its_experts) {
  const auto between = [](const std::vector<backend::Op>& ops) {
    Program p = WithExperts(quant::Format::kBF16, quant::Format::kBF16);
    p.buffers.push_back({"sum", backend::BufferType::kF32, 1160, 1});
    backend::RouterOp router = {};
    router.h = 4;
    p.ops[1] = router;
    p.ops.insert(p.ops.begin() + 2, ops.begin(), ops.end());
    backend::ExpertsGateUpOp up = {4, 1, 0, 3};
    p.ops.insert(p.ops.end() - 1, up);
    const Status status = CheckProgram(p);
    return status.ok() ? "not refused" : std::string(status.message());
  };
  const backend::AddNormedOp write = {4, 0, 1, 0};
  CHECK_EQ(between({}), "not refused");
  CHECK_EQ(between({write}), "not refused");
  CHECK_EQ(between({backend::NormMatmulOp{0, 0, 0, 4}, write}), "not refused");
  const std::string reason = "between a router and its experts";
  CHECK(Holds(between({write, backend::NormMatmulOp{0, 0, 0, 4}}), reason));
  CHECK(Holds(between({backend::NormMatmulOp{0, 1, 0, 4}}), reason));
  CHECK(Holds(between({backend::NormGateUpOp{0, backend::kNone, 0, 3}}), reason));
  CHECK(Holds(between({backend::MatmulOp{0, 0, 4}}), reason));
}

TEST(lists_of_gpus) {
  const auto text = [](absl::string_view list) -> std::string {
    const auto parsed = ParseGpuList(list);
    if (!parsed.ok()) return std::string(parsed.status().message());
    std::string out;
    for (uint32_t gpu : *parsed) absl::StrAppend(&out, gpu, " ");
    return out;
  };
  CHECK_EQ(text("0"), "0 ");
  CHECK_EQ(text("0-3,6"), "0 1 2 3 6 ");
  CHECK_EQ(text("3,1,2-2"), "3 1 2 ");
  CHECK_EQ(text("127"), "127 ");
  CHECK(Holds(text("0,1,0-2"), "GPU 0 twice"));
  for (const char* bad : {"", ",", "0,", "a", "1-", "-1", "3-1", "1-2-3", "128", "0-4294967295",
                          "4294967296", "0x1"}) {
    CHECK(CodeOf(ParseGpuList(bad).status()) == Code::kInvalidArgument);
    CHECK(Holds(text(bad), absl::StrCat("\"", bad, "\"")));
  }
}

}  // namespace
}  // namespace mainarch::amdgpu
