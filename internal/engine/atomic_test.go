package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

const every = regmem.RemoteRead | regmem.RemoteWrite | regmem.RemoteAtomic

func atomicOp(token uint64, key regmem.Key, off uint64, a engine.Atomic) engine.Op {
	op := engine.Op{Token: token, Key: key, Off: off}
	op.SetAtomic(a)
	return op
}

// Clause 13.2: what each function leaves and finds, on 8 bytes and on 4, between neighbours that stay as they are.
func TestAtomicFunctions(t *testing.T) { inBothForms(t, testAtomicFunctions) }

func testAtomicFunctions(t *testing.T, sealed bool) {
	const top8, top4, before = 1 << 63, 1 << 31, 0x5555555555555555
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 24, every)
	token := uint64(0)
	for _, x := range []struct {
		f                       wire.AtomicFunc
		size                    int
		was, operand, cmp, want uint64
	}{
		{wire.AtomicSwap, 8, 1, 2, 0, 2}, {wire.AtomicSwap, 4, 1, top4, 0, top4},
		{wire.AtomicCAS, 8, 5, 7, 5, 7}, {wire.AtomicCAS, 8, 5, 7, 6, 5},
		{wire.AtomicCAS, 4, 5, 7, 5, 7}, {wire.AtomicCAS, 4, 5, 7, 6, 5},
		{wire.AtomicAdd, 8, ^uint64(0), 3, 0, 2}, {wire.AtomicAdd, 4, 0xffffffff, 3, 0, 2},
		{wire.AtomicAnd, 8, 0xff0, 0x0ff, 0, 0x0f0}, {wire.AtomicAnd, 4, 0xff0, 0x0ff, 0, 0x0f0},
		{wire.AtomicOr, 8, 0xf00, top8, 0, top8 | 0xf00}, {wire.AtomicOr, 4, 0xf00, 0x0ff, 0, 0xfff},
		{wire.AtomicXor, 8, 0xff0, 0x0ff, 0, 0xf0f}, {wire.AtomicXor, 4, 0xff0, 0x0ff, 0, 0xf0f},
		{wire.AtomicMin, 8, top8, 1, 0, 1}, {wire.AtomicMin, 8, 1, top8, 0, 1}, {wire.AtomicMin, 4, 1, top4, 0, 1},
		{wire.AtomicMax, 8, top8, 1, 0, top8}, {wire.AtomicMax, 8, 1, top8, 0, top8}, {wire.AtomicMax, 4, 1, 9, 0, 9},
		{wire.AtomicMinSigned, 8, top8, 1, 0, top8}, {wire.AtomicMinSigned, 8, 1, top8, 0, top8},
		{wire.AtomicMinSigned, 4, 1, top4, 0, top4}, {wire.AtomicMinSigned, 4, top4, 1, 0, top4},
		{wire.AtomicMaxSigned, 8, top8, 1, 0, 1}, {wire.AtomicMaxSigned, 8, 1, top8, 0, 1},
		{wire.AtomicMaxSigned, 4, 1, top4, 0, 1}, {wire.AtomicMaxSigned, 4, top4, 1, 0, 1},
	} {
		ne := binary.NativeEndian
		off := 8
		for i := range mem {
			mem[i] = 0x55
		}
		if x.size == 8 {
			ne.PutUint64(mem[8:], x.was)
		} else {
			off = 12
			ne.PutUint32(mem[12:], uint32(x.was))
		}
		r.submit(0, c[0], atomicOp(token, key, uint64(off), engine.Atomic{Func: x.f, Size: x.size, Operand: x.operand,
			Compare: x.cmp}))
		r.must("atomic", time.Second, r.all(0, int(token)+1))
		r.wantStatus(0, token, engine.OK)
		got := ne.Uint64(mem[8:])
		rest := uint64(before)
		if x.size == 4 {
			got, rest = uint64(ne.Uint32(mem[12:])), uint64(ne.Uint32(mem[8:]))<<32|before&0xffffffff
		}
		if v := r.n[0].values[token]; v != x.was || got != x.want || rest != before || ne.Uint64(mem) != before ||
			ne.Uint64(mem[16:]) != before {
			t.Errorf("function %d of %d bytes on %#x with %#x and %#x: found %#x, left %#x, want %#x; memory %x", x.f,
				x.size, x.was, x.operand, x.cmp, v, got, x.want, mem)
		}
		token++
	}
	if n := r.n[1].e.Count.Op.AtomicsPerformed; n != token {
		t.Errorf("%d atomics counted, want %d", n, token)
	}
}

// Clause 13.4: atomics are performed once each, although frames are lost or come after they were sent again. Fences and
// notifications are as for every kind.
func TestAtomicsExactlyOnce(t *testing.T) {
	const adds = 300
	for _, o := range []struct {
		rigOptions
		fences bool
	}{{rigOptions{links: 1}, true}, {rigOptions{links: 3}, false}, {rigOptions{links: 2, sealed: true}, true}} {
		t.Run(fmt.Sprintf("%d links, sealed %v", o.links, o.sealed), func(t *testing.T) {
			r := newRig(t, o.rigOptions)
			c := r.connect(engine.DialOptions{})
			mem, key := r.export(1, c[1], 64, every)
			r.settle()
			rng := rand.New(rand.NewPCG(1, uint64(o.links)))
			var late []flight // frames of node 0 that come after they were sent again
			lost := 0
			r.pass = func(from int, f *flight) bool {
				if len(late) > 8 {
					r.give(1, late[0])
					late = late[1:]
				}
				if rng.IntN(4) > 0 {
					return true
				}
				lost++
				if from == 0 {
					late = append(late, flight{link: f.link, b: bytes.Clone(f.b)})
				}
				return false
			}
			for i := range adds {
				op := atomicOp(uint64(i), key, 8, engine.Atomic{Func: wire.AtomicAdd, Size: 8, Operand: uint64(i) + 1})
				op.Imm = uint32(i)
				if o.fences {
					op.Flags |= engine.BackwardFence
				}
				if i%10 == 0 {
					op.Flags |= engine.Notify
				}
				r.submit(0, c[0], op)
				if i%4 == 3 {
					r.round()
				}
			}
			r.must("adds", 10*time.Second, r.all(0, adds))
			r.pass = nil
			r.rest(time.Second)
			found, sum := map[uint64]bool{}, uint64(0)
			for i := range adds {
				r.wantStatus(0, uint64(i), engine.OK)
				got := r.n[0].values[uint64(i)]
				if found[got] || o.fences && got != sum {
					t.Fatalf("add %d found %d, want %d, or with no fence what no other found", i, got, sum)
				}
				found[got] = true
				sum += uint64(i) + 1
			}
			if got := binary.NativeEndian.Uint64(mem[8:]); got != sum || lost < 20 {
				t.Errorf("the sum is %d, want %d; %d frames lost or late", got, sum, lost)
			}
			if r.n[1].e.Count.Loss.SegmentsDuplicated == 0 {
				t.Error("no add came twice")
			}
			r.n[1].takeNotes(c[1])
			if n := len(r.n[1].notes); n != adds/10 {
				t.Errorf("%d notifications, want %d", n, adds/10)
			}
			r.rest(3 * time.Second)
			if n := r.n[1].e.HeldMemory(); n != 0 {
				t.Errorf("%d bytes still held", n)
			}
		})
	}
}

// Clauses 6.9 and 13.3: an atomic that is refused changes nothing, and the connection lives.
func TestAtomicsRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 60, every)
	_, plain := r.export(1, c[1], 64, both)
	add := engine.Atomic{Func: wire.AtomicAdd, Size: 8, Operand: 1}
	half := engine.Atomic{Func: wire.AtomicAdd, Size: 4, Operand: 1}
	for i, x := range []struct {
		key  regmem.Key
		off  uint64
		a    engine.Atomic
		want engine.Status
	}{
		{key, 48, add, engine.OK}, {key, 56, half, engine.OK},
		{key ^ 1, 0, add, engine.StatusKey}, {plain, 0, add, engine.StatusPermission},
		{key, 56, add, engine.StatusBounds}, {key, 60, half, engine.StatusBounds},
		{key, ^uint64(7), add, engine.StatusBounds},
		{key, 4, add, engine.StatusBounds}, {key, 1, add, engine.StatusBounds}, {key, 2, half, engine.StatusBounds},
		{key, 48, add, engine.OK},
	} {
		r.submit(0, c[0], atomicOp(uint64(i), x.key, x.off, x.a))
		r.must("atomic", time.Second, r.all(0, i+1))
		r.wantStatus(0, uint64(i), x.want)
	}
	if ne := binary.NativeEndian; ne.Uint64(mem[48:]) != 2 || ne.Uint32(mem[56:]) != 1 || !bytes.Equal(mem[:48],
		make([]byte, 48)) {
		t.Errorf("memory is %x", mem)
	}
}

// Clauses 6.5 to 6.7 for atomics, exhaustively: of three operations, each a write or an atomic, under every combination
// of fences and every order of arrival, none takes effect before what its fences demand has, each atomic once.
func TestAtomicFencesExhaustive(t *testing.T) {
	const ops = 3
	for _, ordered := range []bool{false, true} {
		for kinds := range 1 << ops {
			t.Run(fmt.Sprintf("atomics=%03b,ordered=%v", kinds, ordered), func(t *testing.T) {
				f := &atomicFencer{rig: newRig(t, rigOptions{}), kinds: kinds, ordered: ordered}
				f.c = f.connect(engine.DialOptions{Ordered: ordered})
				f.mem, f.key = f.export(1, f.c[1], 8*(ops+1), every)
				f.settle()
				for _, flags := range flagSets(ops) {
					for _, arrival := range permutations(ops) {
						if err := f.run(flags, arrival); err != nil {
							t.Fatalf("fences %s arrival %v: %v", names(flags), arrival, err)
						}
					}
				}
				f.rest(3 * time.Second) // the ring grew
				if held := f.n[1].e.HeldMemory(); held != 0 {
					t.Errorf("%d bytes of held segments are still accounted for", held)
				}
			})
		}
	}
}

// atomicFencer submits operations, those of the bits of kinds atomics, each of which sets its bit in the first word.
type atomicFencer struct {
	*rig
	c       [2]engine.ConnID
	mem     []byte
	key     regmem.Key
	kinds   int
	ordered bool
	token   uint64
}

func (f *atomicFencer) isAtomic(i int) bool { return f.kinds>>i&1 != 0 }

// effect reports whether operation i has taken effect.
func (f *atomicFencer) effect(i int) bool {
	if f.isAtomic(i) {
		return binary.NativeEndian.Uint64(f.mem)>>i&1 != 0
	}
	return f.mem[8*(i+1)] != 0
}

func (f *atomicFencer) run(flags []engine.OpFlags, arrival []int) error {
	clear(f.mem)
	first := f.token
	var own []flight
	for i, fl := range flags {
		op := engine.Op{Kind: engine.OpWrite, Key: f.key, Off: uint64(8 * (i + 1)), Local: []byte{1}}
		if f.isAtomic(i) {
			op = atomicOp(0, f.key, 0, engine.Atomic{Func: wire.AtomicXor, Size: 8, Operand: 1 << i})
		}
		op.Token, op.Flags = f.token, fl
		f.token++
		f.submit(0, f.c[0], op)
		for _, fr := range f.take(0) {
			if carries(fr.b, wire.KindWrite) || carries(fr.b, wire.KindAtomic) {
				own = append(own, fr)
			} else {
				f.give(1, fr)
			}
		}
	}
	if len(own) != len(flags) {
		return fmt.Errorf("%d frames", len(own))
	}
	for _, k := range arrival {
		f.give(1, own[k])
		f.give(1, own[k]) // as a bridge repeats it
		for j := range flags {
			for i := range j {
				if f.effect(j) && !f.effect(i) && mustPrecede(flags, f.ordered, i, j) {
					return fmt.Errorf("operation %d took effect before operation %d", j, i)
				}
			}
		}
	}
	if !f.until(time.Second, f.all(0, int(f.token))) {
		return fmt.Errorf("%d of %d operations completed within a second", len(f.n[0].done), f.token)
	}
	for j := range flags {
		if !f.effect(j) {
			return fmt.Errorf("operation %d took no effect, or two", j)
		}
		v := f.n[0].values[first+uint64(j)]
		for i := range j {
			if f.isAtomic(i) && f.isAtomic(j) && v>>i&1 == 0 && mustPrecede(flags, f.ordered, i, j) {
				return fmt.Errorf("operation %d did not see operation %d", j, i)
			}
		}
	}
	f.n[0].events, f.n[1].events = nil, nil
	return nil
}
