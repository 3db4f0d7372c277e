// SPDX-License-Identifier: MIT

// Package mainarch is LLM inference as a library: Go over libmainarch, found by pkg-config.
//
//	Group               devices: GPUs, or the CPU
//	Model               a checked checkpoint, its weights placed on a group
//	Tokenizer, Decoder  text to tokens, and tokens to text as they come
//	Engine              KV cache and scheduler over one model; it steps
//	Sequence            one text in one engine
//
// The loop is that of the example at Sequence.Text, which does the steps; without it:
//
//	append(prompt)  ->  step, take, step, take, ...  until the sequence has a finish reason
//
// # Closing
//
// What is opened is closed by Close, once or more often, in any order: a child keeps its parents
// alive inside the library. There are no finalizers: what is not closed stays until the process
// ends, whenever the garbage collector runs. A call on what is closed is an error that is
// os.ErrClosed. Close waits for calls that are under way; Engine.Close cancels the step first.
//
// # Goroutines
//
// Everything may be used by any number of goroutines. Calls on one engine and its sequences, and on
// one decoder, go one after the other (a mutex each); those on groups, models and tokenizers at
// once. Goroutines that share an engine, each with a sequence of its own, may all call Step, or
// Text: every step takes all sequences along.
//
// # Contexts
//
// Where a call takes a context, its end makes the step in flight end soon, with every sequence as it
// was before that step; the error is then both ErrCancelled and the context's.
//
// # Errors
//
// Errors of the library are of type *Error, with status, errno, device and a message that names the
// file, field, value and limit. errors.Is knows the statuses (ErrNotFound, ErrKVFull, ...), and
// errno by way of syscall.Errno (fs.ErrNotExist). The library never aborts, whatever it is given.
//
// Truncating a checkpoint's files while a model of it is open makes the next access a SIGBUS, which
// no package can turn into an error.
package mainarch
