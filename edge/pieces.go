package edge

import (
	"math"

	"multiedge/internal/ipc"
)

// Operations with local memory in pieces: entries with all pieces but the last precede the operation's own, which has
// that (A6.14).

var errPieces = invalid("Work.Pieces has up to MaxPieces pieces, with neither Local, LocalOff, Len nor Inline, each " +
	"but the last shorter than 4 GiB, and needs a daemon that gathers: upgrade it")

// entries is how many places of the submission ring w takes.
func entries(w *Work) int {
	if w == nil || len(w.Pieces) == 0 {
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

// putPieces writes the entries that precede the operation of slot s. The caller holds d.post and saw room for them.
func (c *Conn) putPieces(w *Work, s *slot) {
	last := len(w.Pieces) - 1
	s.region = w.Pieces[last].Region
	e := &c.d.pieces
	for ps := w.Pieces[:last]; len(ps) > 0; {
		n := min(len(ps), ipc.PiecesPerEntry)
		*e = ipc.SQE{Op: ipc.OpPieces, InlineLen: uint8(n), Conn: c.id}
		for i, p := range ps[:n] {
			e.Pieces[i] = ipc.Piece{Region: p.Region.id, Len: uint32(p.Len), Off: uint64(p.Off)}
			p.Region.inflight.Add(1)
			s.more = append(s.more, p.Region)
		}
		c.d.sq.Put(e)
		ps = ps[n:]
	}
}

// releasePieces counts an operation off the regions of its pieces. The caller leads.
func (s *slot) releasePieces() {
	for i, r := range s.more {
		r.inflight.Add(-1)
		s.more[i] = nil
	}
	s.more = s.more[:0]
}
