package path

import (
	"fmt"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Marks of routers that are about to be congested (clause 21.12; RFC 3168). Frames with data leave with ECT(0) on IP
// links. The peer counts those that it took, by what their IP headers said then, and its acknowledgements have the
// counts:
//
//  1. The first acknowledgements test the path (RFC 9000 section 13.4.2): they must count what they acknowledge.
//  2. They go on to be tested. What they say of more marked frames narrows the window.
//  3. Acknowledgements, pings and Probes leave without ECT(0), and all while an answer is overdue: some networks drop
//     what has it.
//  4. A path whose marks are wiped out, or by which only frames without ECT(0) pass, sends without for a while.
//
// A peer that invents marks makes us slow towards itself. One that hides them is believed as one is that acknowledges
// what was lost: delay and losses still count.

// Marks counts the eliciting frames of a path by what their IP headers said, each once, modulo 2^32.
type Marks struct {
	ECT0, CE uint32
	Any      bool // there was one
}

// Note counts n frames.
func (m *Marks) Note(e frame.ECN, n uint32) {
	switch e {
	case frame.ECT0:
		m.ECT0 += n
		m.Any = true
	case frame.CE:
		m.CE += n
		m.Any = true
	}
}

// markState is what is believed of marks on a path.
type markState uint8

const (
	marksOff    markState = iota // the path does not carry data, or its link asks for no marks
	marksTested                  // frames leave with ECT(0), and none was counted yet
	marksGood                    // frames leave with ECT(0), and are counted
	marksFailed                  // they do not get through
)

func (s markState) String() string { return [...]string{"off", "tested", "good", "failed"}[s] }

const (
	markTests   = 10 // frames that may arrive without ECT(0) before marks have failed
	markLost    = 3  // frames that are lost with it
	markBare    = 2  // while so many pass without
	marksAgain  = time.Minute
	marksRarely = time.Hour
)

// marking is what the sender of a path knows of marks.
type marking struct {
	state    markState
	ect0, ce uint32        // as the peer told last
	from     uint64        // packet number from which on frames leave with ECT(0)
	before   uint32        // frames counted when from was next
	acked    uint32        // frames from there on that left with ECT(0)
	lost     int           // such frames since the latest that was counted
	bare     int           // frames that left without and were acknowledged since then
	wait     time.Duration // after which it is tried again
	again    mono.Time
	total    uint64 // frames that the peer has counted
}

// State names it for people.
func (m *marking) State() string { return m.state.String() }

// testMarks has frames leave with ECT(0) from now on: the path carries data, or has another way.
func (p *Tx) testMarks() {
	m := &p.Marking
	if m.state = marksOff; p.Set.net.Links[p.Link].ECN {
		m.state, m.from, m.before = marksTested, p.Ledger.NextPN(), m.ect0+m.ce
		m.acked, m.lost, m.bare = 0, 0, 0
	}
}

// asks reports whether the path's frames leave with ECT(0).
func (m *marking) asks() bool { return m.state == marksTested || m.state == marksGood }

// Capable reports whether the next frame of the path leaves with ECT(0).
func (p *Tx) Capable() bool { return p.Marking.asks() && p.Ledger.Probes() == 0 }

// told takes what an acknowledgement says of marks; acked are the frames that it newly acknowledged.
func (p *Tx) told(now mono.Time, g *wire.Segment, acked []flowctl.Sent) {
	m := &p.Marking
	if g.Flags&wire.AckMarks != 0 {
		p.count(now, g.Window, g.Limit)
	}
	switch {
	case m.state == marksOff || len(acked) == 0:
		return
	case m.state == marksFailed:
		if now >= m.again {
			p.testMarks()
		}
		return
	}
	for k := len(acked) - 1; k >= 0 && acked[k].PN >= m.from; k-- {
		if acked[k].Tag&TagCapable != 0 {
			m.acked++
		} else {
			m.bare++
		}
	}
	counted := m.ect0 + m.ce - m.before
	switch {
	case int32(m.acked-counted) >= markTests:
		p.failMarks(now, fmt.Sprintf("of %d frames that left with ECT(0) %d arrived without", m.acked, m.acked-counted))
	case m.lost >= markLost && m.bare >= markBare:
		p.failMarks(now, fmt.Sprintf("%d frames with ECT(0) were lost, while those without passed", m.lost))
	case counted > 0 && m.state == marksTested:
		m.state, m.wait = marksGood, 0
	}
}

// add takes the peer's counts, which are modulo 2^32, once so many frames have left. It returns how many more frames
// are counted, and marked; none if the counts are older than those that came before them. It reports false of counts
// that cannot be.
func (m *marking) add(ect0, ce uint32, sent uint64) (frames, marked int32, ok bool) {
	frames, marked = int32(ect0+ce-m.ect0-m.ce), int32(ce-m.ce)
	if frames <= 0 {
		return 0, 0, true
	}
	if marked < 0 || marked > frames || m.total+uint64(frames) > sent {
		return 0, 0, false
	}
	m.ect0, m.ce, m.lost, m.bare, m.total = ect0, ce, 0, 0, m.total+uint64(frames)
	return frames, marked, true
}

// count takes the counts of an acknowledgement.
func (p *Tx) count(now mono.Time, ect0, ce uint32) {
	m := &p.Marking
	frames, marked, ok := m.add(ect0, ce, p.Ledger.NextPN())
	if !ok {
		p.failMarks(now, "the peer counts marks that cannot be")
	}
	if frames == 0 {
		return
	}
	p.Set.net.count.Loss.FramesMarked += uint64(marked)
	p.Set.net.Links[p.Link].Count.Loss.FramesMarked += uint64(marked)
	p.Count.Marked += uint64(marked)
	if m.asks() {
		p.Cwnd.OnMarks(now, int(frames), int(marked), &p.RTT)
	}
}

// failMarks has frames leave without ECT(0) for a while, which grows each time.
func (p *Tx) failMarks(now mono.Time, why string) {
	m := &p.Marking
	if !m.asks() {
		return
	}
	m.wait = min(max(2*m.wait, marksAgain), marksRarely)
	m.state, m.again = marksFailed, now.Add(m.wait)
	p.Set.net.count.Life.MarksFailed++
	p.Set.net.Links[p.Link].Count.Life.MarksFailed++
	p.Set.changed(p.Link, true, "marks of congestion (ECN) do not get through: "+why)
}
