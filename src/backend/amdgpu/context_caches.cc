// SPDX-License-Identifier: MIT
//
// What a step reads and writes beside its rows: pages and slots of its sequences' caches, rows of
// taps. Checked, and written into the step block (kernels/decoder_args.h).
#include <algorithm>

#include "backend/amdgpu/context.h"
#include "backend/source.h"

namespace mainarch::amdgpu {
namespace {

using backend::Step;
using kernels::StepHeader;

// Rows [first, first + count) of a step, a sequence's.
struct Rows {
  size_t sequence, first;
  uint32_t count;
};

// The rows behind `begin` that are of its sequence.
Rows RowsAt(const Step& step, size_t begin) {
  Rows rows = {step.rows[begin].sequence, begin, 0};
  while (begin + rows.count < step.rows.size() &&
         step.rows[begin + rows.count].sequence == rows.sequence) {
    ++rows.count;
  }
  return rows;
}

// The rule: all pages from the first on, and no more to be looked at.
inline bool PagesFit(const backend::PagedCache& cache, const backend::StepCache& list, uint32_t last) {
  return cache.window == 0 && list.first_page == 0 && list.state_in == backend::kNoSlot &&
         list.state_out.empty() && last / backend::kPageTokens < list.pages.size();
}

// PageTables looks at the pages themselves.
Status CheckPages(const backend::PagedCache& cache, const backend::StepCache& list, const Step& step,
                  const Rows& rows) {
  if (list.state_in != backend::kNoSlot || !list.state_out.empty()) {
    return Error(Code::kInternal, "sequence ", rows.sequence,
                 " of a step: states of paged cache \"", cache.label, "\"");
  }
  return backend::CheckPages(cache, list, rows.sequence, step.rows[rows.first].position,
                             rows.count);
}

}  // namespace

Status AmdGpuContext::CheckCaches(const Step& step) const {
  for (size_t at = 0; at < step.rows.size();) {
    const Rows rows = RowsAt(step, at);
    at += rows.count;
    const absl::Span<const backend::StepCache> lists = step.sequences[rows.sequence].caches;
    if (lists.size() != shape_.slots.size()) {
      return Error(Code::kInternal, "sequence ", rows.sequence, ": ", lists.size(), " caches of ",
                   shape_.slots.size());
    }
    for (size_t i = 0; i < lists.size(); ++i) {
      const SlotShape& slots = shape_.slots[i];
      const auto* paged = std::get_if<backend::PagedCache>(&program_.caches[i]);
      if (paged != nullptr && PagesFit(*paged, lists[i], step.rows[at - 1].position)) continue;
      RETURN_IF_ERROR(paged != nullptr ? CheckPages(*paged, lists[i], step, rows)
                                       : backend::CheckSlots(lists[i], rows.sequence, rows.count,
                                                             slots.slots));
    }
  }
  return OkStatus();
}

// Rows of steps that were polled last: which rows there are to go on from, the host knows no
// earlier. Queues are in order, so that half of a tap is whole until this step has run, unless a
// step of the same parity is in flight already.
Status AmdGpuContext::CheckInputs(const Step& step) const {
  if (source_->submitted_ - source_->polled_ == kMostInFlight) {
    return Error(Code::kInternal, "inputs of the source's step ", source_->polled_,
                 ", whose tap step ", source_->submitted_, " in flight writes over");
  }
  const auto rows_of = [](const AmdGpuContext& context) {
    return int64_t{context.FlightOf(context.seen_).form.rows};
  };
  // This step is of the parity of one that was polled before another that is in flight.
  const bool over = submitted_ != polled_;
  const backend::InputRows rows = {rows_of(*source_), over ? 0 : rows_of(*this)};
  return backend::CheckInputs(program_, step, rows);
}

uint32_t AmdGpuContext::PlaceInputs(const Step& step, uint32_t at, StepHeader* header) const {
  if (shape_.reads_tap) at += header->rows + 1;
  if (shape_.slot_lists == 0) return at;
  header->sequences_at = at;
  ++at;
  for (size_t row = 0; row < step.rows.size(); row += RowsAt(step, row).count) at += 2;
  header->states_at = at;
  return at + shape_.slot_lists * 2 * header->rows;
}

void AmdGpuContext::WriteInputs(const Step& step, const StepHeader& header,
                                uint32_t* block) const {
  static_assert(backend::kCarriedInput == kernels::kCarriedInput &&
                backend::kOwnInput == kernels::kOwnInput);
  const uint32_t first = kernels::Parity(source_->polled_) * source_->shape_.options.max_rows;
  const uint32_t own = kernels::Parity(polled_) * shape_.options.max_rows;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const uint32_t from = step.inputs[i];
    block[header.inputs_at + i] = from == backend::kCarriedInput         ? from
                                  : (from & backend::kOwnInput) != 0 ? own + from
                                                                     : first + from;
  }
  block[header.inputs_at + header.rows] = first;
}

void AmdGpuContext::WriteStates(const Step& step, const StepHeader& header,
                                uint32_t* block) const {
  static_assert(backend::kNoSlot == kernels::kNoSlot);
  uint32_t* const states = block + header.states_at;
  std::fill_n(states, shape_.slot_lists * 2 * header.rows, kernels::kNoSlot);
  uint32_t count = 0;
  for (size_t at = 0; at < step.rows.size();) {
    const Rows rows = RowsAt(step, at);
    uint32_t* const sequence = block + header.sequences_at + 1 + 2 * count++;
    sequence[0] = static_cast<uint32_t>(at);
    sequence[1] = rows.count;
    for (size_t i = 0; i < shape_.slots.size(); ++i) {
      if (shape_.slots[i].list == backend::kNone) continue;
      const backend::StepCache& list = step.sequences[rows.sequence].caches[i];
      uint32_t* const own = states + static_cast<uint32_t>(shape_.slots[i].list) * 2 * header.rows;
      own[at] = list.state_in;
      for (const backend::StateOut& out : list.state_out) {
        own[header.rows + at + out.row] = out.slot;
      }
    }
    at += rows.count;
  }
  block[header.sequences_at] = count;
}

}  // namespace mainarch::amdgpu
