// SPDX-License-Identifier: MIT
#include "backend/amdgpu/uploader.h"

#include <algorithm>
#include <cstring>

namespace mainarch::amdgpu {

StatusOr<std::unique_ptr<Uploader>> Uploader::Create(const Gpus& gpus, gpu::Device& device,
                                                     gpu::CopyQueue& copy) {
  std::unique_ptr<Uploader> uploader(new Uploader(gpus, copy));
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.label = "upload staging";
  for (gpu::Buffer& staging : uploader->staging_) {
    ASSIGN_OR_RETURN(staging, gpu::Buffer::Allocate(device, kChunk, options));
  }
  return uploader;
}

Uploader::~Uploader() {
  // An engine that did not answer once is not waited for again: its queue is destroyed next.
  if (!failed_) Finish().IgnoreError();
}

Status Uploader::Await(uint64_t point) {
  const Status status = copy_.Wait(point, gpus_.Soon());
  failed_ |= !status.ok();
  return status;
}

StatusOr<uint8_t*> Uploader::Begin(uint64_t bytes) {
  if (bytes > kChunk) return Error(Code::kInternal, "upload of ", bytes, " bytes at once");
  RETURN_IF_ERROR(Await(points_[current_]));
  return staging_[current_].host();
}

Status Uploader::Send(uint64_t to, uint64_t bytes) {
  RETURN_IF_ERROR(copy_.Copy(to, staging_[current_].va(), bytes, gpus_.Soon()));
  ASSIGN_OR_RETURN(points_[current_], copy_.Submit(gpus_.Soon()));
  current_ ^= 1;
  return OkStatus();
}

Status Uploader::Write(uint64_t to, const uint8_t* from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t now = std::min(bytes, kChunk);
    ASSIGN_OR_RETURN(uint8_t* at, Begin(now));
    std::memcpy(at, from, now);
    RETURN_IF_ERROR(Send(to, now));
    to += now;
    from += now;
    bytes -= now;
  }
  return OkStatus();
}

Status Uploader::Finish() {
  for (uint64_t point : points_) RETURN_IF_ERROR(Await(point));
  return OkStatus();
}

}  // namespace mainarch::amdgpu
