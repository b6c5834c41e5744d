package fault

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"multiedge/internal/mono"
)

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Shares come out as asked for, also in bursts, and one seed means one fate.
func TestFates(t *testing.T) {
	for _, f := range []Faults{
		{Loss: .001}, {Loss: .3}, {Loss: .05, Burst: 8}, {Loss: .3, Burst: 64}, {Loss: 1}, {Loss: 1, Burst: 5},
		{Loss: .01, Dup: .5, Corrupt: .3, Reorder: .1}, {Corrupt: 1}, {Dup: 1}, {Hold: .2, HoldFor: time.Second}, {},
	} {
		const n = 400_000
		var lost, copies, corrupted, twice, late, held, runs int
		a, b, other := Keyed(1, 2, 0), Keyed(1, 2, 0), Keyed(2, 2, 0)
		before, same := false, 0
		frame := Frame{Len: 100, Data: true}
		for range n {
			v := a.Next(&f, 0, frame)
			if w := b.Next(&f, 0, frame); v != w {
				t.Fatalf("%+v: one seed, two fates", f)
			}
			if other.Next(&f, 0, frame) == v {
				same++
			}
			lost, twice, late, held = lost+count(v.End == Lost), twice+count(v.Twice), late+count(v.Late),
				held+count(v.Held)
			if v.N != count(v.End == Passes)+count(v.Twice)+count(v.Held) {
				t.Fatalf("%+v has %d copies", v, v.N)
			}
			for _, c := range v.Copies[:v.N] {
				copies, corrupted = copies+1, corrupted+count(c.Bit > 0)
				if c.Bit > 0 && (c.Bit < header*8 || c.Bit >= 800) {
					t.Fatalf("bit %d of 800 flipped", c.Bit)
				}
			}
			if v.End == Lost && !before {
				runs++
			}
			before = v.End == Lost
		}
		passed := float64(n - lost)
		for _, c := range []struct {
			what  string
			got   int
			of    float64
			share float64
		}{{"lost", lost, n, f.Loss}, {"copies corrupted", corrupted, float64(copies), f.Corrupt},
			{"duplicated", twice, passed, f.Dup}, {"late", late, passed, f.Reorder}, {"held", held, passed, f.Hold}} {
			want := c.of * c.share
			deviation := 6*math.Sqrt(want*(1-c.share)*float64(max(1, 2*f.Burst))) + 1e-6*n
			if math.Abs(float64(c.got)-want) > deviation {
				t.Errorf("%+v: %d of %.0f %s, want %.0f within %.0f", f, c.got, c.of, c.what, want, deviation)
			}
		}
		if f.Burst > 1 && f.Loss < 1 && lost/runs < f.Burst {
			t.Errorf("%+v: runs of %d", f, lost/runs)
		}
		if f.Loss == .3 && same == n {
			t.Error("another seed, the same fates")
		}
	}
}

// A keyed stream gives a frame its fate by its number, whatever became of the frames before; one of shared dice gives
// what the dice come to.
func TestStreams(t *testing.T) {
	good, bad := Faults{}, Faults{Loss: .5, Dup: .5, Corrupt: .5, Jitter: time.Second}
	a, b := Keyed(7, 0, 1), Keyed(7, 0, 1)
	frame := Frame{Len: 64}
	for range 1000 {
		a.Next(&good, 0, frame)
		b.Next(&bad, 0, frame)
		if v, w := a.Next(&bad, 0, frame), b.Next(&bad, 0, frame); v != w {
			t.Fatalf("%+v behind good frames, %+v behind bad ones", v, w)
		}
	}
	dice := rand.New(rand.NewPCG(1, 1))
	c, d := By(dice), By(dice)
	same := 0
	for range 100 {
		same += count(c.Next(&bad, 0, frame) == d.Next(&bad, 0, frame))
	}
	if same == 100 {
		t.Error("streams of the same dice have the same fates: they do not share them")
	}
}

// What is not left to chance: cuts, walls, long frames, rates and their queues, delays.
func TestCertainFates(t *testing.T) {
	long, datagram := Frame{Len: 1501 + header}, Frame{Len: 1400, Outer: 62, Joined: true}
	for _, c := range []struct {
		f     Faults
		frame Frame
		want  End
	}{
		{Faults{Cut: true}, long, Lost},
		{Faults{Longest: 1500}, long, Oversize}, {Faults{Longest: 1501}, long, Passes},
		{Faults{Longest: 1400 - header + 61}, datagram, Oversize},
		{Faults{Longest: 1400 - header + 62}, datagram, Passes},
		{Faults{Walled: true}, datagram, Walled}, {Faults{Walled: true}, long, Passes},
	} {
		s := Keyed(1, 0, 0)
		if v := s.Next(&c.f, 0, c.frame); v.End != c.want || (v.N > 0) != (c.want == Passes) {
			t.Errorf("%+v of %+v: %+v, want end %d", c.f, c.frame, v, c.want)
		}
	}
	// a thousand bytes take a millisecond; the queue holds two
	f := Faults{Rate: 1e6, Queue: 2 * time.Millisecond, Delay: time.Second}
	s := Keyed(1, 0, 0)
	var ends []End
	for i := range 5 {
		v := s.Next(&f, 0, Frame{Len: 1000})
		ends = append(ends, v.End)
		if want := time.Second + time.Duration(i+1)*time.Millisecond; v.End == Passes && v.Copies[0].Wait != want {
			t.Errorf("frame %d waits %v, want %v", i, v.Copies[0].Wait, want)
		}
	}
	if [5]End(ends) != [5]End{Passes, Passes, Passes, Full, Full} {
		t.Errorf("ends %v", ends)
	}
	if v := s.Next(&f, mono.Time(time.Minute), Frame{Len: 1000}); v.Copies[0].Wait != time.Second+time.Millisecond {
		t.Errorf("on an idle link a frame waits %v", v.Copies[0].Wait)
	}
	f = Faults{Hold: 1, HoldFor: time.Hour}
	if v := s.Next(&f, 0, Frame{Len: 100}); v.Held {
		t.Error("a frame of a set-up is held")
	}
	f.HoldSetup = true
	if v := s.Next(&f, 0, Frame{Len: 100}); !v.Held || v.Copies[1].Wait < time.Second {
		t.Errorf("held: %+v", v)
	}
	if f = (Faults{Reorder: 1}); s.Next(&f, 0, Frame{Len: 100}).Copies[0].Wait != time.Millisecond {
		t.Error("a frame is not held back by a millisecond")
	}
}

// What is wrong is refused, and what is there is described.
func TestCheck(t *testing.T) {
	for _, f := range []Faults{{Loss: -.1}, {Dup: 1.1}, {Corrupt: math.NaN()}, {Hold: 2}, {Delay: -1}, {Jitter: -1},
		{Burst: -1}, {Longest: -1}, {Rate: -1}, {Rate: math.NaN()}} {
		if f.Check() == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	f := Faults{Loss: .5, Dup: 1, Delay: time.Second, Rate: 1e6, Longest: 99}
	if got := f.Describe(); f.Check() != nil || !f.Any() || !strings.HasPrefix(got, ", loss 50 %, duplication 100 %") ||
		!strings.HasSuffix(got, ", delay 1s, 8 Mbit/s, frames of at most 99 bytes") {
		t.Errorf("%q", got)
	}
	if f = (Faults{}); f.Any() || f.Describe() != "" {
		t.Errorf("no faults: %q", f.Describe())
	}
}
