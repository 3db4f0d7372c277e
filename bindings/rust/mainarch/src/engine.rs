// SPDX-License-Identifier: MIT
use crate::call::{check, created, fill};
use crate::group::SharedLog;
use crate::options::{Finish, RawOptions};
use crate::statistics::Statistics;
use crate::{Decoder, Model, Result, SequenceOptions, Text, TokenPoll, Tokens};
use mainarch_sys as sys;
use std::fmt;
use std::ops::Range;
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// How the KV cache is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// As the weights mostly are.
    #[default]
    Bf16,
    /// e4m3fn with a scale for each token and head: half the memory.
    Fp8,
    /// To compare with.
    F32,
    /// e2m1, a scale for 32 elements, 4.25 bits: a quarter of bf16, of some loss. Heads of multiples of
    /// 32 elements only.
    Fp4,
    /// K as `Fp8`, V as `Fp4`. Heads of multiples of 32 elements only.
    K8V4,
}

/// Who guesses tokens ahead of those that are sampled. No token comes out differently, only sooner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Drafts {
    /// Nobody.
    #[default]
    Off,
    /// A layer of the model's own, opened with [`ModelOptions::draft_head`](crate::ModelOptions).
    Head,
    /// What followed the last 3, 2 or 1 tokens when they stood there before.
    Ngram,
    /// `Head` where the model has one, else `Ngram`.
    Auto,
}

/// Whether a kernel stays on each GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resident {
    /// Steps are packets.
    #[default]
    Off,
    /// Or the engine is refused.
    On,
    /// Where it can be had; the log says why not.
    Auto,
}

/// How to make an [`Engine`]. Zero is the default of every number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens that the KV cache holds, over all sequences, rounded up to pages of 16; 0:
    /// `max_sequences * max_sequence_tokens`, or as many as there is memory for.
    pub kv_tokens: u64,
    /// KV cache, recurrent states and activations take no more bytes, over all devices; 0: no limit but theirs.
    pub memory_bytes: u64,
    /// Sequences open at once; 0: 1; at most 65536.
    pub max_sequences: u32,
    /// Tokens of one sequence; 0, and at most: the model's own limit.
    pub max_sequence_tokens: u32,
    /// Rows of a step, prompt tokens and generated ones together; 0: chosen; at most 2^20.
    pub max_step_tokens: u32,
    /// Rows of logits that a step can make; 0, and at least: one a sequence, with `drafts`
    /// `1 + max_drafts`. With more of them prompts of sequences with `prompt_logprobs` or `all_logits`
    /// run in larger chunks.
    pub logit_rows: u32,
    /// How the KV cache is kept.
    pub kv_type: KvType,
    /// What goes into matrix products is rounded to bf16 where the device is faster so: prompts and
    /// many sequences take less time, and results differ within a bound. On GPUs products with weights
    /// that are held as codes (GGUF's blocks but MXFP4's, NVFP4, int4, int8, FP8 by row) stay as they are
    /// (`MAINARCH_ENGINE_FAST`).
    pub fast: bool,
    /// On CPUs products with weights of 4 to 8 bits take 8 bits of what goes into them: faster where it is
    /// decoding weights that takes the time; results differ within a bound (`MAINARCH_ENGINE_INT8`).
    pub int8: bool,
    /// On GPUs that multiply both, products with MXFP4 weights, and most with FP8 blocks, take what goes into them as MXFP8:
    /// faster prompts, slower alone; results differ within a bound (`MAINARCH_ENGINE_MXFP8`).
    pub mxfp8: bool,
    /// With [`KvType::Fp4`] or [`KvType::K8V4`]: the first 16 tokens and the last 128 in fp8 (`MAINARCH_ENGINE_KV_NEAR`).
    pub kv_near: bool,
    /// The same for all tokens of the first and of the last layer (`MAINARCH_ENGINE_KV_OUTER`).
    pub kv_outer: bool,
    /// Every token of every sequence runs, also those that another one began with
    /// (`MAINARCH_ENGINE_NO_PREFIX_CACHE`).
    pub no_prefix_cache: bool,
    /// Whether steps of up to 16 rows are run by a kernel that stays on each GPU, between which there is no
    /// launch (`MAINARCH_ENGINE_RESIDENT`, `MAINARCH_ENGINE_RESIDENT_AUTO`).
    pub resident: Resident,
    /// Bytes that beginnings of sequences may keep of the KV cache; 0: all of it if `kv_tokens` or
    /// `memory_bytes` are given, else 512 MiB.
    pub prefix_bytes: u64,
    /// Who guesses tokens ahead.
    pub drafts: Drafts,
    /// Guesses of one sequence and step, 1 to 8; 0: 3.
    pub max_drafts: u32,
}

/// What an engine was made with, every default resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineInfo {
    /// Tokens that the KV cache holds.
    pub kv_tokens: u64,
    /// Bytes of KV cache and activations, as reserved; weights not counted.
    pub memory_bytes: u64,
    /// Sequences open at once.
    pub max_sequences: u32,
    /// Tokens of one sequence.
    pub max_sequence_tokens: u32,
    /// Rows of a step.
    pub max_step_tokens: u32,
    /// Of these, those that can make logits.
    pub logit_rows: u32,
    /// `MAINARCH_KV_*`.
    pub kv_type: i32,
    /// Who guesses tokens ahead; never `Auto`.
    pub drafts: Drafts,
    /// Guesses of one sequence and step.
    pub max_drafts: u32,
}

/// One text in one engine: an id. Of a sequence that was closed, or of another engine, it is
/// `NotFound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub(crate) u64);

impl Sequence {
    /// The number that the C interface knows it by.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// About a sequence; all numbers are tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceInfo {
    /// Whose KV is stored; falls when others needed its pages.
    pub position: u64,
    /// Held: prompt and produced.
    pub tokens: u64,
    /// Of these, not yet run through the model.
    pub pending: u64,
    /// Sampled so far.
    pub produced: u64,
    /// Of these, not yet taken.
    pub untaken: u64,
    /// Why it ended; none: it goes on.
    pub finish: Option<Finish>,
    /// With `stop_strings` (else 0): of the text of the tokens produced since the last append, so
    /// many bytes are to be shown: those before the stop string; while it goes on, those that cannot
    /// be the beginning of one; after another end, all.
    pub text_bytes: u64,
    /// Positions whose logits [`Engine::logits_at`] gives now; empty without `all_logits`.
    pub logits: Range<u64>,
}

/// A token and the natural logarithm of its probability, by the softmax of the raw logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// Which token.
    pub token: u32,
    /// At most 0.
    pub logprob: f32,
}

/// The handle, apart from [`Engine`] because cancellers look at it, too.
struct RawEngine {
    at: NonNull<sys::mainarch_engine>,
    _log: SharedLog,
}

// SAFETY: what any thread may call at any time is called through &RawEngine; all else only through
// &mut Engine, of which there is one.
unsafe impl Send for RawEngine {}
unsafe impl Sync for RawEngine {}

impl Drop for RawEngine {
    fn drop(&mut self) {
        // SAFETY: made by create, destroyed here only, when nobody is in a call on it: callers
        // hold the Arc.
        unsafe { sys::mainarch_engine_destroy(self.at.as_ptr()) }
    }
}

/// KV cache and scheduler over one model; it steps. See the crate's page for the loop.
///
/// A step takes prompt tokens that wait and one token of every sequence that is generating, runs
/// the model once, and samples. Sequences come and go between steps. A step that fails or is
/// cancelled leaves every sequence as it was before it. Dropping the engine cancels the step in
/// flight and ends its sequences, in bounded time.
pub struct Engine {
    raw: Arc<RawEngine>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("info", &self.info().ok()).finish()
    }
}

/// Cancels the steps of an engine from any thread, at any time; not in a signal handler. It does
/// not keep the engine alive.
#[derive(Clone)]
pub struct Canceller {
    raw: Weak<RawEngine>,
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canceller")
    }
}

impl Canceller {
    /// Makes the step in flight, if there is one, end soon with `Cancelled`. Between steps it does
    /// nothing: who wants a loop of steps to end tells the loop as well. False when the engine is
    /// gone.
    pub fn cancel(&self) -> bool {
        match self.raw.upgrade() {
            Some(raw) => {
                // SAFETY: alive while `raw` is held; any thread, at any time.
                unsafe { sys::mainarch_engine_cancel(raw.at.as_ptr()) };
                true
            }
            None => false,
        }
    }
}

impl Engine {
    /// Makes an engine, which owns its KV cache and shares the model's weights.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (names the field, value and limit), `OutOfDeviceMemory`, `DeviceLost`.
    pub fn new(model: &Model, options: &EngineOptions) -> Result<Engine> {
        let raw_options = sys::mainarch_engine_options {
            kv_tokens: options.kv_tokens,
            memory_bytes: options.memory_bytes,
            max_sequences: options.max_sequences,
            max_sequence_tokens: options.max_sequence_tokens,
            max_step_tokens: options.max_step_tokens,
            logit_rows: options.logit_rows,
            kv_type: match options.kv_type {
                KvType::Bf16 => sys::MAINARCH_KV_BF16,
                KvType::Fp8 => sys::MAINARCH_KV_FP8,
                KvType::F32 => sys::MAINARCH_KV_F32,
                KvType::Fp4 => sys::MAINARCH_KV_FP4,
                KvType::K8V4 => sys::MAINARCH_KV_K8V4,
            },
            flags: (u64::from(options.fast) * sys::MAINARCH_ENGINE_FAST)
                | (u64::from(options.mxfp8) * sys::MAINARCH_ENGINE_MXFP8)
                | (u64::from(options.int8) * sys::MAINARCH_ENGINE_INT8)
                | (u64::from(options.kv_near) * sys::MAINARCH_ENGINE_KV_NEAR)
                | (u64::from(options.kv_outer) * sys::MAINARCH_ENGINE_KV_OUTER)
                | (u64::from(options.no_prefix_cache) * sys::MAINARCH_ENGINE_NO_PREFIX_CACHE)
                | match options.resident {
                    Resident::Off => 0,
                    Resident::On => sys::MAINARCH_ENGINE_RESIDENT,
                    Resident::Auto => sys::MAINARCH_ENGINE_RESIDENT_AUTO,
                },
            prefix_bytes: options.prefix_bytes,
            drafts: match options.drafts {
                Drafts::Off => sys::MAINARCH_DRAFTS_OFF,
                Drafts::Head => sys::MAINARCH_DRAFTS_HEAD,
                Drafts::Ngram => sys::MAINARCH_DRAFTS_NGRAM,
                Drafts::Auto => sys::MAINARCH_DRAFTS_AUTO,
            },
            max_drafts: options.max_drafts,
            ..Default::default()
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle; all pointers live for the call.
        check(|error| unsafe {
            sys::mainarch_engine_create(model.raw.as_ptr(), &raw_options, &mut raw, error)
        })?;
        Ok(Engine { raw: Arc::new(RawEngine { at: created(raw)?, _log: model.log.clone() }) })
    }

    #[inline]
    pub(crate) fn at(&self) -> *mut sys::mainarch_engine {
        self.raw.at.as_ptr()
    }

    /// What the engine was made with.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn info(&self) -> Result<EngineInfo> {
        let mut info = sys::mainarch_engine_info::default();
        // SAFETY: a live handle; any thread, at any time.
        check(|error| unsafe { sys::mainarch_engine_info_get(self.at(), &mut info, error) })?;
        Ok(EngineInfo {
            kv_tokens: info.kv_tokens,
            memory_bytes: info.memory_bytes,
            max_sequences: info.max_sequences,
            max_sequence_tokens: info.max_sequence_tokens,
            max_step_tokens: info.max_step_tokens,
            logit_rows: info.logit_rows,
            kv_type: info.kv_type,
            drafts: match info.drafts {
                sys::MAINARCH_DRAFTS_HEAD => Drafts::Head,
                sys::MAINARCH_DRAFTS_NGRAM => Drafts::Ngram,
                _ => Drafts::Off,
            },
            max_drafts: info.max_drafts,
        })
    }

    /// What it has done so far. Each number is exact; together they may straddle the end of a step
    /// that is in flight.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut raw = sys::mainarch_engine_statistics::default();
        // SAFETY: a live handle; any thread, at any time.
        check(|error| unsafe { sys::mainarch_engine_statistics_get(self.at(), &mut raw, error) })?;
        Ok(Statistics::of(&raw))
    }

    /// Keeps a beginning until it is dropped: the longest that can be found now of these tokens. How many
    /// tokens that is. `salt` is [`SequenceOptions::prefix_salt`].
    ///
    /// # Errors
    ///
    /// `KvFull` (the rest would not hold the longest sequence; nothing is pinned), `Busy`.
    pub fn pin_prefix(&mut self, tokens: &[u32], salt: u64) -> Result<usize> {
        let mut pinned = 0;
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, count) = (tokens.as_ptr(), tokens.len());
            sys::mainarch_engine_pin_prefix(self.at(), at, count, salt, &mut pinned, error)
        })?;
        Ok(pinned)
    }

    /// Forgets what begins with these tokens, from their last whole block of 16 on, pinned or not. No
    /// tokens: all, whatever the salt.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub fn drop_prefix(&mut self, tokens: &[u32], salt: u64) -> Result<()> {
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, count) = (tokens.as_ptr(), tokens.len());
            sys::mainarch_engine_drop_prefix(self.at(), at, count, salt, error)
        })?;
        Ok(())
    }

    /// What another thread cancels steps with.
    pub fn canceller(&self) -> Canceller {
        Canceller { raw: Arc::downgrade(&self.raw) }
    }

    /// Runs one step on this thread and ends with it. False: no sequence has work.
    ///
    /// # Errors
    ///
    /// `Busy` (a submitted step has not been waited for), `Cancelled`, `DeviceLost`.
    #[inline]
    pub fn step(&mut self) -> Result<bool> {
        // SAFETY: a live handle, this thread alone.
        let status = check(|error| unsafe { sys::mainarch_engine_step(self.at(), error) })?;
        Ok(status == sys::MAINARCH_OK)
    }

    /// Starts one step and returns at once. False: no sequence has work. Until [`Engine::wait`] or
    /// [`Engine::poll_ready`] has said that it ended, sequences are `Busy`.
    ///
    /// # Errors
    ///
    /// `Busy`, `DeviceLost`.
    #[inline]
    pub fn submit(&mut self) -> Result<bool> {
        // SAFETY: a live handle, this thread alone.
        let status = check(|error| unsafe { sys::mainarch_engine_submit(self.at(), error) })?;
        Ok(status == sys::MAINARCH_OK)
    }

    /// Waits for the step in flight, for ever without a `timeout`. True: it has ended well, or
    /// there was none; false: it is still in flight.
    ///
    /// # Errors
    ///
    /// That of the step, which is over then: `Cancelled`, `DeviceLost`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let timeout_ns =
            timeout.map_or(-1, |timeout| i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
        // SAFETY: a live handle, this thread alone.
        let status =
            check(|error| unsafe { sys::mainarch_engine_wait(self.at(), timeout_ns, error) })?;
        Ok(status == sys::MAINARCH_OK)
    }

    /// Whether the step in flight has ended, without waiting; ready also when there is none. It
    /// wakes nobody: on `Pending` wait until [`Engine::as_fd`] polls readable, with whatever the
    /// runtime has for that (tokio: `AsyncFd`; async-io: `Async`), and ask again.
    pub fn poll_ready(&mut self) -> Poll<Result<()>> {
        match self.wait(Some(Duration::ZERO)) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Opens an empty sequence.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (names the field, value and limit), `Busy` (`max_sequences` are open).
    pub fn open(&mut self, options: &SequenceOptions) -> Result<Sequence> {
        let held = RawOptions::new(options)?;
        let raw_options = held.raw(options);
        let mut id = 0;
        // SAFETY: a live handle, this thread alone; `held` and `options` outlive the call.
        check(|error| unsafe {
            sys::mainarch_sequence_open(self.at(), &raw_options, &mut id, error)
        })?;
        Ok(Sequence(id))
    }

    /// Closes a sequence and gives back its KV pages.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Busy`, as with every function that takes a sequence.
    pub fn close(&mut self, sequence: Sequence) -> Result<()> {
        // SAFETY: a live handle, this thread alone.
        check(|error| unsafe { sys::mainarch_sequence_close(self.at(), sequence.0, error) })?;
        Ok(())
    }

    /// A copy with the same tokens, options and seed, sharing KV pages until either writes to them.
    /// It has nothing to take.
    ///
    /// # Errors
    ///
    /// `Busy` (`max_sequences` are open), `NotFound`.
    pub fn fork(&mut self, from: Sequence) -> Result<Sequence> {
        let mut id = 0;
        // SAFETY: a live handle, this thread alone.
        check(|error| unsafe { sys::mainarch_sequence_fork(self.at(), from.0, &mut id, error) })?;
        Ok(Sequence(id))
    }

    /// Changes the seed for the tokens to come.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Busy`.
    pub fn set_seed(&mut self, sequence: Sequence, seed: u64) -> Result<()> {
        // SAFETY: a live handle, this thread alone.
        check(|error| unsafe {
            sys::mainarch_sequence_set_seed(self.at(), sequence.0, seed, error)
        })?;
        Ok(())
    }

    /// Gives a sequence other options, all of them, for the tokens to come. Tokens, and a finish
    /// reason, stay: [`Engine::truncate`] at the tokens held lets a sequence go on that has ended.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (names the field, value and limit; also when `manual` would change), `Busy`
    /// (`logprobs` would change while produced tokens are untaken), `NotFound`. Then nothing has
    /// changed.
    pub fn set_options(&mut self, sequence: Sequence, options: &SequenceOptions) -> Result<()> {
        let held = RawOptions::new(options)?;
        let raw_options = held.raw(options);
        // SAFETY: a live handle, this thread alone; `held` and `options` outlive the call.
        check(|error| unsafe {
            sys::mainarch_sequence_set_options(self.at(), sequence.0, &raw_options, error)
        })?;
        Ok(())
    }

    /// Says which tokens may be sampled next: bit `t % 32` of `words[t / 32]` is set when token `t`
    /// may; words that are missing are 0. It holds for one token: set the next one after each. No
    /// words: every token may come.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (more words than the vocabulary has; a manual sequence), `NotFound`, `Busy`.
    pub fn set_mask(&mut self, sequence: Sequence, words: &[u32]) -> Result<()> {
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, count) = (words.as_ptr(), words.len());
            sys::mainarch_sequence_set_mask(self.at(), sequence.0, at, count, error)
        })?;
        Ok(())
    }

    /// A sequence as bytes: tokens, options, what is still to be taken; not its KV. They are good for
    /// any engine of the same model.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Busy`.
    pub fn export(&mut self, sequence: Sequence) -> Result<Vec<u8>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        fill(1024, 0, |out: *mut u8, capacity, count, error| unsafe {
            let at = out.cast();
            sys::mainarch_sequence_export(self.at(), sequence.0, at, capacity, count, error)
        })
    }

    /// As [`Engine::export`], and K and V with it: many bytes. An engine of the same kind of device, as
    /// many ranks and the same options does not run those tokens again.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Busy`.
    pub fn export_with_kv(&mut self, sequence: Sequence) -> Result<Vec<u8>> {
        let flags = sys::MAINARCH_EXPORT_KV;
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        fill(0, 0, |out: *mut u8, capacity, count, error| unsafe {
            let (engine, at) = (self.at(), out.cast());
            sys::mainarch_sequence_export_with(
                engine, sequence.0, flags, at, capacity, count, error,
            )
        })
    }

    /// A new sequence made of what [`Engine::export`] gave: it goes on as the exported one would have.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (names the field; also a sequence of another model), `Unsupported` (another
    /// version of the format), `Busy` (`max_sequences` are open), `KvFull`.
    pub fn import(&mut self, bytes: &[u8]) -> Result<Sequence> {
        let mut id = 0;
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, size) = (bytes.as_ptr().cast(), bytes.len());
            sys::mainarch_sequence_import(self.at(), at, size, &mut id, error)
        })?;
        Ok(Sequence(id))
    }

    /// The sequences that have tokens to take, or have ended and no [`Engine::take`] since has left
    /// nothing to take, or are manual and have logits; in the order in which they came to that.
    ///
    /// # Errors
    ///
    /// `Busy`.
    pub fn ready(&mut self) -> Result<Vec<Sequence>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        let ids: Vec<u64> = fill(16, 0, |out, capacity, count, error| unsafe {
            sys::mainarch_engine_ready(self.at(), out, capacity, count, error)
        })?;
        Ok(ids.into_iter().map(Sequence).collect())
    }

    /// Drops every token from `position` on, produced ones that were not taken included, and the
    /// finish reason. The sequence goes on from there.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (`position` is more than the tokens held), `NotFound`, `Busy`.
    pub fn truncate(&mut self, sequence: Sequence, position: u64) -> Result<()> {
        // SAFETY: a live handle, this thread alone.
        check(|error| unsafe {
            sys::mainarch_sequence_truncate(self.at(), sequence.0, position, error)
        })?;
        Ok(())
    }

    /// Adds tokens: a prompt, a further turn, or the token that a manual sequence chose. Clears the
    /// finish reason; limits and stop sequences count from here on.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (a token outside the vocabulary), `KvFull` (more than could ever fit),
    /// `NotFound`, `Busy`.
    pub fn append(&mut self, sequence: Sequence, tokens: &[u32]) -> Result<()> {
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, count) = (tokens.as_ptr(), tokens.len());
            sys::mainarch_sequence_append(self.at(), sequence.0, at, count, error)
        })?;
        Ok(())
    }

    /// Moves produced tokens into `tokens`, oldest first, and says how many; 0: none yet, or none
    /// any more.
    ///
    /// # Errors
    ///
    /// `BadModel` or `InvalidArgument` (the sequence ended with [`Finish::Fault`], and its tokens have
    /// been taken), `NotFound`, `Busy`.
    pub fn take(&mut self, sequence: Sequence, tokens: &mut [u32]) -> Result<usize> {
        if tokens.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        // SAFETY: a live handle, this thread alone; the slice has that length.
        check(|error| unsafe {
            let (at, capacity) = (tokens.as_mut_ptr(), tokens.len());
            sys::mainarch_sequence_take(self.at(), sequence.0, at, capacity, &mut count, error)
        })?;
        Ok(count)
    }

    /// Log-probabilities at token `index` of the last [`Engine::take`]: the token itself first,
    /// then the likeliest ones, descending, as many as `SequenceOptions::logprobs`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (opened without logprobs, or the last take had fewer tokens).
    pub fn logprobs(&mut self, sequence: Sequence, index: usize) -> Result<Vec<Logprob>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        let raw = fill(33, 0, |out, capacity, count, error| unsafe {
            sys::mainarch_sequence_logprobs(
                self.at(),
                sequence.0,
                index,
                out,
                capacity,
                count,
                error,
            )
        })?;
        Ok(logprobs_of(&raw))
    }

    /// Log-probabilities of the appended token at `position`, given those before it: the token itself
    /// first, then the likeliest ones, descending, as many as `SequenceOptions::prompt_logprobs`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (opened without prompt_logprobs; position 0, a produced token, or one that is
    /// not held), `Busy` (the row before has not run yet), `NotFound`.
    pub fn prompt_logprobs(&mut self, sequence: Sequence, position: u64) -> Result<Vec<Logprob>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        let raw = fill(33, 0, |out, capacity, count, error| unsafe {
            let (at, id) = (self.at(), sequence.0);
            sys::mainarch_sequence_prompt_logprobs(at, id, position, out, capacity, count, error)
        })?;
        Ok(logprobs_of(&raw))
    }

    /// Raw logits, `vocab_size` of them, after the token at `position`, one of
    /// [`SequenceInfo::logits`]: those that the last step of a sequence with `all_logits` ran. Until
    /// the next step, [`Engine::append`] or [`Engine::truncate`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (opened without all_logits, or another position), `NotFound`, `Busy`.
    pub fn logits_at(&mut self, sequence: Sequence, position: u64) -> Result<Vec<f32>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        fill(0, 0, |out, capacity, count, error| unsafe {
            let (at, id) = (self.at(), sequence.0);
            sys::mainarch_sequence_logits_at(at, id, position, out, capacity, count, error)
        })
    }

    /// Raw logits, `vocab_size` of them, after the last token. Those of a manual sequence stay
    /// until it is appended to or truncated, those of others until the next step.
    ///
    /// # Errors
    ///
    /// `Busy` (there are none: tokens are still to be run, or a later step has gone over them),
    /// `BadModel` (one is not a number, or infinite).
    pub fn logits(&mut self, sequence: Sequence) -> Result<Vec<f32>> {
        // SAFETY: a live handle, this thread alone; the buffer has that capacity.
        fill(0, 0, |out, capacity, count, error| unsafe {
            sys::mainarch_sequence_logits(self.at(), sequence.0, out, capacity, count, error)
        })
    }

    /// About a sequence.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Busy`.
    pub fn sequence_info(&mut self, sequence: Sequence) -> Result<SequenceInfo> {
        let mut info = sys::mainarch_sequence_info::default();
        // SAFETY: a live handle, this thread alone.
        check(|error| unsafe {
            sys::mainarch_sequence_info_get(self.at(), sequence.0, &mut info, error)
        })?;
        Ok(SequenceInfo {
            position: info.position,
            tokens: info.tokens,
            pending: info.pending,
            produced: info.produced,
            untaken: info.untaken,
            finish: Finish::from_raw(info.finish),
            text_bytes: info.text_bytes,
            logits: info.logit_position..info.logit_position + info.logit_rows,
        })
    }

    /// The tokens of one sequence as they come, stepping as needed, until it ends. Other sequences
    /// take part in the steps; their tokens stay for them.
    pub fn tokens(&mut self, sequence: Sequence) -> Tokens<'_> {
        Tokens::new(self, sequence)
    }

    /// The text of one sequence as it comes: pieces of whole characters, none empty.
    pub fn text<'a>(&'a mut self, sequence: Sequence, decoder: &'a mut Decoder) -> Text<'a> {
        Text::new(self, sequence, decoder)
    }

    /// The tokens of one sequence for an event loop or an async runtime: never waits.
    pub fn poll_tokens(&mut self, sequence: Sequence) -> TokenPoll<'_> {
        TokenPoll::new(self, sequence)
    }
}

fn logprobs_of(raw: &[sys::mainarch_logprob]) -> Vec<Logprob> {
    raw.iter().map(|l| Logprob { token: l.token, logprob: l.logprob }).collect()
}

/// Polls readable when a submitted step has ended, until [`Engine::wait`] has said so. The same for
/// the life of the engine, which owns it: do not read it.
impl AsRawFd for Engine {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: a live handle; any thread, at any time.
        unsafe { sys::mainarch_engine_event_fd(self.at()) }
    }
}

/// As [`AsRawFd`].
///
/// # Panics
///
/// In the child of a fork, where the engine has none.
impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.as_raw_fd();
        assert!(fd >= 0, "the engine is of a process that this is a fork of");
        // SAFETY: open as long as the engine, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
