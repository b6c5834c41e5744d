package peering

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/path"
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
	Hs *handshake
	// at the asking end one with each address that answered, hs among them, until the peer has proved who it is
	tries   []*handshake
	answers int            // of different addresses since the handshake began
	Sealer  *secure.Sealer // nil until the session opens
	Opener  *secure.Opener // nil exactly when sealer is
	Keys    keys
	claimed op.NodeID // by an Init, before it is proved
	doubted uint32    // the peer's number of the session that this one asks about
	asked   bool      // by us, of a session that is open
}

// handshake is the part of a session that is gone soon after it opened.
type handshake struct {
	tls    *secure.Handshake // belongs to the Step while busy
	rank   Rank
	begun  bool // a Step was made; at the answering end the asking end has said something
	busy   bool // a Step is under way
	queued bool // and not taken yet
	over   bool
	dialer bool
	link   int // where its frames go
	addr   frame.Addr
	theirs uint8 // the peer's link, as a sealed frame of the handshake says
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
	refused abi.Status
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
func (s *Session) params() []byte {
	e := s.e
	p := wire.Params{Epoch: e.cfg.Epoch, Session: s.local, Previous: s.Trust.doubted, Shard: uint8(e.cfg.Shard),
		Last: uint8(e.cfg.Shards - 1)}
	for i := range e.net.Links {
		if (e.net.Up&^e.self.inside)&(1<<i) != 0 {
			p.Links = append(p.Links, e.linkInfo(i))
		}
	}
	return p.AppendTo(nil)
}

// beginHandshake starts a handshake of s with the end that knows it by number.
func (s *Session) beginHandshake(now mono.Time, i int, addr frame.Addr, number uint32, r Rank) *handshake {
	s.State = sessionHandshake
	s.Trust.Hs = &handshake{rank: r, link: i, addr: addr, to: []uint32{number}, said: 1, again: mono.Never,
		wait: handshakeRepeat, end: now.Add(handshakeTime)}
	return s.Trust.Hs
}

// sendFlight sends what was not sent yet of the handshake's streams, or again what the peer may not have.
func (s *Session) sendFlight(now mono.Time, again bool) {
	h := s.Trust.Hs
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
func (s *Session) sendCrypto(c *wire.Crypto) {
	h := s.Trust.Hs
	for _, number := range h.to {
		f := Setup{Link: h.link, Dst: h.addr, Kind: wire.TypeCrypto, Sess: number, Body: c.AppendTo(nil)}
		if c.Level == uint8(secure.Protected) {
			if h.seal == nil {
				return
			}
			n := max(wire.FixedLen+len(f.Body), wire.MinSealed-frame.HeaderLen-wire.TagLen)
			b := make([]byte, n, n+wire.TagLen)
			copy(b[wire.FixedLen:], f.Body)
			head := wire.Header{Type: wire.TypeCrypto, KeyEpoch: h.seal.Epoch(), Path: uint8(h.link), Session: number,
				PN: h.pn}
			wire.FinishOpen(b, &head, f.Body)
			f.Body = h.seal.Seal(b, head.Path, head.PN)
			f.Sealed = true
			h.pn++
		}
		s.e.queueSetup(f)
	}
}

// OnCrypto takes a piece of the handshake; authentic says that it was sealed.
func (s *Session) OnCrypto(now mono.Time, body []byte, authentic bool) {
	h := s.Trust.Hs
	var c wire.Crypto
	if c.Decode(body) != nil || (c.Level == uint8(secure.Protected) || c.Flags != 0) != authentic {
		s.e.count.Reject.RejectedMalformed++
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
func (s *Session) onLastWord(now mono.Time, c *wire.Crypto) {
	switch {
	case c.Flags&wire.CryptoRefused != 0:
		s.refusedBy(now, abi.Status(c.Status))
	case c.Flags&wire.CryptoKept != 0:
		s.discard()
	default:
		s.established(now)
	}
}

// handshakeFailed ends a handshake that cannot succeed. The asking end goes on trying: somebody else may have answered
// in the peer's place.
func (s *Session) handshakeFailed(now mono.Time, err error) {
	h := s.Trust.Hs
	s.e.count.Trust.HandshakesFailed++
	stranger := errors.Is(err, secure.ErrStranger)
	if stranger {
		s.e.count.Trust.StrangersRefused++
	}
	if h.dialer {
		if stranger {
			s.Peer.Past.Troubled(now, TroubleWrongKey)
			s.setup.hint = "a node that answers in its place holds another key than the one authorised for it here"
		}
		if len(s.Trust.tries) > 1 {
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
	h.answer, h.refused, h.again = wire.CryptoRefused, abi.StatusRefused, 0
	if stranger {
		h.refused = abi.StatusStranger
	}
	s.lastWord(now)
}

// lastWord says again how the handshake ended, to an asking end that did not hear it.
func (s *Session) lastWord(now mono.Time) {
	h := s.Trust.Hs
	if h.answer == 0 || now < h.again {
		return
	}
	h.again = now.Add(5 * time.Millisecond)
	s.sendCrypto(&wire.Crypto{Level: uint8(secure.Protected), Flags: h.answer, Status: uint8(h.refused)})
}

// refusedBy ends a session that the peer refused after it had proved its identity.
func (s *Session) refusedBy(now mono.Time, st abi.Status) {
	text := fmt.Sprintf("node %q refused the session", s.Peer.who.Name)
	s.Peer.Past.Troubled(now, TroubleRefused)
	if st == abi.StatusStranger {
		s.Peer.Past.Troubled(now, TroubleUnwelcome)
		text = fmt.Sprintf("node %q does not authorise this node's key; add it there: edgectl peers add %v %s",
			s.Peer.who.Name, s.e.cfg.Secure.Public, s.e.cfg.Name)
	}
	s.Ops.FinishDials(now, st, text)
	old := s.Peer.session
	s.discard()
	if old != nil && old != s && st == abi.StatusStranger { // s asked whether the peer still has it
		old.fail(now, st)
	}
}

// established is called when the peer has proved who it is: at the answering end with the last piece, at the asking end
// with Done.
func (s *Session) established(now mono.Time) {
	e, h := s.e, s.Trust.Hs
	var p wire.Params
	if p.Decode(h.params) != nil || p.Session != s.Remote || h.dialer && p.Shard != s.Peer.who.Shard {
		s.handshakeFailed(now, errors.New("the peer's parameters contradict its frames"))
		return
	}
	s.epoch = p.Epoch
	for _, l := range p.Links {
		s.Paths.SetRemoteLink(&l)
	}
	if !h.dialer {
		who := h.who
		// SetPeers came between
		if still, ok := e.cfg.Secure.Peers.ByNode(who.Key.Node()); !ok || still.Key != who.Key {
			s.handshakeFailed(now, secure.ErrStranger)
			return
		}
		if !e.mayBeAt(who.Key.Node(), &h.addr) { // it asked in another peer's name, or the configuration has changed
			s.discard()
			return
		}
		peer := e.record(who.Key.Node(), p.Shard)
		if peer == nil {
			s.discard()
			return
		}
		s.Peer, s.Ops.Peer, s.Paths.Hints = peer, &peer.who, &peer.Links
		s.Peer.who.Name = who.Name
		if !s.supersede(now, p.Previous) {
			return
		}
	} else if old := s.Peer.session; old != s { // we doubted the old session, and rightly
		s.Peer.doubt, s.Peer.doubtAt = nil, 0
		switch {
		case old == nil:
		case old.Served || old.epoch != s.epoch:
			s.adopt(now, old)
			old.fail(now, abi.StatusPeerDown)
		default: // the peer never had it
			s.inherit(now, old)
		}
		s.Peer.session = s
	}
	s.Peer.last = p.Last
	s.Trust.Sealer, s.Trust.Opener, h.sealer, h.opener = h.sealer, h.opener, nil, nil
	s.Paths.Sealed, s.Paths.Asked = true, h.dialer
	s.beginKeys(now)
	s.e.showOpeners()
	s.PeerLinks.told = h.told
	s.heardHere(now, h.link)
	if s.Trust.asked = h.dialer; s.Trust.asked {
		s.EndHandshake()
	} else {
		h.answer, h.again, h.end = wire.CryptoDone, 0, now.Add(handshakeTime)
		s.lastWord(now)
	}
	s.open(now)
}

// heardHere makes the peer known on the link of the handshake, whose frames proved that it is there: a path begins with
// that pair (clause 9.4).
func (s *Session) heardHere(now mono.Time, i int) {
	if h := s.Trust.Hs; s.e.isIP(i) {
		s.Paths.Seen[i] |= 1 << h.theirs
		s.Paths.Placed(i, h.theirs, h.addr)
		return
	}
	for j, r := range s.Paths.Links {
		if r.Addr == s.Trust.Hs.addr {
			s.Paths.Seen[i] |= 1 << j
			s.Peer.Links.Heard.Note(now, i, uint8(j))
			s.Peer.Links.Named |= 1 << j
			s.Peer.Links.Remote[uint8(j)] = path.Remote{Addr: r.Addr, MTU: r.MTU, Joins: r.Joins, Slots: r.Slots,
				Shuffle: r.Shuffle}
		}
	}
}

// discard ends a session that nothing depends on.
func (s *Session) discard() {
	e := s.e
	s.State = sessionDead
	s.Ops.Open = false
	e.ops.FinishAll(e.lastRun, &s.Ops, abi.StatusPeerDown) // those of requests that were given up meanwhile
	s.EndHandshake()
	e.forgetSession(s)
}

func (s *Session) EndHandshake() {
	if s.Trust.Hs == nil {
		return
	}
	s.e.answeredInit(s)
	for _, h := range s.Trust.tries {
		if h != s.Trust.Hs {
			s.e.close(s, h)
		}
	}
	s.e.close(s, s.Trust.Hs)
	s.Trust.Hs, s.Trust.tries, s.Trust.answers = nil, nil, 0
}

// handshakeTimeout repeats a flight, or gives the handshake up.
func (s *Session) handshakeTimeout(now mono.Time) {
	h := s.Trust.Hs
	switch {
	case now >= h.end && s.State == SessionOpen: // the asking end must have heard our last word by now
		s.EndHandshake()
	case now >= h.end && h.dialer && s.Peer.session == s: // once more from the start
		s.e.count.Trust.HandshakesFailed++
		if s.Peer.Past.Trouble != TroubleWrongKey {
			s.Peer.Past.Troubled(now, TroubleNoHandshake)
		}
		s.EndHandshake()
		s.renumber()
		s.State, s.setup.cookies, s.setup.initWait = sessionDialing, nil, firstInit
		s.sendInit(now)
	case now >= h.end:
		if h.answer == 0 {
			s.e.count.Trust.HandshakesFailed++
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
func (e *Endpoint) answerInit(now mono.Time, i int, src frame.Addr, in *wire.Init, r Rank) {
	for _, s := range e.shakes.pending {
		if s.Remote == in.Session && s.Trust.claimed == op.NodeID(in.Node) && s.Trust.Hs.link == i &&
			s.Trust.Hs.addr == src {
			e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
			return
		}
	}
	if p := e.peers.byID[peerID{op.NodeID(in.Node), in.Shard}]; p != nil && p.session != nil &&
		p.session.Trust.Hs != nil &&
		p.session.Trust.Hs.dialer && string(e.cfg.Node[:]) < string(in.Node[:]) {
		return // both ends ask, and ours prevails (clause 4.5)
	}
	// somebody between us can ask from its address
	if r == RankPeer && !e.shakes.answers.Take(now, answerTime, r, maxPeerAnswers) {
		r = RankHeard
	}
	if r != RankPeer && !e.shakes.answers.Take(now, answerTime, r, maxAnswers) ||
		e.shakes.steps[r].Len() >= maxSteps {
		e.count.Reject.RejectedNoRoom++
		return
	}
	// one of them at random: an attacker who floods cannot choose which
	if len(e.shakes.pending) >= maxPending {
		e.count.Reject.RejectedNoRoom++
		e.shakes.pending[e.rng.IntN(len(e.shakes.pending))].discard()
	}
	s := e.newSession(now, &peer{}, e.cfg.Scheduler)
	s.Remote, s.epoch, s.Trust.claimed = in.Session, in.Epoch, op.NodeID(in.Node)
	s.beginHandshake(now, i, src, in.Session, r)
	e.shakes.pending = append(e.shakes.pending, s)
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
}

// answeredInit takes s out of those that answer an Init and are not open.
func (e *Endpoint) answeredInit(s *Session) {
	if s.Trust.Hs != nil && !s.Trust.Hs.dialer {
		e.shakes.pending = slices.DeleteFunc(e.shakes.pending, func(o *Session) bool { return o == s })
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
	id, ok := op.ParseNodeID(name)
	if !ok {
		return secure.Peer{}, false
	}
	return e.cfg.Secure.Peers.ByNode(id)
}

// SetPeers replaces the authorised peers. Sessions with those that are not authorised any more end with StatusStranger;
// paths to addresses where a peer may not be any more are dropped.
func (e *Endpoint) SetPeers(now mono.Time, peers *secure.Peers) {
	e.cfg.Secure.Peers = peers
	for _, s := range slices.Clone(e.Sessions.List) {
		if _, ok := peers.ByNode(s.Peer.who.ID); !ok && !s.Inside && s.State != sessionDead &&
			s.Peer.who.ID != (op.NodeID{}) {
			s.fail(now, abi.StatusStranger)
		}
	}
	for _, p := range e.peers.list { // who is dialled, and listed, by another name from now on
		if who, ok := peers.ByNode(p.who.ID); ok {
			p.who.Name = who.Name
		}
	}
	e.confine(now)
	e.hellos.wrong = nil
	e.greet(now)
}

// OnSealedCrypto opens a frame of the handshake.
func (e *Endpoint) OnSealedCrypto(now mono.Time, s *Session, h *wire.Header, b []byte) {
	if s.Trust.Hs == nil || s.Trust.Hs.open == nil {
		// The peer's flight goes on behind what gives its keys: else each dial would wait for the repetition.
		if hs := s.Trust.Hs; hs != nil && hs.dialer && hs.busy && len(hs.early) < maxEarly && len(b) <= wire.MinFrame {
			hs.early = append(hs.early, slices.Clone(b))
		}
		return
	}
	opened, ok := s.Trust.Hs.open.Open(&e.nonce, e.Opening, b, h.KeyEpoch, h.Path, h.PN)
	switch {
	case !ok && s.Trust.Hs.said > 1:
		// of another session that the address named: a peer that began anew has named two
		e.count.Reject.UnknownSession++
		return
	case !ok || e.frame.DecodeOpened(opened) != nil:
		e.count.Reject.RejectedAuth++
		return
	}
	s.Trust.Hs.theirs = h.Path
	s.OnCrypto(now, e.frame.Tail, true)
}

// HasHandshake reports whether something of the session's handshake is remembered.
func (s *Session) HasHandshake() bool { return s.Trust.Hs != nil }
