// SPDX-License-Identifier: MIT
#include "file/json_fields.h"

namespace mainarch::file {

using simdjson::dom::element;

std::optional<element> JsonFields::Find(absl::string_view key) const {
  element value;
  if (members_.at_key(std::string_view(key.data(), key.size())).get(value) != simdjson::SUCCESS ||
      value.is_null()) {
    return std::nullopt;
  }
  return value;
}

StatusOr<int64_t> JsonFields::IntegerOf(element value, absl::string_view what,
                                        IntegerRange range) const {
  if (!value.is_int64() && !value.is_uint64()) {
    return Bad(Code::kBadModel, what, "is ", Show(value), ", not an integer from ", range.least,
               " to ", range.most);
  }
  int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number < range.least || number > range.most) {
    return Bad(Code::kBadModel, what, "is ", Show(value), ", the limits are ", range.least, " and ",
               range.most);
  }
  return number;
}

StatusOr<std::optional<int64_t>> JsonFields::Integer(absl::string_view key,
                                                     IntegerRange range) const {
  const auto value = Find(key);
  if (!value) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const int64_t number, IntegerOf(*value, key, range));
  return std::optional<int64_t>(number);
}

StatusOr<int64_t> JsonFields::RequiredInteger(absl::string_view key, IntegerRange range) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, Integer(key, range));
  if (!number) {
    return Bad(Code::kBadModel, key, "is missing, an integer from ", range.least, " to ",
               range.most);
  }
  return *number;
}

StatusOr<std::optional<double>> JsonFields::Number(absl::string_view key, NumberRange range) const {
  const auto value = Find(key);
  if (!value) return std::optional<double>();
  double number = 0;
  if (value->get(number) != simdjson::SUCCESS) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", not a number from ", range.least,
               " to ", range.most);
  }
  const bool enough = range.without_least ? number > range.least : number >= range.least;
  if (!(enough && number <= range.most)) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", the limits are ",
               range.without_least ? "more than " : "", range.least, " and ", range.most);
  }
  return std::optional<double>(number);
}

StatusOr<std::optional<bool>> JsonFields::Boolean(absl::string_view key) const {
  const auto value = Find(key);
  if (!value) return std::optional<bool>();
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", not true or false");
  }
  return std::optional<bool>(flag);
}

StatusOr<std::optional<absl::string_view>> JsonFields::String(absl::string_view key) const {
  const auto value = Find(key);
  if (!value) return std::optional<absl::string_view>();
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", not a string");
  }
  return std::optional<absl::string_view>(View(text));
}

StatusOr<std::optional<JsonFields>> JsonFields::Object(absl::string_view key) const {
  const auto value = Find(key);
  if (!value) return std::optional<JsonFields>();
  simdjson::dom::object members;
  if (value->get(members) != simdjson::SUCCESS) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", not an object");
  }
  return std::optional<JsonFields>(JsonFields(file_, absl::StrCat(path_, key, "."), members));
}

StatusOr<std::optional<simdjson::dom::array>> JsonFields::Array(absl::string_view key) const {
  const auto value = Find(key);
  if (!value) return std::optional<simdjson::dom::array>();
  simdjson::dom::array items;
  if (value->get(items) != simdjson::SUCCESS) {
    return Bad(Code::kBadModel, key, "is ", Show(*value), ", not an array");
  }
  return std::optional<simdjson::dom::array>(items);
}

}  // namespace mainarch::file
