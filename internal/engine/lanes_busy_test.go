package engine_test

import (
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// busyNet is lanes between ends that share their processors with others: what comes to an end that is off its core
// waits, and so do its timers.
type busyNet struct {
	*laneNet
	stall func(end int) (runs, off time.Duration) // how long an end is off its core, and runs after that; nil: never
	apart time.Duration                           // between what comes by one lane and by the next
	off   [2]mono.Time                            // until when an end is off its core
	next  [2]mono.Time                            // when it is taken off again
	queue [2][]comingFrame
}

type comingFrame struct {
	at   mono.Time
	give func()
}

func newBusyNet(r *laneNet) *busyNet {
	b := &busyNet{laneNet: r}
	r.held = func(to, link int, give func()) {
		at := max(r.now.Add(r.hop), b.off[to]).Add(time.Duration(link) * b.apart)
		b.queue[to] = append(b.queue[to], comingFrame{at, give})
		slices.SortStableFunc(b.queue[to], func(x, y comingFrame) int { return int(x.at - y.at) })
	}
	return b
}

// run goes on until cond holds, for at most limit.
func (b *busyNet) run(limit time.Duration, cond func() bool) bool {
	for end := b.now.Add(limit); !cond(); {
		if b.now > end {
			return false
		}
		for i := range b.n {
			if b.stall != nil && b.now >= b.next[i] {
				runs, off := b.stall(i)
				b.off[i] = b.now.Add(off)
				b.next[i] = b.off[i].Add(runs)
			}
			if b.now < b.off[i] {
				continue
			}
			for len(b.queue[i]) > 0 && b.queue[i][0].at <= b.now {
				give := b.queue[i][0].give
				b.queue[i] = b.queue[i][1:]
				give()
			}
			for _, f := range b.take(i) {
				b.deliver(i, &f)
			}
		}
		next := end + 1
		for i := range b.n {
			if b.now < b.off[i] {
				next = min(next, b.off[i])
				continue
			}
			if next = min(next, b.n[i].e.NextTimeout()); len(b.queue[i]) > 0 {
				next = min(next, b.queue[i][0].at)
			}
			if b.stall != nil {
				next = min(next, b.next[i])
			}
		}
		b.now = max(b.now+1, next)
	}
	return true
}

// writes keeps so many writes of 64 KiB from node 0 under way, and returns how long the slowest of those took that were
// under way in a time.
func (b *busyNet) writes(c [2]engine.ConnID, depth int) func(d time.Duration, also func() bool) time.Duration {
	_, key := b.export(1, c[1], 64<<10, both)
	data := pattern(1, 64<<10)
	begun, token := map[uint64]mono.Time{}, uint64(len(b.n[0].done))
	return func(d time.Duration, also func() bool) (worst time.Duration) {
		end := b.now.Add(d)
		ok := b.run(max(time.Minute, 2*d), func() bool {
			for k, at := range begun {
				if st, done := b.n[0].done[k]; done {
					if worst = max(worst, b.now.Sub(at)); st != engine.OK {
						b.t.Fatalf("write %d: %v", k, st)
					}
					delete(begun, k)
				}
			}
			for len(begun) < depth {
				token++
				begun[token] = b.now
				b.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: token, Local: data, Key: key})
			}
			return b.now >= end && (also == nil || also())
		})
		if !ok {
			b.t.Fatal("it does not come to be")
		}
		for _, at := range begun {
			worst = max(worst, b.now.Sub(at))
		}
		return worst
	}
}

// Clause 21.7: the peer is off its core for about as long as a lane waits for its second probe, and then takes what
// waits lane by lane, and answers it. No lane is given up for an answer that comes behind those of others.
func TestAnswersThatComeOneByOneKillNoLane(t *testing.T) {
	for off := 2 * time.Millisecond; off < 12*time.Millisecond; off += 250 * time.Microsecond {
		r := newLaneNet(t, [2]int{8, 8}, true)
		r.hop = 50 * time.Microsecond
		c := r.connect(engine.DialOptions{})
		r.must("paths", 5*time.Second, func() bool { return r.good(0)+r.good(1) == 16 })
		r.settle()
		b := newBusyNet(r)
		load := b.writes(c, 8)
		load(20*time.Millisecond, nil)
		b.apart = 100 * time.Microsecond
		b.off[1] = r.now.Add(off)
		load(20*time.Millisecond, nil)
		if n := r.n[0].e.Count.Life.LaneDraws; n > 0 || r.good(0) < 8 {
			t.Errorf("the peer was off its core for %v: %d lanes are good, %d ports were drawn", off, r.good(0), n)
		}
	}
}
