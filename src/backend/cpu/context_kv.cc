// SPDX-License-Identifier: MIT
//
// KV pages as plain memory: copied whole, and read back token by token.
#include <cstring>

#include "backend/cpu/context.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"

namespace mainarch::cpu {
namespace {

float ElementAt(KvFormat format, const uint8_t* side, int32_t index, float scale) {
  switch (format) {
    case KvFormat::kF32:
      return reinterpret_cast<const float*>(side)[index];
    case KvFormat::kBF16:
      return quant::FloatFromBf16(reinterpret_cast<const uint16_t*>(side)[index]);
    case KvFormat::kFp8:
      return quant::FloatFromFp8E4m3(side[index]) * scale;
  }
  return 0;
}

}  // namespace

Status CpuContext::CopyPage(int32_t cache, uint32_t from, uint32_t to) {
  if (cache != 0 || from >= pages() || to >= pages()) {
    return Error(Code::kInternal, "copy of page ", from, " to ", to, " of cache ", cache,
                 " in a pool of ", pages());
  }
  const size_t side = KvSideBytes(kv_format_, program_.head_dim);
  const size_t scales = KvScaleBytes(kv_format_);
  const size_t from_page = from % kKvChunkPages, to_page = to % kKvChunkPages;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    for (int32_t layer = 0; layer < program_.kv_layers; ++layer) {
      for (int32_t head = 0; head < program_.kv_heads; ++head) {
        uint8_t* const chunks = KvHead(rank, layer, head);
        uint8_t* source = chunks + from / kKvChunkPages * KvChunkStride();
        uint8_t* target = chunks + to / kKvChunkPages * KvChunkStride();
        for (const size_t piece : {side, side, scales}) {  // K, V and their scales
          std::memcpy(target + to_page * piece, source + from_page * piece, piece);
          source += kKvChunkPages * piece;
          target += kKvChunkPages * piece;
        }
      }
    }
  }
  return OkStatus();
}

StatusOr<backend::KvToken> CpuContext::ReadKv(int32_t cache, int32_t kv_layer,
                                              uint32_t page, uint32_t slot) const {
  if (cache != 0 || kv_layer < 0 || kv_layer >= program_.kv_layers || page >= pages() ||
      slot >= uint32_t{kLanes}) {
    return Error(Code::kInternal, "K and V of cache ", cache, ", layer ", kv_layer, ", page ", page,
                 ", slot ", slot, " in a pool of ", program_.kv_layers, " layers and ", pages(),
                 " pages");
  }
  const int32_t dim = program_.head_dim;
  const size_t side = KvSideBytes(kv_format_, dim);
  const int32_t in_chunk = static_cast<int32_t>(page % kKvChunkPages);
  const int32_t token = static_cast<int32_t>(slot);
  backend::KvToken out;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    for (int32_t head = 0; head < program_.kv_heads; ++head) {
      const uint8_t* chunk = KvHead(rank, kv_layer, head) + page / kKvChunkPages * KvChunkStride();
      const float* scales = reinterpret_cast<const float*>(chunk + 2 * kKvChunkPages * side);
      const uint8_t* k = chunk + static_cast<size_t>(in_chunk) * side;
      const uint8_t* v = k + kKvChunkPages * side;
      const bool scaled = kv_format_ == KvFormat::kFp8;
      const float k_scale = scaled ? scales[KvScaleAt(in_chunk, 0, token)] : 1.0f;
      const float v_scale = scaled ? scales[KvScaleAt(in_chunk, 1, token)] : 1.0f;
      for (int32_t d = 0; d < dim; ++d) {
        out.k.push_back(ElementAt(kv_format_, k, KeyAt(kv_format_, token, d), k_scale));
        out.v.push_back(ElementAt(kv_format_, v, ValueAt(token, dim, d), v_scale));
      }
    }
  }
  return out;
}

}  // namespace mainarch::cpu
