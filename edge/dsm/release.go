package dsm

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"multiedge/internal/mono"
)

// run is a range of changed bytes with one home.
type run struct{ home, from, to int }

// release carries what this rank has changed to the homes, and waits until all is in place: other ranks may learn how
// long the log is (DSM clause 3.3).
func (m *Memory) release(barrier bool) {
	if m.carry(barrier); m.owing.homes != 0 {
		start := mono.Now()
		m.wait()
		m.stats.Flush += mono.Now().Sub(start)
	}
}

// carry begins to carry what this rank has changed to the homes, and adds the pages to its log (DSM clauses 3.1 and
// 3.2). Before a barrier it packs what those who follow pages are to be told.
func (m *Memory) carry(barrier bool) {
	if len(m.dirty) == 0 {
		return
	}
	start := mono.Now()
	slices.Sort(m.dirty)
	for _, p := range m.dirty {
		if m.away(int(p)) {
			m.flush(int(p))
		}
		if alone := m.alone(int(p), m.rank); alone && barrier && m.follow.by[p] != 0 {
			m.pack(int(p))
		}
	}
	m.endRun()
	for _, p := range m.dirty {
		m.set(int(p), int(p)+1, clean)
	}
	m.record()
	m.dirty = m.dirty[:0]
	m.stats.Flush += mono.Now().Sub(start)
}

// flush posts what has changed of a dirty page.
func (m *Memory) flush(p int) {
	if m.state[p] == owned {
		m.changed(int(m.home[p]), p*pageSize, (p+1)*pageSize)
		return
	}
	m.diff(p)
}

// diff compares a page with its twin, and posts the grains that differ.
func (m *Memory) diff(p int) {
	const block = 256
	m.stats.Diffs++
	home, grain := int(m.home[p]), int(m.grain[p])
	now, then := m.page(m.mem, p), m.page(m.twin, p)
	for at := 0; at < pageSize; at += block {
		if bytes.Equal(now[at:at+block], then[at:at+block]) {
			continue
		}
		for i := at; i < at+block; i += 8 {
			x := binary.LittleEndian.Uint64(now[i:]) ^ binary.LittleEndian.Uint64(then[i:])
			for j := 0; x != 0 && j < 8; j += grain {
				if x<<(64-8*(j+grain))>>(64-8*grain) != 0 {
					m.changed(home, p*pageSize+i+j, p*pageSize+i+j+grain)
				}
			}
		}
	}
}

// changed adds bytes to the run of changed bytes before them, or begins another.
func (m *Memory) changed(home, from, to int) {
	if r := &m.pending; r.to == from && r.home == home && r.to > r.from {
		r.to = to
		return
	}
	m.endRun()
	m.pending = run{home, from, to}
}

// endRun posts the run of changed bytes.
func (m *Memory) endRun() {
	r := m.pending
	if r.to > r.from {
		m.owing.homes |= 1 << r.home
		m.post(r.home, order{verb: write, area: data, here: r.from, there: r.from, n: r.to - r.from})
		m.stats.Runs++
		m.stats.Bytes += r.to - r.from
	}
	m.pending = run{}
}

// record adds the dirty pages, which are sorted, to the log: a hash, the number of runs of pages, and each run. A
// record that nobody would read at once is not written (DSM clause 3.2).
func (m *Memory) record() {
	runs := 0
	for i, p := range m.dirty {
		if i == 0 || p != m.dirty[i-1]+1 {
			runs++
		}
	}
	at := m.known[m.rank]
	m.known[m.rank] += uint64(runs + 2)
	if runs+2 > m.lay.pull {
		return
	}
	h := mix(mix(at) ^ uint64(runs))
	next := at + 2
	for i := 0; i < len(m.dirty); {
		n := 1
		for i+n < len(m.dirty) && m.dirty[i+n] == m.dirty[i]+uint32(n) {
			n++
		}
		entry := uint64(m.dirty[i])<<32 | uint64(n)
		m.store(next, entry)
		h = mix(h ^ entry)
		next++
		i += n
	}
	m.store(at, h)
	m.store(at+1, uint64(runs))
}

// store writes a word of the log.
func (m *Memory) store(at, v uint64) {
	atomic.StoreUint64(word(m.ctl, m.lay.ring+8*int(at%uint64(m.lay.log))), v)
}
