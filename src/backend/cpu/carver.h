// SPDX-License-Identifier: MIT
//
// Hands out pieces of a region whose size it finds out first: run once without memory, once with.
#ifndef MAINARCH_BACKEND_CPU_CARVER_H_
#define MAINARCH_BACKEND_CPU_CARVER_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::cpu {

class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <class T>
  T* Take(int64_t count) {
    uint8_t* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_CARVER_H_
