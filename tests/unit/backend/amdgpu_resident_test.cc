// SPDX-License-Identifier: MIT
//
// The copy of the decoder's code that the resident kernel jumps into, and which kernels it has room for.
#include "backend/amdgpu/resident.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "backend/amdgpu/threaded.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::amdgpu;

namespace {

uint32_t WordAt(absl::Span<const uint8_t> bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

constexpr uint32_t kEnd = 0xbf810000;  // s_endpgm
constexpr uint32_t kNop = 0xbf800000;

}  // namespace

TEST(threaded_code_differs_in_its_ends_alone) {
  constexpr uint64_t kBack = 0x7f1234567800;
  for (const isa::KernelImage& image : isa::KernelImages()) {
    if (image.name != "decoder") continue;
    const std::vector<uint8_t> threaded = ThreadedImage(image, kBack);
    CHECK_EQ(threaded.size(), image.bytes.size());
    std::vector<bool> may(threaded.size());
    for (const isa::KernelInfo& kernel : image.kernels) {
      // All of the decoder's come back, and there is room for them.
      CHECK_GT(kernel.end_at, 0u);
      CHECK_OK(ResidentKindFor(kernel));
      CHECK_EQ(WordAt(image.bytes, kernel.end_at), kEnd);
      const uint32_t branch = WordAt(threaded, kernel.end_at);
      CHECK_EQ(branch >> 16, 0xbf82u);  // s_branch
      CHECK_EQ(static_cast<int64_t>(kernel.end_at) + 4 + 4 * static_cast<int16_t>(branch & 0xffff),
               static_cast<int64_t>(kernel.way_back_at));
      const uint32_t way[] = {0xbe8000ff, static_cast<uint32_t>(kBack), 0xbe8100ff, static_cast<uint32_t>(kBack >> 32),
                              0xbe801d00};
      for (size_t i = 0; i < 5; ++i) {
        CHECK_EQ(WordAt(image.bytes, kernel.way_back_at + 4 * i), kNop);  // nobody runs these
        CHECK_EQ(WordAt(threaded, kernel.way_back_at + 4 * i), way[i]);
      }
      std::fill_n(may.begin() + kernel.end_at, 4, true);
      std::fill_n(may.begin() + kernel.way_back_at, 20, true);
    }
    size_t differ = 0;
    for (size_t i = 0; i < threaded.size(); ++i) differ += threaded[i] != image.bytes[i] && !may[i];
    CHECK_EQ(differ, 0u);
  }
}

TEST(a_kernel_goes_where_it_has_room_or_says_what_it_lacks) {
  const auto kernel = [](uint32_t vgprs, uint32_t agprs, uint32_t lds, uint32_t end = 64) {
    isa::KernelInfo info = {};
    info.name = "k";
    info.vgprs = vgprs;
    info.agprs = agprs;
    info.lds_bytes = lds;
    info.end_at = end;
    return info;
  };
  const auto kind = [&](const isa::KernelInfo& info) {
    const StatusOr<size_t> kind = ResidentKindFor(info);
    return kind.ok() ? *kind : 9;
  };
  CHECK_EQ(kind(kernel(256, 0, 24576)), 0u);
  CHECK_EQ(kind(kernel(256, 0, 24577)), 1u);
  CHECK_EQ(kind(kernel(344, 88, 45568)), 1u);
  CHECK_EQ(kind(kernel(20, 4, 16)), 1u);
  const struct {
    isa::KernelInfo info;
    const char* says;
  } kRefused[] = {{kernel(16, 0, 45569), "45569 bytes of LDS"},
                  {kernel(257, 0, 16), "257 registers"},
                  {kernel(345, 89, 16), "89 for accumulation"},
                  {kernel(16, 0, 16, 0), "no single end"}};
  for (const auto& refused : kRefused) {
    const Status status = ResidentKindFor(refused.info).status();
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kUnsupported));
    CHECK(absl::StrContains(status.message(), refused.says));
  }
}
