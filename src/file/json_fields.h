// SPDX-License-Identifier: MIT
//
// The members of one JSON object, read by name with a range for every number. Absent and null are
// the same; an integer written as a fraction or a string is refused. Every refusal names the file,
// the key with its path, the value and the limits. Borrows from the JsonDocument. Like json.h, for
// .cc files only.
#ifndef MAINARCH_FILE_JSON_FIELDS_H_
#define MAINARCH_FILE_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "file/json.h"

namespace mainarch::file {

struct IntegerRange {
  int64_t least;
  int64_t most;
};

struct NumberRange {
  double least;
  double most;
  bool without_least = false;  // least itself is refused
};

class JsonFields {
 public:
  // `path` precedes the keys in messages: "" or "text_config.".
  JsonFields(absl::string_view file, std::string path, simdjson::dom::object members)
      : file_(file), path_(std::move(path)), members_(members) {}

  absl::string_view file() const { return file_; }
  simdjson::dom::object members() const { return members_; }

  // Nothing when the key is absent or null.
  std::optional<simdjson::dom::element> Find(absl::string_view key) const;
  StatusOr<std::optional<int64_t>> Integer(absl::string_view key, IntegerRange range) const;
  StatusOr<std::optional<double>> Number(absl::string_view key, NumberRange range) const;
  StatusOr<std::optional<bool>> Boolean(absl::string_view key) const;
  StatusOr<std::optional<absl::string_view>> String(absl::string_view key) const;
  StatusOr<std::optional<JsonFields>> Object(absl::string_view key) const;
  StatusOr<std::optional<simdjson::dom::array>> Array(absl::string_view key) const;

  StatusOr<int64_t> RequiredInteger(absl::string_view key, IntegerRange range) const;

  // One value, which `what` names ("eos_token_id[2]").
  StatusOr<int64_t> IntegerOf(simdjson::dom::element value, absl::string_view what,
                              IntegerRange range) const;

  // An error about `key`.
  template <class... Parts>
  Status Bad(Code code, absl::string_view key, const Parts&... parts) const {
    return Error(code, file_, ": ", path_, key, " ", parts...);
  }

 private:
  absl::string_view file_;
  std::string path_;
  simdjson::dom::object members_;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_JSON_FIELDS_H_
