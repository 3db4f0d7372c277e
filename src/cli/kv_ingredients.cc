// SPDX-License-Identifier: MIT
#include "cli/kv_ingredients.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/json_writer.h"
#include "cli/kv_loss.h"
#include "cli/kv_made_up.h"
#include "cli/kv_variants.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "reference/decoder.h"

namespace mainarch::cli {
namespace {

// Of a checkpoint, from the same with exact K and V.
struct ModelLoss {
  double kl = 0, same_top = 0, perplexity = NAN;
};
struct Row {
  KvVariant variant;
  ModelLoss model;
  MadeUpAttention::Loss made_up;
};

// A text through the reference, token by token what was given.
class Runner {
 public:
  static StatusOr<Runner> Open(const IngredientSettings& s) {
    Runner r(s);
    ASSIGN_OR_RETURN(auto checkpoint, file::Checkpoint::Open(s.directory));
    r.checkpoint_ = std::move(checkpoint);
    ASSIGN_OR_RETURN(r.config_, model::ParseConfig(r.checkpoint_->config_json(),
                                                   r.checkpoint_->generation_config_json(), s.directory));
    for (const uint32_t token : s.tokens) {
      if (token < static_cast<uint32_t>(r.config_.vocab)) continue;
      return Error(Code::kInvalidArgument, "token ", token, " of the text is outside the model's ",
                   r.config_.vocab);
    }
    return r;
  }

  // `variant`: null for exact K and V, whose logarithms are kept to compare with.
  StatusOr<ModelLoss> Run(const KvVariant* variant, Progress* progress, uint64_t before, uint64_t total) {
    ASSIGN_OR_RETURN(auto decoder, reference::Decoder::Create(checkpoint_, config_, quant::KvType::kF32));
    decoder->RoundWith([&](size_t layer, size_t position, bool is_value, absl::Span<double> head) {
      if (variant == nullptr) return;
      const bool eight = position < variant->first || variant->last > 0 || InEight(*variant, layer);
      (eight ? KvRounder(RoundToFp8) : is_value ? variant->v : variant->k)(head);
    });
    const reference::HeadRounder leaves_tail = [&](size_t layer, size_t, bool is_value, absl::Span<double> head) {
      if (!InEight(*variant, layer)) (is_value ? variant->v : variant->k)(head);
    };
    ModelLoss out;
    double nll = 0;
    size_t predicted = 0;
    for (size_t i = 0; i < s_.tokens.size(); ++i) {
      if (!progress->Update(before + i, total)) return Error(Code::kCancelled, "interrupted");
      const size_t position = i % s_.window;
      if (position == 0) decoder->Truncate(0);
      if (variant != nullptr && variant->last > 0 && position >= variant->last + variant->first) {
        decoder->RoundAgain(position - variant->last, leaves_tail);
      }
      RETURN_IF_ERROR(decoder->Extend({s_.tokens[i]}));
      std::vector<double> logs = LogSoftmax(decoder->logits());
      if (i + 1 < s_.tokens.size() && position + 1 < s_.window) {
        nll -= logs[s_.tokens[i + 1]];
        ++predicted;
      }
      if (variant == nullptr) {
        exact_.push_back(std::move(logs));
        continue;
      }
      out.kl += KullbackLeibler(exact_[i], logs) / static_cast<double>(s_.tokens.size());
      out.same_top += (TopOf(exact_[i]) == TopOf(logs) ? 1.0 : 0.0) / static_cast<double>(s_.tokens.size());
    }
    if (predicted > 0) out.perplexity = std::exp(nll / static_cast<double>(predicted));
    return out;
  }

 private:
  explicit Runner(const IngredientSettings& s) : s_(s) {}
  bool InEight(const KvVariant& variant, size_t layer) const {
    return variant.outer && (layer == 0 || layer + 1 == static_cast<size_t>(config_.layers));
  }

  const IngredientSettings& s_;
  std::shared_ptr<const file::Checkpoint> checkpoint_;
  model::ModelConfig config_;
  std::vector<std::vector<double>> exact_;
};

void PrintTable(const IngredientSettings& s, const std::vector<Row>& rows, double exact) {
  const auto number = [](double value) { return absl::StrFormat("%.3g", value); };
  std::printf("%zu tokens in windows of %zu, in fp64; made up: 4096 tokens, heads of 128, a sink, four large "
              "channels of K\n\n", s.tokens.size(), s.window);
  Table table({"<K and V", "bits", "KL", "same top", "perplexity", "made up: KL of weights", "output's error"});
  for (const Row& row : rows) {
    table.Row({row.variant.name, Fixed(row.variant.bits, 3), number(row.model.kl), Percent(row.model.same_top),
               absl::StrFormat("%+.3f %%", (row.model.perplexity / exact - 1) * 100), number(row.made_up.kl),
               Percent(row.made_up.output)});
  }
  table.Print();
}

void PrintJson(const IngredientSettings& s, const std::vector<Row>& rows, double exact) {
  JsonWriter out;
  out.BeginObject().Field("model", s.directory).Field("window", s.window).Field("tokens", s.tokens.size());
  out.Field("perplexity", exact).Key("ingredients").BeginArray();
  for (const Row& row : rows) {
    out.BeginObject().Field("name", row.variant.name).Field("bits", row.variant.bits);
    out.Field("first", row.variant.first).Field("last", row.variant.last).Field("outer", row.variant.outer);
    out.Field("kl", row.model.kl).Field("same_top", row.model.same_top).Field("perplexity", row.model.perplexity);
    out.Field("made_up_kl", row.made_up.kl).Field("made_up_error", row.made_up.output).EndObject();
  }
  out.EndArray().EndObject().Print();
}

}  // namespace

StatusOr<int> MeasureIngredients(const IngredientSettings& s) {
  ASSIGN_OR_RETURN(Runner runner, Runner::Open(s));
  const MadeUpAttention made_up;
  std::vector<KvVariant> variants = KvVariants();
  const uint64_t count = s.tokens.size(), total = count * (variants.size() + 1);
  Progress progress("tokens", Progress::Unit::kItems);
  ASSIGN_OR_RETURN(const ModelLoss exact, runner.Run(nullptr, &progress, 0, total));
  std::vector<Row> rows;
  for (KvVariant& variant : variants) {
    ASSIGN_OR_RETURN(const ModelLoss loss, runner.Run(&variant, &progress, count * (rows.size() + 1), total));
    const MadeUpAttention::Loss weights = made_up.Measure(variant);
    rows.push_back({std::move(variant), loss, weights});
  }
  progress.Clear();
  s.json ? PrintJson(s, rows, exact.perplexity) : PrintTable(s, rows, exact.perplexity);
  return kExitOk;
}

}  // namespace mainarch::cli
