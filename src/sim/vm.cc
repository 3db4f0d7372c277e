// SPDX-License-Identifier: MIT
#include "sim/vm.h"

#include <algorithm>

#include "kfd/uapi/kfd_ioctl.h"

namespace mainarch::sim {

bool PageTable::Map(VmMapping mapping) {
  if (mapping.size == 0 || mapping.va % kPageSize != 0 || mapping.size % kPageSize != 0) {
    return false;
  }
  if (mapping.va < kGpuVmBase || mapping.va > kGpuVmLimit ||
      mapping.size > kGpuVmLimit + 1 - mapping.va) {
    return false;
  }
  const auto next = ranges_.lower_bound(mapping.va);
  if (next != ranges_.end() && next->first < mapping.va + mapping.size) return false;
  if (next != ranges_.begin()) {
    const VmMapping& before = std::prev(next)->second;
    if (before.va + before.size > mapping.va) return false;
  }
  const uint64_t va = mapping.va;
  ranges_.emplace(va, std::move(mapping));
  return true;
}

VmMapping* PageTable::At(uint64_t va) {
  const auto found = ranges_.find(va);
  return found == ranges_.end() ? nullptr : &found->second;
}

const VmMapping* PageTable::Find(uint64_t va) const {
  auto next = ranges_.upper_bound(va);
  if (next == ranges_.begin()) return nullptr;
  const VmMapping& mapping = std::prev(next)->second;
  return va - mapping.va < mapping.size ? &mapping : nullptr;
}

void PageTable::Unmap(uint64_t va) { ranges_.erase(va); }

uint64_t PageTable::HoleEnd(uint64_t va, uint64_t limit) const {
  const auto next = ranges_.upper_bound(va);
  return next == ranges_.end() ? limit : std::min(limit, next->first);
}

void PageTable::DropSvm(uint64_t start, uint64_t end) {
  for (auto one = ranges_.begin(); one != ranges_.end();) {
    const VmMapping& mapping = one->second;
    const bool hit = mapping.svm && mapping.va < end && start < mapping.va + mapping.size;
    one = hit ? ranges_.erase(one) : std::next(one);
  }
}

bool PageTable::Translate(uint64_t va, Access access, Window* window, MemoryFault* fault) const {
  const VmMapping* mapping = Find(va);
  uint64_t begin = mapping == nullptr ? 0 : mapping->va;
  uint64_t end = mapping == nullptr ? 0 : mapping->va + mapping->size;
  bool present = mapping != nullptr && mapping->host != nullptr;
  if (present && !poisoned_.empty()) {
    const auto bad = poisoned_.lower_bound(va & ~(kPageSize - 1));
    if (bad != poisoned_.end() && *bad <= va) {
      present = false;
    } else {
      if (bad != poisoned_.end()) end = std::min(end, *bad);
      if (bad != poisoned_.begin()) begin = std::max(begin, *std::prev(bad) + kPageSize);
    }
  }
  const bool read_only = present && access == Access::kWrite && !mapping->writable;
  const bool no_execute = present && access == Access::kExecute && !mapping->executable;
  if (!present || read_only || no_execute) {
    // Facts: the fault carries the page's address, and the permission that was missing.
    *fault = {va & ~(kPageSize - 1), !present, read_only, no_execute};
    return false;
  }
  *window = {mapping->host + (va - mapping->va),
             end - va,
             va - begin,
             mapping->mtype,
             mapping->writable,
             mapping->executable,
             mapping->system_memory,
             mapping->home_gpu};
  return true;
}

Mtype MtypeOf(const GpuFacts& facts, uint32_t alloc_flags, bool own_vram) {
  namespace uapi = kfd::uapi;
  const bool vram = (alloc_flags & uapi::kAllocVram) != 0;
  if ((alloc_flags & (uapi::kAllocDoorbell | uapi::kAllocMmioRemap)) != 0) return Mtype::kUc;
  if ((alloc_flags & uapi::kAllocUncached) != 0) return Mtype::kUc;
  if ((alloc_flags & uapi::kAllocExtCoherent) != 0) return own_vram ? Mtype::kCc : Mtype::kUc;
  if (own_vram) return Mtype::kRw;
  if (vram) return Mtype::kNc;
  return facts.system_memory_nc ? Mtype::kNc : Mtype::kUc;
}

}  // namespace mainarch::sim
