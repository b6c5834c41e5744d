// Package sim runs production engines on lossy links under a virtual clock: one goroutine, one heap ordered by (time, sequence), so that the same
// seed is the same run to the last frame.
package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Faults is what one direction of one link does to frames. Probabilities are per frame.
type Faults struct {
	Loss, Dup, Corrupt float64
	Delay              time.Duration // of every frame
	Jitter             time.Duration // more, uniformly: frames overtake each other
	Rate               float64       // bytes per second; 0: unlimited
	Queue              time.Duration // what the queue of a limited link holds, as time; beyond it frames are dropped. 0: no bound
	Cut                bool
}

// Options fixes a world.
type Options struct {
	Seed      uint64
	Nodes     int // 0: 2
	Links     int // 0: 1
	MTU       int // 0: 1500
	Slots     int // receive slots announced
	Shuffle   uint16
	Scheduler string
	Profile   flowctl.Profile
	OpWindow  int
	Checksum  engine.Checksum
	Faults    Faults // of every link and direction at first
	Trace     bool   // keep a hash of all frames
}

// World is nodes joined by links; link i of every node is on one segment.
type World struct {
	Now   mono.Time
	Nodes []*Node
	Net   [][]Faults // by link and sending node
	busy  [][]mono.Time
	opt   Options
	rng   *rand.Rand // of the network
	queue eventQueue
	seq   uint64
	hash  uint64
	// what the network did
	Sent, Lost, Duplicated, Corrupted uint64
	Check                             func() error // runs after every event
}

// Node is one engine and what happened to it.
type Node struct {
	E      *engine.Endpoint
	Grants *regmem.Table
	Index  int
	w      *World
	batch  *engine.Batch
	boot   uint64
	Handle func(ev *engine.Event) // nil: events are kept in Events
	Events []engine.Event
	Down   bool
}

type delivery struct {
	at    mono.Time
	seq   uint64
	node  int
	link  int
	frame []byte
	call  func()
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
	*q = old[:n]
	return d
}

// New makes a world with all nodes up.
func New(o Options) *World {
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.Links == 0 {
		o.Links = 1
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Faults.Delay == 0 {
		o.Faults.Delay = 5 * time.Microsecond
	}
	w := &World{Now: mono.Time(time.Second), opt: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	for range o.Links {
		net := make([]Faults, o.Nodes)
		for i := range net {
			net[i] = o.Faults
		}
		w.Net = append(w.Net, net)
		w.busy = append(w.busy, make([]mono.Time, o.Nodes))
	}
	for i := range o.Nodes {
		n := &Node{Index: i, w: w, batch: engine.NewBatch(32, o.MTU)}
		w.Nodes = append(w.Nodes, n)
		n.Boot()
	}
	return w
}

// Name is what other nodes dial.
func (n *Node) Name() string { return fmt.Sprintf("node%d", n.Index) }

// Boot starts the node's engine anew, with another epoch; what it knew is gone.
func (n *Node) Boot() {
	o := n.w.opt
	n.boot++
	n.Down = false
	n.Grants = regmem.NewTable(seededReader{rand.New(rand.NewPCG(o.Seed, uint64(n.Index)<<32|n.boot))})
	e, err := engine.New(engine.Config{
		Node: engine.NodeID{7: byte(n.Index + 1)}, Name: n.Name(), Epoch: n.boot, Seed: o.Seed ^ uint64(n.Index+1)<<40 ^ n.boot, Scheduler: o.Scheduler, Profile: o.Profile,
		OpWindow: o.OpWindow, Checksum: o.Checksum, Grants: n.Grants,
	})
	if err != nil {
		panic(err)
	}
	n.E, n.Events = e, nil
	for i := range o.Links {
		n.SetLink(i, o.MTU)
	}
}

// SetLink brings link i up with an MTU.
func (n *Node) SetLink(i, mtu int) {
	_ = n.E.SetLink(n.w.Now, i, engine.LinkConfig{Name: fmt.Sprintf("edge%d", i), MAC: n.mac(i), MTU: mtu, RxSlots: n.w.opt.Slots, Shuffle: n.w.opt.Shuffle})
}

func (n *Node) mac(i int) [6]byte { return [6]byte{2, 0, 0, 0, byte(i), byte(n.Index + 1)} }

type seededReader struct{ *rand.Rand }

func (r seededReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}

// After calls f at a later time.
func (w *World) After(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.queue, delivery{at: w.Now.Add(d), seq: w.seq, call: f})
}

// pump lets every node do what it can do now.
func (w *World) pump() {
	for _, n := range w.Nodes {
		if n.Down {
			continue
		}
		again := true
		for round := 0; again && round < 1000; round++ {
			again = false
			if n.E.NextTimeout() <= w.Now {
				n.E.HandleTimeout(w.Now)
			}
			for n.E.PollTransmit(w.Now, n.batch) > 0 {
				for i := range n.batch.Frames {
					w.send(n, &n.batch.Frames[i])
				}
				n.batch.Reset()
				again = true
			}
			var ev engine.Event
			for n.E.PollEvent(&ev) {
				again = true
				if n.Handle != nil {
					n.Handle(&ev)
				} else {
					n.Events = append(n.Events, ev)
				}
			}
		}
	}
}

// send puts a frame on its link.
func (w *World) send(from *Node, f *engine.TxFrame) {
	w.Sent++
	frame := append(append(append([]byte(nil), f.Head...), f.Bulk...), f.Tail...)
	if w.opt.Trace {
		h := fnv.New64a()
		fmt.Fprint(h, w.hash, w.Now, from.Index, f.Link)
		h.Write(frame)
		w.hash = h.Sum64()
	}
	net := &w.Net[f.Link][from.Index]
	if net.Cut || w.rng.Float64() < net.Loss {
		w.Lost++
		return
	}
	at := w.Now
	if net.Rate > 0 {
		busy := &w.busy[f.Link][from.Index]
		if net.Queue > 0 && *busy > at.Add(net.Queue) {
			w.Lost++
			return
		}
		*busy = max(*busy, at).Add(time.Duration(float64(len(frame)) / net.Rate * 1e9))
		at = *busy
	}
	copies := 1
	if w.rng.Float64() < net.Dup {
		copies = 2
		w.Duplicated++
	}
	for range copies {
		b := frame
		if w.rng.Float64() < net.Corrupt {
			b = append([]byte(nil), frame...)
			b[14+w.rng.IntN(len(b)-14)] ^= 1 << w.rng.IntN(8)
			w.Corrupted++
		}
		d := net.Delay
		if net.Jitter > 0 {
			d += time.Duration(w.rng.Int64N(int64(net.Jitter)))
		}
		for _, n := range w.Nodes {
			to := n.mac(f.Link)
			if n != from && (b[0]&1 != 0 || string(b[:6]) == string(to[:])) {
				w.seq++
				heap.Push(&w.queue, delivery{at: at.Add(d), seq: w.seq, node: n.Index, link: f.Link, frame: append([]byte(nil), b...)})
			}
		}
	}
}

// Step advances to the next event. It reports false if nothing will ever happen again.
func (w *World) Step() (bool, error) {
	w.pump()
	next := mono.Never
	for _, n := range w.Nodes {
		if !n.Down {
			next = min(next, n.E.NextTimeout())
		}
	}
	if len(w.queue) > 0 && w.queue[0].at <= next {
		d := heap.Pop(&w.queue).(delivery)
		w.Now = max(w.Now, d.at)
		if d.call != nil {
			d.call()
		} else if n := w.Nodes[d.node]; !n.Down {
			n.E.HandleFrame(w.Now, d.link, d.frame)
		}
	} else {
		if next == mono.Never {
			return false, nil
		}
		w.Now = max(w.Now, next)
	}
	w.pump()
	if w.Check != nil {
		return true, w.Check()
	}
	return true, nil
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

// Hash is a fingerprint of every frame sent so far, with its time, if Options.Trace is set.
func (w *World) Hash() uint64 { return w.hash }

// Connect opens a connection from node a to node b, both ends open when it returns.
func (w *World) Connect(a, b *Node, o engine.DialOptions) (ca, cb engine.ConnID, err error) {
	b.E.Listen("test")
	ha, hb := a.Handle, b.Handle
	defer func() { a.Handle, b.Handle = ha, hb }()
	var failed *engine.Event
	a.Handle = func(ev *engine.Event) {
		switch ev.Kind {
		case engine.EvConnected:
			ca = ev.Conn
		case engine.EvClosed:
			failed = ev
		}
	}
	b.Handle = func(ev *engine.Event) {
		if ev.Kind == engine.EvIncoming {
			cb = ev.Conn
			b.E.Accept(w.Now, ev.Conn, nil)
		}
	}
	if _, err = a.E.Dial(w.Now, b.Name(), "test", o); err != nil {
		return
	}
	err = w.Run(2*time.Minute, func() bool { return ca != 0 && cb != 0 || failed != nil })
	if err == nil && failed != nil {
		err = fmt.Errorf("dial failed: %v %s", failed.Status, failed.Text)
	}
	return
}
