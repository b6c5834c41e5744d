package ipc

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// word returns control word i. The mapping is page aligned, and NewRings checked that mem holds the control page.
func (r *Rings) word(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.mem[i*wordStride]))
}

// told returns the word at toldAt.
func (r *Rings) told() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.mem[toldAt])) }

// awaits returns the word at awaitsAt.
func (r *Rings) awaits() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.mem[awaitsAt])) }

// threadWord returns word i, from 0, of those on which threads of the client sleep.
func (r *Rings) threadWord(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.mem[wordsAt+i*wordsApart]))
}

// wakeOne wakes a thread of any process that waits for a futex (FUTEX_WAKE).
func wakeOne(word *atomic.Uint32) {
	const futexWake = 1
	_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1) // nobody there: no matter
}

// aligned reports whether words inside b can be accessed atomically.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 == 0 }
