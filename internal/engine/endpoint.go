package engine

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine/op/copies"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/peering"
	"multiedge/internal/engine/queue"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/sched"
)

// Endpoint is one node's transport: every peer, session and connection of one thread. Not safe for concurrent use.
type Endpoint struct {
	cfg     Config
	rng     *rand.Rand
	links   [MaxLinks]link
	up      uint64    // links that are configured
	began   mono.Time // the first link came; zero: none has
	lastRun mono.Time // of HandleTimeout

	peers    peerTable
	sessions sessionTable
	conns    connTable
	dials    dialTable
	shakes   handshakes
	movers   movers
	hellos   greeting
	misses   misses
	timed    timedSends
	queues   sharedQueues
	eager    idleEager
	self     selves

	outbox  []outFrame // set-up frames that wait for PollTransmit
	events  eventRing
	recs    records
	copies  copies.Pool
	builder builder
	scratch scratch
	Count   Counters
	Latency Latency
}

// peerTable is every node that was heard.
type peerTable struct {
	list   []*peer // in order of first hearing
	byID   map[peerID]*peer
	shards int // the most that a node we know of has
}

// sessionTable is every session. One that is not dead is in list and in byNumber.
type sessionTable struct {
	list      []*session
	byNumber  map[uint32]*session
	lastFound *session
	turn      int  // session with data to transmit first
	idleTurn  int  // session without data to transmit first
	muted     bool // muteTo of a session is set
}

// connTable is every connection, and the users that own them.
type connTable struct {
	byIndex  []*conn  // by index of the ConnID; of those that are free the record of number 0
	numbers  []ConnID // the latest of each index
	free     []uint32 // indices of free records, the one that was freed first in front
	services map[string]bool
	users    fair.Users // who have connections in sessions

	grown    queue.Queue[ConnID] // connections that may have something to give back
	restAt   mono.Time           // when they are looked at
	gaveBack int                 // bytes, since GaveBack was called
}

// greeting is when Hello is said, and what came of the Hellos and Resets of others.
type greeting struct {
	helloAt  mono.Time
	helloGap time.Duration // grows to Config.HelloTime
	claim    claim
	wrong    map[string]heardWrong // by authorised name; see trouble.go
	resetsAt mono.Time
	resets   int // Resets sent since resetsAt

	linkVersion uint32           // of what peers are told about links
	changed     [MaxLinks]uint32 // linkVersion of each link's latest change
}

// scratch is memory for one call: nothing in it outlives the frame at hand.
type scratch struct {
	opening []byte // where sealed frames are opened
	nonce   secure.Nonce
	frame   wire.Frame
	peek    wire.Bulk
	seg     wire.Segment
	op      segment // of seg, or of the bulk
	acked   []flowctl.Sent
	lost    []flowctl.Sent
	words   []uint64
	block   flowctl.Block
}

// outFrame is a set-up frame waiting to be sent: complete but for its Ethernet header.
type outFrame struct {
	link   int
	dst    frame.Addr
	body   []byte
	kind   wire.Type
	sess   uint32
	sealed bool // body starts with the fixed header
	held   bool // the link was blocked: it waits for it until then
	until  mono.Time
}

// New returns an endpoint without links. It fails if cfg cannot be used, saying which field.
func New(cfg Config) (*Endpoint, error) {
	if cfg.Node == (NodeID{}) || cfg.Epoch == 0 {
		return nil, errors.New("engine: Config.Node and Config.Epoch must be set")
	}
	if cfg.Grants == nil {
		return nil, errors.New("engine: Config.Grants must be set")
	}
	if len(cfg.Name) > MaxNodeName {
		return nil, fmt.Errorf("engine: node name %q is longer than %d bytes", cfg.Name, MaxNodeName)
	}
	cfg.setDefaults()
	if _, err := sched.New(cfg.Scheduler); err != nil {
		return nil, err
	}
	if cfg.OpWindow&(cfg.OpWindow-1) != 0 || cfg.OpWindow < 2 || cfg.OpWindow > 1<<15 {
		return nil, fmt.Errorf("engine: operation window %d is not a power of two between 2 and 32768", cfg.OpWindow)
	}
	if cfg.Shards < 1 || cfg.Shards > wire.MaxShards || cfg.Shard < 0 || cfg.Shard >= cfg.Shards {
		return nil, fmt.Errorf("engine: shard %d of %d: there are 1 to %d, numbered from 0", cfg.Shard, cfg.Shards,
			wire.MaxShards)
	}
	if cfg.MaxConns < 1 || cfg.MaxConns >= 1<<connIndexBits-spareConns {
		return nil, fmt.Errorf("engine: %d connections: must be 1 to %d", cfg.MaxConns, 1<<connIndexBits-spareConns-1)
	}
	e := &Endpoint{
		cfg:      cfg,
		rng:      rand.New(rand.NewPCG(cfg.Seed, cfg.Epoch)),
		peers:    peerTable{byID: map[peerID]*peer{}, shards: cfg.Shards},
		sessions: sessionTable{byNumber: map[uint32]*session{}},
		conns:    connTable{services: map[string]bool{}, users: fair.Users{}},
		dials:    dialTable{wishes: map[wish]*wished{}},
		shakes:   handshakes{eraseAt: mono.Never},
		misses:   misses{waits: map[regmem.Wait]chain{}, backs: map[regmem.Backing]chain{}},
	}
	if n := cfg.Secure; n != nil {
		if cfg.Node != NodeID(n.Public.Node()) {
			return nil, errors.New("engine: Config.Node is not the identity of Config.Secure's key")
		}
		e.scratch.opening = make([]byte, 1<<17)
	}
	e.movers = e.newMovers()
	e.shakes.cookies = peering.NewCookies(cfg.CookieKey, cfg.Seed)
	e.recs.init()
	// number 0 means none
	e.conns.byIndex, e.conns.numbers = append(e.conns.byIndex, &conn{}), append(e.conns.numbers, 0)
	return e, nil
}

// grantOwner is what a key must be bound to for connection c to use it (clause 6.9).
func grantOwner(c ConnID) uint64 { return uint64(c) }

// Stop ends what runs beside the owner's thread: the goroutines of handshakes, with Config.Deferred in the steps that
// there are then. Nobody is told. Nothing but Snapshot, NextStep and Stepped may be called afterwards.
func (e *Endpoint) Stop() {
	for _, s := range e.sessions.list {
		s.endHandshake()
		s.eraseKeys()
	}
}

// Listen makes service available to peers; their requests arrive as EvIncoming.
func (e *Endpoint) Listen(service string) { e.conns.services[service] = true }

// Unlisten ends Listen. Connections that exist live on.
func (e *Endpoint) Unlisten(service string) { delete(e.conns.services, service) }

// PollEvent takes the oldest event. What ev held is zero or an event of PollEvent's.
func (e *Endpoint) PollEvent(ev *Event) bool {
	if e.events.head == e.events.tail {
		return false
	}
	e.events.pop(ev)
	return true
}

func (e *Endpoint) emit(ev Event) { e.events.push(ev) }

// eventRing is a growing ring: its length is bounded by operations in flight plus a few events per connection and path.
type eventRing struct {
	buf        []Event
	head, tail uint32
}

func (r *eventRing) push(ev Event) { *r.next() = ev }

// isShort reports whether events of a kind use a few fields only: those of frequent kinds. The others are zero in them,
// and in slots that are free.
func isShort(k EventKind) bool { return k == EvComplete || k == EvNotify }

// short adds an event of such a kind, which is filled in its place.
func (r *eventRing) short(k EventKind, id ConnID) *Event {
	ev := r.next()
	ev.Kind, ev.Status, ev.Local, ev.Conn, ev.Token, ev.Value, ev.Data = k, OK, false, id, 0, 0, nil
	return ev
}

// next returns the slot of a further event.
func (r *eventRing) next() *Event {
	if int(r.tail-r.head) == len(r.buf) {
		r.grow()
	}
	r.tail++
	return &r.buf[(r.tail-1)&uint32(len(r.buf)-1)]
}

func (r *eventRing) grow() {
	bigger := make([]Event, max(64, 2*len(r.buf)))
	for i := range r.tail - r.head {
		bigger[i] = r.buf[(r.head+i)&uint32(len(r.buf)-1)]
	}
	r.head, r.tail, r.buf = 0, r.tail-r.head, bigger
}

// pop takes the oldest event; there is one.
func (r *eventRing) pop(ev *Event) {
	slot := &r.buf[r.head&uint32(len(r.buf)-1)]
	if isShort(slot.Kind) && isShort(ev.Kind) {
		ev.Kind, ev.Status, ev.Local, ev.Conn = slot.Kind, slot.Status, slot.Local, slot.Conn
		ev.Token, ev.Value, ev.Data = slot.Token, slot.Value, slot.Data
	} else {
		*ev = *slot
	}
	if !isShort(slot.Kind) {
		*slot = Event{}
	}
	r.head++
}

// spareConns is how many records there are beyond Config.MaxConns, for words to peers that find the table full.
const spareConns = 64

// newConn takes a free connection record. It returns nil when the table is full.
func (e *Endpoint) newConn() *conn { return e.connWithin(e.cfg.MaxConns) }

// spareConn is newConn for a record that only says no, and is free again when the peer has heard it.
func (e *Endpoint) spareConn() *conn { return e.connWithin(e.cfg.MaxConns + spareConns) }

func (e *Endpoint) connWithin(limit int) *conn {
	if len(e.conns.byIndex)-1-len(e.conns.free) >= limit {
		return nil
	}
	i, id := len(e.conns.byIndex), ConnID(0)
	if n := len(e.conns.free); n > numbersRest || n > 0 && i > e.cfg.MaxConns {
		i = int(e.conns.free[0])
		e.conns.free = e.conns.free[1:]
		id = ConnID(uint32(e.conns.numbers[i]) + 1<<connIndexBits)
	} else {
		id = ConnID(i) | ConnID(e.rng.Uint32()<<connIndexBits)
		e.conns.byIndex, e.conns.numbers = append(e.conns.byIndex, nil), append(e.conns.numbers, 0)
	}
	c := &conn{e: e, id: id}
	e.conns.byIndex[i], e.conns.numbers[i] = c, id
	return c
}

// unconfirmed is how many connections with another node are in connIncoming or connLast, those with all its shards
// together.
func (e *Endpoint) unconfirmed(id NodeID) (n int) {
	for shard := range uint8(wire.MaxShards) {
		if p := e.peers.byID[peerID{id, shard}]; p != nil && p.session != nil {
			n += p.session.members.unconfirmed
		}
	}
	return n
}

// limboMost is how many may be when the peer, or somebody here, asks for another: a peer that leaves our answers or the
// ends of connections unconfirmed shall not fill the table.
func (e *Endpoint) unconfirmedMost() int { return max(spareConns, e.cfg.MaxConns/4) }

// crowded reports whether there are as many when the peer asks.
func (s *session) crowded() bool {
	n := s.members.unconfirmed // of this node
	if !s.inside {
		n = s.e.unconfirmed(s.peer.id)
	}
	return n >= s.e.unconfirmedMost()
}

// numbersRest is how many indices of ended connections wait before the first is used again: the longer, the later a
// number comes again.
const numbersRest = 1024

const connIndexBits = 20

// conn returns the live connection of that number, or nil.
func (e *Endpoint) conn(id ConnID) *conn {
	i := int(id & (1<<connIndexBits - 1))
	if i >= len(e.conns.byIndex) {
		return nil
	}
	c := e.conns.byIndex[i]
	if c.id != id || c.state == connFree {
		return nil
	}
	return c
}

func (e *Endpoint) freeConnection(c *conn) {
	e.cfg.Grants.RevokeOwner(grantOwner(c.id))
	if c.s != nil {
		c.setUnconfirmed(false)
		if c.s.members.byRemote[c.remote] == c {
			delete(c.s.members.byRemote, c.remote)
			c.s.ended(c.remote)
		}
		c.detach()
	}
	*c = conn{e: e, id: c.id}
	i := uint32(c.id) & (1<<connIndexBits - 1)
	e.conns.byIndex[i] = e.conns.byIndex[0] // no record is kept for an index that waits
	e.conns.free = append(e.conns.free, i)
}

// NextTimeout returns when HandleTimeout must be called at the latest, if nothing else happens. It may change with
// every other call.
func (e *Endpoint) NextTimeout() mono.Time {
	if len(e.outbox) > 0 && e.setupWaits() {
		return 0
	}
	t := min(e.hellos.helloAt, e.shakes.eraseAt, e.unusedTimeout())
	if e.conns.grown.Len()+len(e.misses.parked)+len(e.timed.waiters)+len(e.dials.byDeadline) > 0 {
		t = min(t, e.restTimeout(), e.missTimeout(), e.patienceTimeout())
		if len(e.dials.byDeadline) > 0 {
			t = min(t, e.dials.byDeadline[0].dial.deadline)
		}
	}
	for _, s := range e.sessions.list {
		t = min(t, s.nextTimeout())
	}
	return t
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
		for _, s := range e.sessions.list {
			s.lastHeard = now
			s.trust.keys.at = max(s.trust.keys.at, now.Add(lateTime))
		}
	}
	e.lastRun = now
	if now >= e.restTimeout() {
		e.shrinkResting(now)
	}
	if now >= e.missTimeout() {
		e.checkMissed(now)
	}
	if now >= e.patienceTimeout() {
		e.expireWaiting(now)
	}
	if now >= e.unusedTimeout() {
		e.checkUnused(now)
	}
	if now >= e.hellos.helloAt {
		flags := uint8(0)
		if e.hellos.helloGap < e.cfg.HelloTime {
			flags = wire.HelloAnswer
		}
		for i := range e.links {
			if (e.up&^e.self.inside)&(1<<i) != 0 {
				for t := range e.peers.shards {
					e.sendHello(i, frame.Broadcast, flags, uint8(t))
				}
			}
		}
		e.hellos.helloAt = now.Add(e.hellos.helloGap)
		e.hellos.helloGap = min(2*e.hellos.helloGap, e.cfg.HelloTime)
	}
	for i := 0; i < len(e.sessions.list); i++ {
		if s := e.sessions.list[i]; now >= s.nextTimeout() {
			s.handleTimeout(now)
			if s.state == sessionDead {
				i--
			}
		}
	}
	e.expireDials(now)
	if now >= e.shakes.eraseAt {
		e.eraseRetired(now)
	}
}

func (cfg *Config) setDefaults() {
	setDefault(&cfg.Framing, frame.DefaultFraming)
	setDefault(&cfg.Scheduler, "adaptive")
	setDefault(&cfg.OpWindow, 1024)
	setDefault(&cfg.StagedMost, stagedMost)
	setDefault(&cfg.HeldBytes, 16<<20)
	setDefault(&cfg.MaxConns, 1<<16)
	setDefault(&cfg.MaxDials, 1<<14)
	setDefault(&cfg.Keys.Frames, 1<<22)
	setDefault(&cfg.Keys.Age, 2*time.Minute)
	setDefault(&cfg.Keys.Forged, 1<<51)
	setDefault(&cfg.Shards, 1)
	setDefault(&cfg.DialTime, 5e9)
	setDefault(&cfg.DeadTime, 15e9)
	setDefault(&cfg.KeepAlive, 1e9)
	setDefault(&cfg.HelloTime, 1e9)
	if cfg.Profile.Name == "" {
		cfg.Profile, _ = flowctl.ProfileByName("default")
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// parseNodeID reads the hexadecimal form of an identity.
func parseNodeID(s string) (id NodeID, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, true
}

// statusOf turns the refusal of a memory check into what the peer is told.
func statusOf(err error) Status {
	switch {
	case errors.Is(err, regmem.ErrOwner):
		return StatusOwner
	case errors.Is(err, regmem.ErrPermission):
		return StatusPermission
	case errors.Is(err, regmem.ErrBounds):
		return StatusBounds
	}
	return StatusKey
}
