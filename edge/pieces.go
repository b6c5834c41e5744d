package edge

import (
	"math"

	"multiedge/internal/ipc"
)

// Operations with local memory in pieces: entries with all pieces but the last precede the operation's own, which has
// that (A6.14). So it is with bytes by value beyond those that fit into the operation's own (A6.19).

var errPieces = invalid("Work.Pieces has up to MaxPieces pieces, with neither Local, LocalOff, Len nor Inline, each " +
	"but the last shorter than 4 GiB, and needs a daemon that gathers: upgrade it")

// entries is how many places of the submission ring w takes.
func entries(w *Work) int {
	switch {
	case w == nil:
		return 1
	case len(w.Inline) > ipc.MaxInline:
		return 1 + (len(w.Inline)-ipc.MaxInline+ipc.BytesPerEntry-1)/ipc.BytesPerEntry
	case len(w.Pieces) == 0:
		return 1
	}
	return 1 + (len(w.Pieces)-1+ipc.PiecesPerEntry-1)/ipc.PiecesPerEntry
}

// sumPieces is how many bytes the pieces of w have together, -1 if they cannot be posted.
func (d *attachment) sumPieces(w *Work) (n int) {
	if len(w.Pieces) > MaxPieces || d.features&ipc.FeatureGather == 0 && len(w.Pieces) > 1 {
		return -1
	}
	for i := range w.Pieces {
		if l := w.Pieces[i].Len; l < 0 || l > math.MaxInt-n {
			return -1
		}
		n += w.Pieces[i].Len
	}
	return n
}

// checkPieces checks all pieces but the last. The caller holds d.post.
func (d *attachment) checkPieces(ps []Piece) error {
	for i := range ps[:len(ps)-1] {
		if err := d.checkPiece(&ps[i]); err != nil {
			return err
		}
		if ps[i].Len > math.MaxUint32 {
			return errPieces
		}
	}
	return nil
}

// putPieces writes the entries that precede the operation or buffer of slot i: all its pieces but the last. conn is 0
// for a buffer of a receive queue. The caller holds d.post and saw room for them.
func (d *attachment) putPieces(conn uint32, ps []Piece, i uint32) {
	e, x := &d.out.pieces, &d.slots.extras[i]
	x.more = holdPieces(x.more, ps)
	for len(ps) > 0 {
		n := min(len(ps), ipc.PiecesPerEntry)
		e.Op, e.InlineLen, e.Conn = ipc.OpPieces, uint8(n), conn
		for i, p := range ps[:n] {
			e.Pieces[i] = ipc.Piece{Region: p.Region.id, Len: uint32(p.Len), Off: uint64(p.Off)}
		}
		d.out.sq.Put(e)
		ps = ps[n:]
	}
}

// checkInline reports whether w can carry its bytes by value.
func (d *attachment) checkInline(w *Work) error {
	n := len(w.Inline)
	if n > MaxInline || n > ipc.MaxInline && (d.features&ipc.FeatureBytes == 0 || entries(w) > len(d.slots.free)) {
		return errInline
	}
	return nil
}

// putBytes writes the entries that precede an operation with more bytes than fit into its own (A6.19), which are not in
// bytes. The caller holds d.post and saw room for them.
func (d *attachment) putBytes(conn uint32, bytes []byte) {
	e := &d.out.pieces
	for len(bytes) > 0 {
		n := min(len(bytes), ipc.BytesPerEntry)
		e.Op, e.InlineLen, e.Conn = ipc.OpBytes, uint8(n), conn
		clear(e.Inline[copy(e.Inline[:], bytes[:n]):])
		d.out.sq.Put(e)
		bytes = bytes[n:]
	}
}

// held is how many of an operation's pieces in a row lie in a region.
type held struct {
	region *Region
	pieces int32
}

// holdPieces appends the regions of pieces to rs, and counts their operation for them.
func holdPieces(rs []held, ps []Piece) []held {
	for i := 0; i < len(ps); {
		r, from := ps[i].Region, i
		for i++; i < len(ps) && ps[i].Region == r; i++ {
		}
		r.inflight.Add(int32(i - from))
		rs = append(rs, held{r, int32(i - from)})
	}
	return rs
}

// putExtra keeps what slot i has beside what every operation has. The caller holds d.post.
func (c *Conn) putExtra(w *Work, i uint32) {
	x := &c.d.slots.extras[i]
	c.d.slots.list[i].extra = true
	x.ticket, x.result = ticket{w.Queue, w.Context, w.Kind}, w.Result
	if n := len(w.Pieces); n > 0 {
		c.d.slots.list[i].region = w.Pieces[n-1].Region
		c.d.putPieces(c.id, w.Pieces[:n-1], i)
	}
}

// takeExtra empties it, and counts the operation off the regions of its pieces. The caller leads.
func (d *attachment) takeExtra(s *slot, i uint32) extra {
	x := &d.slots.extras[i]
	had := *x
	for i := range x.more {
		x.more[i].region.inflight.Add(-x.more[i].pieces)
	}
	clear(x.more)
	s.extra, *x = false, extra{more: x.more[:0]}
	return had
}
