package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// waiting is node 0 with n dials to a node that is authorised and off.
func waiting(t testing.TB, n int) *rig {
	r := newRig(t, rigOptions{sealed: true, maxDials: n})
	r.n[1].e.RemoveLink(r.now, 0)
	for k := range n {
		if _, err := r.n[0].e.Dial(r.now, "node1", fmt.Sprint("service ", k),
			engine.DialOptions{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// hello is a Hello that anybody can forge: of the node that is dialled, or of a stranger of its name.
func hello(stranger bool, shard, last uint8) []byte {
	h := helloOf(1, 0, 1500, 1)
	h.Shard, h.Last = shard, last
	if stranger {
		h.Node[0]++
	}
	return raw([6]byte{2, 6, 6, 6, 6, 6}, [6]byte{255, 255, 255, 255, 255, 255}, wire.Header{Type: wire.TypeHello},
		h.AppendTo(nil))
}

// Eleven thousand dials wait for a node that is off. However many Hellos are forged in its name, each costs the same
// work; a dial is looked at when it is given to the session, and when it ends.
func TestPendingDials(t *testing.T) {
	const dials, hellos, most = 11_000, 2_000, 2 * wire.MaxShards
	r := waiting(t, dials)
	e := r.n[0].e
	if _, err := e.Dial(r.now, "node1", "one more", engine.DialOptions{}); !errors.Is(err, engine.ErrDials) {
		t.Fatalf("one more dial: %v", err)
	}
	work := func(what string, f []byte, limit uint64) {
		t.Helper()
		wishes, looked := e.DialWork()
		for range hellos {
			r.give(0, flight{link: 0, b: f})
		}
		w, l := e.DialWork()
		if w-wishes > hellos*most || l-looked > limit {
			t.Errorf("%s: %d wishes and %d dials looked at for %d Hellos, want at most %d and %d", what, w-wishes,
				l-looked, hellos, hellos*most, limit)
		}
	}
	work("a stranger of that name", hello(true, 0, 0), 0)
	work("another shard of the node", hello(false, 3, 5), 0)
	work("the node", hello(false, 0, 0), dials)
	work("the node again", hello(false, 0, 0), 0)
	if n := e.TableSizes().Dials; n != dials {
		t.Fatalf("%d dials wait", n)
	}
	r.now = r.now.Add(2 * time.Minute)
	_, looked := e.DialWork()
	e.HandleTimeout(r.now)
	if _, now := e.DialWork(); now-looked > 64 {
		t.Errorf("%d dials ended in one go", now-looked)
	}
	for range dials {
		e.HandleTimeout(r.now)
		r.poll(0)
	}
	if z := e.TableSizes(); z.Dials != 0 || z.Live != 0 || len(r.n[0].closed) != dials {
		t.Errorf("%+v, %d closed", z, len(r.n[0].closed))
	}
}

// Dials to nodes that nobody heard have everybody greeted, but not each of them.
func TestDialsGreetSeldom(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	r.n[1].e.RemoveLink(r.now, 0)
	r.rest(3 * time.Second)
	sent := 0
	r.pass = func(from int, f *flight) bool {
		if from == 0 && typeOf(f.b) == wire.TypeHello {
			sent++
		}
		return true
	}
	for range 500 {
		if _, err := r.n[0].e.Dial(r.now, "node1", "s", engine.DialOptions{}); err != nil {
			t.Fatal(err)
		}
		r.rest(2 * time.Millisecond)
	}
	if sent > 60 {
		t.Errorf("%d Hellos for 500 dials in a second", sent)
	}
}

// BenchmarkHelloDials is what a forged Hello costs beside dials that wait.
func BenchmarkHelloDials(b *testing.B) {
	for _, n := range []int{1, 11_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := waiting(b, n)
			f := hello(false, 0, 0)
			r.give(0, flight{link: 0, b: f})
			for b.Loop() {
				r.n[0].e.Handle(r.now, 0, engine.Whole(f))
			}
		})
	}
}
