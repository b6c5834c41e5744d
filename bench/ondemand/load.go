package ondemand

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge"
	"multiedge/edge/space"
)

// far is memory of the server's, as asked for.
type far struct {
	c          *edge.Conn
	mem, board *edge.RemoteRegion
	answered   uint64 // orders
}

// open has the server make a Target.
func (r *run) open(ctx context.Context, d *edge.Device, t Target) *far {
	c := kit.Get(d.Dial(ctx, r.Peer, service, edge.Data(t.json())))
	if t.Pong > 0 {
		kit.Get(r.near.Export(c, back, edge.RemoteWrite, 0, t.Pong))
	}
	return &far{c: c, mem: kit.Get(c.Import(ctx, target)), board: kit.Get(c.Import(ctx, board))}
}

// order has the server follow an order, and returns what its space did until then.
func (f *far) order(ctx context.Context, what uint32) (u space.Usage) {
	f.ask(ctx, what, &u)
	return u
}

// ask sends the server an order, waits until it is carried out, and decodes the answer.
func (f *far) ask(ctx context.Context, what uint32, answer any) {
	kit.Do(ctx, f.c, &edge.Work{Kind: edge.Write, Inline: []byte{1}, Remote: f.board, RemoteOff: bell,
		Flags: edge.Notify, Imm: what})
	f.answered++
	b := make([]byte, bell)
	for {
		kit.Get(f.board.ReadAtContext(ctx, b, 0))
		n := binary.LittleEndian.Uint64(b[8:])
		if binary.LittleEndian.Uint64(b) == f.answered && n <= bell-place &&
			json.Unmarshal(b[place:place+n], answer) == nil {
			return
		}
	}
}

// load is a stream of operations.
type load struct {
	far    *far
	kind   edge.Kind
	near   *edge.Region
	bytes  int
	flying int           // at once
	at     func() int    // which block of the target each uses, or of near if atNear
	atNear bool          // near is what is measured: the other side uses one block
	spread int           // bytes from block to block; 0: bytes
	span   time.Duration // how long
	most   int           // operations; 0: any number
	every  time.Duration // between posts; 0: as fast as it goes
}

// outcome is what a load came to.
type outcome struct {
	ops     int
	seconds float64
	latency report.Latency
}

func (o *outcome) rate(bytes int) float64 { return float64(o.ops) * float64(bytes) / o.seconds }

// run posts until the time is over, or stop.
func (l *load) run(ctx context.Context, stop <-chan struct{}) outcome {
	type post struct {
		op edge.Op
		at time.Time
	}
	flying := make([]post, l.flying)
	times := report.NewRecorder()
	waited := 0
	wait := func() {
		p := &flying[waited%l.flying]
		if err := p.op.Wait(ctx); err != nil {
			kit.Fail("operation %d: %w", waited, err)
		}
		times.Record(time.Since(p.at))
		waited++
	}
	spread := max(l.spread, l.bytes)
	start := time.Now()
	n := 0
	for ; l.most == 0 || n < l.most; n++ {
		p := &flying[n%l.flying]
		if n >= l.flying {
			wait()
		}
		p.at = time.Now()
		if p.at.Sub(start) > l.span || stopped(stop) {
			break
		}
		if due := start.Add(time.Duration(n) * l.every); l.every > 0 && due.After(p.at) {
			time.Sleep(due.Sub(p.at))
			p.at = time.Now()
		}
		w := edge.Work{Kind: l.kind, Local: l.near, Len: l.bytes, Remote: l.far.mem}
		block := l.at()
		if l.atNear {
			w.LocalOff = block * spread
		} else {
			w.RemoteOff = block * spread
		}
		p.op = kit.Get(l.far.c.Post(ctx, &w))
	}
	for waited < n {
		wait()
	}
	if n == 0 {
		kit.Fail("no operation fitted into %v", l.span)
	}
	return outcome{ops: n, seconds: time.Since(start).Seconds(), latency: times.Summary(1)}
}

func stopped(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pattern returns which of n blocks is used next.
func pattern(name string, n int, seed uint64) func() int {
	return kit.Get(xlate.Pattern(name, n, seed))
}
