package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Connections that asked for buffers and ended while there were none leave nothing in the queue that they shared: a
// peer can go on making such for ever.
func TestAskersAreForgotten(t *testing.T) {
	r := newRig(t, rigOptions{})
	e := r.n[1].e
	q := e.NewReceiveQueue()
	stays := r.connect(engine.DialOptions{})
	e.JoinReceiveQueue(r.now, stays[1], q)
	r.submit(0, stays[0], send(0, []byte("x")))
	for range 100 {
		c := r.connect(engine.DialOptions{})
		e.JoinReceiveQueue(r.now, c[1], q)
		r.submit(0, c[0], send(uint64(c[0]), []byte("y")))
		before := e.Asking(q)
		r.must("request", time.Second, func() bool { return e.Asking(q) != before || before > 5 })
		if n := e.Asking(q); n > 5 {
			t.Fatalf("%d entries of 2 connections that ask", n)
		}
		r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
		r.must("its end", time.Second, func() bool { _, over := r.n[1].closed[c[1]]; return over })
	}
	r.post(1, 0, q, 1, 8)
	r.must("the message of who stays", time.Second, r.got(1, 1))
}

// missing is memory that is not there until it comes.
type missing struct {
	here  bool
	asked int
}

func (m *missing) Touch(_, n, _ uint64, _ regmem.Site) (page uint64, ok bool) {
	return 0, m.here || n == 0
}

func (m *missing) Ask(uint64) (resident, busy bool) {
	m.asked++
	return m.here, false
}

// Clause 16.4: what meets memory that is not resident has its second, whatever released it, and however long ago the
// timers ran: here a buffer that the end of a message gives a strict one, behind which a write is fenced.
func TestMissAfterRelease(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	e := r.n[1].e
	q := e.NewReceiveQueue()
	for token := range uint64(2) {
		r.post(1, 0, q, token, 8)
	}
	e.JoinReceiveQueue(r.now, c[1], q)
	r.rest(time.Millisecond)
	back, mem := &missing{}, make([]byte, 8)
	key, err := r.n[1].grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(mem), Back: back}, uint64(c[1]), both, 0, 8)
	if err != nil {
		t.Fatal(err)
	}
	strict := send(1, []byte("strict"))
	strict.Off, strict.Flags = engine.NoWait, engine.ForwardFence
	write := engine.Op{Kind: engine.OpWrite, Token: 2, Key: key, Local: []byte("fenced")}
	var frames []flight
	for _, op := range []engine.Op{send(0, []byte("first")), strict, write} {
		r.submit(0, c[0], op)
		for _, f := range r.take(0) {
			if carries(f.b, wire.KindSend) || carries(f.b, wire.KindWrite) {
				frames = append(frames, f)
			}
		}
	}
	if len(frames) != 3 {
		t.Fatalf("%d frames of 3 operations", len(frames))
	}
	r.now = max(r.now, min(r.n[0].e.NextTimeout(), e.NextTimeout())-mono.Time(time.Microsecond))
	r.now = r.now.Add(950 * time.Millisecond) // nothing ran, as on a host that was busy
	r.give(1, frames[1])
	r.give(1, frames[2])
	if e.Holding().Parked != 0 {
		t.Fatal("the write did not wait for its fence")
	}
	r.give(1, frames[0])
	if e.Holding().Parked != 1 {
		t.Fatal("the write does not wait for its memory")
	}
	r.rest(500 * time.Millisecond)
	back.here = true
	e.Resident(r.now, regmem.Wait{Back: back})
	r.must("the operations", time.Second, r.all(0, 3))
	for token := range uint64(3) {
		r.wantStatus(0, token, engine.OK)
	}
	if back.asked == 0 || !bytes.Equal(mem[:6], []byte("fenced")) {
		t.Errorf("the memory was asked for %d times again; it has %q", back.asked, mem)
	}
}
