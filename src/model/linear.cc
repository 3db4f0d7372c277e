// SPDX-License-Identifier: MIT
#include "model/linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::model {
namespace {

using file::TensorView;
using quant::Format;
using quant::Matrix;

constexpr int32_t kFp8Block = 128;  // where nothing else fits
constexpr int32_t kLeastFp8Block = 16;
constexpr absl::string_view kWeight = ".weight";

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

template <class... Parts>
Status Bad(Code code, const TensorView& tensor, const Parts&... parts) {
  return Error(code, tensor.file, ": tensor \"", tensor.name, "\" ", parts...);
}

Status CheckShape(const TensorView& tensor, const std::vector<int64_t>& shape,
                  absl::string_view why) {
  if (tensor.shape == shape) return OkStatus();
  return Bad(Code::kBadModel, tensor, "has shape ", ShapeText(tensor.shape), ", not ",
             ShapeText(shape), why);
}

std::optional<Format> PlainFormat(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return Format::kBF16;
    case DType::kF16:
      return Format::kF16;
    case DType::kF32:
      return Format::kF32;
    default:
      return std::nullopt;
  }
}

// The block that cuts n into so many; 0: none does. Blocks are powers of two, and then there is no more
// than one of them, unless it is one block of all.
int32_t BlockOf(int64_t n, int64_t blocks) {
  if (blocks == 1 && n <= kFp8Block) return kFp8Block;
  for (int64_t block = kLeastFp8Block; block < 2 * n; block *= 2) {
    if (CeilDivide(n, block) == blocks) return static_cast<int32_t>(block);
  }
  return 0;
}

// One logical linear while the tensors that make it are gathered.
class LinearFinder {
 public:
  LinearFinder(const file::Checkpoint& checkpoint, const std::string& name, int64_t rows,
               int64_t cols)
      : checkpoint_(checkpoint), name_(name) {
    matrix_.rows = rows;
    matrix_.cols = cols;
  }

  StatusOr<Matrix> Run() {
    weight_ = Sibling(kWeight);
    const bool packed = weight_ == nullptr && (weight_ = Sibling(".weight_packed")) != nullptr;
    const bool turned = weight_ == nullptr && (weight_ = Sibling(".qweight")) != nullptr;
    if (weight_ == nullptr) return Missing();
    matrix_.name = absl::string_view(weight_->name).substr(0, name_.size());
    matrix_.data = weight_->bytes;
    matrix_.paired_rows = weight_->paired_rows;
    Status status;
    if (weight_->blocks) {
      matrix_.format = *weight_->blocks;
      status = CheckShape(*weight_, {matrix_.rows, matrix_.cols}, "");
    } else if (turned) {
      status = Turned();
    } else if (packed && weight_->dtype == DType::kI32) {
      status = Packed();
    } else if (PlainFormat(weight_->dtype)) {
      status = Plain(*PlainFormat(weight_->dtype));
    } else if (weight_->dtype == DType::kF8E4M3) {
      status = Fp8();
    } else if (weight_->dtype == DType::kI8) {
      status = Int8();
    } else if (weight_->dtype == DType::kU8) {
      status = Fp4();
    } else {
      status = Bad(Code::kUnsupported, *weight_, "has dtype ", NameOf(weight_->dtype),
                   ", which is not supported; known are BF16, F16, F32, F8_E4M3, I8, U8 (MXFP4, NVFP4) and I32 (int4)");
    }
    RETURN_IF_ERROR(status);
    return matrix_;
  }

 private:
  const TensorView* Sibling(absl::string_view suffix) const {
    return checkpoint_.Find(absl::StrCat(name_, suffix));
  }

  Status Missing() const {
    static constexpr struct {
      absl::string_view suffix, what;
    } kOthers[] = {{"_blocks", "the fused MXFP4 layout of GPT-OSS"}};
    for (const auto& other : kOthers) {
      if (const TensorView* tensor = Sibling(other.suffix)) {
        return Bad(Code::kUnsupported, *tensor, "is of ", other.what,
                   ", which is not supported; convert it");
      }
    }
    return Error(Code::kNotFound, checkpoint_.directory(), ": no tensor \"", name_, kWeight, "\"");
  }

  Status Plain(Format format) {
    matrix_.format = format;
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols}, ""));
    for (const absl::string_view suffix : {".weight_scale", ".weight_scale_inv"}) {
      if (const TensorView* scale = Sibling(suffix)) {
        return Bad(Code::kBadModel, *scale, "scales a weight of ", NameOf(weight_->dtype),
                   ", which has no scales");
      }
    }
    return OkStatus();
  }

  Status Fp8() {
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols}, ""));
    const TensorView* block = Sibling(".weight_scale_inv");
    const TensorView* channel = Sibling(".weight_scale");
    if ((block != nullptr) == (channel != nullptr)) {
      return Bad(Code::kBadModel, *weight_, "of F8_E4M3 has ",
                 block == nullptr ? "neither" : "both",
                 " of weight_scale_inv and weight_scale; it needs one of them");
    }
    if (block != nullptr) return Fp8Blocks(*block);
    matrix_.format = Format::kFp8Channel;
    const std::vector<int64_t>& shape = channel->shape;
    // compressed-tensors gives this name to the scales of blocks, too.
    if (shape.size() == 2 && shape[1] > 1 && BlockOf(matrix_.rows, shape[0]) != 0 &&
        BlockOf(matrix_.cols, shape[1]) != 0) {
      return Fp8Blocks(*channel);
    }
    return ChannelScales(*channel);
  }

  // One a row, or one for all.
  Status ChannelScales(const TensorView& scale) {
    const std::vector<int64_t>& shape = scale.shape;
    const bool one =
        shape.empty() || shape == std::vector<int64_t>{1} || shape == std::vector<int64_t>{1, 1};
    if (!one && shape != std::vector<int64_t>{matrix_.rows}) {
      RETURN_IF_ERROR(CheckShape(scale, {matrix_.rows, 1}, ", [N] or one for all rows"));
    }
    return FloatScales(scale);
  }

  // compressed-tensors "int-quantized". What it would round activations to is not looked at.
  Status Int8() {
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols}, ""));
    const TensorView* scale = Sibling(".weight_scale");
    if (scale == nullptr) return Bad(Code::kBadModel, *weight_, "of I8 has no weight_scale");
    if (const TensorView* zero = Sibling(".weight_zero_point")) {
      return Bad(Code::kUnsupported, *zero, "gives bytes a zero point, which is not supported");
    }
    matrix_.format = Format::kInt8Channel;
    return ChannelScales(*scale);
  }

  // Blocks of any size that the shapes tell.
  Status Fp8Blocks(const TensorView& scale) {
    matrix_.format = Format::kFp8Block;
    matrix_.block_rows = matrix_.block_cols = kFp8Block;
    if (scale.shape.size() == 2) {
      const int32_t rows = BlockOf(matrix_.rows, scale.shape[0]);
      const int32_t cols = BlockOf(matrix_.cols, scale.shape[1]);
      if (rows != 0 && cols != 0) {
        matrix_.block_rows = rows;
        matrix_.block_cols = cols;
      }
    }
    RETURN_IF_ERROR(CheckShape(scale,
                               {CeilDivide(matrix_.rows, matrix_.block_rows),
                                CeilDivide(matrix_.cols, matrix_.block_cols)},
                               ", one scale for a block of 128 by 128, or of other powers of two"));
    return FloatScales(scale);
  }

  // Scales of FP8 and bytes: few enough to look at each.
  Status FloatScales(const TensorView& scale) {
    if (scale.dtype != DType::kF32 && scale.dtype != DType::kBF16) {
      return Bad(Code::kUnsupported, scale, "has dtype ", NameOf(scale.dtype),
                 ", but scales of F8_E4M3 and I8 are F32 or BF16");
    }
    const size_t step = BytesOf(scale.dtype);
    for (size_t at = 0; at < scale.bytes.size(); at += step) {
      float value = 0;
      if (scale.dtype == DType::kF32) {
        std::memcpy(&value, scale.bytes.data() + at, sizeof(value));
      } else {
        uint16_t code = 0;
        std::memcpy(&code, scale.bytes.data() + at, sizeof(code));
        value = quant::FloatFromBf16(code);
      }
      if (!(value >= 0 && value <= std::numeric_limits<float>::max())) {
        return Bad(Code::kBadModel, scale, "has scale ", value, " at ", at / step,
                   ", the limits are 0 and ", std::numeric_limits<float>::max());
      }
    }
    matrix_.scale = scale.bytes;
    matrix_.scale_dtype = scale.dtype;
    return OkStatus();
  }

  Status Fp4() {
    const TensorView* scale = Sibling(".weight_scale");
    const TensorView* second = Sibling(".weight_scale_2");
    if (scale != nullptr && scale->dtype == DType::kF8E4M3) return Nvfp4(*scale, second);
    if (scale == nullptr) {
      return Bad(Code::kBadModel, *weight_, "of U8 has no weight_scale; MXFP4 needs one");
    }
    if (scale->dtype != DType::kU8 && scale->dtype != DType::kF8E8M0) {
      return Bad(Code::kUnsupported, *scale, "has dtype ", NameOf(scale->dtype),
                 ", but scales of MXFP4 are U8 or F8_E8M0");
    }
    if (matrix_.cols % quant::kMxfp4Block != 0) {
      return Bad(Code::kBadModel, *weight_, "is MXFP4 of ", matrix_.cols,
                 " columns, the limit is a multiple of ", quant::kMxfp4Block);
    }
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols / 2}, ", two columns a byte"));
    RETURN_IF_ERROR(CheckShape(*scale, {matrix_.rows, matrix_.cols / quant::kMxfp4Block},
                               ", one scale for 32 columns"));
    // Gigabytes in a large model: memchr runs at the speed of memory.
    const void* nan = std::memchr(scale->bytes.data(), quant::kE8m0Nan, scale->bytes.size());
    if (nan != nullptr) {
      return Bad(Code::kBadModel, *scale, "has scale 255 (NaN) at ",
                 static_cast<const uint8_t*>(nan) - scale->bytes.data(), ", the limit is 254");
    }
    matrix_.format = Format::kMxfp4;
    matrix_.scale = scale->bytes;
    matrix_.scale_dtype = scale->dtype;
    return OkStatus();
  }

  // Elements as MXFP4 has them; of modelopt `second` multiplies the scales, of compressed-tensors
  // another divides them.
  Status Nvfp4(const TensorView& scale, const TensorView* second) {
    const TensorView* divisor = Sibling(".weight_global_scale");
    if ((second != nullptr) == (divisor != nullptr)) {
      return Bad(Code::kBadModel, *weight_, "of NVFP4 has ", second == nullptr ? "neither" : "both",
                 " of weight_scale_2 and weight_global_scale; it needs one of them");
    }
    if (matrix_.cols % quant::kNvfp4Group != 0) {
      return Bad(Code::kBadModel, *weight_, "is NVFP4 of ", matrix_.cols,
                 " columns, the limit is a multiple of ", quant::kNvfp4Group);
    }
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols / 2}, ", two columns a byte"));
    RETURN_IF_ERROR(CheckShape(scale, {matrix_.rows, matrix_.cols / quant::kNvfp4Group},
                               ", one scale for 16 columns"));
    for (const uint8_t nan : {uint8_t{0x7f}, uint8_t{0xff}}) {
      const void* found = std::memchr(scale.bytes.data(), nan, scale.bytes.size());
      if (found == nullptr) continue;
      return Bad(Code::kBadModel, scale, "has scale ", static_cast<int>(nan), " (NaN) at ",
                 static_cast<const uint8_t*>(found) - scale.bytes.data());
    }
    const TensorView& factor = second != nullptr ? *second : *divisor;
    if (factor.dtype != DType::kF32 || factor.bytes.size() != sizeof(float)) {
      return Bad(Code::kBadModel, factor, "is ", ShapeText(factor.shape), " of ", NameOf(factor.dtype),
                 ", not one F32");
    }
    std::memcpy(&matrix_.factor, factor.bytes.data(), sizeof(float));
    if (second == nullptr) matrix_.factor = 1 / matrix_.factor;
    if (!(matrix_.factor > 0 && matrix_.factor <= std::numeric_limits<float>::max())) {
      return Bad(Code::kBadModel, factor, "makes scales ", matrix_.factor,
                 " times as large, the limits are more than 0, and ",
                 std::numeric_limits<float>::max());
    }
    matrix_.format = Format::kNvfp4;
    matrix_.scale = scale.bytes;
    matrix_.scale_dtype = scale.dtype;
    return OkStatus();
  }

  // Groups of integers (kernels/quant/int4_groups.h): compressed-tensors "pack-quantized".
  Status Packed() {
    const TensorView* scale = Sibling(".weight_scale");
    if (scale == nullptr) return Bad(Code::kBadModel, *weight_, "has no weight_scale");
    RETURN_IF_ERROR(FourBits(weight_->shape.size() == 2 ? weight_->shape[1] : 0, matrix_.cols));
    RETURN_IF_ERROR(CheckShape(*weight_, {matrix_.rows, matrix_.cols / 8}, ", eight columns a word"));
    if (scale->shape.size() != 2 || scale->shape[0] != matrix_.rows) {
      return Bad(Code::kBadModel, *scale, "has shape ", ShapeText(scale->shape), ", not [",
                 matrix_.rows, ", groups]");
    }
    matrix_.format = Format::kInt4Packed;
    RETURN_IF_ERROR(Groups(*scale, scale->shape[1]));
    if (const TensorView* order = Sibling(".weight_g_idx")) RETURN_IF_ERROR(Order(*order));
    const TensorView* zero = Sibling(".weight_zero_point");
    if (zero == nullptr) return OkStatus();
    return Zeros(*zero, {CeilDivide(matrix_.rows, 8), scale->shape[1]});
  }

  // GPTQ and AWQ have the rows of this library as columns; in which of the two lie eight in a word tells
  // them apart.
  Status Turned() {
    const TensorView* scale = Sibling(".scales");
    const TensorView* zero = Sibling(".qzeros");
    if (scale == nullptr || zero == nullptr) {
      return Bad(Code::kBadModel, *weight_, "has no ", scale == nullptr ? "scales" : "qzeros");
    }
    if (weight_->dtype != DType::kI32 || weight_->shape.size() != 2) {
      return Bad(Code::kUnsupported, *weight_, "is ", ShapeText(weight_->shape), " of ",
                 NameOf(weight_->dtype), ", not words of I32");
    }
    const bool awq = weight_->shape[0] == matrix_.cols;
    RETURN_IF_ERROR(awq ? FourBits(weight_->shape[1], matrix_.rows)
                        : FourBits(weight_->shape[0], matrix_.cols));
    matrix_.format = awq ? Format::kAwq : Format::kGptq;
    const std::vector<int64_t> shape = awq ? std::vector<int64_t>{matrix_.cols, matrix_.rows / 8}
                                           : std::vector<int64_t>{matrix_.cols / 8, matrix_.rows};
    RETURN_IF_ERROR(CheckShape(*weight_, shape, ", eight a word"));
    if (matrix_.rows % 8 != 0) {
      return Bad(Code::kUnsupported, *weight_, "is of ", matrix_.rows,
                 " rows, the limit is a multiple of 8");
    }
    if (scale->shape.size() != 2 || scale->shape[1] != matrix_.rows) {
      return Bad(Code::kBadModel, *scale, "has shape ", ShapeText(scale->shape), ", not [groups, ",
                 matrix_.rows, "]");
    }
    RETURN_IF_ERROR(Groups(*scale, scale->shape[0]));
    RETURN_IF_ERROR(Zeros(*zero, {scale->shape[0], matrix_.rows / 8}));
    if (awq) return OkStatus();
    // Its second form does not take one off zero points, and no tensor tells.
    if (absl::StrContains(checkpoint_.config_json(), "\"gptq_v2\"")) {
      return Bad(Code::kUnsupported, *weight_,
                 "is of checkpoint_format \"gptq_v2\", which is not supported; save it as \"gptq\"");
    }
    const TensorView* order = Sibling(".g_idx");
    return order == nullptr ? OkStatus() : Order(*order);
  }

  // To which group each column belongs: mostly those of its neighbours; of "act-order", any.
  Status Order(const TensorView& order) {
    RETURN_IF_ERROR(CheckShape(order, {matrix_.cols}, ""));
    if (order.dtype != DType::kI32) {
      return Bad(Code::kUnsupported, order, "has dtype ", NameOf(order.dtype), ", not I32");
    }
    const int64_t groups = matrix_.cols / matrix_.block_cols;
    for (int64_t col = 0; col < matrix_.cols; ++col) {
      int32_t group;
      std::memcpy(&group, order.bytes.data() + 4 * col, sizeof(group));
      if (group < 0 || group >= groups) {
        return Bad(Code::kBadModel, order, "has group ", group, " at ", col, ", the limits are 0 and ", groups - 1);
      }
      if (group != col / matrix_.block_cols) matrix_.order = order.bytes;
    }
    return OkStatus();
  }

  // `words` hold `n` integers.
  Status FourBits(int64_t words, int64_t n) const {
    if (words * 8 == n) return OkStatus();
    if (words > 0 && n > 0 && (words * 4 == n || words * 16 == n || words * 32 == 3 * n)) {
      return Bad(Code::kUnsupported, *weight_, "is of ", words * 32 / n,
                 " bits a weight, which is not supported; 4 are");
    }
    return Bad(Code::kBadModel, *weight_, "has shape ", ShapeText(weight_->shape), ", not that of ",
               matrix_.rows, " by ", matrix_.cols, " weights of 4 bits");
  }

  Status Groups(const TensorView& scale, int64_t groups) {
    if (groups < 1 || matrix_.cols % groups != 0 || matrix_.cols / groups % 8 != 0) {
      return Bad(Code::kBadModel, scale, "has ", groups, " groups for ", matrix_.cols,
                 " columns; a group is a multiple of 8");
    }
    if (scale.dtype != DType::kF16 && scale.dtype != DType::kBF16) {
      return Bad(Code::kUnsupported, scale, "has dtype ", NameOf(scale.dtype),
                 ", but scales of groups of int4 are F16 or BF16");
    }
    matrix_.block_cols = static_cast<int32_t>(matrix_.cols / groups);
    matrix_.scale = scale.bytes;
    matrix_.scale_dtype = scale.dtype;
    return OkStatus();
  }

  Status Zeros(const TensorView& zero, const std::vector<int64_t>& shape) {
    if (zero.dtype != DType::kI32) {
      return Bad(Code::kUnsupported, zero, "has dtype ", NameOf(zero.dtype),
                 ", but zero points are words of I32");
    }
    matrix_.zero = zero.bytes;
    return CheckShape(zero, shape, ", eight zero points a word");
  }

  const file::Checkpoint& checkpoint_;
  const std::string& name_;
  const TensorView* weight_ = nullptr;
  Matrix matrix_;
};

}  // namespace

StatusOr<Matrix> FindLinear(const file::Checkpoint& checkpoint, const std::string& name,
                            int64_t rows, int64_t cols) {
  return LinearFinder(checkpoint, name, rows, cols).Run();
}

namespace {

// All values of a plain tensor of that shape, in one row.
StatusOr<Matrix> FindRow(const file::Checkpoint& checkpoint, const std::string& name,
                         const std::vector<int64_t>& shape) {
  const TensorView* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return Error(Code::kNotFound, checkpoint.directory(), ": no tensor \"", name, "\"");
  }
  const std::optional<Format> format = PlainFormat(tensor->dtype);
  if (!format) {
    return Bad(Code::kUnsupported, *tensor, "has dtype ", NameOf(tensor->dtype),
               ", but vectors are BF16, F16 or F32");
  }
  RETURN_IF_ERROR(CheckShape(*tensor, shape, ""));
  Matrix matrix;
  matrix.format = *format;
  matrix.rows = 1;
  matrix.cols = 1;
  for (const int64_t size : shape) matrix.cols *= size;
  matrix.data = tensor->bytes;
  matrix.name = tensor->name;
  return matrix;
}

}  // namespace

StatusOr<Matrix> FindVector(const file::Checkpoint& checkpoint, const std::string& name,
                            int64_t size) {
  return FindRow(checkpoint, name, {size});
}

StatusOr<Matrix> FindConvolution(const file::Checkpoint& checkpoint, const std::string& name,
                                 int64_t channels, int64_t taps) {
  return FindRow(checkpoint, name, {channels, 1, taps});
}

}  // namespace mainarch::model
