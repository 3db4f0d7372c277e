// SPDX-License-Identifier: MIT
//
// Products with activations of 8 bits by tiles, for many rows: the integers that matmul_int8.cc adds by vectors
// come out of the unit, a piece of up to 32 columns a tile, and are scaled and added in the same order. So the
// bits are the same, and few rows, which go faster by vectors, may go there.
//
// T is the unit of tiles.h with bytes:
//   ConfigureBytes(rows, cols)  tiles 0 and 1 (sums) and 4 and 5 (left, `cols` bytes wide) get `rows` rows,
//                               6 and 7 (right) cols / 4
//   DotBytes<C, A, B>()         C[m][n] += sum over k, i of A[m][4 k + i] B[k][4 n + i], bytes with a sign (TDPBSSD)
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_INT8_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_INT8_H_

#include "backend/cpu/kernels/int8_codes.h"
#include "backend/cpu/kernels/products.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// Less, and vectors are as fast.
inline constexpr int64_t kInt8TileRows = 8;
// Panels that are decoded together, and what of the rows all of them need is made once for.
inline constexpr int kInt8Panels = 4;

// Codes less `less`, as bytes with a sign.
static inline void StoreSigned(const Bytes& codes, int less, uint8_t* out) {
#if defined(MAINARCH_TARGET_avx512)
  _mm512_storeu_si512(out, _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(less))));
#else
  __builtin_memcpy(out, &codes, 64);
  for (int i = 0; i < 64; ++i) out[i] = static_cast<uint8_t>(out[i] - less);
#endif
}
static inline V FloatsOfInts(const int32_t* sums) {
#if defined(MAINARCH_TARGET_avx512)
  return _mm512_cvtepi32_ps(_mm512_load_si512(sums));
#else
  float out[16];
  for (int i = 0; i < 16; ++i) out[i] = static_cast<float>(sums[i]);
  return Load(out);
#endif
}

template <class T, class F, class C>
class TileInt8 {
 public:
  static constexpr int kCols = F::kGroup16 ? 16 : 32;  // of a piece

  TileInt8(T& unit, const MatmulArgs& a) : unit_(unit), a_(a), w_(a.w), pieces_(a.w.cols / kCols) {
    decoded_ = a.decoded;
    factors_ = reinterpret_cast<float*>(decoded_ + kInt8Panels * w_.cols * 16);
    of_x_ = factors_ + 16 * pieces_;
  }

  // Whether every piece is whole.
  static bool Takes(const MatmulArgs& a) {
    const Panels& w = a.w;
    const auto whole = [](int64_t col) { return col % kCols == 0; };
    bool all = whole(w.cols) && whole(w.first_col) && whole(w.group_cols) && whole(w.group_offset);
    for (int part = 0; part <= w.parts; ++part) all = all && whole(w.bounds[part]);
    return all && a.decoded != nullptr && a.rows >= kInt8TileRows;
  }

  void Run() {
    for (int64_t panel = a_.panel_begin; panel < a_.panel_end; panel += kInt8Panels) {
      const int count = static_cast<int>(a_.panel_end - panel < kInt8Panels ? a_.panel_end - panel : kInt8Panels);
      for (int p = 0; p < count; ++p) Decode(panel + p, decoded_ + p * w_.cols * 16);
      for (int64_t row = 0; row < a_.rows; row += 16) {
        Rows(panel, count, row, static_cast<int>(a_.rows - row < 16 ? a_.rows - row : 16));
      }
    }
  }

 private:
  static constexpr Int8Layout LayoutOf(const Panels& w) { return Int8LayoutOf(w.cols); }
  const uint8_t* Data(int64_t panel) const { return w_.data + static_cast<size_t>(panel) * w_.stride; }

  // [cols / 4][16 rows][4]
  void Decode(int64_t panel, uint8_t* out) const {
    const uint8_t* from = Data(panel);
    for (int64_t k = 0; k < w_.cols; k += F::kCols, from += F::kBytes) {
      Bytes codes[C::kUnits];
      C::Codes(from, codes);
      MAINARCH_UNROLL for (int u = 0; u < C::kUnits; ++u, out += 64) StoreSigned(codes[u], C::kLess, out);
    }
  }

  // Of every piece what rows [row, row + count) are multiplied by, [pieces][16]: factors, and, where weights have
  // addends, what those are.
  void Factors(int64_t row, int count) const {
    const Int8Layout layout = LayoutOf(w_);
    for (int m = 0; m < count; ++m) {
      const uint8_t* x = a_.x8[row + m];
      const int32_t* before = reinterpret_cast<const int32_t*>(x + layout.before_at);
      int part = 0;
      for (int64_t piece = 0; piece < pieces_; ++piece) {
        const int64_t k = piece * kCols;
        while (k >= w_.bounds[part + 1]) ++part;
        const float factor =
            reinterpret_cast<const float*>(x + layout.factors_at)[(k + w_.first_col) / kInt8Run + part];
        factors_[16 * piece + m] = factor * C::kUnit;
        if (!F::kMin) continue;
        of_x_[16 * piece + m] = static_cast<float>(before[(k + kCols) / 4] - before[k / 4]) * factor;
      }
    }
  }

  void Rows(int64_t panel, int count, int64_t row, int rows) {
    if (rows != configured_) unit_.ConfigureBytes(rows, kCols);
    configured_ = rows;
    Factors(row, rows);
    V y[kInt8Panels][16];  // of rows that there are
    for (int p = 0; p < count; ++p) {
      const uint8_t* scales = Data(panel + p) + w_.scale_offset;
      if (rows > 8) {
        All<16>(decoded_ + p * w_.cols * 16, scales, row, rows, y[p]);
      } else {
        All<8>(decoded_ + p * w_.cols * 16, scales, row, rows, y[p]);
      }
    }
    for (int p = 0; p < count; ++p) {
      const bool pair = a_.epilogue == Epilogue::kGateUp;
      for (int m = 0; m < rows; ++m) {
        const V both[2] = {y[p][m], y[pair ? p + 1 : p][m]};
        pair ? Finish<1, 2>(a_, panel + p, row + m, both) : Finish<1, 1>(a_, panel + p, row + m, both);
      }
      if (pair) ++p;
    }
  }

  // The sums of one panel and up to kRows rows, all parts in the tree.
  template <int kRows>
  void All(const uint8_t* codes, const uint8_t* scales, int64_t row, int rows, V* y) {
    if (w_.parts == 1) return Part<kRows>(codes, scales, row, rows, 0, y);
    Tree<16> tree;
    for (int part = 0; part < w_.parts; ++part) {
      V sums[16];
      Part<kRows>(codes, scales, row, rows, part, sums);
      tree.PushStored(sums);
    }
    for (int m = 0; m < rows; ++m) y[m] = tree.Sum()[m];
  }

  template <int kRows>
  void Part(const uint8_t* codes, const uint8_t* scales, int64_t row, int rows, int part, V* y) {
    alignas(64) int32_t dots[2][256];
    const int64_t begin = w_.bounds[part] / kCols, end = w_.bounds[part + 1] / kCols;
    int64_t group = (w_.bounds[part] + w_.group_offset) / w_.group_cols;
    int64_t left = (group + 1) * w_.group_cols - w_.group_offset - w_.bounds[part];  // columns of the group
    V sums[16];
    MAINARCH_UNROLL for (int m = 0; m < 16; ++m) sums[m] = Zero();
    if (begin < end) Multiply(codes, row, rows, begin, dots[begin & 1]);
    for (int64_t piece = begin; piece < end; ++piece) {
      if (piece + 1 < end) Multiply(codes, row, rows, piece + 1, dots[~piece & 1]);
      Scale<kRows>(scales, group, piece, dots[piece & 1], sums);
      left -= kCols;
      if (left > 0) continue;
      ++group;
      left = w_.group_cols;
    }
    MAINARCH_UNROLL for (int m = 0; m < 16; ++m) y[m] = sums[m];
  }

  // dots [rows][16], exact.
  inline __attribute__((always_inline)) void Multiply(const uint8_t* codes, int64_t row, int rows, int64_t piece,
                                                      int32_t* dots) {
    const uint8_t* right = codes + piece * kCols * 16;
    if ((piece & 1) == 0) {
      unit_.template Zero<0>();
      LoadRows<4>(row, rows, piece);
      unit_.template Load<6>(right, 64);
      unit_.template DotBytes<0, 4, 6>();
      unit_.template Store<0>(dots, 64);
    } else {
      unit_.template Zero<1>();
      LoadRows<5>(row, rows, piece);
      unit_.template Load<7>(right, 64);
      unit_.template DotBytes<1, 5, 7>();
      unit_.template Store<1>(dots, 64);
    }
  }

  template <int A>
  inline __attribute__((always_inline)) void LoadRows(int64_t row, int rows, int64_t piece) {
    const uint8_t* const* x = a_.x8 + row;
    const size_t at = (C::kInOrder ? 0 : LayoutOf(w_).nibbles_at) + static_cast<size_t>(piece * kCols);
    if (row != stride_row_) {
      stride_row_ = row;
      stride_ = rows < 2 ? 64 : reinterpret_cast<uintptr_t>(x[1]) - reinterpret_cast<uintptr_t>(x[0]);
      for (int m = 2; m < rows; ++m) {
        if (reinterpret_cast<uintptr_t>(x[m]) - reinterpret_cast<uintptr_t>(x[m - 1]) != stride_) stride_ = 0;
      }
    }
    if (stride_ != 0) return unit_.template Load<A>(x[0] + at, stride_);
    alignas(64) uint8_t tile[16 * kCols];
    for (int m = 0; m < rows; ++m) __builtin_memcpy(tile + m * kCols, x[m] + at, kCols);
    unit_.template Load<A>(tile, kCols);
  }

  // As matmul_int8.cc does.
  template <int kRows>
  inline __attribute__((always_inline)) void Scale(const uint8_t* scales, int64_t group, int64_t piece,
                                                   const int32_t* dots, V* sums) {
    const V scale = F::Scale(scales, group);
    const float* factors = factors_ + 16 * piece;
    MAINARCH_UNROLL for (int m = 0; m < kRows; ++m) {
      const V by = Mul(scale, Set(factors[m]));
      sums[m] = Fma(FloatsOfInts(dots + 16 * m), by, sums[m]);
    }
    if (!F::kMin) return;
    const V addend = F::Addend(scales, group);
    MAINARCH_UNROLL for (int m = 0; m < kRows; ++m) sums[m] = Fma(Set(of_x_[16 * piece + m]), addend, sums[m]);
  }

  T& unit_;
  const MatmulArgs& a_;
  const Panels& w_;
  const int64_t pieces_;
  uint8_t* decoded_;  // [kInt8Panels][cols / 4][16][4], then what follows: MatmulArgs::decoded has 128 bytes a column
  float* factors_;    // [pieces][16]
  float* of_x_;       // [pieces][16]
  int configured_ = 0;
  int64_t stride_row_ = -1;
  size_t stride_ = 0;  // bytes from row to row, from stride_row_ on; 0: they lie anyhow
};

// False: not done, for vectors to do.
template <class T>
static inline bool TileMatmulInt8(T& unit, const MatmulArgs& a) {
  bool done = false;
  WithInt8Codes(a.w.format, [&]<class F, class C>() {
    if (!TileInt8<T, F, C>::Takes(a)) return;
    TileInt8<T, F, C>(unit, a).Run();
    done = true;
  });
  return done;
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_INT8_H_
