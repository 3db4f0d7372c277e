// SPDX-License-Identifier: MIT
#include "file/index.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  const auto index = file::ParseCheckpointIndex({reinterpret_cast<const char*>(data), size}, "i");
  if (!index.ok()) {
    fuzz::CheckError(index.status(), "i: ");
    return 0;
  }
  FUZZ_CHECK(!index->entries.empty());
  for (const auto& entry : index->entries) FUZZ_CHECK(entry.shard < index->shards.size());
  for (size_t i = 0; i < index->shards.size(); ++i) {
    const std::string& shard = index->shards[i];
    FUZZ_CHECK(!shard.empty() && shard.size() <= 255 && shard.front() != '.');
    FUZZ_CHECK(shard.find('/') == std::string::npos);
    FUZZ_CHECK(shard.find('\0') == std::string::npos);
    FUZZ_CHECK(i == 0 || index->shards[i - 1] < shard);
  }
  return 0;
}
