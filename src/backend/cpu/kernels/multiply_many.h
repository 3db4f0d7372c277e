// SPDX-License-Identifier: MIT
//
// Products of many rows where a vector is two or four registers of few: columns of a panel are decoded to fp32
// once, into the first-level cache, and six rows at a time are multiplied by even columns, then by odd ones. So
// the sums of a chain are all that registers hold; of both chains they would not find room. The order of
// additions is that of matmul.h.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_MANY_H_
#define MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_MANY_H_

#include "backend/cpu/kernels/products.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

constexpr int kManyRows = 6;   // at a time: twelve or 24 sums, and room for a weight and a number of x
constexpr int kFewerRows = 4;  // where not so many are left: as few as keep two multiply-adds a cycle going

// acc[m] += of every other column, from the first on, the weight times x[m].
template <int MR>
static inline __attribute__((always_inline)) void AddColumns(const float* w, const float* const* x, int64_t columns, V* acc) {
  for (int64_t c = 0; c < columns; c += 2, w += 32) {
    const V column = Load(w);
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) acc[m] = Fma(column, Set(x[m][c]), acc[m]);
  }
}

// A function of its own, as the next, for all of it to stay in registers. w: decoded columns, of which those of x from `at`
// on are one group, or some of it.
template <int MR>
static __attribute__((noinline)) void OneChain(const float* w, const float* const* x, int64_t at, int64_t columns, V* sum) {
  V acc[MR];
  const float* from[MR];
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
    acc[m] = sum[m];
    from[m] = x[m] + at;
  }
  AddColumns<MR>(w, from, columns, acc);
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) sum[m] = acc[m];
}

// sums[m] += both chains times scale.
template <int MR>
static __attribute__((noinline)) void BothChains(const float* w, const float* const* x, int64_t at, int64_t columns,
                                                 const V& scale, float (*sums)[16]) {
  V even[MR], acc[MR];
  const float* from[MR];
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
    acc[m] = Zero();
    from[m] = x[m] + at;
  }
  AddColumns<MR>(w, from, columns, acc);
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
    even[m] = acc[m];
    acc[m] = Zero();
    ++from[m];
  }
  AddColumns<MR>(w + 16, from, columns, acc);
  const V by = scale;
  MAINARCH_UNROLL for (int m = 0; m < MR; ++m) Store(sums[m], Fma(Add(even[m], acc[m]), by, Load(sums[m])));
}

// All panels and rows, kPanels (even) at a time: Self::Part(part, panels, sums) adds to `sums`, which are zero, the products of
// a part of K, of the rows at hand and panels Data(0) to Data(panels - 1). Self::kLeastRows: fewer are not worth it.
template <class Self, int kPanels>
class ManyRowSums {
 public:
  void Run() {
    for (row_ = 0; row_ < a_.rows; row_ += kBlockRows) {
      count_ = a_.rows - row_ < kBlockRows ? a_.rows - row_ : kBlockRows;
      for (int64_t panel = a_.panel_begin; panel < a_.panel_end; panel += kPanels) {
        TakePanels(panel, static_cast<int>(a_.panel_end - panel < kPanels ? a_.panel_end - panel : kPanels));
      }
    }
  }

  static bool Takes(const MatmulArgs& a) { return a.decoded != nullptr && a.rows >= Self::kLeastRows; }

 protected:
  static constexpr int64_t kRoomRows = kBlockRows + kManyRows;  // with what the last ones are filled up with
  using PanelSums = float[kRoomRows][16];
  using Sums = PanelSums[kPanels];
  struct SumsRoom {
    Sums sums, level[3];  // AddParts
  };

  ManyRowSums(const MatmulArgs& a, SumsRoom& room) : a_(a), sums_(room) {}

  // run<MR>(row): MR rows from `row` on, until all have been.
  template <class Run>
  void EachRows(const Run& run) const {
    for (int64_t row = 0, left = count_; left > 0;) {
      const bool fewer = left <= kFewerRows || (left > kManyRows && left <= 2 * kFewerRows);
      fewer ? run.template operator()<kFewerRows>(row) : run.template operator()<kManyRows>(row);
      row += fewer ? kFewerRows : kManyRows;
      left = count_ - row;
    }
  }

  // Row m of those from `row` on, the last one again where there are not so many.
  int64_t RowAt(int64_t row, int m) const { return row_ + (row + m < count_ ? row + m : count_ - 1); }
  const uint8_t* Data(int panel) const { return data_ + static_cast<size_t>(panel) * a_.w.stride; }

  const MatmulArgs& a_;
  SumsRoom& sums_;
  int64_t row_ = 0, count_ = 0;  // these rows, at most kBlockRows

 private:
  void TakePanels(int64_t panel, int panels) {
    data_ = a_.w.data + static_cast<size_t>(panel) * a_.w.stride;
    const auto each = [&](const auto& run) {
      for (int p = 0; p < panels; ++p) {
        for (int64_t i = 0; i < count_ + kManyRows; ++i) run(p, i, sums_.sums[p][i]);
      }
    };
    const auto make = [&](int part) {
      each([](int, int64_t, float* sum) { Store(sum, Zero()); });
      static_cast<Self*>(this)->Part(part, panels, sums_.sums);
    };
    const auto add = [&](int left) {
      each([&](int p, int64_t i, float* sum) { Store(sum, Add(Load(sums_.level[left][p][i]), Load(sum))); });
    };
    const auto keep = [&](int at) {
      each([&](int p, int64_t i, float* sum) { Store(sums_.level[at][p][i], Load(sum)); });
    };
    AddParts(a_.w.parts, make, add, keep);
    for (int p = 0; p < panels; p += 2) {
      for (int64_t i = 0; i < count_; ++i) {
        V y[2] = {Load(sums_.sums[p][i]), Load(sums_.sums[p + 1][i])};
        p + 1 < panels ? Finish<1, 2>(a_, panel + p, row_ + i, y) : Finish<1, 1>(a_, panel + p, row_ + i, y);
      }
    }
  }

  const uint8_t* data_ = nullptr;  // of the first of these panels
};

template <class F>
class ManyFloats : public ManyRowSums<ManyFloats<F>, 2> {
  using Base = ManyRowSums<ManyFloats<F>, 2>;

 public:
  explicit ManyFloats(const MatmulArgs& a) : ManyFloats(a, *reinterpret_cast<Room*>(a.decoded)) {}

 private:
  friend Base;
  using typename Base::Sums, typename Base::PanelSums;
  using Base::a_, Base::count_;
  static constexpr int64_t kLeastRows = 6;      // fewer share too little of what decoding costs
  static constexpr int64_t kCols = kBlockCols;  // decoded at a time: 16 KiB
  static_assert(kCols % F::kCols == 0 && F::kCols % 2 == 0);

  // What a row has of a scale group that goes on behind these columns: of even and odd ones its products, and what
  // it is itself.
  struct Chains {
    float products[2][16];
    float x[2];
  };
  struct Room {  // MatmulArgs::decoded
    typename Base::SumsRoom sums;
    float weights[kCols][16];
    Chains chains[Base::kRoomRows];
  };
  static_assert(sizeof(Room) <= kBlockBytes);

  ManyFloats(const MatmulArgs& a, Room& room) : Base(a, room.sums), tables_(TablesOf<F>()), room_(room) {}

  void Part(int part, int panels, Sums& sums) {
    for (int p = 0; p < panels; ++p) {
      data_ = this->Data(p);
      PartOf(a_.w.bounds[part], a_.w.bounds[part + 1], sums[p]);
    }
  }

  void PartOf(int64_t begin, int64_t end, PanelSums& sums) {
    for (int64_t k = begin, until = 0; k < end; k = until) {
      until = end - k < kCols ? end : k + kCols;
      Decode(k, until);
      this->EachRows([&]<int MR>(int64_t row) { Rows<MR>(row, k, until, begin, end, sums); });
    }
  }

  // What is decoded next is fetched: it comes while rows are multiplied.
  void Decode(int64_t k, int64_t until) {
    for (int64_t at = k; at < until; at += F::kCols) {
      V w[F::kCols];
      const uint8_t* from = data_ + at / F::kCols * F::kBytes;
      Prefetch<F::kBytes>(from, kCols / F::kCols * F::kBytes);
      F::Decode(from, tables_, w);
      MAINARCH_UNROLL for (int c = 0; c < F::kCols; ++c) Store(room_.weights[at - k + c], w[c]);
    }
  }

  // Rows from `row` on; columns [k, until) of the part [begin, end).
  template <int MR>
  void Rows(int64_t row, int64_t k, int64_t until, int64_t begin, int64_t end, PanelSums& sums) {
    const float* x[MR];
    for (int m = 0; m < MR; ++m) x[m] = a_.x[this->RowAt(row, m)];
    float (*out)[16] = sums + row;
    if constexpr (F::kScaled) {
      Groups groups(a_.w, k);
      for (int64_t at = k; at < until; at = groups.end, groups.Next()) {
        const int64_t starts = groups.end - groups.cols, stop = groups.end < until ? groups.end : until;
        const Piece piece = {at, stop, at - k, at == begin || at == starts, stop == end || stop == groups.end, groups.index};
        AddPiece<MR>(x, room_.chains + row, piece, out);
      }
    } else {
      AddPiece<MR>(x, room_.chains + row, {k, until, 0, k == begin, until == end, 0}, out);
    }
  }

  // Columns [begin, end) of a group, the first of which is decoded column `at`. first, last: of the group, or of what the part
  // has of it.
  struct Piece {
    int64_t begin, end, at;
    bool first, last;
    int64_t group;
  };

  template <int MR>
  void AddPiece(const float* const* x, Chains* chains, const Piece& piece, float (*out)[16]) {
    const uint8_t* scales = data_ + a_.w.scale_offset;
    const float* w = room_.weights[piece.at];
    const int64_t columns = piece.end - piece.begin;
    if (F::kScaled && piece.first && piece.last) {
      BothChains<MR>(w, x, piece.begin, columns, F::Scale(scales, piece.group), out);
    } else {
      for (int i = 0; i < 2; ++i) {
        V sum[MR];
        for (int m = 0; m < MR; ++m) sum[m] = piece.first ? Zero() : Load(chains[m].products[i]);
        OneChain<MR>(w + 16 * i, x, piece.begin + i, columns, sum);
        for (int m = 0; m < MR; ++m) Store(chains[m].products[i], sum[m]);
      }
      for (int m = 0; m < MR && piece.last; ++m) {
        const V y = Add(Load(chains[m].products[0]), Load(chains[m].products[1]));
        Store(out[m], F::kScaled ? Fma(y, F::Scale(scales, piece.group), Load(out[m])) : y);
      }
    }
    if (F::kMin) AddAddend<MR>(x, chains, piece, out);
  }

  template <int MR>
  void AddAddend(const float* const* x, Chains* chains, const Piece& piece, float (*out)[16]) {
    float sum[MR][2];
    for (int m = 0; m < MR; ++m) {
      for (int i = 0; i < 2; ++i) sum[m][i] = piece.first ? 0.0f : chains[m].x[i];
    }
    for (int64_t c = piece.begin; c < piece.end; c += 2) {
      MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
        sum[m][0] += x[m][c];
        sum[m][1] += x[m][c + 1];
      }
    }
    for (int m = 0; m < MR; ++m) {
      for (int i = 0; i < 2; ++i) chains[m].x[i] = sum[m][i];
    }
    if (!piece.last) return;
    const V addend = F::Addend(data_ + a_.w.scale_offset, piece.group);
    for (int m = 0; m < MR; ++m) Store(out[m], Fma(Set(sum[m][0] + sum[m][1]), addend, Load(out[m])));
  }

  const DecodeTables tables_;
  Room& room_;
  const uint8_t* data_ = nullptr;  // of a panel
};

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_MULTIPLY_MANY_H_
