// SPDX-License-Identifier: MIT
//
// What a feed-forward makes of its gate g and its up u. Plain: kernels of every target include it.
#ifndef MAINARCH_BACKEND_ACTIVATION_H_
#define MAINARCH_BACKEND_ACTIVATION_H_

#include <stdint.h>

namespace mainarch::backend {

enum class Activation : uint8_t {
  kSilu,           // silu(g) * u
  kGeluTanh,       // gelu(g) * u, by the approximation with tanh
  kClampedSwiglu,  // gpt-oss: g to 7 at most, u to 7 in magnitude; g * sigmoid(1.702 g) * (u + 1)
};

// gelu(x) = x * sigmoid(kGeluLinear * x + kGeluCubic * x^3): 2 sqrt(2 / pi), and that times 0.044715.
inline constexpr double kGeluLinear = 1.5957691216057308;
inline constexpr double kGeluCubic = 0.07135481282553233;
inline constexpr double kSwigluAlpha = 1.702;
inline constexpr double kSwigluLimit = 7;

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_ACTIVATION_H_
