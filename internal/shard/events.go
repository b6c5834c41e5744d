package shard

import (
	"context"
	"log/slog"
	"math"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// handleEvents takes everything the engine has to report.
func (s *Shard) handleEvents(now mono.Time) (worked bool) {
	ev := &s.ev
	for s.eng.PollEvent(ev) {
		worked = true
		if ev.Kind == engine.EvComplete {
			s.completed(ev)
			continue
		}
		if ev.Kind == engine.EvReceived {
			s.received(ev)
			continue
		}
		if ev.Kind == engine.EvLate {
			s.late(ev)
			continue
		}
		if ev.Kind == engine.EvRedirected {
			s.redirected(ev)
			continue
		}
		s.handleEvent(now, ev)
	}
	return worked
}

func (s *Shard) handleEvent(now mono.Time, ev *engine.Event) {
	switch ev.Kind {
	case engine.EvPeerUp:
		s.log.Info("peer up", "peer", ev.PeerName, "node", ev.Peer.String())
		s.tell(Notice{Kind: NoticePeerUp, Peer: ev.PeerName, Node: ev.Peer.String()})
		return
	case engine.EvPeerDown:
		s.log.Warn("peer down", "peer", ev.PeerName, "node", ev.Peer.String(), "reason", ev.Status.String())
		s.tell(Notice{Kind: NoticePeerDown, Peer: ev.PeerName, Node: ev.Peer.String(), Text: ev.Status.String()})
		return
	case engine.EvPath:
		level := slog.LevelInfo
		if ev.Minor {
			level = slog.LevelDebug
		}
		if !s.stopping.Load() {
			s.log.Log(context.Background(), level, "path changed", "peer", ev.PeerName, "link",
				s.linkName(int(ev.Link)), "state", ev.Text)
			s.tell(Notice{Kind: NoticePath, Peer: ev.PeerName, Link: s.linkName(int(ev.Link)), Text: ev.Text})
		}
		return
	case engine.EvClaim:
		s.tell(Notice{Kind: NoticeClaim, Link: s.linkName(int(ev.Link)), Text: ev.Text})
		s.log.Warn(ClaimText, "link", s.linkName(int(ev.Link)), "mac", ev.Text, "reason",
			s.twin.Reason, "remedy", s.twin.Remedy)
		return
	case engine.EvIncoming:
		s.incoming(now, ev)
		return
	}
	if p := s.pings[ev.Conn]; p != nil {
		s.pinged(now, p, ev)
		return
	}
	cn := s.clients.conns[ev.Conn]
	if cn == nil {
		return
	}
	switch ev.Kind {
	case engine.EvNotify:
		s.notified(cn)
	case engine.EvConnected:
		s.connected(cn, ev)
	case engine.EvClosed:
		s.closed(cn, ev)
	case engine.EvAdvert, engine.EvWithdrawn:
		s.advert(now, cn, ev)
	}
}

// advert tells a client of memory that a peer exported or took back. A peer that does so faster than the client reads
// loses its connection; otherwise the client would be evicted for the peer's fault.
func (s *Shard) advert(now mono.Time, cn *Conn, ev *engine.Event) {
	c := cn.client
	if c.leavesUnread(c.out.limit / 2) {
		s.eng.Abort(now, cn.id, engine.StatusLimit)
		return
	}
	switch ev.Kind {
	case engine.EvAdvert:
		a := &ev.Advert
		s.say(c, &ipc.Message{Kind: ipc.KindAdvert, Conn: uint32(cn.id), Name: a.Name, Key: uint64(a.Key), Size: a.Size,
			Perm: uint8(a.Perm), Number: a.Number})
	case engine.EvWithdrawn:
		s.say(c, &ipc.Message{Kind: ipc.KindWithdrawn, Conn: uint32(cn.id), Key: uint64(ev.Advert.Key)})
	}
}

// incoming offers a peer's request to the client that listens.
func (s *Shard) incoming(now mono.Time, ev *engine.Event) {
	c := s.clients.services[ev.Service]
	if c == nil {
		s.eng.Refuse(now, ev.Conn, "nobody listens any more")
		return
	}
	s.eng.SetOwner(ev.Conn, c.owner()) // refusals are charged too
	switch {
	case s.draining:
		s.eng.Refuse(now, ev.Conn, "the daemon is being drained")
		return
	case c.backlog >= s.limits.Backlog:
		s.eng.Refuse(now, ev.Conn, "too many requests wait for the service to answer; try again, or raise "+
			"limits.backlog there")
		return
	case c.leavesUnread(OutboxLimit / 2): // or it would be evicted for its peers' fault
		s.eng.Refuse(now, ev.Conn, "the service does not read fast enough")
		return
	}
	if err := s.connRoom(c); err != nil { // once: other shards count the user's, too
		s.eng.Refuse(now, ev.Conn, "the service has no room: "+err.(*ipc.Error).Text)
		return
	}
	inside := uint32(0)
	if ev.Token != 0 {
		uid, waits := s.clients.offered.caller(ev.Token)
		if !waits {
			s.eng.Refuse(now, ev.Conn, "the caller has gone")
			return
		}
		inside = uid + 1
	}
	cn := s.newConn(c, ev.Conn, connIncoming)
	cn.peer = peerName(ev)
	c.backlog++
	m := &ipc.Message{Kind: ipc.KindIncoming, Conn: uint32(cn.id), Service: ev.Service, Peer: cn.peer, Data: ev.Data}
	m.Caller, m.Node = inside, ev.Peer.String()
	s.say(c, m)
}

func peerName(ev *engine.Event) string {
	if ev.PeerName != "" {
		return ev.PeerName
	}
	return ev.Peer.String()
}

func (s *Shard) newConn(c *Client, id engine.ConnID, state connState) *Conn {
	cn := &Conn{id: id, client: c, state: state}
	c.conns[id] = cn
	s.clients.conns[id] = cn
	c.user.conns.Add(1)
	return cn
}

// answered notes that a dial does not wait any more.
func (s *Shard) answered(cn *Conn) {
	if cn.dials {
		cn.dials = false
		cn.client.dialing--
		cn.client.user.dials.Add(-1)
	}
	if cn.inside {
		cn.inside = false
		s.clients.offered.called(engine.InsideToken(s.number, cn.id))
	}
}

// connected answers dial and accept.
func (s *Shard) connected(cn *Conn, ev *engine.Event) {
	kind := ipc.KindAccept
	s.answered(cn)
	switch cn.state {
	case connDialing:
		kind = ipc.KindDial
		cn.peer = peerName(ev)
	case connAccepting:
	default:
		return
	}
	cn.state = connOpen
	m := &ipc.Message{ID: cn.request, Answer: true, Kind: kind, Conn: uint32(cn.id), Peer: cn.peer, Data: ev.Data}
	m.Node = ev.Peer.String()
	s.say(cn.client, m)
}

// closed ends a connection for its client: by the pending reply, else by an event. Remaining notifications come first;
// if they must wait, the client is told at once that the connection has ended. A client that closes has given up its
// notifications and does not wait until those of other connections find room.
func (s *Shard) closed(cn *Conn, ev *engine.Event) {
	status := ev.Status
	text := ev.Text // empty: no more is known than the status, which the library puts in words
	failure := &ipc.Error{Code: status.Code(), Text: text}
	cn.why = ipc.StatusNoConn
	s.answered(cn)
	var m *ipc.Message
	switch cn.state {
	case connDialing:
		m = &ipc.Message{ID: cn.request, Answer: true, Kind: ipc.KindDial, Error: failure}
	case connAccepting:
		m = &ipc.Message{ID: cn.request, Answer: true, Kind: ipc.KindAccept, Error: failure}
	case connClosing:
		m = &ipc.Message{ID: cn.request, Answer: true, Kind: ipc.KindClose, Conn: uint32(cn.id)}
		if ev.Status != engine.OK && ev.Status != engine.StatusReset { // the peer was faster
			m = &ipc.Message{ID: cn.request, Answer: true, Kind: ipc.KindClose, Error: failure}
		}
	case connIncoming:
		cn.client.backlog--
		m = &ipc.Message{Kind: ipc.KindClosed, Conn: uint32(cn.id), Code: status.Code(), Text: text}
	case connOpen:
		if ev.Status == engine.OK {
			status = ipc.StatusClosed
		}
		m = &ipc.Message{Kind: ipc.KindClosed, Conn: uint32(cn.id), Code: status.Code(), Text: text}
		cn.why = status
		cn.left = append(cn.left, ev.Notes...)
	case connAborted, connEnding, connOver:
	}
	cn.state, cn.farewell = connEnding, m
	switch {
	case cn.client.rings == nil: // its keys go with the client's memory
		s.forget(cn)
	case s.dropExports(cn):
		s.ended(cn)
	default:
		s.dropRest(cn)
	}
}

// ended says farewell to a connection of which no peer has a key any more.
func (s *Shard) ended(cn *Conn) {
	if s.clients.conns[cn.id] != cn {
		return // forgotten meanwhile, with its client
	}
	m := cn.farewell
	cn.state = connOver
	switch {
	case len(cn.left) == 0:
		s.forget(cn)
	case cn.queued:
		cn.client.unpark(cn) // deliver says farewell
	default:
		s.notified(cn)
	}
	if len(cn.left) > 0 {
		s.say(cn.client, &ipc.Message{Kind: ipc.KindEnded, Conn: uint32(cn.id), Code: m.Code, Text: m.Text})
	}
}

// forget removes a connection the engine no longer knows and tells the client.
func (s *Shard) forget(cn *Conn) {
	c := cn.client
	c.dequeue(cn)
	delete(s.clients.conns, cn.id)
	delete(c.conns, cn.id)
	c.user.conns.Add(-1)
	if c.last == cn {
		c.last = nil
	}
	if cn.state >= connEnding {
		c.ends.add(uint32(cn.id), cn.why)
	}
	if cn.farewell != nil {
		s.say(c, cn.farewell)
	}
}

// dropExports revokes the keys given to a connection that has ended, which serve nobody any more: as many as this
// iteration may revoke. It reports whether none is left. In either case no frame that waits has bytes of the memory
// any more: the client may hear of the end in several ways, and may then write there.
func (s *Shard) dropExports(cn *Conn) (all bool) {
	s.clients.mayRevoke -= s.grants.RevokeOwner(uint64(cn.id), s.clients.mayRevoke)
	s.dropRevoked()
	if s.grants.Owned(uint64(cn.id)) == 0 {
		return true
	}
	s.dropGathered()
	return false
}

// dropRest goes on with it, a piece at each turn of the client's user, and says farewell at the end. All connections
// of a user that have ended share one piece: a request of the user waits for one piece, not for one a connection.
func (s *Shard) dropRest(cn *Conn) {
	u := cn.client.user
	list, queued := s.clients.ending[u]
	s.clients.ending[u] = append(list, cn)
	if !queued {
		s.queueEnding(u)
	}
}

func (s *Shard) queueEnding(u *User) {
	if s.box.queue(u, func(mono.Time) { s.endSome(u, revokePiece) }) != nil { // the shard stops
		s.endSome(u, math.MaxInt)
	}
}

// endSome revokes keys of a user's connections that have ended. A connection counts as much as a key, and there may be
// most of both.
func (s *Shard) endSome(u *User, most int) {
	list := s.clients.ending[u]
	for len(list) > 0 && most > 0 {
		cn := list[0]
		most--
		most -= s.grants.RevokeOwner(uint64(cn.id), most)
		s.dropRevoked()
		if s.grants.Owned(uint64(cn.id)) > 0 {
			break // as many as may be
		}
		list[0] = nil
		list = list[1:]
		s.ended(cn)
	}
	if len(list) == 0 {
		delete(s.clients.ending, u)
		return
	}
	s.clients.ending[u] = list
	s.queueEnding(u)
}

// unexported is told by the table of a grant that ended.
func (s *Shard) unexported(owner uint64, mem []byte) {
	if slot, _, shared := regmem.DomainOf(owner); shared {
		s.clients.list[slot].exported(-1)
	} else if cn := s.clients.conns[engine.ConnID(owner)]; cn != nil {
		cn.client.exported(-1)
	}
	if s.links.blockedLinks > 0 {
		s.clients.revoked = append(s.clients.revoked, mem)
	}
}

// dropRevoked drops the frames that wait and refer to memory of grants that ended.
func (s *Shard) dropRevoked() {
	for _, mem := range s.clients.revoked {
		s.dropReferring(mem)
	}
	s.clients.revoked = nil
}

func (s *Shard) linkName(i int) string {
	if i < len(s.links.byIndex) && s.links.byIndex[i] != nil {
		return s.links.byIndex[i].cfg.Name
	}
	return "?"
}
