// SPDX-License-Identifier: MIT
//
// What goes wrong in the middle of a step on the GPU path: the step ends with a status that names
// the GPU and the cause, in bounded time and with nothing left behind; sequences are as they were;
// a new group works.
#include <cstdlib>

#include "absl/strings/match.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "base/clock.h"
#include "decode/engine.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "sim/open.h"
#include "support/test.h"

using namespace mainarch;

namespace {

constexpr uint32_t kTimeoutMs = 2000;

struct Node {
  std::shared_ptr<sim::SimSys> sys;
  std::shared_ptr<backend::Backend> backend;
};

StatusOr<Node> OpenNode(const std::string& text) {
  Node node;
  ASSIGN_OR_RETURN(node.sys, sim::OpenSim(text));
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(node.sys, "", false, kTimeoutMs));
  ASSIGN_OR_RETURN(node.backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
  return node;
}

// What a closed group still holds. Once it knows the event page, the kernel keeps that buffer until
// the process ends (gpu/process.h).
sim::Ledger Held(sim::SimSys& sys) {
  sim::Ledger ledger = sys.ledger();
  if (ledger.buffers == 1) ledger.buffers = 0;
  return ledger;
}

const std::vector<uint32_t> kPrompt = {5, 17, 230};

// An engine with one sequence that has run kPrompt.
struct Server {
  Node node;
  std::shared_ptr<const model::Model> model;
  std::unique_ptr<decode::Engine> engine;
  decode::SequenceId sequence = 0;

  Status Start(const std::string& text, const std::string& directory) {
    ASSIGN_OR_RETURN(node, OpenNode(text));
    ASSIGN_OR_RETURN(model, model::Model::Load(node.backend, directory, {}));
    decode::EngineOptions options;
    options.max_sequence_tokens = 64;
    ASSIGN_OR_RETURN(engine, decode::Engine::Create(model, options));
    decode::SequenceOptions manual;
    manual.manual = true;
    ASSIGN_OR_RETURN(sequence, engine->Open(manual));
    return Feed(kPrompt);
  }
  Status Feed(const std::vector<uint32_t>& tokens) {
    RETURN_IF_ERROR(engine->Append(sequence, tokens));
    return Run();
  }
  Status Run() {
    bool more = true;
    while (more) {
      ASSIGN_OR_RETURN(more, engine->RunStep());
    }
    return OkStatus();
  }
};

}  // namespace

TEST(trouble_in_mid_step_is_named) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  const struct {
    const char* script;
    Code code;
    const char* says;
  } kCases[] = {
      {"fault=1@9", Code::kDeviceLost, "gpu 1"}, {"reset=0@12", Code::kDeviceLost, "gpu 0"},
      {"ecc=1@3", Code::kDeviceLost, "gpu 1"},   {"gone=1@7", Code::kDeviceLost, "gpu 1"},
      {"hang=1@10", Code::kDeviceLost, "gpu 1"}, {"hang=0@10", Code::kDeviceLost, "gpu 0"},
  };
  for (const auto& c : kCases) {
    Server server;
    CHECK_OK(server.Start("gfx950x2", directory));
    CHECK_OK(server.engine->Append(server.sequence, {7}));
    auto before = server.engine->InfoOf(server.sequence);
    CHECK_OK(before);
    CHECK_OK(server.node.sys->node().script().Add(c.script));
    const int64_t start = NowNs();
    const Status status = server.Run();
    const double seconds = static_cast<double>(NowNs() - start) * 1e-9;
    std::printf("# %s after %.1f s: %s\n", c.script, seconds,
                std::string(status.message()).c_str());
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(c.code));
    CHECK(absl::StrContains(status.message(), c.says));
    CHECK_LT(seconds, 30.0);  // a wait of kTimeoutMs on a busy machine
    auto after = server.engine->InfoOf(server.sequence);
    CHECK_OK(after);
    CHECK_EQ(after->tokens, before->tokens);
    // The group is gone and says why, whatever is asked for; nothing hangs.
    decode::Engine& engine = *server.engine;
    uint32_t token = 0;
    const Status all[] = {
        server.Run(),
        engine.Submit().status(),
        engine.Wait(0).status(),
        engine.Open({}).status(),
        engine.Append(server.sequence, {7}),
        engine.Take(server.sequence, absl::MakeSpan(&token, 1)).status(),
        engine.Fork(server.sequence).status(),
        engine.Truncate(server.sequence, 1),
        engine.SetSeed(server.sequence, 1),
        engine.Logits(server.sequence).status(),
        model::Model::Load(server.node.backend, directory, {}).status(),
        decode::Engine::Create(server.model, {}).status(),
    };
    for (const Status& again : all) {
      CHECK_EQ(static_cast<int>(CodeOf(again)), static_cast<int>(c.code));
      CHECK(absl::StrContains(again.message(), c.says));
    }
    CHECK_OK(engine.InfoOf(server.sequence));
    CHECK_OK(engine.Close(server.sequence));
    server.engine.reset();
    server.model.reset();
    server.node.backend.reset();
    CHECK_EQ(Held(*server.node.sys).ToString(), sim::Ledger().ToString());
  }
}

// Whatever hangs between opening the group and the first step is noticed once, by the same limit.
TEST(a_hang_before_the_first_step_is_a_lost_device) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  for (const uint64_t packet : {1, 2}) {
    auto sys = sim::OpenSim("gfx942x2");
    CHECK_OK(sys);
    std::shared_ptr<sim::SimSys> node = std::move(*sys);
    CHECK_OK(node->node().script().Add("hang=1@" + std::to_string(packet)));
    const int64_t start = NowNs();
    const Status status = [&]() -> Status {
      ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(node, "", false, kTimeoutMs));
      ASSIGN_OR_RETURN(auto backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
      ASSIGN_OR_RETURN(auto model, model::Model::Load(backend, directory, {}));
      ASSIGN_OR_RETURN(auto runner, test::Runner::Create(model, backend::KvType::kBF16, 3));
      return runner->Extend(kPrompt, false);
    }();
    const double seconds = static_cast<double>(NowNs() - start) * 1e-9;
    std::printf("# packet %d after %.1f s: %s\n", static_cast<int>(packet), seconds,
                std::string(status.message()).c_str());
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kDeviceLost));
    CHECK(absl::StrContains(status.message(), "gpu 1"));
    CHECK_EQ(Held(*node).ToString(), sim::Ledger().ToString());
  }
}

// An upload that stands still: the copy engine meets a poll that nobody ends.
TEST(an_upload_that_hangs_is_a_lost_device) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto sys = sim::OpenSim("gfx950");
  CHECK_OK(sys);
  std::shared_ptr<sim::SimSys> node = std::move(*sys);
  auto opened = amdgpu::Gpus::OpenOn(node, "", false, kTimeoutMs);
  CHECK_OK(opened);
  amdgpu::Gpus& gpus = **opened;
  auto backend = amdgpu::AmdGpuBackend::Create(*std::move(opened));
  CHECK_OK(backend);
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.caching = gpu::Caching::kUncached;
  options.label = "never";
  auto never = gpu::Buffer::Allocate(*gpus.at(0).device, 4096, options);
  CHECK_OK(never);
  *never->host<uint32_t>() = 0;
  CHECK_OK(gpus.at(0).copy->Poll(never->va(), 1, 0xffffffff, gpu::PollFunction::kGreaterEqual,
                                 gpus.Soon()));
  auto model = model::Model::Load(*backend, directory, {});  // by queues of its own
  CHECK_OK(model);
  const int64_t start = NowNs();
  const Status status = decode::Engine::Create(*model, {}).status();
  const double seconds = static_cast<double>(NowNs() - start) * 1e-9;
  std::printf("# after %.1f s: %s\n", seconds, std::string(status.message()).c_str());
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "gpu 0"));
  // Sticky, and at once.
  const Status again = model::Model::Load(*backend, directory, {}).status();
  CHECK_EQ(static_cast<int>(CodeOf(again)), static_cast<int>(Code::kDeviceLost));
}

// A node whose host has no time to play it is slow, not hung: its own time stands still while it
// works, so a limit far below what a step takes here does not end the step.
TEST(a_slow_node_is_not_a_hung_one) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  CHECK(!directory.empty());
  auto sys = sim::OpenSim("gfx950x2");
  CHECK_OK(sys);
  auto gpus = amdgpu::Gpus::OpenOn(std::shared_ptr<sim::SimSys>(std::move(*sys)), "", false, 50);
  CHECK_OK(gpus);
  auto backend = amdgpu::AmdGpuBackend::Create(*std::move(gpus));
  CHECK_OK(backend);
  auto model = model::Model::Load(*backend, directory, {});
  CHECK_OK(model);
  const std::vector<uint32_t> prompt = test::Prompt(40, 512);
  auto runner = test::Runner::Create(*model, backend::KvType::kBF16, 40);
  CHECK_OK(runner);
  const int64_t start = NowNs();
  CHECK_OK((*runner)->Extend(prompt, false));
  std::printf("# a step of %.0f ms, a limit of 50\n", static_cast<double>(NowNs() - start) * 1e-6);
}

TEST(a_new_group_works_after_a_fault) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  Server broken;
  CHECK_OK(broken.Start("gfx942x2", directory));
  CHECK_OK(broken.node.sys->node().script().Add("fault=1@5"));
  CHECK(!broken.Feed({7}).ok());
  Server fresh;
  CHECK_OK(fresh.Start("gfx942x2", directory));
  CHECK_OK(fresh.Feed({7}));
  Server never;
  CHECK_OK(never.Start("gfx942x2", directory));
  CHECK_OK(never.Feed({7}));
  auto a = fresh.engine->Logits(fresh.sequence);
  auto b = never.engine->Logits(never.sequence);
  CHECK_OK(a);
  CHECK_OK(b);
  CHECK(test::Same(*a, *b));
}

// The ioctls from opening a group to the first step, failing one at a time: an error that names the
// call, and nothing held of the node afterwards. Every third, unless MAINARCH_LEDGER_WHOLE=1 asks
// for each.
TEST(a_failing_ioctl_leaves_nothing) {
  const std::string directory = test::WriteFixture({"T1", "mxfp4", 1});
  CHECK(!directory.empty());
  uint64_t calls = 0;
  {
    Server server;
    CHECK_OK(server.Start("gfx950x2", directory));
    calls = server.node.sys->node().script().ioctls();
  }
  std::printf("# %llu ioctls\n", static_cast<unsigned long long>(calls));
  CHECK_GT(calls, 40u);
  const uint64_t step = std::getenv("MAINARCH_LEDGER_WHOLE") != nullptr ? 1 : 3;
  uint64_t failed = 0, runs = 0;
  for (uint64_t n = 1; n <= calls; n += step) {
    ++runs;
    auto sys = sim::OpenSim("gfx950x2");
    CHECK_OK(sys);
    std::shared_ptr<sim::SimSys> node = std::move(*sys);
    CHECK_OK(node->node().script().Add("ioctl=*@" + std::to_string(n) + ":ENOMEM"));
    const Status status = [&]() -> Status {
      ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(node, "", false, kTimeoutMs));
      ASSIGN_OR_RETURN(auto backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
      ASSIGN_OR_RETURN(auto model, model::Model::Load(backend, directory, {}));
      ASSIGN_OR_RETURN(auto runner, test::Runner::Create(model, backend::KvType::kBF16, 3));
      return runner->Extend(kPrompt, false);
    }();
    failed += !status.ok();
    const bool named = status.ok() || absl::StrContains(status.message(), "kfd ");
    const sim::Ledger ledger = Held(*node);
    if (!ledger.empty() || !named) {
      std::printf("# ioctl %llu: %s\n", static_cast<unsigned long long>(n),
                  std::string(status.message()).c_str());
    }
    CHECK(named);
    CHECK_EQ(ledger.ToString(), sim::Ledger().ToString());
  }
  std::printf(
      "# %llu groups%s\n", static_cast<unsigned long long>(runs),
      step == 1 ? "" : ": left out are two of three calls; MAINARCH_LEDGER_WHOLE=1 runs all");
  CHECK_GT(failed, 10u);
}
