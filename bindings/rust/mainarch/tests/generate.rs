// SPDX-License-Identifier: MIT
//! The trained checkpoint through the safe crate: the same tokens as the command's.

mod common;
use common::*;
use mainarch::*;

fn same_as_the_command(device: &str, threads: u32, prompt: &str, count: u32) {
    let mut stack = match open_with(device, threads) {
        Err(error) if error.kind() == ErrorKind::NoDevice => {
            return println!("# SKIPPED device {device} in Rust: {error}");
        }
        stack => stack.unwrap(),
    };
    let expected = match tokens_of_the_command(device, prompt, count) {
        Some(tokens) => tokens,
        None => return println!("# SKIPPED {device} against the command: MAINARCH_CLI is not set"),
    };
    let options = SequenceOptions { max_tokens: count, ..Default::default() };
    let sequence = stack.engine.open(&options).unwrap();
    stack.engine.append(sequence, &stack.tokenizer.encode(prompt).unwrap()).unwrap();
    let tokens = stack.run(sequence).unwrap();
    assert_eq!(tokens, expected);
    assert_eq!(tokens.len(), count as usize);
    let info = stack.engine.sequence_info(sequence).unwrap();
    assert_eq!(info.finish, Some(Finish::MaxTokens));
    assert_eq!((info.produced, info.untaken), (u64::from(count), 0));
    assert_eq!(stack.engine.statistics().unwrap().tokens_produced, u64::from(count));
}

#[test]
fn the_cpu_writes_what_the_command_writes() {
    same_as_the_command("cpu", 2, PROMPT, PRODUCED);
}

#[test]
fn two_ranks_write_what_the_command_writes() {
    same_as_the_command("cpu:2", 1, PROMPT, PRODUCED);
}

/// The instructions of the GPU, interpreted: seconds a token, minutes on a crowded machine.
#[test]
fn the_virtual_node_writes_what_the_command_writes() {
    if std::env::var_os("MAINARCH_TEST_SIM").is_none() {
        return println!("# SKIPPED device sim in Rust: takes minutes; set MAINARCH_TEST_SIM");
    }
    same_as_the_command("sim:gfx950x1", 1, "In", 2);
}

#[test]
fn text_is_the_tokens_decoded() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let tokens = stack.run(sequence).unwrap();
    stack.engine.truncate(sequence, stack.tokenizer.encode(PROMPT).unwrap().len() as u64).unwrap();
    // The token before the cut runs again, and the count starts anew with the next append.
    let again = stack.prompt(&greedy()).unwrap();
    let mut decoder = stack.tokenizer.decoder().unwrap();
    let pieces: Vec<String> =
        stack.engine.text(again, &mut decoder).collect::<Result<_>>().unwrap();
    assert!(pieces.len() > 10 && pieces.iter().all(|piece| !piece.is_empty()));
    assert_eq!(pieces.concat(), stack.tokenizer.decode_skipping_special(&tokens).unwrap());
}

#[test]
fn a_chat_ends_its_turn() {
    let mut stack = open("cpu").unwrap();
    let messages = [
        ChatMessage::system("Be brief."),
        ChatMessage::user("Which book is this from? Let there be light."),
    ];
    let options = ChatOptions { thinking: Thinking::Off, ..Default::default() };
    let prompt = stack.tokenizer.render_chat(&messages, &options).unwrap();
    assert!(prompt.contains("Be brief.") && prompt.ends_with("</think>\n\n"), "{prompt}");
    let bare = ChatOptions { no_generation_prompt: true, ..Default::default() };
    let bare = stack.tokenizer.render_chat(&messages, &bare).unwrap();
    assert!(bare.ends_with("<|im_end|>\n"), "{bare}");
    let json = r#"{"messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which book is this from? Let there be light."}],
        "chat_template_kwargs": {"enable_thinking": false}}"#;
    assert_eq!(stack.tokenizer.render_chat_json(json).unwrap(), prompt);
    let error = stack.tokenizer.render_chat_json("{}").unwrap_err();
    assert!(error.to_string().contains("messages is missing"), "{error}");
    let limit = SequenceOptions { max_tokens: 200, ..Default::default() };
    let sequence = stack.engine.open(&limit).unwrap();
    stack.engine.append(sequence, &stack.tokenizer.encode(&prompt).unwrap()).unwrap();
    let tokens = stack.run(sequence).unwrap();
    assert_eq!(stack.engine.sequence_info(sequence).unwrap().finish, Some(Finish::End));
    let ends = stack.model.end_tokens().unwrap();
    assert!(ends.contains(tokens.last().unwrap()), "{ends:?} {tokens:?}");
}

#[test]
fn sampling_options_arrive() {
    let mut stack = open("cpu").unwrap();
    let recommended = stack.model.sequence_options().unwrap();
    assert_eq!((recommended.temperature, recommended.top_k), (0.6, 20));
    let sequence = stack.prompt(&greedy()).unwrap();
    let base = stack.run(sequence).unwrap();

    let mut run = |options: SequenceOptions| {
        let sequence = stack.prompt(&SequenceOptions { max_tokens: PRODUCED, ..options }).unwrap();
        let tokens = stack.run(sequence).unwrap();
        let finish = stack.engine.sequence_info(sequence).unwrap().finish;
        stack.engine.close(sequence).unwrap();
        (tokens, finish.unwrap())
    };
    let hot = |seed| SequenceOptions { temperature: 1.5, seed, ..Default::default() };
    assert_eq!(run(hot(1)), run(hot(1)));
    assert_ne!(run(hot(1)).0, run(hot(2)).0);
    let banned = vec![(base[0], f32::NEG_INFINITY)];
    let (tokens, _) = run(SequenceOptions { logit_bias: banned, ..Default::default() });
    assert!(!tokens.contains(&base[0]));
    let first = |token| base.iter().position(|&t| t == token).unwrap();
    let (tokens, finish) =
        run(SequenceOptions { stop_tokens: vec![base[5]], ..Default::default() });
    assert_eq!((tokens.len(), finish), (first(base[5]) + 1, Finish::StopToken));
    // The first of the two never comes.
    let stop_sequences = vec![vec![2047, 2047, 2047], base[6..8].to_vec()];
    let (tokens, finish) = run(SequenceOptions { stop_sequences, ..Default::default() });
    assert_eq!((&tokens[tokens.len() - 2..], finish), (&base[6..8], Finish::StopSequence));
}

#[test]
fn logits_logprobs_and_forks() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let base = stack.run(sequence).unwrap();
    let options = SequenceOptions { logprobs: 3, ..greedy() };
    let sequence = stack.prompt(&options).unwrap();
    while stack.engine.step().unwrap() {}
    let mut tokens = [0; 64];
    let count = stack.engine.take(sequence, &mut tokens).unwrap();
    assert_eq!(tokens[..count], base[..]);
    let logprobs = stack.engine.logprobs(sequence, 1).unwrap();
    assert_eq!(logprobs.len(), 4);
    assert_eq!((logprobs[0].token, logprobs[1]), (base[1], logprobs[0]));
    assert!(logprobs[1].logprob >= logprobs[2].logprob && logprobs[0].logprob <= 0.0);

    let manual = SequenceOptions { manual: true, ..Default::default() };
    let sequence = stack.prompt(&manual).unwrap();
    while stack.engine.step().unwrap() {}
    let fork = stack.engine.fork(sequence).unwrap();
    let vocabulary = stack.model.info().unwrap().vocab_size as usize;
    for sequence in [sequence, fork] {
        let logits = stack.engine.logits(sequence).unwrap();
        assert_eq!(logits.len(), vocabulary);
        let best = (0..vocabulary).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        assert_eq!(best as u32, base[0]);
    }
    stack.engine.set_seed(fork, 7).unwrap();
}

#[test]
fn infos_and_tokens_of_the_tokenizer() {
    let stack = open("cpu:2").unwrap();
    assert_eq!(stack.group.device_count(), 2);
    let device = stack.group.device_info(1).unwrap();
    assert!(device.memory_bytes > 1 << 30 && !device.isa.is_empty(), "{device:?}");
    let model = stack.model.info().unwrap();
    assert_eq!((model.vocab_size, model.experts, model.layers), (2048, 16, 5));
    assert_eq!((model.architecture.as_str(), model.formats.as_str()), ("qwen3_moe", "bf16"));
    let engine = stack.engine.info().unwrap();
    assert_eq!((engine.max_sequences, engine.max_sequence_tokens), (4, 256));
    let tokenizer = stack.tokenizer.info().unwrap();
    assert_eq!((tokenizer.eos_token, tokenizer.bos_token), (Some(2045), None));
    assert!(tokenizer.has_chat);

    let end = stack.tokenizer.token_id("<|im_end|>").unwrap();
    assert_eq!(end, 2045);
    assert_eq!(stack.tokenizer.token_bytes(end).unwrap(), b"<|im_end|>");
    assert_eq!(stack.tokenizer.special_tokens().unwrap(), [2043, 2044, 2045]);
    assert_eq!(stack.tokenizer.encode("<|im_end|>").unwrap(), [end]);
    assert!(stack.tokenizer.encode_plain("<|im_end|>").unwrap().len() > 1);
    // Longer than any guess of a buffer, and with a zero inside.
    let text = "\u{10348}\0é".repeat(5000);
    let tokens = stack.tokenizer.encode(&text).unwrap();
    assert_eq!(stack.tokenizer.decode(&tokens).unwrap(), text);
    let mut decoder = stack.tokenizer.decoder_with(0).unwrap();
    let mut whole = String::new();
    for token in &tokens {
        whole += &decoder.push(&[*token]).unwrap();
    }
    whole += &decoder.finish().unwrap();
    assert_eq!(whole, text);
    decoder.push(&tokens[..1]).unwrap();
    assert!(decoder.finish().unwrap().len() <= 3);
}

/// What is steered between steps: options, masks, stop strings, the ready list; and budgets.
#[test]
fn sequences_are_steered() {
    let mut stack = open("cpu").unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    let tokens = stack.run(sequence).unwrap();
    let text = stack.tokenizer.decode_skipping_special(&tokens).unwrap();
    let stop = text[9..12].to_string();
    let options =
        SequenceOptions { stop_strings: vec!["no such text".into(), stop.clone()], ..greedy() };
    let sequence = stack.prompt(&options).unwrap();
    stack.run(sequence).unwrap();
    let info = stack.engine.sequence_info(sequence).unwrap();
    assert_eq!(info.finish, Some(Finish::StopString));
    assert_eq!(info.text_bytes as usize, text.find(&stop).unwrap());
    let zero = SequenceOptions { stop_strings: vec!["a\0b".into()], ..greedy() };
    assert_eq!(
        stack.engine.set_options(sequence, &zero).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    stack.engine.close(sequence).unwrap();

    let sequence = stack.prompt(&greedy()).unwrap();
    let mut words = vec![0; 1000 / 32 + 1];
    words[1000 / 32] = 1 << (1000 % 32);
    stack.engine.set_mask(sequence, &words).unwrap();
    while !stack.engine.ready().unwrap().contains(&sequence) {
        stack.engine.step().unwrap();
    }
    let mut token = [0];
    assert_eq!(stack.engine.take(sequence, &mut token).unwrap(), 1);
    assert_eq!(token[0], 1000);
    assert!(!stack.engine.ready().unwrap().contains(&sequence));
    let manual = SequenceOptions { manual: true, ..greedy() };
    assert!(stack.engine.set_options(sequence, &manual).is_err());
    stack.engine.set_options(sequence, &SequenceOptions { max_tokens: 2, ..greedy() }).unwrap();
    assert_eq!(stack.run(sequence).unwrap().len(), 1);

    let sequence = stack.prompt(&greedy()).unwrap();
    stack.engine.step().unwrap();
    let bytes = stack.engine.export(sequence).unwrap();
    let copy = stack.engine.import(&bytes).unwrap();
    assert_eq!(stack.run(copy).unwrap(), stack.run(sequence).unwrap());
    stack.engine.close(copy).unwrap();
    stack.engine.close(sequence).unwrap();
    let sequence = stack.prompt(&greedy()).unwrap();
    stack.engine.step().unwrap();
    let bytes = stack.engine.export_with_kv(sequence).unwrap();
    let copy = stack.engine.import(&bytes).unwrap();
    let held = stack.engine.sequence_info(copy).unwrap();
    assert_eq!(held.position, held.tokens - 1);
    assert_eq!(stack.run(copy).unwrap(), stack.run(sequence).unwrap());
    let short = stack.engine.import(&bytes[1..]).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::InvalidArgument);

    let fast = EngineOptions { fast: true, max_sequence_tokens: 64, ..Default::default() };
    let made = Engine::new(&stack.model, &fast).unwrap().info().unwrap();
    let little = EngineOptions { memory_bytes: 1, ..fast };
    let refused = Engine::new(&stack.model, &little).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfDeviceMemory);
    let enough = EngineOptions { memory_bytes: made.memory_bytes, ..fast };
    assert_eq!(Engine::new(&stack.model, &enough).unwrap().info().unwrap(), made);

    let all = SequenceOptions { prompt_logprobs: 3, all_logits: true, ..greedy() };
    let rows = EngineOptions { logit_rows: 64, ..Default::default() };
    let mut engine = Engine::new(&stack.model, &rows).unwrap();
    assert_eq!(engine.info().unwrap().logit_rows, 64);
    let sequence = engine.open(&all).unwrap();
    engine.append(sequence, &[7, 8, 9, 10]).unwrap();
    let early = engine.prompt_logprobs(sequence, 2).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Busy);
    engine.step().unwrap();
    assert_eq!(engine.sequence_info(sequence).unwrap().logits, 0..4);
    for position in 1..4 {
        let logits = engine.logits_at(sequence, position - 1).unwrap();
        let scored = engine.prompt_logprobs(sequence, position).unwrap();
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let own = f64::from(logits[7 + position as usize]) - sum.ln();
        assert_eq!((scored.len(), u64::from(scored[0].token)), (4, 7 + position));
        assert!((f64::from(scored[0].logprob) - own).abs() < 1e-4, "{scored:?}, {own}");
    }
    assert_eq!(engine.logits_at(sequence, 3).unwrap(), engine.logits(sequence).unwrap());
    assert!(engine.logits_at(sequence, 4).is_err() && engine.prompt_logprobs(sequence, 4).is_err());

    let prefixes = EngineOptions { kv_tokens: 256, max_sequence_tokens: 128, ..Default::default() };
    let mut engine = Engine::new(&stack.model, &prefixes).unwrap();
    let prompt: Vec<u32> = (300..340).collect();
    for rows in [40, 8] {
        let before = engine.statistics().unwrap().tokens_run;
        let one = SequenceOptions { max_tokens: 1, prefix_salt: 3, ..greedy() };
        let sequence = engine.open(&one).unwrap();
        engine.append(sequence, &prompt).unwrap();
        while engine.step().unwrap() {}
        engine.close(sequence).unwrap();
        assert_eq!(engine.statistics().unwrap().tokens_run - before, rows);
    }
    let statistics = engine.statistics().unwrap();
    assert_eq!((statistics.prefix_hits, statistics.prefix_tokens), (1, 32));
    assert_eq!((statistics.prefix_held, statistics.prefix_evictions), (32, 0));
    assert_eq!(engine.pin_prefix(&prompt, 0).unwrap(), 0);
    assert_eq!(engine.pin_prefix(&prompt, 3).unwrap(), 32);
    assert_eq!(engine.statistics().unwrap().kv_tokens_free, 224);
    engine.drop_prefix(&[], 0).unwrap();
    assert_eq!(engine.statistics().unwrap().prefix_held, 0);

    let drafted = EngineOptions { drafts: Drafts::Auto, max_drafts: 2, ..engine_options() };
    let mut engine = Engine::new(&stack.model, &drafted).unwrap();
    let info = engine.info().unwrap();
    assert_eq!((info.drafts, info.max_drafts), (Drafts::Ngram, 2));
    let sequence = engine.open(&greedy()).unwrap();
    engine.append(sequence, &[7, 8, 7, 8, 7, 8]).unwrap();
    while engine.step().unwrap() {}
    let statistics = engine.statistics().unwrap();
    assert!(statistics.drafts > 0 && statistics.drafts_accepted <= statistics.drafts);
    assert_eq!(statistics.drafts_at.iter().sum::<u64>(), statistics.drafts);
    assert_eq!(statistics.drafts_accepted_at.iter().sum::<u64>(), statistics.drafts_accepted);
    let head = EngineOptions { drafts: Drafts::Head, ..engine_options() };
    let none = Engine::new(&stack.model, &head).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidArgument);

    let devices = devices().unwrap();
    assert_eq!((devices[0].device.as_str(), &devices[0].unusable), ("cpu", &None));
}
