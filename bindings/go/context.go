// SPDX-License-Identifier: MIT

package mainarch

import (
	"context"
	"time"
)

// watch calls cancel when the context ends, and again every millisecond until done is called: a
// cancel before the library has begun is nothing to it. After done it is never called.
func watch(ctx context.Context, cancel func()) (done func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			return
		case <-ctx.Done():
		}
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			cancel()
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func cancelledBy(cause error) *Error {
	return &Error{Status: ErrCancelled, Device: -1, Message: cause.Error(), cause: cause}
}

// withContext says of what was cancelled that it was the context that did.
func withContext(ctx context.Context, err *Error) *Error {
	if cause := ctx.Err(); cause != nil && err.Status == ErrCancelled {
		err.cause = cause
	}
	return err
}
