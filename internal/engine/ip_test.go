package engine_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// ipNet is what lies between the two nodes of a rig on IP links.
type ipNet struct {
	*rig
	at   [2][]frame.Addr           // of the nodes' links
	seen map[frame.Addr]frame.Addr // as which a link is seen from outside: behind a translator of addresses
	mtu  int                       // of the network; 0: any
	sent map[frame.Addr]int        // bytes to each address
	eyes func(from int, f *flight) // sees each frame before it is delivered
	lose func(from int, f *flight) bool
	// what routers make of the ECN of a frame; nil: the links do not ask for marks
	mark func(from int, f *flight, ecn frame.ECN) frame.ECN
}

// ipLinkMTU is the longest frame of an IP link whose interface has an MTU of 1500, IPv6 considered.
const (
	ipBelow   = 62
	ipLinkMTU = 1500 - ipBelow
)

func ipAt(text string) frame.Addr { return frame.IP(netip.MustParseAddrPort(text)) }

// newIPNet joins two nodes by so many IP links. Node 0 knows the addresses of node 1, which does not know its.
func newIPNet(t *testing.T, links int, o rigOptions) *ipNet {
	t.Helper()
	o.sealed = true
	r := &ipNet{rig: newRig(t, o), seen: map[frame.Addr]frame.Addr{}, sent: map[frame.Addr]int{}}
	for i := range r.n {
		r.n[i].e.RemoveLink(r.now, 0)
		for l := range links {
			at := ipAt(fmt.Sprintf("10.%d.%d.2:9470", i, l))
			if o.mtu == 6 {
				at = ipAt(fmt.Sprintf("[fd00:%d:%d::2]:9470", i, l))
			}
			r.at[i] = append(r.at[i], at)
		}
		r.ipLinks(i)
	}
	r.rig.route = r.deliver
	r.n[0].e.SetEndpoints(r.now, r.id(1), r.at[1])
	return r
}

func (r *ipNet) id(i int) engine.NodeID { return identity(i).Public().Node() }

// ipLinks gives node i its IP links.
func (r *ipNet) ipLinks(i int) {
	for l, at := range r.at[i] {
		if err := r.n[i].e.SetLink(r.now, l, engine.LinkConfig{Name: fmt.Sprint("ip", l), Addr: at, MTU: ipLinkMTU,
			RxSlots: 256, Super: 65507, Below: ipBelow, ECN: r.mark != nil,
			Congestion: flowctl.IPCongestion("auto"), Group: "ip"}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// deliver takes a frame that node from has sent to the link with its address.
func (r *ipNet) deliver(from int, f *flight) {
	r.sent[f.to] += len(f.b)
	if r.mtu > 0 && len(f.b)+ipBelow-frame.HeaderLen > r.mtu || r.lose != nil && r.lose(from, f) {
		return
	}
	origin := r.at[from][f.link]
	if as, ok := r.seen[origin]; ok {
		origin = as
	}
	if r.eyes != nil {
		r.eyes(from, f)
	}
	ecn := frame.NotECT
	if f.capable {
		ecn = frame.ECT0
	}
	if r.mark != nil {
		ecn = r.mark(from, f, ecn)
	}
	r.come(1-from, f.to, origin, f.b, ecn)
}

// arrive gives a frame to the link of node i with that address, or whose address is translated to it.
func (r *ipNet) arrive(i int, to, origin frame.Addr, b []byte) {
	r.come(i, to, origin, b, frame.NotECT)
}

func (r *ipNet) come(i int, to, origin frame.Addr, b []byte, ecn frame.ECN) {
	for l, at := range r.at[i] {
		as, translated := r.seen[at]
		if translated && as == to || !translated && at == to {
			r.n[i].e.Handle(r.now, l, engine.Arrival{Rx: frame.Rx{Head: bytes.Clone(b), Origin: &origin,
				ECN: ecn}})
			r.poll(i)
		}
	}
}

// write has node i write n bytes into the other one's memory, and waits.
func (r *ipNet) write(i int, c [2]engine.ConnID, n int, token uint64, limit time.Duration) {
	r.t.Helper()
	mem, key := r.export(1-i, c[1-i], n, both)
	data := pattern(int(token), n)
	r.submit(i, c[i], engine.Op{Kind: engine.OpWrite, Token: token, Local: data, Key: key})
	r.must("write", limit, func() bool { _, ok := r.n[i].done[token]; return ok })
	r.wantStatus(i, token, engine.OK)
	if !bytes.Equal(mem, data) {
		r.t.Fatal("the bytes differ")
	}
}

// Clause 21: two nodes reach each other over IP although one knows no address of the other, of both families. Nothing
// in the clear says who asks by name, and no Hello is sent.
func TestIPLinks(t *testing.T) {
	for _, mtu := range []int{1500, 6} {
		r := newIPNet(t, 1, rigOptions{mtu: mtu})
		r.rig.pass = func(from int, f *flight) bool {
			if !f.to.IsIP() {
				t.Errorf("node %d sends a frame of type %d to %v", from, typeOf(f.b), f.to)
			}
			return true
		}
		r.eyes = func(_ int, f *flight) {
			if !bytes.Equal(f.b[:12], make([]byte, 12)) || f.b[12] != 0x88 || f.b[13] != 0xb5 {
				t.Fatalf("header % x", f.b[:14])
			}
			if typeOf(f.b) == wire.TypeHello || bytes.Contains(f.b, []byte("node")) {
				t.Fatalf("a frame of type %d tells a name: %q", typeOf(f.b), f.b)
			}
		}
		c := r.connect(engine.DialOptions{})
		r.settle()
		r.write(0, c, 100000, 1, time.Second)
		r.write(1, c, 100000, 2, time.Second)
		for i := range r.n {
			p := r.n[i].e.Snapshot(r.now).Peers[0].Paths
			if len(p) != 1 || p[0].State != "good" || p[0].PeerAddr != r.at[1-i][0] || p[0].MTU != ipLinkMTU ||
				!p[0].Joined {
				t.Errorf("node %d: paths %+v", i, p)
			}
		}
		// who was reached can ask, too
		r.n[0].e.Listen("back")
		if _, err := r.n[1].e.Dial(r.now, "node0", "back", engine.DialOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// Several links of both: each finds one of the peer's, whose addresses only one node knows.
func TestSeveralIPLinks(t *testing.T) {
	r := newIPNet(t, 3, rigOptions{})
	c := r.connect(engine.DialOptions{})
	good := func(i int) int {
		n := 0
		for _, p := range r.n[i].e.Snapshot(r.now).Peers[0].Paths {
			if p.State == "good" && p.MTU == ipLinkMTU {
				n++
			}
		}
		return n
	}
	r.must("paths", 5*time.Second, func() bool { return good(0) == 3 && good(1) == 3 })
	r.write(0, c, 1<<20, 1, time.Second)
	r.write(1, c, 1<<20, 2, time.Second)
}

// A node has an Ethernet link and an IP link: both carry data of one session, and either goes on alone. Links of one
// kind have other numbers at the other node.
func TestIPBesideEthernet(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	r.far = func(_, link int) int { return 1 - link }
	for i := range r.n {
		ip, ethernet := 1-i, i
		at := r.at[i][0]
		r.n[i].e.RemoveLink(r.now, 0)
		r.at[i] = make([]frame.Addr, 2)
		r.at[i][ip] = at
		r.relink(i, ethernet, macOf(i, ethernet), 1500)
		if err := r.n[i].e.SetLink(r.now, ip, engine.LinkConfig{Name: "ip", Addr: at, MTU: ipLinkMTU, RxSlots: 256,
			Super: 65507, Below: ipBelow}); err != nil {
			t.Fatal(err)
		}
	}
	c := r.connect(engine.DialOptions{})
	good := func(i int) bool {
		n := 0
		for _, p := range r.n[i].e.Snapshot(r.now).Peers[0].Paths {
			if p.State == "good" {
				n++
			}
		}
		return n == 2
	}
	r.must("two paths", 5*time.Second, func() bool { return good(0) && good(1) })
	used := map[bool]int{}
	r.rig.pass = func(_ int, f *flight) bool { used[f.to.IsIP()] += len(f.b); return true }
	r.write(0, c, 1<<20, 1, time.Second)
	if min(used[false], used[true]) < 100000 {
		t.Errorf("bytes on IP links and others: %v", used)
	}
	for k, cut := range []bool{false, true, false, false, false} {
		r.rig.pass = func(_ int, f *flight) bool { return f.to.IsIP() != cut }
		r.write(0, c, 1<<18, uint64(10+k), 5*time.Second)
		r.rest(time.Duration(k) * 300 * time.Millisecond)
		r.rig.pass = func(i int, f *flight) bool {
			if f.to.IsIP() != (f.link == 1-i) {
				t.Errorf("node %d: a frame for %v leaves on link %d", i, f.to, f.link)
			}
			return true
		}
		r.must("both again", 10*time.Second, func() bool { return good(0) && good(1) })
		for i := range r.n {
			for _, p := range r.n[i].e.Snapshot(r.now).Peers[0].Paths {
				if p.PeerLink != 1-p.Link || p.PeerAddr.IsIP() != (p.Link == 1-i) {
					t.Errorf("node %d: a path of link %d leads to link %d, %v", i, p.Link, p.PeerLink, p.PeerAddr)
				}
			}
		}
	}
}

// The first addresses of the configuration are of nobody: the peer is found at the last.
func TestIPEndpointsInTurn(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	r.n[0].e.SetEndpoints(r.now, r.id(1), []frame.Addr{ipAt("192.0.2.1:9470"), ipAt("[2001:db8::1]:9470"),
		ipAt("192.0.2.2:9470"), r.at[1][0]})
	start := r.now
	c := r.connect(engine.DialOptions{})
	if took := r.now.Sub(start); took > 500*time.Millisecond {
		t.Errorf("found after %v", took)
	}
	r.write(0, c, 1000, 1, time.Second)
	if r.sent[ipAt("[2001:db8::1]:9470")] > 0 {
		t.Error("an IPv4 link was to reach an IPv6 address")
	}
}

// A dial to a peer at a wrong address fails and says so; it succeeds once the address is right.
func TestIPWrongEndpoint(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	r.n[0].e.SetEndpoints(r.now, r.id(1), []frame.Addr{ipAt("192.0.2.1:9470")})
	r.n[1].e.Listen("test")
	ev, _ := r.dialEnds("node1", "test", engine.DialOptions{}, 20*time.Second)
	if !strings.Contains(ev.Text, "192.0.2.1:9470") || !strings.Contains(ev.Text, "UDP") {
		t.Errorf("%v: %s", ev.Status, ev.Text)
	}
	if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
		t.Fatal(err)
	}
	r.rest(100 * time.Millisecond)
	r.n[0].e.SetEndpoints(r.now, r.id(1), r.at[1])
	r.must("open", 3*time.Second, func() bool { return r.n[0].e.Found(r.id(1)) })
}

// Clause 21.3: strangers get silence. Who knows the node's public key gets a Retry that is not longer than what it
// sent.
func TestIPStrangersGetSilence(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	to, stranger := r.at[1][0], ipAt("198.51.100.7:5000")
	answer := func(kind wire.Type, session uint32, body []byte) []flight {
		b := make([]byte, wire.TailStart, wire.TailStart+len(body))
		frame.DefaultFraming.PutHeader(b, &to, &to)
		b = append(b, body...)
		wire.Finish(b[frame.HeaderLen:], &wire.Header{Type: kind, Session: session}, body)
		r.arrive(1, to, stranger, b)
		return r.take(1)
	}
	hello := wire.Hello{Node: [8]byte(r.id(0)), Epoch: 5, Flags: wire.HelloSecure | wire.HelloAnswer, RxSlots: 9,
		MTU: 1400}
	init := wire.Init{Hello: hello, Session: 77}
	init.Flags = wire.HelloSecure
	body := init.AppendTo(nil)
	proof := func(key secure.PublicKey) []byte { return engine.InitProof(key, body) }
	long := append(bytes.Clone(body), make([]byte, 257-len(body))...) // than any, which costs no hash of all of it
	for name, c := range map[string]struct {
		kind    wire.Type
		session uint32
		body    []byte
	}{
		"hello": {wire.TypeHello, 0, hello.AppendTo(nil)}, "init without proof": {wire.TypeInit, 0, body},
		"init with a wrong proof": {wire.TypeInit, 0, append(bytes.Clone(body), proof(identity(0).Public())...)},
		"init cut off":            {wire.TypeInit, 0, body[:7]},
		"init too long":           {wire.TypeInit, 0, append(long, engine.InitProof(identity(1).Public(), long)...)},
		"reset":                   {wire.TypeReset, 0, (&wire.Reset{Session: 9, Epoch: 1}).AppendTo(nil)},
		"data":                    {wire.TypeData, 99, []byte{14, 0, 0, 0}}, "retry": {wire.TypeRetry, 9, body[:16]},
		"crypto": {wire.TypeCrypto, 99, body}, "init-ack": {wire.TypeInitAck, 99, body},
	} {
		if out := answer(c.kind, c.session, c.body); len(out) != 0 {
			t.Errorf("%s: %d frames in answer, the first of type %d", name, len(out), typeOf(out[0].b))
		}
	}
	sealed := make([]byte, 200)
	frame.DefaultFraming.PutHeader(sealed, &to, &to)
	copy(sealed[frame.HeaderLen:], []byte{0x11, 1, 0, 0, 0, 0, 0, 99})
	r.arrive(1, to, stranger, sealed)
	if out := r.take(1); len(out) != 0 {
		t.Errorf("sealed data of no session: %d frames in answer", len(out))
	}
	asked := append(bytes.Clone(body), proof(identity(1).Public())...)
	out := answer(wire.TypeInit, 0, asked)
	if len(out) != 1 || typeOf(out[0].b) != wire.TypeRetry || out[0].to != stranger ||
		len(out[0].b) > wire.TailStart+len(asked) {
		t.Errorf("a right proof: %v", out)
	}
	if r.n[1].e.Count.Reject.RejectedAuth != 4 {
		t.Errorf("%d frames were rejected for their proof, want 4", r.n[1].e.Count.Reject.RejectedAuth)
	}
}

// Clause 21.5: a translator gives the peer's flow another port in the midst of a transfer, in either direction. No
// operation fails, and the path keeps what it knows.
func TestIPRebinding(t *testing.T) {
	for writer := range 2 {
		r := newIPNet(t, 1, rigOptions{})
		r.seen[r.at[0][0]] = ipAt("203.0.113.1:40000")
		c := r.connect(engine.DialOptions{})
		r.settle()
		r.write(writer, c, 100000, 1, time.Second)
		for k := range 5 {
			to := ipAt(fmt.Sprintf("203.0.113.1:%d", 41000+k))
			r.seen[r.at[0][0]] = to
			r.write(writer, c, 300000, uint64(2+k), 3*time.Second)
			if p := r.n[1].e.Snapshot(r.now).Peers[0].Paths[0]; p.PeerAddr != to || p.MTU != ipLinkMTU {
				t.Fatalf("writer %d, move %d: path %+v", writer, k, p)
			}
		}
		r.seen[r.at[0][0]] = ipAt("203.0.113.1:50000")
		r.rest(3 * time.Second)
		if p := r.n[1].e.Snapshot(r.now).Peers[0].Paths[0]; p.PeerAddr.String() != "203.0.113.1:50000" {
			t.Errorf("writer %d: a move at rest was not followed: %+v", writer, p)
		}
		if n := r.n[1].e.Count.Life.PathMoves; n != 6 {
			t.Errorf("writer %d: %d moves were followed", writer, n)
		}
		for _, ev := range r.n[1].events {
			if ev.Kind == engine.EvPath && strings.Contains(ev.Text, "dead") {
				t.Errorf("writer %d: a move to another port: %s", writer, ev.Text)
			}
		}
		// to another host: what was known of the way is forgotten
		r.seen[r.at[0][0]] = ipAt("198.51.100.9:40000")
		r.write(writer, c, 300000, 20, 3*time.Second)
		r.write(1-writer, c, 300000, 21, 3*time.Second)
		r.rest(2 * time.Second)
		if p := r.n[1].e.Snapshot(r.now).Peers[0]; p.Paths[0].PeerAddr != r.seen[r.at[0][0]] || p.Sessions != 1 {
			t.Errorf("writer %d: %+v", writer, p)
		}
	}
}

// Frames of a train that arrive together over IP are taken together while they come from where the path leads. From the
// first one on that comes from elsewhere, each is a sign of a move (clause 21.5) and is taken by itself.
func TestTrainsOverIP(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.write(0, c, 100000, 1, time.Second)
	here, there := r.at[0][0], ipAt("203.0.113.1:40000")
	for k, elsewhere := range []bool{false, true} {
		const size = 20000
		mem, key := r.export(1, c[1], size, both)
		var kept [][]byte
		r.lose = func(from int, f *flight) bool {
			if from == 0 {
				kept = append(kept, bytes.Clone(f.b))
			}
			return from == 0
		}
		token, data := uint64(2+k), pattern(k, size)
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token, Local: data, Key: key})
		r.must("frames", time.Second, func() bool { return len(kept) > size/ipLinkMTU })
		r.lose = nil
		var arrivals []engine.Arrival
		for n, b := range kept {
			origin := here
			if elsewhere && n >= len(kept)/2 {
				origin = there
			}
			arrivals = append(arrivals, engine.Arrival{Rx: frame.Rx{Head: b, Origin: &origin}})
		}
		before := r.n[1].e.Count.Placing.FramesInTrains
		r.n[1].e.Handle(r.now, 0, arrivals...)
		together := int(r.n[1].e.Count.Placing.FramesInTrains - before)
		if n := len(kept); n < size/ipLinkMTU || !elsewhere && together < n-3 || elsewhere && together >= n/2 {
			t.Errorf("elsewhere %v: %d of %d frames were taken together", elsewhere, together, n)
		}
		r.poll(1)
		r.must("write", time.Second, func() bool { _, ok := r.n[0].done[token]; return ok })
		if !bytes.Equal(mem, data) {
			t.Error("the bytes differ")
		}
	}
}

// Clause 21.5: somebody on the way copies the newest frames and sends them on from an address of his, first, and passes
// on what he gets. The path stays where it is, and nothing is sent to him.
func TestIPCopiedFrames(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	thief := ipAt("198.51.100.66:666")
	copied, sent := 0, 0
	r.eyes = func(from int, f *flight) {
		if f.to == thief {
			sent++
			origin := r.at[1][0]
			r.n[0].e.Handle(r.now, 0, engine.Arrival{Rx: frame.Rx{Head: bytes.Clone(f.b), Origin: &origin}})
		}
		if from == 0 {
			copied++
			origin := thief
			r.n[1].e.Handle(r.now, 0, engine.Arrival{Rx: frame.Rx{Head: bytes.Clone(f.b), Origin: &origin}})
			r.poll(1)
		}
	}
	for k := range uint64(5) {
		r.write(0, c, 200000, 1+k, time.Second)
		r.write(1, c, 200000, 101+k, time.Second)
		r.rest(30 * time.Millisecond)
	}
	r.rest(time.Second)
	if p := r.n[1].e.Snapshot(r.now).Peers[0].Paths[0]; p.PeerAddr != r.at[0][0] {
		t.Errorf("the path leads to %v", p.PeerAddr)
	}
	if sent > 0 || copied < 100 {
		t.Errorf("%d frames were sent to an address from which %d came", sent, copied)
	}
}

// A peer that was started anew says nothing to those it does not know; that it lost the session is found out all the
// same.
func TestIPRestart(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 64, both)
	r.boot(1, 2, rigOptions{sealed: true})
	r.n[1].e.RemoveLink(r.now, 0)
	r.ipLinks(1)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Local: make([]byte, 64), Key: key})
	r.must("the end of the operation", 4*time.Second, r.all(0, 1))
	r.wantStatus(0, 1, engine.StatusPeerDown)
	r.write(0, r.connect(engine.DialOptions{}), 1000, 2, time.Second)
}

// Clause 21.6: frames become as long as the network takes them, and shorter when it takes them no more, silently.
func TestIPPathMTU(t *testing.T) {
	for mtu, want := range map[int]int{1500: ipLinkMTU, 1450: 1450 - ipBelow, 1400: 1400 - ipBelow,
		1300: 1280 - ipBelow, 1000: wire.MinFrame} {
		r := newIPNet(t, 1, rigOptions{})
		r.mtu = mtu
		c := r.connect(engine.DialOptions{})
		r.must("frame size", 3*time.Second, func() bool {
			return r.n[0].e.Snapshot(r.now).Peers[0].Paths[0].MTU == want
		})
		r.write(0, c, 100000, 1, time.Second)
		r.rest(time.Second)
		if p := r.n[0].e.Snapshot(r.now).Peers[0].Paths[0]; p.MTU != want || !p.Joined && want > wire.MinFrame {
			t.Errorf("MTU %d: %+v", mtu, p)
		}
	}
	r := newIPNet(t, 1, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.mtu = 1400
	r.write(0, c, 1<<20, 1, 2*time.Second)
}

// Clause 21.7: one of four links turns black in the midst of writes. None takes longer than some probe times; when all
// are silent, no path is given up.
func TestIPLaneBlack(t *testing.T) {
	r := newIPNet(t, 4, rigOptions{})
	r.hop = 50 * time.Microsecond
	c := r.connect(engine.DialOptions{})
	states := func() (list []string) {
		for _, p := range r.n[0].e.Snapshot(r.now).Peers[0].Paths {
			list = append(list, p.State)
		}
		return list
	}
	all := func(state string) bool {
		s := states()
		return len(s) == 4 && strings.Count(strings.Join(s, " "), state) == 4
	}
	r.must("paths", 5*time.Second, func() bool { return all("good") })
	r.settle()
	token, worst := uint64(1), time.Duration(0)
	write := func() {
		start := r.now
		r.write(0, c, 64<<10, token, 2*time.Second)
		token, worst = token+1, max(worst, r.now.Sub(start))
	}
	for range 20 {
		write()
	}
	clean := worst
	dark := r.at[1][2]
	r.lose = func(from int, f *flight) bool { return f.to == dark || from == 1 && f.link == 2 }
	for range 50 {
		write()
	}
	if worst > clean+50*time.Millisecond {
		t.Errorf("a write took %v beside a black link, and %v before", worst, clean)
	}
	r.lose = nil
	r.must("all again", 5*time.Second, func() bool { return all("good") })
	r.lose = func(int, *flight) bool { return true }
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token, Local: make([]byte, 8), Key: 1})
	r.rest(400 * time.Millisecond)
	if s := states(); strings.Contains(strings.Join(s, " "), "dead") {
		t.Errorf("all silent: %v", s)
	}
}

// A peer is at another of its configured addresses, and does not show itself: it is looked for there.
func TestIPPeerAtAnotherEndpoint(t *testing.T) {
	r := newIPNet(t, 1, rigOptions{})
	old, next := r.at[1][0], ipAt("10.1.0.77:9470")
	r.n[0].e.SetEndpoints(r.now, r.id(1), []frame.Addr{old, next})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.write(0, c, 1000, 1, time.Second)
	r.at[1][0] = next
	found := false
	r.lose = func(from int, f *flight) bool {
		found = found || f.to == next
		return from == 1 && !found
	}
	r.write(0, c, 1000, 2, 800*time.Millisecond)
	if p := r.n[0].e.Snapshot(r.now).Peers[0].Paths[0]; p.PeerAddr != next {
		t.Errorf("%+v", p)
	}
	if r.n[1].e.Count.Life.PathMoves != 0 || r.n[0].e.Count.Life.PathMoves != 1 {
		t.Errorf("moves: %d and %d", r.n[0].e.Count.Life.PathMoves, r.n[1].e.Count.Life.PathMoves)
	}
}
