package engine

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/prefetch"
	"multiedge/internal/wire"
	"multiedge/remap"
)

// A frame being made (step 3 and 4 of send.go):
//
//  1. begin takes the batch's next buffer and the room that the path's frames have.
//  2. acks and links, then what fill.go chooses: small segments are appended to the tail, one long payload becomes the
//     bulk and stays where it lies. Each is recorded as carried by this frame.
//  3. finish gives it its packet number, has the ledger remember it with its records, and ends in sum (plaintext) or
//     seal (encrypted, seal.go): now it is in the batch.

// builder makes one frame at a time in the batch's next buffer:
//
//	buf: | Ethernet | fixed | bulk header | tail ...       with bulk: Head = buf[:78], Tail behind it
//	           | Ethernet | fixed | tail ...               without:   Head = one piece, ends where the tail starts
type builder struct {
	f       build.Frame
	e       *Endpoint
	s       *peering.Session
	p       *path.Tx
	b       *Batches
	buf     []byte
	to      frame.Addr // another link of the peer than the path's: the frame says nothing of the path
	joined  bool       // becomes a segment of a datagram (GSO), unless it is short or not eliciting
	picked  bool       // the scheduler chose the path
	capable bool       // it leaves with ECT(0)
	leads   bool       // nothing but the next part of its operation can be in the frame after it
	bytes   int        // of the frame

	far  [4][]byte // long payloads to be fetched together
	fars int

	unsealed []unsealed // in the batch, to be sealed (seal.go)
	place    [frame.PlaceLen6]byte
}

func (e *Endpoint) newBuilder() builder {
	scratch := func(n int) []byte { return e.builder.b.scratch(e.builder.p.Link, n) }
	return builder{e: e, f: build.Frame{Records: &e.recs, Scratch: scratch}}
}

func (w *builder) begin(s *peering.Session, p *path.Tx, b *Batches) {
	buf := b.next(p.Link)
	w.s, w.p, w.b, w.buf = s, p, b, buf
	w.f.Tag, w.f.Split = 0, 0
	if s.Trust.Sealer != nil {
		w.f.Tag, w.f.Split = wire.TagLen, wire.SplitLen
	}
	w.f.Shuf = p.Shuf
	most := len(buf) - wire.HeadLen
	w.f.Limit = min(p.FrameLimit(), most) - w.f.Tag
	if p.PMTU.Joined {
		// A datagram ends behind a frame that is shorter than its first (clause 12.6): all are as long as one with
		// nothing but a payload, finish pads.
		w.f.Limit -= (w.f.Limit - wire.FixedLen - wire.BulkLen - w.f.Split) % w.f.Unit()
	}
	w.f.Begin(buf[wire.HeadLen:wire.HeadLen], w.f.Limit, min(p.PMTU.MTU, most)-w.f.Tag-w.f.Limit)
	w.joined, w.picked, w.to = p.PMTU.Joined, false, frame.Addr{}
}

// turnTo sends the frame, which is to hold a Probe or an Echo, to the peer's link j. The frame says which link it comes
// from, so that the answer goes there and not to the link that the peer believed it to be.
func (w *builder) turnTo(j uint8) {
	s := w.s
	addr := s.Paths.PlaceOf(w.p.Link, j)
	if !addr.Known() && !w.e.net.Links[w.p.Link].Addr.IsIP() {
		addr = s.Peer.Links.Remote[j].Addr
	}
	if addr.Known() && j != w.p.Number {
		w.turnAt(addr)
	}
}

// turnAt sends the frame to another address than the path's.
func (w *builder) turnAt(addr frame.Addr) {
	w.to = w.p.Through(addr)
	w.s.AppendOwnLink(&w.f, w.p.Link)
}

// aside reports whether the frame goes to another link of the peer than the path's.
func (w *builder) aside() bool { return w.to.Known() }

// padTo makes the frame size bytes long after the Ethernet header.
func (w *builder) padTo(size int) { w.f.Pad(size - w.f.Tag - wire.FixedLen - len(w.f.Tail)) }

// finish ends the frame.
func (w *builder) finish(now mono.Time) {
	if w.joined && w.f.HasBulk && w.f.Room < w.f.Unit() {
		w.f.Pad(w.f.Room)
	}
	bytes := frame.HeaderLen + wire.FixedLen + len(w.f.Tail)
	if w.f.HasBulk {
		bytes += wire.BulkLen + len(w.f.Payload) + w.f.Split
	}
	if w.f.Tag > 0 {
		bytes = max(bytes+w.f.Tag, wire.MinSealed)
	}
	// Short frames are sent without GSO, which always passes and is faster. So are frames that nobody acknowledges: if
	// datagrams did not pass, their loss would not be noticed.
	w.joined = w.joined && w.f.Eliciting && bytes > frame.HeaderLen+wire.MinFrame
	w.bytes = bytes
	w.emit(now)
}

// follow makes the next frame of a train: frames that carry successive parts of one operation and nothing else, on one
// path. It reports false, and nothing has happened, if the next frame is not certain to be one.
func (w *builder) follow(now mono.Time, s *peering.Session, p *path.Tx) bool {
	if !w.leads || w.s != s || w.p != p || s.PeerLinks.News != 0 || s.Trust.Keys.Owed || !s.Ops.Follow(&w.f) {
		return false
	}
	w.buf = w.b.next(p.Link)
	w.f.Tail = w.buf[wire.HeadLen:wire.HeadLen]
	w.emit(now)
	return true
}

// emit numbers the frame, of w.bytes, sums or seals it, and adds it to the batch.
func (w *builder) emit(now mono.Time) {
	s, p, e, bytes := w.s, w.p, w.e, w.bytes
	h := wire.Header{Type: wire.TypeData, Path: uint8(p.Link), Flags: w.f.Flags, Session: s.Remote}
	tag := uint32(w.f.Recs)
	if w.picked && w.f.Eliciting {
		tag |= path.TagPicked
		s.Paths.Sched.Sent(p.Link, bytes)
	}
	if w.capable = w.picked && w.f.Eliciting && p.Capable(); w.capable {
		tag |= path.TagCapable
	}
	h.PN = p.Ledger.Record(now, bytes, tag, w.f.Eliciting && !w.aside())
	if w.f.HasBulk {
		h.Flags |= wire.FlagBulk
	}
	if w.f.HasBulk && w.f.Bulk.Flags&wire.SegLast == 0 && p.Hastens(h.PN) {
		h.Flags |= wire.FlagPush
	}
	if w.f.Tag > 0 {
		w.seal(&h, bytes)
	} else {
		w.sum(&h)
	}

	w.b.bytes += bytes
	e.countSent(p.Link, bytes)
	p.Count.Frames++
	p.Count.Bytes += uint64(bytes)
	if w.f.Eliciting {
		if !w.aside() {
			s.Paths.InFlight++
		}
		e.Count.Traffic.DataFramesSent++
	}
	if w.f.Retx {
		e.Count.Loss.FramesRetransmitted++
		e.net.Links[p.Link].Count.Loss.FramesRetransmitted++
		s.FramesRetransmitted++
		p.Count.Retransmitted++
	}
}

// sum completes a frame in plaintext: headers and tail with their checksum in the batch's buffer, the payload where it
// lies.
func (w *builder) sum(h *wire.Header) {
	f := w.b.add(w.p.Link)
	f.Joined = w.joined
	if w.f.HasBulk {
		f.Bulk, f.Tail = w.f.Payload, w.f.Tail
		var first []byte
		if H := w.f.Shuf; H > 0 && H < len(w.f.Payload) {
			h.Flags |= wire.FlagShuffled
			h.Shuffle = uint16(H)
			f.Bulk, first = remap.SendOrder(w.f.Payload, H)
			copy(w.buf[wire.HeadLen+H:], w.f.Tail)
			copy(w.buf[wire.HeadLen:], first)
			f.Tail = w.buf[wire.HeadLen : wire.HeadLen+H+len(w.f.Tail)]
			w.f.Tail = f.Tail[H:]
		}
		if w.e.cfg.Checksum == ChecksumFull {
			h.Flags |= wire.FlagPayloadSum
			prefetch.Load(f.Bulk)
			w.f.Bulk.Sum = wire.Sum(wire.Sum(0, f.Bulk), first)
		}
		f.Head = w.buf[:wire.HeadLen]
		switch {
		case w.e.cfg.CopySend:
			w.copyPayload(f)
		case h.Flags&wire.FlagPayloadSum == 0:
			w.fetch(f.Bulk)
		}
		wire.PutBulk(f.Head[frame.HeaderLen+wire.FixedLen:], &w.f.Bulk)
	} else {
		f.Head = w.buf[wire.BulkLen : wire.HeadLen+len(w.f.Tail)]
	}
	w.address(f, f.Head)
	wire.Finish(f.Head[frame.HeaderLen:], h, w.f.Tail)
}

// address writes the header of the link to b, and says where the frame goes.
func (w *builder) address(f *frame.Tx, b []byte) {
	if w.aside() {
		e := w.e
		e.cfg.Framing.PutHeader(b, &e.net.Links[w.p.Link].Addr, &w.to)
		f.To = w.to
		return
	}
	copy(b, w.p.Header[:])
	f.To, f.Capable = w.p.Out, w.capable
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
	w.far[w.fars] = payload
	if w.fars++; w.fars == len(w.far) {
		prefetch.Four(w.far[0], w.far[1], w.far[2], w.far[3])
		w.forget()
	}
}

// forget leaves payloads that are fewer than four to the kernel.
func (w *builder) forget() { w.far, w.fars = [4][]byte{}, 0 }

// copyPayload puts the payload of a finished frame into the batch's buffer, between head and tail, as if it had to be
// sent from there.
func (w *builder) copyPayload(f *frame.Tx) {
	n := len(f.Bulk)
	copy(w.buf[wire.HeadLen+n:], f.Tail)
	copy(w.buf[wire.HeadLen:], f.Bulk)
	f.Bulk = w.buf[wire.HeadLen : wire.HeadLen+n]
	f.Tail = w.buf[wire.HeadLen+n : wire.HeadLen+n+len(f.Tail)]
	w.f.Tail = f.Tail[len(f.Tail)-len(w.f.Tail):]
}
