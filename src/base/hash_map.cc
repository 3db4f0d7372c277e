// SPDX-License-Identifier: MIT
#include "base/hash_map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mainarch {

const char kHashSeed = 0;

size_t HashBytes(absl::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), reinterpret_cast<uintptr_t>(&kHashSeed));
}

}  // namespace mainarch
