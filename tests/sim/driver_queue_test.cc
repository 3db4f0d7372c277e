// SPDX-License-Identifier: MIT
//
// Compute queues on the virtual node.
#include "absl/strings/match.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

TEST(a_dispatch_runs_and_completes_its_point) {
  ONE_GPU("gfx950x1");
  auto queue = Queue::Create(**device, {});
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "add");
  CHECK_OK(code);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  auto* args = memory->host<AddArgs>();
  uint64_t* result = memory->host<uint64_t>() + 100;
  *args = {memory->va() + 800, 42};
  auto point = (*queue)->SubmitSignalled(AddPacket(*code, memory->va()), "add", Soon());
  CHECK_OK(point);
  CHECK_EQ(*point, 2u);  // the first was the cache invalidation
  (*queue)->Ring();
  CHECK_OK((*queue)->Wait(*point, Soon()));
  CHECK_EQ(*result, 42u);
  CHECK((*queue)->Reached(*point));
  CHECK_EQ(static_cast<int>(CodeOf((*queue)->Wait(99, Soon()))),
           static_cast<int>(Code::kInvalidArgument));
}

// Rings of the least size, thousands of times around, by dispatches of every mix of barrier and
// signal; nothing is lost, nothing runs twice.
void WrapTheRing(const std::string& node, int packets, test::Context& test_context) {
  ONE_GPU(node);
  QueueOptions options;
  options.packets = 64;
  auto queue = Queue::Create(**device, options);
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "add");
  CHECK_OK(code);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  auto kernargs = KernargRing::Create(**queue, 8192);
  CHECK_OK(kernargs);
  uint64_t expected = 0;
  uint64_t point = 0;
  for (int i = 1; i <= packets; ++i) {
    auto slot = (*kernargs)->Allocate(sizeof(AddArgs), Soon());
    CHECK_OK(slot);
    const AddArgs args = {memory->va(), static_cast<uint64_t>(i)};
    memcpy(slot->host, &args, sizeof args);
    expected += static_cast<uint64_t>(i);
    AqlOrder order;
    order.barrier = i % 3 == 0;
    if (i % 7 == 0 || i == packets) {
      auto signalled = (*queue)->SubmitSignalled(AddPacket(*code, slot->va, order), "add", Soon());
      CHECK_OK(signalled);
      CHECK_LT(point, *signalled);
      point = *signalled;
      (*kernargs)->UsedUntil(point);
    } else {
      CHECK_OK((*queue)->Submit(AddPacket(*code, slot->va, order), "add", Soon()));
    }
    if (i % 5 == 0) (*queue)->Ring();
  }
  (*queue)->Ring();
  CHECK_OK((*queue)->Wait(point, Soon()));
  CHECK_EQ(*memory->host<uint64_t>(), expected);
  CHECK_EQ((*queue)->submitted(), static_cast<uint64_t>(packets) + 1);
}

TEST(a_ring_wraps_thousands_of_times) { WrapTheRing("gfx950x1,seed=11", 64 * 2000, test_context); }

TEST(a_ring_wraps_on_the_other_chip) { WrapTheRing("gfx942x1,seed=12", 64 * 100, test_context); }

TEST(rings_wrap_under_many_seeds) {
  for (int seed = 100; seed < 110; ++seed) {
    WrapTheRing("gfx950x1,seed=" + std::to_string(seed), 64 * 5, test_context);
    if (test_context.failed()) {
      printf("# seed %d\n", seed);
      return;
    }
  }
}

TEST(a_full_ring_waits_and_then_times_out) {
  ONE_GPU("gfx950x1");
  QueueOptions options;
  options.packets = 64;
  auto queue = Queue::Create(**device, options);
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "spin");
  CHECK_OK(code);
  Status status;
  int submitted = 0;
  while (status.ok() && submitted < 1000) {
    status = (*queue)->Submit(AddPacket(*code, 0x10000), "spin", test::Briefly());
    if (status.ok()) ++submitted;
  }
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kTimedOut));
  CHECK_LE(submitted, 65);
  CHECK(absl::StrContains(status.message(), "a free slot in the ring"));
  CHECK(absl::StrContains(status.message(), "\"spin\""));
  CHECK(absl::StrContains(status.message(), "gfx950"));
}

TEST(a_wait_that_times_out_says_where_the_queue_stands) {
  ONE_GPU("gfx942x1");
  auto queue = Queue::Create(**device, {});
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "spin");
  CHECK_OK(code);
  auto point = (*queue)->SubmitSignalled(AddPacket(*code, 0x10000), "spin forever", Soon());
  CHECK_OK(point);
  (*queue)->Ring();
  const Status status = (*queue)->Wait(*point, test::Briefly());
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kTimedOut));
  CHECK(absl::StrContains(status.message(), "point 2"));
  CHECK(absl::StrContains(status.message(), "timeline 1 of 2"));
  CHECK(absl::StrContains(status.message(), "spin forever"));
  // Teardown of a queue that never ends is bounded: the test itself ends.
}

TEST(barriers_order_two_queues) {
  ONE_GPU("gfx950x1,seed=5");
  auto first = Queue::Create(**device, {});
  auto second = Queue::Create(**device, {});
  CHECK_OK(first);
  CHECK_OK(second);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  uint64_t* words = memory->host<uint64_t>();
  machine->executor->Register("copy", [](sim::HostCall& call) {
    uint64_t from = 0, to = 0, value = 0;
    if (!call.Argument(0, &to) || !call.Argument(8, &from) ||
        !call.bus().Load64(from, &value, call.fault()) ||
        !call.bus().Store64(to, value, call.fault())) {
      return call.Fault();
    }
    // Late, so that a second queue that does not wait overtakes it.
    return call.calls() < 20 ? sim::HostCall::Again() : sim::HostCall::Done();
  });
  auto code1 = Machine::PlaceCode(**first, "copy");
  auto code2 = Machine::PlaceCode(**second, "copy");
  CHECK_OK(code1);
  CHECK_OK(code2);
  const uint64_t va = memory->va();
  for (uint64_t round = 1; round <= 50; ++round) {
    words[0] = round;
    words[8] = va + 16;  // first: [2] = [0]
    words[9] = va;
    words[10] = va + 32;  // second: [4] = [2]
    words[11] = va + 16;
    auto produced = (*first)->SubmitSignalled(AddPacket(*code1, va + 64), "produce", Soon());
    CHECK_OK(produced);
    CHECK_OK((*second)->WaitFor((*first)->timeline(), *produced, Soon()));
    auto consumed = (*second)->SubmitSignalled(AddPacket(*code2, va + 80), "consume", Soon());
    CHECK_OK(consumed);
    (*second)->Ring();
    (*first)->Ring();
    CHECK_OK((*second)->Wait(*consumed, Soon()));
    CHECK_EQ(words[4], round);
  }
}

TEST(a_bad_packet_stops_the_queue_and_says_why) {
  ONE_GPU("gfx950x1");
  auto queue = Queue::Create(**device, {});
  CHECK_OK(queue);
  auto code = Machine::PlaceCode(**queue, "add");
  CHECK_OK(code);
  Dispatch dispatch;
  dispatch.kernel_object = code->va();
  dispatch.kernarg = 0x10000;
  dispatch.workgroup = {1024, 2, 1};  // 2048 work-items
  dispatch.grid = {1024, 2, 1};
  auto point = (*queue)->SubmitSignalled(MakeDispatch(dispatch, {}), "too large", Soon());
  CHECK_OK(point);
  (*queue)->Ring();
  const Status status = (*queue)->Wait(*point, Soon());
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kDeviceLost));
  CHECK(absl::StrContains(status.message(), "too large"));
  printf("# %s\n", std::string(status.message()).c_str());
}

TEST(options_are_checked_by_name) {
  ONE_GPU("gfx950x1");
  for (uint32_t packets : {0u, 32u, 100u, 1u << 20}) {
    QueueOptions options;
    options.packets = packets;
    const Status status = Queue::Create(**device, options).status();
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kInvalidArgument));
    CHECK(absl::StrContains(status.message(), "power of two"));
  }
  QueueOptions options;
  options.priority = 16;
  CHECK(absl::StrContains(Queue::Create(**device, options).status().message(), "priority 16"));
  options.priority = 0;
  options.scratch_bytes_per_lane = 1 << 20;
  CHECK(absl::StrContains(Queue::Create(**device, options).status().message(), "scratch"));
}

TEST(kernel_arguments_too_large_for_their_ring) {
  ONE_GPU("gfx950x1");
  auto queue = Queue::Create(**device, {});
  CHECK_OK(queue);
  auto ring = KernargRing::Create(**queue, 4096);
  CHECK_OK(ring);
  CHECK(!(*ring)->Allocate(0, Soon()).ok());
  CHECK(!(*ring)->Allocate(4097, Soon()).ok());
  CHECK_OK((*ring)->Allocate(4000, Soon()));
  // Nothing was submitted that could ever free it.
  CHECK_EQ(static_cast<int>(CodeOf((*ring)->Allocate(4000, Soon()).status())),
           static_cast<int>(Code::kInvalidArgument));
}

}  // namespace
}  // namespace mainarch::gpu
