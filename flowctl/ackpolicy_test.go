package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"

	"pgregory.net/rapid"
)

const us = mono.Time(time.Microsecond)

func TestAckPolicy(t *testing.T) {
	type frame struct {
		at             mono.Time
		eliciting, gap bool
	}
	many := func(n int) (fs []frame) {
		for range n {
			fs = append(fs, frame{1000 * us, true, false})
		}
		return fs
	}
	hole := append([]frame{{1000 * us, true, true}}, many(255)...)
	for _, c := range []struct {
		name    string
		params  AckParams
		frames  []frame
		due     mono.Time
		nack    bool
		pending bool
		want    bool
	}{
		{"idle", DefaultAcks, nil, mono.Never, false, false, false},
		{"bare acknowledgements do not answer each other", DefaultAcks, []frame{{1000 * us, false, false}}, mono.Never,
			false, false, false},
		{"one frame waits for Delay", DefaultAcks, many(1), 1100 * us, false, true, false},
		{"later frames do not put it off", DefaultAcks, []frame{{1000 * us, true, false}, {1090 * us, true, false}},
			1100 * us, false, true, false},
		{"a quarter of Every rides", DefaultAcks, many(4), 1100 * us, false, true, true},
		{"Every speaks", DefaultAcks, many(16), 1000 * us, false, true, true},
		{"a hole speaks at once", DefaultAcks, []frame{{1000 * us, true, true}}, 1000 * us, true, true, true},
		{"a hole revealed by a bare acknowledgement", DefaultAcks, []frame{{1000 * us, false, true}}, 1000 * us, true,
			true, true},
		{"paper: 47 frames wait for 5 ms", PaperAcks, many(47), 6000 * us, false, true, true},
		{"paper: 48 frames speak", PaperAcks, many(48), 1000 * us, false, true, true},
		{"paper: a hole waits for 5 ms", PaperAcks, hole[:40], 6000 * us, true, true, true},
		{"paper: a hole revealed by a bare acknowledgement", PaperAcks, []frame{{1000 * us, false, true}}, 6000 * us,
			true, true, false},
		{"paper: all data frames carry what is pending", PaperAcks, many(1), 6000 * us, false, true, true},
		{"a hole is reported before Delay is over", AckParams{Every: 48, NackEvery: 256, Delay: time.Second,
			NackDelay: time.Millisecond}, []frame{{1000 * us, true, false}, {1500 * us, true, true}}, 2500 * us, true,
			true, true},
		{"paper without positive: 256 frames after the hole", AckParams{Every: 1000, NackEvery: 256, Delay: time.Second,
			NackDelay: time.Second},
			append(hole, frame{1000 * us, true, false}), 1000 * us, true, true, true},
		{"paper without positive: one frame before that", AckParams{Every: 1000, NackEvery: 256, Delay: time.Second,
			NackDelay: time.Second},
			hole, 1001000 * us, true, true, true},
	} {
		var p AckPolicy
		p.Init(c.params)
		for range 2 { // the second time after OnSent, to see that it forgets
			for _, f := range c.frames {
				p.OnFrame(f.at, f.eliciting, f.gap)
			}
			if p.Deadline() != c.due || p.Nack() != c.nack || p.Pending() != c.pending || p.WantPiggyback() != c.want {
				t.Errorf("%s: Deadline %d Nack %v Pending %v WantPiggyback %v, want %d %v %v %v", c.name,
					p.Deadline(), p.Nack(), p.Pending(), p.WantPiggyback(), c.due, c.nack, c.pending, c.want)
			}
			if p.Due(c.due-1) || p.Due(c.due) != c.pending {
				t.Errorf("%s: Due does not agree with Deadline", c.name)
			}
			p.OnSent()
			if p.Pending() || p.Deadline() != mono.Never {
				t.Errorf("%s: still pending after OnSent", c.name)
			}
		}
	}
}

// A block of the profile paper stops at a hole until 256 frames later or 5 ms are over; one of the default never does.
func TestBlock(t *testing.T) {
	for _, c := range []struct {
		name    string
		params  AckParams
		arrive  []uint64
		after   time.Duration
		again   bool
		largest uint64
		nack    bool
		none    bool
	}{
		{"default: a hole is reported at once", DefaultAcks, []uint64{0, 1, 3}, 0, false, 3, true, false},
		{"paper: it is hidden", PaperAcks, []uint64{0, 1, 3, 4}, 0, false, 1, false, false},
		{"paper: until 5 ms are over", PaperAcks, []uint64{0, 1, 3, 4}, 5 * time.Millisecond, false, 4, true, false},
		{"paper: or the peer asks", PaperAcks, []uint64{0, 1, 3, 4}, 0, true, 4, true, false},
		{"paper: filled, there is nothing to hide", PaperAcks, []uint64{0, 1, 3, 2}, 0, false, 3, true, false},
		{"paper: filled up to the next", PaperAcks, []uint64{0, 2, 4, 1}, 0, false, 2, false, false},
		{"paper: nothing below it", PaperAcks, []uint64{1, 2}, 0, false, 0, false, true},
	} {
		var p AckPolicy
		var tr Tracker
		p.Init(c.params)
		for _, pn := range c.arrive {
			gap, _ := tr.Commit(pn, 1000*us)
			p.OnFrame(1000*us, true, gap)
		}
		b, ok := p.Block(mono.Time(1000*us).Add(c.after), &tr, nil, 4, c.again)
		if ok == c.none || b.Largest != c.largest || b.Nack != c.nack {
			t.Errorf("%s: %+v, %v; want largest %d, nack %v, none %v", c.name, b, ok, c.largest, c.nack, c.none)
		}
		if hidden := !b.Nack && c.params.Exact; hidden != p.Pending() || hidden && p.Deadline() != 6000*us {
			t.Errorf("%s: afterwards pending %v until %v", c.name, p.Pending(), p.Deadline())
		} else if hidden && p.WantPiggyback() {
			t.Errorf("%s: the next data frame is to carry a block", c.name)
		} else if b, ok := p.Block(1000*us, &tr, nil, 4, false); hidden && ok {
			t.Errorf("%s: said again: %+v", c.name, b)
		}
	}
}

// A side with data of its own puts off what is due by count alone.
func TestOverdue(t *testing.T) {
	var p AckPolicy
	p.Init(AckParams{Every: 4, Delay: 100})
	for i := range 12 {
		now := mono.Time(1000 + i)
		p.OnFrame(now, true, false)
		if got, want := p.Due(now), i >= 3; got != want {
			t.Errorf("frame %d: Due %v", i, got)
		}
		if got, want := p.Overdue(now), i >= 11; got != want {
			t.Errorf("frame %d: Overdue %v", i, got)
		}
	}
	p.OnSent()
	p.OnFrame(2000, true, false)
	p.OnFrame(2050, true, false) // waits no longer than the first
	if p.Overdue(2099) || !p.Overdue(2100) {
		t.Error("Overdue does not follow the delay")
	}
	p.OnSent()
	p.OnFrame(3000, true, true)
	if !p.Overdue(3000) {
		t.Error("a hole is put off")
	}
	p.Init(AckParams{Every: 4, Delay: 100, Exact: true})
	for i := range 4 {
		p.OnFrame(4000, true, false)
		if got, want := p.Overdue(4000), i == 3; got != want {
			t.Errorf("exact, frame %d: Overdue %v", i, got)
		}
	}
}

// Frames of a run are what they are one by one.
func TestOnFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := AckParams{Every: rapid.IntRange(1, 48).Draw(t, "every"), Delay: time.Millisecond,
			NackEvery: rapid.SampledFrom([]int{0, 3, 40}).Draw(t, "nackEvery"), NackDelay: 2 * time.Millisecond}
		var one, run AckPolicy
		one.Init(params)
		run.Init(params)
		now := mono.Time(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now += mono.Time(rapid.Int64Range(0, 3_000_000).Draw(t, "later"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				gap, eliciting := rapid.Bool().Draw(t, "gap"), rapid.Bool().Draw(t, "eliciting")
				one.OnFrame(now, eliciting, gap)
				run.OnFrame(now, eliciting, gap)
			case 1:
				one.OnSent()
				run.OnSent()
			default:
				n := rapid.IntRange(1, 64).Draw(t, "n")
				for range n {
					one.OnFrame(now, true, false)
				}
				run.OnFrames(now, n)
			}
			if one != run {
				t.Fatalf("%+v\n%+v", one, run)
			}
		}
	})
}
