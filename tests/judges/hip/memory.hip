// SPDX-License-Identifier: MIT
// Memory: pools, pinned and managed memory, copies of every form, a second GPU.
#include <cstring>

#include "check.h"

namespace {

using judge::Device;
using judge::Stream;

constexpr int kCount = 10000;

__global__ void Fill(int* data, int n, int value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = value + i;
}

__global__ void Sum(const int* from, int* to, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] += from[i];
}

void Copies() {
  std::vector<int> from(kCount), to(kCount);
  for (int i = 0; i < kCount; ++i) from[i] = i ^ 0x55;
  Device<int> a(kCount), b(kCount);
  HIP(hipMemcpy(a.get(), from.data(), a.bytes(), hipMemcpyHostToDevice));
  HIP(hipMemcpy(b.get(), a.get(), a.bytes(), hipMemcpyDeviceToDevice));
  HIP(hipMemcpy(to.data(), b.get(), b.bytes(), hipMemcpyDeviceToHost));
  EXPECT(to == from);
  HIP(hipMemcpy(b.get() + 1, from.data() + 7, 13, hipMemcpyDefault));  // odd sizes and places
  to = b.Read();
  EXPECT(std::memcmp(&to[1], &from[7], 13) == 0 && to[0] == from[0] && to[5] == from[5]);
}

void LargeCopies() {  // larger than any staging buffer
  const size_t count = 6 << 20;
  std::vector<int> from(count), to(count);
  for (size_t i = 0; i < count; ++i) from[i] = int(i * 2654435761u);
  Device<int> a(from), b(count);
  HIP(hipMemcpy(b.get(), a.get(), a.bytes(), hipMemcpyDeviceToDevice));
  HIP(hipMemcpy(to.data(), b.get(), b.bytes(), hipMemcpyDeviceToHost));
  EXPECT(to == from);
}

void Sets() {
  Device<int> data(kCount);
  HIP(hipMemset(data.get(), 0x5a, data.bytes()));
  for (int v : data.Read()) EXPECT(v == 0x5a5a5a5a);
  HIP(hipMemsetD32(reinterpret_cast<hipDeviceptr_t>(data.get()), 77, kCount));
  HIP(hipMemsetD16(reinterpret_cast<hipDeviceptr_t>(data.get() + 10), 0x1234, 3));
  HIP(hipMemset(reinterpret_cast<char*>(data.get() + 20) + 1, 0xff, 2));
  const std::vector<int> to = data.Read();
  EXPECT(to[9] == 77 && to[10] == 0x12341234 && to[11] == 0x00001234 && to[12] == 77 && to[20] == 0x00ffff4d && to[21] == 77);
}

void Rectangles() {
  const int wide = 100, high = 37, deep = 3;
  hipPitchedPtr box;
  HIP(hipMalloc3D(&box, make_hipExtent(wide * sizeof(int), high, deep)));
  EXPECT(box.pitch >= wide * sizeof(int));
  std::vector<int> from(wide * high * deep), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = int(i);
  for (bool in : {true, false}) {
    hipMemcpy3DParms p = {};
    const hipPitchedPtr host = make_hipPitchedPtr(in ? from.data() : to.data(), wide * sizeof(int), wide, high);
    p.srcPtr = in ? host : box, p.dstPtr = in ? box : host;
    p.extent = make_hipExtent(wide * sizeof(int), high, deep);
    p.kind = in ? hipMemcpyHostToDevice : hipMemcpyDeviceToHost;
    HIP(hipMemcpy3D(&p));
  }
  EXPECT(to == from);
  std::vector<int> part(5 * 4);  // a window of the first plane
  HIP(hipMemcpy2D(part.data(), 5 * sizeof(int), static_cast<char*>(box.ptr) + 2 * box.pitch + 3 * sizeof(int), box.pitch, 5 * sizeof(int), 4, hipMemcpyDeviceToHost));
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 5; ++x) EXPECT(part[y * 5 + x] == (y + 2) * wide + x + 3);
  }
  HIP(hipMemset2D(box.ptr, box.pitch, 1, 12, 5));
  HIP(hipMemcpy2D(part.data(), 5 * sizeof(int), box.ptr, box.pitch, 5 * sizeof(int), 4, hipMemcpyDeviceToHost));
  EXPECT(part[2] == 0x01010101 && part[3] == 3 && part[5 + 2] == 0x01010101);
  HIP(hipFree(box.ptr));
}

void Pinned() {
  int *host = nullptr, *seen = nullptr;
  HIP(hipHostMalloc(&host, kCount * sizeof(int), hipHostMallocMapped));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void**>(&seen), host, 0));
  Fill<<<16, 256>>>(seen, kCount, 5);
  HIP(hipDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT(host[i] == 5 + i);
  HIP(hipHostFree(host));
  std::vector<int> own(kCount, 1);  // the program's own memory
  HIP(hipHostRegister(own.data(), kCount * sizeof(int), hipHostRegisterMapped));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void**>(&seen), own.data(), 0));
  Fill<<<16, 256>>>(seen, kCount, 9);
  HIP(hipDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT(own[i] == 9 + i);
  HIP(hipHostUnregister(own.data()));
}

void Managed() {
  int* data = nullptr;
  HIP(hipMallocManaged(&data, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) data[i] = i;
  int device = 0;
  HIP(hipGetDevice(&device));
  HIP(hipMemPrefetchAsync(data, kCount * sizeof(int), device, nullptr));
  HIP(hipMemAdvise(data, kCount * sizeof(int), hipMemAdviseSetPreferredLocation, device));
  Sum<<<16, 256>>>(data, data, kCount);
  HIP(hipDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT(data[i] == 2 * i);
  data[3] = 1000;
  Sum<<<16, 256>>>(data, data, kCount);
  HIP(hipDeviceSynchronize());
  EXPECT(data[3] == 2000 && data[4] == 16);
  HIP(hipFree(data));
}

void Pools() {
  Stream stream;
  std::vector<int> to(kCount);
  for (int round = 0; round < 20; ++round) {
    int *a = nullptr, *b = nullptr;
    HIP(hipMallocAsync(reinterpret_cast<void**>(&a), kCount * sizeof(int), stream));
    HIP(hipMallocAsync(reinterpret_cast<void**>(&b), (kCount + round * 1000) * sizeof(int), stream));
    Fill<<<16, 256, 0, stream>>>(a, kCount, round);
    HIP(hipMemsetAsync(b, 0, kCount * sizeof(int), stream));
    Sum<<<16, 256, 0, stream>>>(a, b, kCount);
    HIP(hipMemcpyAsync(to.data(), b, kCount * sizeof(int), hipMemcpyDeviceToHost, stream));
    HIP(hipFreeAsync(a, stream));
    HIP(hipFreeAsync(b, stream));
    HIP(hipStreamSynchronize(stream));
    for (int i = 0; i < kCount; ++i) EXPECT(to[i] == round + i);
  }
}

void OwnPool() {
  hipMemPool_t pool;
  hipMemPoolProps props = {};
  props.allocType = hipMemAllocationTypePinned;
  props.location.type = hipMemLocationTypeDevice;
  HIP(hipMemPoolCreate(&pool, &props));
  uint64_t keep = ~0ull, reserved = 0, used = 0;
  HIP(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &keep));
  Stream stream;
  int* data = nullptr;
  HIP(hipMallocFromPoolAsync(reinterpret_cast<void**>(&data), kCount * sizeof(int), pool, stream));
  Fill<<<16, 256, 0, stream>>>(data, kCount, 1);
  HIP(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used));
  EXPECT(used >= kCount * sizeof(int));
  HIP(hipFreeAsync(data, stream));
  HIP(hipStreamSynchronize(stream));
  HIP(hipMemPoolGetAttribute(pool, hipMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT(reserved >= kCount * sizeof(int));
  HIP(hipMemPoolTrimTo(pool, 0));
  HIP(hipMemPoolGetAttribute(pool, hipMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT(reserved == 0);
  HIP(hipMemPoolDestroy(pool));
}

void FreeMemory() {
  size_t before = 0, during = 0, after = 0, total = 0;
  HIP(hipMemGetInfo(&before, &total));
  EXPECT(before <= total && total > (100ull << 30));
  {
    Device<char> data(256 << 20);
    HIP(hipMemGetInfo(&during, &total));
    EXPECT(before - during >= 256u << 20);
  }
  HIP(hipMemGetInfo(&after, &total));
  EXPECT(after == before);
}

void TooMuch() {
  void* data = nullptr;
  EXPECT(hipMalloc(&data, size_t(1) << 50) == hipErrorOutOfMemory);
  (void)hipGetLastError();
  Device<int> works(kCount);
}

void VirtualMemory() {  // address and memory apart
  hipMemAllocationProp prop = {};
  prop.type = hipMemAllocationTypePinned;
  prop.location.type = hipMemLocationTypeDevice;
  size_t grain = 0;
  HIP(hipMemGetAllocationGranularity(&grain, &prop, hipMemAllocationGranularityRecommended));
  void* place = nullptr;
  HIP(hipMemAddressReserve(&place, 2 * grain, 0, nullptr, 0));
  hipMemGenericAllocationHandle_t memory;
  HIP(hipMemCreate(&memory, grain, &prop, 0));
  hipMemAccessDesc access = {};
  access.location.type = hipMemLocationTypeDevice;
  access.flags = hipMemAccessFlagsProtReadWrite;
  const int n = int(grain / sizeof(int));
  for (size_t offset : {size_t(0), grain}) {  // the same memory in two places, one after the other
    int* at = reinterpret_cast<int*>(static_cast<char*>(place) + offset);
    HIP(hipMemMap(at, grain, 0, memory, 0));
    HIP(hipMemSetAccess(at, grain, &access, 1));
    if (offset == 0) Fill<<<16, 256>>>(at, n, 3);
    std::vector<int> to(n);
    HIP(hipMemcpy(to.data(), at, grain, hipMemcpyDeviceToHost));
    EXPECT(to[0] == 3 && to[n - 1] == 3 + n - 1);
    HIP(hipMemUnmap(at, grain));
  }
  HIP(hipMemRelease(memory));
  HIP(hipMemAddressFree(place, 2 * grain));
}

// A case on devices 0 and 1.
void Peers(void (*run)()) {
  int count = 0;
  HIP(hipGetDeviceCount(&count));
  EXPECT(count >= 2);
  HIP(hipSetDevice(0));
  run();
  HIP(hipSetDevice(0));
}

void PeerCopies() {
  int* there = nullptr;
  HIP(hipSetDevice(1));
  HIP(hipMalloc(&there, kCount * sizeof(int)));
  HIP(hipSetDevice(0));
  Device<int> here(kCount), back(kCount);
  Fill<<<16, 256>>>(here.get(), kCount, 21);
  HIP(hipDeviceSynchronize());
  HIP(hipMemcpyPeer(there, 1, here.get(), 0, here.bytes()));
  Stream stream;
  HIP(hipMemcpyPeerAsync(back.get(), 0, there, 1, here.bytes(), stream));
  HIP(hipStreamSynchronize(stream));
  const std::vector<int> to = back.Read();
  for (int i = 0; i < kCount; ++i) EXPECT(to[i] == 21 + i);
  HIP(hipFree(there));
}

void PeerAccess() {
  int can = 0;
  HIP(hipDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can == 1);
  int* there = nullptr;
  HIP(hipSetDevice(1));
  HIP(hipMalloc(&there, kCount * sizeof(int)));
  Fill<<<16, 256>>>(there, kCount, 100);
  HIP(hipDeviceSynchronize());
  HIP(hipSetDevice(0));
  HIP(hipDeviceEnablePeerAccess(1, 0));
  Device<int> here(std::vector<int>(kCount, 1));
  Sum<<<16, 256>>>(there, here.get(), kCount);  // reads the other's
  Fill<<<16, 256>>>(there, kCount, 500);        // and writes it
  const std::vector<int> to = here.Read();
  for (int i = 0; i < kCount; ++i) EXPECT(to[i] == 101 + i);
  std::vector<int> from(kCount);
  HIP(hipMemcpy(from.data(), there, kCount * sizeof(int), hipMemcpyDefault));
  for (int i = 0; i < kCount; ++i) EXPECT(from[i] == 500 + i);
  HIP(hipDeviceDisablePeerAccess(1));
  HIP(hipFree(there));
}

void PeerEvents() {  // the second GPU waits for the first
  hipEvent_t done;
  HIP(hipEventCreateWithFlags(&done, hipEventDisableTiming));
  int* pinned = nullptr;
  HIP(hipHostMalloc(&pinned, kCount * sizeof(int), hipHostMallocPortable | hipHostMallocMapped));
  Stream first;
  Fill<<<16, 256, 0, first>>>(pinned, kCount, 7);
  HIP(hipEventRecord(done, first));
  HIP(hipSetDevice(1));
  {
    Stream second;
    Device<int> data(std::vector<int>(kCount, 1));
    HIP(hipStreamWaitEvent(second, done, 0));
    Sum<<<16, 256, 0, second>>>(pinned, data.get(), kCount);
    HIP(hipStreamSynchronize(second));
    const std::vector<int> to = data.Read();
    for (int i = 0; i < kCount; ++i) EXPECT(to[i] == 8 + i);
  }
  HIP(hipSetDevice(0));
  HIP(hipHostFree(pinned));
  HIP(hipEventDestroy(done));
}

}  // namespace

int main() {
  return judge::Run({{"copies", Copies},
                     {"large_copies", LargeCopies},
                     {"sets", Sets},
                     {"rectangles", Rectangles},
                     {"pinned", Pinned},
                     {"managed", Managed},
                     {"pools", Pools},
                     {"own_pool", OwnPool},
                     {"free_memory", FreeMemory},
                     {"too_much", TooMuch},
                     {"virtual_memory", VirtualMemory},
                     {"peer_copies", [] { Peers(PeerCopies); }},
                     {"peer_access", [] { Peers(PeerAccess); }},
                     {"peer_events", [] { Peers(PeerEvents); }}});
}
