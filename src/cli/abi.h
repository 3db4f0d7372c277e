// SPDX-License-Identifier: MIT
//
// mainarch.h for C++ inside this command: owners of handles, errors as Status, buffers that grow.
// Nothing of the library but its public header is used through here.
#ifndef MAINARCH_CLI_ABI_H_
#define MAINARCH_CLI_ABI_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "mainarch.h"

namespace mainarch::cli {

template <auto destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using Group = std::unique_ptr<mainarch_group, Destroyer<mainarch_group_destroy>>;
using AbiModel = std::unique_ptr<mainarch_model, Destroyer<mainarch_model_destroy>>;
using AbiTokenizer = std::unique_ptr<mainarch_tokenizer, Destroyer<mainarch_tokenizer_destroy>>;
using AbiDecoder = std::unique_ptr<mainarch_decoder, Destroyer<mainarch_decoder_destroy>>;
using AbiEngine = std::unique_ptr<mainarch_engine, Destroyer<mainarch_engine_destroy>>;

// OK unless `status` is an error; that one has filled `error`.
Status FromAbi(mainarch_status status, const mainarch_error& error);

// A zeroed options or info struct that knows its size.
template <class T>
T Sized() {
  T value = {};
  value.struct_size = sizeof(T);
  return value;
}

struct ChatTurn {
  std::string role, content;
};

StatusOr<std::vector<uint32_t>> Encode(const mainarch_tokenizer* tokenizer, absl::string_view text,
                                       uint64_t flags);
StatusOr<std::string> RenderChat(const mainarch_tokenizer* tokenizer,
                                 absl::Span<const ChatTurn> turns, int32_t thinking);
StatusOr<std::string> RenderChatJson(const mainarch_tokenizer* tokenizer, absl::string_view json);
StatusOr<std::string> Push(mainarch_decoder* decoder, uint32_t token);
StatusOr<std::string> Finish(mainarch_decoder* decoder);
StatusOr<std::string> TokenText(const mainarch_tokenizer* tokenizer, uint32_t token);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_ABI_H_
