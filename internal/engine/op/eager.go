package op

import (
	"encoding/binary"
	"math"
	"math/bits"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/copies"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// Eager transfer (clause 18): a write or send whose bytes travel while its owner still composes them. This is the end
// that composes; the other is drafts.go.
//
// Blocks that the owner marks as written are sent, in whatever order, to a draft at the peer that nobody sees. Each
// time a block is sent with what may be new bytes it gets a greater stamp, and the peer keeps the greatest. Commit
// makes the composed message an ordinary operation, with the next number, whose one segment says which sum the stamps
// of all blocks have: no stamp of the peer's is greater than ours, so equal sums mean that it has the newest of each.
//
// Bytes are copied into frames, never referred to, since the owner may change them. A block that is being changed while
// it is copied is marked again afterwards, and sent again.

const (
	// MaxEager is the longest composed message, in bytes.
	MaxEager = wire.MaxStaged

	eagerBlock   = wire.StageBlock
	maxComposing = 16 // messages of one connection that are being composed
	stageHeader  = 24 // of a Stage
)

// eager is what a connection has of composed messages, from the first on.
type eager struct {
	ours   []*compose
	marked int // blocks of ours that are to be sent
	next   uint32
	ended  numbers // of ours: those that the peer has no draft of any more
	words  queue.Queue[eagerWord]

	drafts []*draft // of the peer's
	gone   numbers  // of the peer's: applied, dropped or refused
}

// compose is a message of ours, until it is committed and everything of it has arrived.
type compose struct {
	op        Op
	name      uint64 // by which its owner commits it
	number    uint32 // at the peer, if it is numbered: from the first block sent on
	numbered  bool
	committed bool
	refused   bool // the peer has no room for a draft
	sent      bool // of a committed one: its Commit was, as operation seq
	seq       seqnum.Value
	mem       []byte
	size      uint64   // of what was committed
	stamp     uint32   // the latest
	stamps    []uint32 // of each block as it was sent last; 0: never
	sum       uint64   // of stamps
	marks     []uint64 // blocks to be sent, a bit each
	left      int      // of marks
}

// mostWords is how many words of a connection may wait to be sent when the peer makes us say another one: more than a
// peer that counts right can.
const mostWords = 4 * numbersSpan

// eagerWord is a Discard or an Unstaged to be sent.
type eagerWord struct {
	kind   wire.Kind
	number uint32
}

// lastStamp is the last before the commit, which needs another one.
const lastStamp = math.MaxUint32 - 1

// numbersSpan is how far numbers of composed messages are apart at most, so that a word remembers which have ended.
const numbersSpan = 64

// numbers are those before base, and those of the bits from base on.
type numbers struct {
	base uint32
	more uint64
}

func (n *numbers) has(i uint32) bool {
	d := int32(i - n.base)
	return d < 0 || d < numbersSpan && n.more>>d&1 != 0
}

// fits reports whether i can be remembered.
func (n *numbers) fits(i uint32) bool { return int32(i-n.base) < numbersSpan }

func (n *numbers) add(i uint32) {
	if n.has(i) || !n.fits(i) {
		return
	}
	n.more |= 1 << (i - n.base)
	k := bits.TrailingZeros64(^n.more)
	n.base += uint32(k)
	n.more >>= k
}

// composing returns c.eager, made when it is used for the first time.
func (c *Conn) composing() *eager {
	if c.eager == nil {
		c.eager = &eager{}
	}
	return c.eager
}

// Compose begins a write or send of op.Local, whose owner calls it name until he commits it; its Flags and Imm are said
// then. It returns why there is none. Else exactly one EvComplete with op.Token follows, and op.Local is the endpoint's
// to read until then.
func (e *Endpoint) Compose(id ConnID, op *Op, name uint64) abi.Status {
	c := e.conn(id)
	switch {
	case c == nil || c.state != connOpen:
		return abi.StatusClosed
	case len(op.Local) == 0 || len(op.Local) > MaxEager:
		return abi.StatusBounds
	case c.send.pending >= e.cfg.OpWindow:
		return abi.StatusLimit
	}
	g, open := c.composing(), 0
	for _, k := range g.ours {
		if !k.committed {
			open++
		}
	}
	if open >= maxComposing {
		return abi.StatusLimit
	}
	blocks := (len(op.Local) + eagerBlock - 1) / eagerBlock
	k := e.takeCompose(blocks)
	k.op, k.name, k.mem = *op, name, op.Local
	if op.Region != nil {
		op.Region.InFlight++
	}
	c.send.pending++
	e.Count.Op.OpsSubmitted++
	g.ours = append(g.ours, k)
	return OK
}

// idleEager is what composed messages left, to be used again.
type idleEager struct {
	composes   []*compose
	drafts     [copies.Classes][]*draft
	draftBytes int // of drafts
	committing Op  // for the call of Commit
}

// How much is kept: as many composed messages as a connection can have, and drafts of so many bytes.
const (
	mostIdleEager  = numbersSpan
	mostIdleDrafts = 4 << 20
)

func (e *Endpoint) takeCompose(blocks int) *compose {
	var k *compose
	if n := len(e.eager.composes); n > 0 {
		k, e.eager.composes = e.eager.composes[n-1], e.eager.composes[:n-1]
	} else {
		k = new(compose)
	}
	*k = compose{stamps: zeros(k.stamps, blocks), marks: zeros(k.marks, (blocks+63)/64)}
	return k
}

// zeros returns n zeros, in the memory of s if they fit.
func zeros[T uint32 | uint64](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	clear(s[:n])
	return s[:n]
}

// putCompose takes back a message that nothing refers to any more.
func (e *Endpoint) putCompose(k *compose) {
	k.op, k.mem = Op{}, nil
	if len(e.eager.composes) < mostIdleEager {
		e.eager.composes = append(e.eager.composes, k)
	}
}

// find returns a message that is being composed.
func (g *eager) find(name uint64) *compose {
	if g != nil {
		for _, k := range g.ours {
			if !k.committed && k.name == name {
				return k
			}
		}
	}
	return nil
}

// byNumber returns a message that the peer may have a draft of.
func (g *eager) byNumber(number uint32) *compose {
	for _, k := range g.ours {
		if k.numbered && k.number == number {
			return k
		}
	}
	return nil
}

// Wrote marks n bytes from off on of a composed message as written. It reports whether there is such a message.
func (e *Endpoint) Wrote(id ConnID, name, off, n uint64) bool {
	c := e.conn(id)
	if c == nil {
		return false
	}
	k := c.eager.find(name)
	if k == nil {
		return false
	}
	size := uint64(len(k.mem))
	off = min(off, size)
	if n = min(n, size-off); n == 0 || k.refused {
		return true
	}
	c.eager.markAll(k, int(off/eagerBlock), int((off+n-1)/eagerBlock))
	c.wake()
	return true
}

func (k *compose) marked(b int) bool { return k.marks[b/64]>>(b%64)&1 != 0 }

func (g *eager) mark(k *compose, b int) {
	if !k.marked(b) {
		k.marks[b/64] |= 1 << (b % 64)
		k.left++
		g.marked++
	}
}

// markAll marks the blocks from first to last.
func (g *eager) markAll(k *compose, first, last int) {
	for w := first / 64; w <= last/64; w++ {
		more := ^uint64(0)
		if w == first/64 {
			more <<= first % 64
		}
		if w == last/64 {
			more &= ^uint64(0) >> (63 - last%64)
		}
		n := bits.OnesCount64(more &^ k.marks[w])
		k.marks[w] |= more
		k.left += n
		g.marked += n
	}
}

func (g *eager) unmark(k *compose, b int) {
	if k.marked(b) {
		k.marks[b/64] &^= 1 << (b % 64)
		k.left--
		g.marked--
	}
}

// unmarkAll gives up sending the blocks of a message.
func (g *eager) unmarkAll(k *compose) {
	g.marked -= k.left
	k.left = 0
	clear(k.marks)
}

// setStamp gives block b the latest stamp.
func (k *compose) setStamp(b int) {
	k.sum += uint64(k.stamp - k.stamps[b])
	k.stamps[b] = k.stamp
}

// Commit submits the first n bytes of a composed message as an operation with those flags. It reports whether there is
// such a message. From then on its bytes must not change.
func (e *Endpoint) Commit(now mono.Time, id ConnID, name uint64, flags OpFlags, imm uint32, n uint64) bool {
	c := e.conn(id)
	if c == nil {
		return false
	}
	g := c.eager
	k := g.find(name)
	if k == nil {
		return false
	}
	if n > uint64(len(k.mem)) {
		c.dropCompose(k, abi.StatusBounds)
		return true
	}
	op := &e.eager.committing
	*op = k.op
	op.Flags, op.Imm, op.Local = flags&^LocalDone, imm, k.mem[:n]
	if k.numbered && !k.refused {
		op.eager, k.committed, k.size = k, true, n
		g.freeze(k, int(n+eagerBlock-1)/eagerBlock)
		e.Count.Eager.EagerCommitted++
	} else {
		g.unmarkAll(k)
		g.remove(k)
		e.putCompose(k)
	}
	if (op.Kind != OpSend && c.msgs == nil) || !c.mustWait(now, op) {
		c.enter(op, now)
	}
	*op = Op{}
	c.wake()
	return true
}

// freeze gives what is to be sent of the first blocks its last stamp; their bytes do not change any more.
func (g *eager) freeze(k *compose, blocks int) {
	k.stamp++
	for b := range k.stamps {
		switch {
		case b < blocks && (k.marked(b) || k.stamps[b] == 0):
			k.setStamp(b)
			g.mark(k, b)
		case k.stamps[b] == 0:
			g.unmark(k, b)
		}
	}
}

// Discard drops a composed message; it completes with StatusAborted. It reports whether there is such a message.
func (e *Endpoint) Discard(id ConnID, name uint64) bool {
	c := e.conn(id)
	if c == nil {
		return false
	}
	k := c.eager.find(name)
	if k == nil {
		return false
	}
	c.dropCompose(k, abi.StatusAborted)
	e.Count.Eager.EagerDiscarded++
	return true
}

// dropCompose ends a message that was not committed.
func (c *Conn) dropCompose(k *compose, st abi.Status) {
	c.undraft(k)
	e := c.e
	e.Count.Op.OpsCompleted++
	e.Count.Op.OpsFailed++
	if k.op.Region != nil {
		k.op.Region.InFlight--
	}
	c.send.pending--
	e.Emit(Event{Kind: EvComplete, Conn: c.ID, Token: k.op.Token, Status: st})
	e.putCompose(k)
}

// undraft forgets a message, and has the peer do so.
func (c *Conn) undraft(k *compose) {
	g := c.eager
	g.unmarkAll(k)
	g.remove(k)
	if k.numbered && !k.refused {
		c.tellDraft(wire.KindDiscard, k.number)
	}
}

func (g *eager) remove(k *compose) {
	for i, o := range g.ours {
		if o == k {
			last := len(g.ours) - 1
			g.ours[i], g.ours[last] = g.ours[last], nil
			g.ours = g.ours[:last]
			return
		}
	}
}

// tellDraft queues a Discard or an Unstaged.
func (c *Conn) tellDraft(kind wire.Kind, number uint32) {
	c.eager.words.Push(eagerWord{kind, number})
	c.wake()
}

// endEager forgets a composed message whose operation has ended: the peer has no draft of it any more.
func (c *Conn) endEager(o *sendOp) {
	k := o.op.eager
	o.op.eager = nil
	c.eager.unmarkAll(k)
	c.eager.remove(k)
	c.numberEnded(k.number)
	c.e.putCompose(k)
}

// numberEnded notes that the peer has no draft of that number any more. Messages that found no number may find one now.
func (c *Conn) numberEnded(number uint32) {
	c.eager.ended.add(number)
	if c.eager.marked > 0 {
		c.wake()
	}
}

// endComposing ends what is being composed on a connection that ends with st.
func (c *Conn) endComposing(st abi.Status) {
	if c.eager == nil {
		return
	}
	for _, k := range append([]*compose(nil), c.eager.ours...) {
		if !k.committed {
			c.dropCompose(k, st)
		}
	}
	c.eager.words = queue.Queue[eagerWord]{}
}

// onUnstaged takes the news that the peer has no room for a draft: what is committed goes as if nothing had been sent.
func (c *Conn) onUnstaged(number uint32) {
	g := c.eager
	if g == nil {
		return
	}
	k := g.byNumber(number)
	if k == nil || k.refused {
		return
	}
	k.refused = true
	g.unmarkAll(k)
	c.numberEnded(number)
	if k.committed {
		g.remove(k)
		if k.sent && c.outstanding(k.seq) {
			c.resendLater(resend{kind: build.RecRange, op: k.seq, n: k.size, late: true})
			c.wake()
		}
	}
}

// stageLost has blocks sent again whose frame was lost, unless they left again since.
func (c *Conn) stageLost(r *build.Record) {
	k := c.eager.byNumber(uint32(r.Op))
	if k == nil || k.refused {
		return
	}
	for b := int(r.Off / eagerBlock); b < len(k.stamps) && uint64(b)*eagerBlock < r.Off+r.N; b++ {
		if k.stamps[b] == r.Count {
			c.eager.mark(k, b)
		}
	}
}

// drafts says what is owed about drafts, and sends blocks: of committed messages, or of the others. It reports false if
// the frame is full.
func (c *Conn) drafts(w *build.Frame, committed bool) bool {
	g := c.eager
	for g.words.Len() > 0 {
		if w.Room < 12 {
			return false
		}
		word := *g.words.Front()
		g.words.Pop()
		w.Seg = wire.Segment{Kind: word.kind, Conn: c.remote, Op: word.number}
		w.Small(&w.Seg)
		w.Note(build.RecEagerWord, uint32(c.ID), seqnum.Value(word.number), uint64(word.kind), 0, false)
	}
	if g.marked == 0 || c.state != connOpen && c.state != connClosing {
		return true
	}
	for _, k := range g.ours {
		if k.committed != committed || k.left > 0 && !k.numbered && !g.ended.fits(g.next) ||
			!committed && k.stamp == lastStamp {
			continue
		}
		for k.left > 0 {
			if !c.stage(w, k) {
				return false
			}
		}
	}
	return true
}

// stage sends a run of blocks of a message, and reports false if there is no room for one. Blocks of one that is not
// committed get a fresh stamp, since their bytes may have changed; the others have stamps that count already.
func (c *Conn) stage(w *build.Frame, k *compose) bool {
	b := 0
	for i, word := range k.marks {
		if word != 0 {
			b = 64*i + bits.TrailingZeros64(word)
			break
		}
	}
	room := (w.Room - stageHeader) / eagerBlock
	end := b
	for end < len(k.stamps) && end-b < room && k.marked(end) && (!k.committed || k.stamps[end] == k.stamps[b]) {
		end++
	}
	if end == b {
		return false
	}
	g := c.eager
	if !k.numbered {
		k.numbered, k.number = true, g.next
		g.next++
	}
	if !k.committed {
		k.stamp++
	}
	for i := b; i < end; i++ {
		g.unmark(k, i)
		if !k.committed {
			k.setStamp(i)
		}
	}
	lo, hi := b*eagerBlock, min(end*eagerBlock, len(k.mem))
	s := &w.Seg
	*s = wire.Segment{Kind: wire.KindStage, Conn: c.remote, Op: k.number, Stamp: k.stamps[b], Place: uint64(lo),
		Size: uint64(len(k.mem)), Data: k.mem[lo:hi]}
	w.Small(s)
	w.Note(build.RecStage, uint32(c.ID), seqnum.Value(k.number), uint64(lo), uint64(hi-lo), false)
	w.Records.Pool[w.Recs].Count = k.stamps[b]
	n := c.e.Count
	n.Traffic.PayloadSent += uint64(hi - lo)
	if !k.committed {
		n.Eager.EagerBytes += uint64(hi - lo)
	}
	return true
}

// commit says that a composed message is an operation now, in place of its bytes.
func (c *Conn) commit(w *build.Frame, o *sendOp, p part, retx bool) bool {
	k, s := o.op.eager, &w.Seg
	binary.BigEndian.PutUint64(w.Words[:], k.sum)
	*s = wire.Segment{Kind: wire.KindCommit, Flags: p.flags | wire.SegLast, Status: uint8(kinds[o.op.Kind].request),
		Conn: c.remote, Op: uint32(p.op), Fence: uint32(o.fence), Key: o.key, Place: o.op.Off, Imm: o.op.Imm,
		From: k.number, Size: uint64(len(k.mem)), Bytes: uint32(o.n), Data: w.Words[:8]}
	if !w.Fits(s.Len(), retx) {
		return false
	}
	w.Small(s)
	w.NoteOp(uint32(c.ID), p.op, retx)
	k.sent, k.seq = true, p.op
	return true
}
