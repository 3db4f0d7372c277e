// SPDX-License-Identifier: MIT
//
// A GGUF file as a checkpoint. Tensors get the names and shapes that a Hugging Face checkpoint of
// the model has, experts one by one; their bytes stay where they are mapped. Small vectors that the
// file has in another form (norms with 1 added, biases of paired rows) are converted into memory of
// the checkpoint's own. Tensors of no known name keep theirs, and nobody asks for them.
#ifndef MAINARCH_FILE_GGUF_CHECKPOINT_H_
#define MAINARCH_FILE_GGUF_CHECKPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/hash_map.h"
#include "file/checkpoint.h"
#include "file/gguf.h"
#include "file/gguf_archs.h"

namespace mainarch::file {

class GgufCheckpoint final : public Checkpoint {
 public:
  static StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& path);
  // Of bytes that outlive it; `file_name` is for messages.
  static StatusOr<std::shared_ptr<const Checkpoint>> Parse(absl::Span<const uint8_t> bytes,
                                                           const std::string& file_name);

  const TensorView* Find(absl::string_view name) const override;
  absl::Span<const TensorView> tensors() const override { return tensors_; }
  const std::string& directory() const override { return path_; }
  const std::string& config_json() const override { return config_json_; }
  const std::string& generation_config_json() const override { return empty_; }
  const std::string& tokenizer_json() const override { return empty_; }
  const std::string& tokenizer_config_json() const override { return tokenizer_config_json_; }
  const GgufMetadata* gguf() const override { return &metadata_; }
  uint64_t file_bytes() const override { return file_bytes_; }

 private:
  GgufCheckpoint() = default;
  Status Fill(absl::Span<const uint8_t> bytes);
  Status AddTensor(const GgufArch& arch, TensorView tensor);
  Status AddExperts(const GgufTensorName& name, const TensorView& tensor);
  Status Convert(const GgufArch& arch, TensorView* tensor);
  Status Sort();

  std::string path_;
  std::string config_json_;
  const std::string empty_;
  Mapping mapping_;
  std::string tokenizer_config_json_;
  GgufMetadata metadata_;
  std::vector<std::unique_ptr<std::vector<float>>> converted_;
  std::vector<TensorView> tensors_;
  HashMap<absl::string_view, size_t> by_name_;  // index into tensors_
  uint64_t file_bytes_ = 0;
  int64_t heads_ = 0, kv_heads_ = 0;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_CHECKPOINT_H_
