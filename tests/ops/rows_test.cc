// SPDX-License-Identifier: MIT
//
// Operators on single rows against fp64.
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/dispatch.h"
#include "support/test.h"

using namespace mainarch;

TEST(rms_norm_matches_fp64) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (size_t n : {1u, 15u, 16u, 33u, 128u, 1000u}) {
      for (float size : {1e-4f, 1.0f, 1e3f}) {
        std::vector<float> x(n), w(n), out(n);
        for (float& v : x) v = size * normal(rng);
        for (float& v : w) v = normal(rng);
        kernels->rms_norm(x.data(), w.data(), 1e-6f, static_cast<int64_t>(n), out.data());
        double sum = 0;
        for (float v : x) sum += double{v} * double{v};
        const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-6);
        for (size_t i = 0; i < n; ++i) {
          const double want = double{x[i]} * scale * double{w[i]};
          CHECK_LE(std::fabs(out[i] - want), 1e-6 * std::fabs(want) + 1e-30);
        }
      }
    }
  }
}

TEST(rotation_pairs_halves_and_leaves_the_rest) {
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    std::vector<float> x(64), w(64, 1.0f), cos(16), sin(16), out(64), normed(64);
    for (size_t i = 0; i < 64; ++i) x[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < 16; ++i) {
      cos[i] = std::cos(0.1f * static_cast<float>(i));
      sin[i] = std::sin(0.1f * static_cast<float>(i));
    }
    kernels->rms_norm(x.data(), w.data(), 1e-6f, 64, normed.data());
    kernels->norm_rope(x.data(), w.data(), 1e-6f, 64, cos.data(), sin.data(), 16, 0.5f, out.data());
    for (size_t i = 0; i < 64; ++i) {
      float want = normed[i];
      if (i < 16) want = normed[i] * cos[i] - normed[i + 16] * sin[i];
      if (i >= 16 && i < 32) want = normed[i] * cos[i - 16] + normed[i - 16] * sin[i - 16];
      CHECK_LE(std::fabs(out[i] - 0.5f * want), 1e-6f);
    }
  }
}

TEST(softmax_matches_fp64) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (size_t n : {1u, 4u, 16u, 17u, 128u, 513u}) {
      for (float size : {0.1f, 5.0f, 80.0f}) {
        std::vector<float> x(n);
        for (float& v : x) v = size * normal(rng);
        std::vector<double> want(x.begin(), x.end());
        double max = -INFINITY, sum = 0;
        for (double v : want) max = std::max(max, v);
        for (double& v : want) sum += v = std::exp(v - max);
        kernels->softmax(x.data(), static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
          CHECK_LE(std::fabs(x[i] - want[i] / sum), 2e-6 * want[i] / sum + 1e-37);
        }
      }
    }
  }
}

TEST(parts_are_added_in_a_tree) {
  // (1e8 + 1) + (-1e8 + 1): in a chain the ones would be lost differently.
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    const float values[4] = {1e8f, 1.0f, -1e8f, 1.0f};
    std::vector<std::vector<float>> parts(4, std::vector<float>(16));
    std::vector<const float*> at;
    for (size_t p = 0; p < 4; ++p) {
      parts[p].assign(16, values[p]);
      at.push_back(parts[p].data());
    }
    std::vector<float> x(16, 0.5f);
    kernels->add_tree(x.data(), at.data(), 4, 16);
    const float want = 0.5f + ((values[0] + values[1]) + (values[2] + values[3]));
    for (float v : x) CHECK_EQ(v, want);
  }
}

TEST(row_loads_are_exact) {
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    std::vector<uint16_t> codes(65536);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
    std::vector<float> out(65533);
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes.data());
    kernels->load_bf16(bytes, out.data(), 65533);
    for (size_t i = 0; i < out.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, &out[i], 4);
      CHECK_EQ(bits, static_cast<uint32_t>(i) << 16);
    }
    kernels->load_f16(bytes, out.data(), 65533);
    for (size_t i = 0; i < out.size(); ++i) {
      const int exponent = static_cast<int>(i >> 10 & 31);
      const double mantissa = static_cast<double>(i & 1023);
      if (exponent == 31) {
        CHECK(mantissa == 0 ? std::isinf(out[i]) : std::isnan(out[i]));
        continue;
      }
      double want = exponent == 0 ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
      if (i & 0x8000) want = -want;
      CHECK_EQ(double{out[i]}, want);
    }
  }
}

// Every sign and exponent, mantissas at a tie and beside it, to the bit.
TEST(rounding_to_bf16_is_to_nearest_even) {
  std::vector<float> values;
  for (uint32_t top = 0; top < 0x10000; ++top) {
    for (const uint32_t below : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t bits = top << 16 | below;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      values.push_back(value);
    }
  }
  values.resize(values.size() - 3);  // no whole number of vectors
  std::vector<uint16_t> out(values.size());
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    if (kernels->to_bf16 == nullptr) continue;
    kernels->to_bf16(values.data(), out.data(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t top = static_cast<uint32_t>(i / 6);
      const uint32_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
      if (std::isnan(values[i])) {
        CHECK((out[i] & 0x7f80) == 0x7f80 && (out[i] & 0x7f) != 0);
        continue;
      }
      const uint32_t tail = below[i % 6];
      const bool up = tail > 0x8000 || (tail == 0x8000 && (top & 1) != 0);
      CHECK_EQ(uint32_t{out[i]}, top + (up ? 1 : 0));
    }
  }
}
