package engine

// How two nodes come to trust each other (clause 10), one frame at a time:
//
//  1. Init and InitAck have told each end the other's session number, after a cookie proved that the asking end receives at its address. Whoever sees
//     an Init can answer it, so the asking end begins a handshake with each address that does, until one of them has proved that it is the peer.
//  2. Crypto frames carry the streams of a TLS 1.3 handshake, cut and put together by offset. A flight is repeated until the next one arrives.
//  3. The answering end has the asking one's last word: it opens the session and says Done. Only now does the asking end open it too.
//  4. session.established decides what becomes of an older session of the same two nodes.
//
// Nothing that is not authentic changes a session that is open, and no memory of the owner's is touched before the end.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

const (
	handshakeTime   = 3 * time.Second       // from its start until a handshake is given up
	handshakeRepeat = 20 * time.Millisecond // before the first repetition of a flight, doubling
	handshakeSlow   = 200 * time.Millisecond
	maxPending      = 64          // handshakes that others began
	doubtEvery      = time.Second // between handshakes to find out whether the peer lost the session
)

// handshake is the part of a session that is gone soon after it opened.
type handshake struct {
	tls     *secure.Handshake // nil at the answering end until the asking end has said something
	dialer  bool
	link    int // where its frames go
	mac     [6]byte
	to      []uint32 // the session's numbers at the other end: until the peer's is proved, those that InitAcks of the address named
	said    int      // how many they named
	told    uint32   // the version of our links that our parameters have
	in      [secure.Levels]stream
	sent    [secure.Levels]int // bytes of our streams that were sent at least once
	seal    *secure.Sealer     // nil until there are handshake keys
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
	got  ranges
	done int // bytes given to the handshake
}

// put stores a piece and returns what became readable. old is true if all of it was there before.
func (s *stream) put(off int, p []byte) (ready []byte, old bool) {
	end := off + len(p)
	if len(p) == 0 || s.got.covers(uint64(off), uint64(end)) {
		return nil, len(p) > 0
	}
	if end > len(s.buf) {
		s.buf = append(s.buf, make([]byte, end-len(s.buf))...)
	}
	copy(s.buf[max(off, s.done):], p[max(off, s.done)-off:])
	s.got.add(uint64(off), uint64(end))
	if first := s.got.spans[0]; first.lo == 0 && int(first.hi) > s.done {
		ready = s.buf[s.done:first.hi]
		s.done = int(first.hi)
	}
	return ready, false
}

// params is what we say of ourselves in a session's handshake (clause 10.3).
func (s *session) params() []byte {
	e := s.e
	p := wire.Params{Epoch: e.cfg.Epoch, Session: s.local, Previous: s.doubted, Shard: uint8(e.cfg.Shard)}
	for i := range e.links {
		if e.up&(1<<i) != 0 {
			p.Links = append(p.Links, e.linkInfo(i))
		}
	}
	return p.AppendTo(nil)
}

// linkInfo describes link i to peers; one that is not up has no slots.
func (e *Endpoint) linkInfo(i int) wire.LinkInfo {
	l := &e.links[i]
	in := wire.LinkInfo{Link: uint8(i), Version: e.linkVersion, MTU: uint32(l.MTU), Joins: l.Super > 0, Shuffle: l.Shuffle, MAC: l.MAC}
	if e.up&(1<<i) != 0 {
		in.RxSlots = uint16(min(l.RxSlots, 65535))
	}
	return in
}

// shake starts a handshake of s with the end that knows it by number.
func (s *session) shake(now mono.Time, i int, mac [6]byte, number uint32, dialer bool) {
	s.state = sessionShaking
	s.hs = &handshake{
		dialer: dialer, link: i, mac: mac, to: []uint32{number}, said: 1, told: s.e.linkVersion, again: mono.Never, wait: handshakeRepeat, end: now.Add(handshakeTime),
	}
}

// sendFlight sends what was not sent yet of the handshake's streams, or again what the peer may not have.
func (s *session) sendFlight(now mono.Time, again bool) {
	h := s.hs
	if h.seal == nil || h.open == nil {
		h.seal, h.open = h.tls.ProtectedKeys()
	}
	for l := range secure.Levels {
		out, from := h.tls.Out(l), h.sent[l]
		if again && (l == secure.Protected || !h.dialer || h.open == nil) { // the peer's keys show that it has our first flight
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
	h := s.hs
	for _, number := range h.to {
		f := outFrame{link: h.link, dst: h.mac, kind: wire.TypeCrypto, sess: number, body: c.AppendTo(nil)}
		if c.Level == uint8(secure.Protected) {
			if h.seal == nil {
				return
			}
			n := max(wire.FixedLen+len(f.body), wire.MinSealed-wire.EthLen-wire.TagLen)
			b := make([]byte, n, n+wire.TagLen)
			copy(b[wire.FixedLen:], f.body)
			head := wire.Header{Type: wire.TypeCrypto, KeyEpoch: h.seal.Epoch(), Path: uint8(h.link), Session: number, PN: h.pn}
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
	if s.hs == nil || s.hs.open == nil {
		return
	}
	opened, ok := s.hs.open.Open(&e.nonce, e.scratch, b, h.KeyEpoch, h.Path, h.PN)
	switch {
	case !ok && s.hs.said > 1:
		e.Count.UnknownSession++ // of another session that the address named: a peer that began anew has named two
		return
	case !ok || e.frame.DecodeOpened(opened) != nil:
		e.Count.RejectedAuth++
		return
	}
	s.onCrypto(now, e.frame.Tail, true)
}

// onCrypto takes a piece of the handshake; authentic says that it was sealed.
func (s *session) onCrypto(now mono.Time, body []byte, authentic bool) {
	h := s.hs
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
		if h.dialer && h.tls.Done() { // else whoever says it has not proved who he is
			s.onLastWord(now, &c)
		}
		return
	case c.Level == uint8(secure.Initial) && h.open != nil && !h.in[0].got.covers(uint64(c.Offset), uint64(int(c.Offset)+len(c.Data))):
		return // both ends have said all of that level: it is forged
	}
	if h.tls == nil {
		h.tls = s.e.cfg.Secure.Answer(s.params())
	}
	ready, old := h.in[c.Level].put(int(c.Offset), c.Data)
	if old && now >= h.again.Add(-h.wait/2) {
		s.sendFlight(now, true)
		return
	}
	if len(ready) == 0 {
		return
	}
	if err := h.tls.Receive(secure.Level(c.Level), ready); err != nil {
		s.handshakeFailed(now, err)
		return
	}
	if len(s.tries) > 0 && h.tls.Done() && !s.proved(now) {
		return
	}
	h.wait = handshakeRepeat
	s.sendFlight(now, false)
	if h.tls.Done() && !h.dialer {
		s.established(now)
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

// handshakeFailed ends a handshake that cannot succeed. The asking end goes on trying: somebody else may have answered in the peer's place.
func (s *session) handshakeFailed(now mono.Time, err error) {
	h := s.hs
	s.e.Count.HandshakesFailed++
	stranger := errors.Is(err, secure.ErrStranger)
	if stranger {
		s.e.Count.StrangersRefused++
	}
	if h.dialer {
		if stranger {
			s.hint = "a node that answers in its place holds another key than the one authorised for it here"
		}
		if len(s.tries) > 1 {
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
	h := s.hs
	if h.answer == 0 || now < h.again {
		return
	}
	h.again = now.Add(5 * time.Millisecond)
	s.sendCrypto(&wire.Crypto{Level: uint8(secure.Protected), Flags: h.answer, Status: uint8(h.refused)})
}

// refusedBy ends a session that the peer, who proved who he is, will not have.
func (s *session) refusedBy(now mono.Time, st Status) {
	text := fmt.Sprintf("node %q refused the session", s.peer.name)
	if st == StatusStranger {
		text = fmt.Sprintf("node %q does not authorise this node's key; add it there: edgectl peers add %v %s", s.peer.name, s.e.cfg.Secure.Public, s.e.cfg.Name)
	}
	for i := 0; i < len(s.e.dials); i++ {
		if c := s.e.dials[i]; c.s == s {
			c.finish(now, st, text)
			i--
		}
	}
	old := s.peer.session
	s.discard()
	if old != nil && old != s && st == StatusStranger { // s asked whether the peer still has it
		old.fail(now, st)
	}
}

// established is called when the peer has proved who it is: at the answering end with the last piece, at the asking end with Done.
func (s *session) established(now mono.Time) {
	e, h := s.e, s.hs
	var p wire.Params
	if p.Decode(h.tls.Params()) != nil || p.Session != s.remote || h.dialer && p.Shard != s.peer.shard {
		s.handshakeFailed(now, errors.New("the peer's parameters contradict its frames"))
		return
	}
	s.epoch = p.Epoch
	for _, l := range p.Links {
		s.setRemoteLink(&l)
	}
	if !h.dialer {
		who := h.tls.Peer()
		if still, ok := e.cfg.Secure.Peers.ByNode(who.Key.Node()); !ok || still.Key != who.Key { // SetPeers came between
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
	s.sealer, s.opener = h.tls.DataKeys()
	s.e.showOpeners()
	s.told = h.told
	s.heardHere(now, h.link)
	if s.asked = h.dialer; s.asked {
		s.endHandshake()
	} else {
		h.answer, h.again, h.end = wire.CryptoDone, 0, now.Add(handshakeTime)
		s.lastWord(now)
	}
	s.open(now)
}

// heardHere makes the peer known on the link of the handshake, whose frames proved that it is there.
func (s *session) heardHere(now mono.Time, i int) {
	for j, r := range s.links {
		if r.mac == s.hs.mac {
			s.peer.heard[i] |= 1 << j
			s.peer.remote[uint8(j)] = remoteLink{mac: r.mac, mtu: r.mtu, joins: r.joins, slots: r.slots, shuffle: r.shuffle}
		}
	}
}

// supersede settles what the peer's new session s means for an older one, at the answering end (clause 10.7). It reports false if s is not wanted.
func (s *session) supersede(now mono.Time, doubted uint32) bool {
	e, old := s.e, s.peer.session
	if d := e.byNumber[doubted]; doubted != 0 && d != nil && d == old && d.state == sessionOpen && d.epoch == s.epoch {
		s.hs.answer, s.hs.again = wire.CryptoKept, 0
		s.lastWord(now)
		return false
	}
	switch {
	case old == nil:
	case old.state == sessionOpen && old.epoch == s.epoch && s.stale(old):
		s.discard()
		return false
	case old.state == sessionOpen && (old.epoch != s.epoch || old.served):
		s.adopt(now, old)
		old.fail(now, StatusPeerDown)
	case old.state == sessionShaking && old.hs.tls.Done() && string(e.cfg.Node[:]) < string(s.peer.id[:]):
		s.discard() // both ends asked, and the peer has or will have our last word: ours prevails
		return false
	default: // both ends asked: this one prevails, and the requests move to it
		s.inherit(now, old)
	}
	if d := s.peer.doubt; d != nil {
		d.discard()
	}
	s.peer.session = s
	return true
}

// stale reports whether the peer asked for s before it opened old: the last word of s was late, and the peer has forgotten s.
func (s *session) stale(old *session) bool {
	if old.asked || old.served { // the peer has, or had, old open
		return s.born <= old.opened
	}
	return s.born < old.born
}

// inherit takes over what waits for old, which never came to be, and ends it.
func (s *session) inherit(now mono.Time, old *session) {
	s.adopt(now, old)
	old.discard()
}

// adopt takes over the requests that old was to carry and that nobody has answered: they are made again.
func (s *session) adopt(now mono.Time, old *session) {
	old.dropPaths(now)
	for _, c := range s.e.dials {
		if c.s == old {
			c.queued, c.owesAck = false, false
			old.sendq.remove(func(o *conn) bool { return o == c })
			old.conns--
			c.attach(s)
		}
	}
}

// discard ends a session that nothing depends on.
func (s *session) discard() {
	e := s.e
	s.state = sessionDead
	for k := 0; s.conns > 0 && k < len(e.conns); k++ { // those of requests that were given up meanwhile
		if c := e.conns[k]; c.s == s && c.state != connFree {
			c.finish(e.lastRun, StatusPeerDown, "")
		}
	}
	s.endHandshake()
	e.forgetSession(s)
}

func (s *session) endHandshake() {
	if s.hs == nil {
		return
	}
	if s.hs.tls != nil {
		s.hs.tls.Close()
	}
	for _, h := range s.tries {
		h.tls.Close()
	}
	s.hs, s.tries, s.answers = nil, nil, 0
}

// shakeTimeout repeats a flight, or gives the handshake up.
func (s *session) shakeTimeout(now mono.Time) {
	h := s.hs
	switch {
	case now >= h.end && s.state == sessionOpen: // the asking end must have heard our last word by now
		s.endHandshake()
	case now >= h.end && h.dialer && s.peer.session == s: // once more from the start
		s.e.Count.HandshakesFailed++
		s.endHandshake()
		s.renumber()
		s.state, s.cookies, s.initWait = sessionDialing, nil, firstInit
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
func (e *Endpoint) answerInit(now mono.Time, i int, src [6]byte, in *wire.Init, heard bool) {
	pending := 0
	var victim *session // any of them with the same chance: who floods us cannot choose whom he drives out
	for _, s := range e.sessions {
		if s.hs == nil || s.hs.dialer || s.state != sessionShaking {
			continue
		}
		if s.remote == in.Session && s.claimed == NodeID(in.Node) && s.hs.link == i && s.hs.mac == src {
			e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
			return
		}
		if pending++; e.rng.IntN(pending) == 0 {
			victim = s
		}
	}
	if p := e.peerByID[peerID{NodeID(in.Node), in.Shard}]; p != nil && p.session != nil && p.session.hs != nil && p.session.hs.dialer && string(e.cfg.Node[:]) < string(in.Node[:]) {
		return // both ends ask, and ours prevails (clause 4.5)
	}
	if !e.answers.take(now, answerTime, heard, maxAnswers) {
		e.Count.RejectedNoRoom++
		return
	}
	if pending >= maxPending {
		e.Count.RejectedNoRoom++
		victim.discard()
	}
	s := e.newSession(now, &peer{}, e.cfg.Scheduler)
	s.remote, s.epoch, s.claimed = in.Session, in.Epoch, NodeID(in.Node)
	s.shake(now, i, src, in.Session, false)
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
}

// doubt finds out, by a handshake beside the open session, whether the peer still has it (clause 10.8).
func (s *session) doubt(now mono.Time) {
	p := s.peer
	if p.doubt != nil || now < p.doubtAt {
		return
	}
	p.doubtAt = now.Add(doubtEvery)
	n := s.e.newSession(now, p, s.e.cfg.Scheduler)
	n.doubted = s.remote
	n.initWait = firstInit
	p.doubt = n
	n.sendInit(now)
}

// setRemoteLink takes what the peer says of one of its links, unless something newer is known (clause 10.4).
func (s *session) setRemoteLink(l *wire.LinkInfo) {
	j := int(l.Link)
	if r := s.links[j]; r.version > l.Version {
		return
	}
	s.links[j] = remoteLink{mac: l.MAC, mtu: int(l.MTU), joins: l.Joins, slots: int(l.RxSlots), shuffle: l.Shuffle, version: l.Version}
}

// onLink follows a change of one of the peer's links.
func (s *session) onLink(now mono.Time, data []byte) {
	var l wire.LinkInfo
	if s.opener == nil || l.Decode(data) != nil {
		s.e.Count.RejectedMalformed++
		return
	}
	s.setRemoteLink(&l)
	s.refreshPaths(now)
}

// announceLink has the peers told about links that changed since the session's parameters named them all; in plaintext Hello does that.
func (e *Endpoint) announceLink(i int) {
	e.linkVersion++
	e.changed[i] = e.linkVersion
	for _, s := range e.sessions {
		if s.sealer != nil {
			s.news |= 1 << i
		}
	}
}

// changedSince are the links of ours that changed after version told.
func (e *Endpoint) changedSince(told uint32) (m uint64) {
	for i, v := range e.changed {
		if v > told {
			m |= 1 << i
		}
	}
	return m
}

// authorised reports whether a node of that name or identity may be dialled.
func (e *Endpoint) authorised(name string) bool {
	if e.cfg.Secure == nil {
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
	for _, s := range slices.Clone(e.sessions) {
		if _, ok := peers.ByNode(s.peer.id); !ok && s.state != sessionDead && s.peer.id != (NodeID{}) {
			s.fail(now, StatusStranger)
		}
	}
	e.greet(now)
}
