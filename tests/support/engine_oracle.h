// SPDX-License-Identifier: MIT
//
// What an engine over FakeModel must do to one sequence, written as plainly as possible: no pages,
// no batches, no steps. Tests replay their operations on it and compare.
#ifndef MAINARCH_TESTS_SUPPORT_ENGINE_ORACLE_H_
#define MAINARCH_TESTS_SUPPORT_ENGINE_ORACLE_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decode/engine.h"
#include "support/fake_backend.h"
#include "support/reference_sampler.h"

namespace mainarch::test {

inline std::vector<float> FakeLogits(const std::vector<uint32_t>& tokens, uint32_t vocab,
                                     const CacheForms& forms = {{}}) {
  const uint64_t hash = FakeHash(tokens, forms);
  std::vector<float> logits(vocab);
  for (uint32_t t = 0; t < vocab; ++t) logits[t] = FakeLogit(hash, t);
  return logits;
}

struct OracleSequence {
  decode::SequenceOptions options;
  uint32_t vocab = 0;
  uint64_t max_tokens = 0;
  std::vector<uint32_t> eos;

  std::vector<uint32_t> tokens;
  std::vector<bool> sampled;
  size_t turn_start = 0;
  size_t taken = 0;  // tokens before it are taken, or were never produced
  decode::Finish finish = decode::Finish::kNone;
  CacheForms forms = {{}};

  void Append(const std::vector<uint32_t>& more) {
    if (more.empty()) return;
    tokens.insert(tokens.end(), more.begin(), more.end());
    sampled.resize(tokens.size(), false);
    turn_start = tokens.size();
    finish = decode::Finish::kNone;
  }

  void Truncate(size_t n) {
    tokens.resize(n);
    sampled.resize(n);
    turn_start = std::min(turn_start, n);
    taken = std::min(taken, n);
    finish = decode::Finish::kNone;
  }

  OracleSequence Fork() const {
    OracleSequence copy = *this;
    copy.taken = tokens.size();
    return copy;
  }

  bool Equals(absl::Span<const uint32_t> other) const {
    return std::equal(tokens.begin(), tokens.end(), other.begin(), other.end());
  }

  bool Has(const std::vector<uint32_t>& ids, uint32_t id) const {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  // Samples one token more.
  void Advance() {
    if (tokens.size() >= max_tokens) {
      finish = decode::Finish::kLength;
      return;
    }
    ReferenceSampler sampler{options, {}, {}, {}};
    for (size_t i = 0; i < tokens.size(); ++i) {
      (sampled[i] ? sampler.output : sampler.prompt).push_back(tokens[i]);
    }
    const size_t before = tokens.size() - turn_start;
    if (before < options.min_tokens) {
      if (!options.ignore_eos) sampler.banned = eos;
      sampler.banned.insert(sampler.banned.end(), options.stop_tokens.begin(),
                            options.stop_tokens.end());
    }
    const uint32_t token = sampler.Sample(FakeLogits(tokens, vocab, forms), tokens.size());
    tokens.push_back(token);
    sampled.push_back(true);
    finish = Judge(token, before);
  }

  decode::Finish Judge(uint32_t token, size_t before) const {
    const size_t turn = before + 1;
    for (const auto& stop : options.stop_sequences) {
      if (before >= options.min_tokens && turn >= stop.size() &&
          std::equal(stop.rbegin(), stop.rend(), tokens.rbegin())) {
        return decode::Finish::kStopSequence;
      }
    }
    if (!options.ignore_eos && Has(eos, token)) return decode::Finish::kEos;
    if (Has(options.stop_tokens, token)) return decode::Finish::kStopToken;
    if (options.max_tokens > 0 && turn >= options.max_tokens) return decode::Finish::kMaxTokens;
    return tokens.size() >= max_tokens ? decode::Finish::kLength : decode::Finish::kNone;
  }

  // Follows an engine that has come to `info`; "" or how the two differ.
  std::string Follow(const decode::SequenceInfo& info) {
    if (info.tokens < tokens.size()) return "the engine holds fewer tokens";
    while (tokens.size() < info.tokens) {
      if (options.manual) return "a manual sequence grew";
      if (finish != decode::Finish::kNone) return "it goes on after its end";
      Advance();
    }
    if (info.finish == decode::Finish::kLength && finish == decode::Finish::kNone) Advance();
    if (info.finish != finish) {
      return absl::StrCat("finish ", static_cast<uint32_t>(info.finish), " against ",
                          static_cast<uint32_t>(finish));
    }
    const uint64_t produced = std::count(sampled.begin(), sampled.end(), true);
    if (info.produced != produced) return "produced";
    const uint64_t untaken =
        std::count(sampled.begin() + static_cast<ptrdiff_t>(taken), sampled.end(), true);
    if (info.untaken != untaken) {
      return absl::StrCat("untaken ", info.untaken, " against ", untaken);
    }
    if (info.position + info.pending != info.tokens) return "position";
    return "";
  }

  // The next n produced tokens not yet taken.
  std::vector<uint32_t> Take(size_t n) {
    std::vector<uint32_t> out;
    while (out.size() < n && taken < tokens.size()) {
      if (sampled[taken]) out.push_back(tokens[taken]);
      ++taken;
    }
    return out;
  }
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_ENGINE_ORACLE_H_
