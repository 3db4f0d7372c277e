// SPDX-License-Identifier: MIT
//
// What a person is told when a GPU faults, hangs, resets, disappears, or forks.
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

int Number(Code code) { return static_cast<int>(code); }
int CodeNumber(const Status& status) { return static_cast<int>(CodeOf(status)); }

std::unique_ptr<Rig> MakeRig(const std::string& text, test::Context& test_context) {
  auto rig = Rig::Create(text, test_context);
  if (rig != nullptr) *rig->memory.host<AddArgs>() = {rig->memory.va() + 1024, 1};
  return rig;
}

Status DispatchOnce(Rig& rig, uint64_t kernarg, Deadline deadline) {
  ASSIGN_OR_RETURN(const uint64_t point,
                   rig.queue->SubmitSignalled(AddPacket(rig.code, kernarg), "add", deadline));
  rig.queue->Ring();
  return rig.queue->Wait(point, deadline);
}

TEST(a_page_fault_names_the_address_and_what_is_near) {
  auto rig = MakeRig("gfx950x2", test_context);
  CHECK(rig != nullptr);
  *rig->memory.host<AddArgs>() = {rig->memory.va() + rig->memory.size() + (64 << 20), 1};
  const Status status = DispatchOnce(*rig, rig->memory.va(), Soon());
  printf("# %s\n", std::string(status.message()).c_str());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK_EQ(DeviceOf(status), 0u);
  CHECK(absl::StrContains(status.message(), "memory fault at 0x"));
  CHECK(absl::StrContains(status.message(), "not mapped"));
  CHECK(absl::StrContains(status.message(), "past the end of"));
  // Sticky: nothing works on that GPU any more, and the other is not concerned.
  CHECK_EQ(CodeNumber(DispatchOnce(*rig, rig->memory.va(), Soon())), Number(Code::kDeviceLost));
  CHECK(!Machine::SharedMemory(*rig->device, 4096).ok());
  auto other = rig->machine->process->OpenDevice(1);
  CHECK_OK(other);
  CHECK_OK(Machine::SharedMemory(**other, 4096));
}

TEST(a_write_to_read_only_memory_says_so) {
  auto rig = MakeRig("gfx942x1", test_context);
  CHECK(rig != nullptr);
  BufferOptions options;
  options.writable = false;
  options.label = "read-only";
  auto constant = Buffer::Allocate(*rig->device, 4096, options);
  CHECK_OK(constant);
  *rig->memory.host<AddArgs>() = {constant->va(), 1};
  const Status status = DispatchOnce(*rig, rig->memory.va(), Soon());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "write to read-only memory"));
  CHECK(absl::StrContains(status.message(), "at byte 0 of \"read-only\""));
}

TEST(memory_of_a_peer_must_be_mapped) {
  auto rig = MakeRig("gfx950x2", test_context);
  CHECK(rig != nullptr);
  auto other = rig->machine->process->OpenDevice(1);
  CHECK_OK(other);
  BufferOptions options;
  options.label = "peer's";
  auto theirs = Buffer::Allocate(**other, 4096, options);
  CHECK_OK(theirs);
  *rig->memory.host<AddArgs>() = {theirs->va(), 1};
  const Status status = DispatchOnce(*rig, rig->memory.va(), Soon());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "\"peer's\""));
}

TEST(a_copy_fault_ends_the_wait_of_the_copy) {
  ONE_GPU("gfx950x1");
  auto queue = CopyQueue::Create(**device, {});
  CHECK_OK(queue);
  CHECK_OK((*queue)->Fill(0x10000, 1, 4096, Soon()));
  auto point = (*queue)->Submit(Soon());
  CHECK_OK(point);
  const Status status = (*queue)->Wait(*point, Soon());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "0x10000"));
}

TEST(trouble_on_demand) {
  const struct {
    const char* script;
    Code code;
    const char* text;
  } kCases[] = {
      {"fault=0@1", Code::kDeviceLost, "memory fault"},
      {"reset=0@1", Code::kDeviceLost, "reset the GPU after a hang"},
      {"ecc=0@1", Code::kDeviceLost, "ECC"},
      {"hang=0@1", Code::kTimedOut, "timeline 1 of 2"},
      {"lose=0@1", Code::kTimedOut, "timeline 1 of 2"},
  };
  for (const auto& c : kCases) {
    auto rig = MakeRig("gfx950x1,seed=9", test_context);
    CHECK(rig != nullptr);
    CHECK_OK(rig->machine->node->script().Add(c.script));  // counts packets from here on
    const Status status =
        DispatchOnce(*rig, rig->memory.va(), c.code == Code::kTimedOut ? test::Briefly() : Soon());
    printf("# %s: %s\n", c.script, std::string(status.message()).c_str());
    CHECK_EQ(CodeNumber(status), Number(c.code));
    CHECK(absl::StrContains(status.message(), c.text));
  }
}

// A page that is mapped and faults all the same, as after a bad migration.
TEST(a_page_that_faults) {
  auto rig = MakeRig("gfx950x1", test_context);
  CHECK(rig != nullptr);
  auto bad = Machine::SharedMemory(*rig->device, 8192);
  CHECK_OK(bad);
  const std::string page = absl::StrCat("0x", absl::Hex(bad->va() + 4096));
  CHECK_OK(rig->machine->node->script().Add("page=0@" + page));
  CHECK_OK(Machine::SharedMemory(*rig->device, 4096));  // from the next mapping on
  *rig->memory.host<AddArgs>() = {bad->va(), 1};
  CHECK_OK(DispatchOnce(*rig, rig->memory.va(), Soon()));  // its neighbour does not
  *rig->memory.host<AddArgs>() = {bad->va() + 4096 + 8, 1};
  const Status status = DispatchOnce(*rig, rig->memory.va(), Soon());
  printf("# %s\n", std::string(status.message()).c_str());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), page));
}

// A slow link delays and no more: the wait says where it stands, and the data comes.
TEST(a_slow_link) {
  auto rig = MakeRig("gfx950x2", test_context);
  CHECK(rig != nullptr);
  auto other = rig->machine->process->OpenDevice(1);
  CHECK_OK(other);
  CHECK_OK(rig->machine->node->script().Add("slow=0-1:100000"));  // a tenth of a second a chunk
  constexpr uint64_t kBytes = 256 << 10;
  BufferOptions options;
  options.host_access = true;
  options.label = "far memory";
  Device* const peers[] = {rig->device};
  options.peers = peers;
  auto far = Buffer::Allocate(**other, kBytes, options);
  CHECK_OK(far);
  options.peers = {};
  auto near = Buffer::Allocate(*rig->device, kBytes, options);
  CHECK_OK(near);
  memset(near->host(), 0x5a, kBytes);
  memset(far->host(), 0, kBytes);
  auto copies = CopyQueue::Create(*rig->device, {});
  CHECK_OK(copies);
  CHECK_OK((*copies)->Copy(far->va(), near->va(), kBytes, Soon()));
  auto point = (*copies)->Submit(Soon());
  CHECK_OK(point);
  const Status status = (*copies)->Wait(*point, Deadline::In(100));
  printf("# %s\n", std::string(status.message()).c_str());
  CHECK_EQ(CodeNumber(status), Number(Code::kTimedOut));
  CHECK(absl::StrContains(status.message(), "copy queue"));
  CHECK_OK((*copies)->Wait(*point, Soon()));
  CHECK_EQ(far->host()[0], 0x5a);
  CHECK_EQ(far->host()[kBytes - 1], 0x5a);
}

TEST(a_gpu_that_falls_off_the_bus) {
  auto rig = MakeRig("gfx950x2", test_context);
  CHECK(rig != nullptr);
  rig->machine->node->RemoveGpu(0);
  const Status status = DispatchOnce(*rig, rig->memory.va(), test::Briefly());
  printf("# %s\n", std::string(status.message()).c_str());
  CHECK_EQ(CodeNumber(status), Number(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "is gone"));
  CHECK_EQ(CodeNumber(Machine::SharedMemory(*rig->device, 4096).status()),
           Number(Code::kDeviceLost));
}

TEST(a_lost_interrupt_costs_a_slice_not_a_hang) {
  auto rig = MakeRig("gfx950x1", test_context);
  CHECK(rig != nullptr);
  // Without a mailbox the GPU completes and tells nobody.
  const_cast<Signal*>(rig->queue->timeline().signal())->event_mailbox = 0;
  CHECK_OK(DispatchOnce(*rig, rig->memory.va(), Soon()));
}

TEST(a_child_of_fork_is_told) {
  auto rig = MakeRig("gfx950x1", test_context);
  CHECK(rig != nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    // No locks, no threads here: only what must not touch the parent's state.
    int failures = 0;
    failures += CodeOf(rig->device->Health()) != Code::kWrongProcess;
    failures += CodeOf(rig->queue->Submit(AqlPacket{}, "child", Soon())) != Code::kWrongProcess;
    failures += CodeOf(rig->machine->process->OpenDevice(0).status()) != Code::kWrongProcess;
    failures += CodeOf(Machine::SharedMemory(*rig->device, 4096).status()) != Code::kWrongProcess;
    rig->queue.reset();  // does nothing to the parent's queue
    rig->memory.Release().IgnoreError();
    rig->code.Release().IgnoreError();
    _exit(failures);
  }
  int wait_status = 0;
  CHECK_EQ(waitpid(child, &wait_status, 0), child);
  CHECK(WIFEXITED(wait_status));
  CHECK_EQ(WEXITSTATUS(wait_status), 0);
  CHECK_OK(DispatchOnce(*rig, rig->memory.va(), Soon()));
}

}  // namespace
}  // namespace mainarch::gpu
