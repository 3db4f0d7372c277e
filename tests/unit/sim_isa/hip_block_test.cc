// SPDX-License-Identifier: MIT
//
// Kernels in the HIP language whose threads work together (hip/block.hip), against host references.
// One object of many kernels, by level; all levels with MAINARCH_TEST_FULL=1.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/hip_machine.h"
#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::isa::test {
namespace {

using Arguments = HipMachine::Arguments;
using Options = HipMachine::Options;
using Check = std::function<std::string(HipMachine&)>;

std::string Wrong(const char* what, size_t i, double got, double want) {
  return absl::StrCat(what, " ", i, ": ", got, ", not ", want);
}

#define LAUNCH(...) \
  if (!m.Launch(__VA_ARGS__)) return m.error()

// Grids that end within workgroups: of lines shorter than a wave, and of whole waves and a part of one.
std::string IndicesCase(HipMachine& m) {
  struct Indices {
    uint32_t thread[3], block[3], size[3], count[3];
  };
  Options narrow, wide;
  narrow.blocks = {3, 4, 2};
  narrow.threads = {10, 4, 3};
  narrow.cut = {3, 1, 0};
  wide.blocks = {2, 2, 1};
  wide.threads = {192, 2, 1};
  wide.cut = {84, 1, 0};
  for (const Options& o : {narrow, wide}) {
    uint32_t grid[3];
    for (size_t k = 0; k < 3; ++k) grid[k] = o.blocks[k] * o.threads[k] - o.cut[k];
    const auto [w, h, d] = grid;
    const size_t all = size_t{o.blocks[0]} * o.blocks[1] * o.blocks[2] * o.threads[0] * o.threads[1] * o.threads[2];
    auto* out = m.New<Indices>(all);
    std::memset(out, 0, all * sizeof *out);
    LAUNCH("indices", Arguments().Add(out).Add(w).Add(h), o);
    for (uint32_t z = 0; z < d; ++z) {
      for (uint32_t y = 0; y < h; ++y) {
        for (uint32_t x = 0; x < w; ++x) {
          const Indices& got = out[x + w * (y + h * z)];
          const uint32_t at[3] = {x, y, z};
          for (size_t k = 0; k < 3; ++k) {
            // The builtin gives the launch's block size, in a partial block too.
            const uint32_t b = at[k] / o.threads[k], size = o.threads[k];
            if (got.thread[k] != at[k] % o.threads[k] || got.block[k] != b || got.size[k] != size ||
                got.count[k] != grid[k] / o.threads[k])
              return absl::StrCat("indices at ", x, ",", y, ",", z, " dimension ", k, ": thread ",
                                  got.thread[k], " block ", got.block[k], " size ", got.size[k],
                                  " count ", got.count[k]);
          }
        }
      }
    }
    for (size_t i = size_t{w} * h * d; i < all; ++i) {
      if (out[i].size[0] != 0) return Wrong("an item that the grid does not have", i, out[i].size[0], 0);
    }
  }
  return "";
}

std::string LargeArgumentCase(HipMachine& m) {
  struct Large {
    uint32_t table[256];
    double factor;
    uint8_t bytes[160];
    const uint32_t* in;
  } large;
  auto* in = m.New<uint32_t>(512);
  auto* out = m.New<uint32_t>(512);
  for (uint32_t i = 0; i < 256; ++i) large.table[i] = i * i;
  for (uint32_t i = 0; i < 160; ++i) large.bytes[i] = static_cast<uint8_t>(i * 3);
  for (uint32_t i = 0; i < 512; ++i) in[i] = i << 8;
  large.factor = 3;
  large.in = in;
  Options o;
  o.blocks = {2, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("large_argument", Arguments().Add(large).Add(out).Add('x'), o);
  for (uint32_t i = 0; i < 512; ++i) {
    const uint32_t want =
        (i & 255) * (i & 255) * 3 + static_cast<uint8_t>(i % 160 * 3) + in[i] + 'x';
    if (out[i] != want) return Wrong("large_argument", i, out[i], want);
  }
  return "";
}

std::string BoundedCase(HipMachine& m) {
  auto* data = m.New<float>(256);
  for (int i = 0; i < 256; ++i) data[i] = static_cast<float>(i);
  Options o;
  o.blocks = {2, 1, 1};
  o.threads = {128, 1, 1};
  LAUNCH("bounded", Arguments().Add(data).Add(int16_t{-5}).Add(true).Add(int8_t{3}), o);
  for (int i = 0; i < 256; ++i) {
    if (data[i] != -(static_cast<float>(i) - 5) * 8)
      return Wrong("bounded", i, data[i], -(i - 5) * 8);
  }
  return "";
}

std::string BlockSumCase(HipMachine& m) {
  constexpr int kN = 10000;
  auto* in = m.New<float>(kN);
  auto* out = m.New<float>(8);
  double want = 0, got = 0;
  for (int i = 0; i < kN; ++i) want += in[i] = static_cast<float>(i % 17 - 3);
  Options o;
  o.blocks = {8, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("block_sum", Arguments().Add(in).Add(out).Add(kN), o);
  for (int i = 0; i < 8; ++i) got += out[i];
  return got == want ? "" : Wrong("block_sum", 0, got, want);
}

std::string ScanCase(HipMachine& m) {
  auto* in = m.New<uint32_t>(512);
  auto* out = m.New<uint32_t>(512);
  for (uint32_t i = 0; i < 512; ++i) in[i] = i * 2654435761u >> 20;
  Options o;
  o.blocks = {2, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("scan", Arguments().Add(in).Add(out), o);
  for (uint32_t b = 0; b < 2; ++b) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 256; ++i) {
      sum += in[b * 256 + i];
      if (out[b * 256 + i] != sum) return Wrong("scan", b * 256 + i, out[b * 256 + i], sum);
    }
  }
  return "";
}

std::string TransposeCase(HipMachine& m) {
  constexpr int kW = 70, kH = 45;
  auto *in = m.New<float>(kW * kH), *out = m.New<float>(kW * kH);
  for (int i = 0; i < kW * kH; ++i) in[i] = static_cast<float>(i);
  Options o;
  o.blocks = {3, 2, 1};
  o.threads = {32, 8, 1};
  LAUNCH("transpose", Arguments().Add(in).Add(out).Add(kW).Add(kH), o);
  for (int y = 0; y < kH; ++y) {
    for (int x = 0; x < kW; ++x) {
      if (out[x * kH + y] != in[y * kW + x])
        return Wrong("transpose", x * kH + y, out[x * kH + y], in[y * kW + x]);
    }
  }
  return "";
}

template <class T>
std::string MatmulCase(HipMachine& m, const char* name) {
  constexpr int kN = 48;
  auto *a = m.New<T>(kN * kN), *b = m.New<T>(kN * kN), *c = m.New<T>(kN * kN);
  for (int i = 0; i < kN * kN; ++i) {
    a[i] = static_cast<T>(i * 7 % 23 - 11);
    b[i] = static_cast<T>(i * 5 % 19 - 9);
  }
  Options o;
  o.blocks = {3, 3, 1};
  o.threads = {16, 16, 1};
  LAUNCH(name, Arguments().Add(a).Add(b).Add(c).Add(kN), o);
  for (int i = 0; i < kN; ++i) {
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < kN; ++k)
        sum += static_cast<double>(a[i * kN + k]) * static_cast<double>(b[k * kN + j]);
      if (static_cast<double>(c[i * kN + j]) != sum)
        return Wrong(name, static_cast<size_t>(i * kN + j), static_cast<double>(c[i * kN + j]),
                     sum);
    }
  }
  return "";
}

std::string DynamicLdsCase(HipMachine& m) {
  constexpr int kN = 1000;
  auto* data = m.New<uint32_t>(2 * kN);
  for (uint32_t i = 0; i < 2 * kN; ++i) data[i] = i;
  Options o;
  o.blocks = {2, 1, 1};
  o.threads = {128, 1, 1};
  o.dynamic_lds = kN * 8;
  LAUNCH("reverse_dynamic", Arguments().Add(data).Add(kN), o);
  for (uint32_t i = 0; i < 2 * kN; ++i) {
    const uint32_t want = i / kN * kN + kN - 1 - i % kN;
    if (data[i] != want) return Wrong("reverse_dynamic", i, data[i], want);
  }
  return "";
}

std::string GenericPointerCase(HipMachine& m) {
  auto *in = m.New<uint32_t>(64), *out = m.New<uint32_t>(128);
  for (uint32_t i = 0; i < 64; ++i) in[i] = i * i + 3;
  LAUNCH("generic_pointers", Arguments().Add(in).Add(out), Options());
  for (uint32_t t = 0; t < 64; ++t) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < 8; ++k)
      sum += (t % 3 == 0 ? in[k] + 1 : t % 3 == 1 ? in[t] * k : in[k]) * (k + 1);
    if (out[t] != sum) return Wrong("generic_pointers", t, out[t], sum);
    const uint32_t tail = (t % 2 ? t : in[t] + 1) + (t % 2 ? in[t] * (t & 7) : t);
    if (out[64 + t] != tail) return Wrong("generic stores", t, out[64 + t], tail);
  }
  return "";
}

std::string SortCase(HipMachine& m) {
  auto* data = m.New<uint32_t>(512);
  std::vector<uint32_t> want(512);
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 512; ++i) want[i] = data[i] = static_cast<uint32_t>(random()) % 700;
  std::sort(want.begin(), want.end());
  Options o;
  o.threads = {256, 1, 1};
  LAUNCH("bitonic_sort", Arguments().Add(data), o);
  for (uint32_t i = 0; i < 512; ++i) {
    if (data[i] != want[i]) return Wrong("bitonic_sort", i, data[i], want[i]);
  }
  return "";
}

std::string HistogramCase(HipMachine& m) {
  constexpr int kN = 5000;
  auto* in = m.New<uint8_t>(kN);
  auto* out = m.New<uint32_t>(256);
  std::vector<uint32_t> want(256);
  std::mt19937 random(6);
  for (int i = 0; i < kN; ++i) ++want[in[i] = static_cast<uint8_t>(random() % 200)];
  Options o;
  o.blocks = {4, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("histogram", Arguments().Add(in).Add(out).Add(kN), o);
  for (uint32_t i = 0; i < 256; ++i) {
    if (out[i] != want[i]) return Wrong("histogram", i, out[i], want[i]);
  }
  return "";
}

std::string ShuffleCase(HipMachine& m) {
  auto *in = m.New<uint32_t>(64), *out = m.New<uint32_t>(64 * 12);
  std::mt19937 random(7);
  for (int i = 0; i < 64; ++i) in[i] = static_cast<uint32_t>(random());
  LAUNCH("wave_shuffles", Arguments().Add(in).Add(out), Options());
  uint32_t sum = 0, prefix = 0, odd = 0, second = 0;
  for (int i = 0; i < 64; ++i) sum += in[i], odd += in[i] & 1, second += in[i] >> 1 & 1;
  for (uint32_t l = 0; l < 64; ++l) {
    prefix += in[l];
    const uint32_t want[12] = {in[l ^ 1],
                               in[(l + 7) & 63],
                               in[13],
                               in[0],
                               l % 16 ? in[l - 1] : 0,
                               l % 16 < 15 ? in[l + 1] : 77,
                               in[(l & ~3u) + 3 - (l & 3)],
                               in[l ^ 1],
                               odd,
                               sum,
                               in[l] & 2 ? second : 0,
                               prefix};
    for (size_t k = 0; k < 12; ++k) {
      if (out[l * 12 + k] != want[k])
        return Wrong("wave_shuffles", l * 100 + k, out[l * 12 + k], want[k]);
    }
  }
  return "";
}

std::string WaterfallCase(HipMachine& m) {
  auto *in = m.New<uint32_t>(64), *out = m.New<uint32_t>(64);
  uint32_t counts[8] = {};
  for (uint32_t i = 0; i < 64; ++i) ++counts[(in[i] = i * i / 5) & 7];
  LAUNCH("waterfall", Arguments().Add(in).Add(out), Options());
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t want = counts[in[i] & 7] * 100 + (in[i] & 7);
    if (out[i] != want) return Wrong("waterfall", i, out[i], want);
  }
  return "";
}

std::string AtomicsCase(HipMachine& m) {
  struct Counters {
    uint32_t add, sub, smax_u, smin_u, and_, or_, xor_;
    int32_t smax, smin;
    uint64_t add64, max64;
    float fadd;
    uint32_t pad;
    double dadd, dmax;
    uint32_t cas, ticket;
  };
  constexpr uint32_t kN = 640;
  auto* c = m.New<Counters>(1);
  auto *order = m.New<uint32_t>(kN), *returned = m.New<uint32_t>(kN);
  c->and_ = ~0u;
  c->smin_u = ~0u;
  Options o;
  o.blocks = {kN / 128, 1, 1};
  o.threads = {128, 1, 1};
  o.host_threads = 2;
  LAUNCH("atomics", Arguments().Add(c).Add(order).Add(returned), o);
  Counters want = {};
  want.and_ = ~0u, want.smin_u = ~0u;
  std::vector<bool> seen(kN);
  for (uint32_t i = 0; i < kN; ++i) {
    want.add += i, want.sub -= 2, want.xor_ ^= i;
    want.smax_u = std::max(want.smax_u, i * 7919 % 1009);
    want.smin_u = std::min(want.smin_u, i * 7919 % 1009 + 5);
    want.and_ &= ~(1u << (i & 15)), want.or_ |= 1u << (i & 31);
    want.smax = std::max(want.smax, static_cast<int32_t>(i) - 100);
    want.smin = std::min(want.smin, -static_cast<int32_t>(i));
    want.add64 += uint64_t{i} << 20, want.max64 = std::max(want.max64, uint64_t{i} << 33);
    want.fadd += 0.5f, want.dadd += 0.25, want.dmax = std::max<double>(want.dmax, i);
    want.cas += 3, ++want.ticket;
    if (order[i] >= kN || seen[order[i]] || returned[order[i]] != i)
      return Wrong("ticket", i, order[i], i);
    seen[order[i]] = true;
  }
  want.pad = c->pad;
  return std::memcmp(&want, c, sizeof want) == 0
             ? ""
             : absl::StrCat("atomics: add ", c->add, "/", want.add, " max ", c->smax, "/",
                            want.smax, " add64 ", c->add64, "/", want.add64, " fadd ", c->fadd, "/",
                            want.fadd, " dmax ", c->dmax, "/", want.dmax, " cas ", c->cas, "/",
                            want.cas);
}

std::string SharedAtomicsCase(HipMachine& m) {
  auto* out = m.New<uint32_t>(8 + 256);
  Options o;
  o.threads = {256, 1, 1};
  LAUNCH("shared_atomics", Arguments().Add(out), o);
  const uint32_t want[5] = {768, 256, 384, 640, static_cast<uint32_t>(-255)};
  for (uint32_t i = 0; i < 5; ++i) {
    if (out[i] != want[i]) return Wrong("shared_atomics", i, out[i], want[i]);
  }
  std::sort(out + 8, out + 264);
  for (uint32_t i = 0; i < 256; ++i) {
    if (out[8 + i] != 3 * i) return Wrong("shared_atomics returned", i, out[8 + i], 3 * i);
  }
  return "";
}

std::string GridBarrierCase(HipMachine& m) {
  for (uint64_t seed = 1; seed < 4; ++seed) {
    auto *state = m.New<uint32_t>(32), *sums = m.New<uint32_t>(16);
    Options o;
    o.blocks = {24, 1, 1};
    o.threads = {128, 1, 1};
    o.seed = seed;
    LAUNCH("grid_barrier", Arguments().Add(state).Add(sums), o);
    for (uint32_t r = 0; r < 4; ++r) {
      if (sums[r] != 24 * 25 / 2 * 128) return Wrong("grid_barrier", r, sums[r], 24 * 25 / 2 * 128);
    }
    if (sums[8] != 0) return Wrong("grid_barrier passed early in round", sums[8], 1, 0);
  }
  return "";
}

std::string GlobalsCase(HipMachine& m) {
  auto* out = m.New<uint64_t>(67);
  for (uint64_t run = 0; run < 2; ++run) {
    LAUNCH("globals", Arguments().Add(out), Options());
    if (out[0] != 5 + run || out[1] != 5 || out[2] != 0x123456789abcdef1 + run)
      return Wrong("globals", run, static_cast<double>(out[0]), 5);
    for (uint64_t i = 0; i < 64; ++i) {
      if (out[3 + i] != i * (run + 1))
        return Wrong("globals zeroed", i, static_cast<double>(out[3 + i]), 0);
    }
  }
  return "";
}

std::string TranscendentalCase(HipMachine& m) {
  constexpr int kN = 512;
  auto *in = m.New<float>(kN), *out = m.New<float>(kN * 8);
  std::mt19937 random(8);
  for (int i = 0; i < kN; ++i)
    in[i] = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 700.0f + 0.01f;
  Options o;
  o.blocks = {2, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("transcendental", Arguments().Add(in).Add(out), o);
  for (int i = 0; i < kN; ++i) {
    const double x = in[i], a = std::fabs(x), turn = 2 * M_PI * x;
    const double want[8] = {std::exp2(x),   std::log2(a),   1 / x,        1 / std::sqrt(a),
                            std::sin(turn), std::cos(turn), std::sqrt(a), 1 / (1 + std::exp(-x))};
    for (int k = 0; k < 8; ++k) {
      const double bound =
          k == 4 || k == 5 || k == 1 ? 3e-6 : 4e-7 * std::fabs(want[k]) * (k == 7 ? 4 : 1);
      if (!(std::fabs(out[i * 8 + k] - want[k]) <= bound))
        return Wrong("transcendental", static_cast<size_t>(i * 10 + k), out[i * 8 + k], want[k]);
    }
  }
  return "";
}

std::string SoftmaxCase(HipMachine& m) {
  constexpr int kRows = 5, kN = 777;
  auto *in = m.New<float>(kRows * kN), *out = m.New<float>(kRows * kN);
  std::mt19937 random(9);
  for (int i = 0; i < kRows * kN; ++i) in[i] = static_cast<float>(random() % 4000) / 300.0f - 6;
  Options o;
  o.blocks = {kRows, 1, 1};
  o.threads = {256, 1, 1};
  LAUNCH("softmax", Arguments().Add(in).Add(out).Add(kN), o);
  for (int r = 0; r < kRows; ++r) {
    double top = -1e30, sum = 0;
    for (int i = 0; i < kN; ++i) top = std::max<double>(top, in[r * kN + i]);
    for (int i = 0; i < kN; ++i) sum += std::exp(in[r * kN + i] - top);
    for (int i = 0; i < kN; ++i) {
      const double want = std::exp(in[r * kN + i] - top) / sum;
      if (!(std::fabs(out[r * kN + i] - want) <= 4e-6 * want))
        return Wrong("softmax", static_cast<size_t>(r * kN + i), out[r * kN + i], want);
    }
  }
  return "";
}

const std::pair<const char*, Check> kCases[] = {
    {"indices", IndicesCase},
    {"large_argument", LargeArgumentCase},
    {"bounded", BoundedCase},
    {"block_sum", BlockSumCase},
    {"scan", ScanCase},
    {"transpose", TransposeCase},
    {"matmul_float", [](HipMachine& m) { return MatmulCase<float>(m, "matmul_float"); }},
    {"matmul_double", [](HipMachine& m) { return MatmulCase<double>(m, "matmul_double"); }},
    {"matmul_int", [](HipMachine& m) { return MatmulCase<int32_t>(m, "matmul_int"); }},
    {"reverse_dynamic", DynamicLdsCase},
    {"generic_pointers", GenericPointerCase},
    {"bitonic_sort", SortCase},
    {"histogram", HistogramCase},
    {"wave_shuffles", ShuffleCase},
    {"waterfall", WaterfallCase},
    {"atomics", AtomicsCase},
    {"shared_atomics", SharedAtomicsCase},
    {"grid_barrier", GridBarrierCase},
    {"globals", GlobalsCase},
    {"transcendental", TranscendentalCase},
    {"softmax", SoftmaxCase},
};

TEST(kernels_of_cooperating_threads) {
  if (!HaveTool("clang-22") || !HaveTool("ld.lld-22")) SKIP("clang-22 is not installed");
  constexpr const char* kLevels[] = {"-O0",
                                     "-O1",
                                     "-O2",
                                     "-O3",
                                     "-Os",
                                     "-O2 -mllvm -global-isel=1 -mllvm -global-isel-abort=2",
                                     "-O3 -mcode-object-version=5 -munsafe-fp-atomics"};
  const bool full = std::getenv("MAINARCH_TEST_FULL") != nullptr;
  std::string failures, error;
  int runs = 0;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (size_t level = 0; level < std::size(kLevels); ++level) {
      if (!full && (level + (isa == Isa::kGfx950)) % 2 != 0) continue;
      // Launched with partial blocks too, which HIP forbids unless told.
      const std::string path = CompileHip(
          isa, "block", absl::StrCat("-fno-offload-uniform-block ", kLevels[level]), &error);
      if (path.empty()) {
        absl::StrAppend(&failures, "\n  ", CpuName(isa), " ", kLevels[level], ": ", error);
        continue;
      }
      // One machine for all kernels of an object, as one loaded module.
      HipMachine machine(isa, BestLaneCode(), 64 << 20);
      CHECK(machine.Load(path));
      // Under the checkers one level by default, all of them in the whole run.
      if (full || level == 3) machine.CheckLaunches();
      for (const auto& [name, check] : kCases) {
        // LLVM 22's GlobalISel uses a loop's SGPR after lanes have left the loop at other times.
        if (level == 5 && std::string(name) == "waterfall") continue;
        const std::string what = check(machine);
        ++runs;
        if (!what.empty())
          absl::StrAppend(&failures, "\n  ", CpuName(isa), " ", kLevels[level], ": ", what);
      }
    }
  }
  std::cout << "# " << runs << " kernel runs\n";
  CHECK_EQ(failures, "");
}

}  // namespace
}  // namespace mainarch::sim::isa::test
