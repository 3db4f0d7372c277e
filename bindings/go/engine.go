// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// KVType is how the KV cache is kept.
type KVType int32

// How the KV cache is kept.
const (
	KVDefault KVType = C.MAINARCH_KV_DEFAULT // KVBF16
	KVBF16    KVType = C.MAINARCH_KV_BF16
	KVFP8     KVType = C.MAINARCH_KV_FP8 // e4m3fn with a scale for each token and head: half the memory
	KVF32     KVType = C.MAINARCH_KV_F32 // to compare with
	// Heads of multiples of 32 elements only.
	KVFP4  KVType = C.MAINARCH_KV_FP4  // e2m1, a scale for 32 elements, 4.25 bits: a quarter of bf16, of some loss
	KVK8V4 KVType = C.MAINARCH_KV_K8V4 // K as KVFP8, V as KVFP4
)

// Drafts is who guesses tokens ahead of those that are sampled. No token comes out differently, only
// sooner.
type Drafts int32

// Who guesses tokens ahead.
const (
	DraftsOff   Drafts = C.MAINARCH_DRAFTS_OFF
	DraftsHead  Drafts = C.MAINARCH_DRAFTS_HEAD  // a layer of the model's own, opened with ModelOptions.DraftHead
	DraftsNgram Drafts = C.MAINARCH_DRAFTS_NGRAM // what followed the last 3, 2 or 1 tokens when they stood there before
	DraftsAuto  Drafts = C.MAINARCH_DRAFTS_AUTO  // DraftsHead where the model has one, else DraftsNgram
)

// EngineOptions is how to make an engine; nil and the zero struct are all defaults.
type EngineOptions struct {
	KVTokens          uint64 // that the cache holds, over all sequences; 0: MaxSequences * MaxSequenceTokens, or what fits
	MemoryBytes       uint64 // KV cache, recurrent states and activations take no more, over all devices; 0: no limit but theirs
	MaxSequences      uint32 // open at once; 0: 1; at most 65536
	MaxSequenceTokens uint32 // of one sequence; 0, and at most: the model's own limit
	MaxStepTokens     uint32 // rows of a step, prompt and generated tokens together; 0: chosen
	// LogitRows is how many rows of logits a step can make; 0, and at least: one a sequence, with Drafts
	// 1 + MaxDrafts. With more of them prompts of sequences with PromptLogprobs or AllLogits run in larger
	// chunks.
	LogitRows uint32
	KVType    KVType
	// KVNear holds the first 16 tokens and the last 128 in fp8, KVOuter the first and the last layer, where KVType is KVFP4
	// or KVK8V4 (MAINARCH_ENGINE_KV_NEAR, MAINARCH_ENGINE_KV_OUTER).
	KVNear, KVOuter bool
	// Fast rounds what goes into matrix products to bf16 where the device is faster so: prompts and many
	// sequences take less time, and results differ within a bound. On GPUs products with weights that are
	// held as codes (GGUF's blocks but MXFP4's, NVFP4, int4, int8, FP8 by row) stay as they are (MAINARCH_ENGINE_FAST).
	Fast bool
	// MXFP8 takes what goes into products with MXFP4 weights, and most with FP8 blocks, as MXFP8 on GPUs that multiply both: faster
	// prompts, slower alone; results differ within a bound (MAINARCH_ENGINE_MXFP8).
	MXFP8 bool
	// Int8 takes 8 bits of what goes into products with weights of 4 to 8 bits on CPUs: faster where it is decoding
	// weights that takes the time; results differ within a bound (MAINARCH_ENGINE_INT8).
	Int8 bool
	// NoPrefixCache runs every token of every sequence, also those that another one began with
	// (MAINARCH_ENGINE_NO_PREFIX_CACHE).
	NoPrefixCache bool
	// Resident has steps of up to 16 rows run by a kernel that stays on each GPU, between which there is no launch
	// (MAINARCH_ENGINE_RESIDENT, MAINARCH_ENGINE_RESIDENT_AUTO).
	Resident Resident
	// PrefixBytes is what beginnings of sequences may keep of the KV cache; 0: all of it if KVTokens or
	// MemoryBytes are given, else 512 MiB.
	PrefixBytes uint64
	Drafts      Drafts
	MaxDrafts   uint32 // guesses of one sequence and step, 1 to 8; 0: 3
}

// Resident says whether a kernel stays on each GPU.
type Resident int

// Off; on, or the engine is refused; where it can be had.
const (
	ResidentOff Resident = iota
	ResidentOn
	ResidentAuto
)

// EngineInfo is what an engine was made with, every default resolved.
type EngineInfo struct {
	KVTokens          uint64
	MemoryBytes       uint64 // KV cache and activations, as reserved; weights not counted
	MaxSequences      uint32
	MaxSequenceTokens uint32
	MaxStepTokens     uint32
	LogitRows         uint32 // of these, those that can make logits
	KVType            KVType
	Drafts            Drafts // never DraftsAuto
	MaxDrafts         uint32
}

// Statistics is what an engine has done since it was made.
type Statistics struct {
	Steps          uint64        // that ended well
	TokensRun      uint64        // through the model, prompt tokens included
	TokensProduced uint64        // sampled
	KVTokensFree   uint64        // now, in whole pages
	LastStep       time.Duration // that the last step took
	Sequences      uint32        // open now

	PrefixHits      uint64 // sequences that began with what another had run
	PrefixTokens    uint64 // tokens that were not run for it
	PrefixEvictions uint64 // blocks of 16 tokens that were given up for others
	PrefixHeld      uint64 // tokens that can be found now

	Drafts           uint64    // tokens guessed ahead that steps have run
	DraftsAccepted   uint64    // of these, those that were what was sampled
	DraftsAt         [8]uint64 // the same of first guesses, of second ones behind them, and so on
	DraftsAcceptedAt [8]uint64

	ResidentSteps    uint64 // that a resident kernel ran
	ResidentLaunches uint64 // of that kernel on a GPU
	ResidentLate     uint64 // steps that it waited for, as the host was not there yet
	ResidentCommands uint64 // that the host gave it: a step, and those that it runs behind it by itself
	ResidentPauses   uint64 // times that it left in the midst of a step, for others' work on its GPUs
	ResidentNoRoom   uint64 // steps that were packets instead, or in part, as others had the GPUs' compute units
}

// Engine is KV cache and scheduler over one model; it steps.
//
// A step takes prompt tokens that wait and one token of every sequence that is generating, runs the
// model once, and samples. Sequences come and go between steps. A step that fails or is cancelled
// leaves every sequence as it was before it.
type Engine struct {
	mu  sync.Mutex         // held by one call at a time
	ptr *C.mainarch_engine // written under mu and life
	err *C.mainarch_error  // in C memory, filled under mu: an error of a call costs no allocation

	life sync.RWMutex // read: a call of any time (cancel, info)
	log  *logSink
	file *os.File // a duplicate of the eventfd in Go's poller; under mu
}

// NewEngine makes an engine, which owns its KV cache and shares the model's weights.
//
// Errors: ErrInvalidArgument (names the field, value and limit), ErrOutOfDeviceMemory, ErrDeviceLost.
func (m *Model) NewEngine(options *EngineOptions) (*Engine, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return nil, closed("model")
	}
	var o EngineOptions
	if options != nil {
		o = *options
	}
	var raw C.mainarch_engine_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	raw.kv_tokens = C.uint64_t(o.KVTokens)
	raw.memory_bytes = C.uint64_t(o.MemoryBytes)
	raw.max_sequences = C.uint32_t(o.MaxSequences)
	raw.max_sequence_tokens = C.uint32_t(o.MaxSequenceTokens)
	raw.max_step_tokens = C.uint32_t(o.MaxStepTokens)
	raw.logit_rows = C.uint32_t(o.LogitRows)
	raw.kv_type = C.int32_t(o.KVType)
	if o.Fast {
		raw.flags |= C.MAINARCH_ENGINE_FAST
	}
	if o.MXFP8 {
		raw.flags |= C.MAINARCH_ENGINE_MXFP8
	}
	if o.Int8 {
		raw.flags |= C.MAINARCH_ENGINE_INT8
	}
	if o.KVNear {
		raw.flags |= C.MAINARCH_ENGINE_KV_NEAR
	}
	if o.KVOuter {
		raw.flags |= C.MAINARCH_ENGINE_KV_OUTER
	}
	switch o.Resident {
	case ResidentOn:
		raw.flags |= C.MAINARCH_ENGINE_RESIDENT
	case ResidentAuto:
		raw.flags |= C.MAINARCH_ENGINE_RESIDENT_AUTO
	}
	if o.NoPrefixCache {
		raw.flags |= C.MAINARCH_ENGINE_NO_PREFIX_CACHE
	}
	raw.prefix_bytes = C.uint64_t(o.PrefixBytes)
	raw.drafts = C.int32_t(o.Drafts)
	raw.max_drafts = C.uint32_t(o.MaxDrafts)
	var out *C.mainarch_engine
	var e C.mainarch_error
	if C.mainarch_engine_create(m.ptr, &raw, &out, &e) < 0 {
		return nil, newError(&e)
	}
	return &Engine{
		ptr: out,
		err: (*C.mainarch_error)(C.malloc(C.size_t(unsafe.Sizeof(e)))),
		log: m.log.hold(),
	}, nil
}

// Close ends the engine and its sequences; a step in flight is cancelled. The error is nil.
func (e *Engine) Close() error {
	if !e.mu.TryLock() {
		// Somebody is in a call: that ends soon when its step is cancelled.
		ended, end := context.WithCancel(context.Background())
		end()
		done := watch(ended, e.Cancel)
		e.mu.Lock()
		done()
	}
	defer e.mu.Unlock()
	e.life.Lock()
	defer e.life.Unlock()
	if e.ptr == nil {
		return nil
	}
	C.mainarch_engine_destroy(e.ptr)
	C.free(unsafe.Pointer(e.err))
	e.ptr, e.err = nil, nil
	if e.file != nil {
		e.file.Close()
	}
	e.log.letGo()
	return nil
}

// call is one call of the library on the engine, alone.
func (e *Engine) call(f func() C.mainarch_status) (C.mainarch_status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return 0, closed("engine")
	}
	status := f()
	if status < 0 {
		return status, newError(e.err)
	}
	return status, nil
}

// Step runs one step and ends with it. False: no sequence has work.
//
// Errors: ErrBusy (a submitted step has not been waited for), ErrCancelled, ErrDeviceLost.
func (e *Engine) Step(ctx context.Context) (bool, error) {
	if ctx.Done() != nil {
		return e.stepUntil(ctx)
	}
	e.mu.Lock()
	if e.ptr == nil {
		e.mu.Unlock()
		return false, closed("engine")
	}
	status := C.mainarch_engine_step(e.ptr, e.err)
	if status < 0 {
		err := newError(e.err)
		e.mu.Unlock()
		return false, err
	}
	e.mu.Unlock()
	return status == C.MAINARCH_OK, nil
}

// PinPrefix keeps a beginning until it is dropped: the longest that can be found now of these tokens. It
// says how many tokens that is. salt is SequenceOptions.PrefixSalt.
//
// Errors: ErrKVFull (the rest would not hold the longest sequence; nothing is pinned).
func (e *Engine) PinPrefix(salt uint64, tokens ...uint32) (int, error) {
	var pinned C.size_t
	_, err := e.call(func() C.mainarch_status {
		return C.mainarch_engine_pin_prefix(e.ptr, tokensAt(tokens), C.size_t(len(tokens)), C.uint64_t(salt), &pinned, e.err)
	})
	return int(pinned), err
}

// DropPrefix forgets what begins with these tokens, from their last whole block of 16 on, pinned or
// not. No tokens: all, whatever the salt.
func (e *Engine) DropPrefix(salt uint64, tokens ...uint32) error {
	_, err := e.call(func() C.mainarch_status {
		return C.mainarch_engine_drop_prefix(e.ptr, tokensAt(tokens), C.size_t(len(tokens)), C.uint64_t(salt), e.err)
	})
	return err
}

// stepUntil is a step that the end of a context ends.
func (e *Engine) stepUntil(ctx context.Context) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return false, closed("engine")
	}
	if cause := ctx.Err(); cause != nil {
		return false, cancelledBy(cause)
	}
	done := watch(ctx, func() { C.mainarch_engine_cancel(e.ptr) })
	status := C.mainarch_engine_step(e.ptr, e.err)
	done()
	if status < 0 {
		return false, withContext(ctx, newError(e.err))
	}
	return status == C.MAINARCH_OK, nil
}

// Submit starts one step and returns at once. False: no sequence has work. Until Wait or Poll has
// said that it ended, calls on sequences are ErrBusy.
func (e *Engine) Submit() (bool, error) {
	status, err := e.call(func() C.mainarch_status { return C.mainarch_engine_submit(e.ptr, e.err) })
	return err == nil && status == C.MAINARCH_OK, err
}

// Poll says whether the step in flight has ended, without waiting; true also when there is none. The
// error is that of the step, which is over then.
func (e *Engine) Poll() (bool, error) {
	status, err := e.call(func() C.mainarch_status { return C.mainarch_engine_wait(e.ptr, 0, e.err) })
	return err == nil && status == C.MAINARCH_OK, err
}

// Wait waits for the step in flight, without a thread of the system: the goroutine sleeps in Go's
// poller on the engine's eventfd. The error is that of the step.
func (e *Engine) Wait(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return closed("engine")
	}
	poller, err := e.poller()
	if err != nil {
		return err
	}
	done := watch(ctx, func() { C.mainarch_engine_cancel(e.ptr) })
	defer done()
	var status C.mainarch_status
	err = poller.Read(func(uintptr) bool {
		status = C.mainarch_engine_wait(e.ptr, 0, e.err)
		return status != C.MAINARCH_TIMED_OUT
	})
	if err != nil {
		return err
	}
	if status < 0 {
		return withContext(ctx, newError(e.err))
	}
	return nil
}

// poller is the eventfd in Go's poller, which wants a descriptor of its own to close.
func (e *Engine) poller() (syscall.RawConn, error) {
	if e.file == nil {
		fd := C.mainarch_engine_event_fd(e.ptr)
		own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
		if errno != 0 {
			return nil, os.NewSyscallError("fcntl", errno)
		}
		e.file = os.NewFile(own, "mainarch-event")
	}
	return e.file.SyscallConn()
}

// EventFD is a descriptor that polls readable when a submitted step has ended, until Wait or Poll has
// said so; for event loops of your own. The engine owns it: do not read or close it. -1 when the
// engine is closed.
func (e *Engine) EventFD() int {
	e.life.RLock()
	defer e.life.RUnlock()
	return int(C.mainarch_engine_event_fd(e.ptr))
}

// Cancel makes the step in flight, if there is one, end soon with ErrCancelled, whoever is in it. If
// there is none it does nothing.
func (e *Engine) Cancel() {
	e.life.RLock()
	defer e.life.RUnlock()
	C.mainarch_engine_cancel(e.ptr)
}

// Info is what the engine was made with. Also while a step runs.
func (e *Engine) Info() (EngineInfo, error) {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.ptr == nil {
		return EngineInfo{}, closed("engine")
	}
	var raw C.mainarch_engine_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var err C.mainarch_error
	if C.mainarch_engine_info_get(e.ptr, &raw, &err) < 0 {
		return EngineInfo{}, newError(&err)
	}
	return EngineInfo{
		KVTokens:          uint64(raw.kv_tokens),
		MemoryBytes:       uint64(raw.memory_bytes),
		MaxSequences:      uint32(raw.max_sequences),
		MaxSequenceTokens: uint32(raw.max_sequence_tokens),
		MaxStepTokens:     uint32(raw.max_step_tokens),
		LogitRows:         uint32(raw.logit_rows),
		KVType:            KVType(raw.kv_type),
		Drafts:            Drafts(raw.drafts),
		MaxDrafts:         uint32(raw.max_drafts),
	}, nil
}

// Statistics is what the engine has done so far. Also while a step runs: each number is exact, and
// together they may straddle its end.
func (e *Engine) Statistics() (Statistics, error) {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.ptr == nil {
		return Statistics{}, closed("engine")
	}
	var raw C.mainarch_engine_statistics
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var err C.mainarch_error
	if C.mainarch_engine_statistics_get(e.ptr, &raw, &err) < 0 {
		return Statistics{}, newError(&err)
	}
	out := Statistics{
		Steps:          uint64(raw.steps),
		TokensRun:      uint64(raw.tokens_run),
		TokensProduced: uint64(raw.tokens_produced),
		KVTokensFree:   uint64(raw.kv_tokens_free),
		LastStep:       time.Duration(raw.step_ns_last),
		Sequences:      uint32(raw.sequences),

		PrefixHits:      uint64(raw.prefix_hits),
		PrefixTokens:    uint64(raw.prefix_tokens),
		PrefixEvictions: uint64(raw.prefix_evictions),
		PrefixHeld:      uint64(raw.prefix_held),

		Drafts:         uint64(raw.drafts),
		DraftsAccepted: uint64(raw.drafts_accepted),

		ResidentSteps:    uint64(raw.resident_steps),
		ResidentLaunches: uint64(raw.resident_launches),
		ResidentLate:     uint64(raw.resident_late),
		ResidentCommands: uint64(raw.resident_commands),
		ResidentPauses:   uint64(raw.resident_pauses),
		ResidentNoRoom:   uint64(raw.resident_no_room),
	}
	for i := range out.DraftsAt {
		out.DraftsAt[i] = uint64(raw.drafts_at[i])
		out.DraftsAcceptedAt[i] = uint64(raw.drafts_accepted_at[i])
	}
	return out, nil
}
