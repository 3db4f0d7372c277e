// SPDX-License-Identifier: MIT
//
// What one engine owns on the GPUs: activations, the KV pool, page tables, the step block, the slots
// of the all-reduce, logits in host memory, and the packets of a step, made once. Two steps may be
// in flight: what the host writes or reads of a step, and what the step behind reads of it, lies
// twice, and a step has the half of its parity. So do taps: a step of another context, which comes
// behind all those submitted before it, reads what the step polled last has left, whether or not
// another one is in flight behind that. Steps that the resident kernel runs may have rounds, which
// have indices, and so halves, of their own (context_lease.cc).
//
//   per rank, VRAM    activations, step block and page tables (one buffer), KV pools, slots of
//                     recurrent state; all-reduce slots and flags, what is sent to the chooser of
//                     a row, and the tokens chosen (uncached, mapped by every peer)
//   per rank, VRAM    kernel arguments, lists of the resident kernel; in host memory where the host
//                     cannot write to VRAM
//   once, host        step blocks, chosen tokens and logits, mapped by every GPU
//
// Threads: one at a time, except RequestStop. Steps of several contexts on one group take turns: a
// step is submitted whole under the group's mutex, and waited for without it.
#ifndef MAINARCH_BACKEND_AMDGPU_CONTEXT_H_
#define MAINARCH_BACKEND_AMDGPU_CONTEXT_H_

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/choices.h"
#include "backend/amdgpu/lower.h"
#include "backend/amdgpu/page_tables.h"
#include "backend/amdgpu/resident.h"
#include "backend/backend.h"

namespace mainarch::amdgpu {

class AmdGpuContext : public backend::Context {
 public:
  static StatusOr<std::unique_ptr<backend::Context>> Create(
      std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options);
  ~AmdGpuContext() override;

  Status Submit(const backend::Step& step) override;
  StatusOr<bool> Poll(int64_t timeout_ns) override;
  uint32_t max_in_flight() const override { return kMostInFlight; }
  uint32_t max_rounds() const override;
  uint32_t granted() const override { return sent_ == 0 ? 0 : FlightOf(sent_).rounds - 1; }
  void Recall() override;
  bool left_out() const override { return left_out_; }
  absl::Span<float> Logits(uint32_t i) override;
  absl::optional<uint32_t> Chosen(uint32_t i) const override;
  Status FetchLogits(uint32_t i) override;
  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override;
  Status Health() const override { return model_->gpus().Health(); }
  backend::StepCounts counts() const override;
  uint64_t memory_bytes() const override { return memory_bytes_; }
  StatusOr<std::vector<backend::OpTimes>> ResidentTimes(int32_t rank) const override;
  backend::ResidentCounts resident_counts() const override;
  absl::string_view resident_refusal() const override { return resident_refusal_; }
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t kv_layer, uint32_t page,
                                    uint32_t slot) const override;
  std::string content_form() const override;
  StatusOr<std::string> ReadContent(int32_t cache, uint32_t unit) const override;
  Status WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) override;
  Status RunPrefix(const backend::Step& step, size_t end) override;
  std::vector<float> ReadBuffer(int32_t rank, backend::BufferId buffer,
                                uint32_t rows) const override;

 private:
  static constexpr uint32_t kMostInFlight = 2;

  // What decides which packets a step has.
  struct Form {
    uint32_t rows = 0;
    size_t row_class = 0;
    ChoiceWork work;
  };
  // A packet with all but its completion signal.
  struct Packet {
    gpu::AqlPacket packet;
    const char* label = "";
    int32_t op = -1;
    When when = When::kAlways;
  };
  // Points of the ranks' queues, and when to give them up: see Wait.
  struct Awaited {
    std::array<uint64_t, kernels::kMaxRanks> points = {};
    bool resident = false;  // points are of the resident kernel's commands
    uint32_t round = 1;     // of them
    uint32_t packets_from = UINT32_MAX;  // the first round that was packets, in part or whole, for want of room
    uint32_t launches = 0;  // of that kernel
    gpu::Deadline deadline;
    uint64_t taken = 0;  // packets, when last looked
  };
  struct Rank {
    gpu::Buffer activations;  // everything that RankMemory names, but what follows
    gpu::Buffer kv;     // of all paged caches
    gpu::Buffer slots;  // of all caches of slots; nobody reads one before a step has written it
    gpu::Buffer exchange;  // slots, then flags
    gpu::Buffer choices;   // ChoiceExchange
    gpu::Buffer kernargs, resident_kernargs;
    RankMemory memory;
    std::vector<std::vector<Packet>> packets;  // of each of row_classes_
    Packet tables;                             // step_tables
  };
  // A step submitted, with its rounds; it stays when it has been polled, for who reads its results.
  struct Flight {
    Form form;
    uint32_t logit_rows = 0;
    uint32_t rounds = 1;  // itself counted
    uint32_t polled = 0;  // of them
    bool follows = false;  // takes up what the step before has chosen
    Awaited awaited;
    std::vector<RowOutcome> outcomes;  // [max_logit_rows]
  };

  AmdGpuContext(std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options,
                const AmdGpuContext* source, PageTables tables);
  Status AllocateShared();
  Status AllocateRank(int32_t rank);
  Status AllocatePages(int32_t rank);
  Status AllocateSlots(int32_t rank);
  Status AllocateExchange(int32_t rank);
  Status FillRank(int32_t rank);
  void ShareExchange();
  Status MakePackets(int32_t rank);
  StatusOr<Packet> MakePacket(int32_t rank, const Launch& launch, uint64_t kernarg, bool first);

  // In context_resident.cc.
  Status MakeResident();
  StatusOr<std::unique_ptr<Resident>> StartResident();
  Status FillLists(Resident& resident, int32_t rank);
  size_t ListOf(const Form& form) const;
  Form FormOf(size_t list) const;  // but for how many rows
  size_t TablesList() const;
  // Whether a step of so many rows, up to an op, can be the resident kernel's; and whether it is, having room.
  bool RunsResident(size_t rows, size_t end) const;
  bool GoesResident(size_t rows, size_t end);
  Status SubmitResident(size_t list, const Resident::Work& work, Awaited* awaited);
  Status AwaitSlot(int32_t rank);
  Status SubmitTables(Awaited* awaited);
  // In context_posted.cc: what was posted to kernels that have left, without them.
  Status RunPosted();
  Status RunAllPosted();
  Status RunByPackets(size_t list, Resident::Stand* stand);
  Status RunPart(size_t list, uint32_t from, uint32_t to);
  Status AwaitPackets(Awaited* awaited);
  void CountAsPackets(const Resident::Stand& stand);
  // In context_lease.cc: rounds behind a step. Words of the block from `at` on; where they end.
  uint32_t WriteLease(const backend::Step& step, uint32_t at, kernels::StepHeader* header, Flight* flight);
  Status AwaitBlock();
  Resident::Work RoundsOf(const Flight& flight) const;
  // Of a step that was polled: it or the round that is polled had not run, nor had what is behind it.
  bool WasLeftOut(const Flight& flight) const;
  Status LeaveOut();
  // Busy: rounds behind the step polled last have written over its logits.
  Status CheckLogitsStand();
  void CountResident();
  enum class Mutex { kTake, kHeld };  // the group's
  bool ReachedPoint(int32_t rank, const Awaited& awaited) const;
  std::chrono::nanoseconds NapOf(int32_t rank, int64_t waited) const;
  Status WaitForPoint(int32_t rank, const Awaited& awaited, int64_t until) const;
  Status ResumeResident(Mutex mutex);
  Status AwaitOwnSteps();

  Status CheckStep(const backend::Step& step) const;
  // In context_caches.cc: lists of pages and slots, and inputs.
  Status CheckCaches(const backend::Step& step) const;
  Status CheckReference(const backend::Step& step, size_t row) const;
  Status CheckInputs(const backend::Step& step) const;
  Status SubmitPart(const backend::Step& step, size_t end);
  static bool TakesPart(When when, const ChoiceWork& work);
  void WriteStep(const backend::Step& step, Flight& flight);
  void WriteRows(const backend::Step& step, const kernels::StepHeader& header, uint32_t* block);
  // Lays the step's inputs and slots out from word `at` on, and says where they end.
  uint32_t PlaceInputs(const backend::Step& step, uint32_t at, kernels::StepHeader* header) const;
  void WriteInputs(const backend::Step& step, const kernels::StepHeader& header,
                   uint32_t* block) const;
  void WriteStates(const backend::Step& step, const kernels::StepHeader& header,
                   uint32_t* block) const;
  Status ChangeTables(const backend::Step& step, bool resident);
  // Of a step's packets those before op `end` of the program, and of these [from, to).
  struct Part {
    int32_t end = 0;
    uint32_t from = 0, to = UINT32_MAX;
  };
  Status SubmitRanks(const Form& form, const Part& part, Awaited* awaited);
  Status SubmitRank(int32_t rank, const Form& form, const Part& part, Awaited* awaited);
  // Out of line, so that bench/host-overhead finds it by name. Until every rank has come to its
  // point: false after timeout_ns, if that is not negative; TimedOut when nothing moves any more. A resident kernel
  // that has paused is resumed, or what it had to do is done, for which it takes the group's mutex, unless that is held.
  [[gnu::noinline]] StatusOr<bool> Wait(Awaited& awaited, int64_t timeout_ns, Mutex mutex = Mutex::kTake);
  uint64_t PacketsTaken() const;
  Status Hung(const Awaited& awaited);
  // Of a step of the resident kernel: the GPU whose workgroups have met least often.
  int32_t FurthestBehind() const;
  // Pages or slots of a cache on one rank: [layers][units], so far apart.
  struct Units {
    uint64_t at = 0, stride = 0, bytes = 0;
    int32_t layers = 0;
    uint32_t units = 0;
  };
  Units UnitsOf(int32_t cache, int32_t rank) const;
  bool IsPaged(int32_t cache) const {
    return cache >= 0 && static_cast<size_t>(cache) < shape_.pools.size() &&
           shape_.pools[static_cast<size_t>(cache)].list != backend::kNone;
  }
  // One of them in all layers, to or from host memory at `staging`.
  Status MoveUnit(int32_t rank, const Units& units, uint32_t unit, uint64_t staging, bool out) const;
  StatusOr<gpu::Buffer> UnitStaging(int32_t cache, int32_t rank, uint32_t unit) const;
  Status CopyPageOf(int32_t rank, const Units& pool, uint32_t from, uint32_t to);
  Status NothingInFlight(const char* what) const;
  gpu::Deadline Soon() const { return model_->gpus().Soon(); }

  uint32_t* Block(uint32_t parity) {
    return host_step_.host<uint32_t>() + uint64_t{parity} * shape_.step_words;
  }
  Flight& FlightOf(uint32_t number) { return flights_[number % kMostInFlight]; }
  const Flight& FlightOf(uint32_t number) const { return flights_[number % kMostInFlight]; }
  uint32_t InFlight() const { return sent_ - landed_; }
  kernels::ChoiceResult* ResultsOf(uint32_t index) const {
    return results_.host<kernels::ChoiceResult>() +
           uint64_t{index % kernels::kResultSlots} * shape_.options.max_logit_rows;
  }
  // Of the step polled last.
  uint64_t ResultRow(uint32_t i) const {
    return uint64_t{kernels::Parity(polled_)} * shape_.options.max_logit_rows + i;
  }

  const std::shared_ptr<const AmdGpuModel> model_;
  const backend::Program& program_;
  const AmdGpuContext* const source_;  // whose taps InputOps read, or null
  const Shape shape_;
  const std::vector<uint32_t> row_classes_;
  gpu::Buffer host_step_;  // [2] step blocks, then the changes of step_tables
  gpu::Buffer logits_;     // [2][max_logit_rows, logits_stride]
  std::vector<Rank> ranks_;
  gpu::Buffer results_;  // kernels::ChoiceResult [kResultSlots][max_logit_rows]
  PageTables tables_;
  std::array<Flight, kMostInFlight> flights_;
  std::unique_ptr<Resident> resident_;         // null: every step is packets
  std::atomic<uint64_t> resident_steps_{0}, resident_launches_{0}, resident_late_{0}, resident_commands_{0}, resident_pauses_{0},
      resident_no_room_{0};
  bool runs_posted_ = false;                   // RunPosted is at it
  std::string resident_refusal_;               // why, where it was to be
  // Flights are numbered from 1: the last one sent, the last one that is over, and the one polled last.
  uint32_t sent_ = 0, landed_ = 0, seen_ = 0;
  uint32_t submitted_ = 0;                     // index of the step or round submitted last; the first is 1
  uint32_t polled_ = 0;                        // of the one polled last
  bool left_out_ = false;
  // Of the step that ended last; no rows: none has.
  Form counted_;
  bool counted_resident_ = false;
  uint32_t counted_launches_ = 0;  // of the resident kernel
  uint64_t memory_bytes_ = 0;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_CONTEXT_H_
