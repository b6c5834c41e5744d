package xlate

import (
	"fmt"

	"multiedge/bench/kit"
	"multiedge/regmem"
)

// DHLConfig is a system with dynamic handle lookup (DHL §IV): one cache for both directions and all processes, in front
// of each process's table.
type DHLConfig struct {
	Entries   int // C: translations in the cache
	Line      int // L: pages of a line, fetched and pinned together
	Ways      int // A: lines of a set
	HighWater int // pages that a node may have pinned before the slow pass unpins what is not cached; 0: any number
	Every     int // lookups from one look at the mark to the next; 0 is 4096
}

// Name is the paper's for a configuration: C16.L64.A4.
func (c DHLConfig) Name() string {
	return fmt.Sprintf("C%d.L%d.A%d", c.Entries>>10, c.Line, c.Ways)
}

// Bytes is the memory of the cache as the paper lays it out: a word of 32 bits for each translation, and for each line
// the address, the process and when it was used.
func (c DHLConfig) Bytes() int { return 4*c.Entries + c.Entries/c.Line*lineTag }

// lineTag is the size of a line's tag in bytes: 48 bits of address and process, rounded up with the order of use.
const lineTag = 8

// Paths of data through the network interface.
const (
	SendPath = iota
	ReceivePath
)

// DHLCounts is what happened on all nodes.
type DHLCounts struct {
	Lookups [2]uint64 `json:"lookups"` // by path: send, receive
	Cold    [2]uint64 `json:"cold"`    // misses of lines that were never looked up before
	Warm    [2]uint64 `json:"warm"`    // misses of others: for want of room or place
	Pinned  uint64    `json:"pinned"`  // lines pinned by misses
	Repins  uint64    `json:"repins"`  // of them, those that the pass had unpinned
	Unpins  uint64    `json:"unpins"`
	Passes  uint64    `json:"passes"` // that found something to unpin
	Most    int       `json:"most_pinned"`
	Stall   float64   `json:"stall_us"` // by the model, of all processes
}

// Misses returns all misses.
func (c *DHLCounts) Misses() uint64 { return c.Cold[0] + c.Cold[1] + c.Warm[0] + c.Warm[1] }

// Ratio is a count for each lookup of both paths.
func (c *DHLCounts) Ratio(n uint64) float64 {
	return float64(n) / float64(max(c.Lookups[0]+c.Lookups[1], 1))
}

// SimulateDHL runs the lookups of a trace's nodes through the cache.
func SimulateDHL(l *Lookups, cfg DHLConfig) (*DHLCounts, error) {
	total := &DHLCounts{}
	if cfg.Every == 0 {
		cfg.Every = 4096
	}
	if cfg.HighWater < 0 || cfg.Every < 1 {
		return nil, fmt.Errorf("xlate: a high-water mark of %d pages, looked at every %d lookups: neither may be "+
			"negative", cfg.HighWater, cfg.Every)
	}
	err := kit.Try(func() {
		for _, pages := range l.Nodes {
			s := newDHL(l, cfg, total)
			for i := range pages {
				s.lookup(&pages[i])
				if cfg.HighWater > 0 && (i+1)%cfg.Every == 0 {
					s.pass()
				}
			}
		}
	})
	return total, err
}

// dhl is one node.
type dhl struct {
	cfg    DHLConfig
	n      *DHLCounts
	cache  *regmem.Cache[uint32]
	tables []*regmem.Chunks // by process, in lines
	seen   map[owned]bool   // lines
	pinned int              // lines of all processes
}

func newDHL(l *Lookups, cfg DHLConfig, total *DHLCounts) *dhl {
	s := &dhl{cfg: cfg, n: total, seen: map[owned]bool{}}
	s.cache = kit.Get(regmem.NewCache[uint32](regmem.CacheConfig{Entries: cfg.Entries, Ways: cfg.Ways, Line: cfg.Line}))
	for id := range uint32(l.Processes) {
		idle := func(a, b regmem.ChunkUse) bool {
			if ac, bc := s.cached(id, a.Chunk), s.cached(id, b.Chunk); ac != bc {
				return bc // what is cached is in use
			}
			return a.Age > b.Age
		}
		s.tables = append(s.tables, kit.Get(regmem.NewChunks(regmem.ChunksConfig{Chunks: l.Span/uint64(cfg.Line) + 1,
			Before: idle})))
	}
	return s
}

func (s *dhl) cached(id uint32, line uint64) bool {
	return s.cache.Contains(id, line*uint64(s.cfg.Line))
}

func (s *dhl) lookup(l *Lookup) {
	path := ReceivePath
	if l.Leaves {
		path = SendPath
	}
	s.n.Lookups[path]++
	line := l.Page / uint64(s.cfg.Line)
	table := s.tables[l.Process]
	state := table.Touch(line)
	if _, hit := s.cache.Lookup(uint32(l.Process), l.Page); hit {
		if state != regmem.ChunkPinned {
			panic("BUG: xlate: a translation is cached whose pages are not pinned")
		}
		return
	}
	k := owned{l.Process, line}
	cold := !s.seen[k]
	s.seen[k] = true
	if cold {
		s.n.Cold[path]++
	} else {
		s.n.Warm[path]++
	}
	s.n.Stall += (Facts.DHL.Delay[0] + Facts.DHL.Delay[1]) / 2
	if state != regmem.ChunkPinned {
		table.Pin(line)
		s.pinned++
		s.n.Pinned++
		s.n.Most = max(s.n.Most, s.pinned*s.cfg.Line)
		s.n.Stall += between(Facts.UTLB.Table1.Pages, Facts.UTLB.Table1.Pin, float64(s.cfg.Line))
		if !cold {
			s.n.Repins++
		}
	}
	s.n.Stall += between(Facts.UTLB.Table2.Entries, Facts.UTLB.Table2.Miss, float64(s.cfg.Line))
	values, _, _ := s.cache.Fill(uint32(l.Process), l.Page) // what leaves the cache stays pinned (§IV.B.2)
	for i := range values {
		values[i] = uint32(line)*uint32(s.cfg.Line) + uint32(i)
	}
}

// pass unpins lines that are not cached, the least recently used of each process first, until the node is below its
// mark.
func (s *dhl) pass() {
	before := s.n.Unpins
	for id, t := range s.tables {
		over := (s.pinned*s.cfg.Line - s.cfg.HighWater + s.cfg.Line - 1) / s.cfg.Line
		if over <= 0 {
			break
		}
		for _, line := range t.Victims(nil, min(over, t.Resident())) {
			if !s.cached(uint32(id), line) {
				t.Drop(line)
				s.pinned--
				s.n.Unpins++
			}
		}
	}
	if s.n.Unpins > before {
		s.n.Passes++
	}
}
