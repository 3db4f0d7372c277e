// SPDX-License-Identifier: MIT
//
// A client of the driver that goes as far as it is told and stays there, to be killed; or does a
// whole piece of work and says so. `state_client {direct|kernel} STATE`: direct makes a virtual node
// of its own, kernel opens /dev/kfd, which a preloaded library may answer. Exit codes: 0 done, 3 an
// error that was returned as one.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "gpu/copy_queue.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "kfd/linux_sys.h"
#include "sim/open.h"

namespace mainarch {
namespace {

gpu::Deadline Soon() { return gpu::Deadline::In(60'000); }

void Stay() {
  std::printf("ready\n");
  std::fflush(stdout);
  while (true) pause();
}

// Kernel arguments of ll_kernels.cc.
struct Args {
  uint64_t inbox[8];
  uint64_t report;
  uint32_t rank, rounds;
};

struct Client {
  std::unique_ptr<kfd::Sys> sys;
  std::unique_ptr<gpu::Process> process;
  gpu::Device* device = nullptr;
  gpu::Buffer memory;
  std::unique_ptr<gpu::Queue> queue;
  std::unique_ptr<gpu::CopyQueue> copies;
  std::unique_ptr<gpu::LoadedCode> code;

  ~Client() {
    code.reset();
    copies.reset();
    queue.reset();
    memory = gpu::Buffer();
    process.reset();
  }

  Status Load() {
    const char* root = std::getenv("MAINARCH_BUILD_ROOT");
    const std::string path =
        absl::StrCat(root == nullptr ? "." : root, "/tests/sim/ll_kernels_gfx950.co");
    ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, 1 << 20));
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    ASSIGN_OR_RETURN(const gpu::CodeObject object,
                     gpu::CodeObject::Parse(path, {data, bytes.size()}));
    ASSIGN_OR_RETURN(code, gpu::LoadedCode::Load(*queue, object, {}, Soon()));
    return OkStatus();
  }

  // `rank` of the all-reduce; without peers only 0 rounds come to an end.
  StatusOr<uint64_t> Dispatch(uint32_t rounds) {
    ASSIGN_OR_RETURN(const gpu::Kernel* kernel, code->Find("ll_all_reduce"));
    Args args = {};
    for (uint64_t& inbox : args.inbox) inbox = memory.va() + 4096;
    args.report = memory.va() + 1024;
    args.rounds = rounds;
    std::memcpy(memory.host(), &args, sizeof args);
    std::memset(memory.host() + 1024, 0, 16);
    gpu::Dispatch dispatch;
    dispatch.kernel_object = kernel->object;
    dispatch.kernarg = memory.va();
    dispatch.workgroup = {64, 1, 1};
    dispatch.grid = {64, 1, 1};
    ASSIGN_OR_RETURN(const uint64_t point,
                     queue->SubmitSignalled(gpu::MakeDispatch(dispatch, {}), "state", Soon()));
    queue->Ring();
    return point;
  }

  Status Copy() {
    RETURN_IF_ERROR(copies->Copy(memory.va() + (1 << 20), memory.va(), 1 << 20, Soon()));
    ASSIGN_OR_RETURN(const uint64_t point, copies->Submit(Soon()));
    return copies->Wait(point, Soon());
  }

  // Computes and copies, and looks at the results.
  Status Work() {
    ASSIGN_OR_RETURN(const uint64_t point, Dispatch(0));
    RETURN_IF_ERROR(queue->Wait(point, Soon()));
    std::memset(memory.host() + 8192, 0x5a, 4096);
    std::memset(memory.host() + (1 << 20) + 8192, 0, 4096);
    RETURN_IF_ERROR(Copy());
    if (std::memcmp(memory.host() + 8192, memory.host() + (1 << 20) + 8192, 4096) != 0) {
      return Error(Code::kInternal, "a copy that is none");
    }
    return OkStatus();
  }
};

// In a child: what it inherited refuses it, and what it does changes nothing of the parent's.
Status Fork(Client& client) {
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = !gpu::Queue::Create(*client.device, {}).ok() && !client.Copy().ok();
    _exit(refused ? 0 : 1);
  }
  int ended = 0;
  if (child < 0 || waitpid(child, &ended, 0) != child || ended != 0) {
    return Error(Code::kInternal, "a forked child ended with ", ended);
  }
  const pid_t other = vfork();
  if (other == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  if (other < 0 || waitpid(other, &ended, 0) != other || ended != 0) {
    return Error(Code::kInternal, "a vforked child ended with ", ended);
  }
  return OkStatus();
}

Status Go(const std::string& mode, const std::string& state) {
  Client client;
  if (mode == "direct") {
    ASSIGN_OR_RETURN(client.sys, sim::OpenSim("gfx950x2"));
  } else {
    client.sys = std::make_unique<kfd::LinuxSys>();
  }
  if (state == "node") Stay();
  ASSIGN_OR_RETURN(client.process, gpu::Process::Open(*client.sys, {}));
  if (state == "process") Stay();
  ASSIGN_OR_RETURN(client.device, client.process->OpenDevice(0));
  if (state == "device") Stay();
  gpu::BufferOptions shared;
  shared.place = gpu::Place::kSystem;
  shared.caching = gpu::Caching::kUncached;
  shared.label = "state client";
  ASSIGN_OR_RETURN(client.memory, gpu::Buffer::Allocate(*client.device, 4 << 20, shared));
  if (state == "memory") Stay();
  ASSIGN_OR_RETURN(client.queue, gpu::Queue::Create(*client.device, {}));
  ASSIGN_OR_RETURN(client.copies, gpu::CopyQueue::Create(*client.device, {}));
  RETURN_IF_ERROR(client.Load());
  if (state == "queues") Stay();
  RETURN_IF_ERROR(client.Work());
  if (state == "fork") {
    for (int i = 0; i < 5; ++i) {
      RETURN_IF_ERROR(Fork(client));
      RETURN_IF_ERROR(client.Work());
    }
  }
  if (state == "copying") {
    std::thread([&] {
      while (client.Copy().ok()) {
      }
    }).detach();
    Stay();
  }
  if (state == "running" || state == "waiting") {
    ASSIGN_OR_RETURN(const uint64_t point, client.Dispatch(1));
    if (state == "waiting") {
      std::thread([&client, point] {
        (void)client.queue->Wait(point, gpu::Deadline::In(600'000));
      }).detach();
    }
    Stay();
  }
  if (state == "closed") {
    client.code.reset();
    client.copies.reset();
    client.queue.reset();
    client.memory = gpu::Buffer();
    client.process.reset();
    Stay();
  }
  return OkStatus();
}

}  // namespace
}  // namespace mainarch

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const mainarch::Status status = mainarch::Go(argv[1], argv[2]);
  if (status.ok()) {
    std::printf("done\n");
    return 0;
  }
  std::printf("%s\n", std::string(status.message()).c_str());
  return 3;
}
