package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
	"multiedge/regmem"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// wires puts the test into a network namespace with n pairs of interfaces a0 - b0, a1 - b1, ..., all up.
func wires(t *testing.T, n, mtu int) {
	t.Helper()
	runtime.LockOSThread()
	old, err := netns.Get()
	must(t, err)
	fresh, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace (needs root): %v", err)
	}
	t.Cleanup(func() {
		must(t, netns.Set(old))
		fresh.Close()
		old.Close()
		runtime.UnlockOSThread()
	})
	for i := range n {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = fmt.Sprint("a", i), mtu
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprint("b", i),
			PeerMTU: uint32(mtu)}))
		set(t, attrs.Name, netlink.LinkSetUp)
		set(t, fmt.Sprint("b", i), netlink.LinkSetUp)
	}
}

func set(t *testing.T, name string, f func(netlink.Link) error) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = f(l)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// serveShards runs a daemon of that name, a or b, with so many shards on so many links, and receivers where shards are
// several.
func serveShards(t *testing.T, driver, security, name string, shards, links int) *Daemon {
	t.Helper()
	return serveOn(t, security, name, links, func(c *config.Config) {
		c.Shards, c.Receivers, c.Driver = shards, shards-1, driver
	})
}

// serveOn runs a daemon of that name, a or b, on so many links.
func serveOn(t *testing.T, security, name string, links int, change func(*config.Config)) *Daemon {
	t.Helper()
	cfg := config.Config{Name: name, Socket: filepath.Join(t.TempDir(), "s"), Poll: "block",
		Timing: config.Timing{DialTimeout: 2 * time.Second}, Security: security}
	change(&cfg)
	o := Options{Log: logTo(t)}
	if security == config.Encrypted {
		name := string("ba"[name[0]-'a'])
		peer := config.Peer{Name: name, Key: secure.PrivateKey{name[0]}.Public().String()}
		if len(cfg.Peers) > 0 {
			peer.Endpoints = cfg.Peers[0].Endpoints
		}
		o.Key, cfg.Peers = &secure.PrivateKey{"ba"[name[0]-'a']}, []config.Peer{peer}
	}
	for i := range links {
		cfg.Links = append(cfg.Links, config.Link{Name: fmt.Sprint(name, i)})
	}
	d, err := New(cfg, o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-d.Ready()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return d
}

// clientOf attaches to a daemon's socket, to a shard counted from 1, or to any.
func clientOf(t *testing.T, d *Daemon, shard int) *testClient {
	t.Helper()
	conn, err := ipc.Dial(t.Context(), d.cfg.Socket)
	must(t, err)
	c := &testClient{t: t, conn: conn, in: make(chan *ipc.Message, 4096), wish: shard}
	t.Cleanup(c.close)
	must(t, c.hello(256))
	return c
}

// stream is a connection with memory at both ends.
type stream struct {
	server, client     *testClient
	atServer, atClient uint32
	key                uint64
	local              uint32
	source, target     []byte
}

const streamSize = 200_000

func newStream(t *testing.T, server, client *testClient, peer, service string) *stream {
	t.Helper()
	s := &stream{server: server, client: client}
	s.atServer, s.atClient = dialAccept(t, server, client, peer, service)
	var region uint32
	region, s.target = server.register(streamSize)
	s.key = exportTo(server, client, s.atServer, region, streamSize, regmem.RemoteRead|regmem.RemoteWrite)
	s.local, s.source = client.register(streamSize)
	return s
}

// write writes fresh bytes, waits for the completion and the notification, and looks at what arrived.
func (s *stream) write(t *testing.T) {
	t.Helper()
	rand.Read(s.source[:streamSize])
	s.client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Conn: s.atClient, Imm: 5, Token: 9, Key: s.key,
		Region: s.local, Len: streamSize})
	if e := s.client.completion(); e.Status != ipc.StatusOK || e.Conn != s.atClient {
		t.Fatalf("write: %+v", e)
	}
	if e := s.server.entry(); e.Kind != ipc.CQNotify || e.Conn != s.atServer || e.Imm != 5 {
		t.Fatalf("notification: %+v", e)
	}
	if !bytes.Equal(s.target[:streamSize], s.source[:streamSize]) {
		t.Fatal("the write did not arrive as sent")
	}
}

// crossing connects a client at every shard of b with a server at every shard of a.
func crossing(t *testing.T, a, b *Daemon) (all []*stream) {
	t.Helper()
	var clients []*testClient
	for i := range b.shards {
		clients = append(clients, clientOf(t, b, i+1))
	}
	for i := range a.shards {
		server, service := clientOf(t, a, i+1), fmt.Sprint("service", i)
		server.must(&ipc.Message{Kind: ipc.KindListen, Service: service})
		for _, c := range clients {
			all = append(all, newStream(t, server, c, "a", service))
		}
	}
	return all
}

// Connections work whatever shards their ends sit on, and however many shards the nodes have.
func TestShardsCrossing(t *testing.T) {
	for i, n := range [][2]int{{2, 2}, {1, 2}, {3, 1}, {2, 2}, {2, 3}} {
		security := []string{config.Plaintext, config.Encrypted}[min(i, 1)]
		driver := []string{linkdrv.KindAlone, linkdrv.KindUDP}[i/3]
		t.Run(fmt.Sprint(security, n, driver), func(t *testing.T) {
			wires(t, 2, 9000)
			a, b := serveShards(t, driver, security, "a", n[0], 2), serveShards(t, driver, security, "b", n[1], 2)
			streams := crossing(t, a, b)
			for range 3 {
				for _, s := range streams {
					s.write(t)
				}
			}
			checkShardStatus(t, a, b, n)
		})
	}
}

func checkShardStatus(t *testing.T, a, b *Daemon, n [2]int) {
	t.Helper()
	sa := snapshot(t, a)
	sb := snapshot(t, b)
	pairs := n[0] * n[1]
	if sa.Status.Connections != pairs || sb.Status.Connections != pairs || len(sa.Conns) != pairs ||
		sa.Status.Clients != n[0] || sa.Status.Peers != 1 || sa.Status.LinksUp != 2 {
		t.Errorf("status of a: %+v", sa.Status)
	}
	if len(sa.Status.Shards) != n[0] {
		t.Fatalf("%d shards are listed, want %d", len(sa.Status.Shards), n[0])
	}
	sum := uint64(0)
	for i, s := range sa.Status.Shards {
		if s.Shard != i || s.Thread == 0 || s.Clients != 1 || s.Connections != n[1] || s.Counters["ops_applied"] == 0 {
			t.Errorf("shard %d: %+v", i, s)
		}
		sum += s.Counters["frames_received"]
	}
	if total := sa.Status.Counters["frames_received"]; total != sum ||
		sa.Links[0].Counters["frames_received"]+sa.Links[1].Counters["frames_received"] != total {
		t.Errorf("%d frames received, by shards %d, by links %v and %v", total, sum, sa.Links[0].Counters,
			sa.Links[1].Counters)
	}
	if m := inspect.MergePeers(sa.Peers); len(sa.Peers) != pairs || len(m) != 1 || m[0].Connections != pairs ||
		len(m[0].Paths) != 2 {
		t.Errorf("%d peers, merged %+v", len(sa.Peers), m)
	}
	if n := sb.Latency.Write.Count(); n != uint64(3*pairs) ||
		n != sb.Counters.Op.OpsCompleted-sb.Counters.Op.OpsFailed ||
		sb.Latency.Read.Count() != 0 {
		t.Errorf("%d writes were timed, want %d", n, 3*pairs)
	}
	if sa.Latency.Write.Count() != 0 || sa.Links[0].RoundTrips.Count()+sa.Links[1].RoundTrips.Count() == 0 {
		t.Errorf("latency at a: %+v, links %+v", sa.Latency, sa.Links)
	}
	// frames for shards that the kernel put elsewhere would be seen here
	for _, s := range []*inspect.Snapshot{sa, sb} {
		if c := &s.Counters; c.Life.SessionsFailed != 0 || c.Reject.UnknownSession != 0 ||
			c.Reject.RejectedMalformed != 0 {
			t.Errorf("%s: %+v", s.Status.Name, *c)
		}
	}
}

// A link that goes down and comes back, or is taken away and given back by a reload, is every shard's again, and no
// session suffers.
func TestShardsLinks(t *testing.T) {
	for _, driver := range []string{linkdrv.KindRing, linkdrv.KindUDP} {
		t.Run(driver, func(t *testing.T) { testShardsLinks(t, driver) })
	}
}

func testShardsLinks(t *testing.T, driver string) {
	wires(t, 2, 9000)
	a, b := serveShards(t, driver, config.Plaintext, "a", 2, 2), serveShards(t, driver, config.Plaintext, "b", 2, 2)
	streams := crossing(t, a, b)
	use := func() {
		for _, s := range streams {
			s.write(t)
		}
	}
	links := func(d *Daemon, up int) func() bool {
		return func() bool { return snapshot(t, d).Status.LinksUp == up }
	}
	use()
	set(t, "a1", netlink.LinkSetDown)
	until(t, "link down", deadline, links(a, 1))
	use()
	set(t, "a1", netlink.LinkSetUp)
	until(t, "link up", deadline, links(a, 2))
	use()
	cfg := b.Config()
	both := cfg.Links
	for _, want := range [][]config.Link{both[1:], both} {
		cfg.Links = want
		must(t, b.Reload(cfg))
		until(t, "links of the reload", deadline, links(b, len(want)))
		use()
	}
	for _, d := range []*Daemon{a, b} {
		s := snapshot(t, d)
		if s.Counters.Life.SessionsFailed != 0 {
			t.Errorf("%s: %+v", s.Status.Name, s.Counters)
		}
		// a driver is opened anew when its link changed, and not because its own headers take some of the MTU
		for _, l := range s.Links {
			if l.Driver != driver || l.MTU != 9000 || l.Opens > 4 {
				t.Errorf("%s: %+v", s.Status.Name, l)
			}
		}
	}
}
