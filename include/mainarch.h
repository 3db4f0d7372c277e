/* SPDX-License-Identifier: MIT */
/*
 * mainarch: LLM inference as a library, and nothing else.
 *
 *   mainarch_group      devices: GPUs, or the CPU
 *   mainarch_model      a checked checkpoint, its weights placed on a group
 *   mainarch_tokenizer  text to tokens and back; chat prompts
 *   mainarch_decoder    tokens to text as they come
 *   mainarch_engine     KV cache and scheduler over one model; it steps
 *   mainarch_sequence   one text in one engine
 *
 * The loop that a program writes:
 *
 *   append(prompt)  ->  step, take, step, take, ...  until the sequence has a finish reason
 *
 * Compile and link with `cc program.c $(pkg-config --cflags --libs mainarch)`. The header is C99,
 * C11 and C++17, and has no inline functions: all that happens, happens in the library.
 *
 * ------------------------------------------------------------------------------------------------
 * RULES. They hold for every function, and are not repeated there.
 *
 * Errors. A function that can fail returns a mainarch_status: 0 done, above 0 nothing is wrong but
 *   it is not done, below 0 an error. Its last parameter is a mainarch_error of the caller's, or
 *   NULL: when the status is below 0 it is filled with a message that names the file, field, value
 *   and limit; otherwise it is not touched. There is no other error state, per thread or global.
 *   Any call may return INVALID_ARGUMENT (a NULL that is not allowed, a wrong struct_size),
 *   UNSUPPORTED (a flag or field of a newer header), OUT_OF_HOST_MEMORY, WRONG_PROCESS or INTERNAL;
 *   a function's own text lists the others. A call that fails has changed nothing. New codes may
 *   come: switch with a default. The library never aborts, exits or prints, whatever it is given
 *   that is not a dangling pointer.
 *
 * Results. A parameter `out` or `count` must not be NULL. After an error, an `out` handle is NULL
 *   and a count 0, save with BUFFER_TOO_SMALL.
 *
 * Arrays go into buffers of the caller. `capacity` is in elements, and `*count` is how many there
 *   are; when that is more than `capacity` nothing is written, the status is BUFFER_TOO_SMALL, and
 *   `*count` is what is needed. A buffer may be NULL when capacity is 0: so one asks how much.
 *   Text buffers are in bytes and get a zero byte at the end, which `*length` does not count: they
 *   need a capacity of `*length` + 1. Text may hold zero bytes of its own.
 *
 * Options. The first field of an options struct is its size: set it to sizeof(the struct), and all
 *   that you do not care about to zero. Zero is the default of every field, and a NULL pointer to a
 *   struct is all defaults. A program built against an older header passes a smaller struct: what
 *   it lacks is zero. One built against a newer header passes a larger one: it is taken as long as
 *   what this library does not know is zero, and else refused (UNSUPPORTED), so that no option is
 *   ever silently dropped. A size that is not a multiple of 8, below 16 or above 4096 is
 *   INVALID_ARGUMENT: it was forgotten.
 *
 * Info structs are the mirror. The caller sets struct_size; the library fills what fits, sets to
 *   zero what it does not know, and leaves struct_size alone.
 *
 * Ownership. What open or create gives, destroy takes; destroy(NULL) does nothing. A child keeps
 *   its parent alive, so handles may be destroyed in any order. The library never hands out memory
 *   to free. Inputs are copied, and may go when the call returns. Strings returned are static.
 *
 * Threads.
 *   group, model, tokenizer   any number of threads at once
 *   decoder                   one thread at a time; a second one gets BUSY
 *   engine and its sequences  one thread at a time; a second one gets BUSY. Any thread, at any time:
 *                             cancel, event_fd, info_get, statistics_get
 *   A pointer to const says that calls may run at once. Different engines are independent, also on
 *   one model. Destroying a handle while another thread is in a call on it is the caller's mistake.
 *
 * Callbacks. There are two, both called on the thread that is in a call of the library, never on
 *   one of the library's own: progress, and the log sink. They must not throw, longjmp, or call
 *   the library.
 *
 * Async. One step may be in flight an engine: submit starts it, wait ends it, step does both. The
 *   eventfd is readable when the step in flight has ended (poll, epoll, libuv, Go, tokio).
 *
 * Atomicity. A step that fails or is cancelled leaves every sequence as it was before it.
 *
 * Lost devices. DEVICE_LOST is sticky: afterwards info, close and destroy work, and all else
 *   returns it again. Every destroy ends in bounded time.
 *
 * Determinism. The same library, device string, KV type, tokens and seed give the same tokens and
 *   logits, bit for bit: whatever else is in the batch, however the prompt was cut into steps,
 *   however much of it another sequence had run, however many threads, and after a restart. Bits need not agree between kinds of device.
 *
 * fork. After fork(2), in the child, every call on a handle of the parent returns WRONG_PROCESS
 *   (device_count: 0, event_fd: -1); destroy is allowed and frees memory only. A child that needs
 *   the library opens its own group.
 *
 * Process state. The library installs no signal handler, blocks all signals in its own threads,
 *   changes no state of the process, but for AMX (MAINARCH_ENGINE_FAST), and opens every descriptor
 *   close-on-exec. Once the last handle is destroyed dlclose() works, and no thread, descriptor or
 *   mapping of it is left, but for one descriptor of each GPU's render node: the driver gives an
 *   address space back only when the process ends, and a later group finds it there. A checkpoint
 *   is mapped: truncating its files while a model of it is open makes the next access a SIGBUS.
 *
 * Environment. Three variables are read, once, by mainarch_group_open, unless its flags say not to:
 *   MAINARCH_LOG      "error", "warning", "info" or "debug": in place of log_level
 *   MAINARCH_BACKEND  "cpu", "gpu" or "sim": the device string when the caller gives none
 *   MAINARCH_DEVICES  what comes after the colon of that string: "4" for "cpu:4"
 *   A fourth is read for devices "sim:...", whatever the flags say:
 *   MAINARCH_SIM_LINES  files that a fault's report takes source lines from: mainarch-sim(1)
 *
 * Growth. The soname is libmainarch.so.0. Within it functions, codes, flags and fields at the end of
 *   structs are added; no meaning, value or default changes.
 */
#ifndef MAINARCH_H_
#define MAINARCH_H_

#include <stddef.h>
#include <stdint.h>

#define MAINARCH_API __attribute__((visibility("default")))
#define MAINARCH_CHECK __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Version and status
 */

#define MAINARCH_VERSION_MAJOR 0
#define MAINARCH_VERSION_MINOR 1
#define MAINARCH_VERSION_PATCH 0

/* The library's version, which may be newer than the header's: major << 16 | minor << 8 | patch. */
MAINARCH_API uint32_t mainarch_version(void);

/* The same as "0.1.0". Static. */
MAINARCH_API const char *mainarch_version_string(void);

/* How a call ended. The numbers never change. */
typedef int32_t mainarch_status;

enum {
  MAINARCH_OK = 0,
  MAINARCH_AGAIN = 1,     /* there is nothing to do or to take now */
  MAINARCH_TIMED_OUT = 2, /* the time given has passed */

  MAINARCH_ERROR_INTERNAL = -1,         /* a bug in the library; the message helps to find it */
  MAINARCH_ERROR_INVALID_ARGUMENT = -2, /* the message names the argument, value and limit */
  MAINARCH_ERROR_UNSUPPORTED = -3,      /* understood, but not something this library does */
  MAINARCH_ERROR_NOT_FOUND = -4,        /* no such file, token or sequence */
  MAINARCH_ERROR_BUSY = -5,             /* not now: a step is in flight, or another thread */
  MAINARCH_ERROR_BUFFER_TOO_SMALL = -6, /* the count says how much is needed */
  MAINARCH_ERROR_CANCELLED = -7,        /* as asked for */

  MAINARCH_ERROR_OUT_OF_HOST_MEMORY = -20, /* memory, threads or descriptors of this machine */
  MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY = -21,
  MAINARCH_ERROR_KV_FULL = -22, /* the tokens could never fit, however long one waits */

  MAINARCH_ERROR_IO = -40,        /* a file could not be read; os_errno says why */
  MAINARCH_ERROR_BAD_MODEL = -41, /* a file of the checkpoint is damaged or contradicts itself */

  MAINARCH_ERROR_NO_DEVICE = -60,  /* no device as asked for */
  MAINARCH_ERROR_PERMISSION = -61, /* a device or file is there, but not for this user */
  MAINARCH_ERROR_DEVICE_LOST = -62,
  MAINARCH_ERROR_WRONG_PROCESS = -63 /* the handle was made by a process that this is a fork of */
};

/* The name of a status in words: "out of host memory". Static, never NULL; a number that is no
 * status is "unknown status". */
MAINARCH_API const char *mainarch_status_string(mainarch_status status);

/* What went wrong, in memory of the caller. 512 bytes; this layout never changes, and needs no
 * initialisation and no freeing. */
typedef struct mainarch_error {
  mainarch_status status;
  int32_t os_errno;  /* errno of the system call that failed, or 0 */
  uint32_t device;   /* index in the group of the device concerned, or UINT32_MAX */
  uint32_t reserved; /* 0 */
  char message[496]; /* one line, lower case, zero-terminated; cut short if need be */
} mainarch_error;

/* ------------------------------------------------------------------------------------------------
 * Group: the devices
 */

typedef struct mainarch_group mainarch_group;

enum {
  MAINARCH_LOG_ERROR = 1,
  MAINARCH_LOG_WARNING = 2,
  MAINARCH_LOG_INFO = 3,
  MAINARCH_LOG_DEBUG = 4
};

/* Takes one line of log, without a newline, which lives for the call only. `level` is one of
 * MAINARCH_LOG_*. May be called from several threads at once, if several use the group. */
typedef void (*mainarch_log_fn)(void *user, int32_t level, const char *line);

/* Flags of mainarch_group_options. */
#define MAINARCH_GROUP_IGNORE_ENVIRONMENT UINT64_C(1) /* read no environment variable but MAINARCH_SIM_LINES */

typedef struct mainarch_group_options {
  size_t struct_size;
  uint64_t flags;
  uint32_t threads;    /* CPU threads that compute, the caller's own among them; 0: one a core that
                          this process may use, within the cgroups' quota; at most 1024 */
  int32_t log_level;   /* the most talkative level wanted; 0: MAINARCH_LOG_INFO */
  mainarch_log_fn log; /* NULL: no log */
  void *log_user;      /* passed to `log`; must live as long as the group and its children */
} mainarch_group_options;

/* Opens devices.
 *
 * `device` says which:
 *   NULL or ""      MAINARCH_BACKEND and MAINARCH_DEVICES if they are set, else "cpu"
 *   "cpu"           this machine's CPU
 *   "cpu:N"         the CPU as N ranks in this process (1, 2, 4 or 8), sharded as on N devices; the
 *                   results are those of "cpu", to the bit
 *   "gpu", "gpu:0-7"  AMD Instinct GPUs (gfx942, gfx950) through the kernel driver, all of them or
 *                   those named; 1, 2, 4 or 8. NO_DEVICE on a machine without any.
 *   "sim:gfx950x8"  the GPU path on a virtual node, which runs the GPUs' code on the CPU: to develop
 *                   and to test with. Slow. A part of its own, loaded from the library's own folder
 *                   (Debian's libmainarch0-sim); NO_DEVICE where it is not installed.
 *
 * Errors: INVALID_ARGUMENT (a device string, environment variable or option that is wrong),
 * NO_DEVICE, PERMISSION; of GPUs also IO, BUSY (they come and go, or are not to be had again),
 * OUT_OF_DEVICE_MEMORY, DEVICE_LOST. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_group_open(const char *device, const mainarch_group_options *options, mainarch_group **out,
                    mainarch_error *error);

/* Lets go of a group. Models and engines made from it go on working. */
MAINARCH_API void mainarch_group_destroy(mainarch_group *group);

/* How many devices (ranks) the group has; 0 for NULL and after fork. */
MAINARCH_API size_t mainarch_group_device_count(const mainarch_group *group);

typedef struct mainarch_device_info {
  size_t struct_size;
  uint64_t memory_bytes;  /* of the device; for the CPU, of the machine */
  uint64_t free_bytes;    /* of these, now */
  uint32_t compute_units; /* of a GPU; for the CPU, threads that compute */
  uint32_t reserved;      /* 0 */
  char name[64];          /* "AMD Instinct MI355X" */
  char isa[32];           /* "gfx950"; for the CPU the kernels in use: "avx512_bf16", "neon", ... */
  mainarch_status status; /* these three by mainarch_device_get alone, of a group's devices zero. OK:
                             mainarch_group_open would take it; else why it cannot be used, ... */
  uint32_t reserved_too;  /* 0 */
  char device[32];        /* the string that opens it: "cpu", "gpu:0" */
  char reason[224];       /* ... and in words */
} mainarch_device_info;

/* The devices of this machine, before any is opened: index 0 is the CPU, then come the GPUs by number.
 * One that cannot be used (no permission, an architecture without kernels) is there too, and says why;
 * a GPU that the driver does not show this process is not. Keeps nothing open, reads no environment
 * variable. The list is made anew by each call.
 * Errors: NOT_FOUND (`index` is past the last), IO, BUSY (GPUs come and go: ask again). */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_device_get(size_t index,
                                                                mainarch_device_info *out,
                                                                mainarch_error *error);

/* About device `index`, below mainarch_group_device_count. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_group_device_info_get(const mainarch_group *group, size_t index, mainarch_device_info *out,
                               mainarch_error *error);

/* ------------------------------------------------------------------------------------------------
 * Model: a checkpoint on a group
 */

typedef struct mainarch_model mainarch_model;

/* Told how much of the weights is in place: `done` of `total` bytes. Anything but 0 cancels. */
typedef int (*mainarch_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Flags of mainarch_model_options. */
#define MAINARCH_MODEL_IN_PLACE UINT64_C(1) /* CPU: multiply straight from the mapped files for good.
                                               Takes no memory of its own; steps are slower, and
                                               results the same. */
#define MAINARCH_MODEL_WAIT UINT64_C(2)     /* open returns when all weights are in place */
#define MAINARCH_MODEL_DRAFT_HEAD UINT64_C(4) /* weights of the layer that drafts are placed, too, where
                                               the checkpoint has one (mtp.*): MAINARCH_DRAFTS_HEAD */
#define MAINARCH_MODEL_EMBED UINT64_C(8)      /* for vectors, not to generate: the head is left out, and what
                                               engines call logits is the final norm's output, hidden_size
                                               numbers: see "Embeddings". Not with MODEL_DRAFT_HEAD. */

typedef struct mainarch_model_options {
  size_t struct_size;
  uint64_t flags;
  mainarch_progress_fn progress; /* NULL: none. On the calling thread; implies MODEL_WAIT. */
  void *progress_user;
} mainarch_model_options;

/* Opens a checkpoint, a Hugging Face directory or a GGUF file, and places its weights on the devices
 * of `group`.
 *
 * `path` is a directory with config.json and model.safetensors, or model.safetensors.index.json and
 * its shards. Architectures: those of README.md's table "Models", by config.json's model_type.
 * Weights: BF16, F16, F32, block FP8 (weight_scale_inv), per-channel FP8, MXFP4, NVFP4, int4 in groups
 * (GPTQ, AWQ, compressed-tensors); or `path` is a GGUF file (README.md has its formats). Everything
 * else is refused by name. The files are mapped, and stay so as long as the model lives; none of their
 * bytes is trusted.
 *
 * On the CPU it returns as soon as the files are checked. Steps can run at once, straight from the
 * mapped files, while a thread of low priority moves the weights into memory of their own, in huge
 * pages where the system gives any; from then on steps are faster. Results are the same all along.
 * What could not be moved for want of memory is used in place for good: mainarch_model_info says so.
 *
 * Errors: NOT_FOUND or IO or PERMISSION (a file), BAD_MODEL (names file, tensor or key),
 * UNSUPPORTED (an architecture, format or feature), OUT_OF_DEVICE_MEMORY, CANCELLED (by progress),
 * DEVICE_LOST.
 * Tensors that the architecture does not use are no error: a log line of level warning counts them. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_model_open(const mainarch_group *group, const char *path,
                    const mainarch_model_options *options, mainarch_model **out,
                    mainarch_error *error);

/* Lets go of a model. Engines and tokenizers made from it go on working. */
MAINARCH_API void mainarch_model_destroy(mainarch_model *model);

typedef struct mainarch_model_info {
  size_t struct_size;
  uint64_t parameter_count; /* elements of all weights; shared (tied) ones count once */
  uint64_t weight_bytes;    /* memory for weights, over all devices; mapped files not counted */
  uint64_t file_bytes;      /* of the files of weights, which are mapped */
  uint32_t vocab_size;      /* logits a token; tokens are below it. May exceed the tokenizer's. */
  uint32_t max_tokens;      /* the longest sequence the model was made for */
  uint32_t layers;
  uint32_t hidden_size;
  uint32_t experts; /* a layer; 0: a dense model */
  uint32_t experts_per_token;
  char architecture[64]; /* "qwen3_moe" */
  char formats[64];      /* of the weights, in the order of their bytes: "mxfp4 bf16" */
  uint64_t move_bytes;   /* of weight_bytes, those that are moved out of the mapped files ... */
  uint64_t moved_bytes;  /* ... and how many have been, so far */
  uint64_t huge_bytes;   /* of weight_bytes, those that stand in huge pages now */
  mainarch_status move_status; /* below 0: moving has ended early, and why */
  uint32_t reserved;           /* 0 */
} mainarch_model_info;

MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_model_info_get(const mainarch_model *model,
                                                                    mainarch_model_info *out,
                                                                    mainarch_error *error);

/* The tokens that end a turn: those of config.json and generation_config.json, ascending. Sequences
 * stop at them unless told otherwise. Writes up to `capacity` of them to `tokens`.
 * Errors: BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_model_end_tokens(const mainarch_model *model, uint32_t *tokens, size_t capacity,
                          size_t *count, mainarch_error *error);

/* ------------------------------------------------------------------------------------------------
 * Tokenizer: text to tokens and back
 */

typedef struct mainarch_tokenizer mainarch_tokenizer;

/* No such token. */
#define MAINARCH_NO_TOKEN UINT32_MAX

/* Reads a tokenizer alone, without a model or a group. `path` is a directory with tokenizer.json
 * and perhaps tokenizer_config.json: BPE over bytes or characters, Unigram or WordPiece, with the
 * normalizers, pre-tokenizers and decoders that models use. What would change tokens and is not
 * followed is refused by name.
 * Errors: NOT_FOUND, IO, PERMISSION, BAD_MODEL, UNSUPPORTED. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_tokenizer_open(const char *path,
                                                                    mainarch_tokenizer **out,
                                                                    mainarch_error *error);

/* The tokenizer of a model's checkpoint. It is read anew by each call: make one and share it.
 * Errors: NOT_FOUND (the checkpoint has none), BAD_MODEL, UNSUPPORTED. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_from_model(const mainarch_model *model, mainarch_tokenizer **out,
                              mainarch_error *error);

/* Lets go of a tokenizer. Decoders made from it go on working. */
MAINARCH_API void mainarch_tokenizer_destroy(mainarch_tokenizer *tokenizer);

typedef struct mainarch_tokenizer_info {
  size_t struct_size;
  uint32_t vocab_size; /* tokens are below it */
  uint32_t bos_token;  /* begin of text, by tokenizer_config.json; or MAINARCH_NO_TOKEN */
  uint32_t eos_token;  /* end of a turn, likewise */
  uint32_t pad_token;  /* padding, likewise */
  uint32_t has_chat;   /* 1: it has a chat template that this library can run; 0: not */
  uint32_t reserved;   /* 0 */
} mainarch_tokenizer_info;

MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_info_get(const mainarch_tokenizer *tokenizer, mainarch_tokenizer_info *out,
                            mainarch_error *error);

/* Flags of mainarch_tokenizer_encode. Use the first two on text from strangers. */
#define MAINARCH_ENCODE_NO_SPECIAL UINT64_C(1) /* "<|im_end|>" in the text is plain text */
#define MAINARCH_ENCODE_NO_ADDED UINT64_C(2)   /* and so is every added token: "<think>" */
/* What the tokenizer puts around a text (BOS, perhaps EOS) is put there. A chat's prompt has it. */
#define MAINARCH_ENCODE_ADD_SPECIAL UINT64_C(4)

/* Tokens of `text`, `length` bytes (at most 2^30) that should be UTF-8: what is not is read as
 * U+FFFD. `text` may be NULL when `length` is 0.
 *
 * There may be more tokens than bytes: a byte that is no UTF-8 is read as the three bytes of U+FFFD,
 * and tokenizers may put spaces or longer characters in place of others. For byte-level ones that
 * normalise to NFC or not at all `*count` is at most 3 * length, and what ADD_SPECIAL adds. Who would
 * rather not hold room for that asks first (capacity 0).
 * Errors: BUFFER_TOO_SMALL, UNSUPPORTED (the tokenizer has no token for some character, and none for
 * the unknown; its pattern takes too long on this text, which no pattern in use does). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_encode(const mainarch_tokenizer *tokenizer, const char *text, size_t length,
                          uint64_t flags, uint32_t *tokens, size_t capacity, size_t *count,
                          mainarch_error *error);

/* Flags of mainarch_tokenizer_decode and mainarch_decoder_create. */
#define MAINARCH_DECODE_SKIP_SPECIAL UINT64_C(1) /* special tokens are no text */

/* The text of `token_count` tokens, valid UTF-8: bytes that are not become U+FFFD. A number that is
 * no token is no text. For tokens that come one by one see mainarch_decoder.
 * Errors: BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_decode(const mainarch_tokenizer *tokenizer, const uint32_t *tokens,
                          size_t token_count, uint64_t flags, char *text, size_t capacity,
                          size_t *length, mainarch_error *error);

/* The bytes that one token stands for amid a text, which alone need not be UTF-8.
 * Errors: NOT_FOUND (no such token), BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_token_text(const mainarch_tokenizer *tokenizer, uint32_t token, char *text,
                              size_t capacity, size_t *length, mainarch_error *error);

/* The one token whose bytes are exactly `text`, `length` bytes: an added token ("<|im_end|>") if
 * one is written so, else one of the vocabulary. `*out` is MAINARCH_NO_TOKEN after an error.
 * Errors: NOT_FOUND. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_token_id(const mainarch_tokenizer *tokenizer, const char *text, size_t length,
                            uint32_t *out, mainarch_error *error);

/* All special tokens, ascending. Errors: BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_special_tokens(const mainarch_tokenizer *tokenizer, uint32_t *tokens,
                                  size_t capacity, size_t *count, mainarch_error *error);

/* One turn of a chat; both strings zero-terminated UTF-8, not NULL. This layout never changes. */
typedef struct mainarch_chat_message {
  const char *role; /* "system", "user" or "assistant" */
  const char *content;
} mainarch_chat_message;

/* Values of mainarch_chat_options.thinking. */
enum {
  MAINARCH_THINKING_DEFAULT = 0, /* what the model's own template does */
  MAINARCH_THINKING_ON = 1,
  MAINARCH_THINKING_OFF = 2
};

/* Flags of mainarch_chat_options. */
#define MAINARCH_CHAT_NO_GENERATION_PROMPT UINT64_C(1) /* do not open the assistant's turn */

typedef struct mainarch_chat_options {
  size_t struct_size;
  uint64_t flags;
  int32_t thinking;
  uint32_t reserved; /* 0 */
} mainarch_chat_options;

/* The prompt of a chat as the model was trained on it, to be encoded with flags 0: what the checkpoint's own
 * template (Jinja, in chat_template.jinja or tokenizer_config.json) writes. Never another's: without a
 * template, or with one that cannot be run, the call fails and says why. For tools, other roles and all
 * else that a template may take see mainarch_tokenizer_render_chat_json.
 * Thinking ON and OFF are the template's variable enable_thinking (or thinking); where it has none, they are
 * refused unless the model does that anyway.
 * Text in a message is not escaped: "<|im_end|>" in a content ends the turn. Who renders messages of
 * strangers must look for the special tokens' texts in them first.
 * A template is a program of the checkpoint's. It sees the messages and the local time, no file and no
 * network, and is stopped at 33,554,432 steps, 256 MiB, or 400 calls and expressions in one another.
 * Errors: INVALID_ARGUMENT (names the message with a wrong role; or the template refuses the chat, in its
 * own words; or it fails, with the line), UNSUPPORTED (no template, or one that uses what is not known
 * here, or has no such thinking switch), BAD_MODEL (what the checkpoint has is no template),
 * BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_render_chat(const mainarch_tokenizer *tokenizer,
                               const mainarch_chat_message *messages, size_t message_count,
                               const mainarch_chat_options *options, char *text, size_t capacity,
                               size_t *length, mainarch_error *error);

/* The same of a chat as JSON, `json_length` bytes (at most 64 MiB) of one object:
 *
 *   messages                an array of objects as the template takes them: role, content (a string, or an
 *                           array of parts), reasoning_content, tool_calls, tool_call_id, name, ...
 *   tools                   an array of objects, each a tool's JSON schema
 *   documents               an array of objects, for retrieval
 *   add_generation_prompt   false: do not open the assistant's turn. Default: true
 *   continue_final_message  true: end within the last message, so that the model goes on with it; or the
 *                           name of its field that is continued. Opens no turn
 *   chat_template           the name of one of the model's templates, or the text of another. Default: the
 *                           model's "tool_use" if it has that one and tools are given, else its "default"
 *   chat_template_kwargs    an object of further variables: {"enable_thinking": false}
 *
 * All but messages may be left out or null; any other key is refused. What a template sees is what
 * `apply_chat_template` of the Python package transformers (5.23) shows it, byte for byte the same prompt: a message's null fields are left out, reasoning_content,
 * thinking and reasoning are one, the special tokens of tokenizer_config.json are variables. Not so: an
 * integer beyond 64 bits and a key that stands twice in an object are refused.
 * Errors: as mainarch_tokenizer_render_chat; INVALID_ARGUMENT also names what is wrong in the JSON. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_tokenizer_render_chat_json(const mainarch_tokenizer *tokenizer, const char *json,
                                    size_t json_length, char *text, size_t capacity, size_t *length,
                                    mainarch_error *error);

/* ------------------------------------------------------------------------------------------------
 * Decoder: tokens to text as they come
 *
 * A character may be spread over tokens: a decoder holds its bytes back until the last is there, so
 * that each piece is valid UTF-8. The pieces joined are what mainarch_tokenizer_decode gives.
 */

typedef struct mainarch_decoder mainarch_decoder;

/* `flags` is 0 or MAINARCH_DECODE_SKIP_SPECIAL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_decoder_create(const mainarch_tokenizer *tokenizer, uint64_t flags, mainarch_decoder **out,
                        mainarch_error *error);

MAINARCH_API void mainarch_decoder_destroy(mainarch_decoder *decoder);

/* The text that `token_count` more tokens complete; it may be empty. After an error, also
 * BUFFER_TOO_SMALL, the tokens have not been taken: push them again.
 * Errors: BUFFER_TOO_SMALL, BUSY. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_decoder_push(mainarch_decoder *decoder, const uint32_t *tokens, size_t token_count,
                      char *text, size_t capacity, size_t *length, mainarch_error *error);

/* The end: U+FFFD if a character is unfinished, else mostly nothing (tokenizers whose texts depend on
 * what comes last hold that back). For byte-level tokenizers a capacity of 4 always does. The decoder
 * may then start on another text. Errors: BUFFER_TOO_SMALL, BUSY. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_decoder_finish(mainarch_decoder *decoder,
                                                                    char *text, size_t capacity,
                                                                    size_t *length,
                                                                    mainarch_error *error);

/* ------------------------------------------------------------------------------------------------
 * Engine: steps
 *
 * Continuous batching: a step takes prompt tokens that wait (as many as fit) and one token of every
 * sequence that is generating, runs the model once, and samples. Sequences come and go between
 * steps, at any time. Prompts may be of any length up to the limit; they are cut as needed.
 */

typedef struct mainarch_engine mainarch_engine;

/* Values of mainarch_engine_options.kv_type. */
enum {
  MAINARCH_KV_DEFAULT = 0, /* MAINARCH_KV_BF16 */
  MAINARCH_KV_BF16 = 1,
  MAINARCH_KV_FP8 = 2, /* e4m3fn with a scale for each token and head: half the memory */
  MAINARCH_KV_F32 = 3, /* to compare with */
  /* Heads of multiples of 32 elements only: */
  MAINARCH_KV_FP4 = 4, /* e2m1, a scale for 32 elements, 4.25 bits: a quarter of bf16, of some loss */
  MAINARCH_KV_K8V4 = 5 /* K as FP8, V as FP4 */
};

/* Flags of mainarch_engine_options. */
#define MAINARCH_ENGINE_FAST UINT64_C(1)
/* What goes into matrix products is rounded to bf16, 8 significant bits: on GPUs, and where the CPU has
 * dot products for it that are faster than those of fp32 (AVX512_BF16 of AMD's, Zen 4 on; BFDOT of Arm's own
 * cores, Neoverse V1 and N2 on) or a matrix unit (AMX, Intel's Xeon from Sapphire Rapids on), with weights of
 * all formats but F16 and F32; elsewhere it is not, and the flag changes nothing. On GPUs products with weights that
 * are held as codes (GGUF's blocks but MXFP4's, NVFP4, integers of 4 and 8 bits, FP8 by row) stay as without the
 * flag. On a CPU prompts run twice as fast or more, and several sequences together in less time. AMX is asked of the
 * kernel for the whole process, by the first engine with this flag, MAINARCH_ENGINE_INT8 or MAINARCH_ENGINE_MXFP8, as
 * Linux wants it: from then on sigaltstack(2) refuses stacks too small for its registers
 * (getauxval(AT_MINSIGSTKSZ)); where a thread has a smaller one already, the kernel refuses, and this flag changes
 * nothing. For
 * y = sum of w_k x_k over K columns,
 *   |error| <= (2^-8 + (K + 8) 2^-23) * sum of |w_k x_k|
 * (|scale q| + |offset| in place of |w| where w = scale q + offset), apart from what is smaller than 2^-126. With AMX and
 * a cache in bf16, of heads of multiples of 32 elements, attention takes queries and weights rounded likewise, which makes
 * long prompts faster: with e = (2^-8 + (D + 8) 2^-23) * the largest sum of |q_d k_d| over a head's D elements, scaled,
 *   |error| <= (exp(2 e) (1 + 2^-8) - 1 + 2^-12) * weighted sum of |v|.
 * Sums, norms, other attention, softmax, the router of a mixture of
 * experts and what layers add to stay fp32, and results still do not depend on batch, chunking,
 * threads or ranks. Without the flag everything is fp32, which is what this library's results are
 * tested to agree with. */
#define MAINARCH_ENGINE_INT8 UINT64_C(4)
/* On CPUs, products with weights whose codes are integers but for a scale take 8 bits of what goes into them, with a
 * factor for 32 columns, as other engines do always: GGUF's Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K and
 * IQ4_NL, MXFP4, NVFP4, integers of 8 bits, and AWQ, packed integers of 4 bits and GPTQ without act-order. They then
 * take less time than in fp32 where it is decoding that takes it: the more, the fewer bits weights have, on
 * processors without AVX-512 most, and for prompts. For y = sum of w_k x_k over K columns, m_k the largest |x| of the
 * 32 columns that k is of,
 *   |error| <= (1 / 254 + (K / 16 + 10) 2^-22) * sum of |w_k| m_k
 * (with weights of an offset, Q4_1, Q5_1, Q4_K, Q5_K and groups of integers, the second term is of |scale * code| +
 * |offset| in place of |w_k|). All that MAINARCH_ENGINE_FAST says of what stays fp32, and of results that depend on
 * nothing but the sequence, holds. Products with other weights, and GPUs, do as with MAINARCH_ENGINE_FAST. */
#define MAINARCH_ENGINE_NO_PREFIX_CACHE UINT64_C(2)
/* A sequence that begins with tokens that another of the engine has run, open or closed, takes what the
 * caches hold of them, in blocks of 16 tokens, instead of running them again. Nothing comes out
 * differently, only sooner; at least the last token appended runs, and every token that is scored
 * (prompt_logprobs) or has its logits read (MAINARCH_SEQUENCE_ALL_LOGITS). Blocks live in room of the KV cache
 * that no sequence uses, and count as free there; where room is wanted, the longest unused go. With this
 * flag nothing is kept and every token of every sequence runs. */
#define MAINARCH_ENGINE_RESIDENT UINT64_C(8)
/* On GPUs, a kernel that stays on each of them runs steps of up to 16 rows: no packet, and no launch,
 * between one token and the next. Steps of more rows (prompts) are packets; the kernel leaves for them, as it
 * does when nothing was asked of it for some milliseconds, and comes back. What comes out is the same to the bit.
 * Its workgroups need places on the GPUs all at once. Where the driver says that another process has waves there, or another
 * group of this one has such a kernel, steps are packets until that is over; the log and resident_no_room say so. If they
 * come while it has left in the midst of a step, mainarch_engine_submit or _wait ends that, and returns when it is over.
 * While it is there nothing else runs on these GPUs' queues that this library has: engines of one device group
 * take turns. While sequences want nothing but tokens it runs up to 31 steps ahead of what was asked for, of models with
 * recurrent states up to 7, for which each sequence has 8 states more: logits of one that is not manual are BUSY then
 * if they are gone, unless it was opened with MAINARCH_SEQUENCE_ALL_LOGITS.
 * UNSUPPORTED where the device is no GPU, or a kernel of the model's has more local memory or registers
 * than this one (of those that there are none has). With RESIDENT_AUTO beside it, this one does not count. */
#define MAINARCH_ENGINE_RESIDENT_AUTO UINT64_C(16)
/* The same where it can be had, else packets; the log says why. */
#define MAINARCH_ENGINE_KV_NEAR UINT64_C(32)
/* With MAINARCH_KV_FP4 or K8V4: the first 16 tokens of a sequence and the last 128 before each are held as FP8 has them,
 * too, and read there: what of the loss of four bits they cause, which is most of it, is gone. It takes FP8's room for
 * some 200 tokens of each sequence. Which of both a token is read from is a function of positions alone, so that results
 * depend on nothing but the sequence, as ever. Layers with a window are FP8 as a whole. Going back (a truncate, an
 * eviction) runs tokens again as it does where a model has windows. INVALID_ARGUMENT with other types; UNSUPPORTED where
 * attention is to latents. */
#define MAINARCH_ENGINE_KV_OUTER UINT64_C(64)
/* The same for all tokens of the first and of the last layer. */
#define MAINARCH_ENGINE_MXFP8 UINT64_C(128)
/* On GPUs whose matrix units multiply both as they are (MI355X), products with weights of MXFP4, or of FP8 with a factor for
 * 128 columns of 128 rows, take what goes into them as MXFP8 (OCP Microscaling Formats 1.0): rounded to bf16 and then to e4m3,
 * 4 significant bits, with a power of two for 32 columns, the least that cuts nothing. Of FP8 those whose K is added up in
 * parts of equally many columns, a multiple of 512 (a gate and up in one, others in up to eight); of experts gate and up alone.
 * Prompts take less time, sequences that decode alone more, as far as that is modelled.
 * For y = sum of w_k x_k over K columns, m_k the largest |x| of the 32 columns that k is of,
 *   |error| <= (2^-4 + 2^-8 + (K + 8) 2^-23) * sum of |w_k x_k| + 2^-17 * sum of |w_k| m_k,
 * apart from what is smaller than 2^-126.
 * All that MAINARCH_ENGINE_FAST says of what stays fp32, and of results that depend on nothing but the sequence, holds.
 * Products with other weights, and other devices, do as with MAINARCH_ENGINE_FAST; MAINARCH_ENGINE_INT8 beside this one does
 * not count. */

/* Values of mainarch_engine_options.drafts: who guesses tokens ahead of those that are sampled. A step runs
 * the guesses of a sequence as further rows and keeps them as far as they are what is sampled, so a
 * sequence gets several tokens of one step, and no token comes out differently. A sequence that the caller
 * samples (MAINARCH_SEQUENCE_MANUAL) or that has a mask gets none, nor one with stop strings whose
 * tokenizer's text is more than the bytes of tokens joined (SentencePiece). */
enum {
  MAINARCH_DRAFTS_OFF = 0,
  MAINARCH_DRAFTS_HEAD = 1,  /* a layer of the model's own: it must have been opened with
                                MAINARCH_MODEL_DRAFT_HEAD, and have one */
  MAINARCH_DRAFTS_NGRAM = 2, /* what followed the last 3, 2 or 1 tokens when they stood there before:
                                for texts that repeat what was said */
  MAINARCH_DRAFTS_AUTO = 3   /* HEAD where the model has one, else NGRAM */
};

typedef struct mainarch_engine_options {
  size_t struct_size;
  uint64_t flags;               /* MAINARCH_ENGINE_* */
  uint64_t kv_tokens;           /* tokens that the KV cache holds, over all sequences, rounded up to
                                   pages of 16; 0: max_sequences * max_sequence_tokens, or as many as
                                   there is memory for: mainarch_engine_info says how many */
  uint32_t max_sequences;       /* open at once; 0: 1; at most 65536 */
  uint32_t max_sequence_tokens; /* of one sequence; 0, and at most: the model's own limit */
  uint32_t max_step_tokens;     /* rows of a step, prompt tokens and generated ones together; 0:
                                   chosen; at most 2^20 */
  int32_t kv_type;              /* MAINARCH_KV_* */
  uint64_t memory_bytes;        /* all caches (KV, windows, states) and activations take no more, over
                                   all devices; 0: no limit but what the devices have. Where it is
                                   little, states for steps ahead (RESIDENT) give way first, then room
                                   for positions to go back to, then, if kv_tokens is 0, KV; at the least 16 tokens of it stay, and the
                                   windows and states of max_sequences. */
  uint32_t logit_rows;          /* rows of logits that a step can make, each of vocab_size floats (part
                                   of memory_bytes); 0, and at least: one a sequence, with drafts
                                   1 + max_drafts; at most max_step_tokens. Prompts of sequences with
                                   prompt_logprobs or MAINARCH_SEQUENCE_ALL_LOGITS, of which every row
                                   makes logits, run in chunks that fit: more rows, fewer steps. */
  uint32_t reserved;            /* 0 */
  uint64_t prefix_bytes;        /* of the KV cache, that beginnings of sequences may keep (those of open
                                   ones count); 0: all of it if kv_tokens or memory_bytes are given, else
                                   512 MiB */
  int32_t drafts;               /* MAINARCH_DRAFTS_*; INVALID_ARGUMENT: HEAD, and the model has none */
  uint32_t max_drafts;          /* guesses of one sequence and step, 1 to 8; 0: 3 */
} mainarch_engine_options;

/* Makes an engine, which owns its KV cache and shares the model's weights.
 * Errors: OUT_OF_DEVICE_MEMORY (kv_tokens, or the activations alone, take more than there is or than
 * memory_bytes; at once, and with the numbers), DEVICE_LOST. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_create(const mainarch_model *model, const mainarch_engine_options *options,
                       mainarch_engine **out, mainarch_error *error);

/* Ends an engine and its sequences; a step in flight is cancelled. */
MAINARCH_API void mainarch_engine_destroy(mainarch_engine *engine);

/* What the engine was made with, every default resolved. */
typedef struct mainarch_engine_info {
  size_t struct_size;
  uint64_t kv_tokens;
  uint64_t memory_bytes; /* KV cache and activations, as reserved; weights not counted */
  uint32_t max_sequences;
  uint32_t max_sequence_tokens;
  uint32_t max_step_tokens;
  int32_t kv_type;
  uint32_t logit_rows;
  uint32_t reserved; /* 0 */
  int32_t drafts;    /* MAINARCH_DRAFTS_*, never AUTO */
  uint32_t max_drafts;
} mainarch_engine_info;

/* Any thread, at any time. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_engine_info_get(const mainarch_engine *engine,
                                                                     mainarch_engine_info *out,
                                                                     mainarch_error *error);

/* What the engine has done since it was made. Each number is exact; together they may straddle the
 * end of a step that is in flight. */
typedef struct mainarch_engine_statistics {
  size_t struct_size;
  uint64_t steps;           /* that ended well */
  uint64_t tokens_run;      /* through the model, prompt tokens included */
  uint64_t tokens_produced; /* sampled */
  uint64_t kv_tokens_free;  /* now, in whole pages */
  uint64_t step_ns_last;    /* nanoseconds that the last step took */
  uint32_t sequences;       /* open now */
  uint32_t reserved;        /* 0 */
  uint64_t prefix_hits;      /* sequences that began with what another had run */
  uint64_t prefix_tokens;    /* tokens that were not run for it; also after an eviction */
  uint64_t prefix_evictions; /* blocks of 16 tokens that were given up for others */
  uint64_t prefix_held;      /* tokens that can be found now, in whole blocks */
  uint64_t drafts;           /* tokens guessed ahead that steps have run */
  uint64_t drafts_accepted;  /* of these, so many were what was sampled */
  uint64_t drafts_at[8];     /* the same of first guesses, of second ones behind them, and so on */
  uint64_t drafts_accepted_at[8];
  uint64_t resident_steps;    /* that a resident kernel ran (MAINARCH_ENGINE_RESIDENT) */
  uint64_t resident_launches; /* of that kernel on a GPU: each is a hand-over by packet */
  uint64_t resident_late;     /* steps that the kernel waited for, as the host was not there yet */
  uint64_t resident_commands; /* that the host gave it: a step, and those that it runs behind it by itself */
  uint64_t resident_pauses;   /* times that it left in the midst of a step, for others' work on its GPUs */
  uint64_t resident_no_room;  /* steps that were packets instead, or in part, as others had the GPUs' compute units */
} mainarch_engine_statistics;

/* Any thread, at any time. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_statistics_get(const mainarch_engine *engine, mainarch_engine_statistics *out,
                               mainarch_error *error);

/* Keeps a beginning, a system prompt say, until it is dropped: the longest that can be found now of
 * these tokens (so run them once) is not given up. `*pinned` gets how many tokens that is, a multiple of
 * 16, 0 too; they no longer count as free. What a window or a recurrent state holds of them goes only
 * when sequences have no other room. `salt`: mainarch_sequence_options.prefix_salt.
 * Errors: KV_FULL (the rest would not hold a sequence of max_sequence_tokens, or of kv_tokens if that is
 * less; nothing is pinned), BUSY. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_pin_prefix(mainarch_engine *engine, const uint32_t *tokens, size_t count,
                           uint64_t salt, size_t *pinned, mainarch_error *error);

/* Forgets what begins with these tokens, from their last whole block of 16 on, pinned or not; what
 * was pinned before that on their behalf alone may go again. No tokens: all, whatever the salt. Sequences
 * that are open keep what they hold. Errors: BUSY. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_drop_prefix(mainarch_engine *engine, const uint32_t *tokens, size_t count,
                            uint64_t salt, mainarch_error *error);

/* Runs one step on the calling thread and ends with it. OK: done; AGAIN: no sequence has work.
 * Errors: BUSY, CANCELLED, DEVICE_LOST. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_engine_step(mainarch_engine *engine,
                                                                 mainarch_error *error);

/* Starts one step and returns at once. OK: it is in flight; AGAIN: no sequence has work. Until wait
 * has said that it ended, all calls but wait, cancel, event_fd, info_get, statistics_get and
 * destroy return BUSY. Errors: BUSY, DEVICE_LOST. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_engine_submit(mainarch_engine *engine,
                                                                   mainarch_error *error);

/* Waits up to `timeout_ns` nanoseconds for the step in flight; 0 only asks, below 0 waits for ever.
 * OK: it has ended well, or there was none; TIMED_OUT: it is still in flight. An error is that of the
 * step, which is over then.
 * Errors: BUSY, CANCELLED, DEVICE_LOST. */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_engine_wait(mainarch_engine *engine,
                                                                 int64_t timeout_ns,
                                                                 mainarch_error *error);

/* A descriptor that polls readable when a submitted step has ended, until wait has said so. The
 * same for the life of the engine, which owns it: do not read or close it. -1 for NULL and after
 * fork. Any thread, at any time. */
MAINARCH_API int mainarch_engine_event_fd(const mainarch_engine *engine);

/* Makes the step in flight, if there is one, end soon with CANCELLED; sequences are as before it. If
 * there is none it does nothing. Any thread, at any time; not in a signal handler. */
MAINARCH_API void mainarch_engine_cancel(mainarch_engine *engine);

/* ------------------------------------------------------------------------------------------------
 * Sequence: one text in one engine
 *
 * An id, not a pointer: an id of a sequence that was closed, or of another engine, is NOT_FOUND. 0
 * is never an id. Every function returns BUSY while a step is in flight, and NOT_FOUND.
 *
 * KV pages are given out as steps need them. When they run out, idle sequences lose theirs first,
 * and then the youngest ones; their tokens are run again when their turn comes, with the same
 * results. Nothing is ever lost but time.
 */

typedef uint64_t mainarch_sequence;

/* `bias`, in [-1e30, 1e30], is added to the logit of `token`; -INFINITY bans the token. This layout
 * never changes. */
typedef struct mainarch_logit_bias {
  uint32_t token;
  float bias;
} mainarch_logit_bias;

/* Flags of mainarch_sequence_options. */
#define MAINARCH_SEQUENCE_MANUAL UINT64_C(1)     /* the caller samples: read logits, append a token */
#define MAINARCH_SEQUENCE_IGNORE_END UINT64_C(2) /* the model's end tokens do not end the sequence */
#define MAINARCH_SEQUENCE_STOP_SPECIAL UINT64_C(4) /* stop_strings: special tokens are text, too */
#define MAINARCH_SEQUENCE_ALL_LOGITS UINT64_C(8)   /* every row makes logits: mainarch_sequence_logits_at */

/* How tokens are chosen and when to stop. The zero struct is greedy, until an end token or the
 * length limit. Applied in this order: the mask, min_tokens and logit_bias, repetition, frequency and
 * presence penalty, temperature, min_p, top_k, top_p. An array has at most 2^20 elements. */
typedef struct mainarch_sequence_options {
  size_t struct_size;
  uint64_t flags;
  uint64_t seed;            /* the token at a position depends on the seed and the position alone */
  float temperature;        /* in [0, 1e6]; below 1e-5: greedy, ties to the lowest token */
  float top_p;              /* in (0, 1); 0 or at least 1: off */
  float min_p;              /* in [0, 1]; 0: off */
  uint32_t top_k;           /* 0: off */
  float repetition_penalty; /* in [1e-3, 1e3]; 0 or 1: off. Of tokens in the prompt or produced. */
  float frequency_penalty;  /* in [-1e3, 1e3]; times how often the token was produced */
  float presence_penalty;   /* in [-1e3, 1e3]; once, if it was produced */
  uint32_t logprobs;        /* how many of the likeliest tokens to report for each produced one; at
                               most 32; 0: none */
  uint32_t min_tokens;      /* no end or stop token before so many produced ones; at most max_tokens,
                               if there is that limit */
  uint32_t max_tokens;      /* stop after so many produced tokens; 0: no limit of this kind */
  const uint32_t *stop_tokens; /* each ends the sequence, like an end token */
  size_t stop_token_count;
  const uint32_t *stop_sequence_tokens;  /* all stop sequences, one after another, ... */
  const uint32_t *stop_sequence_lengths; /* ... and how many tokens each has, at least 1 */
  size_t stop_sequence_count;            /* of stop_sequence_lengths */
  const mainarch_logit_bias *logit_bias;
  size_t logit_bias_count;
  const mainarch_tokenizer *stop_tokenizer; /* that stop_strings are looked for with, kept alive by
                                               the sequence; NULL: that of the model's checkpoint,
                                               read once an engine when first needed */
  const char *const *stop_strings; /* zero-terminated UTF-8, none empty, at most 1024 of 65536 bytes
                                      together; each ends the sequence when it is complete in the
                                      text: see mainarch_sequence_info.text_bytes */
  size_t stop_string_count;
  uint32_t prompt_logprobs; /* above 0: log-probabilities of every appended token but the first of the
                               sequence, given those before it, and so many of the likeliest in its
                               place; at most 32: see mainarch_sequence_prompt_logprobs */
  uint32_t reserved;        /* 0 */
  uint64_t prefix_salt;     /* only sequences of one salt take beginnings from one another: give each tenant
                               its own, and none can tell from times what others have asked. A number is
                               no secret that hides tokens: those must be equal, too. */
} mainarch_sequence_options;

/* Fills `out` with what the checkpoint's generation_config.json recommends: temperature, top_k,
 * top_p, min_p and repetition_penalty; the rest is zero. The caller sets out->struct_size first, as
 * in an info struct. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_model_sequence_options(const mainarch_model *model, mainarch_sequence_options *out,
                                mainarch_error *error);

/* Opens an empty sequence.
 * Errors: INVALID_ARGUMENT (names the field, value and limit), BUSY (max_sequences are open); with
 * stop_strings and no stop_tokenizer those of mainarch_tokenizer_from_model. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_open(mainarch_engine *engine, const mainarch_sequence_options *options,
                       mainarch_sequence *out, mainarch_error *error);

/* Closes a sequence and gives back its KV pages. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_close(mainarch_engine *engine, mainarch_sequence sequence, mainarch_error *error);

/* A copy with the same tokens, options and seed, sharing KV pages until either writes to them. It has
 * nothing to take. Give it a seed of its own to make it differ. Errors: BUSY (max_sequences). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_fork(mainarch_engine *engine, mainarch_sequence from, mainarch_sequence *out,
                       mainarch_error *error);

/* Changes the seed for the tokens to come. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_set_seed(mainarch_engine *engine, mainarch_sequence sequence, uint64_t seed,
                           mainarch_error *error);

/* Gives the sequence other options, for the tokens to come; all of them, so begin with those that it
 * has. Between steps, at any time. Tokens, and a finish reason, stay: truncate at the tokens held
 * lets a sequence go on that has ended. min_tokens, max_tokens and stop sequences go on counting from
 * the last append; stop strings that were complete before do not stop.
 * Errors: INVALID_ARGUMENT (names the field, value and limit; also when MAINARCH_SEQUENCE_MANUAL,
 * prompt_logprobs or prefix_salt would change), BUSY (`logprobs` would change while produced tokens are untaken). */
MAINARCH_API MAINARCH_CHECK mainarch_status mainarch_sequence_set_options(
    mainarch_engine *engine, mainarch_sequence sequence, const mainarch_sequence_options *options,
    mainarch_error *error);

/* Says which tokens may be sampled next: bit t % 32 of words[t / 32] is set when token t may. This is
 * what grammar engines make. `word_count` is at most ceil(vocab_size / 32); words that are missing
 * are 0, bits beyond the vocabulary say nothing. A token that is not allowed has a logit of -infinity,
 * as with logit_bias; log-probabilities and logits are those without the mask.
 *
 * It holds for one token: the step that samples it drops the mask, so set the next one after each. A
 * step that fails or is cancelled, or samples nothing for this sequence yet, leaves it. A copy (fork)
 * has it, too. words NULL and word_count 0: every token may come.
 * A mask that leaves no token ends the sequence with MAINARCH_FINISH_FAULT: see take.
 * Errors: INVALID_ARGUMENT (too many words; a manual sequence). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_set_mask(mainarch_engine *engine, mainarch_sequence sequence,
                           const uint32_t *words, size_t word_count, mainarch_error *error);

/* Drops every token from `position` on, produced ones that were not taken included, and the finish
 * reason. The last token left is run again by the next step, so the sequence goes on from there.
 * Errors: INVALID_ARGUMENT (`position` is more than the tokens held). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_truncate(mainarch_engine *engine, mainarch_sequence sequence, uint64_t position,
                           mainarch_error *error);

/* Adds `token_count` tokens: a prompt, a further turn, or the token that a manual sequence chose.
 * Clears the finish reason; min_tokens, max_tokens and stop sequences count from here on.
 * Errors: INVALID_ARGUMENT (a token outside the vocabulary), KV_FULL (more than max_sequence_tokens
 * or the whole cache could ever hold). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_append(mainarch_engine *engine, mainarch_sequence sequence,
                         const uint32_t *tokens, size_t token_count, mainarch_error *error);

/* Moves produced tokens out, oldest first, up to `capacity` of them. OK: `*count` of them, at least
 * one; AGAIN: none yet, or none any more (see the finish reason).
 *
 * A sequence whose logits are not numbers, or whose options leave no token to choose, ends there
 * (MAINARCH_FINISH_FAULT) while others of the step go on. When its tokens have been taken, take
 * returns the reason again and again: BAD_MODEL or INVALID_ARGUMENT. Append or truncate lets it try
 * again.
 *
 * Errors: BUFFER_TOO_SMALL (only with a capacity of 0; `*count` is how many there are). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_take(mainarch_engine *engine, mainarch_sequence sequence, uint32_t *tokens,
                       size_t capacity, size_t *count, mainarch_error *error);

/* This layout never changes. */
typedef struct mainarch_logprob {
  uint32_t token;
  float logprob; /* natural logarithm; of the softmax of the raw logits */
} mainarch_logprob;

/* Log-probabilities at token `index` of the last take: the token itself first, then the likeliest
 * ones, descending, as many as options.logprobs.
 * Errors: INVALID_ARGUMENT (opened without logprobs, or the last take had fewer tokens),
 * BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_logprobs(mainarch_engine *engine, mainarch_sequence sequence, size_t index,
                           mainarch_logprob *logprobs, size_t capacity, size_t *count,
                           mainarch_error *error);

/* Raw logits [vocab_size] after the last token. Those of a manual sequence stay until it is appended
 * to or truncated, those of others until the next step.
 * Errors: BUSY (there are none: tokens are still to be run, or a later step has gone over them),
 * BAD_MODEL (one is not a number, or infinite: what ends a sequence that is not manual),
 * BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_logits(mainarch_engine *engine, mainarch_sequence sequence, float *logits,
                         size_t capacity, size_t *count, mainarch_error *error);

/* Log-probabilities of the appended token at `position` (0: the first of the sequence), given the
 * tokens before it: the token itself first, then the likeliest ones, descending, as many as
 * options.prompt_logprobs, or all of a smaller vocabulary. They are there as soon as the row before
 * has run, and stay until the token goes (truncate, close); a copy (fork) has them, too.
 * Errors: INVALID_ARGUMENT (opened without prompt_logprobs; position 0, a produced token, or one that
 * is not held), BUSY (the row before has not run yet), BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_prompt_logprobs(mainarch_engine *engine, mainarch_sequence sequence,
                                  uint64_t position, mainarch_logprob *logprobs, size_t capacity,
                                  size_t *count, mainarch_error *error);

/* Raw logits [vocab_size] after the token at `position`, of a sequence with
 * MAINARCH_SEQUENCE_ALL_LOGITS: one of those that its last step ran, which are
 * mainarch_sequence_info.logit_rows from .logit_position on. Until the next step of the engine, or until
 * the sequence is appended to or truncated; mainarch_sequence_logits is the last of them.
 * Errors: INVALID_ARGUMENT (opened without that flag, or another position), BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_logits_at(mainarch_engine *engine, mainarch_sequence sequence, uint64_t position,
                            float *logits, size_t capacity, size_t *count, mainarch_error *error);

/* Values of mainarch_sequence_info.finish. More may come. */
enum {
  MAINARCH_FINISH_NONE = 0,          /* it goes on */
  MAINARCH_FINISH_END = 1,           /* an end token of the model, the last one produced */
  MAINARCH_FINISH_STOP_TOKEN = 2,    /* one of stop_tokens, the last one produced */
  MAINARCH_FINISH_STOP_SEQUENCE = 3, /* its tokens are the last ones produced */
  MAINARCH_FINISH_MAX_TOKENS = 4,
  MAINARCH_FINISH_LENGTH = 5, /* max_sequence_tokens, or the whole KV cache, is used up */
  MAINARCH_FINISH_FAULT = 6,  /* no token could be chosen, and take says why; see there */
  MAINARCH_FINISH_STOP_STRING = 7 /* one of stop_strings is complete: see text_bytes */
};

typedef struct mainarch_sequence_info {
  size_t struct_size;
  uint64_t position; /* tokens whose KV is stored; falls when others needed its pages */
  uint64_t tokens;   /* held: prompt and produced */
  uint64_t pending;  /* of these, not yet run through the model */
  uint64_t produced; /* sampled so far */
  uint64_t untaken;  /* of these, not yet taken */
  uint32_t finish;   /* MAINARCH_FINISH_* */
  uint32_t reserved; /* 0 */
  uint64_t text_bytes; /* with stop_strings, else 0: of the text that a decoder makes of the tokens
                          produced since the last append (with MAINARCH_DECODE_SKIP_SPECIAL, unless
                          MAINARCH_SEQUENCE_STOP_SPECIAL is set) so many bytes are to be shown. Those
                          before the stop string; while it goes on, those that cannot be the
                          beginning of one; after another end all, what mainarch_decoder_finish gives
                          included. The stop string that is complete first counts, of several complete
                          with the same byte the longest, and none that is complete within the first
                          min_tokens tokens. */
  uint64_t logit_position; /* with MAINARCH_SEQUENCE_ALL_LOGITS, else 0: logits of this position ... */
  uint64_t logit_rows;     /* ... and of so many in all can be read now */
} mainarch_sequence_info;

MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_info_get(mainarch_engine *engine, mainarch_sequence sequence,
                           mainarch_sequence_info *out, mainarch_error *error);

/* A sequence as bytes: tokens, options, what is still to be taken, prompt_logprobs, mask; not its KV,
 * and of a fault not the reason. The bytes are good for any engine of the same model, in another process, on other
 * devices and with a later library. `*count` is how many there are.
 * Errors: BUFFER_TOO_SMALL. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_export(mainarch_engine *engine, mainarch_sequence sequence, void *bytes,
                         size_t capacity, size_t *count, mainarch_error *error);

/* Flags of mainarch_sequence_export_with. */
#define MAINARCH_EXPORT_KV UINT64_C(1) /* with the content of its KV cache */

/* The same with flags. MAINARCH_EXPORT_KV: K and V go with it, of all tokens that have run but the last
 * one held; many bytes. They are of use to an engine of the same kind of device, as many ranks, and the
 * same kv_type and flags, which then does not run these tokens again; any other imports the sequence
 * as if they were not there.
 * Errors: BUFFER_TOO_SMALL, UNSUPPORTED (a flag that is not known). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_export_with(mainarch_engine *engine, mainarch_sequence sequence, uint64_t flags,
                              void *bytes, size_t capacity, size_t *count, mainarch_error *error);

/* A new sequence made of what export gave. Its tokens are run again, but for those whose K and V came
 * along and found room, with the same results as on any
 * engine with this one's device string and KV type, and it goes on as the exported one would have. Stop
 * strings are looked for with the tokenizer of the model. None of the bytes is trusted, but the
 * checksum in them is no signature: who can make bytes can make sequences, and K and V of any values.
 * Errors: INVALID_ARGUMENT (names the field; also a sequence of another model), UNSUPPORTED (another
 * version of the format), BUSY (max_sequences are open), KV_FULL (the tokens could never fit). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_sequence_import(mainarch_engine *engine, const void *bytes, size_t size,
                         mainarch_sequence *out, mainarch_error *error);

/* The sequences that have something for the caller, in the order in which they came to have it, up to
 * the max_sequences of the engine:
 *   - produced tokens to take;
 *   - an end (finish reason) that no take since has come up against, having left nothing to take;
 *   - of a manual sequence, logits.
 * Asking changes nothing: a sequence is listed until its tokens are taken, or its logits are followed
 * by append or truncate. Errors: BUFFER_TOO_SMALL, BUSY. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_ready(mainarch_engine *engine, mainarch_sequence *sequences, size_t capacity,
                      size_t *count, mainarch_error *error);

/* ------------------------------------------------------------------------------------------------
 * Embeddings: a text as one vector
 *
 * Of a model opened with MAINARCH_MODEL_EMBED: any decoder, Qwen3-Embedding or e5-mistral say, whose texts
 * are encoded with MAINARCH_ENCODE_ADD_SPECIAL, behind the prompt that the model wants for their use. An
 * engine of such a model samples nothing: every sequence is MAINARCH_SEQUENCE_MANUAL, has no
 * prompt_logprobs and no drafts, and its logits are hidden_size numbers. mainarch_engine_embed does all of
 * it. To score a text, in place of embedding it, see mainarch_sequence_options.prompt_logprobs.
 */

/* Values of mainarch_embed_options.pooling: of which tokens' vectors a text's is made. */
enum {
  MAINARCH_POOLING_DEFAULT = 0, /* what the checkpoint says; without a word of it, the last */
  MAINARCH_POOLING_LAST = 1,
  MAINARCH_POOLING_MEAN = 2, /* of all */
  MAINARCH_POOLING_FIRST = 3 /* "cls" */
};

/* What a checkpoint says of its vectors, in the files of the package sentence-transformers: modules.json,
 * the pooling module's config.json, config_sentence_transformers.json. */
typedef struct mainarch_embed_info {
  size_t struct_size;
  uint32_t dimensions;      /* of a vector: hidden_size */
  int32_t pooling;          /* MAINARCH_POOLING_*, never DEFAULT */
  uint32_t normalize;       /* 1: vectors have a length of one */
  uint32_t stated;          /* 1: there is a modules.json; 0: pooling and normalize are what most such models
                               have, LAST and 1 */
  uint32_t include_prompt;  /* 0: tokens of the prompt do not count for a mean: options.skip_tokens */
  uint32_t prompt_count;    /* see mainarch_model_embed_prompt */
  char default_prompt[64];  /* the name of the prompt for texts of no other use; "": none */
} mainarch_embed_info;

/* The files are read anew by each call. The model may be opened with or without MAINARCH_MODEL_EMBED.
 * Errors: IO, PERMISSION, BAD_MODEL (names file and key), UNSUPPORTED (poolings of other kinds or several,
 * a dense layer behind the pooling). */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_model_embed_info_get(const mainarch_model *model, mainarch_embed_info *out,
                              mainarch_error *error);

/* What the checkpoint puts before a text for the use `name` ("query"), zero-terminated. NULL is its
 * default_prompt, and nothing if it has none. Put it before the text, then encode both together.
 * Errors: NOT_FOUND (names those that there are), BUFFER_TOO_SMALL, those of embed_info_get. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_model_embed_prompt(const mainarch_model *model, const char *name, char *text,
                            size_t capacity, size_t *length, mainarch_error *error);

/* Flags of mainarch_embed_options. Without one, as the checkpoint says. */
#define MAINARCH_EMBED_NORMALIZE UINT64_C(1) /* to a length of one, whatever the checkpoint says */
#define MAINARCH_EMBED_RAW UINT64_C(2)       /* not */

typedef struct mainarch_embed_options {
  size_t struct_size;
  uint64_t flags;       /* MAINARCH_EMBED_*; not both */
  int32_t pooling;      /* MAINARCH_POOLING_* */
  uint32_t dimensions;  /* so many of the first numbers alone, normalised again (models trained so call it
                           Matryoshka); 0: all */
  uint64_t prefix_salt; /* as in mainarch_sequence_options */
  uint32_t skip_tokens; /* MEAN: so many of each text's first tokens do not count */
  uint32_t reserved;    /* 0 */
} mainarch_embed_options;

/* Makes vectors of `text_count` texts: text i is `lengths[i]` tokens, those of all texts one after another
 * in `tokens`. `vectors` gets [text_count][dimensions]; `*count` is text_count * dimensions.
 *
 * Takes as many sequences of the engine as are free, and runs steps until all texts are done; other
 * sequences' work runs in them too. MAINARCH_ENGINE_FAST holds here as anywhere. A vector's bits depend on
 * its text alone, not on the others or on how steps cut it. mainarch_engine_cancel, from another thread,
 * ends the call; after that or another error no sequence of it is left, and what is in `vectors` is of no use.
 * Errors: INVALID_ARGUMENT (an empty text, a token outside the vocabulary, each with its index; a model
 * opened without MAINARCH_MODEL_EMBED; dimensions), KV_FULL (a text too long), BUSY (a step is in flight, or
 * max_sequences are open), BAD_MODEL (a vector holds what is not a number), BUFFER_TOO_SMALL, CANCELLED, and
 * those of mainarch_engine_step. */
MAINARCH_API MAINARCH_CHECK mainarch_status
mainarch_engine_embed(mainarch_engine *engine, const uint32_t *tokens, const size_t *lengths,
                      size_t text_count, const mainarch_embed_options *options, float *vectors,
                      size_t capacity, size_t *count, mainarch_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MAINARCH_H_ */
