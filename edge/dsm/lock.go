package dsm

import (
	"sync/atomic"

	"multiedge/internal/mono"
)

// Lock waits until no other rank has the lock of that number. Then this rank sees what its former holders have done
// before their Unlock, and what they saw. A lock that is held must not be locked again.
func (m *Memory) Lock(number int) {
	m.checkLock(number, false)
	m.locks[number].held = true
	if m.net == nil {
		m.model.Lock(number)
		return
	}
	start := mono.Now()
	home, at := m.lay.lock(number)
	me := uint64(m.rank + 1)
	m.post(home, order{verb: swap, there: at, operand: me, was: &m.was})
	m.readVector(home, at)
	tail, vector := m.was, m.lay.got+8
	switch last := tail & holder; {
	case last > uint64(m.ranks) || last == me:
		broken(home, "lock %d is held by rank %d", number, int64(last)-1)
	case last != 0:
		m.await(number, int(last)-1)
		vector = m.lay.granted
	case tail != 0 && atomic.LoadUint64(word(m.ctl, m.lay.got)) != m.hash(tail, vector):
		m.readVector(home, at) // the first was read before the swap
		if atomic.LoadUint64(word(m.ctl, m.lay.got)) != m.hash(tail, vector) {
			broken(home, "lock %d is free, and its vector or news are of another time", number)
		}
	}
	m.stats.Locks++
	m.stats.Lock += mono.Now().Sub(start)
	m.acquire(vector)
}

// The tail of a lock is 1 + the rank that is last in its queue. When it is free these bits are zero, and the others are
// a number that no other Unlock has used, or zero before the first. The hash beside vector and news is of that number
// and of both, so that they can be read at once with the swap of the tail: a fence would cost a round trip.
const holder = 0xff

// readVector reads hash, vector and news of a lock, and waits for all that was posted.
func (m *Memory) readVector(home, at int) {
	m.post(home, order{verb: read, here: m.lay.got, there: at + 8, n: 8 + m.lay.vectorNews()})
	m.wait()
}

// hash is of the tail of a free lock, and of its vector and news, which are at an offset of the control region.
func (m *Memory) hash(tail uint64, vector int) uint64 {
	h := mix(tail)
	for at := 0; at < m.lay.vectorNews(); at += 8 {
		h = mix(h ^ atomic.LoadUint64(word(m.ctl, vector+at)))
	}
	return h
}

// await waits for a lock behind another rank. Vector and news are in granted then.
func (m *Memory) await(number, last int) {
	m.stats.Waits++
	m.post(last, order{verb: write, here: m.lay.out, there: m.lay.asked + 8*m.rank, n: 8,
		note: noteAsked | uint32(number)})
	m.owing.out = true
	m.until(func() bool { return m.granted == number+1 })
	m.granted = 0
}

// Unlock gives a lock to the rank that waits for it. That rank sees what this one has written.
func (m *Memory) Unlock(number int) {
	m.checkLock(number, true)
	l := &m.locks[number]
	l.held = false
	if m.net == nil {
		m.model.Unlock(number)
		return
	}
	m.carry(false)
	start := mono.Now()
	m.take()
	home, at := m.lay.lock(number)
	if l.asked != 0 && m.owing.homes != 0 || m.owing.homes&^(1<<home) != 0 {
		m.wait()
	} // else what says that the lock is free is fenced behind all changes
	m.unlocks++
	tail := uint64(m.unlocks*MaxRanks+m.rank) << 8
	m.publish(tail)
	if l.asked == 0 {
		me := uint64(m.rank + 1)
		m.post(home, order{verb: write, here: m.lay.out, there: at + 8, n: 8 + m.lay.vectorNews()})
		m.post(home, order{verb: compareSwap, there: at, compare: me, operand: tail, fenced: true, was: &m.was})
		m.net.answer()
		if m.was == me {
			m.owing.homes = 0
			m.stats.Lock += mono.Now().Sub(start)
			return
		}
		m.wait() // for changes: another rank learns of them by itself
		m.until(func() bool { return l.asked != 0 })
	}
	to := int(l.asked) - 1
	l.asked = 0
	m.owing.out = true
	m.post(to, order{verb: write, here: m.lay.out + 8, there: m.lay.granted, n: m.lay.vectorNews(),
		note: noteGranted | uint32(number)})
	m.stats.Lock += mono.Now().Sub(start)
}

func (m *Memory) checkLock(number int, held bool) {
	switch {
	case number < 0 || number >= len(m.locks):
		mistake("lock %d; choose 0 to %d, or set Config.Locks", number, len(m.locks)-1)
	case m.locks[number].held && !held:
		mistake("Lock(%d): this rank has the lock", number)
	case !m.locks[number].held && held:
		mistake("Unlock(%d): this rank does not have the lock", number)
	}
}

// publish makes what is known here ready to be written elsewhere: the vector, the news, which are this rank and the end
// of its log, and in front of both their hash for a tail.
func (m *Memory) publish(tail uint64) {
	m.free()
	at := m.lay.out + 8
	for q, to := range m.known {
		atomic.StoreUint64(word(m.ctl, at+8*q), to)
	}
	at += 8 * m.ranks
	atomic.StoreUint64(word(m.ctl, at), uint64(m.rank))
	end := m.known[m.rank]
	for i := end - newsWords; i != end; i++ { // of a shorter log the first are of no use
		at += 8
		atomic.StoreUint64(word(m.ctl, at), *word(m.ctl, m.lay.ring+8*int(i%uint64(m.lay.log))))
	}
	atomic.StoreUint64(word(m.ctl, m.lay.out), m.hash(tail, m.lay.out+8))
}
