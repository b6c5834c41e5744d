package fabric

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// small is 8 hosts under 2 leaves with 2 spines.
func small(model bool) Options {
	return Options{Hosts: 8, PerLeaf: 4, Spines: 2, Rate: 10e9, HostDelay: 2 * time.Microsecond,
		SwitchDelay: 500 * time.Nanosecond, MTU: 1500, Buffer: 200 << 10, Mark: 30 << 10, Seed: 1, Model: model,
		Lanes: 1, Verify: !model}
}

func open(t *testing.T, o Options) *Net {
	t.Helper()
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	if err := n.Open(func(float64) {}); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *Net) pause(t *testing.T, d time.Duration) {
	t.Helper()
	if _, err := n.Run(n.Now.Add(d), func() bool { return false }); err != nil {
		t.Fatal(err)
	}
}

// allDone runs until every flow has arrived, and nothing is on its way any more.
func (n *Net) allDone(t *testing.T, limit time.Duration) {
	t.Helper()
	left := func(f *Flow) bool { return f.End == 0 }
	ok, err := n.Run(n.Now.Add(limit), func() bool { return !slices.ContainsFunc(n.Flows, left) })
	if err != nil || !ok {
		t.Fatalf("not all flows arrived within %v: %v", limit, err)
	}
}

// conserved is the oracle of packets: each that a host sent was received, dropped, cut, or is on its way.
func (n *Net) conserved(t *testing.T) {
	t.Helper()
	k := n.Tally()
	if flying := n.Flying(); k.Sent != k.Received+k.Dropped+k.Cut+flying {
		t.Errorf("%d packets sent; %d received, %d dropped, %d cut, %d on their way", k.Sent, k.Received, k.Dropped,
			k.Cut, flying)
	}
}

func both(t *testing.T, f func(t *testing.T, model bool)) {
	for _, model := range []bool{false, true} {
		t.Run(map[bool]string{false: "engine", true: "dctcp"}[model], func(t *testing.T) { f(t, model) })
	}
}

// Every byte arrives, through drops and links that fail, and no packet appears or vanishes.
func TestEveryByteArrives(t *testing.T) {
	both(t, func(t *testing.T, model bool) {
		for _, shared := range []bool{false, true} {
			o := small(model)
			o.Buffer, o.Mark, o.Shared = 20<<10, 0, shared
			o.Fails = []Outage{{0, 1, 100 * time.Microsecond, 900 * time.Microsecond}}
			if !model {
				o.Lanes = 2
			}
			total := 0
			for i := 1; i < o.Hosts; i++ { // all to host 0, of both leaves, and a ring
				o.Channels = append(o.Channels, Channel{i, 0}, Channel{i, 1 + i%(o.Hosts-1)})
			}
			n := open(t, o)
			was := n.Tally()
			for i := range o.Channels {
				for _, size := range []int{1, 1000 * i, 300_000} {
					n.Start(i, size+1)
					total += size + 1
				}
			}
			for k := range 10 {
				n.pause(t, 100*time.Microsecond)
				n.conserved(t)
				if k == 0 && n.Flying() == 0 {
					t.Error("nothing is on its way")
				}
			}
			n.allDone(t, 5*time.Second)
			n.conserved(t)
			now := n.Tally()
			if now = now.Since(&was); now.Dropped == 0 || now.Cut == 0 || now.Again == 0 ||
				now.Payload != uint64(total) {
				t.Errorf("shared buffers %v: %+v, of %d bytes", shared, now, total)
			}
			for i := range n.switches {
				if b := &n.switches[i]; b.watermark > b.size*8 || b.held != 0 && n.Flying() == 0 {
					t.Errorf("switch %d: %+v", i, b)
				}
			}
		}
	})
}

// A lone flow takes as long as its packets take of each link: first by the formula for those that the host really sent,
// then, where the transport cuts a flow up as TCP does, by Options.Ideal.
func TestLoneFlow(t *testing.T) {
	both(t, func(t *testing.T, model bool) {
		for _, to := range []int{1, 5} { // of the same leaf, and of another
			for _, size := range []int{1, 1000, 1460, 9 * 1460, 9*1460 + 500} {
				o := small(model)
				o.Channels = []Channel{{0, to}}
				n := open(t, o)
				n.pause(t, 137*time.Microsecond) // what the engines had to say of the paths has left
				var sizes []int
				n.watch = func(at int32, p *packet) {
					if at == 0 && n.Flows[0].End == 0 {
						sizes = append(sizes, p.size)
					}
				}
				f := n.Start(0, size)
				n.allDone(t, time.Second)
				slow, fast := n.ports[0], n.ports[n.uplink(0, 0)]
				want := 2*o.HostDelay + slow.serial(sizes[0])
				if to == 5 {
					want += 2 * (o.SwitchDelay + fast.serial(sizes[0]))
				}
				for _, s := range sizes {
					want += slow.serial(s)
				}
				if f.Took() != want {
					t.Errorf("%d bytes to host %d, in packets of %v: %v, want %v", size, to, sizes, f.Took(), want)
				}
				if ideal := o.Ideal(o.Channels[0], size, TCPPackets(o.MTU)); model && f.Took() != ideal ||
					f.Took() < ideal || f.Took() > ideal*3/2 {
					t.Errorf("%d bytes to host %d: %v, ideal %v", size, to, f.Took(), ideal)
				}
			}
		}
	})
}

// What a seed gives is the same in every run, whatever the sealed bytes are.
func TestSeeds(t *testing.T) {
	both(t, func(t *testing.T, model bool) {
		run := func(seed uint64) string {
			o := small(model)
			o.Seed, o.Verify, o.Buffer = seed, false, 60<<10
			if !model {
				o.Lanes = 3
			}
			for i := range 7 {
				o.Channels = append(o.Channels, Channel{i + 1, 0}, Channel{0, i + 1})
			}
			n := open(t, o)
			for i := range o.Channels {
				n.Start(i, 100_000)
			}
			n.allDone(t, time.Second)
			return fmt.Sprint(n.Now, n.Tally(), n.Flows[3].End, n.Flows[8].End)
		}
		if a, b := run(1), run(1); a != b {
			t.Errorf("one seed: %s\nand %s", a, b)
		}
		if run(1) == run(2) {
			t.Error("two seeds give the same")
		}
	})
}

// A queue that is full drops, one that is long marks; where ports share memory one of them takes half of it at most.
func TestBuffers(t *testing.T) {
	for _, c := range []struct {
		shared bool
		most   int
	}{{false, 40}, {true, 123}} { // of 40 KiB; of 6 ports as many, the last when less than half is left
		o := small(true)
		o.Buffer, o.Shared, o.Mark = 40<<10, c.shared, 15000
		o.Channels = []Channel{{0, 1}}
		n, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		down := int32(o.Hosts + 1)
		taken, marked, size := 0, 0, 1000
		n.watch = func(_ int32, p *packet) {
			taken++
			if p.marked {
				marked++
			}
		}
		for range 300 {
			n.put(down, &packet{size: size, capable: true})
		}
		if taken != c.most || marked != taken-o.Mark/size || n.tally.Dropped != uint64(300-taken) ||
			n.tally.Marked != uint64(marked) {
			t.Errorf("%+v: %d taken, %d marked: %+v", c, taken, marked, n.tally)
		}
	}
}

// A flow keeps its path, and many flows take all of them equally.
func TestEqualCostPaths(t *testing.T) {
	o := small(true)
	o.PerLeaf, o.Hosts, o.Spines = 4, 8, 4
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	const flows = 4000
	count := make([]int, o.Spines)
	for i := range uint64(flows) {
		h := n.flowHash(0, 7, i, 0)
		if h != n.flowHash(0, 7, i, 0) {
			t.Fatal("a flow has two paths")
		}
		count[h%uint64(o.Spines)]++
	}
	for s, c := range count {
		if c < flows/o.Spines*8/10 || c > flows/o.Spines*12/10 {
			t.Errorf("spine %d has %d of %d flows", s, c, flows)
		}
	}
}

// The agenda gives events in order of time, and of one time in the order in which they came; none later than asked for.
func TestAgenda(t *testing.T) {
	var a agenda
	x, now, left := uint64(1), mono.Time(0), 0
	waits := map[mono.Time][]int32{}
	take := func(until mono.Time) bool {
		e, ok := a.take(until)
		if !ok {
			for at := range waits {
				if at <= until {
					t.Fatalf("nothing until %v, although there is something at %v", until, at)
				}
			}
			return false
		}
		for at := range waits {
			if at < e.at {
				t.Fatalf("an event at %v before that at %v", e.at, at)
			}
		}
		if w := waits[e.at]; e.at < now || e.at > until || len(w) == 0 || w[0] != e.what {
			t.Fatalf("%+v at %v, until %v; then come %v", e, now, until, w)
		}
		if waits[e.at] = waits[e.at][1:]; len(waits[e.at]) == 0 {
			delete(waits, e.at)
		}
		now = e.at
		left--
		return true
	}
	for i := range int32(4000) {
		x = scatter(x)
		at := now + mono.Time(x%50)*mono.Time(1+x>>8%3*(x>>16%1000))
		a.add(at, calls, i)
		waits[at] = append(waits[at], i)
		left++
		for k := range x >> 32 % 3 {
			take(now + mono.Time(k*20))
		}
	}
	for take(never - 1) {
	}
	if left != 0 || len(waits) != 0 {
		t.Errorf("%d events are left", left)
	}
}

// All lanes of 128 hosts to one become paths with full frames, and carry, although its port has little room.
func TestLanesOfManyPeers(t *testing.T) {
	o := small(false)
	o.Hosts, o.PerLeaf, o.Lanes, o.Verify, o.Buffer = 132, 16, 4, false, 60<<10
	for i := range 128 {
		o.Channels = append(o.Channels, Channel{i + 1, 0})
	}
	n := open(t, o)
	used := map[uint16]bool{}
	n.watch = func(_ int32, p *packet) {
		if p.to == 0 && p.size > o.MTU {
			used[p.fromPort] = true
		}
	}
	for i := range o.Channels {
		n.Start(i, 10_000)
	}
	n.allDone(t, time.Second)
	if len(used) < o.Lanes {
		t.Errorf("frames left from %d ports, want one at least of each of %d lanes", len(used), o.Lanes)
	}
}
