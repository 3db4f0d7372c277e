// SPDX-License-Identifier: MIT
//
// Which attention has the kernels of long contexts (kernels/long_args.h), and how many splits a row has.
#ifndef MAINARCH_BACKEND_AMDGPU_LONG_CONTEXT_H_
#define MAINARCH_BACKEND_AMDGPU_LONG_CONTEXT_H_

#include <algorithm>

#include "backend/head_dims.h"
#include "backend/ops.h"
#include "backend/program.h"
#include "kernels/near_args.h"

namespace mainarch::amdgpu {

// `splits`: blocks of kernels::kSplitTokens that the longest context has. It is the cache and the room that
// decide, not the step, so that a launch is what it was for every step.
inline bool IsLong(const backend::PagedCache& cache, uint32_t splits) {
  return cache.window == 0 && splits > kernels::kLongSplits;
}
inline uint32_t MostSplitsOf(const backend::PagedCache& cache, uint32_t splits) {
  const auto window = static_cast<uint32_t>(cache.window);
  return std::min(splits, window == 0 ? kernels::kLongSplits : kernels::MostSplits(window));
}

inline kernels::NearTokens NearOf(const backend::PagedCache& near) {
  return {static_cast<uint32_t>(near.window), static_cast<uint32_t>(near.kept)};
}
// What a row's attention leaves to be merged, at most.
inline uint32_t MostPartsOf(const backend::Program& program, const backend::AttentionOp& op, uint32_t splits) {
  if (op.near == backend::kNone) return MostSplitsOf(backend::CacheOf(program, op), splits);
  const auto& near = std::get<backend::PagedCache>(program.caches[static_cast<size_t>(op.near)]);
  return kernels::MostNearParts(splits, NearOf(near));
}

inline backend::HeadDims HeadsOf(const backend::PagedCache& cache) { return {cache.key_dim, cache.value_dim}; }

inline uint32_t KvPageBytesOf(const backend::PagedCache& cache, kernels::KvFormat format) {
  return kernels::KvPageBytes(format, static_cast<uint32_t>(cache.key_dim), static_cast<uint32_t>(cache.value_dim));
}

// Whether ranks that hold the same KV head share its attention, in steps of few rows.
inline bool IsShared(const backend::PagedCache& cache, const backend::AttentionOp& op, uint32_t splits) {
  return op.near == backend::kNone && IsLong(cache, splits) && cache.replicas > 1 && cache.kv_heads == 1 &&
         op.heads * cache.replicas <= static_cast<int32_t>(kernels::kMaxGroup);
}

// Whether what splits of paged attention leave may be merged in the same launch (kernels::AttendHere).
inline bool MergesHere(const backend::Program& program, const backend::AttentionOp& op, uint32_t splits) {
  const backend::PagedCache& cache = backend::CacheOf(program, op);
  const uint32_t most = MostSplitsOf(cache, splits);
  return op.near == backend::kNone && !IsShared(cache, op, splits) && most > 1 && most <= kernels::kLongSplits;
}

// Workgroups that merge there, each so many columns of a head. Of the places that a chip has, two a compute unit and more,
// half at the most: those that wait leave the other half to who is waited for.
inline uint32_t HereMergers(uint64_t heads, const backend::PagedCache& cache, uint32_t columns, uint32_t compute_units) {
  return static_cast<uint32_t>(std::min<uint64_t>(heads * static_cast<uint64_t>(cache.value_dim) / columns, compute_units));
}

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_LONG_CONTEXT_H_
