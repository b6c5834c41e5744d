package catalog

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// Importer imports memory of a peer's Catalog by name, over one connection. It keeps released memory for later imports,
// and drops the least recently used first. Any number of goroutines may use it.
type Importer struct {
	conn   *edge.Conn
	ask    *edge.RemoteRegion
	region *edge.Region // askBytes to write from, then askBytes that the exporter writes
	slots  chan int
	keep   int
	turn   chan struct{} // who writes names has it
	wrote  uint32        // names so far; guarded by turn

	mu       sync.Mutex
	names    map[string]*imported
	idle     list.List // of *imported without users, the least recently used first
	waiting  [askSlots]*question
	asking   int         // questions that wait for an answer
	unread   []*question // releases that the exporter may not have read, in their order
	unlisten func()      // ends listening, once none does
}

// imported is memory that is imported, or asked for.
type imported struct {
	name   string
	users  int
	ready  chan struct{} // closed when remote or err is there
	remote *edge.RemoteRegion
	err    error
	idle   *list.Element
}

// DefaultKept is how much memory, by names, an Importer keeps imported if it is not told otherwise.
const DefaultKept = 1024

// Open connects dev to the catalog that a node serves under name. At most keep names are imported at once, 1 to 2000;
// 0: DefaultKept. edge.ErrNoService: the node serves no such catalog; edge.ErrRefused: not to this node.
func Open(ctx context.Context, dev *edge.Device, node, name string, keep int) (*Importer, error) {
	if keep == 0 {
		keep = DefaultKept
	}
	if keep < 1 || keep > 2000 || name == "" || len(name) > MaxName {
		return nil, invalid("catalog.Open: choose 1 to 2000 names to keep, and a name of 1 to %d bytes", MaxName)
	}
	c, err := dev.Dial(ctx, node, prefix+name)
	if err != nil {
		return nil, err
	}
	m := &Importer{conn: c, keep: keep, names: map[string]*imported{}, slots: make(chan int, askSlots),
		turn: make(chan struct{}, 1)}
	for i := range askSlots {
		m.slots <- i
	}
	if m.region, err = dev.RegisterContext(ctx, 2*askBytes); err == nil {
		if _, err = core.Export(ctx, m.region, c, answerName, edge.RemoteWrite, askBytes, askBytes); err == nil {
			m.ask, err = c.Import(ctx, askName)
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
func (m *Importer) Conn() *edge.Conn { return m.conn }

// Close gives up everything that was imported.
func (m *Importer) Close() error {
	err := m.conn.Close()
	if cerr := m.region.Close(); err == nil {
		err = cerr
	}
	return err
}

// Import returns the memory of that name, which is the caller's until Release. edge.ErrRefused, with the exporter's
// reason: it offers no such memory. edge.ErrLimit: as many names are in use as the Importer may keep.
func (m *Importer) Import(ctx context.Context, name string) (*edge.RemoteRegion, error) {
	if name == "" || len(name) > maxAskName {
		return nil, invalid("Import: a name in a catalog has 1 to %d bytes, this one %d", maxAskName, len(name))
	}
	for {
		e, asked, err := m.enter(ctx, name)
		if err != nil {
			return nil, err
		}
		if asked != nil {
			go m.await(e, asked) // also if this caller gives up: the slot is in use until the exporter answers
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			m.leave(e)
			return nil, core.Ended(ctx, m.conn.Device())
		}
		if e.err == nil && !core.Revoked(e.remote) {
			return e.remote, nil
		}
		err = e.err
		m.leave(e)
		if err != nil && (asked != nil || ctx.Err() != nil || core.Usable(m.conn) != nil) {
			return nil, err // else another's context ended, or it was withdrawn: ask anew
		}
	}
}

// Release ends one Import. Nothing that the caller posted to r may be in flight.
func (m *Importer) Release(r *edge.RemoteRegion) {
	m.mu.Lock()
	e := m.names[strings.TrimPrefix(r.Name(), memoryName)]
	known := e != nil && e.remote == r
	m.mu.Unlock()
	if known {
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
		return nil, nil, core.Ended(ctx, m.conn.Device())
	}
	if e := m.join(name); e != nil {
		return e, nil, nil
	}
	if err := m.makeRoom(ctx); err != nil {
		return nil, nil, err
	}
	slot, err := m.slot(ctx)
	if err != nil {
		return nil, nil, err
	}
	q, err := m.write(ctx, slot, name, 0)
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
	case e.remote != nil && core.Revoked(e.remote): // withdrawn: its users find out by themselves
		m.drop(e)
		return nil
	}
	if e.users++; e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
	return e
}

// makeRoom releases the name that nobody has used for longest, if as many are imported as may be kept. While the
// exporter has many releases to read, the name stays until the next call: questions need slots, too.
func (m *Importer) makeRoom(ctx context.Context) error {
	m.mu.Lock()
	room, idle, behind := len(m.names) < m.keep, m.idle.Len() > 0, len(m.unread) >= askSlots/2
	m.mu.Unlock()
	switch {
	case room:
		return nil
	case !idle:
		return fmt.Errorf("%w: %d names of the catalog are in use; release some, or keep more", edge.ErrLimit, m.keep)
	case behind:
		return nil
	}
	slot, err := m.slot(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	front := m.idle.Front()
	if front == nil { // used again meanwhile
		m.mu.Unlock()
		m.slots <- slot
		return m.makeRoom(ctx)
	}
	old := front.Value.(*imported)
	m.drop(old)
	m.mu.Unlock()
	if !core.GiveUp(old.remote) {
		m.slots <- slot
		return m.makeRoom(ctx)
	}
	q, err := m.write(context.Background(), slot, old.name, askRelease) // the name is forgotten: the exporter must hear
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.unread = append(m.unread, q)
	m.mu.Unlock()
	return m.makeRoom(ctx) // also what earlier calls left
}

// read says that the exporter has read q, and so everything before it: the slots of releases are free (clause 17.3).
// The caller holds mu.
func (m *Importer) read(q *question) {
	n := 0
	for n < len(m.unread) && int32(m.unread[n].number-q.number) < 0 {
		m.slots <- m.unread[n].slot
		n++
	}
	m.unread = append(m.unread[:0], m.unread[n:]...)
	m.slots <- q.slot
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
		m.rest(e)
	default: // the question goes on
	}
}

// rest keeps memory without users for later imports, if it is of use. The caller holds mu.
func (m *Importer) rest(e *imported) {
	if e.err != nil || m.names[e.name] != e {
		m.drop(e)
		return
	}
	e.idle = m.idle.PushBack(e)
}

// question is a name that was written into a slot.
type question struct {
	slot    int
	number  uint32 // among what was written
	imm     uint32
	refused error                   // guarded by Importer.mu
	refuse  context.CancelCauseFunc // likewise; ends the wait for an answer
}

// await waits until what was asked for is exported or refused, and says so. The end of the connection ends it.
func (m *Importer) await(e *imported, q *question) {
	m.mu.Lock()
	if m.asking++; m.asking == 1 {
		var listening context.Context
		listening, m.unlisten = context.WithCancel(context.Background())
		go m.listen(listening)
	}
	m.mu.Unlock()
	r, err := m.answer(memoryName+e.name, q)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read(q)
	if m.asking--; m.asking == 0 {
		m.unlisten()
	}
	e.remote, e.err = r, err
	close(e.ready)
	if e.users == 0 { // its callers gave up
		m.rest(e)
	}
}

// answer returns what the exporter exports under name, or why it refuses.
func (m *Importer) answer(name string, q *question) (*edge.RemoteRegion, error) {
	asking, refuse := context.WithCancelCause(context.Background())
	defer refuse(nil)
	m.mu.Lock()
	q.refuse = refuse
	if q.refused != nil { // already
		refuse(q.refused)
	}
	m.mu.Unlock()
	r, err := m.conn.Import(asking, name)
	if err != nil && asking.Err() != nil {
		return nil, context.Cause(asking)
	}
	return r, err
}

// slot takes a slot of the exporter's memory.
func (m *Importer) slot(ctx context.Context) (int, error) {
	select {
	case slot := <-m.slots:
		return slot, nil
	case <-ctx.Done():
		return 0, core.Ended(ctx, m.conn.Device())
	}
}

// write writes a name into a slot of the exporter's memory and waits until it is there. The slot is free once the
// exporter has read it (see read), or if it could not be written. The caller has the turn.
func (m *Importer) write(ctx context.Context, slot int, name string, flag uint32) (*question, error) {
	m.wrote++ // tells an answer from one to an earlier question in the slot
	q := &question{slot: slot, number: m.wrote, imm: uint32(slot) | m.wrote<<8&^askRelease | flag}
	m.mu.Lock()
	m.waiting[slot] = q
	m.mu.Unlock()
	at := slot * askSlot
	n, err := m.region.WriteAt([]byte(name), int64(at))
	if err != nil {
		m.slots <- slot
		return nil, err
	}
	op, err := m.conn.Post(ctx, &edge.Work{Kind: edge.Write, Local: m.region, LocalOff: at, Len: n, Remote: m.ask,
		RemoteOff: at, Flags: edge.Notify | edge.BackwardFence, Imm: q.imm})
	if err == nil {
		err = op.Wait(context.Background()) // it ends with the connection at the latest
	}
	if err != nil {
		m.slots <- slot
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
			why := make([]byte, n.Len)
			if _, err := m.region.ReadAt(why, int64(askBytes+n.Offset)); err != nil {
				return
			}
			m.mu.Lock()
			if q := m.waiting[slot]; q != nil && q.imm == n.Imm {
				m.waiting[slot] = nil
				q.refused = inner.Because(edge.ErrRefused, "%s", strings.ToValidUTF8(string(why), "?"))
				if q.refuse != nil {
					q.refuse(q.refused)
				}
			}
			m.mu.Unlock()
		}
	}
}
