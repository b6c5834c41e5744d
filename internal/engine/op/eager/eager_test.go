package eager

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"multiedge/internal/wire"
)

// end is the two ends of one composed message, with nothing between.
type end struct {
	t     *testing.T
	s     Sending[int]
	pool  Pool[int]
	m     *Message[int]
	draft *Draft
}

func newEnd(t *testing.T, n int) *end {
	e := &end{t: t}
	e.m = e.pool.Message(make([]byte, n))
	e.m.Name = 1
	e.s.List = append(e.s.List, e.m)
	e.draft = e.pool.Draft(0, uint64(n))
	return e
}

// write changes bytes of the message.
func (e *end) write(off int, data []byte) {
	copy(e.m.Mem[off:], data)
	e.s.Write(e.m, uint64(off), uint64(len(data)))
}

// stages are what is to be sent now, each with a copy of its bytes.
func (e *end) stages(room int) (out []wire.Segment) {
	for e.s.MayLeave(e.m, e.m.Committed) && e.m.Left() > 0 {
		run, ok := e.s.Take(e.m, room)
		if !ok {
			e.t.Fatalf("%d blocks are to be sent, and none is taken", e.m.Left())
		}
		out = append(out, wire.Segment{Kind: wire.KindStage, Stamp: run.Stamp, Place: run.Lo,
			Data: bytes.Clone(e.m.Mem[run.Lo:run.Hi])})
	}
	return out
}

func (e *end) commit(n int) {
	e.s.Freeze(e.m, uint64(n))
	e.draft.SetCommit(&wire.Segment{Kind: wire.KindCommit, Bytes: uint32(n),
		Data: binary.BigEndian.AppendUint64(nil, e.m.Sum())})
}

// Clause 18.2: whatever is written in whatever order, lost, late or twice, the draft is whole exactly when it has the
// newest of each block.
func TestDraftIsWholeWithTheNewest(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(20*Block)
		e := newEnd(t, n)
		var late []wire.Segment
		for range 1 + rng.IntN(20) {
			b := make([]byte, 1+rng.IntN(3*Block))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			e.write(rng.IntN(n), b)
			for _, g := range e.stages(1 + rng.IntN(4)) {
				switch rng.IntN(4) {
				case 0:
					e.s.Lost(0, g.Place, uint64(len(g.Data)), g.Stamp)
				case 1:
					late = append(late, g)
				default:
					e.draft.Put(&g)
				}
			}
		}
		if e.draft.Whole() {
			t.Fatalf("seed %d: it is whole before its Commit", seed)
		}
		e.commit(1 + rng.IntN(n))
		rest := append(late, e.stages(1+rng.IntN(4))...)
		rng.Shuffle(len(rest), func(i, k int) { rest[i], rest[k] = rest[k], rest[i] })
		for _, g := range rest {
			got, all := e.draft.Bytes()
			if e.draft.Whole() && !(all && bytes.Equal(got, e.m.Mem[:e.m.Size])) {
				t.Fatalf("seed %d: it is whole without the newest bytes", seed)
			}
			e.draft.Put(&g)
		}
		got, all := e.draft.Bytes()
		if !e.draft.Whole() || !all || !bytes.Equal(got, e.m.Mem[:e.m.Size]) {
			t.Fatalf("seed %d: everything came, whole %v, every block %v", seed, e.draft.Whole(), all)
		}
	}
}

// Clause 18.3: stamps are not used twice. A block that was marked as often as there are stamps is sent again with the
// commit, which has the last.
func TestStampsEnd(t *testing.T) {
	e := newEnd(t, 2*Block)
	e.write(0, bytes.Repeat([]byte{9}, 2*Block))
	put := func() {
		for _, g := range e.stages(8) {
			e.draft.Put(&g)
		}
	}
	put()
	e.m.stamp = lastStamp - 2
	seen := map[uint32]bool{}
	for v := range byte(5) {
		e.write(0, bytes.Repeat([]byte{v + 1}, Block))
		for _, g := range e.stages(8) {
			if seen[g.Stamp] || g.Stamp > lastStamp {
				t.Errorf("stamp %d again, or after the last", g.Stamp)
			}
			seen[g.Stamp] = true
			e.draft.Put(&g)
		}
	}
	e.commit(2 * Block)
	if e.draft.Whole() {
		t.Error("it is whole without what was written last")
	}
	put()
	if got, all := e.draft.Bytes(); len(seen) != 2 || !e.draft.Whole() || !all || !bytes.Equal(got, e.m.Mem) {
		t.Errorf("%d stamps were left; whole %v, every block %v", len(seen), e.draft.Whole(), all)
	}
}

// A draft takes no more than it is charged (clause 18.5), whatever its length, and so does what is kept for reuse.
func TestPricesCover(t *testing.T) {
	var p Pool[int]
	var all []*Draft
	taken := 0
	for n := uint64(1); n <= wire.MaxStaged; n += 1 + n/3 {
		for range 4 {
			d := p.Draft(0, n)
			if d.takes() > Price(n) {
				t.Errorf("a draft of %d bytes takes %d, %d are charged", n, d.takes(), Price(n))
			}
			all, taken = append(all, d), taken+d.takes()
		}
	}
	for taken < 2*MostIdleDrafts {
		d := p.Draft(0, wire.MaxStaged)
		all, taken = append(all, d), taken+d.takes()
	}
	for _, d := range all {
		p.KeepDraft(d)
	}
	if n := p.Memory(); n > MostIdleDrafts || n < MostIdleDrafts/2 {
		t.Errorf("%d bytes are kept for reuse, %d may be", n, MostIdleDrafts)
	}
}

// Numbers that ended out of order are remembered, those far ahead are not.
func TestNumbers(t *testing.T) {
	n := numbers{base: ^uint32(0) - 2}
	for _, i := range []uint32{^uint32(0) - 1, 3, 0, ^uint32(0), 1} {
		if n.add(i); !n.has(i) {
			t.Errorf("%d is forgotten", i)
		}
	}
	if n.has(2) || n.has(^uint32(0)-2) || n.base != ^uint32(0)-2 || n.fits(n.base+span) {
		t.Errorf("%+v", n)
	}
	if n.add(^uint32(0) - 2); n.base != 2 || !n.has(3) || n.has(4) {
		t.Errorf("%+v", n)
	}
}
