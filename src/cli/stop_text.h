// SPDX-License-Identifier: MIT
//
// Ends a stream of text at the first of some stop texts, wherever the pieces are cut: what might be
// the beginning of one is held back until it is known not to be.
#ifndef MAINARCH_CLI_STOP_TEXT_H_
#define MAINARCH_CLI_STOP_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mainarch::cli {

class StopText {
 public:
  // Empty texts are ignored.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What may be shown now; nothing once stopped.
  std::string Push(absl::string_view text);
  // The end of the stream: what was held back.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_STOP_TEXT_H_
