package ondemand

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"

	"multiedge/edge"
)

const (
	service = "edgebench-ondemand"
	target  = "target" // the export that is measured
	board   = "board"  // and the one by which the server answers orders
	place   = 16       // of the answer on the board, behind its number and length
	boardIs = 4096     // bytes
	bell    = boardIs - 8
)

// Orders to a server, by the number that a notification carries.
const (
	tellUsage = 1 // what the space did
	evictAll  = 2 // unpin everything, then tell
)

// Serve has what clients ask for, until ctx ends. started is called when they may come.
func Serve(ctx context.Context, d *edge.Device, started func()) error {
	l, err := d.Listen(ctx, service)
	if err != nil {
		return err
	}
	started()
	for {
		r, err := l.Next(ctx)
		if err != nil {
			return err
		}
		go serve(ctx, d, r)
	}
}

// serve makes what a request asks for, and follows orders until the connection ends.
func serve(ctx context.Context, d *edge.Device, req *edge.Request) {
	var t Target
	if err := json.Unmarshal(req.Data(), &t); err != nil {
		req.Refuse(err.Error())
		return
	}
	mem, err := t.make(ctx, d)
	if err != nil {
		req.Refuse(err.Error())
		return
	}
	defer mem.Close()
	answers, err := d.Register(boardIs)
	if err != nil {
		req.Refuse(err.Error())
		return
	}
	defer answers.Close()
	c, err := req.Accept(ctx, nil)
	if err != nil {
		return
	}
	defer c.Close()
	const all = edge.RemoteRead | edge.RemoteWrite
	_, err = mem.Export(c, target, all, 0, mem.Len())
	if err == nil {
		_, err = answers.Export(c, board, all, 0, boardIs)
	}
	for n := uint64(1); err == nil; n++ {
		var order edge.Notification
		if order, err = c.WaitNotify(ctx); err == nil {
			err = follow(ctx, order.Imm, mem, answers.Bytes(), n)
		}
	}
}

// make has a Target.
func (t *Target) make(ctx context.Context, d *edge.Device) (mem *edge.Region, err error) {
	if t.Whole {
		mem, err = d.RegisterContext(ctx, t.Size)
	} else {
		var o edge.MapOptions
		if o, err = t.mapOptions(); err == nil {
			mem, err = d.Map(ctx, t.Size, o)
		}
	}
	if err != nil {
		return nil, err
	}
	if t.Fill {
		fill(mem.Bytes())
	}
	if t.Hold > 0 {
		if err := mem.Hold(ctx, 0, t.Hold); err != nil {
			mem.Close()
			return nil, err
		}
	}
	return mem, nil
}

// fill writes to every page.
func fill(b []byte) {
	for off := 0; off < len(b); off += os.Getpagesize() {
		b[off] = 1
	}
}

// follow carries order number n out, and answers on the board.
func follow(ctx context.Context, what uint32, mem *edge.Region, b []byte, n uint64) error {
	if what == evictAll {
		if err := mem.Evict(0, mem.Len()); err != nil {
			return err
		}
	}
	u, err := mem.Usage(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(u)
	if err != nil || len(text) > bell-place {
		return fmt.Errorf("an answer of %d bytes: %w", len(text), err)
	}
	copy(b[place:], text)
	binary.LittleEndian.PutUint64(b[8:], uint64(len(text)))
	binary.LittleEndian.PutUint64(b, n) // a reader who sees it early reads again: JSON is checked
	return nil
}
