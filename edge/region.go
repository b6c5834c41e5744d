package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// Perm is what a peer may do with exported memory.
type Perm = regmem.Perm

// Permissions.
const (
	RemoteRead   = regmem.RemoteRead
	RemoteWrite  = regmem.RemoteWrite
	RemoteAtomic = regmem.RemoteAtomic // Atomic operations, which read and change; the export begins at a multiple of 8
)

// Region is registered memory: pinned, zeroed at first, and shared with the transport, which reads and writes it
// directly. It belongs to the Device; the bytes belong to the application except for ranges of operations in flight and
// of exports that a peer writes.
type Region struct {
	d        *attachment
	id       uint32
	size     int
	mem      *regmem.Memory
	bytes    []byte
	inflight atomic.Int32 // operations that use it; raised under attachment.out.post
	closed   bool         // guarded by attachment.out.post

	space *space      // of what space.Map returned; nil: all of it is pinned
	heap  *heapMemory // of what heap.Grant and heap.Range returned; nil: the daemon maps it

	use  sync.RWMutex // copies by the package itself against unmapping
	gone bool         // unmapped
}

// Register returns a new region of size bytes. An error that wraps ErrMemlock says how to allow more pinned memory.
func (d *Device) Register(size int) (*Region, error) {
	return d.RegisterContext(context.Background(), size)
}

// RegisterContext is Register that gives up when ctx ends.
func (d *Device) RegisterContext(ctx context.Context, size int) (*Region, error) {
	if size <= 0 {
		return nil, invalid("a region of %d bytes; ask for one byte at least", size)
	}
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	return a.register(ctx, size)
}

func (d *attachment) register(ctx context.Context, size int) (*Region, error) {
	return d.obtain(ctx, &ipc.Message{Kind: ipc.KindRegister, Size: uint64(size)}, size)
}

// obtain asks for memory by m, maps it, and says so: only then is it pinned, and sealed against everybody else
// (ipc.KindMapped). One at a time, since the daemon lets few wait to be mapped.
func (d *attachment) obtain(ctx context.Context, m *ipc.Message, size int) (*Region, error) {
	select {
	case d.registering <- struct{}{}:
		defer func() { <-d.registering }()
	case <-ctx.Done():
		return nil, d.ended(ctx)
	}
	c := &call{wantFDs: true, late: func(m *ipc.Message) {
		go d.tell(&ipc.Message{Kind: ipc.KindDeregister,
			Region: m.Region})
	}}
	m, err := d.call(ctx, m, c)
	if err != nil {
		return nil, err
	}
	mem, space, err := d.spaceOf(m, c.fds, size)
	if err != nil {
		d.tell(&ipc.Message{Kind: ipc.KindDeregister, Region: m.Region})
		return nil, err
	}
	if _, err = d.call(ctx, &ipc.Message{Kind: ipc.KindMapped, Region: m.Region}, &call{}); err != nil {
		mem.Close()
		space.close()
		if ctx.Err() != nil { // otherwise the daemon has dropped it
			d.tell(&ipc.Message{Kind: ipc.KindDeregister, Region: m.Region})
		}
		return nil, err
	}
	r := &Region{d: d, id: m.Region, size: size, mem: mem, space: space, bytes: mem.Bytes()[:size:size]}
	if !d.dev.keep(r) {
		r.unmap()
		return nil, net.ErrClosed
	}
	return r, nil
}

// mapMemory consumes fds.
func (d *attachment) mapMemory(m *ipc.Message, fds []int, size int) (*regmem.Memory, error) {
	if len(fds) != 1 || m.Size < uint64(size) || m.Size > 1<<62 {
		ipc.CloseFDs(fds)
		return nil, fmt.Errorf("%w: the answer to a registration has %d descriptors and %d bytes", ErrVersion, len(fds),
			m.Size)
	}
	if d.drive != nil {
		if mem := d.drive.Memory(fds[0]); mem != nil {
			ipc.CloseFDs(fds)
			return mem, nil
		}
	}
	mem, err := regmem.Map(fds[0], int(m.Size))
	if err != nil {
		ipc.CloseFDs(fds)
		return nil, err
	}
	return mem, nil
}

// Bytes returns the memory. No slice of it may be used once Region.Close or Device.Close was called: the addresses are
// gone then.
func (r *Region) Bytes() []byte { return r.bytes }

// whole reports whether all of it is pinned and mapped by the daemon.
func (r *Region) whole() bool { return r.space == nil && r.heap == nil }

// Len returns the size in bytes.
func (r *Region) Len() int { return r.size }

// ReadAt copies memory from off on to p, as io.ReaderAt does; io.NewSectionReader makes a reader of a part. It fails
// with net.ErrClosed if the region or its Device was closed, also meanwhile.
func (r *Region) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.upTo(len(p), off)
	if err == nil {
		err = r.copyOut(p[:n], int(off))
	}
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p to the memory from off on, as io.WriterAt does; io.NewOffsetWriter makes a writer of a part. It
// fails with io.ErrShortWrite at the end of the memory, and with net.ErrClosed if the region or its Device was closed,
// also meanwhile.
func (r *Region) WriteAt(p []byte, off int64) (int, error) {
	n, err := r.upTo(len(p), off)
	if err == nil {
		err = r.copyIn(int(off), p[:n])
	}
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// upTo returns how many of n bytes the memory has from off on.
func (r *Region) upTo(n int, off int64) (int, error) {
	switch {
	case r.bytes == nil:
		return 0, errNoBytes
	case off < 0 || off > int64(r.size):
		return 0, fmt.Errorf("%w: offset %d of a region of %d bytes", ErrBounds, off, r.size)
	}
	return min(n, r.size-int(off)), nil
}

var errNoBytes = invalid("a Region without Bytes, of heap.Range, serves only for Post and Export")

// copyIn and copyOut copy to and from the memory at off, where it is the package that uses it and the owner may close
// it, or the Device, meanwhile.
func (r *Region) copyIn(off int, p []byte) error {
	r.use.RLock()
	defer r.use.RUnlock()
	if r.gone {
		return net.ErrClosed
	}
	copy(r.bytes[off:off+len(p)], p)
	return nil
}

func (r *Region) copyOut(p []byte, off int) error {
	r.use.RLock()
	defer r.use.RUnlock()
	if r.gone {
		return net.ErrClosed
	}
	copy(p, r.bytes[off:off+len(p)])
	return nil
}

// copyFrom copies n bytes at at of a region to off. Two regions are locked in one order, whichever the bytes go: an
// unmap that waits holds up readers, too, so that two copies and two unmaps could wait for each other.
func (r *Region) copyFrom(off int, from *Region, at, n int) error {
	a, b := r, from
	if reflect.ValueOf(a).Pointer() > reflect.ValueOf(b).Pointer() {
		a, b = b, a
	}
	a.use.RLock()
	defer a.use.RUnlock()
	if a != b {
		b.use.RLock()
		defer b.use.RUnlock()
	}
	if r.gone || from.gone {
		return net.ErrClosed
	}
	copy(r.bytes[off:off+n], from.bytes[at:at+n])
	return nil
}

// unmap takes the memory away once nobody copies.
func (r *Region) unmap() error {
	r.use.Lock()
	defer r.use.Unlock()
	r.gone = true
	return errors.Join(r.mem.Close(), r.space.close())
}

// Close revokes all exports of the region, unpins and unmaps it. ErrBusy: operations in flight use it; nothing has
// happened then.
func (r *Region) Close() error {
	r.d.poll() // what has completed is not in flight
	if r.inflight.Load() > 0 {
		r.d.sync() // a leader for whom it did not matter may have slept meanwhile
	}
	if err := r.beginClose(); err != nil {
		return err
	}
	if r.d.Err() == nil {
		_, err := r.d.call(context.Background(), &ipc.Message{Kind: ipc.KindDeregister, Region: r.id}, &call{})
		if err != nil && r.d.Err() == nil {
			r.d.out.post.Lock()
			r.closed = false
			r.d.out.post.Unlock()
			return err
		}
	}
	return r.d.dev.unmap(r)
}

func (r *Region) beginClose() error {
	r.d.out.post.Lock()
	defer r.d.out.post.Unlock()
	if r.closed {
		return fmt.Errorf("edge: region: %w", regmem.ErrClosed)
	}
	if r.inflight.Load() > 0 && r.d.Err() == nil {
		return ErrBusy
	}
	r.closed = true
	return nil
}

// Grant is memory exported to the peer of one connection.
type Grant struct {
	conn   *Conn
	region *Region
	off, n int
	key    uint64
	name   string
}

// Export lets the peer of c access bytes off to off+n of the region, and announces them under name, by which the peer
// imports them. The export ends with Revoke, with the region, or with the connection.
func (r *Region) Export(c *Conn, name string, perm Perm, off, n int) (*Grant, error) {
	return r.export(context.Background(), c, name, perm, off, n)
}

// export is Export that gives up when ctx ends; the memory may be exported then until the connection ends.
func (r *Region) export(ctx context.Context, c *Conn, name string, perm Perm, off, n int) (*Grant, error) {
	switch {
	case c != nil && c.d != r.d && c.d.dev == r.d.dev && r.Err() != nil:
		return nil, r.Err()
	case c != nil && c.d != r.d && c.d.dev == r.d.dev && c.Err() != nil: // the daemon was restarted since the dial
		return nil, c.Err()
	case c == nil || c.d != r.d:
		return nil, invalid("Export: the connection must be of the region's Device")
	}
	if err := checkExport(r, name, perm, off, n); err != nil {
		return nil, err
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	c.grants.begin()
	var made *Grant
	defer func() { c.grants.end(made) }()
	m := &ipc.Message{Kind: ipc.KindExport, Conn: c.id, Region: r.id, Off: uint64(off), Size: uint64(n),
		Perm: uint8(perm), Name: name}
	m, err := r.d.call(ctx, m, &call{})
	if errors.Is(err, errNoConn) && c.usable() != nil {
		err = c.usable() // it ended meanwhile
	}
	if err != nil {
		return nil, err
	}
	made = &Grant{conn: c, region: r, off: off, n: n, key: m.Key, name: name}
	return made, nil
}

// checkExport checks what an export asks for.
func checkExport(r *Region, name string, perm Perm, off, n int) error {
	switch {
	case name == "" || len(name) > ipc.MaxName:
		return invalid("Export: a name has 1 to %d bytes, this one %d", ipc.MaxName, len(name))
	case !utf8.ValidString(name):
		return invalid("Export: a name is UTF-8, %q is not", name)
	case perm == 0 || perm&^(RemoteRead|RemoteWrite|RemoteAtomic) != 0:
		return invalid("Export: choose of RemoteRead, RemoteWrite and RemoteAtomic")
	case perm&RemoteAtomic != 0 && r.heap != nil:
		return invalid("Export: a heap grant is copied to and from, which is not atomic; use memory that Register " +
			"returns")
	case perm&RemoteAtomic != 0 && off%8 != 0:
		return invalid("Export: memory for atomics begins at a multiple of 8, not at %d", off)
	case off < 0 || n <= 0 || off > r.size || n > r.size-off:
		return fmt.Errorf("%w: export of %d bytes from %d, of a region of %d", ErrBounds, n, off, r.size)
	}
	return nil
}

// Conn returns the connection to whose peer the memory is exported.
func (g *Grant) Conn() *Conn { return g.conn }

// Name returns the name of the export.
func (g *Grant) Name() string { return g.name }

// Region returns the memory, of which the export begins at byte Offset.
func (g *Grant) Region() *Region { return g.region }

// Bytes returns the exported memory, which may be used until the Region is closed.
func (g *Grant) Bytes() []byte {
	if g.region.bytes == nil {
		return nil // of heap.Range
	}
	return g.region.bytes[g.off:][:g.n:g.n]
}

// Offset returns where in Region the export begins.
func (g *Grant) Offset() int { return g.off }

// Revoke ends the export. When it returns, no access by the peer follows; the peer's operations fail with ErrKey.
func (g *Grant) Revoke() error {
	if err := g.conn.Err(); err != nil {
		return nil // the export ended with the connection
	}
	_, err := g.conn.d.call(context.Background(), &ipc.Message{Kind: ipc.KindRevoke, Conn: g.conn.id, Key: g.key},
		&call{})
	if errors.Is(err, errNoConn) {
		return nil // it did so meanwhile
	}
	if err == nil {
		g.conn.grants.drop(g.key)
		if s := g.conn.notes.sink(g.key); s != nil {
			g.conn.d.sync() // what was notified before
			g.conn.notes.restore(g.key, s)
			s.Ended(ErrRevoked)
		}
	}
	return err
}
