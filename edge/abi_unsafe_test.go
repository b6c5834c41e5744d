package edge

import (
	"sync/atomic"
	"unsafe"
)

// controlWord is a control word of the rings, as docs/ABI.md A6.3 places it.
func controlWord(mem []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at]))
}
