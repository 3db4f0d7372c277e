// SPDX-License-Identifier: MIT
//
// Products of panels and rows by vectors, of any format: what matmul.cc and matmul_blocks.cc, which are
// compiled apart, make their functions of.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_H_
#define MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_H_

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/products.h"
#if defined(MAINARCH_TARGET_avx2) || defined(MAINARCH_TARGET_neon)
#include "backend/cpu/kernels/multiply_many.h"
#define MAINARCH_MANY_FLOATS
#endif

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// NP panels times MR rows; NP is even for gate-up. data[p] is panel p's columns, decoded or not.
// kStream: panels come from memory. What takes more instructions a byte than one row of bf16 leaves
// too few loads in flight to fill the memory's bandwidth, so while panels are read the next ones are
// fetched, or what comes soon (MatmulArgs::near).
template <class M, int MR, int NP, bool kStream>
void Block(const MatmulArgs& a, const uint8_t* const* data, const typename M::X* const* x,
           int64_t panel, int64_t row, const DecodeTables& tables) {
  // Of quarters, several rows' sums with one panel fill the registers.
  constexpr bool kApart = (kStream && M::template kApart<MR>) || (kQuarters && MR > 1);
  constexpr int kTogether = kApart ? 1 : NP;
  const uint8_t* scales[NP];
  for (int p = 0; p < NP; ++p) {
    scales[p] = a.w.data + static_cast<size_t>(panel + p) * a.w.stride + a.w.scale_offset;
  }
  V y[NP * MR];
  for (int p = 0; p < NP; p += kTogether) {
    Ahead ahead;
    if constexpr (kStream) {
      // What is read next: as many panels further on; after the last ones what the caller says; or these again.
      size_t next = kTogether * a.w.stride;
      if (panel + p + kTogether >= a.panel_end) {
        next = a.after == nullptr ? 0 : static_cast<size_t>(a.after - data[p]);
      }
      if (M::kFetch || MR > 1 || a.near != 0) {
        ahead = Ahead(a.w, next, a.near, kTogether);
        for (size_t at = 0; at < a.w.stride - a.w.scale_offset; at += 64) {
          for (int i = p; i < p + kTogether; ++i) FetchAhead(scales[i], next + at);
        }
      }
    }
    DotAll<M, MR, kTogether>(a.w, data + p, scales + p, x + row, tables, ahead, y + p * MR);
  }
  Finish<MR, NP>(a, panel, row, y);
}

// Rows behind the last whole block: in one of their number, or one by one. The latter compiles fewer
// shapes, and takes all weights as a stream.
enum class Rest { kTogether, kOneByOne };

// At most MR rows from `row` on, in one block.
template <class M, int MR, int NP, bool kStream>
void LastRows(const MatmulArgs& a, const uint8_t* const* data, const typename M::X* const* x,
              int64_t panel, int64_t row, const DecodeTables& tables) {
  if constexpr (MR > 0) {
    if (a.rows - row == MR) return Block<M, MR, NP, kStream>(a, data, x, panel, row, tables);
    LastRows<M, MR - 1, NP, kStream>(a, data, x, panel, row, tables);
  }
}

// NP panels against all rows, MR at a time.
template <class M, int MR, int NP, bool kStream, Rest kRest>
void Rows(const MatmulArgs& a, const uint8_t* const* data, const typename M::X* const* x,
          int64_t panel, const DecodeTables& tables) {
  int64_t row = 0;
  for (; row + MR <= a.rows; row += MR) Block<M, MR, NP, kStream>(a, data, x, panel, row, tables);
  if constexpr (kRest == Rest::kTogether) {
    LastRows<M, MR - 1, NP, kStream>(a, data, x, panel, row, tables);
  } else if constexpr (MR > 1) {
    for (; row < a.rows; ++row) Block<M, 1, NP, kStream>(a, data, x, panel, row, tables);
  }
}

template <class M, int MR, int NP, Rest kRest = Rest::kTogether>
void PanelsFrom(const MatmulArgs& a, const typename M::X* const* x, int64_t* panel,
                const DecodeTables& tables) {
  for (; *panel + NP <= a.panel_end; *panel += NP) {
    const uint8_t* data[NP];
    for (int p = 0; p < NP; ++p) data[p] = a.w.data + static_cast<size_t>(*panel + p) * a.w.stride;
    if constexpr (kRest == Rest::kTogether) {
      if (a.rows > kMaxBlockRows) {
        Rows<M, MR, NP, false, kRest>(a, data, x, *panel, tables);
        continue;
      }
    }
    Rows<M, MR, NP, true, kRest>(a, data, x, *panel, tables);
  }
}

// All panels, NP at a time as long as there are so many. Panels are the outer loop: one pass over
// the weights, however many rows.
template <class M, int MR, int NP>
void AllPanels(const MatmulArgs& a, const typename M::X* const* x, const DecodeTables& tables) {
  int64_t panel = a.panel_begin;
  PanelsFrom<M, MR, NP>(a, x, &panel, tables);
  if constexpr (NP > 2) PanelsFrom<M, MR, 2>(a, x, &panel, tables);
  if constexpr (NP > 1) PanelsFrom<M, MR, 1>(a, x, &panel, tables);
}

// More rows than this are worth decoding a panel for.
constexpr int64_t kFewRows = kMaxBlockRows;

#if defined(MAINARCH_PAIRS)
template <class F, int NP>
void DecodePanels(const MatmulArgs& a, int64_t panel, const DecodeTables& tables) {
  for (int p = 0; p < NP; ++p) {
    const uint8_t* from = a.w.data + static_cast<size_t>(panel + p) * a.w.stride;
    uint8_t* to = a.decoded + static_cast<size_t>(p * a.w.cols) * 32;
    for (int64_t step = 0; step < a.w.cols / F::kCols; ++step) {
      Pairs pairs[F::kCols / 2];
      F::DecodePairs(from + step * F::kBytes, tables, pairs);
      for (int c = 0; c < F::kCols / 2; ++c) {
        StorePairs(to + (step * F::kCols / 2 + c) * 64, pairs[c]);
      }
    }
  }
}

// NP panels at a time, decoded once. MR * NP chains hide the latency of a sum at two a cycle; with
// scales there are twice as many accumulators, of which one half is touched once a group.
template <class F, template <class> class M, int MR, int NP, Rest kRest = Rest::kTogether>
void ManyRows(const MatmulArgs& a, const typename M<F>::X* const* x, int64_t* panel,
              const DecodeTables& tables) {
  for (; *panel + NP <= a.panel_end; *panel += NP) {
    DecodePanels<F, NP>(a, *panel, tables);
    const uint8_t* data[NP];
    for (int p = 0; p < NP; ++p) data[p] = a.decoded + static_cast<size_t>(p * a.w.cols) * 32;
    Rows<M<Decoded<F>>, MR, NP, false, kRest>(a, data, x, *panel, tables);
  }
}
#endif

#if defined(MAINARCH_TARGET_avx512)
// Few rows by columns, MR of them computed.
template <class F, int MR>
void FewRows(const MatmulArgs& a, const DecodeTables& tables) {
  using M = Fp32Columns<F>;
  const auto run = [&]<int NP>(int64_t panel) {
    const uint8_t* data[NP];
    for (int p = 0; p < NP; ++p) data[p] = a.w.data + static_cast<size_t>(panel + p) * a.w.stride;
    Block<M, MR, NP, true>(a, data, &a.columns, panel, 0, tables);
  };
  int64_t panel = a.panel_begin;
  for (; panel + 2 <= a.panel_end; panel += 2) run.template operator()<2>(panel);
  if (panel < a.panel_end) run.template operator()<1>(panel);
}
#endif

// NP * MR * 2 accumulators stay in registers: 16 of the 32 of AVX-512; elsewhere a vector is two or
// four of 16 registers, or four of 32.
template <class F>
void Matmul(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<F>();
#if defined(MAINARCH_TARGET_avx512)
  if (a.rows == 1) return AllPanels<Fp32<F>, 1, 4>(a, a.x, tables);
  if (a.columns != nullptr && a.rows > 2 && a.rows <= kFewRows) {
    if (a.rows <= 4) return FewRows<F, 4>(a, tables);
    if (a.rows <= 6) return FewRows<F, 6>(a, tables);
    return FewRows<F, 8>(a, tables);
  }
  if constexpr (F::kScaled) {
    if (a.rows <= kFewRows || a.decoded == nullptr) {
      return AllPanels<Fp32<F>, 4, 2>(a, a.x, tables);
    }
    int64_t panel = a.panel_begin;
    ManyRows<F, Fp32, 4, 2>(a, a.x, &panel, tables);
    ManyRows<F, Fp32, 4, 1>(a, a.x, &panel, tables);
    return;
  }
  AllPanels<Fp32<F>, 4, 2>(a, a.x, tables);
#else
#if defined(MAINARCH_MANY_FLOATS)
  if (ManyFloats<F>::Takes(a)) return ManyFloats<F>(a).Run();
#endif
  AllPanels<Fp32<F>, 2, 2>(a, a.x, tables);
#endif
}

// Blocks of several rows: portable code gains nothing by them, and takes gcc minutes.
#if defined(MAINARCH_TARGET_avx512) || defined(MAINARCH_TARGET_avx2) || defined(MAINARCH_TARGET_neon)
constexpr bool kSharesDecoding = true;
#else
constexpr bool kSharesDecoding = false;
#endif

// MR rows of one expert against NP panels, slots of the scratch from `slot` on, part by part, added
// to each row's accumulators. What lies `next` bytes further on is read next.
template <class M, int MR, int NP>
void ExpertBlock(const ExpertsDownArgs& a, const typename M::X* act, const Panels& w,
                 const uint8_t* first, size_t next, const int32_t* entries, int slot,
                 const DecodeTables& tables) {
  const typename M::X* x[MR];
  constexpr bool kBytes = sizeof(typename M::X) == 1;
  for (int m = 0; m < MR; ++m) x[m] = act + entries[m] * (kBytes ? a.act8_stride : a.act_stride);
  const uint8_t* panel[NP];
  const uint8_t* scales[NP];
  for (int p = 0; p < NP; ++p) {
    panel[p] = first + static_cast<size_t>(p) * w.stride;
    scales[p] = panel[p] + w.scale_offset;
    for (size_t at = 0; at < w.stride - w.scale_offset; at += 64) {
      FetchAhead(scales[p], next + at);
    }
  }
  const Ahead ahead(w, next, a.near, NP);
  for (int part = 0; part < w.parts; ++part) {
    V y[NP * MR];
    AddPart<M, MR, NP>(w, panel, scales, x, part, tables, ahead, y);
    for (int m = 0; m < MR; ++m) {
      V of_row[NP];
      for (int p = 0; p < NP; ++p) of_row[p] = y[p * MR + m];
      AddToRow<NP>(a, entries[m], part, w.parts, slot, of_row);
    }
  }
}

// Few rows: as many panels at a time as keep the chains of sums busy; many: two, and four rows that
// share their decoding.
template <class M, int NP>
void ExpertPanelsOf(const ExpertsDownArgs& a, const typename M::X* act, int64_t panel,
                    const DecodeTables& tables) {
  ExpertPanels<NP>(a, panel, [&](const Panels& w, const uint8_t* here, size_t next,
                                 const int32_t* entry, int32_t count, int slot) {
    const int32_t* end = entry + count;
    constexpr int kPair = NP < 2 || kQuarters ? 1 : 2, kRows = kQuarters ? 2 : 4;
    if constexpr (kSharesDecoding) {
      for (; entry + kRows <= end; entry += kRows) {
        for (int p = 0; p < NP; p += kPair) {
          ExpertBlock<M, kRows, kPair>(a, act, w, here + static_cast<size_t>(p) * w.stride, next, entry,
                                   slot + p, tables);
        }
      }
    }
    for (; entry < end; ++entry) {
      ExpertBlock<M, 1, NP>(a, act, w, here, next, entry, slot, tables);
    }
  });
}

template <class M>
void ExpertsDown(const ExpertsDownArgs& a, const typename M::X* act) {
  const DecodeTables tables = TablesOf<M>();
#if defined(MAINARCH_TARGET_avx512)
  constexpr int kAtOnce = kExpertPanels;
#else
  constexpr int kAtOnce = 2;  // a vector is two or four registers
#endif
  static_assert(kExpertPanels % kAtOnce == 0);
  int64_t panel = a.panel_begin;
  for (; panel + kAtOnce <= a.panel_end; panel += kAtOnce) {
    ExpertPanelsOf<M, kAtOnce>(a, act, panel, tables);
  }
  for (; panel < a.panel_end; ++panel) ExpertPanelsOf<M, 1>(a, act, panel, tables);
}

#if defined(MAINARCH_BF16_DOT)
template <class F>
void MatmulBF16(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<F>();
  using M = Bf16<F>;
  if constexpr (kQuarters) {
    if (a.rows == 1) return AllPanels<M, 1, 2>(a, a.x16, tables);
    if (!F::kScaled || a.rows <= kFewRows || a.decoded == nullptr) return AllPanels<M, 4, 2>(a, a.x16, tables);
    int64_t panel = a.panel_begin;
    ManyRows<F, Bf16, 4, 2>(a, a.x16, &panel, tables);
    return ManyRows<F, Bf16, 4, 1>(a, a.x16, &panel, tables);
  }
  if (a.rows == 1) return AllPanels<M, 1, 4>(a, a.x16, tables);
  if (a.rows <= 4) return AllPanels<M, 4, 4>(a, a.x16, tables);
  if (a.rows <= kFewRows) return AllPanels<M, 8, 2>(a, a.x16, tables);
  if (!F::kScaled) return AllPanels<M, 6, 4>(a, a.x16, tables);
  if (a.decoded == nullptr) return AllPanels<M, 6, 2>(a, a.x16, tables);
  int64_t panel = a.panel_begin;
  ManyRows<F, Bf16, 8, 2>(a, a.x16, &panel, tables);
  ManyRows<F, Bf16, 8, 1>(a, a.x16, &panel, tables);
}
#endif

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_H_
