// SPDX-License-Identifier: MIT
//! What is refused, and how it is said.

mod common;
use common::*;
use mainarch::*;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

#[test]
fn errors_have_code_errno_and_message() {
    let group = Group::open("cpu").unwrap();
    let error = Model::open(&group, "/nonexistent/model").unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::NotFound, -4));
    assert_eq!(error.os_errno(), Some(2));
    assert!(error.message().contains("/nonexistent/model"), "{error}");
    assert!(error.to_string().starts_with("not found: "), "{error}");
    let io: std::io::Error = error.clone().into();
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert!(boxed.downcast_ref::<Error>().is_some());

    let error = Group::open("toaster").unwrap_err();
    assert_eq!((error.kind(), error.os_errno()), (ErrorKind::InvalidArgument, None));
    assert!(error.message().contains("toaster"), "{error}");
    let error = group.device_info(7).unwrap_err();
    assert!(error.message().contains('7'), "{error}");
}

#[test]
fn a_zero_byte_in_a_c_string_is_refused() {
    let group = Group::open("cpu").unwrap();
    let error = Model::open(&group, "a\0b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.message(), "path has a zero byte at 1");
    assert!(Group::open("c\0").is_err());
    let tokenizer = Tokenizer::open(checkpoint()).unwrap();
    let error =
        tokenizer.render_chat(&[ChatMessage::user("x\0")], &ChatOptions::default()).unwrap_err();
    assert_eq!(error.message(), "messages[0].content has a zero byte at 1");
    let wrong = ChatMessage { role: "judge", content: "" };
    let error = tokenizer.render_chat(&[wrong], &ChatOptions::default()).unwrap_err();
    assert!(error.message().contains("judge"), "{error}");
    assert_eq!(tokenizer.token_id("no such token").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(tokenizer.token_bytes(9999).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_sequence_of_another_engine_or_a_closed_one_is_not_found() {
    let mut a = open("cpu").unwrap();
    let mut b = open("cpu").unwrap();
    let of_a = a.prompt(&greedy()).unwrap();
    let of_b = b.prompt(&greedy()).unwrap();
    assert_ne!(of_a, of_b);
    assert_eq!(b.engine.append(of_a, &[1]).unwrap_err().kind(), ErrorKind::NotFound);
    a.engine.close(of_a).unwrap();
    assert_eq!(a.engine.close(of_a).unwrap_err().kind(), ErrorKind::NotFound);
    let mut tokens = a.engine.tokens(of_a);
    assert_eq!(tokens.next().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(tokens.next().is_none());
}

#[test]
fn options_and_limits_are_named() {
    let mut stack = open("cpu").unwrap();
    let refused = |options: SequenceOptions, stack: &mut Stack, word: &str| {
        let error = stack.engine.open(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(word), "{error}");
    };
    refused(SequenceOptions { temperature: -1.0, ..greedy() }, &mut stack, "temperature");
    refused(SequenceOptions { logprobs: 33, ..greedy() }, &mut stack, "logprobs");
    refused(SequenceOptions { stop_sequences: vec![vec![]], ..greedy() }, &mut stack, "stop_seq");
    let error = Engine::new(
        &stack.model,
        &EngineOptions { max_sequence_tokens: 1 << 20, ..Default::default() },
    );
    assert!(error.unwrap_err().message().contains("2048"));
    let sequence = stack.engine.open(&greedy()).unwrap();
    let error = stack.engine.append(sequence, &[1; 300]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KvFull);
    let error = stack.engine.append(sequence, &[5000]).unwrap_err();
    assert!(error.message().contains("5000"), "{error}");
    assert_eq!(stack.engine.logits(sequence).unwrap_err().kind(), ErrorKind::Busy);
    // Nothing to run: the iterator ends rather than turning for ever.
    assert!(stack.engine.tokens(sequence).next().is_none());
}

#[test]
fn busy_while_a_step_is_in_flight() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    assert!(stack.engine.submit().unwrap());
    assert_eq!(stack.engine.submit().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(stack.engine.take(sequence, &mut [0; 4]).unwrap_err().kind(), ErrorKind::Busy);
    assert!(stack.engine.wait(None).unwrap());
    assert!(stack.engine.wait(None).unwrap());
    assert_eq!(stack.engine.take(sequence, &mut [0; 4]).unwrap(), 1);
}

#[test]
fn steps_are_cancelled_from_another_thread() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let expected = stack.run(sequence).unwrap();
    let canceller = stack.engine.canceller();
    let mut cancelled = 0;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cancelled < 3 && std::time::Instant::now() < end {
        let sequence = stack.prompt(&greedy()).unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (stop, canceller) = (stop.clone(), canceller.clone());
            let thread = stop.clone();
            scope.spawn(move || {
                while !thread.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(canceller.cancel());
                }
            });
            for _ in 0..100 {
                match stack.engine.step() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Cancelled);
                        cancelled += 1;
                    }
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(stack.run(sequence).unwrap(), expected); // as if nothing had been
        stack.engine.close(sequence).unwrap();
    }
    assert!(cancelled >= 3);
    drop(stack);
    assert!(!canceller.cancel());
}

#[test]
fn progress_is_told_and_may_cancel_or_panic() {
    let group = Group::open("cpu").unwrap();
    let mut told = Vec::new();
    let mut progress = |done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    };
    let options = ModelOptions { progress: Some(&mut progress), ..Default::default() };
    Model::open_with(&group, checkpoint(), options).unwrap();
    let last = *told.last().unwrap();
    assert!(told.len() > 2 && last.0 == last.1, "{told:?}");

    let mut progress = |_, _| ControlFlow::Break(());
    let options = ModelOptions { progress: Some(&mut progress), ..Default::default() };
    let error = Model::open_with(&group, checkpoint(), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);

    let mut progress = |_, _| panic!("out of the callback");
    let options = ModelOptions { progress: Some(&mut progress), ..Default::default() };
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _ = Model::open_with(&group, checkpoint(), options);
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"out of the callback"));
}

#[test]
fn the_log_outlives_the_group_and_its_panics_stay_inside() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let log = move |level, line: &str| {
        sink.lock().unwrap().push((level, line.to_string()));
        if line.starts_with("engine") {
            std::panic::panic_any(3);
        }
    };
    let options =
        GroupOptions { log: Some(Box::new(log)), ignore_environment: true, ..Default::default() };
    let group = Group::open_with("cpu", options).unwrap();
    let model = Model::open(&group, checkpoint()).unwrap();
    drop(group);
    let before = lines.lock().unwrap().len();
    let engine = Engine::new(&model, &engine_options()).unwrap();
    drop(model);
    {
        let lines = lines.lock().unwrap_or_else(|poison| poison.into_inner());
        assert!(lines.len() > before, "{lines:?}");
        assert!(lines.iter().any(|(l, text)| *l == LogLevel::Info && text.starts_with("engine")));
    }
    assert_eq!(Arc::strong_count(&lines), 2);
    drop(engine);
    assert_eq!(Arc::strong_count(&lines), 1); // gone with the last handle
}

#[test]
fn versions() {
    let (major, minor, patch) = version();
    assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
}
