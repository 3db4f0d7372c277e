// SPDX-License-Identifier: MIT
#include "sim/pm4_compute.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace mainarch::sim {
namespace {

// Registers as dwords from the first SH register, 0x2c00 (Linux: asic_reg/gc/gc_9_4_3_offset.h).
constexpr uint32_t kStartX = 0x204, kThreadsX = 0x207, kPgmLo = 0x20c, kPgmHi = 0x20d,
                   kRsrc1 = 0x212, kRsrc2 = 0x213, kTmpring = 0x218, kRsrc3 = 0x22d,
                   kUserData = 0x240;
// COMPUTE_DISPATCH_INITIATOR.
constexpr uint32_t kShaderEnable = 1, kThreadDimensions = 1 << 5;
constexpr uint32_t kScratchEnable = 1;  // of COMPUTE_PGM_RSRC2
constexpr uint64_t kSlice = 4096;       // wave-instructions

}  // namespace

bool Pm4Compute::Fill(const uint32_t dims[3], uint32_t initiator, sim::Dispatch* d,
                      std::string* why) {
  uint64_t items = 1;
  for (uint32_t i = 0; i < 3; ++i) {
    if (At(kStartX + i) != 0) {
      *why = absl::StrCat("DISPATCH_DIRECT with COMPUTE_START of ", At(kStartX + i),
                          " is not modelled");
      return false;
    }
    d->workgroup[i] = At(kThreadsX + i) & 0xffff;
    items *= d->workgroup[i];
    const uint64_t size =
        uint64_t{dims[i]} * ((initiator & kThreadDimensions) != 0 ? 1 : d->workgroup[i]);
    d->grid[i] = static_cast<uint32_t>(size);
    if (size == 0 || size >> 32 != 0) {
      *why = absl::StrCat("DISPATCH_DIRECT: dimension ", i, " has ", size, " work-items");
      return false;
    }
  }
  if (items == 0 || items > 1024) {
    *why = absl::StrCat("DISPATCH_DIRECT: a workgroup of ", items, " is not 1 to 1024");
    return false;
  }
  const GpuFacts& facts = setup_.host->context().facts();
  d->context = &setup_.host->context();
  d->dims = 3;
  d->entry_va = uint64_t{At(kPgmLo)} << 8 | uint64_t{At(kPgmHi) & 0xff} << 40;
  const auto put = [d](size_t offset, uint32_t value) {
    std::memcpy(d->descriptor.data() + offset, &value, 4);
  };
  put(44, At(kRsrc3));
  put(48, At(kRsrc1));
  put(52, At(kRsrc2));
  d->group_segment_bytes = (At(kRsrc2) >> 15 & 0x1ff) * facts.lds_granule;
  // WAVESIZE counts 1 KiB; a wave has 64 lanes.
  if ((At(kRsrc2) & kScratchEnable) != 0) {
    d->scratch_wave_bytes = (At(kTmpring) >> 12 & 0x1fff) << 10;
    d->scratch_waves = At(kTmpring) & 0xfff;
    d->private_segment_bytes = d->scratch_wave_bytes / 64;
  }
  d->has_user_data = true;
  std::copy_n(registers_.begin() + kUserData, d->user_data.size(), d->user_data.begin());
  d->dispatch_id = dispatches_++;
  d->queue_id = setup_.id;
  d->gws = gws_;
  d->first_xcc = setup_.first_xcc;
  d->acquire = Scope::kSystem;
  d->seed = rng_.Next();
  return true;
}

bool Pm4Compute::Dispatch(const uint32_t dims[3], uint32_t initiator, MemoryFault* fault,
                          std::string* why) {
  if ((initiator & kShaderEnable) == 0) return true;
  sim::Dispatch dispatch;
  if (!Fill(dims, initiator, &dispatch, why)) return false;
  Window window;
  if (!dispatch.context->Translate(dispatch.entry_va, Access::kExecute, &window, fault)) {
    return false;
  }
  StatusOr<std::unique_ptr<Launch>> launch = setup_.host->executor().Start(dispatch);
  if (!launch.ok()) {
    *why = absl::StrCat("DISPATCH_DIRECT: ", launch.status().message());
    return false;
  }
  launches_.push_back(*std::move(launch));
  return true;
}

Progress Pm4Compute::Run() {
  Progress progress;
  progress.state = Progress::State::kDone;
  if (launches_.empty()) return progress;
  const size_t i =
      setup_.host->config().reorder ? rng_.Below(static_cast<uint32_t>(launches_.size())) : 0;
  progress = launches_[i]->Run(kSlice);
  if (progress.state == Progress::State::kDone || progress.state == Progress::State::kException) {
    launches_.erase(launches_.begin() + static_cast<ptrdiff_t>(i));
  }
  return progress;
}

}  // namespace mainarch::sim
