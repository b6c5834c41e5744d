package park

import (
	"slices"
	"testing"
	"time"

	"multiedge/internal/mono"
	"multiedge/regmem"
)

// memory is a Backing of which some pages are resident.
type memory struct {
	there map[uint64]bool
	busy  bool
	asked int
}

func (b *memory) Touch(off, n, follows uint64, _ regmem.Site) (uint64, bool) {
	return off, b.there[off]
}
func (b *memory) Ask(page uint64) (resident, busy bool) {
	b.asked++
	return b.there[page], b.busy
}

// table is a Table whose parts are numbers. What is tried again misses once more while its page is in misses.
type table struct {
	Table[int]
	with   Chain[int]
	misses map[uint64]bool
	tried  []int
	ended  []int
}

func newTable() *table {
	t := &table{misses: map[uint64]bool{}}
	t.Init(func(now mono.Time, m *Part[int]) {
		t.Take(m)
		t.tried = append(t.tried, m.What)
		if t.misses[m.Wait.Page] {
			t.Park(now, m, m.Wait, &t.with)
		}
	}, func(now mono.Time, m *Part[int]) {
		t.Take(m)
		t.ended = append(t.ended, m.What)
	})
	return t
}

func (t *table) park(now mono.Time, what int, b regmem.Backing, page uint64) *Part[int] {
	m := t.New(now)
	m.What = what
	t.Park(now, m, regmem.Wait{Back: b, Page: page}, &t.with)
	return m
}

// Parts of a page are tried again in the order in which they were parked, each once however often it misses, those of
// other pages and what was taken out meanwhile are not.
func TestResidentTriesEachOnce(t *testing.T) {
	p, b := newTable(), &memory{}
	for k := range 6 {
		p.park(0, k, b, uint64(k%2))
	}
	p.Take(p.with.First().in[ofConn].next.in[ofConn].next) // what is 2
	p.misses[0] = true
	p.Resident(1, regmem.Wait{Back: b, Page: 0})
	if !slices.Equal(p.tried, []int{0, 4}) || p.Len() != 5 {
		t.Errorf("tried %v; %d are parked", p.tried, p.Len())
	}
	p.tried, p.misses[0] = nil, false
	p.Gone(1, b)
	if !slices.Equal(p.tried, []int{1, 3, 5, 0, 4}) || p.Len() != 0 || len(p.waits)+len(p.backs) != 0 ||
		p.with.First() != nil {
		t.Errorf("tried %v; %d are parked, %d and %d entries are left", p.tried, p.Len(), len(p.waits), len(p.backs))
	}
}

// Of very many that wait for one page some are tried at once, and the others as soon as there is time.
func TestManyForOnePage(t *testing.T) {
	const many = 3*tries + 1
	p, b := newTable(), &memory{}
	for k := range many {
		p.park(0, k, b, 7)
	}
	p.Resident(1, regmem.Wait{Back: b, Page: 7})
	for rounds := 1; p.Len() > 0; rounds++ {
		if len(p.tried) != rounds*tries || p.Timeout() != 0 {
			t.Fatalf("round %d: %d were tried, the next is due at %v", rounds, len(p.tried), p.Timeout())
		}
		p.Check(1)
	}
	if len(p.tried) != many || p.Timeout() != mono.Never {
		t.Errorf("%d of %d were tried, the next is due at %v", len(p.tried), many, p.Timeout())
	}
}

// Clause 16.4: what waits for longer than Time is given up; ten times as long where others of the same memory get
// theirs. Its page is asked for again in each tick, and a page that came unnoticed is noticed.
func TestWaitsEnd(t *testing.T) {
	for _, busy := range []bool{false, true} {
		p, b := newTable(), &memory{busy: busy, there: map[uint64]bool{}}
		p.park(0, 1, b, 7)
		now, limit := mono.Time(0), Time
		if busy {
			limit = turns * Time
		}
		for p.Len() > 0 && now < mono.Time(time.Minute) {
			now = p.Timeout()
			p.Check(now)
		}
		if now != mono.Time(limit) || len(p.ended) != 1 || len(p.tried) != 0 || b.asked != int(limit/tick) {
			t.Errorf("busy %v: ended after %v, asked %d times, tried %v, given up %v", busy, time.Duration(now),
				b.asked, p.tried, p.ended)
		}
		p.park(now, 2, b, 8)
		b.there[8] = true
		p.Check(p.Timeout())
		if !slices.Equal(p.tried, []int{2}) || p.Len() != 0 {
			t.Errorf("busy %v: a page came unnoticed: tried %v", busy, p.tried)
		}
	}
}
