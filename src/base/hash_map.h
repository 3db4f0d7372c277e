// SPDX-License-Identifier: MIT
//
// Hash tables of the library. Not absl::flat_hash_map: when an allocation fails, its resize throws
// with the new capacity already set, and its destructor then frees memory it never had. std's are
// exception-safe. Strings may be looked up by any view of them.
//
// Hashes differ from process to process where addresses do, so that no file can be made whose names
// all collide; nothing may depend on the order of a table.
#ifndef MAINARCH_BASE_HASH_MAP_H_
#define MAINARCH_BASE_HASH_MAP_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/string_view.h"

namespace mainarch {

extern const char kHashSeed;  // its address is the seed
size_t HashBytes(absl::string_view bytes);

// The finaliser of splitmix64: all bits of the number reach all bits of the hash.
inline size_t HashNumber(uint64_t number) {
  number ^= reinterpret_cast<uintptr_t>(&kHashSeed);
  number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
  number = (number ^ number >> 27) * 0x94D049BB133111EBu;
  return number ^ number >> 31;
}

template <class Key>
struct HashOf;

template <class Key>
  requires std::integral<Key> || std::is_enum_v<Key>
struct HashOf<Key> {
  size_t operator()(Key key) const { return HashNumber(static_cast<uint64_t>(key)); }
};

template <class T>
struct HashOf<T*> {
  size_t operator()(const T* key) const { return HashNumber(reinterpret_cast<uintptr_t>(key)); }
};

template <class Key>
  requires std::same_as<Key, std::string> || std::same_as<Key, absl::string_view>
struct HashOf<Key> {
  using is_transparent = void;
  size_t operator()(absl::string_view text) const { return HashBytes(text); }
};

template <class Key, class Value>
using HashMap = std::unordered_map<Key, Value, HashOf<Key>, std::equal_to<>>;

template <class Key>
using HashSet = std::unordered_set<Key, HashOf<Key>, std::equal_to<>>;

}  // namespace mainarch

#endif  // MAINARCH_BASE_HASH_MAP_H_
