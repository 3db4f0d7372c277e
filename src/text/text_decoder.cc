// SPDX-License-Identifier: MIT
#include "text/text_decoder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

int HexDigit(char c) {
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  if (lower >= '0' && lower <= '9') return lower - '0';
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Moves whole characters from `held` to `out`. What is no character becomes U+FFFD: once a maximal
// subpart, or once a byte; and at the `end` what is unfinished too.
void TakeCharacters(bool by_byte, bool end, std::string* held, std::string* out) {
  absl::string_view rest = *held;
  while (!rest.empty()) {
    const Utf8Step step = StepUtf8(rest);
    if (step.head == Utf8Head::kIncomplete && !end) break;
    if (step.head == Utf8Head::kValid) {
      out->append(rest.data(), step.length);
    } else {
      for (size_t i = 0; i < (by_byte ? step.length : 1); ++i) *out += kReplacement;
    }
    rest.remove_prefix(step.length);
  }
  held->erase(0, held->size() - rest.size());
}

// The longest end of `text` that `pattern` begins with, short of all of it.
size_t Overlap(absl::string_view text, absl::string_view pattern) {
  for (size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n) {
    if (absl::EndsWith(text, pattern.substr(0, n))) return n;
  }
  return 0;
}

// WordPiece's clean-up, in the package's order.
std::string CleanUp(std::string text) {
  constexpr std::pair<absl::string_view, absl::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [pattern, content] : kRules) text = ReplaceAll(text, pattern, content);
  return text;
}

// `text` without up to `start` and `stop` times `mark` at its ends.
absl::string_view StripEnds(absl::string_view text, const DecoderStage& stage) {
  const absl::string_view whole = text;
  for (uint32_t i = 0; i < stage.start && absl::StartsWith(text, stage.content); ++i) {
    text.remove_prefix(stage.content.size());
  }
  const size_t cut = whole.size() - text.size();
  absl::string_view back = whole;
  for (uint32_t i = 0; i < stage.stop && absl::EndsWith(back, stage.content); ++i) {
    back.remove_suffix(stage.content.size());
  }
  return back.size() <= cut ? absl::string_view() : back.substr(cut);
}

}  // namespace

int ByteOfToken(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  // Rust's from_str_radix takes a sign, too: "<0x+A>" is 10.
  if (token[3] == '+' && low >= 0) return low;
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// The stages of one call.
struct TextDecoder::Run {
  const TextDecoder& decoder;
  const ByteLevel& byte_level;
  State* state;
  std::string* out;

  // Hands a token to stage `at`; behind the last it is text.
  void Give(size_t at, absl::string_view token) {
    if (at == decoder.stages_.size()) {
      out->append(token.data(), token.size());
      return;
    }
    const DecoderStage& stage = decoder.stages_[at];
    State::OfStage& own = state->stages[at];
    const bool first = own.tokens++ == 0;
    switch (stage.kind) {
      case DecoderKind::kByteLevel: {
        own.held += byte_level.DecodeOrKeep(token);
        std::string text;
        TakeCharacters(/*by_byte=*/false, /*end=*/false, &own.held, &text);
        if (!text.empty()) Give(at + 1, text);
        return;
      }
      case DecoderKind::kByteFallback:
        return GiveBytes(at, token);
      case DecoderKind::kReplace:
        return GiveReplaced(at, token);
      case DecoderKind::kStrip:
        return GiveStripped(at, token);
      case DecoderKind::kFuse:
        if (!token.empty()) Give(at + 1, token);
        return;
      case DecoderKind::kMetaspace:
        return Give(at + 1, ReplaceAll(token, stage.content, first && stage.drop_first ? "" : " "));
      case DecoderKind::kWordPiece: {
        std::string text(token);
        if (!first && !absl::StartsWith(token, stage.content)) text = absl::StrCat(" ", token);
        if (!first && absl::StartsWith(token, stage.content)) text.erase(0, stage.content.size());
        return Give(at + 1, stage.cleanup ? CleanUp(std::move(text)) : text);
      }
      case DecoderKind::kSuffix: {
        // The last one is written otherwise, so each waits for the next.
        const std::string before = std::move(own.held);
        own.held = std::string(token);
        if (!first) Give(at + 1, ReplaceAll(before, stage.content, " "));
        return;
      }
      case DecoderKind::kSpaces:
        return Give(at + 1, first ? std::string(token) : absl::StrCat(" ", token));
    }
  }

  void GiveBytes(size_t at, absl::string_view token) {
    State::OfStage& own = state->stages[at];
    const int byte = ByteOfToken(token);
    if (byte >= 0) own.held.push_back(static_cast<char>(byte));
    std::string text;
    TakeCharacters(/*by_byte=*/true, /*end=*/byte < 0, &own.held, &text);
    if (!text.empty()) Give(at + 1, text);
    if (byte < 0) Give(at + 1, token);
  }

  void GiveReplaced(size_t at, absl::string_view token) {
    const DecoderStage& stage = decoder.stages_[at];
    if (!decoder.fused_[at]) return Give(at + 1, ReplaceAll(token, stage.pattern, stage.content));
    State::OfStage& own = state->stages[at];
    own.held.append(token.data(), token.size());
    const size_t last = own.held.rfind(stage.pattern);
    // Matches are found from the left, and what may become one stays.
    size_t done = 0;
    std::string text;
    if (last != std::string::npos) {
      for (size_t found; (found = own.held.find(stage.pattern, done)) != std::string::npos;) {
        text.append(own.held, done, found - done);
        text += stage.content;
        done = found + stage.pattern.size();
      }
    }
    const absl::string_view rest = absl::string_view(own.held).substr(done);
    const size_t keep = Overlap(rest, stage.pattern);
    text.append(rest.data(), rest.size() - keep);
    own.held.erase(0, own.held.size() - keep);
    if (!text.empty()) Give(at + 1, text);
  }

  void GiveStripped(size_t at, absl::string_view token) {
    const DecoderStage& stage = decoder.stages_[at];
    if (!decoder.fused_[at]) return Give(at + 1, StripEnds(token, stage));
    State::OfStage& own = state->stages[at];
    while (!own.begun && !token.empty()) {
      own.begun = own.stripped == stage.start || !absl::StartsWith(token, stage.content);
      if (own.begun) break;
      token.remove_prefix(stage.content.size());
      ++own.stripped;
    }
    own.held.append(token.data(), token.size());
    size_t marks = 0;
    absl::string_view text = own.held;
    while (marks < stage.stop && absl::EndsWith(text, stage.content)) {
      text.remove_suffix(stage.content.size());
      ++marks;
    }
    const std::string sure(text);
    own.held.erase(0, sure.size());
    if (!sure.empty()) Give(at + 1, sure);
  }

  void FinishStage(size_t at) {
    const DecoderStage& stage = decoder.stages_[at];
    State::OfStage& own = state->stages[at];
    std::string text;
    if (stage.kind == DecoderKind::kByteLevel || stage.kind == DecoderKind::kByteFallback) {
      TakeCharacters(stage.kind == DecoderKind::kByteFallback, /*end=*/true, &own.held, &text);
    } else if (stage.kind == DecoderKind::kSuffix) {
      text = ReplaceAll(own.held, stage.content, "");
    } else if (stage.kind == DecoderKind::kReplace) {
      text = own.held;
    }
    if (!text.empty()) Give(at + 1, text);
  }
};

void TextDecoder::Add(DecoderStage stage) {
  const bool fused =
      !stages_.empty() && (fused_.back() || stages_.back().kind == DecoderKind::kFuse ||
                           stages_.back().kind == DecoderKind::kByteLevel);
  fused_.push_back(fused);
  stages_.push_back(std::move(stage));
}

void TextDecoder::Push(absl::string_view token, const ByteLevel& byte_level, State* state,
                       std::string* out) const {
  state->stages.resize(stages_.size());
  Run{*this, byte_level, state, out}.Give(0, token);
}

void TextDecoder::Finish(const ByteLevel& byte_level, State* state, std::string* out) const {
  state->stages.resize(stages_.size());
  Run run{*this, byte_level, state, out};
  for (size_t at = 0; at < stages_.size(); ++at) run.FinishStage(at);
  state->stages.clear();
}

std::string TextDecoder::Amid(absl::string_view token, const ByteLevel& byte_level) const {
  std::string text(token);
  for (const DecoderStage& stage : stages_) {
    switch (stage.kind) {
      case DecoderKind::kByteLevel:
        return byte_level.DecodeOrKeep(text);
      case DecoderKind::kByteFallback:
        if (const int byte = ByteOfToken(text); byte >= 0) {
          return std::string(1, static_cast<char>(byte));
        }
        break;
      case DecoderKind::kReplace:
        text = ReplaceAll(text, stage.pattern, stage.content);
        break;
      case DecoderKind::kMetaspace:
      case DecoderKind::kSuffix:
        text = ReplaceAll(text, stage.content, " ");
        break;
      case DecoderKind::kWordPiece:
        if (absl::StartsWith(text, stage.content)) {
          text.erase(0, stage.content.size());
        } else {
          text = absl::StrCat(" ", text);
        }
        break;
      case DecoderKind::kStrip:
        text = std::string(StripEnds(text, stage));
        break;
      case DecoderKind::kFuse:
      case DecoderKind::kSpaces:
        return text;
    }
  }
  return text;
}

}  // namespace mainarch::text
