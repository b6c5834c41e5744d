package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Ended(context.Context, *edge.Device) error
	Usable(*edge.Conn) error
	Revoked(*edge.RemoteRegion) bool
	GiveUp(*edge.RemoteRegion) bool
	Export(ctx context.Context, r *edge.Region, c *edge.Conn, name string, perm edge.Perm, off, n int) (*edge.Grant,
		error)
})

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, args...)...)
}

// A catalog's protocol (PROTOCOL clause 17): the importer writes a name into a slot of the exporter's memory "ask",
// with a notification. The exporter exports the memory, of which the importer learns as of any export, or writes a
// refusal into the slot of the importer's memory "answer".
const (
	prefix     = "catalog/"
	askName    = "ask"
	answerName = "answer"

	askSlots   = 32
	askSlot    = 128       // bytes: a name, or why it is refused
	askRelease = 1 << 31   // in the notification, of which the low 8 bits are the slot: no more of the name
	memoryName = "memory/" // before the names of imported memory
	maxAskName = ipc.MaxName - len(memoryName)
	askBytes   = askSlots * askSlot
)

// MaxName is the longest name of a Catalog, in bytes.
const MaxName = ipc.MaxName - len(prefix)

// Lookup says which memory of the catalog's Device a name stands for, and what an importer may do with it. Its error is
// the importer's answer.
type Lookup func(peer, name string) (edge.Piece, edge.Perm, error)

// Catalog exports memory under as many names as a program likes. Nothing is stored or sent for a name until an importer
// asks for it. The program knows which memory a name stands for. A million names of which a thousand are in use cost as
// much as a thousand names.
type Catalog struct {
	dev    *edge.Device
	l      *edge.Listener
	lookup Lookup
	peers  []string
	done   sync.WaitGroup

	mu     sync.Mutex
	served map[*catalogPeer]struct{} // nil: closed
}

// catalogPeer is an importer that is connected.
type catalogPeer struct {
	conn   *edge.Conn
	region *edge.Region       // askBytes that it writes, then askBytes to write into its memory
	answer *edge.RemoteRegion // its memory; nil before the first refusal

	mu        sync.Mutex // taken after Catalog.mu, and held while memory is exported or taken back
	grants    map[string]*edge.Grant
	asks      string // what is being looked up for it
	withdrawn bool   // since the lookup began
}

// requestTime bounds what an importer can make a catalog wait for: the answer to one request.
const requestTime = 5 * time.Second

// mostLookups is how often a name is looked up for one request, if it is withdrawn meanwhile.
const mostLookups = 3

// Serve offers a catalog on the node of dev to peers by their names, or to every authorised peer if none is given.
// lookup runs on a goroutine of the importer, whose other requests wait meanwhile. It is not called again for a name
// that the importer has not released, unless the name is withdrawn before it returns: then what it returned counts for
// nothing.
func Serve(ctx context.Context, dev *edge.Device, name string, lookup Lookup, peers ...string) (*Catalog, error) {
	if name == "" || len(name) > MaxName || lookup == nil {
		return nil, invalid("catalog.Serve: a name has 1 to %d bytes, this one %d, and lookup must be given", MaxName,
			len(name))
	}
	l, err := dev.Listen(ctx, prefix+name)
	if err != nil {
		return nil, err
	}
	c := &Catalog{dev: dev, l: l, lookup: lookup, peers: slices.Clone(peers), served: map[*catalogPeer]struct{}{}}
	c.done.Go(c.serve)
	return c, nil
}

// Withdraw revokes the memory that importers hold under a name. When it returns, no access follows. lookup answers the
// next import of the name.
func (c *Catalog) Withdraw(name string) error {
	c.mu.Lock()
	peers := slices.Collect(maps.Keys(c.served))
	c.mu.Unlock()
	var all error
	for _, p := range peers {
		_, err := p.revoke(name)
		all = errors.Join(all, err)
	}
	return all
}

// Held returns how many names importers hold. A name counts once for each importer.
func (c *Catalog) Held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.served {
		p.mu.Lock()
		n += len(p.grants)
		p.mu.Unlock()
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
		if uid, local := req.User(); local && len(c.peers) == 0 && uid != 0 && int(uid) != os.Geteuid() {
			req.Refuse(fmt.Sprintf("this catalog is not for user %d of this host, which it does not name", uid))
			continue
		}
		if p := c.admit(req); p != nil {
			c.done.Go(func() { c.attend(p) })
		}
	}
}

// admit accepts an importer. One that fails is gone: it asks again.
func (c *Catalog) admit(req *edge.Request) *catalogPeer {
	within, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	conn, err := req.Accept(within, nil)
	if err != nil {
		return nil
	}
	p := &catalogPeer{conn: conn, grants: map[string]*edge.Grant{}}
	if p.region, err = c.dev.RegisterContext(within, 2*askBytes); err == nil {
		_, err = core.Export(within, p.region, conn, askName, edge.RemoteWrite, 0, askBytes)
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
		if n.Grant == nil || n.Grant.Name() != askName {
			continue // of memory that it imported
		}
		if err := c.answer(p, &n); err != nil {
			break
		}
	}
	p.end() // first: Withdraw returns at once for whom it does not see
	c.mu.Lock()
	delete(c.served, p)
	c.mu.Unlock()
}

// answer serves one request. The error says that the importer breaks clause 17, or is gone.
func (c *Catalog) answer(p *catalogPeer, n *edge.Notification) error {
	slot := int(n.Imm & 0xff)
	if slot >= askSlots || n.Offset != slot*askSlot || n.Len < 1 || n.Len > maxAskName {
		return edge.ErrInvalid
	}
	text := make([]byte, n.Len) // once: the peer may write it at any time
	if _, err := p.region.ReadAt(text, int64(n.Offset)); err != nil {
		return err
	}
	name := string(text)
	held, err := p.revoke(name)
	switch {
	case err != nil:
		return err
	case n.Imm&askRelease != 0:
		return nil
	case !utf8.ValidString(name):
		return c.refuse(p, n.Imm, "a name is UTF-8")
	case held >= inner.MaxImports/2:
		return c.refuse(p, n.Imm, fmt.Sprintf("%d names are held by this connection: release some", held))
	}
	err = errWithdrawn
	for try := 0; try < mostLookups && err == errWithdrawn; try++ {
		err = c.export(p, name)
	}
	if err != nil {
		return c.refuse(p, n.Imm, err.Error())
	}
	return nil
}

// revoke takes a name back that the importer holds, if it does, and returns how many it held.
func (p *catalogPeer) revoke(name string) (held int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held = len(p.grants)
	p.withdrawn = p.withdrawn || p.asks == name
	if g := p.grants[name]; g != nil {
		delete(p.grants, name)
		err = g.Revoke()
	}
	return held, err
}

var errWithdrawn = errors.New("the name is being withdrawn")

// export looks a name up and exports what it stands for, unless it was withdrawn meanwhile: Withdraw sees the export,
// or is seen.
func (c *Catalog) export(p *catalogPeer, name string) error {
	p.mu.Lock()
	p.asks, p.withdrawn = name, false
	p.mu.Unlock()
	o, perm, err := c.lookup(p.conn.Peer(), name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks = ""
	switch {
	case p.withdrawn:
		return errWithdrawn
	case err != nil:
		return err
	case o.Region == nil:
		return invalid("lookup returned no memory")
	}
	g, err := o.Region.Export(p.conn, memoryName+name, perm, o.Off, o.Len)
	if err == nil {
		p.grants[name] = g
	}
	return err
}

// refuse writes why into the importer's memory.
func (c *Catalog) refuse(p *catalogPeer, imm uint32, why string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	if p.answer == nil {
		if p.answer, err = p.conn.Import(ctx, answerName); err != nil {
			return err
		}
	}
	slot := int(imm & 0xff)
	at := askBytes + slot*askSlot
	n, err := p.region.WriteAt([]byte(why[:min(len(why), askSlot)]), int64(at))
	if err != nil {
		return err
	}
	op, err := p.conn.Post(ctx, &edge.Work{Kind: edge.Write, Local: p.region, LocalOff: at, Len: n,
		Remote: p.answer, RemoteOff: slot * askSlot, Flags: edge.Notify, Imm: imm})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}
