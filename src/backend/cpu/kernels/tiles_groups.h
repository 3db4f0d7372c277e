// SPDX-License-Identifier: MIT
//
// Products with bf16 activations by tiles (tiles.h), of formats whose scales are shared by few columns: 16, 32 or
// some more. Codes are bf16 exactly; what a tile gives of a group's columns is scaled and added up in registers,
// so a block is one tile of sums, or two of half as many rows. No weight is rounded.
//
// Where there are addends, the sums of the rows themselves come out of the unit, too, as products with ones.
//
// T is the unit of tiles.h with
//   ConfigureGroups(rows, cols)  tiles 0 to 3 (sums) and 4 and 5 (left, `cols` columns wide) get `rows` rows, 6 and
//                                7 (right) cols / 2
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_GROUPS_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_GROUPS_H_

#include "backend/cpu/kernels/tiles_many.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// The tiles of columns [k, end) of a part, none of which reaches into another group.
template <int kCols>
struct TileWalk {
  Groups groups;
  int64_t k, end;

  TileWalk(const Panels& w, int part) : groups(w, w.bounds[part]), k(w.bounds[part]), end(w.bounds[part + 1]) {}
  bool done() const { return k >= end; }
  int64_t group_end() const { return groups.end < end ? groups.end : end; }
  int64_t cols() const { return group_end() - k < kCols ? group_end() - k : kCols; }
  bool ends_group() const { return group_end() - k <= kCols; }
  bool inside_group() const { return k < end && k != groups.end - groups.cols; }
  void Advance() {
    k += cols();
    if (k == groups.end) groups.Next();
  }
};

// Loads a tile of up to kCols columns of the rows, zeros behind them.
template <int A, int kCols, class T>
static inline __attribute__((always_inline)) void LoadLeft(T& unit, const TileRows& rows, int64_t k, int64_t cols) {
  if (rows.stride != 0 && cols == kCols) {
    unit.template Load<A>(rows.x[0] + k, rows.stride);
    return;
  }
  alignas(64) uint16_t tile[16 * kCols];
  for (int i = 0; i < rows.count[0]; ++i) {
    __builtin_memcpy(tile + i * kCols, rows.x[i] + k, static_cast<size_t>(cols) * 2);
    __builtin_memset(tile + i * kCols + cols, 0, static_cast<size_t>(kCols - cols) * 2);
  }
  unit.template Load<A>(tile, kCols * 2);
}

// Tiles of rows, one for 16 or 32 columns after the other.
struct LeftTiles {
  const uint16_t* at;
  size_t step, stride;  // elements to the next tile; bytes from row to row
};

// Up to kRows rows against NP panels. kDecoded: `data` is bf16, left_tiles are those of the rows, [16][kCols] each, and
// row_sums [groups][16] what the rows add up to; else panels are decoded on the way.
template <class T, class F, int kRows, int NP, bool kDecoded>
struct GroupBlock {
  static_assert(kRows * NP <= 16 && NP <= 2);  // registers; tiles
  static constexpr int kCols = F::kGroup16 ? 16 : 32;  // of a tile
  static constexpr size_t kBytes = kCols * 32;         // of a panel's
  static constexpr bool kSums = F::kMin && !kDecoded;
  T& unit;
  const Panels& w;
  const TilePanels<NP>& panels;
  const TileRows& rows;
  const DecodeTables& tables;
  const uint16_t* left_tiles;  // where kDecoded
  const float* row_sums;

  using Tiles = uint8_t[NP][kBytes];
  using Dots = float[NP + (kSums ? 1 : 0)][kRows * 16];  // of a group; behind them those of the rows

  inline __attribute__((always_inline)) void Decode(const TileWalk<kCols>& at, Tiles& tiles) const {
    const int64_t k = at.k, cols = at.cols();
    _Pragma("GCC unroll 2") for (int p = 0; p < NP; ++p) {
      const uint8_t* from = panels.data[p] + k / F::kCols * F::kBytes;
      Prefetch<kCols / F::kCols * F::kBytes>(from, panels.ahead.At(k));
      DecodePairsOf<F>(from, cols, tables, reinterpret_cast<uint16_t*>(tiles[p]));
      if (cols < kCols) __builtin_memset(tiles[p] + cols * 32, 0, kBytes - static_cast<size_t>(cols) * 32);
    }
  }

  template <int P, int B>
  inline __attribute__((always_inline)) void LoadRight(const TileWalk<kCols>& at, const Tiles& tiles) const {
    if constexpr (!kDecoded) {
      unit.template Load<B>(tiles[P], 64);
      return;
    }
    const uint8_t* from = panels.data[P] + 32 * at.k;
    if (at.cols() == kCols) {
      unit.template Load<B>(from, 64);
      return;
    }
    alignas(64) uint8_t tile[kBytes];
    const size_t bytes = static_cast<size_t>(at.cols()) * 32;
    __builtin_memcpy(tile, from, bytes);
    __builtin_memset(tile + bytes, 0, kBytes - bytes);
    unit.template Load<B>(tile, 64);
  }

  // Groups whose sums are made before the first of them are scaled: as many as there are tiles of sums. A tile costs
  // as much to store as to make, and what was stored cannot be read at once.
  static constexpr int kBatch = kSums ? 2 / NP : 4 / NP;
  template <int G>
  static constexpr int kLeft = 4 + G % 2;
  template <int G>
  static constexpr int kRight = kSums ? 6 : 6 + G % 2;
  using Batch = Dots[kBatch];

  // Group G of a batch, from `now` on.
  template <int G, class Next>
  inline __attribute__((always_inline)) void Group(TileWalk<kCols>& now, const Next& next, const uint16_t*& left) const {
    unit.template Zero<G * NP>();
    if constexpr (NP > 1) unit.template Zero<G * NP + 1>();
    if constexpr (kSums) unit.template Zero<2 + G>();
    for (bool ends = false; !ends; now.Advance()) {
      const Tiles& tiles = next();
      if constexpr (kDecoded) {
        unit.template Load<kLeft<G>>(left, kCols * 2);
        left += 16 * kCols;
      } else {
        LoadLeft<kLeft<G>, kCols>(unit, rows, now.k, now.cols());
      }
      LoadRight<0, kRight<G>>(now, tiles);
      unit.template Dot<G * NP, kLeft<G>, kRight<G>>();
      if constexpr (NP > 1) {
        LoadRight<1, kRight<G>>(now, tiles);
        unit.template Dot<G * NP + 1, kLeft<G>, kRight<G>>();
      }
      if constexpr (kSums) unit.template Dot<2 + G, kLeft<G>, 7>();
      ends = now.ends_group();
    }
  }
  template <int G>
  inline __attribute__((always_inline)) void StoreGroup(Batch& batch) const {
    unit.template Store<G * NP>(batch[G][0], 64);
    if constexpr (NP > 1) unit.template Store<G * NP + 1>(batch[G][1], 64);
    if constexpr (kSums) unit.template Store<2 + G>(batch[G][NP], 64);
  }

  // From G on as many as there are; how many there were.
  template <int G, class Next>
  inline __attribute__((always_inline)) int MakeBatch(TileWalk<kCols>& now, int64_t until, const Next& next,
                                                      const uint16_t*& left, Batch& batch) const {
    if constexpr (G == kBatch) {
      return G;
    } else {
      if (now.k >= until) return G;
      Group<G>(now, next, left);
      const int count = MakeBatch<G + 1>(now, until, next, left, batch);
      StoreGroup<G>(batch);
      return count;
    }
  }

  inline __attribute__((always_inline)) void Scale(int64_t group, const Dots& dots, [[maybe_unused]] int64_t at, V* sums) const {
    MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
      const V scale = F::Scale(panels.scales[p], group);
      MAINARCH_UNROLL for (int m = 0; m < kRows; ++m) {
        sums[p * kRows + m] = Fma(Load(dots[p] + 16 * m), scale, sums[p * kRows + m]);
      }
      if (!F::kMin) continue;
      const V addend = F::Addend(panels.scales[p], group);
      MAINARCH_UNROLL for (int m = 0; m < kRows; ++m) {
        const V sum = kDecoded ? Set(row_sums[16 * at + m]) : Load(dots[NP] + 16 * m);
        sums[p * kRows + m] = Fma(sum, addend, sums[p * kRows + m]);
      }
    }
  }

  // Columns from `now` on to `until`, where a group or part ends, are added to sums [NP][kRows].
  inline __attribute__((always_inline)) void Run(TileWalk<kCols> now, int64_t until, V* sums) const {
    constexpr uint32_t kTiles = kDecoded ? 1 : 2 * kBatch;
    alignas(64) Tiles tiles[kTiles];
    alignas(64) Batch batches[2];
    if (rows.count[0] < kRows) __builtin_memset(batches, 0, sizeof(batches));  // rows that there are not
    // Half of the tiles ahead: the unit cannot take what has not left the store buffer.
    TileWalk<kCols> ahead = now;
    uint32_t decoded = 0, taken = 0;
    const auto decode = [&]() __attribute__((always_inline)) {
      if (kDecoded || ahead.k >= until) return;
      Decode(ahead, tiles[decoded++ % kTiles]);
      ahead.Advance();
    };
    const auto next = [&]() __attribute__((always_inline)) -> const Tiles& {
      decode();
      return tiles[taken++ % kTiles];
    };
    for (uint32_t i = 0; i < kTiles / 2; ++i) decode();
    const uint16_t* left = left_tiles;
    int64_t at = 0;  // of row_sums
    Groups waiting = now.groups;
    int count = 0;
    for (int turn = 0; now.k < until; turn ^= 1) {
      const Groups first = now.groups;
      const int made = MakeBatch<0>(now, until, next, left, batches[turn]);
      for (int g = 0; g < count; ++g) Scale(waiting.index + g, batches[turn ^ 1][g], at++, sums);
      waiting = first;
      count = made;
      if (now.k >= until) {
        for (int g = 0; g < count; ++g) Scale(waiting.index + g, batches[turn][g], at++, sums);
      }
    }
  }

  // y [NP][kRows]
  inline __attribute__((always_inline)) void Part(int part, V* y) const {
    V sums[NP * kRows];
    MAINARCH_UNROLL for (int i = 0; i < NP * kRows; ++i) sums[i] = Zero();
    Run(TileWalk<kCols>(w, part), w.bounds[part + 1], sums);
    MAINARCH_UNROLL for (int i = 0; i < NP * kRows; ++i) y[i] = sums[i];
  }

  // All of K, in the fixed tree.
  void All(V* y) const {
    if (w.parts == 1) return Part(0, y);
    Tree<NP * kRows> tree;
    for (int part = 0; part < w.parts; ++part) {
      V sums[NP * kRows];
      Part(part, sums);
      tree.PushStored(sums);
    }
    for (int i = 0; i < NP * kRows; ++i) y[i] = tree.Sum()[i];
  }
};

// Up to 16 rows against one panel, where each group is one whole tile: what nearly all are. Scales are decoded.
template <class T, class F>
struct WholeGroups {
  static constexpr int kCols = F::kGroup16 ? 16 : 32;
  static constexpr int kBatch = 4;  // groups whose sums are made before the first of them are scaled: GroupBlock
  using Dots = float[2][kBatch][16 * 16];
  T& unit;
  LeftTiles left;
  const uint8_t* right;   // [groups][kCols / 2][16][2]
  const float* scales;    // [groups][16]
  const float* addends;   // the same, where F has them
  const float* row_sums;  // [groups][16], then
  int groups;
  Dots& dots;             // what rows that are not there have is of no concern

  template <int G>
  inline __attribute__((always_inline)) void Make(const uint16_t* from, const uint8_t* codes) const {
    unit.template Zero<G>();
    unit.template Load<4 + G % 2>(from + G * left.step, left.stride);
    unit.template Load<6 + G % 2>(codes + G * kCols * 32, 64);
    unit.template Dot<G, 4 + G % 2, 6 + G % 2>();
  }
  inline __attribute__((always_inline)) void Scale(int group, const float* of, V (&sums)[16]) const {
    const V by = Load(scales + 16 * group);
    MAINARCH_UNROLL for (int m = 0; m < 16; ++m) sums[m] = Fma(Load(of + 16 * m), by, sums[m]);
    if constexpr (F::kMin) {
      const V addend = Load(addends + 16 * group);
      MAINARCH_UNROLL for (int m = 0; m < 16; ++m) sums[m] = Fma(Set(row_sums[16 * group + m]), addend, sums[m]);
    }
  }
  inline __attribute__((always_inline)) void ScaleBatch(int group, const float (&of)[kBatch][16 * 16], V (&sums)[16]) const {
    _Pragma("GCC unroll 1") for (int g = 0; g < kBatch; ++g) Scale(group + g, of[g], sums);
  }

  // to [16][16], which is added to. A function of its own: sums stay in registers.
  __attribute__((noinline)) void Run(float* to) const {
    V sums[16];
    MAINARCH_UNROLL for (int m = 0; m < 16; ++m) sums[m] = Load(to + 16 * m);
    const uint16_t* from = left.at;
    const uint8_t* codes = right;
    int group = 0;
    for (int turn = 0; group + kBatch <= groups; group += kBatch, turn ^= 1) {
      float(&out)[kBatch][16 * 16] = dots[turn];
      Make<0>(from, codes);
      Make<1>(from, codes);
      Make<2>(from, codes);
      Make<3>(from, codes);
      unit.template Store<0>(out[0], 64);
      unit.template Store<1>(out[1], 64);
      unit.template Store<2>(out[2], 64);
      unit.template Store<3>(out[3], 64);
      from += kBatch * left.step;
      codes += kBatch * kCols * 32;
      if (group > 0) ScaleBatch(group - kBatch, dots[turn ^ 1], sums);
      if (group + 2 * kBatch > groups) ScaleBatch(group, out, sums);
    }
    for (; group < groups; ++group) {
      Make<0>(from, codes);
      unit.template Store<0>(dots[0][0], 64);
      from += left.step;
      codes += kCols * 32;
      Scale(group, dots[0][0], sums);
    }
    MAINARCH_UNROLL for (int m = 0; m < 16; ++m) Store(to + 16 * m, sums[m]);
  }
};

template <class T, class F>
class GroupProducts {
 public:
  static constexpr int kCols = F::kGroup16 ? 16 : 32;
  // Of kBlockPanels: their codes and what else is used stay in the first-level cache.
  static constexpr int kPanels = 2;

  explicit GroupProducts(T& unit) : unit_(unit), tables_(TablesOf<F>()) {}

  void Matmul(const MatmulArgs& a) {
    const bool fits = a.w.group_cols <= kBlockCols && (!F::kMin || a.w.group_cols >= kTileCols);
    if (a.rows > 16 && a.decoded != nullptr && fits) return ManyRows(a);
    for (int64_t row = 0; row < a.rows; row += 16) FewRows(a, row);
  }

  void ExpertsDown(const ExpertsDownArgs& a) {
    int64_t panel = a.panel_begin;
    for (; panel + 4 <= a.panel_end; panel += 4) Experts<4>(a, panel);
    for (; panel < a.panel_end; ++panel) Experts<1>(a, panel);
  }

 private:
  void Configure(int rows) {
    if (rows == configured_) return;
    configured_ = rows;
    unit_.ConfigureGroups(rows, kCols);
    if constexpr (F::kMin) LoadOnes();
  }
  void LoadOnes() {
    alignas(64) uint16_t ones[kCols * 16];
    for (uint16_t& one : ones) one = 0x3f80;
    unit_.template Load<7>(ones, 64);
  }

  // Up to 16 rows, in one pass.
  void FewRows(const MatmulArgs& a, int64_t row) {
    const TileRows rows(a.x16 + row, a.rows - row < 16 ? a.rows - row : 16);
    Configure(rows.count[0]);
    for (int64_t panel = a.panel_begin; panel < a.panel_end; panel += 2) {
      const int count = panel + 1 < a.panel_end ? 2 : 1;
      V y[2][16];
      const uint8_t* first = a.w.data + static_cast<size_t>(panel) * a.w.stride;
      size_t next = static_cast<size_t>(count) * a.w.stride;
      if (panel + count >= a.panel_end) next = a.after == nullptr ? 0 : static_cast<size_t>(a.after - first);
      if (rows.count[0] <= 8 && count == 2) {
        V both[16];
        Fetched<8, 2>(a, rows, first, next, both);
        for (int i = 0; i < 16; ++i) y[i / 8][i % 8] = both[i];
      } else {
        for (int p = 0; p < count; ++p) {
          Fetched<16, 1>(a, rows, first + static_cast<size_t>(p) * a.w.stride, p + 1 < count ? a.w.stride : next, y[p]);
        }
      }
      Store(a, panel, count, row, rows.count[0], y);
    }
  }

  template <int kRows, int NP>
  void Fetched(const MatmulArgs& a, const TileRows& rows, const uint8_t* first, size_t next, V* y) {
    TilePanels<NP> panels = At<NP>(a.w, first);
    panels.next = next;
    panels.ahead = Ahead(a.w, next, a.near, NP);
    FetchScales(a.w, panels);
    GroupBlock<T, F, kRows, NP, false>{unit_, a.w, panels, rows, tables_, nullptr, nullptr}.All(y);
  }

  // Of up to kBlockRows rows and kPanels panels; what all of them need of K at a time stays in the first-level
  // cache, sums go to memory and back meanwhile.
  struct Sums {
    float of[kPanels][kBlockRows][16];
  };
  static constexpr int kMostGroups = 2 * kBlockCols / kCols;  // of the columns at a time
  struct Room {  // MatmulArgs::decoded
    uint16_t codes[kPanels][2 * kBlockCols * 16];
    uint16_t left[4 * kBlockCols * 16];  // of 16 rows
    typename WholeGroups<T, F>::Dots dots;
    float scales[F::kMin ? 2 : 1][kPanels][kMostGroups][16];  // and addends
    Sums sums, level[3];  // AddParts
  };
  static_assert(sizeof(Room) <= kBlockBytes);

  void ManyRows(const MatmulArgs& a) {
    Room& room = *reinterpret_cast<Room*>(a.decoded);
    for (int64_t panel = a.panel_begin; panel < a.panel_end; panel += kPanels) {
      const int count = static_cast<int>(a.panel_end - panel < kPanels ? a.panel_end - panel : kPanels);
      for (int64_t row = 0; row < a.rows; row += kBlockRows) {
        const int rows = static_cast<int>(a.rows - row < kBlockRows ? a.rows - row : kBlockRows);
        AddParts(a.w.parts, [&](int part) { PartOfMany(a, panel, count, row, rows, part, room); },
                 [&](int left) { AddSums(room.level[left], count, rows, room.sums); }, [&](int at) { room.level[at] = room.sums; });
        for (int at = 0; at < rows; at += 16) {
          V y[kPanels][16];
          for (int p = 0; p < count; ++p) {
            for (int m = 0; m < 16; ++m) y[p][m] = Load(room.sums.of[p][at + m]);
          }
          Store(a, panel, count, row + at, rows - at < 16 ? rows - at : 16, y);
        }
      }
    }
  }

  void PartOfMany(const MatmulArgs& a, int64_t panel, int count, int64_t row, int rows, int part, Room& room) {
    for (int p = 0; p < count; ++p) __builtin_memset(room.sums.of[p], 0, sizeof(room.sums.of[p]));
    for (TileWalk<kCols> at(a.w, part); !at.done();) {
      TileWalk<kCols> end = at;
      while (!end.done() && (end.k - at.k < kBlockCols || end.inside_group())) end.Advance();
      TilePanels<1> panels[kPanels];
      for (int p = 0; p < count; ++p) {
        panels[p] = At<1>(a.w, a.w.data + static_cast<size_t>(panel + p) * a.w.stride);
        DecodePairsOf<F>(panels[p].data[0] + at.k / F::kCols * F::kBytes, end.k - at.k, tables_, room.codes[p]);
        panels[p].data[0] = reinterpret_cast<const uint8_t*>(room.codes[p]) - 32 * at.k;
      }
      const NextColumns next = CodesAfter(a, panel, count, part, end);
      // Groups of one whole tile each, all of them?
      const int whole = a.w.group_cols == kCols && !at.inside_group() && (end.k - at.k) % kCols == 0
                            ? static_cast<int>((end.k - at.k) / kCols)
                            : 0;
      for (int p = 0; p < count; ++p) DecodeScales(panels[p].scales[0], at.groups.index, whole, p, room);
      for (int i = 0; i < rows; i += 16) {
        const TileRows tile(a.x16 + row + i, rows - i < 16 ? rows - i : 16);
        Configure(tile.count[0]);
        next.Fetch(i / 16, (rows + 15) / 16);
        alignas(64) float row_sums[F::kMin ? 2 * kBlockCols / kTileCols + 1 : 1][16];
        LeftTiles left = {room.left, 16 * kCols, kCols * 2};
        if (whole > 0 && tile.stride != 0) {
          left = {tile.x[0] + at.k, kCols, tile.stride};
        } else {
          PackLeft(at, end.k, tile, room.left);
        }
        if (F::kMin) SumRows(at, end.k, left, row_sums[0]);
        if (whole > 0) {
          if (tile.count[0] < 16) __builtin_memset(room.dots, 0, sizeof(room.dots));
          for (int p = 0; p < count; ++p) {
            WholeGroups<T, F>{unit_, left, reinterpret_cast<const uint8_t*>(room.codes[p]), room.scales[0][p][0],
                              room.scales[F::kMin ? 1 : 0][p][0], row_sums[0], whole, room.dots}
                .Run(room.sums.of[p][i]);
          }
          continue;
        }
        for (int p = 0; p < count; ++p) {
          V sums[16];
          MAINARCH_UNROLL for (int m = 0; m < 16; ++m) sums[m] = Load(room.sums.of[p][i + m]);
          GroupBlock<T, F, 16, 1, true>{unit_, a.w, panels[p], tile, tables_, room.left, row_sums[0]}.Run(at, end.k, sums);
          MAINARCH_UNROLL for (int m = 0; m < 16; ++m) cpu::MAINARCH_TARGET::Store(room.sums.of[p][i + m], sums[m]);
        }
      }
      at = end;
    }
  }

  static void DecodeScales(const uint8_t* scales, int64_t first, int groups, int panel, Room& room) {
    for (int g = 0; g < groups; ++g) {
      cpu::MAINARCH_TARGET::Store(room.scales[0][panel][g], F::Scale(scales, first + g));
      if constexpr (F::kMin) cpu::MAINARCH_TARGET::Store(room.scales[1][panel][g], F::Addend(scales, first + g));
    }
  }

  // What PartOfMany decodes after columns up to `end` of a part of panels from `panel` on.
  static NextColumns CodesAfter(const MatmulArgs& a, int64_t panel, int count, int part, const TileWalk<kCols>& end) {
    const auto bytes_of = [](int64_t cols) { return static_cast<size_t>(cols / F::kCols * F::kBytes); };
    const auto block_of = [&](int64_t k) { return bytes_of(a.w.cols - k < kBlockCols ? a.w.cols - k : kBlockCols); };
    NextColumns next = {a.w.data + static_cast<size_t>(panel) * a.w.stride, a.w.stride, block_of(end.k), 0, 0, count};
    if (!end.done() || part + 1 < a.w.parts) {
      next.first += bytes_of(end.k);
      return next;
    }
    // Those of the panels behind these.
    next.first += static_cast<size_t>(count) * a.w.stride;
    next.bytes = block_of(0);
    next.scales = a.w.scale_offset;
    next.scale_bytes = a.w.stride - a.w.scale_offset;
    if (panel + count >= a.panel_end) next.first = a.after;
    return next;
  }

  // sums = left + sums.
  static void AddSums(const Sums& left, int count, int rows, Sums& sums) {
    for (int p = 0; p < count; ++p) {
      for (int i = 0; i < rows; ++i) {
        cpu::MAINARCH_TARGET::Store(sums.of[p][i], Add(Load(left.of[p][i]), Load(sums.of[p][i])));
      }
    }
  }

  // Rows lie where they like, often a power of two apart, so that they would meet in the same sets of the cache.
  static void PackLeft(TileWalk<kCols> at, int64_t until, const TileRows& rows, uint16_t* out) {
    for (; at.k < until; at.Advance(), out += 16 * kCols) {
      const size_t bytes = static_cast<size_t>(at.cols()) * 2;
      for (int i = 0; i < rows.count[0]; ++i) {
        if (at.cols() == kCols) {
          __builtin_memcpy(out + i * kCols, rows.x[i] + at.k, kCols * 2);
        } else {
          __builtin_memcpy(out + i * kCols, rows.x[i] + at.k, bytes);
          __builtin_memset(out + i * kCols + at.cols(), 0, kCols * 2 - bytes);
        }
      }
    }
  }

  // [groups][16]
  void SumRows(TileWalk<kCols> at, int64_t until, LeftTiles left, float* out) {
    LoadOnes();
    unit_.template Zero<2>();
    for (; at.k < until; at.Advance()) {
      unit_.template Load<4>(left.at, left.stride);
      left.at += left.step;
      unit_.template Dot<2, 4, 7>();
      if (!at.ends_group()) continue;
      alignas(64) float sums[16 * 16] = {};
      unit_.template Store<2>(sums, 64);
      unit_.template Zero<2>();
      for (int m = 0; m < 16; ++m) out[m] = sums[16 * m];
      out += 16;
    }
  }

  // y of `count` panels and `rows` rows.
  static void Store(const MatmulArgs& a, int64_t panel, int count, int64_t row, int rows, const V (*y)[16]) {
    const bool pairs = a.epilogue == Epilogue::kGateUp;
    for (int p = 0; p < count; p += pairs ? 2 : 1) {
      for (int m = 0; m < rows; ++m) {
        const V both[2] = {y[p][m], y[pairs ? p + 1 : p][m]};
        pairs ? Finish<1, 2>(a, panel + p, row + m, both) : Finish<1, 1>(a, panel + p, row + m, both);
      }
    }
  }

  template <int NP>
  void Experts(const ExpertsDownArgs& a, int64_t panel) {
    ExpertPanels<NP>(a, panel, [&](const Panels& w, const uint8_t* first, size_t next, const int32_t* entries,
                                   int32_t count, int slot) {
      for (int32_t at = 0; at < count; at += 16) {
        ExpertRows<NP>(a, w, first, next, entries + at, count - at < 16 ? count - at : 16, slot);
      }
    });
  }

  template <int NP>
  void ExpertRows(const ExpertsDownArgs& a, const Panels& w, const uint8_t* first, size_t next, const int32_t* entries,
                  int32_t count, int slot) {
    const uint16_t* x[16];
    for (int32_t i = 0; i < count; ++i) x[i] = a.act16 + entries[i] * a.act_stride;
    const TileRows rows(x, count);
    Configure(count);
    constexpr int kTogether = NP < 2 ? 1 : 2;
    for (int p = 0; p < NP; p += kTogether) {
      const uint8_t* here = first + static_cast<size_t>(p) * w.stride;
      if (count <= 8) {
        ExpertParts<8, kTogether>(a, w, here, next, rows, entries, slot + p);
      } else {
        for (int i = 0; i < kTogether; ++i) {
          ExpertParts<16, 1>(a, w, here + static_cast<size_t>(i) * w.stride, next, rows, entries, slot + p + i);
        }
      }
    }
  }

  template <int kRows, int NP>
  void ExpertParts(const ExpertsDownArgs& a, const Panels& w, const uint8_t* first, size_t next, const TileRows& rows,
                   const int32_t* entries, int slot) {
    TilePanels<NP> panels = At<NP>(w, first);
    panels.next = next;
    panels.ahead = Ahead(w, next, a.near, NP);
    FetchScales(w, panels);
    const GroupBlock<T, F, kRows, NP, false> block{unit_, w, panels, rows, tables_, nullptr, nullptr};
    for (int part = 0; part < w.parts; ++part) {
      V sums[NP * kRows];
      block.Part(part, sums);
      for (int m = 0; m < rows.count[0]; ++m) {
        V y[NP];
        for (int p = 0; p < NP; ++p) y[p] = sums[p * kRows + m];
        AddToRow<NP>(a, entries[m], part, w.parts, slot, y);
      }
    }
  }

  T& unit_;
  const DecodeTables tables_;
  int configured_ = -1;
};

// run<Products>(): what multiplies by panels of the format, of all with HasBF16Dot.
template <class T, class Run>
static inline void WithTileProducts(PanelFormat format, const Run& run) {
  switch (format) {
    case PanelFormat::kBF16:
      return run.template operator()<TileProducts<T, FormatBF16>>();
    case PanelFormat::kFp8:
      return run.template operator()<TileProducts<T, FormatFp8>>();
    case PanelFormat::kInt8Row:
      return run.template operator()<TileProducts<T, FormatInt8Row>>();
    case PanelFormat::kMxfp4:
      return run.template operator()<GroupProducts<T, FormatMxfp4>>();
    default:
      return WithBlockFormat(format, [&]<class F>() {
        if constexpr (!__is_same(F, FormatInt8Row)) run.template operator()<GroupProducts<T, F>>();
      });
  }
}

template <class T>
static inline void TileMatmul(T& unit, const MatmulArgs& a) {
  if (a.w.format == PanelFormat::kBF16 && ManyProducts<T>::Takes(a)) return ManyProducts<T>(unit, a).Run();
  WithTileProducts<T>(a.w.format, [&]<class Products>() { Products(unit).Matmul(a); });
}

template <class T>
static inline void TileExpertsDown(T& unit, const ExpertsDownArgs& a) {
  WithTileProducts<T>(a.experts[a.active[0]].format, [&]<class Products>() { Products(unit).ExpertsDown(a); });
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_GROUPS_H_
