// SPDX-License-Identifier: MIT
#include "cli/time_step.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "base/clock.h"
#include "cli/gpu_step_counts.h"
#include "cli/temporary_directory.h"
#include "gpu/code_object.h"
#include "isa/kernel_images.h"
#include "model/arch/arch.h"
#include "model/kv_pages.h"
#include "model/model.h"

namespace mainarch::cli {
namespace {

using sim::timing::LaunchReport;

constexpr uint32_t kTimeoutMs = 36'000'000;  // an interpreter at work

// After how many layers their kinds begin again; all, where they never do.
int32_t PeriodOf(const model::ModelConfig& c) {
  const auto same = [&](int32_t period) {
    for (size_t i = static_cast<size_t>(period); i < c.sparse_layer.size(); ++i) {
      const size_t before = i - static_cast<size_t>(period);
      if (c.sparse_layer[i] != c.sparse_layer[before] || c.IsDelta(i) != c.IsDelta(before)) return false;
    }
    return true;
  };
  int32_t period = 1;
  while (period < c.layers && (c.layers % period != 0 || !same(period))) ++period;
  return period;
}

// The share of `ranks` GPUs, with so many layers; an error where layers differ.
StatusOr<model::ModelConfig> ShareToRun(const StepTimeOptions& o) {
  const model::ModelConfig& whole = o.config;
  for (const auto& [name, value] : {std::pair{"heads", whole.heads}, {"vocab", whole.vocab}}) {
    if (value % o.tp != 0) return Error(Code::kInvalidArgument, "--tp ", o.tp, " does not divide ", name, " ", value);
  }
  const auto power = [](int32_t n) { return n > 0 && (n & (n - 1)) == 0; };
  if (!power(o.tp) || !power(o.ranks) || o.ranks > o.tp) {
    return Error(Code::kInvalidArgument, "--ranks ", o.ranks, " of --tp ", o.tp, ": 1, 2, 4 or 8, of no more");
  }
  const int32_t period = PeriodOf(whole);
  if (o.layers < whole.layers && (period == whole.layers || o.layers % period != 0)) {
    return Error(Code::kUnsupported, "layers differ: --run-layers must be ",
                 period == whole.layers ? "" : absl::StrCat("a multiple of ", period, ", or "), "all ",
                 whole.layers, ", not ", o.layers);
  }
  model::ModelConfig share = ShareOf(whole, o.tp, o.ranks);
  share.layers = std::min(o.layers, whole.layers);
  share.sparse_layer.resize(static_cast<size_t>(share.layers));
  if (!share.delta_layer.empty()) share.delta_layer.resize(share.sparse_layer.size());
  share.max_position = std::max<int64_t>(share.max_position, o.position + o.rows);
  return share;
}

// The Programs of `ranks` of `tp` GPUs, whose share of the model the checkpoint is: a rank has as many of a
// weight's parts as it has of the whole model's.
StatusOr<std::shared_ptr<const backend::LoadedModel>> LoadShare(const std::shared_ptr<backend::Backend>& backend,
                                                                const std::string& path, int32_t tp) {
  ASSIGN_OR_RETURN(const auto checkpoint, file::Checkpoint::Open(path));
  ASSIGN_OR_RETURN(model::ModelConfig config,
                   model::ParseConfig(checkpoint->config_json(), checkpoint->generation_config_json(), path));
  config.stored = backend->StoredHeads(config.Heads());
  const int32_t ranks = backend->ranks();
  ASSIGN_OR_RETURN(auto programs, model::BuildPrograms(*model::FindArch(config.model_type), config, checkpoint, ranks));
  for (auto& program : programs) {
    backend::Program share = *program;
    for (backend::Weight& weight : share.weights) {
      std::vector<int64_t> own;
      const size_t apart = static_cast<size_t>(tp / ranks);
      for (size_t i = 0; i < weight.splits.size(); i += apart) own.push_back(weight.splits[i]);
      weight.splits = std::move(own);
    }
    program = std::make_shared<const backend::Program>(std::move(share));
  }
  return backend->Load(std::move(programs), {});
}

// The decoder's image, where its kernels were loaded: found by a descriptor that ran.
void AddImage(const std::string& isa, const LaunchReport& report, Places* places) {
  const auto ref = isa::FindKernel(isa, report.kernel);
  if (!ref.ok()) return;
  const auto object = gpu::CodeObject::Parse(ref->image->name, ref->image->bytes);
  if (!object.ok()) return;
  for (const gpu::CodeKernel& kernel : object->kernels()) {
    if (kernel.name != report.kernel) continue;
    places->Add(report.kernel_object - kernel.descriptor_vaddr, object->image_size(), ref->image->bytes);
    return;
  }
}

// The same of what the resident kernel jumps into.
void AddThreaded(const std::string& isa, const amdgpu::Gpus& gpus, StepTime* out) {
  out->names.assign(out->launches.size(), "resident");
  for (const LaunchReport& report : out->launches) out->instructions += report.instructions;
  const amdgpu::Gpu& gpu = gpus.at(0);
  for (const auto& [name, code] : {std::pair{"embed", gpu.threaded[0].get()}, {"resident", gpu.resident.get()}}) {
    const auto ref = isa::FindKernel(isa, name);
    if (ref.ok() && code != nullptr) out->places.Add(code->va(), code->size(), ref->image->bytes);
  }
}

struct LayersRun {
  int32_t layers;
  int32_t last_op;  // of the Program's ops from the second on, the last that is a layer's
};

// Rank 0's packets, each from the end of the one before it, by op.
class Summary {
 public:
  Summary(const StepTimeOptions& options, const LayersRun& run, StepTime* out)
      : scale_(static_cast<double>(options.config.layers) / run.layers), run_(run), out_(*out) {}

  void Add(const LaunchReport& report, const StepPacket& packet, bool new_op) {
    OpTime& op = Row(packet.name);
    // Of one that runs beside the one before, what it takes longer.
    const double begin = before_ < 0 ? report.start_us : before_;
    const double us = std::max(report.end_us - begin, 0.0), own = std::min(report.us(), us);
    ran_[packet.name] += new_op;
    if (packet.op > 0 && packet.op <= run_.last_op) in_layers_.insert(packet.name);
    ++op.packets;
    op.us += us;
    op.floor_us += static_cast<double>(packet.least_bytes) /
                   (out_.params.hbm_tbs * out_.params.hbm_read_share) * 1e-6;
    for (size_t i = 0; i < sim::timing::kLimits; ++i) op.limited_by[i] += report.limited_by[i] * own;
    op.limited_by[static_cast<size_t>(sim::timing::Limit::kLaunch)] += us - own;
    op.waves_per_simd += report.mean_waves_per_simd * us;
    op.in_flight += report.mean_in_flight * us;
    before_ = std::max(before_, report.end_us);
  }

  // Behind Add.
  void AddWait(const StepPacket& packet, double us) { Row(packet.name).wait_us += us; }

  // What ran in layers stands for all layers; the rest runs once.
  void Finish() {
    for (OpTime& op : out_.ops) {
      const uint32_t ran = std::max(ran_[op.name], 1u);
      op.times = in_layers_.count(op.name) != 0 ? ran * scale_ : ran;
      op.waves_per_simd = op.us > 0 ? op.waves_per_simd / op.us : 0;
      op.in_flight = op.us > 0 ? op.in_flight / op.us : 0;
      op.us /= ran;
      op.wait_us /= ran;
      op.floor_us /= ran;
      for (double& share : op.limited_by) share /= ran;
      out_.us += op.us * op.times;
      out_.wait_us += op.wait_us * op.times;
      out_.floor_us += op.floor_us * op.times;
    }
  }

 private:
  OpTime& Row(const std::string& name) {
    for (OpTime& op : out_.ops) {
      if (op.name == name) return op;
    }
    out_.ops.emplace_back();
    out_.ops.back().name = name;
    return out_.ops.back();
  }

  const double scale_;
  const LayersRun run_;
  StepTime& out_;
  double before_ = -1;
  std::map<std::string, uint32_t> ran_;  // ops
  std::set<std::string> in_layers_;
};

Status Summarise(const StepTimeOptions& options, const LayersRun& layers, const std::vector<StepPacket>& packets,
                 std::vector<LaunchReport> reports, StepTime* out) {
  std::map<uint32_t, std::vector<LaunchReport>> by_gpu;
  for (LaunchReport& report : reports) by_gpu[report.gpu].push_back(std::move(report));
  Summary summary(options, layers, out);
  for (auto& [gpu, own] : by_gpu) {
    if (own.size() != packets.size()) {
      return Error(Code::kInternal, own.size(), " kernels ran on GPU ", gpu, "; the step has ", packets.size(),
                   " packets");
    }
    std::sort(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.dispatch_id < b.dispatch_id; });
    for (size_t i = 0; i < own.size(); ++i) {
      const bool new_op = i == 0 || packets[i].op != packets[i - 1].op;
      if (gpu == 0) summary.Add(own[i], packets[i], new_op);
      out->instructions += own[i].instructions;
      out->names.push_back(packets[i].name);
    }
    if (gpu == 0) {
      out->run_us = own.back().end_us - own.front().start_us;
      AddImage(options.isa, own.front(), &out->places);
    }
    std::move(own.begin(), own.end(), std::back_inserter(out->launches));
  }
  summary.Finish();
  return OkStatus();
}

}  // namespace

// An ask that comes when one op has just looked is seen by the next one that does.
void FindPauses(const std::vector<backend::OpTimes>& times, StepTime* out) {
  const backend::OpTimes* before = nullptr;
  for (const backend::OpTimes& op : times) {
    if (op.stop_at == 0) continue;
    const double leaves_us = times[op.stop_at].began_us;
    if (before != nullptr) out->pause_us = std::max(out->pause_us, leaves_us - before->ready_us);
    if (before == nullptr) out->pause_between_us = leaves_us - times[0].began_us;
    before = &op;
  }
  out->pause_between_us += times.back().began_us - (before != nullptr ? before : times.data())->ready_us;
}

// The same of a step that the resident kernel ran, by its own times.
Status SummariseResident(const StepTimeOptions& options, const LayersRun& layers,
                         const std::vector<StepPacket>& packets, StepTime* out) {
  const std::vector<backend::OpTimes>& times = out->resident[0];
  if (times.size() != packets.size() + 1) {
    return Error(Code::kInternal, times.size(), " times of ", packets.size(), " launches");
  }
  Summary summary(options, layers, out);
  for (size_t i = 0; i < packets.size(); ++i) {
    LaunchReport report;
    report.start_us = times[i].began_us - times[0].began_us;
    report.end_us = times[i + 1].began_us - times[0].began_us;
    summary.Add(report, packets[i], i == 0 || packets[i].op != packets[i - 1].op);
    summary.AddWait(packets[i], times[i + 1].began_us - times[i + 1].ready_us);
    out->resident_names.push_back(packets[i].name);
  }
  out->run_us = times.back().began_us - times[0].began_us;
  FindPauses(times, out);
  summary.Finish();
  return OkStatus();
}

StatusOr<StepTime> TimeStep(const StepTimeOptions& o) {
  ASSIGN_OR_RETURN(const model::ModelConfig share, ShareToRun(o));
  ASSIGN_OR_RETURN(const auto directory, TemporaryDirectory::Create());
  const std::string path = absl::StrCat(directory->path(), "/model");
  model::SyntheticOptions synthetic;
  synthetic.format = o.format;
  RETURN_IF_ERROR(model::WriteSyntheticCheckpoint(share, path, synthetic));
  ASSIGN_OR_RETURN(const TimedNode node, OpenTimed(absl::StrCat(o.isa, "x", o.ranks), {o.params, o.spans}));
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(node.sys, "", false, kTimeoutMs));
  amdgpu::Gpus& group = *gpus;
  ASSIGN_OR_RETURN(const auto backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
  ASSIGN_OR_RETURN(const auto model, LoadShare(backend, path, o.tp));
  const backend::Program& program = model->program();
  const LoggedStep step = {o.position, program.ops.size(), o.outcome, o.rows, o.prompt};
  backend::ContextOptions context_options = ContextFor(program, step, o.kv);
  context_options.activations = o.activations;
  if (o.resident) context_options.resident = backend::ResidentMode::kOn;
  context_options.resident_times = o.resident;
  ASSIGN_OR_RETURN(auto context, model->CreateContext(context_options));
  RETURN_IF_ERROR(FillContext(context.get(), program, step));

  StepTime out;
  out.params = node.params;
  node.clock->Take();
  node.clock->TakeCopies();
  // Weights are uploaded, caches hold what they like: a step begins as one does after the whole model.
  for (int32_t gpu = 0; gpu < o.ranks; ++gpu) node.clock->Flush(static_cast<uint32_t>(gpu));
  const int64_t began = NowNs();
  RETURN_IF_ERROR(RunLoggedStep(context.get(), program, step));
  out.host_seconds = static_cast<double>(NowNs() - began) * 1e-9;
  out.copies = node.clock->TakeCopies();
  const LayersRun layers = {share.layers, program.layer_ends.back()};
  const std::vector<StepPacket> packets = PacketsOf(*model, context_options, step);
  if (o.resident) {
    for (int32_t rank = 0; rank < o.ranks; ++rank) {
      ASSIGN_OR_RETURN(out.resident.emplace_back(), context->ResidentTimes(rank));
    }
    RETURN_IF_ERROR(SummariseResident(o, layers, packets, &out));
    context.reset();  // it ends, and its launch is reported
    out.launches = node.clock->Take();
    AddThreaded(o.isa, group, &out);
  } else {
    RETURN_IF_ERROR(Summarise(o, layers, packets, node.clock->Take(), &out));
  }
  return out;
}

}  // namespace mainarch::cli
