// SPDX-License-Identifier: MIT
//
// What sysfs says of the processes that use the node, which changes while it lives: of kfd/kfd/proc/<pid> the waves on
// each GPU, stats_<gpu_id>/cu_occupancy (kfd/occupancy.h says what the number is). Programs from outside (sim/preload) find
// the directory empty: each has a node to itself.
//
// A test may add processes that are not played, whose files say what it wants, or have the node be one of a kernel
// without these files.
//
// Threads: any.
#ifndef MAINARCH_SIM_PROCESS_FILES_H_
#define MAINARCH_SIM_PROCESS_FILES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace mainarch::sim {

class Node;

class ProcessFiles {
 public:
  static constexpr absl::string_view kRoot = "/sys/devices/virtual/kfd/kfd/proc";

  explicit ProcessFiles(Node& node) : node_(node) {}

  // Paths as VirtualFs::Resolve gives them, at kRoot or below. 0 or a negative errno.
  int Read(absl::string_view path, std::string* text) const;
  int List(absl::string_view path, std::vector<std::string>* names) const;

  // A process that says this of the GPU of that index, from now on.
  void Pretend(int64_t pid, uint32_t gpu, std::string cu_occupancy);
  void Leave(int64_t pid);
  void Hide(bool hide);

 private:
  int TextOf(int64_t pid, uint32_t gpu, std::string* text) const;

  Node& node_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::pair<int64_t, uint32_t>, std::string> pretended_;  // by pid and GPU
  bool hidden_ = false;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PROCESS_FILES_H_
