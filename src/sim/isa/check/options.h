// SPDX-License-Identifier: MIT
//
// Which checkers look at running kernels; README.md of this folder says what each proves. Plain
// data, and the text form of node settings and command lines.
#ifndef MAINARCH_SIM_ISA_CHECK_OPTIONS_H_
#define MAINARCH_SIM_ISA_CHECK_OPTIONS_H_

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::sim::isa {

struct CheckOptions {
  bool waits = false;      // s_waitcnt, and races in LDS
  bool nops = false;       // wait states between instructions
  bool known = false;      // of these, what hardware is known to forgive (hazards.h) is forgiven
  bool undefined = false;  // reads of what was never written
  bool races = false;      // in memory, by happens-before with scopes

  // Instead of the others: caches that hold what they may (caches.h). Needs a LaunchPlace with
  // context.
  bool caches = false;

  bool any() const { return waits || nops || undefined || races || caches; }
  static CheckOptions All();  // but caches
};

// "all" (every one but caches), "none", or names joined by "+", as in "waits+races". "caches"
// stands alone.
StatusOr<CheckOptions> ParseChecks(absl::string_view text);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_OPTIONS_H_
