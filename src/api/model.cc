// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "api/call.h"
#include "api/handles.h"
#include "api/options.h"
#include "base/clock.h"
#include "base/hash_map.h"
#include "model/unused_tensors.h"

namespace mainarch::api {
namespace {

constexpr size_t kFormats = quant::kFormatCount;

// What the weights of a Program are, each tensor of the checkpoint counted once.
struct WeightSummary {
  uint64_t parameters = 0;
  std::array<uint64_t, kFormats> bytes{};  // by quant::Format

  std::string Formats() const {
    std::array<size_t, kFormats> order;
    for (size_t i = 0; i < kFormats; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return bytes[a] > bytes[b]; });
    std::string text;
    for (const size_t format : order) {
      if (bytes[format] == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : " ",
                      quant::NameOf(static_cast<quant::Format>(format)));
    }
    return text;
  }
};

WeightSummary Summarise(const backend::Program& program) {
  WeightSummary summary;
  HashSet<const void*> seen;
  for (const backend::Weight& weight : program.weights) {
    for (const quant::Matrix& matrix : weight.sources) {
      if (!seen.insert(matrix.data.data()).second) continue;
      summary.parameters += static_cast<uint64_t>(matrix.rows) * static_cast<uint64_t>(matrix.cols);
      summary.bytes[static_cast<size_t>(matrix.format)] += matrix.data.size() + matrix.scale.size();
    }
  }
  return summary;
}

StatusOr<model::Part> PartOf(uint64_t flags) {
  const bool drafts = (flags & MAINARCH_MODEL_DRAFT_HEAD) != 0;
  if ((flags & MAINARCH_MODEL_EMBED) == 0) return drafts ? model::Part::kModelAndDrafts : model::Part::kModel;
  if (!drafts) return model::Part::kVectors;
  return Error(Code::kInvalidArgument,
               "options.flags: MAINARCH_MODEL_DRAFT_HEAD, and MAINARCH_MODEL_EMBED, which generates nothing");
}

Result OpenModel(const mainarch_group* group, const char* path, const mainarch_model_options* given,
                 mainarch_model** out) {
  RETURN_IF_ERROR(CheckOut(out));
  RETURN_IF_ERROR(CheckHandle(group, "group"));
  RETURN_IF_ERROR(NotNull(path, "path"));
  ASSIGN_OR_RETURN(const mainarch_model_options options, ReadOptions(given, "options"));
  RETURN_IF_ERROR(CheckFlags(
      options.flags,
      MAINARCH_MODEL_IN_PLACE | MAINARCH_MODEL_WAIT | MAINARCH_MODEL_DRAFT_HEAD | MAINARCH_MODEL_EMBED,
      "options"));
  ASSIGN_OR_RETURN(const model::Part part, PartOf(options.flags));
  backend::LoadOptions load;
  load.in_place = (options.flags & MAINARCH_MODEL_IN_PLACE) != 0;
  load.behind = (options.flags & MAINARCH_MODEL_WAIT) == 0 && options.progress == nullptr;
  if (options.progress != nullptr) {
    load.progress = [&options](uint64_t done, uint64_t total) {
      return options.progress(options.progress_user, done, total) == 0;
    };
  }
  const int64_t start_ns = NowNs();
  auto model = std::make_unique<mainarch_model>();
  model->origin = group->origin;
  model->log = group->log;
  ASSIGN_OR_RETURN(model->model, model::Model::Load(group->backend, path, load, part));
  model->log.Write(LogLevel::kInfo, "model ", path, ": ", model->model->config().model_type, ", ",
                   model->model->checkpoint().file_bytes(), " bytes of files, ",
                   model->model->weights().weight_bytes(), " bytes of memory, opened in ",
                   (NowNs() - start_ns) / 1000000, " ms");
  const std::string unused = Describe(model::FindUnusedTensors(
      model->model->checkpoint(), model->model->weights().programs()));
  if (!unused.empty()) model->log.Write(LogLevel::kWarning, "model ", path, ": ", unused);
  *out = model.release();
  return MAINARCH_OK;
}

uint32_t Clamp(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<uint32_t>::max()));
}

mainarch_model_info InfoOf(const model::Model& model) {
  const model::ModelConfig& config = model.config();
  const WeightSummary summary = Summarise(model.weights().program());
  mainarch_model_info info{};
  info.parameter_count = summary.parameters;
  info.weight_bytes = model.weights().weight_bytes();
  info.file_bytes = model.checkpoint().file_bytes();
  info.vocab_size = Clamp(config.vocab);
  info.max_tokens = Clamp(config.max_position);
  info.layers = Clamp(config.layers);
  info.hidden_size = Clamp(config.hidden);
  info.experts = Clamp(config.experts);
  info.experts_per_token = Clamp(config.experts_per_token);
  CopyName(config.model_type, info.architecture);
  CopyName(summary.Formats(), info.formats);
  const backend::Placement placement = model.weights().placement();
  info.move_bytes = placement.total;
  info.moved_bytes = placement.done;
  info.huge_bytes = model.weights().huge_bytes();
  info.move_status = static_cast<mainarch_status>(CodeOf(placement.status));
  return info;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_model_open(const mainarch_group* group, const char* path,
                                    const mainarch_model_options* options, mainarch_model** out,
                                    mainarch_error* error) {
  return Fence(error, [&] { return OpenModel(group, path, options, out); });
}

void mainarch_model_destroy(mainarch_model* model) { delete model; }

mainarch_status mainarch_model_info_get(const mainarch_model* model, mainarch_model_info* out,
                                        mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(model, "model"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    RETURN_IF_ERROR(WriteInfo(InfoOf(*model->model), out, "out"));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_model_end_tokens(const mainarch_model* model, uint32_t* tokens,
                                          size_t capacity, size_t* count, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(tokens, capacity, "tokens", count, "count"));
    RETURN_IF_ERROR(CheckHandle(model, "model"));
    return CopyArray<uint32_t>(model->model->config().eos_ids, tokens, capacity, count, "tokens");
  });
}

mainarch_status mainarch_model_sequence_options(const mainarch_model* model,
                                                mainarch_sequence_options* out,
                                                mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(model, "model"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    const model::ModelConfig& config = model->model->config();
    mainarch_sequence_options options{};
    options.temperature = config.temperature;
    options.top_p = config.top_p;
    options.min_p = config.min_p;
    options.top_k = config.top_k;
    options.repetition_penalty = config.repetition_penalty;
    RETURN_IF_ERROR(WriteInfo(options, out, "out"));
    return MAINARCH_OK;
  });
}

}  // extern "C"
