// SPDX-License-Identifier: MIT
#include "model/kv_tiers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace mainarch::model {
namespace {

using backend::AttentionOp;
using backend::PagedCache;

PagedCache& CacheAt(backend::Program* program, int32_t cache) {
  return std::get<PagedCache>(program->caches[static_cast<size_t>(cache)]);
}

std::vector<AttentionOp*> AttentionsOf(backend::Program* program) {
  std::vector<AttentionOp*> out;
  for (backend::Op& op : program->ops) {
    if (auto* attention = std::get_if<AttentionOp>(&op)) out.push_back(attention);
  }
  return out;
}

// A cache like `cache`, for `layers` of its layers; its index.
int32_t AddCache(backend::Program* program, int32_t cache, const char* label, int32_t layers) {
  PagedCache like = CacheAt(program, cache);
  absl::StrAppend(&like.label, label);
  like.layers = layers;
  like.type = kNearType;
  program->caches.push_back(std::move(like));
  return static_cast<int32_t>(program->caches.size()) - 1;
}

// Layers that attend without a window and are the first or the last of all get a cache of their own, or theirs, if it
// has no other.
void MoveOuter(backend::Program* program) {
  const std::vector<AttentionOp*> attentions = AttentionsOf(program);
  for (size_t c = 0, count = program->caches.size(); c < count; ++c) {
    const auto cache = static_cast<int32_t>(c);
    std::vector<AttentionOp*> outer, inner;
    for (AttentionOp* op : attentions) {
      if (op->cache != cache) continue;
      (op == attentions.front() || op == attentions.back() ? outer : inner).push_back(op);
    }
    if (outer.empty() || CacheAt(program, cache).window > 0) continue;
    int32_t own = cache;
    if (inner.empty()) {
      CacheAt(program, cache).type = kNearType;
    } else {
      own = AddCache(program, cache, " of the outer layers", static_cast<int32_t>(outer.size()));
      CacheAt(program, cache).layers = static_cast<int32_t>(inner.size());
    }
    for (size_t i = 0; i < outer.size(); ++i) outer[i]->cache = own, outer[i]->layer = static_cast<int32_t>(i);
    for (size_t i = 0; i < inner.size(); ++i) inner[i]->layer = static_cast<int32_t>(i);
  }
}

void AddNear(backend::Program* program) {
  for (size_t c = 0, count = program->caches.size(); c < count; ++c) {
    const auto cache = static_cast<int32_t>(c);
    const auto* paged = std::get_if<PagedCache>(&program->caches[c]);
    if (paged == nullptr || paged->window > 0 || paged->type.has_value()) continue;
    const int32_t near = AddCache(program, cache, " of the first and last", paged->layers);
    CacheAt(program, near).window = kNearLast;
    CacheAt(program, near).kept = kNearFirst;
    for (AttentionOp* op : AttentionsOf(program)) {
      if (op->cache == cache) op->near = near;
    }
  }
}

}  // namespace

StatusOr<std::shared_ptr<const backend::Program>> WithKvTiers(const backend::Program& program, KvTiers tiers,
                                                              backend::KvType type) {
  if (type != backend::KvType::kFp4 && type != backend::KvType::kK8V4) {
    return Error(Code::kInvalidArgument, "KV type ", quant::kKvTypeNames[static_cast<uint32_t>(type)],
                 " with some of its tokens or layers in fp8: only fp4 and k8v4 are smaller");
  }
  for (const backend::Op& op : program.ops) {
    if (std::get_if<backend::LatentOp>(&op) == nullptr) continue;
    return Error(Code::kUnsupported, "latents with some of their tokens or layers in fp8: they have one cache");
  }
  auto out = std::make_shared<backend::Program>(program);
  for (backend::Cache& cache : out->caches) {
    auto* paged = std::get_if<PagedCache>(&cache);
    if (paged != nullptr && paged->window > 0) paged->type = kNearType;
  }
  if (tiers.outer) MoveOuter(out.get());
  if (tiers.near) AddNear(out.get());
  RETURN_IF_ERROR(backend::Check(*out));
  return std::shared_ptr<const backend::Program>(std::move(out));
}

}  // namespace mainarch::model
