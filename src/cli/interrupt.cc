// SPDX-License-Identifier: MIT
#include "cli/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/command.h"

namespace mainarch::cli {
namespace {

// What a command that looks at the flag has to end by itself. With the hooks at the end, which remove
// files, it leaves a margin within the half second.
constexpr std::chrono::milliseconds kGrace(250);

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t pipe_broken = 0;
int wake_fd = -1;  // the end that the handler writes to
std::atomic<bool> never_end{false};

// Never destroyed: the watcher may look at it while the process ends.
struct Hooks {
  std::mutex mutex;
  std::vector<InterruptHook*> all;
};
Hooks& AllHooks() {
  static Hooks* const hooks = new Hooks();
  return *hooks;
}

void OnSignal(int number) {
  const int saved = errno;
  interrupted = 1;
  if (number == SIGPIPE) pipe_broken = 1;
  // One byte into an empty pipe: what it returns changes nothing.
  [[maybe_unused]] const ssize_t written = write(wake_fd, "", 1);
  errno = saved;
}

void FlushStdout() {
  // The thread that is to end may hold the lock: then what it prints is lost, rather than the time.
  if (ftrylockfile(stdout) != 0) return;
  fflush_unlocked(stdout);
  funlockfile(stdout);
}

}  // namespace

void RunHooks(InterruptHook::When when) {
  const std::lock_guard<std::mutex> lock(AllHooks().mutex);
  for (const InterruptHook* hook : AllHooks().all) {
    if (hook->when_ == when) hook->run_();
  }
}

namespace {

void Watch(int fd) {
  char byte;
  while (read(fd, &byte, 1) < 0 && errno == EINTR) continue;
  RunHooks(InterruptHook::When::kAtOnce);
  if (never_end) return;
  std::this_thread::sleep_for(kGrace);
  RunHooks(InterruptHook::When::kAtEnd);
  FlushStdout();
  _exit(kExitInterrupted);
}

// Signals go to the other threads: a read that waits for input must be the one that is interrupted.
void StartWatcher(int fd) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(Watch, fd).detach();
  } catch (const std::system_error&) {
    // No thread to be had: the flag alone, then.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void CatchInterrupts() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    fcntl(ends[0], F_SETFL, 0);  // the watcher waits; the handler never does
    wake_fd = ends[1];
    StartWatcher(ends[0]);
  }
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: a read of stdin ends
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  for (const int number : {SIGHUP, SIGPIPE}) {
    struct sigaction before = {};
    // nohup, and hosts that want EPIPE, ignore them on purpose.
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    // Every piece of output that meets a broken pipe raises the signal again: that is no second wish.
    action.sa_flags = number == SIGPIPE ? 0 : static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

bool Interrupted() { return interrupted != 0; }
bool PipeBroken() { return pipe_broken != 0; }
void NeverEndForcibly() { never_end = true; }

InterruptHook::InterruptHook(When when, std::function<void()> run)
    : when_(when), run_(std::move(run)) {
  const std::lock_guard<std::mutex> lock(AllHooks().mutex);
  AllHooks().all.push_back(this);
}

InterruptHook::~InterruptHook() {
  const std::lock_guard<std::mutex> lock(AllHooks().mutex);
  std::vector<InterruptHook*>& all = AllHooks().all;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

}  // namespace mainarch::cli
