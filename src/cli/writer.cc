// SPDX-License-Identifier: MIT
#include "cli/writer.h"

#include <algorithm>

#include "base/clock.h"
#include "cli/interrupt.h"

namespace mainarch::cli {
namespace {

double SecondsSince(int64_t ns) { return static_cast<double>(NowNs() - ns) * 1e-9; }

const char* FinishName(uint32_t finish) {
  switch (finish) {
    case MAINARCH_FINISH_END:
      return "end";
    case MAINARCH_FINISH_STOP_TOKEN:
    case MAINARCH_FINISH_STOP_SEQUENCE:
    case MAINARCH_FINISH_STOP_STRING:
      return "stop";
    case MAINARCH_FINISH_MAX_TOKENS:
      return "max-tokens";
    case MAINARCH_FINISH_LENGTH:
      return "length";
    default:
      return "interrupted";
  }
}

}  // namespace

StatusOr<std::unique_ptr<Writer>> Writer::Open(const ModelOptions& options, bool device_given,
                                               bool draft_head) {
  std::unique_ptr<Writer> writer(new Writer());
  ASSIGN_OR_RETURN(writer->opened_,
                   OpenModel(options, device_given, draft_head ? MAINARCH_MODEL_DRAFT_HEAD : 0));
  return writer;
}

StatusOr<mainarch_sequence_options> Writer::RecommendedOptions() const {
  auto options = Sized<mainarch_sequence_options>();
  mainarch_error error;
  RETURN_IF_ERROR(FromAbi(mainarch_model_sequence_options(opened_.model.get(), &options, &error), error));
  return options;
}

Status Writer::Start(const mainarch_sequence_options& options, const EngineWish& wish,
                     const std::vector<std::string>& stops, bool show_special) {
  mainarch_error error;
  auto engine_options = Sized<mainarch_engine_options>();
  engine_options.max_sequence_tokens = wish.context;
  engine_options.kv_type = quant::PublicKvType(wish.kv);
  engine_options.drafts = wish.drafts;
  engine_options.max_drafts = wish.max_drafts;
  if (wish.tiers.near) engine_options.flags |= MAINARCH_ENGINE_KV_NEAR;
  if (wish.tiers.outer) engine_options.flags |= MAINARCH_ENGINE_KV_OUTER;
  if (wish.fast) engine_options.flags |= MAINARCH_ENGINE_FAST;
  if (wish.mxfp8) engine_options.flags |= MAINARCH_ENGINE_MXFP8;
  if (wish.int8) engine_options.flags |= MAINARCH_ENGINE_INT8;
  if (wish.resident == backend::ResidentMode::kOn) engine_options.flags |= MAINARCH_ENGINE_RESIDENT;
  if (wish.resident == backend::ResidentMode::kAuto) engine_options.flags |= MAINARCH_ENGINE_RESIDENT_AUTO;
  mainarch_engine* engine;
  RETURN_IF_ERROR(
      FromAbi(mainarch_engine_create(opened_.model.get(), &engine_options, &engine, &error), error));
  engine_.reset(engine);
  std::vector<const char*> texts;
  for (const std::string& stop : stops) {
    if (!stop.empty()) texts.push_back(stop.c_str());
  }
  stops_ = !texts.empty();
  mainarch_sequence_options sequence_options = options;
  sequence_options.stop_tokenizer = opened_.tokenizer.get();
  sequence_options.stop_strings = texts.data();
  sequence_options.stop_string_count = texts.size();
  if (show_special) sequence_options.flags |= MAINARCH_SEQUENCE_STOP_SPECIAL;
  RETURN_IF_ERROR(
      FromAbi(mainarch_sequence_open(engine, &sequence_options, &sequence_, &error), error));
  mainarch_decoder* decoder;
  RETURN_IF_ERROR(FromAbi(
      mainarch_decoder_create(opened_.tokenizer.get(), show_special ? 0 : MAINARCH_DECODE_SKIP_SPECIAL,
                              &decoder, &error),
      error));
  decoder_.reset(decoder);
  logprobs_ = options.logprobs;
  return OkStatus();
}

Status Writer::SetPrompt(absl::Span<const uint32_t> tokens, uint64_t* fresh) {
  size_t same = 0;
  while (same < std::min(held_.size(), tokens.size()) && held_[same] == tokens[same]) ++same;
  // Something must be left to append: the step after it makes the logits.
  same = std::min(same, tokens.size() - 1);
  mainarch_error error;
  if (same < held_.size()) {
    RETURN_IF_ERROR(
        FromAbi(mainarch_sequence_truncate(engine_.get(), sequence_, same, &error), error));
  }
  *fresh = tokens.size() - same;
  held_.assign(tokens.begin(), tokens.end());
  return FromAbi(mainarch_sequence_append(engine_.get(), sequence_, tokens.data() + same,
                                          tokens.size() - same, &error),
                 error);
}

Status Writer::TakeLogprobs(size_t index, Written* out) {
  TokenLogprobs taken;
  taken.logprobs.resize(logprobs_ + 1);
  mainarch_error error;
  size_t count = 0;
  RETURN_IF_ERROR(
      FromAbi(mainarch_sequence_logprobs(engine_.get(), sequence_, index, taken.logprobs.data(),
                                         taken.logprobs.size(), &count, &error),
              error));
  taken.logprobs.resize(count);
  out->logprobs.push_back(std::move(taken));
  return OkStatus();
}

Status Writer::TakeTokens(Written* out) {
  uint32_t tokens[16];
  mainarch_error error;
  while (true) {
    size_t count = 0;
    const mainarch_status status =
        mainarch_sequence_take(engine_.get(), sequence_, tokens, std::size(tokens), &count, &error);
    RETURN_IF_ERROR(FromAbi(status, error));
    if (status == MAINARCH_AGAIN) return OkStatus();
    for (size_t i = 0; i < count; ++i) {
      out->tokens.push_back(tokens[i]);
      held_.push_back(tokens[i]);
      if (logprobs_ > 0) RETURN_IF_ERROR(TakeLogprobs(i, out));
    }
  }
}

StatusOr<mainarch_sequence_info> Writer::Info() const {
  auto info = Sized<mainarch_sequence_info>();
  mainarch_error error;
  RETURN_IF_ERROR(
      FromAbi(mainarch_sequence_info_get(engine_.get(), sequence_, &info, &error), error));
  return info;
}

StatusOr<mainarch_engine_statistics> Writer::Statistics() const {
  auto statistics = Sized<mainarch_engine_statistics>();
  mainarch_error error;
  RETURN_IF_ERROR(
      FromAbi(mainarch_engine_statistics_get(engine_.get(), &statistics, &error), error));
  return statistics;
}

StatusOr<Written> Writer::Write(absl::Span<const uint32_t> tokens,
                                const std::function<void(absl::string_view)>& sink) {
  Written out;
  if (tokens.empty()) return Error(Code::kInvalidArgument, "the prompt has no tokens");
  RETURN_IF_ERROR(SetPrompt(tokens, &out.prompt_tokens));
  size_t shown = 0;  // bytes of out.text
  const auto show = [&](size_t bytes) {
    if (bytes > shown) sink(absl::string_view(out.text).substr(shown, bytes - shown));
    shown = std::max(shown, bytes);
  };
  const int64_t start = NowNs();
  int64_t first = start, last = start;
  size_t read = 0;  // of out.tokens
  ASSIGN_OR_RETURN(const mainarch_engine_statistics before, Statistics());
  mainarch_error error;
  const InterruptHook cancel(InterruptHook::When::kAtOnce,
                             [this] { mainarch_engine_cancel(engine_.get()); });
  while (!Interrupted()) {
    const mainarch_status status = mainarch_engine_step(engine_.get(), &error);
    if (status == MAINARCH_ERROR_CANCELLED) break;
    RETURN_IF_ERROR(FromAbi(status, error));
    if (status == MAINARCH_AGAIN) break;
    RETURN_IF_ERROR(TakeTokens(&out));
    if (out.tokens.empty()) continue;
    last = NowNs();
    if (read == 0) {
      first = last;
    } else {
      ++out.decode_steps;
    }
    for (; read < out.tokens.size(); ++read) {
      ASSIGN_OR_RETURN(const std::string text, Push(decoder_.get(), out.tokens[read]));
      out.text += text;
    }
    size_t stands = out.text.size();
    if (stops_) {
      ASSIGN_OR_RETURN(const mainarch_sequence_info info, Info());
      stands = std::min<size_t>(stands, info.text_bytes);
    }
    show(stands);
  }
  ASSIGN_OR_RETURN(const std::string rest, Finish(decoder_.get()));
  out.text += rest;
  ASSIGN_OR_RETURN(const mainarch_sequence_info info, Info());
  if (info.finish == MAINARCH_FINISH_STOP_STRING) out.text.resize(info.text_bytes);
  show(out.text.size());
  out.finish = FinishName(info.finish);
  ASSIGN_OR_RETURN(const mainarch_engine_statistics after, Statistics());
  out.drafts = after.drafts - before.drafts;
  out.drafts_accepted = after.drafts_accepted - before.drafts_accepted;
  out.resident_steps = after.resident_steps - before.resident_steps;
  out.resident_launches = after.resident_launches - before.resident_launches;
  out.resident_late = after.resident_late - before.resident_late;
  out.resident_commands = after.resident_commands - before.resident_commands;
  out.resident_pauses = after.resident_pauses - before.resident_pauses;
  out.resident_no_room = after.resident_no_room - before.resident_no_room;
  out.prompt_seconds = read == 0 ? SecondsSince(start) : static_cast<double>(first - start) * 1e-9;
  out.decode_seconds = static_cast<double>(last - first) * 1e-9;
  return out;
}

}  // namespace mainarch::cli
