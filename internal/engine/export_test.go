package engine

import (
	"multiedge/internal/engine/op"
	"multiedge/internal/engine/op/span"
	"multiedge/internal/engine/peering"
)

// Sizes are the lengths of an endpoint's tables, for tests that look for growth.
type Sizes struct {
	Conns, Kept, Free, Dials, Sessions, Numbers, ByRemote, SendQueue, OpAcks, Records, Live, Outbox int
}

// TableSizes counts what the endpoint holds.
func (e *Endpoint) TableSizes() Sizes {
	k, n := e.probe().Kept(), peering.ProbeOf(&e.nodes).Kept()
	z := Sizes{
		Conns: k.Conns, Live: k.Live, Kept: k.Records, Free: k.Free, Dials: k.Dials, Sessions: n.Sessions,
		Numbers: n.Numbers, Records: len(e.recs.Pool), Outbox: n.Outbox,
	}
	for _, s := range e.nodes.Sessions.List {
		c := s.Ops.Charged()
		z.ByRemote += c.ByRemote
		z.SendQueue += c.Sending
		z.OpAcks += c.OpAcks
	}
	return z
}

// HeldMemory is what segments behind fences and holes cost now, over all sessions.
func (e *Endpoint) HeldMemory() (n int) {
	for _, s := range e.nodes.Sessions.List {
		n += s.Ops.Charged().Held
	}
	return n
}

// FreeSpans is how many spans of an operation are not charged.
const FreeSpans = span.Free

// Ended is how many ended connections the sessions remember.
func (e *Endpoint) Ended() (n int) {
	for _, s := range e.nodes.Sessions.List {
		n += s.Ops.Charged().Ended
	}
	return n
}

func (e *Endpoint) probe() op.Probe { return op.ProbeOf(&e.ops) }

// What Probe shows of connections and queues.
func (e *Endpoint) Spans(id ConnID) int                { return e.probe().Spans(id) }
func (e *Endpoint) RingMemory(id ConnID) int           { return e.probe().RingMemory(id) }
func (e *Endpoint) SendRing(id ConnID) int             { return e.probe().SendRing(id) }
func (e *Endpoint) MessageMemory(id ConnID) int        { return e.probe().MessageMemory(id) }
func (e *Endpoint) DraftMemory() (used, idle int)      { return e.probe().DraftMemory() }
func (e *Endpoint) EagerWords(id ConnID) (n, most int) { return e.probe().EagerWords(id) }
func (e *Endpoint) Asking(q QueueID) int               { return e.probe().Asking(q) }
func (e *Endpoint) Adverts(id ConnID) int              { return e.probe().Adverts(id) }
func (e *Endpoint) DialWork() (wishes, dials uint64)   { return e.probe().DialWork() }
func (e *Endpoint) QueueCounts(id QueueID) [3]int      { return e.probe().QueueCounts(id) }

// RingPrices and Prices are those of Probe.
func RingPrices() (sop, sopTakes, arrives, arriveTakes int) { return op.Probe{}.RingPrices() }

func Prices() (rop, ropTakes, held, heldTakes int) { return op.Probe{}.Prices() }

// Prices and bounds that tests compare with what things take.
const (
	FirstRing      = op.FirstRing
	HeldOverhead   = op.HeldOverhead
	MostIdleDrafts = op.MostIdleDrafts
)

func (e *Endpoint) nodesProbe() peering.Probe { return peering.ProbeOf(&e.nodes) }

// What peering's Probe shows of sessions.
func (e *Endpoint) SessionList() []SessionInfo           { return e.nodesProbe().SessionList() }
func (e *Endpoint) Handshakes() int                      { return e.nodesProbe().Handshakes() }
func (e *Endpoint) Pending() int                         { return e.nodesProbe().Kept().Steps }
func (e *Endpoint) RetiredKeys() int                     { return e.nodesProbe().Kept().Retired }
func (e *Endpoint) FillPeers()                           { e.nodesProbe().FillPeers() }
func (e *Endpoint) SessionsAlive() (alive []func() bool) { return e.nodesProbe().SessionsAlive() }

// SessionInfo and the bounds are those of peering's Probe.
type SessionInfo = peering.SessionInfo

const (
	MaxPending = peering.MaxPending
	MaxTries   = peering.MaxTries
)

// InitProof is what an Init over IP ends with.
var InitProof = peering.InitProof

// Forecasts is what each link expects.
func (e *Endpoint) Forecasts() [MaxLinks]op.Forecast { return e.forecasts }
