// SPDX-License-Identifier: MIT
//
// The instruction decoder of the virtual GPU: gfx942 and gfx950 machine code to fields, operands
// and text. Table-driven: optab.inc has one row for each (encoding family, opcode); the layout of
// each family is in decode.cc. Stateless and thread-safe; owns nothing. It knows no semantics:
// those are in descriptors.h.
#ifndef MAINARCH_SIM_ISA_DECODE_H_
#define MAINARCH_SIM_ISA_DECODE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mainarch::sim::isa {

enum class Isa : uint8_t { kGfx942 = 1, kGfx950 = 2 };

// In the order of their rows in optab.inc.
enum class Family : uint8_t {
  kSop2,
  kSopk,
  kSop1,
  kSopc,
  kSopp,
  kVop2,
  kVop1,
  kVopc,
  kVop3,
  kVop3p,
  kSmem,
  kDs,
  kMubuf,
  kMtbuf,
  kFlat,
  kScratch,
  kGlobal,
  kCount
};
absl::string_view FamilyName(Family family);

struct OpRow {
  Family family;
  uint16_t op;
  uint8_t isas;          // bit 0 gfx942, bit 1 gfx950
  const char* name;      // without _e32, _e64, _dpp, _sdwa
  const char* operands;  // three letters an operand, in printed order: field, type, dwords
  uint8_t flags;         // kRow...
  uint8_t masks;         // row of OpMasks
};
inline constexpr uint8_t kRowSuffix = 1;  // printed with _e32 or _e64
inline constexpr uint8_t kRowSdwa = 2;
inline constexpr uint8_t kRowDpp = 4;
inline constexpr uint8_t kRowDpp64 = 8;  // DPP with row_newbcast only

// Bits that LLVM refuses, and bits that change the meaning, of the instruction, of the SDWA dword
// and of the DPP dword. Other bits outside the opcode and the operands are ignored.
struct OpMasks {
  uint64_t refused, used;
  uint32_t sdwa_refused, sdwa_used, dpp_refused, dpp_used;
};

absl::Span<const OpRow> Rows();
const OpMasks& MasksOf(const OpRow& row);
const OpRow* FindRow(Isa isa, Family family, uint32_t op);

// Operand codes: 0..255 as in the 8-bit scalar source field, 256 + n for v<n>, 512 + n for a<n>.
namespace reg {
inline constexpr uint16_t kFlatScratch = 102, kXnackMask = 104, kVcc = 106, kTtmp = 108, kM0 = 124,
                          kExec = 126, kSharedBase = 235, kSharedLimit = 236, kPrivateBase = 237,
                          kPrivateLimit = 238, kVccz = 251, kExecz = 252, kScc = 253,
                          kLiteral = 255, kVgpr = 256, kAgpr = 512;
}  // namespace reg

struct Operand {
  uint16_t code = 0;
  uint8_t width = 0;  // dwords
  char field = 0;     // d e a b c, A D E (memory), r (resource or base), v (VCC), k (literal)
  char type = 0;      // V S A I H h D M N L: see gen_optab.py
};

enum class Encoding : uint8_t { kNative, kSdwa, kDpp, kScaledMfma };

struct Inst {
  const OpRow* row = nullptr;
  uint8_t size = 0;  // bytes: 4, 8, 12 or 16
  uint8_t operand_count = 0;
  Encoding encoding = Encoding::kNative;
  Operand operands[6];
  uint32_t words[4] = {};
  uint32_t literal = 0;  // also fmamk/fmaak's K and s_setreg_imm32's value
  int32_t offset = 0;    // simm16, memory offset (signed where the family signs it)
  // Modifiers. Bit i belongs to source i; bit 3 of opsel to the destination.
  uint8_t neg = 0, abs = 0, neg_hi = 0, opsel = 0, opsel_hi = 0;
  uint8_t omod = 0;
  bool clamp = false;
  // Memory.
  bool sc0 = false, sc1 = false, nt = false, lds = false, offen = false, idxen = false, gds = false,
       sve = false;
  uint16_t saddr = 0x7f;             // GLOBAL, SCRATCH; 0x7f is off
  uint16_t soffset = 0;              // MUBUF, MTBUF, SMEM register offset
  uint8_t offset0 = 0, offset1 = 0;  // DS
  uint8_t format = 0;                // MTBUF
  bool smem_imm = false, smem_soffset = false;
  // DPP.
  uint16_t dpp_ctrl = 0;
  uint8_t row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false;
  // SDWA.
  uint8_t dst_sel = 6, dst_unused = 0, src_sel[2] = {6, 6}, sext = 0;
  // MAI.
  uint8_t cbsz = 0, abid = 0, blgp = 0;
  uint16_t scale_src[2] = {};  // scaled MFMA
  uint8_t scale_opsel = 0, scale_opsel_hi = 0;

  absl::string_view name() const { return row->name; }
  const Operand* Find(char field) const;
};

// Decodes the instruction at the start of `code` (at least 4 bytes). False when the words are no
// instruction of `isa`, are cut short, or use a register or modifier that the encoding refuses;
// inst->size is then 4, and words[0] is set.
bool Decode(Isa isa, absl::Span<const uint8_t> code, Inst* inst);

// LLVM's syntax, as llvm-objdump prints it (without a leading tab or a comment).
std::string Print(Isa isa, const Inst& inst);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_DECODE_H_
