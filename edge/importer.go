package edge

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"
)

// Importer imports memory of a peer's Catalog by name, over one connection. It keeps released memory for later imports,
// and drops the least recently used first. Any number of goroutines may use it.
type Importer struct {
	conn   *Conn
	ask    *RemoteRegion
	region *Region // askBytes to write from, then askBytes that the exporter writes
	slots  chan int
	keep   int
	turn   chan struct{} // who writes names has it
	asked  uint32        // so far; guarded by turn

	mu      sync.Mutex
	names   map[string]*imported
	idle    list.List // of *imported without users, the least recently used first
	waiting [askSlots]*question
	asking  int    // questions that wait for an answer
	deaf    func() // ends listening, once none does
}

// imported is memory that is imported, or asked for.
type imported struct {
	name   string
	users  int
	ready  chan struct{} // closed when remote or err is there
	remote *RemoteRegion
	err    error
	idle   *list.Element
}

// DefaultKept is how much memory, by names, an Importer keeps imported if it is not told otherwise.
const DefaultKept = 1024

// OpenCatalog connects to the catalog that a node serves under name. At most keep names are imported at once, 1 to
// 2000; 0: DefaultKept. ErrNoService: the node serves no such catalog; ErrRefused: not to this node.
func (d *Device) OpenCatalog(ctx context.Context, node, name string, keep int) (*Importer, error) {
	if keep == 0 {
		keep = DefaultKept
	}
	if keep < 1 || keep > 2000 || name == "" || len(name) > MaxCatalogName {
		return nil, invalid("OpenCatalog: choose 1 to 2000 names to keep, and a name of 1 to %d bytes", MaxCatalogName)
	}
	c, err := d.Dial(ctx, node, catalogPrefix+name)
	if err != nil {
		return nil, err
	}
	m := &Importer{conn: c, keep: keep, names: map[string]*imported{}, slots: make(chan int, askSlots),
		turn: make(chan struct{}, 1)}
	for i := range askSlots {
		m.slots <- i
	}
	if m.region, err = c.d.register(ctx, 2*askBytes); err == nil {
		if _, err = m.region.export(ctx, c, catalogAnswer, RemoteWrite, askBytes, askBytes); err == nil {
			m.ask, err = c.Import(ctx, catalogAsk)
		}
	}
	if err != nil {
		c.Abort()
		if m.region != nil {
			m.region.Close()
		}
		return nil, err
	}
	return m, nil
}

// Conn returns the connection, for Post.
func (m *Importer) Conn() *Conn { return m.conn }

// Close gives up everything that was imported.
func (m *Importer) Close() error {
	err := m.conn.Close()
	if cerr := m.region.Close(); err == nil {
		err = cerr
	}
	return err
}

// Import returns the memory of that name, which is the caller's until Release. ErrRefused, with the exporter's reason:
// the exporter offers no such memory. ErrLimit: as many names are in use as the Importer may keep.
func (m *Importer) Import(ctx context.Context, name string) (*RemoteRegion, error) {
	if name == "" || len(name) > maxAskName {
		return nil, invalid("Import: a name in a catalog has 1 to %d bytes, this one %d", maxAskName, len(name))
	}
	for {
		e, asked, err := m.enter(ctx, name)
		if err != nil {
			return nil, err
		}
		if asked != nil {
			m.await(ctx, e, asked)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			m.leave(e)
			return nil, m.conn.d.ended(ctx)
		}
		if e.err == nil && !e.remote.revoked.Load() {
			return e.remote, nil
		}
		err = e.err
		m.leave(e)
		if err != nil && (asked != nil || ctx.Err() != nil || m.conn.usable() != nil) {
			return nil, err // else another's context ended, or it was withdrawn: ask anew
		}
	}
}

// Release ends one Import. Nothing that the caller posted to r may be in flight.
func (m *Importer) Release(r *RemoteRegion) {
	m.mu.Lock()
	e := m.names[strings.TrimPrefix(r.name, memoryName)]
	m.mu.Unlock()
	if e != nil && e.remote == r {
		m.leave(e)
	}
}

// enter counts a user of a name. If nobody has asked the exporter for the name, enter asks. The caller waits for the
// answer.
func (m *Importer) enter(ctx context.Context, name string) (*imported, *question, error) {
	if e := m.join(name); e != nil {
		return e, nil, nil
	}
	select {
	case m.turn <- struct{}{}: // releases and questions reach the exporter in their order
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, nil, m.conn.d.ended(ctx)
	}
	if e := m.join(name); e != nil {
		return e, nil, nil
	}
	if err := m.makeRoom(ctx); err != nil {
		return nil, nil, err
	}
	q, err := m.write(ctx, name, 0)
	if err != nil {
		return nil, nil, err
	}
	e := &imported{name: name, users: 1, ready: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[name] = e
	return e, q, nil
}

// join counts a user of memory that is imported or asked for. It returns nil if the memory is neither.
func (m *Importer) join(name string) *imported {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.names[name]
	switch {
	case e == nil:
		return nil
	case e.remote != nil && e.remote.revoked.Load(): // withdrawn: who uses it still finds out by himself
		m.drop(e)
		return nil
	}
	if e.users++; e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
	return e
}

// makeRoom releases the name that nobody has used for longest, if as many are imported as may be kept.
func (m *Importer) makeRoom(ctx context.Context) error {
	m.mu.Lock()
	if len(m.names) < m.keep {
		m.mu.Unlock()
		return nil
	}
	front := m.idle.Front()
	if front == nil {
		m.mu.Unlock()
		return fmt.Errorf("%w: %d names of the catalog are in use; release some, or keep more", ErrLimit, m.keep)
	}
	old := front.Value.(*imported)
	m.drop(old)
	m.mu.Unlock()
	if old.remote.revoked.Swap(true) {
		return nil
	}
	q, err := m.write(ctx, old.name, askRelease)
	if err == nil {
		m.slots <- q.slot
	}
	return err
}

// drop forgets a name. The caller holds mu.
func (m *Importer) drop(e *imported) {
	if m.names[e.name] == e {
		delete(m.names, e.name)
	}
	if e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
}

// leave ends a use.
func (m *Importer) leave(e *imported) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	select {
	case <-e.ready:
		if e.err != nil || m.names[e.name] != e {
			m.drop(e)
			return
		}
	default: // who asks goes on
		return
	}
	e.idle = m.idle.PushBack(e)
}

// question is a name that was written into a slot.
type question struct {
	slot    int
	imm     uint32
	refused chan string
}

// await waits until what was asked for is exported or refused, and says so.
func (m *Importer) await(ctx context.Context, e *imported, q *question) {
	m.mu.Lock()
	if m.asking++; m.asking == 1 {
		var listening context.Context
		listening, m.deaf = context.WithCancel(context.Background())
		go m.listen(listening)
	}
	m.mu.Unlock()
	r, err := m.answer(ctx, memoryName+e.name, q)
	m.slots <- q.slot
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asking--; m.asking == 0 {
		m.deaf()
	}
	e.remote, e.err = r, err
	close(e.ready)
}

func (m *Importer) answer(ctx context.Context, name string, q *question) (*RemoteRegion, error) {
	c := m.conn
	for {
		r, changed := c.newest(name)
		if r != nil && !r.revoked.Load() {
			return r, nil
		}
		if err := c.usable(); err != nil {
			return nil, err
		}
		select {
		case why := <-q.refused:
			return nil, because(ErrRefused, "%s", why)
		case <-changed:
		case <-ctx.Done():
			return nil, c.d.ended(ctx)
		case <-c.d.life.deadCh:
			return nil, c.d.Err()
		}
	}
}

// write writes a name into a slot of the exporter's memory and waits until it is there. The slot is the caller's to
// give back. The caller has the turn.
func (m *Importer) write(ctx context.Context, name string, flag uint32) (*question, error) {
	q := &question{refused: make(chan string, 1)}
	select {
	case q.slot = <-m.slots:
	case <-ctx.Done():
		return nil, m.conn.d.ended(ctx)
	case <-m.conn.d.life.deadCh:
		return nil, m.conn.d.Err()
	}
	m.asked++ // tells an answer from one to an earlier question in the slot
	q.imm = uint32(q.slot) | m.asked<<8&^askRelease | flag
	m.mu.Lock()
	m.waiting[q.slot] = q
	m.mu.Unlock()
	at := q.slot * askSlot
	n := copy(m.region.bytes[at:at+askSlot], name)
	op, err := m.conn.PostWait(ctx, &Work{Kind: Write, Local: m.region, LocalOff: at, Len: n, Remote: m.ask,
		RemoteOff: at, Flags: Notify | BackwardFence, Imm: q.imm})
	if err == nil {
		err = op.Wait(context.Background()) // it ends with the connection at the latest
	}
	if err != nil {
		m.slots <- q.slot
		return nil, err
	}
	return q, nil
}

// listen takes refusals, but only while somebody waits for one. If it always waited, it would also take the completions
// of others, and have to wake them.
func (m *Importer) listen(ctx context.Context) {
	for {
		n, err := m.conn.WaitNotify(ctx)
		if err != nil {
			return
		}
		if slot := int(n.Imm & 0xff); slot < askSlots && n.Offset == slot*askSlot && n.Len <= askSlot {
			why := strings.ToValidUTF8(string(m.region.bytes[askBytes+n.Offset:][:n.Len]), "?")
			m.mu.Lock()
			if q := m.waiting[slot]; q != nil && q.imm == n.Imm {
				m.waiting[slot] = nil
				q.refused <- why
			}
			m.mu.Unlock()
		}
	}
}
