package daemon

import (
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// A turn of a client is so many operations, whatever entries their pieces take: frames would stay half empty otherwise.
func TestPiecesShortenNoTurn(t *testing.T) {
	s, common := newShuttle(t, config.Plaintext)
	room, err := s.client.sq.Room()
	must(t, err)
	pieces := ipc.SQE{Op: ipc.OpPieces, InlineLen: ipc.PiecesPerEntry, Conn: common.Conn}
	for i := range pieces.Pieces {
		pieces.Pieces[i] = ipc.Piece{Region: common.Region, Off: uint64(i) * 4096, Len: 8}
	}
	op := common
	op.Op, op.Len = ipc.OpWrite, 8
	want := min(room/ipc.MaxEntries, s.b.d.shard.Window())
	if want*ipc.MaxEntries <= 64 {
		t.Fatalf("%d operations of %d entries are no more than one look takes", want, ipc.MaxEntries)
	}
	for range want {
		for range ipc.MaxEntries - 1 {
			s.client.sq.Put(&pieces)
		}
		s.client.sq.Put(&op)
	}
	s.client.sq.Publish()
	before := s.b.d.shard.Engine().Count.Op.OpsSubmitted
	s.b.d.shard.Iterate(mono.Now())
	if n := s.b.d.shard.Engine().Count.Op.OpsSubmitted - before; n != uint64(want) {
		t.Errorf("one turn took %d operations of %d", n, want)
	}
}

// Nor do they lengthen one: it is never more than 64 operations.
func TestPiecesLengthenNoTurn(t *testing.T) {
	s, common := newShuttle(t, config.Plaintext)
	if room, err := s.client.sq.Room(); room < 161 || err != nil {
		t.Fatal(room, err)
	}
	pieces := ipc.SQE{Op: ipc.OpPieces, InlineLen: 1, Conn: common.Conn}
	pieces.Pieces[0] = ipc.Piece{Region: common.Region, Len: 8}
	op := common
	op.Op, op.Len = ipc.OpWrite, 8
	s.client.sq.Put(&pieces)
	for range 160 {
		s.client.sq.Put(&op)
	}
	s.client.sq.Publish()
	before := s.b.d.shard.Engine().Count.Op.OpsSubmitted
	s.b.d.shard.Iterate(mono.Now())
	if n := s.b.d.shard.Engine().Count.Op.OpsSubmitted - before; n != 64 {
		t.Errorf("one turn took %d operations", n)
	}
}

// A buffer in pieces counts for limits.ops_per_user, since the daemon keeps its list (A6.14); it counts no more once it
// has come back. Buffers in one piece do not count.
func TestBuffersInPiecesCount(t *testing.T) {
	const most = 4
	a, b := nodes(t, 1, func(c *config.Config) { c.Limits = config.Limits{OpsPerUser: most} })
	server, client := attach(t, a, 64), attach(t, b, 64)
	_, conn := connect(t, server, client, "a", "s")
	region, _ := client.register(4096)
	piece := ipc.SQE{Op: ipc.OpPieces, InlineLen: 1, Conn: conn}
	piece.Pieces[0] = ipc.Piece{Region: region, Len: 8}
	buffer := ipc.SQE{Op: ipc.OpReceive, Conn: conn, Region: region, LocalOff: 64, Len: 8}
	for round := range 2 {
		client.post(buffer)
		for token := range uint64(most + 1) {
			client.post(piece)
			buffer.Token = token
			client.post(buffer)
		}
		if e := client.entry(); e.Status != ipc.StatusQuota || e.Token != most {
			t.Fatalf("round %d: beyond the limit: %+v", round, e)
		}
		client.must(&ipc.Message{Kind: ipc.KindAbort, Conn: conn})
		for range most + 1 {
			if e := client.entry(); e.Status != ipc.StatusAborted {
				t.Fatalf("round %d: %+v", round, e)
			}
		}
		client.must(&ipc.Message{Kind: ipc.KindDeregister, Region: region})
		if round == 0 {
			_, conn = dialAccept(t, server, client, "a", "s")
			region, _ = client.register(4096)
			piece.Conn, piece.Pieces[0].Region, buffer.Conn, buffer.Region = conn, region, conn, region
		}
	}
}
