package dsm

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// world is the transport of several ranks in one goroutine that does everything docs/MEMORY.md allows: operations take
// effect in any order that fences permit, in pieces that are cut anywhere, some twice, and ranks run in any order. A
// seed repeats all of it.
type world struct {
	rng    *rand.Rand
	places []*place
	flying []*flight
	fault  fault
}

// fault is what a world does that no transport may do.
type fault struct {
	lose  func(o *order) bool // such an operation is said to be done, and has no effect
	hasty bool                // writes of data are said to be done before they are
}

// place is a rank in a world: its memory, its notifications, and the coroutine that runs it.
type place struct {
	w        *world
	rank     int
	areas    [2][]byte
	told     []told1
	inflight int
	atomic   *flight // the latest
	blocked  func() bool
	yield    func(struct{}) bool
	resume   func() (struct{}, bool)
	stop     func()
	ended    bool
	err      error
}

type told1 struct {
	rank int
	note uint32
}

// flight is an operation that has not taken effect.
type flight struct {
	o        order
	from, to int
	pieces   [][2]int // that are not in place
	hidden   bool     // nobody waits for it
}

var errStopped = errors.New("another rank failed")

// inWorld runs a function as all ranks of a run, and returns what went wrong at the first rank that failed.
func inWorld(seed uint64, c Config, bad fault, f func(*Memory) error) error {
	if err := c.complete(); err != nil {
		return err
	}
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), fault: bad}
	for rank := range c.Ranks {
		c := c
		c.Rank = rank
		lay := newLayout(&c)
		p := &place{w: w, rank: rank}
		p.areas = [2][]byte{control: aligned(lay.size), data: aligned(c.Size)}
		p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
			p.yield = yield
			p.err = protect(func() error { return runOver(&c, p, f) })
			p.ended = true
		})
		w.places = append(w.places, p)
	}
	defer func() {
		for _, p := range w.places {
			p.stop()
		}
	}()
	return w.run()
}

// aligned returns memory that begins at a multiple of 8.
func aligned(n int) []byte { return make([]byte, (n+8191)/8192*8192)[:n] }

// run lets ranks and operations make progress until all ranks have ended.
func (w *world) run() error {
	for range 1_000_000 {
		var can []*place
		left := 0
		for _, p := range w.places {
			if p.err != nil {
				return fmt.Errorf("rank %d: %w", p.rank, p.err)
			}
			if !p.ended {
				left++
				if p.blocked == nil || !p.blocked() {
					can = append(can, p)
				}
			}
		}
		switch {
		case left == 0:
			return nil
		case len(w.flying) > 0 && (len(can) == 0 || w.rng.IntN(2) == 0):
			w.progress()
		case len(can) > 0:
			p := can[w.rng.IntN(len(can))]
			p.blocked = nil
			p.resume()
		default:
			return fmt.Errorf("%d ranks wait for each other", left)
		}
	}
	return errors.New("the ranks do not come to an end")
}

// progress puts a piece of an operation in place.
func (w *world) progress() {
	i := w.rng.IntN(len(w.flying))
	f := w.flying[i]
	if f.o.fenced && len(f.pieces) > 0 { // the earliest operation between the two ranks is never held up
		for j, e := range w.flying[:i] {
			if e.from == f.from && e.to == f.to {
				i, f = j, e
				break
			}
		}
	}
	k := w.rng.IntN(len(f.pieces))
	w.apply(f, f.pieces[k])
	if w.rng.IntN(8) > 0 || f.o.verb >= swap { // else it comes again
		f.pieces = slices.Delete(f.pieces, k, k+1)
	}
	if len(f.pieces) > 0 {
		return
	}
	w.flying = slices.Delete(w.flying, i, i+1)
	if !f.hidden {
		w.places[f.from].inflight--
	}
	if f.o.note != 0 {
		to := w.places[f.to]
		to.told = append(to.told, told1{f.from, f.o.note})
	}
}

// apply performs an operation on bytes lo to hi of it.
func (w *world) apply(f *flight, piece [2]int) {
	from, to := w.places[f.from].areas[f.o.area], w.places[f.to].areas[f.o.area]
	lo, hi := piece[0], piece[1]
	switch f.o.verb {
	case read:
		copy(from[f.o.here+lo:f.o.here+hi], to[f.o.there+lo:])
	case write:
		copy(to[f.o.there+lo:f.o.there+hi], from[f.o.here+lo:])
	default:
		at := word(to, f.o.there)
		*f.o.was = *at
		if f.o.verb == swap || *at == f.o.compare {
			*at = f.o.operand
		}
	}
}

func (p *place) memory() (data_, control_ []byte) { return p.areas[data], p.areas[control] }

func (p *place) post(rank int, o order) {
	f := &flight{o: o, from: p.rank, to: rank, pieces: [][2]int{{0, o.n}}}
	if o.verb == swap || o.verb == compareSwap {
		f.pieces = [][2]int{{0, 8}}
	}
	switch {
	case p.w.fault.lose != nil && p.w.fault.lose(&o):
		return
	case rank == p.rank && o.verb == read && o.area == data:
		fail(errors.New("a page at home is copied onto itself, over what others write to it meanwhile"))
	case rank == p.rank:
		p.w.apply(f, f.pieces[0])
		p.pause(nil)
		return
	}
	for o.n > 1 && p.w.rng.IntN(2) == 0 {
		last := &f.pieces[len(f.pieces)-1]
		if last[1]-last[0] < 2 {
			break
		}
		cut := last[0] + 1 + p.w.rng.IntN(last[1]-last[0]-1)
		f.pieces = append(f.pieces, [2]int{cut, last[1]})
		f.pieces[len(f.pieces)-2][1] = cut
	}
	if o.n == 8 || o.verb == swap || o.verb == compareSwap { // MEMORY rules 1 and 7: whole
		f.pieces = [][2]int{{0, 8}}
	}
	f.hidden = p.w.fault.hasty && o.area == data && o.verb == write
	if !f.hidden {
		p.inflight++
	}
	if o.verb >= swap {
		p.atomic = f
	}
	p.w.flying = append(p.w.flying, f)
	if p.w.rng.IntN(2) == 0 {
		p.pause(nil)
	}
}

// pause lets others run, until blocked reports false.
func (p *place) pause(blocked func() bool) {
	p.blocked = blocked
	if !p.yield(struct{}{}) {
		fail(errStopped)
	}
}

func (p *place) wait() {
	for p.inflight > 0 {
		p.pause(func() bool { return p.inflight > 0 })
	}
}

func (p *place) answer() {
	for p.atomic != nil && len(p.atomic.pieces) > 0 {
		p.pause(func() bool { return len(p.atomic.pieces) > 0 })
	}
}

func (p *place) next(wait bool) (rank int, note uint32, ok bool) {
	for len(p.told) == 0 {
		if !wait {
			return 0, 0, false
		}
		p.pause(func() bool { return len(p.told) == 0 })
	}
	n := p.told[0]
	p.told = p.told[1:]
	return n.rank, n.note, true
}
