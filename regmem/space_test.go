package regmem

import (
	"errors"
	"strings"
	"testing"
)

// What a space costs is known before anything of that size is made, so SpaceCost refuses what NewSpace does, and
// nothing else: all sizes up to the largest, in chunks of every size (ABI A5.19).
func TestSpaceShapes(t *testing.T) {
	taken := func(uint64, PinWork) bool { return true }
	for _, c := range []struct {
		size  uint64
		chunk int
		pin   uint64
		want  string // of the error
	}{
		{MaxSpace, MinChunk, 1 << 20, ""}, {MaxSpace, MaxChunk, 1 << 30, ""}, {MaxSpace, 0, 1 << 30, ""},
		{1, MinChunk, 4 * MinChunk, ""}, {1, 0, 4 * DefaultChunk, ""},
		{0, 0, 1 << 30, "choose 1 to 2^44"}, {MaxSpace + 1, 0, 1 << 30, "choose 1 to 2^44"},
		{1 << 30, MinChunk / 2, 1 << 20, "a power of two from 4096"}, {1 << 30, 2 * MaxChunk, 1 << 30, "to 2097152"},
		{1 << 30, MinChunk + 1, 1 << 30, "a power of two"}, {1 << 30, -MinChunk, 1 << 30, "a power of two"},
		{1 << 30, MinChunk, 4*MinChunk - 1, "four chunks at least, 16384"},
		{1 << 30, 0, 4*DefaultChunk - 1, "four chunks at least, 262144"},
	} {
		cfg := SpaceConfig{Size: c.size, Chunk: c.chunk, Pin: c.pin, Ask: taken}
		cost, costErr := SpaceCost(cfg)
		s, err := NewSpace(cfg)
		if c.want != "" {
			if !errors.Is(err, ErrSize) || !errors.Is(costErr, ErrSize) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d bytes in chunks of %d, %d pinned: %v, %v", c.size, c.chunk, c.pin, err, costErr)
			}
			continue
		}
		if err != nil || costErr != nil {
			t.Errorf("%d bytes in chunks of %d: %v, %v", c.size, c.chunk, err, costErr)
			continue
		}
		if cost.Chunks != s.table.Len() || cost.Pin != s.Budget() || cost.Pin > c.pin ||
			(cost.Chunks-1)*uint64(s.Chunk()) >= c.size || cost.Chunks*uint64(s.Chunk()) < c.size {
			t.Errorf("%d bytes in chunks of %d: %+v; it has %d chunks of %d, and pins %d", c.size, c.chunk, cost,
				s.table.Len(), s.Chunk(), s.Budget())
		}
	}
}

// However uses are scattered over a space, its tables take no more than SpaceCost said.
func TestSpaceCostIsEnough(t *testing.T) {
	var asked []uint64
	cfg := SpaceConfig{Size: 1 << 36, Chunk: MinChunk, Pin: 64 * MinChunk, Ask: func(i uint64, what PinWork) bool {
		if what != UnpinChunk {
			asked = append(asked, i)
		}
		return true
	}}
	cost, err := SpaceCost(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSpace(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4096) { // each in a leaf of its own
		s.Touch(i*leafChunks*MinChunk, 1, 0, WriteSource)
		for _, chunk := range asked {
			s.Done(chunk, true)
		}
		asked = asked[:0]
		s.Touch(i*leafChunks*MinChunk, 1, 0, WriteSource)
		if took := s.table.Bytes() + len(s.wants.ring)*wantCost; took > cost.Table || s.Pinned() > cost.Pin {
			t.Fatalf("after %d uses %d bytes, %d pinned; it was to cost %+v", i+1, took, s.Pinned(), cost)
		}
	}
	if s.Count.Evictions == 0 {
		t.Error("nothing was evicted")
	}
}
