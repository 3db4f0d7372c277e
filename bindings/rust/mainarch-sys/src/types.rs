// SPDX-License-Identifier: MIT
// Made by bindings/rust/generate.py from include/mainarch.h: do not edit.

//! Structs, handles, callbacks and names of numbers.

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_int, c_void};

/// How a call ended. The numbers never change.
pub type mainarch_status = i32;

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

/// Takes one line of log, without a newline, which lives for the call only. `level` is one of
/// MAINARCH_LOG_*. May be called from several threads at once, if several use the group.
pub type mainarch_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, line: *const c_char)>;

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
    /// "gfx950"; for the CPU the kernels in use: "avx512_bf16", "neon", ...
    pub isa: [c_char; 32],
    /// these three by mainarch_device_get alone, of a group's devices zero. OK:
    /// mainarch_group_open would take it; else why it cannot be used, ...
    pub status: mainarch_status,
    /// 0
    pub reserved_too: u32,
    /// the string that opens it: "cpu", "gpu:0"
    pub device: [c_char; 32],
    /// ... and in words
    pub reason: [c_char; 224],
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
    /// of the files of weights, which are mapped
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
    /// 1: it has a chat template that this library can run; 0: not
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

/// One turn of a chat; both strings zero-terminated UTF-8, not NULL. This layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_chat_message {
    /// "system", "user" or "assistant"
    pub role: *const c_char,
    /// content
    pub content: *const c_char,
}

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

/// Engine options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_engine_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// MAINARCH_ENGINE_*
    pub flags: u64,
    /// tokens that the KV cache holds, over all sequences, rounded up to
    /// pages of 16; 0: max_sequences * max_sequence_tokens, or as many as
    /// there is memory for: mainarch_engine_info says how many
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
    /// all caches (KV, windows, states) and activations take no more, over
    /// all devices; 0: no limit but what the devices have. Where it is
    /// little, states for steps ahead (RESIDENT) give way first, then room
    /// for positions to go back to, then, if kv_tokens is 0, KV; at the least 16 tokens of it stay, and the
    /// windows and states of max_sequences.
    pub memory_bytes: u64,
    /// rows of logits that a step can make, each of vocab_size floats (part
    /// of memory_bytes); 0, and at least: one a sequence, with drafts
    /// 1 + max_drafts; at most max_step_tokens. Prompts of sequences with
    /// prompt_logprobs or MAINARCH_SEQUENCE_ALL_LOGITS, of which every row
    /// makes logits, run in chunks that fit: more rows, fewer steps.
    pub logit_rows: u32,
    /// 0
    pub reserved: u32,
    /// of the KV cache, that beginnings of sequences may keep (those of open
    /// ones count); 0: all of it if kv_tokens or memory_bytes are given, else
    /// 512 MiB
    pub prefix_bytes: u64,
    /// MAINARCH_DRAFTS_*; INVALID_ARGUMENT: HEAD, and the model has none
    pub drafts: i32,
    /// guesses of one sequence and step, 1 to 8; 0: 3
    pub max_drafts: u32,
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
    /// logit rows
    pub logit_rows: u32,
    /// 0
    pub reserved: u32,
    /// MAINARCH_DRAFTS_*, never AUTO
    pub drafts: i32,
    /// max drafts
    pub max_drafts: u32,
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
    /// sequences that began with what another had run
    pub prefix_hits: u64,
    /// tokens that were not run for it; also after an eviction
    pub prefix_tokens: u64,
    /// blocks of 16 tokens that were given up for others
    pub prefix_evictions: u64,
    /// tokens that can be found now, in whole blocks
    pub prefix_held: u64,
    /// tokens guessed ahead that steps have run
    pub drafts: u64,
    /// of these, so many were what was sampled
    pub drafts_accepted: u64,
    /// the same of first guesses, of second ones behind them, and so on
    pub drafts_at: [u64; 8],
    /// drafts accepted at
    pub drafts_accepted_at: [u64; 8],
    /// that a resident kernel ran (MAINARCH_ENGINE_RESIDENT)
    pub resident_steps: u64,
    /// of that kernel on a GPU: each is a hand-over by packet
    pub resident_launches: u64,
    /// steps that the kernel waited for, as the host was not there yet
    pub resident_late: u64,
    /// that the host gave it: a step, and those that it runs behind it by itself
    pub resident_commands: u64,
    /// times that it left in the midst of a step, for others' work on its GPUs
    pub resident_pauses: u64,
    /// steps that were packets instead, or in part, as others had the GPUs' compute units
    pub resident_no_room: u64,
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

/// How tokens are chosen and when to stop. The zero struct is greedy, until an end token or the
/// length limit. Applied in this order: the mask, min_tokens and logit_bias, repetition, frequency and
/// presence penalty, temperature, min_p, top_k, top_p. An array has at most 2^20 elements.
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
    /// no end or stop token before so many produced ones; at most max_tokens,
    /// if there is that limit
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
    /// that stop_strings are looked for with, kept alive by
    /// the sequence; NULL: that of the model's checkpoint,
    /// read once an engine when first needed
    pub stop_tokenizer: *const mainarch_tokenizer,
    /// zero-terminated UTF-8, none empty, at most 1024 of 65536 bytes
    /// together; each ends the sequence when it is complete in the
    /// text: see mainarch_sequence_info.text_bytes
    pub stop_strings: *const *const c_char,
    /// stop string count
    pub stop_string_count: usize,
    /// above 0: log-probabilities of every appended token but the first of the
    /// sequence, given those before it, and so many of the likeliest in its
    /// place; at most 32: see mainarch_sequence_prompt_logprobs
    pub prompt_logprobs: u32,
    /// 0
    pub reserved: u32,
    /// only sequences of one salt take beginnings from one another: give each tenant
    /// its own, and none can tell from times what others have asked. A number is
    /// no secret that hides tokens: those must be equal, too.
    pub prefix_salt: u64,
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

/// Sequence info.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_sequence_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// tokens whose KV is stored; falls when others needed its pages
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
    /// with stop_strings, else 0: of the text that a decoder makes of the tokens
    /// produced since the last append (with MAINARCH_DECODE_SKIP_SPECIAL, unless
    /// MAINARCH_SEQUENCE_STOP_SPECIAL is set) so many bytes are to be shown. Those
    /// before the stop string; while it goes on, those that cannot be the
    /// beginning of one; after another end all, what mainarch_decoder_finish gives
    /// included. The stop string that is complete first counts, of several complete
    /// with the same byte the longest, and none that is complete within the first
    /// min_tokens tokens.
    pub text_bytes: u64,
    /// with MAINARCH_SEQUENCE_ALL_LOGITS, else 0: logits of this position ...
    pub logit_position: u64,
    /// ... and of so many in all can be read now
    pub logit_rows: u64,
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

/// What a checkpoint says of its vectors, in the files of the package sentence-transformers: modules.json,
/// the pooling module's config.json, config_sentence_transformers.json.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_embed_info {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// of a vector: hidden_size
    pub dimensions: u32,
    /// MAINARCH_POOLING_*, never DEFAULT
    pub pooling: i32,
    /// 1: vectors have a length of one
    pub normalize: u32,
    /// 1: there is a modules.json; 0: pooling and normalize are what most such models
    /// have, LAST and 1
    pub stated: u32,
    /// 0: tokens of the prompt do not count for a mean: options.skip_tokens
    pub include_prompt: u32,
    /// see mainarch_model_embed_prompt
    pub prompt_count: u32,
    /// the name of the prompt for texts of no other use; "": none
    pub default_prompt: [c_char; 64],
}

impl Default for mainarch_embed_info {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}

/// Embed options; zero is the default of every field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mainarch_embed_options {
    /// `size_of` this struct.
    pub struct_size: usize,
    /// MAINARCH_EMBED_*; not both
    pub flags: u64,
    /// MAINARCH_POOLING_*
    pub pooling: i32,
    /// so many of the first numbers alone, normalised again (models trained so call it
    /// Matryoshka); 0: all
    pub dimensions: u32,
    /// as in mainarch_sequence_options
    pub prefix_salt: u64,
    /// MEAN: so many of each text's first tokens do not count
    pub skip_tokens: u32,
    /// 0
    pub reserved: u32,
}

impl Default for mainarch_embed_options {
    /// All zero but for `struct_size`.
    fn default() -> Self {
        // SAFETY: integers, floats, null pointers and None are all zeros.
        let mut zero: Self = unsafe { std::mem::zeroed() };
        zero.struct_size = std::mem::size_of::<Self>();
        zero
    }
}
