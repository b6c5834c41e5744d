package daemon

import (
	"bytes"
	"testing"

	"multiedge/internal/ipc"
)

// Composed messages by the numbers of the ABI (A6.17): a write and a send, marked and written again, committed in an
// order of their own; one that is dropped; and what a connection takes along.
func TestEager(t *testing.T) { inBothForms(t, testEager) }

func testEager(t *testing.T, security string) {
	a, b := nodesIn(t, security, 2, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, atClient := connect(t, server, client, "a", "mem")
	region, target := server.register(1 << 20)
	local, source := client.register(1 << 20)
	key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: 1 << 19, Perm: 2,
		Name: "mem"}).Key
	server.post(ipc.SQE{Op: ipc.OpReceive, Conn: atServer, Region: region, LocalOff: 1 << 19, Len: 1 << 16, Token: 1})
	const size = 40_000
	compose := func(token, off, key uint64) {
		client.post(ipc.SQE{Op: ipc.OpCompose, Conn: atClient, Region: local, LocalOff: off, Len: size, Token: token,
			Key: key, RemoteOff: off * min(key, 1)})
	}
	compose(10, 0, key)
	compose(11, size, 0)
	compose(12, 2*size, key)
	for version := range byte(20) {
		for token := range uint64(3) {
			at := int(token*size) + int(version)*1700
			copy(source[at:], bytes.Repeat([]byte{version + 1}, 5000))
			client.post(ipc.SQE{Op: ipc.OpWrote, Conn: atClient, Token: 10 + token, LocalOff: uint64(version) * 1700,
				Len: 5000})
		}
	}
	client.post(ipc.SQE{Op: ipc.OpCommit, Flags: ipc.FlagNotify, Imm: 7, Conn: atClient, Token: 11, Len: size - 3},
		ipc.SQE{Op: ipc.OpDiscard, Conn: atClient, Token: 12},
		ipc.SQE{Op: ipc.OpCommit, Flags: ipc.FlagNotify | ipc.FlagBackwardFence, Imm: 8, Conn: atClient, Token: 10,
			Len: size})
	want := map[uint64]ipc.Status{10: ipc.StatusOK, 11: ipc.StatusOK, 12: ipc.StatusAborted}
	for range 3 {
		if e := client.completion(); e.Status != want[e.Token] || e.Conn != atClient {
			t.Fatalf("%+v, want status %d", e, want[e.Token])
		}
	}
	if e := server.entry(); e != (ipc.CQE{Kind: ipc.CQReceive, Conn: atServer, Token: 1, Imm: 7, Len: size - 3,
		HasImm: true}) || !bytes.Equal(target[1<<19:][:size-3], source[size:][:size-3]) {
		t.Fatalf("receive: %+v", e)
	}
	if e := server.entry(); e.Kind != ipc.CQNotify || e.Imm != 8 || e.Len != size || e.Token != key ||
		!bytes.Equal(target[:size], source[:size]) {
		t.Fatalf("notification: %+v", e)
	}
	if !bytes.Equal(target[size:1<<19], make([]byte, 1<<19-size)) {
		t.Fatal("the message that was dropped showed")
	}
	compose(13, 0, key)
	client.post(ipc.SQE{Op: ipc.OpWrote, Conn: atClient, Token: 13, Len: size},
		ipc.SQE{Op: ipc.OpWrote, Conn: atClient, Token: 99, Len: 1}) // of none: it does nothing
	client.fails(&ipc.Message{Kind: ipc.KindDeregister, Region: local}, ipc.CodeBusy)
	client.post(ipc.SQE{Op: ipc.OpCompose, Conn: atClient, Region: local, Len: ipc.MaxEager + 1, Token: 14, Key: key},
		ipc.SQE{Op: ipc.OpCompose, Conn: atClient, Region: local + 9, Len: 64, Token: 15, Key: key})
	for _, want := range []ipc.CQE{{Token: 14, Status: ipc.StatusTooLong}, {Token: 15, Status: ipc.StatusLocal}} {
		if e := client.completion(); e.Token != want.Token || e.Status != want.Status {
			t.Fatalf("%+v, want %+v", e, want)
		}
	}
	server.must(&ipc.Message{Kind: ipc.KindAbort, Conn: atServer})
	if e := client.completion(); e.Token != 13 || e.Status != ipc.StatusReset {
		t.Fatalf("at the end: %+v", e)
	}
	client.event(ipc.KindClosed)
	client.must(&ipc.Message{Kind: ipc.KindDeregister, Region: local})
}

// A client that is killed while it composes, and its peer, are given everything back.
func TestKilledWhileComposing(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server := attach(t, a, 64)
	region, target := server.register(1 << 16)
	for round := range 3 {
		client := attach(t, b, 16)
		join := connect
		if round > 0 {
			join = dialAccept
		}
		atServer, atClient := join(t, server, client, "a", "mem")
		key := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: 1 << 16, Perm: 2,
			Name: "mem"}).Key
		local, source := client.register(1 << 16)
		source[0] = 1
		for token := range uint64(16) {
			client.post(ipc.SQE{Op: ipc.OpCompose, Conn: atClient, Region: local, Len: 1 << 16, Token: token, Key: key})
			client.post(ipc.SQE{Op: ipc.OpWrote, Conn: atClient, Token: token, Len: 1 << 16})
		}
		until(t, "blocks travel", deadline,
			func() bool { return snapshot(t, b.d).Counters.Eager.EagerBytes > 1<<16*uint64(round+1) })
		client.close()
		server.event(ipc.KindClosed)
		until(t, "the client is forgotten", deadline, func() bool {
			snap := snapshot(t, b.Daemon())
			return len(snap.Clients) == 0 && snap.Status.PinnedBytes == 0 && len(snap.Conns) == 0
		})
		if target[0] != 0 {
			t.Fatal("what was not committed showed")
		}
	}
}
