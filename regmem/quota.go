package regmem

import (
	"fmt"
	"sync"
)

// Quota limits what one user may register: bytes pinned, and regions, since each costs kernel objects however small it
// is. It may be used by several goroutines. The zero Quota allows nothing.
type Quota struct {
	mu                   sync.Mutex
	maxBytes, maxRegions int
	bytes, regions       int // reserved; never negative, and above the limits only after SetLimits
}

// NewQuota returns a quota of bytes and regions; math.MaxInt is no limit.
func NewQuota(bytes, regions int) *Quota { return &Quota{maxBytes: bytes, maxRegions: regions} }

// SetLimits changes the limits. What is reserved stays, though it be more.
func (q *Quota) SetLimits(bytes, regions int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.maxBytes, q.maxRegions = bytes, regions
}

// Reserve accounts for one region of the given size, to be called before memory is obtained; Release undoes one.
func (q *Quota) Reserve(bytes int) error { return q.Charge(bytes, 1) }

// Release undoes one Reserve of the same size.
func (q *Quota) Release(bytes int) { q.Uncharge(bytes, 1) }

// Charge accounts for bytes in so many regions, none where the memory is another. Like Alloc it counts whole pages. On
// a *QuotaError, or an error wrapping ErrSize, nothing is reserved.
func (q *Quota) Charge(bytes, regions int) error {
	need, err := roundUp(bytes)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if regions > q.maxRegions-q.regions {
		return &QuotaError{What: "regions", Need: regions, Used: q.regions, Limit: q.maxRegions}
	}
	if need > q.maxBytes-q.bytes {
		return &QuotaError{What: "pinned bytes", Need: need, Used: q.bytes, Limit: q.maxBytes}
	}
	q.bytes += need
	q.regions += regions
	return nil
}

// Uncharge undoes one Charge of the same.
func (q *Quota) Uncharge(bytes, regions int) {
	need, err := roundUp(bytes)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || regions > q.regions || need > q.bytes {
		panic(fmt.Sprintf("BUG: regmem.Quota: %d bytes in %d regions released, %d bytes in %d regions reserved", bytes,
			regions, q.bytes, q.regions))
	}
	q.bytes -= need
	q.regions -= regions
}

// Used returns what is reserved.
func (q *Quota) Used() (bytes, regions int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.regions
}
