// SPDX-License-Identifier: MIT
//
// The whole path of the string `sim:gfx950`: the library's driver opens a virtual node, loads a
// code object that a compiler made, dispatches its kernels through a queue, and the node interprets
// the machine code. Nothing stands in for anything.
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "sim/open.h"
#include "support/test.h"

namespace mainarch {
namespace {

gpu::Deadline Soon() { return gpu::Deadline::In(60'000); }

struct Bench {
  std::unique_ptr<sim::SimSys> sys;
  std::unique_ptr<gpu::Process> process;
  std::unique_ptr<gpu::Queue> queue;
  std::unique_ptr<gpu::LoadedCode> code;
  gpu::Buffer memory;

  ~Bench() {
    memory = gpu::Buffer();
    code.reset();
    queue.reset();
    process.reset();
  }

  Status Open(const std::string& isa) {
    constexpr uint32_t kScratch = 256;
    ASSIGN_OR_RETURN(sys, sim::OpenSim(isa));
    ASSIGN_OR_RETURN(process, gpu::Process::Open(*sys, {}));
    ASSIGN_OR_RETURN(gpu::Device * device, process->OpenDevice(0));
    gpu::QueueOptions options;
    options.scratch_bytes_per_lane = kScratch;
    options.scratch_limit_bytes = 16 << 20;
    ASSIGN_OR_RETURN(queue, gpu::Queue::Create(*device, options));
    const char* root = std::getenv("MAINARCH_BUILD_ROOT");
    const std::string path =
        std::string(root == nullptr ? "." : root) + "/tests/unit/gpu/kernels_" + isa + ".co";
    ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, 1 << 20));
    ASSIGN_OR_RETURN(const gpu::CodeObject object,
                     gpu::CodeObject::Parse(
                         path, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
    gpu::LoadOptions load;
    load.scratch_bytes_per_lane = kScratch;
    ASSIGN_OR_RETURN(code, gpu::LoadedCode::Load(*queue, object, load, Soon()));
    gpu::BufferOptions shared;
    shared.place = gpu::Place::kSystem;
    shared.caching = gpu::Caching::kUncached;
    shared.label = "test memory";
    ASSIGN_OR_RETURN(memory, gpu::Buffer::Allocate(*device, 4096, shared));
    return OkStatus();
  }

  // Runs a kernel (int* out, int i) in one work-item and gives what it stored.
  StatusOr<int32_t> Run(const std::string& name, int32_t argument, uint64_t out = 0) {
    ASSIGN_OR_RETURN(const gpu::Kernel* kernel, code->Find(name));
    int32_t* result = memory.host<int32_t>() + 64;
    *result = -1;
    const uint64_t address = out != 0 ? out : memory.va() + 256;
    std::memcpy(memory.host<uint8_t>(), &address, 8);
    std::memcpy(memory.host<uint8_t>() + 8, &argument, 4);
    gpu::Dispatch dispatch;
    dispatch.kernel_object = kernel->object;
    dispatch.kernarg = memory.va();
    dispatch.group_bytes = kernel->group_bytes;
    dispatch.private_bytes = kernel->private_bytes;
    ASSIGN_OR_RETURN(const uint64_t point,
                     queue->SubmitSignalled(gpu::MakeDispatch(dispatch, {}), "test", Soon()));
    queue->Ring();
    RETURN_IF_ERROR(queue->Wait(point, Soon()));
    return *result;
  }
};

TEST(compiled_kernels_run_through_the_whole_driver) {
  for (const char* isa : {"gfx942", "gfx950"}) {
    Bench bench;
    CHECK_OK(bench.Open(isa));
    auto one = bench.Run("store_one", 0);
    CHECK_OK(one);
    CHECK_EQ(*one, 1);
    auto answer = bench.Run("store_answer", 0);
    CHECK_OK(answer);
    CHECK_EQ(*answer, 42);
    for (int i : {0, 1, 7, 15}) {
      auto scratch = bench.Run("with_scratch", i);
      CHECK_OK(scratch);
      CHECK_EQ(*scratch, (i & 15) * i);
    }
    CHECK_OK(bench.Run("with_lds", 5));  // reads a word nobody wrote: any value
  }
}

TEST(a_kernels_wild_store_is_reported_by_the_driver) {
  Bench bench;
  CHECK_OK(bench.Open("gfx950"));
  const auto result = bench.Run("store_one", 0, 0x7abcd0000000);
  CHECK(!result.ok());
  CHECK(result.status().message().find("7abcd0000") != absl::string_view::npos);
}

}  // namespace
}  // namespace mainarch
