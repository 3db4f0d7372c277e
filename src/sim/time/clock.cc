// SPDX-License-Identifier: MIT
#include "sim/time/clock.h"

#include <algorithm>
#include <utility>

#include "sim/time/gpu.h"

namespace mainarch::sim::timing {
namespace {

Status Apply(const ClockOptions& options, Params* params) {
  for (const auto& [name, value] : options.params) RETURN_IF_ERROR(params->Set(name, value));
  return OkStatus();
}

}  // namespace

Clock::Clock(const ClockOptions& options) : options_(options) {}
Clock::~Clock() = default;

Status Clock::Check(const ClockOptions& options, isa::Isa isa) {
  Params params = Params::Of(isa);
  return Apply(options, &params);
}

std::unique_ptr<isa::PacedGrid> Clock::Begin(isa::Grid* grid) {
  const uint32_t index = grid->launch().ticket.gpu;
  std::unique_ptr<Gpu>& gpu = gpus_[index];
  if (gpu == nullptr) {
    Params params = Params::Of(grid->isa());
    const Status ignored = Apply(options_, &params);  // Check has told whoever wanted to know
    (void)ignored;
    gpu = std::make_unique<Gpu>(this, index, grid->isa(), params, options_, grid->limits());
  }
  auto job = std::make_unique<Job>(gpu.get(), grid);
  gpu->Add(job.get());
  return job;
}

void Clock::Add(LaunchReport report) {
  if (!options_.reports) return;
  std::lock_guard<std::mutex> lock(mutex_);
  reports_.push_back(std::move(report));
}

std::vector<LaunchReport> Clock::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(reports_, {});
}

std::vector<CopyReport> Clock::TakeCopies() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(copies_, {});
}

void Clock::Flush(uint32_t gpu) {
  const auto it = gpus_.find(gpu);
  if (it != gpus_.end()) it->second->Flush();
}

double Clock::NowUs(uint32_t gpu) {
  const auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return 0;
  return it->second->params().us(static_cast<double>(it->second->now()));
}

uint64_t Clock::Ticks(uint32_t gpu) { return static_cast<uint64_t>(NowUs(gpu) * 100); }

void Clock::Copied(uint32_t gpu, uint32_t queue, uint32_t from, uint32_t to, uint64_t bytes) {
  const auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return;
  CopyReport report;
  it->second->Copy(queue, from, to, bytes, &report);
  if (!options_.reports) return;
  std::lock_guard<std::mutex> lock(mutex_);
  copies_.push_back(report);
}

Gpu* Clock::GpuAt(uint32_t gpu, Gpu* otherwise) {
  const auto it = gpus_.find(gpu);
  return it == gpus_.end() ? otherwise : it->second.get();
}

void Clock::LandAll(const Job* job) {
  for (const auto& [index, gpu] : gpus_) gpu->Land(kNever, job);
}

void Clock::Forget(const Job* job) {
  for (const auto& [index, gpu] : gpus_) gpu->Forget(job);
}

// Where the least advanced of the other GPUs that have work stands, on this one's clock; kNever when
// none has. *alone: there are no others at all.
int64_t Clock::Others(const Gpu& self, bool* alone) const {
  int64_t least = kNever;
  for (const auto& [index, gpu] : gpus_) {
    if (gpu.get() == &self) continue;
    *alone = false;
    least = std::min(least, gpu->standing());
  }
  return least;
}

}  // namespace mainarch::sim::timing
