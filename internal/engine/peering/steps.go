package peering

import (
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/queue"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Computing a step of a handshake takes as long as receiving hundreds of frames. With Config.Deferred the endpoint only
// says what is to be computed (NextStep): its owner does so on another thread (Step.Do) and brings the result back
// (Stepped). A handshake, and a session's exchange of keys, has one Step at most at a time.

// rankOf is the rank of the sender of an Init from src.
func (e *Endpoint) rankOf(src frame.Addr, in *wire.Init) Rank {
	p := e.peers.byID[peerID{op.NodeID(in.Node), in.Shard}]
	switch {
	case p == nil:
		return RankStranger
	case p.session != nil && p.session.Trust.Opener != nil && p.session.hasLink(src):
		return RankPeer
	case p.Links.Remote[in.Link].Addr == src, p.Links.Places(&src):
		return RankHeard
	}
	return RankStranger
}

// hasLink reports whether the peer announced a link of that address, in the session.
func (s *Session) hasLink(addr frame.Addr) bool {
	for j := range s.Paths.Links {
		if s.Paths.Links[j].Slots > 0 && s.Paths.Links[j].Addr == addr {
			return true
		}
	}
	return addr.IsIP() && s.Paths.LeadsTo(&addr)
}

// handshakes is what handshakes and exchanges of keys need beside their sessions, and what bounds those that others
// begin.
type handshakes struct {
	steps    [Ranks]queue.Queue[*Step]
	stepTurn bool
	pending  []*Session // that answer an Init and are not open, at most maxPending
	cookies  Cookies
	retries  Ration // of Retry
	answers  Ration // of handshakes that others begin
	openers  openers
	retired  []retiredKeys
	eraseAt  mono.Time // Never: there are none
}

// Step is one piece of computing. It belongs to the endpoint but between NextStep and Stepped.
type Step struct {
	s    *Session
	h    *handshake // nil: of an exchange of keys in an open session
	last bool       // nothing is wanted but an end

	// of a handshake
	node   secure.Node
	peer   secure.Peer
	params []byte // ours, to begin with
	in     [secure.Levels][]byte
	keys   bool // of the handshake are wanted
	seal   *secure.Sealer
	open   *secure.Opener

	// of an exchange
	ours    *secure.Exchange
	present *secure.Present // nil: the peer's half is not known
	theirs  [wire.PublicLen]byte
	reader  *secure.Generation

	sealer *secure.Sealer // for the session's data
	opener *secure.Opener
	err    error
}

// Do computes. Any goroutine may call it, without the endpoint.
func (st *Step) Do() {
	switch {
	case st.h == nil:
		st.exchange()
	case st.last:
		st.h.tls.Close()
	default:
		st.handshake()
	}
}

func (st *Step) handshake() {
	h := st.h
	if h.tls == nil && h.dialer {
		h.tls = st.node.Dial(st.peer, st.params)
	} else if h.tls == nil {
		h.tls = st.node.Answer(st.params)
	}
	for l, p := range st.in {
		if len(p) > 0 && st.err == nil {
			st.err = h.tls.Receive(secure.Level(l), p)
		}
	}
	if st.err == nil && st.keys {
		st.seal, st.open = h.tls.ProtectedKeys()
	}
	if h.tls.Done() {
		st.sealer, st.opener = h.tls.DataKeys()
	}
}

func (st *Step) exchange() {
	if st.ours == nil {
		st.ours = secure.NewExchange()
	}
	if st.present != nil {
		st.sealer, st.reader, st.err = st.ours.Next(st.present, &st.theirs)
	}
}

// give has a step computed: now, or when the owner asks for it.
func (e *Endpoint) give(now mono.Time, r Rank, st *Step) {
	if e.cfg.Deferred {
		e.shakes.steps[r].Push(st)
		return
	}
	st.Do()
	e.Stepped(now, st)
}

// StepWaits reports whether NextStep would return one.
func (e *Endpoint) StepWaits(strangers bool) bool {
	if strangers {
		return e.shakes.steps[RankHeard].Len()+e.shakes.steps[RankStranger].Len() > 0
	}
	return e.shakes.steps[RankPeer].Len() > 0
}

// NextStep takes a step that is to be computed, nil if there is none: one of strangers, else of ours and of peers. Its
// owner passes it to Stepped afterwards.
func (e *Endpoint) NextStep(strangers bool) *Step {
	queues := e.shakes.steps[RankPeer : RankPeer+1]
	if strangers {
		queues = e.shakes.steps[RankHeard:]
		if e.shakes.stepTurn = !e.shakes.stepTurn; e.shakes.stepTurn && queues[1].Len() > 0 {
			queues = queues[1:]
		}
	}
	for i := range queues {
		if q := &queues[i]; q.Len() > 0 {
			st := *q.Front()
			q.Pop()
			st.taken()
			return st
		}
	}
	return nil
}

// taken notes that a step is under way.
func (st *Step) taken() {
	if st.h != nil {
		st.h.queued = false
	}
}

// Stepped takes the result of a step.
func (e *Endpoint) Stepped(now mono.Time, st *Step) {
	e.Touch()
	switch {
	case st.h != nil:
		st.s.computed(now, st)
	case st.s.State == SessionOpen:
		st.s.exchanged(now, st)
	default:
		st.erase()
	}
}

// erase forgets the keys of a result that nobody wants.
func (st *Step) erase() {
	for _, w := range [...]*secure.Sealer{st.seal, st.sealer} {
		if w != nil {
			w.Erase()
		}
	}
	for _, r := range [...]*secure.Opener{st.open, st.opener} {
		if r != nil {
			eraseAll(r.Close())
		}
	}
	st.reader.Erase()
	if st.ours != nil {
		st.ours.Erase()
	}
}

func eraseAll(keys []*secure.Generation) {
	for _, g := range keys {
		g.Erase()
	}
}

// step has what there is to read of h read, unless it is at that.
func (s *Session) step(now mono.Time, h *handshake) {
	if h.busy {
		return
	}
	st := &Step{s: s, h: h, keys: h.seal == nil || h.open == nil, node: *s.e.cfg.Secure}
	if !h.begun {
		h.begun, h.told = true, s.e.hellos.linkVersion
		st.params = s.params()
		if h.dialer {
			st.peer, _ = s.e.cfg.Secure.Peers.ByNode(s.Peer.who.ID)
		}
	}
	for l := range h.in {
		st.in[l] = h.in[l].take()
	}
	h.busy, h.queued = true, s.e.cfg.Deferred
	s.e.give(now, h.rank, st)
}

// computed goes on with a handshake whose step was computed.
func (s *Session) computed(now mono.Time, st *Step) {
	h := st.h
	if st.last {
		return
	}
	h.busy = false
	if h.over {
		st.erase()
		s.e.closed(s, h)
		return
	}
	for l := range secure.Levels {
		h.out[l] = h.tls.Out(l)
	}
	h.done, h.who, h.params = h.tls.Done(), h.tls.Peer(), h.tls.Params()
	if st.keys {
		h.seal, h.open = st.seal, st.open
	}
	if h.open != nil {
		h.in[secure.Initial].take() // both ends have said all of that level: what came meanwhile is forged
	}
	h.sealer, h.opener = st.sealer, st.opener
	s.Trust.Hs = h
	if st.err != nil {
		s.handshakeFailed(now, st.err)
		return
	}
	if len(s.Trust.tries) > 0 && h.done && !s.proved(now) {
		return
	}
	h.wait = handshakeRepeat
	s.sendFlight(now, false)
	switch {
	case h.done && !h.dialer:
		s.established(now)
	case h.in[0].waits() || h.in[1].waits():
		s.step(now, h)
	}
	if h.open != nil && !h.over {
		s.openEarly(now, h)
	}
}

// openEarly takes the sealed frames that waited for their keys.
func (s *Session) openEarly(now mono.Time, h *handshake) {
	early := h.early
	h.early = nil
	for _, b := range early {
		var head wire.Header
		if head.DecodeClear(b) == nil && s.Trust.Hs == h {
			s.e.OnSealedCrypto(now, s, &head, b)
		}
	}
}

// close ends a handshake.
func (e *Endpoint) close(s *Session, h *handshake) {
	if h.over {
		return
	}
	if h.over = true; h.queued {
		h.busy, h.queued = false, false
		e.shakes.steps[h.rank].Remove(func(st *Step) bool { return st.h == h })
	}
	if !h.busy { // else when its step is done
		e.closed(s, h)
	}
}

// closed forgets a handshake's keys, and has TLS do the same.
func (e *Endpoint) closed(s *Session, h *handshake) {
	keys := Step{seal: h.seal, open: h.open, sealer: h.sealer, opener: h.opener}
	keys.erase()
	h.seal, h.open, h.sealer, h.opener = nil, nil, nil, nil
	if h.tls != nil {
		e.give(0, h.rank, &Step{s: s, h: h, last: true})
	}
}
