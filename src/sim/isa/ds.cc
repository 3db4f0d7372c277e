// SPDX-License-Identifier: MIT
//
// DS: LDS loads, stores and atomics, lane permutes through the LDS crossbar, transposed reads.
// An address outside the workgroup's LDS stops the wave (hardware reads zero and drops writes).
#include "absl/strings/str_cat.h"
#include "sim/isa/atomics.h"
#include "sim/isa/bulk.h"
#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

uint8_t* At(Wave& w, const Op& op, int lane, uint32_t offset, uint32_t size) {
  const uint32_t wrapped = w.v[op.a.offset + lane] + offset;  // 32 bits: a base may be negative
  const uint64_t address = wrapped;
  std::vector<uint8_t>& lds = w.group->lds;
  if (address + size <= lds.size()) {
    return lds.data() + address;
  }
  if (w.state == WaveState::kRunning) {
    w.Stop(StopReason::kAperture,
           absl::StrCat("lds address ", address, " + ", size, " bytes, lane ", lane,
                        ": the workgroup has ", lds.size(), " bytes"));
  }
  return nullptr;
}

template <class F>
void EachLane(const Wave& w, F f) {
  for (uint64_t mask = w.exec(); mask != 0; mask &= mask - 1) f(__builtin_ctzll(mask));
}

// One run of bytes a lane.
template <int kDwords>
void Read(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->lds_read[kDwords](w, op)) return;
  uint32_t* d = w.v + op.d.offset;
  EachLane(w, [&](int lane) {
    const uint8_t* p = At(w, op, lane, op.inst.offset, 4 * kDwords);
    if (p == nullptr) return;
    uint32_t x[kDwords];
    std::memcpy(x, p, sizeof x);
    for (int k = 0; k < kDwords; ++k) d[k * kLanes + lane] = x[k];
  });
}
template <int kDwords>
void Write(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->lds_write[kDwords](w, op)) return;
  const uint32_t* s = w.v + op.b.offset;
  EachLane(w, [&](int lane) {
    uint8_t* p = At(w, op, lane, op.inst.offset, 4 * kDwords);
    if (p == nullptr) return;
    uint32_t x[kDwords];
    for (int k = 0; k < kDwords; ++k) x[k] = s[k * kLanes + lane];
    std::memcpy(p, x, sizeof x);
  });
}
// Two elements of kDwords at offset0 and offset1, in units of the element (times 64).
template <int kDwords, int kStride>
void Read2(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->lds_read2[kDwords](w, op, kStride)) return;
  uint32_t* d = w.v + op.d.offset;
  constexpr uint32_t kUnit = 4 * kDwords * kStride;
  EachLane(w, [&](int lane) {
    uint32_t x[2 * kDwords];
    for (int e = 0; e < 2; ++e) {
      const uint8_t* p =
          At(w, op, lane, kUnit * (e ? op.inst.offset1 : op.inst.offset0), 4 * kDwords);
      if (p == nullptr) return;
      std::memcpy(x + e * kDwords, p, 4 * kDwords);
    }
    for (int k = 0; k < 2 * kDwords; ++k) d[k * kLanes + lane] = x[k];
  });
}
template <int kDwords, int kStride>
void Write2(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->lds_write2[kDwords](w, op, kStride)) return;
  constexpr uint32_t kUnit = 4 * kDwords * kStride;
  EachLane(w, [&](int lane) {
    for (int e = 0; e < 2; ++e) {
      uint8_t* p = At(w, op, lane, kUnit * (e ? op.inst.offset1 : op.inst.offset0), 4 * kDwords);
      if (p == nullptr) return;
      const uint32_t* s = w.v + (e ? op.c.offset : op.b.offset);
      uint32_t x[kDwords];
      for (int k = 0; k < kDwords; ++k) x[k] = s[k * kLanes + lane];
      std::memcpy(p, x, sizeof x);
    }
  });
}
// Narrow loads. kHalf: 0 the whole register, 1 the low half, 2 the high half.
template <class T, int kHalf>
void ReadSmall(Wave& w, const Op& op) {
  uint32_t* d = w.v + op.d.offset;
  EachLane(w, [&](int lane) {
    const uint8_t* p = At(w, op, lane, op.inst.offset, sizeof(T));
    if (p == nullptr) return;
    T x;
    std::memcpy(&x, p, sizeof x);
    const uint32_t wide = static_cast<uint32_t>(static_cast<int32_t>(x));
    uint32_t& r = d[lane];
    r = kHalf == 0   ? wide
        : kHalf == 1 ? (r & 0xffff0000) | (wide & 0xffff)
                     : (r & 0xffff) | wide << 16;
  });
}
template <class T, bool kHigh>
void WriteSmall(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    uint8_t* p = At(w, op, lane, op.inst.offset, sizeof(T));
    if (p == nullptr) return;
    const T x = static_cast<T>(w.v[op.b.offset + lane] >> (kHigh ? 16 : 0));
    std::memcpy(p, &x, sizeof x);
  });
}

template <class T, T (*F)(T, T), bool kReturn>
void Atomic(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    uint8_t* p = At(w, op, lane, op.inst.offset, sizeof(T));
    if (p == nullptr) return;
    T old;
    std::memcpy(&old, p, sizeof old);
    const T now = F(old, atomic::Lane<T>(w.v + op.b.offset, lane));
    std::memcpy(p, &now, sizeof now);
    if (kReturn) atomic::PutLane<T>(w.v + op.d.offset, lane, old);
  });
}
// cmpst: data0 is the comparand, data1 the new value. mskor: (old & ~data0) | data1.
enum class Two { kCompareStore, kCompareStoreFloat, kMaskOr, kWrap };
template <class T, Two kTwo, bool kReturn>
void Atomic2(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    uint8_t* p = At(w, op, lane, op.inst.offset, sizeof(T));
    if (p == nullptr) return;
    T old;
    std::memcpy(&old, p, sizeof old);
    const T x = atomic::Lane<T>(w.v + op.b.offset, lane),
            y = atomic::Lane<T>(w.v + op.c.offset, lane);
    T now = old;
    using F = atomic::FloatOf<T>;
    if (kTwo == Two::kCompareStore)
      now = old == x ? y : old;
    else if (kTwo == Two::kCompareStoreFloat)
      now = __builtin_bit_cast(F, old) == __builtin_bit_cast(F, x) ? y : old;
    else if (kTwo == Two::kMaskOr)
      now = (old & ~x) | y;
    else
      now = old >= x ? old - x : old + y;
    std::memcpy(p, &now, sizeof now);
    if (kReturn) atomic::PutLane<T>(w.v + op.d.offset, lane, old);
  });
}
// wrxchg2: exchanges two elements.
template <class T, int kStride>
void Exchange2(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    T old[2];
    for (int e = 0; e < 2; ++e) {
      uint8_t* p =
          At(w, op, lane, sizeof(T) * kStride * (e ? op.inst.offset1 : op.inst.offset0), sizeof(T));
      if (p == nullptr) return;
      std::memcpy(&old[e], p, sizeof(T));
      const T x = atomic::Lane<T>(w.v + (e ? op.c.offset : op.b.offset), lane);
      std::memcpy(p, &x, sizeof x);
    }
    for (int e = 0; e < 2; ++e) {
      atomic::PutLane<T>(w.v + op.d.offset + e * static_cast<int>(sizeof(T)) / 4 * kLanes, lane,
                         old[e]);
    }
  });
}
// The wave's active lanes counted into one LDS counter.
template <int kSign>
void AppendConsume(Wave& w, const Op& op) {
  const uint32_t address = (w.s[reg::kM0] & 0xffff) + static_cast<uint32_t>(op.inst.offset);
  std::vector<uint8_t>& lds = w.group->lds;
  if (address + 4 > lds.size()) {
    w.Stop(StopReason::kAperture, absl::StrCat("lds address ", address, " outside ", lds.size()));
    return;
  }
  uint32_t old;
  std::memcpy(&old, lds.data() + address, 4);
  const uint32_t now = old + kSign * __builtin_popcountll(w.exec());
  std::memcpy(lds.data() + address, &now, 4);
  EachLane(w, [&](int lane) { w.v[op.d.offset + lane] = old; });
}
// A dword at M0 plus four times the lane's number.
uint8_t* AtLane(Wave& w, const Op& op, int lane) {
  const uint32_t address = (w.s[reg::kM0] & 0xffff) + static_cast<uint32_t>(op.inst.offset) +
                           4 * static_cast<uint32_t>(lane);
  if (address + 4 <= w.group->lds.size()) return w.group->lds.data() + address;
  w.Stop(StopReason::kAperture,
         absl::StrCat("lds address ", address, " outside ", w.group->lds.size()));
  return nullptr;
}
void ReadAddTid(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    const uint8_t* p = AtLane(w, op, lane);
    if (p != nullptr) std::memcpy(&w.v[op.d.offset + lane], p, 4);
  });
}
void WriteAddTid(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    uint8_t* p = AtLane(w, op, lane);
    if (p != nullptr) std::memcpy(p, &w.v[op.b.offset + lane], 4);
  });
}
// Each dword whose data has bit 31 set is replaced by the other 31 bits.
void ConditionalExchange(Wave& w, const Op& op) {
  EachLane(w, [&](int lane) {
    uint8_t* p = At(w, op, lane, op.inst.offset, 8);
    if (p == nullptr) return;
    uint32_t old[2];
    std::memcpy(old, p, 8);
    for (int k = 0; k < 2; ++k) {
      const uint32_t x = w.v[op.b.offset + k * kLanes + lane],
                     now = x >> 31 ? x & 0x7fffffff : old[k];
      std::memcpy(p + 4 * k, &now, 4);
    }
    for (int k = 0; k < 2; ++k) w.v[op.d.offset + k * kLanes + lane] = old[k];
  });
}
void Nop(Wave&, const Op&) {}

// A value of another lane; inactive lanes give zero.
void BPermute(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->bpermute(w, op)) return;
  uint32_t out[kLanes];
  const uint64_t exec = w.exec();
  for (int i = 0; i < kLanes; ++i) {
    const int from = (w.v[op.a.offset + i] + static_cast<uint32_t>(op.inst.offset)) / 4 & 63;
    out[i] = exec >> from & 1 ? w.v[op.b.offset + from] : 0;
  }
  EachLane(w, [&](int lane) { w.v[op.d.offset + lane] = out[lane]; });
}
void Permute(Wave& w, const Op& op) {
  uint32_t out[kLanes] = {};
  EachLane(w, [&](int lane) {
    const int to = (w.v[op.a.offset + lane] + static_cast<uint32_t>(op.inst.offset)) / 4 & 63;
    out[to] = w.v[op.b.offset + lane];
  });
  EachLane(w, [&](int lane) { w.v[op.d.offset + lane] = out[lane]; });
}
int SwizzleSource(int offset, int lane) {
  const int base = lane & 32, i = lane & 31;
  if (offset >= 0xe000) {
    // FFT: a bit reversal of five bits under a mask.
    const int mask = offset & 31;
    int reversed = 0;
    for (int b = 0; b < 5; ++b) reversed |= (i >> b & 1) << (4 - b);
    return base | ((reversed & ~mask) | (i & mask));
  }
  if (offset >= 0xc000) {
    const int mask = offset & 31, size = offset >> 5 & 31,
              turned = offset >> 10 & 1 ? i - size : i + size;
    return base | (i & mask) | (turned & ~mask & 31);
  }
  if (offset & 0x8000) return (lane & ~3) | (offset >> (2 * (lane & 3)) & 3);
  return base | ((((i & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)) & 31);
}
void Swizzle(Wave& w, const Op& op) {
  uint32_t out[kLanes];
  const uint64_t exec = w.exec();
  for (int i = 0; i < kLanes; ++i) {
    const int from = SwizzleSource(op.inst.offset, i);
    out[i] = exec >> from & 1 ? w.v[op.a.offset + from] : 0;
  }
  EachLane(w, [&](int lane) { w.v[op.d.offset + lane] = out[lane]; });
}

// Transposed reads: 16 lanes read a tile of 16 columns in rows, kBits an element; lane j then holds
// column j. A row takes 16 / (elements of a lane) lanes.
template <int kBits>
void ReadTransposed(Wave& w, const Op& op) {
  constexpr int kBytes = kBits == 6 ? 12 : 8, kElements = kBytes * 8 / kBits,
                kRowLanes = 16 / kElements;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  uint8_t data[kLanes][16] = {};
  EachLane(w, [&](int lane) {
    const uint8_t* p = At(w, op, lane, op.inst.offset, kBytes);
    if (p != nullptr) std::memcpy(data[lane], p, kBytes);
  });
  if (w.state != WaveState::kRunning) return;
  const auto element = [&](int lane, int k) -> uint32_t {
    const int bit = k * kBits;
    uint32_t word = 0;
    std::memcpy(&word, data[lane] + bit / 8, 4);
    return word >> (bit % 8) & kMask;
  };
  EachLane(w, [&](int lane) {
    const int group = lane & ~15, j = lane & 15;
    uint32_t out[3] = {};
    for (int e = 0; e < kElements; ++e) {
      const uint32_t x = element(group + e * kRowLanes + j / kElements, j % kElements);
      const int bit = e * kBits;
      out[bit / 32] |= x << (bit % 32);
      if (bit % 32 + kBits > 32) out[bit / 32 + 1] |= x >> (32 - bit % 32);
    }
    for (int k = 0; k < kBytes / 4; ++k) w.v[op.d.offset + k * kLanes + lane] = out[k];
  });
}

constexpr Descriptor L(const char* name, Run run, Origin origin = Origin::kManual,
                       uint16_t implicit = 0) {
  return {name,
          run,
          {Type::kB32, Type::kB32, Type::kB32, Type::kB32},
          origin,
          static_cast<uint16_t>(kReadsExec | implicit)};
}
using u32 = uint32_t;
using u64 = uint64_t;
#define ATOMIC(text, suffix, F, T)                   \
  L("ds_" text "_" suffix, &Atomic<T, F<T>, false>), \
      L("ds_" text "_rtn_" suffix, &Atomic<T, F<T>, true>)
#define ATOMIC2(text, suffix, two, T)                \
  L("ds_" text "_" suffix, &Atomic2<T, two, false>), \
      L("ds_" text "_rtn_" suffix, &Atomic2<T, two, true>)
constexpr Descriptor kTable[] = {
    L("ds_read_b32", &Read<1>),
    L("ds_read_b64", &Read<2>),
    L("ds_read_b96", &Read<3>),
    L("ds_read_b128", &Read<4>),
    L("ds_write_b32", &Write<1>),
    L("ds_write_b64", &Write<2>),
    L("ds_write_b96", &Write<3>),
    L("ds_write_b128", &Write<4>),
    L("ds_read2_b32", &Read2<1, 1>),
    L("ds_read2st64_b32", &Read2<1, 64>),
    L("ds_read2_b64", &Read2<2, 1>),
    L("ds_read2st64_b64", &Read2<2, 64>),
    L("ds_write2_b32", &Write2<1, 1>),
    L("ds_write2st64_b32", &Write2<1, 64>),
    L("ds_write2_b64", &Write2<2, 1>),
    L("ds_write2st64_b64", &Write2<2, 64>),
    L("ds_read_u8", &ReadSmall<uint8_t, 0>),
    L("ds_read_i8", &ReadSmall<int8_t, 0>),
    L("ds_read_u16", &ReadSmall<uint16_t, 0>),
    L("ds_read_i16", &ReadSmall<int16_t, 0>),
    L("ds_read_u8_d16", &ReadSmall<uint8_t, 1>, Origin::kManual, kReadsDst),
    L("ds_read_u8_d16_hi", &ReadSmall<uint8_t, 2>, Origin::kManual, kReadsDst),
    L("ds_read_i8_d16", &ReadSmall<int8_t, 1>, Origin::kManual, kReadsDst),
    L("ds_read_i8_d16_hi", &ReadSmall<int8_t, 2>, Origin::kManual, kReadsDst),
    L("ds_read_u16_d16", &ReadSmall<uint16_t, 1>, Origin::kManual, kReadsDst),
    L("ds_read_u16_d16_hi", &ReadSmall<uint16_t, 2>, Origin::kManual, kReadsDst),
    L("ds_write_b8", &WriteSmall<uint8_t, false>),
    L("ds_write_b16", &WriteSmall<uint16_t, false>),
    L("ds_write_b8_d16_hi", &WriteSmall<uint8_t, true>),
    L("ds_write_b16_d16_hi", &WriteSmall<uint16_t, true>),
    L("ds_nop", &Nop),
    ATOMIC("add", "u32", atomic::Add, u32),
    ATOMIC("sub", "u32", atomic::Sub, u32),
    ATOMIC("rsub", "u32", atomic::RSub, u32),
    ATOMIC("inc", "u32", atomic::Inc, u32),
    ATOMIC("dec", "u32", atomic::Dec, u32),
    ATOMIC("min", "i32", atomic::SMin, u32),
    ATOMIC("max", "i32", atomic::SMax, u32),
    ATOMIC("min", "u32", atomic::UMin, u32),
    ATOMIC("max", "u32", atomic::UMax, u32),
    ATOMIC("and", "b32", atomic::And, u32),
    ATOMIC("or", "b32", atomic::Or, u32),
    ATOMIC("xor", "b32", atomic::Xor, u32),
    ATOMIC("wrxchg", "b32", atomic::Swap, u32),
    ATOMIC("add", "f32", atomic::FAdd, u32),
    ATOMIC("min", "f32", atomic::FMin, u32),
    ATOMIC("max", "f32", atomic::FMax, u32),
    ATOMIC("add", "u64", atomic::Add, u64),
    ATOMIC("sub", "u64", atomic::Sub, u64),
    ATOMIC("rsub", "u64", atomic::RSub, u64),
    ATOMIC("inc", "u64", atomic::Inc, u64),
    ATOMIC("dec", "u64", atomic::Dec, u64),
    ATOMIC("min", "i64", atomic::SMin, u64),
    ATOMIC("max", "i64", atomic::SMax, u64),
    ATOMIC("min", "u64", atomic::UMin, u64),
    ATOMIC("max", "u64", atomic::UMax, u64),
    ATOMIC("and", "b64", atomic::And, u64),
    ATOMIC("or", "b64", atomic::Or, u64),
    ATOMIC("xor", "b64", atomic::Xor, u64),
    ATOMIC("wrxchg", "b64", atomic::Swap, u64),
    ATOMIC("add", "f64", atomic::FAdd, u64),
    ATOMIC("min", "f64", atomic::FMin, u64),
    ATOMIC("max", "f64", atomic::FMax, u64),
    L("ds_pk_add_f16", &Atomic<u32, atomic::PkAddF16, false>),
    L("ds_pk_add_rtn_f16", &Atomic<u32, atomic::PkAddF16, true>),
    L("ds_pk_add_bf16", &Atomic<u32, atomic::PkAddBf16, false>),
    L("ds_pk_add_rtn_bf16", &Atomic<u32, atomic::PkAddBf16, true>),
    ATOMIC2("cmpst", "b32", Two::kCompareStore, u32),
    ATOMIC2("cmpst", "b64", Two::kCompareStore, u64),
    ATOMIC2("cmpst", "f32", Two::kCompareStoreFloat, u32),
    ATOMIC2("cmpst", "f64", Two::kCompareStoreFloat, u64),
    ATOMIC2("mskor", "b32", Two::kMaskOr, u32),
    ATOMIC2("mskor", "b64", Two::kMaskOr, u64),
    L("ds_wrap_rtn_b32", &Atomic2<u32, Two::kWrap, true>),
    L("ds_wrxchg2_rtn_b32", &Exchange2<u32, 1>),
    L("ds_wrxchg2st64_rtn_b32", &Exchange2<u32, 64>),
    L("ds_wrxchg2_rtn_b64", &Exchange2<u64, 1>),
    L("ds_wrxchg2st64_rtn_b64", &Exchange2<u64, 64>),
    L("ds_read_addtid_b32", &ReadAddTid, Origin::kManual, kReadsM0),
    L("ds_write_addtid_b32", &WriteAddTid, Origin::kManual, kReadsM0),
    L("ds_condxchg32_rtn_b64", &ConditionalExchange, Origin::kAssumed),
    L("ds_append", &AppendConsume<1>, Origin::kManual, kReadsM0),
    L("ds_consume", &AppendConsume<-1>, Origin::kManual, kReadsM0),
    L("ds_bpermute_b32", &BPermute),
    L("ds_permute_b32", &Permute),
    L("ds_swizzle_b32", &Swizzle),
    L("ds_read_b64_tr_b16", &ReadTransposed<16>, Origin::kAssumed),
    L("ds_read_b64_tr_b8", &ReadTransposed<8>, Origin::kAssumed),
    L("ds_read_b64_tr_b4", &ReadTransposed<4>, Origin::kAssumed),
    L("ds_read_b96_tr_b6", &ReadTransposed<6>, Origin::kAssumed),
};
#undef ATOMIC
#undef ATOMIC2

}  // namespace

void AddDs(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
