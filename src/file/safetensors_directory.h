// SPDX-License-Identifier: MIT
//
// A Hugging Face checkpoint directory as it is: config.json, optional generation_config.json,
// tokenizer.json, tokenizer_config.json and chat templates, and either model.safetensors or
// model.safetensors.index.json with its shards. Shards are mapped read-only; every tensor's place
// is checked before a view of it is given out. As transformers does, a model.safetensors beside an
// index wins, and tensors that a shard holds beyond the index are there too; one tensor in two shards
// is refused.
#ifndef MAINARCH_FILE_SAFETENSORS_DIRECTORY_H_
#define MAINARCH_FILE_SAFETENSORS_DIRECTORY_H_

#include <vector>

#include "base/hash_map.h"
#include "file/checkpoint.h"
#include "file/safetensors.h"

namespace mainarch::file {

class SafetensorsDirectory final : public Checkpoint {
 public:
  static StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& directory);

  const TensorView* Find(absl::string_view name) const override;
  absl::Span<const TensorView> tensors() const override { return tensors_; }
  const std::string& directory() const override { return directory_; }
  const std::string& config_json() const override { return config_json_; }
  const std::string& generation_config_json() const override { return generation_config_json_; }
  const std::string& tokenizer_json() const override { return tokenizer_json_; }
  const std::string& tokenizer_config_json() const override { return tokenizer_config_json_; }
  absl::Span<const ChatTemplateFile> chat_templates() const override { return chat_templates_; }
  uint64_t file_bytes() const override { return file_bytes_; }

 private:
  SafetensorsDirectory() = default;
  friend class SafetensorsDirectoryOpener;

  std::string directory_;
  std::string config_json_;
  std::string generation_config_json_;
  std::string tokenizer_json_;
  std::string tokenizer_config_json_;
  std::vector<ChatTemplateFile> chat_templates_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorView> tensors_;
  HashMap<absl::string_view, size_t> by_name_;  // index into tensors_
  uint64_t file_bytes_ = 0;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_SAFETENSORS_DIRECTORY_H_
