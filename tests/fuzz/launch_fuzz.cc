// SPDX-License-Identifier: MIT
//
// Launch files: an error names file and line in one printable line; what parses is written and
// parsed again to the same, and can be filled and compared without a step outside of a buffer.
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/launch/fill.h"
#include "cli/launch/launch_file.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto launch = cli::ParseLaunchFile(text, "fuzz");
  if (!launch.ok()) {
    fuzz::CheckError(launch.status(), "fuzz");
    return 0;
  }
  const std::string written = cli::LaunchText(*launch);
  const auto again = cli::ParseLaunchFile(written, "fuzz");
  if (written.size() > cli::kMostLaunchBytes) return 0;
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(cli::LaunchText(*again) == written);

  constexpr uint64_t kSmall = 4096;
  std::vector<std::vector<uint8_t>> held;
  for (const cli::LaunchBuffer& buffer : launch->buffers) {
    held.emplace_back(buffer.bytes <= kSmall ? buffer.bytes : 0);
    if (held.back().empty() || buffer.fill.kind == cli::Fill::Kind::kFile) continue;
    FUZZ_CHECK(cli::FillBuffer(*launch, buffer, absl::MakeSpan(held.back())).ok());
  }
  for (const cli::Expectation& expectation : launch->expectations) {
    const auto& bytes =
        held[static_cast<size_t>(cli::FindBuffer(*launch, expectation.buffer) - launch->buffers.data())];
    if (bytes.empty() || expectation.kind == cli::Expectation::Kind::kFile) continue;
    FUZZ_CHECK(cli::Compare(*launch, expectation, bytes).ok());
  }
  for (const cli::LaunchArgument& argument : launch->arguments) {
    FUZZ_CHECK(argument.size > 0 && argument.size <= 8);
    FUZZ_CHECK(argument.offset + argument.size <= cli::kMostKernargBytes);
  }
  return 0;
}
