// SPDX-License-Identifier: MIT
//
// The caches of one context: pools of KV pages, pools of slots of recurrent state.
#ifndef MAINARCH_BACKEND_CPU_CACHES_H_
#define MAINARCH_BACKEND_CPU_CACHES_H_

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/fd.h"

namespace mainarch::cpu {

// [chunk of pages][holder][layer][kv head][a chunk of one head (AttendArgs)]
// A holder is a rank, or several that have the same KV heads (PagedCache::replicas), of which the first one writes.
class PagedPool {
 public:
  Status Allocate(const backend::PagedCache& cache, backend::KvType type, int32_t ranks,
                  uint32_t pages);
  const KvLayout& layout() const { return layout_; }
  size_t chunk_stride() const { return chunk_stride_; }
  // Chunk 0 of a head, as AttendArgs::chunks.
  uint8_t* Head(int32_t rank, int32_t layer, int32_t kv_head) const {
    return memory_.data() + IndexOf(rank / replicas_, layer, kv_head) * head_bytes_;
  }
  Status Copy(uint32_t from, uint32_t to);
  StatusOr<backend::KvToken> Read(int32_t layer, uint32_t page, uint32_t slot) const;
  // [holder][layer][kv head][K, V, scales] of a page, as they stand in memory.
  size_t page_bytes() const { return heads() * KvPageBytes(layout_); }
  void Get(uint32_t page, char* bytes) const;
  void Put(uint32_t page, const char* bytes);
  uint32_t pages() const { return pages_; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  // Each piece of a page: `use(in memory, bytes)`.
  template <class Use>
  void ForPieces(uint32_t page, Use&& use) const;
  size_t heads() const { return IndexOf(ranks_ / replicas_, 0, 0); }  // of all holders and layers
  size_t IndexOf(int32_t holder, int32_t layer, int32_t kv_head) const {
    return (static_cast<size_t>(holder) * static_cast<size_t>(layers_) + static_cast<size_t>(layer)) *
               static_cast<size_t>(kv_heads_) +
           static_cast<size_t>(kv_head);
  }

  KvLayout layout_ = {};
  int32_t ranks_ = 0, replicas_ = 1, layers_ = 0, kv_heads_ = 0;
  uint32_t pages_ = 0;
  size_t head_bytes_ = 0;  // of a chunk of one head
  size_t chunk_stride_ = 0;
  Mapping memory_;
};

// [slot][rank][layer][bytes, in whole lines]
class SlotPool {
 public:
  Status Allocate(const backend::SlotCache& cache, int32_t ranks, uint32_t slots);
  uint8_t* At(int32_t rank, int32_t layer, uint32_t slot) const {
    return memory_.data() + slot * slot_bytes_ +
           (static_cast<size_t>(rank) * static_cast<size_t>(layers_) + static_cast<size_t>(layer)) *
               state_bytes_;
  }
  uint32_t slots() const { return slots_; }
  size_t slot_bytes() const { return slot_bytes_; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  int32_t layers_ = 0;
  uint32_t slots_ = 0;
  size_t state_bytes_ = 0;  // of one layer on one rank
  size_t slot_bytes_ = 0;
  Mapping memory_;
};

// By index into Program::caches; a pool of the other kind is empty there.
class Caches {
 public:
  Status Allocate(const backend::Program& program, const backend::ContextOptions& options);
  // Every list of the step names pages and slots that are there, and holds what its rows need.
  Status Check(const backend::Program& program, const backend::Step& step) const;

  PagedPool& paged(int32_t cache) { return paged_[static_cast<size_t>(cache)]; }
  SlotPool& slots(int32_t cache) { return slots_[static_cast<size_t>(cache)]; }
  // One page or slot, whole. Write: InvalidArgument for another number of bytes.
  StatusOr<std::string> Read(int32_t cache, uint32_t unit) const;
  Status Write(int32_t cache, uint32_t unit, absl::string_view bytes);
  // The pool, or an error that says what there is.
  StatusOr<const PagedPool*> Paged(int32_t cache) const;
  uint64_t bytes() const;
  // Of one page or slot of each cache, over all ranks and layers.
  static std::vector<uint64_t> BytesOfUnits(const backend::Program& program, backend::KvType type);

 private:
  StatusOr<size_t> UnitBytes(int32_t cache, uint32_t unit) const;

  std::vector<PagedPool> paged_;
  std::vector<SlotPool> slots_;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_CACHES_H_
