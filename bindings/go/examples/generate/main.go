// SPDX-License-Identifier: MIT

// Text after a prompt, or the answer to a message, as it comes:
//
//	go run ./examples/generate [-chat] [-greedy] [-device DEVICE] CHECKPOINT PROMPT
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"mainarch.invalid/go/mainarch"
)

var (
	device = flag.String("device", "", `"cpu", "cpu:2", ...; by default chosen`)
	chat   = flag.Bool("chat", false, "the prompt is a user's message")
	greedy = flag.Bool("greedy", false, "always the likeliest token")
)

// prepare gives the prompt's tokens, and a decoder for what comes.
func prepare(model *mainarch.Model, prompt string) ([]uint32, *mainarch.Decoder, error) {
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	defer tokenizer.Close() // the decoder keeps what it needs
	if *chat {
		messages := []mainarch.ChatMessage{{Role: "user", Content: prompt}}
		options := mainarch.ChatOptions{Thinking: mainarch.ThinkingOff}
		if prompt, err = tokenizer.RenderChat(messages, &options); err != nil {
			return nil, nil, err
		}
	}
	tokens, err := tokenizer.Encode(prompt)
	if err != nil {
		return nil, nil, err
	}
	decoder, err := tokenizer.NewDecoder(true)
	return tokens, decoder, err
}

func generate(ctx context.Context, checkpoint, prompt string) error {
	group, err := mainarch.Open(*device, nil)
	if err != nil {
		return err
	}
	defer group.Close()
	model, err := group.OpenModel(ctx, checkpoint, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	tokens, decoder, err := prepare(model, prompt)
	if err != nil {
		return err
	}
	defer decoder.Close()
	engine, err := model.NewEngine(nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	options, err := model.SequenceOptions()
	if err != nil {
		return err
	}
	options.MaxTokens = 64
	if *greedy {
		options.Temperature = 0
	}
	sequence, err := engine.Open(&options)
	if err != nil {
		return err
	}
	if err := sequence.Append(tokens...); err != nil {
		return err
	}
	defer fmt.Println()
	return sequence.Text(ctx, decoder, func(piece string) bool {
		_, err := os.Stdout.WriteString(piece)
		return err == nil
	})
}

func main() {
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate [-chat] [-greedy] [-device DEVICE] CHECKPOINT PROMPT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := generate(ctx, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
