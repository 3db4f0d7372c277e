// SPDX-License-Identifier: MIT
#include "model/experts.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_join.h"
#include "backend/program.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"
#include "model/linear.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

using file::TensorView;
using quant::Format;
using quant::Matrix;

std::optional<Format> PlainFormat(DType dtype) {
  if (dtype == DType::kBF16) return Format::kBF16;
  if (dtype == DType::kF16) return Format::kF16;
  if (dtype == DType::kF32) return Format::kF32;
  return std::nullopt;
}

Status CheckShape(const TensorView& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape == shape) return OkStatus();
  return Error(Code::kBadModel, tensor.file, ": tensor \"", tensor.name, "\" has shape [",
               absl::StrJoin(tensor.shape, ", "), "], not [", absl::StrJoin(shape, ", "), "]");
}

// The tensor's share of expert e of `experts`, as a matrix of rows by cols that lie one by one.
Matrix ShareOf(const TensorView& tensor, Format format, int64_t e, int64_t rows, int64_t cols) {
  Matrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  const size_t bytes = static_cast<size_t>(rows * quant::RowBytes(format, cols));
  matrix.data = tensor.bytes.subspan(static_cast<size_t>(e) * bytes, bytes);
  matrix.name = tensor.name;
  return matrix;
}

class ExpertFinder {
 public:
  ExpertFinder(const file::Checkpoint& checkpoint, const ModelConfig& config,
               const std::string& prefix, int64_t most)
      : checkpoint_(checkpoint),
        config_(config),
        names_(ExpertTensorsOf(config)),
        base_(prefix + names_.experts),
        fused_(prefix + "mlp.experts."),
        hidden_(config.hidden),
        width_(config.moe_intermediate),
        count_(std::min<int64_t>(config.experts, most)) {}

  StatusOr<ExpertMatrices> Run() {
    const TensorView* gate_up = checkpoint_.Find(fused_ + "gate_up_proj");
    const TensorView* blocks = checkpoint_.Find(fused_ + "gate_up_proj_blocks");
    Status status;
    if (blocks != nullptr) {
      status = Blocks(*blocks);
    } else if (gate_up != nullptr) {
      status = Fused(*gate_up);
    } else {
      status = OneByOne();
    }
    RETURN_IF_ERROR(status);
    return std::move(out_);
  }

 private:
  Status OneByOne() {
    for (int64_t e = 0; e < count_; ++e) {
      const std::string expert = absl::StrCat(base_, e, ".");
      ASSIGN_OR_RETURN(Matrix gate, FindLinear(checkpoint_, expert + names_.gate, width_, hidden_));
      ASSIGN_OR_RETURN(Matrix up, FindLinear(checkpoint_, expert + names_.up, width_, hidden_));
      ASSIGN_OR_RETURN(Matrix down, FindLinear(checkpoint_, expert + names_.down, hidden_, width_));
      out_.gate.push_back({gate});
      out_.up.push_back({up});
      out_.down.push_back(down);
    }
    return OkStatus();
  }

  StatusOr<const TensorView*> Need(const std::string& name) const {
    const TensorView* tensor = checkpoint_.Find(name);
    if (tensor != nullptr) return tensor;
    return Error(Code::kNotFound, checkpoint_.directory(), ": no tensor \"", name, "\"");
  }

  StatusOr<Format> PlainOf(const TensorView& tensor) const {
    if (const auto format = PlainFormat(tensor.dtype)) return *format;
    return Error(Code::kUnsupported, tensor.file, ": tensor \"", tensor.name, "\" has dtype ",
                 NameOf(tensor.dtype), ", but experts in one tensor are BF16, F16 or F32");
  }

  Status Fused(const TensorView& gate_up) {
    ASSIGN_OR_RETURN(const TensorView* down, Need(fused_ + "down_proj"));
    ASSIGN_OR_RETURN(const Format up_format, PlainOf(gate_up));
    ASSIGN_OR_RETURN(const Format down_format, PlainOf(*down));
    const int64_t experts = config_.experts;
    if (config_.expert_names == ExpertNames::kGptOss) {
      return Turned(gate_up, up_format, *down, down_format);
    }
    RETURN_IF_ERROR(CheckShape(gate_up, {experts, 2 * width_, hidden_}));
    RETURN_IF_ERROR(CheckShape(*down, {experts, hidden_, width_}));
    for (int64_t e = 0; e < count_; ++e) {
      const Matrix both = ShareOf(gate_up, up_format, e, 2 * width_, hidden_);
      out_.gate.push_back({both, 0, 0});
      out_.up.push_back({both, width_, 0});
      out_.down.push_back(ShareOf(*down, down_format, e, hidden_, width_));
    }
    return OkStatus();
  }

  // gpt-oss' own: element (row, column) of the product's matrix lies at [column][row].
  Status Turned(const TensorView& gate_up, Format up_format, const TensorView& down,
                Format down_format) {
    const int64_t experts = config_.experts;
    RETURN_IF_ERROR(CheckShape(gate_up, {experts, hidden_, 2 * width_}));
    RETURN_IF_ERROR(CheckShape(down, {experts, width_, hidden_}));
    for (int64_t e = 0; e < count_; ++e) {
      Matrix gate = ShareOf(gate_up, up_format, e, hidden_, 2 * width_);
      gate.rows = width_;
      gate.cols = hidden_;
      gate.row_step = 2;
      gate.col_step = 2 * width_;
      Matrix up = gate;
      up.data = up.data.subspan(static_cast<size_t>(quant::RowBytes(up_format, 1)));
      Matrix out = ShareOf(down, down_format, e, width_, hidden_);
      out.rows = hidden_;
      out.cols = width_;
      out.row_step = 1;
      out.col_step = hidden_;
      out_.gate.push_back({gate});
      out_.up.push_back({up});
      out_.down.push_back(out);
    }
    return OkStatus();
  }

  StatusOr<const TensorView*> Scales(const std::string& name, int64_t rows, int64_t cols) const {
    ASSIGN_OR_RETURN(const TensorView* scale, Need(name));
    RETURN_IF_ERROR(CheckShape(*scale, {config_.experts, rows, cols / quant::kMxfp4Block}));
    if (scale->dtype != DType::kU8 && scale->dtype != DType::kF8E8M0) {
      return Error(Code::kUnsupported, scale->file, ": tensor \"", scale->name, "\" has dtype ",
                   NameOf(scale->dtype), ", but scales of MXFP4 are U8 or F8_E8M0");
    }
    const void* nan = std::memchr(scale->bytes.data(), quant::kE8m0Nan, scale->bytes.size());
    if (nan == nullptr) return scale;
    return Error(Code::kBadModel, scale->file, ": tensor \"", scale->name,
                 "\" has scale 255 (NaN) at ",
                 static_cast<const uint8_t*>(nan) - scale->bytes.data(), ", the limit is 254");
  }

  Status CheckBlocks(const TensorView& blocks, int64_t rows, int64_t cols) const {
    if (cols % quant::kMxfp4Block != 0) {
      return Error(Code::kBadModel, blocks.file, ": tensor \"", blocks.name, "\" is MXFP4 of ",
                   cols, " columns, the limit is a multiple of ", quant::kMxfp4Block);
    }
    if (blocks.dtype != DType::kU8) {
      return Error(Code::kUnsupported, blocks.file, ": tensor \"", blocks.name, "\" has dtype ",
                   NameOf(blocks.dtype), ", but blocks of MXFP4 are U8");
    }
    return CheckShape(blocks,
                      {config_.experts, rows, cols / quant::kMxfp4Block, quant::kMxfp4Block / 2});
  }

  Status Blocks(const TensorView& gate_up) {
    RETURN_IF_ERROR(CheckBlocks(gate_up, 2 * width_, hidden_));
    ASSIGN_OR_RETURN(const TensorView* up_scales,
                     Scales(fused_ + "gate_up_proj_scales", 2 * width_, hidden_));
    ASSIGN_OR_RETURN(const TensorView* down, Need(fused_ + "down_proj_blocks"));
    RETURN_IF_ERROR(CheckBlocks(*down, hidden_, width_));
    ASSIGN_OR_RETURN(const TensorView* down_scales,
                     Scales(fused_ + "down_proj_scales", hidden_, width_));
    const auto scaled = [](Matrix matrix, const TensorView& scales, int64_t e) {
      const size_t count = static_cast<size_t>(matrix.rows * matrix.cols / quant::kMxfp4Block);
      matrix.scale = scales.bytes.subspan(static_cast<size_t>(e) * count, count);
      matrix.scale_dtype = scales.dtype;
      return matrix;
    };
    for (int64_t e = 0; e < count_; ++e) {
      // A row of the gate and the one of up behind it as one row: two halves of its columns.
      const Matrix both =
          scaled(ShareOf(gate_up, Format::kMxfp4, e, width_, 2 * hidden_), *up_scales, e);
      out_.gate.push_back({both, 0, 0});
      out_.up.push_back({both, 0, hidden_});
      out_.down.push_back(
          scaled(ShareOf(*down, Format::kMxfp4, e, hidden_, width_), *down_scales, e));
    }
    return OkStatus();
  }

  const file::Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const ExpertTensors names_;
  const std::string base_, fused_;
  const int64_t hidden_, width_;
  const int64_t count_;  // of experts that are looked for
  ExpertMatrices out_;
};

}  // namespace

StatusOr<ExpertMatrices> FindExperts(const file::Checkpoint& checkpoint, const ModelConfig& config,
                                     const std::string& prefix, int64_t most) {
  return ExpertFinder(checkpoint, config, prefix, most).Run();
}

StatusOr<ExpertMatrices> FindSharedExpert(const file::Checkpoint& checkpoint,
                                          const ModelConfig& config, const std::string& prefix) {
  const std::string shared = prefix + ExpertTensorsOf(config).shared;
  const int64_t width = config.shared_intermediate, hidden = config.hidden;
  ASSIGN_OR_RETURN(Matrix gate, FindLinear(checkpoint, shared + "gate_proj", width, hidden));
  ASSIGN_OR_RETURN(Matrix up, FindLinear(checkpoint, shared + "up_proj", width, hidden));
  ASSIGN_OR_RETURN(Matrix down, FindLinear(checkpoint, shared + "down_proj", hidden, width));
  ExpertMatrices out;
  out.gate.push_back({gate});
  out.up.push_back({up});
  out.down.push_back(down);
  return out;
}

bool SharedIsAnExpert(const file::Checkpoint& checkpoint, const ModelConfig& config,
                      const std::vector<std::string>& prefixes) {
  const RouterConfig plain;
  if (!config.shared_gate || config.shared_intermediate != config.moe_intermediate ||
      config.mlp_bias || config.fused_gate_up || !(config.router == plain) ||
      config.experts_per_token >= backend::kMostExpertSlots) {
    return false;
  }
  const ExpertTensors names = ExpertTensorsOf(config);
  const auto alike = [](const Matrix& a, const Matrix& b) {
    return a.format == b.format && a.scale_dtype == b.scale_dtype &&
           a.block_rows == b.block_rows && a.block_cols == b.block_cols;
  };
  for (const std::string& prefix : prefixes) {
    const auto first = FindExperts(checkpoint, config, prefix, 1);
    const auto shared = FindSharedExpert(checkpoint, config, prefix);
    const auto router =
        FindLinear(checkpoint, prefix + names.router, config.experts, config.hidden);
    const auto gate = FindLinear(checkpoint, prefix + names.shared_gate, 1, config.hidden);
    // What is missing is said by who needs it.
    if (!first.ok() || !shared.ok() || !router.ok() || !gate.ok()) return false;
    if (!alike(first->gate[0].matrix, shared->gate[0].matrix) ||
        !alike(first->up[0].matrix, shared->up[0].matrix) ||
        !alike(first->down[0], shared->down[0]) || !alike(*router, *gate)) {
      return false;
    }
  }
  return true;
}

StatusOr<ExpertBiases> FindExpertBiases(const file::Checkpoint& checkpoint,
                                        const ModelConfig& config, const std::string& prefix) {
  ExpertBiases out;
  const auto find = [&](const char* name, int64_t width, Matrix* matrix) -> Status {
    const std::string full = absl::StrCat(prefix, "mlp.experts.", name);
    const TensorView* tensor = checkpoint.Find(full);
    if (tensor == nullptr) {
      return Error(Code::kNotFound, checkpoint.directory(), ": no tensor \"", full, "\"");
    }
    RETURN_IF_ERROR(CheckShape(*tensor, {config.experts, width}));
    const auto format = PlainFormat(tensor->dtype);
    if (!format) {
      return Error(Code::kUnsupported, tensor->file, ": tensor \"", full, "\" has dtype ",
                   NameOf(tensor->dtype), ", but vectors are BF16, F16 or F32");
    }
    *matrix = ShareOf(*tensor, *format, 0, config.experts, width);
    return OkStatus();
  };
  const int64_t width = config.moe_intermediate;
  // Apart, as GGUF has them.
  if (checkpoint.Find(prefix + "mlp.experts.gate_proj.bias") != nullptr) {
    RETURN_IF_ERROR(find("gate_proj.bias", width, &out.gate));
    RETURN_IF_ERROR(find("up_proj.bias", width, &out.up));
    RETURN_IF_ERROR(find("down_proj.bias", config.hidden, &out.down));
    return out;
  }
  RETURN_IF_ERROR(find("gate_up_proj_bias", 2 * width, &out.gate));
  out.gate.cols = width;
  out.gate.row_step = 2 * width;
  out.gate.col_step = 2;
  out.up = out.gate;
  out.up.data = out.up.data.subspan(static_cast<size_t>(quant::RowBytes(out.up.format, 1)));
  RETURN_IF_ERROR(find("down_proj_bias", config.hidden, &out.down));
  return out;
}

}  // namespace mainarch::model
