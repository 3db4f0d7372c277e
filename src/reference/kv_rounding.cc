// SPDX-License-Identifier: MIT
#include "reference/kv_rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::reference {
namespace {

using quant::KvForm;

// How far fp32 arithmetic may take an element of K or V, relative to its head's largest.
constexpr double kArithmetic = 1e-3;
constexpr size_t kBlock = quant::kKvFp4Block;

double Largest(absl::Span<const double> x) {
  double largest = 0;
  for (double each : x) largest = std::max(largest, std::fabs(each));
  return largest;
}

// To the nearest of 0 0.5 1 1.5 2 3 4 6, at a tie the one with an even code.
double RoundToE2m1(double x) {
  const double magnitude = std::fabs(x);
  const double step = magnitude < 2 ? 0.5 : magnitude < 4 ? 1 : 2;
  return std::copysign(std::min(6.0, std::nearbyint(magnitude / step) * step), x);
}

double SquaredError(absl::Span<const double> block, double scale) {
  double sum = 0;
  for (double x : block) {
    const double off = x - scale * RoundToE2m1(x / scale);
    sum += off * off;
  }
  return sum;
}

double BestScale(absl::Span<const double> block) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  for (int code = 1; code <= quant::kE5m3Largest; ++code) {
    const double scale = double{quant::FloatFromE5m3(static_cast<uint8_t>(code))};
    const double error = SquaredError(block, scale);
    if (error < least) best = scale, least = error;
  }
  return best;
}

}  // namespace

void TurnHead(absl::Span<double> head) {
  const size_t size = quant::HadamardSize(static_cast<uint32_t>(head.size()));
  const std::vector<double> x(head.begin(), head.end());
  for (size_t d = 0; d < head.size(); ++d) {
    const size_t first = d / size * size;
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      sum += __builtin_parityll(i & (d - first)) != 0 ? -x[first + i] : x[first + i];
    }
    head[d] = sum / std::sqrt(static_cast<double>(size));
  }
}

void RoundHead(KvForm form, absl::Span<double> head) {
  switch (form) {
    case KvForm::kF32:
      return;
    case KvForm::kBF16:
      for (double& x : head) x = quant::FloatFromBf16(quant::Bf16FromFloat(static_cast<float>(x)));
      return;
    case KvForm::kFp8: {
      const double largest = Largest(head);
      const double scale = largest > 0 ? largest / 448 : 1;
      for (double& x : head) {
        x = scale * quant::FloatFromFp8E4m3(quant::Fp8E4m3FromFloat(static_cast<float>(x / scale)));
      }
      return;
    }
    case KvForm::kFp4:
      for (size_t at = 0; at + kBlock <= head.size(); at += kBlock) {
        const absl::Span<double> block = head.subspan(at, kBlock);
        const double scale = BestScale(block);
        for (double& x : block) x = scale * RoundToE2m1(x / scale);
      }
      return;
  }
}

double Allowance(KvForm form, absl::Span<const double> exact, size_t index) {
  const double x = std::fabs(exact[index]), largest = Largest(exact);
  double step = 0;
  switch (form) {
    case KvForm::kF32:  // may be two bf16
      step = 0x1p-16 * x;
      break;
    case KvForm::kBF16:
      step = 0x1p-8 * x;
      break;
    case KvForm::kFp8:  // subnormal below 2^-6 of the scale
      step = std::max(0x1p-4 * x, 0x1p-10 * largest / 448);
      break;
    case KvForm::kFp4:  // the best scale is between a ninth and two sevenths of the largest (kv_fp4.h)
      step = Largest(exact.subspan(index / kBlock * kBlock, kBlock)) / 3;
      break;
  }
  return step + kArithmetic * largest;
}

int WorstBlock(KvForm form, absl::Span<const double> exact, absl::Span<const double> held) {
  if (form != KvForm::kFp4) return -1;
  const double slack = kArithmetic * Largest(exact) * std::sqrt(double{kBlock});
  for (size_t at = 0; at + kBlock <= exact.size(); at += kBlock) {
    const absl::Span<const double> block = exact.subspan(at, kBlock);
    double error = 0;
    for (size_t i = 0; i < kBlock; ++i) error += (held[at + i] - block[i]) * (held[at + i] - block[i]);
    const double best = std::sqrt(SquaredError(block, BestScale(block)));
    if (!(std::sqrt(error) <= best + 2 * slack)) return static_cast<int>(at / kBlock);
  }
  return -1;
}

}  // namespace mainarch::reference
