// SPDX-License-Identifier: MIT
//
// Buffers of the render node: what libdrm makes, maps, shares and describes.
#include <amdgpu_drm.h>
#include <drm.h>
#include <time.h>
#include <unistd.h>

#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

constexpr uint64_t kBytes = 1 << 16;
constexpr uint64_t kAt = uint64_t{0x300} << 32;  // where buffers are mapped on the GPU

struct Bench {
  TestNode test;
  std::unique_ptr<Client> client;
  Queue queue;
  Memory host;
  bool ready = false;

  explicit Bench(const std::string& text) : test(MakeNode(text)) {
    if (test.node == nullptr) return;
    client = std::make_unique<Client>(test.node);
    ready = client->Open() && MakeSdma(*client, 0, 4096, 0, &queue) == 0 &&
            client->AllocZeroed(0, kBytes, kGtt, {0}, &host) == 0;
  }
  template <class Args>
  int Drm(uint32_t number, Args* args) {
    return client->sys.Ioctl(client->render[0], DRM_IOWR(number, Args), args);
  }
  int Create(uint64_t domain, uint32_t* handle, uint64_t flags = 0) {
    drm_amdgpu_gem_create args = {};
    args.in.bo_size = kBytes;
    args.in.domains = domain;
    args.in.domain_flags = flags;
    const int error = Drm(DRM_COMMAND_BASE + DRM_AMDGPU_GEM_CREATE, &args);
    *handle = args.out.handle;
    return error;
  }
  int Close(uint32_t handle) {
    drm_gem_close args = {handle, 0};
    return Drm(0x09, &args);
  }
  int Place(uint32_t handle, uint32_t operation, uint64_t va, uint64_t offset = 0,
            uint64_t size = kBytes) {
    drm_amdgpu_gem_va args = {};
    args.handle = handle;
    args.operation = operation;
    args.flags = AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE;
    args.va_address = va;
    args.offset_in_bo = offset;
    args.map_size = size;
    return Drm(DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA, &args);
  }
  uint32_t* Map(uint32_t handle) {
    drm_amdgpu_gem_mmap args = {};
    args.in.handle = handle;
    if (Drm(DRM_COMMAND_BASE + DRM_AMDGPU_GEM_MMAP, &args) != 0) return nullptr;
    void* at = nullptr;
    const int error = client->sys.Mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                       client->render[0], args.out.addr_ptr, &at);
    return error == 0 ? static_cast<uint32_t*>(at) : nullptr;
  }
  // What the GPU reads at `va`.
  uint32_t Read(uint64_t va) {
    const uint32_t fence = ++fences_;
    WriteSdma(queue, SdmaCopy(host.va + 64, va, 4));
    WriteSdma(queue, SdmaFence(host.va, fence));
    RingSdma(queue);
    if (!Soon([&] { return std::atomic_ref(*host.as<uint32_t>()).load() == fence; })) return 0;
    return *host.as<uint32_t>(64);
  }

 private:
  uint32_t fences_ = 0;
};

TEST(a_buffer_is_made_mapped_and_placed) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  const uint64_t before = bench.test.node->vram_used(0);
  uint32_t handle = 0;
  CHECK_EQ(bench.Create(AMDGPU_GEM_DOMAIN_VRAM, &handle, AMDGPU_GEM_CREATE_VRAM_CLEARED), 0);
  CHECK_EQ(bench.test.node->vram_used(0), before + kBytes);
  uint32_t* cpu = bench.Map(handle);
  CHECK(cpu != nullptr);
  CHECK_EQ(cpu[5], 0u);
  cpu[0] = 11;
  cpu[1024] = 22;
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt), 0);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt), -EINVAL);  // there is something
  CHECK_EQ(bench.Read(kAt), 11u);
  // The second page of it somewhere else, too.
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt + kBytes, 4096, 4096), 0);
  CHECK_EQ(bench.Read(kAt + kBytes), 22u);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_UNMAP, kAt + kBytes, 0, 4096), 0);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_UNMAP, kAt + kBytes, 0, 4096), -ENOENT);
  CHECK_EQ(bench.Close(handle), 0);
  CHECK_EQ(bench.Close(handle), -EINVAL);
  CHECK_EQ(bench.test.node->vram_used(0), before);
}

TEST(a_buffer_of_the_compute_driver_is_placed_where_the_client_likes) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  Memory memory;
  CHECK_EQ(bench.client->Alloc(0, kBytes, kVram, {}, &memory), 0);
  memory.as<uint32_t>()[0] = 33;
  uapi::ExportDmabufArgs exported = {};
  exported.handle = memory.handle;
  CHECK_EQ(bench.client->Call(uapi::kExportDmabuf, &exported), 0);
  const int fd = static_cast<int>(exported.dmabuf_fd);
  CHECK_EQ(lseek(fd, 0, SEEK_END), static_cast<off_t>(kBytes));
  drm_prime_handle import = {};
  import.fd = fd;
  CHECK_EQ(bench.Drm(0x2e, &import), 0);
  const uint32_t first = import.handle;
  CHECK_EQ(bench.Drm(0x2e, &import), 0);
  CHECK_EQ(import.handle, first);  // one buffer, one handle
  CHECK_EQ(bench.Place(first, AMDGPU_VA_OP_MAP, kAt), 0);
  CHECK_EQ(bench.Read(kAt), 33u);
  CHECK_EQ(bench.Close(first), 0);
  CHECK_EQ(bench.client->sys.Close(fd), 0);
  CHECK_EQ(bench.client->Free(memory), 0);
}

// What ROCr's IPC memory rests on: a descriptor goes to another process over a socket, and there is one
// buffer. Here the processes are two nodes, as programs have them under `mainarch sim`.
TEST(a_dmabuf_of_another_node_is_the_same_memory) {
  Bench bench("gfx942x2"), other("gfx942x2");
  CHECK(bench.ready && other.ready);
  Memory memory;
  CHECK_EQ(bench.client->Alloc(1, kBytes, kVram, {}, &memory), 0);
  memory.as<uint32_t>()[0] = 44;
  uapi::ExportDmabufArgs exported = {};
  exported.handle = memory.handle;
  CHECK_EQ(bench.client->Call(uapi::kExportDmabuf, &exported), 0);
  uapi::GetDmabufInfoArgs info = {};
  info.dmabuf_fd = exported.dmabuf_fd;
  CHECK_EQ(other.client->Call(uapi::kGetDmabufInfo, &info), 0);
  CHECK_EQ(info.size, kBytes);
  CHECK_EQ(info.gpu_id, other.client->id(1));
  drm_prime_handle import = {};
  import.fd = static_cast<int>(exported.dmabuf_fd);
  CHECK_EQ(other.Drm(0x2e, &import), 0);
  CHECK_EQ(other.Place(import.handle, AMDGPU_VA_OP_MAP, kAt), 0);
  CHECK_EQ(other.Read(kAt), 44u);
  memory.as<uint32_t>()[0] = 55;
  CHECK_EQ(other.Read(kAt), 55u);
  CHECK_EQ(other.Close(import.handle), 0);
  uint8_t record[56];
  CHECK_EQ(pread(import.fd, record, sizeof record, 0), static_cast<ssize_t>(sizeof record));
  CHECK_EQ(bench.client->sys.Close(import.fd), 0);
  // Files that only look like one: nothing in it, then what the real one has, with one field wrong.
  struct Lie {
    off_t at;
    uint64_t value;
    size_t bytes;
  };
  for (const Lie& lie : {Lie{0, 0, 8}, Lie{8, 1, 4}, Lie{12, 0, 4}, Lie{12, 9999, 4}, Lie{16, 1, 8}, Lie{16, uint64_t{1} << 62, 8},
                         Lie{24, kBytes + 4096, 8}, Lie{32, 2, 4}, Lie{32, ~0u, 4}}) {
    const int fd = memfd_create("mainarch-sim-dmabuf", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, kBytes), 0);
    import.fd = fd;
    CHECK_EQ(other.Drm(0x2e, &import), -EINVAL);
    CHECK_EQ(pwrite(fd, record, sizeof record, 0), static_cast<ssize_t>(sizeof record));
    CHECK_EQ(pwrite(fd, &lie.value, lie.bytes, lie.at), static_cast<ssize_t>(lie.bytes));
    CHECK_EQ(other.Drm(0x2e, &import), -EINVAL);
    close(fd);
  }
  CHECK_EQ(bench.client->Free(memory), 0);
}

TEST(metadata_goes_with_the_buffer) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  uint32_t handle = 0;
  CHECK_EQ(bench.Create(AMDGPU_GEM_DOMAIN_GTT, &handle), 0);
  drm_amdgpu_gem_metadata set = {};
  set.handle = handle;
  set.op = AMDGPU_GEM_METADATA_OP_SET_METADATA;
  set.data.data_size_bytes = 8;
  set.data.data[1] = 0x1234;
  CHECK_EQ(bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_GEM_METADATA, &set), 0);
  drm_prime_handle exported = {};
  exported.handle = handle;
  CHECK_EQ(bench.Drm(0x2d, &exported), 0);
  uint32_t words[2] = {};
  uapi::GetDmabufInfoArgs info = {};
  info.dmabuf_fd = static_cast<uint32_t>(exported.fd);
  info.metadata_ptr = reinterpret_cast<uint64_t>(words);
  info.metadata_size = sizeof(words);
  CHECK_EQ(bench.client->Call(uapi::kGetDmabufInfo, &info), 0);
  CHECK_EQ(info.size, kBytes);
  CHECK_EQ(info.metadata_size, 8u);
  CHECK_EQ(words[1], 0x1234u);
  CHECK_EQ(bench.client->sys.Close(exported.fd), 0);
  CHECK_EQ(bench.Close(handle), 0);
}

// What libdrm's amdgpu_cs_submit makes of buffers of packets for the copy engine.
struct Submissions {
  Bench& bench;
  uint32_t context = 0, list = 0;

  bool Begin(uint32_t buffer) {
    drm_amdgpu_ctx ctx = {};
    ctx.in.op = AMDGPU_CTX_OP_ALLOC_CTX;
    drm_amdgpu_bo_list_entry entry = {buffer, 0};
    drm_amdgpu_bo_list made = {};
    made.in = {AMDGPU_BO_LIST_OP_CREATE, 0, 1, sizeof entry, reinterpret_cast<uint64_t>(&entry)};
    const bool ok = bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_CTX, &ctx) == 0 &&
                    bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_BO_LIST, &made) == 0;
    context = ctx.out.alloc.ctx_id;
    list = made.out.list_handle;
    return ok;
  }
  int Submit(std::vector<drm_amdgpu_cs_chunk_ib> buffers, uint64_t* handle) {
    std::vector<drm_amdgpu_cs_chunk> chunks;
    std::vector<uint64_t> places;
    for (auto& ib : buffers) chunks.push_back({AMDGPU_CHUNK_ID_IB, sizeof ib / 4, reinterpret_cast<uint64_t>(&ib)});
    for (auto& chunk : chunks) places.push_back(reinterpret_cast<uint64_t>(&chunk));
    drm_amdgpu_cs args = {};
    args.in = {context, list, static_cast<uint32_t>(places.size()), 0, reinterpret_cast<uint64_t>(places.data())};
    const int error = bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_CS, &args);
    *handle = args.out.handle;
    return error;
  }
  // 0 done, 1 not within `ms`, or an error.
  int Wait(uint64_t handle, int ms) {
    drm_amdgpu_wait_cs args = {};
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    args.in.handle = handle;
    args.in.timeout = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec) + static_cast<uint64_t>(ms) * 1'000'000;
    args.in.ip_type = AMDGPU_HW_IP_DMA;
    args.in.ctx_id = context;
    const int error = bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_WAIT_CS, &args);
    return error != 0 ? error : static_cast<int>(args.out.status);
  }
};

TEST(packets_for_the_copy_engine_are_submitted_and_waited_for) {
  Bench bench("gfx950");
  CHECK(bench.ready);
  uint32_t handle = 0;
  CHECK_EQ(bench.Create(AMDGPU_GEM_DOMAIN_GTT, &handle), 0);
  uint32_t* words = bench.Map(handle);
  CHECK(words != nullptr);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt), 0);
  Submissions drm{bench};
  CHECK(drm.Begin(handle));
  // Two buffers: 16 fillers and a fence; a copy and a fence behind it.
  std::memset(words, 0, kBytes);
  const auto put = [&](size_t at, const std::vector<uint32_t>& packet) {
    std::memcpy(words + at, packet.data(), packet.size() * 4);
    return at + packet.size();
  };
  const size_t first = put(16, SdmaFence(kAt + 8192, 0xaaaa));
  const size_t second = put(put(64, SdmaCopy(kAt + 8196, kAt + 8192, 4)), SdmaFence(kAt + 8200, 0xbbbb));
  const auto dma = [](uint64_t va, size_t dwords) {
    drm_amdgpu_cs_chunk_ib ib = {};
    ib.va_start = va;
    ib.ib_bytes = static_cast<uint32_t>(dwords * 4);
    ib.ip_type = AMDGPU_HW_IP_DMA;
    return ib;
  };
  uint64_t one = 0, two = 0;
  CHECK_EQ(drm.Submit({dma(kAt, first), dma(kAt + 256, second - 64)}, &one), 0);
  CHECK_EQ(drm.Wait(one, 20000), 0);
  CHECK_EQ(words[2048], 0xaaaau);
  CHECK_EQ(words[2049], 0xaaaau);
  CHECK_EQ(words[2050], 0xbbbbu);
  drm_amdgpu_gem_wait_idle idle = {};
  idle.in.handle = handle;
  CHECK_EQ(bench.Drm(DRM_COMMAND_BASE + DRM_AMDGPU_GEM_WAIT_IDLE, &idle), 0);
  CHECK_EQ(idle.out.status, 0u);
  CHECK_EQ(drm.Wait(one + 5, 0), -EINVAL);  // nobody has submitted that
  // What is no copy engine's, and what is no submission.
  drm_amdgpu_cs_chunk_ib graphics = dma(kAt, 16);
  graphics.ip_type = AMDGPU_HW_IP_GFX;
  CHECK_EQ(drm.Submit({graphics}, &two), -EINVAL);
  CHECK_EQ(drm.Submit({}, &two), -EINVAL);
  CHECK_EQ(drm.Submit({dma(kAt + 4, 16)}, &two), -EINVAL);
  CHECK_EQ((Submissions{bench, 99, 0}.Submit({dma(kAt, 16)}, &two)), -EINVAL);
  CHECK_EQ((Submissions{bench, drm.context, 99}.Submit({dma(kAt, 16)}, &two)), -ENOENT);
  // One that faults is never done, and nothing is behind it.
  CHECK_EQ(drm.Submit({dma(uint64_t{0x500} << 32, 16)}, &two), 0);
  CHECK_EQ(drm.Wait(two, 100), 1);
  CHECK_EQ(drm.Submit({dma(kAt, 16)}, &two), -ECANCELED);
  CHECK(LogHas(*bench.test.node, "page fault"));
}

// What the kernel refuses, and what a closed file leaves: nothing.
TEST(refusals_and_a_closed_file) {
  Bench bench("gfx942");
  CHECK(bench.ready);
  uint32_t handle = 0;
  CHECK_EQ(bench.Create(AMDGPU_GEM_DOMAIN_GDS, &handle), -EINVAL);
  CHECK_EQ(bench.Place(77, AMDGPU_VA_OP_MAP, kAt), -ENOENT);
  CHECK_EQ(bench.Create(AMDGPU_GEM_DOMAIN_VRAM, &handle), 0);
  CHECK_EQ(bench.Place(handle, 9, kAt), -EINVAL);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt + 1), -EINVAL);
  CHECK_EQ(bench.Place(handle, AMDGPU_VA_OP_MAP, kAt, 4096, kBytes), -EINVAL);
  const uint64_t used = bench.test.node->vram_used(0);
  Client second(bench.test.node);
  CHECK(second.Open());
  CHECK_EQ(bench.client->sys.Close(bench.client->render[0]), 0);
  bench.client->render.clear();
  CHECK_EQ(bench.test.node->vram_used(0), used - kBytes);
}

}  // namespace
}  // namespace mainarch::sim::test
