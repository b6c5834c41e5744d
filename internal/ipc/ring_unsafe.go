package ipc

import (
	"sync/atomic"
	"unsafe"
)

// word returns control word i. The mapping is page aligned, and NewRings checked that mem holds the control page.
func (r *Rings) word(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.mem[i*wordStride]))
}

// aligned reports whether words inside b can be accessed atomically.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 == 0 }
