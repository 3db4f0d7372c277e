// SPDX-License-Identifier: MIT
//
// What each ingredient of a four-bit KV cache is worth, alone and together, in fp64: on the trained
// checkpoint of the repository (KL of the next token's distribution from that of exact K and V, nats), and
// on made-up attention whose keys have what keys of large models are known to have. Only some of these
// types are built; src/README.md has the table.
//
//   kv_formats [TOKENS]    of the held-out text, in windows of 512; 1024
//
// The made-up attention: 4096 tokens, heads of 128, RoPE with theta 10^6. Of K before RoPE four channels
// have the same offset of 8 standard deviations in every token (KIVI, arXiv 2402.02750, and KVQuant,
// arXiv 2401.18079: a few channels of keys are large, always the same, and RoPE spreads each over a pair);
// token 0 is a sink: it takes a third of the weight, and its V is a twentieth of others' (arXiv 2309.17453,
// 2402.17762). How many channels and how large is our choice within what their figures show, measured by
// us on no model. Queries make scores with a standard deviation of 2.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "base/fd.h"
#include "file/checkpoint.h"
#include "kernels/quant/kv_fp4.h"
#include "model/config.h"
#include "reference/decoder.h"
#include "reference/kv_rounding.h"
#include "text/tokenizer.h"

using namespace mainarch;

namespace {

using Head = absl::Span<double>;
using Quantiser = std::function<void(Head)>;

double ToE2m1(double x) {
  const double magnitude = std::fabs(x), step = magnitude < 2 ? 0.5 : magnitude < 4 ? 1 : 2;
  return std::copysign(std::min(6.0, std::nearbyint(magnitude / step) * step), x);
}
double ErrorWith(absl::Span<const double> x, double scale) {
  double sum = 0;
  for (double each : x) sum += std::pow(each - scale * ToE2m1(each / scale), 2);
  return sum;
}

enum class Scales { kE8M0Floor, kE8M0Best, kE4M3Max, kE4M3Best, kE5M3Best };

std::vector<double> ScalesOf(Scales kind) {
  std::vector<double> out;
  if (kind == Scales::kE8M0Floor || kind == Scales::kE8M0Best) {
    for (int e = -40; e <= 40; ++e) out.push_back(std::ldexp(1.0, e));
  } else if (kind == Scales::kE5M3Best) {
    for (int c = 1; c <= quant::kE5m3Largest; ++c) out.push_back(quant::FloatFromE5m3(static_cast<uint8_t>(c)));
  } else {
    for (int e = -6; e <= 8; ++e) {
      for (int m = 0; m < 8 && !(e == 8 && m == 7); ++m) out.push_back(std::ldexp(1 + m / 8.0, e));
    }
    for (int m = 7; m > 0; --m) out.insert(out.begin(), std::ldexp(m / 8.0, -6));
  }
  return out;
}

// The scale of a block: by its largest magnitude, or the best of all.
double ChooseScale(Scales kind, const std::vector<double>& scales, Head block) {
  double largest = 0;
  for (double x : block) largest = std::max(largest, std::fabs(x));
  if (largest == 0) return 1;
  if (kind == Scales::kE8M0Floor) return std::ldexp(1.0, static_cast<int>(std::floor(std::log2(largest))) - 2);
  if (kind == Scales::kE4M3Max) {  // the nearest to a sixth of the largest
    const double want = largest / 6;
    return *std::min_element(scales.begin(), scales.end(), [&](double a, double b) {
      return std::fabs(a - want) < std::fabs(b - want);
    });
  }
  return *std::min_element(scales.begin(), scales.end(), [&](double a, double b) {
    // Far ones lose: not worth the time.
    const auto far = [&](double s) { return s < largest / 24 || s > largest; };
    if (far(a) || far(b)) return far(b) && !far(a);
    return ErrorWith(block, a) < ErrorWith(block, b);
  });
}

Quantiser Fp4(Scales kind, size_t block = 32) {
  return [kind, block, scales = ScalesOf(kind)](Head head) {
    for (size_t at = 0; at < head.size(); at += block) {
      const Head part = head.subspan(at, block);
      const double scale = ChooseScale(kind, scales, part);
      for (double& x : part) x = scale * ToE2m1(x / scale);
    }
  };
}
void Fp8(Head head) { reference::RoundHead(quant::KvForm::kFp8, head); }
void Exact(Head) {}
// Turned, rounded, turned back: the same as turning Q too.
Quantiser Turned(Quantiser inner) {
  return [inner](Head head) {
    reference::TurnHead(head);
    inner(head);
    reference::TurnHead(head);
  };
}

struct Variant {
  const char* name;
  double bits;  // an element of K and V, heads of 128
  Quantiser k, v;
  size_t first = 0;   // so many first tokens in fp8
  size_t last = 0;    // so many last ones
  bool outer = false;  // the first and the last layer in fp8
};

std::vector<Variant> Variants() {
  const auto shipped = Fp4(Scales::kE5M3Best);
  return {
      {"fp8", 8.25, Fp8, Fp8},
      {"K fp8, V E5M3 best (k8v4)", 6.25, Fp8, shipped},
      {"K fp8, V turned E5M3 best", 6.25, Fp8, Turned(shipped)},
      {"E8M0 floor", 4.25, Fp4(Scales::kE8M0Floor), Fp4(Scales::kE8M0Floor)},
      {"E8M0 best", 4.25, Fp4(Scales::kE8M0Best), Fp4(Scales::kE8M0Best)},
      {"E4M3 of the largest", 4.25, Fp4(Scales::kE4M3Max), Fp4(Scales::kE4M3Max)},
      {"E4M3 best", 4.25, Fp4(Scales::kE4M3Best), Fp4(Scales::kE4M3Best)},
      {"E5M3 best", 4.25, shipped, shipped},
      {"E8M0 floor, K turned", 4.25, Turned(Fp4(Scales::kE8M0Floor)), Fp4(Scales::kE8M0Floor)},
      {"E8M0 best, K turned", 4.25, Turned(Fp4(Scales::kE8M0Best)), Fp4(Scales::kE8M0Best)},
      {"E4M3 of the largest, K turned", 4.25, Turned(Fp4(Scales::kE4M3Max)), Fp4(Scales::kE4M3Max)},
      {"E5M3 best, K turned (fp4)", 4.25, Turned(shipped), shipped},
      {"E5M3 best, K and V turned", 4.25, Turned(shipped), Turned(shipped)},
      {"fp4 of K alone", 10.125, Turned(shipped), Exact},
      {"fp4 of V alone", 10.125, Exact, shipped},
      {"blocks of 16, K turned", 4.5, Turned(Fp4(Scales::kE5M3Best, 16)), Fp4(Scales::kE5M3Best, 16)},
      {"fp4, first 16 tokens in fp8", 4.25, Turned(shipped), shipped, 16, 0},
      {"fp4, last 128 tokens in fp8", 4.25, Turned(shipped), shipped, 0, 128},
      {"fp4, outer layers in fp8", 4.25, Turned(shipped), shipped, 0, 0, true},
      {"fp4, all three", 4.25, Turned(shipped), shipped, 16, 128, true},
  };
}

std::vector<double> LogSoftmax(absl::Span<const double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double each : x) sum += std::exp(each - largest);
  std::vector<double> out;
  for (double each : x) out.push_back(each - largest - std::log(sum));
  return out;
}
double Divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}
size_t Top(const std::vector<double>& x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

// ---- the trained checkpoint ----

struct Language {
  double kl = 0, same_top = 0;
};

class Trained {
 public:
  static StatusOr<Trained> Open(size_t tokens) {
    const std::string directory = std::string(MAINARCH_SOURCE_ROOT) + "/tests/golden/trained";
    Trained t;
    ASSIGN_OR_RETURN(auto checkpoint, file::Checkpoint::Open(directory));
    t.checkpoint_ = std::move(checkpoint);
    ASSIGN_OR_RETURN(const std::string config, ReadWholeFile(directory + "/config.json", 1 << 20));
    ASSIGN_OR_RETURN(t.config_, model::ParseConfig(config, "", directory));
    ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(directory + "/tokenizer.json", 1 << 26));
    ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::Load(json, "", "tokenizer.json"));
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(directory + "/heldout.txt", 1 << 20));
    RETURN_IF_ERROR(tokenizer->Encode(text, {}, &t.tokens_));
    t.tokens_.resize(std::min(tokens, t.tokens_.size()));
    ASSIGN_OR_RETURN(t.exact_, t.Run(nullptr));
    return t;
  }

  StatusOr<Language> Measure(const Variant& variant) const {
    ASSIGN_OR_RETURN(const auto logs, Run(&variant));
    Language out;
    for (size_t i = 0; i < logs.size(); ++i) {
      out.kl += Divergence(exact_[i], logs[i]) / static_cast<double>(logs.size());
      out.same_top += (Top(exact_[i]) == Top(logs[i])) / static_cast<double>(logs.size());
    }
    return out;
  }

 private:
  using Logs = std::vector<std::vector<double>>;
  StatusOr<Logs> Run(const Variant* variant) const {
    ASSIGN_OR_RETURN(auto decoder,
                     reference::Decoder::Create(checkpoint_, config_, quant::KvType::kF32));
    const size_t last_layer = static_cast<size_t>(config_.layers) - 1;
    decoder->RoundWith([=](size_t layer, size_t position, bool is_value, Head head) {
      if (variant == nullptr) return;
      const bool eight = position < variant->first || (variant->outer && (layer == 0 || layer == last_layer));
      eight ? Fp8(head) : (is_value ? variant->v : variant->k)(head);
    });
    Logs out;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (i % 512 == 0) decoder->Truncate(0);
      RETURN_IF_ERROR(decoder->Extend({tokens_[i]}));
      out.push_back(LogSoftmax(decoder->logits()));
    }
    return out;
  }

  std::shared_ptr<const file::Checkpoint> checkpoint_;
  model::ModelConfig config_;
  std::vector<uint32_t> tokens_;
  Logs exact_;
};

// ---- made-up attention ----

struct Attention {
  double kl = 0, error = 0;  // of the weights; of the output, relative
};

class MadeUp {
 public:
  MadeUp() {
    std::mt19937_64 rng(17);
    std::normal_distribution<double> normal;
    std::vector<double> offset(kDim, 0.0);
    for (size_t c : {5u, 37u, 70u, 101u}) offset[c] = (c % 2 == 0 ? -8 : 8);
    for (size_t t = 0; t < kTokens; ++t) {
      std::vector<double> k = offset, v(kDim);
      for (double& x : k) x += normal(rng);
      for (double& x : v) x = normal(rng) * (t == 0 ? 0.05 : 1);
      Rotate(t, &k);
      keys_.push_back(std::move(k));
      values_.push_back(std::move(v));
    }
    for (size_t i = 0; i < kQueries; ++i) {
      std::vector<double> q(kDim);
      for (double& x : q) x = normal(rng) * 2;  // scores q k / sqrt(128): about 2
      for (size_t c : {5u, 37u, 70u, 101u}) q[c] *= 0.1;  // or the offsets would decide alone
      Rotate(kTokens - 1, &q);
      queries_.push_back(std::move(q));
    }
  }

  Attention Measure(const Variant& variant) const {
    auto keys = keys_, values = values_;
    for (size_t t = 0; t < kTokens; ++t) {
      const bool eight = t < variant.first || t + variant.last >= kTokens;
      eight ? Fp8(absl::MakeSpan(keys[t])) : variant.k(absl::MakeSpan(keys[t]));
      eight ? Fp8(absl::MakeSpan(values[t])) : variant.v(absl::MakeSpan(values[t]));
    }
    Attention out;
    for (const auto& q : queries_) {
      // The sink's score is made a third of the weight in exact arithmetic, the same in the other.
      const auto exact = Weights(q, keys_, nullptr);
      const auto got = Weights(q, keys, &exact);
      out.kl += Divergence(exact.logs, got.logs) / kQueries;
      const auto want = Output(exact.logs, values_), have = Output(got.logs, values);
      double off = 0, size = 0;
      for (size_t d = 0; d < kDim; ++d) off += std::pow(have[d] - want[d], 2), size += want[d] * want[d];
      out.error += std::sqrt(off / size) / kQueries;
    }
    return out;
  }

 private:
  static constexpr size_t kDim = 128, kTokens = 4096, kQueries = 32;
  struct Softmaxed {
    std::vector<double> logs;
    double sink_bonus = 0;
  };
  static void Rotate(size_t position, std::vector<double>* head) {
    for (size_t i = 0; i < kDim / 2; ++i) {
      const double angle = static_cast<double>(position) * std::pow(1e6, -static_cast<double>(i) / (kDim / 2));
      const double c = std::cos(angle), s = std::sin(angle), a = (*head)[i], b = (*head)[i + kDim / 2];
      (*head)[i] = a * c - b * s;
      (*head)[i + kDim / 2] = b * c + a * s;
    }
  }
  static Softmaxed Weights(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                           const Softmaxed* like) {
    std::vector<double> scores;
    for (const auto& k : keys) {
      double sum = 0;
      for (size_t d = 0; d < kDim; ++d) sum += q[d] * k[d];
      scores.push_back(sum / std::sqrt(static_cast<double>(kDim)));
    }
    Softmaxed out;
    if (like != nullptr) {
      out.sink_bonus = like->sink_bonus;
    } else {
      double others = 0;
      for (size_t t = 1; t < scores.size(); ++t) others += std::exp(scores[t]);
      out.sink_bonus = std::log(others / 2) - scores[0];
    }
    scores[0] += out.sink_bonus;
    out.logs = LogSoftmax(scores);
    return out;
  }
  static std::vector<double> Output(const std::vector<double>& logs, const std::vector<std::vector<double>>& v) {
    std::vector<double> out(kDim, 0.0);
    for (size_t t = 0; t < v.size(); ++t) {
      for (size_t d = 0; d < kDim; ++d) out[d] += std::exp(logs[t]) * v[t][d];
    }
    return out;
  }

  std::vector<std::vector<double>> keys_, values_, queries_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto trained = Trained::Open(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024);
  if (!trained.ok()) {
    std::fprintf(stderr, "%s\n", std::string(trained.status().message()).c_str());
    return 1;
  }
  const MadeUp made_up;
  std::printf("%-32s %6s | %10s %9s | %10s %9s\n", "", "", "trained", "", "made up", "");
  std::printf("%-32s %6s | %10s %9s | %10s %9s\n", "variant", "bits", "KL", "same top", "KL weights",
              "output");
  for (const Variant& variant : Variants()) {
    const auto language = trained->Measure(variant);
    const Attention attention = made_up.Measure(variant);
    std::printf("%-32s %6.2f | %10.2e %8.1f%% | %10.2e %9.4f\n", variant.name, variant.bits,
                language.ok() ? language->kl : NAN, language.ok() ? language->same_top * 100 : NAN,
                attention.kl, attention.error);
    std::fflush(stdout);
  }
}
