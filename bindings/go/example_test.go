// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"mainarch.invalid/go/mainarch"
)

// An answer to a message, as it comes, for a minute at most.
func ExampleSequence_Text() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group, err := mainarch.Open("cpu", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	model, err := group.OpenModel(ctx, checkpoint(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	tokenizer, err := model.Tokenizer()
	if err != nil {
		log.Fatal(err)
	}
	defer tokenizer.Close()
	decoder, err := tokenizer.NewDecoder(true)
	if err != nil {
		log.Fatal(err)
	}
	defer decoder.Close()
	engine, err := model.NewEngine(&mainarch.EngineOptions{MaxSequenceTokens: 1024})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	messages := []mainarch.ChatMessage{{Role: "user", Content: "Let there be light?"}}
	options := mainarch.ChatOptions{Thinking: mainarch.ThinkingOff}
	prompt, err := tokenizer.RenderChat(messages, &options)
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := tokenizer.Encode(prompt)
	if err != nil {
		log.Fatal(err)
	}
	sequence, err := engine.Open(&mainarch.SequenceOptions{MaxTokens: 64})
	if err != nil {
		log.Fatal(err)
	}
	if err := sequence.Append(tokens...); err != nil {
		log.Fatal(err)
	}
	words := 0
	err = sequence.Text(ctx, decoder, func(piece string) bool {
		words++ // fmt.Print(piece)
		return true
	})
	fmt.Println(words > 1, err)
	// Output: true <nil>
}
