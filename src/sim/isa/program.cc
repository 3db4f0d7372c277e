// SPDX-License-Identifier: MIT
#include "sim/isa/program.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/isa/absent.h"
#include "sim/isa/bulk.h"

namespace mainarch::sim::isa {
namespace {

void Illegal(Wave& w, const Op&) { w.Stop(StopReason::kIllegal, "illegal instruction"); }
void Unsupported(Wave& w, const Op&) {
  w.Stop(StopReason::kUnsupported, "instruction not implemented by the virtual GPU");
}
void Absent(Wave& w, const Op& op) {
  w.Stop(StopReason::kIllegal, absl::StrCat("illegal instruction: ", WhyAbsent(*op.inst.row)));
}
constexpr char kErratum[] =
    "v_pk_fma_f32 with op_sel:[0,1,0] loses its low lane on gfx950 (erratum)";
void Erratum(Wave& w, const Op&) { w.Stop(StopReason::kIllegal, kErratum); }
constexpr size_t kMostNotes = 16;  // kept until somebody takes them

// Inline constants 240..248 in each format.
uint64_t InlineFloat(int code, Type type) {
  static constexpr float kValues[] = {0.5f, -0.5f, 1, -1, 2, -2, 4, -4};
  static constexpr uint16_t kHalf[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                                       0xc000, 0x4400, 0xc400, 0x3118};
  const int i = code - 240;
  switch (type) {
    case Type::kB64:
    case Type::kF64:
      return i == 8 ? 0x3fc45f306dc9c882 : __builtin_bit_cast(uint64_t, double{kValues[i]});
    case Type::kF16:
    case Type::kB16:
    case Type::kPk16:
      return kHalf[i];
    case Type::kBf16:
      return i == 8 ? 0x3e22 : __builtin_bit_cast(uint32_t, kValues[i]) >> 16;
    default:
      return i == 8 ? 0x3e22f983 : __builtin_bit_cast(uint32_t, kValues[i]);
  }
}

uint64_t ConstantValue(const Op& op, int code, Type type, bool* known) {
  *known = true;
  const bool wide = type == Type::kB64 || type == Type::kF64;
  if (code == reg::kLiteral) {
    const uint64_t literal = op.inst.literal;
    if (type == Type::kF64) return literal << 32;
    const absl::string_view name = op.inst.name();
    const bool sign = wide && name.size() > 4 && name.substr(name.size() - 4) == "_i64";
    return sign ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(literal)))
                : literal;
  }
  if (code >= 128 && code <= 192) return static_cast<uint64_t>(code - 128);
  if (code > 192 && code <= 208) {
    const int64_t value = 192 - code;
    return wide ? static_cast<uint64_t>(value) : static_cast<uint32_t>(value);
  }
  if (code >= 240 && code <= 248) return InlineFloat(code, type);
  *known = false;
  return 0;
}

Ref VectorRef(const Operand& o) {
  Ref r;
  r.kind = Ref::kVector;
  r.width = o.width;
  r.code = o.code;
  r.offset = (o.code - reg::kVgpr) * kLanes;  // AGPRs follow at register 256
  return r;
}

Ref ScalarRef(uint16_t code, uint8_t width) {
  Ref r;
  r.kind = Ref::kScalar;
  r.code = code;
  r.width = width;
  return r;
}

bool IsVector(const Operand& o) { return o.code >= reg::kVgpr; }

bool IsForbidden(Isa isa, const Inst& inst) {
  return isa == Isa::kGfx950 && inst.name() == "v_pk_fma_f32" && inst.opsel == 2;
}

}  // namespace

InstructionSet::InstructionSet(Isa isa, LaneCode code, bool matrix)
    : isa_(isa), matrix_(matrix), bulk_(BulkCodeOf(code)), descriptors_(AllDescriptors(code)) {}

const Descriptor* InstructionSet::Find(const OpRow& row) const {
  const auto it = descriptors_.find(row.name);
  return it == descriptors_.end() ? nullptr : it->second;
}

Program::Chunk* Program::ChunkOf(uint64_t pc) {
  const uint64_t base = pc & ~(kChunkBytes - 1);
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Chunk>& chunk = chunks_[base];
  if (chunk == nullptr) {
    chunk = std::make_unique<Chunk>();
    chunk->base = base;
  }
  return chunk.get();
}

const Op* Program::DecodeAt(Wave& w, Chunk* chunk) {
  uint8_t code[16] = {};
  View view;
  if (!w.memory->Translate(w.at, false, true, &view, &w.fault)) {
    w.Stop(StopReason::kMemoryFault, "instruction fetch");
    return nullptr;
  }
  const uint64_t have = std::min<uint64_t>(16, view.end - w.at);
  std::memcpy(code, view.host + (w.at - view.begin), have);
  std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<const Op*>& slot = chunk->ops[(w.at - chunk->base) / 4];
  if (const Op* op = slot.load(std::memory_order_relaxed)) return op;
  Op& op = ops_.emplace_back();
  if (!Decode(set_.isa(), absl::MakeConstSpan(code, have), &op.inst)) {
    op.run = &Illegal;
  } else {
    op.descriptor = set_.Find(*op.inst.row);
    const bool erratum = IsForbidden(set_.isa(), op.inst);
    if (erratum && run_errata_) NoteErratum(op.inst, w.at);
    if (erratum && !run_errata_)
      op.run = &Erratum;
    else if (op.descriptor == nullptr)
      op.run = WhyAbsent(*op.inst.row) != nullptr ? &Absent : &Unsupported;
    else
      Build(&op);
    const bool product = absl::StartsWith(op.inst.name(), "v_mfma_") || absl::StartsWith(op.inst.name(), "v_smfmac_");
    if (!set_.matrix() && product && op.descriptor != nullptr) op.run = [](Wave&, const Op&) {};
  }
  op.bytes = op.inst.size;
  op.at = w.at;
  op.after = w.at + op.bytes;
  slot.store(&op, std::memory_order_release);
  return &op;
}

std::vector<std::string> Program::TakeNotes() {
  if (!has_remarks_.load(std::memory_order_relaxed)) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  has_remarks_ = false;
  return std::exchange(remarks_, {});
}

// With the lock held.
void Program::NoteErratum(const Inst& inst, uint64_t pc) {
  if (remarks_.size() >= kMostNotes) return;
  remarks_.push_back(absl::StrCat("note: ", Print(set_.isa(), inst), " at pc 0x", absl::Hex(pc),
                                " runs as documented; silicon now and then does not: ", kErratum));
  has_remarks_ = true;
}

std::unique_ptr<Workgroup> Program::TakeSpare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (spares_.empty()) return nullptr;
  std::unique_ptr<Workgroup> group = std::move(spares_.back());
  spares_.pop_back();
  return group;
}

void Program::KeepSpare(std::unique_ptr<Workgroup> group) {
  group->observed = nullptr;  // of an observer that may go
  std::lock_guard<std::mutex> lock(mutex_);
  if (spares_.size() < most_spares_) spares_.push_back(std::move(group));
}

void Program::KeepMoreSpares(size_t most) {
  std::lock_guard<std::mutex> lock(mutex_);
  most_spares_ = std::max(kMostSpares, most);
  if (spares_.size() > most_spares_) spares_.resize(most_spares_);
}

void Program::NotesBy(std::shared_ptr<const void> owner) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (owner == notes_) return;
  for (const Op& op : ops_) op.note = nullptr;
  notes_ = std::move(owner);
}

void Program::Build(Op* op) {
  op->run = op->descriptor->run;
  const Inst& inst = op->inst;
  op->plain = inst.encoding == Encoding::kNative && inst.neg == 0 && inst.abs == 0 &&
              inst.omod == 0 && !inst.clamp && inst.opsel == 0;
  const Type result = op->descriptor->types[3];
  const bool half = result == Type::kF16 || result == Type::kB16 || result == Type::kBf16;
  // Instructions with op_sel leave the other half of a 16-bit destination alone.
  if (inst.row->family == Family::kVop3 && half && (MasksOf(*inst.row).used >> 14 & 1)) {
    op->plain = false;
  }
  const bool no_output = inst.omod == 0 && !inst.clamp && inst.opsel == 0;
  if (inst.encoding == Encoding::kDpp) {
    op->dpp = DppMapOf(inst);
    op->only_dpp = no_output && inst.neg == 0 && inst.abs == 0;
  }
  bool whole = true;  // sources of 32 or 64 bits
  for (int i = 0; i < 3; ++i) {
    const Type t = op->descriptor->types[i];
    whole &= t == Type::kNone || t == Type::kB32 || t == Type::kF32 || t == Type::kF64;
  }
  op->only_signs = whole && !op->plain && inst.encoding == Encoding::kNative && no_output &&
                   !half && inst.row->family == Family::kVop3;
  BuildRefs(op);
  if (op->descriptor->implicit & kAccumulates) op->c = op->d;
}

const DppMap* Program::DppMapOf(const Inst& inst) {
  const uint32_t key =
      inst.dpp_ctrl | uint32_t{inst.row_mask} << 16 | uint32_t{inst.bank_mask} << 20;
  std::unique_ptr<DppMap>& map = dpp_maps_[key];
  if (map != nullptr) return map.get();
  map = std::make_unique<DppMap>();
  for (int i = 0; i < kLanes; ++i) {
    const int from = DppSource(inst.dpp_ctrl, i);
    map->from[i] = static_cast<uint32_t>(from < 0 ? i : from);
    map->valid |= uint64_t{from >= 0} << i;
    const bool gated = !(inst.row_mask >> (i / 16) & 1) || !(inst.bank_mask >> (i / 4 % 4) & 1);
    map->written |= uint64_t{!gated} << i;
    if (map->from[i] / 16 != static_cast<uint32_t>(i) / 16) map->in_row = false;
  }
  return map.get();
}

void Program::BuildRefs(Op* op) {
  const Inst& inst = op->inst;
  const Family family = inst.row->family;
  const absl::string_view name = inst.name();
  const bool made_k = name == "v_fmamk_f32" || name == "v_madmk_f16";
  bool seen_source = false;
  for (int i = 0; i < inst.operand_count; ++i) {
    const Operand& o = inst.operands[i];
    Ref* to = nullptr;
    switch (o.field) {
      case 'd':
        if (IsVector(o))
          op->d = VectorRef(o);
        else
          op->d = ScalarRef(o.code, o.width);
        if (family == Family::kVop3 && o.type == 'S') op->sdst = o.code;
        continue;
      case 'e':
        op->sdst = o.code;
        continue;
      case 'v':
        if (seen_source)
          op->c = ScalarRef(reg::kVcc, 2);
        else
          op->sdst = o.code;
        continue;
      case 'a':
        to = &op->a;
        break;
      case 'b':
        to = made_k ? &op->c : &op->b;
        break;
      case 'c':
        to = &op->c;
        break;
      case 'k':
        to = made_k ? &op->b : &op->c;
        break;
      case 'A':
        op->a = VectorRef(o);
        continue;
      case 'D':
        op->b = VectorRef(o);
        if (family == Family::kMubuf || family == Family::kMtbuf) op->d = op->b;
        continue;
      case 'E':
        op->c = VectorRef(o);
        continue;
      case 'r':
        if (family == Family::kSmem) op->a = ScalarRef(o.code, o.width);
        continue;
      default:
        continue;
    }
    seen_source = true;
    if (IsVector(o)) {
      *to = VectorRef(o);
      continue;
    }
    *to = ScalarRef(o.code, o.width);
    Type type = op->descriptor->types[to == &op->a ? 0 : to == &op->b ? 1 : 2];
    const int index = to == &op->a ? 0 : to == &op->b ? 1 : 2;
    if (name.substr(0, 9) == "v_fma_mix") {
      type = inst.opsel_hi >> index & 1 ? Type::kF16 : Type::kF32;
    }
    // Of packed integers of 16 bits the inline constants 0.5 to 1/(2 pi) are f32, of which op_sel
    // takes a half, as LLVM counts on (AMDGPUBaseInfo, inline encodings of V2I16): v_pk_add_u16
    // with 2.0 and op_sel:[0,1] adds 0x4000.
    if (type == Type::kPk16 && !absl::StrContains(name, "f16")) type = Type::kB32;
    Constant(*op, type, to);
  }
}

void Program::Constant(const Op& op, Type type, Ref* ref) {
  bool known;
  const uint64_t value = ConstantValue(op, ref->code, type, &known);
  if (!known) return;
  ref->kind = Ref::kConstant;
  ref->value = value;
  Rows& rows = constants_.emplace_back();
  std::fill(rows.value, rows.value + kLanes, static_cast<uint32_t>(value));
  std::fill(rows.value + kLanes, rows.value + 2 * kLanes, static_cast<uint32_t>(value >> 32));
  ref->row = rows.value;
}

std::string Describe(const Wave& w, Isa isa) {
  uint8_t code[16] = {};
  View view;
  AccessFault fault;
  std::string text = "(no code)";
  if (w.memory != nullptr && w.memory->Translate(w.at, false, true, &view, &fault)) {
    const uint64_t have = std::min<uint64_t>(16, view.end - w.at);
    std::memcpy(code, view.host + (w.at - view.begin), have);
    Inst inst;
    Decode(isa, absl::MakeConstSpan(code, have), &inst);
    text = Print(isa, inst);
  }
  return absl::StrCat("pc 0x", absl::Hex(w.at), ", workgroup ", w.group->id[0], ",", w.group->id[1],
                      ",", w.group->id[2], " wave ", w.index, ": ", text, ": ", w.detail);
}

}  // namespace mainarch::sim::isa
