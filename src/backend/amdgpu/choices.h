// SPDX-License-Identifier: MIT
//
// A step's choices as the kernels read them (kernels/decoder_args.h ChoiceRow). Pure: writes words.
#ifndef MAINARCH_BACKEND_AMDGPU_CHOICES_H_
#define MAINARCH_BACKEND_AMDGPU_CHOICES_H_

#include <cstdint>

#include "backend/backend.h"
#include "kernels/choice_args.h"

namespace mainarch::amdgpu {

inline constexpr uint32_t kChoiceRowWords = sizeof(kernels::ChoiceRow) / 4;

// What a step asks of the kernels that choose.
struct ChoiceWork {
  uint32_t end = 0;     // the first word after what was written
  bool races = false;   // some row's token is drawn, and not at once (kernels::ChoosesAtOnce)
};
// What becomes of one logit row.
struct RowOutcome {
  bool read = false;  // its logits come to host memory
  bool told = false;  // its token is chosen, and told to the step behind
};
// Writes the rows at block[at], their lists behind them, nothing at block[end] or beyond; the rows
// themselves must fit. A row whose lists do not fit is read instead.
ChoiceWork WriteChoices(const backend::Step& step, uint32_t at, uint32_t end, uint32_t* block,
                        absl::Span<RowOutcome> outcomes);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_CHOICES_H_
