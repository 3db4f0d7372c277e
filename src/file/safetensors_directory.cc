// SPDX-License-Identifier: MIT
#include "file/safetensors_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/os_errno.h"
#include "file/index.h"
#include "file/json.h"

namespace mainarch::file {
namespace {

// Released files are a tenth of these at most.
constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr size_t kMaxTokenizerConfigBytes = size_t{16} << 20;
constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;  // as text/tokenizer_json.h; twice the largest

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

StatusOr<bool> Exists(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return true;
  const int err = errno;
  if (err == ENOENT) return false;
  return ErrnoError(CodeOfFileErrno(err), err, "stat ", path);
}

// Empty when there is no such file.
StatusOr<std::string> ReadOptional(const std::string& path, size_t limit) {
  auto text = ReadWholeFile(path, limit);
  if (!text.ok() && CodeOf(text.status()) == Code::kNotFound) return std::string();
  return text;
}

}  // namespace

class SafetensorsDirectoryOpener {
 public:
  explicit SafetensorsDirectoryOpener(const std::string& directory)
      : checkpoint_(new SafetensorsDirectory()) {
    checkpoint_->directory_ = directory;
  }

  StatusOr<std::shared_ptr<const Checkpoint>> Run() {
    RETURN_IF_ERROR(CheckDirectory());
    RETURN_IF_ERROR(ReadTexts());
    // A single file beside an index wins, as it does in transformers.
    ASSIGN_OR_RETURN(const bool single, Exists(Path(kSingleFile)));
    if (single) {
      RETURN_IF_ERROR(OpenFile(kSingleFile));
      RETURN_IF_ERROR(Gather());
    } else {
      RETURN_IF_ERROR(OpenShards());
    }
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint_));
  }

 private:
  std::string Path(const std::string& file) const {
    return absl::StrCat(checkpoint_->directory_, "/", file);
  }

  Status CheckDirectory() const {
    struct stat info;
    if (stat(checkpoint_->directory_.c_str(), &info) != 0) {
      const int err = errno;
      return ErrnoError(CodeOfFileErrno(err), err, "checkpoint directory ",
                        Quote(checkpoint_->directory_));
    }
    if (!S_ISDIR(info.st_mode)) {
      return Error(Code::kInvalidArgument, "checkpoint ", Quote(checkpoint_->directory_),
                   ": not a directory; give the one that holds config.json");
    }
    return OkStatus();
  }

  Status ReadTexts() {
    ASSIGN_OR_RETURN(checkpoint_->config_json_,
                     ReadWholeFile(Path("config.json"), kMaxConfigBytes));
    ASSIGN_OR_RETURN(checkpoint_->generation_config_json_,
                     ReadOptional(Path("generation_config.json"), kMaxConfigBytes));
    ASSIGN_OR_RETURN(checkpoint_->tokenizer_json_,
                     ReadOptional(Path("tokenizer.json"), kMaxTokenizerBytes));
    ASSIGN_OR_RETURN(checkpoint_->tokenizer_config_json_,
                     ReadOptional(Path("tokenizer_config.json"), kMaxTokenizerConfigBytes));
    ASSIGN_OR_RETURN(checkpoint_->chat_templates_, ReadChatTemplates(checkpoint_->directory_));
    return OkStatus();
  }

  Status OpenFile(const std::string& name) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(Path(name)));
    checkpoint_->file_bytes_ += file.size();
    checkpoint_->files_.push_back(std::move(file));
    return OkStatus();
  }

  Status OpenShards() {
    const std::string path = Path(kIndexFile);
    ASSIGN_OR_RETURN(const bool has_index, Exists(path));
    if (!has_index) {
      return Error(Code::kNotFound, "checkpoint ", Quote(checkpoint_->directory_), ": neither ",
                   kSingleFile, " nor ", kIndexFile);
    }
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxIndexBytes));
    ASSIGN_OR_RETURN(const CheckpointIndex index, ParseCheckpointIndex(text, path));
    for (const std::string& shard : index.shards) {
      const Status status = OpenFile(shard);
      if (CodeOf(status) == Code::kNotFound) {
        return Error(Code::kBadModel, path, ": shard ", Quote(shard), " (1 of ",
                     index.shards.size(), ") is missing; is the download complete?");
      }
      RETURN_IF_ERROR(status);
    }
    RETURN_IF_ERROR(Gather());
    return CheckIndex(index, path);
  }

  // Every tensor of the index lies in the shard it names. Shards may hold more than the index
  // lists: transformers loads those tensors too.
  Status CheckIndex(const CheckpointIndex& index, const std::string& path) const {
    for (const CheckpointIndex::Entry& entry : index.entries) {
      const std::string& shard = index.shards[entry.shard];
      const TensorView* tensor = checkpoint_->Find(entry.tensor);
      if (tensor == nullptr) {
        return Error(Code::kBadModel, path, ": weight_map: tensor ", Quote(entry.tensor),
                     " is not in its file ", Quote(shard));
      }
      if (tensor->file != Path(shard)) {
        return Error(Code::kBadModel, path, ": weight_map: tensor ", Quote(entry.tensor),
                     " is not in its file ", Quote(shard), " but in ", tensor->file);
      }
    }
    return OkStatus();
  }

  Status Gather() {
    std::vector<TensorView>& tensors = checkpoint_->tensors_;
    size_t count = 0;
    for (const SafetensorsFile& file : checkpoint_->files_) count += file.tensors().size();
    tensors.reserve(count);
    for (const SafetensorsFile& file : checkpoint_->files_) {
      tensors.insert(tensors.end(), file.tensors().begin(), file.tensors().end());
    }
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
    checkpoint_->by_name_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0 && tensors[i].name == tensors[i - 1].name) {
        return Error(Code::kBadModel, tensors[i].file, ": tensor ", Quote(tensors[i].name),
                     " is also in ", tensors[i - 1].file, ", the limit is one place");
      }
      checkpoint_->by_name_.emplace(tensors[i].name, i);
    }
    return OkStatus();
  }

  std::unique_ptr<SafetensorsDirectory> checkpoint_;
};

StatusOr<std::shared_ptr<const Checkpoint>> SafetensorsDirectory::Open(
    const std::string& directory) {
  return SafetensorsDirectoryOpener(directory).Run();
}

const TensorView* SafetensorsDirectory::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace mainarch::file
