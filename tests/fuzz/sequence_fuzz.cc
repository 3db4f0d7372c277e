// SPDX-License-Identifier: MIT
//
// Exported sequences out of anything: a status that names what is wrong, or a state that is written
// as the very same bytes again. The input is the fields; the header before them is made here, so that
// a checksum does not keep the fuzzer out.
#include <xxhash.h>

#include <cstring>
#include <string>

#include "decode/export.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  constexpr uint64_t kFingerprint = 77;
  const absl::string_view fields(reinterpret_cast<const char*>(data), size);
  const uint32_t version = 3;
  const uint64_t numbers[3] = {kFingerprint, size, XXH64(data, size, 0)};
  std::string bytes = "MAsq";
  bytes.append(reinterpret_cast<const char*>(&version), sizeof(version));
  bytes.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  bytes.append(fields.data(), fields.size());
  for (const absl::string_view text : {absl::string_view(bytes), fields}) {
    const auto state = decode::ReadState(text, kFingerprint, 300);
    if (state.ok()) {
      FUZZ_CHECK(decode::WriteState(*state, kFingerprint) == text);
      continue;
    }
    FUZZ_CHECK(CodeOf(state.status()) == Code::kInvalidArgument ||
               CodeOf(state.status()) == Code::kUnsupported);
    FUZZ_CHECK(state.status().message().find("exported sequence: ") == 0);
    FUZZ_CHECK(state.status().message().size() < 300);
  }
  return 0;
}
