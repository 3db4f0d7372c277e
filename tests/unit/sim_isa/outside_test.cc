// SPDX-License-Identifier: MIT
//
// What code that we did not write rests on, and our own kernels do not show: the forms that AMD's
// assembler emits, words of 8 bytes that never tear, sums that overflow both ways.
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "sim/isa/decode.h"
#include "sim/isa/lane_words.h"
#include "sim/isa/matrix_exact.h"
#include "support/test.h"

namespace mainarch::sim::isa::test {
namespace {

TEST(scaled_mfma_as_amds_assembler_writes_it) {
  // Bits 13 and 14 of the prefix are set there, and clear in LLVM's.
  const uint32_t amd[4] = {0xD3AC6000, 0x0003118C, 0xD3AD8C00, 0x84021148};
  const uint32_t llvm[4] = {0xD3AC0000, 0x0003118C, 0xD3AD8C00, 0x84021148};
  Inst a, b;
  CHECK(Decode(Isa::kGfx950, {reinterpret_cast<const uint8_t*>(amd), 16}, &a));
  CHECK(Decode(Isa::kGfx950, {reinterpret_cast<const uint8_t*>(llvm), 16}, &b));
  CHECK_EQ(Print(Isa::kGfx950, a), Print(Isa::kGfx950, b));
  CHECK(a.encoding == Encoding::kScaledMfma);
  CHECK_EQ(a.scale_opsel, 0u);
  // The others of its unused bits still must be zero.
  const uint32_t odd[4] = {0xD3AC8000, 0x0003118C, 0xD3AD8C00, 0x84021148};
  CHECK(!Decode(Isa::kGfx950, {reinterpret_cast<const uint8_t*>(odd), 16}, &a));
}

// Returns what `word`, which is the same memory, left there. As -O2 would have it, which the tests'
// own files are not compiled with: a word of another type that may not alias is then thought not to
// have changed it.
#if !defined(__clang__)
[[gnu::optimize("O2")]]
#endif
[[gnu::noinline]] uint32_t FirstHalfAfter(uint32_t* memory, MemoryWord* word, uint64_t value) {
  *memory = 1;
  *word = value;
  return *memory;
}

TEST(words_of_eight_bytes_alias_any_memory) {
  alignas(8) uint32_t memory[2] = {};
  CHECK_EQ(FirstHalfAfter(memory, reinterpret_cast<MemoryWord*>(memory), 7), 7u);
}

// {data, flag} in each 8 bytes of a 16-byte store: the reader must never see one without the other.
TEST(aligned_words_of_eight_bytes_do_not_tear) {
  constexpr uint32_t kRounds = 300'000;
  constexpr int kStride = 64;
  alignas(16) uint8_t shared[16] = {};
  std::atomic<bool> over{false};
  std::thread writer([&] {
    std::vector<uint32_t> regs(4 * kStride);
    for (uint32_t i = 1; i <= kRounds; ++i) {
      for (int k = 0; k < 4; ++k) regs[k * kStride] = i;
      StoreLane<4, kStride>(shared, regs.data());
    }
    over = true;
  });
  uint64_t torn = 0;
  std::vector<uint32_t> regs(4 * kStride);
  while (!over) {
    LoadLane<4, kStride>(shared, regs.data());
    torn += regs[0] != regs[kStride];
    torn += regs[2 * kStride] != regs[3 * kStride];
  }
  writer.join();
  CHECK_EQ(torn, 0u);
  LoadLane<4, kStride>(shared, regs.data());
  for (int k = 0; k < 4; ++k) CHECK_EQ(regs[k * kStride], kRounds);
}

TEST(lanes_of_any_width_and_place) {
  for (int shift = 0; shift < 8; ++shift) {
    uint8_t bytes[32] = {};
    const uint32_t in[3] = {0x03020100, 0x07060504, 0x0b0a0908};
    uint32_t out[3] = {};
    StoreLane<3, 1>(bytes + shift, in);
    for (int i = 0; i < 12; ++i) CHECK_EQ(bytes[shift + i], i);
    CHECK_EQ(bytes[shift + 12], 0);
    LoadLane<3, 1>(bytes + shift, out);
    for (int k = 0; k < 3; ++k) CHECK_EQ(out[k], in[k]);
  }
}

float Dot(float c, float a0, float b0, float a1, float b1) {
  ExactRule rule;
  rule.group = 2;
  rule.a = rule.b = {7, -126};  // bf16
  const float a[2] = {a0, a1}, b[2] = {b0, b1};
  return ExactDot(rule, a, 1, b, 1, 2, c, 0);
}

TEST(infinite_one_way_and_too_large_the_other_is_no_number) {
  const float inf = INFINITY, big = 0x1p100f;
  CHECK(std::isnan(Dot(inf, -big, big, 0, 0)));
  CHECK(std::isnan(Dot(-inf, big, big, 0, 0)));
  CHECK(std::isnan(Dot(0, inf, 1, -big, big)));
  CHECK(std::isnan(Dot(0, big, big, -big, big)));
  CHECK(std::isnan(Dot(NAN, 1, 1, 0, 0)));
  CHECK_EQ(Dot(inf, big, big, 1, 1), inf);
  CHECK_EQ(Dot(0, big, big, 1, 1), inf);
  CHECK_EQ(Dot(-inf, -big, big, 1, 1), -inf);
  CHECK_EQ(Dot(1, 2, 3, 4, 5), 27.0f);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
