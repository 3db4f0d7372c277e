// SPDX-License-Identifier: MIT
#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace mainarch::text {

std::string StreamDecoder::Push(uint32_t id) {
  std::string out;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return out;
  if (!tokenizer_->joins_bytes()) {
    tokenizer_->PushText(id, &state_, &out);
    return out;
  }
  const absl::string_view token = tokenizer_->TokenBytes(id);
  held_.append(token.data(), token.size());
  absl::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = StepUtf8(rest);
    if (step.head == Utf8Head::kIncomplete) break;
    if (step.head == Utf8Head::kValid) {
      out.append(rest.data(), step.length);
    } else {
      out += kReplacement;
    }
    rest.remove_prefix(step.length);
  }
  held_.erase(0, held_.size() - rest.size());
  return out;
}

std::string StreamDecoder::Finish() {
  std::string out = RepairUtf8(held_);
  held_.clear();
  if (!tokenizer_->joins_bytes()) tokenizer_->FinishText(&state_, &out);
  return out;
}

}  // namespace mainarch::text
