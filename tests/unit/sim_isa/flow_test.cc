// SPDX-License-Identifier: MIT
//
// Instructions that read or write the program counter, hardware registers and the modes of the
// wave: branches, calls, returns, s_getreg and s_setreg by field, register indexing, VSKIP, and
// what a wave does after each of SOPP.
#include <cstring>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"
#include "unit/sim_isa/vectors.h"

namespace mainarch::sim::isa::test {
namespace {

// s[8:9] holds a target, s4 a value; what must hold afterwards, given the instruction's address.
struct Before {
  uint64_t at, target;
  uint32_t m0, mode, value;
  bool scc, vccz, execz;
};
struct After {
  uint64_t pc, link;  // link: s[20:21]
  uint32_t m0, mode, result;
  bool indexed, skips;
  WaveState state;
};
struct Item {
  const char* name;
  std::string text;
  void (*change)(const Before&, After*);
};

// Fields of MODE: a register that can be written, one field at a time.
constexpr uint32_t Field(int offset, int size) {
  return static_cast<uint32_t>(((uint64_t{1} << size) - 1) << offset);
}

void Same(const Before&, After*) {}
constexpr int kForward = 0x123, kBack = -0x45;
template <bool (*kTaken)(const Before&), int kBy>
void Jump(const Before& b, After* a) {
  if (kTaken(b)) a->pc = b.at + 4 + static_cast<uint64_t>(int64_t{kBy} * 4);
}
template <WaveState kState>
void Becomes(const Before&, After* a) {
  a->state = kState;
}
#define BRANCH(name, expression)            \
  {name, name " 0x123",                     \
   Jump<+[](const Before& b) -> bool {      \
     (void)b;                               \
     return expression;                     \
   },                                       \
        kForward>},                         \
  {                                         \
    name, name " 0xffbb",                   \
        Jump<+[](const Before& b) -> bool { \
          (void)b;                          \
          return expression;                \
        },                                  \
             kBack>                         \
  }

const Item kItems[] = {
    BRANCH("s_branch", true),
    BRANCH("s_cbranch_scc0", !b.scc),
    BRANCH("s_cbranch_scc1", b.scc),
    BRANCH("s_cbranch_vccz", b.vccz),
    BRANCH("s_cbranch_vccnz", !b.vccz),
    BRANCH("s_cbranch_execz", b.execz),
    BRANCH("s_cbranch_execnz", !b.execz),
    // No debugger is there.
    BRANCH("s_cbranch_cdbgsys", false),
    BRANCH("s_cbranch_cdbguser", false),
    BRANCH("s_cbranch_cdbgsys_or_user", false),
    BRANCH("s_cbranch_cdbgsys_and_user", false),
    {"s_nop", "s_nop 7", Same},
    {"s_waitcnt", "s_waitcnt 0", Same},
    {"s_wakeup", "s_wakeup", Same},
    {"s_setprio", "s_setprio 3", Same},
    {"s_icache_inv", "s_icache_inv", Same},
    {"s_incperflevel", "s_incperflevel 1", Same},
    {"s_decperflevel", "s_decperflevel 1", Same},
    {"s_ttracedata", "s_ttracedata", Same},
    {"s_sendmsg", "s_sendmsg sendmsg(MSG_INTERRUPT)", Same},
    {"s_sethalt", "s_sethalt 0", Same},
    {"s_sethalt", "s_sethalt 1", Becomes<WaveState::kStopped>},
    {"s_setkill", "s_setkill 0", Same},
    {"s_setkill", "s_setkill 1", Becomes<WaveState::kDone>},
    {"s_sendmsghalt", "s_sendmsghalt sendmsg(MSG_INTERRUPT)", Becomes<WaveState::kStopped>},
    {"s_trap", "s_trap 2", Becomes<WaveState::kStopped>},
    {"s_endpgm", "s_endpgm", Becomes<WaveState::kDone>},
    {"s_endpgm_saved", "s_endpgm_saved", Becomes<WaveState::kDone>},
    {"s_sleep", "s_sleep 1", Becomes<WaveState::kSleeping>},
    {"s_barrier", "s_barrier", Becomes<WaveState::kBarrier>},
    {"s_getpc_b64", "s_getpc_b64 s[20:21]", [](const Before& b, After* a) { a->link = b.at + 4; }},
    {"s_setpc_b64", "s_setpc_b64 s[8:9]",
     [](const Before& b, After* a) { a->pc = b.target / 4 * 4; }},
    {"s_swappc_b64", "s_swappc_b64 s[20:21], s[8:9]",
     [](const Before& b, After* a) { a->link = b.at + 4, a->pc = b.target / 4 * 4; }},
    {"s_call_b64", "s_call_b64 s[20:21], 0xfff0",
     [](const Before& b, After* a) { a->link = b.at + 4, a->pc = b.at + 4 - 16 * 4; }},
    {"s_call_b64", "s_call_b64 s[20:21], 0x7fff",
     [](const Before& b, After* a) { a->link = b.at + 4, a->pc = b.at + 4 + 0x7fff * 4; }},
    {"s_getreg_b32", "s_getreg_b32 s24, hwreg(HW_REG_MODE)",
     [](const Before& b, After* a) { a->result = b.mode; }},
    {"s_getreg_b32", "s_getreg_b32 s24, hwreg(HW_REG_MODE, 4, 4)",
     [](const Before& b, After* a) { a->result = b.mode / 16 % 16; }},
    {"s_getreg_b32", "s_getreg_b32 s24, hwreg(HW_REG_HW_ID, 8, 7)",
     [](const Before&, After* a) { a->result = 0x1234567 / 256 % 128; }},
    {"s_getreg_b32", "s_getreg_b32 s24, hwreg(HW_REG_XCC_ID)",
     [](const Before&, After* a) { a->result = 5; }},
    {"s_setreg_b32", "s_setreg_b32 hwreg(HW_REG_MODE, 4, 4), s4",
     [](const Before& b, After* a) { a->mode = (b.mode & ~Field(4, 4)) | b.value % 16 * 16; }},
    {"s_setreg_b32", "s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s4",
     [](const Before& b, After* a) { a->mode = (b.mode & ~Field(23, 1)) | (b.value & 1) << 23; }},
    {"s_setreg_imm32_b32", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0x1f5",
     [](const Before& b, After* a) { a->mode = (b.mode & ~Field(0, 4)) | 5; }},
    {"s_set_gpr_idx_on", "s_set_gpr_idx_on s4, gpr_idx(SRC0,DST)",
     [](const Before& b, After* a) {
       a->m0 = (b.m0 & 0xffff0f00) | (b.value & 255) | 9u << 12;
       a->indexed = true, a->state = WaveState::kIndexed;
     }},
    {"s_set_gpr_idx_idx", "s_set_gpr_idx_idx s4",
     [](const Before& b, After* a) { a->m0 = (b.m0 & 0xffffff00) | (b.value & 255); }},
    {"s_set_gpr_idx_mode", "s_set_gpr_idx_mode gpr_idx(SRC1,SRC2)",
     [](const Before& b, After* a) { a->m0 = (b.m0 & 0xffff0fff) | 6u << 12; }},
    {"s_set_gpr_idx_off", "s_set_gpr_idx_off", [](const Before&, After* a) { a->indexed = false; }},
    {"s_setvskip", "s_setvskip s4, 7",
     [](const Before& b, After* a) {
       a->skips = b.value >> 7 & 1;
       if (a->skips) a->state = WaveState::kIndexed;
     }},
};

TEST(program_counter_and_modes) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string source, error;
  for (const Item& item : kItems) source += item.text + "\n";
  const std::vector<uint8_t> code = Assemble(Isa::kGfx942, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx942);
  std::mt19937 random(31);
  size_t at = 0;
  for (const Item& item : kItems) {
    Inst inst;
    CHECK(Decode(Isa::kGfx942, absl::MakeConstSpan(code).subspan(at), &inst));
    for (int round = 0; round < 32; ++round) {
      Wave& w = rig.wave();
      Before before;
      before.target = uint64_t{random()} << 16 | random() % 65536;
      before.m0 = static_cast<uint32_t>(random());
      before.mode = static_cast<uint32_t>(random()) & 0x00ffffff;
      before.value = static_cast<uint32_t>(random());
      w.SetPair(8, before.target);
      w.SetPair(20, 77);
      w.s[4] = before.value, w.s[24] = 99;
      w.s[reg::kM0] = before.m0, w.mode = before.mode;
      w.hw_id = 0x1234567, w.xcc_id = 5;
      w.gpr_index_on = w.vskip = false;
      before.scc = random() & 1, before.vccz = random() & 1, before.execz = random() & 1;
      w.scc = before.scc;
      w.SetPair(reg::kVcc, before.vccz ? 0 : uint64_t{1} << random() % 64);
      w.set_exec(before.execz ? 0 : uint64_t{1} << random() % 64);
      rig.group().live = 2;  // somebody to wait for at a barrier
      rig.Step(code.data() + at, inst.size);
      before.at = w.at;
      After after = {w.at + inst.size,   77, before.m0, before.mode, 99, false, false,
                     WaveState::kRunning};
      item.change(before, &after);
      const std::string got =
          absl::StrCat(w.pc - w.at, " ", w.Pair(20), " ", w.s[reg::kM0], " ", w.mode, " ", w.s[24],
                       w.gpr_index_on, w.vskip, " ", static_cast<int>(w.state));
      const std::string want = absl::StrCat(after.pc - w.at, " ", after.link, " ", after.m0, " ",
                                            after.mode, " ", after.result, after.indexed,
                                            after.skips, " ", static_cast<int>(after.state));
      if (got != want) std::cout << "# " << item.text << "\n";
      CHECK_EQ(got, want);
    }
    at += inst.size;
  }
}

}  // namespace

std::set<std::string> FlowNames() {
  std::set<std::string> names;
  for (const Item& item : kItems) names.insert(item.name);
  return names;
}

}  // namespace mainarch::sim::isa::test
