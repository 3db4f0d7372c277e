// SPDX-License-Identifier: MIT
#include "cli/output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_mode.h"

namespace mainarch::cli {
namespace {

// Columns on a terminal, near enough: code points.
size_t Width(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Scaled(double value, absl::string_view unit, const char* const* names, size_t count) {
  size_t i = 0;
  while (value >= 999.5 && i + 1 < count) {
    value /= 1000;
    ++i;
  }
  if (i == 0) return absl::StrCat(static_cast<uint64_t>(value), unit.empty() ? "" : " ", unit);
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s%s", digits, value, names[i], unit);
}

constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
constexpr const char* kCounts[] = {"", "k", "M", "B", "T"};

const char* HintFor(Code code) {
  switch (code) {
    case Code::kNotFound:
      return "check the path; a model is a directory with config.json and safetensors files "
             "(mainarch make-checkpoint makes one)";
    case Code::kKvFull:
      return "use a shorter prompt or a larger --context";
    case Code::kOutOfHostMemory:
    case Code::kOutOfDeviceMemory:
      return "use a smaller model or --context, or --in-place to multiply from the mapped file";
    case Code::kNoDevice:
      return "mainarch doctor says what is missing for a GPU; --device cpu needs none";
    case Code::kBadModel:
      return "the file is damaged or of another form: compare it with its source, or with its manual page";
    case Code::kInternal:
      return "this is a bug in mainarch: please report it";
    default:
      return nullptr;
  }
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    left_.push_back(!heading.empty() && heading[0] == '<');
    if (left_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::Row(std::vector<std::string> cells) {
  cells.resize(left_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Text() const {
  std::vector<size_t> widths(left_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - Width(row[c]), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", left_[c] ? row[c] : pad, left_[c] ? pad : row[c]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

void Table::Print() const { std::fputs(Text().c_str(), stdout); }

void Facts::Add(absl::string_view name, absl::string_view value) {
  facts_.emplace_back(std::string(name), std::string(value));
}

void Facts::Print() const {
  size_t width = 0;
  for (const auto& [name, value] : facts_) width = std::max(width, Width(name));
  for (const auto& [name, value] : facts_) {
    const std::string pad(width - Width(name) + 2, ' ');
    std::printf("%s%s%s\n", name.c_str(), pad.c_str(), value.c_str());
  }
}

std::string Bytes(uint64_t bytes) {
  return Scaled(static_cast<double>(bytes), "B", kPrefixes, std::size(kPrefixes));
}

std::string Count(uint64_t count) {
  return Scaled(static_cast<double>(count), "", kCounts, std::size(kCounts));
}

std::string Fixed(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string Percent(double share) {
  return std::isfinite(share) ? Fixed(share * 100, 1) + " %" : "-";
}

std::string Seconds(double seconds) {
  if (seconds < 1e-3) return Fixed(seconds * 1e6, 1) + " us";
  if (seconds < 1) return Fixed(seconds * 1e3, 2) + " ms";
  return Fixed(seconds, 2) + " s";
}

int FailInterrupted(absl::string_view command) {
  std::fflush(stdout);
  if (!PipeBroken()) {
    std::fprintf(stderr, "mainarch %s: interrupted\n", std::string(command).c_str());
    PrintJsonError({kExitInterrupted, static_cast<int32_t>(Code::kCancelled), "interrupted", {}});
  }
  return kExitInterrupted;
}

int Fail(absl::string_view command, const Status& status) {
  std::fflush(stdout);
  // Whatever an interrupted call says went wrong: the user did it.
  if (CodeOf(status) == Code::kCancelled || Interrupted()) return FailInterrupted(command);
  std::fprintf(stderr, "mainarch %s: %s\n", std::string(command).c_str(),
               std::string(status.message()).c_str());
  const char* hint = HintFor(CodeOf(status));
  if (hint != nullptr) std::fprintf(stderr, "%s\n", hint);
  PrintJsonError({kExitFailure, static_cast<int32_t>(CodeOf(status)), status.message(),
                  hint != nullptr ? hint : ""});
  return kExitFailure;
}

}  // namespace mainarch::cli
