// SPDX-License-Identifier: MIT
#include "text/token_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

constexpr absl::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Whether no token has a U+2581 behind something else. Merges make tokens only, so none is made
// across such a place.
bool MarksLeadTokens(const Vocabulary& vocabulary) {
  if (vocabulary.Find(kMark) == kNoToken) return false;
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    absl::string_view token = vocabulary.Bytes(id);
    while (absl::StartsWith(token, kMark)) token.remove_prefix(kMark.size());
    if (absl::StrContains(token, kMark)) return false;
  }
  return true;
}

}  // namespace

void TokenModel::Build(TokenModelParts parts) {
  parts_ = std::move(parts);
  const Vocabulary& vocabulary = parts_.vocabulary;
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    byte_tokens_[byte] = FindByteToken(vocabulary, static_cast<unsigned char>(byte));
  }
  if (parts_.kind == ModelKind::kUnigram) {
    unigram_.Build(vocabulary, std::move(parts_.scores), parts_.unk, parts_.byte_fallback);
    return;
  }
  if (parts_.kind == ModelKind::kWordPiece) {
    std::vector<std::pair<absl::string_view, uint32_t>> beginnings, middles;
    for (uint32_t id = 0; id < vocabulary.size(); ++id) {
      const absl::string_view token = vocabulary.Bytes(id);
      if (token.empty()) continue;
      beginnings.emplace_back(token, id);
      if (absl::StartsWith(token, parts_.prefix) && token.size() > parts_.prefix.size()) {
        middles.emplace_back(token.substr(parts_.prefix.size()), id);
      }
    }
    beginnings_.Build(std::move(beginnings));
    middles_.Build(std::move(middles));
    return;
  }
  whole_.reset(new std::atomic<uint8_t>[vocabulary.size()]());
  if (!parts_.byte_level) {
    cut_at_marks_ = !parts_.ignore_merges && MarksLeadTokens(vocabulary);
    return;
  }
  // Bytes that have no token are unknown, or left out, as in the package.
  all_bytes_ = parts_.merges.TakeBytes(vocabulary);
}

Status TokenModel::Encode(absl::string_view piece, std::vector<uint32_t>* out) const {
  switch (parts_.kind) {
    case ModelKind::kUnigram:
      return unigram_.Encode(piece, out);
    case ModelKind::kWordPiece:
      EncodeWordPiece(piece, out);
      return OkStatus();
    case ModelKind::kBpe:
      break;
  }
  if (!cut_at_marks_) {
    EncodeWord(piece, out);
    return OkStatus();
  }
  // A word is marks and what follows them.
  while (!piece.empty()) {
    size_t end = 0;
    while (absl::StartsWith(piece.substr(end), kMark)) end += kMark.size();
    end = std::min(piece.find(kMark, end), piece.size());
    EncodeWord(piece.substr(0, end), out);
    piece.remove_prefix(end);
  }
  return OkStatus();
}

void TokenModel::EncodeWord(absl::string_view word, std::vector<uint32_t>* out) const {
  const auto encode = [&] {
    if (all_bytes_) {
      parts_.merges.Encode(word, out);
      return;
    }
    std::vector<uint32_t> symbols;
    Symbols(word, &symbols);
    parts_.merges.EncodeSymbols(symbols, out);
  };
  const uint32_t id = parts_.vocabulary.Find(word);
  if (id == kNoToken) return encode();
  const uint8_t whole =
      parts_.ignore_merges ? uint8_t{kWhole} : whole_[id].load(std::memory_order_relaxed);
  if (whole == kWhole) {
    out->push_back(id);
    return;
  }
  const size_t before = out->size();
  encode();
  if (whole == kUnknown) {
    const bool same = out->size() == before + 1 && out->back() == id;
    whole_[id].store(same ? kWhole : kParts, std::memory_order_relaxed);
  }
}

bool TokenModel::AppendBytes(absl::string_view character, std::vector<uint32_t>* out) const {
  for (const char c : character) {
    if (byte_tokens_[static_cast<unsigned char>(c)] == kNoToken) return false;
  }
  for (const char c : character) out->push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  return true;
}

void TokenModel::Symbols(absl::string_view word, std::vector<uint32_t>* out) const {
  bool unknown = false;  // one is pending
  size_t length = 1;
  for (size_t at = 0; at < word.size(); at += length) {
    if (!parts_.byte_level) DecodeValid(word.data() + at, &length);
    const absl::string_view character = word.substr(at, length);
    const uint32_t id = parts_.vocabulary.Find(character);
    if (id != kNoToken) {
      if (unknown) out->push_back(parts_.unk);
      unknown = false;
      out->push_back(id);
      continue;
    }
    // In the package too an unknown that is pending comes behind the bytes.
    if (parts_.byte_fallback && !parts_.byte_level && AppendBytes(character, out)) continue;
    if (parts_.unk == kNoToken) continue;  // as in the package: it is left out
    if (unknown && !parts_.fuse_unk) out->push_back(parts_.unk);
    unknown = true;
  }
  if (unknown) out->push_back(parts_.unk);
}

void TokenModel::EncodeWordPiece(absl::string_view word, std::vector<uint32_t>* out) const {
  const auto characters = static_cast<size_t>(
      std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  const size_t before = out->size();
  bool known = characters <= parts_.max_characters;
  for (size_t at = 0; known && at < word.size();) {
    const PrefixTrie& trie = at == 0 ? beginnings_ : middles_;
    uint32_t node = PrefixTrie::kRoot, token = kNoToken;
    size_t end = at;
    for (size_t i = at; i < word.size();) {
      node = trie.Step(node, static_cast<unsigned char>(word[i++]));
      if (node == PrefixTrie::kNowhere) break;
      if (trie.TokenAt(node) == kNoToken) continue;
      token = trie.TokenAt(node);
      end = i;
    }
    known = token != kNoToken;
    out->push_back(token);
    at = end;
  }
  if (known) return;
  out->resize(before);
  if (parts_.unk != kNoToken) out->push_back(parts_.unk);
}

}  // namespace mainarch::text
