package daemon

import (
	"net"
	"os"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// fileConn wraps one end of a socket pair.
func fileConn(fd int) (*ipc.Conn, error) {
	f := os.NewFile(uintptr(fd), "test")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return ipc.NewConn(c.(*net.UnixConn)), nil
}

// queues is what a client with queues of that depth is charged for, in whole pages.
func queues(t *testing.T, depth int) int {
	t.Helper()
	l, err := ipc.LayoutFor(depth)
	must(t, err)
	return int(pages(attachBytes(l)))
}

func TestLimits(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) {
		c.Limits = config.Limits{
			Clients:        3,
			ClientsPerUser: 2,
			Regions:        2,
			Exports:        1,
			Conns:          2,
			Services:       1,
			Backlog:        1,
			Pinned:         config.Size(64<<10 + 2*queues(t, 64)),
			Queue:          64,
		}
	})
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	server.fails(&ipc.Message{Kind: ipc.KindListen, Service: "t"}, ipc.CodeLimit)

	for _, depth := range []int{128, 3, 1 << 20} {
		if err := open(t, a).hello(depth); err == nil {
			t.Errorf("queue depth %d was granted", depth)
		}
	}

	// Pinned bytes are counted over all clients of a user, in pages.
	second := attach(t, b, 64)
	first, _ := client.register(1)
	second.register(32 << 10)
	client.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 32 << 10}, ipc.CodeLimit)
	client.register(28 << 10)
	client.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 1}, ipc.CodeLimit)
	client.must(&ipc.Message{Kind: ipc.KindDeregister, Region: first})
	client.register(4096)
	client.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 0}, ipc.CodeInvalid)
	client.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 1 << 63}, ipc.CodeInvalid)
	client.fails(&ipc.Message{Kind: ipc.KindDeregister, Region: first}, ipc.CodeNoRegion)

	// Clients per user.
	third := open(t, b)
	if err := third.hello(64); err == nil || !strings.Contains(err.Error(), "clients_per_user") {
		t.Errorf("third client: %v", err)
	}
	second.close()
	until(t, "room for another client", deadline, func() bool { return open(t, b).hello(64) == nil })

	// A service that does not answer has one request waiting; the second is refused.
	waiting := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"})
	in := server.event(ipc.KindIncoming)
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"}, ipc.StatusRefused.Code())
	server.must(&ipc.Message{Kind: ipc.KindAccept, Conn: in.Conn})
	if _, err := client.reply(waiting); err != nil {
		t.Fatal(err)
	}
	one, _ := dialAccept(t, server, client, "a", "s")
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"}, ipc.CodeLimit)

	// Exports.
	region, _ := server.register(4096)
	exp := &ipc.Message{Kind: ipc.KindExport, Conn: one, Region: region, Size: 1, Perm: 1, Name: "x"}
	key := server.must(exp).Key
	server.fails(exp, ipc.CodeLimit)
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: one, Key: key})
	server.must(exp)
	// Deregistering revokes what is exported and gives the quota back.
	server.must(&ipc.Message{Kind: ipc.KindDeregister, Region: region})
	region, _ = server.register(4096)
	exp.Region = region
	server.must(exp)
}

// A client that dies takes its connections with it and leaves nothing behind; its peers are told.
func TestClientDeath(t *testing.T) {
	a, b := nodes(t, 2, nil)
	server := attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	region, _ := server.register(1 << 20)
	pinned, files := regmem.Pinned(), openFiles(t)
	for round := range 5 {
		client := attach(t, b, 64)
		atServer, atClient := dialAccept(t, server, client, "a", "s")
		key := exportTo(server, client, atServer, region, 1<<20, regmem.RemoteWrite|regmem.RemoteRead)
		client.must(&ipc.Message{Kind: ipc.KindListen, Service: "mine"})
		local, _ := client.register(1 << 20)
		half := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"})
		if half == 0 {
			t.Fatal("no id")
		}
		pending := server.event(ipc.KindIncoming).Conn
		for i := range 64 {
			op := ipc.OpWrite
			if i%2 == 1 {
				op = ipc.OpRead
			}
			client.post(ipc.SQE{Op: op, Conn: atClient, Token: uint64(i), Key: key, Region: local, Len: 1 << 20})
		}
		client.close() // with everything in flight
		// Whoever asked is gone: that is found out at the latest when the answer is.
		server.send(&ipc.Message{Kind: ipc.KindAccept, Conn: pending})
		ended := map[uint32]bool{}
		for !ended[atServer] || !ended[pending] {
			ended[server.event(ipc.KindClosed).Conn] = true
		}
		until(t, "memory unpinned", deadline, func() bool { return regmem.Pinned() == pinned })
		until(t, "descriptors closed", deadline, func() bool { return openFiles(t) <= files })
		snap := snapshot(t, b.Daemon())
		if n := len(snap.Clients) + len(snap.Regions) + snap.Status.Exports; n != 0 {
			t.Fatalf("round %d: left behind: %+v", round, snap)
		}
	}
}

// A server that dies while a peer writes to its memory: the memory goes, the peer's operations end with an error.
func TestExporterDeath(t *testing.T) {
	a, b := nodes(t, 1, nil)
	client := attach(t, b, 64)
	local, _ := client.register(1 << 20)
	pinned := regmem.Pinned()
	server := attach(t, a, 64)
	atServer, atClient := connect(t, server, client, "a", "s")
	region, _ := server.register(1 << 20)
	key := exportTo(server, client, atServer, region, 1<<20, regmem.RemoteWrite|regmem.RemoteRead)
	for i := range 32 {
		client.post(ipc.SQE{Op: 1 + ipc.Op(i%2), Conn: atClient, Token: uint64(i), Key: key, Region: local,
			Len: 1 << 20})
	}
	server.close()
	for range 32 { // each ends, some well
		client.completion()
	}
	if m := client.event(ipc.KindClosed); m.Conn != atClient {
		t.Fatalf("%+v", m)
	}
	until(t, "memory unpinned", deadline, func() bool { return regmem.Pinned() == pinned })
}

// Operations beyond the window of a connection are refused, one by one.
func TestOperationWindow(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.OpWindow = 4 })
	server, client := attach(t, a, 64), attach(t, b, 64)
	_, atClient := connect(t, server, client, "a", "s")
	if client.window != 4 {
		t.Fatalf("window %d", client.window)
	}
	// The peer's daemon is stopped by holding its token, so that nothing completes.
	until(t, "hold of a", deadline, func() bool { return a.d.shard.Hold() })
	for i := range 6 {
		client.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: atClient, Token: uint64(i), Key: 1})
	}
	for _, token := range []uint64{4, 5} {
		if e := client.completion(); e.Status != ipc.StatusLimit || e.Token != token {
			t.Fatalf("%+v", e)
		}
	}
	a.d.shard.Release()
	for range 4 {
		if e := client.completion(); e.Status != ipc.StatusKey {
			t.Fatalf("%+v", e)
		}
	}
}

// The file limit of the process is met by an error, and clients are served again afterwards.
func TestOutOfDescriptors(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := open(t, a)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := unix.Rlimit{Cur: 3, Max: old.Max} // below what is open: nothing new can be had
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	_, _, err := c.exchange(ipc.Hello(64))
	if restore := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); restore != nil {
		t.Fatal(restore)
	}
	if err == nil {
		t.Fatal("rings without descriptors")
	}
	must(t, c.hello(64))
	c.register(4096)
}
