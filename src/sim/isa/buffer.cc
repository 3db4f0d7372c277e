// SPDX-License-Identifier: MIT
//
// MUBUF's and MTBUF's formatted loads and stores, and the addresses of buffer resources.
#include "sim/isa/buffer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"

namespace mainarch::sim::isa {

BufferResource::BufferResource(const uint32_t w[4])
    : base(w[0] | uint64_t{w[1] & 0xffff} << 32),
      stride(w[1] >> 16 & 0x3fff),
      records(w[2]),
      index_stride(8u << (w[3] >> 21 & 3)),
      swizzled(w[1] >> 31 & 1),
      add_tid(w[3] >> 23 & 1),
      select{static_cast<uint8_t>(w[3] & 7), static_cast<uint8_t>(w[3] >> 3 & 7),
             static_cast<uint8_t>(w[3] >> 6 & 7), static_cast<uint8_t>(w[3] >> 9 & 7)},
      number_format(w[3] >> 12 & 7),
      data_format(w[3] >> 15 & 15) {
  // With the thread's number in the index the data format is the stride's upper part.
  if (add_tid) stride |= uint32_t{data_format} << 14;
}

BufferPlace PlaceOf(const BufferResource& r, bool has_index, uint64_t index, uint64_t offset,
                    uint32_t scalar, int lane, uint32_t bytes) {
  constexpr uint64_t kElement = 4;  // bytes that stay together when swizzled
  if (r.add_tid) index += static_cast<uint64_t>(lane);
  const bool structured = r.stride != 0 && (has_index || r.add_tid);
  // What crosses from one element into the next is outside of a swizzled buffer only: products of ROCm/aiter
  // store 16 bytes through a stride of 4, which is right on silicon.
  const bool outside = structured ? index >= r.records || (r.swizzled && offset + bytes > r.stride)
                                  : scalar + offset + bytes > r.records;
  if (!r.swizzled) return {r.base + scalar + offset + index * r.stride, outside};
  const uint64_t high = index / r.index_stride, low = index % r.index_stride;
  const uint64_t at = (high * r.stride + offset / kElement * kElement) * r.index_stride +
                      low * kElement + offset % kElement;
  return {r.base + scalar + at, outside};
}

namespace {

// Bits of each component of a data format, x lowest in memory; its bytes. Names count from the top.
struct Layout {
  uint8_t bits[4];
  uint8_t bytes;
};
constexpr Layout kLayouts[16] = {
    {{}, 0},
    {{8}, 1},
    {{16}, 2},
    {{8, 8}, 2},
    {{32}, 4},
    {{16, 16}, 4},
    {{11, 11, 10}, 4},
    {{10, 11, 11}, 4},
    {{2, 10, 10, 10}, 4},
    {{10, 10, 10, 2}, 4},
    {{8, 8, 8, 8}, 4},
    {{32, 32}, 8},
    {{16, 16, 16, 16}, 8},
    {{32, 32, 32}, 12},
    {{32, 32, 32, 32}, 16},
    {{}, 0},
};
enum Number { kUnorm, kSnorm, kUscaled, kSscaled, kUint, kSint, kReserved, kFloat };
bool IsInteger(int number) { return number == kUint || number == kSint; }

uint32_t Bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// 11 and 10 bits: five of exponent, no sign.
float SmallFloat(uint32_t x, int bits) {
  const int mantissa = bits - 5;
  const uint32_t e = x >> mantissa, m = x & ((1u << mantissa) - 1);
  if (e == 31) return m != 0 ? std::nanf("") : INFINITY;
  return e == 0 ? std::ldexp(static_cast<float>(m), -14 - mantissa)
                : std::ldexp(static_cast<float>(m | 1u << mantissa),
                             static_cast<int>(e) - 15 - mantissa);
}
uint32_t ToSmallFloat(float x, int bits) {
  const int mantissa = bits - 5;
  const uint32_t infinity = 31u << mantissa;
  if (x != x) return infinity | 1;
  if (!(x > 0)) return 0;
  const uint32_t half = FloatToHalf(x);
  // From ten bits of mantissa to fewer, nearest even.
  const int cut = 10 - mantissa;
  const uint32_t rounded = (half + (1u << (cut - 1)) - 1 + (half >> cut & 1)) >> cut;
  return std::min(rounded, infinity);
}

uint32_t Decode(uint32_t x, int bits, int number) {
  const int32_t s = static_cast<int32_t>(x << (32 - bits)) >> (32 - bits);
  const double top = std::ldexp(1.0, bits), half = std::ldexp(1.0, bits - 1);
  switch (number) {
    case kUnorm:
      return Bits(static_cast<float>(x / (top - 1)));
    case kSnorm:
      return Bits(static_cast<float>(std::max(s / (half - 1), -1.0)));
    case kUscaled:
      return Bits(static_cast<float>(x));
    case kSscaled:
      return Bits(static_cast<float>(s));
    case kSint:
      return static_cast<uint32_t>(s);
    case kFloat:
      if (bits == 32) return x;
      if (bits == 16) return Bits(HalfToFloat(static_cast<uint16_t>(x)));
      return bits >= 10 ? Bits(SmallFloat(x, bits)) : x;
    default:
      return x;
  }
}

uint32_t Encode(uint32_t value, int bits, int number) {
  const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  const double x = __builtin_bit_cast(float, value), top = std::ldexp(1.0, bits),
               half = std::ldexp(1.0, bits - 1);
  const auto within = [](double v, double low, double high) {
    return v != v ? 0 : std::min(std::max(v, low), high);
  };
  switch (number) {
    case kUnorm:
      return static_cast<uint32_t>(std::nearbyint(within(x, 0, 1) * (top - 1))) & mask;
    case kSnorm:
      return static_cast<uint32_t>(
                 static_cast<int64_t>(std::nearbyint(within(x, -1, 1) * (half - 1)))) &
             mask;
    case kUscaled:
      return static_cast<uint32_t>(within(x, 0, top - 1)) & mask;
    case kSscaled:
      return static_cast<uint32_t>(static_cast<int64_t>(within(x, -half, half - 1))) & mask;
    case kUint:
      return std::min(value, mask);
    case kSint: {
      const double low = -half, high = half - 1;
      return static_cast<uint32_t>(
                 static_cast<int64_t>(within(static_cast<int32_t>(value), low, high))) &
             mask;
    }
    case kFloat:
      if (bits == 32) return value;
      if (bits == 16) return FloatToHalf(static_cast<float>(x));
      return bits >= 10 ? ToSmallFloat(static_cast<float>(x), bits) : value & mask;
    default:
      return value & mask;
  }
}

// Everything but the lane: what an instruction of this family does with which format.
struct Access {
  Access(const Wave& w, const Op& op)
      : resource(&w.s[op.inst.Find('r')->code]),
        number(resource.number_format),
        data(resource.data_format) {
    if (op.inst.row->family == Family::kMtbuf) {
      data = op.inst.format & 15;
      number = op.inst.format >> 4 & 7;
      const uint8_t identity[4] = {4, 5, 6, 7};
      std::copy(identity, identity + 4, resource.select);
    }
    const uint16_t s = op.inst.soffset;
    scalar = s < 128    ? w.s[s]
             : s <= 192 ? s - 128u
                        : static_cast<uint32_t>(192 - static_cast<int>(s));
  }
  BufferPlace Place(const Wave& w, const Op& op, int lane) const {
    const Inst& inst = op.inst;
    const uint32_t* v = w.v + op.a.offset;
    const uint64_t index = inst.idxen ? v[lane] : 0;
    const uint64_t offset =
        (inst.offen ? v[(inst.idxen ? kLanes : 0) + lane] : 0) + static_cast<uint64_t>(inst.offset);
    return PlaceOf(resource, inst.idxen, index, offset, scalar, lane, kLayouts[data].bytes);
  }
  bool Usable(Wave& w) const {
    if (kLayouts[data].bytes != 0) return true;
    w.Stop(StopReason::kUnsupported, absl::StrCat("buffer data format ", int{data}));
    return false;
  }

  BufferResource resource;
  uint8_t number, data;
  uint32_t scalar = 0;
};

// With the lds bit the component goes to M0 + the instruction's offset + a dword a lane.
void ToLds(Wave& w, const Op& op, int lane, uint32_t x) {
  const uint32_t limit = w.group->isa == Isa::kGfx950 ? 0x3ffff : 0xffff;
  const uint64_t at = (w.s[reg::kM0] & limit) + static_cast<uint64_t>(int64_t{op.inst.offset}) +
                      4 * static_cast<uint64_t>(lane);
  std::vector<uint8_t>& lds = w.group->lds;
  if (at + 4 <= lds.size()) {
    std::memcpy(lds.data() + at, &x, 4);
  } else {
    w.Stop(StopReason::kAperture,
           absl::StrCat("load to lds address ", at, " outside ", lds.size(), " bytes"));
  }
}

// Narrow: 16-bit registers, two components a dword; kHigh: into the upper half of one.
template <int kCount, bool kNarrow, bool kHigh>
void LoadFormat(Wave& w, const Op& op) {
  const Access access(w, op);
  if (!access.Usable(w)) return;
  const Layout& layout = kLayouts[access.data];
  uint32_t* d = w.v + op.d.offset;
  for (uint64_t m = w.exec(); m != 0; m &= m - 1) {
    const int lane = __builtin_ctzll(m);
    const BufferPlace place = access.Place(w, op, lane);
    uint8_t bytes[16] = {};
    if (!place.outside && !w.Copy(place.address, layout.bytes, bytes, false)) return;
    const uint32_t one = IsInteger(access.number) ? 1 : Bits(1);
    uint32_t component[4] = {0, 0, 0, place.outside ? 0 : one};
    int at = 0;
    for (int k = 0; k < 4 && layout.bits[k] != 0 && !place.outside; ++k) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at / 32 * 4, 4);
      const uint32_t mask = layout.bits[k] == 32 ? ~0u : (1u << layout.bits[k]) - 1;
      component[k] =
          Decode(static_cast<uint32_t>(word >> at % 32) & mask, layout.bits[k], access.number);
      at += layout.bits[k];
    }
    uint32_t out[4];
    for (int k = 0; k < kCount; ++k) {
      const int from = access.resource.select[k];
      out[k] = from >= 4 ? component[from - 4] : from == 1 && !place.outside ? one : 0;
      if (kNarrow && !IsInteger(access.number))
        out[k] = FloatToHalf(__builtin_bit_cast(float, out[k]));
    }
    if (op.inst.lds) {
      ToLds(w, op, lane, out[0]);
      continue;
    }
    for (int k = 0; k < kCount; ++k) {
      uint32_t& r = d[(kNarrow ? k / 2 : k) * kLanes + lane];
      if (!kNarrow)
        r = out[k];
      else if (kHigh || k % 2 == 1)
        r = (r & 0xffff) | out[k] << 16;
      else
        r = (r & 0xffff0000) | (out[k] & 0xffff);
    }
  }
}

template <int kCount, bool kNarrow, bool kHigh>
void StoreFormat(Wave& w, const Op& op) {
  const Access access(w, op);
  if (!access.Usable(w)) return;
  const Layout& layout = kLayouts[access.data];
  const uint32_t* s = w.v + op.b.offset;
  for (uint64_t m = w.exec(); m != 0; m &= m - 1) {
    const int lane = __builtin_ctzll(m);
    const BufferPlace place = access.Place(w, op, lane);
    if (place.outside) continue;
    uint32_t component[4] = {};
    for (int k = 0; k < kCount; ++k) {
      uint32_t x = s[(kNarrow ? k / 2 : k) * kLanes + lane];
      if (kNarrow) {
        x = kHigh || k % 2 == 1 ? x >> 16 : x & 0xffff;
        if (access.number == kSint)
          x = static_cast<uint32_t>(static_cast<int16_t>(x));
        else if (access.number != kUint)
          x = Bits(HalfToFloat(static_cast<uint16_t>(x)));
      }
      const int to = access.resource.select[k];
      if (to >= 4) component[to - 4] = x;
    }
    uint8_t bytes[16] = {};
    int at = 0;
    for (int k = 0; k < 4 && layout.bits[k] != 0; ++k) {
      const uint32_t x = Encode(component[k], layout.bits[k], access.number);
      uint32_t word;
      std::memcpy(&word, bytes + at / 32 * 4, 4);
      word |= x << at % 32;
      std::memcpy(bytes + at / 32 * 4, &word, 4);
      at += layout.bits[k];
    }
    if (!w.Copy(place.address, layout.bytes, bytes, true)) return;
  }
}

constexpr Descriptor B(const char* name, Run run, uint16_t implicit = 0) {
  return {name,
          run,
          {Type::kB32, Type::kB32, Type::kB32, Type::kB32},
          Origin::kManual,
          static_cast<uint16_t>(kReadsExec | implicit)};
}
#define FORMATS(p)                                                         \
  B(p "load_format_x", &LoadFormat<1, false, false>),                      \
      B(p "load_format_xy", &LoadFormat<2, false, false>),                 \
      B(p "load_format_xyz", &LoadFormat<3, false, false>),                \
      B(p "load_format_xyzw", &LoadFormat<4, false, false>),               \
      B(p "store_format_x", &StoreFormat<1, false, false>),                \
      B(p "store_format_xy", &StoreFormat<2, false, false>),               \
      B(p "store_format_xyz", &StoreFormat<3, false, false>),              \
      B(p "store_format_xyzw", &StoreFormat<4, false, false>),             \
      B(p "load_format_d16_x", &LoadFormat<1, true, false>, kReadsDst),    \
      B(p "load_format_d16_xy", &LoadFormat<2, true, false>, kReadsDst),   \
      B(p "load_format_d16_xyz", &LoadFormat<3, true, false>, kReadsDst),  \
      B(p "load_format_d16_xyzw", &LoadFormat<4, true, false>, kReadsDst), \
      B(p "store_format_d16_x", &StoreFormat<1, true, false>),             \
      B(p "store_format_d16_xy", &StoreFormat<2, true, false>),            \
      B(p "store_format_d16_xyz", &StoreFormat<3, true, false>),           \
      B(p "store_format_d16_xyzw", &StoreFormat<4, true, false>)
constexpr Descriptor kTable[] = {
    FORMATS("buffer_"),
    FORMATS("tbuffer_"),
    B("buffer_load_format_d16_hi_x", &LoadFormat<1, true, true>, kReadsDst),
    B("buffer_store_format_d16_hi_x", &StoreFormat<1, true, true>),
};
#undef FORMATS

}  // namespace

void AddBufferFormat(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
