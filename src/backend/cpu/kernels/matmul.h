// SPDX-License-Identifier: MIT
//
// Panels times activation rows, with fp32 or bf16 activations. The order of additions along K is the
// same for one row and for many: within a scale group or part, in order of the columns (with fp32
// activations even and odd ones apart, added at its end); groups are scaled and added in order; parts
// are added in a binary tree.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_
#define MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_

#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/simd/simd.h"
#include "kernels/common/tree.h"  // nothing of it is left to be linked

namespace mainarch::cpu::MAINARCH_TARGET {

// Formats: how many columns a step holds, how to decode one, how to load a group's scales, and, where
// kMin says so, its addends. kCodes: what codes of up to six bits stand for.
// kGroup16: columns of a scale are 16, not a multiple of 32.
struct Unscaled {
  static constexpr bool kScaled = false, kMin = false, kFetch = false, kGroup16 = false;
  static constexpr const uint16_t* kCodes = kTables.fp4;
  static inline V Scale(const uint8_t*, int64_t) { return Zero(); }
  static inline V Addend(const uint8_t*, int64_t) { return Zero(); }
};
struct Scaled {
  static constexpr bool kScaled = true, kMin = false, kFetch = true, kGroup16 = false;
  static constexpr const uint16_t* kCodes = kTables.fp4;
  static inline V Addend(const uint8_t*, int64_t) { return Zero(); }
};
template <class F>
static inline DecodeTables TablesOf() {
  return LoadTables(kTables.fp8_high, kTables.fp8_low, F::kCodes);
}

struct FormatBF16 : Unscaled {
  static constexpr int kCols = quant::InfoOf(PanelFormat::kBF16).step_cols;
  static constexpr int kBytes = quant::InfoOf(PanelFormat::kBF16).step_bytes;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeBF16(p, w); }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables&, Pairs* w) { *w = LoadPairs(p); }
#endif
};
struct FormatF16 : Unscaled {
  static constexpr int kCols = quant::InfoOf(PanelFormat::kF16).step_cols;
  static constexpr int kBytes = quant::InfoOf(PanelFormat::kF16).step_bytes;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeF16(p, w); }
};
struct FormatF32 : Unscaled {
  static constexpr int kCols = quant::InfoOf(PanelFormat::kF32).step_cols;
  static constexpr int kBytes = quant::InfoOf(PanelFormat::kF32).step_bytes;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeF32(p, w); }
};
struct FormatFp8 : Scaled {
  static constexpr int kCols = quant::InfoOf(PanelFormat::kFp8).step_cols;
  static constexpr int kBytes = quant::InfoOf(PanelFormat::kFp8).step_bytes;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) { DecodeFp8(p, t, w); }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables& t, Pairs* w) {
    DecodeFp8Pairs(p, t, w);
  }
#endif
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return Load(reinterpret_cast<const float*>(scales) + 16 * group);
  }
};
struct FormatMxfp4 : Scaled {
  static constexpr int kCols = quant::InfoOf(PanelFormat::kMxfp4).step_cols;
  static constexpr int kBytes = quant::InfoOf(PanelFormat::kMxfp4).step_bytes;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) { DecodeFp4(p, t, w); }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables& t, Pairs* w) {
    DecodeFp4Pairs(p, t, w);
  }
#endif
  static inline V Scale(const uint8_t* scales, int64_t group) { return LoadE8M0(scales + 16 * group); }
};

// Codes of the formats below, and what is shared by 32 columns in fp16.
template <PanelFormat kFormat>
struct Blocks : Scaled {
  static constexpr int kCols = quant::InfoOf(kFormat).step_cols;
  static constexpr int kBytes = quant::InfoOf(kFormat).step_bytes;
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return LoadF16(reinterpret_cast<const uint16_t*>(scales) + 16 * group);
  }
};
struct FormatInt8 : Blocks<PanelFormat::kInt8> {
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeInt8(p, w); }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables&, Pairs* w) {
    V of[kCols];
    DecodeInt8(p, of);
    PairsOfF32(of, kCols / 2, w);
  }
#endif
};
struct FormatInt8Row : FormatInt8 {
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return Load(reinterpret_cast<const float*>(scales) + 16 * group);
  }
};
// Four bits, as mxfp4 has them.
template <PanelFormat kFormat>
struct Nibbles : Blocks<kFormat> {
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) { DecodeFp4(p, t, w); }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables& t, Pairs* w) {
    DecodeFp4Pairs(p, t, w);
  }
#endif
};
struct FormatInt4 : Nibbles<PanelFormat::kInt4> {
  static constexpr const uint16_t* kCodes = kTables.int4;
};
struct FormatIq4Nl : Nibbles<PanelFormat::kIq4Nl> {
  static constexpr const uint16_t* kCodes = kTables.iq4nl;
};
// Codes less kLess.
template <PanelFormat kFormat, int kLess = 0>
struct FiveBits : Blocks<kFormat> {
  static constexpr const uint16_t* kCodes = kLess == 0 ? kTables.uint5 : kTables.int5;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) {
    DecodeUint5<kLess>(p, t, w);
  }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables& t, Pairs* w) {
    DecodeUint5Pairs(p, t, w);
  }
#endif
};
struct FormatQ5_0 : FiveBits<PanelFormat::kQ5_0, 16> {};
// With an addend, which lies behind the scale.
template <class Codes>
struct WithAddend : Codes {
  static constexpr bool kMin = true;
  static inline V Scale(const uint8_t* scales, int64_t group) { return Codes::Scale(scales, 2 * group); }
  static inline V Addend(const uint8_t* scales, int64_t group) {
    return Codes::Scale(scales, 2 * group + 1);
  }
};
struct FormatQ4_1 : WithAddend<Nibbles<PanelFormat::kQ4_1>> {
  static constexpr const uint16_t* kCodes = kTables.uint4;
};
struct FormatQ5_1 : WithAddend<FiveBits<PanelFormat::kQ5_1>> {};
struct FormatInt4Min : Nibbles<PanelFormat::kInt4Min> {
  static constexpr const uint16_t* kCodes = kTables.uint4;
  static constexpr bool kMin = true;
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return Load(reinterpret_cast<const float*>(scales) + 32 * group);
  }
  static inline V Addend(const uint8_t* scales, int64_t group) {
    return Load(reinterpret_cast<const float*>(scales) + 32 * group + 16);
  }
};
// Factors of what 256 columns share.
template <class Codes>
struct WithFactors : Codes {
  static constexpr bool kMin = true;
  static inline V Of(const uint8_t* scales, int64_t group, int which) {
    const uint8_t* block = scales + group / 8 * quant::kKPanelBytes;
    return Mul(LoadF16(reinterpret_cast<const uint16_t*>(block) + 16 * which),
               LoadU8(block + 64 + group % 8 * 32 + 16 * which));
  }
  static inline V Scale(const uint8_t* scales, int64_t group) { return Of(scales, group, 0); }
  static inline V Addend(const uint8_t* scales, int64_t group) { return Of(scales, group, 1); }
};
struct FormatQ4K : WithFactors<Nibbles<PanelFormat::kQ4K>> {
  static constexpr const uint16_t* kCodes = kTables.uint4;
};
struct FormatQ5K : WithFactors<FiveBits<PanelFormat::kQ5K>> {};
struct FormatNvfp4 : Nibbles<PanelFormat::kNvfp4> {
  static constexpr bool kGroup16 = true;
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return Mul(LoadFp8(scales + 64 + 16 * group), Load(reinterpret_cast<const float*>(scales)));
  }
};
struct FormatQ6K : Blocks<PanelFormat::kQ6K> {
  static constexpr const uint16_t* kCodes = kTables.int6;
  static constexpr bool kGroup16 = true;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) {
    DecodeInt6(p, kCodes, t, w);
  }
#if defined(MAINARCH_PAIRS)
  static inline void DecodePairs(const uint8_t* p, const DecodeTables& t, Pairs* w) {
    DecodeInt6Pairs(p, kCodes, t, w);
  }
#endif
  static inline V Scale(const uint8_t* scales, int64_t group) {
    const uint8_t* block = scales + group / 16 * quant::kQ6KPanelBytes;
    return Mul(LoadF16(reinterpret_cast<const uint16_t*>(block)), LoadI8(block + 32 + group % 16 * 16));
  }
};

// What lies `ahead` bytes further on, or, the sum having wrapped round, before: no pointer into any one array.
static inline __attribute__((always_inline)) void FetchAhead(const uint8_t* p, size_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead));
}

// (Inlined early, or else gcc takes the call for one without effects.)
template <int kBytes>
static inline __attribute__((always_inline)) void Prefetch(const uint8_t* p, size_t ahead) {
  if (ahead == 0) return;  // known when this is compiled
  for (int i = 0; i < kBytes; i += 64) FetchAhead(p, ahead + static_cast<size_t>(i));
}

// How many bytes ahead of what is read of a panel is fetched: of columns before `split` `near`, of the others `far`.
// 0: nothing.
struct Ahead {
  size_t near = 0, far = 0;
  int64_t split = 0;

  Ahead() = default;
  // What is read next lies `next` bytes further on (0: nothing, or that is not known). near: MatmulArgs::near, shared
  // by `panels` that are read at a time; beyond a panel's end comes the next one's begin.
  Ahead(const Panels& w, size_t next, size_t near_bytes, int panels) : near(next), far(next) {
    if (near_bytes == 0) return;
    const size_t reach = near_bytes / static_cast<size_t>(panels), size = w.scale_offset;
    if (reach >= size) return;
    near = reach;
    far = next == 0 ? 0 : next + reach - size;
    split = w.cols * static_cast<int64_t>(size - reach) / static_cast<int64_t>(size);
  }
  inline __attribute__((always_inline)) size_t At(int64_t k) const { return k < split ? near : far; }
};

#if defined(MAINARCH_PAIRS)
// A panel that was decoded to bf16 once for many rows; its scales are still those of F.
template <class F>
struct Decoded : FormatBF16 {
  static constexpr bool kScaled = F::kScaled, kMin = F::kMin;
  static inline V Scale(const uint8_t* scales, int64_t group) { return F::Scale(scales, group); }
  static inline V Addend(const uint8_t* scales, int64_t group) { return F::Addend(scales, group); }
};
#endif

// How a step of panels meets activations. X is the type of an activation; kApart<MR>: MR rows take
// one panel after the other. At: column k of row m.

// fp32 activations, multiply-add; even and odd columns are two chains.
template <class F, class Layout>
struct Fp32Of : F {
  using X = float;
  // One row: one panel after the other is one stream. Panels of 2^n columns lie a power of two apart,
  // and streams so placed meet in the same banks of the memory. Rows by columns share what decoding
  // costs, and have chains enough.
  template <int MR>
  static constexpr bool kApart = Layout::kByColumns || (MR == 1 && !F::kFetch);

  // Columns [k0, k1) of NP panels against MR rows: sum[p * MR + m], unscaled, and where the format has
  // addends the sums of the rows themselves, xsum[m].
  template <int MR, int NP>
  static inline __attribute__((always_inline)) void DotRange(const uint8_t* const* panel,
                                                             const float* const* x, int64_t k0,
                                                             int64_t k1, const DecodeTables& tables,
                                                             const Ahead& ahead, V* sum, V* xsum) {
    V acc[NP * MR][2];
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) acc[i][0] = acc[i][1] = Zero();
    V xacc[MR][2];
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) xacc[m][0] = xacc[m][1] = Zero();
    const int64_t first = k0 / F::kCols, last = k1 / F::kCols;
    for (int64_t step = first; step < last; ++step) {
      MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
        V w[F::kCols];
        Prefetch<F::kBytes>(panel[p] + step * F::kBytes, ahead.At(step * F::kCols));
        F::Decode(panel[p] + step * F::kBytes, tables, w);
        MAINARCH_UNROLL for (int c = 0; c < F::kCols; ++c) {
          MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
            V& a = acc[p * MR + m][c & 1];
            const V column = Set(Layout::At(x, m, step * F::kCols + c));
            a = Fma(w[c], column, a);
            if (F::kMin && p == 0) xacc[m][c & 1] = Add(xacc[m][c & 1], column);
          }
        }
      }
    }
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Add(acc[i][0], acc[i][1]);
    if (!F::kMin) return;
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) xsum[m] = Add(xacc[m][0], xacc[m][1]);
  }
};

struct ByRows {
  static constexpr bool kByColumns = false;
  static inline float At(const float* const* x, int m, int64_t k) { return x[m][k]; }
};
template <class F>
using Fp32 = Fp32Of<F, ByRows>;

// MatmulArgs::columns is all of x.
struct ByColumns {
  static constexpr bool kByColumns = true;
  static inline float At(const float* const* x, int m, int64_t k) {
    return x[0][k * kMaxBlockRows + m];
  }
};
template <class F>
using Fp32Columns = Fp32Of<F, ByColumns>;

#if defined(MAINARCH_BF16_DOT)
// bf16 activations, dot products of column pairs; one chain.
template <class F>
struct Bf16 : F {
  using X = uint16_t;
  template <int MR>
  static constexpr bool kApart = MR == 1 && !F::kFetch;

  template <int MR, int NP>
  static inline __attribute__((always_inline)) void DotRange(const uint8_t* const* panel,
                                                             const uint16_t* const* x, int64_t k0,
                                                             int64_t k1, const DecodeTables& tables,
                                                             const Ahead& ahead, V* sum, V* xsum) {
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Zero();
    if (F::kMin) {
      MAINARCH_UNROLL for (int m = 0; m < MR; ++m) xsum[m] = Zero();
    }
    const int64_t first = k0 / F::kCols, last = k1 / F::kCols;
    for (int64_t step = first; step < last; ++step) {
      Pairs w[NP][F::kCols / 2];
      MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
        Prefetch<F::kBytes>(panel[p] + step * F::kBytes, ahead.At(step * F::kCols));
        F::DecodePairs(panel[p] + step * F::kBytes, tables, w[p]);
      }
      MAINARCH_UNROLL for (int c = 0; c < F::kCols / 2; ++c) {
        MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
          const Pairs pair = SetPair(x[m] + step * F::kCols + 2 * c);
          if (F::kMin) xsum[m] = DotPairs(xsum[m], Ones(), pair);
          MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
            sum[p * MR + m] = DotPairs(sum[p * MR + m], w[p][c], pair);
          }
        }
      }
    }
  }
};
#endif

// One K part: the sum over its scale groups. scales[p]: the scales of panel p.
template <class M, int MR, int NP>
static inline __attribute__((always_inline)) void DotPart(const Panels& w,
                                                          const uint8_t* const* panel,
                                                          const uint8_t* const* scales,
                                                          const typename M::X* const* x, int64_t k0,
                                                          int64_t k1, const DecodeTables& tables,
                                                          const Ahead& ahead, V* sum) {
  if (!M::kScaled) {
    M::template DotRange<MR, NP>(panel, x, k0, k1, tables, ahead, sum, nullptr);
    return;
  }
  MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Zero();
  int64_t group = (k0 + w.group_offset) / w.group_cols;
  int64_t end = (group + 1) * w.group_cols - w.group_offset;
  for (int64_t k = k0; k < k1; ++group, k = end, end += w.group_cols) {
    V dot[NP * MR], xsum[MR];
    M::template DotRange<MR, NP>(panel, x, k, end < k1 ? end : k1, tables, ahead, dot, xsum);
    MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
      const V scale = M::Scale(scales[p], group);
      MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
        sum[p * MR + m] = Fma(dot[p * MR + m], scale, sum[p * MR + m]);
      }
      if (!M::kMin) continue;
      const V addend = M::Addend(scales[p], group);
      MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
        sum[p * MR + m] = Fma(xsum[m], addend, sum[p * MR + m]);
      }
    }
  }
}

// Part `part`, as M adds it: kPieces, by itself.
template <class M, int MR, int NP>
static inline __attribute__((always_inline)) void AddPart(const Panels& w,
                                                          const uint8_t* const* panel,
                                                          const uint8_t* const* scales,
                                                          const typename M::X* const* x, int part,
                                                          const DecodeTables& tables, const Ahead& ahead,
                                                          V* sum) {
  if constexpr (requires { M::kPieces; }) {
    M::template Part<MR, NP>(w, panel, scales, x, part, ahead, sum);
  } else {
    DotPart<M, MR, NP>(w, panel, scales, x, w.bounds[part], w.bounds[part + 1], tables, ahead, sum);
  }
}

// Adds the parts as they come in a fixed binary tree, like carries in a binary counter.
template <int N>
struct Tree {
  V level[4][N];  // log2(kMaxParts) + 1 levels
  int count = 0;

  // Where part is registers still: one pass, whatever it carries.
  inline __attribute__((always_inline)) void Push(const V* part) {
    const uint32_t carries = kernels::TreeCarries(static_cast<uint32_t>(count));
    ++count;
    switch (carries) {
      case 0:
        MAINARCH_UNROLL for (int i = 0; i < N; ++i) level[0][i] = part[i];
        return;
      case 1:
        MAINARCH_UNROLL for (int i = 0; i < N; ++i) level[1][i] = Add(level[0][i], part[i]);
        return;
      case 2:
        MAINARCH_UNROLL for (int i = 0; i < N; ++i) {
          level[2][i] = Add(level[1][i], Add(level[0][i], part[i]));
        }
        return;
      default:
        static_assert(kMaxParts == 8);
        MAINARCH_UNROLL for (int i = 0; i < N; ++i) {
          level[3][i] = Add(level[2][i], Add(level[1][i], Add(level[0][i], part[i])));
        }
    }
  }
  // With scales sums lie in memory anyway, and plain loops leave the registers to what is summed next.
  inline void PushStored(const V* part) {
    V carry[N];
    for (int i = 0; i < N; ++i) carry[i] = part[i];
    const uint32_t carries = kernels::TreeCarries(static_cast<uint32_t>(count));
    for (uint32_t at = 0; at < carries; ++at) {
      for (int i = 0; i < N; ++i) carry[i] = Add(level[at][i], carry[i]);
    }
    for (int i = 0; i < N; ++i) level[carries][i] = carry[i];
    ++count;
  }
  // After a power of two of parts, their sum is alone at its level.
  inline const V* Sum() const { return level[count == 1 ? 0 : count == 2 ? 1 : count == 4 ? 2 : 3]; }
};

template <class M, int MR, int NP>
static inline __attribute__((always_inline)) void DotAll(const Panels& w,
                                                         const uint8_t* const* panel,
                                                         const uint8_t* const* scales,
                                                         const typename M::X* const* x,
                                                         const DecodeTables& tables, const Ahead& ahead,
                                                         V* sum) {
  if (w.parts == 1) {
    AddPart<M, MR, NP>(w, panel, scales, x, 0, tables, ahead, sum);
    return;
  }
  Tree<NP * MR> tree;
  for (int part = 0; part < w.parts; ++part) {
    V y[NP * MR];
    AddPart<M, MR, NP>(w, panel, scales, x, part, tables, ahead, y);
    M::kScaled ? tree.PushStored(y) : tree.Push(y);
  }
  for (int i = 0; i < NP * MR; ++i) sum[i] = tree.Sum()[i];
}

// The scale group of a column, and where it ends.
struct Groups {
  int64_t index, end, cols;

  Groups(const Panels& w, int64_t k)
      : index((k + w.group_offset) / w.group_cols), end((index + 1) * w.group_cols - w.group_offset), cols(w.group_cols) {}
  void Next() {
    ++index;
    end += cols;
  }
};

// Sums of all parts of K, in the fixed tree, like carries in a binary counter: make(part) makes a part's, add(i) adds them to
// what keep(i) has kept of those on their left: i 0, 1 and 2 of 1, 2 and 4 parts, which wait for their like.
template <class Make, class AddTo, class Keep>
static inline __attribute__((always_inline)) void AddParts(int parts, const Make& make, const AddTo& add, const Keep& keep) {
  static_assert(kMaxParts == 8);
  for (int part = 0; part < parts; ++part) {
    make(part);
    int at = 0;
    for (; (part >> at & 1) != 0; ++at) add(at);
    if (part + 1 < parts) keep(at);
  }
}

// run<F>() with the format's F: of those of blocks.
template <class Run>
static inline void WithBlockFormat(PanelFormat format, const Run& run) {
  switch (format) {
    case PanelFormat::kInt8:
      return run.template operator()<FormatInt8>();
    case PanelFormat::kInt4:
      return run.template operator()<FormatInt4>();
    case PanelFormat::kIq4Nl:
      return run.template operator()<FormatIq4Nl>();
    case PanelFormat::kInt4Min:
      return run.template operator()<FormatInt4Min>();
    case PanelFormat::kQ4_1:
      return run.template operator()<FormatQ4_1>();
    case PanelFormat::kQ5_0:
      return run.template operator()<FormatQ5_0>();
    case PanelFormat::kQ5_1:
      return run.template operator()<FormatQ5_1>();
    case PanelFormat::kQ4K:
      return run.template operator()<FormatQ4K>();
    case PanelFormat::kQ5K:
      return run.template operator()<FormatQ5K>();
    case PanelFormat::kQ6K:
      return run.template operator()<FormatQ6K>();
    case PanelFormat::kNvfp4:
      return run.template operator()<FormatNvfp4>();
    case PanelFormat::kInt8Row:
      return run.template operator()<FormatInt8Row>();
    default:
      return;
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_
