// SPDX-License-Identifier: MIT
#include "sim/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace mainarch::sim {
namespace {

// Far beyond what any test allocates; the file is sparse.
constexpr uint64_t kFileSize = uint64_t{1} << 62;

}  // namespace

Block::~Block() {
  if (arena_ == nullptr) return;
  fallocate(arena_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
            static_cast<off_t>(map_.size()));
  --arena_->blocks_;
}

StatusOr<std::unique_ptr<Arena>> Arena::Create() {
  UniqueFd fd(memfd_create("mainarch-sim-memory", MFD_CLOEXEC));
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
