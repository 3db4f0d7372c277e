// SPDX-License-Identifier: MIT
//
// Products with a weight, of x normalised or of a buffer.
#include <algorithm>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Products take split rows, which only some ops leave.
Status CheckSplitInput(const backend::Program& program, backend::BufferId in) {
  if (KeepsRows(program, in) || LiesSplit(program, in)) return OkStatus();
  return Error(Code::kUnsupported, "a product with \"",
               program.buffers[static_cast<size_t>(in)].label,
               "\": the GPU kernels multiply with x and with what an op leaves for a product");
}

}  // namespace

kernels::GatingArgs GatingOf(backend::Activation activation) {
  kernels::GatingArgs args;
  switch (activation) {
    case backend::Activation::kSilu:
      break;
    case backend::Activation::kGeluTanh:
      args.linear = static_cast<float>(backend::kGeluLinear);
      args.cubic = static_cast<float>(backend::kGeluCubic);
      break;
    case backend::Activation::kClampedSwiglu:
      args.linear = static_cast<float>(backend::kSwigluAlpha);
      args.limit = static_cast<float>(backend::kSwigluLimit);
      args.up_offset = 1;
      break;
  }
  return args;
}

absl::optional<kernels::GatingArgs> Lowering::GatingOf(backend::Activation activation,
                                                       backend::WeightId gate_bias,
                                                       backend::WeightId up_bias,
                                                       int32_t groups) const {
  const bool biased = gate_bias != backend::kNone;
  if (activation == backend::Activation::kSilu && !biased) return absl::nullopt;
  kernels::GatingArgs args = amdgpu::GatingOf(activation);
  if (!biased) return args;
  args.gate_bias.address = WeightOf(gate_bias).vector;
  args.up_bias.address = WeightOf(up_bias).vector;
  args.width = static_cast<uint32_t>(
      backend::VectorSize(program.weights[static_cast<size_t>(gate_bias)], rank) / groups);
  return args;
}

uint32_t Lowering::SplitsOf(const PlacedWeight& w) const {
  if (rows > kernels::kSplitRows) return 1;
  const uint32_t least = kProductGroupsPerUnit * memory.compute_units;
  // Leaves that are not all whole tiles are asked for one after the other: of small ones a wave is to
  // have one.
  constexpr uint32_t kSmallLeaf = 4, kMostGroupsPerUnit = 16;
  const uint32_t leaf = CeilDivide(kernels::TilesOf(w.format, w.tiles.steps),
                                   uint64_t{w.tiles.parts} * kernels::kPartLeaves);
  const uint32_t most =
      leaf < kSmallLeaf && w.tiles.leaf_tiles == 0 ? kMostGroupsPerUnit * memory.compute_units : least;
  // A kernel that stays has so many places and no more: a unit beyond them comes after another. Packets have more.
  const bool stays = shape.options.resident != backend::ResidentMode::kOff;
  const auto more = [&](uint32_t splits) {
    const uint32_t units = w.tiles.outputs * splits;
    return stays ? units * 2 <= most : units < most;
  };
  uint32_t splits = 1;
  while (splits < w.tiles.parts && more(splits)) splits *= 2;
  return splits;
}

kernels::ToldWords Lowering::NextTold() {
  const uint64_t words = memory.told_words[told_ % memory.told_words.size()];
  return {{words}, told_++, static_cast<uint32_t>(program.ops.size())};
}

kernels::ToldWords Lowering::Tell(uint64_t in, uint32_t stride, uint32_t most) {
  const auto* product = std::get_if<kernels::MatmulArgs>(&pending.reduced.sums);
  if (rows > most || pending.reduced.kernel.empty() || product == nullptr || product->out.address != in ||
      product->out_stride != stride) {
    return {};
  }
  // Where steps stay, who runs beside it must find workgroups that it leaves free.
  Launch& launch = launches_.back();
  const bool stays = shape.options.resident != backend::ResidentMode::kOff;
  if (stays && launch.workers > kProductGroupsPerUnit * memory.compute_units / 4 * 3) return {};
  kernels::MatmulArgs args = *product;
  args.told = NextTold();
  launch.args = MakeLaunch(launch.kernel, args, launch.workers).args;
  return args.told;
}

uint64_t Lowering::WorkersBeside(uint64_t units) const {
  const bool stays = shape.options.resident != backend::ResidentMode::kOff;
  const uint64_t places = uint64_t{kProductGroupsPerUnit} * memory.compute_units;
  return stays ? std::max(units, std::min(places, launches_.back().workers + units)) : units;
}

void Lowering::AddNormed(backend::BufferId x, backend::WeightId norm, Product product) {
  product.norm = Norm(x, norm);
  product.in = SplitOf(x);
  Add(product);
}

kernels::TallKind Lowering::TallKindOf(const Product& m, const PlacedWeight& w) {
  using kernels::TallKind;
  if (m.gating) return TallKind::kGateUpAny;
  if (m.gate_up) return TallKind::kGateUp;
  return w.tiles.parts == 1 && kernels::IsOfBlocks(w.format, w.tiles) ? TallKind::kMatmul : TallKind::kParts;
}

kernels::TallGrid Lowering::TallGridOf(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken) const {
  return {static_cast<uint32_t>(CeilDivide(w.tiles.outputs, kernels::TallOutputs(kind))),
          static_cast<uint32_t>(CeilDivide(rows, kernels::TallRowsOf(w.format, w.tiles, kind, taken)))};
}

// By the timing model, between MI355X and MI300X: how many tiles of 16 rows of the other kernel a compute unit does in the
// time of one of these workgroups, of which it has one. With fewer most of them would stand idle.
uint64_t Lowering::TilesOfTall(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken) {
  const bool bf16 = w.format == kernels::TileFormat::kBf16, fp8 = w.format == kernels::TileFormat::kFp8;
  const bool codes = kernels::HasCodes(w.format);
  if (taken == kernels::Taken::kScaled) return kind == kernels::TallKind::kParts ? (fp8 ? 8 : 7) : (fp8 ? 10 : 13);
  if (taken == kernels::Taken::kTiled) return kind == kernels::TallKind::kParts ? 10 : 12;
  if (taken == kernels::Taken::kRing) return kind == kernels::TallKind::kParts ? (fp8 ? 10 : 9) : (fp8 ? 14 : 17);
  if (kind != kernels::TallKind::kParts) {
    const uint64_t tiles = bf16 ? 14 : fp8 ? 46 : codes ? 24 : 38;
    return kernels::IsRagged(w.format, w.tiles) ? tiles * 7 / 6 : tiles;
  }
  const uint64_t tiles = bf16 ? 11 : fp8 ? 22 : codes ? 18 : 17;
  return kernels::IsOfBlocks(w.format, w.tiles) ? tiles : tiles * 4 / 3;
}

uint64_t Lowering::TimeOfTall(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken) const {
  const uint64_t units = memory.compute_units;
  return CeilDivide(TallGridOf(kind, w, taken).units(), units) * units * TilesOfTall(kind, w, taken);
}

bool Lowering::TallPays(const Product& m, const PlacedWeight& w, kernels::Taken taken) const {
  const kernels::TallKind kind = TallKindOf(m, w);
  if (m.logits || !HasManyRows() || !kernels::TallTakes(w.format, w.tiles, kind, taken)) return false;
  const uint64_t tiles = uint64_t{w.tiles.outputs} * (m.gate_up ? 2 : 1) * CeilDivide(rows, kernels::kTileRows);
  return TimeOfTall(kind, w, taken) <= tiles;
}

void Lowering::TakeRows(kernels::Taken taken, kernels::MatmulArgs* args) {
  const bool tiled = taken == kernels::Taken::kTiled;
  kernels::TakenRowsArgs made;
  SetStep(&made);
  made.x = args->x;
  made.out.address = memory.taken_rows;
  made.x_stride = args->x_stride;
  made.steps = args->w.steps;
  // Steps of rows that a workgroup makes at once: four threads one of a row, or a wave a block of a tile.
  const uint64_t at_once = tiled ? uint64_t{kernels::kWaves} * kernels::kTallBlock * kernels::kTileRows : kernels::kThreads / 4;
  const uint64_t of_rows = tiled ? CeilDivide(args->rows, kernels::kTileRows) * kernels::kTileRows : uint64_t{args->rows};
  Add(tiled ? "tile_rows" : "scale_rows", made, CeilDivide(of_rows * made.steps, at_once));
  args->x.address = memory.taken_rows;
  if (!tiled) args->x_stride = kernels::ScaledRowBytes(made.steps) / 4;
}

// Rounded rows in tiles, where there are kernels for them; and rows as MXFP8 through a ring, where that is faster: of half as many
// workgroups more compute units may stand idle.
kernels::Taken Lowering::TallTakenOf(const Product& m, const PlacedWeight& w, kernels::Taken taken) const {
  using kernels::Taken;
  const kernels::TallKind kind = TallKindOf(m, w);
  const auto takes = [&](Taken other) { return kernels::TallTakes(w.format, w.tiles, kind, other); };
  if (taken == Taken::kRounded && memory.has_tiled_rows && takes(Taken::kTiled)) return Taken::kTiled;
  const bool ring = taken == Taken::kScaled && takes(Taken::kRing) && TimeOfTall(kind, w, Taken::kRing) <= TimeOfTall(kind, w, taken);
  return ring ? Taken::kRing : taken;
}

Launch& Lowering::AddTall(const Product& m, const PlacedWeight& w, kernels::MatmulArgs args, kernels::Taken taken) {
  if (kernels::RowsAreMade(taken)) TakeRows(taken, &args);
  const kernels::TallKind kind = TallKindOf(m, w);
  const absl::string_view kernel = TallKernel(kind, w.format, taken);
  const uint64_t units = TallGridOf(kind, w, taken).units();
  return m.gating ? Add(kernel, kernels::GateUpAnyArgs{args, *m.gating}, units) : Add(kernel, args, units);
}

bool Lowering::GoesByHalves(const Product& m, const PlacedWeight& w) const {
  const kernels::Tiles& tiles = w.tiles;
  const bool whole = tiles.steps % kernels::TileSteps(w.format) == 0 && tiles.code != kernels::TileCode::kByTile;
  if (!m.gate_up || rows > kernels::kHalvesRows || tiles.outputs == 0 || !whole) return false;
  if (2 * tiles.outputs <= memory.compute_units) return true;
  // With two workgroups on some compute units only where memory is not what bounds them all, a wave has work for a while, and
  // what each asks for of rows is little.
  constexpr uint32_t kLongSteps = 64;
  const bool is_wide = w.format == kernels::TileFormat::kBf16 || w.format == kernels::TileFormat::kBf16Pair;
  return rows == 1 && tiles.outputs <= memory.compute_units && tiles.steps >= kLongSteps && !is_wide;
}

Launch& Lowering::AddHalves(const Product& m, const PlacedWeight& w, kernels::MatmulArgs args, kernels::Taken taken) {
  if (m.gating) args.flags |= kernels::kMatmulGated;
  const kernels::GateUpAnyArgs any = {args, m.gating.value_or(kernels::GatingArgs())};
  return Add(GateUpHalfKernel(w.format, taken), any, uint64_t{2} * w.tiles.outputs);
}

void Lowering::Add(const Product& m) {
  const PlacedWeight& w = WeightOf(m.w);
  pending.sums = {m.out};
  if (m.sums) pending.sums.splits = SplitsOf(w);
  if (pending.sums.splits > 1) {
    pending.sums.at = memory.sums;
    pending.sums.rows = shape.sum_rows;
    pending.sums.norm = m.norm;
  }
  kernels::MatmulArgs args;
  SetStep(&args);
  args.x.address = m.in;
  args.out.address = pending.sums.at;
  args.w = w.tiles;
  if (pending.sums.splits == 1) args.norm = m.norm;
  args.x_stride = m.in_stride;
  args.out_stride = m.out_stride;
  args.flags = m.logits ? uint32_t{kernels::kMatmulLogitRows} : 0;
  args.parity_rows = m.logits ? shape.options.max_logit_rows : 0;
  args.rows = m.logits ? logit_rows : rows;
  args.splits = pending.sums.splits;
  args.split_rows = pending.sums.rows;
  const kernels::Taken taken = m.exact ? kernels::Taken::kBoth : TakenOf(w);
  const uint64_t units =
      uint64_t{w.tiles.outputs} * args.splits * CeilDivide(args.rows, kernels::kTileRows);
  const kernels::Taken of_many = TallTakenOf(m, w, taken);
  const bool tall = TallPays(m, w, of_many), halves = GoesByHalves(m, w);
  Launch& launch =
      tall ? AddTall(m, w, args, of_many)
      : halves   ? AddHalves(m, w, args, taken)
      : m.gating ? Add(GateUpAnyKernel(w.format, taken), kernels::GateUpAnyArgs{args, *m.gating}, units)
      : m.gate_up ? Add(GateUpKernel(w.format, taken), args, units)
                  : Add(MatmulKernel(w.format, taken), args, units);
  launch.beside = m.beside && !(tall && kernels::RowsAreMade(of_many));  // whose rows the launch before makes
  if (!m.gate_up && !m.logits) pending.reduced = {MatmulReduceKernel(w.format, taken), args};
  if (units == 0) return;  // a rank may have nothing of a weight
  // A unit's parts of k lie behind one another, and so do units. Of halves all together read what two of each eight bring, which
  // then is no farther than the cache before memory.
  launch.reads = w.tiles.data.address;
  launch.reads_stride =
      kernels::TileRowBytes(w.format, w.tiles.steps) * (m.gate_up && !halves ? 2 : 1) / args.splits;
}

// The product of its gate, which leaves no sums, may lie between.
bool Lowering::GoesToHeads(backend::BufferId out) const {
  const backend::Op* next = Next();
  if (next == nullptr) return false;
  if (const auto* wide = std::get_if<backend::WideNormOp>(next)) return wide->qkv == out;
  if (const auto* resize = std::get_if<backend::ResizeHeadsOp>(next)) return resize->in == out;
  const auto* gate = std::get_if<backend::NormMatmulOp>(next);
  if (gate != nullptr) next = Next(1);
  const auto* attention = next == nullptr ? nullptr : std::get_if<backend::AttentionOp>(next);
  if (attention == nullptr || attention->qkv != out) return false;
  return gate == nullptr || gate->out == attention->gate;
}

// Those that add it to x, or make x of it; a MatmulAddOp does so itself.
bool Lowering::GoesToSum(const backend::MatmulOp& op) const {
  if (op.partial == backend::kNone) return true;
  const auto* reduced = Next() == nullptr ? nullptr : std::get_if<backend::AllReduceAddOp>(Next());
  const auto* normed = Next() == nullptr ? nullptr : std::get_if<backend::AddNormedOp>(Next());
  return (reduced != nullptr && reduced->partial == op.partial) ||
         (normed != nullptr && normed->y == op.partial);
}

bool Lowering::GoesToRowGate(const backend::NormMatmulOp& op) const {
  const auto* gate = Next() == nullptr ? nullptr : std::get_if<backend::RowGateOp>(Next());
  return gate != nullptr && gate->gate == op.out;
}

// Its gates: of few outputs, and long.
bool Lowering::GoesToDelta(const backend::NormMatmulOp& op) const {
  const auto* delta = Next() == nullptr ? nullptr : std::get_if<backend::GatedDeltaOp>(Next());
  return delta != nullptr && delta->gates == op.out && delta->in != op.out;
}

bool Lowering::IsBeside(const backend::NormMatmulOp& op) const {
  const auto* other = Before() == nullptr ? nullptr : std::get_if<backend::NormMatmulOp>(Before());
  return other != nullptr && other->x == op.x && other->norm == op.norm && other->out != op.out &&
         other->out != op.x;
}

void Emit(const backend::NormMatmulOp& op, Lowering* to) {
  Product product = {op.w, 0, to->Stride(op.x), to->At(op.out), to->Stride(op.out)};
  const bool to_heads = to->GoesToHeads(op.out);
  product.sums = to_heads || to->GoesToRowGate(op) || to->GoesToDelta(op);
  // What the product before left as sums is not written over while it is being made.
  product.beside = to->IsBeside(op) && (!product.sums || to->pending.sums.splits == 1);
  to->AddNormed(op.x, op.norm, product);
  if (to_heads) to->pending.heads = to->pending.sums;
  if (to->GoesToDelta(op)) to->pending.gates = to->pending.sums;
}

void Emit(const backend::NormGateUpOp& op, Lowering* to) {
  Product product = {op.w, 0, to->Stride(op.x), to->At(op.act), to->Stride(op.act)};
  product.gate_up = true;
  product.gating = to->GatingOf(op.activation, op.gate_bias, op.up_bias, 1);
  to->AddNormed(op.x, op.norm, product);
}

void Emit(const backend::MatmulOp& op, Lowering* to) {
  Product product = {op.w, to->FactorOf(op.in), to->Stride(op.in), to->memory.partial,
                     to->shape.hidden_stride};
  product.sums = true;
  if (to->GoesToSum(op)) return to->Add(product);
  product.out = to->At(op.partial);
  product.out_stride = to->Stride(op.partial);
  const bool to_heads = product.sums = to->GoesToHeads(op.partial);
  to->Add(product);
  if (to_heads) to->pending.heads = to->pending.sums;
}

void Emit(const backend::MatmulAddOp& op, Lowering* to) {
  Emit(backend::MatmulOp{op.in, op.w, backend::kNone}, to);
  to->ReduceInto(op.x, /*whole=*/true);
}

Status CheckOp(const backend::Program& program, const backend::MatmulOp& op, const backend::Op*) {
  return CheckSplitInput(program, op.in);
}
Status CheckOp(const backend::Program& program, const backend::MatmulAddOp& op,
               const backend::Op*) {
  return CheckSplitInput(program, op.in);
}

}  // namespace mainarch::amdgpu
