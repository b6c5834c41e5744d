package peering

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/sched"
)

type sessionState uint8

const (
	sessionDialing   sessionState = iota // Init sent, no answer yet
	sessionHandshake                     // the handshake runs, see handshake.go
	SessionOpen
	sessionDead
)

// Session is the channel to one peer (clause 1.3): paths, packet numbers and what is in flight. Connections live in it.
//
//	plaintext: dialing --InitAck or the peer's Init--> open --Reset, silence, new Init--> dead
//	sealed:    dialing --InitAcks--> handshake --Done--> open --silence, new session--> dead
//	                 the peer's Init--> handshake --its last word--> open
type Session struct {
	e         *Endpoint
	Peer      *peer
	State     sessionState
	local     uint32 // our number for it, in frames we receive
	Remote    uint32 // the peer's number, in frames we send
	epoch     uint64 // the peer's
	born      mono.Time
	opened    mono.Time
	LastHeard mono.Time
	pingAt    mono.Time // next keep-alive
	Served    bool      // a frame of data was authentic
	Inside    bool      // with a shard of this node; see self.go

	setup     setup
	Trust     trust
	PeerLinks peerLinks
	Paths     path.Set
	Acks      acks
	Ops       op.Session

	FramesRetransmitted uint64
}

// setup is what a session needs until the peer has answered.
type setup struct {
	initAt    mono.Time // next Init while dialing; Never in every other state
	initWait  time.Duration
	initLink  int
	initRound int                // how often Init was sent, to one address or several
	inits     int                // rounds of the links
	initTo    map[int]frame.Addr // where the latest went, by our link
	turns     Ration             // of Inits to addresses that Hello named since
	cookies   map[int][]byte     // the peer's, to be said in Init, by our link: it is made for our address there
	hint      string             // why the peer may not be answering
}

func (e *Endpoint) newSession(now mono.Time, p *peer, scheduler string) *Session {
	sc, err := sched.New(scheduler)
	if err != nil {
		panic("BUG: engine: scheduler " + scheduler + " was not checked: " + err.Error())
	}
	s := &Session{
		e: e, Peer: p, born: now, LastHeard: now, pingAt: mono.Never,
		setup: setup{initAt: mono.Never},
		Trust: trust{Keys: keys{at: mono.Never, lateAt: mono.Never}},
		Ops:   op.NewSession(&p.who),
	}
	s.Paths.Init(e.net, &p.Links, sc, path.Owner{Acked: s.onAcked, Lost: s.onLost, Changed: s.pathChanged})
	s.renumber()
	e.Sessions.List = append(e.Sessions.List, s)
	e.Touch()
	return s
}

// renumber gives s a number that no frame still on its way can mean.
func (s *Session) renumber() {
	delete(s.e.Sessions.ByNumber, s.local)
	s.local = 0
	for s.local == 0 || s.e.Sessions.ByNumber[s.local] != nil || int(s.local%uint32(s.e.cfg.Shards)) != s.e.cfg.Shard {
		s.local = s.e.rng.Uint32()
	}
	s.e.Sessions.ByNumber[s.local], s.Ops.Number = s, s.local
}

// dialSession returns the session with p, asking for one if there is none.
func (e *Endpoint) dialSession(now mono.Time, p *peer, scheduler string) *Session {
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
func (s *Session) sendInit(now mono.Time) {
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
	for range path.MaxLinks {
		i := s.setup.initLink
		if e.net.Up&(1<<i) != 0 {
			if addr, ok := e.try(s.Peer, now, i, s.setup.inits); ok {
				s.sendInitTo(i, addr)
				left--
			}
		}
		if s.setup.initLink = (i + 1) % path.MaxLinks; s.setup.initLink == 0 {
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

func (s *Session) sendInitTo(i int, addr frame.Addr) {
	if s.setup.initTo == nil {
		s.setup.initTo = map[int]frame.Addr{}
	}
	s.setup.initTo[i] = addr
	s.e.sendSetup(wire.TypeInit, i, addr, uint32(s.Peer.who.Shard), s)
}

// elsewhere is called when a Hello names an address of the peer. If the latest Init on that link went to another
// address, Init is sent to this one at once: a stranger that says Hello in the peer's name more often than the peer
// does cannot keep us from it. In plaintext a stranger can do that in other ways.
func (s *Session) elsewhere(now mono.Time, i int, addr frame.Addr) {
	if to, asked := s.setup.initTo[i]; s.State != sessionDialing || s.e.cfg.Secure == nil || !asked || to == addr ||
		!s.setup.turns.Take(now, retryTime, RankStranger, maxTurns) {
		return
	}
	s.sendInitTo(i, addr)
}

func (s *Session) initSent(now mono.Time) {
	s.setup.initAt = now.Add(s.setup.initWait)
	s.setup.initWait = min(2*s.setup.initWait, time.Second)
}

func (e *Endpoint) sendSetup(kind wire.Type, i int, dst frame.Addr, number uint32, s *Session) {
	b := wire.Init{Hello: e.hello(i, 0), Session: s.local, PeerEpoch: s.epoch}
	if kind == wire.TypeInit {
		b.Cookie = s.setup.cookies[i]
	}
	body := b.AppendTo(nil)
	if kind == wire.TypeInit && e.isIP(i) {
		body = e.signInit(body, s.Peer.who.ID)
	}
	e.queueSetup(Setup{Link: i, Dst: dst, Kind: kind, Sess: number, Body: body})
}

// OnInit handles clauses 4.3 and 4.5.
func (e *Endpoint) OnInit(now mono.Time, i int, src frame.Addr, body []byte) {
	if e.isIP(i) {
		var ok bool
		if body, ok = e.knowsUs(body); !ok {
			e.count.Reject.RejectedAuth++
			return // silence: a stranger learns nothing (clause 21.3)
		}
	}
	var in wire.Init
	if in.Decode(body) != nil {
		e.count.Reject.RejectedMalformed++
		return
	}
	if op.NodeID(in.Node) == e.cfg.Node || !e.mayBeAt(op.NodeID(in.Node), &src) {
		return
	}
	if !e.shakes.cookies.Valid(now, src, &in, e.wouldEnd(&in)) {
		e.sendRetry(now, i, src, &in)
		return
	}
	sealed := in.Flags&wire.HelloSecure != 0
	if sealed != (e.cfg.Secure != nil) {
		e.count.Reject.RejectedAuth++
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
	case s.State == sessionDialing:
		if string(e.cfg.Node[:]) < string(in.Node[:]) {
			return
		}
		s.renumber() // the peer may have answered in an earlier life: frames of it are not for this session
	case s.Remote == in.Session && s.epoch == in.Epoch:
		e.sendSetup(wire.TypeInitAck, i, src, in.Session, s)
		return
	default:
		n := e.newSession(now, p, e.cfg.Scheduler)
		if s.epoch == in.Epoch && !s.Served { // it never had s: our InitAck was late
			n.inherit(now, s)
		} else {
			n.adopt(now, s)
			s.fail(now, abi.StatusPeerDown)
		}
		s = n
	}
	p.session = s
	s.Remote, s.epoch = in.Session, in.Epoch
	s.Paths.Seen[i] |= 1 << in.Link
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

	maxPeerAnswers = 16 // of RankPeer
)

// wouldEnd is the number of the open session that an Init in plaintext would end: its cookie must have been made for
// that, or a late copy of an Init, of an older number or epoch, would end what came after it.
func (e *Endpoint) wouldEnd(in *wire.Init) uint32 {
	if p := e.peers.byID[peerID{op.NodeID(in.Node), in.Shard}]; e.cfg.Secure == nil && p != nil && p.session != nil &&
		p.session.State == SessionOpen {
		return p.session.local
	}
	return 0
}

// sendRetry asks the sender of an Init to show that it receives (clause 4.3). Nothing is kept, and less is sent than
// came.
func (e *Endpoint) sendRetry(now mono.Time, i int, src frame.Addr, in *wire.Init) {
	e.count.Reject.RejectedCookie++
	if !e.shakes.retries.Take(now, retryTime, e.rankOf(src, in), maxRetries) {
		return
	}
	cookie := e.shakes.cookies.Make(now/mono.Time(CookieTime), src, in, e.wouldEnd(in))
	e.queueSetup(Setup{Link: i, Dst: src, Kind: wire.TypeRetry, Sess: in.Session, Body: append([]byte(nil),
		cookie...)})
}

// OnRetry sends Init again with the cookie that the peer asks for.
func (e *Endpoint) OnRetry(now mono.Time, i int, src frame.Addr, number uint32, body []byte) {
	var r wire.Retry
	if r.Decode(body) != nil {
		e.count.Reject.RejectedMalformed++
		return
	}
	s := e.Sessions.ByNumber[number]
	if s == nil || !s.asking() || string(s.setup.cookies[i]) == string(r.Cookie) || !s.mayBeAt(&src) {
		return
	}
	if e.isIP(i) && s.setup.initTo[i] != src && !s.setup.turns.Take(now, retryTime, RankStranger, maxTurns) {
		return // anybody who sees a session's number can have Inits sent anywhere
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
	e.sendSetup(wire.TypeInit, i, src, uint32(s.Peer.who.Shard), s)
	if e.cfg.Secure == nil { // sealed: forged Retries must not put off the next Init for ever
		s.initSent(now)
	}
}

// OnInitAck handles clause 4.4.
func (e *Endpoint) OnInitAck(now mono.Time, i int, src frame.Addr, number uint32, body []byte) {
	var in wire.Init
	if in.Decode(body) != nil {
		e.count.Reject.RejectedMalformed++
		return
	}
	s := e.Sessions.ByNumber[number]
	if s == nil || !s.asking() || s.Peer.who.ID != op.NodeID(in.Node) || s.Peer.who.Shard != in.Shard ||
		!s.mayBeAt(&src) {
		return
	}
	if e.hear(now, i, src, &in.Hello) == nil {
		return
	}
	if e.cfg.Secure != nil {
		s.answered(now, i, src, in.Session)
		return
	}
	s.Remote, s.epoch = in.Session, in.Epoch
	s.Paths.Seen[i] |= 1 << in.Link
	s.open(now)
}

func (s *Session) open(now mono.Time) {
	s.State, s.opened, s.Ops.Open = SessionOpen, now, true
	s.e.Sessions.Open = append(s.e.Sessions.Open, s)
	s.LastHeard, s.setup.initAt = now, mono.Never
	s.PeerLinks.News = 0
	if s.Trust.Sealer != nil {
		s.PeerLinks.News = s.e.changedSince(s.PeerLinks.told)
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.e.count.Life.SessionsOpened++
	s.Peer.Past.Opened(now, s.epoch)
	s.refreshPaths(now)
	s.e.answeredInit(s)
	if !s.Peer.up {
		s.Peer.up = true
		s.e.emit(op.Event{Kind: op.EvPeerUp, Peer: s.Peer.who.ID, PeerName: s.Peer.who.Name})
	}
	s.Ops.RequestAll()
}

// OnUnknownSession answers a frame of a session that does not exist (clause 4.6).
func (e *Endpoint) OnUnknownSession(now mono.Time, i int, src frame.Addr, number uint32) {
	e.count.Reject.UnknownSession++
	if e.isIP(i) || int(number%uint32(e.cfg.Shards)) != e.cfg.Shard {
		// a stranger's (clause 21.3), or another shard's: a link was just opened or lost, and what steers frames is
		// incomplete
		return
	}
	if now-e.hellos.resetsAt > mono.Time(time.Second) {
		e.hellos.resetsAt, e.hellos.resets = now, 0
	}
	if e.hellos.resets++; e.hellos.resets > 100 {
		return
	}
	r := wire.Reset{Session: number, Epoch: e.cfg.Epoch}
	for t := range e.peers.shards { // nothing in the frame says which shard sent it
		e.queueSetup(Setup{Link: i, Dst: src, Kind: wire.TypeReset, Sess: uint32(t), Body: r.AppendTo(nil)})
	}
}

// OnReset handles clause 4.6.
func (e *Endpoint) OnReset(now mono.Time, i int, src frame.Addr, body []byte) {
	var r wire.Reset
	if e.isIP(i) || r.Decode(body) != nil {
		e.count.Reject.RejectedMalformed++
		return
	}
	for _, s := range e.Sessions.List {
		if s.State == SessionOpen && s.Remote == r.Session && s.hasAddress(src) && s.ComesBy(i) {
			if s.Trust.Opener != nil {
				s.doubt(now)
			} else {
				s.fail(now, abi.StatusPeerDown)
			}
			return
		}
	}
}

// hasAddress reports whether a link of the peer has that address, or had it, or is said to by Hello: in another life
// the peer may have links again that were gone, and others. Who forges that Hello can forge Reset from any address.
func (s *Session) hasAddress(addr frame.Addr) bool {
	for m := s.Paths.Known; m != 0; m &= m - 1 {
		if s.Paths.Links[bits.TrailingZeros64(m)].Addr == addr {
			return true
		}
	}
	for m := s.Peer.Links.Named; m != 0; m &= m - 1 {
		if s.Peer.Links.Remote[uint8(bits.TrailingZeros64(m))].Addr == addr {
			return true
		}
	}
	return false
}

// fail ends the session: every operation of its connections completes with st, nothing of it is accepted any more.
func (s *Session) fail(now mono.Time, st abi.Status) {
	e := s.e
	if s.State == sessionDead {
		return
	}
	wasOpen := s.State == SessionOpen
	s.State = sessionDead
	s.Ops.Ending()
	e.ops.FinishAll(now, &s.Ops, st)
	s.Paths.DropAll(now)
	if d := s.Peer.doubt; d != nil && d != s && s.Peer.session == s {
		d.discard()
	}
	s.EndHandshake()
	e.forgetSession(s)
	if wasOpen {
		e.count.Life.SessionsFailed++
		s.Peer.up = false
		e.emit(op.Event{Kind: op.EvPeerDown, Peer: s.Peer.who.ID, PeerName: s.Peer.who.Name, Status: st})
	}
}

// forgetSession takes s out of every table.
func (e *Endpoint) forgetSession(s *Session) {
	delete(e.Sessions.ByNumber, s.local)
	s.eraseKeys()
	if e.Sessions.LastFound == s {
		e.Sessions.LastFound = nil
	}
	for _, list := range [...]*[]*Session{&e.Sessions.List, &e.Sessions.Open} {
		if i := slices.Index(*list, s); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
	if s.Peer.session == s {
		s.Peer.session = nil
	}
	if s.Peer.doubt == s {
		s.Peer.doubt = nil
	}
}

// nextTimeout is the earliest of the session's deadlines.
func (s *Session) nextTimeout() mono.Time {
	t := min(s.Ops.AckAt, s.Trust.Keys.at, s.Trust.Keys.lateAt)
	if s.Trust.Hs != nil {
		t = min(t, s.handshakeDeadline())
	}
	for m := s.Paths.RxMask; m != 0; m &= m - 1 {
		t = min(t, s.Paths.Rx[bits.TrailingZeros64(m)].AckAt(s.Ops.Fair.Waiting > 0))
	}
	t = min(max(t, s.Acks.muteTo), s.setup.initAt, s.pingAt)
	for m := s.Paths.TxMask; m != 0; m &= m - 1 {
		t = min(t, s.Paths.Tx[bits.TrailingZeros64(m)].NextTimeout())
	}
	return t
}

// handleTimeout runs what is due. Acknowledgements are not sent here: PollTransmit finds them due.
func (s *Session) handleTimeout(now mono.Time) {
	if now >= s.setup.initAt {
		if s.Ops.Conns == 0 && now.Sub(s.born) > handshakeTime { // nobody waits for it any more
			s.discard()
			return
		}
		s.sendInit(now)
	}
	if now >= s.handshakeDeadline() {
		if s.handshakeTimeouts(now); s.State != SessionOpen {
			return
		}
	}
	if now >= min(s.Trust.Keys.at, s.Trust.Keys.lateAt) {
		if s.keysTimeout(now); s.State != SessionOpen {
			return
		}
	}
	for m := s.Paths.TxMask; m != 0; m &= m - 1 {
		s.Paths.Tx[bits.TrailingZeros64(m)].HandleTimeout(now)
	}
	if now < s.pingAt {
		return
	}
	s.pingAt = now.Add(s.e.cfg.KeepAlive)
	s.Paths.ForgetUnanswered(now)
	if now.Sub(s.LastHeard) >= s.e.cfg.DeadTime {
		s.fail(now, abi.StatusPeerDown)
		return
	}
	all := now.Sub(s.LastHeard) >= s.e.cfg.KeepAlive
	if all {
		s.doubtSilence(now)
	}
	for m := s.Paths.TxMask; m != 0; m &= m - 1 {
		// The others may hide that the cable of one was moved: the peer's frames on them keep the session alive (clause
		// 4.7).
		if p := s.Paths.Tx[bits.TrailingZeros64(m)]; all || p.State == path.StateGood &&
			s.Paths.HeardVia&(1<<p.Link) == 0 {
			p.Unheard(now, all)
		} else {
			p.Heard()
		}
	}
	s.Paths.HeardVia = 0
}

// refreshPaths makes a path for every local link that reaches the peer, and follows changes of the peer's side.
func (s *Session) refreshPaths(now mono.Time) {
	if s.State == SessionOpen {
		s.Paths.Refresh(now)
	}
}

// pathChanged tells people of a path.
func (s *Session) pathChanged(link int, minor bool, text string) {
	s.e.emit(op.Event{Kind: op.EvPath, Peer: s.Peer.who.ID, PeerName: s.Peer.who.Name, Link: uint8(link), Minor: minor,
		Text: text})
}
