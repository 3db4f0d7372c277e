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
    Canceller(Canceller),
}

impl Handle {
    fn works(&mut self, engine_is_there: bool) {
        match self {
            Handle::Group(group) => assert_eq!(group.device_count(), 1),
            Handle::Model(model) => assert_eq!(model.info().unwrap().layers, 5),
            Handle::Tokenizer(tokenizer) => assert!(tokenizer.encode("light").is_ok()),
            Handle::Decoder(decoder) => assert!(decoder.push(&[300]).is_ok()),
            Handle::Engine(engine) => {
                engine.wait(None).unwrap();
                assert!(engine.submit().unwrap()); // in flight when something is dropped
            }
            Handle::Canceller(canceller) => assert_eq!(canceller.cancel(), engine_is_there),
        }
    }
}

fn handles() -> Vec<Handle> {
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
    vec![
        Handle::Group(group),
        Handle::Model(model),
        Handle::Tokenizer(tokenizer),
        Handle::Decoder(decoder),
        Handle::Engine(engine),
        Handle::Canceller(canceller),
    ]
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
    let orders = permutations(6);
    assert_eq!(orders.len(), 720);
    for order in orders {
        let mut handles: Vec<Option<Handle>> = handles().into_iter().map(Some).collect();
        for which in order {
            handles[which] = None;
            let engine_is_there = handles[4].is_some();
            // The engine first: a canceller must not hit the step that is waited for.
            let mut left: Vec<&mut Handle> = handles.iter_mut().flatten().collect();
            left.retain_mut(|handle| {
                let waits = matches!(handle, Handle::Engine(_));
                if waits {
                    if let Handle::Engine(engine) = handle {
                        let _ = engine.wait(None); // it may have been cancelled
                    }
                    handle.works(engine_is_there);
                }
                !waits
            });
            left.into_iter().for_each(|handle| handle.works(engine_is_there));
        }
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
    steady("everything", 1000, || drop(handles()));
    let options = GroupOptions { threads: 1, ignore_environment: true, ..Default::default() };
    let group = Group::open_with("cpu", options).unwrap();
    let model = Model::open(&group, checkpoint()).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    steady("group, engine, sequence, decoder, error", 10_000, || {
        let options = GroupOptions {
            threads: 1,
            ignore_environment: true,
            log: Some(Box::new(|_, _| ())),
            ..Default::default()
        };
        Group::open_with("cpu", options).unwrap();
        Model::open(&group, "/nonexistent").unwrap_err();
        let mut engine = Engine::new(&model, &engine_options()).unwrap();
        let sequence = engine.open(&greedy()).unwrap();
        engine.append(sequence, &[1, 2, 3]).unwrap();
        tokenizer.decoder().unwrap().push(&[300]).unwrap();
    });
}

#[test]
fn lifetimes() {
    every_order_of_drops();
    nothing_is_left_behind();
}
