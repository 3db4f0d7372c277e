// SPDX-License-Identifier: MIT
#include "file/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "file/json.h"

namespace mainarch::file {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxTensors = size_t{1} << 20;
// A tensor is 9 to 24 values and keys; the largest checkpoints, of 1.5 x 10^5 tensors, would have 2 x 10^6
// in one file.
constexpr size_t kMaxValues = size_t{1} << 22;
// The header of a file nests three deep; anything more is refused before it is walked.
constexpr size_t kMaxDepth = 8;

uint64_t LittleEndian64(const uint8_t* at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | at[i];
  return value;
}

// One file while its header is read.
class Parser {
 public:
  Parser(absl::Span<const uint8_t> bytes, absl::string_view file) : bytes_(bytes), file_(file) {}

  StatusOr<std::vector<TensorView>> Run() {
    RETURN_IF_ERROR(FindHeader());
    const absl::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes,
                                 header_bytes_);
    if (text.front() != '{') {
      return Error(Code::kBadModel, file_, ": the header begins with byte ",
                   static_cast<int>(static_cast<uint8_t>(text.front())), ", not with '{' (",
                   static_cast<int>('{'), ")");
    }
    ASSIGN_OR_RETURN(const JsonDocument header,
                     JsonDocument::Parse(text, file_, {kMaxHeaderBytes, kMaxDepth, kMaxValues}));
    ASSIGN_OR_RETURN(const object members, header.RootObject());
    for (const auto& member : members) {
      const absl::string_view name = View(member.key);
      RETURN_IF_ERROR(name == "__metadata__" ? CheckMetadata(member.value)
                                             : AddTensor(name, member.value));
    }
    RETURN_IF_ERROR(CheckCoverage());
    return std::move(tensors_);
  }

 private:
  template <class... Parts>
  Status Bad(absl::string_view name, const Parts&... parts) const {
    return Error(Code::kBadModel, file_, ": tensor ", Quote(name), ": ", parts...);
  }

  Status FindHeader() {
    if (bytes_.size() < kLengthBytes) {
      return Error(Code::kBadModel, file_, ": ", bytes_.size(),
                   " bytes, too short for a safetensors header length of ", kLengthBytes);
    }
    const uint64_t length = LittleEndian64(bytes_.data());
    if (length > kMaxHeaderBytes) {
      return Error(Code::kBadModel, file_, ": header of ", length,
                   " bytes, more than the limit of ", kMaxHeaderBytes, "; is it safetensors?");
    }
    if (length > bytes_.size() - kLengthBytes) {
      return Error(Code::kBadModel, file_, ": header of ", length, " bytes in a file of ",
                   bytes_.size(), ": truncated?");
    }
    if (length < 2) {
      return Error(Code::kBadModel, file_, ": header of ", length,
                   " bytes, less than the 2 of an empty object");
    }
    header_bytes_ = length;
    data_ = bytes_.subspan(kLengthBytes + header_bytes_);
    return OkStatus();
  }

  Status CheckMetadata(element value) const {
    object members;
    if (value.get(members) != simdjson::SUCCESS) {
      return Error(Code::kBadModel, file_, ": __metadata__ is ", KindOf(value),
                   ", not an object of strings");
    }
    for (const auto& member : members) {
      if (!member.value.is_string()) {
        return Error(Code::kBadModel, file_, ": __metadata__: key ", Quote(View(member.key)),
                     " is ", Show(member.value), ", not a string");
      }
    }
    return OkStatus();
  }

  Status CheckName(absl::string_view name) const {
    if (name.empty() || name.size() > kMaxNameBytes) {
      return Bad(name, "name of ", name.size(), " bytes, the limits are 1 and ", kMaxNameBytes);
    }
    for (const char c : name) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte < 0x20 || byte == 0x7f) {
        return Bad(name, "name with control character ", static_cast<int>(byte));
      }
    }
    if (tensors_.size() >= kMaxTensors) {
      return Bad(name, "more tensors than the limit of ", kMaxTensors);
    }
    return OkStatus();
  }

  Status AddTensor(absl::string_view name, element value) {
    RETURN_IF_ERROR(CheckName(name));
    object fields;
    if (value.get(fields) != simdjson::SUCCESS) {
      return Bad(name, "is ", KindOf(value), ", not an object");
    }
    TensorView tensor;
    tensor.name = std::string(name);
    tensor.file = std::string(file_);
    bool has_dtype = false, has_shape = false, has_offsets = false;
    uint64_t begin = 0, end = 0;
    for (const auto& field : fields) {
      const absl::string_view key = View(field.key);
      if (key == "dtype") {
        has_dtype = true;
        RETURN_IF_ERROR(ReadDType(field.value, &tensor));
      } else if (key == "shape") {
        has_shape = true;
        RETURN_IF_ERROR(ReadShape(field.value, &tensor));
      } else if (key == "data_offsets") {
        has_offsets = true;
        RETURN_IF_ERROR(ReadOffsets(name, field.value, &begin, &end));
      } else {
        return Bad(name, "unknown key ", Quote(key), "; known are dtype, shape and data_offsets");
      }
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      return Bad(name, "no key \"", !has_dtype ? "dtype" : (!has_shape ? "shape" : "data_offsets"),
                 "\"");
    }
    RETURN_IF_ERROR(CheckSize(tensor, end - begin));
    tensor.bytes = data_.subspan(begin, end - begin);
    tensors_.push_back(std::move(tensor));
    return OkStatus();
  }

  Status ReadDType(element value, TensorView* tensor) const {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      return Bad(tensor->name, "dtype is ", Show(value), ", not a string");
    }
    const auto dtype = DTypeFromName(View(text));
    if (!dtype) {
      std::string known;
      for (const DTypeInfo& info : kDTypes) {
        absl::StrAppend(&known, known.empty() ? "" : ", ", info.name);
      }
      return Bad(tensor->name, "dtype ", Quote(View(text)), " is not known; known are ", known);
    }
    tensor->dtype = *dtype;
    return OkStatus();
  }

  Status ReadShape(element value, TensorView* tensor) const {
    array items;
    if (value.get(items) != simdjson::SUCCESS) {
      return Bad(tensor->name, "shape is ", Show(value), ", not an array");
    }
    for (const element item : items) {
      uint64_t size = 0;
      if (item.get(size) != simdjson::SUCCESS ||
          size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Bad(tensor->name, "shape[", tensor->shape.size(), "] is ", Show(item),
                   ", not an integer from 0 to ", std::numeric_limits<int64_t>::max());
      }
      if (tensor->shape.size() == kMaxRank) {
        return Bad(tensor->name, "shape of more dimensions than the limit of ", kMaxRank);
      }
      tensor->shape.push_back(static_cast<int64_t>(size));
    }
    return OkStatus();
  }

  Status ReadOffsets(absl::string_view name, element value, uint64_t* begin, uint64_t* end) const {
    array items;
    if (value.get(items) != simdjson::SUCCESS || items.size() != 2 ||
        items.at(0).get(*begin) != simdjson::SUCCESS ||
        items.at(1).get(*end) != simdjson::SUCCESS) {
      return Bad(name, "data_offsets is not an array of two unsigned integers");
    }
    if (*begin > *end) {
      return Bad(name, "data_offsets [", *begin, ", ", *end, "] end before they begin");
    }
    if (*end > data_.size()) {
      return Bad(name, "data_offsets [", *begin, ", ", *end, "] end beyond the ", data_.size(),
                 " bytes of data in the file: truncated?");
    }
    return OkStatus();
  }

  Status CheckSize(const TensorView& tensor, uint64_t bytes) const {
    uint64_t expected = BytesOf(tensor.dtype);
    for (const int64_t size : tensor.shape) {
      if (__builtin_mul_overflow(expected, static_cast<uint64_t>(size), &expected)) {
        return Bad(tensor.name, "shape [", ShapeText(tensor),
                   "] takes more bytes than the limit of ", std::numeric_limits<uint64_t>::max());
      }
    }
    if (expected != bytes) {
      return Bad(tensor.name, "shape [", ShapeText(tensor), "] of ", NameOf(tensor.dtype),
                 " takes ", expected, " bytes, but data_offsets span ", bytes);
    }
    return OkStatus();
  }

  static std::string ShapeText(const TensorView& tensor) {
    std::string text;
    for (const int64_t size : tensor.shape) absl::StrAppend(&text, text.empty() ? "" : ", ", size);
    return text;
  }

  // The format has no holes, no overlaps and no bytes after the last tensor: a file with any of
  // them was damaged, or says two things at once.
  Status CheckCoverage() {
    const auto offset = [this](const TensorView& tensor) {
      return static_cast<uint64_t>(tensor.bytes.data() - data_.data());
    };
    std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) {
      return std::make_pair(a.bytes.data(), a.bytes.size()) <
             std::make_pair(b.bytes.data(), b.bytes.size());
    });
    uint64_t end = 0;
    const TensorView* before = nullptr;
    for (const TensorView& tensor : tensors_) {
      const uint64_t begin = offset(tensor);
      if (begin < end) {
        return Bad(tensor.name, "begins at ", begin, ", inside of tensor ", Quote(before->name),
                   ", which ends at ", end);
      }
      if (begin > end) {
        return Bad(tensor.name, "begins at ", begin, ", leaving a hole from ", end,
                   "; safetensors have none");
      }
      end = begin + tensor.bytes.size();
      before = &tensor;
    }
    if (end != data_.size()) {
      return Error(Code::kBadModel, file_, ": ", data_.size() - end,
                   " bytes after the last tensor, which ends at ", end, " of ", data_.size());
    }
    return OkStatus();
  }

  absl::Span<const uint8_t> bytes_;
  absl::string_view file_;
  size_t header_bytes_ = 0;
  absl::Span<const uint8_t> data_;
  std::vector<TensorView> tensors_;
};

}  // namespace

StatusOr<std::vector<TensorView>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                   absl::string_view file_name) {
  return Parser(bytes, file_name).Run();
}

StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  ASSIGN_OR_RETURN(file.mapping_, Mapping::OfFile(path));
  ASSIGN_OR_RETURN(file.tensors_, ParseSafetensors(file.mapping_.bytes(), path));
  return file;
}

}  // namespace mainarch::file
