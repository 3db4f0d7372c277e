// SPDX-License-Identifier: MIT
#include "decode/engine_impl.h"

// Inlined: one shared object less for every host to load.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "decode/export.h"
#include "decode/kv_budget.h"

namespace mainarch::decode {
namespace {

// Two engines, also one in the memory of another that is gone, have different masks: all but the
// bits of an index are those of a hash of where and when (splitmix64). Bit 16 keeps 0 from being
// an id: an index is below kMaxSequences.
uint64_t IdMask(const void* engine) {
  uint64_t x = reinterpret_cast<uintptr_t>(engine) +
               static_cast<uint64_t>(NowNs()) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return (x ^ x >> 31) | kMaxSequences;
}

// Tells models apart whose tokens mean other things, or whose logits have another shape.
uint64_t FingerprintOf(const model::ModelConfig& c) {
  std::string text =
      absl::StrCat(c.model_type, " ", c.vocab, " ", c.hidden, " ", c.layers, " ", c.heads, " ",
                   c.kv_heads, " ", c.head_dim, " ", c.intermediate, " ", c.experts, " ",
                   c.experts_per_token, " ", c.max_position);
  if (c.delta.key_heads > 0) {
    absl::StrAppend(&text, " ", c.delta.key_heads, " ", c.delta.value_heads, " ", c.delta.key_dim,
                    " ", c.delta.value_dim, " ", c.delta.taps);
  }
  if (c.ValueDim() != c.head_dim) absl::StrAppend(&text, " ", c.ValueDim());
  return XXH64(text.data(), text.size(), 0);
}

std::vector<model::CachePool> MakePools(const std::vector<model::CacheForm>& forms,
                                        const std::vector<uint32_t>& sizes) {
  std::vector<model::CachePool> pools;
  for (size_t c = 0; c < forms.size(); ++c) {
    pools.push_back({forms[c], model::PagePool(sizes[c])});
  }
  return pools;
}

// Of each layer; of one without attention there is no such place.
std::vector<KvPlace> KvPlacesOf(const backend::Program& program) {
  std::vector<KvPlace> places(program.layer_ends.size(), {SIZE_MAX, 0});
  size_t layer = 0;
  for (size_t i = 0; i < program.ops.size() && layer < places.size(); ++i) {
    if (const auto* attention = std::get_if<backend::AttentionOp>(&program.ops[i])) {
      places[layer] = {static_cast<size_t>(attention->cache), attention->layer};
      if (attention->near != backend::kNone) places[layer].near = static_cast<size_t>(attention->near);
    }
    layer += static_cast<int32_t>(i) == program.layer_ends[layer];
  }
  return places;
}

// The first cache without a window: what the scheduler plans with.
size_t FirstWhole(const std::vector<model::CachePool>& pools) {
  size_t c = 0;
  while (c < pools.size() && !pools[c].form.whole()) ++c;
  return c;
}

}  // namespace

// Holds `busy_` for one call.
class EngineImpl::Call {
 public:
  enum Allowed : uint32_t {
    kInFlight = 1,  // also while a step is in flight
    kLost = 2,      // also when the device is lost
  };
  explicit Call(const EngineImpl* engine, uint32_t allowed = 0) : engine_(engine) {
    status_ = engine->process_.Check();
    if (!status_.ok()) return;
    held_ = !engine->busy_.exchange(true, std::memory_order_acquire);
    if (!held_) {
      status_ = Error(Code::kBusy, "another thread is in a call on this engine");
    } else if (engine->in_flight_ && (allowed & kInFlight) == 0) {
      status_ = Error(Code::kBusy, "a submitted step has not been waited for");
    } else if ((allowed & kLost) == 0) {
      status_ = engine->Health();
    }
  }
  ~Call() {
    if (held_) engine_->busy_.store(false, std::memory_order_release);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const Status& status() const { return status_; }

 private:
  const EngineImpl* engine_;
  bool held_ = false;
  Status status_;
};

// A slot taken for a new sequence, given back unless it was opened.
class EngineImpl::NewSlot {
 public:
  explicit NewSlot(EngineImpl* engine)
      : engine_(engine), index_(engine->free_slots_.TakeLowest()) {}
  ~NewSlot() {
    if (index_ == model::kNoPage || opened_) return;
    engine_->slots_[index_].Close();
    engine_->free_slots_.Put(index_);
  }
  NewSlot(const NewSlot&) = delete;
  NewSlot& operator=(const NewSlot&) = delete;

  Status status() const {
    if (index_ != model::kNoPage) return OkStatus();
    return Error(Code::kBusy, "all ", engine_->slots_.size(),
                 " sequences (max_sequences) are open: close one first");
  }
  Sequence& sequence() { return engine_->slots_[index_]; }

  SequenceId Opened() {
    Sequence& s = sequence();
    opened_ = true;
    s.open = true;
    s.arrival = ++engine_->arrivals_;
    if (++s.generation == 0) s.generation = 1;
    engine_->may_work_ = true;
    engine_->open_.fetch_add(1, std::memory_order_relaxed);
    engine_->Publish();
    return engine_->IdOf(index_);
  }

 private:
  EngineImpl* engine_;
  uint32_t index_;
  bool opened_ = false;
};

StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const model::Model> model,
                                                 const EngineOptions& options) {
  const model::ModelConfig& config = model->config();
  ModelFacts facts;
  facts.vocab = static_cast<uint32_t>(config.vocab);
  if (model->part() == model::Part::kVectors) facts.vectors = static_cast<uint32_t>(config.hidden);
  facts.max_position = static_cast<uint64_t>(config.max_position);
  facts.eos_ids = config.eos_ids;
  facts.fingerprint = FingerprintOf(config);
  const backend::LoadedModel& weights = model->weights();
  if (options.kv_tiers.any()) {
    ASSIGN_OR_RETURN(facts.variant, model::WithKvTiers(weights.program(), options.kv_tiers, options.kv_type));
  }
  const backend::Program& program = facts.variant != nullptr ? *facts.variant : weights.program();
  facts.caches = model::FormsOf(program);
  facts.kv_places = KvPlacesOf(program);
  const std::vector<const backend::Program*> programs = weights.programs();
  if (programs.size() > 1) facts.head_caches = model::FormsOf(*programs[1]);
  return CreateEngine(std::move(model), weights, facts, options);
}

StatusOr<std::unique_ptr<Engine>> CreateEngine(std::shared_ptr<const void> owner,
                                               const backend::LoadedModel& weights,
                                               const ModelFacts& facts,
                                               const EngineOptions& options) {
  return EngineImpl::Create(std::move(owner), weights, facts, options);
}

namespace {

// So many that each sequence finds a slot for each of them, whatever the others hold.
uint32_t RoundsOf(const std::vector<model::CachePool>& pools, const EngineOptions& o) {
  uint64_t rounds = model::kMostReserved;
  for (const model::CachePool& pool : pools) {
    const uint64_t own = pool.units.total() / o.max_sequences, others = 3 + uint64_t{o.max_drafts} + o.snapshots;
    if (pool.form.slots) rounds = std::min(rounds, own - std::min(own, others));
  }
  return static_cast<uint32_t>(rounds);
}

}  // namespace

EngineImpl::EngineImpl(std::shared_ptr<const void> owner, const ModelFacts& facts,
                       const Sizes& sizes, const Budget& room)
    : owner_(std::move(owner)),
      id_mask_(IdMask(this)),
      options_(sizes.options),
      fingerprint_(facts.fingerprint),
      kv_places_(facts.kv_places),
      pools_(MakePools(facts.caches, sizes.pools)),
      state_rounds_(RoundsOf(pools_, options_)),
      model_caches_(facts.caches.size() - facts.head_caches.size()),
      whole_cache_(FirstWhole(pools_)),
      whole_(whole_cache_ < pools_.size() ? &pools_[whole_cache_].units : nullptr),
      free_slots_(options_.max_sequences),
      slots_(options_.max_sequences),
      ready_(options_.max_sequences),
      scheduler_(options_.max_sequences, whole_ == nullptr ? 0 : whole_->total()),
      sampler_(facts.vocab),
      views_(options_.max_sequences),
      rows_(options_.max_step_tokens),
      drafts_(size_t{options_.max_sequences} * options_.max_drafts),
      tokens_(size_t{options_.max_sequences} * (1 + options_.max_drafts)),
      logprobs_(tokens_.size() * (1 + kMaxLogprobs)) {
  limits_.vocab = facts.vocab;
  vectors_ = facts.vectors;
  limits_.logit_width = vectors_ > 0 ? vectors_ : facts.vocab;
  limits_.max_tokens = options_.max_sequence_tokens;
  if (whole_ != nullptr) limits_.max_tokens = std::min(limits_.max_tokens, options_.kv_tokens);
  limits_.max_drafts = options_.max_drafts;
  limits_.snapshot_tokens = options_.snapshot_tokens;
  limits_.snapshots = options_.snapshots;
  limits_.prefixes = options_.prefix_cache;
  limits_.eos_ids = facts.eos_ids;
  // An end token outside the vocabulary can be neither sampled nor banned.
  std::erase_if(limits_.eos_ids, [&](uint32_t id) { return id >= facts.vocab; });
  step_sequences_.reserve(options_.max_sequences);
  logit_rows_.reserve(options_.logit_rows);
  choices_.reserve(options_.logit_rows);
  leases_.reserve(options_.max_sequences);
  outcomes_.reserve(options_.max_sequences);
  wishes_.reserve(options_.max_sequences);
  ahead_.reserve(options_.max_sequences);
  hooks_.copy = [this](int32_t cache, uint32_t from, uint32_t to) {
    LandAll();
    const CachePlace place = PlaceOf(static_cast<size_t>(cache));
    return place.context->CopyPage(place.cache, from, to);
  };
  hooks_.reclaim = [this] { return ReclaimSnapshot(); };
  hooks_.forget = [this](size_t cache, uint32_t page) { prefixes_->Forget(cache, page); };
  ahead_hooks_.copy = [](int32_t, uint32_t, uint32_t) {
    return Error(Code::kBusy, "a copy of a page, which has to wait");
  };
  ahead_hooks_.reclaim = [] { return false; };
  ahead_hooks_.forget = hooks_.forget;
  if (!options_.prefix_cache) return;
  prefixes_ = std::make_unique<model::PrefixTree>(&pools_, MostBlocks(room), limits_.max_tokens);
}

StatusOr<std::unique_ptr<Engine>> EngineImpl::Create(std::shared_ptr<const void> owner,
                                                     const backend::LoadedModel& weights,
                                                     const ModelFacts& given,
                                                     const EngineOptions& wanted) {
  ModelFacts facts = given;
  EngineOptions options = wanted;
  RETURN_IF_ERROR(ResolveDrafts(&facts, &options));
  Sizes sizes;
  ASSIGN_OR_RETURN(Contexts contexts, CreateContexts(weights, facts, options, &sizes));
  const Budget room = BudgetOf(weights.kv_room(options.kv_type, facts.variant.get()), options.memory_bytes);
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(owner), facts, sizes, room));
  ASSIGN_OR_RETURN(engine->process_, ProcessGuard::Create());
  engine->context_ = std::move(contexts.model);
  if (contexts.head != nullptr) {
    engine->head_ = std::make_unique<DraftHead>(
        std::move(contexts.head), engine->model_caches_, facts.head_caches.size(),
        sizes.options.max_sequences, sizes.options.max_step_tokens);
  }
  EngineImpl* raw = engine.get();
  ASSIGN_OR_RETURN(engine->runner_, StepRunner::Create([raw] { return raw->Execute(); }));
  engine->Publish();
  return std::unique_ptr<Engine>(std::move(engine));
}

EngineImpl::~EngineImpl() {
  if (runner_ == nullptr) return;  // creation failed
  if (!process_.Ours()) {
    // The step thread and the backend's own exist in the parent only; to wait for them, or for
    // locks they held at the fork, would hang.
    (void)runner_.release();
    (void)head_.release();
    (void)context_.release();
    return;
  }
  Cancel();
  runner_.reset();
  context_->RequestStop();
  Drain();
}

void EngineImpl::Publish() {
  const uint64_t pages = whole_ == nullptr ? options_.kv_tokens / backend::kPageTokens
                                           : whole_->free_pages() + PagesAhead();
  free_pages_.store(pages, std::memory_order_relaxed);
  if (prefixes_ == nullptr) return;
  prefix_evictions_.store(prefixes_->counts().evictions, std::memory_order_relaxed);
  prefix_held_.store(prefixes_->counts().blocks * backend::kPageTokens, std::memory_order_relaxed);
}

// One of the sequence that has not run for the longest time.
bool EngineImpl::ReclaimSnapshot() {
  Sequence* oldest = nullptr;
  for (Sequence& s : slots_) {
    if (!s.open || !s.caches().has_snapshots()) continue;
    if (oldest == nullptr || s.last_step < oldest->last_step) oldest = &s;
  }
  if (oldest != nullptr) oldest->caches().DropSnapshot();
  return oldest != nullptr;
}

SequenceId EngineImpl::IdOf(uint32_t index) const {
  return (uint64_t{slots_[index].generation} << 32 | index) ^ id_mask_;
}

StatusOr<uint32_t> EngineImpl::IndexOf(SequenceId id) const {
  const uint32_t index = static_cast<uint32_t>(id ^ id_mask_);
  const uint32_t generation = static_cast<uint32_t>((id ^ id_mask_) >> 32);
  if (index >= slots_.size() || !slots_[index].open || slots_[index].generation != generation) {
    return Error(Code::kNotFound, "sequence 0x", absl::Hex(id), " is not open on this engine");
  }
  return index;
}

StatusOr<Sequence*> EngineImpl::Find(SequenceId id) {
  ASSIGN_OR_RETURN(const uint32_t index, IndexOf(id));
  return &slots_[index];
}

Status EngineImpl::CheckSequence(const SequenceOptions& options) const {
  RETURN_IF_ERROR(CheckOptions(options, limits_.vocab));
  if (vectors_ == 0 || (options.manual && options.prompt_logprobs == 0)) return OkStatus();
  return Error(Code::kInvalidArgument,
               "the model was opened for vectors, which are no logits: its sequences are manual, and have no ",
               "prompt_logprobs");
}

StatusOr<SequenceId> EngineImpl::Open(const SequenceOptions& options) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  RETURN_IF_ERROR(CheckSequence(options));
  NewSlot slot(this);
  RETURN_IF_ERROR(slot.status());
  slot.sequence().Open(options, &limits_, &pools_);
  ReserveEdits(options);
  return slot.Opened();
}

void EngineImpl::ReserveEdits(const SequenceOptions& options) {
  sampler_.Reserve(limits_.eos_ids.size() + options.stop_tokens.size() + options.logit_bias.size() +
                   std::min<uint64_t>(limits_.vocab, limits_.max_tokens));
}

void EngineImpl::UpdateReady(const Sequence& sequence) {
  ready_.Set(static_cast<uint32_t>(&sequence - slots_.data()), sequence.Ready());
}

Status EngineImpl::Close(SequenceId id) {
  const Call call(this, Call::kLost);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const uint32_t index, IndexOf(id));
  Sequence& s = slots_[index];
  s.Close();
  s.open = false;
  ready_.Set(index, false);
  free_slots_.Put(index);
  open_.fetch_sub(1, std::memory_order_relaxed);
  Publish();
  return OkStatus();
}

StatusOr<SequenceId> EngineImpl::Fork(SequenceId id) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const from, Find(id));
  NewSlot slot(this);
  RETURN_IF_ERROR(slot.status());
  Sequence& to = slot.sequence();
  to.Open(from->options(), &limits_, &pools_);
  to.ForkFrom(*from);
  const Sequence::LogitsPlace place = from->logits_place();
  if (place == Sequence::LogitsPlace::kStep || place == Sequence::LogitsPlace::kRows) {
    to.SetStepLogits(from->step_logits(), place == Sequence::LogitsPlace::kStep);
  }
  if (place == Sequence::LogitsPlace::kOwn) to.KeepLogits(from->own_logits());
  to.last_step = from->last_step;
  UpdateReady(to);
  return slot.Opened();
}

Status EngineImpl::SetSeed(SequenceId id, uint64_t seed) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  s->set_seed(seed);
  return OkStatus();
}

Status EngineImpl::SetOptions(SequenceId id, const SequenceOptions& options) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  RETURN_IF_ERROR(CheckSequence(options));
  RETURN_IF_ERROR(s->CanTake(options));
  ReserveEdits(options);
  s->SetOptions(options);
  return OkStatus();
}

Status EngineImpl::SetMask(SequenceId id, absl::Span<const uint32_t> words) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  if (s->options().manual) {
    return Error(Code::kInvalidArgument, "a mask for a manual sequence, whose caller samples");
  }
  if (!words.empty()) sampler_.ReserveMask();
  return s->SetMask(words);
}

StatusOr<size_t> EngineImpl::Ready(absl::Span<SequenceId> out) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  if (ready_.size() > out.size()) return size_t{ready_.size()};
  size_t n = 0;
  for (uint32_t i = ready_.begin(); i != ready_.end(); i = ready_.next(i)) out[n++] = IdOf(i);
  return n;
}

StatusOr<SequenceState> EngineImpl::Save(SequenceId id, bool content) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const Sequence* const s, Find(id));
  SequenceState state = s->Save();
  if (content) RETURN_IF_ERROR(SaveContent(*s, &state));
  return state;
}

// The last token runs again, so that there are logits to go on from.
Status EngineImpl::SaveContent(const Sequence& s, SequenceState* state) {
  state->form = content_form();
  if (state->form.empty()) {
    return Error(Code::kUnsupported, "this backend does not give the content of its caches");
  }
  if (s.tokens().empty()) return OkStatus();
  state->stored = s.caches().StandsAt(s.tokens().size() - 1);
  if (state->stored == 0) return OkStatus();
  for (size_t c = 0; c < pools_.size(); ++c) {
    std::string bytes;
    for (const uint32_t unit : s.caches().UnitsAt(c, state->stored)) {
      ASSIGN_OR_RETURN(const std::string one,
                       PlaceOf(c).context->ReadContent(PlaceOf(c).cache, unit));
      bytes += one;
    }
    state->content.push_back(std::move(bytes));
  }
  return OkStatus();
}

Status EngineImpl::LoadContent(const SequenceState& state, Sequence* s) {
  if (state.stored == 0 || state.form != content_form()) return OkStatus();
  if (state.content.size() != pools_.size()) {
    return Error(Code::kInvalidArgument, "content of ", state.content.size(), " caches; there are ",
                 pools_.size());
  }
  // Pages that a dropped step still writes to are free.
  DropAhead();
  LandAll();
  const Status taken = s->caches().TakeUnits(state.stored);
  if (CodeOf(taken) == Code::kKvFull) return OkStatus();
  RETURN_IF_ERROR(taken);
  for (size_t c = 0; c < pools_.size(); ++c) {
    const std::vector<uint32_t> units = s->caches().UnitsAt(c, state.stored);
    const absl::string_view bytes = state.content[c];
    // At a page's first position a window of one token holds none.
    if (units.empty() ? !bytes.empty() : bytes.size() % units.size() != 0) {
      return Error(Code::kInvalidArgument, "content of cache ", c, ": ", bytes.size(),
                   " bytes are not those of ", units.size(), " pages or slots");
    }
    const size_t size = units.empty() ? 0 : bytes.size() / units.size();
    for (size_t i = 0; i < units.size(); ++i) {
      RETURN_IF_ERROR(PlaceOf(c).context->WriteContent(PlaceOf(c).cache, units[i],
                                                       bytes.substr(i * size, size)));
    }
  }
  s->set_foreign();
  return OkStatus();
}

StatusOr<SequenceId> EngineImpl::Restore(const SequenceState& state) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  RETURN_IF_ERROR(CheckSequence(state.options));
  if (state.tokens.size() > limits_.max_tokens) {
    return Error(Code::kKvFull, "a sequence of ", state.tokens.size(),
                 " tokens: more than the limit of ", limits_.max_tokens, " (max_sequence_tokens ",
                 options_.max_sequence_tokens, ", kv_tokens ", options_.kv_tokens, ")");
  }
  NewSlot slot(this);
  RETURN_IF_ERROR(slot.status());
  Sequence& s = slot.sequence();
  s.Open(state.options, &limits_, &pools_);
  ReserveEdits(state.options);
  if (!state.mask.empty()) sampler_.ReserveMask();
  RETURN_IF_ERROR(s.Restore(state));
  RETURN_IF_ERROR(LoadContent(state, &s));
  const SequenceId id = slot.Opened();
  UpdateReady(s);
  return id;
}

Status EngineImpl::Truncate(SequenceId id, uint64_t position) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  if (position > s->tokens().size()) {
    return Error(Code::kInvalidArgument, "truncate at ", position, ": the sequence holds ",
                 s->tokens().size(), " tokens");
  }
  s->Truncate(position);
  UpdateReady(*s);
  may_work_ = true;
  Publish();
  return OkStatus();
}

Status EngineImpl::Append(SequenceId id, absl::Span<const uint32_t> tokens) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  const uint64_t held = s->tokens().size();
  if (tokens.size() > limits_.max_tokens - held) {
    return Error(Code::kKvFull, "append of ", tokens.size(), " tokens to ", held,
                 " held: more than the limit of ", limits_.max_tokens, " (max_sequence_tokens ",
                 options_.max_sequence_tokens, ", kv_tokens ", options_.kv_tokens, ")");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= limits_.vocab) {
      return Error(Code::kInvalidArgument, "tokens[", i, "] = ", tokens[i],
                   " is outside the vocabulary of ", limits_.vocab);
    }
  }
  if (tokens.empty()) return OkStatus();
  // All has run: the logits before the first of these are at hand, and soon gone.
  const bool score = s->pending() == 0 && s->WantsScore(held);
  if (score) {
    ASSIGN_OR_RETURN(const absl::Span<const float> logits, LogitsOf(*s));
    RETURN_IF_ERROR(sampler_.Logprobs(logits, tokens[0], s->ScoreAt(held)));
  }
  // Work that comes back from idleness queues behind what is there.
  if (!s->Works()) s->arrival = ++arrivals_;
  s->Append(tokens);
  if (score) s->SetScored(held);
  UpdateReady(*s);
  may_work_ = true;
  return OkStatus();
}

StatusOr<size_t> EngineImpl::Take(SequenceId id, absl::Span<uint32_t> out) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  const size_t taken = s->Take(out);
  UpdateReady(*s);
  if (taken == 0 && !out.empty()) RETURN_IF_ERROR(s->fault());
  return taken;
}

StatusOr<absl::Span<const Logprob>> EngineImpl::TakenLogprobs(SequenceId id, size_t j) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(Sequence* const s, Find(id));
  if (s->options().logprobs == 0) {
    return Error(Code::kInvalidArgument, "the sequence was opened without logprobs");
  }
  if (j >= s->last_taken()) {
    return Error(Code::kInvalidArgument, "logprobs of token ", j, ": the last take had ",
                 s->last_taken());
  }
  return s->TakenLogprobs(j);
}

StatusOr<absl::Span<const float>> EngineImpl::LogitsOf(const Sequence& s) {
  RETURN_IF_ERROR(s.fault());
  switch (s.logits_place()) {
    case Sequence::LogitsPlace::kStep:
      RETURN_IF_ERROR(context_->FetchLogits(s.logits_row()));
      return absl::Span<const float>(context_->Logits(s.logits_row()));
    case Sequence::LogitsPlace::kOwn:
      return s.own_logits();
    case Sequence::LogitsPlace::kRows:
    case Sequence::LogitsPlace::kNone:
      break;
  }
  return Error(Code::kBusy, "the sequence has no logits: ", s.pending(), " of its ",
               s.tokens().size(), " tokens are still to be run");
}

StatusOr<absl::Span<const float>> EngineImpl::Logits(SequenceId id) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const Sequence* const s, Find(id));
  return LogitsOf(*s);
}

StatusOr<absl::Span<const float>> EngineImpl::LogitsAt(SequenceId id, uint64_t position) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const Sequence* const s, Find(id));
  if (!s->options().all_logits) {
    return Error(Code::kInvalidArgument, "the sequence was opened without all_logits");
  }
  const StepLogits rows = s->rows_with_logits();
  if (position < rows.position || position - rows.position >= rows.rows) {
    return Error(Code::kInvalidArgument, "logits of position ", position, ": there are ", rows.rows,
                 " of the last step, from position ", rows.position, " on");
  }
  const uint32_t row = rows.first + static_cast<uint32_t>(position - rows.position);
  RETURN_IF_ERROR(context_->FetchLogits(row));
  return absl::Span<const float>(context_->Logits(row));
}

StatusOr<absl::Span<const Logprob>> EngineImpl::PromptLogprobs(SequenceId id, uint64_t position) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const Sequence* const s, Find(id));
  return s->Score(position);
}

StatusOr<backend::KvToken> EngineImpl::ReadKv(SequenceId id, int32_t layer, uint64_t position, bool near) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const Sequence* sequence, Find(id));
  if (position >= sequence->position()) {
    return Error(Code::kInvalidArgument, "K and V of position ", position, ": ",
                 sequence->position(), " have run");
  }
  const size_t index = static_cast<size_t>(layer);
  const bool known = layer >= 0 && index < kv_places_.size();
  const KvPlace found = known ? kv_places_[index] : KvPlace{whole_cache_, layer};
  const size_t cache = near ? found.near : found.cache;
  if (cache >= pools_.size()) {
    return Error(Code::kUnsupported, "K and V of position ", position, " in layer ", layer,
                 ": no cache keeps them");
  }
  const uint32_t page = sequence->caches().table(cache).pages()[position / backend::kPageTokens];
  if (page == model::kNoPage) {
    return Error(Code::kNotFound, "K and V of position ", position, " in layer ", layer,
                 ": it lies behind the window");
  }
  const CachePlace place = PlaceOf(cache);
  return place.context->ReadKv(place.cache, found.layer, page,
                               static_cast<uint32_t>(position % backend::kPageTokens));
}

StatusOr<uint64_t> EngineImpl::PinPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  return Pin(tokens, salt);
}

Status EngineImpl::DropPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  Drop(tokens, salt);
  return OkStatus();
}

StatusOr<SequenceInfo> EngineImpl::InfoOf(SequenceId id) const {
  const Call call(this, Call::kLost);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const uint32_t index, IndexOf(id));
  return slots_[index].info();
}

EngineInfo EngineImpl::info() const {
  EngineInfo info;
  info.kv_tokens_total = options_.kv_tokens;
  info.kv_tokens_free = free_pages_.load(std::memory_order_relaxed) * backend::kPageTokens;
  info.steps = steps_.load(std::memory_order_relaxed);
  info.ahead = ahead_steps_.load(std::memory_order_relaxed);
  info.rows = rows_run_.load(std::memory_order_relaxed);
  info.produced = produced_.load(std::memory_order_relaxed);
  info.step_ns_last = step_ns_last_.load(std::memory_order_relaxed);
  info.sequences = open_.load(std::memory_order_relaxed);
  info.max_sequences = options_.max_sequences;
  info.max_step_tokens = options_.max_step_tokens;
  info.logit_rows = options_.logit_rows;
  info.memory_bytes =
      context_->memory_bytes() + (head_ == nullptr ? 0 : head_->context().memory_bytes());
  info.vocab = limits_.vocab;
  info.vectors = vectors_;
  info.prefix_hits = prefix_hits_.load(std::memory_order_relaxed);
  info.prefix_tokens = prefix_tokens_.load(std::memory_order_relaxed);
  info.prefix_evictions = prefix_evictions_.load(std::memory_order_relaxed);
  info.prefix_held = prefix_held_.load(std::memory_order_relaxed);
  info.draft_kind = options_.draft_kind;
  info.max_drafts = options_.max_drafts;
  info.drafts = drafts_run_.load(std::memory_order_relaxed);
  info.drafts_accepted = drafts_accepted_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kCountedDrafts; ++i) {
    info.drafts_at[i] = drafts_at_[i].load(std::memory_order_relaxed);
    info.drafts_accepted_at[i] = drafts_accepted_at_[i].load(std::memory_order_relaxed);
  }
  info.resident = context_->resident_counts();
  info.resident_refusal = std::string(context_->resident_refusal());
  info.fingerprint = fingerprint_;
  return info;
}

StatusOr<bool> EngineImpl::RunStep() {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const bool work, Prepare());
  if (!work) return false;
  RETURN_IF_ERROR(Execute());
  return true;
}

StatusOr<bool> EngineImpl::Submit() {
  const Call call(this);
  RETURN_IF_ERROR(call.status());
  ASSIGN_OR_RETURN(const bool work, Prepare());
  if (!work) return false;
  const Status launched = runner_->Launch();
  if (!launched.ok()) {
    Abort();
    return launched;
  }
  in_flight_ = true;
  return true;
}

StatusOr<bool> EngineImpl::Wait(int64_t timeout_ns) {
  const Call call(this, Call::kInFlight | Call::kLost);
  RETURN_IF_ERROR(call.status());
  if (!in_flight_) {
    RETURN_IF_ERROR(Health());
    return true;
  }
  // Also when the step failed or threw, it is over.
  struct Over {
    bool& in_flight;
    bool over = true;
    ~Over() { in_flight = in_flight && !over; }
  } over{in_flight_};
  StatusOr<bool> ended = runner_->Wait(timeout_ns);
  over.over = !ended.ok() || *ended;
  return ended;
}

void EngineImpl::Cancel() {
  if (!process_.Ours()) return;
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  if (!step_active_) return;
  cancelled_ = true;
  // Only inside Run, so that no request lingers to stop a later step.
  if (!in_run_) return;
  context_->RequestStop();
  if (head_ != nullptr) head_->context().RequestStop();
}

}  // namespace mainarch::decode
