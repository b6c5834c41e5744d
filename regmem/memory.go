package regmem

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
)

// Memory is page-aligned memory that can be registered: sealed, shared between processes and usually pinned (from Alloc
// or Map), or any bytes of this process (from Wrap). One goroutine at a time may change it; its bytes are shared by
// nature.
//
// Sealed means that the size can never change, so that no holder of the descriptor can make another one's access fault.
// Holes can be punched into it by a holder, which turns bytes into zeros and gives pages back, unless it was Offered
// and then fixed (Fix).
type Memory struct {
	buf    []byte // nil once closed
	fd     int    // -1: no descriptor
	pinned bool
	unmap  func(*Memory) error // nil: the bytes were never mapped by this package
}

// pinned is the sum over all Memory of this process.
var pinned atomic.Int64

// Pinned returns how many bytes this process keeps pinned through this package.
func Pinned() int64 { return pinned.Load() }

// Wrap makes memory of bytes the caller already has: for the embedded attachment and the simulator. It is not pinned
// and has no descriptor. An empty slice is valid and reaches nothing.
func Wrap(b []byte) *Memory {
	if b == nil {
		b = []byte{}
	}
	return &Memory{buf: b[:len(b):len(b)], fd: -1}
}

// Bytes returns the memory itself, nil once it is closed. No use of it may outlive Close: the addresses are gone then.
func (m *Memory) Bytes() []byte { return m.buf }

// Len returns the size in bytes, of Alloc and Map a multiple of the page size; 0 once closed.
func (m *Memory) Len() int { return len(m.buf) }

// FD returns the descriptor to pass to another process, -1 if there is none. It stays the memory's own.
func (m *Memory) FD() int { return m.fd }

// Pinned says whether the pages are locked in place by this mapping.
func (m *Memory) Pinned() bool { return m.pinned }

// Close unpins and unmaps the bytes and closes the descriptor. Other processes keep theirs. Closing twice does nothing.
func (m *Memory) Close() error {
	if m.buf == nil {
		return nil
	}
	var err error
	if m.unmap != nil {
		err = m.unmap(m)
	}
	m.setPinned(false)
	m.buf, m.fd = nil, -1
	return err
}

// setPinned keeps Pinned in step; call it while buf is still there.
func (m *Memory) setPinned(on bool) {
	if on == m.pinned {
		return
	}
	m.pinned = on
	if on {
		pinned.Add(int64(len(m.buf)))
	} else {
		pinned.Add(-int64(len(m.buf)))
	}
}

// roundUp returns size in whole pages, or an error wrapping ErrSize.
func roundUp(size int) (int, error) {
	page := os.Getpagesize()
	if size <= 0 || size > math.MaxInt-page {
		return 0, fmt.Errorf("%w: %d bytes; ask for at least one and no more than the machine has", ErrSize, size)
	}
	return (size + page - 1) &^ (page - 1), nil
}
