// SPDX-License-Identifier: MIT
//
// ds_gws_*: what the GDS chapters of AMD's Vega and CDNA3 manuals give as pseudo-code. The resource
// is (M0[21:16] + offset) % 64 (LLVM, AMDGPUInstructionSelector.cpp, selectDSGWSIntrinsic), the value that of
// the first lane that is on. A wave that has to wait stands on its instruction, asleep, and looks
// again at its next turn; so a semaphore is not fair, as hardware's queue would be.
#include "sim/isa/gws.h"

#include <algorithm>
#include <bit>

#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

// Null after stopping the wave.
Gws* GwsOf(Wave& w) {
  Gws* gws = w.memory->gws();
  if (gws == nullptr) w.Stop(StopReason::kIllegal, "the queue has no global wave sync (ALLOC_QUEUE_GWS)");
  return gws;
}

Gws::Resource& ResourceOf(Gws& gws, const Wave& w, const Op& op) {
  return gws.resources[((w.s[reg::kM0] >> 16 & 63) + (op.inst.offset & 63)) % Gws::kResources];
}

uint32_t ValueOf(const Wave& w, const Op& op) {
  return w.v[op.a.offset + std::countr_zero(w.exec()) % kLanes];
}

void WaitHere(Wave& w) {
  w.pc = w.at;
  w.state = WaveState::kSleeping;
}

void Init(Wave& w, const Op& op) {
  Gws* const gws = GwsOf(w);
  if (gws == nullptr) return;
  std::lock_guard lock(gws->mutex);
  ResourceOf(*gws, w, op).counter = ValueOf(w, op);
}

void Add(Wave& w, const Op& op, int64_t value) {
  Gws* const gws = GwsOf(w);
  if (gws == nullptr) return;
  std::lock_guard lock(gws->mutex);
  ResourceOf(*gws, w, op).counter += value;
}
void SemaphoreV(Wave& w, const Op& op) { Add(w, op, 1); }
void SemaphoreRelease(Wave& w, const Op& op) { Add(w, op, ValueOf(w, op)); }

// "Releases all queued waves": as many as wait; without any it does nothing.
void SemaphoreReleaseAll(Wave& w, const Op& op) {
  Gws* const gws = GwsOf(w);
  if (gws == nullptr) return;
  std::lock_guard lock(gws->mutex);
  Gws::Resource& resource = ResourceOf(*gws, w, op);
  resource.counter = std::max<int64_t>(resource.counter, 0) + resource.waiting;
}

void SemaphoreP(Wave& w, const Op& op) {
  Gws* const gws = GwsOf(w);
  if (gws == nullptr) return;
  std::lock_guard lock(gws->mutex);
  Gws::Resource& resource = ResourceOf(*gws, w, op);
  const bool waits = resource.counter <= 0;
  resource.waiting += static_cast<int64_t>(waits) - static_cast<int64_t>(w.gws_round != 0);
  w.gws_round = waits ? 1 : 0;
  if (waits) return WaitHere(w);
  --resource.counter;
}

// The last to come, by the count that the one before it left, opens the barrier and leaves its own
// count for the next round.
void Barrier(Wave& w, const Op& op) {
  Gws* const gws = GwsOf(w);
  if (gws == nullptr) return;
  std::lock_guard lock(gws->mutex);
  Gws::Resource& resource = ResourceOf(*gws, w, op);
  if (w.gws_round == 0 && resource.counter <= 0) {
    resource.counter = ValueOf(w, op);
    ++resource.round;
  } else if (w.gws_round == 0) {
    --resource.counter;
    w.gws_round = resource.round;
    WaitHere(w);
  } else if (w.gws_round == resource.round) {
    WaitHere(w);
  } else {
    w.gws_round = 0;
  }
}

constexpr Descriptor Line(const char* name, Run run, Origin origin = Origin::kManual) {
  return {name, run, {Type::kB32, Type::kNone, Type::kNone, Type::kNone}, origin, kReadsM0 | kReadsExec};
}
constexpr Descriptor kTable[] = {
    Line("ds_gws_init", &Init),       Line("ds_gws_sema_v", &SemaphoreV), Line("ds_gws_sema_br", &SemaphoreRelease),
    Line("ds_gws_sema_p", &SemaphoreP), Line("ds_gws_barrier", &Barrier),
    Line("ds_gws_sema_release_all", &SemaphoreReleaseAll),
};

}  // namespace

void AddGws(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
