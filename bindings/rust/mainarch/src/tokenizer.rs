// SPDX-License-Identifier: MIT
use crate::call::{c_string, check, created, fill, fill_text};
use crate::Result;
use mainarch_sys as sys;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// Text to tokens and back; chat prompts. Any number of threads may use one at once.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) raw: NonNull<sys::mainarch_tokenizer>,
}

// SAFETY: "group, model, tokenizer: any number of threads at once".
unsafe impl Send for Tokenizer {}
unsafe impl Sync for Tokenizer {}

/// About a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenizerInfo {
    /// Tokens are below it.
    pub vocab_size: u32,
    /// Begin of text, by tokenizer_config.json.
    pub bos_token: Option<u32>,
    /// End of a turn, likewise.
    pub eos_token: Option<u32>,
    /// Padding, likewise.
    pub pad_token: Option<u32>,
    /// Whether it has a chat template that this library can run.
    pub has_chat: bool,
}

/// One turn of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatMessage<'a> {
    /// "system", "user" or "assistant".
    pub role: &'a str,
    /// What is said. Its special tokens are not escaped.
    pub content: &'a str,
}

impl<'a> ChatMessage<'a> {
    /// What the user says.
    pub fn user(content: &'a str) -> Self {
        ChatMessage { role: "user", content }
    }
    /// How the assistant is to be.
    pub fn system(content: &'a str) -> Self {
        ChatMessage { role: "system", content }
    }
    /// What the assistant said.
    pub fn assistant(content: &'a str) -> Self {
        ChatMessage { role: "assistant", content }
    }
}

/// Whether a chat model thinks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Thinking {
    /// What the model's own template does.
    #[default]
    AsTrained,
    /// It does.
    On,
    /// It does not.
    Off,
}

/// How to render a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether the model thinks first.
    pub thinking: Thinking,
    /// Do not open the assistant's turn.
    pub no_generation_prompt: bool,
}

fn token_or_none(token: u32) -> Option<u32> {
    (token != sys::MAINARCH_NO_TOKEN).then_some(token)
}

impl Tokenizer {
    /// Reads a tokenizer alone, without a model or a group: a directory with tokenizer.json and
    /// perhaps tokenizer_config.json.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Io`, `Permission`, `BadModel`, `Unsupported` (a part of the tokenizer that is not
    /// followed).
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = c_string("path", path.as_ref().as_os_str().as_bytes())?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: all pointers live for the call.
        check(|error| unsafe { sys::mainarch_tokenizer_open(path.as_ptr(), &mut raw, error) })?;
        Ok(Tokenizer { raw: created(raw)? })
    }

    /// About this tokenizer.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn info(&self) -> Result<TokenizerInfo> {
        let mut info = sys::mainarch_tokenizer_info::default();
        // SAFETY: a live handle and a struct of the caller.
        check(|error| unsafe {
            sys::mainarch_tokenizer_info_get(self.raw.as_ptr(), &mut info, error)
        })?;
        Ok(TokenizerInfo {
            vocab_size: info.vocab_size,
            bos_token: token_or_none(info.bos_token),
            eos_token: token_or_none(info.eos_token),
            pad_token: token_or_none(info.pad_token),
            has_chat: info.has_chat != 0,
        })
    }

    /// Tokens of a text of your own, in which "<|im_end|>" is a special token. For that of
    /// strangers see [`Tokenizer::encode_plain`]. No token is put before or after.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (more than 2^30 bytes).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_bytes(text.as_bytes(), 0)
    }

    /// The same with what the tokenizer puts around a text: BOS, perhaps EOS. A chat's prompt has them
    /// written out, and is for [`Tokenizer::encode`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (more than 2^30 bytes).
    pub fn encode_around(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_bytes(text.as_bytes(), sys::MAINARCH_ENCODE_ADD_SPECIAL)
    }

    /// The same as `encode` with no special or added token: "<|im_end|>" is six or more tokens of plain text.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (more than 2^30 bytes).
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let flags = sys::MAINARCH_ENCODE_NO_SPECIAL | sys::MAINARCH_ENCODE_NO_ADDED;
        self.encode_bytes(text.as_bytes(), flags)
    }

    /// Tokens of bytes that should be UTF-8; what is not is read as U+FFFD. `flags` are
    /// `MAINARCH_ENCODE_*` of [`crate::sys`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (more than 2^30 bytes), `Unsupported` (an unknown flag).
    pub fn encode_bytes(&self, text: &[u8], flags: u64) -> Result<Vec<u32>> {
        // Enough for most text at once: encoding twice costs more than the memory.
        let guess = text.len() / 2 + 16;
        // SAFETY: a live handle; the buffers have those sizes.
        fill(guess, 0, |tokens, capacity, count, error| unsafe {
            let (at, length) = (text.as_ptr().cast(), text.len());
            let raw = self.raw.as_ptr();
            sys::mainarch_tokenizer_encode(raw, at, length, flags, tokens, capacity, count, error)
        })
    }

    /// The text of whole tokens. Bytes that are no UTF-8 become U+FFFD, a number that is no token
    /// is no text. For tokens that come one by one see [`Tokenizer::decoder`].
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.decode_with(tokens, 0)
    }

    /// The same without the texts of special tokens.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn decode_skipping_special(&self, tokens: &[u32]) -> Result<String> {
        self.decode_with(tokens, sys::MAINARCH_DECODE_SKIP_SPECIAL)
    }

    fn decode_with(&self, tokens: &[u32], flags: u64) -> Result<String> {
        // SAFETY: a live handle; the buffers have those sizes.
        fill_text(tokens.len() * 8, |text, capacity, length, error| unsafe {
            let (at, count) = (tokens.as_ptr(), tokens.len());
            let raw = self.raw.as_ptr();
            sys::mainarch_tokenizer_decode(raw, at, count, flags, text, capacity, length, error)
        })
    }

    /// The bytes of one token, which alone need not be UTF-8.
    ///
    /// # Errors
    ///
    /// `NotFound` (no such token).
    pub fn token_bytes(&self, token: u32) -> Result<Vec<u8>> {
        // SAFETY: a live handle; the buffer has that capacity.
        fill(32, 1, |text: *mut u8, capacity, length, error| unsafe {
            let (raw, at) = (self.raw.as_ptr(), text.cast());
            sys::mainarch_tokenizer_token_text(raw, token, at, capacity, length, error)
        })
    }

    /// The one token whose bytes are exactly `text`, an added one ("<|im_end|>") first.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn token_id(&self, text: impl AsRef<[u8]>) -> Result<u32> {
        let text = text.as_ref();
        let mut token = sys::MAINARCH_NO_TOKEN;
        // SAFETY: a live handle; the text has that length.
        check(|error| unsafe {
            let (raw, at) = (self.raw.as_ptr(), text.as_ptr().cast());
            sys::mainarch_tokenizer_token_id(raw, at, text.len(), &mut token, error)
        })?;
        Ok(token)
    }

    /// All special tokens, ascending.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn special_tokens(&self) -> Result<Vec<u32>> {
        // SAFETY: a live handle; the buffer has that capacity.
        fill(64, 0, |tokens, capacity, count, error| unsafe {
            let raw = self.raw.as_ptr();
            sys::mainarch_tokenizer_special_tokens(raw, tokens, capacity, count, error)
        })
    }

    /// The prompt of a chat as the model was trained on it, by the checkpoint's own template, for
    /// [`Tokenizer::encode`]. Text is not escaped: "<|im_end|>" in a content ends the turn, so look
    /// for special tokens in what strangers say.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` (names the message with a wrong role, or with a zero byte; or the template
    /// refuses the chat, in its own words), `Unsupported` (no template, or one that uses what is
    /// not known here, or has no such thinking switch), `BadModel` (it is no template).
    pub fn render_chat(
        &self,
        messages: &[ChatMessage<'_>],
        options: &ChatOptions,
    ) -> Result<String> {
        let mut strings = Vec::with_capacity(2 * messages.len());
        for (i, message) in messages.iter().enumerate() {
            strings.push(c_string(&format!("messages[{i}].role"), message.role.as_bytes())?);
            strings.push(c_string(&format!("messages[{i}].content"), message.content.as_bytes())?);
        }
        let pairs = strings.chunks_exact(2);
        let raw_messages: Vec<_> = pairs
            .map(|pair| sys::mainarch_chat_message {
                role: pair[0].as_ptr(),
                content: pair[1].as_ptr(),
            })
            .collect();
        let raw_options = sys::mainarch_chat_options {
            flags: u64::from(options.no_generation_prompt)
                * sys::MAINARCH_CHAT_NO_GENERATION_PROMPT,
            thinking: match options.thinking {
                Thinking::AsTrained => sys::MAINARCH_THINKING_DEFAULT,
                Thinking::On => sys::MAINARCH_THINKING_ON,
                Thinking::Off => sys::MAINARCH_THINKING_OFF,
            },
            ..Default::default()
        };
        let guess = strings.iter().map(|s| s.as_bytes().len() + 32).sum::<usize>() + 64;
        // SAFETY: a live handle; the strings live until the end of this function.
        fill_text(guess, |text, capacity, length, error| unsafe {
            sys::mainarch_tokenizer_render_chat(
                self.raw.as_ptr(),
                raw_messages.as_ptr(),
                raw_messages.len(),
                &raw_options,
                text,
                capacity,
                length,
                error,
            )
        })
    }

    /// The same of a chat as JSON, with tools, tool calls, reasoning and further variables:
    /// `{"messages": [..], "tools": [..], "chat_template_kwargs": {..}}`. The keys are described at
    /// `mainarch_tokenizer_render_chat_json` in mainarch.h; the prompt is that of transformers'
    /// `apply_chat_template`, but that a turn is opened for the assistant unless
    /// `add_generation_prompt` is false.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::render_chat`]; `InvalidArgument` also names what is wrong in the JSON.
    pub fn render_chat_json(&self, json: &str) -> Result<String> {
        // SAFETY: a live handle; the text lives until the end of this function.
        fill_text(json.len() + 256, |text, capacity, length, error| unsafe {
            sys::mainarch_tokenizer_render_chat_json(
                self.raw.as_ptr(),
                json.as_ptr().cast(),
                json.len(),
                text,
                capacity,
                length,
                error,
            )
        })
    }

    /// A decoder for one text after another, with the texts of special tokens left out.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`.
    pub fn decoder(&self) -> Result<Decoder> {
        self.decoder_with(sys::MAINARCH_DECODE_SKIP_SPECIAL)
    }

    /// The same with flags `MAINARCH_DECODE_*` of [`crate::sys`].
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`, `Unsupported` (an unknown flag).
    pub fn decoder_with(&self, flags: u64) -> Result<Decoder> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle.
        check(|error| unsafe {
            sys::mainarch_decoder_create(self.raw.as_ptr(), flags, &mut raw, error)
        })?;
        Ok(Decoder { raw: created(raw)? })
    }
}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        // SAFETY: destroyed here only. Decoders made from it go on working.
        unsafe { sys::mainarch_tokenizer_destroy(self.raw.as_ptr()) }
    }
}

/// Tokens to text as they come. A character may be spread over tokens: its bytes are held back
/// until the last is there, so that each piece is whole characters.
#[derive(Debug)]
pub struct Decoder {
    raw: NonNull<sys::mainarch_decoder>,
}

// SAFETY: one thread at a time, which `&mut self` everywhere ensures; no thread in particular.
unsafe impl Send for Decoder {}
unsafe impl Sync for Decoder {}

impl Decoder {
    /// The text that more tokens complete; it may be empty.
    ///
    /// # Errors
    ///
    /// `WrongProcess`; the tokens have not been taken.
    pub fn push(&mut self, tokens: &[u32]) -> Result<String> {
        // SAFETY: a live handle; the buffers have those sizes.
        fill_text(tokens.len() * 8 + 8, |text, capacity, length, error| unsafe {
            let (at, count) = (tokens.as_ptr(), tokens.len());
            let raw = self.raw.as_ptr();
            sys::mainarch_decoder_push(raw, at, count, text, capacity, length, error)
        })
    }

    /// The end: U+FFFD if a character is unfinished, else mostly nothing (tokenizers whose texts depend
    /// on what comes last hold that back). The decoder may then start on another text.
    ///
    /// # Errors
    ///
    /// `WrongProcess`.
    pub fn finish(&mut self) -> Result<String> {
        // SAFETY: a live handle; the buffer has that capacity.
        fill_text(4, |text, capacity, length, error| unsafe {
            sys::mainarch_decoder_finish(self.raw.as_ptr(), text, capacity, length, error)
        })
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: destroyed here only.
        unsafe { sys::mainarch_decoder_destroy(self.raw.as_ptr()) }
    }
}
