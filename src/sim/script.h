// SPDX-License-Identifier: MIT
//
// Faults on demand: what goes wrong, and when. A script is text, rules separated by ';':
//
//   ioctl=CREATE_QUEUE@2:ENOMEM   the second CREATE_QUEUE fails; '*' counts every ioctl
//   open@1:EACCES  mmap@3:ENOMEM  munmap@2:EINVAL  madvise@1:EINVAL
//                  the n-th such call through the node fails
//   hang=0@3       the third packet that GPU 0 takes never ends, nor does its queue go on
//   lose=0@3       the third completion signal that GPU 0 would write is lost
//   fault=0@3      GPU 0 takes a page fault at its third packet
//   reset=0@3      GPU 0 hangs and is reset at its third packet
//   ecc=0@3        GPU 0 meets an uncorrectable memory error at its third packet
//   gone=0@3       GPU 0 falls off the bus at its third packet
//   gone=0@t500    the same when a dispatch of GPU 0 has its 500th turn, of some 4,096 instructions, since there was
//                  a script; so do the four above
//   page=0@0x7f1200000000   every access of GPU 0 to that page faults, from the next time on that
//                  anything is mapped for it
//   slow=0-1:50    copies between the GPUs 0 and 1 take 50 microseconds a 64 KiB chunk
//
// Counts start at 1 and run over the life of the node. Threads: any.
#ifndef MAINARCH_SIM_SCRIPT_H_
#define MAINARCH_SIM_SCRIPT_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::sim {

// What a GPU does at a packet it takes, instead of or beside running it.
enum class Trouble : uint8_t { kNone, kHang, kFault, kReset, kEcc, kGone };

class Script {
 public:
  // Adds the rules of `text`; an error names the rule, and nothing is added then.
  Status Add(absl::string_view text);
  void Clear();

  // Called once for each call of a client's; the errno it shall fail with, or 0.
  int OnIoctl(uint32_t number);
  int OnOpen();
  int OnMmap();
  int OnMunmap();
  int OnMadvise();

  // Called once for each packet a GPU takes and for each completion signal it writes.
  Trouble OnPacket(uint32_t gpu);
  // Called before each turn of a dispatch that runs.
  Trouble OnTurn(uint32_t gpu);
  bool LosesSignal(uint32_t gpu);

  uint32_t ChunkDelayUs(uint32_t gpu_a, uint32_t gpu_b) const;
  std::vector<uint64_t> BadPages(uint32_t gpu) const;

  // How many ioctls have been seen: the range of "fail the n-th".
  uint64_t ioctls() const;

 private:
  struct Rule {
    std::string what;     // left of '='
    std::string subject;  // an ioctl's number, "*" or a GPU's index
    uint64_t at = 0;      // which one; address of a page; microseconds
    int error = 0;
    uint32_t peer = 0;
    bool turn = false;  // `at` counts turns
  };
  Trouble TroubleAt(const std::string& subject, uint64_t count, bool turn) const;
  static StatusOr<Rule> ParseRule(absl::string_view text);
  static Status ParseEnd(absl::string_view text, absl::string_view rest, Rule* rule);
  int OnCall(const char* what);
  int Match(absl::string_view what, const std::string& subject, uint64_t count, bool turn = false) const;

  mutable std::mutex mutex_;
  std::vector<Rule> rules_;
  std::map<std::string, uint64_t> counts_;
};

// "CREATE_QUEUE" for 0x02; empty for a number the interface does not have.
absl::string_view IoctlName(uint32_t number);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_SCRIPT_H_
