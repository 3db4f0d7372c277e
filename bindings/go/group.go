// SPDX-License-Identifier: MIT

package mainarch

/*
#include <mainarch.h>
#include <stdlib.h>

extern void mainarchGoLog(void *user, int32_t level, char *line);

static inline void mainarch_go_set_log(mainarch_group_options *options, void *user) {
	options->log = (mainarch_log_fn)mainarchGoLog;
	options->log_user = user;
}
*/
import "C"

import (
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"unsafe"
)

// LogLevel is how talkative a line of log is.
type LogLevel int32

// The levels.
const (
	LogError   LogLevel = C.MAINARCH_LOG_ERROR
	LogWarning LogLevel = C.MAINARCH_LOG_WARNING
	LogInfo    LogLevel = C.MAINARCH_LOG_INFO
	LogDebug   LogLevel = C.MAINARCH_LOG_DEBUG
)

// A log function, held by all handles of a group: children log to it when the group is closed.
type logSink struct {
	write   func(level LogLevel, line string)
	handle  cgo.Handle
	memory  unsafe.Pointer // C memory that holds the handle
	holders int32          // atomic
}

func newLogSink(write func(LogLevel, string)) *logSink {
	if write == nil {
		return nil
	}
	sink := &logSink{write: write, memory: C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0))))}
	sink.handle = cgo.NewHandle(sink)
	*(*cgo.Handle)(sink.memory) = sink.handle
	return sink
}

func (s *logSink) hold() *logSink {
	if s != nil {
		atomic.AddInt32(&s.holders, 1)
	}
	return s
}

func (s *logSink) letGo() {
	if s != nil && atomic.AddInt32(&s.holders, -1) == 0 {
		s.handle.Delete()
		C.free(s.memory)
	}
}

// A panic must not unwind through the library.
//
//export mainarchGoLog
func mainarchGoLog(user unsafe.Pointer, level C.int32_t, line *C.char) {
	defer func() { _ = recover() }()
	sink := (*(*cgo.Handle)(user)).Value().(*logSink)
	sink.write(LogLevel(level), C.GoString(line))
}

// GroupOptions is how to open a group; nil and the zero struct are all defaults.
type GroupOptions struct {
	// CPU threads that compute, the caller's own among them, at most 1024; 0: one a core that this
	// process may use, within its control group's quota.
	Threads uint32
	// Read no environment variable (MAINARCH_LOG, MAINARCH_BACKEND, MAINARCH_DEVICES).
	IgnoreEnvironment bool
	// The most talkative level wanted; 0: LogInfo.
	LogLevel LogLevel
	// Takes one line of log, without a newline, on the goroutine whose call it is about; several
	// may at once. It must not call this package, and a panic in it ends there. nil: no log.
	Log func(level LogLevel, line string)
}

// Group is devices: GPUs, or the CPU.
type Group struct {
	mu  sync.RWMutex // read: in a call
	ptr *C.mainarch_group
	log *logSink
}

// DeviceInfo is about one device of a group.
type DeviceInfo struct {
	MemoryBytes  uint64 // of the device; for the CPU, of the machine
	FreeBytes    uint64 // of these, now
	ComputeUnits uint32 // of a GPU; for the CPU, threads that compute
	Name         string // "AMD Instinct MI355X"
	ISA          string // "gfx950"; for the CPU the kernels in use, such as "avx2"
}

// Open opens devices: "cpu", "cpu:N" (1, 2, 4 or 8 ranks, with the same results), "gpu", "gpu:0-7",
// "sim:gfx950x8", or "" for what the environment says, else the CPU.
//
// Errors: ErrInvalidArgument (a device string or environment variable that is wrong), ErrNoDevice,
// ErrPermission; of GPUs also ErrIO, ErrBusy, ErrOutOfDeviceMemory, ErrDeviceLost.
func Open(device string, options *GroupOptions) (*Group, error) {
	name, err := cString("device", device)
	if err != nil {
		return nil, err
	}
	defer free(name)
	var o GroupOptions
	if options != nil {
		o = *options
	}
	var raw C.mainarch_group_options
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	raw.threads = C.uint32_t(o.Threads)
	raw.log_level = C.int32_t(o.LogLevel)
	if o.IgnoreEnvironment {
		raw.flags |= C.MAINARCH_GROUP_IGNORE_ENVIRONMENT
	}
	log := newLogSink(o.Log).hold()
	if log != nil {
		C.mainarch_go_set_log(&raw, log.memory)
	}
	var out *C.mainarch_group
	var e C.mainarch_error
	if C.mainarch_group_open(name, &raw, &out, &e) < 0 {
		log.letGo()
		return nil, newError(&e)
	}
	return &Group{ptr: out, log: log}, nil
}

// Close lets go of the group. Models and engines made from it go on working. The error is nil.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ptr != nil {
		C.mainarch_group_destroy(g.ptr)
		g.ptr = nil
		g.log.letGo()
	}
	return nil
}

// DeviceCount is how many devices (ranks) the group has; 0 when it is closed.
func (g *Group) DeviceCount() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return int(C.mainarch_group_device_count(g.ptr))
}

// DeviceInfo is about device index, below DeviceCount.
func (g *Group) DeviceInfo(index int) (DeviceInfo, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.ptr == nil {
		return DeviceInfo{}, closed("group")
	}
	var raw C.mainarch_device_info
	raw.struct_size = C.size_t(unsafe.Sizeof(raw))
	var e C.mainarch_error
	if C.mainarch_group_device_info_get(g.ptr, C.size_t(index), &raw, &e) < 0 {
		return DeviceInfo{}, newError(&e)
	}
	return deviceInfo(&raw), nil
}

func deviceInfo(raw *C.mainarch_device_info) DeviceInfo {
	return DeviceInfo{
		MemoryBytes:  uint64(raw.memory_bytes),
		FreeBytes:    uint64(raw.free_bytes),
		ComputeUnits: uint32(raw.compute_units),
		Name:         C.GoString(&raw.name[0]),
		ISA:          C.GoString(&raw.isa[0]),
	}
}

// Device is a device of this machine, before it is opened.
type Device struct {
	Device   string     // the string that opens it: "cpu", "gpu:0"
	Info     DeviceInfo // what is known of it, also when it cannot be used
	Unusable string     // why it cannot be used; empty: it can
}

// Devices gives the devices of this machine: the CPU, then the GPUs by number. Nothing stays open.
//
// Errors: ErrIO, ErrBusy (GPUs come and go: ask again).
func Devices() ([]Device, error) {
	var list []Device
	for {
		var raw C.mainarch_device_info
		raw.struct_size = C.size_t(unsafe.Sizeof(raw))
		var e C.mainarch_error
		switch status := C.mainarch_device_get(C.size_t(len(list)), &raw, &e); {
		case Status(status) == ErrNotFound:
			return list, nil
		case status < 0:
			return nil, newError(&e)
		}
		list = append(list, Device{
			Device:   C.GoString(&raw.device[0]),
			Info:     deviceInfo(&raw),
			Unusable: C.GoString(&raw.reason[0]),
		})
	}
}
