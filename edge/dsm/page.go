package dsm

import "multiedge/internal/mono"

// need gives the pages of bytes from up to to at least the state want.
func (m *Memory) need(from, to int, want state) {
	if m.net == nil {
		how := Reading
		if want >= dirty {
			how = Writing
		}
		m.model.Touch(how, from, to)
		return
	}
	first, last := from/pageSize, (to-1)/pageSize+1
	m.fetch(first, last)
	if want >= dirty {
		m.beginWriting(first, last)
	}
}

// span is pages first up to last.
type span struct{ first, last int }

// fetch has all of pages first up to last here when it returns.
func (m *Memory) fetch(first, last int) {
	m.ask(first, last)
	m.settle()
}

// ask begins to read the stale ones of pages first up to last from their homes: one read for each run of pages with one
// home (DSM clause 3.5).
func (m *Memory) ask(first, last int) {
	start := mono.Time(0)
	for p := first; p < last; {
		if m.state[p] != stale {
			p++
			continue
		}
		q := p + 1
		for q < last && m.state[q] == stale && m.home[q] == m.home[p] {
			q++
		}
		if start == 0 {
			start = mono.Now()
		}
		if m.away(p) { // else it was noticed before it was allocated; a copy onto itself undoes what others write
			m.post(int(m.home[p]), order{verb: read, area: data, here: p * pageSize, there: p * pageSize,
				n: (q - p) * pageSize})
			m.stats.Fetches++
			m.stats.Pages += q - p
		}
		m.set(p, q, coming)
		m.coming = append(m.coming, span{p, q})
		p = q
	}
	if start != 0 {
		m.stats.Data += mono.Now().Sub(start)
	}
}

// prefetch begins to fetch the pages of bytes from up to to.
func (m *Memory) prefetch(from, to int) {
	if m.net == nil {
		m.model.Touch(Prefetching, from, to)
		return
	}
	m.ask(from/pageSize, (to-1)/pageSize+1)
}

// settle waits for the pages that are coming. Whatever changes states of pages calls it first.
func (m *Memory) settle() {
	if len(m.coming) == 0 {
		return
	}
	start := mono.Now()
	m.wait()
	for _, c := range m.coming {
		m.set(c.first, c.last, clean)
	}
	m.coming = m.coming[:0]
	m.stats.Data += mono.Now().Sub(start)
}

// beginWriting makes pages first up to last, none of which is stale, dirty.
func (m *Memory) beginWriting(first, last int) {
	for p := first; p < last; p++ {
		if m.state[p] >= dirty {
			continue
		}
		if m.away(p) || m.follow.by[p] != 0 {
			copy(m.page(m.twin, p), m.page(m.mem, p))
			m.stats.Twins++
		}
		m.set(p, p+1, dirty)
		m.dirty = append(m.dirty, uint32(p))
	}
}

// own makes the pages that lie in from up to to, in bytes, owned. Parts of pages are left to Write.
func (m *Memory) own(from, to int) {
	if m.net == nil {
		m.model.Touch(Owning, from, to)
		return
	}
	for p := (from + pageSize - 1) / pageSize; p < to/pageSize; p++ {
		if m.state[p] == coming {
			m.settle()
		}
		if m.state[p] < dirty {
			m.set(p, p+1, owned)
			m.dirty = append(m.dirty, uint32(p))
		}
	}
}

// page returns the bytes of a page in mem or twin.
func (m *Memory) page(b []byte, p int) []byte { return b[p*pageSize : (p+1)*pageSize] }

// wait returns when everything that was posted has taken effect.
func (m *Memory) wait() {
	m.net.wait()
	m.owing = debts{}
}

// free makes the memory usable from which vectors are written to other ranks. Those that write them do not wait: the
// other rank's next step, or the answer of an atomic behind, says more than the acknowledgement would, and sooner.
func (m *Memory) free() {
	if m.owing.out {
		m.wait()
	}
	m.owing.out = true
}

// post counts an operation and starts it.
func (m *Memory) post(rank int, o order) {
	if rank != m.rank {
		m.stats.Operations++
	}
	m.net.post(rank, o)
}
