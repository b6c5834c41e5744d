package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// throng is connections of node 0 that share few buffers of node 1, on a bad network.
type throng struct {
	*mess
	q     engine.QueueID
	conns []*member
	bufs  map[uint64][]byte // posted
	idle  int               // that came back
	posts uint64            // so far
	sends uint64
}

// member is one of them.
type member struct {
	c       [2]engine.ConnID
	sent    []letter
	next    int  // of sent: none before it is still to come
	over    bool // closed by node 1, or aborted by either
	closing bool
	draft   *letter // that is being composed
}

// letter is a send.
type letter struct {
	token    uint64
	data     []byte
	patience uint64 // as Op.Patience
	flags    engine.OpFlags
	came     bool
}

const throngBuffer = 4000

func newThrong(t *testing.T, seed uint64) *throng {
	rng := rand.New(rand.NewPCG(seed, 14))
	r := newRig(t, rigOptions{links: 1 + rng.IntN(3), sealed: seed%4 == 0, window: []int{4, 16, 1024}[rng.IntN(3)]})
	w := &throng{mess: newMess(r, seed), bufs: map[uint64][]byte{}, q: r.n[1].e.NewReceiveQueue()}
	w.idle = 1 + rng.IntN(12)
	for range 2 + rng.IntN(8) {
		k := &member{c: r.connect(engine.DialOptions{Ordered: rng.IntN(4) == 0})}
		if !r.n[1].e.JoinReceiveQueue(r.now, k.c[1], w.q) {
			t.Fatal("a connection does not join")
		}
		w.conns = append(w.conns, k)
	}
	w.rng, w.pick = rng, w.event
	w.net.Loss, w.net.Dup = []float64{0, 0.1, 0.3}[rng.IntN(3)], []float64{0, 0.1}[rng.IntN(2)]
	w.net.Jitter = time.Duration(rng.IntN(400)) * time.Microsecond
	return w
}

// event checks a buffer that comes back.
func (w *throng) event(ev *engine.Event, i int) {
	if ev.Kind != engine.EvReceived {
		return
	}
	b := w.bufs[ev.Token]
	if i != 1 || b == nil {
		w.t.Fatalf("buffer %d came back twice", ev.Token)
	}
	delete(w.bufs, ev.Token)
	w.idle++
	if ev.Status != engine.OK && ev.Status != engine.StatusTooLong {
		return // its connection ended, or the queue
	}
	for _, k := range w.conns {
		if k.c[1] == ev.Conn {
			if err := k.came(ev, b); err != nil {
				w.t.Fatalf("connection %d: %v", ev.Conn, err)
			}
		}
	}
}

// came notes which message a buffer came back with: the next, but for impatient ones.
func (k *member) came(ev *engine.Event, b []byte) error {
	for n := k.next; n < len(k.sent); n++ {
		l := &k.sent[n]
		long := len(l.data) > throngBuffer
		if long == (ev.Status == engine.StatusTooLong) && (long || bytes.Equal(l.data, b[:ev.Msg.Len])) {
			l.came, k.next = true, n+1
			return nil
		}
		if l.patience == 0 {
			return fmt.Errorf("not message %d, which was to come, but %+v", n, ev)
		}
	}
	return fmt.Errorf("no message was to come: %+v", ev)
}

// lend posts n of the idle buffers.
func (w *throng) lend(n int) {
	for ; n > 0 && w.idle > 0; n-- {
		w.posts++
		w.idle--
		w.bufs[w.posts] = w.post(1, 0, w.q, w.posts, throngBuffer)
	}
}

// write submits a send, or composes one, or commits that.
func (w *throng) write(k *member) {
	if k.draft != nil {
		w.commit(k)
		return
	}
	size := 8 + []int{0, w.rng.IntN(60), w.rng.IntN(3000), throngBuffer}[w.rng.IntN(4)]*(w.rng.IntN(9)+8)/16
	l := letter{token: w.sends, data: pattern(int(w.sends), size)}
	binary.LittleEndian.PutUint64(l.data, w.sends)
	if p := w.rng.IntN(5); p == 0 {
		l.patience = engine.NoWait
	} else if p == 1 {
		l.patience = 1 + w.rng.Uint64N(4_000_000)
	}
	if l.patience != 0 { // one that is too long could not be told from a patient one
		l.data = l.data[:min(size, throngBuffer)]
	}
	op, e := send(l.token, l.data), w.n[0].e
	l.flags = engine.OpFlags(w.rng.IntN(8) * w.rng.IntN(2))
	op.Patience, op.Flags = l.patience, l.flags
	switch {
	case w.rng.IntN(4) == 0:
		if e.Compose(k.c[0], &op, l.token) == engine.OK {
			e.Wrote(k.c[0], l.token, 0, uint64(len(l.data)))
			k.draft = &l
			w.sends++
		}
	case e.Submit(w.now, k.c[0], &op):
		k.sent = append(k.sent, l)
		w.sends++
	}
}

// commit ends what is being composed, if its connection has not.
func (w *throng) commit(k *member) {
	l, e := *k.draft, w.n[0].e
	k.draft = nil
	if w.rng.IntN(5) == 0 {
		e.Discard(k.c[0], l.token)
	} else if e.Commit(w.now, k.c[0], l.token, l.flags, 0, uint64(len(l.data))) {
		k.sent = append(k.sent, l)
	}
}

// end ends a connection in some way.
func (w *throng) end(k *member) {
	i := w.rng.IntN(2)
	if k.over = w.rng.IntN(2) == 0 || i == 1; !k.over {
		k.closing = true
		w.n[0].e.Close(w.now, k.c[0])
		return
	}
	if w.rng.IntN(2) == 0 {
		w.n[i].e.Close(w.now, k.c[i])
	} else {
		w.n[i].e.Abort(w.now, k.c[i], engine.StatusAborted)
	}
}

// step does something.
func (w *throng) step() {
	k := w.conns[w.rng.IntN(len(w.conns))]
	switch w.rng.IntN(12) {
	case 0:
		if w.rng.IntN(6) == 0 && !k.over && !k.closing {
			w.end(k)
		}
	case 1:
		loss := w.net.Loss
		w.net.Loss = 1
		w.calm(time.Duration(w.rng.IntN(30)) * time.Millisecond)
		w.net.Loss = loss
	case 2, 3, 4:
		w.lend(1 + w.rng.IntN(3))
	default:
		w.write(k)
	}
	w.calm(time.Duration(w.rng.IntN(300)) * time.Microsecond)
}

// finish has everything come to its end, and checks how.
func (w *throng) finish() {
	for _, k := range w.conns {
		if k.draft != nil {
			w.commit(k)
		}
	}
	if !w.run(30*time.Second, func() bool { w.lend(w.idle); return uint64(len(w.n[0].done)) == w.sends }) {
		w.t.Fatalf("%d of %d sends are complete; %d buffers are posted, promised, being filled, lent: %v",
			len(w.n[0].done), w.sends, len(w.bufs), w.n[1].e.QueueCounts(w.q))
	}
	w.calm(100 * time.Millisecond)
	for _, k := range w.conns {
		for n := range k.sent {
			l := &k.sent[n]
			st := w.n[0].done[l.token]
			want := engine.OK
			switch {
			case k.over, l.patience != 0 && st == engine.StatusNoBuffer && !l.came:
				continue
			case len(l.data) > throngBuffer:
				want = engine.StatusTooLong
			}
			if st != want || !l.came {
				w.t.Errorf("message %d of %d bytes ended with %v, want %v; it came: %v", n, len(l.data), st, want,
					l.came)
			}
		}
		w.n[0].e.Close(w.now, k.c[0])
	}
	over := func() bool { return len(w.n[0].closed) == len(w.conns) && len(w.n[1].closed) == len(w.conns) }
	if !w.run(20*time.Second, over) {
		w.t.Fatal("connections do not end")
	}
	if n := w.n[1].e.QueueCounts(w.q); n != [3]int{} {
		w.t.Errorf("without connections %v buffers are promised, being filled, lent", n)
	}
	if !w.n[1].e.DropReceiveQueue(w.q) {
		w.t.Error("the queue cannot be dropped")
	}
	w.calm(10 * time.Millisecond)
	if len(w.bufs) > 0 {
		w.t.Errorf("%d buffers did not come back", len(w.bufs))
	}
}

// Clauses 14.2 to 14.7 for a shared queue, whatever is lost, late and repeated and however connections end: every
// message has a buffer or is refused, in its turn, nobody waits while there are buffers, and all come back once.
func TestThrong(t *testing.T) {
	for seed := range throngSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newThrong(t, seed)
			for range 150 {
				w.step()
			}
			w.finish()
			w.cleanAfter(t, "a throng")
		})
	}
}

const throngSeeds = uint64(60)
