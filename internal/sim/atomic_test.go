package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Atomics of several nodes that contend for two words of one are linearizable (Herlihy and Wing 1990), whatever is
// lost, duplicated, overtaken, held back or cut off: there is an order of all of them, the same for all, that explains
// what each found, and in which none comes before one that had ended when it began.
func TestAtomicsLinearizable(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 100
	}
	lost, duplicated := uint64(0), uint64(0)
	for seed := range seeds {
		c, err := contend(seed)
		if err == nil {
			err = c.linearizable()
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		lost, duplicated = lost+c.w.Tally.Lost, duplicated+c.w.Tally.Duplicated
	}
	if lost < 100*seeds/10 || duplicated < 100*seeds/10 {
		t.Errorf("%d frames were lost and %d duplicated in %d worlds", lost, duplicated, seeds)
	}
}

// contest is the history of one world.
type contest struct {
	w       *World
	rng     *rand.Rand
	clients []*contender
	mem     []byte
	adds    []event
	swaps   []event
	left    int // operations that were not completed
}

// event is one atomic: when it began and ended, and what it found. One that swapped left the number next, which no
// other has.
type event struct {
	began, ended   mono.Time
	found          uint64
	expected, next uint64 // of a compare-and-swap
}

func (e *event) swapped() bool { return e.found == e.expected }

type contender struct {
	node      *Node
	conn      engine.ConnID
	key       regmem.Key
	remaining int
	seen      uint64 // what the latest compare-and-swap found, or left
	flight    map[uint64]*event
	adding    map[uint64]bool
	token     uint64
	id        uint64
}

// contend runs a world in which three nodes perform atomics on memory of a fourth.
func contend(seed uint64) (*contest, error) {
	c := &contest{rng: rand.New(rand.NewPCG(seed, 19)), mem: make([]byte, 16)}
	f := Faults{Loss: 0.1 * c.rng.Float64(), Dup: 0.1 * c.rng.Float64(), Hold: 0.05 * c.rng.Float64(),
		HoldFor: 20 * time.Millisecond, Delay: 5 * time.Microsecond, Jitter: time.Duration(c.rng.IntN(40_000))}
	c.w = New(Options{Seed: seed, Nodes: 4, Links: 1 + c.rng.IntN(3), Secure: seed%3 == 0, Faults: f})
	defer c.w.Stop()
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(c.mem)}
	for i := 1; i < 4; i++ {
		ca, cb, err := c.w.Connect(c.w.Nodes[i], c.w.Nodes[0], engine.DialOptions{Ordered: c.rng.IntN(4) == 0})
		if err != nil {
			return nil, err
		}
		key, err := c.w.Nodes[0].Grants.Grant(region, uint64(cb), regmem.RemoteAtomic, 0, 16)
		if err != nil {
			return nil, err
		}
		n := &contender{node: c.w.Nodes[i], conn: ca, key: key, remaining: 60, flight: map[uint64]*event{},
			adding: map[uint64]bool{}, id: uint64(i)}
		c.left += n.remaining
		c.clients = append(c.clients, n)
		n.node.Handle = func(ev *engine.Event) {
			if ev.Kind == engine.EvComplete {
				c.ended(n, ev)
			}
		}
	}
	c.cuts()
	for _, n := range c.clients {
		for range 1 + c.rng.IntN(6) {
			c.post(n)
		}
	}
	err := c.w.Run(time.Minute, func() bool { return c.left == 0 })
	if err != nil {
		err = fmt.Errorf("%w: %d atomics did not end", err, c.left)
	}
	return c, err
}

// cuts has segments cut, and whole again later.
func (c *contest) cuts() {
	for range c.rng.IntN(4) {
		faults := c.w.Net[c.rng.IntN(len(c.w.Net))]
		at := time.Duration(c.rng.IntN(3_000_000))
		for i := range faults {
			c.w.After(at, func() { faults[i].Cut = true })
			c.w.After(at+time.Duration(c.rng.IntN(400_000_000)), func() { faults[i].Cut = false })
		}
	}
}

func (c *contest) post(n *contender) {
	if n.remaining == 0 {
		return
	}
	n.remaining--
	n.token++
	e := &event{began: c.w.Now}
	op := engine.Op{Key: n.key, Token: n.token}
	if n.adding[n.token] = c.rng.IntN(2) == 0; n.adding[n.token] {
		op.SetAtomic(engine.Atomic{Func: wire.AtomicAdd, Size: 8, Operand: 1})
	} else {
		e.expected, e.next = n.seen, n.id<<32|n.token
		op.SetAtomic(engine.Atomic{Func: wire.AtomicCAS, Size: 8, Operand: e.next, Compare: e.expected})
		op.Off = 8
	}
	op.Flags = engine.OpFlags(c.rng.IntN(4))
	n.flight[n.token] = e
	if !n.node.E.Submit(c.w.Now, n.conn, &op) {
		c.w.fault("an atomic was not taken")
	}
}

func (c *contest) ended(n *contender, ev *engine.Event) {
	e := n.flight[ev.Token]
	if e == nil || ev.Status != engine.OK {
		c.w.fault("atomic %d of node %d ended with %v, or twice", ev.Token, n.id, ev.Status)
		return
	}
	delete(n.flight, ev.Token)
	e.ended, e.found = c.w.Now, ev.Value
	if n.adding[ev.Token] {
		c.adds = append(c.adds, *e)
	} else {
		c.swaps = append(c.swaps, *e)
		if n.seen = e.found; e.swapped() {
			n.seen = e.next
		}
	}
	c.left--
	c.post(n)
}

// linearizable checks both words. What they found orders the events.
func (c *contest) linearizable() error {
	slices.SortFunc(c.adds, func(a, b event) int { return int(a.found) - int(b.found) })
	for i := range c.adds {
		if c.adds[i].found != uint64(i) {
			return fmt.Errorf("addition %d found %d: one was lost, or performed twice", i, c.adds[i].found)
		}
	}
	if got := binary.NativeEndian.Uint64(c.mem); got != uint64(len(c.adds)) {
		return fmt.Errorf("the counter is %d after %d additions", got, len(c.adds))
	}
	if err := inTime(c.adds); err != nil {
		return fmt.Errorf("counter: %w", err)
	}
	after := map[uint64]*event{} // by what it replaced
	failed := map[uint64][]event{}
	for i := range c.swaps {
		if e := &c.swaps[i]; !e.swapped() {
			failed[e.found] = append(failed[e.found], *e)
		} else if after[e.expected] != nil {
			return fmt.Errorf("%#x was replaced twice", e.expected)
		} else {
			after[e.expected] = e
		}
	}
	var order []event
	value := uint64(0)
	for n := 0; n <= len(c.swaps); n++ {
		same := failed[value] // in any order between the swaps: here that of their begin
		slices.SortFunc(same, func(a, b event) int { return int(a.began - b.began) })
		order = append(order, same...)
		e := after[value]
		if e == nil {
			break
		}
		order = append(order, *e)
		value = e.next
	}
	if len(order) != len(c.swaps) || binary.NativeEndian.Uint64(c.mem[8:]) != value {
		return fmt.Errorf("the word is %#x; %d of %d compare-and-swaps form a chain that ends with %#x",
			binary.NativeEndian.Uint64(c.mem[8:]), len(order), len(c.swaps), value)
	}
	if err := inTime(order); err != nil {
		return fmt.Errorf("swapped word: %w", err)
	}
	return nil
}

// inTime reports an event that stands behind one that began after it had ended.
func inTime(order []event) error {
	began := mono.Time(0) // the latest begin so far
	for i, e := range order {
		if began = max(began, e.began); e.ended < began {
			return fmt.Errorf("event %d of %d ended at %d, before one that takes effect before it began, at %d", i,
				len(order), e.ended, began)
		}
	}
	return nil
}
