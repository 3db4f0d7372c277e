// SPDX-License-Identifier: MIT

package mainarch_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"mainarch.invalid/go/mainarch"
)

// Goroutines that share an engine, each with a sequence of its own: all get the same tokens.
func TestGoroutinesShareAnEngine(t *testing.T) {
	s := open(t)
	base := run(t, background, s.prompt(t, greedy()))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var group sync.WaitGroup
	results := make([][]uint32, 3)
	for i := range results {
		sequence := s.prompt(t, greedy())
		group.Add(1)
		go func(i int) {
			defer group.Done()
			if err := sequence.Tokens(ctx, func(token uint32) bool {
				results[i] = append(results[i], token)
				return true
			}); err != nil {
				t.Error(err)
			}
		}(i)
	}
	group.Add(1)
	go func() { // what may be called at any time
		defer group.Done()
		for i := 0; i < 200; i++ {
			_, _ = s.engine.Statistics()
			_, _ = s.engine.Info()
			_ = s.engine.EventFD()
		}
	}()
	group.Wait()
	for _, result := range results {
		equal(t, result, base)
	}
}

// However many steps are cancelled, the tokens are those of a run that none was.
func TestContextsCancelSteps(t *testing.T) {
	s := open(t)
	base := run(t, background, s.prompt(t, greedy()))
	cancelled := 0
	for end := time.Now().Add(time.Minute); cancelled < 3 && time.Now().Before(end); {
		sequence := s.prompt(t, greedy())
		for i := 0; i < 100; i++ {
			ctx, cancel := context.WithTimeout(background, time.Duration(i%8)*20*time.Microsecond)
			worked, err := s.engine.Step(ctx)
			cancel()
			if err != nil {
				isTrue(t, errors.Is(err, mainarch.ErrCancelled) && errors.Is(err, context.DeadlineExceeded), err)
				cancelled++
			} else if !worked {
				break
			}
		}
		equal(t, run(t, background, sequence), base)
		ok(t, sequence.Close())
	}
	isTrue(t, cancelled >= 3, cancelled)

	ctx, cancel := context.WithCancel(background)
	sequence := s.prompt(t, &mainarch.SequenceOptions{IgnoreEnd: true})
	count := 0
	err := sequence.Text(ctx, s.decoder, func(string) bool {
		if count++; count == 3 {
			cancel()
		}
		return true
	})
	isTrue(t, errors.Is(err, context.Canceled) && errors.Is(err, mainarch.ErrCancelled), err)
	isTrue(t, count == 3, count)
}

// A goroutine that waits sleeps in Go's poller; its context wakes it.
func TestWait(t *testing.T) {
	s := open(t)
	base := run(t, background, s.prompt(t, greedy()))
	sequence := s.prompt(t, greedy())
	var tokens []uint32
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	for {
		worked, err := s.engine.Submit()
		ok(t, err)
		if !worked {
			break
		}
		ok(t, s.engine.Wait(ctx))
		var token [4]uint32
		count, err := sequence.Take(token[:])
		ok(t, err)
		tokens = append(tokens, token[:count]...)
	}
	equal(t, tokens, base)
	ok(t, s.engine.Wait(ctx)) // none in flight
	ok(t, sequence.Close())

	for i := 0; i < 20; i++ {
		sequence := s.prompt(t, greedy())
		_, err := s.engine.Submit()
		ok(t, err)
		ended, end := context.WithCancel(background)
		end()
		if err := s.engine.Wait(ended); err != nil {
			isTrue(t, errors.Is(err, context.Canceled), err)
		}
		ok(t, sequence.Close())
	}
}

// An event loop of the program's own, on the descriptor.
func TestEventFD(t *testing.T) {
	s := open(t)
	s.prompt(t, greedy())
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	ok(t, err)
	defer syscall.Close(epoll)
	fd := s.engine.EventFD()
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
	ok(t, syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &event))
	events := make([]syscall.EpollEvent, 1)
	count, err := syscall.EpollWait(epoll, events, 0)
	ok(t, err)
	equal(t, count, 0)
	_, err = s.engine.Submit()
	ok(t, err)
	for count = 0; count == 0; {
		if count, err = syscall.EpollWait(epoll, events, 60000); err == syscall.EINTR {
			continue
		}
		ok(t, err)
	}
	equal(t, events[0].Fd, int32(fd))
	ended, err := s.engine.Poll()
	ok(t, err)
	isTrue(t, ended)
}

// Close while others step, wait and look: they end soon, with an error or without.
func TestCloseWhileOthersUseIt(t *testing.T) {
	for i := 0; i < 20; i++ {
		s := openOn(t, "cpu", 1, true)
		sequence := s.prompt(t, &mainarch.SequenceOptions{IgnoreEnd: true})
		var group sync.WaitGroup
		use := func(f func() error) {
			group.Add(1)
			go func() {
				defer group.Done()
				for {
					err := f()
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, mainarch.ErrCancelled) && !errors.Is(err, mainarch.ErrBusy) {
						t.Error(err)
						return
					}
				}
			}()
		}
		use(func() error { _, err := s.engine.Step(background); return err })
		use(func() error { _, err := s.engine.Submit(); return err })
		use(func() error { return s.engine.Wait(background) })
		use(func() error { _, err := sequence.Info(); return err })
		use(func() error { s.engine.Cancel(); _, err := s.engine.Statistics(); return err })
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		done := make(chan struct{})
		go func() { s.close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("Close does not end")
		}
		group.Wait()
	}
}
