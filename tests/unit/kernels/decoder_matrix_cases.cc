// SPDX-License-Identifier: MIT
//
// Products with weights in tiles: matmul_* and gate_up_*.
#include <cmath>
#include <cstring>

#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "unit/kernels/decoder_products.h"

namespace mainarch::kernels_test {
namespace {

struct Product {
  TileFormat format;
  bool gate_up;
  uint32_t rows, outputs, width;
  bool norm, logits;
  uint32_t workers;
  Taken taken = Taken::kBoth;
  uint32_t parts = 1;   // of k
  uint32_t splits = 1;  // workgroups that share it
  Gate gate = {};
  CodesFrom from = {};
};

// What workgroups that share k leave adds up to the bits that one makes alone, which come first.
Expectation SplitsAgree(uint32_t splits, size_t floats) {
  return {"out", [=](absl::Span<const uint8_t> bytes) -> std::string {
            const std::vector<float> all = FromBytes<float>(bytes);
            for (size_t i = 0; i < floats; ++i) {
              std::vector<float> sums;
              for (uint32_t k = 1; k <= splits; ++k) sums.push_back(all[k * floats + i]);
              for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
                for (size_t k = 0; k < sums.size() / 2; ++k) sums[k] = sums[2 * k] + sums[2 * k + 1];
              }
              if (std::memcmp(&sums[0], &all[i], 4) == 0 || all[i] == Untouched()) continue;
              return absl::StrCat("[", i, "] adds up to ", sums[0], ", alone it is ", all[i]);
            }
            return "";
          }};
}

Case ProductCase(const Product& p) {
  Random random(p.width + p.rows * 7 + static_cast<uint32_t>(p.format));
  StepPlan step = StepPlan::Of(p.logits ? p.rows + 4 : p.rows);
  // Not the first rows, and one left out in the middle.
  for (uint32_t i = 0; p.logits && i < p.rows; ++i) step.logit_rows.push_back(i + 1 + (i > 2));
  const Inputs x = RandomInputs(random, step.count(), p.width);
  const NormData norm = p.norm ? RandomNorm(random, x) : NormData{};
  const TiledWeights w = RandomTiles(random, p.format, p.outputs, p.width, p.gate_up, p.parts, p.from);
  const GateBiases biases = RandomBiases(random, p.gate, 1, p.outputs);
  const uint32_t out_stride = RoundUp(p.outputs, kPadColumns);
  const uint32_t out_rows = p.rows + 1;

  Wanted want(out_rows, out_stride);
  for (uint32_t row = 0; row < p.rows; ++row) {
    const Row in = InputOf(x, norm, p.logits ? step.logit_rows[row] : row);
    for (uint32_t o = 0; o < w.outputs * kTileRows; ++o) {
      Near near;  // rows beyond the matrix are zeros
      if (o < p.outputs) near = Dot(w, 0, o, in.values, &in.errors, p.taken);
      if (o < p.outputs && p.gate_up) {
        near = Activate(p.gate, biases, near, Dot(w, 1, o, in.values, &in.errors, p.taken), 0, o);
      }
      want.Set(row, o, near.value, near.allowed);
    }
  }
  Case out;
  const std::string kernel = std::string(p.gate_up ? "gate_up_" : "matmul_") + NameOf(p.format) +
                             (p.gate.on ? "_any" : "") + SuffixOf(p.taken);
  out.name = absl::StrCat(kernel, " ", p.rows, " rows, ", p.outputs, " outputs, k ", p.width,
                          p.parts > 1 ? absl::StrCat(" in ", p.parts) : "",
                          p.norm ? ", normed" : "", p.logits ? ", logit rows" : "", TextOf(p.gate),
                          TextOf(p.from),
                          p.splits > 1 ? absl::StrCat(", shared by ", p.splits) : "");
  out.bound = BoundOf(p.taken);
  out.isas = IsasOf(p.taken);
  out.buffers = {{"step", step.Block()}, {"x", SplitRows(x, norm.w)}, want.ToFill("out")};
  const size_t floats = out.buffers.back().initial.size() / 4;
  w.AddBuffers("w", &out.buffers);
  AddNorm(norm, &out.buffers);
  AddBiases(biases, &out.buffers);
  const auto product = [=](MatmulArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>("out");
    args.w = w.At("w", at);
    args.norm = NormAt(norm, x.width, at);
    args.x_stride = x.stride;
    args.out_stride = out_stride;
    args.rows = p.rows;
    args.flags = p.logits ? uint32_t{kMatmulLogitRows} : 0;
  };
  out.steps = {{MakeLaunch<MatmulArgs>(kernel, p.workers, product)}};
  if (p.gate.on) {
    out.steps = {{MakeLaunch<GateUpAnyArgs>(
        kernel, p.workers, [=](GateUpAnyArgs& args, const Addresses& at) {
          product(args.product, at);
          args.gating = GatingAt(p.gate, p.outputs, at);
        })}};
  }
  if (p.splits == 1) {
    out.expectations = {p.gate_up ? want.CheckSplit("out") : want.Check("out")};
    return out;
  }
  out.buffers[2].initial.resize((1 + p.splits) * floats * 4, kUntouchedByte);
  out.steps.push_back({MakeLaunch<MatmulArgs>(
      kernel, p.workers, [=](MatmulArgs& args, const Addresses& at) {
        product(args, at);
        args.out = at.Of<float>("out", floats * 4);
        args.splits = p.splits;
        args.split_rows = out_rows;
      })});
  out.expectations = {SplitsAgree(p.splits, floats)};
  return out;
}

// ---- a product of many rows: to the bit that of the kernel for any ----

Case TallCase(TallKind kind, TileFormat format, Taken taken, uint32_t rows, uint32_t outputs, uint32_t width,
              uint32_t parts, const Gate& gate = {}, const CodesFrom& from = {}) {
  const bool gate_up = kind == TallKind::kGateUp || kind == TallKind::kGateUpAny;
  const char* names[] = {"tall_", "tall_parts_", "tall_gate_up_", "tall_gate_up_any_"};
  const bool ring = taken == Taken::kRing, scaled = taken == Taken::kScaled || ring, tiled = taken == Taken::kTiled;
  const std::string rounds = SuffixOf(tiled ? Taken::kRounded : ring ? Taken::kScaled : taken);
  Random random(outputs + rows + width);
  const Inputs x = RandomInputs(random, rows, width);
  const NormData norm = parts == 1 ? RandomNorm(random, x) : NormData();
  const TiledWeights w = RandomTiles(random, format, outputs, width, gate_up, parts, from);
  const GateBiases biases = RandomBiases(random, gate, 1, outputs);
  const uint32_t stride = RoundUp(outputs, kPadColumns);
  Case out;
  const std::string tall = names[static_cast<size_t>(kind)] + std::string(NameOf(format)) + SuffixOf(taken);
  out.name = absl::StrCat(tall, " ", rows, " rows, ", outputs, " outputs, k ", width,
                          parts > 1 ? absl::StrCat(" in ", parts) : "", TextOf(gate), TextOf(from));
  out.bound = "the bits of the kernel for any number of rows";
  out.isas = IsasOf(taken);
  const Bytes untouched(size_t{rows} * stride * 4, kUntouchedByte);
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"x", SplitRows(x, norm.w)}, {"any", untouched}, {"out", untouched}};
  w.AddBuffers("w", &out.buffers);
  AddNorm(norm, &out.buffers);
  AddBiases(biases, &out.buffers);
  const uint32_t steps = width / kStepColumns;
  if (scaled) out.buffers.push_back({"scaled", Bytes(ScaledBytes(rows, steps), kUntouchedByte)});
  if (tiled) out.buffers.push_back({"tiled", Bytes(TiledRowsBytes(rows, steps), kUntouchedByte)});
  const auto launch = [=](const std::string& kernel, const std::string& to) {
    const auto fill = [=](MatmulArgs& args, const Addresses& at) {
      args.step = at.Of<const uint32_t>("step");
      args.x = at.Of<const float>("x");
      args.out = at.Of<float>(to);
      args.w = w.At("w", at);
      args.norm = NormAt(norm, x.width, at);
      args.x_stride = x.stride;
      args.out_stride = stride;
      args.rows = rows;
      if (scaled && kernel == tall) TakeScaled("scaled", steps, at, &args);
      if (tiled && kernel == tall) args.x = at.Of<const float>("tiled");
    };
    if (kind != TallKind::kGateUpAny) return MakeLaunch<MatmulArgs>(kernel, 5, fill);
    return MakeLaunch<GateUpAnyArgs>(kernel, 5, [=](GateUpAnyArgs& args, const Addresses& at) {
      fill(args.product, at);
      args.gating = GatingAt(gate, outputs, at);
    });
  };
  const std::string any = absl::StrCat(gate_up ? "gate_up_" : "matmul_", NameOf(format), gate.on ? "_any" : "", rounds);
  out.steps = {{launch(any, "any")}, {launch(tall, "out")}};
  out.steps[0][0].aids = true;
  if (scaled || tiled) {
    out.steps.insert(out.steps.begin() + 1, {tiled ? TakenRowsLaunch("x", x, steps, "tiled", "tile_rows")
                                                   : TakenRowsLaunch("x", x, steps, "scaled")});
    out.steps[1][0].aids = true;
  }
  out.expectations = Same("any", "out", true);
  return out;
}

// ---- gate and up by two workgroups an output tile: to the bit those of one ----

// The launch is for `rows`, the step has `step_rows` of them.
Case HalvesCase(TileFormat format, Taken taken, uint32_t rows, uint32_t step_rows, uint32_t outputs, uint32_t width,
                uint32_t workers, const Gate& gate = {}, const CodesFrom& from = {}) {
  Random random(outputs + rows + width);
  const Inputs x = RandomInputs(random, rows, width);
  const NormData norm = gate.on ? NormData() : RandomNorm(random, x);
  const TiledWeights w = RandomTiles(random, format, outputs, width, /*gate_up=*/true, 1, from);
  const GateBiases biases = RandomBiases(random, gate, 1, outputs);
  const uint32_t stride = RoundUp(outputs, kPadColumns);
  const std::string of_format = std::string(NameOf(format)), halves = "gate_up_half_" + of_format + SuffixOf(taken);
  Case out;
  out.name = absl::StrCat(halves, " ", step_rows, " of ", rows, " rows, ", outputs, " outputs, k ", width, ", ", workers,
                          " workgroups", TextOf(gate), TextOf(from));
  out.bound = "the bits of the kernel with a workgroup for each output tile";
  out.isas = IsasOf(taken);
  const Bytes untouched(size_t{rows} * stride * 4, kUntouchedByte);
  out.buffers = {{"step", StepPlan::Of(step_rows).Block()}, {"x", SplitRows(x, norm.w)}, {"any", untouched}, {"out", untouched}};
  w.AddBuffers("w", &out.buffers);
  AddNorm(norm, &out.buffers);
  AddBiases(biases, &out.buffers);
  const auto fill = [=](MatmulArgs& args, const Addresses& at, const std::string& to) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>(to);
    args.w = w.At("w", at);
    args.norm = NormAt(norm, x.width, at);
    args.x_stride = x.stride;
    args.out_stride = stride;
    args.rows = rows;
  };
  const auto gated = [=](GateUpAnyArgs& args, const Addresses& at, const std::string& to) {
    fill(args.product, at, to);
    if (gate.on) args.gating = GatingAt(gate, outputs, at);
  };
  const std::string any = "gate_up_" + of_format + (gate.on ? "_any" : "") + SuffixOf(taken);
  out.steps = {{gate.on ? MakeLaunch<GateUpAnyArgs>(any, 3, [=](GateUpAnyArgs& args, const Addresses& at) { gated(args, at, "any"); })
                        : MakeLaunch<MatmulArgs>(any, 3, [=](MatmulArgs& args, const Addresses& at) { fill(args, at, "any"); })},
               {MakeLaunch<GateUpAnyArgs>(halves, workers, [=](GateUpAnyArgs& args, const Addresses& at) {
                 gated(args, at, "out");
                 args.product.flags = gate.on ? uint32_t{kMatmulGated} : 0;
               })}};
  out.steps[0][0].aids = true;
  out.expectations = Same("any", "out", true);
  return out;
}

// ---- a product that is added to x, and all ranks' ----

Case MatmulReduceCase(TileFormat format, Taken taken, uint32_t rows, uint32_t hidden, uint32_t width, uint32_t parts,
                      uint32_t splits, uint32_t workers, uint32_t ranks) {
  Random random(hidden + rows * 7 + static_cast<uint32_t>(format));
  const SumShape sum = {rows, hidden, ranks, splits};
  const Inputs x = RandomInputs(random, rows, width);
  const TiledWeights w = RandomTiles(random, format, hidden, width, false, parts, {});
  const std::vector<float> before = random.Floats(size_t{rows} * sum.stride());
  std::vector<std::vector<Near>> products(rows);
  for (uint32_t row = 0; row < rows; ++row) {
    const Row in = InputOf(x, NormData{}, row);
    for (uint32_t o = 0; o < hidden; ++o) products[row].push_back(Dot(w, 0, o, in.values, &in.errors, taken));
  }
  const Wanted want = WantedSum(sum, before, products);
  Case out;
  out.name = absl::StrCat("matmul_reduce_", NameOf(format), SuffixOf(taken), " ", rows, " rows, ", hidden,
                          " outputs, k ", width, " in ", parts, ", shared by ", splits, ", ", workers, " workgroups, ",
                          ranks, " ranks");
  out.bound = BoundOf(taken);
  out.isas = IsasOf(taken);
  out.steps.emplace_back();
  for (uint32_t r = 0; r < ranks; ++r) {
    out.buffers.push_back({OfRank("step", r), StepPlan::Of(rows).Block(), r});
    out.buffers.push_back({OfRank("in", r), SplitRows(x), r});
    out.buffers.push_back(
        {OfRank("words", r), StaleWords(ToldWordCount(splits, sum.stride()), LaunchTag(UINT32_MAX, 2, 5)), r});
    AddSum(sum, before, r, &out.buffers);
    std::vector<Buffer> weights;
    w.AddBuffers(OfRank("w", r), &weights);
    for (Buffer& buffer : weights) {
      buffer.device = r;
      out.buffers.push_back(std::move(buffer));
    }
    out.steps[0].push_back(MakeLaunch<MatmulReduceArgs>(
        std::string("matmul_reduce_") + NameOf(format) + SuffixOf(taken), workers,
        [=](MatmulReduceArgs& args, const Addresses& at) {
          MatmulArgs& product = args.product;
          product.step = at.Of<const uint32_t>(OfRank("step", r));
          product.x = at.Of<const float>(OfRank("in", r));
          product.w = w.At(OfRank("w", r), at);
          product.x_stride = x.stride;
          product.out_stride = sum.stride();
          product.rows = rows;
          product.splits = splits;
          product.split_rows = rows;
          args.reduce = SumAt(sum, r, at);
          product.told = {at.Of<uint64_t>(OfRank("words", r)), 2, 5};
        },
        r));
    out.expectations.push_back(want.Check(OfRank("x", r)));
  }
  return out;
}

// ---- a product that tells its sums ----

Case MatmulToldCase(TileFormat format, Taken taken, uint32_t rows, uint32_t hidden, uint32_t width, uint32_t splits) {
  constexpr uint32_t kIndex = 3, kTurn = 4, kTurns = 5, kTag = LaunchTag(kIndex, kTurn, kTurns);
  Random random(hidden + splits + static_cast<uint32_t>(format));
  const Inputs x = RandomInputs(random, rows, width);
  const TiledWeights w = RandomTiles(random, format, hidden, width, false, 8, {});
  std::vector<std::vector<Near>> want(rows);
  for (uint32_t row = 0; row < rows; ++row) {
    const Row in = InputOf(x, NormData{}, row);
    for (uint32_t o = 0; o < hidden; ++o) want[row].push_back(Dot(w, 0, o, in.values, &in.errors, taken));
  }
  const uint32_t stride = RoundUp(hidden, kPadColumns);
  const std::string kernel = std::string("matmul_") + NameOf(format) + SuffixOf(taken);
  StepPlan step = StepPlan::Of(rows);
  step.index = kIndex;
  Case out;
  out.name = absl::StrCat(kernel, " told, ", rows, " rows, ", hidden, " outputs, k ", width, ", shared by ", splits);
  out.bound = BoundOf(taken);
  out.isas = IsasOf(taken);
  out.buffers = {{"step", step.Block()},
                 {"in", SplitRows(x)},
                 {"words", StaleWords(ToldWordCount(splits, stride), kTag - 2)}};
  w.AddBuffers("w", &out.buffers);
  out.steps = {{MakeLaunch<MatmulArgs>(kernel, 3, [=](MatmulArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("in");
    args.w = w.At("w", at);
    args.x_stride = x.stride;
    args.out_stride = stride;
    args.rows = rows;
    args.splits = splits;
    args.told = {at.Of<uint64_t>("words"), kTurn, kTurns};
  })}};
  const auto check = [=](absl::Span<const uint8_t> bytes) -> std::string {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t o = 0; o < hidden; ++o) {
        double sum = 0;
        for (uint32_t s = 0; s < splits; ++s) {
          const size_t at = ToldWordCount(s, stride) + row * ToldStride(stride) + ToldPlace(o);
          uint32_t tag;
          float part;
          std::memcpy(&part, &bytes[at * 8], 4);
          std::memcpy(&tag, &bytes[at * 8 + 4], 4);
          if (tag != kTag) return absl::StrCat("row ", row, " [", o, "] of split ", s, " has another tag");
          sum += double{part};
        }
        const Near& near = want[row][o];
        if (!(std::abs(sum - near.value) <= near.allowed)) {
          return absl::StrCat("row ", row, " [", o, "] is ", sum, ", expected ", near.value, " +- ", near.allowed);
        }
      }
    }
    return "";
  };
  out.expectations = {{"words", check}};
  return out;
}

// ---- rows as MXFP8 ----

// All exponents, so that largest values lie below, at and above what doubles a factor; a block of zeros, and one that ends in
// e4m3's least steps.
Case ScaleRowsCase(uint32_t rows, uint32_t width) {
  Random random(rows + width);
  Inputs x = RandomInputs(random, rows, width);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t block = i / kStepColumns;
    const double near = block % 7 == 0 ? 0 : std::ldexp(1 + random.Uniform(), static_cast<int>(block * 11 % 240) - 120);
    const double below = std::ldexp(1.0, -static_cast<int>(random.Uniform() * 20));
    x.values[i] = static_cast<float>((i % 3 == 0 ? -near : near) * (i % 5 == 0 ? 1 : below));
  }
  const uint32_t steps = width / kStepColumns, row_bytes = ScaledRowBytes(steps);
  Case out;
  out.name = absl::StrCat("scale_rows ", rows, " rows, k ", width);
  out.bound = "the bits of the least factor that cuts nothing, and of the nearest codes";
  out.isas = IsasOf(Taken::kScaled);
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"x", SplitRows(x)}, {"out", Bytes(size_t{rows} * row_bytes, kUntouchedByte)}};
  out.steps = {{TakenRowsLaunch("x", x, steps, "out")}};
  const auto check = [=](absl::Span<const uint8_t> bytes) -> std::string {
    for (uint32_t row = 0; row < rows; ++row) {
      const absl::Span<const uint8_t> own = bytes.subspan(size_t{row} * row_bytes, row_bytes);
      for (uint32_t step = 0; step < steps; ++step) {
        std::vector<uint16_t> values;
        uint32_t largest = 0;
        for (uint32_t c = 0; c < kStepColumns; ++c) {
          values.push_back(quant::Bf16FromFloat(static_cast<float>(x.at(row, step * kStepColumns + c))));
          largest = std::max<uint32_t>(largest, values.back() & 0x7fffu);
        }
        const uint32_t factor = own[steps * kStepColumns + step];
        // The least power of two, or the least that there is, with which the largest is within 448.
        const double scale = std::ldexp(1.0, static_cast<int>(factor) - 127);
        const double most = quant::FloatFromBf16(static_cast<uint16_t>(largest)) / scale;
        if (factor == 0 || most > 448 || (factor > 1 && most <= 224)) {
          return absl::StrCat("row ", row, " step ", step, ": factor ", factor, " of a largest of ", most, " codes");
        }
        for (uint32_t c = 0; c < kStepColumns; ++c) {
          const uint8_t code = own[step * kStepColumns + ScaledPart(StepPlace(c) / 8) * 8 + StepPlace(c) % 8];
          const auto want = quant::Fp8E4m3FromFloat(static_cast<float>(quant::FloatFromBf16(values[c]) / scale));
          if (code != want) return absl::StrCat("row ", row, " column ", step * kStepColumns + c, ": ", code, ", expected ", want);
        }
      }
    }
    return "";
  };
  out.expectations = {{"out", check}};
  return out;
}

// The values of split rows, as the tiles of a weight lie. What is beyond the last row of a tile is nobody's.
Case TileRowsCase(uint32_t rows, uint32_t width) {
  Random random(rows + width);
  const Inputs x = RandomInputs(random, rows, width);
  const uint32_t steps = width / kStepColumns;
  Case out;
  out.name = absl::StrCat("tile_rows ", rows, " rows, k ", width);
  out.bound = "the bits of the nearest bf16";
  out.isas = IsasOf(Taken::kTiled);
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"x", SplitRows(x)}, {"out", Bytes(TiledRowsBytes(rows, steps), kUntouchedByte)}};
  out.steps = {{TakenRowsLaunch("x", x, steps, "out", "tile_rows")}};
  const auto check = [=](absl::Span<const uint8_t> bytes) -> std::string {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t c = 0; c < width; ++c) {
        const uint32_t place = StepPlace(c % kStepColumns);
        const size_t tile = size_t{row / kTileRows} * steps + c / kStepColumns;
        uint16_t own;
        std::memcpy(&own, &bytes[tile * kRowTileBytes + place / 8 * kTileRows * 16 + row % kTileRows * 16 + place % 8 * 2], 2);
        const uint16_t want = quant::Bf16FromFloat(static_cast<float>(x.at(row, c)));
        if (own != want) return absl::StrCat("row ", row, " column ", c, ": ", own, ", expected ", want);
      }
    }
    return "";
  };
  out.expectations = {{"out", check}};
  return out;
}

}  // namespace

std::vector<Case> DecoderTallCases() {
  std::vector<Case> cases;
  cases.push_back(TileRowsCase(37, 512));
  cases.push_back(TileRowsCase(16, 1536));
  cases.push_back(ScaleRowsCase(37, 544));
  cases.push_back(ScaleRowsCase(2, 7680));
  for (TileFormat format : kTallFormats) {
    for (const Taken taken : TakensOfBlocks(format)) {
      // A row beyond a workgroup's, and outputs of which waves have none; leaves of a block and of two.
      const uint32_t rows = TallRows(taken) + 1;
      cases.push_back(TallCase(TallKind::kMatmul, format, taken, rows, 272, 512, 1));
      cases.push_back(TallCase(TallKind::kGateUp, format, taken, 20, 144, 1024, 1));
      cases.push_back(TallCase(TallKind::kGateUpAny, format, taken, 33, 16, 512, 1, kClamped));
      // Ragged leaves: of half a block and one and a half, of a block and two, the last one of half a tile, or of several.
      if (taken != Taken::kScaled && !HasCodes(format)) {
        cases.push_back(TallCase(TallKind::kGateUp, format, taken, rows, 144, 448, 1));
        cases.push_back(TallCase(TallKind::kGateUpAny, format, taken, 33, 16, 1344, 1, kClamped));
      }
      cases.push_back(TallCase(TallKind::kParts, format, taken, 40, 48, taken == Taken::kRounded ? 1024 : 2048, taken == Taken::kRounded ? 2 : 4));
      // Leaves that differ: of a step and of two, of a tile and of two.
      const uint32_t parts = format == TileFormat::kBf16 ? 8 : TileSteps(format) == 2 ? 4 : 2;
      if (taken != Taken::kScaled) cases.push_back(TallCase(TallKind::kParts, format, taken, 20, 144, 1280, parts));
    }
  }
  // Leaves of several chunks and a half; of one step all; a k of one part.
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kBoth, 17, 16, 2 * 23 * 32, 2));
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kRounded, 17, 16, 1024, 8));
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kBoth, 17, 16, 7 * 32, 1));
  // Gate and up of leaves of a step each; of one that ends with half a tile, and is no more.
  cases.push_back(TallCase(TallKind::kGateUp, TileFormat::kBf16, Taken::kRounded, 70, 16, 128, 1));
  cases.push_back(TallCase(TallKind::kGateUp, TileFormat::kBf16, Taken::kBoth, 17, 16, 2880, 1));
  cases.push_back(TallCase(TallKind::kGateUp, TileFormat::kMxfp4, Taken::kBoth, 17, 16, 2880, 1));
  // Rows in tiles: a row beyond a workgroup's, outputs of which waves have none; leaves of one block and of three; few parts and all.
  cases.push_back(TallCase(TallKind::kMatmul, TileFormat::kBf16, Taken::kTiled, 129, 272, 512, 1));
  cases.push_back(TallCase(TallKind::kMatmul, TileFormat::kBf16, Taken::kTiled, 17, 2320, 512, 1));
  cases.push_back(TallCase(TallKind::kGateUp, TileFormat::kBf16, Taken::kTiled, 17, 16, 1536, 1));
  cases.push_back(TallCase(TallKind::kGateUp, TileFormat::kBf16, Taken::kTiled, 200, 144, 1024, 1));
  cases.push_back(TallCase(TallKind::kGateUpAny, TileFormat::kBf16, Taken::kTiled, 33, 16, 512, 1, kClamped));
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kTiled, 40, 48, 1024, 2));
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kTiled, 130, 144, 6144, 4));
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kTiled, 17, 16, 4096, 8));
  // Through a ring: rows that a tile, an ask and a workgroup have not all of, one beyond a workgroup's, and more; leaves of a chunk, which
  // are as few chunks as there may be, of an odd number of them and of more; outputs of which waves have none; few parts and all.
  for (const TileFormat format : {TileFormat::kMxfp4, TileFormat::kFp8}) {
    for (const uint32_t rows : {1u, 63u, 65u, 129u}) cases.push_back(TallCase(TallKind::kMatmul, format, Taken::kRing, rows, 272, 512, 1));
    cases.push_back(TallCase(TallKind::kMatmul, format, Taken::kRing, 17, 2320, 512, 1));
    cases.push_back(TallCase(TallKind::kGateUp, format, Taken::kRing, 130, 16, 2560, 1));
    // (Of 1,536 columns of fp8 a plain product has two parts.)
    cases.push_back(TallCase(format == TileFormat::kFp8 ? TallKind::kGateUp : TallKind::kMatmul, format, Taken::kRing, 130, 16, 1536, 1));
    cases.push_back(TallCase(TallKind::kGateUp, format, Taken::kRing, 17, 24, 4608, 1));
    cases.push_back(TallCase(TallKind::kGateUp, format, Taken::kRing, 200, 144, 1024, 1));
    cases.push_back(TallCase(TallKind::kGateUp, format, Taken::kRing, 33, 16, 1536, 1));
    cases.push_back(TallCase(TallKind::kGateUpAny, format, Taken::kRing, 33, 16, 512, 1, kClamped));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kRing, 40, 48, 1024, 2));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kRing, 200, 144, 6144, 4));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kRing, 17, 16, 5120, 2));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kRing, 17, 16, 4096, 8));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kRing, 17, 16, 12288, 8));  // more windows of fp8's scales than two
  }
  // The highest tree; several dies' blocks, and more blocks than workgroups.
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kBf16, Taken::kBoth, 17, 16, 4096, 8));
  cases.push_back(TallCase(TallKind::kMatmul, TileFormat::kMxfp4, Taken::kRounded, 100, 2320, 512, 1));
  for (const TileFormat format : {TileFormat::kMxfp4, TileFormat::kFp8}) {
    cases.push_back(TallCase(TallKind::kMatmul, format, Taken::kScaled, 100, 2320, 512, 1));
    // Leaves of three chunks, and of five; the highest tree. (Of 1,536 columns of fp8 a plain product has two parts.)
    cases.push_back(TallCase(format == TileFormat::kFp8 ? TallKind::kGateUp : TallKind::kMatmul, format, Taken::kScaled, 17, 16, 1536, 1));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kScaled, 70, 16, 5120, 2));
    cases.push_back(TallCase(TallKind::kParts, format, Taken::kScaled, 17, 16, 4096, 8));
  }
  // Codes of every kind, leaves of one block, of two and of different numbers of tiles. Of two formats each output tile has a
  // code of its own, in a workgroup's one and the other. (1,024 columns of bytes are two parts.)
  for (const auto& [tile, from] : kCoded) {
    const uint32_t width = tile == TileFormat::kByte ? 512 : 1024;
    cases.push_back(TallCase(TallKind::kMatmul, tile, Taken::kBoth, 66, 176, width, 1, {}, from));
    cases.push_back(TallCase(TallKind::kParts, tile, Taken::kBoth, 35, 112, 1024, 2, {}, from));
    cases.push_back(TallCase(TallKind::kParts, tile, Taken::kBoth, 35, 112, 1280, 1, {}, from));
    if (!from.below.has_value()) cases.push_back(TallCase(TallKind::kGateUp, tile, Taken::kBoth, 20, 80, 1024, 1, {}, from));
  }
  cases.push_back(TallCase(TallKind::kParts, TileFormat::kNibble, Taken::kBoth, 17, 16, 4096, 8));
  return cases;
}

// Leaves of no whole group of tiles, of one, two, four and more, with and without tiles behind them. Of units as many as
// workgroups, fewer and more; whole blocks of eight output tiles, one, and some of another.
std::vector<Case> HalvesCases() {
  std::vector<Case> cases;
  for (TileFormat format : kTileFormats) {
    const uint32_t tile = TileSteps(format) * kStepColumns;  // columns
    for (const Taken taken : RoundingsOf(format)) {
      cases.push_back(HalvesCase(format, taken, 1, 1, 40, tile * 4 * 39, 6));
      cases.push_back(HalvesCase(format, taken, 8, 8, 16, tile * 4 * 4, 16, kBiased));
    }
    cases.push_back(HalvesCase(format, Taken::kBoth, 1, 1, 128, tile * 7, 16));
    cases.push_back(HalvesCase(format, Taken::kBoth, 4, 3, 200, tile * 4 * 9, 32));
    cases.push_back(HalvesCase(format, Taken::kBoth, 8, 5, 24, tile * 4 * 20, 5, kGelu));
    cases.push_back(HalvesCase(format, Taken::kBoth, 2, 2, 136, tile * 4 * 2, 24, kClamped));
    cases.push_back(HalvesCase(format, Taken::kBoth, 1, 1, 16, tile, 3, kBiased));
  }
  for (const TileFormat format : {TileFormat::kMxfp4, TileFormat::kFp8}) {
    for (const uint32_t width : {512u, 1536u, 2560u, 4096u, 4608u}) {
      cases.push_back(HalvesCase(format, Taken::kScaled, width == 1536 ? 8 : 3, 3, 152, width, 21));
    }
    cases.push_back(HalvesCase(format, Taken::kScaled, 1, 1, 24, 1024, 4, kClamped));
  }
  for (const auto& [tile, from] : kCoded) {
    if (!from.below.has_value()) cases.push_back(HalvesCase(tile, Taken::kBoth, 2, 2, 72, 1024, 20, {}, from));
  }
  return cases;
}

std::vector<Case> DecoderMatrixCases() {
  std::vector<Case> cases = HalvesCases();
  for (TileFormat format : kTileFormats) {
    const bool mx = InThirtyTwos(format);
    const uint32_t ragged = mx ? 224 : 200, wide = mx ? 1184 : 1160;
    cases.push_back(ProductCase({format, false, 1, 40, ragged, false, false, 2}));
    cases.push_back(ProductCase({format, false, 5, 33, wide, true, false, 3}));
    cases.push_back(ProductCase({format, false, 17, 40, ragged, true, true, 3}));
    cases.push_back(ProductCase({format, false, 17, 16, 32, false, false, 1}));
    cases.push_back(ProductCase({format, true, 1, 40, ragged, true, false, 2}));
    cases.push_back(ProductCase({format, true, 17, 24, ragged, false, false, 3}));
    cases.push_back(ProductCase({format, true, 5, 16, wide, true, false, 1}));
    // k in whole tiles, and with a last tile of two steps of four.
    cases.push_back(ProductCase({format, false, 2, 17, 256, true, false, 2}));
    cases.push_back(ProductCase({format, false, 2, 17, 192, false, false, 2}));
    cases.push_back(ProductCase({format, true, 2, 17, 192, true, false, 2}));
    // k in parts: some empty, some that begin within what would be a tile, and their tails.
    for (const auto& [width, parts] : std::vector<std::pair<uint32_t, uint32_t>>{
             {128, 8}, {ragged, 8}, {wide, 8}, {wide, 4}, {192, 2}}) {
      cases.push_back(ProductCase({format, false, 3, 17, width, false, false, 2, Taken::kBoth, parts}));
    }
    // Eight rows and nine are columns of one matrix instruction and of two.
    cases.push_back(ProductCase({format, false, 8, 17, wide, true, false, 2, Taken::kBoth, 8}));
    cases.push_back(ProductCase({format, false, 9, 17, wide, true, false, 2, Taken::kBoth, 8}));
    cases.push_back(ProductCase({format, false, 1, 40, wide, false, false, 5, Taken::kBoth, 8, 8}));
    cases.push_back(ProductCase({format, false, 9, 17, wide, false, false, 3, Taken::kBoth, 8, 2}));
    for (const auto& [rows, gate] : std::vector<std::pair<uint32_t, Gate>>{
             {1, kGelu}, {5, kClamped}, {17, kBiased}}) {
      cases.push_back(ProductCase({format, true, rows, 40, ragged, rows != 5, false, 2, Taken::kBoth, 1, 1, gate}));
    }
    for (const Taken taken : RoundingsOf(format)) {
      cases.push_back(ProductCase({format, false, 3, 17, wide, false, false, 2, taken, 8}));
      cases.push_back(ProductCase({format, false, 5, 33, wide, true, false, 3, taken}));
      cases.push_back(ProductCase({format, true, 17, 24, ragged, false, false, 3, taken}));
      cases.push_back(ProductCase({format, true, 5, 24, ragged, true, false, 2, taken, 1, 1, kClamped}));
    }
  }
  for (TileFormat format : kTileFormats) {
    // Two chunks and a part; a workgroup with many tiles, and one with none; k shared.
    cases.push_back(MatmulReduceCase(format, Taken::kBoth, 1, 1032, 256, 8, 1, 5, 1));
    cases.push_back(MatmulReduceCase(format, Taken::kBoth, 4, 528, 256, 8, 8, 300, 1));
    cases.push_back(MatmulToldCase(format, Taken::kBoth, 1, 72, 256, 4));
    for (const Taken taken : RoundingsOf(format)) {
      cases.push_back(MatmulReduceCase(format, taken, 2, 520, 256, 8, 2, 7, 1));
      cases.push_back(MatmulToldCase(format, taken, 4, 40, 256, 1));
    }
  }
  // MXFP8 of inputs that are exact, by tiles and what is left of one: none, a step, two and three; rows of several blocks, logit
  // rows, leaves that are short, one and long ones.
  for (const uint32_t width : {32u, 64u, 96u, 128u, 544u, 608u, 2048u}) {
    cases.push_back(ProductCase({TileFormat::kMxfp4, false, 19, 24, width, false, false, 3, Taken::kScaled}));
    cases.push_back(ProductCase({TileFormat::kMxfp4, true, 3, 24, width, false, false, 3, Taken::kScaled}));
  }
  cases.push_back(ProductCase({TileFormat::kMxfp4, false, 17, 40, 320, false, true, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kMxfp4, false, 8, 40, 3232, false, false, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kMxfp4, true, 8, 40, 5792, false, false, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kMxfp4, false, 2, 40, 1280, false, false, 3, Taken::kScaled, 8, 4}));
  // Of fp8 by leaves of one block of 128 columns, of two, three and five, which are asked for one by one, two at once, or with
  // those of others; rows of several blocks, logit rows.
  for (const uint32_t width : {512u, 1024u, 1536u, 2560u}) {
    cases.push_back(ProductCase({TileFormat::kFp8, true, width == 512 ? 19u : 3u, 152, width, false, false, 3, Taken::kScaled}));
  }
  cases.push_back(ProductCase({TileFormat::kFp8, false, 19, 24, 512, false, false, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 19, 24, 3072, false, false, 3, Taken::kScaled, 2}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 5, 33, 1024, true, false, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 17, 40, 512, false, true, 3, Taken::kScaled}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 8, 40, 4096, false, false, 3, Taken::kScaled, 8}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 9, 40, 8192, false, false, 3, Taken::kScaled, 8}));
  cases.push_back(ProductCase({TileFormat::kFp8, false, 2, 40, 4096, false, false, 3, Taken::kScaled, 8, 4}));
  cases.push_back(ProductCase({TileFormat::kFp8, true, 5, 24, 512, true, false, 2, Taken::kScaled, 1, 1, kClamped}));
  cases.push_back(MatmulReduceCase(TileFormat::kFp8, Taken::kScaled, 2, 520, 4096, 8, 2, 7, 1));
  cases.push_back(MatmulToldCase(TileFormat::kFp8, Taken::kScaled, 4, 40, 4096, 1));
  // Words of more than one chunk.
  cases.push_back(MatmulToldCase(TileFormat::kBf16, Taken::kBoth, 3, 1100, 256, 2));
  cases.push_back(MatmulReduceCase(TileFormat::kBf16, Taken::kBoth, 3, 1040, 256, 8, 4, 9, 2));
  // Where nobody shares k, who makes an element tells all ranks.
  cases.push_back(MatmulReduceCase(TileFormat::kBf16, Taken::kBoth, 2, 1040, 256, 8, 1, 11, 4));
  cases.push_back(MatmulReduceCase(TileFormat::kByte, Taken::kBoth, 2, 528, 256, 8, 1, 11, 2));
  cases.push_back(MatmulReduceCase(TileFormat::kBf16, Taken::kBoth, 1, 600, 256, 8, 8, 320, 4));
  for (const auto& [tile, from] : kCoded) {
    cases.push_back(ProductCase({tile, false, 3, 72, 2048, true, false, 2, Taken::kBoth, 8, 1, {}, from}));
    cases.push_back(ProductCase({tile, false, 12, 40, 256, false, false, 2, Taken::kBoth, 1, 1, {}, from}));
    cases.push_back(ProductCase({tile, true, 2, 24, 512, true, false, 2, Taken::kBoth, 1, 1, {}, from}));
  }
  return cases;
}

}  // namespace mainarch::kernels_test
