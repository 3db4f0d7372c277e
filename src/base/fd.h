// SPDX-License-Identifier: MIT
//
// Owners of a file descriptor and of a memory mapping. Move-only; closing never fails upwards.
#ifndef MAINARCH_BASE_FD_H_
#define MAINARCH_BASE_FD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

// A mapping made by mmap, unmapped when it goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t size) : address_(address), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  // Maps a whole regular file read-only. An empty file gives an empty mapping. A file that another
  // process truncates while it is mapped raises SIGBUS at the next touch: no library can prevent
  // that without a signal handler, so checkpoints must not be truncated in use.
  static StatusOr<Mapping> OfFile(const std::string& path);

  // Anonymous zeroed memory, lazily backed. `huge_pages` asks for transparent huge pages.
  static StatusOr<Mapping> Anonymous(size_t size, bool huge_pages);

  uint8_t* data() const { return static_cast<uint8_t*>(address_); }
  size_t size() const { return size_; }
  absl::Span<const uint8_t> bytes() const { return {data(), size_}; }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

// Reads a whole regular file of at most `limit` bytes.
StatusOr<std::string> ReadWholeFile(const std::string& path, size_t limit);

}  // namespace mainarch

#endif  // MAINARCH_BASE_FD_H_
