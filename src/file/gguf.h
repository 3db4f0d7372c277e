// SPDX-License-Identifier: MIT
//
// One GGUF file: a header of counts, metadata (typed values by key), tensor descriptions, then the
// data, all little-endian (versions 2 and 3 of the format, as ggml's documents have it). Everything in it
// is checked before it is believed: counts against the bytes there are, text as UTF-8, types,
// shapes against the blocks of their type, places against the file and each other.
#ifndef MAINARCH_FILE_GGUF_H_
#define MAINARCH_FILE_GGUF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/status.h"
#include "file/tensor.h"

namespace mainarch::file {

// The numbers are the file's.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A value where it lies in the file.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of an array: of its elements
  bool array = false;
  uint64_t count = 1;  // elements
  // Numbers at their size, a boolean a byte; a string is its length (8 bytes) and its text.
  absl::Span<const uint8_t> bytes;
};

// Metadata by key. Getters give nothing where the key is absent, and refuse a value of another kind
// or beyond the limits by file, key, value and limit. Borrows from the file's bytes.
class GgufMetadata {
 public:
  const GgufValue* Find(absl::string_view key) const;

  StatusOr<std::optional<int64_t>> Integer(absl::string_view key, int64_t least,
                                           int64_t most) const;
  StatusOr<std::optional<double>> Number(absl::string_view key, double least, double most) const;
  StatusOr<std::optional<bool>> Boolean(absl::string_view key) const;
  StatusOr<std::optional<absl::string_view>> String(absl::string_view key) const;
  // Of an array, in its order.
  StatusOr<std::optional<std::vector<int64_t>>> Integers(absl::string_view key, int64_t least,
                                                         int64_t most) const;
  StatusOr<std::optional<std::vector<bool>>> Booleans(absl::string_view key) const;
  StatusOr<std::optional<std::vector<float>>> Floats(absl::string_view key) const;
  StatusOr<std::optional<std::vector<absl::string_view>>> Strings(absl::string_view key) const;

  // An error about `key`.
  template <class... Parts>
  Status Bad(Code code, absl::string_view key, const Parts&... parts) const {
    return Error(code, file_, ": ", key, " ", parts...);
  }
  const std::string& file() const { return file_; }
  size_t size() const { return values_.size(); }

 private:
  friend class GgufParser;

  std::string file_;  // for messages
  HashMap<absl::string_view, GgufValue> values_;
};

struct GgufContents {
  GgufMetadata metadata;
  // In the order of the file. Shapes are as everywhere in this library, rows first: GGUF has the
  // innermost dimension first.
  std::vector<TensorView> tensors;
};

inline constexpr absl::string_view kGgufMagic = "GGUF";

// Parses the bytes of a whole file. `file_name` is for messages only.
StatusOr<GgufContents> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view file_name);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_H_
