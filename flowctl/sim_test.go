package flowctl

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/mono"
)

// sim is a virtual clock: a heap of events ordered by (time, sequence).
type sim struct {
	now  mono.Time
	rng  *rand.Rand
	heap eventHeap
	seq  int
}

type event struct {
	at  mono.Time
	seq int
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newSim(seed uint64) *sim {
	return &sim{now: mono.Time(time.Hour), rng: rand.New(rand.NewPCG(seed, 1))}
}

func (s *sim) at(t mono.Time, do func()) {
	s.seq++
	heap.Push(&s.heap, event{max(t, s.now), s.seq, do})
}

// run steps until done or the events end or the limit is reached.
func (s *sim) run(limit time.Duration, done func() bool) {
	end := s.now.Add(limit)
	for len(s.heap) > 0 && !done() && s.heap[0].at <= end {
		e := heap.Pop(&s.heap).(event)
		s.now = e.at
		e.do()
	}
}

// wire is one direction of a link: a drop-tail queue in front of a rate, a delay, and faults.
type wire struct {
	frame     time.Duration // time a frame occupies it
	delay     time.Duration
	queue     int // frames that may wait; 0: any number
	loss, dup float64
	reorder   float64       // this part of the frames is late
	late      time.Duration // by up to this
	dark      func(now mono.Time) bool
	free      mono.Time
	busy      time.Duration
}

func (w *wire) send(s *sim, deliver func()) {
	start := max(s.now, w.free)
	if w.queue > 0 && w.frame > 0 && int(start.Sub(s.now)/w.frame) >= w.queue {
		return
	}
	w.free = start.Add(w.frame)
	w.busy += w.frame
	if s.rng.Float64() < w.loss || w.dark != nil && w.dark(s.now) {
		return
	}
	arrive := w.free.Add(w.delay)
	if s.rng.Float64() < w.reorder {
		arrive = arrive.Add(time.Duration(s.rng.Float64() * float64(w.late)))
	}
	s.at(arrive, deliver)
	if s.rng.Float64() < w.dup {
		s.at(arrive.Add(time.Duration(s.rng.IntN(300))*time.Microsecond), deliver)
	}
}

// flow is a sender with want frames and its receiver, over one path.
type flow struct {
	t        testing.TB
	s        *sim
	l        *Ledger
	rtt      RTT
	cwnd     Controller
	tr       Tracker
	pol      AckPolicy
	fwd      *wire
	back     []*wire // blocks take them in turn
	blocks   int
	want     uint32
	next     uint32
	again    []uint32 // tags to send again
	tags     map[uint32]bool
	fate     []byte                        // by packet number: 'o' out, 'a' acked, 'l' lost
	window   int                           // besides cwnd
	pause    func(now mono.Time) mono.Time // when the receiver's thread next runs
	timer    mono.Time
	pacedTo  mono.Time
	polTimer mono.Time
	spurious int
	losses   int
	arrivals int
	dups     int
	acked    []Sent
	lost     []Sent
}

func newFlow(t testing.TB, s *sim, want int, p Profile, fwd *wire, back ...*wire) *flow {
	f := &flow{t: t, s: s, l: NewLedger(DefaultSpan), fwd: fwd, back: back, want: uint32(want), window: p.Window,
		tags: map[uint32]bool{}, timer: mono.Never, polTimer: mono.Never}
	f.l.Configure(p.Loss(p.Acks))
	f.cwnd = p.Congestion.New()
	if shares, ok := f.cwnd.(Sharer); ok {
		shares.Share(true)
	}
	f.pol.Init(p.Acks)
	s.at(s.now, f.poll)
	return f
}

func (f *flow) done() bool { n, _ := f.l.InFlight(); return len(f.tags) == int(f.want) && n == 0 }

func (f *flow) poll() {
	for len(f.again) > 0 || f.next < f.want {
		n, _ := f.l.InFlight()
		if !f.l.CanSend() || n >= f.window || !f.cwnd.Allows(n, f.s.now) {
			if at := f.cwnd.NextSend(); at > f.s.now && n == 0 && f.pacedTo <= f.s.now {
				f.pacedTo = at
				f.s.at(at, f.poll)
			}
			break
		}
		f.sendOne()
	}
	if d := f.l.Deadline(); d < f.timer {
		f.timer = d
		f.s.at(d.Add(f.oversleep()), f.onTimer)
	}
}

// oversleep is how late a thread in user space wakes.
func (f *flow) oversleep() time.Duration { return time.Duration(f.s.rng.IntN(100)) * time.Microsecond }

func (f *flow) sendOne() {
	tag := f.next
	if len(f.again) > 0 {
		tag, f.again = f.again[0], f.again[1:]
	} else if f.next < f.want {
		f.next++
	}
	pn := f.l.Record(f.s.now, 8192, tag, true)
	f.fate = append(f.fate, 'o')
	f.fwd.send(f.s, func() { f.arrive(pn) })
}

func (f *flow) onTimer() {
	f.timer = mono.Never
	var probe bool
	f.lost, probe = f.l.OnTimeout(f.s.now, &f.rtt, f.lost[:0])
	f.judge()
	if probe {
		f.cwnd.OnTimeout(f.s.now)
		if len(f.again) == 0 && f.next == f.want {
			f.again = append(f.again, f.want) // a frame of no consequence
		}
		f.sendOne()
	}
	f.poll()
}

func (f *flow) judge() {
	for _, s := range f.lost {
		f.settle(s, 'l')
		if !f.tags[s.Tag] && s.Tag < f.want {
			f.again = append(f.again, s.Tag)
		}
	}
	f.losses += len(f.lost)
	f.cwnd.OnLoss(f.s.now, len(f.lost))
}

func (f *flow) settle(s Sent, fate byte) {
	if f.fate[s.PN] != 'o' {
		f.t.Fatalf("packet %d: %c after %c", s.PN, fate, f.fate[s.PN])
	}
	f.fate[s.PN] = fate
}

func (f *flow) arrive(pn uint64) {
	if f.pause != nil {
		if run := f.pause(f.s.now); run > f.s.now {
			f.s.at(run, func() { f.arrive(pn) })
			return
		}
	}
	if f.tr.Check(pn) != New {
		f.dups++
		return
	}
	f.arrivals++
	gap, _ := f.tr.Commit(pn, f.s.now)
	f.pol.OnFrame(f.s.now, true, gap)
	f.speak()
}

func (f *flow) speak() {
	if f.pol.Due(f.s.now) {
		f.sendBlock()
	} else if d := f.pol.Deadline(); d < f.polTimer {
		f.polTimer = d
		f.s.at(d.Add(f.oversleep()), func() { f.polTimer = mono.Never; f.speak() })
	}
}

func (f *flow) sendBlock() {
	b, ok := f.pol.Block(f.s.now, &f.tr, nil, MaxAckWords, false)
	if !ok {
		return
	}
	f.blocks++
	f.back[f.blocks%len(f.back)].send(f.s, func() { f.onBlock(&b) })
}

func (f *flow) onBlock(b *Block) {
	var res AckResult
	f.acked, f.lost, res = f.l.OnAck(f.s.now, b, &f.rtt, f.acked[:0], f.lost[:0])
	if res.Invalid {
		f.t.Fatalf("block %+v is invalid", b)
	}
	for _, s := range f.acked {
		f.settle(s, 'a')
		if s.Tag < f.want {
			f.tags[s.Tag] = true
		}
	}
	f.spurious += res.SpuriousLosses
	f.cwnd.OnAck(f.s.now, len(f.acked), &f.rtt)
	f.judge()
	f.poll()
}

// finish runs to the end and checks that every packet was settled once. It returns how long it took.
func (f *flow) finish(limit time.Duration) time.Duration {
	start := f.s.now
	f.s.run(limit, f.done)
	if !f.done() {
		n, _ := f.l.InFlight()
		f.t.Fatalf("not done after %v: %d of %d, %d in flight, %s", limit, len(f.tags), f.want, n, f)
	}
	for pn, fate := range f.fate {
		if fate == 'o' {
			f.t.Fatalf("packet %d was never settled", pn)
		}
	}
	return f.s.now.Sub(start)
}

func (f *flow) String() string {
	return fmt.Sprintf("sent %d lost %d spurious %d cwnd %.1f srtt %v allowance %v blocks %d", len(f.fate), f.losses,
		f.spurious,
		f.cwnd.Frames(), f.rtt.SRTT(), f.l.allowance(&f.rtt), f.blocks)
}

func (f *flow) spuriousShare() float64 { return float64(f.spurious) / float64(len(f.fate)) }

// tenGig is a link of 10 Gbit/s with 8 KiB frames.
func tenGig() *wire  { return &wire{frame: 6560, delay: 20 * time.Microsecond} }
func ackWire() *wire { return &wire{frame: 100, delay: 20 * time.Microsecond} }
