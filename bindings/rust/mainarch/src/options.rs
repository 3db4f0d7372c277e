// SPDX-License-Identifier: MIT
use crate::call::c_string;
use crate::Result;
use mainarch_sys as sys;
use std::ffi::CString;
use std::os::raw::c_char;

/// How tokens are chosen and when to stop. The default is greedy, until an end token or the length
/// limit. Applied in this order: the mask, min_tokens and logit_bias, repetition, frequency and
/// presence penalty, temperature, min_p, top_k, top_p. Write `..Default::default()` behind what you set:
/// fields are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceOptions {
    /// The caller samples: reads logits, appends a token.
    pub manual: bool,
    /// The model's end tokens do not end the sequence.
    pub ignore_end: bool,
    /// The token at a position depends on the seed and the position alone.
    pub seed: u64,
    /// In [0, 1e6]; below 1e-5: greedy, ties to the lowest token.
    pub temperature: f32,
    /// In (0, 1); 0 or at least 1: off.
    pub top_p: f32,
    /// In [0, 1]; 0: off.
    pub min_p: f32,
    /// Only the k likeliest; 0: off.
    pub top_k: u32,
    /// In [1e-3, 1e3]; 0 or 1: off. Of tokens in the prompt or produced.
    pub repetition_penalty: f32,
    /// In [-1e3, 1e3]; times how often the token was produced.
    pub frequency_penalty: f32,
    /// In [-1e3, 1e3]; once, if it was produced.
    pub presence_penalty: f32,
    /// How many of the likeliest tokens to report for each produced one; at most 32.
    pub logprobs: u32,
    /// No end or stop token before so many produced ones; at most `max_tokens`, if that is set.
    pub min_tokens: u32,
    /// Stop after so many produced tokens; 0: no limit of this kind.
    pub max_tokens: u32,
    /// Each ends the sequence, like an end token.
    pub stop_tokens: Vec<u32>,
    /// Each ends the sequence when its tokens are the last ones produced; none may be empty.
    pub stop_sequences: Vec<Vec<u32>>,
    /// What is added to the logit of a token, in [-1e30, 1e30]; minus infinity bans it.
    pub logit_bias: Vec<(u32, f32)>,
    /// Each ends the sequence when it is complete in the text, as the model's tokenizer decodes it:
    /// see [`crate::SequenceInfo::text_bytes`]. None may be empty or hold a zero byte.
    pub stop_strings: Vec<String>,
    /// For `stop_strings`, special tokens are text, too.
    pub stop_special: bool,
    /// Above 0: log-probabilities of every appended token but the first, and so many of the likeliest
    /// in its place; at most 32: see [`crate::Engine::prompt_logprobs`].
    pub prompt_logprobs: u32,
    /// Only sequences of one salt take beginnings from one another. A number of its own for each tenant,
    /// and none can tell from times what others have asked.
    pub prefix_salt: u64,
    /// Every row makes logits: see [`crate::Engine::logits_at`].
    pub all_logits: bool,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// An end token of the model, the last one produced.
    End,
    /// One of `stop_tokens`, the last one produced.
    StopToken,
    /// A stop sequence: its tokens are the last ones produced.
    StopSequence,
    /// `max_tokens` are produced.
    MaxTokens,
    /// `max_sequence_tokens`, or the whole KV cache, is used up.
    Length,
    /// No token could be chosen; [`crate::Engine::take`] says why.
    Fault,
    /// One of `stop_strings` is complete.
    StopString,
    /// A reason of a newer library.
    Other(u32),
}

impl Finish {
    pub(crate) fn from_raw(finish: u32) -> Option<Finish> {
        Some(match finish {
            sys::MAINARCH_FINISH_NONE => return None,
            sys::MAINARCH_FINISH_END => Finish::End,
            sys::MAINARCH_FINISH_STOP_TOKEN => Finish::StopToken,
            sys::MAINARCH_FINISH_STOP_SEQUENCE => Finish::StopSequence,
            sys::MAINARCH_FINISH_MAX_TOKENS => Finish::MaxTokens,
            sys::MAINARCH_FINISH_LENGTH => Finish::Length,
            sys::MAINARCH_FINISH_FAULT => Finish::Fault,
            sys::MAINARCH_FINISH_STOP_STRING => Finish::StopString,
            other => Finish::Other(other),
        })
    }
}

/// The C struct and what it points to.
pub(crate) struct RawOptions {
    stop_sequence_tokens: Vec<u32>,
    stop_sequence_lengths: Vec<u32>,
    logit_bias: Vec<sys::mainarch_logit_bias>,
    stop_strings: Vec<*const c_char>,
    _texts: Vec<CString>, // what stop_strings points to
}

impl RawOptions {
    pub(crate) fn new(options: &SequenceOptions) -> Result<RawOptions> {
        let text = |text: &String| c_string("stop_strings", text.as_bytes());
        let texts = options.stop_strings.iter().map(text).collect::<Result<Vec<CString>>>()?;
        let bias = |&(token, bias): &(u32, f32)| sys::mainarch_logit_bias { token, bias };
        Ok(RawOptions {
            stop_sequence_tokens: options.stop_sequences.concat(),
            // One of more than 2^32 tokens cannot be meant; its length is refused by the library.
            stop_sequence_lengths: options
                .stop_sequences
                .iter()
                .map(|s| u32::try_from(s.len()).unwrap_or(0))
                .collect(),
            logit_bias: options.logit_bias.iter().map(bias).collect(),
            stop_strings: texts.iter().map(|text| text.as_ptr()).collect(),
            _texts: texts,
        })
    }

    /// Valid as long as both are.
    pub(crate) fn raw(&self, options: &SequenceOptions) -> sys::mainarch_sequence_options {
        sys::mainarch_sequence_options {
            flags: (u64::from(options.manual) * sys::MAINARCH_SEQUENCE_MANUAL)
                | (u64::from(options.ignore_end) * sys::MAINARCH_SEQUENCE_IGNORE_END)
                | (u64::from(options.stop_special) * sys::MAINARCH_SEQUENCE_STOP_SPECIAL)
                | (u64::from(options.all_logits) * sys::MAINARCH_SEQUENCE_ALL_LOGITS),
            prompt_logprobs: options.prompt_logprobs,
            prefix_salt: options.prefix_salt,
            seed: options.seed,
            temperature: options.temperature,
            top_p: options.top_p,
            min_p: options.min_p,
            top_k: options.top_k,
            repetition_penalty: options.repetition_penalty,
            frequency_penalty: options.frequency_penalty,
            presence_penalty: options.presence_penalty,
            logprobs: options.logprobs,
            min_tokens: options.min_tokens,
            max_tokens: options.max_tokens,
            stop_tokens: options.stop_tokens.as_ptr(),
            stop_token_count: options.stop_tokens.len(),
            stop_sequence_tokens: self.stop_sequence_tokens.as_ptr(),
            stop_sequence_lengths: self.stop_sequence_lengths.as_ptr(),
            stop_sequence_count: self.stop_sequence_lengths.len(),
            logit_bias: self.logit_bias.as_ptr(),
            logit_bias_count: self.logit_bias.len(),
            stop_strings: self.stop_strings.as_ptr(),
            stop_string_count: self.stop_strings.len(),
            ..Default::default()
        }
    }
}
