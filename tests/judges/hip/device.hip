// SPDX-License-Identifier: MIT
// What kernels do with each other and with the host: atomics, printf, groups that wait for the whole grid, code compiled at run time.
#include <fcntl.h>
#include <hip/hip_cooperative_groups.h>
#include <hip/hiprtc.h>
#include <unistd.h>

#include "check.h"

namespace {

using judge::Device;

__global__ void Atomics(int* ints, unsigned long long* longs, float* floats, double* doubles) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&ints[0], 1);
  atomicMax(&ints[1], i);
  atomicMin(&ints[2], -i);
  atomicXor(&ints[3], i);
  atomicOr(&ints[4], 1 << (i % 31));
  atomicInc(reinterpret_cast<unsigned*>(&ints[5]), 99);
  atomicExch(&ints[6], 1234);
  for (int old = ints[7];;) {  // an add by compare and swap
    const int seen = atomicCAS(&ints[7], old, old + 2);
    if (seen == old) break;
    old = seen;
  }
  atomicAdd(&longs[0], 1ull << 33);
  atomicMax(&longs[1], 1ull << (i % 60));
  atomicAdd(floats, 1.0f);
  atomicAdd(doubles, 0.5);
}

void AtomicKinds() {
  Device<int> ints(std::vector<int>(8, 0));
  Device<unsigned long long> longs(std::vector<unsigned long long>(2, 0));
  Device<float> floats(std::vector<float>(1, 0));
  Device<double> doubles(std::vector<double>(1, 0));
  const int n = 32 * 256;
  Atomics<<<32, 256>>>(ints.get(), longs.get(), floats.get(), doubles.get());
  const std::vector<int> i = ints.Read();
  EXPECT(i[0] == n && i[1] == n - 1 && i[2] == -(n - 1) && i[3] == 0 && i[4] == 0x7fffffff);
  EXPECT(i[5] == n % 100 && i[6] == 1234 && i[7] == 2 * n);
  EXPECT(longs.Read()[0] == (1ull << 33) * n && longs.Read()[1] == 1ull << 59);
  EXPECT(floats.Read()[0] == n && doubles.Read()[0] == 0.5 * n);
}

__global__ void CountForHost(int* host) { atomicAdd_system(host, 1); }

void SystemAtomics() {  // one count in host memory, of GPU and host
  int* count = nullptr;
  HIP(hipHostMalloc(&count, sizeof(int), hipHostMallocCoherent));
  *count = 0;
  CountForHost<<<8, 128>>>(count);
  for (int i = 0; i < 1000; ++i) __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
  HIP(hipDeviceSynchronize());
  EXPECT(*count == 8 * 128 + 1000);
  HIP(hipHostFree(count));
}

__global__ void Say() { printf("thread %d of block %d says %s %.2f %lld\n", int(threadIdx.x), int(blockIdx.x), "hello", 1.5 * threadIdx.x, 1ll << 40); }

void Printf() {
  char path[] = "/tmp/judge_hip_XXXXXX";  // mkstemp(3) wants the six X and writes the name over them
  const int file = mkstemp(path);
  EXPECT(file >= 0);
  (void)unlink(path);
  std::fflush(stdout);
  const int out = dup(1);
  dup2(file, 1);
  Say<<<3, 2>>>();
  const hipError_t ended = hipDeviceSynchronize();
  std::fflush(stdout);
  dup2(out, 1);
  close(out);
  HIP(ended);
  std::string text(4096, 0);
  text.resize(size_t(std::max<ssize_t>(0, pread(file, text.data(), text.size(), 0))));
  close(file);
  for (int block = 0; block < 3; ++block) {
    for (int thread = 0; thread < 2; ++thread) {
      char line[128];
      std::snprintf(line, sizeof line, "thread %d of block %d says hello %.2f 1099511627776\n", thread, block, 1.5 * thread);
      EXPECT(text.find(line) != std::string::npos);
    }
  }
}

__global__ void Rounds(int* data, int rounds) {  // each round reads what its neighbour wrote in the one before
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  const int i = int(grid.thread_rank()), n = int(grid.size());
  for (int r = 0; r < rounds; ++r) {
    const int next = data[(r % 2) * n + (i + 1) % n];
    data[((r + 1) % 2) * n + i] = next + 1;
    grid.sync();
  }
}

void Cooperative() {
  const int blocks = 64, threads = 128, n = blocks * threads, rounds = 6;
  std::vector<int> from(2 * n, 0);
  for (int i = 0; i < n; ++i) from[i] = 10 * i;
  Device<int> data(from);
  int* at = data.get();
  int r = rounds;
  void* args[] = {&at, &r};
  HIP(hipLaunchCooperativeKernel(reinterpret_cast<void*>(Rounds), dim3(blocks), dim3(threads), args, 0, nullptr));
  const std::vector<int> to = data.Read();
  for (int i = 0; i < n; ++i) EXPECT(to[i] == 10 * ((i + rounds) % n) + rounds);
}

__global__ void Build(int** list) {
  int* own = static_cast<int*>(malloc(4 * sizeof(int)));
  if (own) own[0] = int(threadIdx.x) * 7;
  list[threadIdx.x] = own;
}
__global__ void Take(int** list, int* to) {
  to[threadIdx.x] = list[threadIdx.x] ? list[threadIdx.x][0] : -1;
  free(list[threadIdx.x]);
}

void DeviceMalloc() {
  Device<int*> list(64);
  Device<int> to(64);
  Build<<<1, 64>>>(list.get());
  Take<<<1, 64>>>(list.get(), to.get());
  const std::vector<int> seen = to.Read();
  for (int i = 0; i < 64; ++i) EXPECT(seen[i] == 7 * i);
}

void CompiledAtRunTime() {
  const char* source = "extern \"C\" __global__ void Times(int* data, int by) { data[blockIdx.x * blockDim.x + threadIdx.x] *= by; }";
  hiprtcProgram program;
  EXPECT(hiprtcCreateProgram(&program, source, "times.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
  hipDeviceProp_t p;
  HIP(hipGetDeviceProperties(&p, 0));
  const std::string arch = std::string("--offload-arch=") + p.gcnArchName;
  const char* options[] = {arch.c_str()};
  EXPECT(hiprtcCompileProgram(program, 1, options) == HIPRTC_SUCCESS);
  size_t bytes = 0;
  EXPECT(hiprtcGetCodeSize(program, &bytes) == HIPRTC_SUCCESS);
  std::vector<char> code(bytes);
  EXPECT(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS && hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
  hipModule_t module;
  hipFunction_t times;
  HIP(hipModuleLoadData(&module, code.data()));
  HIP(hipModuleGetFunction(&times, module, "Times"));
  Device<int> data(std::vector<int>(512, 6));
  int* at = data.get();
  int by = 7;
  void* args[] = {&at, &by};
  HIP(hipModuleLaunchKernel(times, 4, 1, 1, 128, 1, 1, 0, nullptr, args, nullptr));
  for (int v : data.Read()) EXPECT(v == 42);
  HIP(hipModuleUnload(module));
}

}  // namespace

int main() {
  return judge::Run({{"atomic_kinds", AtomicKinds},
                     {"system_atomics", SystemAtomics},
                     {"printf", Printf},
                     {"cooperative", Cooperative},
                     {"device_malloc", DeviceMalloc},
                     {"compiled_at_run_time", CompiledAtRunTime}});
}
