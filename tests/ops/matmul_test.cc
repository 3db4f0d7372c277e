// SPDX-License-Identifier: MIT
//
// Products over panels against fp64, for every format, target, row count, shape and shard; and the
// same bits for one row as for many.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ops/random_matrices.h"
#include "support/plain_tiles.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::test;
using backend::WeightLayout;

namespace {

// This machine's targets, and tiles in plain code. Those with bf16 activations have them, unless the system
// refuses.
std::vector<const cpu::Kernels*> TestedKernels() {
  std::vector<const cpu::Kernels*> tested = cpu::UsableKernels();
  tested.push_back(test::PlainTileKernels(*tested.back()));
  for (const cpu::Kernels* kernels : tested) {
    if (kernels->may_round == nullptr || kernels->may_round()) continue;
    std::printf("# %s: the system refuses its tiles\n", kernels->name);
    std::erase(tested, kernels);
    break;
  }
  return tested;
}

bool Rounds(const cpu::Kernels* kernels, cpu::PanelFormat format) {
  return kernels->matmul_bf16 != nullptr && cpu::HasBF16Dot(format);
}

}  // namespace

TEST(products_match_fp64_and_rows_do_not_mix) {
  std::mt19937 rng(1);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (Format format : kFormats) {
      for (auto [out, in] :
           {std::pair<int64_t, int64_t>{48, 64}, {37, 160}, {130, 320}, {16, 1024}}) {
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        constexpr size_t kRows = 9;
        Rows x = MakeRows(kRows, static_cast<size_t>(in) + 32);
        Rows y = MakeRows(kRows, static_cast<size_t>(out) + 64);
        for (auto& row : x.data) {
          for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] = RandomNormal(&rng);
        }
        cpu::MatmulArgs args = {packed->panels, 0,     packed->plan.panels,  x.in.data(),
                                y.out.data(),   kRows, cpu::Epilogue::kStore};
        kernels->matmul(args);
        for (size_t r = 0; r < kRows; ++r) {
          std::vector<double> size;
          const std::vector<double> want = Expected(source.matrix, 0, out, 0, in, x.in[r], &size);
          for (size_t i = 0; i < want.size(); ++i) {
            // n roundings of fp32, each relative to what has been added so far.
            CHECK_LE(std::fabs(y.data[r][i] - want[i]), size[i] * 1e-6 + 1e-30);
          }
        }
        // One row at a time, panel by panel: the same bits.
        Rows single = MakeRows(1, y.data[0].size());
        for (size_t r = 0; r < kRows; ++r) {
          args.x = &x.in[r];
          args.out = single.out.data();
          args.rows = 1;
          for (int64_t p = 0; p < packed->plan.panels; ++p) {
            args.panel_begin = p;
            args.panel_end = p + 1;
            kernels->matmul(args);
          }
          CHECK(std::memcmp(single.data[0].data(), y.data[r].data(),
                            static_cast<size_t>(out) * sizeof(float)) == 0);
        }
      }
    }
  }
}

// However many rows, with and without room to decode panels, from rows and from columns, stored, added
// and as pairs of a gate: the bits of each row by itself.
TEST(a_row_has_the_same_bits_in_every_company) {
  std::mt19937 rng(6);
  constexpr size_t kMostRows = 13;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (Format format : kFormats) {
      for (auto [out, in] : {std::pair<int64_t, int64_t>{37, 160}, {128, 384}}) {
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        const size_t width = static_cast<size_t>(in) + 32;
        Rows x = MakeRows(kMostRows, width);
        for (auto& row : x.data) {
          for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] = RandomNormal(&rng);
        }
        std::vector<uint8_t> decoded(cpu::DecodedBytes(packed->panels.cols));
        std::vector<float> columns(cpu::kMaxBlockRows * width);
        const int64_t even = packed->plan.panels & ~int64_t{1};
        for (auto epilogue : {cpu::Epilogue::kStore, cpu::Epilogue::kAdd, cpu::Epilogue::kGateUp}) {
          cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr, nullptr, 1, epilogue};
          if (epilogue == cpu::Epilogue::kGateUp) args.panel_end = even;
          Rows alone = MakeRows(kMostRows, static_cast<size_t>(out) + 64);
          for (size_t r = 0; r < kMostRows; ++r) {
            args.x = &x.in[r];
            args.out = &alone.out[r];
            kernels->matmul(args);
          }
          for (size_t count = 2; count <= kMostRows; ++count) {
            // The last rows, so that a row is not always at the same place of a block.
            const size_t first = kMostRows - count;
            const bool few = count <= cpu::kMaxBlockRows && kernels->by_columns != nullptr;
            if (few) {
              kernels->by_columns(x.in.data() + first, static_cast<int64_t>(count),
                                  static_cast<int64_t>(width), columns.data());
            }
            for (bool more : {false, true}) {
              Rows y = MakeRows(count, static_cast<size_t>(out) + 64);
              args.x = x.in.data() + first;
              args.out = y.out.data();
              args.rows = static_cast<int64_t>(count);
              args.decoded = more ? decoded.data() : nullptr;
              args.columns = more && few ? columns.data() : nullptr;
              kernels->matmul(args);
              for (size_t r = 0; r < count; ++r) CHECK(y.data[r] == alone.data[first + r]);
            }
          }
        }
      }
    }
  }
}

// More rows and columns than are taken at a time, scale groups that go on behind such columns, or begin before a shard: the bits
// of a row by itself.
TEST(many_rows_by_blocks_have_the_bits_of_one) {
  std::mt19937 rng(10);
  constexpr size_t kRows = cpu::kBlockRows + 7;
  constexpr int64_t kOut = 48, kIn = 2400;  // parts of K are longer than kBlockCols
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    const auto compare = [&](const Source& source, int32_t ranks) {
      Program program;
      program.ranks = ranks;
      auto packed = Pack(program, CutColumns(source.matrix, ranks, 32), ranks - 1);
      CHECK_OK(packed);
      Rows x = MakeRows(kRows, static_cast<size_t>(packed->panels.cols) + 32), y = MakeRows(kRows, kOut + 64);
      for (auto& row : x.data) {
        for (int64_t i = 0; i < packed->panels.cols; ++i) row[static_cast<size_t>(i)] = RandomNormal(&rng);
      }
      std::vector<uint8_t> decoded(cpu::DecodedBytes(packed->panels.cols));
      cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, x.in.data(), y.out.data(), kRows, cpu::Epilogue::kStore};
      args.decoded = decoded.data();
      kernels->matmul(args);
      args.decoded = nullptr;
      args.rows = 1;
      for (const size_t r : {size_t{0}, size_t{7}, kRows - 8, kRows - 7, kRows - 1}) {
        Rows alone = MakeRows(1, kOut + 64);
        args.x = &x.in[r];
        args.out = alone.out.data();
        kernels->matmul(args);
        CHECK(alone.data[0] == y.data[r]);
      }
    };
    for (Format format : kFormats) {
      const Source source = RandomMatrix(format, kOut, Columns(format, kIn), &rng);
      for (int32_t ranks : {1, 2}) compare(source, ranks);
    }
    for (const int64_t group : {512, 1024}) compare(RandomMatrix(Format::kInt4Packed, kOut, 4096, &rng, group), 1);
  }
}

// kernels.h states the bound: activations are rounded to 8 bits, and sums of K products to 24.
TEST(bf16_activations_stay_in_the_stated_bound_and_rows_do_not_mix) {
  std::mt19937 rng(5);
  for (const cpu::Kernels* kernels : TestedKernels()) {
    if (kernels->matmul_bf16 == nullptr) continue;
    for (Format format : kFormats) {
      for (auto [out, in] :
           {std::pair<int64_t, int64_t>{48, 64}, {37, 160}, {130, 320}, {16, 1024}}) {
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        if (!Rounds(kernels, packed->panels.format)) continue;
        constexpr size_t kMostRows = 50;
        const size_t width = static_cast<size_t>(in) + 32;
        Rows x = MakeRows(kMostRows, width);
        std::vector<std::vector<uint16_t>> x16(kMostRows, std::vector<uint16_t>(width));
        std::vector<const uint16_t*> in16;
        Rows rounded = MakeRows(kMostRows, width);
        for (size_t r = 0; r < kMostRows; ++r) {
          for (int64_t i = 0; i < in; ++i) x.data[r][static_cast<size_t>(i)] = RandomNormal(&rng);
          kernels->to_bf16(x.in[r], x16[r].data(), static_cast<int64_t>(width));
          kernels->load_bf16(reinterpret_cast<const uint8_t*>(x16[r].data()),
                             rounded.data[r].data(), static_cast<int64_t>(width));
          in16.push_back(x16[r].data());
        }
        std::vector<uint8_t> decoded(cpu::DecodedBytes(packed->panels.cols));
        std::vector<std::vector<float>> alone;  // of each row by itself
        for (size_t count : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 14u, 16u, 17u, 21u, 32u, 33u, 50u}) {
          for (bool decode : {false, true}) {
            // The last rows, so that a row is not always at the same place of a block.
            const size_t first = kMostRows - count;
            Rows y = MakeRows(count, static_cast<size_t>(out) + 64);
            cpu::MatmulArgs args = {packed->panels,        0,
                                    packed->plan.panels,   nullptr,
                                    y.out.data(),          static_cast<int64_t>(count),
                                    cpu::Epilogue::kStore};
            args.x16 = in16.data() + first;
            args.decoded = decode ? decoded.data() : nullptr;
            kernels->matmul_bf16(args);
            for (size_t r = 0; r < count; ++r) {
              if (alone.size() < kMostRows) {  // the first call has one row: make all of them
                for (size_t i = 0; i < kMostRows; ++i) {
                  alone.emplace_back(static_cast<size_t>(out) + 64);
                  float* to = alone.back().data();
                  args.x16 = in16.data() + i;
                  args.out = &to;
                  for (int64_t p = 0; p < packed->plan.panels; ++p) {
                    args.panel_begin = p;
                    args.panel_end = p + 1;
                    kernels->matmul_bf16(args);
                  }
                }
              }
              CHECK(std::memcmp(alone[first + r].data(), y.data[r].data(),
                                static_cast<size_t>(out) * sizeof(float)) == 0);
            }
          }
        }
        for (size_t r = 0; r < kMostRows; ++r) {
          std::vector<double> size, rounded_size;
          const std::vector<double> want = Expected(source.matrix, 0, out, 0, in, x.in[r], &size);
          const std::vector<double> near =
              Expected(source.matrix, 0, out, 0, in, rounded.in[r], &rounded_size);
          const double sums = static_cast<double>(in + 8) * 0x1p-23;
          for (size_t i = 0; i < want.size(); ++i) {
            CHECK_LE(std::fabs(alone[r][i] - want[i]), size[i] * (0x1p-8 + sums) + 1e-30);
            CHECK_LE(std::fabs(alone[r][i] - near[i]), rounded_size[i] * 1e-6 + 1e-30);  // but for x, fp32 sums
          }
        }
      }
    }
  }
}

TEST(column_shards_add_up_to_the_same_bits) {
  std::mt19937 rng(2);
  for (const cpu::Kernels* kernels : TestedKernels()) {
    for (Format format : kFormats) {
      for (auto [in, fast] : {std::pair<int64_t, bool>{256, false}, {320, false}, {384, false}, {1536, false},
                              {64, false}, {256, true}, {320, true}, {1536, true}}) {
        const int64_t out = 40;
        in = Columns(format, in);
        const Source source = RandomMatrix(format, out, in, &rng);
        Rows x = MakeRows(1, static_cast<size_t>(in) + 32);
        for (int64_t i = 0; i < in; ++i) x.data[0][static_cast<size_t>(i)] = RandomNormal(&rng);
        std::vector<float> whole;
        for (int32_t ranks : {1, 2, 4, 8}) {
          Program program;
          program.ranks = ranks;
          const Weight weight = CutColumns(source.matrix, ranks, 32);
          Rows partial = MakeRows(static_cast<size_t>(ranks), 64);
          std::vector<const float*> parts;
          for (int32_t r = 0; r < ranks; ++r) {
            auto packed = Pack(program, weight, r);
            CHECK_OK(packed);
            if (fast && !Rounds(kernels, packed->panels.format)) break;
            // The shard's own copy of its input, padded.
            const backend::WeightSlice& slice = weight.ranks[static_cast<size_t>(r)][0];
            Rows own = MakeRows(1, static_cast<size_t>(in) + 32);
            std::copy(x.data[0].begin() + slice.col_begin, x.data[0].begin() + slice.col_end,
                      own.data[0].begin());
            std::vector<uint16_t> own16(own.data[0].size());
            const uint16_t* rows16 = own16.data();
            if (fast) kernels->to_bf16(own.in[0], own16.data(), static_cast<int64_t>(own16.size()));
            cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, own.in.data(),
                                    &partial.out[static_cast<size_t>(r)], 1, cpu::Epilogue::kStore};
            args.x16 = &rows16;
            (fast ? kernels->matmul_bf16 : kernels->matmul)(args);
            parts.push_back(partial.in[static_cast<size_t>(r)]);
          }
          if (parts.empty()) break;  // it has no such product
          std::vector<float> sum(64, 0.0f);
          kernels->add_tree(sum.data(), parts.data(), ranks, 48);
          if (whole.empty()) {
            whole = sum;
            std::vector<double> size;
            const std::vector<double> want = Expected(source.matrix, 0, out, 0, in, x.in[0], &size);
            for (size_t i = 0; i < want.size(); ++i) {
              const double share = (fast ? 0x1p-8 : 0) + 1e-6;
              CHECK_LE(std::fabs(sum[i] - want[i]), size[i] * share + 1e-30);
            }
          }
          CHECK(std::memcmp(whole.data(), sum.data(), static_cast<size_t>(out) * sizeof(float)) ==
                0);
        }
      }
    }
  }
}

TEST(gate_and_up_are_joined_by_silu) {
  std::mt19937 rng(3);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (Format format : kFormats) {
      const int64_t width = 56, in = Columns(format, 128);
      const Source gate = RandomMatrix(format, width, in, &rng);
      const Source up = RandomMatrix(format, width, in, &rng);
      Program program;
      Weight weight;
      weight.label = "gate_up";
      weight.layout = WeightLayout::kGateUp;
      weight.sources = {gate.matrix, up.matrix};
      weight.ranks = {{{0, 0, width, 0, in}, {1, 0, width, 0, in}}};
      auto packed = Pack(program, weight, 0);
      CHECK_OK(packed);
      for (size_t count : {1u, 2u, 5u}) {
        Rows x = MakeRows(count, static_cast<size_t>(in) + 32), y = MakeRows(count, 128);
        for (auto& row : x.data) {
          for (size_t i = 0; i < 128; ++i) row[i] = 0.1f * RandomNormal(&rng);
        }
        kernels->matmul({packed->panels, 0, packed->plan.panels, x.in.data(), y.out.data(),
                         static_cast<int64_t>(count), cpu::Epilogue::kGateUp});
        for (size_t r = 0; r < count; ++r) {
          std::vector<double> size;
          const auto g = Expected(gate.matrix, 0, width, 0, in, x.in[r], &size);
          const auto u = Expected(up.matrix, 0, width, 0, in, x.in[r], &size);
          for (size_t i = 0; i < g.size(); ++i) {
            const double want = g[i] / (1 + std::exp(-g[i])) * u[i];
            const double scale = (size[i] + 1) * (size[i + g.size()] + 1);
            CHECK_LE(std::fabs(y.data[r][i] - want), 3e-6 * scale);
          }
        }
      }
    }
  }
}

TEST(stacked_slices_of_different_formats_are_decoded_exactly) {
  std::mt19937 rng(4);
  const Source a = RandomMatrix(Format::kMxfp4, 20, 64, &rng);
  const Source b = RandomMatrix(Format::kBF16, 12, 64, &rng);
  Program program;
  Weight weight;
  weight.label = "mixed";
  weight.sources = {a.matrix, b.matrix};
  weight.ranks = {{{0, 0, 20, 0, 64}, {1, 0, 12, 0, 64}}};
  auto packed = Pack(program, weight, 0);
  CHECK_OK(packed);
  CHECK(packed->plan.decode_to_f32);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    Rows x = MakeRows(1, 96), y = MakeRows(1, 64);
    for (size_t i = 0; i < 64; ++i) x.data[0][i] = RandomNormal(&rng);
    kernels->matmul({packed->panels, 0, packed->plan.panels, x.in.data(), y.out.data(), 1,
                     cpu::Epilogue::kStore});
    std::vector<double> size;
    std::vector<double> want = Expected(a.matrix, 0, 20, 0, 64, x.in[0], &size);
    for (double v : Expected(b.matrix, 0, 12, 0, 64, x.in[0], &size)) want.push_back(v);
    for (size_t i = 0; i < want.size(); ++i) {
      CHECK_LE(std::fabs(y.data[0][i] - want[i]), size[i] * 1e-6 + 1e-30);
    }
  }
}

// Where they end at panels' ends, each of them keeps its format.
TEST(stacked_slices_that_end_with_panels_keep_their_formats) {
  std::mt19937 rng(9);
  const Source q = RandomMatrix(Format::kQ4K, 64, 256, &rng), k = RandomMatrix(Format::kQ4K, 32, 256, &rng),
               v = RandomMatrix(Format::kQ6K, 37, 256, &rng);
  const Program program;
  Weight weight;
  weight.label = "qkv";
  weight.sources = {q.matrix, k.matrix, v.matrix};
  weight.ranks = {{{0, 0, 64, 0, 256}, {1, 0, 32, 0, 256}, {2, 0, 37, 0, 256}}};
  auto plans = cpu::PlanSegments(program, weight, 0);
  CHECK_OK(plans);
  CHECK_EQ(plans->size(), 2u);
  CHECK((*plans)[0].panels == 6 && (*plans)[0].layout.format == cpu::PanelFormat::kQ4K);
  CHECK((*plans)[1].panels == 3 && (*plans)[1].layout.format == cpu::PanelFormat::kQ6K);
  weight.ranks = {{{2, 0, 37, 0, 256}, {0, 0, 64, 0, 256}}};
  plans = cpu::PlanSegments(program, weight, 0);
  CHECK_OK(plans);
  CHECK(plans->empty());  // 37 rows do not end with a panel
  weight.ranks = {{{0, 0, 64, 0, 256}, {1, 0, 32, 0, 256}}};
  plans = cpu::PlanSegments(program, weight, 0);
  CHECK_OK(plans);
  CHECK(plans->empty());  // one format: one plan
}

// "act-order": one product of a column is the weight itself, exactly; matrices of two orders in one are fp32.
TEST(columns_of_any_group_stay_in_four_bits) {
  constexpr int64_t kRows = 40, kCols = 256;
  std::mt19937 rng(9);
  Source sources[2];
  for (Source& source : sources) {
    do source = RandomMatrix(Format::kGptq, kRows, kCols, &rng);
    while (source.order.empty());
  }
  const Matrix& matrix = sources[0].matrix;
  auto packed = PackWhole(matrix);
  CHECK_OK(packed);
  CHECK(packed->panels.format == cpu::PanelFormat::kInt4Order);
  // 4 bits, 16 for a column of 16 rows, and eight groups' two floats a row.
  CHECK_EQ(packed->panels.stride, size_t{16} * kCols / 2 + 2 * kCols + 8 * 2 * 16 * 4);
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    for (int64_t col = 0; col < kCols; ++col) {
      Rows x = MakeRows(1, kCols + 32), y = MakeRows(1, kRows + 64);
      x.data[0][static_cast<size_t>(col)] = 1;
      kernels->matmul({packed->panels, 0, packed->plan.panels, x.in.data(), y.out.data(), 1,
                       cpu::Epilogue::kStore});
      for (int64_t row = 0; row < kRows; ++row) {
        float want;
        quant::DecodeRow(matrix, row, col, 1, &want);
        CHECK_EQ(y.data[0][static_cast<size_t>(row)], want);
      }
    }
  }
  const Program program;
  Weight weight;
  weight.label = "w";
  weight.sources = {matrix, sources[1].matrix};
  weight.ranks = {{{0, 0, kRows, 0, kCols}, {1, 0, kRows, 0, kCols}}};
  auto both = Pack(program, weight, 0);
  CHECK_OK(both);
  CHECK(both->panels.format == cpu::PanelFormat::kF32);
}

TEST(a_shard_that_begins_inside_a_group_is_refused) {
  std::mt19937 rng(10);
  const Source q6 = RandomMatrix(Format::kQ6K, 16, 512, &rng), q4 = RandomMatrix(Format::kQ4K, 16, 512, &rng);
  const Program program;
  Weight weight;
  weight.label = "w";
  for (const auto& [source, begin, fits] : {std::tuple(&q6, 48, true), {&q6, 40, false}, {&q4, 48, false}, {&q4, 96, true}}) {
    weight.sources = {source->matrix};
    weight.ranks = {{{0, 0, 16, begin, 512}}};
    const auto plan = cpu::PlanPanels(program, weight, 0, 0);
    CHECK_EQ(plan.ok(), fits);
    if (!fits) CHECK(CodeOf(plan.status()) == Code::kUnsupported);
  }
}

// Rows 0 to 5 go to expert 0 and to 1 or 2: more rows of one expert than a block has, and fewer.
TEST(experts_are_added_up_and_nothing_depends_on_what_is_computed_together) {
  constexpr int64_t kOut = 100, kIn = 512, kRows = 6, kStride = kIn + 32, kWide = 128;
  constexpr int32_t kExperts = 3, kK = 2;
  std::mt19937 rng(6);
  for (Format format : kFormats) {
    auto experts = RandomExperts(format, kExperts, kOut, kIn, &rng);
    CHECK_OK(experts);
    const std::vector<Source>& sources = experts->sources;
    const std::vector<Packed>& packed = experts->packed;
    const std::vector<cpu::Panels>& panels = experts->panels;
    std::vector<float> act(kRows * kK * kStride), weights(kRows * kK);
    for (size_t i = 0; i < act.size(); ++i) {
      if (i % kStride < kIn) act[i] = RandomNormal(&rng);
    }
    for (float& w : weights) w = std::fabs(RandomNormal(&rng));
    const int32_t active[] = {0, 1, 2}, offsets[] = {0, 6, 9, 12};
    const int32_t entries[] = {0, 2, 4, 6, 8, 10, /*1:*/ 1, 5, 9, /*2:*/ 3, 7, 11};
    for (const cpu::Kernels* kernels : TestedKernels()) {
      for (bool fast : {false, true}) {
        if (fast && !Rounds(kernels, panels[0].format)) continue;
        const auto run = fast ? kernels->experts_down_bf16 : kernels->experts_down;
        std::vector<uint16_t> act16(act.size());
        if (fast) kernels->to_bf16(act.data(), act16.data(), static_cast<int64_t>(act.size()));
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
        args.act = act.data();
        args.act16 = act16.data();
        args.act_stride = kStride;
        args.weights = weights.data();
        args.weights_stride = kK;
        args.out = together.data();
        args.out_stride = kWide;
        args.rows = kRows;
        args.first = args.last = true;
        args.scratch = scratch.data();
        run(args);
        for (int32_t r = 0; r < kRows; ++r) {
          const int32_t other = 1 + r % 2;
          const float* x = act.data() + r * kK * kStride;
          std::vector<double> size, other_size;
          const auto first = Expected(sources[0].matrix, 0, kOut, 0, kIn, x, &size);
          const auto second = Expected(sources[static_cast<size_t>(other)].matrix, 0, kOut, 0, kIn,
                                       x + kStride, &other_size);
          const float* w = weights.data() + r * kK;
          for (size_t i = 0; i < kOut; ++i) {
            const double error = double{together[static_cast<size_t>(r * kWide) + i]} -
                                 w[0] * first[i] - w[1] * second[i];
            const double bound = fast ? 0x1p-8 + (kIn + 8) * 0x1p-23 : 1e-6;
            CHECK_LE(std::fabs(error), bound * (w[0] * size[i] + w[1] * other_size[i]) + 1e-30);
          }
          // The row by itself, an expert at a time, so many panels at a time.
          cpu::ExpertsDownArgs one = args;
          one.act = x;
          one.act16 = act16.data() + r * kK * kStride;
          one.weights = w;
          one.out = alone.data() + r * kWide;
          RunAlone(one, other, packed[0].plan.panels, 1 + r % cpu::kExpertPanels, run);
        }
      CHECK(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0);
      }
    }
  }
}

// One row goes by vectors, many by tiles; the bits are the same, also of what is denormal on the way or in the end.
TEST(few_rows_by_vectors_have_the_bits_of_tiles) {
  std::mt19937 rng(11);
  for (const cpu::Kernels* kernels : TestedKernels()) {
    if (kernels->may_round == nullptr) continue;
    for (Format format : kFormats) {
      for (const int64_t group : {32, 128}) {
        constexpr int64_t kOut = 48;
        constexpr size_t kRows = 17;
        const int64_t in = Columns(format, 768);
        Source source = RandomMatrix(format, kOut, in, &rng, group);
        // Weights that are denormal, for the unit zero, beside such as are not quite, and an x that shows them.
        const bool tiny = format == Format::kBF16 && group == 128;
        for (size_t at = 0; tiny && at + 2 <= source.data.size(); at += 2) {
          const uint16_t bits = static_cast<uint16_t>((rng() & 0x807f) | rng() % 4 << 7);
          std::memcpy(&source.data[at], &bits, sizeof(bits));
        }
        source.matrix.data = source.data;
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        if (!Rounds(kernels, packed->panels.format)) continue;
        for (const int least : {tiny ? 110 : -8, -60, -120}) {
          std::vector<std::vector<uint16_t>> x16(kRows, std::vector<uint16_t>(static_cast<size_t>(in) + 32));
          std::vector<const uint16_t*> in16;
          for (auto& row : x16) {
            std::vector<float> x(row.size());
            for (int64_t i = 0; i < in; ++i) {
              x[static_cast<size_t>(i)] = std::ldexp(RandomNormal(&rng), least - static_cast<int>(rng() % 8));
            }
            kernels->to_bf16(x.data(), row.data(), static_cast<int64_t>(row.size()));
            in16.push_back(row.data());
          }
          std::vector<uint8_t> decoded(cpu::DecodedBytes(packed->panels.cols));
          std::vector<float> floats(cpu::kMaxBlockRows * static_cast<size_t>(packed->panels.cols));
          Rows alone = MakeRows(kRows, kOut + 64);
          cpu::MatmulArgs args = {packed->panels, 0, packed->plan.panels, nullptr, nullptr, 1, cpu::Epilogue::kStore};
          for (size_t r = 0; r < kRows; ++r) {
            args.x16 = &in16[r];
            args.out = &alone.out[r];
            args.floats = r % 3 == 0 ? nullptr : floats.data();
            kernels->matmul_bf16(args);
          }
          for (const size_t count : {size_t{2}, size_t{3}, size_t{4}, size_t{7}, size_t{12}, kRows}) {
            Rows y = MakeRows(count, kOut + 64);
            args.rows = static_cast<int64_t>(count);
            args.x16 = in16.data();
            args.out = y.out.data();
            args.decoded = decoded.data();
            args.floats = count <= cpu::kMaxBlockRows ? floats.data() : nullptr;
            kernels->matmul_bf16(args);
            for (size_t r = 0; r < count; ++r) CHECK(std::memcmp(y.data[r].data(), alone.data[r].data(), kOut * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

// Intel's definition, in plain code, gives what the matrix unit gives, to the bit, denormals, infinities and
// scales at the ends of their range included.
TEST(amx_and_its_stand_in_give_the_same_bits) {
  const cpu::Kernels* amx = nullptr;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    if (kernels->may_round != nullptr && kernels->may_round()) amx = kernels;
  }
  if (amx == nullptr) SKIP("this machine has no AMX, or the system refuses it");
  const cpu::Kernels* plain = test::PlainTileKernels(*amx);
  std::mt19937 rng(7);
  for (Format format : kFormats) {
    for (auto [out, in] : {std::pair<int64_t, int64_t>{37, 160}, {64, 1056}}) {
      in = Columns(format, in);
      for (const bool wild : {false, true}) {
        Source source = RandomMatrix(format, out, in, &rng);
        if (wild && format == Format::kBF16) {
          for (uint8_t& b : source.data) b = static_cast<uint8_t>(rng());
        }
        source.matrix.data = source.data;
        source.matrix.scale = source.scale;
        auto packed = PackWhole(source.matrix);
        CHECK_OK(packed);
        // Sums are scaled by vectors, whose portable code rounds twice, and does not flush denormals: that is seen
        // where scales are no powers of two.
        const cpu::PanelFormat panels = packed->panels.format;
        const bool exact = panels == cpu::PanelFormat::kBF16 || (panels == cpu::PanelFormat::kMxfp4 && !wild);
        if (!exact) continue;
        for (size_t count : {1u, 16u, 33u}) {
          const size_t width = static_cast<size_t>(in) + 32;
          std::vector<std::vector<uint16_t>> x16(count, std::vector<uint16_t>(width));
          std::vector<const uint16_t*> in16;
          for (auto& row : x16) {
            for (int64_t i = 0; i < in; ++i) {
              float x = RandomNormal(&rng);
              uint32_t bits;
              if (wild) x = std::ldexp(x, static_cast<int>(rng() % 250) - 125);
              std::memcpy(&bits, &x, 4);
              row[static_cast<size_t>(i)] = static_cast<uint16_t>(bits >> 16);
            }
            in16.push_back(row.data());
          }
          std::vector<uint8_t> decoded(cpu::DecodedBytes(packed->panels.cols));
          Rows y[2] = {MakeRows(count, static_cast<size_t>(out) + 64),
                       MakeRows(count, static_cast<size_t>(out) + 64)};
          for (int i = 0; i < 2; ++i) {
            cpu::MatmulArgs args = {packed->panels,        0,
                                    packed->plan.panels,   nullptr,
                                    y[i].out.data(),       static_cast<int64_t>(count),
                                    cpu::Epilogue::kStore};
            args.x16 = in16.data();
            args.decoded = decoded.data();
            (i == 0 ? amx : plain)->matmul_bf16(args);
          }
          for (size_t r = 0; r < count; ++r) {
            for (size_t i = 0; i < static_cast<size_t>(out); ++i) {
              uint32_t bits[2];
              for (int k = 0; k < 2; ++k) std::memcpy(&bits[k], &y[k].data[r][i], 4);
              const bool nan = std::isnan(y[0].data[r][i]) && std::isnan(y[1].data[r][i]);
              if (!nan && bits[0] != bits[1]) {
                std::printf("# format %d, wild %d, %zu rows: row %zu, column %zu: %a, plain %a\n",
                            static_cast<int>(format), wild, count, r, i, double{y[0].data[r][i]},
                            double{y[1].data[r][i]});
              }
              CHECK(nan || bits[0] == bits[1]);
            }
          }
        }
      }
    }
  }
}
