// SPDX-License-Identifier: MIT
// Kernels: what a first HIP program does, and what the compiler and the device libraries make of it.
#include <cmath>

#include "check.h"

namespace {

using judge::Device;

__global__ void Add(const float* a, const float* b, float* c, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

void VectorAdd() {
  const int n = 100003;
  std::vector<float> a(n), b(n);
  for (int i = 0; i < n; ++i) a[i] = i * 0.25f, b[i] = 1000.0f - i;
  Device<float> da(a), db(b), dc(n);
  Add<<<64, 256>>>(da.get(), db.get(), dc.get(), n);
  HIP(hipGetLastError());
  const std::vector<float> c = dc.Read();
  for (int i = 0; i < n; ++i) EXPECT(c[i] == a[i] + b[i]);
}

__global__ void Ids(int* to) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
            z = blockIdx.z * blockDim.z + threadIdx.z;
  const int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
  to[(z * high + y) * wide + x] = x | y << 8 | z << 16;
}

void ThreeDimensions() {
  const dim3 grid(3, 5, 2), block(8, 4, 3);
  const int wide = 24, high = 20, deep = 6;
  Device<int> to(wide * high * deep);
  Ids<<<grid, block>>>(to.get());
  const std::vector<int> ids = to.Read();
  for (int z = 0; z < deep; ++z) {
    for (int y = 0; y < high; ++y) {
      for (int x = 0; x < wide; ++x) EXPECT(ids[(z * high + y) * wide + x] == (x | y << 8 | z << 16));
    }
  }
}

__global__ void Reverse(int* data) {
  extern __shared__ int part[];
  part[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}

void SharedMemory() {
  const int block = 512, blocks = 7;
  std::vector<int> from(block * blocks);
  for (size_t i = 0; i < from.size(); ++i) from[i] = int(i) * 3;
  Device<int> data(from);
  Reverse<<<blocks, block, block * sizeof(int)>>>(data.get());
  const std::vector<int> to = data.Read();
  for (int b = 0; b < blocks; ++b) {
    for (int i = 0; i < block; ++i) EXPECT(to[b * block + i] == from[b * block + block - 1 - i]);
  }
}

__constant__ float table[16];
__device__ int counter;

__global__ void Look(float* to) {
  to[threadIdx.x] = table[threadIdx.x % 16];
  if (threadIdx.x == 0) counter += 5;
}

void Symbols() {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = 1.5f * i;
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof values));
  int count = 37;
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(counter), &count, sizeof count));
  Device<float> to(64);
  Look<<<1, 64>>>(to.get());
  const std::vector<float> seen = to.Read();
  for (int i = 0; i < 64; ++i) EXPECT(seen[i] == values[i % 16]);
  HIP(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), sizeof count));
  EXPECT(count == 42);
}

__global__ void Functions(const double* x, double* to, float* to32, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  to[4 * i + 0] = sin(x[i]), to[4 * i + 1] = exp(x[i] * 0.01), to[4 * i + 2] = log(fabs(x[i]) + 1.0), to[4 * i + 3] = pow(fabs(x[i]), 0.3);
  const float f = float(x[i]);
  to32[4 * i + 0] = sinf(f), to32[4 * i + 1] = expf(f * 0.01f), to32[4 * i + 2] = sqrtf(fabsf(f)), to32[4 * i + 3] = erff(f * 0.1f);
}

void DeviceLibrary() {  // within the bounds that AMD's HIP math documentation gives, doubled
  const int n = 1000;
  std::vector<double> x(n);
  for (int i = 0; i < n; ++i) x[i] = (i - 500) * 0.731;
  Device<double> from(x), to(4 * n);
  Device<float> to32(4 * n);
  Functions<<<4, 256>>>(from.get(), to.get(), to32.get(), n);
  const std::vector<double> y = to.Read();
  const std::vector<float> y32 = to32.Read();
  auto near = [](double is, double right, double bound) { return std::fabs(is - right) <= bound * (1e-3 + std::fabs(right)); };
  for (int i = 0; i < n; ++i) {
    const double a = std::fabs(x[i]);
    EXPECT(near(y[4 * i + 0], std::sin(x[i]), 1e-14) && near(y[4 * i + 1], std::exp(x[i] * 0.01), 1e-15));
    EXPECT(near(y[4 * i + 2], std::log(a + 1.0), 1e-15) && near(y[4 * i + 3], std::pow(a, 0.3), 1e-15));
    const float f = float(x[i]);
    EXPECT(near(y32[4 * i + 0], std::sin(double(f)), 1e-6) && near(y32[4 * i + 1], std::exp(double(f * 0.01f)), 1e-6));
    EXPECT(near(y32[4 * i + 2], std::sqrt(std::fabs(double(f))), 1e-6) && near(y32[4 * i + 3], std::erf(double(f * 0.1f)), 1e-5));
  }
}

__device__ __noinline__ long Recurse(long n) { return n < 2 ? n : Recurse(n - 1) + Recurse(n - 2); }

__global__ void Stack(long* to) { to[threadIdx.x] = Recurse(threadIdx.x % 12); }

void CallsAndScratch() {
  Device<long> to(128);
  HIP(hipDeviceSetLimit(hipLimitStackSize, 16384));
  Stack<<<1, 128>>>(to.get());
  const std::vector<long> seen = to.Read();
  const long fibonacci[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 128; ++i) EXPECT(seen[i] == fibonacci[i % 12]);
}

__global__ void Wave(int* to, unsigned long long* ballots) {
  int sum = threadIdx.x;
  for (int step = warpSize / 2; step; step /= 2) sum += __shfl_xor(sum, step);
  to[threadIdx.x] = sum;
  const unsigned long long odd = __ballot(threadIdx.x & 1);
  if (threadIdx.x % warpSize == 0) ballots[threadIdx.x / warpSize] = odd;
}

void Waves() {
  Device<int> to(128);
  Device<unsigned long long> ballots(2);
  Wave<<<1, 128>>>(to.get(), ballots.get());
  const std::vector<int> sums = to.Read();
  for (int i = 0; i < 128; ++i) EXPECT(sums[i] == (i < 64 ? 2016 : 2016 + 64 * 64));
  for (unsigned long long b : ballots.Read()) EXPECT(b == 0xaaaaaaaaaaaaaaaaull);
}

void Properties() {
  int count = 0;
  HIP(hipGetDeviceCount(&count));
  EXPECT(count >= 1);
  hipDeviceProp_t p;
  HIP(hipGetDeviceProperties(&p, 0));
  const std::string name = p.gcnArchName;
  const bool mi300 = name.rfind("gfx942", 0) == 0, mi350 = name.rfind("gfx950", 0) == 0;
  EXPECT(mi300 || mi350);
  EXPECT(p.warpSize == 64 && p.multiProcessorCount == (mi300 ? 304 : 256));
  EXPECT(p.totalGlobalMem > (100ull << 30));
  int value = 0;
  HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeCooperativeLaunch, 0));
  EXPECT(value == 1);
}

}  // namespace

int main() {
  return judge::Run({{"properties", Properties},
                     {"vector_add", VectorAdd},
                     {"three_dimensions", ThreeDimensions},
                     {"shared_memory", SharedMemory},
                     {"symbols", Symbols},
                     {"device_library", DeviceLibrary},
                     {"calls_and_scratch", CallsAndScratch},
                     {"waves", Waves}});
}
