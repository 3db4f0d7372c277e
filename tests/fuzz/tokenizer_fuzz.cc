// SPDX-License-Identifier: MIT
//
// Any bytes as tokenizer.json: refused with a status, or a tokenizer that encodes and decodes.
// After the first zero byte, which JSON does not have, come the tokenizer_config.json and then the
// text to encode.
#include <cstdlib>

#include "text/chat.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

constexpr char kText[] =
    "hello world, he's \xC5\xBF 12\r\n\n  \xE0\xB8\x81\xE0\xB8\xB4 e\xCC\x81\xCC\x96 "
    "<|im_end|><think>"
    "\xF0\x9F\x98\x80 "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "\xE2\x82";

absl::string_view TakePart(absl::string_view* rest) {
  const size_t zero = rest->find('\0');
  const absl::string_view part = rest->substr(0, zero);
  rest->remove_prefix(zero == absl::string_view::npos ? rest->size() : zero + 1);
  return part;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

void RunText(const std::shared_ptr<const Tokenizer>& tokenizer, absl::string_view text) {
  std::vector<uint32_t> ids;
  for (const EncodeOptions& options : {EncodeOptions{}, EncodeOptions{.parse_special = false},
                                       EncodeOptions{.parse_added = false}}) {
    ids.clear();
    if (!tokenizer->Encode(text, options, &ids).ok()) {
      Require(ids.empty());
      continue;
    }
    for (uint32_t id : ids) Require(id < tokenizer->vocab_size());
    for (bool skip : {false, true}) {
      StreamDecoder stream(tokenizer, skip);
      std::string joined;
      for (uint32_t id : ids) joined += stream.Push(id);
      joined += stream.Finish();
      Require(joined == tokenizer->Decode(ids, skip));
      Require(IsValidUtf8(joined));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view rest(reinterpret_cast<const char*>(data), size);
  const absl::string_view json = TakePart(&rest);
  const absl::string_view config = TakePart(&rest);
  const auto tokenizer = Tokenizer::Load(json, config, "fuzz.json");
  if (!tokenizer.ok()) {
    Require(!tokenizer.status().message().empty());
    return 0;
  }
  RunText(*tokenizer, kText);
  RunText(*tokenizer, rest);
  const auto format = DetectChatFormat((*tokenizer)->chat_template());
  if (format.ok()) {
    const std::vector<ChatMessage> messages = {{"user", std::string(rest)},
                                               {"assistant", std::string(rest)}};
    (void)RenderChat(*format, messages, true, Thinking::kDefault);
  }
  return 0;
}
