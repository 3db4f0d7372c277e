// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"testing"

	"mainarch.invalid/go/mainarch"
)

var embedded = []string{"In the beginning", "And God said, Let there be light", "sea"}

func openToEmbed(t *testing.T) (*mainarch.Model, *mainarch.Engine, [][]uint32) {
	t.Helper()
	group, err := mainarch.Open("cpu", &mainarch.GroupOptions{Threads: 1, IgnoreEnvironment: true})
	ok(t, err)
	model, err := group.OpenModel(background, checkpoint(), &mainarch.ModelOptions{Embed: true})
	ok(t, err)
	tokenizer, err := model.Tokenizer()
	ok(t, err)
	engine, err := model.NewEngine(engineOptions)
	ok(t, err)
	t.Cleanup(func() {
		engine.Close()
		tokenizer.Close()
		model.Close()
		group.Close()
	})
	var texts [][]uint32
	for _, text := range embedded {
		tokens, err := tokenizer.EncodeFlags(text, mainarch.EncodeAddSpecial)
		ok(t, err)
		texts = append(texts, tokens)
	}
	return model, engine, texts
}

// The vectors that the command prints.
func TestVectorsOfTheCommand(t *testing.T) {
	command := os.Getenv("MAINARCH_CLI")
	if command == "" {
		t.Skip("MAINARCH_CLI is not set")
	}
	words := []string{"embed", "--json", "--threads", "1", "--device", "cpu", "--pooling", "mean", "--model", checkpoint()}
	out, err := exec.Command(command, append(words, embedded...)...).Output()
	ok(t, err)
	var written struct{ Texts []struct{ Vector []float64 } }
	ok(t, json.Unmarshal(out, &written))
	_, engine, texts := openToEmbed(t)
	vectors, err := engine.Embed(background, texts, &mainarch.EmbedOptions{Pooling: mainarch.PoolingMean})
	ok(t, err)
	equal(t, len(vectors), len(written.Texts))
	for i, vector := range vectors {
		equal(t, len(vector), 128)
		for j, x := range vector {
			isTrue(t, math.Abs(float64(x)-written.Texts[i].Vector[j]) < 1e-7, i, j, x, written.Texts[i].Vector[j])
		}
	}
}

func TestEmbedOptionsAndRefusals(t *testing.T) {
	model, engine, texts := openToEmbed(t)
	whole, err := engine.Embed(background, texts, nil)
	ok(t, err)
	for _, vector := range whole {
		var squares float64
		for _, x := range vector {
			squares += float64(x) * float64(x)
		}
		isTrue(t, math.Abs(squares-1) < 1e-5, squares)
	}
	few, err := engine.Embed(background, texts, &mainarch.EmbedOptions{Dimensions: 16})
	ok(t, err)
	equal(t, len(few[2]), 16)
	none, err := engine.Embed(background, nil, nil)
	ok(t, err)
	equal(t, len(none), 0)
	_, err = engine.Embed(background, [][]uint32{{5}, {}}, nil)
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
	_, err = engine.Embed(background, texts, &mainarch.EmbedOptions{Dimensions: 129})
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
	ended, end := context.WithCancel(background)
	end()
	_, err = engine.Embed(ended, texts, nil)
	isTrue(t, errors.Is(err, mainarch.ErrCancelled) && errors.Is(err, context.Canceled), err)
	info, err := model.EmbedInfo()
	ok(t, err)
	equal(t, info, mainarch.EmbedInfo{Dimensions: 128, Pooling: mainarch.PoolingLast, Normalize: true, IncludePrompt: true})
	prompt, err := model.EmbedPrompt("")
	ok(t, err)
	equal(t, prompt, "")
	_, err = model.EmbedPrompt("query")
	isTrue(t, errors.Is(err, mainarch.ErrNotFound), err)
	_, err = open(t).engine.Embed(background, texts, nil)
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
}
