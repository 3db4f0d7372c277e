// SPDX-License-Identifier: MIT
//
// Where device memory lies in the modelled memory. A device address is whatever the host's kernel had free, another in
// every process, and channels and sets go by address bits: so each piece of memory gets a place when it is first
// touched, in the order of touching, and the same program has the same cycles every time. Pieces stay whole, as
// allocations do in VRAM, so what strides collide on a channel is kept.
#ifndef MAINARCH_SIM_TIME_FRAMES_H_
#define MAINARCH_SIM_TIME_FRAMES_H_

#include <cstdint>
#include <unordered_map>

#include "sim/isa/memory.h"

namespace mainarch::sim::timing {

class Frames {
 public:
  // What to add to an address in [view.begin, view.end), modulo 2^64.
  uint64_t ShiftOf(const isa::View& view) {
    Piece& piece = pieces_[view.begin];
    if (piece.end != view.end) {
      // New, or something else lies there now.
      const uint64_t size = view.end - view.begin, align = size >= kLarge ? kLarge : kPage;
      const uint64_t at = (next_ + align - 1) & ~(align - 1);
      piece = {view.end, at - view.begin};
      next_ = at + size;
    }
    return piece.shift;
  }

 private:
  static constexpr uint64_t kPage = 4096, kLarge = uint64_t{2} << 20;
  struct Piece {
    uint64_t end = 0, shift = 0;
  };
  std::unordered_map<uint64_t, Piece> pieces_;  // [begin]
  uint64_t next_ = kLarge;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_FRAMES_H_
