// SPDX-License-Identifier: MIT
#include "backend/cpu/kernels/matmul.h"

#include "backend/cpu/kernels/functions.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

template <int MR, int NP>
inline void Finish(const MatmulArgs& a, int64_t panel, int64_t row, const V* y) {
  for (int m = 0; m < MR; ++m) {
    float* out = a.out[row + m];
    if constexpr (NP % 2 == 0) {
      if (a.epilogue == Epilogue::kGateUp) {
        for (int p = 0; p < NP; p += 2) {
          Store(out + (panel + p) / 2 * 16, Mul(Silu(y[p * MR + m]), y[(p + 1) * MR + m]));
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

// NP panels times MR rows; NP is even for gate-up.
template <class F, int MR, int NP>
void Block(const MatmulArgs& a, int64_t panel, int64_t row, const DecodeTables& tables) {
  const uint8_t* data[NP];
  for (int p = 0; p < NP; ++p) data[p] = a.w.data + static_cast<size_t>(panel + p) * a.w.stride;
  V y[NP * MR];
  DotAll<F, MR, NP>(a.w, data, a.x + row, tables, y);
  Finish<MR, NP>(a, panel, row, y);
}

// All panels against MR rows; NP at a time as long as there are so many.
template <class F, int MR, int NP>
void Rows(const MatmulArgs& a, int64_t row, const DecodeTables& tables) {
  int64_t panel = a.panel_begin;
  for (; panel + NP <= a.panel_end; panel += NP) Block<F, MR, NP>(a, panel, row, tables);
  if (NP > 2) {
    for (; panel + 2 <= a.panel_end; panel += 2) Block<F, MR, 2>(a, panel, row, tables);
  }
  for (; panel < a.panel_end; ++panel) Block<F, MR, 1>(a, panel, row, tables);
}

// NP * MR * 2 accumulators stay in registers: 16 of the 32 of AVX-512; elsewhere a vector is two or
// four of 16 registers.
template <class F>
void Matmul(const MatmulArgs& a) {
  const Tables& t = kTables;
  const DecodeTables tables = LoadTables(t.fp8_high, t.fp8_low, t.fp4);
  int64_t row = 0;
#if defined(MAINARCH_TARGET_avx512)
  for (; row + 4 <= a.rows; row += 4) Rows<F, 4, 2>(a, row, tables);
  if (row + 2 <= a.rows) {
    Rows<F, 2, 4>(a, row, tables);
    row += 2;
  }
  if (row < a.rows) Rows<F, 1, 4>(a, row, tables);
#else
  for (; row + 2 <= a.rows; row += 2) Rows<F, 2, 2>(a, row, tables);
  if (row < a.rows) Rows<F, 1, 2>(a, row, tables);
#endif
}

// The rows of one expert against one panel, part by part, added to each row's accumulators.
template <class F, int MR>
void ExpertBlock(const ExpertsDownArgs& a, const Panels& w, const uint8_t* panel,
                 const int32_t* entries, const DecodeTables& tables) {
  const float* x[MR];
  for (int m = 0; m < MR; ++m) x[m] = a.act + entries[m] * a.act_stride;
  for (int part = 0; part < w.parts; ++part) {
    V y[MR];
    DotPart<F, MR, 1>(w, &panel, x, w.bounds[part], w.bounds[part + 1], tables, y);
    for (int m = 0; m < MR; ++m) {
      float* at = a.scratch + (entries[m] / a.k * w.parts + part) * 16;
      const float weight = a.weights[entries[m] / a.k * a.weights_stride + entries[m] % a.k];
      Store(at, Fma(Set(weight), y[m], Load(at)));
    }
  }
}

template <class F>
void ExpertsDown(const ExpertsDownArgs& a) {
  const Tables& t = kTables;
  const DecodeTables tables = LoadTables(t.fp8_high, t.fp8_low, t.fp4);
  const int parts = a.experts[a.active[0]].parts;  // the same for all
  for (int64_t panel = a.panel_begin; panel < a.panel_end; ++panel) {
    for (int64_t i = 0; a.first && i < a.rows * parts; ++i) Store(a.scratch + 16 * i, Zero());
    for (int32_t i = 0; i < a.active_count; ++i) {
      const int32_t expert = a.active[i];
      const Panels& w = a.experts[expert];
      const uint8_t* data = w.data + static_cast<size_t>(panel) * w.stride;
      int32_t at = a.offsets[expert];
      const int32_t end = a.offsets[expert + 1];
      for (; at + 4 <= end; at += 4) ExpertBlock<F, 4>(a, w, data, a.entries + at, tables);
      for (; at < end; ++at) ExpertBlock<F, 1>(a, w, data, a.entries + at, tables);
    }
    for (int64_t row = 0; a.last && row < a.rows; ++row) {
      Tree<1> tree;
      for (int part = 0; part < parts; ++part) {
        const V y = Load(a.scratch + (row * parts + part) * 16);
        tree.Push(&y);
      }
      float* out = a.out + row * a.out_stride + panel * 16;
      Store(out, a.add ? Add(Load(out), *tree.Sum()) : *tree.Sum());
    }
  }
}

}  // namespace

void RunMatmul(const MatmulArgs& a) {
  switch (a.w.format) {
    case PanelFormat::kBF16: return Matmul<FormatBF16>(a);
    case PanelFormat::kF16: return Matmul<FormatF16>(a);
    case PanelFormat::kF32: return Matmul<FormatF32>(a);
    case PanelFormat::kFp8: return Matmul<FormatFp8>(a);
    case PanelFormat::kMxfp4: return Matmul<FormatMxfp4>(a);
    case PanelFormat::kCount: return;
  }
}

void RunExpertsDown(const ExpertsDownArgs& a) {
  switch (a.experts[a.active[0]].format) {
    case PanelFormat::kBF16: return ExpertsDown<FormatBF16>(a);
    case PanelFormat::kF16: return ExpertsDown<FormatF16>(a);
    case PanelFormat::kF32: return ExpertsDown<FormatF32>(a);
    case PanelFormat::kFp8: return ExpertsDown<FormatFp8>(a);
    case PanelFormat::kMxfp4: return ExpertsDown<FormatMxfp4>(a);
    case PanelFormat::kCount: return;
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
