// SPDX-License-Identifier: MIT
#include "sim/time/shape.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/isa/buffer.h"

namespace mainarch::sim::timing {
namespace {

using isa::Family;
using isa::kLanes;

void AddBuffer(const isa::Wave& w, const isa::Inst& inst, uint32_t bytes, const uint32_t* v,
               Shape* a) {
  const isa::BufferResource resource(&w.s[inst.Find('r')->code]);
  const uint32_t scalar = inst.soffset < 128    ? w.s[inst.soffset]
                          : inst.soffset <= 192 ? inst.soffset - 128u
                                                : static_cast<uint32_t>(192 - int{inst.soffset});
  const uint32_t* const offsets = inst.offen ? v + (inst.idxen ? kLanes : 0) : nullptr;
  const auto fixed = static_cast<uint64_t>(inst.offset);
  if (resource.swizzled || resource.add_tid) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t index = inst.idxen ? v[i] : 0;
      const uint64_t offset = (inst.offen ? offsets[i] : 0) + fixed;
      const isa::BufferPlace place =
          isa::PlaceOf(resource, inst.idxen, index, offset, scalar, i, bytes);
      a->at[i] = place.address;
      if (place.outside) a->mask &= ~(uint64_t{1} << i);
    }
    return;
  }
  // Most buffers, for all lanes at once; what is inside is as PlaceOf has it.
  std::fill(a->at, a->at + kLanes, resource.base + scalar + fixed);
  if (inst.offen) {
    for (int i = 0; i < kLanes; ++i) a->at[i] += offsets[i];
  }
  uint64_t inside = 0;
  if (inst.idxen && resource.stride != 0) {
    for (int i = 0; i < kLanes; ++i) {
      a->at[i] += uint64_t{v[i]} * resource.stride;
      inside |= uint64_t{v[i] < resource.records} << i;
    }
  } else {
    for (int i = 0; i < kLanes; ++i)
      inside |= uint64_t{a->at[i] - resource.base + bytes <= resource.records} << i;
  }
  a->mask &= inside;
}

const uint32_t* AddressRows(const isa::Wave& w, const isa::Op& op) {
  return op.a.kind == isa::Ref::kVector ? w.v + op.a.offset : nullptr;
}

void Find(const isa::Wave& w, const isa::Op& op, const OpTime& t, Shape* a,
          Shape::Space* space) {
  const isa::Inst& inst = op.inst;
  const uint32_t* v = AddressRows(w, op);
  const auto offset = static_cast<uint64_t>(static_cast<int64_t>(inst.offset));
  a->mask = w.exec();
  *space = Shape::kGlobal;
  if (inst.row->family == Family::kMubuf || inst.row->family == Family::kMtbuf) {
    if (v == nullptr && (inst.offen || inst.idxen)) a->mask = 0;
    if (a->mask != 0) AddBuffer(w, inst, t.bytes, v, a);
    return;
  }
  if (inst.row->family == Family::kScratch) {
    *space = Shape::kScratch;
    return;
  }
  if (v == nullptr) {
    a->mask = 0;
    return;
  }
  if (inst.row->family == Family::kGlobal && inst.saddr != 0x7f) {
    const uint64_t base = w.Pair(inst.saddr) + offset;
    for (int i = 0; i < kLanes; ++i) a->at[i] = base + v[i];
    return;
  }
  for (int i = 0; i < kLanes; ++i) {
    a->at[i] = (v[i] | uint64_t{v[kLanes + i]} << 32) + offset;
  }
  if (inst.row->family != Family::kFlat || a->mask == 0) return;
  const uint64_t top = a->at[__builtin_ctzll(a->mask)] >> 32;
  if (top == isa::kSharedAperture >> 32) *space = Shape::kLds;
  if (top == isa::kPrivateAperture >> 32) *space = Shape::kScratch;
}

// All lanes on, each right behind the last: the usual case, found fast.
bool IsRun(const Shape& a, uint32_t bytes) {
  if (a.mask != ~uint64_t{0}) return false;
  uint64_t wrong = 0;
  for (int i = 0; i < kLanes; ++i)
    wrong |= a.at[i] ^ (a.at[0] + static_cast<uint64_t>(i) * bytes);
  return wrong == 0;
}

void AddLine(uint64_t line, Shape* out) {
  for (int i = out->lines - 1; i >= 0; --i) {
    if (out->line[i] == line) return;
  }
  out->line[out->lines++] = line;
}

void RunOfLines(uint64_t from, uint64_t bytes, Shape* out) {
  const uint64_t last = (from + bytes - 1) >> kLineBits;
  for (uint64_t line = from >> kLineBits; line <= last; ++line) out->line[out->lines++] = line;
}

// Clocks of `lanes` accesses of one dword each that are made together: the most different dwords
// that one of the banks has, a power of two of at most kMostBanks.
constexpr uint32_t kMostBanks = 64;
int BankClocks(const uint32_t* dword, int lanes, uint32_t banks) {
  uint32_t seen[kMostBanks][8];
  uint8_t count[kMostBanks] = {};
  int most = 0;
  for (int i = 0; i < lanes; ++i) {
    const uint32_t bank = dword[i] & (banks - 1);
    int n = count[bank];
    bool known = false;
    for (int k = 0; k < std::min(n, 8); ++k) known |= seen[bank][k] == dword[i];
    if (known) continue;
    if (n < 8) seen[bank][n] = dword[i];
    count[bank] = static_cast<uint8_t>(++n);
    most = std::max(most, n);
  }
  return most;
}

// Which lanes' reads of 16 bytes are made together, in fours: measured on MI300X, eight lanes at a time, and
// on MI355X, two of these groups at a time (amd-shark-ai, its notes on LDS by experiment). Anything else goes by lanes in
// order.
constexpr uint8_t kFoursOfWideReads[16] = {0, 5, 3, 6, 1, 4, 2, 7, 8, 13, 11, 14, 9, 12, 10, 15};

// Clocks of one element a lane of `bytes` bytes at addresses[lane]: so many lanes at a time as fill
// the banks once.
int ElementClocks(const uint32_t* address, uint64_t mask, int bytes, int bytes_a_clock, bool wide_read) {
  const int dwords = std::max(bytes / 4, 1);
  const int together = std::max(bytes_a_clock / 4 / dwords, 1);
  const uint32_t banks = std::min(std::bit_floor(static_cast<uint32_t>(bytes_a_clock) / 4), kMostBanks);
  uint32_t dword[kLanes * 4];
  int clocks = 0, lanes = 0, n = 0;
  for (int i = 0; i < kLanes; ++i) {
    const int lane = wide_read ? kFoursOfWideReads[i / 4] * 4 + i % 4 : i;
    if (mask >> lane & 1) {
      for (int k = 0; k < dwords; ++k) dword[n++] = (address[lane] >> 2) + static_cast<uint32_t>(k);
    }
    if (++lanes == together || i == kLanes - 1) {
      clocks += n == 0 ? 0 : std::max(BankClocks(dword, n, banks), 1);
      lanes = n = 0;
    }
  }
  return clocks;
}

bool SameWhereActive(const LdsMemo& memo, const uint32_t* v, uint32_t first, uint64_t mask) {
  uint32_t differs = 0;
  for (uint64_t m = mask; m != 0; m &= m - 1) {
    const int i = __builtin_ctzll(m);
    differs |= memo.from_first[static_cast<size_t>(i)] ^ (v[i] - first);
  }
  return differs == 0;
}

bool IsRun32(const uint32_t* address, uint64_t mask, uint32_t bytes) {
  if (mask != ~uint64_t{0}) return false;
  uint32_t wrong = address[0] & 3;
  for (int i = 0; i < kLanes; ++i)
    wrong |= address[i] ^ (address[0] + static_cast<uint32_t>(i) * bytes);
  return wrong == 0;
}

}  // namespace

void ShapeOf(const isa::Wave& w, const isa::Op& op, const OpTime& t, Shape* out) {
  Shape& a = *out;
  Find(w, op, t, out, &out->space);
  out->lines = 0;
  out->lanes = __builtin_popcountll(a.mask);
  out->bytes = static_cast<uint32_t>(out->lanes) * t.bytes;
  if (a.mask == 0) {
    out->space = Shape::kNothing;
    return;
  }
  if (out->space == Shape::kLds) return;
  if (out->space == Shape::kScratch) {
    // Dwords of the lanes lie interleaved: a run.
    const uint64_t wave = reinterpret_cast<uint64_t>(w.scratch) >> kLineBits << kLineBits;
    RunOfLines(wave + static_cast<uint64_t>(op.inst.offset & 0xfff) * 64,
               uint64_t{64} * std::max<uint64_t>(t.bytes, 4), out);
    return;
  }
  if (IsRun(a, t.bytes)) return RunOfLines(a.at[0], uint64_t{64} * t.bytes, out);
  uint64_t before = ~uint64_t{0};
  for (uint64_t m = a.mask; m != 0; m &= m - 1) {
    const uint64_t at = a.at[__builtin_ctzll(m)];
    const uint64_t line = at >> kLineBits, last = (at + t.bytes - 1) >> kLineBits;
    if (line != before) AddLine(line, out);
    if (last != line && out->lines < 128) AddLine(last, out);
    before = line;
  }
}

LdsUse LdsUseOf(const isa::Wave& w, const isa::Op& op, const OpTime& t) {
  LdsUse use;
  const int bytes_a_clock = t.lds_clock;
  const uint64_t mask = w.exec();
  const int lanes = __builtin_popcountll(mask);
  use.bytes = static_cast<uint32_t>(lanes * t.bytes * t.elements);
  if (lanes == 0) return use;
  const int run = (kLanes * std::max<int>(t.bytes, 4) + bytes_a_clock - 1) / bytes_a_clock;
  const uint32_t* v = AddressRows(w, op);
  if (t.unit == Unit::kLane || v == nullptr) {
    use.clocks = run;
    return use;
  }
  // Whole dwords further on the banks turn, and what met before meets again.
  LdsMemo& memo = t.lds;
  const uint32_t first = v[__builtin_ctzll(mask)] & ~3u;
  uint32_t differs = 0;
  for (size_t i = 0; i < kLanes; ++i) differs |= memo.from_first[i] ^ (v[i] - first);
  if (memo.mask == mask && (differs == 0 || (mask != ~uint64_t{0} && SameWhereActive(memo, v, first, mask)))) {
    use.clocks = memo.clocks;
    return use;
  }
  memo.mask = mask;
  for (size_t i = 0; i < kLanes; ++i) memo.from_first[i] = v[i] - first;
  for (int e = 0; e < t.elements; ++e) {
    const uint32_t offset = t.elements == 1 ? static_cast<uint32_t>(op.inst.offset)
                                            : (e == 0 ? op.inst.offset0 : op.inst.offset1) * t.stride;
    if (IsRun32(v, mask, t.bytes) && t.bytes >= 4) {
      use.clocks += run;
      continue;
    }
    uint32_t address[kLanes];
    for (int i = 0; i < kLanes; ++i) address[i] = v[i] + offset;
    use.clocks += ElementClocks(address, mask, t.bytes, bytes_a_clock, t.bytes == 16 && !t.store);
  }
  memo.clocks = use.clocks;
  return use;
}

uint64_t ScalarAddress(const isa::Wave& w, const isa::Op& op) {
  const isa::Inst& inst = op.inst;
  uint64_t offset = inst.smem_imm ? static_cast<uint64_t>(static_cast<int64_t>(inst.offset)) : 0;
  if (inst.smem_soffset || !inst.smem_imm) offset += w.s[inst.soffset & 127];
  const uint64_t base = w.Pair(op.a.code) & 0xffffffffffff;
  return (base + offset) & ~uint64_t{3};
}

}  // namespace mainarch::sim::timing
