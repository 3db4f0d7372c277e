// SPDX-License-Identifier: MIT
//
// What the virtual node is made of: how many GPUs of which chip, with the numbers the driver prints
// for it, and every choice a test may fix. Plain data; nothing here runs.
#ifndef MAINARCH_SIM_PROFILE_H_
#define MAINARCH_SIM_PROFILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "sim/executor.h"
#include "sim/isa/check/options.h"
#include "sim/isa/lines.h"

namespace mainarch::sim {

// One GPU in SPX/NPS1 as its topology node describes it. Values captured, derived or guessed are
// marked so in the reference (topology properties in print order).
struct GpuProfile {
  absl::string_view isa;
  absl::string_view marketing_name;
  GpuFacts facts;
  uint32_t device_id;
  uint32_t simd_count;
  uint32_t array_count;   // times XCCs
  uint32_t cu_per_array;  // physical slots, not active CUs
  uint32_t num_sdma;      // PCIe-optimised engines
  uint32_t num_sdma_xgmi;
  uint32_t sdma_queues_per_engine;
  uint32_t num_cp_queues;
  uint32_t num_gws;
  uint32_t clock_mhz;
  uint32_t memory_mhz;
  uint32_t memory_width;
  uint64_t vram_bytes;
  uint32_t mec_fw;
  uint32_t sdma_fw;
  uint32_t capability;
  uint32_t debug_prop;
  uint32_t l2_kb;              // of one XCC
  uint32_t l3_kb;              // of the socket; 0: none
  uint32_t cus_per_shared_l1;  // CUs that share one instruction and one scalar cache
  uint32_t shared_l1_count;    // of each kind
};

// nullptr for an ISA that no profile describes.
const GpuProfile* FindProfile(absl::string_view isa);
// "gfx90a gfx942 gfx950", for messages.
std::string ProfileNames();

// Sizes a queue's context save area must have (reference: node sizes).
struct SaveAreaSizes {
  uint32_t ctl_stack_bytes;  // of one XCC
  uint32_t cwsr_bytes;       // of one XCC, control stack included
  uint32_t debug_bytes;      // of one XCC
  uint64_t total_bytes;      // of the buffer: all XCCs, page aligned
};
SaveAreaSizes SaveAreaOf(const GpuProfile& profile);

namespace isa {
enum class LaneCode : uint8_t;  // isa/lanes.h
}

struct NodeConfig {
  const GpuProfile* profile = nullptr;
  uint32_t gpus = 1;
  uint64_t seed = 1;        // of every choice the machine makes
  uint32_t kfd_minor = 17;  // KFD 1.17 is Linux 6.12
  // Threads that play the GPUs; 0: as many as there are GPUs, at most the host's processors, and
  // one where the executor's launches take turns anyway (checkers).
  uint32_t threads = 0;

  // sysfs prints cwsr_size and ctl_stack_size (recent kernels) or does not.
  bool sysfs_save_area = true;
  // Properties no client knows are added to every node: readers must skip them.
  bool sysfs_unknown_lines = false;
  // Index of a GPU whose sysfs files answer EPERM, as under a device cgroup; -1: none.
  int32_t hidden_gpu = -1;

  // What hardware leaves open, and what we make of it.
  enum class Invalidate : uint8_t { kAlways, kNever, kRandom };
  Invalidate invalidate_slots = Invalidate::kAlways;  // does the CP rewrite a consumed header?
  bool early_fetch = true;  // the CP may read a published slot before its doorbell
  bool reorder = true;      // engines, queues and overlapping packets progress in random order
  bool lag_read_pointers = true;
  // A wait of ten minutes and more for signal events that has slept so long ends as if they had been set; 0: never. A
  // wake-up for nothing is legal, and one client needs it: AMD's runtime 5.2.3 hangs in
  // hsa_queue_destroy, here as on hardware. It lets only the first waiter of a *signal* sleep
  // (Signal::waiting_, "temporary, known to be bad"), but the inactive signals of all its queues
  // share one auto-reset *event* (AqlQueue::queue_event_). In ~AqlQueue the caller reads its signal
  // for the last time and is put aside before hsaKmtWaitOnEvent; AsyncEventsLoop runs
  // DynamicScratchHandler, stores -1 and sets the event, on which nobody sleeps, so it stays set;
  // the loop waits again, for another queue's signal and so for the same event, and takes it; the
  // caller sleeps for ever. Traced call by call: one queue in some hundred on a busy machine.
  // Event ages (KFD 1.14) are the kernel's answer, which that runtime does not use.
  uint32_t nudge_ms = 0;

  // Matrix products to the bit of the published CDNA3 model (sim/isa/matrix_exact.h), slowly.
  bool exact_matrix = false;
  // Instructions of a wave's turn, at most; 0: the interpreter's own number. Small ones let waves run side by side, as on silicon,
  // where a kernel counts on it: what is read just before another wave overwrites it.
  uint32_t slice = 0;
  // Which of the interpreter's routines run, whatever this CPU has; unless set, the fastest. Results are the same.
  std::optional<isa::LaneCode> lanes;
  // A modelled clock runs along (sim/time/README.md), on one machine thread.
  bool time = false;
  // Encodings with an erratum run as documented and are noted in the log, rather than stop the wave.
  bool run_errata = false;
  // What is proved of every kernel as it runs, many times slower; a finding stops the kernel.
  isa::CheckOptions check;
  // Of code objects with debug information (AddLines): a halted wave's report names the source line.
  std::vector<std::shared_ptr<const isa::LineTable>> lines;

  // New VRAM and system memory holds NaNs of every float format, addresses nobody maps, and no two
  // words alike in a seed; memory that was given back holds other ones. The real driver gives
  // zeroes, which no program of ours may count on; false (poison=0) is for programs that do.
  bool poison = true;
  bool small_bar = false;  // the CPU cannot map VRAM
  // CPU sockets; 0: one for four GPUs, at most two. Programs from outside look a CPU node up among
  // the host's own NUMA nodes, so they get no more than the host has.
  uint32_t sockets = 0;

  // No choice is drawn, and one thread plays all GPUs: what a clock needs.
  void Settle() {
    threads = 1;
    reorder = early_fetch = lag_read_pointers = false;
  }
};

// "gfx950x8", "gfx942", with comma-separated settings behind it: "gfx950x8,seed=7,minor=14,
// threads=1,check=all". An error names the part it does not know.
StatusOr<NodeConfig> ParseNode(absl::string_view text);

// Adds the lines of a code object with debug information. Apart from the text above, because that
// comes from device strings, which name no files.
Status AddLines(absl::string_view path, NodeConfig* config);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PROFILE_H_
