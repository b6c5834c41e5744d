package daemon

import (
	"context"
	"log/slog"
	"net"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// handleEvents takes everything the engine has to report.
func (s *shard) handleEvents(now mono.Time) (worked bool) {
	ev := &s.ev
	for s.eng.PollEvent(ev) {
		worked = true
		if ev.Kind == engine.EvComplete {
			s.completed(ev)
			continue
		}
		s.handleEvent(now, ev)
	}
	return worked
}

func (s *shard) handleEvent(now mono.Time, ev *engine.Event) {
	switch ev.Kind {
	case engine.EvPeerUp:
		s.log.Info("peer up", "peer", ev.PeerName, "node", ev.Peer.String())
		return
	case engine.EvPeerDown:
		s.log.Warn("peer down", "peer", ev.PeerName, "node", ev.Peer.String(), "reason", ev.Status.String())
		return
	case engine.EvPath:
		level := slog.LevelInfo
		if ev.Minor {
			level = slog.LevelDebug
		}
		if !s.stopping.Load() {
			s.log.Log(context.Background(), level, "path changed", "peer", ev.PeerName, "link", s.linkName(int(ev.Link)), "state", ev.Text)
		}
		return
	case engine.EvClaim:
		s.log.Warn(claimText, "link", s.linkName(int(ev.Link)), "mac", net.HardwareAddr(ev.Data).String(), "reason", s.twin.reason, "remedy", s.twin.remedy)
		return
	case engine.EvIncoming:
		s.incoming(now, ev)
		return
	}
	if p := s.pings[ev.Conn]; p != nil {
		s.pinged(now, p, ev)
		return
	}
	cn := s.conns[ev.Conn]
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

// advert tells a client of memory that a peer exported or took back. A peer that does so faster than the client reads loses its connection, lest
// the client be evicted for it.
func (s *shard) advert(now mono.Time, cn *conn, ev *engine.Event) {
	c := cn.client
	if len(c.msgs)+c.session.out.length() > c.session.out.limit/2 {
		s.eng.Abort(now, cn.id, engine.StatusLimit)
		return
	}
	switch ev.Kind {
	case engine.EvAdvert:
		a := &ev.Advert
		s.say(c, &ipc.Message{Kind: ipc.KindAdvert, Conn: uint32(cn.id), Name: a.Name, Key: uint64(a.Key), Size: a.Size, Perm: uint8(a.Perm), Count: int(a.Number)})
	case engine.EvWithdrawn:
		s.say(c, &ipc.Message{Kind: ipc.KindWithdrawn, Conn: uint32(cn.id), Key: uint64(ev.Advert.Key)})
	}
}

// incoming offers a peer's request to the client that listens.
func (s *shard) incoming(now mono.Time, ev *engine.Event) {
	c := s.services[ev.Service]
	switch {
	case c == nil:
		s.eng.Refuse(now, ev.Conn, "nobody listens any more")
		return
	case s.draining:
		s.eng.Refuse(now, ev.Conn, "the daemon is being drained")
		return
	case c.backlog >= s.limits.Backlog:
		s.eng.Refuse(now, ev.Conn, "too many requests wait for the service to answer; try again, or raise limits.backlog there")
		return
	case len(c.msgs)+c.session.out.length() > outboxLimit/2: // lest it be evicted for what peers do
		s.eng.Refuse(now, ev.Conn, "the service does not read fast enough")
		return
	case s.connRoom(c) != nil:
		s.eng.Refuse(now, ev.Conn, "the service has no room: "+s.connRoom(c).(*ipc.Error).Text)
		return
	}
	cn := s.newConn(c, ev.Conn, connIncoming)
	cn.peer = peerName(ev)
	c.backlog++
	s.say(c, &ipc.Message{Kind: ipc.KindIncoming, Conn: uint32(cn.id), Service: ev.Service, Peer: cn.peer, Data: ev.Data})
}

func peerName(ev *engine.Event) string {
	if ev.PeerName != "" {
		return ev.PeerName
	}
	return ev.Peer.String()
}

func (s *shard) newConn(c *client, id engine.ConnID, state connState) *conn {
	cn := &conn{id: id, client: c, state: state}
	c.conns[id] = cn
	s.conns[id] = cn
	c.account.conns.Add(1)
	return cn
}

// connected answers dial and accept.
func (s *shard) connected(cn *conn, ev *engine.Event) {
	kind := ipc.KindAccept
	switch cn.state {
	case connDialing:
		kind = ipc.KindDial
		cn.peer = peerName(ev)
	case connAccepting:
	default:
		return
	}
	cn.state = connOpen
	s.say(cn.client, &ipc.Message{ID: cn.request, Kind: kind, Conn: uint32(cn.id), Peer: cn.peer, Data: ev.Data})
}

// closed ends a connection for its client: by the reply that is due, else by an event. Notifications that are left come first, and if they must wait the client
// hears at once that the connection has ended; who closes has given up its own, and does not wait for other connections' to find room.
func (s *shard) closed(cn *conn, ev *engine.Event) {
	status := ipc.Status(ev.Status)
	text := ev.Text
	if text == "" {
		text = ev.Status.String()
	}
	failure := &ipc.Error{Code: status.Code(), Text: text}
	cn.why = ipc.StatusNoConn
	var m *ipc.Message
	switch cn.state {
	case connDialing:
		m = &ipc.Message{ID: cn.request, Kind: ipc.KindDial, Error: failure}
	case connAccepting:
		m = &ipc.Message{ID: cn.request, Kind: ipc.KindAccept, Error: failure}
	case connClosing:
		m = &ipc.Message{ID: cn.request, Kind: ipc.KindClose, Conn: uint32(cn.id)}
		if ev.Status != engine.OK && ev.Status != engine.StatusClosed {
			m = &ipc.Message{ID: cn.request, Kind: ipc.KindClose, Error: failure}
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
	case connAborted, connOver:
	}
	s.dropExports(cn)
	cn.state, cn.farewell = connOver, m
	switch {
	case len(cn.left) == 0 || cn.client.rings == nil:
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
func (s *shard) forget(cn *conn) {
	c := cn.client
	c.dequeue(cn)
	delete(s.conns, cn.id)
	delete(c.conns, cn.id)
	c.account.conns.Add(-1)
	if c.last == cn {
		c.last = nil
	}
	if cn.state == connOver {
		c.ends.add(uint32(cn.id), cn.why)
	}
	if cn.farewell != nil {
		s.say(c, cn.farewell)
	}
}

// dropExports forgets the keys given to a connection. The peer that held them is gone, or does not know yet: it reads no more either.
func (s *shard) dropExports(cn *conn) {
	s.grants.RevokeOwner(uint64(cn.id))
	for _, mem := range cn.exports {
		s.dropReferring(mem)
	}
	cn.client.exports -= len(cn.exports)
	clear(cn.exports)
}

func (s *shard) linkName(i int) string {
	if i < len(s.byIndex) && s.byIndex[i] != nil {
		return s.byIndex[i].cfg.Name
	}
	return "?"
}
