// SPDX-License-Identifier: MIT
#include "gpu/fork_guard.h"

#include <sys/mman.h>

namespace mainarch::gpu {
namespace {
constexpr size_t kPage = 4096;
}  // namespace

StatusOr<std::unique_ptr<ForkGuard>> ForkGuard::Create(kfd::Sys& sys) {
  std::unique_ptr<ForkGuard> guard(new ForkGuard(sys));
  void* page = nullptr;
  int result =
      sys.Mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &page);
  if (result < 0) return ErrnoError(Code::kOutOfHostMemory, -result, "mmap of the fork guard");
  guard->word_ = static_cast<uint64_t*>(page);
  result = sys.Madvise(page, kPage, MADV_WIPEONFORK);
  if (result < 0) {
    *static_cast<uint64_t*>(page) = kAlive;  // so that the destructor unmaps it
    return ErrnoError(Code::kUnsupported, -result, "madvise(MADV_WIPEONFORK) of the fork guard");
  }
  *static_cast<uint64_t*>(page) = kAlive;
  return guard;
}

ForkGuard::~ForkGuard() {
  if (word_ == nullptr || !in_opener()) return;
  void* const page = const_cast<uint64_t*>(word_);
  if (sys_.Munmap(page, kPage) < 0) sys_.Munmap(page, kPage);
}

Status ForkGuard::Check() const {
  if (in_opener()) return {};
  return Error(Code::kWrongProcess,
               "the GPUs were opened before a fork, by the parent: a child cannot use them; open "
               "them in the child, or fork before opening");
}

}  // namespace mainarch::gpu
