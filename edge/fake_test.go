package edge

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// fake is the daemon's end of the rings and control sockets for any number of clients, with a memcpy as the wire. One
// lock covers everything.
type fake struct {
	t        testing.TB
	mu       sync.Mutex
	services map[string]*fakeClient
	conns    map[uint32]*fakeConn
	grants   map[uint64]*fakeGrant
	nextID   uint32
	window   int
	mute     bool         // do not answer when a region is given back, or exported
	deaf     int          // so many accepts that come next are not answered: their peers do not confirm
	hold     bool         // take operations and complete none
	held     []heldOp     //
	fail     ipc.Status   // of every operation
	end      ipc.Status   // ends the connection on which memory is about to be exported or revoked
	submits  atomic.Int64 // entries drained
	moved    atomic.Int64 // bytes of writes and reads that were carried out
}

type heldOp struct {
	c *fakeClient
	e ipc.SQE
}

type fakeClient struct {
	f       *fake
	ctl     *ipc.Conn
	rings   *ipc.Rings
	sq      *ipc.SubmitConsumer
	cq      *ipc.CompleteProducer
	submit  *ipc.Doorbell
	bell    *ipc.Doorbell
	regions map[uint32]*regmem.Memory
	stop    atomic.Bool
	done    sync.WaitGroup
	evicted atomic.Bool
	starved atomic.Bool // notifications wait for room in the completion ring
	credits atomic.Int64
	patient bool // entries with which the client was left alone are told with others alone
}

type fakeConn struct {
	id     uint32
	owner  *fakeClient
	peer   *fakeConn
	credit int
	queue  []ipc.CQE
	reply  *ipc.Message // answers the dial
	over   bool
	told   bool // the peer closed, and the owner knows
}

type fakeGrant struct {
	conn *fakeConn
	mem  []byte
	perm regmem.Perm
}

func newFake(t testing.TB) *fake {
	return &fake{t: t, services: map[string]*fakeClient{}, conns: map[uint32]*fakeConn{},
		grants: map[uint64]*fakeGrant{}, window: 1 << 20}
}

// open attaches a Device; everything ends with the test.
func (f *fake) open(cfg Config) (*Device, *fakeClient) {
	f.t.Helper()
	if err := cfg.normalize(); err != nil {
		f.t.Fatal(err)
	}
	a, b := ctlPair(f.t)
	c := &fakeClient{f: f, ctl: b, regions: map[uint32]*regmem.Memory{}}
	c.done.Add(1)
	go c.serve()
	d, err := attach(context.Background(), a, cfg, nil, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		d.Close()
		c.end()
	})
	return d, c
}

// ctlPair returns the ends of a control socket. The client's has room for a few requests only, so that tests can fill
// it.
func ctlPair(t testing.TB) (client, daemon *ipc.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	must(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1)) // the least there is, some 5 KB
	client, err = ipc.FromFile(os.NewFile(uintptr(fds[0]), "client"))
	must(t, err)
	daemon, err = ipc.FromFile(os.NewFile(uintptr(fds[1]), "daemon"))
	must(t, err)
	return client, daemon
}

func (c *fakeClient) end() {
	if c.stop.Swap(true) {
		return
	}
	c.ctl.Close()
	if c.submit != nil {
		c.submit.Ring()
	}
	c.done.Wait()
}

func (c *fakeClient) serve() {
	defer c.done.Done()
	for {
		m, err := c.ctl.Recv()
		if err != nil {
			c.stop.Store(true)
			if c.submit != nil {
				c.submit.Ring()
			}
			return
		}
		c.f.mu.Lock()
		c.handle(m)
		c.f.mu.Unlock()
	}
}

func (c *fakeClient) hello(m *ipc.Message) {
	l, err := ipc.LayoutFor(m.Depth)
	if err != nil {
		c.ctl.Send(m.Fail(err))
		return
	}
	rings, fd, err := ipc.CreateRings(l)
	if err != nil {
		c.f.t.Error(err)
		return
	}
	c.rings, c.sq, c.cq = rings, rings.SubmitConsumer(), rings.CompleteProducer()
	rings.Allow(ipc.FeatureMessages)
	c.submit, _ = ipc.NewDoorbell()
	c.bell, _ = ipc.NewDoorbell()
	r := m.Reply()
	r.Name = "fake"
	r.Greeting = ipc.Greeting{Version: m.Highest, SQESize: ipc.SQESize, CQESize: ipc.CQESize,
		Node: "0102030405060708", Rings: l, Window: c.f.window,
		Features: ipc.FeatureMessages}
	c.done.Add(1)
	go c.work()
	watch, _ := c.bell.Watch()
	c.ctl.Send(r, fd, c.submit.FD(), watch)
	unix.Close(watch)
	unix.Close(fd)
}

func (c *fakeClient) handle(m *ipc.Message) {
	f := c.f
	r := m.Reply()
	switch m.Kind {
	case ipc.KindHello:
		c.hello(m)
		return
	case ipc.KindRegister:
		if m.Size > 1<<30 {
			r = m.Fail(ipc.Errorf(ipc.CodeMemlock, "limit 8 MiB: raise ulimit -l"))
			break
		}
		mem, err := regmem.Alloc(int(m.Size), regmem.Unpinned())
		if err != nil {
			r = m.Fail(err)
			break
		}
		f.nextID++
		c.regions[f.nextID] = mem
		r.Region, r.Size = f.nextID, uint64(mem.Len())
		c.ctl.Send(r, mem.FD())
		return
	case ipc.KindMapped:
	case ipc.KindDeregister:
		if f.mute {
			return
		}
		c.regions[m.Region].Close()
		delete(c.regions, m.Region)
	case ipc.KindListen:
		f.services[m.Service] = c
	case ipc.KindUnlisten:
		delete(f.services, m.Service)
	case ipc.KindDial:
		c.dial(m)
		return
	case ipc.KindAccept:
		if f.deaf > 0 {
			f.deaf--
			return
		}
		cn := f.conns[m.Conn]
		cn.peer.reply.Data = m.Data
		cn.peer.owner.ctl.Send(cn.peer.reply)
		r.Conn = m.Conn
	case ipc.KindRefuse:
		cn := f.conns[m.Conn]
		cn.peer.owner.ctl.Send(cn.peer.reply.Fail(ipc.Errorf(ipc.StatusRefused.Code(), "%s", m.Text)))
	case ipc.KindExport, ipc.KindRevoke, ipc.KindClose, ipc.KindAbort:
		if f.mute && m.Kind == ipc.KindExport {
			return
		}
		r = c.handleGrant(m, r)
	case ipc.KindStatus:
		r.Body = json.RawMessage(`{}`)
	default:
		r = m.Fail(ipc.Errorf(ipc.CodeUnknownKind, "unknown kind %q", m.Kind))
	}
	c.ctl.Send(r)
}

// handleGrant serves requests about exports and the end of a connection.
func (c *fakeClient) handleGrant(m, r *ipc.Message) *ipc.Message {
	f := c.f
	switch m.Kind {
	case ipc.KindExport:
		cn := f.live(c, m)
		if cn == nil {
			return m.Fail(ipc.Errorf(ipc.CodeNoConn, "gone"))
		}
		f.nextID++
		key := uint64(f.nextID)
		f.grants[key] = &fakeGrant{conn: cn, mem: c.regions[m.Region].Bytes()[m.Off : m.Off+m.Size],
			perm: regmem.Perm(m.Perm)}
		r.Key = key
		cn.peer.owner.ctl.Send(&ipc.Message{Kind: ipc.KindAdvert, Conn: cn.peer.id, Name: m.Name, Key: key,
			Size: m.Size, Perm: m.Perm})
	case ipc.KindRevoke:
		delete(f.grants, m.Key)
		cn := f.live(c, m)
		if cn == nil {
			return m.Fail(ipc.Errorf(ipc.CodeNoConn, "gone"))
		}
		cn.peer.owner.ctl.Send(&ipc.Message{Kind: ipc.KindWithdrawn, Conn: cn.peer.id, Key: m.Key})
	case ipc.KindClose, ipc.KindAbort:
		cn := f.conns[m.Conn]
		if cn == nil {
			return m.Fail(ipc.Errorf(ipc.CodeNoConn, "gone"))
		}
		cn.over, cn.told = true, true
		if !cn.peer.over {
			cn.peer.over = true
			cn.peer.flush() // says farewell when everything is delivered
		}
		delete(f.conns, m.Conn)
	}
	return r
}

// live returns the connection of m unless it is over, as it is at once if f.end says so.
func (f *fake) live(c *fakeClient, m *ipc.Message) *fakeConn {
	if f.end != ipc.StatusOK {
		c.ctl.Send(&ipc.Message{Kind: ipc.KindClosed, Conn: m.Conn, Code: f.end.Code()})
		return nil
	}
	if cn := f.conns[m.Conn]; cn != nil && !cn.over {
		return cn
	}
	return nil
}

func (c *fakeClient) dial(m *ipc.Message) {
	f := c.f
	if m.Peer != "fake" {
		c.ctl.Send(m.Fail(ipc.Errorf(ipc.StatusPeerUnknown.Code(), "")))
		return
	}
	to := f.services[m.Service]
	if to == nil {
		c.ctl.Send(m.Fail(ipc.Errorf(ipc.StatusNoService.Code(), "no %s", m.Service)))
		return
	}
	f.nextID += 2
	a := &fakeConn{id: f.nextID - 1, owner: c, credit: ipc.NotifyCredit}
	b := &fakeConn{id: f.nextID, owner: to, credit: ipc.NotifyCredit, peer: a}
	a.peer = b
	a.reply = m.Reply()
	a.reply.Conn, a.reply.Peer = a.id, "fake"
	f.conns[a.id], f.conns[b.id] = a, b
	to.ctl.Send(&ipc.Message{Kind: ipc.KindIncoming, Conn: b.id, Service: m.Service, Peer: "fake", Data: m.Data})
}

// work is the shard: it drains the ring and sleeps as a daemon does.
func (c *fakeClient) work() {
	defer c.done.Done()
	defer c.cleanup()
	var batch [64]ipc.SQE
	var pfd [1]unix.PollFd
	for !c.stop.Load() {
		n, err := c.sq.Drain(batch[:])
		if err != nil {
			c.evicted.Store(true)
			c.ctl.Close()
			return
		}
		if n > 0 {
			c.f.submits.Add(int64(n))
			c.f.mu.Lock()
			for i := range batch[:n] {
				c.f.execute(c, &batch[i])
			}
			c.publish()
			c.f.mu.Unlock()
			continue
		}
		if c.starved.Load() { // nobody tells us of room: look, as the daemon does
			c.f.mu.Lock()
			for _, cn := range c.f.conns {
				if cn.owner == c {
					cn.flush()
				}
			}
			c.f.mu.Unlock()
			runtime.Gosched()
			continue
		}
		c.rings.SetDaemonAsleep(true)
		if !c.sq.Ready() && !c.stop.Load() {
			pfd[0] = unix.PollFd{Fd: int32(c.submit.FD()), Events: unix.POLLIN}
			unix.Poll(pfd[:], -1)
		}
		c.rings.SetDaemonAsleep(false)
		c.submit.Clear()
	}
}

func (c *fakeClient) cleanup() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.stop.Store(true)
	for key, g := range c.f.grants { // they reach into memory that is unmapped now
		if g.conn.owner == c {
			delete(c.f.grants, key)
		}
	}
	for _, m := range c.regions {
		m.Close()
	}
	c.cq = nil
	c.rings.Close()
}

func (c *fakeClient) publish() {
	if c.cq == nil {
		return
	}
	ring := c.cq.Publish()
	if held, _ := c.cq.Held(); held && !c.patient { // a daemon does so in time
		c.cq.Recall()
		ring = c.cq.Publish() || ring
	}
	if ring {
		c.bell.Ring()
	}
}

func (f *fake) execute(c *fakeClient, e *ipc.SQE) {
	if e.Op == ipc.OpCredit {
		c.credits.Add(1)
		if cn := f.conns[e.Conn]; cn != nil {
			cn.credit += int(e.Imm)
			cn.flush()
		}
		return
	}
	if f.hold {
		f.held = append(f.held, heldOp{c, *e})
		return
	}
	if e.Op == ipc.OpReceive {
		c.complete(&ipc.CQE{Kind: ipc.CQReceive, Status: ipc.StatusClosed, Conn: e.Conn, Token: e.Token})
		return
	}
	status := f.fail
	if status == ipc.StatusOK {
		status = f.move(c, e)
		f.moved.Add(int64(e.Len))
	}
	c.complete(&ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
}

func (c *fakeClient) complete(e *ipc.CQE) {
	if c.cq == nil {
		return
	}
	if _, err := c.cq.Refresh(); err != nil || !c.cq.Put(e) {
		c.f.t.Errorf("completion ring: %v, room %d", err, c.cq.Room())
	}
}

func (f *fake) move(c *fakeClient, e *ipc.SQE) ipc.Status {
	cn := f.conns[e.Conn]
	if cn == nil {
		return ipc.StatusNoConn
	}
	if cn.over {
		return ipc.StatusClosed
	}
	g := f.grants[e.Key]
	if g == nil || g.conn != cn.peer {
		return ipc.StatusKey
	}
	local := e.Inline[:e.InlineLen]
	if e.InlineLen == 0 {
		mem := c.regions[e.Region]
		if mem == nil || e.LocalOff+e.Len > uint64(mem.Len()) {
			return ipc.StatusLocal
		}
		local = mem.Bytes()[e.LocalOff : e.LocalOff+e.Len]
	}
	if e.RemoteOff+uint64(len(local)) > uint64(len(g.mem)) {
		return ipc.StatusBounds
	}
	if e.Op == ipc.OpRead {
		copy(local, g.mem[e.RemoteOff:])
		return ipc.StatusOK
	}
	copy(g.mem[e.RemoteOff:], local)
	if e.Flags&ipc.FlagNotify != 0 {
		cn.peer.queue = append(cn.peer.queue, ipc.CQE{Kind: ipc.CQNotify, Conn: cn.peer.id, Token: e.Key, Imm: e.Imm,
			Len: uint32(len(local)), Off: e.RemoteOff})
		cn.peer.flush()
	}
	return ipc.StatusOK
}

func (cn *fakeConn) flush() {
	n := 0
	if cn.owner.cq == nil {
		return
	}
	if _, err := cn.owner.cq.Refresh(); err != nil {
		cn.owner.f.t.Error(err)
	}
	for n < len(cn.queue) && cn.credit > 0 && cn.owner.cq.Used() < int(cn.owner.rings.Layout().CQ)/2 {
		cn.owner.complete(&cn.queue[n])
		cn.credit--
		n++
	}
	cn.queue = cn.queue[:copy(cn.queue, cn.queue[n:])]
	if cn.over && len(cn.queue) == 0 && !cn.told {
		cn.told = true
		cn.owner.publish()
		cn.owner.ctl.Send(&ipc.Message{Kind: ipc.KindClosed, Conn: cn.id, Code: ipc.StatusClosed.Code()})
	}
	if len(cn.queue) > 0 && cn.credit > 0 {
		cn.owner.starved.Store(true)
		cn.owner.submit.Ring()
	} else {
		cn.owner.starved.Store(false)
	}
	cn.owner.publish()
}

// release completes what was held.
func (f *fake) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = false
	for i := range f.held {
		f.execute(f.held[i].c, &f.held[i].e)
		f.held[i].c.publish()
	}
	f.held = nil
}

func (f *fake) setHold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = on
}

// duo is two connected devices with a region each, the server's exported as "mem".
type duo struct {
	f               *fake
	client, server  *Device
	cend, send      *fakeClient
	out, in         *Conn
	local, exported *Region
	grant           *Grant
	remote          *RemoteRegion
}

func newDuo(t testing.TB, cfg Config, size int) *duo {
	t.Helper()
	ctx := testContext(t)
	p := &duo{f: newFake(t)}
	p.client, p.cend = p.f.open(cfg)
	p.server, p.send = p.f.open(cfg)
	l, err := p.server.Listen(ctx, "svc")
	must(t, err)
	accepted := make(chan error, 1)
	go func() {
		var err error
		p.in, err = l.Accept(ctx)
		accepted <- err
	}()
	p.out, err = p.client.Dial(ctx, "fake", "svc")
	must(t, err)
	must(t, <-accepted)
	p.local, err = p.client.Register(size)
	must(t, err)
	p.exported, err = p.server.Register(size)
	must(t, err)
	p.grant, err = p.exported.Export(p.in, "mem", RemoteRead|RemoteWrite, 0, size)
	must(t, err)
	p.remote, err = p.out.Import(ctx, "mem")
	must(t, err)
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// lacks skips a test that needs what this user may not have. Root may have everything, so there it fails.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf("it lacks "+format, args...)
	}
	t.Skipf("it lacks "+format, args...)
}
