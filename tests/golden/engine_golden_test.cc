// SPDX-License-Identifier: MIT
//
// The engine over the real CPU backend and the trained checkpoint: greedy continuations of
// transformers, and the same tokens whatever the batch mix, chunk size, pool size and rank count.
// MAINARCH_TEST_FULL: more on virtual nodes.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "backend/cpu/dispatch.h"
#include "decode/engine.h"
#include "golden/golden.h"
#include "support/gpus.h"
#include "support/sanitized.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr int kPrompts = 4;

bool Full() { return std::getenv("MAINARCH_TEST_FULL") != nullptr; }

StatusOr<std::shared_ptr<const model::Model>> LoadTrained(const std::string& device,
                                                          const std::string& name,
                                                          bool draft_head) {
  backend::BackendOptions options;
  options.device = device;
  options.threads = 2;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(options));
  return model::Model::Load(std::move(backend), test::SourcePath("tests/golden/" + name), {},
                            draft_head ? model::Part::kModelAndDrafts : model::Part::kModel);
}

struct Setup {
  std::string device = "cpu";
  uint32_t step_tokens = 64;
  uint64_t kv_tokens = 0;  // 0: enough for all
  backend::KvType kv = backend::KvType::kF32;
  bool submit = false;
  std::string model = "trained";
  DraftKind drafts = DraftKind::kNone;
  uint32_t max_drafts = 0;
};

// What every prompt produces, all in one engine, or "why not" in `status`.
std::vector<std::vector<uint32_t>> Generate(const Setup& setup, const SequenceOptions& options,
                                            const std::vector<std::vector<uint32_t>>& prompts,
                                            Status* status, EngineInfo* info = nullptr) {
  std::vector<std::vector<uint32_t>> produced;
  auto model = LoadTrained(setup.device, setup.model, setup.drafts == DraftKind::kHead);
  *status = model.status();
  if (!model.ok()) return produced;
  EngineOptions o;
  o.max_sequences = static_cast<uint32_t>(prompts.size());
  o.max_sequence_tokens = 200;
  o.max_step_tokens = setup.step_tokens;
  o.kv_tokens = setup.kv_tokens;
  o.kv_type = setup.kv;
  o.draft_kind = setup.drafts;
  o.max_drafts = setup.max_drafts;
  auto engine = Engine::Create(*model, o);
  *status = engine.status();
  if (!engine.ok()) return produced;
  std::vector<SequenceId> ids;
  for (const std::vector<uint32_t>& prompt : prompts) {
    auto id = (*engine)->Open(options);
    *status = id.ok() ? (*engine)->Append(*id, prompt) : id.status();
    if (!status->ok()) return produced;
    ids.push_back(*id);
  }
  while (true) {
    auto worked = setup.submit ? (*engine)->Submit() : (*engine)->RunStep();
    *status = worked.status();
    if (status->ok() && setup.submit) *status = (*engine)->Wait(-1).status();
    if (!status->ok()) return produced;
    if (!*worked) break;
  }
  for (const SequenceId id : ids) {
    produced.emplace_back(300);
    auto n = (*engine)->Take(id, absl::MakeSpan(produced.back()));
    produced.back().resize(n.ok() ? *n : 0);
  }
  if (info != nullptr) *info = (*engine)->info();
  return produced;
}

std::vector<std::vector<uint32_t>> Prompts(const test::Golden& golden) {
  std::vector<std::vector<uint32_t>> prompts;
  for (int p = 0; p < kPrompts; ++p) {
    prompts.push_back(golden.Tokens("p" + std::to_string(p) + ".prompt"));
  }
  return prompts;
}

}  // namespace

TEST(greedy_continuations_equal_transformers_through_the_engine) {
  auto golden = test::Golden::Open("trained");
  CHECK_OK(golden);
  SequenceOptions options;
  options.ignore_eos = true;
  options.max_tokens = 48;
  for (const Setup& setup : {Setup{}, Setup{"cpu", 3, 160}, Setup{"cpu:2", 16, 0}}) {
    Status status;
    const auto produced = Generate(setup, options, Prompts(*golden), &status);
    CHECK_OK(status);
    for (int p = 0; p < kPrompts; ++p) {
      const std::string prefix = "p" + std::to_string(p) + ".greedy.";
      const std::vector<uint32_t> expected = golden->Tokens(prefix + "ids");
      CHECK_EQ(expected.size(), 48u);
      CHECK(produced[static_cast<size_t>(p)] == expected);
    }
  }
}

// Plainly, and however it is guessed ahead; the head that was trained with it guesses well.
TEST(a_hybrids_greedy_continuations_equal_transformers_with_and_without_drafts) {
  auto golden = test::Golden::Open("trained_hybrid");
  CHECK_OK(golden);
  SequenceOptions options;
  options.ignore_eos = true;
  options.max_tokens = 48;
  std::vector<Setup> setups = {Setup{}, Setup{"cpu:2", 7, 0}};
  for (const DraftKind kind : {DraftKind::kHead, DraftKind::kNgram}) {
    for (uint32_t k = 1; k <= 4; ++k) {
      setups.emplace_back().drafts = kind;
      setups.back().max_drafts = k;
    }
  }
  for (Setup& setup : setups) {
    setup.model = "trained_hybrid";
    Status status;
    EngineInfo info;
    const auto produced = Generate(setup, options, Prompts(*golden), &status, &info);
    CHECK_OK(status);
    for (int p = 0; p < kPrompts; ++p) {
      CHECK(produced[static_cast<size_t>(p)] ==
            golden->Tokens("p" + std::to_string(p) + ".greedy.ids"));
    }
    if (setup.drafts == DraftKind::kNone) continue;
    std::printf("# %s, %u a step: %llu guesses, %llu right\n",
                setup.drafts == DraftKind::kHead ? "head" : "n-grams", setup.max_drafts,
                static_cast<unsigned long long>(info.drafts),
                static_cast<unsigned long long>(info.drafts_accepted));
    CHECK_LE(info.drafts_accepted, info.drafts);
    if (setup.drafts == DraftKind::kHead) CHECK_GT(4 * info.drafts_accepted, info.drafts);
  }
}

// The head on virtual nodes: it guesses there what it guesses on the CPU. (Of ten tokens a head that takes wrong rows
// guesses as many right.)
TEST(a_hybrids_greedy_continuations_on_gpus_equal_transformers_with_drafts) {
  NEEDS_GPUS();
  auto golden = test::Golden::Open("trained_hybrid");
  CHECK_OK(golden);
  SequenceOptions options;
  options.ignore_eos = true;
  options.max_tokens = test::kSanitized ? 16 : 48;  // minutes under the thread sanitizer
  std::vector<Setup> setups = {{"sim:gfx950", 16}, {"sim:gfx942x2", 16}};
  if (Full()) setups.insert(setups.end(), {{"sim:gfx942", 5}, {"sim:gfx950x4", 7}});
  for (Setup& setup : setups) {
    setup.model = "trained_hybrid";
    setup.drafts = DraftKind::kHead;
    setup.kv = backend::KvType::kBF16;
    const std::string device = setup.device;
    setup.max_drafts = 3;
    Status status;
    EngineInfo info, cpu_info;
    const auto produced = Generate(setup, options, Prompts(*golden), &status, &info);
    CHECK_OK(status);
    setup.device = "cpu";
    CHECK(Generate(setup, options, Prompts(*golden), &status, &cpu_info) == produced);
    CHECK_EQ(info.drafts, cpu_info.drafts);
    for (size_t i = 0; i < std::size(info.drafts_accepted_at); ++i) {
      CHECK_EQ(info.drafts_accepted_at[i], cpu_info.drafts_accepted_at[i]);
    }
    for (size_t p = 0; p < kPrompts; ++p) {
      std::vector<uint32_t> expected = golden->Tokens(absl::StrCat("p", p, ".greedy.ids"));
      expected.resize(options.max_tokens);
      CHECK(produced[p] == expected);
    }
    std::printf("# %s: %llu guesses, %llu right\n", device.c_str(),
                static_cast<unsigned long long>(info.drafts),
                static_cast<unsigned long long>(info.drafts_accepted));
    CHECK_GT(4 * info.drafts_accepted, info.drafts);
  }
}

TEST(sampled_tokens_are_the_same_in_every_batch_chunking_and_pool) {
  auto golden = test::Golden::Open("trained");
  CHECK_OK(golden);
  const auto prompts = Prompts(*golden);
  SequenceOptions options;
  options.ignore_eos = true;
  options.max_tokens = 40;
  options.temperature = 1;
  options.top_p = 0.95f;
  options.presence_penalty = 0.5f;
  options.seed = 11;
  for (const backend::KvType kv : {backend::KvType::kBF16, backend::KvType::kFp8,
                                   backend::KvType::kFp4, backend::KvType::kK8V4}) {
    // Each prompt alone, one row a step.
    std::vector<std::vector<uint32_t>> alone;
    Status status;
    for (const auto& prompt : prompts) {
      alone.push_back(Generate({"cpu", 1, 0, kv}, options, {prompt}, &status)[0]);
      CHECK_OK(status);
    }
    for (const Setup& setup : {Setup{"cpu", 64, 0, kv}, Setup{"cpu", 5, 0, kv, true},
                               Setup{"cpu", 17, 128, kv}, Setup{"cpu:4", 33, 144, kv}}) {
      const auto together = Generate(setup, options, prompts, &status);
      CHECK_OK(status);
      CHECK(together == alone);
    }
  }
}

namespace {

// Raw logits after all pending tokens of a manual sequence have run.
std::vector<float> LogitsNow(Engine* engine, SequenceId id) {
  while (true) {
    auto worked = engine->RunStep();
    if (!worked.ok()) return {};
    if (!*worked) break;
  }
  auto logits = engine->Logits(id);
  if (!logits.ok()) return {};
  return std::vector<float>(logits->begin(), logits->end());
}

}  // namespace

TEST(a_fork_and_a_truncated_sequence_have_the_bits_of_a_fresh_one) {
  auto golden = test::Golden::Open("trained");
  CHECK_OK(golden);
  const std::vector<uint32_t> text = golden->Tokens("heldout.ids");
  const absl::Span<const uint32_t> all = absl::MakeConstSpan(text).subspan(0, 150);
  for (const char* device : {"cpu", "cpu:4"}) {
    auto model = LoadTrained(device, "trained", false);
    CHECK_OK(model);
    for (backend::KvType kv : {backend::KvType::kBF16, backend::KvType::kFp8, backend::KvType::kFp4,
                               backend::KvType::kK8V4}) {
      EngineOptions o;
      o.max_sequences = 4;
      o.max_sequence_tokens = 200;
      o.max_step_tokens = 37;
      o.kv_type = kv;
      auto engine = Engine::Create(*model, o);
      CHECK_OK(engine);
      SequenceOptions manual;
      manual.manual = true;
      auto fresh = (*engine)->Open(manual);
      CHECK_OK(fresh);
      CHECK_OK((*engine)->Append(*fresh, all));
      const std::vector<float> want = LogitsNow(engine->get(), *fresh);
      CHECK_EQ(want.size(), 2048u);

      // Forked in mid-page, the parent goes elsewhere; then truncated back and run again.
      auto parent = (*engine)->Open(manual);
      CHECK_OK(parent);
      CHECK_OK((*engine)->Append(*parent, all.subspan(0, 75)));
      CHECK(!LogitsNow(engine->get(), *parent).empty());
      auto child = (*engine)->Fork(*parent);
      CHECK_OK(child);
      CHECK_OK((*engine)->Append(*parent, {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
      CHECK_OK((*engine)->Append(*child, all.subspan(75)));
      CHECK(LogitsNow(engine->get(), *child) == want);
      CHECK_OK((*engine)->Truncate(*parent, 75));
      CHECK_OK((*engine)->Append(*parent, all.subspan(75)));
      CHECK(LogitsNow(engine->get(), *parent) == want);
    }
  }
}

// What a page and a slot take is known of both Programs' caches, on all ranks: at least what they hold, and
// no more than its lines beside it.
TEST(room_of_a_heads_caches_is_known_on_cpus_and_gpus) {
  for (const char* device : {"cpu", "cpu:2", "sim:gfx942", "sim:gfx950x2"}) {
    if (!test::IsHere(device)) continue;
    const auto model = LoadTrained(device, "trained_hybrid", /*draft_head=*/true);
    CHECK_OK(model);
    const backend::LoadedModel& weights = (*model)->weights();
    const std::vector<uint64_t> units = weights.kv_room(backend::KvType::kBF16).unit_bytes;
    size_t at = 0;
    for (const backend::Program* program : weights.programs()) {
      for (const backend::Cache& cache : program->caches) {
        const auto* paged = std::get_if<backend::PagedCache>(&cache);
        const int64_t layers = std::visit([](const auto& c) { return int64_t{c.layers}; }, cache);
        const int64_t bytes = paged != nullptr ? int64_t{paged->kv_heads} *
                                                     (paged->key_dim + paged->value_dim) *
                                                     backend::kPageTokens * 2
                                               : std::get<backend::SlotCache>(cache).bytes;
        const auto least = static_cast<uint64_t>(program->ranks * layers * bytes);
        CHECK_LT(at, units.size());
        CHECK_GE(units[at], least);
        CHECK_LE(units[at], least + 256u * static_cast<uint64_t>(program->ranks * layers));
        ++at;
      }
    }
    CHECK_EQ(at, units.size());
    CHECK_EQ(weights.programs().size(), 2u);
  }
}
