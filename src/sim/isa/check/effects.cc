// SPDX-License-Identifier: MIT
#include "sim/isa/check/effects.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace mainarch::sim::isa {
namespace {

using absl::EndsWith;
using absl::StartsWith;
using absl::StrContains;

bool IsOneOf(absl::string_view name, std::initializer_list<absl::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](absl::string_view p) { return StartsWith(name, p); });
}

void VectorFacts(absl::string_view n, RowFacts* f) {
  f->valu = true;
  f->mfma = StartsWith(n, "v_mfma_") || StartsWith(n, "v_smfmac_");
  f->dgemm = f->mfma && StrContains(n, "_f64_") && EndsWith(n, "_f64");
  const bool single = f->mfma && EndsWith(n, "_f32") && !EndsWith(n, "_xf32");
  f->xdl = f->mfma && !f->dgemm && !single;
  f->dot = StartsWith(n, "v_dot");
  f->trans = IsOneOf(n, {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"});
  f->permlane = StartsWith(n, "v_permlane");
  f->readlane = n == "v_readlane_b32" || n == "v_readfirstlane_b32";
  f->rwlane = n == "v_readlane_b32" || n == "v_writelane_b32";
  f->divfmas = StartsWith(n, "v_div_fmas");
  f->late_result = StartsWith(n, "v_cvt_scalef32_sr_pk_fp4");
}

// Bytes that the last part of a memory instruction's name stands for.
uint8_t BytesOf(absl::string_view n) {
  if (EndsWith(n, "dwordx4") || EndsWith(n, "_b128")) return 16;
  if (EndsWith(n, "dwordx3") || EndsWith(n, "_b96") || EndsWith(n, "_b96_tr_b6")) return 12;
  if (EndsWith(n, "dwordx2") || EndsWith(n, "_x2") || EndsWith(n, "64")) return 8;
  if (StrContains(n, "_b64_tr_")) return 8;
  if (StrContains(n, "byte") || StrContains(n, "_u8") || StrContains(n, "_i8") ||
      StrContains(n, "write_b8")) {
    return 1;
  }
  if (StrContains(n, "short") || StrContains(n, "_u16") || StrContains(n, "_i16") ||
      StrContains(n, "write_b16")) {
    return 2;
  }
  return 4;
}

void MemoryFacts(absl::string_view n, RowFacts* f) {
  f->inv = n == "buffer_inv";
  f->wbl2 = n == "buffer_wbl2";
  f->atomic = StrContains(n, "_atomic_");
  f->load = StrContains(n, "_load_") && !f->atomic;
  f->store = StrContains(n, "_store_");
  f->to_lds = StrContains(n, "_load_lds_");
  f->bytes = BytesOf(n);
}

void DsFacts(absl::string_view n, RowFacts* f) {
  f->ds = true;
  if (StrContains(n, "permute") || StrContains(n, "swizzle") || n == "ds_nop" ||
      StrContains(n, "_gws_")) {
    return;
  }
  f->lds_memory = true;
  f->load = StartsWith(n, "ds_read");
  f->store = StartsWith(n, "ds_write");
  f->atomic = !f->load && !f->store;
  f->bytes = BytesOf(n);
  if (StartsWith(n, "ds_read2") || StartsWith(n, "ds_write2") || StartsWith(n, "ds_wrxchg2")) {
    f->elements = 2;
    f->stride = static_cast<uint16_t>(f->bytes * (StrContains(n, "st64") ? 64 : 1));
  }
  f->reads_m0_late = StrContains(n, "addtid") || StrContains(n, "_gws_");
}

void ScalarMemoryFacts(absl::string_view n, RowFacts* f) {
  f->smem = true;
  f->scalar_inv = StartsWith(n, "s_dcache_inv");
  f->load = StrContains(n, "_load_");
  f->store = StrContains(n, "_store_");
  f->atomic = StrContains(n, "_atomic_");
  if (f->atomic) f->scalar_dwords = n.size() > 3 && n.substr(n.size() - 3) == "_x2" ? 2 : 1;
  if (!f->load && !f->store) return;
  int count = 1;
  const size_t x = n.rfind('x');
  if (x != absl::string_view::npos && !absl::SimpleAtoi(n.substr(x + 1), &count)) count = 1;
  f->scalar_dwords = static_cast<uint8_t>(count);
}

RowFacts FactsFrom(const OpRow& row) {
  RowFacts f;
  const absl::string_view n = row.name;
  switch (row.family) {
    case Family::kVop1:
    case Family::kVop2:
    case Family::kVop3:
    case Family::kVopc:
    case Family::kVop3p:
      VectorFacts(n, &f);
      break;
    case Family::kSmem:
      ScalarMemoryFacts(n, &f);
      break;
    case Family::kDs:
      DsFacts(n, &f);
      break;
    case Family::kMubuf:
    case Family::kMtbuf:
    case Family::kFlat:
    case Family::kScratch:
    case Family::kGlobal:
      f.vmem = true;
      MemoryFacts(n, &f);
      break;
    default:
      f.salu = true;
      f.setreg = StartsWith(n, "s_setreg");
      f.getreg = StartsWith(n, "s_getreg");
      f.reads_m0_late =
          StartsWith(n, "s_movrel") || StartsWith(n, "s_sendmsg") || n == "s_ttracedata";
      break;
  }
  return f;
}

bool In(const Range* ranges, int count, const Range& range) {
  return std::any_of(ranges, ranges + count,
                     [&](const Range& r) { return r.count > 0 && r.Overlaps(range); });
}

class Builder {
 public:
  Builder(const Op& op, Effects* effects) : inst_(op.inst), op_(op), e_(*effects) {}

  void Build() {
    const RowFacts& f = *e_.facts;
    bool source_seen = false;
    for (int i = 0; i < inst_.operand_count; ++i) {
      const Operand& o = inst_.operands[i];
      switch (o.field) {
        case 'd':
          Destination(o);
          break;
        case 'e':
          Write(o.code, o.width, 'e');
          break;
        case 'v':
          if (source_seen) {
            Read(o.code, 2, 'v');
          } else {
            Write(o.code, 2, 'v');
          }
          break;
        case 'k':
          break;
        case 'D':
          Data(o, f);
          break;
        default:
          source_seen |= o.field == 'a' || o.field == 'b' || o.field == 'c';
          Read(o.code, o.width, o.field);
      }
    }
    Extra();
    Implied();
  }

 private:
  void Read(int code, int count, char field) {
    if (code >= 128 && code < reg::kVgpr) {
      if (code == reg::kScc) e_.reads_scc = true;
      if (code == reg::kVccz) Read(reg::kVcc, 2, 'x');
      if (code == reg::kExecz) e_.reads_exec = true;
      return;  // a constant
    }
    if (e_.read_count < 10) {
      e_.reads[e_.read_count++] = {static_cast<uint16_t>(code), static_cast<uint8_t>(count), field};
    }
  }
  void Write(int code, int count, char field) {
    if (e_.write_count < 4) {
      e_.writes[e_.write_count++] = {static_cast<uint16_t>(code), static_cast<uint8_t>(count),
                                     field};
    }
  }

  void Destination(const Operand& o) {
    const absl::string_view n = inst_.name();
    if (e_.facts->setreg || StartsWith(n, "s_cmpk")) return Read(o.code, o.width, 'd');
    if (e_.facts->smem && (e_.facts->store || e_.facts->atomic)) {
      Read(o.code, o.width, 'd');
      if (!e_.facts->atomic || !inst_.sc0) return;
    }
    Write(o.code, o.width, 'd');
    const bool swap = n == "v_swap_b32" || e_.facts->permlane;
    const bool reads = op_.descriptor->implicit & kReadsDst || swap || StartsWith(n, "v_smfmac_") ||
                       (inst_.encoding == Encoding::kSdwa && inst_.dst_unused == 2) ||
                       (inst_.encoding == Encoding::kDpp && KeepsLanes()) ||
                       StartsWith(n, "v_fmac") || StartsWith(n, "v_pk_fmac") ||
                       StartsWith(n, "v_dot2c") || StartsWith(n, "v_dot4c") ||
                       StartsWith(n, "v_dot8c");
    if (reads) Read(o.code, o.width, 'd');
  }

  // Lanes that DPP does not write keep what the destination held.
  bool KeepsLanes() const {
    return !inst_.bound_ctrl || inst_.row_mask != 15 || inst_.bank_mask != 15;
  }

  // MUBUF loads fill their data register; atomics give it the old value when sc0 asks for it.
  void Data(const Operand& o, const RowFacts& f) {
    const bool buffer = inst_.row->family == Family::kMubuf || inst_.row->family == Family::kMtbuf;
    if (!buffer) return Read(o.code, o.width, 'D');
    if (f.load) {
      if (!inst_.lds) Write(o.code, o.width, 'D');
      if (StrContains(inst_.name(), "d16")) Read(o.code, o.width, 'd');
      return;
    }
    Read(o.code, o.width, 'D');
    if (f.atomic && inst_.sc0) Write(o.code, o.width, 'D');
  }

  // Registers in fields that are not among the operands.
  void Extra() {
    const Family family = inst_.row->family;
    if (family == Family::kGlobal && inst_.saddr != 0x7f) Read(inst_.saddr, 2, 'r');
    if (family == Family::kScratch && inst_.saddr != 0x7f) Read(inst_.saddr, 1, 'r');
    // The cache instructions have the field too, and read nothing.
    if ((family == Family::kMubuf && !e_.facts->inv && !e_.facts->wbl2) ||
        family == Family::kMtbuf) {
      Read(inst_.soffset, 1, 's');
    }
    if (family == Family::kSmem && (inst_.smem_soffset || (!inst_.smem_imm && e_.facts->scalar_dwords > 0))) {
      Read(inst_.soffset, 1, 's');
    }
    if (inst_.encoding == Encoding::kScaledMfma) {
      for (uint16_t s : inst_.scale_src) Read(s, 1, 's');
    }
    const absl::string_view n = inst_.name();
    if (n == "v_swap_b32" || (e_.facts->permlane && StrContains(n, "swap"))) {
      if (const Operand* a = inst_.Find('a')) Write(a->code, 1, 'a');
    }
    if (inst_.lds || e_.facts->to_lds) Read(reg::kM0, 1, 'x');
  }

  void Implied() {
    const uint16_t implicit = op_.descriptor->implicit;
    e_.reads_scc |= (implicit & kReadsScc) != 0;
    e_.writes_scc |= (implicit & kWritesScc) != 0;
    e_.reads_exec |= (implicit & kReadsExec) != 0;
    if (implicit & kReadsVcc) Read(reg::kVcc, 2, 'x');
    if (implicit & kWritesVcc) Write(reg::kVcc, 2, 'x');
    if (implicit & kReadsM0) Read(reg::kM0, 1, 'x');
    if (implicit & kWritesExec) Write(reg::kExec, 2, 'x');
  }

  const Inst& inst_;
  const Op& op_;
  Effects& e_;
};

}  // namespace

bool Effects::Reads(const Range& range) const { return In(reads, read_count, range); }
bool Effects::Writes(const Range& range) const { return In(writes, write_count, range); }

EffectsTable::EffectsTable() {
  for (const OpRow& row : Rows()) facts_.push_back(FactsFrom(row));
}

const RowFacts& EffectsTable::FactsOf(const OpRow& row) const {
  return facts_[static_cast<size_t>(&row - Rows().data())];
}

Effects EffectsTable::Of(const Op& op) const {
  Effects effects;
  effects.facts = &FactsOf(*op.inst.row);
  Builder(op, &effects).Build();
  return effects;
}

int MfmaPasses(Isa isa, const Inst& inst) {
  const absl::string_view n = inst.name();
  if (StartsWith(n, "v_mfma_f64_4x4x4")) return 4;
  if (StartsWith(n, "v_mfma_f64_16x16x4")) return isa == Isa::kGfx950 ? 16 : 8;
  if (StrContains(n, "_4x4x")) return 2;
  if (EndsWith(n, "_f8f6f4")) {
    // With an 8-bit operand the matrix core takes twice as long.
    const int factor = inst.cbsz < 2 || inst.blgp < 2 ? 2 : 1;
    return (StrContains(n, "_32x32x") ? 8 : 4) * factor;
  }
  const bool single = EndsWith(n, "_f32") && !EndsWith(n, "_xf32");
  const bool blocks = StrContains(n, "b_");  // several blocks: 16x16x4_4b_f16
  if (StrContains(n, "_32x32x")) return single || blocks ? 16 : 8;
  return single || blocks ? 8 : 4;
}

}  // namespace mainarch::sim::isa
