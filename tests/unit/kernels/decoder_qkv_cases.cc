// SPDX-License-Identifier: MIT
//
// qkv_heads_*: the bits of matmul_* and prepare_*, which have cases of their own. Both forms write
// one half each of the same buffers.
#include "unit/kernels/decoder_weights.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr uint32_t kHeadDim = 128, kHeads = 2, kKvHeads = 1, kAllHeads = kHeads + 2 * kKvHeads;
constexpr uint32_t kStride = kAllHeads * kHeadDim, kPositions = 70;

// Halves that agree where `looked_at` says, and in the second half nothing else was written.
Expectation HalvesAgree(const std::string& buffer, std::function<bool(size_t)> looked_at) {
  return {buffer, [=](absl::Span<const uint8_t> bytes) -> std::string {
            const size_t half = bytes.size() / 2;
            size_t written = 0;
            for (size_t i = 0; i < half; ++i) {
              const uint8_t want = looked_at(i) ? bytes[i] : kUntouchedByte;
              written += want != kUntouchedByte;
              if (bytes[half + i] != want) return absl::StrCat("byte ", i, " differs");
            }
            return written * 128 > half ? "" : "hardly anything was written";  // one token of 80 is
          }};
}

Case QkvCase(TileFormat format, KvFormat kv, uint32_t rows, uint32_t width) {
  Random random(rows + width);
  const Inputs x = RandomInputs(random, rows, width);
  std::vector<float> norm(x.stride), qk_norm;
  for (uint32_t i = 0; i < width; ++i) norm[i] = static_cast<float>(0.5 + random.Uniform());
  for (uint32_t i = 0; i < kHeadDim; ++i) {
    qk_norm.push_back(static_cast<float>(0.5 + random.Uniform()));
  }
  const std::vector<float> cosine = random.Floats(size_t{kPositions} * kHeadDim / 2);
  const std::vector<float> sine = random.Floats(size_t{kPositions} * kHeadDim / 2);
  const TiledWeights w = RandomTiles(random, format, kStride, width, false);
  StepPlan step = StepPlan::Of(rows);
  for (uint32_t i = 0; i < rows; ++i) step.rows[i] = {0, 40 + i, {4, 1, 3, 0, 2}};
  const size_t qkv_bytes = size_t{rows} * kStride * 4;
  const size_t kv_bytes = size_t{5} * kKvHeads * KvPageBytes(kv, kHeadDim);
  const std::string suffix = kv == KvFormat::kFp8 ? "fp8_128" : "bf16_128";

  Case out;
  out.name = absl::StrCat("qkv_heads_", NameOf(format), "_", suffix, " ", rows, " rows, k ", width);
  out.bound = "the bits of the product and prepare apart";
  out.buffers = {{"step", step.Block()},
                 {"x", ToBytes(x.values)},
                 {"norm", ToBytes(norm)},
                 {"squares", ToBytes(SquaresOf(x))},
                 {"qk_norm", ToBytes(qk_norm)},
                 {"cosine", ToBytes(cosine)},
                 {"sine", ToBytes(sine)},
                 {"qkv", Bytes(2 * qkv_bytes, kUntouchedByte)},
                 {"kv", Bytes(2 * kv_bytes, kUntouchedByte)}};
  w.AddBuffers("w", &out.buffers);
  const auto product = [=](MatmulArgs& args, const Addresses& at, size_t half) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>("qkv", half * qkv_bytes);
    args.w = w.At("w", at);
    args.norm.w = at.Of<const float>("norm");
    args.norm.squares = at.Of<const float>("squares");
    args.norm.chunks = (width + kRowChunk - 1) / kRowChunk;
    args.norm.inverse_hidden = 1.0f / static_cast<float>(width);
    args.norm.epsilon = 1e-6f;
    args.x_stride = x.stride;
    args.out_stride = kStride;
  };
  const auto prepare = [=](PrepareArgs& args, const Addresses& at, size_t half) {
    args.step = at.Of<const uint32_t>("step");
    args.qkv = at.Of<float>("qkv", half * qkv_bytes);
    args.q_norm = at.Of<const float>("qk_norm");
    args.k_norm = at.Of<const float>("qk_norm");
    args.cosine = at.Of<const float>("cosine");
    args.sine = at.Of<const float>("sine");
    args.kv = at.Of<uint8_t>("kv", half * kv_bytes);
    args.stride = kStride;
    args.heads = kHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = args.rotary = kHeadDim;
    args.epsilon = 1e-6f;
  };
  out.steps = {{MakeLaunch<MatmulArgs>(
                   std::string("matmul_") + NameOf(format), 3,
                   [=](MatmulArgs& args, const Addresses& at) { product(args, at, 0); })},
               {MakeLaunch<PrepareArgs>(
                   "prepare_" + suffix, 2,
                   [=](PrepareArgs& args, const Addresses& at) { prepare(args, at, 0); })},
               {MakeLaunch<QkvHeadsArgs>(absl::StrCat("qkv_heads_", NameOf(format), "_", suffix), 3,
                                         [=](QkvHeadsArgs& args, const Addresses& at) {
                                           product(args.product, at, 1);
                                           prepare(args.prepare, at, 1);
                                         })}};
  out.expectations = {
      HalvesAgree("qkv", [](size_t i) { return i / 4 % kStride < kHeads * kHeadDim; }),
      HalvesAgree("kv", [](size_t) { return true; })};
  return out;
}

}  // namespace

std::vector<Case> DecoderQkvCases() {
  std::vector<Case> cases;
  for (TileFormat format : {TileFormat::kBf16, TileFormat::kFp8, TileFormat::kMxfp4}) {
    cases.push_back(QkvCase(format, KvFormat::kBF16, 1, 160));
    cases.push_back(QkvCase(format, KvFormat::kFp8, 18, 160));
    cases.push_back(QkvCase(format, KvFormat::kBF16, 2, 192));
    cases.push_back(QkvCase(format, KvFormat::kFp8, 1, 224));
  }
  return cases;
}

}  // namespace mainarch::kernels_test
