package hist

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// upper is the upper bound of a bucket in nanoseconds.
func upper(i int) float64 { return 1e9 * Bound(i) }

// The last whole nanosecond up to each bound is in its bucket, the next one is not.
func TestBounds(t *testing.T) {
	const exact = (19 - MinExp) * PerOctave // the bucket up to 2^19 s
	for i := range exact {
		last := time.Duration(upper(i))
		if got := bucket(last); got != i {
			t.Errorf("%d ns is in bucket %d, want %d: up to %v ns", last, got, i, upper(i))
		}
		if got := bucket(last + 1); got != i+1 {
			t.Errorf("%d ns is in bucket %d, want %d: the bound before it is %v ns", last+1, got, i+1, upper(i))
		}
	}
}

func TestBucket(t *testing.T) {
	const second = -MinExp * PerOctave
	for _, c := range []struct {
		d    time.Duration
		want int
	}{
		{math.MinInt64, 0}, {-1, 0}, {0, 0}, {1, 0}, {953, 0}, {954, 1}, // 2^-20 s = 953.67 ns
		// a whole number of ns: the bound is in its bucket
		{time.Second >> 9, second - 9*PerOctave}, {time.Second>>9 + 1, second - 9*PerOctave + 1},
		{time.Second - 1, second}, {time.Second, second}, {time.Second + 1, second + 1},
		{1189207115, second + 1}, {1189207116, second + 2}, // 2^(1/4) s
		{1414213562, second + 2}, {1414213563, second + 3},
		{1681792830, second + 3}, {1681792831, second + 4},
		{16 * time.Second, second + 4*PerOctave}, {16*time.Second + 1, second + 4*PerOctave + 1},
		{math.MaxInt64, second + 33*PerOctave + 1},
	} {
		if got := bucket(c.d); got != c.want {
			t.Errorf("%d ns is in bucket %d, want %d", c.d, got, c.want)
		}
	}
}

// Durations of all lengths lie between the bounds of their bucket, as seconds in a float64 do, which is what Prometheus
// computes with.
func TestBucketOfAnyDuration(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(rng.Uint64() >> (1 + rng.UintN(60)))
		i, s := bucket(d), d.Seconds()
		if s > upper(i)/1e9 || i > 0 && s <= upper(i-1)/1e9 {
			t.Fatalf("%d ns is in bucket %d, up to %v ns", d, i, upper(i))
		}
	}
}

func TestHistogram(t *testing.T) {
	var a, b Histogram
	for _, d := range []time.Duration{-5, 10, time.Microsecond, time.Microsecond, time.Second} {
		a.Observe(d)
	}
	b.Observe(time.Second)
	b.Add(&a)
	if a.Count() != 5 || a.Sum != 10+2000+1e9 || a.Counts[0] != 2 || a.Counts[bucket(1000)] != 2 ||
		a.String() != "5 in 1.00000201s" {
		t.Errorf("%v: %v", a, a.Counts)
	}
	if b.Count() != 6 || b.Sum != a.Sum+1e9 || b.Counts[bucket(1e9)] != 2 {
		t.Errorf("added: %v: %v", b, b.Counts)
	}
}

func BenchmarkObserve(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	mixed := make([]time.Duration, 1<<12)
	for i := range mixed {
		mixed[i] = time.Duration(rng.Uint64() >> (34 + rng.UintN(20)))
	}
	var h Histogram
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Observe(mixed[i%len(mixed)])
	}
	if h.Count() == 0 {
		b.Fatal("nothing was counted")
	}
}
