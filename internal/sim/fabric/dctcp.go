package fabric

import (
	"time"

	"multiedge/internal/mono"
)

// A model of TCP with DCTCP (Alizadeh and others, SIGCOMM 2010; RFC 8257) as data centres run it: every packet is
// acknowledged at once and says whether it was marked, losses are found by later packets that arrived (RACK-TLP, RFC
// 8985, with three packets for the time of reordering, as a flow has one path), the last packet is sent again as a
// probe, and flows of a host take turns at its NIC, which never has more than a few packets of them (fq and TCP small
// queues). It has no handshake, no delayed acknowledgements and no limit by the receiver, which only helps it.
const (
	startWindow = 10         // packets of a connection that begins (RFC 6928)
	gain        = 1.0 / 16   // of the share of marks (RFC 8257 section 4.2)
	reordering  = 3          // packets sent later that arrived: then one is lost
	leastWindow = 2          // packets, after marks
	firstTrip   = 50e3       // ns: the round trip before any was measured
	leastRTO    = 10_000_000 // ns: what the paper's section 4.2 sets RTO_min to
	mostRTO     = 1_000_000_000
)

// segment is what a packet of the model says.
type segment struct {
	stream int32
	num    int32 // of the packet of the stream that it is, or that it acknowledges
	order  uint32
	upto   int32 // of an acknowledgement: all before have arrived
	ack    bool
	echo   bool // the packet was marked
	sent   mono.Time
}

// sent is a packet of a stream that is not acknowledged.
type sent struct {
	at    mono.Time
	order uint32 // among all that were sent, those sent again too
	state sentState
}

type sentState uint8

const (
	flying sentState = iota
	lost
	acked
)

// stream is a connection of the model, both of its ends.
type stream struct {
	m     *model
	index int32
	from  *modelHost
	to    int32
	hash  [2]uint64 // forth and back

	// the sender
	flows     []*Flow // not acknowledged
	end       int32   // packets that there are to send, behind the last flow's
	una, next int32   // packets: the oldest not acknowledged; the next to be sent for the first time
	sent      []sent  // from una on
	lost      int     // of them
	inFlight  int
	order     uint32 // of the next to be sent
	newest    uint32 // the largest order that was acknowledged
	queued    bool   // it waits for its turn at the NIC
	again     uint64 // packets sent again

	window, threshold float64 // packets; slow start is below the threshold
	alpha             float64 // the share of marked packets
	marks, acks       int     // in this window of packets
	windowEnd         int32   // its end
	cut               bool    // the window was cut in it

	trip, spread time.Duration // smoothed round trip, and its deviation
	due          mono.Time     // of the timer
	alarm        mono.Time     // for which an event is scheduled
	tries        int           // times that it was due in a row

	recv receiver
}

// flowOf returns the flow that a packet is of.
func (s *stream) flowOf(num int32) *Flow {
	for _, f := range s.flows {
		if num < f.first+s.m.packets(f) {
			return f
		}
	}
	panic("BUG: fabric: a packet of no flow")
}

// may reports whether a packet may leave.
func (s *stream) may() bool {
	return float64(s.inFlight) < s.window && (s.lost > 0 || s.next < s.end)
}

// pull sends a packet: the oldest lost one, or the next. One may leave.
func (s *stream) pull() {
	num := s.next
	if s.lost > 0 {
		for num = s.una; s.sent[num-s.una].state != lost; num++ {
		}
		s.lost--
		s.again++
	} else {
		s.sent = append(s.sent, sent{})
		s.next++
	}
	s.transmit(num)
}

func (s *stream) transmit(num int32) {
	n := s.m.n
	k := &s.sent[num-s.una]
	*k = sent{at: n.Now, order: s.order}
	s.order++
	s.inFlight++
	f := s.flowOf(num)
	p := n.packet()
	p.from, p.to, p.hash = s.from.index, s.to, s.hash[0]
	p.size = s.m.payload(f, num) + s.m.form.Around
	p.capable = true
	p.seg = segment{stream: s.index, num: num, order: k.order, sent: n.Now}
	n.send(p)
	s.arm()
}

// acked takes an acknowledgement.
func (s *stream) acked(g *segment) {
	s.newest = max(s.newest, g.order)
	s.tries = 0
	fresh := 0
	if i := int(g.num - s.una); i >= 0 && i < len(s.sent) && s.sent[i].state != acked {
		if s.sent[i].state == lost {
			s.lost--
		} else {
			s.inFlight--
		}
		s.sent[i].state = acked
		fresh = 1
	}
	s.measure(s.m.n.Now.Sub(g.sent))
	s.pass(g.upto)
	if g.num+1 != g.upto {
		s.judge()
	}
	s.adapt(fresh, g.echo)
	s.arm()
	s.from.offer(s)
}

// pass forgets what the receiver has, with all before it.
func (s *stream) pass(upto int32) {
	for s.una < upto {
		switch s.sent[0].state {
		case flying:
			s.inFlight--
		case lost:
			s.lost--
		}
		s.sent = s.sent[1:]
		s.una++
	}
	for len(s.flows) > 0 && s.una >= s.flows[0].first+s.m.packets(s.flows[0]) {
		s.flows = s.flows[1:]
	}
}

// judge finds packets that are lost: others were sent later and have arrived.
func (s *stream) judge() {
	any := false
	for i := range s.sent {
		if k := &s.sent[i]; k.state == flying && k.order+reordering <= s.newest {
			k.state = lost
			s.inFlight--
			s.lost++
			any = true
		}
	}
	if any && !s.cut {
		s.reduce(0.5)
	}
}

// reduce cuts the window, once until what is in flight now is acknowledged.
func (s *stream) reduce(by float64) {
	s.cut = true
	s.window = max(leastWindow, s.window*(1-by))
	s.threshold = s.window
	s.windowEnd = s.next
	s.marks, s.acks = 0, 0
}

// adapt changes the window after an acknowledgement of so many packets.
func (s *stream) adapt(fresh int, marked bool) {
	s.acks += fresh
	if marked {
		s.marks += fresh
	}
	if s.una >= s.windowEnd {
		if s.acks > 0 {
			s.alpha += gain * (float64(s.marks)/float64(s.acks) - s.alpha)
		}
		s.marks, s.acks, s.cut, s.windowEnd = 0, 0, false, s.next
	}
	switch {
	case marked && !s.cut:
		marks, acks := s.marks, s.acks
		s.reduce(s.alpha / 2)
		s.marks, s.acks = marks, acks
	case s.cut || float64(s.inFlight+fresh) < s.window-1: // an unused window does not grow
	case s.window < s.threshold:
		s.window += float64(fresh)
	default:
		s.window += float64(fresh) / s.window
	}
}

// measure takes a round trip (RFC 6298).
func (s *stream) measure(trip time.Duration) {
	if s.trip == 0 {
		s.trip, s.spread = trip, trip/2
		return
	}
	s.spread += ((s.trip - trip).Abs() - s.spread) / 4
	s.trip += (trip - s.trip) / 8
}

// arm sets the timer: first for a probe, then for giving up everything in flight.
func (s *stream) arm() {
	n := s.m.n
	if s.una == s.next {
		s.due = never
		return
	}
	trip := s.trip
	if trip == 0 {
		trip = firstTrip
	}
	wait := 2 * trip
	if s.tries > 0 {
		wait = min(max(trip+4*s.spread, leastRTO)<<(s.tries-1), mostRTO)
	}
	if s.due = n.Now.Add(wait); s.due < s.alarm {
		s.alarm = s.due
		n.agenda.add(s.due, expires, s.index)
	}
}

// expired is called when the timer may be due.
func (s *stream) expired() {
	n := s.m.n
	if n.Now < s.alarm {
		return
	}
	s.alarm = never
	if n.Now < s.due {
		if s.due != never {
			s.alarm = s.due
			n.agenda.add(s.due, expires, s.index)
		}
		return
	}
	s.tries++
	if s.tries == 1 {
		s.probe()
		return
	}
	for i := range s.sent {
		if s.sent[i].state == flying {
			s.sent[i].state = lost
			s.inFlight--
			s.lost++
		}
	}
	if s.tries == 2 {
		s.threshold = max(s.window/2, leastWindow)
	}
	s.window, s.cut, s.windowEnd, s.marks, s.acks = 1, true, s.next, 0, 0
	s.arm()
	s.from.offer(s)
}

// probe sends the last packet that is not acknowledged again, whatever the window (tail loss probe).
func (s *stream) probe() {
	i := len(s.sent) - 1
	for s.sent[i].state == acked {
		i--
	}
	if s.sent[i].state == lost {
		s.lost--
	} else {
		s.inFlight--
	}
	s.again++
	s.transmit(s.una + int32(i))
}
