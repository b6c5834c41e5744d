package edge

import (
	"context"

	"multiedge/internal/ipc"
)

// Span is bytes Off to Off+Len of a redirection.
type Span struct{ Off, Len int }

// Redirection sends what a peer writes into part of an export to other registered memory (VMMC §4.1). The peer knows
// nothing of it. It ends when every byte has been redirected, by End or Take, or with the export.
type Redirection struct {
	g     *Grant
	op    Op
	off   int // within the export
	n     int
	to    *Region
	toOff int
	spans [2]Span // redirected; set by the leader before op is done
}

// Redirect puts data that arrives from now on for bytes off to off+n of the export into region to instead, from its
// byte toOff on. Data that arrived before stays where it is; End and Take tell which bytes those are. Until the
// redirection has ended, these bytes of to belong to it, and it takes a place among the operations in flight. A
// connection has at most 64 redirections, and none may overlap. ErrAgain means that the queue is full, ErrVersion that
// the daemon has no redirection.
func (g *Grant) Redirect(off, n int, to *Region, toOff int) (*Redirection, error) {
	d := g.conn.d
	d.out.post.Lock()
	defer d.out.post.Unlock()
	r, err := g.redirect(off, n, to, toOff)
	if err == nil {
		d.publish()
	}
	return r, err
}

// redirects reports whether the daemon has redirection.
func (d *attachment) redirects() bool { return d.features&ipc.FeatureRedirect != 0 }

// redirect is Redirect for a caller that holds attachment.out.post and publishes.
func (g *Grant) redirect(off, n int, to *Region, toOff int) (*Redirection, error) {
	c := g.conn
	d := c.d
	switch {
	case !d.redirects():
		return nil, ErrVersion
	case off < 0 || n <= 0 || off > g.n || n > g.n-off,
		to != nil && (toOff < 0 || toOff > to.size || n > to.size-toOff):
		return nil, ErrBounds
	}
	r := &Redirection{g: g, off: off, n: n, to: to, toOff: toOff}
	if err := c.usable(); err != nil {
		return nil, err
	}
	switch {
	case to == nil || to.d != d || to.closed:
		return nil, errLocal
	case to.space != nil || to.heap != nil:
		return nil, invalid("Redirect: the memory must be registered whole, not a space of Device.Map or a heap grant")
	case g.region.heap != nil:
		return nil, invalid("Redirect: a heap grant cannot be redirected; export memory that Register returns")
	}
	d.out.sqe = ipc.SQE{Op: ipc.OpRedirect, Conn: c.id, Key: g.key, RemoteOff: uint64(off), Region: to.id,
		LocalOff: uint64(toOff), Len: uint64(n)}
	if !c.slotFree() {
		return nil, ErrAgain
	}
	i := d.slots.free[d.out.freeHead&uint32(len(d.slots.free)-1)]
	d.slots.list[i].extra, d.slots.extras[i].redirection = true, r // first: the operation may end at once
	op, err := c.launch(to, noBounce, nil)
	if err != nil {
		d.slots.list[i].extra, d.slots.extras[i].redirection = false, nil
		return nil, err
	}
	r.op = op
	return r, nil
}

// Done reports whether the redirection has ended.
func (r *Redirection) Done() bool { return r.op.Done() }

// Wait waits until every byte has been redirected, or the redirection has ended otherwise. It returns the error of ctx
// when that ends first, and why it ended: ErrKey when the export was revoked, ErrExists when another redirection had
// part of it, the reason of the connection's end.
func (r *Redirection) Wait(ctx context.Context) error { return r.op.Wait(ctx) }

// End ends the redirection, unless it has ended, and returns which of its bytes were redirected, in order. These bytes
// are in the other memory, all others in the export. If the error is that of ctx, the redirection has not ended. With
// any other error, those of Wait, the spans are valid.
func (r *Redirection) End(ctx context.Context) ([]Span, error) {
	d := r.g.conn.d
	for posted := false; !posted && !r.op.Done(); {
		if posted = r.postEnd(); !posted {
			if err := d.wait(ctx, waiter{kind: waitRoom, conn: r.g.conn}); err != nil {
				return nil, err
			}
		}
	}
	err := r.op.Wait(ctx)
	if !r.op.settled() {
		return nil, err
	}
	var out []Span
	for _, s := range r.spans {
		if s.Len > 0 {
			out = append(out, s)
		}
	}
	return out, err
}

// postEnd reports false when there is no room in the ring.
func (r *Redirection) postEnd() bool {
	c := r.g.conn
	d := c.d
	d.out.post.Lock()
	defer d.out.post.Unlock()
	if d.out.detached || c.Err() != nil {
		return true // it ends by itself
	}
	if n, err := d.out.sq.Room(); n == 0 || err != nil {
		return false
	}
	d.out.sqe = ipc.SQE{Op: ipc.OpEndRedirect, Conn: c.id, Token: opKey(r.op.slot, r.op.gen)}
	d.out.sq.Put(&d.out.sqe)
	d.publish()
	return true
}

// Take is like End, but also copies the bytes that were not redirected. So all bytes are in the other memory
// afterwards, as the export would have them.
func (r *Redirection) Take(ctx context.Context) ([]Span, error) {
	spans, err := r.End(ctx)
	if !r.op.settled() {
		return nil, err
	}
	cerr := r.rest(func(lo, hi int) error {
		return r.to.copyFrom(r.toOff+lo, r.g.region, r.g.off+r.off+lo, hi-lo)
	})
	if cerr != nil {
		return spans, cerr
	}
	return spans, err
}

// rest calls f for each part lo to hi of a redirection that has ended which was not redirected.
func (r *Redirection) rest(f func(lo, hi int) error) error {
	at := 0
	for _, s := range append(r.spans[:], Span{r.n, 0}) {
		if s.Len == 0 && s.Off != r.n {
			continue
		}
		if at < s.Off {
			if err := f(at, s.Off); err != nil {
				return err
			}
		}
		at = s.Off + s.Len
	}
	return nil
}

// redirected takes the end of a redirection. The leader calls it. It reports false for one that cannot be right.
func (d *attachment) redirected(e *ipc.CQE) bool {
	i, gen := uint32(e.Token), uint32(e.Token>>32)
	if i >= uint32(len(d.slots.free)) {
		return false
	}
	s := &d.slots.list[i]
	if gen&1 == 0 || s.gen.Load() != gen || s.conn.id != e.Conn || d.slots.extras[i].redirection == nil {
		return false
	}
	r := d.slots.extras[i].redirection
	r.spans = [2]Span{{int(e.Imm), int(e.Len)}, {int(e.Off >> 32), int(uint32(e.Off))}}
	if r.spans[0].Off+r.spans[0].Len > r.n || r.spans[1].Len > 0 && (r.spans[1].Off < r.spans[0].Off+r.spans[0].Len ||
		r.spans[1].Off+r.spans[1].Len > r.n) {
		return false
	}
	d.complete(i, gen, e.Status)
	return true
}
