package engine

import (
	"runtime"

	"multiedge/regmem"
)

// Local memory in pieces: what a write gathers and a read scatters (clause 6, which sees one range: only the end that
// submits an operation knows its pieces). A frame's payload that lies in one piece is referred to where it lies; one
// that lies in several is copied into the batch, which costs less than a frame for each.

// MaxPieces is how many pieces of local memory an operation can have.
const MaxPieces = 16

// Pieces is the local memory of an operation that has more than one range: the bytes of all in their order. Who submits
// it leaves it alone until the operation's completion.
type Pieces struct {
	n     int
	bytes uint64
	list  [MaxPieces]piece
}

type piece struct {
	bytes  []byte
	region *regmem.Region // its InFlight counts the operation; may be nil
	off    uint64         // where in region bytes begin; of regions with a Back alone
}

// Add adds a piece, one of MaxPieces at most: b, which begins at off in r.
func (p *Pieces) Add(b []byte, r *regmem.Region, off uint64) {
	p.list[p.n] = piece{b, r, off}
	p.n++
	p.bytes += uint64(len(b))
}

// All calls f for the bytes of each piece.
func (p *Pieces) All(f func(b []byte)) {
	for i := range p.list[:p.n] {
		f(p.list[i].bytes)
	}
}

// Reset empties the list.
func (p *Pieces) Reset() {
	clear(p.list[:p.n])
	p.n, p.bytes = 0, 0
}

// use counts an operation for the regions, or one less.
func (p *Pieces) use(n int) {
	for i := range p.list[:p.n] {
		if r := p.list[i].region; r != nil {
			r.InFlight += n
		}
	}
}

// at finds byte off, which is before the end: in which piece, and where there.
func (p *Pieces) at(off uint64) (i int, in uint64) {
	for off >= uint64(len(p.list[i].bytes)) {
		off -= uint64(len(p.list[i].bytes))
		i++
	}
	return i, off
}

// whole returns bytes [off, off+n), n > 0, if they lie in one piece, else nil.
func (p *Pieces) whole(off, n uint64) []byte {
	i, in := p.at(off)
	if b := p.list[i].bytes; n <= uint64(len(b))-in {
		return b[in : in+n]
	}
	return nil
}

// Backed reports whether local memory of an operation is not always resident (clause 16).
func (o *Op) Backed() bool {
	if o.Pieces == nil {
		return o.Region != nil && o.Region.Back != nil
	}
	for i := range o.Pieces.list[:o.Pieces.n] {
		if r := o.Pieces.list[i].region; r != nil && r.Back != nil {
			return true
		}
	}
	return false
}

// touchPieces is touch for an operation with pieces. It asks for all that is missing at once.
func (e *Endpoint) touchPieces(p *Pieces, off, n uint64, site regmem.Site) (first *miss) {
	at := off
	for i := range p.list[:p.n] {
		q := &p.list[i]
		size := uint64(len(q.bytes))
		if off >= size {
			off -= size
			continue
		}
		take := min(n, size-off)
		if take > 0 && q.region != nil && q.region.Back != nil {
			if page, ok := q.region.Back.Touch(q.off+off, take, 0, site); !ok && first == nil {
				first = e.misses.lacks(regmem.Wait{Back: q.region.Back, Page: page}, at)
			}
		}
		if e.misses.look != nil && take > 0 && q.region != nil {
			e.misses.look(q.region, q.off+off, take, site)
		}
		off, n, at = 0, n-take, at+take
	}
	return first
}

// gather copies bytes from off on to dst, until that is full.
func (p *Pieces) gather(dst []byte, off uint64) {
	if len(dst) == 0 {
		return
	}
	for i, in := p.at(off); len(dst) > 0; i, in = i+1, 0 {
		dst = dst[copy(dst, p.list[i].bytes[in:]):]
	}
}

// scatter copies src to the bytes from off on.
func (p *Pieces) scatter(off uint64, src []byte) {
	if len(src) == 0 {
		return
	}
	for i, in := p.at(off); len(src) > 0; i, in = i+1, 0 {
		src = src[copy(p.list[i].bytes[in:], src):]
	}
}

// shortPiece is the longest piece, in bytes, that fetch reads.
const shortPiece = 256

// fetch reads a byte of each end of short pieces: pieces lie anywhere, and copied one after the other, each would be
// waited for. What is read is not passed over, as requests to prefetch are (package prefetch).
func (p *Pieces) fetch() {
	var sum byte
	for i := range p.list[:p.n] {
		if b := p.list[i].bytes; len(b) > 0 && len(b) <= shortPiece {
			sum += b[0] + b[len(b)-1]
		}
	}
	runtime.KeepAlive(sum)
}

// gatherAhead gathers what is copied into a frame anyway when the operation enters, if a copy may be held: from then
// on it has one range like any other.
func (c *conn) gatherAhead(o *sendOp, op *Op) {
	if o.op.Kind == OpRead || o.n == 0 || o.backed {
		return
	}
	o.op.Pieces.fetch()
	n := int(o.n)
	if n > smallMost || !c.stageRoom(n) {
		return
	}
	b := c.e.copies.Take(n)
	o.op.Pieces.gather(b, 0)
	o.op.Pieces.use(-1)
	c.chargeStage(cap(b))
	o.op.Local, o.staged = b, true
	o.op.Pieces, op.Pieces = nil, nil
}

// gathered returns n bytes of an operation's local memory, which must last as long as the batch.
func (w *builder) gathered(p *Pieces, off, n uint64) []byte {
	if b := p.whole(off, n); b != nil {
		return b
	}
	b := w.b.stage(int(n))
	p.gather(b, off)
	return b
}

// smallRoom returns room for n bytes that are gathered, and copied into the tail at once.
func (w *builder) smallRoom(n uint64) []byte {
	if w.scratch == nil {
		w.scratch = make([]byte, packMost)
	}
	return w.scratch[:n]
}

// stage returns room for n bytes of payload beside the buffer of the frame to be added.
func (b *Batch) stage(n int) []byte {
	i := len(b.Frames)
	if b.stages == nil {
		b.stages = make([][]byte, cap(b.Frames))
	}
	if len(b.stages[i]) < n {
		b.stages[i] = make([]byte, len(b.bufs[i]))
	}
	return b.stages[i][:n]
}

// deliverPieces puts the payload of a segment into the pieces of one of our operations, at off.
func (e *Endpoint) deliverPieces(p *Pieces, off uint64, g *segment) {
	e.Count.PayloadReceived += uint64(len(g.data))
	first, rest := g.inOrder()
	p.scatter(off, first)
	p.scatter(off+uint64(len(first)), rest)
}
