// SPDX-License-Identifier: MIT
#include "gpu/watcher.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "gpu/fault.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

constexpr uint32_t kSliceMs = 500;
constexpr int kMaxFailures = 3;  // in a row; then the devices are taken for lost

std::string NameOf(const Process& process, uint32_t gpu_id) {
  const Device* device = process.FindDevice(gpu_id);
  return device != nullptr ? device->name() : absl::StrCat("gpu_id 0x", absl::Hex(gpu_id));
}

void SleepMs(int64_t ms) {
  const timespec t = {ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&t, nullptr);
}

}  // namespace

StatusOr<std::unique_ptr<Watcher>> Watcher::Start(Process& process, Event stop) {
  std::unique_ptr<Watcher> watcher(new Watcher(process));
  watcher->stop_ = std::move(stop);
  ASSIGN_OR_RETURN(watcher->memory_, Event::Create(process, uapi::kEventMemory, 0, 0));
  ASSIGN_OR_RETURN(watcher->hardware_, Event::Create(process, uapi::kEventHwException, 0, 0));
  // A thread of a library takes none of its host's signals.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  Status status;
  try {
    watcher->thread_ = std::thread(&Watcher::Run, watcher.get());
  } catch (const std::system_error& error) {
    status = ErrnoError(Code::kOutOfHostMemory, error.code().value(), "start of the fault watcher");
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (!status.ok()) return status;
  return watcher;
}

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  if (!process_.in_opener()) {
    thread_.detach();  // it never existed in this process
    return;
  }
  stopping_.store(true, std::memory_order_release);
  stop_.Set().IgnoreError();
  thread_.join();
}

void Watcher::Run() {
  int failures = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    const Status status = WaitOnce();
    if (status.ok()) {
      failures = 0;
      continue;
    }
    process_.log().Write(LogLevel::kWarning, "fault watcher: ", status.message());
    if (++failures == kMaxFailures) {
      process_.MarkLost(0, WithContext(status, "faults can no longer be heard of"));
      return;
    }
    SleepMs(10);
  }
}

Status Watcher::WaitOnce() {
  uapi::EventData events[3] = {};
  events[0].event_id = memory_.id();
  events[1].event_id = hardware_.id();
  events[2].event_id = stop_.id();
  ASSIGN_OR_RETURN(const bool fired, process_.kfd().WaitEvents(events, false, kSliceMs));
  if (!fired) return {};
  // The kernel fills in the data of those that fired; gpu_id is never 0.
  const uapi::MemoryExceptionData& memory = events[0].memory_exception_data;
  if (memory.gpu_id != 0) {
    const std::string text = DescribeMemoryFault(memory, NameOf(process_, memory.gpu_id),
                                                 process_.DescribeAddress(memory.va));
    process_.log().Write(LogLevel::kError, text);
    process_.MarkLost(memory.gpu_id, Error(Code::kDeviceLost, text));
  }
  const uapi::HwExceptionData& hardware = events[1].hw_exception_data;
  if (hardware.gpu_id != 0) {
    std::string text = DescribeHwException(hardware, NameOf(process_, hardware.gpu_id));
    // A virtual node knows what its kernel log would say.
    const std::string said = process_.sys().Diagnose();
    if (!said.empty()) absl::StrAppend(&text, ": ", said);
    process_.log().Write(LogLevel::kError, text);
    process_.MarkLost(hardware.gpu_id, Error(Code::kDeviceLost, text));
  }
  return {};
}

}  // namespace mainarch::gpu
