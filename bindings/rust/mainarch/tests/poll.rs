// SPDX-License-Identifier: MIT
//! Two engines at once on one thread, through an executor and a reactor written here out of
//! poll(2): what a runtime does, with nothing of one.

mod common;
use common::*;
use mainarch::*;
use std::cell::RefCell;
use std::future::Future;
use std::os::raw::{c_int, c_short, c_ulong};
use std::os::unix::io::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}
const POLLIN: c_short = 1;

extern "C" {
    fn poll(fds: *mut PollFd, count: c_ulong, timeout_ms: c_int) -> c_int;
}

/// Which descriptors are waited for, and who is to be woken.
#[derive(Default)]
struct Reactor {
    waiting: RefCell<Vec<(RawFd, Waker)>>,
    waits: RefCell<usize>,
}

impl Reactor {
    fn wake_when_readable(&self, fd: RawFd, context: &Context<'_>) {
        self.waiting.borrow_mut().push((fd, context.waker().clone()));
    }

    fn wait(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let one = |&(fd, _): &(RawFd, Waker)| PollFd { fd, events: POLLIN, revents: 0 };
        let mut fds: Vec<PollFd> = waiting.iter().map(one).collect();
        assert!(!fds.is_empty(), "a future is pending and nobody would wake it");
        // SAFETY: an array of that length.
        let ready = unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, 60_000) };
        assert!(ready > 0, "no step ended within a minute");
        *self.waits.borrow_mut() += 1;
        for (fd, (raw, waker)) in fds.iter().zip(waiting) {
            if fd.revents == 0 {
                self.waiting.borrow_mut().push((raw, waker));
            } else {
                waker.wake();
            }
        }
    }
}

/// One task of the executor: woken or not.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs all tasks to their ends.
fn run(reactor: &Reactor, tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let mut tasks: Vec<_> =
        tasks.into_iter().map(|task| (task, Arc::new(Flag(AtomicBool::new(true))))).collect();
    while !tasks.is_empty() {
        let mut polled = false;
        tasks.retain_mut(|(task, flag)| {
            if !flag.0.swap(false, Ordering::Acquire) {
                return true;
            }
            polled = true;
            let waker = Waker::from(flag.clone());
            task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        if !polled {
            reactor.wait();
        }
    }
}

/// `stream.next()` of a crate with streams.
struct Next<'a, 'b> {
    tokens: &'a mut TokenPoll<'b>,
    reactor: &'a Reactor,
}

impl Future for Next<'_, '_> {
    type Output = Option<Result<u32>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let next = self.tokens.poll_ready();
        if next.is_pending() {
            self.reactor.wake_when_readable(self.tokens.as_raw_fd(), context);
        }
        next
    }
}

#[test]
fn two_engines_on_one_thread() {
    let mut stack = open("cpu").unwrap();
    let first = stack.prompt(&greedy()).unwrap();
    let expected = stack.run(first).unwrap();
    let first = stack.prompt(&greedy()).unwrap();
    let mut other = Engine::new(&stack.model, &engine_options()).unwrap();
    let second = other.open(&greedy()).unwrap();
    other.append(second, &stack.tokenizer.encode(PROMPT).unwrap()).unwrap();

    let reactor = Reactor::default();
    let outputs = Rc::new(RefCell::new(Vec::new()));
    let collect = |engine, sequence| {
        let (reactor, outputs) = (&reactor, outputs.clone());
        let engine: &mut Engine = engine;
        let task = async move {
            let mut tokens = engine.poll_tokens(sequence);
            let mut got = Vec::new();
            while let Some(token) = (Next { tokens: &mut tokens, reactor }).await {
                got.push(token.unwrap());
            }
            outputs.borrow_mut().push(got);
        };
        Box::pin(task) as Pin<Box<dyn Future<Output = ()> + '_>>
    };
    let tasks = vec![collect(&mut stack.engine, first), collect(&mut other, second)];
    run(&reactor, tasks);
    assert_eq!(*outputs.borrow(), [expected.clone(), expected]);
    assert!(*reactor.waits.borrow() > 0);
}

#[test]
fn the_descriptor_tells_when_a_step_has_ended() {
    let mut stack = open("cpu").unwrap();
    stack.prompt(&greedy()).unwrap();
    let fd = stack.engine.as_fd().as_raw_fd();
    assert!(stack.engine.poll_ready().is_ready()); // none in flight
    assert!(stack.engine.submit().unwrap());
    let mut fds = [PollFd { fd, events: POLLIN, revents: 0 }];
    // SAFETY: an array of one.
    assert_eq!(unsafe { poll(fds.as_mut_ptr(), 1, 60_000) }, 1);
    assert!(matches!(stack.engine.poll_ready(), Poll::Ready(Ok(()))));
    // SAFETY: as before.
    assert_eq!(unsafe { poll(fds.as_mut_ptr(), 1, 0) }, 0);
    assert_eq!(stack.engine.as_raw_fd(), fd);
}

#[test]
fn a_dropped_stream_leaves_the_engine_free() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let expected = stack.run(sequence).unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let mut got = Vec::new();
    let mut dropped = 0;
    while got.len() < expected.len() {
        let mut tokens = stack.engine.poll_tokens(sequence);
        loop {
            match tokens.poll_ready() {
                Poll::Ready(Some(token)) => got.push(token.unwrap()),
                Poll::Ready(None) => break,
                Poll::Pending if dropped < 5 => {
                    dropped += 1;
                    break; // with a step in flight
                }
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }
    assert_eq!(dropped, 5);
    assert_eq!(got, expected);
    assert!(!stack.engine.step().unwrap());
}
