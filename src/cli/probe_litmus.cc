// SPDX-License-Identifier: MIT
#include "cli/probe_litmus.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gpu/copy_queue.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "isa/kernel_images.h"
#include "kernels/litmus_args.h"

namespace mainarch::cli {
namespace {

using kernels::HandOverArgs;
using kernels::LitmusSeen;

constexpr uint64_t kDeadlineMs = 300'000;
constexpr uint32_t kGroupThreads = 256;  // kernels::kThreads
constexpr uint32_t kXcds = 8;
constexpr uint32_t kPairs = 16;

gpu::Deadline Soon() { return gpu::Deadline::In(kDeadlineMs); }

// A GPU with a queue of each kind and the litmus kernels.
class Machine {
 public:
  Status Open(gpu::Process& process, uint32_t index) {
    ASSIGN_OR_RETURN(device_, process.OpenDevice(index));
    ASSIGN_OR_RETURN(queue_, gpu::Queue::Create(*device_, {}));
    ASSIGN_OR_RETURN(copy_, gpu::CopyQueue::Create(*device_, {}));
    ASSIGN_OR_RETURN(const isa::KernelRef ref, isa::FindKernel(device_->chip().name, "litmus_echo"));
    ASSIGN_OR_RETURN(const gpu::CodeObject object,
                     gpu::CodeObject::Parse(ref.image->name, ref.image->bytes));
    ASSIGN_OR_RETURN(code_, gpu::LoadedCode::Load(*queue_, object, {0, copy_.get()}, Soon()));
    return OkStatus();
  }
  gpu::Device& device() { return *device_; }

  // Zeros.
  StatusOr<gpu::Buffer> Zeros(uint64_t bytes, gpu::Caching caching, gpu::Place place,
                              absl::Span<gpu::Device* const> peers = {}, bool host = false) {
    gpu::BufferOptions options;
    options.place = place;
    options.caching = caching;
    options.host_access = host;
    options.peers = peers;
    options.label = "litmus";
    ASSIGN_OR_RETURN(gpu::Buffer out, gpu::Buffer::Allocate(*device_, bytes, options));
    RETURN_IF_ERROR(copy_->Fill(out.va(), 0, out.size(), Soon()));
    ASSIGN_OR_RETURN(const uint64_t point, copy_->Submit(Soon()));
    RETURN_IF_ERROR(copy_->Wait(point, Soon()));
    return out;
  }
  StatusOr<gpu::Buffer> InHost(uint64_t bytes) {
    gpu::BufferOptions options;
    options.place = gpu::Place::kSystem;
    options.caching = gpu::Caching::kUncached;
    options.label = "litmus answers";
    ASSIGN_OR_RETURN(gpu::Buffer out, gpu::Buffer::Allocate(*device_, bytes, options));
    std::memset(out.host(), 0, out.size());
    return out;
  }

  // Its arguments lie at `kernarg`, and stay until it has ended.
  StatusOr<uint64_t> Submit(const char* kernel, uint64_t kernarg, uint32_t workgroups,
                            const gpu::AqlOrder& order = {}) {
    ASSIGN_OR_RETURN(const gpu::Kernel* found, code_->Find(kernel));
    gpu::Dispatch dispatch;
    dispatch.kernel_object = found->object;
    dispatch.kernarg = kernarg;
    dispatch.workgroup.x = kGroupThreads;
    dispatch.grid.x = kGroupThreads * workgroups;
    dispatch.group_bytes = found->group_bytes;
    dispatch.private_bytes = found->private_bytes;
    return queue_->SubmitSignalled(gpu::MakeDispatch(dispatch, order), kernel, Soon());
  }
  Status Finish(uint64_t point) {
    queue_->Ring();
    return queue_->Wait(point, Soon());
  }
  void Ring() { queue_->Ring(); }

 private:
  gpu::Device* device_ = nullptr;
  std::unique_ptr<gpu::Queue> queue_;
  std::unique_ptr<gpu::CopyQueue> copy_;
  std::unique_ptr<gpu::LoadedCode> code_;
};

template <class Args>
void Pack(const Args& args, uint32_t workgroups, uint8_t* to) {
  kernels::Kernarg<Args> kernarg;
  kernarg.args = args;
  kernarg.workers = workgroups;
  std::memcpy(to, &kernarg, sizeof kernarg);
}

// What receivers have seen.
struct Sum {
  uint64_t rounds = 0, wrong = 0, polls = 0;
  uint32_t sides = 0, whole = 0;  // those that came through all rounds

  void Add(const LitmusSeen& seen, uint32_t rounds_wanted) {
    rounds += seen.rounds;
    wrong += seen.wrong;
    polls = std::max(polls, uint64_t{seen.most_polls});
    ++sides;
    whole += seen.rounds == rounds_wanted;
  }
  void Tell(const char* of, LitmusAnswer* out) const {
    absl::StrAppend(&out->answer, wrong, " words wrong in ", rounds, " rounds of ", sides, " ", of,
                    ", at most ", polls, " polls");
    if (whole < sides) absl::StrAppend(&out->answer, "; ", sides - whole, " waited in vain");
    out->holds = wrong == 0 && whole == sides;
  }
};

// ---- hand-over between workgroups of one launch ----

struct HandOverCase {
  const char* name;
  const char* question;
  gpu::Caching caching;
  uint32_t mode, apart;
  const char* otherwise;  // null: not needed
};
constexpr uint32_t kFences = kernels::kLitmusFences, kSystem = kernels::kLitmusSystem;
constexpr HandOverCase kHandOvers[] = {
    {"hand_over_xcds", "VRAM as it is by default, fences of the device's scope, from XCD to XCD",
     gpu::Caching::kDefault, kFences, 1,
     "experts' activations, handed over within a launch, are stale: MoE models give wrong logits"},
    {"hand_over_same_xcd", "the same within an XCD", gpu::Caching::kDefault, kFences, kXcds,
     "the same, and barriers of a resident grid"},
    {"hand_over_uncached", "uncached VRAM, fences of the system's scope", gpu::Caching::kUncached,
     kFences | kSystem, 1, "all-reduces of more than 16 rows and logits of drawn rows are stale"},
    {"hand_over_coherent", "coherent VRAM, fences of the device's scope", gpu::Caching::kCoherent,
     kFences, 1, nullptr},
    {"no_fences", "VRAM as it is by default, without fences", gpu::Caching::kDefault, 0, 1, nullptr},
    {"no_fences_uncached", "uncached VRAM, without fences", gpu::Caching::kUncached, kSystem, 1,
     nullptr},
    {"plain_polls", "fences, but a flag that is polled by loads which caches may answer",
     gpu::Caching::kDefault, kFences | kernels::kLitmusPlainPolls, 1, nullptr},
};

StatusOr<LitmusAnswer> RunHandOver(Machine& gpu, const HandOverCase& test, const LitmusOptions& o) {
  const uint32_t workgroups = 2 * kPairs;
  const uint64_t line = uint64_t{kernels::kLitmusLine} * 4;
  ASSIGN_OR_RETURN(const gpu::Buffer payload,
                   gpu.Zeros(uint64_t{kPairs} * kernels::kLitmusWords * 4, test.caching, gpu::Place::kVram));
  ASSIGN_OR_RETURN(const gpu::Buffer flags,
                   gpu.Zeros(kPairs * 2 * line, test.caching, gpu::Place::kVram));
  ASSIGN_OR_RETURN(const gpu::Buffer seen, gpu.InHost(workgroups * sizeof(LitmusSeen)));
  ASSIGN_OR_RETURN(const gpu::Buffer kernarg, gpu.InHost(4096));
  HandOverArgs args;
  args.payload.address = payload.va();
  args.flags.address = flags.va();
  args.seen.address = seen.va();
  args.rounds = o.rounds;
  args.apart = test.apart;
  args.mode = test.mode;
  args.limit = o.polls;
  Pack(args, workgroups, kernarg.host());
  ASSIGN_OR_RETURN(const uint64_t point, gpu.Submit("litmus_hand_over", kernarg.va(), workgroups));
  RETURN_IF_ERROR(gpu.Finish(point));
  LitmusAnswer out = {test.name, test.question};
  Sum sum;
  uint32_t same = 0;
  for (uint32_t w = 0; w < workgroups; ++w) {
    if (w / test.apart % 2 == 0) continue;
    LitmusSeen sides[2];
    std::memcpy(&sides[0], seen.host() + (w - test.apart) * sizeof(LitmusSeen), sizeof(LitmusSeen));
    std::memcpy(&sides[1], seen.host() + w * sizeof(LitmusSeen), sizeof(LitmusSeen));
    same += sides[0].xcd == sides[1].xcd;
    sum.Add(sides[1], o.rounds);
  }
  sum.Tell("pairs", &out);
  absl::StrAppend(&out.answer, "; ", same, " on one XCD");
  return out;
}

// ---- words that carry their round ----

StatusOr<LitmusAnswer> RunWords(Machine& to, Machine* from, const char* name, const char* question,
                                gpu::Caching caching, const LitmusOptions& o) {
  Machine& sender = from != nullptr ? *from : to;
  gpu::Device* const sends = &sender.device();
  gpu::Device* const receives = &to.device();
  const auto peers = [&](gpu::Device* const& other) {
    return from != nullptr ? absl::MakeConstSpan(&other, 1) : absl::Span<gpu::Device* const>();
  };
  ASSIGN_OR_RETURN(const gpu::Buffer words,
                   to.Zeros(kGroupThreads * 8, caching, gpu::Place::kVram, peers(sends)));
  ASSIGN_OR_RETURN(const gpu::Buffer answers,
                   sender.Zeros(kGroupThreads * 4, caching, gpu::Place::kVram, peers(receives)));
  kernels::WordsArgs args;
  args.words.address = words.va();
  args.answers.address = answers.va();
  args.rounds = o.rounds;
  args.limit = o.polls;
  // Each GPU's own answers and arguments: a launch on both sides of a link, or one of two workgroups.
  std::vector<gpu::Buffer> seen, kernargs;
  std::vector<uint64_t> points;
  for (Machine* gpu : {&to, from}) {
    if (gpu == nullptr) break;
    ASSIGN_OR_RETURN(seen.emplace_back(), gpu->InHost(2 * sizeof(LitmusSeen)));
    ASSIGN_OR_RETURN(kernargs.emplace_back(), gpu->InHost(4096));
    args.seen.address = seen.back().va();
    args.role = from == nullptr ? 2 : gpu == &to ? 1 : 0;
    const uint32_t workgroups = from == nullptr ? 2 : 1;
    Pack(args, workgroups, kernargs.back().host());
    ASSIGN_OR_RETURN(points.emplace_back(), gpu->Submit("litmus_words", kernargs.back().va(), workgroups));
  }
  to.Ring();
  sender.Ring();
  RETURN_IF_ERROR(to.Finish(points[0]));
  if (from != nullptr) RETURN_IF_ERROR(sender.Finish(points[1]));
  LitmusSeen receiver;
  std::memcpy(&receiver, seen[0].host() + sizeof(LitmusSeen), sizeof receiver);
  Sum sum;
  sum.Add(receiver, o.rounds);
  LitmusAnswer out = {name, question};
  sum.Tell("receiver of 256 words", &out);
  return out;
}

// ---- packets ----

// One packet writes, the next reads what another XCD has written; again and again, so that caches hold what was
// there before.
StatusOr<LitmusAnswer> RunScopes(Machine& gpu, const char* name, const char* question, gpu::Scope scope,
                                 const LitmusOptions& o) {
  constexpr uint32_t kGroups = 64, kPassesAtMost = 64;
  const uint32_t passes = std::min(o.rounds, kPassesAtMost);
  ASSIGN_OR_RETURN(const gpu::Buffer words, gpu.Zeros(uint64_t{kGroups} * kernels::kLitmusWords * 4,
                                                      gpu::Caching::kDefault, gpu::Place::kVram));
  ASSIGN_OR_RETURN(const gpu::Buffer wrong, gpu.InHost(uint64_t{passes} * kGroups * 4));
  ASSIGN_OR_RETURN(const gpu::Buffer kernarg, gpu.InHost(uint64_t{passes} * 2 * 64));
  uint64_t point = 0;
  for (uint32_t pass = 0; pass < passes; ++pass) {
    for (uint32_t check : {0u, 1u}) {
      kernels::LitmusFillArgs args;
      args.words.address = words.va();
      args.wrong.address = wrong.va() + uint64_t{pass} * kGroups * 4;
      args.value = (pass + 1) << 20;
      args.check = check;
      const uint64_t at = (uint64_t{pass} * 2 + check) * 64;
      static_assert(sizeof(kernels::Kernarg<kernels::LitmusFillArgs>) <= 64);
      Pack(args, kGroups, kernarg.host() + at);
      gpu::AqlOrder order;
      // What the decoder's packets have between them; before the first and behind the last the system's.
      order.acquire = pass + check == 0 ? gpu::Scope::kSystem : scope;
      order.release = pass + 1 == passes && check != 0 ? gpu::Scope::kSystem : scope;
      ASSIGN_OR_RETURN(point, gpu.Submit("litmus_fill", kernarg.va() + at, kGroups, order));
    }
  }
  RETURN_IF_ERROR(gpu.Finish(point));
  uint64_t sum = 0;
  for (uint32_t i = 0; i < passes * kGroups; ++i) sum += wrong.host<uint32_t>()[i];
  LitmusAnswer out = {name, question};
  out.answer = absl::StrCat(sum, " words wrong in ", passes, " packets of ", kGroups, " workgroups");
  out.holds = sum == 0;
  return out;
}

// A packet of more workgroups than a chip has places, and one beside it whose workgroups, as many, wait for all of
// those: if any of these were dealt out before those are, they could fill the chip.
StatusOr<LitmusAnswer> RunBeside(Machine& gpu, const char* name, const char* question, const LitmusOptions& o) {
  constexpr uint32_t kGroups = 4096, kPassesAtMost = 16;
  const uint32_t passes = std::min(std::max(1u, o.rounds / 8), kPassesAtMost);
  ASSIGN_OR_RETURN(const gpu::Buffer counters,
                   gpu.Zeros(uint64_t{passes} * 64, gpu::Caching::kDefault, gpu::Place::kVram));
  ASSIGN_OR_RETURN(const gpu::Buffer polls, gpu.InHost(uint64_t{passes} * kGroups * 4));
  ASSIGN_OR_RETURN(const gpu::Buffer kernarg, gpu.InHost(uint64_t{passes} * 2 * 64));
  uint64_t point = 0;
  for (uint32_t pass = 0; pass < passes; ++pass) {
    for (const uint32_t waits : {0u, 1u}) {
      kernels::LitmusBesideArgs args;
      args.counter.address = counters.va() + uint64_t{pass} * 64;
      args.polls.address = polls.va() + uint64_t{pass} * kGroups * 4;
      args.waits = waits;
      args.goal = kGroups;
      args.limit = o.polls;
      const uint64_t at = (uint64_t{pass} * 2 + waits) * 64;
      static_assert(sizeof(kernels::Kernarg<kernels::LitmusBesideArgs>) <= 64);
      Pack(args, kGroups, kernarg.host() + at);
      gpu::AqlOrder order;
      order.barrier = waits == 0;
      ASSIGN_OR_RETURN(point, gpu.Submit("litmus_beside", kernarg.va() + at, kGroups, order));
    }
  }
  RETURN_IF_ERROR(gpu.Finish(point));
  uint32_t in_vain = 0, most = 0;
  for (uint32_t i = 0; i < passes * kGroups; ++i) {
    const uint32_t seen = polls.host<uint32_t>()[i];
    in_vain += seen == kernels::kLitmusInVain;
    if (seen != kernels::kLitmusInVain) most = std::max(most, seen);
  }
  LitmusAnswer out = {name, question};
  out.answer = absl::StrCat(in_vain, " of ", passes * kGroups, " workgroups waited in vain, others at most ", most, " polls");
  out.holds = in_vain == 0;
  return out;
}

// ---- what the host writes to VRAM ----

StatusOr<LitmusAnswer> RunArguments(Machine& gpu, const char* name, const char* question, bool flush,
                                    const LitmusOptions& o) {
  LitmusAnswer out = {name, question};
  if (!gpu.device().node().vram_is_host_visible()) {
    out.asked = false;
    out.answer = "not asked: the host cannot map VRAM";
    return out;
  }
  ASSIGN_OR_RETURN(const gpu::Buffer kernarg,
                   gpu.Zeros(4096, gpu::Caching::kDefault, gpu::Place::kVram, {}, /*host=*/true));
  ASSIGN_OR_RETURN(const gpu::Buffer told, gpu.InHost(64));
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= o.rounds; ++round) {
    kernels::EchoArgs args;
    args.out.address = told.va();
    args.value = round * 2654435761u;
    Pack(args, 1, kernarg.host());
    if (flush) RETURN_IF_ERROR(gpu.device().FlushHostWrites());
    ASSIGN_OR_RETURN(const uint64_t point, gpu.Submit("litmus_echo", kernarg.va(), 1));
    RETURN_IF_ERROR(gpu.Finish(point));
    wrong += *told.host<volatile uint32_t>() != args.value;
  }
  out.answer = absl::StrCat(wrong, " of ", o.rounds, " launches with old arguments");
  out.holds = wrong == 0;
  return out;
}

}  // namespace

StatusOr<std::vector<LitmusAnswer>> RunLitmus(kfd::Sys& sys, const LitmusOptions& o) {
  ASSIGN_OR_RETURN(const auto process, gpu::Process::Open(sys, {}));
  Machine gpu, peer;
  RETURN_IF_ERROR(gpu.Open(*process, o.index));
  std::vector<LitmusAnswer> out;
  // What breaks; null: it is not needed.
  const auto add = [&out](StatusOr<LitmusAnswer> answer, const char* otherwise) -> Status {
    RETURN_IF_ERROR(answer.status());
    answer->needed = otherwise != nullptr && answer->asked;
    if (otherwise != nullptr) answer->otherwise = otherwise;
    out.push_back(*std::move(answer));
    return OkStatus();
  };
  for (const HandOverCase& test : kHandOvers) {
    RETURN_IF_ERROR(add(RunHandOver(gpu, test, o), test.otherwise));
  }
  RETURN_IF_ERROR(add(RunWords(gpu, nullptr, "words_in_vram",
                               "words of 64 bits, a number beside the round, no fence: VRAM as it is by default",
                               gpu::Caching::kDefault, o),
                      "a GPU by itself waits for the chosen token for ever, or takes a wrong one"));
  RETURN_IF_ERROR(add(RunWords(gpu, nullptr, "words_uncached", "the same, uncached VRAM",
                               gpu::Caching::kUncached, o),
                      "all-reduces add wrong numbers"));
  LitmusAnswer between = {"words_between_gpus", "the same, pushed into another GPU's uncached VRAM",
                          "not asked: there is one GPU"};
  between.asked = false;
  const uint32_t other = o.index == 0 ? 1 : 0;
  const bool has_peer = process->topology().Gpus().size() > 1;
  if (has_peer) {
    RETURN_IF_ERROR(peer.Open(*process, other));
    ASSIGN_OR_RETURN(between, RunWords(gpu, &peer, "words_between_gpus", between.question.c_str(),
                                       gpu::Caching::kUncached, o));
  }
  RETURN_IF_ERROR(add(between, "all-reduces over several GPUs add wrong numbers"));
  RETURN_IF_ERROR(add(RunScopes(gpu, "packets_agent", "a packet reads what the one before wrote: scopes of the agent",
                                gpu::Scope::kAgent, o),
                      "every launch of a step may read what the one before has not written yet"));
  RETURN_IF_ERROR(add(RunScopes(gpu, "packets_none", "the same with no scopes", gpu::Scope::kNone, o), nullptr));
  RETURN_IF_ERROR(add(RunBeside(gpu, "packets_beside",
                                "workgroups of a packet beside another are dealt out behind all of the other's", o),
                      "attention beside the product that it waits for may fill the chip before that has begun: steps of "
                      "one row hang until their deadline"));
  RETURN_IF_ERROR(add(RunArguments(gpu, "arguments_flushed",
                                   "arguments that the host writes to VRAM, with the flush of its write path",
                                   true, o),
                      "kernels run with old arguments: nothing works"));
  RETURN_IF_ERROR(add(RunArguments(gpu, "arguments_not_flushed", "the same without the flush", false, o), nullptr));
  return out;
}

}  // namespace mainarch::cli
