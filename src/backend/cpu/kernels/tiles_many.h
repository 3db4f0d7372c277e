// SPDX-License-Identifier: MIT
//
// Products of bf16 panels with many rows by tiles (tiles.h): some hundred columns at a time, of which those of two
// panels stay in the first-level cache while rows pass, and those of the rows in the second while panels do. Sums go
// to memory and back meanwhile, which leaves their bits as they are.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_MANY_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_MANY_H_

#include "backend/cpu/kernels/tiles.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// What is read of panels next, fetched into the second level a share at a time while this is multiplied.
struct NextColumns {
  const uint8_t* first;  // null: nothing
  size_t stride, bytes;  // from panel to panel; of each
  size_t scales, scale_bytes;  // of each, from there on
  int count;

  void Fetch(int share, int shares) const {
    if (first == nullptr) return;
    for (int p = 0; p < count; ++p) {
      const uint8_t* panel = first + static_cast<size_t>(p) * stride;
      FetchShare(panel, bytes, share, shares);
      FetchShare(panel + scales, scale_bytes, share, shares);
    }
  }

 private:
  static void FetchShare(const uint8_t* from, size_t bytes, int share, int shares) {
    const size_t lines = (bytes + 63) / 64, each = (lines + static_cast<size_t>(shares) - 1) / static_cast<size_t>(shares);
    const size_t begin = static_cast<size_t>(share) * each, end = begin + each < lines ? begin + each : lines;
    for (size_t line = begin; line < end; ++line) __builtin_prefetch(from + 64 * line, 0, 2);
  }
};

template <class T>
class ManyProducts {
 public:
  using F = FormatBF16;
  static constexpr int kTileRows = 32;  // of a block: two tiles
  static constexpr int kBlocks = kBlockRows / kTileRows;
  static constexpr size_t kFloats = 4 * kTileFloats;  // of two tiles of rows and two panels

  ManyProducts(T& unit, const MatmulArgs& a) : unit_(unit), a_(a), tables_(TablesOf<F>()) {}

  static bool Takes(const MatmulArgs& a) { return a.decoded != nullptr && a.rows > kTileRows; }

  void Run() {
    for (int64_t row = 0; row < a_.rows; row += kBlockRows) {
      TakeRows(row, a_.rows - row < kBlockRows ? a_.rows - row : kBlockRows);
      for (int64_t panel = a_.panel_begin; panel < a_.panel_end; panel += kBlockPanels) {
        Panels4(panel, static_cast<int>(a_.panel_end - panel < kBlockPanels ? a_.panel_end - panel : kBlockPanels));
      }
    }
  }

 private:
  // Of pairs of panels and blocks of rows, each as TileBlock has them.
  struct Sums {
    float of[kBlockPanels / 2][kBlocks][kFloats];
  };
  struct Room {  // MatmulArgs::decoded
    Sums sums, level[3];  // AddParts
  };
  static_assert(sizeof(Room) <= kBlockBytes);

  void TakeRows(int64_t row, int64_t count) {
    first_row_ = row;
    blocks_ = 0;
    for (int64_t at = 0; at < count; at += kTileRows) {
      rows_[blocks_++] = TileRows(a_.x16 + row + at, count - at < kTileRows ? count - at : kTileRows);
    }
  }

  void Panels4(int64_t panel, int count) {
    Room& room = *reinterpret_cast<Room*>(a_.decoded);
    AddParts(a_.w.parts, [&](int part) { Part(panel, count, part, room.sums); },
             [&](int left) { AddSums(room.level[left], count, room.sums); }, [&](int at) { room.level[at] = room.sums; });
    for (int p = 0; p < count; p += 2) {
      for (int b = 0; b < blocks_; ++b) {
        const float* sums = room.sums.of[p / 2][b];
        p + 1 < count ? FinishBlock<2>(panel + p, b, sums) : FinishBlock<1>(panel + p, b, sums);
      }
    }
  }

  void Part(int64_t panel, int count, int part, Sums& sums) {
    const int64_t begin = a_.w.bounds[part], end = a_.w.bounds[part + 1];
    // An empty part is zero.
    int64_t k = begin;
    do {
      const int64_t until = end - k < kBlockCols ? end : k + kBlockCols;
      for (int p = 0; p < count; p += 2) {
        const NextColumns next = After(panel, count, p, k, until);
        p + 1 < count ? Columns<2>(panel + p, k, until, k == begin, next, sums.of[p / 2])
                      : Columns<1>(panel + p, k, until, k == begin, next, sums.of[p / 2]);
      }
      k = until;
    } while (k < end);
  }

  template <int NP>
  void Columns(int64_t panel, int64_t k, int64_t until, bool first, const NextColumns& next, float (*sums)[kFloats]) {
    const TilePanels<NP> panels = At<NP>(a_.w, a_.w.data + static_cast<size_t>(panel) * a_.w.stride);
    for (int b = 0; b < blocks_; ++b) {
      const TileRows& rows = rows_[b];
      Configure(rows);
      next.Fetch(b, blocks_);
      rows.count[1] > 0 ? TileBlock<T, F, false, 2, NP>{unit_, a_.w, panels, rows, tables_}.Continue(k, until, first, sums[b])
                        : TileBlock<T, F, false, 1, NP>{unit_, a_.w, panels, rows, tables_}.Continue(k, until, first, sums[b]);
    }
  }

  // What is read after columns [k, until) of panels [panel + p, panel + p + 2), of panels from `panel` on.
  NextColumns After(int64_t panel, int count, int p, int64_t k, int64_t until) const {
    const Panels& w = a_.w;
    const auto bytes_of = [](int64_t cols) { return static_cast<size_t>(cols < kBlockCols ? cols : kBlockCols) * 32; };
    NextColumns next = {w.data + static_cast<size_t>(panel) * w.stride, w.stride, 0, 0, 0, 2};
    if (p + 2 < count) {
      next.first += static_cast<size_t>(p + 2) * w.stride + 32 * static_cast<size_t>(k);
      next.bytes = bytes_of(until - k);
      if (p + 3 >= count) next.count = 1;
    } else if (until < w.cols) {
      next.first += 32 * static_cast<size_t>(until);
      next.bytes = bytes_of(w.cols - until);
    } else {
      next.first = panel + count < a_.panel_end ? next.first + static_cast<size_t>(count) * w.stride : a_.after;
      next.bytes = bytes_of(w.cols);
    }
    return next;
  }

  void Configure(const TileRows& rows) {
    if (rows.count[0] == configured_[0] && rows.count[1] == configured_[1]) return;
    configured_[0] = rows.count[0];
    configured_[1] = rows.count[1];
    unit_.Configure(rows.count[0], rows.count[1]);
  }

  // sums = left + sums.
  void AddSums(const Sums& left, int count, Sums& sums) const {
    for (int p = 0; p < (count + 1) / 2; ++p) {
      for (int b = 0; b < blocks_; ++b) {
        for (size_t i = 0; i < kFloats; i += 16) {
          Store(sums.of[p][b] + i, Add(Load(left.of[p][b] + i), Load(sums.of[p][b] + i)));
        }
      }
    }
  }

  template <int NP>
  void FinishBlock(int64_t panel, int b, const float* sums) const {
    for (int m = 0; m < 2; ++m) {
      for (int i = 0; i < rows_[b].count[m]; ++i) {
        V y[NP];
        for (int p = 0; p < NP; ++p) y[p] = Load(sums + static_cast<size_t>(m * NP + p) * kTileFloats + 16 * i);
        Finish<1, NP>(a_, panel, first_row_ + kTileRows * b + 16 * m + i, y);
      }
    }
  }

  T& unit_;
  const MatmulArgs& a_;
  const DecodeTables tables_;
  TileRows rows_[kBlocks];
  int64_t first_row_ = 0;
  int blocks_ = 0;
  int configured_[2] = {-1, -1};
};

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_MANY_H_
