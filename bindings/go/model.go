// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdint.h>
#include <stdlib.h>

extern int mainarchGoProgress(void *user, uint64_t done, uint64_t total);

// In C memory: the library calls it back while a context may end.
typedef struct mainarch_go_load {
	uintptr_t handle; // a cgo.Handle, or 0: nobody is told
	int32_t cancel;   // atomic
} mainarch_go_load;

static int mainarch_go_progress(void *user, uint64_t done, uint64_t total) {
	mainarch_go_load *load = user;
	if (__atomic_load_n(&load->cancel, __ATOMIC_RELAXED)) return 1;
	return load->handle ? mainarchGoProgress(user, done, total) : 0;
}

static inline void mainarch_go_set_progress(mainarch_model_options *options, mainarch_go_load *load) {
	options->progress = mainarch_go_progress;
	options->progress_user = load;
}

static inline void mainarch_go_cancel_load(mainarch_go_load *load) {
	__atomic_store_n(&load->cancel, 1, __ATOMIC_RELAXED);
}
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// ModelOptions is how to open a model; nil and the zero struct are all defaults.
type ModelOptions struct {
	// CPU: multiply straight from the mapped files. Opens at once and takes no memory of its own;
	// steps are slower, and results the same.
	InPlace bool
	// DraftHead places the weights of the layer that drafts, too, where the checkpoint has one: DraftsHead.
	DraftHead bool
	// Embed opens for vectors, not to generate: Engine.Embed. The head is left out, and logits are the final
	// norm's output, HiddenSize numbers. Not with DraftHead.
	Embed bool
	// Told how many bytes of the weights are in place, of how many; false cancels. On the calling
	// goroutine. It must not call this package; a panic in it goes on in OpenModel. nil: none.
	Progress func(done, total uint64) bool
}

// Model is a checked checkpoint, its weights placed on a group.
type Model struct {
	mu  sync.RWMutex // read: in a call
	ptr *C.mainarch_model
	log *logSink
}

// ModelInfo is about a model.
type ModelInfo struct {
	ParameterCount  uint64 // elements of all weights; shared (tied) ones count once
	WeightBytes     uint64 // memory for weights, over all devices; mapped files not counted
	FileBytes       uint64 // of the files of weights, which are mapped
	VocabSize       uint32 // logits a token; tokens are below it. May exceed the tokenizer's.
	MaxTokens       uint32 // the longest sequence the model was made for
	Layers          uint32
	HiddenSize      uint32
	Experts         uint32 // a layer; 0: a dense model
	ExpertsPerToken uint32
	Architecture    string // "qwen3_moe"
	Formats         string // of the weights, in the order of their bytes: "mxfp4 bf16"
}

// What a progress callback needs on the Go side.
type progress struct {
	tell     func(done, total uint64) bool
	panicked interface{}
}

// A panic must not unwind through the library: it waits in progress.
//
//export mainarchGoProgress
func mainarchGoProgress(user unsafe.Pointer, done, total C.uint64_t) (cancel C.int) {
	load := (*C.mainarch_go_load)(user)
	p := cgo.Handle(load.handle).Value().(*progress)
	cancel = 1
	defer func() {
		if r := recover(); r != nil {
			p.panicked = r
		}
	}()
	if p.tell(uint64(done), uint64(total)) {
		cancel = 0
	}
	return cancel
}

// OpenModel opens a Hugging Face checkpoint directory (config.json and safetensors) or a GGUF file and
// places its weights on the devices of the group. The files are mapped as long as the model lives, and
// none of their bytes is trusted.
//
// Errors: ErrNotFound, ErrIO or ErrPermission (a file), ErrBadModel (names file, tensor or key),
// ErrUnsupported (an architecture, format or feature), ErrOutOfDeviceMemory, ErrCancelled (by the
// context or by Progress), ErrDeviceLost.
func (g *Group) OpenModel(ctx context.Context, path string, options *ModelOptions) (*Model, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.ptr == nil {
		return nil, closed("group")
	}
	if err := ctx.Err(); err != nil {
		return nil, cancelledBy(err)
	}
	name, err := cString("path", path)
	if err != nil {
		return nil, err
	}
	defer free(name)
	var o ModelOptions
	if options != nil {
		o = *options
	}
	var raw C.mainarch_model_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	if o.InPlace {
		raw.flags |= C.MAINARCH_MODEL_IN_PLACE
	}
	if o.DraftHead {
		raw.flags |= C.MAINARCH_MODEL_DRAFT_HEAD
	}
	if o.Embed {
		raw.flags |= C.MAINARCH_MODEL_EMBED
	}
	load := (*C.mainarch_go_load)(C.malloc(C.size_t(unsafe.Sizeof(C.mainarch_go_load{}))))
	*load = C.mainarch_go_load{}
	defer C.free(unsafe.Pointer(load))
	told := progress{tell: o.Progress}
	if o.Progress != nil {
		handle := cgo.NewHandle(&told)
		defer handle.Delete()
		load.handle = C.uintptr_t(handle)
	}
	C.mainarch_go_set_progress(&raw, load)
	done := watch(ctx, func() { C.mainarch_go_cancel_load(load) })
	var out *C.mainarch_model
	var e C.mainarch_error
	status := C.mainarch_model_open(g.ptr, name, &raw, &out, &e)
	done()
	if told.panicked != nil {
		C.mainarch_model_destroy(out)
		panic(told.panicked)
	}
	if status < 0 {
		return nil, withContext(ctx, newError(&e))
	}
	return &Model{ptr: out, log: g.log.hold()}, nil
}

// Close lets go of the model. Engines and tokenizers made from it go on working. The error is nil.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ptr != nil {
		C.mainarch_model_destroy(m.ptr)
		m.ptr = nil
		m.log.letGo()
	}
	return nil
}

// Info is about the model.
func (m *Model) Info() (ModelInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return ModelInfo{}, closed("model")
	}
	var raw C.mainarch_model_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var e C.mainarch_error
	if C.mainarch_model_info_get(m.ptr, &raw, &e) < 0 {
		return ModelInfo{}, newError(&e)
	}
	return ModelInfo{
		ParameterCount:  uint64(raw.parameter_count),
		WeightBytes:     uint64(raw.weight_bytes),
		FileBytes:       uint64(raw.file_bytes),
		VocabSize:       uint32(raw.vocab_size),
		MaxTokens:       uint32(raw.max_tokens),
		Layers:          uint32(raw.layers),
		HiddenSize:      uint32(raw.hidden_size),
		Experts:         uint32(raw.experts),
		ExpertsPerToken: uint32(raw.experts_per_token),
		Architecture:    C.GoString(&raw.architecture[0]),
		Formats:         C.GoString(&raw.formats[0]),
	}, nil
}

// EndTokens are the tokens that end a turn, ascending. Sequences stop at them unless told otherwise.
func (m *Model) EndTokens() ([]uint32, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return nil, closed("model")
	}
	return growTokens(8, func(at *C.uint32_t, capacity C.size_t, count *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_model_end_tokens(m.ptr, at, capacity, count, e)
	})
}

// SequenceOptions is what the checkpoint recommends: Temperature, TopK, TopP, MinP and
// RepetitionPenalty; the rest is zero.
func (m *Model) SequenceOptions() (SequenceOptions, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return SequenceOptions{}, closed("model")
	}
	var raw C.mainarch_sequence_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var e C.mainarch_error
	if C.mainarch_model_sequence_options(m.ptr, &raw, &e) < 0 {
		return SequenceOptions{}, newError(&e)
	}
	return SequenceOptions{
		Temperature:       float32(raw.temperature),
		TopK:              uint32(raw.top_k),
		TopP:              float32(raw.top_p),
		MinP:              float32(raw.min_p),
		RepetitionPenalty: float32(raw.repetition_penalty),
	}, nil
}
