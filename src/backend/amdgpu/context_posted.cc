// SPDX-License-Identifier: MIT
//
// What was posted to resident kernels that have left and have no room, by packets: the rest of what a pause has
// interrupted, from the op on before which all ranks have left, and what is posted behind it. The packets are those of a
// step; of rounds, commands and what is left out the host tells what the kernels would (kernels/ops/resident.h), and the
// next ones go on behind. The group's mutex is held all along: nobody else submits, or asks for a pause, meanwhile.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "backend/amdgpu/context.h"

namespace mainarch::amdgpu {

Status AmdGpuContext::RunPosted() {
  runs_posted_ = true;
  const Status status = RunAllPosted();
  runs_posted_ = false;
  return status.ok() ? status : model_->gpus().Fail(status);
}

Status AmdGpuContext::RunAllPosted() {
  RETURN_IF_ERROR(resident_->Claim());
  if (resident_->launches() > 0) {
    Awaited gone;
    gone.deadline = Soon();
    for (int32_t r = 0; r < program_.ranks; ++r) gone.points[static_cast<size_t>(r)] = resident_->point(r);
    RETURN_IF_ERROR(AwaitPackets(&gone));
  }
  ASSIGN_OR_RETURN(Resident::Stand stand, resident_->TakeStand());
  if (stand.rounds > 0) {
    const auto posted = resident_->PostedAt(stand.number);
    if (!posted) return Error(Code::kInternal, "a pause has interrupted a command that nobody has posted");
    RETURN_IF_ERROR(RunByPackets(posted->first, &stand));
  }
  if (static_cast<int32_t>(resident_->posted() - stand.number) < 0) {
    return Error(Code::kInternal, "the resident kernel has taken command ", stand.number, " of ", resident_->posted());
  }
  while (stand.number != resident_->posted()) {
    const auto posted = resident_->PostedAt(++stand.number);
    if (posted && posted->second.kind == kernels::kBegins) stand.broken = false;
    if (!posted || (posted->second.kind == kernels::kFollows && stand.broken)) {
      resident_->TellDone(stand.number);
      continue;
    }
    stand.next = stand.ran = 0;
    stand.rounds = posted->second.rounds;
    RETURN_IF_ERROR(RunByPackets(posted->first, &stand));
  }
  return resident_->GoOnBehind(stand.broken);
}

// Steps that wait for it learn from which round on.
void AmdGpuContext::CountAsPackets(const Resident::Stand& stand) {
  for (Flight& flight : flights_) {
    Awaited& awaited = flight.awaited;
    if (awaited.resident && awaited.points[0] == stand.number) awaited.packets_from = std::min(awaited.packets_from, stand.ran + 1);
  }
}

// The rounds of a command that are left, from op `next` of the first of them on.
Status AmdGpuContext::RunByPackets(size_t list, Resident::Stand* stand) {
  for (; stand->rounds > 0; --stand->rounds, stand->next = 0) {
    if (stand->ran > 0 && stand->next == 0) {
      // Its first op finds out whether it is one.
      RETURN_IF_ERROR(RunPart(list, 0, 1));
      ASSIGN_OR_RETURN(const uint32_t rounds,
                       resident_->WordOf(0, ranks_[0].memory.step + offsetof(kernels::StepHeader, rounds)));
      stand->broken = rounds == kernels::kNoRound;
      if (stand->broken) break;
      stand->next = 1;
    }
    RETURN_IF_ERROR(RunPart(list, stand->next, UINT32_MAX));
    CountAsPackets(*stand);
    resident_->TellRan(stand->number, ++stand->ran);
  }
  resident_->TellDone(stand->number);
  return OkStatus();
}

// Ops of a list, on all ranks, until they are over.
Status AmdGpuContext::RunPart(size_t list, uint32_t from, uint32_t to) {
  Awaited awaited;
  awaited.deadline = Soon();
  if (list == TablesList()) {
    RETURN_IF_ERROR(SubmitTables(&awaited));
  } else {
    const Form form = FormOf(list);
    RETURN_IF_ERROR(SubmitRanks(form, {static_cast<int32_t>(program_.ops.size()), from, to}, &awaited));
  }
  return AwaitPackets(&awaited);
}

Status AmdGpuContext::AwaitPackets(Awaited* awaited) {
  return Wait(*awaited, -1, Mutex::kHeld).status();
}

}  // namespace mainarch::amdgpu
