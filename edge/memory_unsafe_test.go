package edge

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// wordAt is the aligned word at p, as docs/MEMORY.md has it polled.
func wordAt(p []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p[:8][0])) }

// grantBytes makes a heap grant of b, as package heap does.
func grantBytes(ctx context.Context, d *Device, b []byte) (*Region, error) {
	return door{}.GrantHeap(ctx, d, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), uint64(len(b)), b)
}
