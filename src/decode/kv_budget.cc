// SPDX-License-Identifier: MIT
#include "decode/kv_budget.h"

#include <algorithm>

namespace mainarch::decode {

StatusOr<uint64_t> PagesWithin(const KvWish& wish, const backend::KvRoom& room) {
  if (room.page_bytes == 0) return wish.pages;
  const bool by_caller = wish.memory_bytes > 0 && wish.memory_bytes < room.bytes;
  const uint64_t bytes = by_caller ? wish.memory_bytes : room.bytes;
  const uint64_t most = bytes / room.page_bytes;
  if (wish.pages <= most) return wish.pages;
  if (!wish.fixed && most > 0) return most;
  const uint64_t pages = wish.fixed ? wish.pages : 1;
  // Fewer than 2^31 pages of less than 2^33 bytes: no overflow.
  return Error(Code::kOutOfDeviceMemory, "kv_tokens ", pages * backend::kPageTokens, " takes ",
               pages * room.page_bytes, " bytes: more than the ", bytes,
               by_caller ? " of memory_bytes" : " of the device");
}

StatusOr<uint64_t> FewerPages(const KvWish& wish, const backend::KvRoom& room,
                              uint64_t made_bytes) {
  // Where a page's size is not known, all that there is counts as pages.
  const uint64_t page_bytes =
      room.page_bytes != 0 ? room.page_bytes : std::max<uint64_t>(made_bytes / wish.pages, 1);
  const uint64_t drop = (made_bytes - wish.memory_bytes - 1) / page_bytes + 1;
  if (!wish.fixed && drop < wish.pages) return wish.pages - drop;
  return Error(Code::kOutOfDeviceMemory, "a KV cache of ", wish.pages * backend::kPageTokens,
               " tokens, ", page_bytes, " bytes for ", backend::kPageTokens,
               ", and activations take ", made_bytes, " bytes: more than memory_bytes, ",
               wish.memory_bytes);
}

}  // namespace mainarch::decode
