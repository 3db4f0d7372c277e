// SPDX-License-Identifier: MIT
#include "text/model_json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "text/huge_allocator.h"

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
  return OkStatus();
}

// Token -> its spelling, in the memory of the parser; empty for odd ones.
using Spellings = HugeVector<absl::string_view>;

Status ReadVocabulary(const JsonObject& model, const ByteLevel& byte_level, Vocabulary* vocabulary,
                      Spellings* spellings) {
  ASSIGN_OR_RETURN(const JsonObject tokens, NeedObject(model, "model", "vocab"));
  vocabulary->Reserve(tokens.size());
  spellings->resize(std::min<size_t>(tokens.size(), kMaxTokens));
  for (const auto field : tokens) {
    uint64_t id;
    if (field.value.get(id)) {
      return Error(Code::kBadModel, "model.vocab: token ", Shown(View(field.key)), " has ",
                   ShownValue(field.value), " for an id, not an integer of 0 or more");
    }
    const Status added = vocabulary->Add(View(field.key), id, byte_level);
    if (!added.ok()) return WithContext(added, "model.vocab");
    if (id >= spellings->size()) spellings->resize(id + 1);
    (*spellings)[id] = View(field.key);
  }
  for (const auto& [spelling, id] : vocabulary->odd()) (*spellings)[id] = {};
  return WithContext(vocabulary->Finish(), "model.vocab");
}

// simdjson leaves room behind its last string (document::allocate), so that strings can be compared
// by words.
static_assert(simdjson::SIMDJSON_PADDING >= Vocabulary::kPadding);

uint64_t Word(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

// How many bytes two texts have in common from the start; both may be read up to a word behind it.
size_t Common(const char* a, const char* b, size_t most) {
  for (size_t i = 0; i < most; i += 8) {
    const uint64_t difference = Word(a + i) ^ Word(b + i);
    if (difference != 0)
      return std::min(most, i + static_cast<size_t>(std::countr_zero(difference)) / 8);
  }
  return most;
}

// The characters of a UTF-8 text, behind which a word may be read: the bytes that continue none.
size_t Characters(absl::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  size_t continuing = 0;
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = Word(text.data() + i);
    if (text.size() - i < 8) word &= (uint64_t{1} << (8 * (text.size() - i))) - 1;
    continuing += ((word >> 7 & ~(word >> 6) & kOnes) * kOnes) >> 56;
  }
  return text.size() - continuing;
}

// Reads merges a block at a time, so that the hash slots of a block are on their way together.
//
// Vocabularies number their tokens in the order of the merges. So the token that a merge makes is
// guessed; if its spelling is that of the parts, its bytes are theirs, and nothing needs decoding.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, const Spellings& spellings, const ByteLevel& byte_level,
              Merges* merges)
      : vocabulary_(vocabulary), spellings_(spellings), byte_level_(byte_level), merges_(merges) {
    bytes_.resize(kBlock * kRoom);
  }

  Status Take(const JsonElement& element) {
    Pending& merge = pending_[count_];
    if (!TakeGuessed(element, &merge)) RETURN_IF_ERROR(TakeParts(element, &merge));
    merge.left_key = Vocabulary::KeyOfPadded(merge.left);
    merge.right_key = Vocabulary::KeyOfPadded(merge.right);
    vocabulary_.Prefetch(merge.left_key);
    vocabulary_.Prefetch(merge.right_key);
    if (++count_ == kBlock) return Flush();
    return OkStatus();
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
      const uint32_t merged = merge.merged != kNoToken ? merge.merged : vocabulary_.Find(both);
      if (merged == kNoToken) return NotAToken(both, 0);
      const Status added = merges_->Add(merge.left_id, merge.right_id, merged);
      if (!added.ok()) {
        return Error(CodeOf(added), kMergesPath, "[", merges_->size(), "] ", Shown(merge.left), " ",
                     Shown(merge.right), " ", added.message());
      }
      guess_ = merged + 1;
    }
    return OkStatus();
  }

 private:
  static constexpr size_t kBlock = 32;
  static constexpr size_t kMost = 2048;       // bytes of the spelling of both parts of a merge
  static constexpr size_t kRoom = kMost + 8;  // and padding
  static_assert(kRoom - kMost >= Vocabulary::kPadding);

  struct Pending {
    absl::string_view left, right;  // raw bytes, side by side
    Vocabulary::Key left_key, right_key;
    uint32_t left_id = 0, right_id = 0, merged = kNoToken;
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
                 " bytes, over the limit ", kMost);
  }

  bool TakeGuessed(const JsonElement& element, Pending* merge) {
    if (guess_ >= spellings_.size()) return false;
    const absl::string_view spelling = spellings_[guess_];
    std::string_view left, right;
    if (!element.get(left)) {
      // The text differs from the spelling at its space, or before, and is then no match.
      if (left.size() != spelling.size() + 1) return false;
      const size_t space = Common(left.data(), spelling.data(), spelling.size());
      if (space == spelling.size() || left[space] != ' ') return false;
      right = left.substr(space + 1);
      left = left.substr(0, space);
    } else {
      if (!Pair(element, &left, &right) || left.size() + right.size() != spelling.size() ||
          Common(left.data(), spelling.data(), left.size()) != left.size()) {
        return false;
      }
    }
    if (left.empty() || right.empty() || spelling.size() > kMost ||
        Common(right.data(), spelling.data() + left.size(), right.size()) != right.size()) {
      return false;
    }
    const absl::string_view bytes = vocabulary_.Bytes(guess_);
    const size_t cut = Characters(View(left));
    merge->left = bytes.substr(0, cut);
    merge->right = bytes.substr(cut);
    merge->merged = guess_++;
    return true;
  }

  // Any form, and what is wrong with it.
  Status TakeParts(const JsonElement& element, Pending* merge) {
    absl::string_view left, right;
    RETURN_IF_ERROR(Parts(element, &left, &right));
    char* const room = &bytes_[count_ * kRoom];
    if (left.size() + right.size() > kMost) return TooLong(left, right);
    const int64_t left_length = byte_level_.Decode(left, room);
    if (left_length <= 0) return NotAToken(left, count_);
    const int64_t right_length = byte_level_.Decode(right, room + left_length);
    if (right_length <= 0) return NotAToken(right, count_);
    merge->left = {room, static_cast<size_t>(left_length)};
    merge->right = {room + left_length, static_cast<size_t>(right_length)};
    merge->merged = kNoToken;
    return OkStatus();
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
      return OkStatus();
    }
    simdjson::dom::array pair;
    if (element.get(pair)) {
      return Error(Code::kBadModel, Where(count_), " is ", KindOf(element),
                   ", not a string or a pair of strings");
    }
    if (!Pair(element, &a, &b)) {
      return Error(Code::kBadModel, Where(count_), " is not a pair of strings");
    }
    *left = View(a);
    *right = View(b);
    return OkStatus();
  }

  static bool Pair(const JsonElement& element, std::string_view* left, std::string_view* right) {
    simdjson::dom::array pair;
    if (element.get(pair)) return false;
    auto at = pair.begin();
    const auto end = pair.end();
    return at != end && !(*at).get(*left) && ++at != end && !(*at).get(*right) && !(++at != end);
  }

  const Vocabulary& vocabulary_;
  const Spellings& spellings_;
  const ByteLevel& byte_level_;
  Merges* merges_;
  std::array<Pending, kBlock> pending_;
  std::string bytes_;     // kRoom for each of the block
  size_t count_ = 0;      // merges in the block
  uint32_t guess_ = 256;  // what the next merge makes; the first follows the single bytes
};

Status ReadMerges(const JsonObject& model, const ByteLevel& byte_level, const Spellings& spellings,
                  TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(model, "model", "merges"));
  simdjson::dom::array merges;
  if (list.get(merges)) {
    return Error(Code::kBadModel, kMergesPath, " is ", KindOf(list), ", not an array");
  }
  // simdjson's own count stops at 2^24 - 1, which is over the limit of Reserve.
  const Status begun = parts->merges.Begin(parts->vocabulary, merges.size());
  if (!begun.ok()) return WithContext(begun, "model");
  MergeReader reader(parts->vocabulary, spellings, byte_level, &parts->merges);
  for (const JsonElement element : merges) RETURN_IF_ERROR(reader.Take(element));
  return reader.Flush();
}

}  // namespace

Status ReadModel(const JsonObject& model, const ByteLevel& byte_level, TokenizerParts* parts) {
  RETURN_IF_ERROR(CheckOptions(model));
  ASSIGN_OR_RETURN(parts->ignore_merges, BoolOr(model, "model", "ignore_merges", false));
  Spellings spellings;
  RETURN_IF_ERROR(ReadVocabulary(model, byte_level, &parts->vocabulary, &spellings));
  return ReadMerges(model, byte_level, spellings, parts);
}

}  // namespace mainarch::text
