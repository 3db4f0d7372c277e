// SPDX-License-Identifier: MIT
#include "decode/step_runner.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/signal_block.h"

namespace mainarch::decode {

StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(std::function<Status()> work) {
  std::unique_ptr<StepRunner> runner(new StepRunner());
  runner->work_ = std::move(work);
  runner->event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!runner->event_.valid()) return ErrnoError(Code::kOutOfHostMemory, errno, "eventfd");
  return runner;
}

StepRunner::~StepRunner() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    exit_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Status StepRunner::StartThread() {
  const SignalBlock blocked;
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error& e) {
    return ErrnoError(Code::kOutOfHostMemory, e.code().value(), "starting the step thread");
  }
  pthread_setname_np(thread_.native_handle(), "mainarch-step");
  return OkStatus();
}

Status StepRunner::Launch() {
  if (!thread_.joinable()) RETURN_IF_ERROR(StartThread());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    state_ = State::kQueued;
  }
  wake_.notify_one();
  return OkStatus();
}

void StepRunner::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return state_ == State::kQueued || exit_; });
    // Work that was launched runs even so: it puts right what its preparation took.
    if (state_ != State::kQueued) return;
    lock.unlock();
    Status result;
    std::exception_ptr thrown;
    try {
      result = work_();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    result_ = std::move(result);
    thrown_ = std::move(thrown);
    state_ = State::kDone;
    // Under the lock: who sees the descriptor readable then finds the state done.
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
  }
}

Status StepRunner::Finished() {
  uint64_t count = 0;
  (void)!read(event_.get(), &count, sizeof(count));
  state_ = State::kIdle;
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
  return std::exchange(result_, OkStatus());
}

StatusOr<bool> StepRunner::Wait(int64_t timeout_ns) {
  const int64_t start = NowNs();
  while (true) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (state_ == State::kDone) {
        RETURN_IF_ERROR(Finished());
        return true;
      }
      if (state_ != State::kQueued) return true;
    }
    timespec left = {};
    if (timeout_ns >= 0) {
      const int64_t ns = std::max<int64_t>(timeout_ns - (NowNs() - start), 0);
      if (ns == 0) return false;
      left = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    }
    pollfd poll = {event_.get(), POLLIN, 0};
    if (ppoll(&poll, 1, timeout_ns >= 0 ? &left : nullptr, nullptr) < 0 && errno != EINTR) {
      return ErrnoError(Code::kIo, errno, "poll of the step's eventfd");
    }
  }
}

}  // namespace mainarch::decode
