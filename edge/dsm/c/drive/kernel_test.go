//go:build ctest

package drive

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/bench/splash"
	"multiedge/edge/dsm"
	"multiedge/internal/lab"
)

// The kernels that bench/splash has in C, too, have the bits of their sequential runs in Go, with ranks in C and with
// ranks in both.
func TestKernels(t *testing.T) {
	w := newWorld(t, 3)
	for name, size := range map[string]int{"radix": 20000, "ocean": 30, "lu": 96, "lu-rows": 64} {
		k, _ := splash.Named(name)
		want := uint64(0)
		must(t, dsm.Run(t.Context(), dsm.Config{Ranks: 1, Size: k.Memory(size, 1)}, func(m *dsm.Memory) error {
			want, _ = k.Run(m, size)
			return nil
		}))
		for how, inC := range map[string]func(rank int) bool{
			"C": func(int) bool { return true }, "Go and C": func(rank int) bool { return rank > 0 },
			"C and Go": func(rank int) bool { return rank != 1 },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				if got := w.kernel(t, name+how, &k, size, inC); got != want {
					t.Errorf("%x, want %x", got, want)
				}
			})
		}
	}
}

// The study of edgestudy splash --mixed: ranks alternately in Go and C while links are cut; then one is killed.
func TestMixedStudy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	program, err := splash.ProgramInC(filepath.Join(os.Getenv("DSMTEST"), "kernel"), "kernel")
	must(t, err)
	spec := splash.Spec{Cut: true, Kill: true, Program: program}
	for _, name := range splash.Mixed {
		spec.Tasks = append(spec.Tasks, splash.Task{Kernel: name, Size: 64})
	}
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 3, Links: 2}})
	res, err := splash.Run(ctx, c, spec, func(string, float64) {})
	must(t, err)
	for _, r := range res.Rows {
		if !r.Same || r.InC != 1 || len(r.Stats) != 3 || r.Stats[0].Operations == 0 || r.Stats[1].Operations == 0 {
			t.Errorf("%+v", r)
		}
	}
	if res.Cuts == 0 || len(res.Kills) != 2 {
		t.Fatalf("%d cuts, %+v", res.Cuts, res.Kills)
	}
	for _, k := range res.Kills {
		if !strings.Contains(k.Error, "dsm: rank 2 on host2 was lost") {
			t.Errorf("%+v", k)
		}
	}
}

// The steps in C of edgestudy splash --costs, the first of which has a goal. The program is there without sanitizers
// alone.
func TestCostsInC(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	program, err := splash.ProgramInC(filepath.Join(os.Getenv("DSMTEST"), "../plain/cost"), "cost")
	must(t, err)
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}})
	res, err := splash.Run(ctx, c, splash.Spec{Costs: 20, CostsInC: program}, func(string, float64) {})
	must(t, err)
	var inC []splash.Step
	for _, s := range res.Steps {
		if strings.HasSuffix(s.What, ", in C") {
			inC = append(inC, s)
		}
	}
	if len(inC) != 5 || inC[0].What != "fault and fetch of a page, in C" || inC[0].Goal != 2.5 {
		t.Errorf("%+v", inC)
	}
	for _, s := range inC {
		if s.Time <= 0 || s.Base <= 0 {
			t.Errorf("%+v", s)
		}
	}
}

// kernel runs one on three ranks and returns the digest of the result.
func (w *world) kernel(t *testing.T, name string, k *splash.Kernel, size int, inC func(rank int) bool) (got uint64) {
	const ranks = 3
	memory := k.Memory(size, ranks)
	var waits []func() error
	var processes []*process
	for rank := range ranks {
		if inC(rank) {
			processes = append(processes, w.start(name, rank, ranks, "kernel", k.Name, strconv.Itoa(size),
				strconv.Itoa(memory)))
			continue
		}
		waits = append(waits, w.inGo(name, rank, dsm.Config{Ranks: ranks, Size: memory}, func(m *dsm.Memory) error {
			digest, _ := k.Run(m, size)
			if rank == 0 {
				got = digest
			}
			return nil
		}))
	}
	for i, p := range processes {
		var r splash.InC
		if err := json.Unmarshal([]byte(p.well()), &r); err != nil || r.Stats.Operations == 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if i == 0 && inC(0) {
			got = r.Digest
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	return got
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
