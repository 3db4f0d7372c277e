// SPDX-License-Identifier: MIT
//
// Runs any program on a virtual node: what `mainarch sim -- PROGRAM` does. The node's sysfs files
// are written to a directory of their own, and the program starts with
// libmainarch-sim-preload.so in front of it, which sends what it opens under /dev and /sys there and plays the devices inside the
// program's own process. Nothing is changed outside of that directory, which goes when the program
// has ended.
//
// The environment that the preloaded library reads (names below) is set for the child only.
#ifndef MAINARCH_SIM_LAUNCHER_H_
#define MAINARCH_SIM_LAUNCHER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "sim/virtual_fs.h"

namespace mainarch::sim {

inline constexpr char kNodeVariable[] = "MAINARCH_SIM_NODE";      // as ParseNode
inline constexpr char kRootVariable[] = "MAINARCH_SIM_ROOT";      // where the files are
inline constexpr char kScriptVariable[] = "MAINARCH_SIM_FAULTS";  // as Script
inline constexpr char kLogVariable[] = "MAINARCH_SIM_LOG";        // a file for the node's log
// Code objects with debug information, as AddLines takes them, a colon between two. Also read where
// a node is made for a device string.
inline constexpr char kLinesVariable[] = "MAINARCH_SIM_LINES";

struct LaunchOptions {
  std::string node = "gfx950x8";
  std::string faults;                // a script; empty: none
  std::string log;                   // a file that gets the node's log; empty: none
  std::vector<std::string> lines;    // code objects, as AddLines
  std::string library;               // path of libmainarch-sim-preload.so
  std::vector<std::string> command;  // program and arguments
  // Is told who runs, and 0 when nobody does any more, before its number can be another's; may be empty.
  std::function<void(int pid)> running;
};

// Writes the files of a node under an existing directory; devices become empty files.
Status WriteTree(const VirtualFs& fs, const std::string& root);

// What stands behind `mainarch sim`: [--node NODE] [--faults SCRIPT] [--log FILE] [--lines FILE]...
// [--library FILE] [--] PROGRAM ARGUMENTS. `library` is used when none is named. An error names the
// argument.
StatusOr<LaunchOptions> ParseLaunch(absl::Span<const std::string> arguments,
                                    const std::string& library);

// Runs the command to its end. Returns its exit code, 128 + n for one that signal n ended.
StatusOr<int> RunProgram(const LaunchOptions& options);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_LAUNCHER_H_
