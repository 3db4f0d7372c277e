// SPDX-License-Identifier: MIT
//
// Products that take x as it is beside others that norm it first, in every order: on GPUs both have
// split rows of x, which lie at one place. Against fp64, and the same bits in steps of any number of rows.
#include <cmath>

#include "backend/backend.h"
#include "support/config_runs.h"
#include "support/gpus.h"
#include "support/program_maker.h"
#include "support/test.h"

namespace mainarch {
namespace {

using backend::BufferId;
using backend::kNone;

constexpr int32_t kHidden = 72, kVocab = 96, kWidth = 40, kHeads = 2, kHeadDim = 32;
constexpr uint32_t kTokens = 9;

class Maker : public test::ProgramMaker {
 public:
  Maker() : ProgramMaker(kHidden, kVocab, 3) {
    qkv_ = Buffer("qkv", 3 * kHeads * kHeadDim);
    attention_ = Buffer("attention", kHeads * kHeadDim);
    act_ = Buffer("act", kWidth);
    sum_ = Buffer("sum", kHidden);
    const int32_t rope = Rope(kHeadDim);
    auto& ops = program->ops;
    ops.push_back(backend::EmbedOp{Weight("embed", backend::WeightLayout::kTable, kVocab, kHidden, 1), program->x});
    // Normed, then as it is; then the other way round.
    ops.push_back(backend::NormMatmulOp{program->x, Norm("a", kHidden), Qkv("qkv.0"), qkv_});
    FeedForward("plain", kNone);
    Attend(rope);
    ops.push_back(backend::MatmulOp{program->x, Qkv("qkv.1"), qkv_});
    Attend(rope);
    FeedForward("plain again", kNone);
    FeedForward("normed", Norm("b", kHidden));
    // Of x as it is, to x and to another buffer, which lies whole.
    ops.push_back(backend::MatmulAddOp{program->x, Matrix("square", kHidden, kHidden), program->x});
    ops.push_back(backend::NormGateUpOp{program->x, Norm("c", kHidden), GateUp("last", kWidth, kHidden), act_});
    ops.push_back(backend::MatmulOp{program->x, Matrix("to sum", kHidden, kHidden), sum_});
    ops.push_back(backend::AddBiasOp{Vector("bias", kHidden, 1), program->x});
    ops.push_back(backend::AddNormedOp{sum_, kNone, 0.5f, program->x});
    ops.push_back(backend::MatmulAddOp{act_, Matrix("last.down", kHidden, kWidth), program->x});
    ops.push_back(backend::LogitsOp{program->x, Norm("final", kHidden), Matrix("head", kVocab, kHidden)});
    program->caches.push_back(backend::PagedCache{"kv", layers_, kHeads, kHeadDim, kHeadDim});
  }

 private:
  backend::WeightId Qkv(const std::string& label) {
    return Matrix(label, 3 * kHeads * kHeadDim, kHidden);
  }
  void Attend(int32_t rope) {
    backend::AttentionOp op = {};
    op.qkv = qkv_;
    op.out = attention_;
    op.layer = layers_++;
    op.heads = kHeads;
    op.rope = rope;
    op.scale = 1 / std::sqrt(double{kHeadDim});
    program->ops.push_back(op);
    program->ops.push_back(backend::MatmulAddOp{
        attention_, Matrix("o", kHidden, kHeads * kHeadDim), program->x});
  }
  void FeedForward(const std::string& label, backend::WeightId norm) {
    program->ops.push_back(
        backend::NormGateUpOp{program->x, norm, GateUp(label, kWidth, kHidden), act_});
    program->ops.push_back(
        backend::MatmulAddOp{act_, Matrix(label + ".down", kHidden, kWidth), program->x});
  }

  BufferId qkv_, attention_, act_, sum_;
  int32_t layers_ = 0;
};

TEST(x_is_taken_as_it_is_and_normed) {
  NEEDS_GPUS();
  const Maker maker;
  test::ProgramReference reference(*maker.program);
  std::vector<std::vector<double>> want;
  std::vector<uint32_t> tokens;
  for (uint32_t at = 0; at < kTokens; ++at) tokens.push_back((at * 37 + 5) % kVocab);
  for (const uint32_t token : tokens) want.push_back(reference.Token(token));
  for (const char* device : {"sim:gfx942", "sim:gfx950"}) {
    backend::BackendOptions options;
    options.device = device;
    const auto backend = backend::CreateBackend(options);
    CHECK_OK(backend);
    const auto model = (*backend)->Load(maker.program, {});
    CHECK_OK(model);
    const auto run = [&](uint32_t most) {
      return test::RunTokens(**model, *maker.program, tokens, {most}, quant::KvType::kF32);
    };
    const auto whole = run(kTokens), cut = run(4);
    CHECK_OK(whole);
    CHECK_OK(cut);
    for (uint32_t at = 0; at < kTokens; ++at) {
      CHECK_LE(test::WorstOf((*whole)[at], want[at]), 1e-4);
      CHECK((*whole)[at] == (*cut)[at]);
    }
  }
}

}  // namespace
}  // namespace mainarch
