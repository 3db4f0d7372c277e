// SPDX-License-Identifier: MIT
//
// One background thread, started when it is first needed, that runs one piece of work at a time and
// raises an eventfd when it is done.
//
// Threads: one caller at a time. Destroying it waits for the work under way.
#ifndef MAINARCH_DECODE_STEP_RUNNER_H_
#define MAINARCH_DECODE_STEP_RUNNER_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fd.h"
#include "base/status.h"

namespace mainarch::decode {

class StepRunner {
 public:
  static StatusOr<std::unique_ptr<StepRunner>> Create(std::function<Status()> work);
  ~StepRunner();

  // Starts the work on the thread. Not while it runs.
  Status Launch();
  // False on time-out; else clears the eventfd and gives the work's status, or throws what it
  // threw.
  StatusOr<bool> Wait(int64_t timeout_ns);
  int event_fd() const { return event_.get(); }

 private:
  enum class State { kIdle, kQueued, kDone };

  StepRunner() = default;
  Status StartThread();
  void Loop();
  Status Finished();  // mutex_ held

  std::function<Status()> work_;
  UniqueFd event_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  State state_ = State::kIdle;  // guarded by mutex_, as is all below
  bool exit_ = false;
  Status result_;
  std::exception_ptr thrown_;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_STEP_RUNNER_H_
