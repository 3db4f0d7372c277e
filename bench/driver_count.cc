// SPDX-License-Identifier: MIT
//
// What one packet costs the host: instructions, lines of code, and lines of memory shared with the
// GPU that are written. Counted, not timed: a parent single-steps the submitting thread of a child,
// so the numbers are exact for a build and do not depend on the machine. They are the part of a
// dispatch that is ours; what hardware adds is not known here.
//
// The wall times below them are those of the virtual node, a simulator; they say nothing about any
// GPU.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/copy_queue.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "sim/host_executor.h"
#include "sim/sim_sys.h"

namespace mainarch {
namespace {

constexpr int kPackets = 256;

gpu::Deadline Soon() { return gpu::Deadline::In(60'000); }

struct Rig {
  std::shared_ptr<sim::Node> node;
  std::unique_ptr<sim::SimSys> sys;
  std::unique_ptr<gpu::Process> process;
  gpu::Device* device = nullptr;
  std::unique_ptr<gpu::Queue> queue;
  std::unique_ptr<gpu::CopyQueue> copy;
  gpu::Buffer memory;

  ~Rig() {
    memory.Release().IgnoreError();
    copy.reset();
    queue.reset();
    process.reset();
    sys.reset();
  }
};

Status Build(Rig* rig) {
  ASSIGN_OR_RETURN(const sim::NodeConfig config, sim::ParseNode("gfx950x1"));
  ASSIGN_OR_RETURN(rig->node, sim::Node::Create(config, std::make_unique<sim::HostExecutor>()));
  rig->sys = std::make_unique<sim::SimSys>(rig->node);
  ASSIGN_OR_RETURN(rig->process, gpu::Process::Open(*rig->sys, {}));
  ASSIGN_OR_RETURN(rig->device, rig->process->OpenDevice(0));
  gpu::QueueOptions queue;
  queue.packets = 8192;  // never full while we count
  ASSIGN_OR_RETURN(rig->queue, gpu::Queue::Create(*rig->device, queue));
  gpu::CopyQueueOptions copy;
  copy.ring_bytes = 1 << 20;
  ASSIGN_OR_RETURN(rig->copy, gpu::CopyQueue::Create(*rig->device, copy));
  gpu::BufferOptions memory;
  memory.place = gpu::Place::kSystem;
  memory.caching = gpu::Caching::kUncached;
  ASSIGN_OR_RETURN(rig->memory, gpu::Buffer::Allocate(*rig->device, 1 << 20, memory));
  return {};
}

Status Nothing(Rig&) { return {}; }

Status WritePackets(Rig& rig) {
  const gpu::AqlPacket packet = gpu::MakeBarrierAnd({}, {});
  const gpu::Deadline deadline = Soon();
  for (int i = 0; i < kPackets; ++i) {
    RETURN_IF_ERROR(rig.queue->Submit(packet, "count", deadline));
  }
  return {};
}

Status SignalPackets(Rig& rig) {
  const gpu::AqlPacket packet = gpu::MakeBarrierAnd({}, {});
  const gpu::Deadline deadline = Soon();
  for (int i = 0; i < kPackets; ++i) {
    RETURN_IF_ERROR(rig.queue->SubmitSignalled(packet, "count", deadline).status());
    rig.queue->Ring();
  }
  return {};
}

Status SeePoints(Rig& rig) {
  const uint64_t point = rig.queue->timeline().Completed();
  const gpu::Deadline deadline = Soon();
  for (int i = 0; i < kPackets; ++i) RETURN_IF_ERROR(rig.queue->Wait(point, deadline));
  return {};
}

Status WriteCopies(Rig& rig) {
  const gpu::Deadline deadline = Soon();
  for (int i = 0; i < kPackets; ++i) {
    RETURN_IF_ERROR(rig.copy->Copy(rig.memory.va(), rig.memory.va() + 8192, 4096, deadline));
  }
  return {};
}

Status SignalCopies(Rig& rig) {
  const gpu::Deadline deadline = Soon();
  for (int i = 0; i < kPackets; ++i) {
    RETURN_IF_ERROR(rig.copy->Copy(rig.memory.va(), rig.memory.va() + 8192, 4096, deadline));
    RETURN_IF_ERROR(rig.copy->Submit(deadline).status());
  }
  return {};
}

struct Region {
  const char* name;
  Status (*run)(Rig&);
  const char* ring;  // whose lines are counted; only where the GPU does not write them meanwhile
};
constexpr Region kRegions[] = {
    {"the counting itself, whole", Nothing, nullptr},
    {"compute: write a packet", WritePackets, "aql ring"},
    {"compute: write, signal, ring", SignalPackets, nullptr},
    {"compute: see a completed point", SeePoints, nullptr},
    {"copy: write a command", WriteCopies, "sdma ring"},
    {"copy: write, signal, ring", SignalCopies, nullptr},
};
constexpr size_t kRegionCount = sizeof kRegions / sizeof *kRegions;

std::vector<uint8_t> Snapshot(const Rig& rig, const char* label) {
  for (const auto& allocation : rig.process->Allocations()) {
    if (strcmp(allocation.label, label) != 0) continue;
    const auto* data = reinterpret_cast<const uint8_t*>(allocation.va);
    return std::vector<uint8_t>(data, data + allocation.size);
  }
  return {};
}

double LinesPerPacket(Rig& rig, const Region& region) {
  const std::vector<uint8_t> before = Snapshot(rig, region.ring);
  if (!region.run(rig).ok()) return -1;
  const std::vector<uint8_t> after = Snapshot(rig, region.ring);
  int lines = 0;
  for (size_t i = 0; i + 64 <= after.size(); i += 64) {
    lines += memcmp(before.data() + i, after.data() + i, 64) != 0;
  }
  return static_cast<double>(lines) / kPackets;
}

// In the child: stops before and after each region.
int RunTraced(int pipe_fd) {
  Rig rig;
  const Status built = Build(&rig);
  if (!built.ok()) {
    fprintf(stderr, "%s\n", std::string(built.message()).c_str());
    return 2;
  }
  double lines[kRegionCount] = {};
  for (size_t i = 0; i < kRegionCount; ++i) {
    // This also warms: lazy binding is not counted.
    if (kRegions[i].ring != nullptr) lines[i] = LinesPerPacket(rig, kRegions[i]);
    if (!kRegions[i].run(rig).ok()) return 3;
  }
  if (write(pipe_fd, lines, sizeof lines) != sizeof lines) return 5;
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  for (const Region& region : kRegions) {
    raise(SIGSTOP);
    const Status status = region.run(rig);
    raise(SIGSTOP);
    if (!status.ok()) return 4;
  }
  return 0;
}

struct Count {
  uint64_t instructions = 0;
  std::set<uint64_t> code_lines;
};

// Steps the stopped child to its next SIGSTOP. False when it ended instead, or cannot be stepped.
bool CountToNextStop(pid_t child, Count* count) {
#if defined(__x86_64__)
  for (;;) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) return false;
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
    if (WSTOPSIG(status) == SIGSTOP) return true;
    user_regs_struct registers;
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    ++count->instructions;
    count->code_lines.insert(registers.rip / 64);
  }
#else
  (void)child;
  (void)count;
  return false;
#endif
}

int CountRegions() {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) _exit(RunTraced(pipe_fds[1]));
  double lines[kRegionCount] = {};
  if (read(pipe_fds[0], lines, sizeof lines) != sizeof lines) return 1;
  printf(
      "host side, a packet (counted)      instructions  code lines in all  ring lines written\n");
  uint64_t overhead = 0;
  for (size_t i = 0; i < kRegionCount; ++i) {
    int status = 0;
    Count count;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        !CountToNextStop(child, &count)) {
      fprintf(stderr, "cannot single-step here (status 0x%x)\n", status);
      kill(child, SIGKILL);
      return 1;
    }
    if (i == 0) overhead = count.instructions;
    printf("%-34s %12.1f %18zu", kRegions[i].name,
           i == 0 ? static_cast<double>(overhead)
                  : static_cast<double>(count.instructions - overhead) / kPackets,
           count.code_lines.size());
    if (kRegions[i].ring != nullptr) printf(" %19.2f", lines[i]);
    printf("\n");
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int TimeVirtualNode() {
  Rig rig;
  if (!Build(&rig).ok()) return 1;
  constexpr int kTrips = 2000;
  const gpu::AqlPacket packet = gpu::MakeBarrierAnd({}, {});
  int64_t start = NowNs();
  for (int i = 0; i < kTrips; ++i) {
    auto point = rig.queue->SubmitSignalled(packet, "time", Soon());
    if (!point.ok()) return 1;
    rig.queue->Ring();
    if (!rig.queue->Wait(*point, Soon()).ok()) return 1;
  }
  const double dispatch_us = static_cast<double>(NowNs() - start) / kTrips / 1000;
  start = NowNs();
  for (int i = 0; i < kTrips; ++i) {
    if (!rig.copy->Copy(rig.memory.va(), rig.memory.va() + 8192, 4096, Soon()).ok()) return 1;
    auto point = rig.copy->Submit(Soon());
    if (!point.ok() || !rig.copy->Wait(*point, Soon()).ok()) return 1;
  }
  const double copy_us = static_cast<double>(NowNs() - start) / kTrips / 1000;
  printf(
      "VIRTUAL NODE wall time, not a performance of any GPU: packet to signal %.1f us, "
      "4 KiB copy to signal %.1f us\n",
      dispatch_us, copy_us);
  return 0;
}

}  // namespace
}  // namespace mainarch

int main() {
  const int counted = mainarch::CountRegions();
  const int timed = mainarch::TimeVirtualNode();
  return counted != 0 ? counted : timed;
}
