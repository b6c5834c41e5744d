package op

import (
	"sync/atomic"
	"unsafe"

	"multiedge/internal/wire"
)

// aligned reports whether b begins at a multiple of its length, a power of two.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(&b[0]))&uintptr(len(b)-1) == 0 }

// atomicTries is how often an atomic is tried while others change the value between its look and its store. Each
// failure is somebody's success; a program that maps the memory and spins on it with all its threads must not hold the
// shard's thread for long.
const atomicTries = 1 << 12

// performAtomic does f to the value at b, 4 or 8 aligned bytes, by the processor's own atomic instructions, and returns
// what was there. It reports false, and nothing was changed, if others changed the value at every try.
func performAtomic(b []byte, f wire.AtomicFunc, x, y uint64) (was uint64, ok bool) {
	if len(b) == 4 {
		v, ok := atomic32((*uint32)(unsafe.Pointer(&b[0])), f, uint32(x), uint32(y))
		return uint64(v), ok
	}
	return atomic64((*uint64)(unsafe.Pointer(&b[0])), f, x, y)
}

func atomic64(p *uint64, f wire.AtomicFunc, x, y uint64) (was uint64, ok bool) {
	switch f {
	case wire.AtomicAdd:
		return atomic.AddUint64(p, x) - x, true
	case wire.AtomicSwap:
		return atomic.SwapUint64(p, x), true
	}
	for range atomicTries {
		was = atomic.LoadUint64(p)
		next, changes := combine(f, was, x, y, int64(was) < int64(x))
		if !changes || atomic.CompareAndSwapUint64(p, was, next) {
			return was, true
		}
	}
	return 0, false
}

func atomic32(p *uint32, f wire.AtomicFunc, x, y uint32) (was uint32, ok bool) {
	switch f {
	case wire.AtomicAdd:
		return atomic.AddUint32(p, x) - x, true
	case wire.AtomicSwap:
		return atomic.SwapUint32(p, x), true
	}
	for range atomicTries {
		was = atomic.LoadUint32(p)
		next, changes := combine(f, uint64(was), uint64(x), uint64(y), int32(was) < int32(x))
		if !changes || atomic.CompareAndSwapUint32(p, was, uint32(next)) {
			return was, true
		}
	}
	return 0, false
}
