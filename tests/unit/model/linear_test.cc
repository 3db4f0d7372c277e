// SPDX-License-Identifier: MIT
#include "model/linear.h"

#include <cmath>
#include <limits>

#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

using quant::Format;
using test::Bytes;
using test::FileTensor;

std::shared_ptr<const file::Checkpoint> Open(const std::vector<FileTensor>& tensors) {
  const std::string dir = test::ScratchDirectory();
  test::WriteFile(dir + "/config.json", "{}");
  test::WriteFile(dir + "/model.safetensors", test::Safetensors(tensors));
  auto checkpoint = file::Checkpoint::Open(dir);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

std::string Zeros(size_t size) { return std::string(size, '\0'); }

FileTensor Fp8Weight(int64_t rows, int64_t cols) {
  return {"x.weight", "F8_E4M3", {rows, cols}, std::string(size_t(rows * cols), '\x38')};  // 1.0
}

TEST(plain_linears) {
  const struct {
    const char* dtype;
    size_t bytes;
    Format format;
  } cases[] = {{"BF16", 2, Format::kBF16}, {"F16", 2, Format::kF16}, {"F32", 4, Format::kF32}};
  for (const auto& one : cases) {
    const auto checkpoint = Open({{"a.x.weight", one.dtype, {3, 5}, Zeros(15 * one.bytes)}});
    CHECK(checkpoint != nullptr);
    const auto matrix = FindLinear(*checkpoint, "a.x", 3, 5);
    CHECK_OK(matrix);
    CHECK(matrix->format == one.format);
    CHECK_EQ(matrix->rows, 3);
    CHECK_EQ(matrix->cols, 5);
    CHECK_EQ(matrix->name, "a.x");
    CHECK_EQ(matrix->data.size(), 15 * one.bytes);
    CHECK(matrix->scale.empty());
    CHECK_REFUSED(FindLinear(*checkpoint, "a.x", 5, 3), Code::kBadModel, "model.safetensors",
                  "\"a.x.weight\"", "[3, 5]", "[5, 3]");
  }
}

// A checkpoint is what its interface says, whatever files it lies in.
class InMemory final : public file::Checkpoint {
 public:
  explicit InMemory(file::TensorView tensor) : tensor_(std::move(tensor)) {}
  const file::TensorView* Find(absl::string_view name) const override {
    return name == tensor_.name ? &tensor_ : nullptr;
  }
  absl::Span<const file::TensorView> tensors() const override { return {&tensor_, 1}; }
  const std::string& directory() const override { return text_; }
  const std::string& config_json() const override { return text_; }
  const std::string& generation_config_json() const override { return text_; }
  const std::string& tokenizer_json() const override { return text_; }
  const std::string& tokenizer_config_json() const override { return text_; }
  uint64_t file_bytes() const override { return tensor_.bytes.size(); }

 private:
  const file::TensorView tensor_;
  const std::string text_ = "memory";
};

TEST(a_checkpoint_of_another_kind) {
  const std::vector<uint8_t> bytes(2 * 3 * 2);
  const InMemory checkpoint({"x.weight", DType::kBF16, {2, 3}, bytes, "memory"});
  const auto matrix = FindLinear(checkpoint, "x", 2, 3);
  CHECK_OK(matrix);
  CHECK(matrix->data.data() == bytes.data());
  CHECK_REFUSED(FindLinear(checkpoint, "x", 3, 2), Code::kBadModel, "memory", "[2, 3]");
  CHECK_REFUSED(FindLinear(checkpoint, "y", 1, 1), Code::kNotFound, "memory", "\"y.weight\"");
}

TEST(missing_linears_are_not_found) {
  const auto checkpoint = Open({{"x.weight", "F32", {1}, Zeros(4)}});
  CHECK(checkpoint != nullptr);
  CHECK_REFUSED(FindLinear(*checkpoint, "y", 1, 1), Code::kNotFound, "\"y.weight\"",
                checkpoint->directory().c_str());
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 1, 1), Code::kBadModel, "\"x.weight\"", "[1]",
                "[1, 1]");
}

TEST(fp8_blocks) {
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  const auto checkpoint = Open({Fp8Weight(300, 130),
                                {"x.weight_scale_inv", "F32", {3, 2}, Bytes(scales)},
                                {"x.input_scale", "F32", {}, Zeros(4)}});
  CHECK(checkpoint != nullptr);
  const auto matrix = FindLinear(*checkpoint, "x", 300, 130);
  CHECK_OK(matrix);
  CHECK(matrix->format == Format::kFp8Block);
  CHECK_EQ(matrix->block_rows, 128);
  CHECK_EQ(matrix->block_cols, 128);
  float value = 0;
  quant::DecodeRow(*matrix, 299, 129, 1, &value);
  CHECK_EQ(value, 6.0f);
  quant::DecodeRow(*matrix, 128, 127, 1, &value);
  CHECK_EQ(value, 3.0f);
}

TEST(fp8_blocks_with_bf16_scales) {
  const std::vector<uint16_t> scales = {0x3f80, 0x4000};
  const auto checkpoint =
      Open({Fp8Weight(200, 128), {"x.weight_scale_inv", "BF16", {2, 1}, Bytes(scales)}});
  CHECK(checkpoint != nullptr);
  const auto matrix = FindLinear(*checkpoint, "x", 200, 128);
  CHECK_OK(matrix);
  CHECK(matrix->scale_dtype == DType::kBF16);
  float value = 0;
  quant::DecodeRow(*matrix, 199, 0, 1, &value);
  CHECK_EQ(value, 2.0f);
}

TEST(fp8_channels_in_every_shape) {
  const std::vector<float> one = {3}, two = {3, 5};
  const struct {
    std::vector<int64_t> shape;
    std::string bytes;
    float last;
  } cases[] = {{{}, Bytes(one), 3},
               {{1}, Bytes(one), 3},
               {{1, 1}, Bytes(one), 3},
               {{2}, Bytes(two), 5},
               {{2, 1}, Bytes(two), 5}};
  for (const auto& item : cases) {
    const auto checkpoint =
        Open({Fp8Weight(2, 7), {"x.weight_scale", "F32", item.shape, item.bytes}});
    CHECK(checkpoint != nullptr);
    const auto matrix = FindLinear(*checkpoint, "x", 2, 7);
    CHECK_OK(matrix);
    CHECK(matrix->format == Format::kFp8Channel);
    float value = 0;
    quant::DecodeRow(*matrix, 1, 6, 1, &value);
    CHECK_EQ(value, item.last);
  }
}

TEST(fp8_without_the_right_scales_is_refused) {
  const std::vector<float> three = {1, 1, 1};
  auto checkpoint = Open({Fp8Weight(2, 7)});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "model.safetensors",
                "\"x.weight\"", "neither", "weight_scale_inv");
  checkpoint = Open({Fp8Weight(2, 7),
                     {"x.weight_scale", "F32", {}, Zeros(4)},
                     {"x.weight_scale_inv", "F32", {1, 1}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight\"", "both");
  checkpoint = Open({Fp8Weight(2, 7), {"x.weight_scale", "F32", {3}, Bytes(three)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight_scale\"", "[3]",
                "[2, 1]");
  checkpoint = Open({Fp8Weight(2, 7), {"x.weight_scale_inv", "F32", {3, 1}, Bytes(three)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight_scale_inv\"",
                "[3, 1]", "[1, 1]", "128");
  checkpoint = Open({Fp8Weight(2, 7), {"x.weight_scale", "F16", {}, Zeros(2)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kUnsupported, "\"x.weight_scale\"", "F16",
                "F32 or BF16");
  checkpoint = Open({Fp8Weight(2, 7), {"x.weight_scale", "F32", {}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 7, 2), Code::kBadModel, "\"x.weight\"", "[2, 7]",
                "[7, 2]");
}

TEST(fp8_scales_that_are_no_numbers_are_refused) {
  const float inf = std::numeric_limits<float>::infinity();
  const struct {
    float value;
    const char* text;
  } cases[] = {{NAN, "nan"}, {inf, "inf"}, {-inf, "-inf"}, {-1, "-1"}};
  for (const auto& one : cases) {
    const std::vector<float> scales = {1, one.value, 1};
    const auto checkpoint =
        Open({Fp8Weight(3, 4), {"x.weight_scale", "F32", {3, 1}, Bytes(scales)}});
    CHECK(checkpoint != nullptr);
    CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 4), Code::kBadModel, "model.safetensors",
                  "\"x.weight_scale\"", one.text, "at 1", "limits are 0 and");
  }
  for (const uint16_t code : {0x7fc0, 0x7f80, 0xbf80}) {  // NaN, infinity, -1
    const auto checkpoint =
        Open({Fp8Weight(3, 4),
              {"x.weight_scale_inv", "BF16", {1, 1}, Bytes(std::vector<uint16_t>{code})}});
    CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 4), Code::kBadModel, "\"x.weight_scale_inv\"",
                  "at 0");
  }
  const auto zero = Open({Fp8Weight(3, 4), {"x.weight_scale", "F32", {}, Zeros(4)}});
  CHECK_OK(FindLinear(*zero, "x", 3, 4));
}

TEST(mxfp4_with_either_scale_dtype) {
  for (const char* dtype : {"U8", "F8_E8M0"}) {
    const auto checkpoint = Open({{"x.weight", "U8", {3, 32}, std::string(96, '\x42')},
                                  {"x.weight_scale", dtype, {3, 2}, std::string(6, '\x80')}});
    CHECK(checkpoint != nullptr);
    const auto matrix = FindLinear(*checkpoint, "x", 3, 64);
    CHECK_OK(matrix);
    CHECK(matrix->format == Format::kMxfp4);
    float values[2];
    quant::DecodeRow(*matrix, 2, 62, 2, values);
    CHECK_EQ(values[0], 2.0f);  // code 2 is 1, times 2
    CHECK_EQ(values[1], 4.0f);  // code 4 is 2
  }
}

TEST(bad_mxfp4_is_refused) {
  const FileTensor weight = {"x.weight", "U8", {3, 32}, Zeros(96)};
  auto checkpoint = Open({weight});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kBadModel, "model.safetensors",
                "\"x.weight\"", "no weight_scale");
  std::string scales(6, '\x7f');
  scales[4] = '\xff';
  checkpoint = Open({weight, {"x.weight_scale", "U8", {3, 2}, scales}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kBadModel, "model.safetensors",
                "\"x.weight_scale\"", "255 (NaN)", "at 4", "254");
  checkpoint = Open({weight, {"x.weight_scale", "U8", {3, 1}, Zeros(3)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kBadModel, "\"x.weight_scale\"",
                "[3, 1]", "[3, 2]", "32 columns");
  checkpoint = Open({weight, {"x.weight_scale", "U8", {3, 2}, Zeros(6)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 32), Code::kBadModel, "\"x.weight\"", "[3, 32]",
                "[3, 16]");
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 65), Code::kBadModel, "\"x.weight\"", "65 columns",
                "multiple of 32");
  checkpoint = Open({weight, {"x.weight_scale", "F32", {3, 2}, Zeros(24)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kUnsupported, "\"x.weight_scale\"",
                "F32", "U8 or F8_E8M0");
}

TEST(other_formats_are_refused_by_name) {
  const FileTensor weight = {"x.weight", "U8", {3, 32}, Zeros(96)};
  auto checkpoint = Open({weight,
                          {"x.weight_scale", "F8_E4M3", {3, 4}, Zeros(12)},
                          {"x.weight_scale_2", "F32", {}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kUnsupported, "\"x.weight\"", "NVFP4");
  checkpoint = Open({{"x_blocks", "U8", {1, 1, 1, 16}, Zeros(16)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kUnsupported, "\"x_blocks\"", "GPT-OSS");
  checkpoint = Open({{"x.qweight", "I32", {1}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kUnsupported, "\"x.qweight\"", "GPTQ");
  checkpoint = Open({{"x.weight", "F8_E5M2", {1, 1}, "a"}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 1, 1), Code::kUnsupported, "\"x.weight\"", "F8_E5M2");
  checkpoint = Open({{"x.weight", "BF16", {1, 1}, "ab"}, {"x.weight_scale", "F32", {}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 1, 1), Code::kBadModel, "\"x.weight_scale\"", "BF16");
}

TEST(vectors) {
  const auto checkpoint = Open({{"n.weight", "F32", {3}, Bytes(std::vector<float>{1, 2, 3})},
                                {"u.weight", "U8", {3}, "abc"}});
  CHECK(checkpoint != nullptr);
  const auto vector = FindVector(*checkpoint, "n.weight", 3);
  CHECK_OK(vector);
  CHECK_EQ(vector->rows, 1);
  CHECK_EQ(vector->cols, 3);
  CHECK_EQ(vector->name, "n.weight");
  float values[3];
  quant::DecodeRow(*vector, 0, 0, 3, values);
  CHECK_EQ(values[2], 3.0f);
  CHECK_REFUSED(FindVector(*checkpoint, "n", 3), Code::kNotFound, "\"n\"");
  CHECK_REFUSED(FindVector(*checkpoint, "n.weight", 4), Code::kBadModel, "\"n.weight\"", "[3]",
                "[4]");
  CHECK_REFUSED(FindVector(*checkpoint, "u.weight", 3), Code::kUnsupported, "\"u.weight\"", "U8");
}

}  // namespace
}  // namespace mainarch::model
