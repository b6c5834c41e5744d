// Package peering has the nodes that are heard and the sessions with them: discovery, handshakes, keys, which links
// each end has, and what bounds the work of strangers. A Session has the paths (package path) and the connections
// (package op) between two nodes; frames are made and read above.
package peering

import (
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/engine/build"
	"multiedge/internal/engine/count"
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/path"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Endpoint is what one endpoint has of peers and sessions with them: who is heard, who proved to be whom, and what
// waits to be said for that. Not safe for concurrent use.
type Endpoint struct {
	cfg     Config
	net     *path.Net
	ops     *op.Endpoint
	recs    *build.Records
	count   *count.Counters
	rng     *rand.Rand
	began   mono.Time // the first link came; zero: none has
	lastRun mono.Time // of HandleTimeout

	peers    peerTable
	Sessions sessionTable
	shakes   handshakes
	hellos   greeting
	self     selves
	Outbox   []Setup // set-up frames that wait to be sent

	endpoints map[op.NodeID][]frame.Addr // of authorised peers, by configuration (reach.go)

	Opening []byte // where sealed frames are opened, for one call
	nonce   secure.Nonce
	frame   wire.Frame
}

// Config is what peers and sessions need to know. All of it is set.
type Config struct {
	Node      op.NodeID
	Name      string
	Epoch     uint64
	Shard     int
	Shards    int
	Scheduler string
	MaxConns  int
	AckDelay  time.Duration
	DeadTime  time.Duration
	KeepAlive time.Duration
	HelloTime time.Duration
	Secure    *secure.Node // nil: plaintext
	Keys      KeyLimits
	Deferred  bool
	CookieKey [32]byte
	Seed      uint64
}

// Parts is what an endpoint of peers works with.
type Parts struct {
	Net     *path.Net
	Ops     *op.Endpoint
	Records *build.Records
	Count   *count.Counters
	Rand    *rand.Rand
}

// Init makes an empty Endpoint.
func (e *Endpoint) Init(cfg Config, with Parts) {
	*e = Endpoint{
		cfg: cfg, net: with.Net, ops: with.Ops, recs: with.Records, count: with.Count, rng: with.Rand,
		peers:    peerTable{byID: map[peerID]*peer{}, shards: cfg.Shards},
		Sessions: sessionTable{ByNumber: map[uint32]*Session{}},
		shakes:   handshakes{eraseAt: mono.Never},
	}
	if cfg.Secure != nil {
		e.Opening = make([]byte, 1<<17)
	}
	e.shakes.cookies = NewCookies(cfg.CookieKey, cfg.Seed)
}

// peerTable is every node that was heard.
type peerTable struct {
	list   []*peer // in order of first hearing
	byID   map[peerID]*peer
	shards int // the most that a node we know of has
}

// sessionTable is every session. One that is not dead is in List and in ByNumber.
type sessionTable struct {
	List      []*Session
	Open      []*Session // those of List that are open
	waitAt    mono.Time  // the earliest deadline of the others; 0: look again
	ByNumber  map[uint32]*Session
	LastFound *Session
	muted     bool // muteTo of a session is set
}

// greeting is when Hello is said, and what came of the Hellos and Resets of others.
type greeting struct {
	helloAt   mono.Time
	helloGap  time.Duration // grows to Config.HelloTime
	claim     claim
	lookedFor mono.Time             // a dial had everybody greeted
	wrong     map[string]heardWrong // by authorised name; see trouble.go
	resetsAt  mono.Time
	resets    int // Resets sent since resetsAt

	linkVersion uint32                // of what peers are told about links
	changed     [path.MaxLinks]uint32 // linkVersion of each link's latest change
}

// Setup is a set-up frame waiting to be sent: complete but for its Ethernet header.
type Setup struct {
	Link   int
	Dst    frame.Addr
	Body   []byte
	Kind   wire.Type
	Sess   uint32
	Sealed bool // body starts with the fixed header
	Held   bool // the link was blocked: it waits for it until then
	Until  mono.Time
}

// setupWaits reports whether a set-up frame can leave.
func (e *Endpoint) setupWaits() bool {
	return slices.ContainsFunc(e.Outbox, func(f Setup) bool { return !e.net.Links[f.Link].Blocked })
}

func (e *Endpoint) Session(number uint32) *Session {
	if s := e.Sessions.LastFound; s != nil && s.local == number {
		return s
	}
	return e.Sessions.ByNumber[number]
}

// Stop ends what runs beside the owner's thread: the goroutines of handshakes, with Config.Deferred in the steps that
// there are then. Nobody is told. Nothing but Snapshot, NextStep and Stepped may be called afterwards.
func (e *Endpoint) Stop() {
	for _, s := range e.Sessions.List {
		s.EndHandshake()
		s.eraseKeys()
	}
}

// unconfirmed is how many connections with another node are in connIncoming or connLast, those with all its shards
// together.
func (e *Endpoint) unconfirmed(id op.NodeID) (n int) {
	for shard := range uint8(wire.MaxShards) {
		if p := e.peers.byID[peerID{id, shard}]; p != nil && p.session != nil {
			n += p.session.Ops.Unconfirmed
		}
	}
	return n
}

// unconfirmedMost is how many may be when the peer, or somebody here, asks for another: a peer that leaves our
// answers or the ends of connections unconfirmed shall not fill the table.
func (e *Endpoint) unconfirmedMost() int { return max(op.SpareConns, e.cfg.MaxConns/4) }

// Crowded reports whether there are as many when the peer asks.
func (e *Endpoint) Crowded(s *op.Session) bool {
	n := s.Unconfirmed // of this node
	if !s.Inside {
		n = e.unconfirmed(s.Peer.ID)
	}
	return n >= e.unconfirmedMost()
}

// NextTimeout returns when HandleTimeout must be called at the latest, if nothing else happens. It may change with
// every other call.
func (e *Endpoint) NextTimeout() mono.Time {
	if len(e.Outbox) > 0 && e.setupWaits() {
		return 0
	}
	t := min(e.hellos.helloAt, e.shakes.eraseAt, e.ops.NextTimeout(), e.Sessions.nextWait())
	for _, s := range e.Sessions.Open {
		t = min(t, s.nextTimeout())
	}
	return t
}

// Touch says that the deadline of a session that is not open may have changed. Strangers may keep a hundred of these
// half open, and frames with data, for which every iteration asks, change none.
func (e *Endpoint) Touch() { e.Sessions.waitAt = 0 }

// nextWait is the earliest deadline of the sessions that are not open.
func (t *sessionTable) nextWait() mono.Time {
	if t.waitAt == 0 {
		t.waitAt = t.earliestWait()
	}
	return t.waitAt
}

func (t *sessionTable) earliestWait() mono.Time {
	at := mono.Never
	for _, s := range t.List {
		if s.State != SessionOpen {
			at = min(at, s.nextTimeout())
		}
	}
	return at
}

// stoppedFor is a gap between two runs of the timers after which silence is blamed on ourselves: the process was
// stopped or the machine slept.
const stoppedFor = mono.Time(500e6)

// greet says Hello at once and for a while often: a link came up, or a peer is looked for.
func (e *Endpoint) greet(now mono.Time) {
	e.hellos.helloAt, e.hellos.helloGap = now, min(10*time.Millisecond, e.cfg.HelloTime)
}

// HandleTimeout runs every timer that is due.
func (e *Endpoint) HandleTimeout(now mono.Time) {
	if e.lastRun != 0 && now-e.lastRun > stoppedFor+mono.Time(e.cfg.HelloTime) {
		for _, s := range e.Sessions.List {
			s.LastHeard = now
			s.Trust.Keys.at = max(s.Trust.Keys.at, now.Add(lateTime))
		}
	}
	e.lastRun = now
	e.ops.HandleTimeout(now)
	if now >= e.hellos.helloAt {
		flags := uint8(0)
		if e.hellos.helloGap < e.cfg.HelloTime {
			flags = wire.HelloAnswer
		}
		for i := range e.net.Links {
			if (e.net.Up&^e.self.inside)&(1<<i) != 0 && !e.isIP(i) {
				for t := range e.peers.shards {
					e.sendHello(i, frame.Broadcast, flags, uint8(t))
				}
			}
		}
		e.hellos.helloAt = now.Add(e.hellos.helloGap)
		e.hellos.helloGap = min(2*e.hellos.helloGap, e.cfg.HelloTime)
	}
	if now >= e.Sessions.nextWait() {
		e.Touch()
		handleTimeouts(now, &e.Sessions.List)
	} else {
		handleTimeouts(now, &e.Sessions.Open)
	}
	e.expireDials(now)
	if now >= e.shakes.eraseAt {
		e.eraseRetired(now)
	}
}

// handleTimeouts runs the timers of sessions. Those that die leave the list.
func handleTimeouts(now mono.Time, list *[]*Session) {
	for i := 0; i < len(*list); i++ {
		if s := (*list)[i]; now >= s.nextTimeout() {
			if s.handleTimeout(now); s.State == sessionDead {
				i--
			}
		}
	}
}

func (e *Endpoint) emit(ev op.Event) { e.ops.Emit(ev) }
