package ondemand

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/space"
)

const (
	service = "edgebench-ondemand"
	target  = "target" // the export that is measured
	board   = "board"  // and the one by which the server answers orders
	back    = "back"   // the client's export for pongs
	place   = 16       // of the answer on the board, behind its number and length
	boardIs = 32 << 10 // bytes
	bell    = boardIs - 8
)

// Orders to a server, by the number that a notification carries, in its lowest bits.
const (
	tellUsage = 1 // what the space did
	evictAll  = 2 // unpin everything, then tell
	tellTimes = 3 // how long misses took at the daemon
	pong      = 4 // write as many bytes back as the number says above pongShift

	pongShift = 3
)

// Serve has what clients ask for, until ctx ends. started is called when they may come.
func Serve(ctx context.Context, d *edge.Device, started func()) {
	l := kit.Get(d.Listen(ctx, service))
	started()
	for {
		r := kit.Get(l.Next(ctx))
		go serve(ctx, d, r)
	}
}

// serve makes what a request asks for, and follows orders until the connection ends.
func serve(ctx context.Context, d *edge.Device, req *edge.Request) {
	var mem, answers *edge.Region
	var t Target
	if err := kit.Try(func() {
		kit.Check(json.Unmarshal(req.Data(), &t))
		mem = t.make(ctx, d)
		answers = kit.Get(d.Register(boardIs + t.Pong))
	}); err != nil {
		if mem != nil {
			mem.Close()
		}
		req.Refuse(err.Error())
		return
	}
	defer mem.Close()
	defer answers.Close()
	_ = kit.Try(func() { // a client learns of a failure by the end of the connection
		c := kit.Get(req.Accept(ctx, nil))
		defer c.Close()
		const all = edge.RemoteRead | edge.RemoteWrite
		kit.Get(mem.Export(c, target, all, 0, mem.Len()))
		kit.Get(answers.Export(c, board, all, 0, boardIs))
		var to *edge.RemoteRegion
		if t.Pong > 0 {
			to = kit.Get(c.Import(ctx, back))
		}
		for n := uint64(1); ; {
			what := kit.Get(c.WaitNotify(ctx)).Imm
			if size := int(what >> pongShift); size > 0 {
				kit.Get(c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Local: answers,
					LocalOff: boardIs, Len: size, Remote: to}))
				continue
			}
			follow(ctx, d, what, mem, answers.Bytes()[:boardIs], n)
			n++
		}
	})
}

// make has a Target.
func (t *Target) make(ctx context.Context, d *edge.Device) (mem *edge.Region) {
	if t.Whole {
		mem = kit.Get(d.RegisterContext(ctx, t.Size))
	} else {
		mem = kit.Get(space.Map(ctx, d, t.Size, kit.Get(t.mapOptions())))
	}
	if t.Fill {
		fill(mem.Bytes())
	}
	if t.Hold > 0 {
		if err := space.Hold(ctx, mem, 0, t.Hold); err != nil {
			mem.Close()
			kit.Check(err)
		}
	}
	return mem
}

// fill writes to every page.
func fill(b []byte) {
	for off := 0; off < len(b); off += os.Getpagesize() {
		b[off] = 1
	}
}

// follow carries order number n out, and answers on the board.
func follow(ctx context.Context, d *edge.Device, what uint32, mem *edge.Region, b []byte, n uint64) {
	if what == evictAll {
		kit.Check(space.Evict(mem, 0, mem.Len()))
	}
	var answer any
	if what == tellTimes {
		answer = timesOf(ctx, d)
	} else {
		answer = kit.Get(space.UsageOf(ctx, mem))
	}
	text := kit.Get(json.Marshal(answer))
	if len(text) > bell-place {
		kit.Fail("an answer of %d bytes", len(text))
	}
	copy(b[place:], text)
	binary.LittleEndian.PutUint64(b[8:], uint64(len(text)))
	binary.LittleEndian.PutUint64(b, n) // a reader who sees it early reads again: JSON is checked
}
