package daemon

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// raw maps a client's rings again, as bytes: what a client can write, it can write wrongly. The offsets are those of
// ipc's layout.
func raw(t testing.TB, a *Embedded, depth int) (*testClient, []byte) {
	return rawOf(t, a, ipc.Hello(depth))
}

// rawOf is raw for one that greets so.
func rawOf(t testing.TB, a *Embedded, hello *ipc.Message) (*testClient, []byte) {
	t.Helper()
	c := open(t, a)
	rings, err := c.greet(hello)
	must(t, err)
	defer unix.Close(rings)
	mem, err := unix.Mmap(rings, 0, c.rings.Layout().Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(mem) })
	return c, mem
}

const (
	offSQTail = 0 * 128
	offCQHead = 3 * 128
	offSQ     = 4096
)

// Each of these ends the client that does it and nobody else.
func TestHostileRings(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, peer := attach(t, a, 64), attach(t, b, 64)
	atServer, atPeer := connect(t, server, peer, "a", "mem")
	tests := []struct {
		name string
		do   func(c *testClient, mem []byte)
	}{
		{"tail far ahead", func(c *testClient, mem []byte) { binary.LittleEndian.PutUint32(mem[offSQTail:], 1<<20) }},
		{"tail behind", func(c *testClient, mem []byte) { binary.LittleEndian.PutUint32(mem[offSQTail:], ^uint32(0)) }},
		{"unknown operation", func(c *testClient, mem []byte) {
			mem[offSQ] = 77
			binary.LittleEndian.PutUint32(mem[offSQTail:], 1)
		}},
		{"reserved bytes", func(c *testClient, mem []byte) {
			mem[offSQ], mem[offSQ+3] = 1, 1
			binary.LittleEndian.PutUint32(mem[offSQTail:], 1)
		}},
		{"local range that wraps", func(c *testClient, mem []byte) {
			ipc.EncodeSQE(mem[offSQ:], &ipc.SQE{Op: ipc.OpWrite, LocalOff: 1<<64 - 8, Len: 16})
			binary.LittleEndian.PutUint32(mem[offSQTail:], 1)
		}},
		{"completion head ahead of the tail", func(c *testClient, mem []byte) {
			binary.LittleEndian.PutUint32(mem[offCQHead:], 1<<20)
			for i := range 64 { // each completes at once; the head is looked at when the ring seems full
				ipc.EncodeSQE(mem[offSQ+64*i:], &ipc.SQE{Op: ipc.OpWrite, Conn: 99, Token: uint64(i)})
			}
			for tail := uint32(64); tail <= 512; tail += 64 {
				binary.LittleEndian.PutUint32(mem[offSQTail:], tail)
				c.bell.Ring()
				time.Sleep(200 * time.Microsecond) // pace only: the daemon drains what it can
			}
		}},
		{"noise in every word", func(c *testClient, mem []byte) {
			for i := range mem {
				mem[i] = byte(i*131 + 17)
			}
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, mem := raw(t, a, 64)
			c.t = t
			tc.do(c, mem)
			c.bell.Ring()
			c.gone()
		})
	}
	until(t, "evicted clients are forgotten", deadline, func() bool {
		snap := snapshot(t, a.Daemon())
		return snap.Status.Evictions == uint64(len(tests)) && snap.Status.Clients == 1
	})
	// The others work on.
	region, target := server.register(4096)
	key := exportTo(server, peer, atServer, region, 4096, regmem.RemoteWrite)
	e := ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: atPeer, Token: 1, Key: key}
	e.Inline[0] = 42
	peer.post(e)
	if got := peer.completion(); got.Status != ipc.StatusOK || target[0] != 42 {
		t.Fatalf("%+v, %d", got, target[0])
	}
}

// What a client may get wrong without being hostile is answered by a completion for that operation only.
func TestBadOperations(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, atClient := connect(t, server, client, "a", "mem")
	other := attach(t, b, 64)
	foreign, _ := other.register(4096)
	region, _ := server.register(4096)
	server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Off: 96, Size: 1000,
		Perm: uint8(regmem.RemoteWrite), Name: "x"})
	key := client.event(ipc.KindAdvert).Key
	local, _ := client.register(4096)
	gone, _ := client.register(4096)
	client.must(&ipc.Message{Kind: ipc.KindDeregister, Region: gone})
	tests := []struct {
		name string
		e    ipc.SQE
		want ipc.Status
	}{
		{"good", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: local, Len: 1000}, ipc.StatusOK},
		{"empty", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key}, ipc.StatusOK},
		{"no such connection", ipc.SQE{Op: ipc.OpWrite, Conn: atClient + 1, Key: key, Region: local, Len: 1},
			ipc.StatusNoConn},
		{"no such region", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: 12345, Len: 1}, ipc.StatusLocal},
		{"region zero", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Len: 1}, ipc.StatusLocal},
		{"deregistered region", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: gone, Len: 1},
			ipc.StatusLocal},
		{"another client's region", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: foreign + 1<<16, Len: 1},
			ipc.StatusLocal},
		{"past the region's end", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, Region: local, LocalOff: 4000,
			Len: 97}, ipc.StatusLocal},
		{"far past the region's end", ipc.SQE{Op: ipc.OpRead, Conn: atClient, Key: key, Region: local,
			LocalOff: 1 << 63, Len: 8}, ipc.StatusLocal},
		{"remote bounds", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, RemoteOff: 1<<64 - 8, InlineLen: 8},
			ipc.StatusBounds},
		{"remote permission", ipc.SQE{Op: ipc.OpRead, Conn: atClient, Key: key, Region: local, Len: 8},
			ipc.StatusPermission},
		{"remote key", ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key + 1, InlineLen: 8}, ipc.StatusKey},
	}
	for i, tc := range tests {
		tc.e.Token = uint64(i) | 1<<63
		client.post(tc.e)
		if got := client.completion(); got.Status != tc.want || got.Token != tc.e.Token {
			t.Errorf("%s: status %v token %#x, want %v", tc.name, got.Status, got.Token, tc.want)
		}
	}
	server.fails(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Off: 1<<64 - 8, Size: 16, Perm: 1,
		Name: "y"}, ipc.StatusBounds.Code())
	server.fails(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: 16, Perm: 8, Name: "y"},
		ipc.CodeInvalid)
	server.fails(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: 999, Size: 16, Perm: 1, Name: "y"},
		ipc.CodeNoRegion)
	server.fails(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: 16, Perm: 1}, ipc.CodeInvalid)
	server.fails(&ipc.Message{Kind: ipc.KindRevoke, Conn: atServer, Key: 1}, ipc.StatusKey.Code())
	client.fails(&ipc.Message{Kind: ipc.KindRevoke, Conn: atClient, Key: key}, ipc.StatusKey.Code())
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Conn: atServer, Key: key})
	if m := client.event(ipc.KindWithdrawn); m.Key != key {
		t.Fatalf("withdrawn: %+v", m)
	}
	client.post(ipc.SQE{Op: ipc.OpWrite, Conn: atClient, Key: key, InlineLen: 8})
	if got := client.completion(); got.Status != ipc.StatusKey {
		t.Errorf("after revoke: %v", got.Status)
	}
}

// An operation that was posted before the client knew of the connection's end ends like the connection.
func TestOperationsTooLate(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server := attach(t, a, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	for name, end := range map[string]func(client *testClient, id uint32){
		"closed by the peer": func(client *testClient, id uint32) {
			client.must(&ipc.Message{Kind: ipc.KindClose,
				Conn: id})
		},
		"aborted by the peer": func(client *testClient, id uint32) {
			client.must(&ipc.Message{Kind: ipc.KindAbort,
				Conn: id})
		},
		"peer gone": func(client *testClient, _ uint32) { client.close() },
	} {
		t.Run(name, func(t *testing.T) {
			client := attach(t, b, 64)
			atServer, atClient := dialAccept(t, server, client, "a", "s")
			end(client, atClient)
			m := server.event(ipc.KindClosed)
			server.post(ipc.SQE{Op: ipc.OpWrite, Conn: atServer, Key: 1, InlineLen: 1})
			if e := server.completion(); e.Status.Code() != m.Code {
				t.Errorf("the connection ended with %q, the operation with %v", m.Code, e.Status)
			}
		})
	}
}

// A client that does not return credit stalls only itself, and one that returns what it never had is evicted.
func TestNotifyCredit(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 512), attach(t, b, 512)
	atServer, atClient := connect(t, server, client, "a", "mem")
	region, _ := server.register(4096)
	key := exportTo(server, client, atServer, region, 4096, regmem.RemoteWrite)
	const extra = 10
	for i := range ipc.NotifyCredit + extra {
		client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, InlineLen: 1, Conn: atClient, Imm: uint32(i),
			Token: uint64(i), Key: key})
	}
	for range ipc.NotifyCredit + extra {
		if e := client.completion(); e.Status != ipc.StatusOK {
			t.Fatalf("%+v", e)
		}
	}
	var buf [1024]ipc.CQE
	got := 0
	take := func() {
		n, err := server.cq.Drain(buf[:])
		must(t, err)
		for _, e := range buf[:n] {
			if e.Kind != ipc.CQNotify || e.Imm != uint32(got) {
				t.Fatalf("notification %d: %+v", got, e)
			}
			got++
		}
	}
	until(t, "all notifications with credit", deadline, func() bool { take(); return got >= ipc.NotifyCredit })
	// a round trip through the shard: had there been more, they would be here
	server.must(&ipc.Message{Kind: ipc.KindStatus})
	if take(); got != ipc.NotifyCredit {
		t.Fatalf("%d notifications delivered, the credit is %d", got, ipc.NotifyCredit)
	}
	server.post(ipc.SQE{Op: ipc.OpCredit, Conn: atServer, Imm: ipc.NotifyCredit})
	until(t, "the rest", deadline, func() bool { take(); return got == ipc.NotifyCredit+extra })
	server.post(ipc.SQE{Op: ipc.OpCredit, Conn: atServer + 1, Imm: 1}) // unknown: ignored
	server.post(ipc.SQE{Op: ipc.OpCredit, Conn: atServer, Imm: extra})
	server.must(&ipc.Message{Kind: ipc.KindStatus})
	server.post(ipc.SQE{Op: ipc.OpCredit, Conn: atServer, Imm: 1})
	server.gone()
	if m := client.event(ipc.KindClosed); m.Conn != atClient {
		t.Fatalf("%+v", m)
	}
}

// Closing a connection waits for no room in a completion ring that the notifications of others fill, whoever of the two
// peers closes first.
func TestCloseInAFullRing(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, ipc.MinDepth), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	region, _ := server.register(4096)
	each := int(server.rings.Layout().CQ)/2 + 10 // half of the ring is all there is for notifications
	var atServer [3]uint32
	for i := range atServer {
		var atClient uint32
		atServer[i], atClient = dialAccept(t, server, client, "a", "s")
		key := exportTo(server, client, atServer[i], region, 4096, regmem.RemoteWrite)
		for range each {
			client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, InlineLen: 1, Conn: atClient, Key: key})
			if e := client.completion(); e.Status != ipc.StatusOK {
				t.Fatalf("%+v", e)
			}
		}
		if i == 2 {
			client.must(&ipc.Message{Kind: ipc.KindClose, Conn: atClient})
		}
	}
	server.must(&ipc.Message{Kind: ipc.KindClose, Conn: atServer[1]})
	server.call(&ipc.Message{Kind: ipc.KindClose, Conn: atServer[2]}) // refused if the end has come already
	until(t, "the daemon has forgotten them", deadline, func() bool { return len(snapshot(t, a.Daemon()).Conns) == 1 })
	var buf [64]ipc.CQE
	got := 0
	until(t, "the notifications of the other", deadline, func() bool {
		n, err := server.cq.Drain(buf[:])
		must(t, err)
		for _, e := range buf[:n] {
			if e.Kind != ipc.CQNotify || e.Conn != atServer[0] {
				t.Fatalf("%+v", e)
			}
		}
		got += n
		return got == each
	})
}

// The flags of an open file belong to all who hold it. A client that makes what it was given blocking and tries to fill
// it does not stop the daemon.
func TestBlockedDoorbell(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c, other := attach(t, a, 64), attach(t, a, 64)
	fd := c.complete.FD()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
		t.Fatal(err)
	}
	full := [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	unix.Write(fd, full[:])
	for i := range uint64(64) {
		c.rings.SetClientAsleep(true)
		c.post(ipc.SQE{Op: ipc.OpWrite, Conn: 1, Token: i}) // completes at once, by ringing the bell
		if e := c.completion(); e.Token != i {
			t.Fatalf("completion %d: %+v", i, e)
		}
	}
	other.must(&ipc.Message{Kind: ipc.KindStatus})
	if snap, err := a.d.Snapshot(); err != nil || snap.Status.Evictions != 0 {
		t.Fatalf("%d evictions, %v: there was nothing to evict for", snap.Status.Evictions, err)
	}
}

// Garbage on the control socket ends that control connection and no other.
func TestHostileControl(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	whole, err := (&ipc.Message{ID: 1, Kind: ipc.KindStatus}).Encode()
	must(t, err)
	for _, text := range []string{"", "{", "[]", `{"id":1}`, "\x00\xff\xfe", string(whole[:15]), string(whole[:17]),
		string(whole) + "\x00"} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		conn, err := fileConn(fds[0])
		must(t, err)
		a.d.serve(conn)
		unix.Write(fds[1], []byte(text))
		var b [16]byte
		if n, _ := unix.Read(fds[1], b[:]); n > 0 {
			t.Errorf("%q: answered", text)
		}
		unix.Close(fds[1])
	}
	// A request for rings from one who has not said hello, and one without a number.
	c := open(t, a)
	if _, _, err := c.exchange(&ipc.Message{Kind: ipc.KindRegister, Size: 1}); err == nil {
		t.Error("register without hello was served")
	}
	c.conn.Send(&ipc.Message{Kind: ipc.KindStatus})
	if m, err := c.conn.Recv(); err != nil || m.Error == nil {
		t.Errorf("request without id: %+v, %v", m, err)
	}
	later := ipc.Hello(0)
	later.Lowest, later.Highest = ipc.HighestVersion+1, ipc.HighestVersion+1
	if _, _, err := c.exchange(later); err == nil {
		t.Error("wrong version was accepted")
	}
	if _, _, err := c.exchange(&ipc.Message{Kind: ipc.KindStatus}); err != nil {
		t.Errorf("status without hello: %v", err)
	}
}

// A peer that floods a client with adverts ends its own connection, not the client.
func TestFloodOfAdverts(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.Limits.Conns = 64 }) // the flood grows with them
	victim, peer := attach(t, a, 64), attach(t, b, 64)
	flooded, atPeer := connect(t, victim, peer, "a", "mem")
	calm, _ := dialAccept(t, victim, peer, "a", "mem")
	if err := b.d.shard.Do(func(now mono.Time) {
		for k := range 3 * (shard.OutboxLimit + a.d.cfg.Limits.Conns) {
			b.d.shard.Engine().Advertise(now, engine.ConnID(atPeer), engine.Advert{Name: "x", Key: regmem.Key(k + 1),
				Size: 1, Perm: regmem.RemoteRead})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if m := victim.event(ipc.KindClosed); m.Conn != flooded || m.Code != engine.StatusLimit.Code() {
		t.Errorf("closed: %+v", m)
	}
	victim.must(&ipc.Message{Kind: ipc.KindClose, Conn: calm})
}

// A client with many services of long names is listed with some of them: the list would not fit in a page, for anybody.
func TestManyServicesOfAClient(t *testing.T) {
	_, b := nodes(t, 1, nil)
	c := attach(t, b, 64)
	for i := range 256 {
		c.must(&ipc.Message{Kind: ipc.KindListen, Service: fmt.Sprintf("%03d", i) + strings.Repeat("\x01", 61)})
	}
	other := attach(t, b, 64)
	if _, err := other.call(&ipc.Message{Kind: ipc.KindStatus, What: "client"}); err != nil {
		t.Fatal(err)
	}
}

// Peers that ask and give up, over and over, do not get a listening client evicted that is stopped for a while.
func TestPeersCannotEvict(t *testing.T) {
	a, b := nodes(t, 1, func(c *config.Config) { c.Limits.Conns = 512; c.Limits.Backlog = 128 })
	server := open(t, a)
	m, fds, err := server.exchange(ipc.Hello(64))
	if err != nil {
		t.Fatal(m, err)
	}
	ipc.CloseFDs(fds)
	server.exchange(&ipc.Message{Kind: ipc.KindListen, Service: "s"}) // and reads no more
	s, listening := b.d.shard, a.d.shard
	requests := func() (n int, evicted, full bool) {
		listening.Do(func(mono.Time) {
			v := listening.Look(0)
			evicted = v.Evictions > 0
			for _, c := range v.Clients {
				n += c.Conns
			}
		})
		return n, evicted, shard.Inside{Shard: listening}.Unread("s") > shard.OutboxLimit/2
	}
	for range 100 { // some 200 messages each; outboxLimit is reached after a few dozen
		var ids []engine.ConnID
		s.Do(func(now mono.Time) {
			for range 100 {
				id, err := s.Engine().Dial(now, "a", "s", engine.DialOptions{})
				if err != nil {
					t.Error(err)
				}
				ids = append(ids, id)
			}
		})
		until(t, "requests", deadline, func() bool {
			n, evicted, full := requests()
			return n >= 100 || evicted || full
		})
		s.Do(func(now mono.Time) {
			for _, id := range ids {
				s.Engine().Abort(now, id, engine.StatusAborted)
			}
		})
		until(t, "ends", deadline, func() bool {
			n, evicted, _ := requests()
			if evicted {
				t.Fatal("evicted for what its peers do")
			}
			return n == 0
		})
	}
}

// Bytes of a peer that are no UTF-8 would get longer in a message than its reader takes.
func TestNameOfAPeerIsNotUTF8(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	_, atClient := connect(t, server, client, "a", "s")
	s := b.d.shard
	s.Do(func(now mono.Time) {
		if _, ok := s.Engine().Advertise(now, engine.ConnID(atClient), engine.Advert{Name: strings.Repeat("\xff", 60),
			Key: 77, Size: 1, Perm: 1}); !ok {
			t.Error("not advertised")
		}
	})
	if m := server.event(ipc.KindAdvert); m.Name != "?" {
		t.Errorf("name %q", m.Name)
	}
}

func TestTextOfAPeerIsNotUTF8(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	id := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"})
	in := server.event(ipc.KindIncoming)
	s := a.d.shard
	s.Do(func(now mono.Time) { s.Engine().Refuse(now, engine.ConnID(in.Conn), strings.Repeat("\xff", 1000)) })
	if _, err := client.reply(id); err == nil || !strings.Contains(err.Error(), "?") {
		t.Errorf("dial: %v", err)
	}
}
