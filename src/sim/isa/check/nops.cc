// SPDX-License-Identifier: MIT
#include "sim/isa/check/nops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mainarch::sim::isa {
namespace {

constexpr Range kVccRange = {reg::kVcc, 2, 'x'}, kExecRange = {reg::kExec, 2, 'x'},
                kM0Range = {reg::kM0, 1, 'x'};

template <class Need>
void Ask(int documented, Hazard hazard, Need* need) {
  const HazardRule& rule = RuleOf(hazard);
  const int states = StatesAsked(rule, documented, need->known);
  if (states <= need->states) return;
  need->states = states;
  need->rule = &rule;
}

// Whether `before` wrote a vector register that `e` reads, or that it writes.
bool WroteWhatIsRead(const Effects& before, const Effects& e) {
  for (int i = 0; i < e.read_count; ++i) {
    if (e.reads[i].vector() && before.Writes(e.reads[i])) return true;
  }
  return false;
}
bool WroteWhatIsWritten(const Effects& before, const Effects& e) {
  for (int i = 0; i < e.write_count; ++i) {
    if (e.writes[i].vector() && before.Writes(e.writes[i])) return true;
  }
  return false;
}
bool WroteScalarThatIsRead(const Effects& before, const Effects& e) {
  for (int i = 0; i < e.read_count; ++i) {
    if (!e.reads[i].vector() && before.Writes(e.reads[i])) return true;
  }
  return false;
}

const Range* SourceC(const Effects& e) {
  for (int i = 0; i < e.read_count; ++i) {
    if (e.reads[i].field == 'c' || e.reads[i].field == 'd') return &e.reads[i];
  }
  return nullptr;
}

// A result that is moved into place after the arithmetic: not forwarded to the next instruction.
bool MovesResult(const Op& op, const Effects& e) {
  if (op.inst.encoding == Encoding::kSdwa) return op.inst.dst_sel != 6;
  return e.facts->late_result || (op.inst.row->family == Family::kVop3 && op.inst.opsel >> 2 != 0);
}
// LLVM takes op_sel_hi of a packed instruction for one.
bool IsPackedHigh(const Op& op, const Effects& e) {
  return op.inst.row->family == Family::kVop3p && !e.facts->mfma && op.inst.opsel_hi & 1;
}

// Stores of more than two dwords read their data late.
const Range* LateData(const Op& op, const Effects& e) {
  if (!e.facts->vmem || !(e.facts->store || e.facts->atomic)) return nullptr;
  const bool buffer =
      op.inst.row->family == Family::kMubuf || op.inst.row->family == Family::kMtbuf;
  if (buffer && op.inst.soffset < 128) return nullptr;
  for (int i = 0; i < e.read_count; ++i) {
    if (e.reads[i].field == 'D' && e.reads[i].count > 2) return &e.reads[i];
  }
  return nullptr;
}

// From a matrix instruction's issue to a use of its result.
int ResultStates(Isa isa, const Op& mfma, const Effects& e) {
  const int passes = MfmaPasses(isa, mfma.inst);
  if (!e.facts->xdl) return passes + 2;
  return passes + 3 + (isa == Isa::kGfx950 && passes != 2);
}

}  // namespace

// VALU results that the next vector instructions do not get in time.
void NopCheck::Forward(Isa, const Past& p, const Op&, const Effects& e, Need* need) const {
  if (!e.facts->valu || !p.effects.facts->valu || !WroteWhatIsRead(p.effects, e)) return;
  if (p.effects.facts->trans && !e.facts->trans) {
    Ask(1, Hazard::kTransResult, need);
  }
  if (MovesResult(p.op, p.effects)) Ask(1, Hazard::kSelectedResult, need);
  if (IsPackedHigh(p.op, p.effects)) Ask(1, Hazard::kPackedResult, need);
}

void NopCheck::Vector(Isa isa, const Past& p, const Op& op, const Effects& e, Need* need) const {
  const RowFacts& now = *e.facts;
  const RowFacts& then = *p.effects.facts;
  if (then.valu && now.vmem && WroteScalarThatIsRead(p.effects, e)) {
    Ask(5, Hazard::kSgprVmem, need);
  }
  if (!now.valu) return;
  Forward(isa, p, op, e, need);
  if (then.valu && WroteScalarThatIsRead(p.effects, e)) {
    Ask(2, Hazard::kSgprValu, need);
  }
  if (const Range* data = LateData(p.op, p.effects)) {
    if (e.Writes(*data)) Ask(2, Hazard::kWideStoreData, need);
  }
  Lanes(p, op, e, need);
}

void NopCheck::Lanes(const Past& p, const Op& op, const Effects& e, Need* need) const {
  const RowFacts& now = *e.facts;
  const RowFacts& then = *p.effects.facts;
  if (op.inst.encoding == Encoding::kDpp) {
    if (WroteWhatIsRead(p.effects, e) && !then.vmem && !then.ds) {
      Ask(2, Hazard::kDppRead, need);
    }
    if (then.valu && p.effects.Writes(kExecRange)) Ask(5, Hazard::kExecDpp, need);
  }
  if (!then.valu) return;
  if (now.permlane) {
    if (WroteWhatIsRead(p.effects, e)) Ask(2, Hazard::kPermlaneRead, need);
    if (p.effects.Writes(kExecRange)) Ask(4, Hazard::kExecPermlane, need);
  }
  if (now.divfmas && p.effects.Writes(kVccRange)) {
    Ask(4, Hazard::kVccDivFmas, need);
  }
  if (now.rwlane) {
    for (int i = 0; i < e.read_count; ++i) {
      const bool select = e.reads[i].field == 'b' && !e.reads[i].vector();
      if (select && p.effects.Writes(e.reads[i])) {
        Ask(4, Hazard::kLaneSelect, need);
      }
    }
  }
  if (now.readlane && WroteWhatIsRead(p.effects, e)) {
    Ask(1, Hazard::kReadlaneRead, need);
  }
  if ((now.readlane || now.rwlane) && p.effects.Writes(kExecRange)) {
    Ask(4, Hazard::kExecLane, need);
  }
}

void NopCheck::Scalar(const Past& p, const Op& op, const Effects& e, Need* need) const {
  const RowFacts& now = *e.facts;
  const RowFacts& then = *p.effects.facts;
  const bool same = ((p.op.inst.offset ^ op.inst.offset) & 63) == 0;
  if (then.setreg && same && (now.getreg || now.setreg)) {
    Ask(2, Hazard::kSetreg, need);
  }
  const bool dma = now.vmem && e.Reads(kM0Range);
  if ((now.reads_m0_late || dma) && then.salu && p.effects.Writes(kM0Range)) {
    Ask(1, dma ? Hazard::kM0LdsDma : Hazard::kM0Message, need);
  }
}

// Results and operands of matrix and dot instructions, used by others.
void NopCheck::Matrix(Isa isa, const Past& p, const Op& op, const Effects& e, Need* need) const {
  const RowFacts& now = *e.facts;
  const RowFacts& then = *p.effects.facts;
  const bool memory = now.vmem || now.ds;
  if (!now.valu && !memory) return;
  // A load's result counts as written when it is issued.
  const bool reads = WroteWhatIsRead(p.effects, e);
  const bool writes = WroteWhatIsWritten(p.effects, e);
  if (then.dot && op.inst.row != p.op.inst.row && (reads || writes)) {
    Ask(3, Hazard::kDotResult, need);
  }
  if (then.dot && op.inst.row == p.op.inst.row) {
    for (int i = 0; i < e.read_count; ++i) {
      const bool factor = e.reads[i].field == 'a' || e.reads[i].field == 'b';
      if (factor && e.reads[i].vector() && p.effects.Writes(e.reads[i])) {
        Ask(3, Hazard::kDotFactor, need);
      }
    }
  }
  if (!then.mfma) return;
  if (then.dgemm) {
    const bool small = MfmaPasses(isa, p.op.inst) == 4;
    const int large = isa == Isa::kGfx950 ? 19 : 11;
    if (reads) {
      Ask(memory ? (small ? 9 : 18) : (small ? 6 : large), Hazard::kMatrixF64Read, need);
    }
    if (writes) Ask(small ? 6 : 11, Hazard::kMatrixF64Overwrite, need);
    return;
  }
  if (reads) {
    Ask(ResultStates(isa, p.op, p.effects),
        memory ? Hazard::kMatrixReadMemory : Hazard::kMatrixReadValu, need);
  }
  if (writes) {
    Ask(ResultStates(isa, p.op, p.effects),
        memory ? Hazard::kMatrixOverwriteMemory : Hazard::kMatrixOverwriteValu, need);
  }
  const Range* c = SourceC(p.effects);
  if (c != nullptr && c->vector() && e.Writes(*c)) {
    Ask(MfmaPasses(isa, p.op.inst) - 1, Hazard::kMatrixSrcC, need);
  }
}

// `seen`: operands for which a nearer matrix instruction has been found already.
void NopCheck::MatrixToMatrix(Isa isa, const Past& p, const Op& op, const Effects& e,
                              unsigned* seen, Need* need) const {
  const RowFacts& then = *p.effects.facts;
  if (then.valu && !then.mfma) {
    if (p.effects.Writes(kExecRange)) Ask(4, Hazard::kExecMatrix, need);
    if (!then.dot && WroteWhatIsRead(p.effects, e)) {
      Ask(2, Hazard::kValuMatrix, need);
    }
  }
  if (!then.mfma || p.effects.write_count == 0) return;
  const int passes = MfmaPasses(isa, p.op.inst);
  const bool newer = isa == Isa::kGfx950;
  const bool small = passes == 4;  // of an f64 MFMA: 4x4x4
  for (int i = 0; i < e.read_count; ++i) {
    const Range& r = e.reads[i];
    if (!r.vector() || (*seen >> i & 1) || !p.effects.Writes(r)) continue;
    *seen |= 1u << i;
    if (r.field != 'c' && r.field != 'd') {
      const int states = then.dgemm ? (small   ? 6
                                       : newer ? 19
                                               : 11)
                                    : ResultStates(isa, p.op, p.effects);
      Ask(states, Hazard::kMatrixFactor, need);
      continue;
    }
    const bool whole = p.effects.writes[0].code == r.code && p.effects.writes[0].count == r.count;
    int states = 0;
    if (whole) {
      if (then.dgemm && small && e.facts->dgemm && MfmaPasses(isa, op.inst) == 4) states = 4;
      if (!then.dgemm && passes == 2) states = 2;
    } else if (then.dgemm) {
      if (!e.facts->xdl) states = small ? 4 : newer ? 17 : 9;
    } else if (then.xdl) {
      states = passes + 1 + (newer && passes != 2);
    } else if (!e.facts->xdl) {
      states = passes;
    }
    Ask(states, Hazard::kMatrixAddend, need);
  }
}

std::string Describe(Isa isa, const HazardFinding& f) {
  return absl::StrCat(f.asked, " wait states are needed after ", Print(isa, f.before.inst),
                      " at pc 0x", absl::Hex(f.before_pc), ", ", f.seen, " seen: ", f.rule->why,
                      " (rule ", f.rule->name, ")");
}

// Of most instructions nothing is asked, whatever came before: those of the scalar unit are half of all.
bool NopCheck::AnyRuleLooksAt(const RowFacts& now) {
  return now.valu || now.vmem || now.ds || now.setreg || now.getreg || now.reads_m0_late;
}

int NopCheck::ReachOf(Isa isa, const Op& op, const Effects& e) {
  if (!e.facts->mfma) return kOthers;
  return e.facts->dgemm ? static_cast<int>(kPast) : std::max(kOthers, ResultStates(isa, op, e));
}

bool NopCheck::Issue(Isa isa, uint64_t pc, const Op& op, const Effects& e, HazardFinding* finding) {
  bool found = false;
  unsigned seen = 0;
  const bool asked = AnyRuleLooksAt(*e.facts);
  const int furthest = clock_ < matrix_end_ ? static_cast<int>(kPast) : kOthers;
  for (size_t back = 1; asked && back <= kPast && back <= count_; ++back) {
    const Past& p = past_[(count_ - back) % kPast];
    const int between = static_cast<int>(clock_ - p.clock - 1);
    if (between >= furthest) break;
    // Between matrix instructions the nearest that wrote an operand is the one that counts, however near.
    if (between >= p.reach && !(e.facts->mfma && p.effects.facts->mfma)) continue;
    Need need;
    need.known = known_;
    Vector(isa, p, op, e, &need);
    Scalar(p, op, e, &need);
    if (e.facts->mfma) {
      MatrixToMatrix(isa, p, op, e, &seen, &need);
    } else {
      Matrix(isa, p, op, e, &need);
    }
    if (need.states <= between) continue;
    *finding = {need.rule, need.states, between, p.op, p.pc};
    found = true;
    break;
  }
  if (op.inst.name() == "s_nop") {
    if (op.inst.offset & kNoStates) return found;
    clock_ += static_cast<uint64_t>(op.inst.offset & 15) + 1;
    return found;
  }
  // Only what some rule looks for is worth remembering.
  const RowFacts& f = *e.facts;
  if (f.valu || f.vmem || f.salu || f.ds) {
    // Each by itself: a Past is more than a kilobyte, which a temporary would have copied twice.
    Past& now = past_[count_++ % kPast];
    now.effects = e;
    now.op = op;
    now.pc = pc;
    now.clock = clock_;
    now.reach = ReachOf(isa, op, e);
  }
  if (f.mfma) matrix_end_ = clock_ + kPast + 1;
  ++clock_;
  return found;
}

}  // namespace mainarch::sim::isa
