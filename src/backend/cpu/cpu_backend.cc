// SPDX-License-Identifier: MIT
#include "backend/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/threads.h"
#include "base/huge_pages.h"

namespace mainarch::cpu {
namespace {

using backend::Program;
using backend::Weight;
using backend::WeightLayout;

constexpr uint32_t kMaxThreads = 1024;
constexpr size_t kAlign = 64;

size_t Align(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

std::string CpuName() {
  const auto text = ReadWholeFile("/proc/cpuinfo", 1 << 22);
  return text.ok() ? CpuNameOf(*text) : "CPU";
}

Status ReportProgress(const backend::LoadOptions& options, uint64_t done, uint64_t total) {
  if (!options.progress || options.progress(done, total)) return OkStatus();
  return Error(Code::kCancelled, "load cancelled by the progress callback after ", done, " of ",
               total, " bytes");
}

// Packs one weight on all threads.
class PackJob : public Team::Job {
 public:
  explicit PackJob(RankWeight* weight) : packer_(weight) {}

  uint32_t Open(uint32_t phase) override {
    if (phase > 0) return kEnd;
    items_ = static_cast<uint32_t>(std::min<int64_t>(packer_.panels(), 4096));
    return items_;
  }

  void Run(uint32_t, uint32_t item, int) override {
    packer_.Pack(packer_.panels() * item / items_, packer_.panels() * (item + 1) / items_);
  }

 private:
  const WeightPacker packer_;
  uint32_t items_ = 0;
};

uint64_t MachineMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

backend::DeviceInfo InfoOf(const Kernels& kernels, uint32_t threads) {
  backend::DeviceInfo info;
  info.name = CpuName();
  info.isa = kernels.name;
  info.memory_bytes = MachineMemory();
  info.free_bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
                    static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  info.compute_units = threads;
  return info;
}

}  // namespace

StatusOr<std::shared_ptr<backend::Backend>> CpuBackend::Create(int32_t ranks, uint32_t threads,
                                                               absl::string_view target) {
  if (threads > kMaxThreads) {
    return Error(Code::kInvalidArgument, "threads ", threads, ": the limit is ", kMaxThreads);
  }
  std::shared_ptr<CpuBackend> backend(new CpuBackend());
  backend->ranks_ = ranks;
  ASSIGN_OR_RETURN(backend->kernels_, ChooseKernels(target));
  backend->rounds_ = target.empty() ? RoundingIsFaster(*backend->kernels_, CpuVendor())
                                    : backend->kernels_->matmul_bf16 != nullptr;
  const uint32_t workers = threads != 0 ? threads : std::min(UsableCpus(), kMaxThreads);
  ASSIGN_OR_RETURN(backend->team_, Team::Create(static_cast<int>(workers)));
  return std::shared_ptr<backend::Backend>(std::move(backend));
}

StatusOr<backend::DeviceInfo> CpuInfo() {
  ASSIGN_OR_RETURN(const Kernels* const kernels, ChooseKernels(""));
  return InfoOf(*kernels, std::min(UsableCpus(), kMaxThreads));
}

std::vector<backend::DeviceInfo> CpuBackend::devices() const {
  return std::vector<backend::DeviceInfo>(
      static_cast<size_t>(ranks_), InfoOf(*kernels_, static_cast<uint32_t>(team_->workers())));
}

StatusOr<std::shared_ptr<const backend::LoadedModel>> CpuBackend::Load(
    std::vector<std::shared_ptr<const Program>> programs, const backend::LoadOptions& options) {
  ASSIGN_OR_RETURN(auto model,
                   CpuModel::Create(shared_from_this(), std::move(programs), options));
  return std::shared_ptr<const backend::LoadedModel>(std::move(model));
}

StatusOr<std::shared_ptr<const CpuModel>> CpuModel::Create(
    std::shared_ptr<CpuBackend> backend, std::vector<std::shared_ptr<const Program>> programs,
    const backend::LoadOptions& options) {
  for (const std::shared_ptr<const Program>& program : programs) {
    if (program->ranks == backend->ranks()) continue;
    return Error(Code::kInternal, "program of ", program->ranks, " ranks on a group of ",
                 backend->ranks());
  }
  std::shared_ptr<CpuModel> model(new CpuModel());
  model->backend_ = std::move(backend);
  model->programs_ = std::move(programs);
  model->map_ = backend::MapWeights(model->programs_);
  RETURN_IF_ERROR(model->Plan());
  RETURN_IF_ERROR(model->Reserve(/*panels=*/!options.in_place));
  if (options.in_place) {
    RETURN_IF_ERROR(ReportProgress(options, 0, 0));
  } else if (options.behind) {
    RETURN_IF_ERROR(model->PlaceBehind(options));
  } else {
    RETURN_IF_ERROR(model->PlaceNow(options));
  }
  return std::shared_ptr<const CpuModel>(std::move(model));
}

Status CpuModel::Plan() {
  const Program& program = *programs_[0];
  weights_.resize(static_cast<size_t>(program.ranks));
  for (int32_t rank = 0; rank < program.ranks; ++rank) {
    std::vector<RankWeight>& own = weights_[static_cast<size_t>(rank)];
    own = std::vector<RankWeight>(map_.weights.size());
    for (size_t id = 0; id < map_.weights.size(); ++id) {
      const Weight& weight = *map_.weights[id];
      if (weight.layout != WeightLayout::kPanels && weight.layout != WeightLayout::kGateUp) continue;
      ASSIGN_OR_RETURN(own[id].plans, PlanSegments(program, weight, rank));
      own[id].segments = !own[id].plans.empty();
      for (int32_t group = 0; group < weight.groups && !own[id].segments; ++group) {
        ASSIGN_OR_RETURN(PanelPlan plan, PlanPanels(program, weight, rank, group));
        own[id].plans.push_back(plan);
      }
      for (const PanelPlan& plan : own[id].plans) own[id].panels.push_back(plan.layout);
    }
  }
  return OkStatus();
}

// Address space for all that will be in memory of our own, and what is there at once: the vectors.
Status CpuModel::Reserve(bool panels) {
  const Program& program = *programs_[0];
  size_t bytes = 0;
  for (int32_t rank = 0; rank < program.ranks; ++rank) {
    const std::vector<RankWeight>& own = weights_[static_cast<size_t>(rank)];
    for (size_t id = 0; id < own.size(); ++id) {
      if (panels) panel_bytes_ += own[id].bytes();
      const Weight& weight = *map_.weights[id];
      if (weight.layout == WeightLayout::kVector) {
        bytes += Align(static_cast<size_t>(backend::VectorSize(weight, rank)) * sizeof(float));
      }
    }
  }
  ASSIGN_OR_RETURN(memory_, Mapping::Anonymous(bytes + panel_bytes_, /*huge_pages=*/true));
  SpreadOverNodes(memory_.data(), memory_.size());
  uint8_t* at = memory_.data();
  for (int32_t rank = 0; rank < program.ranks; ++rank) {
    std::vector<RankWeight>& own = weights_[static_cast<size_t>(rank)];
    for (size_t id = 0; id < own.size(); ++id) {
      const Weight& weight = *map_.weights[id];
      if (weight.layout != WeightLayout::kVector) continue;
      backend::DecodeVector(weight, rank, reinterpret_cast<float*>(at));
      own[id].vector = reinterpret_cast<const float*>(at);
      at += Align(static_cast<size_t>(backend::VectorSize(weight, rank)) * sizeof(float));
    }
  }
  if (!panels) return OkStatus();
  for (std::vector<RankWeight>& own : weights_) {
    for (RankWeight& weight : own) {
      for (size_t group = 0; group < weight.plans.size(); ++group) {
        weight.panels[group].data = at;
        at += static_cast<size_t>(weight.plans[group].panels) * weight.panels[group].stride;
      }
    }
  }
  return OkStatus();
}

Status CpuModel::PlaceNow(const backend::LoadOptions& options) {
  uint64_t done = 0;
  for (std::vector<RankWeight>& own : weights_) {
    for (RankWeight& weight : own) {
      if (weight.plans.empty()) continue;
      PackJob job(&weight);
      backend_->team().Execute(&job);
      weight.ready.store(true, std::memory_order_release);
      done += weight.bytes();
      RETURN_IF_ERROR(ReportProgress(options, done, panel_bytes_));
    }
  }
  settled_ = true;
  return ReportProgress(options, panel_bytes_, panel_bytes_);
}

Status CpuModel::PlaceBehind(const backend::LoadOptions& options) {
  // In the order of the program: the first layers of every rank first.
  std::vector<RankWeight*> order;
  for (size_t id = 0; id < map_.weights.size(); ++id) {
    for (std::vector<RankWeight>& own : weights_) {
      if (!own[id].plans.empty()) order.push_back(&own[id]);
    }
  }
  ASSIGN_OR_RETURN(mover_, Mover::Start(std::move(order), options.before_move));
  return OkStatus();
}

backend::Placement CpuModel::placement() const {
  backend::Placement placement;
  placement.total = panel_bytes_;
  placement.done = mover_ == nullptr ? panel_bytes_ : mover_->done();
  if (mover_ != nullptr) placement.status = mover_->status();
  return placement;
}

uint64_t CpuModel::huge_bytes() const { return HugeBytes(memory_.data(), memory_.size()); }

std::vector<const Program*> CpuModel::programs() const {
  std::vector<const Program*> out;
  for (const std::shared_ptr<const Program>& program : programs_) out.push_back(program.get());
  return out;
}

void CpuModel::WaitPlaced() const {
  if (mover_ != nullptr) mover_->Wait();
}

// The pool is backed as it is used, so it may be larger than what is free, but not than what there is.
backend::KvRoom CpuModel::kv_room(backend::KvType type, const Program* variant) const {
  backend::KvRoom room = {MachineMemory(), {}};
  for (size_t i = 0; i < programs_.size(); ++i) {
    const Program& program = i == 0 && variant != nullptr ? *variant : *programs_[i];
    for (const uint64_t bytes : Caches::BytesOfUnits(program, type)) {
      room.unit_bytes.push_back(bytes);
    }
  }
  return room;
}

StatusOr<std::unique_ptr<backend::Context>> CpuModel::CreateContext(
    const backend::ContextOptions& options) const {
  return CpuContext::Create(shared_from_this(), options);
}

}  // namespace mainarch::cpu
