// SPDX-License-Identifier: MIT
//
// Ctrl-C. The first SIGINT, SIGTERM, SIGHUP or SIGPIPE sets a flag, which loops look at, and runs what
// makes the call of the moment end early, so that what was begun is cleaned up and what is known is said.
// A command that has not ended then is ended: within half a second of the signal there is no process. The
// second signal kills at once. The library installs nothing: this is the command's.
#ifndef MAINARCH_CLI_INTERRUPT_H_
#define MAINARCH_CLI_INTERRUPT_H_

#include <functional>

namespace mainarch::cli {

// Call once, before anything long and before any other thread.
void CatchInterrupts();
bool Interrupted();
// It was SIGPIPE: nobody reads what the command writes, and nobody is to be told.
bool PipeBroken();
// For a command that ends with another program: nothing ends it but that, or a second signal.
void NeverEndForcibly();

// Something to do when the command is interrupted, as long as the object lives. Runs on a thread of its
// own; the destructor waits until it does not run.
class InterruptHook {
 public:
  enum class When {
    kAtOnce,  // makes a call in another thread end early
    kAtEnd,   // when the command is about to be ended: says so, or removes what must not be left
  };
  InterruptHook(When when, std::function<void()> run);
  ~InterruptHook();
  InterruptHook(const InterruptHook&) = delete;
  InterruptHook& operator=(const InterruptHook&) = delete;

 private:
  friend void RunHooks(When when);
  const When when_;
  const std::function<void()> run_;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_INTERRUPT_H_
