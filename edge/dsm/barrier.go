package dsm

import (
	"sync/atomic"

	"multiedge/internal/mono"
)

// Barrier waits until all ranks are in it. Then each sees what all have done before.
func (m *Memory) Barrier() {
	if m.net == nil {
		m.model.Barrier()
		return
	}
	m.meet(noteArrived)
	m.acquire(m.lay.released)
	m.follow.phase += stampStep
	for q := range m.bases {
		m.bases[q] = atomic.LoadUint64(word(m.ctl, m.lay.released+8*q))
	}
}

// finish is a last barrier, after which no rank uses the memory of another.
func (m *Memory) finish() {
	for number := range m.locks {
		if m.locks[number].held {
			mistake("the function of rank %d returned with lock %d; unlock it first", m.rank, number)
		}
	}
	if m.net == nil {
		m.observed()
		return
	}
	m.meet(noteFinished)
}

// arrivals is what this rank knows of how another came to barriers.
type arrivals struct {
	count    int    // barriers at which it arrived: at most one more than this rank
	finished bool   // its function had returned before the last of them
	changes  [2]int // words of changes that it brought to the last of them with an even and an odd number
}

// meet carries changes home, says to all others that this rank is here, and waits until all have said so (DSM clause
// 3.7). The vector is in released then.
func (m *Memory) meet(how uint32) {
	m.free()
	m.release(true)
	start := mono.Now()
	m.barriers++
	m.arrive(how)
	for q := range m.ranks {
		if q != m.rank {
			m.awaitRank(q, how)
		}
		atomic.StoreUint64(word(m.ctl, m.lay.released+8*q), m.position(q))
	}
	m.stats.Barriers++
	m.stats.Barrier += mono.Now().Sub(start)
	m.observed()
}

// arrive writes to each other rank what this one brings to a barrier. Changes go to those that follow any pages.
func (m *Memory) arrive(how uint32) {
	n := m.bring(m.lay.out)
	m.owing.out = true
	for k := 1; k < m.ranks; k++ {
		q := (m.rank + k) % m.ranks // not all at one
		o := order{verb: write, here: m.lay.out, there: m.lay.arrival(m.barriers, m.rank), n: n, note: how}
		if m.follow.packed > 0 && m.follow.ranks>>q&1 != 0 {
			o.n, o.note = arrivedChanges+8*m.follow.packed, how|uint32(m.follow.packed)
		}
		m.post(q, o)
	}
	m.follow.packed = 0
}

// awaitRank waits until rank q is at this barrier, at the same place of the same program.
func (m *Memory) awaitRank(q int, how uint32) {
	a := &m.arrived[q]
	m.until(func() bool { return a.count >= m.barriers })
	if over := a.finished && a.count == m.barriers; over != (how == noteFinished) {
		mistake("ranks %d and %d wait for different things: one of them has returned, the other is at a barrier",
			min(q, m.rank), max(q, m.rank))
	}
	at := m.lay.arrival(m.barriers, q)
	if atomic.LoadUint64(word(m.ctl, at+8)) != m.digest {
		mistake("ranks %d and %d have made different calls of Alloc", min(q, m.rank), max(q, m.rank))
	}
	m.heedFollows(q, at)
}

// position returns how long the log of a rank was when it came to this barrier.
func (m *Memory) position(q int) uint64 {
	if q == m.rank {
		return m.known[q]
	}
	return atomic.LoadUint64(word(m.ctl, m.lay.arrival(m.barriers, q)))
}

// bring puts what this rank brings to a barrier, but for changes, at a place of the control region: its position, the
// digest, its log since the last barrier if that is short, and pages that it begins to follow. It returns the length in
// bytes.
func (m *Memory) bring(at int) int {
	base, to := m.bases[m.rank], m.known[m.rank]
	n := int(min(to-base, newsWords+1))
	if n > min(newsWords, m.lay.pull) {
		n = 0 // others read it
	}
	for i := range n {
		v := *word(m.ctl, m.lay.ring+8*int((base+uint64(i))%uint64(m.lay.log)))
		atomic.StoreUint64(word(m.ctl, at+arrivedLog+8*i), v)
	}
	runs := m.tellFollows(at + arrivedFollows)
	for i, v := range [...]uint64{to, m.digest, uint64(n), uint64(runs)} {
		atomic.StoreUint64(word(m.ctl, at+8*i), v)
	}
	if runs > 0 {
		return arrivedFollows + 8*runs
	}
	return arrivedLog + 8*n
}

// until takes notifications until a condition holds.
func (m *Memory) until(ready func() bool) {
	for !ready() {
		rank, note, _ := m.net.next(true)
		m.heed(rank, note)
	}
}

// take takes the notifications that are there.
func (m *Memory) take() {
	for {
		rank, note, ok := m.net.next(false)
		if !ok {
			return
		}
		m.heed(rank, note)
	}
}

// heed does what a notification says. Nothing that another rank sends can make it do what this rank does not expect.
func (m *Memory) heed(rank int, note uint32) {
	number := int(note & noteNumber)
	switch kind := note &^ noteNumber; {
	case kind == noteArrived || kind == noteFinished:
		a := &m.arrived[rank]
		if a.finished || a.count > m.barriers || number > changeWords {
			broken(rank, "it arrived where it does not belong")
		}
		a.count++
		a.finished, a.changes[a.count&1] = kind == noteFinished, number
	case kind == noteAsked && number < len(m.locks) && m.locks[number].asked == 0:
		m.locks[number].asked = uint8(rank + 1)
	case kind == noteGranted && m.granted == 0 && number < len(m.locks):
		m.granted = number + 1
	case kind == noteEnding:
		fail(&told{lastWords(m.ctl, m.lay.ending, rank)})
	default:
		broken(rank, "it sent notification %#x", note)
	}
}
