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
)

// stream keeps some writes outstanding from node 0 to node 1 and notes when they complete.
type stream struct {
	*rig
	c        [2]engine.ConnID
	op       engine.Op
	mem, src []byte
	next     uint64
	last     mono.Time // latest completion
	worst    time.Duration
	depth    int // operations outstanding
	size     int // of each, at most streamOp
	seen     int
}

const streamOp = 32 << 10

func newStream(r *rig, c [2]engine.ConnID) *stream {
	s := &stream{rig: r, c: c, depth: 2, size: streamOp, src: pattern(9, 8*streamOp)}
	s.mem, s.op.Key = r.export(1, c[1], 8*streamOp, both)
	s.op.Kind = engine.OpWrite
	s.last = r.now
	r.hop = 500 * time.Microsecond // bounds the rate, and so what a virtual second costs
	return s
}

// run keeps the stream going until cond holds; false if that takes longer than limit.
func (s *stream) run(limit time.Duration, cond func() bool) bool {
	return s.until(limit, func() bool {
		if n := len(s.n[0].done); n != s.seen {
			s.seen, s.last = n, s.now
		}
		s.worst = max(s.worst, s.now.Sub(s.last))
		for int(s.next)-s.seen < s.depth {
			k := int(s.next%8) * streamOp
			s.op.Token, s.op.Off, s.op.Local = s.next, uint64(k), s.src[k:k+s.size]
			s.submit(0, s.c[0], s.op)
			s.next++
		}
		return cond()
	})
}

// for time runs for a fixed virtual time and fails if nothing completes for longer than patience.
func (s *stream) forTime(d, patience time.Duration) {
	s.t.Helper()
	s.worst, s.last = 0, s.now
	end := s.now.Add(d)
	s.run(d, func() bool { return s.now >= end })
	if s.worst > patience {
		s.t.Errorf("nothing completed for %v, want at most %v", s.worst, patience)
	}
}

// finish completes what is outstanding and checks it.
func (s *stream) finish() {
	s.t.Helper()
	s.must("what is outstanding", 5*time.Second, s.all(0, int(s.next)))
	for tok, st := range s.n[0].done {
		if st != engine.OK {
			s.t.Fatalf("operation %d ended with %v", tok, st)
		}
	}
	for k := 0; k < len(s.src); k += streamOp {
		if !bytes.Equal(s.mem[k:k+s.size], s.src[k:k+s.size]) {
			s.t.Errorf("memory differs from %d on", k)
		}
	}
}

// perLink counts the bytes that carry payload from node 0, by link.
func (r *rig) perLink() (n [2]uint64) {
	for _, l := range r.n[0].e.Snapshot(r.now).Links {
		n[l.Number] = l.Counters.Traffic.BytesSent
	}
	return n
}

// stallLimit is what the fault table allows: max(3 probe timeouts, 200 ms), and a probe timeout until the judgement
// falls.
const stallLimit = 200*time.Millisecond + 30*time.Millisecond

// One of two links is cut under load, in one direction or both: the stall is bounded, the rest goes over the other
// link, and within 2 s of healing the link is used again (faults.md, clause 9.1).
func TestLinkCut(t *testing.T) { inBothForms(t, testLinkCut) }

func testLinkCut(t *testing.T, sealed bool) {
	for _, link := range []int{0, 1} {
		for _, c := range []struct {
			name string
			dir  [2]bool // frames from node i are lost
		}{{"both", [2]bool{true, true}}, {"forward", [2]bool{true, false}}, {"backward", [2]bool{false, true}}} {
			t.Run(fmt.Sprintf("link=%d,%s", link, c.name), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
				r.hop = 500 * time.Microsecond
				s := newStream(r, r.connect(engine.DialOptions{}))
				r.settle()
				s.forTime(50*time.Millisecond, 20*time.Millisecond)
				before := r.perLink()
				if before[0] < 3e5 || before[1] < 3e5 {
					t.Fatalf("bytes by link before the cut: %v", before)
				}
				cut, lost := true, 0
				r.pass = func(from int, f *flight) bool {
					if cut && f.link == link && c.dir[from] {
						lost++
						return false
					}
					return true
				}
				s.forTime(500*time.Millisecond, stallLimit)
				if lost == 0 {
					t.Fatal("nothing was lost")
				}
				// While the link is dark, the other one carries the load.
				before = r.perLink()
				s.forTime(200*time.Millisecond, stallLimit)
				if n := r.perLink()[1-link] - before[1-link]; n < 2e6 {
					t.Errorf("the good link carried %d bytes in 200 ms", n)
				}
				cut = false
				healed := r.now
				s.forTime(time.Second, stallLimit)
				s.forTime(900*time.Millisecond, 50*time.Millisecond)
				before = r.perLink()
				s.forTime(50*time.Millisecond, 20*time.Millisecond)
				if n := r.perLink()[link] - before[link]; n < 15e4 {
					t.Errorf("%v after healing the link carries %d bytes in 50 ms", r.now.Sub(healed), n)
				}
				s.finish()
			})
		}
	}
}

// All links dark for a while, shorter than the dead time: the same connection goes on.
func TestAllLinksOff(t *testing.T) { inBothForms(t, testAllLinksOff) }

func testAllLinksOff(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	r.hop = 500 * time.Microsecond
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(20*time.Millisecond, 20*time.Millisecond)
	off := false
	r.pass = func(int, *flight) bool { return !off }
	for range 2 {
		off = true
		s.forTime(2*time.Second, 3*time.Second)
		off = false
		start := r.now
		n := s.seen
		if !s.run(2*time.Second, func() bool { return s.seen > n }) {
			t.Fatal("nothing completes within 2 s of the links' return")
		}
		if took := r.now.Sub(start); took > 300*time.Millisecond {
			t.Errorf("the first completion came %v after the links' return", took)
		}
		s.forTime(100*time.Millisecond, 50*time.Millisecond)
	}
	s.finish()
}

// A link that its own node knows to be down is left at once, and used again when it is back.
func TestRemoveAndSetLink(t *testing.T) { inBothForms(t, testRemoveAndSetLink) }

func testRemoveAndSetLink(t *testing.T, sealed bool) {
	for _, node := range []int{0, 1} {
		t.Run(fmt.Sprint("node=", node), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
			r.hop = 500 * time.Microsecond
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			s.forTime(50*time.Millisecond, 20*time.Millisecond)
			down := false
			r.pass = func(_ int, f *flight) bool { return !down || f.link != 1 }
			down = true
			r.n[node].e.RemoveLink(r.now, 1)
			patience := stallLimit
			if node == 0 {
				patience = 50 * time.Millisecond // this end needs not find out; the other loses some acknowledgements
			}
			s.forTime(500*time.Millisecond, patience)
			for _, l := range r.n[node].e.Snapshot(r.now).Links {
				if l.Number == 1 && l.Up {
					t.Error("the link is up in the snapshot")
				}
			}
			before := r.perLink()
			s.forTime(100*time.Millisecond, 20*time.Millisecond)
			if n := r.perLink()[1] - before[1]; node == 0 && n != 0 {
				t.Errorf("%d bytes were sent on the link that is gone", n)
			}
			down = false
			r.n[node].e.SetLink(r.now, 1, engine.LinkConfig{Name: "edge1", Addr: frame.Ether(macOf(node, 1)), MTU: 9000,
				RxSlots: 256})
			s.forTime(1900*time.Millisecond, stallLimit)
			before = r.perLink()
			s.forTime(50*time.Millisecond, 20*time.Millisecond)
			if n := r.perLink()[1] - before[1]; n < 15e4 {
				t.Errorf("the link that is back carries %d bytes in 50 ms", n)
			}
			s.finish()
		})
	}
}

// The only link goes and comes back within the dead time: the connection waits for it.
func TestOnlyLinkReturns(t *testing.T) { inBothForms(t, testOnlyLinkReturns) }

func testOnlyLinkReturns(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	r.hop = 500 * time.Microsecond
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(20*time.Millisecond, 20*time.Millisecond)
	r.n[0].e.RemoveLink(r.now, 0)
	s.forTime(3*time.Second, 4*time.Second)
	r.n[0].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(0, 0)), MTU: 1500,
		RxSlots: 256})
	start := r.now
	n := s.seen
	if !s.run(2*time.Second, func() bool { return s.seen > n }) {
		t.Fatal("nothing completes within 2 s of the link's return")
	}
	t.Logf("first completion %v after the link's return", r.now.Sub(start))
	s.finish()
}

// path is the state of node i's path over a link; zero if there is none.
func (r *rig) path(i, link int) engine.PathStatus {
	for _, p := range r.n[i].e.Snapshot(r.now).Peers {
		for _, q := range p.Paths {
			if q.Link == link {
				return q
			}
		}
	}
	return engine.PathStatus{}
}

// pathMTU is the frame size in use from node i on a link.
func (r *rig) pathMTU(i, link int) int { return r.path(i, link).MTU }

// narrow drops frames longer than size bytes behind the Ethernet header.
func (r *rig) narrow(size int) {
	r.pass = func(_ int, f *flight) bool { return len(f.b)-wire.EthLen <= size }
}

// Clause 9.2: frames grow to what both ends and everything between them carry, found by probing; nothing hangs
// meanwhile.
func TestFrameSize(t *testing.T) { inBothForms(t, testFrameSize) }

func testFrameSize(t *testing.T, sealed bool) {
	for _, c := range []struct{ a, b, path, want int }{
		{1500, 1500, 65535, 1500}, {9000, 9000, 65535, 9000}, {9000, 1500, 65535, 1500}, {1500, 9000, 65535, 1500},
		{65535, 65535, 65535, 65535},
		{9000, 9000, 1500, 1500}, {9000, 9000, 8999, 8192}, {65535, 65535, 9000, 9000}, {9000, 4000, 2000, 1500},
		{4000, 4000, 65535, 4000}, {640, 9000, 65535, 640},
		{1500, 1500, 1400, 1280}, {9000, 9000, 1280, 1280}, {1500, 1500, 700, 640},
	} {
		t.Run(fmt.Sprintf("a=%d,b=%d,path=%d", c.a, c.b, c.path), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.a})
			r.boot(1, 1, rigOptions{sealed: sealed, mtu: c.b})
			r.narrow(c.path)
			s := newStream(r, r.connect(engine.DialOptions{}))
			if !s.run(2*time.Second, func() bool { return s.seen > 0 }) {
				t.Fatal("nothing completes within 2 s")
			}
			s.forTime(time.Second, time.Second)
			for i := range r.n {
				if got := r.pathMTU(i, 0); got != c.want {
					t.Errorf("node %d uses frames of %d bytes, want %d", i, got, c.want)
				}
			}
			s.finish()
		})
	}
}

// A path that silently carries less than it did (a route moved, a tunnel appeared) must not hang what is on its way.
func TestFrameSizeShrinks(t *testing.T) { inBothForms(t, testFrameSizeShrinks) }

func testFrameSizeShrinks(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, mtu: 9000})
	s := newStream(r, r.connect(engine.DialOptions{}))
	r.settle()
	if got := r.pathMTU(0, 0); got != 9000 {
		t.Fatalf("frames of %d bytes at first", got)
	}
	s.forTime(20*time.Millisecond, 10*time.Millisecond)
	r.narrow(1500)
	n := s.seen
	if !s.run(2*time.Second, func() bool { return s.seen > n+8 }) {
		t.Fatal("nothing completes within 2 s of the path's narrowing")
	}
	s.finish()
}

// A path that silently carries less than it did is found out whatever the length of the frames in use: a little over
// the preferred length, or far below the path's.
func TestLongFramesShrink(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ depth, size, path int }{ // little is in flight, and all of it is lost
			{1, 8500, 8300}, {1, 8500, 1500}, {2, 4096, 8200}, {2, 4096, 1500}, {1, 2600, 1500}, {1, 1400, 1300},
			{1, 1300, 700},
		} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: 9000})
			s := newStream(r, r.connect(engine.DialOptions{}))
			s.depth, s.size = c.depth, c.size
			r.settle()
			s.forTime(20*time.Millisecond, 10*time.Millisecond)
			r.narrow(c.path)
			n := s.seen
			if !s.run(2*time.Second, func() bool { return s.seen > n+8 }) {
				t.Fatalf("nothing completes within 2 s of the path's narrowing to %d", c.path)
			}
			s.finish()
		}
	})
}

// A burst of losses says nothing of the frame size for long: the path is back at its size soon after (faults.md: bursts
// of 3 to 64).
func TestFrameSizeSurvivesBursts(t *testing.T) {
	for k, burst := range []int{3, 5, 20, 64, 200, 20, 64, 200} {
		// The fixed window of profile paper lets the whole burst be on its way at once.
		r := newRig(t, rigOptions{mtu: 9000, profile: []string{"default", "paper"}[k/5]})
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.depth = 16 // dozens of large frames on their way
		s.forTime(300*time.Millisecond, 20*time.Millisecond)
		left := burst
		r.pass = func(from int, f *flight) bool {
			if from == 0 && left > 0 && carries(f.b, wire.KindWrite) { // probes of the path are seldom in a burst
				left--
				return false
			}
			return true
		}
		if !s.run(3*time.Second, func() bool { return left == 0 }) {
			t.Fatalf("burst of %d: %d of its frames were not even sent in 3 s", burst, left)
		}
		s.forTime(500*time.Millisecond, 100*time.Millisecond)
		if got := r.pathMTU(0, 0); got != 9000 {
			t.Errorf("case %d: half a second after %d frames in a row were lost, frames of %d bytes are in use, want "+
				"9000 again", k, burst, got)
		}
		s.finish()
	}
}

// Frames of a flight that are lost together say nothing of the frame size: the path stays at its size all the time.
func TestBurstDoesNotNarrow(t *testing.T) {
	for _, c := range []struct {
		profile             string
		depth, flight, lost int // a flight is of about so many frames
	}{{"paper", 16, 64, 16}, {"paper", 4, 16, 16}, {"paper", 16, 64, 64}, {"default", 16, 10, 16}} {
		r := newRig(t, rigOptions{mtu: 9000, profile: c.profile})
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.depth = c.depth
		s.forTime(300*time.Millisecond, 20*time.Millisecond)
		count := &r.n[0].e.Count
		before, left, split := count.Loss.FramesLost, c.lost, false
		r.pass = func(from int, f *flight) bool {
			if from != 0 || left == 0 || !carries(f.b, wire.KindWrite) {
				return true
			}
			left--
			split = split || count.Loss.FramesLost != before // some are known to be lost before the others are sent
			return false
		}
		narrowed, end := 0, r.now.Add(100*time.Millisecond)
		s.run(time.Second, func() bool {
			if r.pathMTU(0, 0) != 9000 {
				narrowed++
			}
			return r.now >= end
		})
		if n := count.Loss.FramesLost - before; n < uint64(c.lost) || split != (c.lost > c.flight) {
			t.Errorf("%+v: %d frames are judged lost, of several flights: %v", c, n, split)
		}
		if narrowed > 0 {
			t.Errorf("%+v: shorter frames are in use after %d rounds", c, narrowed)
		}
		s.finish()
	}
}

// A path whose probes of size were lost by chance, or that carries more than before, gets its full frames within a
// little more than a minute.
func TestFrameSizeIsRaised(t *testing.T) {
	r := newRig(t, rigOptions{mtu: 9000})
	r.narrow(1500)
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(300*time.Millisecond, 20*time.Millisecond)
	if n := r.pathMTU(0, 0); n != 1500 {
		t.Fatalf("frames of %d bytes", n)
	}
	s.finish()
	r.rest(61 * time.Second)
	if n := r.n[0].e.Count.Loss.FramesLost; n != 0 {
		t.Errorf("%d frames lost; only probes of size were", n)
	}
	r.narrow(9000)
	r.rest(61 * time.Second)
	if n := r.pathMTU(0, 0); n != 9000 {
		t.Errorf("frames of %d bytes after a minute", n)
	}
}

// Short outages of a narrow path do not hurry the tries of larger frames, of which there is one series a minute.
func TestFrameSizeIsRaisedSeldom(t *testing.T) {
	r := newRig(t, rigOptions{mtu: 9000})
	r.narrow(1500)
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(2*time.Second, time.Second)
	long, off := 0, false
	r.pass = func(from int, f *flight) bool {
		fits := len(f.b)-wire.EthLen <= 1500
		if from == 0 && !fits {
			long++
		}
		return fits && !off
	}
	for range 10 {
		off = true
		s.forTime(150*time.Millisecond, time.Second)
		off = false
		s.forTime(850*time.Millisecond, 2*time.Second)
	}
	if long > 0 {
		t.Errorf("%d long frames within ten seconds", long)
	}
	s.finish()
}

// A path that loses every long frame from some moment on is found out after twelve of them, of three flights, and its
// size found.
func TestNarrowedSoon(t *testing.T) {
	for _, c := range []struct{ depth, size, path, want int }{
		{1, 8000, 1500, 1500}, {4, streamOp, 1500, 1500}, {16, streamOp, 4096, 4096}, {16, streamOp, 1500, 1500},
		{16, streamOp, 700, 640},
	} {
		r := newRig(t, rigOptions{mtu: 9000})
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.depth, s.size = c.depth, c.size
		s.forTime(300*time.Millisecond, 20*time.Millisecond)
		r.narrow(c.path)
		start, n := r.now, s.seen
		for _, p := range []struct {
			what string
			most time.Duration
			cond func() bool
		}{
			{"shorter frames", 50 * time.Millisecond, func() bool { return r.pathMTU(0, 0) < 9000 }},
			{"the size that passes", 150 * time.Millisecond, func() bool { return r.pathMTU(0, 0) == c.want }},
			{"completions", 200 * time.Millisecond, func() bool { return s.seen > n+8 }},
		} {
			if s.run(2*time.Second, p.cond); r.now.Sub(start) > p.most {
				t.Errorf("%+v: %s after %v, want at most %v", c, p.what, r.now.Sub(start), p.most)
			}
			t.Logf("%+v: %s after %v", c, p.what, r.now.Sub(start))
		}
		s.finish()
	}
}

// A peer whose interface is set to a larger MTU later gets larger frames, a smaller one smaller frames, without another
// dial.
func TestFrameSizeFollowsPeer(t *testing.T) { inBothForms(t, testFrameSizeFollowsPeer) }

func testFrameSizeFollowsPeer(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, mtu: 9000})
	r.boot(1, 1, rigOptions{sealed: sealed, mtu: 1500})
	s := newStream(r, r.connect(engine.DialOptions{}))
	r.settle()
	for _, mtu := range []int{9000, 1500, 4000} {
		r.n[1].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: mtu,
			RxSlots: 256})
		s.forTime(2*time.Second, 300*time.Millisecond)
		for i := range r.n {
			if got := r.pathMTU(i, 0); got != mtu {
				t.Errorf("node %d uses frames of %d bytes, want %d", i, got, mtu)
			}
		}
	}
	s.finish()
}

// A dial may choose its session's scheduler; static weights then hold whatever the endpoint's own scheduler is.
func TestSessionScheduler(t *testing.T) { inBothForms(t, testSessionScheduler) }

func testSessionScheduler(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	for i := range r.n {
		r.n[i].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(i, 0)), MTU: 1500,
			RxSlots: 256,
			Weight:  4})
	}
	r.hop = 500 * time.Microsecond
	s := newStream(r, r.connect(engine.DialOptions{Scheduler: "wsrr"}))
	r.settle()
	before := r.perLink()
	s.forTime(100*time.Millisecond, 20*time.Millisecond)
	after := r.perLink()
	ratio := float64(after[0]-before[0]) / float64(after[1]-before[1])
	if ratio < 3.5 || ratio > 4.5 {
		t.Errorf("weights 4:1, bytes by link %.2f:1", ratio)
	}
	s.finish()
}

// Clause 2.6: a receiver that changes what it announces must not misplace frames that are on their way.
func TestShuffleChanges(t *testing.T) { inBothForms(t, testShuffleChanges) }

func testShuffleChanges(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, shuffle: 78, mtu: 9000})
	r.hop = 500 * time.Microsecond
	s := newStream(r, r.connect(engine.DialOptions{}))
	r.settle()
	s.forTime(10*time.Millisecond, 10*time.Millisecond)
	for _, h := range []uint16{0, 78, 64, 0} {
		r.n[1].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: 9000,
			RxSlots: 256,
			Shuffle: h})
		s.forTime(100*time.Millisecond, 60*time.Millisecond)
		s.finish()
		clear(s.mem)
	}
	s.forTime(20*time.Millisecond, 20*time.Millisecond)
	s.finish()
}

// The sender's link goes away, which it knows and the peer does not: acknowledgements that the peer sends there are
// lost and nobody acknowledges them. They must find the other link all the same, whichever that is.
func TestAcksIntoTheDark(t *testing.T) { inBothForms(t, testAcksIntoTheDark) }

func testAcksIntoTheDark(t *testing.T, sealed bool) {
	for link := range 2 {
		r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
		s := newStream(r, r.connect(engine.DialOptions{}))
		r.settle()
		s.forTime(50*time.Millisecond, 20*time.Millisecond)
		dark := 0
		r.pass = func(from int, f *flight) bool {
			if f.link == link {
				dark++
			}
			return f.link != link
		}
		r.n[0].e.RemoveLink(r.now, link)
		s.forTime(time.Second, 50*time.Millisecond)
		s.finish()
		t.Logf("link %d: %d frames into the dark", link, dark)
	}
}

// A link that gets the number of one that went begins to count anew; one that comes back goes on.
func TestLinkCountsAreItsOwn(t *testing.T) {
	r := newRig(t, rigOptions{links: 2})
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.forTime(100*time.Millisecond, time.Second)
	e := r.n[0].e
	sent := func() uint64 { return e.Snapshot(r.now).Links[1].Counters.Traffic.FramesSent }
	was, lc := sent(), engine.LinkConfig{Name: e.Snapshot(r.now).Links[1].Name, Addr: frame.Ether(macOf(0, 1)),
		MTU: 1500}
	if was == 0 {
		t.Fatal("nothing was sent on the link")
	}
	for _, c := range []struct {
		name string
		want uint64
	}{{lc.Name, was}, {"another", 0}} {
		e.RemoveLink(r.now, 1)
		lc.Name = c.name
		if err := e.SetLink(r.now, 1, lc); err != nil {
			t.Fatal(err)
		}
		if got := sent(); got != c.want {
			t.Errorf("link %s has sent %d frames, want %d", c.name, got, c.want)
		}
	}
}
