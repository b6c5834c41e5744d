package sim

import (
	"fmt"
	"slices"
	"time"

	"multiedge/internal/engine"
)

// invariants is what must hold after every event. Memory is looked at where the event was, one area at a time in turn:
// what landed wrongly stays, so that none is overlooked; Watch.Full looks at everything.
func (w *swarm) invariants() error {
	if n := w.world.handled; n != nil && !n.Down {
		l := n.E.Load()
		most := w.world.opt.HeldBytes
		if most == 0 {
			most = 16 << 20
		}
		// Probes, pings and acknowledgements of operations leave without asking the window: up to 40 a second and path
		// until the peer is declared down.
		beside := (w.world.opt.Links + w.world.opt.IP.Lanes) * (256 + int(40*w.world.opt.DeadTime/time.Second))
		if way := w.world.opt.IP.Congestion; way != "" && way != "fabric" {
			beside = 1 << 20 // windows of long paths (clause 21.8)
		}
		if l.Least < 0 || l.Held > most || l.InFlight > w.world.opt.Profile.Window+beside {
			return fmt.Errorf("node%d: %d frames in flight, %d bytes held, the smallest count is %d", n.Index,
				l.InFlight, l.Held, l.Least)
		}
	}
	for _, p := range w.pools {
		if err := p.check(w); err != nil {
			return err
		}
	}
	for _, p := range w.pairs {
		for _, e := range p.end {
			if e.state != endOpen {
				continue
			}
			more := e.local.region.InFlight - e.flow.using
			if more < 0 || more > e.flow.pieces || e.flow.open > w.world.opt.OpWindow {
				return fmt.Errorf("%v: %d operations in flight, with %d pieces of local memory, perhaps %d more, the "+
					"region counts %d", e, e.flow.open, e.flow.using, e.flow.pieces, e.local.region.InFlight)
			}
			if e.other.node != w.world.handled {
				continue // nothing was placed for this end
			}
			if err := e.flow.fences(); err != nil {
				return fmt.Errorf("%v: %w", e, err)
			}
		}
	}
	if w.full {
		return w.everything()
	}
	if n := w.world.handled; n != nil && len(w.areas[n.Index]) > 0 {
		all := w.areas[n.Index]
		w.turn[n.Index]++
		a := all[w.turn[n.Index]%len(all)]
		if len(a.slots) > 0 {
			if err := a.slots[w.turn[n.Index]/len(all)%len(a.slots)].check(); err != nil {
				return err
			}
		}
		return a.canaries()
	}
	return nil
}

// everything compares all memory with what may be there.
func (w *swarm) everything() error {
	for _, areas := range w.areas {
		for _, a := range areas {
			if err := a.checkAll(); err != nil {
				return err
			}
		}
	}
	return nil
}

// rejoined checks that all links that are joined to one of the peer's are in use again, and all lanes.
func (w *swarm) rejoined() error {
	for _, n := range w.world.Nodes {
		for _, p := range n.E.Snapshot(w.world.Now).Peers {
			if !p.Open {
				continue
			}
			good, joined, lanes, plugs := 0, 0, 0, w.world.plugs(p.ID)
			for _, t := range p.Paths {
				if t.State != "good" {
					continue
				}
				if t.Link >= w.world.opt.Links {
					lanes++
					continue
				}
				if good++; plugs[t.PeerLink] != w.world.Plug[n.Index][t.Link] {
					return fmt.Errorf("node%d: link %d leads to link %d of %s, to which no cable goes: %v", n.Index,
						t.Link, t.PeerLink, p.Name, w.world.Plug)
				}
			}
			for _, seg := range w.world.Plug[n.Index] {
				if slices.Contains(plugs, seg) && !w.world.opt.IP.Only {
					joined++
				}
			}
			if lanes != w.world.opt.IP.Lanes {
				return fmt.Errorf("node%d: %d of %d lanes to %s are good: %+v", n.Index, lanes, w.world.opt.IP.Lanes,
					p.Name, p.Paths)
			}
			if good != joined {
				return fmt.Errorf("node%d: %d of %d paths to %s are good: %+v, cables %v", n.Index, good, joined,
					p.Name, p.Paths, w.world.Plug)
			}
		}
	}
	return nil
}

// plugs are the segments that a node's links are on.
func (w *World) plugs(id engine.NodeID) []int {
	for _, n := range w.Nodes {
		if n.ID() == id {
			return w.Plug[n.Index]
		}
	}
	return nil
}

// verify checks at the end that notifications were told and that nothing is left (faults.md, U3).
func (w *swarm) verify() error {
	for _, p := range w.pairs {
		for _, e := range p.end {
			for i, o := range e.flow.ops {
				if o.submitted && !o.complete && !e.killed {
					return fmt.Errorf("%v: operation %d never completed", e, i)
				}
				told := (o.op.Flags&engine.Notify != 0 || o.op.Kind == engine.OpSend) && o.complete &&
					o.status == engine.OK && !e.other.killed
				// The peer knows of the end of what it answers by acknowledgements, which an early end of the
				// connection forestalls, or a revocation.
				answered := o.op.Kind == engine.OpRead || o.op.Kind == engine.OpAtomic
				told = told && (!answered || p.rested && !o.far.area.void)
				told = told && (o.op.Kind != engine.OpSend || p.rested)
				if told && o.notified != 1 {
					return fmt.Errorf("%v: of operation %d (kind %d) the peer was told %d times", e, i, o.op.Kind,
						o.notified)
				}
			}
		}
	}
	for i, n := range w.world.Nodes {
		if err := w.mailed[i].check(&n.E.Count); err != nil {
			return fmt.Errorf("node%d: %w", i, err)
		}
	}
	// a ping may be on its way
	if err := w.world.Run(2*time.Second, func() bool { return w.left() == nil }); err != nil {
		return w.left()
	}
	return nil
}

// left says what engines keep besides their open sessions.
func (w *swarm) left() error {
	for _, n := range w.world.Nodes {
		h := n.E.Holding()
		sessions, inFlight := 0, 0
		for _, p := range n.E.Snapshot(w.world.Now).Peers {
			if p.Open {
				sessions++
			}
			for _, t := range p.Paths {
				// of links that no cable joins to the peer, probes stay unanswered; on slow ones a ping is always on
				// its way
				if t.State != "good" || 2*t.SRTT > w.world.opt.KeepAlive {
					p.InFlight -= t.InFlight
				}
			}
			inFlight = max(inFlight, p.InFlight)
		}
		if h.InFlight > 0 {
			h.InFlight = inFlight
		}
		if h != (engine.Holding{Sessions: sessions, Numbers: sessions}) {
			return fmt.Errorf("node%d, with %d sessions, still holds %+v", n.Index, sessions, h)
		}
		if n.Grants.Len() != 0 {
			return fmt.Errorf("node%d: %d keys are left", n.Index, n.Grants.Len())
		}
	}
	return nil
}
