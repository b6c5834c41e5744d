package edge

import (
	"context"

	"multiedge/internal/ipc"
)

// span is bytes off to off+len of a redirection.
type span struct{ off, len int }

// redirection sends what a peer writes into part of an export to other registered memory (VMMC §4.1). Package redirect
// gives it to programs; streams use it, too.
type redirection struct {
	g     *Grant
	op    Op
	off   int // within the export
	n     int
	to    *Region
	toOff int
	spans [2]span // redirected; set by the leader before op is done
}

// redirect posts a redirection.
func (g *Grant) redirect(off, n int, to *Region, toOff int) (*redirection, error) {
	c := g.conn
	d := c.d
	d.out.post.Lock()
	defer d.out.post.Unlock()
	switch {
	case d.features&ipc.FeatureRedirect == 0:
		return nil, ErrVersion
	case off < 0 || n <= 0 || off > g.n || n > g.n-off,
		to != nil && (toOff < 0 || toOff > to.size || n > to.size-toOff):
		return nil, ErrBounds
	}
	r := &redirection{g: g, off: off, n: n, to: to, toOff: toOff}
	if err := c.usable(); err != nil {
		return nil, err
	}
	switch {
	case to == nil || to.d != d || to.closed:
		return nil, errLocal
	case to.space != nil || to.heap != nil:
		return nil, invalid("Redirect: the memory must be registered whole, not a space or a heap grant")
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
	d.publish()
	return r, nil
}

// end ends the redirection, unless it has ended, and returns why it ended. If the error is that of ctx, it has not.
func (r *redirection) end(ctx context.Context) error {
	d := r.g.conn.d
	for posted := false; !posted && !r.op.Done(); {
		if posted = r.postEnd(); !posted {
			if err := d.wait(ctx, waiter{kind: waitRoom, conn: r.g.conn}); err != nil {
				return err
			}
		}
	}
	return r.op.Wait(ctx)
}

// postEnd reports false when there is no room in the ring.
func (r *redirection) postEnd() bool {
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

// copyRest copies the bytes that were not redirected.
func (r *redirection) copyRest() error {
	return r.rest(func(lo, hi int) error {
		return r.to.copyFrom(r.toOff+lo, r.g.region, r.g.off+r.off+lo, hi-lo)
	})
}

// rest calls f for each part lo to hi of a redirection that has ended which was not redirected.
func (r *redirection) rest(f func(lo, hi int) error) error {
	at := 0
	for _, s := range append(r.spans[:], span{r.n, 0}) {
		if s.len == 0 && s.off != r.n {
			continue
		}
		if at < s.off {
			if err := f(at, s.off); err != nil {
				return err
			}
		}
		at = s.off + s.len
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
	r.spans = [2]span{{int(e.Imm), int(e.Len)}, {int(e.Off >> 32), int(uint32(e.Off))}}
	if r.spans[0].off+r.spans[0].len > r.n || r.spans[1].len > 0 && (r.spans[1].off < r.spans[0].off+r.spans[0].len ||
		r.spans[1].off+r.spans[1].len > r.n) {
		return false
	}
	d.complete(i, gen, e.Status)
	return true
}
