package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// post posts n fresh bytes for the messages of node i's connection c, or of a shared queue: every third buffer in
// pieces.
func (r *rig) post(i int, c engine.ConnID, queue engine.QueueID, token uint64, n int) []byte {
	r.t.Helper()
	b := make([]byte, n)
	rc := engine.Receive{Token: token, Local: b}
	if token%3 == 1 {
		rc.Local, rc.Pieces = nil, new(engine.Pieces)
		rc.Pieces.Cut(b, 2+int(token%(engine.MaxPieces-1)), nil, 0)
	}
	if ok := queue == 0 && r.n[i].e.PostReceive(r.now, c, &rc) ||
		queue != 0 && r.n[i].e.PostShared(r.now, queue, &rc); !ok {
		r.t.Fatalf("node %d does not take buffer %d", i, token)
	}
	return b
}

// received are the buffers that node i gave back, in order.
func (r *rig) received(i int) (out []engine.Event) {
	for _, ev := range r.n[i].events {
		if ev.Kind == engine.EvReceived {
			out = append(out, ev)
		}
	}
	return out
}

func (r *rig) got(i, n int) func() bool { return func() bool { return len(r.received(i)) >= n } }

func send(token uint64, b []byte) engine.Op {
	return engine.Op{Kind: engine.OpSend, Token: token, Local: b}
}

// status is connection c of node i.
func (r *rig) status(i int, c engine.ConnID) engine.ConnStatus {
	for _, st := range r.n[i].e.Snapshot(r.now).Connections {
		if st.ID == c {
			return st
		}
	}
	r.t.Fatalf("node %d has no connection %d", i, c)
	return engine.ConnStatus{}
}

// Clauses 14.1 to 14.4: whatever is lost, repeated and late, every message is in the oldest buffer, whole and once, in
// the order of sends, and nothing is sent for a message before its buffer is known.
func TestMessagesInOrder(t *testing.T) {
	const messages = 300
	for _, o := range []rigOptions{{links: 1}, {links: 3, mtu: 9000}, {links: 2, sealed: true},
		{links: 2, lazy: true}, {links: 2, window: 8}} {
		t.Run(fmt.Sprintf("%d links, sealed %v, lazy %v, window %d", o.links, o.sealed, o.lazy, o.window),
			func(t *testing.T) {
				r := newRig(t, o)
				c := r.connect(engine.DialOptions{})
				r.settle()
				rng := rand.New(rand.NewPCG(3, uint64(o.links)))
				var late []flight
				r.pass = func(from int, f *flight) bool {
					if len(late) > 8 {
						r.give(1, late[0])
						late = late[1:]
					}
					if rng.IntN(5) > 0 {
						return true
					}
					if from == 0 {
						late = append(late, flight{link: f.link, b: bytes.Clone(f.b)})
					}
					return false
				}
				var want, bufs [][]byte
				for sent := 0; sent < messages || len(bufs) < messages; r.rest(20 * time.Microsecond) {
					for k := rng.IntN(4); k > 0 && sent < messages; k-- {
						b := pattern(sent, []int{0, 1, rng.IntN(40), rng.IntN(6000)}[rng.IntN(4)])
						op := send(uint64(sent), b)
						if sent%3 == 0 {
							op.Flags, op.Imm = engine.Notify, uint32(sent)
						}
						if len(b) > 0 && len(b) <= engine.MaxInline {
							op.Local, op.Inline = nil, uint8(copy(op.Data[:], b))
						}
						if !r.n[0].e.Submit(r.now, c[0], &op) {
							break // its window is full
						}
						want, sent = append(want, b), sent+1
					}
					for k := rng.IntN(4); k > 0 && len(bufs) < messages; k-- {
						bufs = append(bufs, r.post(1, c[1], 0, uint64(len(bufs)), 6000))
					}
				}
				r.must("messages", 20*time.Second, r.all(0, messages))
				r.must("receives", time.Second, r.got(1, messages))
				r.pass = nil
				r.rest(time.Second)
				evs := r.received(1)
				for i, ev := range evs {
					r.wantStatus(0, uint64(i), engine.OK)
					m := ev.Msg
					if ev.Token != uint64(i) || ev.Status != engine.OK || int(m.Len) != len(want[i]) ||
						!bytes.Equal(bufs[i][:m.Len], want[i]) || m.HasImm != (i%3 == 0) ||
						m.HasImm && m.Imm != uint32(i) {
						t.Fatalf("message %d: %+v, want %d bytes in buffer %d", i, ev, len(want[i]), i)
					}
				}
				if n := r.n[1].e.Count.Op.MessagesReceived; len(evs) != messages || n != messages {
					t.Errorf("%d buffers came back and %d messages were counted, want %d", len(evs), n, messages)
				}
				r.n[1].takeNotes(c[1])
				if len(r.n[1].notes) > 0 {
					t.Error("a message raised a notification")
				}
			})
	}
}

// Clause 14.4: without a buffer no frame leaves for a message, and its place in no window is taken; writes pass it by,
// unless fences forbid, and it leaves with the buffer's news.
func TestMessageWaitsForBuffer(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{links: 1, sealed: sealed})
		c := r.connect(engine.DialOptions{})
		mem, key := r.export(1, c[1], 64, both)
		r.settle()
		write := func(token uint64, flags engine.OpFlags) engine.Op {
			return engine.Op{Kind: engine.OpWrite, Token: token, Flags: flags, Key: key, Off: token,
				Local: []byte{byte(token)}}
		}
		r.submit(0, c[0], send(0, []byte("first")))
		for token := range uint64(40) { // they pass by
			r.submit(0, c[0], write(1+token, 0))
		}
		r.must("writes", time.Second, r.all(0, 40))
		r.submit(0, c[0], write(50, engine.BackwardFence))
		second := send(51, []byte("second"))
		second.Flags = engine.ForwardFence
		r.submit(0, c[0], second)
		r.submit(0, c[0], write(52, 0)) // behind the forward fence
		sent := r.n[0].e.Count.Traffic.PayloadSent
		r.rest(time.Second)
		if st := r.status(0, c[0]); st.Waiting != 4 || st.Credit != 0 || len(r.n[0].done) != 40 || mem[50] != 0 {
			t.Fatalf("without a buffer: %+v, %d operations done", st, len(r.n[0].done))
		}
		if n := r.n[0].e.Count.Traffic.PayloadSent; n != sent {
			t.Errorf("%d bytes were sent for what waits", n-sent)
		}
		a := r.post(1, c[1], 0, 7, 16)
		r.must("first message and the fenced write", time.Second, r.all(0, 42))
		if string(a[:5]) != "first" || mem[50] != 50 || mem[52] != 0 {
			t.Errorf("got %q, writes %d %d", a, mem[50], mem[52])
		}
		r.post(1, c[1], 0, 8, 16)
		r.must("the rest", time.Second, r.all(0, 44))
		if st := r.status(0, c[0]); st.Waiting != 0 || mem[52] != 52 {
			t.Errorf("at the end: %+v", st)
		}
		if n := r.n[0].e.Count.Op.SendsWaited; n != 2 {
			t.Errorf("%d sends waited, want 2", n)
		}
	})
}

// Clauses 14.3 and 14.6: what is too long, finds no buffer or waits too long fails at both ends, alone; the messages
// after it meet the buffers that they would have met.
func TestMessageRefusals(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		r := newRig(t, rigOptions{links: 2, sealed: sealed})
		c := r.connect(engine.DialOptions{})
		r.settle()
		buf := make([]byte, 5000)
		rc := engine.Receive{Token: 1, Local: buf[:3000]}
		if !r.n[1].e.PostReceive(r.now, c[1], &rc) {
			t.Fatal("the buffer is not taken")
		}
		r.post(1, c[1], 0, 2, 100)
		r.submit(0, c[0], send(1, pattern(1, 4000)))
		r.submit(0, c[0], send(2, pattern(2, 100)))
		r.must("too long", time.Second, r.all(0, 2))
		r.wantStatus(0, 1, engine.StatusTooLong)
		r.wantStatus(0, 2, engine.OK)
		r.must("both buffers", time.Second, r.got(1, 2))
		if evs := r.received(1); evs[0].Token != 1 || evs[0].Status != engine.StatusTooLong ||
			evs[1].Token != 2 || evs[1].Status != engine.OK || evs[1].Msg.Len != 100 {
			t.Errorf("received %+v", evs)
		}
		if bytes.ContainsFunc(buf[3000:], func(b rune) bool { return b != 0 }) {
			t.Error("bytes beyond the buffer were written")
		}

		for token := range uint64(4) { // strict, and there is none
			op := send(10+token, pattern(1, int(2000*token)))
			op.Patience = engine.NoWait
			r.submit(0, c[0], op)
		}
		r.must("strict", time.Second, r.all(0, 6))
		for token := range uint64(4) {
			r.wantStatus(0, 10+token, engine.StatusNoBuffer)
		}
		patient := send(20, []byte("x"))
		patient.Patience = uint64(50 * time.Millisecond)
		start := r.now
		r.submit(0, c[0], patient)
		r.must("timeout", time.Second, r.all(0, 7))
		r.wantStatus(0, 20, engine.StatusNoBuffer)
		if d := r.now.Sub(start); d < 50*time.Millisecond || d > 60*time.Millisecond {
			t.Errorf("it waited %v, want 50 ms", d)
		}
		got := r.post(1, c[1], 0, 30, 10)
		strict := send(31, []byte("strict"))
		strict.Patience = engine.NoWait
		r.rest(100 * time.Millisecond)
		r.submit(0, c[0], strict)
		r.must("strict with a buffer", time.Second, r.all(0, 8))
		r.wantStatus(0, 31, engine.OK)
		if string(got[:6]) != "strict" {
			t.Errorf("got %q", got)
		}
		if n := r.n[1].e.Count; n.Op.MessagesUnbuffered != 4 || n.Op.MessagesTooLong != 1 {
			t.Errorf("%d too long, %d without a buffer", n.Op.MessagesTooLong, n.Op.MessagesUnbuffered)
		}
	})
}

// Clause 14.6: strict messages are judged in the order of sends, whatever order their frames come in: one buffer goes
// to the first of them.
func TestStrictInOrder(t *testing.T) {
	for _, order := range permutations(4) {
		r := newRig(t, rigOptions{})
		c := r.connect(engine.DialOptions{})
		r.settle()
		r.post(1, c[1], 0, 1, 10)
		var frames []flight
		for token := range uint64(4) {
			op := send(token, []byte{byte(token)})
			op.Patience = engine.NoWait
			r.submit(0, c[0], op)
			for _, f := range r.take(0) {
				if carries(f.b, wire.KindSend) {
					frames = append(frames, f)
				}
			}
		}
		for _, k := range order {
			r.give(1, frames[k])
		}
		r.must("all", time.Second, r.all(0, 4))
		r.wantStatus(0, 0, engine.OK)
		for token := range uint64(3) {
			r.wantStatus(0, 1+token, engine.StatusNoBuffer)
		}
		if held := r.n[1].e.HeldMemory(); held != 0 ||
			r.n[1].e.Count.Loss.FramesLost+r.n[0].e.Count.Loss.FramesLost > 0 {
			t.Errorf("arrival %v: %d bytes held, frames lost", order, held)
		}
	}
}

// Clause 14.5: buffers of a shared queue are fewer than the connections; everybody is served, one that does not read
// its own promise holds up nobody, and what ended connections were promised is others'.
func TestSharedReceiveQueue(t *testing.T) {
	const conns, buffers, rounds = 40, 8, 5
	r := newRig(t, rigOptions{links: 2})
	e := r.n[1].e
	q := e.NewReceiveQueue()
	var cs [conns][2]engine.ConnID
	for i := range cs {
		cs[i] = r.connect(engine.DialOptions{})
		if !e.JoinReceiveQueue(r.now, cs[i][1], q) || e.JoinReceiveQueue(r.now, cs[i][1], q) {
			t.Fatal("a connection joins once")
		}
		if e.PostReceive(r.now, cs[i][1], &engine.Receive{}) {
			t.Fatal("a connection of a shared queue takes a buffer of its own")
		}
	}
	bufs := map[uint64][]byte{}
	token := uint64(0)
	for range buffers {
		bufs[token] = r.post(1, 0, q, token, 8)
		token++
	}
	r.settle()
	var from [conns]int
	seen := 0
	take := func() {
		evs := r.received(1)
		for ; seen < len(evs); seen++ {
			ev := evs[seen]
			for i := range cs {
				if cs[i][1] == ev.Conn {
					if b := bufs[ev.Token]; ev.Status != engine.OK || int(b[0]) != i || int(b[1]) != from[i] {
						t.Fatalf("connection %d, message %d: %+v %v", i, from[i], ev, b)
					}
					from[i]++
				}
			}
			bufs[token] = r.post(1, 0, q, token, 8)
			token++
		}
	}
	for k := range rounds {
		for i := range cs {
			r.submit(0, cs[i][0], send(uint64(k*conns+i), []byte{byte(i), byte(k)}))
		}
	}
	r.must("all messages", 5*time.Second, func() bool { take(); return len(r.n[0].done) == conns*rounds })
	for i := range from {
		if from[i] != rounds {
			t.Errorf("%d messages of connection %d, want %d", from[i], i, rounds)
		}
	}
	if e.DropReceiveQueue(q) {
		t.Error("a queue that connections use was dropped")
	}
	for i := range cs {
		r.n[1].e.Abort(r.now, cs[i][1], engine.StatusAborted)
	}
	r.rest(100 * time.Millisecond)
	if !e.DropReceiveQueue(q) {
		t.Error("the queue cannot be dropped")
	}
	r.poll(1)
	if n := len(r.received(1)); n != int(token) {
		t.Errorf("%d of %d buffers came back", n, token)
	}
}

// Buffers come back once, with the reason, when their connection ends, and their region is not in use then; what waits
// for the peer's buffers fails.
func TestReceivesAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(r *rig, c [2]engine.ConnID){
		"closed by the peer": func(r *rig, c [2]engine.ConnID) { r.n[0].e.Close(r.now, c[0]) },
		"closed":             func(r *rig, c [2]engine.ConnID) { r.n[1].e.Close(r.now, c[1]) },
		"aborted":            func(r *rig, c [2]engine.ConnID) { r.n[1].e.Abort(r.now, c[1], engine.StatusAborted) },
		"reset":              func(r *rig, c [2]engine.ConnID) { r.n[0].e.Abort(r.now, c[0], engine.StatusAborted) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			c := r.connect(engine.DialOptions{})
			r.settle()
			region := &regmem.Region{Mem: regmem.Wrap(make([]byte, 300))}
			for i := range 3 {
				rc := engine.Receive{Token: uint64(i), Local: region.Mem.Bytes()[100*i : 100*i+100], Region: region}
				r.n[1].e.PostReceive(r.now, c[1], &rc)
			}
			r.submit(0, c[0], send(0, []byte("one")))
			r.must("a message", time.Second, r.got(1, 1))
			r.must("its end", time.Second, r.all(0, 1))
			if region.InFlight != 2 {
				t.Errorf("%d buffers in flight, want 2", region.InFlight)
			}
			end(r, c)
			r.must("buffers", time.Second, r.got(1, 3))
			r.rest(time.Second)
			evs := r.received(1)
			for _, ev := range evs[1:] {
				if ev.Status == engine.OK {
					t.Errorf("an unused buffer came back with %+v", ev)
				}
			}
			if len(evs) != 3 || region.InFlight != 0 {
				t.Errorf("%d buffers came back, %d in flight", len(evs), region.InFlight)
			}
		})
	}
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.submit(0, c[0], send(0, []byte("never")))
	r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
	r.poll(0)
	r.wantStatus(0, 0, engine.StatusAborted)
}

// Of three operations, each a message or a write, under every combination of fences and every order of arrival, no byte
// is placed before what its fences demand (clauses 6.5 and 6.6), and messages meet their buffers in order.
func TestFencesWithMessages(t *testing.T) {
	const ops, size = 3, 40
	for sends := 1; sends < 1<<ops; sends++ {
		t.Run(fmt.Sprintf("sends %03b", sends), func(t *testing.T) {
			t.Parallel()
			f := newFencer(t, anyOrder, ops, size)
			for _, flags := range flagSets(ops) {
				for _, arrival := range permutations(ops) {
					own := f.submitMixed(flags, sends)
					missing := []int{1, 1, 1}
					for _, k := range arrival {
						f.give(1, own[k])
						missing[k] = 0
						if err := f.check(flags, false, missing); err != nil {
							t.Fatalf("fences %s arrival %v: %v", names(flags), arrival, err)
						}
					}
					if !f.until(time.Second, f.all(0, int(f.token))) {
						t.Fatalf("fences %s arrival %v: not completed", names(flags), arrival)
					}
					f.n[0].events, f.n[1].events, f.n[1].notes = nil, nil, nil
				}
			}
		})
	}
}

// submitMixed submits one operation per entry of flags, sends where the bits say, and returns the frame of each.
func (f *fencer) submitMixed(flags []engine.OpFlags, sends int) (own []flight) {
	f.t.Helper()
	f.fill++
	n := 0
	for i := range flags {
		if sends>>i&1 != 0 {
			n++
			f.n[1].e.PostReceive(f.now, f.c[1], &engine.Receive{Local: f.mem[i*f.size : (i+1)*f.size]})
		}
	}
	f.must("credit", time.Second, func() bool { return f.status(0, f.c[0]).Credit == n })
	for i, fl := range flags {
		op := f.op
		op.Kind, op.Flags, op.Token, op.Off = engine.OpWrite, fl, f.token, uint64(i*f.size)
		if sends>>i&1 != 0 {
			op.Kind = engine.OpSend
		}
		f.token++
		op.Local = bytes.Repeat([]byte{f.fill}, f.size)
		f.submit(0, f.c[0], op)
		for _, fr := range f.take(0) {
			if carries(fr.b, wire.KindWrite) || carries(fr.b, wire.KindSend) {
				own = append(own, fr)
			} else {
				f.give(1, fr)
			}
		}
	}
	if len(own) != len(flags) {
		f.t.Fatalf("%d frames of %d operations", len(own), len(flags))
	}
	return own
}

// Sending and receiving messages allocates nothing once the rings have grown.
func TestMessagesAllocateNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	buf, data := make([]byte, 64), make([]byte, 64)
	a, b := r.n[0], r.n[1]
	var ev engine.Event
	var arrived [1]engine.Arrival
	move := func(from, to *node) {
		for from.e.PollTransmit(r.now, from.batch) > 0 {
			for link, f := range from.batch.All() {
				arrived[0] = engine.Whole(f.AppendTo(r.scratch[:0]))
				to.e.Handle(r.now, link, arrived[:]...)
			}
			from.batch.Reset()
		}
	}
	once := func() {
		for range 8 {
			b.e.PostReceive(r.now, c[1], &engine.Receive{Local: buf})
			op := send(1, data)
			a.e.Submit(r.now, c[0], &op)
		}
		for range 4 {
			r.now = r.now.Add(100 * time.Microsecond)
			move(a, b)
			move(b, a)
		}
		for a.e.PollEvent(&ev) {
		}
		for b.e.PollEvent(&ev) {
		}
	}
	check := func(how string) {
		for range 200 {
			once()
		}
		before := b.e.Count.Op.MessagesReceived
		if n := testing.AllocsPerRun(100, once); n > 0 {
			t.Errorf("%s: %v allocations for 8 messages", how, n)
		}
		if n := b.e.Count.Op.MessagesReceived - before; n < 800 {
			t.Errorf("%s: %d messages arrived", how, n)
		}
	}
	check("credit by itself")
	for range 8 { // the peer never runs out of buffers
		b.e.PostReceive(r.now, c[1], &engine.Receive{Local: buf})
	}
	check("credit with OpAcks")
}

// Clause 14.5: a Want that was overtaken by a later one takes nothing back. The sender, who has asked already, would
// wait for ever.
func TestLateWant(t *testing.T) {
	const messages = 6
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	q := r.n[1].e.NewReceiveQueue()
	if !r.n[1].e.JoinReceiveQueue(r.now, c[1], q) {
		t.Fatal("the connection does not join the queue")
	}
	r.settle()
	var late []flight
	r.pass = func(from int, f *flight) bool {
		if from == 0 && len(late) == 0 {
			late = append(late, flight{link: f.link, b: bytes.Clone(f.b)})
			return false
		}
		return true
	}
	r.submit(0, c[0], send(0, []byte{0}))
	r.rest(time.Millisecond)
	for k := range uint64(messages - 1) {
		r.submit(0, c[0], send(1+k, []byte{1}))
	}
	r.rest(time.Second) // what was taken for lost is sent again
	r.give(1, late[0])
	r.pass = nil
	for k := range messages {
		r.post(1, 0, q, uint64(k), 8)
		r.must(fmt.Sprintf("message %d", k), time.Second, r.got(1, k+1))
	}
}
