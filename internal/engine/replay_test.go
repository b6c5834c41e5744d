package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// recorder keeps every frame of a rig.
type recorder struct {
	frames [2][]flight // by sender
}

func record(r *rig) *recorder {
	c := &recorder{}
	r.pass = func(from int, f *flight) bool {
		c.frames[from] = append(c.frames[from], flight{link: f.link, b: bytes.Clone(f.b)})
		return true
	}
	return c
}

// rejects counts what an endpoint refused, for whatever reason.
func rejects(c *engine.Counters) uint64 {
	return c.Reject.RejectedMalformed + c.Reject.RejectedHeaderSum + c.Reject.RejectedVersion + c.Reject.RejectedAuth +
		c.Reject.RejectedCookie +
		c.Loss.FramesDuplicated + c.Reject.UnknownSession
}

// A sealed session with writes, reads and notifications behind it, all of it recorded, and what it left.
func recorded(t *testing.T) (r *rig, c [2]engine.ConnID, all *recorder, mem []byte) {
	r = newRig(t, rigOptions{sealed: true, links: 2})
	all = record(r)
	c = r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 10_000, both)
	r.settle()
	for k := range 20 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(2 * k), Key: key,
			Local: pattern(k, 10_000)})
		r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: uint64(2*k + 1), Key: key, Local: make([]byte, 5000)})
		r.must("operations", time.Second, r.all(0, 2*k+2))
	}
	r.rest(100 * time.Millisecond)
	r.n[1].takeNotes(c[1])
	if len(r.n[1].notes) != 20 {
		t.Fatalf("%d notifications", len(r.n[1].notes))
	}
	r.pass = nil
	return r, c, all, mem
}

// toward addresses f to node i on link l, as whoever replays it can.
func toward(i, l int, f flight) flight {
	b := bytes.Clone(f.b)
	mac := macOf(i, l)
	copy(b, mac[:])
	return flight{link: l, b: b}
}

// Every frame of a session sent again, on its link and on another one, to its receiver and back to its sender, at once
// and after a minute: nothing is accepted (clauses 3.2, 4.3, 10.5), and each is counted.
func TestReplaySealed(t *testing.T) {
	r, c, all, mem := recorded(t)
	for _, later := range []time.Duration{0, 10 * time.Second} {
		r.rest(later)
		want := bytes.Clone(mem)
		session := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList())
		for from, frames := range all.frames {
			for to := range 2 {
				for link := range 2 {
					for _, f := range frames {
						if typeOf(f.b) == wire.TypeHello {
							continue
						}
						before, count := r.state(to), r.n[to].e.Count
						r.give(to, toward(to, link, f))
						now := &r.n[to].e.Count
						// an Init with a fresh cookie begins a handshake that leads nowhere
						if after := r.state(to); after != before && typeOf(f.b) != wire.TypeInit {
							t.Fatalf("type %d from %d to %d, link %d: before %s\nafter  %s", typeOf(f.b), from, to,
								link, before, after)
						}
						if typeOf(f.b) == wire.TypeData && rejects(now) != rejects(&count)+1 {
							t.Fatalf("data from %d to %d, link %d: not counted as refused", from, to, link)
						}
						if now.Traffic.DataFramesReceived != count.Traffic.DataFramesReceived ||
							now.Op.OpsApplied != count.Op.OpsApplied ||
							now.Op.Notifications != count.Op.Notifications {
							t.Fatalf("type %d from %d to %d: accepted", typeOf(f.b), from, to)
						}
						r.take(to)
					}
				}
			}
		}
		r.rest(4 * time.Second)
		if !bytes.Equal(mem, want) {
			t.Error("memory changed")
		}
		if now := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList()); now != session {
			t.Errorf("the session was %s and is %s", session, now)
		}
	}
	if _, again := r.n[1].e.TakeNotify(c[1]); again {
		t.Error("notified again")
	}
	r.oneSession()
	r.echoWorks(c)
}

// The same with an end that was started anew meanwhile, before and after it has a session of its new epoch.
func TestReplayAfterRestart(t *testing.T) {
	for which := range 2 {
		r, c, all, _ := recorded(t)
		r.boot(which, 2, rigOptions{sealed: true, links: 2})
		mem, _ := r.export(1, c[1], 10_000, both)
		replay := func(what string) {
			t.Helper()
			n := r.n[which]
			for _, frames := range all.frames {
				for link := range 2 {
					for _, f := range frames {
						count := n.e.Count
						r.give(which, toward(which, link, f))
						if typeOf(f.b) == wire.TypeData && rejects(&n.e.Count) != rejects(&count)+1 {
							t.Fatalf("node %d, %s: data was not refused", which, what)
						}
						r.take(which)
					}
				}
			}
			if n.e.Count.Traffic.DataFramesReceived != 0 && what == "no session" || n.e.Count.Op.OpsApplied != 0 ||
				len(n.closed) != 0 || !bytes.Equal(mem, make([]byte, len(mem))) {
				t.Errorf("node %d, %s: something of the old epoch was accepted: %+v", which, what, n.e.Count)
			}
		}
		replay("no session")
		if which == 1 { // a request made now would fail with what was outstanding
			r.must("the restart is noticed", 2*time.Second, func() bool { return len(r.n[0].closed) == 1 })
		}
		c = r.connect(engine.DialOptions{})
		replay("a new session")
		r.rest(4 * time.Second)
		if len(r.n[which].closed) != 0 {
			t.Error("the new session was ended")
		}
		r.oneSession()
		r.echoWorks(c)
	}
}

// A peer is started anew in the middle of traffic, again and again, and all frames sent to it before reach the new
// instance: none has an effect, and each time a new connection works.
func TestRestartUnderTraffic(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, links: 2})
	all := record(r)
	for epoch := range uint64(5) {
		c := r.connect(engine.DialOptions{})
		mem, key := r.export(1, c[1], 30_000, both)
		r.settle()
		for k := range 100 {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: epoch<<32 | uint64(k),
				Key: key, Local: pattern(k, 30_000)})
		}
		r.rest(time.Duration(epoch*15) * time.Microsecond)
		if bytes.Equal(mem, make([]byte, len(mem))) && epoch > 1 {
			t.Fatal("no traffic")
		}
		old := all.frames[0]
		all.frames[0] = nil
		r.boot(1, epoch+2, rigOptions{sealed: true, links: 2})
		fresh, _ := r.export(1, c[1], 30_000, both)
		for _, f := range old {
			r.give(1, toward(1, f.link, f))
		}
		r.must("the old operations end", 1100*time.Millisecond,
			func() bool { _, over := r.n[0].done[epoch<<32|99]; return over })
		for k := range uint64(100) {
			if st := r.n[0].done[epoch<<32|k]; st != engine.OK && st != engine.StatusPeerDown {
				t.Errorf("operation %d ended with %v", k, st)
			}
		}
		c = r.connect(engine.DialOptions{})
		for _, f := range old {
			r.give(1, toward(1, f.link, f))
		}
		r.echoWorks(c)
		if n := r.n[1].e.Count; n.Op.OpsApplied != 1 || !bytes.Equal(fresh, make([]byte, len(fresh))) {
			t.Errorf("epoch %d: %d operations were applied, want that of the new connection alone", epoch+2,
				n.Op.OpsApplied)
		}
		r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
		r.rest(10 * time.Millisecond)
	}
	r.rest(4 * time.Second)
	r.oneSession()
}

// The same with the end that sent it all started anew: while its new session carries data, what it said in its old
// epoch, set-up and Hello included, as it was and from other addresses, with cookies that are still good and ones that
// are not, reaches the other end. That keeps its session.
func TestReplayOfRestartedPeer(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		r, _, all, _ := recorded(t)
		r.rest(wait)
		r.boot(0, 2, rigOptions{sealed: true, links: 2})
		r.must("the restart is noticed", 2*time.Second, func() bool { return len(r.n[1].closed) == 1 })
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.forTime(300*time.Millisecond, 50*time.Millisecond)
		sessions, count := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList()), r.n[1].e.Count
		k := 0
		r.pass = func(int, *flight) bool {
			for range 2 {
				f := all.frames[0][k%len(all.frames[0])]
				f = toward(1, (f.link+k/3)%2, f)
				if k%4 == 0 {
					copy(f.b[6:12], []byte{2, 6, 6, byte(k), byte(k >> 8), byte(k >> 16)})
				}
				r.n[1].handle(r.now, f.link, f.b)
				k++
			}
			return true
		}
		s.forTime(time.Second, 50*time.Millisecond)
		r.pass = nil
		s.finish()
		r.rest(4 * time.Second)
		if now := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList()); now != sessions {
			t.Errorf("the session was %s and is %s", sessions, now)
		}
		if n := r.n[1].e.Count; n.Life.SessionsFailed != count.Life.SessionsFailed ||
			n.Life.SessionsOpened != count.Life.SessionsOpened ||
			k < 10*len(all.frames[0]) {
			t.Errorf("%d frames: %d sessions failed, %d opened", k, n.Life.SessionsFailed-count.Life.SessionsFailed,
				n.Life.SessionsOpened-count.Life.SessionsOpened)
		}
	}
}
