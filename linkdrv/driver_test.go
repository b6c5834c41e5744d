package linkdrv

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/vishvananda/netlink"
)

var allMTUs = []int{1500, 9000, 65535}

// TestFrames sends frames of all lengths and gatherings and expects every byte of them, in order, several ring laps.
func TestFrames(t *testing.T) {
	kinds(t, allMTUs, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		rng := rand.New(rand.NewPCG(1, uint64(mtu)))
		batch := min(SendBatch, rx.Info().RxSlots/2) // the batch before is held until the next Recv
		laps := 3*rx.Info().RxSlots/batch + 1
		for range min(laps, 30) {
			frames, want := randomFrames(rng, tx, rx, batch, tx.Info().MTU)
			n, err := tx.Send(frames)
			if n != len(frames) || err != nil {
				t.Fatalf("sent %d of %d: %v", n, len(frames), err)
			}
			for i, got := range receive(t, rx, len(frames)) {
				if !bytes.Equal(got, want[i]) {
					t.Fatalf("frame %d: %d bytes arrived, %d sent, or they differ", i, len(got), len(want[i]))
				}
			}
		}
		s, err := rx.Stats()
		if err != nil || s.Dropped != 0 || s.Truncated != 0 || s.Received == 0 {
			t.Errorf("receiver: %+v, %v", s, err)
		}
		if s, err := tx.Stats(); err != nil || s.Sent == 0 || s.Received != 0 {
			t.Errorf("sender must not receive its own frames: %+v, %v", s, err)
		}
	})
}

// randomFrames makes a batch, the first frame of which is as long as the MTU allows and the second as short as
// possible.
func randomFrames(rng *rand.Rand, tx, rx Driver, count, mtu int) (frames []TxFrame, want [][]byte) {
	fill := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for i := range count {
		n := rng.IntN(mtu + 1)
		switch i {
		case 0:
			n = mtu
		case 1:
			n = 0
		}
		head := rng.IntN(min(n, 64) + 1)
		bulk := rng.IntN(n - head + 1)
		f := TxFrame{Head: append(header(tx, rx, 0), fill(head)...), Bulk: fill(bulk), Tail: fill(n - head - bulk),
			Joined: i%3 > 0 && n+HeaderLen <= longest(tx)}
		frames = append(frames, f)
		want = append(want, bytes.Join([][]byte{f.Head, f.Bulk, f.Tail}, nil))
	}
	return frames, want
}

// TestPayloadAlignment: byte 78 of a frame, where bulk payload starts, lies on a cache line.
func TestPayloadAlignment(t *testing.T) {
	kinds(t, allMTUs, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		f := []TxFrame{{Head: header(tx, rx, 200), Joined: true}}
		dst := make([][]byte, 1)
		for range 40 {
			if n, err := tx.Send(f); n != 1 {
				t.Fatal(n, err)
			}
			await(t, rx, 2000)
			if n, err := rx.Recv(dst); n != 1 {
				t.Fatal(n, err)
			}
			if a := address(dst[0][78:]) % cacheLine; a != 0 {
				t.Fatalf("payload starts %d bytes past a cache line", a)
			}
		}
	})
}

// TestBadFrames: only the offending frame is discarded, and the caller learns which it was.
func TestBadFrames(t *testing.T) {
	for _, tc := range []struct {
		name string
		bad  TxFrame
		want error
	}{
		{"too long", TxFrame{Head: make([]byte, 14), Bulk: make([]byte, 1501)}, ErrTooLong},
		{"no header", TxFrame{Head: make([]byte, 13), Bulk: make([]byte, 100)}, ErrBadFrame},
		{"empty", TxFrame{}, ErrBadFrame},
	} {
		for _, at := range []int{0, 3, 9} {
			t.Run(tc.name, func(t *testing.T) {
				namespace(t)
				veth(t, 1500)
				tx, rx := open(t, "a0", Options{}), open(t, "b0", Options{})
				frames := make([]TxFrame, 10)
				for i := range frames {
					frames[i].Head = header(tx, rx, 46)
					frames[i].Head[HeaderLen] = byte(i)
				}
				copy(tc.bad.Head, frames[0].Head)
				frames[at] = tc.bad
				n, err := tx.Send(frames)
				if n != at+1 || !errors.Is(err, tc.want) {
					t.Fatalf("Send = %d, %v; want %d, %v", n, err, at+1, tc.want)
				}
				if k, err := tx.Send(frames[n:]); k != len(frames)-n || err != nil {
					t.Fatalf("the rest: %d, %v", k, err)
				}
				for i, f := range receive(t, rx, 9) {
					if want := i + min(1, max(0, i-at+1)); int(f[HeaderLen]) != want {
						t.Errorf("frame %d arrived in place of %d", f[HeaderLen], want)
					}
				}
				if s, _ := tx.Stats(); s.Sent != 9 || s.Refused != 1 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestOverflow: frames beyond the receive side's capacity are counted as dropped by the kernel, those before are
// intact.
func TestOverflow(t *testing.T) {
	each(t, frameKinds, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind, RingSlots: 64})
		frames := make([]TxFrame, 512)
		for i := range frames {
			frames[i] = TxFrame{Head: header(tx, rx, 0), Bulk: make([]byte, mtu)}
			frames[i].Bulk[0], frames[i].Bulk[1] = byte(i>>8), byte(i)
		}
		if n, err := tx.Send(frames); n != len(frames) || err != nil {
			t.Fatal(n, err)
		}
		s, err := rx.Stats()
		if err != nil || s.Dropped == 0 || s.Received+s.Dropped != uint64(len(frames)) {
			t.Fatalf("%+v, %v", s, err)
		}
		if slots := uint64(rx.Info().RxSlots); s.Received < slots || s.Received > 3*slots {
			t.Errorf("%d frames fitted into %d slots", s.Received, slots)
		}
		for i, f := range receive(t, rx, int(s.Received)) {
			if got := int(f[14])<<8 | int(f[15]); got != i {
				t.Fatalf("frame %d in place of %d", got, i)
			}
		}
	})
}

// TestHeldSlots: what Recv returned is not overwritten before the next Recv, even when the ring overflows meanwhile.
func TestHeldSlots(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind, RingSlots: 32})
		mtu = tx.Info().MTU
		mark := func(b byte) []TxFrame {
			f := make([]TxFrame, SendBatch)
			for i := range f {
				f[i] = TxFrame{Head: header(tx, rx, 0), Bulk: bytes.Repeat([]byte{b}, mtu)}
			}
			return f
		}
		tx.Send(mark(1)[:8])
		dst := make([][]byte, 8)
		await(t, rx, 2000)
		if n, err := rx.Recv(dst); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		tx.Send(mark(2))
		for i, f := range dst {
			if bytes.Count(f[HeaderLen:], []byte{1}) != mtu {
				t.Fatalf("frame %d changed while held", i)
			}
		}
		if n, err := rx.Recv(nil); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := rx.Recv(dst[:1]); n != 1 || err != nil || dst[0][HeaderLen] != 2 {
			t.Fatal(n, err)
		}
	})
}

// TestFilter: other EtherTypes and frames for other hosts stay out, unless everything was asked for.
func TestFilter(t *testing.T) {
	each(t, frameKinds, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx := open(t, "a0", Options{Kind: kind})
		mine := open(t, "b0", Options{Kind: kind})
		all := open(t, "b0", Options{Kind: kind, EtherType: EtherTypeAll, Promiscuous: true})
		foreign, other, good := header(tx, mine, 46), header(tx, mine, 46), header(tx, mine, 46)
		foreign[5] ^= 1
		other[13] = 0xB6
		if n, err := tx.Send([]TxFrame{{Head: foreign}, {Head: other}, {Head: good}}); n != 3 {
			t.Fatal(n, err)
		}
		if got := receive(t, mine, 1); !bytes.Equal(got[0], good) {
			t.Errorf("received % x", got[0][:HeaderLen])
		}
		if s, _ := mine.Stats(); s.Received != 1 {
			t.Errorf("the filter let %d frames through, want 1", s.Received)
		}
		seen := 0
		for i := 0; seen < 3 && i < 50; i++ { // the kernel's own IPv6 chatter may come between
			f := receive(t, all, 1)[0]
			if bytes.Equal(f, foreign) || bytes.Equal(f, other) || bytes.Equal(f, good) {
				seen++
			}
		}
		if seen != 3 {
			t.Errorf("promiscuous: %d of 3 frames", seen)
		}
	})
}

// TestTruncated: frames that grew past the slots are counted, not delivered.
func TestTruncated(t *testing.T) {
	each(t, frameKinds, []int{1500}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		for _, name := range []string{"a0", "b0"} {
			must(t, netlink.LinkSetMTU(link(t, name), 9000))
		}
		tx.Send([]TxFrame{{Head: header(tx, rx, 9000)}, {Head: header(tx, rx, 50)}})
		if f := receive(t, rx, 1)[0]; len(f) != 64 {
			t.Errorf("%d bytes arrived, want the short frame", len(f))
		}
		if s, _ := rx.Stats(); s.Truncated != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestNoCarrier: while the peer's end is down there is no room, and no error.
func TestNoCarrier(t *testing.T) {
	kinds(t, []int{1500}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		must(t, netlink.LinkSetDown(link(t, "b0")))
		n, err := tx.Send([]TxFrame{{Head: header(tx, rx, 50)}})
		if n != 0 || err != nil {
			t.Errorf("Send = %d, %v; want 0, nil", n, err)
		}
		if s, _ := tx.Stats(); s.NoRoom != 1 {
			t.Errorf("%+v", s)
		}
	})
}
