// SPDX-License-Identifier: MIT
// Made by bindings/rust/generate.py from include/mainarch.h: do not edit.

//! Raw declarations of `libmainarch`, as `mainarch.h` has them. The crate `mainarch` is the safe one.
//!
//! Statuses and all other codes are integers, never Rust enums: a newer library may give new ones.
//!
//! # The header
//!
//! mainarch: LLM inference as a library, and nothing else.
//!
//! ```text
//!   mainarch_group      devices: GPUs, or the CPU
//!   mainarch_model      a checked checkpoint, its weights placed on a group
//!   mainarch_tokenizer  text to tokens and back; chat prompts
//!   mainarch_decoder    tokens to text as they come
//!   mainarch_engine     KV cache and scheduler over one model; it steps
//!   mainarch_sequence   one text in one engine
//! ```
//!
//! The loop that a program writes:
//!
//! ```text
//!   append(prompt)  ->  step, take, step, take, ...  until the sequence has a finish reason
//! ```
//!
//! Compile and link with `cc program.c $(pkg-config --cflags --libs mainarch)`. The header is C99,
//! C11 and C++17, and has no inline functions: all that happens, happens in the library.
//!
//!
//! RULES. They hold for every function, and are not repeated there.
//!
//! Errors. A function that can fail returns a mainarch_status: 0 done, above 0 nothing is wrong but
//! it is not done, below 0 an error. Its last parameter is a mainarch_error of the caller's, or
//! NULL: when the status is below 0 it is filled with a message that names the file, field, value
//! and limit; otherwise it is not touched. There is no other error state, per thread or global.
//! Any call may return INVALID_ARGUMENT (a NULL that is not allowed, a wrong struct_size),
//! UNSUPPORTED (a flag or field of a newer header), OUT_OF_HOST_MEMORY, WRONG_PROCESS or INTERNAL;
//! a function's own text lists the others. A call that fails has changed nothing. New codes may
//! come: switch with a default. The library never aborts, exits or prints, whatever it is given
//! that is not a dangling pointer.
//!
//! Results. A parameter `out` or `count` must not be NULL. After an error, an `out` handle is NULL
//! and a count 0, save with BUFFER_TOO_SMALL.
//!
//! Arrays go into buffers of the caller. `capacity` is in elements, and `*count` is how many there
//! are; when that is more than `capacity` nothing is written, the status is BUFFER_TOO_SMALL, and
//! `*count` is what is needed. A buffer may be NULL when capacity is 0: so one asks how much.
//! Text buffers are in bytes and get a zero byte at the end, which `*length` does not count: they
//! need a capacity of `*length` + 1. Text may hold zero bytes of its own.
//!
//! Options. The first field of an options struct is its size: set it to sizeof(the struct), and all
//! that you do not care about to zero. Zero is the default of every field, and a NULL pointer to a
//! struct is all defaults. A program built against an older header passes a smaller struct: what
//! it lacks is zero. One built against a newer header passes a larger one: it is taken as long as
//! what this library does not know is zero, and else refused (UNSUPPORTED), so that no option is
//! ever silently dropped. A size that is not a multiple of 8, below 16 or above 4096 is
//! INVALID_ARGUMENT: it was forgotten.
//!
//! Info structs are the mirror. The caller sets struct_size; the library fills what fits, sets to
//! zero what it does not know, and leaves struct_size alone.
//!
//! Ownership. What open or create gives, destroy takes; destroy(NULL) does nothing. A child keeps
//! its parent alive, so handles may be destroyed in any order. The library never hands out memory
//! to free. Inputs are copied, and may go when the call returns. Strings returned are static.
//!
//! Threads.
//! * group, model, tokenizer   any number of threads at once
//! * decoder                   one thread at a time; a second one gets BUSY
//! * engine and its sequences  one thread at a time; a second one gets BUSY. Any thread, at any time:
//! cancel, event_fd, info_get, statistics_get
//! A pointer to const says that calls may run at once. Different engines are independent, also on
//! one model. Destroying a handle while another thread is in a call on it is the caller's mistake.
//!
//! Callbacks. There are two, both called on the thread that is in a call of the library, never on
//! one of the library's own: progress, and the log sink. They must not throw, longjmp, or call
//! the library.
//!
//! Async. One step may be in flight an engine: submit starts it, wait ends it, step does both. The
//! eventfd is readable when the step in flight has ended (poll, epoll, libuv, Go, tokio).
//!
//! Atomicity. A step that fails or is cancelled leaves every sequence as it was before it.
//!
//! Lost devices. DEVICE_LOST is sticky: afterwards info, close and destroy work, and all else
//! returns it again. Every destroy ends in bounded time.
//!
//! Determinism. The same library, device string, KV type, tokens and seed give the same tokens and
//! logits, bit for bit: whatever else is in the batch, however the prompt was cut into steps,
//! however many threads, and after a restart. Bits need not agree between kinds of device.
//!
//! fork. After fork(2), in the child, every call on a handle of the parent returns WRONG_PROCESS
//! (device_count: 0, event_fd: -1); destroy is allowed and frees memory only. A child that needs
//! the library opens its own group.
//!
//! Process state. The library installs no signal handler, blocks all signals in its own threads,
//! changes no state of the process, and opens every descriptor close-on-exec. Once the last handle
//! is destroyed no thread, descriptor or mapping of it is left, and dlclose() works. A checkpoint
//! is mapped: truncating its files while a model of it is open makes the next access a SIGBUS.
//!
//! Environment. Three variables are read, once, by mainarch_group_open, unless its flags say not to:
//! * MAINARCH_LOG      "error", "warning", "info" or "debug": in place of log_level
//! * MAINARCH_BACKEND  "cpu", "gpu" or "sim": the device string when the caller gives none
//! * MAINARCH_DEVICES  what comes after the colon of that string: "4" for "cpu:4"
//!
//! Growth. The soname is libmainarch.so.0. Within it functions, codes, flags and fields at the end of
//! structs are added; no meaning, value or default changes.
//!

#![allow(non_camel_case_types)]

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_int, c_void};

/// Version of the header that this was made from.
pub const MAINARCH_VERSION_MAJOR: u32 = 0;
/// Version of the header that this was made from.
pub const MAINARCH_VERSION_MINOR: u32 = 1;
/// Version of the header that this was made from.
pub const MAINARCH_VERSION_PATCH: u32 = 0;
/// How a call ended. The numbers never change.
pub type mainarch_status = i32;

/// ok
pub const MAINARCH_OK: i32 = 0;
/// there is nothing to do or to take now
pub const MAINARCH_AGAIN: i32 = 1;
/// the time given has passed
pub const MAINARCH_TIMED_OUT: i32 = 2;
/// a bug in the library; the message helps to find it
pub const MAINARCH_ERROR_INTERNAL: i32 = -1;
/// the message names the argument, value and limit
pub const MAINARCH_ERROR_INVALID_ARGUMENT: i32 = -2;
/// understood, but not something this library does
pub const MAINARCH_ERROR_UNSUPPORTED: i32 = -3;
/// no such file, token or sequence
pub const MAINARCH_ERROR_NOT_FOUND: i32 = -4;
/// not now: a step is in flight, or another thread
pub const MAINARCH_ERROR_BUSY: i32 = -5;
/// the count says how much is needed
pub const MAINARCH_ERROR_BUFFER_TOO_SMALL: i32 = -6;
/// as asked for
pub const MAINARCH_ERROR_CANCELLED: i32 = -7;
/// memory, threads or descriptors of this machine
pub const MAINARCH_ERROR_OUT_OF_HOST_MEMORY: i32 = -20;
/// out of device memory
pub const MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY: i32 = -21;
/// the tokens could never fit, however long one waits
pub const MAINARCH_ERROR_KV_FULL: i32 = -22;
/// a file could not be read; os_errno says why
pub const MAINARCH_ERROR_IO: i32 = -40;
/// a file of the checkpoint is damaged or contradicts itself
pub const MAINARCH_ERROR_BAD_MODEL: i32 = -41;
/// no device as asked for
pub const MAINARCH_ERROR_NO_DEVICE: i32 = -60;
/// a device or file is there, but not for this user
pub const MAINARCH_ERROR_PERMISSION: i32 = -61;
/// device lost
pub const MAINARCH_ERROR_DEVICE_LOST: i32 = -62;
/// the handle was made by a process that this is a fork of
pub const MAINARCH_ERROR_WRONG_PROCESS: i32 = -63;

/// What went wrong, in memory of the caller. 512 bytes; this layout never changes, and needs no
/// initialisation and no freeing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_error {
    /// status
    pub status: mainarch_status,
    /// errno of the system call that failed, or 0
    pub os_errno: i32,
    /// index in the group of the device concerned, or UINT32_MAX
    pub device: u32,
    /// 0
    pub reserved: u32,
    /// one line, lower case, zero-terminated; cut short if need be
    pub message: [c_char; 496],
}

/// Opaque.
#[repr(C)]
pub struct mainarch_group {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// log error
pub const MAINARCH_LOG_ERROR: i32 = 1;
/// log warning
pub const MAINARCH_LOG_WARNING: i32 = 2;
/// log info
pub const MAINARCH_LOG_INFO: i32 = 3;
/// log debug
pub const MAINARCH_LOG_DEBUG: i32 = 4;

/// Takes one line of log, without a newline, which lives for the call only. `level` is one of
/// MAINARCH_LOG_*. May be called from several threads at once, if several use the group.
pub type mainarch_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, line: *const c_char)>;

/// read no environment variable
pub const MAINARCH_GROUP_IGNORE_ENVIRONMENT: u64 = 1;

/// Group options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_group_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// flags
    pub flags: u64,
    /// CPU threads that compute, the caller's own among them; 0: one a core that
    /// this process may use, within the cgroups' quota; at most 1024
    pub threads: u32,
    /// the most talkative level wanted; 0: MAINARCH_LOG_INFO
    pub log_level: i32,
    /// NULL: no log
    pub log: mainarch_log_fn,
    /// passed to `log`; must live as long as the group and its children
    pub log_user: *mut c_void,
}

impl Default for mainarch_group_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Device info.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_device_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// of the device; for the CPU, of the machine
    pub memory_bytes: u64,
    /// of these, now
    pub free_bytes: u64,
    /// of a GPU; for the CPU, threads that compute
    pub compute_units: u32,
    /// 0
    pub reserved: u32,
    /// "AMD Instinct MI355X"
    pub name: [c_char; 64],
    /// "gfx950"; for the CPU the kernels in use: "avx512_bf16", "avx2", ...
    pub isa: [c_char; 32],
}

impl Default for mainarch_device_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Opaque.
#[repr(C)]
pub struct mainarch_model {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Told how much of the weights is in place: `done` of `total` bytes. Anything but 0 cancels.
pub type mainarch_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> c_int>;

/// CPU: multiply straight from the mapped files for good.
/// Takes no memory of its own; steps are slower, and
/// results the same.
pub const MAINARCH_MODEL_IN_PLACE: u64 = 1;
/// open returns when all weights are in place
pub const MAINARCH_MODEL_WAIT: u64 = 2;

/// Model options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_model_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// flags
    pub flags: u64,
    /// NULL: none. On the calling thread; implies MODEL_WAIT.
    pub progress: mainarch_progress_fn,
    /// progress user
    pub progress_user: *mut c_void,
}

impl Default for mainarch_model_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Model info.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_model_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// elements of all weights; shared (tied) ones count once
    pub parameter_count: u64,
    /// memory for weights, over all devices; mapped files not counted
    pub weight_bytes: u64,
    /// of the safetensors files, which are mapped
    pub file_bytes: u64,
    /// logits a token; tokens are below it. May exceed the tokenizer's.
    pub vocab_size: u32,
    /// the longest sequence the model was made for
    pub max_tokens: u32,
    /// layers
    pub layers: u32,
    /// hidden size
    pub hidden_size: u32,
    /// a layer; 0: a dense model
    pub experts: u32,
    /// experts per token
    pub experts_per_token: u32,
    /// "qwen3_moe"
    pub architecture: [c_char; 64],
    /// of the weights, in the order of their bytes: "mxfp4 bf16"
    pub formats: [c_char; 64],
    /// of weight_bytes, those that are moved out of the mapped files ...
    pub move_bytes: u64,
    /// ... and how many have been, so far
    pub moved_bytes: u64,
    /// of weight_bytes, those that stand in huge pages now
    pub huge_bytes: u64,
    /// below 0: moving has ended early, and why
    pub move_status: mainarch_status,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_model_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Opaque.
#[repr(C)]
pub struct mainarch_tokenizer {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// No such token.
pub const MAINARCH_NO_TOKEN: u32 = u32::MAX;

/// Tokenizer info.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_tokenizer_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// tokens are below it
    pub vocab_size: u32,
    /// begin of text, by tokenizer_config.json; or MAINARCH_NO_TOKEN
    pub bos_token: u32,
    /// end of a turn, likewise
    pub eos_token: u32,
    /// padding, likewise
    pub pad_token: u32,
    /// 1: mainarch_tokenizer_render_chat knows its template; 0: not
    pub has_chat: u32,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_tokenizer_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// "\<|im_end|\>" in the text is plain text
pub const MAINARCH_ENCODE_NO_SPECIAL: u64 = 1;
/// and so is every added token: "\<think\>"
pub const MAINARCH_ENCODE_NO_ADDED: u64 = 2;
/// special tokens are no text
pub const MAINARCH_DECODE_SKIP_SPECIAL: u64 = 1;

/// One turn of a chat; both strings zero-terminated UTF-8, not NULL. This layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_chat_message {
    /// "system", "user" or "assistant"
    pub role: *const c_char,
    /// content
    pub content: *const c_char,
}

/// what the model's own template does
pub const MAINARCH_THINKING_DEFAULT: i32 = 0;
/// Values of mainarch_chat_options.thinking.
pub const MAINARCH_THINKING_ON: i32 = 1;
/// Values of mainarch_chat_options.thinking.
pub const MAINARCH_THINKING_OFF: i32 = 2;

/// do not open the assistant's turn
pub const MAINARCH_CHAT_NO_GENERATION_PROMPT: u64 = 1;

/// Chat options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_chat_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// flags
    pub flags: u64,
    /// thinking
    pub thinking: i32,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_chat_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Opaque.
#[repr(C)]
pub struct mainarch_decoder {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Opaque.
#[repr(C)]
pub struct mainarch_engine {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// MAINARCH_KV_BF16
pub const MAINARCH_KV_DEFAULT: i32 = 0;
/// Values of mainarch_engine_options.kv_type.
pub const MAINARCH_KV_BF16: i32 = 1;
/// e4m3fn with a scale for each token and head: half the memory
pub const MAINARCH_KV_FP8: i32 = 2;
/// to compare with
pub const MAINARCH_KV_F32: i32 = 3;

/// Flags of mainarch_engine_options.
pub const MAINARCH_ENGINE_FAST: u64 = 1;

/// Engine options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_engine_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// MAINARCH_ENGINE_*
    pub flags: u64,
    /// tokens that the KV cache holds, over all sequences, rounded up to
    /// pages of 16; 0: max_sequences * max_sequence_tokens
    pub kv_tokens: u64,
    /// open at once; 0: 1; at most 65536
    pub max_sequences: u32,
    /// of one sequence; 0, and at most: the model's own limit
    pub max_sequence_tokens: u32,
    /// rows of a step, prompt tokens and generated ones together; 0:
    /// chosen; at most 2^20
    pub max_step_tokens: u32,
    /// MAINARCH_KV_*
    pub kv_type: i32,
}

impl Default for mainarch_engine_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// What the engine was made with, every default resolved.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_engine_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// kv tokens
    pub kv_tokens: u64,
    /// KV cache and activations, as reserved; weights not counted
    pub memory_bytes: u64,
    /// max sequences
    pub max_sequences: u32,
    /// max sequence tokens
    pub max_sequence_tokens: u32,
    /// max step tokens
    pub max_step_tokens: u32,
    /// kv type
    pub kv_type: i32,
}

impl Default for mainarch_engine_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// What the engine has done since it was made. Each number is exact; together they may straddle the
/// end of a step that is in flight.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_engine_statistics {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// that ended well
    pub steps: u64,
    /// through the model, prompt tokens included
    pub tokens_run: u64,
    /// sampled
    pub tokens_produced: u64,
    /// now, in whole pages
    pub kv_tokens_free: u64,
    /// nanoseconds that the last step took
    pub step_ns_last: u64,
    /// open now
    pub sequences: u32,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_engine_statistics {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// See the header.
pub type mainarch_sequence = u64;

/// `bias`, in \[-1e30, 1e30\], is added to the logit of `token`; -INFINITY bans the token. This layout
/// never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_logit_bias {
    /// token
    pub token: u32,
    /// bias
    pub bias: f32,
}

/// the caller samples: read logits, append a token
pub const MAINARCH_SEQUENCE_MANUAL: u64 = 1;
/// the model's end tokens do not end the sequence
pub const MAINARCH_SEQUENCE_IGNORE_END: u64 = 2;

/// How tokens are chosen and when to stop. The zero struct is greedy, until an end token or the
/// length limit. Applied in this order: min_tokens and logit_bias, repetition, frequency and presence
/// penalty, temperature, min_p, top_k, top_p.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_sequence_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// flags
    pub flags: u64,
    /// the token at a position depends on the seed and the position alone
    pub seed: u64,
    /// in \[0, 1e6\]; below 1e-5: greedy, ties to the lowest token
    pub temperature: f32,
    /// in (0, 1); 0 or at least 1: off
    pub top_p: f32,
    /// in \[0, 1\]; 0: off
    pub min_p: f32,
    /// 0: off
    pub top_k: u32,
    /// in \[1e-3, 1e3\]; 0 or 1: off. Of tokens in the prompt or produced.
    pub repetition_penalty: f32,
    /// in \[-1e3, 1e3\]; times how often the token was produced
    pub frequency_penalty: f32,
    /// in \[-1e3, 1e3\]; once, if it was produced
    pub presence_penalty: f32,
    /// how many of the likeliest tokens to report for each produced one; at
    /// most 32; 0: none
    pub logprobs: u32,
    /// no end or stop token before so many produced ones
    pub min_tokens: u32,
    /// stop after so many produced tokens; 0: no limit of this kind
    pub max_tokens: u32,
    /// each ends the sequence, like an end token
    pub stop_tokens: *const u32,
    /// stop token count
    pub stop_token_count: usize,
    /// all stop sequences, one after another, ...
    pub stop_sequence_tokens: *const u32,
    /// ... and how many tokens each has, at least 1
    pub stop_sequence_lengths: *const u32,
    /// of stop_sequence_lengths
    pub stop_sequence_count: usize,
    /// logit bias
    pub logit_bias: *const mainarch_logit_bias,
    /// logit bias count
    pub logit_bias_count: usize,
}

impl Default for mainarch_sequence_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// This layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_logprob {
    /// token
    pub token: u32,
    /// natural logarithm; of the softmax of the raw logits
    pub logprob: f32,
}

/// it goes on
pub const MAINARCH_FINISH_NONE: u32 = 0;
/// an end token of the model, the last one produced
pub const MAINARCH_FINISH_END: u32 = 1;
/// one of stop_tokens, the last one produced
pub const MAINARCH_FINISH_STOP_TOKEN: u32 = 2;
/// its tokens are the last ones produced
pub const MAINARCH_FINISH_STOP_SEQUENCE: u32 = 3;
/// Values of mainarch_sequence_info.finish. More may come.
pub const MAINARCH_FINISH_MAX_TOKENS: u32 = 4;
/// max_sequence_tokens, or the whole KV cache, is used up
pub const MAINARCH_FINISH_LENGTH: u32 = 5;
/// no token could be chosen, and take says why; see there
pub const MAINARCH_FINISH_FAULT: u32 = 6;

/// Sequence info.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_sequence_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// tokens whose KV is stored; falls to 0 when others needed its pages
    pub position: u64,
    /// held: prompt and produced
    pub tokens: u64,
    /// of these, not yet run through the model
    pub pending: u64,
    /// sampled so far
    pub produced: u64,
    /// of these, not yet taken
    pub untaken: u64,
    /// MAINARCH_FINISH_*
    pub finish: u32,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_sequence_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

extern "C" {
    /// The library's version, which may be newer than the header's: major \<\< 16 | minor \<\< 8 | patch.
    pub fn mainarch_version() -> u32;

    /// The same as "0.1.0". Static.
    pub fn mainarch_version_string() -> *const c_char;

    /// The name of a status in words: "out of host memory". Static, never NULL; a number that is no
    /// status is "unknown status".
    pub fn mainarch_status_string(status: mainarch_status) -> *const c_char;

    /// Opens devices.
    ///
    /// `device` says which:
    ///   NULL or ""      MAINARCH_BACKEND and MAINARCH_DEVICES if they are set, else chosen
    ///   "cpu"           this machine's CPU
    ///   "cpu:N"         the CPU as N ranks in this process (1, 2, 4 or 8), sharded as on N devices; the
    ///                   results are those of "cpu", to the bit
    ///   "gpu", "gpu:0-7"  AMD Instinct GPUs through the kernel driver
    ///   "sim:gfx950x8"  the GPU path on a virtual node
    /// This version of the library has the CPU only: the last two return NO_DEVICE.
    ///
    /// Errors: INVALID_ARGUMENT (a device string, environment variable or option that is wrong),
    /// NO_DEVICE, PERMISSION.
    #[must_use]
    pub fn mainarch_group_open(
        device: *const c_char,
        options: *const mainarch_group_options,
        out: *mut *mut mainarch_group,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Lets go of a group. Models and engines made from it go on working.
    pub fn mainarch_group_destroy(group: *mut mainarch_group);

    /// How many devices (ranks) the group has; 0 for NULL and after fork.
    pub fn mainarch_group_device_count(group: *const mainarch_group) -> usize;

    /// About device `index`, below mainarch_group_device_count.
    #[must_use]
    pub fn mainarch_group_device_info_get(
        group: *const mainarch_group,
        index: usize,
        out: *mut mainarch_device_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Opens a Hugging Face checkpoint directory and places its weights on the devices of `group`.
    ///
    /// `path` is a directory with config.json and model.safetensors, or model.safetensors.index.json and
    /// its shards. Architectures: qwen3, qwen3_moe. Weights: BF16, F16, F32, block FP8
    /// (weight_scale_inv), per-channel FP8, MXFP4. Everything else is refused by name. The files are
    /// mapped, and stay so as long as the model lives; none of their bytes is trusted.
    ///
    /// On the CPU it returns as soon as the files are checked. Steps can run at once, straight from the
    /// mapped files, while a thread of low priority moves the weights into memory of their own, in huge
    /// pages where the system gives any; from then on steps are faster. Results are the same all along.
    /// What could not be moved for want of memory is used in place for good: mainarch_model_info says so.
    ///
    /// Errors: NOT_FOUND or IO or PERMISSION (a file), BAD_MODEL (names file, tensor or key),
    /// UNSUPPORTED (an architecture, format or feature), OUT_OF_DEVICE_MEMORY, CANCELLED (by progress).
    #[must_use]
    pub fn mainarch_model_open(
        group: *const mainarch_group,
        path: *const c_char,
        options: *const mainarch_model_options,
        out: *mut *mut mainarch_model,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Lets go of a model. Engines and tokenizers made from it go on working.
    pub fn mainarch_model_destroy(model: *mut mainarch_model);

    /// Fills `out`, whose `struct_size` the caller has set, as the fields of its struct say.
    #[must_use]
    pub fn mainarch_model_info_get(
        model: *const mainarch_model,
        out: *mut mainarch_model_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The tokens that end a turn: those of config.json and generation_config.json, ascending. Sequences
    /// stop at them unless told otherwise. Writes up to `capacity` of them to `tokens`.
    /// Errors: BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_model_end_tokens(
        model: *const mainarch_model,
        tokens: *mut u32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Reads a tokenizer alone, without a model or a group. `path` is a directory with tokenizer.json
    /// and perhaps tokenizer_config.json. Byte-level BPE of the Qwen family; other kinds are refused.
    /// Errors: NOT_FOUND, IO, PERMISSION, BAD_MODEL, UNSUPPORTED.
    #[must_use]
    pub fn mainarch_tokenizer_open(
        path: *const c_char,
        out: *mut *mut mainarch_tokenizer,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The tokenizer of a model's checkpoint. It is read anew by each call: make one and share it.
    /// Errors: NOT_FOUND (the checkpoint has none), BAD_MODEL, UNSUPPORTED.
    #[must_use]
    pub fn mainarch_tokenizer_from_model(
        model: *const mainarch_model,
        out: *mut *mut mainarch_tokenizer,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Lets go of a tokenizer. Decoders made from it go on working.
    pub fn mainarch_tokenizer_destroy(tokenizer: *mut mainarch_tokenizer);

    /// Fills `out`, whose `struct_size` the caller has set, as the fields of its struct say.
    #[must_use]
    pub fn mainarch_tokenizer_info_get(
        tokenizer: *const mainarch_tokenizer,
        out: *mut mainarch_tokenizer_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Tokens of `text`, `length` bytes (at most 2^30) that should be UTF-8: what is not is read as
    /// U+FFFD. No token is put before or after. `text` may be NULL when `length` is 0.
    /// Errors: BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_tokenizer_encode(
        tokenizer: *const mainarch_tokenizer,
        text: *const c_char,
        length: usize,
        flags: u64,
        tokens: *mut u32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The text of `token_count` tokens, valid UTF-8: bytes that are not become U+FFFD. A number that is
    /// no token is no text. For tokens that come one by one see mainarch_decoder.
    /// Errors: BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_tokenizer_decode(
        tokenizer: *const mainarch_tokenizer,
        tokens: *const u32,
        token_count: usize,
        flags: u64,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The bytes of one token, which alone need not be UTF-8.
    /// Errors: NOT_FOUND (no such token), BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_tokenizer_token_text(
        tokenizer: *const mainarch_tokenizer,
        token: u32,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The one token whose bytes are exactly `text`, `length` bytes: an added token ("\<|im_end|\>") if
    /// one is written so, else one of the vocabulary. `*out` is MAINARCH_NO_TOKEN after an error.
    /// Errors: NOT_FOUND.
    #[must_use]
    pub fn mainarch_tokenizer_token_id(
        tokenizer: *const mainarch_tokenizer,
        text: *const c_char,
        length: usize,
        out: *mut u32,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// All special tokens, ascending. Errors: BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_tokenizer_special_tokens(
        tokenizer: *const mainarch_tokenizer,
        tokens: *mut u32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The prompt of a chat as the model was trained on it (ChatML), to be encoded with flags 0. Earlier
    /// thinking of the assistant is left out, as in the models' own templates.
    /// Text in a message is not escaped: "\<|im_end|\>" in a content ends the turn. Who renders messages of
    /// strangers must look for the special tokens' texts in them first.
    /// Errors: INVALID_ARGUMENT (names the message with a wrong role), UNSUPPORTED (the tokenizer's
    /// template is not a known ChatML, or has no such thinking switch), BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_tokenizer_render_chat(
        tokenizer: *const mainarch_tokenizer,
        messages: *const mainarch_chat_message,
        message_count: usize,
        options: *const mainarch_chat_options,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// `flags` is 0 or MAINARCH_DECODE_SKIP_SPECIAL.
    #[must_use]
    pub fn mainarch_decoder_create(
        tokenizer: *const mainarch_tokenizer,
        flags: u64,
        out: *mut *mut mainarch_decoder,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Decoder destroy.
    pub fn mainarch_decoder_destroy(decoder: *mut mainarch_decoder);

    /// The text that `token_count` more tokens complete; it may be empty. After an error, also
    /// BUFFER_TOO_SMALL, the tokens have not been taken: push them again.
    /// Errors: BUFFER_TOO_SMALL, BUSY.
    #[must_use]
    pub fn mainarch_decoder_push(
        decoder: *mut mainarch_decoder,
        tokens: *const u32,
        token_count: usize,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The end: U+FFFD if a character is unfinished, else nothing; a capacity of 4 always does. The
    /// decoder may then start on another text. Errors: BUFFER_TOO_SMALL, BUSY.
    #[must_use]
    pub fn mainarch_decoder_finish(
        decoder: *mut mainarch_decoder,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Makes an engine, which owns its KV cache and shares the model's weights.
    /// Errors: OUT_OF_DEVICE_MEMORY, DEVICE_LOST.
    #[must_use]
    pub fn mainarch_engine_create(
        model: *const mainarch_model,
        options: *const mainarch_engine_options,
        out: *mut *mut mainarch_engine,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Ends an engine and its sequences; a step in flight is cancelled.
    pub fn mainarch_engine_destroy(engine: *mut mainarch_engine);

    /// Any thread, at any time.
    #[must_use]
    pub fn mainarch_engine_info_get(
        engine: *const mainarch_engine,
        out: *mut mainarch_engine_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Any thread, at any time.
    #[must_use]
    pub fn mainarch_engine_statistics_get(
        engine: *const mainarch_engine,
        out: *mut mainarch_engine_statistics,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Runs one step on the calling thread and ends with it. OK: done; AGAIN: no sequence has work.
    /// Errors: BUSY, CANCELLED, DEVICE_LOST.
    #[must_use]
    pub fn mainarch_engine_step(
        engine: *mut mainarch_engine,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Starts one step and returns at once. OK: it is in flight; AGAIN: no sequence has work. Until wait
    /// has said that it ended, all calls but wait, cancel, event_fd, info_get, statistics_get and
    /// destroy return BUSY. Errors: BUSY, DEVICE_LOST.
    #[must_use]
    pub fn mainarch_engine_submit(
        engine: *mut mainarch_engine,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Waits up to `timeout_ns` nanoseconds for the step in flight; 0 only asks, below 0 waits for ever.
    /// OK: it has ended well, or there was none; TIMED_OUT: it is still in flight. An error is that of the
    /// step, which is over then.
    /// Errors: BUSY, CANCELLED, DEVICE_LOST.
    #[must_use]
    pub fn mainarch_engine_wait(
        engine: *mut mainarch_engine,
        timeout_ns: i64,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// A descriptor that polls readable when a submitted step has ended, until wait has said so. The
    /// same for the life of the engine, which owns it: do not read or close it. -1 for NULL and after
    /// fork. Any thread, at any time.
    pub fn mainarch_engine_event_fd(engine: *const mainarch_engine) -> c_int;

    /// Makes the step in flight, if there is one, end soon with CANCELLED; sequences are as before it. If
    /// there is none it does nothing. Any thread, at any time; not in a signal handler.
    pub fn mainarch_engine_cancel(engine: *mut mainarch_engine);

    /// Fills `out` with what the checkpoint's generation_config.json recommends: temperature, top_k,
    /// top_p, min_p and repetition_penalty; the rest is zero. The caller sets out-\>struct_size first, as
    /// in an info struct.
    #[must_use]
    pub fn mainarch_model_sequence_options(
        model: *const mainarch_model,
        out: *mut mainarch_sequence_options,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Opens an empty sequence.
    /// Errors: INVALID_ARGUMENT (names the field, value and limit), BUSY (max_sequences are open).
    #[must_use]
    pub fn mainarch_sequence_open(
        engine: *mut mainarch_engine,
        options: *const mainarch_sequence_options,
        out: *mut mainarch_sequence,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Closes a sequence and gives back its KV pages.
    #[must_use]
    pub fn mainarch_sequence_close(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// A copy with the same tokens, options and seed, sharing KV pages until either writes to them. It has
    /// nothing to take. Give it a seed of its own to make it differ. Errors: BUSY (max_sequences).
    #[must_use]
    pub fn mainarch_sequence_fork(
        engine: *mut mainarch_engine,
        from_: mainarch_sequence,
        out: *mut mainarch_sequence,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Changes the seed for the tokens to come.
    #[must_use]
    pub fn mainarch_sequence_set_seed(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        seed: u64,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Drops every token from `position` on, produced ones that were not taken included, and the finish
    /// reason. The last token left is run again by the next step, so the sequence goes on from there.
    /// Errors: INVALID_ARGUMENT (`position` is more than the tokens held).
    #[must_use]
    pub fn mainarch_sequence_truncate(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        position: u64,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Adds `token_count` tokens: a prompt, a further turn, or the token that a manual sequence chose.
    /// Clears the finish reason; min_tokens, max_tokens and stop sequences count from here on.
    /// Errors: INVALID_ARGUMENT (a token outside the vocabulary), KV_FULL (more than max_sequence_tokens
    /// or the whole cache could ever hold).
    #[must_use]
    pub fn mainarch_sequence_append(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        tokens: *const u32,
        token_count: usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Moves produced tokens out, oldest first, up to `capacity` of them. OK: `*count` of them, at least
    /// one; AGAIN: none yet, or none any more (see the finish reason).
    ///
    /// A sequence whose logits are not numbers, or whose options leave no token to choose, ends there
    /// (MAINARCH_FINISH_FAULT) while others of the step go on. When its tokens have been taken, take
    /// returns the reason again and again: BAD_MODEL or INVALID_ARGUMENT. Append or truncate lets it try
    /// again.
    ///
    /// Errors: BUFFER_TOO_SMALL (only with a capacity of 0; `*count` is how many there are).
    #[must_use]
    pub fn mainarch_sequence_take(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        tokens: *mut u32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Log-probabilities at token `index` of the last take: the token itself first, then the likeliest
    /// ones, descending, as many as options.logprobs.
    /// Errors: INVALID_ARGUMENT (opened without logprobs, or the last take had fewer tokens),
    /// BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_sequence_logprobs(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        index: usize,
        logprobs: *mut mainarch_logprob,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Raw logits \[vocab_size\] after the last token. Those of a manual sequence stay until it is appended
    /// to or truncated, those of others until the next step.
    /// Errors: BUSY (there are none: tokens are still to be run, or a later step has gone over them),
    /// BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_sequence_logits(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        logits: *mut f32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Fills `out`, whose `struct_size` the caller has set, as the fields of its struct say.
    #[must_use]
    pub fn mainarch_sequence_info_get(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        out: *mut mainarch_sequence_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;
}
