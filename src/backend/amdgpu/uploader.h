// SPDX-License-Identifier: MIT
//
// Streams bytes that the host makes into a GPU's memory: two staging buffers in host memory, one
// being filled while a copy engine empties the other.
//
// Threads: one.
#ifndef MAINARCH_BACKEND_AMDGPU_UPLOADER_H_
#define MAINARCH_BACKEND_AMDGPU_UPLOADER_H_

#include <cstdint>
#include <memory>

#include "backend/amdgpu/gpus.h"
#include "base/status.h"
#include "gpu/copy_queue.h"
#include "gpu/memory.h"

namespace mainarch::amdgpu {

class Uploader {
 public:
  // All outlive it. A wait that takes longer than the group allows ends with TimedOut.
  static StatusOr<std::unique_ptr<Uploader>> Create(const Gpus& gpus, gpu::Device& device,
                                                    gpu::CopyQueue& copy);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  static constexpr uint64_t kChunk = uint64_t{8} << 20;

  // Memory for `bytes` (at most kChunk) that Send will copy to `to`.
  StatusOr<uint8_t*> Begin(uint64_t bytes);
  Status Send(uint64_t to, uint64_t bytes);
  // Copies any number of bytes.
  Status Write(uint64_t to, const uint8_t* from, uint64_t bytes);
  // Everything sent has landed.
  Status Finish();

 private:
  Uploader(const Gpus& gpus, gpu::CopyQueue& copy) : gpus_(gpus), copy_(copy) {}
  Status Await(uint64_t point);

  const Gpus& gpus_;
  gpu::CopyQueue& copy_;
  bool failed_ = false;
  gpu::Buffer staging_[2];
  uint64_t points_[2] = {};
  int current_ = 0;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_UPLOADER_H_
