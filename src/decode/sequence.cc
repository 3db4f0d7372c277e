// SPDX-License-Identifier: MIT
#include "decode/sequence.h"

#include <algorithm>
#include <utility>

#include "decode/token_mask.h"

namespace mainarch::decode {
namespace {

bool Contains(absl::Span<const uint32_t> ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void Sequence::Open(const SequenceOptions& options, const SequenceLimits* limits,
                    std::vector<model::CachePool>* pools) {
  limits_ = limits;
  options_ = options;
  options_.logprobs = std::min(options.logprobs, limits->vocab);
  options_.prompt_logprobs = std::min(options.prompt_logprobs, limits->vocab);
  caches_.Open(pools, limits->max_tokens, limits->max_drafts, limits->snapshot_tokens,
               limits->snapshots, limits->prefixes);
  tokens_.reserve(limits->max_tokens);
  is_produced_.reserve(limits->max_tokens);
  counts_ = TokenCounts();
  if (WantsCounts(options)) counts_.Enable(limits->vocab, limits->max_tokens);
  stops_ = StopStrings(options);
  if (options.manual && own_logits_ == nullptr) own_logits_.reset(new float[limits->logit_width]);
  logprobs_.reserve(16 * LogprobStride());
  last_step = 0;
}

void Sequence::Close() {
  caches_.Clear();
  tokens_.clear();
  is_produced_.clear();
  logprobs_.clear();
  scores_.clear();
  scored_ = 0;
  options_ = SequenceOptions();
  turn_start_ = produced_ = take_from_ = untaken_ = 0;
  last_taken_ = 0;
  Unend();
  mask_.Clear();
  stops_ = StopStrings();
  dormant_ = evicted_ = false;
  ForgetPlace();
  logits_place_ = LogitsPlace::kNone;
}

void Sequence::ForkFrom(const Sequence& other) {
  caches_.ShareFrom(other.caches_);
  tokens_.assign(other.tokens_.begin(), other.tokens_.end());
  is_produced_.assign(other.is_produced_.begin(), other.is_produced_.end());
  counts_.CopyFrom(other.counts_);
  scores_ = other.scores_;
  scored_ = other.scored_;
  turn_start_ = other.turn_start_;
  produced_ = other.produced_;
  take_from_ = tokens_.size();
  mask_ = other.mask_;
  stops_ = other.stops_;
  finish_ = other.finish_;
  told_ = true;  // the copy's own end is still to come
  fault_ = other.fault_;
  dormant_ = other.dormant_;
  evicted_ = other.evicted_;
  place_ = other.place_;
  looked_ = other.looked_;
  foreign_ = other.foreign_;
}

void Sequence::Append(absl::Span<const uint32_t> tokens) {
  caches_.Abort();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  is_produced_.resize(tokens_.size(), 0);
  for (const uint32_t token : tokens) counts_.Add(token, false);
  turn_start_ = tokens_.size();
  Unend();
  stops_.Begin();
  dormant_ = false;
  DropLogits();
}

void Sequence::Truncate(uint64_t tokens) {
  tokens_.resize(tokens);
  is_produced_.resize(tokens);
  // The last token runs again, since what follows it is to be chosen anew.
  caches_.GoBack(tokens == 0 ? 0 : tokens - 1);
  ForgetPlace();
  scored_ = std::min(scored_, tokens);
  turn_start_ = std::min(turn_start_, tokens);
  Unend();
  Reread(&stops_);
  dormant_ = false;
  DropLogits();
  Recount();
}

void Sequence::Recount() {
  counts_.Clear();
  take_from_ = std::min<uint64_t>(take_from_, tokens_.size());
  produced_ = untaken_ = 0;
  for (uint64_t i = 0; i < tokens_.size(); ++i) {
    counts_.Add(tokens_[i], is_produced_[i] != 0);
    produced_ += is_produced_[i];
    if (i >= take_from_) untaken_ += is_produced_[i];
  }
  if (LogprobStride() > 0) {
    logprobs_.resize(
        std::min<size_t>(logprobs_.size(), (last_taken_ + untaken_) * LogprobStride()));
  }
}

size_t Sequence::Take(absl::Span<uint32_t> out) {
  const auto stride = static_cast<ptrdiff_t>(LogprobStride());
  logprobs_.erase(logprobs_.begin(),
                  logprobs_.begin() + static_cast<ptrdiff_t>(last_taken_) * stride);
  size_t n = 0;
  while (n < out.size() && untaken_ > 0) {
    if (is_produced_[take_from_] != 0) {
      out[n++] = tokens_[take_from_];
      --untaken_;
    }
    ++take_from_;
  }
  last_taken_ = n;
  told_ = !out.empty() && untaken_ == 0 && finish_ != Finish::kNone;
  return n;
}

absl::Span<const Logprob> Sequence::TakenLogprobs(size_t j) const {
  return {logprobs_.data() + j * LogprobStride(), LogprobStride()};
}

void Sequence::Evict(uint64_t tokens) {
  dormant_ = !Works();
  evicted_ = true;
  caches_.GoBack(tokens);
  ForgetPlace();
}

void Sequence::ForgetPlace() {
  looked_ = 0;
  if (place_.blocks > position() / backend::kPageTokens) place_ = model::PrefixTree::Place();
  foreign_ &= position() > 0;
}

bool Sequence::FindPrefix(model::PrefixTree* tree) {
  if (!Works() || (position() > 0 && !evicted_ && looked_ == 0) || looked_ == tree->stamp()) {
    return false;
  }
  looked_ = tree->stamp();
  const uint64_t found =
      tree->Find(options_.prefix_salt, tokens().first(position() + silent()));
  if (found <= position()) return false;
  caches_.Adopt(found, tree->units());
  place_ = tree->place();
  foreign_ = false;
  return true;
}

void Sequence::FeedPrefix(model::PrefixTree* tree) {
  if (!foreign_ && position() / backend::kPageTokens > place_.blocks) {
    tree->Extend(options_.prefix_salt, tokens(), caches_, &place_);
  }
  caches_.TrimSnapshots();
}

SequenceInfo Sequence::info() const {
  SequenceInfo info;
  info.position = position();
  info.tokens = tokens_.size();
  info.pending = pending();
  info.produced = produced_;
  info.untaken = untaken_;
  info.text_bytes = stops_.text_bytes();
  info.finish = finish_;
  if (options_.all_logits) {
    info.logit_position = rows_with_logits().position;
    info.logit_rows = rows_with_logits().rows;
  }
  return info;
}

void Sequence::KeepLogits(absl::Span<const float> logits) {
  std::copy(logits.begin(), logits.end(), own_logits_.get());
  logits_place_ = LogitsPlace::kOwn;
}

void Sequence::PrepareCommit(uint64_t rows, uint64_t sampled) {
  const size_t needed = logprobs_.size() + sampled * LogprobStride();
  if (needed > logprobs_.capacity()) logprobs_.reserve(2 * needed);
  if (options_.prompt_logprobs == 0) return;
  const uint64_t end = std::min<uint64_t>(position() + rows + 1, tokens_.size());
  if (scores_.size() < end * ScoreStride()) scores_.resize(end * ScoreStride());
}

uint64_t Sequence::silent() const {
  if (options_.all_logits) return 0;
  const uint64_t last = pending() == 0 ? 0 : pending() - 1;
  if (options_.prompt_logprobs == 0) return last;
  // The row before the first token that has no score.
  const uint64_t row = std::max<uint64_t>(scored_, 1) - 1;
  return std::min(last, row > position() ? row - position() : 0);
}

uint32_t Sequence::DraftsTaken() const {
  // What a mask makes of a token can be known only once it has been sampled, and what a text that is
  // more than bytes joined does.
  if (options_.manual || !mask_.words().empty() || pending() != 1) return 0;
  if (stops_.active() && !stops_.can_go_back()) return 0;
  // Each draft is followed by a token that is sampled.
  const uint64_t room = full() ? 0 : limits_->max_tokens - tokens_.size() - 1;
  return static_cast<uint32_t>(std::min<uint64_t>(room, limits_->max_drafts));
}

bool Sequence::Foresee(uint32_t token) {
  if (foreseen_++ == 0) {
    distinct_ = counts_.tokens().size();
    stops_.Mark();
  }
  tokens_.push_back(token);
  is_produced_.push_back(1);
  counts_.Add(token, true);
  return FinishAfter(token) != Finish::kNone;
}

void Sequence::Forget() {
  if (foreseen_ > 0) stops_.GoBack();
  for (; foreseen_ > 0; --foreseen_) {
    counts_.TakeBack(tokens_.back(), distinct_);
    tokens_.pop_back();
    is_produced_.pop_back();
  }
}

bool Sequence::WantsScore(uint64_t position) const {
  return options_.prompt_logprobs > 0 && position > 0 && position >= scored_ &&
         (position >= tokens_.size() || is_produced_[position] == 0);
}

absl::Span<Logprob> Sequence::ScoreAt(uint64_t position) {
  const size_t end = (position + 1) * ScoreStride();
  if (scores_.size() < end) scores_.resize(end);
  return {&scores_[position * ScoreStride()], ScoreStride()};
}

StatusOr<absl::Span<const Logprob>> Sequence::Score(uint64_t position) const {
  if (options_.prompt_logprobs == 0) {
    return Error(Code::kInvalidArgument, "the sequence was opened without prompt_logprobs");
  }
  if (position == 0 || position >= tokens_.size() || is_produced_[position] != 0) {
    return Error(Code::kInvalidArgument, "prompt_logprobs of position ", position,
                 ": it is the first, produced, or beyond the ", tokens_.size(), " tokens held");
  }
  if (position >= scored_) {
    return Error(Code::kBusy, "prompt_logprobs of position ", position, ": the tokens before it ",
                 "have not all run");
  }
  return absl::Span<const Logprob>(&scores_[position * ScoreStride()], ScoreStride());
}

SampleRequest Sequence::Request(uint64_t ahead) const {
  const uint64_t held = tokens_.size() + ahead;
  SampleRequest request;
  request.options = &options_;
  request.counts = &counts_;
  request.position = held;
  request.mask = mask_.words();
  if (held - turn_start_ < options_.min_tokens) {
    if (!options_.ignore_eos) request.ban_eos = limits_->eos_ids;
    request.ban_stop = options_.stop_tokens;
  }
  return request;
}

bool Sequence::EndsWithNext() const { return tokens_.size() + 1 >= LastLength(); }

// Tokens that it holds at its end, unless one of them ends it before.
uint64_t Sequence::LastLength() const {
  const uint64_t most = limits_->max_tokens;
  return options_.max_tokens > 0 ? std::min<uint64_t>(most, turn_start_ + options_.max_tokens) : most;
}

bool Sequence::WantsOnlyTokens() const {
  // While end tokens are banned the edits are those of one moment.
  const bool banned = tokens_.size() + 1 - turn_start_ < options_.min_tokens;
  const bool scored = options_.logprobs > 0 || options_.prompt_logprobs > 0;
  return AsksTheSame() && !options_.all_logits && !scored && !banned;
}

backend::Lease Sequence::Reserved() const {
  backend::Lease lease;
  lease.rounds = static_cast<uint32_t>(caches_.reserved());
  lease.slots = caches_.ReservedSlots();
  if (!options_.ignore_eos) lease.stops[0] = limits_->eos_ids;
  lease.stops[1] = options_.stop_tokens;
  return lease;
}

void Sequence::CommitRows(uint64_t rows, uint64_t step) {
  caches_.Commit(rows);
  if (!limits_->prefixes) caches_.TrimSnapshots();
  evicted_ = false;
  looked_ = 0;
  // All of them had their next token scored, where one is held.
  scored_ = std::max(scored_, std::min<uint64_t>(position() + 1, tokens_.size()));
  last_step = step;
}

void Sequence::CommitToken(uint32_t token, absl::Span<const Logprob> logprobs) {
  if (scored_ == tokens_.size()) ++scored_;  // it has no score and wants none
  tokens_.push_back(token);
  is_produced_.push_back(1);
  counts_.Add(token, true);
  ++produced_;
  ++untaken_;
  logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  mask_.Clear();
  const Finish finish = FinishAfter(token);
  if (finish != Finish::kNone) End(finish);
}

void Sequence::CommitFault(Status fault) {
  caches_.Abort();
  fault_ = std::move(fault);
  End(Finish::kFault);
}

void Sequence::End(Finish finish) {
  caches_.Abort();
  finish_ = finish;
  told_ = false;
  stops_.Finish();
}

void Sequence::Unend() {
  finish_ = Finish::kNone;
  told_ = false;
  fault_ = OkStatus();
}

void Sequence::Reread(StopStrings* stops) const {
  if (!stops->active()) return;
  stops->Begin();
  const bool stopped = finish_ == Finish::kStopString;
  for (uint64_t i = turn_start_; i < tokens_.size(); ++i) {
    stops->Push(tokens_[i], stopped && i + 1 == tokens_.size());
  }
}

Status Sequence::CanTake(const SequenceOptions& options) const {
  if (options.manual != options_.manual) {
    return Error(Code::kInvalidArgument, "options: whether a sequence is manual cannot change");
  }
  if (std::min(options.prompt_logprobs, limits_->vocab) != options_.prompt_logprobs) {
    return Error(Code::kInvalidArgument, "options: prompt_logprobs cannot change");
  }
  if (options.prefix_salt != options_.prefix_salt) {
    return Error(Code::kInvalidArgument, "options: prefix_salt cannot change");
  }
  if (std::min(options.logprobs, limits_->vocab) != options_.logprobs && untaken_ > 0) {
    return Error(Code::kBusy, "logprobs cannot change from ", options_.logprobs, " to ",
                 options.logprobs, " while ", untaken_, " produced tokens are untaken");
  }
  return OkStatus();
}

// All that gets memory comes before the first change.
void Sequence::SetOptions(const SequenceOptions& options) {
  caches_.Abort();
  SequenceOptions copy = options;
  copy.logprobs = std::min(options.logprobs, limits_->vocab);
  copy.prompt_logprobs = options_.prompt_logprobs;
  StopStrings stops(copy);
  Reread(&stops);
  if (finish_ != Finish::kNone) stops.Finish();
  TokenCounts counts;
  const bool count = WantsCounts(copy) && !counts_.enabled();
  if (count) {
    counts.Enable(limits_->vocab, limits_->max_tokens);
    for (size_t i = 0; i < tokens_.size(); ++i) counts.Add(tokens_[i], is_produced_[i] != 0);
  }
  if (copy.logprobs != options_.logprobs) {
    std::vector<Logprob> logprobs;
    logprobs.reserve(16 * (1 + size_t{copy.logprobs}));
    logprobs_ = std::move(logprobs);
    last_taken_ = 0;
  }
  if (count || !WantsCounts(copy)) counts_ = std::move(counts);
  stops_ = std::move(stops);
  options_ = std::move(copy);
}

SequenceState Sequence::Save() const {
  SequenceState state;
  state.options = options_;
  state.options.stop_tokenizer = nullptr;
  state.tokens.assign(tokens_.begin(), tokens_.end());
  state.produced.assign(is_produced_.begin(), is_produced_.end());
  state.turn_start = turn_start_;
  state.take_from = take_from_;
  if (finish_ != Finish::kFault) state.finish = static_cast<uint32_t>(finish_);
  state.mask.assign(mask_.words().begin(), mask_.words().end());
  const auto taken = static_cast<ptrdiff_t>(last_taken_ * LogprobStride());
  state.logprobs.assign(logprobs_.begin() + taken, logprobs_.end());
  if (options_.prompt_logprobs > 0) {
    state.scored = scored_;
    state.scores = scores_;
    state.scores.resize(scored_ * ScoreStride());
  }
  return state;
}

Status Sequence::Restore(const SequenceState& state) {
  RETURN_IF_ERROR(SetMask(state.mask));
  tokens_.assign(state.tokens.begin(), state.tokens.end());
  is_produced_.assign(state.produced.begin(), state.produced.end());
  logprobs_.assign(state.logprobs.begin(), state.logprobs.end());
  turn_start_ = state.turn_start;
  take_from_ = state.take_from;
  scored_ = state.scored;
  scores_ = state.scores;
  Recount();
  finish_ = static_cast<Finish>(state.finish);
  Reread(&stops_);
  if (finish_ != Finish::kNone) End(finish_);
  return OkStatus();
}

Status Sequence::SetMask(absl::Span<const uint32_t> words) {
  caches_.Abort();
  if (!words.empty()) return mask_.Set(words, limits_->vocab);
  mask_.Clear();
  return OkStatus();
}

// The order of models.md §6.6: stop sequences and strings, end tokens, stop tokens, counts.
Finish Sequence::FinishAfter(uint32_t token) {
  const uint64_t turn = tokens_.size() - turn_start_;
  const bool in_text = stops_.Push(token, turn > options_.min_tokens);
  if (turn > options_.min_tokens && EndsAStopSequence()) return Finish::kStopSequence;
  if (in_text) return Finish::kStopString;
  if (!options_.ignore_eos && Contains(limits_->eos_ids, token)) return Finish::kEos;
  if (Contains(options_.stop_tokens, token)) return Finish::kStopToken;
  if (options_.max_tokens > 0 && turn >= options_.max_tokens) return Finish::kMaxTokens;
  return full() ? Finish::kLength : Finish::kNone;
}

bool Sequence::EndsAStopSequence() const {
  const absl::Span<const uint32_t> turn = tokens().subspan(turn_start_);
  for (const std::vector<uint32_t>& stop : options_.stop_sequences) {
    if (stop.size() <= turn.size() &&
        std::equal(stop.begin(), stop.end(), turn.end() - static_cast<ptrdiff_t>(stop.size()))) {
      return true;
    }
  }
  return false;
}

}  // namespace mainarch::decode
