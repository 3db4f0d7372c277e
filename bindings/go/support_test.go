// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"mainarch.invalid/go/mainarch"
)

const (
	prompt   = "And God said, Let there be"
	produced = 24
)

var background = context.Background()

// The trained checkpoint of the repository.
func checkpoint() string {
	root := os.Getenv("MAINARCH_SOURCE_ROOT")
	if root == "" {
		root = "../.."
	}
	return filepath.Join(root, "tests/golden/trained")
}

// What the command writes after a prompt.
func tokensOfTheCommand(t *testing.T, device, prompt string, count int) []uint32 {
	command := os.Getenv("MAINARCH_CLI")
	if command == "" {
		t.Skip("MAINARCH_CLI is not set")
	}
	out, err := exec.Command(command, "generate", "--greedy", "--json", "--max-tokens",
		strconv.Itoa(count), "--threads", "1", "--device", device, "--model", checkpoint(), prompt).Output()
	ok(t, err)
	var written struct{ Tokens []uint32 }
	ok(t, json.Unmarshal(out, &written))
	return written.Tokens
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t testing.TB, got, want interface{}) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, not %v", got, want)
	}
}

func isTrue(t testing.TB, condition bool, what ...interface{}) {
	t.Helper()
	if !condition {
		t.Fatal(what...)
	}
}

type stack struct {
	group     *mainarch.Group
	model     *mainarch.Model
	tokenizer *mainarch.Tokenizer
	decoder   *mainarch.Decoder
	engine    *mainarch.Engine
}

var engineOptions = &mainarch.EngineOptions{MaxSequences: 4, MaxSequenceTokens: 256}

func openOn(t testing.TB, device string, threads uint32, inPlace bool) *stack {
	t.Helper()
	var s stack
	var err error
	s.group, err = mainarch.Open(device, &mainarch.GroupOptions{Threads: threads, IgnoreEnvironment: true})
	ok(t, err)
	s.model, err = s.group.OpenModel(background, checkpoint(), &mainarch.ModelOptions{InPlace: inPlace})
	ok(t, err)
	s.tokenizer, err = s.model.Tokenizer()
	ok(t, err)
	s.decoder, err = s.tokenizer.NewDecoder(true)
	ok(t, err)
	s.engine, err = s.model.NewEngine(engineOptions)
	ok(t, err)
	return &s
}

// One thread: on a crowded machine two wait for each other at every phase of a step.
func open(t testing.TB) *stack {
	s := openOn(t, "cpu", 1, false)
	t.Cleanup(s.close)
	return s
}

func (s *stack) close() {
	s.engine.Close()
	s.decoder.Close()
	s.tokenizer.Close()
	s.model.Close()
	s.group.Close()
}

func greedy() *mainarch.SequenceOptions {
	return &mainarch.SequenceOptions{MaxTokens: produced}
}

// A sequence with the prompt.
func (s *stack) prompt(t testing.TB, options *mainarch.SequenceOptions) *mainarch.Sequence {
	t.Helper()
	sequence, err := s.engine.Open(options)
	ok(t, err)
	tokens, err := s.tokenizer.Encode(prompt)
	ok(t, err)
	ok(t, sequence.Append(tokens...))
	return sequence
}

func run(t testing.TB, ctx context.Context, sequence *mainarch.Sequence) (tokens []uint32) {
	t.Helper()
	ok(t, sequence.Tokens(ctx, func(token uint32) bool {
		tokens = append(tokens, token)
		return true
	}))
	return tokens
}
