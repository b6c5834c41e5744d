package edge

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Uint64 returns the 8 bytes at off as a number in this host's byte order, to be read and written together with peers:
// a peer's aligned 8-byte write, and its atomics, are seen whole (docs/MEMORY.md). It panics unless off is a multiple
// of 8 and the bytes are within the region, as an index out of range does, and for memory of heap.Range, which
// has no Bytes. It may be used until the region is closed.
func (r *Region) Uint64(off int) *atomic.Uint64 {
	if off < 0 || off%8 != 0 || off > len(r.bytes)-8 {
		panic(fmt.Sprintf("edge: Region.Uint64(%d) of a region with %d bytes: choose a multiple of 8 within it", off,
			len(r.bytes)))
	}
	return (*atomic.Uint64)(unsafe.Pointer(&r.bytes[off]))
}
