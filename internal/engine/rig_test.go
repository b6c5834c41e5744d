package engine_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// rig is two engines joined in memory, for tests that hold, reorder, drop, change or invent single frames; package sim
// is for what happens over time. Frames of one round arrive one hop later, in order.
type rig struct {
	t      testing.TB
	now    mono.Time
	n      [2]*node
	hop    time.Duration
	pass   func(from int, f *flight) bool // nil: everything passes
	supers func(frames int) bool          // which datagrams pass, by the frames in them; nil: all
	spoil  bool                           // the last frame of a datagram is lost if it is as long as the others
	mac    [2]map[int][6]byte             // addresses that are not macOf
	// the other node's link that a link of node from is joined to, -1: none; nil: the one of the same number
	far     func(from, link int) int
	route   func(from int, f *flight) // delivers frames of IP links; nil: there are none
	scratch [65536]byte
}

type node struct {
	e      *engine.Endpoint
	reader *engine.Reader
	grants *regmem.Table
	batch  *engine.Batches
	events []engine.Event
	done   map[uint64]engine.Status // by token
	values map[uint64]uint64        // likewise, of atomics
	closed map[engine.ConnID]engine.Event
	auto   bool           // take notifications as they come
	late   []*engine.Step // computed, the results come with the next round
	stuck  bool           // never
	notes  []engine.Notification
}

// flight is a frame on its way.
type flight struct {
	link    int
	b       []byte
	joined  bool       // in a datagram
	to      frame.Addr // on IP links
	capable bool
}

type rigOptions struct {
	links, mtu, window, held int
	super                    int // bytes that a datagram can hold; 0: the links take none
	profile                  string
	scheduler                string
	maxConns                 int
	shuffle                  uint16
	checksum                 engine.Checksum
	exchangers               [2]*remap.Exchanger
	copySend                 bool
	sealed                   bool
	deferred                 bool // steps of handshakes are computed when rig.steps is called
	keys                     [2]engine.KeyLimits
	maxDials                 int
	shard, shards            [2]int // of each node; zero shards: one
	// frames are looked at by a Reader, and payloads placed when that is waited for, not before
	lazy    bool
	strange [2]bool // node i is not authorised at the other one
}

// identity returns the key of node i.
func identity(i int) secure.PrivateKey { return secure.PrivateKey{31: byte(i + 1)} }

// secureNode is node i with the other one authorised.
func secureNode(t testing.TB, i int, o *rigOptions) *secure.Node {
	var peers []secure.Peer
	if !o.strange[1-i] {
		peers = append(peers, secure.Peer{Name: fmt.Sprint("node", 1-i), Key: identity(1 - i).Public()})
	}
	table, err := secure.NewPeers(peers...)
	if err != nil {
		t.Fatal(err)
	}
	return secure.NewNode(identity(i), table)
}

// counting is a reproducible source of keys.
type counting uint64

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		*c = *c*6364136223846793005 + 1442695040888963407
		p[i] = byte(*c >> 56)
	}
	return len(p), nil
}

// inBothForms runs a test in plaintext and sealed.
func inBothForms(t *testing.T, test func(t *testing.T, sealed bool)) {
	t.Run("plaintext", func(t *testing.T) { test(t, false) })
	t.Run("sealed", func(t *testing.T) { test(t, true) })
}

// batches takes frames of up to 9000 bytes, or mtu if that is more, of so many links and of those that tests add.
func batches(links, mtu int) *engine.Batches {
	b := new(engine.Batches)
	for i := range max(8, links) {
		b.Set(i, engine.NewBatch(batchFrames, max(9000, mtu)))
	}
	b.Set(engine.MaxLinks-1, engine.NewBatch(batchFrames, 9000))
	return b
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, now: mono.Time(time.Second), hop: 5 * time.Microsecond}
	for i := range r.n {
		r.boot(i, 1, o)
	}
	return r
}

func (r *rig) boot(i int, epoch uint64, o rigOptions) {
	r.t.Helper()
	o.links = max(o.links, 1)
	if o.mtu == 0 {
		o.mtu = 1500
	}
	src := counting(i + 1)
	profile, err := flowctl.ProfileByName(o.profile)
	if err != nil {
		r.t.Fatal(err)
	}
	n := &node{grants: regmem.NewTable(&src), batch: batches(o.links, o.mtu), done: map[uint64]engine.Status{},
		closed: map[engine.ConnID]engine.Event{}}
	id := engine.NodeID{7: byte(i + 1)}
	var who *secure.Node
	if o.sealed {
		who = secureNode(r.t, i, &o)
		id = who.Public.Node()
	}
	n.e, err = engine.New(engine.Config{
		Node: id, Secure: who, Name: fmt.Sprint("node", i), Epoch: epoch, Seed: uint64(i) + epoch<<8, Grants: n.grants,
		OpWindow:  o.window,
		HeldBytes: o.held, Profile: profile, Scheduler: o.scheduler, MaxConns: o.maxConns,
		Checksum: o.checksum, Exchanger: o.exchangers[i], CopySend: o.copySend, Placer: placerOf(&o),
		Deferred: o.deferred, Keys: o.keys[i], MaxDials: o.maxDials, Shard: o.shard[i], Shards: o.shards[i],
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if o.lazy || lazyAll {
		n.reader = n.e.NewReader()
	}
	for l := range o.links {
		n.e.SetLink(r.now, l, engine.LinkConfig{Name: fmt.Sprint("edge", l), Addr: frame.Ether(macOf(i, l)), MTU: o.mtu,
			RxSlots: 256,
			Shuffle: o.shuffle, Super: o.super, Overhead: overhead(o.super)})
	}
	r.n[i] = n
}

func (r *rig) macAt(i, link int) [6]byte {
	if mac, ok := r.mac[i][link]; ok {
		return mac
	}
	return macOf(i, link)
}

// overhead is what the headers of a datagram take of the MTU, where links take datagrams.
func overhead(super int) int {
	if super == 0 {
		return 0
	}
	return 62
}

// relink gives link l of node i another address and size.
func (r *rig) relink(i, l int, mac [6]byte, mtu int) {
	r.t.Helper()
	if r.mac[i] == nil {
		r.mac[i] = map[int][6]byte{}
	}
	r.mac[i][l] = mac
	if err := r.n[i].e.SetLink(r.now, l, engine.LinkConfig{Name: fmt.Sprint("edge", l), Addr: frame.Ether(mac),
		MTU:     mtu,
		RxSlots: 256}); err != nil {
		r.t.Fatal(err)
	}
}

func macOf(node, link int) [6]byte { return [6]byte{2, 0, 0, 0, byte(link), byte(node + 1)} }

// take collects what node i sends now.
func (r *rig) take(i int) (out []flight) {
	n := r.n[i]
	if n.e.NextTimeout() <= r.now {
		n.e.HandleTimeout(r.now)
	}
	if n.e.Overslept() {
		r.t.Errorf("node %d looks at its sessions that are being set up too late", i)
	}
	for n.e.PollTransmit(r.now, n.batch) > 0 {
		sent := len(out)
		for link, f := range n.batch.All() {
			out = append(out, flight{link, f.AppendTo(nil), f.Joined, f.To, f.Capable})
		}
		out = append(out[:sent], r.datagrams(out[sent:])...)
		n.batch.Reset()
	}
	r.poll(i)
	return out
}

// datagrams leaves out those that do not pass. Frames share one if they follow one another on a link and have one
// length; the last may be shorter.
func (r *rig) datagrams(frames []flight) (out []flight) {
	for i, n := 0, 0; i < len(frames); i += n {
		first := &frames[i]
		for n = 1; first.joined && i+n < len(frames); n++ {
			f := &frames[i+n]
			if !f.joined || f.link != first.link || len(f.b) > len(first.b) || len(frames[i+n-1].b) < len(first.b) ||
				(n+1)*len(first.b) > superBytes {
				break
			}
		}
		pass := n
		if r.spoil && n > 1 && len(frames[i+n-1].b) == len(first.b) {
			pass--
		}
		if !first.joined || r.supers == nil || r.supers(n) {
			out = append(out, frames[i:i+pass]...)
		}
	}
	return out
}

// give delivers one frame to node i, unless it is addressed to somebody else.
func (r *rig) give(i int, f flight) {
	if mac := r.macAt(i, f.link); f.b[0]&1 != 0 || string(f.b[:6]) == string(mac[:]) {
		r.n[i].handle(r.now, f.link, f.b)
	}
	r.poll(i)
}

// handle has the endpoint take a frame, if it is lazy from a Reader.
func (n *node) handle(now mono.Time, link int, frame []byte) {
	if n.reader == nil {
		n.e.Handle(now, link, engine.Whole(frame))
		return
	}
	n.e.Placed() // what the Reader opened before
	var a [1]engine.Arrival
	n.reader.Read([][]byte{frame}, a[:])
	n.e.Handle(now, link, a[0])
}

func (r *rig) poll(i int) {
	n := r.n[i]
	for _, strangers := range []bool{false, true} {
		for st := n.e.NextStep(strangers); st != nil; st = n.e.NextStep(strangers) {
			st.Do()
			n.late = append(n.late, st)
		}
	}
	var ev engine.Event
	for n.e.PollEvent(&ev) {
		n.events = append(n.events, ev)
		switch ev.Kind {
		case engine.EvComplete:
			if st, twice := n.done[ev.Token]; twice {
				r.t.Fatalf("node %d: operation with token %d completed with %v and again with %v", i, ev.Token, st,
					ev.Status)
			}
			n.done[ev.Token] = ev.Status
			if ev.Value != 0 {
				if n.values == nil {
					n.values = map[uint64]uint64{}
				}
				n.values[ev.Token] = ev.Value
			}
		case engine.EvClosed:
			n.grants.RevokeOwner(uint64(ev.Conn), math.MaxInt)
			if _, twice := n.closed[ev.Conn]; twice {
				r.t.Fatalf("node %d: connection %d closed twice", i, ev.Conn)
			}
			n.closed[ev.Conn] = ev
		case engine.EvNotify:
			if n.auto {
				n.takeNotes(ev.Conn)
			}
		}
	}
}

func (n *node) takeNotes(c engine.ConnID) {
	for {
		note, ok := n.e.TakeNotify(c)
		if !ok {
			return
		}
		n.notes = append(n.notes, note)
	}
}

// round moves what both nodes have to send. It reports whether there was anything.
func (r *rig) round() bool {
	var sent [2][]flight
	for i, n := range r.n {
		late := n.late
		n.late = nil
		for _, st := range late {
			if n.stuck {
				continue
			}
			n.e.Stepped(r.now, st)
		}
		for _, f := range r.take(i) {
			if r.pass == nil || r.pass(i, &f) {
				sent[i] = append(sent[i], f)
			}
		}
	}
	if len(sent[0])+len(sent[1])+len(r.n[0].late)+len(r.n[1].late) == 0 {
		return false
	}
	r.now = r.now.Add(r.hop)
	for i := range sent {
		for _, f := range sent[i] {
			if r.route != nil && f.to.IsIP() {
				r.route(i, &f)
				continue
			}
			if r.far != nil {
				f.link = r.far(i, f.link)
			}
			if f.link >= 0 {
				r.give(1-i, f)
			}
		}
	}
	return true
}

// until runs rounds until cond holds, for at most limit of virtual time, and reports whether it did.
func (r *rig) until(limit time.Duration, cond func() bool) bool {
	for end := r.now.Add(limit); !cond(); {
		if r.now > end {
			return false
		}
		if !r.round() && !cond() {
			next := min(r.n[0].e.NextTimeout(), r.n[1].e.NextTimeout())
			r.now = max(r.now+1, min(next, end+1))
		}
	}
	return true
}

func (r *rig) must(what string, limit time.Duration, cond func() bool) {
	r.t.Helper()
	if start := r.now; !r.until(limit, cond) {
		r.t.Fatalf("%s: not within %v of virtual time; now %v\nnode 0: %+v\nnode 1: %+v", what, limit, r.now.Sub(start),
			r.n[0].e.Snapshot(r.now), r.n[1].e.Snapshot(r.now))
	}
}

// rest runs for a fixed virtual time.
func (r *rig) rest(d time.Duration) {
	end := r.now.Add(d)
	r.until(d, func() bool { return r.now >= end })
}

// connect opens a connection from node 0 to node 1.
func (r *rig) connect(o engine.DialOptions) (c [2]engine.ConnID) {
	r.t.Helper()
	return r.connectTo("test", o)
}

func (r *rig) connectTo(service string, o engine.DialOptions) (c [2]engine.ConnID) {
	r.t.Helper()
	a, b := r.n[0], r.n[1]
	b.e.Listen(service)
	id, err := a.e.Dial(r.now, "node1", service, o)
	if err != nil {
		r.t.Fatal(err)
	}
	seen := len(b.events)
	up := false
	r.must("connect", 10*time.Second, func() bool {
		for ; seen < len(b.events); seen++ {
			if ev := &b.events[seen]; ev.Kind == engine.EvIncoming {
				c[1] = ev.Conn
				if err := b.e.Accept(r.now, ev.Conn, nil); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		for i := range a.events {
			up = up || a.events[i].Kind == engine.EvConnected && a.events[i].Conn == id
		}
		if ev, over := a.closed[id]; over {
			r.t.Fatalf("dial failed: %v %s", ev.Status, ev.Text)
		}
		return up
	})
	a.events, b.events = nil, nil
	c[0] = id
	return c
}

// settle waits for all paths to have found their frame size.
func (r *rig) settle() { r.rest(300 * time.Millisecond) }

// export grants n fresh bytes of node i to its connection c.
func (r *rig) export(i int, c engine.ConnID, n int, perm regmem.Perm) ([]byte, regmem.Key) {
	r.t.Helper()
	mem := make([]byte, n)
	key, err := r.n[i].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem)}, uint64(c), perm, 0, uint64(n))
	if err != nil {
		r.t.Fatal(err)
	}
	return mem, key
}

func (r *rig) submit(i int, c engine.ConnID, op engine.Op) {
	r.t.Helper()
	if !r.n[i].e.Submit(r.now, c, &op) {
		r.t.Fatalf("node %d does not take operation %d", i, op.Token)
	}
}

// all reports whether node i completed n operations.
func (r *rig) all(i, n int) func() bool { return func() bool { return len(r.n[i].done) >= n } }

func (r *rig) wantStatus(i int, token uint64, want engine.Status) {
	r.t.Helper()
	if got, ok := r.n[i].done[token]; !ok || got != want {
		r.t.Errorf("operation %d ended with %v (complete: %v), want %v", token, got, ok, want)
	}
}

const both = regmem.RemoteRead | regmem.RemoteWrite

// pattern fills n bytes that differ by position and seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := counting(seed + 1)
	x.Read(b)
	return b
}

// kinds lists the segments of a data frame, the bulk segment first; nil for other frames.
func kinds(frame []byte) (out []wire.Kind) {
	var f wire.Frame
	if f.Decode(frame[wire.EthLen:]) != nil || f.Type != wire.TypeData {
		return nil
	}
	if f.Flags&wire.FlagBulk != 0 {
		out = append(out, f.Bulk.Kind)
	}
	var g wire.Segment
	for tail := f.Tail; len(tail) > 0; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			return out
		}
		out = append(out, g.Kind)
	}
	return out
}

func carries(frame []byte, k wire.Kind) bool { return slices.Contains(kinds(frame), k) }

// typeOf is the frame type.
func typeOf(frame []byte) wire.Type { return wire.Type(frame[wire.EthLen] & 15) }
