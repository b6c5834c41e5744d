package daemon

import (
	"slices"
	"testing"

	"multiedge/internal/ipc"
)

// Requests that a client sends together are served in their order: an export right behind the accept of its connection
// finds that open (ABI A7.7), and of very many each gets its answer.
func TestRequestsSentTogether(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
	region, _ := server.register(4096)
	for range 20 {
		dial := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"})
		in := server.event(ipc.KindIncoming)
		accept := server.send(&ipc.Message{Kind: ipc.KindAccept, Conn: in.Conn})
		export := server.send(&ipc.Message{Kind: ipc.KindExport, Conn: in.Conn, Region: region, Size: 4096, Perm: 2,
			Name: "x"})
		for _, id := range []uint64{accept, export} {
			if _, err := server.reply(id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.reply(dial); err != nil {
			t.Fatal(err)
		}
	}
	var listens, unlistens []uint64
	for range 4 * mostAhead {
		listens = append(listens, server.send(&ipc.Message{Kind: ipc.KindListen, Service: "again"}))
		unlistens = append(unlistens, server.send(&ipc.Message{Kind: ipc.KindUnlisten, Service: "again"}))
	}
	for _, id := range slices.Concat(listens, unlistens) {
		if _, err := server.reply(id); err != nil {
			t.Fatal(err)
		}
	}
}
