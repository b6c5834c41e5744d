package daemon

import (
	"bytes"
	"testing"

	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// attachShared attaches a client that knows domains.
func attachShared(t testing.TB, e *Embedded) *testClient {
	t.Helper()
	c := open(t, e)
	hello := ipc.Hello(64)
	hello.Features |= ipc.FeatureDomains
	rings, err := c.greet(hello)
	must(t, err)
	unix.Close(rings)
	return c
}

// dialShared connects two clients, of whom the server has the connection belong to a domain.
func dialShared(t testing.TB, server, client *testClient, domain uint32) (atServer, atClient uint32) {
	t.Helper()
	m := &ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "mem"}
	m.Ordered = true
	id := client.send(m)
	in := server.event(ipc.KindIncoming)
	accept := &ipc.Message{Kind: ipc.KindAccept, Conn: in.Conn}
	accept.Domain = domain
	server.must(accept)
	r, err := client.reply(id)
	must(t, err)
	if in.Node == "" || r.Node == "" || in.Node == r.Node {
		t.Fatalf("the nodes are %q and %q", in.Node, r.Node)
	}
	return in.Conn, r.Conn
}

// share exports the first 4096 bytes of a region to a domain, at an address.
func (c *testClient) share(region, domain, high uint32, perm uint8, base uint64) *ipc.Message {
	m := &ipc.Message{Kind: ipc.KindExport, Region: region, Size: 4096, Perm: perm}
	m.Domain, m.High, m.Base = domain, high, base
	return m
}

// One key reaches memory on every connection of its domain, by addresses, and on no other; one revocation ends that for
// all (A7.20).
func TestDomains(t *testing.T) { inBothForms(t, testDomains) }

func testDomains(t *testing.T, security string) {
	a, b := nodesIn(t, security, 1, nil)
	server, client := attachShared(t, a), attachShared(t, b)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
	region, target := server.register(1 << 16)
	local, source := client.register(1 << 16)
	copy(source, "through a domain")
	const base, high, domain = 0x7f0000001008, 0xabcdef01, 3
	key := server.must(server.share(region, domain, high, 7, base)).Key
	if key>>32 != high || uint32(key) == 0 {
		t.Fatalf("key %#x has not the given upper half", key)
	}
	write := func(conn uint32, key, address uint64, n uint64) ipc.Status {
		t.Helper()
		client.post(ipc.SQE{Op: ipc.OpWrite, Conn: conn, Key: key, RemoteOff: address, Region: local, Len: n, Token: 9})
		return client.completion().Status
	}
	_, first := dialShared(t, server, client, domain)
	_, second := dialShared(t, server, client, domain)
	for i, conn := range []uint32{first, second} {
		at := uint64(100 * i)
		if st := write(conn, key, base+at, 16); st != ipc.StatusOK || !bytes.Equal(target[at:at+16], source[:16]) {
			t.Fatalf("connection %d: %v, %q", i, st, target[at:at+16])
		}
	}
	for name, c := range map[string]struct {
		domain       uint32
		key, address uint64
		want         ipc.Status
	}{
		"another domain": {domain + 1, key, base, ipc.StatusOwner},
		"no domain":      {0, key, base, ipc.StatusOwner},
		"no such key":    {domain, key ^ 1, base, ipc.StatusKey},
		"below":          {domain, key, base - 1, ipc.StatusBounds},
		"beyond":         {domain, key, base + 4096 - 15, ipc.StatusBounds},
		"address 0":      {domain, key, 0, ipc.StatusBounds},
	} {
		_, conn := dialShared(t, server, client, c.domain)
		if st := write(conn, c.key, c.address, 16); st != c.want {
			t.Errorf("%s: %v, want %v", name, st, c.want)
		}
	}
	client.fails(&ipc.Message{Kind: ipc.KindRevoke, Key: key}, ipc.StatusKey.Code())
	server.must(&ipc.Message{Kind: ipc.KindRevoke, Key: key})
	if st := write(second, key, base, 16); st != ipc.StatusKey {
		t.Fatalf("after the revocation: %v", st)
	}
	server.fails(&ipc.Message{Kind: ipc.KindRevoke, Key: key}, ipc.StatusKey.Code())

	again := server.must(server.share(region, domain, high, 1, base)).Key
	if st := write(first, again, base, 16); st != ipc.StatusPermission {
		t.Fatalf("without permission: %v", st)
	}
	server.must(&ipc.Message{Kind: ipc.KindDeregister, Region: region}) // takes its keys along
	if st := write(first, again, base, 16); st != ipc.StatusStopped {
		t.Fatalf("after a refusal: %v", st)
	}
}

// After an operation that was refused none of the same connection is performed, and each is told why (PROTOCOL 22.3).
func TestDomainStops(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attachShared(t, a), attachShared(t, b)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
	region, target := server.register(1 << 16)
	local, source := client.register(1 << 16)
	for i := range source {
		source[i] = 1
	}
	const base = 1 << 40
	key := server.must(server.share(region, 1, 5, 7, base)).Key
	atServer, conn := dialShared(t, server, client, 1)
	server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, LocalOff: 8192, Len: 64, Token: 1})
	work := func(op ipc.Op, key uint64) ipc.SQE {
		e := ipc.SQE{Op: op, Conn: conn, Key: key, RemoteOff: base, Region: local, Len: 16, Token: 2}
		if op == ipc.OpSend {
			e.RemoteOff = 0
		}
		return e
	}
	client.post(work(ipc.OpWrite, key+1), work(ipc.OpWrite, key), work(ipc.OpSend, 0), work(ipc.OpRead, key))
	for i, want := range []ipc.Status{ipc.StatusKey, ipc.StatusStopped, ipc.StatusStopped, ipc.StatusStopped} {
		if e := client.completion(); e.Status != want {
			t.Fatalf("operation %d: %v, want %v", i, e.Status, want)
		}
	}
	client.must(&ipc.Message{Kind: ipc.KindClose, Conn: conn})
	if e := server.entry(); e.Token != 1 || e.Status != ipc.StatusClosed {
		t.Fatalf("the buffer: %+v", e)
	}
	if target[0] != 0 || target[8192] != 0 {
		t.Fatal("something was written after the refusal")
	}
}

// A Tell says how long a write was, and uses up a buffer without touching it (A6.18); where no domain expects that it
// is a message too long.
func TestTell(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attachShared(t, a), attachShared(t, b)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
	region, target := server.register(1 << 16)
	local, _ := client.register(1 << 16)
	key := server.must(server.share(region, 1, 5, 7, 1<<40)).Key
	for _, domain := range []uint32{1, 0} {
		atServer, conn := dialShared(t, server, client, domain)
		if domain != 0 {
			client.post(ipc.SQE{Op: ipc.OpWrite, Conn: conn, Key: key, RemoteOff: 1<<40 + 64, Region: local, Len: 1000})
			client.completion()
		}
		server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 8, Token: 1},
			ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 8, Token: 2})
		client.post(ipc.SQE{Op: ipc.OpTell, Flags: ipc.FlagNotify, Imm: 7, Conn: conn, Len: 1000, Token: 3},
			ipc.SQE{Op: ipc.OpTell, Flags: ipc.FlagNotify, Imm: 8, Conn: conn, Token: 4})
		want := []ipc.CQE{{Kind: ipc.CQReceive, Conn: atServer, Token: 1, Imm: 7, Len: 1000, HasImm: true, Tells: true},
			{Kind: ipc.CQReceive, Conn: atServer, Token: 2, Imm: 8, HasImm: true, Tells: true}}
		if domain == 0 {
			want[0] = ipc.CQE{Kind: ipc.CQReceive, Conn: atServer, Token: 1, Status: ipc.StatusTooLong}
			want[1] = ipc.CQE{Kind: ipc.CQReceive, Conn: atServer, Token: 2, Status: ipc.StatusTooLong}
		}
		for i := range want {
			client.completion()
			if e := server.entry(); e != want[i] {
				t.Fatalf("domain %d: %+v, want %+v", domain, e, want[i])
			}
		}
		if target[0] != 0 {
			t.Fatal("the buffer was written")
		}
	}
	atServer, conn := dialShared(t, server, client, 1) // about a write that there was not
	server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 8, Token: 1})
	client.post(ipc.SQE{Op: ipc.OpTell, Flags: ipc.FlagNotify, Conn: conn, Len: 1000, Token: 3})
	if e, f := client.completion(), server.entry(); e.Status != ipc.StatusTooLong || f.Status != ipc.StatusTooLong {
		t.Fatalf("a lie: %+v, %+v", e, f)
	}
}

// What no correct client asks for is refused, and a client that did not ask for domains has none.
func TestMalformedDomains(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, peer := attachShared(t, a), attach(t, b, 64)
	region, _ := server.register(1 << 16)
	named := server.share(region, 1, 0, 1, 0)
	named.Name = "x"
	far := server.share(region, 1, 0, 1, 1<<64-4095)
	odd := server.share(region, 1, 0, 4, 1)
	long := server.share(region, 1, 0, 1, 0)
	long.Size = 1 << 17
	server.fails(named, ipc.CodeInvalid)
	server.fails(far, ipc.StatusBounds.Code())
	server.fails(odd, ipc.CodeInvalid)
	server.fails(long, ipc.StatusBounds.Code())
	own, _ := peer.register(1 << 16)
	peer.fails(peer.share(own, 1, 0, 1, 0), ipc.CodeInvalid)
	dial := &ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "mem"}
	dial.Domain = 1
	peer.fails(dial, ipc.CodeInvalid)
	for name, e := range map[string]ipc.SQE{
		"without an immediate": {Op: ipc.OpSend, Conn: 1, Key: 1},
		"with bytes":           {Op: ipc.OpSend, Flags: ipc.FlagNotify, Conn: 1, Key: 1, InlineLen: 1},
		"too long":             {Op: ipc.OpSend, Flags: ipc.FlagNotify, Conn: 1, Key: 1<<31 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := attachShared(t, a)
			c.post(e)
			c.gone()
		})
	}
	c := attach(t, a, 64)
	c.post(ipc.SQE{Op: ipc.OpSend, Flags: ipc.FlagNotify, Conn: 1, Key: 1})
	c.gone()
}
