package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"multiedge/internal/ipc"
)

// messagePair is a connection between two devices of a fabric, with registered memory at both ends.
type messagePair struct {
	dev  [2]*Device
	conn [2]*Conn
	mem  [2]*Region
	cq   [2]*CompletionQueue
}

func newMessagePair(t *testing.T, cfg Config) *messagePair {
	t.Helper()
	ctx := context.Background()
	fab := NewFabric()
	t.Cleanup(func() { fab.Close() })
	p := &messagePair{}
	var err error
	for i, name := range []string{"a", "b"} {
		p.dev[i], err = fab.OpenConfig(ctx, name, cfg)
		must(t, err)
		p.mem[i], err = p.dev[i].Register(1 << 16)
		must(t, err)
		p.cq[i], err = p.dev[i].NewCompletionQueue(1024)
		must(t, err)
	}
	l, err := p.dev[1].Listen(ctx, "m")
	must(t, err)
	accepted := make(chan error, 1)
	go func() {
		var err error
		p.conn[1], err = l.Accept(ctx)
		accepted <- err
	}()
	p.conn[0], err = p.dev[0].Dial(ctx, "b", "m")
	must(t, err)
	must(t, <-accepted)
	return p
}

func (p *messagePair) receive(t *testing.T, i, off, n int, context uint64) {
	t.Helper()
	_, err := p.conn[i].Post(NoWait, &Work{Kind: Receive, Local: p.mem[i], LocalOff: off, Len: n, Queue: p.cq[i],
		Context: context})
	must(t, err)
}

// take waits for n completions of end i.
func (p *messagePair) take(t *testing.T, i, n int) (out []Completion) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var buf [8]Completion
	for len(out) < n {
		k, err := p.cq[i].Wait(ctx, buf[:])
		must(t, err)
		out = append(out, buf[:k]...)
	}
	return out
}

// Sends, receives and notifications of a connection are told in one queue, each once.
func TestMessages(t *testing.T) {
	p := newMessagePair(t, Config{})
	ctx := context.Background()
	must(t, p.cq[1].Notify(p.conn[1]))
	_, err := p.mem[1].Export(p.conn[1], "out", RemoteWrite, 1<<15, 1<<15)
	must(t, err)
	remote, err := p.conn[0].Import(ctx, "out")
	must(t, err)
	want := bytes.Repeat([]byte("message!"), 2000)
	copy(p.mem[0].Bytes(), want)
	p.receive(t, 1, 0, 16000, 7)
	p.receive(t, 1, 16000, 10, 8)
	p.receive(t, 1, 16010, 10, 9)
	for _, w := range []Work{
		{Kind: Send, Local: p.mem[0], Len: 16000, Context: 1},
		{Kind: Send, Local: p.mem[0], Len: 11, Context: 2, Flags: Notify, Imm: 5},
		{Kind: Send, Inline: []byte("inline"), Context: 3, Flags: Notify | BackwardFence, Imm: 6},
		{Kind: Write, Local: p.mem[0], Len: 8, Remote: remote, Context: 4, Flags: Notify | BackwardFence, Imm: 7},
	} {
		w.Queue = p.cq[0]
		_, err := p.conn[0].Post(ctx, &w)
		must(t, err)
	}
	var errs [5]error
	for _, c := range p.take(t, 0, 4) {
		errs[c.Context] = c.Err
	}
	if errs[1] != nil || errs[2] != ErrTooLong || errs[3] != nil || errs[4] != nil {
		t.Errorf("sends ended with %v", errs)
	}
	got := p.take(t, 1, 4)
	if c := got[0]; c.Context != 7 || c.Err != nil || c.Len != 16000 || c.HasImm || c.Conn != p.conn[1] ||
		!bytes.Equal(p.mem[1].Bytes()[:16000], want) {
		t.Errorf("first %+v", c)
	}
	if c := got[1]; c.Context != 8 || c.Err != ErrTooLong || p.mem[1].Bytes()[16010] == want[10] {
		t.Errorf("second %+v, or a byte beyond its buffer", c)
	}
	if c := got[2]; c.Context != 9 || c.Err != nil || c.Imm != 6 || !c.HasImm ||
		string(p.mem[1].Bytes()[16010:][:c.Len]) != "inline" {
		t.Errorf("third %+v", c)
	}
	if c := got[3]; c.Kind != Notified || c.Imm != 7 || c.Len != 8 || c.Grant == nil || c.Grant.Name() != "out" {
		t.Errorf("notification %+v", c)
	}
	for range 600 { // credit is given back for notifications that were taken
		_, err := p.conn[0].Post(ctx, &Work{Kind: Write, Local: p.mem[0], Len: 8, Remote: remote, Flags: Notify})
		must(t, err)
	}
	p.take(t, 1, 600)
}

// A message gathers its pieces, of which the last is as good as the others; pieces that cannot be are refused before
// anything is posted.
func TestMessagePieces(t *testing.T) {
	p := newMessagePair(t, Config{})
	src := p.mem[0]
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i*7 + i>>8)
	}
	for n := 1; n <= MaxPieces; n++ {
		var want []byte
		w := Work{Kind: Send, Queue: p.cq[0], Flags: Notify, Imm: uint32(n)}
		for i := range n {
			part := Piece{Region: src, Off: 2003 * i, Len: 300*i + n}
			w.Pieces = append(w.Pieces, part)
			want = append(want, src.Bytes()[part.Off:part.Off+part.Len]...)
		}
		p.receive(t, 1, 0, 1<<16, uint64(n))
		_, err := p.conn[0].Post(context.Background(), &w)
		must(t, err)
		if c := p.take(t, 0, 1)[0]; c.Err != nil {
			t.Errorf("%d pieces: %v", n, c.Err)
		}
		if c := p.take(t, 1, 1)[0]; c.Err != nil || !bytes.Equal(p.mem[1].Bytes()[:c.Len], want) {
			t.Fatalf("of %d pieces with %d bytes in all %d came, %v, or others", n, len(want), c.Len, c.Err)
		}
	}
	one := Piece{Region: src, Len: 8}
	for name, c := range map[string]struct {
		w    Work
		want error
	}{
		"too many":    {Work{Pieces: make([]Piece, MaxPieces+1)}, ErrInvalid},
		"with Local":  {Work{Pieces: []Piece{one}, Local: src}, ErrInvalid},
		"with Inline": {Work{Pieces: []Piece{one}, Inline: []byte{1}}, ErrInvalid},
		"no region":   {Work{Pieces: []Piece{{Len: 1}, one}}, ErrInvalid},
		"last none":   {Work{Pieces: []Piece{one, {Len: 1}}}, ErrInvalid},
		"outside":     {Work{Pieces: []Piece{{src, 1 << 16, 1}, one}}, ErrBounds},
		"negative":    {Work{Pieces: []Piece{{src, 0, -1}, one}}, ErrInvalid},
		"too long":    {Work{Pieces: []Piece{{src, 0, ipc.MaxSend}, one}}, ErrTooLong},
	} {
		c.w.Kind = Send
		if _, err := p.conn[0].Post(NoWait, &c.w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Where a completion queue has no place, nothing is posted, and taking completions makes room.
func TestCompletionQueueFull(t *testing.T) {
	p := newMessagePair(t, Config{})
	cq, err := p.dev[1].NewCompletionQueue(3)
	must(t, err)
	w := Work{Kind: Receive, Local: p.mem[1], Len: 8, Queue: cq}
	for range 3 {
		_, err := p.conn[1].Post(NoWait, &w)
		must(t, err)
	}
	if _, err := p.conn[1].Post(NoWait, &w); err != ErrQueueFull {
		t.Fatalf("one more: %v", err)
	}
	if err := cq.Notify(p.conn[1]); err != ErrQueueFull {
		t.Fatalf("notifications: %v", err)
	}
	op, err := p.conn[0].Post(NoWait, &Work{Kind: Send, Inline: []byte("x")})
	must(t, err)
	must(t, op.Wait(context.Background()))
	var out [3]Completion
	if n, err := cq.Wait(context.Background(), out[:]); n != 1 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	if _, err := p.conn[1].Post(NoWait, &w); err != nil {
		t.Fatalf("after one was taken: %v", err)
	}
	_, err = p.conn[0].Post(NoWait, &Work{Kind: Send, Inline: []byte("x"), Queue: cq})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a queue of another Device: %v", err)
	}
}

// A send finds no buffer: it waits, for as long as it is told to, and a context ends the waiting for it, not itself.
func TestSendPatience(t *testing.T) {
	p := newMessagePair(t, Config{})
	for _, patience := range []time.Duration{-1, 20 * time.Millisecond} {
		op, err := p.conn[0].Post(NoWait, &Work{Kind: Send, Inline: []byte("x"), Patience: patience})
		must(t, err)
		if err := op.Wait(context.Background()); err != ErrNoBuffer {
			t.Errorf("patience %v: %v", patience, err)
		}
	}
	op, err := p.conn[0].Post(NoWait, &Work{Kind: Send, Inline: []byte("patient")})
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := op.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a buffer: %v", err)
	}
	p.receive(t, 1, 0, 64, 1)
	must(t, op.Wait(context.Background()))
	if c := p.take(t, 1, 1)[0]; c.Err != nil || string(p.mem[1].Bytes()[:c.Len]) != "patient" {
		t.Errorf("got %+v", c)
	}
}

// Without patience a message of any length is taken if there is a buffer, else refused at once, and the next one is as
// good as any.
func TestStrictSends(t *testing.T) {
	p := newMessagePair(t, Config{})
	for i := range p.mem[0].Bytes() {
		p.mem[0].Bytes()[i] = byte(i * 7)
	}
	for _, n := range []int{0, 1, 100, 4000, 8000, 60_000} {
		for _, buffer := range []bool{false, true} {
			var want error = ErrNoBuffer
			if buffer {
				p.receive(t, 1, 0, 60_000, 1)
				want = nil
				eventually(t, "the transport has the buffer", 10*time.Second, func() bool {
					p.dev[1].Poll()
					return allTaken(p.dev[1].at.Load())
				})
			}
			op, err := p.conn[0].Post(NoWait, &Work{Kind: Send, Local: p.mem[0], Len: n, Patience: -1})
			must(t, err)
			if err := op.Wait(testContext(t)); err != want {
				t.Fatalf("%d bytes, with a buffer %v: %v, want %v", n, buffer, err, want)
			}
			if !buffer {
				continue
			}
			if c := p.take(t, 1, 1)[0]; c.Err != nil || c.Len != n ||
				!bytes.Equal(p.mem[1].Bytes()[:n], p.mem[0].Bytes()[:n]) {
				t.Errorf("%d bytes: %+v, or others", n, c)
			}
		}
	}
	if n := counted(t, p.dev[1], "rejected_malformed"); n > 0 { // what is rejected comes again, in smaller frames
		t.Errorf("%v frames were rejected", n)
	}
}

// Buffers come back when their connection ends, and when the Device does; until then their memory is busy.
func TestReceivesComeBack(t *testing.T) {
	p := newMessagePair(t, Config{})
	p.receive(t, 1, 0, 8, 1)
	if err := p.mem[1].Close(); err != ErrBusy {
		t.Errorf("memory with a buffer in it closes with %v", err)
	}
	must(t, p.conn[0].Close())
	if c := p.take(t, 1, 1)[0]; c.Err != ErrPeerClosed || c.Context != 1 {
		t.Errorf("at the peer's close: %+v", c)
	}
	p = newMessagePair(t, Config{})
	p.receive(t, 1, 0, 8, 2)
	op, err := p.conn[0].Post(NoWait, &Work{Kind: Send, Inline: []byte("x"), Queue: p.cq[0], Context: 3})
	must(t, err)
	must(t, op.Wait(context.Background()))
	p.take(t, 1, 1)
	p.receive(t, 1, 0, 8, 4)
	must(t, p.dev[1].Close())
	var out [4]Completion
	if n, err := p.cq[1].Wait(context.Background(), out[:]); n != 1 || out[0].Context != 4 || out[0].Err == nil {
		t.Errorf("at the Device's end: %d, %v, %+v", n, err, out[0])
	}
	if n, err := p.cq[1].Wait(context.Background(), out[:]); n != 0 || err == nil {
		t.Errorf("and then %d, %v", n, err)
	}
}

// Receives have slots of their own: a full set of them leaves operations theirs.
func TestReceivesLeaveRoom(t *testing.T) {
	p := newMessagePair(t, Config{QueueDepth: ipc.MinDepth})
	for i := range ipc.MinDepth {
		p.receive(t, 1, 8*i, 8, uint64(i))
	}
	w := Work{Kind: Receive, Local: p.mem[1], Len: 8, Queue: p.cq[1]}
	if _, err := p.conn[1].Post(NoWait, &w); err != ErrAgain {
		t.Errorf("one buffer more than the depth: %v", err)
	}
	p.receive(t, 0, 0, 8, 1)
	op, err := p.conn[1].Post(context.Background(), &Work{Kind: Send, Inline: []byte("y")})
	must(t, err)
	must(t, op.Wait(context.Background()))
	for range 3 * ipc.MinDepth {
		op, err := p.conn[0].Post(context.Background(), &Work{Kind: Send, Inline: []byte("z")})
		must(t, err)
		must(t, op.Wait(context.Background()))
		c := p.take(t, 1, 1)[0]
		p.receive(t, 1, int(8*c.Context), 8, c.Context)
	}
}

// A Post of a buffer waits while all are posted, until its context ends or the peer's message fills one; of a shared
// queue too.
func TestPostWaitsForABuffer(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := newMessagePair(t, Config{QueueDepth: ipc.MinDepth})
		post := p.conn[1].Post
		if shared {
			q, err := p.dev[1].NewReceiveQueue(testContext(t))
			must(t, err)
			must(t, q.Serve(testContext(t), p.conn[1]))
			post = q.Post
		}
		w := Work{Kind: Receive, Local: p.mem[1], Len: 8, Queue: p.cq[1]}
		var all []*Work
		for range ipc.MinDepth {
			all = append(all, &w)
		}
		must(t, second(post(testContext(t), all...)))
		if _, err := post(NoWait, &w); err != ErrAgain {
			t.Errorf("shared %v: one buffer more than the depth: %v", shared, err)
		}
		ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
		if _, err := post(ctx, &w); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shared %v: at the end of its context: %v", shared, err)
		}
		cancel()
		l := &p.dev[1].at.Load().lead
		posted := make(chan error, 1)
		go func() { posted <- second(post(testContext(t), &w)) }()
		eventually(t, "room for a buffer is waited for", 10*time.Second, l.isTaken)
		must(t, second(p.conn[0].Post(testContext(t), &Work{Kind: Send, Inline: []byte("x")})))
		must(t, <-posted)
		must(t, p.conn[1].Close()) // those that wait when the connection ends go, too
	}
}

// allTaken reports whether the transport has taken everything from the submission ring.
func allTaken(d *attachment) bool {
	d.out.post.Lock()
	defer d.out.post.Unlock()
	n, err := d.out.sq.RoomFor(len(d.slots.free))
	return err == nil && n == len(d.slots.free)
}

// counted is a counter of a Device's transport.
func counted(t testing.TB, d *Device, name string) float64 {
	t.Helper()
	body, err := d.status(testContext(t), "status")
	must(t, err)
	var st struct{ Counters map[string]float64 }
	must(t, json.Unmarshal(body, &st))
	return st.Counters[name]
}
