// SPDX-License-Identifier: MIT
//
// What cases of products and of experts share: norms of what goes in, activations and biases of gate and up, and the
// all-reduce in the same launch.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_DECODER_PRODUCTS_H_
#define MAINARCH_TESTS_UNIT_KERNELS_DECODER_PRODUCTS_H_

#include <cmath>
#include <string>
#include <vector>

#include "backend/amdgpu/lower.h"
#include "kernels/tall_args.h"
#include "unit/kernels/decoder_weights.h"

namespace mainarch::kernels_test {

using namespace kernels;

using quant::Format;

inline constexpr TileFormat kTileFormats[] = {TileFormat::kBf16,  TileFormat::kBf16Pair, TileFormat::kFp8,
                                             TileFormat::kMxfp4, TileFormat::kNibble,   TileFormat::kByte};
// Those that have kernels for many rows.
inline constexpr TileFormat kTallFormats[] = {TileFormat::kBf16, TileFormat::kFp8, TileFormat::kMxfp4, TileFormat::kNibble,
                                             TileFormat::kByte};
// Those whose activations may be rounded.
inline bool MayRound(TileFormat format) {
  return format != TileFormat::kBf16Pair && !HasCodes(format);
}
// What kernels of a format take of x, whatever k is, and of these what is less than all.
inline std::vector<Taken> RoundingsOf(TileFormat format) {
  if (!MayRound(format)) return {};
  return format == TileFormat::kMxfp4 ? std::vector<Taken>{Taken::kRounded, Taken::kScaled} : std::vector<Taken>{Taken::kRounded};
}
inline std::vector<Taken> TakensOf(TileFormat format) {
  std::vector<Taken> out = RoundingsOf(format);
  out.insert(out.begin(), Taken::kBoth);
  return out;
}
// The same where leaves are of whole blocks (kFp8Blocks).
inline std::vector<Taken> TakensOfBlocks(TileFormat format) {
  std::vector<Taken> out = TakensOf(format);
  if (format == TileFormat::kFp8) out.push_back(Taken::kScaled);
  return out;
}
// Of a kernel's name; and the chips that have it, none meaning all.
inline const char* SuffixOf(Taken taken) {
  if (taken == Taken::kRing) return "_ring";
  return taken == Taken::kTiled ? "_tiled" : taken == Taken::kScaled ? "_scaled" : taken == Taken::kRounded ? "_rounded" : "";
}
inline std::vector<std::string> IsasOf(Taken taken) {
  return RowsAreMade(taken) ? std::vector<std::string>{"gfx950"} : std::vector<std::string>{};
}
// Those of 32 columns at least.
inline bool InThirtyTwos(TileFormat format) {
  return format == TileFormat::kMxfp4 || format == TileFormat::kNibble;
}
// Checkpoints' formats with codes, and the tiles that they become.
struct Coded {
  TileFormat tile;
  CodesFrom from;
};
inline const Coded kCoded[] = {
    {TileFormat::kNibble, {Format::kQ4_0, {}}},  {TileFormat::kNibble, {Format::kQ4_1, {}}},
    {TileFormat::kNibble, {Format::kQ4K, {}}},   {TileFormat::kNibble, {Format::kIq4Nl, {}}},
    {TileFormat::kNibble, {Format::kAwq, {}}},   {TileFormat::kNibble, {Format::kNvfp4, {}}},
    {TileFormat::kByte, {Format::kQ8_0, {}}},    {TileFormat::kByte, {Format::kQ5_0, {}}},
    {TileFormat::kByte, {Format::kQ5_1, {}}},    {TileFormat::kByte, {Format::kQ5K, {}}},
    {TileFormat::kByte, {Format::kQ6K, {}}},     {TileFormat::kByte, {Format::kFp8Channel, {}}},
    {TileFormat::kByte, {Format::kQ4K, Format::kQ6K}},
    {TileFormat::kByte, {Format::kQ6K, Format::kQ5_1}},
    {TileFormat::kByte, {Format::kNvfp4, Format::kIq4Nl}},
};
inline std::string TextOf(const CodesFrom& from) {
  if (!from.format.has_value()) return "";
  return absl::StrCat(", ", quant::NameOf(*from.format),
                      from.below.has_value() ? absl::StrCat(" and ", quant::NameOf(*from.below)) : "");
}
inline constexpr float kNormEpsilon = 1e-6f;

// The norm of a product's input.
struct NormData {
  bool on = false;
  uint32_t chunks = 0;
  std::vector<float> w, squares;
};
inline NormData RandomNorm(Random& random, const Inputs& x) {
  NormData out;
  out.on = true;
  out.chunks = (x.width + kRowChunk - 1) / kRowChunk;
  out.w.resize(x.stride);
  for (uint32_t i = 0; i < x.width; ++i) out.w[i] = static_cast<float>(0.5 + random.Uniform());
  out.squares = SquaresOf(x);
  return out;
}
inline void AddNorm(const NormData& norm, std::vector<Buffer>* buffers) {
  if (!norm.on) return;
  buffers->push_back({"squares", ToBytes(norm.squares)});
}
inline NormOf NormAt(const NormData& norm, uint32_t width, const Addresses& at) {
  NormOf out;
  if (!norm.on) return out;
  out.squares = at.Of<const float>("squares");
  out.chunks = norm.chunks;
  out.inverse_hidden = 1.0f / static_cast<float>(width);
  out.epsilon = kNormEpsilon;
  return out;
}
// The input of the product, in double: 8 * 2^-23 relative is what the norm itself may lose.
struct Row {
  std::vector<double> values, errors;
};
inline Row InputOf(const Inputs& x, const NormData& norm, uint32_t row) {
  Row out;
  double factor = 1;
  if (norm.on) {
    double squares = 0;
    for (uint32_t i = 0; i < x.width; ++i) squares += x.at(row, i) * x.at(row, i);
    factor = 1 / std::sqrt(squares / x.width + kNormEpsilon);
  }
  for (uint32_t i = 0; i < x.width; ++i) {
    out.values.push_back(x.at(row, i) * factor * (norm.on ? norm.w[i] : 1.0));
    out.errors.push_back(norm.on ? std::abs(out.values.back()) * 0x1p-20 : 0);
  }
  return out;
}

// What a feed-forward makes of gate and up, with biases or without. `on`: by the kernels that take any.
struct Gate {
  bool on = false;
  backend::Activation activation = backend::Activation::kSilu;
  bool biased = false;
};
inline constexpr Gate kGelu = {true, backend::Activation::kGeluTanh};
inline constexpr Gate kBiased = {true, backend::Activation::kSilu, true};
inline constexpr Gate kClamped = {true, backend::Activation::kClampedSwiglu, true};
inline std::string TextOf(const Gate& gate) {
  if (!gate.on) return "";
  const std::string name = gate.activation == backend::Activation::kGeluTanh        ? ", gelu"
                           : gate.activation == backend::Activation::kClampedSwiglu ? ", clamped"
                                                                                    : "";
  return name + (gate.biased ? ", biased" : "");
}

// Of gate and up, each [experts, width], so large that the clamped ones are clamped; or nothing.
struct GateBiases {
  uint32_t width = 0;
  std::vector<float> gate, up;
  Near Add(Near sum, bool is_up, uint32_t expert, uint32_t column) const {
    const std::vector<float>& bias = is_up ? up : gate;
    if (bias.empty()) return sum;
    sum.value += double{bias[expert * width + column]};
    sum.allowed += std::abs(sum.value) * 0x1p-23;
    return sum;
  }
};
inline GateBiases RandomBiases(Random& random, const Gate& gate, uint32_t experts, uint32_t width) {
  GateBiases out;
  out.width = width;
  if (!gate.biased) return out;
  out.gate = random.Floats(size_t{experts} * width, 4);
  out.up = random.Floats(size_t{experts} * width, 4);
  return out;
}
inline void AddBiases(const GateBiases& biases, std::vector<Buffer>* buffers) {
  if (biases.gate.empty()) return;
  buffers->push_back({"gate_bias", ToBytes(biases.gate)});
  buffers->push_back({"up_bias", ToBytes(biases.up)});
}
inline GatingArgs GatingAt(const Gate& gate, uint32_t width, const Addresses& at) {
  GatingArgs out = amdgpu::GatingOf(gate.activation);
  if (!gate.biased) return out;
  out.gate_bias = at.Of<const float>("gate_bias");
  out.up_bias = at.Of<const float>("up_bias");
  out.width = width;
  return out;
}
inline Near Activate(const Gate& gate, const GateBiases& biases, const Near& g, const Near& u,
              uint32_t expert, uint32_t column) {
  if (!gate.on) return SiluTimes(g, u);
  return Activated(gate.activation, biases.Add(g, false, expert, column),
                   biases.Add(u, true, expert, column));
}

inline constexpr char kRoundedBound[] =
    "(2^-8 + (k/4 + 8) * 2^-23) of the sum of |x * w|: inputs rounded to bf16, fp32 sums of four "
    "waves";

inline constexpr char kScaledBound[] =
    "inputs as MXFP8: where they are exact (k/4 + 8) * 2^-23 of the sum of |MXFP8(x) * w|; else (2^-4 + 2^-8 + (k/4 + 8) * 2^-23) of "
    "the sum of |x * w|, and 2^-17 of that of |w| times the largest |x| of its 32 columns";
inline const char* BoundOf(Taken taken) {
  return taken == Taken::kScaled ? kScaledBound : taken == Taken::kRounded ? kRoundedBound : kProductBound;
}

// scale_rows of x, of `steps` steps, to a buffer; and such rows as a product of many rows takes them.
inline size_t ScaledBytes(uint32_t rows, uint32_t steps) { return size_t{rows} * ScaledRowBytes(steps); }
// By tile_rows, the same of rows in tiles.
inline LaunchSpec TakenRowsLaunch(const std::string& x, const Inputs& in, uint32_t steps, const std::string& to,
                                  const char* kernel = "scale_rows") {
  return MakeLaunch<TakenRowsArgs>(kernel, 3, [=](TakenRowsArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>(x);
    args.out = at.Of<uint8_t>(to);
    args.x_stride = in.stride;
    args.steps = steps;
  });
}
inline void TakeScaled(const std::string& rows, uint32_t steps, const Addresses& at, MatmulArgs* args) {
  args->x = at.Of<const float>(rows);
  args->x_stride = ScaledRowBytes(steps) / 4;
}

// A sum that is added to x in the launch that makes it. Each of `ranks` GPUs makes the same.
struct SumShape {
  uint32_t rows, hidden, ranks;
  uint32_t splits = 1;
  uint32_t stride() const { return RoundUp(hidden, kPadColumns); }
  uint32_t chunks() const { return (hidden + kRowChunk - 1) / kRowChunk; }
  ExchangeBytes exchange() const { return ExchangeBytesOf(ranks, rows, rows, stride()); }
};
inline std::string OfRank(const char* what, uint32_t rank) { return absl::StrCat(what, rank); }
// `before`: what x is.
inline void AddSum(const SumShape& s, const std::vector<float>& before, uint32_t rank, std::vector<Buffer>* buffers) {
  buffers->push_back({OfRank("x", rank), ToBytes(before), rank});
  buffers->push_back({OfRank("exchange", rank), Bytes(s.exchange().bytes), rank,
                      s.ranks > 1 ? Home::kUncached : Home::kVram});
}
inline ReduceArgs SumAt(const SumShape& s, uint32_t rank, const Addresses& at) {
  ReduceArgs out;
  out.step = at.Of<const uint32_t>(OfRank("step", rank));
  out.out.x = at.Of<float>(OfRank("x", rank));
  for (uint32_t to = 0; to < s.ranks; ++to) out.exchange[to] = at.Of<uint8_t>(OfRank("exchange", to));
  out.exchange_own = out.exchange[rank];
  out.flags_at = s.exchange().flags_at;
  out.pairs_at = s.exchange().pairs_at;
  out.hidden = s.hidden;
  out.stride = s.stride();
  out.chunks = s.chunks();
  out.max_rows = out.pair_rows = s.rows;
  out.ranks = s.ranks;
  out.rank = rank;
  out.per_step = 1;
  out.splits = s.splits;
  out.split_rows = s.rows;
  return out;
}
// `of[row][o]`: what each rank's sum is.
inline Wanted WantedSum(const SumShape& s, const std::vector<float>& before, const std::vector<std::vector<Near>>& of) {
  Wanted out(s.rows, s.stride());
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t o = 0; o < s.stride(); ++o) {
      const double old = before[size_t{row} * s.stride() + o];
      const Near near = o < s.hidden ? of[row][o] : Near{};
      const double sum = s.ranks * near.value + old;
      out.Set(row, o, sum, s.ranks * near.allowed + (std::abs(sum) + std::abs(old)) * 0x1p-22);
    }
  }
  return out;
}

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_DECODER_PRODUCTS_H_
