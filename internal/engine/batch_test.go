package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// A batch is short as long as the peer has no frames to work on, and then as long as what is in flight.
func TestBatchesGrowWithWhatIsInFlight(t *testing.T) {
	const least, most, slack = 32 << 10, 256 << 10, 9000 // about: the last frame may exceed it
	for _, o := range []rigOptions{{sealed: true}, {checksum: engine.ChecksumFull}, {checksum: engine.ChecksumHeader}} {
		o.mtu, o.profile, o.window = 8938, "paper", 128
		r := newRig(t, o)
		c := r.connect(engine.DialOptions{})
		_, key := r.export(1, c[1], 1<<20, both)
		r.settle()
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 1<<20)})
		var batch engine.Batches
		batch.Set(0, engine.NewBatch(128, 8938))
		flying := 0
		r.now = r.now.Add(time.Microsecond)
		for n := 0; r.n[0].e.PollTransmit(r.now, &batch) > 0; n++ {
			bytes := 0
			for _, f := range batch.All() {
				bytes += len(f.Head) + len(f.Bulk) + len(f.Tail)
			}
			batch.Reset()
			want := max(least, min(flying, most))
			if left := 1<<20 - flying; bytes > want+slack || bytes < min(want, left)-slack {
				t.Errorf("sealed %v, checksum %v: batch %d has %d bytes with %d in flight, want about %d", o.sealed,
					o.checksum, n, bytes, flying, want)
			}
			flying += bytes
		}
		if flying < 900_000 {
			t.Errorf("only %d bytes left", flying)
		}
	}
}

// Each link's frames go to its own batch. A full one ends the call, and the batch of a blocked link is left alone.
func TestEachLinkHasABatch(t *testing.T) {
	r := newRig(t, rigOptions{links: 2})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 1<<20, both)
	r.settle()
	var b engine.Batches
	of := []*engine.Batch{engine.NewBatch(3, 1500), engine.NewBatch(32, 1500)}
	for i := range of {
		b.Set(i, of[i])
	}
	e := r.n[0].e
	for token, blocked := range []bool{false, true} {
		e.SetLinkBlocked(0, blocked)
		if blocked {
			of[0].Frames = of[0].Frames[:2] // frames that wait for the link
		}
		var sent [2]int
		op := engine.Op{Kind: engine.OpWrite, Token: uint64(token + 1), Key: key, Local: make([]byte, 64<<10)}
		r.submit(0, c[0], op)
		for n := e.PollTransmit(r.now, &b); n > 0; n = e.PollTransmit(r.now, &b) {
			for link, f := range b.All() {
				if n--; frame.From(f.Head) != frame.Ether(macOf(0, link)) {
					t.Fatalf("a frame of another link is in the batch of link %d", link)
				}
				sent[link]++
				r.give(1, flight{link: link, b: f.AppendTo(nil)})
			}
			if n != 0 || len(of[0].Frames) > 3 {
				t.Errorf("%d frames are missing, and there are %d for 3 places", n, len(of[0].Frames))
			}
			b.Reset()
		}
		if (sent[0] == 0) != blocked || sent[1] == 0 || blocked && len(of[0].Frames) != 2 {
			t.Errorf("link 0 blocked %v: %v frames; %d wait", blocked, sent, len(of[0].Frames))
		}
		r.must("the write", 10*time.Second, func() bool { return len(r.n[0].done) > token })
	}
}

// A link that sends as fast as it can takes no more frames most times one looks: set-up frames wait for it, a bounded
// number, and make nobody look again and again meanwhile.
func TestSetupWaitsForBlockedLink(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		r := newRig(t, rigOptions{sealed: sealed})
		r.rest(20 * time.Millisecond)
		if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		start := r.now
		for k := 0; r.n[0].e.Count.Life.SessionsOpened == 0; k++ {
			r.n[1].e.SetLinkBlocked(0, k%4 != 0)
			if r.round(); r.now.Sub(start) > time.Millisecond {
				t.Fatalf("sealed %v: no session after %v", sealed, r.now.Sub(start))
			}
			r.now = r.now.Add(r.hop)
		}
		r.n[1].e.SetLinkBlocked(0, true)
		h := helloOf(0, 0, 1500, 1)
		h.Node = [8]byte{7: 9}
		in := wire.Init{Hello: h, Session: 7}
		for range 1000 {
			r.n[1].handle(r.now, 0, raw([6]byte{2, 7, 7, 7, 7, 7}, macOf(1, 0), wire.Header{Type: wire.TypeInit},
				in.AppendTo(nil)))
			r.take(1)
		}
		if n := r.n[1].e.TableSizes().Outbox; n == 0 || n > 100 {
			t.Errorf("sealed %v: %d frames wait", sealed, n)
		}
		if r.n[1].e.HandleTimeout(r.now); r.n[1].e.NextTimeout() <= r.now {
			t.Errorf("sealed %v: frames that cannot leave are looked at all the time", sealed)
		}
	}
}
