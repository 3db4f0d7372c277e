// SPDX-License-Identifier: MIT

// Package cgocost is C functions that do nothing: what a call through cgo costs of itself. Apart from
// the benchmarks because test files cannot use cgo.
package cgocost

/*
#include <stddef.h>
#include <stdint.h>
// Not inlined, and not known to have no effect.
__attribute__((noinline)) static void empty(void) { __asm__ volatile(""); }
typedef struct cgocost_error { int32_t status; char message[508]; } cgocost_error;
typedef struct cgocost_engine cgocost_engine;
__attribute__((noinline)) static int32_t empty_step(cgocost_engine *engine, cgocost_error *error) {
	__asm__ volatile("" : : "r"(engine), "r"(error));
	return 1;
}
*/
import "C"

// Empty calls an empty C function.
func Empty() { C.empty() }

var fault C.cgocost_error

// Step calls an empty C function of mainarch_engine_step's form.
func Step() int32 { return int32(C.empty_step(nil, &fault)) }
