// SPDX-License-Identifier: MIT
//
// Lowering with no device: names, refusals, and the sizes of a context. What the launches compute
// is tests/golden/gpu_golden_test.cc's.
#include <limits>

#include "backend/amdgpu/choices.h"
#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lower.h"
#include "backend/amdgpu/page_tables.h"
#include "isa/kernel_images.h"
#include "kernels/latent_args.h"
#include "support/test.h"

namespace mainarch::amdgpu {
namespace {

using backend::Program;
using kernels::KvFormat;
using kernels::TileFormat;

TEST(every_name_is_a_kernel) {
  std::vector<std::string> names;
  for (TileFormat format :
       {TileFormat::kBf16, TileFormat::kBf16Pair, TileFormat::kFp8, TileFormat::kMxfp4}) {
    for (bool rounded : {false, true}) {
      names.emplace_back(MatmulKernel(format, rounded));
      names.emplace_back(GateUpKernel(format, rounded));
      names.emplace_back(ExpertsKernel(format, rounded));
      names.emplace_back(GateUpAnyKernel(format, rounded));
      names.emplace_back(ExpertsAnyKernel(format, rounded));
    }
  }
  for (TileFormat format :
       {TileFormat::kBf16, TileFormat::kBf16Pair, TileFormat::kFp8, TileFormat::kMxfp4}) {
    names.emplace_back(HeadsMatmulKernel(format));
  }
  for (KvFormat format : {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kF32}) {
    names.emplace_back(LatentKernel(format));
    names.emplace_back(AttendLatentKernel(format));
    for (int32_t head_dim : {32, 64, 128}) {
      names.emplace_back(PrepareKernel(format, head_dim));
      names.emplace_back(AttendKernel(format, head_dim));
    }
  }
  for (const char* name : {"gated_delta", "gated_delta_wide", "gated_delta_norm"}) {
    names.emplace_back(name);
  }
  for (const std::string& name : names) {
    for (const char* isa : {"gfx942", "gfx950"}) {
      const auto found = isa::FindKernel(isa, name);
      CHECK_OK(found);
      CHECK_EQ(found->image->name, "decoder");
    }
  }
  CHECK_EQ(MatmulKernel(TileFormat::kFp8, false), "matmul_fp8");
  CHECK_EQ(MatmulKernel(TileFormat::kFp8, true), "matmul_fp8_rounded");
  CHECK_EQ(GateUpKernel(TileFormat::kBf16Pair, true), "gate_up_pair");
  CHECK_EQ(ExpertsKernel(TileFormat::kMxfp4, false), "experts_mxfp4");
  CHECK_EQ(ExpertsKernel(TileFormat::kMxfp4, true), "experts_mxfp4_rounded");
  CHECK_EQ(GateUpAnyKernel(TileFormat::kFp8, false), "gate_up_fp8_any");
  CHECK_EQ(GateUpAnyKernel(TileFormat::kFp8, true), "gate_up_fp8_any_rounded");
  CHECK_EQ(ExpertsAnyKernel(TileFormat::kBf16Pair, true), "experts_pair_any");
  CHECK_EQ(ExpertsAnyKernel(TileFormat::kMxfp4, true), "experts_mxfp4_any_rounded");
  CHECK_EQ(PrepareKernel(KvFormat::kFp8, 64), "prepare_fp8_64");
  CHECK_EQ(AttendKernel(KvFormat::kF32, 128), "attend_pair_128");
  CHECK_EQ(AttendKernel(KvFormat::kF32, 96), "");
  CHECK_EQ(HeadsMatmulKernel(TileFormat::kMxfp4), "heads_matmul_mxfp4");
  CHECK_EQ(AttendLatentKernel(KvFormat::kF32), "attend_latent_pair");
  CHECK_EQ(LatentKernel(KvFormat::kFp4), "");
}

Program Small() {
  Program p;
  p.hidden = 1160;
  p.vocab = 1001;
  p.ropes.push_back({64, std::vector<double>(32, 1.0), 1});
  p.caches.push_back(backend::PagedCache{"kv", 1, 2, 64, 64});
  p.max_position = 4096;
  p.buffers = {{"x", backend::BufferType::kF32, 1160, 1},
               {"moe.ids", backend::BufferType::kI32, 6, 1},
               {"moe.weights", backend::BufferType::kF32, 6, 1},
               {"act", backend::BufferType::kF32, 96, 6}};
  backend::AttentionOp attention = {};
  attention.heads = 8;
  attention.q_norm = attention.k_norm = 0;
  p.ops.push_back(attention);
  return p;
}
// Experts whose products have weights of these formats.
Program WithExperts(quant::Format up, quant::Format down) {
  Program p = Small();
  p.experts = 130;
  p.experts_per_token = 6;
  p.weights.resize(2);
  p.weights[0].label = "up";
  p.weights[1].label = "layers.0.down";
  p.weights[0].sources.resize(1);
  p.weights[1].sources.resize(1);
  p.weights[0].sources[0].format = up;
  p.weights[1].sources[0].format = down;
  p.ops.push_back(backend::ExpertsGateUpOp{0, 1, 0, 3});
  p.ops.push_back(backend::ExpertsDownOp{3, 1, 2, 1, 0, true});
  return p;
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
bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

backend::PagedCache& Paged(Program& p) { return std::get<backend::PagedCache>(p.caches[0]); }
backend::AttentionOp& Attention(Program& p) { return std::get<backend::AttentionOp>(p.ops[0]); }

// Latent attention's buffers, from queries to what the output's product takes.
enum : backend::BufferId { kLatentX, kLatentQ, kLatentKv, kLatentQkv, kLatentAttention, kLatentOut };
Program Latents() {
  Program p = Small();
  p.ropes[0] = {16, std::vector<double>(8, 1.0), 1};
  p.caches = {backend::PagedCache{"latents", 1, 1, 80, 64}};
  p.buffers.clear();
  for (const char* label : {"x", "q", "kv", "qkv", "attention", "out"}) {
    p.buffers.push_back({label, backend::BufferType::kF32, 1160, 1});
  }
  p.weights.resize(1);
  p.weights[0].groups = 8;
  p.weights[0].ranks = {std::vector<backend::WeightSlice>(8, {0, 0, 64, 0, 64})};
  p.weights[0].sources.resize(1);
  backend::LatentOp latent = {kLatentQ, kLatentKv, kLatentQkv, 0, 1e-6f, 0, 8, 32, 16, 64, true};
  backend::AttentionOp attention = {};
  attention.qkv = kLatentQkv;
  attention.out = kLatentAttention;
  attention.heads = 8;
  attention.rope = backend::kNone;
  p.ops = {latent, attention, backend::HeadsMatmulOp{kLatentAttention, 0, kLatentOut, 0, 64, 0, 32},
           backend::MatmulOp{kLatentOut, 0, kLatentX}};
  return p;
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

// A page of one layer, whatever the heads: 576 numbers a token, once.
TEST(pages_hold_latents_once) {
  Program p = Latents();
  std::get<backend::LatentOp>(p.ops[0]).turning = 64;
  std::get<backend::LatentOp>(p.ops[0]).latent = 512;
  Paged(p).key_dim = 576;
  Paged(p).value_dim = 512;
  backend::ContextOptions options;
  options.pages = {3};
  for (const auto& [type, bytes] : std::vector<std::pair<KvFormat, uint64_t>>{
           {KvFormat::kBF16, 16 * 576 * 2}, {KvFormat::kFp8, 16 * (576 + 8)}, {KvFormat::kF32, 16 * 576 * 4}}) {
    options.kv_type = type;
    CHECK_EQ(PoolShapesOf(p, options)[0].page_bytes, bytes);
  }
  // What turns is a whole step, too.
  std::get<backend::LatentOp>(p.ops[0]).turning = 16;
  options.kv_type = KvFormat::kBF16;
  CHECK_EQ(PoolShapesOf(p, options)[0].page_bytes, uint64_t{16 * (32 + 512) * 2});
}

// Splits of latents are longer where contexts are, so that there are no more than 128 of a row.
TEST(splits_of_latents) {
  using kernels::LatentSplitBlocks, kernels::LatentSplits;
  CHECK_EQ(LatentSplits(0), 1u);
  CHECK_EQ(LatentSplits(127), 1u);
  CHECK_EQ(LatentSplits(128), 2u);
  CHECK_EQ(LatentSplits(16383), 128u);
  CHECK_EQ(LatentSplits(16384), 65u);
  CHECK_EQ(LatentSplitBlocks(16384), 2u);
  CHECK_EQ(LatentSplits(32767), 128u);
  CHECK_EQ(LatentSplitBlocks(32768), 4u);
  for (uint32_t position = 1; position < 1u << 22; position += 97) {
    CHECK_LE(LatentSplits(position), kernels::kLatentMostSplits);
    if (position >= 16384) CHECK_GT(LatentSplits(position), 64u);
  }
  // DeepSeek's context: of 16 heads 4 MiB of parts a row, of 128 heads 33.
  Program p = Latents();
  std::get<backend::LatentOp>(p.ops[0]).latent = 512;
  Paged(p).key_dim = 528;
  Paged(p).value_dim = 512;
  p.max_position = 163840;
  backend::ContextOptions options;
  options.pages = {163840 / 16};
  options.max_rows = 512;
  for (const auto& [heads, rows] : std::vector<std::pair<int32_t, uint32_t>>{{16, 248}, {128, 31}}) {
    std::get<backend::AttentionOp>(p.ops[1]).heads = heads;
    CHECK_EQ(ShapeOf(p, options).attend_floats, static_cast<uint64_t>(heads) * 128 * 528);
    CHECK_EQ(ShapeOf(p, options).attend_rows, rows);
  }
}

TEST(programs_the_kernels_cannot_run_are_refused) {
  CHECK_OK(CheckProgram(Small()));
  CHECK_OK(CheckProgram(WithExperts(quant::Format::kMxfp4, quant::Format::kMxfp4)));
  CHECK(Holds(Refusal([](Program& p) { Paged(p).key_dim = Paged(p).value_dim = 96; }), "heads of 96"));
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
  CHECK(Holds(Refusal([](Program& p) { Attention(p).heads = 34; }), "17 query heads"));
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
  const auto wide = [](int32_t heads, int32_t kv, backend::BufferId qkv) {
    return Refusal([&](Program& p) {
      backend::WideNormOp op = {};
      op.qkv = qkv;
      op.heads = heads;
      op.kv_heads = op.total_kv_heads = kv;
      p.ops.push_back(op);
    });
  };
  CHECK_EQ(wide(1152, 8, 2), "not refused");
  CHECK(Holds(wide(1153, 8, 2), "op wide_norm of 1161 heads: the GPU kernels take as many as the hidden size, 1160"));
  CHECK(Holds(wide(8, 8, 0), "the GPU kernels norm fp32 rows"));
  CHECK_EQ(StoredHeadDim(8), 32);
  CHECK_EQ(StoredHeadDim(64), 64);
  CHECK_EQ(StoredHeadDim(72), 128);
  CHECK_EQ(StoredHeadDim(192), 256);
  CHECK_EQ(StoredHeadDim(264), 272);  // for which there is no kernel
  CHECK_EQ(AttendKernel(KvFormat::kF32, StoredHeadDim(264)), "");
}

// Narrowed heads lie by the parts of their product; sums of squares travel, too.
TEST(sizes_of_a_context_with_resized_heads) {
  Program p = Small();
  p.ranks = 2;
  p.buffers.push_back({"attention", backend::BufferType::kF32, 4 * 64, 1});
  p.buffers.push_back({"narrow", backend::BufferType::kF32, 4 * 24, 1});
  Attention(p).out = 4;
  p.weights.resize(1);
  p.weights[0].ranks.resize(2);
  p.weights[0].splits = {0, 24, 48, 72, 96, 120, 144, 168, 192};
  p.ops.push_back(backend::ResizeHeadsOp{4, 5, 64, 24});
  p.ops.push_back(backend::MatmulOp{5, 0, 0});
  backend::WideNormOp wide = {};
  wide.qkv = 2;
  wide.heads = 4;
  wide.kv_heads = wide.total_kv_heads = 1;
  p.ops.push_back(wide);
  backend::ContextOptions options;
  options.pages = {4};
  const Shape s = ShapeOf(p, options);
  CHECK_EQ(s.strides[5], 128u);  // 4 parts of 24, a step each
  CHECK(LiesSplit(p, 5));
  CHECK_EQ(s.all_reduces, 1u);
  CHECK_EQ(s.square_reduces, 1u);
  CHECK_EQ(s.square_width, 9u);
  p.weights[0].ranks.resize(1);
  p.ranks = 1;
  p.buffers[5].width = 192;
  CHECK_EQ(ShapeOf(p, options).strides[5], 256u);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 0u);
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

TEST(sizes_of_a_context) {
  Program p = WithExperts(quant::Format::kBF16, quant::Format::kBF16);
  p.ops.push_back(backend::MatmulAddOp{});
  p.ops.push_back(backend::AllReduceAddOp{});
  p.ops.push_back(backend::MatmulOp{});
  backend::ContextOptions options;
  options.kv_type = backend::KvType::kFp8;
  options.max_rows = 20;
  options.max_logit_rows = 3;
  options.pages = {100};
  const Shape s = ShapeOf(p, options);
  CHECK(s.kv == KvFormat::kFp8);
  CHECK_EQ(s.hidden_stride, 1280u);
  CHECK_EQ(s.chunks, 3u);
  CHECK_EQ(s.max_splits, 13u);  // 100 pages are 1600 tokens
  CHECK_EQ(s.attend_rows, 20u);
  CHECK_EQ(s.router_stride, 256u);
  CHECK_EQ(s.logits_stride, 1008u);
  CHECK_EQ(s.all_reduces, 3u);
  CHECK_EQ(s.sum_rows, 16u);
  CHECK_EQ(s.sum_stride, 1280u);
  CHECK_EQ(s.share_stride, 0u);  // no LM head here
  CHECK_EQ(s.choice_slots, 3u);
  // 16 + 20 * 4 + 3 * (1 + 16 + 2 * 1001 + 192 + 32) = 6825, then 100 changes of two words
  CHECK_EQ(s.choices_end, 6832u);
  CHECK_EQ(s.table_words, 100u);
  CHECK_EQ(s.step_changes, 100u);
  CHECK_EQ(s.step_words, 7168u);
  CHECK_EQ(s.pools[0].page_bytes, 2u * (2 * 16 * 64 + 2 * 16 * 4));
  CHECK_EQ(s.strides.size(), 4u);
  CHECK_EQ(s.strides[0], 1280u);
  CHECK_EQ(s.strides[1], 6u);
  CHECK_EQ(s.strides[2], 6u);
  CHECK_EQ(s.strides[3], 128u);
}

// An InputOp takes a word a row of the step block, and one more, which fits; what every rank makes whole is no all-reduce.
TEST(sizes_of_a_context_that_reads_a_tap) {
  Program p = Small();
  p.ops.push_back(backend::MatmulAddOp{});
  p.ops.push_back(backend::AllReduceAddOp{});
  backend::ContextOptions options;
  options.max_rows = 64;
  options.pages = {4};
  CHECK(!ShapeOf(p, options).reads_tap);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 2u);
  const uint32_t without = ShapeOf(p, options).choices_end;
  p.ops.push_back(backend::InputOp{0, 3});
  p.ranks = 2;
  p.taps = {1};
  CHECK(ShapeOf(p, options).reads_tap);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 1u);
  CHECK_EQ(ShapeOf(p, options).choices_end, without + 64);
  CHECK(InputsOf(p)[3] && !InputsOf(p)[0]);
  CHECK(TapsOf(p)[1] && !TapsOf(p)[0]);
}

// Lists of slots: of each sequence where it is, of each row and cache two words.
TEST(sizes_of_a_context_with_states) {
  Program p = Small();
  backend::ContextOptions options;
  options.max_rows = 64;
  options.pages = {4};
  const uint32_t without = ShapeOf(p, options).choices_end;
  p.caches.insert(p.caches.begin(), backend::SlotCache{"state", 3, 1000});
  p.caches.push_back(backend::SlotCache{"carried", 1, 4640});
  Attention(p).cache = 1;
  options.pages = {0, 4};
  options.slots = {5, 0, 6};
  const Shape s = ShapeOf(p, options);
  CHECK_EQ(s.choices_end, without + 64 * (2 + 2 * 2));  // one more is what `without` was rounded by
  CHECK_EQ(s.positions, 64u);
  CHECK_EQ(s.pools.size(), 3u);
  CHECK_EQ(s.pools[0].list, backend::kNone);
  CHECK_EQ(s.pools[1].list, 0);
  CHECK_EQ(s.pools[1].pages, 4u);
  CHECK_EQ(s.slots.size(), 3u);
  CHECK_EQ(s.slots[0].list, 0);
  CHECK_EQ(s.slots[0].slots, 5u);
  CHECK_EQ(s.slots[0].layers, 3);
  CHECK_EQ(s.slots[0].slot_bytes, 1024u);
  CHECK_EQ(s.slots[1].list, backend::kNone);
  CHECK_EQ(s.slots[2].list, 1);
  CHECK_EQ(s.slots[2].slot_bytes, 4864u);
}

// Caches with windows have fewer pages than positions; each cache has tables of all of these.
TEST(sizes_of_a_context_with_windows) {
  Program p = Small();
  p.caches.push_back(p.caches[0]);
  Paged(p).window = 100;
  backend::ContextOptions options;
  options.max_rows = 4;
  options.max_sequences = 3;
  options.pages = {24, 50};
  Shape s = ShapeOf(p, options);
  CHECK_EQ(s.page_lists, 2u);
  CHECK_EQ(s.positions, 800u);
  CHECK_EQ(s.table_words, 50u);
  CHECK_EQ(s.step_changes, 300u);
  CHECK_EQ(s.pools[0].list, 0);
  CHECK_EQ(s.pools[1].list, 1);
  CHECK_EQ(s.pools[0].pages, 24u);
  // With windows alone any position may be reached.
  p.caches.pop_back();
  options.pages = {24};
  s = ShapeOf(p, options);
  CHECK_EQ(s.positions, static_cast<uint64_t>(p.max_position));
  CHECK_EQ(s.table_words, static_cast<uint32_t>(p.max_position) / 16);
}

// Of a position and a window: from the first split that holds a token seen.
TEST(splits_that_a_window_leaves) {
  for (const uint32_t window : {0u, 1u, 16u, 127u, 128u, 129u, 1000u}) {
    for (uint32_t position = 0; position < 3000; ++position) {
      const uint32_t first = window == 0 || position + 1 < window ? 0 : position + 1 - window;
      CHECK_EQ(kernels::FirstSeen(position, window), first);
      CHECK_EQ(kernels::FirstSplit(position, window), first / 128);
      const uint32_t seen = position / 128 - first / 128 + 1;
      CHECK_EQ(kernels::SplitsSeen(position, window), seen);
      CHECK(seen <= kernels::MostSplits(window));
    }
  }
}

TEST(sizes_at_their_limits) {
  Program p = Small();
  backend::ContextOptions options;
  options.max_rows = 512;
  options.pages = {1};
  CHECK_EQ(ShapeOf(p, options).max_splits, 1u);
  CHECK_EQ(ShapeOf(p, options).attend_rows, 512u);
  options.pages = {8};  // 128 tokens fill one split
  CHECK_EQ(ShapeOf(p, options).max_splits, 1u);
  options.pages = {9};
  CHECK_EQ(ShapeOf(p, options).max_splits, 2u);
  options.pages = {1 << 20};  // max_position is what limits
  CHECK_EQ(ShapeOf(p, options).max_splits, 32u);
  // Parts of attention take 256 MiB at most, and one row at least.
  p.max_position = 1 << 20;
  CHECK_EQ(ShapeOf(p, options).max_splits, 8192u);
  CHECK_EQ(ShapeOf(p, options).attend_rows, (256u << 20) / (8 * 8192 * 80 * 4));
  Attention(p).heads = 128;
  Paged(p).key_dim = Paged(p).value_dim = 128;
  p.max_position = int64_t{1} << 26;
  options.pages = {1 << 22};
  CHECK_EQ(ShapeOf(p, options).attend_rows, 1u);
  p.hidden = 1024;
  CHECK_EQ(ShapeOf(p, options).chunks, 2u);
  CHECK_EQ(ShapeOf(p, options).hidden_stride, 1024u);
}

TEST(classes_of_rows) {
  const auto text = [](uint32_t max_rows) {
    std::string out;
    for (uint32_t rows : RowClasses(max_rows)) absl::StrAppend(&out, rows, " ");
    return out;
  };
  CHECK_EQ(text(1), "1 ");
  CHECK_EQ(text(2), "1 2 ");
  CHECK_EQ(text(4), "1 4 ");
  CHECK_EQ(text(8), "1 4 8 ");
  CHECK_EQ(text(12), "1 4 8 12 ");
  CHECK_EQ(text(512), "1 4 8 16 64 256 512 ");
}

// What is written for a row, and that a row whose lists do not fit is read.
TEST(choices_as_words) {
  const uint32_t bans[] = {3, 4};
  const backend::LogitBias bias[] = {{7, 0.5f}, {7, -1}};
  const uint32_t counted[] = {9, 2}, times[] = {0, 0, 1, 0, 0, 0, 0, 0, 0, 6};
  backend::Choice drawn;
  drawn.choose = true;
  drawn.read = false;
  drawn.temperature = 0.5f;
  drawn.top_k = 20;
  drawn.seed = 5;
  drawn.banned[1] = bans;
  drawn.bias = bias;
  drawn.counted = counted;
  drawn.times = times;
  const uint32_t mask[] = {0x3ff, 7};
  drawn.mask = mask;
  backend::Choice greedy;
  greedy.choose = true;
  greedy.seed = 77;
  const backend::Choice choices[] = {drawn, backend::Choice(), greedy};
  const uint32_t rows[] = {0, 1, 2};
  backend::Step step;
  step.logit_rows = rows;
  step.choices = choices;
  constexpr uint32_t kEnd = 2 + 3 * kChoiceRowWords + 4 * 3 + 2 * 2 + 2;
  std::vector<uint32_t> block(kEnd + 1, 0xdead);
  RowOutcome rows_are[3];
  const absl::Span<RowOutcome> outcomes(rows_are);
  ChoiceWork work = WriteChoices(step, 2, kEnd, block.data(), outcomes);
  CHECK_EQ(work.end, kEnd);
  CHECK(work.tokens && work.draws);
  CHECK(!outcomes[0].read && outcomes[1].read && outcomes[2].read);
  CHECK(outcomes[0].told && !outcomes[1].told && outcomes[2].told);
  kernels::ChoiceRow row;
  std::memcpy(static_cast<void*>(&row), &block[2], sizeof(row));
  CHECK_EQ(row.flags, kernels::kChoiceToken | kernels::kChoiceSample | kernels::kChoiceMask);
  CHECK_EQ(row.top_k, 20u);
  CHECK_EQ(row.seed, 5u);
  CHECK_EQ(row.edits_at, 2 + 3 * kChoiceRowWords);
  CHECK_EQ(row.edits, 4u);
  CHECK_EQ(row.counts, 2u);
  CHECK_EQ(row.counts_at, row.edits_at + 12);
  CHECK_EQ(block[row.edits_at + 3], 4u);
  CHECK_EQ(block[row.edits_at + 5], 1u);  // set
  CHECK_EQ(block[row.edits_at + 8], 0u);  // added
  CHECK_EQ(block[row.counts_at + 1], 5u);
  CHECK_EQ(block[row.counts_at + 3], 0u);
  CHECK_EQ(block[row.counts_at + 4], 0x3ffu);
  CHECK_EQ(block[row.counts_at + 5], 7u);
  CHECK_EQ(block[kEnd], 0xdeadu);
  std::memcpy(static_cast<void*>(&row), &block[2 + 2 * kChoiceRowWords], sizeof(row));
  CHECK_EQ(row.flags, kernels::kChoiceToken | kernels::kChoiceRead);
  CHECK_EQ(row.seed, 0u);
  // One word too few: the first row is read, and writes no list.
  std::fill(block.begin(), block.end(), 0xdead);
  work = WriteChoices(step, 2, kEnd - 1, block.data(), outcomes);
  CHECK_EQ(work.end, 2 + 3 * kChoiceRowWords);
  CHECK(work.tokens && !work.draws);
  CHECK(outcomes[0].read && !outcomes[0].told);
  CHECK_EQ(block[work.end], 0xdeadu);
  // No choices: all are read.
  step.choices = {};
  work = WriteChoices(step, 2, kEnd, block.data(), outcomes);
  CHECK(!work.tokens && outcomes[0].read && outcomes[2].read && !outcomes[2].told);
}

// What a GPU would hold that took the changes, against the lists themselves.
TEST(page_tables_as_changes) {
  constexpr uint32_t kTables = 3, kWords = 600, kPool = 1000;
  auto created = PageTables::Create(kTables, kWords, {{0, kPool}});
  CHECK_OK(created);
  PageTables& tables = *created;
  std::vector<uint32_t> gpu(kTables * kWords, 0), lists[2];
  backend::StepCache caches[2];
  backend::StepSequence sequences[2];
  backend::Step step;
  const auto set = [&](uint32_t first, uint32_t second) {
    for (int i = 0; i < 2; ++i) caches[i].pages = lists[i];
    sequences[0] = {absl::MakeConstSpan(&caches[0], 1), first};
    sequences[1] = {absl::MakeConstSpan(&caches[1], 1), second};
    step.sequences = sequences;
  };
  // The changes made, in takes of at most `room`.
  const auto take = [&](uint32_t room) {
    uint64_t all = 0;
    std::vector<kernels::PageChange> out(room);
    while (const uint32_t taken = tables.Take(step, room, out.data())) {
      for (uint32_t i = 0; i < taken; ++i) gpu[out[i].at] = out[i].page;
      all += taken;
    }
    return all;
  };
  const auto holds = [&](uint32_t table, const std::vector<uint32_t>& list) {
    return std::equal(list.begin(), list.end(), gpu.begin() + tables.Offset(table));
  };
  for (uint32_t i = 0; i < kWords; ++i) lists[0].push_back(i + 1);
  lists[1] = {5, 0, 7};  // the second is as it is
  set(2, 0);
  auto count = tables.Count(step);
  CHECK_OK(count);
  CHECK_EQ(*count, uint64_t{kWords + 2});
  CHECK_EQ(take(100), uint64_t{kWords + 2});
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  // As before, but for a page more and one in the middle.
  lists[1].push_back(8);
  lists[0][300] = 999;
  set(2, 0);
  count = tables.Count(step);
  CHECK_OK(count);
  CHECK_EQ(*count, 2u);
  CHECK_EQ(take(1), 2u);
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  CHECK_EQ(*tables.Count(step), 0u);
  // A shorter list changes nothing behind it; another sequence takes the table over.
  lists[0].resize(2);
  std::swap(lists[0], lists[1]);
  set(2, 0);
  CHECK_EQ(*tables.Count(step), 6u);
  CHECK_EQ(take(64), 6u);
  CHECK(holds(2, lists[0]) && holds(0, lists[1]));
  CHECK_EQ(gpu[tables.Offset(2) + 4], 5u);
  // Refused, and nothing has changed.
  set(1, 1);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "named twice"));
  set(1, kTables);
  CHECK(!tables.Count(step).ok());
  lists[0][1] = kPool;
  set(1, 2);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "page 1000"));
  lists[0].assign(kWords + 1, 1);
  set(1, 2);
  CHECK(Holds(std::string(tables.Count(step).status().message()), "601 pages"));
  lists[0] = {};
  lists[1] = {1, 2};
  set(1, 0);
  CHECK_EQ(*tables.Count(step), 0u);
}

// Of a second cache, with slots between; its pages behind a window are gone, and what the table has of them
// stays.
TEST(page_tables_of_several_caches) {
  constexpr uint32_t kTables = 2, kWords = 40;
  auto tables = PageTables::Create(kTables, kWords, {{0, 9}, {2, 100}});
  CHECK_OK(tables);
  const uint32_t full[] = {3, 4, 5}, window[] = {70, 71};
  backend::StepCache caches[3];
  caches[0].pages = full;
  caches[2].pages = window;
  caches[2].first_page = 38;
  backend::Step step;
  const backend::StepSequence sequence = {absl::MakeConstSpan(caches), 1};
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  CHECK_EQ(*tables->Count(step), 5u);
  kernels::PageChange out[8];
  CHECK_EQ(tables->Take(step, 4, out), 4u);
  CHECK_EQ(tables->Take(step, 8, out + 4), 1u);
  const uint32_t behind = kTables * kWords;
  const kernels::PageChange want[] = {
      {kWords, 3}, {kWords + 1, 4}, {kWords + 2, 5}, {behind + kWords + 38, 70}, {behind + kWords + 39, 71}};
  for (int i = 0; i < 5; ++i) CHECK(out[i].at == want[i].at && out[i].page == want[i].page);
  CHECK_EQ(*tables->Count(step), 0u);
  caches[2].first_page = 39;
  CHECK(Holds(std::string(tables->Count(step).status().message()), "2 pages from page 39 on; a table has 40"));
  caches[2].first_page = 38;
  const uint32_t beyond[] = {3, 4, 9};
  caches[0].pages = beyond;
  CHECK(Holds(std::string(tables->Count(step).status().message()), "page 9 is not in the pool of 9"));
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
