package shard

import (
	"math"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
)

// redirect begins a redirection (A6.16). It takes the place of an operation until it has ended. It returns false when
// the entry must wait, an error when the client must go.
func (s *Shard) redirect(c *Client, e *ipc.SQE) (ok bool, err error) {
	if c.Features&ipc.FeatureRedirect == 0 {
		return false, ipc.ErrEntry
	}
	if len(c.flight.free) == 0 {
		return false, nil
	}
	if ok, err = c.roomForOp(); !ok {
		return false, err
	}
	cn := c.lookup(e.Conn)
	status := s.check(c, cn, e)
	if status == ipc.StatusOK && e.Len > math.MaxUint32 {
		status = ipc.StatusLimit
	}
	if status != ipc.StatusOK {
		return true, s.reject(c, e, status)
	}
	mem, region, status := c.regions.local(e.Region, e.LocalOff, e.Len)
	if status != ipc.StatusOK || region == nil || region.Back != nil {
		return true, s.reject(c, e, ipc.StatusLocal)
	}
	slot := c.flight.free[len(c.flight.free)-1]
	r := engine.Redirection{Token: uint64(c.slot)<<32 | uint64(slot), Name: e.Token, Key: engine.Key(e.Key),
		Off: e.RemoteOff, Dst: mem, Region: region}
	if st := s.eng.Redirect(cn.id, &r); st != engine.OK {
		return true, s.reject(c, e, st)
	}
	c.flight.free = c.flight.free[:len(c.flight.free)-1]
	s.took(c, cn, slot, opSlot{conn: cn, token: e.Token})
	return true, nil
}

// endRedirect ends one, if it is still there.
func (s *Shard) endRedirect(c *Client, e *ipc.SQE) error {
	if c.Features&ipc.FeatureRedirect == 0 {
		return ipc.ErrEntry
	}
	cn := c.lookup(e.Conn)
	if cn == nil || !s.eng.EndRedirect(cn.id, e.Token) {
		return s.wasted(c) // it raced with its own end, if it is not a flood
	}
	c.flight.useless = 0
	return nil
}

// redirected tells a client that a redirection has ended, and what was redirected.
func (s *Shard) redirected(ev *engine.Event) {
	c := s.clients.list[ev.Token>>32]
	token := s.finished(c, ev)
	if c.rings != nil {
		a, b := ev.Spans[0], ev.Spans[1]
		s.put(c, &ipc.CQE{Kind: ipc.CQRedirected, Status: ev.Status, Conn: uint32(ev.Conn), Token: token,
			Imm: uint32(a.Off), Len: uint32(a.N), Off: b.Off<<32 | b.N})
	}
}
