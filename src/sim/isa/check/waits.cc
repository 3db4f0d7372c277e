// SPDX-License-Identifier: MIT
#include "sim/isa/check/waits.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mainarch::sim::isa {
namespace {

bool IsVmem(Family family) {
  return family == Family::kMubuf || family == Family::kMtbuf || family == Family::kFlat ||
         family == Family::kScratch || family == Family::kGlobal;
}

bool IsValu(Family family) {
  return family == Family::kVop1 || family == Family::kVop2 || family == Family::kVopc ||
         family == Family::kVop3 || family == Family::kVop3p;
}

bool IsLoad(const Inst& inst) { return absl::StrContains(inst.name(), "load"); }

// Loads of whole registers that come back in order, those of memory among themselves and those of
// LDS among themselves; FLAT ones may come from either, others keep a half.
bool Ordered(const Inst& inst) {
  return ((IsVmem(inst.row->family) && inst.row->family != Family::kFlat) ||
          inst.row->family == Family::kDs) &&
         !absl::StrContains(inst.name(), "d16");
}

// Permutes go through the LDS hardware but touch no LDS memory.
bool TouchesLds(const Inst& inst) {
  const absl::string_view n = inst.name();
  return !absl::StrContains(n, "permute") && !absl::StrContains(n, "swizzle") && n != "ds_nop";
}

// The operand a memory instruction writes, or null.
const Operand* Written(const Inst& inst) {
  if (inst.lds) return nullptr;
  const Operand* d = inst.Find('d');
  const bool buffer = inst.row->family == Family::kMubuf || inst.row->family == Family::kMtbuf;
  if (d == nullptr && buffer && (IsLoad(inst) || inst.sc0)) d = inst.Find('D');
  return d;
}

// Instructions after which an access to LDS has been done in any case: a wave issues one each four
// clocks at most, LDS answers after 51 to 69 of them (measured on MI300X and MI355X), in order, and
// no more than 16 of a wave, of 16 clocks each, are outstanding.
constexpr uint64_t kLdsArrives = 128;
// And after which VALU may overwrite what a load from memory will fill: production kernels do after
// 43, 15 of them loads (README.md).
constexpr uint64_t kMemoryArrives = 40;

}  // namespace

void WaveCheck::RetireOld() {
  while (!lgkm_.empty() && lgkm_.front().ds && lgkm_.front().at + kLdsArrives <= instructions_) {
    Retire(&lgkm_);
  }
}

void WaveCheck::Pend(const Event& e, int by) {
  for (int i = 0; i < e.count; ++i) {
    uint8_t& slot = e.scalar ? scalar_[e.first + i] : vector_[e.first + i];
    slot = static_cast<uint8_t>(slot + by);
  }
}

void WaveCheck::Add(std::deque<Event>* queue, const Event& event) {
  queue->push_back(event);
  Pend(event, 1);
}

void WaveCheck::Retire(std::deque<Event>* queue) {
  const Event e = queue->front();
  queue->pop_front();
  Pend(e, -1);
  if (e.ds) ++ds_drained;
  if (e.dma) ++dma_drained;
}

void WaveCheck::Wait(int imm) {
  const size_t vm = static_cast<size_t>((imm & 15) | (imm >> 10 & 0x30));
  const size_t lgkm = static_cast<size_t>(imm >> 8 & 15);
  while (vm_.size() > vm) Retire(&vm_);
  if (lgkm >= 15) return;
  // Scalar loads return in any order: with one outstanding only zero says anything.
  bool scalar = false;
  for (const Event& e : lgkm_) scalar |= e.scalar;
  if (scalar && lgkm > 0) return;
  while (lgkm_.size() > lgkm) Retire(&lgkm_);
}

// `known`: whether all that is outstanding into registers that VALU overwrites was asked for long
// ago. Then it is taken to have arrived.
bool WaveCheck::Overwritten(const Op& op, const Operand& o) {
  if (!known_ || (o.field != 'd' && o.field != 'e') || !IsValu(op.inst.row->family)) return false;
  const int first = o.code - reg::kVgpr;
  std::vector<Event*> old;
  for (Event& e : vm_) {
    if (e.scalar || first + o.width <= e.first || e.first + e.count <= first) continue;
    if (e.at + kMemoryArrives > instructions_) return false;
    old.push_back(&e);
  }
  for (Event* e : old) {
    Pend(*e, -1);
    e->count = 0;
  }
  for (int i = 0; i < o.width; ++i) {
    if (vector_[static_cast<size_t>(first + i)] != 0) return false;
  }
  return !old.empty();
}

// Registers that the instruction reads or writes while a load into them is outstanding.
std::string WaveCheck::Touch(const Wave&, const Op& op, std::string* note) {
  const auto check = [this](int code, int width) -> std::string {
    for (int i = 0; i < width; ++i) {
      if (code >= reg::kVgpr && vector_[static_cast<size_t>(code - reg::kVgpr + i)] != 0) {
        const int index = code - reg::kVgpr + i;
        return absl::StrCat(index < 256 ? "v" : "a", index % 256,
                            " has a load outstanding: s_waitcnt is missing");
      }
      if (code < 128 && scalar_[static_cast<size_t>(code + i)] != 0) {
        return absl::StrCat("s", code + i,
                            " has a scalar load outstanding: s_waitcnt lgkmcnt(0) is missing");
      }
    }
    return "";
  };
  const Operand* refilled = Ordered(op.inst) ? Written(op.inst) : nullptr;
  for (int i = 0; i < op.inst.operand_count; ++i) {
    const Operand& o = op.inst.operands[i];
    if (&o == refilled &&
        OnlyOrdered(op.inst.row->family == Family::kDs ? lgkm_ : vm_, o.code, o.width)) {
      continue;
    }
    std::string what = check(o.code, o.width);
    if (what.empty()) continue;
    if (o.code < reg::kVgpr || !Overwritten(op, o)) return what;
    *note = std::move(what);
  }
  const Inst& inst = op.inst;
  if (inst.row->family == Family::kGlobal && inst.saddr != 0x7f) {
    std::string what = check(inst.saddr, 2);
    if (!what.empty()) return what;
  }
  if (inst.row->family == Family::kScratch && inst.saddr != 0x7f) {
    std::string what = check(inst.saddr, 1);
    if (!what.empty()) return what;
  }
  if (inst.encoding == Encoding::kScaledMfma) {
    for (uint16_t s : inst.scale_src) {
      std::string what = check(s, 1);
      if (!what.empty()) return what;
    }
  }
  return "";
}

// Whether what is outstanding into these vector registers arrives before any further load of that
// queue.
bool WaveCheck::OnlyOrdered(const std::deque<Event>& queue, int code, int width) const {
  for (int r = code - reg::kVgpr; r < code - reg::kVgpr + width; ++r) {
    if (r < 0) return false;
    int ordered = 0;
    for (const Event& e : queue) ordered += e.ordered && e.first <= r && r < e.first + e.count;
    if (vector_[static_cast<size_t>(r)] != ordered) return false;
  }
  return true;
}

std::string WaveCheck::Issue(const Wave& w, const Op& op, std::string* note) {
  if (op.descriptor == nullptr) return "";
  ++instructions_;
  if (known_) RetireOld();
  const Inst& inst = op.inst;
  const Family family = inst.row->family;
  if (family == Family::kSopp) {
    if (inst.row->op == 12) Wait(inst.offset & 0xffff);
    return "";
  }
  std::string what = Touch(w, op, note);
  if (!what.empty()) return what;
  Event e;
  e.at = instructions_;
  if (family == Family::kSmem) {
    const Operand* d = inst.Find('d');
    e.scalar = true;
    if (d != nullptr) e.first = d->code, e.count = d->width;
    Add(&lgkm_, e);
    return "";
  }
  if (family != Family::kDs && !IsVmem(family)) return "";
  if (const Operand* d = Written(inst)) {
    e.first = static_cast<uint16_t>(d->code - reg::kVgpr);
    e.count = d->width;
  }
  if (family == Family::kDs) {
    e.ds = TouchesLds(inst);
    e.ordered = Ordered(inst);
    ds_issued += e.ds;
    Add(&lgkm_, e);
    return "";
  }
  e.ordered = Ordered(inst);
  e.dma = inst.lds;
  dma_issued += e.dma;
  if (inst.name() == "buffer_inv") return "";
  Add(&vm_, e);
  if (family == Family::kFlat) {
    // FLAT may go to LDS: it counts in both.
    Event other;
    other.first = e.first;
    other.count = e.count;
    Add(&lgkm_, other);
  }
  return "";
}

void LdsCheck::Barrier() {
  for (size_t i = 0; i < visible_.size(); ++i)
    visible_[i] = {checks_[i].ds_drained, checks_[i].dma_drained};
}

std::string LdsCheck::Instruction(uint32_t wave, const RowFacts& facts, const Accesses& accesses,
                                  std::string* note) {
  kind_ = accesses.dma   ? Kind::kDma
          : facts.atomic ? Kind::kAtomic
          : facts.store  ? Kind::kWrite
                         : Kind::kRead;
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kLds) continue;
    std::string what = Touch(wave, static_cast<uint32_t>(piece.address), piece.size, note);
    if (!what.empty()) return what;
  }
  return "";
}

std::string LdsCheck::Touch(uint32_t wave, uint32_t address, uint32_t size, std::string* note) {
  WaveCheck& self = checks_[wave];
  for (uint32_t at = address / 4; at <= (address + size - 1) / 4 && at < cells_.size(); ++at) {
    Cell& cell = cells_[at];
    const bool other = cell.writer >= 0 && cell.writer != static_cast<int>(wave);
    const bool both_atomic = cell.atomic && kind_ == Kind::kAtomic;
    if (other && !both_atomic && !Visible(cell)) {
      return absl::StrCat("lds race at ", at * 4, ": wave ", cell.writer,
                          " wrote it and no barrier after its s_waitcnt lies between");
    }
    if (!other && cell.writer >= 0 && cell.dma && cell.write > self.dma_drained) {
      return absl::StrCat("lds at ", at * 4,
                          " is being loaded from memory: s_waitcnt vmcnt is missing");
    }
    if (kind_ == Kind::kRead) {
      cell.read[wave % 16] = static_cast<uint32_t>(self.ds_issued);
      continue;
    }
    for (uint32_t v = 0; v < checks_.size() && kind_ != Kind::kAtomic; ++v) {
      if (v == wave || cell.read[v % 16] <= visible_[v].ds) continue;
      std::string what = absl::StrCat("lds race at ", at * 4, ": wave ", v,
                                      " reads it and no barrier after its s_waitcnt lies between");
      if (!known_) return what;
      *note = std::move(what);
      break;
    }
    cell.writer = static_cast<int16_t>(wave);
    cell.atomic = kind_ == Kind::kAtomic;
    cell.dma = kind_ == Kind::kDma;
    cell.write = cell.dma ? self.dma_issued : self.ds_issued;
  }
  return "";
}

}  // namespace mainarch::sim::isa
