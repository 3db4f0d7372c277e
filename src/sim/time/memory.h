// SPDX-License-Identifier: MIT
//
// The memory system of one GPU behind its vector L1s: an L2 for each XCD, the fabric, the MALL,
// channels of memory, links to peers and host. Each access is booked on what it passes the moment
// that it is issued, and is told when it is done and what it had to wait for.
#ifndef MAINARCH_SIM_TIME_MEMORY_H_
#define MAINARCH_SIM_TIME_MEMORY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "sim/isa/memory.h"
#include "sim/time/capacity.h"
#include "sim/time/params.h"
#include "sim/time/report.h"
#include "sim/time/tags.h"

namespace mainarch::sim::timing {

// When something is done, and how much of the way there was waiting in queues, for what.
struct Done {
  Clocks at = 0;
  Clocks queued = 0;
  Limit why = Limit::kLatency;

  // The later one of two.
  void Later(const Done& o) {
    if (o.at > at) *this = o;
  }
  void Wait(Clocks clocks, Limit limit, Clocks* most) {
    if (clocks <= 0) return;
    at += clocks;
    queued += clocks;
    if (clocks > *most) *most = clocks, why = limit;
  }
};

// sim::Mtype, which this floor's interpreter hands on as a number.
enum class Page : uint8_t { kRw, kNc, kCc, kUc };

class MemorySystem {
 public:
  MemorySystem(const Params& params, uint32_t xccs);

  // `line` is an address over 128, `at` when the request leaves the compute unit's L1. sc1: past the
  // L2 where another XCD may have written.
  Done Read(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent, bool nt);
  // Until it is acknowledged. `whole`: all of the line is written.
  Done Write(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent, bool whole);
  Done Atomic(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool coherent);
  // Dirty lines of an XCD's L2 go to memory; when the last has.
  Clocks WriteBack(uint32_t xcc, Clocks at);
  // A peer or the host has written a line: no L2 holds it any more.
  void Written(uint64_t line) { DropElsewhere(~0u, line); }
  // Forgets every line (Clock::Flush).
  void Clear();

  uint64_t dirty_lines(uint32_t xcc) const { return xccs_[xcc].dirty.size(); }
  MemoryBytes& bytes() { return bytes_; }

 private:
  struct Xcc {
    Tags l2;
    std::vector<Capacity> read, write;  // channels
    Capacity fabric_read, fabric_write;
    std::vector<uint64_t> dirty;  // lines, some of which may have gone
  };
  struct Serial {
    uint64_t line = ~uint64_t{0};
    Clocks free = 0;
    uint32_t writer = ~0u;  // XCD that wrote it last
  };

  Done Outside(uint32_t xcc, uint64_t line, Clocks at, isa::Where where, bool write, double bytes);
  Done FromMemory(Xcc& x, uint64_t line, Clocks at);
  // When the line has been taken in.
  Clocks ToMemory(uint64_t line, Clocks at);
  // The line's sector, made room for: what had to go is written to memory, and *taken moved on to when
  // that has begun.
  uint32_t MallSector(uint64_t line, Clocks at, Clocks* taken);
  Clocks Channel(uint64_t line, Clocks at, bool write);
  Serial& SerialOf(uint64_t line);
  Clocks SerialOn(uint64_t line, Clocks at);
  void DropElsewhere(uint32_t xcc, uint64_t line);
  // *taken, when not null: when a dirty line that had to go for it has been taken in below.
  uint32_t PutL2(Xcc& x, uint32_t xcc, uint64_t line, Clocks at, Clocks arrives,
                 Clocks* taken = nullptr);
  uint32_t L2Channel(uint64_t line) const;

  const Params& params_;
  const Clocks l2_, mall_, hbm_, far_, ack_, cross_, serial_, turn_;
  std::vector<Xcc> xccs_;
  // The MALL by sectors of eight lines: a tag each, and a bit a line that is there, or dirty.
  Tags mall_tags_;
  std::vector<uint8_t> mall_there_, mall_dirty_;
  std::vector<Capacity> hbm_read_;  // of both directions, in clocks of the channel
  std::vector<uint8_t> last_write_;
  double read_cost_, write_cost_;
  std::vector<Capacity> links_;  // to each peer, both directions apart: [2 * peer + write]
  Capacity pcie_read_, pcie_write_;
  // Which XCDs may hold a line, by its hash.
  std::vector<uint8_t> holders_;
  std::vector<Serial> serials_;
  MemoryBytes bytes_;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_MEMORY_H_
