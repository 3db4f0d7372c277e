// SPDX-License-Identifier: MIT
//
// The functions behind one target's table.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_FUNCTIONS_H_
#define MAINARCH_BACKEND_CPU_KERNELS_FUNCTIONS_H_

#include "backend/cpu/kernels.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// matmul.cc
void RunMatmul(const MatmulArgs& a);
void RunExpertsDown(const ExpertsDownArgs& a);
void RunMatmulBF16(const MatmulArgs& a);            // avx512_bf16 and neon_bf16 only
void RunExpertsDownBF16(const ExpertsDownArgs& a);
// matmul_blocks.cc
void RunMatmulBlocks(const MatmulArgs& a);
void RunExpertsDownBlocks(const ExpertsDownArgs& a);
void RunMatmulBlocksBF16(const MatmulArgs& a);  // avx512_bf16 and neon_bf16 only
void RunExpertsDownBlocksBF16(const ExpertsDownArgs& a);
// matmul_int8.cc
void RunMatmulInt8(const MatmulArgs& a);
void RunExpertsDownInt8(const ExpertsDownArgs& a);
void RunToInt8(const float* x, const Panels& w, uint8_t* row);
// attention.cc
void RunAttend(const AttendArgs& a);
void RunMergeSplit(const float* part, const float* part_max_sum, int32_t value_dim, float* out,
                   float* max_sum);
void RunKvWrite(const KvWriteArgs& a);
void RunHadamard(float* x, int32_t n, int32_t size);
// delta.cc
void RunDelta(const DeltaArgs& a);
void RunConvSilu(const float* const* x, const float* w, int64_t w_stride, int32_t taps, int64_t n,
                 float* out);
void RunL2Norm(float* x, float eps, float scale, int64_t n);
float RunDot(const float* x, const float* y, int64_t n);
void RunSiluGate(float* x, const float* g, int64_t n);
// rows.cc
void RunRmsNorm(const float* x, const float* w, float eps, int64_t n, float* out);
void RunNormRope(const float* x, const float* w, float eps, int32_t head_dim, const float* cos,
                 const float* sin, int32_t half, float scale, float* out);
void RunGate(float* x, const float* g, int64_t n);
void RunScale(float* x, float factor, int64_t n);
void RunAddTree(float* x, const float* const* parts, int32_t n, int64_t count);
void RunSoftmax(float* x, int64_t n);
void RunToBF16(const float* x, uint16_t* out, int64_t n);
void RunByColumns(const float* const* x, int64_t rows, int64_t n, float* out);  // AVX-512 only
void RunLoadBF16(const uint8_t* src, float* out, int64_t n);
void RunLoadF16(const uint8_t* src, float* out, int64_t n);

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_FUNCTIONS_H_
