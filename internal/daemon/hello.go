package daemon

import (
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// defaultDepth is the queue depth of a client that does not ask for one.
const defaultDepth = 1024

// hello makes the session a client: rings and doorbells are made and sent, the shard begins to serve them.
func (ss *session) hello(m *ipc.Message) (*ipc.Message, error) {
	if ss.client != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "hello was said already")
	}
	if m.Version != ipc.Version {
		return nil, ipc.Errorf(ipc.CodeVersion, "the client speaks version %d, this daemon version %d; use a client built with this daemon, or restart the daemon after an upgrade", m.Version, ipc.Version)
	}
	depth := m.Depth
	if depth == 0 {
		depth = min(defaultDepth, ss.d.cfg.Limits.Queue)
	}
	layout, err := ipc.LayoutFor(depth)
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	if depth > ss.d.cfg.Limits.Queue {
		return nil, ipc.Errorf(ipc.CodeLimit, "queue depth %d is above limits.queue (%d); ask for less or raise it", depth, ss.d.cfg.Limits.Queue)
	}
	account, err := ss.d.accounts.enter(ss.cred.UID)
	if err != nil {
		return nil, err
	}
	ss.account = account
	reply, err := ss.attach(m, layout)
	if err != nil {
		ss.d.accounts.leave(ss.cred.UID)
		return nil, err
	}
	return reply, nil
}

// attach makes what the two sides share.
func (ss *session) attach(m *ipc.Message, layout ipc.Layout) (_ *ipc.Message, err error) {
	filled, err := regmem.Reserve(layout.Size())
	if err != nil {
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	defer filled()
	rings, ringFD, err := ipc.CreateRings(layout)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ringFD)
	submit, err := ipc.NewDoorbell()
	if err != nil {
		rings.Close()
		return nil, err
	}
	ring, err := ipc.NewDoorbell()
	if err != nil {
		rings.Close()
		submit.Close()
		return nil, err
	}
	s, err := ss.d.place(m.Shard)
	if err != nil {
		rings.Close()
		submit.Close()
		ring.Close()
		return nil, err
	}
	c := newClient(ss, rings, submit, ring)
	var refusal error
	err = s.box.do(func(mono.Time) {
		if s.draining {
			refusal = errDraining
		} else {
			refusal = s.attach(c)
		}
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		ss.d.unplace(s)
		rings.Close()
		submit.Close()
		ring.Close()
		return nil, err
	}
	ss.shard, ss.client, ss.rings = s, c, rings
	reply := m.Reply()
	reply.Version, reply.Node, reply.Name = ipc.Version, ss.d.node.String(), ss.d.cfg.Name
	reply.Rings, reply.Window, reply.Shard = layout, s.window, s.number+1
	ss.d.log.Info("client attached", "pid", ss.cred.PID, "uid", ss.cred.UID, "depth", layout.Depth(), "shard", s.number)
	if err := ss.conn.Send(reply, ringFD, submit.FD(), ring.FD()); err != nil {
		ss.end() // release does the rest
	}
	return nil, nil
}
