// Package op has connections and operations: what applications submit, how it is put into frames and kept until it is
// acknowledged, and what the operations of peers do to the memory here, in the order that fences allow. It knows no
// peers, sessions' keys or paths: its owner lets it fill frames (Session.Fill) and gives it what arrives (OnBulk,
// OnSegment).
//
// One file has one thing: conn.go and fill.go what is sent, arrive.go and place.go what arrives, kinds.go the table of
// kinds with a file for each, messages.go and receive.go messages, eager.go and drafts.go composed ones, miss.go and
// carry.go memory that is not resident, mover.go who moves payloads.
package op

import (
	"math/rand/v2"
	"time"

	"multiedge/internal/engine/count"
	"multiedge/internal/engine/op/copies"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/op/message"
	"multiedge/internal/mono"
	"multiedge/regmem"
	"multiedge/remap"
)

// Endpoint is what one endpoint has of connections and operations. Its owner gives it what arrives (OnBulk, OnSegment)
// and lets it fill frames that leave (Session.Fill); of these it hears by their records what became of them (OnAcked,
// OnLost). Not safe for concurrent use.
type Endpoint struct {
	cfg     Config
	Conns   connTable
	dials   dialTable
	movers  movers
	misses  misses
	timed   timedSends
	queues  message.Queues
	eager   idleEager
	events  eventRing
	copies  copies.Pool
	segment segment // that arrived, for one call
	lastRun mono.Time
	Count   *count.Counters
	Latency *count.Latency
}

// Config is what operations need to know. All of it is set.
type Config struct {
	Rand       *rand.Rand
	OpWindow   int
	HeldBytes  int
	MaxConns   int
	MaxDials   int
	DialTime   time.Duration
	CopiedMost int
	DropMisses bool
	Grants     *regmem.Table
	Placer     Placer
	Exchanger  *remap.Exchanger
	Count      *count.Counters
	Latency    *count.Latency
	// Crowded reports whether so many connections of a session's peer are unconfirmed that there shall be no other.
	Crowded func(s *Session) bool
	// NextShard has another shard of the peer asked for a connection that this one refused, and reports whether there
	// is one.
	NextShard func(now mono.Time, c *Conn) bool
}

// Init makes an empty Endpoint.
func (e *Endpoint) Init(cfg Config) {
	*e = Endpoint{
		cfg: cfg, Count: cfg.Count, Latency: cfg.Latency,
		Conns: connTable{services: map[string]bool{}, Users: fair.Users{}},
		dials: dialTable{wishes: map[Wish]*Wished{}},
	}
	e.queues.Init(e.queueCalls())
	e.misses.parked.Init(e.again, e.missFailed)
	e.movers = e.newMovers()
	// number 0 means none
	e.Conns.byIndex, e.Conns.numbers = append(e.Conns.byIndex, &Conn{}), append(e.Conns.numbers, 0)
}

// NextTimeout is when HandleTimeout must be called at the latest.
func (e *Endpoint) NextTimeout() mono.Time {
	t := e.queues.Timeout()
	if e.Conns.grown.Len()+e.misses.parked.Len()+len(e.timed.waiters)+len(e.dials.byDeadline) > 0 {
		t = min(t, e.restTimeout(), e.misses.parked.Timeout(), e.patienceTimeout())
		if len(e.dials.byDeadline) > 0 {
			t = min(t, e.dials.byDeadline[0].dial.deadline)
		}
	}
	return t
}

// HandleTimeout runs every timer that is due, but for those of dials, which the owner ends.
func (e *Endpoint) HandleTimeout(now mono.Time) {
	e.lastRun = now
	if now >= e.restTimeout() {
		e.shrinkResting(now)
	}
	if now >= e.misses.parked.Timeout() {
		e.misses.parked.Check(now)
	}
	if now >= e.patienceTimeout() {
		e.expireWaiting(now)
	}
	if now >= e.queues.Timeout() {
		e.queues.CheckUnused(now)
	}
}

// Listen makes service available to peers; their requests arrive as EvIncoming.
func (e *Endpoint) Listen(service string) { e.Conns.services[service] = true }

// Unlisten ends Listen. Connections that exist live on.
func (e *Endpoint) Unlisten(service string) { delete(e.Conns.services, service) }

// PollEvent takes the oldest event. What ev held is zero or an event of PollEvent's.
func (e *Endpoint) PollEvent(ev *Event) bool {
	if e.events.head == e.events.tail {
		return false
	}
	e.events.pop(ev)
	return true
}

func (e *Endpoint) Emit(ev Event) { e.events.push(ev) }
