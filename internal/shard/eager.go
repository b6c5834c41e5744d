package shard

import (
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Composed messages (A6.17): one takes the place of an operation in flight from the beginning, so that its commit finds
// room.

// eager takes an entry of one. It returns false when the entry must wait, an error when the client must go.
func (s *Shard) eager(now mono.Time, c *Client, e *ipc.SQE) (ok bool, err error) {
	if e.Op == ipc.OpCompose {
		return s.compose(c, e)
	}
	cn, done := c.lookup(e.Conn), false
	if cn != nil && (cn.state == connOpen || cn.state == connClosing) {
		switch e.Op {
		case ipc.OpWrote:
			done = s.eng.Wrote(cn.id, e.Token, e.LocalOff, e.Len)
		case ipc.OpCommit:
			done = s.eng.Commit(now, cn.id, e.Token, e.Flags, e.Imm, e.Len)
		case ipc.OpDiscard:
			done = s.eng.Discard(cn.id, e.Token)
		}
	}
	if !done {
		return true, s.wasted(c) // it raced with the connection's end, if it is not a flood
	}
	c.flight.useless = 0
	return true, nil
}

// compose begins one.
func (s *Shard) compose(c *Client, e *ipc.SQE) (ok bool, err error) {
	if e.Key == 0 && c.Features&ipc.FeatureMessages == 0 {
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
	if status == ipc.StatusOK && (e.Len == 0 || e.Len > ipc.MaxEager) {
		status = ipc.StatusTooLong
	}
	if status != ipc.StatusOK {
		return true, s.reject(c, e, status)
	}
	mem, region, status := c.regions.local(e.Region, e.LocalOff, e.Len)
	if status != ipc.StatusOK || region.Back != nil {
		return true, s.reject(c, e, ipc.StatusLocal)
	}
	slot := c.flight.free[len(c.flight.free)-1]
	op := &s.op
	*op = engine.Op{Kind: engine.OpWrite, Token: uint64(c.slot)<<32 | uint64(slot), Local: mem, Region: region,
		Key: regmem.Key(e.Key), Off: e.RemoteOff}
	if e.Key == 0 {
		op.Kind, op.Off, op.Patience = engine.OpSend, 0, e.RemoteOff
	}
	if st := s.eng.Compose(cn.id, op, e.Token); st != engine.OK {
		return true, s.reject(c, e, st)
	}
	c.flight.free = c.flight.free[:len(c.flight.free)-1]
	s.took(c, cn, slot, opSlot{conn: cn, token: e.Token})
	return true, nil
}
