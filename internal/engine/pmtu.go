package engine

import (
	"fmt"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The search for the path MTU (clauses 9.2 and 12.2), and whether frames travel as segments of UDP datagrams, which the
// kernel joins and cuts (GSO and GRO): joined says so.
//
//  1. grow asks for the best that both links take: in datagrams if they do, else in single frames;
//  2. sizeTimer repeats the Probe, and asks for less when nobody answers: single frames, then smaller ones;
//  3. sized takes what was answered into use; when single frames pass that are shorter than both links carry, it asks
//     for datagrams of that length too;
//  4. settleSize ends the search until raiseAt, when more might pass;
//  5. doubtSize begins anew when frames of some length, or in datagrams, are not acknowledged any more.

// Timers of the search.
const (
	sizeProbeEvery = 20 * time.Millisecond // between tries of one frame size
	sizeProbeTries = 3
	// between searches on a path that carries less than its links: probes may have been lost by chance
	sizeRaiseEvery = time.Minute
)

// pmtu is the frame size that a path uses, and the search for a better one.
type pmtu struct {
	mtu    int  // largest frame in use, bytes after the Ethernet header
	joined bool // frames but short ones are segments of datagrams

	target  int  // frame size being probed for; 0 when settled
	joining bool // in a datagram
	tries   int
	raising bool      // what is in use passes, as far as is known: the search is for more
	raiseAt mono.Time // when larger frames are tried again; Never: nothing better is to be had
	late    uint64    // nonce of a probe in a datagram that was given up, and may be answered yet
	alone   bool      // datagrams did not pass when single frames of that length did
	said    int       // by reportSize

	bigLost [len(frameSizes)]bigLoss // by step: does the path carry more?
	doubted bool                     // one of them is not zero
	flight  uint64                   // first packet number that was not sent when a loss of the latest flight was known
}

// frameSizes are the steps of clause 9.2, bytes after the Ethernet header.
var frameSizes = [...]int{65535, 32768, 16110, 9000, 8192, 4096, 1500, 1280, wire.MinFrame}

// limit is the largest frame both links can carry.
func (p *txPath) limit() int {
	return min(p.s.e.links[p.link].MTU, p.s.remoteLink(p.number).mtu)
}

// best is the largest frame both links can carry in the preferred way: in datagrams, if both take them (clause 12.2).
func (p *txPath) best() (size int, joined bool) {
	size = p.limit()
	if l := &p.s.e.links[p.link]; l.Super > 0 && p.s.remoteLink(p.number).joins && size-l.Overhead > wire.MinFrame {
		return size - l.Overhead, true
	}
	return size, false
}

// overhead is what the headers of a datagram take of the MTU.
func (p *txPath) overhead() int { return p.s.e.links[p.link].Overhead }

// fits reports whether the links still carry what is in use.
func (p *txPath) fits() bool {
	if !p.pmtu.joined {
		return p.pmtu.mtu <= p.limit()
	}
	size, joined := p.best()
	return joined && p.pmtu.mtu <= size
}

// atBest reports whether nothing better is to be had.
func (p *txPath) atBest() bool {
	size, joined := p.best()
	return p.pmtu.joined == joined && p.pmtu.mtu >= size
}

// grow looks for the largest frames that pass.
func (p *txPath) grow(now mono.Time) {
	size, joined := p.best()
	p.startSizeProbe(now, size, joined)
}

func (p *txPath) startSizeProbe(now mono.Time, size int, joined bool) {
	p.pmtu.target, p.pmtu.tries = 0, 0
	if size > p.pmtu.mtu || size > wire.MinFrame && joined != p.pmtu.joined {
		p.pmtu.target, p.pmtu.joining, p.probing.probeAt = size, joined, now
	} else {
		p.settleSize(now)
	}
}

// sizeTimer repeats the probe of a frame size, or gives that size up.
func (p *txPath) sizeTimer(now mono.Time) {
	switch {
	case p.pmtu.tries < sizeProbeTries:
		p.pmtu.tries++
		p.sendProbe(now, p.pmtu.target, p.pmtu.joining)
		p.probing.probeAt = now.Add(max(sizeProbeEvery, 2*p.rtt.SRTT()))
	case !p.pmtu.joining:
		p.smaller(now, smallerFrame(p.pmtu.target))
	case !p.pmtu.joined && p.pmtu.target+p.overhead() == p.pmtu.mtu: // single frames of that length pass
		p.pmtu.late = p.probing.nonce
		p.settleSize(now)
		p.goAlone()
		p.reportSize()
	default:
		p.pmtu.late = p.probing.nonce
		p.startSizeProbe(now, p.limit(), false)
	}
}

// sizeAnswered takes the echo of a probe of that size into use. late says that the probe had been given up.
func (p *txPath) sizeAnswered(now mono.Time, size int, joined, late bool) {
	best, can := p.best()
	asked := late && (!p.pmtu.joined || size > p.pmtu.mtu) || size == p.pmtu.target && joined == p.pmtu.joining
	if fits := joined && can && size <= best || !joined && size <= p.limit(); asked && fits && p.usable() {
		p.pmtu.mtu, p.pmtu.joined = size, joined
		p.sized(now)
	}
}

// smaller goes on with the next smaller frames, unless what is in use is no worse; then datagrams of that size are
// tried again.
func (p *txPath) smaller(now mono.Time, next int) {
	_, can := p.best()
	size := p.pmtu.mtu - p.overhead()
	switch {
	case p.pmtu.raising && p.pmtu.joined && next-p.overhead() <= p.pmtu.mtu:
		p.settleSize(now)
	case can && !p.pmtu.joined && next <= p.pmtu.mtu && size > wire.MinFrame:
		p.startSizeProbe(now, size, true)
	default:
		p.startSizeProbe(now, next, false)
	}
}

// smallerFrame is the next step down from size, 0 if there is none.
func smallerFrame(size int) int {
	for _, s := range frameSizes {
		if s < size {
			return s
		}
	}
	return 0
}

// sized ends a search, or looks whether datagrams pass in the size that was found.
func (p *txPath) sized(now mono.Time) {
	_, can := p.best()
	switch size := p.pmtu.mtu - p.overhead(); {
	case p.pmtu.joined:
		p.pmtu.alone = false
	case p.pmtu.mtu == p.limit():
		p.goAlone() // they were asked for first
	case can && size > wire.MinFrame:
		p.startSizeProbe(now, size, true)
		return
	}
	p.settleSize(now)
	p.reportSize()
}

// settleSize ends the search for the frame size.
func (p *txPath) settleSize(now mono.Time) {
	p.pmtu.target, p.pmtu.raiseAt, p.pmtu.raising = 0, mono.Never, false
	if !p.atBest() {
		p.pmtu.raiseAt = now.Add(sizeRaiseEvery)
	}
	if p.probing.probeAt = p.pmtu.raiseAt; p.state == PathSuspect {
		p.probing.probeAt = now.Add(probeEvery)
	}
}

// goAlone notes, and reports once, that datagrams do not pass: frames are sent without GSO.
func (p *txPath) goAlone() {
	if _, joined := p.best(); p.pmtu.alone || !joined {
		return
	}
	p.pmtu.alone = true
	e := p.s.e
	e.emit(Event{Kind: EvPath, Peer: p.s.peer.id, PeerName: p.s.peer.name, Link: uint8(p.link),
		Text: "frames go alone: UDP datagrams do not pass, although both ends take them"})
}

// reportSize says when a path carries less than its link: somebody's MTU is set too small.
func (p *txPath) reportSize() {
	e := p.s.e
	own, peer, size := e.links[p.link].MTU, p.s.remoteLink(p.number).mtu, p.pmtu.mtu
	if p.pmtu.joined {
		size += p.overhead()
	}
	if size == p.pmtu.said {
		return
	}
	if p.pmtu.said = size; size >= own {
		return
	}
	why := fmt.Sprintf("a device between drops larger ones, although both ends can send frames of %d", own)
	if peer < own {
		why = fmt.Sprintf("the peer's link carries %d and ours %d; set both to the same MTU", peer, own)
	}
	e.emit(Event{Kind: EvPath, Peer: p.s.peer.id, PeerName: p.s.peer.name, Link: uint8(p.link),
		Text: fmt.Sprintf("frames of %d bytes: %s", size, why)})
}

// bigLoss counts the frames longer than a step that were lost in a row, none being acknowledged in between, and of how
// many flights they were: a frame is of another flight than those before if it was sent after their loss was known.
type bigLoss struct{ frames, flights uint8 }

// What may be lost in a row while the path is alive before it is doubted that more than a step passes, or datagrams do,
// of which each takes frames of one flight with it. At 30 % loss four in a row happen once in a hundred frames, eight
// once in fifteen thousand, and smaller frames then cost more than they save; twelve, once in two million. A burst
// takes many frames, of whatever length, but those of one flight, or of two if it lasts.
const (
	bigLostMost    = 12
	bigLostFlights = 3
)

// doubtSize follows the fate of frames by their length (clause 9.2): a path that drops long ones silently still answers
// pings.
func (p *txPath) doubtSize(now mono.Time, f *flowctl.Sent, lost bool) {
	if !lost && !p.pmtu.doubted {
		return
	}
	size := int(f.Bytes) - frame.HeaderLen
	flight := uint8(0)
	if lost {
		if size > p.pmtu.mtu || size <= wire.MinFrame {
			return // of a length that is not in use any more, or that always passes
		}
		if f.PN >= p.pmtu.flight {
			p.pmtu.flight, flight = p.ledger.NextPN(), 1
		}
	}
	p.pmtu.doubted = false
	for i, step := range frameSizes {
		n := &p.pmtu.bigLost[i]
		switch {
		case step >= size:
		case !lost:
			*n = bigLoss{}
		case step < p.pmtu.mtu:
			n.frames, n.flights = min(n.frames+1, bigLostMost), min(max(n.flights+flight, 1), bigLostFlights)
			if n.frames == bigLostMost && n.flights == bigLostFlights && p.usable() {
				was := max(p.pmtu.mtu, p.pmtu.target)
				p.pmtu.raising = false
				p.pmtu.bigLost, p.pmtu.doubted, p.pmtu.mtu = [len(frameSizes)]bigLoss{}, false, step
				if p.pmtu.joined || p.pmtu.target != 0 && p.pmtu.joining {
					p.grow(now)
				} else {
					p.startSizeProbe(now, was, false)
				}
				return
			}
		}
		p.pmtu.doubted = p.pmtu.doubted || n.frames > 0
	}
}

// frameLimit is how long frames on the path are made, bytes after the Ethernet header. One byte above a power of two of
// pages costs the kernel another page and 5 to 10 % of throughput, more than the longer payload gains, so frames of 8
// to 16 KiB stop at 8 KiB, unless they share pages, or the payload is to be whole pages, which a few bytes less would
// halve.
func (p *txPath) frameLimit() int {
	if p.pmtu.mtu > 8192 && p.pmtu.mtu < 16384 && !p.pmtu.joined && p.shuf == 0 {
		return 8192
	}
	return p.pmtu.mtu
}

// joinedProbe is the bit of a probe's nonce that says that it travels in a datagram.
const joinedProbe = 1 << 31

// probed returns what the low half of a nonce says: the size in bytes after the Ethernet header, and whether the probe
// travels in a datagram. Size 0 is a probe of life.
func probed(nonce uint64) (size int, joined bool) {
	return int(uint32(nonce) &^ joinedProbe), nonce&joinedProbe != 0
}

// askSize sends the Probe of a frame size. One that travels in a datagram is sent in as many frames as fill a datagram,
// even beyond the bytes that the batch is to have: shorter datagrams may pass where those of data do not (clause 12.2).
func (s *session) askSize(now mono.Time, b *Batch, p *txPath) {
	w := &s.e.builder
	size, joined := probed(p.probing.nonce)
	times := 1
	if joined {
		times = min(s.e.links[p.link].Super/(size+frame.HeaderLen), cap(b.Frames))
	}
	if len(b.Frames)+times > cap(b.Frames) {
		s.paths.special |= 1 << p.link // in the next batch
		return
	}
	p.probing.probe = false
	for ; times > 0 && p.ledger.CanSend(); times-- {
		w.begin(s, p, b)
		w.seg = wire.Segment{Kind: wire.KindProbe, Place: p.probing.nonce}
		w.small(&w.seg)
		w.joined = joined
		w.padTo(size)
		w.finish(now)
	}
}

// run is how many frames in a row leave on a path that was picked: one, or as many as make a datagram, where frames
// travel as segments of datagrams (GSO) and as many are in flight already. The first frames of a burst are spread over
// the links, so that the peer can begin with each. The paper's schedulers pick the path of each frame.
func (p *txPath) run() int {
	if !p.pmtu.joined || !p.s.paths.measured {
		return 1
	}
	n := p.s.e.links[p.link].Super / (p.frameLimit() + frame.HeaderLen)
	if p.s.paths.inFlight < n {
		return 1
	}
	return n
}
