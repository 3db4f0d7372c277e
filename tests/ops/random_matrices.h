// SPDX-License-Identifier: MIT
//
// Random matrices of every format, what they multiply to in fp64, and as panels.
#ifndef MAINARCH_TESTS_OPS_RANDOM_MATRICES_H_
#define MAINARCH_TESTS_OPS_RANDOM_MATRICES_H_

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/dispatch.h"
#include "backend/cpu/pack.h"

namespace mainarch::test {

using backend::Program;
using backend::Weight;
using quant::Format;
using quant::Matrix;

// A matrix with random bytes that are valid in its format.
struct Source {
  Matrix matrix;
  std::vector<uint8_t> data, scale, zero, order;
};

inline float RandomNormal(std::mt19937* rng) { return std::normal_distribution<float>()(*rng); }

// GGUF's blocks of random codes and factors, under scales of a sensible size.
inline void RandomBlocks(Format format, std::vector<uint8_t>* data, std::mt19937* rng) {
  for (uint8_t& b : *data) b = static_cast<uint8_t>((*rng)());
  const uint32_t bytes = quant::InfoOf(format).block_bytes;
  for (size_t at = 0; at < data->size(); at += bytes) {
    uint8_t* block = data->data() + at;
    const auto set = [&](size_t where) {  // fp16 from 2^-7 to 2^-6, of either sign
      const uint16_t scale = static_cast<uint16_t>(0x2000 | ((*rng)() & 0x83ff));
      std::memcpy(block + where, &scale, 2);
    };
    if (format == Format::kMxfp4Blocks) {
      block[0] = static_cast<uint8_t>(118 + (*rng)() % 12);
    } else {
      set(format == Format::kQ6K ? 208 : 0);
      const bool two = format == Format::kQ4_1 || format == Format::kQ5_1 || format == Format::kQ4K ||
                       format == Format::kQ5K;
      if (two) set(2);
    }
  }
}

// What `format` can have of at least so many columns.
inline int64_t Columns(Format format, int64_t cols) {
  const int64_t unit = std::max<int64_t>(1, quant::InfoOf(format).block_cols);
  return (cols + unit - 1) / unit * unit;
}

// group: columns of a scale, of groups of int4.
inline Source RandomMatrix(Format format, int64_t rows, int64_t cols, std::mt19937* rng, int64_t group = 32) {
  Source s;
  Matrix& m = s.matrix;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  m.name = "random";
  s.data.resize(static_cast<size_t>(rows * quant::RowBytes(format, cols)));
  auto byte = [&] { return static_cast<uint8_t>((*rng)()); };
  auto put = [&](std::vector<uint8_t>* out, size_t i, float value) {
    std::memcpy(out->data() + 4 * i, &value, 4);
  };
  switch (format) {
    case Format::kF32:
      for (size_t i = 0; i < s.data.size() / 4; ++i) put(&s.data, i, RandomNormal(rng));
      break;
    case Format::kBF16:
    case Format::kF16:
      for (size_t i = 0; i < s.data.size() / 2; ++i) {
        // Exponents near one, any sign and mantissa.
        const uint16_t code =
            format == Format::kBF16
                ? static_cast<uint16_t>((byte() & 0x80) << 8 | 0x3f00 | (byte() & 0xff))
                : static_cast<uint16_t>((byte() << 8 & 0x8300) | 0x3800 | byte());
        std::memcpy(s.data.data() + 2 * i, &code, 2);
      }
      break;
    case Format::kFp8Block:
    case Format::kFp8Channel: {
      for (uint8_t& b : s.data) {
        do b = byte();
        while ((b & 0x7f) == 0x7f);
      }
      const bool block = format == Format::kFp8Block;
      m.block_rows = block ? 128 : 1;
      m.block_cols = block ? 128 : 1;
      const int64_t scales = block ? (rows + 127) / 128 * ((cols + 127) / 128) : rows;
      s.scale.resize(static_cast<size_t>(scales) * 4);
      for (size_t i = 0; i < static_cast<size_t>(scales); ++i) {
        put(&s.scale, i, 0.001f + 0.01f * std::fabs(RandomNormal(rng)));
      }
      break;
    }
    case Format::kInt8Channel:
      for (uint8_t& b : s.data) b = byte();
      s.scale.resize(static_cast<size_t>(rows) * 4);
      for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
        put(&s.scale, i, 0.001f + 0.01f * std::fabs(RandomNormal(rng)));
      }
      break;
    case Format::kMxfp4:
      for (uint8_t& b : s.data) b = byte();
      s.scale.resize(static_cast<size_t>(rows * cols / 32));
      for (uint8_t& b : s.scale) b = static_cast<uint8_t>(118 + byte() % 12);
      m.scale_dtype = DType::kU8;
      break;
    case Format::kInt4Packed:
    case Format::kGptq:
    case Format::kAwq:
      // In words of eight rows, two of the three; so there are eighths.
      m.rows = (rows + 7) / 8 * 8;
      m.block_cols = static_cast<uint32_t>(group);
      m.scale_dtype = DType::kF16;
      s.data.resize(static_cast<size_t>(m.rows * cols / 2));
      for (uint8_t& b : s.data) b = byte();
      for (int64_t i = 0; i < m.rows * cols / group; ++i) {
        s.scale.push_back(byte());
        s.scale.push_back(static_cast<uint8_t>(0x20 | (byte() & 3)));
      }
      s.zero.resize(static_cast<size_t>(m.rows / 8 * (cols / group) * 4));
      for (uint8_t& b : s.zero) b = byte();
      if (format == Format::kGptq && byte() % 2 == 0) {  // columns of any group
        for (int64_t col = 0; col < cols; ++col) {
          for (const uint8_t b : {static_cast<uint8_t>(byte() % (cols / group)), uint8_t{0}, uint8_t{0}, uint8_t{0}}) {
            s.order.push_back(b);
          }
        }
      }
      break;
    case Format::kNvfp4:
      for (uint8_t& b : s.data) b = byte();
      s.scale.resize(static_cast<size_t>(rows * cols / 16));
      for (uint8_t& b : s.scale) {
        do b = byte();
        while ((b & 0x7f) == 0x7f);
      }
      m.factor = 0.0037f;
      break;
    default:
      RandomBlocks(format, &s.data, rng);
      break;
  }
  m.data = s.data;
  m.scale = s.scale;
  m.zero = s.zero;
  m.order = s.order;
  return s;
}

inline std::vector<double> Expected(const Matrix& m, int64_t row_begin, int64_t row_end, int64_t col_begin,
                             int64_t col_end, const float* x, std::vector<double>* magnitude) {
  std::vector<double> y;
  std::vector<float> w(static_cast<size_t>(col_end - col_begin));
  for (int64_t row = row_begin; row < row_end; ++row) {
    quant::DecodeRow(m, row, col_begin, col_end - col_begin, w.data());
    double sum = 0, size = 0;
    for (size_t c = 0; c < w.size(); ++c) {
      sum += double{w[c]} * double{x[c]};
      size += std::fabs(double{w[c]} * double{x[c]});
    }
    y.push_back(sum);
    magnitude->push_back(size);
  }
  return y;
}

constexpr std::array<Format, quant::kFormatCount> AllFormats() {
  std::array<Format, quant::kFormatCount> all = {};
  for (uint32_t i = 0; i < quant::kFormatCount; ++i) all[i] = static_cast<Format>(i);
  return all;
}
inline constexpr auto kFormats = AllFormats();

struct Packed {
  cpu::PanelPlan plan;
  std::vector<uint8_t> bytes;
  cpu::Panels panels;
};

inline StatusOr<Packed> Pack(const Program& program, const Weight& weight, int32_t rank) {
  Packed p;
  ASSIGN_OR_RETURN(p.plan, cpu::PlanPanels(program, weight, rank, 0));
  p.bytes.resize(static_cast<size_t>(p.plan.panels) * p.plan.layout.stride);
  for (int64_t i = 0; i < p.plan.panels; ++i) {
    cpu::PackPanel(p.plan, i, p.bytes.data() + static_cast<size_t>(i) * p.plan.layout.stride);
  }
  p.panels = p.plan.layout;
  p.panels.data = p.bytes.data();
  return p;
}

// Rows of x with the padding the kernels may read.
struct Rows {
  std::vector<std::vector<float>> data;
  std::vector<const float*> in;
  std::vector<float*> out;
};
inline Rows MakeRows(size_t n, size_t width) {
  Rows rows;
  rows.data.assign(n, std::vector<float>(width, 0.0f));
  for (auto& row : rows.data) {
    rows.in.push_back(row.data());
    rows.out.push_back(row.data());
  }
  return rows;
}

// The matrix as a weight of one rank, which ends here.
inline StatusOr<Packed> PackWhole(const Matrix& matrix) {
  const Program program;
  Weight weight;
  weight.label = "w";
  weight.sources = {matrix};
  weight.ranks = {{{0, 0, matrix.rows, 0, matrix.cols}}};
  ASSIGN_OR_RETURN(Packed packed, Pack(program, weight, 0));
  packed.plan.weight = nullptr;
  packed.plan.slices = nullptr;
  return packed;
}

// The matrix as a weight of ranks that share its columns, in eight parts that begin at multiples of `unit`.
inline Weight CutColumns(const Matrix& matrix, int32_t ranks, int64_t unit) {
  Weight weight;
  weight.label = "cut";
  weight.sources = {matrix};
  for (int i = 0; i < 8; ++i) weight.splits.push_back(matrix.cols / unit * i / 8 * unit);
  weight.splits.push_back(matrix.cols);
  for (int32_t r = 0; r < ranks; ++r) {
    weight.ranks.push_back({{0, 0, matrix.rows, weight.splits[static_cast<size_t>(r * 8 / ranks)],
                             weight.splits[static_cast<size_t>((r + 1) * 8 / ranks)]}});
  }
  return weight;
}

// Experts of one shape, each of eight parts on one rank.
struct Experts {
  std::vector<Source> sources;
  std::vector<Packed> packed;
  std::vector<cpu::Panels> panels;
};
inline StatusOr<Experts> RandomExperts(Format format, int32_t count, int64_t rows, int64_t cols,
                                       std::mt19937* rng) {
  Experts experts;
  for (int32_t e = 0; e < count; ++e) {
    experts.sources.push_back(RandomMatrix(format, rows, cols, rng));
    const Program program;
    const Weight weight = CutColumns(experts.sources.back().matrix, 1, 32);
    ASSIGN_OR_RETURN(Packed packed, Pack(program, weight, 0));
    packed.plan.weight = nullptr;
    packed.plan.slices = nullptr;
    experts.packed.push_back(std::move(packed));
    experts.panels.push_back(experts.packed.back().panels);
  }
  return experts;
}

// One row's experts 0 and `other`, of three, one after the other and `step` panels at a time.
template <class Run>
void RunAlone(cpu::ExpertsDownArgs one, int32_t other, int64_t panels, int64_t step, const Run& run) {
  const int32_t entries[] = {0, 1}, own[] = {0, other};
  const int32_t offsets[] = {0, 1, other == 1 ? 2 : 1, 2};
  one.entries = entries;
  one.offsets = offsets;
  one.rows = 1;
  one.active_count = 1;
  for (int64_t p = 0; p < panels; p += step) {
    one.panel_begin = p;
    one.panel_end = std::min(p + step, panels);
    for (int i = 0; i < 2; ++i) {
      one.active = own + i;
      one.first = i == 0;
      one.last = i == 1;
      run(one);
    }
  }
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_OPS_RANDOM_MATRICES_H_
