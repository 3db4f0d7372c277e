// SPDX-License-Identifier: MIT
#include "cli/stop_text.h"

#include <algorithm>
#include <utility>

namespace mainarch::cli {
namespace {

// The longest end of `text` with which `stop` begins, short of all of it.
size_t Overlap(absl::string_view text, absl::string_view stop) {
  if (stop.empty()) return 0;
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

std::string StopText::Push(absl::string_view text) {
  if (stopped_) return "";
  held_.append(text.data(), text.size());
  size_t end = std::string::npos, keep = 0;
  for (const std::string& stop : stops_) {
    if (!stop.empty()) end = std::min(end, held_.find(stop));
    keep = std::max(keep, Overlap(held_, stop));
  }
  stopped_ = end != std::string::npos;
  std::string out = held_.substr(0, stopped_ ? end : held_.size() - keep);
  held_.erase(0, stopped_ ? held_.size() : out.size());
  return out;
}

std::string StopText::Finish() { return std::exchange(held_, ""); }

}  // namespace mainarch::cli
