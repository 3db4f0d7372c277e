// SPDX-License-Identifier: MIT
#include "backend/cpu/mover.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/signal_block.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace mainarch::cpu {
namespace {

constexpr int64_t kPanelsAtATime = 8;  // between two looks at stop_: some 0.1 ms
constexpr int kNice = 10;              // a tenth of a processor that a step wants, too

// A first step that takes longer than this, a long prompt's or a big model's, has the mover beside it:
// the sooner there is something in place the better.
constexpr timespec kGrace = {0, 200'000'000};

// Of the calling thread alone. A refusal costs others some time, no more.
void LowerPriority() {
  struct {  // sched_attr, whose header cannot be included beside <sched.h>
    uint32_t size = 48, sched_policy = SCHED_OTHER;
    uint64_t sched_flags = 0;
    int32_t sched_nice = kNice;
    uint32_t sched_priority = 0;
    uint64_t sched_runtime = 0, sched_deadline = 0, sched_period = 0;
  } attributes;
  static_assert(sizeof(attributes) == 48);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

uintptr_t PageDown(uintptr_t address, uintptr_t page) { return address & ~(page - 1); }

// Backs [begin, begin + size) with memory: where there is none this says so, and a store would kill
// the process. A kernel that does not know how is left to do it at the store.
Status Populate(const uint8_t* begin, size_t size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = PageDown(reinterpret_cast<uintptr_t>(begin), page);
  const size_t length = reinterpret_cast<uintptr_t>(begin) + size - first;
  if (madvise(reinterpret_cast<void*>(first), length, MADV_POPULATE_WRITE) == 0) {
    return OkStatus();
  }
  const int err = errno;
  if (err != ENOMEM && err != EFAULT && err != EHWPOISON) return OkStatus();
  return ErrnoError(Code::kOutOfHostMemory, err, "memory for ", size, " bytes of weights");
}

// The file's pages of a weight that has moved are no use in this process any more. They stay in the
// page cache, and who touches them again finds them there.
void Forget(const RankWeight& weight) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const PanelPlan& plan : weight.plans) {
    for (int32_t s = 0; s < plan.slice_count; ++s) {
      const backend::WeightSlice& slice = plan.slices[s];
      const quant::Matrix& matrix = plan.weight->sources[static_cast<size_t>(slice.source)];
      const int64_t row_bytes = quant::RowBytes(matrix.format, matrix.cols);
      const uintptr_t data = reinterpret_cast<uintptr_t>(matrix.data.data());
      const uintptr_t begin =
          PageDown(data + static_cast<uintptr_t>(slice.row_begin * row_bytes) + page - 1, page);
      const uintptr_t end =
          PageDown(data + static_cast<uintptr_t>(slice.row_end * row_bytes), page);
      if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }
}

}  // namespace

uint64_t RankWeight::bytes() const {
  uint64_t bytes = 0;
  for (const PanelPlan& plan : plans) {
    bytes += static_cast<uint64_t>(plan.panels) * plan.layout.stride;
  }
  return bytes;
}

int64_t RankWeight::GroupPanels() const {
  if (!segments) return plans[0].panels;
  int64_t panels = 0;
  for (const PanelPlan& plan : plans) panels += plan.panels;
  return panels;
}

WeightPacker::WeightPacker(RankWeight* weight) : weight_(weight) {
  for (const PanelPlan& plan : weight->plans) panels_ += plan.panels;
}

void WeightPacker::Pack(int64_t begin, int64_t end) const {
  size_t group = 0;
  int64_t first = 0;  // panels before `group`
  for (int64_t at = begin; at < end; ++at) {
    while (at - first >= weight_->plans[group].panels) first += weight_->plans[group++].panels;
    const Panels& panels = weight_->panels[group];
    const int64_t panel = at - first;
    uint8_t* out = const_cast<uint8_t*>(panels.data) + static_cast<size_t>(panel) * panels.stride;
    PackPanel(weight_->plans[group], panel, out);
  }
}

Mover::Mover(std::vector<RankWeight*> weights, Gate gate)
    : pid_(getpid()), weights_(std::move(weights)), gate_(std::move(gate)) {}

StatusOr<std::unique_ptr<Mover>> Mover::Start(std::vector<RankWeight*> weights, Gate gate) {
  std::unique_ptr<Mover> mover(new Mover(std::move(weights), std::move(gate)));
  const SignalBlock blocked;
  try {
    mover->thread_ = std::thread([raw = mover.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return ErrnoError(Code::kOutOfHostMemory, error.code().value(),
                      "start the thread that moves weights");
  }
  pthread_setname_np(mover->thread_.native_handle(), "mainarch-move");
  return mover;
}

Mover::~Mover() {
  stop_.store(true, std::memory_order_relaxed);
  if (!thread_.joinable()) return;
  Begin();
  // A forked child has no such thread; joining would wait for ever.
  if (getpid() != pid_) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Status Mover::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void Mover::BeginOnce() {
  if (begun_.exchange(1, std::memory_order_acq_rel) != 0) return;
  syscall(SYS_futex, &begun_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Whatever ends it early, a signal say, costs the first step some time, no more.
void Mover::AwaitBegin() {
  syscall(SYS_futex, &begun_, FUTEX_WAIT_PRIVATE, 0, &kGrace, nullptr, 0);
}

void Mover::Wait() {
  Begin();
  std::lock_guard<std::mutex> lock(join_mutex_);
  if (thread_.joinable() && getpid() == pid_) thread_.join();
}

void Mover::Run() {
  LowerPriority();
  AwaitBegin();
  if (stop_.load(std::memory_order_relaxed)) return;
  for (RankWeight* weight : weights_) {
    Status status;
    try {
      status = Move(weight);
    } catch (const std::bad_alloc&) {
      status = Error(Code::kOutOfHostMemory, "no memory to move weights");
    }
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      status_ = std::move(status);
      return;
    }
    if (stop_.load(std::memory_order_relaxed)) return;
  }
}

Status Mover::Move(RankWeight* weight) {
  if (gate_) RETURN_IF_ERROR(gate_(done()));
  const WeightPacker packer(weight);
  for (size_t group = 0; group < weight->plans.size(); ++group) {
    if (stop_.load(std::memory_order_relaxed)) return OkStatus();
    const PanelPlan& plan = weight->plans[group];
    RETURN_IF_ERROR(Populate(weight->panels[group].data,
                             static_cast<size_t>(plan.panels) * plan.layout.stride));
  }
  for (int64_t at = 0; at < packer.panels(); at += kPanelsAtATime) {
    if (stop_.load(std::memory_order_relaxed)) return OkStatus();
    packer.Pack(at, std::min(packer.panels(), at + kPanelsAtATime));
  }
  weight->ready.store(true, std::memory_order_release);
  done_.fetch_add(weight->bytes(), std::memory_order_relaxed);
  Forget(*weight);
  return OkStatus();
}

}  // namespace mainarch::cpu
