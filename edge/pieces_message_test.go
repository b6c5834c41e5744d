package edge

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// Messages are scattered into the pieces of the buffers that meet them, a connection's own or those of a receive queue,
// and into nothing beside them; a region is in use until its last buffer has come back.
func TestReceivePieces(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := newMessagePair(t, Config{})
		ctx := context.Background()
		far, err := p.dev[1].Register(1 << 16)
		must(t, err)
		for i := range far.Bytes() {
			far.Bytes()[i] = 0xee
		}
		var q *ReceiveQueue
		post := func(ps []Piece) error {
			w := &Work{Kind: Receive, Pieces: ps, Queue: p.cq[1], Context: uint64(len(ps))}
			var err error
			if q != nil {
				_, err = q.Post(NoWait, w)
			} else {
				_, err = p.conn[1].Post(NoWait, w)
			}
			return err
		}
		if shared {
			q, err = p.dev[1].NewReceiveQueue(ctx)
			must(t, err)
			must(t, q.Serve(ctx, p.conn[1]))
		}
		for n := 1; n <= MaxPieces; n++ {
			var ps []Piece
			size := 0
			for i := range n {
				ps = append(ps, Piece{Region: far, Off: 2000*i + 7, Len: 93 * (i + n) % 1500})
				size += ps[i].Len
			}
			must(t, post(ps))
			if err := far.Close(); !errors.Is(err, ErrBusy) {
				t.Fatalf("a buffer of %d pieces does not keep its region: %v", n, err)
			}
			short := size - size/3
			sent := p.mem[0].Bytes()[:short]
			for i := range sent {
				sent[i] = byte(i*13 + n + i>>8)
			}
			op, err := p.conn[0].Post(ctx, &Work{Kind: Send, Local: p.mem[0], Len: short})
			must(t, err)
			must(t, op.Wait(ctx))
			if c := p.take(t, 1, 1)[0]; c.Err != nil || c.Len != short || c.Context != uint64(n) {
				t.Fatalf("%d pieces: %+v, want %d bytes", n, c, short)
			}
			var got []byte
			for _, x := range ps {
				b := far.Bytes()[x.Off:][:x.Len]
				got = append(got, b...)
				for i := range b {
					b[i] = 0xee
				}
			}
			if !bytes.Equal(got[:short], sent) || bytes.Count(far.Bytes(), []byte{0xee}) != far.Len() ||
				bytes.Count(got[short:], []byte{0xee}) != size-short {
				t.Errorf("shared %v, %d pieces: a message was not scattered right", shared, n)
			}
		}
		for name, ps := range map[string][]Piece{"too many": make([]Piece, MaxPieces+1), "no region": {{}, {Len: 1}},
			"outside": {{Region: far, Off: 1 << 16, Len: 1}, {Region: far}}} {
			if err := post(ps); err == nil {
				t.Errorf("%s: posted", name)
			}
		}
		if err := far.Close(); err != nil {
			t.Errorf("no buffer is posted: %v", err)
		}
	}
}
