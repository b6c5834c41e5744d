package dsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"multiedge/edge"
)

// A rank that sends what no rank sends ends the run, and does nothing else.
func TestHeedsOnlyWhatIsExpected(t *testing.T) {
	c := Config{Name: "t", Ranks: 3, Root: "x", Size: 1 << 16, Locks: 4}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		rank int // of 3, which hears
		from int
		note uint32
	}{
		{1, 0, 0}, {1, 0, noteRoster}, {1, 0, 15 << 28}, {1, 0, noteArrived | (changeWords + 1)},
		{0, 1, noteFinished | noteNumber},
		{1, 2, noteAsked | 4}, {1, 2, noteGranted | 4}, {1, 2, noteGranted | noteNumber},
	} {
		c.Rank = x.rank
		m := newMemory(&c, &place{areas: [2][]byte{control: aligned(1 << 16), data: aligned(1 << 16)}})
		err := protect(func() error { m.heed(x.from, x.note); return nil })
		if !errors.Is(err, edge.ErrVersion) || !strings.Contains(err.Error(), "does not keep to the protocol") {
			t.Errorf("%+v: %v", x, err)
		}
	}
	for note, often := range map[uint32]int{noteAsked | 1: 1, noteArrived: 2 - 1, noteFinished: 1} {
		m := newMemory(&c, &place{areas: [2][]byte{control: aligned(1 << 16), data: aligned(1 << 16)}})
		for i := range often + 1 {
			err := protect(func() error { m.heed(2, note); return nil })
			if (err == nil) != (i < often) {
				t.Errorf("%#x, time %d: %v", note, i, err)
			}
		}
	}
}

// A log that names pages which do not exist ends the run of those who read it.
func TestLogIsChecked(t *testing.T) {
	c := Config{Name: "t", Ranks: 2, Root: "x", Size: 1 << 16, Locks: 4}
	for _, entry := range []uint64{16<<32 | 1, 15<<32 | 2, 1<<63 | 1, 1<<32 - 1} {
		err := inWorld(1, c, fault{}, func(m *Memory) error {
			if m.rank == 0 {
				m.store(0, mix(mix(mix(0)^1)^entry))
				m.store(1, 1)
				m.store(2, entry)
				m.known[0] = 3
			}
			m.Barrier()
			return nil
		})
		if !errors.Is(err, edge.ErrVersion) {
			t.Errorf("%x: %v", entry, err)
		}
	}
}

// EDGE_DSM and Config are read as documented, and what is wrong in them is named.
func TestConfig(t *testing.T) {
	t.Setenv(Variable, "job,2,4,hostA")
	c := Config{}
	if err := c.complete(); err != nil || c.Name != "job" || c.Rank != 2 || c.Ranks != 4 || c.Root != "hostA" {
		t.Errorf("%+v: %v", c, err)
	}
	for value, want := range map[string]string{
		"job,2,4": "want NAME,RANK,RANKS,ROOT", "job,x,4,a": "whole numbers", "job,4,4,a": "rank 4 of 4",
		",0,2,a": "no name", "job,1,2,": "set Root", "job,0,65,a": "choose 1 to 64", "job,0,0,a": "whole numbers",
	} {
		t.Setenv(Variable, value)
		c := Config{}
		if err := c.complete(); !errors.Is(err, edge.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
	t.Setenv(Variable, "")
	if c := (Config{}); c.complete() != nil || c.Ranks != 1 {
		t.Errorf("%+v", c)
	}
}

// A barrier brings short news itself: nobody reads a log, also if a part of the news is known from a lock.
func TestBarrierBringsNews(t *testing.T) {
	c := Config{Name: "t", Ranks: 3, Root: "x", Size: 1 << 16, Locks: 4}
	for seed := range uint64(20) {
		err := inWorld(seed, c, fault{}, func(m *Memory) error {
			x, flag := Alloc[uint64](m, 3*512, At(2)), Alloc[uint64](m, 512, At(2))
			m.Barrier()
			switch m.rank {
			case 0:
				x.Set(0, 1)
				m.Lock(0)
				flag.Set(0, 1)
				m.Unlock(0)
				x.Set(1024, 1)
				m.release(false)
			case 1:
				waitFor(m, 0, flag, 0)
				x.Read(0, 3*512)
			}
			before := m.stats
			m.Barrier()
			after := m.stats
			if after.Operations != before.Operations+2 || after.Overruns != 0 { // one for each other rank
				return fmt.Errorf("a barrier took %d operations, %d overruns", after.Operations-before.Operations,
					after.Overruns)
			}
			if m.rank == 1 && (m.state[0] != clean || m.state[1] != clean || m.state[2] != stale) {
				return fmt.Errorf("pages are %v", m.state[:3])
			}
			return want("x", x.At(1024), 1)
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
