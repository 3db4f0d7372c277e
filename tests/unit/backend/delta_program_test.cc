// SPDX-License-Identifier: MIT
//
// Programs with recurrent state on CPUs and GPUs: gated delta nets beside attention and alone, and a
// draft whose inputs a state carries on. Against fp64; the same bits on any number of GPUs.
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/backend.h"
#include "support/gpus.h"
#include "support/program_maker.h"
#include "support/test.h"

namespace mainarch {
namespace {

using backend::BufferId;
using backend::GatedDeltaOp;
using backend::kNoSlot;
using backend::kNone;
using backend::StateOut;
using backend::WeightId;
using test::ProgramMaker;
using test::ProgramReference;

constexpr int32_t kHidden = 64, kVocab = 128;
constexpr uint32_t kPages = 4, kSlots = 16;

// A Program of some ranks, each of which has its share of heads.
class ShardedMaker : public ProgramMaker {
 public:
  explicit ShardedMaker(int32_t ranks) : ProgramMaker(kHidden, kVocab, 7), ranks_(ranks) {
    program->ranks = ranks;
    program->ops.push_back(backend::EmbedOp{
        Whole(Weight("embed", backend::WeightLayout::kTable, kVocab, kHidden, 1)), program->x});
  }

  BufferId Part(const std::string& label, int64_t width) { return Buffer(label, width / ranks_); }
  WeightId Whole(WeightId id) {
    auto& ranks = program->weights[static_cast<size_t>(id)].ranks;
    ranks.resize(static_cast<size_t>(ranks_), ranks[0]);
    return id;
  }
  // Each rank has its part of each section of rows, or of columns.
  WeightId Cut(WeightId id, const std::vector<int64_t>& sections, bool columns) {
    backend::Weight& weight = program->weights[static_cast<size_t>(id)];
    const backend::WeightSlice all = weight.ranks[0][0];
    weight.ranks.assign(static_cast<size_t>(ranks_), {});
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      int64_t first = 0;
      for (const int64_t size : sections) {
        backend::WeightSlice slice = all;
        (columns ? slice.col_begin : slice.row_begin) = first + size * rank / ranks_;
        (columns ? slice.col_end : slice.row_end) = first + size * (rank + 1) / ranks_;
        weight.ranks[static_cast<size_t>(rank)].push_back(slice);
        first += size;
      }
    }
    return id;
  }
  // x += W · in, in sharded.
  void Project(const std::string& label, BufferId in, int64_t width) {
    const WeightId w = Cut(Matrix(label, kHidden, width), {width}, /*columns=*/true);
    for (int64_t i = 0; i <= 8; ++i) {
      program->weights[static_cast<size_t>(w)].splits.push_back(width * i / 8);
    }
    if (ranks_ == 1) {
      program->ops.push_back(backend::MatmulAddOp{in, w, program->x});
      return;
    }
    const BufferId partial = Buffer(label + ".partial", kHidden);
    program->ops.push_back(backend::MatmulOp{in, w, partial});
    program->ops.push_back(backend::AllReduceAddOp{partial, program->x});
  }
  void AddDelta(const std::string& label, int32_t cache, int32_t layer) {
    const int64_t q = kKeyHeads * kKeyDim, v = kValueHeads * kValueDim;
    const WeightId norm = Whole(Norm(label + ".norm", kHidden));
    GatedDeltaOp op = {};
    op.in = Part(label + ".in", 2 * q + 2 * v);
    op.gates = Part(label + ".gates", 2 * kValueHeads);
    op.out = Part(label + ".out", v);
    program->ops.push_back(backend::NormMatmulOp{
        program->x, norm,
        Cut(Matrix(label + ".in", 2 * q + 2 * v, kHidden), {q, q, v, v}, /*columns=*/false),
        op.in});
    program->ops.push_back(backend::NormMatmulOp{
        program->x, norm,
        Cut(Matrix(label + ".gates", 2 * kValueHeads, kHidden), {kValueHeads, kValueHeads}, false),
        op.gates});
    op.cache = cache;
    op.layer = layer;
    op.key_heads = kKeyHeads / ranks_;
    op.value_heads = kValueHeads / ranks_;
    op.key_dim = kKeyDim;
    op.value_dim = kValueDim;
    op.taps = kTaps;
    op.conv = Cut(Vector(label + ".conv", (2 * q + v) * kTaps, 0.6f),
                  {q * kTaps, q * kTaps, v * kTaps}, /*columns=*/true);
    op.decay = Cut(Vector(label + ".decay", kValueHeads, 0.7f), {kValueHeads}, true);
    op.dt_bias = Cut(Vector(label + ".dt_bias", kValueHeads, 1), {kValueHeads}, true);
    op.norm = Whole(Norm(label + ".o_norm", kValueDim));
    program->ops.push_back(op);
    Project(label + ".out", op.out, v);
    state_bytes_ = backend::DeltaStateBytes(op);
  }
  void AddAttention(int32_t cache) {
    constexpr int64_t kQ = 8 * 32, kKv = 4 * 32;
    backend::AttentionOp op = {};
    op.qkv = Part("qkv", kQ + 2 * kKv);
    op.out = Part("attention", kQ);
    op.cache = cache;
    op.heads = 8 / ranks_;
    op.rope = Rope(32);
    op.scale = 1 / std::sqrt(32.0);
    program->ops.push_back(backend::NormMatmulOp{
        program->x, Whole(Norm("attention.norm", kHidden)),
        Cut(Matrix("qkv", kQ + 2 * kKv, kHidden), {kQ, kKv, kKv}, /*columns=*/false), op.qkv});
    program->ops.push_back(op);
    Project("attention.o", op.out, kQ);
  }
  void AddLogits() {
    program->ops.push_back(
        backend::LogitsOp{program->x, Whole(Norm("final", kHidden)),
                          Cut(Matrix("head", kVocab, kHidden), {kVocab}, /*columns=*/false)});
  }
  int64_t state_bytes() const { return state_bytes_; }

 private:
  static constexpr int32_t kKeyHeads = 4, kValueHeads = 8, kKeyDim = 32, kValueDim = 32, kTaps = 4;
  const int32_t ranks_;
  int64_t state_bytes_ = 0;
};

// Two layers of state, in slots, and between them attention over the second cache.
std::shared_ptr<backend::Program> Hybrid(int32_t ranks, bool attention) {
  ShardedMaker m(ranks);
  m.AddDelta("first", 0, 0);
  if (attention) m.AddAttention(1);
  m.AddDelta("second", 0, 1);
  m.AddLogits();
  m.program->caches.push_back(backend::SlotCache{"state", 2, m.state_bytes()});
  if (attention) m.program->caches.push_back(backend::PagedCache{"kv", 1, 4 / ranks, 32, 32, 0});
  return m.program;
}

std::shared_ptr<backend::Backend> Open(const std::string& device) {
  backend::BackendOptions options;
  options.device = device;
  options.threads = 2;
  auto backend = backend::CreateBackend(options);
  return backend.ok() ? *backend : nullptr;
}

StatusOr<std::unique_ptr<backend::Context>> MakeContext(const backend::LoadedModel& model,
                                                        const backend::Context* source = nullptr) {
  backend::ContextOptions options;
  options.program = source == nullptr ? 0 : 1;
  options.source = source;
  const backend::Program& program = *model.programs()[options.program];
  options.kv_type = quant::KvType::kF32;
  options.max_rows = options.max_logit_rows = 20;
  options.max_sequences = 2;
  for (const backend::Cache& cache : program.caches) {
    const bool slots = std::holds_alternative<backend::SlotCache>(cache);
    options.pages.push_back(slots ? 0 : 2 * kPages);
    options.slots.push_back(slots ? kSlots : 0);
  }
  return model.CreateContext(options);
}

// Tokens of one sequence from a position on, and where its state comes from and goes.
struct Part {
  uint32_t table;
  uint32_t position;
  std::vector<uint32_t> tokens;
  uint32_t in;
  std::vector<StateOut> out;
};

// A step with the logits of its last rows of each part; lives until it is submitted.
class OneStep {
 public:
  OneStep(const backend::Program& program, std::vector<Part> parts,
          std::vector<uint32_t> inputs = {})
      : parts_(std::move(parts)), inputs_(std::move(inputs)), caches_(parts_.size()) {
    for (uint32_t s = 0; s < parts_.size(); ++s) {
      const Part& part = parts_[s];
      for (uint32_t page = 0; page < kPages; ++page) {
        pages_[part.table][page] = 2 * (kPages - 1 - page) + part.table;
      }
      for (const backend::Cache& cache : program.caches) {
        backend::StepCache& list = caches_[s].emplace_back();
        if (std::holds_alternative<backend::PagedCache>(cache)) {
          list.pages = pages_[part.table];
        } else {
          list.state_in = part.in;
          list.state_out = part.out;
        }
      }
      sequences_.push_back({caches_[s], part.table});
      for (uint32_t i = 0; i < part.tokens.size(); ++i) {
        rows_.push_back({part.tokens[i], part.position + i, s});
      }
      last_.push_back(static_cast<uint32_t>(rows_.size()) - 1);
    }
  }
  OneStep(const OneStep&) = delete;
  OneStep& operator=(const OneStep&) = delete;

  backend::Step step() const {
    backend::Step step;
    step.rows = rows_;
    step.sequences = sequences_;
    step.logit_rows = last_;
    step.inputs = inputs_;
    return step;
  }

 private:
  const std::vector<Part> parts_;
  const std::vector<uint32_t> inputs_;
  uint32_t pages_[2][kPages];
  std::vector<std::vector<backend::StepCache>> caches_;
  std::vector<backend::StepSequence> sequences_;
  std::vector<backend::StepRow> rows_;
  std::vector<uint32_t> last_;
};

using Logits = std::vector<std::vector<float>>;

// Runs steps and keeps their logits.
class Runner {
 public:
  Runner(const backend::Program& program, backend::Context& context, Logits* logits)
      : program_(program), context_(context), logits_(logits) {}

  Status Run(std::vector<Part> parts, std::vector<uint32_t> inputs = {}) {
    const OneStep step(program_, std::move(parts), std::move(inputs));
    RETURN_IF_ERROR(context_.Run(step.step()));
    Keep(step);
    return OkStatus();
  }
  void Keep(const OneStep& step) {
    for (uint32_t i = 0; i < step.step().logit_rows.size(); ++i) {
      const absl::Span<float> row = context_.Logits(i);
      logits_->emplace_back(row.begin(), row.end());
    }
  }

 private:
  const backend::Program& program_;
  backend::Context& context_;
  Logits* const logits_;
};

std::vector<uint32_t> Tokens(uint32_t first, uint32_t count, uint32_t seed = 0) {
  std::vector<uint32_t> out;
  for (uint32_t i = first; i < first + count; ++i) out.push_back((i * 37 + 11 * seed + 5) % kVocab);
  return out;
}

// A prompt with a snapshot inside, drafts of which two are kept, another sequence beside; then from
// the snapshot again, and from a copy of a slot; at last two steps in flight.
Status Play(const backend::LoadedModel& model, Logits* logits) {
  ASSIGN_OR_RETURN(auto context, MakeContext(model));
  const backend::Program& program = model.program();
  Runner runner(program, *context, logits);
  RETURN_IF_ERROR(runner.Run({{0, 0, Tokens(0, 12), kNoSlot, {{3, 0}, {11, 1}}},
                              {1, 0, Tokens(0, 3, 1), kNoSlot, {{2, 5}}}}));
  RETURN_IF_ERROR(runner.Run({{0, 12, Tokens(12, 4), 1, {{0, 2}, {1, 3}, {2, 4}, {3, 6}}}}));
  RETURN_IF_ERROR(runner.Run({{1, 3, Tokens(3, 1, 1), 5, {{0, 8}}},
                              {0, 14, Tokens(14, 2, 2), 3, {{1, 7}}}}));
  RETURN_IF_ERROR(runner.Run({{0, 4, Tokens(4, 8), 0, {}}}));
  ASSIGN_OR_RETURN(const std::string bytes, context->ReadContent(0, 7));
  RETURN_IF_ERROR(context->WriteContent(0, 9, bytes));
  const OneStep one(program, {{0, 16, Tokens(16, 1, 2), 9, {{0, 10}}}});
  const OneStep two(program, {{0, 17, Tokens(17, 1, 2), 10, {{0, 11}}}});
  RETURN_IF_ERROR(context->Submit(one.step()));
  if (context->max_in_flight() > 1) RETURN_IF_ERROR(context->Submit(two.step()));
  RETURN_IF_ERROR(context->Poll(-1).status());
  runner.Keep(one);
  if (context->max_in_flight() == 1) RETURN_IF_ERROR(context->Submit(two.step()));
  RETURN_IF_ERROR(context->Poll(-1).status());
  runner.Keep(two);
  return OkStatus();
}

// The same in fp64, each from its sequence's start.
std::vector<std::vector<double>> Wanted(const backend::Program& program) {
  std::vector<std::vector<double>> out;
  const auto add = [&](const std::vector<std::vector<uint32_t>>& parts) {
    ProgramReference reference(program);
    out.emplace_back();
    for (const auto& part : parts) {
      for (const uint32_t token : part) out.back() = reference.Token(token);
    }
  };
  add({Tokens(0, 12)});
  add({Tokens(0, 3, 1)});
  add({Tokens(0, 16)});
  add({Tokens(0, 4, 1)});
  add({Tokens(0, 14), Tokens(14, 2, 2)});
  add({Tokens(0, 12)});
  add({Tokens(0, 14), Tokens(14, 3, 2)});
  add({Tokens(0, 14), Tokens(14, 4, 2)});
  return out;
}

double WorstOf(const std::vector<float>& got, const std::vector<double>& want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(double{got[i]} - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

// Checkers take some fifty times as long: kernels have them in their own tests, and the draft below.
std::string CheckAll() { return std::getenv("MAINARCH_TEST_FULL") != nullptr ? ",check=all" : ""; }

TEST(hybrid_programs_match_fp64_with_the_same_bits_on_any_ranks) {
  for (const bool attention : {true, false}) {
    const auto want = Wanted(*Hybrid(1, attention));
    for (const std::string chip : {"cpu", "gfx942", "gfx950"}) {
      if (!test::IsHere(chip)) continue;
      Logits first;
      for (const int32_t ranks : {1, 2, 4}) {
        const std::string device =
            chip == "cpu" ? absl::StrCat("cpu:", ranks)
                          : absl::StrCat("sim:", chip, "x", ranks, ",poison=1", CheckAll());
        const auto backend = Open(device);
        CHECK(backend != nullptr);
        const auto program = Hybrid(ranks, attention);
        CHECK_OK(backend::Check(*program));
        const auto model = backend->Load(program, {});
        CHECK_OK(model);
        Logits got;
        CHECK_OK(Play(**model, &got));
        CHECK_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) CHECK_LE(WorstOf(got[i], want[i]), 2e-5);
        // Rows run again from the snapshot inside.
        CHECK(got[5] == got[0]);
        if (first.empty()) first = got;
        CHECK(got == first);
      }
    }
  }
}

// A target that keeps x, and a draft: x = embedding + W · (what it takes). It keeps x, too.
backend::BufferId AddTap(ShardedMaker& m) {
  const BufferId kept = m.Buffer("kept", kHidden);
  m.program->taps.push_back(kept);
  m.program->ops.push_back(backend::TapOp{m.program->x, kept});
  return kept;
}
std::vector<std::shared_ptr<const backend::Program>> TargetAndDraft(int32_t ranks) {
  ShardedMaker target(ranks), draft(ranks);
  target.AddDelta("first", 0, 0);
  target.program->caches.push_back(backend::SlotCache{"state", 1, target.state_bytes()});
  AddTap(target);
  target.AddLogits();
  const BufferId taken = draft.Buffer("taken", kHidden);
  AddTap(draft);
  const backend::Op tap = draft.program->ops.back();
  draft.program->ops.pop_back();
  draft.program->ops.push_back(backend::InputOp{0, taken, /*cache=*/0, /*layer=*/0, /*own=*/0});
  draft.program->ops.push_back(backend::MatmulAddOp{
      taken, draft.Whole(draft.Matrix("taken", kHidden, kHidden)), draft.program->x});
  draft.AddDelta("own", 1, 0);
  draft.program->ops.push_back(tap);
  draft.AddLogits();
  draft.program->caches.push_back(backend::SlotCache{"carried", 1, kHidden * 4});
  draft.program->caches.push_back(backend::SlotCache{"state", 1, draft.state_bytes()});
  return {target.program, draft.program};
}

Status PlayDraft(const backend::LoadedModel& model, Logits* logits) {
  ASSIGN_OR_RETURN(auto target, MakeContext(model));
  ASSIGN_OR_RETURN(auto draft, MakeContext(model, target.get()));
  constexpr uint32_t kCarried = backend::kCarriedInput, kOwn = backend::kOwnInput;
  Runner t(model.program(), *target, logits), d(*model.programs()[1], *draft, logits);
  RETURN_IF_ERROR(t.Run({{0, 0, Tokens(0, 5), kNoSlot, {{4, 0}}},
                         {1, 0, Tokens(0, 2, 1), kNoSlot, {{1, 1}}}}));
  // Each takes the row before; two states are kept, of rows with the target's index.
  RETURN_IF_ERROR(d.Run({{0, 0, Tokens(0, 5), kNoSlot, {{2, 3}, {4, 0}}},
                         {1, 0, Tokens(0, 2, 1), kNoSlot, {{1, 1}}}},
                        {kCarried, 0, 1, 2, 3, kCarried, 5}));
  // Drafts: rows of its own, of the second sequence, then of the first.
  RETURN_IF_ERROR(d.Run({{1, 2, Tokens(2, 1, 1), 1, {}}, {0, 5, Tokens(5, 1), 0, {}}},
                        {kOwn | 6, kOwn | 4}));
  RETURN_IF_ERROR(t.Run({{0, 5, Tokens(5, 2), 0, {{1, 2}}}}));
  RETURN_IF_ERROR(d.Run({{0, 5, Tokens(5, 2), 0, {{1, 2}}}}, {kCarried, 0}));
  RETURN_IF_ERROR(t.Run({{0, 7, Tokens(7, 1), 2, {{0, 0}}}}));
  RETURN_IF_ERROR(d.Run({{0, 7, Tokens(7, 1), 2, {{0, 4}}}}, {kCarried}));
  // From the snapshot after row 2.
  RETURN_IF_ERROR(d.Run({{0, 3, Tokens(3, 1), 3, {}}}, {kCarried}));
  // Refused: a row that its last step had not, an input carried into the middle of a sequence, states
  // where the target had other rows.
  struct {
    Part part;
    std::vector<uint32_t> inputs;
  } const wrong[] = {{{0, 4, Tokens(4, 1), 3, {}}, {kOwn | 1}},
                     {{0, 4, Tokens(4, 2), 3, {}}, {kCarried, kCarried}},
                     {{0, 4, Tokens(4, 2), 3, {{1, 4}}}, {kCarried, 0}},
                     {{0, 4, Tokens(4, 1), 3, {{0, 3}}}, {kCarried}},
                     {{0, 4, Tokens(4, 1), kSlots, {}}, {kCarried}}};
  for (const auto& step : wrong) {
    if (CodeOf(d.Run({step.part}, step.inputs)) != Code::kInternal) {
      return Error(Code::kInternal, "a wrong step was not refused");
    }
  }
  return OkStatus();
}

TEST(a_draft_takes_what_its_state_carries_and_rows_of_its_own) {
  Logits want;
  for (const std::string device : {"cpu", "cpu:2", "sim:gfx942,poison=1", "sim:gfx942x2,poison=1",
                                   "sim:gfx950,poison=1,check=all", "sim:gfx950x2,poison=1"}) {
    if (!test::IsHere(device)) continue;
    const bool checked = device[0] == 'c' || device.find("check") != std::string::npos;
    const auto backend = Open(checked ? device : device + CheckAll());
    CHECK(backend != nullptr);
    const auto model = backend->Load(TargetAndDraft(backend->ranks()), {});
    CHECK_OK(model);
    Logits got;
    CHECK_OK(PlayDraft(**model, &got));
    if (want.empty()) want = got;
    CHECK_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK_LE(WorstOf(got[i], {want[i].begin(), want[i].end()}), 2e-5);
    }
  }
}

}  // namespace
}  // namespace mainarch
