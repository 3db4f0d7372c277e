// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"errors"
	"unsafe"
)

// LogitBias is what is added to the logit of a token, in [-1e30, 1e30]; minus infinity bans it.
type LogitBias struct {
	Token uint32
	Bias  float32
}

// SequenceOptions is how tokens are chosen and when to stop; nil and the zero struct are greedy, until
// an end token or the length limit. Applied in this order: the mask, MinTokens and LogitBias,
// repetition, frequency and presence penalty, Temperature, MinP, TopK, TopP.
type SequenceOptions struct {
	Manual            bool    // the caller samples: Logits, then Append
	IgnoreEnd         bool    // the model's end tokens do not end the sequence
	Seed              uint64  // the token at a position depends on the seed and the position alone
	Temperature       float32 // in [0, 1e6]; below 1e-5: greedy, ties to the lowest token
	TopP              float32 // in (0, 1); 0 or at least 1: off
	MinP              float32 // in [0, 1]; 0: off
	TopK              uint32  // 0: off
	RepetitionPenalty float32 // in [1e-3, 1e3]; 0 or 1: off. Of tokens in the prompt or produced.
	FrequencyPenalty  float32 // in [-1e3, 1e3]; times how often the token was produced
	PresencePenalty   float32 // in [-1e3, 1e3]; once, if it was produced
	Logprobs          uint32  // how many of the likeliest tokens to report; at most 32
	MinTokens         uint32  // no end or stop token before so many produced ones; at most MaxTokens, if that is set
	MaxTokens         uint32  // stop after so many produced tokens; 0: no limit of this kind
	StopTokens        []uint32
	StopSequences     [][]uint32 // none may be empty
	LogitBias         []LogitBias
	StopStrings       []string // each ends the sequence when complete in its text: SequenceInfo.TextBytes
	StopSpecial       bool     // for StopStrings, special tokens are text, too
	// PromptLogprobs, above 0, asks for log-probabilities of every appended token but the first, and so
	// many of the likeliest in its place; at most 32: see Sequence.PromptLogprobs.
	PromptLogprobs uint32
	// PrefixSalt: only sequences of one salt take beginnings from one another. A number of its own for
	// each tenant, and none can tell from times what others have asked.
	PrefixSalt uint64
	AllLogits  bool // every row makes logits: see Sequence.LogitsAt
}

// Finish is why a sequence ended. More may come.
type Finish uint32

// Why a sequence ended.
const (
	FinishNone         Finish = C.MAINARCH_FINISH_NONE          // it goes on
	FinishEnd          Finish = C.MAINARCH_FINISH_END           // an end token, the last one produced
	FinishStopToken    Finish = C.MAINARCH_FINISH_STOP_TOKEN    // likewise
	FinishStopSequence Finish = C.MAINARCH_FINISH_STOP_SEQUENCE // its tokens are the last ones
	FinishMaxTokens    Finish = C.MAINARCH_FINISH_MAX_TOKENS
	FinishLength       Finish = C.MAINARCH_FINISH_LENGTH      // the whole length or KV cache is used up
	FinishFault        Finish = C.MAINARCH_FINISH_FAULT       // no token could be chosen: Take says why
	FinishStopString   Finish = C.MAINARCH_FINISH_STOP_STRING // one of StopStrings is complete
)

// Sequence is one text in one engine. One that was closed, or whose engine was, gives errors.
type Sequence struct {
	engine *Engine
	id     C.mainarch_sequence
}

// SequenceInfo is about a sequence; numbers are tokens.
type SequenceInfo struct {
	Position uint64 // whose KV is stored; falls when others needed its pages
	Tokens   uint64 // held: prompt and produced
	Pending  uint64 // of these, not yet run through the model
	Produced uint64 // sampled so far
	Untaken  uint64 // of these, not yet taken
	Finish   Finish
	// TextBytes is, with StopStrings (else 0), how many bytes to show of the text of the tokens produced
	// since the last Append: those before the stop string; while it goes on, those that cannot be the
	// beginning of one; after another end, all.
	TextBytes uint64
	// LogitPosition is, with AllLogits (else 0), the first of the LogitRows positions whose logits
	// LogitsAt gives now.
	LogitPosition uint64
	LogitRows     uint64
}

// Logprob is a token and the natural logarithm of its probability, by the softmax of the raw logits.
type Logprob struct {
	Token   uint32
	Logprob float32
}

// raw is the C struct; what it points to is in the arena.
func (o *SequenceOptions) raw(arena *cArena) (raw C.mainarch_sequence_options, err error) {
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	if o == nil {
		return raw, nil
	}
	if o.StopSpecial {
		raw.flags |= C.MAINARCH_SEQUENCE_STOP_SPECIAL
	}
	if o.Manual {
		raw.flags |= C.MAINARCH_SEQUENCE_MANUAL
	}
	if o.IgnoreEnd {
		raw.flags |= C.MAINARCH_SEQUENCE_IGNORE_END
	}
	if o.AllLogits {
		raw.flags |= C.MAINARCH_SEQUENCE_ALL_LOGITS
	}
	raw.prompt_logprobs = C.uint32_t(o.PromptLogprobs)
	raw.prefix_salt = C.uint64_t(o.PrefixSalt)
	raw.seed = C.uint64_t(o.Seed)
	raw.temperature = C.float(o.Temperature)
	raw.top_p = C.float(o.TopP)
	raw.min_p = C.float(o.MinP)
	raw.top_k = C.uint32_t(o.TopK)
	raw.repetition_penalty = C.float(o.RepetitionPenalty)
	raw.frequency_penalty = C.float(o.FrequencyPenalty)
	raw.presence_penalty = C.float(o.PresencePenalty)
	raw.logprobs = C.uint32_t(o.Logprobs)
	raw.min_tokens = C.uint32_t(o.MinTokens)
	raw.max_tokens = C.uint32_t(o.MaxTokens)
	raw.stop_tokens = arena.tokens(o.StopTokens)
	raw.stop_token_count = C.size_t(len(o.StopTokens))
	var all, lengths []uint32
	for _, stop := range o.StopSequences {
		all = append(all, stop...)
		lengths = append(lengths, uint32(len(stop)))
	}
	raw.stop_sequence_tokens = arena.tokens(all)
	raw.stop_sequence_lengths = arena.tokens(lengths)
	raw.stop_sequence_count = C.size_t(len(lengths))
	if n := len(o.LogitBias); n > 0 {
		at := (*C.mainarch_logit_bias)(arena.bytes(n * int(unsafe.Sizeof(C.mainarch_logit_bias{}))))
		for i, b := range o.LogitBias {
			unsafe.Slice(at, n)[i] = C.mainarch_logit_bias{token: C.uint32_t(b.Token), bias: C.float(b.Bias)}
		}
		raw.logit_bias, raw.logit_bias_count = at, C.size_t(n)
	}
	if n := len(o.StopStrings); n > 0 {
		at := (**C.char)(arena.bytes(n * int(unsafe.Sizeof((*C.char)(nil)))))
		for i, text := range o.StopStrings {
			if unsafe.Slice(at, n)[i], err = arena.text("StopStrings", text); err != nil {
				return raw, err
			}
		}
		raw.stop_strings, raw.stop_string_count = at, C.size_t(n)
	}
	return raw, nil
}

// Open opens an empty sequence.
//
// Errors: ErrInvalidArgument (names the field, value and limit), ErrBusy (MaxSequences are open).
func (e *Engine) Open(options *SequenceOptions) (*Sequence, error) {
	var arena cArena
	defer arena.release()
	raw, err := options.raw(&arena)
	if err != nil {
		return nil, err
	}
	s := &Sequence{engine: e}
	_, err = e.call(func() C.mainarch_status {
		return C.mainarch_sequence_open(e.ptr, &raw, &s.id, e.err)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the sequence and gives back its KV pages. It is ErrNotFound the second time, and
// os.ErrClosed when the engine is.
func (s *Sequence) Close() error {
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_close(s.engine.ptr, s.id, s.engine.err)
	})
	return err
}

// Fork makes a copy with the same tokens, options and seed, sharing KV pages until either writes to
// them. It has nothing to take. Errors: ErrBusy (MaxSequences are open).
func (s *Sequence) Fork() (*Sequence, error) {
	fork := &Sequence{engine: s.engine}
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_fork(s.engine.ptr, s.id, &fork.id, s.engine.err)
	})
	if err != nil {
		return nil, err
	}
	return fork, nil
}

// SetSeed changes the seed for the tokens to come.
func (s *Sequence) SetSeed(seed uint64) error {
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_set_seed(s.engine.ptr, s.id, C.uint64_t(seed), s.engine.err)
	})
	return err
}

// SetOptions gives the sequence other options, all of them, for the tokens to come. Tokens, and a finish
// reason, stay: Truncate at the tokens held lets a sequence go on that has ended.
//
// Errors: ErrInvalidArgument (names the field, value and limit; also when Manual would change), ErrBusy
// (Logprobs would change while produced tokens are untaken). Then nothing has changed.
func (s *Sequence) SetOptions(options *SequenceOptions) error {
	var arena cArena
	defer arena.release()
	raw, err := options.raw(&arena)
	if err != nil {
		return err
	}
	_, err = s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_set_options(s.engine.ptr, s.id, &raw, s.engine.err)
	})
	return err
}

// SetMask says which tokens may be sampled next: bit t % 32 of words[t / 32] is set when token t may;
// words that are missing are 0. It holds for one token: set the next one after each. No words: every
// token may come.
//
// Errors: ErrInvalidArgument (more words than the vocabulary has; a manual sequence).
func (s *Sequence) SetMask(words []uint32) error {
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_set_mask(s.engine.ptr, s.id, tokensAt(words), C.size_t(len(words)), s.engine.err)
	})
	return err
}

// Export gives the sequence as bytes: tokens, options, what is still to be taken; not its KV. They are good
// for any engine of the same model.
func (s *Sequence) Export() ([]byte, error) {
	return s.export(0)
}

// ExportKV is Export, and K and V with it: many bytes. An engine of the same kind of device, as many
// ranks and the same options does not run those tokens again.
func (s *Sequence) ExportKV() ([]byte, error) {
	return s.export(C.MAINARCH_EXPORT_KV)
}

func (s *Sequence) export(flags C.uint64_t) ([]byte, error) {
	var bytes []byte
	_, err := s.engine.call(func() C.mainarch_status {
		var count C.size_t
		status := C.mainarch_sequence_export_with(s.engine.ptr, s.id, flags, nil, 0, &count, s.engine.err)
		if Status(status) != ErrBufferTooSmall {
			return status
		}
		bytes = make([]byte, count)
		return C.mainarch_sequence_export_with(s.engine.ptr, s.id, flags, unsafe.Pointer(&bytes[0]), count, &count, s.engine.err)
	})
	return bytes, err
}

// Import makes a new sequence of what Export gave: it goes on as the exported one would have.
//
// Errors: ErrInvalidArgument (names the field; also a sequence of another model), ErrUnsupported (another
// version of the format), ErrBusy (MaxSequences are open), ErrKVFull.
func (e *Engine) Import(bytes []byte) (*Sequence, error) {
	s := &Sequence{engine: e}
	var at unsafe.Pointer
	if len(bytes) > 0 {
		at = unsafe.Pointer(&bytes[0])
	}
	_, err := e.call(func() C.mainarch_status {
		return C.mainarch_sequence_import(e.ptr, at, C.size_t(len(bytes)), &s.id, e.err)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Ready gives the sequences that have tokens to take, or have ended and no Take since has left nothing
// to take, or are manual and have logits; in the order in which they came to that.
func (e *Engine) Ready() ([]*Sequence, error) {
	ids := make([]C.mainarch_sequence, 16)
	var count C.size_t
	for {
		_, err := e.call(func() C.mainarch_status {
			return C.mainarch_engine_ready(e.ptr, &ids[0], C.size_t(len(ids)), &count, e.err)
		})
		if errors.Is(err, ErrBufferTooSmall) {
			ids = make([]C.mainarch_sequence, count)
			continue
		}
		if err != nil {
			return nil, err
		}
		ready := make([]*Sequence, count)
		for i := range ready {
			ready[i] = &Sequence{engine: e, id: ids[i]}
		}
		return ready, nil
	}
}

// Is says whether both are the same sequence.
func (s *Sequence) Is(other *Sequence) bool {
	return s.engine == other.engine && s.id == other.id
}

// Truncate drops every token from position on, produced ones that were not taken included, and the
// finish reason. The sequence goes on from there.
func (s *Sequence) Truncate(position uint64) error {
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_truncate(s.engine.ptr, s.id, C.uint64_t(position), s.engine.err)
	})
	return err
}

// Append adds tokens: a prompt, a further turn, or the token that a manual sequence chose. Clears the
// finish reason; limits and stop sequences count from here on.
//
// Errors: ErrInvalidArgument (a token outside the vocabulary), ErrKVFull (more than could ever fit).
func (s *Sequence) Append(tokens ...uint32) error {
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_append(s.engine.ptr, s.id, tokensAt(tokens), C.size_t(len(tokens)), s.engine.err)
	})
	return err
}

// Take moves produced tokens into tokens, oldest first, and says how many; 0: none yet, or none any
// more.
//
// Errors: ErrBadModel or ErrInvalidArgument (the sequence ended with FinishFault, and its tokens have been
// taken).
func (s *Sequence) Take(tokens []uint32) (int, error) {
	if len(tokens) == 0 {
		return 0, nil
	}
	var count C.size_t
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_take(s.engine.ptr, s.id, tokensAt(tokens), C.size_t(len(tokens)), &count, s.engine.err)
	})
	return int(count), err
}

// Logprobs gives log-probabilities at token index of the last Take: the token itself first, then the
// likeliest ones, descending, as many as SequenceOptions.Logprobs.
func (s *Sequence) Logprobs(index int) ([]Logprob, error) {
	return s.logprobs(func(raw *C.mainarch_logprob, capacity C.size_t, count *C.size_t) C.mainarch_status {
		return C.mainarch_sequence_logprobs(s.engine.ptr, s.id, C.size_t(index), raw, capacity, count, s.engine.err)
	})
}

// PromptLogprobs gives log-probabilities of the appended token at position, given those before it: the
// token itself first, then the likeliest ones, descending, as many as SequenceOptions.PromptLogprobs.
//
// Errors: ErrInvalidArgument (opened without PromptLogprobs; position 0, a produced token, or one that is
// not held), ErrBusy (the row before has not run yet).
func (s *Sequence) PromptLogprobs(position uint64) ([]Logprob, error) {
	return s.logprobs(func(raw *C.mainarch_logprob, capacity C.size_t, count *C.size_t) C.mainarch_status {
		return C.mainarch_sequence_prompt_logprobs(s.engine.ptr, s.id, C.uint64_t(position), raw, capacity, count, s.engine.err)
	})
}

func (s *Sequence) logprobs(ask func(*C.mainarch_logprob, C.size_t, *C.size_t) C.mainarch_status) ([]Logprob, error) {
	raw := make([]C.mainarch_logprob, 33) // the token, and at most 32
	var count C.size_t
	_, err := s.engine.call(func() C.mainarch_status {
		return ask(&raw[0], C.size_t(len(raw)), &count)
	})
	if err != nil {
		return nil, err
	}
	logprobs := make([]Logprob, count)
	for i := range logprobs {
		logprobs[i] = Logprob{uint32(raw[i].token), float32(raw[i].logprob)}
	}
	return logprobs, nil
}

// Logits gives the raw logits after the last token, ModelInfo.VocabSize of them. Those of a manual
// sequence stay until it is appended to or truncated, those of others until the next step.
//
// Errors: ErrBusy (there are none: tokens are still to be run, or a later step has gone over them),
// ErrBadModel (one is not a number, or infinite).
func (s *Sequence) Logits() ([]float32, error) {
	return s.logits(func(raw *C.float, capacity C.size_t, count *C.size_t) C.mainarch_status {
		return C.mainarch_sequence_logits(s.engine.ptr, s.id, raw, capacity, count, s.engine.err)
	})
}

// LogitsAt gives the raw logits after the token at position, one of those that the last step of a
// sequence with AllLogits ran: SequenceInfo says which. Until the next step, Append or Truncate.
//
// Errors: ErrInvalidArgument (opened without AllLogits, or another position).
func (s *Sequence) LogitsAt(position uint64) ([]float32, error) {
	return s.logits(func(raw *C.float, capacity C.size_t, count *C.size_t) C.mainarch_status {
		return C.mainarch_sequence_logits_at(s.engine.ptr, s.id, C.uint64_t(position), raw, capacity, count, s.engine.err)
	})
}

func (s *Sequence) logits(ask func(*C.float, C.size_t, *C.size_t) C.mainarch_status) ([]float32, error) {
	var logits []float32
	_, err := s.engine.call(func() C.mainarch_status {
		var count C.size_t
		status := ask(nil, 0, &count)
		if Status(status) != ErrBufferTooSmall {
			return status
		}
		logits = make([]float32, count)
		return ask((*C.float)(unsafe.Pointer(&logits[0])), count, &count)
	})
	return logits, err
}

// Info is about the sequence.
func (s *Sequence) Info() (SequenceInfo, error) {
	var raw C.mainarch_sequence_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	_, err := s.engine.call(func() C.mainarch_status {
		return C.mainarch_sequence_info_get(s.engine.ptr, s.id, &raw, s.engine.err)
	})
	if err != nil {
		return SequenceInfo{}, err
	}
	return SequenceInfo{
		Position: uint64(raw.position),
		Tokens:   uint64(raw.tokens),
		Pending:  uint64(raw.pending),
		Produced: uint64(raw.produced),
		Untaken:  uint64(raw.untaken),
		Finish:   Finish(raw.finish),

		TextBytes: uint64(raw.text_bytes),

		LogitPosition: uint64(raw.logit_position),
		LogitRows:     uint64(raw.logit_rows),
	}, nil
}

// Tokens gives the tokens as they come, stepping as needed, until the sequence ends, has nothing to
// run, or yield says false: what was not given out can still be taken. Other sequences take part in
// the steps, and other goroutines may step as well.
func (s *Sequence) Tokens(ctx context.Context, yield func(token uint32) bool) error {
	var token [1]uint32
	idle := false // the last step found no work
	for {
		count, err := s.Take(token[:])
		if err != nil {
			return err
		}
		if count > 0 {
			idle = false
			if !yield(token[0]) {
				return nil
			}
			continue
		}
		info, err := s.Info()
		if err != nil {
			return err
		}
		if info.Untaken > 0 {
			continue // another goroutine's step has just produced it
		}
		if idle || info.Finish != FinishNone {
			return nil
		}
		worked, err := s.engine.Step(ctx)
		if err != nil {
			return err
		}
		idle = !worked
	}
}

// Text gives the text as it comes, in pieces of whole characters, none empty, until the sequence ends
// or yield says false. The decoder is this text's alone meanwhile.
func (s *Sequence) Text(ctx context.Context, decoder *Decoder, yield func(piece string) bool) error {
	stopped := false
	give := func(piece string, err error) error {
		if err == nil && piece != "" {
			stopped = !yield(piece)
		}
		return err
	}
	var failed error
	err := s.Tokens(ctx, func(token uint32) bool {
		failed = give(decoder.Push(token))
		return failed == nil && !stopped
	})
	if err != nil || failed != nil || stopped {
		if failed != nil {
			return failed
		}
		return err
	}
	return give(decoder.Finish())
}
