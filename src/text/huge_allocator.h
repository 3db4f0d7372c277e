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

template <class T>
struct HugeAllocator {
  using value_type = T;
  static constexpr size_t kHugePage = size_t{2} << 20;

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
      // Advice: where it is not taken, the pages are small.
      if (at != nullptr) (void)madvise(at, rounded, MADV_HUGEPAGE);
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
