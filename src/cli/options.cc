// SPDX-License-Identifier: MIT
#include "cli/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/decimal.h"
#include "cli/command.h"
#include "cli/json_mode.h"

namespace mainarch::cli {
namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kHelpWidth = 100;

// Levenshtein's distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Digits, and a minus before them.
std::optional<int64_t> ParseInteger(absl::string_view text) {
  const bool negative = absl::ConsumePrefix(&text, "-");
  const std::optional<uint64_t> size = ParseDecimal(text);
  if (!size.has_value() || *size > INT64_MAX) return std::nullopt;
  return negative ? -static_cast<int64_t>(*size) : static_cast<int64_t>(*size);
}

// `value` is the number itself or an optional one.
template <class T>
std::string SetInteger(const std::string& text, int64_t least, int64_t most, T* value) {
  const std::optional<int64_t> parsed = ParseInteger(text);
  if (!parsed.has_value() || *parsed < least || *parsed > most) {
    return absl::StrCat("is not an integer from ", least, " to ", most);
  }
  *value = *parsed;
  return "";
}

template <class T>
std::string SetNumber(const std::string& text, double least, double most, T* value) {
  double parsed;
  const bool spaces = absl::StripAsciiWhitespace(text).size() != text.size();
  if (spaces || !absl::SimpleAtod(text, &parsed) || !(parsed >= least && parsed <= most)) {
    return absl::StrCat("is not a number from ", least, " to ", most);
  }
  *value = parsed;
  return "";
}

// `text` in lines that end before kHelpWidth, all but the first indented.
std::string Wrap(absl::string_view text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > indent && column + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
  }
  return out;
}

}  // namespace

absl::string_view Nearest(absl::string_view word, absl::Span<const std::string> candidates) {
  absl::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    size_t distance = Distance(word, candidate);
    // A word cut short is near, too.
    if (word.size() >= 2 && absl::StartsWith(candidate, word))
      distance = std::min<size_t>(distance, 1);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Options::Options(std::string command, std::string usage, std::string about, std::string examples)
    : command_(std::move(command)),
      usage_(std::move(usage)),
      about_(std::move(about)),
      examples_(std::move(examples)) {}

Options::Option& Options::Add(absl::string_view name, absl::string_view value_name,
                              absl::string_view help) {
  options_.push_back({});
  Option& option = options_.back();
  option.name = std::string(name);
  option.value_name = std::string(value_name);
  option.help = std::string(help);
  return option;
}

void Options::Section(absl::string_view title) { Add("", "", title); }

void Options::Flag(absl::string_view name, bool* value, absl::string_view help) {
  Option& option = Add(name, "", help);
  option.flag = value;
  option.flag_default = *value;
}

void Options::Text(absl::string_view name, absl::string_view value_name, std::string* value,
                   absl::string_view help) {
  Option& option = Add(name, value_name, help);
  option.standard = *value;
  option.set = [value](const std::string& text) {
    *value = text;
    return std::string();
  };
}

void Options::Texts(absl::string_view name, absl::string_view value_name,
                    std::vector<std::string>* value, absl::string_view help) {
  Add(name, value_name, help).set = [value](const std::string& text) {
    value->push_back(text);
    return std::string();
  };
}

void Options::Choice(absl::string_view name, std::vector<std::string> choices, std::string* value,
                     absl::string_view help) {
  Option& option = Add(name, absl::StrJoin(choices, "|"), help);
  option.standard = *value;
  option.set = [value, choices](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return absl::StrCat("is not one of ", absl::StrJoin(choices, ", "));
    }
    *value = text;
    return std::string();
  };
}

void Options::Integer(absl::string_view name, int64_t* value, int64_t least, int64_t most,
                      absl::string_view help) {
  Option& option = Add(name, "N", help);
  option.standard = absl::StrCat(*value);
  option.set = [value, least, most](const std::string& text) {
    return SetInteger(text, least, most, value);
  };
}

void Options::Integer(absl::string_view name, std::optional<int64_t>* value, int64_t least,
                      int64_t most, absl::string_view help) {
  Add(name, "N", help).set = [value, least, most](const std::string& text) {
    return SetInteger(text, least, most, value);
  };
}

void Options::Unsigned(absl::string_view name, uint64_t* value, absl::string_view help) {
  Option& option = Add(name, "N", help);
  option.standard = absl::StrCat(*value);
  option.set = [value](const std::string& text) {
    const std::optional<uint64_t> parsed = ParseDecimal(text);
    if (!parsed.has_value()) return absl::StrCat("is not an integer from 0 to ", UINT64_MAX);
    *value = *parsed;
    return std::string();
  };
}

void Options::Number(absl::string_view name, double* value, double least, double most,
                     absl::string_view help) {
  Option& option = Add(name, "X", help);
  option.standard = absl::StrCat(*value);
  option.set = [value, least, most](const std::string& text) {
    return SetNumber(text, least, most, value);
  };
}

void Options::Number(absl::string_view name, std::optional<double>* value, double least,
                     double most, absl::string_view help) {
  Add(name, "X", help).set = [value, least, most](const std::string& text) {
    return SetNumber(text, least, most, value);
  };
}

void Options::Integers(absl::string_view name, std::vector<int64_t>* value, int64_t least,
                       int64_t most, absl::string_view help) {
  Option& option = Add(name, "N,N,..", help);
  option.standard = absl::StrJoin(*value, ",");
  option.set = [value, least, most](const std::string& text) {
    std::vector<int64_t> parsed;
    for (absl::string_view word : absl::StrSplit(text, ',')) {
      const std::optional<int64_t> number = ParseInteger(word);
      if (!number.has_value() || *number < least || *number > most) {
        return absl::StrCat("is not a list of integers from ", least, " to ", most,
                            " separated by commas");
      }
      parsed.push_back(*number);
    }
    *value = std::move(parsed);
    return std::string();
  };
}

void Options::Positional(absl::string_view name, std::vector<std::string>* value, size_t least,
                         size_t most) {
  positional_name_ = std::string(name);
  positional_ = value;
  positional_least_ = least;
  positional_most_ = most;
}

Options::Option* Options::Find(absl::string_view name) {
  for (Option& option : options_) {
    if (!option.name.empty() && option.name == name) return &option;
  }
  return nullptr;
}

bool Options::given(absl::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return option.given;
  }
  return false;
}

std::string Options::Unknown(absl::string_view name) const {
  std::vector<std::string> names = {"help"};
  for (const Option& option : options_) {
    if (option.name.empty()) continue;
    names.push_back(option.name);
    if (option.flag != nullptr) names.push_back("no-" + option.name);
  }
  const absl::string_view near = Nearest(name, names);
  return absl::StrCat("unknown option --", name,
                      near.empty() ? "" : absl::StrCat("; did you mean --", near, "?"));
}

std::string Options::Take(absl::Span<const std::string> arguments, size_t* at) {
  const absl::string_view word = absl::string_view(arguments[*at]).substr(2);
  const size_t equals = word.find('=');
  const absl::string_view name = word.substr(0, equals);
  const bool has_value = equals != absl::string_view::npos;
  Option* option = Find(name);
  bool flag_value = true;
  if (option == nullptr && absl::StartsWith(name, "no-")) {
    option = Find(name.substr(3));
    if (option != nullptr && option->flag == nullptr) option = nullptr;
    flag_value = false;
  }
  if (option == nullptr) return Unknown(name);
  option->given = true;
  if (option->flag != nullptr) {
    if (has_value) return absl::StrCat("--", name, " takes no value");
    *option->flag = flag_value;
    return "";
  }
  std::string value;
  if (has_value) {
    value = std::string(word.substr(equals + 1));
  } else if (*at + 1 < arguments.size()) {
    value = arguments[++*at];
  } else {
    return absl::StrCat("--", name, " needs a value: ", option->value_name);
  }
  const std::string wrong = option->set(value);
  return wrong.empty() ? "" : absl::StrCat("--", name, " ", value, ": ", wrong);
}

std::string Options::CheckPositional() const {
  if (positional_ == nullptr) return "";
  if (positional_->size() < positional_least_) return absl::StrCat(positional_name_, " is missing");
  if (positional_->size() > positional_most_) {
    return absl::StrCat("\"", (*positional_)[positional_most_],
                        "\": one word too many (put quotes around text)");
  }
  return "";
}

std::optional<int> Options::Parse(absl::Span<const std::string> arguments) {
  SetJsonWanted(HasJsonWord(arguments));  // until the words have been told from the options
  bool only_words = false;
  for (size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (!only_words && word == "--") {
      only_words = true;
    } else if (!only_words && (word == "--help" || word == "-h")) {
      JsonWanted() ? PrintJsonHelp(Help()) : static_cast<void>(std::fputs(Help().c_str(), stdout));
      return kExitOk;
    } else if (!only_words && absl::StartsWith(word, "--")) {
      const std::string wrong = Take(arguments, &at);
      if (!wrong.empty()) return Usage(wrong);
    } else if (!only_words && word.size() > 1 && word[0] == '-') {
      return Usage(absl::StrCat("unknown option ", word, "; options begin with two dashes"));
    } else if (positional_ == nullptr) {
      return Usage(absl::StrCat("\"", word, "\": takes options only"));
    } else {
      positional_->push_back(word);
    }
  }
  if (const Option* json = Find("json"); json != nullptr) SetJsonWanted(*json->flag);
  const std::string wrong = CheckPositional();
  if (!wrong.empty()) return Usage(wrong);
  return std::nullopt;
}

int Options::Usage(absl::string_view message) const {
  std::fprintf(stderr, "mainarch %s: %s\nsee mainarch %s --help\n", command_.c_str(),
               std::string(message).c_str(), command_.c_str());
  PrintJsonError({kExitUsage, 0, message, absl::StrCat("see mainarch ", command_, " --help")});
  return kExitUsage;
}

std::string Options::Help() const {
  std::string out =
      absl::StrCat("usage: mainarch ", command_, " ", usage_, "\n\n", Wrap(about_, 0), "\n");
  if (options_.empty() || !options_[0].name.empty()) out += "\nOptions:\n";
  for (const Option& option : options_) {
    if (option.name.empty()) {
      absl::StrAppend(&out, "\n", option.help, ":\n");
      continue;
    }
    const bool negated = option.flag != nullptr && option.flag_default;
    std::string line = absl::StrCat("  --", negated ? "no-" : "", option.name);
    if (!option.value_name.empty()) absl::StrAppend(&line, " ", option.value_name);
    if (line.size() + 2 > kHelpColumn) {
      absl::StrAppend(&out, line, "\n", std::string(kHelpColumn, ' '));
    } else {
      absl::StrAppend(&out, line, std::string(kHelpColumn - line.size(), ' '));
    }
    std::string help = option.help;
    if (!option.standard.empty()) absl::StrAppend(&help, " (default ", option.standard, ")");
    absl::StrAppend(&out, Wrap(help, kHelpColumn), "\n");
  }
  if (!examples_.empty()) {
    out += "\nExamples:\n";
    for (absl::string_view line : absl::StrSplit(examples_, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&out, "  ", line, "\n");
    }
  }
  out += "\nExit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted.\n";
  return out;
}

}  // namespace mainarch::cli
