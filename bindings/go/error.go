// SPDX-License-Identifier: MIT

package mainarch

/*
#cgo pkg-config: mainarch
#include <mainarch.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"syscall"
	"unsafe"
)

// Status is how a call failed, below 0. It is an error to compare with: errors.Is(err, ErrBusy).
// Newer libraries may have statuses that are not named here.
type Status int32

// The statuses, as in mainarch.h.
const (
	ErrInternal          Status = C.MAINARCH_ERROR_INTERNAL           // a bug in the library
	ErrInvalidArgument   Status = C.MAINARCH_ERROR_INVALID_ARGUMENT   // the message names it
	ErrUnsupported       Status = C.MAINARCH_ERROR_UNSUPPORTED        // not something this library does
	ErrNotFound          Status = C.MAINARCH_ERROR_NOT_FOUND          // no such file, token or sequence
	ErrBusy              Status = C.MAINARCH_ERROR_BUSY               // not now: a step is in flight
	ErrBufferTooSmall    Status = C.MAINARCH_ERROR_BUFFER_TOO_SMALL   // never out of this package
	ErrCancelled         Status = C.MAINARCH_ERROR_CANCELLED          // as asked for
	ErrOutOfHostMemory   Status = C.MAINARCH_ERROR_OUT_OF_HOST_MEMORY // or threads, or descriptors
	ErrOutOfDeviceMemory Status = C.MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY
	ErrKVFull            Status = C.MAINARCH_ERROR_KV_FULL       // the tokens could never fit
	ErrIO                Status = C.MAINARCH_ERROR_IO            // Errno says why
	ErrBadModel          Status = C.MAINARCH_ERROR_BAD_MODEL     // a damaged checkpoint
	ErrNoDevice          Status = C.MAINARCH_ERROR_NO_DEVICE     // no device as asked for
	ErrPermission        Status = C.MAINARCH_ERROR_PERMISSION    // there, but not for this user
	ErrDeviceLost        Status = C.MAINARCH_ERROR_DEVICE_LOST   // for good
	ErrWrongProcess      Status = C.MAINARCH_ERROR_WRONG_PROCESS // made before a fork
)

// Error is the status in words.
func (s Status) Error() string {
	return C.GoString(C.mainarch_status_string(C.mainarch_status(s)))
}

// Error is an error of the library.
type Error struct {
	Status  Status
	Errno   syscall.Errno // of the system call that failed, or 0
	Device  int           // index in the group of the device concerned, or -1
	Message string        // one line that names the file, field, value and limit
	cause   error         // of a context, or os.ErrClosed
}

// Error is the status in words, and the message.
func (e *Error) Error() string { return e.Status.Error() + ": " + e.Message }

// Is compares the status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap is the context's error, os.ErrClosed, or the errno.
func (e *Error) Unwrap() error {
	if e.cause != nil {
		return e.cause
	}
	if e.Errno != 0 {
		return e.Errno
	}
	return nil
}

func newError(raw *C.mainarch_error) *Error {
	device := -1
	if uint32(raw.device) != math.MaxUint32 {
		device = int(raw.device)
	}
	return &Error{
		Status:  Status(raw.status),
		Errno:   syscall.Errno(raw.os_errno),
		Device:  device,
		Message: C.GoString(&raw.message[0]),
	}
}

// Of a status that a call without a raw error gave.
func invalid(format string, values ...interface{}) *Error {
	return &Error{Status: ErrInvalidArgument, Device: -1, Message: fmt.Sprintf(format, values...)}
}

func closed(what string) *Error {
	e := invalid("the %s is closed", what)
	e.cause = os.ErrClosed
	return e
}

// A C string; the caller frees it.
func cString(what, text string) (*C.char, error) {
	for i := 0; i < len(text); i++ {
		if text[i] == 0 {
			return nil, invalid("%s has a zero byte at %d", what, i)
		}
	}
	return C.CString(text), nil
}

func free(p *C.char) { C.free(unsafe.Pointer(p)) }

// VersionString is the version of the library, "0.1.0", which may be newer than the package's header.
func VersionString() string { return C.GoString(C.mainarch_version_string()) }

// Version is the same as major << 16 | minor << 8 | patch.
func Version() uint32 { return uint32(C.mainarch_version()) }
