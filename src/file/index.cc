// SPDX-License-Identifier: MIT
#include "file/index.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/hash_map.h"
#include "file/json.h"

namespace mainarch::file {
namespace {

using simdjson::dom::object;

constexpr size_t kMaxFileNameBytes = 255;  // NAME_MAX
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxValues = size_t{1} << 22;  // two a tensor, of which the largest have 1.5 x 10^5
constexpr absl::string_view kExtension = ".safetensors";

// Empty when `name` is the name of a file in the same directory, else what is wrong with it.
absl::string_view WhatIsWrongWith(absl::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxFileNameBytes) return "is longer than the limit of 255 bytes";
  if (absl::StrContains(name, '/') || absl::StrContains(name, '\\')) {
    return "is a path, but shards must lie beside the index";
  }
  if (name.front() == '.') return "begins with a dot";
  for (const char c : name) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) return "has a control character";
  }
  if (!absl::EndsWith(name, kExtension)) return "does not end in .safetensors";
  return {};
}

}  // namespace

StatusOr<CheckpointIndex> ParseCheckpointIndex(absl::string_view json, absl::string_view file) {
  ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, file, {kMaxIndexBytes, kMaxDepth, kMaxValues}));
  ASSIGN_OR_RETURN(const object root, document.RootObject());
  simdjson::dom::element map_element;
  if (root.at_key("weight_map").get(map_element) != simdjson::SUCCESS) {
    return Error(Code::kBadModel, file, ": no key \"weight_map\"");
  }
  object map;
  if (map_element.get(map) != simdjson::SUCCESS) {
    return Error(Code::kBadModel, file, ": weight_map is ", KindOf(map_element), ", not an object");
  }
  CheckpointIndex index;
  HashMap<absl::string_view, size_t> shard_numbers;
  std::vector<absl::string_view> entry_shards;
  for (const auto& member : map) {
    const absl::string_view tensor = View(member.key);
    std::string_view text;
    if (member.value.get(text) != simdjson::SUCCESS) {
      return Error(Code::kBadModel, file, ": weight_map: tensor ", Quote(tensor), " is in ",
                   Show(member.value), ", not a file name");
    }
    const absl::string_view shard = View(text);
    const absl::string_view wrong = WhatIsWrongWith(shard);
    if (!wrong.empty()) {
      return Error(Code::kBadModel, file, ": weight_map: tensor ", Quote(tensor), ": file name ",
                   Quote(shard), " ", wrong);
    }
    if (shard_numbers.emplace(shard, 0).second && shard_numbers.size() > kMaxShards) {
      return Error(Code::kBadModel, file, ": weight_map: tensor ", Quote(tensor), ": file ",
                   Quote(shard), " is one more than the limit of ", kMaxShards, " shards");
    }
    index.entries.push_back({std::string(tensor), 0});
    entry_shards.push_back(shard);
  }
  if (index.entries.empty()) return Error(Code::kBadModel, file, ": weight_map is empty");
  for (const auto& shard : shard_numbers) index.shards.emplace_back(shard.first);
  std::sort(index.shards.begin(), index.shards.end());
  for (size_t i = 0; i < index.shards.size(); ++i) shard_numbers[index.shards[i]] = i;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    index.entries[i].shard = shard_numbers[entry_shards[i]];
  }
  return index;
}

}  // namespace mainarch::file
