// SPDX-License-Identifier: MIT
//
// Any bytes as tokenizer.json: refused with a status, or a tokenizer that encodes and decodes.
// After the first zero byte, which JSON does not have, come the tokenizer_config.json and then the
// text to encode. Bytes that begin with "P" are lists of pieces (text/pieces.h) instead, and those that
// begin with "R" a pattern, and behind a zero byte the text to look for it in.
#include <cstdlib>

#include "absl/strings/match.h"
#include "text/regex.h"
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
                                       EncodeOptions{.parse_added = false},
                                       EncodeOptions{.add_special = true}}) {
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

// A kind, flags, and then pieces with a type and a score each, and merges, with zero bytes between.
void RunPieces(absl::string_view rest) {
  const auto byte = [&] {
    const uint8_t value = rest.empty() ? 0 : static_cast<uint8_t>(rest[0]);
    if (!rest.empty()) rest.remove_prefix(1);
    return value;
  };
  static constexpr const char* kPre[] = {"default",     "llama-bpe", "gpt-2",  "gpt-4o",
                                         "deepseek-v3", "kimi-k2",   "falcon", "none"};
  TokenizerPieces pieces;
  pieces.model = static_cast<PieceModel>(byte() % 5);
  pieces.pre = kPre[byte() % 8];
  const uint8_t flags = byte();
  pieces.add_bos = flags & 1;
  pieces.add_space_prefix = flags & 2;
  pieces.remove_extra_whitespaces = flags & 4;
  if (flags & 8) pieces.unk = byte();
  if (flags & 16) pieces.bos = byte();
  const size_t count = byte();
  for (size_t i = 0; i < count; ++i) {
    pieces.types.push_back(static_cast<PieceType>(byte() % 7));
    pieces.scores.push_back(static_cast<float>(static_cast<int8_t>(byte())) / 4);
    pieces.pieces.push_back(TakePart(&rest));
  }
  if (flags & 32) pieces.charsmap = TakePart(&rest);
  while (!rest.empty() && pieces.merges.size() < 64) pieces.merges.push_back(TakePart(&rest));
  const auto tokenizer = Tokenizer::FromPieces(pieces, "fuzz.gguf");
  if (!tokenizer.ok()) {
    Require(!tokenizer.status().message().empty());
    return;
  }
  RunText(*tokenizer, kText);
}

void RunPattern(absl::string_view rest) {
  const absl::string_view pattern = TakePart(&rest);
  const auto regex = Regex::Create(pattern);
  if (!regex.ok()) return;
  const std::string text = RepairUtf8(rest.substr(0, 256));
  std::vector<RegexMatch> matches;
  if (!(*regex)->FindAll(text, &matches).ok()) return;
  size_t end = 0;
  for (const RegexMatch& match : matches) {
    Require(match.begin >= end && match.end >= match.begin && match.end <= text.size());
    end = match.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view rest(reinterpret_cast<const char*>(data), size);
  if (absl::StartsWith(rest, "P")) return RunPieces(rest.substr(1)), 0;
  if (absl::StartsWith(rest, "R")) return RunPattern(rest.substr(1)), 0;
  const absl::string_view json = TakePart(&rest);
  const absl::string_view config = TakePart(&rest);
  const auto tokenizer = Tokenizer::Load(json, config, "fuzz.json");
  if (!tokenizer.ok()) {
    Require(!tokenizer.status().message().empty());
    return 0;
  }
  RunText(*tokenizer, kText);
  RunText(*tokenizer, rest);
  return 0;
}
