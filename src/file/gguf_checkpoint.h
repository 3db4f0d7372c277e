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
  // With the parts behind it, where `path` is the first of several (NAME-00001-of-00003.gguf).
  static StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& path);
  // Of bytes that outlive it; `file_name` is for messages.
  static StatusOr<std::shared_ptr<const Checkpoint>> Parse(absl::Span<const uint8_t> bytes,
                                                           const std::string& file_name);
  // Of all parts of one that is split.
  static StatusOr<std::shared_ptr<const Checkpoint>> Parse(
      absl::Span<const absl::Span<const uint8_t>> parts, const std::string& file_name);

  const TensorView* Find(absl::string_view name) const override;
  absl::Span<const TensorView> tensors() const override { return tensors_; }
  const std::string& directory() const override { return path_; }
  const std::string& config_json() const override { return config_json_; }
  const std::string& generation_config_json() const override { return empty_; }
  const std::string& tokenizer_json() const override { return empty_; }
  const std::string& tokenizer_config_json() const override { return tokenizer_config_json_; }
  const GgufMetadata* gguf() const override { return &contents_.metadata; }
  uint64_t file_bytes() const override { return file_bytes_; }

 private:
  GgufCheckpoint() = default;
  // The first part, or the only one; how many there are.
  StatusOr<int64_t> FillFirst(absl::Span<const uint8_t> bytes);
  // Part `index`, whose tensors are added; the first is in.
  Status AddPart(absl::Span<const uint8_t> bytes, const std::string& path, int64_t index);
  // What part `index` says of the split against what the first says.
  Status CheckSplit(const GgufMetadata& metadata, int64_t index) const;
  // Tensors and configuration, all parts being in.
  Status Finish();
  Status AddTensor(const GgufArch& arch, TensorView tensor);
  Status AddExperts(const GgufTensorName& name, const TensorView& tensor);
  Status Convert(const GgufArch& arch, TensorView* tensor);
  Status Sort();

  std::string path_;
  std::string config_json_;
  const std::string empty_;
  std::vector<Mapping> mappings_;  // of each part
  std::string tokenizer_config_json_;
  GgufContents contents_;   // the first part's metadata, and, until Finish, tensors of all
  int64_t parts_ = 1, split_tensors_ = 0;  // where it is split: how many there should be
  std::vector<std::unique_ptr<std::vector<float>>> converted_;
  std::vector<TensorView> tensors_;
  HashMap<absl::string_view, size_t> by_name_;  // index into tensors_
  uint64_t file_bytes_ = 0;
  int64_t heads_ = 0, kv_heads_ = 0;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_CHECKPOINT_H_
