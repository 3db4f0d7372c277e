// SPDX-License-Identifier: MIT
//
// Each piece of the timing model on a few lines of assembly: what a unit takes, what waits for what,
// and that neither the host nor an observer changes anything.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/isa/check/checker.h"
#include "sim/profile.h"
#include "sim/time/params.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_time/timed.h"

namespace mainarch::sim::timing::test {
namespace {

using isa::Isa;
constexpr Isa k942 = Isa::kGfx942, k950 = Isa::kGfx950;

#define NEEDS_LLVM() \
  if (!isa::test::HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed")

std::string Times(int n, const std::string& body) {
  std::string out;
  for (int i = 0; i < n; ++i) absl::StrAppend(&out, body, "\n");
  return out;
}

// Core clocks of one more `body` in the wave that takes longest. `before` sets registers; s[4:5] is 1 MiB of zeroes.
double ClocksOf(Isa isa, const std::string& body,
                const std::string& before = "", uint32_t threads = 64, int n = 32,
                const ClockOptions& options = {}) {
  double clocks[2] = {};
  for (int twice = 0; twice < 2; ++twice) {
    Timed t(isa, options);
    const uint64_t data = t.Allocate(1 << 20), out = t.Allocate(4096);
    const std::string text = absl::StrCat(
        "s_load_dwordx4 s[4:7], s[0:1], 0\nv_lshrrev_b32 v1, 6, v0\ns_waitcnt lgkmcnt(0)\n"
        "v_readfirstlane_b32 s8, v1\ns_lshl_b32 s8, s8, 2\ns_add_u32 s6, s6, s8\ns_addc_u32 s7, s7, 0\n",
        before, "\ns_barrier\n", Times(4, body), "s_memtime s[20:21]\ns_waitcnt lgkmcnt(0)\n",
        Times(n << twice, body),
        "s_memtime s[22:23]\ns_waitcnt lgkmcnt(0)\ns_sub_u32 s20, s22, s20\nv_mov_b32 v4, s20\n"
        "v_mov_b32 v6, s6\nv_mov_b32 v7, s7\ns_mov_b64 exec, 1\nglobal_store_dword v[6:7], v4, off\n");
    Timed::Shape shape;
    shape.threads = threads;
    shape.lds = 16384;
    // The second time instructions are in their cache.
    std::string error = t.Run(text, {data, out}, shape, nullptr);
    if (error.empty()) error = t.Run(text, {data, out}, shape, nullptr);
    if (!error.empty()) {
      std::printf("%s\n", error.c_str());
      return -1;
    }
    for (uint32_t w = 0; w < threads / 64; ++w)
      clocks[twice] = std::max(clocks[twice], double{static_cast<double>(t.At<uint32_t>(out)[w])});
  }
  return (clocks[1] - clocks[0]) / n;
}

TEST(vector_pipe_is_shared_by_waves_of_a_simd) {
  NEEDS_LLVM();
  CHECK_EQ(ClocksOf(k942, "v_add_f32 v10, v11, v12"), 4);
  // Four waves have a SIMD each; of eight two share one.
  CHECK_EQ(ClocksOf(k942, "v_add_f32 v10, v11, v12", "", 256), 4);
  CHECK_EQ(std::lround(ClocksOf(k942, "v_add_f32 v10, v11, v12", "", 512)), 8);
  CHECK_EQ(ClocksOf(k942, "v_exp_f32 v10, v11"), 16);
  CHECK_EQ(ClocksOf(k950, "v_exp_f32 v10, v11"), 8);
  CHECK_EQ(ClocksOf(k942, "v_mul_lo_u32 v10, v11, v12"), 16);
  CHECK_EQ(ClocksOf(k942, "v_pk_fma_f32 v[10:11], v[12:13], v[14:15], v[16:17]"), 4);
  // A scalar instruction of one wave issues beside a vector instruction of the other.
  CHECK_EQ(ClocksOf(k942, "s_nop 2"), 12);
}

TEST(matrix_core_takes_its_passes_and_hides_vector_instructions) {
  NEEDS_LLVM();
  const std::string mfma = "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], v[20:23]";
  const std::string other = "v_mfma_f32_16x16x16_f16 v[24:27], v[10:11], v[12:13], v[24:27]";
  CHECK_EQ(ClocksOf(k942, mfma), 16);                  // a chain of sums
  CHECK_EQ(ClocksOf(k942, mfma + "\n" + other), 32);   // independent: the pipe is the limit
  CHECK_EQ(ClocksOf(k942, mfma + "\nv_add_f32 v30, v31, v32\nv_add_f32 v33, v31, v32"), 16);
  // Its result elsewhere: four passes and three.
  CHECK_EQ(ClocksOf(k942, mfma + "\nv_add_f32 v30, v20, v32"), 28 + 4);
  CHECK_EQ(ClocksOf(k942, "v_mfma_f32_32x32x8_f16 v[20:35], v[10:11], v[12:13], v[20:35]"), 32);
  ClockOptions full;
  full.params = {{"mfma_stretch", 1}};
  CHECK_EQ(ClocksOf(k950, "v_mfma_f32_16x16x32_f16 v[20:23], v[10:13], v[14:17], v[20:23]", "", 64, 32, full), 16);
}

TEST(lds_is_as_wide_as_an_instruction_makes_it) {
  NEEDS_LLVM();
  // Four waves, whose lanes lie one behind the other: 64 lanes through 128 bytes a clock, or 256.
  const std::string run = "v_and_b32 v3, 63, v0\nv_lshlrev_b32 v2, 4, v3\n";
  const auto four = [&](Isa isa, const std::string& body, const std::string& before) {
    return std::lround(ClocksOf(isa, body, before, 256));
  };
  const std::string wide = "ds_read_b128 v[10:13], v2\ns_waitcnt lgkmcnt(8)";
  const std::string write = "ds_write_b128 v2, v[10:13]\ns_waitcnt lgkmcnt(8)";
  CHECK_EQ(four(k942, wide, run), 32);
  CHECK_EQ(four(k950, wide, run), 16);
  CHECK_EQ(four(k942, write, run), 32);
  CHECK_EQ(four(k950, write, run), 32);
  const std::string odd = "ds_read_b96 v[10:12], v2\ns_waitcnt lgkmcnt(8)";
  CHECK_EQ(four(k950, odd, run), four(k942, odd, run));
  // Lanes 0 to 3 and 20 to 23 are read together on MI300X: each four of lanes in a line of its own, the fours of the
  // upper half of 32 lanes in the other half of the banks. In the order of lanes each bank would be met twice.
  const std::string fours = "v_and_b32 v3, 63, v0\nv_lshrrev_b32 v4, 2, v3\nv_lshlrev_b32 v4, 7, v4\n"
                            "v_bfe_u32 v5, v3, 4, 1\n"
                            "v_lshlrev_b32 v5, 6, v5\nv_and_b32 v3, 3, v3\nv_lshlrev_b32 v3, 4, v3\n"
                            "v_add_u32 v2, v4, v5\nv_add_u32 v2, v2, v3\n";
  CHECK_EQ(four(k942, wide, fours), 32);
  CHECK_EQ(four(k942, write, fours), 64);
}

TEST(counters_are_waited_for_in_order) {
  NEEDS_LLVM();
  // Two loads that the L1 has: the second is there four clocks of data path after the first.
  const std::string loads = "global_load_dwordx4 v[10:13], v[2:3], off\nglobal_load_dwordx4 v[14:17], v[2:3], off\n";
  const std::string before = "v_lshlrev_b32 v2, 4, v0\nv_mov_b32 v3, s5\nv_add_co_u32 v2, vcc, s4, v2\n"
                             "v_addc_co_u32 v3, vcc, 0, v3, vcc\n";
  const double first = ClocksOf(k942, loads + "s_waitcnt vmcnt(1)\n", before, 64, 8);
  const double both = ClocksOf(k942, loads + "s_waitcnt vmcnt(0)\n", before, 64, 8);
  CHECK_GT(both, first);
  CHECK_GE(both, 116);
  // Each is a KiB through 64 bytes a clock.
  CHECK_EQ(std::lround(ClocksOf(k942, loads, before, 64, 64)), 32);
}

TEST(lds_banks_conflict) {
  NEEDS_LLVM();
  const std::string read = "ds_read_b32 v10, v5\nds_read_b32 v11, v5\nds_read_b32 v12, v5\nds_read_b32 v13, v5\n";
  // A dword each: 256 bytes, two clocks; issue is the limit. All lanes of the same: the same.
  CHECK_EQ(std::lround(ClocksOf(k942, read, "v_lshlrev_b32 v5, 2, v0")), 16);
  CHECK_EQ(std::lround(ClocksOf(k942, read, "v_mov_b32 v5, 0")), 16);
  // 128 bytes apart all lanes meet in one bank: 64 clocks a read.
  CHECK_EQ(std::lround(ClocksOf(k942, read, "v_lshlrev_b32 v5, 7, v0")), 256);
  CHECK_EQ(std::lround(ClocksOf(k942, read, "v_lshlrev_b32 v5, 3, v0")), 16);
  // 16 bytes a lane: a KiB, eight clocks.
  CHECK_EQ(std::lround(ClocksOf(k942, "ds_read_b128 v[10:13], v5\nds_read_b128 v[14:17], v5", "v_lshlrev_b32 v5, 4, v0")), 16);
  // ds_read_b32 to use.
  CHECK_EQ(ClocksOf(k950, "ds_read_b32 v10, v5\ns_waitcnt lgkmcnt(0)", "v_lshlrev_b32 v5, 2, v0"), 69);
}

// Lanes beyond a buffer's end ask for nothing; the others for each line once.
TEST(buffers_ask_for_the_lines_that_lanes_reach) {
  NEEDS_LLVM();
  struct Case {
    const char* load;  // v1: lane * 4; v[2:3]: lane, lane * 4
    uint32_t stride, records;
    uint64_t lanes, lines;
  };
  const char* const raw = "buffer_load_dword v5, v1, s[4:7], 0 offen";
  const char* const further = "buffer_load_dword v5, v1, s[4:7], 64 offen offset:64";  // 128 bytes on
  const char* const index = "buffer_load_dword v5, v2, s[4:7], 0 idxen";
  const char* const both = "buffer_load_dword v5, v[2:3], s[4:7], 0 idxen offen";
  for (const Case& c : {Case{raw, 0, 4096, 64, 2}, Case{raw, 0, 130, 32, 1}, Case{raw, 16, 4096, 64, 2},
                        Case{raw, 16, 130, 32, 1}, Case{further, 0, 4096, 64, 2}, Case{further, 0, 256, 32, 1},
                        Case{index, 256, 64, 64, 64}, Case{index, 256, 10, 10, 10}, Case{index, 4, 33, 33, 2},
                        Case{index, 0, 4, 64, 1}, Case{index, 0, 3, 0, 0}, Case{both, 124, 64, 64, 64},
                        Case{both, 124, 5, 5, 5}, Case{both, 0, 4096, 64, 2}, Case{both, 0, 130, 32, 1}}) {
    uint64_t lines[2] = {}, asked = 0;
    for (const bool empty : {true, false}) {  // code and arguments are read, too
      Timed t(k942);
      LaunchReport report;
      const std::string text = absl::StrCat(
          "s_load_dwordx2 s[4:5], s[0:1], 0\nv_lshlrev_b32 v1, 2, v0\nv_mov_b32 v2, v0\nv_mov_b32 v3, v1\n"
          "s_mov_b32 s7, 0x20000\ns_mov_b32 s6, ", empty ? 0 : c.records,
          "\ns_waitcnt lgkmcnt(0)\ns_or_b32 s5, s5, ", c.stride << 16, "\n", c.load, "\ns_waitcnt vmcnt(0)\n");
      CHECK_EQ(t.Run(text, {t.Allocate(1 << 20)}, {}, &report), "");
      lines[empty] = report.bytes.l2_read / 128;
      asked = report.bytes.asked;
    }
    CHECK_EQ(asked, c.lanes * 4);
    CHECK_EQ(lines[0] - lines[1], c.lines);
  }
}

TEST(barriers_wait_for_the_last) {
  NEEDS_LLVM();
  Timed t(k942);
  const uint64_t data = t.Allocate(4096);
  Timed::Shape shape;
  shape.threads = 256;
  LaunchReport report;
  // Wave 0 sleeps for some 6400 clocks; the others wait for it.
  CHECK_EQ(t.Run("v_readfirstlane_b32 s4, v0\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 meet\ns_sleep 100\nmeet:\ns_barrier\n",
                 {data}, shape, &report), "");
  const auto share = [&](Limit l) { return report.limited_by[static_cast<size_t>(l)]; };
  CHECK_GT(report.kernel_us(), 3.0);
  CHECK_GT(share(Limit::kBarrier), 2.5 * share(Limit::kSleep));
  double sum = 0;
  for (double s : report.limited_by) sum += s;
  CHECK_LT(std::abs(sum - 1), 1e-9);
}

TEST(occupancy_follows_registers_and_lds) {
  NEEDS_LLVM();
  Timed t(k942);
  const uint64_t data = t.Allocate(4096);
  LaunchReport report;
  Timed::Shape shape;
  shape.groups = 8 * 38 * 32;
  shape.registers = 256;
  CHECK_EQ(t.Run("s_sleep 127\n", {data}, shape, &report), "");
  CHECK_EQ(report.groups_per_cu, 8u);
  CHECK_EQ(NameOf(report.resident), "registers");
  CHECK_EQ(report.cus_used, 304u);
  shape.registers = 32;
  shape.lds = 32768;
  CHECK_EQ(t.Run("s_sleep 127\n", {data}, shape, &report), "");
  CHECK_EQ(report.groups_per_cu, 2u);
  CHECK_EQ(NameOf(report.resident), "lds");
  shape.lds = 0;
  CHECK_EQ(t.Run("s_sleep 127\n", {data}, shape, &report), "");
  CHECK_EQ(report.groups_per_cu, 32u);
  CHECK_EQ(report.waves, 9728u);
}

// Sums of neighbours through LDS and a counter: results depend on nothing but the input.
constexpr char kWork[] = R"(
    s_load_dwordx4 s[4:7], s[0:1], 0
    v_lshlrev_b32 v1, 2, v0
    s_lshl_b32 s8, s2, 10
    v_add_u32 v2, s8, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v3, v2, s[4:5]
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v3
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_xor_b32 v4, 4, v1
    ds_read_b32 v5, v4
    s_waitcnt lgkmcnt(0)
    v_add_u32 v6, v5, v3
    v_mul_lo_u32 v6, v6, v3
    global_store_dword v2, v6, s[6:7]
    v_mov_b32 v7, 1
    v_mov_b32 v8, 0
    s_add_u32 s6, s6, 0x100000
    s_addc_u32 s7, s7, 0
    global_atomic_add v8, v7, s[6:7]
)";

struct Result {
  std::string error;
  std::vector<uint32_t> bytes;
  uint64_t cycles = 0;
  std::vector<double> all;
};

Result Work(Isa isa, bool timed, uint64_t slice,
            isa::Observer* observer = nullptr) {
  Timed t(isa);
  const uint64_t in = t.Allocate(1 << 20), out = t.Allocate((1 << 20) + 4096);
  for (uint32_t i = 0; i < 1 << 18; ++i) t.At<uint32_t>(in)[i] = i * 2654435761u;
  Timed::Shape shape;
  shape.groups = observer == nullptr ? 1024 : 16;
  shape.threads = 256;
  shape.lds = 1024;
  shape.timed = timed;
  shape.slice = slice;
  shape.observer = observer;
  LaunchReport report;
  Result result;
  result.error = t.Run(kWork, {in, out}, shape, &report);
  const uint32_t* from = t.At<uint32_t>(out);
  result.bytes.assign(from, from + (1 << 18) + 1);
  result.cycles = report.cycles();
  result.all = {report.kernel_us(), report.mean_in_flight, static_cast<double>(report.bytes.hbm_read),
                report.mean_waves_per_simd};
  for (double share : report.limited_by) result.all.push_back(share);
  return result;
}

TEST(results_are_those_of_the_functional_mode_and_cycles_are_the_same_each_time) {
  NEEDS_LLVM();
  for (Isa isa : {k942, k950}) {
    const Result functional = Work(isa, false, 1 << 30);
    const Result once = Work(isa, true, 1 << 30);
    CHECK_EQ(functional.error, "");
    CHECK_EQ(once.error, "");
    CHECK(functional.bytes == once.bytes);
    CHECK_EQ(once.bytes[1 << 18], 1024u * 256u);
    CHECK_GT(once.cycles, 0u);
    for (uint64_t slice : {1000, 77}) {
      const Result again = Work(isa, true, slice);
      CHECK_EQ(again.error, "");
      CHECK(again.bytes == once.bytes);
      CHECK_EQ(again.cycles, once.cycles);
      CHECK(again.all == once.all);
    }
  }
}

// What lies at other addresses, as in another process, takes as long.
TEST(cycles_do_not_depend_on_addresses) {
  NEEDS_LLVM();
  for (Isa isa : {k942, k950}) {
    const Result once = Work(isa, true, 1 << 30);
    std::vector<void*> between;
    for (size_t pages : {(1 << 19) + 1, (3 << 19) + 77, 500, (7 << 18) + 4099}) {
      between.push_back(mmap(nullptr, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      const Result again = Work(isa, true, 1 << 30);
      CHECK_EQ(again.cycles, once.cycles);
      CHECK(again.all == once.all);
    }
    for (size_t i = 0; size_t pages : {(1 << 19) + 1, (3 << 19) + 77, 500, (7 << 18) + 4099}) munmap(between[i++], pages * 4096);
  }
}

TEST(checkers_look_on_under_the_clock) {
  NEEDS_LLVM();
  isa::Checker checker(isa::CheckOptions::All());
  const auto watch = checker.Watch({});
  const Result checked = Work(k950, true, 1 << 20, watch.get());
  CHECK_EQ(checked.error, "");
  CHECK_GT(checked.cycles, 0u);
  // A load's result is used before it is there.
  Timed t(k950);
  const uint64_t data = t.Allocate(4096);
  const auto other = checker.Watch({});
  Timed::Shape shape;
  shape.observer = other.get();
  const std::string said = t.Run("s_load_dwordx2 s[4:5], s[0:1], 0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v1, 0\n"
                                 "global_load_dword v2, v1, s[4:5]\nv_add_u32 v3, v2, v2\n",
                                 {data}, shape, nullptr);
  if (said.find("checker") == std::string::npos) std::printf("said: %s\n", said.c_str());
  CHECK(said.find("checker") != std::string::npos);
}

TEST(a_grid_that_has_no_room_to_meet_is_named) {
  NEEDS_LLVM();
  Timed t(k942);
  const uint64_t counter = t.Allocate(4096);
  Timed::Shape shape;
  shape.groups = 8 * 38 * 2 + 1;
  shape.registers = 512;
  shape.threads = 256;
  std::unique_ptr<isa::Grid> grid;
  CHECK_EQ(t.Start(absl::StrCat("s_load_dwordx2 s[4:5], s[0:1], 0\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\ns_waitcnt lgkmcnt(0)\n"
                                "v_cmp_eq_u32 vcc, 0, v0\ns_and_saveexec_b64 s[8:9], vcc\ns_cbranch_execz over\n"
                                "global_atomic_add v1, v2, s[4:5] sc1\n",
                                "again:\ns_sleep 10\nglobal_load_dword v3, v1, s[4:5] sc1\ns_waitcnt vmcnt(0)\n"
                                "v_readfirstlane_b32 s6, v3\ns_cmp_lt_u32 s6, ", shape.groups, "\ns_cbranch_scc1 again\n"
                                "over:\ns_mov_b64 exec, s[8:9]\n"),
                   {counter}, shape, &grid), "");
  isa::GridResult result;
  for (int i = 0; i < 1000 && result.state == isa::GridState::kRunning; ++i) result = grid->Run(1 << 16);
  CHECK(result.state == isa::GridState::kWaiting);
  CHECK(result.detail.find("have no room on the chip") != std::string::npos);
}

// The first workgroup of each XCC keeps its compute unit, which has room for one, until all others have run: HW_ID says that
// nobody else was there.
TEST(hw_id_is_of_the_unit_that_a_workgroup_is_on) {
  NEEDS_LLVM();
  constexpr uint32_t kXccs = 8, kOthers = 1000, kNumbers = 256;  // of units
  for (Isa isa : {k942, k950}) {
    Timed t(isa);
    const uint64_t data = t.Allocate(4096 + kXccs * kNumbers * 4);
    Timed::Shape shape;
    shape.groups = kXccs + kOthers;
    shape.lds = LimitsOf(isa).lds_bytes;
    LaunchReport report;
    CHECK_EQ(t.Run(R"(
    s_load_dwordx4 s[12:15], s[0:1], 0
    s_getreg_b32 s8, hwreg(HW_REG_HW_ID, 8, 8)
    s_getreg_b32 s9, hwreg(HW_REG_XCC_ID)
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_lshl_b32 s9, s9, 8
    s_add_u32 s8, s8, s9
    s_lshl_b32 s8, s8, 2
    s_add_u32 s8, s8, 4096
    v_mov_b32 v4, s8
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    global_atomic_add v4, v2, s[12:13] sc1
    s_cmp_lt_u32 s2, 8
    s_cbranch_scc1 poll
    global_atomic_add v1, v2, s[12:13] sc1
    s_branch over
  poll:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lt_u32 s6, s14
    s_cbranch_scc1 poll
  over:
)",
                   {data, kOthers}, shape, &report),
             "");
    const uint32_t* counts = t.At<uint32_t>(data + 4096);
    uint32_t all = 0;
    for (uint32_t x = 0; x < kXccs; ++x) {
      const uint32_t* own = counts + x * kNumbers;
      all += std::accumulate(own, own + kNumbers, 0u);
      CHECK_EQ(std::count(own, own + kNumbers, 1u), 1);
      CHECK_EQ(static_cast<uint32_t>(kNumbers - std::count(own, own + kNumbers, 0u)), LimitsOf(isa).cus_per_xcc);
    }
    CHECK_EQ(all, kXccs + kOthers);
  }
}

TEST(a_node_has_a_clock_when_asked_for) {
  const auto on = ParseNode("gfx950x8,time=on,threads=4");
  CHECK_OK(on.status());
  CHECK(on->time);
  CHECK_EQ(on->threads, 1u);
  CHECK(!on->reorder);
  const auto off = ParseNode("gfx942,time=off");
  CHECK_OK(off.status());
  CHECK(!off->time);
  CHECK(!ParseNode("gfx942,time=maybe").ok());
  CHECK(!ParseNode("gfx90a,time=on").ok());
  CHECK(Clock::Check({}, k950).ok());
  ClockOptions wrong;
  wrong.params = {{"l3_latency", 4}};
  CHECK(!Clock::Check(wrong, k950).ok());
}

TEST(every_parameter_has_a_source_and_a_confidence) {
  for (Isa isa : {k942, k950}) {
    for (const ParamInfo& info : AllParams()) {
      int given = 0;
      for (const Given& g : GivenOf(isa)) {
        if (g.field != info.field) continue;
        ++given;
        CHECK(std::strchr("HMLF", g.confidence) != nullptr);
        CHECK_GT(std::strlen(g.source), 3u);
      }
      if (given != 1) std::printf("%s: given %d times\n", info.name, given);
      CHECK_EQ(given, 1);
    }
    Params params = Params::Of(isa);
    CHECK(!params.Set("no_such_figure", 1).ok());
    CHECK(!params.Set("hbm_ns", -1).ok());
    CHECK_OK(params.Set("hbm_ns", 600));
    CHECK_EQ(params.hbm_ns, 600);
  }
}

}  // namespace
}  // namespace mainarch::sim::timing::test
