package daemon

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"multiedge/internal/ipc"
)

// Messages by the numbers of the ABI (A7.17): a buffer of a connection's own and one of a shared queue, a message that
// is too long, and buffers that come back when their connection ends, before its end is told.
func TestMessages(t *testing.T) { inBothForms(t, testMessages) }

func testMessages(t *testing.T, security string) {
	a, b := nodesIn(t, security, 2, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, atClient := connect(t, server, client, "a", "mem")
	region, target := server.register(1 << 20)
	local, source := client.register(1 << 20)
	for i := range source {
		source[i] = byte(rand.Uint32())
	}
	const size = 300_000
	server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, LocalOff: 5, Len: size, Token: 1},
		ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, LocalOff: size + 5, Len: 10, Token: 2},
		ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 4, Token: 3})
	client.post(ipc.SQE{Op: ipc.OpSend, Flags: ipc.FlagNotify, Imm: 77, Conn: atClient, Region: local, Len: size,
		Token: 4})
	if e := client.completion(); e.Status != ipc.StatusOK || e.Token != 4 {
		t.Fatalf("send: %+v", e)
	}
	if e := server.entry(); e != (ipc.CQE{Kind: ipc.CQReceive, Conn: atServer, Token: 1, Imm: 77, Len: size,
		HasImm: true}) || !bytes.Equal(target[5:5+size], source[:size]) {
		t.Fatalf("receive: %+v", e)
	}
	client.post(ipc.SQE{Op: ipc.OpSend, Conn: atClient, Region: local, Len: 11, Token: 5})
	if e, f := client.completion(), server.entry(); e.Status != ipc.StatusTooLong || f.Status != ipc.StatusTooLong ||
		f.Token != 2 || target[size+15] != 0 {
		t.Fatalf("too long: %+v, %+v", e, f)
	}
	if c := server.fails(&ipc.Message{Kind: ipc.KindDeregister, Region: region}, ipc.CodeBusy); c == nil {
		t.Fatal("memory of a posted buffer is given back")
	}
	client.must(&ipc.Message{Kind: ipc.KindClose, Conn: atClient})
	if e := server.entry(); e.Kind != ipc.CQReceive || e.Token != 3 || e.Status != ipc.StatusClosed {
		t.Fatalf("at the end: %+v", e)
	}
	server.event(ipc.KindClosed)

	q := server.must(&ipc.Message{Kind: ipc.KindQueue}).Queue
	server.post(ipc.SQE{Op: ipc.OpReceive, Key: uint64(q), Region: region, Len: 64, Token: 6},
		ipc.SQE{Op: ipc.OpReceive, Key: uint64(q) + 1, Region: region, Len: 64, Token: 7})
	if e := server.entry(); e.Token != 7 || e.Status != ipc.StatusNoConn {
		t.Fatalf("a queue that is not there: %+v", e)
	}
	for range 3 {
		atServer, atClient = dialAccept(t, server, client, "a", "mem")
		server.must(&ipc.Message{Kind: ipc.KindJoin, Conn: atServer, Queue: q})
		server.fails(&ipc.Message{Kind: ipc.KindJoin, Conn: atServer, Queue: q}, ipc.CodeBusy)
		client.post(ipc.SQE{Op: ipc.OpSend, Conn: atClient, Region: local, Len: 64, Token: 8})
		if e := server.entry(); e.Token != 6 || e.Conn != atServer || e.Len != 64 ||
			!bytes.Equal(target[:64], source[:64]) {
			t.Fatalf("shared: %+v", e)
		}
		client.completion()
		server.post(ipc.SQE{Op: ipc.OpReceive, Key: uint64(q), Region: region, Len: 64, Token: 6})
	}
	server.fails(&ipc.Message{Kind: ipc.KindUnqueue, Queue: q}, ipc.CodeBusy)
	server.fails(&ipc.Message{Kind: ipc.KindUnqueue, Queue: q + 1}, ipc.CodeInvalid)
}

// Entries that no correct client writes end it; one without the feature has no messages (A6.7).
func TestMalformedMessages(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, peer := attach(t, a, 64), attach(t, b, 64)
	connect(t, server, peer, "a", "mem")
	bad := map[string]ipc.SQE{
		"receive of both":          {Op: ipc.OpReceive, Conn: 1, Key: 1},
		"receive of nobody":        {Op: ipc.OpReceive},
		"receive with flags":       {Op: ipc.OpReceive, Conn: 1, Flags: ipc.FlagNotify},
		"receive with immediate":   {Op: ipc.OpReceive, Conn: 1, Imm: 1},
		"receive with bytes":       {Op: ipc.OpReceive, Conn: 1, InlineLen: 1},
		"receive of far memory":    {Op: ipc.OpReceive, Conn: 1, RemoteOff: 1},
		"receive that wraps":       {Op: ipc.OpReceive, Conn: 1, LocalOff: 1<<64 - 8, Len: 16},
		"queue beyond all numbers": {Op: ipc.OpReceive, Key: 1 << 32},
		"send with a key":          {Op: ipc.OpSend, Conn: 1, Key: 1},
	}
	for name, e := range bad {
		t.Run(name, func(t *testing.T) {
			c := attach(t, a, 64)
			c.post(e)
			c.gone()
		})
	}
	t.Run("no feature", func(t *testing.T) {
		hello := ipc.Hello(64)
		hello.Features = 0
		c, mem := rawOf(t, a, hello)
		c.t = t
		ipc.EncodeSQE(mem[offSQ:], &ipc.SQE{Op: ipc.OpReceive, Conn: 1})
		binary.LittleEndian.PutUint32(mem[offSQTail:], 1)
		c.bell.Ring()
		c.gone()
	})
	until(t, "evicted clients are forgotten", deadline, func() bool {
		snap := snapshot(t, a.Daemon())
		return snap.Status.Evictions == uint64(len(bad)+1) && snap.Status.Clients == 1
	})
}

// A client posts all the buffers that it can, one more, and as many operations as it can, takes no completion, and is
// killed: its completion ring never overflows, and everything of it is given back; the peer's sends end.
func TestKilledWithBuffersPosted(t *testing.T) {
	const depth = 16
	a, b := nodes(t, 1, nil)
	peer := attach(t, b, 64)
	local, _ := peer.register(4096)
	for round := range 3 {
		server := attach(t, a, depth)
		atServer, atPeer := connect(t, server, peer, "a", "mem")
		region, _ := server.register(4096)
		q := server.must(&ipc.Message{Kind: ipc.KindQueue}).Queue
		for i := range depth {
			e := ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 8, Token: uint64(i)}
			if i%4 == 0 {
				e.Conn, e.Key = 0, uint64(q)
			}
			server.post(e)
		}
		server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, Len: 8, Token: 99})
		if e := server.entry(); e.Kind != ipc.CQReceive || e.Token != 99 || e.Status != ipc.StatusLimit {
			t.Fatalf("one buffer too many: %+v", e)
		}
		for i := range depth {
			server.post(ipc.SQE{Op: ipc.OpSend, Conn: atServer, InlineLen: 1, Token: uint64(i)}) // they wait for ever
			peer.post(ipc.SQE{Op: ipc.OpSend, Conn: atPeer, Region: local, Len: 8, Token: uint64(i)})
		}
		served := depth - depth/4
		for range served {
			if e := peer.completion(); e.Status != ipc.StatusOK {
				t.Fatalf("round %d, send: %+v", round, e)
			}
		}
		server.close()
		for range depth - served {
			if e := peer.completion(); e.Status != ipc.StatusReset {
				t.Fatalf("round %d, send that waited: %+v", round, e)
			}
		}
		until(t, "the client is forgotten", deadline, func() bool {
			snap := snapshot(t, a.Daemon())
			return len(snap.Clients) == 0 && snap.Status.PinnedBytes == 0 && len(snap.Conns) == 0
		})
		peer.event(ipc.KindClosed)
	}
}
