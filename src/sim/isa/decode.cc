// SPDX-License-Identifier: MIT
#include "sim/isa/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"

namespace mainarch::sim::isa {
namespace {

#define MAINARCH_OPTAB_ROWS
constexpr OpRow kRows[] = {
#include "sim/isa/optab.inc"
};
#undef MAINARCH_OPTAB_ROWS
#define MAINARCH_OPTAB_MASKS
constexpr OpMasks kMasks[] = {
#include "sim/isa/optab.inc"
};
#undef MAINARCH_OPTAB_MASKS

constexpr int kMaxOp = 1024;

// index[family * kMaxOp + op] is a row number + 1 for one ISA.
using Index = std::array<uint16_t, static_cast<size_t>(Family::kCount) * kMaxOp>;

constexpr Index MakeIndex(uint8_t isa) {
  Index index{};
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].isas & isa) {
      index[static_cast<size_t>(kRows[i].family) * kMaxOp + kRows[i].op] = i + 1;
    }
  }
  return index;
}
constexpr Index kIndex942 = MakeIndex(1), kIndex950 = MakeIndex(2);

constexpr uint32_t Bits(uint32_t word, int low, int count) {
  return word >> low & ((1u << count) - 1);
}
constexpr bool Bit(uint32_t word, int bit) { return word >> bit & 1; }

bool VectorOk(uint32_t index, int width) {
  // gfx90a and later: tuples start at an even register.
  return index + width <= 256 && (width == 1 || index % 2 == 0);
}

// A scalar register tuple by its 7-bit code.
bool ScalarOk(uint32_t code, int width) {
  if (width == 1) return code != 125;
  uint32_t align = width == 2 ? 2 : 4;
  if (code < 102) return code % align == 0 && code + width <= 102;
  if (code < 108) return width == 2 && code % 2 == 0;
  if (code < 124) return (code - 108) % align == 0 && code + width <= 124;
  return width == 2 && code == 126;
}

bool ScalarSourceOk(uint32_t code, int width) {
  if (code < 128) return ScalarOk(code, width);
  return code <= 208 || (code >= 235 && code <= 248 && code != 239) ||
         (code >= 251 && code <= 253) || code == 255;
}

class Decoder {
 public:
  Decoder(Isa isa, absl::Span<const uint8_t> code, Inst* inst)
      : isa_(isa), code_(code), inst_(*inst) {}

  bool Run() {
    if (!Take(1)) return false;
    const uint32_t w = inst_.words[0];
    if (!Bit(w, 31)) return Vector32(w);
    if (Bits(w, 30, 2) == 2) return Scalar(w);
    switch (w >> 26) {
      case 0x30:
        return Smem(w);
      case 0x34:
        return Bits(w, 23, 9) == 0x1a7 ? Vop3p(w) : Vop3(w);
      case 0x36:
        return Ds(w);
      case 0x37:
        return Flat(w);
      case 0x38:
        return Mubuf(w);
      case 0x3a:
        return Mtbuf(w);
      default:
        return false;
    }
  }

 private:
  bool Take(int words) {
    if (code_.size() < 4u * words) return false;
    std::memcpy(inst_.words, code_.data(), 4 * words);
    inst_.size = 4 * words;
    return true;
  }

  bool Row(Family family, uint32_t op) {
    inst_.row = FindRow(isa_, family, op);
    return inst_.row != nullptr;
  }
  bool Refused(uint64_t word) const { return word & MasksOf(*inst_.row).refused; }
  uint64_t Both() const { return inst_.words[0] | uint64_t{inst_.words[1]} << 32; }

  // Adds the operands of the row, taking each field's value from `value`.
  template <class Value>
  bool Operands(Value value) {
    for (const char* s = inst_.row->operands; *s != 0;) {
      Operand operand;
      operand.field = s[0];
      operand.type = s[1];
      int width = 0;
      for (s += 2; *s >= '0' && *s <= '9'; ++s) width = width * 10 + (*s - '0');
      if (*s == ' ') ++s;
      operand.width = width;
      if (operand.field == 'v') {
        operand.code = reg::kVcc;
        operand.width = 2;
      } else if (operand.field == 'k') {
        operand.code = reg::kLiteral;
        operand.width = 1;
      } else {
        operand.code = value(operand.field);
        if (operand.field == 'A' && narrow_address_) operand.width = 1;
        if (operand.field == 'a' && widths_[0] != 0) operand.width = widths_[0];
        if (operand.field == 'b' && widths_[1] != 0) operand.width = widths_[1];
        if (!Check(&operand)) return false;
      }
      inst_.operands[inst_.operand_count++] = operand;
    }
    return true;
  }

  // `code` is the raw field; afterwards an operand code.
  bool Check(Operand* operand) {
    uint32_t code = operand->code;
    const int width = operand->width;
    const bool vector_field = code >= 256;
    switch (operand->type) {
      case 'V':
        if (operand->field == 'a' || operand->field == 'b' || operand->field == 'c') {
          if (vector_field)
            code -= 256;
          else if (nine_bit_)
            return false;
        }
        operand->code = reg::kVgpr + code;
        return VectorOk(code, width);
      case 'A':
        if (operand->field == 'a' && !vector_field) return false;
        if (vector_field) code -= 256;
        operand->code = reg::kAgpr + code;
        return VectorOk(code, width);
      case 'S':
        // v_readlane's destination cannot be M0.
        if (operand->field == 'd' && nine_bit_ && width == 1 && code == reg::kM0) return false;
        return code < 128 && ScalarOk(code, width);
      case 'L':
        return !vector_field && code != 255 && ScalarSourceOk(code, 1);
      case 'M':
      case 'N':
        if (vector_field) return VectorOk(code - 256, width);
        return (code >= 128 && code <= 208) || (code >= 240 && code <= 248);
      default:
        if (vector_field) return VectorOk(code - 256, width);
        if (code == 255 && no_literal_) return false;
        return ScalarSourceOk(code, width);
    }
  }

  bool Literal(bool wanted) {
    if (!wanted) return true;
    const int words = inst_.size / 4 + 1;
    if (!Take(words)) return false;
    inst_.literal = inst_.words[words - 1];
    return true;
  }
  bool HasLiteral() const {
    for (int i = 0; i < inst_.operand_count; ++i) {
      if (inst_.operands[i].code == reg::kLiteral) return true;
    }
    return false;
  }

  bool Scalar(uint32_t w) {
    if (Bits(w, 23, 7) == 0x7d) {
      if (!Row(Family::kSop1, Bits(w, 8, 8))) return false;
    } else if (Bits(w, 23, 7) == 0x7e) {
      if (!Row(Family::kSopc, Bits(w, 16, 7))) return false;
    } else if (Bits(w, 23, 7) == 0x7f) {
      if (!Row(Family::kSopp, Bits(w, 16, 7))) return false;
      inst_.offset = static_cast<int16_t>(w);
      // Those without an operand refuse one.
      static constexpr uint64_t kNoOperand =
          1u << 3 | 1u << 10 | 1u << 19 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 30;
      return !(kNoOperand >> inst_.row->op & 1) || (w & 0xffff) == 0;
    } else if (Bits(w, 28, 4) == 0xb) {
      if (!Row(Family::kSopk, Bits(w, 23, 5))) return false;
      inst_.offset = static_cast<int16_t>(w);
      if (!Operands([w](char) { return Bits(w, 16, 7); })) return false;
      return Literal(inst_.row->op == 20);
    } else if (!Row(Family::kSop2, Bits(w, 23, 7))) {
      return false;
    }
    const bool imm = inst_.row->family == Family::kSopc && inst_.row->op == 17;
    if (!Operands([w](char field) {
          return field == 'd' ? Bits(w, 16, 7) : field == 'a' ? Bits(w, 0, 8) : Bits(w, 8, 8);
        })) {
      return false;
    }
    inst_.offset = imm ? Bits(w, 8, 8) : 0;
    return Literal(HasLiteral());
  }

  bool Vector32(uint32_t w) {
    nine_bit_ = true;
    const uint32_t top = Bits(w, 25, 6);
    if (top == 0x3f) {
      if (!Row(Family::kVop1, Bits(w, 9, 8))) return false;
    } else if (top == 0x3e) {
      if (!Row(Family::kVopc, Bits(w, 17, 8))) return false;
    } else if (!Row(Family::kVop2, top)) {
      return false;
    }
    const uint32_t src0 = Bits(w, 0, 9);
    // v_nop: its source field may hold anything but what a further dword belongs to.
    if (inst_.row->operands[0] == 0) {
      return (w & MasksOf(*inst_.row).refused) == 0 && src0 != 249 && src0 != 250;
    }
    if (src0 == 249) return Sdwa(w);
    if (src0 == 250) return Dpp(w);
    return Vector32Operands(w, src0, 256 + Bits(w, 9, 8));
  }

  bool Vector32Operands(uint32_t w, uint32_t src0, uint32_t src1) {
    if (!Operands([=](char field) {
          return field == 'd' ? Bits(w, 17, 8) : field == 'a' ? src0 : src1;
        })) {
      return false;
    }
    if (inst_.encoding != Encoding::kNative) return true;
    // fmamk and fmaak: K may also be the literal source.
    return Literal(HasLiteral());
  }

  bool Sdwa(uint32_t w) {
    if (!(inst_.row->flags & kRowSdwa) || !Take(2)) return false;
    const uint32_t x = inst_.words[1];
    const OpMasks& masks = MasksOf(*inst_.row);
    const bool compare = inst_.row->family == Family::kVopc;
    if (x & masks.sdwa_refused & (compare ? 0xffff80ffu : ~0u)) return false;
    inst_.encoding = Encoding::kSdwa;
    const bool one = inst_.row->family == Family::kVop1;
    if (!compare) {
      inst_.dst_sel = Bits(x, 8, 3);
      inst_.dst_unused = Bits(x, 11, 2);
      inst_.omod = Bits(x, 14, 2) & Bits(masks.sdwa_used, 14, 2);
      if (inst_.dst_sel == 7 || inst_.dst_unused == 3) return false;
      // The fp8 conversions write whole dwords.
      if (one && inst_.row->op >= 84 && inst_.row->op <= 87 && inst_.dst_sel != 6) return false;
    }
    inst_.clamp = Bit(x & masks.sdwa_used, 13) && !compare;
    inst_.src_sel[0] = Bits(x, 16, 3);
    inst_.src_sel[1] = Bits(x, 24, 3);
    if (inst_.src_sel[0] == 7 || (!one && inst_.src_sel[1] == 7)) return false;
    if (one && Bits(x, 24, 8) != 0) return false;
    const uint32_t used = x & masks.sdwa_used;
    inst_.sext = Bit(used, 19) | Bit(used, 27) << 1;
    inst_.neg = Bit(used, 20) | Bit(used, 28) << 1;
    inst_.abs = Bit(used, 21) | Bit(used, 29) << 1;
    if (Bit(x, 22) || Bit(x, 30)) return false;
    const uint32_t src0 = Bits(x, 0, 8) + (Bit(x, 23) ? 0 : 256);
    const uint32_t src1 = Bits(w, 9, 8) + (Bit(x, 31) ? 0 : 256);
    // Scalars are allowed here, constants are not.
    if (src0 < 256 && src0 > 124) return false;
    if (src1 < 256 && src1 > 124) return false;
    if (compare) {
      sdwa_sdst_ = Bit(x, 15) ? Bits(x, 8, 7) : reg::kVcc;
      if (!Bit(x, 15) && Bits(x, 8, 7) != 0) return false;
      if (!ScalarOk(sdwa_sdst_, 2) || sdwa_sdst_ == 126) return false;
    }
    return SdwaOperands(w, src0, src1);
  }

  bool SdwaOperands(uint32_t w, uint32_t src0, uint32_t src1) {
    if (!Operands([=](char field) -> uint32_t {
          return field == 'd' ? Bits(w, 17, 8) : field == 'a' ? src0 : 256 + Bits(w, 9, 8);
        })) {
      return false;
    }
    for (int i = 0; i < inst_.operand_count; ++i) {
      if (inst_.operands[i].field == 'b') {
        inst_.operands[i].code = src1;
        if (src1 < 256 && !ScalarOk(src1, 1)) return false;
      }
      if (inst_.operands[i].field == 'v' && inst_.row->family == Family::kVopc) {
        inst_.operands[i].code = sdwa_sdst_;
      }
    }
    return true;
  }

  bool Dpp(uint32_t w) {
    if (!(inst_.row->flags & (kRowDpp | kRowDpp64)) || !Take(2)) return false;
    const uint32_t x = inst_.words[1];
    const OpMasks& masks = MasksOf(*inst_.row);
    if (x & masks.dpp_refused) return false;
    inst_.encoding = Encoding::kDpp;
    inst_.dpp_ctrl = Bits(x, 8, 9);
    const uint32_t c = inst_.dpp_ctrl;
    const bool legal = c <= 0xff || (c >= 0x101 && c <= 0x10f) || (c >= 0x111 && c <= 0x11f) ||
                       (c >= 0x121 && c <= 0x12f) || c == 0x130 || c == 0x134 || c == 0x138 ||
                       c == 0x13c || (c >= 0x140 && c <= 0x143) || (c >= 0x150 && c <= 0x15f);
    if (!legal || (inst_.row->flags & kRowDpp64 && c < 0x150)) return false;
    if (Bits(x, 17, 2) != 0) return false;
    inst_.bound_ctrl = Bit(x, 19);
    const uint32_t used = x & masks.dpp_used;
    inst_.neg = Bit(used, 20) | Bit(used, 22) << 1;
    inst_.abs = Bit(used, 21) | Bit(used, 23) << 1;
    inst_.bank_mask = Bits(x, 24, 4);
    inst_.row_mask = Bits(x, 28, 4);
    return Vector32Operands(w, 256 + Bits(x, 0, 8), 256 + Bits(w, 9, 8));
  }

  bool Vop3(uint32_t w) {
    if (!Take(2) || !Row(Family::kVop3, Bits(w, 16, 10)) || Refused(Both())) return false;
    nine_bit_ = no_literal_ = true;
    const uint32_t x = inst_.words[1];
    if (!Operands([=](char field) -> uint32_t {
          switch (field) {
            case 'd':
              return Bits(w, 0, 8);
            case 'e':
              return Bits(w, 8, 7);
            case 'a':
              return Bits(x, 0, 9);
            case 'b':
              return Bits(x, 9, 9);
            default:
              return Bits(x, 18, 9);
          }
        })) {
      return false;
    }
    const uint64_t used = Both() & MasksOf(*inst_.row).used;
    inst_.neg = used >> 61;
    inst_.omod = used >> 59 & 3;
    inst_.abs = Bits(used, 8, 3);
    inst_.opsel = Bits(used, 11, 4);
    inst_.clamp = Bit(used, 15);
    return true;
  }

  bool Vop3p(uint32_t w) {
    if (!Take(2)) return false;
    const uint32_t op = Bits(w, 16, 7);
    if (op == 44 && isa_ == Isa::kGfx950) return ScaledMfma(w);
    if (!Row(Family::kVop3p, op) || Refused(Both())) return false;
    return Vop3pBody(w, inst_.words[1]);
  }

  bool Vop3pBody(uint32_t w, uint32_t x) {
    nine_bit_ = no_literal_ = true;
    const absl::string_view name = inst_.row->name;
    const bool mai = name.substr(0, 7) == "v_mfma_" || name.substr(0, 9) == "v_smfmac_";
    // Of these the format says how many registers a matrix has, before any is looked at: four bits may lie in the last four. (Six
    // bits in the last six, and AGPRs, LLVM refuses, and so do we.)
    if (absl::EndsWith(name, "f8f6f4")) {
      const uint32_t formats[2] = {Bits(w, 8, 3), Bits(x, 29, 3)};
      for (int i = 0; i < 2; ++i) {
        if (formats[i] > 4) return false;
        widths_[i] = formats[i] == 4 && !Bit(x, 27 + i) ? 4 : 8;
      }
    }
    if (!Operands([=](char field) -> uint32_t {
          return field == 'd'   ? Bits(w, 0, 8)
                 : field == 'a' ? Bits(x, 0, 9)
                 : field == 'b' ? Bits(x, 9, 9)
                                : Bits(x, 18, 9);
        })) {
      return false;
    }
    if (mai) return Mai(w, x);
    const uint64_t used = Both() & MasksOf(*inst_.row).used;
    inst_.neg = used >> 61;
    inst_.neg_hi = Bits(used, 8, 3);
    inst_.opsel = Bits(used, 11, 3);
    inst_.opsel_hi = (used >> 59 & 3) | (Bit(used, 14) << 2);
    inst_.clamp = Bit(used, 15);
    return true;
  }

  bool Mai(uint32_t w, uint32_t x) {
    inst_.cbsz = Bits(w, 8, 3);
    inst_.abid = Bits(w, 11, 4);
    inst_.blgp = Bits(x, 29, 3);
    const bool acc_d = Bit(w, 15);
    for (int i = 0; i < inst_.operand_count; ++i) {
      Operand& o = inst_.operands[i];
      const bool acc = o.field == 'a'                             ? Bit(x, 27)
                       : o.field == 'b'                           ? Bit(x, 28)
                       : o.field == 'c' && inst_.name()[2] == 's' ? false
                                                                  : acc_d;
      if (o.field == 'a' || o.field == 'b') {
        const int format = o.field == 'a' ? inst_.cbsz : inst_.blgp;
        if (widths_[o.field - 'a'] == 8 && format >= 2) o.width = format == 4 ? 4 : 6;
      }
      if (acc && o.code >= reg::kVgpr && o.code < reg::kAgpr) o.code += reg::kAgpr - reg::kVgpr;
    }
    return true;
  }

  // VOP3PX2: a prefix with the scale operands, then the MFMA.
  bool ScaledMfma(uint32_t w) {
    if (!Take(4)) return false;
    const uint32_t x = inst_.words[1], w2 = inst_.words[2], x2 = inst_.words[3];
    if (Bits(w2, 23, 9) != 0x1a7 || (Bits(w2, 16, 7) != 45 && Bits(w2, 16, 7) != 46)) return false;
    if (!Row(Family::kVop3p, Bits(w2, 16, 7))) return false;
    inst_.encoding = Encoding::kScaledMfma;
    // ABID[0] says "scaled"; the other ABID bits are zero, and so are the prefix's unused ones, but
    // bits 13 and 14: AMD's assembler sets them where LLVM's does not, and they mean nothing.
    if (Bits(w2, 11, 4) != 1 || (w & 0x000087ff) != 0) return false;
    if (Bits(x, 18, 9) != 0 || Bits(x, 29, 3) != 0) return false;
    inst_.scale_src[0] = Bits(x, 0, 9);
    inst_.scale_src[1] = Bits(x, 9, 9);
    for (uint32_t s : inst_.scale_src) {
      // VGPRs only: inline constants and scalars use bits [30:23] as the scale (a hardware defect).
      if (s < 256) return false;
    }
    inst_.scale_opsel = Bits(w, 11, 2);
    inst_.scale_opsel_hi = Bits(x, 27, 2);
    return Vop3pBody(w2, x2);
  }

  bool Smem(uint32_t w) {
    if (!Take(2) || !Row(Family::kSmem, Bits(w, 18, 8)) || Refused(Both())) return false;
    const uint32_t x = inst_.words[1];
    inst_.smem_imm = Bit(w, 17);
    inst_.smem_soffset = Bit(w, 14);
    inst_.sc0 = Bit(w, 16);
    if (Bit(w, 15)) return false;
    inst_.offset = static_cast<int32_t>(x << 11) >> 11;
    inst_.soffset = inst_.smem_soffset ? Bits(x, 25, 7) : Bits(x, 0, 7);
    const bool has_offset = absl::string_view(inst_.row->operands).find('r') != std::string::npos;
    const bool register_offset = inst_.smem_soffset || !inst_.smem_imm;
    if (has_offset && register_offset && !ScalarOk(inst_.soffset, 1)) return false;
    // SMEM cannot write M0 or EXEC.
    if (absl::string_view(inst_.row->operands).substr(0, 1) == "d" && Bits(w, 6, 7) >= reg::kM0) {
      return false;
    }
    return Operands([=](char field) { return field == 'r' ? Bits(w, 0, 6) * 2 : Bits(w, 6, 7); });
  }

  bool Ds(uint32_t w) {
    if (!Take(2) || !Row(Family::kDs, Bits(w, 17, 8)) || Refused(Both())) return false;
    constexpr uint32_t kFirstGws = 152, kLastGws = 157;
    const uint32_t op = Bits(w, 17, 8);
    const bool gws = op >= kFirstGws && op <= kLastGws;
    if (gws && !Bit(w, 16)) return false;
    const uint32_t x = inst_.words[1];
    inst_.offset0 = Bits(w, 0, 8);
    inst_.offset1 = Bits(w, 8, 8);
    inst_.offset = Bits(w, 0, 16);
    inst_.gds = Bit(w & MasksOf(*inst_.row).used, 16);
    const bool acc = Bit(w, 25);
    return Operands([=](char field) {
             return field == 'A'   ? Bits(x, 0, 8)
                    : field == 'D' ? Bits(x, 8, 8)
                    : field == 'E' ? Bits(x, 16, 8)
                                   : Bits(x, 24, 8);
           }) &&
           Accumulate(acc, gws);
  }

  // The acc bit of memory instructions: data registers are AGPRs, addresses never; global wave sync has
  // its data where others have the address.
  bool Accumulate(bool acc, bool gws = false) {
    for (int i = 0; acc && i < inst_.operand_count; ++i) {
      Operand& o = inst_.operands[i];
      if (o.field == 'd' || o.field == 'D' || o.field == 'E' || gws) o.code += 256;
    }
    return true;
  }

  bool Flat(uint32_t w) {
    static constexpr Family kSegment[4] = {Family::kFlat, Family::kScratch, Family::kGlobal,
                                           Family::kCount};
    const Family family = kSegment[Bits(w, 14, 2)];
    if (!Take(2) || family == Family::kCount || !Row(family, Bits(w, 18, 7)) || Refused(Both())) {
      return false;
    }
    const uint32_t x = inst_.words[1];
    inst_.sc0 = Bit(w, 16);
    inst_.nt = Bit(w, 17);
    inst_.sc1 = Bit(w, 25);
    inst_.sve = Bit(w, 13);
    inst_.saddr = Bits(x, 16, 7);
    inst_.offset = family == Family::kFlat ? Bits(w, 0, 13) : static_cast<int32_t>(w << 19) >> 19;
    if (family == Family::kFlat) {
      if (inst_.saddr != 0 || Bit(w, 12)) return false;
      inst_.saddr = 0x7f;
    } else if (inst_.saddr == reg::kExec && family == Family::kGlobal) {
      return false;
    } else if (inst_.saddr != 0x7f && !ScalarOk(inst_.saddr, family == Family::kGlobal ? 2 : 1)) {
      return false;
    }
    const bool narrow = family == Family::kGlobal && inst_.saddr != 0x7f;
    const bool atomic = inst_.row->op >= 64 && inst_.row->op < 125;
    const absl::string_view name = inst_.row->name;
    inst_.lds = name.find("load_lds") != std::string::npos;
    // LLVM has no AGPR forms of the returning floating-point atomics.
    if (atomic && inst_.sc0 && Bit(x, 23) && inst_.row->op >= 77 && inst_.row->op <= 82) {
      return false;
    }
    if (atomic && inst_.sc0 && !AddReturn(Bits(x, 24, 8))) return false;
    if (atomic && !inst_.sc0 && Bits(x, 24, 8) != 0) return false;
    if (!AddFlatOperands(x, narrow)) return false;
    return Accumulate(Bit(x, 23));
  }

  bool AddReturn(uint32_t vdst) {
    // The returned value is as wide as the data, half of it for a compare-and-swap.
    Operand o;
    o.field = 'd';
    o.type = 'V';
    const absl::string_view spec = inst_.row->operands;
    o.width = spec.back() - '0';
    if (absl::string_view(inst_.row->name).find("cmpswap") != std::string::npos) o.width /= 2;
    o.code = reg::kVgpr + vdst;
    inst_.operands[inst_.operand_count++] = o;
    return VectorOk(vdst, o.width);
  }

  bool AddFlatOperands(uint32_t x, bool narrow) {
    narrow_address_ = narrow;
    if (!Operands([=](char field) {
          return field == 'A' ? Bits(x, 0, 8) : field == 'D' ? Bits(x, 8, 8) : Bits(x, 24, 8);
        })) {
      return false;
    }
    if (inst_.row->family != Family::kScratch || !inst_.sve) return true;
    Operand address;
    address.field = 'A';
    address.type = 'V';
    address.width = 1;
    address.code = reg::kVgpr + Bits(x, 0, 8);
    inst_.operands[inst_.operand_count++] = address;
    return true;
  }

  bool Mubuf(uint32_t w) {
    if (!Take(2) || !Row(Family::kMubuf, Bits(w, 18, 7)) || Refused(Both())) return false;
    inst_.sc0 = Bit(w, 14);
    inst_.sc1 = Bit(w, 15);
    inst_.nt = Bit(w & MasksOf(*inst_.row).used, 17);
    inst_.lds = Bit(w, 16);
    if (inst_.lds && Bit(inst_.words[1], 23)) return false;
    return Buffer(w, inst_.words[1]);
  }

  bool Mtbuf(uint32_t w) {
    if (!Take(2) || !Row(Family::kMtbuf, Bits(w, 15, 4)) || Refused(Both())) return false;
    const uint32_t x = inst_.words[1];
    inst_.sc0 = Bit(w, 14);
    inst_.sc1 = Bit(x, 21);
    inst_.nt = Bit(x, 22);
    inst_.format = Bits(w, 19, 7);
    return Buffer(w, x);
  }

  bool Buffer(uint32_t w, uint32_t x) {
    inst_.offset = Bits(w, 0, 12);
    inst_.offen = Bit(w, 12);
    inst_.idxen = Bit(w, 13);
    inst_.soffset = Bits(x, 24, 8);
    if (inst_.row->operands[0] == 0) return true;  // buffer_inv, buffer_wbl2
    const uint32_t s = inst_.soffset;
    const bool constant = (s >= 128 && s <= 208) || (s >= 240 && s <= 248);
    if (!constant && !(s < 128 && ScalarOk(s, 1))) return false;
    if (!Operands([=](char field) { return field == 'r' ? Bits(x, 16, 5) * 4 : Bits(x, 8, 8); })) {
      return false;
    }
    Accumulate(Bit(x, 23));
    if (inst_.offen || inst_.idxen) {
      Operand address;
      address.field = 'A';
      address.type = 'V';
      address.width = inst_.offen && inst_.idxen ? 2 : 1;
      address.code = reg::kVgpr + Bits(x, 0, 8);
      if (!VectorOk(Bits(x, 0, 8), address.width)) return false;
      inst_.operands[inst_.operand_count++] = address;
    }
    return true;
  }

  const Isa isa_;
  const absl::Span<const uint8_t> code_;
  Inst& inst_;
  bool nine_bit_ = false, no_literal_ = false, narrow_address_ = false;
  int widths_[2] = {0, 0};  // of a and b, where these are not the row's
  uint16_t sdwa_sdst_ = 0;
};

}  // namespace

absl::string_view FamilyName(Family family) {
  static constexpr absl::string_view kNames[] = {
      "SOP2",  "SOPK", "SOP1", "SOPC",  "SOPP",  "VOP2", "VOP1",    "VOPC",  "VOP3",
      "VOP3P", "SMEM", "DS",   "MUBUF", "MTBUF", "FLAT", "SCRATCH", "GLOBAL"};
  return kNames[static_cast<size_t>(family)];
}

absl::Span<const OpRow> Rows() { return kRows; }

const OpMasks& MasksOf(const OpRow& row) { return kMasks[row.masks]; }

const OpRow* FindRow(Isa isa, Family family, uint32_t op) {
  const Index& index = isa == Isa::kGfx942 ? kIndex942 : kIndex950;
  const uint16_t entry = index[static_cast<size_t>(family) * kMaxOp + op];
  return entry == 0 ? nullptr : &kRows[entry - 1];
}

const Operand* Inst::Find(char field) const {
  for (int i = 0; i < operand_count; ++i) {
    if (operands[i].field == field) return &operands[i];
  }
  return nullptr;
}

bool Decode(Isa isa, absl::Span<const uint8_t> code, Inst* inst) {
  *inst = Inst();
  if (Decoder(isa, code, inst).Run()) return true;
  inst->size = 4;
  inst->row = nullptr;
  return false;
}

}  // namespace mainarch::sim::isa
