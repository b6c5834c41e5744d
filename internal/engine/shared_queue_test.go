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

// Clause 14.5: what a Want did not say is said later. Here sends were given up before the Want for them arrived, and it
// was lost and sent again; those that follow need as many buffers.
func TestWantAfterGivingUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	q := r.n[1].e.NewReceiveQueue()
	r.n[1].e.JoinReceiveQueue(r.now, c[1], q)
	r.settle()
	r.pass = func(from int, _ *flight) bool { return from != 0 }
	for token := range uint64(2) {
		op := send(token, []byte("hurried"))
		op.Patience = uint64(time.Millisecond)
		r.submit(0, c[0], op)
	}
	r.must("giving up", time.Second, r.all(0, 2))
	r.pass = nil
	r.rest(time.Second)
	for token := range uint64(2) {
		r.submit(0, c[0], send(2+token, []byte("patient")))
	}
	r.rest(time.Second)
	for token := range uint64(2) {
		r.post(1, 0, q, token, 8)
		r.must("a message", time.Second, r.got(1, int(token)+1))
	}
}

// Both ends close, each with a send that waits for a buffer of the other's; those come from queues that both join only
// now.
func TestJoinWhileClosing(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	for i := range c {
		r.submit(i, c[i], send(1, []byte("wait")))
		r.n[i].e.Close(r.now, c[i])
	}
	r.settle()
	for i := range c {
		q := r.n[i].e.NewReceiveQueue()
		r.post(i, 0, q, 1, 8)
		if !r.n[i].e.JoinReceiveQueue(r.now, c[i], q) {
			t.Errorf("node %d: the connection does not join", i)
		}
	}
	r.must("both ends", time.Second, func() bool { return len(r.n[0].closed) == 1 && len(r.n[1].closed) == 1 })
	for i := range c {
		r.wantStatus(i, 1, engine.OK)
	}
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
	strict.Patience, strict.Flags = engine.NoWait, engine.ForwardFence
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

// Clause 14.6: a strict send whose promised buffer was lent is refused as one for which there never was any; with the
// next buffer the next message arrives.
func TestStrictWhereBuffersAreLent(t *testing.T) {
	r := newRig(t, rigOptions{})
	q, c := lentOut(r, 8)
	for k := range uint64(2) {
		strict := send(2+k, []byte{2})
		strict.Patience = engine.NoWait
		r.submit(0, c[0][0], strict)
	}
	r.must("the refusals", time.Second, r.all(0, 4))
	r.wantStatus(0, 2, engine.StatusNoBuffer)
	r.wantStatus(0, 3, engine.StatusNoBuffer)
	r.post(1, 0, q, 1, 8)
	r.submit(0, c[0][0], send(4, []byte{3}))
	r.must("the next", time.Second, r.got(1, 2))
	r.must("all", time.Second, r.all(0, 5))
	r.wantStatus(0, 4, engine.OK)
	if n := r.n[1].e.QueueCounts(q); n != [3]int{} {
		t.Errorf("%v buffers are promised, being filled, lent", n)
	}
}
