package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
	"multiedge/remap"
)

// scatterCase is what a world of TestScatterAgainstOracle is made of.
type scatterCase struct {
	links, mtu, conns  int
	loss, twice, later float64
	exchange, shuffle  bool
}

// Many writes and reads at once, over several connections and links, received in place, while the network loses,
// repeats and reorders: every byte ends where it belongs and nothing beside it changes. Without payload checksums, so
// that none hides a mistake.
func TestScatterAgainstOracle(t *testing.T) {
	t.Parallel()
	for _, c := range []scatterCase{
		{1, 1500, 1, 0, 0, 0, false, false},
		{1, 9000, 2, 0, 0, 0, false, false},
		{2, 1500, 1, 0, 0, 0, false, false},
		{1, 1500, 3, 0.02, 0, 0, false, false},
		{1, 1500, 2, 0, 0.05, 0.1, false, false},
		{2, 1500, 3, 0.02, 0.02, 0.1, false, false},
		{2, 9000, 3, 0.05, 0.05, 0.2, false, false},
		{3, 1500, 4, 0.1, 0.1, 0.3, false, false},
		{1, 9000, 1, 0, 0, 0, true, false},
		{1, 9000, 3, 0.02, 0.02, 0.1, true, false},
		{2, 9000, 2, 0.05, 0.05, 0.2, true, false},
		{1, 9000, 1, 0, 0, 0, true, true},
		{1, 4000, 1, 0, 0, 0, false, true},
		{1, 9000, 1, 0, 0, 0, false, true},
		{1, 9000, 3, 0.02, 0.02, 0.1, true, true},
		{2, 9000, 2, 0.05, 0.05, 0.2, true, true},
		{2, 9000, 2, 0.05, 0.05, 0.2, false, true},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d links of %d, %d conns, loss %v, twice %v, later %v, exchange %v, shuffle %v, seed %d",
				c.links, c.mtu, c.conns, c.loss, c.twice, c.later, c.exchange, c.shuffle, seed),
				func(t *testing.T) { scatterWorld(t, c, seed) })
		}
	}
}

// scatterWorld runs one world to its end and compares what it left.
func scatterWorld(t *testing.T, c scatterCase, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	o := rigOptions{links: c.links, mtu: c.mtu, checksum: engine.ChecksumHeader}
	if c.exchange {
		o.exchangers = [2]*remap.Exchanger{{}, {}}
	}
	if c.shuffle {
		o.shuffle = 78
	}
	r := newRig(t, o)
	x := newOracle(t, r, rng, c.conns, o.exchangers)
	r.settle()
	rx := [2]*scatterer{newScatterer(r, 0), newScatterer(r, 1)}
	rx[0].pages, rx[1].pages = c.shuffle, c.shuffle
	c.run(t, r, x, rng, rx)
	x.verify()
	c.judge(t, r, rx)
}

// run lets frames go to and fro, some of them lost, twice or late, until the oracle is done.
func (c *scatterCase) run(t *testing.T, r *rig, x *oracle, rng *rand.Rand, rx [2]*scatterer) {
	var late [2][]flight
	limit := r.now.Add(60 * time.Second)
	for x.step(); !x.done(); x.step() {
		if r.now > limit {
			t.Fatalf("not within a minute of virtual time\n%+v\n%+v", r.n[0].e.Snapshot(r.now),
				r.n[1].e.Snapshot(r.now))
		}
		moved := false
		var sent [2][]flight
		for i := range r.n {
			sent[i], late[i] = late[i], nil
			for _, f := range r.take(i) {
				moved = true
				if rng.Float64() < c.loss {
					continue
				}
				if rng.Float64() < c.twice {
					late[i] = append(late[i], flight{link: f.link, b: bytes.Clone(f.b)})
				}
				if rng.Float64() < c.later {
					late[i] = append(late[i], f)
					continue
				}
				sent[i] = append(sent[i], f)
			}
			moved = moved || len(sent[i]) > 0
		}
		if !moved {
			r.now = max(r.now+1, min(r.n[0].e.NextTimeout(), r.n[1].e.NextTimeout()))
			continue
		}
		r.now = r.now.Add(r.hop)
		for i := range sent {
			for l := range c.links {
				rx[1-i].give(r, l, bytesOf(sent[i], l), 1+rng.IntN(32))
				r.poll(1 - i)
			}
		}
	}
}

// judge compares what was counted with what the case makes happen.
func (c *scatterCase) judge(t *testing.T, r *rig, rx [2]*scatterer) {
	clean := c.loss+c.twice+c.later == 0
	in := r.n[0].e.Count.Placing.FramesInPlace + r.n[1].e.Count.Placing.FramesInPlace
	forecasts := !c.shuffle || c.exchange
	if clean && forecasts && (in == 0 && !c.exchange || rx[0].placed+rx[1].placed == 0) {
		t.Errorf("%d payloads in place, %d+%d frames placed", in, rx[0].placed, rx[1].placed)
	}
	if ex := r.n[0].e.Count.Placing.Exchanges + r.n[1].e.Count.Placing.Exchanges; ex > 0 && !c.exchange || ex == 0 &&
		c.exchange && clean {
		t.Errorf("%d runs of pages were exchanged", ex)
	}
	if n := r.n[0].e.Count.Placing.FramesShuffled + r.n[1].e.Count.Placing.FramesShuffled; n > 0 != c.shuffle {
		t.Errorf("%d frames were shuffled", n)
	}
	if n := rx[0].placed + rx[1].placed; n > 0 && !forecasts {
		t.Errorf("%d frames were received into a region, headers included", n)
	}
	if r.n[0].e.Count.Reject.RejectedMalformed+r.n[1].e.Count.Reject.RejectedMalformed > 0 {
		t.Error("malformed frames")
	}
}

// oracle posts random operations with disjoint destinations and knows what memory must hold at the end.
type oracle struct {
	t   *testing.T
	r   *rig
	rng *rand.Rand
	c   [][2]engine.ConnID
	// remote memory of each node: source of reads in its lower half, of writes the destination in its upper
	mem  [2][]byte
	want [2][]byte
	key  [2][]regmem.Key // per connection
	free [2]int          // of the upper half, next destination
	into [2][]byte       // destinations of reads
	inTo [2][]byte       // as they must be
	next [2]int
	left [2]int
	n    [2]int
	long bool // operations of several hundred KiB, too
}

const (
	oracleHalf = 4 << 20
	canary     = 0xc7
)

// newOracle makes memory whose pages are exchanged for each node that has an exchanger.
func newOracle(t *testing.T, r *rig, rng *rand.Rand, conns int, exchangers [2]*remap.Exchanger) *oracle {
	x := &oracle{t: t, r: r, rng: rng, left: [2]int{60, 60}, long: exchangers[0] != nil}
	memory := func(i int, content []byte) []byte {
		if exchangers[i] == nil {
			return content
		}
		s, err := remap.NewShared(len(content), remap.Options{Extent: 2 * remap.Grain, Extents: 3, Least: remap.Grain})
		if err != nil {
			t.Fatal(err)
		}
		exchangers[i].Add(s.Space)
		t.Cleanup(func() { exchangers[i].Remove(s.Space); s.Close() })
		copy(s.Bytes(), content)
		return s.Bytes()
	}
	for range conns {
		x.c = append(x.c, r.connectTo(fmt.Sprint("s", len(x.c)), engine.DialOptions{}))
	}
	for i := range r.n {
		x.mem[i] = memory(i, bytes.Repeat([]byte{canary}, 2*oracleHalf))
		copy(x.mem[i], pattern(50+i, oracleHalf))
		x.want[i] = bytes.Clone(x.mem[i])
		x.into[i] = memory(i, bytes.Repeat([]byte{canary}, oracleHalf))
		x.inTo[i] = bytes.Clone(x.into[i])
		region := &regmem.Region{ID: 1, Mem: regmem.Wrap(x.mem[i])}
		for _, c := range x.c {
			key, err := r.n[i].grants.Grant(region, uint64(c[i]), both, 0, 2*oracleHalf)
			if err != nil {
				t.Fatal(err)
			}
			x.key[i] = append(x.key[i], key)
		}
	}
	return x
}

// step submits while something is left to submit and few are outstanding.
func (x *oracle) step() {
	sizes := []int{8, 600, 1400, 1436, 2500, 4096, 5000, 20_000, 64 << 10}
	if x.long {
		sizes = append(sizes, 150_000, 150_000, 300_000)
	}
	for i := range x.r.n {
		for x.left[i] > 0 && x.n[i]-len(x.r.n[i].done) < 6 {
			k := x.rng.IntN(len(x.c))
			n := sizes[x.rng.IntN(len(sizes))] + x.rng.IntN(9)
			op := engine.Op{Kind: engine.OpWrite, Token: uint64(x.n[i]), Key: x.key[1-i][k]}
			if x.rng.IntN(5) == 0 {
				op.Flags |= engine.BackwardFence
			}
			if x.rng.IntN(5) == 0 {
				op.Flags |= engine.ForwardFence
			}
			if x.rng.IntN(2) == 0 && x.free[1-i]+n+16 < oracleHalf {
				op.Off, op.Local = uint64(oracleHalf+x.free[1-i]), pattern(x.rng.IntN(1<<20), n)
				copy(x.want[1-i][op.Off:], op.Local)
				x.free[1-i] += n + x.rng.IntN(9) // sometimes a canary between, sometimes none
			} else if x.next[i]+n+16 < oracleHalf {
				op.Kind, op.Off, op.Local = engine.OpRead, uint64(x.rng.IntN(oracleHalf-n)), x.into[i][x.next[i]:][:n:n]
				copy(x.inTo[i][x.next[i]:], x.want[1-i][op.Off:][:n])
				x.next[i] += n + x.rng.IntN(9)
			} else {
				x.left[i] = 0
				break
			}
			x.r.submit(i, x.c[k][i], op)
			x.n[i]++
			x.left[i]--
		}
	}
}

func (x *oracle) done() bool {
	for i := range x.r.n {
		if x.left[i] > 0 || len(x.r.n[i].done) < x.n[i] {
			return false
		}
	}
	return true
}

func (x *oracle) verify() {
	for i, n := range x.r.n {
		for tok, st := range n.done {
			if st != engine.OK {
				x.t.Errorf("node %d: operation %d ended with %v", i, tok, st)
			}
		}
		for what, m := range map[string][2][]byte{"remote": {x.mem[i], x.want[i]}, "read": {x.into[i], x.inTo[i]}} {
			if !bytes.Equal(m[0], m[1]) {
				at := 0
				for m[0][at] == m[1][at] {
					at++
				}
				x.t.Errorf("node %d: %s memory differs from byte %d on: %#x, want %#x", i, what, at, m[0][at], m[1][at])
			}
		}
	}
}
