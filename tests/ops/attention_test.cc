// SPDX-License-Identifier: MIT
//
// Attention over paged KV against fp64, for every KV type and target; KV rounding against the
// formats' own conversions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "backend/cpu/dispatch.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "support/test.h"

using namespace mainarch;
using cpu::KvFormat;

namespace {

struct Cache {
  KvFormat format;
  cpu::KvLayout kv;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> pages;
  std::vector<std::vector<double>> k, v;  // as stored

  Cache(KvFormat f, int32_t key_dim, int32_t value_dim, int64_t tokens)
      : format(f), kv{f, key_dim, value_dim} {
    pages.resize(static_cast<size_t>(tokens + 15) / 16);
    std::iota(pages.rbegin(), pages.rend(), 0);
    bytes.resize((pages.size() / cpu::kKvChunkPages + 1) * ChunkBytes());
  }

  size_t ChunkBytes() const { return cpu::kKvChunkPages * cpu::KvPageBytes(kv); }

  std::vector<double> Stored(const std::vector<float>& x) const {
    std::vector<double> out;
    float max = 0;
    for (float value : x) max = std::max(max, std::fabs(value));
    const float scale = max > 0 ? max * (1.0f / 448) : 1;
    for (float value : x) {
      if (format == KvFormat::kF32) out.push_back(value);
      if (format == KvFormat::kBF16)
        out.push_back(quant::FloatFromBf16(quant::Bf16FromFloat(value)));
      if (format == KvFormat::kFp8) {
        out.push_back(double{scale} *
                      quant::FloatFromFp8E4m3(quant::Fp8E4m3FromFloat(value / scale)));
      }
    }
    return out;
  }

  void Append(const cpu::Kernels& kernels, std::mt19937* rng) {
    std::normal_distribution<float> normal;
    std::vector<float> key(static_cast<size_t>(kv.key_dim));
    std::vector<float> value(static_cast<size_t>(kv.value_dim));
    for (float& x : key) x = normal(*rng);
    for (float& x : value) x = normal(*rng) * 3;
    const size_t token = k.size();
    const size_t page = pages[token / 16];
    kernels.kv_write({kv, bytes.data() + page / cpu::kKvChunkPages * ChunkBytes(),
                      static_cast<int32_t>(page % cpu::kKvChunkPages),
                      static_cast<int32_t>(token % 16), key.data(), value.data()});
    k.push_back(Stored(key));
    v.push_back(Stored(value));
  }
};

// Beyond plain attention: a window, a sink's score, a gate.
struct Extras {
  int64_t window = 0;
  const float* sink = nullptr;
  const std::vector<float>* gate = nullptr;
  int64_t FirstOf(int64_t visible) const {
    return window == 0 ? 0 : std::max<int64_t>(0, visible - window);
  }
};

std::vector<double> Reference(const Cache& cache, const std::vector<float>& q, int64_t visible,
                              const Extras& extras) {
  std::vector<double> p;
  double max = extras.sink == nullptr ? -INFINITY : double{*extras.sink}, sum = 0;
  const size_t first = static_cast<size_t>(extras.FirstOf(visible));
  for (int64_t t = extras.FirstOf(visible); t < visible; ++t) {
    double s = 0;
    for (size_t d = 0; d < q.size(); ++d) s += double{q[d]} * cache.k[static_cast<size_t>(t)][d];
    p.push_back(s);
    max = std::max(max, s);
  }
  if (extras.sink != nullptr) sum = std::exp(double{*extras.sink} - max);
  for (double& s : p) sum += s = std::exp(s - max);
  std::vector<double> out(static_cast<size_t>(cache.kv.value_dim), 0.0);
  for (size_t t = 0; t < p.size(); ++t) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += p[t] / sum * cache.v[first + t][d];
  }
  for (size_t d = 0; extras.gate != nullptr && d < out.size(); ++d) {
    out[d] /= 1 + std::exp(-double{(*extras.gate)[d]});
  }
  return out;
}

// All splits of some queries, merged in order.
std::vector<std::vector<float>> Attend(const cpu::Kernels& kernels, const Cache& cache,
                                       const std::vector<std::vector<float>>& q,
                                       const std::vector<int64_t>& visible,
                                       const Extras& extras = {}) {
  const size_t n = q.size(), dim = static_cast<size_t>(cache.kv.value_dim);
  std::vector<float> scratch(cpu::kMaxBlockRows * cpu::kAttentionSplit);
  std::vector<std::vector<float>> part(n, std::vector<float>(dim)), out = part;
  std::vector<std::array<float, 2>> part_state(n), state(n, {-INFINITY, 0});
  const int64_t end = *std::max_element(visible.begin(), visible.end());
  const int64_t first = extras.FirstOf(*std::min_element(visible.begin(), visible.end()));
  // Splits and pages wholly behind every window are not looked at: they may be gone.
  const std::vector<uint32_t> kept(cache.pages.begin() + first / 16, cache.pages.end());
  for (int64_t begin = first / cpu::kAttentionSplit * cpu::kAttentionSplit; begin < end; begin += cpu::kAttentionSplit) {
    cpu::AttendArgs args;
    args.kv = cache.kv;
    args.chunks = cache.bytes.data();
    args.chunk_stride = cache.ChunkBytes();
    args.page_ids = kept.data();
    args.first_page = static_cast<uint32_t>(first / 16);
    args.begin = begin;
    args.end = begin + cpu::kAttentionSplit;
    args.queries = static_cast<int32_t>(n);
    args.scratch = scratch.data();
    for (size_t i = 0; i < n; ++i) {
      args.q[i] = q[i].data();
      args.first[i] = extras.FirstOf(visible[i]);
      args.visible[i] = visible[i];
      args.out[i] = part[i].data();
      args.max_sum[i] = part_state[i].data();
    }
    kernels.attend(args);
    for (size_t i = 0; i < n; ++i) {
      kernels.merge_split(part[i].data(), part_state[i].data(), cache.kv.value_dim, out[i].data(),
                          state[i].data());
    }
  }
  const std::vector<float> zeros(dim, 0.0f);
  for (size_t i = 0; i < n; ++i) {
    const float sink[2] = {extras.sink == nullptr ? 0 : *extras.sink, 1};
    if (extras.sink != nullptr) {
      kernels.merge_split(zeros.data(), sink, cache.kv.value_dim, out[i].data(), state[i].data());
    }
    kernels.scale(out[i].data(), 1 / state[i][1], static_cast<int64_t>(dim));
    if (extras.gate != nullptr) {
      kernels.gate(out[i].data(), extras.gate->data(), static_cast<int64_t>(dim));
    }
  }
  return out;
}

}  // namespace

TEST(attention_matches_fp64_and_queries_do_not_mix) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8}) {
      for (int32_t dim : {16, 32, 48, 128, 208, 256}) {
        for (int64_t tokens : {1, 16, 17, 511, 512, 513, 1100}) {
          Cache cache(format, dim, dim, tokens);
          for (int64_t t = 0; t < tokens; ++t) cache.Append(*kernels, &rng);
          std::vector<std::vector<float>> q;
          std::vector<int64_t> visible;
          for (int64_t i = 0; i < 8; ++i) {
            std::vector<float> one(static_cast<size_t>(dim));
            for (float& x : one) x = normal(rng) / std::sqrt(static_cast<float>(dim));
            q.push_back(one);
            visible.push_back(std::max<int64_t>(1, tokens - i * tokens / 8));
          }
          const auto out = Attend(*kernels, cache, q, visible);
          for (size_t i = 0; i < q.size(); ++i) {
            const std::vector<double> want = Reference(cache, q[i], visible[i], {});
            // The stored scale of fp8 is one rounding away from the test's.
            for (size_t d = 0; d < want.size(); ++d) CHECK_LE(std::fabs(out[i][d] - want[d]), 2e-5);
            const auto alone = Attend(*kernels, cache, {q[i]}, {visible[i]});
            CHECK(std::memcmp(alone[0].data(), out[i].data(), out[i].size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

// Keys and values of different sizes, windows, sinks and gates; and a window's bits do not depend on
// what stands before it, nor on whether those pages are still there.
TEST(attention_with_extras_matches_fp64) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8}) {
      for (const auto& [key_dim, value_dim] : {std::pair{64, 128}, {192, 128}, {48, 16}}) {
        Cache cache(format, key_dim, value_dim, 1100);
        for (int t = 0; t < 1100; ++t) cache.Append(*kernels, &rng);
        std::vector<float> gate(static_cast<size_t>(value_dim));
        for (float& g : gate) g = normal(rng) * 3;
        for (const int64_t window : {0, 1, 17, 128, 513, 1000}) {
          for (const float sink : {-4.0f, 0.5f, 20.0f}) {
            Extras extras = {window, &sink, &gate};
            std::vector<std::vector<float>> q;
            std::vector<int64_t> visible;
            for (int64_t i = 0; i < 7; ++i) {
              std::vector<float> one(static_cast<size_t>(key_dim));
              for (float& x : one) x = normal(rng) / std::sqrt(static_cast<float>(key_dim));
              q.push_back(one);
              visible.push_back(1100 - i * 90);
            }
            const auto out = Attend(*kernels, cache, q, visible, extras);
            for (size_t i = 0; i < q.size(); ++i) {
              const std::vector<double> want = Reference(cache, q[i], visible[i], extras);
              for (size_t d = 0; d < want.size(); ++d) {
                CHECK_LE(std::fabs(out[i][d] - want[d]), 3e-5);
              }
              const auto alone = Attend(*kernels, cache, {q[i]}, {visible[i]}, extras);
              CHECK(std::memcmp(alone[0].data(), out[i].data(), out[i].size() * sizeof(float)) == 0);
            }
          }
        }
      }
    }
  }
}

TEST(a_head_without_norm_or_rope_is_only_scaled) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(48), cos(8), sin(8), out(48);
  for (float& value : x) value = normal(rng);
  for (size_t i = 0; i < 8; ++i) {
    cos[i] = std::cos(static_cast<float>(i));
    sin[i] = std::sin(static_cast<float>(i));
  }
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    kernels->norm_rope(x.data(), nullptr, 1e-6f, 48, nullptr, nullptr, 0, 0.25f, out.data());
    for (size_t i = 0; i < 48; ++i) CHECK_EQ(out[i], x[i] * 0.25f);
    // The first 16 of 48 dimensions turn, pairs (i, i + 8).
    kernels->norm_rope(x.data(), nullptr, 1e-6f, 48, cos.data(), sin.data(), 8, 1.0f, out.data());
    for (size_t i = 0; i < 8; ++i) {
      const double a = double{x[i]}, b = double{x[i + 8]};
      CHECK_LE(std::fabs(double{out[i]} - (a * double{cos[i]} - b * double{sin[i]})), 1e-6);
      CHECK_LE(std::fabs(double{out[i + 8]} - (b * double{cos[i]} + a * double{sin[i]})), 1e-6);
    }
    for (size_t i = 16; i < 48; ++i) CHECK_EQ(out[i], x[i]);
  }
}

TEST(kv_rounds_as_its_format_says) {
  // Every e4m3fn magnitude and the middles between neighbours, through the fp8 writer.
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (int code = 0; code < 0x7e; ++code) {
      const float low = quant::FloatFromFp8E4m3(static_cast<uint8_t>(code));
      const float high = quant::FloatFromFp8E4m3(static_cast<uint8_t>(code + 1));
      std::vector<float> k(16, 0.0f), v(16, 0.0f);
      k[0] = v[0] = 448;  // makes the scale 1
      k[1] = v[1] = low;
      k[2] = v[2] = -low;
      k[3] = v[3] = (low + high) / 2;
      k[4] = v[4] = std::nextafter((low + high) / 2, 0.0f);
      k[5] = v[5] = std::nextafter((low + high) / 2, 1000.0f);
      // The third page of a chunk: K of all pages, then V of all.
      std::vector<uint8_t> chunk(cpu::kKvChunkPages * cpu::KvPageBytes({KvFormat::kFp8, 16, 16}));
      kernels->kv_write({{KvFormat::kFp8, 16, 16}, chunk.data(), 2, 3, k.data(), v.data()});
      const uint8_t* page = chunk.data() + 2 * 16 * 16;
      const uint8_t* stored = page + cpu::kKvChunkPages * 16 * 16 + 3 * 16;
      for (size_t i = 0; i < 16; ++i) CHECK_EQ(+stored[i], +quant::Fp8E4m3FromFloat(v[i]));
      for (size_t d = 0; d < 16; ++d) {
        const size_t at = d / 4 * 64 + 16 * (3 / 4) + 2 * 3 + 8 * (d % 4 / 2) + d % 2;
        CHECK_EQ(+page[at], +quant::Fp8E4m3FromFloat(k[d]));
      }
    }
  }
}
