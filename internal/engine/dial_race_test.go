package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// Clause 10.7: both ends dial at moments and over a network that the seed draws. In the end there is one session, the
// same at both ends, both requests are answered and nothing that was connected is torn down.
func TestDialRaces(t *testing.T) {
	t.Parallel()
	seeds := 300
	if testing.Short() {
		seeds = 100
	}
	for _, seed := range []uint64{71, 1219, 1484} { // these once failed
		dialRace(t, seed)
	}
	for seed := range uint64(seeds) {
		dialRace(t, seed)
	}
}

func dialRace(t *testing.T, seed uint64) {
	fine := !t.Failed()
	rng := rand.New(rand.NewPCG(seed, 7))
	r := newRig(t, rigOptions{sealed: true, links: 1 + rng.IntN(2)})
	m := newMess(r, seed)
	m.net.Jitter = []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}[rng.IntN(4)]
	m.calm(time.Duration(rng.IntN(100)) * time.Millisecond)
	m.net.Loss, m.net.Dup = 0.5*rng.Float64()*float64(rng.IntN(2)), 0.2*rng.Float64()
	var connected [2]int
	m.pick = func(ev *engine.Event, i int) {
		switch ev.Kind {
		case engine.EvConnected:
			connected[i]++
		case engine.EvClosed, engine.EvPeerDown:
			t.Errorf("seed %d: node %d: event %d, %v %s", seed, i, ev.Kind, ev.Status, ev.Text)
		}
	}
	dial := func(i int) {
		if _, err := r.n[i].e.Dial(m.now, []string{"node1", "node0"}[i], "x",
			engine.DialOptions{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	r.n[0].e.Listen("x")
	r.n[1].e.Listen("x")
	first := rng.IntN(2)
	dial(first)
	m.calm(time.Duration(rng.Int64N(int64(4*m.net.Jitter + 4*time.Millisecond))))
	dial(1 - first)
	m.calm(time.Duration(rng.IntN(5)) * time.Second)
	m.net.Loss, m.net.Dup = 0, 0
	if !m.run(30*time.Second, func() bool { return connected[0] == 2 && connected[1] == 2 }) {
		t.Errorf("seed %d: connected %v", seed, connected)
	}
	m.calm(5 * time.Second)
	r.oneSession()
	if fine && t.Failed() {
		t.Logf("seed %d: loss up to 50 %%, delay %v, first %d", seed, m.net.Jitter, first)
	}
}

// The same with nodes that are started anew before: requests made right after it, at both ends, are answered whatever
// of the old session and of doubts about it is still on its way.
func TestRestartRaces(t *testing.T) {
	t.Parallel()
	seeds := 300
	if testing.Short() {
		seeds = 100
	}
	for seed := range uint64(seeds) {
		if restartRace(t, seed); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func restartRace(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 8))
	o := rigOptions{sealed: true, links: 1 + rng.IntN(2)}
	d := newDialled(t, o, seed)
	fail := d.pick
	d.pick = nil
	d.dial(rng.IntN(2))
	d.calm(time.Duration(rng.IntN(400)) * time.Millisecond)
	d.net.Jitter = []time.Duration{0, time.Millisecond, 30 * time.Millisecond}[rng.IntN(3)]
	d.net.Loss, d.net.Dup = 0.4*rng.Float64()*float64(rng.IntN(2)), 0.2*rng.Float64()
	for k := range 1 + rng.IntN(3) {
		i := rng.IntN(2)
		d.boot(i, uint64(2+k), o)
		d.seen[i] = 0
		d.n[i].e.Listen("x")
		if rng.IntN(2) == 0 {
			d.dial(rng.IntN(2))
		}
		d.calm(time.Duration(rng.Int64N(int64(3*d.net.Jitter + time.Millisecond))))
	}
	var mine [2]engine.ConnID
	up := 0
	d.pick = func(ev *engine.Event, i int) {
		if ev.Conn == mine[i] && mine[i] != 0 {
			if ev.Kind == engine.EvConnected {
				up++
			} else if ev.Kind == engine.EvClosed {
				fail(ev, i)
			}
		}
	}
	first := rng.IntN(2)
	for k := range 2 {
		i := (first + k) % 2
		id, err := d.n[i].e.Dial(d.now, []string{"node1", "node0"}[i], "x", engine.DialOptions{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		mine[i] = id
		d.calm(time.Duration(rng.Int64N(int64(3*d.net.Jitter + time.Millisecond))))
	}
	d.calm(time.Duration(rng.IntN(3)) * time.Second)
	d.net.Loss, d.net.Dup = 0, 0
	if !d.run(30*time.Second, func() bool { return up == 2 }) {
		t.Errorf("%d of 2 requests were answered", up)
	}
	d.calm(7 * time.Second)
	d.oneSession()
}
