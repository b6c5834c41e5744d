package hostile

import (
	"math/rand/v2"

	"multiedge/internal/ipc"
)

// space is a space that was mapped.
type space struct {
	region uint32
	size   uint64
}

// mostSpaces is how many it has at once, at most.
const mostSpaces = 8

// spaces maps spaces up to the largest there can be, advises all over them, ranges beyond their ends included, and has
// peers' bytes come to places in them that were never touched.
func spaces(c *client, r *rand.Rand) (uint64, error) {
	if len(c.spaces) == 0 || len(c.spaces) < mostSpaces && r.IntN(64) == 0 {
		if err := c.mapSpace(r); err != nil {
			return 1, err
		}
	}
	if len(c.spaces) == 0 {
		return 1, nil
	}
	i := r.IntN(len(c.spaces))
	s := c.spaces[i]
	off := r.Uint64N(s.size)
	n := min(s.size-off, 64<<10)
	for range 8 {
		_, err := c.post(&ipc.SQE{Op: ipc.OpRead, Conn: c.link, Key: c.key, Region: s.region, LocalOff: off, Len: n,
			Token: r.Uint64()}, depth/2)
		if err != nil {
			return 0, err
		}
		off = r.Uint64N(s.size - n + 1)
	}
	m := &ipc.Message{Kind: ipc.KindAdvise, Region: s.region, Size: s.size}
	switch k := r.IntN(16); {
	case k == 0:
		m = &ipc.Message{Kind: ipc.KindUsage, Region: s.region, Size: s.size}
	case k == 1:
		m.Off, m.Size, m.Advice = r.Uint64(), r.Uint64(), ipc.Advice(r.Uint32N(8))
	case k == 2:
		m.Off, m.Size, m.Advice = off, n, ipc.AdviceHold
	default:
		m.Advice = []ipc.Advice{ipc.AdvicePrefetch, ipc.AdviceRelease, ipc.AdviceEvict}[k%3]
	}
	_, err := c.demand(m)
	if _, refused := err.(*ipc.Error); refused {
		c.refusals++
		err = nil
	}
	if err == nil && len(c.spaces) == mostSpaces { // while peers' bytes come there
		if _, err = c.demand(&ipc.Message{Kind: ipc.KindDeregister, Region: s.region}); err == nil {
			c.spaces = append(c.spaces[:i], c.spaces[i+1:]...)
		} else if _, busy := err.(*ipc.Error); busy {
			err = nil
		}
	}
	return 1, err
}

// usageSpace is the size of the space that usage asks about, in chunks of the least size: the daemon has as many tables
// to go through as there can be for its memory.
const usageSpace = 500 << 30

// usage maps a space, and asks about all of it.
func usage(c *client, _ *rand.Rand) (uint64, error) {
	if len(c.spaces) == 0 {
		a, err := c.demand(&ipc.Message{Kind: ipc.KindMap, Size: usageSpace,
			Space: ipc.Space{Pin: 64 << 10, Chunk: 4 << 10}})
		ipc.CloseFDs(a.fds)
		if err != nil {
			return 0, err
		}
		c.spaces = append(c.spaces, space{a.m.Region, usageSpace})
		if _, err := c.demand(&ipc.Message{Kind: ipc.KindMapped, Region: a.m.Region}); err != nil {
			return 0, err
		}
	}
	_, err := c.demand(&ipc.Message{Kind: ipc.KindUsage, Region: c.spaces[0].region, Size: usageSpace})
	if err == nil {
		c.ended++
	}
	return 1, err
}

// mapSpace maps one more, or is refused.
func (c *client) mapSpace(r *rand.Rand) error {
	size := uint64(1) << (20 + r.IntN(28))
	a, err := c.demand(&ipc.Message{Kind: ipc.KindMap, Size: size, Space: ipc.Space{Pin: 1 << (22 + r.IntN(8)),
		Chunk: uint32(4<<10) << r.IntN(10), Policy: r.Uint32N(5), Huge: r.IntN(4) == 0}})
	ipc.CloseFDs(a.fds)
	if err == nil {
		c.spaces = append(c.spaces, space{a.m.Region, size})
		_, err = c.demand(&ipc.Message{Kind: ipc.KindMapped, Region: a.m.Region})
	}
	if _, ok := err.(*ipc.Error); ok {
		c.refusals++
		return nil
	}
	return err
}
