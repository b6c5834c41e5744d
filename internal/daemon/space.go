package daemon

import (
	"fmt"
	"math"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

// space is what a control connection keeps of a space, besides its region.
type space struct {
	pinned  *regmem.PinnedSpace
	hints   *regmem.Memory
	charged int    // bytes: what may be pinned, tables and hints
	unmap   func() // gives back what its addresses were charged
}

// mostHints is the largest bitmap of hints, in bytes: a space of more chunks has none.
const mostHints = 2 << 20

// mapSpace makes a space (A7.13). What it may pin is charged as if it were pinned, with its tables.
func (ss *controlConn) mapSpace(m *ipc.Message) (*ipc.Message, error) {
	want := &m.Space
	before := ss.d.takePolicy(want.Policy)
	if before != nil {
		want.Policy = 0
	}
	switch {
	case m.Size == 0 || m.Size > regmem.MaxSpace || want.Pin > math.MaxInt/2:
		return nil, ipc.Errorf(ipc.CodeInvalid, "a space of %d bytes that may pin %d cannot be", m.Size, want.Pin)
	case want.Policy >= uint32(len(regmem.Policies)):
		return nil, ipc.Errorf(ipc.CodeInvalid, "policy %d is not known", want.Policy)
	case want.Chunk > regmem.MaxChunk:
		return nil, ipc.Errorf(ipc.CodeInvalid, "chunks of %d bytes; at most %d", want.Chunk, regmem.MaxChunk)
	}
	if want.Huge && want.Chunk == 0 {
		want.Chunk = regmem.MaxChunk
	}
	cfg := regmem.SpaceConfig{Size: m.Size, Chunk: int(want.Chunk), Pin: want.Pin, Policy: regmem.Policy(want.Policy),
		Before: before, Ahead: regmem.AheadByName(ss.d.cfg.Prefetch), Seed: randomNonZero()}
	if ss.d.cfg.Misses == config.MissesInline {
		cfg.Swaps = regmem.Swaps
	}
	cost, err := regmem.SpaceCost(cfg)
	if err != nil {
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	hints := (cost.Chunks + 7) / 8
	if hints > mostHints {
		hints = 0
	}
	sp := &space{charged: int(cost.Pin) + cost.Table + int(hints)}
	if sp.unmap, err = ss.account.addresses(int(m.Size)); err != nil {
		return nil, err
	}
	if err := ss.account.reserve(sp.charged); err != nil {
		sp.unmap()
		return nil, err
	}
	ss.owe((cost.Table + int(hints)) / tablePerRequest)
	region := &regmem.Region{Owner: uint64(ss.cred.UID)}
	if err := ss.makeSpace(sp, region, cfg, int(hints), want.Huge); err != nil {
		ss.freeSpace(sp, region)
		return nil, err
	}
	ss.spaces[region] = sp
	reply := m.Reply()
	reply.Region, reply.Size = region.ID, uint64(region.Mem.Len())
	reply.Space.Chunk, reply.Space.Hints = uint32(sp.pinned.Space.Chunk()), uint64(hints)
	if sp.hints == nil {
		return nil, ss.conn.Send(reply, region.Mem.FD())
	}
	err = ss.conn.Send(reply, region.Mem.FD(), sp.hints.FD())
	sp.hints.CloseFD()
	return nil, err
}

// makeSpace makes the memory of a space and offers it. What is there after an error, freeSpace frees.
func (ss *controlConn) makeSpace(sp *space, r *regmem.Region, cfg regmem.SpaceConfig, hints int,
	huge bool) (err error) {
	if r.Mem, err = regmem.Alloc(int(cfg.Size), regmem.Named(regmem.SpaceName), regmem.Offered()); err != nil {
		return ipc.Errorf(memoryCode(err), "%v", err)
	}
	if hints > 0 {
		if sp.hints, err = regmem.Alloc(hints, regmem.Named("edge-hints"), regmem.Unpinned()); err != nil {
			return ipc.Errorf(memoryCode(err), "%v", err)
		}
	}
	if err := ss.openPins(); err != nil {
		return err
	}
	sp.pinned, err = ss.shard.NewSpace(ss.client, ss.pins, cfg, r, sp.hints, huge, ss.account.fill)
	return err
}

// openPins makes the client's queue at the pinner, if this is its first space.
func (ss *controlConn) openPins() error {
	if ss.pins != nil {
		return nil
	}
	if err := ss.account.charge(regmem.PinQueueBytes, 0); err != nil {
		return err
	}
	p, err := ss.d.usePinner()
	if err != nil {
		ss.account.uncharge(regmem.PinQueueBytes, 0)
		return err
	}
	ss.pins, ss.spaces = ss.shard.PinQueue(p, ss.client), map[*regmem.Region]*space{}
	return nil
}

// closePins gives it back, after the spaces.
func (ss *controlConn) closePins() {
	if ss.pins != nil {
		ss.pins.Close()
		ss.d.leavePinner()
		ss.account.uncharge(regmem.PinQueueBytes, 0)
	}
}

// freeRegion gives back the memory of a region that the shard uses no more.
func (ss *controlConn) freeRegion(r *regmem.Region) {
	if sp := ss.spaces[r]; sp != nil {
		delete(ss.spaces, r)
		ss.freeSpace(sp, r)
		return
	}
	if !ss.freeHeap(r) {
		ss.freeMemory(r.Mem)
	}
}

func (ss *controlConn) freeSpace(sp *space, r *regmem.Region) {
	if sp.pinned != nil {
		if filled := sp.pinned.Forget(); filled > 0 {
			ss.account.fill(-filled)
		}
	}
	for _, m := range []*regmem.Memory{r.Mem, sp.hints} {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil {
			ss.d.log.Error("releasing a space", "error", err)
		}
	}
	ss.account.release(sp.charged)
	sp.unmap()
}

// caller is this control connection as the client of a request that is served in pieces.
func (ss *controlConn) caller() shard.Caller {
	return shard.Caller{Gone: ss.conn.Gone, Pace: func() { ss.pauseFor(1) }}
}

// advise serves A7.15.
func (ss *controlConn) advise(m *ipc.Message) (*ipc.Message, error) {
	if err := ss.shard.Advise(ss.client, m, ss.caller()); err != nil {
		return nil, err
	}
	return m.Reply(), nil
}

// usage serves A7.16.
func (ss *controlConn) usage(m *ipc.Message) (*ipc.Message, error) {
	u, err := ss.shard.Usage(ss.client, m, ss.caller())
	if err != nil {
		return nil, err
	}
	reply := m.Reply()
	reply.Usage = u
	return reply, nil
}

// usePinner returns the daemon's pinner, which the first client with a space starts. leavePinner undoes it; with the
// last such client the pinner ends.
func (d *Daemon) usePinner() (*regmem.Pinner, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins.pinner == nil {
		p, err := regmem.NewPinner(func() time.Duration { return time.Duration(mono.Now()) })
		if err != nil {
			return nil, fmt.Errorf("spaces: %w", err)
		}
		d.pins.pinner = p
	}
	d.pins.pinning++
	return d.pins.pinner, nil
}

func (d *Daemon) leavePinner() {
	d.mu.Lock()
	p := d.pins.pinner
	if d.pins.pinning--; d.pins.pinning == 0 {
		d.pins.pinner = nil
	} else {
		p = nil
	}
	d.mu.Unlock()
	if p != nil {
		p.Close()
	}
}
