// SPDX-License-Identifier: MIT
//
// What a Program may ask of the CPU beyond today's architectures: several caches of different heads,
// windows whose pages go, sinks, gates, biases, no norms, partial and no rotation, recurrent state in
// slots, several Programs over one model with a tap between them. Against fp64, and bit for bit
// between ways to cut the same tokens into steps.
#include <cstring>
#include <numeric>

#include "support/program_maker.h"
#include "support/test.h"

namespace mainarch {
namespace {

using backend::AttentionOp;
using backend::kNone;
using test::ProgramMaker;
using test::ProgramReference;

constexpr int32_t kHidden = 96, kVocab = 160;
constexpr uint32_t kTokens = 700;  // more than a split, and than any window

enum Part : uint32_t { kWindow = 1, kFull = 2, kRecurrent = 4 };

struct Heads {
  int32_t heads, kv_heads, key_dim, value_dim, window;
};

// x += o · attention(norm(x)), with all the extras where `plain` is not set.
void AddAttention(ProgramMaker& m, const std::string& name, const Heads& h, bool plain) {
  backend::Program& p = *m.program;
  p.caches.push_back(
      backend::PagedCache{name, 1, h.kv_heads, h.key_dim, h.value_dim, h.window});
  const int64_t q = int64_t{h.heads} * h.key_dim, out = int64_t{h.heads} * h.value_dim;
  const int64_t qkv = q + int64_t{h.kv_heads} * (h.key_dim + h.value_dim);
  AttentionOp op = {};
  op.qkv = m.Buffer(name + ".qkv", qkv);
  op.out = m.Buffer(name + ".out", out);
  op.cache = static_cast<int32_t>(p.caches.size()) - 1;
  op.heads = h.heads;
  op.rope = plain ? kNone : m.Rope(h.key_dim / 2);
  op.scale = 1 / std::sqrt(static_cast<double>(h.key_dim));
  const backend::WeightId norm = m.Norm(name + ".norm", kHidden);
  p.ops.push_back(
      backend::NormMatmulOp{p.x, norm, m.Matrix(name + ".qkv", qkv, kHidden), op.qkv});
  if (!plain) {
    op.q_norm = m.Norm(name + ".q_norm", h.key_dim);
    op.sinks = m.Vector(name + ".sinks", h.heads, 2);
    op.bias = m.Vector(name + ".bias", qkv, 0.5f);
    op.gate = m.Buffer(name + ".gate", out);
    p.ops.push_back(
        backend::NormMatmulOp{p.x, norm, m.Matrix(name + ".gate", out, kHidden), op.gate});
  }
  p.ops.push_back(op);
  p.ops.push_back(backend::MatmulAddOp{op.out, m.Matrix(name + ".o", kHidden, out), p.x});
}

void AddRecurrent(ProgramMaker& m, const std::string& name, int32_t width) {
  backend::Program& p = *m.program;
  p.caches.push_back(backend::SlotCache{name, 1, width * int64_t{sizeof(float)}});
  const backend::BufferId in = m.Buffer(name + ".in", 2 * width), out = m.Buffer(name, width);
  p.ops.push_back(backend::NormMatmulOp{p.x, m.Norm(name + ".norm", kHidden),
                                        m.Matrix(name + ".w", 2 * width, kHidden), in});
  p.ops.push_back(
      backend::RecurrentOp{in, out, static_cast<int32_t>(p.caches.size()) - 1, /*layer=*/0});
  p.ops.push_back(backend::MatmulAddOp{out, m.Matrix(name + ".out", kHidden, width), p.x});
}

ProgramMaker Make(uint32_t parts) {
  ProgramMaker m(kHidden, kVocab, parts);
  backend::Program& p = *m.program;
  p.ops.push_back(backend::EmbedOp{
      m.Weight("embed", backend::WeightLayout::kTable, kVocab, kHidden, 1), p.x});
  if ((parts & kWindow) != 0) AddAttention(m, "window", {6, 2, 48, 32, 70}, /*plain=*/false);
  if ((parts & kRecurrent) != 0) AddRecurrent(m, "state", 300);
  if ((parts & kFull) != 0) AddAttention(m, "full", {4, 4, 16, 64, 0}, /*plain=*/true);
  p.ops.push_back(
      backend::LogitsOp{p.x, m.Norm("final", kHidden), m.Matrix("head", kVocab, kHidden)});
  return m;
}

std::shared_ptr<backend::Backend> Cpu(uint32_t threads) {
  backend::BackendOptions options;
  options.device = "cpu";
  options.threads = threads;
  return *backend::CreateBackend(options);
}

uint32_t TokenAt(uint32_t position) { return (position * 37 + position / 7 + 5) % kVocab; }

// One sequence on one context: pages in falling order, those behind the window given to nobody and
// overwritten by nobody but named no more; two slots in turn.
class Sequence {
 public:
  Sequence(const backend::Program& program, uint32_t table, uint32_t tokens = kTokens)
      : program_(program), table_(table), pages_of_one_(PagesOf(tokens)) {}

  uint32_t position() const { return position_; }

  // Lists for `rows` more rows. A slot's state after the last row goes to the other slot.
  backend::StepSequence Lists(uint32_t rows) {
    caches_.assign(program_.caches.size(), {});
    pages_.resize(caches_.size());
    for (size_t i = 0; i < caches_.size(); ++i) {
      const auto* paged = std::get_if<backend::PagedCache>(&program_.caches[i]);
      if (paged == nullptr) {
        caches_[i].state_in = position_ == 0 ? backend::kNoSlot : 2 * table_ + turn_;
        out_ = {rows - 1, 2 * table_ + (turn_ ^ 1)};
        caches_[i].state_out = absl::MakeConstSpan(&out_, 1);
        continue;
      }
      const uint32_t window = static_cast<uint32_t>(paged->window);
      const uint32_t first =
          window == 0 || position_ < window ? 0 : (position_ + 1 - window) / backend::kPageTokens;
      const uint32_t end = (position_ + rows + backend::kPageTokens - 1) / backend::kPageTokens;
      pages_[i].clear();
      for (uint32_t page = first; page < end; ++page) pages_[i].push_back(PageOf(page));
      caches_[i].pages = pages_[i];
      caches_[i].first_page = first;
    }
    return {caches_, table_};
  }
  void Advance(uint32_t rows) {
    position_ += rows;
    turn_ ^= 1;
  }
  static constexpr uint32_t PagesOf(uint32_t tokens) { return tokens / backend::kPageTokens + 2; }

 private:
  uint32_t PageOf(uint32_t page) const { return (table_ + 1) * pages_of_one_ - 1 - page; }

  const backend::Program& program_;
  const uint32_t table_, pages_of_one_;
  uint32_t position_ = 0, turn_ = 0;
  backend::StateOut out_;
  std::vector<backend::StepCache> caches_;
  std::vector<std::vector<uint32_t>> pages_;
};

backend::ContextOptions OptionsFor(const backend::Program& program, uint32_t max_rows, uint32_t tokens = kTokens) {
  backend::ContextOptions options;
  options.kv_type = quant::KvType::kF32;
  options.max_rows = max_rows;
  options.max_logit_rows = 4;
  options.max_sequences = 2;
  options.pages.assign(program.caches.size(), 2 * Sequence::PagesOf(tokens));
  options.slots.assign(program.caches.size(), 4);
  return options;
}

// Runs `rows` more tokens of each sequence in one step; logits of the last row of each. A second
// sequence runs other tokens.
std::vector<std::vector<float>> RunStep(backend::Context& context, std::vector<Sequence*> sequences,
                                        std::vector<uint32_t> rows,
                                        absl::Span<const uint32_t> inputs = {}) {
  std::vector<backend::StepSequence> lists;
  std::vector<backend::StepRow> step_rows;
  std::vector<uint32_t> logit_rows;
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    lists.push_back(sequences[s]->Lists(rows[s]));
    for (uint32_t i = 0; i < rows[s]; ++i) {
      const uint32_t position = sequences[s]->position() + i;
      step_rows.push_back({TokenAt(position + 1000 * s), position, s});
    }
    logit_rows.push_back(static_cast<uint32_t>(step_rows.size()) - 1);
  }
  backend::Step step;
  step.rows = step_rows;
  step.sequences = lists;
  step.logit_rows = logit_rows;
  step.inputs = inputs;
  const Status status = context.Run(step);
  std::vector<std::vector<float>> logits;
  for (uint32_t s = 0; s < sequences.size() && status.ok(); ++s) {
    const absl::Span<float> row = context.Logits(s);
    logits.emplace_back(row.begin(), row.end());
    sequences[s]->Advance(rows[s]);
  }
  return logits;
}

// Logits of the last token of kTokens, cut into steps of `chunk`.
std::vector<float> RunAll(const backend::LoadedModel& model, uint32_t chunk) {
  auto context = model.CreateContext(OptionsFor(model.program(), 64));
  if (!context.ok()) return {};
  Sequence sequence(model.program(), 0);
  std::vector<std::vector<float>> logits;
  while (sequence.position() < kTokens) {
    logits = RunStep(**context, {&sequence}, {std::min(chunk, kTokens - sequence.position())});
    if (logits.empty()) return {};
  }
  return logits[0];
}

double WorstOf(const std::vector<float>& got, const std::vector<double>& want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::fabs(double{got[i]} - want[i]));
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

TEST(programs_match_fp64_however_steps_are_cut) {
  for (const uint32_t parts : {kWindow + 0u, kFull + 0u, kRecurrent + 0u,
                               uint32_t{kWindow | kFull | kRecurrent}}) {
    const ProgramMaker made = Make(parts);
    CHECK_OK(backend::Check(*made.program));
    ProgramReference reference(*made.program);
    std::vector<double> want;
    for (uint32_t i = 0; i < kTokens; ++i) want = reference.Token(TokenAt(i));
    std::vector<float> first;
    for (const uint32_t threads : {1u, 3u}) {
      const auto model = Cpu(threads)->Load(made.program, {});
      CHECK_OK(model);
      for (const uint32_t chunk : {1u, 5u, 64u}) {
        const std::vector<float> got = RunAll(**model, chunk);
        CHECK_EQ(got.size(), want.size());
        CHECK_LE(WorstOf(got, want), 2e-5);
        if (first.empty()) first = got;
        CHECK(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0);
      }
    }
  }
}

// Logits of the last of `tokens`: of whole chunks, and of the last few in steps of one row.
std::vector<float> RunLong(const backend::LoadedModel& model, uint32_t tokens, uint32_t chunk, uint32_t singles) {
  auto context = model.CreateContext(OptionsFor(model.program(), chunk, tokens));
  if (!context.ok()) return {};
  Sequence sequence(model.program(), 0, tokens);
  std::vector<std::vector<float>> logits;
  while (sequence.position() < tokens) {
    const uint32_t left = tokens - sequence.position();
    logits = RunStep(**context, {&sequence}, {left <= singles ? 1 : std::min(chunk, left - singles)});
    if (logits.empty()) return {};
  }
  return logits[0];
}

// Splits are merged by groups that lie at absolute positions: by a worker that has a whole block, and behind workers that have
// a split each; whatever rows stand beside a row, also of one whose own window begins a split later than theirs.
TEST(more_splits_than_are_merged_at_once_have_the_same_bits) {
  constexpr uint32_t kLong = 34 * 512 + 300;
  for (const int32_t window : {0, static_cast<int32_t>(kLong) - 2 * 512 - 1, 600}) {
    ProgramMaker made(kHidden, kVocab, 7);
    made.program->max_position = kLong;
    made.program->ops.push_back(
        backend::EmbedOp{made.Weight("embed", backend::WeightLayout::kTable, kVocab, kHidden, 1), made.program->x});
    AddAttention(made, "long", {2, 1, 16, 16, window}, /*plain=*/window != 600);
    made.program->ops.push_back(
        backend::LogitsOp{made.program->x, made.Norm("final", kHidden), made.Matrix("head", kVocab, kHidden)});
    const auto alone = Cpu(1)->Load(made.program, {}), team = Cpu(3)->Load(made.program, {});
    CHECK_OK(alone);
    CHECK_OK(team);
    const std::vector<float> want = RunLong(**alone, kLong, 256, 0);
    CHECK_EQ(want.size(), static_cast<size_t>(kVocab));
    CHECK(RunLong(**team, kLong, 256, 3) == want);
    CHECK(RunLong(**alone, kLong, 37, 1) == want);
  }
}

TEST(sequences_of_one_step_do_not_mix) {
  const ProgramMaker made = Make(kWindow | kFull | kRecurrent);
  const auto model = Cpu(2)->Load(made.program, {});
  CHECK_OK(model);
  auto context = (*model)->CreateContext(OptionsFor(*made.program, 64));
  CHECK_OK(context);
  Sequence a(*made.program, 0), b(*made.program, 1);
  ProgramReference want_a(*made.program), want_b(*made.program);
  std::vector<double> a_logits, b_logits;
  std::vector<std::vector<float>> got;
  for (uint32_t step = 0; step < 20; ++step) {
    const uint32_t rows_a = step % 3 == 0 ? 20 : 1, rows_b = step % 4 == 1 ? 33 : 2;
    for (uint32_t i = 0; i < rows_a; ++i) a_logits = want_a.Token(TokenAt(a.position() + i));
    for (uint32_t i = 0; i < rows_b; ++i) b_logits = want_b.Token(TokenAt(b.position() + i + 1000));
    got = RunStep(**context, {&a, &b}, {rows_a, rows_b});
    CHECK_EQ(got.size(), 2u);
    CHECK_LE(WorstOf(got[0], a_logits), 2e-5);
    CHECK_LE(WorstOf(got[1], b_logits), 2e-5);
  }
}

// A state that is kept after a row of the middle is the one to go on from; running rows again from
// the state before gives the same bits; from the state after them it does not.
TEST(states_are_of_the_row_that_is_named) {
  const ProgramMaker made = Make(kRecurrent);
  const auto model = Cpu(2)->Load(made.program, {});
  CHECK_OK(model);
  auto context = (*model)->CreateContext(OptionsFor(*made.program, 64));
  CHECK_OK(context);
  const auto run = [&](uint32_t first, uint32_t count, uint32_t in,
                       std::vector<backend::StateOut> out) {
    std::vector<backend::StepRow> rows;
    for (uint32_t i = 0; i < count; ++i) rows.push_back({TokenAt(first + i), first + i, 0});
    backend::StepCache cache;
    cache.state_in = in;
    cache.state_out = out;
    const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1), 0};
    const uint32_t last = count - 1;
    backend::Step step;
    step.rows = rows;
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = absl::MakeConstSpan(&last, 1);
    if (!(*context)->Run(step).ok()) return std::vector<float>();
    const absl::Span<float> logits = (*context)->Logits(0);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> all = run(0, 10, backend::kNoSlot, {{3, 0}, {9, 1}});
  CHECK_EQ(all.size(), static_cast<size_t>(kVocab));
  CHECK(run(4, 6, 0, {{5, 2}}) == all);
  CHECK(run(4, 6, 0, {}) == all);  // the state that was read is as it was
  CHECK(run(4, 6, 1, {}) != all);
  CHECK(run(9, 1, 1, {}) != all);  // a row run twice
  // Refused: a slot that is read and written, one that is not there, rows out of order.
  CHECK(run(4, 2, 0, {{1, 0}}).empty());
  CHECK(run(4, 2, 9, {}).empty());
  CHECK(run(4, 2, 0, {{0, 4}}).empty());
  CHECK(run(4, 2, 0, {{1, 1}, {0, 2}}).empty());
  CHECK(run(4, 2, 0, {{2, 1}}).empty());
}

TEST(page_lists_hold_what_the_window_sees) {
  const ProgramMaker made = Make(kWindow);
  const auto model = Cpu(1)->Load(made.program, {});
  CHECK_OK(model);
  auto context = (*model)->CreateContext(OptionsFor(*made.program, 1));
  CHECK_OK(context);
  const auto status = [&](uint32_t position, uint32_t first_page, std::vector<uint32_t> pages) {
    const backend::StepRow row = {0, position, 0};
    backend::StepCache cache;
    cache.pages = pages;
    cache.first_page = first_page;
    const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1), 0};
    backend::Step step;
    step.rows = absl::MakeConstSpan(&row, 1);
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    return (*context)->Run(step).ok();
  };
  // Position 100 sees 31 to 100: pages 1 to 6.
  CHECK(status(100, 1, {0, 1, 2, 3, 4, 5}));
  CHECK(!status(100, 2, {1, 2, 3, 4, 5}));
  CHECK(!status(100, 1, {0, 1, 2, 3, 4}));
  CHECK(!status(100, 1, {0, 1, 2, 3, 4, 100'000}));
}

// A draft Program over the target's embedding and head, whose input are the target's hidden states:
// x = embedding + W · tapped, then attention of its own. The same in one Program gives the same bits.
TEST(a_draft_reads_the_targets_hidden_states) {
  const ProgramMaker base = Make(kFull);
  const auto copy_of_base = [&base] {
    ProgramMaker m = base;
    m.program = std::make_shared<backend::Program>(*base.program);
    return m;
  };
  ProgramMaker target = copy_of_base(), draft = copy_of_base(), one = copy_of_base();
  const backend::LogitsOp head = std::get<backend::LogitsOp>(base.program->ops.back());

  const backend::BufferId kept = target.Buffer("kept", kHidden);
  target.program->taps.push_back(kept);
  target.program->ops.insert(target.program->ops.end() - 1,
                             backend::TapOp{target.program->x, kept});

  backend::Program& d = *draft.program;
  d.ops.clear();
  d.caches.clear();
  const backend::BufferId input = draft.Buffer("input", kHidden);
  d.ops.push_back(backend::InputOp{0, input});
  d.ops.push_back(backend::EmbedOp{0, d.x});
  d.ops.push_back(
      backend::MatmulAddOp{input, draft.Matrix("draft.in", kHidden, kHidden), d.x});
  AddAttention(draft, "draft", {2, 1, 32, 32, 0}, /*plain=*/false);
  d.ops.push_back(head);

  // One: the target's ops up to the tap, then the draft's behind its input. All three began with the
  // same lists, so ids mean the same: `kept` is the draft's `input`.
  CHECK_EQ(kept, input);
  backend::Program& o = *one.program;
  o.ops.assign(target.program->ops.begin(), target.program->ops.end() - 1);
  o.ops.insert(o.ops.end(), d.ops.begin() + 1, d.ops.end());
  std::get<AttentionOp>(o.ops[o.ops.size() - 3]).cache = 1;
  o.caches.push_back(d.caches[0]);
  o.weights = d.weights;
  o.buffers = d.buffers;
  o.ropes = d.ropes;
  o.taps = target.program->taps;
  for (const ProgramMaker* m : {&one, &target, &draft}) CHECK_OK(backend::Check(*m->program));

  const auto alone = Cpu(2)->Load(one.program, {});
  const auto both = Cpu(2)->Load(
      std::vector<std::shared_ptr<const backend::Program>>{target.program, draft.program}, {});
  CHECK_OK(alone);
  CHECK_OK(both);
  // Shared weights stand in memory once.
  CHECK_EQ((*alone)->weight_bytes(), (*both)->weight_bytes());
  CHECK_EQ((*both)->programs().size(), 2u);
  auto one_context = (*alone)->CreateContext(OptionsFor(*one.program, 64));
  auto target_context = (*both)->CreateContext(OptionsFor(*target.program, 64));
  CHECK_OK(one_context);
  CHECK_OK(target_context);
  backend::ContextOptions options = OptionsFor(*draft.program, 64);
  options.program = 1;
  CHECK(!(*both)->CreateContext(options).ok());  // no source
  options.source = target_context->get();
  auto draft_context = (*both)->CreateContext(options);
  CHECK_OK(draft_context);
  Sequence one_s(*one.program, 0), target_s(*target.program, 0), draft_s(*draft.program, 0);
  for (const uint32_t rows : {30u, 1u, 1u, 9u, 1u}) {
    std::vector<uint32_t> inputs(rows);
    std::iota(inputs.begin(), inputs.end(), 0);
    const auto want = RunStep(**one_context, {&one_s}, {rows});
    CHECK_EQ(RunStep(**target_context, {&target_s}, {rows}).size(), 1u);
    const auto got = RunStep(**draft_context, {&draft_s}, {rows}, inputs);
    CHECK_EQ(want.size(), 1u);
    CHECK(want == got);
  }
  // Rows that the target's last step did not have.
  const uint32_t beyond[] = {1};
  CHECK(RunStep(**draft_context, {&draft_s}, {1}, beyond).empty());
  CHECK(RunStep(**draft_context, {&draft_s}, {1}).empty());
}

// What Check finds wrong with a Program, op by op.
TEST(wrong_programs_are_named) {
  const auto refused = [](uint32_t parts, void (*change)(backend::Program&)) {
    const ProgramMaker made = Make(parts);
    change(*made.program);
    const Status status = backend::Check(*made.program);
    return status.ok() ? std::string("taken") : std::string(status.message());
  };
  const auto holds = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  using backend::Program;
  CHECK_EQ(refused(kFull, [](Program&) {}), "taken");
  CHECK(holds(refused(kFull, [](Program& p) { std::get<AttentionOp>(p.ops[2]).cache = 1; }),
              "op 2 attention"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<AttentionOp>(p.ops[2]).layer = 1; }),
              "no layer 1"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<AttentionOp>(p.ops[2]).rope = 0; }),
              "no rope 0"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<AttentionOp>(p.ops[2]).sinks = 0; }),
              "not a vector of 4"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<AttentionOp>(p.ops[2]).heads = 3; }),
              "3 heads to 4"));
  CHECK(holds(refused(kRecurrent,
                      [](Program& p) { std::get<backend::SlotCache>(p.caches[0]).bytes = 8; }),
              "a state of 8 bytes"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<backend::EmbedOp>(p.ops[0]).table = 99; }),
              "no weight 99"));
  CHECK(holds(refused(kFull, [](Program& p) { std::get<backend::EmbedOp>(p.ops[0]).x = -1; }),
              "no buffer -1"));
}

// What the engine counts with before a context is made is what the context then takes.
TEST(a_unit_of_each_cache_takes_what_the_room_says) {
  const ProgramMaker made = Make(kFull | kWindow | kRecurrent);
  auto model = Cpu(1)->Load(made.program, {});
  CHECK_OK(model);
  for (const backend::KvType type : {backend::KvType::kBF16, backend::KvType::kF32}) {
    const backend::KvRoom room = (*model)->kv_room(type);
    CHECK_EQ(room.unit_bytes.size(), 3u);
    CHECK_GT(room.bytes, 0u);
    backend::ContextOptions options = OptionsFor(*made.program, 4);
    options.kv_type = type;
    options.pages.resize(3);
    options.slots.resize(3);
    for (size_t c = 0; c < 3; ++c) {
      const bool slots = std::holds_alternative<backend::SlotCache>(made.program->caches[c]);
      // Whole chunks of pages and of memory pages.
      (slots ? options.slots : options.pages)[c] = 4096;
      auto few = (*model)->CreateContext(options);
      CHECK_OK(few);
      (slots ? options.slots : options.pages)[c] = 3 * 4096;
      auto many = (*model)->CreateContext(options);
      CHECK_OK(many);
      CHECK_EQ((*many)->memory_bytes() - (*few)->memory_bytes(), 2 * 4096 * room.unit_bytes[c]);
    }
  }
}

}  // namespace
}  // namespace mainarch
