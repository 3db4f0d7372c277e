// SPDX-License-Identifier: MIT

// Package cgocost is what Go's own way into C costs: a C function that does nothing, and a bare call
// of the library with nothing of this module around it. Apart from the benchmarks because test files
// cannot use cgo.
package cgocost

/*
#cgo pkg-config: mainarch
#include <mainarch.h>
#include <stdlib.h>
// Not inlined, and not known to have no effect.
__attribute__((noinline)) static void empty(void) { __asm__ volatile(""); }
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Empty calls an empty C function.
func Empty() { C.empty() }

// Engine is a bare handle, without a lock.
type Engine struct {
	ptr   *C.mainarch_engine
	error *C.mainarch_error
}

// Open makes an engine on the CPU; it lives as long as the process.
func Open(checkpoint string) (*Engine, error) {
	path, device := C.CString(checkpoint), C.CString("cpu")
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(device))
	e := &Engine{error: (*C.mainarch_error)(C.malloc(C.sizeof_mainarch_error))}
	var group *C.mainarch_group
	var model *C.mainarch_model
	if C.mainarch_group_open(device, nil, &group, e.error) < 0 ||
		C.mainarch_model_open(group, path, nil, &model, e.error) < 0 ||
		C.mainarch_engine_create(model, nil, &e.ptr, e.error) < 0 {
		return nil, errors.New(C.GoString(&e.error.message[0]))
	}
	return e, nil
}

// Step is mainarch_engine_step and no more.
func (e *Engine) Step() int32 { return int32(C.mainarch_engine_step(e.ptr, e.error)) }
