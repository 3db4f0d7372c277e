// SPDX-License-Identifier: MIT
//
// The memory behind the virtual node: one sparse memory file from which every buffer, doorbell page
// and event page takes a range of its own. A client maps the range through the device's fd; the
// machine has a mapping of its own, so a client that unmaps too early cannot pull memory from under
// it. Offsets are never used twice: a stale mapping of a freed buffer reads poison or zeros, never
// another buffer.
//
// Threads: any.
#ifndef MAINARCH_SIM_ARENA_H_
#define MAINARCH_SIM_ARENA_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "base/status.h"

namespace mainarch::sim {

class Arena;

// The name of an arena's memory file, by which other processes know it.
inline constexpr char kArenaName[] = "mainarch-sim-memory";

// A range of the arena, zeroed, mapped for the machine. Given back when it goes; must not outlive
// the arena.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)),
        offset_(other.offset_),
        poison_seed_(other.poison_seed_),
        map_(std::move(other.map_)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(offset_, other.offset_);
    std::swap(poison_seed_, other.poison_seed_);
    std::swap(map_, other.map_);
    return *this;
  }
  ~Block();

  uint8_t* data() const { return map_.data(); }
  uint64_t size() const { return map_.size(); }
  uint64_t offset() const { return offset_; }  // in the arena's file

  // Fills it with what no program can take for data (NodeConfig::poison): a small block whole, a
  // large one in 256 pages at most, so that a sparse block stays one. Its first page is
  // filled again, otherwise, when it is given back.
  void Poison(uint64_t seed);

 private:
  friend class Arena;
  Arena* arena_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t poison_seed_ = 0;  // 0: not poisoned
  Mapping map_;
};

// One word of poison: both halves are NaNs as bf16 and as fp16, the whole is one as fp32, every odd
// byte is one as fp8 (e4m3fn), two of them are no address.
constexpr uint32_t PoisonWord(uint64_t random) {
  return 0x7fc07fc0 | (static_cast<uint32_t>(random) & 0x003f003f);
}

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
  void Remember(uint64_t offset);

  UniqueFd fd_;
  std::atomic<uint64_t> next_{4096};  // offset 0 stays free: no valid mmap cookie is 0
  std::atomic<uint64_t> blocks_{0};
  std::mutex mutex_;
  std::deque<uint64_t> poisoned_;  // pages of blocks that were given back
};

inline constexpr uint64_t kPageSize = 4096;
constexpr uint64_t PageUp(uint64_t size) { return (size + kPageSize - 1) & ~(kPageSize - 1); }

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_ARENA_H_
