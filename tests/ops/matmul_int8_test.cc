// SPDX-License-Identifier: MIT
//
// Products with activations of 8 bits: rows as kernels.h describes them, products against fp64 of what those rows
// hold and within the stated bound of what was asked, for every format and target; the same bits for a row in
// every company, and for any number of shards.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/random_matrices.h"
#include "support/plain_tiles.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::test;

namespace {

using Bytes = std::vector<uint8_t>;

// This machine's targets, where the system permits with tiles, and tiles in plain code.
std::vector<const cpu::Kernels*> TestedKernels() {
  std::vector<const cpu::Kernels*> tested = cpu::UsableKernels();
  for (const cpu::Kernels* kernels : tested) {
    if (kernels->may_round != nullptr && !kernels->may_round()) std::printf("# %s: no tiles\n", kernels->name);
  }
  // It gives the bits of the portable kernels, which fuse no multiplication and addition; a sanitizer's build has none.
  if (std::string(tested.back()->name) == "portable") tested.push_back(PlainTileKernels(*tested.back()));
  return tested;
}

Bytes RowOf(const cpu::Kernels* kernels, const cpu::Panels& panels, const float* x) {
  Bytes row(cpu::Int8LayoutOf(panels.cols).bytes, 0xa5);
  kernels->to_int8(x, panels, row.data());
  return row;
}
float FactorAt(const Bytes& row, const cpu::Panels& panels, int64_t index) {
  float factor;
  std::memcpy(&factor, &row[cpu::Int8LayoutOf(panels.cols).factors_at + static_cast<size_t>(index) * 4], 4);
  return factor;
}
int32_t BeforeAt(const Bytes& row, const cpu::Panels& panels, int64_t four) {
  int32_t before;
  std::memcpy(&before, &row[cpu::Int8LayoutOf(panels.cols).before_at + static_cast<size_t>(four) * 4], 4);
  return before;
}

// The runs of a shard's columns: [begin, end), where the factor is.
struct Run {
  int64_t begin, end, index;
};
std::vector<Run> RunsOf(const cpu::Panels& panels) {
  std::vector<Run> runs;
  for (int32_t part = 0; part < panels.parts; ++part) {
    for (int64_t k = panels.bounds[part]; k < panels.bounds[part + 1];) {
      int64_t end = k + 1;
      while (end < panels.bounds[part + 1] && (end + panels.first_col) % 32 != 0) ++end;
      runs.push_back({k, end, (k + panels.first_col) / 32 + part});
      k = end;
    }
  }
  return runs;
}

// What a row holds, and of each column the largest |x| of its run.
struct Held {
  std::vector<float> x, most;
};
Held HeldBy(test::Context& test_context, const Bytes& row, const cpu::Panels& panels, const float* x) {
  const auto cols = static_cast<size_t>(panels.cols);
  Held held = {std::vector<float>(cols + 32), std::vector<float>(cols + 32)};
  const auto* q = reinterpret_cast<const int8_t*>(row.data());
  for (const Run& run : RunsOf(panels)) {
    float largest = 0;
    for (int64_t k = run.begin; k < run.end; ++k) largest = std::max(largest, std::fabs(x[k]));
    const float factor = FactorAt(row, panels, run.index);
    if (!(std::fabs(factor - largest / 127) <= largest * 1e-7f)) {
      test_context.Fail(__FILE__, __LINE__, "factor " + std::to_string(factor));
    }
    for (int64_t k = run.begin; k < run.end; ++k) {
      const auto at = static_cast<size_t>(k);
      held.x[at] = static_cast<float>(q[at]) * factor;
      held.most[at] = largest;
      if (!(std::fabs(held.x[at] - x[at]) <= factor * 0.50001f) || q[at] == -128) {
        test_context.Fail(__FILE__, __LINE__, "column " + std::to_string(k));
      }
    }
  }
  return held;
}

bool HasInt8(const Packed& packed) { return cpu::HasInt8Dot(packed.panels.format); }

// Half a step of the run's largest, and what fp32 loses: kernels.h.
double Bound(int64_t cols, double size) {
  return size * (1.0 / 254 + 0x1p-21 + (static_cast<double>(cols) / 16 + 8) * 0x1p-22) + 1e-30;
}

}  // namespace

TEST(rows_lie_as_they_are_described) {
  std::mt19937 rng(3);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (const int64_t in : {32, 64, 200, 1000}) {
      const Source plain = RandomMatrix(Format::kQ4_0, 16, Columns(Format::kQ4_0, in), &rng);
      auto packed = PackWhole(plain.matrix);
      CHECK_OK(packed);
      const cpu::Panels& panels = packed->panels;
      std::vector<float> x(static_cast<size_t>(panels.cols) + 32);
      for (int64_t i = 0; i < panels.cols; ++i) {
        x[static_cast<size_t>(i)] = RandomNormal(&rng) * std::ldexp(1.0f, static_cast<int>(rng() % 40) - 20);
      }
      const Bytes row = RowOf(kernels, panels, x.data());
      HeldBy(test_context, row, panels, x.data());
      const auto* q = reinterpret_cast<const int8_t*>(row.data());
      const auto* nibbles = q + cpu::Int8LayoutOf(panels.cols).nibbles_at;
      constexpr int kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};
      int32_t sum = 0;
      for (int64_t k = 0; k < panels.cols; ++k) {
        if (k % 4 == 0) CHECK_EQ(BeforeAt(row, panels, k / 4), sum);
        sum += q[k];
        CHECK_EQ(nibbles[k], q[k / 8 * 8 + kOrder[k % 8]]);
      }
      CHECK_EQ(BeforeAt(row, panels, panels.cols / 4), sum);
    }
  }
}

// Zeros, what is too small to be divided by, and what is not finite: such a run is NaN, others are not.
TEST(runs_at_the_ends_of_floats) {
  std::mt19937 rng(4);
  const Source source = RandomMatrix(Format::kQ8_0, 16, 128, &rng);
  auto packed = PackWhole(source.matrix);
  CHECK_OK(packed);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> x(160);
      std::fill_n(x.begin() + 32, 32, 1e-38f);
      std::fill_n(x.begin() + 64, 32, std::numeric_limits<float>::max());
      x[100] = bad;
      const Bytes row = RowOf(kernels, packed->panels, x.data());
      CHECK_EQ(FactorAt(row, packed->panels, 0), 0.0f);
      CHECK_EQ(FactorAt(row, packed->panels, 1), 0.0f);
      CHECK(std::isfinite(FactorAt(row, packed->panels, 2)));
      CHECK_EQ(static_cast<int>(static_cast<int8_t>(row[64])), 127);
      CHECK(std::isnan(FactorAt(row, packed->panels, 3)));
      std::vector<float> y(32);
      float* out = y.data();
      const uint8_t* rows = row.data();
      cpu::MatmulArgs args = {packed->panels, 0, 1, nullptr, &out, 1, cpu::Epilogue::kStore};
      args.x8 = &rows;
      kernels->matmul_int8(args);
      for (int i = 0; i < 16; ++i) CHECK(std::isnan(y[static_cast<size_t>(i)]));
    }
  }
}

TEST(products_stay_in_the_stated_bound_and_rows_do_not_mix) {
  std::mt19937 rng(5);
  size_t formats = 0;
  for (const cpu::Kernels* kernels : TestedKernels()) {
    for (Format format : kFormats) {
      for (auto [out, in] : {std::pair<int64_t, int64_t>{48, 64}, {37, 160}, {130, 320}, {16, 1024}}) {
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        if (!HasInt8(*packed)) continue;
        ++formats;
        constexpr size_t kRows = 35, kCheckedRows = 11;  // tiles take 16
        const size_t width = static_cast<size_t>(in) + 32;
        Rows x = MakeRows(kRows, width);
        std::vector<Bytes> rows;
        std::vector<const uint8_t*> in8;
        std::vector<Held> held;
        for (auto& row : x.data) {
          for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] = RandomNormal(&rng);
          rows.push_back(RowOf(kernels, packed->panels, row.data()));
          held.push_back(HeldBy(test_context, rows.back(), packed->panels, row.data()));
        }
        for (const Bytes& row : rows) in8.push_back(row.data());
        Bytes decoded(cpu::DecodedBytes(packed->panels.cols) + 63);
        const int64_t even = packed->plan.panels & ~int64_t{1};
        for (const auto epilogue : {cpu::Epilogue::kStore, cpu::Epilogue::kAdd, cpu::Epilogue::kGateUp}) {
          cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr, nullptr, 1, epilogue};
          if (epilogue == cpu::Epilogue::kGateUp) args.panel_end = even;
          Rows alone = MakeRows(kRows, static_cast<size_t>(out) + 64);
          for (size_t r = 0; r < kRows; ++r) {
            args.x8 = &in8[r];
            args.out = &alone.out[r];
            kernels->matmul_int8(args);
          }
          for (size_t count : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 35}) {
            const size_t first = kRows - count;
            args.decoded = count % 3 == 0 ? nullptr : decoded.data() + (-reinterpret_cast<uintptr_t>(decoded.data()) & 63);
            Rows y = MakeRows(count, static_cast<size_t>(out) + 64);
            args.x8 = in8.data() + first;
            args.out = y.out.data();
            args.rows = static_cast<int64_t>(count);
            kernels->matmul_int8(args);
            for (size_t r = 0; r < count; ++r) CHECK(y.data[r] == alone.data[first + r]);
          }
          if (epilogue != cpu::Epilogue::kStore) continue;
          for (size_t r = 0; r < kCheckedRows; ++r) {
            std::vector<double> size, held_size, most_size;
            const auto want = Expected(source.matrix, 0, out, 0, in, x.in[r], &size);
            const auto near = Expected(source.matrix, 0, out, 0, in, held[r].x.data(), &held_size);
            Expected(source.matrix, 0, out, 0, in, held[r].most.data(), &most_size);
            for (size_t i = 0; i < want.size(); ++i) {
              // Sums of integers are exact; what is left is fp32's.
              CHECK_LE(std::fabs(alone.data[r][i] - near[i]), most_size[i] * 1e-6 + 1e-30);
              CHECK_LE(std::fabs(alone.data[r][i] - want[i]), Bound(in, most_size[i]));
            }
          }
        }
      }
    }
  }
  CHECK(formats >= 4 * 14);
}

// More rows and columns than are taken at a time, and shards that begin within a group: the bits of a row by itself.
TEST(many_rows_by_blocks_have_the_bits_of_one) {
  std::mt19937 rng(11);
  constexpr size_t kRows = cpu::kBlockRows + 7;
  constexpr int64_t kOut = 48, kIn = 2400;  // parts of K are longer than kBlockCols
  for (const cpu::Kernels* kernels : TestedKernels()) {
    for (Format format : kFormats) {
      const Source source = RandomMatrix(format, kOut, Columns(format, kIn), &rng);
      // Scales of whole rows let parts and shards begin within runs.
      const int64_t unit = format == Format::kInt8Channel ? 8 : 32;
      for (int32_t ranks : {1, 2}) {
        Program program;
        program.ranks = ranks;
        auto packed = Pack(program, CutColumns(source.matrix, ranks, unit), ranks - 1);
        CHECK_OK(packed);
        if (!HasInt8(*packed)) continue;
        const cpu::Panels& panels = packed->panels;
        std::vector<Bytes> rows;
        std::vector<const uint8_t*> in8;
        std::vector<float> x(static_cast<size_t>(panels.cols) + 32);
        for (size_t r = 0; r < kRows; ++r) {
          for (int64_t i = 0; i < panels.cols; ++i) x[static_cast<size_t>(i)] = RandomNormal(&rng);
          rows.push_back(RowOf(kernels, panels, x.data()));
        }
        for (const Bytes& row : rows) in8.push_back(row.data());
        Rows y = MakeRows(kRows, kOut + 64);
        Bytes decoded(cpu::DecodedBytes(panels.cols) + 63);
        cpu::MatmulArgs args = {panels, 0, packed->plan.panels, nullptr, y.out.data(), kRows, cpu::Epilogue::kStore};
        args.x8 = in8.data();
        args.decoded = decoded.data() + (-reinterpret_cast<uintptr_t>(decoded.data()) & 63);
        kernels->matmul_int8(args);
        args.decoded = nullptr;
        args.rows = 1;
        for (const size_t r : {size_t{0}, size_t{7}, kRows - 8, kRows - 7, kRows - 1}) {
          Rows alone = MakeRows(1, kOut + 64);
          args.x8 = &in8[r];
          args.out = alone.out.data();
          kernels->matmul_int8(args);
          CHECK(alone.data[0] == y.data[r]);
        }
      }
    }
  }
}

// Several runs of x to a scale: each piece is multiplied by the group's, by vectors and by tiles.
TEST(groups_of_more_columns_than_a_run_have_one_scale) {
  std::mt19937 rng(8);
  for (const cpu::Kernels* kernels : TestedKernels()) {
    for (const int64_t group : {64, 128, 256}) {
      constexpr int64_t kOut = 48, kIn = 768;
      constexpr size_t kRows = 19;
      const Source source = RandomMatrix(Format::kInt4Packed, kOut, kIn, &rng, group);
      auto packed = PackWhole(source.matrix);
      CHECK_OK(packed);
      CHECK_EQ(packed->panels.group_cols, group);
      Rows x = MakeRows(kRows, kIn + 32), y = MakeRows(kRows, kOut + 64);
      std::vector<Bytes> rows;
      std::vector<const uint8_t*> in8;
      for (auto& row : x.data) {
        for (int64_t i = 0; i < kIn; ++i) row[static_cast<size_t>(i)] = RandomNormal(&rng);
        rows.push_back(RowOf(kernels, packed->panels, row.data()));
      }
      for (const Bytes& row : rows) in8.push_back(row.data());
      Bytes decoded(cpu::DecodedBytes(packed->panels.cols) + 63);
      cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr, y.out.data(), kRows, cpu::Epilogue::kStore};
      args.x8 = in8.data();
      args.decoded = decoded.data() + (-reinterpret_cast<uintptr_t>(decoded.data()) & 63);
      kernels->matmul_int8(args);
      for (size_t r = 0; r < kRows; ++r) {
        const Held held = HeldBy(test_context, rows[r], packed->panels, x.in[r]);
        std::vector<double> size, most_size;
        const auto near = Expected(source.matrix, 0, kOut, 0, kIn, held.x.data(), &size);
        Expected(source.matrix, 0, kOut, 0, kIn, held.most.data(), &most_size);
        for (size_t i = 0; i < near.size(); ++i) {
          CHECK_LE(std::fabs(y.data[r][i] - near[i]), most_size[i] * 1e-6 + 1e-30);
        }
      }
    }
  }
}

// The sums are integers, so targets whose multiply-adds round once agree to the bit.
TEST(targets_agree_to_the_bit) {
  std::mt19937 rng(9);
  const std::vector<const cpu::Kernels*> all = cpu::UsableKernels();
  for (Format format : kFormats) {
    const int64_t in = Columns(format, 320);
    const Source source = RandomMatrix(format, 48, in, &rng);
    auto packed = PackWhole(source.matrix);
    CHECK_OK(packed);
    if (!HasInt8(*packed)) continue;
    std::vector<float> x(static_cast<size_t>(in) + 32), first;
    for (int64_t i = 0; i < in; ++i) x[static_cast<size_t>(i)] = RandomNormal(&rng);
    for (const cpu::Kernels* kernels : all) {
      if (std::string(kernels->name) == "portable") continue;
      const Bytes row = RowOf(kernels, packed->panels, x.data());
      for (const size_t count : {1u, 2u, 5u, 19u}) {
        const std::vector<const uint8_t*> rows(count, row.data());
        Rows y = MakeRows(count, 128);
        Bytes decoded(cpu::DecodedBytes(packed->panels.cols) + 63);
        cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr, y.out.data(),
                                static_cast<int64_t>(count), cpu::Epilogue::kStore};
        args.x8 = rows.data();
        args.decoded = decoded.data() + (-reinterpret_cast<uintptr_t>(decoded.data()) & 63);
        kernels->matmul_int8(args);
        if (first.empty()) first = y.data[0];
        for (const std::vector<float>& got : y.data) CHECK(got == first);
      }
    }
  }
}

// The largest codes of either side, all of one sign: sums of 16 bits hold them.
TEST(sums_hold_the_largest_codes) {
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (Format format : kFormats) {
      std::mt19937 rng(7);
      Source source = RandomMatrix(format, 16, 256, &rng);
      for (const uint8_t byte : {0xff, 0x00, 0x77, 0x88}) {
        const quant::FormatInfo& info = quant::InfoOf(format);
        if (info.block_cols != 0) {
          // All but the scales: those of a block are fp16 or a byte at its begin, or in q6_k at its end.
          const Source fresh = RandomMatrix(format, 16, 256, &rng);
          source.data = fresh.data;
          const size_t keep = format == Format::kQ4K || format == Format::kQ5K ? 16
                              : format == Format::kQ4_1 || format == Format::kQ5_1 ? 4
                              : format == Format::kMxfp4Blocks                     ? 1
                              : format == Format::kQ6K                             ? 0
                                                                                   : 2;
          const size_t end = format == Format::kQ6K ? 192 : info.block_bytes;
          for (size_t at = 0; at < source.data.size(); at += info.block_bytes) {
            std::fill(source.data.begin() + static_cast<ptrdiff_t>(at + keep),
                      source.data.begin() + static_cast<ptrdiff_t>(at + end), byte);
          }
        } else if (info.element_bits == 4) {
          std::fill(source.data.begin(), source.data.end(), byte);
        }
        source.matrix.data = source.data;
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        if (!HasInt8(*packed)) break;
        for (const float sign : {1.0f, -1.0f}) {
          const std::vector<float> x(288, sign);
          const Bytes row = RowOf(kernels, packed->panels, x.data());
          std::vector<float> y(32);
          float* to = y.data();
          const uint8_t* rows = row.data();
          cpu::MatmulArgs args = {packed->panels, 0, 1, nullptr, &to, 1, cpu::Epilogue::kStore};
          args.x8 = &rows;
          kernels->matmul_int8(args);
          std::vector<double> size;
          const auto want = Expected(source.matrix, 0, 16, 0, 256, x.data(), &size);
          for (size_t i = 0; i < 16; ++i) CHECK_LE(std::fabs(y[i] - want[i]), size[i] * 4e-6 + 1e-30);
        }
      }
    }
  }
}

TEST(column_shards_add_up_to_the_same_bits) {
  std::mt19937 rng(2);
  for (const cpu::Kernels* kernels : TestedKernels()) {
    for (Format format : kFormats) {
      for (int64_t in : {256, 320, 384, 1536, 64}) {
        const int64_t out = 40;
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        // Parts begin within runs where the format lets them: groups of 8 columns.
        const int64_t unit = format == Format::kInt4Packed || format == Format::kGptq || format == Format::kAwq
                                 ? 8
                                 : 32;
        std::vector<float> x(static_cast<size_t>(in) + 32), whole;
        for (int64_t i = 0; i < in; ++i) x[static_cast<size_t>(i)] = RandomNormal(&rng);
        for (int32_t ranks : {1, 2, 4, 8}) {
          Program program;
          program.ranks = ranks;
          const Weight weight = CutColumns(source.matrix, ranks, unit);
          Rows partial = MakeRows(static_cast<size_t>(ranks), 64);
          std::vector<const float*> parts;
          bool has = true;
          for (int32_t r = 0; r < ranks && has; ++r) {
            auto packed = Pack(program, weight, r);
            CHECK_OK(packed);
            has = HasInt8(*packed);
            if (!has) break;
            const backend::WeightSlice& slice = weight.ranks[static_cast<size_t>(r)][0];
            std::vector<float> own(static_cast<size_t>(in) + 32);
            std::copy(x.begin() + slice.col_begin, x.begin() + slice.col_end, own.begin());
            const Bytes row = RowOf(kernels, packed->panels, own.data());
            const uint8_t* rows = row.data();
            cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr,
                                    &partial.out[static_cast<size_t>(r)], 1, cpu::Epilogue::kStore};
            args.x8 = &rows;
            kernels->matmul_int8(args);
            // Many rows, which lie anyhow: all of them this one.
            constexpr size_t kMany = 18;
            Rows many = MakeRows(kMany, 64);
            const std::vector<const uint8_t*> same(kMany, rows);
            Bytes decoded(cpu::DecodedBytes(packed->panels.cols) + 63);
            args.decoded = decoded.data() + (-reinterpret_cast<uintptr_t>(decoded.data()) & 63);
            args.x8 = same.data();
            args.out = many.out.data();
            args.rows = kMany;
            kernels->matmul_int8(args);
            for (const std::vector<float>& y : many.data) {
              CHECK(std::memcmp(y.data(), partial.in[static_cast<size_t>(r)], 48 * sizeof(float)) == 0);
            }
            parts.push_back(partial.in[static_cast<size_t>(r)]);
          }
          if (!has) break;
          std::vector<float> sum(64, 0.0f);
          kernels->add_tree(sum.data(), parts.data(), ranks, 48);
          if (whole.empty()) {
            whole = sum;
            std::vector<double> size;
            const std::vector<float> ones(x.size(), 4.5f);  // no |x| is larger
            const auto want = Expected(source.matrix, 0, out, 0, in, x.data(), &size);
            Expected(source.matrix, 0, out, 0, in, ones.data(), &size);
            for (size_t i = 0; i < want.size(); ++i) {
              CHECK_LE(std::fabs(sum[i] - want[i]), Bound(in, size[want.size() + i]));
            }
          }
          CHECK(std::memcmp(whole.data(), sum.data(), static_cast<size_t>(out) * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST(experts_are_added_up_and_nothing_depends_on_what_is_computed_together) {
  constexpr int64_t kOut = 100, kIn = 512, kRows = 6, kWide = 128;
  constexpr int32_t kExperts = 3, kK = 2;
  std::mt19937 rng(6);
  for (Format format : kFormats) {
    auto experts = RandomExperts(format, kExperts, kOut, kIn, &rng);
    CHECK_OK(experts);
    const std::vector<Source>& sources = experts->sources;
    const std::vector<Packed>& packed = experts->packed;
    const std::vector<cpu::Panels>& panels = experts->panels;
    if (!std::all_of(packed.begin(), packed.end(), HasInt8)) continue;
    const int32_t active[] = {0, 1, 2}, offsets[] = {0, 6, 9, 12};
    const int32_t entries[] = {0, 2, 4, 6, 8, 10, /*1:*/ 1, 5, 9, /*2:*/ 3, 7, 11};
    for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
      const size_t stride = cpu::Int8LayoutOf(panels[0].cols).bytes;
      std::vector<uint8_t> act8(kRows * kK * stride);
      std::vector<std::vector<float>> most;
      std::vector<std::vector<float>> act;
      for (size_t entry = 0; entry < kRows * kK; ++entry) {
        act.emplace_back(kIn + 32);
        for (int64_t i = 0; i < kIn; ++i) act.back()[static_cast<size_t>(i)] = RandomNormal(&rng);
        kernels->to_int8(act.back().data(), panels[0], act8.data() + entry * stride);
        const Bytes row(act8.begin() + static_cast<ptrdiff_t>(entry * stride),
                        act8.begin() + static_cast<ptrdiff_t>((entry + 1) * stride));
        most.push_back(HeldBy(test_context, row, panels[0], act.back().data()).most);
      }
      std::vector<float> weights(kRows * kK);
      for (float& w : weights) w = std::fabs(RandomNormal(&rng));
      std::vector<float> scratch(kRows * cpu::kMaxParts * cpu::kExpertPanels * 16);
      std::vector<float> together(kRows * kWide), alone(kRows * kWide);
      cpu::ExpertsDownArgs args = {};
      args.experts = panels.data();
      args.panel_end = packed[0].plan.panels;
      args.active = active;
      args.active_count = kExperts;
      args.offsets = offsets;
      args.entries = entries;
      args.k = kK;
      args.act8 = act8.data();
      args.act8_stride = static_cast<int64_t>(stride);
      args.weights = weights.data();
      args.weights_stride = kK;
      args.out = together.data();
      args.out_stride = kWide;
      args.rows = kRows;
      args.first = args.last = true;
      args.scratch = scratch.data();
      kernels->experts_down_int8(args);
      for (int32_t r = 0; r < kRows; ++r) {
        const int32_t other = 1 + r % 2;
        const auto at = static_cast<size_t>(r * kK);
        std::vector<double> unused, size, other_size;
        const auto& of = [&](int32_t expert) -> const Matrix& {
          return sources[static_cast<size_t>(expert)].matrix;
        };
        const auto first = Expected(of(0), 0, kOut, 0, kIn, act[at].data(), &unused);
        const auto second = Expected(of(other), 0, kOut, 0, kIn, act[at + 1].data(), &unused);
        Expected(of(0), 0, kOut, 0, kIn, most[at].data(), &size);
        Expected(of(other), 0, kOut, 0, kIn, most[at + 1].data(), &other_size);
        const float* w = weights.data() + at;
        for (size_t i = 0; i < kOut; ++i) {
          const double error =
              double{together[static_cast<size_t>(r * kWide) + i]} - w[0] * first[i] - w[1] * second[i];
          CHECK_LE(std::fabs(error), Bound(kIn, w[0] * size[i] + w[1] * other_size[i]));
        }
        cpu::ExpertsDownArgs one = args;
        one.act8 = act8.data() + at * stride;
        one.weights = w;
        one.out = alone.data() + r * kWide;
        RunAlone(one, other, packed[0].plan.panels, 1 + r % cpu::kExpertPanels, kernels->experts_down_int8);
      }
      CHECK(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0);
    }
  }
}
