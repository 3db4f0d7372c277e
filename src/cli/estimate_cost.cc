// SPDX-License-Identifier: MIT
#include "cli/estimate_cost.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "absl/strings/str_cat.h"
#include "backend/amdgpu/kernel_names.h"
#include "backend/program.h"

namespace mainarch::cli {
namespace {

using quant::Format;

// AMD's data sheets: HBM peak and dense matrix peaks. 72 % of peak is the planning bandwidth of
// MI355X; for MI300X the peak itself is what its published floors are given at.
constexpr ChipSheet kSheets[] = {
    {"gfx942", "MI300X", 5.3e12, 5.3e12, 1.3e15, 2.6e15, 0},
    {"gfx950", "MI355X", 8.0e12, 5.8e12, 2.5e15, 5e15, 10e15},
};

// What backend/ops.cc says of one row's product with a matrix of this shape.
backend::Cost CostOfProduct(Format format, int64_t rows, int64_t cols) {
  backend::Weight weight;
  weight.sources.resize(1);
  weight.sources[0].format = format;
  weight.sources[0].rows = rows;
  weight.sources[0].cols = cols;
  weight.ranks = {{backend::WeightSlice{0, 0, rows, 0, cols}}};
  backend::Program program;
  program.weights.push_back(std::move(weight));
  program.buffers = {{"in", backend::BufferType::kF32, cols, 1},
                     {"out", backend::BufferType::kF32, rows, 1}};
  return CostOf(program, backend::MatmulOp{0, 0, 1}, backend::Work());
}

// And of one token's attention in one layer.
backend::Cost CostOfAttention(int64_t heads, int64_t kv_heads, int32_t key_dim, int32_t value_dim, int64_t context) {
  backend::PagedCache cache;
  cache.layers = 1;
  cache.kv_heads = static_cast<int32_t>(kv_heads);
  cache.key_dim = key_dim;
  cache.value_dim = value_dim;
  backend::Program program;
  program.caches.emplace_back(cache);
  backend::AttentionOp op = {};
  op.heads = static_cast<int32_t>(heads);
  backend::Work work;
  work.context = context;
  return CostOf(program, op, work);
}

// A matrix on one GPU, and how many times it is there.
struct Shape {
  int64_t rows, cols;
  int64_t count = 1;
};

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
    Delta();
    Ffn();
    const int64_t vocab = c_.vocab, hidden = c_.hidden;
    Product("lm_head", 1, Format::kBF16, {{(vocab + tp_ - 1) / tp_, hidden}},
            static_cast<double>(vocab * hidden));
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
  // Products with `own` on this GPU, of `all` weights in the model, in each of `times` layers.
  void Product(const std::string& name, int64_t times, Format format,
               std::initializer_list<Shape> own, double all) {
    if (times == 0) return;
    EstimateOp& op = Add(name, times);
    for (const Shape& shape : own) {
      const backend::Cost cost = CostOfProduct(format, shape.rows, shape.cols);
      const double n = static_cast<double>(times * shape.count);
      op.weight_bytes += n * static_cast<double>(cost.weight_bytes);
      op.flops += n * static_cast<double>(cost.flops);
    }
    out_.model_flops += static_cast<double>(times) * 2 * all;
    Finish(op, FlopsPeak(in_.chip, format));
  }

  // Of latent attention: each GPU makes the latents whole, and has its own heads' matrices.
  void LatentProducts(int64_t own_heads) {
    const model::LatentConfig& l = c_.latent;
    const int64_t hidden = c_.hidden, hd = c_.head_dim, latent = l.latent, heads = c_.heads;
    const Format format = in_.formats.attention;
    const int64_t input = l.q_latent > 0 ? l.q_latent : hidden;
    const int64_t down = l.q_latent + latent + l.turning;
    Product("latents", c_.layers, format, {{down, hidden}}, static_cast<double>(down * hidden));
    Product("queries", c_.layers, format, {{hd * own_heads, input}}, static_cast<double>(hd * heads * input));
    Product("keys and values of latents", c_.layers, format, {{latent, l.still, own_heads}, {l.value, latent, own_heads}},
            static_cast<double>((l.still + l.value) * latent * heads));
  }

  void Attention() {
    std::map<int32_t, int64_t> layers;  // by key heads
    for (size_t layer = 0; layer < static_cast<size_t>(c_.layers); ++layer) {
      if (!c_.IsDelta(layer)) ++layers[c_.KvHeadsOf(layer)];
    }
    for (const auto& [kv, count] : layers) AttentionOf(kv, count, layers.size() == 1 ? "" : absl::StrCat(" of ", kv));
    // Norm weights: two of the hidden size, two of a head.
    EstimateOp& norms = Add("norms", 2 * int64_t{c_.layers} + 1);
    norms.weight_bytes = static_cast<double>((c_.layers * (2 * int64_t{c_.hidden} + 2 * c_.head_dim) + c_.hidden) * 2);
    Finish(norms, in_.chip.bf16_flops);
  }

  // Of layers with so many key heads, whose ops are called so.
  void AttentionOf(int64_t kv, int64_t layers_with, const std::string& name) {
    const int64_t hd = c_.head_dim, vd = c_.ValueDim(), hidden = c_.hidden, heads = c_.heads;
    const int64_t own_heads = heads / tp_, own_kv = std::max<int64_t>(1, kv / tp_);
    const Format format = in_.formats.attention;
    const int64_t gates = c_.attention.output_gate ? 2 : 1;
    const model::LatentConfig& l = c_.latent;
    const bool latent = l.latent > 0;
    const backend::HeadDims stored = amdgpu::StoredHeadDims(c_.Heads());
    const int32_t key_dim = latent ? l.turning + l.latent : stored.key;
    const int32_t value_dim = latent ? l.latent : stored.value, out_dim = c_.ValueDim();
    if (latent) {
      LatentProducts(own_heads);
    } else {
      Product("qkv" + name, layers_with, format, {{hd * (gates * own_heads + own_kv) + vd * own_kv, hidden}},
              static_cast<double>(hidden * (hd * (gates * heads + kv) + vd * kv)));
    }
    const int64_t cached = latent ? 1 : own_kv;  // heads of the cache
    // Copies of a head that share its tokens read a part each.
    const int64_t copies = std::max<int64_t>(1, tp_ / (latent ? 1 : kv));
    const double layers = static_cast<double>(layers_with), share = in_.split_kv ? 1.0 / static_cast<double>(copies) : 1;
    const backend::Cost cost = CostOfAttention(own_heads, cached, key_dim, value_dim, in_.context);
    // The op's cost is that of bf16, and of the token's own K and V too. GPUs hold a latent once: V is a part of K.
    const double held = latent ? static_cast<double>(key_dim) / (key_dim + value_dim) : 1;
    const double element = held * in_.kv_element_bytes / 2;
    EstimateOp& op = Add("attention" + name, layers_with);
    op.kv_bytes = layers * static_cast<double>(cost.kv_bytes) * element * share;
    op.flops = layers * static_cast<double>(cost.flops);
    out_.kv_bytes_per_token +=
        layers * element *
        static_cast<double>(CostOfAttention(own_heads, cached, key_dim, value_dim, 0).kv_bytes);
    out_.model_flops += op.flops * static_cast<double>(heads) / static_cast<double>(own_heads);
    Finish(op, in_.chip.bf16_flops);
    Product("o" + name, layers_with, format, {{hidden, out_dim * own_heads}},
            static_cast<double>(hidden * out_dim * heads));
  }

  int64_t AttentionLayers() const {
    return c_.layers - std::count(c_.delta_layer.begin(), c_.delta_layer.end(), true);
  }

  // Layers of a gated delta net: its products, its state, and the product back.
  void Delta() {
    const model::DeltaConfig& d = c_.delta;
    const int64_t layers = c_.layers - AttentionLayers(), hidden = c_.hidden;
    if (layers == 0) return;
    backend::GatedDeltaOp op = {};
    op.key_heads = std::max<int32_t>(1, d.key_heads / static_cast<int32_t>(tp_));
    op.value_heads = d.value_heads / d.key_heads * op.key_heads;
    op.key_dim = d.key_dim;
    op.value_dim = d.value_dim;
    op.taps = d.taps;
    const int64_t own = int64_t{op.value_heads} * d.value_dim, all = int64_t{d.value_heads} * d.value_dim;
    const int64_t rows = backend::DeltaChannels(op) + own;
    Product("delta in", layers, in_.formats.attention, {{rows, hidden}},
            static_cast<double>(hidden * (2 * int64_t{d.key_heads} * d.key_dim + 2 * all)));
    Product("delta gates", layers, Format::kBF16, {{2 * int64_t{op.value_heads}, hidden}},
            static_cast<double>(hidden * 2 * d.value_heads));
    const backend::Cost cost = CostOf(backend::Program(), op, backend::Work());
    EstimateOp& net = Add("delta net", layers);
    net.kv_bytes = static_cast<double>(layers) * static_cast<double>(cost.kv_bytes);
    net.flops = static_cast<double>(layers) * static_cast<double>(cost.flops);
    out_.model_flops += net.flops * static_cast<double>(d.value_heads) / op.value_heads;
    Finish(net, in_.chip.bf16_flops);
    Product("delta out", layers, in_.formats.attention, {{hidden, own}},
            static_cast<double>(hidden * all));
  }

  void Ffn() {
    int64_t sparse = 0;
    for (bool is : c_.sparse_layer) sparse += is;
    if (c_.experts == 0) sparse = 0;
    const int64_t dense = c_.layers - sparse, hidden = c_.hidden, k = c_.experts_per_token;
    const auto gate_up_down = [&](const std::string& name, int64_t times, int64_t width,
                                  int64_t count) {
      const int64_t own = (width + tp_ - 1) / tp_;
      Product(name, times, in_.formats.ffn, {{2 * own, hidden, count}, {hidden, own, count}},
              static_cast<double>(3 * hidden * width * count));
    };
    gate_up_down("ffn", dense, c_.intermediate, 1);
    // Replicated on every GPU.
    Product("router", sparse, Format::kBF16, {{c_.experts, hidden}},
            static_cast<double>(hidden * c_.experts));
    gate_up_down("shared expert", c_.shared_intermediate > 0 ? sparse : 0, c_.shared_intermediate, 1);
    gate_up_down("experts", sparse, c_.moe_intermediate, k);
  }

  void Reduces() {
    if (tp_ == 1) return;
    // An expert for all tokens that is as wide as the others is one of them; else it is added alone.
    int64_t shared = 0;
    for (const bool sparse : c_.sparse_layer) {
      shared += sparse && c_.shared_intermediate > 0 && c_.shared_intermediate != c_.moe_intermediate;
    }
    // Of norms of Q and K over all heads sums of squares are added up, too.
    const int64_t wide = c_.attention.wide_qk_norm ? AttentionLayers() : 0;
    const int64_t reduces = 2 * int64_t{c_.layers} + shared + wide;
    EstimateOp& reduce = Add("all-reduce", reduces);
    reduce.rounds = reduces;
    EstimateOp& gather = Add("argmax gather", 1);
    gather.rounds = 1;
  }

  const EstimateInput& in_;
  const model::ModelConfig& c_;
  const int64_t tp_;
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
  bool windows = false;
  for (const model::LayerAttention& layer : c.layer_attention) windows |= layer.window > 0;
  if (c.delta.key_heads % input.tp != 0) {
    return Error(Code::kInvalidArgument, "--tp ", input.tp, " does not divide ",
                 c.delta.key_heads, " linear key heads");
  }
  if (windows || c.expert_names == model::ExpertNames::kGptOss) {
    return Error(Code::kUnsupported, "model_type ", c.model_type, ": an estimate does not count ",
                 windows ? "windows" : "experts with biases");
  }
  return Estimator(input).Run();
}

}  // namespace mainarch::cli
