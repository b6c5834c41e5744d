package engine

import (
	"encoding/binary"
	"slices"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/prefetch"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/remap"
)

// A frame being made (step 3 and 4 of send.go):
//
//  1. begin takes the batch's next buffer and the room that the path's frames have.
//  2. acks and links, then what fill.go chooses: small segments are appended to the tail, one long payload becomes the
//     bulk and stays where it lies. Each is recorded as carried by this frame.
//  3. finish gives it its packet number, has the ledger remember it with its records, and ends in sum (plaintext) or
//     seal (encrypted): now it is in the batch.

// Of the parts of operations in a frame one is gathered from where it lies; the others are copied into the tail.
// smallMost is the longest part that is copied although it could be gathered, in bytes, packMost the longest that is
// copied because another is gathered already: a copy costs less than a frame of its own. Of short frames they are at
// most a quarter, and half.
const (
	smallMost = 1024
	packMost  = 4096
)

// builder makes one frame at a time in the batch's next buffer:
//
//	buf: | Ethernet | fixed | bulk header | tail ...       with bulk: Head = buf[:78], Tail behind it
//	           | Ethernet | fixed | tail ...               without:   Head = one piece, ends where the tail starts
type builder struct {
	now   mono.Time
	s     *session
	p     *txPath
	b     *Batch
	buf   []byte
	tail  []byte // grows in buf from HeadLen
	limit int    // longest frame, bytes after the Ethernet header and before the tag
	tag   int    // bytes of the tag that sealing adds
	split int    // bytes that sealing adds for a payload
	room  int    // bytes left for tail, and bulk header and payload
	recs  int32  // records so far, newest first
	seg   wire.Segment
	words [2 * wire.AtomicWord]byte // of seg, if it is an atomic or its result
	flags uint8
	retx  bool

	// it goes to another link of the peer than the path's, says nothing of the path, and is not missed
	aside  bool
	to     frame.Addr // that link, if aside
	joined bool       // becomes a segment of a datagram (GSO), unless it is short or not eliciting
	picked bool       // the scheduler chose the path

	hasBulk   bool
	bulk      wire.Bulk
	payload   []byte
	eliciting bool

	last latest

	scratch []byte // of smallRoom; made at the first use

	far  [4][]byte // long payloads to be fetched together
	fars int
}

func (w *builder) begin(s *session, p *txPath, b *Batch) {
	buf := b.next()
	w.s, w.p, w.b, w.buf = s, p, b, buf
	w.tail = buf[wire.HeadLen:wire.HeadLen]
	w.tag, w.split = 0, 0
	if s.trust.sealer != nil {
		w.tag, w.split = wire.TagLen, wire.SplitLen
	}
	w.limit = min(p.frameLimit(), len(buf)-wire.HeadLen) - w.tag
	if p.pmtu.joined {
		// A datagram ends behind a frame that is shorter than its first (clause 12.6): all are as long as one with
		// nothing but a payload, finish pads.
		w.limit -= (w.limit - wire.FixedLen - wire.BulkLen - w.split) % w.unit()
	}
	w.room = w.limit - wire.FixedLen
	w.recs, w.flags, w.retx, w.hasBulk, w.eliciting, w.last.kind = 0, 0, false, false, false, wire.KindPad
	w.payload, w.joined, w.picked = nil, p.pmtu.joined, false
	w.aside = false
}

// turnTo sends the frame, which is to hold a Probe or an Echo, to the peer's link j. The frame says which link it comes
// from, so that the answer goes there and not to the link that the peer believed it to be.
func (w *builder) turnTo(j uint8) {
	s := w.s
	addr := s.remoteLink(j).addr
	if !addr.Known() {
		addr = s.peer.remote[j].addr
	}
	if !addr.Known() || j == w.p.number {
		return
	}
	w.to, w.aside = addr, true
	w.ownLink()
}

// smallLimit is the longest part that is copied into this frame.
func (w *builder) smallLimit() uint64 {
	if w.hasBulk {
		return uint64(min(packMost, (w.limit+w.tag)/2))
	}
	return uint64(min(smallMost, w.limit/4))
}

// stretchMost is how much longer than preferred a frame may be, in bytes, so that another operation fits into it.
const stretchMost = 1024

// fits reports whether a segment of an operation fits into the tail. A little over the preferred length is cheaper than
// another frame; but that may be why what is sent again was lost.
func (w *builder) fits(n int, retx bool) bool {
	if n <= w.room || retx || w.retx || !w.hasBulk {
		return n <= w.room
	}
	return n <= w.room+min(stretchMost, w.stretch())
}

// stretch is how much longer than preferred the frame can be.
func (w *builder) stretch() int { return min(w.p.pmtu.mtu, len(w.buf)-wire.HeadLen) - w.tag - w.limit }

func (w *builder) used() bool { return w.hasBulk || len(w.tail) > 0 }

// small appends a segment to the tail; it must fit.
func (w *builder) small(g *wire.Segment) {
	n := len(w.tail)
	w.tail = g.AppendTo(w.tail)
	w.room -= len(w.tail) - n
	w.last.kind = wire.KindPad
	if g.Kind != wire.KindAck && g.Kind != wire.KindPad {
		w.eliciting = true
	}
}

// extend makes the tail n bytes longer, which are to be written.
func (w *builder) extend(n int) { w.tail = slices.Grow(w.tail, n)[:len(w.tail)+n] }

// keys appends our half of an exchange (clause 10.6).
func (w *builder) keys() {
	k := &w.s.trust.keys
	if w.room < 64 {
		return
	}
	k.owed = false
	w.seg = wire.Segment{Kind: wire.KindKeys, Op: k.number + 1, Data: k.ours[:]}
	if k.next != nil {
		w.seg.Flags = wire.KeysReady
	}
	w.small(&w.seg)
	w.record(recKeys, 0, 0, uint64(k.number+1), 0, false)
}

// padTo makes the frame size bytes long after the Ethernet header.
func (w *builder) padTo(size int) { w.pad(size - w.tag - wire.FixedLen - len(w.tail)) }

// pad makes the tail n bytes longer, if there is room and they are no fewer than a segment has.
func (w *builder) pad(n int) {
	if at := len(w.tail); n >= wire.PadLen && at+n <= cap(w.tail) {
		w.extend(n)
		clear(w.tail[at:])
		w.tail[at] = byte(wire.KindPad)
		binary.BigEndian.PutUint16(w.tail[at+2:], uint16(n-wire.PadLen))
	}
}

// record notes something that the frame carries.
func (w *builder) record(kind recKind, conn ConnID, op seqnum.Value, off, n uint64, retx bool) {
	i, r := w.s.e.recs.alloc()
	r.kind, r.conn, r.op, r.count, r.off, r.n, r.retx, r.next = kind, conn, op, 1, off, n, retx, w.recs
	w.recs = i
	w.retx = w.retx || retx
}

// recordOp notes a whole small operation, extending the record before it when they are consecutive.
func (w *builder) recordOp(c *conn, op seqnum.Value, retx bool) {
	if w.recs != 0 {
		r := &w.s.e.recs.pool[w.recs]
		if r.kind == recOps && r.conn == c.id && r.op.Add(int(r.count)) == op && r.retx == retx {
			r.count++
			return
		}
	}
	w.record(recOps, c.id, op, 0, 0, retx)
}

// tagPicked is the bit of the ledger's tag that says that the scheduler chose the path, and is to hear when the frame
// is done; the others are the newest record.
const tagPicked = 1 << 31

// finish numbers the frame, sums or seals it, and adds it to the batch.
func (w *builder) finish(now mono.Time) {
	s, p, e := w.s, w.p, w.s.e
	if w.joined && w.hasBulk && w.room < w.unit() {
		w.pad(w.room)
	}
	bytes := frame.HeaderLen + wire.FixedLen + len(w.tail)
	if w.hasBulk {
		bytes += wire.BulkLen + len(w.payload) + w.split
	}
	if w.tag > 0 {
		bytes = max(bytes+w.tag, wire.MinSealed)
	}
	// Short frames are sent without GSO, which always passes and is faster. So are frames that nobody acknowledges: if
	// datagrams did not pass, their loss would not be noticed.
	w.joined = w.joined && w.eliciting && bytes > frame.HeaderLen+wire.MinFrame
	h := wire.Header{Type: wire.TypeData, Path: uint8(p.link), Flags: w.flags, Session: s.remote}
	tag := uint32(w.recs)
	if w.picked && w.eliciting {
		tag |= tagPicked
		s.paths.sched.Sent(p.link, bytes)
	}
	h.PN = p.ledger.Record(now, bytes, tag, w.eliciting && !w.aside)
	if w.hasBulk {
		h.Flags |= wire.FlagBulk
	}
	if w.tag > 0 {
		w.seal(&h, bytes)
	} else {
		w.sum(&h)
	}

	w.b.bytes += bytes
	e.countSent(p.link, bytes)
	p.count.Frames++
	p.count.Bytes += uint64(bytes)
	if w.eliciting {
		if !w.aside {
			s.paths.inFlight++
		}
		e.Count.DataFramesSent++
	}
	if w.retx {
		e.Count.FramesRetransmitted++
		e.links[p.link].count.FramesRetransmitted++
		s.framesRetransmitted++
		p.count.Retransmitted++
	}
}

// sum completes a frame in plaintext: headers and tail with their checksum in the batch's buffer, the payload where it
// lies.
func (w *builder) sum(h *wire.Header) {
	f := w.b.add()
	f.Link, f.Joined = w.p.link, w.joined
	if w.hasBulk {
		f.Bulk, f.Tail = w.payload, w.tail
		var first []byte
		if H := w.p.shuf; H > 0 && H < len(w.payload) {
			h.Flags |= wire.FlagShuffled
			h.Shuffle = uint16(H)
			f.Bulk, first = remap.SendOrder(w.payload, H)
			copy(w.buf[wire.HeadLen+H:], w.tail)
			copy(w.buf[wire.HeadLen:], first)
			f.Tail = w.buf[wire.HeadLen : wire.HeadLen+H+len(w.tail)]
			w.tail = f.Tail[H:]
		}
		if w.s.e.cfg.Checksum == ChecksumFull {
			h.Flags |= wire.FlagPayloadSum
			prefetch.Load(f.Bulk)
			w.bulk.Sum = wire.Sum(wire.Sum(0, f.Bulk), first)
		}
		f.Head = w.buf[:wire.HeadLen]
		switch {
		case w.s.e.cfg.CopySend:
			w.stageCopy(f)
		case h.Flags&wire.FlagPayloadSum == 0:
			w.fetch(f.Bulk)
		}
		wire.PutBulk(f.Head[frame.HeaderLen+wire.FixedLen:], &w.bulk)
	} else {
		f.Head = w.buf[wire.BulkLen : wire.HeadLen+len(w.tail)]
	}
	w.address(f.Head)
	wire.Finish(f.Head[frame.HeaderLen:], h, w.tail)
}

// address writes the header of the link.
func (w *builder) address(b []byte) {
	if w.aside {
		e := w.s.e
		e.cfg.Framing.PutHeader(b, &e.links[w.p.link].Addr, &w.to)
		return
	}
	copy(b, w.p.header[:])
}

// fetchAlone is the longest payload, in bytes, that is fetched while its frame is being built. Longer ones would be
// waited for, and come faster several at a time.
const fetchAlone = 2048

// fetch prefetches a payload that the kernel is to copy.
func (w *builder) fetch(payload []byte) {
	if len(payload) <= fetchAlone {
		prefetch.One(payload)
		return
	}
	if prefetch.Load(payload) {
		return
	}
	w.far[w.fars] = payload
	if w.fars++; w.fars == len(w.far) {
		prefetch.Four(w.far[0], w.far[1], w.far[2], w.far[3])
		w.forget()
	}
}

// forget leaves payloads that are fewer than four to the kernel.
func (w *builder) forget() { w.far, w.fars = [4][]byte{}, 0 }

// seal completes a frame of n bytes in one piece in the batch's buffer and encrypts it there, the payload from where it
// lies (clause 10.5).
func (w *builder) seal(h *wire.Header, n int) {
	buf := w.buf
	if w.hasBulk {
		wire.PutBulk(buf[frame.HeaderLen+wire.FixedLen:], &w.bulk)
	} else {
		buf = buf[wire.BulkLen:]
		clear(buf[frame.HeaderLen+wire.FixedLen+len(w.tail) : n-wire.TagLen])
	}
	w.address(buf)
	h.KeyEpoch = w.s.trust.sealer.Epoch()
	wire.FinishOpen(buf[frame.HeaderLen:], h, w.tail)
	if w.hasBulk {
		w.s.trust.sealer.SealParts(buf[frame.HeaderLen:wire.HeadLen+len(w.tail)], w.payload, h.Path, h.PN)
	} else {
		w.s.trust.sealer.Seal(buf[frame.HeaderLen:n-wire.TagLen], h.Path, h.PN)
	}
	if w.s.trust.sealer.Left == 0 {
		w.s.trust.keys.at = 0 // it is worn
	}
	f := w.b.add()
	f.Link, f.Head, f.Joined = w.p.link, buf[:n], w.joined
}

// stageCopy puts the payload of a finished frame into the batch's buffer, between head and tail, as if it had to be
// sent from there.
func (w *builder) stageCopy(f *TxFrame) {
	n := len(f.Bulk)
	copy(w.buf[wire.HeadLen+n:], f.Tail)
	copy(w.buf[wire.HeadLen:], f.Bulk)
	f.Bulk = w.buf[wire.HeadLen : wire.HeadLen+n]
	f.Tail = w.buf[wire.HeadLen+n : wire.HeadLen+n+len(f.Tail)]
	w.tail = f.Tail[len(f.Tail)-len(w.tail):]
}
