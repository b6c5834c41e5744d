package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// pageRig is node 0 with a write of 1 MiB to memory of node 1 whose pages can be exchanged and whose link announced H.
func pageRig(t *testing.T, checksum engine.Checksum) (r *rig, s *scatterer, exchanger *remap.Exchanger,
	mem, data []byte, frames [][]byte) {
	exchanger = &remap.Exchanger{}
	r = newRig(t, rigOptions{mtu: 9000, shuffle: wire.HeadLen, checksum: checksum,
		exchangers: [2]*remap.Exchanger{nil, exchanger}})
	c := r.connect(engine.DialOptions{})
	shared, err := remap.NewShared(1<<20, remap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exchanger.Add(shared.Space)
	t.Cleanup(func() { exchanger.Remove(shared.Space); shared.Close() })
	mem, data = shared.Bytes(), pattern(3, 1<<20)
	key, err := r.n[1].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem)}, uint64(c[1]), both, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
	s = newScatterer(r, 1)
	s.pages = true
	return r, s, exchanger, mem, data, underWay(r, c[0], key, 1, data)
}

// Clause 2.6, paper 2.3.2: frames carry whole pages of the destination, arrive in pages of the pool, and those change
// places with the region's, all but what arrived before anything was forecast.
func TestPagesExchanged(t *testing.T) {
	for _, sum := range []engine.Checksum{engine.ChecksumHeader, engine.ChecksumFull} {
		r, s, _, mem, data, frames := pageRig(t, sum)
		for len(frames) > 0 {
			for _, f := range frames {
				if b := bulkOf(t, f); b.Bulk.Len != 8192 || b.Shuffle != wire.HeadLen || b.Bulk.Place%4096 != 0 {
					t.Fatalf("a frame of %d bytes at %d, shuffled by %d", b.Bulk.Len, b.Bulk.Place, b.Shuffle)
				}
			}
			s.give(r, 0, frames[:1], 32)
			s.give(r, 0, frames[1:], 32)
			for _, f := range r.take(1) {
				r.n[0].e.Handle(r.now, f.link, engine.Whole(f.b))
			}
			frames = frames[:0]
			for _, f := range r.take(0) {
				if carries(f.b, wire.KindWrite) {
					frames = append(frames, f.b)
				}
			}
		}
		r.must("the write", time.Second, r.all(0, 1))
		n := &r.n[1].e.Count
		if !bytes.Equal(mem, data) || n.Placing.FramesShuffled != 128 || n.Placing.FramesExchanged < 110 ||
			n.Placing.Exchanges == 0 {
			t.Errorf("memory is right: %v; %d frames shuffled, %d exchanged in %d runs, %d received in pages",
				bytes.Equal(mem, data), n.Placing.FramesShuffled, n.Placing.FramesExchanged, n.Placing.Exchanges,
				s.placed)
		}
	}
}

// A frame that is damaged on its way, or says another H, or none, or has no tail left for the bytes that its headers
// displace, is refused while it can still be put together, and judged as any other: nothing of it is received.
func TestPagesDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(f []byte) []byte
		sum  bool // it is the payload's checksum that shows it
		laid bool // nothing is damaged: a frame says itself how it is laid out
	}{
		"the pages":           {func(f []byte) []byte { f[5000]++; return f }, true, false},
		"what follows them":   {func(f []byte) []byte { f[8192+10]++; return f }, true, false},
		"the header":          {func(f []byte) []byte { f[wire.EthLen+9]++; return f }, false, false},
		"another H":           {func(f []byte) []byte { return again(t, f, 40) }, false, true},
		"not shuffled at all": {func(f []byte) []byte { return again(t, f, 0) }, false, true},
		"cut short":           {func(f []byte) []byte { return f[:8192+20] }, false, false},
	} {
		checksum := engine.ChecksumFull
		if c.laid {
			checksum = engine.ChecksumHeader // so that it does not help
		}
		r, s, exchanger, mem, data, frames := pageRig(t, checksum)
		s.give(r, 0, frames[:1], 32)
		got, n := r.n[1].e.Count, &r.n[1].e.Count
		bad := c.harm(bytes.Clone(frames[1]))
		s.give(r, 0, [][]byte{bad}, 32)
		if s.placed != 0 || s.joined != 1 {
			t.Errorf("%s: %d frames in pages, %d joined", name, s.placed, s.joined)
		}
		if c.laid {
			exchanger.SettleAll()
			if n.Traffic.PayloadReceived != got.Traffic.PayloadReceived+8192 || !bytes.Equal(mem[:2*8192],
				data[:2*8192]) {
				t.Errorf("%s: %d bytes received, %d before, or others than were sent", name, n.Traffic.PayloadReceived,
					got.Traffic.PayloadReceived)
			}
			continue
		}
		if sum := n.Reject.RejectedPayloadSum-got.Reject.RejectedPayloadSum == 1; sum != c.sum ||
			n.Traffic.PayloadReceived != got.Traffic.PayloadReceived {
			t.Errorf("%s: refused for its payload: %v; %d bytes received, %d before", name, sum,
				n.Traffic.PayloadReceived,
				got.Traffic.PayloadReceived)
		}
		s.give(r, 0, frames[1:2], 32) // and the right one is received after all
		if n.Traffic.PayloadReceived != got.Traffic.PayloadReceived+8192 || s.placed != 1 {
			t.Errorf("%s: the right frame is not received afterwards", name)
		}
	}
}

// again lays out a shuffled frame as by a sender that shuffles past H bytes.
func again(t *testing.T, frame []byte, H int) []byte {
	f := bulkOf(t, frame)
	payload := append(bytes.Clone(f.Payload[len(f.Payload)-wire.HeadLen:]), f.Payload[:len(f.Payload)-wire.HeadLen]...)
	first, second := remap.SendOrder(payload, H)
	laid := bytes.Join([][]byte{first, second}, nil)
	head := bytes.Clone(frame[:wire.HeadLen])
	f.Bulk.Sum = wire.Sum(0, laid)
	if f.Shuffle = uint16(H); H == 0 {
		f.Flags &^= wire.FlagShuffled
	}
	wire.PutBulk(head[wire.EthLen+wire.FixedLen:], &f.Bulk)
	wire.Finish(head[wire.EthLen:], &f.Header, f.Tail)
	return bytes.Join([][]byte{head, laid, f.Tail}, nil)
}

// Clause 10.5: sealed frames are opened into other memory than they arrived in, so they are neither shuffled nor cut at
// page boundaries, whatever the receiver announced.
func TestPagesSealed(t *testing.T) {
	r := newRig(t, rigOptions{mtu: 6000, shuffle: wire.HeadLen, sealed: true})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 100_000, both)
	r.settle()
	data := pattern(1, 100_000)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: data})
	before := r.n[0].e.Count.Traffic.DataFramesSent
	r.must("the write", time.Second, r.all(0, 1))
	if n := r.n[0].e.Count.Traffic.DataFramesSent - before; n > 19 { // 25 of a page each
		t.Errorf("%d frames for 100,000 bytes", n)
	}
	if n := r.n[1].e.Count.Placing.FramesShuffled; n != 0 || !bytes.Equal(mem, data) {
		t.Errorf("%d frames shuffled; memory is right: %v", n, bytes.Equal(mem, data))
	}
}
