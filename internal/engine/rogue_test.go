package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// What an authorised peer gone bad can say that is well formed, one segment at a time, and what comes of it.

// Clause 6.4: the segments of an operation are of one kind. When some of it is in place, a part of another kind changes
// nothing: not where a driver receives, not what the owners of memory and buffers are told.
func TestOperationOfTwoKinds(t *testing.T) {
	for _, buffers := range []int{0, 3} {
		r := newRig(t, rigOptions{})
		c := r.connect(engine.DialOptions{})
		mem, key := r.export(1, c[1], 10_000, both|regmem.RemoteAtomic)
		var boxes [][]byte
		for k := range buffers {
			boxes = append(boxes, r.post(1, c[1], 0, uint64(k), 10_000))
		}
		r.settle()
		data := pattern(1, 10_000)
		frames := underWay(r, c[0], key, 1, data)
		first := bulkOf(t, frames[0])
		s := newScatterer(r, 1)
		s.give(r, 0, frames[:1], 32)
		pn := first.PN + 1000
		for _, g := range []wire.Segment{
			{Kind: wire.KindSend, Flags: wire.SegFirst, Data: []byte("a message")},
			{Kind: wire.KindSend, Flags: wire.SegFirst | wire.SegLast, Data: []byte("a message")},
			{Kind: wire.KindReadRequest, Flags: wire.SegFirst | wire.SegLast, Key: uint64(key), Size: 100},
			{Kind: wire.KindAtomic, Flags: wire.SegFirst | wire.SegLast, Key: uint64(key), Data: make([]byte, 8),
				Size: wire.AtomicSize(wire.AtomicSwap, 8)},
		} {
			g.Conn, g.Op = uint32(c[1]), first.Bulk.Op
			pn++
			r.n[1].handle(r.now, 0, forge(frames[0], pn, &g))
			n := s.e.Forecast(0, s.slots[:])
			s.check(s.slots[:n])
			if at := addressOf(s.slots[0]) - addressOf(mem); n == 0 || at >= uintptr(len(mem)) {
				t.Errorf("%d buffers, after kind %d: %d slots, the first not in the memory that is written to", buffers,
					g.Kind, n)
			}
		}
		s.give(r, 0, frames[1:], 32)
		r.must("the write", time.Second, r.all(0, 1))
		r.wantStatus(0, 1, engine.OK)
		if bad := r.n[1].e.Count.Reject.RejectedMalformed; !bytes.Equal(mem, data) || bad != 4 {
			t.Errorf("%d buffers: memory is right: %v; %d segments were malformed, want 4", buffers,
				bytes.Equal(mem, data), bad)
		}
		for k, b := range boxes {
			if !bytes.Equal(b, make([]byte, len(b))) {
				t.Errorf("buffer %d was written to", k)
			}
		}
	}
}

// Clause 6.1: a write has one key. The owner is told of a place and a length in the memory of that key, and reads
// there: with parts behind another key it would be told of bytes beyond the end.
func TestWriteOfTwoKeys(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	small, key := r.export(1, c[1], 10, both)
	_, other := r.export(1, c[1], 1000, both)
	like, pn := r.like(c[0], 1)
	n := r.n[1]
	say := func(flags uint8, key regmem.Key, place, size int) {
		g := wire.Segment{Kind: wire.KindWrite, Flags: flags | wire.SegNotify, Conn: uint32(c[1]), Key: uint64(key),
			Place: uint64(place), Data: bytes.Repeat([]byte{1}, size)}
		pn++
		n.handle(r.now, 0, forge(like, pn, &g))
		r.poll(1)
		n.takeNotes(c[1])
	}
	say(wire.SegFirst, key, 0, 5)
	say(wire.SegLast, other, 5, 995)
	if len(n.notes) > 0 || n.e.Count.Reject.RejectedMalformed != 1 {
		t.Errorf("notified of %+v, in memory of %d bytes", n.notes, len(small))
	}
	say(wire.SegLast, key, 5, 5)
	if want := (engine.Notification{Key: key, Len: 10}); len(n.notes) != 1 || n.notes[0] != want {
		t.Errorf("notified of %+v, want %+v", n.notes, want)
	}
}

// Clause 6.8: an atomic on the last four bytes of some memory is told with its own length, though its answer has eight.
func TestAtomicOfFourNotifies(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 12, regmem.RemoteAtomic)
	op := atomicOp(1, key, 8, engine.Atomic{Func: wire.AtomicAdd, Size: 4, Operand: 5})
	op.Flags = engine.Notify
	r.submit(0, c[0], op)
	r.must("the atomic", time.Second, r.all(0, 1))
	r.rest(100 * time.Millisecond)
	r.n[1].takeNotes(c[1])
	if want := (engine.Notification{Key: key, Off: 8, Len: 4}); len(r.n[1].notes) != 1 || r.n[1].notes[0] != want {
		t.Errorf("notified of %+v, want %+v", r.n[1].notes, want)
	}
	if st := r.status(1, c[1]); st.BytesOut != 4 {
		t.Errorf("%d bytes are counted", st.BytesOut)
	}
}

// Clauses 6.5, 6.6 and 14.6: each held segment waits for what it has to wait for, whatever those of the same operation
// do. A strict message that is not the next passes over none that is being received.
func TestHeldSegmentsWaitAlone(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	box := r.post(1, c[1], 0, 1, 8)
	like, pn := r.like(c[0], 1)
	say := func(kind wire.Kind, op uint32, flags uint8, k uint64, place int, data string) {
		g := wire.Segment{Kind: kind, Flags: flags, Conn: uint32(c[1]), Op: op, Key: k, Place: uint64(place), Fence: 1,
			Data: []byte(data)}
		pn++
		r.n[1].handle(r.now, 0, forge(like, pn, &g))
		r.poll(1)
	}
	say(wire.KindSend, 0, wire.SegFirst, 0, 0, "abcd")
	say(wire.KindSend, 2, wire.SegFirst|wire.SegFenced, 5, 0, "x")
	say(wire.KindSend, 2, wire.SegLast|wire.SegFenced|wire.SegStrict, 1, 1, "y")
	say(wire.KindWrite, 1, wire.SegFirst|wire.SegLast, uint64(key), 0, "applied")
	say(wire.KindSend, 0, wire.SegLast, 0, 4, "efgh")
	evs := r.received(1)
	if len(evs) != 1 || evs[0].Token != 1 || evs[0].Status != engine.OK || string(box) != "abcdefgh" {
		t.Errorf("%+v, with %q in the buffer", evs, box)
	}
}

// takers are two connections that share a receive queue of node 1, the first of them a bad peer's, in frames that the
// test makes up.
type takers struct {
	*stager
	q      engine.QueueID
	c      [2][2]engine.ConnID
	limits map[uint32]uint32 // by node 0's number: what it was promised, as told last
	token  uint64
}

func newTakers(t *testing.T, buffers int) *takers {
	r := newRig(t, rigOptions{})
	k := &takers{stager: &stager{rig: r}, limits: map[uint32]uint32{}, q: r.n[1].e.NewReceiveQueue()}
	r.pass = k.hear
	for range buffers {
		k.repost()
	}
	for i := range k.c {
		k.c[i] = r.connect(engine.DialOptions{})
		if !r.n[1].e.JoinReceiveQueue(r.now, k.c[i][1], k.q) {
			t.Fatal("the connection does not join the queue")
		}
	}
	k.like, k.pn = r.like(k.c[0][0], 0)
	k.pn += 5000 // node 0 goes on to acknowledge
	return k
}

func (k *takers) repost() {
	k.token++
	k.post(1, 0, k.q, k.token, 64)
}

// says has node 1 take a segment of connection i, and answer.
func (k *takers) says(i int, g wire.Segment) {
	g.Conn = uint32(k.c[i][1])
	k.pn++
	k.n[1].handle(k.now, 0, forge(k.like, k.pn, &g))
	k.rest(2 * time.Millisecond)
}

// hear notes the credit in a frame of node 1.
func (k *takers) hear(from int, f *flight) bool {
	var d wire.Frame
	if from == 0 || d.Decode(f.b[wire.EthLen:]) != nil || d.Type != wire.TypeData {
		return true
	}
	var g wire.Segment
	for tail := d.Tail; len(tail) > 0; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			k.t.Fatal(err)
		}
		if g.Kind == wire.KindCredit {
			k.limits[g.Conn] = g.Limit
		}
	}
	return true
}

func (k *takers) limit(i int) uint32 { return k.limits[uint32(k.c[i][0])] }

// Clause 14.5: who begins messages and never ends them, or ends all but the first, does not get hold of all buffers of
// a shared queue: while less than half are free it has to end what it began.
func TestQueueIsNotDrained(t *testing.T) {
	const buffers = 64
	const whole = wire.SegFirst | wire.SegLast
	for name, flags := range map[string]uint8{"never ended": wire.SegFirst, "all but the first": whole} {
		t.Run(name, func(t *testing.T) {
			k := newTakers(t, buffers)
			number := uint32(0)
			for range 4 * buffers {
				k.says(0, wire.Segment{Kind: wire.KindWant, Key: uint64(number + 200)})
				for ; number < k.limit(0); number++ {
					g := wire.Segment{Kind: wire.KindSend, Flags: flags, Op: number, Key: uint64(number),
						Data: []byte{1}}
					if number == 0 {
						g.Flags = wire.SegFirst
					}
					k.says(0, g)
				}
			}
			if number > buffers/2 {
				t.Errorf("the bad peer has %d of %d buffers, which it does not use", number, buffers)
			}
			for n := range uint32(3 * buffers) { // the other goes on, one message after the other
				if k.limit(1) == n {
					k.says(1, wire.Segment{Kind: wire.KindWant, Key: uint64(n + 1)})
				}
				if k.limit(1) <= n {
					t.Fatalf("nothing is left for message %d of another connection", n)
				}
				k.says(1, wire.Segment{Kind: wire.KindSend, Flags: whole, Op: n, Key: uint64(n), Data: []byte{2}})
				if got := len(k.received(1)); got != int(n)+1 {
					t.Fatalf("%d messages arrived, want %d", got, n+1)
				}
				k.repost()
			}
		})
	}
}

// Clause 6.3: an operation is applied once. Here a copy of a message is held behind a fence, which falls since the
// message itself is whole: its connection gets buffers more, one of them for the strict message that the fence is for.
func TestMessageIsAppliedOnce(t *testing.T) {
	const whole = wire.SegFirst | wire.SegLast
	k := newTakers(t, 8)
	limit := k.limit(0)
	for range 24 {
		k.repost() // without a Want the connection has no more of them yet
	}
	say := func(op, number uint32, flags uint8) {
		k.says(0, wire.Segment{Kind: wire.KindSend, Flags: flags, Op: op, Fence: 3, Key: uint64(number),
			Data: []byte{1}})
	}
	say(3, limit, whole|wire.SegStrict)
	say(5, limit-1, whole|wire.SegFenced)
	if n := k.n[1].e.Count.Op.SegmentsHeld; n != 2 {
		t.Fatalf("%d segments are held", n)
	}
	say(5, limit-1, whole)
	if n := &k.n[1].e.Count; n.Op.OpsApplied != 2 || n.Op.MessagesReceived != 2 {
		t.Errorf("%d operations were applied, %d messages received; there were 2", n.Op.OpsApplied,
			n.Op.MessagesReceived)
	}
}

// joined is a shared queue of node 1 without buffers, and connections that take from it.
func (r *rig) joined(conns int) (q engine.QueueID, c [][2]engine.ConnID) {
	q = r.n[1].e.NewReceiveQueue()
	for range conns {
		c = append(c, r.connect(engine.DialOptions{}))
		if !r.n[1].e.JoinReceiveQueue(r.now, c[len(c)-1][1], q) {
			r.t.Fatal("a connection does not join the queue")
		}
	}
	r.settle()
	return q, c
}

// Clause 14.5: who gives up the sends that it asked for before it could ask asks again for those that follow.
func TestAskingAfterGivingUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	q, c := r.joined(1)
	r.pass = func(from int, f *flight) bool { return from == 1 }
	op := send(0, []byte{0})
	op.Patience = uint64(time.Millisecond)
	r.submit(0, c[0][0], op)
	r.rest(10 * time.Millisecond)
	r.wantStatus(0, 0, engine.StatusNoBuffer)
	r.pass = nil
	r.rest(time.Second)
	r.submit(0, c[0][0], send(1, []byte{1}))
	r.rest(10 * time.Millisecond)
	r.post(1, 0, q, 0, 8)
	r.must("the second send", time.Second, r.got(1, 1))
}

// Clause 14.5: a buffer that was promised to who gave up the send for which it had asked is lent to another; who gave
// up has one again as soon as there is one.
func TestUnusedBuffersAreLent(t *testing.T) {
	r := newRig(t, rigOptions{})
	q, c := r.joined(3)
	op := send(0, []byte{0})
	op.Patience = uint64(time.Millisecond)
	r.submit(0, c[0][0], op)
	r.rest(10 * time.Millisecond)
	r.wantStatus(0, 0, engine.StatusNoBuffer)
	r.post(1, 0, q, 0, 8)
	r.rest(10 * time.Millisecond)
	if n := r.status(0, c[0][0]).Credit; n != 1 {
		t.Fatalf("who asked was promised %d buffers", n)
	}
	for k := range uint64(2) {
		r.submit(0, c[1+k][0], send(1+k, []byte{1}))
	}
	r.must("another's send", 300*time.Millisecond, r.got(1, 1))
	r.submit(0, c[0][0], send(3, []byte{2}))
	for k := range 2 {
		r.rest(10 * time.Millisecond)
		if n := len(r.received(1)); n != 1+k {
			t.Fatalf("%d messages arrived, %d buffers were posted", n, 1+k)
		}
		r.post(1, 0, q, uint64(1+k), 8)
		r.must("a send", time.Second, r.got(1, 2+k))
	}
	r.must("all sends", time.Second, r.all(0, 4))
	if n := r.n[1].e.QueueCounts(q); n != [3]int{} {
		t.Errorf("%v buffers are promised, being filled, lent", n)
	}
}

// Clause 10.4: a peer that announces changes of its links as fast as it can has some of them followed, and the others
// when it has calmed down: each has a path begin anew, and people are told.
func TestLinkChangesAreBounded(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, links: 2})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.settle()
	r.n[1].events = nil
	count := 0
	for end := r.now.Add(10 * time.Millisecond); r.now < end; count++ {
		r.relink(0, 1, [6]byte{2, 1, byte(count >> 16), byte(count >> 8), byte(count), 1}, 1500)
		r.round()
	}
	told := 0
	for _, ev := range r.n[1].events {
		if ev.Kind == engine.EvPath {
			told++
		}
	}
	if count < 1500 || told > 4*4*engine.MaxLinks {
		t.Errorf("%d changes: people were told of %d", count, told)
	}
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 8)})
	r.must("a write", 10*time.Second, r.all(0, 1))
	r.must("the path", 10*time.Second, func() bool {
		for _, p := range r.n[1].e.Snapshot(r.now).Peers[0].Paths {
			if p.Link == 1 {
				return p.State == "good" && p.PeerAddr == frame.Ether(r.macAt(0, 1))
			}
		}
		return false
	})
}

// sharded is a node of several shards, which share one link.
type sharded struct {
	mac    [6]byte
	shards []*engine.Endpoint
	batch  *engine.Batches
}

func newSharded(t *testing.T, number byte, shards, maxConns int) *sharded {
	src := counting(number)
	n := &sharded{mac: macOf(int(number), 0), batch: batches(1, 1500)}
	for i := range shards {
		e, err := engine.New(engine.Config{Node: engine.NodeID{number}, Name: fmt.Sprint("node", number), Epoch: 1,
			Seed: uint64(number)<<8 | uint64(i), Grants: regmem.NewTable(&src), Shard: i, Shards: shards,
			MaxConns: maxConns})
		if err == nil {
			err = e.SetLink(1, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(n.mac), MTU: 1500, RxSlots: 256})
		}
		if err != nil {
			t.Fatal(err)
		}
		n.shards = append(n.shards, e)
	}
	return n
}

// run exchanges the frames of some nodes for a time, and has each event seen.
func run(now *mono.Time, span time.Duration, nodes []*sharded, see func(e *engine.Endpoint, ev *engine.Event)) {
	for end := now.Add(span); *now < end; *now = now.Add(100 * time.Microsecond) {
		for _, n := range nodes {
			for _, e := range n.shards {
				if e.NextTimeout() <= *now {
					e.HandleTimeout(*now)
				}
				for e.PollTransmit(*now, n.batch) > 0 {
					for _, f := range n.batch.All() {
						b := f.AppendTo(nil)
						for _, to := range nodes {
							if to != n && (b[0]&1 != 0 || bytes.Equal(b[:6], to.mac[:])) {
								session := uint32(b[18])<<24 | uint32(b[19])<<16 | uint32(b[20])<<8 | uint32(b[21])
								to.shards[int(session)%len(to.shards)].Handle(*now, 0, engine.Whole(b))
							}
						}
					}
					n.batch.Reset()
				}
				var ev engine.Event
				for e.PollEvent(&ev) {
					see(e, &ev)
				}
			}
		}
	}
}

// Requests that a peer makes and nobody answers take a quarter of the table, from however many shards of its node they
// come: others are served.
func TestLimboOfAllShards(t *testing.T) {
	const most = 512
	victim, bad, good := newSharded(t, 1, 1, most), newSharded(t, 2, wire.MaxShards, 0), newSharded(t, 3, 1, 0)
	e := victim.shards[0]
	e.Listen("slow")
	e.Listen("quick")
	now := mono.Time(time.Second)
	waiting, connected := 0, false
	see := func(of *engine.Endpoint, ev *engine.Event) {
		switch {
		case of == e && ev.Kind == engine.EvIncoming && ev.Service == "quick":
			if err := of.Accept(now, ev.Conn, nil); err != nil {
				t.Error(err)
			}
		case of == e && ev.Kind == engine.EvIncoming:
			waiting++
		case of == good.shards[0] && ev.Kind == engine.EvClosed:
			t.Errorf("the good peer was refused: %v %s", ev.Status, ev.Text)
		case of == good.shards[0] && ev.Kind == engine.EvConnected:
			connected = true
		}
	}
	nodes := []*sharded{victim, bad, good}
	run(&now, 30*time.Millisecond, nodes, see)
	dial := func(from *engine.Endpoint, service string) {
		if _, err := from.Dial(now, "node1", service, engine.DialOptions{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	for _, shard := range bad.shards {
		for range most / 2 {
			dial(shard, "slow")
		}
	}
	run(&now, 150*time.Millisecond, nodes, see)
	if waiting < most/8 || waiting > most/4 {
		t.Errorf("%d requests of the bad peer wait for an answer, of a table of %d", waiting, most)
	}
	dial(good.shards[0], "quick")
	run(&now, 50*time.Millisecond, nodes, see)
	if !connected {
		t.Error("the good peer is not served")
	}
}

// Clause 2.7: a frame with statements that contradict the clauses is counted and not acknowledged: it is no duplicate
// when it comes again.
func TestContradictionsAreNotAcknowledged(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 100, both)
	like, pn := r.like(c[0], uint64(key))
	conn, count := uint32(c[1]), &r.n[1].e.Count
	for _, g := range []wire.Segment{
		{Kind: wire.KindPing},
		{Kind: wire.KindCredit, Conn: conn, Limit: 100_000},
		{Kind: wire.KindOpAck, Conn: conn, Op: 1000, Limit: 1000},
		{Kind: wire.KindOpAck, Conn: conn, Op: 0, Limit: 1 << 16},
		{Kind: wire.KindAck, Path: 0, Size: 1 << 40, Place: 1 << 40},
		{Kind: wire.KindKeys, Op: 1, Data: make([]byte, wire.PublicLen)},
		{Kind: wire.KindOpNak, Conn: conn, Op: 1},
	} {
		pn++
		bad, again := count.Reject.RejectedMalformed, count.Loss.FramesDuplicated
		for range 2 {
			r.n[1].handle(r.now, 0, forge(like, pn, &g))
		}
		bad, again = count.Reject.RejectedMalformed-bad, count.Loss.FramesDuplicated-again
		if g.Kind == wire.KindPing && (bad != 0 || again != 1) || g.Kind != wire.KindPing && (bad != 2 || again != 0) {
			t.Errorf("%+v: twice the same: %d malformed, %d duplicates", g, bad, again)
		}
	}
}
