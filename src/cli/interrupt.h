// SPDX-License-Identifier: MIT
//
// Ctrl-C. The first SIGINT or SIGTERM only sets a flag, which long loops look at, so that what was
// begun is cleaned up; the second kills. The library installs nothing: this is the command's.
#ifndef MAINARCH_CLI_INTERRUPT_H_
#define MAINARCH_CLI_INTERRUPT_H_

namespace mainarch::cli {

// Call once, before anything long.
void CatchInterrupts();
bool Interrupted();

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_INTERRUPT_H_
