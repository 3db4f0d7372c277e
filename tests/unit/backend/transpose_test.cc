// SPDX-License-Identifier: MIT
#include "backend/cpu/transpose.h"

#include <cstring>
#include <vector>

#include "support/test.h"

using namespace mainarch;
using cpu::WordOrder;

namespace {

constexpr int kRows = 16;

std::vector<uint8_t> Noise(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

}  // namespace

TEST(words_of_sixteen_rows_lie_side_by_side) {
  const std::vector<uint8_t> noise = Noise(kRows * 400);
  for (int64_t words = 0; words <= 40; ++words) {
    for (const bool holes : {false, true}) {
      const uint8_t* rows[kRows];
      for (int lane = 0; lane < kRows; ++lane) {
        rows[lane] = holes && lane % 5 == 1 ? nullptr : noise.data() + lane * 401 - lane;
      }
      std::vector<uint8_t> out(static_cast<size_t>(words) * 64 + 64, 0xee);
      cpu::TransposeWords(rows, words, WordOrder::kPlain, out.data());
      for (int64_t i = 0; i < words; ++i) {
        for (int lane = 0; lane < kRows; ++lane) {
          const uint8_t zeros[4] = {};
          const uint8_t* want = rows[lane] == nullptr ? zeros : rows[lane] + 4 * i;
          CHECK(std::memcmp(out.data() + 64 * i + 4 * lane, want, 4) == 0);
        }
      }
      for (size_t i = static_cast<size_t>(words) * 64; i < out.size(); ++i) CHECK_EQ(out[i], 0xee);
    }
  }
}

TEST(bytes_of_four_columns_go_where_the_panel_has_them) {
  const std::vector<uint8_t> noise = Noise(kRows * 4);
  const uint8_t* rows[kRows];
  for (int lane = 0; lane < kRows; ++lane) rows[lane] = noise.data() + 4 * lane;
  uint8_t out[64];
  cpu::TransposeWords(rows, 1, WordOrder::kFp8, out);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 4; ++c) {
      CHECK_EQ(out[16 * (r / 4) + 2 * (r % 4) + 8 * (c / 2) + c % 2], rows[r][c]);
    }
  }
}

TEST(nibbles_of_eight_columns_go_where_the_panel_has_them) {
  const std::vector<uint8_t> noise = Noise(kRows * 4);
  const uint8_t* rows[kRows];
  for (int lane = 0; lane < kRows; ++lane) rows[lane] = noise.data() + 4 * lane;
  uint8_t out[64];
  cpu::TransposeWords(rows, 1, WordOrder::kMxfp4, out);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 8; ++c) {
      // The file has even columns in low nibbles; the panel's word 2 r + c % 2 has nibble c / 2.
      const int want = rows[r][c / 2] >> (c % 2 * 4) & 15;
      uint16_t word;
      std::memcpy(&word, out + 2 * (2 * r + c % 2), sizeof(word));
      CHECK_EQ(word >> (c / 2 * 4) & 15, want);
    }
  }
}

TEST(every_cpu_transposes_alike) {
  const std::vector<uint8_t> noise = Noise(kRows * 300);
  for (const WordOrder order : {WordOrder::kPlain, WordOrder::kFp8, WordOrder::kMxfp4}) {
    for (int64_t words = 1; words <= 70; ++words) {
      const uint8_t* rows[kRows];
      for (int lane = 0; lane < kRows; ++lane) {
        rows[lane] = (lane * 7 + words) % 11 == 0 ? nullptr : noise.data() + lane * 299 + 1;
      }
      std::vector<uint8_t> a(static_cast<size_t>(words) * 64), b(a.size());
      cpu::TransposeWords(rows, words, order, a.data());
      cpu::PortableTransposeWords(rows, words, order, b.data());
      CHECK(a == b);
    }
  }
}
