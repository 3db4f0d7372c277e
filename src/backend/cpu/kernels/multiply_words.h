// SPDX-License-Identifier: MIT
//
// Many rows of 8 bits by codes with a sign, where the CPU's products of bytes want one side without (AVX2 before
// VNNI): then words are multiplied, six rows at a time, and columns of a panel made words once. The integers are
// those of matmul_int8.cc, and so is the order in which they are scaled and added.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_WORDS_H_
#define MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_WORDS_H_

#include "backend/cpu/kernels/int8_codes.h"
#include "backend/cpu/kernels/multiply_many.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// sums[m] += scale times factors[m] times the products of `columns` columns: w [columns / 2][16 rows][2], x[m] [columns].
template <int MR>
static __attribute__((noinline)) void WordsPiece(const int16_t* w, const int16_t* const* x, int64_t columns, const V& scale,
                                                 const float* factors, float (*sums)[16]) {
  ByteSums acc[MR];
  const int16_t* from[MR];
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
    acc[m] = ZeroB();
    from[m] = x[m];
  }
  for (int64_t c = 0; c < columns; c += 2, w += 32) {
    const Bytes pairs = LoadB(reinterpret_cast<const uint8_t*>(w));
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) DotWords(acc[m], pairs, from[m] + c);
  }
  const V by = scale;
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
    Store(sums[m], Fma(FloatsOfB<true>(acc[m], 0), Mul(by, Set(factors[m])), Load(sums[m])));
  }
}

constexpr int kWordsPanels = 4;  // that share the rows' words

template <class F, class C>
class ManyWords : public ManyRowSums<ManyWords<F, C>, kWordsPanels> {
  using Base = ManyRowSums<ManyWords<F, C>, kWordsPanels>;

 public:
  explicit ManyWords(const MatmulArgs& a) : ManyWords(a, *reinterpret_cast<Room*>(a.decoded)) {}

 private:
  friend Base;
  using typename Base::Sums;
  using Base::a_, Base::count_;
  static constexpr int64_t kLeastRows = 32;     // bytes cost fewer less than making words does
  static constexpr int64_t kCols = kBlockCols;  // decoded at a time: 8 KiB a panel
  static_assert(C::kSigned && C::kLess == 0 && !F::kMin && !F::kGroup16);

  struct Room {  // MatmulArgs::decoded
    typename Base::SumsRoom sums;
    int16_t weights[kWordsPanels][kCols / 2][16][2];
    int16_t x[kManyRows][kCols];
  };
  static_assert(sizeof(Room) <= kBlockBytes);

  ManyWords(const MatmulArgs& a, Room& room) : Base(a, room.sums), layout_(Int8LayoutOf(a.w.cols)), room_(room) {}

  // Pieces end where runs of x do, or groups, or the part: columns are decoded up to the end of a run.
  void Part(int part, int panels, Sums& sums) {
    const int64_t begin = a_.w.bounds[part], end = a_.w.bounds[part + 1];
    for (int64_t k = begin, until = 0; k < end; k = until) {
      until = (k + a_.w.first_col + kCols) / kInt8Run * kInt8Run - a_.w.first_col;
      if (until > end) until = end;
      for (int p = 0; p < panels; ++p) Decode(this->Data(p), k, until, room_.weights[p][0][0]);
      this->EachRows([&]<int MR>(int64_t row) { Rows<MR>(row, k, until, part, panels, sums); });
    }
  }

  static void Decode(const uint8_t* panel, int64_t k, int64_t until, int16_t* out) {
    for (int64_t at = k; at < until; at += F::kCols) {
      Bytes codes[C::kUnits];
      const uint8_t* from = panel + at / F::kCols * F::kBytes;
      Prefetch<F::kBytes>(from, kCols / F::kCols * F::kBytes);
      C::Codes(from, codes);
      for (int u = 0; u < C::kUnits; ++u, out += 64) StoreWords(codes[u], out);
    }
  }

  template <int MR>
  void Rows(int64_t row, int64_t k, int64_t until, int part, int panels, Sums& sums) {
    const float* factors[MR];
    for (int m = 0; m < MR; ++m) {
      const uint8_t* x = a_.x8[this->RowAt(row, m)];
      WidenWords(reinterpret_cast<const int8_t*>(x) + (C::kInOrder ? 0 : layout_.nibbles_at) + k, until - k, room_.x[m]);
      factors[m] = reinterpret_cast<const float*>(x + layout_.factors_at) + part;
    }
    Groups groups(a_.w, k);
    int64_t run = (k + a_.w.first_col) / kInt8Run;
    for (int64_t at = k, end = 0; at < until; at = end) {
      const int64_t run_end = (run + 1) * kInt8Run - a_.w.first_col;
      end = run_end < groups.end ? run_end : groups.end;
      if (end > until) end = until;
      const int16_t* x[MR];
      float by[MR];
      for (int m = 0; m < MR; ++m) {
        x[m] = room_.x[m] + (at - k);
        by[m] = factors[m][run] * C::kUnit;
      }
      for (int p = 0; p < panels; ++p) {
        const V scale = F::Scale(this->Data(p) + a_.w.scale_offset, groups.index);
        WordsPiece<MR>(room_.weights[p][(at - k) / 2][0], x, end - at, scale, by, sums[p] + row);
      }
      if (end == run_end) ++run;
      if (end == groups.end) groups.Next();
    }
  }

  const Int8Layout layout_;
  Room& room_;
};

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_WORDS_H_
