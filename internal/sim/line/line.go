package line

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"multiedge/internal/mono"
)

// Sim is a virtual clock with what is to happen: in order of time, and of one time in the order of the calls.
type Sim struct {
	Now  mono.Time
	rng  *rand.Rand
	heap agenda
	seq  int
}

type event struct {
	at  mono.Time
	seq int
	do  func()
}

type agenda []event

func (h agenda) Len() int { return len(h) }
func (h agenda) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h agenda) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *agenda) Push(x any)   { *h = append(*h, x.(event)) }
func (h *agenda) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// New returns a clock. The seed decides which packets a lossy line loses, and how late threads wake.
func New(seed uint64) *Sim {
	return &Sim{Now: mono.Time(time.Hour), rng: rand.New(rand.NewPCG(seed, 1))}
}

func (s *Sim) at(t mono.Time, do func()) {
	s.seq++
	heap.Push(&s.heap, event{max(t, s.Now), s.seq, do})
}

// Run goes on for a time.
func (s *Sim) Run(d time.Duration) {
	end := s.Now.Add(d)
	for len(s.heap) > 0 && s.heap[0].at <= end {
		e := heap.Pop(&s.heap).(event)
		s.Now = e.at
		e.do()
	}
	s.Now = end
}

// Wire is one direction of a line.
type Wire struct {
	Frame  time.Duration // that a packet occupies it
	Delay  time.Duration // from its end until it arrives
	Queue  int           // packets that may wait; 0: any number
	Loss   float64       // share of packets that are lost
	Police float64       // packets a second that a policer lets pass, without a queue; 0: there is none
	Burst  float64       // packets that it lets pass at once

	free     mono.Time
	tokens   float64
	policeAt mono.Time
}

// passes reports whether the policer lets a packet through.
func (w *Wire) passes(now mono.Time) bool {
	if w.Police == 0 {
		return true
	}
	w.tokens = min(w.Burst, w.tokens+now.Sub(w.policeAt).Seconds()*w.Police)
	w.policeAt = now
	if w.tokens < 1 {
		return false
	}
	w.tokens--
	return true
}

// send calls arrive when the packet arrives, if it does.
func (w *Wire) send(s *Sim, arrive func()) {
	start := max(s.Now, w.free)
	if w.Queue > 0 && int(start.Sub(s.Now)/w.Frame) >= w.Queue || !w.passes(s.Now) {
		return
	}
	w.free = start.Add(w.Frame)
	if s.rng.Float64() >= w.Loss {
		s.at(w.free.Add(w.Delay), arrive)
	}
}
