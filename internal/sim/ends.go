package sim

import (
	"fmt"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Ends counts why connections ended, one for each end: a cause that no seed has tests nothing.
type Ends struct {
	EndsByOwner    int // an end closed, aborted or refused it, or its service did not exist
	EndsByDeadline int // the dial's time was over
	EndsByCrash    int // of one of the two nodes
	EndsBySilence  int // nothing of a session's frames arrived in one direction for the dead time
	EndsByWear     int // a key sealed all that it may
}

// slack is how much later than its cause an end may learn that a session is over: the rest of a handshake that began
// before, and the last steps of a dial that waits for the next session (clauses 4.3 and 10.2).
const slack = 6 * time.Second

// birth is what had happened when a pairing was dialled: only what comes later explains its end.
type birth struct {
	at   mono.Time
	worn uint64
}

func (p *pairing) worn() uint64 {
	return p.end[0].node.E.Count.Trust.KeysWorn + p.end[1].node.E.Count.Trust.KeysWorn
}

// dropped returns the count of the cause for which the session under a pairing can have ended by no wish of its owners,
// nil if there is none.
func (p *pairing) dropped() *int {
	w, a, b := p.w, p.end[0].node, p.end[1].node
	ends := &w.report.Ends
	// What was before the dial counts as long as one node may not know of it.
	since := p.birth.at.Add(-w.world.opt.DeadTime - slack)
	for _, n := range []*Node{a, b} {
		if n.Crashes > 0 && n.CrashedAt >= since {
			return &ends.EndsByCrash
		}
	}
	switch {
	case p.worn() > p.birth.worn: // of these there are few (TestSwarm)
		return &ends.EndsByWear
	case w.world.Silent(a, b, since) || w.world.Silent(b, a, since):
		return &ends.EndsBySilence
	}
	return nil
}

// judgeEnd says whether a connection may end so, and counts why.
func (e *end) judgeEnd(now mono.Time, st engine.Status) error {
	why := e.explain(now, st)
	if why == nil {
		return fmt.Errorf("nothing explains it")
	}
	*why++
	return nil
}

func (e *end) explain(now mono.Time, st engine.Status) *int {
	p := e.pairing
	ends := &p.w.report.Ends
	switch {
	case st == engine.OK && (e.closing || e.other.closing), st == engine.StatusAborted && (e.aborted || p.ended),
		st == engine.StatusClosed && e.closing, st == engine.StatusReset && p.ended,
		st == engine.StatusTimeout && p.ended:
		return &ends.EndsByOwner
	case e.state == endDialing && (st == engine.StatusNoService && p.answer == nobody ||
		st == engine.StatusRefused && (p.answer == refuse || p.answer == abandon)):
		return &ends.EndsByOwner
	}
	lost := st == engine.StatusPeerDown || st == engine.StatusPeerUnknown || st == engine.StatusTimeout
	if lost && e.state == endDialing && !p.w.final && now >= p.deadline {
		return &ends.EndsByDeadline
	}
	return p.dropped()
}
