// SPDX-License-Identifier: MIT
//
// What the fp64 decoder's loops are made of.
#ifndef MAINARCH_REFERENCE_MATH_H_
#define MAINARCH_REFERENCE_MATH_H_

#include <vector>

#include "model/config.h"
#include "quant/matrix.h"

namespace mainarch::reference {

using Vector = std::vector<double>;

Vector RowOf(const quant::Matrix& m, int64_t row);
// Rows [row, row + rows) and columns [col, col + x.size()) of m times x.
Vector Multiply(const quant::Matrix& m, int64_t row, int64_t rows, int64_t col, const Vector& x);
inline Vector Multiply(const quant::Matrix& m, const Vector& x) {
  return Multiply(m, 0, m.rows, 0, x);
}
// x / sqrt(mean(x^2) + eps) * (w + offset) over n values, in place.
void RmsNorm(const Vector& w, double offset, double eps, double* x);
void AddTo(const Vector& y, Vector* x);
void Softmax(Vector* x);
double Sigmoid(double x);
// Frequencies of a rope, written down again here: a shared mistake would hide.
Vector InverseFrequencies(const model::RopeConfig& rope);

}  // namespace mainarch::reference

#endif  // MAINARCH_REFERENCE_MATH_H_
