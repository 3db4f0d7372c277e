// SPDX-License-Identifier: MIT
//
// A group of ranks that add up vectors: GPUs of one node, or threads of this process. One interface
// for both, driven by one host thread; what a rank does is in its own file (gpu_ranks.cc,
// cpu_ranks.h).
//
// The sum of every element is taken over the ranks in the tree of kernels/common/tree.h, in fp32,
// whatever the algorithm, the size, or the order in which the ranks arrive: the same bits always.
//
// Threads: one at a time.
#ifndef MAINARCH_CLI_COLL_RANKS_H_
#define MAINARCH_CLI_COLL_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::coll {

enum class Algorithm : uint8_t {
  kAuto,
  kOneShot,  // everybody pushes all to everybody: one round
  kTwoShot,  // everybody pushes each part to its owner, who pushes the sum to all: two rounds
  kEngines,  // two shots with the copy engines as carriers (GPUs)
};
absl::string_view NameOf(Algorithm algorithm);

// What one all-reduce took. Bytes are those that one rank sends to others.
struct Counts {
  Algorithm algorithm = Algorithm::kAuto;
  uint32_t packets = 0;   // compute packets of one rank
  uint32_t copies = 0;    // engine commands of one rank
  uint32_t rounds = 0;    // over the fabric, one after the other
  uint32_t handoffs = 0;  // times the host waited
  uint64_t link_bytes = 0;
};
// What any algorithm must send: 2 (n - 1) / n of the vector a rank.
uint64_t LeastLinkBytes(uint64_t bytes, int32_t ranks);

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int32_t ranks() const = 0;
  virtual size_t max_count() const = 0;
  // The vector of a rank, in place: [max_count] fp32 that the host can read and write between
  // calls.
  virtual absl::Span<float> data(int32_t rank) = 0;
  // Replaces the first `count` elements of every rank's vector by the sums. An error is final.
  virtual StatusOr<Counts> AllReduce(size_t count, Algorithm algorithm) = 0;
};

// "cpu:4", "gpu", "gpu:0-3", "sim:gfx950x8". `timeout_ms` bounds every AllReduce.
StatusOr<std::unique_ptr<Ranks>> OpenRanks(absl::string_view device, size_t max_count,
                                           uint32_t timeout_ms);

}  // namespace mainarch::coll

#endif  // MAINARCH_CLI_COLL_RANKS_H_
