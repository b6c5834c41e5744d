package path

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
	MTU    int  // largest frame in use, bytes after the Ethernet header
	Joined bool // frames but short ones are segments of datagrams

	target  int  // frame size being probed for; 0 when settled
	joining bool // in a datagram
	tries   int
	raising bool      // what is in use passes, as far as is known: the search is for more
	raiseAt mono.Time // when larger frames are tried again; Never: nothing better is to be had
	late    uint64    // nonce of a probe in a datagram that was given up, and may be answered yet
	alone   bool      // datagrams did not pass when single frames of that length did
	said    int       // by reportSize

	bigLost [mostSizes]bigLoss // by step: does the path carry more?
	doubted bool               // one of them is not zero
	flight  uint64             // first packet number that was not sent when a loss of the latest flight was known
}

// frameSizes are the steps of clause 9.2, bytes after the Ethernet header.
var frameSizes = [...]int{65535, 32768, 16110, 9000, 8192, 4096, 1500, 1280, wire.MinFrame}

// ipSizes are the steps on IP links (clause 21.6): MTUs of networks, tunnels among them. The last stands for the least
// frame.
var ipSizes = [...]int{65535, 32768, 16384, 9000, 8896, 8500, 4096, 1500, 1480, 1460, 1450, 1420, 1400, 1360, 1280, 0}

const mostSizes = max(len(frameSizes), len(ipSizes))

// sizes returns how many steps the path's search has, and size the k-th of them.
func (p *Tx) sizes() int {
	if p.Set.net.Links[p.Link].Below > 0 {
		return len(ipSizes)
	}
	return len(frameSizes)
}

func (p *Tx) size(k int) int {
	if below := p.Set.net.Links[p.Link].Below; below > 0 {
		return max(ipSizes[k]-below, wire.MinFrame)
	}
	return frameSizes[k]
}

// limit is the largest frame both links can carry.
func (p *Tx) limit() int {
	return min(p.Set.net.Links[p.Link].MTU, p.Set.RemoteLink(p.Number).MTU)
}

// best is the largest frame both links can carry in the preferred way: in datagrams, if both take them (clause 12.2).
func (p *Tx) best() (size int, joined bool) {
	size = p.limit()
	if l := &p.Set.net.Links[p.Link]; l.Super > 0 && p.Set.RemoteLink(p.Number).Joins &&
		size-l.Overhead > wire.MinFrame {
		return size - l.Overhead, true
	}
	return size, false
}

// overhead is what the headers of a datagram take of the MTU.
func (p *Tx) overhead() int { return p.Set.net.Links[p.Link].Overhead }

// fits reports whether the links still carry what is in use.
func (p *Tx) fits() bool {
	if !p.PMTU.Joined {
		return p.PMTU.MTU <= p.limit()
	}
	size, joined := p.best()
	return joined && p.PMTU.MTU <= size
}

// atBest reports whether nothing better is to be had.
func (p *Tx) atBest() bool {
	size, joined := p.best()
	return p.PMTU.Joined == joined && p.PMTU.MTU >= size
}

// grow looks for the largest frames that pass.
func (p *Tx) grow(now mono.Time) {
	size, joined := p.best()
	p.startSizeProbe(now, size, joined)
}

func (p *Tx) startSizeProbe(now mono.Time, size int, joined bool) {
	p.PMTU.target, p.PMTU.tries = 0, 0
	if size > p.PMTU.MTU || size > wire.MinFrame && joined != p.PMTU.Joined {
		p.PMTU.target, p.PMTU.joining, p.Probing.probeAt = size, joined, now
	} else {
		p.settleSize(now)
	}
}

// sizeTimer repeats the probe of a frame size, or gives that size up.
func (p *Tx) sizeTimer(now mono.Time) {
	switch {
	case p.PMTU.tries < sizeProbeTries:
		p.PMTU.tries++
		p.sendProbe(now, p.PMTU.target, p.PMTU.joining)
		p.Probing.probeAt = now.Add(max(sizeProbeEvery, 2*p.RTT.SRTT()))
	case !p.PMTU.joining:
		p.smaller(now, p.smallerFrame(p.PMTU.target))
	case !p.PMTU.Joined && p.PMTU.target+p.overhead() == p.PMTU.MTU: // single frames of that length pass
		p.PMTU.late = p.Probing.Nonce
		p.settleSize(now)
		p.goAlone()
		p.reportSize()
	default:
		p.PMTU.late = p.Probing.Nonce
		p.startSizeProbe(now, p.limit(), false)
	}
}

// sizeAnswered takes the echo of a probe of that size into use. late says that the probe had been given up.
func (p *Tx) sizeAnswered(now mono.Time, size int, joined, late bool) {
	best, can := p.best()
	asked := late && (!p.PMTU.Joined || size > p.PMTU.MTU) || size == p.PMTU.target && joined == p.PMTU.joining
	if fits := joined && can && size <= best || !joined && size <= p.limit(); asked && fits && p.Usable() {
		p.PMTU.MTU, p.PMTU.Joined = size, joined
		p.sized(now)
	}
}

// smaller goes on with the next smaller frames, unless what is in use is no worse; then datagrams of that size are
// tried again.
func (p *Tx) smaller(now mono.Time, next int) {
	_, can := p.best()
	size := p.PMTU.MTU - p.overhead()
	switch {
	case p.PMTU.raising && p.PMTU.Joined && next-p.overhead() <= p.PMTU.MTU:
		p.settleSize(now)
	case can && !p.PMTU.Joined && next <= p.PMTU.MTU && size > wire.MinFrame:
		p.startSizeProbe(now, size, true)
	default:
		p.startSizeProbe(now, next, false)
	}
}

// smallerFrame is the next step down from size, 0 if there is none.
func (p *Tx) smallerFrame(size int) int {
	for k := range p.sizes() {
		if s := p.size(k); s < size {
			return s
		}
	}
	return 0
}

// sized ends a search, or looks whether datagrams pass in the size that was found.
func (p *Tx) sized(now mono.Time) {
	_, can := p.best()
	switch size := p.PMTU.MTU - p.overhead(); {
	case p.PMTU.Joined:
		p.PMTU.alone = false
	case p.PMTU.MTU == p.limit():
		p.goAlone() // they were asked for first
	case can && size > wire.MinFrame:
		p.startSizeProbe(now, size, true)
		return
	}
	p.settleSize(now)
	p.reportSize()
}

// settleSize ends the search for the frame size.
func (p *Tx) settleSize(now mono.Time) {
	p.PMTU.target, p.PMTU.raiseAt, p.PMTU.raising = 0, mono.Never, false
	if !p.atBest() {
		p.PMTU.raiseAt = now.Add(sizeRaiseEvery)
	}
	if p.Probing.probeAt = p.PMTU.raiseAt; p.State == StateSuspect {
		p.Probing.probeAt = now.Add(probeEvery)
	}
}

// goAlone notes, and reports once, that datagrams do not pass: frames are sent without GSO.
func (p *Tx) goAlone() {
	if _, joined := p.best(); p.PMTU.alone || !joined {
		return
	}
	p.PMTU.alone = true
	p.Set.changed(p.Link, false, "frames go alone: UDP datagrams do not pass, although both ends take them")
}

// reportSize says when a path carries less than its link: somebody's MTU is set too small.
func (p *Tx) reportSize() {
	own, peer, size := p.Set.net.Links[p.Link].MTU, p.Set.RemoteLink(p.Number).MTU, p.PMTU.MTU
	if p.PMTU.Joined {
		size += p.overhead()
	}
	if size == p.PMTU.said {
		return
	}
	if p.PMTU.said = size; size >= own {
		return
	}
	why := fmt.Sprintf("a device between drops larger ones, although both ends can send frames of %d", own)
	if peer < own {
		why = fmt.Sprintf("the peer's link carries %d and ours %d; set both to the same MTU", peer, own)
	}
	p.Set.changed(p.Link, false, fmt.Sprintf("frames of %d bytes: %s", size, why))
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
func (p *Tx) doubtSize(now mono.Time, f *flowctl.Sent, lost bool) {
	if !lost && !p.PMTU.doubted {
		return
	}
	size := int(f.Bytes) - frame.HeaderLen
	flight := uint8(0)
	if lost {
		if size > p.PMTU.MTU || size <= wire.MinFrame {
			return // of a length that is not in use any more, or that always passes
		}
		if f.PN >= p.PMTU.flight {
			p.PMTU.flight, flight = p.Ledger.NextPN(), 1
		}
	}
	p.PMTU.doubted = false
	for i := range p.sizes() {
		step, n := p.size(i), &p.PMTU.bigLost[i]
		switch {
		case step >= size:
		case !lost:
			*n = bigLoss{}
		case step < p.PMTU.MTU:
			n.frames, n.flights = min(n.frames+1, bigLostMost), min(max(n.flights+flight, 1), bigLostFlights)
			if n.frames == bigLostMost && n.flights == bigLostFlights && p.Usable() {
				was := max(p.PMTU.MTU, p.PMTU.target)
				p.PMTU.raising = false
				p.PMTU.bigLost, p.PMTU.doubted, p.PMTU.MTU = [mostSizes]bigLoss{}, false, step
				if p.PMTU.Joined || p.PMTU.target != 0 && p.PMTU.joining {
					p.grow(now)
				} else {
					p.startSizeProbe(now, was, false)
				}
				return
			}
		}
		p.PMTU.doubted = p.PMTU.doubted || n.frames > 0
	}
}

// FrameLimit is how long frames on the path are made, bytes after the Ethernet header. One byte above a power of two of
// pages costs the kernel another page and 5 to 10 % of throughput, more than the longer payload gains, so frames of 8
// to 16 KiB stop at 8 KiB, unless they share pages, or the payload is to be whole pages, which a few bytes less would
// halve.
func (p *Tx) FrameLimit() int {
	if p.PMTU.MTU > 8192 && p.PMTU.MTU < 16384 && !p.PMTU.Joined && p.Shuf == 0 {
		return 8192
	}
	return p.PMTU.MTU
}

// joinedProbe is the bit of a probe's nonce that says that it travels in a datagram.
const joinedProbe = 1 << 31

// Probed returns what the low half of a nonce says: the size in bytes after the Ethernet header, and whether the probe
// travels in a datagram. Size 0 is a probe of life.
func Probed(nonce uint64) (size int, joined bool) {
	return int(uint32(nonce) &^ joinedProbe), nonce&joinedProbe != 0
}

// Run is how many frames in a row leave on a path that was picked: one, or as many as make a datagram, where frames
// travel as segments of datagrams (GSO) and as many are in flight already. The first frames of a burst are spread over
// the links, so that the peer can begin with each. The paper's schedulers pick the path of each frame.
func (p *Tx) Run() int {
	if !p.PMTU.Joined || !p.Set.measured {
		return 1
	}
	n := p.Set.net.Links[p.Link].Super / (p.FrameLimit() + frame.HeaderLen)
	if p.Set.InFlight < n {
		return 1
	}
	return n
}
