// SPDX-License-Identifier: MIT

package mainarch

// #include <mainarch.h>
import "C"

import "unsafe"

// What the library needs of a Go slice: where it begins, NULL when it is empty. The slice's memory
// holds no pointers, and is kept alive by being an argument of the C call.
func tokensAt(tokens []uint32) *C.uint32_t {
	if len(tokens) == 0 {
		return nil
	}
	return (*C.uint32_t)(unsafe.Pointer(&tokens[0]))
}

func bytesAt(text []byte) *C.char {
	if len(text) == 0 {
		return nil
	}
	return (*C.char)(unsafe.Pointer(&text[0]))
}

// grow asks with buffers of growing capacity until the result fits; try gives how many elements
// there are, or what a capacity of is needed.
func grow(capacity int, try func(capacity int) (int, C.mainarch_status, *C.mainarch_error)) (int, error) {
	for {
		count, status, raw := try(capacity)
		if status >= 0 {
			return count, nil
		}
		if Status(status) != ErrBufferTooSmall || count <= capacity {
			return 0, newError(raw)
		}
		capacity = count
	}
}

func growTokens(guess int,
	call func(at *C.uint32_t, capacity C.size_t, count *C.size_t, e *C.mainarch_error) C.mainarch_status,
) ([]uint32, error) {
	var tokens []uint32
	var raw C.mainarch_error
	count, err := grow(guess, func(capacity int) (int, C.mainarch_status, *C.mainarch_error) {
		tokens = make([]uint32, capacity)
		var count C.size_t
		status := call(tokensAt(tokens), C.size_t(capacity), &count, &raw)
		return int(count), status, &raw
	})
	if err != nil {
		return nil, err
	}
	return tokens[:count], nil
}

// Text has a zero byte behind it, which the library's length does not count.
func growText(guess int,
	call func(at *C.char, capacity C.size_t, length *C.size_t, e *C.mainarch_error) C.mainarch_status,
) (string, error) {
	var text []byte
	var raw C.mainarch_error
	length, err := grow(guess+1, func(capacity int) (int, C.mainarch_status, *C.mainarch_error) {
		text = make([]byte, capacity)
		var length C.size_t
		status := call(bytesAt(text), C.size_t(capacity), &length, &raw)
		if status < 0 {
			return int(length) + 1, status, &raw
		}
		return int(length), status, &raw
	})
	if err != nil {
		return "", err
	}
	return string(text[:length]), nil
}
