// SPDX-License-Identifier: MIT
//
// How an engine is made: options with every default resolved, pools within the budget, contexts.
#include <algorithm>
#include <utility>

#include "decode/engine_impl.h"
#include "decode/kv_budget.h"

namespace mainarch::decode {
namespace {

constexpr uint32_t kMaxStepTokens = 1 << 20;
constexpr uint64_t kMaxPages = uint64_t{1} << 31;
// Rows of a step by default: enough to stream weights once for many prompt tokens, few enough that
// decoders beside them do not wait long.
constexpr uint32_t kDefaultStepTokens = 512;
// Going back costs half of that on average; at most a few hundred states of some ten MB a sequence.
constexpr uint32_t kDefaultSnapshotTokens = 512;
constexpr uint32_t kMaxSnapshots = 256;
constexpr uint32_t kMaxDrafts = 64;

// Rounds of a model with states, by default: the host then says something for every eighth token, and each sequence has
// as many slots more, of some MB each.
constexpr uint32_t kStateRounds = 7;

PoolWish WishOf(const EngineOptions& o, uint32_t rounds, bool fixed_pages) {
  return {{o.kv_tokens / backend::kPageTokens, o.max_sequences, o.max_step_tokens, o.max_drafts,
           o.snapshots, rounds},
          fixed_pages,
          o.state_slots};
}

// Where steps may have rounds behind them.
uint32_t StateRounds(const EngineOptions& o) {
  return o.resident == backend::ResidentMode::kOff || o.max_drafts > 0 ? 0 : kStateRounds;
}

// Chosen by what can be of use, where the caller did not say.
uint32_t StepTokens(const EngineOptions& wanted, const EngineOptions& resolved) {
  if (wanted.max_step_tokens > 0) return wanted.max_step_tokens;
  const uint64_t useful = std::min<uint64_t>(kDefaultStepTokens, resolved.kv_tokens);
  return std::max<uint32_t>(static_cast<uint32_t>(useful), resolved.max_sequences);
}

}  // namespace

StatusOr<EngineImpl::Sizes> EngineImpl::Resolve(const ModelFacts& facts,
                                                const EngineOptions& options,
                                                const Budget& budget) {
  EngineOptions o = options;
  if (o.max_sequences == 0) o.max_sequences = 1;
  if (o.max_sequences > kMaxSequences) {
    return Error(Code::kInvalidArgument, "max_sequences ", o.max_sequences, " is more than ",
                 kMaxSequences);
  }
  if (o.max_sequence_tokens > facts.max_position) {
    return Error(Code::kInvalidArgument, "max_sequence_tokens ", o.max_sequence_tokens,
                 " is more than the model's ", facts.max_position, " positions");
  }
  if (o.max_sequence_tokens == 0) {
    o.max_sequence_tokens =
        static_cast<uint32_t>(std::min<uint64_t>(facts.max_position, UINT32_MAX));
  }
  if (o.max_step_tokens > kMaxStepTokens) {
    return Error(Code::kInvalidArgument, "max_step_tokens ", o.max_step_tokens, " is more than ",
                 kMaxStepTokens);
  }
  uint64_t pages = uint64_t{o.max_sequences} * model::PagesFor(o.max_sequence_tokens);
  if (o.kv_tokens > 0) pages = (o.kv_tokens - 1) / backend::kPageTokens + 1;
  if (pages > kMaxPages) {
    return Error(Code::kInvalidArgument, "kv_tokens ", pages * backend::kPageTokens,
                 " (max_sequences * max_sequence_tokens by default) is more than ",
                 kMaxPages * backend::kPageTokens);
  }
  o.kv_tokens = pages * backend::kPageTokens;
  if (o.max_drafts > kMaxDrafts || o.snapshots > kMaxSnapshots) {
    return Error(Code::kInvalidArgument, "max_drafts ", o.max_drafts, ", snapshots ", o.snapshots,
                 " are more than ", kMaxDrafts, ", ", kMaxSnapshots);
  }
  if (o.snapshot_tokens == 0) o.snapshot_tokens = kDefaultSnapshotTokens;
  o.snapshot_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(model::PagesFor(o.snapshot_tokens), kMaxPages / backend::kPageTokens) *
      backend::kPageTokens);
  // With the steps that this many pages are good for; of fewer pages they get smaller.
  o.max_step_tokens = StepTokens(options, o);
  RETURN_IF_ERROR(PoolSizes(facts.caches, WishOf(o, 0, false)).status());
  ASSIGN_OR_RETURN(const model::CacheDemand demand,
                   DemandWithin(facts.caches, WishOf(o, StateRounds(o), options.kv_tokens > 0), budget));
  o.kv_tokens = demand.pages * backend::kPageTokens;
  o.snapshots = demand.snapshots;
  o.max_step_tokens = StepTokens(options, o);
  // A vector takes no more than a row of x does: all rows may give one.
  if (facts.vectors > 0 && o.logit_rows == 0) o.logit_rows = o.max_step_tokens;
  const uint64_t all_logits = uint64_t{o.max_sequences} * (1 + uint64_t{o.max_drafts});
  o.logit_rows = static_cast<uint32_t>(std::min<uint64_t>(
      o.max_step_tokens, std::max<uint64_t>(o.logit_rows, all_logits)));
  ASSIGN_OR_RETURN(std::vector<uint32_t> pools, PoolSizes(facts.caches, WishOf(o, demand.rounds, false)));
  return Sizes{o, std::move(pools)};
}

StatusOr<EngineImpl::Contexts> EngineImpl::ContextsOf(const backend::LoadedModel& weights,
                                                      const ModelFacts& facts, const Sizes& sizes) {
  const EngineOptions& o = sizes.options;
  backend::ContextOptions model;
  model.kv_type = o.kv_type;
  model.variant = facts.variant;
  model.activations = o.activations;
  model.resident = o.resident;
  model.max_rows = o.max_step_tokens;
  model.max_logit_rows = o.logit_rows;
  model.max_sequences = o.max_sequences;
  backend::ContextOptions head = model;
  head.max_logit_rows = o.max_sequences;
  head.program = 1;
  head.variant = nullptr;  // what drafts is of no use that a better type would improve
  head.resident = backend::ResidentMode::kOff;  // its steps come between those of the model
  const size_t first = facts.caches.size() - facts.head_caches.size();
  for (size_t c = 0; c < sizes.pools.size(); ++c) {
    backend::ContextOptions& context = c < first ? model : head;
    const size_t own = c < first ? c : c - first;
    std::vector<uint32_t>& counts = facts.caches[c].slots ? context.slots : context.pages;
    counts.resize(own + 1);
    counts[own] = sizes.pools[c];
  }
  Contexts made;
  ASSIGN_OR_RETURN(made.model, weights.CreateContext(model));
  if (facts.head_caches.empty()) return made;
  head.source = made.model.get();
  ASSIGN_OR_RETURN(made.head, weights.CreateContext(head));
  return made;
}

StatusOr<EngineImpl::Contexts> EngineImpl::CreateContexts(const backend::LoadedModel& weights,
                                                          const ModelFacts& facts,
                                                          const EngineOptions& wanted,
                                                          Sizes* sizes) {
  Budget budget = BudgetOf(weights.kv_room(wanted.kv_type, facts.variant.get()), wanted.memory_bytes);
  while (true) {
    ASSIGN_OR_RETURN(*sizes, Resolve(facts, wanted, budget));
    ASSIGN_OR_RETURN(Contexts made, ContextsOf(weights, facts, *sizes));
    const uint64_t bytes = made.memory_bytes();
    if (bytes <= budget.bytes) return made;
    // What is beside the caches is known now. Less is left for them than they took, so that each
    // round makes them smaller.
    budget.beside = bytes - std::min(bytes, PoolBytes(sizes->pools, budget));
  }
}

}  // namespace mainarch::decode
