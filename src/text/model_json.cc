// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "text/huge_allocator.h"
#include "text/parts_json.h"

namespace mainarch::text {
namespace {

constexpr absl::string_view kMergesPath = "model.merges";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

Status Check(const JsonObject& object, std::initializer_list<absl::string_view> keys) {
  return CheckKeys(object, "model", absl::Span<const absl::string_view>(keys.begin(), keys.size()));
}

// What is followed only where it says nothing.
Status CheckBpeOptions(const JsonObject& model) {
  RETURN_IF_ERROR(Check(
      model, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
              "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (!IsNull(model, "dropout")) {
    ASSIGN_OR_RETURN(const JsonElement value, NeedField(model, "model", "dropout"));
    double dropout;
    if (value.get(dropout) || dropout != 0) return Unsupported("model.dropout", value, "null");
  }
  for (absl::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (IsNull(model, key)) continue;
    ASSIGN_OR_RETURN(const absl::string_view value, NeedString(model, "model", key));
    if (!value.empty()) {
      return Error(Code::kUnsupported, "model.", key, " is ", Shown(value),
                   "; mainarch takes null or \"\"");
    }
  }
  return OkStatus();
}

// Token -> its spelling, in the memory of the parser; empty for odd ones.
using Spellings = HugeVector<absl::string_view>;

Status ReadVocabulary(const JsonObject& model, const ByteLevel* byte_level, Vocabulary* vocabulary,
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
  MergeReader(const Vocabulary& vocabulary, const Spellings& spellings, const ByteLevel* byte_level,
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
    const size_t cut = byte_level_ != nullptr ? Characters(View(left)) : left.size();
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
    const int64_t left_length = Spelled(left, room);
    if (left_length <= 0) return NotAToken(left, count_);
    const int64_t right_length = Spelled(right, room + left_length);
    if (right_length <= 0) return NotAToken(right, count_);
    merge->left = {room, static_cast<size_t>(left_length)};
    merge->right = {room + left_length, static_cast<size_t>(right_length)};
    merge->merged = kNoToken;
    return OkStatus();
  }

  // Writes the bytes of a spelling; -1 when it has none.
  int64_t Spelled(absl::string_view spelling, char* out) const {
    if (byte_level_ != nullptr) return byte_level_->Decode(spelling, out);
    std::memcpy(out, spelling.data(), spelling.size());
    return static_cast<int64_t>(spelling.size());
  }

  // "a b" or ["a", "b"]. The first form is of spellings without spaces.
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
  const ByteLevel* byte_level_;  // null: tokens are spelled as they are
  Merges* merges_;
  std::array<Pending, kBlock> pending_;
  std::string bytes_;     // kRoom for each of the block
  size_t count_ = 0;      // merges in the block
  uint32_t guess_ = 256;  // what the next merge makes; the first follows the single bytes
};

Status ReadMerges(const JsonObject& model, const ByteLevel* byte_level, const Spellings& spellings,
                  TokenModelParts* parts) {
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(model, "model", "merges"));
  simdjson::dom::array merges;
  if (list.get(merges)) {
    return Error(Code::kBadModel, kMergesPath, " is ", KindOf(list), ", not an array");
  }
  // simdjson's own count stops at 2^24 - 1, which is over the limit of Reserve.
  const Status begun = parts->merges.Begin(merges.size());
  if (!begun.ok()) return WithContext(begun, "model");
  MergeReader reader(parts->vocabulary, spellings, byte_level, &parts->merges);
  for (const JsonElement element : merges) RETURN_IF_ERROR(reader.Take(element));
  return reader.Flush();
}

// "unk_token": a token of the vocabulary. One of a byte-level model that is not there is never
// used, because every byte is a token.
Status ReadUnk(const JsonObject& model, const ByteLevel* byte_level, TokenModelParts* parts) {
  if (IsNull(model, "unk_token")) return OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view unk, NeedString(model, "model", "unk_token"));
  parts->unk = parts->vocabulary.FindSpelling(unk, byte_level);
  if (parts->unk != kNoToken || byte_level != nullptr) return OkStatus();
  return Error(Code::kBadModel, "model.unk_token ", Shown(unk), " is no token of model.vocab");
}

Status ReadBpe(const JsonObject& model, const ByteLevel* byte_level, TokenModelParts* parts) {
  RETURN_IF_ERROR(CheckBpeOptions(model));
  ASSIGN_OR_RETURN(parts->ignore_merges, BoolOr(model, "model", "ignore_merges", false));
  ASSIGN_OR_RETURN(parts->fuse_unk, BoolOr(model, "model", "fuse_unk", false));
  ASSIGN_OR_RETURN(parts->byte_fallback, BoolOr(model, "model", "byte_fallback", false));
  Spellings spellings;
  RETURN_IF_ERROR(ReadVocabulary(model, byte_level, &parts->vocabulary, &spellings));
  RETURN_IF_ERROR(ReadUnk(model, byte_level, parts));
  return ReadMerges(model, byte_level, spellings, parts);
}

Status ReadWordPiece(const JsonObject& model, TokenModelParts* parts) {
  constexpr absl::string_view kMax = "max_input_chars_per_word";
  RETURN_IF_ERROR(Check(model, {"type", "unk_token", "continuing_subword_prefix", kMax, "vocab"}));
  parts->kind = ModelKind::kWordPiece;
  if (!IsNull(model, "continuing_subword_prefix")) {
    ASSIGN_OR_RETURN(const absl::string_view prefix,
                     NeedString(model, "model", "continuing_subword_prefix"));
    parts->prefix = std::string(prefix);
  }
  if (!IsNull(model, kMax)) {
    ASSIGN_OR_RETURN(const uint64_t most, NeedUnsigned(model, "model", kMax));
    parts->max_characters = static_cast<size_t>(most);
  }
  Spellings spellings;
  RETURN_IF_ERROR(ReadVocabulary(model, nullptr, &parts->vocabulary, &spellings));
  if (IsNull(model, "unk_token")) return Error(Code::kBadModel, "model.unk_token is missing");
  return ReadUnk(model, nullptr, parts);
}

// A number as the package reads it (serde_json without float_roundtrip): its digits as an integer,
// by a power of ten, which rounds twice. Ways of equal score are told apart by the last bit. The
// digits are the fewest that give the number, which is what writers of JSON write.
double AsSerdeReads(double value) {
  char text[64];
  const auto written =
      std::to_chars(text, text + sizeof(text), std::abs(value), std::chars_format::scientific);
  uint64_t digits = 0;
  int exponent = 0, places = 0;
  const char* at = text;
  for (bool point = false; at < written.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      point = true;
      continue;
    }
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    places += point;
  }
  if (at < written.ptr) ++at;
  if (at < written.ptr && *at == '+') ++at;
  std::from_chars(at, written.ptr, exponent);
  exponent -= places;
  constexpr int kMost = 308;  // powers of ten that a double has
  auto out = static_cast<double>(digits);
  for (; exponent < -kMost; exponent += kMost) out /= 1e308;
  double power = 1;
  char power_text[8] = "1e";
  const auto power_end = std::to_chars(power_text + 2, power_text + 8, std::abs(exponent)).ptr;
  std::from_chars(power_text, power_end, power);
  out = exponent < 0 ? out / power : out * power;
  return value < 0 ? -out : out;
}

// [piece, score], whose id is its place.
Status AddScored(const JsonElement& element, TokenModelParts* parts) {
  const size_t id = parts->scores.size();
  simdjson::dom::array pair;
  std::string_view piece;
  double score;
  JsonElement first, second;
  if (element.get(pair) || pair.size() != 2 || pair.at(0).get(first) || pair.at(1).get(second) ||
      first.get(piece) || second.get(score)) {
    return Error(Code::kBadModel, "model.vocab[", id, "] is not a text and its score");
  }
  parts->scores.push_back(AsSerdeReads(score));
  return WithContext(parts->vocabulary.Add(View(piece), id, nullptr), "model.vocab");
}

Status ReadUnigram(const JsonObject& model, TokenModelParts* parts) {
  RETURN_IF_ERROR(Check(model, {"type", "unk_id", "vocab", "byte_fallback"}));
  parts->kind = ModelKind::kUnigram;
  ASSIGN_OR_RETURN(parts->byte_fallback, BoolOr(model, "model", "byte_fallback", false));
  ASSIGN_OR_RETURN(const JsonElement list, NeedField(model, "model", "vocab"));
  simdjson::dom::array pieces;
  if (list.get(pieces)) {
    return Error(Code::kBadModel, "model.vocab is ", KindOf(list), ", not an array");
  }
  parts->vocabulary.Reserve(pieces.size());
  for (const JsonElement element : pieces) RETURN_IF_ERROR(AddScored(element, parts));
  RETURN_IF_ERROR(WithContext(parts->vocabulary.Finish(), "model.vocab"));
  if (IsNull(model, "unk_id")) return OkStatus();
  ASSIGN_OR_RETURN(const uint64_t unk, NeedUnsigned(model, "model", "unk_id"));
  if (unk >= parts->scores.size()) {
    return Error(Code::kBadModel, "model.unk_id is ", unk, ", but there are ", parts->scores.size(),
                 " tokens");
  }
  parts->unk = static_cast<uint32_t>(unk);
  return OkStatus();
}

// Files of old releases do not say which model they have.
StatusOr<absl::string_view> TypeOf(const JsonObject& model) {
  if (!IsNull(model, "type")) return NeedString(model, "model", "type");
  if (!IsNull(model, "merges")) return absl::string_view("BPE");
  return absl::string_view(IsNull(model, "unk_token") ? "Unigram" : "WordPiece");
}

}  // namespace

Status ReadModel(const JsonObject& root, const ByteLevel& byte_level, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const JsonObject model, NeedObject(root, "", "model"));
  ASSIGN_OR_RETURN(const absl::string_view type, TypeOf(model));
  if (type == "BPE") {
    return ReadBpe(model, parts->model.byte_level ? &byte_level : nullptr, &parts->model);
  }
  if (type != "Unigram" && type != "WordPiece") {
    return Error(Code::kUnsupported, "model.type is ", Shown(type),
                 "; mainarch takes BPE, Unigram and WordPiece");
  }
  if (parts->model.byte_level) {
    return Error(Code::kUnsupported, "model.type is ", Shown(type), " behind a ByteLevel");
  }
  return type == "Unigram" ? ReadUnigram(model, &parts->model)
                           : ReadWordPiece(model, &parts->model);
}

}  // namespace mainarch::text
