// SPDX-License-Identifier: MIT
//
// What a context may read the taps of (ContextOptions::source).
#ifndef MAINARCH_BACKEND_SOURCE_H_
#define MAINARCH_BACKEND_SOURCE_H_

#include "backend/program.h"
#include "base/status.h"

namespace mainarch::backend {

// The source's Program has the taps that InputOps of `program` read, of their widths. No source: null.
Status CheckSource(const Program& program, const Program* source);
// It is another backend's, or of another model.
Status WrongSource();

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_SOURCE_H_
