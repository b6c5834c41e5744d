package engine

import (
	"multiedge/flowctl"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The receive path, one frame at a time:
//
//  1. Handle: type, session, checksums. The frame is borrowed from the driver; nothing of it is kept.
//  2. onData: packet number not seen before on its path, else it is a duplicate.
//  3. Each segment: acknowledgements free what is in flight, writes go straight to their final place (the only copy of
//     payload).
//  4. The packet number is committed only if every segment found room; the path's policy then decides when to
//     acknowledge.
//
// Frames that only continue what the one before them began take a shorter way, together (train.go).

// Handle takes frames that arrived on local link i, in their order; those in pieces are the frames that were received
// into the slots of the latest Forecast. It is the one way in: what an Arrival says of itself saves work, and changes
// nothing that comes of it. The frames are borrowed for the call; with a Placer, until Placed. Those whose payload does
// not belong where it was received are joined.
func (e *Endpoint) Handle(now mono.Time, i int, frames ...Arrival) {
	if len(frames) > 0 && frames[0].Buf != nil {
		e.joinStray(i, frames)
	}
	for k := range frames {
		a := &frames[k]
		e.scratch.ecn = a.ECN
		e.train.more = k+1 < len(frames)
		if e.train.on && a.Found == peering.Unread && a.Buf == nil && e.train.from(a.Origin) &&
			e.follows(now, i, a.Head, len(frames)-k) {
			continue
		}
		e.endTrain(now, i)
		e.train.origin = a.Origin
		switch {
		case a.Found != peering.Unread:
			if e.handleRead(now, i, a) {
				continue
			}
		case a.Buf != nil:
			if e.handleParts(now, i, &a.Rx) {
				continue
			}
			joinAll(frames[k:]) // a key was revoked meanwhile, or a header is damaged
		}
		e.handleWhole(now, i, &a.Rx)
	}
	e.endTrain(now, i)
}

// handleWhole takes a complete Ethernet frame of which nothing is known.
func (e *Endpoint) handleWhole(now mono.Time, i int, a *frame.Rx) {
	b := a.Head
	e.received(i, 1, len(b))
	if !e.cfg.Framing.Has(b) {
		e.Count.Reject.RejectedMalformed++
		return
	}
	f := &e.scratch.frame
	src := a.From()
	if b = b[frame.HeaderLen:]; wire.Sealed(b) {
		e.handleSealed(now, i, src, b)
		return
	}
	if err := f.Decode(b); err != nil {
		e.rejected(err)
		return
	}
	if f.Type == wire.TypeData {
		e.onPlainData(now, i, src, f)
		return
	}
	e.nodes.Touch()
	switch f.Type {
	case wire.TypeHello:
		e.nodes.OnHello(now, i, src, f.Tail)
	case wire.TypeInit:
		e.nodes.OnInit(now, i, src, f.Tail)
	case wire.TypeInitAck:
		e.nodes.OnInitAck(now, i, src, f.Session, f.Tail)
	case wire.TypeReset:
		e.nodes.OnReset(now, i, src, f.Tail)
	case wire.TypeRetry:
		e.nodes.OnRetry(now, i, src, f.Session, f.Tail)
	case wire.TypeCrypto:
		if s := e.nodes.Session(f.Session); s != nil && s.Trust.Hs != nil && s.TurnTo(i, src) {
			s.OnCrypto(now, f.Tail, false)
		}
	default:
		e.Count.Reject.RejectedMalformed++
	}
}

// onPlainData takes a decoded frame with data that was not sealed.
func (e *Endpoint) onPlainData(now mono.Time, i int, src frame.Addr, f *wire.Frame) {
	s := e.nodes.Session(f.Session)
	switch {
	case s == nil:
		e.nodes.OnUnknownSession(now, i, src, f.Session)
	case !s.ComesBy(i), e.cfg.Secure != nil && !s.Inside:
		e.Count.Reject.RejectedAuth++
	case s.State == peering.SessionOpen: // else the peer's InitAck is still on its way: it will send this again
		e.nodes.Sessions.LastFound = s
		e.onData(now, s, i, f, true)
	}
}

func (e *Endpoint) rejected(err error) {
	switch err {
	case wire.ErrHeadSum:
		e.Count.Reject.RejectedHeaderSum++
	case wire.ErrVersion:
		e.Count.Reject.RejectedVersion++
	default:
		e.Count.Reject.RejectedMalformed++
	}
}

// handleSealed takes a sealed frame b: it is opened into scratch, and nothing it says counts before that succeeded
// (clause 10.5).
func (e *Endpoint) handleSealed(now mono.Time, i int, src frame.Addr, b []byte) {
	var h wire.Header
	if err := h.DecodeClear(b); err != nil {
		e.rejected(err)
		return
	}
	s := e.nodes.Session(h.Session)
	switch {
	case e.cfg.Secure == nil && (s != nil || h.Type != wire.TypeData):
		e.Count.Reject.RejectedAuth++
		return
	case s == nil:
		if h.Type == wire.TypeData {
			e.nodes.OnUnknownSession(now, i, src, h.Session)
		}
		return
	case h.Type == wire.TypeCrypto:
		e.nodes.Touch()
		if s.TurnTo(i, src) {
			e.nodes.OnSealedCrypto(now, s, &h, b)
		}
		return
	case h.Type != wire.TypeData:
		e.Count.Reject.RejectedMalformed++
		return
	case s.Trust.Opener == nil:
		return // the peer's last word of the handshake is still on its way: it will send this again
	}
	if !e.isNew(s, i, &h) {
		return
	}
	opened, ok := peering.Open(s.Trust.Opener, &e.scratch.nonce, e.nodes.Opening, b, &h)
	e.afterOpening(now, s, i, src, &h, opened, ok)
}

// afterOpening takes a sealed frame with data of that header, sent by src, which has been opened if ok.
func (e *Endpoint) afterOpening(now mono.Time, s *peering.Session, i int, src frame.Addr, h *wire.Header,
	opened []byte, ok bool) {
	if !ok {
		s.Forged(h.KeyEpoch)
		return
	}
	if err := e.scratch.frame.DecodeOpened(opened); err != nil {
		e.rejected(err)
		return
	}
	if src.IsIP() && !s.Paths.Came(now, i, h, src) {
		e.Count.Reject.RejectedPlace++
		return
	}
	e.onOpened(now, s, i, &e.scratch.frame, false)
}

// isNew reports whether the frame of that header is none that was seen before, which it counts.
func (e *Endpoint) isNew(s *peering.Session, i int, h *wire.Header) bool {
	if r := s.Paths.Rx[h.Path]; r == nil || r.Tracker.Check(h.PN) == flowctl.New {
		return true
	}
	e.Count.Loss.FramesDuplicated++
	e.net.Links[i].Count.Loss.FramesDuplicated++
	return false
}

// onOpened takes a frame with data that was sealed and is authentic.
func (e *Endpoint) onOpened(now mono.Time, s *peering.Session, i int, f *wire.Frame, lasting bool) {
	e.nodes.Sessions.LastFound = s
	if s.Trust.Hs != nil && s.State == peering.SessionOpen {
		s.EndHandshake() // the asking end knows that the session is open
	}
	if f.KeyEpoch != s.Trust.Keys.Peer {
		s.PeerSeals(now, f.KeyEpoch)
	}
	e.onData(now, s, i, f, lasting)
}

// received counts frames of that many bytes.
func (e *Endpoint) received(i, frames, bytes int) {
	l := &e.net.Links[i]
	l.Count.Traffic.FramesReceived += uint64(frames)
	l.Count.Traffic.BytesReceived += uint64(bytes)
	e.Count.Traffic.FramesReceived += uint64(frames)
	e.Count.Traffic.BytesReceived += uint64(bytes)
}

// onData takes a frame with data. lasting says that its bytes stay as they are until Placed, so that they may be moved
// later; those that were opened into scratch memory do not.
func (e *Endpoint) onData(now mono.Time, s *peering.Session, i int, f *wire.Frame, lasting bool) {
	r := s.Paths.Rx[f.Path]
	if r == nil {
		r = &path.Rx{}
		r.Policy.Init(e.cfg.Profile.Acks)
		s.Paths.Rx[f.Path] = r
		s.Paths.RxMask |= 1 << f.Path
	}
	if !e.isNew(s, i, &f.Header) {
		return
	}
	if !f.PayloadIntact() {
		e.Count.Reject.RejectedPayloadSum++
		return
	}
	s.LastHeard, s.Served, s.Paths.HeardFrom = now, true, f.Path
	here, there := uint64(1)<<(uint(i)%MaxLinks), uint64(1)<<(f.Path%MaxLinks)
	s.Paths.HeardVia |= here
	s.Peer.Past.Received += uint64(frame.HeaderLen + wire.FixedLen + len(f.Payload) + len(f.Tail))
	if s.Paths.Seen[i]&there == 0 {
		s.Paths.Seen[i] |= there
		s.Paths.Shown(now, i, f.Path)
	} else if s.Paths.Contradicts(i, f.Path) {
		s.Paths.Tx[i].Contradicted(now)
	}
	eliciting, accepted := false, true
	if f.Flags&wire.FlagBulk != 0 {
		eliciting = true
		accepted = e.ops.OnBulk(now, &s.Ops, f, &e.forecasts[i], lasting)
	}
	g := &e.scratch.seg
	g.Kind = wire.KindPad
	for tail := f.Tail; len(tail) > 0; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			e.Count.Reject.RejectedMalformed++
			return
		}
		if g.Kind != wire.KindAck && g.Kind != wire.KindPad {
			eliciting = true
		}
		if !e.onSegment(now, s, i, g, lasting) {
			accepted = false
		}
		if s.State != peering.SessionOpen {
			return
		}
	}
	if !accepted {
		return
	}
	gap, reordered := r.Tracker.Commit(f.PN, now)
	if reordered {
		e.Count.Loss.FramesReordered++
		e.net.Links[i].Count.Loss.FramesReordered++
	}
	r.Policy.OnFrame(now, eliciting, gap)
	if eliciting {
		if r.Marks.Note(e.scratch.ecn, 1); e.scratch.ecn == frame.CE {
			r.Policy.Hasten(now)
		}
		e.Count.Traffic.DataFramesReceived++
		s.Acks.HeardOn = i
		switch {
		case f.Flags&wire.FlagPush == 0 || e.cfg.Profile.Acks.Exact:
		case f.Flags&wire.FlagBulk != 0 && f.Bulk.Flags&wire.SegLast == 0: // the window is small (clause 8.4)
			r.Policy.Hasten(now)
		default:
			s.Ops.AckAt = min(s.Ops.AckAt, now.Add(s.Acks.Pushes.Arrived(now)))
		}
		if e.train.more {
			e.expect(s, r, f)
		}
	}
}

// onSegment takes one segment of the tail.
func (e *Endpoint) onSegment(now mono.Time, s *peering.Session, i int, g *wire.Segment, lasting bool) bool {
	switch g.Kind {
	case wire.KindAck:
		return s.Paths.OnAck(now, g)
	case wire.KindProbe:
		s.Paths.OnProbe(now, i, g.Place)
	case wire.KindEcho:
		if p := s.Paths.PathOf(g.Place); p != nil {
			if at := frame.Place(g.Data); at.Known() {
				p.SeenAs = at
			}
			p.OnEcho(now, g.Place)
		}
	case wire.KindPing:
		s.Acks.Again = true
	case wire.KindPad:
	case wire.KindLink:
		return s.OnLink(now, i, g.Data)
	case wire.KindKeys:
		return s.OnKeys(now, g)
	default:
		return e.ops.OnSegment(now, &s.Ops, g, lasting)
	}
	return true
}
