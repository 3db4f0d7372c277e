// SPDX-License-Identifier: MIT
//
// Integers of a json text that no 64 bits hold. simdjson refuses a text with one, while Python
// writes them: transformers' own files have "model_max_length": 1000000000000000019884624838656.
#ifndef MAINARCH_BASE_JSON_NUMBERS_H_
#define MAINARCH_BASE_JSON_NUMBERS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace mainarch {

// The text with every integer that is neither an int64 nor a uint64 written as a fraction ("1e30"
// as digits becomes those digits and ".0"), so that it is read as the double nearest to it; beyond
// a double's range as the largest power of ten within. Strings and all else stay as they are.
std::string WideIntegersAsFractions(absl::string_view json);

}  // namespace mainarch

#endif  // MAINARCH_BASE_JSON_NUMBERS_H_
