// SPDX-License-Identifier: MIT
#include "cli/kv_variants.h"

#include <algorithm>
#include <cmath>

#include "kernels/quant/kv_fp4.h"
#include "reference/kv_rounding.h"

namespace mainarch::cli {
namespace {

using Head = absl::Span<double>;

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
    for (int c = 1; c <= quant::kE5m3Largest; ++c) {
      out.push_back(double{quant::FloatFromE5m3(static_cast<uint8_t>(c))});
    }
  } else {
    for (int m = 1; m < 8; ++m) out.push_back(std::ldexp(m / 8.0, -6));
    for (int e = -6; e <= 8; ++e) {
      for (int m = 0; m < 8 && !(e == 8 && m == 7); ++m) out.push_back(std::ldexp(1 + m / 8.0, e));
    }
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
  double best = scales.back(), least = INFINITY;
  for (const double scale : scales) {
    if (scale < largest / 24 || scale > largest) continue;  // far ones lose: not worth the time
    const double error = ErrorWith(block, scale);
    if (error < least) least = error, best = scale;
  }
  return std::isinf(least) ? (largest < scales.front() ? scales.front() : scales.back()) : best;
}

KvRounder Fp4(Scales kind, size_t block = 32) {
  return [kind, block, scales = ScalesOf(kind)](Head head) {
    for (size_t at = 0; at < head.size(); at += block) {
      const Head part = head.subspan(at, block);
      const double scale = ChooseScale(kind, scales, part);
      for (double& x : part) x = scale * ToE2m1(x / scale);
    }
  };
}
void Exact(Head) {}
// Turned, rounded, turned back: the same as turning Q too.
KvRounder Turned(const KvRounder& inner) {
  return [inner](Head head) {
    reference::TurnHead(head);
    inner(head);
    reference::TurnHead(head);
  };
}

}  // namespace

void RoundToFp8(Head head) { reference::RoundHead(quant::KvForm::kFp8, head); }

std::vector<KvVariant> KvVariants() {
  const KvRounder fp8 = RoundToFp8, best = Fp4(Scales::kE5M3Best), turned = Turned(best);
  const KvRounder floor = Fp4(Scales::kE8M0Floor), exponent = Fp4(Scales::kE8M0Best);
  const KvRounder of_largest = Fp4(Scales::kE4M3Max), e4m3 = Fp4(Scales::kE4M3Best);
  const KvRounder small = Fp4(Scales::kE5M3Best, 16);
  return {
      {"fp8", 8.25, fp8, fp8},
      {"fp8, K turned", 8.25, Turned(fp8), fp8},
      {"k8v4: K fp8, V E5M3 best", 6.25, fp8, best},
      {"K fp8, V turned E5M3 best", 6.25, fp8, turned},
      {"E8M0 floor", 4.25, floor, floor},
      {"E8M0 best", 4.25, exponent, exponent},
      {"E4M3 of the largest", 4.25, of_largest, of_largest},
      {"E4M3 best", 4.25, e4m3, e4m3},
      {"E5M3 best", 4.25, best, best},
      {"E8M0 floor, K turned", 4.25, Turned(floor), floor},
      {"E8M0 best, K turned", 4.25, Turned(exponent), exponent},
      {"E4M3 of the largest, K turned", 4.25, Turned(of_largest), of_largest},
      {"E4M3 best, K turned", 4.25, Turned(e4m3), e4m3},
      {"fp4: E5M3 best, K turned", 4.25, turned, best},
      {"E5M3 best, K and V turned", 4.25, turned, turned},
      {"K of fp4, V exact", 4.25, turned, Exact},
      {"V of fp4, K exact", 4.25, Exact, best},
      {"fp4 in blocks of 16", 4.5, Turned(small), small},
      {"fp4, first 16 tokens in fp8", 4.25, turned, best, 16, 0},
      {"fp4, last 128 tokens in fp8", 4.25, turned, best, 0, 128},
      {"fp4, outer layers in fp8", 4.25, turned, best, 0, 0, true},
      {"fp4, all three", 4.25, turned, best, 16, 128, true},
  };
}

}  // namespace mainarch::cli
