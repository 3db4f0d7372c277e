// SPDX-License-Identifier: MIT
//! Vectors of texts: the command's, to the last digit that it prints.

mod common;
use common::*;
use mainarch::*;
use std::process::Command;

const TEXTS: [&str; 3] = ["In the beginning", "And God said, Let there be light", "sea"];

fn engine() -> (Model, Engine, Vec<Vec<u32>>) {
    let options = GroupOptions { threads: 1, ignore_environment: true, ..Default::default() };
    let group = Group::open_with("cpu", options).unwrap();
    let options = ModelOptions { embed: true, ..Default::default() };
    let model = Model::open_with(&group, checkpoint(), options).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let engine = Engine::new(&model, &engine_options()).unwrap();
    let texts = TEXTS.iter().map(|text| tokenizer.encode_around(text).unwrap()).collect();
    (model, engine, texts)
}

#[test]
fn vectors_are_those_of_the_command() {
    let command = match std::env::var_os("MAINARCH_CLI") {
        Some(command) => command,
        None => return println!("# SKIPPED vectors against the command: MAINARCH_CLI is not set"),
    };
    let output = Command::new(command)
        .args([
            "embed",
            "--json",
            "--threads",
            "1",
            "--device",
            "cpu",
            "--pooling",
            "mean",
            "--model",
        ])
        .arg(checkpoint())
        .args(TEXTS)
        .output()
        .unwrap();
    let json = String::from_utf8(output.stdout).unwrap();
    let (_, mut engine, texts) = engine();
    let options = EmbedOptions { pooling: Pooling::Mean, ..Default::default() };
    let vectors = engine.embed(&texts, &options).unwrap();
    assert_eq!(vectors.len(), TEXTS.len());
    for (vector, part) in vectors.iter().zip(json.split("\"vector\":").skip(1)) {
        let list = part.trim_start().trim_start_matches('[').split(']').next().unwrap();
        let wanted: Vec<f32> = list.split(',').map(|x| x.trim().parse().unwrap()).collect();
        assert_eq!(wanted.len(), 128);
        for (x, y) in vector.iter().zip(&wanted) {
            assert!((x - y).abs() < 1e-7, "{x} is not {y}");
        }
    }
}

#[test]
fn options_and_what_is_refused() {
    let (model, mut engine, texts) = engine();
    let whole = engine.embed(&texts, &EmbedOptions::default()).unwrap();
    assert!(whole.iter().all(|v| (v.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5));
    let few = EmbedOptions { dimensions: 16, ..Default::default() };
    assert!(engine.embed(&texts, &few).unwrap().iter().all(|v| v.len() == 16));
    let raw = EmbedOptions { normalize: Some(false), ..Default::default() };
    assert_ne!(engine.embed(&texts, &raw).unwrap(), whole);
    assert!(engine.embed::<Vec<u32>>(&[], &raw).unwrap().is_empty());
    let error = engine.embed(&[vec![5], vec![]], &raw).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("text 1"), "{error}");
    let many = EmbedOptions { dimensions: 129, ..Default::default() };
    assert_eq!(engine.embed(&texts, &many).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let info = model.embed_info().unwrap();
    assert_eq!((info.dimensions, info.pooling), (128, Pooling::Last));
    assert!(info.normalize && !info.stated && info.default_prompt.is_empty());
    assert_eq!(model.embed_prompt(None).unwrap(), "");
    assert_eq!(model.embed_prompt(Some("query")).unwrap_err().kind(), ErrorKind::NotFound);
    let mut generates = open("cpu").unwrap();
    let refused = generates.engine.embed(&texts, &EmbedOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}
