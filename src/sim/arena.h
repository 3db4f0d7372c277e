// SPDX-License-Identifier: MIT
//
// The memory behind the virtual node: one sparse memory file from which every buffer, doorbell page
// and event page takes a range of its own. A client maps the range through the device's fd; the
// machine has a mapping of its own, so a client that unmaps too early cannot pull memory from under
// it. Offsets are never used twice: a stale mapping of a freed buffer reads zeros, not another
// buffer.
//
// Threads: any.
#ifndef MAINARCH_SIM_ARENA_H_
#define MAINARCH_SIM_ARENA_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/status.h"

namespace mainarch::sim {

class Arena;

// A range of the arena, zeroed, mapped for the machine. Given back when it goes; must not outlive
// the arena.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)),
        offset_(other.offset_),
        map_(std::move(other.map_)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(offset_, other.offset_);
    std::swap(map_, other.map_);
    return *this;
  }
  ~Block();

  uint8_t* data() const { return map_.data(); }
  uint64_t size() const { return map_.size(); }
  uint64_t offset() const { return offset_; }  // in the arena's file

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  uint64_t offset_ = 0;
  Mapping map_;
};

class Arena {
 public:
  static StatusOr<std::unique_ptr<Arena>> Create();

  // `size` is rounded up to whole pages.
  StatusOr<Block> Allocate(uint64_t size);
  int fd() const { return fd_.get(); }
  uint64_t blocks() const { return blocks_.load(); }

 private:
  friend class Block;
  explicit Arena(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::atomic<uint64_t> next_{4096};  // offset 0 stays free: no valid mmap cookie is 0
  std::atomic<uint64_t> blocks_{0};
};

inline constexpr uint64_t kPageSize = 4096;
constexpr uint64_t PageUp(uint64_t size) { return (size + kPageSize - 1) & ~(kPageSize - 1); }

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_ARENA_H_
