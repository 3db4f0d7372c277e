// SPDX-License-Identifier: MIT
//
// Rounds: a step that the resident kernel runs again by itself, for the tokens that it has chosen,
// while the host is elsewhere (kernels/decoder_args.h, kernels/resident_args.h). They end early when
// no row goes on, when a row has found no token, and when the host or another context wants the GPUs;
// rounds that then are left out, and the step behind them that takes up their tokens, have not run,
// and who polls them is told so.
#include <algorithm>
#include <cstring>

#include "backend/amdgpu/context.h"

namespace mainarch::amdgpu {

using kernels::LeaseHead;
using kernels::LeaseRow;

uint32_t AmdGpuContext::max_rounds() const {
  return resident_ != nullptr && !shape_.reads_tap ? kernels::kMostRounds : 0;
}

uint32_t AmdGpuContext::WriteLease(const backend::Step& step, uint32_t at, kernels::StepHeader* header,
                                   Flight* flight) {
  flight->rounds = 1;
  flight->follows = step.rows[0].from != backend::kHere;
  if (step.leases.empty()) return at;
  const size_t rows = step.rows.size();
  if (step.leases.size() != rows || step.logit_rows.size() != rows || max_rounds() == 0 || !flight->awaited.resident) {
    return at;
  }
  uint32_t rounds = 0;
  uint64_t words = (sizeof(LeaseHead) + rows * sizeof(LeaseRow)) / 4;
  for (size_t i = 0; i < rows; ++i) {
    const backend::Lease& lease = step.leases[i];
    if (lease.slots.size() != uint64_t{lease.rounds} * shape_.slot_lists) return at;
    rounds = std::max(rounds, lease.rounds);
    words += lease.stops[0].size() + lease.stops[1].size() + lease.slots.size();
    const RowOutcome& outcome = flight->outcomes[i];
    if (step.logit_rows[i] != i || outcome.read || !outcome.told) return at;
  }
  // Lists are aligned, like the block.
  const uint32_t head_at = (at + 3) / 4 * 4;
  if (rounds == 0 || head_at + words > shape_.choices_end) return at;
  uint32_t* const block = Block(kernels::Parity(submitted_));
  std::memset(block + at, 0, (head_at - at) * sizeof(uint32_t));
  header->lease_at = head_at;
  header->rounds = std::min(rounds, kernels::kMostRounds);
  flight->rounds += header->rounds;
  LeaseHead head;
  head.number = resident_->next_number();
  head.slot_lists = shape_.slot_lists;
  std::memcpy(block + head_at, &head, sizeof(head));
  uint32_t row_at = head_at + sizeof(LeaseHead) / 4;
  at = row_at + static_cast<uint32_t>(rows * sizeof(LeaseRow) / 4);
  for (const backend::Lease& lease : step.leases) {
    LeaseRow row;
    row.rounds = lease.rounds;
    row.stops_at = at;
    for (const absl::Span<const uint32_t> stops : lease.stops) {
      if (!stops.empty()) std::memcpy(block + at, stops.data(), stops.size() * sizeof(uint32_t));
      at += static_cast<uint32_t>(stops.size());
    }
    row.stops = at - row.stops_at;
    row.slots_at = at;
    if (!lease.slots.empty()) std::memcpy(block + at, lease.slots.data(), lease.slots.size() * sizeof(uint32_t));
    at += static_cast<uint32_t>(lease.slots.size());
    std::memcpy(block + row_at, &row, sizeof(row));
    row_at += sizeof(LeaseRow) / 4;
  }
  return at;
}

// Rounds have parities of their own: the next step's block may be that of the step in flight, which must have been
// read.
Status AmdGpuContext::AwaitBlock() {
  if (InFlight() == 0) return OkStatus();
  Flight& before = FlightOf(sent_);
  if (before.polled > 0 || before.rounds % 2 != 0) return OkStatus();
  const auto begun = Wait(before.awaited, -1, Mutex::kHeld);
  return begun.ok() ? OkStatus() : model_->gpus().Fail(begun.status());
}

Resident::Work AmdGpuContext::RoundsOf(const Flight& flight) const {
  Resident::Work work;
  work.kind = flight.follows ? kernels::kFollows : kernels::kBegins;
  work.rounds = flight.rounds;
  for (int32_t r = 0; r < program_.ranks; ++r) {
    work.ends[static_cast<size_t>(r)] =
        ranks_[static_cast<size_t>(r)].memory.step + offsetof(kernels::StepHeader, rounds);
  }
  return work;
}

void AmdGpuContext::Recall() {
  if (resident_ == nullptr || InFlight() == 0) return;
  std::lock_guard<std::mutex> lock(model_->gpus().mutex());
  resident_->Recall();
}

bool AmdGpuContext::WasLeftOut(const Flight& flight) const {
  return resident_->Look(0, flight.awaited.points[0], flight.awaited.round) == Resident::Round::kLeftOut;
}

// The GPUs' index is that of the last one that ran.
Status AmdGpuContext::LeaveOut() {
  while (InFlight() > 0) {
    Flight& flight = FlightOf(++landed_);
    const StatusOr<bool> over = Wait(flight.awaited, -1);
    if (over.ok()) continue;
    landed_ = sent_;
    std::lock_guard<std::mutex> lock(model_->gpus().mutex());
    return model_->gpus().Fail(over.status());
  }
  submitted_ = polled_;
  return OkStatus();
}

// The round after next has the same half.
Status AmdGpuContext::CheckLogitsStand() {
  if (submitted_ - polled_ < kMostInFlight) return OkStatus();
  const Flight& seen = FlightOf(seen_);
  const bool behind = seen.polled + 2 > seen.rounds;
  Awaited over = FlightOf(seen_ + behind).awaited;
  over.round = seen.polled + 2 - (behind ? seen.rounds : 0);
  Recall();
  RETURN_IF_ERROR(Wait(over, -1).status());
  if (resident_->Look(0, over.points[0], over.round) == Resident::Round::kLeftOut) return OkStatus();
  return Error(Code::kBusy, "the logits have been written over by a later step: the resident kernel runs ahead of "
               "sequences that were not opened to keep them");
}

}  // namespace mainarch::amdgpu
