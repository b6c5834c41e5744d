package splash

import (
	"math"
	"reflect"
	"testing"

	"multiedge/bench/xlate/svm"
	"multiedge/edge/dsm"
)

// Tracing does not change the result of a kernel, and two runs give equal traces.
func TestTraces(t *testing.T) {
	cluster := svm.Config{Nodes: 3, Procs: 2, Requests: true, Work: 3}
	for _, k := range Kernels {
		t.Run(k.Name, func(t *testing.T) {
			size := small[k.Name]
			var digest uint64
			make := func() *svm.Result {
				r, err := svm.Trace(t.Context(), cluster, k.Memory(size, 6), func(m *dsm.Memory, started func()) {
					if result := k.work(m, size, started); m.Rank() == 0 {
						digest = result()
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			r := make()
			if want := alone(t, &k, size); digest != want {
				t.Errorf("%x, want %x", digest, want)
			}
			if err := r.Trace.Check(); err != nil || len(r.Trace.Records) < 50 || r.Work == 0 || r.Time == 0 {
				t.Errorf("%v: %d records, %d ns of work in %d ns", err, len(r.Trace.Records), r.Work, r.Time)
			}
			if !reflect.DeepEqual(r, make()) {
				t.Error("the trace is another in the second run")
			}
		})
	}
}

// Each program of the studies runs at the smallest scale, and says no to others.
func TestPrograms(t *testing.T) {
	for _, p := range Programs() {
		r, problem, err := p.Trace(t.Context(), svm.Config{Nodes: 4, Procs: 4}, minScale)
		if err != nil || problem == "" || r.Work == 0 {
			t.Errorf("%s, %s: %v", p.Name, problem, err)
		}
		for _, scale := range []float64{0, math.NaN(), 5} {
			if _, _, err := p.Trace(t.Context(), svm.Config{Nodes: 4, Procs: 4}, scale); err == nil {
				t.Errorf("%s: a scale of %g is accepted", p.Name, scale)
			}
		}
	}
}
