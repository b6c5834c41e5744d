package shard

import (
	"errors"
	"slices"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
	"multiedge/sched"
)

// The control half of a client asks for these. Requests that have to do with connections run on the shard's thread, by
// Serve; their answers are said to the client in order with its completions.

// Serve has f run as the shard, and what it returns said to the client: a reply, or an error as the answer to m. A nil
// reply without an error comes with a later event. done is closed when f has run, which Serve does not wait for. Any
// goroutine may call it. Those of a client run in order, each in an iteration of its own, and few of them wait.
func (s *Shard) Serve(c *Client, m *ipc.Message, f func(mono.Time) (*ipc.Message, error)) (done <-chan struct{},
	err error) {
	return s.box.begin(c.user, func(now mono.Time) {
		if c.rings == nil {
			return // evicted
		}
		reply, err := f(now)
		if err != nil {
			reply = m.Fail(err)
		}
		if reply != nil {
			s.handleEvents(now) // completions the request caused come before its reply
			s.say(c, reply)
		}
	})
}

// Conn returns a client's connection by its number, nil if there is none or it is over. ending: its client wants no
// more notifications of it.
func (s *Shard) Conn(c *Client, id uint32, ending bool) *Conn {
	cn := c.lookup(id)
	switch {
	case cn == nil || cn.state < connEnding:
		return cn
	case ending && cn.state == connOver:
		s.forget(cn)
	case ending:
		cn.left = nil
	}
	return nil
}

// maxDials is how many dials of a shard may wait for an answer, those of all users: one user may have half as many.
// Whoever dials chooses how long they wait, and the peer may be off.
const maxDials = 1 << 14

// errDraining refuses what is new.
var errDraining = ipc.Errorf(ipc.CodeDraining, "the daemon is being drained and takes nothing new")

// connRoom says which limit keeps a client from having one more connection, and how to go on; nil: none does. Of the
// table of the shard, which all users share, a user may have as much as he leaves to others.
func (s *Shard) connRoom(c *Client) error {
	switch uid := c.user.id; {
	case len(c.conns) >= s.limits.Conns:
		return ipc.Errorf(ipc.CodeLimit, "this client has %d connections already; close some or raise limits.conns",
			len(c.conns))
	case c.user.conns.Load() >= int64(s.limits.ConnsPerUser):
		return ipc.Errorf(ipc.CodeLimit, "the clients of %v have %d connections already; close some or raise "+
			"limits.conns_per_user", Owner(uid), c.user.conns.Load())
	}
	if left := s.eng.ConnsLeft(); c.user.conns.Load() >= int64(left) && s.connsOf(c.user) >= left {
		return ipc.Errorf(ipc.CodeLimit, "this node has room for %d connections more, and the clients of %v have as "+
			"many already; close some", left, Owner(c.user.id))
	}
	return nil
}

// connsOf is how many connections of this shard the clients of a user have.
func (s *Shard) connsOf(u *User) (n int) {
	for _, c := range s.clients.list {
		if c != nil && c.user == u {
			n += len(c.conns)
		}
	}
	return n
}

// Dial asks a peer for a connection; the reply comes when it answers.
func (s *Shard) Dial(now mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	if s.draining {
		return nil, errDraining
	}
	if err := s.connRoom(c); err != nil {
		return nil, err
	}
	if m.Domain != 0 && c.Features&ipc.FeatureDomains == 0 {
		return nil, errNoDomains
	}
	if c.dialing >= s.limits.Dials {
		return nil, ipc.Errorf(ipc.CodeLimit,
			"%d dials of this client wait for an answer already; wait for some or raise "+
				"limits.dials", c.dialing)
	}
	if c.user.dials.Load() >= maxDials/2 {
		return nil, ipc.Errorf(ipc.CodeLimit, "%d dials of %v wait for an answer already; wait for some",
			c.user.dials.Load(), Owner(c.user.id))
	}
	if m.Overlap && (!m.Ordered || c.Features&ipc.FeatureOverlap == 0) {
		return nil, ipc.Errorf(ipc.CodeInvalid, "OVERLAP stands beside ORDERED, of a client with that feature")
	}
	if m.Scheduler != "" {
		if _, err := sched.New(m.Scheduler); err != nil {
			return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
		}
	}
	id, err := s.eng.Dial(now, m.Peer, m.Service, engine.DialOptions{
		Ordered: m.Ordered, Overlap: m.Overlap, Data: m.Data, Scheduler: m.Scheduler, Timeout: m.Timeout,
		Owner: c.owner(),
	})
	if errors.Is(err, engine.ErrConns) {
		return nil, ipc.Errorf(ipc.CodeLimit, "this node takes no more connections: %v; close some", err)
	}
	if errors.Is(err, engine.ErrDials) {
		return nil, ipc.Errorf(ipc.CodeLimit,
			"too many dials of this node wait for an answer: %v; try again when some were answered", err)
	}
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	if m.Domain != 0 {
		s.eng.SetDomain(id, regmem.Domain(uint32(c.slot), m.Domain))
	}
	cn := s.newConn(c, id, connDialing)
	cn.request, cn.peer, cn.dials = m.ID, m.Peer, true
	cn.stops = m.Domain != 0 && c.Features&ipc.FeatureResume != 0
	if s.eng.IsSelf(m.Peer) {
		cn.inside = true
		s.clients.offered.calls(engine.InsideToken(s.number, id), c.label.UID)
	}
	c.dialing++
	c.user.dials.Add(1)
	return nil, nil
}

// Listen offers a service.
func (s *Shard) Listen(_ mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	service := m.Service
	switch {
	case s.draining:
		return nil, errDraining
	case service == "" || service == pingService:
		return nil, ipc.Errorf(ipc.CodeInvalid, "%q cannot be the name of a service", service)
	case len(c.names) >= s.limits.Services:
		return nil, ipc.Errorf(ipc.CodeLimit, "this client offers %d services already; withdraw some or raise "+
			"limits.services", len(c.names))
	}
	if owner := s.clients.offered.claim(service, c); owner != nil {
		return nil, ipc.Errorf(ipc.CodeExists,
			"process %d waits for service %q already; choose another name or stop that "+
				"process", owner.label.PID, service)
	}
	s.eng.Listen(service)
	s.clients.services[service] = c
	c.names = append(c.names, service)
	return m.Reply(), nil
}

// Unlisten withdraws it.
func (s *Shard) Unlisten(_ mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	service := m.Service
	if s.clients.services[service] != c {
		return nil, ipc.Errorf(ipc.CodeInvalid, "this client does not offer service %q", service)
	}
	s.eng.Unlisten(service)
	delete(s.clients.services, service)
	s.clients.offered.release(service)
	for i, name := range c.names {
		if name == service {
			c.names = slices.Delete(c.names, i, i+1)
			break
		}
	}
	return m.Reply(), nil
}

// Accept takes a peer's request; the reply comes when the connection is open.
func (s *Shard) Accept(now mono.Time, cn *Conn, m *ipc.Message) (*ipc.Message, error) {
	if cn.state != connIncoming {
		return nil, errNotIncoming(cn)
	}
	if m.Domain != 0 {
		if cn.client.Features&ipc.FeatureDomains == 0 {
			return nil, errNoDomains
		}
		s.eng.SetDomain(cn.id, regmem.Domain(uint32(cn.client.slot), m.Domain))
		cn.stops = cn.client.Features&ipc.FeatureResume != 0
	}
	cn.client.backlog--
	cn.state, cn.request = connAccepting, m.ID
	if err := s.eng.Accept(now, cn.id, m.Data); err != nil {
		cn.state = connIncoming // its end has been reported by the engine and is about to reach the client
		cn.client.backlog++
		return nil, ipc.Errorf(ipc.StatusReset.Code(), "the peer gave up: %v", err)
	}
	return nil, nil
}

// Refuse turns a peer's request down.
func (s *Shard) Refuse(now mono.Time, cn *Conn, m *ipc.Message) (*ipc.Message, error) {
	if cn.state != connIncoming {
		return nil, errNotIncoming(cn)
	}
	s.eng.Refuse(now, cn.id, m.Text)
	cn.client.backlog--
	s.forget(cn)
	return m.Reply(), nil
}

func errNotIncoming(cn *Conn) error {
	return ipc.Errorf(ipc.CodeInvalid, "connection %d does not wait to be answered", cn.id)
}

// CloseConn ends a connection in order; the reply of an open one comes when the peer has everything.
func (s *Shard) CloseConn(now mono.Time, cn *Conn, m *ipc.Message) (*ipc.Message, error) {
	switch cn.state {
	case connOpen:
		cn.state, cn.request = connClosing, m.ID
		s.eng.Close(now, cn.id)
		return nil, nil
	case connIncoming, connAccepting, connDialing:
		return s.Abort(now, cn, m)
	}
	return nil, ipc.Errorf(ipc.CodeNoConn, "connection %d is being closed already", cn.id)
}

// Abort ends a connection at once. The client is told nothing more of it, except the answer to a request it is still
// waiting for.
func (s *Shard) Abort(now mono.Time, cn *Conn, m *ipc.Message) (*ipc.Message, error) {
	switch cn.state {
	case connIncoming:
		s.eng.Refuse(now, cn.id, "the service went away")
		cn.client.backlog--
		s.forget(cn)
	case connAborted:
	default: // of dial, accept and close the reply follows by closed
		if cn.state == connOpen {
			cn.state = connAborted
		}
		s.eng.Abort(now, cn.id, engine.StatusAborted)
		s.dropExports(cn) // the rest by closed
	}
	return m.Reply(), nil
}

// Export gives the peer of a connection, or those of a domain, a key to part of a region.
func (s *Shard) Export(now mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	r, err := s.exportable(c, m)
	switch {
	case err != nil:
		return nil, err
	case m.Domain != 0:
		return s.exportShared(c, r, m)
	}
	cn := s.Conn(c, m.Conn, false)
	switch {
	case cn == nil || cn.state != connOpen:
		return nil, ipc.Errorf(ipc.CodeNoConn, "connection %d is not open", m.Conn)
	case m.Name == "":
		return nil, ipc.Errorf(ipc.CodeInvalid, "exported memory needs a name")
	}
	key, err := s.grants.Grant(r, uint64(cn.id), regmem.Perm(m.Perm), m.Off, m.Size)
	if err != nil {
		return nil, grantError(err)
	}
	c.exported(1)
	number, ok := s.eng.Advertise(now, cn.id,
		engine.Advert{Name: m.Name, Key: key, Size: m.Size, Perm: regmem.Perm(m.Perm)})
	if !ok {
		s.grants.Revoke(key)
		return nil, ipc.Errorf(ipc.CodeNoConn, "connection %d has just ended", cn.id)
	}
	s.grants.SetNumber(key, number)
	reply := m.Reply()
	reply.Conn, reply.Key, reply.Size = m.Conn, uint64(key), m.Size
	return reply, nil
}

// exportShare is how many times limits.exports the clients of a user may have together.
const exportShare = 4

// exportable returns the region that is to be exported.
func (s *Shard) exportable(c *Client, m *ipc.Message) (*regmem.Region, error) {
	r := c.regions.get(m.Region)
	switch {
	case r == nil:
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", m.Region)
	case carried(r) && regmem.Perm(m.Perm)&regmem.RemoteAtomic != 0:
		return nil, ipc.Errorf(ipc.CodeInvalid, "region %d is a heap grant, whose bytes are copied: atomics need "+
			"memory that was registered", r.ID)
	case c.exports >= s.limits.Exports:
		return nil, ipc.Errorf(ipc.CodeLimit, "this client has %d exports already; revoke some or raise limits.exports",
			c.exports)
	case c.user.exports.Load() >= exportShare*int64(s.limits.Exports):
		return nil, ipc.Errorf(ipc.CodeLimit, "the clients of %v have %d exports already; revoke some or raise "+
			"limits.exports, of which a user has %d times as many", Owner(c.user.id), c.user.exports.Load(),
			exportShare)
	}
	return r, nil
}

var errNoDomains = ipc.Errorf(ipc.CodeInvalid, "the client did not ask for domains when it attached")

// exportShared gives the peers of a domain a key to part of a region. Nobody is told of it: the owner says it himself.
func (s *Shard) exportShared(c *Client, r *regmem.Region, m *ipc.Message) (*ipc.Message, error) {
	switch {
	case c.Features&ipc.FeatureDomains == 0:
		return nil, errNoDomains
	case m.Conn != 0 || m.Name != "":
		return nil, ipc.Errorf(ipc.CodeInvalid, "memory for a domain has neither connection nor name")
	case carried(r):
		return nil, ipc.Errorf(ipc.CodeInvalid, "region %d is a heap grant: a domain needs memory that was registered",
			r.ID)
	}
	key, err := s.grants.GrantShared(r, regmem.Domain(uint32(c.slot), m.Domain), regmem.Perm(m.Perm), m.Off, m.Size,
		m.High, m.Base)
	if err != nil {
		return nil, grantError(err)
	}
	c.exported(1)
	reply := m.Reply()
	reply.Key, reply.Size = uint64(key), m.Size
	return reply, nil
}

func grantError(err error) error {
	code := ipc.CodeInternal
	switch {
	case errors.Is(err, regmem.ErrBounds):
		code = ipc.StatusBounds.Code()
	case errors.Is(err, regmem.ErrPermission):
		code = ipc.CodeInvalid
	case errors.Is(err, regmem.ErrQuota):
		code = ipc.CodeLimit
	}
	return ipc.Errorf(code, "%v", err)
}

// Revoke takes a key back: of a connection's, or, where none is named, of a domain's.
func (s *Shard) Revoke(now mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	key := regmem.Key(m.Key)
	if m.Conn == 0 {
		owner, _ := s.grants.OwnerOf(key)
		if slot, _, shared := regmem.DomainOf(owner); !shared || int(slot) != c.slot {
			return nil, ipc.Errorf(ipc.StatusKey.Code(), "no domain of this client was given key %#x", uint64(key))
		}
		s.exchange.settle()
		s.grants.Revoke(key)
		s.dropRevoked()
		return m.Reply(), nil
	}
	cn := s.Conn(c, m.Conn, false)
	if cn == nil {
		return nil, ipc.Errorf(ipc.CodeNoConn, "there is no connection %d", m.Conn)
	}
	if !s.grants.Holds(key, uint64(cn.id)) {
		return nil, ipc.Errorf(ipc.StatusKey.Code(), "connection %d was not given key %#x", cn.id, uint64(key))
	}
	s.exchange.settle()
	number := s.grants.Number(key)
	s.grants.Revoke(key)
	s.dropRevoked()
	s.eng.Withdraw(now, cn.id, key, number)
	return m.Reply(), nil
}
