// SPDX-License-Identifier: MIT
//
// A small option table: `--name value`, `--name=value`, `--flag`, `--no-flag`, positional words,
// and
// `--` before words that begin with a dash. A subcommand declares where each value goes and what
// it is for; errors and --help come from the declarations. What is not given stays as it was.
#ifndef MAINARCH_CLI_OPTIONS_H_
#define MAINARCH_CLI_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mainarch::cli {

class Options {
 public:
  // `usage` is what follows "mainarch <command>" in the first line of the help; `about` a
  // paragraph; `examples` whole command lines, one a line.
  Options(std::string command, std::string usage, std::string about, std::string examples);

  // A heading in the help for the options that follow.
  void Section(absl::string_view title);
  // Also takes --no-<name>, which is what the help shows when *value is true.
  void Flag(absl::string_view name, bool* value, absl::string_view help);
  void Text(absl::string_view name, absl::string_view value_name, std::string* value,
            absl::string_view help);
  void Texts(absl::string_view name, absl::string_view value_name, std::vector<std::string>* value,
             absl::string_view help);  // may be given again and again
  void Choice(absl::string_view name, std::vector<std::string> choices, std::string* value,
              absl::string_view help);
  void Integer(absl::string_view name, int64_t* value, int64_t least, int64_t most,
               absl::string_view help);
  void Integer(absl::string_view name, std::optional<int64_t>* value, int64_t least, int64_t most,
               absl::string_view help);
  void Unsigned(absl::string_view name, uint64_t* value, absl::string_view help);
  void Number(absl::string_view name, double* value, double least, double most,
              absl::string_view help);
  void Number(absl::string_view name, std::optional<double>* value, double least, double most,
              absl::string_view help);
  // Separated by commas.
  void Integers(absl::string_view name, std::vector<int64_t>* value, int64_t least, int64_t most,
                absl::string_view help);
  // Words that are no options; between `least` and `most` of them.
  void Positional(absl::string_view name, std::vector<std::string>* value, size_t least,
                  size_t most);

  // The exit code when there is nothing more to do: --help was printed, or a wrong use was.
  std::optional<int> Parse(absl::Span<const std::string> arguments);
  // Prints a wrong use to stderr, with what to read; returns the exit code.
  int Usage(absl::string_view message) const;
  bool given(absl::string_view name) const;

  std::string Help() const;

 private:
  struct Option {
    std::string name;        // without the dashes; empty: a heading, in `help`
    std::string value_name;  // empty: takes no value
    std::string help;
    std::string standard;  // what it is when not given; empty: not worth saying
    bool* flag = nullptr;
    bool flag_default = false;
    bool given = false;
    // An empty text when `value` was taken, else what is wrong with it.
    std::function<std::string(const std::string& value)> set;
  };

  Option* Find(absl::string_view name);
  Option& Add(absl::string_view name, absl::string_view value_name, absl::string_view help);
  std::string Unknown(absl::string_view name) const;
  // Takes arguments[*at], an option, and its value; an empty text, or what is wrong.
  std::string Take(absl::Span<const std::string> arguments, size_t* at);
  std::string CheckPositional() const;

  std::string command_, usage_, about_, examples_;
  std::vector<Option> options_;
  std::string positional_name_;
  std::vector<std::string>* positional_ = nullptr;
  size_t positional_least_ = 0, positional_most_ = 0;
  bool help_ = false;
};

// The candidate nearest to `word` in letters, or an empty view when none is near.
absl::string_view Nearest(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_OPTIONS_H_
