// SPDX-License-Identifier: MIT
//
// What a step takes that other steps left: taps (ContextOptions::source), pages, states in slots.
#ifndef MAINARCH_BACKEND_SOURCE_H_
#define MAINARCH_BACKEND_SOURCE_H_

#include "backend/backend.h"
#include "backend/program.h"
#include "base/status.h"

namespace mainarch::backend {

// The source's Program has the taps that InputOps of `program` read, of their widths. No source: null.
Status CheckSource(const Program& program, const Program* source);
// Rows that the last steps had: of the source, and of the context itself.
struct InputRows {
  int64_t source = 0;
  int64_t own = 0;
};
// Each of Step::inputs, one a row, is there. Carried ones are first rows of their sequences, of a
// Program whose InputOps all have a state; a state is written only where the source's step had the
// same rows.
Status CheckInputs(const Program& program, const Step& step, const InputRows& rows);
// A list of pages holds all that `rows` rows of a sequence, from `position` on, see and write. Whether
// its pages are in the pool is not looked at.
Status CheckPages(const PagedCache& cache, const StepCache& list, size_t sequence,
                  uint32_t position, uint32_t rows);
// The states that `rows` rows of a sequence begin with and leave are in a pool of `slots`, each written
// where nothing of them is read, in the order of rows.
Status CheckSlots(const StepCache& list, size_t sequence, uint32_t rows, uint32_t slots);
// It is another backend's, or of another model.
Status WrongSource();

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_SOURCE_H_
