// SPDX-License-Identifier: MIT
//
// The CPU backend: N ranks in one process over one team of threads. A rank is a shard of the work,
// not a thread: every phase holds the items of all ranks, so any number of ranks runs on any number
// of threads without waiting for one another.
#ifndef MAINARCH_BACKEND_CPU_CPU_BACKEND_H_
#define MAINARCH_BACKEND_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/mover.h"
#include "backend/weight_map.h"
#include "base/fd.h"
#include "base/team.h"

namespace mainarch::cpu {

// The CPU as a backend would have it by default.
StatusOr<backend::DeviceInfo> CpuInfo();

class CpuBackend : public backend::Backend, public std::enable_shared_from_this<CpuBackend> {
 public:
  static StatusOr<std::shared_ptr<backend::Backend>> Create(int32_t ranks, uint32_t threads,
                                                            absl::string_view target);

  int32_t ranks() const override { return ranks_; }
  std::vector<backend::DeviceInfo> devices() const override;
  StatusOr<std::shared_ptr<const backend::LoadedModel>> Load(
      std::vector<std::shared_ptr<const backend::Program>> programs,
      const backend::LoadOptions& options) override;
  using Backend::Load;

  const Kernels& kernels() const { return *kernels_; }
  // For what asks for bf16 activations: whether it gets them. Where they are no faster, or the system refuses
  // what they need (Kernels::may_round), it gets fp32 ones. A target that was named does what it can.
  bool MayRound() const {
    return rounds_ && (kernels_->may_round == nullptr || kernels_->may_round());
  }
  Team& team() { return *team_; }

 private:
  CpuBackend() = default;

  int32_t ranks_ = 1;
  const Kernels* kernels_ = nullptr;
  bool rounds_ = false;
  std::unique_ptr<Team> team_;
};

class CpuModel : public backend::LoadedModel,
                 public std::enable_shared_from_this<CpuModel> {
 public:
  static StatusOr<std::shared_ptr<const CpuModel>> Create(
      std::shared_ptr<CpuBackend> backend,
      std::vector<std::shared_ptr<const backend::Program>> programs,
      const backend::LoadOptions& options);

  StatusOr<std::unique_ptr<backend::Context>> CreateContext(
      const backend::ContextOptions& options) const override;
  const backend::Program& program() const override { return *programs_[0]; }
  std::vector<const backend::Program*> programs() const override;
  const backend::Program& program(size_t index) const { return *programs_[index]; }
  uint64_t weight_bytes() const override { return memory_.size(); }
  backend::Placement placement() const override;
  uint64_t huge_bytes() const override;
  backend::KvRoom kv_room(backend::KvType type, const backend::Program* variant = nullptr) const override;
  void WaitPlaced() const override;

  const RankWeight& weight(size_t program, int32_t rank, backend::WeightId id) const {
    return weights_[static_cast<size_t>(rank)][map_.index[program][static_cast<size_t>(id)]];
  }
  // By every context, after each step: what waits for the first one need wait no longer.
  void StepEnded() const {
    if (mover_ != nullptr) mover_->Begin();
  }
  // All weights stand in their panels, for good. Else ask each weight whether it is ready.
  bool settled() const { return settled_; }
  CpuBackend& backend() const { return *backend_; }

 private:
  CpuModel() = default;

  Status Plan();
  Status Reserve(bool panels);
  Status PlaceNow(const backend::LoadOptions& options);
  Status PlaceBehind(const backend::LoadOptions& options);

  std::shared_ptr<CpuBackend> backend_;
  std::vector<std::shared_ptr<const backend::Program>> programs_;
  backend::WeightMap map_;
  bool settled_ = false;
  std::vector<std::vector<RankWeight>> weights_;  // [ranks][map_.weights]
  Mapping memory_;                                // panels and vectors
  uint64_t panel_bytes_ = 0;                      // of all weights that go into panels
  std::unique_ptr<Mover> mover_;                  // last: its thread uses the others
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_CPU_BACKEND_H_
