package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// twins are two worlds in which the same happens. In one, each frame is handled in a call of its own, and the use of
// memory is observed, so that no train is made or received; in the other frames are handled together. Whatever is lost,
// damaged, repeated or overtaken on the way, both must be alike: in every byte of every frame that leaves, in memory,
// and in their state.
type twins struct {
	t      *testing.T
	dice   *dice
	sealed bool
	r      [2]*rig // alone, together
	conns  [][2]engine.ConnID
	keys   [][2]regmem.Key // of each end's memory
	mem    [2][][2][]byte  // by world, connection and end
	more   [2][][]byte     // by world: buffers of receives and redirections
	fly    [2][]arriving   // by world: the frames of a round
	late   [2][]arriving   // those that take longer
	token  uint64
}

type arriving struct {
	to   int
	link int
	b    []byte
}

// dice decides by the bytes of a fuzzer, and by zeros once they are used up.
type dice struct{ left []byte }

func (d *dice) roll(n int) int {
	if len(d.left) == 0 {
		return 0
	}
	v := int(d.left[0])
	d.left = d.left[1:]
	return v % n
}

const twinMemory = 96 << 10

func newTwins(t *testing.T, data []byte) *twins {
	w := &twins{t: t, dice: &dice{data}}
	d := w.dice
	o := rigOptions{links: 1 + d.roll(2), mtu: []int{1500, 9000, 4000}[d.roll(3)],
		super:    []int{superBytes, 0}[d.roll(2)],
		checksum: []engine.Checksum{engine.ChecksumFull, engine.ChecksumHeader}[d.roll(2)], sealed: d.roll(3) == 2,
		held: []int{0, 40_000}[d.roll(2)]}
	w.sealed = o.sealed
	for i := range w.r {
		w.r[i] = newRig(t, o)
	}
	for k := range 1 + d.roll(3) {
		var keys [2]regmem.Key
		for i, r := range w.r {
			c := r.connectTo(fmt.Sprint("s", k), engine.DialOptions{Ordered: d.peek()})
			var mem [2][]byte
			for end := range c {
				mem[end], keys[end] = r.export(end, c[end], twinMemory, both)
			}
			if w.mem[i] = append(w.mem[i], mem); i == 0 {
				w.conns = append(w.conns, c)
			} else if c != w.conns[k] {
				t.Fatal("the worlds have other connections")
			}
		}
		w.keys = append(w.keys, keys)
	}
	for _, r := range w.r {
		r.settle()
	}
	w.r[0].now = max(w.r[0].now, w.r[1].now)
	w.r[1].now = w.r[0].now
	for _, n := range w.r[0].n { // what is observed is told of each part
		n.e.Observe(func(*regmem.Region, uint64, uint64, regmem.Site) {})
	}
	return w
}

// peek is a decision that both worlds share although each asks.
func (d *dice) peek() bool { return len(d.left) > 0 && d.left[0]&8 != 0 }

// submit has both worlds begin an operation.
func (w *twins) submit() {
	d := w.dice
	k, end := d.roll(len(w.conns)), d.roll(2)
	size := []int{60_000, 20_000, 3_000, 200, 1, 0, 33_333, 64_000}[d.roll(8)]
	op := engine.Op{Kind: []engine.OpKind{engine.OpWrite, engine.OpWrite, engine.OpRead, engine.OpSend}[d.roll(4)],
		Key: w.keys[k][1-end], Off: uint64(d.roll(256) * (twinMemory - 64_000) / 256), Imm: uint32(w.token)}
	switch d.roll(8) {
	case 1:
		op.Flags = engine.Notify
	case 2:
		op.Flags = engine.BackwardFence
	case 3:
		op.Flags = engine.ForwardFence | engine.Notify
	case 4:
		op.Flags = engine.LocalDone
	case 5:
		op.Off += 40_000 // beyond the end, if it is long
	}
	w.token++
	op.Token = w.token
	data := pattern(int(w.token), size)
	taken := [2]bool{}
	for i, r := range w.r {
		one := op
		one.Local = bytes.Clone(data)
		taken[i] = r.n[end].e.Submit(r.now, w.conns[k][end], &one)
	}
	if taken[0] != taken[1] {
		w.t.Fatalf("operation %d is taken: %v", w.token, taken)
	}
}

// receiver has both worlds post a buffer, send what arrives elsewhere, or revoke a key.
func (w *twins) receiver() {
	d := w.dice
	what, k, end, off, n := d.roll(8), d.roll(len(w.conns)), d.roll(2), d.roll(256)*300, 1+d.roll(256)*200
	w.token++
	for i, r := range w.r {
		e, c, local := r.n[end].e, w.conns[k][end], make([]byte, n)
		switch {
		case what < 4:
			e.PostReceive(r.now, c, &engine.Receive{Token: w.token, Local: local})
		case what < 7:
			e.Redirect(c, &engine.Redirection{Token: w.token, Name: w.token, Key: w.keys[k][end],
				Off: uint64(min(off, twinMemory-n)), Dst: local, Region: &regmem.Region{ID: 2}})
		default:
			r.n[end].grants.Revoke(w.keys[k][end])
		}
		w.more[i] = append(w.more[i], local)
	}
}

// round has both worlds send, lets the network do its worst, and has both receive.
func (w *twins) round(calm bool) (moved bool) {
	for i, r := range w.r {
		w.fly[i] = w.fly[i][:0]
		for from := range r.n {
			for _, f := range r.take(from) {
				w.fly[i] = append(w.fly[i], arriving{1 - from, f.link, f.b})
			}
		}
	}
	a, b := w.fly[0], w.fly[1]
	if len(a) != len(b) {
		w.t.Fatalf("%d frames leave one by one, %d together", len(a), len(b))
	}
	for k := range a {
		same := bytes.Equal(a[k].b, b[k].b)
		if w.sealed && len(a[k].b) >= wire.EthLen+wire.ClearLen { // of the rest keys differ
			same = len(a[k].b) == len(b[k].b) && bytes.Equal(a[k].b[:wire.EthLen+wire.ClearLen],
				b[k].b[:wire.EthLen+wire.ClearLen])
		}
		if !same || a[k].to != b[k].to || a[k].link != b[k].link {
			w.t.Fatalf("frame %d to node %d differs:\n% x\n% x", k, a[k].to, head(a[k].b), head(b[k].b))
		}
	}
	if !calm {
		w.disturb()
	}
	for i, r := range w.r {
		r.now = r.now.Add(r.hop)
		w.receive(i)
	}
	w.compare()
	return len(a) > 0
}

func head(b []byte) []byte { return b[:min(len(b), 120)] }

// disturb loses, damages, repeats and moves frames, the same in both worlds.
func (w *twins) disturb() {
	d := w.dice
	if d.roll(6) == 1 {
		for i := range w.fly {
			w.fly[i], w.late[i] = append(w.fly[i], w.late[i]...), nil
		}
	}
	for k := 0; k < len(w.fly[0]); k++ {
		switch fate, at := d.roll(24), d.roll(256); fate {
		case 1: // lost
			for i := range w.fly {
				w.fly[i] = append(w.fly[i][:k], w.fly[i][k+1:]...)
			}
			k--
		case 2: // damaged, in its headers or in what follows
			for i := range w.fly {
				b := w.fly[i][k].b
				b[wire.EthLen+at%min(len(b)-wire.EthLen, 120)] ^= 1 << (at % 8)
			}
		case 3: // twice
			for i := range w.fly {
				again := w.fly[i][k]
				again.b = bytes.Clone(again.b)
				w.fly[i] = append(w.fly[i], again)
			}
		case 5: // late, perhaps after it was sent again
			for i := range w.fly {
				w.late[i] = append(w.late[i], w.fly[i][k])
				w.fly[i] = append(w.fly[i][:k], w.fly[i][k+1:]...)
			}
			k--
		case 4: // overtaken
			to := k + at%(len(w.fly[0])-k)
			for i := range w.fly {
				w.fly[i][k], w.fly[i][to] = w.fly[i][to], w.fly[i][k]
			}
		}
	}
}

// receive gives world i its frames: one by one, or those of a link that follow one another together, cut here and
// there.
func (w *twins) receive(i int) {
	r := w.r[i]
	for at := 0; at < len(w.fly[i]); {
		first := w.fly[i][at]
		n := 1
		for i == 1 && at+n < len(w.fly[i]) && n < 32 && w.fly[i][at+n].to == first.to &&
			w.fly[i][at+n].link == first.link {
			n++
		}
		var some []engine.Arrival
		for _, f := range w.fly[i][at : at+n] {
			some = append(some, engine.Whole(f.b))
		}
		r.n[first.to].e.Handle(r.now, first.link, some...)
		at += n
	}
	for k := range r.n {
		r.poll(k)
		for _, c := range w.conns {
			r.n[k].takeNotes(c[k])
		}
	}
}

// compare ends the test if the worlds differ.
func (w *twins) compare() {
	for k := range w.r[0].n {
		a, b := w.r[0].n[k], w.r[1].n[k]
		x, y := a.e.Snapshot(w.r[0].now), b.e.Snapshot(w.r[1].now)
		x.Counters.Placing.FramesInTrains, y.Counters.Placing.FramesInTrains = 0, 0
		if !reflect.DeepEqual(x, y) {
			w.t.Fatalf("node %d\none by one %+v\ntogether   %+v", k, x, y)
		}
		if !reflect.DeepEqual(a.done, b.done) || !reflect.DeepEqual(a.notes, b.notes) {
			w.t.Fatalf("node %d: operations %v and %v, notifications %v and %v", k, a.done, b.done, a.notes, b.notes)
		}
		if a.e.Forecasts() != b.e.Forecasts() {
			w.t.Fatalf("node %d expects %+v and %+v", k, a.e.Forecasts(), b.e.Forecasts())
		}
		if a.e.HeldMemory() != b.e.HeldMemory() || a.e.NextTimeout() != b.e.NextTimeout() {
			w.t.Fatalf("node %d: %d and %d bytes held, timers at %v and %v", k, a.e.HeldMemory(), b.e.HeldMemory(),
				a.e.NextTimeout(), b.e.NextTimeout())
		}
	}
	for k := range w.more[0] {
		if !bytes.Equal(w.more[0][k], w.more[1][k]) {
			w.t.Fatalf("buffer %d differs", k)
		}
	}
	for c := range w.conns {
		for end := range 2 {
			if !bytes.Equal(w.mem[0][c][end], w.mem[1][c][end]) {
				w.t.Fatalf("the memory of connection %d at node %d differs", c, end)
			}
		}
	}
}

// run plays what data says, and returns how many frames were received in trains.
func (w *twins) run() uint64 {
	for len(w.dice.left) > 0 {
		for range w.dice.roll(4) {
			if w.dice.roll(10) == 9 {
				w.receiver()
			} else {
				w.submit()
			}
		}
		for range 1 + w.dice.roll(4) {
			w.round(false)
		}
		if w.dice.roll(8) == 1 {
			for _, r := range w.r {
				r.now = r.now.Add(30 * time.Millisecond) // what was lost is missed
			}
		}
	}
	// What was lost comes again. Some operations never end, for want of a buffer or room.
	for rest, n := 0, 0; rest < 5 && n < 300; n++ {
		if rest++; w.round(true) {
			rest = 0
		}
		next := min(w.r[0].n[0].e.NextTimeout(), w.r[0].n[1].e.NextTimeout())
		for _, r := range w.r {
			r.now = max(r.now, min(next, r.now.Add(100*time.Millisecond)))
		}
	}
	return w.r[1].n[0].e.Count.Placing.FramesInTrains + w.r[1].n[1].e.Count.Placing.FramesInTrains
}

// Trains change nothing: what comes of frames together is what comes of them one by one (train.go, build.go).
func TestTrainsChangeNothing(t *testing.T) {
	t.Parallel()
	worlds := 60
	if testing.Short() {
		worlds = 10
	}
	trains := uint64(0)
	for seed := range uint64(worlds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 200+rng.IntN(1500))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { trains += newTwins(t, data).run() }) {
			break
		}
	}
	if trains < uint64(worlds)*20 {
		t.Errorf("%d frames in trains, in %d worlds", trains, worlds)
	}
}

// What was lost in the middle of an operation comes again as a train, which completes it.
func TestTrainFillsTheHole(t *testing.T) {
	inBothForms(t, func(t *testing.T, sealed bool) {
		for _, kind := range []engine.OpKind{engine.OpWrite, engine.OpRead} {
			r := newRig(t, rigOptions{mtu: 1500, super: superBytes, sealed: sealed})
			c := r.connect(engine.DialOptions{})
			far, key := r.export(1, c[1], 40_000, both)
			r.settle()
			src, local := pattern(1, len(far)), make([]byte, len(far))
			from, dst := 0, far
			if copy(local, src); kind == engine.OpRead {
				copy(far, src)
				clear(local)
				from, dst = 1, local
			}
			n := 0
			r.pass = func(node int, f *flight) bool {
				if node == from && len(f.b) > 1000 {
					n++
				}
				return node != from || len(f.b) <= 1000 || n <= 5 || n > 20
			}
			r.submit(0, c[0], engine.Op{Kind: kind, Flags: engine.Notify, Key: key, Local: local, Token: 1})
			to := r.n[1-from]
			if r.must("the end of the operation", time.Second, func() bool { return n >= 29 }); bytes.Equal(dst, src) {
				t.Fatal("nothing was lost")
			}
			r.pass = nil
			// with something behind it, or the last frame asks for an acknowledgement, and is in no train
			const more = 6
			for k := range uint64(more) {
				r.submit(0, c[0], engine.Op{Kind: kind, Key: key, Local: local, Token: 2 + k})
			}
			for deadline := r.now.Add(time.Second); len(r.n[0].done) <= more && r.now < deadline; r.now += 50_000 {
				var some []engine.Arrival
				var f, last wire.Frame
				for _, fl := range r.take(from) { // in plaintext those of one operation at a time
					if f.Decode(fl.b[wire.EthLen:]) == nil && f.Bulk.Op != last.Bulk.Op {
						to.e.Handle(r.now, 0, some...)
						some, last = some[:0], f
					}
					some = append(some, engine.Whole(fl.b))
				}
				to.e.Handle(r.now, 0, some...)
				for _, f := range r.take(1 - from) {
					r.give(from, f)
				}
				r.poll(0)
			}
			if r.wantStatus(0, 1, engine.OK); !bytes.Equal(dst, src) {
				t.Errorf("kind %d: the bytes differ", kind)
			}
			if trains := to.e.Count.Placing.FramesInTrains; trains < 10 {
				t.Errorf("kind %d: %d frames in trains", kind, trains)
			}
		}
	})
}

// FuzzTrains is TestTrainsChangeNothing with what a fuzzer thinks of.
func FuzzTrains(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{0, 1, 2, 0, 3, 0, 24, 0}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 2000 {
			newTwins(t, data).run()
		}
	})
}
