package engine_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Frames that come late, and what must be complete before an end is told.

// incoming counts the requests that node i was told of.
func (r *rig) incoming(i int) (n int) {
	for _, ev := range r.n[i].events {
		if ev.Kind == engine.EvIncoming {
			n++
		}
	}
	return n
}

// like makes node 0 send a data frame, to be imitated by forge, and returns it with its packet number.
func (r *rig) like(c engine.ConnID, key uint64) ([]byte, uint64) {
	r.t.Helper()
	r.rest(100 * time.Millisecond)
	r.n[0].e.Advertise(r.now, c, engine.Advert{Name: "like", Key: 1, Size: 1, Perm: 1})
	b := r.take(0)[0].b
	var f wire.Frame
	if err := f.Decode(b[wire.EthLen:]); err != nil {
		r.t.Fatal(err)
	}
	return b, f.PN
}

// Clause 5.1: a copy of an Open that was judged lost and arrives after the connection has come and gone is no new
// request, nor is one that its withdrawal overtook.
func TestLateOpen(t *testing.T) {
	r := newRig(t, rigOptions{})
	keep := r.connectTo("keep", engine.DialOptions{})
	gone := r.connect(engine.DialOptions{})
	r.n[0].e.Close(r.now, gone[0])
	r.must("closed", time.Second, func() bool { return len(r.n[1].closed) == 1 })
	refused, err := r.n[0].e.Dial(r.now, "node1", "nobody", engine.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.must("refused", time.Second, func() bool { return len(r.n[0].closed) == 2 })
	like, pn := r.like(keep[0], 1)
	r.n[1].e.Listen("nobody")
	before := r.n[1].e.TableSizes().Live
	withdrawn := uint32(1 << 30)
	for k, g := range []wire.Segment{
		{Kind: wire.KindOpen, From: uint32(gone[0]), Limit: 16, Name: []byte("test")},
		{Kind: wire.KindOpen, From: uint32(refused), Limit: 16, Name: []byte("nobody")},
		{Kind: wire.KindClose, Flags: wire.CloseUnanswered, Conn: withdrawn, Status: uint8(engine.StatusAborted)},
		{Kind: wire.KindOpen, From: withdrawn, Limit: 16, Name: []byte("test")},
	} {
		r.give(1, flight{link: 0, b: forge(like, pn+1+uint64(k), &g)})
		if r.incoming(1) != 0 || r.n[1].e.TableSizes().Live != before {
			t.Fatalf("segment %d began a connection: %+v", k, r.n[1].events)
		}
	}
	g := wire.Segment{Kind: wire.KindOpen, From: withdrawn + 1, Limit: 16, Name: []byte("test")}
	r.give(1, flight{link: 0, b: forge(like, pn+5, &g)})
	if r.incoming(1) != 1 {
		t.Error("a new request did not arrive")
	}
}

// What a session remembers of connections that ended is bounded.
func TestLateOpenMemory(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	like, pn := r.like(c[0], 1)
	for k := range 5000 {
		g := wire.Segment{Kind: wire.KindClose, Flags: wire.CloseUnanswered, Conn: uint32(1<<30 + k),
			Status: uint8(engine.StatusAborted)}
		r.give(1, flight{link: 0, b: forge(like, pn+1+uint64(k), &g)})
		if n := r.n[1].e.Ended(); n != min(k+1, 1024) {
			t.Fatalf("%d are remembered after %d", n, k+1)
		}
	}
}

// Clause 5.6: an Advert that comes a second time, or after its Withdraw, is not told, nor is a Withdraw that comes a
// second time, and so many numbers at once that nothing could hold them are left unreceived.
func TestLateAdverts(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	like, pn := r.like(c[0], 1)
	r.n[1].events = nil
	const first = 100 // the numbers before are node 0's own
	advert := func(n uint32) wire.Segment {
		return wire.Segment{Kind: wire.KindAdvert, Conn: uint32(c[1]), Op: first + n, Key: uint64(n) + 10, Size: 1,
			Perm: 1, Name: []byte("m")}
	}
	withdraw := func(n uint32) wire.Segment {
		return wire.Segment{Kind: wire.KindWithdraw, Conn: uint32(c[1]), Op: first + n, Key: uint64(n) + 10}
	}
	give := func(g wire.Segment) {
		pn++
		r.give(1, flight{link: 0, b: forge(like, pn, &g)})
	}
	for k, step := range []struct {
		g    wire.Segment
		told engine.EventKind // 0: nothing
	}{
		{advert(0), engine.EvAdvert}, {advert(0), 0}, {advert(2), engine.EvAdvert}, {withdraw(1), 0}, {advert(1), 0},
		{withdraw(1), 0},
		{withdraw(0), engine.EvWithdrawn}, {advert(0), 0}, {withdraw(0), 0}, {advert(3), engine.EvAdvert},
		{advert(2), 0}, {withdraw(2), engine.EvWithdrawn},
	} {
		give(step.g)
		switch ev := r.n[1].events; {
		case step.told == 0 && len(ev) == 0:
		case len(ev) != 1 || ev[0].Kind != step.told || uint64(ev[0].Advert.Key) != step.g.Key ||
			step.told == engine.EvAdvert && ev[0].Advert.Number != step.g.Op:
			t.Fatalf("step %d, %+v: told %+v", k, step.g, ev)
		}
		r.n[1].events = nil
	}
	for n := range uint32(5000) {
		give(advert(10 + 2*n))
	}
	told := len(r.n[1].events)
	if told == 0 || told >= 5000 || r.n[1].e.Count.Reject.RejectedNoRoom == 0 {
		t.Errorf("of 5000 numbers with holes %d were told, %d had no room", told, r.n[1].e.Count.Reject.RejectedNoRoom)
	}
	give(advert(9)) // fills a hole
	if len(r.n[1].events) != told+1 {
		t.Error("what fills a hole was left unreceived")
	}
}

// Clause 6.3: Close with success says that the closing end's reads are complete, so their notifications are told
// although no acknowledgement of the data came.
func TestReadNotifiedAtClose(t *testing.T) {
	for _, c := range []struct {
		status engine.Status
		want   int
	}{{engine.OK, 2}, {engine.StatusAborted, 0}} {
		r := newRig(t, rigOptions{})
		conn := r.connect(engine.DialOptions{})
		_, key := r.export(1, conn[1], 8, both)
		r.settle()
		for k := range 2 {
			r.submit(0, conn[0], engine.Op{Kind: engine.OpRead, Flags: engine.Notify, Imm: uint32(k), Token: uint64(k),
				Key: key, Local: make([]byte, 8)})
		}
		asked := r.take(0)
		for _, f := range asked {
			r.give(1, f)
		}
		for _, f := range r.take(1) {
			r.give(0, f)
		}
		if len(r.n[0].done) != 2 {
			t.Fatal("the reads are not complete")
		}
		like := asked[len(asked)-1].b
		g := wire.Segment{Kind: wire.KindClose, Conn: uint32(conn[1]), Status: uint8(c.status)}
		r.give(1, flight{link: 0, b: forge(like, packet(like)+10, &g)})
		ev, over := r.n[1].closed[conn[1]]
		if !over || len(ev.Notes) != c.want {
			t.Errorf("closed with %v: the end (%v) carries %+v, want %d notifications", c.status, over, ev.Notes,
				c.want)
		}
		for k, n := range ev.Notes {
			if n.Imm != uint32(k) || n.Len != 8 {
				t.Errorf("notification %d is %+v", k, n)
			}
		}
	}
}

// A packet number that no sender reaches is no reason to stand still (clause 3.2).
func TestHugePacketNumber(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	like, _ := r.like(c[0], 1)
	g := wire.Segment{Kind: wire.KindPing}
	before := r.n[1].e.Count
	for _, pn := range []uint64{1 << 62, 1<<64 - 65, 1<<64 - 2, 1<<64 - 1} {
		r.give(1, flight{link: 0, b: forge(like, pn, &g)})
	}
	if n := r.n[1].e.Count; n.Loss.FramesDuplicated != before.Loss.FramesDuplicated+4 ||
		n.Traffic.DataFramesReceived != before.Traffic.DataFramesReceived {
		t.Errorf("%d of 4 frames dropped as duplicates", n.Loss.FramesDuplicated-before.Loss.FramesDuplicated)
	}
	r.give(1, flight{link: 0, b: like})
	r.echoWorks(c)
}

// An endpoint that is stopped in the middle of a handshake, or of several, leaves no goroutine.
func TestStopMidHandshake(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	most := 0
	for stop := 0; ; stop++ {
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		n := 0
		r.pass = func(_ int, f *flight) bool {
			if setup(f.b) {
				n++
			}
			return n <= stop
		}
		if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
			t.Fatal(err)
		}
		r.give(0, r.answer([6]byte{2, 6, 6, 6, 6, 6}, 99))
		r.rest(10 * time.Millisecond)
		for i := range r.n {
			for _, s := range r.n[i].e.SessionList() {
				if s.Handshake {
					most++
				}
			}
			r.n[i].e.Stop()
			for _, s := range r.n[i].e.SessionList() {
				if s.Handshake {
					t.Errorf("after %d frames: node %d still remembers a handshake", stop, i)
				}
			}
		}
		if n <= stop {
			break
		}
	}
	if most < 10 {
		t.Errorf("%d handshakes were stopped: the test stops nothing", most)
	}
}

// A peer's first session finds no room in the table of peers: it is given up, and nothing else.
func TestPeerTableFull(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	r.n[1].e.FillPeers()
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	r.must("the dial ends", 2*time.Second, func() bool { return len(r.n[0].closed) == 1 })
	r.rest(4 * time.Second)
	if n := r.n[1].e.TableSizes(); n.Sessions != 0 || r.n[1].e.Count.Life.SessionsOpened != 0 {
		t.Errorf("%+v", n)
	}
}

// Very many tiny segments of one operation behind a fence, each sent twice: looking for each among all of them would
// take a quarter of a minute.
func TestManyHeld(t *testing.T) {
	const n = 60_000
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], n, both)
	like, pn := r.like(c[0], 1)
	g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegBackward, Conn: uint32(c[1]), Op: 1, Key: uint64(key),
		Data: []byte{7}}
	for round := range 2 {
		for k := range n {
			g.Place = uint64(k)
			switch g.Flags = wire.SegBackward; k {
			case 0:
				g.Flags |= wire.SegFirst
			case n - 1:
				g.Flags |= wire.SegLast
			}
			pn++
			r.n[1].handle(r.now, 0, forge(like, pn, &g))
		}
		if dup := r.n[1].e.Count.Loss.SegmentsDuplicated; dup != uint64(round*n) {
			t.Fatalf("round %d: %d duplicates", round, dup)
		}
	}
	g = wire.Segment{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast, Conn: uint32(c[1]), Key: uint64(key)}
	r.n[1].handle(r.now, 0, forge(like, pn+1, &g))
	if held := r.n[1].e.HeldMemory(); held != 0 || mem[0] != 7 || mem[n-1] != 7 || r.n[1].e.Count.Op.OpsApplied != 2 {
		t.Errorf("%d bytes held, %d operations applied", held, r.n[1].e.Count.Op.OpsApplied)
	}
}

// A held segment was acknowledged and comes once: what waits behind a fence is no more than what has a place once the
// fence allows it, in whatever order it came. Nothing but the operation's own segments is needed to complete it.
func TestHeldWithManyHoles(t *testing.T) {
	const n = 12_000
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], n, both)
	like, pn := r.like(c[0], 1)
	give := func(k int) (received bool) {
		g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegBackward, Conn: uint32(c[1]), Op: 1, Key: uint64(key),
			Place: uint64(k), Data: []byte{7}}
		switch k {
		case 0:
			g.Flags |= wire.SegFirst
		case n - 1:
			g.Flags |= wire.SegLast
		}
		before := r.n[1].e.Count.Reject.RejectedNoRoom
		pn++
		r.n[1].handle(r.now, 0, forge(like, pn, &g))
		return r.n[1].e.Count.Reject.RejectedNoRoom == before
	}
	var again []int
	for k := n - 1; k > 0; k -= 2 {
		if !give(k) {
			again = append(again, k)
		}
	}
	for k := 2; k < n/2; k += 2 { // holes close, and others fit in
		if !give(k) {
			again = append(again, k)
		}
	}
	pn++
	g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast, Conn: uint32(c[1]), Key: uint64(key)}
	r.n[1].handle(r.now, 0, forge(like, pn, &g))
	if held := r.n[1].e.Snapshot(r.now).Connections[0].Held; held != 0 {
		t.Errorf("%d segments are held although nothing forbids them", held)
	}
	for k := 0; k < n; k += 2 {
		if k == 0 || k >= n/2 {
			give(k)
		}
	}
	for _, k := range again {
		give(k)
	}
	if applied := r.n[1].e.Count.Op.OpsApplied; applied != 2 {
		t.Errorf("%d of 2 operations are applied, %d segments were sent again", applied, len(again))
	}
	for k, b := range mem {
		if b != 7 {
			t.Fatalf("byte %d is %d", k, b)
		}
	}
}
