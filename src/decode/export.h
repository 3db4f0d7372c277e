// SPDX-License-Identifier: MIT
//
// A sequence as bytes, and back: its options, tokens and what of them is to be taken; and, where asked
// for, the content of its caches. Without that, or where it is of another form, whoever imports it
// runs the tokens again, with the same results.
//
// The bytes are little-endian: "MAsq", uint32 version, uint64 fingerprint of the model, uint64 bytes
// of what follows, uint64 XXH64 of what follows; then the fields of export.cc in their order. None of
// it is trusted.
#ifndef MAINARCH_DECODE_EXPORT_H_
#define MAINARCH_DECODE_EXPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "decode/options.h"

namespace mainarch::decode {

struct SequenceState {
  SequenceOptions options;  // but for stop_tokenizer, which is no bytes
  std::vector<uint32_t> tokens;
  std::vector<uint8_t> produced;  // beside tokens: 1, or 0 of the prompt
  uint64_t turn_start = 0;        // tokens from here on were produced since the last Append
  uint64_t take_from = 0;         // produced tokens before it are taken
  uint32_t finish = 0;            // Finish; never kFault, which the next step would find again
  std::vector<uint32_t> mask;     // of the next token; empty: none
  std::vector<Logprob> logprobs;  // of the untaken tokens, 1 + options.logprobs each
  // Since version 2. Appended tokens before `scored` have their prompt_logprobs, in
  // [scored][1 + options.prompt_logprobs].
  uint64_t scored = 0;
  std::vector<Logprob> scores;
  // Of the first `stored` tokens, fewer than there are; 0: none. Of each cache all that
  // SequenceCaches::UnitsAt names, as contexts with this content_form read and write it.
  uint64_t stored = 0;
  std::string form;
  std::vector<std::string> content;
};

// `fingerprint`: of the model whose tokens they are.
std::string WriteState(const SequenceState& state, uint64_t fingerprint);

// InvalidArgument names the field that is wrong and the byte it begins at; Unsupported a newer
// version. What comes back is a state that a sequence of such a model may be in.
StatusOr<SequenceState> ReadState(absl::string_view bytes, uint64_t fingerprint, uint32_t vocab);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_EXPORT_H_
