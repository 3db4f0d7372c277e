// SPDX-License-Identifier: MIT
//
// SMEM: scalar loads, stores and atomics, clocks, scalar cache maintenance. The CDNA3 manual lists
// neither stores nor atomics; AMD's own kernels for both chips use them (products of ROCm/aiter that
// share K over workgroups), and so does Linux's context-save handler for gfx9.4.3. They are what
// the gfx9.0 manual says.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/isa/atomics.h"

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

template <int kDwords>
void Store(Wave& w, const Op& op) {
  const uint64_t va = (w.Pair(op.a.code) + Offset(w, op.inst)) & ~uint64_t{3};
  w.Copy(va, 4 * kDwords, reinterpret_cast<uint8_t*>(&w.s[op.d.code]), true);
}

// Address and length of what a buffer resource lets scalar instructions see.
struct Resource {
  explicit Resource(const uint32_t* w) : base(w[0] | uint64_t{w[1] & 0xffff} << 32) {
    const uint32_t stride = w[1] >> 16 & 0x3fff;
    size = stride == 0 ? w[2] : uint64_t{w[2]} * stride;
  }
  uint64_t base, size = 0;
};

// Dwords outside of the resource are not written.
template <int kDwords>
void BufferStore(Wave& w, const Op& op) {
  const Resource resource(&w.s[op.a.code]);
  const uint64_t offset = Offset(w, op.inst) & ~uint64_t{3};
  for (int k = 0; k < kDwords; ++k) {
    const uint64_t at = offset + 4 * k;
    if (at + 4 > resource.size) continue;
    if (!w.Copy(resource.base + at, 4, reinterpret_cast<uint8_t*>(&w.s[op.d.code + k]), true)) return;
  }
}

template <class T>
T Scalar(const Wave& w, int code) {
  if constexpr (sizeof(T) == 8) return w.Pair(code);
  return w.s[code];
}

// At `va`, as one operation; with glc the register gets what was there.
template <class T, class F>
void RmwAt(Wave& w, const Op& op, uint64_t va, F f) {
  if (va % sizeof(T) != 0) {
    w.Stop(StopReason::kUnaligned, absl::StrCat("scalar atomic at unaligned address 0x", absl::Hex(va)));
    return;
  }
  uint8_t* host = w.Host(va, sizeof(T), true);
  if (host == nullptr) {
    if (w.state == WaveState::kRunning) w.Stop(StopReason::kMemoryFault, "scalar atomic across pages");
    return;
  }
  T* at = reinterpret_cast<T*>(host);
  T old = __atomic_load_n(at, __ATOMIC_SEQ_CST), now;
  do {
    now = f(old);
  } while (!__atomic_compare_exchange_n(at, &old, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  if (!op.inst.sc0) return;
  if constexpr (sizeof(T) == 8) {
    w.SetPair(op.d.code, old);
  } else {
    w.s[op.d.code] = old;
  }
}

template <bool kBuffer, class T, class F>
void Rmw(Wave& w, const Op& op, F f) {
  const uint64_t offset = Offset(w, op.inst) & ~uint64_t{3};
  if constexpr (kBuffer) {
    const Resource resource(&w.s[op.a.code]);
    if (offset + sizeof(T) <= resource.size) RmwAt<T>(w, op, resource.base + offset, f);
  } else {
    RmwAt<T>(w, op, w.Pair(op.a.code) + offset, f);
  }
}
template <bool kBuffer, class T, T (*F)(T, T)>
void Atomic(Wave& w, const Op& op) {
  const T x = Scalar<T>(w, op.d.code);
  Rmw<kBuffer, T>(w, op, [x](T old) { return F(old, x); });
}
// Data: the new value, then the comparand.
template <bool kBuffer, class T>
void CompareSwap(Wave& w, const Op& op) {
  const T value = Scalar<T>(w, op.d.code), compare = Scalar<T>(w, op.d.code + sizeof(T) / 4);
  Rmw<kBuffer, T>(w, op, [=](T old) { return old == compare ? value : old; });
}

void MemRealTime(Wave& w, const Op& op) { w.SetPair(op.d.code, w.memory->Clock()); }
// Core clocks: the reference counter scaled to about 2.1 GHz. No claim about performance.
void MemTime(Wave& w, const Op& op) { w.SetPair(op.d.code, w.memory->Clock() * 21); }
void Nothing(Wave&, const Op&) {}

constexpr Descriptor L(const char* name, Run run, Origin origin = Origin::kManual) {
  return {name, run, {Type::kB64, Type::kNone, Type::kNone, Type::kB32}, origin, 0};
}
#define SCALAR_ATOMIC(name, F)                                                         \
  L("s_atomic_" name, &Atomic<false, uint32_t, atomic::F<uint32_t>>),                  \
      L("s_atomic_" name "_x2", &Atomic<false, uint64_t, atomic::F<uint64_t>>),        \
      L("s_buffer_atomic_" name, &Atomic<true, uint32_t, atomic::F<uint32_t>>),        \
      L("s_buffer_atomic_" name "_x2", &Atomic<true, uint64_t, atomic::F<uint64_t>>)
constexpr Descriptor kTable[] = {
    L("s_store_dword", &Store<1>),
    L("s_store_dwordx2", &Store<2>),
    L("s_store_dwordx4", &Store<4>),
    L("s_buffer_store_dword", &BufferStore<1>),
    L("s_buffer_store_dwordx2", &BufferStore<2>),
    L("s_buffer_store_dwordx4", &BufferStore<4>),
    SCALAR_ATOMIC("swap", Swap),
    SCALAR_ATOMIC("add", Add),
    SCALAR_ATOMIC("sub", Sub),
    SCALAR_ATOMIC("smin", SMin),
    SCALAR_ATOMIC("umin", UMin),
    SCALAR_ATOMIC("smax", SMax),
    SCALAR_ATOMIC("umax", UMax),
    SCALAR_ATOMIC("and", And),
    SCALAR_ATOMIC("or", Or),
    SCALAR_ATOMIC("xor", Xor),
    SCALAR_ATOMIC("inc", Inc),
    SCALAR_ATOMIC("dec", Dec),
    L("s_atomic_cmpswap", &CompareSwap<false, uint32_t>),
    L("s_atomic_cmpswap_x2", &CompareSwap<false, uint64_t>),
    L("s_buffer_atomic_cmpswap", &CompareSwap<true, uint32_t>),
    L("s_buffer_atomic_cmpswap_x2", &CompareSwap<true, uint64_t>),
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
