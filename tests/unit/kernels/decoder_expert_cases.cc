// SPDX-License-Identifier: MIT
//
// Routed experts: experts_*, and with the all-reduce behind them experts_reduce_*.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "kernels/experts_args.h"
#include "unit/kernels/decoder_products.h"
#include "unit/kernels/decoder_teller.h"

namespace mainarch::kernels_test {
namespace {

struct ExpertShape {
  TileFormat format;
  uint32_t rows, hidden, width, experts, top;
  bool same;  // all rows choose the same experts
  uint32_t workers;
  Taken taken = Taken::kBoth;
  bool shared = false;  // the last expert is every row's, in the last slot
  uint32_t parts = 1;   // of down's k
  Gate gate = {};
  CodesFrom from = {};
  // Down's, if they are not those of gate and up.
  std::optional<TileFormat> down = {};
  // Not 0: the workgroups choose by logits that are sums of so many numbers.
  uint32_t logit_splits = 0;
  uint32_t index = 0;  // of the step
  bool told = false;   // those numbers come as words with a tag, of a product beside it
};

struct Choice {
  std::vector<uint32_t> ids;  // ascending in each row
  std::vector<float> weights;
  std::vector<float> logits;  // [rows, stride], where workgroups choose
  uint32_t stride = 0;
};
// The largest logits of a row, with the softmax of them alone; a shared expert's is a sigmoid.
Choice RoutedChoice(Random& random, const ExpertShape& s) {
  const uint32_t routed = s.experts - s.shared, top = s.top - s.shared;
  Choice out;
  out.stride = RoundUp(s.experts, kPadColumns);
  out.logits.resize(size_t{s.rows} * out.stride, 100.0f);  // it would win if it were looked at
  for (uint32_t row = 0; row < s.rows; ++row) {
    float* own = &out.logits[size_t{row} * out.stride];
    for (uint32_t e = 0; e < s.experts; ++e) own[e] = RoundedToBf16(static_cast<float>(2 * random.Normal()));
    std::vector<uint32_t> order(routed);
    std::iota(order.begin(), order.end(), 0);
    // Of equal ones the first.
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return own[a] > own[b]; });
    std::sort(order.begin(), order.begin() + top);
    double sum = 0;
    for (uint32_t i = 0; i < top; ++i) sum += std::exp(double{own[order[i]]});
    for (uint32_t i = 0; i < top; ++i) {
      out.ids.push_back(order[i]);
      out.weights.push_back(static_cast<float>(std::exp(double{own[order[i]]}) / sum));
    }
    if (!s.shared) continue;
    out.ids.push_back(routed);
    out.weights.push_back(static_cast<float>(1 / (1 + std::exp(-double{own[routed]}))));
  }
  return out;
}
Choice RandomChoice(Random& random, const ExpertShape& s) {
  Choice out;
  for (uint32_t row = 0; row < s.rows; ++row) {
    std::vector<uint32_t> all(s.experts);
    for (uint32_t e = 0; e < s.experts; ++e) all[e] = e;
    const uint32_t routed = s.experts - s.shared, top = s.top - s.shared;
    for (uint32_t i = 0; i < top; ++i) {
      std::swap(all[i], all[i + random.Next() % (routed - i)]);
    }
    std::sort(all.begin(), all.begin() + top);
    if (s.shared) all[top] = routed;
    for (uint32_t i = 0; i < s.top; ++i) {
      out.ids.push_back(s.same && row > 0 ? out.ids[i] : all[i]);
      out.weights.push_back(static_cast<float>(0.1 + random.Uniform()));
    }
  }
  return out;
}

// Experts' matrices of one kind, one after the other as the kernel finds them.
struct ExpertTiles {
  std::vector<TiledWeights> each;
  TiledWeights all;
  uint64_t stride = 0, scale_stride = 0;
};
ExpertTiles RandomExperts(Random& random, TileFormat format, uint32_t experts, uint32_t rows,
                          uint32_t cols, bool gate_up, uint32_t parts, const CodesFrom& from) {
  ExpertTiles out;
  for (uint32_t e = 0; e < experts; ++e) {
    out.each.push_back(RandomTiles(random, format, rows, cols, gate_up, parts, from));
    const TiledWeights& one = out.each.back();
    if (e == 0) out.all = one;
    if (e > 0) out.all.data.insert(out.all.data.end(), one.data.begin(), one.data.end());
    if (e > 0) out.all.scales.insert(out.all.scales.end(), one.scales.begin(), one.scales.end());
  }
  out.stride = out.each[0].data.size();
  out.scale_stride = out.each[0].scales.size();
  return out;
}

// Split rows are zeros behind their width, whatever biases lie behind an expert's own.
Expectation ZerosBehind(const std::string& buffer, uint32_t width, uint32_t stride) {
  return {buffer, [=](absl::Span<const uint8_t> bytes) -> std::string {
            for (size_t row = 0; row < bytes.size() / (stride * 4); ++row) {
              for (uint32_t c = width; c < stride; ++c) {
                uint16_t value;
                std::memcpy(&value, &bytes[row * stride * 4 + SplitPlace(c)], 2);
                if (value != 0) return absl::StrCat("[", row, "][", c, "] is not 0");
              }
            }
            return "";
          }};
}

// What down takes: of fp8 never MXFP8 (Experts::kDownRounded).
Taken DownTaken(const ExpertShape& s) {
  return s.taken == Taken::kScaled && s.format == TileFormat::kFp8 ? Taken::kRounded : s.taken;
}

// A layer's experts, and what they make of its rows.
struct ExpertData {
  ExpertShape s;
  Inputs x;
  NormData norm;
  Choice choice;
  ExpertTiles up, down;
  GateBiases biases;
  std::vector<std::vector<Near>> sums;  // [rows][hidden]
  uint32_t act_stride() const { return RoundUp(s.width, kPadColumns); }
  uint32_t out_stride() const { return RoundUp(s.hidden, kPadColumns); }
};

// Of a row that has chosen `e`.
Row ActOf(const ExpertData& data, const Row& in, uint32_t e) {
  const ExpertShape& s = data.s;
  Row act;
  for (uint32_t i = 0; i < s.width; ++i) {
    const Near near = Activate(s.gate, data.biases, Dot(data.up.each[e], 0, i, in.values, &in.errors, s.taken),
                               Dot(data.up.each[e], 1, i, in.values, &in.errors, s.taken), e, i);
    act.values.push_back(near.value);
    act.errors.push_back(near.allowed);
  }
  return act;
}

ExpertData MakeExperts(const ExpertShape& s) {
  Random random(s.rows * 31 + s.hidden + static_cast<uint32_t>(s.format));
  ExpertData out;
  out.s = s;
  out.x = RandomInputs(random, s.rows, s.hidden);
  out.norm = RandomNorm(random, out.x);
  out.choice = s.logit_splits != 0 ? RoutedChoice(random, s) : RandomChoice(random, s);
  out.up = RandomExperts(random, s.format, s.experts, s.width, s.hidden, true, 1, s.from);
  out.down = RandomExperts(random, s.down.value_or(s.format), s.experts, s.hidden, s.width, false, s.parts,
                           s.down ? CodesFrom{} : s.from);
  out.biases = RandomBiases(random, s.gate, s.experts, s.width);
  // exp in fp32 of up to 15, and a sum.
  const double weight_error = s.logit_splits != 0 ? 4e-6 : 0;
  for (uint32_t row = 0; row < s.rows; ++row) {
    const Row in = InputOf(out.x, out.norm, row);
    std::vector<Near> sums(s.hidden);
    for (uint32_t slot = 0; slot < s.top; ++slot) {
      const uint32_t e = out.choice.ids[row * s.top + slot];
      const double weight = out.choice.weights[row * s.top + slot];
      const Row act = ActOf(out, in, e);
      for (uint32_t o = 0; o < s.hidden; ++o) {
        const Near near = Dot(out.down.each[e], 0, o, act.values, &act.errors, DownTaken(s));
        sums[o].value += weight * near.value;
        sums[o].allowed += weight * (near.allowed + std::abs(near.value) * (0x1p-22 + weight_error));
      }
    }
    out.sums.push_back(std::move(sums));
  }
  out.up.each.clear();
  out.down.each.clear();
  return out;
}

// `joined`: with the all-reduce behind them.
std::string KernelOf(const ExpertShape& s, bool joined) {
  return std::string(joined ? "experts_reduce_" : "experts_") + NameOf(s.format) +
         (s.down ? std::string("_") + NameOf(*s.down) : "") + (s.gate.on ? "_any" : "") + SuffixOf(s.taken);
}
std::string TextOf(const ExpertShape& s) {
  return absl::StrCat(" ", s.rows, " rows, ", s.top, " of ", s.experts, ", hidden ", s.hidden, ", width ", s.width,
                      s.parts > 1 ? absl::StrCat(" in ", s.parts) : "", s.same ? ", all the same" : "",
                      s.shared ? ", one shared" : "", TextOf(s.gate), TextOf(s.from),
                      s.logit_splits != 0 ? absl::StrCat(", chosen by sums of ", s.logit_splits, s.told ? ", told" : "") : "");
}

// The second launch of three. `left`: in each copy each workgroup's tag; what is told behind them is not looked at.
constexpr uint32_t kTurn = 1, kTurns = 3;
struct Arrivals {
  Bytes before, left;
  explicit Arrivals(const ExpertShape& s) : before(kArrivalBytes, kUntouchedByte), left(kApartAt * 4, kUntouchedByte) {
    const uint32_t tag = LaunchTag(s.index, kTurn, kTurns);
    for (uint32_t copy = 0; copy < ArrivalCopies(s.workers); ++copy) {
      for (uint32_t w = 0; w < s.workers; ++w) std::memcpy(&left[(size_t{copy} * kMostArrivals + w) * 4], &tag, 4);
    }
  }
};

Expectation ArrivalsLeft(const std::string& buffer, const ExpertShape& s) {
  return {buffer, [want = Arrivals(s).left](absl::Span<const uint8_t> got) -> std::string {
            return std::equal(want.begin(), want.end(), got.begin()) ? "" : "not every workgroup arrived, or others did";
          }};
}

// [splits, stride] of the rows.
std::vector<float> LogitSums(const ExpertData& data) {
  std::vector<float> out;
  for (uint32_t i = 0; i < data.s.logit_splits; ++i) {
    // Sums of halves, quarters and eighths are exact; and so is the norm's factor, a half.
    for (const float logit : data.choice.logits) out.push_back(logit / static_cast<float>(data.s.logit_splits) * 2);
  }
  return out;
}
constexpr ToldWords kTold = {{}, kTurn, kTurns};

// A rank's buffers, whose names end in its number; of a rank alone in nothing.
void AddExperts(const ExpertData& data, const std::string& rank, uint32_t device, std::vector<Buffer>* buffers) {
  const ExpertShape& s = data.s;
  StepPlan plan = StepPlan::Of(s.rows);
  plan.index = s.index;
  const std::vector<float> logits = LogitSums(data);
  // Not chosen experts are never read: what they hold is not looked at. Activations beyond the
  // width are zeros, as the backend leaves them.
  std::vector<Buffer> own = {{"step" + rank, plan.Block()},
                             {"in" + rank, SplitRows(data.x, data.norm.w)},
                             {"ids" + rank, ToBytes(data.choice.ids)},
                             {"weights" + rank, ToBytes(data.choice.weights)},
                             {"act" + rank, Bytes(size_t{s.rows} * s.top * data.act_stride() * 4)},
                             {"arrivals" + rank, Arrivals(s).before},
                             {"logits" + rank, ToBytes(logits)},
                             {"logit_squares" + rank, ToBytes(std::vector<float>(s.rows, 4.0f))}};
  data.up.all.AddBuffers("up" + rank, &own);
  data.down.all.AddBuffers("down" + rank, &own);
  for (Buffer& buffer : own) {
    buffer.device = device;
    buffers->push_back(std::move(buffer));
  }
}

// What experts are told, but for where their sums go.
ExpertsAnyArgs ExpertsAt(const ExpertData& data, const std::string& rank, const Addresses& at) {
  const ExpertShape& s = data.s;
  ExpertsAnyArgs any;
  ExpertsArgs& args = any.experts;
  args.step = at.Of<const uint32_t>("step" + rank);
  args.x = at.Of<const float>("in" + rank);
  args.ids = at.Of<const uint32_t>("ids" + rank);
  args.weights = at.Of<const float>("weights" + rank);
  args.act = at.Of<float>("act" + rank);
  args.arrivals = at.Of<uint32_t>("arrivals" + rank);
  args.gate_up = data.up.all.At("up" + rank, at);
  args.down = data.down.all.At("down" + rank, at);
  args.gate_up_stride = data.up.stride;
  args.gate_up_scale_stride = data.up.scale_stride;
  args.down_stride = data.down.stride;
  args.down_scale_stride = data.down.scale_stride;
  args.norm = NormAt(data.norm, data.x.width, at);
  args.x_stride = data.x.stride;
  args.act_stride = data.act_stride();
  args.out_stride = data.out_stride();
  args.top = s.top;
  args.experts = s.experts;
  args.most_rows = s.rows;
  args.turn = kTurn;
  args.turns = kTurns;
  if (s.gate.on) any.gating = GatingAt(s.gate, s.width, at);
  if (s.logit_splits == 0) return any;
  RouteArgs& route = args.route;
  args.ids = {};  // nobody has written them
  args.weights = {};
  route.router.logits = at.Of<const float>("logits" + rank);
  route.router.experts = s.experts - s.shared;
  route.router.top = s.top - s.shared;
  route.router.renormalise = 1;
  route.stride = data.choice.stride;
  route.shared = s.shared;
  route.splits = s.logit_splits;
  route.split_rows = s.rows;
  route.norm.squares = at.Of<const float>("logit_squares" + rank);
  route.norm.chunks = 1;
  route.norm.inverse_hidden = 1;
  if (s.told) {
    route.step = args.step;
    route.told = kTold;
    route.told.words = at.Of<uint64_t>("told" + rank);
    route.router.logits = {};
  }
  return any;
}

// The product that tells experts their logits, beside them.
void AddTeller(const ExpertData& data, const std::string& rank, uint32_t device, Case* to) {
  if (!data.s.told) return;
  const Teller teller(LogitSums(data), data.s.logit_splits);
  teller.AddBuffers(rank, device, kTold, data.s.index, &to->buffers);
  to->steps[0].push_back(teller.Launch(rank, device, "step" + rank, kTold));
}

Case ExpertCase(const ExpertShape& s) {
  const auto data = std::make_shared<const ExpertData>(MakeExperts(s));
  Wanted want(s.rows + 1, data->out_stride());
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t o = 0; o < RoundUp(s.hidden, kTileRows); ++o) {
      const Near near = o < s.hidden ? data->sums[row][o] : Near{};
      want.Set(row, o, near.value, near.allowed);
    }
  }
  Case out;
  const std::string kernel = KernelOf(s, false);
  out.name = kernel + TextOf(s);
  out.bound = BoundOf(s.taken);
  out.isas = IsasOf(s.taken);
  out.buffers = {want.ToFill("out")};
  AddExperts(*data, "", 0, &out.buffers);
  AddNorm(data->norm, &out.buffers);
  AddBiases(data->biases, &out.buffers);
  const auto fill = [=](ExpertsAnyArgs& any, const Addresses& at) {
    any = ExpertsAt(*data, "", at);
    any.experts.out = at.Of<float>("out");
  };
  out.steps.emplace_back();
  AddTeller(*data, "", 0, &out);
  if (s.gate.on) {
    out.steps[0].push_back(MakeLaunch<ExpertsAnyArgs>(kernel, s.workers, fill));
  } else {
    out.steps[0].push_back(MakeLaunch<ExpertsArgs>(kernel, s.workers, [=](ExpertsArgs& args, const Addresses& at) {
      ExpertsAnyArgs any;
      fill(any, at);
      args = any.experts;
    }));
  }
  out.expectations = {want.Check("out"), ZerosBehind("act", s.width, data->act_stride()),
                      ArrivalsLeft("arrivals", s)};
  return out;
}

// Who chose which expert, of `rows` of the shape's.
std::vector<uint32_t> ListsOf(const ExpertData& data, uint32_t rows) {
  const ExpertShape& s = data.s;
  std::vector<uint32_t> out, pairs;
  for (uint32_t e = 0; e < s.experts; ++e) {
    for (uint32_t i = 0; i < rows * s.top; ++i) {
      if (i % (kExpertRows * s.top) == 0) out.push_back(static_cast<uint32_t>(pairs.size()));
      if (data.choice.ids[i] == e) pairs.push_back(ExpertPair(i / s.top, i % s.top));
    }
    while (out.size() < (e + 1) * (ExpertBlocks(s.rows) + 1)) out.push_back(static_cast<uint32_t>(pairs.size()));
  }
  out.insert(out.end(), pairs.begin(), pairs.end());
  return out;
}

// Gate and up of grouped rows, and down behind them: to the bit what the one launch of any rows makes.
Case ExpertsTallCase(const ExpertShape& s) {
  const auto data = std::make_shared<const ExpertData>(MakeExperts(s));
  const std::string rounds = SuffixOf(s.taken);
  const Bytes untouched(size_t{s.rows} * data->out_stride() * 4, kUntouchedByte);
  const std::vector<uint32_t> lists = ListsOf(*data, s.rows);
  Case out;
  out.name = absl::StrCat("experts_tall_", s.gate.on ? "any_" : "", NameOf(s.format), rounds, TextOf(s));
  out.bound = "the bits of the kernel for any number of rows";
  out.isas = IsasOf(s.taken);
  AddExperts(*data, "", 0, &out.buffers);
  AddNorm(data->norm, &out.buffers);
  AddBiases(data->biases, &out.buffers);
  out.buffers.push_back({"out any", untouched});
  out.buffers.push_back({"out", untouched});
  out.buffers.push_back({"act tall", Bytes(size_t{s.rows} * s.top * data->act_stride() * 4)});
  out.buffers.push_back({"arrivals tall", Arrivals(s).before});
  out.buffers.push_back({"lists", Bytes(lists.size() * 4, kUntouchedByte)});
  const uint32_t steps = s.hidden / kStepColumns;
  const bool scaled = s.taken == Taken::kScaled;
  if (scaled) out.buffers.push_back({"scaled", Bytes(ScaledBytes(s.rows, steps), kUntouchedByte)});
  const auto experts = [=] {
    const auto fill = [=](ExpertsAnyArgs& any, const Addresses& at) {
      any = ExpertsAt(*data, "", at);
      any.experts.out = at.Of<float>("out any");
    };
    if (s.gate.on) return MakeLaunch<ExpertsAnyArgs>(KernelOf(s, false), s.workers, fill);
    return MakeLaunch<ExpertsArgs>(KernelOf(s, false), s.workers, [=](ExpertsArgs& args, const Addresses& at) {
      ExpertsAnyArgs any;
      fill(any, at);
      args = any.experts;
    });
  };
  out.steps = {{experts()},
               {MakeLaunch<ExpertsGroupArgs>("experts_group", 2,
                                             [=](ExpertsGroupArgs& args, const Addresses& at) {
                                               args.step = at.Of<const uint32_t>("step");
                                               args.ids = at.Of<const uint32_t>("ids");
                                               args.lists = at.Of<uint32_t>("lists");
                                               args.experts = s.experts;
                                               args.top = s.top;
                                               args.most_rows = s.rows;
                                             })},
               {MakeLaunch<ExpertsTallArgs>(absl::StrCat("experts_tall_", s.gate.on ? "any_" : "", NameOf(s.format), rounds), 5,
                                            [=](ExpertsTallArgs& args, const Addresses& at) {
                                              const ExpertsAnyArgs any = ExpertsAt(*data, "", at);
                                              MatmulArgs& product = args.any.product;
                                              product.step = any.experts.step;
                                              product.x = any.experts.x;
                                              product.out = at.Of<float>("act tall");
                                              product.w = any.experts.gate_up;
                                              product.norm = any.experts.norm;
                                              product.x_stride = any.experts.x_stride;
                                              product.out_stride = any.experts.act_stride;
                                              product.rows = s.rows;
                                              if (scaled) TakeScaled("scaled", steps, at, &product);
                                              args.any.gating = any.gating;
                                              args.lists = at.Of<const uint32_t>("lists");
                                              args.stride = any.experts.gate_up_stride;
                                              args.scale_stride = any.experts.gate_up_scale_stride;
                                              args.experts = s.experts;
                                              args.top = s.top;
                                            })},
               {MakeLaunch<ExpertsTallDownArgs>(absl::StrCat("experts_tall_down_", NameOf(s.down.value_or(s.format)), SuffixOf(DownTaken(s))), s.workers,
                                                [=](ExpertsTallDownArgs& args, const Addresses& at) {
                                                  args.experts = ExpertsAt(*data, "", at).experts;
                                                  args.experts.act = at.Of<float>("act tall");
                                                  args.experts.arrivals = at.Of<uint32_t>("arrivals tall");
                                                  args.experts.out = at.Of<float>("out");
                                                  args.lists = at.Of<const uint32_t>("lists");
                                                })}};
  out.steps[0][0].aids = true;
  if (scaled) {
    out.steps.insert(out.steps.begin() + 1, {TakenRowsLaunch("in", data->x, steps, "scaled")});
    out.steps[1][0].aids = true;
  }
  out.expectations = Same("act", "act tall", true);  // first, for the other is made of it
  for (Expectation& one : Same("out any", "out", true)) out.expectations.push_back(std::move(one));
  out.expectations.push_back(Exactly("lists", ToBytes(lists)));
  out.expectations.push_back(Exactly("arrivals tall", Arrivals(s).before));
  return out;
}

// `ranks` GPUs have the same experts, whose sums are so many times added to x.
Case ExpertsReduceCase(const ExpertShape& s, uint32_t ranks) {
  const auto data = std::make_shared<const ExpertData>(MakeExperts(s));
  const SumShape sum = {s.rows, s.hidden, ranks};
  Random random(s.hidden + ranks);
  const std::vector<float> before = random.Floats(size_t{s.rows} * sum.stride());
  const Wanted want = WantedSum(sum, before, data->sums);
  Case out;
  const std::string kernel = KernelOf(s, true);
  out.name = absl::StrCat(kernel, TextOf(s), ", ", s.workers, " workgroups, ", ranks, " ranks");
  out.bound = BoundOf(s.taken);
  out.isas = IsasOf(s.taken);
  AddNorm(data->norm, &out.buffers);
  AddBiases(data->biases, &out.buffers);
  out.steps.emplace_back();
  for (uint32_t r = 0; r < ranks; ++r) {
    const std::string rank = absl::StrCat(r);
    AddExperts(*data, rank, r, &out.buffers);
    AddSum(sum, before, r, &out.buffers);
    // Of launches before, which nobody is to take for this one's.
    out.buffers.push_back({OfRank("words", r), StaleWords(ToldWordCount(1, sum.stride()), LaunchTag(s.index - 1, 2, 5)), r});
    AddTeller(*data, rank, r, &out);
    out.steps[0].push_back(MakeLaunch<ExpertsReduceArgs>(
        kernel, s.workers,
        [=](ExpertsReduceArgs& args, const Addresses& at) {
          args.any = ExpertsAt(*data, rank, at);
          args.reduce = SumAt(sum, r, at);
          args.told = {at.Of<uint64_t>(OfRank("words", r)), 2, 5};
        },
        r));
    out.expectations.push_back(want.Check(OfRank("x", r)));
    out.expectations.push_back(ArrivalsLeft(OfRank("arrivals", r), s));
  }
  return out;
}

}  // namespace

std::vector<Case> DecoderExpertCases() {
  // Logits as a product beside the launch tells them.
  const auto told_by = [](ExpertShape s, uint32_t splits) {
    s.logit_splits = splits;
    s.told = true;
    return s;
  };

  std::vector<Case> cases;
  for (TileFormat format : kTileFormats) {
    const bool mx = InThirtyTwos(format);
    const uint32_t hidden = mx ? 160 : 168, width = mx ? 32 : 40;
    cases.push_back(ExpertCase({format, 1, hidden, width, 6, 2, false, 3}));
    cases.push_back(ExpertCase(told_by({format, 1, hidden, width, 6, 2, false, 3}, 4)));
    cases.push_back(ExpertCase(told_by({format, 1, hidden, width, 6, 3, false, 3, Taken::kBoth, false, 1, kClamped}, 2)));
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 2, true, 2}));
    cases.push_back(ExpertCase({format, 17, hidden, width, 6, 3, false, 4}));
    cases.push_back(ExpertCase({format, 5, 64, 288, 4, 2, false, 3, Taken::kBoth, false, 8}));
    cases.push_back(ExpertCase({format, 2, 64, 224, 4, 2, false, 3, Taken::kBoth, false, 4}));
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, Taken::kBoth, false, 1, kClamped}));
    cases.push_back(ExpertCase({format, 17, hidden, width, 6, 2, false, 2, Taken::kBoth, false, 1, kGelu}));
    if (!MayRound(format)) continue;
    for (const Taken taken : RoundingsOf(format)) {
      cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, taken, true}));
      cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, taken, false, 1, kClamped}));
      cases.push_back(ExpertCase(told_by({format, 1, hidden, width, 6, 3, false, 3, taken, true}, 1)));
      cases.push_back(ExpertCase(told_by({format, 1, hidden, width, 6, 3, false, 3, taken, false, 1, kClamped}, 8)));
    }
    // Widths of a large model's shares: tiles and a half, and three quarters of one.
    cases.push_back(ExpertCase({format, 2, 64, 192, 4, 2, false, 3}));
    cases.push_back(ExpertCase({format, 2, 192, 96, 4, 2, false, 3}));
  }
  for (const auto& [tile, from] : kCoded) {
    if (from.below.has_value()) continue;
    cases.push_back(ExpertCase({tile, 3, 256, 512, 4, 2, false, 3, Taken::kBoth, false, 2, {}, from}));
  }
  for (const Gate& gate : {Gate{}, kClamped}) {
    const auto nibble = TileFormat::kNibble, byte = TileFormat::kByte;
    cases.push_back(ExpertCase({nibble, 9, 160, 224, 5, 2, false, 3, Taken::kBoth, false, 8, gate, {}, byte}));
    cases.push_back(ExpertCase({byte, 5, 160, 288, 5, 2, false, 3, Taken::kBoth, false, 4, gate, {}, nibble}));
  }
  cases.push_back(ExpertCase({TileFormat::kBf16, 3, 64, 16, 40, 16, false, 3}));
  // Few tiles of many experts, which waves share: one leaf of four, and two parts of one;
  // and workgroups that have nothing of down.
  for (const auto& [rows, parts] : std::vector<std::pair<uint32_t, uint32_t>>{{4, 1}, {4, 2}, {12, 1}}) {
    cases.push_back(ExpertCase({TileFormat::kMxfp4, rows, 64, 128 * parts, 48, 10, false, 6, Taken::kBoth, true, parts}));
  }
  for (const auto& [rows, parts] : std::vector<std::pair<uint32_t, uint32_t>>{{4, 1}, {12, 2}}) {
    cases.push_back(ExpertCase({TileFormat::kMxfp4, rows, 64, 96 * parts, 48, 10, false, 6, Taken::kScaled, true, parts}));
  }
  cases.push_back(ExpertCase({TileFormat::kMxfp4, 17, 288, 544, 6, 3, false, 4, Taken::kScaled, false, 1}));
  // Leaves of gate and up of one block of 128 columns and of three; down's of any.
  cases.push_back(ExpertCase({TileFormat::kFp8, 5, 512, 40, 6, 3, false, 3, Taken::kScaled, true}));
  cases.push_back(ExpertCase({TileFormat::kFp8, 17, 1536, 96, 6, 3, false, 4, Taken::kScaled, false, 2}));
  cases.push_back(ExpertCase({TileFormat::kFp8, 5, 512, 40, 6, 3, false, 3, Taken::kScaled, false, 1, kClamped}));
  cases.push_back(ExpertCase(told_by({TileFormat::kFp8, 1, 1024, 40, 6, 3, false, 3, Taken::kScaled, true}, 1)));
  // Chosen by every workgroup for itself.
  for (TileFormat format : kTileFormats) {
    ExpertShape s = {format, 3, InThirtyTwos(format) ? 160u : 168u, 32, 12, 4, false, 5, Taken::kBoth, true};
    s.logit_splits = 8;
    s.index = 1;
    cases.push_back(ExpertCase(s));
    s.rows = 4;
    s.experts = 140;
    s.shared = false;
    s.logit_splits = 1;
    s.gate = kClamped;
    cases.push_back(ExpertCase(s));
  }
  // More rows than waves choose in.
  for (TileFormat format : {TileFormat::kBf16, TileFormat::kFp8, TileFormat::kMxfp4}) {
    ExpertShape s = {format, 8, InThirtyTwos(format) ? 160u : 168u, 32, 24, 5, false, 5, Taken::kBoth, true};
    s.logit_splits = 2;
    cases.push_back(ExpertCase(s));
    s = {format, 7, 544, 32, 12, 3, false, 9};
    s.logit_splits = 4;
    cases.push_back(ExpertsReduceCase(s, 2));
  }
  // Units whose first tiles are asked for with the last ones of the unit before: leaves of two batches, of four, of these and
  // others behind, of these and a step; of few rows, of more than that, and of several blocks.
  for (const uint32_t rows : {1u, 7u, 12u, 17u}) {
    for (const uint32_t hidden : {2048u, 2336u, 4128u}) {
      if (hidden > 2336 && rows > 7) continue;
      cases.push_back(ExpertCase({TileFormat::kFp8, rows, hidden, 40, 6, 3, false, 3}));
    }
    cases.push_back(ExpertCase({TileFormat::kFp8, rows, 2080, 40, 6, 3, false, 3, Taken::kRounded, true, 1, kClamped}));
    cases.push_back(ExpertCase({TileFormat::kFp8, rows, 4096, 40, 6, 3, false, 3, Taken::kScaled}));
  }
  for (const uint32_t hidden : {2048u, 2336u}) {
    cases.push_back(ExpertsReduceCase(told_by({TileFormat::kBf16, 1, hidden, 40, 5, 2, false, 3}, 1), 1));
    cases.push_back(ExpertsReduceCase({TileFormat::kFp8, 5, hidden, 40, 5, 2, false, 3}, 1));
  }
  // Half as many units as workgroups, or fewer: gate and up by two of them, of one row and of rows that choose the same, of leaves of less
  // than two batches and of more.
  for (TileFormat format : kTileFormats) {
    const uint32_t width = InThirtyTwos(format) ? 32 : 40;
    for (const Taken taken : TakensOf(format)) {
      for (const uint32_t hidden : {544u, 2336u}) {
        if (hidden % 128 != 0 && taken == Taken::kScaled) continue;
        cases.push_back(ExpertsReduceCase(told_by({format, 1, hidden, width, 5, 2, false, 16, taken}, 1), 1));
      }
      cases.push_back(ExpertsReduceCase({format, 3, 2048, width, 5, 2, true, 14, taken}, 2));
      cases.push_back(ExpertsReduceCase({format, 4, 1024, width, 5, 2, true, 16, taken, false, 1, HasCodes(format) ? Gate{} : kClamped}, 1));
    }
  }
  // Down's tiles of so many experts that they are asked for by batches: some batches, an odd number, of leaves of one tile and of two.
  for (TileFormat format : {TileFormat::kBf16, TileFormat::kFp8}) {
    for (const Taken taken : {Taken::kBoth, Taken::kRounded}) {
      cases.push_back(ExpertCase({format, 8, 64, 384, 40, 6, false, 3, taken}));
      cases.push_back(ExpertCase({format, 14, 64, 288, 24, 6, false, 3, taken, true, 2}));
      cases.push_back(ExpertsReduceCase({format, 6, 528, 200, 12, 3, false, 7, taken}, 1));
    }
  }
  // With the all-reduce behind them: two chunks and a part, ranks, workgroups with many tiles; and with none, below. The
  // node has room for 16 workgroups that wait for each other.
  for (TileFormat format : kTileFormats) {
    const uint32_t few = InThirtyTwos(format) ? 32 : 40;
    ExpertShape s = {format, 1, 1056, few, 5, 2, false, 5};
    cases.push_back(ExpertsReduceCase(told_by(s, 4), 1));
    s.rows = 4;
    s.hidden = 544;
    s.workers = 16;
    s.logit_splits = 2;
    s.index = 1;
    cases.push_back(ExpertsReduceCase(s, 2));
    s.workers = 7;
    s.gate = kClamped;
    if (!HasCodes(format)) cases.push_back(ExpertsReduceCase(s, 1));
    s.rows = 1;
    if (!HasCodes(format)) cases.push_back(ExpertsReduceCase(told_by(s, 2), 1));
    for (const Taken taken : RoundingsOf(format)) {
      ExpertShape own = s;
      own.taken = taken;
      cases.push_back(ExpertsReduceCase(told_by(own, 8), 1));
      own.gate = {};
      cases.push_back(ExpertsReduceCase(told_by(own, 1), 1));
      own.rows = 4;
      cases.push_back(ExpertsReduceCase(own, 2));
    }
  }
  for (const uint32_t rows : {1u, 4u}) {
    ExpertShape s = {TileFormat::kFp8, rows, 512, 40, 5, 2, false, 7, Taken::kScaled};
    cases.push_back(ExpertsReduceCase(s, 2));
    s.gate = kClamped;
    cases.push_back(ExpertsReduceCase(told_by(s, 2), 1));
  }
  for (const auto& [up, down] : {std::pair{TileFormat::kNibble, TileFormat::kByte}, {TileFormat::kByte, TileFormat::kNibble}}) {
    cases.push_back(ExpertsReduceCase({up, 3, 160, 224, 5, 2, false, 3, Taken::kBoth, false, 8, {}, {}, down}, 1));
    cases.push_back(ExpertsReduceCase(told_by({up, 1, 160, 224, 5, 2, false, 3, Taken::kBoth, false, 8, {}, {}, down}, 2), 1));
  }
  // Down's tiles of a large model's shares, which are asked for before the wait: two a wave and one, of 8 experts; one
  // of more than 8; more than are asked for; and fewer.
  cases.push_back(ExpertsReduceCase({TileFormat::kBf16, 1, 528, 192, 10, 8, false, 16}, 2));
  cases.push_back(ExpertsReduceCase({TileFormat::kBf16, 2, 544, 128, 24, 6, false, 9}, 1));
  cases.push_back(ExpertsReduceCase({TileFormat::kBf16, 4, 528, 200, 10, 8, false, 16}, 1));
  cases.push_back(ExpertsReduceCase({TileFormat::kBf16, 1, 1056, 160, 9, 3, false, 7, Taken::kRounded}, 1));
  // Told logits of several ranks; a shared expert's, and of a second step.
  ExpertShape told = told_by({TileFormat::kBf16, 1, 528, 192, 10, 8, false, 12}, 8);
  cases.push_back(ExpertsReduceCase(told, 2));
  told = told_by({TileFormat::kByte, 1, 528, 192, 10, 8, false, 16, Taken::kBoth, true}, 1);
  told.index = 1;
  cases.push_back(ExpertsReduceCase(told, 1));
  // Few tiles of many experts, which waves share.
  cases.push_back(ExpertsReduceCase({TileFormat::kBf16, 2, 80, 96, 12, 6, false, 8, Taken::kBoth, true}, 4));
  cases.push_back(ExpertsReduceCase({TileFormat::kMxfp4, 3, 544, 128, 12, 6, false, 12, Taken::kBoth, true}, 2));
  // Many rows, grouped by expert: more of one than a workgroup has, none of some, a part of k, a shared one.
  for (TileFormat format : kTallFormats) {
    for (const Taken taken : TakensOfBlocks(format)) {
      const uint32_t width = InThirtyTwos(format) ? 64 : 40;
      cases.push_back(ExpertsTallCase({format, 37, 512, width, 6, 2, false, 3, taken}));
      cases.push_back(ExpertsTallCase({format, 100, 512, 32, 9, 3, true, 4, taken, true, 1, kClamped}));
      cases.push_back(ExpertsTallCase({format, 34, 512, 288, 4, 2, false, 9, taken, false, 8}));
      if (taken == Taken::kScaled || HasCodes(format)) continue;
      // Leaves that are not of blocks.
      cases.push_back(ExpertsTallCase({format, 100, 448, width, 3, 2, true, 5, taken, false, 1, kClamped}));
      cases.push_back(ExpertsTallCase({format, 37, 1216, 32, 6, 2, false, 3, taken}));
    }
  }
  cases.push_back(ExpertsTallCase({TileFormat::kBf16, 33, 1024, 192, 5, 2, false, 11, Taken::kBoth, false, 8}));
  // Down of other codes than gate and up; codes of every kind in one of both.
  for (const auto& [up, down] : {std::pair{TileFormat::kNibble, TileFormat::kByte}, {TileFormat::kByte, TileFormat::kNibble}}) {
    cases.push_back(ExpertsTallCase({up, 35, 512, 160, 5, 2, false, 3, Taken::kBoth, false, 8, {}, {}, down}));
  }
  for (const auto& [tile, from] : kCoded) {
    if (from.below.has_value()) continue;
    cases.push_back(ExpertsTallCase({tile, 34, 512, 256, 3, 2, false, 5, Taken::kBoth, false, 1, {}, from}));
  }
  // A shared expert after as many as a router chooses from.
  cases.push_back(ExpertCase({TileFormat::kBf16, 17, 32, 16, 513, 11, false, 4, Taken::kBoth, true}));
  return cases;
}

}  // namespace mainarch::kernels_test
