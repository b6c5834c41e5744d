package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// What happens to cables while there are faults, and how soon all must work once they are over.

// LiveTime is within how much virtual time of the network's healing a new connection between any two nodes carries
// operations, in whatever cabling the faults ended, with whatever the nodes believe by then.
const LiveTime = 5 * time.Second

// move has cables moved at some times, half of the time before the first frame, and a stranger say Hello.
func (w *swarm) move(dice *rand.Rand) {
	when := func() time.Duration { return time.Duration(dice.Int64N(int64(w.mix.duration))) }
	if w.mix.recablings > 0 && dice.IntN(2) == 0 {
		w.recable(dice)
	}
	for range w.mix.recablings {
		w.world.After(when(), func() {
			if !w.healed {
				w.recable(dice)
			}
		})
	}
	for range w.mix.strangers {
		w.world.After(when(), func() { w.forge(dice, 1+dice.IntN(20)) })
	}
}

// recable moves cables of a node: two change places, all change places, or one goes to a segment that may have another.
// No carrier changes, nobody is told.
func (w *swarm) recable(dice *rand.Rand) {
	w.report.Moved.Recablings++
	n := dice.IntN(len(w.world.Nodes))
	plug := w.world.Plug[n]
	a, b := dice.IntN(len(plug)), dice.IntN(len(plug))
	switch dice.IntN(3) {
	case 0:
		plug[a], plug[b] = plug[b], plug[a]
	case 1:
		dice.Shuffle(len(plug), func(i, k int) { plug[i], plug[k] = plug[k], plug[i] })
	default:
		plug[a] = b
	}
}

// connected reports whether any link of one node is joined to any of the other's.
func (w *World) connected(a, b *Node) bool {
	return slices.ContainsFunc(w.Plug[a.Index], func(seg int) bool { return slices.Contains(w.Plug[b.Index], seg) })
}

// join moves one cable for every two nodes that are not connected, in the end of faults.
func (w *swarm) join() {
	for _, a := range w.world.Nodes {
		for _, b := range w.world.Nodes[:a.Index] {
			if !w.world.connected(a, b) {
				copy(w.world.Plug[a.Index], w.world.Plug[b.Index])
			}
		}
	}
	for _, a := range w.world.Nodes {
		for _, b := range w.world.Nodes {
			if !w.world.connected(a, b) {
				w.world.Plug[a.Index][0], w.world.Plug[b.Index][0] = 0, 0
			}
		}
	}
}

// forge has a stranger say Hello to a node in another's name, some times: of links that are elsewhere or nowhere, at
// addresses of theirs or his.
func (w *swarm) forge(dice *rand.Rand, times int) {
	to, from := w.world.Nodes[dice.IntN(len(w.world.Nodes))], w.world.Nodes[dice.IntN(len(w.world.Nodes))]
	links := w.world.opt.Links
	link, named := dice.IntN(links), dice.IntN(2*links)%engine.MaxLinks
	if dice.IntN(8) == 0 {
		named = dice.IntN(engine.MaxLinks)
	}
	h := wire.Hello{Node: from.ID(), Epoch: from.boot, Link: uint8(named), RxSlots: uint16(1 + dice.IntN(300)),
		MTU: 1500, Name: []byte(from.Name())}
	if w.world.opt.Secure {
		h.Flags = wire.HelloSecure
	}
	src := from.mac(named)
	if dice.IntN(2) == 0 {
		src = [6]byte{2, 6, 6, 6, byte(dice.IntN(3)), byte(named)}
	}
	if !to.Down && to != from && to.up&(1<<link) != 0 && !w.healed {
		w.report.Moved.Forged++
		b := make([]byte, wire.TailStart)
		copy(b, []byte{255, 255, 255, 255, 255, 255})
		copy(b[6:], src[:])
		b[12], b[13] = wire.EtherType>>8, wire.EtherType&0xff
		body := h.AppendTo(nil)
		wire.Finish(b[wire.EthLen:], &wire.Header{Type: wire.TypeHello, Path: h.Link}, body)
		to.E.Handle(w.world.Now, link, engine.Whole(append(b, body...)))
	}
	if times--; times > 0 && !w.healed {
		w.world.After(time.Duration(dice.IntN(50_000_000)), func() { w.forge(dice, times) })
	}
}

// alive demands a connection on which operations complete, of every channel, within LiveTime. One that fails with what
// went wrong before is tried again.
func (w *swarm) alive() error {
	tries := make([]*pairing, len(w.channels))
	left := 0
	err := w.world.Run(LiveTime, func() bool {
		left = 0
		for i, ch := range w.channels {
			p := tries[i]
			switch {
			case p == nil || p.end[0].state == endOver:
				ch.tries = 0
				tries[i] = w.dial(ch, goodOperations, time.Minute)
				left++
			case !p.worked():
				left++
			}
		}
		return left == 0
	})
	if err != nil {
		return fmt.Errorf("%w: of %d new connections %d do not work", err, len(tries), left)
	}
	return nil
}

// worked reports whether all operations of both ends have succeeded.
func (p *pairing) worked() bool {
	for _, e := range p.end {
		if e.state != endOpen {
			return false
		}
		for _, o := range e.flow.ops {
			if !o.complete {
				return false
			}
		}
	}
	return true
}
