// SPDX-License-Identifier: MIT
//
// Stop strings over produced tokens: what a decoder would make of the tokens is followed byte by
// byte (Knuth, Morris, Pratt), so it does not matter how a stop string lies in tokens. The one that
// is complete first ends the text; of several complete with the same byte, the longest.
#ifndef MAINARCH_DECODE_STOP_STRINGS_H_
#define MAINARCH_DECODE_STOP_STRINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "decode/options.h"
#include "text/stream_decoder.h"

namespace mainarch::decode {

inline constexpr size_t kMaxStopStrings = 1024;
inline constexpr size_t kMaxStopBytes = 1 << 16;  // of all together

// InvalidArgument names the string and the limit.
Status CheckStopStrings(const SequenceOptions& options);

class StopStrings {
 public:
  StopStrings() = default;  // nothing stops
  // Of options that CheckStopStrings took.
  explicit StopStrings(const SequenceOptions& options);

  bool active() const { return !stops_.empty(); }
  // Begins a text.
  void Begin();
  // A token more; true when a stop string is complete with it, unless it may not be one yet. Gets no
  // memory where text is the bytes of tokens joined.
  bool Push(uint32_t token, bool may_stop);
  // What is pushed behind Mark is taken back by GoBack. Only where text is the bytes of tokens joined.
  bool can_go_back() const { return !decoder_.has_value(); }
  void Mark();
  void GoBack();
  // The text ends for another reason.
  void Finish();
  // How much of the text stands: all that is before the stop string, or else all that cannot be the
  // beginning of one, and in the end all.
  uint64_t text_bytes() const;

 private:
  struct Stop {
    std::string text;
    // failure[n]: the longest end of the first n bytes, short of all, that they begin with.
    std::vector<uint32_t> failure;
    uint32_t matched = 0;  // bytes of it at the end of the text
    uint32_t marked = 0;   // the same at Mark
  };
  // How far the text has come, but for what each stop has matched.
  struct Place {
    char character[4] = {};  // the beginning of one, as bytes come
    uint32_t character_bytes = 0;
    uint64_t bytes = 0;  // of the text so far
    uint64_t cut = 0;    // where the stop string begins, if stopped
    bool stopped = false;
    bool finished = false;
  };

  void PushByte(char byte, bool may_stop);
  void Follow(char byte, bool may_stop);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool see_special_ = false;
  std::vector<Stop> stops_;
  std::optional<text::StreamDecoder> decoder_;  // where text is more than bytes joined
  Place at_, marked_;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_STOP_STRINGS_H_
