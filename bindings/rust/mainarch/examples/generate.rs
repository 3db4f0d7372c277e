// SPDX-License-Identifier: MIT
//! Text after a prompt, or the answer to a message, as it comes:
//!
//! `cargo run --example generate -- CHECKPOINT PROMPT [--chat] [--greedy] [--device DEVICE]`

use mainarch::{
    ChatMessage, ChatOptions, Engine, EngineOptions, Group, Model, SequenceOptions, Thinking,
};
use std::error::Error;
use std::io::Write;

struct Arguments {
    words: Vec<String>,
    device: String,
    chat: bool,
    greedy: bool,
}

fn arguments() -> Option<Arguments> {
    let mut parsed =
        Arguments { words: Vec::new(), device: String::new(), chat: false, greedy: false };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--chat" => parsed.chat = true,
            "--greedy" => parsed.greedy = true,
            "--device" => parsed.device = given.next()?,
            _ => parsed.words.push(argument),
        }
    }
    (parsed.words.len() == 2).then_some(parsed)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let group = Group::open(&arguments.device)?;
    let model = Model::open(&group, &arguments.words[0])?;
    let tokenizer = model.tokenizer()?;
    let mut prompt = arguments.words[1].clone();
    if arguments.chat {
        let message = ChatMessage::user(&prompt);
        let options = ChatOptions { thinking: Thinking::Off, ..Default::default() };
        prompt = tokenizer.render_chat(&[message], &options)?;
    }
    let mut engine = Engine::new(&model, &EngineOptions::default())?;
    let mut options = SequenceOptions { max_tokens: 64, ..model.sequence_options()? };
    if arguments.greedy {
        options.temperature = 0.0;
    }
    let sequence = engine.open(&options)?;
    engine.append(sequence, &tokenizer.encode(&prompt)?)?;
    let mut out = std::io::stdout().lock();
    for piece in engine.text(sequence, &mut tokenizer.decoder()?) {
        out.write_all(piece?.as_bytes())?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(())
}

fn main() {
    let outcome = match arguments() {
        Some(arguments) => run(&arguments),
        None => Err("CHECKPOINT PROMPT [--chat] [--greedy] [--device DEVICE]".into()),
    };
    if let Err(error) = outcome {
        eprintln!("generate: {error}");
        std::process::exit(1);
    }
}
