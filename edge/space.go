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

// space is what a Region has besides, if not all of it is pinned.
type space struct {
	shift uint           // of a chunk's bytes
	hints []byte         // a bit for each chunk, set while it is pinned; all clear once the Region is closed
	mem   *regmem.Memory // theirs; nil: there are none
}

// mapSpace makes a space. before is the program's own policy, nil if m names one.
func (d *Device) mapSpace(ctx context.Context, size int, m ipc.Space,
	before func(a, b regmem.ChunkUse) bool) (*Region, error) {
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	if before != nil {
		if a.drive == nil {
			return nil, invalid("Map: Before is a function, which no daemon can call; choose a Policy, or say by " +
				"Hold, Release and Evict what is pinned")
		}
		m.Policy = a.drive.Policy(before)
	}
	return a.obtain(ctx, &ipc.Message{Kind: ipc.KindMap, Size: uint64(size), Space: m}, size)
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

// close gives the hints up. resident takes no lock against it: their addresses stay until nobody has the Region.
func (s *space) close() error {
	if s == nil || s.mem == nil {
		return nil
	}
	err := s.mem.Blank()
	runtime.AddCleanup(s, func(m *regmem.Memory) { m.Close() }, s.mem)
	s.mem = nil
	return err
}

// resident reports whether bytes off to off+n are pinned, as far as this process can see without asking the daemon.
func (r *Region) resident(off, n int) bool {
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

// pinned is resident for chunks i to last.
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

func (r *Region) advise(ctx context.Context, what ipc.Advice, off, n int) error {
	if err := r.check(off, n); err != nil || r.space == nil {
		return err
	}
	_, err := r.d.call(ctx, &ipc.Message{Kind: ipc.KindAdvise, Region: r.id, Off: uint64(off), Size: uint64(n),
		Advice: what}, &call{})
	return err
}

// usage asks the daemon for the counts of the space. All of a registered region is pinned.
func (r *Region) usage(ctx context.Context) (ipc.Usage, error) {
	if r.heap != nil {
		return ipc.Usage{}, nil
	}
	if r.space == nil {
		return ipc.Usage{Pinned: uint64(r.size)}, nil
	}
	m, err := r.d.call(ctx, &ipc.Message{Kind: ipc.KindUsage, Region: r.id, Size: uint64(r.size)}, &call{})
	if err != nil {
		return ipc.Usage{}, err
	}
	return m.Usage, nil
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
