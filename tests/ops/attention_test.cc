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
  int32_t head_dim;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> pages;
  std::vector<std::vector<double>> k, v;  // as stored

  Cache(KvFormat f, int32_t d, int64_t tokens) : format(f), head_dim(d) {
    pages.resize(static_cast<size_t>(tokens + 15) / 16);
    std::iota(pages.rbegin(), pages.rend(), 0);
    bytes.resize((pages.size() / cpu::kKvChunkPages + 1) * ChunkBytes());
  }

  size_t ChunkBytes() const { return cpu::kKvChunkPages * cpu::KvPageBytes(format, head_dim); }

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
    std::vector<float> key(static_cast<size_t>(head_dim)), value(key.size());
    for (float& x : key) x = normal(*rng);
    for (float& x : value) x = normal(*rng) * 3;
    const size_t token = k.size();
    const size_t page = pages[token / 16];
    kernels.kv_write({format, head_dim, bytes.data() + page / cpu::kKvChunkPages * ChunkBytes(),
                      static_cast<int32_t>(page % cpu::kKvChunkPages),
                      static_cast<int32_t>(token % 16), key.data(), value.data()});
    k.push_back(Stored(key));
    v.push_back(Stored(value));
  }
};

std::vector<double> Reference(const Cache& cache, const std::vector<float>& q, int64_t visible) {
  std::vector<double> p;
  double max = -INFINITY, sum = 0;
  for (int64_t t = 0; t < visible; ++t) {
    double s = 0;
    for (size_t d = 0; d < q.size(); ++d) s += double{q[d]} * cache.k[static_cast<size_t>(t)][d];
    p.push_back(s);
    max = std::max(max, s);
  }
  for (double& s : p) sum += s = std::exp(s - max);
  std::vector<double> out(q.size(), 0.0);
  for (size_t t = 0; t < p.size(); ++t) {
    for (size_t d = 0; d < q.size(); ++d) out[d] += p[t] / sum * cache.v[t][d];
  }
  return out;
}

// All splits of some queries, merged in order.
std::vector<std::vector<float>> Attend(const cpu::Kernels& kernels, const Cache& cache,
                                       const std::vector<std::vector<float>>& q,
                                       const std::vector<int64_t>& visible) {
  const size_t n = q.size(), dim = static_cast<size_t>(cache.head_dim);
  std::vector<float> scratch(cpu::kMaxBlockRows * cpu::kAttentionSplit);
  std::vector<std::vector<float>> part(n, std::vector<float>(dim)), out = part;
  std::vector<std::array<float, 2>> part_state(n), state(n, {-INFINITY, 0});
  const int64_t end = *std::max_element(visible.begin(), visible.end());
  for (int64_t begin = 0; begin < end; begin += cpu::kAttentionSplit) {
    cpu::AttendArgs args;
    args.format = cache.format;
    args.head_dim = cache.head_dim;
    args.chunks = cache.bytes.data();
    args.chunk_stride = cache.ChunkBytes();
    args.page_ids = cache.pages.data();
    args.begin = begin;
    args.end = begin + cpu::kAttentionSplit;
    args.queries = static_cast<int32_t>(n);
    args.scratch = scratch.data();
    for (size_t i = 0; i < n; ++i) {
      args.q[i] = q[i].data();
      args.visible[i] = visible[i];
      args.out[i] = part[i].data();
      args.max_sum[i] = part_state[i].data();
    }
    kernels.attend(args);
    for (size_t i = 0; i < n; ++i) {
      kernels.merge_split(part[i].data(), part_state[i].data(), cache.head_dim, out[i].data(),
                          state[i].data());
    }
  }
  for (size_t i = 0; i < n; ++i) {
    kernels.scale(out[i].data(), 1 / state[i][1], static_cast<int64_t>(dim));
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
          Cache cache(format, dim, tokens);
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
            const std::vector<double> want = Reference(cache, q[i], visible[i]);
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
      std::vector<uint8_t> chunk(cpu::kKvChunkPages * cpu::KvPageBytes(KvFormat::kFp8, 16));
      kernels->kv_write({KvFormat::kFp8, 16, chunk.data(), 2, 3, k.data(), v.data()});
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
