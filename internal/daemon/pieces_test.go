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
