// Package path has local links and the paths from them to a peer: which links a path joins, whether it lives, how long
// its frames may be, what is in flight on it and lost. It knows no connections: what frames carry is a tag to it.
package path

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine/count"
	"multiedge/internal/frame"
	"multiedge/internal/hist"
	"multiedge/internal/mono"
	"multiedge/sched"
)

// MaxLinks is the number of local links one endpoint can use (paper §2.5: up to 64, the width of a bit set).
const MaxLinks = 64

// LinkConfig describes one local link. Engine copies it.
type LinkConfig struct {
	Name    string
	Addr    frame.Addr
	MTU     int     // of the interface: bytes after the Ethernet header
	RxSlots int     // frames the receive side holds before the kernel drops; announced to peers as a limit
	Shuffle uint16  // header bytes the peer must shuffle past for page alignment (remap); 0: driver scatters or copies
	Weight  float64 // static weight for wsrr and wd; zero: 1

	// Super is how many bytes of frames of one length and session the driver sends as one datagram (GSO, clause 12) if
	// they follow one another, and Overhead what its headers take of the MTU. Zero: it neither sends nor takes
	// datagrams.
	Super, Overhead int
	// Below is what headers take of the MTUs on the way, of an IP link: its frame sizes are searched in MTUs (clause
	// 21.6)
	Below int
	// Congestion is how congestion is controlled on paths of the link; nil: as the profile says. Links of one Group, of
	// which it is shared, are lanes of one IP link.
	Congestion flowctl.Congestion
	Group      string
	// ECN: its frames ask routers for marks (clause 21.12)
	ECN bool
	// Ports: it is a lane, which asks from two ports of its own, of which another can be drawn (clause 21.9)
	Ports bool

	Inside bool // it leads to the shards of this node and nowhere else (self.go)
}

// Link is one local interface.
type Link struct {
	LinkConfig
	Up      bool
	Blocked bool
	Count   count.Counters

	RoundTrips *hist.Histogram // made with the link: most of MaxLinks are none

	ports ports
}

// Set is the paths of a session, by local link to send and by the peer's to receive (clause 2.2), and what is known of
// the links of both ends that they join.
type Set struct {
	net   *Net
	owner Owner

	Tx       [MaxLinks]*Tx // one that was dropped stays, for its packet numbers
	Rx       [MaxLinks]*Rx
	TxMask   uint64 // tx paths in use
	RxMask   uint64
	Special  uint64 // tx paths with a ping, probe or echo to send
	doubted  uint64 // tx paths of IP links with a probe unanswered, which another path has not been compared with yet
	Sched    sched.Scheduler
	measured bool // the scheduler's weights are the measured windows
	InFlight int  // eliciting frames, all paths
	far      int  // how many there may be because paths are long
	// of IP links, by their groups: what the paths of all lanes share
	cables map[string]flowctl.Congestion

	FramesLost uint64

	HeardFrom uint8  // the peer's link that the latest frame came from
	HeardVia  uint64 // local links on which the peer was heard since the latest keep-alive

	Hints     *Hints           // what Hello says of the peer's links
	Sealed    bool             // the peer announces its links (clause 10.4)
	Links     [MaxLinks]Remote // of the peer, as announced in a sealed session
	announced uint64           // which of them there are; a part of known
	Known     uint64           // which there are or were
	Seen      [MaxLinks]uint64 // per local link: the peer's links whose frames arrived there

	Asked   bool                 // this end asked for the session
	ipLinks uint64               // of the peer: those that are or were IP links
	places  map[place]frame.Addr // where they are; nil: none is known (moves.go)
	from    frame.Addr           // where the latest authentic frame of an IP link came from
}

// Owner is told what becomes of what paths carried, a batch of frames at a time, and of the paths themselves.
type Owner struct {
	Acked func(now mono.Time, frames []flowctl.Sent)
	Lost  func(frames []flowctl.Sent)
	// Changed says what to tell people of a path. Minor: it became suspect, or good again after that, or the peer's
	// port is another.
	Changed func(link int, minor bool, text string)
}

// Net is what the paths of all sessions share: the links of this node.
type Net struct {
	cfg   Config
	Links [MaxLinks]Link
	Up    uint64 // links that are configured
	rand  *rand.Rand
	count *count.Counters
	drawn uint64 // lanes of which another port is to be drawn

	// for one call
	acked, Lost []flowctl.Sent
	Words       []uint64
	block       flowctl.Block
}

// Config is what paths need to know. All of it is set.
type Config struct {
	Profile flowctl.Profile
	Framing frame.Framing
	Sealed  bool // frames are sealed
}

// Hints is what Hello says of a peer's links, and which of them proved to be there. It says which of our links reach
// which of its; it is a hint, and only the session's handshake commits to anything.
type Hints struct {
	Heard  Heard                // per local link: the peer's links heard there
	Newest [MaxLinks]uint8      // per local link: the one heard last
	Remote map[uint8]Remote     // the peer's links by their number
	Named  uint64               // which of them there are
	Proved [MaxLinks]frame.Addr // per local link: the peer's address on which a session had a good path last

	Endpoints []frame.Addr // at which the peer may be reached over IP, by configuration; replaced, never changed
	// networks in which its IP addresses must be, by configuration; none: all are. Replaced, never changed
	Allow []netip.Prefix
}

// Init makes a Net without links.
func (n *Net) Init(cfg Config, rng *rand.Rand, counts *count.Counters) {
	*n = Net{cfg: cfg, rand: rng, count: counts}
}

// Framing is that of all links.
func (n *Net) Framing() frame.Framing { return n.cfg.Framing }

// Init makes an empty set, whose frames take the paths that sc says.
func (s *Set) Init(net *Net, hints *Hints, sc sched.Scheduler, o Owner) {
	s.net, s.Hints, s.Sched, s.owner = net, hints, sc, o
	_, s.measured = sc.(sched.Measured)
}

func (s *Set) changed(link int, minor bool, text string) { s.owner.Changed(link, minor, text) }

// BytesInFlight is what was sent on all paths and is not acknowledged.
func (s *Set) BytesInFlight() (bytes int) {
	for m := s.TxMask; m != 0; m &= m - 1 {
		_, n := s.Tx[bits.TrailingZeros64(m)].Ledger.InFlight()
		bytes += n
	}
	return bytes
}

// Full reports whether as many frames are in flight as may be. Windows of long paths may need more than a profile has
// for a session (clause 8.7).
func (s *Set) Full() bool { return s.InFlight >= max(s.net.cfg.Profile.Window, s.far) }

// widen follows the windows of long paths.
func (s *Set) widen() {
	if s.net.cfg.Profile.Most > 0 {
		return
	}
	sum := 0.0
	for m := s.TxMask; m != 0; m &= m - 1 {
		p := s.Tx[bits.TrailingZeros64(m)]
		if b, ok := p.Cwnd.(flowctl.Budgeted); ok && p.Usable() {
			sum += b.Budget()
		}
	}
	s.far = int(2 * sum) // the windows are to be found full, or they would not grow
}

// Pick returns the path for the next data frame, nil if it must wait.
func (s *Set) Pick(now mono.Time) *Tx {
	if s.Full() {
		return nil
	}
	var live, good, room uint64
	for m := s.TxMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		p := s.Tx[i]
		if !p.Usable() || p.Cwnd.Frames() == 0 { // one that rests (clause 21.8) is not waited for
			continue
		}
		live |= 1 << i
		if p.State == StateGood {
			good |= 1 << i
		}
		if p.Room(now) {
			room |= 1 << i
		}
	}
	if good != 0 {
		live = good
	}
	i, ok := s.Sched.Pick(live, room&live)
	if !ok {
		return nil
	}
	return s.Tx[i]
}

// Refresh makes a path for every local link that reaches the peer, and follows changes of the peer's side.
func (s *Set) Refresh(now mono.Time) {
	net := s.net
	for m := net.Up; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.TxMask&(1<<i) == 0 {
			if j, ok := s.first(now, i); ok {
				s.add(now, i, j)
			}
			continue
		}
		p := s.Tx[i]
		switch r := s.RemoteLink(p.Number); {
		case r.Slots == 0:
			s.Drop(now, i, "peer's link is gone")
			if j, ok := s.first(now, i); ok {
				s.add(now, i, j)
			}
		case !s.isIP(i) && p.To != r.Addr || !p.fits() || p.slots != usableSlots(r.Slots):
			s.Drop(now, i, "peer's link changed")
			s.add(now, i, p.Number)
		case p.State == StateGood:
			if p.PMTU.target == 0 && !p.atBest() {
				p.grow(now)
			}
			p.spread(now)
		}
	}
}

func (s *Set) DropAll(now mono.Time) {
	for m := s.TxMask; m != 0; m &= m - 1 {
		s.Drop(now, bits.TrailingZeros64(m), "session over")
	}
}

// NewHints returns those of a peer of which nothing was heard, with a period of Hello.
func NewHints(period time.Duration) Hints {
	return Hints{Remote: map[uint8]Remote{}, Heard: NewHeard(period)}
}
