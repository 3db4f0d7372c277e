// SPDX-License-Identifier: MIT
//
// The life of a step: checked, written into the block of its parity, its packets copied into every
// GPU's ring, and waited for.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/amdgpu/context.h"
#include "base/clock.h"
#include "gpu/process.h"

namespace mainarch::amdgpu {
namespace {

using backend::Step;
using kernels::StepHeader;
using kernels::StepRow;

// How often a wait for one GPU looks at the others.
constexpr int64_t kSliceNs = 50'000'000;

uint32_t RoundUp(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }

bool Penalises(const backend::Choice& choice) {
  return choice.choose && (choice.repetition != 1 || choice.frequency != 0 ||
                           choice.presence != 0 || !choice.counted.empty());
}

}  // namespace

Status AmdGpuContext::CheckStep(const Step& step) const {
  const backend::ContextOptions& options = shape_.options;
  if (InFlight() == kMostInFlight) return Error(Code::kInternal, "a third step while two are in flight");
  if (InFlight() > 0 && FlightOf(sent_).rounds > 1 && (step.rows[0].from == backend::kHere || !RunsResident(step.rows.size(), program_.ops.size()))) {
    return Error(Code::kInternal, "a step that takes no token from the rounds in flight before it, or is packets");
  }
  if (step.rows.empty() || step.rows.size() > options.max_rows) {
    return Error(Code::kInternal, "a step of ", step.rows.size(), " rows; the limit is ",
                 options.max_rows);
  }
  if (step.logit_rows.size() > options.max_logit_rows) {
    return Error(Code::kInternal, "logits of ", step.logit_rows.size(), " rows; the limit is ",
                 options.max_logit_rows);
  }
  if (!step.choices.empty() && step.choices.size() != step.logit_rows.size()) {
    return Error(Code::kInternal, step.choices.size(), " choices of ", step.logit_rows.size(),
                 " logit rows");
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const backend::StepRow& row = step.rows[i];
    const bool here = row.from == backend::kHere;
    if (row.sequence >= step.sequences.size() ||
        (here && row.token >= static_cast<uint32_t>(program_.vocab))) {
      return Error(Code::kInternal, "a row of token ", row.token, ", position ", row.position,
                   ", sequence ", row.sequence);
    }
    if (!here) RETURN_IF_ERROR(CheckReference(step, i));
  }
  for (uint32_t row : step.logit_rows) {
    if (row >= step.rows.size()) return Error(Code::kInternal, "logits of row ", row, " asked for");
  }
  RETURN_IF_ERROR(CheckCaches(step));
  return shape_.reads_tap ? CheckInputs(step) : OkStatus();
}

// A row whose token is not known here. Its own choice cannot count that token among those that are
// penalised, so it must not penalise any.
Status AmdGpuContext::CheckReference(const Step& step, size_t row) const {
  const uint32_t from = step.rows[row].from;
  const Flight& before = FlightOf(sent_);
  if (submitted_ == 0 || from >= before.logit_rows || !before.outcomes[from].told) {
    return Error(Code::kInternal, "a row takes its token from logit row ", from,
                 " of the step before, which chose none there (", before.logit_rows,
                 " logit rows)");
  }
  for (size_t i = 0; i < step.choices.size(); ++i) {
    if (step.logit_rows[i] == row && Penalises(step.choices[i])) {
      return Error(Code::kInternal, "penalties in a row whose token the step before chooses");
    }
  }
  return OkStatus();
}

// The rows and where their page tables are; rows of a sequence are adjacent.
void AmdGpuContext::WriteRows(const Step& step, const StepHeader& header, uint32_t* block) {
  StepRow* rows = reinterpret_cast<StepRow*>(block + header.rows_at);
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const backend::StepRow& row = step.rows[i];
    rows[i] = {row.from == backend::kHere ? row.token : 0, row.position,
               tables_.Offset(step.sequences[row.sequence].table), row.from};
  }
  static_assert(backend::kHere == kernels::kHere);
  if (shape_.reads_tap) WriteInputs(step, header, block);
  if (shape_.slot_lists > 0) WriteStates(step, header, block);
  if (step.logit_rows.empty()) return;
  std::memcpy(block + header.logit_rows_at, step.logit_rows.data(), step.logit_rows.size() * 4);
}

void AmdGpuContext::WriteStep(const Step& step, Flight& flight) {
  const uint32_t parity = kernels::Parity(submitted_);
  uint32_t* block = Block(parity);
  StepHeader header;
  header.rows = flight.form.rows = static_cast<uint32_t>(step.rows.size());
  header.logit_rows = flight.logit_rows = static_cast<uint32_t>(step.logit_rows.size());
  header.index = submitted_;
  header.rows_at = sizeof(StepHeader) / 4;
  header.logit_rows_at = header.rows_at + header.rows * 4;
  header.inputs_at = header.choices_at = header.logit_rows_at + header.logit_rows;
  if (shape_.reads_tap || shape_.slot_lists > 0) {
    header.choices_at = PlaceInputs(step, header.inputs_at, &header);
  }
  header.pages_at = shape_.step_words;
  for (const backend::StepRow& row : step.rows) {
    header.splits = std::max(header.splits, row.position / kernels::kSplitTokens + 1);
  }
  WriteRows(step, header, block);
  flight.form.work = WriteChoices(step, header.choices_at, shape_.choices_end, block,
                             absl::MakeSpan(flight.outcomes));
  // Whole blocks of 64 bytes; what is left of the last one is zeros.
  const uint32_t end = WriteLease(step, flight.form.work.end, &header, &flight);
  for (uint32_t i = 0; i < flight.rounds; ++i) {
    std::memset(ResultsOf(submitted_ + i), 0, step.logit_rows.size() * sizeof(kernels::ChoiceResult));
  }
  header.words = header.changes_at = RoundUp(end, 16);
  std::memset(block + end, 0, uint64_t{header.words - end} * 4);
  header.changes =
      tables_.Take(step, shape_.step_changes,
                   reinterpret_cast<kernels::PageChange*>(block + header.changes_at));
  std::memcpy(block, &header, sizeof(header));
}

// What is more than a step's block holds goes before the step, by as many runs of step_tables as it
// takes. The memory that brings it is written again when all GPUs have read it, so with long lists
// the host waits for the steps in flight.
Status AmdGpuContext::ChangeTables(const Step& step, bool resident) {
  ASSIGN_OR_RETURN(uint64_t changes, tables_.Count(step));
  auto* list = reinterpret_cast<kernels::PageChange*>(Block(kMostInFlight));
  while (changes > shape_.step_changes) {
    const uint32_t count = tables_.Take(step, kListChanges, list + 1);
    list[0] = {count, 0};
    changes -= count;
    Gpus& gpus = model_->gpus();
    Awaited awaited;
    awaited.deadline = Soon();
    const Resident::Work beside = {kernels::kBeside, 1, {}};
    const Status sent = resident ? SubmitResident(TablesList(), beside, &awaited) : SubmitTables(&awaited);
    if (!sent.ok()) return gpus.Fail(sent);
    const auto read = Wait(awaited, -1, Mutex::kHeld);
    if (!read.ok()) return gpus.Fail(read.status());
  }
  return OkStatus();
}

Status AmdGpuContext::SubmitTables(Awaited* awaited) {
  Gpus& gpus = model_->gpus();
  for (int32_t r = 0; r < gpus.count(); ++r) {
    const Packet& packet = ranks_[static_cast<size_t>(r)].tables;
    ASSIGN_OR_RETURN(awaited->points[static_cast<size_t>(r)],
                     gpus.at(r).queue->SubmitSignalled(packet.packet, packet.label, Soon()));
  }
  for (int32_t r = 0; r < gpus.count(); ++r) gpus.at(r).queue->Ring();
  return OkStatus();
}

bool AmdGpuContext::TakesPart(When when, const ChoiceWork& work) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kRaces:
      return work.races;
  }
  return true;
}

Status AmdGpuContext::SubmitRank(int32_t rank, const Form& form, const Part& part, Awaited* awaited) {
  gpu::Queue& queue = *model_->gpus().at(rank).queue;
  const std::vector<Packet>& packets = ranks_[static_cast<size_t>(rank)].packets[form.row_class];
  const bool at_once = queue.Takes(packets.size());
  const Packet* last = nullptr;
  uint32_t number = 0;
  for (const Packet& packet : packets) {
    if (packet.op >= part.end || !TakesPart(packet.when, form.work)) continue;
    if (number++ < part.from || number > part.to) continue;
    if (last != nullptr && at_once) {
      queue.Put(last->packet, last->label);
    } else if (last != nullptr) {
      RETURN_IF_ERROR(queue.Submit(last->packet, last->label, awaited->deadline));
    }
    last = &packet;
  }
  // What the host reads is written back to it.
  gpu::AqlPacket packet = last->packet;
  packet.set_release(gpu::Scope::kSystem);
  ASSIGN_OR_RETURN(awaited->points[static_cast<size_t>(rank)],
                   queue.SubmitSignalled(packet, last->label, awaited->deadline));
  return OkStatus();
}

Status AmdGpuContext::SubmitPart(const Step& step, size_t end) {
  RETURN_IF_ERROR(CheckStep(step));
  if (stop_requested()) return Error(Code::kCancelled, "step cancelled");
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  const bool resident = GoesResident(step.rows.size(), end);
  if (!resident && resident_ != nullptr) RETURN_IF_ERROR(gpus.Settle(AwaitOwnSteps()));
  RETURN_IF_ERROR(gpus.Settle(resident ? resident_->Claim() : gpus.Claim(nullptr, resident_.get())));
  RETURN_IF_ERROR(ChangeTables(step, resident));
  if (resident) RETURN_IF_ERROR(AwaitBlock());
  Flight& flight = FlightOf(++sent_);
  ++submitted_;
  flight.polled = 0;
  flight.awaited.resident = resident;
  WriteStep(step, flight);
  flight.awaited.round = 1;
  flight.awaited.packets_from = UINT32_MAX;
  flight.awaited.launches = 0;
  flight.awaited.taken = 0;
  flight.awaited.deadline = Soon();
  flight.form.row_class = static_cast<size_t>(
      std::lower_bound(row_classes_.begin(), row_classes_.end(), step.rows.size()) -
      row_classes_.begin());
  const Status status = resident ? SubmitResident(ListOf(flight.form), RoundsOf(flight), &flight.awaited)
                                 : SubmitRanks(flight.form, {static_cast<int32_t>(end)}, &flight.awaited);
  submitted_ += flight.rounds - 1;
  if (status.ok()) return status;
  --sent_;  // it was not; what is in flight fails with the group
  submitted_ -= flight.rounds;
  return gpus.Fail(status);
}

Status AmdGpuContext::SubmitRanks(const Form& form, const Part& part, Awaited* awaited) {
  Gpus& gpus = model_->gpus();
  for (int32_t r = 0; r < gpus.count(); ++r) RETURN_IF_ERROR(SubmitRank(r, form, part, awaited));
  for (int32_t r = 0; r < gpus.count(); ++r) gpus.at(r).queue->Ring();
  return OkStatus();
}

Status AmdGpuContext::Submit(const Step& step) { return SubmitPart(step, program_.ops.size()); }

Status AmdGpuContext::RunPrefix(const Step& step, size_t end) {
  RETURN_IF_ERROR(NothingInFlight("a part of a step"));
  RETURN_IF_ERROR(SubmitPart(step, end));
  // What it left out did not choose.
  if (end < program_.ops.size()) {
    for (RowOutcome& outcome : FlightOf(sent_).outcomes) outcome.told = false;
  }
  return Poll(-1).status();
}

// A step that the GPUs have cannot be called back: one that was stopped runs to its end, and ends
// with Cancelled.
StatusOr<bool> AmdGpuContext::Poll(int64_t timeout_ns) {
  if (InFlight() == 0) return false;
  Flight& flight = FlightOf(landed_ + 1);
  const StatusOr<bool> ended = Wait(flight.awaited, timeout_ns);
  if (ended.ok() && !*ended) return false;
  if (!ended.ok()) {
    polled_ += flight.rounds - flight.polled;
    ++landed_;
    std::lock_guard<std::mutex> lock(model_->gpus().mutex());
    return model_->gpus().Fail(ended.status());
  }
  left_out_ = flight.awaited.resident && WasLeftOut(flight);
  if (left_out_) {
    RETURN_IF_ERROR(LeaveOut());
    return true;
  }
  ++polled_;
  seen_ = landed_ + 1;
  counted_ = flight.form;
  counted_resident_ = flight.awaited.resident && flight.awaited.round < flight.awaited.packets_from;
  counted_launches_ = flight.awaited.launches;
  if (flight.awaited.resident) CountResident();
  // Rows of rounds are not read, until FetchLogits has.
  for (uint32_t i = 0; flight.rounds > 1 && i < flight.logit_rows; ++i) flight.outcomes[i].read = false;
  if (++flight.polled == flight.rounds) ++landed_;
  ++flight.awaited.round;
  flight.awaited.launches = 0;
  // What is behind it has only now got the GPUs.
  if (InFlight() > 0) FlightOf(landed_ + 1).awaited.deadline = Soon();
  if (stop_requested()) return Error(Code::kCancelled, "step cancelled");
  return true;
}

// Made when asked for: it walks all packets.
backend::StepCounts AmdGpuContext::counts() const {
  backend::StepCounts counts;
  if (counted_.rows == 0) return counts;
  const uint64_t n = static_cast<uint64_t>(program_.ranks);
  const bool twice = counted_.rows > kOneRoundRows;
  const uint64_t bytes = counted_.rows * static_cast<uint64_t>(program_.hidden) * sizeof(float);
  for (const Packet& packet : ranks_[0].packets[counted_.row_class]) {
    counts.packets += TakesPart(packet.when, counted_.work);
  }
  counts.submissions = 1;
  counts.host_waits = 1;
  if (counted_resident_) {
    counts.resident = true;
    counts.resident_left = resident_->left();
    counts.packets = counts.submissions = counted_launches_;
  }
  if (n == 1) return counts;
  counts.all_reduces = shape_.all_reduces;
  counts.rounds = shape_.all_reduces * (twice ? 2 : 1);
  const uint64_t summed = (shape_.all_reduces - shape_.square_reduces) * bytes +
                          uint64_t{shape_.square_reduces} * counted_.rows * shape_.square_width * sizeof(float);
  counts.least_link_bytes = 2 * summed * (n - 1) / n;
  // In one round each element goes with its epoch.
  counts.link_bytes = twice ? counts.least_link_bytes : 2 * summed * (n - 1);
  return counts;
}

// A GPU whose peer has died waits for it in its all-reduce: so each is asked now and then. They are
// hung when none has taken a packet for as long as a deadline is; steps of other contexts may be in
// front of ours.
StatusOr<bool> AmdGpuContext::Wait(Awaited& awaited, int64_t timeout_ns, Mutex mutex) {
  Gpus& gpus = model_->gpus();
  int64_t now = NowNs();
  const int64_t until = timeout_ns < 0 ? INT64_MAX : now + std::min(timeout_ns, INT64_MAX / 2);
  for (int32_t r = 0; r < gpus.count(); now = NowNs()) {
    gpu::Queue& queue = *gpus.at(r).queue;
    bool reached = false;
    if (now < until) {
      const Status status = WaitForPoint(r, awaited, std::min(now + kSliceNs, until));
      if (!status.ok() && CodeOf(status) != Code::kTimedOut) return status;
      reached = status.ok();
    }
    RETURN_IF_ERROR(gpus.Health());
    RETURN_IF_ERROR(ResumeResident(mutex));
    if (reached || ReachedPoint(r, awaited)) {
      ++r;
      continue;
    }
    for (int32_t other = 0; other < gpus.count(); ++other) {
      RETURN_IF_ERROR(gpus.at(other).queue->Health());
    }
    const uint64_t before = std::exchange(awaited.taken, PacketsTaken());
    if (awaited.taken != before) {
      awaited.deadline = Soon();
    } else if (awaited.deadline.GivesUp(queue.device().process().sys(), NowNs())) {
      return Hung(awaited);
    }
    if (NowNs() >= until) return false;
  }
  return true;
}

uint64_t AmdGpuContext::PacketsTaken() const {
  uint64_t taken = 0;
  const Gpus& gpus = model_->gpus();
  for (int32_t r = 0; r < gpus.count(); ++r) {
    taken += gpus.at(r).queue->taken() + (resident_ != nullptr ? resident_->Moved(r) : 0);
  }
  return taken;
}

// The GPU that has come least far is the one that the others wait for.
Status AmdGpuContext::Hung(const Awaited& awaited) {
  Gpus& gpus = model_->gpus();
  for (int32_t r = 0; r < gpus.count(); ++r) RETURN_IF_ERROR(gpus.at(r).device->Probe());
  const auto left = [&](int32_t rank) {
    const gpu::Queue& queue = *gpus.at(rank).queue;
    return queue.rung() - queue.taken();
  };
  int32_t slowest = 0;
  for (int32_t r = 1; r < gpus.count(); ++r) {
    if (left(r) > left(slowest)) slowest = r;
  }
  if (awaited.resident) slowest = FurthestBehind();
  const gpu::Queue& queue = *gpus.at(slowest).queue;
  return WithDevice(
      Error(Code::kTimedOut, "a step did not end in time; furthest behind is ", queue.Describe()),
      queue.device().index());
}

Status AmdGpuContext::NothingInFlight(const char* what) const {
  if (InFlight() == 0) return OkStatus();
  return Error(Code::kInternal, what, " while ", submitted_ - polled_, " steps are in flight");
}

}  // namespace mainarch::amdgpu
