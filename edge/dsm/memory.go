package dsm

import (
	"multiedge/internal/mono"
)

// state is what a page is at a rank that is not its home. At its home a page is never invalid, and needs no twin
// unless another rank follows it.
type state uint8

const (
	stale  state = iota // another rank has changed it
	coming              // it is being fetched
	clean               // as at home when it was last fetched
	dirty               // written since the last release; twin has what it was before
	owned               // likewise, and all its bytes are this rank's: there is no twin
)

// Memory is the shared memory as one rank sees it. It belongs to the goroutine of the function that Run called.
type Memory struct {
	rank, ranks int
	net         transport // nil if there is but one rank, or a model
	model       Model     // what is told of the program where there is no transport
	lay         layout
	mem         []byte // what the program sees; page p at p*pageSize
	ctl         []byte // the control region
	guard       *guard // nil: accesses are not checked

	twin    []byte
	state   []state
	home    []uint8 // of each page that is allocated
	grain   []uint8 // bytes of a page that two ranks never write at once: 1, 2, 4 or 8
	dirty   []uint32
	pending run // of changed bytes, not yet posted
	coming  []span
	used    int // bytes that are allocated
	allocs  []allocation
	digest  uint64 // of all allocations so far

	owing    debts
	bases    []uint64 // vector of the last barrier
	known    []uint64 // how much of each rank's log is known here; of the own: how long it is
	was      uint64   // of the latest atomic
	locks    []lockHere
	unlocks  int // of this rank
	granted  int // 1 + the lock that was granted; 0: none
	arrived  []arrivals
	barriers int // that this rank has been in
	follow   following

	stats  Stats
	report report
}

// debts are of operations whose end nobody has waited for.
type debts struct {
	out   bool   // they use memory that this rank writes
	homes uint64 // to which changes were posted, a bit each
}

// lockHere is what this rank knows of a lock.
type lockHere struct {
	held  bool
	asked uint8 // 1 + the rank that waits behind this one; 0: none has asked
}

// allocation is what Alloc made, for messages.
type allocation struct {
	off, size int // bytes
	element   int // bytes of one
	kind      string
}

func newMemory(c *Config, net transport) *Memory {
	pages := c.Size / pageSize
	m := &Memory{rank: c.Rank, ranks: c.Ranks, net: net, lay: newLayout(c), state: make([]state, pages),
		home: make([]uint8, pages), grain: make([]uint8, pages), known: make([]uint64, c.Ranks),
		bases: make([]uint64, c.Ranks),
		locks: make([]lockHere, c.Locks), arrived: make([]arrivals, c.Ranks),
		follow: following{by: make([]uint64, pages), phase: stampStep, stamps: make([]uint32, pages)},
		report: report{began: mono.Now(), observe: c.Observe}}
	if net == nil {
		m.model = alone{}
		for p := range m.state {
			m.state[p] = owned // nothing is ever fetched, compared or told
		}
		return m // without memory
	}
	m.mem, m.ctl = net.memory()
	m.twin = make([]byte, c.Size)
	for p := range m.state {
		m.state[p] = clean // all memory is zero everywhere until somebody says that he changed it
	}
	return m
}

// Rank returns the number of this rank, from 0.
func (m *Memory) Rank() int { return m.rank }

// Ranks returns how many there are.
func (m *Memory) Ranks() int { return m.ranks }

// Share returns this rank's part of n things, lo up to hi, when ranks get equal parts in order.
func (m *Memory) Share(n int) (lo, hi int) { return m.ShareOf(m.rank, n) }

// ShareOf is Share for another rank.
func (m *Memory) ShareOf(rank, n int) (lo, hi int) {
	return rank * n / m.ranks, (rank + 1) * n / m.ranks
}

// away reports whether changes of a page have to be carried home.
func (m *Memory) away(p int) bool { return int(m.home[p]) != m.rank || m.guard != nil }

// set gives pages first up to last a state.
func (m *Memory) set(first, last int, s state) {
	for p := first; p < last; p++ {
		m.state[p] = s
	}
	if m.guard != nil {
		m.guard.protect(first, last, s)
	}
}
