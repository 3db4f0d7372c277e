// SPDX-License-Identifier: MIT
#include "backend/row_places.h"

#include <algorithm>

namespace mainarch::backend {

void PlaceRows(const Weight& weight, absl::Span<const WeightSlice> slices, bool gate_up,
               int64_t unit, absl::Span<RowPlace> rows) {
  const int64_t count = static_cast<int64_t>(rows.size());
  std::fill(rows.begin(), rows.end(), RowPlace());
  if (gate_up) slices = slices.subspan(static_cast<size_t>(unit % 2), 1);
  int64_t first = (gate_up ? unit / 2 : unit) * count;
  for (const WeightSlice& slice : slices) {
    for (int64_t i = std::max<int64_t>(0, -first); i < count && first + i < RowsOf(slice); ++i) {
      rows[static_cast<size_t>(i)] = {&weight.sources[static_cast<size_t>(slice.source)],
                                      slice.row_begin + first + i, slice.col_begin};
    }
    first -= RowsOf(slice);
  }
}

}  // namespace mainarch::backend
