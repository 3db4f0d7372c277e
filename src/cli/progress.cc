// SPDX-License-Identifier: MIT
#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace mainarch::cli {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int kBar = 24;  // characters

}  // namespace

Progress::Progress(std::string label, Unit unit)
    : label_(std::move(label)), unit_(unit), visible_(isatty(2) != 0), start_ns_(NowNs()) {}

bool Progress::Update(uint64_t done, uint64_t total) {
  if (!visible_) return !Interrupted();
  const int64_t now = NowNs();
  if (now - start_ns_ < kRedrawNs || now - last_ns_ < kRedrawNs || total == 0)
    return !Interrupted();
  last_ns_ = now;
  drawn_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double seconds = static_cast<double>(now - start_ns_) * 1e-9;
  const auto text = [&](uint64_t n) { return unit_ == Unit::kBytes ? Bytes(n) : absl::StrCat(n); };
  const int full = static_cast<int>(share * kBar);
  std::string line = absl::StrCat("\r", label_, " [", std::string(static_cast<size_t>(full), '#'),
                                  std::string(static_cast<size_t>(kBar - full), '.'), "] ",
                                  text(done), " of ", text(total));
  if (share > 0) absl::StrAppend(&line, ", ", Fixed(seconds / share - seconds, 0), " s left");
  std::fprintf(stderr, "%s\033[K", line.c_str());
  return !Interrupted();
}

void Progress::Clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

std::function<bool(uint64_t, uint64_t)> Progress::Callback() {
  return [this](uint64_t done, uint64_t total) { return Update(done, total); };
}

}  // namespace mainarch::cli
