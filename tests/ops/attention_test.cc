// SPDX-License-Identifier: MIT
//
// Attention over paged KV against fp64, for every KV type and target; KV rounding against the
// formats' own conversions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "backend/cpu/dispatch.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/kv_fp4.h"
#include "support/plain_tiles.h"
#include "support/test.h"

using namespace mainarch;
using cpu::KvForm;
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
    // Slots that nobody has written: NaNs in every type.
    bytes.resize((pages.size() / cpu::kKvChunkPages + 1) * ChunkBytes(), 0xff);
  }

  size_t ChunkBytes() const { return cpu::kKvChunkPages * cpu::KvPageBytes(kv); }

  const uint8_t* PieceOf(size_t page, size_t before, size_t piece) const {
    return bytes.data() + page / cpu::kKvChunkPages * ChunkBytes() + cpu::kKvChunkPages * before +
           page % cpu::kKvChunkPages * piece;
  }

  // Four bits as they lie in the page: kv_fp4 tests say whether they are the right ones.
  std::vector<double> Held(size_t page, int32_t slot, bool value) const {
    const cpu::KvPieces pieces = cpu::PiecesOf(kv);
    const uint8_t* side = value ? PieceOf(page, pieces.k, pieces.v) : PieceOf(page, 0, pieces.k);
    const uint8_t* scales =
        PieceOf(page, pieces.k + pieces.v, pieces.scales) + (value ? pieces.k_scales : 0);
    std::vector<double> out;
    for (int32_t d = 0; d < (value ? kv.value_dim : kv.key_dim); ++d) {
      const int32_t at = value ? cpu::ValueAt(KvForm::kFp4, slot, kv.value_dim, d)
                               : cpu::KeyAt(KvForm::kFp4, slot, d);
      out.push_back(double{quant::FloatFromE2m1(quant::Mxfp4Nibble(side, at))} *
                    double{quant::FloatFromE5m3(scales[cpu::KvScaleAt(KvForm::kFp4, slot, d)])});
    }
    return out;
  }

  std::vector<double> Stored(const std::vector<float>& x, bool value) const {
    const KvForm form = value ? cpu::ValueForm(kv) : cpu::KeyForm(kv);
    if (form == KvForm::kFp4) {
      return Held(pages[k.size() / 16], static_cast<int32_t>(k.size() % 16), value);
    }
    std::vector<double> out;
    float max = 0;
    for (float each : x) max = std::max(max, std::fabs(each));
    const float scale = max > 0 ? max * (1.0f / 448) : 1;
    for (float each : x) {
      if (form == KvForm::kF32) out.push_back(each);
      if (form == KvForm::kBF16) out.push_back(quant::FloatFromBf16(quant::Bf16FromFloat(each)));
      if (form == KvForm::kFp8) {
        out.push_back(double{scale} *
                      quant::FloatFromFp8E4m3(quant::Fp8E4m3FromFloat(each / scale)));
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
    std::vector<double> held = Stored(key, false);
    v.push_back(Stored(value, true));
    k.push_back(std::move(held));
  }
};

constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8, KvFormat::kFp4,
                                KvFormat::kK8V4};
bool Holds(KvFormat format, int32_t key_dim, int32_t value_dim) {
  const int32_t multiple = static_cast<int32_t>(quant::KvDimMultiple(format));
  return key_dim % multiple == 0 && value_dim % multiple == 0;
}

// AttendArgs::room, exactly as large as it must be: AddressSanitizer sees what lies beyond.
class Room {
 public:
  explicit Room(int32_t key_dim)
      : at_(static_cast<uint8_t*>(std::aligned_alloc(64, (cpu::AttendRoomBytes(key_dim) + 63) / 64 * 64))) {
    std::memset(at_, 0xff, cpu::AttendRoomBytes(key_dim));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { std::free(at_); }
  uint8_t* data() const { return at_; }

 private:
  uint8_t* const at_;
};

// What is fetched ahead changes no bit, and reads no number of a page that is not there. If it did, sums would be NaNs.
void AttendEitherWay(const cpu::Kernels& kernels, cpu::AttendArgs args) {
  const size_t n = static_cast<size_t>(args.queries), dim = static_cast<size_t>(args.kv.value_dim);
  args.fetch_next_page = true;
  kernels.attend(args);
  std::vector<std::vector<float>> out(n);
  std::vector<std::array<float, 2>> state(n);
  for (size_t i = 0; i < n; ++i) {
    out[i].assign(args.out[i], args.out[i] + dim);
    state[i] = {args.max_sum[i][0], args.max_sum[i][1]};
  }
  args.fetch_next_page = false;
  kernels.attend(args);
  for (size_t i = 0; i < n; ++i) {
    const bool seen = state[i][0] != -INFINITY;
    const bool same = std::memcmp(args.max_sum[i], state[i].data(), sizeof(state[i])) == 0 &&
                      (!seen || std::memcmp(args.out[i], out[i].data(), dim * sizeof(float)) == 0);
    if (!same) args.max_sum[i][1] = NAN;
  }
}

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
  std::vector<float> scratch(cpu::kMaxQueries * cpu::kAttentionSplit);
  const Room room(cache.kv.key_dim);
  std::vector<std::vector<float>> part(n, std::vector<float>(dim)), out = part;
  std::vector<std::array<float, 2>> part_state(n), state(n, {-INFINITY, 0});
  const int64_t end = *std::max_element(visible.begin(), visible.end());
  const int64_t first = extras.FirstOf(*std::min_element(visible.begin(), visible.end()));
  // Splits and pages wholly behind every window are not looked at: they may be gone.
  // Nor is there a page beyond what the last query sees.
  const std::vector<uint32_t> kept(cache.pages.begin() + first / 16, cache.pages.begin() + (end + 15) / 16);
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
    args.room = room.data();
    for (size_t i = 0; i < n; ++i) {
      args.q[i] = q[i].data();
      args.first[i] = extras.FirstOf(visible[i]);
      args.visible[i] = visible[i];
      args.out[i] = part[i].data();
      args.max_sum[i] = part_state[i].data();
    }
    AttendEitherWay(kernels, args);
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
    for (KvFormat format : kFormats) {
      for (int32_t dim : {16, 32, 48, 64, 96, 128, 192, 208, 256}) {
        if (!Holds(format, dim, dim)) continue;
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
            const double bound = format == KvFormat::kFp8 || format == KvFormat::kK8V4 ? 2e-5 : 4e-6;
            for (size_t d = 0; d < want.size(); ++d) CHECK_LE(std::fabs(out[i][d] - want[d]), bound);
            const auto alone = Attend(*kernels, cache, {q[i]}, {visible[i]});
            CHECK(std::memcmp(alone[0].data(), out[i].data(), out[i].size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

namespace {

// Those that round queries and weights (Kernels::attend_bf16), as kernels whose `attend` that is: this machine's, and
// those of the stand-in for a matrix unit.
std::vector<cpu::Kernels> RoundingKernels() {
  std::vector<cpu::Kernels> out;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    if (kernels->attend_bf16 != nullptr && (kernels->may_round == nullptr || kernels->may_round())) out.push_back(*kernels);
  }
  out.push_back(*test::PlainTileKernels(*cpu::UsableKernels().back()));
  for (cpu::Kernels& kernels : out) kernels.attend = kernels.attend_bf16;
  return out;
}

// kernels.h, of attend_bf16: of each dimension.
std::vector<double> RoundingBound(const Cache& cache, const std::vector<float>& q, int64_t visible, const Extras& extras) {
  const size_t first = static_cast<size_t>(extras.FirstOf(visible));
  std::vector<double> p;
  double max = extras.sink == nullptr ? -INFINITY : double{*extras.sink}, largest = 0;
  for (size_t t = first; t < static_cast<size_t>(visible); ++t) {
    double s = 0, sizes = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      s += double{q[d]} * cache.k[t][d];
      sizes += std::fabs(double{q[d]} * cache.k[t][d]);
    }
    p.push_back(s);
    max = std::max(max, s);
    largest = std::max(largest, sizes);
  }
  double sum = extras.sink == nullptr ? 0 : std::exp(double{*extras.sink} - max);
  for (double& s : p) sum += s = std::exp(s - max);
  const double e = (0x1p-8 + (static_cast<double>(q.size()) + 8) * 0x1p-23) * largest;
  const double factor = std::exp(2 * e) * (1 + 0x1p-8) - 1 + (cpu::kAttentionSplit + 8) * 0x1p-22;
  std::vector<double> out(static_cast<size_t>(cache.kv.value_dim), 0.0);
  for (size_t t = 0; t < p.size(); ++t) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += factor * p[t] / sum * std::fabs(cache.v[first + t][d]);
  }
  return out;
}

// Sixteen queries of as many lengths: within the bound, and the bits of each alone.
void CheckRounded(const cpu::Kernels& kernels, const Cache& cache, int64_t tokens, const Extras& extras, std::mt19937* rng,
                  double* worst) {
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> q;
  std::vector<int64_t> visible;
  for (int64_t i = 0; i < cpu::kMaxQueries; ++i) {
    std::vector<float> one(static_cast<size_t>(cache.kv.key_dim));
    for (float& x : one) x = normal(*rng) / std::sqrt(static_cast<float>(cache.kv.key_dim));
    q.push_back(one);
    visible.push_back(std::max<int64_t>(1, tokens - i * tokens / cpu::kMaxQueries));
  }
  const auto out = Attend(kernels, cache, q, visible, extras);
  for (size_t i = 0; i < q.size(); ++i) {
    const std::vector<double> want = Reference(cache, q[i], visible[i], extras);
    const std::vector<double> bound = RoundingBound(cache, q[i], visible[i], extras);
    for (size_t d = 0; d < want.size(); ++d) {
      *worst = std::max(*worst, std::isnan(out[i][d]) ? INFINITY : std::fabs(double{out[i][d]} - want[d]) / bound[d]);
    }
    const auto alone = Attend(kernels, cache, {q[i]}, {visible[i]}, extras);
    if (std::memcmp(alone[0].data(), out[i].data(), out[i].size() * sizeof(float)) != 0) *worst = INFINITY;
  }
}

}  // namespace

TEST(attention_that_rounds_is_within_its_bound_and_queries_do_not_mix) {
  std::mt19937 rng(9);
  double worst = 0;
  for (const cpu::Kernels& kernels : RoundingKernels()) {
    for (const auto& [key_dim, value_dim] : {std::pair{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {64, 160}, {256, 256}}) {
      for (const int64_t tokens : {1, 16, 17, 33, 511, 513, 1100}) {
        Cache cache(KvFormat::kBF16, key_dim, value_dim, tokens);
        for (int64_t t = 0; t < tokens; ++t) cache.Append(kernels, &rng);
        const float sink = 0.5f;
        CheckRounded(kernels, cache, tokens, {}, &rng, &worst);
        for (const int64_t window : {1, 17, 40, 513}) CheckRounded(kernels, cache, tokens, {window, &sink}, &rng, &worst);
      }
    }
    // What tiles do not take is attended as ever.
    for (const auto& [format, dim] : {std::pair{KvFormat::kF32, 64}, {KvFormat::kFp8, 64}, {KvFormat::kBF16, 48}}) {
      Cache cache(format, dim, dim, 100);
      for (int64_t t = 0; t < 100; ++t) cache.Append(kernels, &rng);
      CheckRounded(kernels, cache, 100, {}, &rng, &worst);
    }
  }
  std::printf("# worst: %.3f of the bound\n", worst);
  CHECK_LE(worst, 1.0);
  CHECK_LE(0.1, worst);  // a bound that no error comes near would say nothing
}

// Keys and values of different sizes, windows, sinks and gates; and a window's bits do not depend on
// what stands before it, nor on whether those pages are still there.
TEST(attention_with_extras_matches_fp64) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (KvFormat format : kFormats) {
      for (const auto& [key_dim, value_dim] : {std::pair{64, 128}, {192, 128}, {48, 16}}) {
        if (!Holds(format, key_dim, value_dim)) continue;
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

namespace {

// A long context in pages of a random order among chunks that others' NaNs fill; K and V are read back
// from the cache itself.
struct LongCache {
  cpu::KvLayout kv;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> pages;
  int64_t tokens;

  LongCache(const cpu::Kernels& kernels, KvFormat format, int32_t dim, int64_t count, std::mt19937* rng)
      : kv{format, dim, dim}, tokens(count) {
    pages.resize(static_cast<size_t>(count + 15) / 16 * 9 / 8 + 1);  // some are nobody's
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), *rng);
    bytes.resize((pages.size() / cpu::kKvChunkPages + 1) * ChunkBytes(), 0xff);
    std::vector<float> noise(size_t{1} << 16), k(static_cast<size_t>(dim)), v(k.size());
    std::normal_distribution<float> normal;
    for (float& x : noise) x = normal(*rng);
    for (int64_t t = 0; t < count; ++t) {
      for (size_t d = 0; d < k.size(); ++d) {
        k[d] = noise[(static_cast<size_t>(t) * 61 + d) & 0xffff];
        v[d] = noise[(static_cast<size_t>(t) * 97 + d + 31) & 0xffff];
      }
      const size_t page = pages[static_cast<size_t>(t) / 16];
      kernels.kv_write({kv, bytes.data() + page / cpu::kKvChunkPages * ChunkBytes(),
                        static_cast<int32_t>(page % cpu::kKvChunkPages), static_cast<int32_t>(t % 16),
                        k.data(), v.data()});
    }
  }
  size_t ChunkBytes() const { return cpu::kKvChunkPages * cpu::KvPageBytes(kv); }

  double Element(int64_t token, bool value, int32_t d) const {
    const cpu::KvPieces pieces = cpu::PiecesOf(kv);
    const size_t page = pages[static_cast<size_t>(token) / 16], in_chunk = page % cpu::kKvChunkPages;
    const int32_t slot = static_cast<int32_t>(token % 16);
    const uint8_t* chunk = bytes.data() + page / cpu::kKvChunkPages * ChunkBytes();
    const KvForm form = value ? cpu::ValueForm(kv) : cpu::KeyForm(kv);
    const uint8_t* side = value ? chunk + cpu::kKvChunkPages * pieces.k + in_chunk * pieces.v
                                : chunk + in_chunk * pieces.k;
    const uint8_t* scales = chunk + cpu::kKvChunkPages * (pieces.k + pieces.v) +
                            in_chunk * pieces.scales + (value ? pieces.k_scales : 0);
    const int32_t at = value ? cpu::ValueAt(form, slot, kv.value_dim, d) : cpu::KeyAt(form, slot, d);
    const int32_t scale = cpu::KvScaleAt(form, slot, d);
    if (form == KvForm::kFp4) {
      return double{quant::FloatFromE2m1(quant::Mxfp4Nibble(side, at))} *
             double{quant::FloatFromE5m3(scales[scale])};
    }
    if (form == KvForm::kFp8) {
      return double{quant::FloatFromFp8E4m3(side[at])} *
             double{reinterpret_cast<const float*>(scales)[scale]};
    }
    return form == KvForm::kBF16
               ? double{quant::FloatFromBf16(reinterpret_cast<const uint16_t*>(side)[at])}
               : double{reinterpret_cast<const float*>(side)[at]};
  }
};

// Queries at `visible` positions each, all splits merged in order.
std::vector<std::vector<float>> AttendLong(const cpu::Kernels& kernels, const LongCache& cache,
                                           const std::vector<std::vector<float>>& q,
                                           const std::vector<int64_t>& visible) {
  const size_t n = q.size(), dim = q[0].size();
  std::vector<float> scratch(cpu::kMaxQueries * cpu::kAttentionSplit);
  std::vector<std::vector<float>> part(n, std::vector<float>(dim)), out = part;
  std::vector<std::array<float, 2>> part_state(n), state(n, {-INFINITY, 0});
  cpu::AttendArgs args = {};
  args.kv = cache.kv;
  args.chunks = cache.bytes.data();
  args.chunk_stride = cache.ChunkBytes();
  args.page_ids = cache.pages.data();
  args.queries = static_cast<int32_t>(n);
  args.scratch = scratch.data();
  for (size_t i = 0; i < n; ++i) {
    args.q[i] = q[i].data();
    args.visible[i] = visible[i];
    args.out[i] = part[i].data();
    args.max_sum[i] = part_state[i].data();
  }
  const int64_t end = *std::max_element(visible.begin(), visible.end());
  for (args.begin = 0; args.begin < end; args.begin += cpu::kAttentionSplit) {
    args.end = args.begin + cpu::kAttentionSplit;
    AttendEitherWay(kernels, args);
    for (size_t i = 0; i < n; ++i) {
      kernels.merge_split(part[i].data(), part_state[i].data(), static_cast<int32_t>(dim), out[i].data(),
                          state[i].data());
    }
  }
  for (size_t i = 0; i < n; ++i) kernels.scale(out[i].data(), 1 / state[i][1], static_cast<int64_t>(dim));
  return out;
}

}  // namespace

// Contexts up to a million tokens, ragged (every query sees another length), the fastest target. Under a
// sanitizer, where a token takes ten times as long, a tenth.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMost = 100'000;
#else
constexpr int64_t kMost = 1'000'000;
#endif

TEST(a_million_tokens_match_fp64) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  const cpu::Kernels& kernels = *cpu::UsableKernels().front();
  for (KvFormat format : {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kK8V4, KvFormat::kFp4}) {
    const LongCache cache(kernels, format, 64, kMost, &rng);
    const std::vector<int64_t> visible = {kMost,  1,      17,           512,
                                          4097, 65'537, kMost / 2 + 7, kMost - 17};
    std::vector<std::vector<float>> q;
    for (size_t i = 0; i < visible.size(); ++i) {
      std::vector<float> one(64);
      for (float& x : one) x = normal(rng) / 3;
      q.push_back(one);
    }
    const auto got = AttendLong(kernels, cache, q, visible);
    for (size_t i = 0; i < q.size(); ++i) {
      std::vector<double> sums(64), score(static_cast<size_t>(visible[i]));
      double largest = -INFINITY, total = 0;
      for (int64_t t = 0; t < visible[i]; ++t) {
        double s = 0;
        for (int32_t d = 0; d < 64; ++d) s += double{q[i][static_cast<size_t>(d)]} * cache.Element(t, false, d);
        largest = std::max(largest, score[static_cast<size_t>(t)] = s);
      }
      for (int64_t t = 0; t < visible[i]; ++t) {
        const double p = std::exp(score[static_cast<size_t>(t)] - largest);
        total += p;
        // (What weighs nothing at all is left out.)
        for (int32_t d = 0; p > 1e-14 && d < 64; ++d) sums[static_cast<size_t>(d)] += p * cache.Element(t, true, d);
      }
      for (size_t d = 0; d < 64; ++d) CHECK_LE(std::fabs(double{got[i][d]} - sums[d] / total), 2e-5);
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

namespace {

// A token of one head of `dim`, K and V alike, written by `kernels`; [side]: what lies there.
struct Written {
  std::vector<double> of[2];
  std::vector<uint8_t> scales[2];

  Written(const cpu::Kernels& kernels, const std::vector<float>& x) {
    const int32_t dim = static_cast<int32_t>(x.size());
    Cache cache(KvFormat::kFp4, dim, dim, 1);
    // The eleventh slot of the third page.
    kernels.kv_write({cache.kv, cache.bytes.data(), 2, 11, x.data(), x.data()});
    const cpu::KvPieces pieces = cpu::PiecesOf(cache.kv);
    for (int side = 0; side < 2; ++side) {
      of[side] = cache.Held(2, 11, side == 1);
      const uint8_t* at = cache.PieceOf(2, pieces.k + pieces.v, pieces.scales) +
                          (side == 1 ? pieces.k_scales : 0);
      for (int32_t d = 0; d < dim; d += 32) {
        scales[side].push_back(at[cpu::KvScaleAt(KvForm::kFp4, 11, d)]);
      }
    }
  }
};

double RoundedToE2m1(double y) {
  double best = 0;
  for (const double point : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) {
    if (std::fabs(std::fabs(y) - point) < std::fabs(std::fabs(y) - best)) best = point;
  }
  return y < 0 ? -best : best;
}
double SquaredError(const float* x, double scale) {
  double sum = 0;
  for (int i = 0; i < 32; ++i) {
    const double off = double{x[i]} - scale * RoundedToE2m1(double{x[i]} / scale);
    sum += off * off;
  }
  return sum;
}
double LeastError(const float* x) {
  double least = INFINITY;
  for (int code = 1; code <= quant::kE5m3Largest; ++code) {
    least = std::min(least, SquaredError(x, double{quant::FloatFromE5m3(static_cast<uint8_t>(code))}));
  }
  return least;
}

}  // namespace

// Every code of the elements under every scale comes back from what is exactly it.
TEST(four_bits_hold_every_code_and_scale) {
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (int scale = 1; scale <= quant::kE5m3Largest; ++scale) {
      std::vector<float> x(64);
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = quant::FloatFromE2m1(static_cast<uint8_t>(i % 16)) *
               quant::FloatFromE5m3(static_cast<uint8_t>(scale));
      }
      const Written written(*kernels, x);
      for (int side = 0; side < 2; ++side) {
        for (size_t i = 0; i < x.size(); ++i) CHECK_EQ(written.of[side][i], double{x[i]});
        for (uint8_t each : written.scales[side]) CHECK_EQ(+each, scale);
      }
    }
    const Written zeros(*kernels, std::vector<float>(32, 0.0f));
    CHECK_EQ(+zeros.scales[0][0], 0);
    for (double each : zeros.of[1]) CHECK_EQ(each, 0.0);
    // What is beyond the largest scale is clipped; what is no number leaves one.
    std::vector<float> wild(32, 1.0f);
    wild[3] = 1e30f, wild[4] = -INFINITY, wild[5] = NAN;
    const Written clipped(*kernels, wild);
    CHECK_EQ(clipped.of[0][3], 6.0 * 61440);
    CHECK_EQ(clipped.of[0][4], -6.0 * 61440);
    for (double each : clipped.of[0]) CHECK(std::isfinite(each));
  }
}

// The scale has the least squared error of all, by brute force in fp64 over every code.
TEST(the_scale_of_four_bits_is_the_best) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (int i = 0; i < 4000; ++i) {
      std::vector<float> x(32);
      const float size = std::exp2(uniform(rng) * 12);
      const float middle = std::fabs(uniform(rng)) * 6;
      for (float& each : x) {
        // Gaussian; uniform; one outlier over equal others, which is what makes extreme scales.
        each = i % 3 == 0 ? normal(rng) : i % 3 == 1 ? uniform(rng) : middle;
        each *= size;
      }
      if (i % 3 == 2) x[static_cast<size_t>(i) % 32] = size * 6 * (1 + std::fabs(uniform(rng)));
      const double least = LeastError(x.data());
      const Written written(*kernels, x);
      for (int side = 0; side < 2; ++side) {
        double error = 0;
        for (size_t d = 0; d < 32; ++d) {
          error += (written.of[side][d] - double{x[d]}) * (written.of[side][d] - double{x[d]});
        }
        CHECK_LE(error, least * (1 + 1e-5) + 1e-12 * double{size} * double{size});
      }
      uint8_t codes[32];
      const uint8_t scale = quant::QuantizeKvFp4Block(x.data(), codes);
      CHECK_LE(SquaredError(x.data(), double{quant::FloatFromE5m3(scale)}),
               least * (1 + 1e-5) + 1e-12 * double{size} * double{size});
    }
  }
}

// The matrix is orthonormal and symmetric: twice is nothing, lengths stay; sizes that are no powers of two
// turn in parts.
TEST(hadamard_turns_and_turns_back) {
  std::mt19937 rng(8);
  std::normal_distribution<float> normal;
  CHECK_EQ(quant::HadamardSize(96), 32u);
  CHECK_EQ(quant::HadamardSize(192), 64u);
  CHECK_EQ(quant::HadamardSize(128), 128u);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (const int32_t dim : {32, 64, 96, 128, 192, 256}) {
      const int32_t size = static_cast<int32_t>(quant::HadamardSize(static_cast<uint32_t>(dim)));
      std::vector<float> x(static_cast<size_t>(dim)), turned;
      for (float& each : x) each = normal(rng);
      turned = x;
      kernels->hadamard(turned.data(), dim, size);
      for (int32_t d = 0; d < dim; ++d) {
        double want = 0;
        for (int32_t i = 0; i < size; ++i) {
          const double sign = __builtin_parity(static_cast<unsigned>(i & (d % size))) != 0 ? -1 : 1;
          want += sign * double{x[static_cast<size_t>(d / size * size + i)]};
        }
        CHECK_LE(std::fabs(double{turned[static_cast<size_t>(d)]} - want / std::sqrt(size)), 1e-6);
      }
      kernels->hadamard(turned.data(), dim, size);
      for (size_t d = 0; d < x.size(); ++d) CHECK_LE(std::fabs(turned[d] - x[d]), 2e-6);
    }
  }
}
