package edge

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is the aligned word at p, as docs/MEMORY.md has it polled.
func wordAt(p []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p[:8][0])) }
