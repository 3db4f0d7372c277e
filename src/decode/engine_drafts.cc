// SPDX-License-Identifier: MIT
//
// What is guessed ahead, and by whom. A DraftSource guesses when a step is planned; a head of the
// model's own runs on the device, so it does when the step is executed, on that thread, over the pages
// that the step has been given. The plan counts on as many guesses of it as were wished for.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "decode/engine_impl.h"
#include "decode/ngram_drafts.h"

namespace mainarch::decode {
namespace {

constexpr uint32_t kDefaultDrafts = 3;

}  // namespace

Status EngineImpl::ResolveDrafts(ModelFacts* facts, EngineOptions* options) {
  EngineOptions& o = *options;
  const bool has_head = !facts->head_caches.empty();
  if (facts->vectors > 0 && (o.draft_kind != DraftKind::kNone || o.drafts != nullptr)) {
    return Error(Code::kInvalidArgument, "drafts: the model was opened for vectors, and samples nothing");
  }
  if (o.draft_kind == DraftKind::kAuto) {
    o.draft_kind = has_head ? DraftKind::kHead : DraftKind::kNgram;
  }
  if (o.draft_kind == DraftKind::kHead && !has_head) {
    return Error(Code::kInvalidArgument,
                 "drafts by the model's head: the model has none, or was opened without it");
  }
  if (o.draft_kind != DraftKind::kNone) {
    if (o.max_drafts > kCountedDrafts) {
      return Error(Code::kInvalidArgument, "max_drafts ", o.max_drafts, " is more than ",
                   kCountedDrafts);
    }
    if (o.max_drafts == 0) o.max_drafts = kDefaultDrafts;
    o.drafts = nullptr;
  }
  if (o.draft_kind == DraftKind::kNgram) o.drafts = std::make_shared<NgramDrafts>();
  if (o.draft_kind == DraftKind::kNone && o.drafts == nullptr) o.max_drafts = 0;
  if (o.draft_kind == DraftKind::kHead) {
    facts->caches.insert(facts->caches.end(), facts->head_caches.begin(),
                         facts->head_caches.end());
  } else {
    facts->head_caches.clear();
  }
  return OkStatus();
}

EngineImpl::CachePlace EngineImpl::PlaceOf(size_t cache) const {
  if (cache < model_caches_) return {context_.get(), static_cast<int32_t>(cache)};
  return {&head_->context(), static_cast<int32_t>(cache - model_caches_)};
}

// What a head's caches hold is part of it, or else it is of no use to one who has none.
std::string EngineImpl::content_form() const {
  const std::string form = context_->content_form();
  if (head_ == nullptr || form.empty()) return form;
  return absl::StrCat(form, " head ", head_->context().content_form());
}

Status EngineImpl::Health() const {
  RETURN_IF_ERROR(context_->Health());
  return head_ == nullptr ? OkStatus() : head_->context().Health();
}

uint32_t EngineImpl::Propose(uint32_t index) {
  const Sequence& s = slots_[index];
  const uint32_t wanted = s.DraftsTaken();
  if (wanted == 0 || head_ != nullptr) return wanted;
  const absl::Span<uint32_t> out(DraftsOf(s), wanted);
  const size_t proposed = std::min(options_.drafts->Propose(index, s.tokens(), out), out.size());
  uint32_t good = 0;
  while (good < proposed && out[good] < limits_.vocab) ++good;
  return good;
}

// Before the step's rows run; with what the head guesses they are complete.
Status EngineImpl::DraftRows() {
  if (head_ == nullptr) return OkStatus();
  wishes_.clear();
  for (const Outcome& outcome : outcomes_) {
    Sequence& s = *outcome.sequence;
    wishes_.push_back({&s, IndexOf(s), outcome.drafts, DraftsOf(s)});
  }
  RETURN_IF_ERROR(head_->Draft(wishes_, &sampler_));
  FillStep();
  return OkStatus();
}

Status EngineImpl::MirrorRows() {
  return head_ == nullptr ? OkStatus() : head_->Mirror(StepNow(), wishes_);
}

// A guess is right when it is what was sampled, also where nothing comes behind it.
void EngineImpl::CountDrafts(const Outcome& outcome) {
  if (outcome.drafts == 0) return;
  const uint32_t* const drafts = DraftsOf(*outcome.sequence);
  const size_t first = TokenAt(outcome);
  uint32_t right = 0;
  while (right < std::min(outcome.sampled, outcome.drafts) &&
         tokens_[first + right] == drafts[right]) {
    ++right;
  }
  drafts_run_.fetch_add(outcome.drafts, std::memory_order_relaxed);
  drafts_accepted_.fetch_add(right, std::memory_order_relaxed);
  for (uint32_t i = 0; i < std::min(outcome.drafts, kCountedDrafts); ++i) {
    drafts_at_[i].fetch_add(1, std::memory_order_relaxed);
    drafts_accepted_at_[i].fetch_add(i < right, std::memory_order_relaxed);
  }
}

}  // namespace mainarch::decode
