package edge_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// Writes gather pieces of several regions, reads scatter into them, through rings that are hardly long enough.
func TestPieces(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	m, g := edge.ShareOn(t, open(fab, "a"), open(fab, "b"), 1<<20)
	mem := g.Bytes()
	var regions [3]*edge.Region
	for i := range regions {
		r, err := m.Conn().Device().Register(1 << 16)
		check(err)
		for k := range r.Bytes() {
			r.Bytes()[k] = byte(k*7 + i*31 + k>>8)
		}
		regions[i] = r
	}
	for n := 1; n <= edge.MaxPieces; n++ {
		var pieces, back []edge.Piece
		var want []byte
		for i := range n {
			p := edge.Piece{Region: regions[i%2], Off: 1000*i + i, Len: 37 * i * n % 1000}
			pieces = append(pieces, p)
			want = append(want, p.Region.Bytes()[p.Off:][:p.Len]...)
			back = append(back, edge.Piece{Region: regions[2], Off: p.Off, Len: p.Len})
		}
		var ops [60]edge.Op // with three pieces and more, more entries than there is room for at once
		for k := range ops {
			var err error
			ops[k], err = m.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Pieces: pieces, Remote: m, RemoteOff: 3})
			check(err)
		}
		read, err := m.Conn().Post(ctx, &edge.Work{Kind: edge.Read, Pieces: back, Remote: m, RemoteOff: 3,
			Flags: edge.BackwardFence})
		check(err)
		check(edge.WaitAll(ctx, ops[:]))
		check(read.Wait(ctx))
		var got []byte
		for _, p := range back {
			got = append(got, p.Region.Bytes()[p.Off:][:p.Len]...)
		}
		if !bytes.Equal(mem[3:3+len(want)], want) || !bytes.Equal(got, want) {
			t.Errorf("%d pieces were not gathered or not scattered right", n)
		}
	}
	p, far := edge.Piece{Region: regions[0], Len: 8}, edge.Piece{Region: regions[0], Off: 1 << 16, Len: 1}
	for name, c := range map[string]struct {
		w    edge.Work
		want error
	}{
		"too many":        {edge.Work{Pieces: make([]edge.Piece, 17)}, edge.ErrInvalid},
		"with Local":      {edge.Work{Pieces: []edge.Piece{p}, Local: regions[0]}, edge.ErrInvalid},
		"with Inline":     {edge.Work{Pieces: []edge.Piece{p}, Inline: []byte{1}}, edge.ErrInvalid},
		"no region":       {edge.Work{Pieces: []edge.Piece{p, {Len: 1}}}, edge.ErrInvalid},
		"outside":         {edge.Work{Pieces: []edge.Piece{far, p}}, edge.ErrBounds},
		"negative":        {edge.Work{Pieces: []edge.Piece{{Region: regions[0], Len: -1}, p}}, edge.ErrInvalid},
		"longer than far": {edge.Work{Pieces: []edge.Piece{p}, RemoteOff: 1<<20 - 7}, edge.ErrBounds},
	} {
		w := c.w
		w.Kind, w.Remote = edge.Write, m
		if _, err := m.Conn().Post(ctx, &w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, r := range regions {
		if err := r.Close(); err != nil {
			t.Errorf("no operation is in flight: %v", err)
		}
	}
}
