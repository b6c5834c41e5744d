package xlate

import (
	"container/list"
	"fmt"

	"multiedge/bench/kit"
	"multiedge/bench/xlate/trace"
	"multiedge/regmem"
)

// Mechanism is a way to translate.
type Mechanism uint8

const (
	UTLB Mechanism = iota // user-level check, hierarchical table, shared cache (UTLB §3.3)
	Intr                  // the network interface interrupts on a miss; what leaves its cache is unpinned (§6.2)
	// a table for each process on the network interface, filled by the user's library (§3.1)
	PerProcess
)

// Config is what is simulated.
type Config struct {
	Mechanism Mechanism
	Entries   int  // of the cache on the network interface
	Ways      int  // 1: direct-mapped
	NoOffset  bool // processes' indices are not offset against each other
	Prefetch  int  // consecutive entries that a miss fetches; 0 is 1
	Prepin    int  // consecutive pages that a check miss pins; 0 is 1
	Limit     int  // pages that a process may have pinned; 0: any number
	Policy    regmem.Policy
	Optimal   bool // evict what is used last, which only a trace can tell: the bound of all policies
	Classify  bool // tell compulsory, capacity and conflict misses apart
	Seed      uint64
}

// Counts is what happened on all nodes.
type Counts struct {
	Lookups     uint64 `json:"lookups"`
	CheckMisses uint64 `json:"check_misses"`
	NIMisses    uint64 `json:"ni_misses"`
	Unpins      uint64 `json:"unpins"`
	Pins        uint64 `json:"pins"`
	Compulsory  uint64 `json:"compulsory,omitempty"`
	Capacity    uint64 `json:"capacity,omitempty"`
	Conflict    uint64 `json:"conflict,omitempty"`
	Fetched     uint64 `json:"fetched"` // entries

	PinMicros   float64 `json:"pin_us"` // by the pages of each call
	UnpinMicros float64 `json:"unpin_us"`
	FetchMicros float64 `json:"fetch_us"` // by the entries of each fetch
}

// Rates returns the counts for each lookup.
func (c *Counts) Rates() Rates {
	n := float64(max(c.Lookups, 1))
	return Rates{Check: float64(c.CheckMisses) / n, NI: float64(c.NIMisses) / n, Unpin: float64(c.Unpins) / n}
}

// Micros is the mean cost of a lookup of the UTLB, with what its calls and fetches cost by size.
func (c *Counts) Micros() float64 {
	k := &Facts.UTLB.Costs
	return k.UserCheck + k.NICheck + (c.PinMicros+c.UnpinMicros+c.FetchMicros)/float64(max(c.Lookups, 1))
}

// Simulate runs the lookups of a trace's nodes, each on its own, through a mechanism.
func Simulate(l *Lookups, cfg Config) (*Counts, error) {
	total := &Counts{}
	err := kit.Try(func() {
		for _, pages := range l.Nodes {
			s := newSim(l, cfg, total)
			for i := range pages {
				s.lookup(&pages[i])
			}
		}
	})
	return total, err
}

// Lookups are the translations that a trace asks for: page by page, by node, in order.
type Lookups struct {
	Processes int
	First     uint64 // the lowest page; pages count from it
	Span      uint64 // pages from the lowest to the highest
	Nodes     [][]Lookup
}

// Lookup is one translation.
type Lookup struct {
	Page    uint64
	Next    uint32 // when the process uses the page next, in lookups of the node; 1<<32 - 1: never
	Process uint16
	Leaves  bool // on the send path
}

const never = 1<<32 - 1

// NewLookups cuts the ranges of a trace into pages. Of operations that came from other nodes only when all is true.
func NewLookups(t *trace.Trace, all bool) (*Lookups, error) {
	l := &Lookups{Processes: t.Processes, First: 1 << 63, Nodes: make([][]Lookup, t.Nodes)}
	end := uint64(0)
	for i := range t.Records {
		first, last := t.Records[i].Pages()
		l.First, end = min(l.First, first), max(end, last)
	}
	if len(t.Records) == 0 || end-l.First > regmem.MaxChunks {
		return nil, fmt.Errorf("xlate: a trace of %d records over %d pages; simulated are up to %d "+
			"pages", len(t.Records), end-l.First, uint64(regmem.MaxChunks))
	}
	l.Span = end - l.First
	for i := range t.Records {
		r := &t.Records[i]
		if !all && !r.Op.Local() {
			continue
		}
		for page, stop := r.Pages(); page < stop; page++ {
			x := Lookup{Page: page - l.First, Process: uint16(r.Process), Leaves: r.Op.Leaves()}
			l.Nodes[r.Node] = append(l.Nodes[r.Node], x)
		}
	}
	for _, node := range l.Nodes {
		next := map[owned]uint32{}
		for i := len(node) - 1; i >= 0; i-- {
			k := owned{node[i].Process, node[i].Page}
			node[i].Next = never
			if at, ok := next[k]; ok {
				node[i].Next = at
			}
			next[k] = uint32(i)
		}
	}
	return l, nil
}

// owned is a page of a process.
type owned struct {
	process uint16
	page    uint64
}

// Count returns the lookups and the pages of processes that are looked up, of all nodes.
func (l *Lookups) Count() (lookups, footprint int) {
	for _, node := range l.Nodes {
		seen := map[owned]bool{}
		for i := range node {
			seen[owned{node[i].Process, node[i].Page}] = true
		}
		lookups, footprint = lookups+len(node), footprint+len(seen)
	}
	return lookups, footprint
}

// sim is one node with its processes.
type sim struct {
	cfg     Config
	n       *Counts
	procs   []process
	cache   *regmem.Cache[uint32]
	shadow  *recency // a fully associative cache of the same size, for telling conflicts from want of room
	seen    map[owned]bool
	span    uint64
	victims []uint64
}

// process is what belongs to one: the library's bitmap of pinned pages, and the table in the host's memory.
type process struct {
	pinned []uint64
	table  *regmem.Chunks
	next   []uint32 // when pages are used next, for the optimal policy; nil: not wanted
	limit  int
}

func newSim(l *Lookups, cfg Config, total *Counts) *sim {
	if cfg.Prefetch < 0 || cfg.Prepin < 0 || cfg.Limit < 0 || cfg.Limit > 0 && cfg.Prepin > cfg.Limit {
		kit.Fail("xlate: prefetch %d, prepin %d, limit %d: none may be negative, and no more pinned "+
			"at once than the limit", cfg.Prefetch, cfg.Prepin, cfg.Limit)
	}
	cfg.Prefetch, cfg.Prepin = max(cfg.Prefetch, 1), max(cfg.Prepin, 1)
	if cfg.Optimal && cfg.Prepin > 1 {
		kit.Fail("xlate: the optimal policy is of pages that are pinned when they are used: set " +
			"prepin to 1")
	}
	s := &sim{cfg: cfg, n: total, procs: make([]process, l.Processes), span: l.Span}
	for i := range s.procs {
		p := &s.procs[i]
		p.pinned, p.limit = make([]uint64, (l.Span+63)/64), cfg.Limit
		if per := max(cfg.Entries/l.Processes, 1); cfg.Mechanism == PerProcess && (p.limit == 0 || per < p.limit) {
			p.limit = per
		}
		table := regmem.ChunksConfig{Chunks: l.Span, Policy: cfg.Policy, Seed: cfg.Seed + uint64(i)}
		if cfg.Optimal {
			p.next = make([]uint32, l.Span)
			table.Before = func(a, b regmem.ChunkUse) bool { return p.next[a.Chunk] > p.next[b.Chunk] }
		}
		p.table = kit.Get(regmem.NewChunks(table))
	}
	if cfg.Mechanism == PerProcess {
		return s
	}
	if cfg.Classify {
		s.shadow, s.seen = newRecency(cfg.Entries), map[owned]bool{}
	}
	shape := regmem.CacheConfig{Entries: cfg.Entries, Ways: max(cfg.Ways, 1), Line: 1, Offset: !cfg.NoOffset}
	s.cache = kit.Get(regmem.NewCache[uint32](shape))
	return s
}

// lookup translates one page.
func (s *sim) lookup(l *Lookup) {
	s.n.Lookups++
	p := &s.procs[l.Process]
	if s.cfg.Mechanism != Intr {
		s.check(p, l)
	}
	if p.table.Touch(l.Page) != regmem.ChunkPinned && s.cfg.Mechanism != Intr {
		panic("BUG: xlate: the library's bitmap says pinned, the table does not")
	}
	if p.next != nil {
		p.next[l.Page] = l.Next
	}
	if s.cache == nil {
		return
	}
	_, hit := s.cache.Lookup(uint32(l.Process), l.Page)
	s.classify(l, hit)
	if hit {
		return
	}
	s.n.NIMisses++
	if s.cfg.Mechanism == Intr {
		s.interrupt(p, l)
		return
	}
	s.fetch(p, l)
}

// check is what the user's library does before it posts: it pins what is not pinned, and more behind it (UTLB §6.5).
func (s *sim) check(p *process, l *Lookup) {
	if p.has(l.Page) {
		return
	}
	s.n.CheckMisses++
	end, fresh := min(l.Page+uint64(s.cfg.Prepin), s.span), 0
	for page := l.Page; page < end; page++ {
		if !p.has(page) {
			fresh++
		}
	}
	if p.limit > 0 {
		s.evict(p, l.Process, p.table.Resident()+fresh-p.limit)
	}
	pinned := 0
	for page := l.Page; page < end && pinned < fresh; page++ {
		// some pages behind this one may have been evicted just now: they are not pinned beyond the limit
		if !p.has(page) {
			p.pin(page)
			pinned++
		}
	}
	s.n.Pins += uint64(pinned)
	s.n.PinMicros += between(Facts.UTLB.Table1.Pages, Facts.UTLB.Table1.Pin, float64(pinned))
}

func (p *process) has(page uint64) bool { return p.pinned[page/64]>>(page%64)&1 != 0 }

func (p *process) pin(page uint64) {
	p.pinned[page/64] |= 1 << (page % 64)
	p.table.Pin(page)
}

// evict unpins n pages of a process, each with a call of its own (UTLB §6.5), and takes their translations from the
// cache.
func (s *sim) evict(p *process, id uint16, n int) {
	if n <= 0 {
		return
	}
	s.victims = p.table.Victims(s.victims[:0], n)
	for _, page := range s.victims {
		s.unpin(p, id, page)
		if s.cache != nil {
			s.cache.Invalidate(uint32(id), page)
		}
	}
}

func (s *sim) unpin(p *process, id uint16, page uint64) {
	p.pinned[page/64] &^= 1 << (page % 64)
	p.table.Drop(page)
	s.n.Unpins++
	s.n.UnpinMicros += Facts.UTLB.Costs.UserUnpin
}

// fetch reads consecutive entries of the table into the cache, those of pinned pages: another entry is the garbage
// page's, which must not be kept.
func (s *sim) fetch(p *process, l *Lookup) {
	end := min(l.Page+uint64(s.cfg.Prefetch), s.span)
	for page := end - 1; page >= l.Page && page < end; page-- { // the wanted page last: the others must not evict it
		if page != l.Page && (!p.has(page) || s.cache.Contains(uint32(l.Process), page)) {
			continue
		}
		values, _, _ := s.cache.Fill(uint32(l.Process), page)
		values[0] = uint32(page)
		s.n.Fetched++
	}
	s.n.FetchMicros += between(Facts.UTLB.Table2.Entries, Facts.UTLB.Table2.Miss, float64(end-l.Page))
}

// interrupt is the host's part of a miss without a UTLB: pin, make room in the cache, and unpin what left it.
func (s *sim) interrupt(p *process, l *Lookup) {
	if !p.has(l.Page) {
		if p.limit > 0 {
			s.evict(p, l.Process, p.table.Resident()+1-p.limit)
		}
		p.pin(l.Page)
		s.n.Pins++
	}
	_, old, left := s.cache.Fill(uint32(l.Process), l.Page)
	if left {
		s.unpin(&s.procs[old.Proc], uint16(old.Proc), old.Page)
	}
}

// classify tells why a lookup missed: never seen, no room in a cache of this size, or only for its place in it.
func (s *sim) classify(l *Lookup, hit bool) {
	if s.shadow == nil {
		return
	}
	k := owned{l.Process, l.Page}
	roomy := s.shadow.use(k)
	switch {
	case hit:
	case !s.seen[k]:
		s.n.Compulsory++
	case roomy:
		s.n.Conflict++
	default:
		s.n.Capacity++
	}
	s.seen[k] = true
}

// recency is a fully associative cache that evicts the least recently used.
type recency struct {
	size  int
	order *list.List // of owned, the latest used first
	at    map[owned]*list.Element
}

func newRecency(size int) *recency {
	return &recency{size: size, order: list.New(), at: make(map[owned]*list.Element, size)}
}

// use reports whether k is in the cache, and puts it there.
func (r *recency) use(k owned) (hit bool) {
	e, hit := r.at[k]
	switch {
	case hit:
	case r.order.Len() < r.size:
		e = r.order.PushBack(k)
	default:
		e = r.order.Back()
		delete(r.at, e.Value.(owned))
		e.Value = k
	}
	r.order.MoveToFront(e)
	r.at[k] = e
	return hit
}
