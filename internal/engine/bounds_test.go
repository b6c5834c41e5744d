package engine_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// absent is memory that does not come, though others' does; but for one page, which does when it is here.
type absent struct {
	asked int
	one   bool // all of it is page 0
	here  bool
}

func (b *absent) Touch(off, n, _ uint64, _ regmem.Site) (uint64, bool) {
	if b.one {
		off = 0
	}
	return off, n == 0 || b.here
}

func (b *absent) Ask(uint64) (resident, busy bool) { b.asked++; return false, true }

// parkAll has node 0 write to memory of node 1 that does not come, ops times on each of conns connections.
func parkAll(r *rig, conns, ops int, one bool) *absent {
	r.t.Helper()
	b, n := &absent{one: one}, 0
	for range conns {
		c := r.connect(engine.DialOptions{})
		region := &regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, 8*ops)), Back: b}
		key, err := r.n[1].grants.Grant(region, uint64(c[1]), both, 0, uint64(8*ops))
		if err != nil {
			r.t.Fatal(err)
		}
		for i := range ops {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(n), Key: key, Off: uint64(8 * i),
				Inline: 8})
			n++
		}
	}
	r.must("all to wait", time.Second, func() bool { return r.n[1].e.Holding().Parked == conns*ops })
	return b
}

// What very many operations wait for is asked for a part at a time, all of it in each tick, and nobody goes through
// what others wait for.
func TestParkedAreLookedAtInParts(t *testing.T) {
	const conns, ops, most = 10, 600, 2048
	r := newRig(t, rigOptions{})
	b := parkAll(r, conns, ops, false)
	e := r.n[1].e
	r.now = r.now.Add(time.Millisecond)
	for end := r.now.Add(250 * time.Millisecond); r.now < end; r.now = r.now.Add(time.Millisecond) {
		before := b.asked
		r.take(1)
		if n := b.asked - before; n > most {
			t.Fatalf("%d pages are asked for at once, of %d that wait", n, conns*ops)
		}
	}
	if b.asked < 2*conns*ops-most || b.asked > 3*conns*ops {
		t.Errorf("%d pages are asked for in two ticks, of %d that wait", b.asked, conns*ops)
	}
	other, before := &absent{}, b.asked
	if n := testing.AllocsPerRun(1, func() { e.Gone(r.now, other); e.AskAgain(other) }); n > 0 || b.asked > before {
		t.Errorf("%v allocations, %d pages asked for, where nothing waits for the memory that goes", n, b.asked-before)
	}
	e.AskAgain(b)
	if e.HandleTimeout(r.now); b.asked == before || b.asked > before+most {
		t.Errorf("%d pages were asked for again", b.asked-before)
	}
}

// Where very many wait for one page they are tried again a part at a time when it comes, and all of them soon.
func TestManyWaitForOnePage(t *testing.T) {
	const conns, ops, most = 3, 1000, 256
	r := newRig(t, rigOptions{})
	b := parkAll(r, conns, ops, true)
	e := r.n[1].e
	b.here = true
	for left, first := conns*ops, true; left > 0; first = false {
		if first {
			e.Resident(r.now, regmem.Wait{Back: b})
		} else if e.NextTimeout() > r.now {
			t.Fatalf("%d wait still, and nothing is due", left)
		} else {
			e.HandleTimeout(r.now)
		}
		was := left
		if left = e.Holding().Parked; was-left > most || was == left {
			t.Fatalf("%d of %d are tried again at once", was-left, was)
		}
	}
	r.must("all writes", time.Second, r.all(0, conns*ops))
}

// The more sends wait for a limited time, the less often they are checked, whatever their times.
func TestImpatientAreLookedAtRarely(t *testing.T) {
	const conns, ops, during = 5, 1000, 20 * time.Millisecond
	r := newRig(t, rigOptions{window: 2048})
	var last [2]engine.ConnID
	patient := send(0, []byte("x"))
	patient.Patience = uint64(10 * time.Second)
	for k := range conns * ops {
		if k%ops == 0 {
			last = r.connect(engine.DialOptions{})
		}
		patient.Token = uint64(k)
		r.submit(0, last[0], patient)
	}
	patient.Patience = 1
	looks, done := 0, 0
	for end := r.now.Add(during); r.now < end; r.now = r.now.Add(100 * time.Microsecond) {
		patient.Token++
		r.submit(0, last[0], patient)
		r.take(0)
		if len(r.n[0].done) > done {
			looks, done = looks+1, len(r.n[0].done)
		}
	}
	if most := int(during / (conns * ops * time.Microsecond)); looks == 0 || looks > most+1 {
		t.Errorf("%d looks in %v at %d sends that wait; want %d at most", looks, during, conns*ops, most+1)
	}
}

// The end of a redirection copies little, however what arrives is strewn.
func TestRedirectEndsSoon(t *testing.T) {
	const spans, size, most = 15, 256 << 10, 1 << 20
	r := newRig(t, rigOptions{mtu: 9000})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 2*spans*size, both)
	r.settle()
	to := make([]byte, len(mem))
	region := &regmem.Region{ID: 9, Mem: regmem.Wrap(to)}
	e := r.n[1].e
	for k := range uint64(2) { // what ended counts no more
		if st := redirectTo(e, c[1], k, key, 0, to, region); st != engine.OK {
			t.Fatal(st)
		}
		clear(mem)
		clear(to)
		for i := range spans {
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 100*k + uint64(i), Key: key,
				Off: uint64(2 * i * size), Local: pattern(i, size)})
		}
		r.must("the writes", time.Second, r.all(0, int(k+1)*spans))
		there := func(b []byte) (n int) {
			for i := range spans {
				at, want := b[2*i*size:], pattern(i, size)
				for off := 0; off < size; off += 4 << 10 {
					if string(at[off:off+4<<10]) == string(want[off:off+4<<10]) {
						n += 4 << 10
					}
				}
			}
			return n
		}
		away, before := there(to), there(mem)
		e.EndRedirect(c[1], k)
		if copied := there(mem) - before; away < 2*size || copied > most || copied == 0 {
			t.Errorf("of %d bytes that were redirected %d are copied back, want 1 to %d", away, copied, most)
		}
		r.poll(1)
		if n := e.Count.Placing.BytesRedirected; n != (k+1)*2*size || there(mem) != (spans-2)*size {
			t.Errorf("%d bytes are redirected, %d in their place", n, there(mem))
		}
	}
}

// A dial may be as patient as its caller likes.
func TestDialIsPatient(t *testing.T) {
	r := newRig(t, rigOptions{})
	e := r.n[0].e
	id, err := e.Dial(r.now, "nobody", "s", engine.DialOptions{Timeout: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	e.HandleTimeout(r.now.Add(time.Hour))
	if r.poll(0); r.n[0].closed[id].Kind != 0 {
		t.Error("it was given up at once")
	}
}

// Where a redirection may not grow, what is written again where it has been redirected is redirected again: the latest
// bytes count, wherever they end up.
func TestRedirectedIsWrittenAgain(t *testing.T) {
	const spans, size, last = 6, 256 << 10, 5 // four of the spans are as much as may be strewn
	r := newRig(t, rigOptions{mtu: 9000})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 2*spans*size, both)
	r.settle()
	to := make([]byte, len(mem))
	if st := redirectTo(r.n[1].e, c[1], 0, key, 0, to, &regmem.Region{ID: 9, Mem: regmem.Wrap(to)}); st != engine.OK {
		t.Fatal(st)
	}
	for i := range spans {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(i), Key: key, Off: uint64(2 * i * size),
			Local: pattern(i, size)})
	}
	r.must("the writes", time.Second, r.all(0, spans))
	again := pattern(77, size+1000) // it begins before and ends behind what is redirected
	at := 2*last*size - 500
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: spans, Key: key, Off: uint64(at), Local: again})
	r.must("the write", time.Second, r.all(0, spans+1))
	r.n[1].e.EndRedirect(c[1], 0)
	if got := mem[at : at+len(again)]; !bytes.Equal(got, again) {
		for i := range got {
			if got[i] != again[i] {
				t.Fatalf("byte %d of what was written last is not there", i)
			}
		}
	}
}
