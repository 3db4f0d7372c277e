// SPDX-License-Identifier: MIT
//
// How a Program runs on something. Three objects: a Backend is a group of ranks (devices, threads);
// LoadedModel is a Program's weights placed on it, shared and immutable; a Context is what one
// engine owns beside them: activations, KV pages, recurrent state. Everything above this floor sees
// only these classes.
//
// Threads: Backend and LoadedModel may be used from any thread at once. A Context is used by one
// thread at a time, except RequestStop and ForgetStop.
#ifndef MAINARCH_BACKEND_BACKEND_H_
#define MAINARCH_BACKEND_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "backend/head_dims.h"
#include "backend/program.h"
#include "base/log.h"
#include "base/status.h"

namespace mainarch::backend {

inline constexpr int kPageTokens = 16;

// What goes into matrix products. Sums, norms, softmax, router and the residual stream are fp32 in
// all.
enum class Activations : uint8_t {
  kF32,
  // Rounded to bf16 (8 significant bits) where the hardware has a matrix or dot product for it,
  // else as kF32. cpu/kernels.h and kernels/ops/tiles.h state the error of one product, which is
  // certain.
  //
  // Of a step's logits: each of 4 products a layer and the LM head sees inputs x_k (1 + d_k), |d_k|
  // <= 2^-8, roundings of different numbers and so independent, of a mean square of at most 2^-16
  // / 3. A sum of many terms w_k x_k d_k has then a root mean square of at most 2^-8 / sqrt(3) of
  // that of the terms' own sum, whatever K. Norms keep relative errors, and what layers add to the
  // residual stream is as large as what was there at most, so squares of relative errors add: over
  // L layers sqrt((4 L + 1) / 3) 2^-8 of the logits' root mean square, and their largest error to
  // their largest value as the one root mean square to the other. Tests hold steps to sqrt(4 L + 1)
  // 2^-8 of the largest logit, sqrt(3) more. A router sees such errors too: near a tie it may
  // choose another expert, and then no bound holds.
  kBF16,
  // On CPUs, with weights of codes of integers (HasInt8Dot of cpu/kernels.h, which states the error of one
  // product): 8 bits, with a factor for 32 columns. All others as kBF16.
  kInt8,
  // On GPUs whose matrix units take both as they are (MI355X), with weights of MXFP4, and of FP8 in blocks where
  // they lie so (TakesFp8Blocks of amdgpu/tiles.h; of experts gate and up): rounded to bf16 and then to MXFP8
  // (kernels/quant/mxfp8.h), e4m3 with a power of two for 32 columns. All others as kBF16.
  kMxfp8,
};

inline constexpr uint32_t kNoSlot = UINT32_MAX;
inline constexpr uint32_t kHere = UINT32_MAX;
// Of Step::inputs, beside rows of the source's step: what the sequence's state carries on (of an
// empty sequence zeros; its first row alone may ask), and, with this bit, a row of this context's
// own step that was polled last.
inline constexpr uint32_t kCarriedInput = UINT32_MAX;
inline constexpr uint32_t kOwnInput = UINT32_C(1) << 31;

// One token of a step.
struct StepRow {
  uint32_t token = 0;
  uint32_t position = 0;  // in its sequence
  uint32_t sequence = 0;  // index into Step::sequences
  // Not kHere: the token is the one that logit row `from` of the step before this one chose, and
  // `token` means nothing. Only where Context::max_in_flight() is 2.
  uint32_t from = kHere;
};

// The state after a sequence's row `row` of this step (0: its first) goes to slot `slot`.
struct StateOut {
  uint32_t row = 0;
  uint32_t slot = 0;
};

// What a step may read and write of one of Program::caches, for one sequence.
struct StepCache {
  // Paged: pages[i] holds positions [16 (first_page + i), 16 (first_page + i) + 16). What lies
  // before first_page is behind the cache's window of every row of the step.
  absl::Span<const uint32_t> pages;
  uint32_t first_page = 0;
  // Of a cache that keeps its first tokens: pages of these, as many as there are yet, from page 0 on.
  absl::Span<const uint32_t> kept;
  // Slots: the state before the sequence's first row, kNoSlot for that of an empty sequence; it is
  // only read. States are written to slots that nothing else of the step reads or writes.
  uint32_t state_in = kNoSlot;
  absl::Span<const StateOut> state_out;  // ascending rows
};

struct StepSequence {
  absl::Span<const StepCache> caches;  // one for each of Program::caches, in that order
  // Below ContextOptions::max_sequences and the same in every step of this sequence: a backend may
  // keep page lists by it, and take changes. No two sequences of a step have the same.
  uint32_t table = 0;
};

struct LogitBias {
  uint32_t token;
  float bias;  // added to the raw logit; -INFINITY bans the token
};

// What is to become of one logit row, if the context can choose tokens itself (Context::Chosen).
// The steps, their order and the random numbers are decode/sampler.h's: so are the tokens.
struct Choice {
  bool choose = false;    // false: the logits are wanted, and somebody else chooses
  bool read = true;       // the logits are wanted (too)
  float temperature = 0;  // 0: greedy
  float min_p = 0;
  float top_p = 0;  // 0: off
  uint32_t top_k = 0;
  float repetition = 1;  // the penalties, 1, 0, 0: off
  float frequency = 0;
  float presence = 0;
  uint64_t seed = 0;
  uint64_t position = 0;                 // that the chosen token will have
  absl::Span<const uint32_t> banned[2];  // tokens, in both lists
  absl::Span<const LogitBias> bias;      // added after the bans
  absl::Span<const uint32_t> mask;       // [vocab / 32] bits, set: allowed; empty: all are. First.
  absl::Span<const uint32_t> counted;    // distinct tokens to be penalised
  const uint32_t* times = nullptr;       // [vocab]: of a counted token, 1 + times produced
};

// How far a row goes on by itself, and the tokens behind which it does not.
struct Lease {
  uint32_t rounds = 0;  // behind the step, at most
  absl::Span<const uint32_t> stops[2];
  absl::Span<const uint32_t> slots;  // [rounds][caches of slots]: where each round's states go
};

// Rows of one sequence are adjacent and in ascending position. KV of all positions before a
// sequence's first row is already in its pages; the step writes those of its own rows. What the
// spans refer to must live until Submit returns.
struct Step {
  absl::Span<const StepRow> rows;
  absl::Span<const StepSequence> sequences;
  absl::Span<const uint32_t> logit_rows;  // ascending indices into rows; logits are made for these
  absl::Span<const Choice> choices;       // of each logit row; empty: all are read, none is chosen
  // Of each row, the row of the source's step polled last that InputOps take, or kCarriedInput, or
  // kOwnInput + row; empty: there are none.
  absl::Span<const uint32_t> inputs;
  // Rounds: the step again, for the token that each row has chosen, at the position behind, until no row goes
  // on; each ends like a step of its own. Logit row i is row i's, and chooses without reading; sequences' pages
  // hold what all rounds write. One of each row; empty: there are no rounds. Context::granted says how many.
  absl::Span<const Lease> leases;
};

struct LoadOptions {
  bool in_place = false;  // multiply straight from the mapped file: no copy, slower
  // Load returns at once and weights are moved behind it; until then steps multiply straight from
  // the file, with the same results. No progress is reported: ask LoadedModel::placement.
  bool behind = false;
  // Tests: called on the moving thread before each weight; an error ends the moving.
  std::function<Status(uint64_t done)> before_move;
  // (done, total) bytes; returning false cancels. Called on the loading thread.
  std::function<bool(uint64_t, uint64_t)> progress;
};

class Context;

// Whether steps run in a kernel that stays on each GPU, not as packets (GPUs only).
enum class ResidentMode : uint8_t {
  kOff,
  kOn,    // or the context is not made: Unsupported says why
  kAuto,  // where it can; Context::resident_refusal() says why not
};

struct ContextOptions {
  KvType kv_type = KvType::kBF16;
  Activations activations = Activations::kF32;
  uint32_t max_rows = 1;        // a step has at most so many
  uint32_t max_logit_rows = 1;  // of which so many ask for logits
  uint32_t max_sequences = 1;   // StepSequence::table is below it
  // [Program::caches]: pages in the pool of each paged cache, slots of each slot cache; 0 of the
  // other kind. Trailing zeros may be left out.
  std::vector<uint32_t> pages;
  std::vector<uint32_t> slots;
  size_t program = 0;  // which of LoadedModel::programs
  // In place of that one: a Program of the same weights by the same ids, with other caches.
  std::shared_ptr<const Program> variant;
  ResidentMode resident = ResidentMode::kOff;
  bool resident_times = false;  // Context::ResidentTimes
  // Where ranks hold the same KV head: they share the attention of rows from this position on, where the backend
  // does that. The bits are the same. 0: from where reading takes longer than what they have to tell each other.
  uint32_t share_from = 0;
  // What InputOps read: a context of the same model, which outlives this one, runs on the same thread
  // and has fewer than max_in_flight() steps in flight when it is read. Null: the Program has none.
  const Context* source = nullptr;
};

// K and V of one token in one layer, as attention reads them: [ranks][kv_heads of a rank][head_dim].
// Where there are fewer KV heads than ranks, neighbours hold the same ones.
struct KvToken {
  std::vector<float> k, v;
};

// What the last step took of a GPU group, counted by the host; all 0 on CPUs. Bytes are those that
// one rank sends to its peers, and the least that any all-reduce could do with.
struct StepCounts {
  uint32_t packets = 0;      // dispatches of one rank
  uint32_t submissions = 0;  // doorbells of one rank
  uint32_t host_waits = 0;
  bool resident = false;  // run by a kernel that was there, or was launched: packets counts that
  bool resident_left = false;  // no such kernel is there now: it has not waited for another step
  uint32_t all_reduces = 0;
  uint32_t rounds = 0;  // over the fabric, one after the other
  uint64_t link_bytes = 0;
  uint64_t least_link_bytes = 0;
};

// What a context's resident kernels have done, on the GPU that has most of it; all 0 where there are none.
struct ResidentCounts {
  uint64_t steps = 0;     // run by them
  uint64_t launches = 0;  // of the kernel: each is a hand-over by packet
  uint64_t late = 0;      // steps that the kernel had to wait for, because the host was not there yet
  uint64_t commands = 0;  // that the host gave it: a step, with the rounds behind it
  uint64_t pauses = 0;    // times that it left in the midst of a step, for others' packets
  uint64_t no_room = 0;   // steps that were packets, or ended as such, because others had the GPUs' compute units
};

// Of a launch that a resident kernel ran: when the first workgroup was ready for it and when all were, which is
// when it began, in microseconds of the GPU's clock.
struct OpTimes {
  double ready_us = 0, began_us = 0;
  uint32_t stop_at = 0;  // the op before which the kernel leaves if it is asked at this one; 0: it does not look
};

class Context {
 public:
  virtual ~Context() = default;

  // Starts a step behind those in flight, of which there may be max_in_flight(), this one counted.
  // An error: nothing was started. Allocates nothing. It may wait for what is in flight, and where a kernel that stays
  // has lost its place, for this step.
  virtual Status Submit(const Step& step) = 0;
  // Ends the oldest step in flight: true and it has run, an error and it has failed; false when it
  // has not ended within timeout_ns (< 0: waits for ever; the backend has a limit of its own for
  // steps that hang; one whose kernel has lost its place is waited for) or none is in flight. After a failed step, what the sequences' caches hold
  // of its rows, and the slots that it was to write, are undefined; all else is as it was. A step
  // submitted behind a failed one fails too.
  virtual StatusOr<bool> Poll(int64_t timeout_ns) = 0;
  // 1, or 2: a step can then be submitted before the one before it has been polled. A step with its rounds is
  // one of them.
  virtual uint32_t max_in_flight() const { return 1; }
  // Rounds that a step may have behind it, and those that the step submitted last was given: no more than its
  // leases name.
  virtual uint32_t max_rounds() const { return 0; }
  virtual uint32_t granted() const { return 0; }
  // Rounds that have not begun need not be run. They may end early for reasons of the context's own, too.
  virtual void Recall() {}
  // What was polled last had not run: the rounds before it had ended early. Nothing is in flight then.
  virtual bool left_out() const { return false; }
  // Submit and Poll, with nothing else in flight.
  Status Run(const Step& step);

  // Logits of the i-th logit row of the step that was polled last, [Program::logit_width()] fp32; valid until
  // max_in_flight() further steps have been submitted after it. Writable: the sampler works in
  // place.
  virtual absl::Span<float> Logits(uint32_t i) = 0;
  // The token that the context itself has chosen for the i-th logit row of the same step. Nothing:
  // it does not do that, had no room for the row's edits, or found no token that may be chosen; the
  // caller then samples from Logits.
  virtual absl::optional<uint32_t> Chosen(uint32_t i) const {
    (void)i;
    return absl::nullopt;
  }
  // Logits of a row whose choice did not ask to read them are there after this.
  virtual Status FetchLogits(uint32_t i) {
    (void)i;
    return OkStatus();
  }
  // Copies one page of a paged cache over another, in every layer and rank. Nothing in flight.
  virtual Status CopyPage(int32_t cache, uint32_t from, uint32_t to) = 0;
  // Steps in flight, and those submitted until ForgetStop, end soon with Cancelled, unless they are
  // done first. Any thread.
  void RequestStop() { stop_.store(true, std::memory_order_relaxed); }
  void ForgetStop() { stop_.store(false, std::memory_order_relaxed); }

  // Ok, or why nothing will run here any more: a device is lost. Any thread.
  virtual Status Health() const { return OkStatus(); }

  virtual StepCounts counts() const { return {}; }

  // Of the last step, run by a resident kernel.
  virtual StatusOr<std::vector<OpTimes>> ResidentTimes(int32_t) const {
    return Error(Code::kUnsupported, "no resident kernel ran");
  }
  // Any thread.
  virtual ResidentCounts resident_counts() const { return {}; }
  // Why steps are no resident kernel's, where ResidentMode::kAuto asked for one; else empty.
  virtual absl::string_view resident_refusal() const { return {}; }

  virtual uint64_t memory_bytes() const = 0;  // beside weights; KV pool as reserved

  // For checks against a reference: token `slot` of a page, in a layer of a paged cache; slow. Not
  // one that a step in flight writes.
  virtual StatusOr<KvToken> ReadKv(int32_t cache, int32_t layer, uint32_t page,
                                   uint32_t slot) const {
    return Error(Code::kUnsupported, "K and V of cache ", cache, ", layer ", layer, ", page ", page,
                 ", slot ", slot, " cannot be read back");
  }

  // What steps have written to one page or slot of a cache, of all layers and ranks, as bytes, and
  // back. They mean the same to every context with an equal content_form(), "" where there is none.
  // Reading: not what a step in flight writes; writing: nothing in flight, InvalidArgument for
  // another number of bytes. Slow.
  virtual std::string content_form() const { return ""; }
  virtual StatusOr<std::string> ReadContent(int32_t cache, uint32_t unit) const {
    return Error(Code::kUnsupported, "page or slot ", unit, " of cache ", cache, " cannot be read");
  }
  virtual Status WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) {
    return Error(Code::kUnsupported, "page or slot ", unit, " of cache ", cache,
                 " cannot be written, ", bytes.size(), " bytes");
  }

  // For tests: runs ops [0, end) only (what one launch does for two ops is done with the second),
  // then reads rows of a buffer of one rank as fp32.
  virtual Status RunPrefix(const Step& step, size_t end) = 0;
  virtual std::vector<float> ReadBuffer(int32_t rank, BufferId buffer, uint32_t rows) const = 0;

 protected:
  bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stop_{false};
};

inline Status Context::Run(const Step& step) {
  RETURN_IF_ERROR(Submit(step));
  return Poll(-1).status();
}

// A context that runs a step to its end inside Submit.
class ImmediateContext : public Context {
 public:
  Status Submit(const Step& step) final {
    result_ = RunNow(step);
    in_flight_ = true;
    return OkStatus();
  }
  StatusOr<bool> Poll(int64_t) final {
    if (!std::exchange(in_flight_, false)) return false;
    RETURN_IF_ERROR(std::exchange(result_, OkStatus()));
    return true;
  }

 protected:
  virtual Status RunNow(const Step& step) = 0;

 private:
  Status result_;
  bool in_flight_ = false;
};

// How far weights have got that are moved behind the steps.
struct Placement {
  uint64_t done = 0, total = 0;  // bytes in their final place, and to be there in the end
  Status status;                 // why it stopped short; the model works as it is
};

// What there is for caches at all, over all ranks, and what a page or slot of each takes of it, of
// one Program after the other; the latter empty: not known.
struct KvRoom {
  uint64_t bytes = 0;
  std::vector<uint64_t> unit_bytes;
};

class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual StatusOr<std::unique_ptr<Context>> CreateContext(const ContextOptions& options) const = 0;
  virtual const Program& program() const = 0;  // the first of programs()
  // All that run over these weights: a model, then what drafts for it.
  virtual std::vector<const Program*> programs() const { return {&program()}; }
  virtual uint64_t weight_bytes() const = 0;  // memory of our own, mapped files not counted
  virtual Placement placement() const { return {weight_bytes(), weight_bytes(), OkStatus()}; }
  virtual uint64_t huge_bytes() const { return 0; }  // of weight_bytes, in huge pages now
  // `variant`: in place of the first of programs(), where it is not null (ContextOptions).
  virtual KvRoom kv_room(KvType type, const Program* variant = nullptr) const {
    (void)type;
    (void)variant;
    return {};
  }
  virtual void WaitPlaced() const {}  // until all is in place, or the moving has failed
};

// What a context runs; `options.program` is one of the model's.
inline const Program& ProgramOf(const LoadedModel& model, const ContextOptions& options) {
  return options.variant != nullptr ? *options.variant : *model.programs()[options.program];
}

struct DeviceInfo {
  std::string name;  // "AMD EPYC …"
  std::string isa;   // "amx", "avx512_bf16", "avx2", "portable", "gfx950"
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  uint32_t compute_units = 0;  // threads or CUs
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int32_t ranks() const = 0;
  virtual std::vector<DeviceInfo> devices() const = 0;
  // Heads as its caches have them, zeros behind a head's own elements: as many, or more.
  virtual HeadDims StoredHeads(HeadDims of) const { return HeadsBySixteen(of); }
  // Weights that several Programs name, the same share of the same matrices, are placed once.
  virtual StatusOr<std::shared_ptr<const LoadedModel>> Load(
      std::vector<std::shared_ptr<const Program>> programs, const LoadOptions& options) = 0;
  StatusOr<std::shared_ptr<const LoadedModel>> Load(std::shared_ptr<const Program> program,
                                                    const LoadOptions& options) {
    return Load(std::vector<std::shared_ptr<const Program>>{std::move(program)}, options);
  }
};

struct BackendOptions {
  std::string device;            // "cpu", "cpu:4"; "" chooses
  uint32_t threads = 0;          // CPU threads, 0: chosen from affinity and cgroup quota
  // GPUs: a step, or an upload, that takes longer has hung, and the device is lost; 0: a minute.
  uint32_t step_timeout_ms = 0;
  Log log;                       // what changes in how steps run; called by whoever steps
  // "amx", "avx512_bf16", "avx512", "avx2", "portable"; "": the best the CPU has (tests)
  std::string cpu_target;
};

// NoDevice or InvalidArgument name the device string.
StatusOr<std::shared_ptr<Backend>> CreateBackend(const BackendOptions& options);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_BACKEND_H_
