// SPDX-License-Identifier: MIT
//
// Copy engines on the virtual node: every engine, every size class, eight GPUs at once.
#include <set>

#include "absl/strings/match.h"
#include "sim/driver_fixture.h"

namespace mainarch::gpu {
namespace {

uint32_t Pattern(uint64_t seed, uint64_t i) {
  uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15 + i;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return static_cast<uint32_t>(x >> 32);
}

StatusOr<Buffer> Vram(Device& device, uint64_t bytes) {
  BufferOptions options;
  options.host_access = true;
  options.label = "test vram";
  return Buffer::Allocate(device, bytes, options);
}

TEST(all_sixteen_engines_of_each_gpu_copy) {
  MACHINE("gfx950x8,seed=3");
  constexpr uint64_t kBytes = 64 << 10;
  std::vector<Device*> devices;
  CHECK_OK(machine->OpenAll(&devices));
  // Source and destinations on GPU 0's engines, destinations in every GPU's memory.
  auto source = Vram(*devices[0], kBytes);
  CHECK_OK(source);
  for (uint64_t i = 0; i < kBytes / 4; ++i) source->host<uint32_t>()[i] = Pattern(1, i);
  std::vector<Buffer> targets;
  std::vector<std::unique_ptr<CopyQueue>> queues;
  std::vector<uint64_t> points;
  std::set<int32_t> engines;
  for (int32_t engine = 0; engine < 16; ++engine) {
    CopyQueueOptions options;
    options.engine = engine;
    auto queue = CopyQueue::Create(*devices[0], options);
    CHECK_OK(queue);
    CHECK_EQ((*queue)->engine(), engine);
    engines.insert((*queue)->engine());
    auto target = Vram(*devices[static_cast<size_t>(engine) % 8], kBytes);
    CHECK_OK(target);
    CHECK_OK(target->MapTo(*devices[0]));
    CHECK_OK(target->MapTo(*devices[0]));  // idempotent
    CHECK_OK((*queue)->FlushHostWrites(Soon()));
    CHECK_OK((*queue)->Copy(target->va(), source->va(), kBytes, Soon()));
    auto point = (*queue)->Submit(Soon());
    CHECK_OK(point);
    points.push_back(*point);
    targets.push_back(*std::move(target));
    queues.push_back(*std::move(queue));
  }
  CHECK_EQ(engines.size(), 16u);
  for (size_t i = 0; i < queues.size(); ++i) {
    CHECK_OK(queues[i]->Wait(points[i], Soon()));
    CHECK_EQ(memcmp(targets[i].host(), source->host(), kBytes), 0);
  }
  // A seventeenth queue on an engine takes the next slot of that engine.
  CopyQueueOptions options;
  options.engine = 5;
  CHECK_OK(CopyQueue::Create(*devices[0], options));
  options.engine = 16;
  CHECK(absl::StrContains(CopyQueue::Create(*devices[0], options).status().message(), "engine 16"));
}

TEST(the_engine_of_each_link_is_another) {
  MACHINE("gfx942x8");
  std::vector<Device*> devices;
  CHECK_OK(machine->OpenAll(&devices));
  for (Device* from : devices) {
    std::set<int32_t> engines;
    for (Device* to : devices) {
      if (from == to) continue;
      const int32_t engine = PeerEngine(*from, *to);
      CHECK_LE(2, engine);
      CHECK_LT(engine, 16);
      engines.insert(engine);
    }
    CHECK_EQ(engines.size(), 7u);
  }
  CHECK_EQ(HostEngine(*devices[0], Direction::kToDevice), 1);
  CHECK_EQ(HostEngine(*devices[0], Direction::kFromDevice), 0);
}

TEST(an_old_kernel_places_by_class) {
  ONE_GPU("gfx942x1,minor=14");
  CopyQueueOptions options;
  options.engine = 7;
  auto queue = CopyQueue::Create(**device, options);
  CHECK_OK(queue);
  CHECK_EQ((*queue)->engine(), kAnyEngine);
  auto memory = Machine::SharedMemory(**device, 8192);
  CHECK_OK(memory);
  CHECK_OK((*queue)->Fill(memory->va(), 0xabcd1234, 4096, Soon()));
  auto point = (*queue)->Submit(Soon());
  CHECK_OK(point);
  CHECK_OK((*queue)->Wait(*point, Soon()));
  CHECK_EQ(memory->host<uint32_t>()[1023], 0xabcd1234u);
  CHECK_EQ(memory->host<uint32_t>()[1024], 0u);
}

// Sizes around every limit, at odd addresses, against memcpy.
TEST(copies_of_all_sizes_are_exact) {
  ONE_GPU("gfx950x1,seed=21");
  auto queue = CopyQueue::Create(**device, {});
  CHECK_OK(queue);
  constexpr uint64_t kBytes = 3 * kSdmaMaxBytes;
  auto from = Machine::SharedMemory(**device, kBytes);
  auto to = Machine::SharedMemory(**device, kBytes);
  CHECK_OK(from);
  CHECK_OK(to);
  for (uint64_t i = 0; i < kBytes / 4; ++i) from->host<uint32_t>()[i] = Pattern(2, i);
  const uint64_t kSizes[] = {1,
                             3,
                             4,
                             63,
                             4096,
                             kSdmaMaxBytes - 1,
                             kSdmaMaxBytes,
                             kSdmaMaxBytes + 1,
                             0x400000,
                             0x400001,
                             2 * kSdmaMaxBytes + 5};
  for (const uint64_t size : kSizes) {
    const uint64_t source = size % 61, target = size % 37;
    memset(to->host(), 0x5a, to->size());
    CHECK_OK((*queue)->Copy(to->va() + target, from->va() + source, size, Soon()));
    auto point = (*queue)->Submit(Soon());
    CHECK_OK(point);
    CHECK_OK((*queue)->Wait(*point, Soon()));
    CHECK_EQ(memcmp(to->host() + target, from->host() + source, size), 0);
    CHECK_EQ(to->host()[target + size], 0x5a);
    if (target > 0) CHECK_EQ(to->host()[target - 1], 0x5a);
  }
}

TEST(a_copy_ring_wraps_thousands_of_times) {
  ONE_GPU("gfx950x1,seed=31");
  CopyQueueOptions options;
  options.ring_bytes = 4096;
  auto queue = CopyQueue::Create(**device, options);
  CHECK_OK(queue);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  uint64_t point = 0;
  uint64_t sum = 0;
  // Packets of 7, 5, 4, 8 and 6 dwords, so that the ring's end meets each at every place.
  for (uint32_t i = 1; i <= 200'000; ++i) {
    switch (i % 5) {
      case 0:
        CHECK_OK((*queue)->Copy(memory->va() + 256, memory->va() + 128, 64, Soon()));
        break;
      case 1:
        CHECK_OK((*queue)->Fill(memory->va() + 128, i, 64, Soon()));
        break;
      case 2:
        CHECK_OK((*queue)->Fence(memory->va() + 64, i, Soon()));
        break;
      case 3:
        CHECK_OK((*queue)->AtomicAdd(memory->va(), i, Soon()));
        sum += i;
        break;
      case 4:
        CHECK_OK(
            (*queue)->Poll(memory->va() + 64, i - 2, 0xffffffff, PollFunction::kEqual, Soon()));
        break;
    }
    if (i % 100 == 0) {
      auto submitted = (*queue)->Submit(Soon());
      CHECK_OK(submitted);
      CHECK_EQ(*submitted, point + 1);
      point = *submitted;
    }
  }
  CHECK_OK((*queue)->Wait(point, Soon()));
  CHECK_EQ(*memory->host<uint64_t>(), sum);
  CHECK_LT(uint64_t{1000} * 4096, (*queue)->written_bytes());
}

TEST(copies_wait_for_compute_and_compute_for_copies) {
  ONE_GPU("gfx950x1,seed=41");
  auto compute = Queue::Create(**device, {});
  CHECK_OK(compute);
  auto copy = CopyQueue::Create(**device, {});
  CHECK_OK(copy);
  auto code = Machine::PlaceCode(**compute, "add");
  CHECK_OK(code);
  auto memory = Machine::SharedMemory(**device, 4096);
  CHECK_OK(memory);
  const uint64_t va = memory->va();
  uint64_t* words = memory->host<uint64_t>();
  const AddArgs add = {va, 1};  // [0] += 1
  memcpy(words + 64, &add, sizeof add);
  for (uint64_t round = 1; round <= 40; ++round) {
    // [0] += 1, then [8] = [0] by the engine, then [0] += 1 again, after the copy.
    auto first = (*compute)->SubmitSignalled(AddPacket(*code, va + 512), "first", Soon());
    CHECK_OK(first);
    CHECK_OK((*copy)->WaitFor((*compute)->timeline(), *first, Soon()));
    CHECK_OK((*copy)->Copy(va + 64, va, 8, Soon()));
    auto copied = (*copy)->Submit(Soon());
    CHECK_OK(copied);
    CHECK_OK((*compute)->WaitFor((*copy)->timeline(), *copied, Soon()));
    auto second = (*compute)->SubmitSignalled(AddPacket(*code, va + 512), "second", Soon());
    CHECK_OK(second);
    (*compute)->Ring();
    CHECK_OK((*compute)->Wait(*second, Soon()));
    CHECK_EQ(words[0], 2 * round);
    CHECK_EQ(words[8], 2 * round - 1);
  }
}

TEST(timestamps_ascend) {
  ONE_GPU("gfx942x1");
  auto queue = CopyQueue::Create(**device, {});
  CHECK_OK(queue);
  auto memory = Machine::SharedMemory(**device, 1 << 20);
  CHECK_OK(memory);
  CHECK_OK((*queue)->Timestamp(memory->va(), Soon()));
  CHECK_OK((*queue)->Copy(memory->va() + 4096, memory->va() + 65536, 32768, Soon()));
  CHECK_OK((*queue)->Timestamp(memory->va() + 32, Soon()));
  auto point = (*queue)->Submit(Soon());
  CHECK_OK(point);
  CHECK_OK((*queue)->Wait(*point, Soon()));
  CHECK_NE(memory->host<uint64_t>()[0], 0u);
  CHECK_LE(memory->host<uint64_t>()[0], memory->host<uint64_t>()[4]);
}

TEST(wrong_arguments_are_named) {
  ONE_GPU("gfx950x1");
  auto queue = CopyQueue::Create(**device, {});
  CHECK_OK(queue);
  CHECK(absl::StrContains((*queue)->Fill(0x1002, 0, 4, Soon()).message(), "multiples of 4"));
  CHECK(absl::StrContains((*queue)->Fill(0x1000, 0, 5, Soon()).message(), "multiples of 4"));
  CHECK(absl::StrContains((*queue)->Fence(0x1001, 0, Soon()).message(), "fence"));
  CHECK(absl::StrContains((*queue)->AtomicAdd(0x1004, 0, Soon()).message(), "multiple of 8"));
  CHECK(absl::StrContains((*queue)->Timestamp(0x1008, Soon()).message(), "multiple of 32"));
  CHECK(!(*queue)->Wait(7, Soon()).ok());
  CopyQueueOptions options;
  options.ring_bytes = 5000;
  CHECK(absl::StrContains(CopyQueue::Create(**device, options).status().message(), "ring of 5000"));
}

}  // namespace
}  // namespace mainarch::gpu
