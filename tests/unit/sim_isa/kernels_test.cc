// SPDX-License-Identifier: MIT
//
// Whole kernels compiled by clang at test time, at several optimisation levels, against references
// in double on the host.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr const char* kLevels[] = {"-O0", "-O1", "-O2", "-O3", "-Os", "-O2 -mllvm -global-isel=1"};

uint64_t P(const void* p) { return reinterpret_cast<uint64_t>(p); }
uint16_t ToBf16(float x) {
  const uint32_t b = __builtin_bit_cast(uint32_t, x);
  return static_cast<uint16_t>((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
float FromBf16(uint16_t x) { return __builtin_bit_cast(float, uint32_t{x} << 16); }

// Compiles device/<file>.cc for each ISA and level and hands a loaded machine to `check`.
template <class F>
void ForEach(mainarch::test::Context& test_context, const std::string& kernel_file, F check,
             bool all_levels = true) {
  if (!HaveTool("clang-22") || !HaveTool("ld.lld-22")) SKIP("clang-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (const char* level : kLevels) {
      if (!all_levels && level != kLevels[3]) continue;
      // GlobalISel does not know this file's bf16 intrinsics.
      if (kernel_file == "matrix" && level == kLevels[5]) continue;
      std::string error;
      const std::string path = CompileKernels(isa, kernel_file, level, &error);
      if (path.empty()) {
        test_context.Fail(__FILE__, __LINE__,
                          std::string(CpuName(isa)) + " " + level + ": " + error);
        return;
      }
      for (LaneCode code : LaneCodes()) {
        Machine machine(isa, code);
        std::string what;
        if (!machine.Load(path))
          what = machine.error();
        else
          what = check(machine);
        if (!what.empty()) {
          test_context.Fail(__FILE__, __LINE__,
                            std::string(CpuName(isa)) + " " + level +
                                " " + NameOf(code) + ": " + what);
          return;
        }
      }
    }
  }
}

std::string Differ(const char* what, size_t i, double ours, double theirs) {
  return std::string(what) + " " + std::to_string(i) + ": " + std::to_string(ours) + " against " +
         std::to_string(theirs);
}

TEST(integers_and_divisions) {
  ForEach(test_context, "integers", [](Machine& m) -> std::string {
    constexpr int kN = 1000;
    auto *a = m.New<int64_t>(kN), *b = m.New<int64_t>(kN), *out = m.New<int64_t>(kN * 8);
    std::mt19937_64 random(1);
    for (int i = 0; i < kN; ++i) {
      a[i] = static_cast<int64_t>(random() >> (random() % 60));
      b[i] = static_cast<int64_t>(random() >> (random() % 60)) | 1;
      if (i % 3 == 0) a[i] = -a[i];
      if (i % 5 == 0) b[i] = -b[i];
    }
    Machine::Options o;
    o.grid = {1024, 1, 1};
    o.workgroup = {256, 1, 1};
    if (!m.Run("integers", {P(a), P(b), P(out), kN}, o)) return m.error();
    for (int i = 0; i < kN; ++i) {
      const int64_t x = a[i], y = b[i];
      const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
      const auto x32 = static_cast<int32_t>(x), y32 = static_cast<int32_t>(y) | 1;
      const int64_t expected[8] = {
          x / y,
          x % y,
          static_cast<int64_t>(ux / uy),
          static_cast<int64_t>(ux * uy),
          y32 == -1 ? -static_cast<int64_t>(x32) : x32 / y32,
          static_cast<int64_t>(static_cast<uint32_t>(x) % static_cast<uint32_t>(y32)),
          __builtin_popcountll(ux) + __builtin_clzll(ux | 1) * 100 + __builtin_ctzll(uy) * 10000,
          static_cast<int64_t>(ux << (uy & 63) ^ ux >> (uy & 63) ^
                               static_cast<uint64_t>(x >> (uy & 63)))};
      for (int k = 0; k < 8; ++k) {
        const int64_t got = k == 4 ? out[i * 8 + k] << 32 >> 32 : out[i * 8 + k];
        const int64_t want = k == 4 ? expected[k] << 32 >> 32 : expected[k];
        if (got != want)
          return "item " + std::to_string(i) + " result " + std::to_string(k) + ": " +
                 std::to_string(got) + " against " + std::to_string(want);
      }
    }
    return "";
  });
}

TEST(floating_point) {
  ForEach(test_context, "floats", [](Machine& m) -> std::string {
    constexpr int kN = 512;
    auto *a = m.New<float>(kN), *b = m.New<float>(kN), *out = m.New<float>(kN * 12);
    auto* wide = m.New<double>(kN * 4);
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (int i = 0; i < kN; ++i) {
      a[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);
      b[i] = normal(random);
    }
    a[0] = 0, b[1] = 1e-38f, a[2] = 3e38f, b[2] = 1e-3f, a[3] = 1e-40f, b[4] = 0;
    Machine::Options o;
    o.grid = {kN, 1, 1};
    o.workgroup = {128, 1, 1};
    if (!m.Run("floats", {P(a), P(b), P(out), P(wide), kN}, o)) return m.error();
    for (int i = 0; i < kN; ++i) {
      const float x = a[i], y = b[i];
      const float exact[] = {x / y,
                             std::sqrt(std::fabs(x)),
                             std::fmin(x, y),
                             std::fmax(x, y),
                             std::floor(y),
                             std::fma(x, y, y),
                             static_cast<float>(static_cast<int>(y * 100)),
                             static_cast<float>(static_cast<_Float16>(y)),
                             std::trunc(y),
                             std::rint(y)};
      for (int k = 0; k < 10; ++k) {
        const float got = out[i * 12 + k];
        const bool same = got == exact[k] || (got != got && exact[k] != exact[k]);
        if (!same) return Differ(("float result " + std::to_string(k)).c_str(), i, got, exact[k]);
      }
      const double e = std::exp2(static_cast<double>(y)),
                   l = std::log2(std::fabs(static_cast<double>(y)));
      if (std::fabs(out[i * 12 + 10] - e) > 2e-7 * e) return Differ("exp2", i, out[i * 12 + 10], e);
      if (y != 0 && std::fabs(out[i * 12 + 11] - l) > 2e-7 * std::fabs(l) + 1e-7)
        return Differ("log2", i, out[i * 12 + 11], l);
      const double dx = x, dy = y,
                   want[] = {dx / dy, std::sqrt(std::fabs(dx)), std::fma(dx, dy, dx), dx - dy};
      for (int k = 0; k < 4; ++k) {
        const double got = wide[i * 4 + k];
        if (!(got == want[k] || (got != got && want[k] != want[k])))
          return Differ("double", i * 10 + k, got, want[k]);
      }
    }
    return "";
  });
}

TEST(reductions_shuffles_and_lds) {
  ForEach(test_context, "reduce", [](Machine& m) -> std::string {
    constexpr int kN = 4096;
    auto* in = m.New<float>(kN);
    auto* out = m.New<float>(8);
    auto* ints = m.New<uint32_t>(1024 + 512);
    double sum = 0, largest = -1e30;
    for (int i = 0; i < kN; ++i) {
      in[i] = static_cast<float>((i * 7919) % 1000) / 8 - 50;
      sum += in[i];
      largest = std::max<double>(largest, in[i]);
    }
    Machine::Options o;
    o.grid = {256, 1, 1};
    o.workgroup = {256, 1, 1};
    if (!m.Run("reduce", {P(in), P(out), P(ints), kN}, o)) return m.error();
    if (std::fabs(out[0] - sum) > 1e-3 * std::fabs(sum)) return Differ("sum", 0, out[0], sum);
    if (out[1] != largest) return Differ("max", 0, out[1], largest);
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t lane = i % 64, base = i - lane;
      const uint32_t want[] = {base + (lane ^ 5), base + (63 - lane),
                               static_cast<uint32_t>(__builtin_popcountll(
                                   0x5555555555555555ull & ((uint64_t{1} << lane) - 1))),
                               255 - i};
      for (int k = 0; k < 4; ++k) {
        if (ints[i * 4 + k] != want[k])
          return Differ("shuffle", i * 10 + k, ints[i * 4 + k], want[k]);
      }
    }
    uint32_t histogram = 0;
    for (int i = 0; i < 16; ++i) histogram += ints[1024 + i];
    if (histogram != 256 || ints[1024] != 16) return Differ("histogram", 0, histogram, 256);
    return "";
  });
}

TEST(matrices_bf16_f16_f32_f64_i8) {
  ForEach(test_context, "matrix", [](Machine& m) -> std::string {
    constexpr int kM = 16, kK = 64;
    auto *a = m.New<uint16_t>(kM * kK), *b = m.New<uint16_t>(kM * kK);
    auto* out = m.New<float>(6 * 1024);
    auto* wide = m.New<double>(256);
    auto* ints = m.New<int32_t>(256);
    std::mt19937 random(3);
    for (int i = 0; i < kM * kK; ++i) {
      a[i] = ToBf16(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
      b[i] = ToBf16(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
    }
    Machine::Options o;
    if (!m.Run("matrix", {P(a), P(b), P(out), P(wide), P(ints)}, o)) return m.error();
    // A is row-major [16][64], B is [16][64] by column: C = A B^T.
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kM; ++j) {
        const auto dot = [&](int k_count) {
          double sum = 0;
          for (int k = 0; k < k_count; ++k)
            sum += FromBf16(a[i * kK + k]) * FromBf16(b[j * kK + k]);
          return sum;
        };
        const double d16 = dot(16), d4 = dot(4), d32 = dot(32);
        const int at = i * 16 + j;
        if (out[at] != d16) return Differ("bf16 16x16x16", at, out[at], d16);
        if (out[1024 + at] != d16) return Differ("f16 16x16x16", at, out[1024 + at], d16);
        if (out[2048 + at] != d4) return Differ("f32 16x16x4", at, out[2048 + at], d4);
        if (wide[at] != d4) return Differ("f64 16x16x4", at, wide[at], d4);
        if (ints[at] != static_cast<int32_t>(d32 * 16))
          return Differ("i8 16x16x32", at, ints[at], d32 * 16);
        if (m.isa() == Isa::kGfx950 && out[4096 + at] != d32)
          return Differ("bf16 16x16x32", at, out[4096 + at], d32);
      }
    }
    // 32x32x8: rows 16..31 repeat rows 0..15.
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 32; ++j) {
        double sum = 0;
        for (int k = 0; k < 8; ++k)
          sum += FromBf16(a[i % 16 * kK + k]) * FromBf16(b[j % 16 * kK + k]);
        if (out[3072 + i * 32 + j] != sum)
          return Differ("bf16 32x32x8", i * 32 + j, out[3072 + i * 32 + j], sum);
      }
    }
    return "";
  });
}

TEST(grid_barrier_over_persistent_workgroups) {
  ForEach(
      test_context, "grid_barrier",
      [](Machine& m) -> std::string {
        auto* state = m.New<uint32_t>(64);
        auto* data = m.New<uint32_t>(64 * 16);
        Machine::Options o;
        o.grid = {64 * 32, 1, 1};
        for (uint64_t seed = 0; seed < 3; ++seed) {
          for (int threads = 1; threads <= 2; ++threads) {
            std::memset(state, 0, 256);
            std::memset(data, 0, 4096);
            o.seed = seed;
            o.threads = threads;
            if (!m.Run("grid_barrier", {P(state), P(data), 16}, o)) return m.error();
            if (data[0] != 32 * 16) return Differ("rounds", 0, data[0], 32 * 16);
            if (data[1] != 0) return Differ("early passers", seed, data[1], 0);
          }
        }
        return "";
      },
      false);
}

// A program that sets FLAT_SCRATCH has its scratch there, dwords of the lanes in turn.
TEST(scratch_is_in_memory_where_the_program_says_so) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    std::string error;
    const auto store = Assemble(isa, "flat_store_dwordx2 v[0:1], v[2:3]", &error);
    const auto load = Assemble(isa, "flat_load_dwordx2 v[4:5], v[0:1]", &error);
    CHECK(!store.empty() && !load.empty());
    for (const bool own : {false, true}) {
      Rig rig(isa);
      const uint64_t base = P(rig.memory()) + 4096;
      rig.wave().SetPair(reg::kFlatScratch, own ? base : 0);
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t at = kPrivateAperture + 8;
        rig.V(0, lane) = static_cast<uint32_t>(at);
        rig.V(1, lane) = static_cast<uint32_t>(at >> 32);
        rig.V(2, lane) = 100u + static_cast<uint32_t>(lane);
        rig.V(3, lane) = 200u + static_cast<uint32_t>(lane);
      }
      CHECK(rig.Step(store.data(), store.size()));
      CHECK(rig.Step(load.data(), load.size()));
      for (int lane = 0; lane < kLanes; ++lane) {
        CHECK_EQ(rig.V(4, lane), 100u + static_cast<uint32_t>(lane));
        CHECK_EQ(rig.V(5, lane), 200u + static_cast<uint32_t>(lane));
        uint32_t there[2];
        std::memcpy(&there[0], rig.memory() + 4096 + 2 * 256 + 4 * lane, 4);
        std::memcpy(&there[1], rig.memory() + 4096 + 3 * 256 + 4 * lane, 4);
        CHECK_EQ(there[0], own ? 100u + static_cast<uint32_t>(lane) : 0u);
        CHECK_EQ(there[1], own ? 200u + static_cast<uint32_t>(lane) : 0u);
      }
      rig.V(0, 5) = static_cast<uint32_t>(kPrivateAperture + 252);
      CHECK(!rig.Step(load.data(), load.size()));  // a work-item has 256 bytes
    }
  }
}

// One counter that a grid's waves read and write apart, one at a time; a barrier of the grid; waits
// that are ended together.
TEST(global_wave_sync_orders_the_waves_of_a_grid) {
  ForEach(
      test_context, "gws",
      [](Machine& m) -> std::string {
        auto* data = m.New<uint32_t>(64);
        for (int threads = 1; threads <= 2; ++threads) {
          Gws gws;
          Machine::Options one, many;
          one.threads = many.threads = threads;
          one.gws = many.gws = &gws;
          many.grid = {64 * 200, 1, 1};
          data[0] = 0;
          if (!m.Run("gws_semaphore", {P(data), 1}, one)) return m.error();
          if (!m.Run("gws_semaphore", {P(data), 0}, many)) return m.error();
          if (data[0] != 200) return Differ("waves through the semaphore", threads, data[0], 200);
          many.grid = {64 * 32, 1, 1};
          data[0] = data[1] = 0;
          if (!m.Run("gws_init_barrier", {P(data), 0}, one)) return m.error();
          if (!m.Run("gws_barrier", {P(data), 20}, many)) return m.error();
          if (data[0] != 640 || data[1] != 0) return Differ("early passers", data[0], data[1], 0);
          many.grid = {64 * 16, 1, 1};
          for (const uint64_t all : {0, 1}) {
            data[0] = data[1] = data[2] = 0;
            if (!m.Run("gws_release", {P(data), all}, many)) return m.error();
            if (data[0] != 15 || data[1] != 0) return Differ("released", all, data[0], 15);
          }
        }
        // A queue that was not given it.
        if (m.Run("gws_init_barrier", {P(data), 0}, {})) return "it ran without";
        return m.error().find("ALLOC_QUEUE_GWS") != std::string::npos ? "" : m.error();
      },
      false);
}

// More workgroups than the chip holds: a barrier over them hangs, and the machine says so.
TEST(grid_barrier_that_cannot_be_resident_is_reported) {
  ForEach(
      test_context, "grid_barrier",
      [](Machine& m) -> std::string {
        auto* state = m.New<uint32_t>(64);
        auto* data = m.New<uint32_t>(64 * 16);
        Machine::Options o;
        // One compute unit takes 32 waves: 16 of the 32 workgroups that wait for each other.
        o.grid = {128 * 32, 1, 1};
        o.workgroup = {128, 1, 1};
        o.limits.xccs = 1;
        o.limits.cus_per_xcc = 1;
        o.budget = 50'000'000;
        if (m.Run("grid_barrier", {P(state), P(data), 1}, o)) return "it ended";
        if (m.result.state != Grid::State::kWaiting) return "not reported as waiting";
        return m.error().find("hangs on silicon") != std::string::npos ? "" : m.error();
      },
      false);
}

TEST(a_bad_pointer_stops_the_wave_and_names_the_instruction) {
  ForEach(
      test_context, "grid_barrier",
      [](Machine& m) -> std::string {
        Machine::Options o;
        if (m.Run("grid_barrier", {0x1000, 0x2000, 1}, o)) return "it ended";
        if (m.result.reason != StopReason::kMemoryFault || m.result.fault.va < 0x1000)
          return "no fault";
        return m.error().find("global_atomic") != std::string::npos ? "" : m.error();
      },
      false);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
