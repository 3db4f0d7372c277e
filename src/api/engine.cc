// SPDX-License-Identifier: MIT
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "api/call.h"
#include "api/engine_call.h"
#include "api/handles.h"
#include "api/options.h"

namespace mainarch::api {
namespace {

static_assert(MAINARCH_KV_BF16 == quant::PublicKvType(quant::KvType::kBF16) &&
              MAINARCH_KV_FP8 == quant::PublicKvType(quant::KvType::kFp8) &&
              MAINARCH_KV_F32 == quant::PublicKvType(quant::KvType::kF32) &&
              MAINARCH_KV_FP4 == quant::PublicKvType(quant::KvType::kFp4) &&
              MAINARCH_KV_K8V4 == quant::PublicKvType(quant::KvType::kK8V4) &&
              MAINARCH_KV_K8V4 == static_cast<int>(quant::kKvTypeCount));

StatusOr<backend::KvType> KvTypeOf(int32_t kv_type) {
  constexpr int32_t kMost = static_cast<int32_t>(quant::kKvTypeCount);
  if (kv_type == MAINARCH_KV_DEFAULT) kv_type = MAINARCH_KV_BF16;
  if (kv_type >= 1 && kv_type <= kMost) return static_cast<backend::KvType>(kv_type - 1);
  return Error(Code::kInvalidArgument, "options.kv_type ", kv_type, " is not from 0 to ", kMost);
}

static_assert(MAINARCH_DRAFTS_OFF == static_cast<int>(decode::DraftKind::kNone) &&
              MAINARCH_DRAFTS_HEAD == static_cast<int>(decode::DraftKind::kHead) &&
              MAINARCH_DRAFTS_NGRAM == static_cast<int>(decode::DraftKind::kNgram) &&
              MAINARCH_DRAFTS_AUTO == static_cast<int>(decode::DraftKind::kAuto));
static_assert(std::size(mainarch_engine_statistics().drafts_at) == decode::kCountedDrafts);

StatusOr<decode::DraftKind> DraftKindOf(const mainarch_engine_options& options) {
  if (options.drafts < MAINARCH_DRAFTS_OFF || options.drafts > MAINARCH_DRAFTS_AUTO) {
    return Error(Code::kInvalidArgument, "options.drafts ", options.drafts, " is not from ",
                 static_cast<int>(MAINARCH_DRAFTS_OFF), " to ",
                 static_cast<int>(MAINARCH_DRAFTS_AUTO));
  }
  if (options.max_drafts > decode::kCountedDrafts) {
    return Error(Code::kInvalidArgument, "options.max_drafts ", options.max_drafts,
                 " is more than ", decode::kCountedDrafts);
  }
  return static_cast<decode::DraftKind>(options.drafts);
}

// A cache whose size nobody has named is as large as could ever be needed, and costs what is touched.
uint64_t PrefixBytes(const mainarch_engine_options& options) {
  constexpr uint64_t kUnnamed = uint64_t{512} << 20;
  const bool named = options.kv_tokens > 0 || options.memory_bytes > 0;
  return options.prefix_bytes > 0 || named ? options.prefix_bytes : kUnnamed;
}

Result CreateEngine(const mainarch_model* model, const mainarch_engine_options* given,
                    mainarch_engine** out) {
  RETURN_IF_ERROR(CheckOut(out));
  RETURN_IF_ERROR(CheckHandle(model, "model"));
  ASSIGN_OR_RETURN(const mainarch_engine_options options, ReadOptions(given, "options"));
  RETURN_IF_ERROR(CheckFlags(options.flags,
                             MAINARCH_ENGINE_FAST | MAINARCH_ENGINE_INT8 | MAINARCH_ENGINE_NO_PREFIX_CACHE |
                                 MAINARCH_ENGINE_RESIDENT | MAINARCH_ENGINE_RESIDENT_AUTO |
                                 MAINARCH_ENGINE_KV_NEAR | MAINARCH_ENGINE_KV_OUTER | MAINARCH_ENGINE_MXFP8,
                             "options"));
  RETURN_IF_ERROR(CheckReserved(options.reserved, "options.reserved"));
  decode::EngineOptions wanted;
  wanted.max_sequences = options.max_sequences;
  wanted.max_sequence_tokens = options.max_sequence_tokens;
  wanted.max_step_tokens = options.max_step_tokens;
  wanted.kv_tokens = options.kv_tokens;
  wanted.memory_bytes = options.memory_bytes;
  wanted.logit_rows = options.logit_rows;
  wanted.prefix_cache = (options.flags & MAINARCH_ENGINE_NO_PREFIX_CACHE) == 0;
  wanted.prefix_bytes = PrefixBytes(options);
  if ((options.flags & MAINARCH_ENGINE_FAST) != 0) {
    wanted.activations = backend::Activations::kBF16;
  }
  if ((options.flags & MAINARCH_ENGINE_INT8) != 0) {
    wanted.activations = backend::Activations::kInt8;
  }
  if ((options.flags & MAINARCH_ENGINE_MXFP8) != 0) {
    wanted.activations = backend::Activations::kMxfp8;
  }
  if ((options.flags & MAINARCH_ENGINE_RESIDENT) != 0) wanted.resident = backend::ResidentMode::kOn;
  if ((options.flags & MAINARCH_ENGINE_RESIDENT_AUTO) != 0) wanted.resident = backend::ResidentMode::kAuto;
  ASSIGN_OR_RETURN(wanted.kv_type, KvTypeOf(options.kv_type));
  wanted.kv_tiers.near = (options.flags & MAINARCH_ENGINE_KV_NEAR) != 0;
  wanted.kv_tiers.outer = (options.flags & MAINARCH_ENGINE_KV_OUTER) != 0;
  ASSIGN_OR_RETURN(wanted.draft_kind, DraftKindOf(options));
  wanted.max_drafts = options.max_drafts;

  auto handle = std::make_unique<mainarch_engine>();
  handle->origin = model->origin;
  handle->model = model->model;
  ASSIGN_OR_RETURN(handle->engine, decode::Engine::Create(model->model, wanted));
  const decode::EngineInfo made = handle->engine->info();
  mainarch_engine_info& info = handle->info;
  info.kv_tokens = made.kv_tokens_total;
  info.memory_bytes = made.memory_bytes;
  info.max_sequences = made.max_sequences;
  info.max_sequence_tokens = wanted.max_sequence_tokens != 0
                                 ? wanted.max_sequence_tokens
                                 : static_cast<uint32_t>(model->model->config().max_position);
  info.max_step_tokens = made.max_step_tokens;
  info.kv_type = PublicKvType(wanted.kv_type);
  info.logit_rows = made.logit_rows;
  info.drafts = static_cast<int32_t>(made.draft_kind);
  info.max_drafts = made.max_drafts;
  model->log.Write(LogLevel::kInfo, "engine: ", info.max_sequences, " sequences, ", info.kv_tokens,
                   " tokens of KV, ", info.max_step_tokens, " tokens a step, ", info.memory_bytes,
                   " bytes");
  if (!made.resident_refusal.empty()) {
    model->log.Write(LogLevel::kInfo, "engine: steps are packets, no resident kernel's: ", made.resident_refusal);
  }
  *out = handle.release();
  return MAINARCH_OK;
}

// What a step came to: true: it did `yes`.
Result Told(const StatusOr<bool>& done, mainarch_status no) {
  RETURN_IF_ERROR(done.status());
  return *done ? MAINARCH_OK : no;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_engine_create(const mainarch_model* model,
                                       const mainarch_engine_options* options,
                                       mainarch_engine** out, mainarch_error* error) {
  return Fence(error, [&] { return CreateEngine(model, options, out); });
}

void mainarch_engine_destroy(mainarch_engine* engine) { delete engine; }

mainarch_status mainarch_engine_info_get(const mainarch_engine* engine, mainarch_engine_info* out,
                                         mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(engine, "engine"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    RETURN_IF_ERROR(WriteInfo(engine->info, out, "out"));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_engine_statistics_get(const mainarch_engine* engine,
                                               mainarch_engine_statistics* out,
                                               mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(engine, "engine"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    const decode::EngineInfo now = engine->engine->info();
    mainarch_engine_statistics statistics{};
    statistics.steps = now.steps;
    statistics.tokens_run = now.rows;
    statistics.tokens_produced = now.produced;
    statistics.kv_tokens_free = now.kv_tokens_free;
    statistics.step_ns_last = now.step_ns_last;
    statistics.sequences = now.sequences;
    statistics.prefix_hits = now.prefix_hits;
    statistics.prefix_tokens = now.prefix_tokens;
    statistics.prefix_evictions = now.prefix_evictions;
    statistics.prefix_held = now.prefix_held;
    statistics.drafts = now.drafts;
    statistics.drafts_accepted = now.drafts_accepted;
    std::copy(now.drafts_at.begin(), now.drafts_at.end(), statistics.drafts_at);
    std::copy(now.drafts_accepted_at.begin(), now.drafts_accepted_at.end(),
              statistics.drafts_accepted_at);
    statistics.resident_steps = now.resident.steps;
    statistics.resident_launches = now.resident.launches;
    statistics.resident_late = now.resident.late;
    statistics.resident_commands = now.resident.commands;
    statistics.resident_pauses = now.resident.pauses;
    statistics.resident_no_room = now.resident.no_room;
    RETURN_IF_ERROR(WriteInfo(statistics, out, "out"));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_engine_pin_prefix(mainarch_engine* engine, const uint32_t* tokens,
                                           size_t count, uint64_t salt, size_t* pinned,
                                           mainarch_error* error) {
  Clear(pinned);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNull(pinned, "pinned"));
    RETURN_IF_ERROR(NotNullArray(tokens, count, "tokens"));
    ASSIGN_OR_RETURN(*pinned, e.PinPrefix({tokens, count}, salt));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_engine_drop_prefix(mainarch_engine* engine, const uint32_t* tokens,
                                            size_t count, uint64_t salt, mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNullArray(tokens, count, "tokens"));
    RETURN_IF_ERROR(e.DropPrefix({tokens, count}, salt));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_engine_step(mainarch_engine* engine, mainarch_error* error) {
  return EngineCall(engine, error,
                    [](decode::Engine& e) { return Told(e.RunStep(), MAINARCH_AGAIN); });
}

mainarch_status mainarch_engine_submit(mainarch_engine* engine, mainarch_error* error) {
  return EngineCall(engine, error,
                    [](decode::Engine& e) { return Told(e.Submit(), MAINARCH_AGAIN); });
}

mainarch_status mainarch_engine_wait(mainarch_engine* engine, int64_t timeout_ns,
                                     mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) {
    return Told(e.Wait(timeout_ns), MAINARCH_TIMED_OUT);
  });
}

int mainarch_engine_event_fd(const mainarch_engine* engine) {
  if (engine == nullptr || !engine->origin->Ours()) return -1;
  return engine->engine->event_fd();
}

void mainarch_engine_cancel(mainarch_engine* engine) {
  if (engine == nullptr || !engine->origin->Ours()) return;
  engine->engine->Cancel();
}

}  // extern "C"
