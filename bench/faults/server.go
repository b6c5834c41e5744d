package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"net"
	"strings"
	"sync"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/edge"
)

// greeting is the private data of a client's dial.
type greeting struct {
	ID      string `json:"id"`
	Size    int    `json:"size"`
	Seed    uint64 `json:"seed"`
	Buffers int    `json:"buffers,omitempty"` // buffers for messages, instead of exported memory
	Shared  bool   `json:"shared,omitempty"`  // the buffers belong to a queue that connections share
}

// exportName is the name of what a server exports on each connection.
const exportName = "memory"

// server offers memory to clients and compares it with what they claim afterwards.
type server struct {
	w       *worker
	mu      sync.Mutex
	targets map[string]*target
	void    map[string]bool // connections that their clients gave up before they arrived here, and killed clients
	idlers  []*edge.Conn    // connections without memory
	before  Rest
}

// attachment is a Device and the number of targets with memory on it.
type attachment struct {
	dev   *edge.Device
	users int
	over  bool // no more will come
	box   *mailbox
	queue *edge.ReceiveQueue // of box
}

// target is the memory of one connection, kept until it has been compared.
type target struct {
	id     string
	seed   uint64 // of the initial content
	conn   *edge.Conn
	region *edge.Region
	memory []byte // of region, as much as its client asked for
	grant  *edge.Grant
	on     *attachment
	over   chan struct{} // closed when the connection has ended and notes is complete
	notes  map[uint32]note
	sum    uint64
	sealed bool // sum was taken; guarded by server.mu

	why     error           // the connection ended; set before over is closed
	crashed bool            // because this side's daemon died; likewise
	letters *correspondence // nil: its memory is exported
}

var crcTable = crc64.MakeTable(crc64.ECMA)

func runServer(ctx context.Context, w *worker) {
	s := &server{w: w, targets: map[string]*target{}, void: map[string]bool{}, before: thisRest()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.sweep(ctx) })
	go func() { done <- s.serve(ctx) }()
	w.serve(ctx, orders{"verify": on(s.verifyHanded), "revoke": on(s.revoke), "forget": on(s.forget)})
	cancel()
	err := <-done
	sweeping.Wait()
	rest := settle(s.before)
	w.emit(Event{Rest: &rest})
	kit.Check(err)
}

// serve offers the service until ctx ends, again whenever the daemon went away.
func (s *server) serve(ctx context.Context) error {
	for first := true; ; first = false {
		a, l, err := s.attach(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if first {
				return err
			}
			if !sleep(ctx, 20*time.Millisecond) {
				return nil
			}
			continue
		}
		s.w.emit(Event{Started: true})
		s.accept(ctx, a, l)
		s.leave(a)
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (s *server) attach(ctx context.Context) (*attachment, *edge.Listener, error) {
	dev, err := edge.Open(ctx, edge.Config{Socket: s.w.job.Socket})
	if err != nil {
		return nil, nil, err
	}
	l, err := dev.Listen(ctx, s.w.job.Service)
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return &attachment{dev: dev}, l, nil
}

// accept takes connections until the device dies or ctx ends.
func (s *server) accept(ctx context.Context, a *attachment, l *edge.Listener) {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		if err := kit.Try(func() { s.take(ctx, a, c) }); err != nil {
			s.w.emit(Event{Note: fmt.Sprintf("connection of %s: %v", c.Peer(), err)})
			c.Abort()
		}
	}
}

// leave closes an attachment once all its targets have been compared. When the process ends, it also closes one whose
// targets never will be.
func (s *server) leave(a *attachment) {
	s.mu.Lock()
	a.over = true
	idle := a.users == 0
	s.mu.Unlock()
	if idle || a.dev.Err() == nil {
		a.dev.Close()
	}
}

func (s *server) take(ctx context.Context, a *attachment, c *edge.Conn) {
	var g greeting
	err := json.Unmarshal(c.Data(), &g)
	if err == nil && g.Size == 0 {
		s.idle(c)
		return
	}
	if err != nil || g.Size <= 2*guard {
		kit.Fail("greeting %q: %w", c.Data(), errors.Join(err, edge.ErrInvalid))
	}
	t := &target{id: g.ID, seed: g.Seed, conn: c, on: a, over: make(chan struct{}), notes: map[uint32]note{}}
	if g.Buffers > 0 {
		s.correspond(ctx, t, &g)
		return
	}
	t.region = kit.Get(s.w.job.memory(ctx, a.dev, g.Size))
	t.memory = t.region.Bytes()[:g.Size]
	background(pattern.New(g.Seed), t.memory)
	t.grant, err = t.region.Export(c, exportName, edge.RemoteRead|edge.RemoteWrite, guard, g.Size-2*guard)
	if err != nil {
		kit.Check(errors.Join(err, t.region.Close()))
	}
	if !s.keep(t) {
		go c.Abort()
		kit.Check(t.region.Close())
		return
	}
	go s.follow(ctx, t)
}

// keep records a target, unless its client no longer wants it.
func (s *server) keep(t *target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unwanted(t.id) {
		return false
	}
	s.targets[t.id] = t
	t.on.users++
	return true
}

// unwanted reports whether the client of a connection failed to get it, or is gone for good. The caller holds mu.
func (s *server) unwanted(id string) bool {
	return s.void[id] || s.void[id[:max(0, strings.LastIndexByte(id, '-'))]]
}

// idle keeps a connection that wants no memory until it ends.
func (s *server) idle(c *edge.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idlers = append(s.idlers, c)
}

// sweep releases connections without memory that have ended.
func (s *server) sweep(ctx context.Context) {
	for sleep(ctx, 10*time.Millisecond) {
		s.mu.Lock()
		kept, over := s.idlers[:0], []*edge.Conn(nil)
		for _, c := range s.idlers {
			if c.Err() == nil {
				kept = append(kept, c)
			} else {
				over = append(over, c)
			}
		}
		s.idlers = kept
		s.mu.Unlock()
		for _, c := range over {
			c.Close()
		}
	}
}

// settle waits until the process holds no more than before, or a short time has passed, and returns what it holds.
func settle(before Rest) Rest {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		now := thisRest()
		if now.Goroutines <= before.Goroutines && now.Descriptors <= before.Descriptors || time.Now().After(deadline) {
			return Rest{now.Goroutines - before.Goroutines, now.Descriptors - before.Descriptors,
				now.Locked - before.Locked}
		}
	}
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// isEnd reports whether an error means that a connection is over in good order.
func isEnd(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, edge.ErrPeerClosed)
}

// follow takes notifications until the connection ends.
func (s *server) follow(ctx context.Context, t *target) {
	var err error
	for {
		var n edge.Notification
		if n, err = t.conn.WaitNotify(ctx); err != nil {
			break
		}
		was := t.notes[n.Imm]
		t.notes[n.Imm] = note{was.times + 1, n.Len}
	}
	t.why = err
	s.ended(t)
}

// ended records that a connection has ended and that everything that came over it was taken.
func (s *server) ended(t *target) {
	name, _ := typeOf(t.why)
	t.crashed = errors.Is(t.why, edge.ErrDaemonDown)
	s.mu.Lock()
	if !t.sealed {
		t.seal()
	}
	s.mu.Unlock()
	close(t.over)
	if !errors.Is(t.why, context.Canceled) {
		s.w.emit(Event{Ended: &Ended{ID: t.id, Type: name, At: time.Now()}})
	}
	t.conn.Close() // it has ended; what this side still knows of it goes
}

// wrong reports what must never happen, at a target if there is one.
func (s *server) wrong(t *target, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if t != nil {
		what = t.id + ": " + what
	}
	s.w.emit(Event{Wrong: what})
}

// seal takes a checksum of the memory: from now on it may not change.
func (t *target) seal() { t.sum, t.sealed = crc64.Checksum(t.memory, crcTable), true }

// verifyHanded compares memory with what a client handed in.
func (s *server) verifyHanded(h Handed) *Checked {
	c := Claim{ID: h.Void}
	if h.File != "" {
		kit.Check(readFile(h.File, &c))
	}
	return s.verify(&c)
}

// revoke withdraws every export and takes a checksum of its memory at that moment. It returns how many there were.
func (s *server) revoke(any) (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.targets {
		if t.conn.Err() == nil && t.grant != nil && t.grant.Revoke() == nil {
			t.seal()
			n++
		}
	}
	return n
}

// forget releases the memory of a killed client, once its connections have ended. It returns what is wrong.
func (s *server) forget(client string) (wrong []*Checked) {
	s.mu.Lock()
	s.void[client] = true // its last dials may still arrive
	var mine []*target
	for id, t := range s.targets {
		if strings.HasPrefix(id, client+"-") {
			mine = append(mine, t)
			delete(s.targets, id)
		}
	}
	s.mu.Unlock()
	for _, t := range mine {
		select {
		case <-t.over:
			s.release(t)
		case <-time.After(verifyTime):
			wrong = append(wrong, &Checked{ID: t.id, Wrong: 1,
				Details: []string{"the connection of a killed client has not ended"}})
		}
	}
	return wrong
}

// verifyTime bounds how long a server waits for the end of a connection whose client is done with it.
const verifyTime = 30 * time.Second

// verify compares the memory of a connection with a claim, and releases it. A claim without bytes is of a connection
// that the client never had: then memory must be unchanged.
func (s *server) verify(c *Claim) *Checked {
	s.mu.Lock()
	t := s.targets[c.ID]
	delete(s.targets, c.ID)
	out := Checked{ID: c.ID, Void: c.Bytes == nil}
	switch {
	case t != nil:
	case out.Void || s.unwanted(c.ID): // the connection has not arrived; it is refused if it does
		s.void[c.ID] = true
	default:
		out.Wrong = len(c.Bytes)
		out.say("the server has no memory of that connection, whose client wrote to it")
	}
	s.mu.Unlock()
	if t == nil {
		return &out
	}
	select {
	case <-t.over:
	case <-time.After(verifyTime):
		return &Checked{ID: c.ID, Wrong: 1, Details: []string{"the server's end of the connection has not ended"}}
	}
	got := t.memory
	if c.Bytes == nil || t.region == nil {
		c.Bytes = newOracle(t.seed, len(got)).bytes
	}
	void := out.Void
	out = c.compare(got)
	out.Void = void
	c.notes(&out, t.notes, t.crashed)
	if t.letters != nil {
		t.letters.counts(&out, c, t.crashed)
	}
	if out.Late = crc64.Checksum(got, crcTable) != t.sum; out.Late {
		out.say("memory changed after the connection's end")
	}
	s.release(t)
	return &out
}

// release gives a target's memory back. It also closes the target's attachment if that is over and no other target uses
// it.
func (s *server) release(t *target) {
	if t.region != nil {
		if err := t.region.Close(); err != nil && t.on.dev.Err() == nil {
			s.w.emit(Event{Note: fmt.Sprintf("deregistering: %v", err)})
		}
	}
	s.mu.Lock()
	t.on.users--
	last := t.on.over && t.on.users == 0
	s.mu.Unlock()
	if last {
		t.on.dev.Close()
	}
}
