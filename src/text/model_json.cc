// SPDX-License-Identifier: MIT
#include "text/model_json.h"

#include <array>
#include <vector>

#include "absl/strings/escaping.h"

namespace mainarch::text {
namespace {

constexpr absl::string_view kMergesPath = "model.merges";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

Status CheckOptions(const JsonObject& model) {
  constexpr std::array<absl::string_view, 10> kKeys = {"type",
                                                       "dropout",
                                                       "unk_token",
                                                       "continuing_subword_prefix",
                                                       "end_of_word_suffix",
                                                       "fuse_unk",
                                                       "byte_fallback",
                                                       "ignore_merges",
                                                       "vocab",
                                                       "merges"};
  ASSIGN_OR_RETURN(const absl::string_view type, NeedString(model, "model", "type"));
  if (type != "BPE") {
    return Error(Code::kUnsupported, "model.type is ", Shown(type), "; mainarch takes BPE");
  }
  RETURN_IF_ERROR(CheckKeys(model, "model", kKeys));
  for (absl::string_view key : {"dropout", "unk_token"}) {
    if (IsNull(model, key)) continue;
    ASSIGN_OR_RETURN(const JsonElement value, NeedField(model, "model", key));
    return Unsupported(absl::StrCat("model.", key), value, "null");
  }
  for (absl::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (IsNull(model, key)) continue;
    ASSIGN_OR_RETURN(const absl::string_view value, NeedString(model, "model", key));
    if (!value.empty()) {
      return Error(Code::kUnsupported, "model.", key, " is ", Shown(value),
                   "; mainarch takes null or \"\"");
    }
  }
  // fuse_unk says something about unknown tokens, of which there are none.
  RETURN_IF_ERROR(BoolOr(model, "model", "fuse_unk", false).status());
  ASSIGN_OR_RETURN(const bool byte_fallback, BoolOr(model, "model", "byte_fallback", false));
  if (byte_fallback) {
    return Error(Code::kUnsupported, "model.byte_fallback is true; mainarch takes false");
  }
  return absl::OkStatus();
}

Status ReadVocabulary(const JsonObject& model, const ByteLevel& byte_level,
                      Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(const JsonObject tokens, NeedObject(model, "model", "vocab"));
  vocabulary->Reserve(tokens.size());
  for (const auto field : tokens) {
    uint64_t id;
    if (field.value.get(id)) {
      return Error(Code::kBadModel, "model.vocab: token ", Shown(View(field.key)), " has ",
                   ShownValue(field.value), " for an id, not an integer of 0 or more");
    }
    const Status added = vocabulary->Add(View(field.key), id, byte_level);
    if (!added.ok()) return WithContext(added, "model.vocab");
  }
  return WithContext(vocabulary->Finish(), "model.vocab");
}

// Reads merges a block at a time, so that the hash slots of a block are on their way together.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, const ByteLevel& byte_level, Merges* merges)
      : vocabulary_(vocabulary), byte_level_(byte_level), merges_(merges) {
    bytes_.resize(kBlock * kRoom);
  }

  Status Take(const JsonElement& element) {
    absl::string_view left, right;
    RETURN_IF_ERROR(Parts(element, &left, &right));
    Pending& merge = pending_[count_];
    char* const room = &bytes_[count_ * kRoom];
    if (left.size() + right.size() > kRoom) return TooLong(left, right);
    const int64_t left_length = byte_level_.Decode(left, room);
    if (left_length <= 0) return NotAToken(left, count_);
    const int64_t right_length = byte_level_.Decode(right, room + left_length);
    if (right_length <= 0) return NotAToken(right, count_);
    merge.left = {room, static_cast<size_t>(left_length)};
    merge.right = {room + left_length, static_cast<size_t>(right_length)};
    merge.left_key = Vocabulary::KeyOf(merge.left);
    merge.right_key = Vocabulary::KeyOf(merge.right);
    vocabulary_.Prefetch(merge.left_key);
    vocabulary_.Prefetch(merge.right_key);
    if (++count_ == kBlock) return Flush();
    return absl::OkStatus();
  }

  Status Flush() {
    for (size_t i = 0; i < count_; ++i) {
      Pending& merge = pending_[i];
      merge.left_id = vocabulary_.FindKey(merge.left_key, merge.left);
      if (merge.left_id == kNoToken) return NotAToken(merge.left, i);
      merge.right_id = vocabulary_.FindKey(merge.right_key, merge.right);
      if (merge.right_id == kNoToken) return NotAToken(merge.right, i);
      merges_->Prefetch(merge.left_id, merge.right_id);
    }
    const size_t count = count_;
    for (size_t i = 0; i < count; ++i, --count_) {
      const Pending& merge = pending_[i];
      const absl::string_view both(merge.left.data(), merge.left.size() + merge.right.size());
      // Vocabularies number their tokens in the order of the merges: try the next id first.
      uint32_t merged = last_ + 1;
      if (vocabulary_.Bytes(merged) != both) merged = vocabulary_.Find(both);
      if (merged == kNoToken) return NotAToken(both, 0);
      const Status added = merges_->Add(merge.left_id, merge.right_id, merged);
      if (!added.ok()) {
        return Error(CodeOf(added), kMergesPath, "[", merges_->size(), "] ", Shown(merge.left), " ",
                     Shown(merge.right), " ", added.message());
      }
      last_ = merged;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kBlock = 32;
  static constexpr size_t kRoom = 2048;  // bytes for the spelling of both parts of a merge

  struct Pending {
    absl::string_view left, right;  // raw bytes, side by side
    Vocabulary::Key left_key, right_key;
    uint32_t left_id = 0, right_id = 0;
  };

  std::string Where(size_t in_block) const {
    return absl::StrCat(kMergesPath, "[", merges_->size() + in_block, "]");
  }
  Status NotAToken(absl::string_view text, size_t in_block) const {
    return Error(Code::kBadModel, Where(in_block), ": ", Shown(text),
                 " is no token of model.vocab");
  }
  Status TooLong(absl::string_view left, absl::string_view right) const {
    return Error(Code::kBadModel, Where(count_), " has ", left.size() + right.size(),
                 " bytes, over the limit ", kRoom);
  }

  // "a b" or ["a", "b"]. The byte-level spelling has no spaces.
  Status Parts(const JsonElement& element, absl::string_view* left,
               absl::string_view* right) const {
    std::string_view a, b;
    if (!element.get(a)) {
      const size_t space = a.find(' ');
      if (space == a.npos || a.find(' ', space + 1) != a.npos) {
        return Error(Code::kBadModel, Where(count_), " is ", Shown(View(a)),
                     ", not two tokens with a space between them");
      }
      *left = View(a.substr(0, space));
      *right = View(a.substr(space + 1));
      return absl::OkStatus();
    }
    simdjson::dom::array pair;
    if (element.get(pair)) {
      return Error(Code::kBadModel, Where(count_), " is ", KindOf(element),
                   ", not a string or a pair of strings");
    }
    auto at = pair.begin();
    const auto end = pair.end();
    const bool good = at != end && !(*at).get(a) && ++at != end && !(*at).get(b) && !(++at != end);
    if (!good) return Error(Code::kBadModel, Where(count_), " is not a pair of strings");
    *left = View(a);
    *right = View(b);
    return absl::OkStatus();
  }

  const Vocabulary& vocabulary_;
  const ByteLevel& byte_level_;
  Merges* merges_;
  std::array<Pending, kBlock> pending_;
  std::string bytes_;    // kRoom for each of the block
  size_t count_ = 0;     // merges in the block
  uint32_t last_ = 255;  // the token of the merge before; the first follows the single bytes
};

Status ReadMerges(const JsonObject& model, const ByteLevel& byte_level, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(model, "model", "merges"));
  simdjson::dom::array merges;
  if (list.get(merges)) {
    return Error(Code::kBadModel, kMergesPath, " is ", KindOf(list), ", not an array");
  }
  // simdjson's own count stops at 2^24 - 1, which is over the limit of Reserve.
  const Status begun = parts->merges.Begin(parts->vocabulary, merges.size());
  if (!begun.ok()) return WithContext(begun, "model");
  MergeReader reader(parts->vocabulary, byte_level, &parts->merges);
  for (const JsonElement element : merges) RETURN_IF_ERROR(reader.Take(element));
  return reader.Flush();
}

}  // namespace

Status ReadModel(const JsonObject& model, const ByteLevel& byte_level, TokenizerParts* parts) {
  RETURN_IF_ERROR(CheckOptions(model));
  ASSIGN_OR_RETURN(parts->ignore_merges, BoolOr(model, "model", "ignore_merges", false));
  RETURN_IF_ERROR(ReadVocabulary(model, byte_level, &parts->vocabulary));
  return ReadMerges(model, byte_level, parts);
}

}  // namespace mainarch::text
