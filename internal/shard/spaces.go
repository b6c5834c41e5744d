package shard

import (
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Spaces: regions that are larger than what is pinned. Their tables are the shard's; the daemon's pinner does what
// takes time, and its answers come by the mailbox.

// spaceSet are the spaces of all clients.
type spaceSet struct {
	pins      *regmem.PinInbox // what the pinner answers
	now       mono.Time        // of the latest answers
	byBacking map[regmem.Backing]*servedSpace
	told      SpacesView // the sum of what is told of each, and of those that are no more
	starving  starving
}

// servedSpace is a space, and what of it is in spaceSet.told.
type servedSpace struct {
	of     *regmem.PinnedSpace
	counts regmem.SpaceCounters
	pinned uint64
}

// openSpaces gets ready for the pinner's answers.
func (s *Shard) openSpaces() {
	take := s.takeAnswers
	s.spaces.pins = regmem.NewPinInbox(func() { s.box.post(take) })
	s.spaces.byBacking = map[regmem.Backing]*servedSpace{}
}

// PinQueue makes a queue for the spaces of a client, which the caller closes when the client is gone.
func (s *Shard) PinQueue(p *regmem.Pinner, c *Client) *regmem.PinQueue {
	return p.Queue(uint64(c.user.id), s.spaces.pins)
}

// NewSpace makes a space of a client, of memory that it will be offered, and adds it to its regions. hints may be nil.
func (s *Shard) NewSpace(c *Client, q *regmem.PinQueue, cfg regmem.SpaceConfig, r *regmem.Region, hints *regmem.Memory,
	huge bool, fill func(bytes int) error) (sp *regmem.PinnedSpace, err error) {
	cfg.Ask = func(chunk uint64, what regmem.PinWork) bool { return sp.Ask(chunk, what) }
	cfg.Starve = func() {
		if s.spaces.byBacking[sp.Space] != nil { // else an answer came after its client's end
			s.spaces.starving.add(c.user.id, sp.Space)
		}
	}
	cfg.Waits = func(chunk uint64) bool { return s.eng.Waits(regmem.Wait{Back: r.Back, Page: chunk}) }
	space, err := regmem.NewSpace(cfg)
	if err != nil {
		return nil, err
	}
	r.Back = space
	err = s.enter(c, r, func() {
		sp = q.Add(space, r.Mem, hints, huge, fill)
		s.spaces.byBacking[space] = &servedSpace{of: sp}
	})
	return sp, err
}

// takeAnswers notes what the pinner did, and has what waited for it go on.
func (s *Shard) takeAnswers(now mono.Time) {
	s.spaces.now = now
	s.spaces.pins.Answers(s.pinned)
}

// askMore has spaces ask for what they had no room for, after those who waited longer were served.
func (s *Shard) askMore(now mono.Time) {
	for n := min(s.spaces.starving.n(), mostStarving); n > 0 && s.spaces.starving.n() > 0; n-- {
		s.spaces.starving.turn(func(space *regmem.Space) (still bool) {
			if space.AskMore(time.Duration(now)) {
				s.eng.AskAgain(space)
			}
			return space.Starves()
		})
	}
}

func (s *Shard) pinned(a *regmem.PinAnswer) {
	space := a.Of.Space
	s.eng.Latency.PinDelay.Observe(a.Delay)
	s.eng.Latency.Pin.Observe(a.Took)
	space.Done(a.Chunk, a.Err == nil)
	if a.Err == nil {
		s.eng.Resident(s.spaces.now, regmem.Wait{Back: space, Page: a.Chunk})
	}
}

// dropSpace forgets the space of a region, if it has one. Peers' operations that wait for it are tried again, and
// refused: their keys are revoked.
func (s *Shard) dropSpace(now mono.Time, r *regmem.Region) {
	if r.Back == nil {
		return
	}
	s.eng.Gone(now, r.Back)
	sp := s.spaces.byBacking[r.Back]
	if sp == nil {
		return
	}
	s.spaces.starving.forget(sp.of.Space)
	s.spaces.told.Counts.Advance(&sp.counts, &sp.of.Space.Count)
	s.spaces.told.Pinned -= sp.pinned
	delete(s.spaces.byBacking, r.Back)
}

// tell brings what is told of a space up to date.
func (t *spaceSet) tell(b regmem.Backing) {
	sp := t.byBacking[b]
	if sp == nil {
		return
	}
	space := sp.of.Space
	t.told.Counts.Advance(&sp.counts, &space.Count)
	t.told.Pinned += space.Pinned() - sp.pinned
	sp.counts, sp.pinned = space.Count, space.Pinned()
}

// errGone ends a request in whose answer nobody is interested.
var errGone = ipc.Errorf(ipc.CodeInternal, "the client has gone")

// holdTime is how long a client waits for the next of the memory that it wants held.
const holdTime = time.Second

// Caller is whose request is served in pieces.
type Caller struct {
	Gone func() bool // the client has gone
	Pace func()      // waits until its user may have another piece
}

// Advise does what a client says of a part of a space. Any goroutine may call it but the shard's, which does a piece of
// the part at a time, and other work between: a part may have 2^31 chunks.
func (s *Shard) Advise(c *Client, m *ipc.Message, by Caller) error {
	var do func(space *regmem.Space, off, n uint64) (went uint64)
	switch m.Advice {
	case ipc.AdvicePrefetch:
		do = (*regmem.Space).Prefetch
	case ipc.AdviceHold:
		return s.hold(c, m, by)
	case ipc.AdviceRelease:
		do = (*regmem.Space).Release
	case ipc.AdviceEvict:
		do = (*regmem.Space).Evict
	default:
		return ipc.Errorf(ipc.CodeInvalid, "advice %d is not known", m.Advice)
	}
	return s.piecewise(c, by, m.Region, m.Off, m.Size, do)
}

// piecewise goes through a range of a client's space. Each piece but the first, which the request has paid for, is
// paced like a request, and a client that has gone gets none.
func (s *Shard) piecewise(c *Client, by Caller, region uint32, off, n uint64,
	do func(space *regmem.Space, off, n uint64) uint64) (err error) {
	for first := true; first || n > 0; first = false {
		if !first {
			if by.Pace(); by.Gone() {
				return errGone
			}
		}
		if e := s.box.doFor(c.user, func(mono.Time) {
			var space *regmem.Space
			if space, err = c.space(region, off, n); err != nil {
				return
			}
			went := do(space, off, n)
			off, n = off+went, n-went
		}); e != nil {
			return e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hold holds a range, or nothing of it. That can take minutes, in which a client that has gone would have all it had.
func (s *Shard) hold(c *Client, m *ipc.Message, by Caller) error {
	done := make(chan struct{}, 1)
	held, refused := uint64(0), error(nil)
	var hold *regmem.Hold
	var space *regmem.Space
	err := s.piecewise(c, by, m.Region, m.Off, m.Size, func(sp *regmem.Space, off, n uint64) uint64 {
		space, refused = sp, sp.CheckHold(off, n)
		return n
	})
	if err != nil {
		return err
	}
	if refused != nil {
		return ipc.Errorf(ipc.CodeLimit, "%v", refused)
	}
	for held < m.Size && err == nil {
		went := uint64(0)
		if held > 0 {
			by.Pace()
		}
		if by.Gone() {
			err = errGone
		} else if err = s.box.doFor(c.user, func(mono.Time) {
			hold, went = space.HoldRange(m.Off+held, m.Size-held, done)
		}); err == nil {
			err = s.awaitHold(c, space, hold, done)
		}
		if err == nil {
			held += went
		}
	}
	if err != nil && held > 0 {
		by.Gone = func() bool { return false }                                 // nothing stays held
		_ = s.piecewise(c, by, m.Region, m.Off, held, (*regmem.Space).Release) // it was there just now
	}
	return err
}

// awaitHold waits until what is to be held has come, or gives it up.
func (s *Shard) awaitHold(c *Client, space *regmem.Space, hold *regmem.Hold, done <-chan struct{}) error {
	late := time.NewTimer(holdTime)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return s.giveUpHold(c, space, hold, done)
	}
}

// giveUpHold gives up what is to be held, unless it has come meanwhile. Nothing is left in done: the shard sends to it,
// and must not wait for room.
func (s *Shard) giveUpHold(c *Client, space *regmem.Space, hold *regmem.Hold, done <-chan struct{}) (err error) {
	if e := s.box.doFor(c.user, func(mono.Time) {
		if space.Drop(hold) {
			err = ipc.Errorf(ipc.StatusMemory.Code(), "nothing more of the memory became resident for %v: what the "+
				"space may pin is held, or limits.filled is reached", holdTime)
		}
	}); e != nil {
		return e
	}
	if err == nil {
		<-done
	}
	return err
}

// Usage says what a space did, and how much of a range is resident. Any goroutine may call it but the shard's.
func (s *Shard) Usage(c *Client, m *ipc.Message, by Caller) (u ipc.Usage, err error) {
	resident := uint64(0)
	err = s.piecewise(c, by, m.Region, m.Off, m.Size, func(space *regmem.Space, off, n uint64) uint64 {
		bytes, went := space.Resident(off, n)
		resident += bytes
		k := &space.Count
		u = ipc.Usage{Resident: resident, Pinned: space.Pinned(), Lookups: k.Lookups, Hits: k.Hits, Cold: k.Cold,
			Capacity: k.Capacity, Pins: k.Pins, Evictions: k.Evictions, Prefetched: k.Prefetched, Used: k.Used,
			Wasted: k.Wasted, Soft: k.Soft}
		return went
	})
	return u, err
}

// space finds the space that a request names, and checks the range.
func (c *Client) space(region uint32, off, n uint64) (*regmem.Space, error) {
	r := c.regions.get(region)
	if r == nil {
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", region)
	}
	space, ok := r.Back.(*regmem.Space)
	size := uint64(r.Mem.Len())
	switch {
	case !ok:
		return nil, ipc.Errorf(ipc.CodeInvalid, "region %d is registered whole: it is always resident", region)
	case n == 0 || off > size || n > size-off:
		return nil, ipc.Errorf(ipc.CodeInvalid, "%d bytes at %d of a space of %d", n, off, size)
	}
	return space, nil
}
