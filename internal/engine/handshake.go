package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// How two nodes come to trust each other (clause 10), one frame at a time:
//
//  1. Init and InitAck have told each end the other's session number, after a cookie proved that the asking end
//     receives at its address. Whoever sees an Init can answer it, so the asking end begins a handshake with each
//     address that does, until one of them has proved that it is the peer.
//  2. Crypto frames carry the streams of a TLS 1.3 handshake, cut and put together by offset. A flight is repeated
//     until the next one arrives.
//  3. The answering end has the asking one's last word: it opens the session and says Done. Only now does the asking
//     end open it too.
//  4. session.established decides what becomes of an older session of the same two nodes.
//
// Only authentic frames change an open session, and no registered memory is touched before the handshake has ended.

const (
	handshakeTime   = 3 * time.Second       // from its start until a handshake is given up
	handshakeRepeat = 20 * time.Millisecond // before the first repetition of a flight, doubling
	handshakeSlow   = 200 * time.Millisecond
	maxPending      = 64          // handshakes that others began
	maxSteps        = 16          // steps of those of one rank that wait: with more than that no other begins
	maxEarly        = 8           // sealed frames that wait for their keys: as many as a flight has
	doubtEvery      = time.Second // between handshakes to find out whether the peer lost the session
)

// trust is what proves that a session's peer is the peer: handshakes before it opens, keys from then on. All of it is
// zero in plaintext, but for keys.
type trust struct {
	// the handshake that something happens to; nil when it is over and forgotten
	hs *handshake
	// at the asking end one with each address that answered, hs among them, until the peer has proved who it is
	tries   []*handshake
	answers int            // of different addresses since the handshake began
	sealer  *secure.Sealer // nil until the session opens
	opener  *secure.Opener // nil exactly when sealer is
	keys    keys
	claimed NodeID // by an Init, before it is proved
	doubted uint32 // the peer's number of the session that this one asks about
	asked   bool   // by us, of a session that is open
}

// handshake is the part of a session that is gone soon after it opened.
type handshake struct {
	tls    *secure.Handshake // belongs to the Step while busy
	rank   peering.Rank
	begun  bool // a Step was made; at the answering end the asking end has said something
	busy   bool // a Step is under way
	queued bool // and not taken yet
	over   bool
	dialer bool
	link   int // where its frames go
	addr   frame.Addr
	// the session's numbers at the other end: until the peer's is proved, those that InitAcks of the address named
	to      []uint32
	said    int    // how many they named
	told    uint32 // the version of our links that our parameters have
	in      [secure.Levels]stream
	early   [][]byte              // sealed frames that came while the Step that gives their keys was under way
	out     [secure.Levels][]byte // what we have to say
	sent    [secure.Levels]int    // bytes of that which were sent at least once
	done    bool                  // the peer has proved who it is, and everything of ours is in out
	who     secure.Peer
	params  []byte // what it says of itself
	sealer  *secure.Sealer
	opener  *secure.Opener // of the session, once done
	seal    *secure.Sealer // nil until there are handshake keys
	open    *secure.Opener
	pn      uint64
	again   mono.Time // next repetition
	wait    time.Duration
	end     mono.Time // when it is given up
	answer  uint8     // flags of Crypto that answer whatever comes: the handshake is over
	refused Status
}

// stream puts the pieces of one level together.
type stream struct {
	buf  []byte
	got  span.Set
	done int // bytes given to the handshake
}

// put stores a piece. It reports whether all of it was there before.
func (s *stream) put(off int, p []byte) (old bool) {
	end := off + len(p)
	if len(p) == 0 || s.got.Covers(uint64(off), uint64(end)) {
		return len(p) > 0
	}
	if end > len(s.buf) {
		s.buf = append(s.buf, make([]byte, end-len(s.buf))...)
	}
	copy(s.buf[max(off, s.done):], p[max(off, s.done)-off:])
	s.got.Add(uint64(off), uint64(end))
	return false
}

// waits reports whether there is something to take.
func (s *stream) waits() bool {
	return len(s.got.Spans) > 0 && s.got.Spans[0].Lo == 0 && int(s.got.Spans[0].Hi) > s.done
}

// take returns what became readable. It stays as it is: a later put writes behind it alone.
func (s *stream) take() (ready []byte) {
	if s.waits() {
		ready = s.buf[s.done:s.got.Spans[0].Hi]
		s.done = int(s.got.Spans[0].Hi)
	}
	return ready
}

// params is what we say of ourselves in a session's handshake (clause 10.3).
func (s *session) params() []byte {
	e := s.e
	p := wire.Params{Epoch: e.cfg.Epoch, Session: s.local, Previous: s.trust.doubted, Shard: uint8(e.cfg.Shard),
		Last: uint8(e.cfg.Shards - 1)}
	for i := range e.links {
		if (e.up&^e.self.inside)&(1<<i) != 0 {
			p.Links = append(p.Links, e.linkInfo(i))
		}
	}
	return p.AppendTo(nil)
}

// beginHandshake starts a handshake of s with the end that knows it by number.
func (s *session) beginHandshake(now mono.Time, i int, addr frame.Addr, number uint32, r peering.Rank) *handshake {
	s.state = sessionHandshake
	s.trust.hs = &handshake{rank: r, link: i, addr: addr, to: []uint32{number}, said: 1, again: mono.Never,
		wait: handshakeRepeat, end: now.Add(handshakeTime)}
	return s.trust.hs
}

// sendFlight sends what was not sent yet of the handshake's streams, or again what the peer may not have.
func (s *session) sendFlight(now mono.Time, again bool) {
	h := s.trust.hs
	for l := range secure.Levels {
		out, from := h.out[l], h.sent[l]
		// the peer's keys show that it has our first flight
		if again && (l == secure.Protected || !h.dialer || h.open == nil) {
			from = 0
		}
		for from < len(out) {
			n := min(len(out)-from, maxCryptoData)
			s.sendCrypto(&wire.Crypto{Level: uint8(l), Offset: uint32(from), Data: out[from : from+n]})
			from += n
		}
		h.sent[l] = len(out)
	}
	h.again = now.Add(h.wait)
}

// maxCryptoData is how much of a stream one frame carries: every link can carry it (clause 9.2).
const maxCryptoData = wire.MinFrame - wire.FixedLen - wire.CryptoLen - wire.TagLen

// sendCrypto queues one frame of the handshake, sealed unless it is of the first level.
func (s *session) sendCrypto(c *wire.Crypto) {
	h := s.trust.hs
	for _, number := range h.to {
		f := outFrame{link: h.link, dst: h.addr, kind: wire.TypeCrypto, sess: number, body: c.AppendTo(nil)}
		if c.Level == uint8(secure.Protected) {
			if h.seal == nil {
				return
			}
			n := max(wire.FixedLen+len(f.body), wire.MinSealed-frame.HeaderLen-wire.TagLen)
			b := make([]byte, n, n+wire.TagLen)
			copy(b[wire.FixedLen:], f.body)
			head := wire.Header{Type: wire.TypeCrypto, KeyEpoch: h.seal.Epoch(), Path: uint8(h.link), Session: number,
				PN: h.pn}
			wire.FinishOpen(b, &head, f.body)
			f.body = h.seal.Seal(b, head.Path, head.PN)
			f.sealed = true
			h.pn++
		}
		s.e.queueSetup(f)
	}
}

// onSealedCrypto opens a frame of the handshake.
func (e *Endpoint) onSealedCrypto(now mono.Time, s *session, h *wire.Header, b []byte) {
	if s.trust.hs == nil || s.trust.hs.open == nil {
		// The peer's flight goes on behind what gives its keys: else each dial would wait for the repetition.
		if hs := s.trust.hs; hs != nil && hs.dialer && hs.busy && len(hs.early) < maxEarly && len(b) <= wire.MinFrame {
			hs.early = append(hs.early, slices.Clone(b))
		}
		return
	}
	opened, ok := s.trust.hs.open.Open(&e.scratch.nonce, e.scratch.opening, b, h.KeyEpoch, h.Path, h.PN)
	switch {
	case !ok && s.trust.hs.said > 1:
		e.Count.UnknownSession++ // of another session that the address named: a peer that began anew has named two
		return
	case !ok || e.scratch.frame.DecodeOpened(opened) != nil:
		e.Count.RejectedAuth++
		return
	}
	s.onCrypto(now, e.scratch.frame.Tail, true)
}

// onCrypto takes a piece of the handshake; authentic says that it was sealed.
func (s *session) onCrypto(now mono.Time, body []byte, authentic bool) {
	h := s.trust.hs
	var c wire.Crypto
	if c.Decode(body) != nil || (c.Level == uint8(secure.Protected) || c.Flags != 0) != authentic {
		s.e.Count.RejectedMalformed++
		return
	}
	switch {
	case h == nil:
		return
	case h.answer != 0: // it asks again because our last word was lost
		s.lastWord(now)
		return
	case c.Flags != 0:
		if h.dialer && h.done { // else whoever says it has not proved who he is
			s.onLastWord(now, &c)
		}
		return
	case c.Level == uint8(secure.Initial) && h.open != nil && !h.in[0].got.Covers(uint64(c.Offset),
		uint64(int(c.Offset)+len(c.Data))):
		return // both ends have said all of that level: it is forged
	}
	if h.in[c.Level].put(int(c.Offset), c.Data) && now >= h.again.Add(-h.wait/2) {
		s.sendFlight(now, true)
		return
	}
	if h.in[c.Level].waits() {
		s.step(now, h)
	}
}

// onLastWord takes the peer's answer to our own last word.
func (s *session) onLastWord(now mono.Time, c *wire.Crypto) {
	switch {
	case c.Flags&wire.CryptoRefused != 0:
		s.refusedBy(now, Status(c.Status))
	case c.Flags&wire.CryptoKept != 0:
		s.discard()
	default:
		s.established(now)
	}
}

// handshakeFailed ends a handshake that cannot succeed. The asking end goes on trying: somebody else may have answered
// in the peer's place.
func (s *session) handshakeFailed(now mono.Time, err error) {
	h := s.trust.hs
	s.e.Count.HandshakesFailed++
	stranger := errors.Is(err, secure.ErrStranger)
	if stranger {
		s.e.Count.StrangersRefused++
	}
	if h.dialer {
		if stranger {
			s.peer.past.Troubled(now, peering.TroubleWrongKey)
			s.setup.hint = "a node that answers in its place holds another key than the one authorised for it here"
		}
		if len(s.trust.tries) > 1 {
			s.endTry(h)
			return
		}
		h.end = min(h.end, now.Add(handshakeSlow)) // and once more from the start
		return
	}
	if h.seal == nil { // nobody can be told: it was no handshake, and who asked begins another with its next Init
		s.discard()
		return
	}
	h.answer, h.refused, h.again = wire.CryptoRefused, StatusRefused, 0
	if stranger {
		h.refused = StatusStranger
	}
	s.lastWord(now)
}

// lastWord says again how the handshake ended, to an asking end that did not hear it.
func (s *session) lastWord(now mono.Time) {
	h := s.trust.hs
	if h.answer == 0 || now < h.again {
		return
	}
	h.again = now.Add(5 * time.Millisecond)
	s.sendCrypto(&wire.Crypto{Level: uint8(secure.Protected), Flags: h.answer, Status: uint8(h.refused)})
}

// refusedBy ends a session that the peer refused after it had proved its identity.
func (s *session) refusedBy(now mono.Time, st Status) {
	text := fmt.Sprintf("node %q refused the session", s.peer.name)
	s.peer.past.Troubled(now, peering.TroubleRefused)
	if st == StatusStranger {
		s.peer.past.Troubled(now, peering.TroubleUnwelcome)
		text = fmt.Sprintf("node %q does not authorise this node's key; add it there: edgectl peers add %v %s",
			s.peer.name, s.e.cfg.Secure.Public, s.e.cfg.Name)
	}
	for s.members.dials.n > 0 {
		s.members.dials.head.finish(now, st, text)
	}
	old := s.peer.session
	s.discard()
	if old != nil && old != s && st == StatusStranger { // s asked whether the peer still has it
		old.fail(now, st)
	}
}

// established is called when the peer has proved who it is: at the answering end with the last piece, at the asking end
// with Done.
func (s *session) established(now mono.Time) {
	e, h := s.e, s.trust.hs
	var p wire.Params
	if p.Decode(h.params) != nil || p.Session != s.remote || h.dialer && p.Shard != s.peer.shard {
		s.handshakeFailed(now, errors.New("the peer's parameters contradict its frames"))
		return
	}
	s.epoch = p.Epoch
	for _, l := range p.Links {
		s.setRemoteLink(&l)
	}
	if !h.dialer {
		who := h.who
		// SetPeers came between
		if still, ok := e.cfg.Secure.Peers.ByNode(who.Key.Node()); !ok || still.Key != who.Key {
			s.handshakeFailed(now, secure.ErrStranger)
			return
		}
		peer := e.record(who.Key.Node(), p.Shard)
		if peer == nil {
			s.discard()
			return
		}
		s.peer = peer
		s.peer.name = who.Name
		if !s.supersede(now, p.Previous) {
			return
		}
	} else if old := s.peer.session; old != s { // we doubted the old session, and rightly
		s.peer.doubt, s.peer.doubtAt = nil, 0
		switch {
		case old == nil:
		case old.served || old.epoch != s.epoch:
			s.adopt(now, old)
			old.fail(now, StatusPeerDown)
		default: // the peer never had it
			s.inherit(now, old)
		}
		s.peer.session = s
	}
	s.peer.last = p.Last
	s.trust.sealer, s.trust.opener, h.sealer, h.opener = h.sealer, h.opener, nil, nil
	s.beginKeys(now)
	s.e.showOpeners()
	s.peerLinks.told = h.told
	s.heardHere(now, h.link)
	if s.trust.asked = h.dialer; s.trust.asked {
		s.endHandshake()
	} else {
		h.answer, h.again, h.end = wire.CryptoDone, 0, now.Add(handshakeTime)
		s.lastWord(now)
	}
	s.open(now)
}

// heardHere makes the peer known on the link of the handshake, whose frames proved that it is there: a path begins with
// that pair (clause 9.4).
func (s *session) heardHere(now mono.Time, i int) {
	for j, r := range s.peerLinks.links {
		if r.addr == s.trust.hs.addr {
			s.peerLinks.seen[i] |= 1 << j
			s.peer.heard.Note(now, i, uint8(j))
			s.peer.named |= 1 << j
			s.peer.remote[uint8(j)] = remoteLink{addr: r.addr, mtu: r.mtu, joins: r.joins, slots: r.slots,
				shuffle: r.shuffle}
		}
	}
}

// discard ends a session that nothing depends on.
func (s *session) discard() {
	e := s.e
	s.state = sessionDead
	for k := 0; s.members.conns > 0 && k < len(e.conns.byIndex); k++ { // those of requests that were given up meanwhile
		if c := e.conns.byIndex[k]; c.s == s && c.state != connFree {
			c.finish(e.lastRun, StatusPeerDown, "")
		}
	}
	s.endHandshake()
	e.forgetSession(s)
}

func (s *session) endHandshake() {
	if s.trust.hs == nil {
		return
	}
	s.e.answeredInit(s)
	for _, h := range s.trust.tries {
		if h != s.trust.hs {
			s.e.close(s, h)
		}
	}
	s.e.close(s, s.trust.hs)
	s.trust.hs, s.trust.tries, s.trust.answers = nil, nil, 0
}

// handshakeTimeout repeats a flight, or gives the handshake up.
func (s *session) handshakeTimeout(now mono.Time) {
	h := s.trust.hs
	switch {
	case now >= h.end && s.state == sessionOpen: // the asking end must have heard our last word by now
		s.endHandshake()
	case now >= h.end && h.dialer && s.peer.session == s: // once more from the start
		s.e.Count.HandshakesFailed++
		if s.peer.past.Trouble != peering.TroubleWrongKey {
			s.peer.past.Troubled(now, peering.TroubleNoHandshake)
		}
		s.endHandshake()
		s.renumber()
		s.state, s.setup.cookies, s.setup.initWait = sessionDialing, nil, firstInit
		s.sendInit(now)
	case now >= h.end:
		if h.answer == 0 {
			s.e.Count.HandshakesFailed++
		}
		s.discard()
	case h.answer != 0:
		h.again = mono.Never
	case now >= h.again:
		h.wait = min(2*h.wait, handshakeSlow)
		s.sendFlight(now, true)
	}
}

// deadline is when shakeTimeout is due.
func (h *handshake) deadline() mono.Time {
	if h.answer != 0 {
		return h.end
	}
	return min(h.again, h.end)
}

// answerInit begins the handshake that an Init with a good cookie asks for. The claimed identity is not believed yet.
func (e *Endpoint) answerInit(now mono.Time, i int, src frame.Addr, in *wire.Init, r peering.Rank) {
	for _, s := range e.shakes.pending {
		if s.remote == in.Session && s.trust.claimed == NodeID(in.Node) && s.trust.hs.link == i &&
			s.trust.hs.addr == src {
			e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
			return
		}
	}
	if p := e.peers.byID[peerID{NodeID(in.Node), in.Shard}]; p != nil && p.session != nil &&
		p.session.trust.hs != nil &&
		p.session.trust.hs.dialer && string(e.cfg.Node[:]) < string(in.Node[:]) {
		return // both ends ask, and ours prevails (clause 4.5)
	}
	// somebody between us can ask from its address
	if r == peering.RankPeer && !e.shakes.answers.Take(now, answerTime, r, maxPeerAnswers) {
		r = peering.RankHeard
	}
	if r != peering.RankPeer && !e.shakes.answers.Take(now, answerTime, r, maxAnswers) ||
		e.shakes.steps[r].Len() >= maxSteps {
		e.Count.RejectedNoRoom++
		return
	}
	// one of them at random: an attacker who floods cannot choose which
	if len(e.shakes.pending) >= maxPending {
		e.Count.RejectedNoRoom++
		e.shakes.pending[e.rng.IntN(len(e.shakes.pending))].discard()
	}
	s := e.newSession(now, &peer{}, e.cfg.Scheduler)
	s.remote, s.epoch, s.trust.claimed = in.Session, in.Epoch, NodeID(in.Node)
	s.beginHandshake(now, i, src, in.Session, r)
	e.shakes.pending = append(e.shakes.pending, s)
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
}

// answeredInit takes s out of those that answer an Init and are not open.
func (e *Endpoint) answeredInit(s *session) {
	if s.trust.hs != nil && !s.trust.hs.dialer {
		e.shakes.pending = slices.DeleteFunc(e.shakes.pending, func(o *session) bool { return o == s })
	}
}

// authorised reports whether a node of that name or identity may be dialled.
func (e *Endpoint) authorised(name string) bool {
	if e.cfg.Secure == nil || e.IsSelf(name) {
		return true
	}
	_, ok := e.authorisedPeer(name)
	return ok
}

func (e *Endpoint) authorisedPeer(name string) (secure.Peer, bool) {
	if p, ok := e.cfg.Secure.Peers.ByName(name); ok {
		return p, true
	}
	id, ok := parseNodeID(name)
	if !ok {
		return secure.Peer{}, false
	}
	return e.cfg.Secure.Peers.ByNode(id)
}

// SetPeers replaces the authorised peers. Sessions with those that are not authorised any more end with StatusStranger.
func (e *Endpoint) SetPeers(now mono.Time, peers *secure.Peers) {
	e.cfg.Secure.Peers = peers
	for _, s := range slices.Clone(e.sessions.list) {
		if _, ok := peers.ByNode(s.peer.id); !ok && !s.inside && s.state != sessionDead && s.peer.id != (NodeID{}) {
			s.fail(now, StatusStranger)
		}
	}
	for _, p := range e.peers.list { // who is dialled, and listed, by another name from now on
		if who, ok := peers.ByNode(p.id); ok {
			p.name = who.Name
		}
	}
	e.hellos.wrong = nil
	e.greet(now)
}
