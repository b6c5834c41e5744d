package daemon

import (
	"errors"
	"slices"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
	"multiedge/sched"
)

// request serves m. A nil reply without an error means that the reply was sent or will be by the shard.
func (ss *session) request(m *ipc.Message) (*ipc.Message, error) {
	switch m.Kind {
	case ipc.KindHello:
		return ss.hello(m)
	case ipc.KindStatus, ipc.KindDoctor, ipc.KindVersion:
		return ss.inform(m)
	case ipc.KindPing:
		return ss.startPing(m)
	case ipc.KindReload:
		return ss.reload(m)
	case ipc.KindDrain:
		return ss.drain(m)
	case ipc.KindTrace:
		return ss.trace(m)
	}
	if !m.Kind.Request() {
		return nil, ipc.Errorf(ipc.CodeUnknownKind, "this daemon does not know requests of kind %q", m.Kind)
	}
	if ss.client == nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%s needs a hello first", m.Kind)
	}
	if m.Kind == ipc.KindRegister {
		return ss.register(m)
	}
	if m.Kind == ipc.KindDeregister {
		return ss.deregister(m)
	}
	return ss.onShard(m)
}

// onShard serves the requests that are short and change what the shard owns. Their replies go through the shard, so that they
// are sent after the completions that precede them.
func (ss *session) onShard(m *ipc.Message) (*ipc.Message, error) {
	s, c := ss.shard, ss.client
	err := s.box.do(func(now mono.Time) {
		if c.rings == nil {
			return // evicted
		}
		reply, err := s.request(now, c, m)
		if err != nil {
			reply = m.Fail(err)
		}
		if reply != nil {
			s.handleEvents(now) // completions the request caused come before its reply
			s.say(c, reply)
		}
	})
	return nil, err
}

// request serves m on the shard. A nil reply without an error comes with a later event.
func (s *shard) request(now mono.Time, c *client, m *ipc.Message) (*ipc.Message, error) {
	switch m.Kind {
	case ipc.KindDial:
		return nil, s.dial(now, c, m)
	case ipc.KindListen:
		return m.Reply(), s.listen(c, m.Service)
	case ipc.KindUnlisten:
		return m.Reply(), s.unlisten(c, m.Service)
	}
	cn := c.lookup(m.Conn)
	if cn != nil && cn.state == connOver && (m.Kind == ipc.KindClose || m.Kind == ipc.KindAbort) {
		s.forget(cn) // its owner wants no more notifications of it
		cn = nil
	}
	if cn == nil || cn.state == connOver {
		return nil, ipc.Errorf(ipc.CodeNoConn, "there is no connection %d", m.Conn)
	}
	switch m.Kind {
	case ipc.KindAccept:
		return nil, s.accept(now, cn, m)
	case ipc.KindRefuse:
		return m.Reply(), s.refuse(now, cn, m)
	case ipc.KindExport:
		return s.export(now, cn, m)
	case ipc.KindRevoke:
		return m.Reply(), s.revoke(now, cn, regmem.Key(m.Key))
	case ipc.KindClose:
		return s.closeConn(now, cn, m)
	case ipc.KindAbort:
		return m.Reply(), s.abort(now, cn)
	}
	return nil, ipc.Errorf(ipc.CodeUnknownKind, "requests of kind %q are not served", m.Kind)
}

func (s *shard) dial(now mono.Time, c *client, m *ipc.Message) error {
	if s.draining {
		return errDraining
	}
	if err := s.connRoom(c); err != nil {
		return err
	}
	if m.Scheduler != "" {
		if _, err := sched.New(m.Scheduler); err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "%v", err)
		}
	}
	id, err := s.eng.Dial(now, m.Peer, m.Service, engine.DialOptions{
		Ordered: m.Ordered, Data: m.Data, Scheduler: m.Scheduler, Timeout: m.Timeout,
	})
	if errors.Is(err, engine.ErrConns) {
		return ipc.Errorf(ipc.CodeLimit, "this node takes no more connections: %v; close some", err)
	}
	if err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	cn := s.newConn(c, id, connDialing)
	cn.request, cn.peer = m.ID, m.Peer
	return nil
}

func (s *shard) listen(c *client, service string) error {
	switch {
	case s.draining:
		return errDraining
	case service == "" || service == pingService:
		return ipc.Errorf(ipc.CodeInvalid, "%q cannot be the name of a service", service)
	case len(c.names) >= s.limits.Services:
		return ipc.Errorf(ipc.CodeLimit, "this client offers %d services already; withdraw some or raise limits.services", len(c.names))
	}
	if owner := s.offered.claim(service, c); owner != nil {
		return ipc.Errorf(ipc.CodeExists, "process %d waits for service %q already; choose another name or stop that process", owner.session.cred.PID, service)
	}
	s.eng.Listen(service)
	s.services[service] = c
	c.names = append(c.names, service)
	return nil
}

func (s *shard) unlisten(c *client, service string) error {
	if s.services[service] != c {
		return ipc.Errorf(ipc.CodeInvalid, "this client does not offer service %q", service)
	}
	s.eng.Unlisten(service)
	delete(s.services, service)
	s.offered.release(service)
	for i, name := range c.names {
		if name == service {
			c.names = slices.Delete(c.names, i, i+1)
			break
		}
	}
	return nil
}

func (s *shard) accept(now mono.Time, cn *conn, m *ipc.Message) error {
	if cn.state != connIncoming {
		return errNotIncoming(cn)
	}
	cn.client.backlog--
	cn.state, cn.request = connAccepting, m.ID
	if err := s.eng.Accept(now, cn.id, m.Data); err != nil {
		cn.state = connIncoming // its end has been reported by the engine and is about to reach the client
		cn.client.backlog++
		return ipc.Errorf(ipc.StatusClosed.Code(), "the peer gave up: %v", err)
	}
	return nil
}

func (s *shard) refuse(now mono.Time, cn *conn, m *ipc.Message) error {
	if cn.state != connIncoming {
		return errNotIncoming(cn)
	}
	s.eng.Refuse(now, cn.id, m.Text)
	cn.client.backlog--
	s.forget(cn)
	return nil
}

func errNotIncoming(cn *conn) error {
	return ipc.Errorf(ipc.CodeInvalid, "connection %d does not wait to be answered", cn.id)
}

func (s *shard) closeConn(now mono.Time, cn *conn, m *ipc.Message) (*ipc.Message, error) {
	switch cn.state {
	case connOpen:
		cn.state, cn.request = connClosing, m.ID
		s.eng.Close(now, cn.id)
		return nil, nil
	case connIncoming, connAccepting, connDialing:
		return m.Reply(), s.abort(now, cn)
	}
	return nil, ipc.Errorf(ipc.CodeNoConn, "connection %d is being closed already", cn.id)
}

// abort ends a connection at once. The client is told nothing more of it, except the answer to a request it is still waiting for.
func (s *shard) abort(now mono.Time, cn *conn) error {
	switch cn.state {
	case connIncoming:
		s.eng.Refuse(now, cn.id, "the service went away")
		cn.client.backlog--
		s.forget(cn)
	case connAborted:
	case connOpen:
		s.dropExports(cn)
		cn.state = connAborted
		s.eng.Abort(now, cn.id, engine.StatusAborted)
	default: // dial, accept or close: its reply follows by closed
		s.dropExports(cn)
		s.eng.Abort(now, cn.id, engine.StatusAborted)
	}
	return nil
}

func (s *shard) export(now mono.Time, cn *conn, m *ipc.Message) (*ipc.Message, error) {
	c := cn.client
	r := c.regions.get(m.Region)
	switch {
	case cn.state != connOpen:
		return nil, ipc.Errorf(ipc.CodeNoConn, "connection %d is not open", cn.id)
	case r == nil:
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", m.Region)
	case m.Name == "":
		return nil, ipc.Errorf(ipc.CodeInvalid, "exported memory needs a name")
	case c.exports >= s.limits.Exports:
		return nil, ipc.Errorf(ipc.CodeLimit, "this client has %d exports already; revoke some or raise limits.exports", c.exports)
	}
	key, err := s.grants.Grant(r, uint64(cn.id), regmem.Perm(m.Perm), m.Off, m.Size)
	if err != nil {
		return nil, grantError(err)
	}
	if !s.eng.Advertise(now, cn.id, engine.Advert{Name: m.Name, Key: key, Size: m.Size, Perm: regmem.Perm(m.Perm)}) {
		s.grants.Revoke(key)
		return nil, ipc.Errorf(ipc.StatusClosed.Code(), "connection %d is closing", cn.id)
	}
	if cn.exports == nil {
		cn.exports = map[regmem.Key][]byte{}
	}
	cn.exports[key] = r.Mem.Bytes()[m.Off : m.Off+m.Size]
	c.exports++
	reply := m.Reply()
	reply.Conn, reply.Key, reply.Name, reply.Size = m.Conn, uint64(key), m.Name, m.Size
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

func (s *shard) revoke(now mono.Time, cn *conn, key regmem.Key) error {
	mem, ok := cn.exports[key]
	if !ok {
		return ipc.Errorf(ipc.StatusKey.Code(), "connection %d was not given key %#x", cn.id, uint64(key))
	}
	s.exchange.settle()
	s.grants.Revoke(key)
	s.dropReferring(mem)
	s.eng.Withdraw(now, cn.id, uint64(key))
	delete(cn.exports, key)
	cn.client.exports--
	return nil
}

var errDraining = ipc.Errorf(ipc.CodeDraining, "the daemon is being drained and takes nothing new")
