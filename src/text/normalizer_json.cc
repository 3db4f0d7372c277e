// SPDX-License-Identifier: MIT
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "text/parts_json.h"

namespace mainarch::text {
namespace {

using Keys = absl::Span<const absl::string_view>;

NormalizerStep StepOf(NormalizerKind kind) {
  NormalizerStep step;
  step.kind = kind;
  return step;
}

// Types that have no options.
bool PlainStep(absl::string_view type, NormalizerStep* step) {
  constexpr std::pair<absl::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                 {"NFD", NormalForm::kNfd},
                                                                 {"NFKC", NormalForm::kNfkc},
                                                                 {"NFKD", NormalForm::kNfkd}};
  constexpr std::pair<absl::string_view, NormalizerKind> kKinds[] = {
      {"Lowercase", NormalizerKind::kLowercase},
      {"StripAccents", NormalizerKind::kStripAccents},
      {"Nmt", NormalizerKind::kNmt}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    *step = StepOf(NormalizerKind::kForm);
    step->form = form;
    return true;
  }
  for (const auto& [name, kind] : kKinds) {
    if (type != name) continue;
    *step = StepOf(kind);
    return true;
  }
  return false;
}

StatusOr<std::string> ReadContent(const JsonObject& object, absl::string_view path,
                                  absl::string_view key) {
  ASSIGN_OR_RETURN(const absl::string_view text, NeedString(object, path, key));
  if (text.size() > kMaxContent) {
    return Error(Code::kUnsupported, path, ".", key, " has ", text.size(),
                 " bytes, over the limit ", kMaxContent);
  }
  return std::string(text);
}

Status ReadBert(const JsonObject& object, absl::string_view path, Normalizer* out) {
  ASSIGN_OR_RETURN(const bool clean, BoolOr(object, path, "clean_text", true));
  ASSIGN_OR_RETURN(const bool chinese, BoolOr(object, path, "handle_chinese_chars", true));
  ASSIGN_OR_RETURN(const bool lowercase, BoolOr(object, path, "lowercase", true));
  ASSIGN_OR_RETURN(const bool accents, BoolOr(object, path, "strip_accents", lowercase));
  if (clean) out->Add(StepOf(NormalizerKind::kBertClean));
  if (chinese) out->Add(StepOf(NormalizerKind::kBertChinese));
  if (accents) out->Add(StepOf(NormalizerKind::kBertAccents));
  if (lowercase) out->Add(StepOf(NormalizerKind::kLowercase));
  return OkStatus();
}

Status ReadPrecompiled(const JsonObject& object, absl::string_view path, Normalizer* out) {
  constexpr absl::string_view kKey = "precompiled_charsmap";
  if (IsNull(object, kKey)) return OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view text, NeedString(object, path, kKey));
  if (text.empty()) return OkStatus();
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) {
    return Error(Code::kBadModel, path, ".", kKey, " is not base64");
  }
  auto charsmap = Charsmap::Create(bytes);
  if (!charsmap.ok()) return WithContext(charsmap.status(), absl::StrCat(path, ".", kKey));
  NormalizerStep step = StepOf(NormalizerKind::kCharsmap);
  step.charsmap = *std::move(charsmap);
  out->Add(std::move(step));
  return OkStatus();
}

Status ReadStep(const JsonObject& object, const std::string& path, Normalizer* out) {
  if (out->size() >= kMaxSteps) {
    return Error(Code::kUnsupported, path, " is over the limit of ", kMaxSteps, " steps");
  }
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, path, "type"));
  const auto check = [&](std::initializer_list<absl::string_view> keys) {
    return CheckKeys(object, path, Keys(keys.begin(), keys.size()));
  };
  NormalizerStep step;
  if (PlainStep(type, &step)) {
    RETURN_IF_ERROR(check({"type"}));
    out->Add(std::move(step));
    return OkStatus();
  }
  if (type == "Sequence") {
    RETURN_IF_ERROR(check({"type", "normalizers"}));
    ASSIGN_OR_RETURN(const auto steps, ReadSteps(object, path, "normalizers"));
    for (size_t i = 0; i < steps.size(); ++i) {
      RETURN_IF_ERROR(ReadStep(steps[i], absl::StrCat(path, ".normalizers[", i, "]"), out));
    }
    return OkStatus();
  }
  if (type == "Prepend") {
    RETURN_IF_ERROR(check({"type", "prepend"}));
    step = StepOf(NormalizerKind::kPrepend);
    ASSIGN_OR_RETURN(step.content, ReadContent(object, path, "prepend"));
  } else if (type == "Replace") {
    RETURN_IF_ERROR(check({"type", "pattern", "content"}));
    step = StepOf(NormalizerKind::kReplace);
    ASSIGN_OR_RETURN(JsonPattern pattern, ReadPattern(object, path));
    step.pattern = std::move(pattern.text);
    step.regex = std::move(pattern.regex);
    ASSIGN_OR_RETURN(step.content, ReadContent(object, path, "content"));
  } else if (type == "Strip") {
    RETURN_IF_ERROR(check({"type", "strip_left", "strip_right"}));
    step = StepOf(NormalizerKind::kStrip);
    ASSIGN_OR_RETURN(step.left, BoolOr(object, path, "strip_left", true));
    ASSIGN_OR_RETURN(step.right, BoolOr(object, path, "strip_right", true));
  } else if (type == "Precompiled") {
    RETURN_IF_ERROR(check({"type", "precompiled_charsmap"}));
    return ReadPrecompiled(object, path, out);
  } else if (type == "BertNormalizer") {
    RETURN_IF_ERROR(
        check({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}));
    return ReadBert(object, path, out);
  } else {
    return Error(Code::kUnsupported, path, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\", which mainarch does not follow");
  }
  out->Add(std::move(step));
  return OkStatus();
}

}  // namespace

Status ReadNormalizer(const JsonObject& root, Normalizer* out) {
  if (IsNull(root, "normalizer")) return OkStatus();
  ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", "normalizer"));
  return ReadStep(object, "normalizer", out);
}

StatusOr<JsonPattern> ReadPattern(const JsonObject& object, absl::string_view path) {
  const std::string where = absl::StrCat(path, ".pattern");
  ASSIGN_OR_RETURN(const JsonObject pattern, NeedObject(object, path, "pattern"));
  constexpr std::array<absl::string_view, 2> kKeys = {"String", "Regex"};
  RETURN_IF_ERROR(CheckKeys(pattern, where, kKeys));
  JsonPattern out;
  if (!IsNull(pattern, "String")) {
    ASSIGN_OR_RETURN(const absl::string_view text, NeedString(pattern, where, "String"));
    if (text.empty()) return Error(Code::kUnsupported, where, ".String is empty");
    out.text = std::string(text);
    return out;
  }
  ASSIGN_OR_RETURN(const absl::string_view source, NeedString(pattern, where, "Regex"));
  auto regex = Regex::Create(source);
  if (!regex.ok()) return WithContext(regex.status(), absl::StrCat(where, ".Regex"));
  out.source = std::string(source);
  out.regex = *std::move(regex);
  return out;
}

StatusOr<std::vector<JsonObject>> ReadSteps(const JsonObject& object, absl::string_view path,
                                            absl::string_view key) {
  const std::string where = absl::StrCat(path, ".", key);
  ASSIGN_OR_RETURN(const JsonElement element, NeedField(object, path, key));
  simdjson::dom::array list;
  if (element.get(list)) {
    return Error(Code::kBadModel, where, " is ", KindOf(element), ", not an array");
  }
  std::vector<JsonObject> out;
  for (const JsonElement item : list) {
    JsonObject step;
    if (item.get(step)) {
      return Error(Code::kBadModel, where, "[", out.size(), "] is ", KindOf(item),
                   ", not an object");
    }
    if (out.size() == kMaxSteps) {
      return Error(Code::kUnsupported, where, " has more than ", kMaxSteps, " steps");
    }
    out.push_back(step);
  }
  return out;
}

}  // namespace mainarch::text
