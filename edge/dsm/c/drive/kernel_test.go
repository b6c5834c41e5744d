//go:build ctest

package drive

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"multiedge/bench/splash"
	"multiedge/edge/dsm"
)

// The radix kernel of bench/splash, with ranks in C, has the bits of its sequential run.
func TestRadix(t *testing.T) {
	const keys = 20000
	k, _ := splash.Named("radix")
	want := uint64(0)
	must(t, dsm.Run(t.Context(), dsm.Config{Ranks: 1, Size: k.Memory(keys, 1)}, func(m *dsm.Memory) error {
		want, _ = k.Run(m, keys)
		return nil
	}))
	w := newWorld(t, 3)
	for name, inC := range map[string]func(rank int) bool{
		"C": func(int) bool { return true }, "Go and C": func(rank int) bool { return rank > 0 },
		"C and Go": func(rank int) bool { return rank != 1 },
	} {
		t.Run(name, func(t *testing.T) { w.radix(t, name, keys, want, inC) })
	}
}

func (w *world) radix(t *testing.T, name string, keys int, want uint64, inC func(rank int) bool) {
	const ranks = 3
	k, _ := splash.Named("radix")
	size := k.Memory(keys, ranks)
	got := uint64(0)
	var waits []func() error
	var processes []*process
	for rank := range ranks {
		if inC(rank) {
			processes = append(processes, w.start(name, rank, ranks, "radix", strconv.Itoa(keys), strconv.Itoa(size)))
			continue
		}
		waits = append(waits, w.inGo(name, rank, dsm.Config{Ranks: ranks, Size: size}, func(m *dsm.Memory) error {
			digest, _ := k.Run(m, keys)
			if rank == 0 {
				got = digest
			}
			return nil
		}))
	}
	for i, p := range processes {
		said := p.well()
		if i == 0 && inC(0) {
			if _, err := fmt.Sscanf(said, "%x", &got); err != nil {
				t.Error(err)
			}
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	if got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

// A program of PARMACS, in both forms of CREATE, on one to four ranks. Only rank 0 says what comes before CREATE.
func TestParmacs(t *testing.T) {
	w := newWorld(t, 2)
	for ranks := 1; ranks <= 4; ranks++ {
		for _, form := range []string{"all", "each"} {
			var processes []*process
			for rank := range ranks {
				processes = append(processes, w.start(fmt.Sprint(form, ranks), rank, ranks, "parmacs",
					strconv.Itoa(ranks), form))
			}
			for rank, p := range processes {
				want := "once\nright\n"
				if rank > 0 {
					want = ""
				}
				if said := p.well(); said != want {
					t.Errorf("%s, rank %d of %d: %q, want %q", form, rank, ranks, said, want)
				}
			}
		}
	}
	p := w.start("other", 0, 2, "parmacs", "3", "all")
	q := w.start("other", 1, 2, "parmacs", "3", "all")
	for _, p := range []*process{p, q} {
		if p.ends(); !strings.Contains(p.stderr.String(), "makes 3 processes, and the run has 2 ranks") {
			t.Errorf("%s", p.stderr.String())
		}
	}
}
