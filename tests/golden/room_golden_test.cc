// SPDX-License-Identifier: MIT
//
// Steps that would be the resident kernel's, on GPUs where others have waves: packets, to the same bits, for as long as
// that lasts. Others are made up (sim/process_files.h), or a second process on the node that decodes as well.
#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/resident.h"
#include "backend/amdgpu/room.h"
#include "base/clock.h"
#include "decode/engine.h"
#include "golden/alone.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "sim/open.h"
#include "support/test.h"

using namespace mainarch;
using backend::ResidentMode;

namespace {

struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  static void Take(void* user, int32_t, const char* line) {
    Lines& own = *static_cast<Lines*>(user);
    std::lock_guard<std::mutex> lock(own.mutex);
    own.lines.push_back(line);
  }
  Log log() { return Log(Take, this, static_cast<int32_t>(LogLevel::kInfo)); }
};

std::shared_ptr<sim::Node> MakeNode(const char* text) {
  const auto config = sim::ParseNode(text);
  if (!config.ok()) return nullptr;
  const auto node = sim::Node::Create(*config, sim::MakeExecutor(*config));
  return node.ok() ? *node : nullptr;
}

// A model that a process of its own on the node has loaded.
struct Process {
  std::shared_ptr<sim::SimSys> sys;
  std::shared_ptr<backend::Backend> backend;
  std::shared_ptr<const model::Model> model;
  Lines log;

  static StatusOr<std::unique_ptr<Process>> Start(std::shared_ptr<sim::Node> node, const std::string& directory) {
    auto own = std::make_unique<Process>();
    own->sys = std::make_shared<sim::SimSys>(std::move(node));
    ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(own->sys, "", false, 0, own->log.log()));
    ASSIGN_OR_RETURN(own->backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
    ASSIGN_OR_RETURN(own->model, model::Model::Load(own->backend, directory, {}));
    return own;
  }
  sim::ProcessFiles& files() { return sys->node().process_files(); }
};

// So long that no answer of a Room's stands any more.
void Forget() { std::this_thread::sleep_for(std::chrono::nanoseconds(amdgpu::Room::kRefusedNs + 5'000'000)); }

StatusOr<std::unique_ptr<test::Runner>> RunnerOf(const Process& process, ResidentMode mode) {
  return test::Runner::Create(process.model, backend::KvType::kBF16, 20, backend::Activations::kF32, 0, mode);
}

// The resident kernel leaves by itself.
void AwaitLeft(const backend::Context& context) {
  const int64_t until = NowNs() + 60'000'000'000;
  while (!context.counts().resident_left && NowNs() < until) std::this_thread::yield();
}

// A token; whether the resident kernel has run it, which has left by itself when this returns, and bits as `packets` has.
StatusOr<bool> RanResident(test::Runner* packets, test::Runner* resident, uint32_t token) {
  const uint64_t before = resident->context().resident_counts().steps;
  RETURN_IF_ERROR(packets->Extend({&token, 1}, false));
  RETURN_IF_ERROR(resident->Extend({&token, 1}, false));
  if (!test::Same(packets->Logits(0), resident->Logits(0))) return Error(Code::kInternal, "other bits");
  const bool ran = resident->context().resident_counts().steps > before;
  if (ran) AwaitLeft(resident->context());
  return ran;
}

// What two sequences get; in the midst of the first the other comes, with a prompt for which the kernel leaves, and
// somebody else. They have gone when both have run for a while.
struct Told {
  std::vector<std::vector<uint32_t>> tokens;
  backend::ResidentCounts alone, crowded, over;
};
StatusOr<Told> Tokens(Process* process, ResidentMode mode) {
  decode::EngineOptions options;
  options.max_sequences = 2;
  options.max_sequence_tokens = 120;
  options.max_step_tokens = 24;
  options.resident = mode;
  ASSIGN_OR_RETURN(const auto engine, decode::Engine::Create(process->model, options));
  std::vector<decode::SequenceId> ids;
  Told out;
  const auto open = [&](size_t prompt) -> Status {
    decode::SequenceOptions o;
    o.ignore_eos = true;
    o.max_tokens = 36;
    o.seed = ids.size();
    if (!ids.empty()) o.temperature = 0.9f;
    ASSIGN_OR_RETURN(const decode::SequenceId id, engine->Open(o));
    ids.push_back(id);
    return engine->Append(id, test::Prompt(prompt, 256));
  };
  RETURN_IF_ERROR(open(5));
  uint32_t steps = 0;
  for (bool more = true; more; ++steps) {
    ASSIGN_OR_RETURN(more, engine->RunStep());
    if (steps == 12) {
      out.alone = engine->info().resident;
      process->files().Pretend(1, 1, "8\n");  // on any of the 256 compute units
      Forget();
      RETURN_IF_ERROR(open(22));
    }
    if (steps == 24) {
      out.crowded = engine->info().resident;
      process->files().Leave(1);
      Forget();
    }
  }
  out.over = engine->info().resident;
  for (const decode::SequenceId id : ids) {
    std::vector<uint32_t> tokens(200);
    ASSIGN_OR_RETURN(const size_t count, engine->Take(id, absl::MakeSpan(tokens)));
    tokens.resize(count);
    out.tokens.push_back(std::move(tokens));
  }
  return out;
}

}  // namespace

TEST(steps_are_packets_while_others_have_the_gpu) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto process = Process::Start(MakeNode("gfx950x2"), directory);
  CHECK_OK(process);
  const auto packets = RunnerOf(**process, ResidentMode::kOff), resident = RunnerOf(**process, ResidentMode::kAuto);
  CHECK_OK(packets);
  CHECK_OK(resident);
  sim::ProcessFiles& files = (*process)->files();
  const std::vector<uint32_t> tokens = test::Prompt(12, 256);
  // What another process has on the second GPU, and whether the kernel runs. Half of the 256 compute units hold its workgroups;
  // waves that fill one are on 32 of them at most, and on any of them those that fill eight.
  const struct {
    const char* says;
    bool hidden, runs;
  } kCases[] = {{"", false, true},      {"1\n", false, true},        {"8\n", false, false}, {"256\n", false, false},
                {"0\n", false, true},   {"8\n", false, false},       {"nonsense\n", false, true},
                {"8\n", true, true},    {"8\n", false, false},       {"-8\n", false, true},      {"99999999\n", false, true}};
  size_t at = 0;
  uint64_t no_room = 0;
  for (const auto& c : kCases) {
    files.Hide(c.hidden);
    files.Pretend(1, 1, c.says);
    Forget();
    auto ran = RanResident(packets->get(), resident->get(), tokens[at++]);
    CHECK_OK(ran);
    CHECK_EQ(*ran, c.runs);
    no_room += !c.runs;
    CHECK_EQ((*resident)->context().resident_counts().no_room, no_room);
  }
  // They leave.
  files.Leave(1);
  Forget();
  auto ran = RanResident(packets->get(), resident->get(), tokens[at++]);
  CHECK_OK(ran);
  CHECK(*ran);
  // Each change is a line; two cases in a row that are alike are one.
  const std::vector<std::string>& lines = (*process)->log.lines;
  CHECK_EQ(lines.size(), 6u);
  for (const char* part : {"packets", "gpu 1 (gfx950", "1 other process", "compute units"}) CHECK(absl::StrContains(lines[0], part));
  CHECK(absl::StrContains(lines[1], "room again"));
}

TEST(an_engines_tokens_are_the_same_when_others_come_and_go) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto process = Process::Start(MakeNode("gfx950x2"), directory);
  CHECK_OK(process);
  const auto want = Tokens(process->get(), ResidentMode::kOff);
  CHECK_OK(want);
  CHECK_EQ(want->over.steps + want->over.no_room, 0u);
  const auto got = Tokens(process->get(), ResidentMode::kOn);
  CHECK_OK(got);
  CHECK(got->tokens == want->tokens);
  CHECK_GT(got->alone.steps, 0u);
  CHECK_EQ(got->alone.no_room, 0u);
  CHECK_GT(got->crowded.no_room, 0u);
  CHECK_GT(got->over.steps, got->crowded.steps);
  std::printf("# %d steps by the kernel, %d without room\n", static_cast<int>(got->over.steps), static_cast<int>(got->over.no_room));
}

namespace {

// A step and 31 rounds behind it, and the step behind these; for another context's packets the kernel leaves somewhere in
// the midst, and finds others' waves when it shall go on.
struct Interrupted {
  std::vector<uint32_t> tokens;
  bool paused = false;
  uint64_t without_room = 0, launches = 0;
};
StatusOr<Interrupted> Interrupt(Process* process, test::Alone* stays, test::Alone* passes, int64_t after_ns, bool behind) {
  const backend::ResidentCounts before = stays->context().resident_counts();
  RETURN_IF_ERROR(stays->Submit(65, 0, false, {stays->LeaseOf(31)}));
  std::this_thread::sleep_for(std::chrono::nanoseconds(after_ns));
  Interrupted out;
  RETURN_IF_ERROR(passes->Submit(65, 0, false, {}));
  RETURN_IF_ERROR(passes->Land().status());
  const uint32_t gpus = static_cast<uint32_t>(process->backend->ranks());
  process->files().Pretend(1, gpus - 1, "256\n");
  Forget();
  if (behind) RETURN_IF_ERROR(stays->Submit(0, 32, true, {}));
  ASSIGN_OR_RETURN(out.tokens, stays->Land());
  const backend::ResidentCounts after = stays->context().resident_counts();
  process->files().Leave(1);
  Forget();
  out.paused = after.pauses > before.pauses;
  out.without_room = after.no_room - before.no_room;
  out.launches = after.launches - before.launches;
  return out;
}

}  // namespace

// What a pause has interrupted ends as packets, to the same bits; rounds and steps that others' wish has ended are left out,
// as with room; and the kernel goes on behind it.
TEST(what_a_pause_interrupts_ends_as_packets_without_room) {
  std::vector<std::string> nodes = {"gfx950", "gfx942x2"};
  // Under checkers, minutes: "sim:gfx942x2,card=mi308x,check=all".
  if (const char* device = std::getenv("MAINARCH_TEST_DEVICE")) nodes = {std::string(absl::StripPrefix(device, "sim:"))};
  const std::string directory = test::WriteFixture({"L3", "bf16", 1});
  CHECK(!directory.empty());
  for (const std::string& node : nodes) {
    auto process = Process::Start(MakeNode(node.c_str()), directory);
    CHECK_OK(process);
    auto stays = test::Alone::Create(*(*process)->model), passes = test::Alone::Create(*(*process)->model, ResidentMode::kOff);
    CHECK_OK(stays);
    CHECK_OK(passes);
    const auto run = [&] {
      const Status sent = (*stays)->Submit(65, 0, false, {(*stays)->LeaseOf(31)});
      return sent.ok() ? (*stays)->Land() : StatusOr<std::vector<uint32_t>>(sent);
    };
    const auto all = run();
    CHECK_OK(all);
    CHECK_EQ(all->size(), 32u);
    AwaitLeft((*stays)->context());
    int paused = 0, left_out = 0;
    for (int turn = 0; turn < 60 && (paused < 4 || left_out < 1); ++turn) {
      const bool behind = turn % 2 != 0;
      const auto got = Interrupt(process->get(), stays->get(), passes->get(), turn % 5 * 10'000'000, behind);
      CHECK_OK(got);
      CHECK_GE(got->tokens.size(), 1u);
      CHECK_LE(got->tokens.size(), all->size() + behind);
      const size_t same = std::min(got->tokens.size(), all->size());
      CHECK(std::equal(all->begin(), all->begin() + static_cast<ptrdiff_t>(same), got->tokens.begin()));
      // No kernel was launched again for the rest, nor for the step behind it.
      if (got->paused) {
        CHECK_EQ(got->launches, 1u);
        CHECK_GE(got->without_room, 1u);
      }
      paused += got->paused;
      left_out += got->paused && behind && got->tokens.size() < all->size();
    }
    std::printf("# %s: %d interrupted, of which %d had a step behind\n", node.c_str(), paused, left_out);
    CHECK_GE(paused, 4);
    CHECK_GE(left_out, 1);
    const uint64_t launches = (*stays)->context().resident_counts().launches;
    const auto again = run();
    CHECK_OK(again);
    CHECK(*again == *all);
    CHECK_GT((*stays)->context().resident_counts().launches, launches);
  }
}

// A step behind rounds that are over, whose kernel has left: none can come behind rounds but the kernel's.
TEST(a_step_behind_rounds_is_packets_without_room) {
  const std::string directory = test::WriteFixture({"L3", "bf16", 1});
  CHECK(!directory.empty());
  auto process = Process::Start(MakeNode("gfx950x2"), directory);
  CHECK_OK(process);
  auto stays = test::Alone::Create(*(*process)->model);
  CHECK_OK(stays);
  backend::Context& context = (*stays)->context();
  std::vector<uint32_t> want;
  uint64_t no_room = 0;
  for (const bool crowded : {false, true, false, true}) {
    CHECK_OK((*stays)->Submit(65, 0, false, {(*stays)->LeaseOf(3)}));
    CHECK_OK(context.Poll(-1));
    AwaitLeft(context);
    const uint64_t launches = context.resident_counts().launches;
    if (crowded) (*process)->files().Pretend(1, 1, "8\n");
    Forget();
    CHECK_OK((*stays)->Submit(0, 4, true, {}));
    const auto got = (*stays)->Land();
    CHECK_OK(got);
    CHECK_EQ(got->size(), 4u);
    if (want.empty()) want = *got;
    CHECK(*got == want);
    CHECK_EQ(context.resident_counts().launches - launches, crowded ? 0u : 1u);
    CHECK_EQ(context.resident_counts().no_room, no_room += crowded);
    (*process)->files().Leave(1);
    Forget();
  }
}

namespace {

// Kernels that stay, whose only list does nothing.
struct Idle {
  std::unique_ptr<amdgpu::Resident> kernels;
  std::vector<gpu::Buffer> memory;

  static StatusOr<std::unique_ptr<Idle>> Start(amdgpu::Gpus& gpus) {
    auto own = std::make_unique<Idle>();
    ASSIGN_OR_RETURN(own->kernels, amdgpu::Resident::Create(gpus, 0, /*workers=*/4, /*timed=*/false));
    for (int32_t r = 0; r < gpus.count(); ++r) {
      gpu::BufferOptions options;
      options.place = gpu::Place::kSystem;
      options.label = "a list that does nothing";
      ASSIGN_OR_RETURN(gpu::Buffer memory, gpu::Buffer::Allocate(*gpus.at(r).device, 4096, options));
      std::memset(memory.host(), 0, memory.size());  // no changes of no tables
      kernels::Kernarg<kernels::StepTablesArgs> kernarg;
      kernarg.workers = 1;
      kernarg.args.changes.address = kernarg.args.tables.address = memory.va() + 1024;
      std::memcpy(memory.host(), &kernarg, sizeof(kernarg));
      amdgpu::Launch launch;
      launch.kernel = "step_tables";
      ASSIGN_OR_RETURN(const kernels::ResidentOp op, own->kernels->OpOf(r, launch, memory.va()));
      RETURN_IF_ERROR(own->kernels->SetLists(r, {{{op}, {false}}}));
      own->memory.push_back(std::move(memory));
    }
    return own;
  }
  bool Ran(int32_t rank, uint64_t number) const {
    const int64_t until = NowNs() + 20'000'000'000;
    while (kernels->Look(rank, number, 1) == amdgpu::Resident::Round::kRuns && NowNs() < until) std::this_thread::yield();
    return kernels->Look(rank, number, 1) == amdgpu::Resident::Round::kRan;
  }
};

}  // namespace

// A rank's kernel may have had commands that another's has not: an end that the other left before.
TEST(ranks_whose_commands_have_other_numbers_go_on_behind_packets) {
  auto sys = sim::OpenSim("gfx942x2");
  CHECK_OK(sys);
  auto gpus = amdgpu::Gpus::OpenOn(std::shared_ptr<kfd::Sys>(*std::move(sys)), "", false);
  CHECK_OK(gpus);
  auto idle = [&] {
    std::lock_guard<std::mutex> held((*gpus)->mutex());
    return Idle::Start(**gpus);
  }();
  CHECK_OK(idle);
  std::lock_guard<std::mutex> held((*gpus)->mutex());
  amdgpu::Resident& resident = *(*idle)->kernels;
  CHECK_OK(resident.Claim());
  for (int i = 0; i < 3; ++i) {
    const auto number = resident.Post(1, 0, {});
    CHECK_OK(number);
    resident.Ring();
    CHECK((*idle)->Ran(1, *number));
  }
  const int64_t until = NowNs() + 20'000'000'000;
  while (!resident.left() && NowNs() < until) std::this_thread::yield();
  CHECK_OK((*gpus)->at(1).queue->Wait(resident.point(1), (*gpus)->Soon()));
  // What packets have done.
  std::vector<uint64_t> numbers;
  for (int32_t r = 0; r < 2; ++r) {
    const auto number = resident.PostAlone(r, 0, {});
    CHECK_OK(number);
    numbers.push_back(*number);
  }
  CHECK_EQ(numbers[1], numbers[0] + 3);
  const auto stand = resident.TakeStand();
  CHECK_OK(stand);
  CHECK_EQ(stand->number + 1, numbers[0]);
  CHECK_EQ(stand->rounds, 0u);
  for (int32_t r = 0; r < 2; ++r) CHECK(resident.Look(r, numbers[static_cast<size_t>(r)], 1) == amdgpu::Resident::Round::kRuns);
  resident.TellRan(resident.posted(), 1);
  resident.TellDone(resident.posted());
  CHECK_OK(resident.GoOnBehind(false));
  for (int32_t r = 0; r < 2; ++r) CHECK((*idle)->Ran(r, numbers[static_cast<size_t>(r)]));
  // And the next kernels.
  for (int32_t r = 0; r < 2; ++r) {
    const auto number = resident.Post(r, 0, {});
    CHECK_OK(number);
    CHECK_EQ(*number, numbers[static_cast<size_t>(r)] + 1);
    resident.Ring();
    CHECK((*idle)->Ran(r, *number));
  }
}

// Whoever comes second finds the other's waves there.
TEST(two_processes_with_resident_kernels_do_not_wait_for_each_other) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  const std::shared_ptr<sim::Node> node = MakeNode("gfx950");
  CHECK(node != nullptr);
  auto first = Process::Start(node, directory), second = Process::Start(node, directory);
  CHECK_OK(first);
  CHECK_OK(second);
  std::atomic<bool> enough{false};
  Status worked;
  std::thread busy([&] {
    while (!enough && worked.ok()) {
      auto runner = RunnerOf(**first, ResidentMode::kOn);
      worked = runner.status();
      for (const uint32_t token : test::Prompt(30, 256)) {
        if (worked.ok() && !enough) worked = (*runner)->Extend({&token, 1}, false);
      }
    }
  });
  bool same = true;
  uint64_t no_room = 0;
  const int64_t until = NowNs() + 60'000'000'000;
  while (same && no_room == 0 && NowNs() < until) {
    const auto alone = RunnerOf(**second, ResidentMode::kOff), resident = RunnerOf(**second, ResidentMode::kOn);
    same = alone.ok() && resident.ok();
    for (const uint32_t token : test::Prompt(3, 256)) {
      same = same && RanResident(alone->get(), resident->get(), token).ok();
      if (same) no_room = (*resident)->context().resident_counts().no_room;
      if (no_room > 0) break;
    }
  }
  enough = true;
  busy.join();
  CHECK_OK(worked);
  CHECK(same);
  CHECK_GT(no_room, 0u);
  CHECK(!(*second)->log.lines.empty());
  std::printf("# %s\n", (*second)->log.lines[0].c_str());
  CHECK(absl::StrContains((*second)->log.lines[0], "1 other process has waves"));
}
