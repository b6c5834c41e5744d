package engine

import (
	"math/bits"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/sched"
)

type sessionState uint8

const (
	sessionDialing sessionState = iota // Init sent, no answer yet
	sessionOpen
	sessionDead
)

// session is the channel to one peer (clause 1.3): paths, packet numbers and what is in flight. Connections live in it.
//
//	dialing --InitAck or the peer's Init--> open --Reset, silence, new Init--> dead
type session struct {
	e         *Endpoint
	peer      *peer
	epoch     uint64 // the peer's
	state     sessionState
	local     uint32 // our number for it, in frames we receive
	remote    uint32 // the peer's number, in frames we send
	born      mono.Time
	lastHeard mono.Time
	pingAt    mono.Time // next keep-alive

	initAt   mono.Time // next Init while dialing
	initWait time.Duration
	initLink int

	tx       [MaxLinks]*txPath // by local link
	rx       [MaxLinks]*rxPath // by the peer's link number, clause 2.2
	txMask   uint64
	rxMask   uint64
	special  uint64 // tx paths with a ping, probe or echo to send
	sched    sched.Scheduler
	adaptive bool // the scheduler's weights are the measured windows
	inFlight int  // eliciting frames, all paths

	sendq    queue[*conn] // connections with something to send
	opacks   queue[*conn] // connections that owe an OpAck
	ackAt    mono.Time    // an explicit acknowledgement is due then, whatever the path policies say
	muteTo   mono.Time    // no path could carry an acknowledgement: do not try before
	heldMem  int
	conns    int
	byRemote map[uint32]*conn

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
	s := &session{e: e, peer: p, sched: sc, adaptive: scheduler == "adaptive", born: now, lastHeard: now, ackAt: mono.Never, initAt: mono.Never, pingAt: mono.Never, byRemote: map[uint32]*conn{}}
	for s.local == 0 || e.byNumber[s.local] != nil {
		s.local = e.rng.Uint32()
	}
	e.byNumber[s.local] = s
	e.sessions = append(e.sessions, s)
	p.session = s
	return s
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
	s.initWait = 50 * time.Millisecond
	s.sendInit(now)
	return s
}

// sendInit sends Init on the next link that reaches the peer (clause 4.3).
func (s *session) sendInit(now mono.Time) {
	e := s.e
	for range MaxLinks {
		i := s.initLink
		s.initLink = (i + 1) % MaxLinks
		if _, r, ok := s.peer.reach(i); ok && e.up&(1<<i) != 0 {
			e.sendSetup(wire.TypeInit, i, r.mac, 0, s)
			break
		}
	}
	s.initAt = now.Add(s.initWait)
	s.initWait = min(2*s.initWait, time.Second)
}

func (e *Endpoint) sendSetup(kind wire.Type, i int, dst [6]byte, number uint32, s *session) {
	b := wire.Init{Hello: e.hello(i, 0), Session: s.local, PeerEpoch: s.epoch}
	e.queueSetup(outFrame{link: i, dst: dst, kind: kind, sess: number, body: b.AppendTo(nil)})
}

// onInit handles clauses 4.3 and 4.5.
func (e *Endpoint) onInit(now mono.Time, i int, src [6]byte, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	p := e.hear(now, i, src, &in.Hello)
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
		s.fail(now, StatusPeerDown)
		s = e.newSession(now, p, e.cfg.Scheduler)
	}
	s.remote, s.epoch = in.Session, in.Epoch
	e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
	s.open(now)
}

// onInitAck handles clause 4.4.
func (e *Endpoint) onInitAck(now mono.Time, i int, src [6]byte, number uint32, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.Count.RejectedMalformed++
		return
	}
	s := e.byNumber[number]
	if s == nil || s.state != sessionDialing || s.peer.id != NodeID(in.Node) {
		return
	}
	if e.hear(now, i, src, &in.Hello) == nil {
		return
	}
	s.remote, s.epoch = in.Session, in.Epoch
	s.open(now)
}

func (s *session) open(now mono.Time) {
	s.state = sessionOpen
	s.lastHeard, s.initAt = now, mono.Never
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.e.Count.SessionsOpened++
	s.refreshPaths(now)
	s.e.emit(Event{Kind: EvPeerUp, Peer: s.peer.id, PeerName: s.peer.name})
	for _, c := range s.e.dials {
		if c.s == s {
			c.requestOpen()
		}
	}
}

// onUnknownSession answers a frame of a session that does not exist (clause 4.6).
func (e *Endpoint) onUnknownSession(now mono.Time, i int, src [6]byte, number uint32) {
	e.Count.UnknownSession++
	if now-e.resetsAt > mono.Time(time.Second) {
		e.resetsAt, e.resets = now, 0
	}
	if e.resets++; e.resets > 100 {
		return
	}
	r := wire.Reset{Session: number, Epoch: e.cfg.Epoch}
	e.queueSetup(outFrame{link: i, dst: src, kind: wire.TypeReset, body: r.AppendTo(nil)})
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
			s.fail(now, StatusPeerDown)
			return
		}
	}
}

func (s *session) hasAddress(mac [6]byte) bool {
	for _, r := range s.peer.remote {
		if r.mac == mac {
			return true
		}
	}
	return false
}

// fail ends the session: every operation of its connections completes with st, nothing of it is accepted any more.
func (s *session) fail(now mono.Time, st Status) {
	e := s.e
	if s.state == sessionDead {
		return
	}
	wasOpen := s.state == sessionOpen
	s.state = sessionDead
	for _, c := range e.conns {
		if c.s == s && c.state != connFree {
			c.finish(now, st, "")
		}
	}
	for m := s.txMask; m != 0; m &= m - 1 {
		s.dropPath(now, bits.TrailingZeros64(m), "session over")
	}
	delete(e.byNumber, s.local)
	if e.lastFound == s {
		e.lastFound = nil
	}
	for i, o := range e.sessions {
		if o == s {
			e.sessions = append(e.sessions[:i], e.sessions[i+1:]...)
			break
		}
	}
	s.peer.session = nil
	if wasOpen {
		e.Count.SessionsFailed++
		e.emit(Event{Kind: EvPeerDown, Peer: s.peer.id, PeerName: s.peer.name, Status: st})
	}
}

// nextTimeout is the earliest of the session's deadlines.
func (s *session) nextTimeout() mono.Time {
	t := s.ackAt
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
		s.sendInit(now)
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
