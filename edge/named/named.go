package named

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Ended(context.Context, *edge.Device) error
	Lent() edge.DialOption
	Usable(*edge.Conn) error
	Change(*edge.Conn) <-chan struct{}
	CheckExport(d *edge.Device, r *edge.Region, name string, perm edge.Perm) error
	Export(ctx context.Context, r *edge.Region, c *edge.Conn, name string, perm edge.Perm, off, n int) (*edge.Grant,
		error)
})

// prefix begins the name of the service that a named export is to the daemon, which may reserve it as any other.
const prefix = "memory/"

// MaxName is the longest name of a named export, in bytes.
const MaxName = ipc.MaxName - len(prefix)

// admitTime bounds what an importer can make an export wait for: the answer to one request.
const admitTime = 5 * time.Second

// Memory is memory that a Device exports under a name before there is any connection, to as many importers as come
// (VMMC §3.1, §5.1). Each importer has a connection and a key of its own. A restart of the daemon ends the connections;
// the export goes on, and is imported anew.
type Memory struct {
	dev    *edge.Device
	l      *edge.Listener
	name   string
	perm   edge.Perm            // of every importer, if rights is nil
	rights map[string]edge.Perm // of the peers that may import, by name; nil: every authorised peer may
	notes  chan edge.Notification
	done   sync.WaitGroup // serve, and a goroutine for each importer
	ended  chan struct{}  // closed once nobody is admitted any more
	err    error          // why; set before ended is closed

	left atomic.Int32 // importers that have gone and whose notifications wait

	mu     sync.Mutex
	grants map[*edge.Grant]struct{} // of importers that are there

	renewing sync.Mutex
	region   *edge.Region // guarded by renewing
	held     bool         // the owner has called Region, so only Region may close what it returned; guarded by renewing
}

// Export offers all of r, memory of dev, under name on this node: to the named peers, or to every authorised peer if
// none is given. Programs of this host import it by the name of their own node. If no peer is given, those of the same
// user and of root may. Otherwise those that User or Group names may, or all programs if the node itself is named.
// Export takes r over: use Memory.Region to reach the memory. After a restart of the daemon the memory is registered
// anew for the next importer, or by Memory.Region once that has been called. At most one export of a node has a name.
func Export(ctx context.Context, dev *edge.Device, r *edge.Region, name string, perm edge.Perm,
	peers ...string) (*Memory, error) {
	var rights map[string]edge.Perm
	if len(peers) > 0 {
		rights = make(map[string]edge.Perm, len(peers))
		for _, p := range peers {
			rights[p] = perm
		}
	}
	return export(ctx, dev, r, name, perm, rights)
}

// ExportRights is like Export, but gives each peer its own rights, by the names that Export takes. Nobody else can
// import the memory. A program that matches several names has the rights of each of them.
func ExportRights(ctx context.Context, dev *edge.Device, r *edge.Region, name string,
	rights map[string]edge.Perm) (*Memory, error) {
	if len(rights) == 0 {
		return nil, invalid("ExportRights: no peer has rights to %q; name some, or use Export, which offers it to "+
			"all", name)
	}
	return export(ctx, dev, r, name, 0, maps.Clone(rights))
}

func export(ctx context.Context, dev *edge.Device, r *edge.Region, name string, perm edge.Perm,
	rights map[string]edge.Perm) (*Memory, error) {
	for who, perm := range rights {
		if err := errors.Join(checkRightsName(who), core.CheckExport(dev, r, name, perm)); err != nil {
			return nil, err
		}
	}
	if rights == nil {
		if err := core.CheckExport(dev, r, name, perm); err != nil {
			return nil, err
		}
	}
	if len(name) > MaxName {
		return nil, invalid("Export: the name of a named export has at most %d bytes, %q has %d", MaxName, name,
			len(name))
	}
	l, err := dev.Listen(ctx, prefix+name)
	if err != nil {
		return nil, err
	}
	n := &Memory{
		dev: dev, l: l, name: name, perm: perm, rights: rights, region: r, notes: make(chan edge.Notification),
		ended: make(chan struct{}), grants: map[*edge.Grant]struct{}{},
	}
	n.done.Add(1)
	go n.serve()
	return n, nil
}

// Import connects dev to a node and returns the memory that it exports there under name. The connection is the import's
// own: close RemoteRegion.Conn to give it up; it ends with edge.ErrRevoked when the export does. The node may be this
// one. edge.ErrRefused: nothing is exported under that name, or not to this node or user.
func Import(ctx context.Context, dev *edge.Device, node, name string, opts ...edge.DialOption) (*edge.RemoteRegion,
	error) {
	c, err := dev.Dial(ctx, node, prefix+name, append(slices.Clone(opts), core.Lent())...)
	if errors.Is(err, edge.ErrNoService) {
		return nil, inner.NotExported(edge.ErrRefused, node, name)
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

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, args...)...)
}

// Name returns the name of the export.
func (n *Memory) Name() string { return n.name }

// Region returns the memory as it is registered now. After a restart of the daemon (Region.Err) it is another Region,
// with the same bytes. The previous one is closed then, so nobody may use its Bytes during the call. From the first
// call on nothing else closes it: importers are refused after a restart until Region is called again. With an error the
// Region is the previous one, whose Bytes may still be used.
func (n *Memory) Region(ctx context.Context) (*edge.Region, error) {
	n.renewing.Lock()
	defer n.renewing.Unlock()
	n.held = true
	return n.renew(ctx)
}

// forImporter returns the memory for an importer. It renews memory only if the owner cannot be using the Bytes.
func (n *Memory) forImporter(ctx context.Context) (*edge.Region, error) {
	n.renewing.Lock()
	defer n.renewing.Unlock()
	if err := n.region.Err(); n.held && err != nil {
		return nil, err
	}
	return n.renew(ctx)
}

// renew is called with renewing held.
func (n *Memory) renew(ctx context.Context) (*edge.Region, error) {
	r, err := n.region.Renew(ctx)
	if r != nil {
		n.region = r
	}
	return n.region, err
}

// WaitNotify waits for the next write with the Notify flag into the export, of whichever importer. Notifications of
// other memory never hold it up. Read what was written at Notification.Offset of Region: the Grant may be of memory
// from before a restart of the daemon.
func (n *Memory) WaitNotify(ctx context.Context) (edge.Notification, error) {
	select {
	case note := <-n.notes:
		return note, nil
	case <-n.ended:
		return edge.Notification{}, n.err
	case <-ctx.Done():
		return edge.Notification{}, core.Ended(ctx, n.dev)
	}
}

// Importers returns how many importers there are.
func (n *Memory) Importers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.grants)
}

// Unexport ends the export: nobody can import it any more, and when it returns no importer can reach the memory. Their
// operations, in flight or later, fail with edge.ErrKey or edge.ErrRevoked, which is ErrKey to errors.Is. The region is
// the caller's again.
func (n *Memory) Unexport(ctx context.Context) (*edge.Region, error) {
	err := n.l.Close()
	n.mu.Lock()
	grants := n.grants
	n.grants = nil
	n.mu.Unlock()
	for g := range grants {
		err = errors.Join(err, g.Revoke())
	}
	for g := range grants {
		if cerr := g.Conn().CloseContext(ctx); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	n.done.Wait()
	n.renewing.Lock()
	defer n.renewing.Unlock()
	return n.region, err
}

// serve accepts importers until the service ends. Those of a peer wait for each other at most.
func (n *Memory) serve() {
	defer n.done.Done()
	var coming admissions
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // whoever is being admitted is too late
	for {
		req, err := n.l.Next(context.Background())
		if err != nil {
			n.err = err
			close(n.ended)
			return
		}
		perm := n.rightsOf(req)
		if perm == 0 {
			refusal := "memory " + n.name + " is not exported to this node"
			if uid, local := req.User(); local {
				refusal = fmt.Sprintf("memory %s is not exported to user %d of this host", n.name, uid)
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
func (n *Memory) admit(ctx context.Context, req *edge.Request, perm edge.Perm) {
	within, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	r, err := n.forImporter(within)
	if err != nil {
		if errors.Is(err, edge.ErrStale) {
			req.Refuse("the owner of memory " + n.name + " has yet to renew it after a restart of edged; try again")
		} else {
			req.Refuse("memory " + n.name + " cannot be registered: " + err.Error())
		}
		return
	}
	c, err := req.Accept(within, nil)
	if err != nil {
		return
	}
	g, err := core.Export(within, r, c, n.name, perm, 0, r.Len())
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
func (n *Memory) attend(g *edge.Grant) {
	defer n.done.Done()
	for {
		note, err := g.Conn().WaitNotify(context.Background())
		if err != nil {
			break
		}
		if !n.pass(g.Conn(), note) {
			break
		}
	}
	n.mu.Lock()
	delete(n.grants, g)
	n.mu.Unlock()
	g.Conn().Close() // it has ended: this forgets it
}

// maxLeft is how many importers that have gone are remembered for their notifications: an owner may take none, and an
// importer that comes again and again must not fill its memory.
const maxLeft = 64

// pass waits until the owner takes a notification. It reports false if c has ended and as many others of those wait.
func (n *Memory) pass(c *edge.Conn, note edge.Notification) bool {
	for {
		changed := core.Change(c) // first: the end from here on closes it
		if core.Usable(c) != nil {
			break
		}
		select {
		case n.notes <- note:
			return true
		case <-n.ended:
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
	case <-n.ended:
	}
	return true
}
