// SPDX-License-Identifier: MIT
#include "decode/export.h"

// Inlined: one shared object less for every host to load.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "decode/engine.h"
#include "decode/token_mask.h"

namespace mainarch::decode {
namespace {

constexpr char kMagic[] = {'M', 'A', 's', 'q'};
constexpr uint32_t kVersion = 3;

struct Header {
  char magic[4] = {};
  uint32_t version = 0;
  uint64_t fingerprint = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 32);

// The fields in their order, the one place that says it. A field more is a version more.
template <class Io, class State>
void Fields(Io& io, State& s, uint32_t version) {
  auto& o = s.options;
  io("manual", o.manual);
  io("ignore_eos", o.ignore_eos);
  io("stop_special", o.stop_special);
  io("seed", o.seed);
  io("temperature", o.temperature);
  io("top_p", o.top_p);
  io("min_p", o.min_p);
  io("top_k", o.top_k);
  io("repetition_penalty", o.repetition_penalty);
  io("frequency_penalty", o.frequency_penalty);
  io("presence_penalty", o.presence_penalty);
  io("min_tokens", o.min_tokens);
  io("max_tokens", o.max_tokens);
  io("logprobs", o.logprobs);
  io("stop_tokens", o.stop_tokens);
  io("stop_sequences", o.stop_sequences);
  io("logit_bias", o.logit_bias);
  io("stop_strings", o.stop_strings);
  io("tokens", s.tokens);
  io("produced", s.produced);
  io("turn_start", s.turn_start);
  io("take_from", s.take_from);
  io("finish", s.finish);
  io("mask", s.mask);
  io("logprobs of tokens", s.logprobs);
  if (version < 2) return;
  io("prompt_logprobs", o.prompt_logprobs);
  io("all_logits", o.all_logits);
  io("scored", s.scored);
  io("prompt_logprobs of tokens", s.scores);
  io("stored", s.stored);
  io("form", s.form);
  io("content", s.content);
  if (version < 3) return;
  io("prefix_salt", o.prefix_salt);
}

// Elements that are their own bytes; all others are lists of those.
template <class T>
constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_same_v<T, LogitBias> ||
                        std::is_same_v<T, Logprob>;

class Writer {
 public:
  std::string out;

  template <class T>
  void operator()(const char*, const T& value) {
    Put(value);
  }

 private:
  void Raw(const void* data, size_t bytes) { out.append(static_cast<const char*>(data), bytes); }
  void Put(bool value) { out.push_back(value ? 1 : 0); }
  template <class T>
  void Put(const T& value) {
    if constexpr (kPlain<T>) {
      Raw(&value, sizeof(value));
    } else {
      const uint64_t count = value.size();
      Raw(&count, sizeof(count));
      using Element = typename T::value_type;
      if constexpr (kPlain<Element>) return Raw(value.data(), count * sizeof(Element));
      for (const auto& element : value) Put(element);
    }
  }
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(const char* name, T& value) {
    if (!status_.ok()) return;
    const size_t begin = at_;
    if (Get(&value)) return;
    status_ = Error(Code::kInvalidArgument, "exported sequence: ", name, ", at byte ",
                    sizeof(Header) + begin, ": not within the ", sizeof(Header) + bytes_.size(),
                    " bytes, or no such value");
  }
  // The first field that was wrong, or bytes left over.
  Status status() const {
    if (!status_.ok() || at_ == bytes_.size()) return status_;
    return Error(Code::kInvalidArgument, "exported sequence: ", bytes_.size() - at_,
                 " bytes behind the last field");
  }

 private:
  bool Raw(void* data, size_t bytes) {
    if (bytes > bytes_.size() - at_) return false;
    if (bytes == 0) return true;
    std::memcpy(data, bytes_.data() + at_, bytes);
    at_ += bytes;
    return true;
  }
  bool Get(bool* value) {
    uint8_t byte = 0;
    if (!Raw(&byte, 1) || byte > 1) return false;
    *value = byte == 1;
    return true;
  }
  template <class T>
  bool Get(T* value) {
    if constexpr (kPlain<T>) {
      return Raw(value, sizeof(*value));
    } else {
      // An element takes a byte at least: no count makes this take more memory than a multiple of
      // the bytes that are there.
      uint64_t count = 0;
      if (!Raw(&count, sizeof(count)) || count > bytes_.size() - at_) return false;
      value->clear();
      using Element = typename T::value_type;
      if constexpr (kPlain<Element>) {
        if (count > (bytes_.size() - at_) / sizeof(Element)) return false;
        value->resize(count);
        return Raw(value->data(), count * sizeof(Element));
      }
      for (uint64_t i = 0; i < count; ++i) {
        typename T::value_type element{};
        if (!Get(&element)) return false;
        value->push_back(std::move(element));
      }
      return true;
    }
  }

  absl::string_view bytes_;
  size_t at_ = 0;
  Status status_;
};

Status Wrong(absl::string_view field, uint64_t value, absl::string_view limit_is, uint64_t limit) {
  return Error(Code::kInvalidArgument, "exported sequence: ", field, " ", value, limit_is, limit);
}

StatusOr<absl::string_view> CheckHeader(absl::string_view bytes, uint64_t fingerprint,
                                        uint32_t* version) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return Wrong("size", bytes.size(), " is less than that of the header, ", sizeof(header));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  const absl::string_view fields = bytes.substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return Error(Code::kInvalidArgument, "exported sequence: does not begin with MAsq");
  }
  if (header.version == 0 || header.version > kVersion) {
    return Error(Code::kUnsupported, "exported sequence: version ", header.version,
                 "; this library reads 1 to ", kVersion);
  }
  *version = header.version;
  if (header.fingerprint != fingerprint) {
    return Error(Code::kInvalidArgument, "exported sequence: it is of another model");
  }
  if (header.bytes != fields.size()) {
    return Wrong("length", header.bytes, " is not that of what follows, ", fields.size());
  }
  if (header.checksum != XXH64(fields.data(), fields.size(), 0)) {
    return Error(Code::kInvalidArgument, "exported sequence: the checksum is not that of the bytes");
  }
  return fields;
}

Status CheckTokenList(absl::string_view field, absl::Span<const uint32_t> tokens, uint32_t vocab) {
  for (const uint32_t token : tokens) {
    if (token >= vocab) return Wrong(field, token, " is outside the vocabulary of ", vocab);
  }
  return OkStatus();
}

Status CheckScores(const SequenceState& s, uint32_t vocab) {
  const uint64_t held = s.tokens.size();
  const uint64_t kept = std::min(s.options.prompt_logprobs, vocab);
  if (s.scored > held || (kept == 0 && s.scored > 0)) {
    return Wrong("scored", s.scored, " is more than the tokens that have prompt_logprobs, of ", held);
  }
  if (s.scores.size() != (kept == 0 ? 0 : s.scored * (1 + kept))) {
    return Wrong("prompt_logprobs of tokens", s.scores.size(), " are not those of scored, ", s.scored);
  }
  if (kept > 0 && s.stored > 0 && s.stored >= s.scored) {
    return Wrong("scored", s.scored, " is not beyond stored, ", s.stored);
  }
  for (const Logprob& score : s.scores) {
    RETURN_IF_ERROR(CheckTokenList("prompt_logprobs of tokens", {&score.token, 1}, vocab));
  }
  return OkStatus();
}

Status CheckState(const SequenceState& s, uint32_t vocab) {
  const uint64_t held = s.tokens.size();
  RETURN_IF_ERROR(CheckTokenList("tokens", s.tokens, vocab));
  if (s.produced.size() != held) return Wrong("produced", s.produced.size(), " is not tokens, ", held);
  uint64_t untaken = 0;
  for (uint64_t i = 0; i < held; ++i) {
    if (s.produced[i] > 1) return Wrong("produced", s.produced[i], " is more than ", 1);
    untaken += i >= s.take_from && s.produced[i] == 1;
  }
  if (s.turn_start > held) return Wrong("turn_start", s.turn_start, " is more than tokens, ", held);
  if (s.take_from > held) return Wrong("take_from", s.take_from, " is more than tokens, ", held);
  const auto last = static_cast<uint32_t>(Finish::kStopString);
  if (s.finish > last || s.finish == static_cast<uint32_t>(Finish::kFault)) {
    return Wrong("finish", s.finish, " is no finish of those up to ", last);
  }
  if (!s.mask.empty() && s.mask.size() != MaskWords(vocab)) {
    return Wrong("mask", s.mask.size(), " words are not ", MaskWords(vocab));
  }
  const uint64_t kept = std::min(s.options.logprobs, vocab);
  const uint64_t entries = kept == 0 ? 0 : untaken * (1 + kept);
  if (s.logprobs.size() != entries) {
    return Wrong("logprobs of tokens", s.logprobs.size(), " are not ", entries);
  }
  for (const Logprob& logprob : s.logprobs) {
    RETURN_IF_ERROR(CheckTokenList("logprobs of tokens", {&logprob.token, 1}, vocab));
  }
  if (s.stored > 0 && s.stored >= held) return Wrong("stored", s.stored, " is not below tokens, ", held);
  if (s.stored == 0 && !s.content.empty()) return Wrong("content", s.content.size(), " caches, stored ", 0);
  return CheckScores(s, vocab);
}

}  // namespace

std::string WriteState(const SequenceState& state, uint64_t fingerprint) {
  Writer writer;
  writer.out.resize(sizeof(Header));
  Fields(writer, state, kVersion);
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.fingerprint = fingerprint;
  header.bytes = writer.out.size() - sizeof(header);
  header.checksum = XXH64(writer.out.data() + sizeof(header), header.bytes, 0);
  std::memcpy(&writer.out[0], &header, sizeof(header));
  return std::move(writer.out);
}

StatusOr<SequenceState> ReadState(absl::string_view bytes, uint64_t fingerprint, uint32_t vocab) {
  uint32_t version = 0;
  ASSIGN_OR_RETURN(const absl::string_view fields, CheckHeader(bytes, fingerprint, &version));
  Reader reader(fields);
  SequenceState state;
  Fields(reader, state, version);
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(CheckState(state, vocab));
  return state;
}

}  // namespace mainarch::decode
