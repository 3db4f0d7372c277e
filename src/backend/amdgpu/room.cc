// SPDX-License-Identifier: MIT
#include "backend/amdgpu/room.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gpu/queue_sizes.h"
#include "kfd/occupancy.h"

namespace mainarch::amdgpu {
namespace {

// What the kernels that stay of this process have been given.
struct Hold {
  std::pair<int64_t, uint32_t> place;
  const void* group;
  const void* room;
  uint64_t units;
};

std::mutex holds_mutex;

// Never destroyed: rooms of programs that end without closing their engines may outlive statics.
std::vector<Hold>& Holds() {
  static auto* const holds = new std::vector<Hold>;
  return *holds;
}

// Engines of one group take turns, so that of each group the largest counts.
uint64_t HeldByOthers(const std::pair<int64_t, uint32_t>& place, const void* group) {
  std::map<const void*, uint64_t> largest;
  for (const Hold& hold : Holds()) {
    if (hold.place == place && hold.group != group) largest[hold.group] = std::max(largest[hold.group], hold.units);
  }
  uint64_t units = 0;
  for (const auto& [other, held] : largest) units += held;
  return units;
}

std::string Describe(const gpu::Device& device, const UnitBudget& budget) {
  std::string text = absl::StrCat(device.name(), ": the kernel that stays needs ", budget.needed, " of ", budget.all, " compute units; ");
  if (budget.processes > 0) {
    absl::StrAppend(&text, budget.processes, budget.processes == 1 ? " other process has" : " other processes have", " waves that fill ",
                    budget.taken, ", and may be on ", std::min(budget.all, budget.taken * budget.unit_waves));
  }
  if (budget.held > 0) {
    absl::StrAppend(&text, budget.processes > 0 ? "; " : "", "another group of this process holds ", budget.held);
  }
  return text;
}

}  // namespace

uint64_t UnitBudget::touched() const { return std::min(all, taken * unit_waves + held); }

Room::Room(const Gpus& gpus, std::vector<uint32_t> needed) : gpus_(gpus), needed_(std::move(needed)) {
  for (int32_t r = 0; r < gpus.count(); ++r) {
    const gpu::Device& device = *gpus.at(r).device;
    places_.emplace_back(device.process().sys().DriverPid(), device.gpu_id());
  }
}

Room::~Room() {
  if (!held_) return;
  std::lock_guard<std::mutex> lock(holds_mutex);
  std::erase_if(Holds(), [&](const Hold& hold) { return hold.room == this; });
}

// Empty: there is room.
std::string Room::WhyNot() const {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    const size_t rank = static_cast<size_t>(r);
    const gpu::Device& device = *gpus_.at(r).device;
    UnitBudget budget;
    budget.all = gpu::ComputeUnits(device.node().properties);
    budget.needed = needed_[rank];
    budget.unit_waves = gpu::MaxWavesPerCu(device.node().properties);
    const auto others = kfd::ReadOthersOn(device.process().sys(), device.gpu_id());
    if (others.has_value()) {
      budget.taken = others->units;
      budget.processes = others->processes;
    }
    budget.held = HeldByOthers(places_[rank], &gpus_);
    if (!budget.fits()) return Describe(device, budget);
  }
  return "";
}

bool Room::Look() {
  const int64_t now = NowNs();
  if (now < until_) return fits_;
  std::lock_guard<std::mutex> lock(holds_mutex);
  const std::string why = WhyNot();
  const bool fitted = fits_;
  fits_ = why.empty();
  until_ = now + (fits_ ? kFreshNs : kRefusedNs);
  for (size_t r = 0; fits_ && !held_ && r < places_.size(); ++r) {
    Holds().push_back({places_[r], &gpus_, this, needed_[r]});
  }
  held_ |= fits_;
  if (fitted && !fits_) {
    gpus_.log().Write(LogLevel::kWarning, "steps are packets for now, as the resident kernel has no room: ", why);
  } else if (!fitted && fits_) {
    gpus_.log().Write(LogLevel::kInfo, "the resident kernel has room again");
  }
  return fits_;
}

}  // namespace mainarch::amdgpu
