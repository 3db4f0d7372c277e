// SPDX-License-Identifier: MIT
#include "cli/attn_reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/linear.h"
#include "reference/kv_rounding.h"

namespace mainarch::cli {
namespace {

using Vector = std::vector<double>;

Vector RowOf(const quant::Matrix& matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols));
  quant::DecodeRow(matrix, row, 0, matrix.cols, values.data());
  return Vector(values.begin(), values.end());
}

void RmsNorm(const Vector& w, double eps, double* x) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * x[i];
  const double factor = 1 / std::sqrt(sum / static_cast<double>(w.size()) + eps);
  for (size_t i = 0; i < w.size(); ++i) x[i] *= factor * w[i];
}

// Q, K and V of one token, ready for attention.
class Projector {
 public:
  static StatusOr<Projector> Create(const model::Model& model, backend::KvType kv) {
    Projector p(model.config(), kv);
    const file::Checkpoint& c = model.checkpoint();
    const model::ModelConfig& m = model.config();
    const std::string at = "model.layers.0.";
    const int64_t q_rows = int64_t{m.heads} * m.head_dim;
    const int64_t k_rows = int64_t{m.kv_heads} * m.head_dim, v_rows = int64_t{m.kv_heads} * m.ValueDim();
    ASSIGN_OR_RETURN(p.embedding_, model::FindLinear(c, "model.embed_tokens", m.vocab, m.hidden));
    ASSIGN_OR_RETURN(p.q_, model::FindLinear(c, at + "self_attn.q_proj", q_rows, m.hidden));
    ASSIGN_OR_RETURN(p.k_, model::FindLinear(c, at + "self_attn.k_proj", k_rows, m.hidden));
    ASSIGN_OR_RETURN(p.v_, model::FindLinear(c, at + "self_attn.v_proj", v_rows, m.hidden));
    ASSIGN_OR_RETURN(const auto norm,
                     model::FindVector(c, at + "input_layernorm.weight", m.hidden));
    p.norm_ = RowOf(norm, 0);
    if (!m.attention.qk_norm) return p;
    ASSIGN_OR_RETURN(const auto q_norm,
                     model::FindVector(c, at + "self_attn.q_norm.weight", m.head_dim));
    ASSIGN_OR_RETURN(const auto k_norm,
                     model::FindVector(c, at + "self_attn.k_norm.weight", m.head_dim));
    p.q_norm_ = RowOf(q_norm, 0);
    p.k_norm_ = RowOf(k_norm, 0);
    return p;
  }

  Vector Normed(uint32_t token) const {
    Vector h = RowOf(embedding_, token);
    RmsNorm(norm_, eps_, h.data());
    return h;
  }
  // Heads as the cache has them, with zeros behind those that are smaller.
  Vector Q(const Vector& h, uint32_t position) const { return Turned(Product(q_, h), q_norm_, position); }
  Vector K(const Vector& h, uint32_t position) const {
    Vector k = Turned(Product(k_, h), k_norm_, position);
    Round(quant::InfoOf(kv_).k, stored_.key, &k);
    return k;
  }
  Vector V(const Vector& h) const {
    Vector v = Product(v_, h);
    for (double& x : v) x *= value_scale_;
    v = Widened(v, own_.value, stored_.value);
    Round(quant::InfoOf(kv_).v, stored_.value, &v);
    return v;
  }

 private:
  Projector(const model::ModelConfig& config, backend::KvType kv)
      : kv_(kv),
        own_(config.Heads()),
        stored_(config.StoredHeads()),
        eps_(static_cast<double>(config.rms_eps)),
        theta_(config.rope.theta),
        value_scale_(config.attention.value_scale) {}

  static Vector Product(const quant::Matrix& w, const Vector& x) {
    Vector y(static_cast<size_t>(w.rows));
    for (int64_t r = 0; r < w.rows; ++r) {
      const Vector row = RowOf(w, r);
      y[static_cast<size_t>(r)] = std::inner_product(row.begin(), row.end(), x.begin(), 0.0);
    }
    return y;
  }
  static Vector Widened(const Vector& heads, int32_t from, int32_t to) {
    Vector out(heads.size() / static_cast<size_t>(from) * static_cast<size_t>(to));
    for (size_t i = 0; i < heads.size(); ++i) {
      out[i / static_cast<size_t>(from) * static_cast<size_t>(to) + i % static_cast<size_t>(from)] = heads[i];
    }
    return out;
  }
  // Norm of each head, where there is one, RoPE over the whole head, and the cache's rotation.
  Vector Turned(Vector heads, const Vector& norm, uint32_t position) const {
    const size_t own = static_cast<size_t>(own_.key), half = own / 2;
    for (size_t at = 0; at < heads.size(); at += own) {
      double* x = heads.data() + at;
      if (!norm.empty()) RmsNorm(norm, eps_, x);
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            position * std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half));
        const double c = std::cos(angle), s = std::sin(angle), a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
      }
    }
    Vector out = Widened(heads, own_.key, stored_.key);
    const size_t stored = static_cast<size_t>(stored_.key);
    for (size_t at = 0; quant::InfoOf(kv_).turns && at < out.size(); at += stored) reference::TurnHead({&out[at], stored});
    return out;
  }
  static void Round(quant::KvForm form, int32_t head, Vector* heads) {
    const size_t size = static_cast<size_t>(head);
    for (size_t at = 0; at < heads->size(); at += size) {
      reference::RoundHead(form, absl::MakeSpan(*heads).subspan(at, size));
    }
  }

  backend::KvType kv_;
  backend::HeadDims own_, stored_;
  double eps_, theta_, value_scale_;
  quant::Matrix embedding_, q_, k_, v_;
  Vector norm_, q_norm_, k_norm_;
};

}  // namespace

StatusOr<std::vector<double>> AttendReference(const model::Model& model, backend::KvType kv,
                                              const std::vector<uint32_t>& tokens, uint32_t last,
                                              uint32_t context) {
  ASSIGN_OR_RETURN(const Projector project, Projector::Create(model, kv));
  const backend::HeadDims stored = model.config().StoredHeads();
  const size_t hd = static_cast<size_t>(stored.key), vd = static_cast<size_t>(stored.value);
  const double scale = model.config().AttentionScale();
  const size_t heads = static_cast<size_t>(model.config().heads);
  const size_t group = heads / static_cast<size_t>(model.config().kv_heads);
  const size_t distinct = std::min<size_t>(tokens.size(), context);
  std::vector<Vector> keys, values;  // of the distinct tokens, then of the last
  for (size_t i = 0; i < distinct; ++i) {
    const Vector h = project.Normed(tokens[i]);
    keys.push_back(project.K(h, static_cast<uint32_t>(i)));
    values.push_back(project.V(h));
  }
  const Vector h = project.Normed(last);
  keys.push_back(project.K(h, context));
  values.push_back(project.V(h));
  const Vector q = project.Q(h, context);
  std::vector<double> count(distinct + 1, 1.0);  // how often each is in the context
  for (size_t i = 0; i < distinct; ++i) {
    count[i] = static_cast<double>((context - i + distinct - 1) / distinct);
  }
  Vector out(heads * vd, 0.0);
  for (size_t j = 0; j < heads; ++j) {
    const size_t kv_head = j / group;
    Vector p;
    for (const Vector& key : keys) {
      p.push_back(std::inner_product(&q[j * hd], &q[j * hd] + hd, &key[kv_head * hd], 0.0) * scale);
    }
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += p[i] = count[i] * std::exp(p[i] - max);
    for (size_t i = 0; i < p.size(); ++i) {
      for (size_t d = 0; d < vd; ++d) out[j * vd + d] += p[i] / sum * values[i][kv_head * vd + d];
    }
  }
  return out;
}

}  // namespace mainarch::cli
