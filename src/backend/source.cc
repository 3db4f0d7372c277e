// SPDX-License-Identifier: MIT
#include "backend/source.h"

namespace mainarch::backend {

Status CheckSource(const Program& program, const Program* source) {
  for (const Op& op : program.ops) {
    const auto* input = std::get_if<InputOp>(&op);
    if (input == nullptr) continue;
    const size_t tap = static_cast<size_t>(input->tap);
    if (source == nullptr || input->tap < 0 || tap >= source->taps.size()) {
      return Error(Code::kInternal, "a Program reads tap ", input->tap, " of a source that has ",
                   source == nullptr ? 0 : source->taps.size());
    }
    const int64_t width = source->buffers[static_cast<size_t>(source->taps[tap])].width;
    const int64_t wanted = program.buffers[static_cast<size_t>(input->x)].width;
    if (width == wanted) continue;
    return Error(Code::kInternal, "tap ", tap, " is ", width, " wide; its reader wants ", wanted);
  }
  return OkStatus();
}

namespace {

Status CheckInput(const InputOp& op, const Step& step, size_t row, const InputRows& rows) {
  const uint32_t from = step.inputs[row];
  const bool first = row == 0 || step.rows[row - 1].sequence != step.rows[row].sequence;
  if (from == kCarriedInput) {
    if (op.cache != kNone && first) return OkStatus();
    return Error(Code::kInternal, "row ", row, " takes an input that nothing carries on");
  }
  const bool own = (from & kOwnInput) != 0;
  const int64_t have = !own ? rows.source : op.own == kNone ? 0 : rows.own;
  if (int64_t{from & ~kOwnInput} < have) return OkStatus();
  return Error(Code::kInternal, "row ", from & ~kOwnInput, " of ", own ? "its own" : "the source's",
               " last step is asked for, which had ", have);
}

}  // namespace

Status CheckInputs(const Program& program, const Step& step, const InputRows& rows) {
  if (step.inputs.size() != step.rows.size()) {
    return Error(Code::kInternal, step.inputs.size(), " inputs of ", step.rows.size(), " rows");
  }
  for (const Op& any : program.ops) {
    const auto* op = std::get_if<InputOp>(&any);
    if (op == nullptr) continue;
    for (size_t row = 0; row < step.rows.size(); ++row) {
      RETURN_IF_ERROR(CheckInput(*op, step, row, rows));
    }
    if (op->cache == kNone || static_cast<int64_t>(step.rows.size()) == rows.source) continue;
    for (const StepSequence& sequence : step.sequences) {
      const auto cache = static_cast<size_t>(op->cache);
      if (cache >= sequence.caches.size() || sequence.caches[cache].state_out.empty()) continue;
      return Error(Code::kInternal, "a state of the source's rows is to be written by a step of ",
                   step.rows.size(), " rows; the source's had ", rows.source);
    }
  }
  return OkStatus();
}

Status CheckPages(const PagedCache& cache, const StepCache& list, size_t sequence,
                  uint32_t position, uint32_t rows) {
  const uint64_t end = uint64_t{position} + rows;
  const uint64_t window = static_cast<uint64_t>(cache.window);
  const uint64_t first = window > 0 && position >= window ? position + 1 - window : 0;
  if (uint64_t{list.first_page} * kPageTokens > first) {
    return Error(Code::kInternal, "sequence ", sequence, ": position ", first, " of cache \"",
                 cache.label, "\" is before its first page ", list.first_page);
  }
  if ((uint64_t{list.first_page} + list.pages.size()) * kPageTokens < end) {
    return Error(Code::kInternal, "sequence ", sequence, ": position ", end - 1,
                 " has no page in cache \"", cache.label, "\"");
  }
  if (cache.kept > 0 && end > window && list.kept.size() * kPageTokens < static_cast<uint64_t>(cache.kept)) {
    return Error(Code::kInternal, "sequence ", sequence, ": ", list.kept.size(), " pages are kept of the first ",
                 cache.kept, " tokens of cache \"", cache.label, "\"");
  }
  return OkStatus();
}

Status CheckSlots(const StepCache& list, size_t sequence, uint32_t rows, uint32_t slots) {
  if (list.state_in != kNoSlot && list.state_in >= slots) {
    return Error(Code::kInternal, "state slot ", list.state_in, " is not in the pool of ", slots);
  }
  for (size_t i = 0; i < list.state_out.size(); ++i) {
    const StateOut& out = list.state_out[i];
    if (out.slot < slots && out.slot != list.state_in && out.row < rows &&
        (i == 0 || out.row > list.state_out[i - 1].row)) {
      continue;
    }
    return Error(Code::kInternal, "sequence ", sequence, ": the state after row ", out.row, " of ",
                 rows, " to slot ", out.slot, " of ", slots);
  }
  return OkStatus();
}

Status WrongSource() {
  return Error(Code::kInternal, "the source of a context is no context of the same model");
}

}  // namespace mainarch::backend
