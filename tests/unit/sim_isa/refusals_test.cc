// SPDX-License-Identifier: MIT
//
// What no chip would run: descriptors, grids, LDS and registers that it cannot have are refused by
// name and limit before a wave starts; encodings that it does not know stop the wave and are named.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/isa/grid.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

TEST(descriptors_that_ask_for_what_the_chip_lacks) {
  const struct {
    size_t offset;
    uint8_t value;
    const char* says;
  } kCases[] = {{57, 1 << 2, "wave32"},
                {56, 1 << 0, "private segment buffer"},
                {56, 1 << 5, "flat scratch init"},
                {52, 17 << 1, "user sgpr count 17 above 16"}};
  for (const auto& c : kCases) {
    uint8_t descriptor[64] = {};
    KernelLaunch launch;
    CHECK_OK(ReadDescriptor(descriptor, &launch));
    descriptor[c.offset] = c.value;
    const Status status = ReadDescriptor(descriptor, &launch);
    CHECK(!status.ok());
    CHECK(absl::StrContains(status.message(), c.says));
  }
}

TEST(launches_that_no_compute_unit_holds) {
  InstructionSet set(Isa::kGfx950, LaneCode::kPortable);
  Program program(&set);
  FlatMemory memory(0, nullptr, 0);
  const auto why = [&](void (*change)(KernelLaunch*, ChipLimits*)) {
    KernelLaunch launch;
    ChipLimits limits;
    launch.grid = launch.workgroup = {64, 1, 1};
    change(&launch, &limits);
    return std::string(Grid::Create(&program, launch, limits, {&memory}).status().message());
  };
  CHECK_EQ(why([](KernelLaunch*, ChipLimits*) {}), "");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) { l->lds_bytes = 163840; }), "");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) { l->lds_bytes = 163841; }),
           "workgroup wants 163841 bytes of lds, a compute unit has 163840");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits* limits) {
             limits->lds_bytes = 65536, limits->lds_granule = 512;
             l->lds_bytes = 65540;
           }),
           "workgroup wants 65540 bytes of lds, a compute unit has 65536");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) { l->workgroup = {1025, 1, 1}; }),
           "workgroup of 1025 work-items, not 1 to 1024");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) { l->workgroup = {64, 0, 1}; }),
           "workgroup of 0 work-items, not 1 to 1024");
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) { l->grid = {64, 0, 1}; }), "grid size 1 is zero");
  // 16 waves of 512 registers: each SIMD holds one.
  CHECK_EQ(why([](KernelLaunch* l, ChipLimits*) {
             l->workgroup = {1024, 1, 1};
             l->rsrc1 = 63;
           }),
           "a workgroup of 16 waves with 512 registers does not fit a compute unit");
}

// What a wave says that runs these words behind an s_nop; empty when it ends.
std::string Run(Isa isa, const std::vector<uint32_t>& words, bool run_errata = false,
                std::vector<std::string>* notes = nullptr) {
  std::vector<uint64_t> storage(1024);
  const uint64_t base = (reinterpret_cast<uint64_t>(storage.data()) + 255) & ~uint64_t{255};
  uint32_t* code = reinterpret_cast<uint32_t*>(base);
  *code++ = 0xbf800000;
  for (uint32_t word : words) *code++ = word;
  *code = 0xbf810000;  // s_endpgm
  InstructionSet set(isa, LaneCode::kPortable);
  Program program(&set, run_errata);
  KernelLaunch launch;
  launch.entry = base;
  launch.rsrc1 = 31 | 0xf0 << 12;
  launch.grid = launch.workgroup = {64, 1, 1};
  FlatMemory memory(base, reinterpret_cast<uint8_t*>(base), 4096);
  auto grid = Grid::Create(&program, launch, ChipLimits(), {&memory});
  if (!grid.ok()) return std::string(grid.status().message());
  const Grid::Result result = (*grid)->Run(1000);
  if (notes != nullptr) *notes = program.TakeNotes();
  if (result.state != Grid::State::kStopped) return "";
  if (result.reason != StopReason::kIllegal) return "stopped, but not as illegal";
  // The report names the place.
  const std::string pc = absl::StrCat("pc 0x", absl::Hex(base + 4));
  return absl::StrContains(result.detail, pc) ? result.detail : "no pc in: " + result.detail;
}

std::vector<uint32_t> Words(Isa isa, const std::string& text) {
  std::string error;
  const std::vector<uint8_t> bytes = Assemble(isa, text + "\n", &error);
  std::vector<uint32_t> out(bytes.size() / 4);
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(encodings_that_the_chip_does_not_know_are_illegal) {
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    // Opcodes that no table has: SOPP 127, SOP1 255, VOP1 255, GLOBAL 127.
    for (uint32_t word : {0xbfff0000u, 0xbe80ff80u, 0x7e01fe80u, 0xddfc8000u}) {
      const std::string what = Run(isa, {word, 0x007f0000});
      CHECK(absl::StrContains(what, "illegal"));
    }
  }
}

TEST(instructions_of_the_other_chip_are_illegal) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const struct {
    Isa of;
    const char* text;
  } kCases[] = {{Isa::kGfx950, "v_prng_b32 v1, v0"},
                {Isa::kGfx950, "v_permlane32_swap_b32 v1, v2"},
                {Isa::kGfx950, "v_cvt_scalef32_pk_f32_fp8 v[2:3], v0, v1"},
                {Isa::kGfx950, "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0"},
                {Isa::kGfx942, "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], 0"}};
  for (const auto& c : kCases) {
    const std::vector<uint32_t> words = Words(c.of, c.text);
    CHECK(!words.empty());
    const Isa other = c.of == Isa::kGfx950 ? Isa::kGfx942 : Isa::kGfx950;
    CHECK_EQ(Run(c.of, words), "");
    CHECK(absl::StrContains(Run(other, words), "illegal"));
  }
}

// A breakpoint without a debugger is passed; the other traps stop the wave.
TEST(a_debug_trap_goes_on) {
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    CHECK_EQ(Run(isa, {0xbf920003}), "");                        // s_trap 3
    CHECK_EQ(Run(isa, {0xbf920002}), "stopped, but not as illegal");  // s_trap 2: __builtin_trap
  }
}

// The erratum of gfx950's packed FMA: never run there, checkers or not.
TEST(a_forbidden_encoding_stops_on_its_chip) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const char* form = "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,1,0]";
  const char* fine = "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]";
  CHECK_EQ(Run(Isa::kGfx942, Words(Isa::kGfx942, form)), "");
  CHECK_EQ(Run(Isa::kGfx950, Words(Isa::kGfx950, fine)), "");
  const std::string what = Run(Isa::kGfx950, Words(Isa::kGfx950, form));
  CHECK(absl::StrContains(what, "v_pk_fma_f32 v[0:1]"));
  CHECK(absl::StrContains(what, "erratum"));
  // For programs from outside it runs, and is told of.
  std::vector<std::string> notes;
  CHECK_EQ(Run(Isa::kGfx950, Words(Isa::kGfx950, form), true, &notes), "");
  CHECK_EQ(notes.size(), 1u);
  CHECK(absl::StrContains(notes[0], "erratum"));
  CHECK_EQ(Run(Isa::kGfx950, Words(Isa::kGfx950, fine), true, &notes), "");
  CHECK_EQ(notes.size(), 0u);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
