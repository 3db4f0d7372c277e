// SPDX-License-Identifier: MIT
//
// What the handles of the C ABI point to: shared ownership of what is below, so that a child keeps
// its parents alive and handles may be destroyed in any order.
#ifndef MAINARCH_API_HANDLES_H_
#define MAINARCH_API_HANDLES_H_

#include <atomic>
#include <memory>
#include <optional>

#include "api/call.h"
#include "backend/backend.h"
#include "base/log.h"
#include "base/status.h"
#include "decode/engine.h"
#include "decode/process_guard.h"
#include "model/model.h"
#include "model/pooling.h"
#include "text/chat.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace mainarch::api {

// Which process made a family of handles.
using Origin = std::shared_ptr<const decode::ProcessGuard>;

StatusOr<Origin> NewOrigin();
// WrongProcess after fork.
Status CheckOrigin(const Origin& origin);

// NULL, and then fork: the checks that every call on a handle begins with.
template <class Handle>
Status CheckHandle(const Handle* handle, absl::string_view name) {
  RETURN_IF_ERROR(NotNull(handle, name));
  return CheckOrigin(handle->origin);
}

// The `out` of a function that makes a handle, which is NULL until it is made.
template <class Handle>
Status CheckOut(Handle** out) {
  RETURN_IF_ERROR(NotNull(out, "out"));
  *out = nullptr;
  return OkStatus();
}

// Lets one thread at a time into a handle; the second is Busy, not blocked.
class OneThread {
 public:
  OneThread(std::atomic<bool>* busy, absl::string_view name)
      : busy_(busy), name_(name), held_(!busy->exchange(true, std::memory_order_acquire)) {}
  ~OneThread() {
    if (held_) busy_->store(false, std::memory_order_release);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  Status status() const {
    if (held_) return OkStatus();
    return Error(Code::kBusy, "another thread is in a call on this ", name_);
  }

 private:
  std::atomic<bool>* busy_;
  absl::string_view name_;
  bool held_;
};

// What both a group and the list of devices say of one.
mainarch_device_info PublicInfo(const backend::DeviceInfo& device);

// The tokenizer of a model's checkpoint, read anew.
StatusOr<std::shared_ptr<const text::Tokenizer>> ReadTokenizer(const model::Model& model);

}  // namespace mainarch::api

struct mainarch_group {
  mainarch::api::Origin origin;
  std::shared_ptr<mainarch::backend::Backend> backend;
  mainarch::Log log;
};

struct mainarch_model {
  mainarch::api::Origin origin;
  std::shared_ptr<const mainarch::model::Model> model;
  mainarch::Log log;
};

struct mainarch_tokenizer {
  mainarch::api::Origin origin;
  std::shared_ptr<const mainarch::text::Tokenizer> tokenizer;
  mainarch::text::Chat chat;
};

struct mainarch_decoder {
  mainarch::api::Origin origin;
  mainarch::text::StreamDecoder decoder;
  std::atomic<bool> busy{false};
};

struct mainarch_engine {
  mainarch::api::Origin origin;
  std::shared_ptr<const mainarch::model::Model> model;
  std::unique_ptr<mainarch::decode::Engine> engine;
  // The model's own, once a sequence has stop strings and names no other.
  std::shared_ptr<const mainarch::text::Tokenizer> stop_tokenizer;
  std::optional<mainarch::model::PoolingConfig> pooling;  // the checkpoint's, once a text is embedded
  mainarch_engine_info info{};  // but for memory_bytes, which the engine tells
  std::atomic<bool> busy{false};
};

#endif  // MAINARCH_API_HANDLES_H_
