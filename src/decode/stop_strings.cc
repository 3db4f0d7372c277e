// SPDX-License-Identifier: MIT
#include "decode/stop_strings.h"

#include <algorithm>
#include <cstring>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace mainarch::decode {
namespace {

std::vector<uint32_t> FailureOf(absl::string_view text) {
  std::vector<uint32_t> failure(text.size() + 1, 0);
  uint32_t matched = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = failure[matched];
    matched += text[i] == text[matched];
    failure[i + 1] = matched;
  }
  return failure;
}

}  // namespace

Status CheckStopStrings(const SequenceOptions& options) {
  const std::vector<std::string>& stops = options.stop_strings;
  if (stops.empty()) return OkStatus();
  if (options.stop_tokenizer == nullptr) {
    return Error(Code::kInvalidArgument, "stop_strings need a stop_tokenizer");
  }
  if (stops.size() > kMaxStopStrings) {
    return Error(Code::kInvalidArgument, "stop_strings: ", stops.size(), " are more than ",
                 kMaxStopStrings);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return Error(Code::kInvalidArgument, "stop_strings[", i, "] is empty");
    if (!text::IsValidUtf8(stops[i])) {
      return Error(Code::kInvalidArgument, "stop_strings[", i, "] is not UTF-8");
    }
    bytes += stops[i].size();
  }
  if (bytes <= kMaxStopBytes) return OkStatus();
  return Error(Code::kInvalidArgument, "stop_strings: ", bytes, " bytes are more than ",
               kMaxStopBytes);
}

StopStrings::StopStrings(const SequenceOptions& options)
    : tokenizer_(options.stop_tokenizer), see_special_(options.stop_special) {
  if (tokenizer_ != nullptr && !tokenizer_->joins_bytes()) {
    decoder_.emplace(tokenizer_, /*skip_special=*/!see_special_);
  }
  for (const std::string& text : options.stop_strings) stops_.push_back({text, FailureOf(text)});
}

void StopStrings::Begin() {
  for (Stop& stop : stops_) stop.matched = 0;
  at_.character_bytes = 0;
  at_.bytes = at_.cut = 0;
  at_.stopped = at_.finished = false;
  if (decoder_.has_value()) decoder_.emplace(tokenizer_, /*skip_special=*/!see_special_);
}

bool StopStrings::Push(uint32_t token, bool may_stop) {
  if (!active() || at_.stopped) return at_.stopped;
  if (!see_special_ && tokenizer_->IsSpecial(token)) return false;
  if (decoder_.has_value()) {
    for (const char byte : decoder_->Push(token)) Follow(byte, may_stop);
    return at_.stopped;
  }
  for (const char byte : tokenizer_->TokenBytes(token)) PushByte(byte, may_stop);
  return at_.stopped;
}

// As text::StreamDecoder repairs bytes, but in place.
void StopStrings::PushByte(char byte, bool may_stop) {
  at_.character[at_.character_bytes++] = byte;
  while (at_.character_bytes > 0) {
    const text::Utf8Step step = text::StepUtf8({at_.character, at_.character_bytes});
    if (step.head == text::Utf8Head::kIncomplete) return;
    const bool valid = step.head == text::Utf8Head::kValid;
    const absl::string_view text =
        valid ? absl::string_view(at_.character, step.length) : absl::string_view(text::kReplacement);
    for (const char one : text) Follow(one, may_stop);
    at_.character_bytes -= static_cast<uint32_t>(step.length);
    std::memmove(at_.character, at_.character + step.length, at_.character_bytes);
  }
}

void StopStrings::Follow(char byte, bool may_stop) {
  if (at_.stopped) return;
  ++at_.bytes;
  at_.cut = at_.bytes;
  for (Stop& stop : stops_) {
    // A whole match that was not allowed to stop goes on from its own failure.
    if (stop.matched == stop.text.size()) stop.matched = stop.failure[stop.matched];
    while (stop.matched > 0 && stop.text[stop.matched] != byte) {
      stop.matched = stop.failure[stop.matched];
    }
    stop.matched += stop.text[stop.matched] == byte;
    if (stop.matched < stop.text.size() || !may_stop) continue;
    at_.stopped = true;
    at_.cut = std::min<uint64_t>(at_.cut, at_.bytes - stop.text.size());
  }
}

void StopStrings::Mark() {
  marked_ = at_;
  for (Stop& stop : stops_) stop.marked = stop.matched;
}

void StopStrings::GoBack() {
  at_ = marked_;
  for (Stop& stop : stops_) stop.matched = stop.marked;
}

void StopStrings::Finish() {
  if (at_.finished || at_.stopped) return;
  if (at_.character_bytes > 0) at_.bytes += std::strlen(text::kReplacement);
  if (decoder_.has_value()) at_.bytes += decoder_->Finish().size();
  at_.character_bytes = 0;
  at_.finished = true;
}

uint64_t StopStrings::text_bytes() const {
  if (at_.stopped) return at_.cut;
  if (at_.finished) return at_.bytes;
  uint32_t held = 0;
  for (const Stop& stop : stops_) {
    const bool whole = stop.matched == stop.text.size();
    held = std::max(held, whole ? stop.failure[stop.matched] : stop.matched);
  }
  return at_.bytes - held;
}

}  // namespace mainarch::decode
