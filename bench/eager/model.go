package eager

import (
	"bytes"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/engine"
	"multiedge/internal/sim"
)

// Model is the same turn in the simulator, whose hosts take no time, over links of a rate: what of a message's way
// eager transfer can hide. The paper's times are likewise those of a simulator, of hosts and no network.
type Model struct {
	MTU     int     `json:"mtu"`
	Rate    string  `json:"rate"`
	Bytes   int     `json:"bytes"`
	Compose int     `json:"compose_ns_per_kib"`
	Eager   float64 `json:"eager_ns"`
	Posted  float64 `json:"posted_ns"` // by one send, gathered or not
}

// Gain is by how many percent eager is faster.
func (m *Model) Gain() float64 { return 100 * (1 - m.Eager/m.Posted) }

// wireDelay is how long a frame takes besides its serialisation.
const wireDelay = time.Microsecond

// Simulate sends one message of each size over links of each rate, for each time of composing.
func Simulate(mtus []int, rates []string, s Spec) ([]Model, error) {
	return kit.Outcome(func() (rows []Model) {
		for _, mtu := range mtus {
			for _, rate := range rates {
				w := sim.New(sim.Options{Seed: 1, Nodes: 2, Links: 1, MTU: mtu, Secure: true, Slots: 1024,
					Faults: sim.Faults{Delay: wireDelay, Rate: kit.Get(report.ParseRate(rate)) / 8}})
				err := kit.Try(func() { rows = append(rows, simulate(w, mtu, rate, s)...) })
				w.Stop()
				kit.Checkf(err, "MTU %d, %s", mtu, rate)
			}
		}
		return rows
	})
}

func simulate(w *sim.World, mtu int, rate string, s Spec) (rows []Model) {
	ca, cb := kit.Get2(w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{}))
	kit.Check(w.Rest(time.Second)) // paths find their frame size
	for _, compose := range s.Compose {
		for _, size := range s.Sizes {
			rows = append(rows, Model{MTU: mtu, Rate: rate, Bytes: size, Compose: compose,
				Posted: oneTurn(w, ca, cb, size, compose, 0), Eager: oneTurn(w, ca, cb, size, compose, s.Marks)})
		}
	}
	return rows
}

// oneTurn returns how long a message takes, in ns: composed with so many marks, or, with none, posted when it is whole.
func oneTurn(w *sim.World, ca, cb engine.ConnID, size, compose, marks int) float64 {
	a, b := w.Nodes[0], w.Nodes[1]
	got, buf, mem := false, make([]byte, size), make([]byte, size)
	b.Handle = func(ev *engine.Event) { got = got || ev.Kind == engine.EvReceived && ev.Status == engine.OK }
	a.Handle = func(*engine.Event) {}
	if !b.E.PostReceive(w.Now, cb, &engine.Receive{Local: buf}) {
		kit.Fail("no buffer is taken")
	}
	kit.Check(w.Rest(10 * time.Millisecond)) // the credit is there
	op, start := engine.Op{Kind: engine.OpSend, Local: mem}, w.Now
	if marks > 0 && a.E.Compose(ca, &op, 1) != engine.OK {
		kit.Fail("nothing can be composed")
	}
	step := size
	if marks > 0 {
		step = markStep(size, marks)
	}
	for at := 0; at < size; at += step {
		at, end := at, min(at+step, size)
		w.After(time.Duration(compose*end/1024), func() {
			copy(mem[at:end], bytes.Repeat([]byte{byte(at/step) + 1}, end-at))
			switch {
			case marks > 0 && end < size:
				a.E.Wrote(ca, 1, uint64(at), uint64(end-at))
			case marks > 0:
				a.E.Commit(w.Now, ca, 1, 0, 0, uint64(size))
			default:
				a.E.Submit(w.Now, ca, &op)
			}
		})
	}
	kit.Check(w.Run(time.Second, func() bool { return got }))
	took := w.Now.Sub(start)
	if !bytes.Equal(buf, mem) {
		kit.Fail("a message of %d bytes arrived wrong", size)
	}
	kit.Check(w.Rest(10 * time.Millisecond))
	return float64(took)
}
