// SPDX-License-Identifier: MIT
//
// Sizes of a context (lower.h, Shape), and of what its ranks exchange.
#include <algorithm>

#include "backend/amdgpu/choices.h"
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Words of the step block for a logit row's bans and biases.
constexpr uint32_t kEditWords = 192;
// Bytes of attention parts at most; more rows are done in several launches.
constexpr uint64_t kAttendPartBytes = uint64_t{256} << 20;
// What splits leave for the same launch to merge; and rows beyond which a launch of its own does so, because it has work
// for the whole chip.
constexpr uint64_t kAttendWordBytes = uint64_t{64} << 20;
constexpr uint64_t kMostHereRows = 8;
// The same of latents, whose parts are long: a queue has room for so many launches of each of 61 layers.
constexpr uint64_t kLatentPartBytes = uint64_t{1} << 30;
// Slots begin with whole lines.
constexpr uint32_t kSlotAlign = 256;

}  // namespace

using backend::BufferId;
using backend::Program;

std::vector<PoolShape> PoolShapesOf(const Program& program,
                                    const backend::ContextOptions& options) {
  std::vector<PoolShape> out(program.caches.size());
  int32_t lists = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto* cache = std::get_if<backend::PagedCache>(&program.caches[i]);
    if (cache == nullptr) continue;
    const backend::LatentOp* latent = LatentOf(program, static_cast<int32_t>(i));
    const uint64_t head_bytes =
        latent != nullptr
            ? kernels::LatentPageBytes(TypeOf(*cache, options.kv_type), static_cast<uint32_t>(latent->turning),
                                       static_cast<uint32_t>(latent->latent))
            : KvPageBytesOf(*cache, TypeOf(*cache, options.kv_type));
    out[i] = {lists++, cache->layers, i < options.pages.size() ? options.pages[i] : 0,
              static_cast<uint64_t>(cache->kv_heads) * head_bytes};
  }
  return out;
}

std::vector<SlotShape> SlotShapesOf(const Program& program,
                                    const backend::ContextOptions& options) {
  std::vector<SlotShape> out(program.caches.size());
  int32_t lists = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto* cache = std::get_if<backend::SlotCache>(&program.caches[i]);
    if (cache == nullptr) continue;
    const uint64_t bytes = static_cast<uint64_t>(cache->bytes);
    out[i] = {lists++, cache->layers, i < options.slots.size() ? options.slots[i] : 0, bytes,
              RoundUp(bytes, kSlotAlign)};
  }
  return out;
}

namespace {

// Pools of pages, and what follows from their sizes.
void AddPools(const Program& program, Shape* shape) {
  shape->pools = PoolShapesOf(program, shape->options);
  shape->positions = static_cast<uint64_t>(program.max_position);
  uint32_t most_pages = 0;
  for (size_t i = 0; i < shape->pools.size(); ++i) {
    const PoolShape& pool = shape->pools[i];
    if (pool.list == backend::kNone) continue;
    ++shape->page_lists;
    const bool all = std::get<backend::PagedCache>(program.caches[i]).window == 0;
    const uint64_t room = uint64_t{pool.pages} * kernels::kPageTokens;
    // What lies behind a window has no page.
    if (all) shape->positions = std::min(shape->positions, room);
    most_pages = std::max(most_pages, all ? pool.pages : UINT32_MAX);
  }
  shape->table_words = std::min(most_pages, CeilDivide(shape->positions, kernels::kPageTokens));
  shape->step_changes = static_cast<uint32_t>(std::min<uint64_t>(
      uint64_t{shape->page_lists} * shape->table_words * shape->options.max_sequences,
      kStepChanges));
}

// One more attention that ranks share.
void AddShare(const backend::PagedCache& cache, const backend::AttentionOp& op, ShareShape* share) {
  share->ranks = std::max(share->ranks, static_cast<uint64_t>(cache.replicas));
  share->heads = std::max(share->heads, static_cast<uint64_t>(op.heads));
  share->head_dim = std::max(share->head_dim, static_cast<uint64_t>(std::max(cache.key_dim, cache.value_dim)));
  share->words = kernels::ShareBytesOf(share->ranks, share->heads, share->head_dim);
  ++share->per_step;
}

// Attention's splits, and the parts that they leave.
void AddSplits(const Program& program, Shape* shape) {
  shape->max_splits = std::max(1u, CeilDivide(shape->positions, kernels::kSplitTokens));
  uint64_t most = kAttendPartBytes;
  for (const backend::Op& op : program.ops) {
    const auto* attention = std::get_if<backend::AttentionOp>(&op);
    if (attention == nullptr) continue;
    const auto dim = static_cast<uint32_t>(backend::CacheOf(program, *attention).value_dim);
    const bool latents = LatentOf(program, attention->cache) != nullptr;
    const uint64_t splits = latents ? std::min(shape->max_splits, kernels::kLatentMostSplits)
                                    : MostPartsOf(program, *attention, shape->max_splits);
    // Of a row that ranks share each has as many times more heads as fewer splits.
    if (!latents && IsShared(backend::CacheOf(program, *attention), *attention, shape->max_splits)) {
      AddShare(backend::CacheOf(program, *attention), *attention, &shape->share);
    }
    const uint64_t floats = static_cast<uint64_t>(attention->heads) * splits * kernels::AttendPartFloats(dim);
    shape->attend_floats = std::max(shape->attend_floats, floats);
    if (latents) most = kLatentPartBytes;
    if (!latents && MergesHere(program, *attention, shape->max_splits)) {
      shape->attend_words = std::max(shape->attend_words, floats);
      shape->appended_words = std::max(shape->appended_words, kernels::AppendedWords(static_cast<uint32_t>(
                                                                  backend::CacheOf(program, *attention).kv_heads)));
    }
  }
  const uint32_t rows = shape->options.max_rows;
  shape->attend_rows =
      shape->max_splits == 1
          ? rows
          : static_cast<uint32_t>(std::clamp<uint64_t>(most / std::max<uint64_t>(1, shape->attend_floats * 4), 1, rows));
  if (shape->attend_words == 0) return;
  shape->here_rows = static_cast<uint32_t>(std::min<uint64_t>(
      {kAttendWordBytes / (shape->attend_words * sizeof(uint64_t)), kMostHereRows, shape->attend_rows}));
}

// What steps bring of slots, and the workspace of heads that are shared.
void AddSlots(const Program& program, Shape* shape) {
  shape->slots = SlotShapesOf(program, shape->options);
  for (const SlotShape& slots : shape->slots) shape->slot_lists += slots.list != backend::kNone;
  for (const backend::Op& op : program.ops) {
    const auto* delta = std::get_if<backend::GatedDeltaOp>(&op);
    if (delta == nullptr || DeltaGroups(*delta) == 1) continue;
    shape->plain_stride =
        std::max(shape->plain_stride, shape->strides[static_cast<size_t>(delta->out)]);
  }
}
// Heads that are narrowed lie by parts of the product that takes them, each from a whole step on.
void AddNarrowed(const Program& program, Shape* shape) {
  for (const backend::Op& op : program.ops) {
    const auto* resize = std::get_if<backend::ResizeHeadsOp>(&op);
    const backend::Weight* taker = resize == nullptr ? nullptr : TakerOf(program, resize->out);
    if (taker == nullptr || taker->splits.empty()) continue;
    uint32_t& stride = shape->strides[static_cast<size_t>(resize->out)];
    for (int32_t rank = 0; rank < program.ranks; ++rank) {
      stride = std::max(stride, RoundUp(uint64_t{PartEnds(*taker, rank).back()} * kernels::kStepColumns,
                                        kernels::kPadColumns));
    }
  }
}
// Words of a step block for inputs and slots, of rounds too.
uint64_t InputWords(const Shape& shape) {
  const uint64_t rows = shape.options.max_rows;
  const uint64_t inputs = shape.reads_tap ? rows + 1 : 0;
  if (shape.slot_lists == 0) return inputs;
  const bool stays = shape.options.resident != backend::ResidentMode::kOff;
  const uint64_t rounds = stays ? std::min<uint64_t>(rows, kOneRoundRows) * kernels::kMostRounds : 0;
  return inputs + 1 + 2 * rows + shape.slot_lists * (2 * rows + rounds);
}

}  // namespace

Shape ShapeOf(const Program& program, const backend::ContextOptions& options) {
  Shape shape;
  shape.options = options;
  shape.kv = options.kv_type;
  AddPools(program, &shape);
  AddSplits(program, &shape);
  shape.hidden_stride = RoundUp(static_cast<uint64_t>(program.hidden), kernels::kPadColumns);
  shape.chunks = CeilDivide(static_cast<uint64_t>(program.hidden), kernels::kRowChunk);
  shape.router_stride = RoundUp(static_cast<uint64_t>(program.experts), kernels::kPadColumns);
  shape.logits_stride = RoundUp(static_cast<uint64_t>(program.logit_width()), kernels::kTileRows);
  uint32_t largest_share = 0;
  for (int32_t rank = 0; rank < program.ranks; ++rank) {
    largest_share = std::max(largest_share, ShareOf(program, rank).count);
  }
  shape.share_stride = RoundUp(largest_share, kernels::kTileRows);
  shape.choice_chunks = CeilDivide(largest_share, kernels::kChoiceChunk);
  shape.choice_slots = CeilDivide(options.max_logit_rows, static_cast<uint64_t>(program.ranks));
  for (const backend::Op& op : program.ops) {
    const auto* down = std::get_if<backend::ExpertsDownOp>(&op);
    shape.reads_tap |= std::holds_alternative<backend::InputOp>(op);
    // A product that every rank makes whole is added without the others.
    shape.all_reduces += std::holds_alternative<backend::AllReduceAddOp>(op) ||
                         (std::holds_alternative<backend::MatmulAddOp>(op) && program.ranks == 1) ||
                         (down != nullptr && down->add);
    if (const auto* wide = std::get_if<backend::WideNormOp>(&op); wide != nullptr && program.ranks > 1) {
      ++shape.all_reduces;
      ++shape.square_reduces;
      shape.square_width = HeadsOfAll(program, *wide);
    }
  }
  // Penalties list the tokens that a sequence holds; few rows have longer lists, and those are
  // read. Every row may have a mask.
  const uint64_t counted = std::min(static_cast<uint64_t>(program.vocab), shape.positions);
  const uint64_t choice_words =
      uint64_t{options.max_logit_rows} * (1 + kChoiceRowWords) +
      std::min<uint64_t>(uint64_t{options.max_logit_rows} * (2 * counted + kEditWords),
                         uint64_t{1} << 20) +
      uint64_t{options.max_logit_rows} * CeilDivide(static_cast<uint64_t>(program.vocab), 32);
  for (const backend::Buffer& buffer : program.buffers) {
    shape.strides.push_back(RoundUp(static_cast<uint64_t>(buffer.width), kernels::kPadColumns));
  }
  AddNarrowed(program, &shape);
  AddSlots(program, &shape);
  shape.choices_end =
      RoundUp(sizeof(kernels::StepHeader) / 4 +
                  uint64_t{options.max_rows} * 4 + InputWords(shape) + choice_words,
              16);
  shape.step_words = RoundUp(
      shape.choices_end + uint64_t{shape.step_changes} * (sizeof(kernels::PageChange) / 4), 1024);
  shape.pair_rows = std::min(options.max_rows, kOneRoundRows);
  if (program.ranks > 1) {
    shape.exchange =
        kernels::ExchangeBytesOf(static_cast<uint32_t>(program.ranks), options.max_rows,
                                 shape.pair_rows, shape.hidden_stride);
    shape.share.at = shape.exchange.bytes;
    shape.exchange.bytes += 2 * shape.share.words.half;
  }
  // Products whose k workgroups may share: of steps of few rows.
  shape.sum_rows = std::min(options.max_rows, kernels::kSplitRows);
  shape.sum_stride = std::max(shape.hidden_stride, shape.router_stride);
  for (const backend::Op& op : program.ops) {
    const auto* attention = std::get_if<backend::AttentionOp>(&op);
    const auto* delta = std::get_if<backend::GatedDeltaOp>(&op);
    if (attention == nullptr && delta == nullptr) continue;
    if (attention != nullptr && LatentOf(program, attention->cache) != nullptr) continue;
    const BufferId taken = attention != nullptr ? attention->qkv : delta->gates;
    shape.sum_stride = std::max(shape.sum_stride, shape.strides[static_cast<size_t>(taken)]);
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

std::vector<bool> TapsOf(const Program& program) {
  std::vector<bool> out(program.buffers.size());
  for (const BufferId id : program.taps) out[static_cast<size_t>(id)] = true;
  return out;
}

std::vector<bool> InputsOf(const Program& program) {
  std::vector<bool> out(program.buffers.size());
  for (const backend::Op& op : program.ops) {
    if (const auto* input = std::get_if<backend::InputOp>(&op)) {
      out[static_cast<size_t>(input->x)] = true;
    }
  }
  return out;
}

bool KeepsRows(const Program& program, BufferId buffer) {
  return buffer == program.x || InputsOf(program)[static_cast<size_t>(buffer)];
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
  out.found = uint64_t{RoundUp(slots * shape.logits_stride * 4, 256)};
  out.flags = out.found + RoundUp(slots * units * kernels::kFoundWords * sizeof(uint64_t), 256);
  out.tokens = out.flags + RoundUp(2 * slots * units * 4, 256);
  // And whether there is a round.
  out.bytes = out.tokens + uint64_t{2} * (shape.options.max_logit_rows + 1) * sizeof(uint64_t);
  return out;
}

backend::WeightId ProductWith(const backend::Op& op, BufferId in) {
  const auto* matmul = std::get_if<backend::MatmulOp>(&op);
  if (matmul != nullptr && matmul->in == in) return matmul->w;
  const auto* added = std::get_if<backend::MatmulAddOp>(&op);
  return added != nullptr && added->in == in ? added->w : backend::kNone;
}

const backend::Weight* TakerOf(const Program& program, BufferId in) {
  for (const backend::Op& op : program.ops) {
    const backend::WeightId w = ProductWith(op, in);
    if (w != backend::kNone) return &program.weights[static_cast<size_t>(w)];
  }
  return nullptr;
}

uint32_t HeadsOfAll(const Program& program, const backend::WideNormOp& op) {
  return static_cast<uint32_t>(op.heads * program.ranks + op.total_kv_heads);
}

bool LiesSplit(const Program& program, BufferId buffer) {
  return std::any_of(program.ops.begin(), program.ops.end(), [&](const backend::Op& any) {
    return std::visit(
        [&](const auto& op) {
          using T = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<T, backend::AttentionOp> ||
                        std::is_same_v<T, backend::GatedDeltaOp>) {
            return op.out == buffer;
          }
          if constexpr (std::is_same_v<T, backend::ResizeHeadsOp>) {
            return op.out == buffer && op.in != buffer && LiesSplit(program, op.in);
          }
          if constexpr (std::is_same_v<T, backend::HeadsMatmulOp>) {
            return op.out == buffer && LeavesSplit(program, op);
          }
          if constexpr (std::is_same_v<T, backend::AddNormedOp>) {
            return op.x == buffer && LeavesSplit(program, op);
          }
          if constexpr (requires { op.act; }) return op.act == buffer;
          return false;
        },
        any);
  });
}

std::vector<uint32_t> RowClasses(uint32_t max_rows) {
  std::vector<uint32_t> out;
  for (uint64_t rows = 1; rows < max_rows; rows *= rows == 4 || rows == 8 ? 2 : 4) {
    out.push_back(static_cast<uint32_t>(rows));
  }
  out.push_back(max_rows);
  return out;
}

}  // namespace mainarch::amdgpu
