// SPDX-License-Identifier: MIT
#include <utility>

#include "absl/strings/escaping.h"
#include "text/parts_json.h"

namespace mainarch::text {
namespace {

constexpr uint64_t kMaxStrip = 64;

Status Check(const JsonObject& object, absl::string_view path,
             std::initializer_list<absl::string_view> keys) {
  return CheckKeys(object, path, absl::Span<const absl::string_view>(keys.begin(), keys.size()));
}

// A text of 1 to kMaxContent bytes, or of none, if that may be.
StatusOr<std::string> ReadText(const JsonObject& object, absl::string_view path,
                               absl::string_view key, bool may_be_empty) {
  ASSIGN_OR_RETURN(const absl::string_view text, NeedString(object, path, key));
  if (text.size() > kMaxContent || (text.empty() && !may_be_empty)) {
    return Error(Code::kUnsupported, path, ".", key, " has ", text.size(), " bytes, not ",
                 may_be_empty ? 0 : 1, " to ", kMaxContent);
  }
  return std::string(text);
}

StatusOr<uint32_t> ReadCount(const JsonObject& object, absl::string_view path,
                             absl::string_view key) {
  ASSIGN_OR_RETURN(const uint64_t count, NeedUnsigned(object, path, key));
  if (count > kMaxStrip) {
    return Error(Code::kUnsupported, path, ".", key, " is ", count, ", over the limit ", kMaxStrip);
  }
  return static_cast<uint32_t>(count);
}

Status ReadStage(const JsonObject& object, const std::string& path, TextDecoder* out);

Status ReadSequence(const JsonObject& object, const std::string& path, TextDecoder* out) {
  RETURN_IF_ERROR(Check(object, path, {"type", "decoders"}));
  ASSIGN_OR_RETURN(const auto steps, ReadSteps(object, path, "decoders"));
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(ReadStage(steps[i], absl::StrCat(path, ".decoders[", i, "]"), out));
  }
  return OkStatus();
}

Status ReadReplace(const JsonObject& object, const std::string& path, DecoderStage* stage) {
  RETURN_IF_ERROR(Check(object, path, {"type", "pattern", "content"}));
  stage->kind = DecoderKind::kReplace;
  ASSIGN_OR_RETURN(const JsonObject pattern, NeedObject(object, path, "pattern"));
  const std::string where = path + ".pattern";
  if (!IsNull(pattern, "Regex")) {
    return Error(Code::kUnsupported, where, ".Regex: mainarch takes String in a decoder");
  }
  RETURN_IF_ERROR(Check(pattern, where, {"String", "Regex"}));
  ASSIGN_OR_RETURN(stage->pattern, ReadText(pattern, where, "String", /*may_be_empty=*/false));
  ASSIGN_OR_RETURN(stage->content, ReadText(object, path, "content", /*may_be_empty=*/true));
  return OkStatus();
}

Status ReadMetaspace(const JsonObject& object, const std::string& path, DecoderStage* stage) {
  RETURN_IF_ERROR(
      Check(object, path,
            {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"}));
  stage->kind = DecoderKind::kMetaspace;
  ASSIGN_OR_RETURN(stage->content, ReadText(object, path, "replacement", /*may_be_empty=*/false));
  ASSIGN_OR_RETURN(const bool prefix, BoolOr(object, path, "add_prefix_space", true));
  absl::string_view scheme = "always";
  if (!IsNull(object, "prepend_scheme")) {
    ASSIGN_OR_RETURN(scheme, NeedString(object, path, "prepend_scheme"));
  }
  stage->drop_first = prefix && scheme != "never";
  return OkStatus();
}

Status ReadStage(const JsonObject& object, const std::string& path, TextDecoder* out) {
  if (out->size() >= kMaxSteps) {
    return Error(Code::kUnsupported, path, " is over the limit of ", kMaxSteps, " stages");
  }
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, path, "type"));
  DecoderStage stage;
  if (type == "Sequence") return ReadSequence(object, path, out);
  if (type == "ByteLevel") {
    // Its options say something about pieces, not about text.
    stage.kind = DecoderKind::kByteLevel;
  } else if (type == "ByteFallback" || type == "Fuse") {
    RETURN_IF_ERROR(Check(object, path, {"type"}));
    stage.kind = type == "Fuse" ? DecoderKind::kFuse : DecoderKind::kByteFallback;
  } else if (type == "Replace") {
    RETURN_IF_ERROR(ReadReplace(object, path, &stage));
  } else if (type == "Metaspace") {
    RETURN_IF_ERROR(ReadMetaspace(object, path, &stage));
  } else if (type == "Strip") {
    RETURN_IF_ERROR(Check(object, path, {"type", "content", "start", "stop"}));
    stage.kind = DecoderKind::kStrip;
    ASSIGN_OR_RETURN(stage.content, ReadText(object, path, "content", /*may_be_empty=*/false));
    ASSIGN_OR_RETURN(stage.start, ReadCount(object, path, "start"));
    ASSIGN_OR_RETURN(stage.stop, ReadCount(object, path, "stop"));
  } else if (type == "WordPiece") {
    RETURN_IF_ERROR(Check(object, path, {"type", "prefix", "cleanup"}));
    stage.kind = DecoderKind::kWordPiece;
    ASSIGN_OR_RETURN(stage.content, ReadText(object, path, "prefix", /*may_be_empty=*/false));
    ASSIGN_OR_RETURN(stage.cleanup, BoolOr(object, path, "cleanup", true));
  } else if (type == "BPEDecoder") {
    RETURN_IF_ERROR(Check(object, path, {"type", "suffix"}));
    stage.kind = DecoderKind::kSuffix;
    ASSIGN_OR_RETURN(stage.content, ReadText(object, path, "suffix", /*may_be_empty=*/false));
  } else {
    return Error(Code::kUnsupported, path, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                 "\", which mainarch does not follow");
  }
  out->Add(std::move(stage));
  return OkStatus();
}

}  // namespace

Status ReadDecoder(const JsonObject& root, TextDecoder* out) {
  if (IsNull(root, "decoder")) {
    DecoderStage spaces;
    spaces.kind = DecoderKind::kSpaces;
    out->Add(std::move(spaces));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", "decoder"));
  return ReadStage(object, "decoder", out);
}

}  // namespace mainarch::text
