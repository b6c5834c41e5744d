package inspect

import (
	"bytes"
	"io"
	"testing"

	"multiedge/internal/trace"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// scattering is a driver that receives payloads in pieces.
type scattering struct{ linkdrv.Driver }

func (d scattering) RecvScatter(dst []linkdrv.RxFrame, slots [][]byte) (int, error) {
	var rx [1][]byte
	n, err := d.Recv(rx[:])
	if n > 0 {
		dst[0] = linkdrv.RxFrame{Head: rx[0][:20], Body: rx[0][20:25], Rest: rx[0][25:]}
	}
	return n, err
}

// records reads what waits in a tap.
func records(t *testing.T, p *Tap) (list []trace.Record) {
	t.Helper()
	in := trace.NewReader(bytes.NewReader(p.Take(nil)))
	for {
		var r trace.Record
		err := in.Next(&r)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Data = bytes.Clone(r.Data)
		list = append(list, r)
	}
}

// A traced link does what it did before, and its frames are recorded in both directions.
func TestTapLink(t *testing.T) {
	x, y := linktest.Pair(1500, 64)
	frame := append(append(append([]byte{}, y.Info().MAC...), x.Info().MAC...), 0x88, 0xb5)
	frame = append(frame, bytes.Repeat([]byte("data"), 20)...)
	for name, drv := range map[string]linkdrv.Driver{"whole": x, "in pieces": scattering{x}} {
		p := NewTap(map[int]string{3: "one", 4: "what was two before"}, 30)
		w, other := p.Wrap(3, "one", drv), p.Wrap(4, "two", y)
		_, scatters := drv.(linkdrv.Scatterer)
		scatter, _ := w.(linkdrv.Scatterer)
		if w == drv || other != y || (scatter != nil) != scatters {
			t.Fatalf("%s: tapped are %T and %T", name, w, other)
		}
		short := linkdrv.TxFrame{Head: frame[:5]}
		n, err := w.Send([]linkdrv.TxFrame{{Head: frame[:14], Bulk: frame[14:60], Tail: frame[60:]}, short})
		if n != 2 || err == nil {
			t.Fatalf("%s: sent %d, %v; want the second refused", name, n, err)
		}
		if n, err := y.Send([]linkdrv.TxFrame{{Head: frame}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var rx [4][]byte
		if scatter != nil {
			var parts [4]linkdrv.RxFrame
			n, err = scatter.RecvScatter(parts[:], rx[:])
		} else {
			n, err = w.Recv(rx[:])
		}
		if n != 1 || err != nil {
			t.Fatalf("%s: received %d, %v", name, n, err)
		}
		got := records(t, p)
		if len(got) != 2 || !got[0].Sent || got[1].Sent {
			t.Fatalf("%s: %+v", name, got)
		}
		for _, r := range got {
			if r.Link != 3 || r.Len != len(frame) || !bytes.Equal(r.Data, frame[:30]) || r.Time == 0 {
				t.Errorf("%s: %+v, want the first of %x", name, r, frame)
			}
		}
		y.Recv(rx[:])
	}
}

// What finds no room is counted, and the next record says so.
func TestTapRoom(t *testing.T) {
	p := NewTap(nil, trace.MaxFrame)
	long := make([]byte, 1<<16)
	sent := tapRoom/len(long) + 5
	for range sent {
		p.add(1, 0, true, long)
	}
	kept := len(records(t, p))
	p.add(1, 0, true, long[:20])
	last := records(t, p)
	if kept == 0 || kept >= sent || len(last) != 1 || int(last[0].Lost) != sent-kept {
		t.Errorf("of %d frames %d were kept, and then %+v", sent, kept, last)
	}
}
