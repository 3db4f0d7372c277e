// SPDX-License-Identifier: MIT
#include "isa_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/experts_args.h"

namespace mainarch::bench {
namespace {

using namespace kernels;

float* Ones(IsaRig& rig, size_t count) {
  auto* out = rig.New<float>(count);
  std::fill(out, out + count, 1.0f);
  return out;
}

// The step block of one row at the last of `positions`, with pages 0, 1, 2, ...; its words.
uint32_t* StepBlock(IsaRig& rig, uint32_t positions, uint32_t* words) {
  const uint32_t pages = (positions + kPageTokens - 1) / kPageTokens;
  *words = 24 + (pages + 3) / 4 * 4;
  auto* block = rig.New<uint32_t>(*words);
  StepHeader header;
  header.rows = header.logit_rows = 1;
  header.splits = (positions + kSplitTokens - 1) / kSplitTokens;
  header.rows_at = 16, header.logit_rows_at = 20, header.pages_at = 24;
  header.words = *words;
  const StepRow row = {0, positions - 1, 0, kHere};
  std::memcpy(block, &header, sizeof header);
  std::memcpy(block + 16, &row, sizeof row);
  for (uint32_t i = 0; i < pages; ++i) block[24 + i] = i;
  return block;
}

// A cache of `positions` tokens in bf16, random.
Address<uint8_t> Cache(IsaRig& rig, uint32_t positions, uint32_t kv_heads, uint32_t dim) {
  const size_t bytes = size_t{(positions + kPageTokens - 1) / kPageTokens} * kv_heads *
                       KvPageBytes(KvFormat::kBF16, dim, dim);
  return {reinterpret_cast<uint64_t>(rig.RandomBf16(bytes / 2))};
}

constexpr uint32_t kHidden = 256, kLayers = 4, kHeads = 8, kKvHeads = 2, kDim = 64, kExperts = 32,
                   kTop = 4, kWidth = 256, kVocabulary = 4096, kPositions = 256;
constexpr uint32_t kQkv = (kHeads + 2 * kKvHeads) * kDim;

// The step under construction: its buffers, and its dispatches so far. The first failure stays.
class Step {
 public:
  explicit Step(IsaRig* rig) : rig_(*rig) {
    uint32_t words;
    const uint32_t* block = StepBlock(rig_, kPositions, &words);
    step_ = rig_.New<uint32_t>(words);
    for (uint32_t i = 0; i < kHidden; ++i) x_[i] = std::sin(static_cast<float>(i));
    StepBeginArgs begin;
    begin.from = At<const uint32_t>(block), begin.to = At(step_);
    begin.block_words = 0;  // every step is this one
    Add("step_begin", begin, 1);
  }

  void Layer(uint32_t index) {
    Norm("rmsnorm_f32_bf16", normal_bf16_);
    Gemv(kQkv, qkv_);
    Attend();
    MatrixF32(attended_, kHidden, kHeads * kDim, x_);
    Norm("rmsnorm_f32", normal_);
    MatrixF32(normal_, kExperts, kHidden, logits_);
    RouterArgs router;
    router.logits = At<const float>(logits_), router.ids = At(ids_), router.weights = At(weights_);
    router.rows = 1, router.experts = kExperts, router.top = kTop, router.renormalise = 1;
    Add("router", router, 1);
    Experts(index);
  }

  void Head() {
    Norm("rmsnorm_f32_bf16", normal_bf16_);
    auto* scores = rig_.New<float>(kVocabulary);
    Gemv(kVocabulary, scores);
    PickArgs pick;
    pick.logits = At<const float>(scores), pick.parts = At(rig_.New<ScoredWords>(4));
    pick.rows = 1, pick.n = kVocabulary, pick.part_count = 4;
    Add("pick", pick, 4);
    PickMergeArgs merge;
    merge.parts = {pick.parts.address}, merge.ids = At(rig_.New<uint32_t>(1));
    merge.rows = 1, merge.part_count = 4;
    Add("pick_merge", merge, 1);
  }

  StatusOr<std::vector<Prepared>> Take() {
    if (!status_.ok()) return status_;
    return std::move(out_);
  }

 private:
  template <class Args>
  void Add(const char* kernel, const Args& args, uint32_t workgroups) {
    if (!status_.ok()) return;
    auto prepared = rig_.Prepare(kernel, args, workgroups);
    if (prepared.ok())
      out_.push_back(*prepared);
    else
      status_ = prepared.status();
  }
  // The residual takes x in, and the norm of it goes to `out`.
  template <class Out>
  void Norm(const char* kernel, Out* out) {
    RmsNormArgsOf<float, float, Out> args;
    args.x = At<const float>(x_), args.w = At<const float>(Ones(rig_, kHidden)), args.out = At(out);
    args.residual = At(residual_);
    args.rows = 1, args.n = kHidden, args.epsilon = 1e-6f, args.flags = kRmsNormAddResidual;
    Add(kernel, args, 1);
  }
  void Gemv(uint32_t outputs, float* out) {
    Bf16MatrixArgs args;
    args.x = At<const uint16_t>(normal_bf16_);
    args.w = At<const uint16_t>(rig_.RandomBf16(size_t{outputs} * kHidden));
    args.out = At(out);
    args.rows = 1, args.outputs = outputs, args.k = kHidden;
    Add("bf16_gemv", args, 16);
  }
  void MatrixF32(const float* x, uint32_t outputs, uint32_t k, float* out) {
    Bf16MatrixArgsOf<float> args;
    args.x = At(x), args.w = At<const uint16_t>(rig_.RandomBf16(size_t{outputs} * k));
    args.out = At(out);
    args.rows = 1, args.outputs = outputs, args.k = k;
    Add("bf16_mfma_f32", args, outputs / 16);
  }
  void Attend() {
    const Address<uint8_t> kv = Cache(rig_, kPositions, kKvHeads, kDim);
    PrepareArgs prepare;
    prepare.step = At<const uint32_t>(step_), prepare.qkv = At(qkv_);
    prepare.q_norm = prepare.k_norm = At<const float>(Ones(rig_, kDim));
    prepare.cosine = At<const float>(Ones(rig_, kPositions * kDim / 2));
    prepare.sine = At<const float>(rig_.New<float>(kPositions * kDim / 2));
    prepare.kv = kv;
    prepare.stride = kQkv, prepare.heads = kHeads, prepare.kv_heads = kKvHeads;
    prepare.rotary = kDim, prepare.epsilon = 1e-6f;
    Add("prepare_bf16_64", prepare, 3);
    AttendArgs attend;
    attend.step = At<const uint32_t>(step_), attend.qkv = At<const float>(qkv_);
    attend.kv = {kv.address}, attend.out = At(attended_);
    attend.q_stride = kQkv, attend.out_stride = kHeads * kDim;
    attend.heads = kHeads, attend.kv_heads = kKvHeads, attend.group = kHeads / kKvHeads, attend.max_splits = 1;
    attend.scale = 0.125f, attend.row_count = 1;
    Add("attend_bf16_64", AttendOnceArgs{attend, {}, {}}, kKvHeads);
  }
  // `experts` matrices of output x kHidden in tiles; scales near 2^-7.
  Tiles RandomTiles(uint32_t output_tiles, uint64_t* stride, uint64_t* scale_stride) {
    Tiles tiles;
    tiles.outputs = output_tiles;
    tiles.steps = kHidden / kStepColumns;
    SetPartEnd(&tiles, 0, tiles.steps);
    *stride = output_tiles * TileRowBytes(TileFormat::kMxfp4, tiles.steps);
    *scale_stride = output_tiles * TileRowScaleBytes(TileFormat::kMxfp4, tiles.steps);
    tiles.data = At<const uint8_t>(rig_.RandomBytes(kExperts * *stride));
    auto* scales = rig_.New<uint8_t>(kExperts * *scale_stride);
    std::memset(scales, 120, kExperts * *scale_stride);
    tiles.scales = At<const uint8_t>(scales);
    return tiles;
  }
  void Experts(uint32_t layer) {
    ExpertsArgs args;
    args.step = At<const uint32_t>(step_), args.x = At<const float>(normal_);
    args.ids = At<const uint32_t>(ids_), args.weights = At<const float>(weights_);
    args.act = At(rig_.New<float>(kTop * kWidth)), args.out = At(x_);
    args.arrivals = At(arrivals_ + layer);
    args.gate_up =
        RandomTiles(2 * kWidth / kTileRows, &args.gate_up_stride, &args.gate_up_scale_stride);
    args.gate_up.outputs /= 2;  // pairs
    args.down = RandomTiles(kHidden / kTileRows, &args.down_stride, &args.down_scale_stride);
    args.x_stride = kHidden, args.act_stride = kWidth, args.out_stride = kHidden;
    args.top = kTop, args.experts = kExperts;
    // Its input has its norm already.
    float* const squares = rig_.New<float>(1);
    squares[0] = kHidden;
    args.norm.squares = At<const float>(squares);
    args.norm.chunks = 1, args.norm.inverse_hidden = 1.0f / kHidden, args.norm.epsilon = 1e-6f;
    Add("experts_mxfp4", args, 8);
  }

  IsaRig& rig_;
  Status status_;
  std::vector<Prepared> out_;
  uint32_t* step_ = nullptr;
  uint32_t* const arrivals_ = rig_.New<uint32_t>(kLayers);
  float* const x_ = rig_.New<float>(kHidden);
  float* const residual_ = rig_.New<float>(kHidden);
  float* const normal_ = rig_.New<float>(kHidden);
  uint16_t* const normal_bf16_ = rig_.New<uint16_t>(kHidden);
  float* const qkv_ = rig_.New<float>(kQkv);
  float* const attended_ = rig_.New<float>(kHeads * kDim);
  float* const logits_ = rig_.New<float>(kExperts);
  uint32_t* const ids_ = rig_.New<uint32_t>(kTop);
  float* const weights_ = rig_.New<float>(kTop);
};

}  // namespace

StatusOr<std::vector<Prepared>> Attention(IsaRig& rig) {
  constexpr uint32_t kTokens = 2048, kWide = 128, kSplits = kTokens / kSplitTokens;
  uint32_t words;
  auto* qkv = rig.New<float>((kHeads + 2 * kKvHeads) * kWide);
  for (uint32_t i = 0; i < kHeads * kWide; ++i) qkv[i] = static_cast<float>(i % 7) * 0.1f - 0.3f;
  AttendArgs args;
  args.step = At<const uint32_t>(StepBlock(rig, kTokens, &words));
  args.qkv = At<const float>(qkv);
  args.kv = {Cache(rig, kTokens, kKvHeads, kWide).address};
  args.out = At(rig.New<float>(kHeads * kWide));
  args.parts = At(rig.New<float>(kHeads * kSplits * (kWide + 2)));
  args.q_stride = (kHeads + 2 * kKvHeads) * kWide, args.out_stride = kHeads * kWide;
  args.heads = kHeads, args.kv_heads = kKvHeads, args.group = kHeads / kKvHeads, args.max_splits = kSplits;
  args.scale = 0.0884f, args.row_count = 1;
  auto prepared = rig.Prepare("attend_bf16_128", AttendOnceArgs{args, {}, {}}, kKvHeads * kSplits);
  if (!prepared.ok()) return prepared.status();
  return std::vector<Prepared>{*prepared};
}

StatusOr<std::vector<Prepared>> TinyMoeStep(IsaRig& rig) {
  Step step(&rig);
  for (uint32_t layer = 0; layer < kLayers; ++layer) step.Layer(layer);
  step.Head();
  return step.Take();
}

}  // namespace mainarch::bench
