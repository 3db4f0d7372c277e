// SPDX-License-Identifier: MIT
// Made by bindings/rust/generate.py from include/mainarch.h: do not edit.

//! Every function.

use std::os::raw::{c_char, c_int, c_void};

use crate::types::*;

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
    ///   NULL or ""      MAINARCH_BACKEND and MAINARCH_DEVICES if they are set, else "cpu"
    ///   "cpu"           this machine's CPU
    ///   "cpu:N"         the CPU as N ranks in this process (1, 2, 4 or 8), sharded as on N devices; the
    ///                   results are those of "cpu", to the bit
    ///   "gpu", "gpu:0-7"  AMD Instinct GPUs (gfx942, gfx950) through the kernel driver, all of them or
    ///                   those named; 1, 2, 4 or 8. NO_DEVICE on a machine without any.
    ///   "sim:gfx950x8"  the GPU path on a virtual node, which runs the GPUs' code on the CPU: to develop
    ///                   and to test with. Slow. A part of its own, loaded from the library's own folder
    ///                   (Debian's libmainarch0-sim); NO_DEVICE where it is not installed.
    ///
    /// Errors: INVALID_ARGUMENT (a device string, environment variable or option that is wrong),
    /// NO_DEVICE, PERMISSION; of GPUs also IO, BUSY (they come and go, or are not to be had again),
    /// OUT_OF_DEVICE_MEMORY, DEVICE_LOST.
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

    /// The devices of this machine, before any is opened: index 0 is the CPU, then come the GPUs by number.
    /// One that cannot be used (no permission, an architecture without kernels) is there too, and says why;
    /// a GPU that the driver does not show this process is not. Keeps nothing open, reads no environment
    /// variable. The list is made anew by each call.
    /// Errors: NOT_FOUND (`index` is past the last), IO, BUSY (GPUs come and go: ask again).
    #[must_use]
    pub fn mainarch_device_get(
        index: usize,
        out: *mut mainarch_device_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// About device `index`, below mainarch_group_device_count.
    #[must_use]
    pub fn mainarch_group_device_info_get(
        group: *const mainarch_group,
        index: usize,
        out: *mut mainarch_device_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Opens a checkpoint, a Hugging Face directory or a GGUF file, and places its weights on the devices
    /// of `group`.
    ///
    /// `path` is a directory with config.json and model.safetensors, or model.safetensors.index.json and
    /// its shards. Architectures: those of README.md's table "Models", by config.json's model_type.
    /// Weights: BF16, F16, F32, block FP8 (weight_scale_inv), per-channel FP8, MXFP4, NVFP4, int4 in groups
    /// (GPTQ, AWQ, compressed-tensors); or `path` is a GGUF file (README.md has its formats). Everything
    /// else is refused by name. The files are mapped, and stay so as long as the model lives; none of their
    /// bytes is trusted.
    ///
    /// On the CPU it returns as soon as the files are checked. Steps can run at once, straight from the
    /// mapped files, while a thread of low priority moves the weights into memory of their own, in huge
    /// pages where the system gives any; from then on steps are faster. Results are the same all along.
    /// What could not be moved for want of memory is used in place for good: mainarch_model_info says so.
    ///
    /// Errors: NOT_FOUND or IO or PERMISSION (a file), BAD_MODEL (names file, tensor or key),
    /// UNSUPPORTED (an architecture, format or feature), OUT_OF_DEVICE_MEMORY, CANCELLED (by progress),
    /// DEVICE_LOST.
    /// Tensors that the architecture does not use are no error: a log line of level warning counts them.
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
    /// and perhaps tokenizer_config.json: BPE over bytes or characters, Unigram or WordPiece, with the
    /// normalizers, pre-tokenizers and decoders that models use. What would change tokens and is not
    /// followed is refused by name.
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
    /// U+FFFD. `text` may be NULL when `length` is 0.
    ///
    /// There may be more tokens than bytes: a byte that is no UTF-8 is read as the three bytes of U+FFFD,
    /// and tokenizers may put spaces or longer characters in place of others. For byte-level ones that
    /// normalise to NFC or not at all `*count` is at most 3 * length, and what ADD_SPECIAL adds. Who would
    /// rather not hold room for that asks first (capacity 0).
    /// Errors: BUFFER_TOO_SMALL, UNSUPPORTED (the tokenizer has no token for some character, and none for
    /// the unknown; its pattern takes too long on this text, which no pattern in use does).
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

    /// The bytes that one token stands for amid a text, which alone need not be UTF-8.
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

    /// The prompt of a chat as the model was trained on it, to be encoded with flags 0: what the checkpoint's own
    /// template (Jinja, in chat_template.jinja or tokenizer_config.json) writes. Never another's: without a
    /// template, or with one that cannot be run, the call fails and says why. For tools, other roles and all
    /// else that a template may take see mainarch_tokenizer_render_chat_json.
    /// Thinking ON and OFF are the template's variable enable_thinking (or thinking); where it has none, they are
    /// refused unless the model does that anyway.
    /// Text in a message is not escaped: "\<|im_end|\>" in a content ends the turn. Who renders messages of
    /// strangers must look for the special tokens' texts in them first.
    /// A template is a program of the checkpoint's. It sees the messages and the local time, no file and no
    /// network, and is stopped at 33,554,432 steps, 256 MiB, or 400 calls and expressions in one another.
    /// Errors: INVALID_ARGUMENT (names the message with a wrong role; or the template refuses the chat, in its
    /// own words; or it fails, with the line), UNSUPPORTED (no template, or one that uses what is not known
    /// here, or has no such thinking switch), BAD_MODEL (what the checkpoint has is no template),
    /// BUFFER_TOO_SMALL.
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

    /// The same of a chat as JSON, `json_length` bytes (at most 64 MiB) of one object:
    ///
    ///   messages                an array of objects as the template takes them: role, content (a string, or an
    ///                           array of parts), reasoning_content, tool_calls, tool_call_id, name, ...
    ///   tools                   an array of objects, each a tool's JSON schema
    ///   documents               an array of objects, for retrieval
    ///   add_generation_prompt   false: do not open the assistant's turn. Default: true
    ///   continue_final_message  true: end within the last message, so that the model goes on with it; or the
    ///                           name of its field that is continued. Opens no turn
    ///   chat_template           the name of one of the model's templates, or the text of another. Default: the
    ///                           model's "tool_use" if it has that one and tools are given, else its "default"
    ///   chat_template_kwargs    an object of further variables: {"enable_thinking": false}
    ///
    /// All but messages may be left out or null; any other key is refused. What a template sees is what
    /// `apply_chat_template` of the Python package transformers (5.23) shows it, byte for byte the same prompt: a message's null fields are left out, reasoning_content,
    /// thinking and reasoning are one, the special tokens of tokenizer_config.json are variables. Not so: an
    /// integer beyond 64 bits and a key that stands twice in an object are refused.
    /// Errors: as mainarch_tokenizer_render_chat; INVALID_ARGUMENT also names what is wrong in the JSON.
    #[must_use]
    pub fn mainarch_tokenizer_render_chat_json(
        tokenizer: *const mainarch_tokenizer,
        json: *const c_char,
        json_length: usize,
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

    /// The end: U+FFFD if a character is unfinished, else mostly nothing (tokenizers whose texts depend on
    /// what comes last hold that back). For byte-level tokenizers a capacity of 4 always does. The decoder
    /// may then start on another text. Errors: BUFFER_TOO_SMALL, BUSY.
    #[must_use]
    pub fn mainarch_decoder_finish(
        decoder: *mut mainarch_decoder,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Makes an engine, which owns its KV cache and shares the model's weights.
    /// Errors: OUT_OF_DEVICE_MEMORY (kv_tokens, or the activations alone, take more than there is or than
    /// memory_bytes; at once, and with the numbers), DEVICE_LOST.
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

    /// Keeps a beginning, a system prompt say, until it is dropped: the longest that can be found now of
    /// these tokens (so run them once) is not given up. `*pinned` gets how many tokens that is, a multiple of
    /// 16, 0 too; they no longer count as free. What a window or a recurrent state holds of them goes only
    /// when sequences have no other room. `salt`: mainarch_sequence_options.prefix_salt.
    /// Errors: KV_FULL (the rest would not hold a sequence of max_sequence_tokens, or of kv_tokens if that is
    /// less; nothing is pinned), BUSY.
    #[must_use]
    pub fn mainarch_engine_pin_prefix(
        engine: *mut mainarch_engine,
        tokens: *const u32,
        count: usize,
        salt: u64,
        pinned: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Forgets what begins with these tokens, from their last whole block of 16 on, pinned or not; what
    /// was pinned before that on their behalf alone may go again. No tokens: all, whatever the salt. Sequences
    /// that are open keep what they hold. Errors: BUSY.
    #[must_use]
    pub fn mainarch_engine_drop_prefix(
        engine: *mut mainarch_engine,
        tokens: *const u32,
        count: usize,
        salt: u64,
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
    /// Errors: INVALID_ARGUMENT (names the field, value and limit), BUSY (max_sequences are open); with
    /// stop_strings and no stop_tokenizer those of mainarch_tokenizer_from_model.
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

    /// Gives the sequence other options, for the tokens to come; all of them, so begin with those that it
    /// has. Between steps, at any time. Tokens, and a finish reason, stay: truncate at the tokens held
    /// lets a sequence go on that has ended. min_tokens, max_tokens and stop sequences go on counting from
    /// the last append; stop strings that were complete before do not stop.
    /// Errors: INVALID_ARGUMENT (names the field, value and limit; also when MAINARCH_SEQUENCE_MANUAL,
    /// prompt_logprobs or prefix_salt would change), BUSY (`logprobs` would change while produced tokens are untaken).
    #[must_use]
    pub fn mainarch_sequence_set_options(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        options: *const mainarch_sequence_options,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Says which tokens may be sampled next: bit t % 32 of words\[t / 32\] is set when token t may. This is
    /// what grammar engines make. `word_count` is at most ceil(vocab_size / 32); words that are missing
    /// are 0, bits beyond the vocabulary say nothing. A token that is not allowed has a logit of -infinity,
    /// as with logit_bias; log-probabilities and logits are those without the mask.
    ///
    /// It holds for one token: the step that samples it drops the mask, so set the next one after each. A
    /// step that fails or is cancelled, or samples nothing for this sequence yet, leaves it. A copy (fork)
    /// has it, too. words NULL and word_count 0: every token may come.
    /// A mask that leaves no token ends the sequence with MAINARCH_FINISH_FAULT: see take.
    /// Errors: INVALID_ARGUMENT (too many words; a manual sequence).
    #[must_use]
    pub fn mainarch_sequence_set_mask(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        words: *const u32,
        word_count: usize,
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
    /// BAD_MODEL (one is not a number, or infinite: what ends a sequence that is not manual),
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

    /// Log-probabilities of the appended token at `position` (0: the first of the sequence), given the
    /// tokens before it: the token itself first, then the likeliest ones, descending, as many as
    /// options.prompt_logprobs, or all of a smaller vocabulary. They are there as soon as the row before
    /// has run, and stay until the token goes (truncate, close); a copy (fork) has them, too.
    /// Errors: INVALID_ARGUMENT (opened without prompt_logprobs; position 0, a produced token, or one that
    /// is not held), BUSY (the row before has not run yet), BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_sequence_prompt_logprobs(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        position: u64,
        logprobs: *mut mainarch_logprob,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Raw logits \[vocab_size\] after the token at `position`, of a sequence with
    /// MAINARCH_SEQUENCE_ALL_LOGITS: one of those that its last step ran, which are
    /// mainarch_sequence_info.logit_rows from .logit_position on. Until the next step of the engine, or until
    /// the sequence is appended to or truncated; mainarch_sequence_logits is the last of them.
    /// Errors: INVALID_ARGUMENT (opened without that flag, or another position), BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_sequence_logits_at(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        position: u64,
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

    /// A sequence as bytes: tokens, options, what is still to be taken, prompt_logprobs, mask; not its KV,
    /// and of a fault not the reason. The bytes are good for any engine of the same model, in another process, on other
    /// devices and with a later library. `*count` is how many there are.
    /// Errors: BUFFER_TOO_SMALL.
    #[must_use]
    pub fn mainarch_sequence_export(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        bytes: *mut c_void,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The same with flags. MAINARCH_EXPORT_KV: K and V go with it, of all tokens that have run but the last
    /// one held; many bytes. They are of use to an engine of the same kind of device, as many ranks, and the
    /// same kv_type and flags, which then does not run these tokens again; any other imports the sequence
    /// as if they were not there.
    /// Errors: BUFFER_TOO_SMALL, UNSUPPORTED (a flag that is not known).
    #[must_use]
    pub fn mainarch_sequence_export_with(
        engine: *mut mainarch_engine,
        sequence: mainarch_sequence,
        flags: u64,
        bytes: *mut c_void,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// A new sequence made of what export gave. Its tokens are run again, but for those whose K and V came
    /// along and found room, with the same results as on any
    /// engine with this one's device string and KV type, and it goes on as the exported one would have. Stop
    /// strings are looked for with the tokenizer of the model. None of the bytes is trusted, but the
    /// checksum in them is no signature: who can make bytes can make sequences, and K and V of any values.
    /// Errors: INVALID_ARGUMENT (names the field; also a sequence of another model), UNSUPPORTED (another
    /// version of the format), BUSY (max_sequences are open), KV_FULL (the tokens could never fit).
    #[must_use]
    pub fn mainarch_sequence_import(
        engine: *mut mainarch_engine,
        bytes: *const c_void,
        size: usize,
        out: *mut mainarch_sequence,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The sequences that have something for the caller, in the order in which they came to have it, up to
    /// the max_sequences of the engine:
    ///   - produced tokens to take;
    ///   - an end (finish reason) that no take since has come up against, having left nothing to take;
    ///   - of a manual sequence, logits.
    /// Asking changes nothing: a sequence is listed until its tokens are taken, or its logits are followed
    /// by append or truncate. Errors: BUFFER_TOO_SMALL, BUSY.
    #[must_use]
    pub fn mainarch_engine_ready(
        engine: *mut mainarch_engine,
        sequences: *mut mainarch_sequence,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// The files are read anew by each call. The model may be opened with or without MAINARCH_MODEL_EMBED.
    /// Errors: IO, PERMISSION, BAD_MODEL (names file and key), UNSUPPORTED (poolings of other kinds or several,
    /// a dense layer behind the pooling).
    #[must_use]
    pub fn mainarch_model_embed_info_get(
        model: *const mainarch_model,
        out: *mut mainarch_embed_info,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// What the checkpoint puts before a text for the use `name` ("query"), zero-terminated. NULL is its
    /// default_prompt, and nothing if it has none. Put it before the text, then encode both together.
    /// Errors: NOT_FOUND (names those that there are), BUFFER_TOO_SMALL, those of embed_info_get.
    #[must_use]
    pub fn mainarch_model_embed_prompt(
        model: *const mainarch_model,
        name: *const c_char,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;

    /// Makes vectors of `text_count` texts: text i is `lengths\[i\]` tokens, those of all texts one after another
    /// in `tokens`. `vectors` gets \[text_count\]\[dimensions\]; `*count` is text_count * dimensions.
    ///
    /// Takes as many sequences of the engine as are free, and runs steps until all texts are done; other
    /// sequences' work runs in them too. MAINARCH_ENGINE_FAST holds here as anywhere. A vector's bits depend on
    /// its text alone, not on the others or on how steps cut it. mainarch_engine_cancel, from another thread,
    /// ends the call; after that or another error no sequence of it is left, and what is in `vectors` is of no use.
    /// Errors: INVALID_ARGUMENT (an empty text, a token outside the vocabulary, each with its index; a model
    /// opened without MAINARCH_MODEL_EMBED; dimensions), KV_FULL (a text too long), BUSY (a step is in flight, or
    /// max_sequences are open), BAD_MODEL (a vector holds what is not a number), BUFFER_TOO_SMALL, CANCELLED, and
    /// those of mainarch_engine_step.
    #[must_use]
    pub fn mainarch_engine_embed(
        engine: *mut mainarch_engine,
        tokens: *const u32,
        lengths: *const usize,
        text_count: usize,
        options: *const mainarch_embed_options,
        vectors: *mut f32,
        capacity: usize,
        count: *mut usize,
        error: *mut mainarch_error,
    ) -> mainarch_status;
}
