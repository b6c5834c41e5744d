package sched

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func create(t testing.TB, name string) Scheduler {
	t.Helper()
	s, err := New(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNew(t *testing.T) {
	for _, name := range Names() {
		create(t, name)
	}
	if _, err := New("best"); err == nil ||
		err.Error() != `sched: unknown scheduler "best"; choose one of srr, wsrr, wd, adaptive` {
		t.Errorf("New(best): %v", err)
	}
}

// order sends frames of 1000 bytes, n of them, and returns the links they took; nothing is ever done.
func order(t *testing.T, s Scheduler, live, room uint64, n int) (links string) {
	for range n {
		link, ok := s.Pick(live, room)
		if !ok {
			return links + "-"
		}
		if again, _ := s.Pick(live, room); again != link {
			t.Errorf("asked again, Pick says %d instead of %d", again, link)
		}
		s.Sent(link, 1000)
		links += fmt.Sprint(link)
	}
	return links
}

func TestOrder(t *testing.T) {
	const all = math.MaxUint64
	for _, c := range []struct {
		name    string
		weights []float64
		live    uint64
		room    uint64
		want    string
	}{
		{"srr", nil, 0b111, all, "0120120120"},
		{"srr", nil, 0b101, all, "0202020202"}, // dead links are skipped
		{"srr", nil, 0b111, 0b101, "0-"},       // a link without room is not: the frame waits
		{"srr", []float64{9, 1}, 0b11, all, "0101010101"},
		{"wsrr", []float64{3, 1}, 0b11, all, "0001000100"},
		{"wsrr", []float64{2500, 1000}, 0b11, all, "0001000100"}, // rounded
		{"wsrr", []float64{3, 1}, 0b11, 0b10, "-"},
		{"wsrr", []float64{3, 1}, 0b10, all, "1111111111"},
		{"wsrr", nil, 0b111, all, "0120120120"},
		{"wsrr", []float64{2, 4}, 0b111, all, "0112011201"}, // no weight: as the slowest
		{"wd", []float64{3, 1}, 0b11, all, "0100100010"},
		{"wd", nil, 0b111, all, "0120120120"},
		{"wd", nil, 0b111, 0b110, "-"},
		{"wd", []float64{4, 2}, 0b111, all, "0120120012"},
		{"adaptive", []float64{3, 1}, 0b11, all, "0100100010"},
		{"adaptive", nil, 0b111, 0b110, "1212121212"}, // room decides first
		{"adaptive", nil, 0b111, 0, "-"},
	} {
		s := create(t, c.name)
		for link, w := range c.weights {
			s.SetWeight(link, w)
		}
		if got := order(t, s, c.live, c.room, 10); got != c.want {
			t.Errorf("%s weights %v live %b room %b: %s, want %s", c.name, c.weights, c.live, c.room, got, c.want)
		}
		if _, ok := s.Pick(0, all); ok {
			t.Errorf("%s picked a link although none is live", c.name)
		}
	}
}

func TestWSRRTurnEndsWhenItsLinkDies(t *testing.T) {
	s := create(t, "wsrr")
	s.SetWeight(0, 4)
	s.SetWeight(1, 2)
	s.SetWeight(2, 1)
	got := order(t, s, 0b111, 0b111, 2) + order(t, s, 0b110, 0b111, 4) + order(t, s, 0b111, 0b111, 6)
	if want := "00" + "1121" + "120000"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Whatever happens: the link named is live, one with room if ok, and no scheduler but adaptive chooses by room. What
// the schedulers know of the links is what they were told.
func TestPickProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names()).Draw(t, "name")
		s, _ := New(name)
		var sent [MaxLinks]int
		var weights [MaxLinks]float64 // 0: none
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			live, room := rapid.Uint64().Draw(t, "live"), rapid.Uint64().Draw(t, "room")
			link, ok := s.Pick(live, room)
			if ok && !has(live&room, link) {
				t.Fatalf("%s picked %d of live %b room %b", name, link, live, room)
			}
			if blind, can := s.Pick(live, math.MaxUint64); name != "adaptive" && live != 0 && (!can || blind != link) {
				t.Fatalf("%s picks %d if all have room, %d now", name, blind, link)
			}
			if l, is := s.(*wd); is && live != 0 {
				checkLightest(t, link, live, &sent, &weights)
				checkLoad(t, &l.load, &sent, &weights)
			}
			if l, is := s.(*wsrr); is {
				checkQuotas(t, l, &weights)
			}
			if name == "adaptive" && ok != (live&room != 0) {
				t.Fatalf("adaptive holds a frame although links %b have room", live&room)
			}
			if ok {
				n := rapid.IntRange(1, 9000).Draw(t, "bytes")
				s.Sent(link, n)
				sent[link] += n
			}
			other := rapid.IntRange(0, MaxLinks-1).Draw(t, "other")
			switch rapid.IntRange(0, 2).Draw(t, "then") {
			case 0:
				n := rapid.IntRange(0, sent[other]).Draw(t, "done")
				s.Done(other, n)
				sent[other] -= n
			case 1:
				w := rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), 1e-320, 1, 2.5, 3e5}).Draw(t, "weight")
				s.SetWeight(other, w)
				weights[other] = 0
				if w >= 1 && w <= 3e5 {
					weights[other] = w
				}
			}
		}
	})
}

// slowest returns the least weight that is set; 0: none is.
func slowest(weights *[MaxLinks]float64) (least float64) {
	for _, w := range weights {
		if w > 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return least
}

// checkLightest compares with the links' B/W, those without a weight counting as the slowest.
func checkLightest(t *rapid.T, link int, live uint64, sent *[MaxLinks]int, weights *[MaxLinks]float64) {
	ratio := func(i int) float64 {
		w := weights[i]
		if w == 0 {
			w = max(slowest(weights), 1)
		}
		return float64(sent[i]) / w
	}
	for i := range MaxLinks {
		if has(live, i) && ratio(i) < ratio(link)*(1-1e-9) {
			t.Fatalf("wd picks %d of B/W %v, and %d has %v", link, ratio(link), i, ratio(i))
		}
	}
}

func checkLoad(t *rapid.T, l *load, sent *[MaxLinks]int, weights *[MaxLinks]float64) {
	for i, n := range sent {
		if l.bytes[i] != float64(n) || (l.per[i] != 0) != (weights[i] != 0) || has(l.set, i) != (weights[i] != 0) {
			t.Fatalf("link %d: %v bytes outstanding, want %d; weight 1/%v, want %v", i, l.bytes[i], n, l.per[i],
				weights[i])
		}
	}
	if least := slowest(weights); (l.unset != 0) != (least != 0) || least != 0 && l.unset != 1/least {
		t.Fatalf("slowest weight 1/%v, want %v", l.unset, least)
	}
}

func checkQuotas(t *rapid.T, s *wsrr, weights *[MaxLinks]float64) {
	for i, w := range weights {
		if want := min(math.Round(w/slowest(weights)), mostPerTurn); w > 0 && s.quota[i] != int32(want) ||
			w == 0 && s.quota[i] != 0 {
			t.Fatalf("link %d of weight %v: %d frames in a turn", i, w, s.quota[i])
		}
	}
}

func TestAllocations(t *testing.T) {
	for _, name := range Names() {
		s := create(t, name)
		if n := testing.AllocsPerRun(100, func() { step(s, 0xff) }); n != 0 {
			t.Errorf("%s: %v allocations per frame", name, n)
		}
	}
}

func step(s Scheduler, live uint64) {
	if link, ok := s.Pick(live, live); ok {
		s.Sent(link, 8192)
		s.Done(link, 8192)
		s.SetWeight(link, 100)
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, name := range Names() {
		for _, live := range []uint64{0b1, 0xff, math.MaxUint64} {
			b.Run(fmt.Sprintf("%s/%d", name, countLinks(live)), func(b *testing.B) {
				s := create(b, name)
				b.ReportAllocs()
				for b.Loop() {
					if link, ok := s.Pick(live, live); ok {
						s.Sent(link, 8192)
						s.Done(link, 8192)
					}
				}
			})
		}
	}
}

func countLinks(set uint64) (n int) {
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}
