// Package sim runs production engines on lossy links under a virtual clock: one goroutine, one heap ordered by (time,
// sequence), so that the same seed is the same run to the last frame.
package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/fault"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/regmem"
)

// Options fixes a world.
type Options struct {
	Seed       uint64
	Nodes      int // 0: 2
	Links      int // 0: 1
	MTU        int // 0: 1500
	Slots      int // receive slots announced
	Shuffle    uint16
	Joins      uint64 // links that take datagrams: bit 8 times the node plus the link
	Scheduler  string
	Profile    flowctl.Profile
	OpWindow   int
	HeldBytes  int
	CopiedMost int
	DeadTime   time.Duration
	KeepAlive  time.Duration
	Checksum   engine.Checksum
	Secure     bool   // sealed sessions, with identities made from Seed
	Rekey      uint64 // frames that one key seals, of twice as many the session ends; 0: as in production
	Deferred   bool   // handshakes are computed beside the engine, and take time
	Misses     Misses
	IP         IP            // needs Secure
	Together   time.Duration // frames of one link that arrive within it are handed over at once
	Faults     Faults        // of every link and direction at first
	Trace      bool          // keep a hash of all frames
}

// World is nodes joined by segments, of which there are as many as Ethernet links of a node, and behind them the ways
// between IP links. At first link i of every node is on segment i.
type World struct {
	Now   mono.Time
	Nodes []*Node
	Net   [][]Faults // by segment and sending node
	Plug  [][]int    // by node and link: the segment it is on
	Apart [][]bool   // by sending and receiving node: nothing passes
	Log   io.Writer  // every frame and event as a line of text; nil: none
	Check func() error
	Tally Tally   // what the network did
	Marks float64 // the share that routers mark of the frames of IP links that may be

	ip       []ipHost // by node
	ipDice   *rand.Rand
	lastPort uint16

	streams [][]fault.Stream // as Net
	heard   [][]hearing      // by sending and receiving node
	opt     Options
	rng     *rand.Rand // of the network
	steps   *rand.Rand // of how long handshakes take
	memory  *rand.Rand // of how pages come and go
	queue   eventQueue
	seq     uint64
	trace   trace
	flaw    error // the first thing that went wrong
	handled *Node // who got the latest frame
	// of the latest frames
	batch    []delivery
	arrivals []engine.Arrival
}

// Node is one engine and what happened to it.
type Node struct {
	E         *engine.Endpoint
	Grants    *regmem.Table
	Index     int
	Handle    func(ev *engine.Event) // nil: events are kept in Events
	Events    []engine.Event
	Down      bool
	Crashes   int
	CrashedAt mono.Time // the latest of them

	w        *World
	batch    engine.Batches
	news     []engine.Event // that came together, of which one is handled
	boot     uint64
	id       *secure.Node // nil in plaintext
	services []string
	up       uint64 // links
}

type delivery struct {
	at      mono.Time
	seq     uint64
	from    int
	node    int
	link    int
	frame   []byte
	flipped int        // which byte was corrupted, 0: none
	copied  bool       // another copy was or will be delivered
	origin  frame.Addr // of IP links
	ecn     frame.ECN
	call    func()
}

type eventQueue []delivery

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(delivery)) }
func (q *eventQueue) Pop() any {
	old := *q
	n := len(old) - 1
	d := old[n]
	old[n] = delivery{}
	*q = old[:n]
	return d
}

// Streams of randomness: what one of them draws changes nothing in the others.
const (
	networkStream = 1 + iota
	workloadStream
	crashStream
	mixStream
	identityStream
	narrowStream
	formStream
	stepStream
	cableStream
	localStream
	memoryStream
	mailStream
	eagerStream
	patienceStream
	poolStream
	pieceStream
	togetherStream
	earlyStream
	ipStream
)

func stream(seed, which uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, which)) }

// New makes a world with all nodes up.
func New(o Options) *World {
	o.Nodes, o.Links, o.MTU = cmp.Or(o.Nodes, 2), cmp.Or(o.Links, 1), cmp.Or(o.MTU, 1500)
	o.Faults.Delay = cmp.Or(o.Faults.Delay, 5*time.Microsecond)
	w := &World{Now: mono.Time(time.Second), opt: o, rng: stream(o.Seed, networkStream),
		steps: stream(o.Seed, stepStream), memory: stream(o.Seed, memoryStream)}
	w.trace.on, w.trace.clear = o.Trace, o.Secure
	if o.IP.Lanes > 0 {
		w.ipNetwork()
	}
	for range o.Links + o.IP.Ways {
		w.Net = append(w.Net, slices.Repeat([]Faults{o.Faults}, o.Nodes))
		w.streams = append(w.streams, slices.Repeat([]fault.Stream{fault.By(w.rng)}, o.Nodes))
	}
	ids := w.identities()
	for i := range o.Nodes {
		w.Apart = append(w.Apart, make([]bool, o.Nodes))
		w.heard = append(w.heard, make([]hearing, o.Nodes))
		w.Plug = append(w.Plug, nil)
		for l := range o.Links {
			w.Plug[i] = append(w.Plug[i], l)
		}
		n := &Node{Index: i, w: w, id: ids[i]}
		for l := range o.Links {
			n.batch.Set(l, engine.NewBatch(32, o.MTU))
		}
		for l := range o.IP.Lanes {
			n.batch.Set(o.Links+l, engine.NewBatch(32, o.ipMTU()))
		}
		w.Nodes = append(w.Nodes, n)
	}
	for _, n := range w.Nodes {
		n.Boot()
	}
	return w
}

// After calls f at a later time.
func (w *World) After(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.queue, delivery{at: w.Now.Add(d), seq: w.seq, call: f})
}

// fault remembers the first thing that is wrong; Step returns it.
func (w *World) fault(format string, args ...any) {
	if w.flaw == nil {
		w.flaw = fmt.Errorf(format, args...)
	}
}

// pump lets every node do what it can do now.
func (w *World) pump() {
	for _, n := range w.Nodes {
		again := !n.Down
		for round := 0; again && round < 1000; round++ {
			again = false
			if n.E.NextTimeout() <= w.Now {
				n.E.HandleTimeout(w.Now)
			}
			n.redraw()
			for n.E.PollTransmit(w.Now, &n.batch) > 0 {
				for link, f := range n.batch.All() {
					w.send(n, link, f)
				}
				n.batch.Reset()
				again = true
			}
			n.takeSteps()
			again = n.takeEvents() || again
		}
	}
}

func (n *Node) takeEvents() (any bool) {
	for {
		n.news = n.news[:0]
		for ev := (engine.Event{}); n.E.PollEvent(&ev); {
			n.news = append(n.news, ev)
		}
		if len(n.news) == 0 {
			return any
		}
		any = true
		for i := range n.news {
			n.takeEvent(&n.news[i])
		}
	}
}

func (n *Node) takeEvent(ev *engine.Event) {
	n.w.trace.event(n.w, n, ev)
	if ev.Kind == engine.EvClosed {
		n.Grants.RevokeOwner(uint64(ev.Conn), math.MaxInt)
	}
	if n.Handle != nil {
		n.Handle(ev)
	} else {
		n.Events = append(n.Events, *ev)
	}
}

// ended reports whether the end of a connection is among the events that came together with the one that is handled:
// frames that arrive together may bring a request and its end.
func (n *Node) ended(id engine.ConnID) bool {
	return slices.ContainsFunc(n.news, func(ev engine.Event) bool {
		return ev.Kind == engine.EvClosed && ev.Conn == id
	})
}

// Step advances to the next event. It reports false if nothing will ever happen again.
func (w *World) Step() (bool, error) {
	w.pump()
	next := mono.Never
	for _, n := range w.Nodes {
		if !n.Down {
			next = min(next, n.E.NextTimeout())
			if n.E.Overslept() {
				w.fault("host %d looks at its sessions that are being set up too late", n.Index)
			}
		}
	}
	w.handled = nil
	if len(w.queue) > 0 && w.queue[0].at <= next {
		d := heap.Pop(&w.queue).(delivery)
		w.Now = max(w.Now, d.at)
		if d.call != nil {
			d.call()
		} else if n := w.Nodes[d.node]; !n.Down && n.up&(1<<d.link) != 0 {
			w.deliver(n, w.together(d))
		}
	} else {
		if next == mono.Never {
			return false, nil
		}
		w.Now = max(w.Now, next)
	}
	w.pump()
	if w.flaw == nil && w.Check != nil {
		return true, w.Check()
	}
	return true, w.flaw
}

// Run steps until done says so, for at most limit of virtual time.
func (w *World) Run(limit time.Duration, done func() bool) error {
	end := w.Now.Add(limit)
	still, at := 0, w.Now
	for !done() {
		if still++; w.Now != at {
			still, at = 0, w.Now
		} else if still > 100_000 {
			return fmt.Errorf("time stands still at %v", w.Now)
		}
		if w.Now > end {
			return fmt.Errorf("not done after %v of virtual time", limit)
		}
		ok, err := w.Step()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("nothing left to happen")
		}
	}
	return nil
}

// Rest runs for a time.
func (w *World) Rest(d time.Duration) error {
	over := false
	w.After(d, func() { over = true })
	return w.Run(d+time.Second, func() bool { return over })
}

// Hash is a fingerprint of every frame sent so far, with its time, if Options.Trace is set.
func (w *World) Hash() uint64 { return w.trace.sum }

// Stop ends all engines; the world is not used any more.
func (w *World) Stop() {
	for _, n := range w.Nodes {
		if !n.Down {
			n.Crash()
		}
	}
}
