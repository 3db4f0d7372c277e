// SPDX-License-Identifier: MIT
//
// Each rule of the checkers on a few lines of assembly: what must be flagged is, and its right twin
// is not.
#include <cstring>
#include <string>
#include <vector>

#include "sim/isa/check/checker.h"
#include "sim/poison.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr size_t kBytes = 1 << 20, kData = 1 << 16;

// s[0:1] points to data, s2 is the workgroup; v0 the work-item. The first 4 KiB of data are zero,
// the rest has never been written.
std::string Check(Isa isa, const std::string& text, uint32_t groups = 1, uint32_t threads = 64,
                  uint32_t lds = 1024, bool known = false,
                  std::vector<std::string>* notes = nullptr, uint32_t slice = kSlice) {
  std::string error;
  const std::vector<uint8_t> code = Assemble(isa, text + "\ns_endpgm\n", &error);
  if (code.empty()) return "does not assemble: " + error;
  std::vector<uint64_t> storage(kBytes / 8 + 512);
  uint8_t* memory = reinterpret_cast<uint8_t*>((reinterpret_cast<uint64_t>(storage.data()) + 4095) &
                                               ~uint64_t{4095});
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  std::memcpy(memory, code.data(), code.size());
  Poison(base + kData + 4096, memory + kData + 4096, 4096);
  InstructionSet set(isa, LaneCode::kPortable);
  Program program(&set);
  CheckOptions options = CheckOptions::All();
  options.known = known;
  Checker checker(options);
  const auto watch = checker.Watch({});
  KernelLaunch launch;
  launch.entry = base;
  launch.kernarg = base + kData;
  launch.properties = 8;
  launch.rsrc1 = 31 | 0xf0 << 12;
  launch.rsrc2 = 2 << 1 | 1 << 7;
  launch.grid = {groups * threads, 1, 1};
  launch.workgroup = {threads, 1, 1};
  launch.lds_bytes = lds;
  launch.observer = watch.get();
  launch.slice = slice;
  FlatMemory flat(base, memory, kBytes);
  auto grid = Grid::Create(&program, launch, ChipLimits(), {&flat});
  if (!grid.ok()) return std::string(grid.status().message());
  const std::string detail = (*grid)->Run(1 << 20).detail;
  if (notes != nullptr) *notes = checker.TakeNotes();
  return detail;
}

struct Rule {
  const char* name;
  const char* text;
  const char* expected;  // in the report; empty: silence
  uint32_t groups = 1, threads = 64;
};

void Expect(mainarch::test::Context& test_context, const std::vector<Rule>& rules,
            bool known = false) {
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (const Rule& rule : rules) {
      const std::string got = Check(isa, rule.text, rule.groups, rule.threads, 1024, known);
      const bool right = *rule.expected == 0 ? got.empty() : got.find(rule.expected) != got.npos;
      if (right) continue;
      test_context.Fail(__FILE__, __LINE__,
                        std::string(CpuName(isa)) + " " + rule.name + ": '" + got +
                            "', expected '" + rule.expected + "'");
      return;
    }
  }
}

TEST(wait_states) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  Expect(
      test_context,
      {
          {"sgpr to vmem",
           "v_mov_b32 v1, 0\ns_nop 0\nv_readfirstlane_b32 s4, v1\ns_nop 3\n"
           "s_mov_b32 s5, 0\nglobal_load_dword v2, v1, s[0:1]",
           ""},
          {"sgpr to vmem, short",
           "v_mov_b32 v1, 0\nv_mov_b32 v3, s0\ns_nop 0\nv_readfirstlane_b32 s0, v3\ns_nop 3\n"
           "global_load_dword v2, v1, s[0:1]",
           "5 wait states are needed"},
          {"sgpr to vmem that names none",
           "v_mov_b32 v1, 0\ns_nop 1\nv_readfirstlane_b32 s0, v1\n"
           "buffer_wbl2 sc0 sc1\nbuffer_inv sc0 sc1",
           ""},
          {"sgpr to a buffer's offset, short",
           "v_mov_b32 v1, 0\ns_nop 1\nv_readfirstlane_b32 s0, v1\ns_nop 3\n"
           "buffer_load_dword v2, v1, s[4:7], s0 offen",
           "5 wait states are needed"},
          {"sgpr to valu",
           "v_mov_b32 v1, 0\ns_nop 0\nv_readfirstlane_b32 s4, v1\n"
           "s_nop 0\nv_mov_b32 v2, s4",
           "2 wait states are needed"},
          {"vcc to cndmask", "v_cmp_eq_u32 vcc, 0, v0\ns_nop 1\nv_cndmask_b32 v1, v0, v0, vcc", ""},
          {"vcc to cndmask, short",
           "v_cmp_eq_u32 vcc, 0, v0\ns_nop 0\nv_cndmask_b32 v1, v0, v0, vcc",
           "VALU writes an SGPR or VCC"},
          {"dpp",
           "v_mov_b32 v1, 1\ns_nop 0\nv_mov_b32_dpp v2, v1 row_shl:1 row_mask:0xf "
           "bank_mask:0xf bound_ctrl:0",
           "DPP reads it"},
          {"dpp, enough",
           "v_mov_b32 v1, 1\ns_nop 1\nv_mov_b32_dpp v2, v1 row_shl:1 row_mask:0xf "
           "bank_mask:0xf bound_ctrl:0",
           ""},
          {"transcendental", "v_mov_b32 v1, 1.0\nv_exp_f32 v2, v1\nv_add_f32 v3, v2, v2",
           "transcendental"},
          {"transcendental chain", "v_mov_b32 v1, 1.0\nv_exp_f32 v2, v1\nv_log_f32 v3, v2", ""},
          {"lane select",
           "v_mov_b32 v1, 1\ns_nop 0\nv_readfirstlane_b32 s4, v1\ns_nop 2\n"
           "v_readlane_b32 s5, v0, s4",
           "selects the lane"},
          {"wide store",
           "v_mov_b32 v1, 0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v6, 0\n"
           "v_mov_b32 v7, 0\nv_lshlrev_b32 v1, 4, v0\n"
           "global_store_dwordx4 v1, v[4:7], s[0:1]\ns_nop 0\nv_mov_b32 v5, 1",
           "wide store"},
          {"mfma result",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], 0\ns_nop 5\n"
           "v_add_f32 v8, v0, v0",
           "the result of an MFMA is read"},
          {"mfma result, enough",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], 0\ns_nop 7\n"
           "v_add_f32 v8, v0, v0",
           ""},
          {"mfma, a load over srcC",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v8, 0\nv_mov_b32 v9, 0\n"
           "v_mov_b32 v10, 0\nv_mov_b32 v11, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], v[8:11]\ns_nop 1\n"
           "global_load_dwordx4 v[8:11], v4, s[0:1]\ns_waitcnt vmcnt(0)",
           "the SrcC of an MFMA is overwritten"},
          {"mfma, a load over srcC, enough",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v8, 0\nv_mov_b32 v9, 0\n"
           "v_mov_b32 v10, 0\nv_mov_b32 v11, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], v[8:11]\ns_nop 2\n"
           "global_load_dwordx4 v[8:11], v4, s[0:1]\ns_waitcnt vmcnt(0)",
           ""},
          {"mfma, a load over the result",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], 0\ns_nop 5\n"
           "ds_read_b32 v0, v4\ns_waitcnt lgkmcnt(0)",
           "the result of an MFMA is overwritten"},
          {"mfma source",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 0\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], 0",
           "an MFMA reads"},
          {"mfma chain",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], 0\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[4:5], v[0:3]",
           ""},
          {"mfma overlap",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v8, 0\n"
           "v_mov_b32 v9, 0\ns_nop 1\n"
           "v_mfma_f32_16x16x16_f16 v[6:9], v[4:5], v[4:5], 0\n"
           "v_mfma_f32_16x16x16_f16 v[10:13], v[4:5], v[4:5], v[8:11]",
           "part of the result"},
          {"mfma of what an mfma wrote",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[4:5], 0\ns_nop 6\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[16:17], v[4:5], 0",
           "an MFMA multiplies"},
          {"mfma of what an mfma wrote, and a quicker one after it",
           "v_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_nop 1\n"
           "v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[4:5], 0\n"
           "v_mfma_f32_4x4x4_16b_f16 v[16:19], v[4:5], v[4:5], 0\ns_nop 5\n"
           "v_mfma_f32_16x16x16_f16 v[0:3], v[16:17], v[4:5], 0",
           ""},
          {"setreg",
           "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0\ns_nop 0\n"
           "s_getreg_b32 s4, hwreg(HW_REG_MODE)",
           "s_setreg"},
          {"across a branch",
           "v_mov_b32 v1, 1.0\nv_exp_f32 v2, v1\ns_branch L\ns_nop 0\nL:\n"
           "v_add_f32 v3, v2, v2",
           ""},
      });
}

// What production kernels show that hardware forgives, and what they do not.
TEST(wait_states_that_are_known_to_be_forgiven) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const char kSgpr[] = "v_mov_b32 v1, 0\ns_nop 1\nv_readfirstlane_b32 s4, v1\nv_mov_b32 v2, s4";
  const char kPacked[] =
      "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_pk_add_f32 v[4:5], v[2:3], v[2:3]\nv_mov_b32 v6, v4";
  const char kDpp[] =
      "v_mov_b32 v1, 1\ns_nop 0\nv_mov_b32_dpp v2, v1 row_shl:1 row_mask:0xf bank_mask:0xf "
      "bound_ctrl:0";
  const char kDppNone[] =
      "v_mov_b32 v1, 1\nv_mov_b32_dpp v2, v1 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:0";
  const char kM0[] =
      "v_mov_b32 v1, 0\ns_mov_b32 m0, 0\nglobal_load_lds_dword v1, s[0:1]\ns_waitcnt vmcnt(0)";
  const char kLane[] =
      "v_mov_b32 v1, 0\ns_nop 4\nv_readfirstlane_b32 s4, v1\ns_nop 2\n"
      "v_readlane_b32 s5, v1, s4";
  std::string mfma = "v_mov_b32 v0, 0\nv_mov_b32 v1, 0\n";
  for (int i = 4; i < 8; ++i) mfma += "v_mov_b32 v" + std::to_string(i) + ", 0\n";
  mfma += "s_nop 3\nv_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[0:1], v[0:1], v[4:7]\n";
  const std::string two = mfma + "s_nop 1\nv_mov_b32 v2, v4",
                    one = mfma + "s_nop 0\nv_mov_b32 v2, v4";
  Expect(test_context, {{"sgpr", kSgpr, "(rule sgpr-valu)"},
                        {"packed", kPacked, "(rule packed-result)"},
                        {"dpp", kDpp, "(rule dpp-read)"},
                        {"m0", kM0, "(rule m0-lds-dma)"},
                        {"mfma", two.c_str(), "(rule matrix-read-valu)"}});
  Expect(test_context,
         {{"sgpr", kSgpr, ""},
          {"packed", kPacked, ""},
          {"dpp", kDpp, ""},
          {"dpp, none", kDppNone, "1 wait states are needed"},
          {"m0", kM0, ""},
          {"lane select", kLane, "(rule lane-select)"},
          {"mfma", two.c_str(), ""},
          {"mfma, one", one.c_str(), "2 wait states are needed"}},
         /*known=*/true);
}

TEST(loads_over_loads) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const std::string start =
      "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\n"
      "global_load_dword v1, v2, s[0:1]\n";
  const auto with = [&](const char* text) {
    return start + text + "\ns_waitcnt vmcnt(0) lgkmcnt(0)";
  };
  const std::string in_order = with("global_load_dword v1, v2, s[0:1] offset:4"),
                    half = with("global_load_short_d16 v1, v2, s[0:1] offset:4"),
                    from_lds = with("ds_read_b32 v1, v2"), valu = with("v_mov_b32 v1, 0"),
                    read = with("global_load_dword v1, v1, s[0:1]"),
                    lds_twice =
                        "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\n"
                        "ds_read_b32 v1, v2\nds_read_b32 v1, v2 offset:4\n"
                        "s_waitcnt lgkmcnt(0)",
                    lds_half =
                        "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\n"
                        "ds_read_b32 v1, v2\nds_read_u16_d16 v1, v2 offset:4\n"
                        "s_waitcnt lgkmcnt(0)";
  Expect(test_context, {{"whole registers, in order", in_order.c_str(), ""},
                        {"half a register", half.c_str(), "v1 has a load outstanding"},
                        {"LDS answers in order", lds_twice.c_str(), ""},
                        {"half a register from LDS", lds_half.c_str(), "v1 has a load outstanding"},
                        {"another counter", from_lds.c_str(), "v1 has a load outstanding"},
                        {"no load", valu.c_str(), "v1 has a load outstanding"},
                        {"its address", read.c_str(), "v1 has a load outstanding"}});
}

std::string Times(int count, const std::string& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text + "\n";
  return out;
}

// What production kernels with right results on silicon leave to time: README.md of
// src/sim/isa/check.
TEST(waits_and_lds_races_that_are_known_to_be_forgiven) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const std::string read = "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\nds_read_b32 v1, v2\n";
  const std::string end = "s_waitcnt vmcnt(0) lgkmcnt(0)", use = "v_add_u32 v3, v1, v1\n" + end;
  const std::string at_once = read + Times(100, "s_nop 0") + use,
                    late = read + Times(127, "s_nop 0") + use;
  const std::string load = "v_lshlrev_b32 v2, 2, v0\nglobal_load_dword v1, v2, s[0:1]\n";
  const std::string soon = load + Times(38, "v_mov_b32 v4, 0") + "v_mov_b32 v1, 0\n" + end,
                    over = load + Times(39, "v_mov_b32 v4, 0") + "v_mov_b32 v1, 0\n" + use,
                    used = load + Times(39, "v_mov_b32 v4, 0") + use;
  // Each wave reads all of LDS that both have written, and overwrites its own part with no barrier
  // between.
  const std::string after =
      "v_lshlrev_b32 v2, 2, v0\nds_write_b32 v2, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_and_b32 "
      "v3, 63, v0\n"
      "v_lshlrev_b32 v3, 2, v3\nds_read_b32 v1, v3\nds_read_b32 v4, v3 offset:256\ns_waitcnt "
      "lgkmcnt(0)\n";
  const std::string unordered =
      after + Times(200, "s_nop 0") + "ds_write_b32 v2, v1\ns_waitcnt lgkmcnt(0)";
  const std::string other_wrote =
      after + "ds_write_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nds_read_b32 v1, v3 offset:256";
  Expect(test_context, {{"LDS, long ago", late.c_str(), "v1 has a load outstanding"},
                        {"overwritten", over.c_str(), "v1 has a load outstanding"},
                        {"read in LDS and overwritten", unordered.c_str(), "lds race", 1, 128}});
  Expect(test_context,
         {{"LDS, a while ago", at_once.c_str(), "v1 has a load outstanding"},
          {"LDS, long ago", late.c_str(), ""},
          {"overwritten soon", soon.c_str(), "v1 has a load outstanding"},
          {"overwritten", over.c_str(), ""},
          {"memory, used", used.c_str(), "v1 has a load outstanding"},
          {"read in LDS and overwritten", unordered.c_str(), "wrote it", 1, 128},
          {"written in LDS and read", other_wrote.c_str(), "wrote it", 1, 128}},
         /*known=*/true);
  // In turns of 16 instructions both have read before one overwrites: a note, once.
  std::vector<std::string> notes;
  CHECK_EQ(Check(Isa::kGfx942, unordered, 3, 128, 1024, true, &notes, 16), "");
  CHECK_EQ(notes.size(), 1u);
  CHECK(notes[0].find("reads it and no barrier") != notes[0].npos);
}

TEST(scalar_flags_that_are_known_to_be_flags) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  // Each workgroup stores a flag and looks at it: through the scalar cache, with glc and without.
  const std::string glc =
      "s_mov_b32 s4, 1\ns_store_dword s4, s[0:1], 0 glc\ns_waitcnt lgkmcnt(0)\ns_load_dword s5, "
      "s[0:1], 0 glc\n"
      "s_waitcnt lgkmcnt(0)";
  const std::string plain =
      "s_mov_b32 s4, 1\ns_store_dword s4, s[0:1], 0\ns_waitcnt lgkmcnt(0)\ns_load_dword s5, "
      "s[0:1], 0\n"
      "s_waitcnt lgkmcnt(0)";
  Expect(test_context, {{"strict", glc.c_str(), "another workgroup", 2}});
  Expect(test_context,
         {{"known", glc.c_str(), "", 2}, {"no glc", plain.c_str(), "another workgroup", 2}},
         /*known=*/true);
}

TEST(undefined_values) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  Expect(
      test_context,
      {
          {"address", "global_load_dword v2, v3, s[0:1]", "the address depends on v3"},
          {"scalar address", "s_load_dword s4, s[20:21], 0x0", "the address depends on s20"},
          {"branch", "s_cmp_eq_u32 s20, 0\ns_cbranch_scc1 L\ns_nop 0\nL:", "the branch depends"},
          {"exec", "v_cmp_eq_u32 vcc, 0, v5\ns_and_saveexec_b64 s[4:5], vcc", "EXEC depends"},
          {"store",
           "v_lshlrev_b32 v1, 2, v0\nv_add_u32 v2, 1, v9\n"
           "global_store_dword v1, v2, s[0:1]",
           "stores v2"},
          {"masked out",
           "v_lshlrev_b32 v1, 2, v0\nv_and_b32 v2, 0, v9\n"
           "global_store_dword v1, v2, s[0:1]",
           ""},
          {"one byte of it", "v_and_b32 v2, 0xffffff00, v9\nglobal_store_byte v0, v2, s[0:1]", ""},
          {"inactive lanes",
           "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 0\n"
           "global_store_dword v1, v2, s[0:1]",
           ""},
          {"lanes that were off",
           "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\ns_mov_b64 exec, 3\n"
           "global_load_dword v2, v1, s[0:1]",
           "of lane 1"},
          {"lds",
           "v_lshlrev_b32 v1, 2, v0\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n"
           "global_store_dword v1, v2, s[0:1]",
           "stores v2"},
          {"lds written",
           "v_lshlrev_b32 v1, 2, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n"
           "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n"
           "global_store_dword v1, v2, s[0:1]",
           ""},
          {"lds half written",
           "v_lshlrev_b32 v1, 2, v0\nds_write_b16 v1, v0\n"
           "s_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1\n"
           "s_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[0:1]",
           "stores v2"},
          {"memory",
           "v_lshlrev_b32 v1, 2, v0\ns_add_u32 s4, s0, 0x1000\ns_addc_u32 s5, s1, 0\n"
           "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
           "global_store_dword v1, v2, s[0:1]",
           "stores v2"},
          {"memory written",
           "v_lshlrev_b32 v1, 2, v0\nglobal_load_dword v2, v1, s[0:1]\n"
           "s_waitcnt vmcnt(0)\nglobal_store_dword v1, v2, s[0:1] offset:1024",
           ""},
          {"atomic on memory",
           "v_mov_b32 v1, 0\ns_mov_b64 exec, 1\nv_mov_b32 v2, 1\n"
           "s_add_u32 s4, s0, 0x1000\ns_addc_u32 s5, s1, 0\n"
           "global_atomic_add v1, v2, s[4:5]",
           "an atomic on memory"},
          {"through scalars",
           "v_mov_b32 v1, v9\ns_nop 0\nv_readfirstlane_b32 s4, v1\ns_nop 4\n"
           "s_cmp_eq_u32 s4, 0\ns_cbranch_scc1 L\ns_nop 0\nL:",
           "the branch depends"},
      });
}

TEST(races_in_memory) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  Expect(test_context,
         {
             {"two workgroups store",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, s2\n"
              "global_store_dword v1, v2, s[0:1]",
              "another workgroup", 2},
             {"two waves store",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nglobal_store_dword v1, v0, s[0:1]",
              "another wave of the workgroup", 1, 128},
             {"two workgroups store one value",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_store_dword v1, v2, s[0:1]",
              "", 2},
             {"two workgroups store one low byte and other high ones",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\ns_lshl_b32 s3, s2, 8\nv_mov_b32 v2, s3\n"
              "global_store_byte v1, v2, s[0:1]",
              "", 2},
             {"two workgroups store one value, and one of them another",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\nv_mov_b32 v3, s2\n"
              "global_store_dword v1, v2, s[0:1]\ns_waitcnt vmcnt(0)\n"
              "global_store_dword v1, v3, s[0:1]",
              "another workgroup", 2},
             {"one workgroup stores what another reads",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_load_dword v3, v1, s[0:1]\ns_waitcnt vmcnt(0)\n"
              "global_store_dword v1, v2, s[0:1]",
              "another workgroup", 2},
             {"a barrier between waves",
              "v_cmp_gt_u32 vcc, 1, v0\ns_nop 4\ns_mov_b64 s[4:5], exec\n"
              "s_and_b64 exec, s[4:5], vcc\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_store_dword v1, v2, s[0:1]\ns_mov_b64 exec, s[4:5]\ns_waitcnt vmcnt(0)\n"
              "s_barrier\nv_mov_b32 v1, 0\nglobal_load_dword v3, v1, s[0:1]\ns_waitcnt vmcnt(0)",
              "", 1, 128},
             {"atomics",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_atomic_add v1, v2, s[0:1]",
              "", 4},
             {"flags of agent scope",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_store_dword v1, v2, s[0:1] sc1",
              "", 2},
             {"flags of workgroup scope",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
              "global_store_dword v1, v2, s[0:1] sc0",
              "workgroup scope", 2},
             {"other bytes of one word",
              "s_mov_b64 exec, 1\nv_mov_b32 v1, s2\nv_mov_b32 v2, 1\n"
              "global_store_byte v1, v2, s[0:1]",
              "", 4},
             {"everybody reads",
              "v_mov_b32 v1, 0\nglobal_load_dword v2, v1, s[0:1]\n"
              "s_waitcnt vmcnt(0)",
              "", 4, 128},
         });
}

TEST(stores_of_one_value_are_noted_once) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::vector<std::string> notes;
  const char kText[] =
      "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
      "global_store_dword v1, v2, s[0:1]";
  CHECK_EQ(Check(Isa::kGfx942, kText, 5, 64, 1024, false, &notes), "");
  CHECK_EQ(notes.size(), 1u);
  CHECK(notes[0].find("store one value") != notes[0].npos);
}

// The smallest grid barrier; then workgroups that cannot all be resident.
TEST(a_grid_that_cannot_be_resident_is_told) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const std::string barrier =
      "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\nglobal_atomic_add v1, v2, s[0:1]\n"
      "s_waitcnt vmcnt(0)\nL:\ns_sleep 1\nglobal_load_dword v3, v1, s[0:1] sc1\n"
      "s_waitcnt vmcnt(0)\nv_readfirstlane_b32 s4, v3\ns_nop 4\ns_cmp_lt_u32 s4, ";
  // 160 KB of LDS each: one workgroup a compute unit, 256 on the chip.
  CHECK_EQ(Check(Isa::kGfx950, barrier + "256\ns_cbranch_scc1 L", 256, 64, 160 * 1024), "");
  const std::string got =
      Check(Isa::kGfx950, barrier + "257\ns_cbranch_scc1 L", 257, 64, 160 * 1024);
  CHECK_NE(got.find("1 of 257 have no room on the chip"), got.npos);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
