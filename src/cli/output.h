// SPDX-License-Identifier: MIT
//
// What people read: aligned tables, numbers with units, errors with what to do next.
#ifndef MAINARCH_CLI_OUTPUT_H_
#define MAINARCH_CLI_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::cli {

// Columns as wide as their widest cell. A heading that begins with '<' is left-aligned, others
// right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings);
  void Row(std::vector<std::string> cells);
  std::string Text() const;
  void Print() const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

// Names and values, one pair a line, the values in one column.
class Facts {
 public:
  void Add(absl::string_view name, absl::string_view value);
  void Print() const;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

std::string Bytes(uint64_t bytes);  // "1.19 GB": powers of ten, as bandwidths are
std::string Count(uint64_t count);  // "596.0 M"
std::string Fixed(double value, int digits);
std::string Percent(double share);    // of 1
std::string Seconds(double seconds);  // "1.2 ms"

// Prints "mainarch <command>: <message>" and what to do about it to stderr, and with --json an object that
// says it to stdout; returns the exit code.
int Fail(absl::string_view command, const Status& status);
// What was written is all there is, because the user or the reader of the output ended it: says so, unless
// nobody reads; returns the exit code.
int FailInterrupted(absl::string_view command);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_OUTPUT_H_
