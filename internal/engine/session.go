package engine

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/peering"
	"multiedge/internal/engine/queue"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/sched"
)

type sessionState uint8

const (
	sessionDialing   sessionState = iota // Init sent, no answer yet
	sessionHandshake                     // the handshake runs, see handshake.go
	sessionOpen
	sessionDead
)

// session is the channel to one peer (clause 1.3): paths, packet numbers and what is in flight. Connections live in it.
//
//	plaintext: dialing --InitAck or the peer's Init--> open --Reset, silence, new Init--> dead
//	sealed:    dialing --InitAcks--> handshake --Done--> open --silence, new session--> dead
//	                 the peer's Init--> handshake --its last word--> open
type session struct {
	e         *Endpoint
	peer      *peer
	state     sessionState
	local     uint32 // our number for it, in frames we receive
	remote    uint32 // the peer's number, in frames we send
	epoch     uint64 // the peer's
	born      mono.Time
	opened    mono.Time
	lastHeard mono.Time
	pingAt    mono.Time // next keep-alive
	served    bool      // a frame of data was authentic
	inside    bool      // with a shard of this node; see self.go

	setup     setup
	trust     trust
	peerLinks peerLinks
	paths     paths
	acks      acks
	members   members

	framesRetransmitted, framesLost uint64
}

// setup is what a session needs until the peer has answered.
type setup struct {
	initAt    mono.Time // next Init while dialing; Never in every other state
	initWait  time.Duration
	initLink  int
	initRound int                // how often Init was sent, to one address or several
	inits     int                // rounds of the links
	initTo    map[int]frame.Addr // where the latest went, by our link
	turns     peering.Ration     // of Inits to addresses that Hello named since
	cookies   map[int][]byte     // the peer's, to be said in Init, by our link: it is made for our address there
	hint      string             // why the peer may not be answering
}

// members are a session's connections, and what all of them together make this node keep.
type members struct {
	fair        fair.Tree[*conn] // connections with something to send
	conns       int              // how many there are
	dials       dialList         // those of our requests that wait for the session or an answer
	unconfirmed int              // those of conns that are in connIncoming or connLast
	byRemote    map[uint32]*conn
	over        []uint32 // the peer's numbers of connections that ended lately, a ring of overMost
	overNext    int

	staged    int // bytes of copies of writes with LocalDone, at most stagedRoom; see local.go
	heldMem   int // bytes that are kept for the peer, at most Config.HeldBytes; see held.go
	guesses   int // operations with wrong keys since guessedAt
	guessedAt mono.Time
}

func (e *Endpoint) newSession(now mono.Time, p *peer, scheduler string) *session {
	sc, err := sched.New(scheduler)
	if err != nil {
		panic("BUG: engine: scheduler " + scheduler + " was not checked: " + err.Error())
	}
	s := &session{
		e: e, peer: p, born: now, lastHeard: now, pingAt: mono.Never,
		setup:   setup{initAt: mono.Never},
		trust:   trust{keys: keys{at: mono.Never, lateAt: mono.Never}},
		paths:   paths{sched: sc},
		acks:    acks{at: mono.Never},
		members: members{byRemote: map[uint32]*conn{}},
	}
	_, s.paths.measured = sc.(sched.Measured)
	s.renumber()
	e.sessions.list = append(e.sessions.list, s)
	return s
}

// renumber gives s a number that no frame still on its way can mean.
func (s *session) renumber() {
	delete(s.e.sessions.byNumber, s.local)
	s.local = 0
	for s.local == 0 || s.e.sessions.byNumber[s.local] != nil || int(s.local%uint32(s.e.cfg.Shards)) != s.e.cfg.Shard {
		s.local = s.e.rng.Uint32()
	}
	s.e.sessions.byNumber[s.local] = s
}

// dialSession returns the session with p, asking for one if there is none.
func (e *Endpoint) dialSession(now mono.Time, p *peer, scheduler string) *session {
	if p.session != nil {
		return p.session
	}
	if scheduler == "" {
		scheduler = e.cfg.Scheduler
	}
	s := e.newSession(now, p, scheduler)
	p.session = s
	s.setup.initWait = firstInit
	s.sendInit(now)
	return s
}

// firstInit is the time before Init is sent again; it doubles up to a second.
const firstInit = 50 * time.Millisecond

// sendInit sends Init on the next link that reaches the peer (clause 4.3).
func (s *session) sendInit(now mono.Time) {
	e := s.e
	// the peer may have opened the session under this number and ended it: its frames must not be taken for those of a
	// new one
	if s.setup.cookies != nil && e.cfg.Secure == nil {
		s.renumber()
		s.setup.cookies = nil
	}
	if s.setup.initRound == 1 {
		e.greet(now) // what was heard may be old
	}
	left := 1 << min(s.setup.initRound, initDoubles)
	s.setup.initRound++
	for range MaxLinks {
		i := s.setup.initLink
		if e.up&(1<<i) != 0 {
			if addr, ok := s.peer.try(now, i, s.setup.inits); ok {
				s.sendInitTo(i, addr)
				left--
			}
		}
		if s.setup.initLink = (i + 1) % MaxLinks; s.setup.initLink == 0 {
			s.setup.inits++
		}
		if left == 0 {
			break
		}
	}
	s.initSent(now)
}

// initDoubles is how often the number of addresses that are asked at once doubles while none answers.
const initDoubles = 3

func (s *session) sendInitTo(i int, addr frame.Addr) {
	if s.setup.initTo == nil {
		s.setup.initTo = map[int]frame.Addr{}
	}
	s.setup.initTo[i] = addr
	s.e.sendSetup(wire.TypeInit, i, addr, uint32(s.peer.shard), s)
}

// elsewhere is called when a Hello names an address of the peer. If the latest Init on that link went to another
// address, Init is sent to this one at once: a stranger that says Hello in the peer's name more often than the peer
// does cannot keep us from it. In plaintext a stranger can do that in other ways.
func (s *session) elsewhere(now mono.Time, i int, addr frame.Addr) {
	if to, asked := s.setup.initTo[i]; s.state != sessionDialing || s.e.cfg.Secure == nil || !asked || to == addr ||
		!s.setup.turns.Take(now, retryTime, peering.RankStranger, maxTurns) {
		return
	}
	s.sendInitTo(i, addr)
}

func (s *session) initSent(now mono.Time) {
	s.setup.initAt = now.Add(s.setup.initWait)
	s.setup.initWait = min(2*s.setup.initWait, time.Second)
}

func (e *Endpoint) sendSetup(kind wire.Type, i int, dst frame.Addr, number uint32, s *session) {
	b := wire.Init{Hello: e.hello(i, 0), Session: s.local, PeerEpoch: s.epoch}
	if kind == wire.TypeInit {
		b.Cookie = s.setup.cookies[i]
	}
	e.queueSetup(outFrame{link: i, dst: dst, kind: kind, sess: number, body: b.AppendTo(nil)})
}

// onInit handles clauses 4.3 and 4.5.
func (e *Endpoint) onInit(now mono.Time, i int, src frame.Addr, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	if NodeID(in.Node) == e.cfg.Node {
		return
	}
	if !e.shakes.cookies.Valid(now, src, &in, e.wouldEnd(&in)) {
		e.sendRetry(now, i, src, &in)
		return
	}
	sealed := in.Flags&wire.HelloSecure != 0
	if sealed != (e.cfg.Secure != nil) {
		e.Count.RejectedAuth++
		return
	}
	r := e.rankOf(src, &in)
	p := e.hear(now, i, src, &in.Hello)
	if sealed {
		e.answerInit(now, i, src, &in, r)
		return
	}
	if p == nil {
		return
	}
	s := p.session
	switch {
	case s == nil:
		s = e.newSession(now, p, e.cfg.Scheduler)
	case s.state == sessionDialing:
		if string(e.cfg.Node[:]) < string(in.Node[:]) {
			return
		}
		s.renumber() // the peer may have answered in an earlier life: frames of it are not for this session
	case s.remote == in.Session && s.epoch == in.Epoch:
		e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
		return
	default:
		n := e.newSession(now, p, e.cfg.Scheduler)
		if s.epoch == in.Epoch && !s.served { // it never had s: our InitAck was late
			n.inherit(now, s)
		} else {
			n.adopt(now, s)
			s.fail(now, StatusPeerDown)
		}
		s = n
	}
	p.session = s
	s.remote, s.epoch = in.Session, in.Epoch
	s.peerLinks.seen[i] |= 1 << in.Link
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
	s.open(now)
}

// Bounds of what strangers can cause. In each retryTime at most maxRetries frames are sent to addresses that an
// attacker made up, and at most maxTurns because of Hellos to a session that is being set up; in each answerTime at
// most maxAnswers handshakes are computed. Peers that said Hello from the address they ask from have a share of their
// own.
const (
	maxRetries = 100
	maxTurns   = 16
	retryTime  = 20 * time.Millisecond
	maxAnswers = maxPending
	answerTime = 100 * time.Millisecond

	maxPeerAnswers = 16 // of rankPeer
)

// wouldEnd is the number of the open session that an Init in plaintext would end: its cookie must have been made for
// that, or a late copy of an Init, of an older number or epoch, would end what came after it.
func (e *Endpoint) wouldEnd(in *wire.Init) uint32 {
	if p := e.peers.byID[peerID{NodeID(in.Node), in.Shard}]; e.cfg.Secure == nil && p != nil && p.session != nil &&
		p.session.state == sessionOpen {
		return p.session.local
	}
	return 0
}

// sendRetry asks the sender of an Init to show that it receives (clause 4.3). Nothing is kept, and less is sent than
// came.
func (e *Endpoint) sendRetry(now mono.Time, i int, src frame.Addr, in *wire.Init) {
	e.Count.RejectedCookie++
	if !e.shakes.retries.Take(now, retryTime, e.rankOf(src, in), maxRetries) {
		return
	}
	cookie := e.shakes.cookies.Make(now/mono.Time(peering.CookieTime), src, in, e.wouldEnd(in))
	e.queueSetup(outFrame{link: i, dst: src, kind: wire.TypeRetry, sess: in.Session, body: append([]byte(nil),
		cookie...)})
}

// onRetry sends Init again with the cookie that the peer asks for.
func (e *Endpoint) onRetry(now mono.Time, i int, src frame.Addr, number uint32, body []byte) {
	var r wire.Retry
	if r.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	s := e.sessions.byNumber[number]
	if s == nil || !s.asking() || string(s.setup.cookies[i]) == string(r.Cookie) {
		return
	}
	if s.setup.cookies != nil && e.cfg.Secure == nil {
		return // sendInit starts over when no answer comes
	}
	if s.setup.cookies == nil {
		s.setup.cookies = map[int][]byte{}
		if e.cfg.Secure != nil { // somebody is there: what is lost from now on is said again at the first pace
			s.setup.initWait, s.setup.initAt = firstInit, min(s.setup.initAt, now.Add(firstInit))
		}
	}
	s.setup.cookies[i] = append([]byte(nil), r.Cookie...)
	e.sendSetup(wire.TypeInit, i, src, uint32(s.peer.shard), s)
	if e.cfg.Secure == nil { // sealed: forged Retries must not put off the next Init for ever
		s.initSent(now)
	}
}

// onInitAck handles clause 4.4.
func (e *Endpoint) onInitAck(now mono.Time, i int, src frame.Addr, number uint32, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	s := e.sessions.byNumber[number]
	if s == nil || !s.asking() || s.peer.id != NodeID(in.Node) || s.peer.shard != in.Shard {
		return
	}
	if e.hear(now, i, src, &in.Hello) == nil {
		return
	}
	if e.cfg.Secure != nil {
		s.answered(now, i, src, in.Session)
		return
	}
	s.remote, s.epoch = in.Session, in.Epoch
	s.peerLinks.seen[i] |= 1 << in.Link
	s.open(now)
}

func (s *session) open(now mono.Time) {
	s.state, s.opened = sessionOpen, now
	s.lastHeard, s.setup.initAt = now, mono.Never
	s.peerLinks.news = 0
	if s.trust.sealer != nil {
		s.peerLinks.news = s.e.changedSince(s.peerLinks.told)
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.e.Count.SessionsOpened++
	s.peer.past.Opened(now, s.epoch)
	s.refreshPaths(now)
	s.e.answeredInit(s)
	if !s.peer.up {
		s.peer.up = true
		s.e.emit(Event{Kind: EvPeerUp, Peer: s.peer.id, PeerName: s.peer.name})
	}
	for c := s.members.dials.head; c != nil; c = c.dial.place.next {
		c.requestOpen()
	}
}

// onUnknownSession answers a frame of a session that does not exist (clause 4.6).
func (e *Endpoint) onUnknownSession(now mono.Time, i int, src frame.Addr, number uint32) {
	e.Count.UnknownSession++
	if int(number%uint32(e.cfg.Shards)) != e.cfg.Shard {
		return // another shard's: a link was just opened or lost, and what steers frames is incomplete
	}
	if now-e.hellos.resetsAt > mono.Time(time.Second) {
		e.hellos.resetsAt, e.hellos.resets = now, 0
	}
	if e.hellos.resets++; e.hellos.resets > 100 {
		return
	}
	r := wire.Reset{Session: number, Epoch: e.cfg.Epoch}
	for t := range e.peers.shards { // nothing in the frame says which shard sent it
		e.queueSetup(outFrame{link: i, dst: src, kind: wire.TypeReset, sess: uint32(t), body: r.AppendTo(nil)})
	}
}

// onReset handles clause 4.6.
func (e *Endpoint) onReset(now mono.Time, i int, src frame.Addr, body []byte) {
	var r wire.Reset
	if r.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	for _, s := range e.sessions.list {
		if s.state == sessionOpen && s.remote == r.Session && s.hasAddress(src) && s.comesBy(i) {
			if s.trust.opener != nil {
				s.doubt(now)
			} else {
				s.fail(now, StatusPeerDown)
			}
			return
		}
	}
}

// hasAddress reports whether a link of the peer has that address, or had it, or is said to by Hello: in another life
// the peer may have links again that were gone, and others. Who forges that Hello can forge Reset from any address.
func (s *session) hasAddress(addr frame.Addr) bool {
	for m := s.peerLinks.known; m != 0; m &= m - 1 {
		if s.peerLinks.links[bits.TrailingZeros64(m)].addr == addr {
			return true
		}
	}
	for m := s.peer.named; m != 0; m &= m - 1 {
		if s.peer.remote[uint8(bits.TrailingZeros64(m))].addr == addr {
			return true
		}
	}
	return false
}

// overMost is how many ended connections a session remembers: a late copy of their Open must not begin them anew
// (clause 5.1).
const overMost = 1024

// ended notes the peer's number of a connection that is over.
func (s *session) ended(number uint32) {
	if len(s.members.over) < overMost {
		s.members.over = append(s.members.over, number)
		return
	}
	s.members.over[s.members.overNext] = number
	s.members.overNext = (s.members.overNext + 1) % overMost
}

// fail ends the session: every operation of its connections completes with st, nothing of it is accepted any more.
func (s *session) fail(now mono.Time, st Status) {
	e := s.e
	if s.state == sessionDead {
		return
	}
	wasOpen := s.state == sessionOpen
	s.state = sessionDead
	s.acks.opacks = queue.Queue[*conn]{} // or each of very many connections would look for itself there
	for _, c := range e.conns.byIndex {
		if c.s == s && c.state != connFree {
			c.finish(now, st, "")
		}
	}
	s.dropPaths(now)
	if d := s.peer.doubt; d != nil && d != s && s.peer.session == s {
		d.discard()
	}
	s.endHandshake()
	e.forgetSession(s)
	if wasOpen {
		e.Count.SessionsFailed++
		s.peer.up = false
		e.emit(Event{Kind: EvPeerDown, Peer: s.peer.id, PeerName: s.peer.name, Status: st})
	}
}

func (s *session) dropPaths(now mono.Time) {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		s.dropPath(now, bits.TrailingZeros64(m), "session over")
	}
}

// forgetSession takes s out of every table.
func (e *Endpoint) forgetSession(s *session) {
	delete(e.sessions.byNumber, s.local)
	s.eraseKeys()
	if e.builder.s == s {
		e.builder = builder{}
	}
	if e.sessions.lastFound == s {
		e.sessions.lastFound = nil
	}
	for i, o := range e.sessions.list {
		if o == s {
			e.sessions.list = slices.Delete(e.sessions.list, i, i+1)
			break
		}
	}
	if s.peer.session == s {
		s.peer.session = nil
	}
	if s.peer.doubt == s {
		s.peer.doubt = nil
	}
}

// nextTimeout is the earliest of the session's deadlines.
func (s *session) nextTimeout() mono.Time {
	t := min(s.acks.at, s.trust.keys.at, s.trust.keys.lateAt)
	if s.trust.hs != nil {
		t = min(t, s.handshakeDeadline())
	}
	for m := s.paths.rxMask; m != 0; m &= m - 1 {
		t = min(t, s.paths.rx[bits.TrailingZeros64(m)].ackAt(s))
	}
	t = min(max(t, s.acks.muteTo), s.setup.initAt, s.pingAt)
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		t = min(t, s.paths.tx[bits.TrailingZeros64(m)].nextTimeout())
	}
	return t
}

// handleTimeout runs what is due. Acknowledgements are not sent here: PollTransmit finds them due.
func (s *session) handleTimeout(now mono.Time) {
	if now >= s.setup.initAt {
		if s.members.conns == 0 && now.Sub(s.born) > handshakeTime { // nobody waits for it any more
			s.discard()
			return
		}
		s.sendInit(now)
	}
	if now >= s.handshakeDeadline() {
		if s.handshakeTimeouts(now); s.state != sessionOpen {
			return
		}
	}
	if now >= min(s.trust.keys.at, s.trust.keys.lateAt) {
		if s.keysTimeout(now); s.state != sessionOpen {
			return
		}
	}
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		s.paths.tx[bits.TrailingZeros64(m)].handleTimeout(now)
	}
	if now < s.pingAt {
		return
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.forgetUnanswered(now)
	if now.Sub(s.lastHeard) >= s.e.cfg.DeadTime {
		s.fail(now, StatusPeerDown)
		return
	}
	all := now.Sub(s.lastHeard) >= s.e.cfg.KeepAlive
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		// The others may hide that the cable of one was moved: the peer's frames on them keep the session alive (clause
		// 4.7).
		if p := s.paths.tx[bits.TrailingZeros64(m)]; all || p.state == PathGood && s.paths.heardVia&(1<<p.link) == 0 {
			p.wantPing(true)
		}
	}
	s.paths.heardVia = 0
}
