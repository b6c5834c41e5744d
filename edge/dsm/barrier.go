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

// meet carries changes home and waits for the others (DSM clause 3.7). The vector is in released then.
func (m *Memory) meet(how uint32) {
	m.release()
	start := mono.Now()
	m.barriers++
	if m.rank == 0 {
		m.gather(how)
	} else {
		m.free()
		n := m.bring(m.lay.out)
		m.post(0, order{verb: write, here: m.lay.out, there: m.lay.arrived + arrival*m.rank, n: n, note: how})
		m.until(func() bool { return m.released == m.barriers })
	}
	m.stats.Barriers++
	m.stats.Barrier += mono.Now().Sub(start)
	m.observed()
}

// gather is rank 0's part: it waits for all, and tells them the positions of all logs.
func (m *Memory) gather(how uint32) {
	for q := 1; q < m.ranks; q++ {
		m.until(func() bool { return m.arrived[q] != 0 })
		if m.arrived[q] != how {
			mistake("rank %d of %d and rank 0 wait for different things: one of them has returned, the other is at a "+
				"barrier", q, m.ranks)
		}
		if atomic.LoadUint64(word(m.ctl, m.lay.arrived+arrival*q+8)) != m.digest {
			mistake("ranks 0 and %d have made different calls of Alloc", q)
		}
	}
	m.bring(m.lay.arrived)
	m.free()
	at := m.lay.released + 16*m.ranks
	for q := range m.ranks {
		from := m.lay.arrived + arrival*q
		n := int(min(atomic.LoadUint64(word(m.ctl, from+16)), newsWords))
		atomic.StoreUint64(word(m.ctl, m.lay.released+8*q), atomic.LoadUint64(word(m.ctl, from)))
		atomic.StoreUint64(word(m.ctl, m.lay.released+8*(m.ranks+q)), uint64(n))
		copy(m.ctl[at:at+8*n], m.ctl[from+24:])
		at += 8 * n
	}
	clear(m.arrived) // before any rank can arrive at the next barrier
	for q := 1; q < m.ranks; q++ {
		m.post(q, order{verb: write, here: m.lay.released, there: m.lay.released, n: at - m.lay.released,
			note: noteReleased})
	}
	m.released++
}

// bring puts what this rank brings to a barrier at a place of the control region: its position, the digest, and its log
// since the last barrier if that is short. It returns the length in bytes.
func (m *Memory) bring(at int) int {
	base, to := m.bases[m.rank], m.known[m.rank]
	n := int(min(to-base, newsWords+1))
	if n > min(newsWords, m.lay.pull) {
		n = 0 // others read it
	}
	for i, v := range [...]uint64{to, m.digest, uint64(n)} {
		atomic.StoreUint64(word(m.ctl, at+8*i), v)
	}
	for i := range n {
		v := *word(m.ctl, m.lay.ring+8*int((base+uint64(i))%uint64(m.lay.log)))
		atomic.StoreUint64(word(m.ctl, at+24+8*i), v)
	}
	return 24 + 8*n
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
		if m.rank != 0 || m.arrived[rank] != 0 {
			broken(rank, "it arrived where it does not belong")
		}
		m.arrived[rank] = kind
	case kind == noteReleased && rank == 0:
		m.released++
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
