// SPDX-License-Identifier: MIT
#include <utility>

#include "absl/strings/escaping.h"
#include "text/parts_json.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

using Kind = PreTokenizerKind;

class Reader {
 public:
  explicit Reader(TokenizerParts* parts) : parts_(*parts) {}

  Status Run(const JsonObject& root) {
    parts_.model.byte_level = false;
    if (IsNull(root, "pre_tokenizer")) return OkStatus();
    ASSIGN_OR_RETURN(const JsonObject object, NeedObject(root, "", "pre_tokenizer"));
    RETURN_IF_ERROR(Read(object, "pre_tokenizer"));
    parts_.model.byte_level = byte_level_;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].kind == Kind::kByteLevel) {
        // At the end the model may take the bytes themselves.
        if (i + 1 == steps_.size()) break;
        parts_.mapped = true;
      }
      parts_.pre_tokenizer.Add(std::move(steps_[i]));
    }
    return OkStatus();
  }

 private:
  static Status Check(const JsonObject& object, absl::string_view path,
                      std::initializer_list<absl::string_view> keys) {
    return CheckKeys(object, path, absl::Span<const absl::string_view>(keys.begin(), keys.size()));
  }

  void Add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }

  void AddSet(const PointRanges& ranges, SplitBehavior behavior) {
    PreTokenizerStep step;
    step.kind = Kind::kCharacter;
    step.set = std::make_shared<const CharSet>(ranges);
    step.behavior = behavior;
    Add(std::move(step));
  }

  Status Read(const JsonObject& object, const std::string& path) {
    if (steps_.size() >= kMaxSteps) {
      return Error(Code::kUnsupported, path, " is over the limit of ", kMaxSteps, " steps");
    }
    ASSIGN_OR_RETURN(const absl::string_view type, NeedString(object, path, "type"));
    if (type == "Sequence") return ReadSequence(object, path);
    if (type == "Split") return ReadSplit(object, path);
    if (type == "ByteLevel") return ReadByteLevel(object, path);
    if (type == "Metaspace") return ReadMetaspace(object, path);
    if (type == "Digits") {
      RETURN_IF_ERROR(Check(object, path, {"type", "individual_digits"}));
      ASSIGN_OR_RETURN(const bool each, BoolOr(object, path, "individual_digits", false));
      AddSet(NumericSet(), each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
      return OkStatus();
    }
    if (type == "Punctuation") {
      RETURN_IF_ERROR(Check(object, path, {"type", "behavior"}));
      SplitBehavior behavior = SplitBehavior::kIsolated;
      if (!IsNull(object, "behavior")) {
        ASSIGN_OR_RETURN(behavior, ReadBehavior(object, path));
      }
      AddSet(PunctuationSet(), behavior);
      return OkStatus();
    }
    if (type == "CharDelimiterSplit") {
      RETURN_IF_ERROR(Check(object, path, {"type", "delimiter"}));
      ASSIGN_OR_RETURN(PreTokenizerStep step, OneCharacter(object, path, "delimiter"));
      step.kind = Kind::kText;
      step.behavior = SplitBehavior::kRemoved;
      Add(std::move(step));
      return OkStatus();
    }
    return ReadWords(object, path, type);
  }

  Status ReadWords(const JsonObject& object, const std::string& path, absl::string_view type) {
    if (type != "WhitespaceSplit" && type != "Whitespace" && type != "BertPreTokenizer") {
      return Error(Code::kUnsupported, path, ".type is \"", absl::CHexEscape(type.substr(0, 64)),
                   "\", which mainarch does not follow");
    }
    RETURN_IF_ERROR(Check(object, path, {"type"}));
    AddSet(SpaceSet(), SplitBehavior::kRemoved);
    // \w+|[^\w\s]+: what is left of white space, cut where words and others meet.
    if (type == "Whitespace") AddSet(RustWordSet(), SplitBehavior::kContiguous);
    if (type == "BertPreTokenizer") AddSet(PunctuationSet(), SplitBehavior::kIsolated);
    return OkStatus();
  }

  Status ReadSequence(const JsonObject& object, const std::string& path) {
    RETURN_IF_ERROR(Check(object, path, {"type", "pretokenizers"}));
    ASSIGN_OR_RETURN(const auto steps, ReadSteps(object, path, "pretokenizers"));
    for (size_t i = 0; i < steps.size(); ++i) {
      RETURN_IF_ERROR(Read(steps[i], absl::StrCat(path, ".pretokenizers[", i, "]")));
    }
    return OkStatus();
  }

  static StatusOr<SplitBehavior> ReadBehavior(const JsonObject& object, absl::string_view path) {
    constexpr std::pair<absl::string_view, SplitBehavior> kNames[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    ASSIGN_OR_RETURN(const absl::string_view name, NeedString(object, path, "behavior"));
    for (const auto& [known, behavior] : kNames) {
      if (name == known) return behavior;
    }
    return Error(Code::kUnsupported, path, ".behavior is \"", absl::CHexEscape(name.substr(0, 64)),
                 "\", which mainarch does not follow");
  }

  Status ReadSplit(const JsonObject& object, const std::string& path) {
    RETURN_IF_ERROR(Check(object, path, {"type", "pattern", "behavior", "invert"}));
    PreTokenizerStep step;
    ASSIGN_OR_RETURN(step.behavior, ReadBehavior(object, path));
    ASSIGN_OR_RETURN(step.invert, BoolOr(object, path, "invert", false));
    ASSIGN_OR_RETURN(JsonPattern pattern, ReadPattern(object, path));
    step.kind = pattern.regex == nullptr ? Kind::kText : Kind::kRegex;
    step.text = std::move(pattern.text);
    step.regex = std::move(pattern.regex);
    // Patterns with a scanner match every character, so that keeping nothing else keeps all.
    const bool all = step.invert ? step.behavior == SplitBehavior::kRemoved
                                 : step.behavior == SplitBehavior::kIsolated;
    step.scanner = all ? FindScanner(pattern.source) : nullptr;
    if (step.scanner != nullptr) step.kind = Kind::kScan;
    Add(std::move(step));
    return OkStatus();
  }

  Status ReadByteLevel(const JsonObject& object, const std::string& path) {
    RETURN_IF_ERROR(Check(object, path, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    if (byte_level_) return Error(Code::kUnsupported, path, " is a second ByteLevel");
    byte_level_ = true;
    ASSIGN_OR_RETURN(const bool prefix, BoolOr(object, path, "add_prefix_space", true));
    ASSIGN_OR_RETURN(const bool use_regex, BoolOr(object, path, "use_regex", true));
    PreTokenizerStep step;
    if (prefix) {
      step.kind = Kind::kPrefix;
      step.text = " ";
      Add(step);
    }
    if (use_regex) {
      step = PreTokenizerStep();
      step.kind = Kind::kScan;
      step.scanner = FindScanner(kGpt2Pattern);
      Add(step);
    }
    step = PreTokenizerStep();
    step.kind = Kind::kByteLevel;
    Add(step);
    return OkStatus();
  }

  // A step whose text is the one character that stands there.
  static StatusOr<PreTokenizerStep> OneCharacter(const JsonObject& object, absl::string_view path,
                                                 absl::string_view key) {
    ASSIGN_OR_RETURN(const absl::string_view text, NeedString(object, path, key));
    size_t length = 0;
    if (!text.empty()) DecodeValid(text.data(), &length);
    if (text.empty() || length != text.size()) {
      return Error(Code::kBadModel, path, ".", key, " is not one character");
    }
    PreTokenizerStep step;
    step.text = std::string(text);
    return step;
  }

  Status ReadMetaspace(const JsonObject& object, const std::string& path) {
    RETURN_IF_ERROR(
        Check(object, path,
              {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"}));
    if (byte_level_) return Error(Code::kUnsupported, path, " is a Metaspace behind a ByteLevel");
    ASSIGN_OR_RETURN(PreTokenizerStep step, OneCharacter(object, path, "replacement"));
    step.kind = Kind::kMetaspace;
    ASSIGN_OR_RETURN(step.scheme, ReadScheme(object, path));
    ASSIGN_OR_RETURN(const bool split, BoolOr(object, path, "split", true));
    PreTokenizerStep cut;
    cut.kind = Kind::kText;
    cut.text = step.text;
    cut.behavior = SplitBehavior::kMergedWithNext;
    Add(std::move(step));
    if (split) Add(std::move(cut));
    return OkStatus();
  }

  static StatusOr<PrependScheme> ReadScheme(const JsonObject& object, absl::string_view path) {
    ASSIGN_OR_RETURN(const bool prefix, BoolOr(object, path, "add_prefix_space", true));
    absl::string_view name = "always";
    if (!IsNull(object, "prepend_scheme")) {
      ASSIGN_OR_RETURN(name, NeedString(object, path, "prepend_scheme"));
    }
    if (!prefix && name != "never" && !IsNull(object, "prepend_scheme")) {
      return Error(Code::kBadModel, path, ".prepend_scheme is not \"never\", though ",
                   "add_prefix_space is false");
    }
    if (!prefix || name == "never") return PrependScheme::kNever;
    if (name == "first") return PrependScheme::kFirst;
    if (name == "always") return PrependScheme::kAlways;
    return Error(Code::kUnsupported, path, ".prepend_scheme is \"",
                 absl::CHexEscape(name.substr(0, 64)), "\", which mainarch does not follow");
  }

  TokenizerParts& parts_;
  std::vector<PreTokenizerStep> steps_;
  bool byte_level_ = false;
};

}  // namespace

Status ReadPreTokenizer(const JsonObject& root, TokenizerParts* parts) {
  return Reader(parts).Run(root);
}

}  // namespace mainarch::text
