// SPDX-License-Identifier: MIT
//
// What a context may read the taps of (ContextOptions::source).
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
// It is another backend's, or of another model.
Status WrongSource();

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_SOURCE_H_
