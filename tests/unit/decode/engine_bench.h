// SPDX-License-Identifier: MIT
//
// For tests that look at one thing at a time: an engine, and what it must answer.
#ifndef MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_
#define MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_

#include <utility>
#include <vector>

#include "unit/decode/engine_user.h"

namespace mainarch::decode {

inline constexpr uint32_t kVocab = 50;

struct Bench : EngineUser {
  explicit Bench(const EngineOptions& options = {}, std::vector<uint32_t> eos = {}, const test::CacheForms& forms = {{}})
      : EngineUser(kVocab, options, std::move(eos), forms) {}
  bool Step() {
    auto worked = engine->RunStep();
    return worked.ok() && *worked;
  }
  // Steps until nothing works; false on an error or too many.
  bool Drain() {
    for (int i = 0; i < 100'000; ++i) {
      auto worked = engine->RunStep();
      if (!worked.ok()) return false;
      if (!*worked) return true;
    }
    return false;
  }
};

inline EngineOptions Options(uint32_t sequences, uint32_t tokens, uint32_t step, uint64_t kv = 0) {
  EngineOptions o;
  o.max_sequences = sequences;
  o.max_sequence_tokens = tokens;
  o.max_step_tokens = step;
  o.kv_tokens = kv;
  return o;
}

// What greedy or seeded generation gives, by the plain definition.
inline std::vector<uint32_t> Expected(const SequenceOptions& options, std::vector<uint32_t> tokens,
                               size_t count) {
  test::OracleSequence oracle;
  oracle.options = options;
  oracle.vocab = kVocab;
  oracle.max_tokens = 1'000'000;
  oracle.Append(tokens);
  while (oracle.tokens.size() < tokens.size() + count) oracle.Advance();
  return {oracle.tokens.begin() + static_cast<ptrdiff_t>(tokens.size()), oracle.tokens.end()};
}

}  // namespace mainarch::decode

#endif  // MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_
