// SPDX-License-Identifier: MIT
#include <memory>
#include <string>
#include <utility>

#include "api/call.h"
#include "api/handles.h"

namespace mainarch::api {
namespace {

// Runs `body` on a copy of the decoder, which takes the original's place when the text fits.
template <class Body>
Result Decode(mainarch_decoder* decoder, char* text, size_t capacity, size_t* length, Body&& body) {
  const OneThread one(&decoder->busy, "decoder");
  RETURN_IF_ERROR(one.status());
  text::StreamDecoder next = decoder->decoder;
  const std::string piece = body(next);
  ASSIGN_OR_RETURN(const mainarch_status status, CopyText(piece, text, capacity, length));
  decoder->decoder = std::move(next);
  return status;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_decoder_create(const mainarch_tokenizer* tokenizer, uint64_t flags,
                                        mainarch_decoder** out, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckOut(out));
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    RETURN_IF_ERROR(CheckFlags(flags, MAINARCH_DECODE_SKIP_SPECIAL, "decoder"));
    const bool skip_special = (flags & MAINARCH_DECODE_SKIP_SPECIAL) != 0;
    *out = new mainarch_decoder{tokenizer->origin,
                                text::StreamDecoder(tokenizer->tokenizer, skip_special)};
    return MAINARCH_OK;
  });
}

void mainarch_decoder_destroy(mainarch_decoder* decoder) { delete decoder; }

mainarch_status mainarch_decoder_push(mainarch_decoder* decoder, const uint32_t* tokens,
                                      size_t token_count, char* text, size_t capacity,
                                      size_t* length, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
    RETURN_IF_ERROR(CheckHandle(decoder, "decoder"));
    RETURN_IF_ERROR(NotNullArray(tokens, token_count, "tokens"));
    return Decode(decoder, text, capacity, length, [&](text::StreamDecoder& next) {
      std::string piece;
      for (size_t i = 0; i < token_count; ++i) piece += next.Push(tokens[i]);
      return piece;
    });
  });
}

mainarch_status mainarch_decoder_finish(mainarch_decoder* decoder, char* text, size_t capacity,
                                        size_t* length, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
    RETURN_IF_ERROR(CheckHandle(decoder, "decoder"));
    return Decode(decoder, text, capacity, length,
                  [](text::StreamDecoder& next) { return next.Finish(); });
  });
}

}  // extern "C"
