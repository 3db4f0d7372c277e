// SPDX-License-Identifier: MIT
//
// What one decoded token may cost on the GPU path, at small widths; bench/gpu_counts prints it at
// those of a large model. Counts come from the interpreter, so they are the same on every run.
#include "cli/gpu_step_counts.h"
#include "support/test.h"

using namespace mainarch;
using cli::CountStep;
using cli::OpCounts;
using cli::StepCountOptions;
using cli::TokenCounts;

namespace {

// One rank's share has whole tiles of every format.
model::ModelConfig SmallMoe(int32_t ranks) {
  model::ModelConfig c;
  c.model_type = "qwen3_moe";
  c.hidden = 1024;
  c.layers = 1;
  c.heads = 8 * ranks;
  c.kv_heads = ranks;
  c.head_dim = 64;
  c.intermediate = 3072;
  c.vocab = 2048 * ranks;
  c.max_position = 1024;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = 64;
  c.experts = 8;
  c.experts_per_token = 2;
  c.moe_intermediate = 128 * ranks;
  c.norm_topk_prob = true;
  c.sparse_layer.assign(1, true);
  return c;
}

const OpCounts* Find(const TokenCounts& counts, const std::string& part) {
  for (const OpCounts& op : counts.ops) {
    if (op.name.find(part) != std::string::npos) return &op;
  }
  return nullptr;
}

void CheckCounts(test::Context& test_context, model::SyntheticFormat format,
                 const StepCountOptions& options) {
  auto counts = CountStep(SmallMoe(options.ranks), format, options);
  CHECK_OK(counts);
  const OpCounts& total = counts->total;
  for (const OpCounts& op : counts->ops) {
    std::printf("# %s: %llu of %llu bytes, %.4f whole; with the caches %.4f\n", op.name.c_str(),
                static_cast<unsigned long long>(op.memory_bytes),
                static_cast<unsigned long long>(op.least_bytes),
                op.memory_bytes == 0 ? 1 : op.memory_coalesced(), op.coalesced());
    // 2 % at the widths of a large model; here the norm's 4 KiB and the like are a larger part.
    if (op.least_bytes > 256 << 10) CHECK_LE(op.ratio(), 1.05);
    if (op.least_bytes > 256 << 10) CHECK_GE(op.ratio(), 1.0);
    if (op.least_bytes > 256 << 10) CHECK_GE(op.memory_coalesced(), 0.98);
  }
  CHECK_EQ(total.scratch_bytes, 0u);
  CHECK_EQ(counts->step.host_waits, 1u);
  CHECK_EQ(counts->step.submissions, 1u);
  CHECK_EQ(total.packets, counts->step.packets);
  if (options.ranks == 1) {
    CHECK_EQ(total.link_bytes, 0u);
    return;
  }
  CHECK_EQ(counts->step.all_reduces, 2u * static_cast<uint32_t>(counts->layers));
  CHECK_EQ(counts->step.rounds, counts->step.all_reduces);
  // Data to every peer, and a flag of 4 bytes for each piece of 4 KiB.
  const uint64_t data = counts->step.link_bytes * static_cast<uint64_t>(options.ranks);
  CHECK_GE(total.link_bytes, data);
  CHECK_LE(total.link_bytes, data + data / 512);
  CHECK(Find(*counts, "experts") != nullptr);
}

}  // namespace

TEST(a_token_costs_little_more_than_it_must) {
  StepCountOptions options;
  options.position = 200;
  CheckCounts(test_context, model::SyntheticFormat::kBF16, options);
  options.isa = "gfx942";
  options.kv = backend::KvType::kFp8;
  CheckCounts(test_context, model::SyntheticFormat::kMxfp4, options);
  options.ranks = 2;
  CheckCounts(test_context, model::SyntheticFormat::kFp8Block, options);
}
