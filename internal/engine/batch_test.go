package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// A batch of sealed or summed frames is short as long as the peer has nothing to open, and then as long as what is in flight.
func TestBatchesGrowWithWhatIsInFlight(t *testing.T) {
	const least, most, frame = 32 << 10, 256 << 10, 9000 // about: the last frame may exceed it
	for _, o := range []rigOptions{{sealed: true}, {checksum: engine.ChecksumFull}, {checksum: engine.ChecksumHeader}} {
		o.mtu, o.profile, o.window = 8938, "paper", 128
		r := newRig(t, o)
		c := r.connect(engine.DialOptions{})
		_, key := r.export(1, c[1], 1<<20, both)
		r.settle()
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Local: make([]byte, 1<<20)})
		batch, flying := engine.NewBatch(128, 8938), 0
		r.now = r.now.Add(time.Microsecond)
		for n := 0; r.n[0].e.PollTransmit(r.now, batch) > 0; n++ {
			bytes := 0
			for _, f := range batch.Frames {
				bytes += len(f.Head) + len(f.Bulk) + len(f.Tail)
			}
			batch.Reset()
			want := max(least, min(flying, most))
			if o.checksum == engine.ChecksumHeader && !o.sealed {
				want = most
			}
			if left := 1<<20 - flying; bytes > want+frame || bytes < min(want, left)-frame {
				t.Errorf("sealed %v, checksum %v: batch %d has %d bytes with %d in flight, want about %d", o.sealed, o.checksum, n, bytes, flying, want)
			}
			flying += bytes
		}
		if flying < 900_000 {
			t.Errorf("only %d bytes left", flying)
		}
	}
}
