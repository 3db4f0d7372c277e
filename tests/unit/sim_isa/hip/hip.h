// SPDX-License-Identifier: MIT
//
// The HIP language without its headers: what `clang -x hip -nogpuinc -nogpulib` leaves a program to
// define itself. The same per-thread functions are compiled for the host too, as the reference:
//
//   WORK(name, words_in, words_out) { out[0] = in[0] + in[1]; }
//
// makes a kernel `name(in, out, n)` that gives thread i its own words, and on the host a loop.
#ifndef MAINARCH_TESTS_HIP_H_
#define MAINARCH_TESTS_HIP_H_

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long u64;
typedef long i64;
typedef _Float16 f16;

#if defined(__HIP__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __noinline__ __attribute__((noinline))
#define KERNEL extern "C" __global__

#define DIM(name, builtin)                                             \
  struct name##_t {                                                    \
    __declspec(property(get = GetX)) u32 x;                            \
    __declspec(property(get = GetY)) u32 y;                            \
    __declspec(property(get = GetZ)) u32 z;                            \
    __device__ static u32 GetX() { return __builtin_amdgcn_##builtin##_x(); } \
    __device__ static u32 GetY() { return __builtin_amdgcn_##builtin##_y(); } \
    __device__ static u32 GetZ() { return __builtin_amdgcn_##builtin##_z(); } \
  };                                                                   \
  static constexpr name##_t name = {};
DIM(threadIdx, workitem_id)
DIM(blockIdx, workgroup_id)
DIM(blockDim, workgroup_size)
// The grid in work-items, from the dispatch packet as code object 5's hidden block counts.
__device__ inline u32 GridBlocks(int dim) {
  return ((const __attribute__((address_space(4))) u32*)__builtin_amdgcn_implicitarg_ptr())[dim];
}
__device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline u32 LaneId() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
__device__ inline u32 GlobalId() { return blockIdx.x * blockDim.x + threadIdx.x; }

#define WORK(name, words_in, words_out)                                      \
  __device__ void name##_body(const u64* in, u64* out, int i);               \
  KERNEL void name(const u64* in, u64* out, int n) {                         \
    const int i = GlobalId();                                                \
    if (i < n) name##_body(in + i * (words_in), out + i * (words_out), i);   \
  }                                                                          \
  __device__ void name##_body(const u64* in, u64* out, int i)
#define GLOBAL_DATA __device__
#define CONSTANT_DATA __constant__
#else
#define __device__
#define __noinline__ __attribute__((noinline))
#define WORK(name, words_in, words_out)                                              \
  static void name##_body(const u64* in, u64* out, int i);                           \
  extern "C" void name(const u64* in, u64* out, int n) {                             \
    for (int i = 0; i < n; ++i) name##_body(in + i * (words_in), out + i * (words_out), i); \
  }                                                                                  \
  extern "C" const int name##_words[2] = {words_in, words_out};                      \
  static void name##_body(const u64* in, u64* out, int i)
#define GLOBAL_DATA static
#define CONSTANT_DATA static const
// The host compiler calls it, its run-time library may lack it.
extern "C" __attribute__((weak)) __bf16 __truncsfbf2(float x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return __builtin_bit_cast(__bf16, (u16)(x != x ? bits >> 16 | 0x40 : rounded));
}
#endif

// Bits of a number, every NaN alike.
__device__ inline u64 Bits(float x) { return x != x ? 0x7fc00000u : __builtin_bit_cast(u32, x); }
__device__ inline u64 Bits(double x) {
  return x != x ? 0x7ff8000000000000ul : __builtin_bit_cast(u64, x);
}
__device__ inline u64 Bits(f16 x) { return x != x ? 0x7e00u : __builtin_bit_cast(u16, x); }
__device__ inline u64 Bits(__bf16 x) {
  const u16 bits = __builtin_bit_cast(u16, x);
  return (bits & 0x7fff) > 0x7f80 ? 0x7fc0u : bits;
}
// Numbers of moderate size out of any bits.
__device__ inline float MakeFloat(u64 x) {
  return (float)((i32)(x >> 8) >> 7) * __builtin_bit_cast(float, (u32)(100 + (x & 31)) << 23);
}
__device__ inline double MakeDouble(u64 x) {
  return (double)((i64)x >> 10) * __builtin_bit_cast(double, (u64)(950 + (x & 63)) << 52);
}
__device__ inline f16 MakeHalf(u64 x) { return (f16)((float)((i32)(x & 0xffff) - 32768) / (1 << (x >> 16 & 15))); }

#endif  // MAINARCH_TESTS_HIP_H_
