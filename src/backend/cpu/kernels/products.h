// SPDX-License-Identifier: MIT
//
// What the products of vectors (matmul.cc) and of tiles (tiles.h) share: where results go, and how
// experts are walked.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_PRODUCTS_H_
#define MAINARCH_BACKEND_CPU_KERNELS_PRODUCTS_H_

#include "backend/cpu/kernels/matmul.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// Of output panel `panel`: what a feed-forward makes of its gate and up.
static inline V Activate(const MatmulArgs& a, int64_t panel, V gate, V up) {
  if (a.gate_bias != nullptr) {
    gate = Add(gate, Load(a.gate_bias + panel * 16));
    up = Add(up, Load(a.up_bias + panel * 16));
  }
  switch (a.activation) {
    case backend::Activation::kSilu:
      break;
    case backend::Activation::kGeluTanh: {
      const V square = Mul(gate, gate);
      const V linear = Set(static_cast<float>(-backend::kGeluLinear));
      const V t = Mul(gate, Fma(square, Set(static_cast<float>(-backend::kGeluCubic)), linear));
      return Mul(Div(gate, Add(Set(1.0f), Exp(t))), up);
    }
    case backend::Activation::kClampedSwiglu: {
      const V limit = Set(static_cast<float>(backend::kSwigluLimit));
      gate = Min(gate, limit);
      up = Max(Min(up, limit), Sub(Zero(), limit));
      const V t = Mul(gate, Set(static_cast<float>(-backend::kSwigluAlpha)));
      return Mul(Div(gate, Add(Set(1.0f), Exp(t))), Add(up, Set(1.0f)));
    }
  }
  return Mul(Silu(gate), up);
}

// Of MR rows that were computed those that the matrix has are written. y[panel * MR + row].
template <int MR, int NP>
static inline void Finish(const MatmulArgs& a, int64_t panel, int64_t row, const V* y) {
  for (int m = 0; m < MR && row + m < a.rows; ++m) {
    float* out = a.out[row + m];
    if constexpr (NP % 2 == 0) {
      if (a.epilogue == Epilogue::kGateUp) {
        for (int p = 0; p < NP; p += 2) {
          const int64_t at = (panel + p) / 2;
          Store(out + at * 16, Activate(a, at, y[p * MR + m], y[(p + 1) * MR + m]));
        }
        continue;
      }
    }
    for (int p = 0; p < NP; ++p) {
      float* at = out + (panel + p) * 16;
      Store(at, a.epilogue == Epilogue::kAdd ? Add(Load(at), y[p * MR + m]) : y[p * MR + m]);
    }
  }
}

// y[p], of NP panels, times the entry's weight, is added to what the scratch holds of its row.
template <int NP>
static inline void AddToRow(const ExpertsDownArgs& a, int32_t entry, int part, int parts, int slot,
                            const V* y) {
  const int32_t row = entry / a.k;
  const V weight = Set(a.weights[row * a.weights_stride + entry % a.k]);
  float* at = a.scratch + ((row * parts + part) * kExpertPanels + slot) * 16;
  for (int p = 0; p < NP; ++p) Store(at + 16 * p, Fma(weight, y[p], Load(at + 16 * p)));
}

// NP panels of all active experts, at slots of the scratch from `slot` on. rows(w, first, next,
// entries, count, slot): AddToRow of every part of each of an expert's entries, `first` being its
// panel `panel`; what lies `next` bytes further on is read next.
template <int NP, class Rows>
static inline void ExpertPanels(const ExpertsDownArgs& a, int64_t panel, Rows rows) {
  const int parts = a.experts[a.active[0]].parts;  // the same for all
  const int slot = static_cast<int>(panel - a.panel_begin) % kExpertPanels;
  const auto scratch = [&](int64_t row, int part, int p) {
    return a.scratch + ((row * parts + part) * kExpertPanels + slot + p) * 16;
  };
  for (int64_t row = 0; a.first && row < a.rows; ++row) {
    for (int part = 0; part < parts; ++part) {
      for (int p = 0; p < NP; ++p) Store(scratch(row, part, p), Zero());
    }
  }
  const auto data = [&](int32_t i, int64_t at) {
    const Panels& w = a.experts[a.active[i]];
    return w.data + static_cast<size_t>(at) * w.stride;
  };
  for (int32_t i = 0; i < a.active_count; ++i) {
    const uint8_t* here = data(i, panel);
    // Next come the same panels of the next expert, or the next panels of the first.
    const uint8_t* next = i + 1 < a.active_count ? data(i + 1, panel) : data(0, panel + NP);
    const size_t by = reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(here);
    const int32_t begin = a.offsets[a.active[i]], end = a.offsets[a.active[i] + 1];
    rows(a.experts[a.active[i]], here, by, a.entries + begin, end - begin, slot);
  }
  for (int64_t row = 0; a.last && row < a.rows; ++row) {
    for (int p = 0; p < NP; ++p) {
      Tree<1> tree;
      for (int part = 0; part < parts; ++part) {
        const V y = Load(scratch(row, part, p));
        tree.Push(&y);
      }
      float* out = a.out + row * a.out_stride + (panel + p) * 16;
      Store(out, a.add ? Add(Load(out), *tree.Sum()) : *tree.Sum());
    }
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_PRODUCTS_H_
