package daemon

import (
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// handler says who serves a request and what it may cost. One of the functions is set: control runs on the control
// connection's goroutine, which may wait; data and conn run on the client's shard, must be short, and their replies go
// through the shard, so that they are sent after the completions that precede them. A nil reply without an error means
// that the reply was sent, or comes later.
type handler struct {
	control func(*controlConn, *ipc.Message) (*ipc.Message, error)
	data    func(*shard.Shard, mono.Time, *shard.Client, *ipc.Message) (*ipc.Message, error)
	// of one of the client's connections
	conn func(*shard.Shard, mono.Time, *shard.Conn, *ipc.Message) (*ipc.Message, error)
	// on the control connection's goroutine; may be nil
	before func(*controlConn, *ipc.Message) error

	feature  ipc.Features // is served where this is in force alone
	attached bool         // needs a hello first; data and conn always do
	brings   bool         // with ipc.FeatureMemory one descriptor may come along, which is in controlConn.brought
	weight   int          // what it costs, in units of limits.requests; 0: one
}

// Weights of requests that cost more than the others: a greeting makes and maps rings, others look at everything there
// is, or ask the name service (directory.go). An eviction puts off the user's greetings: a user whose clients are
// evicted again and again can attach once a second; his other programs are only slow to attach.
const (
	weightHello  = 40
	weightLook   = 50
	weightLookup = 50
	weightEvict  = 4000
)

// Work that grows with an argument costs more requests, charged before it is done; the user's next one waits for them
// (controlConn.owe).
const (
	pinnedPerRequest = 4 << 20  // bytes of memory that is filled and pinned
	tablePerRequest  = 64 << 10 // bytes of tables that are made for a space
)

// handlers is every request that this daemon serves, with what bounds the things it makes. All are bounded by
// limits.requests a second and user, by unreadAnswers, and by the sizes of their fields (docs/ABI.md A10). None has a
// shard do more in one iteration than a piece of bounded size, and an iteration does one piece (shard/mailbox.go): what
// goes through a range or a list goes through a part of it, and pays for each part like a request. The
// parts in which keys are revoked are paid for already: each key cost a request when it was given.
var handlers map[ipc.Kind]handler

func init() { // what serves requests looks here as well
	handlers = map[ipc.Kind]handler{
		// limits.clients, clients_per_user, queue, pinned, pinned_total
		ipc.KindHello: {control: (*controlConn).hello, weight: weightHello},
		// limits.pinned, pinned_total, regions, regions_per_user, regions_total; maxOffered
		ipc.KindRegister:   {control: (*controlConn).register, attached: true, brings: true},
		ipc.KindMapped:     {control: (*controlConn).mapped, attached: true},
		ipc.KindDeregister: {control: (*controlConn).deregister, attached: true},
		// limits.pinned and the like as for register; filled, filled_total
		ipc.KindMap:    {control: (*controlConn).mapSpace, attached: true, feature: ipc.FeatureSpaces},
		ipc.KindAdvise: {control: (*controlConn).advise, attached: true, feature: ipc.FeatureSpaces},
		ipc.KindUsage:  {control: (*controlConn).usage, attached: true, feature: ipc.FeatureSpaces},

		// limits.conns, conns_per_user, dials
		ipc.KindDial:     {data: (*shard.Shard).Dial, before: (*controlConn).reach},
		ipc.KindListen:   {data: (*shard.Shard).Listen, before: (*controlConn).mayOffer}, // limits.services
		ipc.KindUnlisten: {data: (*shard.Shard).Unlisten},

		ipc.KindAccept: {conn: (*shard.Shard).Accept},
		ipc.KindRefuse: {conn: (*shard.Shard).Refuse},
		ipc.KindExport: {data: (*shard.Shard).Export}, // limits.exports
		ipc.KindRevoke: {data: (*shard.Shard).Revoke},
		ipc.KindClose:  {conn: (*shard.Shard).CloseConn},
		ipc.KindAbort:  {conn: (*shard.Shard).Abort},

		ipc.KindQueue:   {data: (*shard.Shard).MakeQueue}, // maxQueues
		ipc.KindUnqueue: {data: (*shard.Shard).DropQueue},
		ipc.KindJoin:    {conn: (*shard.Shard).JoinQueue},

		ipc.KindStatus:  {control: (*controlConn).inform, weight: weightLook}, // pageRoom
		ipc.KindDoctor:  {control: (*controlConn).inform, weight: weightLook}, // pageRoom
		ipc.KindVersion: {control: (*controlConn).inform},
		ipc.KindPing:    {control: (*controlConn).startPing}, // one of a client; maxPings
		ipc.KindDrain:   {control: (*controlConn).drain},
		ipc.KindReload:  {control: (*controlConn).reload},
		ipc.KindTrace:   {control: (*controlConn).trace, weight: weightLook}, // one of the daemon; tapRoom
		ipc.KindWatch:   {control: (*controlConn).watch},                     // one of a client; maxWatchers, newsRoom
	}
}

// handler returns who serves a kind of request, if this client may make it.
func (ss *controlConn) handler(kind ipc.Kind) (h handler, ok bool) {
	h, ok = handlers[kind]
	return h, ok && h.feature&^ss.features == 0
}

// request serves m.
func (ss *controlConn) request(m *ipc.Message) (*ipc.Message, error) {
	h, ok := ss.handler(m.Kind)
	switch {
	case !ok:
		return nil, ipc.Errorf(ipc.CodeUnknownKind, "this daemon (versions %d to %d) does not know requests of %s; "+
			"upgrade it, or do without", ipc.LowestVersion, ipc.HighestVersion, m.Kind)
	case ss.client == nil && (h.attached || h.control == nil):
		return nil, ipc.Errorf(ipc.CodeInvalid, "%s needs a hello first", m.Kind)
	case h.control != nil:
		return h.control(ss, m)
	}
	if h.before != nil {
		if err := h.before(ss, m); err != nil {
			return nil, err
		}
	}
	return nil, ss.onShard(&h, m)
}

// onShard has the client's shard serve m, and does not wait for that: a later request does (settle).
func (ss *controlConn) onShard(h *handler, m *ipc.Message) error {
	s, c := ss.shard, ss.client
	done, err := s.Serve(c, m, func(now mono.Time) (*ipc.Message, error) {
		if h.data != nil {
			return h.data(s, now, c, m)
		}
		cn := s.Conn(c, m.Conn, m.Kind == ipc.KindClose || m.Kind == ipc.KindAbort)
		if cn == nil {
			return nil, ipc.Errorf(ipc.CodeNoConn, "there is no connection %d", m.Conn)
		}
		return h.conn(s, now, cn, m)
	})
	if err == nil {
		ss.served = append(ss.served, done)
	}
	return err
}
