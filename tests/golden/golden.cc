// SPDX-License-Identifier: MIT
#include "golden/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <cstdlib>
#include <numeric>

#include "support/test.h"

namespace mainarch::test {

StatusOr<Golden> Golden::Open(const std::string& name) {
  return OpenFile(SourcePath("tests/golden/data/" + name + ".safetensors"));
}

StatusOr<Golden> Golden::OpenFile(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, file::SafetensorsFile::Open(path));
  return Golden(std::move(file));
}

const file::TensorView* Golden::Find(const std::string& tensor) const {
  for (const file::TensorView& view : file_.tensors()) {
    if (view.name == tensor) return &view;
  }
  return nullptr;
}

bool Golden::Has(const std::string& tensor) const { return Find(tensor) != nullptr; }

std::vector<float> Golden::Floats(const std::string& tensor) const {
  const file::TensorView* view = Find(tensor);
  if (view == nullptr || view->dtype != DType::kF32) return {};
  std::vector<float> out(view->bytes.size() / 4);
  std::memcpy(out.data(), view->bytes.data(), view->bytes.size());
  return out;
}

std::vector<int32_t> Golden::Ints(const std::string& tensor) const {
  const file::TensorView* view = Find(tensor);
  if (view == nullptr || view->dtype != DType::kI32) return {};
  std::vector<int32_t> out(view->bytes.size() / 4);
  std::memcpy(out.data(), view->bytes.data(), view->bytes.size());
  return out;
}

std::vector<uint32_t> Golden::Tokens(const std::string& tensor) const {
  const std::vector<int32_t> ids = Ints(tensor);
  return std::vector<uint32_t>(ids.begin(), ids.end());
}

namespace {

constexpr uint32_t kSlots = 64;  // more than tests go back

}  // namespace

backend::ResidentMode ResidentByDefault() {
  return std::getenv("MAINARCH_TEST_RESIDENT") != nullptr ? backend::ResidentMode::kAuto : backend::ResidentMode::kOff;
}

StatusOr<std::unique_ptr<Runner>> Runner::Create(std::shared_ptr<const model::Model> model,
                                                 backend::KvType kv, uint32_t max_rows,
                                                 backend::Activations activations, uint32_t share_from,
                                                 backend::ResidentMode resident) {
  std::unique_ptr<Runner> runner(new Runner());
  backend::ContextOptions options;
  options.resident = resident;
  options.kv_type = kv;
  options.activations = activations;
  options.share_from = share_from;
  options.max_rows = max_rows;
  options.max_logit_rows = max_rows;
  // One list of pages for all caches, whatever their windows.
  const uint32_t pages = static_cast<uint32_t>(model->config().max_position + 15) / 16;
  const std::vector<backend::Cache>& caches = model->weights().program().caches;
  for (size_t i = 0; i < caches.size(); ++i) {
    const bool slots = std::holds_alternative<backend::SlotCache>(caches[i]);
    std::vector<uint32_t>& units = slots ? options.slots : options.pages;
    units.resize(i + 1);
    units[i] = slots ? kSlots : pages;
  }
  runner->slots_ = kSlots;
  ASSIGN_OR_RETURN(runner->context_, model->weights().CreateContext(options));
  runner->model_ = std::move(model);
  runner->pages_.resize(pages);
  // Not the identity, so that a page table that is ignored shows.
  std::iota(runner->pages_.rbegin(), runner->pages_.rend(), 0);
  return runner;
}

Status Runner::Step(absl::Span<const uint32_t> tokens, bool all_logits, size_t end) {
  std::vector<backend::StepRow> rows;
  std::vector<uint32_t> logit_rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({tokens[i], position_ + static_cast<uint32_t>(i), 0});
    if (all_logits || i + 1 == tokens.size()) logit_rows.push_back(static_cast<uint32_t>(i));
  }
  // What Truncate may ask for: states after the last row, and after the one before.
  std::vector<backend::StateOut> outs;
  for (uint32_t row = rows.size() > 1 ? static_cast<uint32_t>(rows.size()) - 2 : 0;
       row < rows.size(); ++row) {
    outs.push_back({row, (position_ + row + 1) % slots_});
  }
  std::vector<backend::StepCache> caches;
  for (const backend::Cache& cache : model_->weights().program().caches) {
    backend::StepCache& own = caches.emplace_back();
    if (std::holds_alternative<backend::PagedCache>(cache)) {
      own.pages = pages_;
      continue;
    }
    if (position_ > 0) own.state_in = position_ % slots_;
    own.state_out = outs;
  }
  const backend::StepSequence sequence = {caches};
  backend::Step step;
  step.rows = rows;
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  step.logit_rows = logit_rows;
  const std::vector<backend::Choice> choices(logit_rows.size(), choice_);
  step.choices = choices;
  RETURN_IF_ERROR(context_->RunPrefix(step, end));
  position_ += static_cast<uint32_t>(tokens.size());
  return OkStatus();
}

Status Runner::Extend(absl::Span<const uint32_t> tokens, bool all_logits) {
  return Step(tokens, all_logits, model_->weights().program().ops.size());
}

Status Runner::ExtendPrefix(absl::Span<const uint32_t> tokens, size_t end) {
  return Step(tokens, false, end);
}

StatusOr<backend::KvToken> Runner::ReadKv(int32_t layer, size_t position) const {
  return context_->ReadKv(0, layer, pages_[position / backend::kPageTokens],
                          static_cast<uint32_t>(position % backend::kPageTokens));
}

StatusOr<absl::optional<uint32_t>> Runner::Choose(uint32_t token) {
  choice_.choose = true;
  choice_.read = false;
  const Status status = Extend({token}, false);
  choice_ = backend::Choice();
  RETURN_IF_ERROR(status);
  const auto chosen = context_->Chosen(0);
  RETURN_IF_ERROR(context_->FetchLogits(0));
  return chosen;
}

std::vector<float> Runner::Logits(uint32_t row) const {
  const absl::Span<float> logits = context_->Logits(row);
  return std::vector<float>(logits.begin(), logits.end());
}

double WorstRelative(absl::Span<const float> a, absl::Span<const float> b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double delta = std::fabs(double{a[i]} - double{b[i]});
    if (!(delta <= worst)) worst = delta;  // a NaN stays
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return worst / largest;
}

absl::Span<const float> RowOf(const std::vector<float>& all, size_t rows, size_t i) {
  return absl::MakeConstSpan(all).subspan(i * (all.size() / rows), all.size() / rows);
}

bool Same(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

StatusOr<std::vector<std::vector<float>>> AllLogits(Runner* runner,
                                                    absl::Span<const uint32_t> tokens,
                                                    std::vector<size_t> pieces) {
  std::vector<std::vector<float>> out;
  runner->Truncate(0);
  size_t piece = 0;
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min(pieces[std::min(piece++, pieces.size() - 1)], tokens.size() - at);
    RETURN_IF_ERROR(runner->Extend(tokens.subspan(at, n), true));
    for (size_t i = 0; i < n; ++i) out.push_back(runner->Logits(static_cast<uint32_t>(i)));
    at += n;
  }
  return out;
}

Status RunBatchMix(std::shared_ptr<const model::Model> model, const Mix& mix) {
  const auto vocab = static_cast<uint32_t>(std::min(model->config().vocab, 512));
  const std::vector<uint32_t> tokens = Prompt(mix.tokens, vocab);
  ASSIGN_OR_RETURN(const auto alone,
                   Runner::Create(model, backend::KvType::kBF16, static_cast<uint32_t>(mix.tokens),
                                  mix.activations));
  ASSIGN_OR_RETURN(const auto want, AllLogits(alone.get(), tokens, {mix.tokens}));
  backend::ContextOptions options;
  options.activations = mix.activations;
  options.max_rows = mix.max_rows;
  options.max_logit_rows = mix.max_rows;
  options.max_sequences = mix.sequences;
  options.resident = ResidentByDefault();
  options.pages = {mix.sequences * static_cast<uint32_t>((mix.tokens + 15) / 16)};
  ASSIGN_OR_RETURN(const auto context, model->weights().CreateContext(options));
  std::vector<std::vector<uint32_t>> pages(mix.sequences);
  for (uint32_t page = 0; page < options.pages[0]; ++page) {
    pages[page % mix.sequences].push_back(page);
  }
  std::vector<uint32_t> position(mix.sequences, 0);
  for (uint32_t round = 0; round < 200; ++round) {
    std::vector<backend::StepRow> rows;
    std::vector<backend::StepCache> caches(mix.sequences);
    std::vector<backend::StepSequence> sequences(mix.sequences);
    std::vector<uint32_t> logit_rows;
    for (uint32_t s = 0; s < mix.sequences; ++s) {
      caches[s].pages = pages[s];
      sequences[s] = {absl::MakeConstSpan(&caches[s], 1), s};
      const uint32_t take = (round * 7 + s * 5) % 9 == 0 ? 11 : (round + s) % 3;
      for (uint32_t i = 0; i < take && position[s] + i < tokens.size(); ++i) {
        if (rows.size() == mix.max_rows) break;
        logit_rows.push_back(static_cast<uint32_t>(rows.size()));
        rows.push_back({tokens[position[s] + i], position[s] + i, s});
      }
    }
    if (rows.empty()) continue;
    backend::Step step;
    step.rows = rows;
    step.sequences = sequences;
    step.logit_rows = logit_rows;
    RETURN_IF_ERROR(context->Run(step));
    for (uint32_t i = 0; i < rows.size(); ++i) {
      if (!Same(context->Logits(i), want[rows[i].position])) {
        return Error(Code::kInternal, "round ", round, ", row ", i, ", position ", rows[i].position,
                     ": other bits than alone");
      }
      position[rows[i].sequence] = rows[i].position + 1;
    }
  }
  for (uint32_t done : position) {
    if (done != tokens.size()) return Error(Code::kInternal, "a sequence stands at ", done);
  }
  return OkStatus();
}

std::vector<uint32_t> Prompt(size_t n, uint32_t vocab) {
  std::vector<uint32_t> tokens(n);
  uint32_t state = 12345;
  for (uint32_t& token : tokens) {
    state = state * 1664525 + 1013904223;
    token = (state >> 8) % vocab;
  }
  return tokens;
}

uint32_t ArgMax(absl::Span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<uint32_t>(best);
}

}  // namespace mainarch::test
