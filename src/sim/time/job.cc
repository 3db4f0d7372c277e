// SPDX-License-Identifier: MIT
#include "sim/time/job.h"

#include <algorithm>

#include "sim/time/gpu.h"

namespace mainarch::sim::timing {
namespace {

constexpr size_t kMostCode = size_t{1} << 20;  // dwords of code behind the entry that waits are noted of

MemoryBytes Difference(const MemoryBytes& a, const MemoryBytes& b) {
  MemoryBytes d = a;
  d.l2_read -= b.l2_read;
  d.l2_hit -= b.l2_hit;
  d.l2_write -= b.l2_write;
  d.mall_hit -= b.mall_hit;
  d.hbm_read -= b.hbm_read;
  d.hbm_write -= b.hbm_write;
  d.peer -= b.peer;
  d.host -= b.host;
  return d;
}

}  // namespace

void Flight::Fold() {
  for (size_t i = 0; i < kSteps / 2; ++i) {
    // Bytes that are in flight from the first half's end on are so for all of the second.
    inside_[i] = inside_[2 * i] + inside_[2 * i + 1] + change_[2 * i] * static_cast<double>(step_);
    change_[i] = change_[2 * i] + change_[2 * i + 1];
  }
  std::fill(change_.begin() + kSteps / 2, change_.end(), 0.0);
  std::fill(inside_.begin() + kSteps / 2, inside_.end(), 0.0);
  step_ *= 2;
}

size_t Flight::StepOf(Clocks at) {
  while ((at - start_) / step_ >= static_cast<Clocks>(kSteps)) Fold();
  return static_cast<size_t>((at - start_) / step_);
}

void Flight::Add(Clocks from, Clocks to, double bytes) {
  from = std::max(from, start_);
  to = std::max(to, from);
  byte_clocks_ += bytes * static_cast<double>(to - from);
  const size_t last = StepOf(to), first = StepOf(from);  // the later one may fold
  const auto rest = [&](size_t step, Clocks at) {
    return static_cast<double>(start_ + static_cast<Clocks>(step + 1) * step_ - at);
  };
  // From `from` on in flight, from `to` on no more.
  inside_[first] += bytes * rest(first, from);
  change_[first] += bytes;
  inside_[last] -= bytes * rest(last, to);
  change_[last] -= bytes;
}

std::vector<double> Flight::Means(Clocks end, Clocks* step) const {
  *step = step_;
  const auto steps = static_cast<size_t>(std::max<Clocks>((end - start_ + step_ - 1) / step_, 0));
  std::vector<double> out(std::min(steps, kSteps));
  double flying = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::max(0.0, flying + inside_[i] / static_cast<double>(step_));
    flying += change_[i];
  }
  return out;
}

Job::Job(Gpu* gpu, isa::Grid* grid) : gpu_(*gpu), grid_(*grid), ticket_(grid->launch().ticket) {
  const isa::KernelLaunch& launch = grid->launch();
  const isa::ChipLimits& limits = grid->limits();
  registers_ = ((launch.rsrc1 & 63) + 1) * 8;
  lds_ = (launch.lds_bytes + limits.lds_granule - 1) / limits.lds_granule * limits.lds_granule;
  waves_a_group_ = grid->waves_per_group();
  groups_ = grid->workgroups();
  used_.assign(size_t{limits.xccs} * limits.cus_per_xcc, false);
  // Workgroup n runs on XCD (n + first) mod XCDs.
  next_.resize(limits.xccs);
  for (uint32_t x = 0; x < limits.xccs; ++x) {
    next_[x] = (x + limits.xccs - launch.first_xcc % limits.xccs) % limits.xccs;
  }
  name_ = grid->Name();
  grid->program().KeepMoreSpares(std::min<uint64_t>(grid->resident_limit(), 4096));
}

Job::~Job() { gpu_.Remove(this); }

isa::GridResult Job::Run(uint64_t budget) { return gpu_.Run(this, budget); }

void Job::DropTranslations() { gpu_.DropTranslations(); }

void Job::Times(uint64_t* start, uint64_t* end) const {
  *start = static_cast<uint64_t>(gpu_.params_.us(static_cast<double>(packet_)) * 100);
  *end = static_cast<uint64_t>(gpu_.params_.us(static_cast<double>(end_)) * 100);
}

void Job::WaitedAt(uint64_t pc, const Pending& p, Clocks clocks) {
  // So much of the wait as queues made it longer than it had to be is theirs.
  const Clocks queued = std::min<Clocks>(clocks, p.queued);
  Spend(p.why, queued);
  Spend(Limit::kLatency, clocks - queued);
  if (!gpu_.options_.waits) return;
  const uint64_t at = (pc - grid_.launch().entry) / 4;
  if (at >= kMostCode) return;
  if (at >= waits_.size()) waits_.resize(at + 64);
  Wait& wait = waits_[at];
  ++wait.times;
  wait.clocks += clocks;
  wait.by[static_cast<size_t>(p.why)] += queued;
  wait.by[static_cast<size_t>(Limit::kLatency)] += clocks - queued;
}

void Job::Fill(LaunchReport* r) const {
  const Params& p = gpu_.params_;
  const isa::ChipLimits& limits = gpu_.limits_;
  const auto us = [&p](Clocks at) { return p.us(static_cast<double>(at)); };
  r->gpu = ticket_.gpu;
  r->process = ticket_.process;
  r->queue = ticket_.queue;
  r->dispatch_id = grid_.launch().dispatch_id;
  r->kernel_object = grid_.launch().descriptor;
  r->entry = grid_.launch().entry;
  r->kernel = name_;
  r->clock_mhz = p.clock_mhz;
  r->start_us = us(packet_);
  r->first_wave_us = us(first_wave_);
  r->last_wave_us = us(last_wave_);
  r->end_us = us(end_);
  r->workgroups = groups_;
  r->waves = groups_ * waves_a_group_;
  r->instructions = grid_.instructions();
  r->waves_per_group = waves_a_group_;
  const uint64_t units = uint64_t{limits.xccs} * limits.cus_per_xcc;
  r->groups_per_cu = static_cast<uint32_t>(grid_.resident_limit() / units);
  const uint32_t by_slots = limits.waves_per_simd * kSimds / waves_a_group_;
  const uint32_t by_lds = lds_ == 0 ? by_slots : limits.lds_bytes / lds_;
  r->resident = groups_ <= r->groups_per_cu * units ? Resident::kGrid
                : by_lds == r->groups_per_cu          ? Resident::kLds
                : by_slots == r->groups_per_cu        ? Resident::kSlots
                                                      : Resident::kRegisters;
  r->cus = static_cast<uint32_t>(units);
  r->cus_used = static_cast<uint32_t>(units_used_);
  const Clocks life = std::max<Clocks>(last_wave_ - first_wave_, 1);
  r->mean_waves_per_simd =
      static_cast<double>(wave_clocks_) / static_cast<double>(life) / static_cast<double>(units * kSimds);

  Clocks sum = 0;
  for (Clocks c : spent) sum += c;
  const double whole = std::max<double>(static_cast<double>(end_ - packet_), 1);
  for (size_t i = 0; i < kLimits && sum > 0; ++i) {
    r->limited_by[i] = static_cast<double>(spent[i]) / static_cast<double>(sum) * static_cast<double>(life) / whole;
  }
  r->limited_by[static_cast<size_t>(Limit::kLaunch)] +=
      sum > 0 ? (whole - static_cast<double>(life)) / whole : 1;

  r->bytes = Difference(gpu_.memory_.bytes(), before_);
  r->bytes.asked = own_.asked;
  r->bytes.l1_hit = own_.l1_hit;
  r->bytes.lds = own_.lds;
  r->bytes.scalar = own_.scalar;

  Clocks step = 0;
  r->in_flight = flight_.Means(last_wave_, &step);
  r->in_flight_step_us = us(step);
  r->mean_in_flight = flight_.byte_clocks() / static_cast<double>(life);

  for (size_t i = 0; i < waits_.size(); ++i) {
    const Wait& w = waits_[i];
    if (w.times == 0) continue;
    const auto most = std::max_element(w.by.begin(), w.by.end()) - w.by.begin();
    r->waits.push_back({grid_.launch().entry + 4 * i, w.times, us(w.clocks), static_cast<Limit>(most)});
  }
  std::stable_sort(r->waits.begin(), r->waits.end(),
                   [](const WaitAt& a, const WaitAt& b) { return a.wave_us > b.wave_us; });
  if (r->waits.size() > gpu_.options_.most_waits) r->waits.resize(gpu_.options_.most_waits);
  r->spans = spans_;
}

}  // namespace mainarch::sim::timing
