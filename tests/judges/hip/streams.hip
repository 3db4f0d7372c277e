// SPDX-License-Identifier: MIT
// Streams, events and graphs.
#include <atomic>

#include "check.h"

namespace {

using judge::Device;
using judge::Stream;

__global__ void Scale(int* data, int n, int factor, int plus) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * factor + plus;
}

// Waits for the host, but not for ever.
__global__ void Gate(volatile int* open, int* seen) {
  for (int i = 0; i < 20000000 && !*open; ++i) __builtin_amdgcn_s_sleep(64);
  *seen = *open;
}

constexpr int kCount = 4096;

void InOrder() {
  Stream stream;
  Device<int> data(std::vector<int>(kCount, 1));
  for (int i = 0; i < 10; ++i) Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 2, i);
  int right = 1;
  for (int i = 0; i < 10; ++i) right = right * 2 + i;
  HIP(hipStreamSynchronize(stream));
  for (int v : data.Read()) EXPECT(v == right);
}

void SideBySide() {  // a stream that waits holds up no other
  Stream waiting, running;
  int* open = nullptr;
  HIP(hipHostMalloc(&open, sizeof(int), hipHostMallocMapped | hipHostMallocCoherent));
  *open = 0;
  Device<int> seen(1), data(std::vector<int>(kCount, 3));
  Gate<<<1, 1, 0, waiting>>>(open, seen.get());
  Scale<<<16, 256, 0, running>>>(data.get(), kCount, 5, 1);
  HIP(hipStreamSynchronize(running));
  EXPECT(hipStreamQuery(waiting) == hipErrorNotReady);
  *static_cast<volatile int*>(open) = 1;
  HIP(hipStreamSynchronize(waiting));
  EXPECT(seen.Read()[0] == 1);
  HIP(hipHostFree(open));
  std::vector<int> to(kCount);
  HIP(hipMemcpy(to.data(), data.get(), data.bytes(), hipMemcpyDeviceToHost));
  for (int v : to) EXPECT(v == 16);
}

void EventsOrderStreams() {
  Stream first, second;
  hipEvent_t done;
  HIP(hipEventCreateWithFlags(&done, hipEventDisableTiming));
  Device<int> data(std::vector<int>(kCount, 1));
  for (int i = 0; i < 20; ++i) {
    Scale<<<16, 256, 0, first>>>(data.get(), kCount, 1, 1);
    HIP(hipEventRecord(done, first));
    HIP(hipStreamWaitEvent(second, done, 0));
    Scale<<<16, 256, 0, second>>>(data.get(), kCount, -1, 0);
    HIP(hipEventRecord(done, second));
    HIP(hipStreamWaitEvent(first, done, 0));
  }
  HIP(hipStreamSynchronize(second));
  int right = 1;
  for (int i = 0; i < 20; ++i) right = -(right + 1);
  for (int v : data.Read()) EXPECT(v == right);
  HIP(hipEventDestroy(done));
}

void EventsTellTime() {
  hipEvent_t begin, end;
  HIP(hipEventCreate(&begin));
  HIP(hipEventCreate(&end));
  Stream stream;
  Device<int> data(kCount);
  HIP(hipEventRecord(begin, stream));
  Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 1, 1);
  HIP(hipEventRecord(end, stream));
  HIP(hipEventSynchronize(end));
  float ms = -1;
  HIP(hipEventElapsedTime(&ms, begin, end));
  EXPECT(ms >= 0 && ms < 60000);
  EXPECT(hipEventQuery(end) == hipSuccess);
  HIP(hipEventDestroy(begin));
  HIP(hipEventDestroy(end));
}

void HostFunctions() {
  Stream stream;
  std::atomic<int> calls{0};
  Device<int> data(std::vector<int>(kCount, 0));
  std::vector<int> to(kCount);
  Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 1, 9);
  HIP(hipMemcpyAsync(to.data(), data.get(), data.bytes(), hipMemcpyDeviceToHost, stream));
  HIP(hipLaunchHostFunc(stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls));
  HIP(hipStreamSynchronize(stream));
  EXPECT(calls == 1);
  for (int v : to) EXPECT(v == 9);
}

void Priorities() {
  int least = 0, greatest = 0;
  HIP(hipDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(greatest <= least);
  for (int priority = greatest; priority <= least; ++priority) {
    hipStream_t stream;
    HIP(hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, priority));
    Device<int> data(std::vector<int>(kCount, 2));
    Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 3, priority);
    HIP(hipStreamSynchronize(stream));
    for (int v : data.Read()) EXPECT(v == 6 + priority);
    HIP(hipStreamDestroy(stream));
  }
}

void ManyStreams() {
  std::vector<Stream> streams(24);
  std::vector<Device<int>*> data;
  for (size_t i = 0; i < streams.size(); ++i) {
    data.push_back(new Device<int>(std::vector<int>(kCount, int(i))));
    for (int k = 0; k < 4; ++k) Scale<<<16, 256, 0, streams[i]>>>(data[i]->get(), kCount, 2, 1);
  }
  HIP(hipDeviceSynchronize());
  for (size_t i = 0; i < streams.size(); ++i) {
    for (int v : data[i]->Read()) EXPECT(v == int(i) * 16 + 15);
    delete data[i];
  }
}

void StreamMemoryOperations() {
  Stream stream;
  uint32_t* word = nullptr;
  HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&word), 8, hipMallocSignalMemory));
  *word = 0;
  Device<int> data(std::vector<int>(kCount, 1));
  HIP(hipStreamWaitValue32(stream, word, 7, hipStreamWaitValueEq, 0xffffffff));
  Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 4, 0);
  HIP(hipStreamWriteValue32(stream, word, 8, 0));
  EXPECT(hipStreamQuery(stream) == hipErrorNotReady);
  *static_cast<volatile uint32_t*>(word) = 7;
  HIP(hipStreamSynchronize(stream));
  EXPECT(*word == 8);
  for (int v : data.Read()) EXPECT(v == 4);
  HIP(hipFree(word));
}

void CapturedGraph() {
  Stream stream;
  Device<int> data(std::vector<int>(kCount, 1));
  std::vector<int> to(kCount);
  hipGraph_t graph;
  hipGraphExec_t exec;
  HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (int i = 0; i < 3; ++i) Scale<<<16, 256, 0, stream>>>(data.get(), kCount, 2, 1);
  HIP(hipMemcpyAsync(to.data(), data.get(), data.bytes(), hipMemcpyDeviceToHost, stream));
  HIP(hipStreamEndCapture(stream, &graph));
  HIP(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  int right = 1;
  for (int round = 0; round < 5; ++round) {
    HIP(hipGraphLaunch(exec, stream));
    HIP(hipStreamSynchronize(stream));
    right = right * 8 + 7;
    for (int v : to) EXPECT(v == right);
  }
  HIP(hipGraphExecDestroy(exec));
  HIP(hipGraphDestroy(graph));
}

void BuiltGraph() {  // two branches that meet: a diamond
  Device<int> left(std::vector<int>(kCount, 1)), right(std::vector<int>(kCount, 2));
  hipGraph_t graph;
  HIP(hipGraphCreate(&graph, 0));
  int n = kCount, factor = 3, plus = 4;
  int *l = left.get(), *r = right.get();
  void* l_args[] = {&l, &n, &factor, &plus};
  void* r_args[] = {&r, &n, &factor, &plus};
  hipKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(Scale);
  params.gridDim = dim3(16), params.blockDim = dim3(256);
  hipGraphNode_t l_node, r_node, copy, set;
  params.kernelParams = l_args;
  HIP(hipGraphAddKernelNode(&l_node, graph, nullptr, 0, &params));
  params.kernelParams = r_args;
  HIP(hipGraphAddKernelNode(&r_node, graph, nullptr, 0, &params));
  std::vector<int> to(kCount);
  HIP(hipGraphAddMemcpyNode1D(&copy, graph, &l_node, 1, to.data(), l, left.bytes(), hipMemcpyDeviceToHost));
  hipMemsetParams zero = {};
  zero.dst = l, zero.elementSize = 4, zero.width = kCount, zero.height = 1, zero.value = 0;
  const hipGraphNode_t both[] = {copy, r_node};
  HIP(hipGraphAddMemsetNode(&set, graph, both, 2, &zero));
  hipGraphExec_t exec;
  HIP(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  Stream stream;
  HIP(hipGraphLaunch(exec, stream));
  HIP(hipStreamSynchronize(stream));
  for (int v : to) EXPECT(v == 7);
  for (int v : left.Read()) EXPECT(v == 0);
  for (int v : right.Read()) EXPECT(v == 10);
  plus = 100;  // other parameters of the same graph
  params.kernelParams = l_args;
  HIP(hipGraphExecKernelNodeSetParams(exec, l_node, &params));
  HIP(hipGraphLaunch(exec, stream));
  HIP(hipStreamSynchronize(stream));
  for (int v : to) EXPECT(v == 100);
  for (int v : right.Read()) EXPECT(v == 34);
  HIP(hipGraphExecDestroy(exec));
  HIP(hipGraphDestroy(graph));
}

}  // namespace

int main() {
  return judge::Run({{"in_order", InOrder},
                     {"side_by_side", SideBySide},
                     {"events_order_streams", EventsOrderStreams},
                     {"events_tell_time", EventsTellTime},
                     {"host_functions", HostFunctions},
                     {"priorities", Priorities},
                     {"many_streams", ManyStreams},
                     {"stream_memory_operations", StreamMemoryOperations},
                     {"captured_graph", CapturedGraph},
                     {"built_graph", BuiltGraph}});
}
