// SPDX-License-Identifier: MIT
//! LLM inference as a library: safe Rust over `libmainarch`.
//!
//! | | |
//! |---|---|
//! | [`Group`] | devices: GPUs, or the CPU |
//! | [`Model`] | a checked checkpoint, its weights placed on a group |
//! | [`Tokenizer`], [`Decoder`] | text to tokens, and tokens to text as they come |
//! | [`Engine`] | KV cache and scheduler over one model; it steps |
//! | [`Sequence`] | one text in one engine: an id |
//!
//! ```no_run
//! use mainarch::{Engine, EngineOptions, Group, Model, SequenceOptions};
//! # fn main() -> mainarch::Result<()> {
//! let group = Group::open("cpu")?;
//! let model = Model::open(&group, "checkpoint")?;
//! let tokenizer = model.tokenizer()?;
//! let mut engine = Engine::new(&model, &EngineOptions::default())?;
//! let sequence = engine.open(&SequenceOptions { max_tokens: 64, ..Default::default() })?;
//! engine.append(sequence, &tokenizer.encode("In the beginning")?)?;
//! for piece in engine.text(sequence, &mut tokenizer.decoder()?) {
//!     print!("{}", piece?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Lifetimes
//!
//! Handles own what they stand for, and a child keeps its parents alive inside the library: a model
//! may be dropped before its engine, in any order. What is closed is gone, so that to use it does
//! not compile:
//!
//! ```compile_fail,E0382
//! # fn f(model: mainarch::Model) -> mainarch::Result<()> {
//! let mut engine = mainarch::Engine::new(&model, &Default::default())?;
//! drop(engine);
//! engine.step()?; // borrow of moved value
//! # Ok(())
//! # }
//! ```
//!
//! Iterators and streams borrow their engine, which cannot go before them, nor be used beside them:
//!
//! ```compile_fail,E0505
//! # fn f(mut engine: mainarch::Engine, sequence: mainarch::Sequence) {
//! let mut stream = engine.poll_tokens(sequence);
//! drop(engine); // it is borrowed
//! stream.poll_ready();
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn f(engine: &mut mainarch::Engine, sequence: mainarch::Sequence) {
//! for token in engine.tokens(sequence) {
//!     engine.step(); // it is borrowed
//! }
//! # }
//! ```
//!
//! A descriptor borrowed from an engine does not outlive it:
//!
//! ```compile_fail,E0515
//! # use std::os::unix::io::{AsFd, BorrowedFd};
//! fn event<'a>(engine: mainarch::Engine) -> BorrowedFd<'a> {
//!     engine.as_fd() // returns what it borrows from a local
//! }
//! ```
//!
//! Every drop ends in bounded time: that of an engine cancels the step in flight.
//!
//! # Threads
//!
//! Everything is [`Send`] and [`Sync`]. What the library allows on one thread at a time takes
//! `&mut self`, so a second thread needs a lock of the caller's; only [`Canceller`], which any
//! thread may use at any time, goes without:
//!
//! ```compile_fail,E0499
//! # fn f(engine: &mut mainarch::Engine) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| engine.step());
//!     scope.spawn(|| engine.step()); // a second mutable borrow
//! });
//! # }
//! ```
//!
//! A log sink is called on whichever thread is in a call, so it must be fit for that:
//!
//! ```compile_fail,E0277
//! let lines = std::rc::Rc::new(std::cell::RefCell::new(0));
//! let log = move |_: mainarch::LogLevel, _: &str| *lines.borrow_mut() += 1; // not Send
//! let options = mainarch::GroupOptions { log: Some(Box::new(log)), ..Default::default() };
//! ```
//!
//! # Errors
//!
//! [`Error`] has the library's status, `errno`, the device and a message that names the file,
//! field, value and limit. No call panics because the library refused something. A panic in a
//! callback does not cross the library: that of a progress callback goes on when
//! [`Model::open_with`] is done, that of a log sink ends there.
//!
//! # Processes
//!
//! In the child of a fork every call fails with [`ErrorKind::WrongProcess`]. Truncating a
//! checkpoint's files while a model of it is open makes the next access a SIGBUS, which no language
//! can turn into an error.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod call;
mod embed;
mod engine;
mod error;
mod group;
mod model;
mod options;
mod statistics;
mod stream;
mod tokenizer;

pub use embed::{EmbedInfo, EmbedOptions, Pooling};
pub use engine::{
    Canceller, Drafts, Engine, EngineInfo, EngineOptions, KvType, Logprob, Resident, Sequence,
    SequenceInfo,
};
pub use error::{Error, ErrorKind, Result};
pub use group::{devices, Device, DeviceInfo, Group, GroupOptions, LogFn, LogLevel};
pub use model::{Model, ModelInfo, ModelOptions, Progress};
pub use options::{Finish, SequenceOptions};
pub use statistics::Statistics;
pub use stream::{Text, TokenPoll, Tokens};
pub use tokenizer::{ChatMessage, ChatOptions, Decoder, Thinking, Tokenizer, TokenizerInfo};

/// The raw declarations, for what is not wrapped here.
pub use mainarch_sys as sys;

/// The library's version, which may be newer than this crate's: major, minor, patch.
pub fn version() -> (u32, u32, u32) {
    // SAFETY: no arguments, any thread.
    let version = unsafe { sys::mainarch_version() };
    (version >> 16, version >> 8 & 0xff, version & 0xff)
}

// Held at compile time: what the module documentation says of threads.
const _: fn() = || {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Group>();
    shared::<Model>();
    shared::<Tokenizer>();
    shared::<Decoder>();
    shared::<Engine>();
    shared::<Canceller>();
    shared::<Error>();
};
