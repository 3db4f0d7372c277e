// SPDX-License-Identifier: MIT
//
// Blocks every signal on the calling thread while it lives, so that a thread started meanwhile is
// born with all of them blocked: the host's handlers must never run on threads of ours.
#ifndef MAINARCH_BASE_SIGNAL_BLOCK_H_
#define MAINARCH_BASE_SIGNAL_BLOCK_H_

#include <signal.h>

namespace mainarch {

class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_SIGNAL_BLOCK_H_
