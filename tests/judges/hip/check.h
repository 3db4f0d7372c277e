// SPDX-License-Identifier: MIT
// What the HIP programs of this folder have in common. A program is a list of cases; each prints one line, `pass NAME` or
// `fail NAME: what was wrong`, which hip.py reads. They are ours; compiler, headers and runtime are AMD's.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace judge {

inline void Check(hipError_t error, const char* call, int line) {
  if (error != hipSuccess) {
    throw std::runtime_error(std::string(call) + " in line " + std::to_string(line) + ": " + hipGetErrorString(error));
  }
}

inline void Expect(bool right, const char* condition, int line) {
  if (!right) throw std::runtime_error(std::string(condition) + " is false in line " + std::to_string(line));
}

#define HIP(call) judge::Check((call), #call, __LINE__)
#define EXPECT(condition) judge::Expect((condition), #condition, __LINE__)

// Device memory of `count` elements, freed at the end of its scope.
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) { HIP(hipMalloc(&data_, count * sizeof(T))); }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    HIP(hipMemcpy(data_, from.data(), count_ * sizeof(T), hipMemcpyHostToDevice));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { (void)hipFree(data_); }

  T* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> Read() const {
    std::vector<T> to(count_);
    HIP(hipMemcpy(to.data(), data_, bytes(), hipMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

class Stream {
 public:
  Stream() { HIP(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { (void)hipStreamDestroy(stream_); }
  operator hipStream_t() const { return stream_; }

 private:
  hipStream_t stream_ = nullptr;
};

struct Case {
  const char* name;
  std::function<void()> run;
};

inline int Run(const std::vector<Case>& cases) {
  int failed = 0;
  for (const Case& c : cases) {
    try {
      c.run();
      HIP(hipDeviceSynchronize());
      std::printf("pass %s\n", c.name);
    } catch (const std::exception& wrong) {
      std::printf("fail %s: %s\n", c.name, wrong.what());
      (void)hipGetLastError();
      ++failed;
    }
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}

}  // namespace judge
