package edge

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net"
	"runtime"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// Policy says which chunks of a space are unpinned first to make room for others.
type Policy = regmem.Policy

// Policies. Cyclic uses of more than may be pinned want MRU, most others LRU or LFU.
const (
	LRU    = regmem.LRU    // the least recently used
	MRU    = regmem.MRU    // the most recently used
	LFU    = regmem.LFU    // the least frequently used
	MFU    = regmem.MFU    // the most frequently used
	Random = regmem.Random // any
)

// MapOptions are the properties of a space. The zero value is valid.
type MapOptions struct {
	Pin    int    // bytes that may be pinned at once; the user is charged for them; 0: 64 MiB, or Map's size if less
	Chunk  int    // bytes that are pinned together, a power of two from 4 KiB to 2 MiB; 0: 64 KiB
	Policy Policy // which chunks are unpinned first; the zero value is LRU
	// the program's own policy, instead of Policy: whether a is unpinned before b. Only embedded transports take one.
	// They call it to make room, for samples of 16 chunks. It must be quick, and must neither wait nor use the Device.
	Before func(a, b ChunkUse) bool
	PrePin int  // bytes from the start that are pinned before Map returns, at most half of Pin
	Huge   bool // in huge pages where the kernel gives them; chunks are of 2 MiB unless Chunk says otherwise
}

// ChunkUse is what a policy knows of a chunk that is pinned.
type ChunkUse = regmem.ChunkUse

// defaultPin is how much of a space is pinned if MapOptions do not say, in bytes.
const defaultPin = 64 << 20

// space is what a Region has besides, if not all of it is pinned.
type space struct {
	shift uint           // of a chunk's bytes
	hints []byte         // a bit for each chunk, set while it is pinned; all clear once the Region is closed
	mem   *regmem.Memory // theirs; nil: there are none
}

// Map returns a space: a Region of size bytes, up to 2^44, of which only the memory that operations use is resident. At
// most MapOptions.Pin bytes of that are pinned. A space serves for Post and Export like any other Region. An operation
// waits for memory that was never pinned, or that was evicted on a host with swap (Embedded.Misses); others go on. If
// the memory is not resident after a second, the operation fails with ErrMemory.
//
// Memory that was used stays filled until the Region is closed, whether it is pinned or not. If the daemon filled it,
// it counts against limits.filled of the daemon. A space cannot be renewed by Region.Renew. An error that wraps
// ErrMemlock, ErrLimit or ErrInvalid says what to change.
func (d *Device) Map(ctx context.Context, size int, o MapOptions) (*Region, error) {
	if size <= 0 || size > regmem.MaxSpace {
		return nil, invalid("a space of %d bytes; ask for 1 to 2^44", size)
	}
	if o.Chunk < 0 || o.Chunk > regmem.MaxChunk || o.Pin < 0 || o.PrePin < 0 {
		return nil, invalid("Map: no option is negative, and Chunk is at most %d", regmem.MaxChunk)
	}
	if o.Pin == 0 {
		o.Pin = max(min(defaultPin, size), 4*max(o.Chunk, regmem.DefaultChunk))
	}
	if o.PrePin > o.Pin/2 || o.PrePin > size {
		return nil, invalid("Map: PrePin of %d bytes; at most half of Pin, %d, and of the size", o.PrePin, o.Pin)
	}
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	m := &ipc.Message{Kind: ipc.KindMap, Size: uint64(size), Space: ipc.Space{Pin: uint64(o.Pin),
		Chunk: uint32(o.Chunk), Policy: uint32(o.Policy), Huge: o.Huge}}
	if o.Before != nil {
		if a.drive == nil {
			return nil, invalid("Map: Before is a function, which no daemon can call; choose a Policy, or say by " +
				"Hold, Release and Evict what is pinned")
		}
		m.Space.Policy = a.drive.Policy(o.Before)
	}
	r, err := a.obtain(ctx, m, size)
	if err != nil {
		return nil, err
	}
	if o.PrePin > 0 {
		if err := r.advise(ctx, ipc.AdviceHold, 0, o.PrePin); err != nil {
			r.Close()
			return nil, err
		}
		if err := r.Release(0, o.PrePin); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// mapHints maps what the daemon says of what is pinned; fds are those behind the memory's.
func mapHints(m *ipc.Message, fds []int) (*space, error) {
	chunk, hints := uint64(m.Space.Chunk), m.Space.Hints
	if chunk == 0 || chunk&(chunk-1) != 0 || (hints > 0) != (len(fds) == 1) || hints > math.MaxInt32 ||
		hints > 0 && hints < (m.Size+8*chunk-1)/(8*chunk) {
		return nil, fmt.Errorf("%w: the answer to a map has other chunks or hints than a space", ErrVersion)
	}
	s := &space{shift: uint(bits.TrailingZeros64(chunk))}
	if hints == 0 {
		return s, nil
	}
	var err error
	if s.mem, err = regmem.Map(fds[0], int(hints)); err != nil {
		return nil, err
	}
	s.hints = s.mem.Bytes()
	return s, nil
}

// close gives the hints up. Resident takes no lock against it: their addresses stay until nobody has the Region.
func (s *space) close() error {
	if s == nil || s.mem == nil {
		return nil
	}
	err := s.mem.Blank()
	runtime.AddCleanup(s, func(m *regmem.Memory) { m.Close() }, s.mem)
	s.mem = nil
	return err
}

// Resident reports whether bytes off to off+n are pinned, as far as this process can see without asking the daemon. The
// answer may be out of date; use it to choose what to post first. What is not pinned need not miss: with misses =
// "inline" it is used at once if it was pinned before. It takes two or three nanoseconds. All of a registered Region is
// resident.
func (r *Region) Resident(off, n int) bool {
	if uint64(off) > uint64(r.size) || uint64(n)-1 >= uint64(r.size)-uint64(off) {
		return false // n of 0 too
	}
	s := r.space
	if s == nil {
		return r.heap == nil
	}
	i, last := uint64(off)>>(s.shift&63), uint64(off+n-1)>>(s.shift&63)
	if i != last {
		return s.pinned(i, last)
	}
	one := i>>3 < uint64(len(s.hints)) && s.hints[i>>3]>>(i&7)&1 != 0 // without hints none
	runtime.KeepAlive(s)                                              // they stay mapped as long as it
	return one
}

// pinned is Resident for chunks i to last.
func (s *space) pinned(i, last uint64) bool {
	all := last>>3 < uint64(len(s.hints))
	for mask := ^uint64(0) << (i & 63); all && i <= last; mask = ^uint64(0) {
		if i|63 >= last {
			mask &= ^uint64(0) >> (^last & 63)
		}
		all = binary.LittleEndian.Uint64(s.hints[i>>6<<3:])&mask == mask
		i = i | 63 + 1
	}
	runtime.KeepAlive(s)
	return all
}

// check says what is wrong with a range.
func (r *Region) check(off, n int) error {
	if off < 0 || n <= 0 || off > r.size || n > r.size-off {
		return fmt.Errorf("%w: %d bytes from %d, of a region of %d", ErrBounds, n, off, r.size)
	}
	return nil
}

// Prefetch asks that bytes off to off+n be pinned soon, as far as there is room. On registered memory it does nothing.
func (r *Region) Prefetch(off, n int) error {
	return r.advise(context.Background(), ipc.AdvicePrefetch, off, n)
}

// Hold pins bytes off to off+n and returns once they are pinned. If they are not after a second, it fails with
// ErrMemory. They stay pinned until Release of the same range, which must follow each Hold. At most half of what the
// space may pin can be held at once.
func (r *Region) Hold(ctx context.Context, off, n int) error {
	return r.advise(ctx, ipc.AdviceHold, off, n)
}

// Release ends one Hold of the same range.
func (r *Region) Release(off, n int) error {
	return r.advise(context.Background(), ipc.AdviceRelease, off, n)
}

// Evict unpins bytes off to off+n, except those that are held or about to be used. Their contents stay, and the memory
// stays filled.
func (r *Region) Evict(off, n int) error {
	return r.advise(context.Background(), ipc.AdviceEvict, off, n)
}

func (r *Region) advise(ctx context.Context, what ipc.Advice, off, n int) error {
	if err := r.check(off, n); err != nil || r.space == nil {
		return err
	}
	_, err := r.d.call(ctx, &ipc.Message{Kind: ipc.KindAdvise, Region: r.id, Off: uint64(off), Size: uint64(n),
		Advice: what}, &call{})
	return err
}

// SpaceUsage counts what a space did since Map. Pinned is a size; all others are counts.
type SpaceUsage struct {
	Pinned         int    // bytes, or about to be
	Lookups, Hits  uint64 // uses by parts of operations; those that found all of it resident
	Soft           uint64 // of the hits, those that found some of it there but not pinned (misses = "inline")
	Cold, Capacity uint64 // chunks missed that were not resident before; that had been evicted
	Pins           uint64 // chunks
	Evictions      uint64
	Prefetched     uint64 // chunks pinned before an operation asked
	Used, Wasted   uint64 // of those: used before they were evicted, or not
}

// Usage asks the daemon for the counts of the space.
func (r *Region) Usage(ctx context.Context) (SpaceUsage, error) {
	if r.heap != nil {
		return SpaceUsage{}, nil
	}
	if r.space == nil {
		return SpaceUsage{Pinned: r.size}, nil
	}
	m, err := r.d.call(ctx, &ipc.Message{Kind: ipc.KindUsage, Region: r.id, Size: uint64(r.size)}, &call{})
	if err != nil {
		return SpaceUsage{}, err
	}
	u := &m.Usage
	return SpaceUsage{Pinned: int(u.Pinned), Lookups: u.Lookups, Hits: u.Hits, Soft: u.Soft, Cold: u.Cold,
		Capacity: u.Capacity, Pins: u.Pins, Evictions: u.Evictions, Prefetched: u.Prefetched, Used: u.Used,
		Wasted: u.Wasted}, nil
}

// spaceOf finishes a Region that a map was answered with.
func (d *attachment) spaceOf(m *ipc.Message, fds []int, size int) (*regmem.Memory, *space, error) {
	if m.Kind != ipc.KindMap {
		mem, err := d.mapMemory(m, fds, size)
		return mem, nil, err
	}
	if len(fds) == 0 {
		return nil, nil, net.ErrClosed
	}
	mem, err := d.mapMemory(m, fds[:1], size)
	if err != nil {
		ipc.CloseFDs(fds[1:])
		return nil, nil, err
	}
	s, err := mapHints(m, fds[1:])
	if err != nil {
		ipc.CloseFDs(fds[1:])
		mem.Close()
		return nil, nil, err
	}
	return mem, s, nil
}
