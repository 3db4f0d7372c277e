// SPDX-License-Identifier: MIT
//! What a call through this crate costs: an empty step, of an engine with nothing to do, and the
//! same through the raw declarations. Prints "name nanoseconds", the median of many rounds.
//! `cargo bench -- CHECKPOINT`; see bench/ffi for the same beside C and Go.

use mainarch::{sys, Engine, EngineOptions, Group, Model};
use std::time::Instant;

const CALLS: u32 = 200_000;
const ROUNDS: usize = 25;

fn measure(name: &str, mut call: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name} {:.2}", rounds[ROUNDS / 2]);
}

fn main() -> mainarch::Result<()> {
    // Cargo adds "--bench".
    let checkpoint = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let checkpoint = match checkpoint {
        Some(checkpoint) => checkpoint,
        None => {
            println!("skipped: no checkpoint was named");
            return Ok(());
        }
    };
    let group = Group::open("cpu")?;
    let model = Model::open(&group, &checkpoint)?;
    let mut engine = Engine::new(&model, &EngineOptions::default())?;
    measure("rust", || assert!(!engine.step().unwrap()));

    let mut raw = std::ptr::null_mut();
    let mut error = std::mem::MaybeUninit::<sys::mainarch_error>::uninit();
    let path = std::ffi::CString::new(checkpoint).unwrap();
    // SAFETY: one thread; what is made here is destroyed here.
    unsafe {
        let (mut group, mut model) = (std::ptr::null_mut(), std::ptr::null_mut());
        let e = error.as_mut_ptr();
        let opened = sys::mainarch_group_open(std::ptr::null(), std::ptr::null(), &mut group, e);
        assert_eq!(opened, 0);
        let null = std::ptr::null();
        assert_eq!(sys::mainarch_model_open(group, path.as_ptr(), null, &mut model, e), 0);
        assert_eq!(sys::mainarch_engine_create(model, std::ptr::null(), &mut raw, e), 0);
        measure("rust-raw", || assert_eq!(sys::mainarch_engine_step(raw, e), 1));
        sys::mainarch_engine_destroy(raw);
        sys::mainarch_model_destroy(model);
        sys::mainarch_group_destroy(group);
    }
    Ok(())
}
