package engine_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

const (
	superBytes     = 65473
	sizeProbeTries = 3 // of clause 9.2, by each node
	batchFrames    = 32
)

// Frames of 8 to 16 KiB stop at 8 KiB, but for small operations that share them, where each has pages of its own; they
// are as long as the path lets them where they share a datagram (clause 9.2).
func TestSuperFramesUseTheWholeMTU(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ mtu, super, least, most int }{{9000, 0, 8192 - 16, 8192 + 512},
			{9000, superBytes, 8938 - 64, 8938}, {1500, superBytes, 1438 - 64, 1438}} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.mtu, super: c.super})
			longest := 0
			r.pass = func(from int, f *flight) bool {
				longest = max(longest, len(f.b)-14)
				return true
			}
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			longest = 0
			s.forTime(100*time.Millisecond, 50*time.Millisecond)
			if longest < c.least || longest > c.most {
				t.Errorf("MTU %d, datagrams of %d: frames of up to %d bytes, want %d to %d", c.mtu, c.super, longest,
					c.least, c.most)
			}
			s.finish()
		}
	})
}

// forms counts the frames that are longer than what always goes alone, by form.
type forms struct{ joined, alone int }

// countForms counts what is sent from now on, and fails for a short frame in a datagram; through says what arrives.
func (r *rig) countForms(through func(f *flight) bool) *forms {
	n := &forms{}
	r.pass = func(from int, f *flight) bool {
		long := len(f.b) > wire.EthLen+wire.MinFrame
		switch {
		case f.joined && !long:
			r.t.Errorf("a frame of %d bytes in a datagram", len(f.b))
		case f.joined:
			n.joined++
		case long && from == 0: // and carries more than acknowledgements
			n.alone++
		}
		return through(f)
	}
	return n
}

func whatever(*flight) bool { return true }

// Clause 12.2: long frames travel in datagrams if both links take them and one was answered, else alone; short ones
// always alone.
func TestDatagramsWhereBothTakeThem(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct {
			name       string
			super, mtu [2]int
			want       int
			joined     bool
		}{
			{"both", [2]int{superBytes, superBytes}, [2]int{9000, 9000}, 8938, true},
			{"ours alone", [2]int{superBytes, 0}, [2]int{9000, 9000}, 9000, false},
			{"theirs alone", [2]int{0, superBytes}, [2]int{9000, 9000}, 9000, false},
			{"the shorter MTU", [2]int{superBytes, superBytes}, [2]int{9000, 1500}, 1438, true},
			{"nothing long fits", [2]int{superBytes, superBytes}, [2]int{700, 700}, 700, false},
		} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.mtu[0], super: c.super[0]})
			r.boot(1, 1, rigOptions{sealed: sealed, mtu: c.mtu[1], super: c.super[1]})
			n := r.countForms(whatever)
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			*n = forms{}
			s.forTime(100*time.Millisecond, 50*time.Millisecond)
			s.finish()
			if (n.joined > 0) != c.joined || (n.alone > 0) == c.joined {
				t.Errorf("%s: %+v", c.name, *n)
			}
			for i := range r.n {
				if got := r.pathMTU(i, 0); got != c.want {
					t.Errorf("%s: node %d uses frames of %d bytes, want %d", c.name, i, got, c.want)
				}
			}
		}
	})
}

// Clause 12.6: a frame that carries an acknowledgement besides its payload is as long as the others, and does not end
// the datagram.
func TestAcksDoNotEndDatagrams(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
		c := r.connect(engine.DialOptions{})
		r.settle()
		src := pattern(1, 60_000)
		for i := range r.n {
			mem, key := r.export(1-i, c[1-i], len(src), both)
			r.submit(i, c[i], engine.Op{Kind: engine.OpWrite, Key: key, Local: src})
			defer func() {
				if r.must("the writes", time.Second, r.all(i, 1)); !bytes.Equal(mem, src) {
					t.Errorf("node %d did not receive what was sent", 1-i)
				}
			}()
			var lengths []int
			for _, f := range r.take(i) {
				lengths = append(lengths, len(f.b))
				r.give(1-i, f)
			}
			full, last := lengths[:len(lengths)-1], lengths[len(lengths)-1] // the last frame has what is left
			if len(full) < 6 || slices.Min(full) != slices.Max(full) || last > full[0]-1000 {
				t.Errorf("node %d sent frames of %v bytes", i, lengths)
			}
		}
	})
}

// Where datagrams do not pass, frames go alone, in their full length, and that is said once; when they do later, they
// are used from the next try on.
func TestDatagramsThatDoNotPass(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
		pass := false
		n := r.countForms(func(f *flight) bool { return pass || !f.joined })
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.forTime(300*time.Millisecond, 200*time.Millisecond)
		if got := r.pathMTU(0, 0); got != 9000 || n.alone == 0 {
			t.Errorf("frames of %d bytes, %+v", got, *n)
		}
		*n = forms{}
		r.rest(70 * time.Second)
		if whole := superBytes / 8952; n.joined == 0 || n.joined > 2*sizeProbeTries*whole {
			t.Errorf("%d frames in datagrams within 70 s", n.joined)
		}
		if said := r.saidOfPaths("datagrams do not pass"); said != [2]int{1, 1} {
			t.Errorf("said so %v times", said)
		}
		pass = true
		r.rest(70 * time.Second)
		if got := r.pathMTU(0, 0); got != 8938 {
			t.Errorf("frames of %d bytes since datagrams pass", got)
		}
		s.forTime(50*time.Millisecond, 50*time.Millisecond)
		s.finish()
	})
}

// Between links that carry more than what lies between them, datagrams are as long as passes.
func TestDatagramsOnNarrowPath(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ most, want int }{{8999, 8130}, {1500, 1438}, {700, 640}} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
			n := r.countForms(func(f *flight) bool {
				size := len(f.b) - wire.EthLen
				if f.joined {
					size += 62
				}
				return size <= c.most
			})
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.rest(time.Second)
			*n = forms{}
			s.forTime(100*time.Millisecond, 50*time.Millisecond)
			if got := r.pathMTU(0, 0); got != c.want || (n.joined > 0) != (c.want > 640) || n.alone > 0 {
				t.Errorf("%d pass: frames of %d bytes, %+v; want %d", c.most, got, *n, c.want)
			}
			if said := r.saidOfPaths("datagrams do not pass"); said != [2]int{} {
				t.Errorf("%d pass: said %v times that datagrams do not", c.most, said)
			}
			s.finish()
		}
	})
}

// Where datagrams did not pass at first, they are used once they do, however narrow the path is; one bad search later
// costs a minute at most; and what a path carries is said once.
func TestDatagramsReturn(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, most := range []int{9000, 4500, 1500} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
			pass := false
			r.countForms(func(f *flight) bool {
				size := len(f.b) - wire.EthLen
				if f.joined {
					size += 62
				}
				return size <= most && (pass || !f.joined)
			})
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.rest(2 * time.Second)
			alone := r.pathMTU(0, 0)
			for range 2 {
				pass = true
				r.rest(65 * time.Second)
				if got := r.pathMTU(0, 0); got != alone-62 {
					t.Errorf("%d pass: frames of %d bytes, alone of %d", most, got, alone)
				}
				pass = false
				r.rest(65 * time.Second)
			}
			want := 0
			if most < 9000 {
				want = 1
			}
			if said := r.saidOfPaths("a device between"); said != [2]int{want, want} {
				t.Errorf("%d pass: said %v times what the path carries", most, said)
			}
			pass = true
			r.rest(65 * time.Second)
			s.forTime(50*time.Millisecond, 50*time.Millisecond)
			s.finish()
		}
	})
}

// A peer that leaves the Probe of a frame size unacknowledged, and has us send as many frames besides as the ledger can
// tell apart, gets no more than that.
func TestProbeAtTheEndOfTheSpan(t *testing.T) {
	for at := 8183; at <= 8192; at++ {
		probeAtTheEnd(t, at)
	}
}

func probeAtTheEnd(t *testing.T, at int) {
	r := newRig(t, rigOptions{mtu: 9000, super: superBytes})
	r.connect(engine.DialOptions{})
	r.settle()
	link := engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: 9000, RxSlots: 256, Super: superBytes,
		Overhead: 62}
	if err := r.n[1].e.SetLink(r.now, 0, link); err != nil {
		t.Fatal(err)
	}
	session, pn := r.n[1].e.SessionList()[0].Local, uint64(1<<10)
	give := func(g wire.Segment) {
		r.give(1, flight{b: raw(macOf(0, 0), macOf(1, 0), wire.Header{Type: wire.TypeData, Session: session, PN: pn},
			g.AppendTo(nil))})
		pn += 2 // with a hole each time, so that it is acknowledged at once
	}
	var sent, probes int
	var nonce uint64
	take := func() {
		for _, fl := range r.take(1) {
			var f wire.Frame
			if f.Decode(fl.b[wire.EthLen:]) != nil || f.Type != wire.TypeData {
				continue
			}
			sent++
			var g wire.Segment
			for tail := f.Tail; len(tail) > 0; {
				var err error
				if tail, err = g.Next(tail); err != nil {
					t.Fatal(err)
				}
				if g.Kind == wire.KindProbe {
					nonce = g.Place
					probes++
				}
			}
		}
	}
	take()
	sent = 0
	give(wire.Segment{Kind: wire.KindEcho, Place: nonce}) // the path is good, and asks for a size
	take()
	if probes < superBytes/8952 {
		t.Fatalf("%d probes", probes)
	}
	for sent < at-1 {
		before := sent
		give(wire.Segment{Kind: wire.KindPing})
		if take(); sent == before {
			t.Fatalf("no answer after %d frames", sent)
		}
	}
	before := probes
	r.now = r.now.Add(20 * time.Millisecond)
	take()
	if probes-before > superBytes/8952 {
		t.Errorf("%d probes at the end of the span", probes-before)
	}
}

// A path is asked by a whole datagram, whatever the length of its frames: a device that drops long ones and lets short
// ones through is found out at once.
func TestWholeDatagramsAreAskedFor(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ mtu, pass, want int }{
			{1500, 3, 1500}, {1500, batchFrames - 1, 1500}, {1500, batchFrames, 1438}, {9000, 3, 9000}, {9000, 4, 9000},
			{9000, 6, 9000}, {9000, 7, 8938},
		} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.mtu, super: superBytes})
			dropped := 0
			r.supers = func(frames int) bool {
				if frames > c.pass {
					dropped++
				}
				return frames <= c.pass
			}
			s := newStream(r, r.connect(engine.DialOptions{}))
			s.depth = 8
			r.settle()
			dropped = 0
			s.forTime(time.Second, 50*time.Millisecond)
			if got := r.pathMTU(0, 0); got != c.want || dropped > 0 {
				t.Errorf("%d frames of a datagram pass: frames of %d bytes, want %d; %d datagrams lost", c.pass, got,
					c.want, dropped)
			}
			s.finish()
		}
	})
}

// An answer that comes after datagrams were given up counts all the same: its end was off its processor meanwhile.
func TestDatagramAnsweredLate(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
		var held []flight
		r.countForms(func(f *flight) bool {
			if f.joined {
				held = append(held, *f)
			}
			return !f.joined
		})
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.forTime(300*time.Millisecond, 200*time.Millisecond)
		if got := r.pathMTU(0, 0); got != 9000 {
			t.Fatalf("frames of %d bytes", got)
		}
		r.pass = nil
		for _, f := range held {
			for i := range r.n {
				r.give(i, f)
			}
		}
		s.forTime(50*time.Millisecond, 50*time.Millisecond)
		if got := r.pathMTU(0, 0); got != 8938 {
			t.Errorf("frames of %d bytes after the answer", got)
		}
		s.finish()
	})
}

// A path that was suspect when its links came to carry more uses that once it is good again.
func TestRaisedWhileSuspect(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
		r.boot(1, 1, rigOptions{sealed: sealed, mtu: 1500})
		s := newStream(r, r.connect(engine.DialOptions{}))
		r.settle()
		// What node 0 sends of data is lost, so that its path is suspect; what tells it of the peer's link is not.
		lost := true
		r.pass = func(from int, f *flight) bool {
			return !lost || from == 1 || f.b[wire.EthLen]&0xf != byte(wire.TypeData)
		}
		s.run(time.Second, func() bool { return r.path(0, 0).State == "suspect" })
		if got := r.path(0, 0).State; got != "suspect" {
			t.Fatalf("the path is %s", got)
		}
		if err := r.n[1].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(1, 0)), MTU: 9000,
			RxSlots: 256,
			Super:   superBytes, Overhead: 62}); err != nil {
			t.Fatal(err)
		}
		s.run(100*time.Millisecond, func() bool { return false })
		lost = false
		s.run(3*time.Second, func() bool { return r.pathMTU(0, 0) == 8938 && s.seen > 16 })
		if got := r.pathMTU(0, 0); got != 8938 {
			t.Errorf("frames of %d bytes", got)
		}
		s.finish()
	})
}

// saidOfPaths counts events of each node that tell something of a path.
func (r *rig) saidOfPaths(what string) (n [2]int) {
	for i := range r.n {
		for _, ev := range r.n[i].events {
			if ev.Kind == engine.EvPath && strings.Contains(ev.Text, what) {
				n[i]++
			}
		}
	}
	return n
}

// Datagrams that cease to pass, while frames alone do, are found out whatever is on its way.
func TestDatagramsCeaseToPass(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, c := range []struct{ mtu, depth, size int }{{9000, 2, streamOp}, {9000, 1, 8500}, {9000, 1, 1400},
			{1500, 2, streamOp}, {1500, 1, 1400}} {
			r := newRig(t, rigOptions{sealed: sealed, mtu: c.mtu, super: superBytes})
			pass := true
			n := r.countForms(func(f *flight) bool { return pass || !f.joined })
			s := newStream(r, r.connect(engine.DialOptions{}))
			s.depth, s.size = c.depth, c.size
			r.settle()
			s.forTime(20*time.Millisecond, 10*time.Millisecond)
			if n.joined == 0 {
				t.Fatalf("%+v: no datagrams", c)
			}
			pass = false
			seen := s.seen
			if !s.run(2*time.Second, func() bool { return s.seen > seen+8 }) {
				t.Fatalf("%+v: nothing completes within 2 s of their end", c)
			}
			s.forTime(time.Second, time.Second)
			if got := r.pathMTU(0, 0); got != c.mtu {
				t.Errorf("%+v: frames of %d bytes", c, got)
			}
			s.finish()
		}
	})
}

// A link that takes no datagrams any more gets none.
func TestDatagramsAreGivenUp(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{sealed: sealed, mtu: 9000, super: superBytes})
		n := r.countForms(whatever)
		s := newStream(r, r.connect(engine.DialOptions{}))
		s.forTime(50*time.Millisecond, 50*time.Millisecond)
		if n.joined == 0 {
			t.Fatal("no datagrams")
		}
		r.relink(1, 0, macOf(1, 0), 9000)
		s.forTime(2*time.Second, 1500*time.Millisecond)
		*n = forms{}
		s.forTime(100*time.Millisecond, 50*time.Millisecond)
		if n.joined > 0 || n.alone == 0 {
			t.Errorf("%+v", *n)
		}
		s.finish()
	})
}
