// SPDX-License-Identifier: MIT
//
// The virtual node is a part of its own, libmainarch-sim.so: it is loaded when a virtual device is
// opened, and goes with the last. Hosts that open none never map its code (a third of what the
// library was), and what only a simulated machine needs of the system is not the library's.
//
// The part lies below the library's own folder, and is looked for nowhere else: neither a device
// string nor the environment names a file that is loaded. Library and part are one release: what
// they hand each other is C++, so a part of another build is refused before it is used.
#ifndef MAINARCH_KFD_SIM_PART_H_
#define MAINARCH_KFD_SIM_PART_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::kfd {

// A virtual node behind the seam, with what only a machine that is played can be asked. The calls
// on descriptors are for programs that know nothing of the seam (sim/preload).
class VirtualSys : public Sys {
 public:
  // Is the fd one of the node's devices?
  virtual bool IsDevice(int fd) const = 0;
  // For a device fd: what stat would say.
  virtual bool StatDevice(int fd, FileStat* out) const = 0;
  // Close for a program that duplicates descriptors behind our back: the file goes with the last.
  virtual int CloseShared(int fd) = 0;
  // mprotect of the program's own memory: GPUs that use it in place follow. 0 or a negative errno.
  virtual int Mprotect(void* address, size_t size, int protection) = 0;
  // From now on each line of the node's log goes there as it happens, so that a program that is
  // killed or aborts leaves it too. What does not fit there is lost.
  virtual void LogTo(UniqueFd file) = 0;
  // Ends the machine's threads: nothing moves any more. For good.
  virtual void Stop() = 0;
};

// A node and one process on it, from the text behind "sim:" in a device string ("gfx950x8,seed=7",
// sim/profile.h) and a script of faults (sim/script.h), "" for none. The part stays loaded as long
// as the node; a forked child's copy of either is never touched. NoDevice where the part is missing or of another build; any other error is the
// node's own.
StatusOr<std::shared_ptr<VirtualSys>> OpenVirtual(absl::string_view text,
                                                  absl::string_view faults = "");

// Debian's package with the part, for messages.
inline constexpr char kSimPackage[] = "libmainarch0-sim";

// What the part exports: one C function of this name, which returns what it is.
inline constexpr char kSimEntry[] = "mainarch_sim_part";
struct SimPart {
  const char* build;  // first for ever, because it says whether the rest is as this header has it
  StatusOr<std::unique_ptr<VirtualSys>> (*open)(absl::string_view text, absl::string_view faults);
};
using SimEntry = const SimPart* (*)();

// The project's version and a digest of the seam's headers.
const char* SimBuild();

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_SIM_PART_H_
