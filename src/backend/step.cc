// SPDX-License-Identifier: MIT
#include "backend/backend.h"

namespace mainarch::backend {

Status CheckOneCache(const ContextOptions& options) {
  if (options.pages.size() == 1 && options.slots.empty()) return OkStatus();
  return Error(Code::kUnsupported, "a context of ", options.pages.size(), " paged and ",
               options.slots.size(), " slot caches; this backend runs models with one paged cache");
}

Status CheckOneCache(const Step& step, uint32_t pages) {
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const absl::Span<const StepCache> caches = step.sequences[i].caches;
    if (caches.size() != 1 || caches[0].first_page != 0 || caches[0].state_in != kNoSlot ||
        !caches[0].state_out.empty()) {
      return Error(Code::kInternal, "sequence ", i, " of a step: ", caches.size(),
                   " caches, or not one page list from position 0 on");
    }
    for (const uint32_t page : caches[0].pages) {
      if (page >= pages) return Error(Code::kInternal, "page ", page, " is not in the pool");
    }
  }
  for (const StepRow& row : step.rows) {
    if (row.from != kHere) {
      return Error(Code::kInternal, "a row takes its token from row ", row.from,
                   " of the step before; steps run one at a time here");
    }
  }
  return OkStatus();
}

}  // namespace mainarch::backend
