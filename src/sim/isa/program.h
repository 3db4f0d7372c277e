// SPDX-License-Identifier: MIT
//
// Decoded code: instructions by address, decoded on first execution and kept until invalidated.
// Shared by all waves of all workgroups of an address space; safe for several threads.
#ifndef MAINARCH_SIM_ISA_PROGRAM_H_
#define MAINARCH_SIM_ISA_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/hash_map.h"
#include "sim/isa/descriptors.h"
#include "sim/isa/memory.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

// The instructions of one ISA with the lane code chosen for this CPU.
class InstructionSet {
 public:
  // Without `matrix` products of matrices leave their results as they were: for who times kernels whose
  // values steer nothing, and does not look at them.
  InstructionSet(Isa isa, LaneCode code, bool matrix = true);
  Isa isa() const { return isa_; }
  // nullptr when the interpreter does not implement it.
  const Descriptor* Find(const OpRow& row) const;
  const BulkCode* bulk() const { return bulk_; }
  bool matrix() const { return matrix_; }

 private:
  const Isa isa_;
  const bool matrix_;
  const BulkCode* const bulk_;
  DescriptorMap descriptors_;
};

class Program {
 public:
  // `run_errata`: encodings that a chip may get wrong run as documented, and are noted; else they
  // stop the wave.
  explicit Program(const InstructionSet* set, bool run_errata = false)
      : set_(*set), run_errata_(run_errata) {}

  static constexpr uint64_t kChunkBytes = 16384;
  struct Chunk {
    uint64_t base = 0;
    std::atomic<const Op*> ops[kChunkBytes / 4] = {};
  };
  // The chunk that holds `pc`; made when missing.
  Chunk* ChunkOf(uint64_t pc);
  // Decodes at w.at. nullptr after stopping the wave (no code there). An illegal or unsupported
  // instruction decodes to an Op that stops the wave when run.
  const Op* DecodeAt(Wave& w, Chunk* chunk);

  const InstructionSet& set() const { return set_; }

  // Op::note of every instruction is `owner`'s from now on; those of another owner are forgotten. The
  // owner lives as long as the program, or until there is another.
  void NotesBy(std::shared_ptr<const void> owner);
  // What decoding has come upon and somebody should hear of.
  std::vector<std::string> TakeNotes();

  // Ended workgroups, kept for their memory: a grid takes one for each that it starts. Null: none.
  std::unique_ptr<Workgroup> TakeSpare();
  void KeepSpare(std::unique_ptr<Workgroup> group);
  // A pace has as many workgroups under way as the chip holds.
  void KeepMoreSpares(size_t most);

 private:
  void Build(Op* op);
  void NoteErratum(const Inst& inst, uint64_t pc);
  void BuildRefs(Op* op);
  void Constant(const Op& op, Type type, Ref* ref);
  const DppMap* DppMapOf(const Inst& inst);

  const InstructionSet& set_;
  const bool run_errata_;
  std::atomic<bool> has_remarks_{false};
  static constexpr size_t kMostSpares = 64;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workgroup>> spares_;
  size_t most_spares_ = kMostSpares;
  std::shared_ptr<const void> notes_;
  std::vector<std::string> remarks_;
  HashMap<uint64_t, std::unique_ptr<Chunk>> chunks_;
  std::deque<Op> ops_;
  struct alignas(64) Rows {
    uint32_t value[2 * kLanes];
  };
  std::deque<Rows> constants_;
  HashMap<uint32_t, std::unique_ptr<DppMap>> dpp_maps_;  // by control and masks
};

// "pc 0x1040: v_add_f32 ...: detail", for a stopped wave.
std::string Describe(const Wave& w, Isa isa);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_PROGRAM_H_
