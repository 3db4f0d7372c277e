// SPDX-License-Identifier: MIT
//
// An engine on a model of plain arithmetic, for tests that look at one thing at a time.
#ifndef MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_
#define MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_

#include <memory>
#include <vector>

#include "decode/engine_impl.h"
#include "support/engine_oracle.h"
#include "support/test.h"

namespace mainarch::decode {

inline constexpr uint32_t kVocab = 50;

struct Bench {
  explicit Bench(EngineOptions options = {}, std::vector<uint32_t> eos = {},
                 test::CacheForms forms = {{}})
      : model(kVocab, forms) {
    auto made = CreateEngine(nullptr, model, {kVocab, 4096, std::move(eos), forms}, options);
    status = made.status();
    if (made.ok()) engine = *std::move(made);
  }
  SequenceId Open(const SequenceOptions& options, std::vector<uint32_t> prompt) {
    auto id = engine->Open(options);
    if (!id.ok() || !engine->Append(*id, prompt).ok()) return 0;
    return *id;
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
  std::vector<uint32_t> TakeAll(SequenceId id) {
    std::vector<uint32_t> out(10'000);
    auto n = engine->Take(id, absl::MakeSpan(out));
    out.resize(n.ok() ? *n : 0);
    return out;
  }
  SequenceInfo Info(SequenceId id) {
    auto info = engine->InfoOf(id);
    return info.ok() ? *info : SequenceInfo();
  }
  bool Step() {
    auto worked = engine->RunStep();
    return worked.ok() && *worked;
  }

  test::FakeModel model;
  Status status;
  std::unique_ptr<Engine> engine;
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

inline bool Says(const Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

}  // namespace mainarch::decode

#endif  // MAINARCH_TESTS_UNIT_DECODE_ENGINE_BENCH_H_
