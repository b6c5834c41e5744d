package sim

import (
	"bytes"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// draft is how an operation is composed: step by step, each of which writes part of its memory and marks it. All but
// the last write what is never to be seen.
type draft struct {
	rng    *rand.Rand
	left   int       // steps
	ready  bool      // the memory is as it is to be
	over   bool      // committed or aborted
	marked []bool    // by block
	after  mono.Time // the compose failed: not before
}

const block = 64

// composes has an operation composed, sometimes, and sometimes aborted.
func (o *operation) composes(rng *rand.Rand, p *pairing, kind planKind) {
	eager, dropped := rng.IntN(3) == 0, rng.IntN(5) == 0
	if !eager || !p.w.mix.composes || o.op.Kind != engine.OpWrite && o.op.Kind != engine.OpSend || o.size == 0 {
		return
	}
	o.op.Flags &^= engine.LocalDone
	o.draft = &draft{rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), left: 1 + rng.IntN(6),
		marked: make([]bool, (o.size+block-1)/block)}
	o.dropped = dropped && kind != goodOperations
}

// begin says what the oracle expects: of an aborted message nothing shows.
func (d *draft) begin(o *operation) {
	o.near.loose = true
	if o.dropped {
		o.far.mark = untouched
	}
}

// composeAhead begins to compose the next operations that are composed, before it is their turn.
func (w *swarm) composeAhead(e *end) {
	f := &e.flow
	open := 0
	for _, o := range f.ops[f.next:] {
		switch {
		case o.draft == nil:
			continue
		case open == 2:
			return
		case !o.submitted && w.world.Now >= o.draft.after:
			o.op.Key = o.far.area.key
			if e.node.E.Compose(e.conn, &o.op, o.op.Token) != engine.OK {
				// too many are under way
				o.draft.after = w.world.Now.Add(time.Millisecond)
				w.world.After(time.Millisecond, func() { w.post(e) })
				return
			}
			f.took(o)
			w.world.After(time.Duration(o.draft.rng.IntN(1_000_000)), func() { w.compose(e, o) })
		}
		open++
	}
}

// compose is a step of composing.
func (w *swarm) compose(e *end, o *operation) {
	if e.state != endOpen || e.node.Down || e.boot != e.node.boot || o.complete {
		return
	}
	d, mem := o.draft, o.near.bytes()
	wrote := func(lo, hi int) {
		for b := lo / block; b*block < hi; b++ {
			d.marked[b] = true
		}
		if !e.node.E.Wrote(e.conn, o.op.Token, uint64(lo), uint64(hi-lo)) {
			w.world.fault("%v: operation %d is not being composed", e, o.op.Token)
		}
	}
	if d.left--; d.left > 0 {
		lo := d.rng.IntN(o.size)
		hi := lo + 1 + d.rng.IntN(o.size-lo)
		if d.rng.IntN(2) == 0 {
			copy(mem[lo:hi], o.near.want[lo:hi])
		} else {
			copy(mem[lo:hi], bytes.Repeat([]byte{0x80 | byte(d.left)}, hi-lo))
		}
		wrote(lo, hi)
		w.world.After(time.Duration(d.rng.IntN(3_000_000)), func() { w.compose(e, o) })
		return
	}
	for lo := 0; lo < o.size; lo += block { // what was never marked need not be
		hi := min(lo+block, o.size)
		if !bytes.Equal(mem[lo:hi], o.near.want[lo:hi]) {
			copy(mem[lo:hi], o.near.want[lo:hi])
			if d.marked[lo/block] || d.rng.IntN(2) == 0 {
				wrote(lo, hi)
			}
		}
	}
	d.ready, o.near.loose, o.near.source = true, false, true
	w.post(e)
}

// commit commits or aborts a composed operation whose turn it is. It reports false if it is not ready.
func (w *swarm) commit(e *end, o *operation) bool {
	d := o.draft
	if !d.ready {
		return false
	}
	d.over = true
	done := false
	if o.dropped {
		done = e.node.E.Discard(e.conn, o.op.Token)
	} else {
		done = e.node.E.Commit(w.world.Now, e.conn, o.op.Token, o.op.Flags, o.op.Imm, uint64(o.size))
	}
	if !done && !o.complete && !e.closing {
		w.world.fault("%v: operation %d is not being composed", e, o.op.Token)
	}
	return done
}
