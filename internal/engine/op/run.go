package op

import (
	"multiedge/internal/engine/op/park"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Run is successive parts of one operation, each right behind the one before, that arrive in frames of their own. What
// place.go and the operation's kind check and note for a part is checked for all of them when the run begins, and noted
// once when it ends; between the two there is only the move of each payload to its place. Nothing else may happen to
// the endpoint meanwhile. What comes of a run is what would come of its parts one by one.
type Run struct {
	c    *Conn
	sent *sendOp // the operation, if it is a read of ours
	got  *recvOp // or a write of the peer's
	g    segment // its parts, with the latest payload
	by   mover
	dst  []byte    // where the next parts belong, as far as that was checked
	lo   uint64    // where the run began
	n    [2]uint64 // lengths of the latest two parts
}

// BeginRun begins a run with the part behind that of f, which this endpoint has just taken from s, of room bytes at
// most, more than none. lasting is that of OnBulk. It reports false, and nothing has happened, if parts have to be
// taken one by one here: they are not wanted, or what becomes of one may depend on the one before.
func (e *Endpoint) BeginRun(r *Run, s *Session, f *wire.Frame, room uint64, lasting bool) bool {
	b := &f.Bulk
	c, _ := e.receiver(s, b.Conn)
	if c == nil {
		return false
	}
	of := carriers[b.Kind%wire.MaxKinds]
	g := &r.g
	g.kind, g.flags, g.lasting, g.op = of.kind, b.Flags&^wire.SegFirst, lasting, seqnum.Value(b.Op)
	g.key, g.place, g.fence = regmem.Key(b.Key), b.Place+uint64(b.Len), seqnum.Value(b.Fence)
	r.c, r.lo, r.sent, r.got, r.n[1] = c, g.place, nil, nil, uint64(b.Len)
	if r.by = e.movers.atOnce; lasting {
		r.by = e.movers.later
	}
	switch {
	case of.answer:
		return of.kind == OpRead && r.ofRead(room)
	default:
		return of.kind == OpWrite && r.ofWrite(room)
	}
}

// ofWrite has a run put parts of a write of the peer's in place, which has parts in place. f's may not be among them: a
// peer that breaks clause 6 has it held.
func (r *Run) ofWrite(room uint64) bool {
	c, e, g := r.c, r.c.e, &r.g
	if !g.op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) || !c.admit(g.op) {
		return false
	}
	o := c.rop(g.op)
	if c.recv.stopped || o.state != ropPartial || o.kind != OpWrite || o.key != g.key || !c.allowed(g) ||
		o.flags&wire.SegLast != 0 && r.lo+room > o.last || len(c.recv.redirects) > 0 {
		return false
	}
	dst, err := c.resolve(g.key, regmem.RemoteWrite, r.lo, room)
	if err != nil || !e.resident() || !joins(&o.got, r.lo, room) {
		return false
	}
	r.got, r.dst = o, dst
	return true
}

// ofRead has a run put parts of the answer to a read of ours in place.
func (r *Run) ofRead(room uint64) bool {
	c, e, g := r.c, r.c.e, &r.g
	if !c.outstanding(g.op) || !c.sent(g.op) || c.sop(g.op).op.Kind != OpRead {
		return false
	}
	o := c.sop(g.op)
	if o.op.Pieces != nil || o.backed || e.misses.look != nil || r.lo > o.n || room > o.n-r.lo ||
		!joins(&o.got, r.lo, room) {
		return false
	}
	r.sent, r.dst = o, o.op.Local[r.lo:r.lo+room]
	return true
}

// joins reports whether room bytes from lo on lengthen what is in place right before lo, and none of them is in place.
func joins(got *span.Set, lo, room uint64) bool {
	return got.Before(lo) > 0 && !got.Touches(lo, lo+room)
}

// Room is how many bytes the run can take.
func (r *Run) Room() int { return len(r.dst) }

// Take puts the next part in place, of at most Room bytes and at least one, which are borrowed as OnBulk's.
func (r *Run) Take(data []byte) {
	n := len(data)
	r.g.data = data
	r.by.move(r.c, &r.g, r.dst[:n:n], data)
	r.dst = r.dst[n:]
	r.g.place += uint64(n)
	r.n = [2]uint64{r.n[1], uint64(n)}
}

// End notes what has come, one part or more. at learns from it.
func (r *Run) End(now mono.Time, at *Forecast) {
	c, hi := r.c, r.g.place
	at.learnRun(r)
	c.e.Count.Traffic.PayloadReceived += hi - r.lo
	if o := r.sent; o != nil {
		c.add(&o.got, r.lo, hi)
		o.left = park.Unreceived{}
		c.readWhole(now, r.g.op)
	} else {
		o := r.got
		c.add(&o.got, r.lo, hi)
		o.left = park.Unreceived{}
		o.flags |= r.g.flags
		c.writeWhole(now, o, r.g.op)
	}
	*r = Run{} // it refers to memory that may go
}
