// SPDX-License-Identifier: MIT
//! Tokens and text of one sequence as they come.

use crate::{Decoder, Engine, Error, Result, Sequence};
use std::os::unix::io::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::Poll;

/// Where a sequence stands. Tokens are taken one by one, so that those that nobody asked for stay
/// to take.
#[derive(Debug)]
struct Progress {
    /// The last step found no work.
    idle: bool,
    ended: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { idle: false, ended: false }
    }

    /// The next token; none: a step is needed, or the sequence has ended.
    fn next(&mut self, engine: &mut Engine, sequence: Sequence) -> Result<Option<u32>> {
        let mut token = [0];
        if engine.take(sequence, &mut token)? == 1 {
            self.idle = false;
            return Ok(Some(token[0]));
        }
        // A sequence with nothing to run (no prompt, or manual) ends as well.
        self.ended = self.idle || engine.sequence_info(sequence)?.finish.is_some();
        Ok(None)
    }

    fn fail<T>(&mut self, error: Error) -> Option<Result<T>> {
        self.ended = true;
        Some(Err(error))
    }
}

/// See [`Engine::tokens`]. It ends after the first error, and when the sequence has a finish reason
/// or nothing to run.
#[derive(Debug)]
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Tokens<'a> {
    engine: &'a mut Engine,
    sequence: Sequence,
    progress: Progress,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(engine: &'a mut Engine, sequence: Sequence) -> Tokens<'a> {
        Tokens { engine, sequence, progress: Progress::new() }
    }

    /// The engine in between, to open or append to other sequences.
    pub fn engine(&mut self) -> &mut Engine {
        self.engine
    }
}

impl Iterator for Tokens<'_> {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Result<u32>> {
        while !self.progress.ended {
            match self.progress.next(self.engine, self.sequence) {
                Ok(Some(token)) => return Some(Ok(token)),
                Ok(None) if self.progress.ended => break,
                Ok(None) => match self.engine.step() {
                    Ok(worked) => self.progress.idle = !worked,
                    Err(error) => return self.progress.fail(error),
                },
                Err(error) => return self.progress.fail(error),
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Tokens<'_> {}

/// See [`Engine::text`]. It ends after the first error.
#[derive(Debug)]
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Text<'a> {
    tokens: Tokens<'a>,
    decoder: &'a mut Decoder,
    finished: bool,
}

impl<'a> Text<'a> {
    pub(crate) fn new(
        engine: &'a mut Engine,
        sequence: Sequence,
        decoder: &'a mut Decoder,
    ) -> Text<'a> {
        Text { tokens: Tokens::new(engine, sequence), decoder, finished: false }
    }
}

impl Iterator for Text<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        while !self.finished {
            let piece = match self.tokens.next() {
                Some(token) => token.and_then(|token| self.decoder.push(&[token])),
                None => {
                    self.finished = true;
                    self.decoder.finish()
                }
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some(Ok(piece)),
                Err(error) => {
                    self.finished = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Text<'_> {}

/// See [`Engine::poll_tokens`]. The state of a `Stream` without depending on a crate that has one:
///
/// ```
/// # use std::task::{Context, Poll};
/// # use mainarch::{Result, TokenPoll};
/// # struct Reactor;
/// # impl Reactor {
/// #     fn wake_when_readable(&self, _: &impl std::os::unix::io::AsRawFd, _: &Context<'_>) {}
/// # }
/// fn poll_next(
///     tokens: &mut TokenPoll<'_>,
///     reactor: &Reactor,
///     context: &mut Context<'_>,
/// ) -> Poll<Option<Result<u32>>> {
///     let next = tokens.poll_ready();
///     if next.is_pending() {
///         reactor.wake_when_readable(tokens, context);
///     }
///     next
/// }
/// ```
///
/// Dropping it cancels a step that it has in flight and waits for that, so that the engine is free
/// again: bounded, and short.
#[derive(Debug)]
pub struct TokenPoll<'a> {
    engine: &'a mut Engine,
    sequence: Sequence,
    progress: Progress,
    in_flight: bool,
}

impl<'a> TokenPoll<'a> {
    pub(crate) fn new(engine: &'a mut Engine, sequence: Sequence) -> TokenPoll<'a> {
        TokenPoll { engine, sequence, progress: Progress::new(), in_flight: false }
    }

    /// The next token, `None` at the end. `Pending`: a step is in flight; ask again when the
    /// descriptor is readable. Never waits.
    pub fn poll_ready(&mut self) -> Poll<Option<Result<u32>>> {
        loop {
            if self.in_flight {
                match self.engine.poll_ready() {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(ended) => {
                        self.in_flight = false;
                        if let Err(error) = ended {
                            return Poll::Ready(self.progress.fail(error));
                        }
                    }
                }
            }
            if self.progress.ended {
                return Poll::Ready(None);
            }
            match self.progress.next(self.engine, self.sequence) {
                Ok(Some(token)) => return Poll::Ready(Some(Ok(token))),
                Ok(None) if self.progress.ended => return Poll::Ready(None),
                Ok(None) => match self.engine.submit() {
                    Ok(worked) => {
                        self.in_flight = worked;
                        self.progress.idle = !worked;
                    }
                    Err(error) => return Poll::Ready(self.progress.fail(error)),
                },
                Err(error) => return Poll::Ready(self.progress.fail(error)),
            }
        }
    }
}

impl AsRawFd for TokenPoll<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.engine.as_raw_fd()
    }
}

impl AsFd for TokenPoll<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.engine.as_fd()
    }
}

impl Drop for TokenPoll<'_> {
    fn drop(&mut self) {
        if self.in_flight {
            self.engine.canceller().cancel();
            let _ = self.engine.wait(None); // cancelled, most likely
        }
    }
}
