// SPDX-License-Identifier: MIT
#include "cli/estimate_cost.h"

#include <algorithm>

namespace mainarch::cli {
namespace {

using quant::Format;

// AMD's data sheets: HBM peak and dense matrix peaks. 72 % of peak is the planning bandwidth of
// MI355X; for MI300X the peak itself is what its published floors are given at.
constexpr ChipSheet kSheets[] = {
    {"gfx942", "MI300X", 5.3e12, 5.3e12, 1.3e15, 2.6e15, 0},
    {"gfx950", "MI355X", 8.0e12, 5.8e12, 2.5e15, 5e15, 10e15},
};

double BytesOf(Format format, double elements) {
  switch (format) {
    case Format::kFp8Block:
      return elements * (1 + 4.0 / (128 * 128));
    case Format::kFp8Channel:
      return elements;
    case Format::kMxfp4:
      return elements * (0.5 + 1.0 / 32);
    case Format::kF32:
      return elements * 4;
    case Format::kBF16:
    case Format::kF16:
      return elements * 2;
  }
  return elements * 2;
}

double FlopsPeak(const ChipSheet& chip, Format format) {
  if (format == Format::kMxfp4 && chip.fp4_flops > 0) return chip.fp4_flops;
  if (format != Format::kBF16 && format != Format::kF16) return chip.fp8_flops;
  return chip.bf16_flops;
}

class Estimator {
 public:
  explicit Estimator(const EstimateInput& in) : in_(in), c_(in.config), tp_(in.tp) {}

  Estimate Run() {
    Attention();
    Ffn();
    const double head = double{static_cast<double>(c_.vocab)} * c_.hidden;
    Product("lm_head", 1, Format::kBF16, head / tp_, head);
    Reduces();
    for (const EstimateOp& op : out_.ops) {
      out_.weight_bytes += op.weight_bytes;
      out_.kv_bytes += op.kv_bytes;
      out_.flops += op.flops;
      out_.rounds += op.rounds;
      out_.seconds += op.seconds;
    }
    return out_;
  }

 private:
  EstimateOp& Add(const std::string& name, int64_t times) {
    out_.ops.push_back({});
    out_.ops.back().name = name;
    out_.ops.back().times = times;
    return out_.ops.back();
  }
  void Finish(EstimateOp& op, double peak) {
    op.seconds = std::max(op.bytes() / in_.chip.planning_bytes_per_second, op.flops / peak);
  }
  // `own` weights on this GPU are multiplied, of `all` in the model.
  void Product(const std::string& name, int64_t times, Format format, double own, double all) {
    if (times == 0) return;
    EstimateOp& op = Add(name, times);
    const double n = static_cast<double>(times);
    op.weight_bytes = n * BytesOf(format, own);
    op.flops = n * 2 * own;
    out_.model_flops += n * 2 * all;
    Finish(op, FlopsPeak(in_.chip, format));
  }

  void Attention() {
    const double hd = c_.head_dim, hidden = c_.hidden, heads = c_.heads, kv = c_.kv_heads;
    const double own_kv = std::max(1.0, kv / tp_);
    const Format format = in_.formats.attention;
    Product("qkv", c_.layers, format, hidden * hd * (heads / tp_ + 2 * own_kv),
            hidden * hd * (heads + 2 * kv));
    // Copies of a head that share its tokens read a part each.
    const double copies = std::max(1.0, tp_ / kv);
    const double share = in_.split_kv ? 1 / copies : 1;
    const double token = 2 * own_kv * hd * in_.kv_element_bytes;
    EstimateOp& op = Add("attention", c_.layers);
    const double tokens = static_cast<double>(in_.context) * c_.layers;
    op.kv_bytes = token * tokens * share;
    op.flops = 4 * heads / tp_ * hd * tokens;
    out_.kv_bytes_per_token = token * c_.layers;
    out_.model_flops += 4 * heads * hd * tokens;
    Finish(op, in_.chip.bf16_flops);
    Product("o", c_.layers, format, hidden * hd * heads / tp_, hidden * hd * heads);
    // Norm weights: two of the hidden size, two of a head.
    EstimateOp& norms = Add("norms", 2 * int64_t{c_.layers} + 1);
    norms.weight_bytes = c_.layers * (2 * hidden + 2 * hd) * 2 + hidden * 2;
    Finish(norms, in_.chip.bf16_flops);
  }

  void Ffn() {
    int64_t sparse = 0;
    for (bool is : c_.sparse_layer) sparse += is;
    if (c_.experts == 0) sparse = 0;
    const int64_t dense = c_.layers - sparse;
    const double hidden = c_.hidden, k = c_.experts_per_token;
    const double wide = 3 * hidden * c_.intermediate, narrow = 3 * hidden * c_.moe_intermediate * k;
    Product("ffn", dense, in_.formats.ffn, wide / tp_, wide);
    // Replicated on every GPU.
    Product("router", sparse, Format::kBF16, hidden * c_.experts, hidden * c_.experts);
    Product("experts", sparse, in_.formats.ffn, narrow / tp_, narrow);
  }

  void Reduces() {
    if (tp_ == 1) return;
    EstimateOp& reduce = Add("all-reduce", 2 * int64_t{c_.layers});
    reduce.rounds = 2 * int64_t{c_.layers};
    EstimateOp& gather = Add("argmax gather", 1);
    gather.rounds = 1;
  }

  const EstimateInput& in_;
  const model::ModelConfig& c_;
  const double tp_;
  Estimate out_;
};

}  // namespace

StatusOr<ChipSheet> SheetOf(const std::string& isa) {
  for (const ChipSheet& sheet : kSheets) {
    if (isa == sheet.isa) return sheet;
  }
  return Error(Code::kInvalidArgument, "--isa \"", isa, "\": expected gfx942 or gfx950");
}

StatusOr<WeightFormats> WeightFormatsOf(const std::string& name) {
  if (name == "bf16") return WeightFormats{Format::kBF16, Format::kBF16};
  if (name == "fp8-block") return WeightFormats{Format::kFp8Block, Format::kFp8Block};
  if (name == "mxfp4") return WeightFormats{Format::kMxfp4, Format::kMxfp4};
  if (name == "mxfp4-ffn") return WeightFormats{Format::kBF16, Format::kMxfp4};
  return Error(Code::kInvalidArgument, "--format \"", name,
               "\": expected bf16, fp8-block, mxfp4 or mxfp4-ffn");
}

StatusOr<Estimate> EstimateToken(const EstimateInput& input) {
  const model::ModelConfig& c = input.config;
  if (input.tp < 1 || input.tp > 8 || (input.tp & (input.tp - 1)) != 0) {
    return Error(Code::kInvalidArgument, "--tp ", input.tp, ": expected 1, 2, 4 or 8");
  }
  if (c.heads % input.tp != 0) {
    return Error(Code::kInvalidArgument, "--tp ", input.tp, " does not divide ", c.heads,
                 " attention heads");
  }
  return Estimator(input).Run();
}

}  // namespace mainarch::cli
