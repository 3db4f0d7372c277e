// SPDX-License-Identifier: MIT
//
// Weights of a Program as panels: where each row of a panel comes from in the checkpoint, and how
// its bytes are laid out (kernels.h, Panels). A panel is packed either once, at load, or each time
// it is needed, into a worker's scratch (weights used in place); both give the same bytes and so
// the same bits.
#ifndef MAINARCH_BACKEND_CPU_PACK_H_
#define MAINARCH_BACKEND_CPU_PACK_H_

#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/program.h"
#include "base/status.h"

namespace mainarch::cpu {

// The shape of one rank's share of one group of a weight.
struct PanelPlan {
  const backend::Weight* weight = nullptr;
  const backend::WeightSlice* slices = nullptr;
  int32_t slice_count = 0;
  bool gate_up = false;      // panels of slice 0 and slice 1 alternate
  bool decode_to_f32 = false;  // slices of different formats
  int64_t panels = 0;
  int64_t real_cols = 0;
  Panels layout = {};        // data is null
};

StatusOr<PanelPlan> PlanPanels(const backend::Program& program, const backend::Weight& weight,
                               int32_t rank, int32_t group);

// Of a weight of slices one below the other that are of different formats (a GGUF file's Q, K and V):
// plans of the slices of one format each, in order. None when one plan does, or has to.
StatusOr<std::vector<PanelPlan>> PlanSegments(const backend::Program& program,
                                              const backend::Weight& weight, int32_t rank);

// Writes panel `panel` (layout.stride bytes) to out.
void PackPanel(const PanelPlan& plan, int64_t panel, uint8_t* out);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_PACK_H_
