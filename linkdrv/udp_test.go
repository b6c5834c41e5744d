package linkdrv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"multiedge/internal/ethtool"
)

// change turns features of an interface on and off.
func change(t testing.TB, link string, features map[string]bool) {
	t.Helper()
	must(t, ethtool.Change(link, features))
}

// longest is how long a frame in a datagram can be.
func longest(d Driver) int { return d.Info().MTU - d.Info().Overhead + HeaderLen }

// stream is n frames of one flow to travel in datagrams, of size bytes each but the last, which has last.
func stream(from, to Driver, n, size, last int) (frames []TxFrame, want [][]byte) {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	for i := range n {
		length := size
		if i == n-1 {
			length = last
		}
		f := TxFrame{Head: header(from, to, 24), Bulk: make([]byte, length-HeaderLen-24), Joined: true}
		for k := range f.Bulk {
			f.Bulk[k] = byte(rng.Uint32())
		}
		frames = append(frames, f)
		want = append(want, slices.Concat(f.Head, f.Bulk))
	}
	return frames, want
}

// datagrams is how many d has taken, of one frame or several.
func datagrams(d Driver) uint { return d.(*udp).head + d.(*udp).supers.head }

func sendFrames(t testing.TB, d Driver, frames []TxFrame) {
	t.Helper()
	if n, err := d.Send(frames); n != len(frames) || err != nil {
		t.Fatalf("sent %d of %d frames: %v", n, len(frames), err)
	}
}

func checkFrames(t testing.TB, got, want [][]byte) {
	t.Helper()
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d: %d bytes arrived, %d sent, or they differ", i, len(got[i]), len(want[i]))
		}
	}
}

// A stream crosses a virtual link in as few super-frames as its bytes allow, however few frames the receiver takes at a
// time.
func TestSuperFramesStayWhole(t *testing.T) {
	for _, tc := range []struct{ mtu, frames, supers int }{{1500, 64, 2}, {9000, 64, 9}, {65535, 8, 8}} {
		namespace(t)
		veth(t, tc.mtu)
		tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
		for take := range 4 {
			frames, want := stream(tx, rx, tc.frames, longest(tx), 200)
			sendFrames(t, tx, frames)
			before := datagrams(rx)
			buf, got := make([][]byte, 1+take*7), [][]byte(nil)
			await(t, rx, 2000)
			for len(got) < len(want) {
				n, err := rx.Recv(buf)
				if n == 0 || err != nil {
					t.Fatalf("MTU %d: %d of %d frames, then %d, %v", tc.mtu, len(got), len(want), n, err)
				}
				for _, f := range buf[:n] {
					got = append(got, bytes.Clone(f))
				}
			}
			checkFrames(t, got, want)
			if n := datagrams(rx) - before; n != uint(tc.supers) {
				t.Errorf("MTU %d: %d frames crossed as %d super-frames, want %d", tc.mtu, tc.frames, n, tc.supers)
			}
		}
		must(t, deleteLink(t, "a0"))
	}
}

// Where the wire takes no super-frames they are cut up, and what is on the wire then are valid UDP datagrams over IPv6,
// each with a frame. Whoever receives them cannot tell.
func TestSuperFramesAreCutUp(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	change(t, "a0", map[string]bool{"tx-checksum-ip-generic": false}) // and with it all segmentation
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	wire := open(t, "b0", Options{Kind: KindRing, EtherType: EtherTypeAll, Promiscuous: true, RingSlots: 256})
	frames, want := stream(tx, rx, 50, longest(tx), 777)
	sendFrames(t, tx, frames)
	checkFrames(t, receive(t, rx, len(want)), want)
	if n := datagrams(rx); n != uint(len(want)) {
		t.Errorf("%d frames arrived in %d pieces", len(want), n)
	}
	seen := 0
	for i := 0; seen < len(want) && i < len(want)+50; i++ { // the kernel's own IPv6 chatter may come between
		f := receive(t, wire, 1)[0]
		if binary.BigEndian.Uint16(f[12:]) != etherIPv6 || f[atNext] != nextUDP ||
			binary.BigEndian.Uint16(f[atPort:]) != uint16(EtherType) {
			continue
		}
		if !InDatagram(f) || !bytes.Equal(f[OuterLen:], want[seen]) {
			t.Fatalf("datagram %d does not hold frame %d", seen, seen)
		}
		length := binary.BigEndian.Uint16(f[atLength:])
		if int(length) != len(f)-atUDP || binary.BigEndian.Uint16(f[HeaderLen+4:]) != length {
			t.Fatalf("datagram %d of %d bytes says %d", seen, len(f)-atUDP, length)
		}
		if sum := pseudoSum(slices.Concat(f[atSource:], make([]byte, len(f)%2)), length); sum != 0xFFFF {
			t.Fatalf("datagram %d: wrong checksum: the sum over it is %#x", seen, sum)
		}
		if source, to := f[atSource:atDestination], f[atDestination:atUDP]; !bytes.Equal(source[:10], nodePrefix[:]) ||
			!bytes.Equal(source[10:], tx.Info().MAC) ||
			!bytes.Equal(to[:10], nodePrefix[:]) || !bytes.Equal(to[10:], rx.Info().MAC) {
			t.Fatalf("addresses % x and % x", source, to)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d of %d datagrams", seen, len(want))
	}
}

// What was cut up is merged again before it is received, where the interface does that, and what it merges are frames
// of one session.
func TestSuperFramesAreMerged(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	change(t, "a0", map[string]bool{"tx-checksum-ip-generic": false})
	change(t, "b0", map[string]bool{"rx-gro": true, "rx-udp-gro-forwarding": true})
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), openShards(t, "b0", 2, Options{Kind: KindUDP})
	frames, want := stream(tx, rx[0], 60, longest(tx), 777)
	sendFrames(t, tx, frames)
	checkFrames(t, receive(t, rx[0], len(want)), want)
	if n := datagrams(rx[0]); n > uint(len(want)/2) {
		t.Errorf("%d frames arrived in %d pieces", len(want), n)
	}
	var mixed []TxFrame
	for i := range 60 {
		f := sessionFrame(tx, rx[0], uint32(i%2)<<31|uint32(i/2%2), 1000)
		f.Joined = true
		mixed = append(mixed, f)
	}
	sendFrames(t, tx, mixed)
	for shard := range 2 {
		for i, f := range receive(t, rx[shard], 30) {
			if session := binary.BigEndian.Uint32(f[HeaderLen+sessionOffset:]); int(session%2) != shard {
				t.Fatalf("frame %d of session %#x at shard %d", i, session, shard)
			}
		}
	}
}

// Frames share a super-frame if they follow one another, go to one place in one session, and have one length; only the
// last may be shorter.
func TestGatherSuper(t *testing.T) {
	frame := func(to byte, session uint32, length int) TxFrame {
		h := make([]byte, 64)
		h[5] = to
		binary.BigEndian.PutUint32(h[HeaderLen+sessionOffset:], session)
		return TxFrame{Head: h, Bulk: make([]byte, length-64), Joined: true}
	}
	many := func(n, length int) (frames []TxFrame) {
		for range n {
			frames = append(frames, frame(1, 1, length))
		}
		return frames
	}
	for _, tc := range []struct {
		name   string
		frames []TxFrame
		upto   []int
	}{
		{"one", many(1, 100), []int{1}},
		{"equal", many(5, 100), []int{5}},
		{"the last one shorter", append(many(3, 100), frame(1, 1, 99)), []int{4}},
		{"a shorter one ends it", append(append(many(3, 100), frame(1, 1, 99)), many(2, 99)...), []int{4, 6}},
		{"a longer one begins another", append(many(3, 100), frame(1, 1, 101)), []int{3, 4}},
		{"another destination", []TxFrame{frame(1, 1, 100), frame(2, 1, 100), frame(2, 1, 100)}, []int{1, 3}},
		{"another session", []TxFrame{frame(1, 1, 100), frame(1, 2, 100), frame(1, 1, 100)}, []int{1, 2, 3}},
		{"as much as IPv6 can say", many(16, 9000), []int{7, 14, 16}},
		{"a call's frames", many(SendBatch+9, 80), []int{SendBatch}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newSuperQueue([]byte{2, 0, 0, 0, 0, 9}, 7, 9014)
			hdrs, fault := q.gather(tc.frames)
			if fault != 0 || !slices.Equal(q.upto[:len(hdrs)], tc.upto) {
				t.Fatalf("super-frames end at %v, fault %v; want %v", q.upto[:len(hdrs)], fault, tc.upto)
			}
			first := 0
			for m := range hdrs {
				o, size := &q.outers[m], 0
				for _, f := range tc.frames[first:tc.upto[m]] {
					size += f.Len()
				}
				super := slices.Concat(o[vnetLen:], make([]byte, size))
				got, step := openSuper(o[:vnetLen], super)
				if len(got) != size || step != tc.frames[first].Len() {
					t.Errorf("super-frame %d opens as %d bytes in steps of %d, want %d of %d", m, len(got), step, size,
						tc.frames[first].Len())
				}
				first = tc.upto[m]
			}
		})
	}
	for _, tc := range []struct {
		name string
		bad  TxFrame
		want error
	}{
		{"too long", TxFrame{Head: make([]byte, 9015), Joined: true}, ErrTooLong},
		{"too long alone", TxFrame{Head: make([]byte, 9077)}, ErrTooLong},
		{"no header", TxFrame{Head: make([]byte, 13)}, ErrBadFrame},
		{"empty", TxFrame{}, ErrBadFrame},
	} {
		t.Run(tc.name, func(t *testing.T) {
			namespace(t)
			veth(t, 9062)
			tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
			frames, want := stream(tx, rx, 9, 100, 100)
			if n, err := tx.Send(slices.Insert(slices.Clone(frames), 4, tc.bad)); n != 5 || !errors.Is(err, tc.want) {
				t.Fatalf("Send = %d, %v; want 5, %v", n, err, tc.want)
			}
			sendFrames(t, tx, frames[4:])
			checkFrames(t, receive(t, rx, len(want)), want)
		})
	}
}

// Datagrams of others, for others, to other ports and from behind a router stay out.
func TestSuperFilter(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	bare := open(t, "a0", Options{Kind: KindRing, EtherType: etherIPv6})
	inner := append(header(tx, rx, 0), bytes.Repeat([]byte{7}, 50)...)
	datagram := func(change func(h []byte)) TxFrame {
		var o outer
		o.init(tx.Info().MAC, uint16(EtherType))
		f := flowOf(inner)
		o.fill(&f, len(inner), len(inner))
		d := slices.Concat(o[vnetLen:], inner)
		change(d)
		return TxFrame{Head: d}
	}
	bad := map[string]func(h []byte){
		"other host":     func(h []byte) { h[5] ^= 1 },
		"other protocol": func(h []byte) { h[atNext] = 6 },
		"routed":         func(h []byte) { h[atHops]-- },
		"other port":     func(h []byte) { h[atPort]++ },
		"other network":  func(h []byte) { h[atDestination] = 0x20 },
		"a host's own":   func(h []byte) { h[atDestination+8]++ },
	}
	for name, change := range bad {
		sendFrames(t, bare, []TxFrame{datagram(change), datagram(func([]byte) {})})
		if got := receive(t, rx, 1)[0]; !bytes.Equal(got, inner) {
			t.Errorf("%s: received % x", name, got)
		}
		if n, err := rx.Recv(make([][]byte, 1)); n != 0 || err != nil {
			t.Errorf("%s: came through (%d, %v)", name, n, err)
		}
	}
	if s, err := rx.Stats(); err != nil || s.Received != uint64(len(bad)) || s.Truncated != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	// Frames alone of other protocols, for others, and of a VLAN, which has an interface of its own.
	alone := slices.Concat(header(tx, rx, 0), bytes.Repeat([]byte{8}, 60))
	everything := open(t, "b0", Options{Kind: KindRing, EtherType: EtherTypeAll, Promiscuous: true, RingSlots: 256})
	for name, f := range map[string][]byte{
		"other EtherType": slices.Concat(alone[:12], []byte{0x88, 0xb6}, alone[14:]),
		"other host":      slices.Concat([]byte{2, 3, 4, 5, 6, 7}, alone[6:]),
		"VLAN 7":          slices.Concat(alone[:12], []byte{0x81, 0, 0, 7}, alone[12:]),
		"":                slices.Concat(alone[:12], []byte{0x81, 0, 0xe0, 0}, alone[12:]), // a priority is no VLAN
	} {
		sendFrames(t, bare, []TxFrame{{Head: f}, {Head: alone}})
		if name == "" {
			receive(t, rx, 1)
		}
		if got := receive(t, rx, 1)[0]; !bytes.Equal(got, alone) {
			t.Errorf("%s: received % x", name, got)
		}
		for both := 0; both < 2; { // it did arrive: somebody who takes everything has it
			if bytes.HasSuffix(receive(t, everything, 1)[0], alone[14:]) {
				both++
			}
		}
		if n, err := rx.Recv(make([][]byte, 1)); n != 0 || err != nil {
			t.Errorf("%s: came through (%d, %v)", name, n, err)
		}
	}
	// What passes the filter and is no super-frame is counted and dropped.
	sendFrames(t, bare, []TxFrame{datagram(func(h []byte) { h[atLength] = 0xFF }),
		datagram(func(h []byte) { h[atLength], h[atLength+1] = 0, 3 }), datagram(func([]byte) {})})
	if got := receive(t, rx, 1)[0]; !bytes.Equal(got, inner) {
		t.Errorf("received % x", got)
	}
	if s, _ := rx.Stats(); s.Truncated != 2 {
		t.Errorf("%+v, want 2 discarded", s)
	}
}

// Short datagrams and long ones wait in different rings, and are taken in the order of sending also while they arrive.
func TestSuperOrder(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	const total, window = 100_000, 120
	rng := rand.New(rand.NewPCG(5, 6))
	var taken atomic.Uint32
	sender := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for next := uint32(0); next < total; {
			var frames []TxFrame
			for range min(1+9*rng.IntN(3), int(window-(next-taken.Load()))) {
				f := TxFrame{Head: header(tx, rx, 4), Bulk: make([]byte, 1000), Joined: next%16 > 0}
				binary.BigEndian.PutUint32(f.Head[HeaderLen:], next)
				frames = append(frames, f)
				next++
			}
			if n, err := tx.Send(frames); n != len(frames) || err != nil {
				sender <- fmt.Errorf("sent %d of %d frames: %w", n, len(frames), err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
		sender <- nil
	}()
	buf := make([][]byte, 4)
	for want := uint32(0); want < total; {
		n, err := rx.Recv(buf)
		must(t, err)
		for _, f := range buf[:n] {
			if got := binary.BigEndian.Uint32(f[HeaderLen:]); got != want {
				t.Fatalf("frame %d in place of %d", got, want)
			}
			want++
		}
		taken.Store(want)
		select {
		case err := <-sender:
			must(t, err)
		default:
		}
	}
	if many, one := rx.(*udp).supers.head, rx.(*udp).head; many < total/100 || one < total/100 {
		t.Errorf("%d datagrams of several frames and %d of one", many, one)
	}
}

// When the ring is full, whole super-frames are lost and counted, and those before are intact.
func TestSuperOverflow(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	per := superBytes / (longest(tx))
	frames, want := stream(tx, rx, 8*per, longest(tx), 500)
	slots := len(rx.(*udp).supers.slots)
	for range 2 * (slots/8 + 1) {
		sendFrames(t, tx, frames)
	}
	held := receive(t, rx, slots*per)
	for i, f := range held {
		if !bytes.Equal(f, want[i%len(want)]) {
			t.Fatalf("frame %d differs", i)
		}
	}
	if n, err := rx.Recv(make([][]byte, 1)); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if s, err := rx.Stats(); err != nil || s.Dropped == 0 || s.Received != uint64(len(held)) {
		t.Errorf("%+v, %v", s, err)
	}
}

// Frames alone, up to the longest, cross between all drivers; those in datagrams reach only who takes them.
func TestSuperAlone(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	a, b := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindAlone})
	if InDatagram(header(b, a, 50)) || InDatagram(nil) {
		t.Error("a frame alone is taken for a datagram")
	}
	for _, way := range [][2]Driver{{a, b}, {b, a}} {
		frames, want := stream(way[0], way[1], 5, 9000+HeaderLen, 60)
		for i := range frames {
			frames[i].Joined = false
		}
		sendFrames(t, way[0], frames)
		checkFrames(t, receive(t, way[1], len(want)), want)
	}
	frames, _ := stream(a, b, 5, 1000, 60)
	sendFrames(t, a, frames)
	if n, err := b.Recv(make([][]byte, 1)); n != 0 || err != nil {
		t.Errorf("%s received %d datagrams, %v", b.Info().Kind, n, err)
	}
	if _, err := Open("a0", Options{Kind: KindUDP, EtherType: EtherTypeAll}); err == nil {
		t.Error("opened for every EtherType")
	}
}

// An interface whose frames somebody forwards or filters before they get to the host hears datagrams of every length,
// or none: what passes when a path is asked is what passes later.
func TestSuperBehindBridge(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	must(t, netlink.LinkSetMaster(link(t, "b0"), bridge))
	setUp(t, "br0")
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	for _, n := range []int{1, 3, 7} {
		frames, want := stream(tx, rx, n, longest(tx), longest(tx))
		sendFrames(t, tx, frames)
		checkFrames(t, receive(t, rx, len(want)), want)
	}
}

// No two sessions have both the port and the label of the datagrams in common, by which the kernel merges.
func TestSuperFlowsDiffer(t *testing.T) {
	seen := map[[2]uint32]uint32{}
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range uint32(50_000) {
		for _, session := range []uint32{i, i << 14, i << 28, rng.Uint32()} {
			var o outer
			o.fill(&flow{session: session}, 100, 100)
			h := o[vnetLen:]
			key := [2]uint32{binary.BigEndian.Uint32(h[HeaderLen:]), uint32(binary.BigEndian.Uint16(h[atSourcePort:]))}
			if other, ok := seen[key]; ok && other != session {
				t.Fatalf("sessions %#x and %#x look alike: %#x", session, other, key)
			}
			if seen[key] = session; key[0]>>20 != 0x600 || key[1] < 0xC000 {
				t.Fatalf("session %#x: %#x", session, key)
			}
		}
	}
}

func TestSuperRelease(t *testing.T) {
	for release, ok := range map[string]bool{"6.2.0": true, "6.18.44-generic": true, "7.0": true, "6.1.99": false,
		"5.15.0-100": false, "4.19": false, "own": true} {
		if err := superRelease(release); (err == nil) != ok {
			t.Errorf("%s: %v", release, err)
		}
	}
}

// A driver that is closed while it still holds frames of a super-frame hands out none of them, for their memory is
// gone.
func TestSuperCloseHolding(t *testing.T) {
	namespace(t)
	veth(t, 9000)
	tx, rx := open(t, "a0", Options{Kind: KindUDP}), open(t, "b0", Options{Kind: KindUDP})
	frames, _ := stream(tx, rx, 7, 1000, 1000)
	sendFrames(t, tx, frames)
	receive(t, rx, 1)
	must(t, rx.Close())
	for range 2 {
		if n, err := rx.Recv(make([][]byte, 4)); n != 0 || !errors.Is(err, ErrClosed) {
			t.Fatalf("Recv after Close: %d, %v", n, err)
		}
	}
}

func FuzzOpenSuper(f *testing.F) {
	var o outer
	o.init([]byte{2, 0, 0, 0, 0, 1}, 1)
	o.fill(&flow{}, 100, 250)
	f.Add(o[:vnetLen], slices.Concat(o[vnetLen:], make([]byte, 250)))
	o.fill(&flow{}, 100, 100)
	f.Add(o[:vnetLen], slices.Concat(o[vnetLen:], make([]byte, 100)))
	f.Fuzz(func(t *testing.T, vnet, super []byte) {
		frames, step := openSuper(vnet, super)
		if frames == nil {
			return
		}
		if step < HeaderLen || step > len(frames) || len(frames) > len(super)-OuterLen || cap(frames) != len(frames) {
			t.Fatalf("%d bytes in steps of %d, of %d", len(frames), step, len(super))
		}
	})
}
