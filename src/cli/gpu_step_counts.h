// SPDX-License-Identifier: MIT
//
// What one decoded token costs on the GPU path, counted by the interpreter of a virtual node on the
// shipped machine code, op by op: bytes from memory beside the least there is, how well accesses
// are coalesced, what was spilled, and what goes over the links. Counts, never times.
#ifndef MAINARCH_CLI_GPU_STEP_COUNTS_H_
#define MAINARCH_CLI_GPU_STEP_COUNTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "model/config.h"
#include "model/synthetic.h"
#include "sim/isa/counters.h"

namespace mainarch::cli {

// What becomes of the step's logits.
enum class Outcome {
  kRead,     // to the host
  kLargest,  // the token is chosen on the GPUs, greedily
  kDrawn,    // the same by the whole sampler: edits, penalties, every filter and a draw
  kRaced,    // the same without top_k, so that no candidates are few
};

struct StepCountOptions {
  std::string isa = "gfx950";
  int32_t ranks = 1;
  uint32_t position = 0;  // of the token; what lies before it in the cache is zeros
  backend::KvType kv = backend::KvType::kBF16;
};

// All ops of one name, on all ranks.
struct OpCounts {
  std::string name;
  uint32_t ops = 0, packets = 0;
  // Lines of 128 bytes of the GPUs' own memory, each once a dispatch, that no kernel of this step
  // up to this one has written: weights and KV. What the step itself wrote is in the caches.
  uint64_t memory_bytes = 0;
  uint64_t memory_whole = 0;      // of these, in blocks of 64 that one instruction asks for whole
  uint64_t least_bytes = 0;       // weights as stored in the checkpoint, KV at its element size
  uint64_t activation_bytes = 0;  // lines of what the step wrote
  uint64_t written_bytes = 0;     // lines, in the GPUs' own memory
  uint64_t link_bytes = 0;        // stored to peers
  uint64_t host_bytes = 0;        // stored to the host's memory
  uint64_t vector_bytes = 0;      // of loads, stores and atomics, distinct within an instruction
  uint64_t full_bytes = 0;        // of these, in aligned blocks of 64 that are asked for whole
  uint64_t scratch_bytes = 0;
  uint64_t instructions = 0;

  void Add(const OpCounts& other);
  double ratio() const { return Share(memory_bytes, least_bytes); }
  double memory_coalesced() const { return Share(memory_whole, memory_bytes); }
  double coalesced() const { return Share(full_bytes, vector_bytes); }  // also what is read from the caches

 private:
  static double Share(uint64_t part, uint64_t of) { return static_cast<double>(part) / static_cast<double>(of); }
};

struct TokenCounts {
  std::vector<OpCounts> ops;  // in the order of their first
  OpCounts total;
  backend::StepCounts step;  // of each rank: packets, host waits, rounds, link bytes
  Outcome outcome = Outcome::kRead;
  int32_t layers = 0;
};

// A group on a virtual node whose kernels are counted.
struct CountedGroup {
  std::shared_ptr<sim::isa::CountLog> log = std::make_shared<sim::isa::CountLog>();
  std::shared_ptr<backend::Backend> backend;

  void Restart();  // forgets what was counted so far
};
// "gfx950x8" or "gfx950x8,seed=2:0-3": what stands behind "sim:" in a device string.
StatusOr<CountedGroup> OpenCounted(const std::string& text);

// One step of rows of one sequence, each of which is asked for a token, as in a step with drafts, or the last alone, as of a
// prompt.
struct LoggedStep {
  uint32_t position = 0;  // of the first row
  size_t end = 0;         // operators [0, end) of the Program ran
  Outcome outcome = Outcome::kRead;
  uint32_t rows = 1;
  bool prompt = false;
  uint32_t logit_rows() const { return prompt ? 1 : rows; }
};
// What the kernels in `log` did, which ran `step`; the log is empty afterwards. `out`'s own step
// and layers are left alone.
Status CountLogged(const backend::LoadedModel& model, const backend::ContextOptions& context,
                   const LoggedStep& step, sim::isa::CountLog* log, TokenCounts* out);

// A packet of the step: what it is for. An op without a launch of its own runs in the next one's.
struct StepPacket {
  int32_t op = -1;  // of the Program, the last that it runs; -1: the step's beginning
  std::string name;
  uint64_t least_bytes = 0;  // of one rank: weights as stored in the checkpoint, KV; of an op's first packet
};
// The packets that a rank of `model` takes for `step`, in their order.
std::vector<StepPacket> PacketsOf(const backend::LoadedModel& model, const backend::ContextOptions& context,
                                  const LoggedStep& step);
// What a context for it needs: pages in order, and slots for the states before it and after each row.
backend::ContextOptions ContextFor(const backend::Program& program, const LoggedStep& step,
                                   backend::KvType kv);
// What a decode would have left in it before `step`: states of a first token, for those that nothing wrote may be any
// bits, and of those that are no numbers nothing follows; and page tables, where they are longer than what a step's own
// words tell of. Where there is nothing of either, it runs nothing.
Status FillContext(backend::Context* context, const backend::Program& program, const LoggedStep& step);
// Runs such a step in such a context: tokens of no meaning.
Status RunLoggedStep(backend::Context* context, const backend::Program& program,
                     const LoggedStep& step);

// A checkpoint of hashed weights in a temporary directory, on a node of its own one decode step
// for each outcome.
StatusOr<std::vector<TokenCounts>> CountSteps(const model::ModelConfig& config,
                                              model::SyntheticFormat format,
                                              const StepCountOptions& options,
                                              absl::Span<const Outcome> outcomes);

// The widths of `whole` as one rank of `of` holds them, times `ranks`: what `ranks` GPUs run is
// what so many of the `of` run, but for the number of peers.
model::ModelConfig ShareOf(const model::ModelConfig& whole, int32_t of, int32_t ranks);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_GPU_STEP_COUNTS_H_
