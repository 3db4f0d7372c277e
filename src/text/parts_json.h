// SPDX-License-Identifier: MIT
//
// The sections of tokenizer.json, a function each. Errors say "<field>: .."; what is not followed
// is refused by name. Private to this folder.
#ifndef MAINARCH_TEXT_PARTS_JSON_H_
#define MAINARCH_TEXT_PARTS_JSON_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "text/json_fields.h"
#include "text/tokenizer_parts.h"

namespace mainarch::text {

// Of each section; Sequences are laid out flat.
inline constexpr size_t kMaxSteps = 64;
// Bytes of a text that another one becomes.
inline constexpr size_t kMaxContent = 64;

Status ReadNormalizer(const JsonObject& root, Normalizer* out);
// Sets the parts pre_tokenizer, mapped and model.byte_level.
Status ReadPreTokenizer(const JsonObject& root, TokenizerParts* parts);
Status ReadDecoder(const JsonObject& root, TextDecoder* out);
// Sets before and after.
Status ReadPostProcessor(const JsonObject& root, TokenizerParts* parts);
// Sets model, of which byte_level is set already.
Status ReadModel(const JsonObject& root, const ByteLevel& byte_level, TokenizerParts* parts);

inline constexpr size_t kMaxAddedTokens = size_t{1} << 16;
// The fields of an added token, but for its id.
StatusOr<AddedToken> ReadAddedFields(const JsonObject& object, const std::string& path,
                                     uint64_t id);

// {"String": ..} as `text`, or {"Regex": ..} compiled. `text` is not empty then.
struct JsonPattern {
  std::string text;
  std::string source;  // of the regex
  std::shared_ptr<const Regex> regex;
};
StatusOr<JsonPattern> ReadPattern(const JsonObject& object, absl::string_view path);

// The objects in the list `key` of a Sequence.
StatusOr<std::vector<JsonObject>> ReadSteps(const JsonObject& object, absl::string_view path,
                                            absl::string_view key);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_PARTS_JSON_H_
