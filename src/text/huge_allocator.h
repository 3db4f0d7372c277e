// SPDX-License-Identifier: MIT
//
// An allocator for the large tables of a tokenizer: it asks the kernel for huge pages, so that
// filling 4 MB takes two page faults and not a thousand, and a look-up misses no TLB.
#ifndef MAINARCH_TEXT_HUGE_ALLOCATOR_H_
#define MAINARCH_TEXT_HUGE_ALLOCATOR_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace mainarch::text {

inline constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages wherever they fit into memory that another allocator gave. It is advice:
// where it is not taken, the pages are small.
inline void AdviseHugePages(void* begin, size_t bytes) {
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + bytes) & ~(kHugePage - 1);
  if (first < last) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

template <class T>
struct HugeAllocator {
  using value_type = T;

  HugeAllocator() = default;
  template <class U>
  HugeAllocator(const HugeAllocator<U>&) {}

  T* allocate(size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = count * sizeof(T);
    void* at;
    if (bytes < kHugePage) {
      at = std::malloc(bytes);
    } else {
      const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      at = std::aligned_alloc(kHugePage, rounded);
      if (at != nullptr) AdviseHugePages(at, rounded);
    }
    if (at == nullptr) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
  void deallocate(T* at, size_t) { std::free(at); }

  friend bool operator==(const HugeAllocator&, const HugeAllocator&) { return true; }
};

template <class T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_HUGE_ALLOCATOR_H_
