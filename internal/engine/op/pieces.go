package op

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/pieces"
	"multiedge/regmem"
)

// Local memory in pieces: what a write or send gathers, and what a read scatters, or a message that arrives (clauses 6
// and 14, which see one range: only the end that posts the memory knows its pieces). A frame's payload that lies in
// one piece is referred to where it lies; one that lies in several is copied into the batch, which costs less than a
// frame for each.

// MaxPieces is how many pieces of local memory an operation can have.
const MaxPieces = pieces.Max

// Pieces is the local memory of an operation that has more than one range.
type Pieces = pieces.List

// Backed reports whether local memory of an operation is not always resident (clause 16).
func (o *Op) Backed() bool {
	if o.Pieces == nil {
		return o.Region != nil && o.Region.Back != nil
	}
	return o.Pieces.Backed()
}

// touchPieces is touch for an operation with pieces. It asks for all that is missing at once.
func (e *Endpoint) touchPieces(p *pieces.List, off, n uint64, site regmem.Site) (first *miss) {
	at := off
	for i := range p.Parts() {
		q := &p.Parts()[i]
		size := uint64(len(q.Bytes))
		if off >= size {
			off -= size
			continue
		}
		take := min(n, size-off)
		if take > 0 && q.Region != nil && q.Region.Back != nil {
			if page, ok := q.Region.Back.Touch(q.Off+off, take, 0, site); !ok && first == nil {
				first = e.misses.lacks(regmem.Wait{Back: q.Region.Back, Page: page}, at)
			}
		}
		if e.misses.look != nil && take > 0 && q.Region != nil {
			e.misses.look(q.Region, q.Off+off, take, site)
		}
		off, n, at = 0, n-take, at+take
	}
	return first
}

// gatherAhead gathers what is copied into a frame anyway when the operation enters, if a copy may be held: from then
// on it has one range like any other.
func (c *Conn) gatherAhead(o *sendOp, op *Op) {
	if kinds[o.op.Kind].fills || o.n == 0 || o.backed {
		return
	}
	o.op.Pieces.Fetch()
	n := int(o.n)
	if n > build.SmallMost || !c.copyRoom(n) {
		return
	}
	b := c.e.copies.Take(n)
	o.op.Pieces.Gather(b, 0)
	o.op.Pieces.Use(-1)
	c.chargeCopy(cap(b))
	o.op.Local, o.copied = b, true
	o.op.Pieces, op.Pieces = nil, nil
}

// gathered returns n bytes of an operation's local memory, which must last as long as the batch.
func gathered(w *build.Frame, p *pieces.List, off, n uint64) []byte {
	if b := p.Whole(off, n); b != nil {
		return b
	}
	b := w.Scratch(int(n))
	p.Gather(b, off)
	return b
}

// deliverPieces puts the payload of a segment into the pieces of one of our operations or buffers, at off.
func (e *Endpoint) deliverPieces(p *pieces.List, off uint64, g *segment) {
	e.Count.Traffic.PayloadReceived += uint64(len(g.data))
	first, rest := g.inOrder()
	p.Scatter(off, first)
	p.Scatter(off+uint64(len(first)), rest)
}
