package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
)

// namedPrefix begins the name of the service that a named export is to the daemon, which may reserve it as any other.
const namedPrefix = "memory/"

// MaxNamed is the longest name of a named export, in bytes.
const MaxNamed = ipc.MaxName - len(namedPrefix)

// namedTime bounds what an importer can make an export wait for: the answer to one request.
const namedTime = 5 * time.Second

// Named is memory that a Device exports under a name before there is any connection, to as many importers as come (VMMC
// §3.1, §5.1). Each importer has a connection and a key of its own. A restart of the daemon ends the connections; the
// export goes on, and is imported anew.
type Named struct {
	l      *Listener
	shared *Shared
	rights map[string]Perm // of the peers that may import, by name; nil: every authorised peer, with those of shared
	notes  chan Notification
	done   sync.WaitGroup // serve, and a goroutine for each importer

	left atomic.Int32 // importers that have gone and whose notifications wait

	mu     sync.Mutex
	grants map[*Grant]struct{} // of importers that are there
}

// Export offers all of r under name on this node: to the named peers, or to every authorised peer if none is given.
// Programs of this host import it by the name of their own node. If no peer is given, those of the same user and of
// root may. Otherwise those that LocalUser or LocalGroup names may, or all programs if the node itself is named. Export
// takes r over: use Region to reach the memory. At most one export of a node has a name.
func (d *Device) Export(ctx context.Context, r *Region, name string, perm Perm, peers ...string) (*Named, error) {
	var rights map[string]Perm
	if len(peers) > 0 {
		rights = make(map[string]Perm, len(peers))
		for _, p := range peers {
			rights[p] = perm
		}
	}
	return d.exportNamed(ctx, r, &Shared{name: name, perm: perm, region: r}, rights)
}

// ExportRights is like Export, but gives each peer its own rights, by the names that Export takes. Nobody else can
// import the memory. A program that matches several names has the rights of each of them.
func (d *Device) ExportRights(ctx context.Context, r *Region, name string, rights map[string]Perm) (*Named, error) {
	if len(rights) == 0 {
		return nil, invalid("ExportRights: no peer has rights to %q; name some, or use Export, which offers it to "+
			"all", name)
	}
	return d.exportNamed(ctx, r, &Shared{name: name, region: r}, maps.Clone(rights))
}

func (d *Device) exportNamed(ctx context.Context, r *Region, s *Shared, rights map[string]Perm) (*Named, error) {
	name := s.name
	for who, perm := range rights {
		if err := errors.Join(checkRightsName(who), checkExport(r, name, perm, 0, r.size)); err != nil {
			return nil, err
		}
	}
	if rights == nil {
		if err := checkExport(r, name, s.perm, 0, r.size); err != nil {
			return nil, err
		}
	}
	switch {
	case len(name) > MaxNamed:
		return nil, invalid("Export: the name of a named export has at most %d bytes, %q has %d", MaxNamed, name,
			len(name))
	case r.d.dev != d:
		return nil, invalid("Export: the region must be of this Device")
	}
	l, err := d.Listen(ctx, namedPrefix+name)
	if err != nil {
		return nil, err
	}
	n := &Named{
		l: l, shared: s, rights: rights, notes: make(chan Notification), grants: map[*Grant]struct{}{},
	}
	n.done.Add(1)
	go n.serve()
	return n, nil
}

// Import connects to a node and returns the memory that it exports there under name. The connection is the import's
// own: close RemoteRegion.Conn to give it up; it ends with ErrRevoked when the export does. The node may be this one.
// ErrRefused: nothing is exported under that name, or not to this node or user.
func (d *Device) Import(ctx context.Context, node, name string, opts ...DialOption) (*RemoteRegion, error) {
	c, err := d.Dial(ctx, node, namedPrefix+name, opts...)
	if errors.Is(err, ErrNoService) {
		return nil, notExported(ErrRefused, node, name)
	}
	if err != nil {
		return nil, err
	}
	r, err := c.Import(ctx, name)
	if err != nil {
		c.Abort()
		return nil, err
	}
	return r, nil
}

// closedError is closedError of the package in terms of what the connection is for: one that Device.Import made is
// closed in good order when the export ends.
func (c *Conn) closedError(code ipc.Code, text string) error {
	err := closedError(code, text)
	if errors.Is(err, ErrPeerClosed) && c.named() {
		return ErrRevoked
	}
	return err
}

// named says that the connection is for memory that is exported by name.
func (c *Conn) named() bool { return strings.HasPrefix(c.service, namedPrefix) }

// Name returns the name of the export.
func (n *Named) Name() string { return n.shared.name }

// Region returns the memory as it is registered now; see Shared.Region.
func (n *Named) Region(ctx context.Context) (*Region, error) { return n.shared.Region(ctx) }

// WaitNotify waits for the next write with the Notify flag into the export, of whichever importer. Notifications of
// other memory never hold it up.
func (n *Named) WaitNotify(ctx context.Context) (Notification, error) {
	select {
	case note := <-n.notes:
		return note, nil
	case <-n.l.ended:
		return Notification{}, n.l.err
	case <-ctx.Done():
		return Notification{}, n.l.d.at.Load().ended(ctx)
	}
}

// Importers returns how many importers there are.
func (n *Named) Importers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.grants)
}

// Unexport ends the export: nobody can import it any more, and when it returns no importer can reach the memory. Their
// operations, in flight or later, fail with ErrKey or ErrRevoked, which is ErrKey to errors.Is. The region is the
// caller's again.
func (n *Named) Unexport(ctx context.Context) (*Region, error) {
	err := n.l.Close()
	n.mu.Lock()
	grants := n.grants
	n.grants = nil
	n.mu.Unlock()
	for g := range grants {
		err = errors.Join(err, g.Revoke())
	}
	for g := range grants {
		if cerr := g.conn.CloseContext(ctx); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	n.done.Wait()
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	return n.shared.region, err
}

// serve accepts importers until the service ends. Those of a peer wait for each other at most.
func (n *Named) serve() {
	defer n.done.Done()
	var coming admissions
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // whoever is being admitted is too late
	for {
		req, err := n.l.Next(context.Background())
		if err != nil {
			return
		}
		perm := n.rightsOf(req)
		if perm == 0 {
			refusal := "memory " + n.shared.name + " is not exported to this node"
			if uid, local := req.User(); local {
				refusal = fmt.Sprintf("memory %s is not exported to user %d of this host", n.shared.name, uid)
			}
			req.Refuse(refusal)
			continue
		}
		peer := coming.enter(req.Peer())
		if peer == nil {
			req.Refuse("too many imports of this node wait for it; try again")
			continue
		}
		n.done.Add(1)
		go func() {
			defer n.done.Done()
			peer.room <- struct{}{}
			n.admit(ctx, req, perm)
			<-peer.room
			coming.leave(peer)
		}()
	}
}

// admit gives an importer its grant. One that fails is gone: it asks again.
func (n *Named) admit(ctx context.Context, req *Request, perm Perm) {
	within, cancel := context.WithTimeout(ctx, namedTime)
	defer cancel()
	c, err := req.Accept(within, nil)
	if err != nil {
		return
	}
	r, err := n.shared.Region(within)
	if err != nil {
		c.Abort()
		return
	}
	g, err := r.export(within, c, n.shared.name, perm, 0, r.size)
	if err != nil {
		c.Abort()
		return
	}
	n.mu.Lock()
	late := n.grants == nil // Unexport was faster
	if !late {
		n.grants[g] = struct{}{}
	}
	n.mu.Unlock()
	if late {
		c.Abort()
		return
	}
	n.done.Add(1)
	go n.attend(g)
}

// attend passes on what an importer notifies, until its connection ends.
func (n *Named) attend(g *Grant) {
	defer n.done.Done()
	for {
		note, err := g.conn.WaitNotify(context.Background())
		if err != nil {
			break
		}
		if !n.pass(g.conn, note) {
			break
		}
	}
	n.mu.Lock()
	delete(n.grants, g)
	n.mu.Unlock()
	g.conn.Close() // it has ended: this forgets it
}

// maxLeft is how many importers that have gone are remembered for their notifications: an owner may take none, and an
// importer that comes again and again must not fill its memory.
const maxLeft = 64

// pass waits until the owner takes a notification. It reports false if c has ended and as many others of those wait.
func (n *Named) pass(c *Conn, note Notification) bool {
	for {
		_, changed := c.newest("") // first: the end from here on closes it
		if c.usable() != nil {
			break
		}
		select {
		case n.notes <- note:
			return true
		case <-n.l.ended:
			return true
		case <-changed:
		}
	}
	defer n.left.Add(-1)
	if n.left.Add(1) > maxLeft {
		return false
	}
	select {
	case n.notes <- note:
	case <-n.l.ended:
	}
	return true
}
