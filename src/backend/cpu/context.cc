// SPDX-License-Identifier: MIT
#include "backend/cpu/context.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "backend/source.h"
#include "base/clock.h"

namespace mainarch::cpu {

using backend::BufferId;
using backend::Step;

CpuContext::CpuContext(std::shared_ptr<const CpuModel> model,
                       const backend::ContextOptions& options, const CpuContext* source)
    : wants_resident_(options.resident == backend::ResidentMode::kAuto),
      ws_(std::move(model), options, source == nullptr ? nullptr : &source->ws_),
      width_(ws_.workers) {
  for (uint32_t i = 0; i < ws_.program.ops.size(); ++i) {
    phases_.op = i;
    std::visit([this](const auto& op) { AddPhases(op, &ws_, &phases_); }, ws_.program.ops[i]);
  }
}

StatusOr<std::unique_ptr<backend::Context>> CpuContext::Create(
    std::shared_ptr<const CpuModel> model, const backend::ContextOptions& options) {
  if (options.max_rows == 0 || options.max_logit_rows == 0) {
    return Error(Code::kInvalidArgument, "a context needs at least one row and one logit row");
  }
  if (options.resident == backend::ResidentMode::kOn) {
    return Error(Code::kUnsupported, kNoResident);
  }
  if (options.program >= model->programs().size()) {
    return Error(Code::kInternal, "no Program ", options.program, " of ", model->programs().size());
  }
  const auto* source = dynamic_cast<const CpuContext*>(options.source);
  if (options.source != nullptr && (source == nullptr || source->ws_.model != model)) {
    return backend::WrongSource();
  }
  RETURN_IF_ERROR(backend::CheckSource(backend::ProgramOf(*model, options),
                                       source == nullptr ? nullptr : &source->ws_.program));
  std::unique_ptr<CpuContext> context(new CpuContext(std::move(model), options, source));
  RETURN_IF_ERROR(context->ws_.Allocate());
  return std::unique_ptr<backend::Context>(std::move(context));
}

absl::Span<float> CpuContext::Logits(uint32_t i) {
  return {ws_.logits(i), static_cast<size_t>(ws_.program.logit_width())};
}

Status CpuContext::CopyPage(int32_t cache, uint32_t from, uint32_t to) {
  RETURN_IF_ERROR(ws_.caches.Paged(cache).status());
  return WithContext(ws_.caches.paged(cache).Copy(from, to), absl::StrCat("cache ", cache));
}

StatusOr<backend::KvToken> CpuContext::ReadKv(int32_t cache, int32_t layer, uint32_t page,
                                              uint32_t slot) const {
  ASSIGN_OR_RETURN(const PagedPool* pool, ws_.caches.Paged(cache));
  return pool->Read(layer, page, slot);
}

// All that bits depend on.
std::string CpuContext::content_form() const {
  return absl::StrCat("cpu ", ws_.kernels.name, " ranks ", ws_.program.ranks, " kv ",
                      backend::KvTypesText(ws_.program, ws_.options.kv_type), " activations ",
                      static_cast<int>(ws_.options.activations));
}

std::vector<float> CpuContext::ReadBuffer(int32_t rank, BufferId buffer, uint32_t rows) const {
  const backend::Buffer& b = ws_.program.buffers[static_cast<size_t>(buffer)];
  std::vector<float> out;
  for (uint32_t row = 0; row < rows; ++row) {
    for (int32_t slot = 0; slot < b.slots; ++slot) {
      const float* at = ws_.Row(rank, buffer, row) + slot * ws_.SlotStride(buffer);
      for (int64_t i = 0; i < b.width; ++i) {
        float value = at[i];
        if (b.type == backend::BufferType::kI32) {
          int32_t id;
          std::memcpy(&id, &at[i], sizeof(id));
          value = static_cast<float>(id);
        }
        out.push_back(value);
      }
    }
  }
  return out;
}

Status CpuContext::CheckStep(const Step& step) const {
  const backend::ContextOptions& options = ws_.options;
  if (step.rows.empty() || step.rows.size() > options.max_rows) {
    return Error(Code::kInternal, "step of ", step.rows.size(), " rows; this context takes 1 to ",
                 options.max_rows);
  }
  if (step.logit_rows.size() > options.max_logit_rows) {
    return Error(Code::kInternal, "step asks for ", step.logit_rows.size(), " rows of logits of ",
                 options.max_logit_rows);
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const backend::StepRow& row = step.rows[i];
    if (row.token >= static_cast<uint32_t>(ws_.program.vocab) ||
        row.sequence >= step.sequences.size() ||
        int64_t{row.position} >= ws_.program.max_position) {
      return Error(Code::kInternal, "row ", i, ": token ", row.token, ", position ", row.position,
                   ", sequence ", row.sequence, " out of range");
    }
    if (row.from != backend::kHere) {
      return Error(Code::kInternal, "row ", i, " takes its token from row ", row.from,
                   " of the step before; steps run one at a time here");
    }
    if (i > 0 && step.rows[i - 1].sequence == row.sequence &&
        step.rows[i - 1].position + 1 != row.position) {
      return Error(Code::kInternal, "row ", i, ": position ", row.position,
                   " does not follow the row before");
    }
  }
  if (ws_.source != nullptr) {
    RETURN_IF_ERROR(
        backend::CheckInputs(ws_.program, step, {ws_.source->rows(), ws_.rows()}));
  }
  for (uint32_t row : step.logit_rows) {
    if (row >= step.rows.size()) return Error(Code::kInternal, "logits of row ", row, " asked for");
  }
  return ws_.caches.Check(ws_.program, step);
}

Status CpuContext::RunNow(const Step& step) { return RunPrefix(step, ws_.program.ops.size()); }

Status CpuContext::RunPrefix(const Step& step, size_t end) {
  RETURN_IF_ERROR(CheckStep(step));
  ws_.BeginStep(step);
  stopped_ = false;
  op_end_ = end;
  const bool few = ws_.rows() <= kMaxBlockRows;
  const int64_t begin = NowNs();
  ws_.model->backend().team().Execute(this, few ? width_.current() : ws_.workers);
  if (few && !stopped_ && end == ws_.program.ops.size()) width_.Report(ws_.rows(), NowNs() - begin);
  ws_.model->StepEnded();
  ws_.EndStep();
  if (stopped_) return Error(Code::kCancelled, "step cancelled");
  return OkStatus();
}

uint32_t CpuContext::Open(uint32_t phase) {
  if (stop_requested()) {
    stopped_ = true;
    return kEnd;
  }
  if (phase >= phases_.size() || phases_[phase].op >= op_end_) return kEnd;
  return phases_[phase].Open();
}

void CpuContext::Run(uint32_t phase, uint32_t item, int worker) {
  phases_[phase].Run(item, worker);
}

}  // namespace mainarch::cpu
