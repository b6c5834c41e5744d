package flowctl

import (
	"testing"
	"time"
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
	} {
		r.Update(c.sample, c.delay)
		if r.Latest() != c.latest || r.SRTT() != c.srtt || r.Var() != c.rttvar || r.Min() != c.min {
			t.Errorf("sample %d: latest %v srtt %v var %v min %v, want %v", i, r.Latest(), r.SRTT(), r.Var(), r.Min(), c)
		}
	}
	if r.PTO(0) != MinPTO {
		t.Errorf("PTO = %v, want the floor", r.PTO(0))
	}
	if got, want := r.PTO(5000*us), 2*r.SRTT()+4*r.Var()+5000*us; got != want {
		t.Errorf("PTO = %v, want %v", got, want)
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
	if p.Window != 512 || p.Acks.Every != 48 || p.Acks.NackEvery != 256 || p.Acks.Delay != 5*time.Millisecond || p.Congestion.Fixed != 512 {
		t.Errorf("paper profile is not the paper's (section 2.1.2): %+v", p)
	}
	if _, err := ProfileByName("fast"); err == nil || err.Error() != `flowctl: unknown profile "fast"; choose one of default, paper` {
		t.Errorf("unknown profile: %v", err)
	}
}
