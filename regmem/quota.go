package regmem

import (
	"fmt"
	"sync"
)

// Quota limits what one user may register: bytes pinned, and regions, since each costs kernel objects however small it is.
// It may be used by several goroutines. The zero Quota allows nothing.
type Quota struct {
	mu                   sync.Mutex
	maxBytes, maxRegions int
	bytes, regions       int // reserved; never negative, never above the limits
}

// NewQuota returns a quota of bytes and regions; math.MaxInt is no limit.
func NewQuota(bytes, regions int) *Quota { return &Quota{maxBytes: bytes, maxRegions: regions} }

// Reserve accounts for one region of the given size, to be called before memory is obtained. Like Alloc it counts whole pages. On a
// *QuotaError, or an error wrapping ErrSize, nothing is reserved.
func (q *Quota) Reserve(bytes int) error {
	need, err := roundUp(bytes)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.regions >= q.maxRegions {
		return &QuotaError{What: "regions", Need: 1, Used: q.regions, Limit: q.maxRegions}
	}
	if need > q.maxBytes-q.bytes {
		return &QuotaError{What: "pinned bytes", Need: need, Used: q.bytes, Limit: q.maxBytes}
	}
	q.bytes += need
	q.regions++
	return nil
}

// Release undoes one Reserve of the same size.
func (q *Quota) Release(bytes int) {
	need, err := roundUp(bytes)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || q.regions == 0 || need > q.bytes {
		panic(fmt.Sprintf("BUG: regmem.Quota: %d bytes released, %d bytes in %d regions reserved", bytes, q.bytes, q.regions))
	}
	q.bytes -= need
	q.regions--
}

// Used returns what is reserved.
func (q *Quota) Used() (bytes, regions int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.regions
}
