package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 5.4: Close lets what was submitted complete, tells the other end, and both forget the connection.
func TestCloseDrains(t *testing.T) { inBothForms(t, testCloseDrains) }

func testCloseDrains(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 200_000, both)
	src := pattern(4, 200_000)
	for i := range 20 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Imm: uint32(i), Token: uint64(i),
			Key: key, Off: uint64(i * 10_000), Local: src[i*10_000 : (i+1)*10_000]})
	}
	back := make([]byte, 5000)
	r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Flags: engine.BackwardFence, Token: 20, Key: key, Local: back})
	r.n[0].e.Close(r.now, c[0])
	if r.n[0].e.Submit(r.now, c[0], &engine.Op{Kind: engine.OpWrite, Key: key}) {
		t.Error("a closing connection takes operations")
	}
	r.must("both ends closed", time.Second, func() bool { return len(r.n[0].closed) == 1 && len(r.n[1].closed) == 1 })
	for i := range 21 {
		r.wantStatus(0, uint64(i), engine.OK)
	}
	if !bytes.Equal(mem, src) || !bytes.Equal(back, src[:5000]) {
		t.Error("memory differs")
	}
	ev := r.n[1].closed[c[1]]
	if r.n[0].closed[c[0]].Status != engine.OK || ev.Status != engine.OK {
		t.Errorf("closed with %v and %v", r.n[0].closed[c[0]].Status, ev.Status)
	}
	// Notifications that the owner has not taken yet are not lost (clause 6.8).
	if len(ev.Notes) != 20 {
		t.Errorf("the end of the connection carries %d notifications, want 20", len(ev.Notes))
	}
	r.cleanAfter(t, "close")
}

// Both ends close while each has a send that waits for a buffer of the other's. Buffers that are posted then let both
// end in order.
func TestBothCloseWithSendsThatWait(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	for n := range c {
		r.submit(n, c[n], send(1, pattern(n, 3000)))
		r.n[n].e.Close(r.now, c[n])
	}
	r.rest(10 * time.Millisecond)
	if len(r.n[0].closed)+len(r.n[1].closed) > 0 {
		t.Fatal("a connection ended while sends waited")
	}
	var bufs [2][]byte
	for n := range c {
		bufs[n] = make([]byte, 3000)
		if !r.n[n].e.PostReceive(r.now, c[n], &engine.Receive{Token: 2, Local: bufs[n]}) {
			t.Fatalf("node %d takes no buffer while it closes", n)
		}
	}
	r.must("both ends closed", time.Second, func() bool { return len(r.n[0].closed) == 1 && len(r.n[1].closed) == 1 })
	for n := range c {
		r.wantStatus(n, 1, engine.OK)
		if !bytes.Equal(bufs[n], pattern(1-n, 3000)) {
			t.Errorf("node %d: the message differs", n)
		}
		if st := r.n[n].closed[c[n]].Status; st != engine.OK {
			t.Errorf("node %d: closed with %v", n, st)
		}
		if r.n[n].e.PostReceive(r.now, c[n], &engine.Receive{Local: bufs[n]}) {
			t.Errorf("node %d takes a buffer for a connection that is over", n)
		}
	}
	r.cleanAfter(t, "close")
}

// cleanAfter checks that neither node holds anything of a connection after its last segment can have been acknowledged.
func (r *rig) cleanAfter(t *testing.T, what string) {
	t.Helper()
	r.rest(200 * time.Millisecond)
	for i := range r.n {
		z := r.n[i].e.TableSizes()
		if z.Live != 0 || z.Kept != 0 || z.ByRemote != 0 || z.Dials != 0 || z.SendQueue != 0 || z.OpAcks != 0 ||
			r.n[i].e.HeldMemory() != 0 {
			t.Errorf("%s: node %d still holds %+v", what, i, z)
		}
		if n := r.n[i].grants.Len(); n != 0 {
			t.Errorf("%s: node %d still grants %d keys (clause 5.5)", what, i, n)
		}
	}
}

// Whatever ends a connection, at whatever moment, with losses or without: each operation and each end completes exactly
// once, and nothing stays.
func TestCloseRaces(t *testing.T) { inBothForms(t, testCloseRaces) }

func testCloseRaces(t *testing.T, sealed bool) {
	t.Parallel()
	actions := []string{"nothing", "close", "abort"}
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t, rigOptions{sealed: sealed, window: 16})
		c := r.connect(engine.DialOptions{Ordered: rng.IntN(3) == 0})
		loss := []float64{0, 0, 0.1, 0.3}[rng.IntN(4)]
		r.pass = func(int, *flight) bool { return rng.Float64() >= loss }
		var count, did [2]int
		for i := range 2 {
			mem, key := r.export(1-i, c[1-i], 20_000, both)
			for range rng.IntN(16) {
				n := rng.IntN(3) * rng.IntN(6000)
				r.submit(i, c[i], engine.Op{Kind: engine.OpKind(1 + rng.IntN(2)), Flags: engine.OpFlags(rng.IntN(8)),
					Token: uint64(count[i]), Key: key, Local: make([]byte, n)})
				count[i]++
			}
			_ = mem
		}
		for range rng.IntN(12) {
			r.round()
		}
		did = [2]int{rng.IntN(3), rng.IntN(3)}
		if did == [2]int{} {
			did[0] = 1
		}
		for i, gap := range []int{0, rng.IntN(6)} {
			for range gap {
				r.round()
			}
			switch did[i] {
			case 1:
				r.n[i].e.Close(r.now, c[i])
			case 2:
				r.n[i].e.Abort(r.now, c[i], engine.StatusAborted)
			}
		}
		again := fmt.Sprintf("seed %d: %s at node 0, %s at node 1, loss %v", seed, actions[did[0]], actions[did[1]],
			loss)
		if !r.until(20*time.Second, func() bool { return len(r.n[0].closed) == 1 && len(r.n[1].closed) == 1 }) {
			t.Fatalf("%s: ends closed %d and %d", again, len(r.n[0].closed), len(r.n[1].closed))
		}
		for i := range 2 {
			if len(r.n[i].done) != count[i] {
				t.Fatalf("%s: node %d completed %d of %d operations", again, i, len(r.n[i].done), count[i])
			}
			if afterClosed(r.n[i].events, c[i]) {
				t.Fatalf("%s: node %d: an event names the connection after its end", again, i)
			}
		}
		r.pass = nil
		r.rest(2 * time.Second)
		r.cleanAfter(t, again)
		if t.Failed() {
			return
		}
	}
}

// afterClosed reports whether an event names connection c after EvClosed did.
func afterClosed(events []engine.Event, c engine.ConnID) bool {
	over := false
	for _, ev := range events {
		if over && ev.Conn == c {
			return true
		}
		over = over || ev.Kind == engine.EvClosed && ev.Conn == c
	}
	return false
}

// Thousands of connections one after the other leave tables and memory as they were.
func TestConnectCloseCycles(t *testing.T) { inBothForms(t, testConnectCloseCycles) }

func testConnectCloseCycles(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	r.n[1].e.Listen("test")
	next := 0
	cycle := func(n int) {
		for range n {
			id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var there engine.ConnID
			connected := false
			r.must("connect", time.Second, func() bool {
				for _, ev := range r.n[1].events {
					if ev.Kind == engine.EvIncoming {
						there = ev.Conn
						r.n[1].e.Accept(r.now, there, nil)
					}
				}
				for _, ev := range r.n[0].events {
					connected = connected || ev.Kind == engine.EvConnected && ev.Conn == id
				}
				r.n[0].events, r.n[1].events = r.n[0].events[:0], r.n[1].events[:0]
				return connected
			})
			_, key := r.export(1, there, 8, both)
			r.submit(0, id, engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(next), Key: key,
				Local: []byte("12345678")})
			next++
			r.n[next%2].e.Close(r.now, []engine.ConnID{id, there}[next%2])
			r.must("close", time.Second, func() bool { return len(r.n[0].closed) == 1 && len(r.n[1].closed) == 1 })
			clear(r.n[0].closed)
			clear(r.n[1].closed)
			clear(r.n[0].done)
		}
	}
	cycle(1500)
	r.cleanAfter(t, "1,500 cycles")
	before := [2]engine.Sizes{r.n[0].e.TableSizes(), r.n[1].e.TableSizes()}
	cycle(2000)
	r.cleanAfter(t, "2,000 cycles more")
	for i := range r.n {
		if after := r.n[i].e.TableSizes(); after.Conns > before[i].Conns || after.Records > before[i].Records+16 ||
			after.Numbers != 1 {
			t.Errorf("node %d grew from %+v to %+v", i, before[i], after)
		}
	}
}

// What the accepting end sends first may overtake its Accept; it is neither lost nor answered wrongly, and the dialer
// hears of the connection first.
func TestAcceptOvertaken(t *testing.T) {
	for _, key := range []string{"good", "bad"} {
		r := newRig(t, rigOptions{})
		r.connectTo("warm", engine.DialOptions{})
		r.n[1].e.Listen("test")
		id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mem, k := r.export(0, id, 8, both) // the peer may know the key from another connection
		if key == "bad" {
			k++
		}
		var there engine.ConnID
		r.must("the request", time.Second, func() bool {
			for _, ev := range r.n[1].events {
				if ev.Kind == engine.EvIncoming {
					there = ev.Conn
				}
			}
			return there != 0
		})
		lost := 0
		r.pass = func(from int, f *flight) bool {
			if from == 1 && carries(f.b, wire.KindAccept) && lost < 2 {
				lost++
				return false
			}
			return true
		}
		r.n[0].events = nil
		r.n[1].e.Accept(r.now, there, nil)
		r.round()
		r.submit(1, there, engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: 1, Key: k,
			Local: []byte("too soon")})
		r.submit(1, there, engine.Op{Kind: engine.OpRead, Token: 2, Key: k, Local: make([]byte, 8)})
		r.n[1].e.Advertise(r.now, there, engine.Advert{Name: "n", Key: 1, Size: 1, Perm: 1})
		if !r.until(2*time.Second, r.all(1, 2)) {
			t.Errorf("%s key: %d of 2 operations complete", key, len(r.n[1].done))
		} else if want := map[string]engine.Status{"good": engine.OK,
			"bad": engine.StatusKey}[key]; r.n[1].done[1] != want || r.n[1].done[2] != want {
			t.Errorf("%s key: %v", key, r.n[1].done)
		}
		if key == "good" && string(mem) != "too soon" {
			t.Error("memory differs")
		}
		connected := false
		for _, ev := range r.n[0].events {
			if ev.Conn != id {
				continue
			}
			if connected = connected || ev.Kind == engine.EvConnected; !connected {
				t.Errorf("%s key: event %d names the connection before it is connected", key, ev.Kind)
			}
		}
		if !connected || lost == 0 {
			t.Errorf("%s key: connected %v, lost %d", key, connected, lost)
		}
	}
}

// Clause 5.6: exported memory is announced and taken back, exactly once each, whatever is lost.
func TestAdverts(t *testing.T) { inBothForms(t, testAdverts) }

func testAdverts(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	n := 0
	r.pass = func(from int, f *flight) bool { n++; return n%3 != 0 }
	for i := range 20 {
		if _, ok := r.n[1].e.Advertise(r.now, c[1], engine.Advert{Name: fmt.Sprint("m", i), Key: 100, Size: uint64(i),
			Perm: 3}); !ok {
			t.Fatal("not taken")
		}
	}
	seen := map[string]int{}
	r.must("the adverts", 5*time.Second, func() bool {
		for _, ev := range r.n[0].events {
			if ev.Kind == engine.EvAdvert {
				if seen[ev.Advert.Name]++; ev.Advert.Name != fmt.Sprint("m", ev.Advert.Size) || ev.Conn != c[0] {
					t.Fatalf("%+v", ev)
				}
			}
		}
		r.n[0].events = nil
		return len(seen) == 20
	})
	r.rest(time.Second)
	for name, k := range seen {
		if k != 1 {
			t.Errorf("%s was announced %d times", name, k)
		}
	}
	if _, ok := r.n[1].e.Advertise(r.now, c[1], engine.Advert{Name: string(make([]byte, 65))}); ok {
		t.Error("a name of 65 bytes is taken")
	}
}

// A request that measures counts as no connection, however it ends: refused, accepted and closed, unanswered,
// withdrawn.
func TestPingsAreNotCounted(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed})
		if ev, _ := r.dialEnds("node1", "nothing", engine.DialOptions{Ping: true},
			time.Second); ev.Status != engine.StatusNoService {
			t.Errorf("a service that nobody offers: %v", ev.Status)
		}
		c := r.connect(engine.DialOptions{Ping: true})
		r.n[0].e.Close(r.now, c[0])
		r.must("the end", time.Second, func() bool { return len(r.n[1].closed) == 1 })
		r.dialEnds("node1", "test", engine.DialOptions{Ping: true, Timeout: 50 * time.Millisecond}, time.Second)
		id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Ping: true})
		if err != nil {
			t.Fatal(err)
		}
		r.n[0].e.Abort(r.now, id, engine.StatusAborted)
		r.poll(0)
		if n := &r.n[0].e.Count; n.Life.ConnectionsOpened != 0 || n.Life.ConnectionsClosed != 0 {
			t.Errorf("opened %d, closed %d", n.Life.ConnectionsOpened, n.Life.ConnectionsClosed)
		}
		r.connect(engine.DialOptions{})
		if n := r.n[0].e.Count.Life.ConnectionsOpened; n != 1 {
			t.Errorf("of a connection %d were opened", n)
		}
	})
}
