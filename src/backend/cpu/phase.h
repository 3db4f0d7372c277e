// SPDX-License-Identifier: MIT
//
// How the CPU runs an op: one or more phases of the team's job, each a number of items that any
// worker may run. ops/*.cc make the phases of one kind of op each; they are made once a context.
#ifndef MAINARCH_BACKEND_CPU_PHASE_H_
#define MAINARCH_BACKEND_CPU_PHASE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/workspace.h"

namespace mainarch::cpu {

class Phase {
 public:
  explicit Phase(Workspace* ws) : ws_(*ws) {}
  virtual ~Phase() = default;

  // On one worker, when the phase before is over: its number of items; 0 skips it.
  virtual uint32_t Open() = 0;
  virtual void Run(uint32_t item, int worker) = 0;

  uint32_t op = 0;     // of the Program
  uint32_t index = 0;  // in the job

 protected:
  // An item that is a row of a rank: item = rank * rows + row.
  uint32_t RowItems() const { return static_cast<uint32_t>(ws_.ranks * ws_.rows()); }
  int32_t RankOf(uint32_t item) const { return static_cast<int32_t>(item / ws_.rows()); }
  int64_t RowOf(uint32_t item) const { return item % ws_.rows(); }
  // Of the cache of slots that an op names: what the step brings for the sequence of a row, and a slot
  // of the op's layer.
  template <class Op>
  const backend::StepCache& CacheOf(const Op& op, int64_t row) const {
    const backend::Step& step = ws_.step();
    return step.sequences[step.rows[static_cast<size_t>(row)].sequence]
        .caches[static_cast<size_t>(op.cache)];
  }
  template <class Op>
  float* SlotAt(const Op& op, int32_t rank, uint32_t slot) const {
    return reinterpret_cast<float*>(ws_.caches.slots(op.cache).At(rank, op.layer, slot));
  }
  // Names what a worker's scratch was filled for.
  uint64_t Tag(int32_t rank) const { return ws_.TagOf(index, rank); }

  Workspace& ws_;
};

// A phase with items for each sequence of the step: its rows stand one behind the other.
class SequencePhase : public Phase {
 public:
  explicit SequencePhase(Workspace* ws) : Phase(ws), first_rows_(ws->options.max_rows + size_t{1}) {}

 protected:
  // In Open: finds the step's sequences.
  void OpenSequences() {
    const absl::Span<const backend::StepRow> rows = ws_.step().rows;
    sequences_ = 0;
    for (uint32_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || rows[i].sequence != rows[i - 1].sequence) first_rows_[sequences_++] = i;
    }
    first_rows_[sequences_] = static_cast<uint32_t>(rows.size());
  }
  uint32_t sequences() const { return sequences_; }
  // Rows [FirstRow(i), FirstRow(i + 1)) are the step's i-th sequence's.
  uint32_t FirstRow(uint32_t i) const { return first_rows_[i]; }

 private:
  std::vector<uint32_t> first_rows_;  // [sequences_ + 1], of the step
  uint32_t sequences_ = 0;
};

class PhaseList {
 public:
  template <class T, class... Args>
  void Add(Args&&... args) {
    phases_.push_back(std::make_unique<T>(std::forward<Args>(args)...));
    phases_.back()->op = op;
    phases_.back()->index = static_cast<uint32_t>(phases_.size()) - 1;
  }
  size_t size() const { return phases_.size(); }
  Phase& operator[](size_t i) const { return *phases_[i]; }

  uint32_t op = 0;  // whose phases are added

 private:
  std::vector<std::unique_ptr<Phase>> phases_;
};

void AddPhases(const backend::EmbedOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::NormMatmulOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::AttentionOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::MatmulAddOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::MatmulOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::AddBiasOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::AllReduceAddOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::NormGateUpOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::RouterOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::ExpertsGateUpOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::ExpertsDownOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::LogitsOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::RecurrentOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::TapOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::InputOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::WideNormOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::AddNormedOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::ExpertsBiasOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::RowGateOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::HeadsMatmulOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::LatentOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::ResizeHeadsOp& op, Workspace* ws, PhaseList* phases);
void AddPhases(const backend::GatedDeltaOp& op, Workspace* ws, PhaseList* phases);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_PHASE_H_
