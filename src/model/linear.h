// SPDX-License-Identifier: MIT
//
// Logical weights out of checkpoint tensors, driven by dtypes and sibling names (models.md §4.1),
// never by quantization_config.
#ifndef MAINARCH_MODEL_LINEAR_H_
#define MAINARCH_MODEL_LINEAR_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "file/checkpoint.h"
#include "quant/matrix.h"

namespace mainarch::model {

// The [rows, cols] linear `name` (without ".weight"). NotFound when there is no such tensor,
// BadModel when its shape or scales are wrong (a NaN, infinite or negative scale included),
// Unsupported for formats refused by name (GPT-OSS' fused one, groups out of order, other widths and
// dtypes). Elements, and scales of blocks and of groups of int4, are not looked at: a NaN among them
// stays one. The matrix borrows from the checkpoint, its name too.
StatusOr<quant::Matrix> FindLinear(const file::Checkpoint& checkpoint, const std::string& name,
                                   int64_t rows, int64_t cols);

// A [size] vector `name` (with ".weight") of BF16, F16 or F32 values, as a one-row matrix.
StatusOr<quant::Matrix> FindVector(const file::Checkpoint& checkpoint, const std::string& name,
                                   int64_t size);
// Likewise the values of a depthwise convolution [channels, 1, taps].
StatusOr<quant::Matrix> FindConvolution(const file::Checkpoint& checkpoint, const std::string& name,
                                        int64_t channels, int64_t taps);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_LINEAR_H_
