package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
)

// client moves data over connections that it makes anew whenever they end.
type client struct {
	w     *worker
	tally *tally
	devMu sync.Mutex
	dev   *edge.Device // replaced when its daemon went away

	lives  sync.WaitGroup
	cancel context.CancelFunc // ends the present lives in good order
	number int                // of the next connection's name
	nameMu sync.Mutex
}

func runClient(ctx context.Context, w *worker) {
	before := thisRest()
	c := &client{w: w, tally: newTally()}
	kit.Get(c.device(ctx))
	w.emit(Event{Started: true})
	c.resume(ctx)
	w.serve(ctx, orders{
		"mark": on(c.tally.mark),
		"drain": on(func(any) *Window { // finishes what is in flight, closes connections, hands in claims
			c.drain()
			return c.tally.mark("drain")
		}),
		"resume": on(func(any) any {
			c.tally.mark("")
			c.resume(ctx)
			return nil
		}),
	})
	c.drain()
	c.devMu.Lock()
	c.dev.Close()
	c.devMu.Unlock()
	rest := settle(before)
	w.emit(Event{Rest: &rest})
}

// device returns a living Device, made anew when the one before has died.
func (c *client) device(ctx context.Context) (*edge.Device, error) {
	c.devMu.Lock()
	defer c.devMu.Unlock()
	if c.dev != nil && c.dev.Err() == nil {
		return c.dev, nil
	}
	dev, err := edge.Open(ctx, edge.Config{Socket: c.w.job.Socket})
	if err != nil {
		return nil, err
	}
	if c.dev != nil {
		c.dev.Close()
	}
	c.dev = dev
	return dev, nil
}

func (c *client) resume(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	for range c.w.job.Conns {
		c.lives.Go(func() { c.live(ctx) })
	}
}

func (c *client) drain() {
	c.cancel()
	c.lives.Wait()
}

// redialPause is between attempts to connect.
const redialPause = 10 * time.Millisecond

// live keeps one connection, one lane after another, until ctx ends.
func (c *client) live(ctx context.Context) {
	for again := false; ctx.Err() == nil; {
		l, err := c.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.tally.dialFailed(err)
				sleep(ctx, redialPause)
			}
			continue
		}
		c.tally.dialled(again)
		again = true
		l.run(ctx)
		c.tally.down()
		c.handIn(l)
	}
}

// handIn releases a lane's memory and hands its claim to the server.
func (c *client) handIn(l *lane) {
	if err := l.local.Close(); errors.Is(err, edge.ErrBusy) {
		c.tally.wrong("memory is still in use after every operation has ended")
	}
	l.claim.Bytes = l.oracle.bytes
	file := fmt.Sprintf("%s/%s.claim", c.w.job.Dir, l.claim.ID)
	if err := writeFile(file, &l.claim); err != nil {
		c.tally.wrong(err.Error())
		return
	}
	c.w.emit(Event{Claim: &Handed{File: file}})
}

func (c *client) name() string {
	c.nameMu.Lock()
	defer c.nameMu.Unlock()
	c.number++
	return fmt.Sprintf("%s-%d", c.w.job.Name, c.number)
}

// lane is one connection of a client, from dial to close. Movers work on it until it ends or they are told to stop.
type lane struct {
	c      *client
	conn   *edge.Conn
	remote *edge.RemoteRegion
	local  *edge.Region
	oracle *oracle
	slots  []slot
	broken atomic.Bool // no more operations
	notes  atomic.Uint32
	mu     sync.Mutex // guards claim
	claim  Claim
}

// dialTime bounds one attempt to connect and import.
const dialTime = 3 * time.Second

// open connects a lane. If that fails, it gives the lane's region back.
func (c *client) open(ctx context.Context) (*lane, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	l := &lane{c: c, claim: Claim{ID: c.name(), Notes: map[uint32]int{}, Doubts: map[uint32]int{}}}
	err := kit.Try(func() { l.open(ctx, kit.Get(c.device(ctx))) })
	if err != nil {
		if l.conn != nil {
			l.conn.Abort()
		}
		c.w.emit(Event{Claim: &Handed{Void: l.claim.ID}}) // the peer may have the connection nevertheless
		return nil, err
	}
	return l, nil
}

func (l *lane) open(ctx context.Context, dev *edge.Device) {
	job := &l.c.w.job
	movers, shared := job.Depth, job.Mix == MixShared
	if shared {
		movers = max(movers/2, 1) // few enough that each sender is promised some in turn
	}
	slots, size := kit.Get2(divide(job.Mix, movers))
	g := greeting{ID: l.claim.ID, Size: size, Seed: job.Seed, Shared: shared}
	if l.talks() {
		g.Buffers = movers
	}
	l.conn = kit.Get(dev.Dial(ctx, job.Peer, job.Service, edge.Data(kit.Get(json.Marshal(g)))))
	if !l.talks() {
		l.remote = kit.Get(l.conn.Import(ctx, exportName))
	}
	l.slots, l.oracle = slots, newOracle(job.Seed, size)
	l.local = kit.Get(job.memory(ctx, dev, 2*size+l.space()))
	for _, s := range l.slots {
		l.claim.Slots = append(l.claim.Slots, [2]int{s.off, s.size})
	}
}

// talks reports whether the lane sends messages. Nothing is exported for such a lane.
func (l *lane) talks() bool { return l.c.w.job.Mix == MixMessages || l.c.w.job.Mix == MixShared }

// space is the local memory that movers need beside the mirror of the region and the memory for reads.
func (l *lane) space() int {
	switch {
	case l.c.w.job.Mix == MixFences:
		return len(l.slots) * fenceSpace
	case l.talks():
		return 2 * l.c.w.job.Depth * longestMessage
	}
	return 0
}

// run moves data until the connection ends or ctx does, then closes it in good order.
func (l *lane) run(ctx context.Context) {
	if l.talks() {
		l.talk(ctx)
		l.end()
		return
	}
	var movers sync.WaitGroup
	half := len(l.oracle.bytes)
	background(l.oracle.src, l.local.Bytes()[half:2*half])
	for i, s := range l.slots {
		movers.Go(func() {
			if l.c.w.job.Mix == MixFences {
				newFencer(l, s, 2*half+i*fenceSpace, l.c.w.job.Seed+uint64(i)).run(ctx)
				return
			}
			m := mover{l: l, slot: s, number: uint64(i), half: half,
				rng: rand.New(rand.NewPCG(l.c.w.job.Seed, uint64(i)))}
			m.run(ctx)
		})
	}
	movers.Wait()
	l.end()
}

// end closes the connection, in good order if it can.
func (l *lane) end() {
	if l.conn.Err() == nil && !l.broken.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), l.c.w.job.Deadline)
		defer cancel()
		if err := l.conn.CloseContext(ctx); err != nil && !isEnd(err) {
			l.c.tally.failedClose(err)
		}
	} else {
		l.conn.Abort()
	}
}

// mover keeps one operation in flight on its own slot.
type mover struct {
	l      *lane
	slot   slot
	number uint64
	half   int // offset in the local region of the memory for reads
	rng    *rand.Rand
	round  uint64
}

func (m *mover) run(ctx context.Context) {
	for ctx.Err() == nil && !m.l.broken.Load() {
		if err := m.move(ctx); err != nil {
			m.l.broken.Store(true)
			return
		}
	}
}

// move does one operation. An error ends the lane.
func (m *mover) move(ctx context.Context) error {
	w := m.choose()
	write := w.Kind == edge.Write
	if write {
		m.l.oracle.src.Fill(m.l.local.Bytes()[w.LocalOff:w.LocalOff+w.Len], 1+m.number*1000003+m.round)
	}
	t := m.l.c.tally
	start := time.Now()
	op, err := m.l.conn.Post(ctx, &w)
	if err != nil {
		return err // nothing was started
	}
	number := t.begins(start)
	err, late := m.l.await(op, start)
	t.ends(number, w.Len, err, late)
	if write {
		m.l.wrote(w.LocalOff, m.l.local.Bytes()[w.LocalOff:w.LocalOff+w.Len], w.Flags, w.Imm, err)
	} else if err == nil {
		m.check(&w)
	}
	return err
}

// await waits for the end of an operation. If the operation does not end within three times its deadline, await ends
// the connection.
func (l *lane) await(op edge.Op, start time.Time) (err error, late bool) {
	deadline := l.c.w.job.Deadline
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(deadline))
	defer cancel()
	if err = op.Wait(ctx); op.Done() {
		return op.Err(), time.Since(start) > deadline
	}
	again, stop := context.WithTimeout(context.Background(), 2*deadline)
	defer stop()
	if op.Wait(again); !op.Done() {
		l.c.tally.wrong("an operation never ended")
		l.conn.Abort()
		return err, true
	}
	return op.Err(), true
}

// choose draws the next operation. Local memory mirrors the remote region twice: writes are from its first half, reads
// go to its second.
func (m *mover) choose() edge.Work {
	m.round++
	mix := m.l.c.w.job.Mix
	n, off := m.slot.size, m.slot.off
	if mix != MixBulk && mix != MixReads && mix != MixWrites {
		n = 1 + int(float64(m.slot.size-1)*m.rng.Float64()*m.rng.Float64())
		off += m.rng.IntN(m.slot.size - n + 1)
	}
	w := edge.Work{Kind: edge.Write, Local: m.l.local, LocalOff: off, Len: n, Remote: m.l.remote,
		RemoteOff: off - guard}
	if mix == MixReads && m.rng.IntN(5) > 0 {
		w.Kind, w.LocalOff = edge.Read, m.half+off
	}
	if mix == MixRandom {
		switch p := m.rng.IntN(100); {
		case p < 20:
			w.Kind, w.LocalOff = edge.Read, m.half+off
		case p < 40:
			w.Flags |= edge.Notify
		}
		switch p := m.rng.IntN(100); {
		case p < 3:
			w.Flags |= edge.BackwardFence
		case p < 6:
			w.Flags |= edge.ForwardFence
		}
	}
	if mix == MixSmall {
		w.Flags |= edge.Notify
	}
	if w.Flags&edge.Notify != 0 {
		w.Imm = m.l.notes.Add(1)
	}
	return w
}

// wrote records an ended write to off of the region in the oracle and the claim.
func (l *lane) wrote(off int, sent []byte, flags edge.Flags, imm uint32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		copy(l.oracle.bytes[off:], sent)
	} else {
		l.claim.Maybe = append(l.claim.Maybe, Maybe{off, append([]byte(nil), sent...)})
	}
	if flags&edge.Notify == 0 {
		return
	}
	if err == nil {
		l.claim.Notes[imm] = len(sent)
	} else {
		l.claim.Doubts[imm] = len(sent)
	}
}

// check compares what was read with the oracle. It also compares the gaps beside the slot, which hold the background in
// both.
func (m *mover) check(w *edge.Work) {
	local, want := m.l.local.Bytes(), m.l.oracle.bytes
	at := w.LocalOff - m.half
	if string(local[w.LocalOff:w.LocalOff+w.Len]) != string(want[at:at+w.Len]) {
		m.l.c.tally.wrong("a read returned bytes that the memory does not hold")
	}
	before, after := m.slot.off, m.slot.off+m.slot.size
	if o := m.l.oracle; !o.intact(local[m.half:], before-gap, before) || !o.intact(local[m.half:], after, after+gap) {
		m.l.c.tally.wrong("a read wrote beside the memory it was given")
	}
}
