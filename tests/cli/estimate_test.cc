// SPDX-License-Identifier: MIT
//
// The estimate against floors computed by others from the same shapes (TP8): MB a GPU, and
// microseconds at 5.8 TB/s.
#include <cmath>

#include "cli/estimate_cost.h"
#include "cli/geometry.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::cli;

namespace {

struct Row {
  const char* preset;
  const char* format;
  double megabytes;
  double micros;  // at 5.8 TB/s
};

// Four decimals of rounding and the norms' few bytes are between us: 0.3 %, and 1 unit.
bool Near(double got, double want) { return std::fabs(got - want) <= 1 + 0.003 * want; }

StatusOr<Estimate> Of(const char* preset, const char* format, int64_t context, double kv,
                      bool split, const char* isa) {
  EstimateInput input;
  ASSIGN_OR_RETURN(input.config, PresetConfig(preset));
  ASSIGN_OR_RETURN(input.formats, WeightFormatsOf(format));
  ASSIGN_OR_RETURN(input.chip, SheetOf(isa));
  input.tp = 8;
  input.context = context;
  input.kv_element_bytes = kv;
  input.split_kv = split;
  return EstimateToken(input);
}

}  // namespace

TEST(floors_at_four_thousand_tokens) {
  for (const Row& row : std::vector<Row>{{"qwen3-0.6b", "bf16", 208, 36},
                                         {"qwen3-0.6b", "fp8-block", 123, 21},
                                         {"qwen3-0.6b", "mxfp4-ffn", 130, 22},
                                         {"qwen3-0.6b", "mxfp4", 98, 17},
                                         {"qwen3-4b", "bf16", 1081, 186},
                                         {"qwen3-8b", "fp8-block", 1062, 183},
                                         {"qwen3-14b", "mxfp4", 1115, 192},
                                         {"qwen3-32b", "bf16", 8131, 1402},
                                         {"qwen3-30b-a3b", "bf16", 909, 157},
                                         {"qwen3-30b-a3b", "mxfp4-ffn", 526, 91},
                                         {"qwen3-235b-a22b", "bf16", 5775, 996},
                                         {"qwen3-235b-a22b", "fp8-block", 3016, 520},
                                         {"qwen3-235b-a22b", "mxfp4-ffn", 3071, 529},
                                         {"qwen3-235b-a22b", "mxfp4", 1768, 305}}) {
    const bool bf16 = std::string(row.format) == "bf16";
    auto e = Of(row.preset, row.format, 4096, bf16 ? 2 : 1, false, "gfx950");
    CHECK_OK(e);
    std::printf("# %s %s: %.1f MB, %.1f us\n", row.preset, row.format, e->bytes() * 1e-6,
                e->seconds * 1e6);
    CHECK(Near(e->bytes() * 1e-6, row.megabytes));
    CHECK(Near(e->seconds * 1e6, row.micros));
  }
}

TEST(long_contexts_and_shared_heads) {
  const struct {
    const char* format;
    int64_t context;
    double kv;
    double replicated, split;
  } rows[] = {
      {"bf16", 131072, 1, 1506, 1234},       {"fp8-block", 131072, 1, 1047, 775},
      {"fp8-block", 1 << 20, 2, 9204, 4854}, {"fp8-block", 1 << 20, 1, 4854, 2678},
      {"mxfp4", 131072, 1, 832, 560},
  };
  for (const auto& row : rows) {
    auto all = Of("qwen3-235b-a22b", row.format, row.context, row.kv, false, "gfx950");
    auto split = Of("qwen3-235b-a22b", row.format, row.context, row.kv, true, "gfx950");
    CHECK_OK(all);
    CHECK_OK(split);
    CHECK(Near(all->seconds * 1e6, row.replicated));
    CHECK(Near(split->seconds * 1e6, row.split));
  }
  auto other = Of("qwen3-235b-a22b", "bf16", 4096, 2, false, "gfx942");
  CHECK_OK(other);
  CHECK(Near(other->seconds * 1e6, 1090));
  CHECK(Near(other->model_flops * 1e-9, 55.8));
  CHECK_EQ(other->kv_bytes_per_token, 48128.0);
  CHECK_EQ(other->rounds, 94 * 2 + 1);
}

// What caches of GPUs store of a head, not what the model has of it; norms over all heads are reduced, too.
TEST(heads_as_they_are_stored_and_norms_over_all) {
  EstimateInput input;
  auto config = PresetConfig("qwen3-0.6b");
  CHECK_OK(config);
  input.config = *config;
  const auto chip = SheetOf("gfx950");
  CHECK_OK(chip);
  input.chip = *chip;
  input.tp = 2;
  const auto whole = EstimateToken(input);  // heads of 128
  CHECK_OK(whole);
  input.config.head_dim = 104;
  input.config.attention.wide_qk_norm = true;
  const auto narrow = EstimateToken(input);
  CHECK_OK(narrow);
  CHECK_EQ(narrow->kv_bytes_per_token, whole->kv_bytes_per_token);
  CHECK_LT(narrow->weight_bytes, whole->weight_bytes);
  CHECK_EQ(narrow->rounds, whole->rounds + input.config.layers);
}

TEST(what_does_not_divide_is_named) {
  EstimateInput input;
  auto config = PresetConfig("qwen3-0.6b");
  CHECK_OK(config);
  input.config = *config;
  input.config.heads = 12;
  input.tp = 8;
  const auto e = EstimateToken(input);
  CHECK(!e.ok());
  CHECK(std::string(e.status().message()).find("12") != std::string::npos);
  input.tp = 3;
  CHECK(!EstimateToken(input).ok());
}
