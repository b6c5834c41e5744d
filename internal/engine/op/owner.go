package op

import "multiedge/internal/engine/op/fair"

// Owner says which user and client a connection belongs to, in numbers that the caller of the endpoint chooses.
type Owner = fair.Owner

// SetDomain has the peer of a connection reach the memory of a regmem.Domain, too, from the first operation on: it is
// called before the connection is open.
func (e *Endpoint) SetDomain(id ConnID, domain uint64) {
	if c := e.conn(id); c != nil {
		c.recv.domain = domain
	}
}

// SetOwner sets the owner of a connection that a peer asked for, before it is answered. Connections made by Dial have
// the owner of DialOptions.
func (e *Endpoint) SetOwner(id ConnID, o Owner) {
	c := e.conn(id)
	if c == nil || c.owner == o {
		return
	}
	if c.S == nil {
		c.owner = o
		return
	}
	waits := c.share.Waits
	c.S.Fair.Leave(&c.share, c.owner, e.Conns.Users)
	c.owner = o
	c.S.Fair.Join(c, &c.share, c.owner, e.Conns.Users)
	if waits {
		c.S.Fair.Add(&c.share)
	}
}
