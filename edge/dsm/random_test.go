package dsm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var seeds = flag.Uint64("seeds", 60, "random programs")

// program is a random program without data races, and what it must find. At each phase every element of plain has at
// most one writer, and those without are read by all; likewise each half page of rows. Each set of elements of locked
// is changed under its lock alone, and over under one that is held over barriers.
type program struct {
	seed   uint64
	ranks  int
	phases int
	plain  int // elements of each plain array
	sets   int // locks
	each   int // elements of a set, far apart
	rounds int // critical sections of each rank in each phase
	homes  [4]Homes
}

// rowPages is how many pages rows has; of each 32 elements are used. Each element of over is on a page of its own.
const (
	rowPages  = 6
	overLock  = 7
	overPages = 4
)

func (p *program) hash(a ...int) uint64 {
	h := p.seed
	for _, v := range a {
		h = mix(h ^ uint64(v))
	}
	return h
}

// writer is the rank that writes an element in a phase; ranks: none.
func (p *program) writer(i, phase int) int {
	if p.hash(1, i>>6, phase)%3 == 0 {
		return int(p.hash(2, i, phase) % uint64(p.ranks+1)) // neighbours differ
	}
	return int(p.hash(3, i>>4, phase) % uint64(p.ranks+1))
}

// row is what element k of a page of rows holds at the beginning of a phase.
func (p *program) row(page, k, phase int) uint64 {
	for ph := phase - 1; ph >= 0; ph-- {
		if p.rowWriter(page, k, ph) < p.ranks && p.hash(9, page, k, ph)%3 > 0 {
			return p.hash(10, page, k, ph)
		}
	}
	return 0
}

// rowWriter is the rank that writes element k of a page of rows in a phase; ranks: none, and in every other phase. Some
// pages have two writers.
func (p *program) rowWriter(page, k, phase int) int {
	if (p.seed+uint64(phase))%2 == 0 {
		return p.ranks
	}
	return int(p.hash(8, page, k/16*(page%2), phase) % uint64(p.ranks+1))
}

// rows is a phase of the pages that have one or two writers.
func (p *program) rows(m *Memory, rows Array[uint64], phase int) error {
	for page := range rowPages {
		for k := range 32 {
			i, writer := 512*page+16*k, p.rowWriter(page, k, phase)
			switch {
			case writer == m.rank && p.hash(9, page, k, phase)%3 > 0:
				rows.Set(i, p.hash(10, page, k, phase))
			case writer == p.ranks:
				if v := p.row(page, k, phase); rows.At(i) != v {
					return fmt.Errorf("phase %d, row %d, element %d: %x, want %x", phase, page, k, rows.At(i), v)
				}
			}
		}
	}
	return nil
}

// holder returns the rank that holds overLock while it passes the barrier of a phase; p.ranks if no rank does.
func (p *program) holder(phase int) int { return int(p.hash(12, phase) % uint64(p.ranks+1)) }

// hold takes the lock of over before the barrier of a phase, if that is this rank's turn, and changes half of over.
func (p *program) hold(m *Memory, over Array[uint64], phase int) error {
	if phase < 0 || p.holder(phase) != m.rank {
		return nil
	}
	m.Lock(overLock)
	for i := range overPages {
		if err := want(fmt.Sprintf("phase %d, over %d", phase, i), over.At(512*i), p.held(phase)); err != nil {
			return err
		}
	}
	for i := range overPages / 2 {
		over.Set(512*i, p.held(phase)+1)
	}
	return nil
}

// let changes the other half of over behind the barrier of a phase, if this rank has the lock, and gives it back.
func (p *program) let(m *Memory, over Array[uint64], phase int, leave func(m *Memory)) {
	if phase < 0 || p.holder(phase) != m.rank {
		return
	}
	for i := overPages / 2; i < overPages; i++ {
		over.Set(512*i, p.held(phase)+1)
	}
	leave(m)
	m.Unlock(overLock)
}

// held is how often the lock of over was taken before the barrier of a phase, in the phases before it.
func (p *program) held(phase int) (n uint64) {
	for ph := range phase {
		if p.holder(ph) < p.ranks {
			n++
		}
	}
	return n
}

// value is what an element holds at the beginning of a phase in a sequential run.
func (p *program) value(i, phase int) uint64 {
	for ph := phase - 1; ph >= 0; ph-- {
		if p.writer(i, ph) < p.ranks {
			return p.hash(4, i, ph)
		}
	}
	return 0
}

func newProgram(seed uint64) (*program, Config) {
	rng := rand.New(rand.NewPCG(seed, 7))
	p := &program{seed: seed, ranks: 2 + rng.IntN(4), phases: 2 + rng.IntN(4), plain: 300 + rng.IntN(1500),
		sets: 1 + rng.IntN(5), each: 1 + rng.IntN(5), rounds: rng.IntN(7)}
	for i := range p.homes {
		p.homes[i] = []Homes{Blocks, Turns, At(rng.IntN(p.ranks)),
			func(page, _, ranks int) int { return int(mix(seed^uint64(page)) % uint64(ranks)) }}[rng.IntN(4)]
	}
	c := Config{Name: "t", Ranks: p.ranks, Root: "x", Size: 1 << 17, Locks: overLock + 1,
		Log: []int{16, 64, 0}[rng.IntN(3)]}
	return p, c
}

// run is the program as one rank runs it. leave is called before each synchronisation.
func (p *program) run(m *Memory, leave func(m *Memory)) error {
	bytes := Alloc[uint8](m, p.plain, p.homes[0])
	words := Alloc[uint64](m, p.plain, p.homes[1])
	odd := Alloc[[3]uint16](m, p.plain, p.homes[2])
	rows := Alloc[uint64](m, 512*rowPages, p.homes[1])
	locked := Alloc[uint64](m, p.each*p.sets*97, p.homes[3])
	over := Alloc[uint64](m, 512*overPages, p.homes[0])
	for phase := range p.phases {
		early := p.hash(13, phase)%2 == 0 // the lock goes back at once, or behind everything else of the phase
		if early {
			p.let(m, over, phase-1, leave)
		}
		if p.hash(6, m.rank, phase)%2 == 0 {
			words.Prefetch(p.plain/4, p.plain)
			odd.Prefetch(0, p.plain/2)
		}
		if at := int(p.hash(7, m.rank, phase) % uint64(p.plain)); at%3 == 0 { // also what this rank writes
			words.Follow(at/2, at)
			odd.Follow(at/2, at)
			locked.Follow(0, p.each*p.sets*97)
		}
		if at := int(p.hash(11, m.rank, phase) % rowPages); phase < 3 {
			rows.Follow(512*at, 512*rowPages)
			over.Follow(512, 512*overPages)
		}
		for i := range p.plain {
			w := p.writer(i, phase)
			if w != m.rank && w < p.ranks {
				continue
			}
			v := p.value(i, phase)
			if got := [3]uint64{uint64(bytes.At(i)), words.At(i), uint64(odd.At(i)[1])}; got !=
				[3]uint64{v & 0xff, v, v & 0xffff} {
				return fmt.Errorf("phase %d, element %d: %x, want %x", phase, i, got, v)
			}
			if w == m.rank {
				v = p.hash(4, i, phase)
				bytes.Set(i, uint8(v))
				words.Set(i, v)
				odd.Set(i, [3]uint16{1, uint16(v), 2})
			}
		}
		for k := range p.rounds {
			if err := p.critical(m, locked, int(p.hash(5, m.rank, phase, k)%uint64(p.sets)), leave); err != nil {
				return err
			}
		}
		if err := p.rows(m, rows, phase); err != nil { // behind the locks: only then changes come with the barrier
			return err
		}
		if !early {
			p.let(m, over, phase-1, leave)
		}
		if err := p.hold(m, over, phase); err != nil {
			return err
		}
		leave(m)
		m.Barrier()
	}
	p.let(m, over, p.phases-1, leave)
	if err := p.sums(m, locked); err != nil {
		return err
	}
	m.Lock(overLock)
	last := over.At(512 * (overPages - 1))
	m.Unlock(overLock)
	return want("over at the end", last, p.held(p.phases))
}

// critical adds one to all elements of a set, under its lock, and of the next set meanwhile.
func (p *program) critical(m *Memory, locked Array[uint64], set int, leave func(m *Memory)) error {
	at := func(set, j int) int { return j*p.sets*97 + set }
	locked.Prefetch(at(set, 0), at(set, p.each-1)+1) // what is coming may be noticed before it is used
	m.Lock(set)
	first := locked.Write(at(set, 0), at(set, 0)+1)
	v := first[0]
	for j := 1; j < p.each; j++ {
		if got := locked.At(at(set, j)); got != v {
			return fmt.Errorf("set %d: element %d is %d, element 0 is %d", set, j, got, v)
		}
		locked.Set(at(set, j), v+1)
	}
	if next := set + 1; next < p.sets {
		m.Lock(next) // first stays valid
		first[0]++
		for j := range p.each {
			locked.Set(at(next, j), locked.At(at(next, j))+1)
		}
		leave(m)
		m.Unlock(next)
	} else {
		first[0]++
	}
	leave(m)
	m.Unlock(set)
	return nil
}

// sums compares all sets with what all ranks together must have added.
func (p *program) sums(m *Memory, locked Array[uint64]) error {
	want := make([]uint64, p.sets)
	for rank := range p.ranks {
		for phase := range p.phases {
			for k := range p.rounds {
				set := int(p.hash(5, rank, phase, k) % uint64(p.sets))
				want[set]++
				if set+1 < p.sets {
					want[set+1]++
				}
			}
		}
	}
	for set := range want {
		if got := locked.At(set); got != want[set] {
			return fmt.Errorf("set %d is %d at the end, want %d", set, got, want[set])
		}
	}
	return nil
}

// A random program without data races finds what its sequential run finds, whatever its memory does that fences allow:
// go test ./edge/dsm -run Random -seeds 10000.
func TestRandom(t *testing.T) {
	var sum Stats
	for seed := range *seeds {
		p, c := newProgram(seed)
		err := inWorld(seed, c, fault{}, func(m *Memory) error {
			err := p.run(m, func(*Memory) {})
			sum.Refreshes += m.stats.Refreshes
			sum.Overruns += m.stats.Overruns
			sum.Waits += m.stats.Waits
			sum.Brought += m.stats.Brought
			return err
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if sum.Refreshes == 0 || sum.Overruns == 0 || sum.Waits == 0 || sum.Brought == 0 {
		t.Errorf("the programs do not reach everything: %+v", sum)
	}
}

// The random programs find a protocol that leaves something out.
func TestRandomFindsFaults(t *testing.T) {
	faults := map[string]struct {
		fault
		leave func(m *Memory)
	}{
		"a write of changed bytes is lost": {fault: fault{lose: func(o *order) bool {
			return o.verb == write && o.area == data && o.there%3 == 0
		}}},
		"a fetch is lost": {fault: fault{lose: func(o *order) bool {
			return o.verb == read && o.area == data && o.there/pageSize%2 == 1
		}}},
		"a notice is left out": {leave: func(m *Memory) {
			if len(m.dirty) == 0 {
				return
			}
			p := int(m.dirty[0])
			if m.away(p) {
				m.flush(p)
				m.endRun()
				m.wait()
			}
			m.set(p, p+1, clean)
			m.dirty = slices.Delete(m.dirty, 0, 1)
		}},
		"changes are published before they are in place": {fault: fault{hasty: true}},
		"a changed word is not brought to a barrier": {leave: func(m *Memory) {
			for _, p := range m.dirty {
				if !m.away(int(p)) && m.follow.by[p] != 0 {
					copy(m.page(m.twin, int(p))[:pageSize/2], m.page(m.mem, int(p)))
				}
			}
		}},
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			if f.leave == nil {
				f.leave = func(*Memory) {}
			}
			found, tried := 0, uint64(12)
			for seed := range tried {
				p, c := newProgram(seed)
				if inWorld(seed, c, f.fault, func(m *Memory) error { return p.run(m, f.leave) }) != nil {
					found++
				}
			}
			if found == 0 {
				t.Errorf("found by none of %d programs", tried)
			}
			t.Logf("found by %d of %d programs", found, tried)
		})
	}
}
