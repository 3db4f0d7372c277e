// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "text/normalize.h"
#include "text/qwen_scanner.h"
#include "text/utf8.h"

namespace mainarch::text {

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(absl::string_view tokenizer_json,
                                                           absl::string_view tokenizer_config_json,
                                                           absl::string_view file_name) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  const Status init = tokenizer->Init(tokenizer_json);
  if (!init.ok()) return WithContext(init, file_name);
  if (!tokenizer_config_json.empty()) {
    constexpr absl::string_view kConfigName = "tokenizer_config.json";
    const auto config = ReadTokenizerConfig(tokenizer_config_json);
    if (!config.ok()) return WithContext(config.status(), kConfigName);
    const Status taken = tokenizer->InitConfig(*config);
    if (!taken.ok()) return WithContext(taken, kConfigName);
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Status Tokenizer::Init(absl::string_view json) {
  TokenizerParts parts;
  RETURN_IF_ERROR(ReadTokenizerJson(json, byte_level_, &parts));
  vocabulary_ = std::move(parts.vocabulary);
  merges_ = std::move(parts.merges);
  nfc_ = parts.nfc;
  ignore_merges_ = parts.ignore_merges;
  whole_.reset(new std::atomic<uint8_t>[vocabulary_.size()]());
  RETURN_IF_ERROR(InitSplit(parts.pattern));
  return InitAdded(std::move(parts.added));
}

Status Tokenizer::InitSplit(const std::string& pattern) {
  if (pattern == kQwen3Pattern) {
    next_piece_ = &NextQwen3Piece;
  } else if (pattern == kQwen35Pattern) {
    next_piece_ = &NextQwen35Piece;
  } else {
    auto regex = RegexSplit::Create(pattern);
    if (!regex.ok()) return WithContext(regex.status(), "pre_tokenizer.pretokenizers[0].pattern");
    regex_ = *std::move(regex);
  }
  return OkStatus();
}

Status Tokenizer::InitAdded(std::vector<AddedToken> added) {
  uint32_t size = vocabulary_.size();
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  flags_.assign(size, 0);
  std::string storage;
  for (AddedToken& token : added) {
    const std::string shown =
        absl::StrCat("\"", absl::CHexEscape(token.content.substr(0, 64)), "\"");
    const uint32_t known = vocabulary_.FindSpelling(token.content, byte_level_);
    if (known != kNoToken && known != token.id) {
      return Error(Code::kBadModel, "added_tokens: ", shown, " has id ", token.id, ", but ", known,
                   " in model.vocab");
    }
    if (known == kNoToken && (vocabulary_.Has(token.id) || added_bytes_.contains(token.id))) {
      return Error(Code::kBadModel, "added_tokens: ", shown, " has id ", token.id,
                   ", which belongs to another token");
    }
    if (known == kNoToken) added_bytes_[token.id] = byte_level_.DecodeOrKeep(token.content);
    flags_[token.id] = token.special ? kAdded | kSpecial : kAdded;
    if (token.normalized) {
      const absl::string_view content =
          nfc_ ? NormalizeNfc(token.content, classes_, &storage) : token.content;
      added_normalized_.Add(content, token);
    } else {
      added_raw_.Add(token.content, token);
    }
    added_ids_[std::move(token.content)] = token.id;
  }
  for (uint32_t id = 0; id < size; ++id) {
    if (!vocabulary_.Has(id) && !added_bytes_.contains(id)) {
      return Error(Code::kBadModel, "id ", id, " has no token, though ids go up to ", size - 1);
    }
  }
  return OkStatus();
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
  chat_template_ = config.chat_template;
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
  AddedTokenMatcher::Cursor cursor;
  AddedTokenMatcher::Match match;
  size_t done = 0;
  Status status;
  while (status.ok() && options.parse_added &&
         added_raw_.Next(utf8, options.parse_special, classes_, &cursor, &match)) {
    if (match.begin > done) status = EncodeRaw(utf8.substr(done, match.begin - done), options, out);
    out->push_back(match.id);
    done = match.end;
  }
  if (status.ok() && done < utf8.size()) status = EncodeRaw(utf8.substr(done), options, out);
  if (!status.ok()) out->resize(before);
  return status;
}

Status Tokenizer::EncodeRaw(absl::string_view raw, const EncodeOptions& options,
                            std::vector<uint32_t>* out) const {
  std::string storage;
  const absl::string_view text = nfc_ ? NormalizeNfc(raw, classes_, &storage) : raw;
  AddedTokenMatcher::Cursor cursor;
  AddedTokenMatcher::Match match;
  size_t done = 0;
  while (options.parse_added &&
         added_normalized_.Next(text, options.parse_special, classes_, &cursor, &match)) {
    if (match.begin > done) {
      RETURN_IF_ERROR(EncodePlain(text.substr(done, match.begin - done), out));
    }
    out->push_back(match.id);
    done = match.end;
  }
  return EncodePlain(text.substr(done), out);
}

Status Tokenizer::EncodePlain(absl::string_view text, std::vector<uint32_t>* out) const {
  if (next_piece_ != nullptr) {
    while (!text.empty()) {
      const size_t length = next_piece_(text, classes_);
      EncodePiece(text.substr(0, length), out);
      text.remove_prefix(length);
    }
    return OkStatus();
  }
  std::vector<size_t> ends;
  RETURN_IF_ERROR(regex_->Cut(text, &ends));
  size_t done = 0;
  for (const size_t end : ends) {
    EncodePiece(text.substr(done, end - done), out);
    done = end;
  }
  return OkStatus();
}

void Tokenizer::EncodePiece(absl::string_view piece, std::vector<uint32_t>* out) const {
  const uint32_t id = vocabulary_.Find(piece);
  if (id == kNoToken) {
    merges_.Encode(piece, out);
    return;
  }
  const uint8_t whole =
      ignore_merges_ ? uint8_t{kWhole} : whole_[id].load(std::memory_order_relaxed);
  if (whole == kWhole) {
    out->push_back(id);
    return;
  }
  const size_t before = out->size();
  merges_.Encode(piece, out);
  if (whole == kUnknown) {
    const bool same = out->size() == before + 1 && out->back() == id;
    whole_[id].store(same ? kWhole : kParts, std::memory_order_relaxed);
  }
}

absl::string_view Tokenizer::TokenBytes(uint32_t id) const {
  if (vocabulary_.Has(id)) return vocabulary_.Bytes(id);
  const auto added = added_bytes_.find(id);
  return added == added_bytes_.end() ? absl::string_view() : absl::string_view(added->second);
}

std::string Tokenizer::Decode(absl::Span<const uint32_t> ids, bool skip_special) const {
  std::string bytes;
  bytes.reserve(4 * ids.size());
  for (const uint32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    const absl::string_view token = TokenBytes(id);
    bytes.append(token.data(), token.size());
  }
  return IsValidUtf8(bytes) ? bytes : RepairUtf8(bytes);
}

std::vector<uint32_t> Tokenizer::SpecialTokens() const {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    if (IsSpecial(id)) ids.push_back(id);
  }
  return ids;
}

std::optional<uint32_t> Tokenizer::TokenId(absl::string_view spelling) const {
  const auto added = added_ids_.find(spelling);
  if (added != added_ids_.end()) return added->second;
  const uint32_t id = vocabulary_.FindSpelling(spelling, byte_level_);
  return id == kNoToken ? std::nullopt : std::optional<uint32_t>(id);
}

std::optional<uint32_t> Tokenizer::TokenOfBytes(absl::string_view bytes) const {
  const uint32_t id = vocabulary_.Find(bytes);
  return id == kNoToken ? std::nullopt : std::optional<uint32_t>(id);
}

}  // namespace mainarch::text
