// SPDX-License-Identifier: MIT
//
// Caches of two types in one sequence (model/kv_tiers.h): against the fp64 decoder, which takes each token from the cache
// that its distance says and follows both, element by element; and what is refused. That bits depend on nothing but the
// tokens is hybrid_bits' (Kind::kTiers).
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "decode/engine.h"
#include "decode/export.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/kv_tiers.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/gpus.h"
#include "support/test.h"

using namespace mainarch;
using backend::KvType;

namespace {

constexpr size_t kTokens = 700;  // of which splits of 512 tokens make two

struct Form {
  const char* name;
  KvType type;
  model::KvTiers tiers;
  bool windows = false;  // one layer of four
};

model::ModelConfig Config(const Form& form) {
  model::ModelConfig c = test::SmallDense(1024);
  if (form.windows) c.layer_attention = {{0, 0}, {300, 0}, {0, 0}, {0, 0}};
  return c;
}

double BoundOf(const std::string& device) { return absl::StartsWith(device, "sim:") ? 1e-4 : 2e-5; }

reference::CacheReader ReaderOf(decode::Engine* engine, decode::SequenceId id, bool near) {
  return [=](size_t layer, size_t position, std::vector<float>* k, std::vector<float>* v) -> Status {
    auto stored = engine->ReadKv(id, static_cast<int32_t>(layer), position, near);
    // Behind the window it is gone already, and no query that is compared sees it.
    if (!stored.ok() && CodeOf(stored.status()) == Code::kNotFound) return OkStatus();
    RETURN_IF_ERROR(stored.status());
    *k = std::move(stored->k);
    *v = std::move(stored->v);
    return OkStatus();
  };
}

// `tokens` in steps that end where `ends` says; after each the logits are compared.
void CheckForm(test::Context& test_context, const Form& form, const std::string& device,
               const std::vector<size_t>& ends) {
  const std::string directory = test::ScratchDirectory() + "/" + form.name;
  model::WriteSyntheticCheckpoint(Config(form), directory, {}).IgnoreError();  // another device's test has
  auto checkpoint = file::Checkpoint::Open(directory);
  CHECK_OK(checkpoint);
  auto model = test::LoadOn(directory, {device, "", 2, false});
  CHECK_OK(model);
  decode::EngineOptions options;
  options.max_sequence_tokens = 1024;
  options.max_step_tokens = 256;
  options.kv_type = form.type;
  options.kv_tiers = form.tiers;
  auto engine = decode::Engine::Create(*model, options);
  CHECK_OK(engine);
  decode::SequenceOptions manual;
  manual.manual = true;
  auto id = (*engine)->Open(manual);
  CHECK_OK(id);
  auto reference = reference::Decoder::Create(std::shared_ptr<const file::Checkpoint>(std::move(*checkpoint)),
                                              (*model)->config(), form.type);
  CHECK_OK(reference);
  (*reference)->UseTiers(form.tiers, ReaderOf(engine->get(), *id, true));
  (*reference)->Follow(ReaderOf(engine->get(), *id, false));
  const std::vector<uint32_t> tokens = test::Prompt(ends.back(), 256);
  double worst = 0;
  size_t done = 0;
  for (const size_t end : ends) {
    const auto piece = absl::MakeConstSpan(tokens).subspan(done, end - done);
    CHECK_OK((*engine)->Append(*id, piece));
    for (bool more = true; more;) {
      auto worked = (*engine)->RunStep();
      CHECK_OK(worked);
      more = *worked;
    }
    auto logits = (*engine)->Logits(*id);
    CHECK_OK(logits);
    CHECK_OK((*reference)->Extend(piece));
    double largest = 0, difference = 0;
    for (size_t i = 0; i < logits->size(); ++i) {
      const double want = (*reference)->logits()[i], delta = std::fabs(double{(*logits)[i]} - want);
      if (!(delta <= difference)) difference = delta;  // a NaN stays
      largest = std::max(largest, std::fabs(want));
    }
    CHECK_LE(difference / largest, BoundOf(device));
    worst = std::max(worst, difference / largest);
    done = end;
  }
  std::printf("# %s on %s: worst relative error %.2e\n", form.name, device.c_str(), worst);
}

constexpr Form kForms[] = {
    {"fp4 near", KvType::kFp4, {true, false}},
    {"fp4 near outer", KvType::kFp4, {true, true}},
    {"fp4 outer", KvType::kFp4, {false, true}},
    {"k8v4 near outer windows", KvType::kK8V4, {true, true}, /*windows=*/true},
    {"k8v4 near", KvType::kK8V4, {true, false}},
};

}  // namespace

// Before, at and behind the first token that is near no more (128, 144), and behind a split.
TEST(tiers_hold_what_the_reference_has_on_cpus) {
  const std::vector<size_t> ends = {100, 128, 129, 130, 144, 145, 300, 639, 640, 641, kTokens};
  size_t turn = 0;
  for (const Form& form : kForms) {
    CheckForm(test_context, form, turn++ % 2 == 0 ? "cpu" : "cpu:2", ends);
    if (test_context.failed()) return;
  }
}

// Fewer tokens: the node is slow. A split of far tokens is 128 of them here, and rows of one step have different ones.
TEST(tiers_hold_what_the_reference_has_on_gpus) {
  NEEDS_GPUS();
  const std::vector<size_t> ends = {100, 129, 144, 145, 272, 273, 300};
  size_t turn = 0;
  for (const Form& form : kForms) {
    const std::vector<std::string> devices = {"sim:gfx950", "sim:gfx942x2", "sim:gfx950x4", "sim:gfx942", "sim:gfx950x2"};
    CheckForm(test_context, form, devices[turn++], ends);
    if (test_context.failed()) return;
  }
}

TEST(tiers_are_refused_where_they_are_of_no_use) {
  const std::string directory = test::ScratchDirectory() + "/refused";
  CHECK_OK(model::WriteSyntheticCheckpoint(Config(kForms[0]), directory, {}));
  auto model = test::LoadOn(directory, {"cpu", "", 1, false});
  CHECK_OK(model);
  for (const KvType type : {KvType::kBF16, KvType::kFp8, KvType::kF32}) {
    decode::EngineOptions options;
    options.kv_type = type;
    options.kv_tiers.near = true;
    const Status refused = decode::Engine::Create(*model, options).status();
    CHECK(CodeOf(refused) == Code::kInvalidArgument);
    CHECK(absl::StrContains(refused.message(), quant::kKvTypeNames[static_cast<size_t>(type)]));
  }
  // What is near is a cache more, of as many layers; outer layers are one more.
  auto program = model::WithKvTiers((*model)->weights().program(), {true, true}, KvType::kFp4);
  CHECK_OK(program);
  CHECK_EQ((*program)->caches.size(), 3u);
  const auto layers = [&](size_t c) { return std::get<backend::PagedCache>((*program)->caches[c]).layers; };
  CHECK_EQ(layers(0), 2);
  CHECK_EQ(layers(1), 2);
  CHECK_EQ(layers(2), 2);
}

// A sequence that goes on elsewhere takes both caches along; one with other tiers does not understand them.
TEST(what_is_exported_holds_both_caches) {
  const std::string directory = test::ScratchDirectory() + "/exported";
  CHECK_OK(model::WriteSyntheticCheckpoint(Config(kForms[0]), directory, {}));
  auto model = test::LoadOn(directory, {"cpu", "", 2, false});
  CHECK_OK(model);
  decode::EngineOptions options;
  options.max_sequence_tokens = 1024;
  options.kv_type = KvType::kFp4;
  options.kv_tiers.near = true;
  decode::SequenceOptions manual;
  manual.manual = true;
  const std::vector<uint32_t> tokens = test::Prompt(kTokens + 1, 256);
  auto run = [&](decode::Engine* engine) {
    for (bool more = true; more;) {
      auto worked = engine->RunStep();
      if (!worked.ok()) return false;
      more = *worked;
    }
    return true;
  };
  auto from = decode::Engine::Create(*model, options), to = decode::Engine::Create(*model, options);
  CHECK_OK(from);
  CHECK_OK(to);
  auto id = (*from)->Open(manual);
  CHECK_OK(id);
  CHECK_OK((*from)->Append(*id, absl::MakeConstSpan(tokens).first(kTokens)));
  CHECK((run(from->get())));
  auto state = (*from)->Save(*id, /*content=*/true);
  CHECK_OK(state);
  auto there = (*to)->Restore(*state);
  CHECK_OK(there);
  const uint64_t before = (*to)->info().rows;
  CHECK_OK((*from)->Append(*id, absl::MakeConstSpan(tokens).last(1)));
  CHECK_OK((*to)->Append(*there, absl::MakeConstSpan(tokens).last(1)));
  CHECK((run(from->get()) && run(to->get())));
  CHECK_LE((*to)->info().rows - before, 2u);  // the last token of the prompt may have to run again
  auto want = (*from)->Logits(*id), got = (*to)->Logits(*there);
  CHECK_OK(want);
  CHECK_OK(got);
  CHECK(test::Same(*got, *want));
}
