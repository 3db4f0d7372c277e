// SPDX-License-Identifier: MIT
//
// A range of memory with one address on the CPU and on every GPU that maps it.
//
// The address range is reserved first (so that nothing else on the CPU gets it), then the driver
// backs it on one GPU, then the CPU and the peers map it. Releasing undoes the steps in reverse,
// each tried twice: a failing release would otherwise hold device memory until the process ends.
//
// Where memory lives and how it is cached is the caller's decision; see Place and Caching.
//
// Owner: the Device outlives its buffers. Threads: distinct buffers are independent; one buffer is
// used by one thread at a time, except for the memory itself.
#ifndef MAINARCH_GPU_MEMORY_H_
#define MAINARCH_GPU_MEMORY_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::gpu {

class Device;
class Process;

// Gives a mapping back, in two tries: one that failed would stay until the process ends.
Status Unmap(Process& process, void* address, uint64_t size);

enum class Place : uint8_t {
  kVram,        // the GPU's own memory: weights, KV, everything bulky
  kSystem,      // host memory of the driver (GTT): rings, signals, kernel arguments
  kUserMemory,  // host memory of the caller, pinned while the buffer lives
  kDoorbell,    // the process' doorbell page of this GPU, for GPU code that rings
  kMmioRemap,   // one page of registers: HDP flush
};

// What the GPU's L2 does with the lines. In short: data plain, anything polled kUncached.
//   own VRAM:      kDefault cached read-write; kExtCoherent cached for reads and written through;
//                  kUncached never cached.
//   peer's VRAM:   kDefault cached, nobody invalidates it for you (use write-back and invalidate
//                  fences); kUncached never cached.
//   system memory: gfx942 never caches it; gfx950 caches it unless kUncached, so that a word polled
//                  by both sides must say kUncached to mean the same on both chips.
enum class Caching : uint8_t { kDefault, kCoherent, kExtCoherent, kUncached };

struct BufferOptions {
  Place place = Place::kVram;
  Caching caching = Caching::kDefault;
  bool host_access = false;  // VRAM: map it for the CPU too (needs a large BAR)
  bool writable = true;      // by the GPU
  bool executable = false;
  bool contiguous = false;               // physically; VRAM, since KFD 1.16
  void* user_address = nullptr;          // kUserMemory only: page aligned
  const char* label = "buffer";          // static text for fault reports
  absl::Span<Device* const> peers = {};  // beside the owner
};

class Buffer {
 public:
  Buffer() = default;
  // `size` is rounded up to pages; the mapping is exactly that size, as the kernel's queue checks
  // want. Buffers of 2 MiB and more start at a multiple of 2 MiB, for large page-table fragments.
  static StatusOr<Buffer> Allocate(Device& device, uint64_t size, const BufferOptions& options);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Release().IgnoreError(); }

  bool valid() const { return device_ != nullptr; }
  uint64_t va() const { return reinterpret_cast<uint64_t>(address_); }
  uint64_t size() const { return size_; }
  uint64_t handle() const { return handle_; }
  // The CPU's view at the same address; null when the CPU does not map it.
  template <class T = uint8_t>
  T* host() const {
    return host_mapped_ ? reinterpret_cast<T*>(address_) : nullptr;
  }
  absl::Span<const uint32_t> mapped_gpu_ids() const { return mapped_; }

  // Makes it accessible to a peer at the same address. Idempotent.
  Status MapTo(Device& peer);

  // Gives everything back. The first failure that a second try did not mend is returned and the
  // rest goes on; in a forked child it does nothing. Idempotent.
  Status Release();
  // The same for memory that the kernel has made its own and will free itself (the event page).
  Status ReleaseToKernel();

 private:
  Status Reserve(uint64_t size, uint64_t alignment);
  Status Back(const BufferOptions& options);
  Status MapHost(const BufferOptions& options);
  Status MapGpus(absl::Span<const uint32_t> gpu_ids);
  Status UnmapGpus();
  Status Free();

  Device* device_ = nullptr;
  uint8_t* reservation_ = nullptr;  // null for user memory
  uint64_t reservation_size_ = 0;
  uint8_t* address_ = nullptr;
  uint64_t size_ = 0;
  uint64_t handle_ = 0;
  uint64_t mmap_offset_ = 0;
  bool backed_ = false;  // handle_ is valid
  bool host_mapped_ = false;
  std::vector<uint32_t> mapped_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_MEMORY_H_
