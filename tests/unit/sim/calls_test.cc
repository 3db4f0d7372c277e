// SPDX-License-Identifier: MIT
//
// The calls that a client of ours never makes and others do: event streams, the debugger's call on
// oneself, global wave sync, wave states, checkpoints, apertures.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

TEST(an_event_stream_tells_of_faults_and_resets) {
  TestNode test = MakeNode("gfx950x2");
  Client client(test.node);
  CHECK(client.Open());
  uapi::SmiEventsArgs args = {0x1, 0};
  CHECK_EQ(client.Call(uapi::kSmiEvents, &args), -EINVAL);
  args.gpu_id = client.id(0);
  CHECK_EQ(client.Call(uapi::kSmiEvents, &args), 0);
  const int stream = static_cast<int>(args.anon_fd);
  char text[256] = {};
  pollfd ready = {stream, POLLIN, 0};
  CHECK_EQ(client.sys.Read(stream, text, sizeof text), -EAGAIN);  // and does not sleep
  CHECK_EQ(client.sys.Poll(&ready, 1, 0), 0);
  const uint64_t mask = 1u << (uapi::kSmiPreReset - 1) | 1u << (uapi::kSmiPostReset - 1);
  CHECK_EQ(client.sys.Write(stream, &mask, 4), -EFAULT);
  test.node->ResetGpu(0);  // nobody asked yet
  CHECK_EQ(client.sys.Poll(&ready, 1, 0), 0);
  CHECK_EQ(client.sys.Write(stream, &mask, 8), 8);
  test.node->ResetGpu(1);  // another GPU's
  CHECK_EQ(client.sys.Poll(&ready, 1, 0), 0);
  test.node->ResetGpu(0);
  CHECK_EQ(client.sys.Poll(&ready, 1, 10000), 1);
  CHECK_LT(0, client.sys.Read(stream, text, sizeof text));
  CHECK_EQ(std::string(text), "3 3 hang\n4 3 \n");
  CHECK_EQ(client.sys.Close(stream), 0);
  test.node->ResetGpu(0);  // nobody reads
}

// A program that is killed, or aborts as AMD's runtime does after an illegal instruction, leaves it too.
TEST(the_log_is_in_its_file_as_it_happens) {
  TestNode test = MakeNode("gfx950x2");
  Client client(test.node);
  const std::string path = mainarch::test::ScratchDirectory() + "/log";
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  CHECK(file.valid());
  test.node->ResetGpu(0);
  client.sys.LogTo(std::move(file));
  test.node->ResetGpu(1);
  StatusOr<std::string> text = ReadWholeFile(path, 4096);
  CHECK_OK(text);
  CHECK_EQ(*text, "GPU 1 is reset after a hang\n");
  test.node->RemoveGpu(0);
  text = ReadWholeFile(path, 4096);
  CHECK_OK(text);
  CHECK_EQ(*text, "GPU 1 is reset after a hang\nGPU 0 fell off the bus\n");
}

TEST(a_process_may_debug_itself_and_nobody_else) {
  TestNode test = MakeNode("gfx950");
  Client client(test.node);
  CHECK(client.Open());
  const auto trap = [&](uint32_t pid, uint32_t op, uint32_t fd = 0) {
    uint64_t info[2] = {};
    uapi::DbgTrapArgs args = {};
    args.pid = pid;
    args.op = op;
    args.rinfo_ptr = reinterpret_cast<uint64_t>(info);
    args.rinfo_size = sizeof info;
    args.dbg_fd = fd;
    return client.Call(uapi::kDbgTrap, &args);
  };
  const uint32_t self = static_cast<uint32_t>(getpid());
  CHECK_EQ(trap(0x7ffffff0, uapi::kDbgTrapEnable), -ESRCH);
  CHECK_EQ(trap(self, uapi::kDbgTrapSetFlags), -EINVAL);  // not enabled
  CHECK_EQ(trap(self, uapi::kDbgTrapEnable, 9999), -EBADF);
  CHECK_EQ(trap(self, uapi::kDbgTrapEnable, static_cast<uint32_t>(client.kfd)), 0);
  CHECK_EQ(trap(self, uapi::kDbgTrapEnable, static_cast<uint32_t>(client.kfd)), -EALREADY);
  CHECK_EQ(trap(self, 99), -EINVAL);
  CHECK_EQ(trap(self, uapi::kDbgTrapSuspendQueues), -EPERM);  // no runtime announced itself
  CHECK_EQ(trap(self, uapi::kDbgTrapQueryDebugEvent), -EAGAIN);
  uapi::RuntimeEnableArgs runtime = {};
  runtime.mode_mask = uapi::kRuntimeEnableMode;
  CHECK_EQ(client.Call(uapi::kRuntimeEnable, &runtime), 0);
  CHECK_EQ(trap(self, uapi::kDbgTrapSuspendQueues), -EOPNOTSUPP);
  CHECK(LogHas(*test.node, "debugger operation 6 is not modelled"));
  CHECK_EQ(trap(self, uapi::kDbgTrapDisable), 0);
  CHECK_EQ(trap(self, uapi::kDbgTrapDisable), -EINVAL);
}

TEST(one_queue_of_a_gpu_has_global_wave_sync) {
  TestNode test = MakeNode("gfx950");
  Client client(test.node);
  CHECK(client.Open());
  Queue first, second;
  CHECK_EQ(MakeAql(client, *test.node, 0, 4096, &first), 0);
  CHECK_EQ(MakeAql(client, *test.node, 0, 4096, &second), 0);
  const auto gws = [&](uint32_t queue, uint32_t count) {
    uapi::AllocQueueGwsArgs args = {queue, count, 0, 0};
    return client.Call(uapi::kAllocQueueGws, &args);
  };
  CHECK_EQ(gws(77, 1), -EINVAL);
  CHECK_EQ(gws(first.id, 0), -EINVAL);
  CHECK_EQ(gws(first.id, 64), 0);
  CHECK_EQ(gws(second.id, 64), -EBUSY);
  CHECK_EQ(gws(first.id, 0), 0);
  CHECK_EQ(gws(second.id, 64), 0);
  uapi::GetQueueWaveStateArgs state = {};
  state.queue_id = 77;
  CHECK_EQ(client.Call(uapi::kGetQueueWaveState, &state), -EFAULT);
  state.queue_id = first.id;
  CHECK_EQ(client.Call(uapi::kGetQueueWaveState, &state), -EINVAL);  // an AQL queue
}

TEST(checkpoints_need_a_capability_before_anything_is_looked_at) {
  TestNode test = MakeNode("gfx950");
  Client client(test.node);
  CHECK(client.Open());
  CHECK_EQ(client.Call(uapi::kCriuOp, reinterpret_cast<void*>(0x10)), -EACCES);
}

TEST(runtimes_ask_for_apertures_of_as_many_nodes_as_there_are) {
  TestNode test = MakeNode("gfx950x8");
  Client client(test.node);
  CHECK(client.Open());
  uapi::ProcessDeviceApertures apertures[16] = {};
  uapi::GetProcessAperturesNewArgs args = {};
  args.process_device_apertures_ptr = reinterpret_cast<uint64_t>(apertures);
  args.num_of_nodes = test.node->gpus()[0].topology_node + 8;  // CPUs and GPUs
  CHECK_EQ(client.Call(uapi::kGetProcessAperturesNew, &args), 0);
  CHECK_EQ(args.num_of_nodes, 8u);
  CHECK_EQ(apertures[7].gpu_id, client.id(7));
  args.num_of_nodes = 16;
  CHECK_EQ(client.Call(uapi::kGetProcessAperturesNew, &args), -EINVAL);
}

}  // namespace
}  // namespace mainarch::sim::test
