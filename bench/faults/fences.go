package faults

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/bench/pattern"
	"multiedge/edge"
	"multiedge/internal/lab"
)

// A fencer works on a slot of MixFences: it posts many operations on overlapping ranges without waiting for any,
// ordered by fences alone.
const (
	fenceArea  = 64 << 10 // bytes of a slot
	fenceGroup = 8        // writes between two fences, on disjoint ranges, hence in any order
	fenceOps   = 48       // operations in flight, at most
	fenceMost  = fenceArea / 2
)

// fenceSpace is the local memory that a fencer needs: each operation has its own place for the bytes that it writes or
// reads.
const fenceSpace = fenceOps * fenceMost

// fenced is one operation of a round.
type fenced struct {
	work edge.Work
	want []byte // what a read must return; of a write, what it writes
}

// fencer makes rounds of operations whose outcome fences alone decide (clauses 6.5 and 6.6).
type fencer struct {
	l    *lane
	slot slot
	base int // of its places in the local region
	rng  *rand.Rand
	src  *pattern.Source
	made uint64 // writes so far, each of contents of its own
	ops  []fenced
	now  []byte // what the slot must hold after ops
}

func newFencer(l *lane, s slot, base int, seed uint64) *fencer {
	return &fencer{l: l, slot: s, base: base, rng: rand.New(rand.NewPCG(seed, 3)), src: pattern.New(seed),
		now: make([]byte, s.size)}
}

func (f *fencer) run(ctx context.Context) {
	for ctx.Err() == nil && !f.l.broken.Load() {
		f.plan()
		if err := f.carryOut(); err != nil {
			f.l.broken.Store(true)
		}
	}
}

// plan lays out a round: groups of writes on disjoint ranges, and between them an operation that overlaps them and has
// the one fence, or both, that make the outcome certain.
func (f *fencer) plan() {
	f.ops = f.ops[:0]
	copy(f.now, f.l.oracle.bytes[f.slot.off:])
	switch f.rng.IntN(3) {
	case 0:
		f.group()
		f.fence(edge.BackwardFence)
	case 1:
		f.fence(edge.ForwardFence)
		f.group()
	default:
		for len(f.ops)+fenceGroup+1 <= fenceOps {
			f.group()
			f.fence(edge.BackwardFence | edge.ForwardFence)
		}
	}
}

// group adds writes that do not overlap.
func (f *fencer) group() {
	const strip = fenceArea / fenceGroup
	for i := range fenceGroup {
		n := 1 + f.rng.IntN(strip)
		f.write(i*strip+f.rng.IntN(strip-n+1), n, 0)
	}
}

// fence adds a write or read of half the slot with flags.
func (f *fencer) fence(flags edge.Flags) {
	off := f.rng.IntN(f.slot.size - fenceMost + 1)
	if f.rng.IntN(2) == 0 {
		f.write(off, fenceMost, flags)
	} else {
		f.read(off, fenceMost, flags)
	}
}

func (f *fencer) write(off, n int, flags edge.Flags) {
	w := f.work(edge.Write, off, n, flags)
	want := f.l.local.Bytes()[w.LocalOff : w.LocalOff+n]
	f.made++
	f.src.Fill(want, f.made)
	copy(f.now[off:], want)
	f.ops = append(f.ops, fenced{w, want})
}

func (f *fencer) read(off, n int, flags edge.Flags) {
	f.ops = append(f.ops, fenced{f.work(edge.Read, off, n, flags), bytes.Clone(f.now[off : off+n])})
}

func (f *fencer) work(kind edge.Kind, off, n int, flags edge.Flags) edge.Work {
	at := f.base + len(f.ops)*fenceMost
	return edge.Work{Kind: kind, Local: f.l.local, LocalOff: at, Len: n, Remote: f.l.remote, RemoteOff: f.slot.off +
		off - guard, Flags: flags}
}

// carryOut posts a whole round and waits for its end. It compares what the round read, then what the round left in
// memory.
func (f *fencer) carryOut() error {
	if err := f.post(); err != nil {
		return err
	}
	copy(f.l.oracle.bytes[f.slot.off:], f.now)
	f.ops = f.ops[:0]
	for off := 0; off < f.slot.size; off += fenceMost {
		f.read(off, fenceMost, 0)
	}
	return f.post()
}

// post starts all operations planned, and returns when all have ended.
func (f *fencer) post() error {
	t, began := f.l.c.tally, time.Now()
	patient, cancel := context.WithTimeout(context.Background(), f.l.c.w.job.Deadline)
	defer cancel()
	var started []edge.Op
	var numbers []uint64
	var failed error
	for i := range f.ops {
		op, err := f.l.conn.Post(patient, &f.ops[i].work)
		if err != nil {
			failed = err // nothing was started
			break
		}
		started, numbers = append(started, op), append(numbers, t.begins(began))
	}
	for i, op := range started {
		err, late := f.l.await(op, began)
		t.ends(numbers[i], f.ops[i].work.Len, err, late)
		if err != nil {
			failed = err
		}
	}
	for i := range started {
		o := &f.ops[i]
		switch at := o.work.LocalOff; {
		case failed != nil && o.work.Kind == edge.Write:
			f.l.wrote(o.work.RemoteOff+guard, o.want, o.work.Flags, 0, failed)
		case failed == nil && o.work.Kind == edge.Read && !bytes.Equal(f.l.local.Bytes()[at:at+o.work.Len], o.want):
			t.wrong(fmt.Sprintf("a fence was overtaken: operation %d of %d, a read %s, returned other bytes than its "+
				"order makes", i+1, len(f.ops), fenceWords[o.work.Flags]))
		}
	}
	return failed
}

// fenceWords name the fences of a read; the reads after a round have none.
var fenceWords = map[edge.Flags]string{
	0: "after the round", edge.BackwardFence: "with the backward fence", edge.ForwardFence: "with the forward fence",
	edge.BackwardFence | edge.ForwardFence: "with both fences",
}

// fences runs connections whose operations only fences order, over links on which frames overtake each other.
func fences() Scenario {
	return Scenario{
		Name: "fences while frames overtake each other", Group: Network, Short: true, Set: twoLinks,
		Criteria: "reads and memory are as the fences order them, with up to 48 operations in flight on the same bytes",
		Run: func(t *Trial) {
			u := t.under(MixFences, 4, 1, overtaking, t.span(4*time.Second, time.Second), 1)
			t.injected("held back", u.wires.Reordered)
			t.injected("lost", u.wires.Lost)
			t.counted("out of sequence", u.did["frames_reordered"])
			t.tried("parts that waited behind a fence", u.did["segments_held"])
		},
	}
}

// overtaking delays the frames of one link more than those of the other. Both links hold back some frames and lose
// others.
func overtaking(t *Trial) {
	for i, f := range []lab.Faults{
		{Delay: 200 * time.Microsecond, Reorder: 0.2, ReorderBy: 2 * time.Millisecond, Loss: 0.01},
		{Delay: 2 * time.Millisecond, Reorder: 0.2, ReorderBy: 3 * time.Millisecond, Loss: 0.01},
	} {
		t.setFaultsOf(i, f)
	}
}
