// SPDX-License-Identifier: MIT
#include "sim/time/op_time.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace mainarch::sim::timing {
namespace {

using absl::EndsWith;
using absl::StartsWith;
using absl::StrContains;

uint16_t Clocks(double x) { return static_cast<uint16_t>(std::clamp(x + 0.5, 0.0, 65535.0)); }

Span16 SpanOf(const isa::Range& r) {
  const int first = r.code - isa::reg::kVgpr;
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(first + std::max<int>(r.count, 1) - 1)};
}

// 32-bit integer products go through the pipe four times.
bool IsQuarter(absl::string_view n) {
  return StartsWith(n, "v_mul_lo_u32") || StartsWith(n, "v_mul_hi_u32") ||
         StartsWith(n, "v_mul_hi_i32") || StartsWith(n, "v_mad_u64_u32") ||
         StartsWith(n, "v_mad_i64_i32");
}
bool IsDouble(absl::string_view n) {
  return (StrContains(n, "_f64") || EndsWith(n, "_b64") || EndsWith(n, "_u64")) &&
         !StartsWith(n, "v_mov_b64") && !StartsWith(n, "v_mfma") && !StartsWith(n, "v_cmp");
}
bool IsWideConvert(absl::string_view n) {
  return StartsWith(n, "v_cvt_scalef32_") && (StrContains(n, "pk32") || StrContains(n, "2xpk16") ||
                                              StrContains(n, "pk16"));
}

}  // namespace

void OpTimes::Vector(const isa::Op& op, const isa::RowFacts& facts, OpTime* t) const {
  const absl::string_view n = op.inst.name();
  t->unit = Unit::kValu;
  double clocks = params_.valu;
  if (facts.mfma) {
    t->unit = Unit::kMfma;
    const double passes = isa::MfmaPasses(isa_, op.inst);
    const double stretch = facts.xdl ? params_.mfma_stretch : 1;
    t->passes = Clocks(passes * params_.mfma_pass * stretch);
    t->result = Clocks((passes * stretch + params_.mfma_result) * params_.mfma_pass);
    clocks = params_.issue;
  } else if (facts.trans) {
    clocks = params_.trans;
  } else if (IsQuarter(n)) {
    clocks = params_.valu_quarter;
  } else if (IsWideConvert(n)) {
    clocks = params_.convert_wide;
  } else if (facts.permlane || facts.readlane || facts.rwlane) {
    clocks = params_.cross_lane;
  } else if (IsDouble(n)) {
    clocks = params_.valu_double;
  }
  t->occupancy = Clocks(clocks);
}

void OpTimes::Memory(const isa::Op& op, const isa::RowFacts& facts, OpTime* t) const {
  const isa::Inst& inst = op.inst;
  t->bytes = facts.bytes;
  t->elements = facts.elements;
  t->stride = facts.stride;
  t->load = facts.load || facts.atomic;
  t->store = facts.store || facts.atomic;
  t->to_lds = inst.lds || facts.to_lds;
  if (facts.ds) {
    t->unit = facts.lds_memory ? Unit::kLds : Unit::kLane;
    const bool wide = facts.load && !facts.store && !facts.atomic && (facts.bytes == 8 || facts.bytes == 16);
    t->lds_clock = std::max(static_cast<int>(wide ? params_.lds_wide_bytes : params_.lds_bytes), 4);
    t->returns = facts.load || StrContains(inst.name(), "_rtn") || !facts.lds_memory;
    return;
  }
  t->sc0 = inst.sc0;
  t->sc1 = inst.sc1;
  t->nt = inst.nt;
  t->flat = inst.row->family == isa::Family::kFlat;
  t->returns = facts.load || (facts.atomic && inst.sc0);
  t->unit = facts.inv      ? Unit::kInv
            : facts.wbl2   ? Unit::kWbl2
            : facts.atomic ? Unit::kAtomic
            : facts.store  ? Unit::kStore
                           : Unit::kLoad;
}

void OpTimes::Scalar(const isa::Op& op, OpTime* t) const {
  const absl::string_view n = op.inst.name();
  const auto imm = static_cast<uint32_t>(op.inst.offset);
  t->unit = Unit::kSalu;
  t->occupancy = Clocks(params_.issue);
  if (op.inst.row->family == isa::Family::kSopp || StartsWith(n, "s_setpc") ||
      StartsWith(n, "s_swappc") || StartsWith(n, "s_call")) {
    t->unit = Unit::kOther;
  }
  if (n == "s_waitcnt") {
    t->unit = Unit::kWait;
    t->vm_wait = static_cast<uint8_t>((imm & 15) | (imm >> 14 & 3) << 4);
    t->lgkm_wait = static_cast<uint8_t>(imm >> 8 & 15);
    // The largest count is no wait.
    if (t->vm_wait == 63) t->vm_wait = OpTime::kNoWait;
    if (t->lgkm_wait == 15) t->lgkm_wait = OpTime::kNoWait;
  } else if (n == "s_nop") {
    t->unit = Unit::kNop;
    t->wait = Clocks(((imm & 15) + 1) * params_.issue);
  } else if (n == "s_sleep") {
    t->unit = Unit::kSleep;
    t->wait = Clocks(std::max((imm & 127) * params_.sleep_unit, params_.issue));
  } else if (n == "s_barrier") {
    t->unit = Unit::kBarrier;
  } else if (StartsWith(n, "s_endpgm")) {
    t->unit = Unit::kEnd;
  } else if (StartsWith(n, "s_branch") || StartsWith(n, "s_cbranch") || StartsWith(n, "s_setpc") ||
             StartsWith(n, "s_swappc") || StartsWith(n, "s_call")) {
    t->unit = Unit::kBranch;
  }
}

const OpTime* OpTimes::Make(const isa::Op& op) {
  Words words = {};
  for (int i = 0; i < 4 && 4 * i < op.bytes; ++i) words[i] = op.inst.words[i];
  const OpTime*& found = by_words_[words];
  if (found != nullptr) return found;
  OpTime& t = made_.emplace_back();
  found = &t;
  if (op.descriptor == nullptr) return found;  // stops the wave when it runs
  const isa::Effects effects = table_.Of(op);
  const isa::RowFacts& facts = *effects.facts;
  const absl::string_view n = op.inst.name();
  if (facts.valu) {
    Vector(op, facts, &t);
  } else if (facts.smem) {
    t.unit = StartsWith(n, "s_memtime") || StartsWith(n, "s_memrealtime") ? Unit::kClock
             : StartsWith(n, "s_dcache_")                                  ? Unit::kSmemInv
                                                                           : Unit::kSmem;
    t.dwords = facts.scalar_dwords;
  } else if (facts.vmem || facts.ds) {
    Memory(op, facts, &t);
  } else {
    Scalar(op, &t);
  }
  for (int i = 0; i < effects.read_count; ++i) {
    if (!effects.reads[i].vector()) continue;
    const bool accumulates = facts.mfma && (effects.reads[i].field == 'c' || effects.reads[i].field == 'd');
    if (accumulates) {
      t.accumulator = SpanOf(effects.reads[i]);
    } else if (t.read_count < 5) {
      t.reads[static_cast<size_t>(t.read_count++)] = SpanOf(effects.reads[i]);
    }
  }
  for (int i = 0; i < effects.write_count && t.write_count < 2; ++i) {
    if (effects.writes[i].vector()) t.writes[static_cast<size_t>(t.write_count++)] = SpanOf(effects.writes[i]);
  }
  return found;
}

}  // namespace mainarch::sim::timing
