package flowctl

import (
	"testing"
	"time"

	"multiedge/internal/mono"
)

func TestRTT(t *testing.T) {
	const us = time.Microsecond
	var r RTT
	if r.Valid() || r.PTO(5*us) != InitialPTO+5*us {
		t.Fatalf("zero RTT: valid %v, PTO %v", r.Valid(), r.PTO(5*us))
	}
	for i, c := range []struct{ sample, delay, latest, srtt, rttvar, min time.Duration }{
		{0, 0, 0, 0, 0, 0}, // no time passed: no sample
		{100 * us, 0, 100 * us, 100 * us, 50 * us, 100 * us},      // RFC 6298 (2.2)
		{280 * us, 100 * us, 180 * us, 110 * us, 57500, 100 * us}, // (2.3): 50+(80-50)/4, 100+80/8
		{40 * us, 50 * us, 40 * us, 101250, 60625, 40 * us},       // a delay that does not fit is not believed
		// no round trip is that short: both ends' clocks were read before the frames came
		{280, 0, 40 * us, 101250, 60625, 40 * us},
		{101250, 100970, 101250, 101250, 45469, 40 * us}, // nor is what this delay leaves: 280 ns
		{101250, 100250, us, 88719, 59164, us},           // as short as one may be
	} {
		r.Update(c.sample, c.delay)
		if r.Latest() != c.latest || r.SRTT() != c.srtt || r.Var() != c.rttvar || r.Min() != c.min {
			t.Errorf("sample %d: latest %v srtt %v var %v min %v, want %v", i, r.Latest(), r.SRTT(), r.Var(), r.Min(),
				c)
		}
	}
	if r.PTO(0) != MinPTO {
		t.Errorf("PTO = %v, want the floor", r.PTO(0))
	}
	if got, want := r.PTO(5000*us), 2*r.SRTT()+4*r.Var()+5000*us; got != want {
		t.Errorf("PTO = %v, want %v", got, want)
	}
}

// A peer that was stopped for ten seconds makes one round trip of ten seconds: the next probe must not wait for as
// long. A path that became so slow is learned all the same.
func TestRTTOfThoseWhoWereAway(t *testing.T) {
	var r RTT
	for range 10 {
		r.Update(50*time.Microsecond, 0)
	}
	r.Update(10*time.Second, 0)
	if r.PTO(0) > 250*time.Millisecond || r.Latest() > 2*awayTime {
		t.Errorf("probe after %v, latest %v", r.PTO(0), r.Latest())
	}
	for range 60 {
		r.Update(10*time.Second, 0)
	}
	if r.SRTT() < 9*time.Second {
		t.Errorf("a path of 10 s is thought to take %v", r.SRTT())
	}
}

// After a silence of ten seconds, in which the peer was stopped or we were, all that was sent is acknowledged piece by
// piece: the next loss is probed for soon.
func TestProbeAfterSilence(t *testing.T) {
	for _, self := range []bool{false, true} {
		l, rtt := NewLedger(DefaultSpan), new(RTT)
		rtt.Update(50*time.Microsecond, 0)
		now := mono.Time(time.Second)
		end := now.Add(10 * time.Second)
		l.Record(now, 1000, 0, true)
		for !self && l.Deadline() < end {
			now = l.Deadline()
			if _, probe := l.OnTimeout(now, rtt, nil); probe {
				l.Record(now, 100, 0, true)
			}
		}
		for self && l.NextPN() < 100 {
			l.Record(now, 1000, 0, true)
		}
		sent := l.NextPN()
		if sent < 100 {
			t.Fatalf("%d frames in ten seconds", sent)
		}
		samples := 0
		for pn := range sent - 20 { // the ring had no room for the last ones
			if _, _, res := l.OnAck(end, &Block{Largest: pn, Floor: pn + 1}, rtt, nil, nil); res.HasRTT {
				samples++
			}
		}
		if samples != 1 {
			t.Errorf("self %v: %d samples of one silence", self, samples)
		}
		if left := l.Deadline().Sub(end); left > 250*time.Millisecond {
			t.Errorf("self %v: after %d frames the next look is in %v, srtt %v", self, sent, left, rtt.SRTT())
		}
		for range 20 { // later samples count
			pn := l.Record(end, 100, 0, true)
			end = end.Add(time.Millisecond)
			l.OnAck(end, &Block{Largest: pn, Floor: pn + 1}, rtt, nil, nil)
		}
		if rtt.Latest() != time.Millisecond {
			t.Errorf("self %v: latest %v", self, rtt.Latest())
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
	}{{"", "default"}, {"default", "default"}, {"paper", "paper"}} {
		if p, err := ProfileByName(c.name); err != nil || p.Name != c.want {
			t.Errorf("ProfileByName(%q) = %q, %v", c.name, p.Name, err)
		}
	}
	p, _ := ProfileByName("paper")
	if p.Window != 512 || p.Acks.Every != 48 || p.Acks.NackEvery != 256 || p.Acks.Delay != 5*time.Millisecond ||
		p.Congestion.Fixed() != 512 {
		t.Errorf("paper profile is not the paper's (section 2.1.2): %+v", p)
	}
	if _, err := ProfileByName("fast"); err == nil ||
		err.Error() != `flowctl: unknown profile "fast"; choose one of default, paper` {
		t.Errorf("unknown profile: %v", err)
	}
}
