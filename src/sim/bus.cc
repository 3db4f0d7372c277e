// SPDX-License-Identifier: MIT
#include "sim/bus.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace mainarch::sim {

bool Bus::Read(uint64_t va, void* out, uint64_t size, MemoryFault* fault) const {
  uint8_t* to = static_cast<uint8_t*>(out);
  while (size > 0) {
    Window window;
    if (!context_.Translate(va, Access::kRead, &window, fault)) return false;
    const uint64_t part = std::min(size, window.size);
    std::memcpy(to, window.host, part);
    va += part;
    to += part;
    size -= part;
  }
  return true;
}

bool Bus::Write(uint64_t va, const void* in, uint64_t size, MemoryFault* fault) const {
  const uint8_t* from = static_cast<const uint8_t*>(in);
  while (size > 0) {
    Window window;
    if (!context_.Translate(va, Access::kWrite, &window, fault)) return false;
    const uint64_t part = std::min(size, window.size);
    std::memcpy(window.host, from, part);
    va += part;
    from += part;
    size -= part;
  }
  return true;
}

bool Bus::Copy(uint64_t to, uint64_t from, uint64_t size, MemoryFault* fault) const {
  while (size > 0) {
    Window source, target;
    if (!context_.Translate(from, Access::kRead, &source, fault)) return false;
    if (!context_.Translate(to, Access::kWrite, &target, fault)) return false;
    const uint64_t part = std::min({size, source.size, target.size});
    std::memmove(target.host, source.host, part);
    to += part;
    from += part;
    size -= part;
  }
  return true;
}

bool Bus::Fill(uint64_t to, uint8_t value, uint64_t size, MemoryFault* fault) const {
  while (size > 0) {
    Window window;
    if (!context_.Translate(to, Access::kWrite, &window, fault)) return false;
    const uint64_t part = std::min(size, window.size);
    std::memset(window.host, value, part);
    to += part;
    size -= part;
  }
  return true;
}

uint8_t* Bus::Aligned(uint64_t va, uint64_t size, Access access, MemoryFault* fault) const {
  Window window;
  if (va % size != 0) {
    *fault = {va & ~uint64_t{4095}, true, false, false};
    return nullptr;
  }
  return context_.Translate(va, access, &window, fault) ? window.host : nullptr;
}

bool Bus::Load32(uint64_t va, uint32_t* value, MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 4, Access::kRead, fault);
  if (host == nullptr) return false;
  *value = std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(host)).load();
  return true;
}

bool Bus::Load64(uint64_t va, uint64_t* value, MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 8, Access::kRead, fault);
  if (host == nullptr) return false;
  *value = std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(host)).load();
  return true;
}

bool Bus::Store32(uint64_t va, uint32_t value, MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 4, Access::kWrite, fault);
  if (host == nullptr) return false;
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(host)).store(value);
  return true;
}

bool Bus::Store64(uint64_t va, uint64_t value, MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 8, Access::kWrite, fault);
  if (host == nullptr) return false;
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(host)).store(value);
  return true;
}

bool Bus::Add64(uint64_t va, uint64_t delta, MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 8, Access::kWrite, fault);
  if (host == nullptr) return false;
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(host)).fetch_add(delta);
  return true;
}

bool Bus::CompareSwap64(uint64_t va, uint64_t expected, uint64_t desired,
                        MemoryFault* fault) const {
  uint8_t* host = Aligned(va, 8, Access::kWrite, fault);
  if (host == nullptr) return false;
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(host))
      .compare_exchange_strong(expected, desired);
  return true;
}

}  // namespace mainarch::sim
