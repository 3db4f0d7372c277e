// SPDX-License-Identifier: MIT
#include "file/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "file/json.h"

namespace mainarch::file {
namespace {

using quant::Format;

constexpr uint32_t kLeastVersion = 2, kMostVersion = 3;
// Released files have some 50 keys, and tensors by the thousand (experts lie together).
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr uint64_t kMaxNameBytes = 256;   // ggml's is 63
constexpr uint32_t kMaxRank = 4;
constexpr int64_t kMaxAlignment = 65536;
constexpr int64_t kAlignment = 32;  // where general.alignment does not say
// A vocabulary's tokens and merges; the largest have 3 x 10^5.
constexpr uint64_t kMaxElements = uint64_t{1} << 24;
constexpr absl::string_view kAlignmentKey = "general.alignment";

// Bytes of one number; 0 for what is none.
uint64_t SizeOf(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

absl::string_view NameOf(GgufType type) {
  static constexpr absl::string_view kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                 "i32", "f32", "bool", "string", "array",
                                                 "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

bool IsInteger(GgufType type) {
  return SizeOf(type) != 0 && type != GgufType::kBool && type != GgufType::kF32 &&
         type != GgufType::kF64;
}

// How tensors are stored (enum ggml_type); types that ggml has dropped are not here.
struct TensorType {
  uint32_t number;
  absl::string_view name;
  uint32_t block_cols, block_bytes;
  std::optional<DType> dtype;
  std::optional<Format> blocks;
};
constexpr TensorType Plain(uint32_t number, DType dtype) {
  return {number, NameOf(dtype), 1, static_cast<uint32_t>(BytesOf(dtype)), dtype, std::nullopt};
}
constexpr TensorType Blocks(uint32_t number, absl::string_view name, Format format) {
  const quant::FormatInfo& info = quant::InfoOf(format);
  return {number, name, info.block_cols, info.block_bytes, std::nullopt, format};
}
// Known so as to be refused by name.
constexpr TensorType Other(uint32_t number, absl::string_view name) {
  return {number, name, 0, 0, std::nullopt, std::nullopt};
}
constexpr TensorType kTensorTypes[] = {
    Plain(0, DType::kF32),
    Plain(1, DType::kF16),
    Blocks(2, "Q4_0", Format::kQ4_0),
    Blocks(3, "Q4_1", Format::kQ4_1),
    Blocks(6, "Q5_0", Format::kQ5_0),
    Blocks(7, "Q5_1", Format::kQ5_1),
    Blocks(8, "Q8_0", Format::kQ8_0),
    Other(9, "Q8_1"),
    Other(10, "Q2_K"),
    Other(11, "Q3_K"),
    Blocks(12, "Q4_K", Format::kQ4K),
    Blocks(13, "Q5_K", Format::kQ5K),
    Blocks(14, "Q6_K", Format::kQ6K),
    Other(15, "Q8_K"),
    Other(16, "IQ2_XXS"),
    Other(17, "IQ2_XS"),
    Other(18, "IQ3_XXS"),
    Other(19, "IQ1_S"),
    Blocks(20, "IQ4_NL", Format::kIq4Nl),
    Other(21, "IQ3_S"),
    Other(22, "IQ2_S"),
    Other(23, "IQ4_XS"),
    Plain(24, DType::kI8),
    Plain(25, DType::kI16),
    Plain(26, DType::kI32),
    Plain(27, DType::kI64),
    Plain(28, DType::kF64),
    Other(29, "IQ1_M"),
    Plain(30, DType::kBF16),
    Other(34, "TQ1_0"),
    Other(35, "TQ2_0"),
    Blocks(39, "MXFP4", Format::kMxfp4Blocks),
    Other(40, "NVFP4"),
    Other(41, "Q1_0"),
};

const TensorType* FindTensorType(uint32_t number) {
  for (const TensorType& type : kTensorTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

template <class T>
T LoadAt(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// An integer of the file, or what stands for one that 64 bits with a sign do not hold.
int64_t IntegerAt(GgufType type, const uint8_t* at) {
  switch (type) {
    case GgufType::kU8:
      return *at;
    case GgufType::kI8:
      return static_cast<int8_t>(*at);
    case GgufType::kU16:
      return LoadAt<uint16_t>(at);
    case GgufType::kI16:
      return LoadAt<int16_t>(at);
    case GgufType::kU32:
      return LoadAt<uint32_t>(at);
    case GgufType::kI32:
      return LoadAt<int32_t>(at);
    case GgufType::kU64:
      return static_cast<int64_t>(std::min<uint64_t>(
          LoadAt<uint64_t>(at), static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
    default:
      return LoadAt<int64_t>(at);
  }
}

bool IsUtf8(absl::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

}  // namespace

// --- Metadata

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

namespace {

template <class Fits>
StatusOr<const GgufValue*> FindAs(const GgufMetadata& metadata, absl::string_view key, bool array,
                                  Fits fits, absl::string_view wanted) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr || (value->array == array && fits(value->type))) return value;
  return metadata.Bad(Code::kBadModel, key, "is ", value->array ? "an array of " : "of type ",
                      NameOf(value->type), ", not ", array ? "an array of " : "", wanted);
}

}  // namespace

StatusOr<std::optional<int64_t>> GgufMetadata::Integer(absl::string_view key, int64_t least,
                                                       int64_t most) const {
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, false, IsInteger, "an integer"));
  if (found == nullptr) return std::optional<int64_t>();
  const int64_t value = IntegerAt(found->type, found->bytes.data());
  if (value < least || value > most) {
    return Bad(Code::kBadModel, key, "is ", value, ", the limits are ", least, " and ", most);
  }
  return std::optional<int64_t>(value);
}

StatusOr<std::optional<double>> GgufMetadata::Number(absl::string_view key, double least,
                                                     double most) const {
  const auto fits = [](GgufType type) { return SizeOf(type) != 0 && type != GgufType::kBool; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, false, fits, "a number"));
  if (found == nullptr) return std::optional<double>();
  const uint8_t* at = found->bytes.data();
  const double value = found->type == GgufType::kF32 ? static_cast<double>(LoadAt<float>(at))
                       : found->type == GgufType::kF64
                           ? LoadAt<double>(at)
                           : static_cast<double>(IntegerAt(found->type, at));
  if (!(value >= least && value <= most)) {
    return Bad(Code::kBadModel, key, "is ", value, ", the limits are ", least, " and ", most);
  }
  return std::optional<double>(value);
}

StatusOr<std::optional<bool>> GgufMetadata::Boolean(absl::string_view key) const {
  const auto fits = [](GgufType type) { return type == GgufType::kBool; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, false, fits, "a boolean"));
  if (found == nullptr) return std::optional<bool>();
  return std::optional<bool>(found->bytes[0] != 0);
}

StatusOr<std::optional<absl::string_view>> GgufMetadata::String(absl::string_view key) const {
  const auto fits = [](GgufType type) { return type == GgufType::kString; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, false, fits, "a string"));
  if (found == nullptr) return std::optional<absl::string_view>();
  const auto bytes = found->bytes.subspan(8);
  return std::optional<absl::string_view>(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

StatusOr<std::optional<std::vector<int64_t>>> GgufMetadata::Integers(absl::string_view key,
                                                                     int64_t least,
                                                                     int64_t most) const {
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, true, IsInteger, "integers"));
  if (found == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> values(found->count);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = IntegerAt(found->type, found->bytes.data() + i * SizeOf(found->type));
    if (values[i] < least || values[i] > most) {
      return Bad(Code::kBadModel, absl::StrCat(key, "[", i, "]"), "is ", values[i],
                 ", the limits are ", least, " and ", most);
    }
  }
  return std::optional<std::vector<int64_t>>(std::move(values));
}

StatusOr<std::optional<std::vector<bool>>> GgufMetadata::Booleans(absl::string_view key) const {
  const auto fits = [](GgufType type) { return type == GgufType::kBool; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, true, fits, "booleans"));
  if (found == nullptr) return std::optional<std::vector<bool>>();
  std::vector<bool> values;
  for (const uint8_t value : found->bytes) values.push_back(value != 0);
  return std::optional<std::vector<bool>>(std::move(values));
}

StatusOr<std::optional<std::vector<float>>> GgufMetadata::Floats(absl::string_view key) const {
  const auto fits = [](GgufType type) { return type == GgufType::kF32; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, true, fits, "f32"));
  if (found == nullptr) return std::optional<std::vector<float>>();
  std::vector<float> values(found->count);
  if (!values.empty())
    std::memcpy(values.data(), found->bytes.data(), values.size() * sizeof(float));
  return std::optional<std::vector<float>>(std::move(values));
}

StatusOr<std::optional<std::vector<absl::string_view>>> GgufMetadata::Strings(
    absl::string_view key) const {
  const auto fits = [](GgufType type) { return type == GgufType::kString; };
  ASSIGN_OR_RETURN(const GgufValue* found, FindAs(*this, key, true, fits, "strings"));
  if (found == nullptr) return std::optional<std::vector<absl::string_view>>();
  std::vector<absl::string_view> texts(found->count);
  const uint8_t* at = found->bytes.data();
  for (absl::string_view& text : texts) {  // walked once already, when the file was parsed
    const uint64_t size = LoadAt<uint64_t>(at);
    text = absl::string_view(reinterpret_cast<const char*>(at) + 8, size);
    at += 8 + size;
  }
  return std::optional<std::vector<absl::string_view>>(std::move(texts));
}

// --- The file

class GgufParser {
 public:
  GgufParser(absl::Span<const uint8_t> bytes, absl::string_view file) : bytes_(bytes), file_(file) {
    contents_.metadata.file_ = std::string(file);
  }

  StatusOr<GgufContents> Run() {
    uint64_t tensors = 0, keys = 0;
    RETURN_IF_ERROR(ReadHeader(&tensors, &keys));
    for (uint64_t i = 0; i < keys; ++i) RETURN_IF_ERROR(ReadKey(i));
    RETURN_IF_ERROR(ReadAlignment());
    offsets_.reserve(std::min<uint64_t>(tensors, 4096));
    for (uint64_t i = 0; i < tensors; ++i) RETURN_IF_ERROR(ReadTensor(i));
    RETURN_IF_ERROR(PlaceTensors());
    return std::move(contents_);
  }

 private:
  template <class... Parts>
  Status Bad(const Parts&... parts) const {
    return Error(Code::kBadModel, file_, ": ", parts...);
  }
  template <class... Parts>
  Status BadTensor(absl::string_view name, const Parts&... parts) const {
    return Error(Code::kBadModel, file_, ": tensor ", Quote(name), ": ", parts...);
  }

  uint64_t left() const { return bytes_.size() - at_; }

  Status Need(uint64_t size, absl::string_view what) const {
    if (size <= left()) return OkStatus();
    return Bad(what, " of ", size, " bytes at ", at_, " in a file of ", bytes_.size(),
               ": truncated?");
  }

  template <class T>
  StatusOr<T> Take(absl::string_view what) {
    RETURN_IF_ERROR(Need(sizeof(T), what));
    const T value = LoadAt<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  StatusOr<absl::string_view> TakeText(absl::string_view what, uint64_t least, uint64_t most) {
    ASSIGN_OR_RETURN(const uint64_t size, Take<uint64_t>(what));
    if (size < least || size > most) {
      return Bad(what, " of ", size, " bytes at ", at_ - 8, ", the limits are ", least, " and ",
                 most);
    }
    RETURN_IF_ERROR(Need(size, what));
    const absl::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    if (!IsUtf8(text)) return Bad(what, " at ", at_ - size, " is not utf-8: ", Quote(text));
    return text;
  }

  // The names of keys and tensors.
  StatusOr<absl::string_view> TakeName(absl::string_view what, uint64_t most) {
    ASSIGN_OR_RETURN(const absl::string_view name, TakeText(what, 1, most));
    for (const char c : name) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte < 0x20 || byte == 0x7f) {
        return Bad(what, " ", Quote(name), " has control character ", static_cast<int>(byte));
      }
    }
    return name;
  }

  Status ReadHeader(uint64_t* tensors, uint64_t* keys) {
    if (bytes_.size() < 24 || std::memcmp(bytes_.data(), kGgufMagic.data(), 4) != 0) {
      return Bad("not GGUF: a file of ", bytes_.size(),
                 " bytes that does not begin with \"GGUF\" "
                 "and a header of 24");
    }
    at_ = 4;
    ASSIGN_OR_RETURN(const uint32_t version, Take<uint32_t>("version"));
    if (version >= 1u << 16 && (version & 0xffffu) == 0) {
      return Error(Code::kUnsupported, file_, ": version ", version,
                   " is one with its bytes reversed: a big-endian file, of which none are read");
    }
    if (version < kLeastVersion || version > kMostVersion) {
      return Error(Code::kUnsupported, file_, ": GGUF version ", version, ", the limits are ",
                   kLeastVersion, " and ", kMostVersion);
    }
    ASSIGN_OR_RETURN(*tensors, Take<uint64_t>("tensor count"));
    ASSIGN_OR_RETURN(*keys, Take<uint64_t>("key count"));
    if (*tensors > kMaxTensors) {
      return Bad("tensor count ", *tensors, ", the limit is ", kMaxTensors);
    }
    if (*keys > kMaxKeys) return Bad("key count ", *keys, ", the limit is ", kMaxKeys);
    return OkStatus();
  }

  StatusOr<GgufType> TakeType(absl::string_view key) {
    ASSIGN_OR_RETURN(const uint32_t number, Take<uint32_t>("value type"));
    if (number > static_cast<uint32_t>(GgufType::kF64)) {
      return Bad("key ", Quote(key), " has type ", number, ", the limit is ",
                 static_cast<uint32_t>(GgufType::kF64));
    }
    return static_cast<GgufType>(number);
  }

  Status ReadKey(uint64_t index) {
    ASSIGN_OR_RETURN(const absl::string_view key,
                     TakeName(absl::StrCat("key ", index), kMaxKeyBytes));
    GgufValue value;
    ASSIGN_OR_RETURN(value.type, TakeType(key));
    if (value.type == GgufType::kArray) {
      value.array = true;
      ASSIGN_OR_RETURN(value.type, TakeType(key));
      if (value.type == GgufType::kArray) {
        return Bad("key ", Quote(key), " is an array of arrays, which no model has");
      }
      ASSIGN_OR_RETURN(value.count, Take<uint64_t>("array length"));
      if (value.count > kMaxElements) {
        return Bad("key ", Quote(key), " is an array of ", value.count, ", the limit is ",
                   kMaxElements);
      }
    }
    const size_t begin = at_;
    if (value.type == GgufType::kString) {
      for (uint64_t i = 0; i < value.count; ++i) {
        // (The key is put into the message here: building it for every string would take long.)
        const auto text = TakeText("string", 0, std::numeric_limits<uint64_t>::max());
        if (!text.ok()) {
          return Bad("key ", Quote(key), value.array ? absl::StrCat("[", i, "]") : "", ": ",
                     text.status().message().substr(file_.size() + 2));
        }
      }
    } else {
      const uint64_t size = value.count * SizeOf(value.type);  // at most 2^27
      RETURN_IF_ERROR(Need(size, absl::StrCat("key ", Quote(key))));
      at_ += size;
    }
    value.bytes = bytes_.subspan(begin, at_ - begin);
    if (value.type == GgufType::kBool) {
      for (const uint8_t byte : value.bytes) {
        if (byte > 1) {
          return Bad("key ", Quote(key), " has boolean ", static_cast<int>(byte),
                     ", the limit is 1");
        }
      }
    }
    if (!contents_.metadata.values_.emplace(key, value).second) {
      return Bad("key ", Quote(key), " stands twice");
    }
    return OkStatus();
  }

  Status ReadAlignment() {
    ASSIGN_OR_RETURN(const auto alignment,
                     contents_.metadata.Integer(kAlignmentKey, 1, kMaxAlignment));
    if (!alignment) return OkStatus();
    if ((*alignment & (*alignment - 1)) != 0) {
      return Bad(kAlignmentKey, " is ", *alignment, ", not a power of two");
    }
    alignment_ = static_cast<uint64_t>(*alignment);
    return OkStatus();
  }

  Status ReadTensor(uint64_t index) {
    ASSIGN_OR_RETURN(const absl::string_view name,
                     TakeName(absl::StrCat("name of tensor ", index), kMaxNameBytes));
    if (!names_.insert(name).second) return BadTensor(name, "stands twice");
    TensorView tensor;
    tensor.name = std::string(name);
    tensor.file = std::string(file_);
    ASSIGN_OR_RETURN(const uint32_t rank, Take<uint32_t>("tensor rank"));
    if (rank < 1 || rank > kMaxRank) {
      return BadTensor(name, rank, " dimensions, the limits are 1 and ", kMaxRank);
    }
    for (uint32_t i = 0; i < rank; ++i) {
      ASSIGN_OR_RETURN(const uint64_t size, Take<uint64_t>("tensor dimension"));
      if (size < 1 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return BadTensor(name, "dimension ", i, " is ", size, ", the limits are 1 and ",
                         std::numeric_limits<int64_t>::max());
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    ASSIGN_OR_RETURN(const uint32_t number, Take<uint32_t>("tensor type"));
    ASSIGN_OR_RETURN(const uint64_t offset, Take<uint64_t>("tensor offset"));
    RETURN_IF_ERROR(SetType(number, &tensor));
    uint64_t size = 0;
    RETURN_IF_ERROR(SizeOfTensor(*FindTensorType(number), tensor, &size));
    if (offset % alignment_ != 0) {
      return BadTensor(name, "offset ", offset, " is not a multiple of the alignment ", alignment_);
    }
    contents_.tensors.push_back(std::move(tensor));
    offsets_.push_back({offset, size, offsets_.size()});
    return OkStatus();
  }

  Status SetType(uint32_t number, TensorView* tensor) const {
    const TensorType* type = FindTensorType(number);
    if (type == nullptr) return BadTensor(tensor->name, "unknown type ", number);
    if (!type->dtype && !type->blocks) {
      return Error(
          Code::kUnsupported, file_, ": tensor ", Quote(tensor->name), ": type ", type->name,
          " is not supported; known are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, "
          "Q5_K, Q6_K, IQ4_NL and MXFP4");
    }
    tensor->dtype = type->dtype.value_or(DType::kU8);
    tensor->blocks = type->blocks;
    return OkStatus();
  }

  Status SizeOfTensor(const TensorType& type, const TensorView& tensor, uint64_t* size) const {
    const int64_t cols = tensor.shape.back();
    if (cols % type.block_cols != 0) {
      return BadTensor(tensor.name, "rows of ", cols, ", which is not a multiple of the ",
                       type.block_cols, " in a block of ", type.name);
    }
    *size = type.block_bytes;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const bool last = i + 1 == tensor.shape.size();
      const auto count = static_cast<uint64_t>(last ? cols / type.block_cols : tensor.shape[i]);
      if (__builtin_mul_overflow(*size, count, size)) {
        return BadTensor(tensor.name, "takes more bytes than the limit of ",
                         std::numeric_limits<uint64_t>::max());
      }
    }
    return OkStatus();
  }

  // Tensors may lie in any order, apart from each other, within the file.
  Status PlaceTensors() {
    if (offsets_.empty()) return OkStatus();
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (begin > bytes_.size()) {
      return Bad("data begins at ", begin, ", beyond the file of ", bytes_.size(), ": truncated?");
    }
    const absl::Span<const uint8_t> data = bytes_.subspan(begin);
    std::sort(offsets_.begin(), offsets_.end(), [](const Place& a, const Place& b) {
      return std::make_pair(a.offset, a.size) < std::make_pair(b.offset, b.size);
    });
    uint64_t end = 0;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const Place& place = offsets_[i];
      TensorView& tensor = contents_.tensors[place.tensor];
      if (place.offset > data.size() || place.size > data.size() - place.offset) {
        return BadTensor(tensor.name, place.size, " bytes at ", place.offset, " end beyond the ",
                         data.size(), " bytes of data in the file: truncated?");
      }
      if (place.offset < end) {
        return BadTensor(tensor.name, "begins at ", place.offset, ", inside of tensor ",
                         Quote(contents_.tensors[offsets_[i - 1].tensor].name), ", which ends at ",
                         end);
      }
      end = place.offset + place.size;
      tensor.bytes = data.subspan(place.offset, place.size);
    }
    return OkStatus();
  }

  struct Place {
    uint64_t offset, size;
    size_t tensor;
  };

  absl::Span<const uint8_t> bytes_;
  absl::string_view file_;
  size_t at_ = 0;
  uint64_t alignment_ = kAlignment;
  GgufContents contents_;
  HashSet<absl::string_view> names_;
  std::vector<Place> offsets_;
};

StatusOr<GgufContents> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view file_name) {
  return GgufParser(bytes, file_name).Run();
}

}  // namespace mainarch::file
