package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// asked has node 0 dial, and returns both ends while node 1 has not answered.
func (r *rig) asked(o engine.DialOptions) (c [2]engine.ConnID) {
	r.t.Helper()
	r.n[1].e.Listen("test")
	id, err := r.n[0].e.Dial(r.now, "node1", "test", o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.must("a request", 10*time.Second, func() bool { return r.find(1, engine.EvIncoming) != nil })
	return [2]engine.ConnID{id, r.find(1, engine.EvIncoming).Conn}
}

// Clause 14.2: a connection takes buffers, its own or those of a queue, before it is accepted. The peer knows of them
// as soon as it is open: a message that does not wait finds one, and Credit is never on its way before Accept.
func TestReceiveBeforeAccept(t *testing.T) {
	for name, shared := range map[string]bool{"own": false, "queue": true} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, func(t *testing.T, sealed bool) { testReceiveBeforeAccept(t, sealed, shared) })
		})
	}
}

func testReceiveBeforeAccept(t *testing.T, sealed, shared bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c, e := r.asked(engine.DialOptions{}), r.n[1].e
	q := engine.QueueID(0)
	if shared {
		q = e.NewReceiveQueue()
		if !e.JoinReceiveQueue(r.now, c[1], q) {
			t.Fatal("a connection that is not accepted joins no queue")
		}
	}
	first := r.post(1, c[1], q, 0, 16)
	r.pass = func(from int, f *flight) bool {
		if from == 1 && !sealed && carries(f.b, wire.KindCredit) {
			t.Error("Credit before Accept")
		}
		return true
	}
	r.rest(50 * time.Millisecond)
	r.pass = nil
	r.post(1, c[1], q, 1, 16)
	if err := e.Accept(r.now, c[1], nil); err != nil {
		t.Fatal(err)
	}
	r.must("connect", time.Second, func() bool { return r.find(0, engine.EvConnected) != nil })
	waits, strict := send(1, pattern(1, 9)), send(2, pattern(2, 9))
	strict.Patience = engine.NoWait
	r.submit(0, c[0], waits)
	r.submit(0, c[0], strict)
	r.must("the messages", time.Second, r.all(0, 2))
	r.wantStatus(0, 1, engine.OK)
	r.wantStatus(0, 2, engine.OK)
	if n := r.n[0].e.Count.Op.SendsWaited; n != 0 && !shared { // a queue promises what is asked for
		t.Errorf("%d messages waited for a buffer that was there", n)
	}
	if got := r.received(1)[0]; got.Status != engine.OK || got.Token != 0 || !bytes.Equal(first[:9], waits.Local) {
		t.Errorf("buffer %d came back with %v", got.Token, got.Status)
	}
}

// A request that is refused, given up or that ends with its session gives its buffers back, each once; a connection of
// a shared queue leaves it.
func TestReceiveBeforeAcceptFails(t *testing.T) {
	ends := map[string]func(r *rig, c [2]engine.ConnID){
		"refused": func(r *rig, c [2]engine.ConnID) { r.n[1].e.Refuse(r.now, c[1], "no") },
		"closed":  func(r *rig, c [2]engine.ConnID) { r.n[1].e.Close(r.now, c[1]) },
		"aborted": func(r *rig, c [2]engine.ConnID) { r.n[1].e.Abort(r.now, c[1], engine.StatusAborted) },
		"given up": func(r *rig, c [2]engine.ConnID) {
			r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
			r.rest(time.Second)
		},
		"peer gone": func(r *rig, c [2]engine.ConnID) {
			r.pass = func(int, *flight) bool { return false }
			r.rest(time.Minute)
		},
	}
	for name, end := range ends {
		for _, shared := range []bool{false, true} {
			r := newRig(t, rigOptions{})
			c, e := r.asked(engine.DialOptions{}), r.n[1].e
			q, want := engine.QueueID(0), 2
			if shared {
				q, want = e.NewReceiveQueue(), 0
				if !e.JoinReceiveQueue(r.now, c[1], q) {
					t.Fatal("a connection that is not accepted joins no queue")
				}
			}
			r.post(1, c[1], q, 0, 16)
			r.post(1, c[1], q, 1, 16)
			end(r, c)
			r.poll(1)
			if n := len(r.received(1)); n != want {
				t.Errorf("%s: %d buffers came back, want %d", name, n, want)
			}
			for _, ev := range r.received(1) {
				if ev.Status == engine.OK {
					t.Errorf("%s: buffer %d came back as received", name, ev.Token)
				}
			}
			if shared && !e.DropReceiveQueue(q) {
				t.Errorf("%s: the queue is in use", name)
			}
		}
	}
}
