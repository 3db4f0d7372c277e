// SPDX-License-Identifier: MIT
//
// Experts in each form that a checkpoint may have: the same values from all, and what is wrong
// refused.
#include "model/experts.h"

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

using test::Bytes;
using test::FileTensor;

constexpr int64_t kExperts = 3, kWidth = 32, kHidden = 64;

ModelConfig Config(ExpertNames names) {
  ModelConfig config;
  config.hidden = kHidden;
  config.experts = kExperts;
  config.moe_intermediate = kWidth;
  config.expert_names = names;
  return config;
}

std::shared_ptr<const file::Checkpoint> Open(const std::vector<FileTensor>& tensors) {
  const std::string dir = test::ScratchDirectory();
  test::WriteFile(dir + "/config.json", "{}");
  test::WriteFile(dir + "/model.safetensors", test::Safetensors(tensors));
  auto checkpoint = file::Checkpoint::Open(dir);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

// Element (row, column) of an expert's gate (0), up (1) or down (2): exact in bf16.
float Value(int which, int64_t expert, int64_t row, int64_t col) {
  const int64_t mixed = (((which * 7 + expert) * 67 + row) * 131 + col) * 2654435761 >> 7;
  return static_cast<float>(mixed % 255 - 127);
}

uint16_t Bf16(float value) { return quant::Bf16FromFloat(value); }

// Values of a list, by (expert, row, column) of the matrix that they are of.
template <class Element>
std::string Fill(int64_t a, int64_t b, int64_t c, Element element) {
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = 0; k < c; ++k) out.push_back(Bf16(element(i, j, k)));
    }
  }
  return Bytes(out);
}

void CheckValues(test::Context& test_context, const StatusOr<ExpertMatrices>& found) {
  CHECK_OK(found);
  CHECK_EQ(found->gate.size(), size_t{kExperts});
  CHECK_EQ(found->up.size(), size_t{kExperts});
  CHECK_EQ(found->down.size(), size_t{kExperts});
  std::vector<float> row(static_cast<size_t>(std::max(kHidden, kWidth)));
  for (int64_t e = 0; e < kExperts; ++e) {
    const size_t at = static_cast<size_t>(e);
    for (int64_t r = 0; r < kWidth; ++r) {
      for (const auto& [which, part] :
           {std::pair(0, &found->gate[at]), std::pair(1, &found->up[at])}) {
        quant::DecodeRow(part->matrix, part->row + r, part->col, kHidden, row.data());
        for (int64_t c = 0; c < kHidden; ++c) {
          CHECK_EQ(row[static_cast<size_t>(c)], Value(which, e, r, c));
        }
      }
    }
    for (int64_t r = 0; r < kHidden; ++r) {
      quant::DecodeRow(found->down[at], r, 0, kWidth, row.data());
      for (int64_t c = 0; c < kWidth; ++c) CHECK_EQ(row[static_cast<size_t>(c)], Value(2, e, r, c));
    }
  }
}

std::vector<FileTensor> OneByOne(const std::string& base, const char* gate, const char* up,
                                 const char* down) {
  std::vector<FileTensor> out;
  for (int64_t e = 0; e < kExperts; ++e) {
    const std::string own = base + std::to_string(e) + ".";
    const auto add = [&](const char* name, int which, int64_t rows, int64_t cols) {
      out.push_back({own + name + ".weight",
                     "BF16",
                     {rows, cols},
                     Fill(1, rows, cols,
                          [&](int64_t, int64_t r, int64_t c) { return Value(which, e, r, c); })});
    };
    add(gate, 0, kWidth, kHidden);
    add(up, 1, kWidth, kHidden);
    add(down, 2, kHidden, kWidth);
  }
  return out;
}

TEST(one_tensor_a_matrix) {
  const auto mlp = Open(OneByOne("p.mlp.experts.", "gate_proj", "up_proj", "down_proj"));
  CHECK(mlp != nullptr);
  CheckValues(test_context, FindExperts(*mlp, Config(ExpertNames::kMlp), "p."));
  const auto mixtral = Open(OneByOne("p.block_sparse_moe.experts.", "w1", "w3", "w2"));
  CHECK(mixtral != nullptr);
  CheckValues(test_context, FindExperts(*mixtral, Config(ExpertNames::kMixtral), "p."));
  CHECK_REFUSED(FindExperts(*mixtral, Config(ExpertNames::kMlp), "p."), Code::kNotFound,
                "p.mlp.experts.0.gate_proj");
}

FileTensor FusedDown() {
  return {"p.mlp.experts.down_proj",
          "BF16",
          {kExperts, kHidden, kWidth},
          Fill(kExperts, kHidden, kWidth,
               [](int64_t e, int64_t r, int64_t c) { return Value(2, e, r, c); })};
}
FileTensor FusedGateUp() {
  return {"p.mlp.experts.gate_up_proj",
          "BF16",
          {kExperts, 2 * kWidth, kHidden},
          Fill(kExperts, 2 * kWidth, kHidden, [](int64_t e, int64_t r, int64_t c) {
            return Value(r < kWidth ? 0 : 1, e, r % kWidth, c);
          })};
}

TEST(all_experts_in_one_tensor) {
  const auto good = Open({FusedDown(), FusedGateUp()});
  CHECK(good != nullptr);
  const ModelConfig config = Config(ExpertNames::kMlp);
  CheckValues(test_context, FindExperts(*good, config, "p."));
  const auto half = Open({FusedGateUp()});
  CHECK(half != nullptr);
  CHECK_REFUSED(FindExperts(*half, config, "p."), Code::kNotFound, "p.mlp.experts.down_proj");
  FileTensor wrong = FusedDown();
  wrong.shape = {kExperts, kWidth, kHidden};
  const auto turned = Open({wrong, FusedGateUp()});
  CHECK(turned != nullptr);
  CHECK_REFUSED(FindExperts(*turned, config, "p."), Code::kBadModel, "p.mlp.experts.down_proj",
                "[3, 32, 64]", "[3, 64, 32]");
  wrong = FusedGateUp();
  wrong.dtype = "I16";
  const auto integers = Open({FusedDown(), wrong});
  CHECK(integers != nullptr);
  CHECK_REFUSED(FindExperts(*integers, config, "p."), Code::kUnsupported, "gate_up_proj", "I16");
}

TEST(gpt_oss_has_inputs_by_outputs_with_gate_and_up_in_turns) {
  const FileTensor gate_up = {
      "p.mlp.experts.gate_up_proj",
      "BF16",
      {kExperts, kHidden, 2 * kWidth},
      Fill(kExperts, kHidden, 2 * kWidth,
           [](int64_t e, int64_t c, int64_t r) { return Value(r % 2 == 0 ? 0 : 1, e, r / 2, c); })};
  const FileTensor down = {"p.mlp.experts.down_proj",
                           "BF16",
                           {kExperts, kWidth, kHidden},
                           Fill(kExperts, kWidth, kHidden,
                                [](int64_t e, int64_t c, int64_t r) { return Value(2, e, r, c); })};
  const FileTensor up_bias = {"p.mlp.experts.gate_up_proj_bias",
                              "BF16",
                              {kExperts, 2 * kWidth},
                              Fill(kExperts, 1, 2 * kWidth, [](int64_t e, int64_t, int64_t r) {
                                return Value(r % 2, e, r / 2, 99);
                              })};
  const FileTensor down_bias = {
      "p.mlp.experts.down_proj_bias",
      "BF16",
      {kExperts, kHidden},
      Fill(kExperts, 1, kHidden, [](int64_t e, int64_t, int64_t r) { return Value(2, e, r, 99); })};
  const auto checkpoint = Open({gate_up, down, up_bias, down_bias});
  CHECK(checkpoint != nullptr);
  const ModelConfig config = Config(ExpertNames::kGptOss);
  CheckValues(test_context, FindExperts(*checkpoint, config, "p."));
  const auto biases = FindExpertBiases(*checkpoint, config, "p.");
  CHECK_OK(biases);
  std::vector<float> row(static_cast<size_t>(kHidden));
  for (int64_t e = 0; e < kExperts; ++e) {
    quant::DecodeRow(biases->gate, e, 0, kWidth, row.data());
    for (int64_t r = 0; r < kWidth; ++r) CHECK_EQ(row[static_cast<size_t>(r)], Value(0, e, r, 99));
    quant::DecodeRow(biases->up, e, 0, kWidth, row.data());
    for (int64_t r = 0; r < kWidth; ++r) CHECK_EQ(row[static_cast<size_t>(r)], Value(1, e, r, 99));
    quant::DecodeRow(biases->down, e, 0, kHidden, row.data());
    for (int64_t r = 0; r < kHidden; ++r) CHECK_EQ(row[static_cast<size_t>(r)], Value(2, e, r, 99));
  }
  const auto without = Open({gate_up, down, up_bias});
  CHECK(without != nullptr);
  CHECK_REFUSED(FindExpertBiases(*without, config, "p."), Code::kNotFound, "down_proj_bias");
}

// gpt-oss as published: blocks of 32 values in 16 bytes, low nibble first, and a scale each.
std::vector<FileTensor> Blocks() {
  const auto bytes = [](int64_t count, int salt, uint8_t low, uint8_t range) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) {
      out += static_cast<char>(low + (i * 2654435761u + static_cast<uint32_t>(salt)) / 64 % range);
    }
    return out;
  };
  return {{"p.mlp.experts.gate_up_proj_blocks",
           "U8",
           {kExperts, 2 * kWidth, kHidden / 32, 16},
           bytes(kExperts * 2 * kWidth * kHidden / 2, 1, 0, 255)},
          {"p.mlp.experts.gate_up_proj_scales",
           "U8",
           {kExperts, 2 * kWidth, kHidden / 32},
           bytes(kExperts * 2 * kWidth * kHidden / 32, 2, 120, 9)},
          {"p.mlp.experts.down_proj_blocks",
           "U8",
           {kExperts, kHidden, kWidth / 32, 16},
           bytes(kExperts * kHidden * kWidth / 2, 3, 0, 255)},
          {"p.mlp.experts.down_proj_scales",
           "U8",
           {kExperts, kHidden, kWidth / 32},
           bytes(kExperts * kHidden * kWidth / 32, 4, 120, 9)}};
}

TEST(gpt_oss_blocks_are_read_as_published) {
  const std::vector<FileTensor> tensors = Blocks();
  const auto checkpoint = Open(tensors);
  CHECK(checkpoint != nullptr);
  const auto found = FindExperts(*checkpoint, Config(ExpertNames::kGptOss), "p.");
  CHECK_OK(found);
  // Row `row` of expert e of a tensor of `rows` by `cols`.
  const auto value = [&](size_t tensor, int64_t e, int64_t rows, int64_t cols, int64_t row,
                         int64_t col) {
    const int64_t at = (e * rows + row) * cols + col;
    const auto byte = static_cast<uint8_t>(tensors[tensor].bytes[static_cast<size_t>(at / 2)]);
    const auto scale =
        static_cast<uint8_t>(tensors[tensor + 1].bytes[static_cast<size_t>(at / 32)]);
    return quant::FloatFromE2m1(col % 2 == 0 ? byte & 15 : byte >> 4) * quant::FloatFromE8m0(scale);
  };
  std::vector<float> row(static_cast<size_t>(kHidden));
  for (int64_t e = 0; e < kExperts; ++e) {
    const size_t at = static_cast<size_t>(e);
    for (int64_t r = 0; r < kWidth; ++r) {
      for (const auto& [turn, part] :
           {std::pair(0, &found->gate[at]), std::pair(1, &found->up[at])}) {
        quant::DecodeRow(part->matrix, part->row + r, part->col, kHidden, row.data());
        for (int64_t c = 0; c < kHidden; ++c) {
          CHECK_EQ(row[static_cast<size_t>(c)], value(0, e, 2 * kWidth, kHidden, 2 * r + turn, c));
        }
      }
    }
    for (int64_t r = 0; r < kHidden; ++r) {
      quant::DecodeRow(found->down[at], r, 0, kWidth, row.data());
      for (int64_t c = 0; c < kWidth; ++c) {
        CHECK_EQ(row[static_cast<size_t>(c)], value(2, e, kHidden, kWidth, r, c));
      }
    }
  }
}

TEST(bad_gpt_oss_blocks_are_refused) {
  const ModelConfig config = Config(ExpertNames::kGptOss);
  for (const size_t left_out : {1, 2, 3}) {
    std::vector<FileTensor> tensors = Blocks();
    const std::string name = tensors[left_out].name;
    tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(left_out));
    const auto checkpoint = Open(tensors);
    CHECK(checkpoint != nullptr);
    CHECK_REFUSED(FindExperts(*checkpoint, config, "p."), Code::kNotFound, name.c_str());
  }
  for (size_t i = 0; i < 4; ++i) {
    std::vector<FileTensor> tensors = Blocks();
    tensors[i].shape = {static_cast<int64_t>(tensors[i].bytes.size())};
    const auto flat = Open(tensors);
    CHECK(flat != nullptr);
    CHECK_REFUSED(FindExperts(*flat, config, "p."), Code::kBadModel, tensors[i].name.c_str(),
                  "shape");
    tensors = Blocks();
    tensors[i].dtype = "I8";
    const auto other = Open(tensors);
    CHECK(other != nullptr);
    CHECK_REFUSED(FindExperts(*other, config, "p."), Code::kUnsupported, tensors[i].name.c_str(),
                  "I8");
  }
  std::vector<FileTensor> tensors = Blocks();
  tensors[3].bytes[7] = '\xff';
  const auto nan = Open(tensors);
  CHECK(nan != nullptr);
  CHECK_REFUSED(FindExperts(*nan, config, "p."), Code::kBadModel, "down_proj_scales",
                "255 (NaN) at 7");
  ModelConfig odd = config;
  odd.moe_intermediate = 48;
  const auto good = Open(Blocks());
  CHECK(good != nullptr);
  CHECK_REFUSED(FindExperts(*good, odd, "p."), Code::kBadModel, "gate_up_proj_blocks", "shape");
}

}  // namespace
}  // namespace mainarch::model
