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
//! however much of it another sequence had run, however many threads, and after a restart. Bits need not agree between kinds of device.
//!
//! fork. After fork(2), in the child, every call on a handle of the parent returns WRONG_PROCESS
//! (device_count: 0, event_fd: -1); destroy is allowed and frees memory only. A child that needs
//! the library opens its own group.
//!
//! Process state. The library installs no signal handler, blocks all signals in its own threads,
//! changes no state of the process, but for AMX (MAINARCH_ENGINE_FAST), and opens every descriptor
//! close-on-exec. Once the last handle is destroyed dlclose() works, and no thread, descriptor or
//! mapping of it is left, but for one descriptor of each GPU's render node: the driver gives an
//! address space back only when the process ends, and a later group finds it there. A checkpoint
//! is mapped: truncating its files while a model of it is open makes the next access a SIGBUS.
//!
//! Environment. Three variables are read, once, by mainarch_group_open, unless its flags say not to:
//! * MAINARCH_LOG      "error", "warning", "info" or "debug": in place of log_level
//! * MAINARCH_BACKEND  "cpu", "gpu" or "sim": the device string when the caller gives none
//! * MAINARCH_DEVICES  what comes after the colon of that string: "4" for "cpu:4"
//! A fourth is read for devices "sim:...", whatever the flags say:
//! MAINARCH_SIM_LINES  files that a fault's report takes source lines from: mainarch-sim(1)
//!
//! Growth. The soname is libmainarch.so.0. Within it functions, codes, flags and fields at the end of
//! structs are added; no meaning, value or default changes.
//!

#![allow(non_camel_case_types)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;
