// SPDX-License-Identifier: MIT
#include "backend/amdgpu/lower.h"

#include <algorithm>

#include "backend/amdgpu/choices.h"
#include "kernels/common/draw.h"

namespace mainarch::amdgpu {
namespace {

using backend::BufferId;
using backend::Program;
using backend::WeightId;
using kernels::KvFormat;
using kernels::TileFormat;

// Workgroups of a launch at most, a compute unit: enough to hide each other's latency.
constexpr uint32_t kGroupsPerUnit = 4;
// Changes of page tables in a step block: a step begins few pages, unless a sequence takes over a
// prefix.
constexpr uint32_t kStepChanges = 2048;
// Words of the step block for a logit row's bans and biases.
constexpr uint32_t kEditWords = 192;
// Bytes of attention parts at most; more rows are done in several launches.
constexpr uint64_t kAttendPartBytes = uint64_t{256} << 20;

uint32_t RoundUp(uint64_t n, uint32_t unit) {
  return static_cast<uint32_t>((n + unit - 1) / unit * unit);
}
uint32_t CeilDivide(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

const char* Suffix(TileFormat format) {
  switch (format) {
    case TileFormat::kBf16:
      return "bf16";
    case TileFormat::kBf16Pair:
      return "pair";
    case TileFormat::kFp8:
      return "fp8";
    case TileFormat::kMxfp4:
      return "mxfp4";
  }
  return "";
}
const char* Suffix(KvFormat format) {
  return quant::kKvKernelNames[static_cast<uint32_t>(format)];
}

// Weights that are themselves two bf16 are there for their precision.
const char* Rounding(TileFormat format, bool rounded) {
  return rounded && format != TileFormat::kBf16Pair ? "_rounded" : "";
}

template <class Args>
Launch MakeLaunch(const std::string& kernel, const Args& args, uint32_t workers) {
  Launch launch;
  launch.kernel = kernel;
  launch.workers = workers;
  kernels::Kernarg<Args> kernarg;
  kernarg.args = args;
  kernarg.workers = workers;
  launch.args.resize(sizeof(kernarg));
  std::memcpy(launch.args.data(), &kernarg, sizeof(kernarg));
  return launch;
}

// Makes the launches of one rank, op by op.
class Lowering {
 public:
  Lowering(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory, int32_t rank,
           uint32_t rows)
      : model_(model),
        program_(model.program()),
        shape_(shape),
        memory_(memory),
        rank_(rank),
        rows_(rows),
        logit_rows_(std::min(rows, shape.options.max_logit_rows)) {}

  std::vector<Launch> Run() {
    kernels::StepBeginArgs begin;
    begin.from.address = memory_.host_step;
    begin.to.address = memory_.step;
    begin.arrivals.address = memory_.arrivals;
    begin.arrival_count = RoundUp(shape_.expert_layers, 16);  // a whole block of 64 bytes
    begin.block_words = shape_.step_words;
    Add("step_begin", begin, 1);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      op_ = static_cast<int32_t>(i);
      std::visit([this](const auto& op) { Emit(op); }, program_.ops[i]);
    }
    return std::move(launches_);
  }

 private:
  template <class Args>
  void Add(const std::string& kernel, const Args& args, uint64_t units, bool resident = false,
           When when = When::kAlways) {
    const uint64_t most = uint64_t{memory_.compute_units} * (resident ? 1 : kGroupsPerUnit);
    Launch launch =
        MakeLaunch(kernel, args, static_cast<uint32_t>(std::clamp<uint64_t>(units, 1, most)));
    launch.when = when;
    launch.op = op_;
    launches_.push_back(std::move(launch));
  }

  const PlacedWeight& WeightOf(WeightId id) const { return model_.weight(rank_, id); }
  uint64_t At(BufferId id) const { return memory_.buffers[static_cast<size_t>(id)]; }
  uint32_t Stride(BufferId id) const { return shape_.strides[static_cast<size_t>(id)]; }
  template <class Args>
  void SetStep(Args* args) const {
    args->step.address = memory_.step;
  }

  kernels::NormOf Norm(WeightId norm) const {
    kernels::NormOf out;
    out.w.address = WeightOf(norm).vector;
    out.squares.address = memory_.squares;
    out.chunks = shape_.chunks;
    out.inverse_hidden = 1.0f / static_cast<float>(program_.hidden);
    out.epsilon = program_.rms_eps;
    return out;
  }

  struct Matrix {
    WeightId w;
    uint64_t in;
    uint32_t in_stride;
    uint64_t out;
    uint32_t out_stride;
    bool gate_up = false;
    bool logits = false;
    kernels::NormOf norm = {};
    bool exact = false;  // fp32 activations in every mode
  };
  bool Rounds() const { return shape_.options.activations == backend::Activations::kBF16; }
  kernels::MatmulArgs ProductArgs(const Matrix& m) const {
    const PlacedWeight& w = WeightOf(m.w);
    kernels::MatmulArgs args;
    SetStep(&args);
    args.x.address = m.in;
    args.out.address = m.out;
    args.w = w.tiles;
    args.norm = m.norm;
    args.x_stride = m.in_stride;
    args.out_stride = m.out_stride;
    args.flags = m.logits ? uint32_t{kernels::kMatmulLogitRows} : 0;
    args.parity_rows = m.logits ? shape_.options.max_logit_rows : 0;
    return args;
  }
  void Product(const Matrix& m) {
    const PlacedWeight& w = WeightOf(m.w);
    const kernels::MatmulArgs args = ProductArgs(m);
    const uint32_t rows = m.logits ? logit_rows_ : rows_;
    Add(MatmulKernel(w.format, m.gate_up, Rounds() && !m.exact), args,
        uint64_t{w.tiles.outputs} * CeilDivide(rows, kernels::kTileRows));
  }

  // x += the sum of the ranks' partials, and what the next norm wants.
  void ReduceInto(BufferId x) {
    kernels::ReduceArgs args;
    SetStep(&args);
    args.partial.address = memory_.partial;
    args.x.address = At(x);
    args.squares.address = memory_.squares;
    for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
      args.slots[r].address = memory_.slots[r];
      args.flags[r].address = memory_.flags[r];
    }
    args.hidden = static_cast<uint32_t>(program_.hidden);
    args.stride = shape_.hidden_stride;
    args.chunks = shape_.chunks;
    args.max_rows = shape_.options.max_rows;
    args.ranks = static_cast<uint32_t>(program_.ranks);
    args.rank = static_cast<uint32_t>(rank_);
    args.two_shot_rows = kTwoShotRows;
    args.sequence = reduces_++;
    args.per_step = shape_.all_reduces;
    Add("reduce", args, uint64_t{rows_} * shape_.chunks, /*resident=*/true);
  }

  void Emit(const backend::EmbedOp& op) {
    kernels::EmbedArgs args;
    SetStep(&args);
    args.table.address = WeightOf(op.table).table;
    args.x.address = At(op.x);
    args.squares.address = memory_.squares;
    args.hidden = static_cast<uint32_t>(program_.hidden);
    args.stride = shape_.hidden_stride;
    args.chunks = shape_.chunks;
    args.is_f32 = WeightOf(op.table).table_is_f32;
    args.tokens.address = memory_.choices[rank_] + ExchangeOf(program_, shape_).tokens;
    args.max_rows = shape_.options.max_logit_rows;
    Add("embed", args, uint64_t{rows_} * shape_.chunks);
  }
  void Emit(const backend::NormMatmulOp& op) {
    const Matrix product = {op.w,           At(op.x), Stride(op.x), At(op.out),
                            Stride(op.out), false,    false,        Norm(op.norm)};
    // The attention op makes the launch for both.
    if (MakesHeads(op)) {
      heads_ = ProductArgs(product);
      qkv_w_ = op.w;
      return;
    }
    Product(product);
  }
  bool MakesHeads(const backend::NormMatmulOp& op) const {
    const size_t next = static_cast<size_t>(op_) + 1;
    if (next == program_.ops.size()) return false;
    const auto* attention = std::get_if<backend::AttentionOp>(&program_.ops[next]);
    if (attention == nullptr || attention->qkv != op.out) return false;
    const PlacedWeight& w = WeightOf(op.w);
    QkvForm form;
    form.format = w.format;
    form.kv = shape_.kv;
    form.head_dim = shape_.heads.cache.key_dim;
    form.heads = static_cast<uint32_t>(attention->heads + 2 * shape_.heads.cache.kv_heads);
    form.steps = w.tiles.steps;
    form.rows = rows_;
    form.rounded = Rounds();
    form.compute_units = memory_.compute_units;
    return FusesQkv(form);
  }
  void Emit(const backend::NormGateUpOp& op) {
    Product({op.w, At(op.x), Stride(op.x), At(op.act), Stride(op.act), true, false, Norm(op.norm)});
  }
  void Emit(const backend::MatmulAddOp& op) {
    Product({op.w, At(op.in), Stride(op.in), memory_.partial, shape_.hidden_stride});
    ReduceInto(op.x);
  }
  void Emit(const backend::MatmulOp& op) {
    Product({op.w, At(op.in), Stride(op.in), memory_.partial, shape_.hidden_stride});
  }
  void Emit(const backend::AllReduceAddOp& op) { ReduceInto(op.x); }

  void Emit(const backend::AttentionOp& op) {
    const uint64_t kv = memory_.kv + static_cast<uint64_t>(op.layer) * shape_.pages() *
                                         shape_.kv_page_bytes;
    EmitPrepare(op, kv);
    for (uint32_t first = 0; first < rows_; first += shape_.attend_rows) {
      EmitAttend(op, kv, first);
    }
  }
  void EmitPrepare(const backend::AttentionOp& op, uint64_t kv) {
    kernels::PrepareArgs args;
    SetStep(&args);
    args.qkv.address = At(op.qkv);
    args.q_norm.address = WeightOf(op.q_norm).vector;
    args.k_norm.address = WeightOf(op.k_norm).vector;
    args.cosine.address = memory_.cosine;
    args.sine.address = memory_.sine;
    args.kv.address = kv;
    args.stride = Stride(op.qkv);
    args.heads = static_cast<uint32_t>(op.heads);
    args.kv_heads = static_cast<uint32_t>(shape_.heads.cache.kv_heads);
    args.head_dim = static_cast<uint32_t>(shape_.heads.cache.key_dim);
    args.rotary = static_cast<uint32_t>(program_.ropes[0].rotary_dim);
    args.epsilon = program_.rms_eps;
    const uint64_t heads = args.heads + 2 * args.kv_heads;
    if (heads_.has_value()) {
      const TileFormat format = WeightOf(qkv_w_).format;
      Add(QkvHeadsKernel(format, shape_.kv), kernels::QkvHeadsArgs{*heads_, args},
          heads * CeilDivide(rows_, kernels::kTileRows));
      heads_.reset();
      return;
    }
    Add(PrepareKernel(shape_.kv, shape_.heads.cache.key_dim), args,
        CeilDivide(rows_ * heads, kernels::kWaves));
  }
  void EmitAttend(const backend::AttentionOp& op, uint64_t kv, uint32_t first) {
    kernels::AttendArgs args;
    SetStep(&args);
    args.qkv.address = At(op.qkv);
    args.kv.address = kv;
    args.out.address = At(op.out);
    args.parts.address = memory_.attend_parts;
    args.q_stride = Stride(op.qkv);
    args.out_stride = Stride(op.out);
    args.heads = static_cast<uint32_t>(op.heads);
    args.kv_heads = static_cast<uint32_t>(shape_.heads.cache.kv_heads);
    args.max_splits = shape_.max_splits;
    args.scale = static_cast<float>(op.scale);
    args.first_row = first;
    args.row_count = std::min(shape_.attend_rows, rows_);
    Add(AttendKernel(shape_.kv, shape_.heads.cache.key_dim), args,
        uint64_t{args.row_count} * args.kv_heads * args.max_splits);
    if (shape_.max_splits == 1) return;
    kernels::AttendMergeArgs merge;
    SetStep(&merge);
    merge.parts = {args.parts.address};
    merge.out = args.out;
    merge.out_stride = args.out_stride;
    merge.heads = args.heads;
    merge.max_splits = args.max_splits;
    merge.head_dim = static_cast<uint32_t>(shape_.heads.cache.key_dim);
    merge.first_row = first;
    merge.row_count = args.row_count;
    Add("attend_merge", merge, uint64_t{args.row_count} * args.heads);
  }

  void Emit(const backend::RouterOp& op) {
    router_ = op;
    Product({op.w, At(op.x), Stride(op.x), memory_.router_logits, shape_.router_stride, false,
             false, Norm(op.norm), /*exact=*/true});
    kernels::RouteArgs args;
    SetStep(&args);
    args.router.logits.address = memory_.router_logits;
    args.router.ids.address = At(op.ids);
    args.router.weights.address = At(op.weights);
    args.router.experts = static_cast<uint32_t>(program_.experts);
    args.router.top = static_cast<uint32_t>(program_.experts_per_token);
    args.router.renormalise = op.renormalise;
    args.stride = shape_.router_stride;
    Add("route", args, CeilDivide(rows_, kernels::kWaves));
  }
  // Both products are one launch, which the second op makes.
  void Emit(const backend::ExpertsGateUpOp& op) { gate_up_ = op; }
  void Emit(const backend::ExpertsDownOp& op) {
    const PlacedWeight& up = WeightOf(gate_up_.w);
    const PlacedWeight& down = WeightOf(op.w);
    kernels::ExpertsArgs args;
    SetStep(&args);
    args.x.address = At(router_.x);
    args.ids.address = At(op.ids);
    args.weights.address = At(op.weights);
    args.act.address = At(op.act);
    args.out.address = memory_.partial;
    args.arrivals.address = memory_.arrivals + 4 * expert_layer_++;
    args.gate_up = up.tiles;
    args.down = down.tiles;
    args.gate_up_stride = up.group_bytes;
    args.gate_up_scale_stride = up.group_scale_bytes;
    args.down_stride = down.group_bytes;
    args.down_scale_stride = down.group_scale_bytes;
    args.norm = Norm(router_.norm);
    args.x_stride = Stride(router_.x);
    args.act_stride = Stride(op.act);
    args.out_stride = shape_.hidden_stride;
    args.top = static_cast<uint32_t>(program_.experts_per_token);
    args.experts = static_cast<uint32_t>(program_.experts);
    const uint64_t blocks = CeilDivide(rows_, kernels::kTileRows);
    const uint64_t most = std::min<uint64_t>(args.experts, uint64_t{rows_} * args.top);
    const uint64_t units = std::max<uint64_t>(most * args.gate_up.outputs, args.down.outputs);
    Add(ExpertsKernel(up.format, Rounds()), args, units * blocks, /*resident=*/true);
    if (op.add) ReduceInto(program_.x);
  }

  // CheckProgram has refused these.
  void Emit(const backend::AddBiasOp&) {}
  void Emit(const backend::RecurrentOp&) {}
  void Emit(const backend::TapOp&) {}
  void Emit(const backend::InputOp&) {}

  void Emit(const backend::LogitsOp& op) {
    Product({op.w, At(op.x), Stride(op.x), memory_.logits, shape_.share_stride, false, true,
             Norm(op.norm)});
    const VocabShare share = ShareOf(program_, rank_);
    const ChoiceExchange exchange = ExchangeOf(program_, shape_);
    kernels::ChooseArgs args;
    SetStep(&args);
    args.logits.address = memory_.logits;
    args.host_logits.address = memory_.host_logits;
    args.results.address = memory_.results;
    args.states.address = memory_.states;
    args.races.address = memory_.races;
    for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
      args.values[r].address = memory_.choices[r] + exchange.values;
      args.peaks[r].address = memory_.choices[r] + exchange.peaks;
      args.flags[r].address = memory_.choices[r] + exchange.flags;
      args.tokens[r].address = memory_.choices[r] + exchange.tokens;
    }
    args.vocab = static_cast<uint32_t>(program_.vocab);
    args.vocab_stride = shape_.logits_stride;
    args.share = share.count;
    args.share_first = share.first;
    args.share_stride = shape_.share_stride;
    args.chunks = shape_.choice_chunks;
    args.slots = shape_.choice_slots;
    args.ranks = static_cast<uint32_t>(program_.ranks);
    args.rank = static_cast<uint32_t>(rank_);
    args.mass_shift = kernels::MassShift(args.vocab);
    args.max_rows = shape_.options.max_logit_rows;
    const uint32_t owned = CeilDivide(logit_rows_, args.ranks);
    Add("choose_share", args, uint64_t{logit_rows_} * args.chunks);
    Add("choose_narrow", args, owned, /*resident=*/true, When::kTokens);
    Add("choose_race", args, uint64_t{owned} * CeilDivide(args.vocab, kernels::kChoiceChunk), false,
        When::kDraws);
    Add("choose_winner", args, CeilDivide(owned, kernels::kWaves), false, When::kDraws);
  }

  const AmdGpuModel& model_;
  const Program& program_;
  const Shape& shape_;
  const RankMemory& memory_;
  const int32_t rank_;
  const uint32_t rows_, logit_rows_;  // of a step, at most
  std::vector<Launch> launches_;
  int32_t op_ = -1;
  uint32_t reduces_ = 0;
  uint64_t expert_layer_ = 0;
  absl::optional<kernels::MatmulArgs> heads_;  // the product that the next attention op does too
  WeightId qkv_w_ = 0;                         // its weight
  backend::RouterOp router_ = {};
  backend::ExpertsGateUpOp gate_up_ = {};
};

}  // namespace

std::string MatmulKernel(TileFormat format, bool gate_up, bool rounded) {
  return absl::StrCat(gate_up ? "gate_up_" : "matmul_", Suffix(format), Rounding(format, rounded));
}
std::string ExpertsKernel(TileFormat format, bool rounded) {
  return absl::StrCat("experts_", Suffix(format), Rounding(format, rounded));
}
std::string QkvHeadsKernel(TileFormat format, KvFormat kv) {
  return absl::StrCat("qkv_heads_", Suffix(format), "_", Suffix(kv), "_128");
}

// By an estimate of the time that the weights take. In one launch a head's are streamed by one
// workgroup, which for a decode step of a large model leaves most of the chip idle; that costs more
// than the second launch, unless rows or columns are few enough. Neither number is measured.
bool FusesQkv(const QkvForm& form) {
  constexpr double kGroupBytesPerUs = 40e3;  // that one workgroup streams
  constexpr double kLaunchUs = 4;            // from the end of a kernel to the work of the next
  if (form.head_dim != 128 || form.rounded || form.format == TileFormat::kBf16Pair ||
      form.kv == KvFormat::kF32) {
    return false;
  }
  const double tile_us =
      static_cast<double>(kernels::TileRowBytes(form.format, form.steps)) / kGroupBytesPerUs;
  const uint32_t head_tiles = static_cast<uint32_t>(form.head_dim) / kernels::kTileRows;
  const uint64_t units = uint64_t{form.heads} * CeilDivide(form.rows, kernels::kTileRows);
  const double fused = CeilDivide(units, form.compute_units) * head_tiles * tile_us;
  const double apart = CeilDivide(units * head_tiles, form.compute_units) * tile_us + kLaunchUs;
  return fused <= apart;
}

std::string PrepareKernel(KvFormat format, int32_t head_dim) {
  return absl::StrCat("prepare_", Suffix(format), "_", head_dim);
}
std::string AttendKernel(KvFormat format, int32_t head_dim) {
  return absl::StrCat("attend_", Suffix(format), "_", head_dim);
}

KvShape KvShapeOf(const Program& program) {
  KvShape shape;
  for (const backend::Cache& cache : program.caches) {
    if (const auto* paged = std::get_if<backend::PagedCache>(&cache)) shape.cache = *paged;
  }
  for (const backend::Op& op : program.ops) {
    if (const auto* attention = std::get_if<backend::AttentionOp>(&op)) {
      shape.heads = std::max(shape.heads, attention->heads);
    }
  }
  return shape;
}

namespace {

Status CheckCaches(const Program& program) {
  if (program.caches.size() > 1) {
    return Error(Code::kUnsupported, program.caches.size(), " caches: the GPU kernels take one");
  }
  for (const backend::Cache& any : program.caches) {
    const auto* cache = std::get_if<backend::PagedCache>(&any);
    if (cache == nullptr) {
      return Error(Code::kUnsupported, "cache \"", std::get<backend::SlotCache>(any).label,
                   "\" of recurrent state: the GPU kernels have none");
    }
    const int32_t hd = cache->key_dim;
    if (cache->value_dim != hd) {
      return Error(Code::kUnsupported, "keys of ", hd, " and values of ", cache->value_dim,
                   ": the GPU kernels take one size");
    }
    if (hd != 32 && hd != 64 && hd != 128) {
      return Error(Code::kUnsupported, "head_dim ", hd, ": the GPU kernels take 32, 64 and 128");
    }
    if (cache->window != 0) {
      return Error(Code::kUnsupported, "a window of ", cache->window,
                   " tokens: the GPU kernels see all");
    }
  }
  return OkStatus();
}

Status CheckAttention(const Program& program, const backend::AttentionOp& op) {
  const backend::PagedCache& cache = backend::CacheOf(program, op);
  if (op.rope == backend::kNone || op.q_norm == backend::kNone || op.k_norm == backend::kNone) {
    return Error(Code::kUnsupported, "attention without ",
                 op.rope == backend::kNone ? "a rope" : "norms of Q and K",
                 ": the GPU kernels apply one");
  }
  const char* extra = op.sinks != backend::kNone  ? "sinks"
                      : op.bias != backend::kNone ? "a bias"
                      : op.gate != backend::kNone ? "a gate"
                                                  : nullptr;
  if (extra != nullptr) {
    return Error(Code::kUnsupported, "attention with ", extra, ": the GPU kernels have none");
  }
  if (op.rope != 0) {
    return Error(Code::kUnsupported, "rope ", op.rope, ": the GPU kernels take one");
  }
  const int32_t rotary = program.ropes[0].rotary_dim;
  if (rotary != cache.key_dim) {
    return Error(Code::kUnsupported, "rotary dimension ", rotary, " of ", cache.key_dim,
                 ": the GPU kernels turn whole heads");
  }
  const int32_t group = op.heads / cache.kv_heads;
  if (group > static_cast<int32_t>(kernels::kMaxGroup)) {
    return Error(Code::kUnsupported, group, " query heads to a key head: the GPU kernels take ",
                 kernels::kMaxGroup);
  }
  return OkStatus();
}

}  // namespace

Status CheckProgram(const Program& program) {
  RETURN_IF_ERROR(CheckCaches(program));
  for (const backend::Op& op : program.ops) {
    const auto* attention = std::get_if<backend::AttentionOp>(&op);
    if (attention != nullptr) RETURN_IF_ERROR(CheckAttention(program, *attention));
    if (std::holds_alternative<backend::AddBiasOp>(op) ||
        std::holds_alternative<backend::RecurrentOp>(op) ||
        std::holds_alternative<backend::TapOp>(op) ||
        std::holds_alternative<backend::InputOp>(op)) {
      return Error(Code::kUnsupported, "op ", backend::OpName(op),
                   ": the GPU has no kernel for it");
    }
  }
  if (program.hidden % 8 != 0) {
    return Error(Code::kUnsupported, "hidden size ", program.hidden, " is not a multiple of 8");
  }
  if (program.experts > static_cast<int32_t>(kernels::kRouterMaxExperts) ||
      program.experts_per_token > static_cast<int32_t>(kernels::kRouterMaxTop)) {
    return Error(Code::kUnsupported, program.experts, " experts, ", program.experts_per_token,
                 " a token: the GPU kernels take ", kernels::kRouterMaxExperts, " and ",
                 kernels::kRouterMaxTop);
  }
  for (const backend::Weight& weight : program.weights) RETURN_IF_ERROR(CheckTiles(weight));
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto* down = std::get_if<backend::ExpertsDownOp>(&program.ops[i]);
    if (down == nullptr) continue;
    const auto format = [&](WeightId id) {
      return program.weights[static_cast<size_t>(id)].sources[0].format;
    };
    const auto* up = i == 0 ? nullptr : std::get_if<backend::ExpertsGateUpOp>(&program.ops[i - 1]);
    if (up == nullptr || format(up->w) != format(down->w)) {
      return Error(Code::kUnsupported, program.weights[static_cast<size_t>(down->w)].label,
                   ": the experts' two products must have weights of one format");
    }
  }
  return OkStatus();
}

Shape ShapeOf(const Program& program, const backend::ContextOptions& options) {
  Shape shape;
  shape.options = options;
  shape.kv = options.kv_type;
  shape.heads = KvShapeOf(program);
  const uint32_t head_dim = static_cast<uint32_t>(shape.heads.cache.key_dim);
  shape.hidden_stride = RoundUp(static_cast<uint64_t>(program.hidden), kernels::kPadColumns);
  shape.chunks = CeilDivide(static_cast<uint64_t>(program.hidden), kernels::kRowChunk);
  const uint64_t positions = std::min<uint64_t>(static_cast<uint64_t>(program.max_position),
                                                uint64_t{shape.pages()} * kernels::kPageTokens);
  shape.max_splits = std::max(1u, CeilDivide(positions, kernels::kSplitTokens));
  const uint64_t row_parts = static_cast<uint64_t>(shape.heads.heads) * shape.max_splits *
                             kernels::AttendPartFloats(head_dim) * 4;
  shape.attend_rows = static_cast<uint32_t>(
      shape.max_splits == 1
          ? options.max_rows
          : std::clamp<uint64_t>(kAttendPartBytes / row_parts, 1, options.max_rows));
  shape.router_stride = RoundUp(static_cast<uint64_t>(program.experts), kernels::kPadColumns);
  shape.logits_stride = RoundUp(static_cast<uint64_t>(program.vocab), kernels::kTileRows);
  uint32_t largest_share = 0;
  for (int32_t rank = 0; rank < program.ranks; ++rank) {
    largest_share = std::max(largest_share, ShareOf(program, rank).count);
  }
  shape.share_stride = RoundUp(largest_share, kernels::kTileRows);
  shape.choice_chunks = CeilDivide(largest_share, kernels::kChoiceChunk);
  shape.choice_slots = CeilDivide(options.max_logit_rows, static_cast<uint64_t>(program.ranks));
  for (const backend::Op& op : program.ops) {
    const auto* down = std::get_if<backend::ExpertsDownOp>(&op);
    shape.expert_layers += down != nullptr;
    shape.all_reduces += std::holds_alternative<backend::AllReduceAddOp>(op) ||
                         std::holds_alternative<backend::MatmulAddOp>(op) ||
                         (down != nullptr && down->add);
  }
  shape.table_words = std::min(
      shape.pages(), CeilDivide(static_cast<uint64_t>(program.max_position), kernels::kPageTokens));
  shape.step_changes = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{shape.table_words} * options.max_sequences, kStepChanges));
  // Penalties list the tokens that a sequence holds; few rows have longer lists, and those are
  // read. Every row may have a mask.
  const uint64_t counted = std::min<uint64_t>(static_cast<uint64_t>(program.vocab),
                                              uint64_t{shape.pages()} * kernels::kPageTokens);
  const uint64_t choice_words =
      uint64_t{options.max_logit_rows} * (1 + kChoiceRowWords) +
      std::min<uint64_t>(uint64_t{options.max_logit_rows} * (2 * counted + kEditWords),
                         uint64_t{1} << 20) +
      uint64_t{options.max_logit_rows} * CeilDivide(static_cast<uint64_t>(program.vocab), 32);
  shape.choices_end =
      RoundUp(sizeof(kernels::StepHeader) / 4 + uint64_t{options.max_rows} * 4 + choice_words, 16);
  shape.step_words = RoundUp(
      shape.choices_end + uint64_t{shape.step_changes} * (sizeof(kernels::PageChange) / 4), 1024);
  shape.kv_page_bytes = static_cast<uint64_t>(shape.heads.cache.kv_heads) *
                        kernels::KvPageBytes(shape.kv, head_dim);
  for (const backend::Buffer& buffer : program.buffers) {
    shape.strides.push_back(RoundUp(static_cast<uint64_t>(buffer.width), kernels::kPadColumns));
  }
  // The router's kernels write their choices one row behind the other.
  for (const backend::Op& op : program.ops) {
    const auto* down = std::get_if<backend::ExpertsDownOp>(&op);
    if (down == nullptr) continue;
    for (const BufferId id : {down->ids, down->weights}) {
      const size_t at = static_cast<size_t>(id);
      shape.strides[at] = static_cast<uint32_t>(program.buffers[at].width);
    }
  }
  return shape;
}

VocabShare ShareOf(const Program& program, int32_t rank) {
  for (const backend::Op& op : program.ops) {
    if (const auto* logits = std::get_if<backend::LogitsOp>(&op)) {
      const backend::WeightSlice& slice =
          program.weights[static_cast<size_t>(logits->w)].ranks[static_cast<size_t>(rank)][0];
      return {static_cast<uint32_t>(slice.row_begin),
              static_cast<uint32_t>(slice.row_end - slice.row_begin)};
    }
  }
  return {};
}

ChoiceExchange ExchangeOf(const Program& program, const Shape& shape) {
  const uint64_t units = static_cast<uint64_t>(program.ranks) * shape.choice_chunks;
  const uint64_t slots = shape.choice_slots;
  ChoiceExchange out;
  out.peaks = uint64_t{RoundUp(slots * shape.logits_stride * 4, 256)};
  out.flags = out.peaks + RoundUp(slots * units * sizeof(kernels::ScoredWords), 256);
  out.tokens = out.flags + RoundUp(2 * slots * units * 4, 256);
  out.bytes = out.tokens + uint64_t{2} * shape.options.max_logit_rows * sizeof(uint64_t);
  return out;
}

std::vector<uint32_t> RowClasses(uint32_t max_rows) {
  std::vector<uint32_t> out;
  for (uint64_t rows = 1; rows < max_rows; rows *= 4) out.push_back(static_cast<uint32_t>(rows));
  out.push_back(max_rows);
  return out;
}

std::vector<Launch> Lower(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory,
                          int32_t rank, uint32_t rows) {
  return Lowering(model, shape, memory, rank, rows).Run();
}

Launch LowerTables(const Shape& shape, const RankMemory& memory) {
  kernels::StepTablesArgs args;
  args.changes.address = memory.host_step + uint64_t{2} * shape.step_words * 4;
  args.tables.address = memory.step + uint64_t{shape.step_words} * 4;
  return MakeLaunch("step_tables", args, CeilDivide(kListChanges, kernels::kThreads));
}

uint32_t ComputeUnits(const gpu::Device& device) {
  const kfd::NodeProperties& p = device.node().properties;
  return static_cast<uint32_t>(p.simd_count / std::max<uint64_t>(1, p.simd_per_cu));
}

}  // namespace mainarch::amdgpu
