package op

import (
	"errors"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// connTable is every connection, and the users that own them.
type connTable struct {
	byIndex  []*Conn  // by index of the ConnID; of those that are free the record of number 0
	numbers  []ConnID // the latest of each index
	free     []uint32 // indices of free records, the one that was freed first in front
	services map[string]bool
	Users    fair.Users // who have connections in sessions

	grown    queue.Queue[ConnID] // connections that may have something to give back
	restAt   mono.Time           // when they are looked at
	gaveBack int                 // bytes, since GaveBack was called
}

// SpareConns is how many records there are beyond Config.MaxConns, for words to peers that find the table full.
const SpareConns = 64

// newConn takes a free connection record. It returns nil when the table is full.
func (e *Endpoint) newConn() *Conn { return e.connWithin(e.cfg.MaxConns) }

// spareConn is newConn for a record that only says no, and is free again when the peer has heard it.
func (e *Endpoint) spareConn() *Conn { return e.connWithin(e.cfg.MaxConns + SpareConns) }

// ConnsLeft is how many connections more there is room for.
func (e *Endpoint) ConnsLeft() int { return max(0, e.cfg.MaxConns-e.inUse()) }

// inUse is how many records are not free.
func (e *Endpoint) inUse() int { return len(e.Conns.byIndex) - 1 - len(e.Conns.free) }

func (e *Endpoint) connWithin(limit int) *Conn {
	if e.inUse() >= limit {
		return nil
	}
	i, id := len(e.Conns.byIndex), ConnID(0)
	if n := len(e.Conns.free); n > numbersRest || n > 0 && i > e.cfg.MaxConns {
		i = int(e.Conns.free[0])
		e.Conns.free = e.Conns.free[1:]
		id = ConnID(uint32(e.Conns.numbers[i]) + 1<<ConnIndexBits)
	} else {
		id = ConnID(i) | ConnID(e.cfg.Rand.Uint32()<<ConnIndexBits)
		e.Conns.byIndex, e.Conns.numbers = append(e.Conns.byIndex, nil), append(e.Conns.numbers, 0)
	}
	c := &Conn{e: e, ID: id}
	e.Conns.byIndex[i], e.Conns.numbers[i] = c, id
	return c
}

// numbersRest is how many indices of ended connections wait before the first is used again: the longer, the later a
// number comes again.
const numbersRest = 1024

const ConnIndexBits = 20

// conn returns the live connection of that number, or nil.
func (e *Endpoint) conn(id ConnID) *Conn {
	i := int(id & (1<<ConnIndexBits - 1))
	if i >= len(e.Conns.byIndex) {
		return nil
	}
	c := e.Conns.byIndex[i]
	if c.ID != id || c.state == connFree {
		return nil
	}
	return c
}

// statusOf turns the refusal of a memory check into what the peer is told.
func statusOf(err error) abi.Status {
	switch {
	case errors.Is(err, regmem.ErrOwner):
		return abi.StatusOwner
	case errors.Is(err, regmem.ErrPermission):
		return abi.StatusPermission
	case errors.Is(err, regmem.ErrBounds):
		return abi.StatusBounds
	}
	return abi.StatusKey
}

func (e *Endpoint) freeConnection(c *Conn) {
	if c.S != nil {
		c.setUnconfirmed(false)
		if c.S.byRemote[c.remote] == c {
			delete(c.S.byRemote, c.remote)
			c.S.ended(c.remote)
		}
		c.detach()
	}
	*c = Conn{e: e, ID: c.ID}
	i := uint32(c.ID) & (1<<ConnIndexBits - 1)
	e.Conns.byIndex[i] = e.Conns.byIndex[0] // no record is kept for an index that waits
	e.Conns.free = append(e.Conns.free, i)
}
