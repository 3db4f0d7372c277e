// SPDX-License-Identifier: MIT
//
// Any sequence of calls of the C ABI, with any arguments short of dangling pointers: handles are
// opened and destroyed in any order, ids are stale, sizes wrong. Promises that are checked: no
// crash and no leak, codes that exist, messages of one line, outputs cleared after an error,
// nothing written behind a capacity.
//
// The input is a program: one byte says which call, the next ones its arguments.
#include <mainarch.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSlots = 3;       // handles of each kind
constexpr int kMaxCalls = 200;  // of one input
constexpr int kMaxSteps = 24;   // of one input: they take the time

#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (0)

std::string Checkpoint() {
  const char* root = std::getenv("MAINARCH_SOURCE_ROOT");
  return std::string(root != nullptr ? root : ".") + "/tests/golden/trained";
}

// Opened once: loading a model for every input would take all the time.
struct Shared {
  mainarch_group* group = nullptr;
  mainarch_model* model = nullptr;
  mainarch_tokenizer* tokenizer = nullptr;

  Shared() {
    mainarch_model_options options{};
    options.struct_size = sizeof(options);
    options.flags = MAINARCH_MODEL_IN_PLACE;
    REQUIRE(mainarch_group_open("cpu", nullptr, &group, nullptr) == MAINARCH_OK);
    REQUIRE(mainarch_model_open(group, Checkpoint().c_str(), &options, &model, nullptr) ==
            MAINARCH_OK);
    REQUIRE(mainarch_tokenizer_from_model(model, &tokenizer, nullptr) == MAINARCH_OK);
  }
};

Shared& TheShared() {
  static Shared* const shared = new Shared;
  return *shared;
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  uint8_t Byte() { return at_ == end_ ? 0 : *at_++; }
  // Mostly small, sometimes a limit of its type.
  uint64_t Number() {
    const uint8_t kind = Byte();
    if (kind < 200) return kind;
    constexpr uint64_t kOdd[] = {0, UINT64_MAX, UINT32_MAX, INT64_MAX, 1u << 31, 2047, 2048, 257};
    if (kind < 208) return kOdd[kind - 200];
    uint64_t value = 0;
    for (int i = 0; i < kind % 9; ++i) value = value << 8 | Byte();
    return value;
  }
  float Real() {
    const uint8_t kind = Byte();
    if (kind < 128) return static_cast<float>(kind) / 64;
    constexpr float kOdd[] = {NAN, INFINITY, -INFINITY, -1, 1e30f, 1e-30f, 0, 2};
    return kOdd[kind % 8];
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// A buffer that ends in canaries.
template <class T>
struct Buffer {
  static constexpr size_t kSize = 64;
  T values[kSize + 4];
  size_t capacity;
  size_t count = 12345;

  explicit Buffer(Input& in) {
    capacity = in.Number() % (kSize + 1);
    std::memset(static_cast<void*>(values), 0x5A, sizeof(values));
  }
  // The rule of arrays; `extra` for the zero byte of texts.
  void Check(mainarch_status status, size_t extra) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    const bool written = status == MAINARCH_OK;
    for (size_t i = written ? (count + extra) * sizeof(T) : 0; i < sizeof(values); ++i) {
      REQUIRE(bytes[i] == 0x5A);
    }
    if (written) REQUIRE(count + extra <= capacity);
    if (status == MAINARCH_ERROR_BUFFER_TOO_SMALL) REQUIRE(count + extra > capacity);
    if (status < 0 && status != MAINARCH_ERROR_BUFFER_TOO_SMALL) REQUIRE(count == 0);
  }
};

class Run {
 public:
  // Starts with one of each, so that short inputs get somewhere.
  explicit Run(Input in) : in_(in), checkpoint_(Checkpoint()) {
    groups_[0] = TheShared().group;
    models_[0] = TheShared().model;
    tokenizers_[0] = TheShared().tokenizer;
    mainarch_engine_options options{};
    options.struct_size = sizeof(options);
    options.max_sequences = 3;
    options.max_sequence_tokens = 128;
    REQUIRE(mainarch_engine_create(models_[0], &options, &engines_[0], nullptr) == MAINARCH_OK);
    REQUIRE(mainarch_decoder_create(tokenizers_[0], 0, &decoders_[0], nullptr) == MAINARCH_OK);
    REQUIRE(mainarch_sequence_open(engines_[0], nullptr, &ids_[3], nullptr) == MAINARCH_OK);
  }
  ~Run() {
    for (int i = 0; i < kSlots; ++i) {
      Drop(groups_[i], mainarch_group_destroy);
      Drop(models_[i], mainarch_model_destroy);
      Drop(tokenizers_[i], mainarch_tokenizer_destroy);
      Drop(decoders_[i], mainarch_decoder_destroy);
      Drop(engines_[i], mainarch_engine_destroy);
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void All() {
    for (int calls = 0; calls < kMaxCalls && !in_.empty(); ++calls) One(in_.Byte());
  }

 private:
  template <class T>
  T*& Slot(T* (&slots)[kSlots]) {
    return slots[in_.Byte() % kSlots];
  }

  // What is shared stays.
  template <class T>
  static void Drop(T*& slot, void (*destroy)(T*)) {
    const void* handle = slot;
    const Shared& shared = TheShared();
    if (handle != shared.group && handle != shared.model && handle != shared.tokenizer) {
      destroy(slot);
    }
    slot = nullptr;
  }

  mainarch_error* NewError() {
    use_error_ = in_.Byte() % 8 != 0;
    std::memset(&error_, 0x77, sizeof(error_));
    return use_error_ ? &error_ : nullptr;
  }

  mainarch_status Checked(mainarch_status status) {
    REQUIRE(status >= -63 && status <= 2);
    REQUIRE(std::strcmp(mainarch_status_string(status), "unknown status") != 0);
    REQUIRE(status != MAINARCH_ERROR_INTERNAL && status != MAINARCH_ERROR_WRONG_PROCESS);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&error_);
    if (status >= 0 || !use_error_) {
      for (size_t i = 0; i < sizeof(error_); ++i) REQUIRE(bytes[i] == 0x77);
      return status;
    }
    REQUIRE(error_.status == status && error_.reserved == 0);
    const size_t length = strnlen(error_.message, sizeof(error_.message));
    REQUIRE(length > 0 && length < sizeof(error_.message));
    for (size_t i = 0; i < length; ++i) {
      REQUIRE(static_cast<unsigned char>(error_.message[i]) >= 0x20);
    }
    return status;
  }

  // A new handle takes the place of an old one, which is destroyed.
  template <class T, class Make>
  void Open(T* (&slots)[kSlots], void (*destroy)(T*), Make make) {
    T*& slot = Slot(slots);
    T* made = reinterpret_cast<T*>(this);
    mainarch_error* error = NewError();
    const mainarch_status status = Checked(make(in_.Byte() % 16 == 0 ? nullptr : &made, error));
    if (made == reinterpret_cast<T*>(this)) {
      REQUIRE(status == MAINARCH_ERROR_INVALID_ARGUMENT);  // `out` was NULL
      return;
    }
    REQUIRE((status == MAINARCH_OK) == (made != nullptr));
    if (made == nullptr) return;
    Drop(slot, destroy);
    slot = made;
  }

  // Sets the size, mostly to the right one.
  template <class T>
  T Sized() {
    T options{};
    const uint8_t age = in_.Byte();
    options.struct_size = sizeof(T);
    if (age < 16) options.struct_size = age * 8u;
    if (age == 17) options.struct_size = in_.Number();
    // What is behind the struct is not ours to let the library read.
    if (options.struct_size > sizeof(T) && options.struct_size <= 4096) {
      options.struct_size = sizeof(T);
    }
    return options;
  }

  template <class T, class Get>
  void Info(Get get) {
    T info = Sized<T>();
    const size_t size = info.struct_size;
    T* out = in_.Byte() % 16 == 0 ? nullptr : &info;
    Checked(get(out, NewError()));
    REQUIRE(info.struct_size == size);
  }

  void One(uint8_t call);
  void OpenModel();
  void OpenEngine();
  void OpenSequence();
  void Encode();
  void Decode(bool stream);
  void Render();
  void Append();
  void Take();
  void TokenTexts();

  uint64_t& Id() { return ids_[in_.Byte() % 8]; }

  Input in_;
  std::string checkpoint_;
  mainarch_error error_;
  bool use_error_ = true;
  int steps_ = 0;
  int loads_ = 0;
  mainarch_group* groups_[kSlots] = {};
  mainarch_model* models_[kSlots] = {};
  mainarch_tokenizer* tokenizers_[kSlots] = {};
  mainarch_decoder* decoders_[kSlots] = {};
  mainarch_engine* engines_[kSlots] = {};
  mainarch_sequence ids_[8] = {0, UINT64_MAX, 1, 0, 0, 0, 0, 0};
};

void Run::OpenModel() {
  if (++loads_ > 2) return;
  auto options = Sized<mainarch_model_options>();
  options.flags = in_.Byte() % 8 == 0 ? in_.Number() : MAINARCH_MODEL_IN_PLACE;
  const mainarch_group* group = Slot(groups_);
  const char* path = in_.Byte() % 8 == 0 ? "/nonexistent" : checkpoint_.c_str();
  Open(models_, mainarch_model_destroy, [&](mainarch_model** out, mainarch_error* error) {
    return mainarch_model_open(group, path, &options, out, error);
  });
}

void Run::OpenEngine() {
  auto options = Sized<mainarch_engine_options>();
  options.kv_tokens = in_.Byte() % 4 == 0 ? in_.Number() % 4096 : 0;
  options.max_sequences = static_cast<uint32_t>(in_.Number() % 9);
  options.max_sequence_tokens = static_cast<uint32_t>(in_.Number());
  options.max_step_tokens = static_cast<uint32_t>(in_.Number() % 300);
  options.kv_type = static_cast<int32_t>(in_.Byte() % 8) - 1;
  if (in_.Byte() % 16 == 0) options.flags = in_.Number();
  const mainarch_model* model = Slot(models_);
  Open(engines_, mainarch_engine_destroy, [&](mainarch_engine** out, mainarch_error* error) {
    return mainarch_engine_create(model, &options, out, error);
  });
}

void Run::OpenSequence() {
  uint32_t numbers[8];
  mainarch_logit_bias bias[2];
  for (uint32_t& number : numbers) number = static_cast<uint32_t>(in_.Number());
  for (auto& one : bias) one = {static_cast<uint32_t>(in_.Number()), in_.Real()};
  auto options = Sized<mainarch_sequence_options>();
  options.flags = in_.Byte() % 5;
  options.seed = in_.Number();
  options.temperature = in_.Real();
  options.top_p = in_.Real();
  options.min_p = in_.Real();
  options.top_k = static_cast<uint32_t>(in_.Number());
  options.repetition_penalty = in_.Real();
  options.frequency_penalty = in_.Real();
  options.presence_penalty = in_.Real();
  options.logprobs = in_.Byte() % 36;
  options.min_tokens = in_.Byte() % 8;
  options.max_tokens = in_.Byte() % 16;
  options.stop_tokens = numbers;
  options.stop_token_count = in_.Byte() % 5;
  options.stop_sequence_tokens = numbers + 4;
  const uint32_t lengths[2] = {in_.Byte() % 3u, in_.Byte() % 3u};
  options.stop_sequence_lengths = lengths;
  options.stop_sequence_count = in_.Byte() % 3;
  options.logit_bias = bias;
  options.logit_bias_count = in_.Byte() % 3;
  mainarch_engine* engine = Slot(engines_);
  mainarch_sequence id = 77;
  const bool plain = in_.Byte() % 2 == 0;
  const mainarch_status status =
      Checked(mainarch_sequence_open(engine, plain ? nullptr : &options, &id, NewError()));
  REQUIRE((status == MAINARCH_OK) == (id != 0));
  if (id != 0) Id() = id;
}

void Run::Encode() {
  char text[24];
  const size_t length = in_.Byte() % sizeof(text);
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(in_.Byte());
  Buffer<uint32_t> out(in_);
  const uint64_t flags = in_.Byte() % 5;
  const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
  out.Check(Checked(mainarch_tokenizer_encode(tokenizer, text, length, flags, out.values,
                                              out.capacity, &out.count, NewError())),
            0);
}

void Run::Decode(bool stream) {
  uint32_t tokens[8];
  const size_t count = in_.Byte() % 8;
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint32_t>(in_.Number() * 8);
  Buffer<char> out(in_);
  mainarch_status status;
  if (stream) {
    mainarch_decoder* decoder = Slot(decoders_);
    status = mainarch_decoder_push(decoder, tokens, count, out.values, out.capacity, &out.count,
                                   NewError());
  } else {
    const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
    const uint64_t flags = in_.Byte() % 3;
    status = mainarch_tokenizer_decode(tokenizer, tokens, count, flags, out.values, out.capacity,
                                       &out.count, NewError());
  }
  out.Check(Checked(status), 1);
}

void Run::Render() {
  static const char* const kRoles[] = {"user", "assistant", "system", "wizard", nullptr, ""};
  static const char* const kTexts[] = {"hello", "", "<think>\n\nx</think>y", "<|im_end|>", nullptr};
  mainarch_chat_message messages[4];
  const size_t count = in_.Byte() % 5;
  for (size_t i = 0; i < count; ++i) {
    messages[i] = {kRoles[in_.Byte() % 6], kTexts[in_.Byte() % 5]};
  }
  auto options = Sized<mainarch_chat_options>();
  options.flags = in_.Byte() % 3;
  options.thinking = in_.Byte() % 4;
  Buffer<char> out(in_);
  const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
  out.Check(Checked(mainarch_tokenizer_render_chat(tokenizer, messages, count, &options, out.values,
                                                   out.capacity, &out.count, NewError())),
            1);
  static const char* const kChats[] = {
      "", "{}", R"({"messages": [{"role": "user", "content": "x"}]})",
      R"({"messages": [{}], "chat_template": "{{ messages * 3 }}"})", R"({"messages": 1})"};
  const char* chat = kChats[in_.Byte() % 5];
  Buffer<char> prompt(in_);
  prompt.Check(Checked(mainarch_tokenizer_render_chat_json(tokenizer, chat, std::strlen(chat),
                                                           prompt.values, prompt.capacity,
                                                           &prompt.count, NewError())),
               1);
}

void Run::TokenTexts() {
  const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
  Buffer<char> text(in_);
  const auto token = static_cast<uint32_t>(in_.Number());
  const mainarch_status status = Checked(mainarch_tokenizer_token_text(
      tokenizer, token, text.values, text.capacity, &text.count, NewError()));
  text.Check(status, 1);
  uint32_t found = 7;
  const size_t length = status == MAINARCH_OK ? text.count : 2;
  const mainarch_status back =
      Checked(mainarch_tokenizer_token_id(tokenizer, text.values, length, &found, NewError()));
  REQUIRE((back == MAINARCH_OK) == (found != MAINARCH_NO_TOKEN));
  if (status == MAINARCH_OK) REQUIRE(found == token);
  Buffer<uint32_t> special(in_);
  special.Check(Checked(mainarch_tokenizer_special_tokens(
                    tokenizer, special.values, special.capacity, &special.count, NewError())),
                0);
}

void Run::Append() {
  uint32_t tokens[32];
  const size_t count = in_.Byte() % 32;
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint32_t>(in_.Number());
  mainarch_engine* engine = Slot(engines_);
  const mainarch_sequence id = Id();
  Checked(mainarch_sequence_append(engine, id, tokens, count, NewError()));
}

void Run::Take() {
  mainarch_engine* engine = Slot(engines_);
  const mainarch_sequence id = Id();
  Buffer<uint32_t> tokens(in_);
  const mainarch_status status = Checked(mainarch_sequence_take(
      engine, id, tokens.values, tokens.capacity, &tokens.count, NewError()));
  tokens.Check(status, 0);
  Buffer<mainarch_logprob> logprobs(in_);
  logprobs.Check(
      Checked(mainarch_sequence_logprobs(engine, id, in_.Number(), logprobs.values,
                                         logprobs.capacity, &logprobs.count, NewError())),
      0);
}

void Run::One(uint8_t call) {
  switch (call % 40) {
    case 0: {
      auto options = Sized<mainarch_group_options>();
      options.flags = in_.Byte() % 3;
      options.threads = in_.Byte() % 4;
      options.log_level = in_.Byte() % 7 - 1;
      static const char* const kDevices[] = {"cpu", "cpu:2", "cpu:3", "gpux", "", nullptr};
      const char* device = kDevices[in_.Byte() % 6];
      return Open(groups_, mainarch_group_destroy, [&](mainarch_group** out, mainarch_error* e) {
        return mainarch_group_open(device, &options, out, e);
      });
    }
    case 1:
      return OpenModel();
    case 2: {
      const mainarch_model* model = Slot(models_);
      if (++loads_ > 2) return;
      return Open(tokenizers_, mainarch_tokenizer_destroy,
                  [&](mainarch_tokenizer** out, mainarch_error* e) {
                    return mainarch_tokenizer_from_model(model, out, e);
                  });
    }
    case 3:
      if (++loads_ > 2) return;
      return Open(tokenizers_, mainarch_tokenizer_destroy,
                  [&](mainarch_tokenizer** out, mainarch_error* e) {
                    return mainarch_tokenizer_open(checkpoint_.c_str(), out, e);
                  });
    case 4: {
      const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
      const uint64_t flags = in_.Byte() % 3;
      return Open(decoders_, mainarch_decoder_destroy,
                  [&](mainarch_decoder** out, mainarch_error* e) {
                    return mainarch_decoder_create(tokenizer, flags, out, e);
                  });
    }
    case 5:
      return OpenEngine();
    case 6:
      return OpenSequence();
    case 7:
      return Encode();
    case 8:
      return Decode(false);
    case 9:
      return Decode(true);
    case 10:
      return Render();
    case 11:
      return TokenTexts();
    case 12:
    case 13:
      return Append();
    case 14:
      return Take();
    case 15: {
      mainarch_engine* engine = Slot(engines_);
      const mainarch_sequence from = Id();
      mainarch_sequence copy = 77;
      const mainarch_status status =
          Checked(mainarch_sequence_fork(engine, from, &copy, NewError()));
      REQUIRE((status == MAINARCH_OK) == (copy != 0));
      if (copy != 0) Id() = copy;
      return;
    }
    case 16: {
      mainarch_engine* engine = Slot(engines_);
      const mainarch_sequence id = Id();
      const uint64_t position = in_.Number();
      Checked(mainarch_sequence_truncate(engine, id, position, NewError()));
      return;
    }
    case 17: {
      mainarch_engine* engine = Slot(engines_);
      const mainarch_sequence id = Id();
      const uint64_t seed = in_.Number();
      Checked(mainarch_sequence_set_seed(engine, id, seed, NewError()));
      return;
    }
    case 18: {
      mainarch_engine* engine = Slot(engines_);
      const mainarch_sequence id = Id();
      static float logits[2048];
      size_t count = 1;
      const size_t capacity = in_.Byte() % 2 == 0 ? 2048 : 2047;
      const mainarch_status status =
          Checked(mainarch_sequence_logits(engine, id, logits, capacity, &count, NewError()));
      if (status == MAINARCH_OK || status == MAINARCH_ERROR_BUFFER_TOO_SMALL) {
        REQUIRE(count == 2048);
      } else {
        REQUIRE(count == 0);
      }
      return;
    }
    case 19: {
      mainarch_engine* engine = Slot(engines_);
      const mainarch_sequence id = Id();
      Checked(mainarch_sequence_close(engine, id, NewError()));
      return;
    }
    case 20:
      return Info<mainarch_sequence_info>([&](mainarch_sequence_info* out, mainarch_error* e) {
        return mainarch_sequence_info_get(engines_[0], ids_[3], out, e);
      });
    case 21:
    case 22:
    case 23:
      if (++steps_ > kMaxSteps) return;
      {
        mainarch_engine* engine = Slot(engines_);
        Checked(mainarch_engine_step(engine, NewError()));
      }
      return;
    case 24:
      if (++steps_ > kMaxSteps) return;
      {
        mainarch_engine* engine = Slot(engines_);
        Checked(mainarch_engine_submit(engine, NewError()));
      }
      return;
    case 25:
    case 26: {
      mainarch_engine* engine = Slot(engines_);
      const int64_t timeout = in_.Byte() % 3 == 0 ? 0 : -1;
      Checked(mainarch_engine_wait(engine, timeout, NewError()));
      return;
    }
    case 27:
      mainarch_engine_cancel(Slot(engines_));
      return;
    case 28: {
      mainarch_engine* engine = Slot(engines_);
      REQUIRE((mainarch_engine_event_fd(engine) >= 0) == (engine != nullptr));
      return;
    }
    case 29: {
      const mainarch_engine* engine = Slot(engines_);
      return Info<mainarch_engine_info>([&](mainarch_engine_info* out, mainarch_error* e) {
        return mainarch_engine_info_get(engine, out, e);
      });
    }
    case 30: {
      const mainarch_engine* engine = Slot(engines_);
      return Info<mainarch_engine_statistics>(
          [&](mainarch_engine_statistics* out, mainarch_error* e) {
            return mainarch_engine_statistics_get(engine, out, e);
          });
    }
    case 31: {
      const mainarch_model* model = Slot(models_);
      return Info<mainarch_model_info>([&](mainarch_model_info* out, mainarch_error* e) {
        return mainarch_model_info_get(model, out, e);
      });
    }
    case 32: {
      const mainarch_model* model = Slot(models_);
      return Info<mainarch_sequence_options>(
          [&](mainarch_sequence_options* out, mainarch_error* e) {
            return mainarch_model_sequence_options(model, out, e);
          });
    }
    case 33: {
      const mainarch_group* group = Slot(groups_);
      const size_t index = in_.Byte() % 4;
      return Info<mainarch_device_info>([&](mainarch_device_info* out, mainarch_error* e) {
        return mainarch_group_device_info_get(group, index, out, e);
      });
    }
    case 34: {
      const mainarch_tokenizer* tokenizer = Slot(tokenizers_);
      return Info<mainarch_tokenizer_info>([&](mainarch_tokenizer_info* out, mainarch_error* e) {
        return mainarch_tokenizer_info_get(tokenizer, out, e);
      });
    }
    case 35: {
      mainarch_decoder* decoder = Slot(decoders_);
      Buffer<char> out(in_);
      out.Check(Checked(mainarch_decoder_finish(decoder, out.values, out.capacity, &out.count,
                                                NewError())),
                1);
      return;
    }
    case 36:
      return Drop(Slot(groups_), mainarch_group_destroy);
    case 37:
      return Drop(Slot(models_), mainarch_model_destroy);
    case 38:
      return Drop(Slot(tokenizers_), mainarch_tokenizer_destroy);
    default:
      return Drop(Slot(engines_), mainarch_engine_destroy);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(Input(data, size)).All();
  return 0;
}
