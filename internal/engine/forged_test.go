package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// What somebody on the wire without a key may not do: fail an operation, move a path, change memory, end or block a
// session (clause 10.8).

// raw makes a frame in plaintext.
func raw(src, dst [6]byte, h wire.Header, tail []byte) []byte {
	b := make([]byte, wire.TailStart)
	copy(b, dst[:])
	copy(b[6:], src[:])
	b[12], b[13] = wire.EtherType>>8, wire.EtherType&0xff
	wire.Finish(b[wire.EthLen:], &h, tail)
	return append(b, tail...)
}

// idOf is the identity of node i when it is sealed.
func idOf(i int) [8]byte { return identity(i).Public().Node() }

// helloOf is what node i says of a link, with an address and a size of the forger's choice.
func helloOf(i, link, mtu int, epoch uint64) wire.Hello {
	return wire.Hello{Node: idOf(i), Epoch: epoch, Flags: wire.HelloSecure, Link: uint8(link), RxSlots: 7,
		MTU: uint32(mtu), Name: fmt.Append(nil, "node", i)}
}

// state is everything that can be seen of node i but counters and what was only heard: shards without a session, and
// hints for people of nodes that take a name or an identity. Hello is not authenticated (clause 10.4), and nothing is
// decided by those hints (trouble.go, claim.go).
func (r *rig) state(i int) string {
	s := r.n[i].e.Snapshot(r.now)
	s.Peers = slices.DeleteFunc(s.Peers, func(p engine.PeerStatus) bool { return !p.Session })
	s.Counters, s.Wrong, s.Claim = engine.Counters{}, nil, engine.Claim{}
	for k := range s.Links {
		s.Links[k].Counters = engine.Counters{}
	}
	return fmt.Sprintf("%+v %+v", s, r.n[i].e.SessionList())
}

// forgeries are frames that a stranger who saw everything can send to node `to` in the name of the other one, by what
// they try.
func (r *rig) forgeries(to int) map[string][]flight {
	from := 1 - to
	s := r.n[to].e.SessionList()[0]
	out := map[string][]flight{}
	evil := [6]byte{2, 6, 6, 6, 6, 6}
	add := func(what string, h wire.Header, tail []byte) {
		for _, src := range [][6]byte{macOf(from, 0), macOf(from, 1), evil} {
			for link := range 2 {
				out[what] = append(out[what], flight{link: link, b: raw(src, macOf(to, link), h, tail)})
			}
		}
	}
	body := func(m interface{ AppendTo([]byte) []byte }) []byte { return m.AppendTo(nil) }
	for _, number := range []uint32{s.Remote, s.Local, s.Remote + 1} {
		add("reset", wire.Header{Type: wire.TypeReset}, body(&wire.Reset{Session: number, Epoch: 7}))
	}
	other := helloOf(from, 0, 1500, 1)
	other.Shard, other.Last = 1, 3
	add("hello of another shard", wire.Header{Type: wire.TypeHello}, body(&other))
	for _, mtu := range []int{640, 9000} {
		for link := range 3 {
			for epoch := range uint64(3) {
				h := helloOf(from, link, mtu, epoch+1)
				add("hello", wire.Header{Type: wire.TypeHello, Path: uint8(link)}, body(&h))
				for n, cookie := range [][]byte{nil, bytes.Repeat([]byte{1}, wire.CookieLen)} {
					in := wire.Init{Hello: h, Session: []uint32{s.Remote, 77}[n], PeerEpoch: 1, Cookie: cookie}
					add("init", wire.Header{Type: wire.TypeInit}, body(&in))
					add("init ack", wire.Header{Type: wire.TypeInitAck, Session: s.Local}, body(&in))
				}
			}
		}
	}
	add("retry", wire.Header{Type: wire.TypeRetry, Session: s.Local}, []byte("cookie"))
	for flags := range uint8(8) {
		for level := range uint8(2) {
			c := wire.Crypto{Flags: flags, Level: level, Status: uint8(engine.StatusStranger), Data: []byte("hello")}
			add("crypto", wire.Header{Type: wire.TypeCrypto, Session: s.Local}, body(&c))
			sealed := raw(macOf(from, 0), macOf(to, 0), wire.Header{Type: wire.TypeCrypto, KeyEpoch: 1,
				Session: s.Local}, append(body(&c), make([]byte, wire.TagLen)...))
			out["crypto"] = append(out["crypto"], flight{link: 0, b: sealed})
		}
	}
	link := wire.LinkInfo{RxSlots: 256, Version: 1 << 30, MTU: 1500, Addr: frame.Ether(evil)}
	for _, g := range []wire.Segment{
		{Kind: wire.KindPing}, {Kind: wire.KindProbe, Place: 1 << 32}, {Kind: wire.KindLink, Data: link.AppendTo(nil)},
		{Kind: wire.KindOpen, From: 99, Window: 2, Name: []byte("test")},
		{Kind: wire.KindClose, Conn: 1, Status: 11}, {Kind: wire.KindAck, Size: 1 << 20, Place: 1<<20 + 1},
	} {
		for _, epoch := range []uint8{0, 1, 2, 255} {
			add("data", wire.Header{Type: wire.TypeData, KeyEpoch: epoch, Session: s.Local, PN: 1 << 20},
				append(g.AppendTo(nil), make([]byte, wire.TagLen)...))
		}
	}
	return out
}

func TestForgeries(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true, links: 2})
	st := newStream(r, r.connect(engine.DialOptions{}))
	st.forTime(time.Second, 50*time.Millisecond)
	st.finish()
	r.rest(100 * time.Millisecond)
	session := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList())
	for to := range 2 {
		forged := r.forgeries(to)
		for _, what := range slices.Sorted(maps.Keys(forged)) {
			frames := forged[what]
			for _, f := range frames {
				before, count := r.state(to), r.n[to].e.Count
				r.give(to, f)
				if after := r.state(to); after != before && what != "reset" {
					t.Fatalf("%s to node %d: %x\nbefore %s\nafter  %s", what, to, f.b, before, after)
				}
				if now := r.n[to].e.Count; now.Life.PathChanges != count.Life.PathChanges ||
					now.Life.SessionsFailed != count.Life.SessionsFailed ||
					now.Traffic.DataFramesReceived != count.Traffic.DataFramesReceived {
					t.Fatalf("%s to node %d: %x: counters %+v", what, to, f.b, now)
				}
			}
			if n := &r.n[to].e.Count.Reject; what != "hello" && what != "crypto" && what != "retry" &&
				what != "init ack" && what != "reset" && n.RejectedAuth+n.RejectedCookie+n.RejectedMalformed == 0 {
				t.Errorf("%s: nothing was counted", what)
			}
			r.rest(10 * time.Millisecond)
		}
	}
	r.rest(4 * time.Second)
	if now := fmt.Sprint(r.n[0].e.SessionList(), r.n[1].e.SessionList()); now != session {
		t.Errorf("the session was %s and is %s", session, now)
	}
	for i := range r.n {
		for _, ev := range r.n[i].events {
			if ev.Kind == engine.EvPath || ev.Kind == engine.EvPeerDown || ev.Kind == engine.EvClosed {
				t.Errorf("node %d: %+v", i, ev)
			}
		}
	}
	st.forTime(time.Second, 50*time.Millisecond)
	st.finish()
}

// The same under load and for a while: every forgery again and again between the frames of a transfer.
func TestForgeriesUnderLoad(t *testing.T) {
	for seed := range uint64(4) {
		forgeriesUnderLoad(t, seed)
	}
}

func forgeriesUnderLoad(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	r := newRig(t, rigOptions{sealed: true, links: 2})
	st := newStream(r, r.connect(engine.DialOptions{}))
	st.forTime(time.Second, 50*time.Millisecond)
	var all [2][]flight
	for to := range all {
		forged := r.forgeries(to)
		for _, what := range slices.Sorted(maps.Keys(forged)) {
			frames := forged[what]
			all[to] = append(all[to], frames...)
		}
	}
	k := 0
	r.pass = func(from int, _ *flight) bool {
		for to := range all {
			f := all[to][rng.IntN(len(all[to]))]
			r.n[to].handle(r.now, f.link, f.b)
		}
		k++
		return true
	}
	st.forTime(3*time.Second, 50*time.Millisecond)
	r.pass = nil
	st.finish()
	r.rest(7 * time.Second) // what resets began is over: Init for 3 s, a handshake for 3 s
	r.oneSession()
	if k < 1000 || len(r.n[0].closed)+len(r.n[1].closed) != 0 {
		t.Errorf("seed %d: %d forgeries, closed %v %v", seed, k, r.n[0].closed, r.n[1].closed)
	}
}

// Hello is only a hint for a dial, too: one that names links and addresses which do not exist must not keep the real
// ones from being tried.
func TestForgedHelloBeforeDial(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.boot(1, 1, rigOptions{sealed: true})
	r.n[1].e.RemoveLink(r.now, 0) // its only link is number 5
	r.n[1].e.SetLink(r.now, 5, engine.LinkConfig{Name: "edge5", Addr: frame.Ether(macOf(1, 0)), MTU: 1500,
		RxSlots: 256})
	move := func(from int, f *flight) bool {
		if mac := macOf(1-from, 0); f.b[0]&1 != 0 || string(f.b[:6]) == string(mac[:]) {
			r.n[1-from].handle(r.now, 5-f.link, f.b)
		}
		return false
	}
	r.pass = move
	r.rest(50 * time.Millisecond)
	for link := range 3 {
		h := helloOf(1, link, 1500, 1)
		r.give(0, flight{link: 0, b: raw([6]byte{2, 6, 6, 6, 6, byte(link)}, macOf(0, 0),
			wire.Header{Type: wire.TypeHello}, h.AppendTo(nil))})
	}
	up := false
	r.n[1].e.Listen("test")
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must("the request arrives", 2*time.Second, func() bool {
		r.poll(1)
		for _, ev := range r.n[1].events {
			up = up || ev.Kind == engine.EvIncoming
		}
		return up
	})
}

// Every bit of a sealed frame counts, and so does its length (clause 10.5).
func TestSealedEveryBit(t *testing.T) {
	for _, size := range []int{8, 700} {
		r := newRig(t, rigOptions{sealed: true})
		c := r.connect(engine.DialOptions{})
		mem, key := r.export(1, c[1], size, both)
		r.settle()
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Key: key, Local: pattern(1, size)})
		frame := r.take(0)[0].b
		rejected := func() uint64 {
			n := r.n[1].e.Count
			return n.Reject.RejectedAuth + n.Reject.RejectedMalformed + n.Reject.RejectedVersion +
				n.Reject.RejectedHeaderSum + n.Reject.UnknownSession +
				n.Loss.FramesDuplicated
		}
		before, n := r.state(1), rejected()
		refused := func(what string, b []byte) {
			t.Helper()
			r.n[1].handle(r.now, 0, b)
			if m := rejected(); m == n && what[0] != 'k' {
				t.Errorf("%s: not counted", what)
			}
			n = rejected()
		}
		for bit := 8 * wire.EthLen; bit < 8*len(frame); bit++ {
			what := fmt.Sprintf("bit %d of byte %d", bit%8, bit/8)
			if b := bit / 8; b == wire.EthLen || b >= wire.EthLen+4 && b < wire.EthLen+8 {
				what = "key lookup" // another type, or a session that is not there
			}
			frame[bit/8] ^= 1 << (bit % 8)
			refused(what, frame)
			frame[bit/8] ^= 1 << (bit % 8)
		}
		for cut := wire.EthLen; cut < len(frame); cut++ {
			refused(fmt.Sprintf("%d of %d bytes", cut, len(frame)), frame[:cut:cut])
		}
		for more := 1; more < 70; more++ {
			refused(fmt.Sprintf("%d bytes more", more), append(bytes.Clone(frame), make([]byte, more)...))
		}
		if after := r.state(1); after != before || !bytes.Equal(mem, make([]byte, size)) {
			t.Errorf("before %s\nafter  %s", before, after)
		}
		r.give(1, flight{link: 0, b: frame})
		if !bytes.Equal(mem, pattern(1, size)) {
			t.Error("the frame itself is not accepted afterwards")
		}
	}
}

// keyEpoch is the key epoch of a frame, packet the number of its packet.
func keyEpoch(b []byte) byte { return b[wire.EthLen+1] }
func packet(b []byte) uint64 { return binary.BigEndian.Uint64(b[wire.EthLen+8:]) }

// Somebody says Hello in the peer's name, from his own address and far more often than the peer: a dial, and a doubt,
// reach the peer when it says Hello once.
func TestHellosInPeersName(t *testing.T) {
	evil := func(k int) [6]byte { return [6]byte{2, 6, 6, 6, byte(k), 6} }
	for _, several := range []bool{false, true} {
		r := newRig(t, rigOptions{sealed: true})
		r.rest(20 * time.Millisecond)
		h, next, k := helloOf(1, 0, 1500, 1), r.now, 0
		forge := func() {
			for ; next <= r.now; next = next.Add(10 * time.Millisecond) {
				if k++; !several {
					k = 1
				}
				r.give(0, flight{link: 0, b: raw(evil(k), [6]byte{255, 255, 255, 255, 255, 255},
					wire.Header{Type: wire.TypeHello}, h.AppendTo(nil))})
			}
		}
		forge()
		r.n[1].e.Listen("test")
		id, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		opened := func(n uint64) {
			t.Helper()
			// a Hello, and before that for a doubt a keep-alive
			r.must("a session", 2200*time.Millisecond, func() bool {
				if forge(); len(r.n[0].closed) > 0 && r.n[0].e.Count.Life.SessionsFailed == 0 {
					t.Fatalf("the dial ended: %+v", r.n[0].closed[id])
				}
				return r.n[0].e.Count.Life.SessionsOpened == n
			})
		}
		opened(1)
		r.rest(time.Second)
		r.boot(1, 2, rigOptions{sealed: true})
		opened(2)
	}
}

// What is said to an answering end in the asking one's place, before there are keys, ends that handshake alone: the
// asking end's next Init begins another.
func TestSpoiltFirstFlight(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.rest(20 * time.Millisecond)
	spoilt := false
	r.pass = func(from int, f *flight) bool {
		if from == 1 && typeOf(f.b) == wire.TypeInitAck && !spoilt {
			spoilt = true
			c := wire.Crypto{Data: []byte{9, 0, 0, 1, 0}}
			r.n[1].handle(r.now, 0, raw([6]byte{2, 6, 6, 6, 6, 6}, macOf(1, 0), wire.Header{Type: wire.TypeCrypto,
				Session: r.n[1].e.SessionList()[0].Local}, c.AppendTo(nil)))
		}
		return true
	}
	r.connectsWithin(60 * time.Millisecond)
	if !spoilt || r.n[1].e.Count.Trust.HandshakesFailed != 1 {
		t.Errorf("spoilt %v, %d handshakes failed", spoilt, r.n[1].e.Count.Trust.HandshakesFailed)
	}
	r.rest(4 * time.Second)
	r.oneSession()
}
