package dsm

import (
	"sync/atomic"

	"multiedge/internal/mono"
)

// acquire learns what others have changed up to the vector at an offset of the control region: it reads the new parts
// of their logs, all at once, and makes the pages that they name stale (DSM clauses 3.3 and 3.4).
func (m *Memory) acquire(vector int) {
	m.settle()
	start, news, reads, all := mono.Now(), false, false, false
	for q := range m.ranks {
		n := m.behind(q, vector)
		switch {
		case n == 0:
			continue
		case n > uint64(m.lay.pull):
			all = true
		case vector == m.lay.released && m.landNews(q, int(n)):
		case vector != m.lay.released && m.landEnd(q, int(n), vector):
		default:
			m.readLog(q, int(n))
			reads = true
		}
		news = true
	}
	if !news {
		return
	}
	if reads { // else nothing is to come: what this rank wrote to others is not waited for
		m.wait()
	}
	for q := range m.ranks {
		n := m.behind(q, vector)
		var c changes
		if vector == m.lay.released {
			c = m.brought(q)
		}
		if n > 0 && n <= uint64(m.lay.pull) && !m.notices(q, int(n), &c) {
			all = true
		}
		m.known[q] += n
	}
	if all {
		m.stats.Overruns++
		m.crowded()
		for p := range m.state {
			m.notice(p)
		}
	}
	m.stats.Acquire += mono.Now().Sub(start)
}

// behind returns how many words of the log of q are not known here.
func (m *Memory) behind(q, vector int) uint64 {
	if to := atomic.LoadUint64(word(m.ctl, vector+8*q)); q != m.rank && to > m.known[q] {
		return to - m.known[q]
	}
	return 0
}

// readLog reads the next n words of the log of q.
func (m *Memory) readLog(q, n int) {
	from := int(m.known[q] % uint64(m.lay.log))
	here := m.lay.landing + 8*m.lay.pull*q
	k := min(n, m.lay.log-from)
	m.post(q, order{verb: read, here: here, there: m.lay.ring + 8*from, n: 8 * k})
	if k < n {
		m.post(q, order{verb: read, here: here + 8*k, there: m.lay.ring, n: 8 * (n - k)})
	}
}

// landNews takes the next n words of the log of q from what it brought to the barrier. It reports false if they are
// not there.
func (m *Memory) landNews(q, n int) bool {
	from := m.lay.arrival(m.barriers, q)
	have := int(min(atomic.LoadUint64(word(m.ctl, from+16)), newsWords))
	skip := have - n // known from locks meanwhile
	if skip < 0 || m.bases[q]+uint64(skip) != m.known[q] {
		return false
	}
	copy(m.ctl[m.lay.landing+8*m.lay.pull*q:][:8*n], m.ctl[from+arrivedLog+8*skip:])
	return true
}

// landEnd takes the next n words of the log of q from what came with a lock and a vector. It reports false if they are
// not there.
func (m *Memory) landEnd(q, n, vector int) bool {
	from := vector + 8*m.ranks
	if n > newsWords || atomic.LoadUint64(word(m.ctl, from)) != uint64(q) {
		return false
	}
	copy(m.ctl[m.lay.landing+8*m.lay.pull*q:][:8*n], m.ctl[from+8*(1+newsWords-n):])
	return true
}

// notices takes n words of the log of q. It reports false if they are not whole, since q has written over them. Pages
// of the last record whose changes q brought are changed instead of made stale.
func (m *Memory) notices(q, n int, c *changes) bool {
	landed := func(i int) uint64 { return *word(m.ctl, m.lay.landing+8*(m.lay.pull*q+i)) }
	for i := 0; i < n; { // first whether all of it is right: notice may wait, and what it does cannot be undone
		if n-i < 2 || landed(i+1) > uint64(n-i-2) {
			return false
		}
		at, runs := m.known[q]+uint64(i), landed(i+1)
		h := mix(mix(at) ^ runs)
		for j := range int(runs) {
			h = mix(h ^ landed(i+2+j))
		}
		if h != landed(i) {
			return false
		}
		i += 2 + int(runs)
	}
	for i := 0; i < n; {
		runs := int(landed(i + 1))
		if runs > n-i-2 {
			broken(q, "its log changed while it was read")
		}
		for j := range runs {
			entry := landed(i + 2 + j)
			first, pages := entry>>32, entry&(1<<32-1)
			if first+pages > uint64(len(m.state)) {
				broken(q, "its log names page %d of %d", first+pages, len(m.state))
			}
			m.stats.Notices += int(pages)
			for p := int(first); p < int(first+pages); p++ {
				alone := m.alone(p, q)
				if i+2+runs < n || !m.change(q, p, alone, c) {
					m.notice(p)
				}
			}
		}
		i += 2 + runs
	}
	return true
}

// notice takes it that others have changed a page. One that is dirty here, too, is brought up to date at once, since
// the program may go on writing it.
func (m *Memory) notice(p int) {
	switch {
	case p*pageSize < m.used && !m.away(p), m.state[p] == stale, m.state[p] == owned:
	case m.state[p] == dirty:
		m.refresh(p)
	default:
		m.set(p, p+1, stale)
		m.stats.Stale++
	}
}

// refresh carries what has changed of a dirty page home and fetches the page, which stays dirty.
func (m *Memory) refresh(p int) {
	m.stats.Refreshes++
	m.diff(p)
	m.endRun()
	m.wait()
	m.post(int(m.home[p]), order{verb: read, area: data, here: p * pageSize, there: p * pageSize, n: pageSize})
	m.wait()
	copy(m.page(m.twin, p), m.page(m.mem, p))
}
