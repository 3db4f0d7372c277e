// SPDX-License-Identifier: MIT
//
// Hash tables of the library. Not absl::flat_hash_map: when an allocation fails, its resize throws
// with the new capacity already set, and its destructor then frees memory it never had. std's are
// exception-safe. Strings may be looked up by any view of them.
#ifndef MAINARCH_BASE_HASH_MAP_H_
#define MAINARCH_BASE_HASH_MAP_H_

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace mainarch {

template <class Key>
struct HashOf : absl::Hash<Key> {};

template <>
struct HashOf<std::string> {
  using is_transparent = void;
  size_t operator()(absl::string_view text) const { return absl::Hash<absl::string_view>()(text); }
};

template <class Key, class Value>
using HashMap = std::unordered_map<Key, Value, HashOf<Key>, std::equal_to<>>;

template <class Key>
using HashSet = std::unordered_set<Key, HashOf<Key>, std::equal_to<>>;

}  // namespace mainarch

#endif  // MAINARCH_BASE_HASH_MAP_H_
