// SPDX-License-Identifier: MIT
//
// The driver's checks and errnos, call by call.
#include <sys/wait.h>
#include <unistd.h>

#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

TEST(versions_tables_and_block_sizes) {
  struct Case {
    uint32_t minor, number;
    int error;
  };
  for (const Case one : {Case{17, 0x26, -ESRCH}, Case{17, 0x27, -ENOTTY}, Case{17, 0x80, -ENOTTY},
                         Case{11, 0x24, -ENOTTY}, Case{12, 0x24, -EINVAL}, Case{17, 0, -ENOTTY},
                         Case{17, 0x0d, -EPERM}, Case{17, 0x20, -EINVAL}}) {
    TestNode test = MakeNode("gfx942,minor=" + std::to_string(one.minor));
    Client client(test.node);
    CHECK(client.Open());
    uint8_t block[64] = {};
    CHECK_EQ(client.Call(uapi::Request(3, one.number, 32), block), one.error);
    uapi::GetVersionArgs version = {};
    CHECK_EQ(client.Call(uapi::kGetVersion, &version), 0);
    CHECK_EQ(version.major_version, 1u);
    CHECK_EQ(version.minor_version, one.minor);
  }
  TestNode test = MakeNode("gfx942");
  Client client(test.node);
  CHECK(client.Open());
  CHECK_EQ(client.Call(uapi::kGetVersion, reinterpret_cast<void*>(0x10)), -EFAULT);
  CHECK_EQ(client.Call(uapi::kGetVersion, nullptr), -EFAULT);
}

TEST(a_queue_block_of_88_bytes_works_and_the_result_is_copied_back_on_errors) {
  TestNode test = MakeNode("gfx942");
  Client client(test.node);
  CHECK(client.Open());
  Queue queue;
  uapi::CreateQueueArgs args;
  CHECK_EQ(PrepareAql(client, *test.node, 0, 4096, &queue, &args), 0);
  const uint32_t old_request = uapi::Request(3, uapi::kNrCreateQueue, 88);
  CHECK_EQ(old_request, 0xc0584b02u);
  CHECK_EQ(client.Call(old_request, &args), 0);
  CHECK_EQ(args.queue_id, 0u);
  args.ring_size = 512;  // raised to 1024 and shown, though the ring is then refused
  args.ring_base_address += 64;
  args.write_pointer_address = 0x1000;
  CHECK_EQ(client.Call(uapi::kCreateQueue, &args), -EINVAL);
  CHECK_EQ(args.ring_size, 1024u);
}

TEST(a_forked_child_cannot_use_the_fd) {
  TestNode test = MakeNode("gfx942");
  Client client(test.node);
  CHECK(client.Open());
  const pid_t child = fork();
  if (child == 0) {
    uapi::GetVersionArgs version = {};
    _exit(client.Call(uapi::kGetVersion, &version) == -EBADF ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

TEST(vms_belong_to_one_render_file) {
  TestNode test = MakeNode("gfx942x2");
  Client client(test.node);
  client.kfd = client.sys.Open("/dev/kfd", O_RDWR);
  CHECK_GE(client.kfd, 0);
  const int first = client.sys.Open("/dev/dri/renderD128", O_RDWR);
  const int second = client.sys.Open("/dev/dri/renderD128", O_RDWR);
  uapi::AllocMemoryArgs alloc = {};
  alloc.va_addr = 0x7f0000000000;
  alloc.size = 4096;
  alloc.gpu_id = client.id(0);
  alloc.flags = kVram;
  CHECK_EQ(client.Call(uapi::kAllocMemory, &alloc), -ENODEV);
  uapi::SetMemoryPolicyArgs policy = {};
  policy.gpu_id = client.id(0);
  CHECK_EQ(client.Call(uapi::kSetMemoryPolicy, &policy), -ESRCH);
  uapi::AcquireVmArgs acquire = {static_cast<uint32_t>(first), 1};
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), -EINVAL);
  acquire = {static_cast<uint32_t>(client.kfd), client.id(0)};
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), -EINVAL);
  acquire = {static_cast<uint32_t>(first), client.id(1)};
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), -EINVAL);
  acquire = {static_cast<uint32_t>(first), client.id(0)};
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), 0);
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), 0);
  acquire.drm_fd = static_cast<uint32_t>(second);
  CHECK_EQ(client.Call(uapi::kAcquireVm, &acquire), -EBUSY);
  client.render = {first, second};
}

TEST(memory_calls_refuse_what_the_kernel_refuses) {
  TestNode test = MakeNode("gfx942x2");
  Client client(test.node);
  CHECK(client.Open());
  const auto alloc = [&](uint64_t size, uint32_t flags, uint32_t gpu_id, uint64_t cpu = 0) {
    uapi::AllocMemoryArgs args = {};
    args.va_addr = 0x7e0000000000;
    args.size = size;
    args.gpu_id = gpu_id;
    args.flags = flags;
    args.mmap_offset = cpu;
    const int error = client.Call(uapi::kAllocMemory, &args);
    if (error == 0) {
      uapi::FreeMemoryArgs gone = {args.handle};
      client.Call(uapi::kFreeMemory, &gone);
    }
    return error;
  };
  CHECK_EQ(alloc(0, kVram, client.id(0)), -EINVAL);
  CHECK_EQ(alloc(4096, kVram, 0xdead), -EINVAL);
  CHECK_EQ(alloc(4096, uapi::kAllocWritable, client.id(0)), -EINVAL);
  CHECK_EQ(alloc(4096, uapi::kAllocDoorbell, client.id(0)), -EINVAL);
  CHECK_EQ(alloc(8192, uapi::kAllocDoorbell, client.id(0)), 0);
  CHECK_EQ(alloc(8192, uapi::kAllocMmioRemap, client.id(0)), -EINVAL);
  CHECK_EQ(alloc(4096, uapi::kAllocMmioRemap, client.id(0)), 0);
  CHECK_EQ(alloc(4096, uapi::kAllocUserptr, client.id(0), 0x1000), -EFAULT);
  CHECK_EQ(alloc(test.node->profile().vram_bytes + 1, kVram, client.id(0)), -ENOMEM);
  CHECK_EQ(alloc(test.node->profile().vram_bytes, kVram, client.id(0)), 0);
  CHECK_EQ(test.node->vram_used(0), 0u);

  Memory memory;
  CHECK_EQ(client.Alloc(0, 8192, kVram, {}, &memory), 0);
  uint32_t ids[3] = {client.id(0), 0xbeef, client.id(1)};
  uapi::MapMemoryArgs map = {memory.handle, reinterpret_cast<uint64_t>(ids), 0, 0};
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -EINVAL);
  map.n_devices = 1;
  map.n_success = 2;
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -EINVAL);
  map.n_success = 0;
  map.device_ids_array_ptr = 0x10;
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -EFAULT);
  map.device_ids_array_ptr = reinterpret_cast<uint64_t>(ids);
  map.handle += 77;
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -ENOMEM);
  map.handle = 5;
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -EINVAL);
  map.handle = memory.handle;
  map.n_devices = 3;
  CHECK_EQ(client.Call(uapi::kMapMemory, &map), -EINVAL);
  CHECK_EQ(map.n_success, 1u);
  uapi::FreeMemoryArgs free_args = {memory.handle};
  CHECK_EQ(client.Call(uapi::kFreeMemory, &free_args), -EBUSY);
  free_args.handle ^= 0x100;
  CHECK_EQ(client.Call(uapi::kFreeMemory, &free_args), -EINVAL);
  // Another buffer at the same address does not map on that GPU, but does on the other.
  uapi::AllocMemoryArgs twin = {};
  twin.va_addr = memory.va + 4096;
  twin.size = 4096;
  twin.gpu_id = client.id(0);
  twin.flags = kVram;
  CHECK_EQ(client.Call(uapi::kAllocMemory, &twin), 0);
  uapi::MapMemoryArgs overlap = {twin.handle, reinterpret_cast<uint64_t>(ids), 1, 0};
  CHECK_EQ(client.Call(uapi::kMapMemory, &overlap), -EINVAL);
  overlap.device_ids_array_ptr = reinterpret_cast<uint64_t>(ids + 2);
  CHECK_EQ(client.Call(uapi::kMapMemory, &overlap), 0);
  memory.gpus = {0};
  CHECK_EQ(client.Free(memory), 0);
}

TEST(mappings_of_devices_need_their_own_cookies) {
  TestNode test = MakeNode("gfx942x2");
  Client client(test.node);
  CHECK(client.Open());
  void* at = nullptr;
  const uint64_t doorbells = uapi::MmapCookie(uapi::kMmapTypeDoorbell, client.id(0));
  const int rw = PROT_READ | PROT_WRITE;
  CHECK_EQ(client.sys.Mmap(nullptr, 4096, rw, MAP_SHARED, client.kfd, doorbells, &at), -EINVAL);
  CHECK_EQ(client.sys.Mmap(nullptr, 8192, rw, MAP_SHARED, client.kfd,
                           uapi::MmapCookie(uapi::kMmapTypeDoorbell, 9), &at),
           -EINVAL);
  CHECK_EQ(client.sys.Mmap(nullptr, 8192, rw, MAP_SHARED, client.kfd, doorbells, &at), 0);
  CHECK_EQ(client.sys.Munmap(at, 8192), 0);
  Memory memory;
  CHECK_EQ(client.Alloc(0, 8192, kVram, {}, &memory), 0);
  uapi::AllocMemoryArgs args = {};
  args.va_addr = 0x7e0000000000;
  args.size = 8192;
  args.gpu_id = client.id(0);
  args.flags = kVram;
  CHECK_EQ(client.Call(uapi::kAllocMemory, &args), 0);
  CHECK_EQ(client.sys.Mmap(nullptr, 8192, rw, MAP_SHARED, client.render[1], args.mmap_offset, &at),
           -EACCES);
  CHECK_EQ(client.sys.Mmap(nullptr, 16384, rw, MAP_SHARED, client.render[0], args.mmap_offset, &at),
           -EINVAL);
  CHECK_EQ(client.sys.Mmap(nullptr, 8192, rw, MAP_SHARED, client.render[0], 4096, &at), -EINVAL);
  CHECK_EQ(client.sys.Mmap(nullptr, 8192, rw, MAP_PRIVATE, client.render[0], args.mmap_offset, &at),
           -EINVAL);
}

struct QueueRule {
  const char* name;
  void (*change)(uapi::CreateQueueArgs&);
  int error;
};

TEST(a_queue_lives_in_buffers_of_exactly_its_size) {
  const QueueRule rules[] = {
      {"nothing wrong", [](auto&) {}, 0},
      {"priority 16", [](auto& a) { a.queue_priority = 16; }, -EINVAL},
      {"101 percent", [](auto& a) { a.queue_percentage = 101; }, -EINVAL},
      {"a ring of 3 pages", [](auto& a) { a.ring_size = 12288; }, -EINVAL},
      {"a ring half its buffer", [](auto& a) { a.ring_size /= 2; }, -EINVAL},
      {"a ring twice its buffer", [](auto& a) { a.ring_size *= 2; }, -EINVAL},
      {"a ring inside its buffer", [](auto& a) { a.ring_base_address += 4096; }, -EINVAL},
      {"a ring outside of user space", [](auto& a) { a.ring_base_address = ~uint64_t{0} << 20; },
       -EFAULT},
      {"an unmapped write pointer", [](auto& a) { a.write_pointer_address = 0x20000; }, -EINVAL},
      {"a read pointer in the ring", [](auto& a) { a.read_pointer_address = a.ring_base_address; },
       -EINVAL},
      {"queue type 9", [](auto& a) { a.queue_type = 9; }, -uapi::kErrnoNotSupported},
      {"an unknown GPU", [](auto& a) { a.gpu_id ^= 1; }, -EINVAL},
      {"an EOP of 64 bytes", [](auto& a) { a.eop_buffer_size = 64; }, -EINVAL},
      {"an EOP of two pages", [](auto& a) { a.eop_buffer_size = 8192; }, -EINVAL},
      {"no EOP", [](auto& a) { a.eop_buffer_address = a.eop_buffer_size = 0; }, 0},
      {"a control stack too large", [](auto& a) { a.ctl_stack_size += 4096; }, -EINVAL},
      {"a save area too small", [](auto& a) { a.ctx_save_restore_size -= 4096; }, -EINVAL},
      {"a save area of another size", [](auto& a) { a.ctx_save_restore_size += 4096; }, -EINVAL},
      {"no save area", [](auto& a) { a.ctx_save_restore_address = 0; }, -EINVAL},
  };
  for (const char* isa : {"gfx942", "gfx950"}) {
    TestNode test = MakeNode(isa);
    for (const QueueRule& rule : rules) {
      Client client(test.node);
      CHECK(client.Open());
      Queue queue;
      uapi::CreateQueueArgs args;
      CHECK_EQ(PrepareAql(client, *test.node, 0, 8192, &queue, &args), 0);
      rule.change(args);
      const int error = client.Call(uapi::kCreateQueue, &args);
      if (error != rule.error) {
        test_context.Fail(__FILE__, __LINE__,
                          std::string(isa) + ", " + rule.name + ": " + std::to_string(error));
        return;
      }
      CHECK_EQ(client.sys.ledger().queues, error == 0 ? 1u : 0u);
    }
  }
  const SaveAreaSizes mi300x = SaveAreaOf(*FindProfile("gfx942"));
  CHECK_EQ(mi300x.cwsr_bytes, 0x1621000u);
  CHECK_EQ(mi300x.ctl_stack_bytes, 0x3000u);
  CHECK_EQ(mi300x.debug_bytes, 0xbe00u);
  CHECK_EQ(mi300x.total_bytes, 0xb167000u);
  const SaveAreaSizes mi355x = SaveAreaOf(*FindProfile("gfx950"));
  CHECK_EQ(mi355x.cwsr_bytes, 0x15a3000u);
  CHECK_EQ(mi355x.debug_bytes, 0xa000u);
  CHECK_EQ(mi355x.total_bytes, 0xad68000u);
}

TEST(a_queue_holds_its_buffers_until_it_is_destroyed) {
  TestNode test = MakeNode("gfx950");
  Client client(test.node);
  CHECK(client.Open());
  Queue queue;
  CHECK_EQ(MakeAql(client, *test.node, 0, 4096, &queue), 0);
  for (Memory* memory : {&queue.ring, &queue.pointers, &queue.eop, &queue.save_area}) {
    CHECK_EQ(client.Unmap(*memory), -EBUSY);
  }
  uapi::UpdateQueueArgs update = {queue.ring.va, 99, 4096, 100, 7};
  CHECK_EQ(client.Call(uapi::kUpdateQueue, &update), -EFAULT);
  update.queue_id = queue.id;
  update.queue_percentage = 0;
  CHECK_EQ(client.Call(uapi::kUpdateQueue, &update), 0);
  uapi::DestroyQueueArgs unknown = {12, 0};
  CHECK_EQ(client.Call(uapi::kDestroyQueue, &unknown), -EINVAL);
  uapi::RuntimeEnableArgs enable = {};
  enable.mode_mask = 1;
  CHECK_EQ(client.Call(uapi::kRuntimeEnable, &enable), -EEXIST);
  CHECK_EQ(DestroyQueue(client, queue), 0);
  CHECK_EQ(client.Call(uapi::kRuntimeEnable, &enable), 0);
  CHECK_EQ(client.Call(uapi::kRuntimeEnable, &enable), -EBUSY);
  const Ledger ledger = client.sys.ledger();
  CHECK_EQ(ledger.client_mappings, 0u);
  CHECK_EQ(ledger.buffers, 0u);
}

TEST(a_dead_process_gives_everything_back) {
  TestNode test = MakeNode("gfx942x2");
  const uint64_t before = test.node->blocks();
  {
    Client client(test.node);
    CHECK(client.Open());
    Queue compute, copies;
    Memory memory;
    CHECK_EQ(MakeAql(client, *test.node, 0, 4096, &compute), 0);
    CHECK_EQ(MakeSdma(client, 1, 4096, 3, &copies), 0);
    CHECK_EQ(client.Alloc(1, 1 << 20, kVram, {0, 1}, &memory), 0);
    CHECK_GT(test.node->vram_used(1), 0u);
  }
  CHECK_EQ(test.node->vram_used(0), 0u);
  CHECK_EQ(test.node->vram_used(1), 0u);
  CHECK_EQ(test.node->blocks(), before);
}

TEST(dma_bufs_share_memory_between_processes) {
  TestNode test = MakeNode("gfx942x2");
  Client giver(test.node), taker(test.node);
  CHECK(giver.Open());
  CHECK(taker.Open());
  Memory memory;
  CHECK_EQ(giver.Alloc(0, 8192, kVram, {0}, &memory), 0);
  uapi::ExportDmabufArgs out = {memory.handle, O_CLOEXEC, 0};
  CHECK_EQ(giver.Call(uapi::kExportDmabuf, &out), 0);
  uapi::GetDmabufInfoArgs info = {};
  info.dmabuf_fd = out.dmabuf_fd;
  CHECK_EQ(taker.Call(uapi::kGetDmabufInfo, &info), 0);
  CHECK_EQ(info.size, 8192u);
  CHECK_EQ(info.gpu_id, giver.id(0));
  uapi::ImportDmabufArgs in = {0x7e0000000000, 0, taker.id(1), out.dmabuf_fd};
  CHECK_EQ(taker.Call(uapi::kImportDmabuf, &in), 0);
  Memory imported = {in.va_addr, 8192, in.handle, {}};
  CHECK_EQ(taker.Map(imported, {1}), 0);
  *memory.as<uint32_t>() = 0x1234;
  Window window;
  MemoryFault fault;
  CHECK(taker.sys.process().vm(1).Translate(in.va_addr, Access::kRead, &window, &fault));
  CHECK_EQ(*reinterpret_cast<uint32_t*>(window.host), 0x1234u);
  CHECK_EQ(window.before, 0u);
  // From the midst of it the whole of the mapping is told, too: who asks may know it again by its begin.
  CHECK(taker.sys.process().vm(1).Translate(in.va_addr + 4104, Access::kRead, &window, &fault));
  CHECK_EQ(window.before, 4104u);
  CHECK_EQ(window.size, 8192u - 4104u);
  CHECK_EQ(*reinterpret_cast<uint32_t*>(window.host - window.before), 0x1234u);
  in.dmabuf_fd = static_cast<uint32_t>(taker.kfd);
  CHECK_EQ(taker.Call(uapi::kImportDmabuf, &in), -EINVAL);
  CHECK_EQ(giver.sys.Close(static_cast<int>(out.dmabuf_fd)), 0);
}

TEST(pages_are_cached_as_the_driver_says) {
  struct Row {
    const char* isa;
    uint32_t flags;
    bool own;
    Mtype mtype;
  };
  const uint32_t vram = uapi::kAllocVram, gtt = uapi::kAllocGtt;
  for (const Row& row :
       {Row{"gfx942", vram, true, Mtype::kRw}, Row{"gfx942", vram, false, Mtype::kNc},
        Row{"gfx942", vram | uapi::kAllocExtCoherent, true, Mtype::kCc},
        Row{"gfx942", vram | uapi::kAllocExtCoherent, false, Mtype::kUc},
        Row{"gfx942", vram | uapi::kAllocUncached, true, Mtype::kUc},
        Row{"gfx942", gtt, false, Mtype::kUc}, Row{"gfx950", gtt, false, Mtype::kNc},
        Row{"gfx950", gtt | uapi::kAllocCoherent, false, Mtype::kNc},
        Row{"gfx950", gtt | uapi::kAllocUncached, false, Mtype::kUc}}) {
    CHECK_EQ(static_cast<int>(MtypeOf(FindProfile(row.isa)->facts, row.flags, row.own)),
             static_cast<int>(row.mtype));
  }
}

}  // namespace
}  // namespace mainarch::sim::test
