// SPDX-License-Identifier: MIT

package mainarch

// #include <mainarch.h>
// #include <stdlib.h>
import "C"

import "unsafe"

// cArena is C memory for one call: what a C struct points to must not be Go's.
type cArena struct{ blocks []unsafe.Pointer }

func (a *cArena) bytes(size int) unsafe.Pointer {
	block := C.malloc(C.size_t(size))
	a.blocks = append(a.blocks, block)
	return block
}

// text is a zero-terminated copy; what is for the message when there is a zero inside.
func (a *cArena) text(what, text string) (*C.char, error) {
	copied, err := cString(what, text)
	if err == nil {
		a.blocks = append(a.blocks, unsafe.Pointer(copied))
	}
	return copied, err
}

// tokens is a copy; NULL when there are none.
func (a *cArena) tokens(tokens []uint32) *C.uint32_t {
	if len(tokens) == 0 {
		return nil
	}
	at := (*C.uint32_t)(a.bytes(4 * len(tokens)))
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(at)), len(tokens)), tokens)
	return at
}

func (a *cArena) release() {
	for _, block := range a.blocks {
		C.free(block)
	}
	a.blocks = nil
}
