package fairness

import (
	"time"

	"multiedge/flowctl"
	"multiedge/internal/sim/line"
)

// frame is the time of a packet of 1514 bytes at 100 Mbit/s.
const frame = 121120 * time.Nanosecond

// Beside is a line of 100 Mbit/s that a link of some lanes shares with one TCP flow.
type Beside struct {
	RTT    time.Duration `json:"rtt_ns"`
	Buffer float64       `json:"buffer"` // in bandwidth-delay products; 0: a policer without a queue
	Lanes  int           `json:"lanes"`

	Edge  float64 `json:"edge"` // parts of the line
	TCP   float64 `json:"tcp"`
	Index float64 `json:"index"` // Jain's
}

// burst is how many packets a policer lets pass at once.
const burst = 50

// run simulates it. TCP begins two seconds before, and both have time to find their parts before these are counted.
func (b *Beside) run(seed uint64) {
	s := line.New(seed)
	w := &line.Wire{Frame: frame, Delay: b.RTT / 2, Queue: max(16, int(b.Buffer*float64(b.RTT)/float64(frame)))}
	if b.Buffer == 0 {
		w = &line.Wire{Frame: frame / 1000, Delay: b.RTT / 2, Police: 1e9 / float64(frame), Burst: burst}
	}
	back := func() *line.Wire { return &line.Wire{Frame: 100, Delay: b.RTT / 2} }
	tcp := line.NewTCP(s, w, back())
	s.Run(2 * time.Second)
	lanes := link(s, flowctl.IPCongestion("auto"), b.Lanes, w, back)
	warm := min(200*b.RTT, 10*time.Second) + time.Second
	s.Run(warm)
	edge, other := arrived(lanes), tcp.Arrived
	s.Run(2 * warm)
	most := float64(2*warm) / float64(frame)
	b.Edge, b.TCP = float64(arrived(lanes)-edge)/most, float64(tcp.Arrived-other)/most
	b.Index = line.Jain(b.Edge, b.TCP)
}

// link begins to send on so many lanes.
func link(s *line.Sim, c flowctl.Congestion, lanes int, fwd *line.Wire, back func() *line.Wire) (list []*line.Edge) {
	if shared, ok := c.(flowctl.Cabled); ok {
		c = shared.Cable()
	}
	for range lanes {
		list = append(list, line.NewEdge(s, c, fwd, back()))
	}
	return list
}

func arrived(lanes []*line.Edge) (n int) {
	for _, e := range lanes {
		n += e.Arrived
	}
	return n
}

// Alone is a line that one sender has for itself.
type Alone struct {
	Name  string        `json:"name"`
	Rate  float64       `json:"rate"` // bits per second
	RTT   time.Duration `json:"rtt_ns"`
	Loss  float64       `json:"loss"`
	Lanes int           `json:"lanes"` // 0: TCP
	Way   string        `json:"way"`   // to control congestion
	From  time.Duration `json:"from_ns"`
	Until time.Duration `json:"until_ns"` // between which it is counted

	Part float64 `json:"part"` // of the line
}

func (a *Alone) run(seed uint64) {
	s := line.New(seed)
	each := time.Duration(float64(frame) * 100e6 / a.Rate)
	w := &line.Wire{Frame: each, Delay: a.RTT / 2, Queue: int(a.RTT/each) + 64, Loss: a.Loss}
	back := func() *line.Wire { return &line.Wire{Frame: 1000, Delay: a.RTT / 2, Loss: a.Loss} }
	var count func() int
	if a.Lanes == 0 {
		tcp := line.NewTCP(s, w, back())
		count = func() int { return tcp.Arrived }
	} else {
		lanes := link(s, flowctl.IPCongestion(a.Way), a.Lanes, w, back)
		count = func() int { return arrived(lanes) }
	}
	s.Run(a.From)
	was := count()
	s.Run(a.Until - a.From)
	a.Part = float64(count()-was) * float64(each) / float64(a.Until-a.From)
}
