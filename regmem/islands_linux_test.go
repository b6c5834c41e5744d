package regmem

import "testing"

// TestIslands: a user who has every second chunk pinned, and then every second of those that touch unpinned, does not
// cut his space into more mappings than spaces may have; what cannot be locked is filled all the same.
func TestIslands(t *testing.T) {
	const chunks, most = 512, 64
	before := spaceMappings()
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
	p := idlePinner()
	p.cut = islands{most: most, count: func() int { return spaceMappings() - before }}
	a := &asker{in: NewPinInbox(func() {})}
	filled := 0
	a.sp = p.Queue(1, a.in).Add(s, m, nil, false, func(n int) error { filled += n; return nil })
	do := func(what PinWork, first, end, step uint64) {
		for i := first; i < end; i += step {
			if !a.sp.Ask(i, what) || !p.turn() {
				t.Fatal("nothing is done")
			}
			if n := spaceMappings() - before; n > most+2 {
				t.Fatalf("chunk %d: %d mappings, %d are allowed", i, n, most)
			}
		}
	}
	do(PinChunk, 0, chunks, 2)
	if a.answered() != chunks/2 || filled != chunks/2*MinChunk {
		t.Errorf("%d answers, %d bytes filled", len(a.done), filled)
	}
	for _, x := range a.done {
		if x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	do(UnpinChunk, 0, chunks, 2)
	p.cut.full = false // a second later
	do(PinChunk, chunks, 2*chunks, 1)
	do(UnpinChunk, chunks, 2*chunks, 2)
}
