package linktest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"multiedge/linkdrv"
)

// through sends n numbered frames through the faults and returns the numbers that arrive, all held ones included.
func through(t *testing.T, f Faults, n int) ([]int, Counters) {
	t.Helper()
	a, b := Pair(1500, 4*linkdrv.SendBatch)
	w, err := Fault(a, f)
	must(t, err)
	var got []int
	for first := 0; first < n; first += 50 {
		frames := numbered(first, min(50, n-first), 60)
		if k, err := w.Send(frames); k != len(frames) || err != nil {
			t.Fatal(k, err)
		}
		got = append(got, drain(t, b)...)
	}
	must(t, w.Flush())
	return append(got, drain(t, b)...), w.Counters()
}

func near(got uint64, n int, p float64) bool {
	mean := p * float64(n)
	return math.Abs(float64(got)-mean) < 5*math.Sqrt(mean+1)
}

func TestFaultRates(t *testing.T) {
	const n = 20000
	for _, tc := range []struct {
		name string
		f    Faults
	}{
		{"none", Faults{}},
		{"loss", Faults{Seed: 1, Loss: 0.3}},
		{"dup", Faults{Seed: 2, Dup: 0.5}},
		{"corrupt", Faults{Seed: 3, Corrupt: 0.02}},
		{"reorder", Faults{Seed: 4, Reorder: 0.1, ReorderBy: 20}},
		{"mixed", Faults{Seed: 5, Loss: 0.1, Dup: 0.1, Corrupt: 0.1, Reorder: 0.1}},
		{"black", Faults{Loss: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, c := through(t, tc.f, n)
			rest := int(n - c.Lost)
			if c.Frames != n || c.Passed+c.Lost+c.Duplicated+c.Corrupted+c.Reordered != n || c.Undelivered != 0 {
				t.Errorf("do not add up: %+v", c)
			}
			if uint64(len(got)) != c.Passed+2*c.Duplicated+c.Corrupted+c.Reordered {
				t.Errorf("%d arrived: %+v", len(got), c)
			}
			if !near(c.Lost, n, tc.f.Loss) || !near(c.Duplicated, rest, tc.f.Dup) || !near(c.Corrupted, rest,
				tc.f.Corrupt) || !near(c.Reordered, rest, tc.f.Reorder) {
				t.Errorf("rates are off: %+v", c)
			}
		})
	}
}

func TestFaultIsReproducible(t *testing.T) {
	f := Faults{Seed: 7, Loss: 0.1, Dup: 0.1, Corrupt: 0.1, Reorder: 0.1, BurstMax: 5}
	a, ca := through(t, f, 2000)
	b, cb := through(t, f, 2000)
	if !slices.Equal(a, b) || ca != cb {
		t.Error("the same seed gave another run")
	}
	f.Seed++
	if c, _ := through(t, f, 2000); slices.Equal(a, c) {
		t.Error("another seed gave the same run")
	}
}

// TestBursts: losses come in runs of the given lengths, and their overall fraction is still Loss.
func TestBursts(t *testing.T) {
	const n = 60000
	got, c := through(t, Faults{Seed: 1, Loss: 0.05, BurstMin: 3, BurstMax: 64}, n)
	if p := float64(c.Lost) / n; p < 0.035 || p > 0.065 {
		t.Errorf("lost %v of the frames, want 0.05", p)
	}
	short, long, last := n, 0, -1
	for _, k := range got {
		if gap := k - last - 1; gap > 0 {
			short, long = min(short, gap), max(long, gap)
		}
		last = k
	}
	if short < 3 || long < 32 {
		t.Errorf("runs of %d to %d losses, want 3 to about 64", short, long)
	}
}

// TestReorderDistance: a held frame arrives right behind the ReorderBy-th frame after it.
func TestReorderDistance(t *testing.T) {
	got, c := through(t, Faults{Seed: 9, Reorder: 0.01, ReorderBy: 40}, 5000)
	late := 0
	for i, k := range got[:4900] {
		if i > 0 && k < got[i-1] {
			late++
			if got[i-1]-k < 38 || got[i-1]-k > 42 { // neighbours may be held as well
				t.Errorf("frame %d arrived behind %d", k, got[i-1])
			}
		}
	}
	if late == 0 || uint64(late) > c.Reordered {
		t.Errorf("%d arrived late, %d were held", late, c.Reordered)
	}
}

// TestCorruptKeepsHeader: exactly one byte differs, and none of the Ethernet header.
func TestCorruptKeepsHeader(t *testing.T) {
	a, b := Pair(1500, 64)
	w, _ := Fault(a, Faults{Corrupt: 1})
	dst := make([][]byte, 1)
	for i := range 500 {
		f := numbered(i, 1, 18+i%300)
		w.Send(f)
		if n, _ := b.Recv(dst); n != 1 || len(dst[0]) != f[0].Len() {
			t.Fatal("lost or cut")
		}
		want, differs := slices.Concat(f[0].Head, f[0].Bulk, f[0].Tail), 0
		for j := range want {
			if want[j] != dst[0][j] {
				if differs++; j < linkdrv.HeaderLen {
					t.Fatalf("header byte %d changed", j)
				}
			}
		}
		if differs != 1 {
			t.Fatalf("%d bytes differ", differs)
		}
	}
}

// narrow is a driver with room for a few frames a call.
type narrow struct {
	linkdrv.Driver
	room []int
}

func (d *narrow) Send(frames []linkdrv.TxFrame) (int, error) {
	room := 0
	if len(d.room) > 0 {
		room, d.room = d.room[0], d.room[1:]
	}
	return d.Driver.Send(frames[:min(room, len(frames))])
}

// TestFaultBackpressure: whatever room the driver below has, when, what arrives is what the seed says, once.
func TestFaultBackpressure(t *testing.T) {
	f := Faults{Seed: 3, Loss: 0.2, Dup: 0.2, Reorder: 0.2}
	want, _ := through(t, f, 200)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := Pair(1500, 4*linkdrv.SendBatch)
		below := &narrow{Driver: a}
		w, err := Fault(below, f)
		if err != nil {
			rt.Fatal(err)
		}
		var got []int
		for first := 0; first < 200; {
			below.room = rapid.SliceOfN(rapid.IntRange(0, 30), 0, 5).Draw(rt, "room")
			frames := numbered(first, min(200-first, rapid.IntRange(1, 80).Draw(rt, "batch")), 60)
			n, err := w.Send(frames)
			if err != nil {
				rt.Fatal(err)
			}
			for i := range frames { // they are the caller's again
				clear(frames[i].Head)
				clear(frames[i].Tail)
			}
			first += n
			got = append(got, drain(t, b)...)
		}
		for below.room = []int{1000}; ; below.room = []int{1000} {
			w.Flush()
			more := drain(t, b)
			if got = append(got, more...); len(more) == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestFaultErrorsOfTheDriverBelow(t *testing.T) {
	a, b := Pair(1500, 64)
	w, _ := Fault(a, Faults{Dup: 1})
	frames := numbered(0, 3, 60)
	frames[1] = linkdrv.TxFrame{Head: make([]byte, 2000)}
	n, err := w.Send(frames)
	if n != 2 || !errors.Is(err, linkdrv.ErrTooLong) {
		t.Fatal(n, err)
	}
	if n, err = w.Send(frames[n:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := drain(t, b); !slices.Equal(got, []int{0, 0, 2, 2}) {
		t.Error(got)
	}
	a.SetDown(true)
	if _, err := w.Send(frames[:1]); !errors.Is(err, linkdrv.ErrLinkDown) {
		t.Error(err)
	}
	if c := w.Counters(); c.Undelivered != 2 {
		t.Errorf("%+v", c)
	}
}

func TestBlackhole(t *testing.T) {
	a, b := Pair(1500, 64)
	w, _ := Fault(a, Faults{})
	w.Blackhole(true, true)
	w.Send(numbered(0, 5, 60))
	b.Send(numbered(0, 7, 60))
	if got := append(drain(t, b), drain(t, w)...); got != nil {
		t.Error(got)
	}
	if c := w.Counters(); c.Blackholed != 5 || c.Swallowed != 7 || c.Frames != 5 {
		t.Errorf("%+v", c)
	}
	w.Blackhole(false, false)
	w.Send(numbered(0, 5, 60))
	if got := drain(t, b); len(got) != 5 {
		t.Error(got)
	}
}

func TestOnly(t *testing.T) {
	a, b := Pair(1500, 64)
	w, _ := Fault(a, Faults{Loss: 1, Only: 0x0806})
	w.Send(numbered(0, 5, 60))
	if got := drain(t, b); len(got) != 5 {
		t.Error(got)
	}
	if c := w.Counters(); c.Exempt != 5 || c.Frames != 0 {
		t.Errorf("%+v", c)
	}
}

func TestFaultRefusesNonsense(t *testing.T) {
	a, _ := Pair(1500, 1)
	for _, f := range []Faults{{Loss: -0.1}, {Loss: 1.1}, {Dup: math.NaN()}, {Dup: 0.6, Corrupt: 0.6}, {ReorderBy: -1},
		{ReorderBy: MaxReorder + 1}} {
		if _, err := Fault(a, f); err == nil {
			t.Errorf("%+v accepted", f)
		}
	}
}

func TestFaultDoesNotAllocate(t *testing.T) {
	a, b := Pair(1500, 256)
	w, _ := Fault(a, Faults{Loss: 0.1, Dup: 0.1, Corrupt: 0.1, Reorder: 0.1})
	frames, dst := numbered(0, 64, 300), make([][]byte, 256)
	round := func() { w.Send(frames); b.Recv(dst) }
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
