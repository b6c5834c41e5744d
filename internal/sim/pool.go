package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Shared receive queues (clause 14.5). Some nodes have one. Of their connections most take their buffers from there,
// which are few, and all of one length; those that came back are posted again some time later. The queue is dropped
// when no connection uses it, and refuses that while one does.

// Pooled counts what happened to shared queues.
type Pooled struct {
	Shared, Returned         uint64 // buffers that came back with a message, and with the end of a connection
	Emptied                  uint64 // times that no free buffer was left
	QueuesDropped, QueueBusy uint64
	Lends                    uint64 // queues that lent what was promised and not used
}

// poolMix is which nodes have one, and what happens besides there. Without any the world is that of the other faults.
type poolMix struct {
	nodes                   uint64 // a bit of each
	drops, crashes, endings int
	cuts                    int // of each: connections that end while messages come into buffers
}

func drawPools(o Options) (m poolMix) {
	rng := stream(o.Seed, poolStream)
	if rng.IntN(2) == 0 || o.Misses.Delay > 0 || o.HeldBytes > 0 { // there are no messages
		return m
	}
	m.nodes, m.drops = 1+rng.Uint64N(1<<o.Nodes-1), rng.IntN(8)
	if rng.IntN(2) == 0 {
		m.crashes, m.endings, m.cuts = rng.IntN(3), rng.IntN(8), rng.IntN(8)
	}
	return m
}

// pool is the shared queue of a node, and its buffers.
type pool struct {
	node      *Node
	rng       *rand.Rand
	size      int            // of each buffer
	few       int            // buffers at first
	queue     engine.QueueID // 0: it is dropped, or not made yet
	ends      []*end         // that take from it
	idle      []*buffer
	lent      map[uint64]*buffer // to the engine, by token; never ranged over where order shows
	tokens    uint64
	posted    int       // as the queue said after the latest event
	cuts      int       // that are left
	lends     bool      // it has lent: more may be promised than are posted
	due       bool      // buffers are about to be posted
	freeSince mono.Time // since when there are buffers that nobody was promised; Never: there are none
}

func (w *swarm) makePools() {
	w.mailed, w.pools = make([]mailed, len(w.world.Nodes)), make([]*pool, len(w.world.Nodes))
	rng := stream(w.world.opt.Seed, poolStream+1000)
	for i, n := range w.world.Nodes {
		p := &pool{node: n, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), size: []int{200, 3000, 20000}[rng.IntN(3)],
			few: 1 + rng.IntN(6), lent: map[uint64]*buffer{}, cuts: w.mix.pools.cuts}
		if w.mix.pools.nodes>>i&1 != 0 {
			w.pools[i] = p
		}
	}
}

// moreChannels adds some to nodes with a shared queue, for which few connections would do little.
func (w *swarm) moreChannels() {
	for _, p := range w.pools {
		for n := 0; p != nil && n < 2; n += 1 + p.rng.IntN(2) {
			from := (p.node.Index + 1 + p.rng.IntN(len(w.world.Nodes)-1)) % len(w.world.Nodes)
			w.channels = append(w.channels, &channel{from: w.world.Nodes[from], to: p.node, tries: w.mix.tries})
		}
	}
}

// drawShares says whether an end takes its buffers from the node's queue, if that has one.
func (e *end) drawShares(w *swarm, rng *rand.Rand) {
	if p := w.pools[e.node.Index]; p != nil && rng.IntN(4) > 0 {
		e.shares = p
	}
}

// drawMessage says whether a write to an end becomes a message.
func (e *end) drawMessage(rng *rand.Rand) bool {
	n := rng.IntN(4)
	return n == 0 || e.shares != nil && n < 3
}

// cut shortens a message to what fits into a buffer, but some if any may fail.
func (p *pool) cut(o *operation, want []byte, rng *rand.Rand, kind planKind) []byte {
	if p.tooLong(o) && (kind == goodOperations || rng.IntN(3) > 0) {
		o.size %= p.size + 1
	}
	return want[:o.size]
}

func (p *pool) tooLong(o *operation) bool { return p != nil && o.size > p.size }

// joinSoon has an end take from the queue, now or some time later, with messages on their way.
func (w *swarm) joinSoon(e *end) {
	if wait := time.Duration(e.shares.rng.IntN(20_000_000)); e.shares.rng.IntN(2) == 0 {
		w.world.After(wait, func() { w.joinPool(e) })
	} else {
		w.joinPool(e)
	}
}

func (w *swarm) joinPool(e *end) {
	if e.state != endOpen || e.node.Down || e.boot != e.node.boot {
		return
	}
	p, to := e.shares, e.node.E
	if p.queue == 0 {
		p.queue, p.posted, p.freeSince, p.lends = to.NewReceiveQueue(), 0, mono.Never, false
		for len(p.idle) < p.few {
			p.grow(w)
		}
		w.postSoon(p)
	}
	if !to.JoinReceiveQueue(w.world.Now, e.conn, p.queue) {
		w.world.After(0, func() {
			if e.state == endOpen { // not one whose end was about to be told
				w.world.fault("%v: cannot join the queue (closing %v)", e, e.closing)
			}
		})
		return
	}
	if to.JoinReceiveQueue(w.world.Now, e.conn, p.queue) || to.PostReceive(w.world.Now, e.conn, &engine.Receive{}) {
		w.world.fault("%v: took buffers besides those of its queue", e)
	}
	p.ends, e.joined = append(p.ends, e), w.world.Now
	posted, promised, _ := to.QueueLoad(p.queue)
	if n, _ := to.TakerLoad(e.conn); n > 0 && 2*(posted-promised+1) <= posted {
		w.world.fault("%v: was promised %d buffers unasked when it joined; then %d of %d were free", e, n,
			posted-promised,
			posted)
	}
}

// grow adds a buffer.
func (p *pool) grow(w *swarm) {
	a := &area{node: p.node, name: "a buffer of the shared queue"}
	b := &buffer{slot: a.slot(p.size, nil, false), size: p.size}
	b.pool = p
	a.make(1, false)
	w.areas[p.node.Index] = append(w.areas[p.node.Index], a)
	p.idle = append(p.idle, b)
}

// postSoon posts buffers that are idle, some after the others.
func (w *swarm) postSoon(p *pool) {
	if p.due || len(p.idle) == 0 {
		return
	}
	p.due = true
	most := 3_000_000
	if p.rng.IntN(8) == 0 {
		most = 40_000_000
	}
	w.world.After(time.Duration(p.rng.IntN(most)), func() {
		p.due = false
		if p.queue == 0 || p.node.Down || len(p.idle) == 0 {
			return
		}
		for range 1 + p.rng.IntN(len(p.idle)) {
			w.postOne(p)
		}
		w.postSoon(p)
	})
}

func (w *swarm) postOne(p *pool) {
	b := p.idle[0]
	p.idle = p.idle[1:]
	b.fill(untouched)
	b.mark, b.at = 0, w.world.Now
	p.tokens++
	p.lent[p.tokens] = b
	r := receive(p.tokens, b.bytes(), b.area.region)
	if !p.node.E.PostShared(w.world.Now, p.queue, &r) {
		w.world.fault("node%d: the shared queue takes no buffer", p.node.Index)
	}
}

// takeBack has a buffer that came back be its owner's; nil if it is already.
func (w *swarm) takeBack(p *pool, ev *engine.Event) *buffer {
	b := p.lent[ev.Token]
	if b == nil || b.area.region.InFlight != 0 {
		w.world.fault("node%d: shared buffer %d came back from connection %x, %d of %d are posted", p.node.Index,
			ev.Token,
			ev.Conn, len(p.lent), p.tokens)
		return nil
	}
	delete(p.lent, ev.Token)
	p.idle = append(p.idle, b)
	w.postSoon(p)
	return b
}

// receivedShared checks a buffer that came back through a connection.
func (w *swarm) receivedShared(e *end, ev *engine.Event) {
	b := w.takeBack(e.shares, ev)
	if b == nil {
		return
	}
	last := e.latest
	e.latest = ev.Token
	switch {
	case e.joined == 0 || ev.Token <= last:
		w.world.fault("%v: took shared buffer %d after %d, joined at %v", e, ev.Token, last, e.joined)
	case ev.Status != engine.OK && ev.Status != engine.StatusTooLong:
		w.report.Pooled.Returned++
	default:
		w.report.Pooled.Shared++
		if err := e.meets(w, b, ev); err != nil {
			w.world.fault("%v: shared buffer %d of %d bytes came back as %+v with status %d: %w", e, ev.Token, b.size,
				ev.Msg,
				ev.Status, err)
		}
	}
	b.fill(reused)
}

// returned takes a buffer that came back with the queue.
func (w *swarm) returned(n *Node, ev *engine.Event) {
	p := w.pools[n.Index]
	if p == nil || p.queue != 0 || ev.Status != engine.StatusClosed {
		w.world.fault("node%d: buffer %d came back from no connection with %q", n.Index, ev.Token, ev.Status)
	} else if b := w.takeBack(p, ev); b != nil {
		b.fill(reused)
	}
}

// dropQueue drops the queue of a node, or tries to.
func (w *swarm) dropQueue() {
	p := w.pools[w.dice.IntN(len(w.pools))]
	if p == nil || p.queue == 0 || p.node.Down {
		return
	}
	w.drop(p)
}

func (w *swarm) drop(p *pool) {
	id, e := p.queue, p.node.E
	if dropped := e.DropReceiveQueue(id); dropped != (len(p.ends) == 0) {
		w.world.fault("node%d: the queue of %d connections was dropped: %v", p.node.Index, len(p.ends), dropped)
	} else if !dropped {
		w.report.Pooled.QueueBusy++
		return
	}
	p.queue = 0
	if !w.healed {
		w.report.Pooled.QueuesDropped++
	}
	if e.DropReceiveQueue(id) || e.PostShared(w.world.Now, id, &engine.Receive{}) {
		w.world.fault("node%d: the queue that was dropped is there", p.node.Index)
	}
}

// dropAll drops what is left when all connections are closed.
func (w *swarm) dropAll() error {
	if w.mix.pools.nodes == 0 {
		return nil
	}
	for _, p := range w.pools {
		if p != nil && p.queue != 0 {
			w.drop(p)
		}
	}
	return w.world.Rest(time.Millisecond)
}

// crash has all buffers be their owner's.
func (p *pool) crash() {
	for _, b := range p.lent {
		b.area.end()
	}
	for _, b := range p.idle {
		b.area.end()
	}
	clear(p.lent)
	p.queue, p.ends, p.idle = 0, nil, nil
}

// cutOff ends a connection that takes from a queue, from either end.
func (w *swarm) cutOff(p *pool) {
	if len(p.ends) == 0 {
		return
	}
	e := p.ends[p.rng.IntN(len(p.ends))]
	if p.rng.IntN(2) == 0 {
		e = e.other
	}
	if e.state == endOpen && !e.closing && !e.aborted && !e.node.Down {
		w.endNow(e)
	}
}

func (e *end) leavePool(w *swarm) {
	if e.joined == 0 {
		return
	}
	p := e.shares
	p.ends = slices.DeleteFunc(p.ends, func(o *end) bool { return o == e })
	if p.freeSince != mono.Never {
		p.freeSince = w.world.Now // there may have been none a moment ago
	}
}

// coming is the messages that may be in a buffer, or in part.
func (p *pool) coming() (all []*operation) {
	for _, e := range p.ends {
		for _, o := range e.awaits[e.met:] {
			if o.submitted {
				all = append(all, o)
			}
		}
	}
	return all
}

// has reports whether a message is in a buffer.
func (p *pool) has(o *operation) bool {
	for _, b := range p.lent {
		if b.has(o) {
			return true
		}
	}
	return false
}

// check compares what the engine says of the queue with what is known, after every event.
func (p *pool) check(w *swarm) error {
	switch {
	case p == nil || p.node.Down || w.world.handled != nil && w.world.handled != p.node:
		return nil
	case p.queue == 0:
		if len(p.lent) > 0 {
			return fmt.Errorf("node%d: %d buffers did not come back with their queue", p.node.Index, len(p.lent))
		}
		return nil
	}
	posted, promised, lent := p.node.E.QueueLoad(p.queue)
	if lent > 0 && !p.lends {
		p.lends = true
		w.report.Pooled.Lends++
	}
	free, owed, filling := posted-promised, 0, 0
	var more []*end // that were promised more
	for _, e := range p.ends {
		n, fills := p.node.E.TakerLoad(e.conn)
		owed, filling = owed+n, filling+fills
		if e.gained = n - e.unused; e.gained > 0 {
			more = append(more, e)
		}
		e.unused = n
	}
	if posted+filling != len(p.lent) || promised != owed || owed < 0 || lent < 0 || lent > promised ||
		free < 0 && !p.lends {
		return fmt.Errorf("node%d: %d shared buffers are posted; the queue has %d, messages %d; %d are promised, to "+
			"connections %d", p.node.Index, len(p.lent), posted, filling, promised, owed)
	}
	began := posted < p.posted // then some may have had their turn in between
	p.posted = posted
	if len(more) == 1 && !began && !p.lends && more[0].unused > 1 && 2*free+2 < posted {
		return fmt.Errorf("%v: was promised %d shared buffers more and uses none of %d; %d of %d are free", more[0],
			more[0].gained, more[0].unused, free, posted)
	}
	if filling > 0 && p.cuts > 0 && !w.healed && p.rng.IntN(4) == 0 {
		p.cuts--
		w.world.After(0, func() { w.cutOff(p) })
	}
	switch {
	case free <= 0 && p.freeSince != mono.Never:
		p.freeSince = mono.Never
		w.report.Pooled.Emptied++
	case free > 0 && p.freeSince == mono.Never:
		p.freeSince = w.world.Now
	}
	return nil
}

// judgeShortage says whether a strict message can have found no buffer: not if some were free all the time.
func (e *end) judgeShortage(o *operation) error {
	if o.op.Patience != engine.NoWait {
		return nil
	}
	if !e.killed && !e.node.Down && e.boot == e.node.boot {
		e.pairing.w.mailed[e.node.Index].refused++
	}
	if p := e.shares; e.joined != 0 && e.joined <= o.msg.at && p.freeSince <= o.msg.at {
		return fmt.Errorf("the queue has had free buffers since %v, before it was submitted at %v", p.freeSince,
			o.msg.at)
	}
	return nil
}

// mailed counts what came to a node's buffers.
type mailed struct {
	whole, long, ended uint64 // buffers that came back with a message, with part of one that was too long, otherwise
	refused            uint64 // strict messages whose senders know that they found none
}

func (m *mailed) count(ev *engine.Event) {
	switch ev.Status {
	case engine.OK:
		m.whole++
	case engine.StatusTooLong:
		m.long++
	default:
		m.ended++
	}
}

// check compares it with the engine's counters. A message behind one that is not whole may end with its connection.
func (m *mailed) check(c *engine.Counters) error {
	got, told := c.Op.MessagesReceived+c.Op.MessagesTooLong, m.whole+m.long
	if c.Op.MessagesReceived < m.whole || c.Op.MessagesTooLong < m.long || got > told+m.ended ||
		c.Op.MessagesUnbuffered < m.refused {
		return fmt.Errorf("messages: %d arrived, %d were too long, %d found no buffer, of %+v", c.Op.MessagesReceived,
			c.Op.MessagesTooLong, c.Op.MessagesUnbuffered, *m)
	}
	return nil
}
