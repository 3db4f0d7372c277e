// SPDX-License-Identifier: MIT
#include "cli/attn_time.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/long_context.h"
#include "cli/geometry.h"
#include "cli/gpu_step_counts.h"
#include "model/model.h"

namespace mainarch::cli {
namespace {

using sim::timing::LaunchReport;

constexpr uint32_t kTimeoutMs = 36'000'000;  // an interpreter at work

constexpr uint32_t kWarmTokens = 1 << 16;      // enough for every compute unit to have a split

// One token at a position, up to and with the attention.
Status RunToken(backend::Context* context, size_t end, uint32_t position, const std::vector<uint32_t>& pages) {
  const backend::StepRow row = {7, position, 0};
  const backend::StepCache cache = {pages};
  const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1)};
  const uint32_t logit_row = 0;
  backend::Step step;
  step.rows = absl::MakeConstSpan(&row, 1);
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  step.logit_rows = absl::MakeConstSpan(&logit_row, 1);
  return context->RunPrefix(step, end);
}

// How many workgroups of a launch that attends to one row merge as well, where it does (kernels::AttendHere).
size_t MergersOf(const backend::Program& program, const backend::AttentionOp& op, uint32_t position, uint32_t compute_units) {
  const backend::PagedCache& cache = backend::CacheOf(program, op);
  const uint32_t splits = kernels::LongSplits(position);
  const uint32_t columns = splits <= kernels::kHereWideSplits ? kernels::HereWideColumns(static_cast<uint32_t>(cache.value_dim))
                                                              : kernels::kLongMergeColumns;
  return splits <= 1 ? 0 : amdgpu::HereMergers(static_cast<uint64_t>(op.heads), cache, columns, compute_units);
}

// What a launch takes after the last of its parts: of those that merge each waits for all, so the others end before.
// NAN: nothing tells when the parts were there, for all merge, or some began when others had ended.
double MergeTailUs(const LaunchReport& r, size_t mergers) {
  if (mergers == 0) return 0;
  if (r.spans.size() <= mergers || r.workgroups > uint64_t{r.groups_per_cu} * r.cus) return NAN;
  std::vector<double> ends;
  for (const auto& span : r.spans) ends.push_back(span.end_us);
  std::sort(ends.begin(), ends.end(), std::greater<>());
  return ends[0] - ends[mergers];
}

AttentionTime SummaryOf(const std::vector<LaunchReport>& reports, const std::vector<StepPacket>& packets,
                        int32_t attention, size_t mergers, const sim::timing::Params& params) {
  AttentionTime out;
  bool apart = false;
  for (size_t i = 0; i < reports.size(); ++i) {
    apart |= packets[i].op == attention && absl::StrContains(reports[i].kernel, "merge");
  }
  double before = reports.front().start_us;
  for (size_t i = 0; i < reports.size(); ++i) {
    const LaunchReport& r = reports[i];
    if (packets[i].op == attention) {
      const double us = std::max(r.end_us - before, 0.0);
      out.packets.push_back({r.kernel, us, MemoryFloorUs(r, params), LimitsText(r)});
      const bool merges = absl::StrContains(r.kernel, "merge");
      if (merges) out.merge_us += us;
      if (!apart && absl::StrContains(r.kernel, "attend")) out.merge_us += MergeTailUs(r, mergers);
      if (merges || absl::StrContains(r.kernel, "attend")) out.us += us;
    }
    before = std::max(before, r.end_us);
  }
  out.read_tbs = params.hbm_tbs * params.hbm_read_share;
  return out;
}

}  // namespace

StatusOr<AttentionTime> TimeAttention(const model::ModelConfig& whole, int32_t ranks, const std::string& isa,
                                      const backend::ContextOptions& options, uint32_t position) {
  const int32_t together = std::max(1, ranks / whole.kv_heads);
  model::ModelConfig share = ShareOf(whole, ranks, together);
  if (together > 1) share.kv_heads = 1;
  ASSIGN_OR_RETURN(const auto directory, MakeTemporaryCheckpoint(share, model::SyntheticFormat::kBF16, 0));
  TimedOptions timed;
  timed.matrix = false;
  timed.spans = true;
  ASSIGN_OR_RETURN(const TimedNode node, OpenTimed(absl::StrCat(isa, "x", together), timed));
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(node.sys, "", false, kTimeoutMs));
  ASSIGN_OR_RETURN(const auto backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
  ASSIGN_OR_RETURN(const auto model, model::Model::Load(backend, directory->path(), {}));
  const backend::Program& program = model->weights().program();
  size_t attention = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (std::holds_alternative<backend::AttentionOp>(program.ops[i])) attention = i;
  }
  ASSIGN_OR_RETURN(const auto context, model->weights().CreateContext(options));
  // The kernels' instructions come from caches, as in every layer but the first; K and V from memory.
  const std::vector<uint32_t> one_page(options.pages[0], options.pages[0] - 1);
  RETURN_IF_ERROR(RunToken(context.get(), attention + 1, std::min(position, kWarmTokens), one_page));
  node.clock->Take();
  std::vector<uint32_t> pages(options.pages[0]);
  std::iota(pages.begin(), pages.end(), 0);
  RETURN_IF_ERROR(RunToken(context.get(), attention + 1, position, pages));
  std::vector<LaunchReport> reports = node.clock->Take();
  reports.erase(std::remove_if(reports.begin(), reports.end(), [](const auto& r) { return r.gpu != 0; }), reports.end());
  std::sort(reports.begin(), reports.end(),
            [](const auto& a, const auto& b) { return a.dispatch_id < b.dispatch_id; });
  // A long list of pages goes ahead of the step by a kernel of its own.
  const std::vector<StepPacket> packets =
      PacketsOf(model->weights(), options, {position, attention + 1, Outcome::kRead, 1});
  if (reports.size() < packets.size()) {
    return Error(Code::kInternal, reports.size(), " kernels ran; the step has ", packets.size(), " packets");
  }
  reports.erase(reports.begin(), reports.end() - static_cast<ptrdiff_t>(packets.size()));
  const uint32_t compute_units = model->backend().devices()[0].compute_units;
  AttentionTime out = SummaryOf(reports, packets, static_cast<int32_t>(attention),
                                MergersOf(program, std::get<backend::AttentionOp>(program.ops[attention]), position, compute_units),
                                node.params);
  out.error = ModelError(isa);
  return out;
}

}  // namespace mainarch::cli
