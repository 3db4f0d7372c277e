// SPDX-License-Identifier: MIT
//
// Which rows of a checkpoint's matrices stand side by side in one panel (CPU) or tile (GPU).
//
// Owner: nobody; pure functions over a Weight that the caller keeps.
#ifndef MAINARCH_BACKEND_ROW_PLACES_H_
#define MAINARCH_BACKEND_ROW_PLACES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "backend/program.h"

namespace mainarch::backend {

struct RowPlace {
  const quant::Matrix* matrix = nullptr;  // null: zeros
  int64_t row = 0;
  int64_t col = 0;  // the first
};

inline int64_t RowsOf(const WeightSlice& slice) { return slice.row_end - slice.row_begin; }

// Fills `rows` with those of unit `unit`: the slices stand one below the other and are cut into
// units of rows.size() rows; with `gate_up`, units of slice 0 and slice 1 alternate.
void PlaceRows(const Weight& weight, absl::Span<const WeightSlice> slices, bool gate_up,
               int64_t unit, absl::Span<RowPlace> rows);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_ROW_PLACES_H_
