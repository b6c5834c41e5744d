package op

import (
	"encoding/binary"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/eager"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// Eager transfer (clause 18): a write or send whose bytes travel while its owner still composes them. This is what a
// connection does for those that are composed here, drafts.go for the peer's; package eager has their blocks.
//
// Bytes are copied into frames, never referred to, since the owner may change them. A block that is being changed while
// it is copied is marked again afterwards, and sent again.

const (
	// MaxEager is the longest composed message, in bytes.
	MaxEager = wire.MaxStaged

	maxComposing = 16 // messages of one connection that are being composed
	stageHeader  = 24 // of a Stage
)

// composed is what a connection has of composed messages, and compose one of ours.
type (
	composed = eager.State[Op]
	compose  = eager.Message[Op]
)

// idleEager is what composed messages left, to be used again.
type idleEager struct {
	eager.Pool[Op]
	committing Op // for the call of Commit
}

// composing returns c.eager, made when it is used for the first time.
func (c *Conn) composing() *composed {
	if c.eager == nil {
		c.eager = &composed{}
	}
	return c.eager
}

// ours returns the message of that name that a connection composes, and the connection; nil: there is none.
func (e *Endpoint) ours(id ConnID, name uint64) (*Conn, *compose) {
	if c := e.conn(id); c != nil && c.eager != nil {
		return c, c.eager.Ours.Find(name)
	}
	return nil, nil
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
	case c.send.pending >= e.cfg.OpWindow || c.composing().Ours.Composing() >= maxComposing:
		return abi.StatusLimit
	}
	k := e.eager.Message(op.Local)
	k.Op, k.Name = *op, name
	if op.Region != nil {
		op.Region.InFlight++
	}
	c.send.pending++
	e.Count.Op.OpsSubmitted++
	c.eager.Ours.List = append(c.eager.Ours.List, k)
	return OK
}

// Wrote marks n bytes from off on of a composed message as written. It reports whether there is such a message.
func (e *Endpoint) Wrote(id ConnID, name, off, n uint64) bool {
	c, k := e.ours(id, name)
	if k == nil {
		return false
	}
	if c.eager.Ours.Write(k, off, n) {
		c.wake()
	}
	return true
}

// Commit submits the first n bytes of a composed message as an operation with those flags. It reports whether there is
// such a message. From then on its bytes must not change.
func (e *Endpoint) Commit(now mono.Time, id ConnID, name uint64, flags OpFlags, imm uint32, n uint64) bool {
	c, k := e.ours(id, name)
	if k == nil {
		return false
	}
	if n > uint64(len(k.Mem)) {
		c.dropCompose(k, abi.StatusBounds)
		return true
	}
	op := &e.eager.committing
	*op = k.Op
	op.Flags, op.Imm, op.Local = flags&^LocalDone, imm, k.Mem[:n]
	if k.Numbered && !k.Refused {
		op.eager = k
		c.eager.Ours.Freeze(k, n)
		e.Count.Eager.EagerCommitted++
	} else {
		c.eager.Ours.Forget(k)
		e.eager.Keep(k)
	}
	if (op.Kind != OpSend && c.msgs == nil) || !c.mustWait(now, op) {
		c.enter(op, now)
	}
	*op = Op{}
	c.wake()
	return true
}

// Discard drops a composed message; it completes with StatusAborted. It reports whether there is such a message.
func (e *Endpoint) Discard(id ConnID, name uint64) bool {
	c, k := e.ours(id, name)
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
	if k.Op.Region != nil {
		k.Op.Region.InFlight--
	}
	c.send.pending--
	e.Emit(Event{Kind: EvComplete, Conn: c.ID, Token: k.Op.Token, Status: st})
	e.eager.Keep(k)
}

// undraft forgets a message, and has the peer do so.
func (c *Conn) undraft(k *compose) {
	c.eager.Ours.Forget(k)
	if k.Numbered && !k.Refused {
		c.tellDraft(wire.KindDiscard, k.Number)
	}
}

// tellDraft queues a Discard or an Unstaged.
func (c *Conn) tellDraft(kind wire.Kind, number uint32) {
	c.eager.Words.Push(eager.Word{Kind: kind, Number: number})
	c.wake()
}

// endEager forgets a composed message whose operation has ended: the peer has no draft of it any more.
func (c *Conn) endEager(o *sendOp) {
	k := o.op.eager
	o.op.eager = nil
	c.eager.Ours.Forget(k)
	c.numberEnded(k.Number)
	c.e.eager.Keep(k)
}

// numberEnded notes that the peer has no draft of that number any more.
func (c *Conn) numberEnded(number uint32) {
	if c.eager.Ours.Ended(number) {
		c.wake()
	}
}

// endComposing ends what is being composed on a connection that ends with st.
func (c *Conn) endComposing(st abi.Status) {
	if c.eager == nil {
		return
	}
	for _, k := range append([]*compose(nil), c.eager.Ours.List...) {
		if !k.Committed {
			c.dropCompose(k, st)
		}
	}
	c.eager.Words = queue.Queue[eager.Word]{}
}

// onUnstaged takes the news that the peer has no room for a draft: what is committed goes as if nothing had been sent.
func (c *Conn) onUnstaged(number uint32) {
	k := c.eager.Ours.Refuse(number)
	if k == nil {
		return
	}
	c.numberEnded(number)
	if k.Committed {
		c.eager.Ours.Forget(k)
		if k.Sent && c.outstanding(k.Seq) {
			c.resendLater(resend{kind: build.RecRange, op: k.Seq, n: k.Size, late: true})
			c.wake()
		}
	}
}

// drafts says what is owed about drafts, and sends blocks: of committed messages, or of the others. It reports false if
// the frame is full.
func (c *Conn) drafts(w *build.Frame, committed bool) bool {
	g := c.eager
	for g.Words.Len() > 0 {
		if w.Room < 12 {
			return false
		}
		word := *g.Words.Front()
		g.Words.Pop()
		w.Seg = wire.Segment{Kind: word.Kind, Conn: c.remote, Op: word.Number}
		w.Small(&w.Seg)
		w.Note(build.RecEagerWord, uint32(c.ID), seqnum.Value(word.Number), uint64(word.Kind), 0, false)
	}
	if g.Ours.Marked == 0 || c.state != connOpen && c.state != connClosing {
		return true
	}
	for _, k := range g.Ours.List {
		if !g.Ours.MayLeave(k, committed) {
			continue
		}
		for k.Left() > 0 {
			if !c.blocks(w, k) {
				return false
			}
		}
	}
	return true
}

// blocks sends a run of blocks of a message, and reports false if there is no room for one.
func (c *Conn) blocks(w *build.Frame, k *compose) bool {
	run, ok := c.eager.Ours.Take(k, (w.Room-stageHeader)/eager.Block)
	if !ok {
		return false
	}
	s, n := &w.Seg, run.Hi-run.Lo
	*s = wire.Segment{Kind: wire.KindStage, Conn: c.remote, Op: k.Number, Stamp: run.Stamp, Place: run.Lo,
		Size: uint64(len(k.Mem)), Data: k.Mem[run.Lo:run.Hi]}
	w.Small(s)
	w.Note(build.RecStage, uint32(c.ID), seqnum.Value(k.Number), run.Lo, n, false)
	w.Records.Pool[w.Recs].Count = run.Stamp
	c.e.Count.Traffic.PayloadSent += n
	if !k.Committed {
		c.e.Count.Eager.EagerBytes += n
	}
	return true
}

// commit says that a composed message is an operation now, in place of its bytes.
func (c *Conn) commit(w *build.Frame, o *sendOp, p part, retx bool) bool {
	k, s := o.op.eager, &w.Seg
	binary.BigEndian.PutUint64(w.Words[:], k.Sum())
	*s = wire.Segment{Kind: wire.KindCommit, Flags: p.flags | wire.SegLast, Status: uint8(kinds[o.op.Kind].request),
		Conn: c.remote, Op: uint32(p.op), Fence: uint32(o.fence), Key: o.key, Place: o.op.Off, Imm: o.op.Imm,
		From: k.Number, Size: uint64(len(k.Mem)), Bytes: uint32(o.n), Data: w.Words[:8]}
	if !w.Fits(s.Len(), retx) {
		return false
	}
	w.Small(s)
	w.NoteOp(uint32(c.ID), p.op, retx)
	k.Sent, k.Seq = true, p.op
	return true
}
