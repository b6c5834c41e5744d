package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// What packages above this one use besides exported names: package inner says how they reach it.

func init() { inner.Edge = door{} }

// door has what inner.Edge promises.
type door struct{}

// Shared returns the Device behind Dial and Listen.
func (door) Shared(ctx context.Context) (*Device, error) { return sharedDevice(ctx) }

// OpenOn is Open of an embedded transport whose links plug makes.
func (door) OpenOn(ctx context.Context, cfg Config, plug func(string) (linkdrv.Driver, error)) (*Device, error) {
	e := *cfg.Embedded
	e.open = plug
	cfg.Embedded = &e
	return Open(ctx, cfg)
}

// Status returns what the transport says of itself.
func (door) Status(ctx context.Context, d *Device, what string) (json.RawMessage, error) {
	return d.status(ctx, what)
}

// Authorise sets the peers of an embedded node.
func (door) Authorise(d *Device, peers map[string]string) error { return d.authorise(peers) }

// Log returns where the Device logs.
func (door) Log(d *Device) *slog.Logger { return d.log() }

// Ended returns the error of a context that ended a wait on the Device.
func (door) Ended(ctx context.Context, d *Device) error { return d.at.Load().ended(ctx) }

// Conns returns how many connections the Device has, requests that are neither accepted nor refused included.
func (door) Conns(d *Device) int {
	t := &d.at.Load().conns
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byNumber)
}

// Silent reports whether the daemon of a connection has not run for some time.
func (door) Silent(c *Conn) bool { return c.d.life.silent.Load() }

// Down returns why the daemon of a connection is lost, nil while it is there.
func (door) Down(c *Conn) error { return c.d.Err() }

// Lent is a DialOption: when the peer closes the connection, memory was revoked.
func (door) Lent() DialOption { return func(o *dialOptions) { o.lent = true } }

// Tap gives t all notifications of c, those that came already first.
func (door) Tap(c *Conn, t inner.Tap) {
	c.notes.attach(t)
	c.d.returnCredit(c)
}

// Divert gives s the notifications of an export, those that came already first. ErrExists: they go elsewhere already.
func (door) Divert(g *Grant, s inner.Sink) error {
	due, err := g.conn.notes.divert(g.key, s)
	if due {
		g.conn.d.returnCredit(g.conn)
	}
	if err == nil && g.conn.drained.Load() { // perhaps before s was there to be told
		s.Ended(g.conn.Err())
	}
	return err
}

// Restore undoes Divert.
func (door) Restore(g *Grant, s inner.Sink) { g.conn.notes.restore(g.key, s) }

// Poll looks for completions, unless another goroutine does so.
func (door) Poll(c *Conn) { c.d.poll() }

// NewCond makes a Cond of a connection. ready must be quick and wait for nothing: whoever looks for completions asks
// it. few, asked likewise, says how many operations must end well before ready can hold: 0 if none of them matters, -n
// if what matters is n notifications; nil is one.
func (door) NewCond(c *Conn, ready func() bool, few func() int) inner.Cond {
	return &cond{d: c.d, c: c, ready: ready, few: few}
}

// WaitIdle returns when c has no operation in flight, with nil, or with the error of ctx.
func (door) WaitIdle(ctx context.Context, c *Conn) error {
	return c.d.wait(ctx, waiter{kind: waitIdle, conn: c})
}

// Settled is Op.Done that does not look at the completion ring.
func (door) Settled(op Op) bool { return op.settled() }

// Usable returns why nothing can be posted on c, if so.
func (door) Usable(c *Conn) error { return c.usable() }

// Change returns what is closed when c ends, or at the next change of what the peer exports.
func (door) Change(c *Conn) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextChange()
}

// CheckExport checks what an export of all of r, memory of d, asks for.
func (door) CheckExport(d *Device, r *Region, name string, perm Perm) error {
	if r == nil || r.d.dev != d {
		return invalid("Export: the region must be of this Device")
	}
	return checkExport(r, name, perm, 0, r.size)
}

// Exported returns what the peer of c exports under name, nil if it does not yet.
func (door) Exported(c *Conn, name string) *RemoteRegion {
	r, _ := c.lookup(name)
	return r
}

// GiveUp makes r unusable at once. It reports false if the peer had revoked it already.
func (door) GiveUp(r *RemoteRegion) bool { return !r.revoked.Swap(true) }

// Revoked reports whether r was revoked or given up.
func (door) Revoked(r *RemoteRegion) bool { return r.revoked.Load() }

// Check checks a range of memory for a connection.
func (door) Check(c *Conn, r *Region, off, n int) error {
	switch {
	case r == nil || r.d.dev != c.d.dev:
		return invalid("the region must be of the connection's Device")
	case r.d != c.d:
		return ErrStale
	case r.bytes == nil:
		return errNoBytes
	case off < 0 || n < 0 || off > r.size || n > r.size-off:
		return fmt.Errorf("%w: %d bytes at %d, of a region of %d", ErrBounds, n, off, r.size)
	}
	return nil
}

// Whole reports whether all of r is pinned and mapped by the daemon.
func (door) Whole(r *Region) bool { return r.whole() }

// Copy copies n bytes of from to to, where the owner of either may close it meanwhile.
func (door) Copy(to *Region, off int, from *Region, at, n int) error {
	return to.copyFrom(off, from, at, n)
}

// Export is Region.Export that gives up when ctx ends; the memory may be exported then until the connection ends.
func (door) Export(ctx context.Context, r *Region, c *Conn, name string, perm Perm, off, n int) (*Grant, error) {
	return r.export(ctx, c, name, perm, off, n)
}

// Redirect posts a redirection.
func (door) Redirect(g *Grant, off, n int, to *Region, toOff int) (inner.Redirection, error) {
	r, err := g.redirect(off, n, to, toOff)
	if err != nil {
		return nil, err
	}
	return tended{r}, nil
}

// tended is a redirection as inner has it.
type tended struct{ r *redirection }

func (t tended) Done() bool                     { return t.r.op.Done() }
func (t tended) Wait(ctx context.Context) error { return t.r.op.Wait(ctx) }
func (t tended) End(ctx context.Context) error  { return t.r.end(ctx) }
func (t tended) PostEnd() bool                  { return t.r.postEnd() }
func (t tended) Settled() bool                  { return t.r.op.settled() }
func (t tended) CopyRest() error                { return t.r.copyRest() }

func (t tended) Spans() (out [2]inner.Span) {
	for i, s := range t.r.spans {
		out[i] = inner.Span{Lo: s.off, Hi: s.off + s.len}
	}
	return out
}

// Compose begins a composed message.
func (door) Compose(c *Conn, w Work) (Op, error) { return c.compose(&w) }

// SayOf posts what is said about a composed message.
func (door) SayOf(c *Conn, op Op, e ipc.SQE) error { return c.d.say(c, op, e) }

// MapSpace makes a space.
func (door) MapSpace(ctx context.Context, d *Device, size int, m ipc.Space, before func(a, b regmem.ChunkUse) bool) (
	*Region, error) {
	return d.mapSpace(ctx, size, m, before)
}

// Advise asks the daemon to pin or unpin a range of a space.
func (door) Advise(ctx context.Context, r *Region, what ipc.Advice, off, n int) error {
	return r.advise(ctx, what, off, n)
}

// Resident reports whether a range is pinned, as far as this process sees.
func (door) Resident(r *Region, off, n int) bool { return r.resident(off, n) }

// SpaceUsage asks the daemon for the counts of a space.
func (door) SpaceUsage(ctx context.Context, r *Region) (ipc.Usage, error) { return r.usage(ctx) }

// GrantHeap makes a region of memory where it is; bytes is nil for a range of addresses.
func (door) GrantHeap(ctx context.Context, d *Device, addr, size uint64, bytes []byte) (*Region, error) {
	return d.grantHeap(ctx, heapMemory{addr: addr, size: int(size), bytes: bytes})
}

// HeapAddr returns where a heap grant begins, 0 for other regions.
func (door) HeapAddr(r *Region) uint64 {
	if r.heap == nil {
		return 0
	}
	return r.heap.addr
}

// cond is an inner.Cond.
type cond struct {
	d       *attachment
	c       *Conn
	ready   func() bool
	few     func() int
	waiters *waiter // guarded by leadership.mu
}

func (h *cond) Wait(ctx context.Context) error {
	return h.d.wait(ctx, waiter{kind: waitCond, conn: h.c, cond: h})
}

func (h *cond) WaitRoom(ctx context.Context) error {
	return h.d.wait(ctx, waiter{kind: waitRoom, conn: h.c, cond: h})
}

// Wake wakes those who wait. The caller leads; a leader that waits looks anyway.
func (h *cond) Wake() {
	if h.d.lead.followers.Load() > 0 {
		h.d.lead.wake(&h.waiters)
	}
}

func (h *cond) Interrupt() {
	l := &h.d.lead
	l.wake(&h.waiters)
	if l.others.Load() > 0 {
		l.wakeAll(false)
	}
	h.d.kick()
}
