// SPDX-License-Identifier: MIT
//
// Steps that the resident kernel runs: the same bits as packets, on one GPU and on several; prompts, forks and
// cancelled steps between them; who cannot have one is told why; trouble while it stays ends as it does anywhere.
#include <cmath>
#include <cstdlib>
#include <random>

#include "absl/strings/match.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "base/clock.h"
#include "decode/engine.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "sim/open.h"
#include "support/test.h"

using namespace mainarch;
using backend::ResidentMode;

namespace {

constexpr uint32_t kTimeoutMs = 2000;

bool Full() { return std::getenv("MAINARCH_TEST_FULL") != nullptr; }

struct Where {
  test::FixtureCase fixture;
  std::string device;
  backend::KvType kv = backend::KvType::kBF16;
};

std::vector<Where> Wheres() {
  using backend::KvType;
  if (!Full()) {
    return {{{"T1", "bf16", 1}, "sim:gfx950"},
            {{"T1", "fp8-channel", 1}, "sim:gfx942x2", KvType::kFp8},
            {{"T2", "mxfp4", 1}, "sim:gfx950x4", KvType::kFp4},
            {{"T2", "fp8-block", 1}, "sim:gfx942", KvType::kK8V4},
            {{"L3", "bf16", 1}, "sim:gfx950x2", KvType::kF32}};
  }
  std::vector<Where> all;
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    for (const char* isa : {"sim:gfx942", "sim:gfx950"}) {
      for (const char* ranks : {"", "x2", "x4", "x8"}) {
        for (const KvType kv : {KvType::kBF16, KvType::kFp8, KvType::kF32, KvType::kFp4, KvType::kK8V4}) {
          all.push_back({fixture, std::string(isa) + ranks, kv});
        }
      }
    }
  }
  return all;
}

// A prompt that is packets, tokens one by one, and a few together, as drafts are.
StatusOr<std::vector<std::vector<float>>> Logits(std::shared_ptr<const model::Model> model, backend::KvType kv,
                                                 ResidentMode mode, backend::ResidentCounts* counts) {
  ASSIGN_OR_RETURN(const auto runner,
                   test::Runner::Create(std::move(model), kv, 24, backend::Activations::kF32, 0, mode));
  const std::vector<uint32_t> tokens = test::Prompt(40, 256);
  std::vector<std::vector<float>> out;
  size_t at = 0;
  for (const size_t piece : {20, 1, 1, 1, 4, 1, 9, 2, 1}) {
    RETURN_IF_ERROR(runner->Extend({tokens.data() + at, piece}, true));
    at += piece;
    for (uint32_t row = 0; row < piece; ++row) out.push_back(runner->Logits(row));
  }
  *counts = runner->context().resident_counts();
  return out;
}

std::string Hybrid() {
  const std::string directory = test::ScratchDirectory() + "/resident-hybrid";
  const Status written = model::WriteSyntheticCheckpoint(test::SmallHybrid(true), directory, model::SyntheticOptions());
  return written.ok() || CodeOf(written) == Code::kInvalidArgument ? directory : "";
}

// Attention to latents runs in the resident kernel that has more room.
std::string Latents() {
  model::ModelConfig c;
  c.model_type = "deepseek_v3";
  const std::string directory = test::ScratchDirectory() + "/resident-latent";
  c.hidden = 256, c.layers = 2, c.heads = 8, c.kv_heads = 8, c.intermediate = 512, c.vocab = 256, c.max_position = 128;
  c.latent = {64, 96, 32, 32, 32, true};
  c.head_dim = 64;
  c.rope.rotary_dim = 32;
  c.attention.qk_norm = false;
  c.attention.scale = 1 / std::sqrt(64.0);
  c.sparse_layer.assign(2, false);
  c.experts = 4, c.experts_per_token = 2, c.moe_intermediate = c.shared_intermediate = 64;
  c.norm_topk_prob = c.router.sigmoid = c.router.correction = true;
  c.router.groups = c.router.chosen_groups = 1;
  c.router.scale = 1;
  c.eos_ids = {1};
  const Status written = model::WriteSyntheticCheckpoint(c, directory, model::SyntheticOptions());
  return written.ok() || CodeOf(written) == Code::kInvalidArgument ? directory : "";
}

// What four sequences get, that come at different times, are sampled and greedy, guess ahead by what they repeat,
// are forked, truncated and cancelled.
StatusOr<std::vector<std::vector<uint32_t>>> Tokens(std::shared_ptr<const model::Model> model, ResidentMode mode,
                                                    uint32_t drafts, decode::EngineInfo* info) {
  decode::EngineOptions options;
  options.max_sequences = 5;
  options.max_sequence_tokens = 96;
  options.max_step_tokens = 24;
  options.resident = mode;
  if (drafts > 0) {
    options.draft_kind = decode::DraftKind::kNgram;
    options.max_drafts = drafts;
  }
  ASSIGN_OR_RETURN(const auto engine, decode::Engine::Create(model, options));
  std::vector<decode::SequenceId> ids;
  std::vector<std::vector<uint32_t>> out;
  std::mt19937 random(5);
  for (uint32_t step = 0; step < 40; ++step) {
    if (step % 9 == 0 && ids.size() < 4) {
      decode::SequenceOptions sequence;
      sequence.ignore_eos = true;
      sequence.max_tokens = 30;
      sequence.seed = 100 + ids.size();
      if (ids.size() % 2 == 1) {
        sequence.temperature = 0.9f;
        sequence.top_k = 30;
      }
      ASSIGN_OR_RETURN(const decode::SequenceId id, engine->Open(sequence));
      // Repeats itself, so that there is something to guess.
      std::vector<uint32_t> prompt = test::Prompt(10 + 4 * ids.size(), 256);
      const std::vector<uint32_t> once = prompt;
      prompt.insert(prompt.end(), once.begin(), once.end());
      RETURN_IF_ERROR(engine->Append(id, prompt));
      ids.push_back(id);
    }
    if (step == 14) {
      ASSIGN_OR_RETURN(const decode::SequenceId id, engine->Fork(ids[0]));
      RETURN_IF_ERROR(engine->SetSeed(id, 3));
      ids.push_back(id);
    }
    if (step == 25) RETURN_IF_ERROR(engine->Truncate(ids[1], 15));
    if (step % 11 == 10) {
      ASSIGN_OR_RETURN(const bool work, engine->Submit());
      engine->Cancel();
      if (work) {
        const auto ended = engine->Wait(-1);
        if (!ended.ok() && CodeOf(ended.status()) != Code::kCancelled) return ended.status();
      }
    }
    RETURN_IF_ERROR(engine->RunStep().status());
  }
  for (bool more = true; more;) {
    ASSIGN_OR_RETURN(more, engine->RunStep());
  }
  for (const decode::SequenceId id : ids) {
    std::vector<uint32_t> tokens(200);
    ASSIGN_OR_RETURN(const size_t count, engine->Take(id, absl::MakeSpan(tokens)));
    tokens.resize(count);
    out.push_back(std::move(tokens));
  }
  *info = engine->info();
  return out;
}

void Compare(test::Context& test_context, const std::string& name, const std::string& directory,
             const std::string& device, backend::KvType kv) {
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {device, "", 0, false});
  if (Full() && CodeOf(model.status()) == Code::kUnsupported) return;  // heads that do not divide
  CHECK_OK(model);
  backend::ResidentCounts none, some;
  const auto packets = Logits(*model, kv, ResidentMode::kOff, &none);
  CHECK_OK(packets);
  const auto resident = Logits(*model, kv, ResidentMode::kOn, &some);
  CHECK_OK(resident);
  CHECK_EQ(packets->size(), resident->size());
  for (size_t i = 0; i < packets->size(); ++i) {
    if (test::Same((*packets)[i], (*resident)[i])) continue;
    CHECK_EQ("row " + std::to_string(i) + " of " + name + " on " + device, "the same bits");
  }
  CHECK_EQ(none.steps, 0u);
  CHECK_EQ(some.steps, 8u);  // all but the prompt
  CHECK_GE(some.launches, 1u);
}

}  // namespace

TEST(the_resident_kernel_gives_the_bits_of_packets) {
  for (const Where& where : Wheres()) {
    Compare(test_context, where.fixture.Name(), test::WriteFixture(where.fixture), where.device, where.kv);
  }
}

TEST(the_larger_resident_kernel_gives_the_bits_of_packets) {
  using backend::KvType;
  std::vector<std::pair<std::string, KvType>> runs = {{"sim:gfx942", KvType::kBF16}, {"sim:gfx950x2", KvType::kF32}};
  if (Full()) {
    for (const char* isa : {"sim:gfx942", "sim:gfx950"}) {
      for (const char* ranks : {"", "x2", "x4", "x8"}) {
        for (const KvType kv : {KvType::kBF16, KvType::kFp8, KvType::kF32}) runs.push_back({isa + std::string(ranks), kv});
      }
    }
  }
  for (const auto& [device, kv] : runs) Compare(test_context, "latents", Latents(), device, kv);
}

TEST(an_engines_tokens_do_not_depend_on_the_resident_kernel) {
  const struct {
    std::string directory, device;
  } kCases[] = {{test::WriteFixture({"T2", "mxfp4", 1}), "sim:gfx950x2"},
                {Hybrid(), "sim:gfx942"},
                {Hybrid(), "sim:gfx950x4"}};
  for (const auto& c : kCases) {
    CHECK(!c.directory.empty());
    auto model = test::LoadOn(c.directory, {c.device, "", 0, false});
    CHECK_OK(model);
    for (const uint32_t drafts : {0, 3}) {
      decode::EngineInfo packets, resident;
      const auto want = Tokens(*model, ResidentMode::kOff, drafts, &packets);
      CHECK_OK(want);
      const auto got = Tokens(*model, ResidentMode::kOn, drafts, &resident);
      CHECK_OK(got);
      CHECK(*got == *want);
      CHECK_EQ(packets.resident.steps, 0u);
      CHECK_GT(resident.resident.steps, 10u);
      std::printf("# %s, %u drafts: %d of %d steps, %d launches, %d late\n", c.device.c_str(), drafts,
                  static_cast<int>(resident.resident.steps), static_cast<int>(resident.steps),
                  static_cast<int>(resident.resident.launches), static_cast<int>(resident.resident.late));
    }
  }
}

// Engines of one group have one queue a GPU: each makes the other's kernel leave.
TEST(two_engines_of_a_group_take_turns) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx950x2", "", 0, false});
  CHECK_OK(model);
  const std::vector<uint32_t> tokens = test::Prompt(12, 256);
  auto alone = test::Runner::Create(*model, backend::KvType::kBF16, 4, backend::Activations::kF32, 0, ResidentMode::kOff);
  CHECK_OK(alone);
  std::vector<std::unique_ptr<test::Runner>> both;
  for (const ResidentMode mode : {ResidentMode::kOn, ResidentMode::kOn, ResidentMode::kOff}) {
    auto made = test::Runner::Create(*model, backend::KvType::kBF16, 4, backend::Activations::kF32, 0, mode);
    CHECK_OK(made);
    both.push_back(*std::move(made));
  }
  for (const uint32_t token : tokens) {
    CHECK_OK((*alone)->Extend({&token, 1}, false));
    for (auto& runner : both) {
      CHECK_OK(runner->Extend({&token, 1}, false));
      CHECK(test::Same(runner->Logits(0), (*alone)->Logits(0)));
    }
  }
  CHECK_EQ(both[0]->context().resident_counts().steps, tokens.size());
  CHECK_EQ(both[1]->context().resident_counts().steps, tokens.size());
}

// A kernel that nobody asks anything of leaves by itself, and comes back.
TEST(it_leaves_when_nothing_is_asked_of_it) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx942x2", "", 0, false});
  CHECK_OK(model);
  auto runner = test::Runner::Create(*model, backend::KvType::kBF16, 4, backend::Activations::kF32, 0, ResidentMode::kOn);
  CHECK_OK(runner);
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t token = 5 + i;
    CHECK_OK((*runner)->Extend({&token, 1}, false));
    // Until it has: what else would use the queue runs then.
    const int64_t until = NowNs() + 60'000'000'000;
    while (!(*runner)->context().counts().resident_left && NowNs() < until) {
    }
    CHECK((*runner)->context().counts().resident_left);
  }
  CHECK_EQ((*runner)->context().resident_counts().steps, 3u);
  CHECK_EQ((*runner)->context().resident_counts().launches, 3u);
}

TEST(what_cannot_have_one_says_why) {
  const std::string plain = test::WriteFixture({"T1", "bf16", 1});
  auto model = test::LoadOn(plain, {"cpu", "", 0, false});
  CHECK_OK(model);
  decode::EngineOptions options;
  options.max_sequence_tokens = 64;
  options.resident = ResidentMode::kOn;
  const Status refused = decode::Engine::Create(*model, options).status();
  CHECK_EQ(static_cast<int>(CodeOf(refused)), static_cast<int>(Code::kUnsupported));
  CHECK(absl::StrContains(refused.message(), "no GPU"));
  options.resident = ResidentMode::kAuto;
  auto engine = decode::Engine::Create(*model, options);
  CHECK_OK(engine);
  CHECK(absl::StrContains((*engine)->info().resident_refusal, "no GPU"));
  auto id = (*engine)->Open({});
  CHECK_OK(id);
  CHECK_OK((*engine)->Append(*id, {1, 2, 3}));
  CHECK_OK((*engine)->RunStep());
  CHECK_EQ((*engine)->info().resident.steps, 0u);
}

// Whatever happens to a GPU while the kernels of all run: a lost device, named, in bounded time, and nothing held.
TEST(trouble_while_it_stays_is_named) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  std::vector<std::string> scripts = {"gone=1@t3", "hang=1@t9", "reset=0@t21", "ecc=1@t14", "fault=0@t6"};
  if (Full()) {
    for (uint32_t turn = 1; turn < 60; ++turn) {
      const char* what[] = {"gone", "hang", "reset", "ecc", "fault"};
      scripts.push_back(absl::StrCat(what[turn % 5], "=", turn / 5 % 2, "@t", turn));
    }
  }
  for (const std::string& script : scripts) {
    auto sys = sim::OpenSim("gfx950x2");
    CHECK_OK(sys);
    std::shared_ptr<sim::SimSys> node = std::move(*sys);
    auto gpus = amdgpu::Gpus::OpenOn(node, "", false, kTimeoutMs);
    CHECK_OK(gpus);
    auto backend = amdgpu::AmdGpuBackend::Create(*std::move(gpus));
    CHECK_OK(backend);
    auto loaded = model::Model::Load(*backend, directory, {});
    CHECK_OK(loaded);
    std::shared_ptr<const model::Model> model = *loaded;
    auto runner = test::Runner::Create(model, backend::KvType::kBF16, 4, backend::Activations::kF32, 0, ResidentMode::kOn);
    CHECK_OK(runner);
    uint32_t token = 7;
    CHECK_OK((*runner)->Extend({&token, 1}, false));
    CHECK_OK(node->node().script().Add(script));
    const int64_t start = NowNs();
    Status status;
    for (uint32_t i = 0; i < 400 && status.ok(); ++i) status = (*runner)->Extend({&token, 1}, false);
    const double seconds = static_cast<double>(NowNs() - start) * 1e-9;
    std::printf("# %s after %.1f s: %s\n", script.c_str(), seconds, std::string(status.message()).c_str());
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kDeviceLost));
    // Of two that wait for each other, which one hangs is not known but by how far each has come.
    const bool hang = script[0] == 'h';
    CHECK(absl::StrContains(status.message(), hang ? "gpu " : absl::StrCat("gpu ", script.substr(script.find('=') + 1, 1))));
    CHECK_LT(seconds, 60.0);
    (*runner).reset();
    model.reset();
    (*loaded).reset();
    (*backend).reset();
    sim::Ledger held = node->ledger();
    if (held.buffers == 1) held.buffers = 0;  // the event page (gpu/process.h)
    CHECK_EQ(held.ToString(), sim::Ledger().ToString());
  }
}

// No hand-over by packet in a thousand tokens but the first, unless the host was kept from its work for longer
// than the kernel waits.
TEST(a_thousand_tokens_are_one_launch) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1}, 2048);
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx950", "", 0, false});
  CHECK_OK(model);
  decode::EngineOptions options;
  options.max_sequence_tokens = 1100;
  options.resident = ResidentMode::kOn;
  auto engine = decode::Engine::Create(*model, options);
  CHECK_OK(engine);
  decode::SequenceOptions sequence;
  sequence.ignore_eos = true;
  sequence.max_tokens = Full() ? 1000 : 100;
  auto id = (*engine)->Open(sequence);
  CHECK_OK(id);
  CHECK_OK((*engine)->Append(*id, {1, 2, 3}));
  for (bool more = true; more;) {
    auto worked = (*engine)->RunStep();
    CHECK_OK(worked);
    more = *worked;
  }
  const decode::EngineInfo info = (*engine)->info();
  std::printf("# %d tokens: %d steps by the kernel, %d launches, %d times it waited for the host, %d steps ahead\n",
              static_cast<int>(info.produced), static_cast<int>(info.resident.steps),
              static_cast<int>(info.resident.launches), static_cast<int>(info.resident.late),
              static_cast<int>(info.ahead));
  CHECK_EQ(info.produced, sequence.max_tokens);
  CHECK_EQ(info.resident.steps, info.steps);
  CHECK_LE(info.resident.launches, info.resident.late + 1);
}
