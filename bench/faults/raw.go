package faults

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/raw"
	"multiedge/internal/ipc"
)

// Kinds of raw clients.
const (
	rawBounds   = "bounds"   // keys and ranges that no correct client uses
	rawGuess    = "guess"    // keys at random, as fast as they are answered
	rawScribble = "scribble" // clients that break the ring protocol, one after another
	rawPending  = "pending"  // dials to a node that is off, without waiting for answers
)

func runRaw(ctx context.Context, w *worker) {
	w.emit(Event{Started: true})
	r := Result{Types: map[string]uint64{}}
	start := time.Now()
	switch w.job.Kind {
	case rawBounds:
		bounds(ctx, &w.job, &r)
	case rawGuess:
		guess(ctx, &w.job, &r)
	case rawScribble:
		scribble(ctx, &w.job, &r)
	case rawPending:
		c := newRawClient(ctx, w.job.Socket)
		defer c.Close()
		c.pending(ctx, &w.job, &r)
	default:
		kit.Fail("job: kind %q is unknown", w.job.Kind)
	}
	if r.Seconds == 0 {
		r.Seconds = time.Since(start).Seconds()
	}
	w.answer(result, &r)
	w.serve(ctx, nil)
}

// bounds posts operations that must be refused, each with its own error, and one that must not.
func bounds(ctx context.Context, job *Job, r *Result) {
	c := newRawClient(ctx, job.Socket)
	defer c.Close()
	conn, key, size := c.dial(job, 1)
	other, foreign, _ := c.dial(job, 2)
	tests := []struct {
		name string
		e    ipc.SQE
		want ipc.Status
	}{
		{"good", ipc.SQE{Conn: conn, Key: key, RemoteOff: gap}, ipc.StatusOK},
		{"offset 2^64-8, length 8", ipc.SQE{Conn: conn, Key: key, RemoteOff: 1<<64 - 8}, ipc.StatusBounds},
		{"last byte and seven more", ipc.SQE{Conn: conn, Key: key, RemoteOff: size - 1}, ipc.StatusBounds},
		{"far beyond the end", ipc.SQE{Conn: conn, Key: key, RemoteOff: 1 << 62}, ipc.StatusBounds},
		{"key of another connection", ipc.SQE{Conn: conn, Key: foreign, RemoteOff: gap}, ipc.StatusOwner},
		{"key of another connection, the other way", ipc.SQE{Conn: other, Key: key, RemoteOff: gap}, ipc.StatusOwner},
		{"key next to a true one", ipc.SQE{Conn: conn, Key: key + 1, RemoteOff: gap}, ipc.StatusKey},
		{"no key", ipc.SQE{Conn: conn, RemoteOff: gap}, ipc.StatusKey},
		{"connection of nobody", ipc.SQE{Conn: 1 << 30, Key: key}, ipc.StatusNoConn},
		{"good again", ipc.SQE{Conn: conn, Key: key, RemoteOff: gap}, ipc.StatusOK},
	}
	for i := range tests {
		e := &tests[i].e
		e.Op, e.InlineLen, e.Token = ipc.OpWrite, 8, uint64(i)+1
		got, err := c.post([]ipc.SQE{*e})
		if err != nil {
			kit.Fail("%s: %w", tests[i].name, err)
		}
		st := got[e.Token]
		r.Types[st.Code().String()]++
		if st != ipc.StatusOK {
			r.Failed++
		}
		if st != tests[i].want {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: answered %s, want %s", tests[i].name, st.Code(),
				tests[i].want.Code()))
		}
		r.Done++
	}
}

// guess tries keys at random.
func guess(ctx context.Context, job *Job, r *Result) {
	c := newRawClient(ctx, job.Socket)
	defer c.Close()
	conn, _, _ := c.dial(job, 1)
	rng, start := rand.New(rand.NewPCG(job.Seed, 7)), time.Now()
	defer func() { r.Seconds = time.Since(start).Seconds() }()
	for int(r.Done) < job.Count {
		es := make([]ipc.SQE, rawDepth)
		for i := range es {
			es[i] = ipc.SQE{Op: ipc.OpWrite, InlineLen: 8, Conn: conn, Key: rng.Uint64() | 1, RemoteOff: gap,
				Token: uint64(i)}
		}
		got, err := c.post(es)
		for _, st := range got {
			r.Types[st.Code().String()]++
			r.Done++
			if st == ipc.StatusOK {
				r.Wrong = append(r.Wrong, "a guessed key was good")
			}
		}
		if err != nil {
			r.Types["cut off"]++ // the daemon ends the client: that is a limit, too
			return
		}
	}
}

// Offsets in the shared rings, as package ipc lays them out.
const (
	atSQTail = 0
	atSQ     = 4096
)

// scribbles are ways to damage the memory and sockets that a client shares with the daemon. The daemon must tolerate
// those with mild set. The others must end the client, and no other client. A way ends by kit.Check if it must not work
// and does.
var scribbles = []struct {
	name string
	mild bool
	do   func(c *rawClient)
}{
	{"tail far ahead", false, func(c *rawClient) { c.setTail(1 << 20) }},
	{"tail behind", false, func(c *rawClient) { c.setTail(^uint32(0)) }},
	{"unknown operation", false, func(c *rawClient) {
		c.Mem[atSQ] = 77
		c.setTail(1)
	}},
	{"local range that wraps", false, func(c *rawClient) {
		ipc.EncodeSQE(c.Mem[atSQ:], &ipc.SQE{Op: ipc.OpWrite, LocalOff: 1<<64 - 8, Len: 16})
		c.setTail(1)
	}},
	{"noise in every word", false, func(c *rawClient) {
		for i := range c.Mem {
			c.Mem[i] = byte(i*131 + 17)
		}
	}},
	{"memfd truncated", true, func(c *rawClient) {
		if unix.Ftruncate(c.RingsFD, 0) == nil {
			kit.Fail("the rings could be truncated")
		}
	}},
	{"memfd punched", true, func(c *rawClient) { // harms only the client
		_ = unix.Fallocate(c.RingsFD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(c.Mem)))
	}},
}

// setTail says how many submissions there are.
func (c *rawClient) setTail(n uint32) { binary.LittleEndian.PutUint32(c.Mem[atSQTail:], n) }

// scribble breaks the rules in every way, each time as a new client.
func scribble(ctx context.Context, job *Job, r *Result) {
	for _, s := range scribbles {
		c := newRawClient(ctx, job.Socket)
		if err := kit.Try(func() { s.do(c) }); err != nil {
			r.Wrong = append(r.Wrong, s.name+": "+err.Error())
		}
		c.Bell.Ring()
		r.Done++
		if !s.mild {
			if err := c.gone(); err != nil {
				r.Wrong = append(r.Wrong, s.name+": "+err.Error())
			} else {
				r.Failed++
			}
		}
		c.Close()
	}
}

// rawClient is a client of a scenario that speaks the daemon's protocol by hand.
type rawClient struct{ *raw.Client }

const rawDepth = 64

// rawTime bounds the wait for any answer of the daemon.
const rawTime = 5 * time.Second

func newRawClient(ctx context.Context, socket string) *rawClient {
	return &rawClient{kit.Get(raw.Attach(kit.Get(ipc.Dial(ctx, socket)), rawDepth, rawTime))}
}

// gone waits until the daemon ends the session. It returns an error if the daemon does not.
func (c *rawClient) gone() error {
	start := time.Now()
	_, _, err := c.Next(func(*ipc.Message) bool { return false })
	if err == nil || time.Since(start) >= rawTime {
		return errors.New("the daemon kept a client that broke the rules")
	}
	return nil
}

// dial connects to a server of a scenario and returns the connection's number and the key of what it exports.
func (c *rawClient) dial(job *Job, n int) (conn uint32, key uint64, size uint64) {
	conn, key, size, err := c.Connect(job.Peer, job.Service, kit.Get(json.Marshal(greeting{
		ID: fmt.Sprintf("%s-%d", job.Name, n), Size: 64 << 10, Seed: job.Seed})))
	kit.Check(err)
	return conn, key, size
}

// post publishes submissions, waits for as many completions and returns them by token.
func (c *rawClient) post(es []ipc.SQE) (map[uint64]ipc.Status, error) {
	out := map[uint64]ipc.Status{}
	for i := range es {
		c.SQ.Put(&es[i])
	}
	c.Publish()
	var buf [rawDepth]ipc.CQE
	for start := time.Now(); len(out) < len(es); {
		n, err := c.CQ.Drain(buf[:])
		if err != nil {
			return out, err
		}
		for _, e := range buf[:n] {
			if _, twice := out[e.Token]; twice {
				return out, fmt.Errorf("operation %d completed twice", e.Token)
			}
			out[e.Token] = e.Status
		}
		if n == 0 {
			if time.Since(start) > rawTime {
				return out, fmt.Errorf("%d of %d operations completed", len(out), len(es))
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return out, nil
}
