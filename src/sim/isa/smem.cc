// SPDX-License-Identifier: MIT
//
// SMEM: scalar loads, clocks, scalar cache maintenance. (The scalar stores and atomics of the
// opcode table are left out: neither chip has them.)
#include <algorithm>

#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

uint64_t Offset(const Wave& w, const Inst& inst) {
  uint64_t offset = inst.smem_imm ? static_cast<uint64_t>(static_cast<int64_t>(inst.offset)) : 0;
  if (inst.smem_soffset || !inst.smem_imm) offset += w.s[inst.soffset];
  return offset;
}

template <int kDwords>
void Load(Wave& w, const Op& op) {
  const uint64_t va = (w.Pair(op.a.code) + Offset(w, op.inst)) & ~uint64_t{3};
  const uint8_t* host = w.Host(va, 4 * kDwords, false);
  if (host != nullptr) {
    std::memcpy(&w.s[op.d.code], host, 4 * kDwords);
  } else if (w.state == WaveState::kRunning) {
    w.Copy(va, 4 * kDwords, reinterpret_cast<uint8_t*>(&w.s[op.d.code]), false);
  }
}

// Through a buffer resource: dwords outside num_records read as zero.
template <int kDwords>
void BufferLoad(Wave& w, const Op& op) {
  const uint32_t* resource = &w.s[op.a.code];
  const uint64_t base = resource[0] | uint64_t{resource[1] & 0xffff} << 32;
  const uint32_t stride = resource[1] >> 16 & 0x3fff;
  const uint64_t size = stride == 0 ? resource[2] : uint64_t{resource[2]} * stride;
  const uint64_t offset = Offset(w, op.inst) & ~uint64_t{3};
  uint32_t out[kDwords] = {};
  for (int k = 0; k < kDwords; ++k) {
    const uint64_t at = offset + 4 * k;
    if (at + 4 > size) continue;
    if (!w.Copy(base + at, 4, reinterpret_cast<uint8_t*>(&out[k]), false)) return;
  }
  std::memcpy(&w.s[op.d.code], out, sizeof out);
}

void MemRealTime(Wave& w, const Op& op) { w.SetPair(op.d.code, w.memory->Clock()); }
// Core clocks: the reference counter scaled to about 2.1 GHz. No claim about performance.
void MemTime(Wave& w, const Op& op) { w.SetPair(op.d.code, w.memory->Clock() * 21); }
void Nothing(Wave&, const Op&) {}

constexpr Descriptor L(const char* name, Run run, Origin origin = Origin::kManual) {
  return {name, run, {Type::kB64, Type::kNone, Type::kNone, Type::kB32}, origin, 0};
}
constexpr Descriptor kTable[] = {
    L("s_load_dword", &Load<1>),
    L("s_load_dwordx2", &Load<2>),
    L("s_load_dwordx4", &Load<4>),
    L("s_load_dwordx8", &Load<8>),
    L("s_load_dwordx16", &Load<16>),
    L("s_buffer_load_dword", &BufferLoad<1>),
    L("s_buffer_load_dwordx2", &BufferLoad<2>),
    L("s_buffer_load_dwordx4", &BufferLoad<4>),
    L("s_buffer_load_dwordx8", &BufferLoad<8>),
    L("s_buffer_load_dwordx16", &BufferLoad<16>),
    L("s_memtime", &MemTime, Origin::kAssumed),
    L("s_memrealtime", &MemRealTime),
    L("s_dcache_inv", &Nothing),
    L("s_dcache_wb", &Nothing),
    L("s_dcache_inv_vol", &Nothing),
    L("s_dcache_wb_vol", &Nothing),
};

}  // namespace

void AddSmem(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
