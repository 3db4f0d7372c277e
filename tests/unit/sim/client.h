// SPDX-License-Identifier: MIT
//
// The least a client must do to use a virtual node, call by call, for tests that want to make each
// step wrong. It is no model of the library's own driver and shares no code with it.
#ifndef MAINARCH_TESTS_UNIT_SIM_CLIENT_H_
#define MAINARCH_TESTS_UNIT_SIM_CLIENT_H_

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kfd/uapi/kfd_ioctl.h"
#include "sim/host_executor.h"
#include "sim/node.h"
#include "sim/sim_sys.h"
#include "support/test.h"

namespace mainarch::sim::test {

namespace uapi = kfd::uapi;

inline constexpr uint32_t kVram = uapi::kAllocVram | uapi::kAllocWritable | uapi::kAllocExecutable |
                                  uapi::kAllocPublic | uapi::kAllocNoSubstitute;
inline constexpr uint32_t kGtt = uapi::kAllocGtt | uapi::kAllocWritable | uapi::kAllocExecutable |
                                 uapi::kAllocCoherent | uapi::kAllocUncached |
                                 uapi::kAllocNoSubstitute;

struct TestNode {
  std::shared_ptr<Node> node;
  HostExecutor* executor = nullptr;
};

inline TestNode MakeNode(const std::string& text,
                         const std::function<void(NodeConfig&)>& adjust = nullptr) {
  auto config = ParseNode(text);
  if (!config.ok()) return {};
  if (adjust) adjust(*config);
  auto executor = std::make_unique<HostExecutor>();
  HostExecutor* raw = executor.get();
  auto node = Node::Create(*config, std::move(executor));
  if (!node.ok()) return {};
  return {*node, raw};
}

struct Memory {
  uint64_t va = 0;
  uint64_t size = 0;
  uint64_t handle = 0;
  std::vector<uint32_t> gpus;

  template <class T>
  T* as(uint64_t offset = 0) const {
    return reinterpret_cast<T*>(va + offset);
  }
};

struct Signal {  // amd_signal_t
  int64_t kind = 1;
  std::atomic<int64_t> value{0};
  uint64_t mailbox = 0;
  uint32_t event_id = 0;
  uint32_t pad = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t queue = 0;
  uint64_t rest = 0;
};
static_assert(sizeof(Signal) == 64);

// Waits up to `ms` for a condition.
inline bool Soon(const std::function<bool()>& condition, int ms = 20000) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}
// Long enough for the machine to do what it wrongly might.
inline bool StaysFalse(const std::function<bool()>& condition, int ms = 150) {
  return !Soon(condition, ms);
}

class Client {
 public:
  explicit Client(std::shared_ptr<Node> node) : sys(node), node_(std::move(node)) {}
  ~Client() {
    for (int fd : render) sys.Close(fd);
    if (kfd >= 0) sys.Close(kfd);
  }

  // Opens the devices and the VM of every GPU.
  bool Open() {
    kfd = sys.Open("/dev/kfd", O_RDWR | O_CLOEXEC);
    if (kfd < 0) return false;
    for (const GpuIdentity& gpu : node_->gpus()) {
      const std::string path = "/dev/dri/renderD" + std::to_string(gpu.render_minor);
      render.push_back(sys.Open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (render.back() < 0) return false;
      uapi::AcquireVmArgs args = {static_cast<uint32_t>(render.back()), gpu.gpu_id};
      if (Call(uapi::kAcquireVm, &args) != 0) return false;
    }
    return true;
  }

  int Call(uint32_t request, void* args) { return sys.Ioctl(kfd, request, args); }
  uint32_t id(uint32_t gpu) const { return node_->gpus()[gpu].gpu_id; }

  // Memory of `gpu`, mapped on the CPU and on `on` at one address. `size` in whole pages.
  int Alloc(uint32_t gpu, uint64_t size, uint32_t flags, std::vector<uint32_t> on, Memory* out) {
    void* va = nullptr;
    int error =
        sys.Mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &va);
    if (error != 0) return error;
    uapi::AllocMemoryArgs args = {};
    args.va_addr = reinterpret_cast<uint64_t>(va);
    args.size = size;
    args.gpu_id = id(gpu);
    args.flags = flags;
    error = Call(uapi::kAllocMemory, &args);
    if (error != 0) return sys.Munmap(va, size), error;
    error = sys.Mmap(va, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, render[gpu],
                     args.mmap_offset, &va);
    if (error != 0) return error;
    *out = {args.va_addr, size, args.handle, {}};
    return on.empty() ? 0 : Map(*out, std::move(on));
  }

  // What is read before it is written must be zeroed: new memory is poisoned.
  int AllocZeroed(uint32_t gpu, uint64_t size, uint32_t flags, std::vector<uint32_t> on,
                  Memory* out) {
    const int error = Alloc(gpu, size, flags, std::move(on), out);
    if (error == 0) std::memset(out->as<void>(), 0, size);
    return error;
  }

  int Map(Memory& memory, std::vector<uint32_t> on) {
    std::vector<uint32_t> ids;
    for (uint32_t gpu : on) ids.push_back(id(gpu));
    uapi::MapMemoryArgs args = {};
    args.handle = memory.handle;
    args.device_ids_array_ptr = reinterpret_cast<uint64_t>(ids.data());
    args.n_devices = static_cast<uint32_t>(ids.size());
    const int error = Call(uapi::kMapMemory, &args);
    if (error == 0) memory.gpus.insert(memory.gpus.end(), on.begin(), on.end());
    return error;
  }

  int Unmap(Memory& memory) {
    std::vector<uint32_t> ids;
    for (uint32_t gpu : memory.gpus) ids.push_back(id(gpu));
    if (ids.empty()) return 0;
    uapi::UnmapMemoryArgs args = {};
    args.handle = memory.handle;
    args.device_ids_array_ptr = reinterpret_cast<uint64_t>(ids.data());
    args.n_devices = static_cast<uint32_t>(ids.size());
    const int error = Call(uapi::kUnmapMemory, &args);
    if (error == 0) memory.gpus.clear();
    return error;
  }

  int Free(Memory& memory) {
    if (const int error = Unmap(memory); error != 0) return error;
    uapi::FreeMemoryArgs args = {memory.handle};
    if (const int error = Call(uapi::kFreeMemory, &args); error != 0) return error;
    return sys.Munmap(reinterpret_cast<void*>(memory.va), memory.size);
  }

  SimSys sys;
  int kfd = -1;
  std::vector<int> render;

 private:
  std::shared_ptr<Node> node_;
};

// A user queue with everything it lives in.
struct Queue {
  Memory ring, pointers, eop, save_area, doorbells;
  uint32_t id = 0;
  uint64_t doorbell_offset = 0;
  std::atomic<uint64_t>* doorbell = nullptr;
  uint64_t next = 0;  // packets (AQL) or bytes (SDMA) written

  std::atomic<uint64_t>& write_index() const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(pointers.va + 0x38);
  }
  std::atomic<uint64_t>& read_index() const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(pointers.va + 0x80);
  }
  uint64_t packets() const { return ring.size / 64; }
};

inline uapi::CreateQueueArgs QueueArgs(const Client& client, uint32_t gpu, const Queue& queue,
                                       uint32_t type) {
  uapi::CreateQueueArgs args = {};
  args.ring_base_address = queue.ring.va;
  args.ring_size = static_cast<uint32_t>(queue.ring.size);
  args.write_pointer_address = queue.pointers.va + 0x38;
  args.read_pointer_address = queue.pointers.va + 0x80;
  args.gpu_id = client.id(gpu);
  args.queue_type = type;
  args.queue_percentage = 100;
  args.queue_priority = 7;
  return args;
}

// Allocates what an AQL queue needs and fills `args`; does not create it.
inline int PrepareAql(Client& client, const Node& node, uint32_t gpu, uint64_t ring_bytes,
                      Queue* queue, uapi::CreateQueueArgs* args) {
  const SaveAreaSizes sizes = SaveAreaOf(node.profile());
  int error = client.AllocZeroed(gpu, ring_bytes, kGtt, {gpu}, &queue->ring);
  if (error == 0) error = client.AllocZeroed(gpu, 4096, kGtt, {gpu}, &queue->pointers);
  if (error == 0) error = client.Alloc(gpu, 4096, kVram, {gpu}, &queue->eop);
  if (error == 0) error = client.Alloc(gpu, sizes.total_bytes, kVram, {gpu}, &queue->save_area);
  if (error != 0) return error;
  for (uint64_t i = 0; i < ring_bytes / 64; ++i) *queue->ring.as<uint32_t>(i * 64) = 1;
  *queue->pointers.as<uint32_t>(0x88) = 0x80;             // read index' offset
  *queue->pointers.as<uint32_t>(0xb4) = 1 << 1 | 1 << 3;  // 64-bit pointers, profiling
  *args = QueueArgs(client, gpu, *queue, uapi::kQueueTypeComputeAql);
  args->eop_buffer_address = queue->eop.va;
  args->eop_buffer_size = 4096;
  args->ctx_save_restore_address = queue->save_area.va;
  args->ctx_save_restore_size = sizes.cwsr_bytes;
  args->ctl_stack_size = sizes.ctl_stack_bytes;
  return 0;
}

inline int FinishQueue(Client& client, uapi::CreateQueueArgs& args, Queue* queue) {
  if (const int error = client.Call(uapi::kCreateQueue, &args); error != 0) return error;
  queue->id = args.queue_id;
  queue->doorbell_offset = args.doorbell_offset;
  void* page = nullptr;
  const int error =
      client.sys.Mmap(nullptr, uapi::kDoorbellSliceSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                      client.kfd, args.doorbell_offset & ~uint64_t{0x1fff}, &page);
  if (error != 0) return error;
  queue->doorbells.va = reinterpret_cast<uint64_t>(page);
  queue->doorbell = reinterpret_cast<std::atomic<uint64_t>*>(queue->doorbells.va +
                                                             (args.doorbell_offset & 0x1fff));
  return 0;
}

inline int MakeAql(Client& client, const Node& node, uint32_t gpu, uint64_t ring_bytes,
                   Queue* queue) {
  uapi::CreateQueueArgs args;
  if (const int error = PrepareAql(client, node, gpu, ring_bytes, queue, &args); error != 0) {
    return error;
  }
  return FinishQueue(client, args, queue);
}

inline int MakeSdma(Client& client, uint32_t gpu, uint64_t ring_bytes, int engine, Queue* queue) {
  int error = client.AllocZeroed(gpu, ring_bytes, kGtt, {gpu}, &queue->ring);
  if (error == 0) error = client.AllocZeroed(gpu, 4096, kGtt, {gpu}, &queue->pointers);
  if (error != 0) return error;
  uapi::CreateQueueArgs args = QueueArgs(
      client, gpu, *queue, engine < 0 ? uapi::kQueueTypeSdma : uapi::kQueueTypeSdmaByEngId);
  args.sdma_engine_id = static_cast<uint32_t>(std::max(engine, 0));
  return FinishQueue(client, args, queue);
}

inline int DestroyQueue(Client& client, Queue& queue) {
  uapi::DestroyQueueArgs args = {queue.id, 0};
  int error = client.Call(uapi::kDestroyQueue, &args);
  for (Memory* memory : {&queue.ring, &queue.pointers, &queue.eop, &queue.save_area}) {
    if (memory->handle == 0) continue;
    const int freed = client.Free(*memory);
    if (error == 0) error = freed;
  }
  if (queue.doorbells.va != 0) {
    client.sys.Munmap(reinterpret_cast<void*>(queue.doorbells.va), uapi::kDoorbellSliceSize);
  }
  return error;
}

// The bytes of a kernel dispatch packet, header included.
struct AqlPacket {
  uint16_t header = 0;
  uint16_t setup = 1;
  uint16_t workgroup[3] = {64, 1, 1};
  uint16_t reserved = 0;
  uint32_t grid[3] = {64, 1, 1};
  uint32_t private_bytes = 0;
  uint32_t group_bytes = 0;
  uint64_t kernel_object = 0;
  uint64_t kernarg = 0;
  uint64_t reserved2 = 0;
  uint64_t completion = 0;
};
static_assert(sizeof(AqlPacket) == 64);

inline AqlPacket DispatchPacket(const Memory& kernel, uint64_t kernarg, const Signal* signal,
                                bool barrier = false) {
  AqlPacket packet;
  packet.header = static_cast<uint16_t>(barrier ? 0x1502 : 0x1402);
  packet.kernel_object = kernel.va;
  packet.kernarg = kernarg;
  packet.completion = reinterpret_cast<uint64_t>(signal);
  return packet;
}

inline AqlPacket BarrierPacket(const std::vector<const Signal*>& deps, const Signal* signal,
                               bool any = false) {
  AqlPacket packet;
  packet.header = any ? 0x1505 : 0x1503;
  packet.setup = 0;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(&packet);
  std::memset(bytes + 2, 0, 54);
  for (size_t i = 0; i < deps.size(); ++i) {
    const uint64_t va = reinterpret_cast<uint64_t>(deps[i]);
    std::memcpy(bytes + 8 + 8 * i, &va, 8);
  }
  packet.completion = reinterpret_cast<uint64_t>(signal);
  return packet;
}

// Writes a packet into its slot, header last. Does not ring.
inline void WritePacket(Queue& queue, const AqlPacket& packet) {
  const uint64_t slot = queue.ring.va + queue.next % queue.packets() * 64;
  std::memcpy(reinterpret_cast<void*>(slot + 4), reinterpret_cast<const uint8_t*>(&packet) + 4, 60);
  uint32_t word;
  std::memcpy(&word, &packet, 4);
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(slot)).store(word);
  ++queue.next;
  queue.write_index().store(queue.next);
}

inline void Submit(Queue& queue, const AqlPacket& packet) {
  WritePacket(queue, packet);
  queue.doorbell->store(queue.next - 1);
}

// Appends SDMA dwords, padding at the ring's end. Does not ring.
inline void WriteSdma(Queue& queue, const std::vector<uint32_t>& dwords) {
  const uint64_t bytes = dwords.size() * 4;
  const uint64_t left = queue.ring.size - queue.next % queue.ring.size;
  if (bytes > left) {
    std::memset(queue.ring.as<uint8_t>(queue.next % queue.ring.size), 0, left);
    queue.next += left;
  }
  std::memcpy(queue.ring.as<uint8_t>(queue.next % queue.ring.size), dwords.data(), bytes);
  queue.next += bytes;
}

inline void RingSdma(Queue& queue) {
  queue.write_index().store(queue.next);
  queue.doorbell->store(queue.next);
}

constexpr uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

inline std::vector<uint32_t> SdmaCopy(uint64_t to, uint64_t from, uint64_t bytes) {
  return {1, static_cast<uint32_t>(bytes - 1), 0, Low(from), High(from), Low(to), High(to)};
}
inline std::vector<uint32_t> SdmaFence(uint64_t to, uint32_t value) {
  return {5, Low(to), High(to), value};
}

inline std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}
inline bool LogHas(const Node& node, const std::string& part) {
  return Join(node.log()).find(part) != std::string::npos;
}

}  // namespace mainarch::sim::test

#endif  // MAINARCH_TESTS_UNIT_SIM_CLIENT_H_
