// SPDX-License-Identifier: MIT
#include "model/rope.h"

#include <algorithm>
#include <cmath>

namespace mainarch::model {
namespace {

constexpr double kTwoPi = 2 * 3.14159265358979323846;

// What is left of a frequency: all, the factor's part, or between them a blend by its turns over
// the original range.
double Llama3Share(const RopeConfig& config, double inv_freq) {
  const double turns = static_cast<double>(config.original_max_position) * inv_freq / kTwoPi;
  const double left = std::clamp((turns - config.low_freq_factor) /
                                     (config.high_freq_factor - config.low_freq_factor),
                                 0.0, 1.0);
  return left + (1 - left) / config.factor;
}

// YaRN's ramp between a frequency as it is and one slowed by the factor.
void AddYarn(const RopeConfig& config, backend::Rope* rope) {
  const double dims = config.rotary_dim;
  // The dimension at which a full turn takes 2 pi O / n positions.
  auto dimension_of_turns = [&](double turns) {
    return dims * std::log(static_cast<double>(config.original_max_position) / (turns * kTwoPi)) /
           (2 * std::log(config.theta));
  };
  double low = dimension_of_turns(config.beta_fast), high = dimension_of_turns(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::clamp(low, 0.0, dims - 1);
  high = std::clamp(high, 0.0, dims - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope->inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rope->inv_freq[i] = rope->inv_freq[i] / config.factor * ramp + rope->inv_freq[i] * (1 - ramp);
  }
}

}  // namespace

backend::Rope MakeRope(const RopeConfig& config) {
  backend::Rope rope;
  rope.rotary_dim = config.rotary_dim;
  const double dims = config.rotary_dim;
  for (int32_t i = 0; i < config.rotary_dim / 2; ++i) {
    rope.inv_freq.push_back(std::pow(config.theta, -2.0 * i / dims));
  }
  switch (config.kind) {
    case RopeKind::kPlain:
      return rope;
    case RopeKind::kLinear:
      for (double& inv_freq : rope.inv_freq) inv_freq /= config.factor;
      return rope;
    case RopeKind::kLlama3:
      for (double& inv_freq : rope.inv_freq) inv_freq *= Llama3Share(config, inv_freq);
      return rope;
    case RopeKind::kLongRope:
      rope.scale = config.attention_factor;
      for (size_t i = 0; i < rope.inv_freq.size(); ++i) rope.inv_freq[i] /= config.divisors[i];
      return rope;
    case RopeKind::kYarn:
      rope.scale = config.attention_factor;
      AddYarn(config, &rope);
      return rope;
  }
  return rope;
}

}  // namespace mainarch::model
