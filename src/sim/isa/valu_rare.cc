// SPDX-License-Identifier: MIT
//
// VALU instructions of video and graphics origin that no compiler emits on its own: sums of
// absolute differences over bytes, packed accumulation of bytes. One lane at a time.
#include <cmath>

#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"

namespace mainarch::sim::isa {
namespace {

void Put(Wave& w, const Op& op, const uint32_t* rows, int dwords, uint64_t mask) {
  for (; mask != 0; mask &= mask - 1) {
    const int lane = __builtin_ctzll(mask);
    for (int k = 0; k < dwords; ++k) w.v[op.d.offset + k * kLanes + lane] = rows[k * kLanes + lane];
  }
}

// Masked: bytes of the reference that are zero do not count.
uint32_t Sad(uint32_t x, uint32_t reference, bool masked) {
  uint32_t sum = 0;
  for (int k = 0; k < 4; ++k) {
    const int a = static_cast<int>(x >> (8 * k) & 255),
              b = static_cast<int>(reference >> (8 * k) & 255);
    if (!masked || b != 0) sum += static_cast<uint32_t>(a > b ? a - b : b - a);
  }
  return sum;
}

// Four sums over windows of `a` that move by a byte, each added to its part of `c`.
template <bool kMasked, int kBits>
void QuadSad(Wave& w, const Op& op) {
  uint32_t a[2 * kLanes], b[kLanes], c[4 * kLanes], r[4 * kLanes] = {};
  uint64_t mask = w.exec();
  PrepareSource(w, op, 0, Type::kB64, a, &mask);
  PrepareSource(w, op, 1, Type::kB32, b, &mask);
  if (kBits == 16) {
    PrepareSource(w, op, 2, Type::kB64, c, &mask);
  } else {
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < kLanes; ++i) {
        c[k * kLanes + i] = op.c.kind == Ref::kVector   ? w.v[op.c.offset + k * kLanes + i]
                            : op.c.kind == Ref::kScalar ? w.s[op.c.code + k]
                            : k == 0                    ? static_cast<uint32_t>(op.c.value)
                                                        : 0;
      }
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t x = a[i] | uint64_t{a[kLanes + i]} << 32;
    for (int k = 0; k < 4; ++k) {
      const uint32_t sad = Sad(static_cast<uint32_t>(x >> (8 * k)), b[i], kMasked);
      if (kBits == 32) {
        r[k * kLanes + i] = c[k * kLanes + i] + sad;
        continue;
      }
      const uint32_t old = c[k / 2 * kLanes + i] >> (16 * (k % 2)) & 0xffff;
      r[k / 2 * kLanes + i] |= (old + sad > 0xffff ? 0xffff : old + sad) << (16 * (k % 2));
    }
  }
  Put(w, op, r, kBits == 16 ? 2 : 4, mask);
}

// One byte of the destination, which source b selects.
void PackAccumulate(Wave& w, const Op& op) {
  uint32_t a[kLanes], b[kLanes], r[kLanes];
  uint64_t mask = w.exec();
  PrepareSource(w, op, 0, Type::kF32, a, &mask);
  PrepareSource(w, op, 1, Type::kB32, b, &mask);
  for (int i = 0; i < kLanes; ++i) {
    const float x = std::nearbyint(__builtin_bit_cast(float, a[i]));
    const uint32_t byte = !(x > 0) ? 0 : x >= 255 ? 255 : static_cast<uint32_t>(x);
    const int shift = static_cast<int>(8 * (b[i] & 3));
    r[i] = (w.v[op.d.offset + i] & ~(255u << shift)) | byte << shift;
  }
  Put(w, op, r, 1, mask);
}

constexpr Descriptor kTable[] = {
    {"v_qsad_pk_u16_u8",
     &QuadSad<false, 16>,
     {Type::kB64, Type::kB32, Type::kB64, Type::kB64},
     Origin::kManual,
     kReadsExec},
    {"v_mqsad_pk_u16_u8",
     &QuadSad<true, 16>,
     {Type::kB64, Type::kB32, Type::kB64, Type::kB64},
     Origin::kManual,
     kReadsExec},
    {"v_mqsad_u32_u8",
     &QuadSad<true, 32>,
     {Type::kB64, Type::kB32, Type::kB32, Type::kB32},
     Origin::kManual,
     kReadsExec},
    {"v_cvt_pkaccum_u8_f32",
     &PackAccumulate,
     {Type::kF32, Type::kB32, Type::kNone, Type::kB32},
     Origin::kManual,
     kReadsExec | kReadsDst},
};

}  // namespace

void AddValuRare(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
