package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
	"multiedge/regmem"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is how long any single step of a test may take on a loaded machine. Nothing waits that long when it works.
const deadline = 30 * time.Second

type testLog struct{ t testing.TB }

func (w testLog) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

func logTo(t testing.TB) *slog.Logger {
	if _, fuzz := t.(*testing.F); fuzz || !testing.Verbose() { // what a fuzz target does may not be logged by its F
		return nil
	}
	return slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// nodes starts two embedded daemons in plaintext, a and b, joined by n links in memory.
func nodes(t testing.TB, n int, change func(*config.Config)) (a, b *Embedded) {
	t.Helper()
	return nodesIn(t, config.Plaintext, n, change)
}

// nodesIn is nodes with a choice of security: encrypted, they authorise each other.
func nodesIn(t testing.TB, security string, n int, change func(*config.Config)) (a, b *Embedded) {
	t.Helper()
	keys := map[string]secure.PrivateKey{"a": secure.NewPrivateKey(), "b": secure.NewPrivateKey()}
	ends := map[string]linkdrv.Driver{}
	var linksA, linksB []config.Link
	for k := range n {
		x, y := linktest.PairN(k, 9000, 256)
		x.FD() // an End makes its descriptor on first use: here, so that no test takes it for a leak
		y.FD()
		nameA, nameB := fmt.Sprintf("a%d", k), fmt.Sprintf("b%d", k)
		ends[nameA], ends[nameB] = x, y
		linksA, linksB = append(linksA, config.Link{Name: nameA}), append(linksB, config.Link{Name: nameB})
	}
	o := Options{Log: logTo(t), Version: "test", Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver,
		error) {
		return ends[l.Name], nil
	}}
	start := func(name, peer string, links []config.Link) *Embedded {
		cfg := config.Config{Name: name, Links: links, Poll: "block",
			Timing: config.Timing{DialTimeout: 2 * time.Second}, Security: security}
		if security == config.Encrypted {
			key := keys[name]
			o.Key, cfg.Peers = &key, []config.Peer{{Name: peer, Key: keys[peer].Public().String()}}
		}
		if change != nil {
			change(&cfg)
		}
		e, err := NewEmbedded(cfg, o)
		must(t, err)
		t.Cleanup(func() { e.Close() })
		return e
	}
	return start("a", "b", linksA), start("b", "a", linksB)
}

// testClient speaks the daemon's protocol by hand: what a hostile client can do, it can do.
type testClient struct {
	t        testing.TB
	conn     *ipc.Conn
	in       chan *ipc.Message
	events   []*ipc.Message
	id       uint64
	wish     int // of hello: shard, from 1
	rings    *ipc.Rings
	sq       *ipc.SubmitProducer
	cq       *ipc.CompleteConsumer
	bell     *ipc.Doorbell
	complete *ipc.Watcher
	window   int
	spare    []ipc.CQE
	regions  []*regmem.Memory
}

// open attaches without hello.
func open(t testing.TB, e *Embedded) *testClient {
	t.Helper()
	conn, err := e.Attach()
	must(t, err)
	c := &testClient{t: t, conn: conn, in: make(chan *ipc.Message, 4096)}
	t.Cleanup(c.close)
	return c
}

// attach opens a client with rings.
func attach(t testing.TB, e *Embedded, depth int) *testClient {
	t.Helper()
	c := open(t, e)
	must(t, c.hello(depth))
	return c
}

// hello gets the rings and starts receiving messages.
func (c *testClient) hello(depth int) error {
	hello := ipc.Hello(depth)
	hello.Shard, hello.Features = c.wish, ipc.FeatureMessages|ipc.FeatureEager|ipc.FeatureGather|
		ipc.FeatureScatter|ipc.FeatureBytes
	rings, err := c.greet(hello)
	if err == nil {
		unix.Close(rings)
	}
	return err
}

// greet is hello in other words. It returns the descriptor of the rings' memory.
func (c *testClient) greet(hello *ipc.Message) (rings int, err error) {
	m, fds, err := c.exchange(hello)
	if err != nil {
		return -1, err
	}
	if c.rings, err = ipc.MapRings(fds[0], m.Rings); err != nil {
		return -1, err
	}
	c.bell = ipc.DoorbellFromFD(fds[1])
	if c.complete, err = ipc.WatcherFromFD(fds[2]); err != nil {
		return -1, err
	}
	c.sq, c.cq, c.window = c.rings.SubmitProducer(), c.rings.CompleteConsumer(), m.Window
	go c.receive()
	return fds[0], nil
}

// exchange sends a request and receives the next message: for use before the receiving goroutine runs.
func (c *testClient) exchange(m *ipc.Message) (*ipc.Message, []int, error) {
	c.id++
	m.ID = c.id
	if err := c.conn.Send(m); err != nil {
		return nil, nil, err
	}
	reply, fds, err := c.conn.RecvFDs()
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	return reply, fds, err
}

func (c *testClient) receive() {
	defer close(c.in)
	for {
		m, fds, err := c.conn.RecvFDs()
		if err != nil {
			return
		}
		if len(fds) > 0 {
			mem, err := regmem.Map(fds[0], int(m.Size))
			if err != nil {
				ipc.CloseFDs(fds)
				return
			}
			c.regions = append(c.regions, mem)
		}
		c.in <- m
	}
}

// close is the client's death as the daemon sees it.
func (c *testClient) close() {
	c.conn.Close()
	if c.rings == nil {
		return
	}
	for range c.in {
	}
	for _, m := range c.regions {
		m.Close()
	}
	c.rings.Close()
	c.bell.Close()
	c.complete.Close()
	c.rings = nil
}

// send sends a request whose reply is taken later.
func (c *testClient) send(m *ipc.Message) uint64 {
	c.t.Helper()
	c.id++
	m.ID = c.id
	if err := c.conn.Send(m); err != nil {
		c.t.Fatalf("sending %s: %v", m.Kind, err)
	}
	return c.id
}

// message waits for the next message that fits.
func (c *testClient) message(what string, fits func(*ipc.Message) bool) *ipc.Message {
	c.t.Helper()
	for i, m := range c.events {
		if fits(m) {
			c.events = append(c.events[:i], c.events[i+1:]...)
			return m
		}
	}
	late := time.After(deadline)
	for {
		select {
		case m, ok := <-c.in:
			if !ok {
				c.t.Fatalf("the daemon closed the socket while %s was awaited", what)
			}
			if fits(m) {
				return m
			}
			c.events = append(c.events, m)
		case <-late:
			c.t.Fatalf("no %s within %v", what, deadline)
		}
	}
}

// reply waits for the answer to a request.
func (c *testClient) reply(id uint64) (*ipc.Message, error) {
	c.t.Helper()
	m := c.message(fmt.Sprintf("reply %d", id), func(m *ipc.Message) bool { return m.ID == id })
	if m.Error != nil {
		return m, m.Error
	}
	return m, nil
}

func (c *testClient) call(m *ipc.Message) (*ipc.Message, error) {
	c.t.Helper()
	return c.reply(c.send(m))
}

// must is call for requests that have to succeed.
func (c *testClient) must(m *ipc.Message) *ipc.Message {
	c.t.Helper()
	r, err := c.call(m)
	if err != nil {
		c.t.Fatalf("%s: %v", m.Kind, err)
	}
	return r
}

func (c *testClient) event(k ipc.Kind) *ipc.Message {
	c.t.Helper()
	return c.message(k.String(), func(m *ipc.Message) bool { return m.ID == 0 && m.Kind == k })
}

// fails requires a refusal with the given code.
func (c *testClient) fails(m *ipc.Message, code ipc.Code) *ipc.Error {
	c.t.Helper()
	_, err := c.call(m)
	e, ok := errors.AsType[*ipc.Error](err)
	if !ok || e.Code != code {
		c.t.Fatalf("%s: got %v, want a refusal with code %q", m.Kind, err, code.String())
	}
	if e.Text == "" {
		c.t.Errorf("%s: the refusal %q does not say what to do", m.Kind, code.String())
	}
	return e
}

// post publishes submissions as a well-behaved client does.
func (c *testClient) post(es ...ipc.SQE) {
	c.t.Helper()
	for i := range es {
		for start := time.Now(); ; runtime.Gosched() {
			if room, err := c.sq.Room(); err != nil {
				c.t.Fatal(err)
			} else if room > 0 {
				break
			}
			if time.Since(start) > deadline {
				c.t.Fatal("no room in the submission ring")
			}
		}
		c.sq.Put(&es[i])
		if c.sq.Publish() {
			c.bell.Ring()
		}
	}
}

// entry waits for the next completion or notification.
func (c *testClient) entry() ipc.CQE {
	c.t.Helper()
	var buf [1]ipc.CQE
	for start := time.Now(); time.Since(start) < deadline; time.Sleep(20 * time.Microsecond) {
		n, err := c.cq.Drain(buf[:])
		if err != nil {
			c.t.Fatal(err)
		}
		if n == 1 {
			return buf[0]
		}
	}
	c.t.Fatal("nothing completed")
	return ipc.CQE{}
}

// completion waits for the next completion and sets notifications aside.
func (c *testClient) completion() ipc.CQE {
	c.t.Helper()
	for {
		e := c.entry()
		if e.Kind == ipc.CQComplete {
			return e
		}
		c.spare = append(c.spare, e)
	}
}

// register returns a region's number and bytes.
func (c *testClient) register(size int) (uint32, []byte) {
	c.t.Helper()
	id, mem, err := c.tryRegister(size)
	if err != nil {
		c.t.Fatalf("register: %v", err)
	}
	return id, mem
}

// offer asks for a region and maps it, without saying so.
func (c *testClient) offer(size int) (uint32, []byte) {
	c.t.Helper()
	m := c.must(&ipc.Message{Kind: ipc.KindRegister, Size: uint64(size)})
	return m.Region, c.regions[len(c.regions)-1].Bytes()
}

// tryRegister is register where it may be refused.
func (c *testClient) tryRegister(size int) (uint32, []byte, error) {
	c.t.Helper()
	m, err := c.call(&ipc.Message{Kind: ipc.KindRegister, Size: uint64(size)})
	if err == nil {
		_, err = c.call(&ipc.Message{Kind: ipc.KindMapped, Region: m.Region})
	}
	if err != nil {
		return 0, nil, err
	}
	return m.Region, c.regions[len(c.regions)-1].Bytes(), nil
}

// gone waits until the daemon has ended the control connection.
func (c *testClient) gone() {
	c.t.Helper()
	late := time.After(deadline)
	for {
		select {
		case _, ok := <-c.in:
			if !ok {
				return
			}
		case <-late:
			c.t.Fatal("the daemon kept a client that broke the rules")
		}
	}
}

// connect joins two clients by a connection of the named service.
func connect(t testing.TB, server, client *testClient, peer, service string) (atServer, atClient uint32) {
	t.Helper()
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: service})
	return dialAccept(t, server, client, peer, service)
}

func dialAccept(t testing.TB, server, client *testClient, peer, service string) (atServer, atClient uint32) {
	t.Helper()
	id := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: peer, Service: service, Data: []byte("hi")})
	in := server.event(ipc.KindIncoming)
	if in.Service != service || string(in.Data) != "hi" {
		t.Fatalf("incoming: %+v", in)
	}
	server.must(&ipc.Message{Kind: ipc.KindAccept, Conn: in.Conn, Data: []byte("ho")})
	r, err := client.reply(id)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if string(r.Data) != "ho" || r.Peer != peer {
		t.Fatalf("dial reply: %+v", r)
	}
	return in.Conn, r.Conn
}

// until polls a condition of the outside world (descriptors, pinned bytes) that no channel announces.
func until(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// exportTo exports the start of a region on a connection of owner, and returns the key once the peer knows it.
func exportTo(owner, peer *testClient, conn, region uint32, size uint64, perm regmem.Perm) uint64 {
	owner.t.Helper()
	owner.must(&ipc.Message{Kind: ipc.KindExport, Conn: conn, Region: region, Size: size, Perm: uint8(perm), Name: "x"})
	return peer.event(ipc.KindAdvert).Key
}

// snapshot is what a daemon tells of itself now.
func snapshot(t testing.TB, d *Daemon) *inspect.Snapshot {
	t.Helper()
	snap, err := d.Snapshot()
	must(t, err)
	return snap
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
