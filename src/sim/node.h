// SPDX-License-Identifier: MIT
//
// The virtual node: N GPUs of one chip, the driver's state for every process that uses them, and
// the threads that play the hardware. Clients do not call it: they come in through sim/sim_sys.h
// (the Sys seam) or the preloaded library, one Process each. Tests and tools call it to make
// trouble and to read the log and the ledger.
//
// Locks, in order: mutex() (one driver call at a time, but for waits) > the gate (closed to change
// page tables and queues, held open by the machine's sweeps) > leaves (events, log, script).
// A machine thread never takes mutex().
#ifndef MAINARCH_SIM_NODE_H_
#define MAINARCH_SIM_NODE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "base/status.h"
#include "kfd/sys.h"
#include "sim/arena.h"
#include "sim/executor.h"
#include "sim/gate.h"
#include "sim/process_files.h"
#include "sim/profile.h"
#include "sim/queue.h"
#include "sim/script.h"
#include "sim/virtual_fs.h"
#include "sim/vm.h"

namespace mainarch::sim {

class Process;

// How a line of the log begins that tells of a wave halted by an exception, or by a checker.
inline constexpr absl::string_view kHaltedWave = "sq_intr: error";

// Device and inode of a file.
using FileKey = std::pair<uint64_t, uint64_t>;

// What a process (or the node) holds. Everything is zero when everything has been given back.
struct Ledger {
  uint64_t fds = 0;              // open files of the node
  uint64_t client_mappings = 0;  // mmaps not yet unmapped, device and anonymous
  uint64_t buffers = 0;          // ALLOC without FREE
  uint64_t vram_bytes = 0;
  uint64_t gpu_mappings = 0;  // ranges in page tables
  uint64_t queues = 0;
  uint64_t events = 0;
  bool empty() const;
  std::string ToString() const;
};

class Node {
 public:
  // `executor` runs the dispatches.
  static StatusOr<std::shared_ptr<Node>> Create(const NodeConfig& config,
                                                std::unique_ptr<Executor> executor);
  // Ends the machine's threads; every Process must be gone.
  ~Node();

  const NodeConfig& config() const { return config_; }
  const GpuProfile& profile() const { return *config_.profile; }
  const VirtualFs& fs() const { return fs_; }
  ProcessFiles& process_files() { return process_files_; }
  const std::vector<GpuIdentity>& gpus() const { return identities_; }
  // Index of a gpu_id, or -1.
  int GpuIndex(uint32_t gpu_id) const;
  Executor& executor() { return *executor_; }
  Script& script() { return script_; }
  Arena& arena() { return *arena_; }
  std::mutex& mutex() { return mutex_; }

  // The host's threads that play the machine.
  uint32_t thread_count() const { return static_cast<uint32_t>(rested_.size()); }
  // Ends them: nothing moves any more. For good.
  void Stop();

  // Trouble from outside; the same as a script makes from inside.
  void ResetGpu(uint32_t gpu);
  void RaiseEcc(uint32_t gpu);
  void RemoveGpu(uint32_t gpu);
  bool gone(uint32_t gpu) const { return gone_[gpu].load(); }

  // The kernel log's lines about this node, oldest first, at most the last 1000.
  std::vector<std::string> log() const;
  void Note(const std::string& line);
  // And the lines to come, kFileLines of them, go to a file as they happen.
  void LogTo(UniqueFd file);

  // Of the processes that use the node, the numbers that its driver has for them.
  std::vector<int64_t> Pids();
  // How many compute units the waves of one would fill on a GPU now, rounded up, as its driver counts; -1: there is none.
  int64_t UnitsOf(int64_t pid, uint32_t gpu);

  uint64_t vram_used(uint32_t gpu) const { return vram_used_[gpu].load(); }
  uint64_t blocks() const { return arena_->blocks(); }
  // 100 MHz ticks of one GPU; every GPU has an origin of its own.
  uint64_t Clock(uint32_t gpu) const;
  // Counted in the rests between idle sweeps, of the machine's thread that has rested least: while
  // one has work, or gets no processor from a busy host, no time passes.
  kfd::DeviceTime Time() const;

 private:
  friend class GpuVm;
  friend class Process;
  friend class SimSys;

  Node(const NodeConfig& config, std::unique_ptr<Executor> executor, std::unique_ptr<Arena> arena);
  void RunOut(uint32_t gpu);
  void Run(uint32_t thread, uint32_t threads);
  bool SweepGpu(uint32_t gpu, Rng& rng);

  // With the gate closed.
  void Attach(Process* process) { processes_.push_back(process); }
  void Detach(Process* process);
  void AddQueue(uint32_t gpu, HwQueue* queue) { queues_[gpu].push_back(queue); }
  void DropQueue(uint32_t gpu, HwQueue* queue);
  // Inside a sweep of that GPU or with the gate closed.
  void Reset(uint32_t gpu, uint32_t cause, bool memory_error);
  void Remove(uint32_t gpu);
  void TablesChanged() { ++epoch_; }

  // Takes bytes of a GPU's VRAM; false when there are not so many.
  bool ChargeVram(uint32_t gpu, uint64_t bytes);
  void ReturnVram(uint32_t gpu, uint64_t bytes) { vram_used_[gpu] -= bytes; }

  const NodeConfig config_;
  const VirtualFs fs_;
  ProcessFiles process_files_{*this};
  const std::vector<GpuIdentity> identities_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Arena> arena_;
  Script script_;
  std::mutex mutex_;
  Gate gate_;
  std::atomic<uint64_t> epoch_{1};

  // Behind the gate.
  std::vector<Process*> processes_;
  std::vector<std::vector<HwQueue*>> queues_;  // [gpu]
  // Behind mutex(): SDMA slots in use, [gpu][engine], one bit a queue.
  std::vector<std::vector<uint32_t>> sdma_slots_;
  std::vector<uint32_t> compute_queues_;              // [gpu]
  std::map<FileKey, std::weak_ptr<Buffer>> exports_;  // dma-bufs
  uint32_t next_process_ = 1;
  uint64_t next_file_ = 1;

  std::atomic<uint32_t> resets_{0};
  std::vector<std::atomic<uint64_t>> vram_used_;
  std::vector<std::atomic<bool>> gone_;
  mutable std::mutex log_mutex_;
  std::vector<std::string> log_;
  UniqueFd log_file_;  // none: not wanted
  uint64_t file_lines_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::atomic<int64_t>> rested_;  // [thread]: ns in all, see Time
  std::atomic<int64_t> moved_ns_{0};          // Time when something moved last
  std::vector<std::thread> threads_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_NODE_H_
