package engine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// underWay submits a write of size bytes from node 0 and returns the frames of it, all of one link.
func underWay(r *rig, c engine.ConnID, key regmem.Key, token uint64, data []byte) (frames [][]byte) {
	r.t.Helper()
	r.submit(0, c, engine.Op{Kind: engine.OpWrite, Token: token, Key: key, Local: data})
	for _, f := range r.take(0) {
		if carries(f.b, wire.KindWrite) {
			frames = append(frames, f.b)
		}
	}
	return frames
}

// withTail returns a copy of a data frame with one more segment in its tail.
func withTail(t testing.TB, frame []byte, g *wire.Segment) []byte {
	t.Helper()
	var f wire.Frame
	if err := f.Decode(frame[wire.EthLen:]); err != nil {
		t.Fatal(err)
	}
	head := bytes.Clone(frame[:wire.HeadLen])
	tail := g.AppendTo(bytes.Clone(f.Tail))
	wire.PutBulk(head[wire.EthLen+wire.FixedLen:], &f.Bulk)
	wire.Finish(head[wire.EthLen:], &f.Header, tail)
	return append(append(head, f.Payload...), tail...)
}

// bulkOf decodes a frame that has bulk.
func bulkOf(t testing.TB, frame []byte) (f wire.Frame) {
	t.Helper()
	if err := f.Decode(frame[wire.EthLen:]); err != nil || f.Flags&wire.FlagBulk == 0 {
		t.Fatalf("a frame with bulk is needed: %v", err)
	}
	return f
}

// A frame of another connection in the middle of a batch: it and those behind it are joined, everything arrives.
func TestScatterMispredicted(t *testing.T) {
	r := newRig(t, rigOptions{checksum: engine.ChecksumHeader})
	a, b := r.connect(engine.DialOptions{}), r.connectTo("b", engine.DialOptions{})
	memA, keyA := r.export(1, a[1], 10_000, both)
	memB, keyB := r.export(1, b[1], 10_000, both)
	r.settle()
	dataA, dataB := pattern(1, 10_000), pattern(2, 10_000)
	fa := underWay(r, a[0], keyA, 1, dataA)
	fb := underWay(r, b[0], keyB, 2, dataB)
	s := newScatterer(r, 1)
	s.give(r, 0, fa[:1], 32) // which tells where the others belong
	s.give(r, 0, [][]byte{fa[1], fa[2], fb[0], fa[3], fa[4]}, 32)
	if s.placed != 2 || s.joined != 3 {
		t.Errorf("%d frames placed and %d joined, want 2 and 3", s.placed, s.joined)
	}
	s.give(r, 0, append(append([][]byte(nil), fa[5:]...), fb[1:]...), 32)
	r.poll(1)
	r.must("both writes", time.Second, r.all(0, 2))
	if !bytes.Equal(memA, dataA) || !bytes.Equal(memB, dataB) {
		t.Error("memory differs")
	}
	if got := r.n[1].e.Count.Placing.FramesInPlace; got < 4 {
		t.Errorf("%d payloads in place", got)
	}
}

// The tail of a frame that is in place writes where a later, mispredicted frame of the same batch waits to be joined:
// that one must not suffer.
func TestScatterTailWritesIntoSlot(t *testing.T) {
	r := newRig(t, rigOptions{checksum: engine.ChecksumHeader})
	a, b := r.connect(engine.DialOptions{}), r.connectTo("b", engine.DialOptions{})
	memA, keyA := r.export(1, a[1], 10_000, both)
	memB, keyB := r.export(1, b[1], 10_000, both)
	r.settle()
	dataA, dataB := pattern(1, 10_000), pattern(2, 10_000)
	fa := underWay(r, a[0], keyA, 1, dataA)
	fb := underWay(r, b[0], keyB, 2, dataB)
	third := bulkOf(t, fa[2])
	// A second write to A's memory, small, to where the third frame is expected. Its own frame is lost.
	r.submit(0, a[0], engine.Op{Kind: engine.OpWrite, Token: 3, Key: keyA, Off: third.Bulk.Place + 100,
		Local: []byte("overwritten by A")})
	r.take(0)
	small := wire.Segment{
		Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast, Conn: uint32(a[1]), Op: third.Bulk.Op + 1,
		Key:   uint64(keyA),
		Place: third.Bulk.Place + 100, Data: []byte("overwritten by A"),
	}
	s := newScatterer(r, 1)
	s.give(r, 0, fa[:1], 32)
	s.give(r, 0, [][]byte{withTail(t, fa[1], &small), fb[0]}, 32)
	if s.placed != 1 || s.joined != 1 {
		t.Errorf("%d frames placed and %d joined, want 1 and 1", s.placed, s.joined)
	}
	first := bulkOf(t, fb[0])
	if n := int(first.Bulk.Len); !bytes.Equal(memB[:n], dataB[:n]) {
		t.Error("the payload of the other connection was damaged while it waited")
	}
	s.give(r, 0, append(append([][]byte(nil), fa[2:]...), fb[1:]...), 32)
	r.poll(1)
	r.must("the writes", time.Second, r.all(0, 3))
	if !bytes.Equal(memA, dataA) || !bytes.Equal(memB, dataB) {
		t.Error("memory differs")
	}
}

// The key is revoked, or the peer's Close handled, between the forecast and the frames: nothing is accepted in place,
// the rest of the world goes on.
func TestScatterRevokedBetween(t *testing.T) {
	r := newRig(t, rigOptions{})
	a, b := r.connect(engine.DialOptions{}), r.connectTo("b", engine.DialOptions{})
	_, keyA := r.export(1, a[1], 10_000, both)
	memB, keyB := r.export(1, b[1], 10_000, both)
	r.settle()
	dataB := pattern(2, 10_000)
	fa := underWay(r, a[0], keyA, 1, pattern(1, 10_000))
	s := newScatterer(r, 1)
	s.after = func() { r.n[1].grants.Revoke(keyA) }
	s.give(r, 0, fa[:1], 32)
	s.give(r, 0, fa[1:5], 32)
	s.after = nil
	if s.placed != 0 || s.joined == 0 || r.n[1].e.Count.Placing.FramesInPlace != 0 {
		t.Errorf("%d frames placed, %d joined, %d payloads in place", s.placed, s.joined,
			r.n[1].e.Count.Placing.FramesInPlace)
	}
	if n := r.n[1].e.Forecast(0, s.slots[:]); n != 0 {
		t.Errorf("%d slots in memory that was revoked", n)
	}
	s.give(r, 0, append(fa[5:], underWay(r, b[0], keyB, 2, dataB)...), 32)
	r.poll(1)
	r.must("both writes", time.Second, r.all(0, 2))
	r.wantStatus(0, 1, engine.StatusKey)
	r.wantStatus(0, 2, engine.OK)
	if !bytes.Equal(memB, dataB) {
		t.Error("memory differs")
	}
}

func TestScatterClosedBetween(t *testing.T) {
	r := newRig(t, rigOptions{})
	a := r.connect(engine.DialOptions{})
	_, keyA := r.export(1, a[1], 10_000, both)
	r.settle()
	fa := underWay(r, a[0], keyA, 1, pattern(1, 10_000))
	s := newScatterer(r, 1)
	end := wire.Segment{Kind: wire.KindClose, Status: uint8(engine.StatusAborted), Conn: uint32(a[1])}
	s.give(r, 0, fa[:1], 32)
	s.give(r, 0, [][]byte{withTail(t, fa[1], &end), fa[2], fa[3]}, 32)
	r.poll(1)
	if s.placed != 1 || s.joined != 2 {
		t.Errorf("%d frames placed and %d joined, want 1 and 2", s.placed, s.joined)
	}
	if _, over := r.n[1].closed[a[1]]; !over {
		t.Error("the connection is not closed")
	}
	if n := r.n[1].e.Forecast(0, s.slots[:]); n != 0 {
		t.Errorf("%d slots of a connection that is over", n)
	}
}

// What a hostile peer says of lengths and places never makes a slot that is empty, overlaps another or leaves the
// grant.
func TestScatterHostileForecast(t *testing.T) {
	r := newRig(t, rigOptions{})
	a := r.connect(engine.DialOptions{})
	mem, keyA := r.export(1, a[1], 10_000, both)
	r.settle()
	first := underWay(r, a[0], keyA, 1, pattern(1, 10_000))[0]
	s := newScatterer(r, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	pn := bulkOf(t, first).PN
	places := []uint64{0, 1, 50, 3_000, 6_000, 9_000, 9_990, 10_000, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 64}
	for k := range 5000 {
		f := bulkOf(t, first)
		pn++
		f.PN = pn
		f.Bulk.Flags = uint8(rng.IntN(2)) * wire.SegFirst
		f.Bulk.Op += uint32(rng.IntN(1000)) // an access that is refused spoils its operation
		f.Bulk.Place = places[rng.IntN(len(places))] + uint64(rng.IntN(3))
		f.Bulk.Imm = []uint32{0, 1, 5000, 1<<32 - 1}[rng.IntN(4)]
		f.Payload = f.Payload[:[]int{0, 0, 1, 64, 1000}[rng.IntN(5)]]
		f.Bulk.Len, f.Bulk.Sum = uint16(len(f.Payload)), wire.Sum(0, f.Payload)
		if rng.IntN(8) == 0 {
			f.Bulk.Kind = wire.KindReadData
		}
		head := bytes.Clone(first[:wire.HeadLen])
		wire.PutBulk(head[wire.EthLen+wire.FixedLen:], &f.Bulk)
		wire.Finish(head[wire.EthLen:], &f.Header, nil)
		r.n[1].handle(r.now, 0, append(head, f.Payload...))
		n := r.n[1].e.Forecast(0, s.slots[:])
		s.check(s.slots[:n])
		for _, slot := range s.slots[:n] {
			at := addressOf(slot) - addressOf(mem)
			if at > 10_000 || int(at)+len(slot) > 10_000 {
				t.Fatalf("frame %d: a slot of %d bytes at %d leaves the grant", k, len(slot), at)
			}
		}
	}
}
