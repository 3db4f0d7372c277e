// SPDX-License-Identifier: MIT
//
// Attention of many rows (prompts) to latents: to the bit what ops/attend_latent.h leaves. There a workgroup has a row and
// reads all latents for it alone, twice; here each of its four waves has a row, of neighbouring ones of a sequence, and
// latents come once for all four, through LDS.
//
// A wave holds the queries and the sums of 16 heads in registers, so there is one a SIMD, and nobody to work while it
// waits. So latents come in chunks of two steps of a block's 128 tokens, as operands of matrix instructions: first keys,
// then values, which are turned on their way into LDS, once for all rows. One chunk is being multiplied by, the next one
// lies in LDS, the one behind it is being stored there, and two more are on their way from memory; and so from block to
// block, for a workgroup takes many splits of its rows.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_LATENT_TALL_H_
#define MAINARCH_KERNELS_OPS_ATTEND_LATENT_TALL_H_

#include "kernels/ops/attend_latent.h"

namespace mainarch::kernels {

// Of heads of kLatentMostTurning and kLatentMost elements.
template <KvFormat kFormat>
struct AttendLatentTall {
  using Args = AttendLatentArgs;
  using One = AttendLatent<kFormat>;
  using Word = typename One::Word;
  static constexpr bool kFp8 = One::kFp8;
  static_assert(One::kPlanes == 1);
  static constexpr uint32_t kHeads = kLatentHeads, kRows = kLatentTallRows;
  static constexpr uint32_t kPages = kSplitTokens / kPageTokens, kGroups = kPages / 2;  // of 32 tokens
  static constexpr uint32_t kTurns = kLatentMostTurning / kStepColumns, kValues = kLatentMost / kStepColumns;
  static constexpr uint32_t kSteps = kTurns + kValues;
  static constexpr uint32_t kPageBytes = LatentPageBytes(kFormat, kLatentMostTurning, kLatentMost);
  // A block's chunks: latents as keys, what turns, latents as values. The last two have one step each: so their number is
  // a multiple of that of buffers in LDS and of that of sets of registers, and where a chunk lies is known where it is
  // compiled.
  static constexpr uint32_t kTurnsChunk = kValues / 2, kKeyChunks = kTurnsChunk + 1, kSingles = 2;
  static constexpr uint32_t kChunks = kKeyChunks + (kValues + kSingles) / 2;
  static_assert(kTurns == 2);
  static constexpr uint32_t kBuffers = 3, kSets = 2, kAhead = 2;  // kAhead: chunks in LDS beside the present one
  static_assert(kChunks % kBuffers == 0 && kChunks % kSets == 0);
  static constexpr uint32_t kTile = kWave;  // an operand, in words of 16 bytes
  static constexpr uint32_t kTiles = 2 * kPages, kQuarter = kTiles / 4, kBuffer = kTiles * kTile;
  static_assert(kQuarter == kGroups && kQuarter == kWaves && kRows == kWaves);
  // Of fp8 a block's multipliers: [turns, latent][page][16 tokens].
  static constexpr uint32_t kMultipliersAt = kBuffers * kBuffer * 16;
  static constexpr uint32_t kLdsBytes = kMultipliersAt + (kFp8 ? 2 * kSplitTokens * 4 : 0);

  static constexpr bool IsOfValues(uint32_t chunk) { return chunk >= kKeyChunks; }
  static constexpr uint32_t StepsOf(uint32_t chunk) { return chunk + kSingles < kChunks ? 2 : 1; }
  // The first step of a chunk, of the page's.
  static constexpr uint32_t FirstStep(uint32_t chunk) {
    if (chunk == kTurnsChunk) return 0;
    if (chunk < kTurnsChunk) return kTurns + 2 * chunk;
    const uint32_t own = chunk - kKeyChunks, pairs = kValues / 2 - kSingles / 2;
    return kTurns + (own < pairs ? 2 * own : own + pairs);
  }
  // Where an operand of a chunk lies in LDS. Keys: [steps][pages], values: [groups of 32 tokens][steps][halves of a step].
  static constexpr uint32_t KeyTile(uint32_t step, uint32_t page) { return step * kPages + page; }
  static constexpr uint32_t ValueTile(uint32_t chunk, uint32_t group, uint32_t step, uint32_t half) {
    return (group * StepsOf(chunk) + step) * 2 + half;
  }
  // What is multiplied by at once: four operands, a quarter of a chunk of two steps. Of latents four pages of a step; of
  // what turns, too, but a page's steps one after the other; of values one or two groups.
  static constexpr uint32_t QuarterTile(uint32_t chunk, uint32_t quarter) {
    if (chunk != kTurnsChunk) return quarter * kQuarter;
    return KeyTile(quarter % 2, quarter / 2 * kQuarter);
  }

  // The workgroups of the same rows take every `shares`-th split each.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t rows = RowsHere(step, args.first_row, args.row_count), tiles = CeilDiv(args.heads, kHeads);
    const uint32_t units = CeilDiv(rows, kRows) * tiles;
    if (units == 0) return;
    const uint32_t shares = Max(workers / units, 1u), total = units * shares;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t unit = t / shares, share = t % shares;
      const LatentGroup group(args.first_row, rows, unit / tiles * kRows);
      if (!group.Together(step, args.least_blocks)) continue;
      const StepView::Place place = step.place(group.row);
      const Rows own = {group.row, group.count, place.position, place.pages, unit % tiles * kHeads, share, shares};
      if (share >= LatentSplits(own.last())) continue;
      Walk walk(own, arena);
      walk.Go();
    }
  }

 private:
  // What a workgroup takes: neighbouring rows of a sequence.
  struct Rows {
    uint32_t row, count, position, pages;  // of the first one; where the page table is in the step's words
    uint32_t head, split, shares;          // the first split of this workgroup, and from one to the next
    DEVICE uint32_t last() const { return position + count - 1; }
  };

  // Where this wave's two pages of a block are, which it brings for all.
  struct Source {
    Global<const uint8_t> base[2];
    uint32_t lane[2];
  };
  // The block that a workgroup is at: its first token, the last one of its split that any row sees.
  struct Cursor {
    uint32_t split, first, end;
  };

  // A workgroup on its way through its splits.
  class Walk {
   public:
    DEVICE Walk(const Rows& rows, Arena arena)
        : rows_(rows),
          position_(rows.position + Min(WaveId(), rows.count - 1)),
          split_tokens_(LatentSplitBlocks(rows.last()) * kSplitTokens),
          at_(Begin(rows.split)),
          tiles_(arena.Get<u32x4>() + LaneId()),
          multipliers_(arena.Get<float>(kMultipliersAt)) {}

    DEVICE void Go() {
      ids_ = AskPages(at_);
      LocatePages(at_);
      LoadQueries();
      AskMultipliers();
      AskAll<0>();
      AskAll<1>();
      PutMultipliers();
      Put<0, 0, 0>();
      Put<0, 0, 1>();
      Put<0, 1, 0>();
      Put<0, 1, 1>();
      AskAll<2>();
      Put<1, 0, 0>();
      Put<1, 0, 1>();
      Put<1, 1, 0>();
      Put<1, 1, 1>();
      AskAll<3>();
      BarrierLds();
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kQuarter; ++i) read_[0][i] = tiles_[i * kTile];
#pragma clang loop unroll(disable)
      while (true) {
        next_ = Next(at_);
        Chunks<0>();
        Leave<kChunks - 1, 0>();
        Leave<kChunks - 1, 1>();
        if (EndsSplit() && LatentSplits(position_) == 1) StoreWhole();
        if (next_.split == kNone) break;
        at_ = next_;
      }
      BarrierLds();
    }

   private:
    static constexpr uint32_t kNone = 0xffffffff;

    // ---- which block ----

    DEVICE Cursor Begin(uint32_t split) const {
      const uint32_t first = split * split_tokens_;
      return {split, first, Min(first + split_tokens_ - 1, rows_.last())};
    }
    DEVICE Cursor Next(const Cursor& at) const {
      if (at.first + kSplitTokens <= at.end) return {at.split, at.first + kSplitTokens, at.end};
      const uint32_t split = at.split + rows_.shares;
      if (split * split_tokens_ <= rows_.last()) return Begin(split);
      return {kNone, at.first, at.end};  // its latents are asked for in vain
    }
    DEVICE bool BeginsSplit() const { return at_.first == at_.split * split_tokens_; }
    // As far as this wave's row sees it.
    DEVICE bool EndsSplit() const { return at_.first + kSplitTokens > Min(at_.end, position_); }

    // ---- latents from memory ----

    // Numbers of this wave's pages: even lanes have the first one's. Those beyond the last row's position, which may not
    // exist, are that position's.
    DEVICE uint32_t AskPages(const Cursor& at) const {
      const Args args = ReadArgumentsAgain<Args>();
      const uint32_t page = at.first / kPageTokens + 2 * WaveId() + LaneId() % 2;
      return (StepView(args.step).words(rows_.pages) + args.tables_at)[Min(page, rows_.last() / kPageTokens)];
    }
    // Lanes of tokens that are not read the last real one instead.
    DEVICE void LocatePages(const Cursor& at) {
      const Args args = ReadArgumentsAgain<Args>();
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t token = at.first + (2 * WaveId() + i) * kPageTokens, last = rows_.last();
        const uint32_t real = token + kPageTokens - 1 <= last ? kPageTokens - 1 : last % kPageTokens;
        from_.base[i] = At(args.pages) + uint64_t{ReadLane(ids_, i)} * kPageBytes;
        from_.lane[i] = (Min(LaneRow(), real) * 4 + LanePart()) * One::kWordBytes;
      }
    }
    // What this wave brings of a chunk: of each step of its two pages.
    template <uint32_t kChunk, uint32_t kPiece>
    DEVICE void Ask() {
      if constexpr (kPiece < 2 * StepsOf(kChunk)) {
        constexpr uint32_t kStep = FirstStep(kChunk) + kPiece / 2;
        const Global<const uint8_t> at = from_.base[kPiece % 2] + kStep * (kWave * One::kWordBytes);
        asked_[kChunk % kSets][kPiece] = *reinterpret_cast<Global<const Word>>(at + from_.lane[kPiece % 2]);
      }
    }
    template <uint32_t kChunk>
    DEVICE void AskAll() {
      Ask<kChunk, 0>();
      Ask<kChunk, 1>();
      Ask<kChunk, 2>();
      Ask<kChunk, 3>();
    }

    // ---- latents into LDS ----

    DEVICE static u32x4 Operand(Word word) {
      if constexpr (kFp8) {
        const uint32_t low = word[0], high = word[1];
        return isa::Fp8TileToBf16(low, high);
      } else {
        return word;
      }
    }
    // Of values an element's tokens lie side by side: a quarter of what this wave brings of a step, turned. What comes of it
    // is asked for later, so that others may be multiplied by meanwhile.
    template <uint32_t kChunk, uint32_t kStep, uint32_t kPiece>
    DEVICE void Turn() {
      const u32x4 codes = Operand(asked_[kChunk % kSets][2 * kStep + kPiece % 2]);
      turned_[kPiece] = One::Turn(kPiece < 2 ? codes.lo : codes.hi, One::Identity());
    }
    // One of two operands of a step.
    template <uint32_t kChunk, uint32_t kStep, uint32_t kPiece>
    DEVICE void Put() {
      const Lds<u32x4> to = tiles_ + kChunk % kBuffers * kBuffer;
      if constexpr (IsOfValues(kChunk)) {
        to[ValueTile(kChunk, WaveId(), kStep, kPiece) * kTile] =
            Both(One::Rounded(turned_[2 * kPiece]), One::Rounded(turned_[2 * kPiece + 1]));
      } else {
        to[KeyTile(kStep, 2 * WaveId() + kPiece) * kTile] = Operand(asked_[kChunk % kSets][2 * kStep + kPiece]);
      }
    }
    DEVICE static u32x4 Both(u32x2 a, u32x2 b) { return u32x4{a[0], a[1], b[0], b[1]}; }

    // Of fp8: of this wave's pages, both parts, a multiplier a lane.
    DEVICE void AskMultipliers() {
      if constexpr (kFp8) {
        const Global<const uint8_t> at = LaneId() < 2 * kPageTokens ? from_.base[0] : from_.base[1];
        const auto all = reinterpret_cast<Global<const float>>(at + LatentPlaneBytes(One::kForm, kSteps));
        multiplier_ = all[LaneId() % (2 * kPageTokens)];
      }
    }
    DEVICE void PutMultipliers() {
      if constexpr (kFp8) {
        const uint32_t page = 2 * WaveId() + LaneId() / (2 * kPageTokens), part = LaneId() / kPageTokens % 2;
        multipliers_[(part * kPages + page) * kPageTokens + LaneId() % kPageTokens] = multiplier_;
      }
    }
    // Of tokens 4 g .. 4 g + 3 of a page.
    DEVICE f32x4 Multipliers(uint32_t part, uint32_t page) const {
      return reinterpret_cast<Lds<const f32x4>>(multipliers_)[(part * kPages + page) * (kPageTokens / 4) + LanePart()];
    }

    // ---- queries ----

    // As ops/attend_latent.h stages them.
    DEVICE void LoadQueries() {
      const Args args = ReadArgumentsAgain<Args>();
      const uint32_t row = rows_.row + Min(WaveId(), rows_.count - 1), head = Min(rows_.head + LaneRow(), args.heads - 1);
      const Global<const float> q = At(args.qkv) + uint64_t{row} * args.q_stride + head * (kSteps * kStepColumns);
#pragma clang loop unroll(full)
      for (uint32_t first = 0; first < kSteps; first += kQueriesAtOnce) {
        Eight all[kQueriesAtOnce];
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kQueriesAtOnce; ++i) all[i] = LoadStep(q, first + i);
        KeepOrder();
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kQueriesAtOnce; ++i) {
#pragma clang loop unroll(full)
          for (uint32_t e = 0; e < 8; ++e) all[i].at[e] *= args.scale;
          query_[first + i] = Split(all[i]);
        }
        KeepOrder();
      }
    }
    static constexpr uint32_t kQueriesAtOnce = 6;
    static_assert(kSteps % kQueriesAtOnce == 0);

    // ---- chunks ----

    template <uint32_t kChunk>
    DEVICE void Chunks() {
      if constexpr (kChunk < kChunks) {
        if constexpr (kChunk == kKeyChunks) Weigh();
        if constexpr (kChunk == kKeyChunks) ids_ = AskPages(next_.split == kNone ? at_ : next_);
        if constexpr (kChunk + kAhead + kSets == kChunks) LocatePages(next_);
        if constexpr (kChunk + kAhead + kSets == kChunks) AskMultipliers();
        if constexpr (kChunk + 1 == kChunks) PutMultipliers();
        BarrierLds();
        KeepOrder();
        Slots<kChunk, 0, 0>();
        Slots<kChunk, 1, 0>();
        if constexpr (kChunk == kTurnsChunk) EndKeys<0>();
        if constexpr (StepsOf(kChunk) == 2) {
          Slots<kChunk, 2, 0>();
          Slots<kChunk, 3, 0>();
        }
        if constexpr (kChunk == kTurnsChunk) EndKeys<1>();
        Chunks<kChunk + 1>();
      }
    }
    // A quarter of a chunk, whose operands are here: a matrix instruction, and beside it what else is to be done.
    template <uint32_t kChunk, uint32_t kQuarterOf, uint32_t kSlot>
    DEVICE void Slots() {
      if constexpr (kSlot < 2 * kQuarter) {
        if constexpr (IsOfValues(kChunk)) {
          AddValues<kChunk, kQuarterOf, kSlot>();
        } else {
          AddKeys<kChunk, kQuarterOf, kSlot>();
        }
        KeepOrder();
        if constexpr (kSlot < kQuarter) Read<kChunk, kQuarterOf + 1, kSlot>();
        if constexpr (IsOfValues((kChunk + kAhead) % kChunks)) {
          BringValues<kChunk, kQuarterOf, kSlot>();
        } else if constexpr (kQuarterOf < 2) {
          BringKeys<kChunk, kQuarterOf, kSlot>();
        }
        // What the chunk before has left.
        constexpr uint32_t kPlaces = 2 / StepsOf(kChunk);  // in a quarter
        if constexpr (kChunk > kKeyChunks && kSlot % kQuarter + 1 == kQuarter && kSlot / kQuarter < kPlaces) {
          Leave<kChunk - 1, kQuarterOf * kPlaces + kSlot / kQuarter>();
        }
        KeepOrder();
        Slots<kChunk, kQuarterOf, kSlot + 1>();
      }
    }
    // An operand of the next quarter.
    template <uint32_t kChunk, uint32_t kNext, uint32_t kOperand>
    DEVICE void Read() {
      constexpr bool kHere = kNext < 2 * StepsOf(kChunk);
      constexpr uint32_t kOf = kHere ? kChunk : (kChunk + 1) % kChunks, kIn = kHere ? kNext : 0;
      read_[kIn % 2][kOperand] = tiles_[kOf % kBuffers * kBuffer + (QuarterTile(kOf, kIn) + kOperand) * kTile];
    }
    // What is done for chunks to come: one goes into LDS, and as soon as its registers are free another is asked for. Of keys
    // a step each in the first two quarters.
    template <uint32_t kChunk, uint32_t kStep, uint32_t kSlot>
    DEVICE void BringKeys() {
      constexpr uint32_t kPut = (kChunk + kAhead) % kChunks, kAsk = (kChunk + kAhead + kSets) % kChunks;
      if constexpr (kSlot == 4 || kSlot == 5) Put<kPut, kStep, kSlot - 4>();
      if constexpr (kSlot == 6 || kSlot == 7) Ask<kAsk, 2 * kStep + kSlot - 6>();
    }
    // Values are turned in one quarter and stored in the next.
    template <uint32_t kChunk, uint32_t kQuarterOf, uint32_t kSlot>
    DEVICE void BringValues() {
      constexpr uint32_t kPut = (kChunk + kAhead) % kChunks, kAsk = (kChunk + kAhead + kSets) % kChunks;
      if constexpr (kQuarterOf < StepsOf(kPut) && kSlot >= 4) Turn<kPut, kQuarterOf, kSlot - 4>();
      if constexpr (kQuarterOf > 0 && kQuarterOf <= StepsOf(kPut)) {
        if constexpr (kSlot == 2 || kSlot == 3) Put<kPut, kQuarterOf - 1, kSlot - 2>();
      }
      if constexpr (kQuarterOf > 0 && kQuarterOf <= 2) {
        if constexpr (kSlot == 5 || kSlot == 7) Ask<kAsk, 2 * (kQuarterOf - 1) + (kSlot - 5) / 2>();
      }
    }

    template <uint32_t kChunk, uint32_t kQuarterOf, uint32_t kSlot>
    DEVICE void AddKeys() {
      constexpr bool kTurning = kChunk == kTurnsChunk;
      constexpr uint32_t kStep = FirstStep(kChunk) + (kTurning ? kQuarterOf % 2 : kQuarterOf / 2);
      constexpr uint32_t kOperand = kSlot % kQuarter;
      f32x4& to = kTurning ? turns_[kOperand] : latent_[kQuarterOf % 2 * kQuarter + kOperand];
      constexpr bool kFirst = kSlot < kQuarter && kStep == (kTurning ? 0 : kTurns);
      const u32x4 query = kSlot < kQuarter ? query_[kStep].low : query_[kStep].high;
      to = isa::Mfma16x16x32Bf16(read_[kQuarterOf % 2][kOperand], query, kFirst ? f32x4{0, 0, 0, 0} : to);
    }
    template <uint32_t kChunk, uint32_t kQuarterOf, uint32_t kSlot>
    DEVICE void AddValues() {
      constexpr uint32_t kSteps = StepsOf(kChunk), kHalf = kSlot % 2;
      // Of one step two groups, one after the other.
      constexpr uint32_t kGroup = kSteps == 2 ? kQuarterOf : 2 * kQuarterOf + kSlot / kQuarter;
      constexpr uint32_t kStep = kSteps == 2 ? kSlot % kQuarter / 2 : 0;
      constexpr uint32_t kOperand = kSteps == 2 ? kSlot % kQuarter : kSlot / kQuarter * 2 + kHalf;
      constexpr bool kLow = kSteps == 2 ? kSlot < kQuarter : kSlot % kQuarter < 2;
      f32x4& o = o_[FirstStep(kChunk) - kTurns + kStep][kHalf];
      const u32x4 weight = kLow ? weight_[kGroup].low : weight_[kGroup].high;
      o = isa::Mfma16x16x32Bf16(read_[kQuarterOf % 2][kOperand], weight, o);
    }
    // Scores of pages 4 kHalf .. 4 kHalf + 3, in latent_.
    template <uint32_t kHalf>
    DEVICE void EndKeys() {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kQuarter; ++i) {
        const uint32_t page = kHalf * kQuarter + i;
        if constexpr (kFp8) {
          latent_[page] = turns_[i] * Multipliers(0, page) + latent_[page] * Multipliers(1, page);
        } else {
          latent_[page] = turns_[i] + latent_[page];
        }
      }
    }

    // ---- weights ----

    // A block that the row does not see changes nothing: it keeps everything, and weights are 0.
    DEVICE void Weigh() {
      if (BeginsSplit()) {
        largest_ = typename One::Running().largest;
        sum_ = 0;
      }
      Eight scores[kGroups];
      float largest = largest_;
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kGroups; ++w) {
        scores[w] = One::Join(latent_[2 * w], latent_[2 * w + 1]);
      }
      if (at_.first + kSplitTokens - 1 > position_) {
#pragma clang loop unroll(full)
        for (uint32_t w = 0; w < kGroups; ++w) One::Mask(at_.first + w * One::kGroup, position_, scores[w]);
      }
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kGroups; ++w) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 8; ++i) largest = __builtin_fmaxf(largest, scores[w].at[i]);
      }
      largest = ColumnMax(largest);
      const float keep = Exp(largest_ - largest);
      largest_ = largest;
      float all = 0;
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kGroups; ++w) {
        const float sum = WeighGroup(w, scores[w]);
        all = w == 0 ? sum : all + sum;
      }
      sum_ = Fma(sum_, keep, all);
      Keep(keep);
      BeginToLeave();
    }
    // Times what of before is kept; a split's first block has nothing before it.
    DEVICE void Keep(float keep) {
      const bool nothing = BeginsSplit();
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kValues; ++s) {
#pragma clang loop unroll(full)
        for (uint32_t h = 0; h < 2; ++h) {
          const f32x4 kept = o_[s][h] * keep;
          o_[s][h] = nothing ? f32x4{0, 0, 0, 0} : kept;
        }
      }
    }
    DEVICE float WeighGroup(uint32_t group, Eight& score) {
      float sum = 0;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 8; ++i) {
        score.at[i] = Exp(score.at[i] - largest_);
        sum += score.at[i];
      }
      if constexpr (kFp8) {
        // A token beyond the position may have no multiplier yet: its weight is 0, and stays so.
        const Eight scale = One::Join(Multipliers(1, 2 * group), Multipliers(1, 2 * group + 1));
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 8; ++i) score.at[i] = score.at[i] == 0.0f ? 0.0f : score.at[i] * scale.at[i];
      }
      weight_[group] = Split(score);
      return ColumnSum(sum);
    }

    // ---- what is left ----

    // Whether this lane has a column of a row with several splits, and the block is the split's last one.
    DEVICE bool Leaves(const Args& args) const {
      return WaveId() < rows_.count && rows_.head + LaneRow() < args.heads && EndsSplit() && at_.first <= position_ &&
             LatentSplits(position_) > 1;
    }
    DEVICE void BeginToLeave() {
      const Args args = ReadArgumentsAgain<Args>();
      constexpr uint32_t kPart = AttendPartFloats(kLatentMost) * 4;
      const uint32_t row = rows_.row + Min(WaveId(), rows_.count - 1) - args.first_row;
      const uint32_t of_row = args.heads * args.max_splits * kPart;
      parts_ = Within(At(args.parts) + uint64_t{row} * (of_row / 4), of_row);
      const uint32_t own = ((rows_.head + LaneRow()) * args.max_splits + at_.split) * kPart + LanePart() * 16;
      part_ = Leaves(args) ? own : kNowhere;
      parts_.Store(f32x2{largest_, sum_}, LanePart() == 0 ? part_ : kNowhere, kLatentMost * 4);
    }
    // One of a chunk's pieces of 16 elements.
    template <uint32_t kChunk, uint32_t kPiece>
    DEVICE void Leave() {
      if constexpr (kPiece < 2 * StepsOf(kChunk)) {
        constexpr uint32_t kStep = FirstStep(kChunk) - kTurns + kPiece / 2;
        parts_.Store(o_[kStep][kPiece % 2], part_, (kStep * 2 + kPiece % 2) * 64);
      }
    }
    // The answer of a row with one split.
    DEVICE void StoreWhole() {
      const Args args = ReadArgumentsAgain<Args>();
      const uint32_t head = MadeBefore(rows_.head + LaneRow());  // addresses are made here, not kept
      if (WaveId() >= rows_.count || head >= args.heads || at_.first > position_) return;
      const Global<float> row = At(args.out) + uint64_t{rows_.row + WaveId()} * args.out_stride;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 2 * kValues; ++i) {
        const uint32_t d = head * kLatentMost + 16 * i + 4 * LanePart();
        const f32x4 o = o_[i / 2][i % 2];
        const float e0 = o[0] / sum_, e1 = o[1] / sum_, e2 = o[2] / sum_, e3 = o[3] / sum_;
        StoreSplitPiece(row, d, RowPiece{e0, e1});
        StoreSplitPiece(row, d + 2, RowPiece{e2, e3});
      }
    }

    const Rows rows_;
    const uint32_t position_;      // of this wave's row; those without one do what the last one does
    const uint32_t split_tokens_;
    Cursor at_, next_;
    const Lds<u32x4> tiles_;
    const Lds<float> multipliers_;
    Source from_;
    uint32_t ids_;
    float multiplier_ = 0;
    Word asked_[kSets][kQuarter];
    f32x4 turned_[4];
    u32x4 read_[2][kQuarter];
    SplitEight query_[kSteps], weight_[kGroups];
    f32x4 turns_[kQuarter], latent_[kPages];
    float largest_ = 0, sum_ = 0;
    f32x4 o_[kValues][2];
    Within parts_;
    uint32_t part_ = 0;
  };
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_LATENT_TALL_H_
