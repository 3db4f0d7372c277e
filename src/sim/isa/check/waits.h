// SPDX-License-Identifier: MIT
//
// What an in-order interpreter cannot see by running: a wait that is missing. On hardware a load's
// register holds its old value until s_waitcnt has waited for it, and an LDS write is seen by other
// waves only when the writer has waited for it and a barrier has come between. These checkers
// follow the counters and stop a wave that relies on luck.
//
// WaveCheck: vmcnt and lgkmcnt of one wave. LdsCheck: who wrote and read each LDS dword of one
// workgroup. Both are used by one thread at a time; off (null) unless asked for.
#ifndef MAINARCH_SIM_ISA_CHECK_WAITS_H_
#define MAINARCH_SIM_ISA_CHECK_WAITS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/isa/check/accesses.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

class LdsCheck;

class WaveCheck {
 public:
  // `known` (README.md): what LDS was asked for kLdsArrives instructions ago has arrived, waited
  // for or not.
  explicit WaveCheck(bool known = false) : known_(known) {}

  // Before `op` runs: "" or what it must have waited for; `known`: what is forgiven is a *note.
  // Counts the operation.
  std::string Issue(const Wave& w, const Op& op, std::string* note);

  // Sequence numbers of this wave's LDS accesses through DS and of its loads to LDS, and up to
  // which of them it has waited.
  uint64_t ds_issued = 0, ds_drained = 0, dma_issued = 0, dma_drained = 0;

 private:
  struct Event {
    uint16_t first = 0, count = 0;  // registers it will write
    bool scalar = false;            // SMEM: returns out of order
    bool ds = false, dma = false;
    uint64_t at = 0;       // which of the wave's instructions
    bool ordered = false;  // arrives behind all such that were issued before it
  };
  std::string Touch(const Wave& w, const Op& op, std::string* note);
  bool Overwritten(const Op& op, const Operand& o);
  bool OnlyOrdered(const std::deque<Event>& queue, int code, int width) const;
  void Pend(const Event& event, int by);
  void Add(std::deque<Event>* queue, const Event& event);
  void Retire(std::deque<Event>* queue);
  void Wait(int imm);
  void RetireOld();

  const bool known_;
  uint64_t instructions_ = 0;
  std::deque<Event> vm_, lgkm_;
  std::array<uint8_t, 512> vector_ = {};  // outstanding writes of a register
  std::array<uint8_t, 128> scalar_ = {};
};

class LdsCheck {
 public:
  LdsCheck(size_t bytes, size_t waves, bool known)
      : known_(known), cells_((bytes + 3) / 4), visible_(waves), checks_(waves, WaveCheck(known)) {}

  WaveCheck& wave(uint32_t index) { return checks_[index]; }
  // What an instruction of wave `wave` does to LDS; "" or the race. `known`: that it overwrites
  // what another wave has read with no barrier between is no race but a *note.
  std::string Instruction(uint32_t wave, const RowFacts& facts, const Accesses& accesses,
                          std::string* note);
  // Every wave has arrived: what each had waited for is now seen by all.
  void Barrier();

 private:
  enum class Kind { kRead, kWrite, kAtomic, kDma };
  std::string Touch(uint32_t wave, uint32_t address, uint32_t size, std::string* note);
  struct Cell {
    int16_t writer = -1;
    bool atomic = false, dma = false;
    uint64_t write = 0;                  // the writer's sequence number
    std::array<uint32_t, 16> read = {};  // of each wave
  };
  struct Seen {
    uint64_t ds = 0, dma = 0;
  };
  bool Visible(const Cell& cell) const {
    const Seen& seen = visible_[static_cast<size_t>(cell.writer)];
    return cell.write <= (cell.dma ? seen.dma : seen.ds);
  }

  Kind kind_ = Kind::kRead;
  const bool known_;
  std::vector<Cell> cells_;
  std::vector<Seen> visible_;
  std::vector<WaveCheck> checks_;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_WAITS_H_
