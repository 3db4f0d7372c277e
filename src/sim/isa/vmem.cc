// SPDX-License-Identifier: MIT
//
// GLOBAL, FLAT, SCRATCH and MUBUF: vector loads, stores, atomics, loads to LDS, cache maintenance.
// One body serves all four families: they differ in how a lane's address is found.
#include "absl/strings/str_cat.h"
#include "sim/isa/atomics.h"
#include "sim/isa/buffer.h"
#include "sim/isa/bulk.h"
#include "sim/isa/descriptors.h"
#include "sim/isa/lane_words.h"

namespace mainarch::sim::isa {
namespace {

enum class Space : uint8_t { kGlobal, kLds, kPrivate, kNowhere };

// Where each active lane's access goes. kNowhere: outside a buffer; loads give 0, stores nothing.
struct Places {
  uint64_t address[kLanes];
  uint64_t mask = 0;
  bool all_global = true;
  Space space[kLanes];
};

void FlatAddresses(Wave& w, const Op& op, Places* p) {
  const uint32_t* low = w.v + op.a.offset;
  for (int i = 0; i < kLanes; ++i) {
    p->address[i] = (low[i] | uint64_t{low[kLanes + i]} << 32) +
                    static_cast<uint64_t>(static_cast<int64_t>(op.inst.offset));
  }
  const bool flat = op.inst.row->family == Family::kFlat;
  for (uint64_t m = p->mask; flat && m != 0; m &= m - 1) {
    const int i = __builtin_ctzll(m);
    const uint64_t top = p->address[i] >> 32;
    p->space[i] = Space::kGlobal;
    if (top == kSharedAperture >> 32)
      p->space[i] = Space::kLds;
    else if (top == kPrivateAperture >> 32)
      p->space[i] = Space::kPrivate;
    else
      continue;
    p->address[i] &= 0xffffffff;
    p->all_global = false;
  }
}

void SaddrAddresses(Wave& w, const Op& op, Places* p) {
  const uint64_t base =
      w.Pair(op.inst.saddr) + static_cast<uint64_t>(static_cast<int64_t>(op.inst.offset));
  const uint32_t* v = w.v + op.a.offset;
  for (int i = 0; i < kLanes; ++i) p->address[i] = base + v[i];
}

void ScratchAddresses(Wave& w, const Op& op, Places* p) {
  const uint32_t base =
      (op.inst.saddr == 0x7f ? 0 : w.s[op.inst.saddr]) + static_cast<uint32_t>(op.inst.offset);
  p->all_global = false;
  for (int i = 0; i < kLanes; ++i) {
    p->address[i] = base + (op.inst.sve ? w.v[op.a.offset + i] : 0);
    p->space[i] = Space::kPrivate;
  }
}

void BufferAddresses(Wave& w, const Op& op, uint32_t bytes, Places* p) {
  const Inst& inst = op.inst;
  const BufferResource resource(&w.s[inst.Find('r')->code]);
  const uint32_t scalar = inst.soffset < 128    ? w.s[inst.soffset]
                          : inst.soffset <= 192 ? inst.soffset - 128u
                                                : static_cast<uint32_t>(192 - int{inst.soffset});
  const uint32_t* v = inst.offen || inst.idxen ? w.v + op.a.offset : nullptr;
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t index = inst.idxen ? v[i] : 0;
    const uint64_t offset =
        (inst.offen ? v[(inst.idxen ? kLanes : 0) + i] : 0) + static_cast<uint64_t>(inst.offset);
    const BufferPlace place = PlaceOf(resource, inst.idxen, index, offset, scalar, i, bytes);
    p->address[i] = place.address;
    p->space[i] = Space::kGlobal;
    if (place.outside && (p->mask >> i & 1)) {
      p->space[i] = Space::kNowhere;
      p->all_global = false;
    }
  }
}

bool Locate(Wave& w, const Op& op, uint32_t bytes, Places* p) {
  p->mask = w.exec();
  switch (op.inst.row->family) {
    case Family::kScratch:
      ScratchAddresses(w, op, p);
      break;
    case Family::kMubuf:
      BufferAddresses(w, op, bytes, p);
      break;
    case Family::kGlobal:
      if (op.inst.saddr != 0x7f) {
        SaddrAddresses(w, op, p);
        break;
      }
      [[fallthrough]];
    default:
      FlatAddresses(w, op, p);
      break;
  }
  return w.state == WaveState::kRunning;
}

// Host memory of one lane's access that is not plain global memory in one piece.
uint8_t* Elsewhere(Wave& w, const Places& p, int lane, uint32_t size) {
  const uint64_t at = p.address[lane];
  if (p.space[lane] == Space::kLds) {
    if (at + size <= w.group->lds.size()) return w.group->lds.data() + at;
    w.Stop(StopReason::kAperture, absl::StrCat("flat lds address ", at, " + ", size, " outside ",
                                               w.group->lds.size(), " bytes"));
  } else if (p.space[lane] == Space::kPrivate) {
    if (at + size <= w.scratch_bytes) return w.scratch + uint64_t{w.scratch_bytes} * lane + at;
    w.Stop(StopReason::kAperture, absl::StrCat("scratch address ", at, " + ", size, ", lane ", lane,
                                               ": a work-item has ", w.scratch_bytes, " bytes"));
  }
  return nullptr;
}

// Whether the wave has a FLAT_SCRATCH that it set itself. Nobody does whose scratch the packet processor
// sets up, as on these chips; AMD's conformance suite does in PM4 dispatches.
bool HasOwnScratchBase(const Wave& w) { return w.Pair(reg::kFlatScratch) != 0; }

// One lane's bytes in scratch memory at FLAT_SCRATCH, where dwords of the 64 lanes take turns (swizzled by
// 4 bytes: LLVM, AMDGPUUsage, address space private).
bool TransferAtScratchBase(Wave& w, uint64_t at, int lane, uint32_t size, uint8_t* bytes, bool write) {
  if (at + size > w.scratch_bytes) {
    w.Stop(StopReason::kAperture, absl::StrCat("scratch address ", at, " + ", size, ", lane ", lane,
                                               ": a work-item has ", w.scratch_bytes, " bytes"));
    return false;
  }
  for (uint32_t done = 0; done < size;) {
    const uint64_t in_dword = (at + done) % 4, part = std::min<uint64_t>(4 - in_dword, size - done);
    const uint64_t va = w.Pair(reg::kFlatScratch) + (at + done) / 4 * 4 * kLanes + 4 * static_cast<uint64_t>(lane) + in_dword;
    if (!w.Copy(va, static_cast<uint32_t>(part), bytes + done, write)) return false;
    done += static_cast<uint32_t>(part);
  }
  return true;
}

// Reads or writes one lane's bytes; false when the wave was stopped.
bool Transfer(Wave& w, const Places& p, int lane, uint32_t size, uint8_t* bytes, bool write) {
  const bool global = p.all_global || p.space[lane] == Space::kGlobal;
  if (!global && p.space[lane] == Space::kNowhere) {
    if (!write) std::memset(bytes, 0, size);
    return true;
  }
  if (!global && p.space[lane] == Space::kPrivate && HasOwnScratchBase(w)) {
    return TransferAtScratchBase(w, p.address[lane], lane, size, bytes, write);
  }
  uint8_t* host = global ? w.Host(p.address[lane], size, write) : Elsewhere(w, p, lane, size);
  if (host == nullptr) {
    return global && w.state == WaveState::kRunning && w.Copy(p.address[lane], size, bytes, write);
  }
  const uint32_t words = size / 8 * 8;
  for (uint32_t i = 0; i < words; i += 8) {
    if (write) {
      StoreWord(host + i, LoadWord(bytes + i));
    } else {
      StoreWord(bytes + i, LoadWord(host + i));
    }
  }
  std::memcpy((write ? host : bytes) + words, (write ? bytes : host) + words, size - words);
  return true;
}

// Every lane active, each access right after the last, all in one piece of host memory: the start.
uint8_t* Contiguous(Wave& w, const Places& p, uint32_t size, bool write) {
  if (!p.all_global || p.mask != ~uint64_t{0}) return nullptr;
  uint64_t wrong = 0;
  for (int i = 0; i < kLanes; ++i)
    wrong |= p.address[i] ^ (p.address[0] + static_cast<uint64_t>(i) * size);
  if (wrong != 0) return nullptr;
  for (View& view : w.views) {
    if (view.Holds(p.address[0], kLanes * uint64_t{size}) && (view.writable || !write)) {
      return view.host + (p.address[0] - view.begin);
    }
  }
  return nullptr;
}

// The piece of memory that holds the first active lane's access; the others usually lie there too.
View Near(Wave& w, const Places& p, uint32_t size) {
  if (!p.all_global || p.mask == 0) return View();
  const uint64_t at = p.address[__builtin_ctzll(p.mask)];
  if (w.Host(at, size, false) == nullptr) return View();
  for (const View& view : w.views) {
    if (view.Holds(at, size)) return view;
  }
  return View();
}

template <class F>
void EachLane(uint64_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctzll(mask));
}

// The register that a load fills: vdst, or MUBUF's vdata.
const Ref& Result(const Op& op) { return op.d; }

template <int kDwords>
void Load(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->load[kDwords](w, op)) return;
  Places p;
  if (!Locate(w, op, 4 * kDwords, &p)) return;
  uint32_t* d = w.v + Result(op).offset;
  if (const uint8_t* host = Contiguous(w, p, 4 * kDwords, false)) {
    for (int i = 0; i < kLanes; ++i) LoadLane<kDwords, kLanes>(host + 4 * i * kDwords, d + i);
    return;
  }
  const View view = Near(w, p, 4 * kDwords);
  if (w.state != WaveState::kRunning) return;
  EachLane(p.mask, [&](int lane) {
    uint32_t x[kDwords];
    const uint64_t at = p.address[lane];
    if (view.Holds(at, sizeof x)) {
      LoadLane<kDwords, 1>(view.host + (at - view.begin), x);
    } else if (!Transfer(w, p, lane, sizeof x, reinterpret_cast<uint8_t*>(x), false))
      return;
    for (int k = 0; k < kDwords; ++k) d[k * kLanes + lane] = x[k];
  });
}
template <int kDwords>
void Store(Wave& w, const Op& op) {
  if (w.bulk != nullptr && w.bulk->store[kDwords](w, op)) return;
  Places p;
  if (!Locate(w, op, 4 * kDwords, &p)) return;
  const uint32_t* s = w.v + op.b.offset;
  if (uint8_t* host = Contiguous(w, p, 4 * kDwords, true)) {
    for (int i = 0; i < kLanes; ++i) StoreLane<kDwords, kLanes>(host + 4 * i * kDwords, s + i);
    return;
  }
  EachLane(p.mask, [&](int lane) {
    uint32_t x[kDwords];
    for (int k = 0; k < kDwords; ++k) x[k] = s[k * kLanes + lane];
    Transfer(w, p, lane, sizeof x, reinterpret_cast<uint8_t*>(x), true);
  });
}
template <class T, int kHalf>
void LoadSmall(Wave& w, const Op& op) {
  if (kHalf == 0 && w.bulk != nullptr) {
    const auto access = sizeof(T) == 1
                            ? (std::is_signed_v<T> ? w.bulk->load_i8 : w.bulk->load_u8)
                            : (std::is_signed_v<T> ? w.bulk->load_i16 : w.bulk->load_u16);
    if (access(w, op)) return;
  }
  Places p;
  if (!Locate(w, op, sizeof(T), &p)) return;
  uint32_t* d = w.v + Result(op).offset;
  EachLane(p.mask, [&](int lane) {
    T x;
    if (!Transfer(w, p, lane, sizeof x, reinterpret_cast<uint8_t*>(&x), false)) return;
    const uint32_t wide = static_cast<uint32_t>(static_cast<int32_t>(x));
    uint32_t& r = d[lane];
    r = kHalf == 0   ? wide
        : kHalf == 1 ? (r & 0xffff0000) | (wide & 0xffff)
                     : (r & 0xffff) | wide << 16;
  });
}
template <class T, bool kHigh>
void StoreSmall(Wave& w, const Op& op) {
  if (!kHigh && w.bulk != nullptr) {
    if ((sizeof(T) == 1 ? w.bulk->store_u8 : w.bulk->store_u16)(w, op)) return;
  }
  Places p;
  if (!Locate(w, op, sizeof(T), &p)) return;
  const uint32_t* s = w.v + op.b.offset;
  EachLane(p.mask, [&](int lane) {
    T x = static_cast<T>(s[lane] >> (kHigh ? 16 : 0));
    Transfer(w, p, lane, sizeof x, reinterpret_cast<uint8_t*>(&x), true);
  });
}

// Memory to LDS: each lane's bytes go to M0 + the instruction's offset + its lane number times the
// size, narrow elements widened to a dword.
template <class T, int kCount>
void LoadToLds(Wave& w, const Op& op) {
  Places p;
  constexpr uint32_t kBytes = sizeof(T) * kCount, kSlot = kBytes < 4 ? 4 : kBytes;
  if (sizeof(T) == 4 && w.bulk != nullptr && w.bulk->load_to_lds[kCount](w, op)) return;
  if (!Locate(w, op, kBytes, &p)) return;
  const uint32_t limit = w.group->isa == Isa::kGfx950 ? 0x3ffff : 0xffff;
  const uint64_t base =
      (w.s[reg::kM0] & limit) + static_cast<uint64_t>(static_cast<int64_t>(op.inst.offset));
  EachLane(p.mask, [&](int lane) {
    T x[kCount];
    if (!Transfer(w, p, lane, kBytes, reinterpret_cast<uint8_t*>(x), false)) return;
    const uint64_t at = base + uint64_t{kSlot} * lane;
    if (at + kSlot > w.group->lds.size()) {
      w.Stop(StopReason::kAperture,
             absl::StrCat("load to lds address ", at, " outside ", w.group->lds.size()));
      return;
    }
    if constexpr (sizeof(T) < 4) {
      const int32_t wide = x[0];
      std::memcpy(w.group->lds.data() + at, &wide, 4);
    } else {
      std::memcpy(w.group->lds.data() + at, x, kBytes);
    }
  });
}
template <class T, int kHalf, class N, int kCount>
void LoadMaybeLds(Wave& w, const Op& op) {
  if (op.inst.lds) {
    LoadToLds<N, kCount>(w, op);
  } else if constexpr (kHalf < 0) {
    Load<kCount>(w, op);
  } else {
    LoadSmall<T, kHalf>(w, op);
  }
}

// Read-modify-write. Workgroups run on several host threads, so global memory needs host atomics.
template <class T, class F>
void Rmw(Wave& w, const Op& op, F f) {
  Places p;
  if (!Locate(w, op, sizeof(T), &p)) return;
  // MUBUF returns into its data register, the others into vdst; sc0 asks for it.
  EachLane(p.mask, [&](int lane) {
    const bool global = p.all_global || p.space[lane] == Space::kGlobal;
    T old = 0;
    if (!global && p.space[lane] != Space::kNowhere) {
      uint8_t* host = Elsewhere(w, p, lane, sizeof(T));
      if (host == nullptr) return;
      std::memcpy(&old, host, sizeof old);
      const T now = f(old, lane);
      std::memcpy(host, &now, sizeof now);
    } else if (global) {
      if (p.address[lane] % sizeof(T) != 0) {
        w.Stop(StopReason::kUnaligned,
               absl::StrCat("atomic at unaligned address 0x", absl::Hex(p.address[lane])));
        return;
      }
      uint8_t* host = w.Host(p.address[lane], sizeof(T), true);
      if (host == nullptr) {
        if (w.state == WaveState::kRunning) w.Stop(StopReason::kMemoryFault, "atomic across pages");
        return;
      }
      T* at = reinterpret_cast<T*>(host);
      old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
      T now;
      do {
        now = f(old, lane);
      } while (
          !__atomic_compare_exchange_n(at, &old, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    }
    if (op.inst.sc0) atomic::PutLane<T>(w.v + op.d.offset, lane, old);
  });
}
template <class T, T (*F)(T, T)>
void Atomic(Wave& w, const Op& op) {
  const uint32_t* s = w.v + op.b.offset;
  Rmw<T>(w, op, [s](T old, int lane) { return F(old, atomic::Lane<T>(s, lane)); });
}
// Data: the new value, then the comparand.
template <class T>
void CompareSwap(Wave& w, const Op& op) {
  const uint32_t* s = w.v + op.b.offset;
  // MUBUF's result overwrites its data: take it before.
  T value[kLanes], compare[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    value[i] = atomic::Lane<T>(s, i);
    compare[i] = atomic::Lane<T>(s + sizeof(T) / 4 * kLanes, i);
  }
  Rmw<T>(w, op, [&](T old, int lane) { return old == compare[lane] ? value[lane] : old; });
}

// Caches are not modelled here: memory is always coherent.
void CacheMaintenance(Wave&, const Op&) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

constexpr Descriptor L(const char* name, Run run, uint16_t implicit = 0) {
  return {name,
          run,
          {Type::kB32, Type::kB32, Type::kB32, Type::kB32},
          Origin::kManual,
          static_cast<uint16_t>(kReadsExec | implicit)};
}
using u32 = uint32_t;
using u64 = uint64_t;
#define MEMORY(p)                                                                     \
  L(p "load_dwordx2", &Load<2>), L(p "load_dwordx3", &LoadMaybeLds<u32, -1, u32, 3>), \
      L(p "store_dword", &Store<1>), L(p "store_dwordx2", &Store<2>),                 \
      L(p "store_dwordx3", &Store<3>), L(p "store_dwordx4", &Store<4>),               \
      L(p "store_byte", &StoreSmall<uint8_t, false>),                                 \
      L(p "store_byte_d16_hi", &StoreSmall<uint8_t, true>),                           \
      L(p "store_short", &StoreSmall<uint16_t, false>),                               \
      L(p "store_short_d16_hi", &StoreSmall<uint16_t, true>),                         \
      L(p "load_ubyte_d16", &LoadSmall<uint8_t, 1>, kReadsDst),                       \
      L(p "load_ubyte_d16_hi", &LoadSmall<uint8_t, 2>, kReadsDst),                    \
      L(p "load_sbyte_d16", &LoadSmall<int8_t, 1>, kReadsDst),                        \
      L(p "load_sbyte_d16_hi", &LoadSmall<int8_t, 2>, kReadsDst),                     \
      L(p "load_short_d16", &LoadSmall<uint16_t, 1>, kReadsDst),                      \
      L(p "load_short_d16_hi", &LoadSmall<uint16_t, 2>, kReadsDst),                   \
      L(p "load_ubyte", &LoadMaybeLds<uint8_t, 0, uint8_t, 1>),                       \
      L(p "load_sbyte", &LoadMaybeLds<int8_t, 0, int8_t, 1>),                         \
      L(p "load_ushort", &LoadMaybeLds<uint16_t, 0, uint16_t, 1>),                    \
      L(p "load_sshort", &LoadMaybeLds<int16_t, 0, int16_t, 1>),                      \
      L(p "load_dword", &LoadMaybeLds<u32, -1, u32, 1>),                              \
      L(p "load_dwordx4", &LoadMaybeLds<u32, -1, u32, 4>)
#define TO_LDS(p)                                                \
  L(p "load_lds_ubyte", &LoadToLds<uint8_t, 1>, kReadsM0),       \
      L(p "load_lds_sbyte", &LoadToLds<int8_t, 1>, kReadsM0),    \
      L(p "load_lds_ushort", &LoadToLds<uint16_t, 1>, kReadsM0), \
      L(p "load_lds_sshort", &LoadToLds<int16_t, 1>, kReadsM0),  \
      L(p "load_lds_dword", &LoadToLds<u32, 1>, kReadsM0),       \
      L(p "load_lds_dwordx3", &LoadToLds<u32, 3>, kReadsM0),     \
      L(p "load_lds_dwordx4", &LoadToLds<u32, 4>, kReadsM0)
#define ATOMIC(p, text, F) \
  L(p "atomic_" text, &Atomic<u32, F<u32>>), L(p "atomic_" text "_x2", &Atomic<u64, F<u64>>)
#define ATOMICS(p)                                                                               \
  ATOMIC(p, "swap", atomic::Swap), ATOMIC(p, "add", atomic::Add), ATOMIC(p, "sub", atomic::Sub), \
      ATOMIC(p, "smin", atomic::SMin), ATOMIC(p, "umin", atomic::UMin),                          \
      ATOMIC(p, "smax", atomic::SMax), ATOMIC(p, "umax", atomic::UMax),                          \
      ATOMIC(p, "and", atomic::And), ATOMIC(p, "or", atomic::Or), ATOMIC(p, "xor", atomic::Xor), \
      ATOMIC(p, "inc", atomic::Inc), ATOMIC(p, "dec", atomic::Dec),                              \
      L(p "atomic_cmpswap", &CompareSwap<u32>), L(p "atomic_cmpswap_x2", &CompareSwap<u64>),     \
      L(p "atomic_add_f32", &Atomic<u32, atomic::FAdd<u32>>),                                    \
      L(p "atomic_add_f64", &Atomic<u64, atomic::FAdd<u64>>),                                    \
      L(p "atomic_min_f64", &Atomic<u64, atomic::FMin<u64>>),                                    \
      L(p "atomic_max_f64", &Atomic<u64, atomic::FMax<u64>>),                                    \
      L(p "atomic_pk_add_f16", &Atomic<u32, atomic::PkAddF16>),                                  \
      L(p "atomic_pk_add_bf16", &Atomic<u32, atomic::PkAddBf16>)
constexpr Descriptor kTable[] = {
    MEMORY("global_"),
    MEMORY("flat_"),
    MEMORY("scratch_"),
    MEMORY("buffer_"),
    TO_LDS("global_"),
    TO_LDS("scratch_"),
    ATOMICS("global_"),
    ATOMICS("flat_"),
    ATOMICS("buffer_"),
    L("buffer_inv", &CacheMaintenance),
    L("buffer_wbl2", &CacheMaintenance),
};
#undef MEMORY
#undef TO_LDS
#undef ATOMIC
#undef ATOMICS

}  // namespace

void AddVmem(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
