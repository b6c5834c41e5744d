package line

import (
	"math"
	"time"

	"multiedge/internal/mono"
)

// TCP is a sender with the window of RFC 9438, and its receiver: an acknowledgement for each packet, loss by three
// later ones, HyStart.
type TCP struct {
	Arrived int // packets

	s         *Sim
	fwd, back *Wire
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
	ackAt     mono.Time
}

const ringSize = 1 << 15

// NewTCP returns a sender.
func NewTCP(s *Sim, fwd, back *Wire) *TCP {
	c := &TCP{s: s, fwd: fwd, back: back, window: 10, threshold: math.Inf(1), ring: make([]uint8, ringSize),
		sentAt: make([]mono.Time, ringSize), least: time.Hour, ackAt: s.Now}
	s.at(s.Now, c.poll)
	s.at(s.Now, c.tick)
	return c
}

func (c *TCP) poll() {
	for c.inFlight < int(c.window) && c.next-c.oldest < ringSize-1 {
		pn := c.next
		c.next++
		c.ring[pn%ringSize], c.sentAt[pn%ringSize] = 1, c.s.Now
		c.inFlight++
		c.fwd.send(c.s, func() { c.Arrived++; c.back.send(c.s, func() { c.ack(pn) }) })
	}
}

// tick is the retransmission timeout.
func (c *TCP) tick() {
	if c.inFlight > 0 && c.s.Now.Sub(c.ackAt) > max(200*time.Millisecond, 3*c.srtt) {
		for ; c.oldest < c.next; c.oldest++ {
			c.ring[c.oldest%ringSize] = 0
		}
		c.inFlight, c.ackAt = 0, c.s.Now
		c.threshold, c.peak, c.window, c.epoch = max(c.window*0.7, 2), c.window, 2, 0
		c.poll()
	}
	c.s.at(c.s.Now.Add(50*time.Millisecond), c.tick)
}

func (c *TCP) ack(pn uint64) {
	if pn < c.oldest || c.ring[pn%ringSize] != 1 {
		return
	}
	c.ackAt = c.s.Now
	rtt := c.s.Now.Sub(c.sentAt[pn%ringSize])
	if c.srtt == 0 {
		c.srtt = rtt
	}
	c.srtt += (rtt - c.srtt) / 8
	c.least = min(c.least, rtt)
	c.ring[pn%ringSize] = 2
	c.inFlight--
	if lost := c.settle(pn); pn >= c.recover || !lost {
		c.grow(rtt)
	}
	c.poll()
}

// settle finds what was lost before pn, and narrows the window once in a flight.
func (c *TCP) settle(pn uint64) (lost bool) {
	for ; c.oldest < c.next; c.oldest++ {
		st := c.ring[c.oldest%ringSize]
		if st == 1 && c.oldest+3 > pn {
			break
		}
		if st == 1 {
			lost = true
			c.inFlight--
			if c.oldest >= c.recover {
				c.recover = c.next
				c.peak, c.epoch = c.window, c.s.Now
				c.window = max(c.window*0.7, 2)
				c.threshold = c.window
			}
		}
		c.ring[c.oldest%ringSize] = 0
	}
	return lost
}

func (c *TCP) grow(rtt time.Duration) {
	if c.window < c.threshold {
		c.window++
		if rtt > c.least+max(c.least/8, 4*time.Millisecond) && c.window > 16 {
			c.threshold = c.window
		}
		return
	}
	if c.epoch == 0 {
		c.epoch, c.peak = c.s.Now, max(c.peak, c.window)
	}
	t := c.s.Now.Sub(c.epoch).Seconds()
	d := t + c.srtt.Seconds() - math.Cbrt(c.peak*0.3/0.4)
	w := min(max(0.4*d*d*d+c.peak, 0.7*c.peak+0.53*t/c.srtt.Seconds()), 1.5*c.window)
	if w > c.window {
		c.window += (w - c.window) / c.window
	} else {
		c.window += 0.01 / c.window
	}
}
