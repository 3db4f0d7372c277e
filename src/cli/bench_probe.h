// SPDX-License-Identifier: MIT
//
// What this machine can do, measured in this process at this moment: bandwidth of plain reads and
// rate of plain arithmetic. A virtual machine may move between cores of one chip and of two, which
// changes the bandwidth of several threads by nearly 2 and is seen nowhere but here; so benches
// probe before and after every repetition and compare figures with these, never with a data sheet.
#ifndef MAINARCH_CLI_BENCH_PROBE_H_
#define MAINARCH_CLI_BENCH_PROBE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/team.h"

namespace mainarch::cli {

// Where the threads sit, by how fast they hand a cache line to each other.
enum class Regime {
  kAlone,  // one thread
  kNear,   // below 100 ns: one cache
  kFar,
  kBusy,  // they never ran at the same time: other programs have the processors
};
const char* NameOf(Regime regime);

// Bytes a second; 0 where not measured.
struct ReadProbe {
  double one = 0, all = 0;              // threads; huge pages
  double one_small = 0, all_small = 0;  // 4 KB pages
  double handoff_ns = 0;                // one way; 0 with one thread
  Regime regime = Regime::kAlone;
};

// Flops a second of all threads; 0 where the CPU has no such instruction.
struct PeakProbe {
  double fp32_fma = 0;
  double bf16_dot = 0;
};

class Probes {
 public:
  // `bytes` are read by each probe; more than the caches hold.
  static StatusOr<std::unique_ptr<Probes>> Create(int threads, uint64_t bytes);

  // Everything, some tenths of a second.
  ReadProbe Read();
  // What all threads read of huge pages, twice what caches hold, and where they sit: some hundredths to tenths,
  // for the two sides of a repetition. The other rates are 0.
  ReadProbe Quick();
  // The rate of all threads through all of the bytes.
  double Whole();
  PeakProbe Peak();
  int threads() const { return all_->workers(); }
  uint64_t bytes() const { return huge_.size(); }

 private:
  Probes() = default;
  double Bandwidth(Team* team, const Mapping& memory, size_t bytes);
  void Place(ReadProbe* probe);

  std::unique_ptr<Team> one_, all_;
  Mapping huge_, small_;
};

// A read probe's bytes by default: 1 GB and four times what caches hold, less on small machines.
uint64_t DefaultProbeBytes();

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_BENCH_PROBE_H_
