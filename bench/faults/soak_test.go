package faults

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestKeptParts fails if a part of what a daemon keeps is counted as another, twice or not at all.
func TestKeptParts(t *testing.T) {
	m := runtime.MemStats{HeapInuse: 1, StackInuse: 2, MSpanInuse: 10, MCacheInuse: 100, BuckHashSys: 1000,
		GCSys: 10000, OtherSys: 100000,
		HeapAlloc: 7, HeapSys: 7, HeapIdle: 7, StackSys: 7, MSpanSys: 7, MCacheSys: 7, Sys: 7}
	got, want := keptOf(50, 20, &m), Kept{Resident: 50, Mapped: 30, Heap: 1, Stacks: 2, Tables: 111110}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// soakOf returns a soak that has measured both daemons every half minute. They keep what kept says after so many hours,
// and grew ten times as fast until half of the time was over. That of host 0 was started again a little later.
func soakOf(d time.Duration, kept func(hours float64) Kept) *soak {
	s := &soak{Trial: &Trial{row: newRow(&Scenario{})}, o: SoakOptions{Duration: d}, starts: [2]int{2, 1}}
	for at := time.Duration(0); at <= d; at += 30 * time.Second {
		for h := range 2 {
			r := rest{at.Seconds(), kept(at.Hours()), s.starts[h]}
			if began := d/2 + time.Duration(1-h)*d/20; at < began {
				r.kept, r.starts = kept(10*at.Hours()), 1
			}
			s.rests[h] = append(s.rests[h], r)
		}
	}
	return s
}

// TestSoakNamesWhatGrows fails if a soak gives the growth of one part as that of another, or of another time.
func TestSoakNamesWhatGrows(t *testing.T) {
	const half = 100e6 // bytes, when the second half begins; 1 % is 1 MB
	grown := func(hours float64, kB int) uint64 { return uint64(half + 1000*float64(kB)*(hours-0.5)) }
	s := soakOf(time.Hour, func(hours float64) Kept {
		return Kept{Resident: grown(hours, 1500), Mapped: grown(hours, 100), Heap: grown(hours, 200),
			Stacks: grown(hours, -300), Tables: grown(hours, 400)}
	})
	s.slopes()
	why := "1.50 +- 0.00 %, mapped +100 kB, heap +200 kB, stacks -300 kB, tables +400 kB"
	for h, what := range []string{"resident memory of host0 grows less than 1 % per hour",
		"resident memory of host1 grows less than 1 % per hour"} {
		if len(s.row.Checks) != 2 {
			t.Fatalf("%d checks, want one of each host", len(s.row.Checks))
		}
		if c := s.row.Checks[h]; c.What != what || c.Verdict != Fail || !slices.Equal(c.Why, []string{why}) {
			t.Errorf("got %+v, want %q to fail because of %q", c, what, why)
		}
	}
	if m := s.row.Measured["resident memory of host1 % per hour"]; m < 1.49 || m > 1.51 {
		t.Errorf("measured %v %% per hour, want 1.5", m)
	}
}

// TestSoakJudgesSlope fails if a soak judges anything but resident memory, by its bound, or after too short a time.
func TestSoakJudgesSlope(t *testing.T) {
	for _, c := range []struct {
		d       time.Duration
		kB      float64 // growth of 100 MB in an hour
		verdict string
	}{
		{time.Hour, 900, Pass},
		{time.Hour, 1100, Fail},
		{25 * time.Minute, 1100, Fail},
		{19 * time.Minute, 1100, Unjudged},
	} {
		s := soakOf(c.d, func(hours float64) Kept {
			return Kept{Resident: uint64(100e6 + 1000*c.kB*hours), Heap: uint64(100e6 + 5e6*hours)}
		})
		s.slopes()
		for _, got := range s.row.Checks {
			if got.Verdict != c.verdict {
				t.Errorf("%v, %v kB an hour: %+v, want %q", c.d, c.kB, got, c.verdict)
			}
		}
	}
}
