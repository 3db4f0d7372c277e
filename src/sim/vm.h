// SPDX-License-Identifier: MIT
//
// GPU memory as the driver keeps it: buffers, and one page table for each (process, GPU). A page
// table is a set of ranges; a buffer that is mapped on one GPU is invisible to the others.
//
// Threads: tables change only while the gate is closed (sim/gate.h) and are read while it is held
// open, so no lock is here.
#ifndef MAINARCH_SIM_VM_H_
#define MAINARCH_SIM_VM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "sim/arena.h"
#include "sim/executor.h"

namespace mainarch::sim {

// A buffer object. User memory has no block: `host` is the client's own address.
struct Buffer {
  uint32_t gpu = 0;  // index of the GPU it was allocated on
  uint64_t va = 0;
  uint64_t size = 0;   // whole pages
  uint32_t flags = 0;  // ALLOC_MEMORY's
  uint64_t handle = 0;
  uint64_t mmap_offset = 0;  // the cookie for the render node, 0 when it has none
  Block block;
  uint8_t* host = nullptr;
  uint64_t vram_charge = 0;   // bytes counted against the GPU's VRAM
  int kernel_pins = 0;        // event page
  std::set<uint32_t> mapped;  // GPU indices
  uint64_t drm_file = 0;      // the DRM file whose VM made it
  // Of a buffer made through the render node, and what its maker says of it.
  uint64_t domains = 0, create_flags = 0, tiling = 0;
  std::string metadata;  // at most 256 bytes

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

struct VmMapping {
  uint64_t va = 0;
  uint64_t size = 0;
  uint8_t* host = nullptr;  // null: user memory that the client has unmapped meanwhile
  Mtype mtype = Mtype::kUc;
  bool writable = false;
  bool executable = false;
  bool system_memory = false;
  uint32_t home_gpu = 0;
  uint32_t queue_refs = 0;  // queues that live in it: not unmappable
  bool svm = false;         // the client's memory in place (SVM), no buffer
  std::shared_ptr<Buffer> buffer;
};

class PageTable {
 public:
  // False when the range is unaligned, outside of the GPU's address space or overlaps another.
  bool Map(VmMapping mapping);
  // The mapping that starts at `va`, or nullptr.
  VmMapping* At(uint64_t va);
  // The mapping that covers `va`, or nullptr.
  const VmMapping* Find(uint64_t va) const;
  VmMapping* Find(uint64_t va) {
    return const_cast<VmMapping*>(static_cast<const PageTable*>(this)->Find(va));
  }
  void Unmap(uint64_t va);
  // Where the hole that `va`, which nothing covers, lies in ends; `limit` at most.
  uint64_t HoleEnd(uint64_t va, uint64_t limit) const;
  // Takes out the client's own memory that reaches into [start, end).
  void DropSvm(uint64_t start, uint64_t end);
  void Clear() { ranges_.clear(); }
  size_t size() const { return ranges_.size(); }

  // Pages that fault whatever is mapped there (faults on demand).
  void Poison(uint64_t va) { poisoned_.insert(va & ~(kPageSize - 1)); }

  // As GpuContext::Translate.
  bool Translate(uint64_t va, Access access, Window* window, MemoryFault* fault) const;

 private:
  std::map<uint64_t, VmMapping> ranges_;  // by first address
  std::set<uint64_t> poisoned_;           // page addresses
};

// How a GPU caches a buffer with these ALLOC flags (reference: MTYPE chosen by the kernel).
Mtype MtypeOf(const GpuFacts& facts, uint32_t alloc_flags, bool own_vram);

inline constexpr uint64_t kGpuVmBase = 0x10000;  // below it nothing can be mapped
inline constexpr uint64_t kGpuVmLimit = (uint64_t{1} << 47) - 1;

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_VM_H_
