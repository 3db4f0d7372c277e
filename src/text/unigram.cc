// SPDX-License-Identifier: MIT
#include "text/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

// What an unknown character costs beside the worst token (the package's K_UNK_PENALTY).
constexpr double kUnkPenalty = 10.0;

}  // namespace

uint32_t FindByteToken(const Vocabulary& vocabulary, unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  const char text[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
  return vocabulary.Find(absl::string_view(text, sizeof(text)));
}

void Unigram::Build(const Vocabulary& vocabulary, std::vector<double> scores, uint32_t unk,
                    bool byte_fallback) {
  std::vector<std::pair<absl::string_view, uint32_t>> texts;
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.Has(id)) continue;
    texts.emplace_back(vocabulary.Bytes(id), id);
    least = std::min(least, scores[id]);
  }
  trie_.Build(std::move(texts));
  scores_ = std::move(scores);
  unk_score_ = least - kUnkPenalty;
  unk_ = unk;
  byte_fallback_ = byte_fallback;
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    byte_tokens_[byte] = FindByteToken(vocabulary, static_cast<unsigned char>(byte));
  }
}

void Unigram::AppendUnknown(absl::string_view text, std::vector<uint32_t>* out) const {
  uint32_t node = PrefixTrie::kRoot;
  for (const char c : text) {
    node = trie_.Step(node, static_cast<unsigned char>(c));
    if (node == PrefixTrie::kNowhere) break;
  }
  // The token for the unknown itself, or characters that are a token together and not alone.
  if (node != PrefixTrie::kNowhere && trie_.TokenAt(node) != kNoToken) {
    out->push_back(trie_.TokenAt(node));
    return;
  }
  const auto token_of = [this](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
  if (!byte_fallback_ ||
      std::any_of(text.begin(), text.end(), [&](char c) { return token_of(c) == kNoToken; })) {
    out->push_back(unk_);
    return;
  }
  for (const char c : text) out->push_back(token_of(c));
}

Status Unigram::Encode(absl::string_view piece, std::vector<uint32_t>* out) const {
  struct Best {
    double score = 0;           // of the best way up to here
    uint32_t token = kNoToken;  // its last one
    uint32_t length = 0;        // of that; 0: there is no way
  };
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](size_t end, double score, uint32_t token, size_t length) {
    if (best[end].length != 0 && !(score > best[end].score)) return;
    best[end] = {score, token, static_cast<uint32_t>(length)};
  };
  for (size_t at = 0; at < piece.size();) {
    size_t character;
    DecodeValid(piece.data() + at, &character);
    const double here = best[at].score;
    bool single = false;  // the character is a token
    uint32_t node = PrefixTrie::kRoot;
    for (size_t end = at; end < piece.size();) {
      node = trie_.Step(node, static_cast<unsigned char>(piece[end++]));
      if (node == PrefixTrie::kNowhere) break;
      const uint32_t token = trie_.TokenAt(node);
      if (token == kNoToken) continue;
      offer(end, scores_[token] + here, token, end - at);
      single = single || end - at == character;
    }
    if (!single) {
      if (unk_ == kNoToken) {
        return Error(Code::kUnsupported, "the text has a character at byte ", at,
                     " that has no token, and there is no token for the unknown");
      }
      offer(at + character, unk_score_ + here, unk_, character);
    }
    at += character;
  }
  std::vector<std::pair<size_t, size_t>> ways;  // begin and end of each token, from the last
  for (size_t end = piece.size(); end > 0;) {
    const size_t begin = end - best[end].length;
    const bool unknown = best[end].token == unk_;
    // Neighbours that are unknown are one.
    if (unknown && !ways.empty() && ways.back().first == end &&
        best[ways.back().second].token == unk_) {
      ways.back().first = begin;
    } else {
      ways.emplace_back(begin, end);
    }
    end = begin;
  }
  for (auto way = ways.rbegin(); way != ways.rend(); ++way) {
    const uint32_t token = best[way->second].token;
    const absl::string_view text = piece.substr(way->first, way->second - way->first);
    if (token != unk_) {
      out->push_back(token);
    } else {
      AppendUnknown(text, out);
    }
  }
  return OkStatus();
}

}  // namespace mainarch::text
