// SPDX-License-Identifier: MIT
#include "text/added_tokens.h"

#include <algorithm>

#include "text/char_set.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

unsigned char ByteAt(absl::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The start of the white space that ends at `end`.
size_t SpaceBefore(absl::string_view text, size_t end, const CharClasses& classes) {
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    size_t length;
    if (!(classes.At(text.data() + at, &length) & kSpace)) break;
    end = at;
  }
  return end;
}

// The end of the white space that starts at `begin`.
size_t SpaceAfter(absl::string_view text, size_t begin, const CharClasses& classes) {
  while (begin < text.size()) {
    size_t length;
    if (!(classes.At(text.data() + begin, &length) & kSpace)) break;
    begin += length;
  }
  return begin;
}

// Whether the regex crate's \w stands just before or behind [begin, end).
bool InsideWord(absl::string_view text, size_t begin, size_t end) {
  static const CharSet& words = *new CharSet(RustWordSet());
  size_t length;
  if (end < text.size() && words.Has(DecodeValid(text.data() + end, &length))) return true;
  if (begin == 0) return false;
  do --begin;
  while ((text[begin] & 0xC0) == 0x80);
  return words.Has(DecodeValid(text.data() + begin, &length));
}

}  // namespace

void AddedTokenMatcher::Add(absl::string_view content, const AddedToken& token) {
  uint32_t node = kRoot;
  for (size_t i = 0; i < content.size(); ++i) {
    const auto fresh = static_cast<uint32_t>(token_of_node_.size());
    const auto [edge, added] =
        edges_.try_emplace(static_cast<uint64_t>(node) << 8 | ByteAt(content, i), fresh);
    if (added) token_of_node_.push_back(kNoToken);
    if (node == kRoot) root_edges_[ByteAt(content, i)] = edge->second;
    node = edge->second;
  }
  token_of_node_[node] = static_cast<uint32_t>(tokens_.size());
  tokens_.push_back({token.id, token.special, token.lstrip, token.rstrip, token.single_word});
}

bool AddedTokenMatcher::Longest(absl::string_view text, size_t at, uint32_t* index,
                                size_t* end) const {
  uint32_t node = root_edges_[ByteAt(text, at)];
  bool found = false;
  while (true) {
    ++at;
    if (token_of_node_[node] != kNoToken) {
      *index = token_of_node_[node];
      *end = at;
      found = true;
    }
    if (at == text.size()) return found;
    const auto edge = edges_.find(static_cast<uint64_t>(node) << 8 | ByteAt(text, at));
    if (edge == edges_.end()) return found;
    node = edge->second;
  }
}

bool AddedTokenMatcher::Next(absl::string_view text, bool special, const CharClasses& classes,
                             Cursor* cursor, Match* match) const {
  if (tokens_.empty()) return false;
  for (size_t at = cursor->search; at < text.size(); ++at) {
    if (root_edges_[ByteAt(text, at)] == 0) continue;
    uint32_t index = 0;
    size_t end = 0;
    if (!Longest(text, at, &index, &end)) continue;
    const Info& token = tokens_[index];
    cursor->search = end;
    if ((token.special && !special) || (token.single_word && InsideWord(text, at, end))) {
      at = end - 1;
      continue;
    }
    match->begin = token.lstrip ? SpaceBefore(text, at, classes) : at;
    match->begin = std::max(match->begin, std::min(cursor->taken, at));
    match->end = token.rstrip ? SpaceAfter(text, end, classes) : end;
    match->id = token.id;
    cursor->taken = match->end;
    return true;
  }
  cursor->search = text.size();
  return false;
}

}  // namespace mainarch::text
