// SPDX-License-Identifier: MIT
//
// Latent attention: norm_split, heads_matmul_*, latent_* and attend_latent_*. Whatever a cache holds
// beyond a row's position is a NaN here.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/latent_args.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "unit/kernels/decoder_weights.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr float kEpsilon = 1e-6f;

const char* NameOfKv(KvFormat format) {
  return format == KvFormat::kF32 ? "pair" : quant::kKvTypeNames[static_cast<uint32_t>(format)];
}

// ---- norm_split ----

Case NormSplitCase(uint32_t rows, uint32_t width, uint32_t workers) {
  Random random(width + rows);
  const Inputs y = RandomInputs(random, rows, width, 3);
  const std::vector<float> norm = random.Floats(width);
  const uint32_t stride = y.stride;
  Wanted want(rows + 1, stride);
  for (uint32_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (uint32_t i = 0; i < width; ++i) squares += y.at(row, i) * y.at(row, i);
    const double factor = 1 / std::sqrt(squares / width + double{kEpsilon});
    for (uint32_t i = 0; i < width; ++i) {
      const double value = y.at(row, i) * factor * double{norm[i]};
      want.Set(row, i, value, std::abs(value) * 0x1p-20);
    }
  }
  Case out;
  out.name = absl::StrCat("norm_split ", rows, " rows of ", width);
  out.bound = "2^-20 relative: fp32 sums of squares; 2^-16 of split rows";
  out.buffers = {{"step", StepPlan::Of(rows).Block()},
                 {"y", ToBytes(y.values)},
                 {"norm", ToBytes(norm)},
                 want.ToFill("out")};
  out.steps = {
      {MakeLaunch<NormSplitArgs>("norm_split", workers, [=](NormSplitArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.y = at.Of<const float>("y");
        args.norm = at.Of<const float>("norm");
        args.out = at.Of<float>("out");
        args.width = width;
        args.stride = stride;
        args.inverse_width = 1.0f / static_cast<float>(width);
        args.epsilon = kEpsilon;
      })}};
  out.expectations = {want.CheckSplit("out")};
  return out;
}

// ---- heads_matmul ----

struct HeadsShape {
  TileFormat format;
  uint32_t rows, heads, columns, width;  // of a head: in and out
  bool split;                            // both sides are split rows; else both are fp32
  uint32_t workers;
};

Case HeadsCase(const HeadsShape& s) {
  Random random(s.columns + s.rows * 7 + s.heads);
  // fp32 rows: heads lie apart, behind something else. What is between them is not of the product.
  const uint32_t x_at = s.split ? 32 : 4, x_step = s.split ? s.columns : s.columns + 8;
  const uint32_t out_at = s.split ? 0 : 16, out_step = s.split ? s.width : s.width + 16;
  const Inputs x = RandomInputs(random, s.rows, x_at + s.heads * x_step);
  const uint32_t out_stride = RoundUp(out_at + s.heads * out_step, kPadColumns);
  std::vector<TiledWeights> w;
  TiledWeights all;
  for (uint32_t h = 0; h < s.heads; ++h) {
    w.push_back(RandomTiles(random, s.format, s.width, s.columns, /*gate_up=*/false));
    const TiledWeights& one = w.back();
    if (h == 0) all = one;
    if (h > 0) all.data.insert(all.data.end(), one.data.begin(), one.data.end());
    if (h > 0) all.scales.insert(all.scales.end(), one.scales.begin(), one.scales.end());
  }
  const uint64_t bytes = w[0].data.size(), scale_bytes = w[0].scales.size();
  Wanted want(s.rows + 1, out_stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t h = 0; h < s.heads; ++h) {
      std::vector<double> in;
      for (uint32_t i = 0; i < s.columns; ++i) in.push_back(x.at(row, x_at + h * x_step + i));
      for (uint32_t o = 0; o < s.width; ++o) {
        const Near near = Dot(w[h], 0, o, in);
        want.Set(row, out_at + h * out_step + o, near.value, near.allowed);
      }
    }
  }
  Case out;
  const std::string kernel = absl::StrCat("heads_matmul_", NameOf(s.format));
  out.name = absl::StrCat(kernel, " ", s.rows, " rows, ", s.heads, " heads of ", s.columns, " to ", s.width,
                          s.split ? ", split rows" : "");
  out.bound = kProductBound;
  out.buffers = {{"step", StepPlan::Of(s.rows).Block()},
                 {"x", s.split ? SplitRows(x) : ToBytes(x.values)},
                 want.ToFill("out")};
  all.AddBuffers("w", &out.buffers);
  out.steps = {
      {MakeLaunch<HeadsMatmulArgs>(kernel, s.workers, [=](HeadsMatmulArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.x = at.Of<const float>("x");
        args.out = at.Of<float>("out");
        args.w = all.At("w", at);
        args.head_bytes = bytes;
        args.head_scale_bytes = scale_bytes;
        args.x_stride = x.stride;
        args.x_at = x_at;
        args.x_step = x_step;
        args.out_stride = out_stride;
        args.out_at = out_at;
        args.out_step = out_step;
        args.heads = s.heads;
        args.columns = s.columns;
        args.width = s.width;
        args.rows = s.rows;
        args.x_split = args.out_split = s.split;
      })}};
  out.expectations = {s.split ? want.CheckSplit("out") : want.Check("out")};
  return out;
}

// ---- pages ----

struct LatentShape {
  KvFormat format;
  uint32_t heads, turning, latent;
  std::vector<uint32_t> positions;

  uint32_t count() const { return static_cast<uint32_t>(positions.size()); }
  uint32_t key() const { return turning + latent; }
  std::string Text() const {
    std::string text = absl::StrCat(NameOfKv(format), " ", heads, " heads of ", turning, " and ", latent, " at");
    for (const uint32_t position : positions) absl::StrAppend(&text, " ", position);
    return text;
  }
};

// Pages for every row, none shared, the last ones first; one page is nobody's.
uint32_t DealPages(const LatentShape& s, StepPlan* step) {
  uint32_t count = 1;
  *step = StepPlan::Of(s.count());
  for (uint32_t i = 0; i < s.count(); ++i) {
    step->rows[i].position = s.positions[i];
    for (uint32_t k = 0; k <= s.positions[i] / kPageTokens; ++k) step->rows[i].pages.push_back(count++);
    std::reverse(step->rows[i].pages.begin(), step->rows[i].pages.end());
  }
  return count;
}

// Pages as latent_args.h lays them out.
class Latents {
 public:
  Latents(const LatentShape& s, uint32_t pages) : s_(s) {
    bytes.assign(size_t{pages} * PageBytes(), 0xff);  // NaNs, all of it
  }
  // Element d of a token's key: what turns and its zeros, then the latent.
  uint32_t Padded() const { return RoundUp(s_.turning, 32) + RoundUp(s_.latent, 32); }
  bool IsLatent(uint32_t d) const { return d >= RoundUp(s_.turning, 32); }

  double Get(uint32_t page, uint32_t token, uint32_t d) const {
    const uint8_t* at = &bytes[page * PageBytes()];
    if (s_.format == KvFormat::kFp8) {
      return double{quant::FloatFromFp8E4m3(at[Index(token, d)])} * double{MultiplierOf(page, token, IsLatent(d))};
    }
    double sum = 0;
    for (uint32_t plane = 0; plane < Planes(); ++plane) {
      uint16_t bits;
      std::memcpy(&bits, at + (size_t{plane} * kPageTokens * Padded() + Index(token, d)) * 2, 2);
      sum += double{quant::FloatFromBf16(bits)};
    }
    return sum;
  }
  float MultiplierOf(uint32_t page, uint32_t token, bool latent) const {
    float out;
    std::memcpy(&out, &bytes[Multiplier(page, token, latent)], 4);
    return out;
  }
  void Set(uint32_t page, uint32_t token, uint32_t d, float x) {
    uint8_t* at = &bytes[page * PageBytes()];
    if (s_.format == KvFormat::kFp8) {
      at[Index(token, d)] = quant::Fp8E4m3FromFloat(x / MultiplierOf(page, token, IsLatent(d)));
      return;
    }
    for (uint32_t plane = 0; plane < Planes(); ++plane) {
      const uint16_t bits = quant::Bf16FromFloat(x);
      std::memcpy(at + (size_t{plane} * kPageTokens * Padded() + Index(token, d)) * 2, &bits, 2);
      x -= quant::FloatFromBf16(bits);
    }
  }
  void Fill(Random& random, uint32_t page, uint32_t token) {
    for (const bool latent : {false, true}) {
      const float scale = static_cast<float>(0.01 + 0.02 * random.Uniform());
      if (s_.format == KvFormat::kFp8) std::memcpy(&bytes[Multiplier(page, token, latent)], &scale, 4);
    }
    for (uint32_t d = 0; d < Padded(); ++d) {
      const bool zero = d >= s_.turning && !IsLatent(d);
      Set(page, token, d, zero ? 0.0f : static_cast<float>(random.Normal()));
    }
  }
  // Puts back what `other` has of one token.
  void CopyToken(const Latents& other, uint32_t page, uint32_t token) {
    const size_t size = s_.format == KvFormat::kFp8 ? 1 : 2;
    for (uint32_t plane = 0; plane < Planes(); ++plane) {
      for (uint32_t d = 0; d < Padded(); ++d) {
        const size_t at = page * PageBytes() + (size_t{plane} * kPageTokens * Padded() + Index(token, d)) * size;
        std::memcpy(&bytes[at], &other.bytes[at], size);
      }
    }
    for (const bool latent : {false, true}) {
      const size_t at = Multiplier(page, token, latent);
      if (s_.format == KvFormat::kFp8) std::memcpy(&bytes[at], &other.bytes[at], 4);
    }
  }

  Bytes bytes;

 private:
  size_t PageBytes() const { return LatentPageBytes(s_.format, s_.turning, s_.latent); }
  uint32_t Planes() const { return s_.format == KvFormat::kF32 ? 2 : 1; }
  size_t Multiplier(uint32_t page, uint32_t token, bool latent) const {
    return page * PageBytes() + size_t{kPageTokens} * Padded() + ((latent ? 16 : 0) + token) * 4;
  }
  // Four lanes' parts of eight: elements 4 g .. 4 g + 3 and 16 + 4 g .. 16 + 4 g + 3.
  static size_t Index(uint32_t token, uint32_t d) {
    const size_t part = d % 16 / 4, element = d % 4 + (d % 32 < 16 ? 0 : 4);
    return (size_t{d / 32} * kPageTokens + token) * 32 + part * 8 + element;
  }
  const LatentShape s_;
};

// ---- latent ----

struct Tokens {
  Inputs q, kv;
  uint32_t still;
  bool pairs;
  std::vector<float> norm, cosine, sine;
};

// What turns of a row, from column `at` on, turned; the error is that of fp32, of both of a pair.
std::vector<Near> Turned(const LatentShape& s, const Tokens& data, const Inputs& x, uint32_t row, uint32_t at) {
  const uint32_t half = s.turning / 2;
  std::vector<Near> out(s.turning);
  for (uint32_t i = 0; i < half; ++i) {
    const double a = x.at(row, at + (data.pairs ? 2 * i : i)), b = x.at(row, at + (data.pairs ? 2 * i + 1 : half + i));
    const size_t angle = size_t{s.positions[row]} * half + i;
    const double c = double{data.cosine[angle]}, t = double{data.sine[angle]};
    const double allowed = (std::abs(a) + std::abs(b)) * 0x1p-20;
    out[i] = {a * c - b * t, allowed};
    out[half + i] = {b * c + a * t, allowed};
  }
  return out;
}

// A row's key, as a page has it.
std::vector<Near> KeyOf(const LatentShape& s, const Tokens& data, uint32_t row) {
  std::vector<Near> out = Turned(s, data, data.kv, row, s.latent);
  out.resize(RoundUp(s.turning, 32));
  double squares = 0;
  for (uint32_t d = 0; d < s.latent; ++d) squares += data.kv.at(row, d) * data.kv.at(row, d);
  const double factor = 1 / std::sqrt(squares / s.latent + double{kEpsilon});
  for (uint32_t d = 0; d < s.latent; ++d) {
    const double x = data.kv.at(row, d) * factor * double{data.norm[d]};
    out.push_back({x, std::abs(x) * 0x1p-20});
  }
  return out;
}

// What the row's own token of the cache must be; all other bytes as before.
std::string CheckToken(const LatentShape& s, const Latents& got, const std::vector<Near>& want, uint32_t page,
                       uint32_t token) {
  double largest[2] = {0, 0};
  for (uint32_t d = 0; d < want.size(); ++d) {
    double& most = largest[got.IsLatent(d)];
    most = std::max(most, std::abs(want[d].value));
  }
  for (uint32_t d = 0; d < want.size(); ++d) {
    const double most = largest[got.IsLatent(d)];
    const double loss = s.format == KvFormat::kBF16 ? 0x1.02p-8 : s.format == KvFormat::kFp8 ? 0x1.02p-4 : 0x1.1p-16;
    // fp8 below its smallest normal number: steps of 2^-9 of the multiplier.
    const double step = s.format == KvFormat::kFp8 ? most / 448 * 0x1p-10 : 0;
    const double allowed = want[d].allowed * 2 + 1.01 * step + loss * std::abs(want[d].value);
    const double x = got.Get(page, token, d);
    if (!(std::abs(x - want[d].value) <= allowed)) {
      return absl::StrCat("[", d, "] is ", x, ", expected ", want[d].value, " +- ", allowed);
    }
  }
  for (const bool latent : {false, true}) {
    const double wanted = largest[latent] > 0x1p-117 ? largest[latent] / 448 : 1;
    if (s.format != KvFormat::kFp8) continue;
    const double multiplier = double{got.MultiplierOf(page, token, latent)};
    if (!(std::abs(multiplier - wanted) <= wanted * 1e-5)) {
      return absl::StrCat("multiplier ", multiplier, ", expected ", wanted);
    }
  }
  return "";
}

Expectation PagesCheck(const LatentShape& s, const StepPlan& step, const Latents& before,
                       std::vector<std::vector<Near>> want) {
  return {"pages", [=](absl::Span<const uint8_t> bytes) -> std::string {
            Latents got = before;
            got.bytes.assign(bytes.begin(), bytes.end());
            Latents rest = got;
            for (uint32_t row = 0; row < s.count(); ++row) {
              const uint32_t page = step.rows[row].pages[s.positions[row] / kPageTokens];
              const uint32_t token = s.positions[row] % kPageTokens;
              const std::string wrong = CheckToken(s, got, want[row], page, token);
              if (!wrong.empty()) return absl::StrCat("row ", row, " ", wrong);
              rest.CopyToken(before, page, token);
            }
            return rest.bytes == before.bytes ? "" : "other tokens have changed";
          }};
}

Case LatentCase(const LatentShape& s, uint32_t still, bool pairs) {
  Random random(s.latent + s.count() + still);
  StepPlan step;
  const uint32_t pages = DealPages(s, &step);
  Tokens data;
  data.still = still;
  data.pairs = pairs;
  data.q = RandomInputs(random, s.count(), s.heads * (still + s.turning), 3);
  data.kv = RandomInputs(random, s.count(), s.key(), 3);
  data.norm = random.Floats(s.latent);
  const uint32_t table = *std::max_element(s.positions.begin(), s.positions.end()) + 1;
  for (uint32_t i = 0; i < table * s.turning / 2; ++i) {
    const double angle = 7 * random.Uniform();
    data.cosine.push_back(static_cast<float>(std::cos(angle)));
    data.sine.push_back(static_cast<float>(std::sin(angle)));
  }
  // What turns of the last row is too small for a multiplier.
  for (uint32_t d = 0; s.count() > 1 && d < s.turning; ++d) {
    data.kv.values[(s.count() - 1) * data.kv.stride + s.latent + d] = 0;
  }
  const uint32_t qkv_stride = RoundUp((s.heads + 1) * s.key() + s.latent, kPadColumns);
  Wanted qkv(s.count(), qkv_stride);
  std::vector<std::vector<Near>> keys;
  for (uint32_t row = 0; row < s.count(); ++row) {
    for (uint32_t h = 0; h < s.heads; ++h) {
      const std::vector<Near> turned = Turned(s, data, data.q, row, h * (still + s.turning) + still);
      for (uint32_t d = 0; d < s.turning; ++d) qkv.Set(row, h * s.key() + d, turned[d].value, turned[d].allowed);
    }
    keys.push_back(KeyOf(s, data, row));
  }
  const Latents before(s, pages);
  Case out;
  const std::string kernel = absl::StrCat("latent_", NameOfKv(s.format));
  out.name = absl::StrCat("latent_", s.Text(), pairs ? ", pairs" : "");
  out.bound = "2^-20 of |a| + |b| of a pair, of a normed element; in the cache half a unit of the format on top";
  out.buffers = {{"step", step.Block()},
                 {"q", ToBytes(data.q.values)},
                 {"kv", ToBytes(data.kv.values)},
                 {"norm", ToBytes(data.norm)},
                 {"cosine", ToBytes(data.cosine)},
                 {"sine", ToBytes(data.sine)},
                 {"pages", before.bytes},
                 qkv.ToFill("qkv")};
  const uint32_t q_stride = data.q.stride, kv_stride = data.kv.stride;
  out.steps = {{MakeLaunch<LatentArgs>(kernel, 2, [=](LatentArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.q = at.Of<const float>("q");
    args.kv = at.Of<const float>("kv");
    args.qkv = at.Of<float>("qkv");
    args.norm = at.Of<const float>("norm");
    args.cosine = at.Of<const float>("cosine");
    args.sine = at.Of<const float>("sine");
    args.pages = at.Of<uint8_t>("pages");
    args.q_stride = q_stride;
    args.kv_stride = kv_stride;
    args.qkv_stride = qkv_stride;
    args.heads = s.heads;
    args.still = still;
    args.turning = s.turning;
    args.latent = s.latent;
    args.pairs = pairs;
    args.inverse_latent = 1.0f / static_cast<float>(s.latent);
    args.epsilon = kEpsilon;
  })}};
  out.expectations = {qkv.Check("qkv"), PagesCheck(s, step, before, std::move(keys))};
  return out;
}

// ---- attend_latent ----

constexpr double kScale = 0.07;

// One head of a row against all tokens up to the row's position.
std::vector<Near> AttendHead(const LatentShape& s, const StepPlan& step, const Inputs& qkv, const Latents& kv,
                             uint32_t row, uint32_t head) {
  const uint32_t padded = RoundUp(s.turning, 32);
  const auto element = [&](uint32_t token, uint32_t d) {
    return kv.Get(step.rows[row].pages[token / kPageTokens], token % kPageTokens, d);
  };
  std::vector<double> scores;
  double off = 0, largest = -1e300;  // of a score: two bf16 a query, fp32 sums, the exp
  for (uint32_t token = 0; token <= s.positions[row]; ++token) {
    double score = 0, magnitude = 0;
    for (uint32_t d = 0; d < s.key(); ++d) {
      const uint32_t at = d < s.turning ? d : d - s.turning + padded;
      const double term = kScale * qkv.at(row, head * s.key() + d) * element(token, at);
      score += term;
      magnitude += std::abs(term);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
    off = std::max(off, magnitude * (0x1.1p-16 + s.key() * 0x1p-23) + std::abs(score) * 0x1p-22);
  }
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - largest);
  std::vector<Near> out(s.latent);
  for (uint32_t d = 0; d < s.latent; ++d) {
    double magnitude = 0;
    for (uint32_t token = 0; token < scores.size(); ++token) {
      const double term = scores[token] / total * element(token, padded + d);
      out[d].value += term;
      magnitude += std::abs(term);
    }
    out[d].allowed = magnitude * (2 * off + 0x1p-15);
  }
  return out;
}

// `first_row`, `row_count`: the launch's share of the step.
Case AttendLatentCase(const LatentShape& s, uint32_t first_row, uint32_t row_count) {
  Random random(s.latent + s.count() * 3 + s.heads);
  StepPlan step;
  const uint32_t pages = DealPages(s, &step);
  Inputs qkv = RandomInputs(random, s.count(), (s.heads + 1) * s.key() + s.latent);
  Latents kv(s, pages);
  for (uint32_t row = 0; row < s.count(); ++row) {
    for (uint32_t token = 0; token <= s.positions[row]; ++token) {
      kv.Fill(random, step.rows[row].pages[token / kPageTokens], token % kPageTokens);
    }
  }
  const uint32_t out_stride = RoundUp(s.heads * s.latent, kPadColumns), q_stride = qkv.stride;
  const uint32_t max_splits = *std::max_element(s.positions.begin(), s.positions.end()) / kSplitTokens + 2;
  Wanted want(s.count(), out_stride);
  for (uint32_t row = first_row; row < std::min(s.count(), first_row + row_count); ++row) {
    for (uint32_t head = 0; head < s.heads; ++head) {
      const std::vector<Near> near = AttendHead(s, step, qkv, kv, row, head);
      for (uint32_t d = 0; d < s.latent; ++d) want.Set(row, head * s.latent + d, near[d].value, near[d].allowed);
    }
  }
  Case out;
  out.name = absl::StrCat("attend_latent_", s.Text(), ", rows ", first_row, " + ", row_count);
  out.bound = "(2 e + 2^-15) of the sum of |p v|, e = (2^-15.9 + k * 2^-23) of the sum of |q k| + 2^-22 of the score: "
              "two bf16 of queries and weights, fp32 sums";
  out.buffers = {{"step", step.Block()},
                 {"qkv", ToBytes(qkv.values)},
                 {"pages", kv.bytes},
                 want.ToFill("out"),
                 {"parts", Bytes(size_t{row_count} * s.heads * max_splits * AttendPartFloats(s.latent) * 4, 0xff)}};
  const auto attend = [=](AttendLatentArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.qkv = at.Of<const float>("qkv");
    args.pages = at.Of<const uint8_t>("pages");
    args.out = at.Of<float>("out");
    args.parts = at.Of<float>("parts");
    args.q_stride = q_stride;
    args.out_stride = out_stride;
    args.heads = s.heads;
    args.turning = s.turning;
    args.latent = s.latent;
    args.max_splits = max_splits;
    args.scale = static_cast<float>(kScale);
    args.first_row = first_row;
    args.row_count = row_count;
  };
  const auto merge = [=](AttendMergeArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.parts = at.Of<const float>("parts");
    args.out = at.Of<float>("out");
    args.out_stride = out_stride;
    args.heads = s.heads;
    args.max_splits = max_splits;
    args.head_dim = s.latent;
    args.first_row = first_row;
    args.row_count = row_count;
  };
  out.steps = {{MakeLaunch<AttendLatentArgs>(absl::StrCat("attend_latent_", NameOfKv(s.format)), 3, attend)},
               {MakeLaunch<AttendMergeArgs>("attend_latent_merge", 2, merge)}};
  out.expectations = {want.CheckSplit("out")};
  return out;
}

// Prompts: runs of rows of a sequence, each [first position, rows]. What attend_latent_tall_* and attend_latent_* leave
// together, a launch each, must be the bits of attend_latent_* alone.
Case AttendLatentTallCase(KvFormat format, uint32_t heads, const std::vector<std::pair<uint32_t, uint32_t>>& runs,
                          uint32_t first_row, uint32_t row_count, uint32_t workers) {
  LatentShape lasts = {format, heads, kLatentMostTurning, kLatentMost, {}}, s = lasts;
  for (const auto& [first, rows] : runs) {
    lasts.positions.push_back(first + rows - 1);
    for (uint32_t k = 0; k < rows; ++k) s.positions.push_back(first + k);
  }
  Random random(s.count() + heads);
  StepPlan of_runs;
  const uint32_t pages = DealPages(lasts, &of_runs);
  Latents kv(s, pages);
  for (const StepPlan::Row& row : of_runs.rows) {
    for (uint32_t token = 0; token <= row.position; ++token) {
      kv.Fill(random, row.pages[token / kPageTokens], token % kPageTokens);
    }
  }
  StepPlan step = StepPlan::Of(s.count());
  uint32_t at = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (uint32_t k = 0; k < runs[i].second; ++k) {
      step.rows[at + k].position = runs[i].first + k;
      step.rows[at + k].follows = k > 0;
    }
    step.rows[at].pages = of_runs.rows[i].pages;
    at += runs[i].second;
  }
  const Inputs qkv = RandomInputs(random, s.count(), (heads + 1) * s.key() + s.latent, 3);
  const uint32_t out_stride = RoundUp(heads * s.latent, kPadColumns), q_stride = qkv.stride;
  uint32_t max_splits = 1;  // of a longer context there may be fewer
  for (const uint32_t position : s.positions) max_splits = std::max(max_splits, LatentSplits(position) + 1);
  Case out;
  out.name = absl::StrCat("attend_latent_tall_", NameOfKv(format), " ", heads, " heads");
  for (const auto& [first, rows] : runs) absl::StrAppend(&out.name, ", ", rows, " rows from ", first);
  absl::StrAppend(&out.name, "; rows ", first_row, " + ", row_count);
  out.bound = "the bits of attend_latent_*";
  const Bytes rows(size_t{s.count()} * out_stride * 4, kUntouchedByte);
  const Bytes parts(size_t{row_count} * heads * max_splits * AttendPartFloats(s.latent) * 4, kUntouchedByte);
  out.buffers = {{"step", step.Block()}, {"qkv", ToBytes(qkv.values)}, {"pages", kv.bytes},
                 {"out", rows},          {"out tall", rows},           {"parts", parts},
                 {"parts tall", parts}};
  const auto attend = [=](const std::string& kernel, uint32_t count, bool tall, bool others) {
    return MakeLaunch<AttendLatentArgs>(kernel, count, [=](AttendLatentArgs& args, const Addresses& to) {
      args.step = to.Of<const uint32_t>("step");
      args.qkv = to.Of<const float>("qkv");
      args.pages = to.Of<const uint8_t>("pages");
      args.out = to.Of<float>(tall ? "out tall" : "out");
      args.parts = to.Of<float>(tall ? "parts tall" : "parts");
      args.q_stride = q_stride;
      args.out_stride = out_stride;
      args.heads = heads;
      args.turning = kLatentMostTurning;
      args.latent = kLatentMost;
      args.max_splits = max_splits;
      args.scale = static_cast<float>(kScale);
      args.first_row = first_row;
      args.row_count = row_count;
      args.others = others;
    });
  };
  const std::string few = absl::StrCat("attend_latent_", NameOfKv(format));
  out.steps = {{attend(few, 5, false, false)},
               {attend(absl::StrCat("attend_latent_tall_", NameOfKv(format)), workers, true, false)},
               {attend(few, 3, true, true)}};
  out.steps[0][0].aids = out.steps[2][0].aids = true;
  out.expectations = Same("out", "out tall", false);
  for (Expectation& one : Same("parts", "parts tall", false)) out.expectations.push_back(std::move(one));
  return out;
}

}  // namespace

std::vector<Case> DecoderLatentCases() {
  std::vector<Case> cases = {NormSplitCase(1, 48, 1), NormSplitCase(5, 1536, 3), NormSplitCase(2, 514, 1)};
  for (const TileFormat format : {TileFormat::kBf16, TileFormat::kBf16Pair, TileFormat::kFp8, TileFormat::kMxfp4,
                                  TileFormat::kNibble, TileFormat::kByte}) {
    const bool mx = format == TileFormat::kMxfp4 || format == TileFormat::kNibble;
    cases.push_back(HeadsCase({format, 1, 3, 128, 48, false, 4}));
    cases.push_back(HeadsCase({format, 8, 2, mx ? 32u : 16u, 32, false, 3}));
    cases.push_back(HeadsCase({format, 9, 2, mx ? 96u : 80u, 32, false, 3}));
    cases.push_back(HeadsCase({format, 3, 2, 512, 40, true, 3}));
    cases.push_back(HeadsCase({format, 17, 3, 96, 16, true, 4}));
  }
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kF32}) {
    cases.push_back(LatentCase({format, 5, 64, 512, {0, 15, 16, 33, 140}}, 128, true));
    cases.push_back(LatentCase({format, 1, 16, 32, {3, 17}}, 32, false));
    cases.push_back(LatentCase({format, 2, 8, 64, {5}}, 8, true));
    // Borders of pages, of groups of 32 tokens and of splits.
    cases.push_back(AttendLatentCase({format, 4, 16, 32, {0, 14, 15, 16, 31, 32, 47, 127, 128, 130}}, 0, 10));
    cases.push_back(AttendLatentCase({format, 1, 64, 64, {95, 300}}, 0, 2));
    cases.push_back(AttendLatentCase({format, 24, 64, 512, {20, 133}}, 0, 2));
  }
  cases.push_back(AttendLatentCase({KvFormat::kBF16, 16, 64, 512, {33}}, 0, 1));
  cases.push_back(AttendLatentCase({KvFormat::kFp8, 128, 64, 512, {130}}, 0, 1));
  cases.push_back(AttendLatentCase({KvFormat::kBF16, 3, 32, 192, {3, 530, 40, 140, 20}}, 1, 3));
  cases.push_back(AttendLatentCase({KvFormat::kBF16, 2, 32, 32, {3, 40}}, 2, 2));
  // Runs that begin and end within a split, rows that are alone, groups of rows of two sequences, rows of one split beside
  // rows of two; with fewer workgroups than groups of rows, and so many that some have no split.
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kFp8}) {
    cases.push_back(AttendLatentTallCase(format, 16, {{125, 6}, {30, 1}, {258, 4}}, 0, 11, 5));
    cases.push_back(AttendLatentTallCase(format, 20, {{0, 3}, {7, 5}}, 1, 8, 1));
    cases.push_back(AttendLatentTallCase(format, 3, {{400, 5}}, 0, 5, 11));
  }
  // Splits of several blocks, the last one of fewer.
  cases.push_back(AttendLatentCase({KvFormat::kBF16, 1, 16, 32, {65535, 66300}}, 0, 2));
  if (std::getenv("MAINARCH_TEST_FULL") == nullptr) return cases;
  cases.push_back(AttendLatentCase({KvFormat::kFp8, 2, 8, 64, {131072 + 500}}, 0, 1));
  // Of many rows splits of two blocks, alone and beside some of one.
  cases.push_back(AttendLatentTallCase(KvFormat::kFp8, 1, {{65536, 2}}, 0, 2, 3));
  cases.push_back(AttendLatentTallCase(KvFormat::kFp8, 1, {{65534, 6}}, 0, 6, 3));
  return cases;
}

}  // namespace mainarch::kernels_test
