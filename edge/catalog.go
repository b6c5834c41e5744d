package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"unicode/utf8"

	"multiedge/internal/ipc"
)

// A catalog's protocol (PROTOCOL clause 17): the importer writes a name into a slot of the exporter's memory "ask",
// with a notification. The exporter exports the memory, of which the importer learns as of any export, or writes a
// refusal into the slot of the importer's memory "answer".
const (
	catalogPrefix = "catalog/"
	catalogAsk    = "ask"
	catalogAnswer = "answer"

	askSlots   = 32
	askSlot    = 128       // bytes: a name, or why it is refused
	askRelease = 1 << 31   // in the notification, of which the low 8 bits are the slot: no more of the name
	memoryName = "memory/" // before the names of imported memory
	maxAskName = ipc.MaxName - len(memoryName)
	askBytes   = askSlots * askSlot
)

// MaxCatalogName is the longest name of a Catalog, in bytes.
const MaxCatalogName = ipc.MaxName - len(catalogPrefix)

// Offer is memory that a Catalog's program offers under a name.
type Offer struct {
	Region   *Region // of the catalog's Device
	Off, Len int     // which bytes
	Perm     Perm
}

// Catalog exports memory under as many names as a program likes: nothing is kept or sent of a name before an importer
// asks for it, and then of this one alone. The program knows what a name stands for; a million names of which a
// thousand are in use cost node and peers the thousand.
type Catalog struct {
	l      *Listener
	lookup func(peer, name string) (Offer, error)
	peers  []string
	done   sync.WaitGroup

	mu     sync.Mutex
	served map[*catalogPeer]struct{} // nil: closed
}

// catalogPeer is an importer that is connected.
type catalogPeer struct {
	conn   *Conn
	region *Region           // askBytes that it writes, then askBytes to write into its memory
	answer *RemoteRegion     // its memory; nil before the first refusal
	grants map[string]*Grant // guarded by Catalog.mu
}

// ServeCatalog offers a catalog on this node to peers by their names, or to every authorised peer if none is given.
// lookup says what a name stands for; its error is the importer's answer. It is called on a goroutine of each importer,
// whose other requests wait meanwhile, and never with the same name twice before the importer has released it.
func (d *Device) ServeCatalog(ctx context.Context, name string, lookup func(peer, name string) (Offer, error),
	peers ...string) (*Catalog, error) {
	if name == "" || len(name) > MaxCatalogName || lookup == nil {
		return nil, invalid("ServeCatalog: a name has 1 to %d bytes, this one %d, and lookup must be given",
			MaxCatalogName, len(name))
	}
	l, err := d.Listen(ctx, catalogPrefix+name)
	if err != nil {
		return nil, err
	}
	c := &Catalog{l: l, lookup: lookup, peers: slices.Clone(peers), served: map[*catalogPeer]struct{}{}}
	c.done.Go(c.serve)
	return c, nil
}

// Withdraw revokes what importers hold of a name: when it returns no access follows. The next that asks for the name is
// answered by lookup.
func (c *Catalog) Withdraw(name string) error {
	c.mu.Lock()
	var grants []*Grant
	for p := range c.served {
		if g := p.grants[name]; g != nil {
			grants = append(grants, g)
			delete(p.grants, name)
		}
	}
	c.mu.Unlock()
	var err error
	for _, g := range grants {
		err = errors.Join(err, g.Revoke())
	}
	return err
}

// Held returns how many names importers hold, each counted by itself.
func (c *Catalog) Held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.served {
		n += len(p.grants)
	}
	return n
}

// Close ends the catalog and the connections of its importers.
func (c *Catalog) Close() error {
	err := c.l.Close()
	c.mu.Lock()
	served := c.served
	c.served = nil
	c.mu.Unlock()
	for p := range served {
		p.conn.Abort()
	}
	c.done.Wait()
	return err
}

func (c *Catalog) serve() {
	for {
		req, err := c.l.Next(context.Background())
		if err != nil {
			return
		}
		if len(c.peers) > 0 && !slices.Contains(c.peers, req.Peer()) {
			req.Refuse("this catalog is not for this node")
			continue
		}
		if p := c.admit(req); p != nil {
			c.done.Go(func() { c.attend(p) })
		}
	}
}

// admit accepts an importer. One that fails is gone: it asks again.
func (c *Catalog) admit(req *Request) *catalogPeer {
	within, cancel := context.WithTimeout(context.Background(), namedTime)
	defer cancel()
	conn, err := req.Accept(within, nil)
	if err != nil {
		return nil
	}
	p := &catalogPeer{conn: conn, grants: map[string]*Grant{}}
	if p.region, err = conn.d.register(within, 2*askBytes); err == nil {
		_, err = p.region.export(within, conn, catalogAsk, RemoteWrite, 0, askBytes)
	}
	c.mu.Lock()
	if c.served == nil && err == nil {
		err = net.ErrClosed
	}
	if err == nil {
		c.served[p] = struct{}{}
	}
	c.mu.Unlock()
	if err != nil {
		p.end()
		return nil
	}
	return p
}

func (p *catalogPeer) end() {
	p.conn.Abort()
	if p.region != nil {
		p.region.Close() // nothing is in flight any more
	}
}

// attend answers an importer until its connection ends.
func (c *Catalog) attend(p *catalogPeer) {
	for {
		n, err := p.conn.WaitNotify(context.Background())
		if err != nil {
			break
		}
		if n.Grant == nil || n.Grant.name != catalogAsk {
			continue // of memory that it imported
		}
		if err := c.answer(p, &n); err != nil {
			break
		}
	}
	c.mu.Lock()
	delete(c.served, p)
	c.mu.Unlock()
	p.end()
}

// answer serves one request. The error says that the importer breaks clause 17, or is gone.
func (c *Catalog) answer(p *catalogPeer, n *Notification) error {
	slot := int(n.Imm & 0xff)
	if slot >= askSlots || n.Offset != slot*askSlot || n.Len < 1 || n.Len > maxAskName {
		return ErrInvalid
	}
	name := string(p.region.bytes[n.Offset:][:n.Len]) // once: the peer may write it at any time
	c.mu.Lock()
	g, held := p.grants[name], len(p.grants)
	delete(p.grants, name)
	c.mu.Unlock()
	if g != nil {
		if err := g.Revoke(); err != nil {
			return err
		}
	}
	switch {
	case n.Imm&askRelease != 0:
		return nil
	case !utf8.ValidString(name):
		return c.refuse(p, n.Imm, "a name is UTF-8")
	case held >= MaxImports/2:
		return c.refuse(p, n.Imm, fmt.Sprintf("%d names are held by this connection: release some", held))
	}
	o, err := c.lookup(p.conn.peer, name)
	if err == nil && o.Region == nil {
		err = invalid("nothing is offered")
	}
	if err == nil {
		g, err = o.Region.export(context.Background(), p.conn, memoryName+name, o.Perm, o.Off, o.Len)
	}
	if err != nil {
		return c.refuse(p, n.Imm, err.Error())
	}
	c.mu.Lock()
	p.grants[name] = g
	c.mu.Unlock()
	return nil
}

// refuse writes why into the importer's memory.
func (c *Catalog) refuse(p *catalogPeer, imm uint32, why string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), namedTime)
	defer cancel()
	if p.answer == nil {
		if p.answer, err = p.conn.Import(ctx, catalogAnswer); err != nil {
			return err
		}
	}
	slot := int(imm & 0xff)
	at := askBytes + slot*askSlot
	n := copy(p.region.bytes[at:at+askSlot], why)
	op, err := p.conn.PostWait(ctx, &Work{Kind: Write, Local: p.region, LocalOff: at, Len: n, Remote: p.answer,
		RemoteOff: slot * askSlot, Flags: Notify, Imm: imm})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}
