// SPDX-License-Identifier: MIT
#include "model/linear.h"

#include <cmath>
#include <limits>

#include "kernels/quant/f16.h"
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

// compressed-tensors' W8A8.
TEST(bytes_with_scales_of_rows) {
  const std::vector<float> two = {3, 5}, three = {1, 1, 1};
  std::string codes(14, '\x80');
  codes[13] = '\x7f';
  const FileTensor weight = {"x.weight", "I8", {2, 7}, codes};
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2}, {2, 1}}) {
    const auto checkpoint = Open({weight, {"x.weight_scale", "F32", shape, Bytes(two)}});
    CHECK(checkpoint != nullptr);
    const auto matrix = FindLinear(*checkpoint, "x", 2, 7);
    CHECK_OK(matrix);
    CHECK(matrix->format == Format::kInt8Channel);
    float row[7];
    quant::DecodeRow(*matrix, 1, 0, 7, row);
    CHECK_EQ(row[0], -640.0f);
    CHECK_EQ(row[6], 635.0f);
  }
  auto checkpoint = Open({weight});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight\"", "no weight_scale");
  checkpoint = Open({weight, {"x.weight_scale", "F32", {3, 1}, Bytes(three)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight_scale\"", "[3, 1]", "[2, 1]");
  checkpoint = Open({weight, {"x.weight_scale", "F32", {2}, Bytes(two)}, {"x.weight_zero_point", "I8", {2, 1}, Zeros(2)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kUnsupported, "weight_zero_point", "zero point");
  checkpoint = Open({{"x.weight", "I8", {7, 2}, codes}, {"x.weight_scale", "F32", {2}, Bytes(two)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 2, 7), Code::kBadModel, "\"x.weight\"", "[7, 2]");
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
  auto checkpoint = Open({{"x_blocks", "U8", {1, 1, 1, 16}, Zeros(16)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kUnsupported, "\"x_blocks\"", "GPT-OSS");
  checkpoint = Open({{"x.qweight", "I32", {1}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 3, 64), Code::kBadModel, "\"x.qweight\"", "no scales");
  checkpoint = Open({{"x.weight", "F8_E5M2", {1, 1}, "a"}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 1, 1), Code::kUnsupported, "\"x.weight\"", "F8_E5M2");
  checkpoint = Open({{"x.weight", "BF16", {1, 1}, "ab"}, {"x.weight_scale", "F32", {}, Zeros(4)}});
  CHECK_REFUSED(FindLinear(*checkpoint, "x", 1, 1), Code::kBadModel, "\"x.weight_scale\"", "BF16");
}

TEST(fp8_blocks_of_any_power_of_two_and_by_either_name) {
  const struct {
    int64_t rows, cols, scale_rows, scale_cols;
    int32_t block_rows, block_cols;
  } cases[] = {{64, 64, 4, 1, 16, 128}, {256, 96, 4, 3, 64, 32}, {300, 130, 2, 5, 256, 32}};
  for (const char* name : {"x.weight_scale", "x.weight_scale_inv"}) {
    for (const auto& one : cases) {
      if (one.scale_cols == 1 && std::string(name) == "x.weight_scale") continue;  // a scale a row, or none
      std::vector<float> scales;
      for (int64_t i = 0; i < one.scale_rows * one.scale_cols; ++i) scales.push_back(static_cast<float>(i + 1));
      const auto checkpoint = Open({Fp8Weight(one.rows, one.cols),
                                    {name, "F32", {one.scale_rows, one.scale_cols}, Bytes(scales)}});
      const auto matrix = FindLinear(*checkpoint, "x", one.rows, one.cols);
      CHECK_OK(matrix);
      CHECK(matrix->format == Format::kFp8Block);
      CHECK_EQ(matrix->block_rows, one.block_rows);
      CHECK_EQ(matrix->block_cols, one.block_cols);
      float value = 0;
      quant::DecodeRow(*matrix, one.rows - 1, one.cols - 1, 1, &value);
      CHECK_EQ(value, scales.back());
    }
  }
}

// Integers, scales and zero points of 16 rows by 32 columns in groups of 16, packed by the loops that the
// formats are defined by.
struct Int4 {
  static constexpr int64_t kRows = 16, kCols = 32, kGroup = 16, kGroups = kCols / kGroup;
  uint32_t Code(int64_t r, int64_t c) const { return static_cast<uint32_t>(r * 7 + c * 5 + r * c / 3) % 16; }
  uint32_t Zero(int64_t r, int64_t g) const { return static_cast<uint32_t>(r * 3 + g * 5) % 15 + 1; }
  float Scale(int64_t r, int64_t g) const { return 0.125f * static_cast<float>(1 + (r + g) % 4); }
  float Value(int64_t r, int64_t c, bool zeros) const {
    const float zero = zeros ? static_cast<float>(Zero(r, c / kGroup)) : 8.0f;
    return Scale(r, c / kGroup) * (static_cast<float>(Code(r, c)) - zero);
  }
  // In words of eight along a dimension of `n`: at(outer, inner) of [outer][inner / 8].
  template <class At>
  static std::string Words(int64_t outer, int64_t inner, At at) {
    std::vector<uint32_t> words(static_cast<size_t>(outer * inner / 8));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) words[static_cast<size_t>(o * (inner / 8) + i / 8)] |= at(o, i) << (4 * (i % 8));
    }
    return Bytes(words);
  }
  // In words of eight along the first dimension, [outer / 8][inner].
  template <class At>
  static std::string Stacks(int64_t outer, int64_t inner, At at) {
    std::vector<uint32_t> words(static_cast<size_t>(outer / 8 * inner));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) words[static_cast<size_t>(o / 8 * inner + i)] |= at(o, i) << (4 * (o % 8));
    }
    return Bytes(words);
  }
  template <class At>
  static std::string Halves(int64_t outer, int64_t inner, At at) {
    std::vector<uint16_t> codes;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) codes.push_back(quant::F16FromFloat(at(o, i)));
    }
    return Bytes(codes);
  }
};

void CheckInt4(test::Context& test_context, const std::shared_ptr<const file::Checkpoint>& checkpoint,
               Format format, bool zeros) {
  CHECK(checkpoint != nullptr);
  const auto matrix = FindLinear(*checkpoint, "x", Int4::kRows, Int4::kCols);
  CHECK_OK(matrix);
  if (!matrix.ok()) return;
  CHECK(matrix->format == format);
  CHECK_EQ(matrix->block_cols, int32_t{Int4::kGroup});
  for (int64_t r = 0; r < Int4::kRows; ++r) {
    float row[Int4::kCols];
    quant::DecodeRow(*matrix, r, 0, Int4::kCols, row);
    for (int64_t c = 0; c < Int4::kCols; ++c) CHECK_EQ(row[c], Int4().Value(r, c, zeros));
  }
}

TEST(groups_of_int4_are_read_from_the_three_layouts) {
  const Int4 w;
  constexpr int64_t R = Int4::kRows, C = Int4::kCols, G = Int4::kGroups;
  // compressed-tensors, without and with zero points.
  std::vector<FileTensor> packed = {
      {"x.weight_packed", "I32", {R, C / 8}, Int4::Words(R, C, [&](auto r, auto c) { return w.Code(r, c); })},
      {"x.weight_scale", "F16", {R, G}, Int4::Halves(R, G, [&](auto r, auto g) { return w.Scale(r, g); })},
      {"x.weight_shape", "I64", {2}, Bytes(std::vector<int64_t>{R, C})}};
  CheckInt4(test_context, Open(packed), Format::kInt4Packed, false);
  packed.push_back({"x.weight_zero_point", "I32", {R / 8, G},
                    Int4::Stacks(R, G, [&](auto r, auto g) { return w.Zero(r, g); })});
  CheckInt4(test_context, Open(packed), Format::kInt4Packed, true);
  // GPTQ: everything turned, zero points less one.
  const std::string scales = Int4::Halves(G, R, [&](auto g, auto r) { return w.Scale(r, g); });
  std::vector<int32_t> order;
  for (int32_t c = 0; c < C; ++c) order.push_back(c / static_cast<int32_t>(Int4::kGroup));
  std::vector<FileTensor> gptq = {
      {"x.qweight", "I32", {C / 8, R}, Int4::Stacks(C, R, [&](auto c, auto r) { return w.Code(r, c); })},
      {"x.qzeros", "I32", {G, R / 8}, Int4::Words(G, R, [&](auto g, auto r) { return w.Zero(r, g) - 1; })},
      {"x.scales", "F16", {G, R}, scales},
      {"x.g_idx", "I32", {C}, Bytes(order)}};
  CheckInt4(test_context, Open(gptq), Format::kGptq, true);
  std::swap(order[3], order[20]);
  gptq[3].bytes = Bytes(order);
  const auto reordered = Open(gptq);
  const auto matrix = FindLinear(*reordered, "x", R, C);
  CHECK_OK(matrix);
  for (int64_t r = 0; r < R; ++r) {
    float row[C];
    quant::DecodeRow(*matrix, r, 0, C, row);
    for (int64_t c = 0; c < C; ++c) {
      const int64_t g = order[static_cast<size_t>(c)];
      CHECK_EQ(row[c], w.Scale(r, g) * (static_cast<float>(w.Code(r, c)) - static_cast<float>(w.Zero(r, g))));
    }
  }
  order[3] = 2;
  gptq[3].bytes = Bytes(order);
  CHECK_REFUSED(FindLinear(*Open(gptq), "x", R, C), Code::kBadModel, "\"x.g_idx\"", "has group 2 at 3");
  // A file that is changed once it was checked is read within its bounds: the nearest group there is.
  const auto row_with = [&](int32_t first) {
    std::vector<int32_t> groups(C, 0);
    groups[0] = first;
    const std::string bytes = Bytes(groups);
    quant::Matrix changed = *matrix;
    changed.order = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    std::vector<float> row(C);
    quant::DecodeRow(changed, 1, 0, C, row.data());
    return row;
  };
  CHECK(row_with(1 << 30) == row_with(1) && row_with(-7) == row_with(0) && row_with(1) != row_with(0));
  // Of compressed-tensors the same by another name.
  packed.push_back({"x.weight_g_idx", "I32", {C}, Bytes(order)});
  CHECK_REFUSED(FindLinear(*Open(packed), "x", R, C), Code::kBadModel, "\"x.weight_g_idx\"", "has group 2 at 3");
  // AWQ: nibble i of a word is column (there: our row) order[i].
  const int awq_order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto awq = [&](int64_t outer, auto at) {
    return Int4::Words(outer, R, [&](auto o, auto i) { return at(o, i / 8 * 8 + awq_order[i % 8]); });
  };
  CheckInt4(test_context,
            Open({{"x.qweight", "I32", {C, R / 8}, awq(C, [&](auto c, auto r) { return w.Code(r, c); })},
                  {"x.qzeros", "I32", {G, R / 8}, awq(G, [&](auto g, auto r) { return w.Zero(r, g); })},
                  {"x.scales", "F16", {G, R}, scales}}),
            Format::kAwq, true);
}

TEST(int4_that_does_not_fit_is_refused_by_name) {
  const FileTensor zeros = {"x.qzeros", "I32", {2, 2}, Zeros(16)}, scales = {"x.scales", "F16", {2, 16}, Zeros(64)};
  CHECK_REFUSED(FindLinear(*Open({{"x.qweight", "I32", {8, 16}, Zeros(512)}, zeros, scales}), "x", 16, 32),
                Code::kUnsupported, "\"x.qweight\"", "8 bits a weight");
  CHECK_REFUSED(FindLinear(*Open({{"x.qweight", "I32", {5, 16}, Zeros(320)}, zeros, scales}), "x", 16, 32),
                Code::kBadModel, "\"x.qweight\"", "16 by 32 weights of 4 bits");
  CHECK_REFUSED(FindLinear(*Open({{"x.qweight", "I32", {4, 16}, Zeros(256)}, scales}), "x", 16, 32),
                Code::kBadModel, "no qzeros");
  const FileTensor packed = {"x.weight_packed", "I32", {16, 4}, Zeros(256)};
  CHECK_REFUSED(FindLinear(*Open({packed, {"x.weight_scale", "F16", {16, 3}, Zeros(96)}}), "x", 16, 32),
                Code::kBadModel, "\"x.weight_scale\"", "3 groups for 32 columns");
  CHECK_REFUSED(FindLinear(*Open({packed, {"x.weight_scale", "F32", {16, 1}, Zeros(64)}}), "x", 16, 32),
                Code::kUnsupported, "\"x.weight_scale\"", "F16 or BF16");
  CHECK_REFUSED(FindLinear(*Open({packed,
                                  {"x.weight_scale", "F16", {16, 1}, Zeros(32)},
                                  {"x.weight_zero_point", "I32", {3, 1}, Zeros(12)}}),
                           "x", 16, 32),
                Code::kBadModel, "\"x.weight_zero_point\"", "[3, 1]", "[2, 1]");
}

TEST(nvfp4_of_modelopt_and_of_compressed_tensors) {
  // Code 3 is 1.5; scale 0x38 is 1, 0x40 is 2.
  std::string scale(8, '\x38');
  scale[7] = '\x40';
  const std::string codes(64, '\x33'), four = Bytes(std::vector<float>{4}), quarter = Bytes(std::vector<float>{0.25f});
  const std::vector<FileTensor> forms[] = {
      {{"x.weight", "U8", {2, 32}, codes}, {"x.weight_scale", "F8_E4M3", {2, 4}, scale}, {"x.weight_scale_2", "F32", {}, quarter}},
      {{"x.weight_packed", "U8", {2, 32}, codes}, {"x.weight_scale", "F8_E4M3", {2, 4}, scale}, {"x.weight_global_scale", "F32", {1}, four}}};
  for (const auto& tensors : forms) {
    const auto checkpoint = Open(tensors);
    const auto matrix = FindLinear(*checkpoint, "x", 2, 64);
    CHECK_OK(matrix);
    CHECK(matrix->format == Format::kNvfp4);
    float values[2];
    quant::DecodeRow(*matrix, 1, 47, 2, values);
    CHECK_EQ(values[0], 0.375f);
    CHECK_EQ(values[1], 0.75f);
  }
  std::vector<FileTensor> bad = forms[0];
  bad.pop_back();
  CHECK_REFUSED(FindLinear(*Open(bad), "x", 2, 64), Code::kBadModel, "neither", "weight_global_scale");
  bad = forms[0];
  bad[1].bytes[5] = '\x7f';
  CHECK_REFUSED(FindLinear(*Open(bad), "x", 2, 64), Code::kBadModel, "\"x.weight_scale\"", "NaN", "at 5");
  bad = forms[1];
  bad[2].bytes = Zeros(4);
  CHECK_REFUSED(FindLinear(*Open(bad), "x", 2, 64), Code::kBadModel, "\"x.weight_global_scale\"", "inf");
}

TEST(mxfp4_of_compressed_tensors) {
  const auto checkpoint = Open({{"x.weight_packed", "U8", {3, 32}, std::string(96, '\x42')},
                                {"x.weight_scale", "U8", {3, 2}, std::string(6, '\x80')}});
  const auto matrix = FindLinear(*checkpoint, "x", 3, 64);
  CHECK_OK(matrix);
  CHECK(matrix->format == Format::kMxfp4);
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
