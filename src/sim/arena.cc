// SPDX-License-Identifier: MIT
#include "sim/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sim/rng.h"

namespace mainarch::sim {
namespace {

// Far beyond what any test allocates; the file is sparse.
constexpr uint64_t kFileSize = uint64_t{1} << 62;
constexpr uint64_t kWholePoison = 1 << 20;   // blocks to this size are poisoned whole
constexpr uint64_t kPoisonStep = 256 << 10;  // larger ones in one page of so many bytes,
constexpr uint64_t kMostPoisoned = 256;      // in so many pages at most
constexpr size_t kRemembered = 1024;         // poisoned pages of blocks given back

void PoisonPages(uint8_t* at, uint64_t bytes, Rng& rng) {
  uint32_t* words = reinterpret_cast<uint32_t*>(at);
  for (uint64_t i = 0; i < bytes / 4; ++i) words[i] = PoisonWord(rng.Next());
}

}  // namespace

Block::~Block() {
  if (arena_ == nullptr) return;
  fallocate(arena_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
            static_cast<off_t>(map_.size()));
  --arena_->blocks_;
  if (poison_seed_ == 0) return;
  Rng rng(~poison_seed_);
  PoisonPages(map_.data(), kPageSize, rng);
  arena_->Remember(offset_);
}

void Block::Poison(uint64_t seed) {
  poison_seed_ = (seed * 0x9e3779b97f4a7c15 ^ offset_) | 1;
  Rng rng(poison_seed_);
  if (size() <= kWholePoison) return PoisonPages(data(), size(), rng);
  const uint64_t step = std::max(kPoisonStep, PageUp(size() / kMostPoisoned));
  for (uint64_t at = 0; at < size(); at += step) PoisonPages(data() + at, kPageSize, rng);
  PoisonPages(data() + size() - kPageSize, kPageSize, rng);
}

void Arena::Remember(uint64_t offset) {
  std::lock_guard lock(mutex_);
  poisoned_.push_back(offset);
  if (poisoned_.size() <= kRemembered) return;
  fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(poisoned_.front()),
            kPageSize);
  poisoned_.pop_front();
}

StatusOr<std::unique_ptr<Arena>> Arena::Create() {
  UniqueFd fd(memfd_create(kArenaName, MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoError(Code::kOutOfHostMemory, errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(kFileSize)) != 0) {
    return ErrnoError(Code::kOutOfHostMemory, errno, "ftruncate of the memory file to ", kFileSize);
  }
  return std::unique_ptr<Arena>(new Arena(std::move(fd)));
}

StatusOr<Block> Arena::Allocate(uint64_t size) {
  if (size == 0 || size > kFileSize / 2) {
    return Error(Code::kInvalidArgument, "a block of ", size, " bytes cannot be");
  }
  Block block;
  const uint64_t bytes = PageUp(size);
  block.offset_ = next_.fetch_add(bytes);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd(),
                       static_cast<off_t>(block.offset_));
  if (address == MAP_FAILED) {
    return ErrnoError(Code::kOutOfHostMemory, errno, "mmap of ", bytes, " bytes");
  }
  block.map_ = Mapping(address, bytes);
  block.arena_ = this;
  ++blocks_;
  return block;
}

}  // namespace mainarch::sim
