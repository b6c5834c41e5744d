package daemon

import (
	"sync/atomic"
	"unsafe"
)

// loadWord, storeWord and takeWord are a C client's atomics (docs/ABI.md A6.5).
func loadWord(b []byte, at int) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[at]))) }

func storeWord(b []byte, at int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[at])), v)
}

func takeWord(b []byte, at int) uint32 {
	return atomic.SwapUint32((*uint32)(unsafe.Pointer(&b[at])), 0)
}
