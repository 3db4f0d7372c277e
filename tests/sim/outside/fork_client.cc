// SPDX-License-Identifier: MIT
//
// A client that does what hurts a preloaded library: it forks while other threads of it are inside
// the driver, its children (of vfork too) read, ask the driver and open devices of their own, and it ends while a
// thread sleeps in the driver. It links nothing of mainarch but the driver's numbers.
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kfd/uapi/kfd_ioctl.h"

namespace {

namespace uapi = mainarch::kfd::uapi;

void Must(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED %s: errno %d\n", what, errno);
  std::fflush(stdout);
  _exit(1);
}

bool AsksVersion(int kfd) {
  uapi::GetVersionArgs args = {};
  return ioctl(kfd, uapi::kGetVersion, &args) == 0 && args.major_version == 1;
}

// In a child of a program with threads. Ends it.
void Child(int kfd, int text) {
  char byte = 0;
  Must(pread(text, &byte, 1, 0) == 1 && lseek(text, 0, SEEK_SET) == 0 && read(text, &byte, 1) == 1,
       "a child reads a file");
  uapi::GetVersionArgs args = {};
  Must(ioctl(kfd, uapi::kGetVersion, &args) == -1 && errno == EBADF, "the parent's device is dead");
  const int own = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  Must(own >= 0 && AsksVersion(own), "a child has a device of its own");
  Must(close(own) == 0, "a child closes its device");
  exit(0);  // with exit handlers, as most programs do
}

}  // namespace

int main() {
  const int kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  const int text = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  Must(kfd >= 0 && text >= 0 && AsksVersion(kfd), "open");
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&] {
      char byte = 0;
      while (!stop) {
        Must(AsksVersion(kfd), "a thread asks");
        Must(read(kfd, &byte, 1) == -1 && errno == EINVAL, "devices cannot be read");
        const int copy = dup(kfd);
        Must(copy >= 0 && AsksVersion(copy) && close(copy) == 0, "a duplicate");
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    const pid_t child = fork();
    if (child == 0) Child(kfd, text);
    int status = 0;
    Must(child > 0 && waitpid(child, &status, 0) == child, "fork");
    Must(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child");
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  // In the parent's memory a child closes what only it has a descriptor of.
  const pid_t child = vfork();
  if (child == 0) {
    close(kfd);
    _exit(0);
  }
  int ended = 0;
  Must(child > 0 && waitpid(child, &ended, 0) == child && ended == 0, "vfork");
  struct stat device = {};
  Must(fstat(kfd, &device) == 0 && S_ISCHR(device.st_mode) && AsksVersion(kfd),
       "the device is still the parent's");
  uapi::CreateEventArgs event = {};
  event.event_type = uapi::kEventMemory;
  Must(ioctl(kfd, uapi::kCreateEvent, &event) == 0, "create event");
  std::thread([&] {
    uapi::EventData data = {};
    data.event_id = event.event_id;
    uapi::WaitEventsArgs wait = {};
    wait.events_ptr = reinterpret_cast<uint64_t>(&data);
    wait.num_events = 1;
    wait.timeout = uapi::kTimeoutInfinite;
    ioctl(kfd, uapi::kWaitEvents, &wait);
  }).detach();
  usleep(20'000);
  std::printf("done\n");
  return 0;
}
