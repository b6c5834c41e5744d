// Package pieces has local memory that lies in several ranges.
package pieces

import (
	"runtime"

	"multiedge/regmem"
)

// Max is how many pieces of local memory an operation can have.
const Max = 16

// List is the local memory of an operation that has more than one range: the bytes of all in their order. Who submits
// it leaves it alone until the operation's completion.
type List struct {
	n    int
	Size uint64 // bytes of all
	list [Max]Piece
}

// Piece is one of the ranges.
type Piece struct {
	Bytes  []byte
	Region *regmem.Region // its InFlight counts the operation; may be nil
	Off    uint64         // where in region bytes begin; of regions with a Back alone
}

// Parts are the pieces, in order.
func (p *List) Parts() []Piece { return p.list[:p.n] }

// Add adds a piece, one of Max at most: b, which begins at off in r.
func (p *List) Add(b []byte, r *regmem.Region, off uint64) {
	p.list[p.n] = Piece{b, r, off}
	p.n++
	p.Size += uint64(len(b))
}

// Cut makes the list one of b in n parts, 1 to Max, which end at uneven places: memory of r, from off on.
func (p *List) Cut(b []byte, n int, r *regmem.Region, off uint64) {
	for i := n; i > 0; i-- {
		part := len(b) / i
		if i > 1 {
			part = max(part-i%3, 0)
		}
		p.Add(b[:part], r, off)
		b, off = b[part:], off+uint64(part)
	}
}

// All calls f for the bytes of each piece.
func (p *List) All(f func(b []byte)) {
	for i := range p.list[:p.n] {
		f(p.list[i].Bytes)
	}
}

// Backed reports whether some of it is not always resident (PROTOCOL clause 16).
func (p *List) Backed() bool {
	for i := range p.list[:p.n] {
		if r := p.list[i].Region; r != nil && r.Back != nil {
			return true
		}
	}
	return false
}

// Reset empties the list.
func (p *List) Reset() {
	clear(p.list[:p.n])
	p.n, p.Size = 0, 0
}

// Use counts an operation for the regions, or one less.
func (p *List) Use(n int) {
	for i := range p.list[:p.n] {
		if r := p.list[i].Region; r != nil {
			r.InFlight += n
		}
	}
}

// at finds byte off, which is before the end: in which piece, and where there.
func (p *List) at(off uint64) (i int, in uint64) {
	for off >= uint64(len(p.list[i].Bytes)) {
		off -= uint64(len(p.list[i].Bytes))
		i++
	}
	return i, off
}

// Whole returns bytes [off, off+n), n > 0, if they lie in one piece, else nil.
func (p *List) Whole(off, n uint64) []byte {
	i, in := p.at(off)
	if b := p.list[i].Bytes; n <= uint64(len(b))-in {
		return b[in : in+n]
	}
	return nil
}

// Gather copies bytes from off on to dst, until that is full.
func (p *List) Gather(dst []byte, off uint64) {
	if len(dst) == 0 {
		return
	}
	for i, in := p.at(off); len(dst) > 0; i, in = i+1, 0 {
		dst = dst[copy(dst, p.list[i].Bytes[in:]):]
	}
}

// Scatter copies src to the bytes from off on.
func (p *List) Scatter(off uint64, src []byte) {
	if len(src) == 0 {
		return
	}
	for i, in := p.at(off); len(src) > 0; i, in = i+1, 0 {
		src = src[copy(p.list[i].Bytes[in:], src):]
	}
}

// shortPiece is the longest piece, in bytes, that Fetch reads.
const shortPiece = 256

// Fetch reads a byte of each end of short pieces: pieces lie anywhere, and copied one after the other, each would be
// waited for. What is read is not passed over, as requests to prefetch are (package prefetch).
func (p *List) Fetch() {
	var sum byte
	for i := range p.list[:p.n] {
		if b := p.list[i].Bytes; len(b) > 0 && len(b) <= shortPiece {
			sum += b[0] + b[len(b)-1]
		}
	}
	runtime.KeepAlive(sum)
}
