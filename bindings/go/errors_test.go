// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"mainarch.invalid/go/mainarch"
)

func contains(t *testing.T, err error, word string) {
	t.Helper()
	isTrue(t, err != nil && strings.Contains(err.Error(), word), err)
}

func TestErrorsHaveStatusErrnoAndMessage(t *testing.T) {
	group, err := mainarch.Open("cpu", nil)
	ok(t, err)
	defer group.Close()
	_, err = group.OpenModel(background, "/nonexistent/model", nil)
	var e *mainarch.Error
	isTrue(t, errors.As(err, &e), err)
	equal(t, e.Status, mainarch.ErrNotFound)
	equal(t, e.Errno, syscall.ENOENT)
	equal(t, e.Device, -1)
	contains(t, err, "not found: ")
	contains(t, err, "/nonexistent/model")
	isTrue(t, errors.Is(err, mainarch.ErrNotFound) && errors.Is(err, fs.ErrNotExist))
	isTrue(t, !errors.Is(err, mainarch.ErrBusy))

	_, err = mainarch.Open("toaster", nil)
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
	contains(t, err, "toaster")
	_, err = group.DeviceInfo(7)
	contains(t, err, "7")
	_, err = group.DeviceInfo(-1)
	isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
	_, err = mainarch.Open("c\x00", nil)
	contains(t, err, "device has a zero byte at 1")
	equal(t, mainarch.Status(-12345).Error(), "unknown status")
}

func TestStrings(t *testing.T) {
	s := open(t)
	_, err := s.tokenizer.RenderChat([]mainarch.ChatMessage{{Role: "user", Content: "x\x00"}}, nil)
	contains(t, err, "zero byte at 1")
	_, err = s.tokenizer.RenderChat([]mainarch.ChatMessage{{Role: "judge"}}, nil)
	contains(t, err, "judge")
	_, err = s.tokenizer.TokenID("no such token")
	isTrue(t, errors.Is(err, mainarch.ErrNotFound), err)
	_, err = s.tokenizer.TokenText(9999)
	isTrue(t, errors.Is(err, mainarch.ErrNotFound), err)
	_, err = mainarch.OpenTokenizer("/nonexistent")
	isTrue(t, errors.Is(err, fs.ErrNotExist), err)
	alone, err := mainarch.OpenTokenizer(checkpoint())
	ok(t, err)
	ok(t, alone.Close())
}

func TestOptionsAndLimitsAreNamed(t *testing.T) {
	s := open(t)
	for word, options := range map[string]*mainarch.SequenceOptions{
		"temperature":   {Temperature: -1},
		"logprobs":      {Logprobs: 33},
		"stop_sequence": {StopSequences: [][]uint32{{}}},
	} {
		_, err := s.engine.Open(options)
		isTrue(t, errors.Is(err, mainarch.ErrInvalidArgument), err)
		contains(t, err, word)
	}
	_, err := s.model.NewEngine(&mainarch.EngineOptions{MaxSequenceTokens: 1 << 20})
	contains(t, err, "2048")
	_, err = s.model.NewEngine(&mainarch.EngineOptions{KVType: 77})
	contains(t, err, "77")
	sequence, err := s.engine.Open(nil)
	ok(t, err)
	isTrue(t, errors.Is(sequence.Append(make([]uint32, 300)...), mainarch.ErrKVFull))
	contains(t, sequence.Append(5000), "5000")
	_, err = sequence.Logits()
	isTrue(t, errors.Is(err, mainarch.ErrBusy), err)
	equal(t, len(run(t, background, sequence)), 0) // nothing to run
	ok(t, sequence.Close())
	isTrue(t, errors.Is(sequence.Close(), mainarch.ErrNotFound))
	for i := 0; i < 4; i++ {
		_, err = s.engine.Open(nil)
		ok(t, err)
	}
	_, err = s.engine.Open(nil)
	isTrue(t, errors.Is(err, mainarch.ErrBusy), err)
}

func TestBusyWhileAStepIsInFlight(t *testing.T) {
	s := open(t)
	sequence := s.prompt(t, greedy())
	worked, err := s.engine.Submit()
	ok(t, err)
	isTrue(t, worked)
	_, err = sequence.Take(make([]uint32, 4))
	isTrue(t, errors.Is(err, mainarch.ErrBusy), err)
	ok(t, s.engine.Wait(background))
	ended, err := s.engine.Poll()
	ok(t, err)
	isTrue(t, ended)
	count, err := sequence.Take(make([]uint32, 4))
	ok(t, err)
	equal(t, count, 1)
}

func TestProgress(t *testing.T) {
	group, err := mainarch.Open("cpu", &mainarch.GroupOptions{Threads: 1})
	ok(t, err)
	defer group.Close()
	calls, last := 0, false
	model, err := group.OpenModel(background, checkpoint(), &mainarch.ModelOptions{
		Progress: func(done, total uint64) bool { calls++; last = done == total; return true },
	})
	ok(t, err)
	ok(t, model.Close())
	isTrue(t, calls > 2 && last, calls)

	_, err = group.OpenModel(background, checkpoint(), &mainarch.ModelOptions{
		Progress: func(done, total uint64) bool { return false },
	})
	isTrue(t, errors.Is(err, mainarch.ErrCancelled), err)

	ctx, cancel := context.WithCancel(background)
	defer cancel()
	_, err = group.OpenModel(ctx, checkpoint(), &mainarch.ModelOptions{
		Progress: func(done, total uint64) bool {
			cancel()
			for i := 0; i < 100 && done == total; i++ { // give the watcher its time
				syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil)
			}
			syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil)
			return true
		},
	})
	isTrue(t, errors.Is(err, mainarch.ErrCancelled) && errors.Is(err, context.Canceled), err)
	_, err = group.OpenModel(ctx, checkpoint(), nil)
	isTrue(t, errors.Is(err, context.Canceled), err)

	defer func() { equal(t, recover(), "out of the callback") }()
	_, _ = group.OpenModel(background, checkpoint(), &mainarch.ModelOptions{
		Progress: func(done, total uint64) bool { panic("out of the callback") },
	})
	t.Fatal("no panic")
}

func TestLogOutlivesTheGroupAndItsPanicsStayInside(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	group, err := mainarch.Open("cpu", &mainarch.GroupOptions{
		IgnoreEnvironment: true,
		Log: func(level mainarch.LogLevel, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
			if strings.HasPrefix(line, "engine") {
				panic("in the log")
			}
		},
	})
	ok(t, err)
	model, err := group.OpenModel(background, checkpoint(), nil)
	ok(t, err)
	ok(t, group.Close())
	engine, err := model.NewEngine(engineOptions)
	ok(t, err)
	ok(t, model.Close())
	ok(t, engine.Close())
	isTrue(t, strings.Contains(strings.Join(lines, "\n"), "engine: 4 sequences"), lines)
}

func TestWhatIsClosedSaysSo(t *testing.T) {
	s := open(t)
	sequence := s.prompt(t, greedy())
	for i := 0; i < 2; i++ {
		s.close() // twice is well
	}
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	_, err := s.group.OpenModel(background, checkpoint(), nil)
	add(err)
	_, err = s.group.DeviceInfo(0)
	add(err)
	_, err = s.model.Info()
	add(err)
	_, err = s.model.NewEngine(nil)
	add(err)
	_, err = s.model.Tokenizer()
	add(err)
	_, err = s.model.EndTokens()
	add(err)
	_, err = s.model.SequenceOptions()
	add(err)
	_, err = s.tokenizer.Encode("x")
	add(err)
	_, err = s.tokenizer.Decode(nil, false)
	add(err)
	_, err = s.tokenizer.Info()
	add(err)
	_, err = s.tokenizer.TokenID("x")
	add(err)
	_, err = s.tokenizer.TokenText(1)
	add(err)
	_, err = s.tokenizer.SpecialTokens()
	add(err)
	_, err = s.tokenizer.RenderChat(nil, nil)
	add(err)
	_, err = s.tokenizer.RenderChatJSON(nil)
	add(err)
	_, err = s.tokenizer.NewDecoder(false)
	add(err)
	_, err = s.decoder.Push(1)
	add(err)
	_, err = s.decoder.Finish()
	add(err)
	_, err = s.engine.Step(background)
	add(err)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	_, err = s.engine.Step(ctx)
	add(err)
	_, err = s.engine.Submit()
	add(err)
	_, err = s.engine.Poll()
	add(err)
	add(s.engine.Wait(background))
	_, err = s.engine.Info()
	add(err)
	_, err = s.engine.Statistics()
	add(err)
	_, err = s.engine.Open(nil)
	add(err)
	add(sequence.Append(1))
	add(sequence.Close())
	for i, err := range errs {
		isTrue(t, errors.Is(err, os.ErrClosed), i, err)
	}
	equal(t, s.group.DeviceCount(), 0)
	equal(t, s.engine.EventFD(), -1)
	s.engine.Cancel()
}
