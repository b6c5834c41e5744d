package engine_test

import (
	"bytes"
	"testing"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// Told to copy, a sender refers to no byte of its memory; otherwise to all of a large write. What arrives is the same,
// shuffled or not, with and without something behind the payload.
func TestCopySend(t *testing.T) {
	for _, o := range []rigOptions{{mtu: 9000}, {mtu: 9000, copySend: true}, {mtu: 1500, copySend: true},
		{mtu: 9000, copySend: true, shuffle: 78}} {
		r := newRig(t, o)
		c := r.connectTo("s", engine.DialOptions{})
		const n = 100_003
		local, mem := pattern(1, n), make([]byte, n+100)
		key, err := r.n[1].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem)}, uint64(c[1]), both, 0, n+100)
		if err != nil {
			t.Fatal(err)
		}
		r.settle()
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key, Off: 3, Local: local})
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 2, Key: key, Off: n + 10, Local: local[:40]})
		referred := 0
		low := addressOf(local)
		for len(r.n[0].done) < 2 {
			for i := range r.n {
				x := r.n[i]
				if x.e.NextTimeout() <= r.now {
					x.e.HandleTimeout(r.now)
				}
				for x.e.PollTransmit(r.now, x.batch) > 0 {
					for link, f := range x.batch.All() {
						if len(f.Bulk) > 0 && addressOf(f.Bulk)-low < n {
							referred += len(f.Bulk)
						}
						r.give(1-i, flight{link: link, b: bytes.Join([][]byte{f.Head, f.Bulk, f.Tail}, nil)})
					}
					x.batch.Reset()
				}
				r.poll(i)
			}
			r.now = r.now.Add(r.hop)
		}
		if !bytes.Equal(mem[3:3+n], local) || !bytes.Equal(mem[n+10:n+50], local[:40]) {
			t.Errorf("%+v: what arrived differs", o)
		}
		if o.copySend && referred > 0 || !o.copySend && referred < n {
			t.Errorf("%+v: frames refer to %d bytes of the sender's memory", o, referred)
		}
	}
}
