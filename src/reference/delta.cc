// SPDX-License-Identifier: MIT
//
// A gated delta net of the fp64 decoder, from its definition (Yang, Kautz, Hatamizadeh, "Gated Delta Networks:
// Improving Mamba2 with Delta Rule", 2024, eq. 10): S <- S (alpha (I - beta k k^T)) + beta v k^T, with S as the
// paper has it, [value_dim, key_dim]; o = S q.
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "model/linear.h"
#include "reference/decoder.h"
#include "reference/math.h"

namespace mainarch::reference {
namespace {

double Softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

Vector Normalised(const Vector& x, size_t begin, size_t size) {
  const auto from = x.begin() + static_cast<ptrdiff_t>(begin);
  Vector out(from, from + static_cast<ptrdiff_t>(size));
  const double squares = std::inner_product(out.begin(), out.end(), out.begin(), 0.0);
  for (double& value : out) value /= std::sqrt(squares + 1e-6);
  return out;
}

}  // namespace

Status Decoder::FindDelta(const std::string& p, Layer* layer) const {
  const model::DeltaConfig& d = config_.delta;
  const int64_t keys = int64_t{d.key_heads} * d.key_dim, heads = d.value_heads;
  const int64_t values = heads * d.value_dim, h = config_.hidden;
  DeltaWeights& w = layer->delta;
  if (d.by_key_head) {
    RETURN_IF_ERROR(Linear(p + "in_proj_qkvz", 2 * (keys + values), h, &w.qkvz));
    RETURN_IF_ERROR(Linear(p + "in_proj_ba", 2 * heads, h, &w.ba));
  } else {
    RETURN_IF_ERROR(Linear(p + "in_proj_qkv", 2 * keys + values, h, &w.qkv));
    RETURN_IF_ERROR(Linear(p + "in_proj_z", values, h, &w.z));
    RETURN_IF_ERROR(Linear(p + "in_proj_b", heads, h, &w.b));
    RETURN_IF_ERROR(Linear(p + "in_proj_a", heads, h, &w.a));
  }
  ASSIGN_OR_RETURN(w.conv, model::FindConvolution(*checkpoint_, p + "conv1d.weight",
                                                  2 * keys + values, d.taps));
  RETURN_IF_ERROR(VectorOf(p + "A_log", heads, &w.decay));
  RETURN_IF_ERROR(VectorOf(p + "dt_bias", heads, &w.dt_bias));
  RETURN_IF_ERROR(VectorOf(p + "norm.weight", d.value_dim, &w.norm));
  return Linear(p + "out_proj", h, values, &w.out);
}

// q, k and v of all heads one behind the other, z, b and a.
Decoder::DeltaRow Decoder::DeltaProducts(const Layer& layer, const Vector& h) const {
  const model::DeltaConfig& d = config_.delta;
  const DeltaWeights& w = layer.delta;
  if (!d.by_key_head) {
    return {Multiply(w.qkv, h), Multiply(w.z, h), Multiply(w.b, h), Multiply(w.a, h)};
  }
  const Vector all = Multiply(w.qkvz, h), ba = Multiply(w.ba, h);
  const size_t groups = static_cast<size_t>(d.key_heads), dk = static_cast<size_t>(d.key_dim);
  const size_t ratio = static_cast<size_t>(d.value_heads) / groups;
  const size_t dv = ratio * static_cast<size_t>(d.value_dim), group = 2 * dk + 2 * dv;
  DeltaRow out;
  const auto take = [&](const Vector& from, size_t begin, size_t count, Vector* to) {
    const auto at = from.begin() + static_cast<ptrdiff_t>(begin);
    to->insert(to->end(), at, at + static_cast<ptrdiff_t>(count));
  };
  for (size_t g = 0; g < groups; ++g) take(all, g * group, dk, &out.qkv);
  for (size_t g = 0; g < groups; ++g) take(all, g * group + dk, dk, &out.qkv);
  for (size_t g = 0; g < groups; ++g) {
    take(all, g * group + 2 * dk, dv, &out.qkv);
    take(all, g * group + 2 * dk + dv, dv, &out.z);
    take(ba, 2 * g * ratio, ratio, &out.b);
    take(ba, (2 * g + 1) * ratio, ratio, &out.a);
  }
  return out;
}

// Each channel over the last rows, this one the last of them, and silu.
Vector Decoder::Convolve(const Layer& layer, const Vector& row) const {
  const size_t taps = static_cast<size_t>(config_.delta.taps);
  const Vector w = RowOf(layer.delta.conv, 0);
  Vector out(row.size(), 0.0);
  for (size_t c = 0; c < row.size(); ++c) {
    double sum = w[c * taps + taps - 1] * row[c];
    for (size_t back = 1; back < taps && back <= layer.delta_rows.size(); ++back) {
      sum += w[c * taps + taps - 1 - back] * layer.delta_rows[layer.delta_rows.size() - back][c];
    }
    out[c] = sum * Sigmoid(sum);
  }
  return out;
}

void Decoder::Delta(size_t layer_index, Vector* x) {
  Layer* layer = &layers_[layer_index];
  const model::DeltaConfig& d = config_.delta;
  const size_t dk = static_cast<size_t>(d.key_dim), dv = static_cast<size_t>(d.value_dim);
  const size_t heads = static_cast<size_t>(d.value_heads), keys = static_cast<size_t>(d.key_heads);
  Vector h = *x;
  Norm(layer->input_norm, &h);
  DeltaRow row = DeltaProducts(*layer, h);
  const Vector c = Convolve(*layer, row.qkv);
  layer->delta_rows.push_back(std::move(row.qkv));
  if (layer->delta_rows.size() > static_cast<size_t>(d.taps)) {
    layer->delta_rows.erase(layer->delta_rows.begin());
  }
  layer->delta_state.resize(heads * dv * dk, 0.0);
  const Vector decay = RowOf(layer->delta.decay, 0), dt_bias = RowOf(layer->delta.dt_bias, 0);
  const Vector norm = RowOf(layer->delta.norm, 0);
  Vector out(heads * dv);
  for (size_t j = 0; j < heads; ++j) {
    const size_t key = j / (heads / keys);
    const Vector q = Normalised(c, key * dk, dk), k = Normalised(c, (keys + key) * dk, dk);
    const double* v = &c[2 * keys * dk + j * dv];
    const double alpha = std::exp(-std::exp(decay[j]) * Softplus(row.a[j] + dt_bias[j]));
    const double beta = Sigmoid(row.b[j]);
    double* const o = &out[j * dv];
    for (size_t i = 0; i < dv; ++i) {
      double* const s = &layer->delta_state[(j * dv + i) * dk];  // a row of S
      const double sk = std::inner_product(s, s + dk, k.begin(), 0.0);
      o[i] = 0;
      for (size_t e = 0; e < dk; ++e) {
        s[e] = alpha * (s[e] - beta * sk * k[e]) + beta * v[i] * k[e];
        o[i] += s[e] * q[e] / std::sqrt(static_cast<double>(dk));
      }
    }
    RmsNorm(norm, 0, static_cast<double>(config_.rms_eps), o);
    for (size_t i = 0; i < dv; ++i) o[i] *= row.z[j * dv + i] * Sigmoid(row.z[j * dv + i]);
  }
  AddBlock(layer->attention_norm, Multiply(layer->delta.out, out), x);
}

}  // namespace mainarch::reference
