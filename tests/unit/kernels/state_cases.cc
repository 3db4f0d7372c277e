// SPDX-License-Identifier: MIT
//
// What carries recurrent state: gated_delta and its norm, and inputs of a draft that a state carries
// on. The delta net's reference is the paper's recurrence with S as a matrix of values by keys,
// S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, o_t = S_t q_t (Yang et al., 2024,
// equation 10), in double. The kernel runs the same rows several times, cut here and there, alone and
// beside other sequences, its columns shared or not: every way gives the same bits.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_join.h"
#include "kernels/quant/bf16.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

// How a run takes the rows: the last row of each step, further rows whose states are kept.
struct DeltaRun {
  uint32_t columns = 0;  // of a workgroup; 0: as many as may be
  std::vector<uint32_t> ends;
  std::vector<uint32_t> kept;
};
struct DeltaSpec {
  uint32_t key_heads, value_heads, key_dim, value_dim, taps;
  uint32_t rows;       // of the first sequence; of each further one fewer
  uint32_t sequences;
  bool from_state;     // the first sequence begins with one
  std::vector<DeltaRun> runs;

  uint32_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  uint32_t width() const { return value_heads * value_dim; }
  uint32_t state_floats() const { return width() * key_dim; }
  uint32_t slot_floats() const { return RoundUp(state_floats() + (taps - 1) * channels(), 4); }
  uint32_t rows_of(uint32_t sequence) const { return rows - sequence; }
};

// A sequence in double: row by row, S of each head, and the rows behind it.
class DeltaReference {
 public:
  struct Weights {
    std::vector<float> conv, decay, dt_bias, norm;
  };
  using Values = std::vector<double>;

  DeltaReference(const DeltaSpec& spec, const Weights& weights)
      : s_(spec),
        w_(weights),
        states_(spec.state_floats()),
        tail_((spec.taps - 1) * spec.channels()) {}

  // A slot's contents.
  void Begin(const std::vector<float>& slot) {
    for (size_t i = 0; i < states_.size(); ++i) states_[i] = slot[PlaceOf(i)];
    std::copy_n(slot.begin() + s_.state_floats(), tail_.size(), tail_.begin());
  }
  Values Slot() const {
    Values out(s_.slot_floats());
    for (size_t i = 0; i < states_.size(); ++i) out[PlaceOf(i)] = states_[i];
    std::copy(tail_.begin(), tail_.end(), out.begin() + s_.state_floats());
    return out;
  }
  // Of one row: out, and of how much errors of o may be off.
  Values Row(const float* in, const float* gates, Values* scale) {
    Values x = tail_;
    x.insert(x.end(), in, in + s_.channels());
    Values c(s_.channels());
    for (uint32_t channel = 0; channel < c.size(); ++channel) {
      double sum = 0;
      for (uint32_t tap = 0; tap < s_.taps; ++tap) {
        sum += double{w_.conv[channel * s_.taps + tap]} * x[tap * s_.channels() + channel];
      }
      c[channel] = sum / (1 + std::exp(-sum));
    }
    tail_.assign(x.begin() + s_.channels(), x.end());
    Values out;
    for (uint32_t head = 0; head < s_.value_heads; ++head) {
      Head(head, c, gates, in + s_.channels() + head * s_.value_dim, &out, scale);
    }
    return out;
  }

 private:
  // Where [head][value][key] lies.
  size_t PlaceOf(size_t i) const {
    const size_t key = i % s_.key_dim, value = i / s_.key_dim % s_.value_dim;
    const size_t head = i / s_.key_dim / s_.value_dim;
    return (head * s_.value_dim + value / 16 * 16) * s_.key_dim + key / 16 * 256 +
           key % 16 / 4 * 64 +
           value % 16 * 4 + key % 4;
  }
  Values Normalised(const Values& c, size_t at) const {
    Values out(c.begin() + at, c.begin() + at + s_.key_dim);
    const double squares = std::inner_product(out.begin(), out.end(), out.begin(), 1e-6);
    for (double& x : out) x /= std::sqrt(squares);
    return out;
  }
  void Head(uint32_t head, const Values& c, const float* gates, const float* z, Values* out,
            Values* scale) {
    const size_t n = s_.key_dim, m = s_.value_dim;
    const size_t key_head = head / (s_.value_heads / s_.key_heads);
    Values q = Normalised(c, key_head * n);
    const Values k = Normalised(c, (s_.key_heads + key_head) * n);
    for (double& x : q) x /= std::sqrt(static_cast<double>(n));
    const double beta = 1 / (1 + std::exp(-double{gates[head]}));
    const double a = double{gates[s_.value_heads + head]} + w_.dt_bias[head];
    const double alpha = std::exp(-std::exp(double{w_.decay[head]}) * std::log1p(std::exp(a)));
    Values o(m);
    double squares = 0;
    for (size_t j = 0; j < m; ++j) {
      double* const s = &states_[(head * m + j) * n];
      const double v = c[2 * s_.key_heads * n + head * m + j];
      const double held = std::inner_product(k.begin(), k.end(), s, 0.0);
      for (size_t i = 0; i < n; ++i) s[i] = alpha * (s[i] - beta * held * k[i]) + beta * v * k[i];
      o[j] = std::inner_product(q.begin(), q.end(), s, 0.0);
      squares += o[j] * o[j];
    }
    const double root = std::sqrt(squares / static_cast<double>(m) + 1e-6);
    for (size_t j = 0; j < m; ++j) {
      const double by = w_.norm[j] * (z[j] / (1 + std::exp(-double{z[j]}))) / root;
      out->push_back(o[j] * by);
      scale->push_back(std::abs(by));
    }
  }

  const DeltaSpec& s_;
  const Weights& w_;
  Values states_;  // [value_heads][value_dim][key_dim]
  Values tail_;    // [taps - 1][channels]
};

// A slot, or an out row, and what is to be in it: of a sequence after so many rows.
struct Place {
  uint32_t at, sequence, rows;
};

// Everything that a case is made of.
struct DeltaData {
  DeltaSpec spec;
  DeltaReference::Weights weights;
  std::vector<Inputs> in, gates;  // of each sequence
  std::vector<float> first_slot;
  std::vector<Place> slots, outs;
  uint32_t slot_count = 1, out_rows = 0;
  std::vector<std::vector<DeltaReference::Values>> states, values, scales;  // [sequence][rows]
};

void MakeReference(DeltaData* data) {
  const DeltaSpec& spec = data->spec;
  for (uint32_t s = 0; s < spec.sequences; ++s) {
    DeltaReference reference(spec, data->weights);
    if (s == 0 && spec.from_state) reference.Begin(data->first_slot);
    auto& states = data->states.emplace_back();
    auto& values = data->values.emplace_back();
    auto& scales = data->scales.emplace_back();
    for (uint32_t row = 0; row < spec.rows_of(s); ++row) {
      DeltaReference::Values scale;
      values.push_back(reference.Row(&data->in[s].values[size_t{row} * data->in[s].stride],
                                     &data->gates[s].values[size_t{row} * data->gates[s].stride],
                                     &scale));
      scales.push_back(std::move(scale));
      states.push_back(reference.Slot());
    }
  }
}

DeltaData MakeData(const DeltaSpec& spec) {
  Random random(spec.rows * 131 + spec.key_dim + spec.value_dim);
  DeltaData data;
  data.spec = spec;
  data.weights = {random.Floats(spec.channels() * spec.taps, 0.6),
                  random.Floats(spec.value_heads, 0.7),
                  random.Floats(spec.value_heads, 1), random.Floats(spec.value_dim, 0.2)};
  for (float& x : data.weights.norm) x += 1;
  for (uint32_t s = 0; s < spec.sequences; ++s) {
    data.in.push_back(RandomInputs(random, spec.rows_of(s), spec.channels() + spec.width()));
    data.gates.push_back(RandomInputs(random, spec.rows_of(s), 2 * spec.value_heads, 2));
  }
  data.first_slot = random.Floats(spec.slot_floats(), 0.3);
  MakeReference(&data);
  return data;
}

// One step of a run: of each sequence that has them rows [begin, end). `slots`: of each sequence the
// one with its state, which moves on.
void AddStep(uint32_t run, uint32_t begin, uint32_t end, std::vector<uint32_t>* slots,
             DeltaData* data, Case* out) {
  const DeltaSpec& spec = data->spec;
  const std::vector<uint32_t>& kept = spec.runs[run].kept;
  StepPlan plan;
  StepPlan::States none, states;  // the kernel's list is the second one
  std::vector<float> in, gates;
  const auto add = [](const Inputs& from, uint32_t row, std::vector<float>* to) {
    to->insert(to->end(), from.values.begin() + size_t{row} * from.stride,
               from.values.begin() + size_t{row + 1} * from.stride);
  };
  const uint32_t first_out = data->out_rows;
  for (uint32_t s = 0; s < spec.sequences; ++s) {
    const uint32_t last = std::min(end, spec.rows_of(s));
    if (begin >= last) continue;
    plan.sequences.push_back({plan.count(), last - begin});
    for (uint32_t row = begin; row < last; ++row) {
      plan.rows.emplace_back();
      add(data->in[s], row, &in);
      add(data->gates[s], row, &gates);
      data->outs.push_back({data->out_rows++, s, row});
      states.in.push_back(row == begin ? (*slots)[s] : 77777u);
      const bool keeps = row + 1 == last || std::count(kept.begin(), kept.end(), row) > 0;
      states.out.push_back(keeps ? data->slot_count : kNoSlot);
      if (!keeps) continue;
      (*slots)[s] = data->slot_count;
      data->slots.push_back({data->slot_count++, s, row});
    }
  }
  none.in.resize(plan.count(), 0);
  none.out.resize(plan.count(), 0);
  plan.states = {none, states};
  const std::string name = absl::StrCat(run, ".", begin);
  out->buffers.push_back({"step" + name, plan.Block()});
  out->buffers.push_back({"in" + name, ToBytes(in)});
  out->buffers.push_back({"gates" + name, ToBytes(gates)});
  const uint32_t in_stride = data->in[0].stride, gates_stride = data->gates[0].stride;
  const uint32_t columns =
      spec.runs[run].columns != 0 ? spec.runs[run].columns : DeltaColumns(spec.key_dim);
  const auto fill = [=](DeltaArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step" + name);
    args.in = at.Of<const float>("in" + name);
    args.gates = at.Of<const float>("gates" + name);
    args.in_stride = in_stride;
    args.gates_stride = gates_stride;
    args.out_stride = RoundUp(spec.width(), kPadColumns);
    args.out = at.Of<float>("out", uint64_t{first_out} * args.out_stride * 4);
    if (columns < spec.value_dim) args.plain = at.Of<float>("plain");
    args.slots = at.Of<uint8_t>("slots");
    args.slot_bytes = uint64_t{spec.slot_floats()} * 4;
    args.conv = at.Of<const float>("conv");
    args.decay = at.Of<const float>("decay");
    args.dt_bias = at.Of<const float>("dt_bias");
    args.norm = at.Of<const float>("norm");
    args.key_heads = spec.key_heads;
    args.value_heads = spec.value_heads;
    args.key_dim = spec.key_dim;
    args.value_dim = spec.value_dim;
    args.taps = spec.taps;
    args.columns = columns;
    args.states = 1;
    args.epsilon = 1e-6f;
  };
  // An odd number of workgroups takes what it takes.
  out->steps.push_back({MakeLaunch<DeltaArgs>(
      spec.key_dim > 128 ? "gated_delta_wide" : "gated_delta", 3, fill)});
  if (columns < spec.value_dim) {
    out->steps.push_back({MakeLaunch<DeltaArgs>("gated_delta_norm", 2, fill)});
  }
}

std::string Different(const Place& a, const Place& b) {
  return absl::StrCat("the bits of sequence ", a.sequence, " after row ", a.rows, " are others in ",
                      b.at, " than in ", a.at);
}
// Whatever is of the same row must have the same bits.
Expectation SameBits(const std::string& buffer, std::vector<Place> places, size_t stride) {
  return {buffer, [=](absl::Span<const uint8_t> bytes) -> std::string {
            for (const Place& place : places) {
              const Place& first = *std::find_if(places.begin(), places.end(), [&](const Place& p) {
                return p.sequence == place.sequence && p.rows == place.rows;
              });
              if (std::memcmp(&bytes[place.at * stride], &bytes[first.at * stride], stride) != 0) {
                return Different(first, place);
              }
            }
            return "";
          }};
}

// S grows with v, which is of size 1, and so do its errors, which fade with it; o is a sum of
// |q| = 1 / sqrt(key_dim) times columns of S, and is divided by its root mean square.
constexpr double kStateOff = 0x1p-19, kOutOff = 0x1p-20;

void ExpectStates(const DeltaData& data, Case* out) {
  const uint32_t floats = data.spec.slot_floats();
  const uint32_t tail = data.spec.taps - 1;
  const size_t used = data.spec.state_floats() + size_t{tail} * data.spec.channels();
  Wanted want(data.slot_count, floats);
  std::vector<float> initial = FromBytes<float>(want.ToFill("slots").initial);
  std::copy(data.first_slot.begin(), data.first_slot.end(), initial.begin());
  for (uint32_t i = 0; i < floats; ++i) want.Set(0, i, data.first_slot[i], 0);
  for (const Place& place : data.slots) {
    const DeltaReference::Values& slot = data.states[place.sequence][place.rows];
    for (size_t i = 0; i < used; ++i) {
      want.Set(place.at, i, slot[i], i < data.spec.state_floats() ? kStateOff : 0);
    }
  }
  out->buffers.push_back({"slots", ToBytes(initial)});
  out->expectations.push_back(want.Check("slots"));
  out->expectations.push_back(SameBits("slots", data.slots, size_t{floats} * 4));
}

Case DeltaCase(const DeltaSpec& spec) {
  DeltaData data = MakeData(spec);
  Case out;
  std::vector<std::string> cuts;
  for (const DeltaRun& run : spec.runs) cuts.push_back(absl::StrJoin(run.ends, ","));
  out.name = absl::StrCat("gated_delta ", spec.key_heads, " and ", spec.value_heads, " heads of ",
                          spec.key_dim, " and ", spec.value_dim, ", ", spec.taps, " taps, ",
                          spec.sequences, " sequences of ", spec.rows, " rows, cut ",
                          absl::StrJoin(cuts, "; "));
  out.bound = "S 2^-19, of values of size 1; o 2^-20, then divided by its root mean square; 2^-16 of "
              "two bf16; ways to cut alike to the bit";
  for (uint32_t run = 0; run < spec.runs.size(); ++run) {
    std::vector<uint32_t> slots(spec.sequences, kNoSlot);
    if (spec.from_state) slots[0] = 0;
    uint32_t begin = 0;
    for (const uint32_t end : spec.runs[run].ends) {
      AddStep(run, begin, end, &slots, &data, &out);
      begin = end;
    }
  }
  const uint32_t stride = RoundUp(spec.width(), kPadColumns);
  ExpectStates(data, &out);
  Wanted want(data.out_rows, stride);
  for (const Place& place : data.outs) {
    for (uint32_t i = 0; i < spec.width(); ++i) {
      want.Set(place.at, i, data.values[place.sequence][place.rows][i],
               kOutOff * data.scales[place.sequence][place.rows][i]);
    }
  }
  out.buffers.push_back(want.ToFill("out"));
  out.buffers.push_back({"plain", Bytes(size_t{spec.rows} * spec.sequences * stride * 4)});
  out.buffers.push_back({"conv", ToBytes(data.weights.conv)});
  out.buffers.push_back({"decay", ToBytes(data.weights.decay)});
  out.buffers.push_back({"dt_bias", ToBytes(data.weights.dt_bias)});
  out.buffers.push_back({"norm", ToBytes(data.weights.norm)});
  out.expectations.push_back(want.CheckSplit("out"));
  out.expectations.push_back(SameBits("out", data.outs, size_t{stride} * 4));
  return out;
}

// Rows of a draft: some of the source's tap, some of its own, one carried on by a state, one of a
// sequence that has none. The states of two rows are kept: rows of the tap with the same index.
Case CarriedInputCase(uint32_t hidden) {
  constexpr uint32_t kRows = 6, kTapRows = 9, kFirst = 2, kSlots = 4;
  Random random(hidden);
  const Inputs tap = RandomInputs(random, kTapRows, hidden), own = RandomInputs(random, 5, hidden);
  const std::vector<float> slots = random.Floats(size_t{kSlots} * hidden);
  StepPlan step = StepPlan::Of(kRows);
  step.inputs = {kCarriedInput, 7, kOwnInput | 4, kCarriedInput, 0, kOwnInput | 0};
  step.first_input = kFirst;
  step.states = {{{3, 9, 9, kNoSlot, 9, 9}, {kNoSlot, 0, kNoSlot, kNoSlot, kNoSlot, 2}}};
  step.sequences = {{0, 3}, {3, 3}};
  Wanted want(kRows, tap.stride), kept(kSlots, hidden);
  for (uint32_t i = 0; i < hidden; ++i) {
    const double rows[kRows] = {slots[3 * hidden + i], tap.at(7, i), own.at(4, i), 0, tap.at(0, i),
                                own.at(0, i)};
    for (uint32_t row = 0; row < kRows; ++row) want.Set(row, i, rows[row], 0);
    for (uint32_t slot : {1u, 3u}) kept.Set(slot, i, slots[slot * hidden + i], 0);
    kept.Set(0, i, tap.at(kFirst + 1, i), 0);
    kept.Set(2, i, tap.at(kFirst + 5, i), 0);
  }
  const uint32_t chunks = (hidden + kRowChunk - 1) / kRowChunk, stride = tap.stride;
  Case out;
  out.name = absl::StrCat("input carried on, hidden ", hidden);
  out.bound = "exact";
  out.buffers = {{"step", step.Block()}, {"tap", ToBytes(tap.values)}, {"own", ToBytes(own.values)},
                 {"slots", ToBytes(slots)}, want.ToFill("x"),
                 {"squares", Bytes(kRows * chunks * 4)}};
  out.steps = {{MakeLaunch<InputArgs>("input", 3, [=](InputArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.tap = at.Of<const float>("tap");
    args.own = at.Of<const float>("own");
    args.slots = at.Of<uint8_t>("slots");
    args.slot_bytes = uint64_t{hidden} * 4;
    args.out.x = at.Of<float>("x");
    args.out.squares = at.Of<float>("squares");
    args.hidden = hidden;
    args.stride = stride;
    args.chunks = chunks;
  })}};
  out.expectations = {want.Check("x"), kept.Check("slots")};
  return out;
}

}  // namespace

std::vector<Case> StateCases() {
  return {
      CarriedInputCase(64),
      CarriedInputCase(1160),
      // One row; each head its own key head.
      DeltaCase({1, 1, 16, 16, 2, 1, 1, false, {{0, {1}, {}}}}),
      // Every block's end, and one beyond; rows one by one; states kept within a block.
      DeltaCase({2, 4, 32, 16, 4, 9, 2, true,
                 {{0, {9}, {}},
                  {0, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {}},
                  {0, {7, 9}, {2, 3, 7}},
                  {0, {8, 9}, {}}}}),
      DeltaCase({1, 3, 48, 144, 3, 8, 1, false, {{0, {8}, {}}, {16, {1, 8}, {0, 6}}, {48, {7, 8}, {}}}}),
      DeltaCase({1, 2, 128, 128, 4, 10, 1, true, {{0, {10}, {}}, {64, {3, 10}, {}}}}),
      DeltaCase({1, 1, 144, 256, 8, 5, 1, true, {{0, {5}, {}}, {32, {2, 5}, {}}}}),
      DeltaCase({1, 2, 256, 32, 4, 2, 1, true, {{0, {2}, {}}, {0, {1, 2}, {}}}}),
      DeltaCase({1, 1, 16, 16, 4, 65, 3, true, {{0, {65}, {}}, {0, {1, 64, 65}, {31}}}}),
  };
}

}  // namespace mainarch::kernels_test
