// SPDX-License-Identifier: MIT
#include "model/linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_join.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::model {
namespace {

using file::TensorView;
using quant::Format;
using quant::Matrix;

constexpr int32_t kFp8Block = 128;
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
    if (weight_ == nullptr) return Missing();
    matrix_.name = absl::string_view(weight_->name).substr(0, name_.size());
    matrix_.data = weight_->bytes;
    Status status;
    if (PlainFormat(weight_->dtype)) {
      status = Plain(*PlainFormat(weight_->dtype));
    } else if (weight_->dtype == DType::kF8E4M3) {
      status = Fp8();
    } else if (weight_->dtype == DType::kU8) {
      status = Fp4();
    } else {
      status = Bad(Code::kUnsupported, *weight_, "has dtype ", NameOf(weight_->dtype),
                   ", which is not supported; known are BF16, F16, F32, F8_E4M3 and U8 (MXFP4)");
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
    } kOthers[] = {{"_blocks", "the fused MXFP4 layout of GPT-OSS"},
                   {".qweight", "the layout of GPTQ and AWQ"},
                   {".weight_packed", "the packed layout of compressed-tensors"}};
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
    if (block != nullptr) {
      matrix_.format = Format::kFp8Block;
      matrix_.block_rows = matrix_.block_cols = kFp8Block;
      RETURN_IF_ERROR(CheckShape(
          *block, {CeilDivide(matrix_.rows, kFp8Block), CeilDivide(matrix_.cols, kFp8Block)},
          ", one scale for a block of 128 by 128"));
      return FloatScales(*block);
    }
    matrix_.format = Format::kFp8Channel;
    const std::vector<int64_t>& shape = channel->shape;
    const bool one =
        shape.empty() || shape == std::vector<int64_t>{1} || shape == std::vector<int64_t>{1, 1};
    if (!one && shape != std::vector<int64_t>{matrix_.rows}) {
      RETURN_IF_ERROR(CheckShape(*channel, {matrix_.rows, 1}, ", [N] or one for all rows"));
    }
    return FloatScales(*channel);
  }

  // Scales of FP8: few enough to look at each.
  Status FloatScales(const TensorView& scale) {
    if (scale.dtype != DType::kF32 && scale.dtype != DType::kBF16) {
      return Bad(Code::kUnsupported, scale, "has dtype ", NameOf(scale.dtype),
                 ", but scales of F8_E4M3 are F32 or BF16");
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
    if (second != nullptr || (scale != nullptr && scale->dtype == DType::kF8E4M3)) {
      return Bad(Code::kUnsupported, *weight_,
                 "is NVFP4 (F8_E4M3 scales for blocks of 16), which is not supported; use MXFP4");
    }
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

StatusOr<Matrix> FindVector(const file::Checkpoint& checkpoint, const std::string& name,
                            int64_t size) {
  const TensorView* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return Error(Code::kNotFound, checkpoint.directory(), ": no tensor \"", name, "\"");
  }
  const std::optional<Format> format = PlainFormat(tensor->dtype);
  if (!format) {
    return Bad(Code::kUnsupported, *tensor, "has dtype ", NameOf(tensor->dtype),
               ", but vectors are BF16, F16 or F32");
  }
  RETURN_IF_ERROR(CheckShape(*tensor, {size}, ""));
  Matrix matrix;
  matrix.format = *format;
  matrix.rows = 1;
  matrix.cols = size;
  matrix.data = tensor->bytes;
  matrix.name = tensor->name;
  return matrix;
}

}  // namespace mainarch::model
