// SPDX-License-Identifier: MIT
//
// A bar on stderr while something long runs: only when stderr is a terminal, at most ten times a
// second, and gone without a trace when the thing is done.
#ifndef MAINARCH_CLI_PROGRESS_H_
#define MAINARCH_CLI_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace mainarch::cli {

class Progress {
 public:
  enum class Unit { kBytes, kItems };
  Progress(std::string label, Unit unit);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // False when the user has interrupted.
  bool Update(uint64_t done, uint64_t total);
  void Clear();
  // Update as the callback that the library takes; the bar must outlive it.
  std::function<bool(uint64_t, uint64_t)> Callback();

 private:
  const std::string label_;
  const Unit unit_;
  const bool visible_;
  bool drawn_ = false;
  int64_t start_ns_;
  int64_t last_ns_ = 0;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_PROGRESS_H_
