package workload

import (
	"context"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/bench/report"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// sender initiates operations back to back, depth of them in flight, on its connections in turns. Message seq travels
// between local slot seq mod local.Slots and remote slot seq mod remote.Slots. One goroutine runs it.
type sender struct {
	lanes  []lane
	turn   int          // the lane whose turn it is
	memory *edge.Region // local, of every operation
	local  pattern.Layout
	remote pattern.Layout
	depth  int
	batch  int
	share  int          // of depth, for which it waits together
	credit *credit      // nil: the receiver's slots need not be given back
	inline bool         // the message travels in the operation itself
	pieces []edge.Piece // of a batch
	copied bool         // they are copied to one place first

	// complete, if set, is called for each message in order once its operation is done (a read: its bytes are here).
	complete func(seq uint64)
	// progress, if set, is called now and then with the number of operations done.
	progress func(done uint64)

	lat, post *report.Recorder
	peak      peakMeter

	every     uint64 // one operation in every is timed; a power of two
	ops       []edge.Op
	started   []mono.Time // by position in ops: when it was posted; 0: not timed
	posted    uint64
	done      uint64
	localSlot int
	farSlot   int
	bytes     []byte       // of the local region
	works     []*edge.Work // of a batch
	nextShow  mono.Time
}

// timedSize is the message size from which each operation is timed. Reading the clock twice costs some 80 ns.
const timedSize = 4096

// mostInline is the size up to which messages go inline: it is what one entry of the queue carries. Longer ones would
// take several.
const mostInline = 24

// newSender prepares a sender; nothing is allocated while it runs.
func newSender(lanes []lane, work edge.Work, local, remote pattern.Layout, s *Spec) *sender {
	d := &sender{
		lanes: lanes, memory: work.Local, local: local, remote: remote, depth: s.Depth, batch: s.Batch,
		share: max(s.Batch, s.Depth/4),
		lat:   report.NewRecorder(), post: report.NewRecorder(),
		every: 16,
	}
	if work.Local != nil {
		d.bytes = work.Local.Bytes()
	}
	if s.Pieces > 0 {
		d.pieces, d.copied = make([]edge.Piece, s.Pieces*d.batch), s.Copied
	}
	if s.Size >= timedSize || s.Depth == 1 {
		d.every = 1
	}
	d.inline = (work.Kind == edge.Write || work.Kind == edge.Send) && s.Pieces == 0 && s.Size > 0 &&
		s.Size <= mostInline
	size := 1
	for size < d.depth {
		size *= 2
	}
	d.ops, d.started = make([]edge.Op, size), make([]mono.Time, size)
	for range d.batch {
		w := work
		d.works = append(d.works, &w)
	}
	d.peak.size = uint64(s.Size)
	return d
}

// run sends count messages, or until stop, and waits for all of them. It returns how many were initiated.
func (d *sender) run(ctx context.Context, count uint64, stop mono.Time) uint64 {
	now := mono.Now()
	d.peak.begin(now)
	d.nextShow = now.Add(showEvery)
	for d.posted < count {
		if d.posted&(d.every-1) == 0 || d.batch > 1 {
			if now = mono.Now(); now >= stop {
				break
			}
			d.tick(now)
		}
		d.makeRoom(ctx)
		n := min(uint64(d.batch), count-d.posted, uint64(d.depth)-(d.posted-d.done))
		n = d.credit.take(ctx, d.posted, n)
		d.put(ctx, int(n))
	}
	d.reapAll(ctx)
	return d.posted
}

// makeRoom waits until fewer than depth operations are in flight, and takes along what else is done. It waits for a
// whole share of the oldest, as a program does that has many in flight (perftest asks for one completion of a hundred,
// TCP's writers sleep until a third of the buffer is free), and with batches for a whole one: so the program and the
// daemon are woken, and the clock read, once for many.
func (d *sender) makeRoom(ctx context.Context) {
	if d.posted-d.done > uint64(d.depth-d.batch) {
		i := d.done & uint64(len(d.ops)-1)
		oldest := d.ops[i:min(i+uint64(d.share), uint64(len(d.ops)))]
		kit.Check(edge.WaitAll(ctx, oldest[:min(uint64(len(oldest)), d.posted-d.done)]))
	}
	for d.posted-d.done > uint64(d.depth-d.batch) {
		d.reap(ctx)
	}
	for d.done < d.posted && d.ops[d.done&uint64(len(d.ops)-1)].Done() {
		d.reap(ctx)
	}
}

// reap waits for the oldest operation.
func (d *sender) reap(ctx context.Context) {
	i := d.done & uint64(len(d.ops)-1)
	kit.Check(d.ops[i].Wait(ctx))
	if t := d.started[i]; t != 0 {
		now := mono.Now()
		d.lat.Record(now.Sub(t))
		d.peak.count(now, d.done+1)
	}
	if d.complete != nil {
		d.complete(d.done)
	}
	d.done++
}

// reapAll waits for all operations.
func (d *sender) reapAll(ctx context.Context) {
	for d.done < d.posted {
		d.reap(ctx)
	}
}

// next returns the connection whose turn it is.
func (d *sender) next() *lane {
	l := &d.lanes[d.turn]
	if d.turn++; d.turn == len(d.lanes) {
		d.turn = 0
	}
	return l
}

// put posts the next n messages on one connection.
func (d *sender) put(ctx context.Context, n int) {
	if n == 1 {
		d.putOne(ctx)
		return
	}
	l := d.next()
	for i := range n {
		at := (d.posted + uint64(i)) & uint64(len(d.ops)-1)
		d.works[i].Op, d.started[at] = &d.ops[at], 0
		d.describe(d.works[i], l, d.posted+uint64(i))
	}
	started := mono.Now()
	kit.Get(l.conn.Post(ctx, d.works[:n]...))
	d.posted += uint64(n)
	last := (d.posted - 1) & uint64(len(d.ops)-1)
	d.started[last] = started
	d.post.Record(mono.Now().Sub(started) / time.Duration(n))
}

func (d *sender) putOne(ctx context.Context) {
	w := d.works[0]
	l := d.next()
	d.describe(w, l, d.posted)
	at := d.posted & uint64(len(d.ops)-1)
	d.started[at] = 0
	timed := d.posted&(d.every-1) == 0
	if timed {
		d.started[at] = mono.Now()
	}
	w.Op = &d.ops[at]
	kit.Get(l.conn.Post(ctx, w))
	if timed {
		d.post.Record(mono.Now().Sub(d.started[at]))
	}
	d.posted++
}

// describe turns w, which is that of an earlier message, into that of message seq on l, and moves on to the next slots.
func (d *sender) describe(w *edge.Work, l *lane, seq uint64) {
	switch w.Kind {
	case edge.Write, edge.Atomic:
		w.Remote = l.target
	case edge.Read:
		w.Remote = l.source
	}
	w.LocalOff, w.Len = d.local.Off(d.localSlot), d.local.Message
	if w.Kind == edge.Atomic {
		w.LocalOff = 0
	}
	if n := len(d.pieces) / d.batch; n > 0 {
		d.gather(w, d.pieces[int(seq)%d.batch*n:][:n])
	}
	w.RemoteOff = d.remote.Off(d.farSlot) - pattern.Guard // exports begin behind the guard
	if d.inline {
		w.Inline = d.bytes[w.LocalOff : w.LocalOff+w.Len]
	}
	if w.Flags&edge.Notify != 0 {
		w.Imm = immMessage | uint32(seq&immMask)
	}
	if d.localSlot++; d.localSlot == d.local.Slots {
		d.localSlot = 0
	}
	if d.farSlot++; d.farSlot == d.remote.Slots {
		d.farSlot = 0
	}
}

// gather turns the message of w into pieces, or copies them to its place. They lie at the places of other messages.
func (d *sender) gather(w *edge.Work, pieces []edge.Piece) {
	n := len(pieces)
	size := w.Len / n
	for i := range pieces {
		slot := (d.localSlot + i*(d.local.Slots/n)) % d.local.Slots
		pieces[i] = edge.Piece{Region: d.memory, Off: d.local.Off(slot), Len: size}
	}
	if d.copied {
		for i, p := range pieces {
			copy(d.bytes[w.LocalOff+i*size:][:size], d.bytes[p.Off:])
		}
		return
	}
	w.Local, w.LocalOff, w.Len, w.Pieces = nil, 0, 0, pieces
}

// showEvery is how often progress is reported.
const showEvery = 100 * time.Millisecond

func (d *sender) tick(now mono.Time) {
	if d.progress != nil && now >= d.nextShow {
		d.progress(d.done)
		d.nextShow = now.Add(showEvery)
	}
}

// peakMeter finds the fastest stretch of a run, of at least peakSpan.
type peakMeter struct {
	size  uint64
	since mono.Time
	from  uint64
	best  float64 // bytes per second
}

const peakSpan = 20 * time.Millisecond

func (p *peakMeter) begin(now mono.Time) { p.since = now }

// count notes that done messages are complete.
func (p *peakMeter) count(now mono.Time, done uint64) {
	if d := now.Sub(p.since); d >= peakSpan {
		p.best = max(p.best, float64((done-p.from)*p.size)/d.Seconds())
		p.since, p.from = now, done
	}
}
