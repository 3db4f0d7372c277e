// SPDX-License-Identifier: MIT
//
// A checkpoint: tensors by name, and what says of them which model they are, in the form that Hugging
// Face's files have. A format is one implementation and a line in checkpoint.cc; one whose metadata
// has another form (GGUF) gives its configuration out as these texts. Immutable after Open; any thread may read.
#ifndef MAINARCH_FILE_CHECKPOINT_H_
#define MAINARCH_FILE_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "file/chat_templates.h"
#include "file/tensor.h"

namespace mainarch::file {

class GgufMetadata;

class Checkpoint {
 public:
  // What stands at `path`: a directory of safetensors, a GGUF file (the first part of one that is split),
  // or a directory with one and no config.json.
  static StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& path);

  Checkpoint() = default;
  virtual ~Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // Null when there is no such tensor.
  virtual const TensorView* Find(absl::string_view name) const = 0;
  // All tensors, sorted by name.
  virtual absl::Span<const TensorView> tensors() const = 0;

  // The path that it was opened by, for messages.
  virtual const std::string& directory() const = 0;
  virtual const std::string& config_json() const = 0;
  // Empty when the checkpoint has none.
  virtual const std::string& generation_config_json() const = 0;
  virtual const std::string& tokenizer_json() const = 0;
  virtual const std::string& tokenizer_config_json() const = 0;
  // Chat templates in files of their own. With none, they are what tokenizer_config_json has.
  virtual absl::Span<const ChatTemplateFile> chat_templates() const { return {}; }
  // Of all files that hold tensors.
  virtual uint64_t file_bytes() const = 0;
  // Null unless it is a GGUF file, whose vocabulary is among its metadata and not in tokenizer_json.
  virtual const GgufMetadata* gguf() const { return nullptr; }
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_CHECKPOINT_H_
