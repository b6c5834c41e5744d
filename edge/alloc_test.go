//go:build !race

package edge

import (
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/lab"
)

// Not under the race detector, where sync.Pool forgets on purpose.
func TestZeroAllocations(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			ctx := testContext(t)
			p := newDuo(t, m.Cfg, 1<<16)
			buf := make([]byte, 1000)
			ws, ops := make([]*Work, 4), make([]Op, 4)
			for i := range ws {
				ws[i] = &Work{Kind: Read, Local: p.local, Len: 64, Remote: p.remote, Op: &ops[i]}
			}
			for name, f := range map[string]func(){
				"Post, Wait, Err, WaitNotify": func() {
					op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, Len: 64, Remote: p.remote,
						Flags: Notify})
					must(t, err)
					must(t, op.Wait(ctx))
					must(t, op.Err())
					_, err = p.in.WaitNotify(ctx)
					must(t, err)
				},
				"Post, Done, WaitNotify": func() {
					op, err := p.out.Post(ctx, &Work{Kind: Write, Inline: buf[:8], Remote: p.remote, Flags: Notify})
					must(t, err)
					_, err = p.in.WaitNotify(ctx)
					must(t, err)
					for !op.Done() {
						runtime.Gosched()
					}
				},
				"Post of several, WaitAll": func() {
					_, err := p.out.Post(ctx, ws...)
					must(t, err)
					must(t, WaitAll(ctx, ops))
				},
				"WriteAt, ReadAt": func() {
					_, err := p.remote.WriteAtContext(ctx, buf, 5)
					must(t, err)
					_, err = p.remote.ReadAtContext(ctx, buf, 5)
					must(t, err)
				},
			} {
				f()
				if n := testing.AllocsPerRun(300, f); n != 0 {
					t.Errorf("%s: %v allocations per run", name, n)
				}
			}
		})
	}
}

// seldomHello has a host say Hello as often as in production: each takes a buffer.
func seldomHello(c *config.Config) { c.HelloTime = time.Second }

// wholeTransports are ways to have two Devices that reach each other.
func wholeTransports() map[string]func(t *testing.T, f *Fabric) (a, b *Device) {
	private, public := [2]string{}, [2]string{}
	for i := range private {
		private[i], public[i] = newKey()
	}
	return map[string]func(t *testing.T, f *Fabric) (a, b *Device){
		"daemons": func(t *testing.T, f *Fabric) (a, b *Device) {
			return newHost(t, f, "a", seldomHello).open(Config{}), newHost(t, f, "b", seldomHello).open(Config{})
		},
		"daemons, encrypted": func(t *testing.T, f *Fabric) (a, b *Device) {
			dir := t.TempDir()
			hosts := [2]*testHost{}
			for i, name := range []string{"a", "b"} {
				hosts[i] = newHost(t, f, name, func(c *config.Config) {
					seldomHello(c)
					c.Security, c.KeyFile = config.Encrypted, dir+"/"+name
					must(t, os.WriteFile(c.KeyFile, []byte(private[i]+"\n"), 0o600))
					c.Peers = []config.Peer{{Name: []string{"b", "a"}[i], Key: public[1-i]}}
				})
			}
			return hosts[0].open(Config{}), hosts[1].open(Config{})
		},
		"embedded": func(t *testing.T, f *Fabric) (a, b *Device) {
			a, err := f.Open("a")
			must(t, err)
			b, err = f.Open("b")
			must(t, err)
			return a, b
		},
		"embedded, encrypted": func(t *testing.T, f *Fabric) (a, b *Device) {
			a, err := f.OpenConfig(t.Context(), "a",
				encrypted(Embedded{Key: private[0], Peers: map[string]string{"b": public[1]}}))
			must(t, err)
			b, err = f.OpenConfig(t.Context(), "b",
				encrypted(Embedded{Key: private[1], Peers: map[string]string{"a": public[0]}}))
			must(t, err)
			return a, b
		},
	}
}

// Everything between two applications at once, threads that nobody sees included: clients, daemons or embedded
// transports, engines and sessions, sealed and not.
func TestWholeTransportZeroAllocations(t *testing.T) {
	for name, open := range wholeTransports() {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			f := NewFabric()
			t.Cleanup(func() { f.Close() })
			a, b := open(t, f)
			out, in := pairOn(t, ctx, a, b, "s")
			r, err := b.Register(1 << 20)
			must(t, err)
			_, err = r.Export(in, "mem", RemoteRead|RemoteWrite, 0, 1<<20)
			must(t, err)
			remote, err := out.Import(ctx, "mem")
			must(t, err)
			local, err := a.Register(1 << 20)
			must(t, err)
			works := []Work{
				{Kind: Write, Local: local, Len: 8, Remote: remote, Flags: Notify},
				{Kind: Write, Local: local, Len: 100_000, Remote: remote, Flags: Notify},
				{Kind: Read, Local: local, Len: 8, Remote: remote},
				{Kind: Read, Local: local, Len: 100_000, Remote: remote},
			}
			round := func() {
				for i := range works {
					op, err := out.Post(ctx, &works[i])
					must(t, err)
					must(t, op.Wait(ctx))
					must(t, op.Err())
					if works[i].Flags&Notify != 0 {
						_, err := in.WaitNotify(ctx)
						must(t, err)
					}
				}
			}
			// Less than one for ten operations and some hundred frames: a hello a second for each link is allowed its
			// buffer. Queues and pools, those of the link in memory too, grow whenever a burst is longer than any
			// before, as on a busy machine, so the best of some tries tells.
			const rounds, tries = 10, 20
			least := math.Inf(1)
			for range tries {
				if least = min(least, testing.AllocsPerRun(10, func() {
					for range rounds {
						round()
					}
				})); least < rounds*float64(len(works))/10 {
					return
				}
			}
			t.Errorf("%v allocations in %d operations", least, rounds*len(works))
		})
	}
}

// Nothing is allocated for a shuffled frame, whether its pages are exchanged (writes of 512 KiB) or it is copied.
func TestShuffledZeroAllocations(t *testing.T) {
	ctx := testContext(t)
	p := newCopyPair(t, ctx, "shuffle", lab.Faults{})
	for _, size := range []int{512 << 10, 100_000} {
		w := Work{Kind: Write, Local: p.local, Len: size, Remote: p.remote, Flags: Notify}
		once := func() {
			op, err := p.out.Post(ctx, &w)
			must(t, err)
			must(t, op.Wait(ctx))
			_, err = p.in.WaitNotify(ctx)
			must(t, err)
		}
		for range 50 {
			once()
		}
		// Each is 13 frames or more. What goes on besides, as a hello a second, allocates too, and more often in a try
		// that takes long: tries are brief, and the best in which pages were exchanged, or were not, tells.
		const ops, tries, fewest = 2, 200, 5
		was, least, exchanges := p.counters(ctx, p.server), math.Inf(1), size >= 256<<10
		for k := 0; k < fewest || k < tries && least > 0; k++ {
			before := p.counters(ctx, p.server)
			n := testing.AllocsPerRun(1, func() {
				for range ops {
					once()
				}
			})
			if exchanged := p.counters(ctx, p.server)["exchanges"] > before["exchanges"]; exchanged == exchanges {
				least = min(least, n)
			}
		}
		if least > 0 {
			t.Errorf("%v allocations in %d writes of %d bytes, with pages exchanged: %v", least, ops, size, exchanges)
		}
		now := p.counters(ctx, p.server)
		shuffled, exchanged := now["frames_shuffled"]-was["frames_shuffled"], now["exchanges"]-was["exchanges"]
		if shuffled < uint64(2*fewest*ops*size/8192) || (exchanged > 0) != (size >= 256<<10) {
			t.Errorf("writes of %d bytes: %d frames shuffled, %d runs exchanged", size, shuffled, exchanged)
		}
	}
}
