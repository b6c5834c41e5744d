package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// lentOut is a shared queue of node 1 whose only buffer the first of the connections was promised, and another used.
func lentOut(r *rig, size int) (q engine.QueueID, c [][2]engine.ConnID) {
	r.t.Helper()
	q, c = r.joined(3)
	op := send(0, []byte{0})
	op.Patience = uint64(time.Millisecond)
	r.submit(0, c[0][0], op)
	r.rest(10 * time.Millisecond)
	r.post(1, 0, q, 0, size)
	r.rest(10 * time.Millisecond)
	if n := r.status(0, c[0][0]).Credit; n != 1 {
		r.t.Fatalf("who asked was promised %d buffers", n)
	}
	r.submit(0, c[1][0], send(1, []byte{1}))
	r.must("another's send", time.Second, r.got(1, 1))
	return q, c
}

// Clause 14.5: a message that finds its buffer lent is not lost on its path again and again, which all others there
// would suffer from, but held. The next buffer is for it, whoever else asks.
func TestLentIsWaitedFor(t *testing.T) {
	for _, size := range []int{10, 10_000, 1 << 20} {
		for _, composed := range []bool{false, true} {
			if composed && size == 1<<20 {
				continue // it would be too long
			}
			t.Run(fmt.Sprintf("%d bytes, composed %v", size, composed), func(t *testing.T) {
				r := newRig(t, rigOptions{mtu: 9000})
				q, c := lentOut(r, size)
				slow := &regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, 8)), Back: &absent{}}
				key, err := r.n[1].grants.Grant(slow, uint64(c[0][1]), both, 0, 8)
				if err != nil {
					t.Fatal(err)
				}
				// it is not applied soon
				r.submit(0, c[0][0], engine.Op{Kind: engine.OpWrite, Token: 99, Key: key, Inline: 8})
				data := pattern(1, size)
				waits := send(2, data)
				if composed {
					if r.n[0].e.Compose(c[0][0], &waits, 2) != engine.OK {
						t.Fatal("it is not composed")
					}
					r.n[0].e.Wrote(c[0][0], 2, 0, uint64(size))
					r.n[0].e.Commit(r.now, c[0][0], 2, 0, 0, uint64(size))
				} else {
					r.submit(0, c[0][0], waits)
				}
				r.rest(50 * time.Millisecond)
				for k := range uint64(20) {
					r.submit(0, c[2][0], send(10+k, []byte{2}))
				}
				r.rest(time.Second)
				if n := r.n[0].e.Count.Loss.FramesLost; n > 0 {
					t.Errorf("%d frames count as lost", n)
				}
				box := r.post(1, 0, q, 1, size)
				r.must("the message", 10*time.Millisecond, r.all(0, 3))
				if r.wantStatus(0, 2, engine.OK); !bytes.Equal(box, data) {
					t.Error("the buffer has something else")
				}
				for k := range uint64(20) {
					r.post(1, 0, q, 2+k, size)
					r.rest(time.Millisecond)
				}
				r.must("the others", time.Second, r.all(0, 23))
			})
		}
	}
}

// Clause 14.2: of two messages that find their buffers lent the later comes first. The first buffer that is posted then
// is for the earlier, and posting it is work that ends.
func TestLentAndOutOfOrder(t *testing.T) {
	const buffers = 8
	r := newRig(t, rigOptions{})
	q := r.n[1].e.NewReceiveQueue()
	post := func(token uint64) { r.post(1, 0, q, token, 8) }
	for token := range uint64(buffers) {
		post(token)
	}
	idle, busy := r.connect(engine.DialOptions{}), r.connect(engine.DialOptions{})
	for _, c := range [][2]engine.ConnID{idle, busy} {
		r.n[1].e.JoinReceiveQueue(r.now, c[1], q)
	}
	r.settle()
	for token := range uint64(buffers) {
		r.submit(0, busy[0], send(token, []byte{1}))
	}
	r.must("who is lent what another does not use", time.Second, r.all(0, buffers))
	var late []flight
	for token := range uint64(2) {
		r.submit(0, idle[0], send(buffers+token, []byte{2}))
		late = append(late, r.take(0)...)
	}
	if len(late) != 2 {
		t.Fatalf("%d frames of two messages", len(late))
	}
	r.give(1, late[1])
	post(buffers)
	r.give(1, late[0])
	r.rest(time.Millisecond)
	got, done := r.received(1), r.all(0, buffers+1)()
	if len(got) != buffers+1 || got[buffers].Token != buffers || !done {
		t.Errorf("the earlier message did not get the buffer: %+v", got)
	}
	post(buffers + 1)
	r.must("both messages", 10*time.Millisecond, r.all(0, buffers+2))
}
