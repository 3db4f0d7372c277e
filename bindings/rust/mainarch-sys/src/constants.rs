// SPDX-License-Identifier: MIT
// Made by bindings/rust/generate.py from include/mainarch.h: do not edit.

//! Codes, flags and the header's version.

/// Version of the header that this was made from.
pub const MAINARCH_VERSION_MAJOR: u32 = 0;
/// Version of the header that this was made from.
pub const MAINARCH_VERSION_MINOR: u32 = 1;
/// Version of the header that this was made from.
pub const MAINARCH_VERSION_PATCH: u32 = 0;
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
/// log error
pub const MAINARCH_LOG_ERROR: i32 = 1;
/// log warning
pub const MAINARCH_LOG_WARNING: i32 = 2;
/// log info
pub const MAINARCH_LOG_INFO: i32 = 3;
/// log debug
pub const MAINARCH_LOG_DEBUG: i32 = 4;
/// read no environment variable but MAINARCH_SIM_LINES
pub const MAINARCH_GROUP_IGNORE_ENVIRONMENT: u64 = 1;
/// CPU: multiply straight from the mapped files for good.
/// Takes no memory of its own; steps are slower, and
/// results the same.
pub const MAINARCH_MODEL_IN_PLACE: u64 = 1;
/// open returns when all weights are in place
pub const MAINARCH_MODEL_WAIT: u64 = 2;
/// weights of the layer that drafts are placed, too, where
/// the checkpoint has one (mtp.\*): MAINARCH_DRAFTS_HEAD
pub const MAINARCH_MODEL_DRAFT_HEAD: u64 = 4;
/// for vectors, not to generate: the head is left out, and what
/// engines call logits is the final norm's output, hidden_size
/// numbers: see "Embeddings". Not with MODEL_DRAFT_HEAD.
pub const MAINARCH_MODEL_EMBED: u64 = 8;
/// No such token.
pub const MAINARCH_NO_TOKEN: u32 = u32::MAX;
/// "\<|im_end|\>" in the text is plain text
pub const MAINARCH_ENCODE_NO_SPECIAL: u64 = 1;
/// and so is every added token: "\<think\>"
pub const MAINARCH_ENCODE_NO_ADDED: u64 = 2;
/// What the tokenizer puts around a text (BOS, perhaps EOS) is put there. A chat's prompt has it.
pub const MAINARCH_ENCODE_ADD_SPECIAL: u64 = 4;
/// special tokens are no text
pub const MAINARCH_DECODE_SKIP_SPECIAL: u64 = 1;
/// what the model's own template does
pub const MAINARCH_THINKING_DEFAULT: i32 = 0;
/// Values of mainarch_chat_options.thinking.
pub const MAINARCH_THINKING_ON: i32 = 1;
/// Values of mainarch_chat_options.thinking.
pub const MAINARCH_THINKING_OFF: i32 = 2;
/// do not open the assistant's turn
pub const MAINARCH_CHAT_NO_GENERATION_PROMPT: u64 = 1;
/// MAINARCH_KV_BF16
pub const MAINARCH_KV_DEFAULT: i32 = 0;
/// Values of mainarch_engine_options.kv_type.
pub const MAINARCH_KV_BF16: i32 = 1;
/// e4m3fn with a scale for each token and head: half the memory
pub const MAINARCH_KV_FP8: i32 = 2;
/// to compare with
pub const MAINARCH_KV_F32: i32 = 3;
/// e2m1, a scale for 32 elements, 4.25 bits: a quarter of bf16, of some loss
pub const MAINARCH_KV_FP4: i32 = 4;
/// K as FP8, V as FP4
pub const MAINARCH_KV_K8V4: i32 = 5;
/// Flags of mainarch_engine_options.
pub const MAINARCH_ENGINE_FAST: u64 = 1;
/// What goes into matrix products is rounded to bf16, 8 significant bits: on GPUs, and where the CPU has
/// dot products for it that are faster than those of fp32 (AVX512_BF16 of AMD's, Zen 4 on; BFDOT of Arm's own
/// cores, Neoverse V1 and N2 on) or a matrix unit (AMX, Intel's Xeon from Sapphire Rapids on), with weights of
/// all formats but F16 and F32; elsewhere it is not, and the flag changes nothing. On GPUs products with weights that
/// are held as codes (GGUF's blocks but MXFP4's, NVFP4, integers of 4 and 8 bits, FP8 by row) stay as without the
/// flag. On a CPU prompts run twice as fast or more, and several sequences together in less time. AMX is asked of the
/// kernel for the whole process, by the first engine with this flag, MAINARCH_ENGINE_INT8 or MAINARCH_ENGINE_MXFP8, as
/// Linux wants it: from then on sigaltstack(2) refuses stacks too small for its registers
/// (getauxval(AT_MINSIGSTKSZ)); where a thread has a smaller one already, the kernel refuses, and this flag changes
/// nothing. For
/// y = sum of w_k x_k over K columns,
///   |error| \<= (2^-8 + (K + 8) 2^-23) * sum of |w_k x_k|
/// (|scale q| + |offset| in place of |w| where w = scale q + offset), apart from what is smaller than 2^-126. With AMX and
/// a cache in bf16, of heads of multiples of 32 elements, attention takes queries and weights rounded likewise, which makes
/// long prompts faster: with e = (2^-8 + (D + 8) 2^-23) * the largest sum of |q_d k_d| over a head's D elements, scaled,
///   |error| \<= (exp(2 e) (1 + 2^-8) - 1 + 2^-12) * weighted sum of |v|.
/// Sums, norms, other attention, softmax, the router of a mixture of
/// experts and what layers add to stay fp32, and results still do not depend on batch, chunking,
/// threads or ranks. Without the flag everything is fp32, which is what this library's results are
/// tested to agree with.
pub const MAINARCH_ENGINE_INT8: u64 = 4;
/// On CPUs, products with weights whose codes are integers but for a scale take 8 bits of what goes into them, with a
/// factor for 32 columns, as other engines do always: GGUF's Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K and
/// IQ4_NL, MXFP4, NVFP4, integers of 8 bits, and AWQ, packed integers of 4 bits and GPTQ without act-order. They then
/// take less time than in fp32 where it is decoding that takes it: the more, the fewer bits weights have, on
/// processors without AVX-512 most, and for prompts. For y = sum of w_k x_k over K columns, m_k the largest |x| of the
/// 32 columns that k is of,
///   |error| \<= (1 / 254 + (K / 16 + 10) 2^-22) * sum of |w_k| m_k
/// (with weights of an offset, Q4_1, Q5_1, Q4_K, Q5_K and groups of integers, the second term is of |scale * code| +
/// |offset| in place of |w_k|). All that MAINARCH_ENGINE_FAST says of what stays fp32, and of results that depend on
/// nothing but the sequence, holds. Products with other weights, and GPUs, do as with MAINARCH_ENGINE_FAST.
pub const MAINARCH_ENGINE_NO_PREFIX_CACHE: u64 = 2;
/// A sequence that begins with tokens that another of the engine has run, open or closed, takes what the
/// caches hold of them, in blocks of 16 tokens, instead of running them again. Nothing comes out
/// differently, only sooner; at least the last token appended runs, and every token that is scored
/// (prompt_logprobs) or has its logits read (MAINARCH_SEQUENCE_ALL_LOGITS). Blocks live in room of the KV cache
/// that no sequence uses, and count as free there; where room is wanted, the longest unused go. With this
/// flag nothing is kept and every token of every sequence runs.
pub const MAINARCH_ENGINE_RESIDENT: u64 = 8;
/// On GPUs, a kernel that stays on each of them runs steps of up to 16 rows: no packet, and no launch,
/// between one token and the next. Steps of more rows (prompts) are packets; the kernel leaves for them, as it
/// does when nothing was asked of it for some milliseconds, and comes back. What comes out is the same to the bit.
/// Its workgroups need places on the GPUs all at once. Where the driver says that another process has waves there, or another
/// group of this one has such a kernel, steps are packets until that is over; the log and resident_no_room say so. If they
/// come while it has left in the midst of a step, mainarch_engine_submit or _wait ends that, and returns when it is over.
/// While it is there nothing else runs on these GPUs' queues that this library has: engines of one device group
/// take turns. While sequences want nothing but tokens it runs up to 31 steps ahead of what was asked for, of models with
/// recurrent states up to 7, for which each sequence has 8 states more: logits of one that is not manual are BUSY then
/// if they are gone, unless it was opened with MAINARCH_SEQUENCE_ALL_LOGITS.
/// UNSUPPORTED where the device is no GPU, or a kernel of the model's has more local memory or registers
/// than this one (of those that there are none has). With RESIDENT_AUTO beside it, this one does not count.
pub const MAINARCH_ENGINE_RESIDENT_AUTO: u64 = 16;
/// The same where it can be had, else packets; the log says why.
pub const MAINARCH_ENGINE_KV_NEAR: u64 = 32;
/// With MAINARCH_KV_FP4 or K8V4: the first 16 tokens of a sequence and the last 128 before each are held as FP8 has them,
/// too, and read there: what of the loss of four bits they cause, which is most of it, is gone. It takes FP8's room for
/// some 200 tokens of each sequence. Which of both a token is read from is a function of positions alone, so that results
/// depend on nothing but the sequence, as ever. Layers with a window are FP8 as a whole. Going back (a truncate, an
/// eviction) runs tokens again as it does where a model has windows. INVALID_ARGUMENT with other types; UNSUPPORTED where
/// attention is to latents.
pub const MAINARCH_ENGINE_KV_OUTER: u64 = 64;
/// The same for all tokens of the first and of the last layer.
pub const MAINARCH_ENGINE_MXFP8: u64 = 128;
/// Values of mainarch_engine_options.drafts: who guesses tokens ahead of those that are sampled. A step runs
/// the guesses of a sequence as further rows and keeps them as far as they are what is sampled, so a
/// sequence gets several tokens of one step, and no token comes out differently. A sequence that the caller
/// samples (MAINARCH_SEQUENCE_MANUAL) or that has a mask gets none, nor one with stop strings whose
/// tokenizer's text is more than the bytes of tokens joined (SentencePiece).
pub const MAINARCH_DRAFTS_OFF: i32 = 0;
/// a layer of the model's own: it must have been opened with
/// MAINARCH_MODEL_DRAFT_HEAD, and have one
pub const MAINARCH_DRAFTS_HEAD: i32 = 1;
/// what followed the last 3, 2 or 1 tokens when they stood there before:
/// for texts that repeat what was said
pub const MAINARCH_DRAFTS_NGRAM: i32 = 2;
/// HEAD where the model has one, else NGRAM
pub const MAINARCH_DRAFTS_AUTO: i32 = 3;
/// the caller samples: read logits, append a token
pub const MAINARCH_SEQUENCE_MANUAL: u64 = 1;
/// the model's end tokens do not end the sequence
pub const MAINARCH_SEQUENCE_IGNORE_END: u64 = 2;
/// stop_strings: special tokens are text, too
pub const MAINARCH_SEQUENCE_STOP_SPECIAL: u64 = 4;
/// every row makes logits: mainarch_sequence_logits_at
pub const MAINARCH_SEQUENCE_ALL_LOGITS: u64 = 8;
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
/// one of stop_strings is complete: see text_bytes
pub const MAINARCH_FINISH_STOP_STRING: u32 = 7;
/// with the content of its KV cache
pub const MAINARCH_EXPORT_KV: u64 = 1;
/// what the checkpoint says; without a word of it, the last
pub const MAINARCH_POOLING_DEFAULT: i32 = 0;
/// Values of mainarch_embed_options.pooling: of which tokens' vectors a text's is made.
pub const MAINARCH_POOLING_LAST: i32 = 1;
/// of all
pub const MAINARCH_POOLING_MEAN: i32 = 2;
/// "cls"
pub const MAINARCH_POOLING_FIRST: i32 = 3;
/// to a length of one, whatever the checkpoint says
pub const MAINARCH_EMBED_NORMALIZE: u64 = 1;
/// not
pub const MAINARCH_EMBED_RAW: u64 = 2;
