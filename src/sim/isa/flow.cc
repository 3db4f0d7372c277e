// SPDX-License-Identifier: MIT
//
// SOPP and its relatives: branches, calls, waits, barriers, messages, hardware registers. w.pc is
// already that of the next instruction when these run.
#include "absl/strings/str_cat.h"
#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

void Nop(Wave&, const Op&) {}
void End(Wave& w, const Op&) { w.state = WaveState::kDone; }
void Jump(Wave& w, const Op& op) { w.pc += static_cast<int64_t>(op.inst.offset) * 4; }
template <bool (*F)(const Wave&)>
void Branch(Wave& w, const Op& op) {
  if (F(w)) Jump(w, op);
}
bool Scc0(const Wave& w) { return !w.scc; }
bool Scc1(const Wave& w) { return w.scc; }
bool Vccz(const Wave& w) { return w.vcc() == 0; }
bool Vccnz(const Wave& w) { return w.vcc() != 0; }
bool Execz(const Wave& w) { return w.exec() == 0; }
bool Execnz(const Wave& w) { return w.exec() != 0; }

void GetPc(Wave& w, const Op& op) { w.SetPair(op.d.code, w.pc); }
void SetPc(Wave& w, const Op& op) { w.pc = w.ReadScalar64(op.a) & ~uint64_t{3}; }
void SwapPc(Wave& w, const Op& op) {
  const uint64_t to = w.ReadScalar64(op.a) & ~uint64_t{3};
  w.SetPair(op.d.code, w.pc);
  w.pc = to;
}
void Call(Wave& w, const Op& op) {
  w.SetPair(op.d.code, w.pc);
  Jump(w, op);
}

void Barrier(Wave& w, const Op&) {
  // With nobody else to wait for it is no barrier at all.
  if (w.group->live > 1) w.state = WaveState::kBarrier;
}
void Sleep(Wave& w, const Op&) { w.state = WaveState::kSleeping; }
constexpr uint32_t kDebugTrap = 3;
void Trap(Wave& w, const Op& op) {
  // __builtin_debugtrap: the trap handler goes on when no debugger is there, and here is none (LLVM's
  // AMDGPU usage, trap handler ABI).
  if ((op.inst.offset & 0xff) == kDebugTrap) return;
  w.Stop(StopReason::kTrap, absl::StrCat("s_trap ", op.inst.offset & 0xff));
}
void SetKill(Wave& w, const Op& op) {
  if (op.inst.offset & 1) w.state = WaveState::kDone;
}
void SetHalt(Wave& w, const Op& op) {
  if (op.inst.offset & 1) w.Stop(StopReason::kTrap, "s_sethalt: halted and nobody to resume it");
}
void SendMessage(Wave& w, const Op& op) {
  if ((op.inst.offset & 15) == 1) w.memory->Interrupt(w.s[reg::kM0]);
}

void SendMessageHalt(Wave& w, const Op& op) {
  SendMessage(w, op);
  w.Stop(StopReason::kTrap, "s_sendmsghalt: halted and nobody to resume it");
}
void SetVskip(Wave& w, const Op& op) {
  w.vskip = w.ReadScalar(op.a) >> (w.ReadScalar(op.b) & 31) & 1;
  if (w.vskip) w.state = WaveState::kIndexed;
}

// HWREG: id in bits 5:0, offset in 10:6, size - 1 in 15:11.
uint32_t HardwareRegister(const Wave& w, int id) {
  switch (id) {
    case 1:
      return w.mode;
    case 2:
      return uint32_t{w.scc} | uint32_t{w.exec() == 0} << 9 | uint32_t{w.vcc() == 0} << 10;
    case 4:
      return w.hw_id;
    case 5:
      return w.group->registers_per_wave;
    case 6:
      return static_cast<uint32_t>(w.group->lds.size() / 256) << 12;
    case 15:
      return static_cast<uint32_t>(kSharedAperture >> 48) << 16 |
             static_cast<uint32_t>(kPrivateAperture >> 48);
    case 20:
      return w.xcc_id;
    default:
      return 0;
  }
}
void GetReg(Wave& w, const Op& op) {
  const int imm = op.inst.offset, offset = imm >> 6 & 31, size = (imm >> 11 & 31) + 1;
  const uint64_t mask = (uint64_t{1} << size) - 1;
  w.s[op.d.code] = static_cast<uint32_t>(HardwareRegister(w, imm & 63) >> offset & mask);
}
void SetRegTo(Wave& w, int imm, uint32_t value) {
  const int offset = imm >> 6 & 31, size = (imm >> 11 & 31) + 1;
  const uint32_t mask = static_cast<uint32_t>(((uint64_t{1} << size) - 1) << offset);
  if ((imm & 63) == 1) w.mode = (w.mode & ~mask) | (value << offset & mask);
}
void SetReg(Wave& w, const Op& op) { SetRegTo(w, op.inst.offset, w.s[op.d.code]); }
void SetRegImm(Wave& w, const Op& op) { SetRegTo(w, op.inst.offset, op.inst.literal); }

// GPR indexing: M0[7:0] is added to the vector registers that M0[15:12] selects.
void IndexOn(Wave& w, const Op& op) {
  w.s[reg::kM0] = (w.s[reg::kM0] & 0xffff0f00) | (w.ReadScalar(op.a) & 0xff) |
                  (static_cast<uint32_t>(op.inst.offset) & 15) << 12;
  w.gpr_index_on = true;
  w.state = WaveState::kIndexed;
}
void IndexOff(Wave& w, const Op&) { w.gpr_index_on = false; }
void IndexMode(Wave& w, const Op& op) {
  w.s[reg::kM0] = (w.s[reg::kM0] & 0xffff0fff) | (static_cast<uint32_t>(op.inst.offset) & 15) << 12;
}
void IndexIdx(Wave& w, const Op& op) {
  w.s[reg::kM0] = (w.s[reg::kM0] & 0xffffff00) | (w.ReadScalar(op.a) & 0xff);
}

constexpr Descriptor F(const char* name, Run run, uint16_t implicit = 0, Type a = Type::kNone) {
  return {name, run, {a, Type::kNone, Type::kNone, Type::kB32}, Origin::kManual, implicit};
}
constexpr Descriptor kTable[] = {
    F("s_nop", &Nop),
    F("s_endpgm", &End),
    F("s_branch", &Jump),
    F("s_wakeup", &Nop),
    F("s_cbranch_scc0", &Branch<Scc0>, kReadsScc),
    F("s_cbranch_scc1", &Branch<Scc1>, kReadsScc),
    F("s_cbranch_vccz", &Branch<Vccz>, kReadsVcc),
    F("s_cbranch_vccnz", &Branch<Vccnz>, kReadsVcc),
    F("s_cbranch_execz", &Branch<Execz>, kReadsExec),
    F("s_cbranch_execnz", &Branch<Execnz>, kReadsExec),
    F("s_barrier", &Barrier),
    F("s_setkill", &SetKill),
    F("s_waitcnt", &Nop),
    F("s_sethalt", &SetHalt),
    F("s_sleep", &Sleep),
    F("s_setprio", &Nop),
    F("s_sendmsg", &SendMessage, kReadsM0),
    F("s_sendmsghalt", &SendMessageHalt, kReadsM0),
    {"s_setvskip", &SetVskip, {Type::kB32, Type::kB32, Type::kNone, Type::kNone}, Origin::kManual, 0},
    F("s_trap", &Trap),
    F("s_icache_inv", &Nop),
    F("s_incperflevel", &Nop),
    F("s_decperflevel", &Nop),
    F("s_ttracedata", &Nop, kReadsM0),
    F("s_cbranch_cdbgsys", &Nop),
    F("s_cbranch_cdbguser", &Nop),
    F("s_cbranch_cdbgsys_or_user", &Nop),
    F("s_cbranch_cdbgsys_and_user", &Nop),
    F("s_endpgm_saved", &End),
    F("s_getpc_b64", &GetPc),
    F("s_setpc_b64", &SetPc, 0, Type::kB64),
    F("s_swappc_b64", &SwapPc, 0, Type::kB64),
    F("s_call_b64", &Call),
    F("s_getreg_b32", &GetReg),
    F("s_set_gpr_idx_on", &IndexOn, kReadsM0, Type::kB32),
    F("s_set_gpr_idx_off", &IndexOff),
    F("s_set_gpr_idx_mode", &IndexMode, kReadsM0),
    F("s_set_gpr_idx_idx", &IndexIdx, kReadsM0, Type::kB32),
    F("s_setreg_b32", &SetReg),
    F("s_setreg_imm32_b32", &SetRegImm),
};

}  // namespace

void AddFlow(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
