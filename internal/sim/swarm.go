package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/regmem"
	"multiedge/sched"
)

// Report says what one seed did.
type Report struct {
	Options    Options
	Ops        int
	Sent       uint64
	Lost       uint64
	Duplicated uint64
	Corrupted  uint64
	Held       uint64
	Refused    uint64
	Virtual    time.Duration
	Hash       uint64
}

// swarm is one seed's world with its workload and oracle.
type swarm struct {
	*World
	rng   *rand.Rand // of the workload
	conns []*pairing
	left  int // operations not completed yet
	notes int // notifications not taken yet

	untouched []byte
}

// pairing is one connection with the memory that its operations touch. All operations of both directions have slots of their own, with a canary behind each.
type pairing struct {
	end [2]engine.ConnID
	dir [2]*stream
}

// stream is one end's operations and the memory they reach at the other end.
type stream struct {
	from, to *Node
	conn     engine.ConnID
	peerConn engine.ConnID
	key      regmem.Key
	target   []byte
	ops      []*operation
	next     int
	ordered  bool
	imms     map[uint32]int
}

type operation struct {
	engine.Op
	src      []byte // what a write carries, or what a read must deliver
	slot     int    // offset in target
	size     int
	wantBad  bool // reaches outside on purpose
	complete bool
	applied  bool // seen whole in the target
	touched  bool
}

const canary = 16

// Swarm runs one seed: a mix of faults drawn from it while operations run, then a healed network in which everything must complete.
// An error names the seed and what was violated.
func Swarm(seed uint64, trace bool) (Report, error) {
	rng := rand.New(rand.NewPCG(seed, 99))
	pick := func(p float64, max float64) float64 {
		if rng.Float64() < p {
			return rng.Float64() * max
		}
		return 0
	}
	o := Options{
		Seed: seed, Trace: trace, Links: 1 + rng.IntN(4), MTU: []int{640, 1500, 4000, 9000}[rng.IntN(4)], Slots: []int{16, 64, 256}[rng.IntN(3)],
		Scheduler: sched.Names()[rng.IntN(len(sched.Names()))], Profile: flowctl.Profiles[rng.IntN(len(flowctl.Profiles))], OpWindow: []int{4, 32, 1024}[rng.IntN(3)],
		Faults: Faults{
			Loss: pick(0.6, 0.3), Dup: pick(0.4, 0.3), Corrupt: pick(0.4, 0.1), Delay: time.Duration(1 + rng.IntN(200_000)),
			Jitter: time.Duration(pick(0.5, 2e6)), Rate: pick(0.3, 1e9) + 1e6*pick(0.3, 50), Queue: 2 * time.Millisecond,
		},
	}
	if rng.IntN(4) == 0 {
		o.Shuffle = 64 + 14
	}
	w := &swarm{World: New(o), rng: rng, untouched: bytes.Repeat([]byte{0xCA}, 40000)}
	start := w.Now
	err := w.run()
	r := Report{Options: o, Sent: w.Sent, Lost: w.Lost, Duplicated: w.Duplicated, Corrupted: w.Corrupted, Virtual: w.Now.Sub(start), Hash: w.Hash()}
	for _, n := range w.Nodes {
		r.Held += n.E.Count.SegmentsHeld
		r.Refused += n.E.Count.AccessRefused
		r.Ops += int(n.E.Count.OpsCompleted)
	}
	if err != nil {
		err = fmt.Errorf("seed %d: %w (options %+v)", seed, err, o)
	}
	return r, err
}

func (w *swarm) run() error {
	for range 1 + w.rng.IntN(3) {
		if err := w.connect(); err != nil {
			return err
		}
	}
	for _, n := range w.Nodes {
		n.Handle = func(ev *engine.Event) { w.event(n, ev) }
	}
	if w.rng.IntN(4) == 0 {
		w.Check = w.fences
	}
	w.post()
	if w.rng.IntN(2) == 0 {
		w.flap()
	}
	w.After(time.Duration(25+w.rng.IntN(200))*time.Millisecond, w.heal)
	if err := w.Run(5*time.Minute, func() bool { return w.left == 0 && w.notes == 0 }); err != nil {
		return fmt.Errorf("%w: %d operations and %d notifications outstanding", err, w.left, w.notes)
	}
	return w.verify()
}

// flap cuts one link for a while, or moves its MTU.
func (w *swarm) flap() {
	l := w.rng.IntN(len(w.Net))
	w.After(time.Duration(w.rng.IntN(20))*time.Millisecond, func() {
		for i := range w.Net[l] {
			w.Net[l][i].Cut = true
		}
		if w.rng.IntN(2) == 0 {
			w.Nodes[0].E.RemoveLink(w.Now, l)
		}
	})
}

// heal ends all faults.
func (w *swarm) heal() {
	for l := range w.Net {
		for i := range w.Net[l] {
			f := &w.Net[l][i]
			f.Loss, f.Dup, f.Corrupt, f.Jitter, f.Cut = 0, 0, 0, 0, false
		}
		w.Nodes[0].SetLink(l, w.opt.MTU)
	}
}

func (w *swarm) connect() error {
	ordered := w.rng.IntN(4) == 0
	ca, cb, err := w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{Ordered: ordered, Timeout: time.Minute})
	if err != nil {
		return err
	}
	p := &pairing{end: [2]engine.ConnID{ca, cb}}
	for d := range 2 {
		s := &stream{from: w.Nodes[d], to: w.Nodes[1-d], conn: p.end[d], peerConn: p.end[1-d], ordered: ordered, imms: map[uint32]int{}}
		w.plan(s)
		p.dir[d] = s
	}
	w.conns = append(w.conns, p)
	return nil
}

// plan draws a stream's operations and lays out the memory they reach.
func (w *swarm) plan(s *stream) {
	at := canary
	for i := range w.rng.IntN(40) {
		o := &operation{slot: at}
		switch w.rng.IntN(4) {
		case 0:
			o.size = w.rng.IntN(30)
		case 1, 2:
			o.size = w.rng.IntN(3000)
		case 3:
			o.size = w.rng.IntN(40000)
		}
		o.Kind = engine.OpWrite
		if w.rng.IntN(4) == 0 {
			o.Kind = engine.OpRead
		}
		o.Flags = engine.OpFlags(w.rng.IntN(8))
		if w.rng.IntN(2) == 0 {
			o.Flags = 0
		}
		o.Token, o.Imm = uint64(i), w.rng.Uint32()
		o.wantBad = w.rng.IntN(16) == 0
		at += o.size + canary
		s.ops = append(s.ops, o)
	}
	s.target = bytes.Repeat([]byte{0xCA}, at)
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(s.target)}
	s.key, _ = s.to.Grants.Grant(region, uint64(s.peerConn), regmem.RemoteRead|regmem.RemoteWrite, 0, uint64(at))
	for _, o := range s.ops {
		o.Key, o.Off = s.key, uint64(o.slot)
		o.src = make([]byte, o.size)
		for i := range o.src {
			o.src[i] = byte(w.rng.Uint32()) &^ 0x80 // never the canary's value
		}
		if o.wantBad {
			// Of a long write that ends outside, the parts inside would land: each is checked alone (clause 6.9).
			o.Off = []uint64{uint64(at), ^uint64(7), uint64(at - o.size + 1)}[w.rng.IntN(3)]
			if o.size == 0 || o.size > 100 {
				o.Off = uint64(at) + 1
			}
		}
		switch {
		case o.Kind == engine.OpRead:
			copy(s.target[o.slot:], o.src)
			o.Local = make([]byte, o.size)
		case o.size <= engine.MaxInline && w.rng.IntN(2) == 0:
			o.Inline = uint8(copy(o.Data[:], o.src))
		default:
			o.Local = o.src
		}
		w.left++
		if o.Flags&engine.Notify != 0 && !o.wantBad {
			s.imms[o.Imm]++
			w.notes++
		}
	}
}

// post submits what fits on every stream.
func (w *swarm) post() {
	for _, p := range w.conns {
		for _, s := range p.dir {
			for s.next < len(s.ops) && s.from.E.Submit(w.Now, s.conn, &s.ops[s.next].Op) {
				s.next++
			}
		}
	}
}

// event checks completions and notifications as they come.
func (w *swarm) event(n *Node, ev *engine.Event) {
	for _, p := range w.conns {
		for _, s := range p.dir {
			switch {
			case ev.Kind == engine.EvComplete && s.from == n && s.conn == ev.Conn:
				w.fault(s.completed(ev))
				w.left--
			case ev.Kind == engine.EvNotify && s.to == n && s.peerConn == ev.Conn:
				for {
					note, ok := n.E.TakeNotify(ev.Conn)
					if !ok {
						break
					}
					if s.imms[note.Imm]--; s.imms[note.Imm] < 0 {
						w.fault(fmt.Errorf("notification %d delivered twice or never asked for", note.Imm))
					}
					w.notes--
				}
			case ev.Kind == engine.EvClosed:
				w.fault(fmt.Errorf("connection closed: %v %s", ev.Status, ev.Text))
			}
		}
	}
	w.post()
}

func (w *swarm) fault(err error) {
	if err == nil {
		return
	}
	old := w.Check
	w.Check = func() error {
		if old != nil {
			if e := old(); e != nil {
				return e
			}
		}
		return err
	}
}

// completed checks one completion against the oracle.
func (s *stream) completed(ev *engine.Event) error {
	o := s.ops[ev.Token]
	if o.complete {
		return fmt.Errorf("operation %d completed twice", ev.Token)
	}
	o.complete = true
	if o.wantBad {
		if ev.Status != engine.StatusBounds {
			return fmt.Errorf("operation %d out of bounds ended with %v", ev.Token, ev.Status)
		}
		return nil
	}
	got := s.target[o.slot : o.slot+o.size]
	if o.Kind == engine.OpRead {
		got = o.Local
	}
	if ev.Status != engine.OK || !bytes.Equal(got, o.src) {
		return fmt.Errorf("operation %d (%+v, %d bytes) completed with %v, data in place: %v", ev.Token, o.Kind, o.size, ev.Status, bytes.Equal(got, o.src))
	}
	return nil
}

// fences checks clauses 6.5 and 6.6 on memory itself: no byte of an operation before what its fences demand.
func (w *swarm) fences() error {
	for _, p := range w.conns {
		for _, s := range p.dir {
			allBefore, forward := true, true
			for i, o := range s.ops {
				if o.Kind == engine.OpWrite && !o.wantBad && o.size > 0 && !o.applied {
					slot := s.target[o.slot : o.slot+o.size]
					o.touched = o.touched || !bytes.Equal(slot, w.untouched[:len(slot)])
					if o.touched {
						if (o.Flags&engine.BackwardFence != 0 || s.ordered) && !allBefore {
							return fmt.Errorf("operation %d has a backward fence and was placed before one before it was applied", i)
						}
						if !forward {
							return fmt.Errorf("operation %d was placed before the forward-fenced one before it was applied", i)
						}
						o.applied = bytes.Equal(slot, o.src)
					}
				} else if o.complete || o.size == 0 || o.wantBad {
					o.applied = true
				}
				known := o.Kind == engine.OpWrite && !o.wantBad && o.size > 0
				if known && !o.applied {
					allBefore = false
					if o.Flags&engine.ForwardFence != 0 {
						forward = false
					}
				}
			}
		}
	}
	return nil
}

// verify compares all memory with the oracle at the end.
func (w *swarm) verify() error {
	for _, p := range w.conns {
		for d, s := range p.dir {
			want := bytes.Repeat([]byte{0xCA}, len(s.target))
			for _, o := range s.ops {
				if !o.wantBad || o.Kind == engine.OpRead {
					copy(want[o.slot:], o.src)
				}
			}
			if !bytes.Equal(want, s.target) {
				return fmt.Errorf("direction %d: memory differs from the oracle", d)
			}
		}
	}
	return nil
}
