package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
)

// chaos schedules what happens to nodes, links and connections while there are faults. Its dice are those of crashes
// alone.
func (w *swarm) chaos() {
	do := func(n int, f func()) {
		for range n {
			w.world.After(w.crashTime(), func() {
				if !w.healed {
					f()
				}
			})
		}
	}
	do(w.mix.crashes, w.crash)
	do(w.mix.flaps, w.flap)
	do(w.mix.partitions, w.partition)
	do(w.mix.revocations, w.revoke)
	do(w.mix.endings, w.endOne)
	do(w.mix.resizes, w.resize)
	do(w.mix.pools.crashes, w.crash)
	do(w.mix.pools.endings, w.endOne)
	do(w.mix.pools.drops, w.dropQueue)
	w.narrow(stream(w.world.opt.Seed, narrowStream))
	w.wall(stream(w.world.opt.Seed, formStream))
	w.move(stream(w.world.opt.Seed, cableStream))
	if w.world.opt.IP.Lanes > 0 {
		w.troubleIP(stream(w.world.opt.Seed, ipStream+2000))
	}
}

// narrow puts devices into links, at some time, that drop long frames in silence, in one direction or both. They stay
// when all else is healed: paths must find what still passes.
func (w *swarm) narrow(dice *rand.Rand) {
	for range w.mix.narrowings {
		l, most, both := dice.IntN(len(w.world.Net)), []int{700, 1500, 4200, 8300}[dice.IntN(4)], dice.IntN(4) > 0
		w.world.After(time.Duration(dice.Int64N(int64(w.mix.duration))), func() {
			w.report.Narrowings++
			for i := range w.world.Net[l] {
				if f := &w.world.Net[l][i]; (both || i == 0) && (f.Longest == 0 || f.Longest > most) {
					f.Longest = most
				}
			}
		})
	}
}

// wall is narrow for datagrams. What a link takes may change besides.
func (w *swarm) wall(dice *rand.Rand) {
	for range w.mix.walls {
		l, n, both, change := dice.IntN(w.world.opt.Links), w.world.Nodes[dice.IntN(len(w.world.Nodes))],
			dice.IntN(4) > 0,
			dice.IntN(3) == 0
		w.world.After(time.Duration(dice.Int64N(int64(w.mix.duration))), func() {
			w.report.Walls++
			if change {
				w.world.opt.Joins ^= 1 << (8*n.Index + l)
				if !n.Down && n.up&(1<<l) != 0 {
					n.SetLink(l, w.world.opt.MTU)
				}
				return
			}
			for i := range w.world.Net[l] {
				w.world.Net[l][i].Walled = w.world.Net[l][i].Walled || both || i == 0
			}
		})
	}
}

func (w *swarm) crashTime() time.Duration {
	return time.Duration(w.dice.Int64N(int64(w.mix.duration)))
}

// crash ends a node's engine; some time later it is back with another epoch.
func (w *swarm) crash() {
	n := w.world.Nodes[w.dice.IntN(len(w.world.Nodes))]
	if n.Down {
		return
	}
	w.report.Crashes++
	w.report.Ops += int(n.E.Count.Op.OpsCompleted)
	for _, p := range w.pairs {
		for _, e := range p.end {
			if e.node == n && e.state != endNone && e.state != endOver {
				e.killed = true
				w.over(e)
				e.flow.open = 0
			}
		}
	}
	clear(w.ends[n.Index])
	w.mailed[n.Index] = mailed{}
	if p := w.pools[n.Index]; p != nil {
		p.crash()
	}
	n.Crash()
	down := w.crashTime() / 2
	if w.dice.IntN(2) == 0 {
		down = time.Duration(w.dice.IntN(1_000_000))
	}
	w.world.After(down, func() { w.boot(n) })
}

func (w *swarm) boot(n *Node) {
	if !n.Down {
		return
	}
	n.Boot()
	for _, ch := range w.channels {
		if ch.from == n && !w.healed {
			w.dial(ch, anyOperations, w.dialTime())
		}
	}
}

// flap takes a link away and gives it back, some times: for all by silence, or at one node with its knowledge.
func (w *swarm) flap() {
	l, n := w.dice.IntN(len(w.world.Net)), w.world.Nodes[w.dice.IntN(len(w.world.Nodes))]
	silent, oneWay := w.dice.IntN(2) == 0 || l >= w.world.opt.Links, w.dice.IntN(4) == 0
	period := w.crashTime()/4 + 1
	var turn func(times int)
	turn = func(times int) {
		if w.healed {
			return
		}
		w.report.Flaps++
		off := times%2 == 0
		switch {
		case silent:
			for i := range w.world.Net[l] {
				w.world.Net[l][i].Cut = off && (!oneWay || i == n.Index)
			}
		case n.Down:
		case off:
			n.RemoveLink(l)
		default:
			n.SetLink(l, w.world.opt.MTU)
		}
		if times < 5 {
			w.world.After(period, func() { turn(times + 1) })
		}
	}
	turn(w.dice.IntN(5))
}

// partition separates two nodes on all links, in one direction or both.
func (w *swarm) partition() {
	w.report.Partitions++
	a := w.dice.IntN(len(w.world.Nodes))
	b := (a + 1 + w.dice.IntN(len(w.world.Nodes)-1)) % len(w.world.Nodes)
	both := w.dice.IntN(3) > 0
	w.world.Apart[a][b], w.world.Apart[b][a] = true, both || w.world.Apart[b][a]
	w.world.After(w.crashTime(), func() { w.world.Apart[a][b], w.world.Apart[b][a] = false, false })
}

// revoke takes exported memory back, as deregistering does, and uses it for something else at once.
func (w *swarm) revoke() {
	e := w.randomEnd(w.dice, func(e *end) bool { return e.state == endOpen })
	if e == nil {
		return
	}
	a := e.exports[w.dice.IntN(len(e.exports))]
	if a.void {
		return
	}
	w.report.Revocations++
	if w.dice.IntN(2) == 0 {
		e.node.Grants.Revoke(a.key)
	} else {
		e.node.Grants.RevokeRegion(a.region, math.MaxInt)
	}
	a.end()
}

// endOne closes or aborts a connection, in whatever state it is.
func (w *swarm) endOne() {
	dialing := w.dice.IntN(3) == 0
	e := w.randomEnd(w.dice, func(e *end) bool {
		return !e.closing && !e.aborted && (e.state == endOpen && !dialing || e.state == endDialing && dialing)
	})
	if e != nil {
		w.endNow(e)
	}
}

func (w *swarm) endNow(e *end) {
	w.report.Endings++
	if w.dice.IntN(2) == 0 {
		e.closing = true
		if e.state == endDialing {
			e.pairing.ended = true
		}
		e.node.E.Close(w.world.Now, e.conn)
		return
	}
	e.aborted, e.pairing.ended = true, true
	e.node.E.Abort(w.world.Now, e.conn, engine.StatusAborted)
}

// resize changes a link's MTU at one node.
func (w *swarm) resize() {
	n := w.world.Nodes[w.dice.IntN(len(w.world.Nodes))]
	l, mtu := w.dice.IntN(w.world.opt.Links), []int{640, 1500, 4000, 9000}[w.dice.IntN(4)]
	if !n.Down {
		w.report.Resizes++
		n.SetLink(l, min(mtu, w.world.opt.MTU))
	}
}

// heal ends all faults. Links keep their delays and rates, and the length of frames that passes.
func (w *swarm) heal() {
	w.join()
	w.healed, w.world.Marks = true, 0
	for l := range w.world.Net {
		for i := range w.world.Net[l] {
			f := &w.world.Net[l][i]
			f.Loss, f.Dup, f.Corrupt, f.Jitter, f.Hold, f.Cut = 0, 0, 0, 0, 0, false
		}
	}
	for _, n := range w.world.Nodes {
		clear(w.world.Apart[n.Index])
		w.boot(n)
		for _, l := range n.E.Snapshot(w.world.Now).Links {
			if !l.Up || l.Number < w.world.opt.Links && l.MTU != w.world.opt.MTU {
				n.SetLink(l.Number, w.world.opt.MTU)
			}
		}
	}
	if w.world.opt.IP.Lanes > 0 {
		w.tellAll()
	}
}
