// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"unsafe"
)

// Pooling is of which tokens' vectors a text's is made.
type Pooling int32

// Of which tokens' vectors a text's is made.
const (
	PoolingDefault Pooling = C.MAINARCH_POOLING_DEFAULT // what the checkpoint says; without a word of it, the last
	PoolingLast    Pooling = C.MAINARCH_POOLING_LAST
	PoolingMean    Pooling = C.MAINARCH_POOLING_MEAN // of all
	PoolingFirst   Pooling = C.MAINARCH_POOLING_FIRST
)

// EmbedInfo is what a checkpoint says of its vectors, in the files of the package sentence-transformers.
type EmbedInfo struct {
	Dimensions    uint32 // of a vector
	Pooling       Pooling
	Normalize     bool   // vectors have a length of one
	Stated        bool   // there is a modules.json; else Pooling and Normalize are what most such models have
	IncludePrompt bool   // false: tokens of the prompt do not count for a mean (EmbedOptions.SkipTokens)
	PromptCount   uint32 // that the checkpoint names
	DefaultPrompt string // the name of the one for texts of no other use; empty: none
}

// Normalize is whether vectors are brought to a length of one.
type Normalize uint64

// Whether vectors are brought to a length of one.
const (
	NormalizeDefault Normalize = 0 // as the checkpoint says
	NormalizeYes     Normalize = C.MAINARCH_EMBED_NORMALIZE
	NormalizeNo      Normalize = C.MAINARCH_EMBED_RAW
)

// EmbedOptions is how texts become vectors; nil and the zero struct are what the checkpoint says.
type EmbedOptions struct {
	Pooling    Pooling
	Normalize  Normalize
	Dimensions uint32 // so many of the first numbers alone, normalised again; 0: all
	PrefixSalt uint64 // as SequenceOptions.PrefixSalt
	SkipTokens uint32 // of a mean: so many of each text's first tokens do not count
}

// EmbedInfo is what the checkpoint says of its vectors. Its files are read anew by each call.
//
// Errors: ErrIO, ErrPermission, ErrBadModel (names file and key), ErrUnsupported (other poolings, a dense
// layer).
func (m *Model) EmbedInfo() (EmbedInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return EmbedInfo{}, closed("model")
	}
	var raw C.mainarch_embed_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var e C.mainarch_error
	if C.mainarch_model_embed_info_get(m.ptr, &raw, &e) < 0 {
		return EmbedInfo{}, newError(&e)
	}
	return EmbedInfo{
		Dimensions:    uint32(raw.dimensions),
		Pooling:       Pooling(raw.pooling),
		Normalize:     raw.normalize != 0,
		Stated:        raw.stated != 0,
		IncludePrompt: raw.include_prompt != 0,
		PromptCount:   uint32(raw.prompt_count),
		DefaultPrompt: C.GoString(&raw.default_prompt[0]),
	}, nil
}

// EmbedPrompt is what the checkpoint puts before a text for the use name ("query"); of "" its default, and
// nothing if it has none. Put it before the text, then encode both with EncodeAddSpecial.
//
// Errors: ErrNotFound (names those that there are), and those of EmbedInfo.
func (m *Model) EmbedPrompt(name string) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ptr == nil {
		return "", closed("model")
	}
	var at *C.char
	if name != "" {
		copied, err := cString("name", name)
		if err != nil {
			return "", err
		}
		defer free(copied)
		at = copied
	}
	return growText(128, func(text *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status {
		return C.mainarch_model_embed_prompt(m.ptr, at, text, capacity, length, e)
	})
}

// Embed makes a vector of each text, of an engine whose model was opened with ModelOptions.Embed. Steps run
// until all are done, or ctx ends.
//
// Errors: ErrInvalidArgument (an empty text or a token outside the vocabulary, with its index; a model that
// generates; Dimensions), ErrKVFull (a text too long), ErrBusy (every sequence is open), ErrBadModel (a
// vector holds what is not a number), ErrCancelled, and those of Step.
func (e *Engine) Embed(ctx context.Context, texts [][]uint32, options *EmbedOptions) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return nil, closed("engine")
	}
	if cause := ctx.Err(); cause != nil {
		return nil, cancelledBy(cause)
	}
	if len(texts) == 0 {
		return nil, nil
	}
	var o EmbedOptions
	if options != nil {
		o = *options
	}
	var raw C.mainarch_embed_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	raw.flags = C.uint64_t(o.Normalize)
	raw.pooling = C.int32_t(o.Pooling)
	raw.dimensions = C.uint32_t(o.Dimensions)
	raw.prefix_salt = C.uint64_t(o.PrefixSalt)
	raw.skip_tokens = C.uint32_t(o.SkipTokens)
	var tokens []uint32
	lengths := make([]C.size_t, len(texts))
	for i, text := range texts {
		tokens = append(tokens, text...)
		lengths[i] = C.size_t(len(text))
	}
	var numbers []float32
	done := watch(ctx, func() { C.mainarch_engine_cancel(e.ptr) })
	_, err := grow(0, func(capacity int) (int, C.mainarch_status, *C.mainarch_error) {
		numbers = make([]float32, capacity)
		var at *C.float
		if capacity > 0 {
			at = (*C.float)(unsafe.Pointer(&numbers[0]))
		}
		var count C.size_t
		status := C.mainarch_engine_embed(e.ptr, tokensAt(tokens), &lengths[0], C.size_t(len(texts)), &raw, at,
			C.size_t(capacity), &count, e.err)
		return int(count), status, e.err
	})
	done()
	if err != nil {
		return nil, withContext(ctx, newError(e.err))
	}
	size := len(numbers) / len(texts)
	vectors := make([][]float32, len(texts))
	for i := range vectors {
		vectors[i] = numbers[i*size : (i+1)*size : (i+1)*size]
	}
	return vectors, nil
}
