package remap

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func newShared(t testing.TB, size int, o Options) *Shared {
	t.Helper()
	s, err := NewShared(size, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// part is a piece of an operation on its way.
type part struct{ lo, hi int }

// cut divides [lo, hi) into parts of about n bytes, as frames carry them.
func cut(rng *rand.Rand, lo, hi, n int) (parts []part) {
	for lo < hi {
		k := min(hi-lo, n-rng.IntN(2)*rng.IntN(n))
		parts = append(parts, part{lo, lo + k})
		lo += k
	}
	return parts
}

// world is an Exchanger over real memory beside plain memory in which every delivery happens at once.
type world struct {
	t         *testing.T
	rng       *rand.Rand
	exchanger *Exchanger
	space     *Shared
	want      []byte
	frame     []byte
}

func newWorld(t *testing.T, seed uint64, size int, o Options) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 5)), exchanger: &Exchanger{}, space: newShared(t, size, o)}
	w.want, w.frame = make([]byte, len(w.space.Bytes())), make([]byte, 16<<10)
	w.exchanger.Add(w.space.Space)
	w.t.Cleanup(func() { w.exchanger.Remove(w.space.Space) })
	return w
}

// receive delivers one part: where Slot wants it, or in a buffer of the driver's, as a forecast would or would not have
// it.
func (w *world) receive(op Op, p part, behind, ahead int, forecast bool) {
	dst := w.space.Bytes()[p.lo:p.hi:p.hi]
	data := w.frame[:len(dst)]
	if forecast {
		w.exchanger.Round()
		data = w.exchanger.Slot(op, dst, uint64(behind), uint64(ahead))
	}
	for i := range data {
		data[i] = byte(w.rng.Uint32())
	}
	copy(w.want[p.lo:], data)
	if at := w.rng.IntN(200); !forecast && at < len(data) && w.rng.IntN(4) == 0 { // in two pieces
		w.deliver(op, dst[at:], data[at:])
		dst, data = dst[:at], data[:at]
	}
	w.deliver(op, dst, data)
}

func (w *world) deliver(op Op, dst, data []byte) {
	if len(dst) > 0 && !w.exchanger.Deliver(op, dst, data) {
		copy(dst, data)
	}
}

func (w *world) check(what string) {
	w.t.Helper()
	if !bytes.Equal(w.space.Bytes(), w.want) {
		for i := range w.want {
			if w.space.Bytes()[i] != w.want[i] {
				w.t.Fatalf("%s: byte %d of %d differs", what, i, len(w.want))
			}
		}
	}
}

// Operations of any place and length, whose parts come in order or not, forecast or not, several times over, one after
// another: memory is what it would be without an Exchanger as soon as each is settled.
func TestStageIsMemory(t *testing.T) {
	var total Counts
	for seed := range uint64(12) {
		w := newWorld(t, seed, 1<<20+int(seed)*4096, Options{Extent: 256 << 10, Extents: 2, Least: Grain})
		for seq := range uint32(14) {
			op := Op{Conn: 1, Seq: seq, Read: seq%3 == 0}
			lo := w.rng.IntN(len(w.want) - 4096)
			if seq%2 == 0 {
				lo = down(lo, Grain)
			}
			hi := lo + 1 + w.rng.IntN(len(w.want)-lo)
			parts := cut(w.rng, lo, hi, 8144)
			misplaced := seq%4 == 3
			if misplaced {
				w.rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			}
			for _, p := range parts {
				behind := p.lo - lo
				if misplaced {
					behind = 0
				}
				w.receive(op, p, behind, hi-p.lo, w.rng.IntN(8) > 0)
			}
			w.exchanger.Settle(op)
			if len(w.exchanger.open) > 0 {
				t.Fatalf("seed %d: %d extents open after their operation", seed, len(w.exchanger.open))
			}
			w.check("settled")
		}
		total.Exchanges += w.exchanger.Counts.Exchanges
		total.Frames += w.exchanger.Counts.Frames
		total.Copied += w.exchanger.Counts.Copied
		if w.exchanger.Counts.Failures > 0 {
			t.Errorf("seed %d: %+v", seed, w.exchanger.Counts)
		}
	}
	t.Logf("%+v", total)
	if total.Exchanges == 0 || total.Frames == 0 {
		t.Error("nothing was exchanged: the test does not test")
	}
}

// Several operations at once whose ranges overlap, ended in any order, some never: every byte is the one delivered
// last.
func TestStageOfOverlappingOperations(t *testing.T) {
	var total Counts
	for seed := range uint64(12) {
		w := newWorld(t, seed, 1<<20, Options{Extent: 128 << 10, Extents: 3, Least: Grain})
		type running struct {
			op     Op
			parts  []part
			lo, hi int
		}
		var ops []running
		for step, seq := 0, uint32(0); step < 1500; step++ {
			if len(ops) < 4 {
				lo := down(w.rng.IntN(len(w.want)), Grain)
				hi := min(len(w.want), lo+w.rng.IntN(400<<10)+1)
				ops = append(ops, running{Op{Conn: seq % 2, Seq: seq}, cut(w.rng, lo, hi, 8144), lo, hi})
				seq++
			}
			i := w.rng.IntN(len(ops))
			o := &ops[i]
			p := o.parts[0]
			// Places of other operations' bytes may be given out here, so what is received is always delivered.
			w.receive(o.op, p, 0, o.hi-p.lo, true)
			if o.parts = o.parts[1:]; len(o.parts) > 0 && w.rng.IntN(50) > 0 {
				continue
			}
			switch w.rng.IntN(4) {
			case 0:
				w.exchanger.SettleAll()
				w.check("all settled")
			case 1:
				w.exchanger.SettleConn(o.op.Conn)
			case 2:
				w.exchanger.Settle(o.op)
			} // else it is forgotten, as after a failure nobody told
			ops = append(ops[:i], ops[i+1:]...)
		}
		w.exchanger.SettleAll()
		w.check("at the end")
		total.Exchanges += w.exchanger.Counts.Exchanges
		total.Copied += w.exchanger.Counts.Copied
	}
	t.Logf("%+v", total)
	if total.Exchanges == 0 || total.Copied == 0 {
		t.Error("both ways to settle must occur")
	}
}

// A wrong forecast puts bytes where they do not belong; what is delivered later stands, and nothing else has changed.
func TestWrongForecast(t *testing.T) {
	w := newWorld(t, 1, 512<<10, Options{Extent: 256 << 10, Extents: 1, Least: Grain})
	op := Op{Conn: 3, Seq: 9}
	parts := cut(w.rng, 0, 384<<10, 8144)
	for i, p := range parts {
		w.exchanger.Round()
		slot := w.exchanger.Slot(op, w.space.Bytes()[p.lo:p.hi:p.hi], uint64(p.lo), uint64(384<<10-p.lo))
		for k := range slot {
			slot[k] = 0xee
		}
		w.receive(op, p, p.lo, 384<<10-p.lo, i%3 > 0)
	}
	w.exchanger.Settle(op)
	w.check("settled")
	if w.exchanger.Counts.Exchanges == 0 {
		t.Error("nothing was exchanged")
	}
}

// Whole runs received where Slot says are exchanged without a copy, in a steady state without allocation; pages of a
// region that were exchanged in pieces are put together again or copied, and the number of mappings stays bounded.
func TestExchangeInSteadyState(t *testing.T) {
	s := newShared(t, 4<<20, Options{})
	exchanger := &Exchanger{}
	exchanger.Add(s.Space)
	seq := uint32(0)
	message := func() {
		seq++
		op := Op{Seq: seq}
		const frame = 8192
		mem := s.Bytes()
		for at := 0; at < len(mem); at += frame {
			dst := mem[at : at+frame : at+frame]
			exchanger.Round()
			data := exchanger.Slot(op, dst, uint64(at), uint64(len(mem)-at))
			data[0] = byte(seq)
			if !exchanger.Deliver(op, dst, data) {
				copy(dst, data)
			}
		}
		exchanger.Settle(op)
		for at := 0; at < len(mem); at += frame {
			if mem[at] != byte(seq) {
				t.Fatalf("message %d: the frame at %d is not in place", seq, at)
			}
		}
	}
	message()
	before := exchanger.Counts
	if n := testing.AllocsPerRun(20, message); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
	bytes, frames := exchanger.Counts.Bytes-before.Bytes, exchanger.Counts.Frames-before.Frames
	if want := uint64(21 * 4 << 20); bytes != want || frames != want/8192 || exchanger.Counts.Copied > 0 {
		t.Errorf("%d bytes in %d frames were exchanged, %d copied; want %d and none", bytes, frames,
			exchanger.Counts.Copied, want)
	}
	exchanger.Remove(s.Space)
}

// Runs too short, regions not known and pools in use: what arrives is to be copied.
func TestSlotDeclines(t *testing.T) {
	s := newShared(t, 1<<20, Options{Extent: 256 << 10, Extents: 1})
	exchanger := &Exchanger{}
	exchanger.Add(s.Space)
	mem, pool := s.Bytes(), address(s.Pool())
	pooled := func(what string, op Op, dst []byte, behind, ahead uint64, want bool) {
		t.Helper()
		exchanger.Round()
		got := exchanger.Slot(op, dst, behind, ahead)
		if in := address(got)-pool < uintptr(len(s.Pool())); in != want || len(got) != len(dst) || &got[0] == &dst[0] {
			t.Errorf("%s: %d bytes, in the pool: %v", what, len(got), in)
		}
		if !exchanger.Lies(op, dst, got) || exchanger.Lies(op, dst, got[1:]) ||
			exchanger.Lies(op, mem[900<<10:][:len(dst)], got) {
			t.Errorf("%s: the place given out is not known again, or for another", what)
		}
		exchanger.Round()
		if exchanger.Lies(op, dst, got) != want {
			t.Errorf("%s: a place of an earlier round", what)
		}
	}
	other := make([]byte, 8192)
	pooled("short run", Op{}, mem[:8192], 0, 255<<10, false)
	pooled("start of the run is missing", Op{}, mem[4096:8192], 0, 256<<10, false)
	pooled("memory of somebody else", Op{}, other, 0, 1<<20, false)
	pooled("lying peer", Op{}, mem[len(mem)-8192:], 0, 1<<60, false)
	pooled("long run", Op{}, mem[4096:8192], 4096, 1<<20-4096, true)
	pooled("the same again", Op{}, mem[4096:8192], 0, 0, true)
	pooled("behind the extent, the pool being used up", Op{}, mem[256<<10:264<<10], 256<<10, 768<<10, false)
	pooled("across the extent's end", Op{}, mem[252<<10:260<<10], 256<<10, 768<<10, false)
	pooled("another operation, for which the extent makes way", Op{Seq: 1}, mem[4096:8192], 0, 255<<10, false)
	pooled("the pool is free again", Op{}, mem[:8192], 0, 1<<20, true)
	for range stale + 1 {
		exchanger.Round()
	}
	pooled("an extent forgotten long ago gives way", Op{Seq: 2}, mem[512<<10:520<<10], 0, 512<<10, true)
	exchanger.Remove(s.Space)
	pooled("memory that was removed", Op{Seq: 2}, mem[512<<10:520<<10], 0, 512<<10, false)
}
