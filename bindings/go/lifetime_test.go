// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"mainarch.invalid/go/mainarch"
)

func (s *stack) closeOne(which int) {
	switch which {
	case 0:
		s.group.Close()
	case 1:
		s.model.Close()
	case 2:
		s.tokenizer.Close()
	case 3:
		s.decoder.Close()
	case 4:
		s.engine.Close()
	}
}

// What is left still works; a step is in flight whenever something is closed.
func (s *stack) works(t *testing.T, gone [5]bool) {
	if !gone[0] {
		equal(t, s.group.DeviceCount(), 1)
	}
	if !gone[1] {
		_, err := s.model.Info()
		ok(t, err)
	}
	if !gone[2] {
		_, err := s.tokenizer.Encode("light")
		ok(t, err)
	}
	if !gone[3] {
		_, err := s.decoder.Push(300)
		ok(t, err)
	}
	if !gone[4] {
		ok(t, s.engine.Wait(background))
		worked, err := s.engine.Submit()
		ok(t, err)
		isTrue(t, worked)
	}
}

func permute(order []int, at int, visit func([]int)) {
	if at == len(order) {
		visit(order)
		return
	}
	for i := at; i < len(order); i++ {
		order[at], order[i] = order[i], order[at]
		permute(order, at+1, visit)
		order[at], order[i] = order[i], order[at]
	}
}

func TestEveryOrderOfCloses(t *testing.T) {
	orders := 0
	permute([]int{0, 1, 2, 3, 4}, 0, func(order []int) {
		orders++
		s := openOn(t, "cpu", 1, true)
		s.prompt(t, nil)
		var gone [5]bool
		for _, which := range order {
			s.closeOne(which)
			gone[which] = true
			s.works(t, gone)
		}
	})
	equal(t, orders, 120)
}

// Resident memory that is not of files, in kB, and descriptors.
func process(t *testing.T) (kb, descriptors int) {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	ok(t, err)
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	_, err = fmt.Sscan(rest, &kb)
	ok(t, err)
	entries, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	return kb, len(entries)
}

func steady(t *testing.T, what string, cycles int, cycle func()) {
	for i := 0; i < cycles/10; i++ {
		cycle()
	}
	kb, descriptors := process(t)
	start := time.Now()
	for i := 0; i < cycles; i++ {
		cycle()
	}
	kbAfter, descriptorsAfter := process(t)
	t.Logf("%s: %d cycles in %v: %d kB, %d descriptors, then %d kB, %d", what, cycles,
		time.Since(start).Round(time.Millisecond), kb, descriptors, kbAfter, descriptorsAfter)
	equal(t, descriptorsAfter, descriptors)
	// 10,000 cycles: 3 MB are 300 bytes a cycle, less than an engine's error alone.
	isTrue(t, kbAfter <= kb+3072, kb, kbAfter)
}

func TestNothingIsLeftBehind(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has memory of its own")
	}
	if os.Getenv("QEMU_LD_PREFIX") != "" {
		fmt.Println("# SKIPPED memory in Go: of each thread that ends qemu keeps 280 kB")
		t.Skip("under qemu")
	}
	steady(t, "everything", 1000, func() {
		s := openOn(t, "cpu", 1, true)
		s.prompt(t, nil)
		_, err := s.engine.Submit()
		ok(t, err)
		s.close()
	})
	tiny := os.Getenv("MAINARCH_TINY")
	if tiny == "" {
		t.Skip("MAINARCH_TINY is not set")
	}
	tokenizer, err := mainarch.OpenTokenizer(checkpoint())
	ok(t, err)
	defer tokenizer.Close()
	steady(t, "group, model, engine, sequence, decoder, error", 10000, func() {
		group, err := mainarch.Open("cpu", &mainarch.GroupOptions{
			Threads: 1,
			Log:     func(mainarch.LogLevel, string) {},
		})
		ok(t, err)
		_, err = group.OpenModel(background, "/nonexistent", nil)
		isTrue(t, err != nil)
		model, err := group.OpenModel(background, tiny, &mainarch.ModelOptions{
			Progress: func(done, total uint64) bool { return true },
		})
		ok(t, err)
		engine, err := model.NewEngine(nil)
		ok(t, err)
		sequence, err := engine.Open(&mainarch.SequenceOptions{
			StopTokens: []uint32{1},
			LogitBias:  []mainarch.LogitBias{{Token: 1}},
		})
		ok(t, err)
		ok(t, sequence.Append(1, 2, 3))
		ok(t, engine.Wait(background)) // makes its duplicate of the eventfd
		engine.Close()
		model.Close()
		group.Close()
		decoder, err := tokenizer.NewDecoder(false)
		ok(t, err)
		_, err = decoder.Push(300)
		ok(t, err)
		decoder.Close()
		_, err = tokenizer.RenderChat([]mainarch.ChatMessage{{Role: "user", Content: "x"}}, nil)
		ok(t, err)
	})
}
