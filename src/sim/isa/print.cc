// SPDX-License-Identifier: MIT
//
// Text of an instruction in LLVM's syntax.
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/isa/decode.h"

namespace mainarch::sim::isa {
namespace {

constexpr const char* kFloat32[] = {"0.5",  "-0.5", "1.0",  "-1.0",      "2.0",
                                    "-2.0", "4.0",  "-4.0", "0.15915494"};
constexpr const char* kHalfBits[] = {"0x3800", "0xb800", "0x3c00", "0xbc00", "0x4000",
                                     "0xc000", "0x4400", "0xc400", "0x3118"};

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }
// LLVM's way with immediates: inline constants in decimal, others in hex.
std::string Immediate(uint64_t value) { return value <= 64 ? absl::StrCat(value) : Hex(value); }

std::string Tuple(absl::string_view prefix, int first, int width) {
  if (width == 1) return absl::StrCat(prefix, first);
  return absl::StrCat(prefix, "[", first, ":", first + width - 1, "]");
}

std::string Pair(absl::string_view name, int code, int base, int width) {
  if (width == 2) return std::string(name);
  return absl::StrCat(name, code == base ? "_lo" : "_hi");
}

std::string ScalarName(int code, int width) {
  if (code < 102) return Tuple("s", code, width);
  if (code < 104) return Pair("flat_scratch", code, 102, width);
  if (code < 106) return Pair("xnack_mask", code, 104, width);
  if (code < 108) return Pair("vcc", code, 106, width);
  if (code < 124) return Tuple("ttmp", code - 108, width);
  if (code == 124) return "m0";
  if (code == 126 || code == 127) return Pair("exec", code, 126, width);
  return "null";
}

std::string ConstantName(int code, char type) {
  if (code <= 192) return absl::StrCat(code - 128);
  if (code <= 208) return absl::StrCat(192 - code);
  switch (code) {
    case 235:
      return "src_shared_base";
    case 236:
      return "src_shared_limit";
    case 237:
      return "src_private_base";
    case 238:
      return "src_private_limit";
    case 251:
      return "src_vccz";
    case 252:
      return "src_execz";
    case 253:
      return "src_scc";
    default:
      break;
  }
  if (type == 'h') return kHalfBits[code - 240];
  if (code == 248 && (type == 'D' || type == 'N')) return "0.15915494309189532";
  return kFloat32[code - 240];
}

// A literal whose value an inline constant could carry is printed so that it stays a literal.
bool IsInline(uint32_t value, bool half) {
  static constexpr uint32_t kFloatBits[] = {0x3f000000, 0xbf000000, 0x3f800000,
                                            0xbf800000, 0x40000000, 0xc0000000,
                                            0x40800000, 0xc0800000, 0x3e22f983};
  static constexpr uint16_t kHalf[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                                       0xc000, 0x4400, 0xc400, 0x3118};
  const int32_t number = half ? static_cast<int16_t>(value) : static_cast<int32_t>(value);
  if (number >= -16 && number <= 64) return true;
  for (int i = 0; i < 9; ++i) {
    if (half ? (value & 0xffff) == kHalf[i] : value == kFloatBits[i]) return true;
  }
  return false;
}

// A double whose high half is the literal.
const char* Double(uint32_t high) {
  static constexpr uint32_t kBits[] = {0x3fe00000, 0xbfe00000, 0x3ff00000, 0xbff00000,
                                       0x40000000, 0xc0000000, 0x40100000, 0xc0100000};
  for (int i = 0; i < 8; ++i) {
    if (high == kBits[i]) return kFloat32[i];
  }
  return nullptr;
}

std::string LiteralText(const Inst& inst, const Operand& o) {
  const uint32_t value = inst.literal;
  const absl::string_view name = inst.name();
  if (o.field == 'k') return Hex(value);
  const bool f64 = o.type == 'D' && name.find("f64") != std::string::npos;
  if (f64 && value == 0) return "0";
  if (f64 && Double(value) != nullptr) return Double(value);
  const bool half = o.type == 'H';
  const bool bf16 = name == "v_dot2c_f32_bf16";
  const bool packed = name == "v_dot2c_f32_f16" || name == "v_pk_fmac_f16";
  const bool small = value + 16 <= 80;
  const bool carried =
      name == "v_cvt_f32_bf16" ? static_cast<uint16_t>(value + 16) <= 80 ||
                                     IsInline(value << 16, false) || (value & 0xffff) == 0x3e22
      : f64                    ? false
      : o.type == 'D'          ? value <= 64
      : bf16   ? small || value == 0x3e22 || (value < 65536 && IsInline(value << 16, false))
      : packed ? small || (value < 0xfff0 && IsInline(value, true))
               : IsInline(value, half);
  if (carried) return absl::StrCat("lit(", Hex(value), ")");
  return Hex(half || o.type == 'h' ? value & 0xffff : value);
}

std::string Register(int code, int width, char type = 'I') {
  if (code >= reg::kAgpr) return Tuple("a", code - reg::kAgpr, width);
  if (code >= reg::kVgpr) return Tuple("v", code - reg::kVgpr, width);
  if (code >= 128) return ConstantName(code, type);
  return ScalarName(code, width);
}

std::string Register(const Inst& inst, const Operand& o) {
  if (o.code == reg::kLiteral) return LiteralText(inst, o);
  return Register(o.code, o.width, o.type);
}

int SourceIndex(char field) { return field == 'a' ? 0 : field == 'b' ? 1 : field == 'c' ? 2 : -1; }

bool IsMai(const Inst& inst) {
  const absl::string_view n = inst.name();
  return n.substr(0, 7) == "v_mfma_" || n.substr(0, 9) == "v_smfmac_";
}
bool IsMix(const Inst& inst) { return inst.name().substr(0, 9) == "v_fma_mix"; }

// "-4" would be another constant.
std::string Negate(int code, bool abs, const std::string& text) {
  const bool constant = code >= 128 && code < 256 && !(code >= 235 && code < 240) && code < 251;
  return constant && !abs ? absl::StrCat("neg(", text, ")") : absl::StrCat("-", text);
}

std::string SourceText(const Inst& inst, const Operand& o) {
  std::string text = Register(inst, o);
  const int i = SourceIndex(o.field);
  if (i < 0 || inst.row->family == Family::kVop3p) {
    if (i >= 0 && IsMix(inst)) {
      if (inst.neg_hi >> i & 1) text = absl::StrCat("|", text, "|");
      if (inst.neg >> i & 1) text = Negate(o.code, inst.neg_hi >> i & 1, text);
    }
    return text;
  }
  if (absl::string_view(inst.name()).substr(0, 8) == "v_bitop3") return text;
  if (inst.sext >> i & 1) return absl::StrCat("sext(", text, ")");
  if (inst.abs >> i & 1) text = absl::StrCat("|", text, "|");
  if (inst.neg >> i & 1) text = Negate(o.code, inst.abs >> i & 1, text);
  return text;
}

std::string List(absl::string_view name, uint32_t bits, int count) {
  std::string text = absl::StrCat(" ", name, ":[");
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, i ? "," : "", bits >> i & 1);
  return text + "]";
}

int CountSources(const Inst& inst) {
  int n = 0;
  for (int i = 0; i < inst.operand_count; ++i) n += SourceIndex(inst.operands[i].field) >= 0;
  return n;
}

std::string OutputModifiers(const Inst& inst) {
  static constexpr const char* kOmod[] = {"", " mul:2", " mul:4", " div:2"};
  return absl::StrCat(inst.clamp ? " clamp" : "", kOmod[inst.omod]);
}

std::string Vop3Modifiers(const Inst& inst) {
  std::string text;
  const absl::string_view name = inst.name();
  if (name.substr(0, 8) == "v_bitop3") {
    const int table = inst.neg | inst.abs << 3 | inst.omod << 6;
    if (table != 0)
      absl::StrAppend(&text, " bitop3:", table <= 10 ? absl::StrCat(table) : Hex(table));
    if (inst.opsel != 0) absl::StrAppend(&text, List("op_sel", inst.opsel, 4));
    return text;
  }
  if (name.substr(0, 10) == "v_permlane") {
    if (inst.opsel & 2) text += " bound_ctrl:1";
    if (inst.opsel & 1) text += " fi:1";
    return text;
  }
  if (inst.opsel != 0) {
    const bool four = MasksOf(*inst.row).used >> 13 & 1;
    const uint32_t bits = four ? inst.opsel : (inst.opsel & 3) | (inst.opsel >> 1 & 4);
    text = List("op_sel", bits, four ? 4 : 3);
  }
  return text + OutputModifiers(inst);
}

std::string MaiModifiers(const Inst& inst) {
  std::string text;
  const bool scaled = inst.encoding == Encoding::kScaledMfma;
  if (scaled) {
    absl::StrAppend(&text, ", ", Register(inst.scale_src[0], 1), ", ",
                    Register(inst.scale_src[1], 1));
    // The lists have a third place for the unused source.
    if (inst.scale_opsel != 0) absl::StrAppend(&text, List("op_sel", inst.scale_opsel, 3));
    absl::StrAppend(&text, List("op_sel_hi", inst.scale_opsel_hi, 3));
  }
  const bool f64 = inst.name().substr(0, 10) == "v_mfma_f64";
  if (inst.cbsz != 0) absl::StrAppend(&text, " cbsz:", inst.cbsz);
  if (inst.abid != 0 && !scaled) absl::StrAppend(&text, " abid:", inst.abid);
  if (inst.blgp != 0) {
    absl::StrAppend(&text, f64 ? List("neg", inst.blgp, 3) : absl::StrCat(" blgp:", inst.blgp));
  }
  return text;
}

std::string Vop3pModifiers(const Inst& inst) {
  if (IsMai(inst)) return MaiModifiers(inst);
  std::string text;
  const int n = CountSources(inst);
  const uint32_t all = (1u << n) - 1;
  const uint64_t used = MasksOf(*inst.row).used;
  const bool mix = IsMix(inst);
  const uint32_t hi_default = mix ? 0 : all;
  if (used >> 59 & 1) {
    if ((inst.opsel & all) != 0) absl::StrAppend(&text, List("op_sel", inst.opsel, n));
    if ((inst.opsel_hi & all) != hi_default) {
      absl::StrAppend(&text, List("op_sel_hi", inst.opsel_hi, n));
    }
  }
  if (!mix && inst.neg & all) absl::StrAppend(&text, List("neg_lo", inst.neg, n));
  if (!mix && inst.neg_hi & all) absl::StrAppend(&text, List("neg_hi", inst.neg_hi, n));
  return text + OutputModifiers(inst);
}

std::string SdwaModifiers(const Inst& inst) {
  static constexpr const char* kSel[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                         "WORD_0", "WORD_1", "DWORD"};
  static constexpr const char* kUnused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
  std::string text = OutputModifiers(inst);
  const bool fp8 = inst.row->family == Family::kVop1 && inst.row->op >= 84 && inst.row->op <= 87;
  if (inst.row->family != Family::kVopc && !fp8) {
    absl::StrAppend(&text, " dst_sel:", kSel[inst.dst_sel],
                    " dst_unused:", kUnused[inst.dst_unused]);
  }
  absl::StrAppend(&text, " src0_sel:", kSel[inst.src_sel[0]]);
  if (inst.row->family != Family::kVop1) {
    absl::StrAppend(&text, " src1_sel:", kSel[inst.src_sel[1]]);
  }
  return text;
}

std::string DppModifiers(const Inst& inst) {
  std::string text = " ";
  const int c = inst.dpp_ctrl;
  if (c <= 0xff) {
    absl::StrAppend(&text, "quad_perm:[", c & 3, ",", c >> 2 & 3, ",", c >> 4 & 3, ",", c >> 6 & 3,
                    "]");
  } else if (c >= 0x150) {
    absl::StrAppend(&text, "row_newbcast:", c & 15);
  } else if (c >= 0x140) {
    static constexpr const char* kRow[] = {"row_mirror", "row_half_mirror", "row_bcast:15",
                                           "row_bcast:31"};
    text += kRow[c - 0x140];
  } else if (c >= 0x130) {
    static constexpr const char* kWave[] = {"wave_shl:1", "wave_rol:1", "wave_shr:1", "wave_ror:1"};
    text += kWave[(c - 0x130) / 4];
  } else {
    static constexpr const char* kShift[] = {"row_shl:", "row_shr:", "row_ror:"};
    absl::StrAppend(&text, kShift[(c >> 4) - 16], c & 15);
  }
  absl::StrAppend(&text, " row_mask:", Hex(inst.row_mask), " bank_mask:", Hex(inst.bank_mask));
  if (inst.bound_ctrl) text += " bound_ctrl:1";
  return text;
}

std::string CacheBits(const Inst& inst) {
  return absl::StrCat(inst.sc0 ? " sc0" : "", inst.nt ? " nt" : "", inst.sc1 ? " sc1" : "");
}

std::string Offset(int offset) {
  return offset == 0 ? std::string() : absl::StrCat(" offset:", offset);
}

std::string Swizzle(int offset) {
  if (offset == 0) return "";
  std::string text = " offset:";
  if ((offset & 0xff00) == 0x8000) {
    return absl::StrCat(text, "swizzle(QUAD_PERM,", offset & 3, ",", offset >> 2 & 3, ",",
                        offset >> 4 & 3, ",", offset >> 6 & 3, ")");
  }
  if (offset >= 0xe000) return absl::StrCat(text, "swizzle(FFT,", offset & 31, ")");
  if (offset >= 0xc000) {
    return absl::StrCat(text, "swizzle(ROTATE,", offset >> 10 & 1, ",", offset >> 5 & 31, ")");
  }
  if (offset & 0x8000) return absl::StrCat(text, offset);
  const int and_mask = offset & 31, or_mask = offset >> 5 & 31, xor_mask = offset >> 10 & 31;
  if (and_mask == 31 && or_mask == 0 && xor_mask != 0 && (xor_mask & (xor_mask - 1)) == 0) {
    return absl::StrCat(text, "swizzle(SWAP,", xor_mask, ")");
  }
  if (and_mask == 31 && or_mask == 0 && xor_mask > 0 && (xor_mask & (xor_mask + 1)) == 0) {
    return absl::StrCat(text, "swizzle(REVERSE,", xor_mask + 1, ")");
  }
  const int group = 32 - and_mask;
  if (xor_mask == 0 && group > 1 && (group & (group - 1)) == 0 && or_mask < group) {
    return absl::StrCat(text, "swizzle(BROADCAST,", group, ",", or_mask, ")");
  }
  std::string mask;
  for (int bit = 4; bit >= 0; --bit) {
    const int a = and_mask >> bit & 1, o = or_mask >> bit & 1, x = xor_mask >> bit & 1;
    // What a 0 and a 1 become.
    const int p0 = ((0 & a) | o) ^ x, p1 = ((1 & a) | o) ^ x;
    mask += p0 == p1 ? static_cast<char>('0' + p0) : p0 == 0 ? 'p' : 'i';
  }
  return absl::StrCat(text, "swizzle(BITMASK_PERM,\"", mask, "\")");
}

std::string DsModifiers(const Inst& inst) {
  std::string text;
  const absl::string_view name = inst.name();
  if (name == "ds_swizzle_b32") {
    text = Swizzle(inst.offset);
  } else if (name.substr(0, 8) == "ds_read2" || name.substr(0, 9) == "ds_write2" ||
             name.substr(0, 10) == "ds_wrxchg2") {
    if (inst.offset0) absl::StrAppend(&text, " offset0:", inst.offset0);
    if (inst.offset1) absl::StrAppend(&text, " offset1:", inst.offset1);
  } else {
    text = Offset(inst.offset);
  }
  return text + (inst.gds ? " gds" : "");
}

std::string BufferFormat(int format) {
  static constexpr const char* kData[] = {
      "INVALID",     "8",        "16",          "8_8",        "32",      "16_16",
      "10_11_11",    "11_11_10", "10_10_10_2",  "2_10_10_10", "8_8_8_8", "32_32",
      "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"};
  static constexpr const char* kNum[] = {"UNORM", "SNORM", "USCALED",    "SSCALED",
                                         "UINT",  "SINT",  "RESERVED_6", "FLOAT"};
  const int data = format & 15, num = format >> 4;
  if (data == 1 && num == 0) return "";
  std::string text = " format:[";
  if (data != 1) absl::StrAppend(&text, "BUF_DATA_FORMAT_", kData[data], num != 0 ? "," : "");
  if (num != 0) absl::StrAppend(&text, "BUF_NUM_FORMAT_", kNum[num]);
  return text + "]";
}

std::string OperandText(const Inst& inst, char field) {
  const Operand* o = inst.Find(field);
  return o == nullptr ? std::string() : Register(inst, *o);
}

void Join(std::string* text, absl::string_view item) {
  if (item.empty()) return;
  absl::StrAppend(text, text->empty() ? "" : ", ", item);
}

std::string BufferOperands(const Inst& inst) {
  std::string text;
  if (inst.row->operands[0] == 0) return CacheBits(inst).empty() ? "" : CacheBits(inst).substr(1);
  if (!inst.lds) Join(&text, OperandText(inst, 'D'));
  Join(&text, inst.offen || inst.idxen ? OperandText(inst, 'A') : "off");
  Join(&text, OperandText(inst, 'r'));
  Join(&text, Register(inst.soffset, 1));
  if (inst.row->family == Family::kMtbuf) text += BufferFormat(inst.format);
  absl::StrAppend(&text, inst.idxen ? " idxen" : "", inst.offen ? " offen" : "",
                  Offset(inst.offset), CacheBits(inst), inst.lds ? " lds" : "");
  return text;
}

std::string FlatOperands(const Inst& inst) {
  std::string text;
  const Family family = inst.row->family;
  const bool scratch = family == Family::kScratch;
  const std::string address = scratch && !inst.sve ? std::string("off") : OperandText(inst, 'A');
  Join(&text, OperandText(inst, 'd'));
  Join(&text, address);
  Join(&text, OperandText(inst, 'D'));
  if (family != Family::kFlat) {
    const bool wide = family == Family::kGlobal;
    Join(&text, inst.saddr == 0x7f ? "off" : ScalarName(inst.saddr, wide ? 2 : 1));
  }
  return absl::StrCat(text, Offset(inst.offset), CacheBits(inst));
}

std::string SmemOperands(const Inst& inst) {
  std::string text;
  const absl::string_view name = inst.name();
  if (name.substr(0, 11) == "s_atc_probe") {
    Join(&text, Immediate(inst.words[0] >> 6 & 127));
  }
  Join(&text, OperandText(inst, 'd'));
  Join(&text, OperandText(inst, 'r'));
  if (inst.Find('r') != nullptr) {
    const std::string offset =
        inst.offset < 0 ? absl::StrCat("-", Hex(-inst.offset)) : Hex(inst.offset);
    Join(&text, inst.smem_soffset || !inst.smem_imm ? ScalarName(inst.soffset, 1) : offset);
    if (inst.smem_imm && inst.smem_soffset) absl::StrAppend(&text, " offset:", offset);
  }
  const bool glc = MasksOf(*inst.row).used >> 16 & 1;
  return text + (inst.sc0 && glc ? " glc" : "");
}

std::string Waitcnt(int imm) {
  const int vm = (imm & 15) | (imm >> 10 & 0x30), exp = imm >> 4 & 7, lgkm = imm >> 8 & 15;
  const bool all = vm == 63 && exp == 7 && lgkm == 15;
  std::string text;
  const auto add = [&](absl::string_view name, int value, int none) {
    if (value == none && !all) return;
    absl::StrAppend(&text, text.empty() ? "" : " ", name, "(", value, ")");
  };
  add("vmcnt", vm, 63);
  add("expcnt", exp, 7);
  add("lgkmcnt", lgkm, 15);
  return text;
}

std::string HardwareRegister(int imm) {
  static constexpr struct {
    int id;
    const char* name;
  } kNames[] = {{1, "HW_REG_MODE"},
                {2, "HW_REG_STATUS"},
                {3, "HW_REG_TRAPSTS"},
                {4, "HW_REG_HW_ID"},
                {5, "HW_REG_GPR_ALLOC"},
                {6, "HW_REG_LDS_ALLOC"},
                {7, "HW_REG_IB_STS"},
                {15, "HW_REG_SH_MEM_BASES"},
                {16, "HW_REG_TBA_LO"},
                {17, "HW_REG_TBA_HI"},
                {18, "HW_REG_TMA_LO"},
                {19, "HW_REG_TMA_HI"},
                {20, "HW_REG_XCC_ID"},
                {21, "HW_REG_SQ_PERF_SNAPSHOT_DATA"},
                {22, "HW_REG_SQ_PERF_SNAPSHOT_DATA1"},
                {23, "HW_REG_SQ_PERF_SNAPSHOT_PC_LO"},
                {24, "HW_REG_SQ_PERF_SNAPSHOT_PC_HI"}};
  const int id = imm & 63, offset = imm >> 6 & 31, size = (imm >> 11 & 31) + 1;
  std::string name = absl::StrCat(id);
  for (const auto& entry : kNames) {
    if (entry.id == id) name = entry.name;
  }
  if (offset == 0 && size == 32) return absl::StrCat("hwreg(", name, ")");
  return absl::StrCat("hwreg(", name, ", ", offset, ", ", size, ")");
}

std::string SendMessage(int imm) {
  static constexpr struct {
    int id;
    const char* name;
  } kMessages[] = {{1, "MSG_INTERRUPT"},       {4, "MSG_SAVEWAVE"},
                   {5, "MSG_STALL_WAVE_GEN"},  {6, "MSG_HALT_WAVES"},
                   {7, "MSG_ORDERED_PS_DONE"}, {8, "MSG_EARLY_PRIM_DEALLOC"},
                   {9, "MSG_GS_ALLOC_REQ"},    {10, "MSG_GET_DOORBELL"}};
  static constexpr const char* kGsOps[] = {"GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT",
                                           "GS_OP_EMIT_CUT"};
  const int id = imm & 15, op = imm >> 4 & 7, stream = imm >> 8 & 3;
  if ((id == 2 && op >= 1 && op <= 3) || (id == 3 && op <= 3 && (op != 0 || stream == 0))) {
    const char* name = id == 2 ? "MSG_GS" : "MSG_GS_DONE";
    if (op == 0) return absl::StrCat("sendmsg(", name, ", GS_OP_NOP)");
    return absl::StrCat("sendmsg(", name, ", ", kGsOps[op], ", ", stream, ")");
  }
  static constexpr const char* kSysOps[] = {"", "ECC_ERR_INTERRUPT", "REG_RD", "", "TTRACE_PC"};
  if (id == 15 && stream == 0 && (op == 1 || op == 2 || op == 4)) {
    return absl::StrCat("sendmsg(MSG_SYSMSG, SYSMSG_OP_", kSysOps[op], ")");
  }
  for (const auto& m : kMessages) {
    if (m.id == id && op == 0 && stream == 0) return absl::StrCat("sendmsg(", m.name, ")");
  }
  if ((id | op << 4 | stream << 8) != imm) return absl::StrCat(imm);
  return absl::StrCat("sendmsg(", id, ", ", op, ", ", stream, ")");
}

std::string GprIndexMode(int imm) {
  static constexpr const char* kModes[] = {"SRC0", "SRC1", "SRC2", "DST"};
  std::string text = "gpr_idx(";
  bool first = true;
  if (imm & ~15) return Hex(imm);
  for (int i = 0; i < 4; ++i) {
    if (!(imm >> i & 1)) continue;
    absl::StrAppend(&text, first ? "" : ",", kModes[i]);
    first = false;
  }
  return text + ")";
}

std::string SoppOperands(const Inst& inst) {
  const int imm = inst.words[0] & 0xffff;
  const int op = inst.row->op;
  switch (op) {
    case 1:
      return imm == 0 ? "" : absl::StrCat(imm);
    case 2:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 23:
    case 24:
    case 25:
    case 26:
      return absl::StrCat(imm);
    case 3:
    case 10:
    case 19:
    case 22:
    case 27:
    case 28:
    case 30:
      return "";
    case 12:
      return Waitcnt(imm);
    case 16:
    case 17:
      return SendMessage(imm);
    case 29:
      return GprIndexMode(imm);
    default:
      return Immediate(imm);
  }
}

std::string SopkOperands(const Inst& inst) {
  const int imm = inst.words[0] & 0xffff;
  const std::string dst = OperandText(inst, 'd');
  switch (inst.row->op) {
    case 16:
    case 21:
      return absl::StrCat(dst, ", ", imm);
    case 17:
      return absl::StrCat(dst, ", ", HardwareRegister(imm));
    case 18:
      return absl::StrCat(HardwareRegister(imm), ", ", dst);
    case 20:
      return absl::StrCat(HardwareRegister(imm), ", ", Hex(inst.literal));
    default:
      return absl::StrCat(dst, ", ", Hex(imm));
  }
}

std::string GenericOperands(const Inst& inst) {
  std::string text;
  for (int i = 0; i < inst.operand_count; ++i) {
    Join(&text, SourceText(inst, inst.operands[i]));
  }
  switch (inst.row->family) {
    case Family::kVop3:
      text += Vop3Modifiers(inst);
      break;
    case Family::kVop3p:
      text += Vop3pModifiers(inst);
      break;
    case Family::kDs:
      text += DsModifiers(inst);
      if (inst.operand_count == 0 && !text.empty()) text.erase(0, 1);  // nothing before the space
      break;
    case Family::kSopc:
      if (inst.row->op == 17) Join(&text, GprIndexMode(inst.offset));
      break;
    default:
      break;
  }
  if (inst.encoding == Encoding::kSdwa) text += SdwaModifiers(inst);
  if (inst.encoding == Encoding::kDpp) text += DppModifiers(inst);
  return text;
}

}  // namespace

std::string Print(Isa, const Inst& inst) {
  if (inst.row == nullptr) return absl::StrCat(".long ", Hex(inst.words[0]));
  std::string name(inst.name());
  if (inst.encoding == Encoding::kSdwa) {
    name += "_sdwa";
  } else if (inst.encoding == Encoding::kDpp) {
    name += "_dpp";
  } else if (inst.encoding == Encoding::kScaledMfma) {
    name.replace(0, 7, "v_mfma_scale_");
  } else if (inst.row->flags & kRowSuffix) {
    name += inst.row->family == Family::kVop3 ? "_e64" : "_e32";
  }
  std::string operands;
  switch (inst.row->family) {
    case Family::kSopp:
      operands = SoppOperands(inst);
      break;
    case Family::kSopk:
      operands = SopkOperands(inst);
      break;
    case Family::kSmem:
      operands = SmemOperands(inst);
      break;
    case Family::kMubuf:
    case Family::kMtbuf:
      operands = BufferOperands(inst);
      break;
    case Family::kFlat:
    case Family::kScratch:
    case Family::kGlobal:
      operands = FlatOperands(inst);
      break;
    default:
      operands = GenericOperands(inst);
      break;
  }
  return operands.empty() ? name : absl::StrCat(name, " ", operands);
}

}  // namespace mainarch::sim::isa
