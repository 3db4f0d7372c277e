// SPDX-License-Identifier: MIT
//
// Steps of few rows by the resident kernel: the launches of each class of rows as lists, the same
// arguments as the packets have, but for workgroups that are more than the kernel's own.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "backend/amdgpu/context.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/process.h"
#include "kfd/sys.h"

namespace mainarch::amdgpu {
namespace {

constexpr uint64_t kKernargAlign = 64;
// A class's lists: without races for drawn tokens, and with.
constexpr size_t kWorks = 2;
constexpr int64_t kSpinNs = 50'000;
constexpr int64_t kNapNs = 20'000, kMostNapNs = 1'000'000;

uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

ChoiceWork WorkOf(size_t index) {
  ChoiceWork work;
  work.races = index == 1;
  return work;
}

// Behind the op's own arguments: kernels::Kernarg.
uint32_t& WorkersOf(std::vector<uint8_t>& kernarg) {
  return *reinterpret_cast<uint32_t*>(kernarg.data() + kernarg.size() - 2 * sizeof(uint32_t));
}

}  // namespace

Status AmdGpuContext::MakeResident() {
  const backend::ResidentMode mode = shape_.options.resident;
  if (mode == backend::ResidentMode::kOff) return OkStatus();
  StatusOr<std::unique_ptr<Resident>> made = StartResident();
  if (made.ok()) {
    resident_ = *std::move(made);
    memory_bytes_ += resident_->memory_bytes();
    return OkStatus();
  }
  if (mode == backend::ResidentMode::kOn || CodeOf(made.status()) != Code::kUnsupported) {
    return made.status();
  }
  resident_refusal_ = std::string(made.status().message());
  return OkStatus();
}

StatusOr<std::unique_ptr<Resident>> AmdGpuContext::StartResident() {
  // As many workgroups as some launch wants.
  uint32_t workers = 1;
  size_t kind = 0;
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    for (const uint32_t rows : row_classes_) {
      if (rows > kOneRoundRows) break;
      for (const Launch& launch : Lower(*model_, shape_, ranks_[static_cast<size_t>(rank)].memory, rank, rows)) {
        ASSIGN_OR_RETURN(const isa::KernelRef ref,
                         isa::FindKernel(model_->gpus().at(rank).device->chip().name, launch.kernel));
        ASSIGN_OR_RETURN(const size_t wants, ResidentKindFor(*ref.kernel));
        kind = std::max(kind, wants);
        workers = std::max(workers, launch.workers);
      }
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Resident> resident, Resident::Create(model_->gpus(), kind, workers, shape_.options.resident_times));
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    ranks_[static_cast<size_t>(rank)].memory.recall = resident->recall();
    RETURN_IF_ERROR(FillLists(*resident, rank));
  }
  return resident;
}

Status AmdGpuContext::FillLists(Resident& resident, int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  gpu::Device& device = *model_->gpus().at(rank).device;
  std::vector<std::vector<Launch>> launches;
  for (const uint32_t rows : row_classes_) {
    if (rows > kOneRoundRows) break;
    launches.push_back(Lower(*model_, shape_, own.memory, rank, rows));
  }
  launches.push_back({LowerTables(shape_, own.memory)});
  uint64_t bytes = 0;
  for (std::vector<Launch>& list : launches) {
    for (Launch& launch : list) {
      launch.workers = std::min(launch.workers, resident.workers());
      WorkersOf(launch.args) = launch.workers;
      bytes += RoundUp(launch.args.size(), kKernargAlign);
    }
  }
  ASSIGN_OR_RETURN(own.resident_kernargs, AllocateWrittenOnce(device, bytes, "resident kernel arguments"));
  memory_bytes_ += own.resident_kernargs.size();
  uint64_t at = 0;
  std::vector<ResidentList> lists;
  for (const std::vector<Launch>& list : launches) {
    std::vector<kernels::ResidentOp> ops;
    for (const Launch& launch : list) {
      std::memcpy(own.resident_kernargs.host() + at, launch.args.data(), launch.args.size());
      ASSIGN_OR_RETURN(const kernels::ResidentOp op,
                       resident.OpOf(rank, launch, own.resident_kernargs.va() + at));
      ops.push_back(op);
      at += RoundUp(launch.args.size(), kKernargAlign);
    }
    if (&list == &launches.back()) {
      lists.push_back({std::move(ops), std::vector<bool>(list.size())});
      break;
    }
    for (size_t work = 0; work < kWorks; ++work) {
      ResidentList taken;
      for (size_t i = 0; i < list.size(); ++i) {
        if (!TakesPart(list[i].when, WorkOf(work))) continue;
        taken.ops.push_back(ops[i]);
        taken.together.push_back(list[i].together);
      }
      lists.push_back(std::move(taken));
    }
  }
  return resident.SetLists(rank, std::move(lists));
}

size_t AmdGpuContext::ListOf(const Form& form) const {
  return form.row_class * kWorks + form.work.races;
}

AmdGpuContext::Form AmdGpuContext::FormOf(size_t list) const {
  Form form;
  form.row_class = list / kWorks;
  form.work = WorkOf(list % kWorks);
  return form;
}

size_t AmdGpuContext::TablesList() const {
  size_t classes = 0;
  while (classes < row_classes_.size() && row_classes_[classes] <= kOneRoundRows) ++classes;
  return classes * kWorks;
}

bool AmdGpuContext::RunsResident(size_t rows, size_t end) const {
  return resident_ != nullptr && rows <= kOneRoundRows && end == program_.ops.size();
}

// Behind rounds none but the kernel's steps can come, with room or without.
bool AmdGpuContext::GoesResident(size_t rows, size_t end) {
  if (!RunsResident(rows, end)) return false;
  if (InFlight() > 0 && FlightOf(sent_).rounds > 1) return true;
  if (resident_->HasRoom()) return true;
  resident_no_room_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

Status AmdGpuContext::SubmitResident(size_t list, const Resident::Work& work, Awaited* awaited) {
  const uint32_t before = resident_->launches();
  awaited->resident = true;
  awaited->points = {};
  for (int32_t r = 0; r < program_.ranks; ++r) RETURN_IF_ERROR(AwaitSlot(r));
  const bool has_room = resident_->HasRoom();
  // What is posted already, so that it has been recalled for others and not for this.
  if (!has_room) RETURN_IF_ERROR(RunPosted());
  for (int32_t r = 0; r < program_.ranks; ++r) {
    ASSIGN_OR_RETURN(awaited->points[static_cast<size_t>(r)],
                     has_room ? resident_->Post(r, list, work) : resident_->PostAlone(r, list, work));
  }
  if (!has_room) {
    // Rounds would keep others from the GPUs.
    resident_->Recall();
    return RunPosted();
  }
  resident_->Ring();
  awaited->launches = resident_->launches() - before;
  return OkStatus();
}

// A command is written over another when that has ended.
Status AmdGpuContext::AwaitSlot(int32_t rank) {
  Gpus& gpus = model_->gpus();
  for (const gpu::Deadline deadline = Soon(); resident_->IsFull(rank);) {
    RETURN_IF_ERROR(gpus.Health());
    RETURN_IF_ERROR(ResumeResident(Mutex::kHeld));
    gpu::Device& device = *gpus.at(rank).device;
    if (deadline.GivesUp(device.process().sys(), NowNs())) {
      return WithDevice(Error(Code::kTimedOut, device.name(), ": the resident kernel takes no command"), device.index());
    }
    std::this_thread::yield();
  }
  return OkStatus();
}

void AmdGpuContext::CountResident() {
  (counted_resident_ ? resident_steps_ : resident_no_room_).fetch_add(1, std::memory_order_relaxed);
  resident_launches_.store(resident_->launches(), std::memory_order_relaxed);
  resident_late_.store(resident_->late(), std::memory_order_relaxed);
  resident_pauses_.store(resident_->pauses(), std::memory_order_relaxed);
  resident_commands_.fetch_add(counted_resident_ && FlightOf(seen_).polled == 0, std::memory_order_relaxed);
}

backend::ResidentCounts AmdGpuContext::resident_counts() const {
  return {resident_steps_.load(std::memory_order_relaxed), resident_launches_.load(std::memory_order_relaxed),
          resident_late_.load(std::memory_order_relaxed), resident_commands_.load(std::memory_order_relaxed),
          resident_pauses_.load(std::memory_order_relaxed), resident_no_room_.load(std::memory_order_relaxed)};
}

int32_t AmdGpuContext::FurthestBehind() const {
  int32_t slowest = 0;
  uint64_t least = UINT64_MAX;
  for (int32_t r = 0; r < program_.ranks; ++r) {
    const StatusOr<uint64_t> met = resident_->Meetings(r);
    if (!met.ok()) return r;  // not even its copy engine answers
    if (*met >= least) continue;
    least = *met;
    slowest = r;
  }
  return slowest;
}

bool AmdGpuContext::ReachedPoint(int32_t rank, const Awaited& awaited) const {
  const uint64_t point = awaited.points[static_cast<size_t>(rank)];
  return awaited.resident ? resident_->Look(rank, point, awaited.round) != Resident::Round::kRuns
                          : model_->gpus().at(rank).queue->Reached(point);
}

// A virtual node computes on cores of this machine, to which a look at it, some thousand times in a step, is work taken away.
std::chrono::nanoseconds AmdGpuContext::NapOf(int32_t rank, int64_t waited) const {
  const bool is_virtual = model_->gpus().at(rank).device->process().sys().Time().now_ns >= 0;
  return std::chrono::nanoseconds(is_virtual ? std::clamp(waited / 8, kNapNs, kMostNapNs) : kNapNs);
}

// TimedOut when it is not there at `until`, or will not be before the kernel is resumed.
Status AmdGpuContext::WaitForPoint(int32_t rank, const Awaited& awaited, int64_t until) const {
  if (!awaited.resident) {
    return model_->gpus().at(rank).queue->Wait(awaited.points[static_cast<size_t>(rank)], {until});
  }
  const int64_t began = NowNs();
  for (int64_t now = began; !ReachedPoint(rank, awaited); now = NowNs()) {
    if (now >= until || resident_->Paused()) return Error(Code::kTimedOut, "a command of the resident kernel");
    if (now - began < kSpinNs) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(NapOf(rank, now - began));
    }
  }
  return OkStatus();
}

// Other contexts' packets are behind it, and those that were submitted since.
Status AmdGpuContext::ResumeResident(Mutex mutex) {
  if (resident_ == nullptr || runs_posted_ || !resident_->Paused()) return OkStatus();
  std::unique_lock<std::mutex> lock(model_->gpus().mutex(), std::defer_lock);
  if (mutex == Mutex::kTake) lock.lock();
  RETURN_IF_ERROR(model_->gpus().Health());
  return resident_->HasRoom() ? resident_->Resume() : RunPosted();
}

// Packets of this context do not overtake its steps: these are over before a kernel can be asked to pause for them.
Status AmdGpuContext::AwaitOwnSteps() {
  if (InFlight() == 0 || !FlightOf(sent_).awaited.resident) return OkStatus();
  return Wait(FlightOf(sent_).awaited, -1, Mutex::kHeld).status();
}

StatusOr<std::vector<backend::OpTimes>> AmdGpuContext::ResidentTimes(int32_t rank) const {
  if (!counted_resident_) return Error(Code::kUnsupported, "the last step was no resident kernel's");
  return resident_->Times(rank, ListOf(counted_));
}

}  // namespace mainarch::amdgpu
