package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// stager is an authorised peer gone bad: node 0 in frames that the test makes up.
type stager struct {
	*rig
	c    engine.ConnID // at node 1
	like []byte
	pn   uint64
}

func newStager(t *testing.T, o rigOptions) *stager {
	r := newRig(t, o)
	c := r.connect(engine.DialOptions{})
	s := &stager{rig: r, c: c[1]}
	s.like, s.pn = r.like(c[0], 0)
	return s
}

// say has node 1 take a segment about a composed message.
func (s *stager) say(kind wire.Kind, number uint32, size uint64) {
	g := wire.Segment{Kind: kind, Conn: uint32(s.c), Op: number}
	if kind == wire.KindStage {
		g.Stamp, g.Size, g.Data = 1, size, make([]byte, min(size, 64))
	}
	s.pn++
	s.n[1].handle(s.now, 0, forge(s.like, s.pn, &g))
}

// Clauses 7.5 and 18.5: what a draft takes is charged, also when its memory was that of a longer one before; and what
// is kept for others is bounded.
func TestDraftsAreCharged(t *testing.T) {
	s := newStager(t, rigOptions{})
	e := s.n[1].e
	const many = 60
	number := uint32(0)
	for _, size := range []uint64{engine.MaxEager, 1, 100, 5000, engine.MaxEager, 64} {
		first := number
		for range many {
			s.say(wire.KindStage, number, size)
			number++
		}
		used, idle := e.DraftMemory()
		if held := e.HeldMemory(); used > held || used < many*int(size) || idle > engine.MostIdleDrafts {
			t.Errorf("%d drafts of %d bytes take %d and %d are charged; %d are kept for others", many, size, used, held,
				idle)
		}
		for ; first < number; first++ {
			s.say(wire.KindDiscard, first, 0)
		}
		if used, idle = e.DraftMemory(); used != 0 || e.HeldMemory() != 0 || idle == 0 || idle > engine.MostIdleDrafts {
			t.Errorf("without drafts of %d bytes %d are charged; %d are in use, %d kept for others", size,
				e.HeldMemory(), used, idle)
		}
	}
}

// Clauses 7.5 and 18.5: drafts take half of what a session may keep, and those of one user half of that while others
// have connections.
func TestDraftsOfTwoUsers(t *testing.T) {
	const held, size = 1 << 20, engine.MaxEager
	r := newRig(t, rigOptions{held: held})
	first, second := r.connect(engine.DialOptions{}), r.connectTo("other", engine.DialOptions{})
	s := &stager{rig: r, c: first[1]}
	s.like, s.pn = r.like(first[0], 0)
	e, number := s.n[1].e, uint32(0)
	fill := func() (took int) {
		t.Helper()
		before, refused := e.HeldMemory(), e.Count.Eager.EagerRefused
		for range held / size {
			s.say(wire.KindStage, number, size)
			number++
			if e.Count.Eager.EagerRefused > refused {
				return e.HeldMemory() - before
			}
		}
		t.Fatal("no draft is refused")
		return 0
	}
	within := func(what string, took, most int) {
		t.Helper()
		if took > most || took < most-size*5/4 {
			t.Errorf("%s: drafts take %d bytes, %d may be taken", what, took, most)
		}
	}
	within("a user alone", fill(), held/2)
	for i := range number - 1 {
		s.say(wire.KindDiscard, i, 0)
	}
	e.SetOwner(first[1], user(1))
	e.SetOwner(second[1], user(2))
	within("the first of two", fill(), held/4)
	s.c, number = second[1], 0
	within("the second of two", fill(), held/4)
}

// Clause 18.5: a peer that begins messages for which there is no room, and takes no answer, makes no more of them wait
// than are bounded; what it says once they have left is answered.
func TestEagerWordsAreBounded(t *testing.T) {
	s := newStager(t, rigOptions{held: 800}) // half of which is less than a draft takes
	e := s.n[1].e
	for number := range uint32(5000) {
		s.say(wire.KindStage, number, 64)
	}
	n, most := e.EagerWords(s.c)
	if refused := e.Count.Eager.EagerRefused; n > most || int(refused) != n || e.Count.Reject.RejectedNoRoom == 0 {
		t.Errorf("%d answers wait, at most %d may; %d messages refused, %d frames left unreceived", n, most, refused,
			e.Count.Reject.RejectedNoRoom)
	}
	s.rest(time.Second)
	if n, _ = e.EagerWords(s.c); n != 0 {
		t.Fatalf("%d answers wait still", n)
	}
	refused := e.Count.Eager.EagerRefused
	s.say(wire.KindStage, uint32(refused), 64)
	if e.Count.Eager.EagerRefused != refused+1 {
		t.Error("the next message is not answered")
	}
}
