// SPDX-License-Identifier: MIT
//! Handles dropped in every order, with what is left still working, and nothing left behind after
//! ten thousand of them. One test: it counts descriptors of the whole process.

mod common;
use common::*;
use mainarch::*;
use std::fs;

enum Handle {
    Group(Group),
    Model(Model),
    Tokenizer(Tokenizer),
    Decoder(Decoder),
    Engine(Engine),
}

impl Handle {
    fn works(&mut self) {
        match self {
            Handle::Group(group) => assert_eq!(group.device_count(), 1),
            Handle::Model(model) => assert_eq!(model.info().unwrap().layers, 5),
            Handle::Tokenizer(tokenizer) => assert!(tokenizer.encode("light").is_ok()),
            Handle::Decoder(decoder) => assert!(decoder.push(&[300]).is_ok()),
            Handle::Engine(engine) => {
                engine.wait(None).unwrap();
                assert!(engine.submit().unwrap()); // in flight when something is dropped
            }
        }
    }
}

fn handles() -> (Vec<Handle>, Canceller) {
    let options = GroupOptions { threads: 1, ignore_environment: true, ..Default::default() };
    let group = Group::open_with("cpu", options).unwrap();
    let in_place = ModelOptions { in_place: true, ..Default::default() };
    let model = Model::open_with(&group, checkpoint(), in_place).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let decoder = tokenizer.decoder().unwrap();
    let mut engine = Engine::new(&model, &engine_options()).unwrap();
    let sequence = engine.open(&SequenceOptions::default()).unwrap();
    engine.append(sequence, &tokenizer.encode(PROMPT).unwrap()).unwrap();
    let canceller = engine.canceller();
    let handles = vec![
        Handle::Group(group),
        Handle::Model(model),
        Handle::Tokenizer(tokenizer),
        Handle::Decoder(decoder),
        Handle::Engine(engine),
    ];
    (handles, canceller)
}

fn permutations(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for shorter in permutations(of - 1) {
        for at in 0..of {
            let mut longer = shorter.clone();
            longer.insert(at, of - 1);
            all.push(longer);
        }
    }
    all
}

fn every_order_of_drops() {
    let orders = permutations(5);
    assert_eq!(orders.len(), 120);
    for order in orders {
        let (handles, canceller) = handles();
        let mut handles: Vec<Option<Handle>> = handles.into_iter().map(Some).collect();
        for which in order {
            handles[which] = None;
            handles.iter_mut().flatten().for_each(Handle::works);
            assert_eq!(canceller.cancel(), handles[4].is_some());
            if let Some(Handle::Engine(engine)) = &mut handles[4] {
                let _ = engine.wait(None); // cancelled, if that was in time
                assert!(engine.submit().unwrap());
            }
        }
    }
}

/// The engine dropped while another thread cancels: one of the two destroys it, once.
fn an_engine_is_dropped_under_a_canceller() {
    for _ in 0..200 {
        let (handles, canceller) = handles();
        let thread = std::thread::spawn(move || while canceller.cancel() {});
        drop(handles);
        thread.join().unwrap();
    }
}

/// Resident bytes that are not of files, and descriptors.
fn process() -> (usize, usize) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kb: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kb, fs::read_dir("/proc/self/fd").unwrap().count())
}

fn steady(what: &str, cycles: usize, mut cycle: impl FnMut()) {
    (0..cycles / 10).for_each(|_| cycle());
    let before = process();
    let start = std::time::Instant::now();
    (0..cycles).for_each(|_| cycle());
    let after = process();
    println!("{what}: {cycles} cycles in {:.1?}: {before:?} then {after:?}", start.elapsed());
    assert_eq!(after.1, before.1, "descriptors");
    // 10,000 cycles: 2 MB are 200 bytes a cycle, less than any handle.
    assert!(after.0 <= before.0 + 2048, "{what}: {} kB, then {} kB", before.0, after.0);
}

fn nothing_is_left_behind() {
    if std::env::var_os("QEMU_LD_PREFIX").is_some() {
        return println!("# SKIPPED memory in Rust: of each thread that ends qemu keeps 280 kB");
    }
    steady("everything", 1000, || drop(handles()));
    let tiny = match std::env::var_os("MAINARCH_TINY") {
        Some(tiny) => tiny,
        None => return println!("# SKIPPED 10,000 cycles in Rust: MAINARCH_TINY is not set"),
    };
    let tokenizer = Tokenizer::open(checkpoint()).unwrap();
    steady("group, model, engine, sequence, decoder, error", 10_000, || {
        let options = GroupOptions {
            threads: 1,
            ignore_environment: true,
            log: Some(Box::new(|_, _| ())),
            ..Default::default()
        };
        let group = Group::open_with("cpu", options).unwrap();
        Model::open(&group, "/nonexistent").unwrap_err();
        let mut progress = |_, _| std::ops::ControlFlow::Continue(());
        let options = ModelOptions { progress: Some(&mut progress), ..Default::default() };
        let model = Model::open_with(&group, &tiny, options).unwrap();
        let mut engine = Engine::new(&model, &EngineOptions::default()).unwrap();
        let sequence = engine.open(&greedy()).unwrap();
        engine.append(sequence, &[1, 2, 3]).unwrap();
        tokenizer.decoder().unwrap().push(&[300]).unwrap();
    });
}

#[test]
fn lifetimes() {
    every_order_of_drops();
    an_engine_is_dropped_under_a_canceller();
    nothing_is_left_behind();
}
