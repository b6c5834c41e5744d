package shard

import (
	"slices"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Spaces: regions that are larger than what is pinned. Their tables are the shard's; the daemon's pinner does what
// takes time, and its answers come by the mailbox.

// spaceSet are the spaces of all clients.
type spaceSet struct {
	pins    *regmem.PinQueue // nil: nobody has mapped a space yet
	answers func(mono.Time)  // takes what the pinner answered
	now     mono.Time        // of the latest answers
	spaces  []*regmem.PinnedSpace
	gone    regmem.SpaceCounters // of those that are no more
	starved bool                 // some space had no room for what it was to ask for
}

// NewSpace makes a space of a client, of memory that it will be offered, and adds it to its regions. hints may be nil.
func (s *Shard) NewSpace(c *Client, p *regmem.Pinner, cfg regmem.SpaceConfig, r *regmem.Region, hints *regmem.Memory,
	huge bool, fill func(bytes int) error) (sp *regmem.PinnedSpace, err error) {
	cfg.Ask = func(chunk uint64, what regmem.PinWork) bool { return sp.Ask(chunk, what) }
	cfg.Starve = func() { s.starved = true }
	cfg.Waits = func(chunk uint64) bool { return s.eng.Waits(regmem.Wait{Back: r.Back, Page: chunk}) }
	space, err := regmem.NewSpace(cfg)
	if err != nil {
		return nil, err
	}
	r.Back = space
	err = s.enter(c, r, func() {
		if s.pins == nil {
			s.answers = s.takeAnswers
			s.pins = p.Queue(func() { s.box.post(s.answers) })
		}
		sp = s.pins.Add(space, r.Mem, hints, huge, fill)
		s.spaces = append(s.spaces, sp)
	})
	return sp, err
}

// takeAnswers notes what the pinner did, and has what waited for it go on.
func (s *Shard) takeAnswers(now mono.Time) {
	s.now = now
	s.pins.Answers(s.pinned)
}

// askMore has spaces ask for what they had no room for, after those who waited longer were served.
func (s *Shard) askMore(now mono.Time) {
	s.starved = false
	for _, sp := range s.spaces {
		if !sp.Space.Starves() {
			continue
		}
		if sp.Space.AskMore(time.Duration(now)) {
			s.eng.AskAgain(now)
		}
		s.starved = s.starved || sp.Space.Starves()
	}
}

func (s *Shard) pinned(a *regmem.PinAnswer) {
	space := a.Of.Space
	s.eng.Latency.Pin.Observe(a.Took)
	space.Done(a.Chunk, a.Err == nil)
	if a.Err == nil {
		s.eng.Resident(s.now, regmem.Wait{Back: space, Page: a.Chunk})
	}
}

// dropSpace forgets the space of a region, if it has one.
func (s *Shard) dropSpace(r *regmem.Region) {
	s.spaces = slices.DeleteFunc(s.spaces, func(sp *regmem.PinnedSpace) bool {
		if sp.Space != r.Back {
			return false
		}
		s.gone.Add(&sp.Space.Count)
		return true
	})
}

// lookAtSpaces returns what all spaces did.
func (s *Shard) lookAtSpaces() SpacesView {
	v := SpacesView{Spaces: len(s.spaces), Counts: s.gone}
	for _, sp := range s.spaces {
		v.Counts.Add(&sp.Space.Count)
		v.Pinned += sp.Space.Pinned()
	}
	return v
}

// holdTime is how long a client waits for memory that it wants held.
const holdTime = time.Second

// Advise does what a client says of a part of a space. Any goroutine may call it but the shard's.
func (s *Shard) Advise(c *Client, m *ipc.Message) error {
	done := make(chan struct{}, 1)
	var hold *regmem.Hold
	var space *regmem.Space
	var err error
	if e := s.box.do(func(mono.Time) {
		if space, err = c.space(m); err != nil {
			return
		}
		switch m.Advice {
		case ipc.AdvicePrefetch:
			space.Prefetch(m.Off, m.Size)
		case ipc.AdviceHold:
			hold, err = space.HoldRange(m.Off, m.Size, done)
		case ipc.AdviceRelease:
			space.Release(m.Off, m.Size)
		case ipc.AdviceEvict:
			space.Evict(m.Off, m.Size)
		default:
			err = ipc.Errorf(ipc.CodeInvalid, "advice %d is not known", m.Advice)
		}
	}); e != nil {
		return e
	}
	if hold == nil {
		return err
	}
	late := time.NewTimer(holdTime)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
	}
	if e := s.box.do(func(mono.Time) {
		if space.Drop(hold) {
			err = ipc.Errorf(ipc.StatusMemory.Code(), "%d bytes did not become resident in %v: what the space may "+
				"pin is held, or limits.filled is reached", m.Size, holdTime)
		}
	}); e != nil {
		return e
	}
	return err
}

// Usage says what a space did, and how much of a range is resident. Any goroutine may call it but the shard's.
func (s *Shard) Usage(c *Client, m *ipc.Message) (u ipc.Usage, err error) {
	if e := s.box.do(func(mono.Time) {
		var space *regmem.Space
		if space, err = c.space(m); err != nil {
			return
		}
		n := &space.Count
		u = ipc.Usage{Resident: space.Resident(m.Off, m.Size), Pinned: space.Pinned(), Lookups: n.Lookups, Hits: n.Hits,
			Cold: n.Cold, Capacity: n.Capacity, Pins: n.Pins, Evictions: n.Evictions, Prefetched: n.Prefetched,
			Used: n.Used, Wasted: n.Wasted}
	}); e != nil {
		return u, e
	}
	return u, err
}

// space finds the space that a request names, and checks the range.
func (c *Client) space(m *ipc.Message) (*regmem.Space, error) {
	r := c.regions.get(m.Region)
	if r == nil {
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", m.Region)
	}
	space, ok := r.Back.(*regmem.Space)
	size := uint64(r.Mem.Len())
	switch {
	case !ok:
		return nil, ipc.Errorf(ipc.CodeInvalid, "region %d is registered whole: it is always resident", m.Region)
	case m.Size == 0 || m.Off > size || m.Size > size-m.Off:
		return nil, ipc.Errorf(ipc.CodeInvalid, "%d bytes at %d of a space of %d", m.Size, m.Off, size)
	}
	return space, nil
}
