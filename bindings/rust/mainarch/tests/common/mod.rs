// SPDX-License-Identifier: MIT
#![allow(dead_code)]

use mainarch::{Engine, EngineOptions, Group, GroupOptions, Model, Result, SequenceOptions};
use mainarch::{Sequence, Tokenizer};
use std::path::PathBuf;
use std::process::Command;

pub const PROMPT: &str = "And God said, Let there be";
pub const PRODUCED: u32 = 24;

/// The trained checkpoint of the repository.
pub fn checkpoint() -> PathBuf {
    let root = std::env::var_os("MAINARCH_SOURCE_ROOT").map(PathBuf::from);
    let root = root.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    root.join("tests/golden/trained")
}

/// What the command writes after `prompt`; none when it is not built.
pub fn tokens_of_the_command(device: &str, prompt: &str, count: u32) -> Option<Vec<u32>> {
    let command = std::env::var_os("MAINARCH_CLI")?;
    let output = Command::new(command)
        .args(["generate", "--greedy", "--json", "--max-tokens", &count.to_string()])
        .args(["--threads", "1", "--device", device, "--model"])
        .arg(checkpoint())
        .arg(prompt)
        .output()
        .unwrap();
    let json = String::from_utf8(output.stdout).unwrap();
    let list = json.split("\"tokens\":").nth(1).unwrap_or_else(|| panic!("no tokens: {json}"));
    let list = list.trim_start().trim_start_matches('[').split(']').next().unwrap();
    Some(list.split(',').map(|token| token.trim().parse().unwrap()).collect())
}

pub struct Stack {
    pub group: Group,
    pub model: Model,
    pub tokenizer: Tokenizer,
    pub engine: Engine,
}

pub fn engine_options() -> EngineOptions {
    EngineOptions { max_sequences: 4, max_sequence_tokens: 256, ..Default::default() }
}

/// One thread: on a crowded machine two wait for each other at every phase of a step.
pub fn open(device: &str) -> Result<Stack> {
    open_with(device, 1)
}

pub fn open_with(device: &str, threads: u32) -> Result<Stack> {
    let options = GroupOptions { threads, ignore_environment: true, ..Default::default() };
    let group = Group::open_with(device, options)?;
    let model = Model::open(&group, checkpoint())?;
    let tokenizer = model.tokenizer()?;
    let engine = Engine::new(&model, &engine_options())?;
    Ok(Stack { group, model, tokenizer, engine })
}

pub fn greedy() -> SequenceOptions {
    SequenceOptions { max_tokens: PRODUCED, ..Default::default() }
}

impl Stack {
    pub fn prompt(&mut self, options: &SequenceOptions) -> Result<Sequence> {
        let sequence = self.engine.open(options)?;
        self.engine.append(sequence, &self.tokenizer.encode(PROMPT)?)?;
        Ok(sequence)
    }

    pub fn run(&mut self, sequence: Sequence) -> Result<Vec<u32>> {
        self.engine.tokens(sequence).collect()
    }
}
