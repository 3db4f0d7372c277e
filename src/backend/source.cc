// SPDX-License-Identifier: MIT
#include "backend/source.h"

namespace mainarch::backend {

Status CheckSource(const Program& program, const Program* source) {
  for (const Op& op : program.ops) {
    const auto* input = std::get_if<InputOp>(&op);
    if (input == nullptr) continue;
    const size_t tap = static_cast<size_t>(input->tap);
    if (source == nullptr || input->tap < 0 || tap >= source->taps.size()) {
      return Error(Code::kInternal, "a Program reads tap ", input->tap, " of a source that has ",
                   source == nullptr ? 0 : source->taps.size());
    }
    const int64_t width = source->buffers[static_cast<size_t>(source->taps[tap])].width;
    const int64_t wanted = program.buffers[static_cast<size_t>(input->x)].width;
    if (width == wanted) continue;
    return Error(Code::kInternal, "tap ", tap, " is ", width, " wide; its reader wants ", wanted);
  }
  return OkStatus();
}

Status WrongSource() {
  return Error(Code::kInternal, "the source of a context is no context of the same model");
}

}  // namespace mainarch::backend
