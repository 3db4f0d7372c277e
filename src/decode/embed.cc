// SPDX-License-Identifier: MIT
#include "decode/embed.h"

#include <algorithm>
#include <cmath>

namespace mainarch::decode {
namespace {

// A text on its way.
struct Running {
  size_t text;
  SequenceId sequence;
  uint64_t summed = 0;      // of a mean: positions before it are in
  std::vector<double> sum;  // of a mean, [numbers of a row]
};

class Embedder {
 public:
  Embedder(Engine* engine, absl::Span<const absl::Span<const uint32_t>> texts,
           const EmbedOptions& options, uint32_t size, float* out)
      : engine_(*engine), texts_(texts), options_(options), size_(size), out_(out) {}
  ~Embedder() {
    for (const Running& text : running_) (void)engine_.Close(text.sequence);
  }

  Status Run() {
    while (next_ < texts_.size() || !running_.empty()) {
      RETURN_IF_ERROR(Start());
      ASSIGN_OR_RETURN(const bool ran, engine_.RunStep());
      if (!ran) return Error(Code::kInternal, "texts to embed, and no work for a step");
      for (size_t i = 0; i < running_.size();) {
        ASSIGN_OR_RETURN(const bool done, Collect(&running_[i]));
        if (!done) {
          ++i;
          continue;
        }
        RETURN_IF_ERROR(engine_.Close(running_[i].sequence));
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return OkStatus();
  }

 private:
  bool mean() const { return options_.pooling == model::Pooling::kMean; }

  // As many texts as there are sequences for; at least one.
  Status Start() {
    const EngineInfo info = engine_.info();
    for (uint32_t open = info.sequences; next_ < texts_.size(); ++open, ++next_) {
      if (open == info.max_sequences) {
        if (!running_.empty()) break;
        return Error(Code::kBusy, "all ", open, " sequences of the engine are open: a text needs one");
      }
      SequenceOptions options;
      options.manual = true;
      options.all_logits = mean();
      options.prefix_salt = options_.prefix_salt;
      ASSIGN_OR_RETURN(const SequenceId id, engine_.Open(options));
      running_.push_back({next_, id, 0, {}});
      absl::Span<const uint32_t> tokens = texts_[next_];
      // What comes behind the first token does not reach it.
      if (options_.pooling == model::Pooling::kFirst) tokens = tokens.first(1);
      RETURN_IF_ERROR(engine_.Append(id, tokens));
    }
    return OkStatus();
  }

  // True: the text's vector is written.
  StatusOr<bool> Collect(Running* text) {
    if (mean()) RETURN_IF_ERROR(Sum(text));
    ASSIGN_OR_RETURN(const SequenceInfo info, engine_.InfoOf(text->sequence));
    if (info.pending > 0) return false;
    ASSIGN_OR_RETURN(const absl::Span<const float> row, engine_.Logits(text->sequence));
    if (!mean()) text->sum.assign(row.begin(), row.end());
    const double tokens = mean() ? static_cast<double>(info.tokens - options_.skip) : 1;
    RETURN_IF_ERROR(Write(text->text, text->sum, tokens));
    return true;
  }

  // Rows of the last step that are not in yet. One that ran again, its pages having been wanted, is in.
  Status Sum(Running* text) {
    ASSIGN_OR_RETURN(const SequenceInfo info, engine_.InfoOf(text->sequence));
    const uint64_t end = info.logit_position + info.logit_rows;
    if (info.logit_rows == 0 || info.logit_position > text->summed) return OkStatus();
    for (; text->summed < end; ++text->summed) {
      if (text->summed < options_.skip) continue;
      ASSIGN_OR_RETURN(const absl::Span<const float> row, engine_.LogitsAt(text->sequence, text->summed));
      text->sum.resize(row.size());
      for (size_t i = 0; i < row.size(); ++i) text->sum[i] += double{row[i]};
    }
    return OkStatus();
  }

  Status Write(size_t text, const std::vector<double>& sum, double tokens) {
    double squares = 0;
    for (uint32_t i = 0; i < size_; ++i) squares += sum[i] / tokens * (sum[i] / tokens);
    if (!std::isfinite(squares)) {
      return Error(Code::kBadModel, "text ", text, ": the model's vector holds what is not a number");
    }
    // As torch does it: a vector of zeros stays one.
    const double by = options_.normalise ? 1 / std::max(std::sqrt(squares), 1e-12) : 1;
    for (uint32_t i = 0; i < size_; ++i) {
      out_[text * size_ + i] = static_cast<float>(sum[i] / tokens * by);
    }
    return OkStatus();
  }

  Engine& engine_;
  const absl::Span<const absl::Span<const uint32_t>> texts_;
  const EmbedOptions& options_;
  const uint32_t size_;
  float* const out_;
  size_t next_ = 0;
  std::vector<Running> running_;
};

}  // namespace

StatusOr<uint32_t> VectorSize(const EngineInfo& engine, const EmbedOptions& options) {
  if (engine.vectors == 0) {
    return Error(Code::kInvalidArgument, "the model was opened to generate (without the flag for vectors)");
  }
  if (options.dimensions > engine.vectors) {
    return Error(Code::kInvalidArgument, "dimensions ", options.dimensions, " are more than the model's ",
                 engine.vectors);
  }
  return options.dimensions == 0 ? engine.vectors : options.dimensions;
}

Status Embed(Engine* engine, absl::Span<const absl::Span<const uint32_t>> texts,
             const EmbedOptions& options, float* out) {
  ASSIGN_OR_RETURN(const uint32_t size, VectorSize(engine->info(), options));
  const uint32_t least = options.pooling == model::Pooling::kMean ? options.skip : 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() > least) continue;
    return Error(Code::kInvalidArgument, "text ", i, " has ", texts[i].size(), " tokens",
                 least > 0 ? ", which are all to be skipped" : ": there is nothing to embed");
  }
  return Embedder(engine, texts, options, size, out).Run();
}

}  // namespace mainarch::decode
