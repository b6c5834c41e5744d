package regmem

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
)

// spaceMappings counts the mappings of this process that are of spaces.
func spaceMappings() int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return bytes.Count(maps, []byte(SpaceName))
}

// TestIslands: users who have every second chunk pinned, and then every second of those that touch unpinned, do not cut
// their spaces into more mappings than spaces may have, and leave each other some. What cannot be locked is filled all
// the same.
func TestIslands(t *testing.T) {
	const chunks, most = 512, 32
	before := spaceMappings()
	p := idlePinner()
	p.most = most
	type user struct {
		*asker
		memory *Memory
		filled int
	}
	join := func(id uint64) *user {
		m, err := Alloc(2*chunks*MinChunk, Offered(), Named(SpaceName))
		if err == nil {
			err = m.FixSparse()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		s, err := NewSpace(SpaceConfig{Size: 2 * chunks * MinChunk, Chunk: MinChunk, Pin: chunks * MinChunk,
			Ask: func(uint64, PinWork) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		u := &user{asker: &asker{in: NewPinInbox(func() {})}, memory: m}
		u.sp = p.Queue(id, u.in).Add(s, m, nil, false, func(n int) error { u.filled += n; return nil })
		return u
	}
	users := []*user{join(1), join(2), join(3)}
	do := func(u *user, what PinWork, first, end, step uint64) {
		for i := first; i < end; i += step {
			if !u.sp.Ask(i, what) || !p.turn() {
				t.Fatal("nothing is done")
			}
			if n := spaceMappings() - before; n > 2*most+len(users) {
				t.Fatalf("chunk %d: %d mappings, %d are allowed", i, n, 2*most+len(users))
			}
		}
	}
	left := most
	for i, u := range users {
		do(u, PinChunk, 0, chunks, 2)
		if u.answered() != chunks/2 || u.filled != chunks/2*MinChunk {
			t.Errorf("%d answers, %d bytes filled", len(u.done), u.filled)
		}
		for _, x := range u.done {
			if x.Err != nil {
				t.Fatal(x.Err)
			}
		}
		if want := left / 2; u.sp.locks.count != want {
			t.Errorf("user %d has %d islands, want half of %d", i+1, u.sp.locks.count, left)
		}
		left -= u.sp.locks.count
	}
	if got := spaceMappings() - before; got != 2*p.islands { // each space begins with one
		t.Errorf("%d mappings for %d islands", got, p.islands)
	}
	for _, u := range users {
		do(u, UnpinChunk, 0, chunks, 2)
		do(u, PinChunk, chunks, 2*chunks, 1)
		do(u, UnpinChunk, chunks, 2*chunks, 2)
		u.sp.Forget()
		u.memory.Close()
	}
	if p.islands != 0 {
		t.Errorf("%d islands when all spaces are gone", p.islands)
	}
}

// A chunk whose first piece could not be locked stays unlocked, even if another client of the user gives back an island
// before its second piece: it would count as touching the chunk before it, and would not touch it.
func TestIslandsOfHalfChunks(t *testing.T) {
	const chunk, chunks = 2 * pinPiece, 64
	before := spaceMappings()
	p := idlePinner()
	p.most = 8
	s, err := NewSpace(SpaceConfig{Size: chunks * chunk, Chunk: chunk, Pin: chunks * chunk,
		Ask: func(uint64, PinWork) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	join := func() *PinnedSpace {
		m, err := Alloc(chunks*chunk, Offered(), Named(SpaceName))
		if err == nil {
			err = m.FixSparse()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return p.Queue(1, NewPinInbox(func() {})).Add(s, m, nil, false, func(int) error { return nil })
	}
	a, b := join(), join()
	do := func(sp *PinnedSpace, chunk uint64, what PinWork) {
		for sp.Ask(chunk, what); !sp.queue.empty(); {
			p.turn()
		}
	}
	for i := uint64(0); i < 8; i += 2 {
		do(b, i, PinChunk)
	}
	last := uint64(6)
	for i := uint64(0); i < chunks; i += 2 {
		a.Ask(i, PinChunk)
		p.turn() // its first piece
		do(b, last, UnpinChunk)
		for p.turn() { // its second
		}
		if i > 0 {
			do(a, i-1, PinChunk)
		}
		last = 4
		do(b, last, PinChunk)
	}
	if n := spaceMappings() - before; n > 2*p.islands+2 {
		t.Errorf("%d mappings for %d islands", n, p.islands)
	}
}

// Islands are counted as one that looks at all chunks counts them.
func TestIslandsCount(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s islands
	var locked [200]bool
	for i := range 5000 {
		c, on := r.IntN(len(locked)), r.IntN(2) == 0
		s.set(uint64(c), on)
		locked[c] = on
		want := 0
		for k := range locked {
			if locked[k] && (k == 0 || !locked[k-1]) {
				want++
			}
		}
		if s.count != want || s.has(uint64(c)) == 1 != on {
			t.Fatalf("step %d: %d islands, want %d", i, s.count, want)
		}
	}
	for c := range locked {
		s.set(uint64(c), false)
	}
	if len(s.words) != 0 || s.count != 0 {
		t.Errorf("%d words, %d islands of nothing", len(s.words), s.count)
	}
}
