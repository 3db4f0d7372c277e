// SPDX-License-Identifier: MIT
#include "file/gguf_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "file/gguf_config.h"
#include "file/gguf_parts.h"
#include "file/gguf_tokenizer.h"
#include "file/json.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace mainarch::file {
namespace {

// As many as all of a file's tensors together may be; each becomes a view of its own.
constexpr int64_t kMaxViews = int64_t{1} << 20;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxParts = 1024;  // each is a mapping
constexpr absl::string_view kSplitNumber = "split.no", kSplitCount = "split.count",
                            kSplitTensors = "split.tensors.count";

// The values of a vector of F32, F16 or BF16.
std::vector<float> Values(const TensorView& tensor) {
  const size_t size = BytesOf(tensor.dtype);
  std::vector<float> values(tensor.bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t* at = tensor.bytes.data() + i * size;
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&values[i], at, sizeof(float));
      continue;
    }
    uint16_t code;
    std::memcpy(&code, at, sizeof(code));
    values[i] =
        tensor.dtype == DType::kF16 ? quant::FloatFromF16(code) : quant::FloatFromBf16(code);
  }
  return values;
}

}  // namespace

StatusOr<std::shared_ptr<const Checkpoint>> GgufCheckpoint::Open(const std::string& path) {
  std::shared_ptr<GgufCheckpoint> checkpoint(new GgufCheckpoint());
  checkpoint->path_ = path;
  ASSIGN_OR_RETURN(Mapping first, Mapping::OfFile(path));
  checkpoint->mappings_.push_back(std::move(first));
  ASSIGN_OR_RETURN(const int64_t parts, checkpoint->FillFirst(checkpoint->mappings_[0].bytes()));
  for (int64_t i = 1; i < parts; ++i) {
    const std::string part = GgufPartPath(path, i, parts);
    if (part.empty()) {
      return checkpoint->contents_.metadata.Bad(
          Code::kBadModel, kSplitCount, "is ", parts, ", but the file's name does not end in ",
          GgufPartSuffix(0, parts), ", so that the other parts cannot be found");
    }
    ASSIGN_OR_RETURN(Mapping mapping, Mapping::OfFile(part));
    checkpoint->mappings_.push_back(std::move(mapping));
    RETURN_IF_ERROR(checkpoint->AddPart(checkpoint->mappings_.back().bytes(), part, i));
  }
  RETURN_IF_ERROR(checkpoint->Finish());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

StatusOr<std::shared_ptr<const Checkpoint>> GgufCheckpoint::Parse(absl::Span<const uint8_t> bytes,
                                                                  const std::string& file_name) {
  return Parse(absl::MakeConstSpan(&bytes, 1), file_name);
}

StatusOr<std::shared_ptr<const Checkpoint>> GgufCheckpoint::Parse(
    absl::Span<const absl::Span<const uint8_t>> parts, const std::string& file_name) {
  std::shared_ptr<GgufCheckpoint> checkpoint(new GgufCheckpoint());
  checkpoint->path_ = file_name;
  ASSIGN_OR_RETURN(const int64_t count, checkpoint->FillFirst(parts[0]));
  if (count != static_cast<int64_t>(parts.size())) {
    return checkpoint->contents_.metadata.Bad(Code::kBadModel, kSplitCount, "is ", count, ", and there are ",
                                              parts.size());
  }
  for (int64_t i = 1; i < count; ++i) {
    RETURN_IF_ERROR(checkpoint->AddPart(parts[static_cast<size_t>(i)], absl::StrCat(file_name, "[", i, "]"), i));
  }
  RETURN_IF_ERROR(checkpoint->Finish());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

StatusOr<int64_t> GgufCheckpoint::FillFirst(absl::Span<const uint8_t> bytes) {
  file_bytes_ = bytes.size();
  ASSIGN_OR_RETURN(contents_, ParseGguf(bytes, path_));
  const GgufMetadata& metadata = contents_.metadata;
  ASSIGN_OR_RETURN(const auto parts, metadata.Integer(kSplitCount, 0, kMaxParts));
  parts_ = std::max<int64_t>(parts.value_or(1), 1);
  if (parts_ == 1) return parts_;
  ASSIGN_OR_RETURN(const auto tensors, metadata.Integer(kSplitTensors, 0, kMaxViews));
  if (!tensors) return metadata.Bad(Code::kBadModel, kSplitTensors, "is missing");
  split_tensors_ = *tensors;
  RETURN_IF_ERROR(CheckSplit(metadata, 0));
  return parts_;
}

Status GgufCheckpoint::CheckSplit(const GgufMetadata& metadata, int64_t index) const {
  for (const auto& [key, wanted] : {std::pair(kSplitNumber, index), std::pair(kSplitCount, parts_),
                                    std::pair(kSplitTensors, split_tensors_)}) {
    ASSIGN_OR_RETURN(const auto value, metadata.Integer(key, 0, kMaxViews));
    // Parts behind the first need not repeat how many tensors all have.
    if (!value && key == kSplitTensors) continue;
    if (!value) return metadata.Bad(Code::kBadModel, key, "is missing");
    if (*value == wanted) continue;
    if (index == 0 && key == kSplitNumber) {
      return metadata.Bad(Code::kUnsupported, key, "is ", *value, ": the first part is the one to open (",
                          GgufPartSuffix(0, parts_), ")");
    }
    return metadata.Bad(Code::kBadModel, key, "is ", *value, ", not ", wanted, " as ", path_, " says");
  }
  return OkStatus();
}

Status GgufCheckpoint::AddPart(absl::Span<const uint8_t> bytes, const std::string& path, int64_t index) {
  file_bytes_ += bytes.size();
  ASSIGN_OR_RETURN(GgufContents part, ParseGguf(bytes, path));
  RETURN_IF_ERROR(CheckSplit(part.metadata, index));
  for (TensorView& tensor : part.tensors) contents_.tensors.push_back(std::move(tensor));
  return OkStatus();
}

Status GgufCheckpoint::Finish() {
  const GgufMetadata& metadata = contents_.metadata;
  if (parts_ > 1 && static_cast<int64_t>(contents_.tensors.size()) != split_tensors_) {
    return metadata.Bad(Code::kBadModel, kSplitTensors, "is ", split_tensors_, ", and the ", parts_,
                        " parts have ", contents_.tensors.size());
  }
  constexpr absl::string_view kArchitecture = "general.architecture";
  ASSIGN_OR_RETURN(const auto name, metadata.String(kArchitecture));
  if (!name) return metadata.Bad(Code::kBadModel, kArchitecture, "is missing");
  ASSIGN_OR_RETURN(const auto experts,
                   metadata.Integer(absl::StrCat(*name, ".expert_count"), 0, kMaxViews));
  const GgufArch* arch = FindGgufArch(*name, experts.value_or(0) > 0);
  if (arch == nullptr) {
    return metadata.Bad(Code::kUnsupported, kArchitecture, "is ", Quote(*name),
                        ", which is not supported; known are ", GgufArchNames());
  }
  ASSIGN_OR_RETURN(config_json_, GgufConfigJson(contents_, *arch));
  // The configuration is written: both are there and not 0.
  ASSIGN_OR_RETURN(
      const auto heads,
      metadata.Integer(absl::StrCat(arch->name, ".attention.head_count"), 1, kMaxHeads));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   metadata.Integer(absl::StrCat(arch->name, ".attention.head_count_kv"), 1, kMaxHeads));
  heads_ = heads.value_or(1);
  kv_heads_ = kv_heads.value_or(heads_);
  ASSIGN_OR_RETURN(tokenizer_config_json_, GgufTokenizerConfig(metadata));
  std::vector<TensorView> tensors;
  tensors.swap(contents_.tensors);
  for (TensorView& tensor : tensors) RETURN_IF_ERROR(AddTensor(*arch, std::move(tensor)));
  return Sort();
}

Status GgufCheckpoint::AddTensor(const GgufArch& arch, TensorView tensor) {
  const GgufTensorName name = HuggingFaceName(arch, tensor.name);
  if (name.experts) return AddExperts(name, tensor);
  if (!name.name.empty()) {
    tensor.name = name.name;
    RETURN_IF_ERROR(Convert(arch, &tensor));
  }
  tensors_.push_back(std::move(tensor));
  return OkStatus();
}

// One view for each index of the outermost dimension.
Status GgufCheckpoint::AddExperts(const GgufTensorName& name, const TensorView& tensor) {
  const int64_t experts = tensor.shape[0];
  if (tensor.shape.size() < 2 || experts > kMaxViews - static_cast<int64_t>(tensors_.size())) {
    return Error(Code::kBadModel, path_, ": tensor ", Quote(tensor.name), ": ", experts,
                 " experts in ", tensor.shape.size(),
                 " dimensions, the limits are 2 dimensions and ", kMaxViews,
                 " tensors of all experts");
  }
  const size_t size = tensor.bytes.size() / static_cast<size_t>(experts);
  for (int64_t e = 0; e < experts; ++e) {
    TensorView one = tensor;
    one.name = absl::StrReplaceAll(name.name, {{"*", absl::StrCat(e)}});
    one.shape.erase(one.shape.begin());
    one.bytes = tensor.bytes.subspan(static_cast<size_t>(e) * size, size);
    tensors_.push_back(std::move(one));
  }
  return OkStatus();
}

Status GgufCheckpoint::Convert(const GgufArch& arch, TensorView* tensor) {
  const bool query = absl::StrContains(tensor->name, ".q_proj.");
  const bool paired = arch.paired_heads && (query || absl::StrContains(tensor->name, ".k_proj."));
  const bool plus_one = arch.norms_plus_one && absl::EndsWith(tensor->name, "norm.weight");
  if (!paired && !plus_one) return OkStatus();
  const int64_t heads = query ? heads_ : kv_heads_;
  const int64_t rows = tensor->shape[0];
  if (paired && rows % (2 * heads) != 0) {
    return Error(Code::kBadModel, path_, ": tensor ", Quote(tensor->name), ": ", rows,
                 " rows are not pairs of ", heads, " heads");
  }
  const int64_t head_dim = paired ? rows / heads : 0;
  if (paired && tensor->shape.size() > 1) {
    tensor->paired_rows = static_cast<int32_t>(std::min<int64_t>(head_dim, INT32_MAX));
    return OkStatus();
  }
  if (tensor->shape.size() != 1 || tensor->blocks ||
      (tensor->dtype != DType::kF32 && tensor->dtype != DType::kF16 &&
       tensor->dtype != DType::kBF16)) {
    return Error(Code::kBadModel, path_, ": tensor ", Quote(tensor->name), ": a vector of ",
                 tensor->shape.size(), " dimensions of ",
                 tensor->blocks ? quant::InfoOf(*tensor->blocks).name : NameOf(tensor->dtype),
                 ", not one of F32, F16 or BF16");
  }
  auto values = std::make_unique<std::vector<float>>(Values(*tensor));
  if (plus_one) {
    for (float& value : *values) value -= 1;
  } else {
    const std::vector<float> stored = *values;
    const auto half = static_cast<size_t>(head_dim / 2);
    for (size_t i = 0; i < stored.size(); ++i) {
      const size_t in = i % (2 * half);
      (*values)[i] = stored[i - in + (in < half ? 2 * in : 2 * (in - half) + 1)];
    }
  }
  tensor->dtype = DType::kF32;
  tensor->bytes = {reinterpret_cast<const uint8_t*>(values->data()),
                   values->size() * sizeof(float)};
  converted_.push_back(std::move(values));
  return OkStatus();
}

Status GgufCheckpoint::Sort() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      return Error(Code::kBadModel, path_, ": two tensors are what is called ",
                   Quote(tensors_[i].name), " elsewhere");
    }
  }
  return OkStatus();
}

const TensorView* GgufCheckpoint::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace mainarch::file
