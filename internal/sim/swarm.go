package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
)

// Report says what one seed did.
type Report struct {
	Options                                                                            Options
	Tally                                                                              Tally
	Ends                                                                               Ends
	Ops, Connections                                                                   int
	Crashes, Flaps, Partitions, Revocations, Endings, Resizes, Narrowings, Walls, Fell int // Fell: sessions that failed
	Moved                                                                              Moved
	// requests that came again when all was over
	Late int
	// sessions whose key wore out while a half of the exchange was lost: it seals hundreds of frames, not millions
	Worn          int
	Held, Refused uint64
	Copied, Acked uint64 // writes with LocalDone that completed early: copied, received by the peer
	Parked, Gone  uint64 // parts of operations that waited for memory, and ended for want of it
	Composed      Composed
	Hurried       Hurried
	Pooled        Pooled
	Early         uint64 // buffers posted before their connection was accepted
	Virtual       time.Duration
	Hash          uint64
}

// Moved counts what became of cables and addresses: cables moved, Hellos of strangers, and of IP links translators that
// forgot ports, hosts that moved, ways that turned black, lanes opened anew.
type Moved struct{ Recablings, Forged, Rebinds, Moves, Blacks, Reopened int }

// Composed counts messages that travel while they are composed: committed when blocks had left, aborted, refused a
// draft.
type Composed struct{ Ahead, Dropped, Unstaged uint64 }

// Watch is how closely a run is looked at; it changes nothing in it.
type Watch struct {
	Live  bool      // the network is healed, and at once new connections must work within LiveTime
	Trace bool      // fill Report.Hash
	Full  bool      // all memory after every event, not a part of it in turn
	Log   io.Writer // every frame and event, as a line of text
}

// swarm is one seed's world with its workload and oracle.
type swarm struct {
	world    *World
	mix      mix
	rng      *rand.Rand // of the workload
	mail     *rand.Rand // of messages and their buffers
	dice     *rand.Rand // of crashes and all that happens to nodes, links and connections
	channels []*channel
	pairs    []*pairing
	ends     []map[engine.ConnID]*end // by node; looked up, never ranged over
	areas    [][]*area                // by node
	turn     []int                    // by node: which area is looked at next
	pools    []*pool                  // by node; nil: it has none
	mailed   []mailed                 // by node, since it booted
	healed   bool                     // no more faults
	final    bool                     // what faults left behind is over too: everything must succeed
	full     bool
	live     bool
	report   Report
}

// Times of the phases after the faults, virtual.
const (
	finishTime  = time.Minute     // within which operations in flight end
	settleTime  = 5 * time.Second // in which ends that lost each other find out: keep-alives, a handshake, dead times
	connectTime = 10 * time.Second
	closeTime   = 10 * time.Second
)

// Swarm runs one seed: a mix of faults drawn from it while connections come and go and operations run, then a healed
// network in which everything must complete, new connections must work, and all tables must be empty once everything is
// closed. An error names the seed and what was violated.
func Swarm(seed uint64, watch Watch) (Report, error) {
	o, m := drawMix(seed)
	return runMix(seed, o, m, watch)
}

// runMix is Swarm with a mix that may differ from the seed's own.
func runMix(seed uint64, o Options, m mix, watch Watch) (Report, error) {
	if watch.Live && m.duration > time.Second {
		o.Rekey = 0 // a key that seals so few frames wears out while nobody listens; those of production do not
	}
	o.Trace = watch.Trace
	w := &swarm{world: New(o), mix: m, rng: stream(seed, workloadStream), mail: stream(seed, mailStream),
		dice: stream(seed, crashStream),
		full: watch.Full, live: watch.Live}
	w.world.Log = watch.Log
	defer w.world.Stop()
	w.world.spread(stream(seed, mixStream+1000))
	start := w.world.Now
	err := w.run()
	r := &w.report
	r.Options, r.Tally, r.Connections, r.Virtual, r.Hash = o, w.world.Tally, len(w.pairs), w.world.Now.Sub(start),
		w.world.Hash()
	for _, n := range w.world.Nodes {
		c := &n.E.Count
		r.Held += c.Op.SegmentsHeld
		r.Refused += c.Op.AccessRefused
		r.Copied += c.Op.WritesCopied
		r.Acked += c.Op.WritesAcked
		r.Ops += int(c.Op.OpsCompleted)
		r.Parked += c.Miss.MissesWriteSource + c.Miss.MissesWriteTarget + c.Miss.MissesReadTarget +
			c.Miss.MissesReadDest
		r.Gone += c.Miss.MissesFailed
		r.Composed.Ahead += c.Eager.EagerCommitted
		r.Composed.Dropped += c.Eager.EagerDiscarded
		r.Composed.Unstaged += c.Eager.EagerRefused
		r.Fell += int(c.Life.SessionsFailed)
		r.Worn += int(c.Trust.KeysWorn)
		r.Hurried.Unbuffered += c.Op.MessagesUnbuffered
	}
	if err != nil {
		err = fmt.Errorf("seed %d, at %v: %w\n%+v\n%+v", seed, w.world.Now.Sub(start), err, m, o)
	}
	return *r, err
}

func (w *swarm) run() error {
	w.turn = make([]int, len(w.world.Nodes))
	w.areas = make([][]*area, len(w.world.Nodes))
	for _, n := range w.world.Nodes {
		w.ends = append(w.ends, map[engine.ConnID]*end{})
		n.Offer("test")
		n.Handle = func(ev *engine.Event) { w.event(n, ev) }
	}
	w.world.Check = w.invariants
	w.makePools()
	w.begins()
	w.chaos()
	if err := w.world.Rest(w.mix.duration); err != nil {
		return err
	}
	w.heal()
	if w.live {
		if err := w.alive(); err != nil {
			return fmt.Errorf("liveness: %w", err)
		}
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"after healing", w.finish}, {"settling", w.settle}, {"new connections", w.again}, {"closing", w.closeAll},
		{"dropping queues", w.dropAll}, {"at the end", w.verify},
	}
	for _, s := range steps {
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := w.everything(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// begins dials all channels: some at once, both ends at the same moment among them, some later.
func (w *swarm) begins() {
	for range w.mix.channels {
		a := w.rng.IntN(len(w.world.Nodes))
		b := (a + 1 + w.rng.IntN(len(w.world.Nodes)-1)) % len(w.world.Nodes)
		w.channels = append(w.channels, &channel{from: w.world.Nodes[a], to: w.world.Nodes[b], tries: w.mix.tries})
		if w.rng.IntN(3) == 0 {
			w.channels = append(w.channels, &channel{from: w.world.Nodes[b], to: w.world.Nodes[a], tries: w.mix.tries})
		}
	}
	w.moreChannels()
	for _, ch := range w.channels {
		start := func() {
			if !ch.from.Down && !w.healed {
				w.dial(ch, anyOperations, w.dialTime())
			}
		}
		if w.rng.IntN(2) == 0 {
			start()
		} else {
			w.world.After(time.Duration(w.rng.Int64N(int64(w.mix.duration/2))), start)
		}
	}
}

// each calls f for both ends of all pairings.
func (w *swarm) each(f func(e *end)) {
	for _, p := range w.pairs {
		f(p.end[0])
		f(p.end[1])
	}
}

// finish waits until every operation has ended and every request is answered.
func (w *swarm) finish() error {
	left, waiting := 0, 0
	err := w.world.Run(finishTime+w.mix.duration, func() bool {
		left, waiting = 0, 0
		w.each(func(e *end) {
			if e.state == endOpen {
				left += len(e.flow.ops) - e.flow.next + e.flow.open
			}
			if e.state == endDialing || e.state == endIncoming || e.state == endOpen && e.closing {
				waiting++
			}
		})
		return left == 0 && waiting == 0
	})
	if err != nil {
		err = fmt.Errorf("%w: %d operations and %d answers outstanding", err, left, waiting)
	}
	return err
}

func (w *swarm) settle() error {
	if err := w.world.Rest(settleTime + w.world.opt.Faults.HoldFor); err != nil {
		return err
	}
	w.final = true
	return nil
}

// again opens new connections on all channels, on which all operations must succeed.
func (w *swarm) again() error {
	first := len(w.pairs)
	for _, ch := range w.channels {
		ch.tries = 0
		w.dial(ch, goodOperations, time.Minute)
	}
	fresh := w.pairs[first:]
	left := 0
	err := w.world.Run(connectTime, func() bool {
		left = 0
		for _, p := range fresh {
			for _, e := range p.end {
				if e.state != endOpen || len(e.flow.ops) != e.flow.next || e.flow.open > 0 {
					left++
				}
			}
		}
		return left == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %d ends of new connections have work to do", err, left)
	}
	for _, p := range fresh {
		for _, e := range p.end {
			for i, o := range e.flow.ops {
				if o.status != engine.OK {
					return fmt.Errorf("%v: operation %d ended with %v", e, i, o.status)
				}
			}
		}
	}
	if err := w.world.Rest(5 * time.Second); err != nil {
		return err
	}
	return w.rejoined()
}

// closeAll closes every connection from one end.
func (w *swarm) closeAll() error {
	for _, p := range w.pairs {
		e := p.end[w.rng.IntN(2)]
		if e.state == endOpen {
			if e.other.state != endOpen {
				return fmt.Errorf("%v is open, its other end in state %d (answer %d)", e, e.other.state, p.answer)
			}
			e.closing, p.rested = true, true
			e.node.E.Close(w.world.Now, e.conn)
		} else if e.other.state == endOpen {
			return fmt.Errorf("%v is open, its other end in state %d (answer %d)", e.other, e.state, p.answer)
		}
	}
	left := 0
	err := w.world.Run(closeTime, func() bool {
		left = 0
		w.each(func(e *end) {
			if e.state != endOver && e.state != endNone {
				left++
			}
		})
		return left == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %d ends are not closed", err, left)
	}
	return w.world.Rest(5 * time.Second)
}
