package engine_test

import (
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// crowd is what one owner does at once: so many connections, on each of which operations are kept outstanding.
type crowd struct {
	owner engine.Owner
	conns int
	size  int
	deep  int  // operations outstanding on each connection; 0: none
	read  bool // node 1 reads: node 0 sends all the same
	bad   bool // operations are refused at node 1, for their place
}

// fairRig is a rig with crowds at node 0.
type fairRig struct {
	*rig
	c      []crowdConn
	crowds []crowd
	sent   [2]map[uint32]int // by node: bytes of segments, by the number of the receiving end's connection
}

type crowdConn struct {
	of, from  int // crowd; the node that submits
	c         [2]engine.ConnID
	op        engine.Op
	submitted uint64
	done      uint64
}

func newFairRig(t *testing.T, crowds ...crowd) *fairRig {
	r := &fairRig{rig: newRig(t, rigOptions{window: 8192}), crowds: crowds}
	for k, w := range crowds {
		for range w.conns {
			c := r.connect(engine.DialOptions{Owner: w.owner})
			r.n[1].e.SetOwner(c[1], w.owner)
			x := crowdConn{of: k, c: c, op: engine.Op{Kind: engine.OpWrite, Local: make([]byte, w.size)}}
			if w.read {
				x.from, x.op.Kind = 1, engine.OpRead
			}
			_, key := r.export(1-x.from, c[1-x.from], w.size, both)
			x.op.Key = key
			if w.bad {
				x.op.Off = 1
			}
			r.c = append(r.c, x)
		}
	}
	r.settle()
	r.hop = 100 * time.Microsecond
	r.pass = r.count
	for i := range r.n {
		r.n[i].done, r.n[i].events = map[uint64]engine.Status{}, nil
	}
	return r
}

// count adds up what a frame carries.
func (r *fairRig) count(from int, f *flight) bool {
	var d wire.Frame
	if d.Decode(f.b[wire.EthLen:]) != nil || d.Type != wire.TypeData {
		return true
	}
	if d.Flags&wire.FlagBulk != 0 {
		r.sent[from][d.Bulk.Conn] += wire.BulkLen + len(d.Payload)
	}
	var g wire.Segment
	for tail := d.Tail; len(tail) > 0; {
		n := len(tail)
		var err error
		if tail, err = g.Next(tail); err != nil {
			r.t.Fatal(err)
		}
		switch g.Kind {
		case wire.KindWrite, wire.KindWriteNext, wire.KindReadData, wire.KindReadRequest, wire.KindOpNak:
			r.sent[from][g.Conn] += n - len(tail)
		}
	}
	return true
}

// feed keeps operations outstanding on every connection.
func (r *fairRig) feed() {
	for i := range r.n {
		for token := range r.n[i].done {
			r.c[token>>32].done++
		}
		clear(r.n[i].done)
		r.n[i].events = r.n[i].events[:0]
	}
	for k := range r.c {
		x := &r.c[k]
		for x.submitted-x.done < uint64(r.crowds[x.of].deep) && r.n[x.from].e.Room(x.c[x.from]) > 0 {
			op := x.op
			op.Token = uint64(k)<<32 | x.submitted
			r.submit(x.from, x.c[x.from], op)
			x.submitted++
		}
	}
}

// run returns how many bytes node 0 sends of each crowd in so much time.
func (r *fairRig) run(d time.Duration) []int {
	warm := r.now.Add(d / 2)
	r.sent = [2]map[uint32]int{{}, {}}
	r.until(d/2, func() bool { r.feed(); return r.now >= warm })
	end := r.now.Add(d)
	r.sent = [2]map[uint32]int{{}, {}}
	r.until(d, func() bool { r.feed(); return r.now >= end })
	return r.of(0)
}

// of adds up by crowd what a node sent.
func (r *fairRig) of(from int) []int {
	out := make([]int, len(r.crowds))
	for k := range r.c {
		out[r.c[k].of] += r.sent[from][uint32(r.c[k].c[1-from])]
	}
	return out
}

func user(n uint64) engine.Owner { return engine.Owner{User: n} }

// However many connections they have, and whatever they do on them, users send equally much; so do clients of one user,
// and connections of one client.
func TestShares(t *testing.T) {
	t.Parallel()
	const many, small, long = 100, 64, 16 << 10
	one, two := user(1), user(2)
	ab, ac := engine.Owner{User: 1, Client: 1}, engine.Owner{User: 1, Client: 2}
	for name, c := range map[string][2]crowd{
		"users: 1 and 100 connections": {{owner: one, conns: 1, size: long, deep: 64}, {owner: two, conns: many,
			size: long, deep: 64}},
		"users: short and long operations": {{owner: one, conns: 1, size: small, deep: 8000},
			{owner: two, conns: many, size: long, deep: 64}},
		"users: long and short operations": {{owner: one, conns: 1, size: long, deep: 64}, {owner: two, conns: many,
			size: small, deep: 1000}},
		"users: answers to reads and writes": {{owner: one, conns: 1, size: long, deep: 64, read: true},
			{owner: two, conns: many, size: long, deep: 64}},
		"users: writes and answers to reads": {{owner: one, conns: 1, size: long, deep: 64}, {owner: two, conns: many,
			size: long, deep: 64, read: true}},
		"clients: 1 and 100 connections": {{owner: ab, conns: 1, size: long, deep: 64}, {owner: ac, conns: many,
			size: long, deep: 64}},
		"connections: short and long": {{owner: one, conns: 1, size: 1000, deep: 1000}, {owner: one, conns: 1,
			size: long, deep: 64}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFairRig(t, c[0], c[1]).run(20 * time.Millisecond)
			if share := float64(n[0]) / float64(n[0]+n[1]); n[0] < 1<<20 || share < 0.45 || share > 0.55 {
				t.Errorf("%d and %d bytes: a share of %.3f, want 0.5", n[0], n[1], share)
			}
		})
	}
}

// Three users, one of them with two clients: a third each, and of that a half.
func TestSharesOfClientsAndUsers(t *testing.T) {
	const long = 16 << 10
	own := func(u, c uint64) engine.Owner { return engine.Owner{User: u, Client: c} }
	n := newFairRig(t, crowd{owner: own(1, 1), conns: 1, size: long, deep: 64}, crowd{owner: own(2, 1), conns: 20,
		size: long, deep: 64},
		crowd{owner: own(3, 1), conns: 1, size: long, deep: 64}, crowd{owner: own(3, 2), conns: 20, size: long,
			deep: 64}).run(20 * time.Millisecond)
	all := float64(n[0] + n[1] + n[2] + n[3])
	for k, want := range []float64{1. / 3, 1. / 3, 1. / 6, 1. / 6} {
		if share := float64(n[k]) / all; share < want*0.9 || share > want*1.1 {
			t.Errorf("crowd %d has a share of %.3f, want %.3f; all sent %v bytes", k, share, want, n)
		}
	}
}

// Nobody's turn is kept for one who has nothing to send: beside users who rest a user sends as much as alone, beside
// one who wants little all the rest.
func TestNobodyWaitsForTheIdle(t *testing.T) {
	const long = 16 << 10
	lone := crowd{owner: user(1), conns: 1, size: long, deep: 64}
	alone := newFairRig(t, lone).run(10 * time.Millisecond)[0]
	idle := newFairRig(t, lone, crowd{owner: user(2), conns: 50, size: long}).run(10 * time.Millisecond)[0]
	if idle < alone*95/100 {
		t.Errorf("%d bytes beside users who rest, %d alone", idle, alone)
	}
	n := newFairRig(t, lone, crowd{owner: user(2), conns: 2, size: 512, deep: 1}).run(10 * time.Millisecond)
	if n[0]+n[1] < alone*95/100 || n[1] == 0 {
		t.Errorf("%d bytes beside one who wants %d, %d alone", n[0], n[1], alone)
	}
}

// Refused operations are work of the user who posts them, and their refusals of the one they were meant for: beside
// them another's go on as beside honest ones.
func TestRefusedWorkIsCharged(t *testing.T) {
	const long = 16 << 10
	for _, size := range []int{64, long} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			spam := crowd{owner: user(2), conns: 100, size: size, deep: 64}
			there := crowd{owner: user(1), conns: 1, size: long, deep: 64}
			// node 0 sends what node 1 asks for
			back := crowd{owner: user(1), conns: 1, size: long, deep: 64, read: true}
			honest := newFairRig(t, there, back, spam).run(20 * time.Millisecond)
			spam.bad = true
			r := newFairRig(t, there, back, spam)
			beside := r.run(20 * time.Millisecond)
			if r.n[1].e.Count.Op.AccessRefused == 0 {
				t.Fatal("nothing was refused")
			}
			h, b, all := honest[0]+honest[1], beside[0]+beside[1], beside[0]+beside[1]+beside[2]
			if float64(b) < 0.9*float64(h) || float64(b) < 0.45*float64(all) {
				t.Errorf("%d bytes beside refused operations, %d beside honest ones; all sent %v", b, h, beside)
			}
		})
	}
}
