// SPDX-License-Identifier: MIT
use mainarch_sys as sys;

/// What an engine has done since it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Steps that ended well.
    pub steps: u64,
    /// Tokens through the model, those of prompts included.
    pub tokens_run: u64,
    /// Tokens sampled.
    pub tokens_produced: u64,
    /// Tokens that the KV cache still holds now, in whole pages.
    pub kv_tokens_free: u64,
    /// Nanoseconds that the last step took.
    pub step_ns_last: u64,
    /// Sequences open now.
    pub sequences: u32,
    /// Sequences that began with what another had run.
    pub prefix_hits: u64,
    /// Tokens that were not run for it.
    pub prefix_tokens: u64,
    /// Blocks of 16 tokens that were given up for others.
    pub prefix_evictions: u64,
    /// Tokens that can be found now.
    pub prefix_held: u64,
    /// Tokens guessed ahead that steps have run.
    pub drafts: u64,
    /// Of these, those that were what was sampled.
    pub drafts_accepted: u64,
    /// The same of first guesses, of second ones behind them, and so on.
    pub drafts_at: [u64; 8],
    /// Of these, those that were what was sampled.
    pub drafts_accepted_at: [u64; 8],
    /// Steps that a resident kernel ran.
    pub resident_steps: u64,
    /// Launches of that kernel on a GPU.
    pub resident_launches: u64,
    /// Steps that it waited for, as the host was not there yet.
    pub resident_late: u64,
    /// Commands that the host gave it: a step, and those that it runs behind it by itself.
    pub resident_commands: u64,
    /// Times that it left in the midst of a step, for others' work on its GPUs.
    pub resident_pauses: u64,
    /// Steps that were packets instead, as others had the GPUs' compute units.
    pub resident_no_room: u64,
}

impl Statistics {
    pub(crate) fn of(raw: &sys::mainarch_engine_statistics) -> Self {
        Self {
            steps: raw.steps,
            tokens_run: raw.tokens_run,
            tokens_produced: raw.tokens_produced,
            kv_tokens_free: raw.kv_tokens_free,
            step_ns_last: raw.step_ns_last,
            sequences: raw.sequences,
            prefix_hits: raw.prefix_hits,
            prefix_tokens: raw.prefix_tokens,
            prefix_evictions: raw.prefix_evictions,
            prefix_held: raw.prefix_held,
            drafts: raw.drafts,
            drafts_accepted: raw.drafts_accepted,
            drafts_at: raw.drafts_at,
            drafts_accepted_at: raw.drafts_accepted_at,
            resident_steps: raw.resident_steps,
            resident_launches: raw.resident_launches,
            resident_late: raw.resident_late,
            resident_commands: raw.resident_commands,
            resident_pauses: raw.resident_pauses,
            resident_no_room: raw.resident_no_room,
        }
    }
}
