// SPDX-License-Identifier: MIT
//
// What the timing model needs to know of an instruction, worked out once: which unit takes it, for
// how long, what it waits for. Kept beside the decoded instruction (Op::note).
#ifndef MAINARCH_SIM_TIME_OP_TIME_H_
#define MAINARCH_SIM_TIME_OP_TIME_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>

#include "sim/isa/check/effects.h"
#include "sim/isa/wave.h"
#include "sim/time/params.h"

namespace mainarch::sim::timing {

enum class Unit : uint8_t {
  kValu,
  kMfma,
  kSalu,
  kClock,  // s_memtime and s_memrealtime
  kSmem,
  kSmemInv,
  kLds,
  kLane,  // DS instructions that reach no memory
  kLoad,
  kStore,
  kAtomic,
  kInv,   // buffer_inv
  kWbl2,  // buffer_wbl2
  kBranch,
  kWait,
  kNop,
  kSleep,
  kBarrier,
  kEnd,
  kOther,
};

// Vector registers, AGPRs from 256 on; both ends included.
struct Span16 {
  uint16_t first = 1, last = 0;
  bool Overlaps(const Span16& o) const { return first <= o.last && o.first <= last; }
  bool Same(const Span16& o) const { return first == o.first && last == o.last; }
};

// The addresses that a DS instruction was last met with, less the first, and what they took: loops
// come with the same ones again, only further on, which changes no conflict.
struct LdsMemo {
  uint64_t mask = 0;
  int clocks = 0;
  std::array<uint32_t, isa::kLanes> from_first = {};
};

struct OpTime {
  static constexpr uint8_t kNoWait = 255;

  Unit unit = Unit::kOther;
  uint8_t bytes = 0;     // of a lane's access
  uint8_t elements = 1;  // accesses of a lane: ds_read2 has two
  uint16_t stride = 0;   // bytes of a unit of their offsets
  int lds_clock = 128;   // bytes that LDS moves a clock for it
  uint8_t dwords = 0;    // SMEM
  uint8_t vm_wait = kNoWait, lgkm_wait = kNoWait;
  bool sc0 = false, sc1 = false, nt = false;
  bool load = false, store = false, returns = false, to_lds = false, inv_system = false;
  bool flat = false;       // counts for vmcnt and lgkmcnt
  uint16_t wait = 0;       // clocks: s_nop, s_sleep
  uint16_t occupancy = 4;  // clocks of the unit's pipe
  uint16_t passes = 0;     // MFMA: clocks of the matrix core
  uint16_t result = 0;     // MFMA: clocks from issue to use by other instructions
  // Vector registers read and written; source C of a matrix product apart.
  std::array<Span16, 5> reads;
  std::array<Span16, 2> writes;
  Span16 accumulator;
  int read_count = 0, write_count = 0;
  mutable LdsMemo lds;
};

// Makes and keeps them. One thread.
class OpTimes {
 public:
  OpTimes(isa::Isa isa, const Params& params) : isa_(isa), params_(params) {}

  const OpTime& Of(const isa::Op& op) {
    if (__builtin_expect(op.note == nullptr, 0)) op.note = Make(op);
    return *static_cast<const OpTime*>(op.note);
  }

 private:
  using Words = std::array<uint32_t, 4>;
  const OpTime* Make(const isa::Op& op);
  void Memory(const isa::Op& op, const isa::RowFacts& facts, OpTime* t) const;
  void Scalar(const isa::Op& op, OpTime* t) const;
  void Vector(const isa::Op& op, const isa::RowFacts& facts, OpTime* t) const;

  const isa::Isa isa_;
  const Params params_;
  const isa::EffectsTable table_;
  std::deque<OpTime> made_;
  std::map<Words, const OpTime*> by_words_;  // instructions that are alike share one
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_OP_TIME_H_
