// SPDX-License-Identifier: MIT
#include "reference/math.h"

#include <algorithm>
#include <cmath>

namespace mainarch::reference {

Vector RowOf(const quant::Matrix& m, int64_t row) {
  std::vector<float> exact(static_cast<size_t>(m.cols));
  quant::DecodeRow(m, row, 0, m.cols, exact.data());
  return Vector(exact.begin(), exact.end());
}

Vector Multiply(const quant::Matrix& m, int64_t row, int64_t rows, int64_t col, const Vector& x) {
  // Some rows at a time, each in its columns' order: one alone would wait for every addition.
  constexpr int64_t kTogether = 4;
  Vector y(static_cast<size_t>(rows));
  std::vector<float> values(kTogether * x.size());
  for (int64_t first = 0; first < rows; first += kTogether) {
    const int64_t some = std::min(kTogether, rows - first);
    for (int64_t r = 0; r < some; ++r) {
      quant::DecodeRow(m, row + first + r, col, static_cast<int64_t>(x.size()), &values[static_cast<size_t>(r) * x.size()]);
    }
    double sums[kTogether] = {};
    for (size_t c = 0; c < x.size(); ++c) {
      for (size_t r = 0; r < kTogether; ++r) sums[r] += static_cast<double>(values[r * x.size() + c]) * x[c];
    }
    std::copy_n(sums, some, y.begin() + first);
  }
  return y;
}

void RmsNorm(const Vector& w, double offset, double eps, double* x) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(w.size()) + eps);
  for (size_t i = 0; i < w.size(); ++i) x[i] *= scale * (w[i] + offset);
}

void AddTo(const Vector& y, Vector* x) {
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
}

void Softmax(Vector* x) {
  const double max = *std::max_element(x->begin(), x->end());
  double sum = 0;
  for (double& value : *x) sum += value = std::exp(value - max);
  for (double& value : *x) value /= sum;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

namespace {

// Wavelengths that do not fit the original context are stretched, those far below are not.
void StretchLlama3(const model::RopeConfig& rope, Vector* f) {
  const double context = static_cast<double>(rope.original_max_position);
  for (double& value : *f) {
    const double wavelength = 2 * M_PI / value;
    const double smooth = (context / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    if (wavelength > context / rope.low_freq_factor) {
      value /= rope.factor;
    } else if (wavelength >= context / rope.high_freq_factor) {
      value = (1 - smooth) * value / rope.factor + smooth * value;
    }
  }
}

void StretchYarn(const model::RopeConfig& rope, Vector* f) {
  const double length = static_cast<double>(rope.original_max_position);
  auto find = [&](double n) {
    return rope.rotary_dim * std::log(length / (n * 2 * M_PI)) / (2 * std::log(rope.theta));
  };
  double low = find(rope.beta_fast), high = find(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < f->size(); ++i) {
    const double t = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    (*f)[i] = (*f)[i] * (1 - t) + (*f)[i] / rope.factor * t;
  }
}

}  // namespace

Vector InverseFrequencies(const model::RopeConfig& rope) {
  const int half = rope.rotary_dim / 2;
  Vector f(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    f[static_cast<size_t>(i)] = 1.0 / std::pow(rope.theta, i / static_cast<double>(half));
  }
  if (rope.kind == model::RopeKind::kLinear) {
    for (double& value : f) value = value / rope.factor;
  } else if (rope.kind == model::RopeKind::kLongRope) {
    for (size_t i = 0; i < f.size(); ++i) {
      f[i] = 1 / (rope.divisors[i] * std::pow(rope.theta, static_cast<double>(i) / half));
    }
  } else if (rope.kind == model::RopeKind::kLlama3) {
    StretchLlama3(rope, &f);
  } else if (rope.kind == model::RopeKind::kYarn) {
    StretchYarn(rope, &f);
  }
  return f;
}

}  // namespace mainarch::reference
