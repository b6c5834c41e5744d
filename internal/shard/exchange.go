package shard

import (
	"os"
	"sync"

	"multiedge/regmem"
	"multiedge/remap"
)

// Exchange is what an embedded daemon with page exchange has beside its regions. lock guards spaces; the shard owns the
// rest.
type Exchange struct {
	exchanger remap.Exchanger
	lock      sync.Mutex
	spaces    map[*regmem.Region]*remap.Shared // of the regions that have a pool
}

func newExchange() *Exchange {
	x := &Exchange{spaces: map[*regmem.Region]*remap.Shared{}}
	x.exchanger.Prepare()
	return x
}

// Allocate returns memory for a region of size bytes, and the space behind it, nil where pages are not exchanged.
func (x *Exchange) Allocate(size int) (*regmem.Memory, *remap.Shared, error) {
	if !x.exchanges(size) {
		m, err := regmem.Alloc(size, regmem.Named("edge-region"), regmem.Offered())
		return m, nil, err
	}
	s, err := remap.NewShared(size, remap.Options{})
	if err != nil {
		return nil, nil, err
	}
	m := s.Memory()
	return m, s, s.Close() // the memory holds it now
}

// exchanges reports whether a region of size bytes has a pool. Sizes that are the same number of pages are treated
// alike.
func (x *Exchange) exchanges(size int) bool {
	page := os.Getpagesize()
	return x != nil && size > 0 && size < largestPooled && (remap.Options{}).Fits((size+page-1)&^(page-1))
}

// largestPooled is above any memory there is, and far enough below the largest int to round up, in bytes.
const largestPooled = 1 << 60

// Pins is how many bytes a region of size bytes pins.
func (x *Exchange) Pins(size int) int {
	if !x.exchanges(size) {
		return size
	}
	return remap.Options{}.Pinned(size)
}

// add makes a region's pages exchangeable. The shard calls it.
func (x *Exchange) add(r *regmem.Region, s *remap.Shared) {
	if s == nil {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	x.spaces[r] = s
	x.exchanger.Add(s.Space)
}

// remove puts everything in place in a region that is about to go, and forgets it. The shard calls it.
func (x *Exchange) remove(r *regmem.Region) {
	if x == nil {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	if s := x.spaces[r]; s != nil {
		x.exchanger.Remove(s.Space)
		delete(x.spaces, r)
	}
}

// Has reports whether a region's pages are exchanged. Any goroutine may call it.
func (x *Exchange) Has(r *regmem.Region) bool {
	if x == nil {
		return false
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	return x.spaces[r] != nil
}

// settle puts everything in place before a key is revoked: nothing may change afterwards. The shard calls it.
func (x *Exchange) settle() {
	if x != nil {
		x.exchanger.SettleAll()
	}
}

// Memory returns the memory of a region by a descriptor of it, or nil. The caller closes it. Any goroutine may call it.
func (x *Exchange) Memory(fd int) *regmem.Memory {
	if x == nil {
		return nil
	}
	id := remap.IdentityOf(fd)
	x.lock.Lock()
	defer x.lock.Unlock()
	for _, s := range x.spaces {
		if s.Identity() == id {
			return s.Memory()
		}
	}
	return nil
}
