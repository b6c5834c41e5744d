package engine

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/sched"
)

type sessionState uint8

const (
	sessionDialing sessionState = iota // Init sent, no answer yet
	sessionShaking                     // the handshake runs, see handshake.go
	sessionOpen
	sessionDead
)

// session is the channel to one peer (clause 1.3): paths, packet numbers and what is in flight. Connections live in it.
//
//	plaintext: dialing --InitAck or the peer's Init--> open --Reset, silence, new Init--> dead
//	sealed:    dialing --InitAcks--> shaking --Done--> open --silence, new session--> dead
//	                 the peer's Init--> shaking --its last word--> open
type session struct {
	e         *Endpoint
	peer      *peer
	epoch     uint64 // the peer's
	state     sessionState
	local     uint32 // our number for it, in frames we receive
	remote    uint32 // the peer's number, in frames we send
	born      mono.Time
	opened    mono.Time
	asked     bool // by us, of a sealed session that is open
	lastHeard mono.Time
	pingAt    mono.Time // next keep-alive

	initAt   mono.Time // next Init while dialing
	initWait time.Duration
	initLink int
	inits    int             // sent so far
	initTo   map[int][6]byte // where the latest went, by our link
	turns    ration          // of Inits to addresses that Hello named since
	cookies  map[int][]byte  // the peer's, to be said in Init, by our link: it is made for our address there
	hint     string          // why the peer may not be answering

	hs      *handshake     // nil in plaintext, and when it is over and forgotten; of several, the one that something happens to
	tries   []*handshake   // at the asking end: one with each address that answered, until the peer has proved who it is
	answers int            // of different addresses since the handshake began
	sealer  *secure.Sealer // nil in plaintext and until the session opens
	opener  *secure.Opener
	claimed NodeID // by an Init, before it is proved
	doubted uint32 // the peer's number of the session that this one asks about
	served  bool   // a frame of data was authentic

	links [MaxLinks]remoteLink // of the peer, as announced in a sealed session
	seen  [MaxLinks]uint64     // per local link: the peer's links whose sealed frames arrived there
	news  uint64               // links of ours that the peer must be told about
	told  uint32               // the version of our links that our parameters in the handshake had

	tx       [MaxLinks]*txPath // by local link
	rx       [MaxLinks]*rxPath // by the peer's link number, clause 2.2
	txMask   uint64
	rxMask   uint64
	special  uint64 // tx paths with a ping, probe or echo to send
	sched    sched.Scheduler
	adaptive bool // the scheduler's weights are the measured windows
	inFlight int  // eliciting frames, all paths

	sendq     queue[*conn] // connections with something to send
	opacks    queue[*conn] // connections that owe an OpAck
	ackAt     mono.Time    // an explicit acknowledgement is due then, whatever the path policies say
	pushes    pushes       // how long the peer's frames with PUSH wait for theirs
	muteTo    mono.Time    // no path could carry an acknowledgement: do not try before, or before a link has room again
	heardOn   int          // link on which the latest eliciting frame arrived
	pinged    bool         // the peer asks: our acknowledgements may be lost on their path
	heldMem   int          // bytes of segments behind fences, and of the spans that are charged
	guesses   int          // operations with wrong keys since guessedAt
	guessedAt mono.Time
	conns     int
	limbo     int // those of them that are in connIncoming or connLast
	byRemote  map[uint32]*conn
	over      []uint32 // the peer's numbers of connections that ended lately, a ring of overMost
	overNext  int

	framesRetransmitted, framesLost uint64
}

// queue is a FIFO that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }
func (q *queue[T]) push(v T) { q.items = append(q.items, v) }
func (q *queue[T]) front() *T {
	if q.head == len(q.items) {
		return nil
	}
	return &q.items[q.head]
}

func (q *queue[T]) pop() {
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head >= 64 && q.head*2 >= len(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
}

// remove deletes the elements that drop says.
func (q *queue[T]) remove(drop func(T) bool) {
	kept := q.items[:0]
	for _, v := range q.items[q.head:] {
		if !drop(v) {
			kept = append(kept, v)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}

func (e *Endpoint) newSession(now mono.Time, p *peer, scheduler string) *session {
	sc, err := sched.New(scheduler)
	if err != nil {
		panic("BUG: engine: scheduler " + scheduler + " was not checked: " + err.Error())
	}
	s := &session{
		e: e, peer: p, sched: sc, adaptive: scheduler == "adaptive", born: now, lastHeard: now, ackAt: mono.Never, initAt: mono.Never, pingAt: mono.Never, byRemote: map[uint32]*conn{},
	}
	s.renumber()
	e.sessions = append(e.sessions, s)
	return s
}

// renumber gives s a number that no frame still on its way can mean.
func (s *session) renumber() {
	delete(s.e.byNumber, s.local)
	s.local = 0
	for s.local == 0 || s.e.byNumber[s.local] != nil || int(s.local%uint32(s.e.cfg.Shards)) != s.e.cfg.Shard {
		s.local = s.e.rng.Uint32()
	}
	s.e.byNumber[s.local] = s
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
	s.initWait = firstInit
	s.sendInit(now)
	return s
}

// firstInit is the time before Init is sent again; it doubles up to a second.
const firstInit = 50 * time.Millisecond

// sendInit sends Init on the next link that reaches the peer (clause 4.3).
func (s *session) sendInit(now mono.Time) {
	e := s.e
	if s.cookies != nil && e.cfg.Secure == nil { // the peer may have opened the session under this number and ended it: its frames must not be taken for those of a new one
		s.renumber()
		s.cookies = nil
	}
	for range MaxLinks {
		i := s.initLink
		s.initLink = (i + 1) % MaxLinks
		if r, ok := s.peer.try(i, s.inits); ok && e.up&(1<<i) != 0 {
			s.inits++
			s.sendInitTo(i, r.mac)
			break
		}
	}
	s.initSent(now)
}

func (s *session) sendInitTo(i int, mac [6]byte) {
	if s.initTo == nil {
		s.initTo = map[int][6]byte{}
	}
	s.initTo[i] = mac
	s.e.sendSetup(wire.TypeInit, i, mac, uint32(s.peer.shard), s)
}

// elsewhere is called when a Hello names an address of the peer. If the latest Init on that link went to another one, it is asked there at once: who says Hello in
// the peer's name, more often than the peer does, does not keep us from it. In plaintext he could anyway.
func (s *session) elsewhere(now mono.Time, i int, mac [6]byte) {
	if to, asked := s.initTo[i]; s.state != sessionDialing || s.e.cfg.Secure == nil || !asked || to == mac || !s.turns.take(now, retryTime, false, maxTurns) {
		return
	}
	s.sendInitTo(i, mac)
}

func (s *session) initSent(now mono.Time) {
	s.initAt = now.Add(s.initWait)
	s.initWait = min(2*s.initWait, time.Second)
}

func (e *Endpoint) sendSetup(kind wire.Type, i int, dst [6]byte, number uint32, s *session) {
	b := wire.Init{Hello: e.hello(i, 0), Session: s.local, PeerEpoch: s.epoch}
	if kind == wire.TypeInit {
		b.Cookie = s.cookies[i]
	}
	e.queueSetup(outFrame{link: i, dst: dst, kind: kind, sess: number, body: b.AppendTo(nil)})
}

// onInit handles clauses 4.3 and 4.5.
func (e *Endpoint) onInit(now mono.Time, i int, src [6]byte, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	if NodeID(in.Node) == e.cfg.Node {
		return
	}
	if !e.cookies.valid(now, src, &in, e.wouldEnd(&in)) {
		e.sendRetry(now, i, src, &in)
		return
	}
	sealed := in.Flags&wire.HelloSecure != 0
	if sealed != (e.cfg.Secure != nil) {
		e.Count.RejectedAuth++
		return
	}
	heard := e.heardAt(src, &in)
	p := e.hear(now, i, src, &in.Hello)
	if sealed {
		e.answerInit(now, i, src, &in, heard)
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
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
	s.open(now)
}

// maxRetries bounds what an attacker can have us send to addresses it makes up, in frames of each retryTime, and maxTurns what Hello can have a session that asks send;
// maxAnswers what one who receives there can have us compute, in handshakes of each answerTime. Peers that say Hello from the address they ask from have a share of
// their own.
const (
	maxRetries = 100
	maxTurns   = 16
	retryTime  = 20 * time.Millisecond
	maxAnswers = maxPending
	answerTime = 100 * time.Millisecond
)

// ration counts what was done lately, for addresses that were not heard and those that were.
type ration struct {
	from mono.Time
	used [2]int
}

// take reports whether less than most was done in the present span.
func (r *ration) take(now mono.Time, span time.Duration, heard bool, most int) bool {
	if now-r.from > mono.Time(span) {
		*r = ration{from: now}
	}
	share := &r.used[0]
	if heard {
		share = &r.used[1]
	}
	*share++
	return *share <= most
}

// heardAt reports whether the node that an Init speaks of said Hello from its address.
func (e *Endpoint) heardAt(src [6]byte, in *wire.Init) bool {
	p := e.peerByID[peerID{NodeID(in.Node), in.Shard}]
	return p != nil && p.remote[in.Link].mac == src
}

// wouldEnd is the number of the open session that an Init in plaintext would end: its cookie must have been made for that, or a late copy of an Init, of an older
// number or epoch, would end what came after it.
func (e *Endpoint) wouldEnd(in *wire.Init) uint32 {
	if p := e.peerByID[peerID{NodeID(in.Node), in.Shard}]; e.cfg.Secure == nil && p != nil && p.session != nil && p.session.state == sessionOpen {
		return p.session.local
	}
	return 0
}

// sendRetry asks the sender of an Init to show that it receives (clause 4.3). Nothing is kept, and less is sent than came.
func (e *Endpoint) sendRetry(now mono.Time, i int, src [6]byte, in *wire.Init) {
	e.Count.RejectedCookie++
	if !e.retries.take(now, retryTime, e.heardAt(src, in), maxRetries) {
		return
	}
	cookie := e.cookies.make(now/mono.Time(cookieTime), src, in, e.wouldEnd(in))
	e.queueSetup(outFrame{link: i, dst: src, kind: wire.TypeRetry, sess: in.Session, body: append([]byte(nil), cookie...)})
}

// onRetry says Init again as the peer wants it.
func (e *Endpoint) onRetry(now mono.Time, i int, src [6]byte, number uint32, body []byte) {
	var r wire.Retry
	if r.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	s := e.byNumber[number]
	if s == nil || !s.asking() || string(s.cookies[i]) == string(r.Cookie) {
		return
	}
	if s.cookies != nil && e.cfg.Secure == nil {
		return // sendInit starts over when no answer comes
	}
	if s.cookies == nil {
		s.cookies = map[int][]byte{}
		if e.cfg.Secure != nil { // somebody is there: what is lost from now on is said again at the first pace
			s.initWait, s.initAt = firstInit, min(s.initAt, now.Add(firstInit))
		}
	}
	s.cookies[i] = append([]byte(nil), r.Cookie...)
	e.sendSetup(wire.TypeInit, i, src, uint32(s.peer.shard), s)
	if e.cfg.Secure == nil { // else who forges Retry could put off the next Init for ever
		s.initSent(now)
	}
}

// onInitAck handles clause 4.4.
func (e *Endpoint) onInitAck(now mono.Time, i int, src [6]byte, number uint32, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	s := e.byNumber[number]
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
	s.open(now)
}

func (s *session) open(now mono.Time) {
	s.state, s.opened = sessionOpen, now
	s.lastHeard, s.initAt = now, mono.Never
	s.news = 0
	if s.sealer != nil {
		s.news = s.e.changedSince(s.told)
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.e.Count.SessionsOpened++
	s.refreshPaths(now)
	if !s.peer.up {
		s.peer.up = true
		s.e.emit(Event{Kind: EvPeerUp, Peer: s.peer.id, PeerName: s.peer.name})
	}
	for _, c := range s.e.dials {
		if c.s == s {
			c.requestOpen()
		}
	}
}

// onUnknownSession answers a frame of a session that does not exist (clause 4.6).
func (e *Endpoint) onUnknownSession(now mono.Time, i int, src [6]byte, number uint32) {
	e.Count.UnknownSession++
	if int(number%uint32(e.cfg.Shards)) != e.cfg.Shard {
		return // another shard's: a link was just opened or lost, and what steers frames is incomplete
	}
	if now-e.resetsAt > mono.Time(time.Second) {
		e.resetsAt, e.resets = now, 0
	}
	if e.resets++; e.resets > 100 {
		return
	}
	r := wire.Reset{Session: number, Epoch: e.cfg.Epoch}
	for t := range e.shards { // nothing in the frame says which shard sent it
		e.queueSetup(outFrame{link: i, dst: src, kind: wire.TypeReset, sess: uint32(t), body: r.AppendTo(nil)})
	}
}

// onReset handles clause 4.6.
func (e *Endpoint) onReset(now mono.Time, src [6]byte, body []byte) {
	var r wire.Reset
	if r.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	for _, s := range e.sessions {
		if s.state == sessionOpen && s.remote == r.Session && s.hasAddress(src) {
			if s.opener != nil {
				s.doubt(now)
			} else {
				s.fail(now, StatusPeerDown)
			}
			return
		}
	}
}

func (s *session) hasAddress(mac [6]byte) bool {
	for m := s.txMask; m != 0; m &= m - 1 {
		if [6]byte(s.tx[bits.TrailingZeros64(m)].header[:6]) == mac {
			return true
		}
	}
	return false
}

// overMost is how many ended connections a session remembers, lest a late copy of their Open begins them anew (clause 5.1).
const overMost = 1024

// ended notes the peer's number of a connection that is over.
func (s *session) ended(number uint32) {
	if len(s.over) < overMost {
		s.over = append(s.over, number)
		return
	}
	s.over[s.overNext] = number
	s.overNext = (s.overNext + 1) % overMost
}

// fail ends the session: every operation of its connections completes with st, nothing of it is accepted any more.
func (s *session) fail(now mono.Time, st Status) {
	e := s.e
	if s.state == sessionDead {
		return
	}
	wasOpen := s.state == sessionOpen
	s.state = sessionDead
	s.sendq, s.opacks = queue[*conn]{}, queue[*conn]{} // or each of very many connections would look for itself there
	for _, c := range e.conns {
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
	for m := s.txMask; m != 0; m &= m - 1 {
		s.dropPath(now, bits.TrailingZeros64(m), "session over")
	}
}

// forgetSession takes s out of every table.
func (e *Endpoint) forgetSession(s *session) {
	delete(e.byNumber, s.local)
	if s.opener != nil {
		e.showOpeners()
	}
	if e.builder.s == s {
		e.builder = builder{}
	}
	if e.lastFound == s {
		e.lastFound = nil
	}
	for i, o := range e.sessions {
		if o == s {
			e.sessions = slices.Delete(e.sessions, i, i+1)
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
	t := min(s.ackAt, s.shakeDeadline())
	for m := s.rxMask; m != 0; m &= m - 1 {
		t = min(t, s.rx[bits.TrailingZeros64(m)].ackAt(s))
	}
	t = min(max(t, s.muteTo), s.initAt, s.pingAt)
	for m := s.txMask; m != 0; m &= m - 1 {
		t = min(t, s.tx[bits.TrailingZeros64(m)].nextTimeout())
	}
	return t
}

// handleTimeout runs what is due. Acknowledgements are not sent here: PollTransmit finds them due.
func (s *session) handleTimeout(now mono.Time) {
	if now >= s.initAt {
		if s.conns == 0 && now.Sub(s.born) > handshakeTime { // nobody waits for it any more
			s.discard()
			return
		}
		s.sendInit(now)
	}
	if now >= s.shakeDeadline() {
		if s.shakeTimeouts(now); s.state != sessionOpen {
			return
		}
	}
	for m := s.txMask; m != 0; m &= m - 1 {
		s.tx[bits.TrailingZeros64(m)].handleTimeout(now)
	}
	if now < s.pingAt {
		return
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	if now.Sub(s.lastHeard) >= s.e.cfg.DeadTime {
		s.fail(now, StatusPeerDown)
		return
	}
	if now.Sub(s.lastHeard) >= s.e.cfg.KeepAlive {
		for m := s.txMask; m != 0; m &= m - 1 {
			s.tx[bits.TrailingZeros64(m)].wantPing(true)
		}
	}
}
