// SPDX-License-Identifier: MIT
#include "sim/time/gpu.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace mainarch::sim::timing {
namespace {

constexpr uint32_t kRegistersOfSimd = 512;
// Calls that a GPU whose waves all wait stands still for, so that others may catch up.
constexpr uint32_t kPatience = 20'000;
// That a GPU may run ahead of another: less than the way from one to the other.
constexpr double kAheadNs = 200;

Clocks Round(double x) { return static_cast<Clocks>(x + 0.5); }

}  // namespace

UnitQueue::UnitQueue(size_t units)
    : leaves_(std::bit_ceil(std::max<size_t>(units, 2))),
      keys_(leaves_, ComputeUnit::kEmpty),
      tree_(2 * leaves_) {
  for (size_t i = 0; i < leaves_; ++i) tree_[leaves_ + i] = static_cast<uint32_t>(i);
  for (size_t i = leaves_ - 1; i > 0; --i) tree_[i] = tree_[2 * i];
}

void UnitQueue::Set(size_t unit, uint64_t key) {
  keys_[unit] = key;
  for (size_t i = (leaves_ + unit) / 2; i > 0; i /= 2) {
    const uint32_t a = tree_[2 * i], b = tree_[2 * i + 1];
    tree_[i] = keys_[b] < keys_[a] ? b : a;
  }
}

uint64_t UnitQueue::second_key() const {
  uint64_t least = ComputeUnit::kEmpty;
  for (size_t i = leaves_ + tree_[1]; i > 1; i /= 2) least = std::min(least, keys_[tree_[i ^ 1]]);
  return least;
}

Gpu::Gpu(Clock* clock, uint32_t index, isa::Isa isa, const Params& params,
         const ClockOptions& options, const isa::ChipLimits& limits)
    : clock_(*clock),
      index_(index),
      isa_(isa),
      params_(params),
      options_(options),
      limits_(limits),
      ops_(std::make_shared<OpTimes>(isa, params)),
      memory_(params_, limits.xccs),
      units_(size_t{limits.xccs} * limits.cus_per_xcc),
      shared_((units_.size() + 1) / 2),
      xccs_(limits.xccs),
      queue_(units_.size()),
      issue_(std::max<Clocks>(Round(params.issue), 1)),
      l1_latency_(Round(params.l1_latency)),
      smem_hit_(Round(params.smem_hit)),
      lds_latency_(Round(params.lds_latency)),
      barrier_(Round(params.barrier)),
      lds_bytes_(std::max(static_cast<int>(params.lds_bytes), 4)) {
  for (size_t i = 0; i < units_.size(); ++i) {
    ComputeUnit& unit = units_[i];
    unit.xcc = static_cast<uint32_t>(i / limits.cus_per_xcc);
    unit.number = static_cast<uint32_t>(i % limits.cus_per_xcc);
    unit.slots.resize(kWaves);
    unit.l1 = Tags(static_cast<uint64_t>(params.l1_kb * 8), 16, true);
    unit.misses.assign(std::max<size_t>(static_cast<size_t>(params.misses), 1), 0);
  }
  for (SharedCaches& s : shared_) {
    s.scalar = Tags(static_cast<uint64_t>(params.smem_kb * 16), 4, true);
    s.code = Tags(1024, 8, true);  // 64 KiB (kfd.md)
  }
}

Clocks Gpu::standing() const {
  if (jobs_.empty() || queue_.first_key() == ComputeUnit::kEmpty) return kNever;
  return static_cast<Clocks>(queue_.first_key() >> 5);
}

void Gpu::Flush() {
  memory_.Clear();
  for (ComputeUnit& unit : units_) unit.l1.Clear();
  for (SharedCaches& s : shared_) {
    s.scalar.Clear();
    s.code.Clear();
  }
}

// A packet: fetched and read, caches made new, workgroups dealt out as far as there is room.
void Gpu::Add(Job* job) {
  const isa::LaunchTicket& ticket = job->ticket_;
  const bool first = !queue_free_.contains(ticket.queue);
  Clocks& free = queue_free_[ticket.queue];
  Clocks& ahead = queue_ahead_[ticket.queue];
  if (first) free = ahead = now_ + Round(params_.clocks(params_.handoff_ns));
  job->packet_ = ticket.barrier ? std::max(free, ahead) : ahead;
  double ns = params_.packet_ns;
  if (ticket.acquire > 0) ns += params_.acquire_ns;
  if (ticket.acquire > 1) ns += params_.system_ns;
  ahead = job->packet_ + Round(params_.clocks(ns));
  job->dispatch_ = ahead + Round(params_.clocks(params_.first_wave_ns));
  if (ticket.acquire > 0) {
    for (ComputeUnit& unit : units_) unit.l1.Clear();
    for (SharedCaches& s : shared_) s.scalar.Clear();
  }
  job->before_ = memory_.bytes();
  job->flight_.Start(job->dispatch_);
  jobs_.push_back(job);
  for (uint32_t x = 0; x < xccs_.size(); ++x) Place(x, job->dispatch_);
}

// Cancelled or complete: nothing of it stays on the chip.
void Gpu::Remove(Job* job) {
  clock_.Forget(job);
  std::erase(jobs_, job);
  for (size_t u = 0; u < units_.size(); ++u) {
    ComputeUnit& unit = units_[u];
    if (unit.waves == 0) continue;
    bool changed = false;
    for (int s = 0; s < kWaves; ++s) {
      WaveSlot& slot = unit.slots[static_cast<size_t>(s)];
      if (slot.group == nullptr || slot.group->job != job) continue;
      Group* group = slot.group;
      Simd& simd = unit.simd[static_cast<size_t>(slot.simd)];
      --simd.waves;
      simd.registers -= static_cast<int>(group->registers);
      --unit.waves;
      unit.free_slots |= 1u << s;
      unit.key[static_cast<size_t>(s)] = ComputeUnit::kEmpty;
      slot.group = nullptr;
      changed = true;
      if (--group->live > 0) continue;
      unit.lds_used -= group->lds;
      group->work.reset();
      spare_groups_.push_back(group);
    }
    if (changed) queue_.Set(u, unit.Earliest());
  }
  if (jobs_.empty()) return;
  for (uint32_t x = 0; x < xccs_.size(); ++x) Place(x, now_);
}

void Gpu::DropTranslations() {
  for (ComputeUnit& unit : units_) {
    if (unit.waves == 0) continue;
    for (WaveSlot& slot : unit.slots) {
      if (slot.group == nullptr) continue;
      for (isa::View& view : slot.wave->views) view = isa::View();
    }
  }
}

bool Gpu::Fits(const ComputeUnit& unit, const Job& job) const {
  if (unit.lds_used + job.lds_ > limits_.lds_bytes) return false;
  if (static_cast<uint32_t>(unit.waves) + job.waves_a_group_ > limits_.waves_per_simd * kSimds) return false;
  uint32_t places = 0;
  for (const Simd& simd : unit.simd) {
    const uint32_t by_registers = (kRegistersOfSimd - static_cast<uint32_t>(simd.registers)) / job.registers_;
    places += std::min(by_registers, limits_.waves_per_simd - static_cast<uint32_t>(simd.waves));
  }
  return places >= job.waves_a_group_;
}

// Starts what an XCD has room for, in order.
void Gpu::Place(uint32_t number, Clocks at) {
  Xcc& xcc = xccs_[number];
  const size_t units = limits_.cus_per_xcc, base = number * units;
  for (Job* job : jobs_) {
    while (job->next_[number] < job->groups_ && job->result_.state != isa::GridState::kStopped) {
      ComputeUnit* best = nullptr;
      for (size_t i = 0; i < units; ++i) {
        ComputeUnit& unit = units_[base + (xcc.next_unit + i) % units];
        if (best != nullptr && unit.waves >= best->waves) continue;
        if (Fits(unit, *job)) best = &unit;
        if (best == &unit && unit.waves == 0) break;
      }
      if (best == nullptr) return;
      xcc.next_unit = (best->number + 1) % units;
      const Clocks starts = std::max({at, xcc.next_start, job->dispatch_});
      const double gap = std::max(1 / params_.groups_per_us, job->waves_a_group_ / params_.waves_per_us);
      xcc.next_start = starts + std::max<Clocks>(Round(gap * params_.clock_mhz), 1);
      StartGroup(job, best, job->next_[number], starts);
      job->next_[number] += xccs_.size();
    }
  }
}

void Gpu::StartGroup(Job* job, ComputeUnit* unit, size_t number, Clocks at) {
  if (spare_groups_.empty()) {
    groups_.push_back(std::make_unique<Group>());
    spare_groups_.push_back(groups_.back().get());
  }
  Group* group = spare_groups_.back();
  spare_groups_.pop_back();
  const size_t index = static_cast<size_t>(unit - units_.data());
  *group = {};
  group->work = job->grid_.StartAt(number);
  group->job = job;
  group->unit = static_cast<uint32_t>(index);
  group->lds = job->lds_;
  group->registers = job->registers_;
  group->started = at;
  unit->lds_used += job->lds_;
  job->first_wave_ = std::min(job->first_wave_, at);
  if (!job->used_[index]) {
    job->used_[index] = true;
    ++job->units_used_;
  }
  std::vector<isa::Wave>& waves = group->work->waves;
  // All take their places, so that those whose lanes are all outside of the grid end like others.
  group->live = static_cast<uint32_t>(waves.size());
  std::array<int, kWaves> ended;
  int ended_count = 0;
  for (isa::Wave& wave : waves) {
    size_t best = kSimds;
    for (size_t s = 0; s < kSimds; ++s) {
      const Simd& simd = unit->simd[s];
      if (static_cast<uint32_t>(simd.registers) + group->registers > kRegistersOfSimd) continue;
      if (static_cast<uint32_t>(simd.waves) >= limits_.waves_per_simd) continue;
      if (best == kSimds || simd.waves < unit->simd[best].waves) best = s;
    }
    const int place = std::countr_zero(unit->free_slots);
    unit->free_slots &= unit->free_slots - 1;
    ++unit->simd[best].waves;
    unit->simd[best].registers += static_cast<int>(group->registers);
    ++unit->waves;
    group->slots |= 1u << place;
    WaveSlot& slot = unit->slots[static_cast<size_t>(place)];
    wave.hw_id = isa::HwId(wave.index, unit->number);
    slot = WaveSlot();
    slot.wave = &wave;
    slot.group = group;
    slot.simd = static_cast<int>(best);
    slot.started = at;
    ++job->live_waves_;
    if (wave.state == isa::WaveState::kRunning) slot.op = job->grid_.First(wave, &slot.chunk);
    if (slot.op != nullptr) {
      unit->Set(place, at);
    } else if (wave.state == isa::WaveState::kDone) {
      ended[static_cast<size_t>(ended_count++)] = place;
    } else {
      Stop(job, wave);
    }
  }
  for (int i = 0; i < ended_count; ++i) EndWave(unit, ended[static_cast<size_t>(i)], at);
  queue_.Set(index, unit->Earliest());
}

void Gpu::EndWave(ComputeUnit* unit, int number, Clocks at) {
  WaveSlot& slot = unit->slots[static_cast<size_t>(number)];
  Group* group = slot.group;
  Job* job = group->job;
  Busy(&slot);
  Simd& simd = unit->simd[static_cast<size_t>(slot.simd)];
  --simd.waves;
  simd.registers -= static_cast<int>(group->registers);
  --unit->waves;
  unit->free_slots |= 1u << number;
  unit->key[static_cast<size_t>(number)] = ComputeUnit::kEmpty;
  job->wave_clocks_ += at - slot.started;
  job->last_wave_ = std::max(job->last_wave_, at);
  --job->live_waves_;
  slot.group = nullptr;
  group->slots &= ~(1u << number);
  // A wave that never ran was not among the live ones of its workgroup.
  if (slot.op != nullptr || slot.chunk != nullptr) --group->work->live;
  if (--group->live > 0) {
    PassBarrier(unit, group, at);
    return;
  }
  EndGroup(unit, group, at);
}

void Gpu::EndGroup(ComputeUnit* unit, Group* group, Clocks at) {
  Job* job = group->job;
  unit->lds_used -= group->lds;
  if (options_.spans) {
    job->spans_.push_back({group->work->index, unit->xcc, unit->number, params_.us(static_cast<double>(group->started)),
                           params_.us(static_cast<double>(at))});
  }
  job->grid_.End(std::move(group->work));
  spare_groups_.push_back(group);
  if (++job->groups_ended_ == job->groups_) {
    Complete(job);
  }
  Place(unit->xcc, at);
}

void Gpu::PassBarrier(ComputeUnit* unit, Group* group, Clocks at) {
  if (!group->job->grid_.PassBarrier(group->work.get())) return;
  for (uint32_t slots = group->slots; slots != 0; slots &= slots - 1) {
    const int s = std::countr_zero(slots);
    WaveSlot& slot = unit->slots[static_cast<size_t>(s)];
    if (unit->key[static_cast<size_t>(s)] != ComputeUnit::kEmpty) continue;
    Busy(&slot);
    unit->Set(s, at + barrier_);
    group->job->Spend(Limit::kBarrier, at + barrier_ - slot.at_barrier);
  }
}

void Gpu::Stop(Job* job, const isa::Wave& wave) {
  if (job->result_.state == isa::GridState::kStopped) return;
  job->result_ = {isa::GridState::kStopped, wave.stop, wave.fault, job->grid_.Report(wave, job->grid_.memory())};
}

// The last wave has ended: stores drain, caches are written back, completion is told.
void Gpu::Complete(Job* job) {
  const isa::LaunchTicket& ticket = job->ticket_;
  job->last_wave_ = std::max(job->last_wave_, job->drained_);
  clock_.LandAll(job);
  Clocks end = job->last_wave_ + Round(params_.clocks(params_.complete_ns));
  if (ticket.release > 0) {
    Clocks written = end;
    for (uint32_t x = 0; x < xccs_.size(); ++x) written = std::max(written, memory_.WriteBack(x, end));
    end = written + Round(params_.clocks(params_.release_ns + (ticket.release > 1 ? params_.system_ns : 0)));
  }
  job->end_ = end;
  job->ended_ = true;
  job->result_.state = isa::GridState::kDone;
  Clocks& free = queue_free_[ticket.queue];
  free = std::max(free, end);
  LaunchReport report;
  job->Fill(&report);
  job->result_.detail =
      absl::StrCat("modelled: ", report.kernel.empty() ? "a kernel" : report.kernel, ", ", report.workgroups, " workgroups: ",
                   report.us(), " us, of which ", report.kernel_us(), " from first to last wave; limited by ",
                   NameOf(report.limit()));
  clock_.Add(std::move(report));
}

isa::GridResult Gpu::Run(Job* job, uint64_t budget) {
  if (job->ended_ || job->result_.state == isa::GridState::kStopped) {
    if (job->ended_) std::erase(jobs_, job);
    return job->result_;
  }
  for (Job* one : jobs_) one->grid_.program().NotesBy(ops_);
  job->result_.detail.clear();
  job->result_.state = isa::GridState::kRunning;
  uint64_t used = 0;
  const Clocks ahead = Round(params_.clocks(kAheadNs));
  while (used < budget && !job->ended_ && job->result_.state != isa::GridState::kStopped) {
    const Clocks stands = standing();
    if (stands == kNever) break;  // all at barriers that nobody comes to
    bool alone = true;
    const Clocks others = clock_.Others(*this, &alone);
    if (stands > others + ahead) return job->result_;  // they have to catch up
    const bool idle = job->live_waves_ > 0 && job->idle_waves_ == job->live_waves_;
    if (idle && !alone && others == kNever && waits_without_ < kPatience) {
      // What the waves wait for comes from a GPU that has not been given its launch yet: until it
      // has, no time passes.
      ++waits_without_;
      job->result_.state = isa::GridState::kWaiting;
      return job->result_;
    }
    if (!idle) waits_without_ = 0;
    if (!landings_.empty()) Land(stands, nullptr);
    used += RunUnit(queue_.first());
  }
  if (job->ended_) {
    std::erase(jobs_, job);
    return job->result_;
  }
  if (job->result_.state == isa::GridState::kStopped) return job->result_;
  if (standing() == kNever || (job->live_waves_ > 0 && job->idle_waves_ == job->live_waves_)) Waiting(job);
  return job->result_;
}

// All waves of the job look and sleep.
void Gpu::Waiting(Job* job) {
  job->result_.state = isa::GridState::kWaiting;
  uint64_t left = 0, resident = 0;
  for (uint32_t x = 0; x < xccs_.size(); ++x) {
    if (job->next_[x] < job->groups_) left += (job->groups_ - job->next_[x] + xccs_.size() - 1) / xccs_.size();
  }
  if (left == 0) return;
  resident = job->groups_ - left - job->groups_ended_;
  job->result_.detail = absl::StrCat("all ", resident, " resident workgroups wait; ", left, " of ", job->groups_,
                                     " have no room on the chip (limit ", job->grid_.resident_limit(),
                                     "): a grid barrier over them hangs on silicon too");
  if (job->grid_.launch().observer != nullptr) {
    // Under checkers this is a finding, not a wait for somebody's deadline.
    job->result_.state = isa::GridState::kStopped;
    job->result_.reason = isa::StopReason::kCheck;
    job->result_.detail = absl::StrCat("checker: ", job->result_.detail);
  }
}

void Gpu::Copy(uint32_t queue, uint32_t from, uint32_t to, uint64_t bytes, CopyReport* report) {
  Clocks& free = copy_free_[queue];
  const Clocks start = std::max(free, now_);
  double gbs = params_.sdma_gbs;
  const bool host = from == Clock::kHost || to == Clock::kHost;
  if (host) {
    gbs = std::min(gbs, params_.pcie_gbs);
  } else if (from != to) {
    gbs = std::min(gbs, params_.xgmi_gbs);
  }
  const double first = start > free ? params_.sdma_fixed_ns : 0;
  const double ns = params_.sdma_packet_ns + first + static_cast<double>(bytes) / gbs;
  free = start + Round(params_.clocks(ns));
  *report = {index_, queue, bytes, params_.us(static_cast<double>(start)), params_.us(static_cast<double>(free))};
}

}  // namespace mainarch::sim::timing
