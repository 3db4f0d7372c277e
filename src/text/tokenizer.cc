// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "text/utf8.h"

namespace mainarch::text {

namespace {

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

// Tokens that only tokenizer_config.json has, and what it says otherwise of those that both have.
void MergeAdded(const std::vector<AddedToken>& more, std::vector<AddedToken>* added) {
  HashMap<std::string, size_t> places;
  for (size_t i = 0; i < added->size(); ++i) places.emplace((*added)[i].content, i);
  for (const AddedToken& token : more) {
    const auto known = places.find(token.content);
    if (known == places.end()) {
      added->push_back(token);
      continue;
    }
    AddedToken& old = (*added)[known->second];
    const uint32_t id = old.id;
    const bool special = old.special || token.special;
    old = token;
    old.id = id;
    old.special = special;
  }
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(absl::string_view tokenizer_json,
                                                           absl::string_view tokenizer_config_json,
                                                           absl::string_view file_name) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  TokenizerParts parts;
  const Status read = ReadTokenizerJson(tokenizer_json, tokenizer->byte_level_, &parts);
  if (!read.ok()) return WithContext(read, file_name);
  constexpr absl::string_view kConfigName = "tokenizer_config.json";
  TokenizerConfig config;
  if (!tokenizer_config_json.empty()) {
    auto given = ReadTokenizerConfig(tokenizer_config_json);
    if (!given.ok()) return WithContext(given.status(), kConfigName);
    config = *std::move(given);
    MergeAdded(config.added, &parts.added);
  }
  const Status init = tokenizer->Init(std::move(parts));
  if (!init.ok()) return WithContext(init, file_name);
  const Status taken = tokenizer->InitConfig(config);
  if (!taken.ok()) return WithContext(taken, kConfigName);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromPieces(TokenizerPieces pieces,
                                                                 absl::string_view file_name) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  TokenizerParts parts;
  Status status = ReadPieces(pieces, tokenizer->byte_level_, &parts);
  if (status.ok()) status = tokenizer->Init(std::move(parts));
  for (const auto& [name, from, to] : {std::tuple("bos", pieces.bos, &tokenizer->bos_),
                                       std::tuple("eos", pieces.eos, &tokenizer->eos_),
                                       std::tuple("pad", pieces.pad, &tokenizer->pad_)}) {
    *to = from;
    if (status.ok() && from.has_value() && *from >= tokenizer->vocab_size()) {
      status = Error(Code::kBadModel, name, " is ", *from, ", but there are ",
                     tokenizer->vocab_size(), " tokens");
    }
  }
  if (!status.ok()) return WithContext(status, file_name);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Status Tokenizer::Init(TokenizerParts parts) {
  normalizer_ = std::move(parts.normalizer);
  pre_tokenizer_ = std::move(parts.pre_tokenizer);
  mapped_ = parts.mapped;
  decoder_ = std::move(parts.decoder);
  model_.Build(std::move(parts.model));
  RETURN_IF_ERROR(InitAdded(std::move(parts.added)));
  before_ = std::move(parts.before);
  after_ = std::move(parts.after);
  RETURN_IF_ERROR(CheckAround(before_));
  RETURN_IF_ERROR(CheckAround(after_));
  if (!joins_bytes() || !model_.byte_level()) InitTexts();
  return OkStatus();
}

Status Tokenizer::CheckAround(const std::vector<uint32_t>& tokens) const {
  for (const uint32_t token : tokens) {
    if (token < vocab_size()) continue;
    return Error(Code::kBadModel, "post_processor: token ", token, " is outside the ", vocab_size(),
                 " tokens");
  }
  return OkStatus();
}

// Ids may be free (some files pad their vocabularies so), but not nearly all of them.
Status Tokenizer::CheckIds(uint32_t size, size_t added) const {
  size_t tokens = added;
  for (uint32_t id = 0; id < model_.vocabulary().size(); ++id)
    tokens += model_.vocabulary().Has(id);
  if (size <= 4 * tokens + (size_t{1} << 16)) return OkStatus();
  return Error(Code::kBadModel, "ids go up to ", size - 1, ", but there are only ", tokens,
               " tokens");
}

Status Tokenizer::InitAdded(std::vector<AddedToken> added) {
  const Vocabulary& vocabulary = model_.vocabulary();
  uint32_t size = vocabulary.size();
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  RETURN_IF_ERROR(CheckIds(size, added.size()));
  flags_.assign(size, 0);
  for (AddedToken& token : added) {
    const uint32_t known = vocabulary.FindSpelling(token.content, spelling());
    if (known != kNoToken && known != token.id) {
      return Error(Code::kBadModel, "added_tokens: ", Shown(token.content), " has id ", token.id,
                   ", but ", known, " in model.vocab");
    }
    if (known == kNoToken && (vocabulary.Has(token.id) || added_spellings_.contains(token.id))) {
      return Error(Code::kBadModel, "added_tokens: ", Shown(token.content), " has id ", token.id,
                   ", which belongs to another token");
    }
    flags_[token.id] = token.special ? kAdded | kSpecial : kAdded;
    std::string storage;
    absl::string_view content = token.content;
    if (token.normalized) {
      ASSIGN_OR_RETURN(content, normalizer_.Run(token.content, classes_, &storage));
      if (!content.empty()) added_normalized_.Add(content, token);
    } else {
      added_raw_.Add(content, token);
    }
    // Decoded, a token is what its text was normalised to.
    if (known == kNoToken || content != token.content) {
      added_bytes_[token.id] =
          token.verbatim ? std::string(content) : byte_level_.DecodeOrKeep(content);
    }
    added_spellings_[token.id] = std::string(content);
    added_ids_[std::move(token.content)] = token.id;
  }
  return OkStatus();
}

std::string Tokenizer::SpellingOf(uint32_t id) const {
  const auto added = added_spellings_.find(id);
  if (added != added_spellings_.end()) return added->second;
  const absl::string_view bytes = model_.vocabulary().Bytes(id);
  if (!model_.byte_level()) return std::string(bytes);
  for (const auto& [spelling, odd] : model_.vocabulary().odd()) {
    if (odd == id) return spelling;
  }
  std::string out;
  for (const char c : bytes) AppendUtf8(byte_level_.PointOf(static_cast<unsigned char>(c)), &out);
  return out;
}

void Tokenizer::InitTexts() {
  texts_.resize(flags_.size());
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    const std::string written = SpellingOf(id);
    if (!written.empty()) texts_[id] = decoder_.Amid(written, byte_level_);
  }
}

StatusOr<std::optional<uint32_t>> Tokenizer::ConfigToken(absl::string_view key,
                                                         const std::string& text) const {
  if (text.empty()) return std::optional<uint32_t>();
  const std::optional<uint32_t> id = TokenId(text);
  if (id) return id;
  return Error(Code::kBadModel, key, " \"", absl::CHexEscape(text.substr(0, 64)),
               "\" is no token of the tokenizer");
}

Status Tokenizer::InitConfig(const TokenizerConfig& config) {
  ASSIGN_OR_RETURN(bos_, ConfigToken("bos_token", config.bos_token));
  ASSIGN_OR_RETURN(eos_, ConfigToken("eos_token", config.eos_token));
  ASSIGN_OR_RETURN(pad_, ConfigToken("pad_token", config.pad_token));
  // As transformers does: where either is given, both decide, and a token that has no name is not
  // put.
  if (config.add_bos.has_value() || config.add_eos.has_value()) {
    before_.clear();
    after_.clear();
    if (config.add_bos.value_or(false) && bos_) before_.push_back(*bos_);
    if (config.add_eos.value_or(false) && eos_) after_.push_back(*eos_);
  }
  return OkStatus();
}

Status Tokenizer::Encode(absl::string_view utf8, const EncodeOptions& options,
                         std::vector<uint32_t>* out) const {
  if (utf8.size() > kMaxText) {
    return Error(Code::kInvalidArgument, "text of ", utf8.size(), " bytes is over the limit ",
                 kMaxText);
  }
  std::string repaired;
  if (!IsValidUtf8(utf8)) {
    repaired = RepairUtf8(utf8);
    utf8 = repaired;
  }
  const size_t before = out->size();
  if (options.add_special) out->insert(out->end(), before_.begin(), before_.end());
  AddedTokenMatcher::Cursor cursor;
  AddedTokenMatcher::Match match;
  size_t done = 0;
  Status status;
  const auto encode_up_to = [&](size_t end) {
    if (end > done) status = EncodeRaw(utf8.substr(done, end - done), done == 0, options, out);
  };
  while (status.ok() && options.parse_added &&
         added_raw_.Next(utf8, options.parse_special, classes_, &cursor, &match)) {
    encode_up_to(match.begin);
    out->push_back(match.id);
    done = match.end;
  }
  if (status.ok()) encode_up_to(utf8.size());
  if (!status.ok()) {
    out->resize(before);
    return status;
  }
  if (options.add_special) out->insert(out->end(), after_.begin(), after_.end());
  return OkStatus();
}

Status Tokenizer::EncodeRaw(absl::string_view raw, bool first, const EncodeOptions& options,
                            std::vector<uint32_t>* out) const {
  std::string storage;
  ASSIGN_OR_RETURN(const absl::string_view text, normalizer_.Run(raw, classes_, &storage));
  AddedTokenMatcher::Cursor cursor;
  AddedTokenMatcher::Match match;
  size_t done = 0;
  while (options.parse_added &&
         added_normalized_.Next(text, options.parse_special, classes_, &cursor, &match)) {
    if (match.begin > done) {
      RETURN_IF_ERROR(EncodePlain(text.substr(done, match.begin - done), first && done == 0, out));
    }
    out->push_back(match.id);
    done = match.end;
  }
  return EncodePlain(text.substr(done), first && done == 0, out);
}

Status Tokenizer::EncodePlain(absl::string_view text, bool first,
                              std::vector<uint32_t>* out) const {
  if (text.empty()) return OkStatus();
  if (pre_tokenizer_.size() == 0) return model_.Encode(text, out);
  if (const Scanner next_piece = pre_tokenizer_.only_scanner()) {
    while (!text.empty()) {
      const size_t length = next_piece(text, classes_);
      RETURN_IF_ERROR(model_.Encode(text.substr(0, length), out));
      text.remove_prefix(length);
    }
    return OkStatus();
  }
  Pieces pieces;
  RETURN_IF_ERROR(pre_tokenizer_.Run(text, first, classes_, byte_level_, &pieces));
  std::string bytes;
  for (const auto& [begin, end] : pieces.spans) {
    absl::string_view piece = pieces.text.substr(begin, end - begin);
    if (mapped_) {
      bytes = byte_level_.DecodeOrKeep(piece);
      piece = bytes;
    }
    RETURN_IF_ERROR(model_.Encode(piece, out));
  }
  return OkStatus();
}

absl::string_view Tokenizer::TokenBytes(uint32_t id) const {
  if (!texts_.empty())
    return id < texts_.size() ? absl::string_view(texts_[id]) : absl::string_view();
  if (IsAdded(id)) {
    const auto added = added_bytes_.find(id);
    if (added != added_bytes_.end()) return added->second;
  }
  return model_.vocabulary().Bytes(id);
}

void Tokenizer::PushText(uint32_t id, TextDecoder::State* state, std::string* out) const {
  if (!model_.vocabulary().Has(id) && !added_spellings_.contains(id)) return;
  decoder_.Push(SpellingOf(id), byte_level_, state, out);
}

void Tokenizer::FinishText(TextDecoder::State* state, std::string* out) const {
  decoder_.Finish(byte_level_, state, out);
}

std::string Tokenizer::Decode(absl::Span<const uint32_t> ids, bool skip_special) const {
  std::string text;
  text.reserve(4 * ids.size());
  if (!joins_bytes()) {
    TextDecoder::State state;
    for (const uint32_t id : ids) {
      if (!skip_special || !IsSpecial(id)) PushText(id, &state, &text);
    }
    FinishText(&state, &text);
    return text;
  }
  for (const uint32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    const absl::string_view token = TokenBytes(id);
    text.append(token.data(), token.size());
  }
  return IsValidUtf8(text) ? text : RepairUtf8(text);
}

std::vector<uint32_t> Tokenizer::SpecialTokens() const {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    if (IsSpecial(id)) ids.push_back(id);
  }
  return ids;
}

std::optional<uint32_t> Tokenizer::TokenId(absl::string_view written) const {
  const auto added = added_ids_.find(written);
  if (added != added_ids_.end()) return added->second;
  const uint32_t id = model_.vocabulary().FindSpelling(written, spelling());
  return id == kNoToken ? std::nullopt : std::optional<uint32_t>(id);
}

std::optional<uint32_t> Tokenizer::TokenOfBytes(absl::string_view bytes) const {
  const Vocabulary& vocabulary = model_.vocabulary();
  uint32_t id = vocabulary.Find(bytes);
  if (texts_.empty()) return id == kNoToken ? std::nullopt : std::optional<uint32_t>(id);
  // Spelled as it is, with SentencePiece's spaces, as a byte, or inside a word.
  const std::string marked = ReplaceAll(bytes, " ", "\xE2\x96\x81");
  const auto stands_for = [&](uint32_t token) {
    return token != kNoToken && texts_[token] == bytes;
  };
  if (!stands_for(id)) id = vocabulary.Find(marked);
  if (!stands_for(id)) id = vocabulary.Find(absl::StrCat("##", bytes));
  if (!stands_for(id) && !bytes.empty()) id = vocabulary.Find(bytes.substr(1));
  if (!stands_for(id) && bytes.size() == 1) {
    id = FindByteToken(vocabulary, static_cast<unsigned char>(bytes[0]));
  }
  return stands_for(id) ? std::optional<uint32_t>(id) : std::nullopt;
}

}  // namespace mainarch::text
