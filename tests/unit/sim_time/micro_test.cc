// SPDX-License-Identifier: MIT
//
// Published micro-benchmarks of MI300X and MI355X (src/sim/time/README.md names the sources),
// replayed with kernels of ours under the timing model: a row each, published against modelled. What
// is printed is modelled, never measured. MAINARCH_MICRO=text: the rows alone whose name holds the text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/time/params.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_time/timed.h"

namespace mainarch::sim::timing::test {
namespace {

using isa::Isa;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// What a replay gives, or why it could not.
struct Outcome {
  double value = 0;
  std::string error;
};

Timed::Shape Wide(uint32_t groups, uint32_t threads, uint32_t registers = 64) {
  Timed::Shape shape;
  shape.groups = groups;
  shape.threads = threads;
  shape.registers = registers;
  return shape;
}

// Core clocks an iteration of `body`, run `times` times by one wave after one round for warmth.
// v[2:3] and s[4:5] point to `bytes` of memory in which each pointer leads `stride` on.
Outcome Chase(Isa isa, const std::string& body, uint64_t bytes, uint64_t stride, int warm_rounds) {
  Timed t(isa);
  const uint64_t data = t.Allocate(bytes), out = t.Allocate(64);
  const uint64_t count = bytes / stride;
  for (uint64_t i = 0; i < count; ++i) {
    *t.At<uint64_t>(data + i * stride) = data + (i + 1) % count * stride;
  }
  const uint64_t warm = count * static_cast<uint64_t>(warm_rounds);
  const uint64_t rounds = std::min<uint64_t>(count, 400);
  const std::string loop = absl::StrCat(body, "s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\n");
  const std::string text = absl::StrCat(R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    s_waitcnt lgkmcnt(0)
    s_mov_b64 s[4:5], s[12:13]
    v_mov_b32 v2, s12
    v_mov_b32 v3, s13
    v_mov_b32 v11, 0
    s_mov_b64 exec, 1
    s_cmp_eq_u32 s16, 0
    s_cbranch_scc1 measure
    s_mov_b32 s8, s16
  warm:)", "\n", loop, R"(s_cbranch_scc1 warm
  measure:
    s_mov_b32 s8, s18
    s_memtime s[20:21]
    s_waitcnt lgkmcnt(0)
  loop:)", "\n", loop, R"(s_cbranch_scc1 loop
    s_memtime s[22:23]
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s20, s22, s20
    v_mov_b32 v4, s20
    v_mov_b32 v6, s14
    v_mov_b32 v7, s15
    global_store_dword v[6:7], v4, off
  )");
  Outcome outcome;
  // Twice the body less once leaves the loop's own instructions out.
  double clocks[2];
  for (int twice = 0; twice < 2; ++twice) {
    std::string one = text;
    if (twice == 1) {
      const size_t at = one.find("loop:");
      one.insert(one.find('\n', at) + 1, body);
    }
    Timed::Shape shape = Wide(1, 64);
    shape.lds = 4096;
    t.clock().Flush(0);
    outcome.error = t.Run(one, {data, out, warm, rounds}, shape, nullptr);
    if (!outcome.error.empty()) return outcome;
    clocks[twice] = *t.At<uint32_t>(out);
  }
  outcome.value = (clocks[1] - clocks[0]) / static_cast<double>(rounds);
  return outcome;
}

constexpr char kVectorChase[] =
    "global_load_dwordx2 v[2:3], v[2:3], off\ns_waitcnt vmcnt(0)\n";
constexpr char kScalarChase[] = "s_load_dwordx2 s[4:5], s[4:5], 0\ns_waitcnt lgkmcnt(0)\n";
constexpr char kLdsChase[] = "ds_read_b32 v10, v11\ns_waitcnt lgkmcnt(0)\n";

Outcome Ns(Isa isa, Outcome clocks) {
  clocks.value *= 1000 / Params::Of(isa).clock_mhz;
  return clocks;
}

struct Row {
  const char* what;
  Isa isa;
  double published;
  const char* unit;
  std::function<Outcome()> replay;
  double allowed = 0.10;  // error
  const char* why = "";   // where it is more
};

constexpr Isa k942 = Isa::kGfx942, k950 = Isa::kGfx950;

std::vector<Row> Latencies() {
  return {
      {"scalar load, scalar cache", k942, 48, "clk", [] { return Chase(k942, kScalarChase, 4096, 64, 1); }},
      {"LDS read", k942, 51, "clk", [] { return Chase(k942, kLdsChase, 4096, 64, 1); }},
      {"load, L1", k942, 116, "clk", [] { return Chase(k942, kVectorChase, 16384, 128, 1); }},
      {"load, L2", k942, 288, "clk", [] { return Chase(k942, kVectorChase, kMiB, 128, 1); }},
      {"load, HBM", k942, 900, "clk", [] { return Chase(k942, kVectorChase, 64 * kMiB, 65536 + 128, 0); }},
      {"LDS read", k950, 69, "clk", [] { return Chase(k950, kLdsChase, 4096, 64, 1); }},
      {"load, HBM, mean of 728 and 1091", k950, 909.5, "ns", [] { return Ns(k950, Chase(k950, kVectorChase, 64 * kMiB, 65536 + 128, 0)); }},
  };
}

// --- streams ---

// Each wave reads its part of an array of `bytes`, `loads` loads of 16 bytes a lane in flight.
std::string StreamText(int loads, bool write) {
  std::string body;
  for (int i = 0; i < loads; ++i) {
    absl::StrAppend(&body, write ? "global_store_dwordx4 v[2:3], v[8:11], off offset:"
                                 : absl::StrCat("global_load_dwordx4 v[", 8 + 4 * i, ":", 11 + 4 * i,
                                                "], v[2:3], off offset:"),
                    "0\nv_add_co_u32 v2, vcc, v2, v4\nv_addc_co_u32 v3, vcc, v3, v5, vcc\n");
  }
  // s4: bytes between two pieces of a wave; s5: rounds. Piece: 1024 bytes.
  return absl::StrCat(R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    v_lshrrev_b32 v1, 6, v0
    v_readfirstlane_b32 s6, v1
    v_and_b32 v0, 63, v0
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s7, s2, s18
    s_add_u32 s6, s6, s7
    s_lshl_b32 s6, s6, 10
    v_lshlrev_b32 v2, 4, v0
    v_add_u32 v2, s6, v2
    v_mov_b32 v3, s13
    v_add_co_u32 v2, vcc, s12, v2
    v_addc_co_u32 v3, vcc, 0, v3, vcc
    v_mov_b32 v4, s14
    v_mov_b32 v5, 0
    s_mov_b32 s8, s16
  loop:
)", body, write ? "" : "s_waitcnt vmcnt(0)\n", R"(
    s_sub_u32 s8, s8, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 loop
)");
}

// TB/s of the last of some passes over `bytes`.
Outcome Stream(Isa isa, uint64_t bytes, int loads, bool write, uint32_t groups, uint32_t waves,
               int passes) {
  Timed t(isa, {}, uint64_t{4} << 30);
  const uint64_t data = t.Allocate(bytes + kMiB);
  const uint64_t piece = uint64_t{groups} * waves * 1024;
  const uint64_t rounds = std::max<uint64_t>(bytes / piece / static_cast<uint64_t>(loads), 1);
  LaunchReport report;
  Outcome outcome;
  for (int pass = 0; pass < passes; ++pass) {
    outcome.error = t.Run(StreamText(loads, write), {data, piece, rounds, waves},
                          Wide(groups, 64 * waves, 64), &report);
    if (!outcome.error.empty()) return outcome;
  }
  // Writes are over when the caches have been written back.
  const double us = write ? report.end_us - report.first_wave_us : report.kernel_us();
  outcome.value = static_cast<double>(piece * rounds * static_cast<uint64_t>(loads)) / us / 1e6;
  return outcome;
}

std::vector<Row> Streams() {
  std::vector<Row> rows;
  const double published[] = {2.59, 3.40, 3.74, 4.24, 4.15};
  static const char* const kNames[] = {"streamed read, 1 load in flight", "streamed read, 2 loads in flight",
                                       "streamed read, 4 loads in flight", "streamed read, 8 loads in flight",
                                       "streamed read, 16 loads in flight"};
  for (int i = 0; i < 5; ++i) {
    rows.push_back({kNames[i], k942, published[i], "TB/s",
                    [i] { return Stream(k942, 192 * kMiB, 1 << i, false, 304, 4, 1); }, i == 1 ? 0.2 : 0.1,
                    i == 1 ? "memory's queues are shorter than real ones at medium load" : ""});
  }
  rows.push_back({"read, MALL", k942, 5.8, "TB/s", [] { return Stream(k942, 128 * kMiB, 4, false, 608, 8, 2); }});
  rows.push_back({"write, HBM", k942, 4.42, "TB/s", [] { return Stream(k942, 512 * kMiB, 4, true, 608, 8, 2); }});
  rows.push_back({"write, MALL", k942, 5.5, "TB/s", [] { return Stream(k942, 128 * kMiB, 4, true, 608, 8, 2); }, 0.15,
                  "what the L2s hold at the end is written back behind the last wave"});
  rows.push_back({"streamed read, best", k950, 6.35, "TB/s", [] { return Stream(k950, 192 * kMiB, 8, false, 512, 8, 1); }});
  rows.push_back({"write, 2 GiB", k950, 6.84, "TB/s", [] { return Stream(k950, 512 * kMiB, 4, true, 512, 8, 2); }});
  return rows;
}

// --- events and barriers ---

// Two workgroups hand a counter to and fro, with release and acquire; ns one way.
Outcome PingPong(Isa isa, uint32_t partner) {
  constexpr uint32_t kRounds = 100;
  Timed t(isa);
  const uint64_t counter = t.Allocate(4096);
  const std::string text = R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    s_mov_b64 exec, 1
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_mov_b32 s8, 0
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 poll
    s_mov_b32 s8, 1
    s_cmp_eq_u32 s2, s14
    s_cbranch_scc0 over
  poll:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lt_u32 s6, s8
    s_cbranch_scc1 poll
    buffer_inv sc1
    buffer_wbl2 sc1
    s_waitcnt vmcnt(0)
    global_atomic_add v1, v2, s[12:13] sc1
    s_add_u32 s8, s8, 2
    s_sub_u32 s16, s16, 1
    s_cmp_lg_u32 s16, 0
    s_cbranch_scc1 poll
  over:
)";
  LaunchReport report;
  Outcome outcome;
  outcome.error = t.Run(text, {counter, partner, kRounds, 0}, Wide(16, 64), &report);
  outcome.value = report.kernel_us() * 1000 / (2 * kRounds);
  return outcome;
}
Outcome RoundTripUs(Isa isa, uint32_t partner) {
  Outcome o = PingPong(isa, partner);
  o.value *= 2e-3;
  return o;
}

// All workgroups count up and wait for the last; us each of several in a row.
Outcome FlatBarrier(Isa isa, uint32_t groups) {
  constexpr uint32_t kRounds = 6;
  Timed t(isa);
  const uint64_t counter = t.Allocate(4096);
  const std::string text = R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    v_readfirstlane_b32 s7, v0
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s8, s14
  round:
    s_barrier
    s_cmp_lg_u32 s7, 0
    s_cbranch_scc1 met
    s_mov_b64 exec, 1
    global_atomic_add v1, v2, s[12:13] sc1
  poll:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lt_u32 s6, s8
    s_cbranch_scc1 poll
  met:
    s_barrier
    s_add_u32 s8, s8, s14
    s_sub_u32 s16, s16, 1
    s_cmp_lg_u32 s16, 0
    s_cbranch_scc1 round
)";
  LaunchReport report;
  Outcome outcome;
  outcome.error = t.Run(text, {counter, groups, kRounds, 0}, Wide(groups, 256), &report);
  outcome.value = report.kernel_us() / kRounds;
  return outcome;
}

// A counter for each XCD, one for all: the last of an XCD goes on to the second.
Outcome TreeBarrier(Isa isa, uint32_t groups) {
  constexpr uint32_t kRounds = 6;
  Timed t(isa);
  const uint64_t counters = t.Allocate(16 * 4096);
  const std::string text = R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_getreg_b32 s9, hwreg(HW_REG_XCC_ID)
    s_waitcnt lgkmcnt(0)
    s_lshl_b32 s9, s9, 12
    s_add_u32 s9, s9, 4096
    v_mov_b32 v4, s9
    s_mov_b64 exec, 1
    s_mov_b32 s8, s14
    s_mov_b32 s10, 8
  round:
    global_atomic_add v5, v4, v2, s[12:13] sc0 sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v5
    s_add_u32 s6, s6, 1
    s_cmp_lg_u32 s6, s8
    s_cbranch_scc1 poll
    global_atomic_add v1, v2, s[12:13] sc1
  poll:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lt_u32 s6, s10
    s_cbranch_scc1 poll
    s_add_u32 s8, s8, s14
    s_add_u32 s10, s10, 8
    s_sub_u32 s16, s16, 1
    s_cmp_lg_u32 s16, 0
    s_cbranch_scc1 round
)";
  LaunchReport report;
  Outcome outcome;
  outcome.error = t.Run(text, {counters, groups / 8, kRounds, 0}, Wide(groups, 64), &report);
  outcome.value = report.kernel_us() / kRounds;
  return outcome;
}

// One wave looks at `flags` dwords one after the other, once they have been written by all XCDs; us.
Outcome Leader(Isa isa, uint32_t flags) {
  Timed t(isa);
  const uint64_t data = t.Allocate(65536);
  Outcome outcome;
  outcome.error = t.Run(R"(
    s_load_dwordx2 s[12:13], s[0:1], 0
    s_mov_b64 exec, 1
    s_lshl_b32 s4, s2, 2
    v_mov_b32 v1, s4
    v_mov_b32 v2, 1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[12:13] sc1
)", {data}, Wide(flags, 64), nullptr);
  if (!outcome.error.empty()) return outcome;
  LaunchReport report;
  outcome.error = t.Run(R"(
    s_load_dwordx4 s[12:15], s[0:1], 0
    s_mov_b64 exec, 1
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
  next:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lg_u32 s6, 1
    s_cbranch_scc1 next
    v_add_u32 v1, 4, v1
    s_sub_u32 s14, s14, 1
    s_cmp_lg_u32 s14, 0
    s_cbranch_scc1 next
)", {data, flags}, Wide(1, 64), &report);
  outcome.value = report.kernel_us();
  return outcome;
}

// ns that one more wave adds to a round of polls, 736 waves on 8 lines of a page type.
Outcome PollRound(Isa isa, uint8_t mtype) {
  constexpr uint32_t kRounds = 20;
  Outcome outcome;
  Timed t(isa);
  const uint64_t data = t.Allocate(4096);
  isa::Where where;
  where.mtype = mtype;
  t.memory().Set(data, 4096, where);
  LaunchReport report;
  outcome.error = t.Run(R"(
    s_load_dwordx4 s[12:15], s[0:1], 0
    s_mov_b64 exec, 1
    s_and_b32 s4, s2, 7
    s_lshl_b32 s4, s4, 7
    v_mov_b32 v1, s4
    s_waitcnt lgkmcnt(0)
  next:
    global_load_dword v3, v1, s[12:13] sc1
    s_waitcnt vmcnt(0)
    s_sub_u32 s14, s14, 1
    s_cmp_lg_u32 s14, 0
    s_cbranch_scc1 next
)", {data, kRounds}, Wide(736, 64), &report);
  outcome.value = report.kernel_us() * 1000 / kRounds / 736;
  return outcome;
}

// Two GPUs write to and fro, each into the other's memory, and look into their own; us one way.
Outcome PeerFlag(Isa isa, uint32_t payload_stores) {
  constexpr uint32_t kRounds = 20;
  Timed t(isa);
  const uint64_t flags[2] = {t.Allocate(65536), t.Allocate(65536)};
  PlacedMemory* const all = &t.memory();
  PlacedMemory views[2] = {*all, *all};
  for (uint16_t gpu = 0; gpu < 2; ++gpu) {
    isa::Where where;
    where.place = isa::Where::kPeer;
    where.peer = static_cast<uint16_t>(1 - gpu);
    views[gpu].Set(flags[1 - gpu], 65536, where);
  }
  std::string payload;
  for (uint32_t i = 0; i < payload_stores; ++i) {
    absl::StrAppend(&payload, "global_store_dwordx4 v4, v[8:11], s[14:15] offset:", 1024 * (i % 4), " sc0 sc1\n");
  }
  // s8: what its own flag must have reached, s9: what it writes.
  const std::string text = absl::StrCat(R"(
    s_load_dwordx8 s[12:19], s[0:1], 0
    v_lshlrev_b32 v4, 4, v0
    v_add_u32 v4, 0x400, v4
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s8, s16
    s_mov_b64 s[22:23], exec
  poll:
    s_mov_b64 exec, 1
    global_load_dword v3, v1, s[12:13] sc0 sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v3
    s_cmp_lt_u32 s6, s8
    s_cbranch_scc1 poll
    s_mov_b64 exec, s[22:23]
)", payload, R"(
    s_waitcnt vmcnt(0)
    s_mov_b64 exec, 1
    s_add_u32 s8, s8, 1
    s_sub_u32 s9, s8, s16
    v_mov_b32 v2, s9
    global_store_dword v1, v2, s[14:15] sc0 sc1
    s_cmp_lt_u32 s8, s18
    s_cbranch_scc1 poll
)");
  LaunchReport report;
  Outcome outcome;
  std::unique_ptr<isa::Grid> grids[2];
  for (uint32_t gpu = 0; gpu < 2; ++gpu) {
    Timed::Shape shape = Wide(1, 64);
    shape.gpu = gpu;
    shape.memory = &views[gpu];
    // GPU 0 begins: its flag need not have been written.
    outcome.error = t.Start(text, {flags[gpu], flags[1 - gpu], gpu, kRounds}, shape, &grids[gpu]);
    if (!outcome.error.empty()) return outcome;
  }
  bool done[2] = {};
  for (int turn = 0; turn < 1'000'000 && !(done[0] && done[1]); ++turn) {
    const int gpu = turn % 2;
    if (done[gpu]) continue;
    const isa::GridResult result = grids[gpu]->Run(256);
    if (result.state == isa::GridState::kStopped) return {0, result.detail};
    done[gpu] = result.state == isa::GridState::kDone;
  }
  const std::vector<LaunchReport> reports = t.clock().Take();
  if (reports.size() != 2) return {0, "did not end"};
  outcome.value = reports[0].kernel_us() / (2 * kRounds);
  return outcome;
}

// An empty kernel behind another, us.
Outcome EmptyPacket(Isa isa, uint8_t acquire) {
  Timed t(isa);
  Timed::Shape shape = Wide(1, 64);
  shape.acquire = acquire;
  LaunchReport report;
  Outcome outcome;
  for (int i = 0; i < 3; ++i) {
    outcome.error = t.Run("s_nop 0\n", {0}, shape, &report);
    if (!outcome.error.empty()) return outcome;
  }
  outcome.value = report.us();
  return outcome;
}

// ns of an instruction that the wave then waits for.
Outcome FenceNs(Isa isa, const std::string& text) { return Ns(isa, Chase(isa, text + "\ns_waitcnt vmcnt(0)\n", 4096, 64, 0)); }

std::vector<Row> Events() {
  return {
      {"one-way counter, same XCD", k942, 642, "ns", [] { return PingPong(k942, 8); }},
      {"one-way counter, other XCD", k942, 742, "ns", [] { return PingPong(k942, 1); }},
      {"event round trip, same XCD", k942, 1.20, "us", [] { return RoundTripUs(k942, 8); }},
      {"event round trip, other XCD", k942, 1.44, "us", [] { return RoundTripUs(k942, 1); }},
      {"release, wbl2 sc1", k942, 181, "ns", [] { return FenceNs(k942, "buffer_wbl2 sc1"); }},
      {"acquire, inv sc1", k942, 120, "ns", [] { return FenceNs(k942, "buffer_inv sc1"); }},
      {"flat barrier, 304 workgroups", k942, 8.6, "us", [] { return FlatBarrier(k942, 304); }},
      {"flat barrier, 608 workgroups", k942, 17.3, "us", [] { return FlatBarrier(k942, 608); }},
      {"leader polls 304 flags", k942, 52, "us", [] { return Leader(k942, 304); }},
      {"empty packet, barrier bit, agent scopes", k942, 1.39, "us", [] { return EmptyPacket(k942, 1); }},
      {"the same without acquire", k942, 1.30, "us", [] { return EmptyPacket(k942, 0); }},
      {"flag to another GPU, in its memory", k942, 1.0, "us", [] { return PeerFlag(k942, 0); }},
      {"5.9 KB and a flag to another GPU", k950, 3.04, "us", [] { return PeerFlag(k950, 6); }, 0.30,
       "what else the published exchange does is not said"},
      {"barrier, 184 blocks", k950, 1.75, "us", [] { return TreeBarrier(k950, 184); }, 0.2,
       "how the published one is built is not said"},
      {"NC polling, a poller", k950, 27, "ns", [] { return PollRound(k950, 1); }},
      {"near load, sc0 sc1", k950, 157, "ns",
       [] { return Ns(k950, Chase(k950, "global_load_dwordx2 v[2:3], v[2:3], off sc0 sc1\ns_waitcnt vmcnt(0)\n", kMiB, 128, 1)); }},
      {"far load, sc0 sc1", k950, 262, "ns",
       [] { return Ns(k950, Chase(k950, "global_load_dwordx2 v[2:3], v[2:3], off sc0 sc1\ns_waitcnt vmcnt(0)\n", 24 * kMiB, 384, 1)); }},
  };
}

// --- matrix, copies ---

// 1e15 operations a second of chains of matrix products in every SIMD.
Outcome Matrix(Isa isa, const std::string& name, int a, int b, double operations) {
  // A compute unit of each XCD stands for all.
  const uint32_t units = isa == k942 ? 304 : 256, groups = 8;
  Timed t(isa);
  std::string body;
  for (int i = 0; i < 16; ++i) {
    absl::StrAppend(&body, name, " v[", 32 + 4 * i, ":", 35 + 4 * i, "], v[8:", 7 + a, "], v[16:", 15 + b,
                    "], v[", 32 + 4 * i, ":", 35 + 4 * i, "]\n");
  }
  LaunchReport report;
  Outcome outcome;
  constexpr uint64_t kRounds = 200;  // arguments and code come from memory first, which measurements do not show
  outcome.error = t.Run(absl::StrCat("s_load_dwordx2 s[12:13], s[0:1], 0\ns_waitcnt lgkmcnt(0)\nnext:\n", body,
                                     "s_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 next\n"),
                        {kRounds}, Wide(groups, 512, 128), &report);
  outcome.value = operations * 2 * 16 * kRounds * 4 * units / report.kernel_us() / 1e9;
  return outcome;
}

// GB/s of eight copies between two GPUs' memories by one queue.
Outcome Sdma(Isa isa, uint64_t bytes) {
  Timed t(isa);
  Outcome outcome;
  outcome.error = t.Run("s_nop 0\n", {0}, Wide(1, 64), nullptr);
  if (!outcome.error.empty()) return outcome;
  for (int i = 0; i < 9; ++i) t.clock().Copied(0, 7, 0, 0, bytes);
  const std::vector<CopyReport> copies = t.clock().TakeCopies();
  if (copies.size() != 9) return {0, "no reports"};
  outcome.value = static_cast<double>(bytes) * 8 / (copies[8].end_us - copies[0].end_us) / 1e3;
  return outcome;
}

std::vector<Row> Others() {
  const double small = 2.0 * 16 * 16 * 32, bytes = 2.0 * 16 * 16 * 64;
  return {
      {"MFMA bf16", k950, 2.0, "PF/s", [=] { return Matrix(k950, "v_mfma_f32_16x16x32_bf16", 4, 4, small); }},
      {"MFMA f16", k950, 1.8, "PF/s", [=] { return Matrix(k950, "v_mfma_f32_16x16x32_f16", 4, 4, small); }, 0.15,
       "the model knows no power: f16 draws more than bf16"},
      {"MFMA i8", k950, 4.2, "PO/s", [=] { return Matrix(k950, "v_mfma_i32_16x16x64_i8", 4, 4, bytes); }},
      {"SDMA, 64 KiB a copy", k950, 17, "GB/s", [] { return Sdma(k950, 64 << 10); }},
      {"SDMA, 256 KiB a copy", k950, 36, "GB/s", [] { return Sdma(k950, 256 << 10); }},
      {"SDMA, 1 MiB a copy", k950, 52, "GB/s", [] { return Sdma(k950, 1 << 20); }},
      {"SDMA, 8 MiB a copy", k950, 60, "GB/s", [] { return Sdma(k950, 8 << 20); }},
  };
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(published_figures_are_met) {
  if (!isa::test::HaveTool("llvm-mc-22") && !isa::test::HaveTool("llvm-mc")) SKIP("no llvm-mc");
  const char* only = std::getenv("MAINARCH_MICRO");
  std::vector<double> errors;
  std::vector<std::string> wrong;
  std::vector<Row> rows = Latencies();
  for (const auto& more : {Events(), Others()}) rows.insert(rows.end(), more.begin(), more.end());
  // Many million instructions.
  for (const Row& row : kSanitized ? std::vector<Row>() : Streams()) rows.push_back(row);
  std::printf("# %-7s %-40s %9s %9s %-5s %7s\n", "chip", "what", "published", "modelled", "", "error");
  for (const Row& row : rows) {
    if (only != nullptr && std::string(row.what).find(only) == std::string::npos) continue;
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = row.replay();
    const double host = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (!outcome.error.empty()) {
      std::printf("# %s: %s\n", row.what, outcome.error.c_str());
      wrong.push_back(row.what);
      continue;
    }
    const double error = outcome.value / row.published - 1;
    errors.push_back(std::abs(error));
    std::printf("# %-7s %-40s %9.3g %9.3g %-5s %6.1f%% (%.1f s) %s\n", row.isa == k942 ? "gfx942" : "gfx950", row.what,
                row.published, outcome.value, row.unit, 100 * error, host, row.why);
    std::fflush(stdout);
    if (std::abs(error) > row.allowed) wrong.push_back(row.what);
  }
  CHECK_EQ(absl::StrJoin(wrong, "; "), "");
  if (only != nullptr) return;
  std::sort(errors.begin(), errors.end());
  std::printf("# %zu rows, median error %.1f%%, largest %.1f%%\n", errors.size(), 100 * errors[errors.size() / 2],
              100 * errors.back());
  CHECK_GE(errors.size(), 20u);
  CHECK_LE(errors[errors.size() / 2], 0.10);
}

}  // namespace
}  // namespace mainarch::sim::timing::test
