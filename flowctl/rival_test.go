package flowctl

import (
	"math"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// rival is a TCP sender with the window of RFC 9438 that always has something to send: an acknowledgement for each
// packet, loss by three later ones, HyStart.
type rival struct {
	s         *sim
	fwd, back *wire
	window    float64
	threshold float64
	peak      float64
	epoch     mono.Time
	next      uint64
	oldest    uint64
	ring      []uint8 // by packet: 0 free, 1 out, 2 acknowledged
	sentAt    []mono.Time
	inFlight  int
	recover   uint64
	srtt      time.Duration
	least     time.Duration
	arrivals  int
	ackAt     mono.Time
}

const rivalRing = 1 << 15

func newRival(s *sim, fwd, back *wire) *rival {
	c := &rival{s: s, fwd: fwd, back: back, window: 10, threshold: math.Inf(1), ring: make([]uint8, rivalRing),
		sentAt: make([]mono.Time, rivalRing), least: time.Hour, ackAt: s.now}
	s.at(s.now, c.poll)
	s.at(s.now, c.tick)
	return c
}

func (c *rival) poll() {
	for c.inFlight < int(c.window) && c.next-c.oldest < rivalRing-1 {
		pn := c.next
		c.next++
		c.ring[pn%rivalRing], c.sentAt[pn%rivalRing] = 1, c.s.now
		c.inFlight++
		c.fwd.send(c.s, func() { c.arrivals++; c.back.send(c.s, func() { c.ack(pn) }) })
	}
}

// tick is the retransmission timeout.
func (c *rival) tick() {
	if c.inFlight > 0 && c.s.now.Sub(c.ackAt) > max(200*time.Millisecond, 3*c.srtt) {
		for ; c.oldest < c.next; c.oldest++ {
			c.ring[c.oldest%rivalRing] = 0
		}
		c.inFlight, c.ackAt = 0, c.s.now
		c.threshold, c.peak, c.window, c.epoch = max(c.window*0.7, 2), c.window, 2, 0
		c.poll()
	}
	c.s.at(c.s.now.Add(50*time.Millisecond), c.tick)
}

func (c *rival) ack(pn uint64) {
	if pn < c.oldest || c.ring[pn%rivalRing] != 1 {
		return
	}
	c.ackAt = c.s.now
	rtt := c.s.now.Sub(c.sentAt[pn%rivalRing])
	if c.srtt == 0 {
		c.srtt = rtt
	}
	c.srtt += (rtt - c.srtt) / 8
	c.least = min(c.least, rtt)
	c.ring[pn%rivalRing] = 2
	c.inFlight--
	if lost := c.settle(pn); pn >= c.recover || !lost {
		c.grow(rtt)
	}
	c.poll()
}

// settle finds what was lost before pn, and narrows the window once in a flight.
func (c *rival) settle(pn uint64) (lost bool) {
	for ; c.oldest < c.next; c.oldest++ {
		st := c.ring[c.oldest%rivalRing]
		if st == 1 && c.oldest+3 > pn {
			break
		}
		if st == 1 {
			lost = true
			c.inFlight--
			if c.oldest >= c.recover {
				c.recover = c.next
				c.peak, c.epoch = c.window, c.s.now
				c.window = max(c.window*0.7, 2)
				c.threshold = c.window
			}
		}
		c.ring[c.oldest%rivalRing] = 0
	}
	return lost
}

func (c *rival) grow(rtt time.Duration) {
	if c.window < c.threshold {
		c.window++
		if rtt > c.least+max(c.least/8, 4*time.Millisecond) && c.window > 16 {
			c.threshold = c.window
		}
		return
	}
	if c.epoch == 0 {
		c.epoch, c.peak = c.s.now, max(c.peak, c.window)
	}
	t := c.s.now.Sub(c.epoch).Seconds()
	d := t + c.srtt.Seconds() - math.Cbrt(c.peak*0.3/0.4)
	w := min(max(0.4*d*d*d+c.peak, 0.7*c.peak+0.53*t/c.srtt.Seconds()), 1.5*c.window)
	if w > c.window {
		c.window += (w - c.window) / c.window
	} else {
		c.window += 0.01 / c.window
	}
}

// jain is Jain's index of fairness: 1 is even, 1/n is all for one.
func jain(v ...float64) float64 {
	var a, b float64
	for _, x := range v {
		a += x
		b += x * x
	}
	return a * a / float64(len(v)) / b
}

// stream makes a flow that always has something to send, in windows as large as the ledger of a long path.
func stream(t testing.TB, s *sim, c Congestion, fwd, back *wire) *flow {
	p := Profiles[0]
	p.Window, p.Congestion = 1<<30, c
	f := newFlow(t, s, math.MaxUint32, p, fwd, back)
	f.endless = true
	f.l = NewLedger(WindowBits)
	f.l.Configure(p.Loss(p.Acks))
	return f
}

func arrivals(flows []*flow) (n float64) {
	for _, f := range flows {
		n += float64(f.arrivals)
	}
	return n
}

func never() bool { return false }

// slowFrame is the time of a frame of 1514 bytes at 100 Mbit/s.
const slowFrame = 121120 * time.Nanosecond

// besides runs one rival, then flows of so many lanes that share one budget, and returns what each had of the line.
func besides(t *testing.T, c Cabled, shared func() *wire, delay time.Duration, lanes int, warm,
	span time.Duration) (ours, theirs float64) {
	s, w := newSim(1), shared()
	back := func() *wire { return &wire{frame: 100, delay: delay} }
	tcp := newRival(s, w, back())
	s.run(2*time.Second, never)
	cable := c.Cable()
	var flows []*flow
	for range lanes {
		flows = append(flows, stream(t, s, cable, w, back()))
	}
	s.run(warm, never)
	a, b, from := arrivals(flows), float64(tcp.arrivals), s.now
	s.run(span, never)
	line := float64(s.now.Sub(from)) / float64(slowFrame)
	return (arrivals(flows) - a) / line, (float64(tcp.arrivals) - b) / line
}

// One CUBIC window for all lanes shares a line evenly with a TCP of one flow, however many lanes there are.
func TestCubicBesideTCP(t *testing.T) {
	for _, c := range []struct {
		rtt   time.Duration
		depth float64 // of the buffer, in bandwidth-delay products
		lanes int
	}{{2, 0.25, 8}, {2, 4, 1}, {20, 1, 8}, {20, 4, 8}, {80, 0.25, 8}, {80, 1, 1}} {
		rtt := c.rtt * time.Millisecond
		queue := max(16, int(c.depth*float64(rtt)/float64(slowFrame)))
		warm := min(200*rtt, 10*time.Second) + time.Second
		ours, theirs := besides(t, CubicParams{}, func() *wire {
			return &wire{frame: slowFrame, delay: rtt / 2, queue: queue}
		}, rtt/2, c.lanes, warm, 2*warm)
		t.Logf("rtt %v, buffer of %.2f BDP, %d lanes: %.2f and %.2f, index %.3f", rtt, c.depth, c.lanes, ours, theirs,
			jain(ours, theirs))
		if j := jain(ours, theirs); j < 0.9 || ours+theirs < 0.85 {
			t.Errorf("rtt %v, buffer of %.2f BDP, %d lanes: %.2f and %.2f, index %.3f", rtt, c.depth, c.lanes, ours,
				theirs, j)
		}
	}
}

// A policer has no queue: only losses tell of it.
func TestCubicBesideTCPPoliced(t *testing.T) {
	const rtt = 20 * time.Millisecond
	ours, theirs := besides(t, CubicParams{}, func() *wire {
		return &wire{frame: 121, delay: rtt / 2, police: 1e9 / float64(slowFrame), burst: 50}
	}, rtt/2, 8, 5*time.Second, 10*time.Second)
	t.Logf("%.2f and %.2f, index %.3f", ours, theirs, jain(ours, theirs))
	if j := jain(ours, theirs); j < 0.8 {
		t.Errorf("%.2f and %.2f, index %.3f", ours, theirs, j)
	}
}

// Alone on 1 Gbit/s at 100 ms, 8260 frames on their way: nine tenths within 15 s.
func TestCubicAlone(t *testing.T) {
	const frame, rtt = slowFrame / 10, 100 * time.Millisecond
	s := newSim(1)
	cable := CubicParams{}.Cable()
	w := &wire{frame: frame, delay: rtt / 2, queue: int(rtt / frame)}
	var flows []*flow
	for range 8 {
		flows = append(flows, stream(t, s, cable, w, &wire{frame: 100, delay: rtt / 2}))
	}
	s.run(13*time.Second, never)
	a, from := arrivals(flows), s.now
	s.run(2*time.Second, never)
	use := (arrivals(flows) - a) * float64(frame) / float64(s.now.Sub(from))
	t.Logf("%.3f of the line", use)
	if use < 0.9 {
		t.Errorf("%.3f of the line between 13 and 15 s", use)
	}
}
