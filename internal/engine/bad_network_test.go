package engine_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/fault"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// mess joins the nodes of a rig by a network with the faults of package fault.
type mess struct {
	*rig
	rng  *rand.Rand
	net  fault.Faults              // of each link, both ways
	dice [2]fault.Stream           // by sender
	fly  []late                    // on their way
	see  func(from int, f *flight) // every frame that is sent
	// instead of chance: how often it arrives, and how much later
	fault func(from int, f *flight) (copies int, more time.Duration)
	pick  func(ev *engine.Event, i int) // every event
	seen  [2]int
}

type late struct {
	at mono.Time
	to int
	f  flight
}

func newMess(r *rig, seed uint64) *mess {
	rng := rand.New(rand.NewPCG(seed, 99))
	return &mess{rig: r, rng: rng, net: fault.Faults{Jitter: 50 * time.Microsecond},
		dice: [2]fault.Stream{fault.By(rng), fault.By(rng)}}
}

func (m *mess) send(from int, f flight) {
	if m.see != nil {
		m.see(from, &f)
	}
	if m.fault != nil {
		copies, more := m.fault(from, &f)
		for range copies {
			m.fly = append(m.fly, late{m.now.Add(m.hop + more), 1 - from, flight{link: f.link, b: slices.Clone(f.b)}})
		}
		return
	}
	v := m.dice[from].Next(&m.net, m.now, fault.Frame{Len: len(f.b), Data: !setup(f.b), Joined: f.joined})
	for _, c := range v.Copies[:v.N] {
		g := flight{link: f.link, b: slices.Clone(f.b)}
		if c.Bit > 0 {
			g.b[c.Bit/8] ^= 1 << (c.Bit % 8)
		}
		m.fly = append(m.fly, late{m.now.Add(m.hop + c.Wait), 1 - from, g})
	}
}

// run moves frames until cond holds, for at most limit of virtual time. It fails the test if the engines' timers stand
// still in the past.
func (m *mess) run(limit time.Duration, cond func() bool) bool {
	end := m.now.Add(limit)
	same := 0
	for !cond() {
		if m.now > end {
			return false
		}
		for i := range m.n {
			for _, f := range m.take(i) {
				m.send(i, f)
			}
			m.look(i)
		}
		next := min(m.n[0].e.NextTimeout(), m.n[1].e.NextTimeout())
		for _, l := range m.fly {
			next = min(next, l.at)
		}
		if next > m.now {
			m.now, same = min(next, end+1), 0
		} else if same++; same > 1000 {
			m.t.Fatalf("the timers stand still: %v %v at %v", m.n[0].e.NextTimeout(), m.n[1].e.NextTimeout(), m.now)
		}
		var due []late
		m.fly = slices.DeleteFunc(m.fly, func(l late) bool {
			if l.at <= m.now {
				due = append(due, l)
			}
			return l.at <= m.now
		})
		slices.SortStableFunc(due, func(a, b late) int { return int(a.at - b.at) })
		for _, l := range due {
			m.give(l.to, l.f)
			m.look(l.to)
		}
	}
	return true
}

// look accepts every request and shows events to pick.
func (m *mess) look(i int) {
	n := m.n[i]
	for ; m.seen[i] < len(n.events); m.seen[i]++ {
		ev := &n.events[m.seen[i]]
		if ev.Kind == engine.EvIncoming {
			n.e.Accept(m.now, ev.Conn, nil)
		}
		if m.pick != nil {
			m.pick(ev, i)
		}
	}
}

func (m *mess) calm(d time.Duration) {
	end := m.now.Add(d)
	m.run(d, func() bool { return m.now >= end })
}

// oneSession checks that each node has one session, open and shared with the other, and nothing else is remembered of
// any set-up.
func (r *rig) oneSession() {
	r.t.Helper()
	a, b := r.n[0].e.SessionList(), r.n[1].e.SessionList()
	if len(a) != 1 || len(b) != 1 || !a[0].Open || !b[0].Open || a[0].Local != b[0].Remote ||
		a[0].Remote != b[0].Local || a[0].Handshake || b[0].Handshake {
		r.t.Errorf("the sessions are %+v and %+v, want one at each end, the same", a, b)
	}
	for i, n := range r.n {
		if z := n.e.TableSizes(); z.Sessions != 1 || z.Numbers != 1 || z.Dials != 0 {
			r.t.Errorf("node %d: %+v", i, z)
		}
	}
}

// setup reports whether a frame belongs to the set-up of sessions.
func setup(b []byte) bool {
	k := typeOf(b)
	return k == wire.TypeInit || k == wire.TypeInitAck || k == wire.TypeRetry || k == wire.TypeCrypto
}
