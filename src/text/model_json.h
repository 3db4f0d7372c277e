// SPDX-License-Identifier: MIT
//
// The "model" of tokenizer.json: the vocabulary and the merges, nearly all of the file's bytes.
// Private to this folder.
#ifndef MAINARCH_TEXT_MODEL_JSON_H_
#define MAINARCH_TEXT_MODEL_JSON_H_

#include "base/status.h"
#include "text/json_fields.h"
#include "text/tokenizer_json.h"

namespace mainarch::text {

Status ReadModel(const JsonObject& model, const ByteLevel& byte_level, TokenizerParts* parts);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_MODEL_JSON_H_
