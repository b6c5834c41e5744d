package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

// resting are lanes of which all but the first rest.
func resting(t *testing.T, c Congestion, n int) (list []*fabricLane, plain []Controller) {
	t.Helper()
	plain = lanes(c, n)
	for _, l := range plain {
		if auto, ok := l.(*autoLane); ok {
			list = append(list, auto.Sharer.(*fabricLane))
			continue
		}
		list = append(list, l.(*fabricLane))
	}
	for _, l := range list[1:] {
		l.rest()
	}
	list[0].frames = 3
	return list, plain
}

// A lane that rests and is answered takes the window of one that is not; nobody gives a window to the silent one before
// it is answered, as long as there is another. The last that is awake stays so.
func TestStandIn(t *testing.T) {
	auto := AutoParams{Near: DefaultFabric, Far: CubicParams{}, Border: time.Hour}
	for name, c := range map[string]Congestion{"fabric": DefaultFabric.Cable(), "auto": auto.Cable()} {
		l, plain := resting(t, c, 3)
		now, r := mono.Time(time.Hour), &RTT{}
		plain[1].(Deputy).StandIn(plain[0])
		if l[0].frames != 0 || !l[0].rests || l[1].frames != 3 || l[1].rests || !l[2].rests {
			t.Fatalf("%s: windows of %v, %v and %v", name, l[0].frames, l[1].frames, l[2].frames)
		}
		plain[2].(Deputy).StandIn(plain[0]) // nothing more is to be had
		if !l[2].rests {
			t.Errorf("%s: a second lane has taken the window of one", name)
		}
		round(plain[1], &now, r, 0) // it has a frame to give
		if l[2].rests || !l[0].rests {
			t.Errorf("%s: a window went to the silent lane: %v, %v", name, l[0].frames, l[2].frames)
		}
		l[1].frames = 2.5
		plain[0].OnAck(now, 1, r)
		round(plain[1], &now, r, 0)
		if l[0].rests {
			t.Errorf("%s: a lane that was answered rests on: %v, %v", name, l[1].frames, l[2].frames)
		}
	}
}

// Of two lanes that are awake the one that is answered does not give its window to the silent one and rest, and when
// the last lane that is awake goes, a silent one takes over rather than none.
func TestSilentLaneIsNotRelied(t *testing.T) {
	l, plain := resting(t, DefaultFabric.Cable(), 2)
	now, r := mono.Time(time.Hour), &RTT{}
	l[0].wake(l[1], 1)
	plain[1].(Deputy).StandIn(plain[0])
	if l[0].rests || l[1].rests || !l[0].data.silent {
		t.Fatal("a lane that is awake has taken another's window")
	}
	for range 4 {
		round(plain[1], &now, r, 1)
	}
	if l[1].rests {
		t.Error("it gave its window to the silent lane")
	}
	l[0].rest()
	plain[1].(Sharer).Share(false)
	if l[0].rests {
		t.Error("no lane is awake")
	}
}

// Windows of other cables, and those that no lanes share, have no deputy.
func TestStandInOfStrangers(t *testing.T) {
	l, plain := resting(t, DefaultFabric.Cable(), 2)
	_, others := resting(t, DefaultFabric.Cable(), 2)
	far := lanes(CubicParams{}.Cable(), 1)[0]
	for _, o := range []Controller{others[0], far, FixedWindow(7)} {
		plain[1].(Deputy).StandIn(o)
		if !l[1].rests || l[0].rests {
			t.Fatalf("a lane stands in for %T of another cable", o)
		}
	}
}

// The peer answers elsewhere when the second probe is overdue, or nearly: a busy one answers all paths at about the
// same time, and the answer of this path may be the last.
func TestPressLate(t *testing.T) {
	const half = InitialPTO / 2
	for late, want := range map[time.Duration]time.Duration{0: InitialPTO, half: InitialPTO, 3 * half / 2: 5 * half / 2,
		3 * half: 4 * half, 4*half - 1: 5*half - 1} {
		l, r := NewLedger(1<<10), &RTT{}
		now := mono.Time(time.Hour)
		l.Record(now, 100, 1, true)
		now = l.Deadline()
		l.OnTimeout(now, r, nil)
		l.Press(now.Add(late))
		l.Press(now.Add(late + half/2)) // it goes on to answer elsewhere
		if due := l.Deadline().Sub(now); due != want {
			t.Errorf("answered elsewhere after %v: the second probe is due after %v, not %v", late, due, want)
		}
	}
}

// The second probe is due one timeout after the first, not two, once the peer has answered elsewhere, and the third
// two after that. Whatever is acknowledged makes that undone.
func TestPress(t *testing.T) {
	for _, pressed := range []bool{false, true} {
		l, r := NewLedger(1<<10), &RTT{}
		now := mono.Time(time.Hour)
		l.Record(now, 100, 1, true)
		l.Press(now) // no probe was sent yet
		for k, want := range []time.Duration{1, 2, 4} {
			due := l.Deadline()
			if pressed && k > 0 {
				want /= 2
			}
			if due.Sub(now) != min(want*InitialPTO, max(InitialPTO, l.params.CoarseTimeout)) {
				t.Errorf("pressed %v: probe %d is due after %v", pressed, k, due.Sub(now))
			}
			now = due
			if _, probe := l.OnTimeout(now, r, nil); !probe {
				t.Fatal("no probe")
			}
			if pressed {
				l.Press(now)
			}
		}
		_, _, _ = l.OnAck(now, block(0, 1), r, nil, nil)
		l.Record(now, 100, 1, true)
		l.OnTimeout(l.Deadline(), r, nil)
		if at, pto := l.Deadline(), r.PTO(l.params.AckDelay); at.Sub(l.probe.anchor) != min(2*pto, max(pto,
			l.params.CoarseTimeout)) {
			t.Errorf("pressed %v before: the second probe is due after %v of %v", pressed, at.Sub(l.probe.anchor), pto)
		}
	}
}
