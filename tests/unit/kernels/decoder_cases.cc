// SPDX-License-Identifier: MIT
//
// The decoder's small kernels: step_begin, embed, tap, input, sum_slots and reduce.
#include "unit/kernels/decoder_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "kernels/quant/bf16.h"

namespace mainarch::kernels_test {

using namespace kernels;

double Untouched() {
  float value;
  const uint8_t bytes[4] = {kUntouchedByte, kUntouchedByte, kUntouchedByte, kUntouchedByte};
  std::memcpy(&value, bytes, 4);
  return value;
}

uint32_t RoundUp(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }

StepPlan StepPlan::Of(uint32_t rows) {
  StepPlan out;
  out.rows.resize(rows);
  return out;
}

Bytes StepPlan::Block() const {
  std::vector<uint32_t> pages;
  std::vector<kernels::StepRow> table;
  StepHeader header;
  header.rows = count();
  header.logit_rows = static_cast<uint32_t>(logit_rows.size());
  header.index = index;
  header.rows_at = sizeof(StepHeader) / 4;
  header.logit_rows_at = header.rows_at + 4 * count();
  header.inputs_at = header.logit_rows_at + header.logit_rows;
  std::vector<uint32_t> more = inputs;
  if (!inputs.empty()) more.push_back(first_input);
  header.sequences_at = header.inputs_at + static_cast<uint32_t>(more.size());
  more.push_back(static_cast<uint32_t>(sequences.size()));
  for (const auto& [first, rows] : sequences) more.insert(more.end(), {first, rows});
  header.states_at = header.inputs_at + static_cast<uint32_t>(more.size());
  for (const States& of : states) {
    more.insert(more.end(), of.in.begin(), of.in.end());
    more.insert(more.end(), of.out.begin(), of.out.end());
  }
  header.pages_at = header.inputs_at + static_cast<uint32_t>(more.size());
  for (const Row& row : this->rows) {
    const uint32_t pages_at = row.follows ? table.back().pages : static_cast<uint32_t>(pages.size());
    table.push_back({row.token, row.position, pages_at, row.from});
    pages.insert(pages.end(), row.pages.begin(), row.pages.end());
    header.splits = std::max(header.splits, row.position / kSplitTokens + 1);
  }
  header.words = RoundUp(header.pages_at + static_cast<uint32_t>(pages.size()), 4);
  Bytes out;
  for (const Bytes& part : {ToBytes(std::vector<StepHeader>{header}), ToBytes(table),
                            ToBytes(logit_rows), ToBytes(more), ToBytes(pages)}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  out.resize(size_t{header.words} * 4);
  return out;
}

Inputs RandomInputs(Random& random, uint32_t rows, uint32_t width, double scale) {
  Inputs out = {rows, width, RoundUp(width, kPadColumns), {}};
  out.values.resize(size_t{rows} * out.stride);
  for (uint32_t row = 0; row < rows; ++row) {
    const std::vector<float> values = random.Floats(width, scale);
    std::copy(values.begin(), values.end(), out.values.begin() + size_t{row} * out.stride);
  }
  return out;
}

Bytes SplitRows(const Inputs& x, const std::vector<float>& norm) {
  Bytes out(x.values.size() * 4);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t row = i / x.stride;
    const uint32_t column = static_cast<uint32_t>(i % x.stride);
    const float value = norm.empty() ? x.values[i] : x.values[i] * norm[column];
    const uint16_t high = quant::Bf16FromFloat(value);
    const uint16_t low = quant::Bf16FromFloat(value - quant::FloatFromBf16(high));
    uint8_t* at = &out[row * x.stride * 4 + SplitPlace(column)];
    std::memcpy(at, &high, sizeof(high));
    std::memcpy(at + kSplitHalfBytes, &low, sizeof(low));
  }
  return out;
}

Bytes SumsOf(const Inputs& x, uint32_t count) {
  std::vector<float> out;
  for (uint32_t i = 0; i < count; ++i) {
    for (const float value : x.values) out.push_back(value / static_cast<float>(count));
  }
  return ToBytes(out);
}

Expectation Wanted::CheckSplit(const std::string& name) const {
  return {name, [*this](absl::Span<const uint8_t> bytes) -> std::string {
            for (size_t i = 0; i < values_.size(); ++i) {
              const uint8_t* at = &bytes[i / stride_ * stride_ * 4 +
                                         SplitPlace(static_cast<uint32_t>(i % stride_))];
              uint16_t high, low;
              std::memcpy(&high, at, sizeof(high));
              std::memcpy(&low, at + kSplitHalfBytes, sizeof(low));
              constexpr uint16_t kUntouched = kUntouchedByte << 8 | kUntouchedByte;
              if (values_[i] == Untouched()) {
                if (high == kUntouched && low == kUntouched) continue;
                return absl::StrCat("[", i, "] was written");
              }
              const double got =
                  double{quant::FloatFromBf16(high)} + double{quant::FloatFromBf16(low)};
              const double allowed = allowed_[i] + std::abs(values_[i]) * 0x1p-16;
              if (std::abs(got - values_[i]) <= allowed) continue;
              return absl::StrCat("[", i, "] is ", got, ", expected ", values_[i], " +- ", allowed);
            }
            return "";
          }};
}

Bytes StaleWords(size_t count, uint32_t tag) {
  constexpr uint32_t kNan = 0x7fc00000;
  return ToBytes(std::vector<uint64_t>(count, uint64_t{tag} << 32 | kNan));
}

std::vector<Expectation> Same(const std::string& first, const std::string& second, bool written) {
  auto bytes = std::make_shared<Bytes>();
  return {{first,
           [=](absl::Span<const uint8_t> got) -> std::string {
             bytes->assign(got.begin(), got.end());
             const bool any = std::any_of(got.begin(), got.end(), [](uint8_t b) { return b != kUntouchedByte; });
             return any || !written ? "" : "nothing was written";
           }},
          {second, [=](absl::Span<const uint8_t> got) -> std::string {
             for (size_t i = 0; i < got.size(); ++i) {
               if (got[i] == (*bytes)[i]) continue;
               float floats[2] = {0, 0};
               if (i / 4 * 4 + 4 <= got.size()) {
                 std::memcpy(&floats[0], &got[i / 4 * 4], 4);
                 std::memcpy(&floats[1], &(*bytes)[i / 4 * 4], 4);
               }
               return absl::StrCat("byte ", i, " is ", got[i], ", apart ", (*bytes)[i], "; as floats ", floats[0], " and ", floats[1]);
             }
             return "";
           }}};
}

std::vector<float> SquaresOf(const Inputs& x) {
  std::vector<float> out;
  for (uint32_t row = 0; row < x.rows; ++row) {
    for (uint32_t first = 0; first < x.width; first += kRowChunk) {
      double sum = 0;
      for (uint32_t i = first; i < std::min(x.width, first + kRowChunk); ++i) {
        sum += x.at(row, i) * x.at(row, i);
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

Near SiluTimes(const Near& gate, const Near& up) {
  const double silu = gate.value / (1 + std::exp(-gate.value));
  // The slope of silu is at most 1.1; Silu itself is good to 2^-20.
  const double silu_off = 1.1 * gate.allowed + std::abs(silu) * 0x1p-20;
  return {silu * up.value,
          silu_off * (std::abs(up.value) + up.allowed) + std::abs(silu) * up.allowed};
}

// By the definitions, not by the kernels' one expression. Slopes of what is multiplied by up are at most
// 1.13; the exponent is off by 2^-22 of itself, and with it what comes of it.
Near Activated(backend::Activation activation, const Near& gate, const Near& up) {
  double g = gate.value, u = up.value, exponent = g;
  switch (activation) {
    case backend::Activation::kSilu:
      g /= 1 + std::exp(-g);
      break;
    case backend::Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      g *= 0.5 * (1 + std::tanh(inner));
      exponent = 2 * inner;
      break;
    }
    case backend::Activation::kClampedSwiglu:
      g = std::min(g, 7.0);
      exponent = 1.702 * g;
      g /= 1 + std::exp(-exponent);
      u = std::clamp(u, -7.0, 7.0) + 1;
      break;
  }
  const double off =
      1.15 * gate.allowed + std::abs(g) * (0x1p-20 + std::abs(exponent) * 0x1p-22);
  return {g * u, off * (std::abs(u) + up.allowed) + std::abs(g) * up.allowed};
}

namespace {

// Two blocks as the host writes them, of an even and of an odd step, and a GPU that has run the step
// before `index`: it takes the one, and changes its page tables.
Case StepBeginCase(uint32_t rows, uint32_t index, uint32_t change_count) {
  constexpr uint32_t kTableWords = 512;
  StepPlan step = StepPlan::Of(rows);
  step.index = index;
  for (uint32_t i = 0; i < rows; ++i) {
    step.rows[i] = {i * 3, i * 17, {}};
    step.logit_rows.push_back(i);
  }
  const Bytes plain = step.Block();
  StepHeader header;
  std::memcpy(&header, plain.data(), sizeof(header));
  const uint32_t block_words = header.words + 2 * change_count + 16;
  header.pages_at = header.words + 64;
  header.changes_at = header.words;
  header.changes = change_count;
  Bytes block = plain;
  std::memcpy(block.data(), &header, sizeof(header));
  Bytes want = block;
  want.resize((header.pages_at + kTableWords) * 4, kUntouchedByte);
  std::vector<PageChange> changes;
  for (uint32_t i = 0; i < change_count; ++i) {
    changes.push_back({(i * 37 + 5) % kTableWords, 1000 + i});  // 37 and 512 have no divisor
    std::memcpy(&want[(header.pages_at + changes[i].at) * 4], &changes[i].page, 4);
  }
  const Bytes change_bytes = ToBytes(changes);
  block.insert(block.end(), change_bytes.begin(), change_bytes.end());
  block.resize(block_words * 4, kUntouchedByte);
  Bytes from(2 * block.size(), kUntouchedByte);
  std::copy(block.begin(), block.end(), from.begin() + Parity(index) * block.size());
  Bytes before(want.size(), kUntouchedByte);
  StepHeader last;
  last.index = index - 1;
  std::memcpy(before.data(), &last, sizeof(last));
  Case out;
  out.name = absl::StrCat("step_begin ", rows, " rows, step ", index, ", ",
                          change_count, " changes");
  out.bound = "exact";
  out.buffers = {{"from", from, 0, Home::kHost},
                 {"to", before}};
  out.steps = {{MakeLaunch<StepBeginArgs>("step_begin", 1,
                                          [=](StepBeginArgs& args, const Addresses& at) {
                                            args.from = at.Of<const uint32_t>("from");
                                            args.to = at.Of<uint32_t>("to");
                                            args.block_words = block_words;
                                          })}};
  out.expectations = {Exactly("to", want)};
  return out;
}

Case StepTablesCase(uint32_t count, uint32_t workers) {
  const uint32_t words = 2 * count + 7;
  std::vector<uint32_t> want(words, 0xeeeeeeee);
  std::vector<PageChange> list = {{count, 0}};
  for (uint32_t i = 0; i < count; ++i) {
    list.push_back({2 * i + 1, i * 7});
    want[2 * i + 1] = i * 7;
  }
  list.push_back({0, 0xbad});  // beyond the list
  Case out;
  out.name = absl::StrCat("step_tables ", count, " changes");
  out.bound = "exact";
  out.buffers = {{"changes", ToBytes(list), 0, Home::kHost},
                 {"tables", Bytes(words * 4, kUntouchedByte)}};
  out.steps = {{MakeLaunch<StepTablesArgs>("step_tables", workers,
                                           [=](StepTablesArgs& args, const Addresses& at) {
                                             args.changes = at.Of<const PageChange>("changes");
                                             args.tables = at.Of<uint32_t>("tables");
                                           })}};
  out.expectations = {ExactlyValues("tables", want)};
  return out;
}

// Sums of squares [rows, chunks] that a kernel made of `x`: 16 * 2^-24 relative covers a sum of
// 1024 positive terms, four a lane and then a tree.
void WantSquares(const Inputs& x, Wanted* want) {
  const std::vector<float> squares = SquaresOf(x);
  const size_t chunks = squares.size() / x.rows;
  for (size_t i = 0; i < squares.size(); ++i) {
    want->Set(i / chunks, i % chunks, squares[i], squares[i] * 0x1p-20);
  }
}

// What kernels that write rows of x leave beside them, for a norm's weights: `split`.
struct RowsWanted {
  std::vector<float> norm;
  Wanted split;
  RowsWanted(Random& random, uint32_t rows, uint32_t stride)
      : norm(random.Floats(stride)), split(rows, stride) {}
  void Set(size_t row, size_t column, float x) {
    split.Set(row, column, double{x * norm[column]}, 0);
  }
  void AddTo(Case* out, uint32_t device = 0) const {
    const std::string suffix = device == 0 ? "" : absl::StrCat(device);
    out->buffers.push_back({"norm" + suffix, ToBytes(norm), device});
    out->buffers.push_back(split.ToFill("split" + suffix, device));
    out->expectations.push_back(split.CheckSplit("split" + suffix));
  }
};

// `told`: every second row's token is told by the step before, of which one had none to tell.
Case EmbedCase(uint32_t rows, uint32_t hidden, bool f32, uint32_t workers, bool told = false,
               float scale = 1) {
  constexpr uint32_t kVocab = 9;
  Random random(hidden + rows);
  StepPlan step = StepPlan::Of(rows);
  for (StepPlan::Row& row : step.rows) row.token = static_cast<uint32_t>(random.Next() % kVocab);
  step.rows[0].token = kVocab - 1;
  step.index = 7;
  std::vector<uint64_t> tokens(2 * rows, TaggedToken(step.index - 3, 0));  // of steps long past
  std::vector<uint32_t> token_of(rows);
  for (uint32_t row = 0; row < rows; ++row) {
    token_of[row] = step.rows[row].token;
    if (!told || row % 2 == 0) continue;
    if (row == 3) token_of[row] = kNoToken;
    step.rows[row].token = 0;
    step.rows[row].from = rows - 1 - row;
    tokens[Parity(step.index - 1) * rows + rows - 1 - row] =
        TaggedToken(step.index - 1, token_of[row]);
  }
  const Activations table = f32 ? RandomActivations<float>(random, size_t{kVocab} * hidden)
                                : RandomActivations<uint16_t>(random, size_t{kVocab} * hidden);
  Inputs x = RandomInputs(random, rows, hidden);
  const uint32_t chunks = (hidden + kRowChunk - 1) / kRowChunk;
  Wanted want(rows + 1, x.stride), squares(rows + 1, chunks);
  RowsWanted split(random, rows + 1, x.stride);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < hidden; ++i) {
      const double value =
          token_of[row] == kNoToken ? 0
                                    : static_cast<float>(table.values[size_t{token_of[row]} * hidden + i]) * scale;
      x.values[size_t{row} * x.stride + i] = static_cast<float>(value);
      split.Set(row, i, static_cast<float>(value));
      want.Set(row, i, value, 0);
    }
  }
  WantSquares(x, &squares);
  Case out;
  out.name = absl::StrCat("embed ", rows, " rows, hidden ", hidden, f32 ? ", fp32" : ", bf16",
                          told ? ", tokens told" : "", scale != 1 ? ", scaled" : "");
  out.bound = "rows exact; squares 2^-20 relative: fp32 sums of positive terms";
  out.buffers = {
      {"step", step.Block()}, {"table", table.bytes}, want.ToFill("x"), squares.ToFill("squares"),
      {"tokens", ToBytes(tokens)}};
  out.steps = {{MakeLaunch<EmbedArgs>("embed", workers, [=](EmbedArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.table = at.Of<const uint8_t>("table");
    args.out.x = at.Of<float>("x");
    args.out.squares = at.Of<float>("squares");
    args.out.split = at.Of<float>("split");
    args.out.norm = at.Of<const float>("norm");
    args.hidden = hidden;
    args.stride = RoundUp(hidden, kPadColumns);
    args.chunks = chunks;
    args.is_f32 = f32;
    args.tokens = at.Of<const uint64_t>("tokens");
    args.max_rows = rows;
    args.scale = scale;
  })}};
  out.expectations = {want.Check("x"), squares.Check("squares")};
  split.AddTo(&out);
  return out;
}

// A step of `rows` of a context of `max_rows`: one half is written, the other's rows stay.
Case TapCase(uint32_t rows, uint32_t max_rows, uint32_t hidden, uint32_t index, uint32_t workers) {
  Random random(hidden + index);
  StepPlan step = StepPlan::Of(rows);
  step.index = index;
  const Inputs x = RandomInputs(random, rows, hidden);
  Wanted want(2 * max_rows, x.stride);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < hidden; ++i) {
      want.Set(Parity(index) * max_rows + row, i, x.at(row, i), 0);
    }
  }
  Case out;
  out.name = absl::StrCat("tap ", rows, " of ", max_rows, " rows, hidden ", hidden, ", step ", index);
  out.bound = "exact";
  out.buffers = {{"step", step.Block()}, {"x", ToBytes(x.values)}, want.ToFill("out")};
  out.steps = {{MakeLaunch<TapArgs>("tap", workers, [=](TapArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>("out");
    args.hidden = hidden;
    args.stride = RoundUp(hidden, kPadColumns);
    args.chunks = (hidden + kRowChunk - 1) / kRowChunk;
    args.max_rows = max_rows;
  })}};
  out.expectations = {want.Check("out")};
  return out;
}

// Rows out of order, and one of them twice, of a tap that has `tapped`.
Case InputCase(uint32_t rows, uint32_t tapped, uint32_t hidden, uint32_t workers) {
  Random random(hidden + rows);
  StepPlan step = StepPlan::Of(rows);
  for (uint32_t row = 0; row < rows; ++row) step.inputs.push_back((tapped - 1 + row * 5) % tapped);
  if (rows > 1) step.inputs[1] = step.inputs[0];
  const Inputs tap = RandomInputs(random, tapped, hidden);
  Inputs x = {rows, hidden, tap.stride, std::vector<float>(size_t{rows} * tap.stride)};
  const uint32_t chunks = (hidden + kRowChunk - 1) / kRowChunk;
  Wanted want(rows + 1, x.stride), squares(rows + 1, chunks);
  RowsWanted split(random, rows + 1, x.stride);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < hidden; ++i) {
      const double value = tap.at(step.inputs[row], i);
      x.values[size_t{row} * x.stride + i] = static_cast<float>(value);
      split.Set(row, i, static_cast<float>(value));
      want.Set(row, i, value, 0);
    }
  }
  WantSquares(x, &squares);
  Case out;
  out.name = absl::StrCat("input ", rows, " rows of ", tapped, ", hidden ", hidden);
  out.bound = "rows exact; squares 2^-20 relative: fp32 sums of positive terms";
  out.buffers = {{"step", step.Block()}, {"tap", ToBytes(tap.values)}, want.ToFill("x"),
                 squares.ToFill("squares")};
  out.steps = {{MakeLaunch<InputArgs>("input", workers, [=](InputArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.tap = at.Of<const float>("tap");
    args.out.x = at.Of<float>("x");
    args.out.squares = at.Of<float>("squares");
    args.out.split = at.Of<float>("split");
    args.out.norm = at.Of<const float>("norm");
    args.hidden = hidden;
    args.stride = RoundUp(hidden, kPadColumns);
    args.chunks = chunks;
  })}};
  out.expectations = {want.Check("x"), squares.Check("squares")};
  split.AddTo(&out);
  return out;
}

Case ResplitCase(uint32_t rows, uint32_t hidden, uint32_t workers, bool normed = true) {
  Random random(hidden + rows);
  const Inputs x = RandomInputs(random, rows, hidden);
  RowsWanted split(random, rows + 1, x.stride);
  if (!normed) split.norm.assign(split.norm.size(), 1);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < hidden; ++i) split.Set(row, i, static_cast<float>(x.at(row, i)));
  }
  Case out;
  out.name = absl::StrCat("resplit ", rows, " rows, hidden ", hidden, normed ? "" : ", no norm");
  out.bound = "2^-16 relative: two bf16";
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"x", ToBytes(x.values)}};
  out.steps = {
      {MakeLaunch<ResplitArgs>("resplit", workers, [=](ResplitArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.x = at.Of<const float>("x");
        args.split = at.Of<float>("split");
        if (normed) args.norm = at.Of<const float>("norm");
        args.hidden = hidden;
        args.stride = x.stride;
        args.chunks = (hidden + kRowChunk - 1) / kRowChunk;
      })}};
  split.AddTo(&out);
  return out;
}

// The sum of value(0) to value(n - 1), neighbours first: the largest power of two below n of them,
// and the others.
float TreeOf(uint32_t n, const std::function<float(uint32_t)>& value) {
  if (n == 1) return value(0);
  uint32_t left = 1;
  while (2 * left < n) left *= 2;
  return TreeOf(left, value) + TreeOf(n - left, [&](uint32_t i) { return value(left + i); });
}

// `in_place`: out is slot 0.
Case SumSlotsCase(uint32_t ranks, uint32_t count, bool in_place) {
  Random random(count + ranks);
  const uint32_t stride = RoundUp(count, 4) + 4;
  const std::vector<float> slots = random.Floats(size_t{ranks} * stride);
  std::vector<float> want;
  for (uint32_t i = 0; i < stride; ++i) {
    const float sum = TreeOf(ranks, [&](uint32_t r) { return slots[size_t{r} * stride + i]; });
    want.push_back(i < count ? sum : in_place ? slots[i] : static_cast<float>(Untouched()));
  }
  if (in_place) want.insert(want.end(), slots.begin() + stride, slots.end());
  Case out;
  out.name = absl::StrCat("sum_slots ", ranks, " ranks, ", count, in_place ? ", in place" : "");
  out.bound = "exact: fp32 sums in the tree of ranks";
  out.buffers = {{"slots", ToBytes(slots)}, {"out", Bytes(size_t{stride} * 4, kUntouchedByte)}};
  const std::string to = in_place ? "slots" : "out";
  out.steps = {
      {MakeLaunch<SumSlotsArgs>("sum_slots", 2, [=](SumSlotsArgs& args, const Addresses& at) {
        args.slots = at.Of<const float>("slots");
        args.out = at.Of<float>(to);
        args.stride = stride;
        args.count = count;
        args.ranks = ranks;
      })}};
  out.expectations = {ExactlyValues(to, want)};
  return out;
}

// ---- all-reduce ----

struct ReduceShape {
  uint32_t ranks, rows, hidden;
  bool twice;  // two rounds
  bool plain;
  uint32_t first_epoch;  // of three rounds, one all-reduce a step
  // Of the widest vector that the group adds; 0: of this one. If wider, flags are as such vectors
  // left them in the two epochs before.
  uint32_t stride = 0;
  uint32_t splits = 1;
  bool set = false;  // in place of x, all else as ever
  uint32_t Stride() const { return stride != 0 ? stride : RoundUp(hidden, kPadColumns); }
  uint32_t MaxRows() const { return rows + 1; }
  ExchangeBytes Exchange() const { return ExchangeBytesOf(ranks, MaxRows(), MaxRows(), Stride()); }
};

std::string Named(const char* what, uint32_t rank) { return absl::StrCat(what, rank); }

// Rounds of one case: partials of each rank and round, and what x is after the last, in fp32 as the
// kernel adds: splits in their tree, ranks in theirs, then onto x.
struct ReduceData {
  std::vector<std::vector<std::vector<Inputs>>> partials;  // [round][rank][split]
  Inputs before, after;
};
constexpr uint32_t kReduceRounds = 3;
ReduceData RandomReduce(const ReduceShape& s) {
  Random random(s.rows * 5 + s.hidden + s.ranks);
  ReduceData out;
  out.before = RandomInputs(random, s.rows, s.hidden);
  out.after = out.before;
  for (uint32_t round = 0; round < kReduceRounds; ++round) {
    std::vector<std::vector<Inputs>> partials(s.ranks);
    for (std::vector<Inputs>& own : partials) {
      for (uint32_t i = 0; i < s.splits; ++i) {
        own.push_back(RandomInputs(random, s.rows, s.hidden));
      }
    }
    for (size_t i = 0; i < out.after.values.size(); ++i) {
      const float sum = TreeOf(s.ranks, [&](uint32_t r) {
        return TreeOf(s.splits, [&](uint32_t k) { return partials[r][k].values[i]; });
      });
      out.after.values[i] = s.plain || s.set ? sum : out.after.values[i] + sum;
    }
    out.partials.push_back(std::move(partials));
  }
  return out;
}

LaunchSpec ReduceLaunch(const ReduceShape& s, uint32_t round, uint32_t rank) {
  return MakeLaunch<ReduceArgs>(
      s.twice ? "reduce_twice" : "reduce", 2 + rank % 2,
      [=](ReduceArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>(Named("step", rank), round * 256);
        args.partial = at.Of<const float>(absl::StrCat("partial", rank, "_", round));
        args.out.x = at.Of<float>(Named("x", rank));
        if (!s.plain) {
          args.out.squares = at.Of<float>(Named("squares", rank));
          args.out.split = at.Of<float>(Named("split", rank));
          args.out.norm = at.Of<const float>(Named("norm", rank));
        }
        for (uint32_t r = 0; r < s.ranks; ++r) {
          args.exchange[r] = at.Of<uint8_t>(Named("exchange", r));
        }
        args.exchange_own = args.exchange[rank];
        args.flags_at = s.Exchange().flags_at;
        args.pairs_at = s.Exchange().pairs_at;
        args.hidden = s.hidden;
        args.stride = s.Stride();
        args.chunks = (s.hidden + kRowChunk - 1) / kRowChunk;
        args.max_rows = args.pair_rows = s.MaxRows();
        args.ranks = s.ranks;
        args.rank = rank;
        args.sequence = 0;
        args.per_step = 1;
        args.mode = s.plain ? uint32_t{kReducePlain} : s.set ? uint32_t{kReduceSet} : 0;
        args.splits = s.splits;
        args.split_rows = s.rows;
      },
      rank);
}

// What epochs before the first have left in a rank's memory: flags, and of one round words that hold
// a NaN beside their epoch; else zeros. Slots of two rounds hold NaNs: whoever does not wait gets one.
Bytes ExchangeBefore(const ReduceShape& s) {
  const ExchangeBytes at = s.Exchange();
  Bytes out(at.bytes);
  std::fill(out.begin(), out.begin() + static_cast<ptrdiff_t>(at.flags_at), uint8_t{0xff});
  const auto flag = [&](uint32_t parity) {
    if (s.stride == 0) return 0u;
    return (s.first_epoch - 1 - ((s.first_epoch - 1 - parity) & 1)) | 1;
  };
  const size_t flags = size_t{s.MaxRows()} * ((s.Stride() + kRowChunk - 1) / kRowChunk);
  for (size_t i = 0; i < (2 * size_t{s.ranks} + 2) * flags; ++i) {
    const size_t unit = i / flags;
    const uint32_t now = flag((unit < 2 * s.ranks ? unit / s.ranks : unit) & 1);
    std::memcpy(&out[at.flags_at + 4 * i], &now, 4);
  }
  const size_t words = size_t{s.MaxRows()} * s.Stride();
  for (size_t i = 0; i < 2 * s.ranks * words; ++i) {
    const uint32_t word[2] = {0xffffffff, flag(i / words / s.ranks & 1)};
    std::memcpy(&out[at.pairs_at + 8 * i], word, 8);
  }
  return out;
}

Case ReduceCase(const ReduceShape& s) {
  const ReduceData data = RandomReduce(s);
  const uint32_t chunks = (s.hidden + kRowChunk - 1) / kRowChunk;
  Bytes steps;
  for (uint32_t round = 0; round < kReduceRounds; ++round) {
    StepPlan step = StepPlan::Of(s.rows);
    step.index = s.first_epoch - 1 + round;
    Bytes block = step.Block();
    block.resize(64 + 16);  // the kernel reads the header alone
    block.resize(256);
    steps.insert(steps.end(), block.begin(), block.end());
  }
  Wanted squares(s.rows, chunks);
  Wanted split(s.rows, s.Stride());
  Random random(s.hidden);
  const std::vector<float> norm = random.Floats(s.Stride());
  if (!s.plain) {
    WantSquares(data.after, &squares);
    for (uint32_t row = 0; row < s.rows; ++row) {
      for (uint32_t i = 0; i < s.hidden; ++i) {
        const float x = static_cast<float>(data.after.at(row, i));
        split.Set(row, i, double{x * norm[i]}, 0);
      }
    }
  }
  Case out;
  out.name = absl::StrCat(s.twice ? "reduce_twice " : "reduce ", s.ranks, " ranks, ", s.rows,
                          " rows, hidden ", s.hidden,
                          s.plain ? ", plain" : s.set ? ", set" : "", ", epoch ", s.first_epoch, s.stride != 0 ? ", after wider ones" : "",
                          s.splits > 1 ? absl::StrCat(", sums of ", s.splits) : "");
  out.bound = "x exact: fp32 sums in the tree of ranks; squares 2^-20 relative";
  for (uint32_t r = 0; r < s.ranks; ++r) {
    out.buffers.push_back({Named("step", r), steps, r});
    out.buffers.push_back({Named("x", r), ToBytes(data.before.values), r});
    out.buffers.push_back(squares.ToFill(Named("squares", r), r));
    out.buffers.push_back(split.ToFill(Named("split", r), r));
    out.buffers.push_back({Named("norm", r), ToBytes(norm), r});
    out.buffers.push_back({Named("exchange", r), ExchangeBefore(s), r, Home::kUncached});
    for (uint32_t round = 0; round < kReduceRounds; ++round) {
      Bytes partial;
      for (const Inputs& one : data.partials[round][r]) {
        const Bytes bytes = ToBytes(one.values);
        partial.insert(partial.end(), bytes.begin(), bytes.end());
      }
      out.buffers.push_back({absl::StrCat("partial", r, "_", round), partial, r});
    }
    out.expectations.push_back(ExactlyValues(Named("x", r), data.after.values));
    out.expectations.push_back(squares.Check(Named("squares", r)));
    out.expectations.push_back(split.CheckSplit(Named("split", r)));
  }
  for (uint32_t round = 0; round < kReduceRounds; ++round) {
    std::vector<LaunchSpec> together;
    for (uint32_t r = 0; r < s.ranks; ++r) together.push_back(ReduceLaunch(s, round, r));
    out.steps.push_back(std::move(together));
  }
  return out;
}

}  // namespace

std::vector<Case> DecoderStepCases() {
  return {
      StepBeginCase(1, 1, 0),
      StepBeginCase(300, 2, 300),
      StepBeginCase(3, 0, 1),
      StepTablesCase(1, 1),
      StepTablesCase(1000, 3),
      EmbedCase(1, 64, false, 1),
      EmbedCase(5, 1160, false, 3),
      EmbedCase(5, 1160, true, 3),
      EmbedCase(3, 2048, true, 8),
      EmbedCase(17, 8, false, 2),
      EmbedCase(5, 1160, false, 3, true),
      EmbedCase(6, 64, true, 2, true),
      EmbedCase(5, 1160, false, 3, true, 12.3f),
      TapCase(1, 1, 64, 1, 1),
      TapCase(5, 7, 1160, 2, 3),
      TapCase(5, 7, 1160, 7, 3),
      TapCase(17, 17, 8, 0xffffffff, 2),
      InputCase(1, 2, 64, 1),
      InputCase(5, 14, 1160, 3),
      InputCase(17, 6, 8, 2),
      ResplitCase(1, 1160, 2),
      ResplitCase(5, 64, 1),
      ResplitCase(3, 1160, 2, /*normed=*/false),
      SumSlotsCase(1, 5, false),
      SumSlotsCase(2, 4099, false),
      SumSlotsCase(3, 1022, false),
      SumSlotsCase(4, 1022, true),
      SumSlotsCase(7, 40, false),
      SumSlotsCase(8, 16, true),
  };
}

std::vector<Case> DecoderReduceCases() {
  std::vector<Case> cases;
  for (uint32_t ranks : {1u, 2u, 4u}) {
    cases.push_back(ReduceCase({ranks, 1, 64, false, false, 1}));
    cases.push_back(ReduceCase({ranks, 5, 1160, false, false, 1}));
    cases.push_back(ReduceCase({ranks, 3, 70, false, true, 7}));
    cases.push_back(ReduceCase({ranks, 3, 72, false, false, 7, 0, 4}));
    cases.push_back(ReduceCase({ranks, 3, 72, ranks > 2, false, 7, 0, 1, /*set=*/true}));
    if (ranks == 1) continue;
    cases.push_back(ReduceCase({ranks, 5, 1160, true, false, 1}));
    cases.push_back(ReduceCase({ranks, 3, 72, true, true, 7}));
  }
  // As many as there may be, of a row and a bit: enough that every rank owns a chunk of two rounds.
  cases.push_back(ReduceCase({8, 1, 64, false, false, 1}));
  cases.push_back(ReduceCase({8, 3, 1160, false, false, 0xffffffff}));
  cases.push_back(ReduceCase({8, 5, 1160, true, false, 1}));
  cases.push_back(ReduceCase({8, 3, 70, true, true, 7}));
  // One row, so that its buffers may be narrower than the stride; onto x, so that a NaN stays.
  for (uint32_t epoch : {6u, 7u}) {
    for (bool twice : {false, true}) {
      cases.push_back(ReduceCase({4, 1, 64, twice, false, epoch, 5 * kRowChunk}));
    }
  }
  // Epochs that wrap, through 0; and flags that nobody has written for 2^31 epochs and more.
  for (bool twice : {false, true}) {
    cases.push_back(ReduceCase({4, 5, 128, twice, false, 0xffffffff}));
    cases.push_back(ReduceCase({2, 5, 128, twice, false, 0xfffffffe}));
    cases.push_back(ReduceCase({2, 3, 1160, twice, false, 0x80000005}));
  }
  return cases;
}

}  // namespace mainarch::kernels_test
