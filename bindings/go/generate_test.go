// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"mainarch.invalid/go/mainarch"
)

// The trained checkpoint through the package: the same tokens as the command's.
func TestSameTokensAsTheCommand(t *testing.T) {
	for _, c := range []struct {
		device, prompt string
		threads        uint32
		count          int
	}{
		{"cpu", prompt, 2, produced},
		{"cpu:2", prompt, 1, produced},
		{"sim:gfx950x1", "In", 1, 2}, // the GPU's instructions, interpreted: seconds a token
	} {
		t.Run(c.device, func(t *testing.T) {
			if strings.HasPrefix(c.device, "sim") && os.Getenv("MAINARCH_TEST_SIM") == "" {
				fmt.Println("# SKIPPED device sim in Go: takes minutes; set MAINARCH_TEST_SIM")
				t.Skip("MAINARCH_TEST_SIM is not set")
			}
			if group, err := mainarch.Open(c.device, nil); err == nil {
				group.Close()
			} else if errors.Is(err, mainarch.ErrNoDevice) {
				fmt.Printf("# SKIPPED device %s in Go: %v\n", c.device, err)
				t.Skip(err)
			}
			s := openOn(t, c.device, c.threads, false)
			defer s.close()
			sequence, err := s.engine.Open(&mainarch.SequenceOptions{MaxTokens: uint32(c.count)})
			ok(t, err)
			tokens, err := s.tokenizer.Encode(c.prompt)
			ok(t, err)
			ok(t, sequence.Append(tokens...))
			equal(t, run(t, background, sequence), tokensOfTheCommand(t, c.device, c.prompt, c.count))
			info, err := sequence.Info()
			ok(t, err)
			equal(t, info.Finish, mainarch.FinishMaxTokens)
			equal(t, info.Produced, uint64(c.count))
			statistics, err := s.engine.Statistics()
			ok(t, err)
			equal(t, statistics.TokensProduced, uint64(c.count))
		})
	}
}

func TestTextIsTheTokensDecoded(t *testing.T) {
	s := open(t)
	tokens := run(t, background, s.prompt(t, greedy()))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var text strings.Builder
	pieces := 0
	ok(t, s.prompt(t, greedy()).Text(ctx, s.decoder, func(piece string) bool {
		pieces++
		text.WriteString(piece)
		return true
	}))
	whole, err := s.tokenizer.Decode(tokens, true)
	ok(t, err)
	equal(t, text.String(), whole)
	isTrue(t, pieces > 10, pieces)

	// By a channel, as some programs like it.
	channel := make(chan string)
	sequence := s.prompt(t, greedy())
	go func() {
		defer close(channel)
		_ = sequence.Text(ctx, s.decoder, func(piece string) bool {
			channel <- piece
			return true
		})
	}()
	text.Reset()
	for piece := range channel {
		text.WriteString(piece)
	}
	equal(t, text.String(), whole)
}

func TestWhatIsNotGivenOutStaysToTake(t *testing.T) {
	s := open(t)
	tokens := run(t, background, s.prompt(t, greedy()))
	sequence := s.prompt(t, greedy())
	var got []uint32
	for len(got) < produced {
		ok(t, sequence.Tokens(background, func(token uint32) bool {
			got = append(got, token)
			return len(got)%3 != 0
		}))
	}
	equal(t, got, tokens)
}

func TestChatEndsItsTurn(t *testing.T) {
	s := open(t)
	messages := []mainarch.ChatMessage{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "Which book is this from? Let there be light."},
	}
	text, err := s.tokenizer.RenderChat(messages, &mainarch.ChatOptions{Thinking: mainarch.ThinkingOff})
	ok(t, err)
	isTrue(t, strings.Contains(text, "Be brief.") && strings.HasSuffix(text, "</think>\n\n"), text)
	bare, err := s.tokenizer.RenderChat(messages, &mainarch.ChatOptions{NoGenerationPrompt: true})
	ok(t, err)
	isTrue(t, strings.HasSuffix(bare, "<|im_end|>\n"), bare)
	_, err = s.tokenizer.RenderChat(nil, nil)
	contains(t, err, "at least one message")
	same, err := s.tokenizer.RenderChatJSON([]byte(`{"messages": [{"role": "system", "content": "Be brief."},
		{"role": "user", "content": "Which book is this from? Let there be light."}],
		"chat_template_kwargs": {"enable_thinking": false}}`))
	ok(t, err)
	equal(t, same, text)
	_, err = s.tokenizer.RenderChatJSON(nil)
	contains(t, err, "json")
	tokens, err := s.tokenizer.Encode(text)
	ok(t, err)
	sequence, err := s.engine.Open(&mainarch.SequenceOptions{MaxTokens: 200})
	ok(t, err)
	ok(t, sequence.Append(tokens...))
	run(t, background, sequence)
	info, err := sequence.Info()
	ok(t, err)
	equal(t, info.Finish, mainarch.FinishEnd)
}

func TestSamplingOptionsArrive(t *testing.T) {
	s := open(t)
	recommended, err := s.model.SequenceOptions()
	ok(t, err)
	equal(t, []interface{}{recommended.Temperature, recommended.TopK}, []interface{}{float32(0.6), uint32(20)})
	base := run(t, background, s.prompt(t, greedy()))
	try := func(options mainarch.SequenceOptions) ([]uint32, mainarch.Finish) {
		options.MaxTokens = produced
		sequence := s.prompt(t, &options)
		tokens := run(t, background, sequence)
		info, err := sequence.Info()
		ok(t, err)
		ok(t, sequence.Close())
		return tokens, info.Finish
	}
	hot := func(seed uint64) []uint32 {
		tokens, _ := try(mainarch.SequenceOptions{Temperature: 1.5, Seed: seed})
		return tokens
	}
	equal(t, hot(1), hot(1))
	isTrue(t, fmt.Sprint(hot(1)) != fmt.Sprint(hot(2)))
	ban := []mainarch.LogitBias{{Token: 3, Bias: 0}, {Token: base[0], Bias: float32(math.Inf(-1))}}
	tokens, _ := try(mainarch.SequenceOptions{LogitBias: ban})
	for _, token := range tokens {
		isTrue(t, token != base[0], tokens)
	}
	tokens, finish := try(mainarch.SequenceOptions{StopTokens: []uint32{base[5]}})
	equal(t, finish, mainarch.FinishStopToken)
	equal(t, tokens[len(tokens)-1], base[5])
	// The first of the two never comes.
	stops := [][]uint32{{2047, 2047, 2047}, base[6:8]}
	tokens, finish = try(mainarch.SequenceOptions{StopSequences: stops})
	equal(t, finish, mainarch.FinishStopSequence)
	equal(t, tokens[len(tokens)-2:], base[6:8])
}

func TestLogitsLogprobsAndForks(t *testing.T) {
	s := open(t)
	base := run(t, background, s.prompt(t, greedy()))
	sequence := s.prompt(t, &mainarch.SequenceOptions{MaxTokens: produced, Logprobs: 3})
	steps(t, s.engine)
	tokens := make([]uint32, 64)
	count, err := sequence.Take(tokens)
	ok(t, err)
	equal(t, tokens[:count], base)
	logprobs, err := sequence.Logprobs(1)
	ok(t, err)
	equal(t, len(logprobs), 4)
	equal(t, logprobs[0], logprobs[1])
	equal(t, logprobs[0].Token, base[1])
	isTrue(t, logprobs[1].Logprob >= logprobs[2].Logprob && logprobs[0].Logprob <= 0, logprobs)

	manual := s.prompt(t, &mainarch.SequenceOptions{Manual: true})
	steps(t, s.engine)
	fork, err := manual.Fork()
	ok(t, err)
	ok(t, fork.SetSeed(7))
	for _, sequence := range []*mainarch.Sequence{manual, fork} {
		logits, err := sequence.Logits()
		ok(t, err)
		equal(t, len(logits), 2048)
		best := 0
		for i := range logits {
			if logits[i] > logits[best] {
				best = i
			}
		}
		equal(t, uint32(best), base[0])
	}
	ok(t, fork.Truncate(2))
	info, err := fork.Info()
	ok(t, err)
	equal(t, info.Tokens, uint64(2))
}

func steps(t *testing.T, engine *mainarch.Engine) {
	for {
		worked, err := engine.Step(background)
		ok(t, err)
		if !worked {
			return
		}
	}
}

func TestInfosAndTokensOfTheTokenizer(t *testing.T) {
	s := openOn(t, "cpu:2", 1, false)
	defer s.close()
	equal(t, s.group.DeviceCount(), 2)
	device, err := s.group.DeviceInfo(1)
	ok(t, err)
	isTrue(t, device.MemoryBytes > 1<<30 && device.ISA != "", device)
	model, err := s.model.Info()
	ok(t, err)
	equal(t, []uint32{model.VocabSize, model.Experts, model.Layers}, []uint32{2048, 16, 5})
	equal(t, model.Architecture+" "+model.Formats, "qwen3_moe bf16")
	engine, err := s.engine.Info()
	ok(t, err)
	equal(t, []uint32{engine.MaxSequences, engine.MaxSequenceTokens}, []uint32{4, 256})
	info, err := s.tokenizer.Info()
	ok(t, err)
	equal(t, info, mainarch.TokenizerInfo{VocabSize: 2048, BOSToken: mainarch.NoToken, EOSToken: 2045, PadToken: 2043, HasChat: true})
	end, err := s.tokenizer.TokenID("<|im_end|>")
	ok(t, err)
	equal(t, end, uint32(2045))
	text, err := s.tokenizer.TokenText(end)
	ok(t, err)
	equal(t, text, "<|im_end|>")
	special, err := s.tokenizer.SpecialTokens()
	ok(t, err)
	equal(t, special, []uint32{2043, 2044, 2045})
	ends, err := s.model.EndTokens()
	ok(t, err)
	equal(t, ends, []uint32{2043, 2045})
	tokens, err := s.tokenizer.Encode("<|im_end|>")
	ok(t, err)
	equal(t, tokens, []uint32{end})
	tokens, err = s.tokenizer.EncodePlain("<|im_end|>")
	ok(t, err)
	isTrue(t, len(tokens) > 1, tokens)
}

// Longer than any guess of a buffer, with zeros inside, and nothing at all.
func TestTokenizerRoundTrips(t *testing.T) {
	s := open(t)
	for _, text := range []string{"", "a", strings.Repeat("\U00010348\x00é", 5000)} {
		tokens, err := s.tokenizer.Encode(text)
		ok(t, err)
		whole, err := s.tokenizer.Decode(tokens, false)
		ok(t, err)
		equal(t, whole, text)
		var pieces strings.Builder
		for _, token := range tokens {
			piece, err := s.decoder.Push(token)
			ok(t, err)
			pieces.WriteString(piece)
		}
		piece, err := s.decoder.Finish()
		ok(t, err)
		equal(t, pieces.String()+piece, text)
	}
}

// What is steered between steps: options, masks, stop strings, the ready list; and fast, and budgets.
func TestSequencesAreSteered(t *testing.T) {
	s := open(t)
	defer s.close()
	whole := run(t, background, s.prompt(t, greedy()))
	text, err := s.tokenizer.Decode(whole, true)
	ok(t, err)

	options := greedy()
	options.StopStrings = []string{"no such text", text[9:12]}
	sequence := s.prompt(t, options)
	run(t, background, sequence)
	info, err := sequence.Info()
	ok(t, err)
	equal(t, info.Finish, mainarch.FinishStopString)
	equal(t, int(info.TextBytes), strings.Index(text, text[9:12]))
	options.StopStrings = []string{"a\x00b"}
	contains(t, sequence.SetOptions(options), "StopStrings")
	ok(t, sequence.Close())

	sequence = s.prompt(t, greedy())
	words := make([]uint32, 1000/32+1)
	words[1000/32] = 1 << (1000 % 32)
	ok(t, sequence.SetMask(words))
	for {
		ready, err := s.engine.Ready()
		ok(t, err)
		if len(ready) == 1 && ready[0].Is(sequence) {
			break
		}
		_, err = s.engine.Step(background)
		ok(t, err)
	}
	var token [1]uint32
	_, err = sequence.Take(token[:])
	ok(t, err)
	equal(t, token[0], uint32(1000))
	wrong := greedy()
	wrong.Manual = true
	contains(t, sequence.SetOptions(wrong), "manual")
	ok(t, sequence.SetOptions(&mainarch.SequenceOptions{MaxTokens: 2}))
	equal(t, len(run(t, background, sequence)), 1)
	ok(t, sequence.Close())

	engine, err := s.model.NewEngine(&mainarch.EngineOptions{Fast: true, MaxSequenceTokens: 64})
	ok(t, err)
	made, err := engine.Info()
	ok(t, err)
	engine.Close()
	_, err = s.model.NewEngine(&mainarch.EngineOptions{MaxSequenceTokens: 64, MemoryBytes: 1})
	isTrue(t, errors.Is(err, mainarch.ErrOutOfDeviceMemory), err)
	engine, err = s.model.NewEngine(&mainarch.EngineOptions{Fast: true, MaxSequenceTokens: 64, MemoryBytes: made.MemoryBytes})
	ok(t, err)
	engine.Close()

	sequence = s.prompt(t, greedy())
	_, err = s.engine.Step(background)
	ok(t, err)
	bytes, err := sequence.Export()
	ok(t, err)
	copied, err := s.engine.Import(bytes)
	ok(t, err)
	equal(t, run(t, background, copied), run(t, background, sequence))
	ok(t, copied.Close())
	ok(t, sequence.Close())
	sequence = s.prompt(t, greedy())
	_, err = s.engine.Step(background)
	ok(t, err)
	bytes, err = sequence.ExportKV()
	ok(t, err)
	copied, err = s.engine.Import(bytes)
	ok(t, err)
	held, err := copied.Info()
	ok(t, err)
	equal(t, held.Position, held.Tokens-1)
	equal(t, run(t, background, copied), run(t, background, sequence))
	_, err = s.engine.Import(bytes[:len(bytes)-1])
	contains(t, err, "length")
	_, err = s.engine.Import(nil)
	contains(t, err, "size 0")

	engine, err = s.model.NewEngine(&mainarch.EngineOptions{LogitRows: 64})
	ok(t, err)
	defer engine.Close()
	made, err = engine.Info()
	ok(t, err)
	equal(t, made.LogitRows, uint32(64))
	all := greedy()
	all.PromptLogprobs, all.AllLogits = 3, true
	sequence, err = engine.Open(all)
	ok(t, err)
	ok(t, sequence.Append(7, 8, 9, 10))
	_, err = sequence.PromptLogprobs(2)
	isTrue(t, errors.Is(err, mainarch.ErrBusy), err)
	_, err = engine.Step(background)
	ok(t, err)
	info, err = sequence.Info()
	ok(t, err)
	isTrue(t, info.LogitPosition == 0 && info.LogitRows == 4, info)
	for position := uint64(1); position < 4; position++ {
		logits, err := sequence.LogitsAt(position - 1)
		ok(t, err)
		scored, err := sequence.PromptLogprobs(position)
		ok(t, err)
		sum := 0.0
		for _, logit := range logits {
			sum += math.Exp(float64(logit))
		}
		own := float64(logits[7+position]) - math.Log(sum)
		isTrue(t, len(scored) == 4 && uint64(scored[0].Token) == 7+position, scored)
		isTrue(t, math.Abs(float64(scored[0].Logprob)-own) < 1e-4, scored[0], own)
	}
	_, err = sequence.LogitsAt(4)
	contains(t, err, "position 4")

	engine, err = s.model.NewEngine(&mainarch.EngineOptions{KVTokens: 256, MaxSequenceTokens: 128})
	ok(t, err)
	defer engine.Close()
	var prompt []uint32
	for token := uint32(300); token < 340; token++ {
		prompt = append(prompt, token)
	}
	one := greedy()
	one.MaxTokens, one.PrefixSalt = 1, 3
	for _, rows := range []uint64{40, 8} {
		before, err := engine.Statistics()
		ok(t, err)
		sequence, err = engine.Open(one)
		ok(t, err)
		ok(t, sequence.Append(prompt...))
		run(t, background, sequence)
		ok(t, sequence.Close())
		after, err := engine.Statistics()
		ok(t, err)
		equal(t, after.TokensRun-before.TokensRun, rows)
	}
	statistics, err := engine.Statistics()
	ok(t, err)
	isTrue(t, statistics.PrefixHits == 1 && statistics.PrefixTokens == 32 && statistics.PrefixHeld == 32, statistics)
	pinned, err := engine.PinPrefix(3, prompt...)
	ok(t, err)
	equal(t, pinned, 32)
	ok(t, engine.DropPrefix(3))
	statistics, err = engine.Statistics()
	ok(t, err)
	isTrue(t, statistics.PrefixHeld == 0 && statistics.KVTokensFree == 256, statistics)

	drafted, err := s.model.NewEngine(&mainarch.EngineOptions{MaxSequenceTokens: 64, Drafts: mainarch.DraftsAuto, MaxDrafts: 2})
	ok(t, err)
	defer drafted.Close()
	made, err = drafted.Info()
	ok(t, err)
	isTrue(t, made.Drafts == mainarch.DraftsNgram && made.MaxDrafts == 2, made)
	repeats, err := drafted.Open(&mainarch.SequenceOptions{MaxTokens: 12})
	ok(t, err)
	ok(t, repeats.Append(7, 8, 7, 8, 7, 8))
	run(t, background, repeats)
	statistics, err = drafted.Statistics()
	ok(t, err)
	isTrue(t, statistics.Drafts > 0 && statistics.DraftsAccepted <= statistics.Drafts, statistics)
	equal(t, statistics.DraftsAt[0]+statistics.DraftsAt[1], statistics.Drafts)
	equal(t, statistics.DraftsAcceptedAt[0]+statistics.DraftsAcceptedAt[1], statistics.DraftsAccepted)
	_, err = s.model.NewEngine(&mainarch.EngineOptions{MaxSequenceTokens: 64, Drafts: mainarch.DraftsHead})
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)

	devices, err := mainarch.Devices()
	ok(t, err)
	isTrue(t, len(devices) > 0 && devices[0].Device == "cpu" && devices[0].Unusable == "", devices)
}
