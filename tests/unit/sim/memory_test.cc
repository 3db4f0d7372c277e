// SPDX-License-Identifier: MIT
//
// What memory of the node holds when nobody has written it, and the client's own memory on the
// GPUs: user buffers that are unmapped under the GPU, and shared virtual memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "absl/strings/str_cat.h"
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

bool IsNanBf16(uint16_t half) { return (half & 0x7f80) == 0x7f80 && (half & 0x7f) != 0; }
bool IsNanFp16(uint16_t half) { return (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0; }

TEST(new_memory_holds_no_data_of_any_format) {
  std::set<uint64_t> firsts;
  for (const char* node : {"gfx950,poison=1,seed=1", "gfx950,poison=1,seed=2"}) {
    for (const uint32_t flags : {kVram, kGtt}) {
      TestNode test = MakeNode(node);
      Client client(test.node);
      CHECK(client.Open());
      Memory memory;
      CHECK_EQ(client.Alloc(0, 64 << 10, flags, {0}, &memory), 0);
      const uint16_t* halves = memory.as<uint16_t>();
      for (size_t i = 0; i < memory.size / 2; ++i) {
        CHECK(IsNanBf16(halves[i]));
        CHECK(IsNanFp16(halves[i]));
      }
      firsts.insert(*memory.as<uint64_t>());
      // As an address it is nobody's.
      CHECK_LT(kGpuVmLimit, *memory.as<uint64_t>(8));
      CHECK_EQ(client.Free(memory), 0);
    }
  }
  CHECK_LT(1u, firsts.size());  // by seed; one node gives its first buffer the same words always
  TestNode zero = MakeNode("gfx950,poison=0");
  Client client(zero.node);
  CHECK(client.Open());
  Memory memory;
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), 0);
  for (size_t i = 0; i < 512; ++i) CHECK_EQ(*memory.as<uint64_t>(8 * i), 0u);
}

TEST(freed_memory_is_poisoned_under_a_mapping_that_stayed) {
  TestNode test = MakeNode("gfx942,poison=1");
  Client client(test.node);
  CHECK(client.Open());
  Memory memory;
  CHECK_EQ(client.Alloc(0, 8192, kVram, {0}, &memory), 0);
  *memory.as<uint64_t>() = 7;
  CHECK_EQ(client.Unmap(memory), 0);
  uapi::FreeMemoryArgs args = {memory.handle};
  CHECK_EQ(client.Call(uapi::kFreeMemory, &args), 0);
  const uint64_t stale = *memory.as<uint64_t>();
  CHECK(IsNanBf16(static_cast<uint16_t>(stale)));
  CHECK_EQ(client.sys.Munmap(memory.as<void>(), memory.size), 0);
}

TEST(a_large_buffer_stays_sparse_and_is_poisoned_here_and_there) {
  TestNode test = MakeNode("gfx950,poison=1");
  Client client(test.node);
  CHECK(client.Open());
  Memory memory;
  CHECK_EQ(client.Alloc(0, 64 << 20, kVram, {0}, &memory), 0);
  for (uint64_t at = 0; at < memory.size; at += 256 << 10) {
    CHECK(IsNanBf16(*memory.as<uint16_t>(at)));
  }
  CHECK_EQ(*memory.as<uint64_t>(128 << 10), 0u);
}

TEST(a_small_bar_hides_vram_from_the_cpu) {
  TestNode test = MakeNode("gfx950,smallbar=1");
  Client client(test.node);
  CHECK(client.Open());
  Memory memory;
  CHECK_EQ(client.Alloc(0, 4096, kVram, {0}, &memory), -EINVAL);
  std::string text;
  CHECK_EQ(client.sys.ReadFile("/sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties", 4096,
                               &text),
           0);
  CHECK(text.find("heap_type 2\n") != std::string::npos);
}

// A copy queue that reads the client's memory.
struct Copier {
  TestNode test;
  Client client;
  Queue queue;
  Memory target, flag;
  uint32_t memory_event = 0;
  bool ready = false;
  explicit Copier(const std::string& text) : test(MakeNode(text)), client(test.node) {
    if (!client.Open() || client.Alloc(0, 8192, kGtt, {0}, &target) != 0 ||
        client.Alloc(0, 4096, kGtt, {0}, &flag) != 0 ||
        MakeSdma(client, 0, 4096, -1, &queue) != 0) {
      return;
    }
    uapi::CreateEventArgs event = {};
    event.event_type = uapi::kEventMemory;
    ready = client.Call(uapi::kCreateEvent, &event) == 0;
    memory_event = event.event_id;
  }
  void Copy(uint64_t from, uint32_t value) {
    WriteSdma(queue, SdmaCopy(target.va, from, 4096));
    WriteSdma(queue, SdmaFence(flag.va, value));
    RingSdma(queue);
  }
  bool Done(uint32_t value) {
    return Soon([&] { return std::atomic_ref<uint32_t>(*flag.as<uint32_t>()).load() == value; });
  }
  bool Faulted(uint64_t va) {
    uapi::EventData data = {};
    data.event_id = memory_event;
    uapi::WaitEventsArgs wait = {};
    wait.events_ptr = reinterpret_cast<uint64_t>(&data);
    wait.num_events = 1;
    wait.timeout = 20000;
    return client.Call(uapi::kWaitEvents, &wait) == 0 && wait.wait_result == uapi::kWaitComplete &&
           data.memory_exception_data.va == va;
  }
  void* Pages(uint64_t bytes) {
    void* address = nullptr;
    client.sys.Mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
                    &address);
    return address;
  }
};

TEST(user_memory_that_is_unmapped_leaves_the_gpu_too) {
  Copier copier("gfx950");
  CHECK(copier.ready);
  void* pages = copier.Pages(8192);
  CHECK(pages != nullptr);
  const uint64_t va = reinterpret_cast<uint64_t>(pages);
  std::memset(pages, 0x5a, 8192);
  uapi::AllocMemoryArgs args = {};
  args.va_addr = args.mmap_offset = va;
  args.size = 8192;
  args.gpu_id = copier.client.id(0);
  args.flags = uapi::kAllocUserptr | uapi::kAllocWritable;
  CHECK_EQ(copier.client.Call(uapi::kAllocMemory, &args), 0);
  Memory user = {va, 8192, args.handle, {}};
  CHECK_EQ(copier.client.Map(user, {0}), 0);
  copier.Copy(va, 1);
  CHECK(copier.Done(1));
  CHECK_EQ(*copier.target.as<uint8_t>(100), 0x5a);
  CHECK_EQ(copier.client.sys.Munmap(pages, 8192), 0);
  copier.Copy(va, 2);
  CHECK(copier.Faulted(va));
}

// SVM as one call; room for eight attributes.
struct SvmCall {
  uapi::SvmArgs args = {};
  uapi::SvmAttribute attributes[8] = {};
  int Do(Client& client, uint64_t start, uint64_t size, uint32_t op,
         std::vector<uapi::SvmAttribute> list) {
    args = {start, size, op, static_cast<uint32_t>(list.size())};
    for (size_t i = 0; i < list.size(); ++i) attributes[i] = list[i];
    const uint32_t bytes = static_cast<uint32_t>(sizeof args + list.size() * 8);
    return client.Call(uapi::Request(uapi::kDirRead | uapi::kDirWrite, uapi::kNrSvm, bytes), this);
  }
};

TEST(svm_refuses_what_the_kernel_refuses) {
  Copier copier("gfx950x2");
  CHECK(copier.ready);
  Client& client = copier.client;
  const uint64_t va = reinterpret_cast<uint64_t>(copier.Pages(64 << 10));
  const uint32_t gpu = client.id(0);
  const uapi::SvmAttribute access = {uapi::kSvmAccess, gpu};
  SvmCall svm;
  CHECK_EQ(svm.Do(client, 0, 4096, uapi::kSvmOpSet, {access}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 0, uapi::kSvmOpSet, {access}), -EINVAL);
  CHECK_EQ(svm.Do(client, va + 8, 4096, uapi::kSvmOpSet, {access}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 4000, uapi::kSvmOpSet, {access}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 4096, 2, {access}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 4096, uapi::kSvmOpSet, {{99, 0}}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 4096, uapi::kSvmOpSet, {{uapi::kSvmAccess, 1}}), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 4096, uapi::kSvmOpGet, {{uapi::kSvmNoAccess, gpu}}), -EINVAL);
  CHECK_EQ(svm.Do(client, 0x10000, 4096, uapi::kSvmOpSet, {access}), -EFAULT);
  CHECK_EQ(svm.Do(client, copier.target.va, 4096, uapi::kSvmOpSet, {access}), -EADDRINUSE);
  // More attributes than the block has bytes for.
  svm.args = {va, 4096, uapi::kSvmOpSet, 5};
  CHECK_EQ(client.Call(uapi::kSvm, &svm), -EINVAL);
  CHECK_EQ(svm.Do(client, va, 64 << 10, uapi::kSvmOpSet, {access}), 0);
  uapi::AllocMemoryArgs args = {};
  args.va_addr = va + 8192;
  args.size = 4096;
  args.gpu_id = gpu;
  args.flags = kGtt;
  CHECK_EQ(client.Call(uapi::kAllocMemory, &args), -EADDRINUSE);
}

TEST(svm_gives_gpus_the_clients_memory_in_place) {
  Copier copier("gfx950x2");
  CHECK(copier.ready);
  Client& client = copier.client;
  void* pages = copier.Pages(64 << 10);
  std::memset(pages, 0x66, 64 << 10);
  const uint64_t va = reinterpret_cast<uint64_t>(pages);
  const uint32_t gpu = client.id(0), other = client.id(1);
  SvmCall svm;
  CHECK_EQ(svm.Do(client, va, 64 << 10, uapi::kSvmOpSet,
                  {{uapi::kSvmAccess, gpu}, {uapi::kSvmPrefetchLocation, gpu}}),
           0);
  copier.Copy(va + 4096, 1);
  CHECK(copier.Done(1));
  CHECK_EQ(*copier.target.as<uint8_t>(7), 0x66);
  // One page of it in place for the other, and read only.
  CHECK_EQ(svm.Do(client, va + 8192, 4096, uapi::kSvmOpSet,
                  {{uapi::kSvmAccessInPlace, other},
                   {uapi::kSvmSetFlags, uapi::kSvmGpuReadOnly},
                   {uapi::kSvmGranularity, 4}}),
           0);
  CHECK_EQ(svm.Do(client, va + 8192, 4096, uapi::kSvmOpGet,
                  {{uapi::kSvmAccess, gpu},
                   {uapi::kSvmAccess, other},
                   {uapi::kSvmSetFlags, 0},
                   {uapi::kSvmGranularity, 0},
                   {uapi::kSvmPreferredLocation, 0},
                   {uapi::kSvmPrefetchLocation, 0}}),
           0);
  CHECK_EQ(svm.attributes[0].type, uapi::kSvmAccess);
  CHECK_EQ(svm.attributes[1].type, uapi::kSvmAccessInPlace);
  CHECK_EQ(svm.attributes[2].value,
           uapi::kSvmHostAccess | uapi::kSvmCoherent | uapi::kSvmGpuReadOnly);
  CHECK_EQ(svm.attributes[3].value, 4u);
  CHECK_EQ(svm.attributes[4].value, uapi::kSvmLocationUndefined);
  CHECK_EQ(svm.attributes[5].value, gpu);
  // Over all of it: what the parts agree on.
  CHECK_EQ(svm.Do(client, va, 64 << 10, uapi::kSvmOpGet,
                  {{uapi::kSvmAccess, other}, {uapi::kSvmSetFlags, 0}, {uapi::kSvmGranularity, 0}}),
           0);
  CHECK_EQ(svm.attributes[0].type, uapi::kSvmNoAccess);
  CHECK_EQ(svm.attributes[1].value, uapi::kSvmHostAccess | uapi::kSvmCoherent);
  CHECK_EQ(svm.attributes[2].value, 4u);
  copier.Copy(va + 8192, 2);
  CHECK(copier.Done(2));  // reading is allowed
  // What is unmapped is nobody's; the rest stays.
  CHECK_EQ(client.sys.Munmap(reinterpret_cast<uint8_t*>(pages) + 16384, 4096), 0);
  copier.Copy(va + 20480, 3);
  CHECK(copier.Done(3));
  copier.Copy(va + 16384, 4);
  CHECK(copier.Faulted(va + 16384));
}

// As the kernel maps what a process may only read: for reading.
TEST(svm_follows_what_the_client_may_write) {
  Copier copier("gfx950");
  CHECK(copier.ready);
  Client& client = copier.client;
  uint8_t* pages = static_cast<uint8_t*>(copier.Pages(16384));
  const uint64_t va = reinterpret_cast<uint64_t>(pages);
  std::memset(pages, 0x11, 16384);
  std::memset(copier.target.as<uint8_t>(), 0x22, 4096);
  CHECK_EQ(client.sys.Mprotect(pages, 4096, PROT_READ), 0);  // before a GPU knows of it
  SvmCall svm;
  CHECK_EQ(svm.Do(client, va, 16384, uapi::kSvmOpSet, {{uapi::kSvmAccess, client.id(0)}}), 0);
  uint32_t fence = 0;
  const auto write = [&](uint64_t to) {
    WriteSdma(copier.queue, SdmaCopy(to, copier.target.va, 64));
    // Beside what is written, where the thread sanitizer sees it: the flag's memory has two addresses here.
    WriteSdma(copier.queue, SdmaFence(va + 16320, ++fence));
    RingSdma(copier.queue);
    auto& told = *reinterpret_cast<uint32_t*>(pages + 16320);
    return Soon([&] { return std::atomic_ref<uint32_t>(told).load() == fence; });
  };
  CHECK(write(va + 8192));
  CHECK_EQ(pages[8192], 0x22);
  CHECK_EQ(client.sys.Mprotect(pages + 8192, 4096, PROT_READ), 0);
  CHECK(write(va + 4096));
  CHECK(write(va + 12288));
  CHECK_EQ(pages[4096] + pages[12288], 0x44);
  CHECK_EQ(client.sys.Mprotect(pages + 8192, 4096, PROT_READ | PROT_WRITE), 0);
  CHECK(write(va + 8192 + 64));
  CHECK_EQ(pages[8192 + 64], 0x22);
  copier.Copy(va, ++fence);  // reading is allowed everywhere
  CHECK(copier.Done(fence));
  CHECK_EQ(*copier.target.as<uint8_t>(5), 0x11);
  WriteSdma(copier.queue, SdmaCopy(va + 64, copier.target.va, 64));
  RingSdma(copier.queue);
  CHECK(copier.Faulted(va));
  CHECK_EQ(pages[64], 0x11);
  CHECK_EQ(client.sys.Mprotect(pages + 1, 4096, PROT_READ), -EINVAL);
}

TEST(a_prefetch_is_told_as_the_migration_that_it_would_be) {
  Copier copier("gfx942x2");
  CHECK(copier.ready);
  Client& client = copier.client;
  void* pages = copier.Pages(16384);
  std::memset(pages, 1, 16384);
  const uint64_t va = reinterpret_cast<uint64_t>(pages);
  uapi::SmiEventsArgs args = {client.id(1), 0};
  CHECK_EQ(client.Call(uapi::kSmiEvents, &args), 0);
  const int stream = static_cast<int>(args.anon_fd);
  const uint64_t mask = 1u << (uapi::kSmiMigrateStart - 1) | 1u << (uapi::kSmiMigrateEnd - 1);
  CHECK_EQ(client.sys.Write(stream, &mask, 8), 8);
  SvmCall svm;
  const auto said = [&](uint32_t to) {
    const uapi::SvmAttribute prefetch = {uapi::kSvmPrefetchLocation, to};
    std::string text(1024, '\0');
    if (svm.Do(client, va, 16384, uapi::kSvmOpSet, {prefetch}) != 0) return std::string("refused");
    const int64_t size = client.sys.Read(stream, text.data(), text.size());
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    // Without the two times.
    for (size_t line = 0; line < text.size(); line = text.find('\n', line) + 1) {
      text.erase(line + 2, text.find(' ', line + 2) - line - 1);
    }
    return text;
  };
  const std::string place = absl::StrCat("-", getpid(), " @", absl::Hex(va / 4096), "(4) ");
  const std::string there = absl::StrCat("0->", absl::Hex(client.id(1))), back = absl::StrCat(absl::Hex(client.id(1)), "->0");
  CHECK_EQ(said(client.id(1)), absl::StrCat("5 ", place, there, " ", absl::Hex(client.id(1)), ":ffffffff 0\n6 ", place, there, " 0 0\n"));
  CHECK_EQ(said(client.id(1)), "");  // it is there
  CHECK_EQ(said(0), absl::StrCat("5 ", place, back, " 0:ffffffff 0\n6 ", place, back, " 0 0\n"));
  CHECK_EQ(client.sys.Close(stream), 0);
}

TEST(a_save_area_in_svm_must_be_mapped_for_good) {
  for (const bool always : {false, true}) {
    TestNode test = MakeNode("gfx950");
    Client client(test.node);
    CHECK(client.Open());
    Queue queue;
    uapi::CreateQueueArgs args;
    CHECK_EQ(PrepareAql(client, *test.node, 0, 4096, &queue, &args), 0);
    const SaveAreaSizes sizes = SaveAreaOf(test.node->profile());
    void* area = nullptr;
    CHECK_EQ(client.sys.Mmap(nullptr, sizes.total_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &area),
             0);
    SvmCall svm;
    CHECK_EQ(svm.Do(client, reinterpret_cast<uint64_t>(area), sizes.total_bytes, uapi::kSvmOpSet,
                    {{uapi::kSvmAccess, client.id(0)},
                     {uapi::kSvmSetFlags, always ? uapi::kSvmGpuAlwaysMapped : 0}}),
             0);
    args.ctx_save_restore_address = reinterpret_cast<uint64_t>(area);
    CHECK_EQ(FinishQueue(client, args, &queue), always ? 0 : -EINVAL);
  }
}

}  // namespace
}  // namespace mainarch::sim::test
