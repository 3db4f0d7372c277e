// SPDX-License-Identifier: MIT
//
// prepare_*, attend_* and attend_merge, for every head size and KV format. Whatever a cache holds
// beyond a row's position is a NaN here.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "unit/kernels/attention_cases.h"

namespace mainarch::kernels_test {
namespace {

// ---- prepare ----

// What there is of it.
struct PrepareParts {
  bool bias = false, norms = true;
  uint32_t stays = 0;  // elements at a head's end that do not turn
  // For the near one of two caches, which is fp8, and with keys as a far one of fp4 has them.
  bool near = false, near_turned = false;
};

struct PrepareData {
  Inputs qkv;
  std::vector<float> q_norm, k_norm, cosine, sine;
  std::vector<float> bias;  // zeros, if there is none
  PrepareParts has;

  // With its bias, as fp32 adds it.
  uint32_t rotary(const HeadShape& s) const { return s.head_dim - has.stays; }
  double at(uint32_t row, uint32_t i) const {
    const float sum = static_cast<float>(qkv.at(row, i)) + bias[i];
    return double{sum};
  }
};

// With its sums' errors: of all elements, and of fp32 over all of a block.
void MultiplyByHadamard(std::vector<Near>* head) {
  const std::vector<Near> x = *head;
  const size_t size = quant::HadamardSize(static_cast<uint32_t>(x.size()));
  const double factor = 1 / std::sqrt(static_cast<double>(size));
  for (size_t d = 0; d < x.size(); ++d) {
    Near sum = {0, 0};
    for (size_t i = d / size * size; i < (d / size + 1) * size; ++i) {
      sum.value += __builtin_parityll(i & d & (size - 1)) != 0 ? -x[i].value : x[i].value;
      sum.allowed += x[i].allowed + std::abs(x[i].value) * 0x1p-21;
    }
    (*head)[d] = {sum.value * factor, sum.allowed * factor};
  }
}

// A head of q or k, normed and turned; the error is that of fp32, of both elements of a pair.
std::vector<Near> TurnedHead(const HeadShape& s, const PrepareData& data, uint32_t row,
                             uint32_t head) {
  const uint32_t hd = s.head_dim, half = data.rotary(s) / 2;
  const std::vector<float>& w = head < s.heads() ? data.q_norm : data.k_norm;
  double squares = 0;
  for (uint32_t d = 0; d < hd; ++d) squares += std::pow(data.at(row, head * hd + d), 2);
  const double factor = data.has.norms ? 1 / std::sqrt(squares / hd + kEpsilon) : 1;
  std::vector<Near> out(hd);
  for (uint32_t d = 0; d < half; ++d) {
    const double wa = data.has.norms ? w[d] : 1, wb = data.has.norms ? w[d + half] : 1;
    const double a = data.at(row, head * hd + d) * factor * wa;
    const double b = data.at(row, head * hd + d + half) * factor * wb;
    const size_t angle = size_t{s.positions[row]} * half + d;
    const double c = data.cosine[angle], t = data.sine[angle];
    const double allowed = (std::abs(a) + std::abs(b)) * 0x1p-20;
    out[d] = {a * c - b * t, allowed};
    out[d + half] = {b * c + a * t, allowed};
  }
  for (uint32_t d = 2 * half; d < hd; ++d) {
    const double x = data.at(row, head * hd + d) * factor * (data.has.norms ? w[d] : 1);
    out[d] = {x, std::abs(x) * 0x1p-20};
  }
  if (quant::InfoOf(s.format).turns || data.has.near_turned) MultiplyByHadamard(&out);
  return out;
}

// Four bits: every block is as near to what was wanted as with the best scale of all.
std::string CheckBlocks(const Cache& got, bool value, uint32_t page, uint32_t head, uint32_t token,
                        const std::vector<Near>& want) {
  for (uint32_t block = 0; block < want.size(); block += 32) {
    double error = 0, slack = 0, least = std::numeric_limits<double>::infinity();
    for (uint32_t d = block; d < block + 32; ++d) {
      error += std::pow(got.Get(value, page, head, token, d) - want[d].value, 2);
      slack += std::pow(want[d].allowed * 2, 2);
    }
    for (int code = 0; code <= quant::kE5m3Largest; ++code) {
      const double scale = double{quant::FloatFromE5m3(static_cast<uint8_t>(code))};
      double sum = 0;
      for (uint32_t d = block; d < block + 32; ++d) {
        double nearest = want[d].value * want[d].value;
        for (const double point : {0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) {
          nearest = std::min(nearest, std::pow(std::abs(want[d].value) - point * scale, 2));
        }
        sum += nearest;
      }
      least = std::min(least, sum);
    }
    if (!(std::sqrt(error) <= std::sqrt(least) * (1 + 1e-5) + 2 * std::sqrt(slack))) {
      return absl::StrCat("head ", head, ", block ", block / 32, " is off by ", std::sqrt(error),
                          ", the best scale's is ", std::sqrt(least));
    }
  }
  return "";
}

// What the new tokens of the cache must be; all other bytes as before.
Expectation CacheCheck(const HeadShape& s, const StepPlan& step, const Cache& before,
                       std::vector<std::vector<std::vector<Near>>> want) {  // [row][k, v heads]
  return {"kv", [=](absl::Span<const uint8_t> bytes) -> std::string {
            Cache got = before;
            got.bytes.assign(bytes.begin(), bytes.end());
            Cache rest = got;
            for (uint32_t row = 0; row < s.count(); ++row) {
              const uint32_t page = step.rows[row].pages[s.positions[row] / kPageTokens];
              const uint32_t token = s.positions[row] % kPageTokens;
              for (uint32_t h = 0; h < 2 * s.kv_heads; ++h) {
                const bool value = h >= s.kv_heads;
                const uint32_t head = h % s.kv_heads;
                const std::vector<Near>& head_want = want[row][h];
                double largest = 0;
                for (const Near& near : head_want) {
                  largest = std::max(largest, std::abs(near.value));
                }
                const KvForm form = got.FormOf(value);
                if (form == KvForm::kFp4) {
                  const std::string wrong = CheckBlocks(got, value, page, head, token, head_want);
                  if (!wrong.empty()) return absl::StrCat("row ", row, value ? " v" : " k", ": ", wrong);
                  rest.CopyToken(before, value, page, head, token);
                  continue;
                }
                // fp8 below its smallest normal number: steps of 2^-9 of the multiplier.
                const double step_size = form == KvForm::kFp8 ? largest / 448 * 0x1p-10 : 0;
                for (uint32_t d = 0; d < head_want.size(); ++d) {
                  const double x = got.Get(value, page, head, token, d);
                  const double off = std::abs(x - head_want[d].value);
                  const double allowed = head_want[d].allowed * 2 + 1.01 * step_size +
                                         LossOf(form) * std::abs(head_want[d].value);
                  if (!(off <= allowed)) {
                    return absl::StrCat("row ", row, value ? " v" : " k", " head ", head, " [", d,
                                        "] is ", x, ", expected ", head_want[d].value, " +- ",
                                        allowed);
                  }
                }
                // What is too small to have one has 1.
                const double multiplier = largest > 0x1p-117 ? largest / 448 : 1;
                if (form == KvForm::kFp8 && !(std::abs(got.ScaleOf(value, page, head, token) -
                                                             multiplier) <= multiplier * 1e-5)) {
                  return absl::StrCat("row ", row, value ? " v" : " k", " multiplier of head ",
                                      head, " is ", got.ScaleOf(value, page, head, token),
                                      ", expected ", multiplier);
                }
                rest.CopyToken(before, value, page, head, token);
              }
            }
            return rest.bytes == before.bytes ? "" : "other tokens have changed";
          }};
}

Case PrepareCase(const HeadShape& s, const PrepareParts& has = {}) {
  Random random(s.head_dim + s.count());
  StepPlan step = StepOf(s);
  const uint32_t pages = DealPages(random, &step);
  const StepPlan behind = step;
  PutTablesBehind(&step);
  const uint32_t hd = s.head_dim, vd = s.value_dim(), all = s.heads() + 2 * s.kv_heads, first_value = s.heads() + s.kv_heads;
  const uint32_t width = first_value * hd + s.kv_heads * vd;
  const uint32_t table = *std::max_element(s.positions.begin(), s.positions.end()) + 1;
  PrepareData data;
  data.has = has;
  data.qkv = RandomInputs(random, s.count(), width, 3);
  data.bias.resize(data.qkv.stride);
  for (uint32_t i = 0; has.bias && i < width; ++i) {
    data.bias[i] = static_cast<float>(random.Uniform() - 0.5);
  }
  // A value head of zeros, and one too small for a multiplier.
  for (uint32_t d = width - vd; d < width; ++d) {
    data.qkv.values[d] = 0;
    if (s.count() > 1) data.qkv.values[data.qkv.stride + d] = 1e-37f;
  }
  for (uint32_t d = 0; d < hd; ++d) {
    data.q_norm.push_back(static_cast<float>(0.5 + random.Uniform()));
    data.k_norm.push_back(static_cast<float>(0.5 + random.Uniform()));
  }
  const uint32_t rotary = data.rotary(s);
  for (uint32_t i = 0; i < table * rotary / 2; ++i) {
    const double angle = 7 * random.Uniform();
    data.cosine.push_back(static_cast<float>(std::cos(angle)));
    data.sine.push_back(static_cast<float>(std::sin(angle)));
  }
  const float value_scale = has.bias ? 0.5f : 1.0f;
  const Cache before = s.CacheOf(pages);
  Wanted qkv(s.count(), data.qkv.stride);
  std::vector<std::vector<std::vector<Near>>> kv(s.count());
  for (uint32_t row = 0; row < s.count(); ++row) {
    for (uint32_t i = 0; i < data.qkv.stride; ++i) qkv.Set(row, i, data.qkv.at(row, i), 0);
    for (uint32_t head = 0; head < all; ++head) {
      std::vector<Near> turned;
      if (head < first_value) {
        turned = TurnedHead(s, data, row, head);
      } else {
        for (uint32_t d = 0; d < vd; ++d) {
          // Denormals may be flushed anywhere.
          const uint32_t at = first_value * hd + (head - first_value) * vd + d;
          turned.push_back({data.at(row, at) * double{value_scale}, 1e-36});
        }
      }
      for (uint32_t d = 0; !has.near && head < s.heads() && d < hd; ++d) {
        qkv.Set(row, head * hd + d, turned[d].value, turned[d].allowed);
      }
      if (head >= s.heads()) kv[row].push_back(std::move(turned));
    }
  }
  Case out;
  const std::string kernel = absl::StrCat("prepare_", has.near ? "near" : NameOf(s.format), has.near_turned ? "_turned" : "", "_", s.Dims());
  out.name = absl::StrCat("prepare_", has.near ? "near_" : "", has.near_turned ? "turned_" : "", s.Text(), has.bias ? " bias" : "",
                          has.norms ? "" : " no norms",
                          has.stays == 0 ? "" : absl::StrCat(" rotary ", rotary));
  out.bound = "2^-20 of |a| + |b| of a pair; in the cache half a unit of the format on top";
  out.buffers = {{"step", step.Block()},
                 {"qkv", ToBytes(data.qkv.values)},
                 {"q_norm", ToBytes(data.q_norm)},
                 {"k_norm", ToBytes(data.k_norm)},
                 {"cosine", ToBytes(data.cosine)},
                 {"sine", ToBytes(data.sine)},
                 {"bias", ToBytes(data.bias)},
                 {"kv", before.bytes}};
  const uint32_t stride = data.qkv.stride, rows = s.count();
  // Of several rows what comes in lies apart: sums of workgroups that shared k, here four halves of
  // each element, and the factor of a norm is missing, here a half.
  const bool apart = rows > 1;
  std::vector<float> halves;
  for (uint32_t i = 0; i < 4; ++i) {
    for (const float x : data.qkv.values) halves.push_back(x / 2);
  }
  if (apart) out.buffers.push_back({"in", ToBytes(halves)});
  if (apart) out.buffers.push_back({"squares", ToBytes(std::vector<float>(rows, 4.0f))});
  out.steps = {{MakeLaunch<PrepareArgs>(kernel, 2, [=](PrepareArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.qkv = at.Of<float>("qkv");
    args.in = at.Of<const float>(apart ? "in" : "qkv");
    if (apart) {
      args.splits = 4;
      args.split_rows = rows;
      args.norm.squares = at.Of<const float>("squares");
      args.norm.chunks = 1;
      args.norm.inverse_hidden = 1;
    }
    if (has.norms) {
      args.q_norm = at.Of<const float>("q_norm");
      args.k_norm = at.Of<const float>("k_norm");
    }
    args.cosine = at.Of<const float>("cosine");
    args.sine = at.Of<const float>("sine");
    if (has.bias) args.bias = at.Of<const float>("bias");
    args.kv = at.Of<uint8_t>("kv");
    args.stride = stride;
    args.heads = s.heads();
    args.kv_heads = s.kv_heads;
    args.tables_at = kTablesAt;
    args.rotary = rotary;
    args.epsilon = kEpsilon;
    args.value_scale = value_scale;
  })}};
  out.expectations = {qkv.Check("qkv"), CacheCheck(s, behind, before, std::move(kv))};
  return out;
}

// ---- attend ----

// `first_row`, `row_count`: the launch's share of the step.
Case AttendCase(const HeadShape& s, uint32_t first_row, uint32_t row_count,
                const AttendParts& has = {}) {
  const bool gated = has.gated;
  Random random(s.head_dim + s.count() * 3 + s.group);
  AttendData data = {StepOf(s), RandomInputs(random, s.count(), s.heads() * s.head_dim),
                     s.CacheOf(0), has.window, {}};
  for (uint32_t head = 0; has.sinks && head < s.heads(); ++head) {
    data.sinks.push_back(static_cast<float>(3 * random.Normal()));
  }
  const uint32_t pages = DealPages(random, &data.step);
  data.kv = s.CacheOf(pages);
  for (uint32_t row = 0; row < s.count(); ++row) {
    const uint32_t first = FirstSeen(s.positions[row], has.window);
    for (uint32_t token = first; token <= s.positions[row]; ++token) {
      for (uint32_t head = 0; head < s.kv_heads; ++head) {
        data.kv.Fill(random, data.step.rows[row].pages[token / kPageTokens], head,
                     token % kPageTokens);
      }
    }
  }
  const uint32_t hd = s.head_dim, vd = s.value_dim(), out_stride = RoundUp(s.heads() * vd, kPadColumns);
  const uint32_t max_splits =
      std::min(*std::max_element(s.positions.begin(), s.positions.end()) / kSplitTokens + 2,
               has.is_long ? kLongSplits : MostSplits(has.window));
  const Inputs gate = RandomInputs(random, s.count(), s.heads() * vd, 3);
  Wanted want(s.count(), out_stride);
  for (uint32_t row = first_row; row < std::min(s.count(), first_row + row_count); ++row) {
    for (uint32_t head = 0; head < s.heads(); ++head) {
      const std::vector<Near> near = AttendHead(s, data, row, head);
      for (uint32_t d = 0; d < vd; ++d) {
        const uint32_t at = head * vd + d;
        const double by = gated ? 1 / (1 + std::exp(-gate.at(row, at))) : 1;
        const double off = gated ? std::abs(near[d].value) * 0x1p-20 : 0;
        want.Set(row, at, near[d].value * by, (near[d].allowed + off) * by);
      }
    }
  }
  // Pages behind the window are no more; those of another cache never were.
  for (uint32_t row = 0; row < s.count(); ++row) {
    const uint32_t gone = FirstSeen(s.positions[row], has.window) / kPageTokens;
    std::fill_n(data.step.rows[row].pages.begin(), gone, kNoPage);
  }
  PutTablesBehind(&data.step);
  Case out;
  const std::string kernel = has.is_long ? "attend_long_" : "attend_";
  out.name = absl::StrCat(kernel, s.Text(), ", rows ", first_row, " + ", row_count,
                          gated ? ", gated" : "", has.sinks ? ", sinks" : "",
                          has.window == 0 ? "" : absl::StrCat(", window ", has.window), has.wide ? ", merged wide" : "");
  out.bound =
      "(2 e + 2^-15) of the sum of |p v|, e = (2^-15.9 + hd * 2^-23) of the sum of |q k| + 2^-22 "
      "of "
      "the score: two bf16 of queries and weights, fp32 sums";
  out.buffers = {
      {"step", data.step.Block()},
      {"qkv", ToBytes(data.qkv.values)},
      {"kv", data.kv.bytes},
      want.ToFill("out"),
      {"gate", ToBytes(gate.values)},
      {"sinks", ToBytes(has.sinks ? data.sinks : std::vector<float>(1))},
      {"parts", Bytes(size_t{row_count} * s.heads() * max_splits * AttendPartFloats(vd) * 4, 0xff)}};
  const uint32_t q_stride = data.qkv.stride;
  const AttendCall call = {q_stride,  out_stride, s.heads(), s.kv_heads, hd, max_splits, row_count, has.window,
                           gated, has.sinks};
  const auto attend = [=](AttendArgs& args, const Addresses& at) {
    call.Fill(&args, at);
    args.first_row = first_row;
    args.tables_at = kTablesAt;
  };
  const auto merge = [=](AttendMergeArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.parts = at.Of<const float>("parts");
    args.out = at.Of<float>("out");
    args.out_stride = out_stride;
    args.heads = s.heads();
    args.max_splits = max_splits;
    args.head_dim = vd;
    args.first_row = first_row;
    args.row_count = row_count;
    if (gated) args.gate = at.Of<const float>("gate");
    args.gate_stride = out_stride;
    if (has.sinks) args.sinks = at.Of<const float>("sinks");
    args.window = has.window;
  };
  const std::string attends = absl::StrCat(kernel, NameOf(s.format), "_", s.Dims());
  const auto attend_once = [=](AttendOnceArgs& args, const Addresses& at) { attend(args.attend, at); };
  const auto attend_long = [=](AttendLongArgs& args, const Addresses& at) { attend(args.attend, at); };
  out.steps = {
      {has.is_long ? MakeLaunch<AttendLongArgs>(attends, 64, attend_long)
                   : MakeLaunch<AttendOnceArgs>(attends, 3, attend_once)},
      {MakeLaunch<AttendMergeArgs>(MergeKernel(has.is_long, has.wide), 2, merge)}};
  out.expectations = {want.CheckSplit("out")};
  return out;
}

// Heads of which registers and the LDS of one workgroup do not hold all at once; a quarter of one turns.
void AddWideCases(KvFormat format, std::vector<Case>* cases) {
  for (const uint32_t wide : {192u, 256u}) {
    cases->push_back(PrepareCase({format, wide, 1, 2, {0, 17}}));
    cases->push_back(PrepareCase({format, wide, 2, 1, {3, 16}}, {true, true, wide / 4 * 3}));
    cases->push_back(AttendCase({format, wide, 2, 1, {0, 14, 31, 32}}, 0, 4));
    cases->push_back(AttendCase({format, wide, 1, 8, {15, 300}}, 0, 2, {.gated = true}));
  }
}

// Heads of 96: a lane's elements lie across blocks of 32, and a token's multipliers across words.
void AddOddCases(KvFormat format, std::vector<Case>* cases) {
  cases->push_back(PrepareCase({format, 96, 2, 3, {0, 15, 16, 33, 512}}));
  cases->push_back(PrepareCase({format, 96, 1, 1, {5}}, {true, false}));
  cases->push_back(PrepareCase({format, 96, 2, 2, {3, 17}}, {true, true, 64}));
  cases->push_back(AttendCase({format, 96, 2, 5, {0, 14, 15, 16, 31, 32, 47, 130}}, 0, 8));
  cases->push_back(AttendCase({format, 96, 1, 2, {511, 512, 1030}}, 0, 4, {.gated = true, .sinks = true}));
}

// V smaller than K.
void AddUnequalCases(KvFormat format, std::vector<Case>* cases) {
  cases->push_back(PrepareCase({format, 192, 2, 3, {0, 15, 16, 33, 512}, 128}));
  cases->push_back(PrepareCase({format, 192, 1, 2, {3, 17}, 128}, {true, true, 128}));
  cases->push_back(PrepareCase({format, 192, 2, 1, {5}, 128}, {true, false, 128}));
  cases->push_back(AttendCase({format, 192, 2, 5, {0, 14, 15, 16, 31, 32, 47, 130}, 128}, 0, 8));
  cases->push_back(AttendCase({format, 192, 1, 16, {511, 300}, 128}, 0, 2, {.gated = true, .sinks = true}));
  cases->push_back(AttendCase({format, 192, 2, 2, {0, 5, 128, 143, 300}, 128}, 0, 5, {.window = 128, .sinks = true}));
  cases->push_back(AttendCase({format, 192, 2, 2, {0, 14, 30, 31, 32, 47, 300}, 128}, 0, 8, {.is_long = true, .wide = true}));
}

// Rows of one split, of several, of splits of two and three blocks; ends in a wave's first and last group, in a
// page, at its end.
void AddLongCases(std::vector<Case>* cases) {
  constexpr uint32_t kLong = kSplitTokens * kLongSplits;  // the first position whose splits are longer
  static_assert(LongSplitBlocks(kLong - 1) == 1 && LongSplitBlocks(kLong) == 2 && LongSplits(kLong) == kLongSplits / 2 + 1);
  static_assert(LongSplits(kLong - 1) == kLongSplits && LongSplits(2 * kLong - 1) == kLongSplits);
  for (KvFormat format : kFormats) {
    for (const uint32_t hd : kHeadDims) {
      cases->push_back(AttendCase({format, hd, 1, 2, {0, 14, 30, 31, 32, 47, 300}}, 0, 8, {.is_long = true}));
    }
  }
  // So many tokens in doubles take seconds; `mainarch attn-decode` is run on as many by the command's test.
  if (std::getenv("MAINARCH_TEST_FULL") == nullptr) return;
  for (KvFormat format : kFormats) {
    cases->push_back(AttendCase({format, 32, 1, 3, {kLong + 130, 70, kLong - 1}}, 0, 3, {.is_long = true}));
  }
  cases->push_back(AttendCase({KvFormat::kFp4, 128, 1, 2, {kLong + 500}}, 0, 1, {.is_long = true}));
  cases->push_back(AttendCase({KvFormat::kFp4, 192, 1, 2, {kLong + 500}, 128}, 0, 1, {.is_long = true}));
  cases->push_back(AttendCase({KvFormat::kBF16, 192, 1, 2, {kLong + 31}}, 0, 1, {.is_long = true}));
  cases->push_back(AttendCase({KvFormat::kBF16, 64, 1, 16, {kLong}}, 0, 1, {.gated = true, .is_long = true}));
  cases->push_back(AttendCase({KvFormat::kF32, 256, 1, 1, {kLong + 15}}, 0, 1, {.sinks = true, .is_long = true}));
  cases->push_back(AttendCase({KvFormat::kFp8, 32, 2, 1, {2 * kLong + 46, 2 * kLong + 80}}, 1, 1, {.is_long = true}));
  cases->push_back(AttendCase({KvFormat::kFp8, 64, 2, 2, {kLong + 30, 31, 700}}, 0, 3, {.sinks = true, .is_long = true, .wide = true}));
  cases->push_back(AttendCase({KvFormat::kFp4, 128, 1, 3, {32, 1500}}, 1, 1, {.gated = true, .is_long = true, .wide = true}));
}

// Anything with anything, drawn: types, head sizes, groups, windows, sinks, gates; rows of one token and of a hundred
// thousand beside each other, as far as doubles take a second.
void AddDrawnCases(std::vector<Case>* cases) {
  if (std::getenv("MAINARCH_TEST_FULL") == nullptr) return;
  Random random(17);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random.Next() % n); };
  for (uint32_t i = 0; i < 80; ++i) {
    HeadShape s = {kFormats[i % 5], kHeadDims[below(std::size(kHeadDims))], 1 + below(2), 1 + below(16), {}};
    AttendParts has = {.gated = below(2) == 0, .sinks = below(2) == 0};
    if (s.head_dim == 192 && below(2) == 0) s.own_value_dim = 128;
    double room = 2e7 / (s.heads() * s.head_dim);  // tokens of all rows
    while (s.count() < 8) {
      const double most = std::min(room, 1e5);
      const auto position = static_cast<uint32_t>(std::exp(random.Uniform() * std::log(most)));
      s.positions.push_back(position);
      room -= position;
    }
    has.is_long = *std::max_element(s.positions.begin(), s.positions.end()) >= kSplitTokens * kLongSplits || below(2) == 0;
    if (!has.is_long && below(2) == 0) has.window = 1 + below(3000);
    cases->push_back(AttendCase(s, below(2), 8, has));
  }
}

}  // namespace

void AttendCall::Fill(AttendArgs* args, const Addresses& at) const {
  args->step = at.Of<const uint32_t>("step");
  args->qkv = at.Of<const float>("qkv");
  args->kv = at.Of<const uint8_t>("kv");
  args->out = at.Of<float>("out");
  args->parts = at.Of<float>("parts");
  args->q_stride = q_stride;
  args->out_stride = out_stride;
  args->heads = heads;
  args->page_heads = kv_heads;
  args->kv_heads = kv_heads * QueryParts(heads / kv_heads);
  args->group = heads / args->kv_heads;
  args->max_splits = max_splits;
  args->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  args->row_count = row_count;
  if (gated) args->gate = at.Of<const float>("gate");
  args->gate_stride = out_stride;
  if (sinks) args->sinks = at.Of<const float>("sinks");
  args->window = window;
}

std::vector<Case> DecoderAttentionCases() {
  std::vector<Case> cases;
  constexpr uint32_t kGroups[] = {1, 2, 5, 16};
  uint32_t turn = 0;
  for (KvFormat format : kFormats) {
    for (uint32_t hd : {32u, 64u, 128u}) {
      cases.push_back(PrepareCase({format, hd, 2, 3, {0, 15, 16, 33, 511, 512}}));
      cases.push_back(PrepareCase({format, hd, 1, 1, {5}}));
      // What Qwen2 and Llama have.
      cases.push_back(PrepareCase({format, hd, 2, 2, {3, 17}}, {true, false}));
      cases.push_back(PrepareCase({format, hd, 2, 2, {3, 17}}, {false, false}));
      cases.push_back(PrepareCase({format, hd, 2, 2, {3, 17}}, {true, true}));
      // Borders of pages and of groups of 32; each group size with each format.
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t group = kGroups[turn++ % 4];
        cases.push_back(
            AttendCase({format, hd, 1 + group % 2, group, {0, 14, 15, 16, 31, 32, 47, 130}}, 0, 8));
      }
      // One split filled, two and three.
      cases.push_back(AttendCase({format, hd, 1, hd == 32 ? 2u : 5u, {511, 512, 1030}}, 0, 4));
    }
  }
  for (KvFormat format : kFormats) {
    AddWideCases(format, &cases);
    AddOddCases(format, &cases);
    AddUnequalCases(format, &cases);
  }
  for (const bool turned : {false, true}) {
    for (const uint32_t hd : kHeadDims) {
      cases.push_back(PrepareCase({KvFormat::kFp8, hd, 2, 3, {0, 15, 16, 33}}, {.near = true, .near_turned = turned}));
    }
    cases.push_back(PrepareCase({KvFormat::kFp8, 192, 2, 3, {0, 15, 16, 33}, 128}, {.near = true, .near_turned = turned}));
    cases.push_back(PrepareCase({KvFormat::kFp8, 64, 1, 2, {3, 17}}, {true, false, 24, true, turned}));
  }
  AddLongCases(&cases);
  AddDrawnCases(&cases);
  // Windows that begin in a page, at one, at a group of 32, at a split; of one token; longer than there
  // are tokens. Sinks of rows with one split and of others.
  for (KvFormat format : kFormats) {
    cases.push_back(AttendCase({format, 64, 2, 3, {0, 5, 40, 127, 128, 143, 300}}, 0, 7, {.window = 17}));
  }
  cases.push_back(AttendCase({KvFormat::kBF16, 32, 1, 2, {0, 15, 16, 31, 128, 390}}, 0, 6, {.window = 1}));
  cases.push_back(AttendCase({KvFormat::kF32, 128, 1, 4, {127, 128, 255, 300, 400}}, 0, 5,
                             {.window = 128, .sinks = true}));
  cases.push_back(AttendCase({KvFormat::kFp8, 64, 1, 8, {3, 130, 500}}, 0, 3, {.window = 160, .sinks = true}));
  cases.push_back(AttendCase({KvFormat::kBF16, 64, 2, 8, {3, 200, 530}}, 0, 3, {.sinks = true}));
  cases.push_back(AttendCase({KvFormat::kBF16, 256, 1, 2, {3, 200, 600}}, 0, 3, {.window = 300}));
  cases.push_back(AttendCase({KvFormat::kBF16, 64, 1, 2, {3, 200}}, 0, 2, {.window = 4096}));
  // Parts of heads that turn: pairs of one lane, and of two; and none at all.
  cases.push_back(PrepareCase({KvFormat::kBF16, 32, 1, 1, {3, 17}}, {false, true, 24}));
  cases.push_back(PrepareCase({KvFormat::kFp8, 128, 1, 2, {3, 17}}, {false, true, 32}));
  cases.push_back(PrepareCase({KvFormat::kFp4, 64, 1, 2, {3, 17}}, {false, false, 48}));
  cases.push_back(PrepareCase({KvFormat::kFp8, 256, 1, 1, {3, 17}}, {false, true, 46}));
  cases.push_back(PrepareCase({KvFormat::kF32, 64, 1, 2, {3, 17}}, {false, true, 64}));
  cases.push_back(AttendCase({KvFormat::kFp8, 64, 1, 2, {3, 130}}, 0, 2, {.gated = true}));
  // More query heads than a workgroup has: two tens, three sixteens, a prime number of ones.
  cases.push_back(AttendCase({KvFormat::kBF16, 64, 2, 20, {3, 200}}, 0, 2, {.gated = true, .sinks = true}));
  cases.push_back(AttendCase({KvFormat::kFp8, 32, 1, 48, {3, 130}}, 0, 2, {.window = 100}));
  cases.push_back(AttendCase({KvFormat::kFp4, 96, 2, 17, {140, 20}}, 0, 2, {.is_long = true}));
  // A launch's share of the step's rows; one beyond them.
  cases.push_back(AttendCase({KvFormat::kBF16, 64, 1, 2, {3, 530, 40, 513, 20}}, 1, 3));
  cases.push_back(AttendCase({KvFormat::kBF16, 64, 1, 2, {3, 40}}, 2, 2));
  return cases;
}

}  // namespace mainarch::kernels_test
