// SPDX-License-Identifier: MIT
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr char kExact[] = "exact: bytes and integers";

Case StreamReadCase(size_t bytes, uint32_t workgroups) {
  const std::vector<uint8_t> source = Random(bytes).Raw(bytes);
  const std::vector<uint32_t> words = FromBytes<uint32_t>(source);
  // Word 4j + c belongs to thread j mod (256 * workgroups).
  std::vector<uint32_t> sums(workgroups);
  for (size_t i = 0; i < words.size(); ++i) sums[i / 4 / kThreads % workgroups] += words[i];
  Case out;
  out.name = absl::StrCat("stream_read ", bytes, " bytes, ", workgroups, " workgroups");
  out.bound = kExact;
  out.buffers = {{"source", source}, {"sums", Bytes(workgroups * 4, 0xee)}};
  out.steps = {{MakeLaunch<StreamReadArgs>("stream_read", workgroups,
                                           [bytes](StreamReadArgs& args, const Addresses& at) {
                                             args.source = at.Of<const uint32_t>("source");
                                             args.sums = at.Of<uint32_t>("sums");
                                             args.bytes = bytes;
                                           })}};
  out.expectations = {ExactlyValues("sums", sums)};
  return out;
}

Case FillCase(size_t bytes, uint32_t workgroups) {
  Bytes want(bytes + 64, 0xee);  // what lies behind must stay
  const std::vector<uint32_t> pattern = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c};
  for (size_t i = 0; i < bytes; ++i) want[i] = static_cast<uint8_t>(i % 16);
  Case out;
  out.name = absl::StrCat("fill ", bytes, " bytes, ", workgroups, " workgroups");
  out.bound = kExact;
  out.buffers = {{"destination", Bytes(bytes + 64, 0xee)}};
  out.steps = {{MakeLaunch<FillArgs>("fill", workgroups, [=](FillArgs& args, const Addresses& at) {
    args.destination = at.Of<uint8_t>("destination");
    args.bytes = bytes;
    for (int i = 0; i < 4; ++i) args.pattern[i] = pattern[i];
  })}};
  out.expectations = {Exactly("destination", want)};
  return out;
}

Case CopyCase(const std::string& kernel, size_t bytes, uint32_t workgroups) {
  const Bytes source = Random(bytes + 1).Raw(bytes + 64);
  Bytes want(source.begin(), source.begin() + bytes);
  want.resize(bytes + 64, 0xee);
  Case out;
  out.name = absl::StrCat(kernel, " ", bytes, " bytes, ", workgroups, " workgroups");
  out.bound = kExact;
  out.buffers = {{"source", source}, {"destination", Bytes(bytes + 64, 0xee)}};
  out.steps = {{MakeLaunch<CopyArgs>(kernel, workgroups, [=](CopyArgs& args, const Addresses& at) {
    args.source = at.Of<const uint8_t>("source");
    args.destination = at.Of<uint8_t>("destination");
    args.bytes = bytes;
  })}};
  out.expectations = {Exactly("destination", want)};
  return out;
}

}  // namespace

std::vector<Case> MemoryCases() {
  return {
      StreamReadCase(16, 1),
      StreamReadCase(4096 * 9 + 48, 1),
      StreamReadCase(262144 + 16, 3),
      FillCase(5, 1),
      FillCase(4096 * 3 + 13, 2),
      CopyCase("copy", 1, 1),
      CopyCase("copy", 4096 * 5 + 15, 2),
      CopyCase("lds_dma_copy", 4096, 1),
      CopyCase("lds_dma_copy", 4096 * 7, 2),
  };
}

}  // namespace mainarch::kernels_test
