// SPDX-License-Identifier: MIT
//
// Pools as plain memory: KV pages copied whole, and read back token by token.
#include "backend/cpu/caches.h"

#include <cstring>

#include "backend/cpu/threads.h"
#include "backend/source.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::cpu {
namespace {

constexpr size_t kLine = 64;

// Of one sequence in one layer, on one rank.
size_t StateBytes(const backend::SlotCache& cache) {
  return (static_cast<size_t>(cache.bytes) + kLine - 1) / kLine * kLine;
}

// Elements of one side of a page, decoded; `index` and `scale` as KeyAt and KvScaleAt have them.
float ElementAt(KvForm form, const uint8_t* side, int32_t index, const uint8_t* scales, int32_t scale) {
  switch (form) {
    case KvForm::kF32:
      return reinterpret_cast<const float*>(side)[index];
    case KvForm::kBF16:
      return quant::FloatFromBf16(reinterpret_cast<const uint16_t*>(side)[index]);
    case KvForm::kFp8:
      return quant::FloatFromFp8E4m3(side[index]) * reinterpret_cast<const float*>(scales)[scale];
    case KvForm::kFp4:
      return quant::FloatFromE2m1(quant::Mxfp4Nibble(side, index)) * quant::FloatFromE5m3(scales[scale]);
  }
  return 0;
}

uint32_t CountOf(const std::vector<uint32_t>& counts, size_t cache) {
  return cache < counts.size() ? counts[cache] : 0;
}

}  // namespace

Status PagedPool::Allocate(const backend::PagedCache& cache, backend::KvType type, int32_t ranks,
                           uint32_t pages) {
  const int32_t multiple = static_cast<int32_t>(quant::KvDimMultiple(type));
  if (cache.key_dim % multiple != 0 || cache.value_dim % multiple != 0) {
    return Error(Code::kUnsupported, "KV type ", quant::kKvTypeNames[static_cast<uint32_t>(type)],
                 ": heads of ", cache.key_dim, " and ", cache.value_dim, " in cache \"", cache.label,
                 "\" are not multiples of ", multiple);
  }
  layout_ = {type, cache.key_dim, cache.value_dim};
  ranks_ = ranks;
  replicas_ = cache.replicas;
  layers_ = cache.layers;
  kv_heads_ = cache.kv_heads;
  pages_ = pages;
  head_bytes_ = kKvChunkPages * KvPageBytes(layout_);
  chunk_stride_ = heads() * head_bytes_;
  const uint64_t chunks = (uint64_t{pages} + kKvChunkPages - 1) / kKvChunkPages;
  ASSIGN_OR_RETURN(memory_, Mapping::Anonymous(chunks * chunk_stride_, /*huge_pages=*/true));
  SpreadOverNodes(memory_.data(), memory_.size());
  return OkStatus();
}

Status PagedPool::Copy(uint32_t from, uint32_t to) {
  if (from >= pages_ || to >= pages_) {
    return Error(Code::kInternal, "copy of page ", from, " to ", to, " in a pool of ", pages_);
  }
  const KvPieces pieces = PiecesOf(layout_);
  const size_t from_page = from % kKvChunkPages, to_page = to % kKvChunkPages;
  for (size_t head = 0; head < heads(); ++head) {
    uint8_t* const chunks = memory_.data() + head * head_bytes_;
    uint8_t* source = chunks + from / kKvChunkPages * chunk_stride_;
    uint8_t* target = chunks + to / kKvChunkPages * chunk_stride_;
    for (const size_t piece : {pieces.k, pieces.v, pieces.scales}) {
      std::memcpy(target + to_page * piece, source + from_page * piece, piece);
      source += kKvChunkPages * piece;
      target += kKvChunkPages * piece;
    }
  }
  return OkStatus();
}

StatusOr<backend::KvToken> PagedPool::Read(int32_t layer, uint32_t page, uint32_t slot) const {
  if (layer < 0 || layer >= layers_ || page >= pages_ || slot >= uint32_t{kLanes}) {
    return Error(Code::kInternal, "K and V of layer ", layer, ", page ", page, ", slot ", slot,
                 " in a pool of ", layers_, " layers and ", pages_, " pages");
  }
  const KvForm key = KeyForm(layout_), value = ValueForm(layout_);
  const KvPieces pieces = PiecesOf(layout_);
  const size_t in_chunk = page % kKvChunkPages;
  const int32_t token = static_cast<int32_t>(slot);
  backend::KvToken out;
  for (size_t head = 0; head < static_cast<size_t>(ranks_ * kv_heads_); ++head) {
    const int32_t rank = static_cast<int32_t>(head) / kv_heads_;
    const uint8_t* chunk = Head(rank, layer, static_cast<int32_t>(head) % kv_heads_) +
                           page / kKvChunkPages * chunk_stride_;
    const uint8_t* k = chunk + in_chunk * pieces.k;
    const uint8_t* v = chunk + kKvChunkPages * pieces.k + in_chunk * pieces.v;
    const uint8_t* scales = chunk + kKvChunkPages * (pieces.k + pieces.v) + in_chunk * pieces.scales;
    for (int32_t d = 0; d < layout_.key_dim; ++d) {
      out.k.push_back(
          ElementAt(key, k, KeyAt(key, token, d), scales, KvScaleAt(key, token, d)));
    }
    for (int32_t d = 0; d < layout_.value_dim; ++d) {
      out.v.push_back(ElementAt(value, v, ValueAt(value, token, layout_.value_dim, d),
                                scales + pieces.k_scales, KvScaleAt(value, token, d)));
    }
  }
  return out;
}

template <class Use>
void PagedPool::ForPieces(uint32_t page, Use&& use) const {
  const KvPieces sizes = PiecesOf(layout_);
  const size_t pieces[] = {sizes.k, sizes.v, sizes.scales};
  for (size_t head = 0; head < heads(); ++head) {
    uint8_t* at = memory_.data() + head * head_bytes_ + page / kKvChunkPages * chunk_stride_;
    for (const size_t piece : pieces) {
      use(at + page % kKvChunkPages * piece, piece);
      at += kKvChunkPages * piece;
    }
  }
}

void PagedPool::Get(uint32_t page, char* bytes) const {
  ForPieces(page, [&](const uint8_t* at, size_t size) {
    std::memcpy(bytes, at, size);
    bytes += size;
  });
}

void PagedPool::Put(uint32_t page, const char* bytes) {
  ForPieces(page, [&](uint8_t* at, size_t size) {
    std::memcpy(at, bytes, size);
    bytes += size;
  });
}

Status SlotPool::Allocate(const backend::SlotCache& cache, int32_t ranks, uint32_t slots) {
  layers_ = cache.layers;
  slots_ = slots;
  state_bytes_ = StateBytes(cache);
  slot_bytes_ = static_cast<size_t>(ranks) * static_cast<size_t>(layers_) * state_bytes_;
  ASSIGN_OR_RETURN(memory_, Mapping::Anonymous(slots * slot_bytes_, /*huge_pages=*/false));
  return OkStatus();
}

Status Caches::Allocate(const backend::Program& program, const backend::ContextOptions& options) {
  paged_.resize(program.caches.size());
  slots_.resize(program.caches.size());
  for (size_t i = 0; i < program.caches.size(); ++i) {
    if (const auto* paged = std::get_if<backend::PagedCache>(&program.caches[i])) {
      RETURN_IF_ERROR(paged_[i].Allocate(*paged, TypeOf(*paged, options.kv_type), program.ranks,
                                         CountOf(options.pages, i)));
    } else {
      RETURN_IF_ERROR(slots_[i].Allocate(std::get<backend::SlotCache>(program.caches[i]),
                                         program.ranks, CountOf(options.slots, i)));
    }
  }
  return OkStatus();
}

StatusOr<size_t> Caches::UnitBytes(int32_t cache, uint32_t unit) const {
  const auto c = static_cast<size_t>(cache);
  if (cache >= 0 && c < paged_.size()) {
    if (unit < paged_[c].pages()) return paged_[c].page_bytes();
    if (unit < slots_[c].slots()) return slots_[c].slot_bytes();
  }
  return Error(Code::kInternal, "cache ", cache, " of ", paged_.size(), " has no page or slot ", unit);
}

StatusOr<std::string> Caches::Read(int32_t cache, uint32_t unit) const {
  ASSIGN_OR_RETURN(const size_t size, UnitBytes(cache, unit));
  const auto c = static_cast<size_t>(cache);
  std::string bytes(size, 0);
  if (paged_[c].pages() > 0) {
    paged_[c].Get(unit, &bytes[0]);
  } else {
    std::memcpy(&bytes[0], slots_[c].At(0, 0, unit), size);
  }
  return bytes;
}

Status Caches::Write(int32_t cache, uint32_t unit, absl::string_view bytes) {
  ASSIGN_OR_RETURN(const size_t size, UnitBytes(cache, unit));
  if (bytes.size() != size) {
    return Error(Code::kInvalidArgument, "content of cache ", cache, ": ", bytes.size(),
                 " bytes of a page or slot are not ", size);
  }
  const auto c = static_cast<size_t>(cache);
  if (paged_[c].pages() > 0) {
    paged_[c].Put(unit, bytes.data());
  } else {
    std::memcpy(slots_[c].At(0, 0, unit), bytes.data(), size);
  }
  return OkStatus();
}

StatusOr<const PagedPool*> Caches::Paged(int32_t cache) const {
  if (cache >= 0 && static_cast<size_t>(cache) < paged_.size() &&
      paged_[static_cast<size_t>(cache)].chunk_stride() > 0) {
    return &paged_[static_cast<size_t>(cache)];
  }
  return Error(Code::kInternal, "cache ", cache, " of ", paged_.size(), " is no paged one");
}

namespace {

// Rows [first, last) are a sequence's.
struct Rows {
  size_t sequence;
  uint32_t first_position, count;
};

Status CheckPages(const backend::PagedCache& cache, const backend::StepCache& list,
                  const Rows& rows, uint32_t pages) {
  RETURN_IF_ERROR(
      backend::CheckPages(cache, list, rows.sequence, rows.first_position, rows.count));
  for (const absl::Span<const uint32_t> listed : {list.pages, list.kept}) {
    for (uint32_t page : listed) {
      if (page >= pages) return Error(Code::kInternal, "page ", page, " is not in the pool");
    }
  }
  return OkStatus();
}

}  // namespace

Status Caches::Check(const backend::Program& program, const backend::Step& step) const {
  for (size_t at = 0; at < step.rows.size();) {
    const size_t sequence = step.rows[at].sequence;
    Rows rows = {sequence, step.rows[at].position, 0};
    for (; at < step.rows.size() && step.rows[at].sequence == sequence; ++at) ++rows.count;
    const absl::Span<const backend::StepCache> lists = step.sequences[sequence].caches;
    if (lists.size() != program.caches.size()) {
      return Error(Code::kInternal, "sequence ", sequence, ": ", lists.size(), " caches of ",
                   program.caches.size());
    }
    for (size_t i = 0; i < lists.size(); ++i) {
      const auto* paged = std::get_if<backend::PagedCache>(&program.caches[i]);
      RETURN_IF_ERROR(paged != nullptr
                          ? CheckPages(*paged, lists[i], rows, paged_[i].pages())
                          : backend::CheckSlots(lists[i], sequence, rows.count, slots_[i].slots()));
    }
  }
  return OkStatus();
}

std::vector<uint64_t> Caches::BytesOfUnits(const backend::Program& program,
                                           backend::KvType type) {
  std::vector<uint64_t> out;
  for (const backend::Cache& any : program.caches) {
    uint64_t bytes = static_cast<uint64_t>(program.ranks);
    if (const auto* paged = std::get_if<backend::PagedCache>(&any)) {
      bytes = bytes / static_cast<uint64_t>(paged->replicas) * static_cast<uint64_t>(paged->layers) *
               static_cast<uint64_t>(paged->kv_heads) *
               KvPageBytes({TypeOf(*paged, type), paged->key_dim, paged->value_dim});
    } else {
      const auto& slots = std::get<backend::SlotCache>(any);
      bytes *= static_cast<uint64_t>(slots.layers) * StateBytes(slots);
    }
    out.push_back(bytes);
  }
  return out;
}

uint64_t Caches::bytes() const {
  uint64_t bytes = 0;
  for (const PagedPool& pool : paged_) bytes += pool.bytes();
  for (const SlotPool& pool : slots_) bytes += pool.bytes();
  return bytes;
}

}  // namespace mainarch::cpu
