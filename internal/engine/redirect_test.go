package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// Clause 15.2: whenever redirections are posted and ended, and however frames come, every byte of a write is in exactly
// one of the two places, and the owner is told in which.
func TestRedirect(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { testRedirect(t, seed) })
	}
}

// redirection is one of the test's.
type redirection struct {
	off, n int
	to     []byte
	region *regmem.Region
	over   bool
	st     engine.Status
	spans  [2]engine.Span
}

// unwritten is what memory of these tests holds before anything is written.
const unwritten = 0xCA

func testRedirect(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	o := rigOptions{links: 1 + int(seed%3), mtu: []int{1500, 9000}[seed%2], sealed: seed%5 == 0}
	if seed%4 == 0 && !o.sealed {
		o.shuffle = 78
	}
	r := newRig(t, o)
	c := r.connect(engine.DialOptions{})
	const size = 200_000
	mem, key := r.export(1, c[1], size, both)
	r.settle()
	for i := range mem {
		mem[i] = unwritten
	}
	var all []*redirection
	seen := len(r.n[1].events)
	look := func() { seen = ended(t, r, all, seen) }
	post := func() {
		n := 1 + rng.IntN(40_000)
		x := &redirection{off: rng.IntN(size - n), n: n, to: bytes.Repeat([]byte{unwritten}, n)}
		x.region = &regmem.Region{ID: 9, Mem: regmem.Wrap(x.to)}
		switch st := redirectTo(r.n[1].e, c[1], uint64(len(all)), key, uint64(x.off), x.to, x.region); st {
		case engine.OK:
			all = append(all, x)
		case engine.StatusTaken:
		default:
			t.Fatalf("a redirection: %v", st)
		}
	}
	for range rng.IntN(4) {
		post()
	}
	var held []flight
	r.pass = func(from int, f *flight) bool {
		if from == 1 {
			return true
		}
		look()
		switch k := rng.IntN(20); {
		case k == 0:
			post()
		case k == 1 && len(all) > 0:
			r.n[1].e.EndRedirect(c[1], uint64(rng.IntN(len(all))))
		case k < 4:
			return false
		case k < 8: // late: behind the others
			held = append(held, flight{link: f.link, b: bytes.Clone(f.b), joined: f.joined})
			return false
		case k < 10:
			for _, h := range held {
				r.give(1, h)
			}
			held = nil
		}
		return true
	}
	want := pattern(int(seed), size)
	for i := range want {
		want[i] &= 0x7f
	}
	for off, i := 0, 0; off < size; i++ {
		n := min(1+rng.IntN(60_000), size-off)
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(i), Local: want[off : off+n], Key: key,
			Off: uint64(off)})
		if off += n; off == size {
			r.must("all writes", 5*time.Second, r.all(0, i+1))
		}
	}
	for i := range all {
		r.n[1].e.EndRedirect(c[1], uint64(i))
	}
	look()
	checkRedirected(t, r, mem, want, all)
}

// ended notes which redirections have ended, from the event seen on, and returns how many events there were.
func ended(t *testing.T, r *rig, all []*redirection, seen int) int {
	r.poll(1)
	for ; seen < len(r.n[1].events); seen++ {
		if ev := r.n[1].events[seen]; ev.Kind == engine.EvRedirected {
			x := all[ev.Token]
			if x.over {
				t.Errorf("redirection %d ended twice", ev.Token)
			}
			x.over, x.st, x.spans = true, ev.Status, ev.Spans
		}
	}
	return seen
}

// checkRedirected judges that all redirections ended, and that what went through them and what did not make up what was
// written.
func checkRedirected(t *testing.T, r *rig, mem, want []byte, all []*redirection) {
	got, moved := bytes.Clone(mem), uint64(0)
	for i, x := range all {
		if !x.over || x.st != engine.OK || x.region.InFlight != 0 {
			t.Fatalf("redirection %d: over %v, %v, %d in flight", i, x.over, x.st, x.region.InFlight)
		}
		for _, s := range x.spans {
			at := got[x.off+int(s.Off):][:s.N]
			if notAllBlank(at, unwritten) {
				t.Errorf("redirection %d of %d bytes at %d: part of %+v is where it would be without", i, x.n, x.off, s)
			}
			copy(at, x.to[s.Off:][:s.N])
			moved += s.N
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("what was redirected and what was not do not make up what was written")
	}
	if n := r.n[1].e.Count.Placing.BytesRedirected; n != moved {
		t.Errorf("%d bytes redirected, %d counted", moved, n)
	}
}

func notAllBlank(b []byte, blank byte) bool { return len(bytes.Trim(b, string([]byte{blank}))) > 0 }

// A redirection stays within its owner's exports, and ends with the key and with the connection.
func TestRedirectEnds(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	other := r.connectTo("other", engine.DialOptions{})
	_, key := r.export(1, c[1], 4096, both)
	_, foreign := r.export(1, other[1], 4096, both)
	_, ro := r.export(1, c[1], 4096, regmem.RemoteRead)
	e, region := r.n[1].e, &regmem.Region{ID: 9}
	for _, x := range []struct {
		key     regmem.Key
		off     uint64
		n       int
		want    engine.Status
		meaning string
	}{
		{key, 0, 100, engine.OK, "the first"}, {key, 99, 10, engine.StatusTaken, "one that overlaps it"},
		{key, 100, 10, engine.OK, "one beside it"}, {key, 4090, 7, engine.StatusBounds, "one that reaches outside"},
		{key, ^uint64(0), 7, engine.StatusBounds, "one far outside"},
		{key, 300, 0, engine.StatusLimit, "one of nothing"},
		{foreign, 0, 10, engine.StatusOwner, "one of another connection's export"},
		{ro, 0, 10, engine.StatusPermission, "one of memory that nobody writes"},
		{5, 0, 10, engine.StatusKey, "no key"},
	} {
		if st := redirectTo(e, c[1], x.off, x.key, x.off, make([]byte, x.n), region); st != x.want {
			t.Errorf("%s: %v, want %v", x.meaning, st, x.want)
		}
	}
	for i := range 64 {
		st := redirectTo(e, c[1], 9, key, uint64(200+i), make([]byte, 1), region)
		if want := i < 62; (st == engine.OK) != want {
			t.Fatalf("redirection %d: %v", i+2, st)
		}
	}
	number, _ := e.Advertise(r.now, c[1], engine.Advert{Name: "m", Key: key, Size: 4096, Perm: both})
	_, key2 := r.export(1, c[1], 4096, both)
	r.n[1].grants.Revoke(key)
	e.Withdraw(r.now, c[1], key, number)
	if st := redirectTo(e, c[1], 7, key2, 0, make([]byte, 8), region); st != engine.OK {
		t.Fatalf("after the others ended: %v", st)
	}
	e.Abort(r.now, c[1], engine.StatusAborted)
	r.poll(1)
	ends := map[engine.Status]int{}
	for _, ev := range r.n[1].events {
		if ev.Kind == engine.EvRedirected {
			ends[ev.Status]++
		}
	}
	if ends[engine.StatusKey] != 64 || ends[engine.StatusAborted] != 1 || region.InFlight != 0 {
		t.Errorf("ends %v, %d in flight", ends, region.InFlight)
	}
}

func redirectTo(e *engine.Endpoint, c engine.ConnID, token uint64, key regmem.Key, off uint64, dst []byte,
	region *regmem.Region) engine.Status {
	return e.Redirect(c, &engine.Redirection{Token: token, Name: token, Key: key, Off: off, Dst: dst, Region: region})
}
