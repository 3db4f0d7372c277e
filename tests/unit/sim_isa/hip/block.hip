// SPDX-License-Identifier: MIT
//
// What the threads of a block and of a grid do together: LDS, barriers, shuffles, atomics, tiles.
#include "hip.h"

// --- indices -------------------------------------------------------------------------------------
struct Indices {
  u32 thread[3], block[3], size[3], count[3];
};
KERNEL void indices(Indices* out, u32 width, u32 height) {
  const u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
            z = blockIdx.z * blockDim.z + threadIdx.z;
  Indices& me = out[x + width * (y + height * z)];
  me.thread[0] = threadIdx.x; me.thread[1] = threadIdx.y; me.thread[2] = threadIdx.z;
  me.block[0] = blockIdx.x; me.block[1] = blockIdx.y; me.block[2] = blockIdx.z;
  me.size[0] = blockDim.x; me.size[1] = blockDim.y; me.size[2] = blockDim.z;
  for (int d = 0; d < 3; ++d) me.count[d] = GridBlocks(d);
}
// A large structure by value: 1200 bytes of kernarg.
struct Large {
  u32 table[256];
  double factor;
  u8 bytes[160];
  const u32* in;
};
KERNEL void large_argument(Large large, u32* out, char tail) {
  const u32 i = GlobalId();
  out[i] = large.table[i & 255] * (u32)large.factor + large.bytes[i % 160] + large.in[i] + tail;
}
KERNEL void __launch_bounds__(128, 4) bounded(float* data, i16 add, bool negate, i8 shift) {
  const u32 i = GlobalId();
  const float x = data[i] + add;
  data[i] = __builtin_ldexpf(negate ? -x : x, shift);
}

// --- LDS -----------------------------------------------------------------------------------------
KERNEL void block_sum(const float* in, float* out, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = GlobalId(); i < n; i += GridBlocks(0) * blockDim.x) sum += in[i];
  part[threadIdx.x] = sum;
  for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
KERNEL void scan(const u32* in, u32* out) {
  __shared__ u32 buffer[2][256];
  const u32 t = threadIdx.x, i = GlobalId();
  int from = 0;
  buffer[0][t] = in[i];
  __syncthreads();
  for (u32 d = 1; d < 256; d *= 2) {
    buffer[1 - from][t] = buffer[from][t] + (t >= d ? buffer[from][t - d] : 0);
    from = 1 - from;
    __syncthreads();
  }
  out[i] = buffer[from][t];
}
KERNEL void transpose(const float* in, float* out, int width, int height) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
template <class T>
__device__ void Matmul(const T* a, const T* b, T* c, int n) {
  __shared__ T ta[16][16], tb[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  T sum = 0;
  for (int k = 0; k < n; k += 16) {
    ta[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += ta[threadIdx.y][j] * tb[j][threadIdx.x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
KERNEL void matmul_float(const float* a, const float* b, float* c, int n) { Matmul(a, b, c, n); }
KERNEL void matmul_double(const double* a, const double* b, double* c, int n) { Matmul(a, b, c, n); }
KERNEL void matmul_int(const i32* a, const i32* b, i32* c, int n) { Matmul(a, b, c, n); }

extern __shared__ u32 dynamic[];
KERNEL void reverse_dynamic(u32* data, int n) {
  u64* wide = (u64*)dynamic;
  for (int i = threadIdx.x; i < n; i += blockDim.x) wide[i] = data[blockIdx.x * n + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[blockIdx.x * n + i] = (u32)wide[n - 1 - i];
}
// A pointer that may be to LDS, private or global memory.
__device__ __noinline__ u32 SumOf(const u32* p, int n) {
  u32 sum = 0;
  for (int i = 0; i < n; ++i) sum += p[i] * (i + 1);
  return sum;
}
KERNEL void generic_pointers(const u32* in, u32* out) {
  __shared__ u32 shared[64];
  u32 mine[8];
  const u32 t = threadIdx.x;
  shared[t] = in[t] + 1;
  for (int k = 0; k < 8; ++k) mine[k] = in[t] * k;
  __syncthreads();
  const u32* p = t % 3 == 0 ? shared : t % 3 == 1 ? mine : in;
  out[t] = SumOf(p, 8);
  u32* q = t % 2 ? &shared[t] : &mine[t & 7];
  *q = t;
  __syncthreads();
  out[64 + t] = shared[t] + mine[t & 7];
}
KERNEL void bitonic_sort(u32* data) {
  __shared__ u32 keys[512];
  const u32 t = threadIdx.x;
  keys[t] = data[t];
  keys[t + 256] = data[t + 256];
  for (u32 k = 2; k <= 512; k *= 2) {
    for (u32 j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      const u32 i = 2 * t - (t & (j - 1)), other = i + j;
      const bool up = (i & k) == 0;
      if ((keys[i] > keys[other]) == up) {
        const u32 x = keys[i];
        keys[i] = keys[other];
        keys[other] = x;
      }
    }
  }
  __syncthreads();
  data[t] = keys[t];
  data[t + 256] = keys[t + 256];
}
KERNEL void histogram(const u8* in, u32* out, int n) {
  __shared__ u32 bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = GlobalId(); i < n; i += GridBlocks(0) * blockDim.x)
    __hip_atomic_fetch_add(&bins[in[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __syncthreads();
  __hip_atomic_fetch_add(&out[threadIdx.x], bins[threadIdx.x], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// --- the wave ------------------------------------------------------------------------------------
__device__ u32 Shuffle(u32 x, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, x); }
KERNEL void wave_shuffles(const u32* in, u32* out) {
  const u32 l = LaneId(), x = in[l];
  u32* mine = out + l * 12;
  mine[0] = Shuffle(x, l ^ 1);
  mine[1] = Shuffle(x, (l + 7) & 63);
  mine[2] = __builtin_amdgcn_readlane(x, 13);
  mine[3] = __builtin_amdgcn_readfirstlane(x);
  mine[4] = __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, true);   // row_shr:1
  mine[5] = __builtin_amdgcn_update_dpp(77, x, 0x101, 0xf, 0xf, false);  // row_shl:1
  mine[6] = __builtin_amdgcn_mov_dpp(x, 0x1b, 0xf, 0xf, true);          // quad_perm 3210
  mine[7] = __builtin_amdgcn_ds_swizzle(x, 0x041f);                     // xor 1
  mine[8] = __builtin_popcountl(__builtin_amdgcn_ballot_w64(x & 1));
  u32 sum = x;
  for (int d = 32; d > 0; d /= 2) sum += Shuffle(sum, l ^ d);
  mine[9] = sum;
  const u64 second = __builtin_amdgcn_ballot_w64(x & 2);
  mine[10] = 0;
  if (x & 2) mine[10] = __builtin_popcountl(second);
  u32 prefix = x;
  for (int d = 1; d < 64; d *= 2) {
    const u32 other = Shuffle(prefix, (int)l - d < 0 ? 0 : l - d);
    if (l >= (u32)d) prefix += other;
  }
  mine[11] = prefix;
}
KERNEL void waterfall(const u32* in, u32* out) {
  // Every distinct value gets its turn: lanes with it are counted.
  const u32 x = in[threadIdx.x] & 7;
  bool todo = true;
  while (todo) {
    const u32 first = __builtin_amdgcn_readfirstlane(x);
    const u64 same = __builtin_amdgcn_ballot_w64(x == first);
    if (x == first) {
      out[threadIdx.x] = __builtin_popcountl(same) * 100 + first;
      todo = false;
    }
  }
}

// --- atomics -------------------------------------------------------------------------------------
struct Counters {
  u32 add, sub, smax_u, smin_u, and_, or_, xor_;
  i32 smax, smin;
  u64 add64, max64;
  float fadd;
  u32 pad;
  double dadd, dmax;
  u32 cas, ticket;
};
KERNEL void atomics(Counters* c, u32* order, u32* returned) {
  const u32 i = GlobalId();
#define AGENT __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT
  __hip_atomic_fetch_add(&c->add, i, AGENT);
  __hip_atomic_fetch_sub(&c->sub, 2u, AGENT);
  __hip_atomic_fetch_max(&c->smax_u, i * 7919 % 1009, AGENT);
  __hip_atomic_fetch_min(&c->smin_u, i * 7919 % 1009 + 5, AGENT);
  __hip_atomic_fetch_and(&c->and_, ~(1u << (i & 15)), AGENT);
  __hip_atomic_fetch_or(&c->or_, 1u << (i & 31), AGENT);
  __hip_atomic_fetch_xor(&c->xor_, i, AGENT);
  __hip_atomic_fetch_max(&c->smax, (i32)i - 100, AGENT);
  __hip_atomic_fetch_min(&c->smin, -(i32)i, AGENT);
  __hip_atomic_fetch_add(&c->add64, (u64)i << 20, AGENT);
  __hip_atomic_fetch_max(&c->max64, (u64)i << 33, AGENT);
  __hip_atomic_fetch_add(&c->fadd, 0.5f, AGENT);
  __hip_atomic_fetch_add(&c->dadd, 0.25, AGENT);
  __hip_atomic_fetch_max(&c->dmax, (double)i, AGENT);
  u32 seen = __hip_atomic_load(&c->cas, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (!__hip_atomic_compare_exchange_strong(&c->cas, &seen, seen * 1 + 3, __ATOMIC_ACQ_REL,
                                               __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) {
  }
  const u32 ticket = __hip_atomic_fetch_add(&c->ticket, 1u, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_SYSTEM);
  order[ticket] = i;
  returned[i] = ticket;
}
KERNEL void shared_atomics(u32* out) {
  __shared__ u32 word;
  __shared__ u64 wide;
  __shared__ float sum;
  __shared__ double sum64;
  __shared__ i32 low;
  if (threadIdx.x == 0) word = 0, wide = 0, sum = 0, sum64 = 0, low = 0;
  __syncthreads();
#define BLOCK __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP
  const u32 old = __hip_atomic_fetch_add(&word, 3u, BLOCK);
  __hip_atomic_fetch_add(&wide, 1ul << 32, BLOCK);
  __hip_atomic_fetch_add(&sum, 1.5f, BLOCK);
  __hip_atomic_fetch_add(&sum64, 2.5, BLOCK);
  __hip_atomic_fetch_min(&low, -(i32)threadIdx.x, BLOCK);
  __syncthreads();
  out[8 + threadIdx.x] = old;
  if (threadIdx.x == 0) {
    out[0] = word;
    out[1] = (u32)(wide >> 32);
    out[2] = (u32)sum;
    out[3] = (u32)sum64;
    out[4] = (u32)low;
  }
}
// Ticket lock around a critical section, and a grid barrier: blocks that wait for each other.
KERNEL void grid_barrier(u32* state, u32* sums) {
  u32* arrived = state;
  u32* generation = state + 16;
  for (u32 round = 0; round < 4; ++round) {
    __hip_atomic_fetch_add(&sums[round], blockIdx.x + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __syncthreads();
    if (threadIdx.x == 0) {
      const u32 now = __hip_atomic_load(generation, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
      if (__hip_atomic_fetch_add(arrived, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) ==
          GridBlocks(0) - 1) {
        __hip_atomic_store(arrived, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        __hip_atomic_fetch_add(generation, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
      } else {
        while (__hip_atomic_load(generation, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == now)
          __builtin_amdgcn_s_sleep(1);
      }
    }
    __syncthreads();
    if (__hip_atomic_load(&sums[round], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) !=
        GridBlocks(0) * (GridBlocks(0) + 1) / 2 * blockDim.x)
      sums[8] = round + 1;
  }
}

// --- globals -------------------------------------------------------------------------------------
__device__ u32 counter = 5;
__device__ float table[4] = {1, 2, 3, 4};
__device__ u32 zeroed[64];
static __device__ u64 hidden = 0x123456789abcdef0;
KERNEL void globals(u64* out) {
  const u32 i = threadIdx.x;
  zeroed[i] += i;
  if (i == 0) {
    out[0] = counter++;
    out[1] = (u32)(table[0] + table[3]);
    hidden += 1;
    out[2] = hidden;
  }
  out[3 + i] = zeroed[i];
}

// --- math: transcendental instructions, to their precision ---------------------------------------
KERNEL void transcendental(const float* in, float* out) {
  const u32 i = GlobalId();
  const float x = in[i];
  float* o = out + i * 8;
  o[0] = __builtin_amdgcn_exp2f(x);
  o[1] = __builtin_amdgcn_logf(__builtin_fabsf(x));
  o[2] = __builtin_amdgcn_rcpf(x);
  o[3] = __builtin_amdgcn_rsqf(__builtin_fabsf(x));
  o[4] = __builtin_amdgcn_sinf(x);
  o[5] = __builtin_amdgcn_cosf(x);
  o[6] = __builtin_amdgcn_sqrtf(__builtin_fabsf(x));
  o[7] = 1.0f / (1.0f + __builtin_amdgcn_exp2f(-1.442695f * x));
}
// A whole softmax row a block, as inference code does it.
KERNEL void softmax(const float* in, float* out, int n) {
  __shared__ float scratch[4];
  const float* row = in + blockIdx.x * n;
  float top = -__builtin_inff();
  for (int i = threadIdx.x; i < n; i += blockDim.x) top = __builtin_fmaxf(top, row[i]);
  for (int d = 32; d > 0; d /= 2) top = __builtin_fmaxf(top, __builtin_bit_cast(float, Shuffle(__builtin_bit_cast(u32, top), LaneId() ^ d)));
  if (LaneId() == 0) scratch[threadIdx.x / 64] = top;
  __syncthreads();
  for (u32 k = 0; k < blockDim.x / 64; ++k) top = __builtin_fmaxf(top, scratch[k]);
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __builtin_amdgcn_exp2f((row[i] - top) * 1.4426950408889634f);
  for (int d = 32; d > 0; d /= 2) sum += __builtin_bit_cast(float, Shuffle(__builtin_bit_cast(u32, sum), LaneId() ^ d));
  __syncthreads();
  if (LaneId() == 0) scratch[threadIdx.x / 64] = sum;
  __syncthreads();
  sum = 0;
  for (u32 k = 0; k < blockDim.x / 64; ++k) sum += scratch[k];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = __builtin_amdgcn_exp2f((row[i] - top) * 1.4426950408889634f) / sum;
}
