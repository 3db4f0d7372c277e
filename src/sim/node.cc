// SPDX-License-Identifier: MIT
#include "sim/node.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "kfd/uapi/kfd_ioctl.h"
#include "sim/process.h"

namespace mainarch::sim {
namespace {

constexpr size_t kLogLines = 1000;
constexpr uint64_t kFileLines = 100'000;  // about 10 MB

uint32_t ThreadCount(const NodeConfig& config, const Executor& executor) {
  if (config.threads != 0) return std::min(config.threads, config.gpus);
  if (!executor.parallel()) return 1;
  return std::min(config.gpus, std::max(1u, std::thread::hardware_concurrency()));
}

// How long a machine thread rests after that many sweeps without work: it polls as firmware does,
// but the host has other things to do.
std::chrono::microseconds Rest(uint32_t idle_sweeps) {
  if (idle_sweeps < 16) return std::chrono::microseconds(0);
  return std::chrono::microseconds(std::min(10u << std::min(idle_sweeps / 16, 6u), 500u));
}

}  // namespace

bool Ledger::empty() const {
  return fds == 0 && client_mappings == 0 && buffers == 0 && vram_bytes == 0 && gpu_mappings == 0 &&
         queues == 0 && events == 0;
}

std::string Ledger::ToString() const {
  return absl::StrCat("fds ", fds, ", client mappings ", client_mappings, ", buffers ", buffers,
                      ", VRAM bytes ", vram_bytes, ", GPU mappings ", gpu_mappings, ", queues ",
                      queues, ", events ", events);
}

StatusOr<std::shared_ptr<Node>> Node::Create(const NodeConfig& config,
                                             std::unique_ptr<Executor> executor) {
  if (config.profile == nullptr) return Error(Code::kInvalidArgument, "node without a chip");
  if (executor == nullptr) return Error(Code::kInvalidArgument, "node without an executor");
  ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, Arena::Create());
  std::shared_ptr<Node> node(new Node(config, std::move(executor), std::move(arena)));
  const uint32_t threads = node->thread_count();
  node->threads_.reserve(threads);
  try {
    for (uint32_t i = 0; i < threads; ++i) {
      node->threads_.emplace_back([raw = node.get(), i, threads] { raw->Run(i, threads); });
    }
  } catch (const std::system_error& error) {
    return ErrnoError(Code::kOutOfHostMemory, error.code().value(), "starting machine thread ",
                      node->threads_.size(), " of ", threads);
  }
  return node;
}

Node::Node(const NodeConfig& config, std::unique_ptr<Executor> executor,
           std::unique_ptr<Arena> arena)
    : config_(config),
      fs_(config),
      identities_(MakeIdentities(config)),
      executor_(std::move(executor)),
      arena_(std::move(arena)),
      queues_(config.gpus),
      sdma_slots_(config.gpus,
                  std::vector<uint32_t>(config.profile->num_sdma + config.profile->num_sdma_xgmi)),
      compute_queues_(config.gpus),
      vram_used_(config.gpus),
      gone_(config.gpus),
      rested_(ThreadCount(config, *executor_)) {}

Node::~Node() { Stop(); }

void Node::Stop() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

int Node::GpuIndex(uint32_t gpu_id) const {
  for (size_t i = 0; i < identities_.size(); ++i) {
    if (identities_[i].gpu_id == gpu_id) return static_cast<int>(i);
  }
  return -1;
}

uint64_t Node::Clock(uint32_t gpu) const {
  return static_cast<uint64_t>(NowNs()) / 10 + uint64_t{gpu} * 1'000'003;
}

void Node::Run(uint32_t thread, uint32_t threads) {
  Rng rng(config_.seed * 1000 + thread);
  uint32_t idle = 0;
  while (!stop_.load()) {
    bool moved = false;
    for (uint32_t gpu = thread; gpu < config_.gpus; gpu += threads) {
      Gate::Sweep sweep(gate_);
      try {
        moved |= SweepGpu(gpu, rng);
      } catch (const std::bad_alloc&) {
        moved = true;
        RunOut(gpu);
      }
    }
    idle = moved ? 0 : idle + 1;
    if (moved) moved_ns_.store(Time().now_ns, std::memory_order_relaxed);
    if (const auto rest = Rest(idle); rest.count() > 0) {
      std::this_thread::sleep_for(rest);
      rested_[thread].fetch_add(std::chrono::nanoseconds(rest).count(), std::memory_order_relaxed);
    } else if (!moved) {
      std::this_thread::yield();
    }
  }
}

std::vector<int64_t> Node::Pids() {
  Gate::Closed closed(gate_);
  std::vector<int64_t> pids;
  for (const Process* process : processes_) pids.push_back(process->pid());
  return pids;
}

int64_t Node::UnitsOf(int64_t pid, uint32_t gpu) {
  Gate::Closed closed(gate_);
  const auto process = std::find_if(processes_.begin(), processes_.end(), [&](const Process* p) { return p->pid() == pid; });
  if (process == processes_.end()) return -1;
  const QueueHost* const host = &(*process)->vm(gpu);
  uint64_t waves = 0;
  for (const HwQueue* queue : queues_[gpu]) waves += queue->setup().host == host ? queue->waves() : 0;
  const uint64_t unit = uint64_t{profile().facts.simds_per_cu} * profile().facts.waves_per_simd;
  return static_cast<int64_t>((waves + unit - 1) / unit);
}

kfd::DeviceTime Node::Time() const {
  kfd::DeviceTime time = {INT64_MAX, moved_ns_.load(std::memory_order_relaxed)};
  for (const std::atomic<int64_t>& rested : rested_) {
    time.now_ns = std::min(time.now_ns, rested.load(std::memory_order_relaxed));
  }
  return time;
}

bool Node::SweepGpu(uint32_t gpu, Rng& rng) {
  const std::vector<HwQueue*>& queues = queues_[gpu];
  if (queues.empty()) return false;
  bool moved = false;
  const uint32_t count = static_cast<uint32_t>(queues.size());
  const uint32_t first = config_.reorder ? rng.Below(count) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (config_.reorder && count > 1 && rng.OneIn(4)) continue;
    moved |= queues[(first + i) % count]->Step();
  }
  return moved;
}

void Node::Detach(Process* process) {
  processes_.erase(std::remove(processes_.begin(), processes_.end(), process), processes_.end());
}

void Node::DropQueue(uint32_t gpu, HwQueue* queue) {
  auto& queues = queues_[gpu];
  queues.erase(std::remove(queues.begin(), queues.end(), queue), queues.end());
}

void Node::Reset(uint32_t gpu, uint32_t cause, bool memory_error) {
  namespace uapi = kfd::uapi;
  for (HwQueue* queue : queues_[gpu]) queue->set_state(HwQueue::State::kReset);
  uapi::HwExceptionData data = {};
  data.reset_type = uapi::kResetTypeWholeGpu;
  data.reset_cause = cause;
  data.memory_lost = 1;
  data.gpu_id = identities_[gpu].gpu_id;
  uapi::MemoryExceptionData memory = {};
  memory.failure.imprecise = 1;
  memory.gpu_id = data.gpu_id;
  memory.error_type = uapi::kMemoryErrorSramEcc;
  const absl::string_view why = cause == uapi::kResetCauseEcc ? "ras" : "hang";
  const uint32_t sequence = ++resets_;
  for (Process* process : processes_) {
    process->ReportSmi(gpu, uapi::kSmiPreReset, absl::StrCat(absl::Hex(sequence), " ", why));
    process->events().RaiseHardware(data);
    if (memory_error) process->events().RaiseMemory(memory);
    process->ReportSmi(gpu, uapi::kSmiPostReset, absl::StrCat(absl::Hex(sequence), " "));
  }
  Note(absl::StrCat("GPU ", gpu, " is reset after ",
                    cause == uapi::kResetCauseEcc ? "an uncorrectable memory error" : "a hang"));
}

void Node::Remove(uint32_t gpu) {
  gone_[gpu] = true;
  for (HwQueue* queue : queues_[gpu]) queue->set_state(HwQueue::State::kReset);
  Note(absl::StrCat("GPU ", gpu, " fell off the bus"));
}

// The host has no memory left to play a GPU with. Its clients are other people's programs: they lose the device, and live.
void Node::RunOut(uint32_t gpu) {
  for (HwQueue* queue : queues_[gpu]) queue->set_state(HwQueue::State::kReset);
  try {
    Reset(gpu, kfd::uapi::kResetCauseHang, false);
    Note(absl::StrCat("GPU ", gpu, ": the host is out of memory"));
  } catch (const std::bad_alloc&) {
    gone_[gpu] = true;  // and nobody could be told
  }
}

void Node::ResetGpu(uint32_t gpu) {
  Gate::Closed closed(gate_);
  Reset(gpu, kfd::uapi::kResetCauseHang, false);
}

void Node::RaiseEcc(uint32_t gpu) {
  Gate::Closed closed(gate_);
  Reset(gpu, kfd::uapi::kResetCauseEcc, true);
}

void Node::RemoveGpu(uint32_t gpu) {
  Gate::Closed closed(gate_);
  Remove(gpu);
}

std::vector<std::string> Node::log() const {
  std::lock_guard lock(log_mutex_);
  return log_;
}

void Node::Note(const std::string& line) {
  std::lock_guard lock(log_mutex_);
  if (log_.size() >= kLogLines) log_.erase(log_.begin());
  log_.push_back(line);
  if (!log_file_.valid() || file_lines_ > kFileLines) return;
  const std::string text =
      ++file_lines_ > kFileLines ? absl::StrCat("no more than ", kFileLines, " lines\n") : line + "\n";
  // One call a line: processes with nodes of their own may share the file.
  [[maybe_unused]] const ssize_t written = write(log_file_.get(), text.data(), text.size());
}

void Node::LogTo(UniqueFd file) {
  std::lock_guard lock(log_mutex_);
  log_file_ = std::move(file);
}

bool Node::ChargeVram(uint32_t gpu, uint64_t bytes) {
  // Only driver calls get here, one at a time.
  const uint64_t used = vram_used_[gpu].load();
  if (bytes > profile().vram_bytes - used) return false;
  vram_used_[gpu] = used + bytes;
  return true;
}

}  // namespace mainarch::sim
