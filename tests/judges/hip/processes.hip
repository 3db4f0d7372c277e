// SPDX-License-Identifier: MIT
// Two processes: memory that one makes and both use.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "check.h"

namespace {

constexpr int kCount = 5000;

__global__ void Add(int* data, int n, int plus) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += plus;
}

int partner = -1;  // a socket to the other process

template <class T>
void Send(const T& what) {
  EXPECT(write(partner, &what, sizeof what) == ssize_t(sizeof what));
}
template <class T>
T Receive() {
  T what;
  EXPECT(recv(partner, &what, sizeof what, MSG_WAITALL) == ssize_t(sizeof what));
  return what;
}

void Maker() {
  judge::Device<int> data(std::vector<int>(kCount, 3));
  hipIpcMemHandle_t handle;
  HIP(hipIpcGetMemHandle(&handle, data.get()));
  Send(handle);
  EXPECT(Receive<int>() == 1);  // the other has added to it
  for (int v : data.Read()) EXPECT(v == 10);
  Send(2);
  EXPECT(Receive<int>() == 3);  // and has let it go
}

void MemoryOfAnotherProcess() {
  const auto handle = Receive<hipIpcMemHandle_t>();
  int* data = nullptr;
  HIP(hipIpcOpenMemHandle(reinterpret_cast<void**>(&data), handle, hipIpcMemLazyEnablePeerAccess));
  Add<<<20, 256>>>(data, kCount, 7);
  HIP(hipDeviceSynchronize());
  std::vector<int> seen(kCount);
  HIP(hipMemcpy(seen.data(), data, kCount * sizeof(int), hipMemcpyDeviceToHost));
  for (int v : seen) EXPECT(v == 10);
  Send(1);
  EXPECT(Receive<int>() == 2);
  HIP(hipIpcCloseMemHandle(data));
  Send(3);
}

}  // namespace

int main() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  const pid_t child = fork();  // before anything of HIP's
  partner = ends[child == 0 ? 1 : 0];
  close(ends[child == 0 ? 0 : 1]);
  if (child == 0) return judge::Run({{"maker", Maker}});
  const int failed = judge::Run({{"memory_of_another_process", MemoryOfAnotherProcess}});
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0 ? failed : 1;
}
