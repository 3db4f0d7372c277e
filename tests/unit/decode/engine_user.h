// SPDX-License-Identifier: MIT
//
// An engine on a model of plain arithmetic, and what a caller does with it most.
#ifndef MAINARCH_TESTS_UNIT_DECODE_ENGINE_USER_H_
#define MAINARCH_TESTS_UNIT_DECODE_ENGINE_USER_H_

#include <memory>
#include <utility>
#include <vector>

#include "decode/engine_impl.h"
#include "support/engine_oracle.h"

namespace mainarch::decode {

struct EngineUser {
  EngineUser(uint32_t vocab, const EngineOptions& options, std::vector<uint32_t> eos, const test::CacheForms& forms)
      : model(vocab, forms) {
    auto made = CreateEngine(nullptr, model, {vocab, 4096, std::move(eos), forms}, options);
    status = made.status();
    if (made.ok()) engine = *std::move(made);
  }
  SequenceId Open(const SequenceOptions& options, std::vector<uint32_t> prompt = {1, 2, 3}) {
    auto id = engine->Open(options);
    if (!id.ok() || !engine->Append(*id, prompt).ok()) return 0;
    return *id;
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

  test::FakeModel model;
  Status status;  // of the engine's creation
  std::unique_ptr<Engine> engine;
};

inline bool Says(const Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

}  // namespace mainarch::decode

#endif  // MAINARCH_TESTS_UNIT_DECODE_ENGINE_USER_H_
