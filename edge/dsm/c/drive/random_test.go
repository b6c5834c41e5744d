//go:build ctest

package drive

import (
	"fmt"
	"strconv"
	"testing"

	"multiedge/edge/dsm"
)

// program is a random program without data races: test/random.c has the same, so that ranks in C and in Go run it
// together. At each phase every element of plain arrays has at most one writer, and those without are read by all; each
// set of elements of locked is changed under its lock alone, and over, with an element on each page, under one that is
// held over barriers.
type program struct {
	m                                 *dsm.Memory
	seed                              uint64
	phases, plain, sets, each, rounds int
	bytes                             dsm.Array[uint8]
	words                             dsm.Array[uint64]
	odd                               dsm.Array[[3]uint16]
	locked                            dsm.Array[uint32]
	over                              dsm.Array[uint64]
}

const (
	overLock  = 7
	overPages = 4
)

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (p *program) hash(a, b, c, d int) uint64 {
	return mix(mix(mix(mix(p.seed^uint64(a))^uint64(b))^uint64(c)) ^ uint64(d))
}

// writer is the rank that writes an element in a phase; Ranks: none.
func (p *program) writer(i, phase int) int {
	n := uint64(p.m.Ranks() + 1)
	if p.hash(1, i>>6, phase, 0)%3 == 0 {
		return int(p.hash(2, i, phase, 0) % n) // neighbours differ
	}
	return int(p.hash(3, i>>4, phase, 0) % n)
}

// value is what an element holds at the beginning of a phase in a sequential run.
func (p *program) value(i, phase int) uint64 {
	for ph := phase - 1; ph >= 0; ph-- {
		if p.writer(i, ph) < p.m.Ranks() {
			return p.hash(4, i, ph, 0)
		}
	}
	return 0
}

func (p *program) homes(array int) dsm.Homes {
	switch p.hash(15, array, 0, 0) % 3 {
	case 0:
		return dsm.Blocks
	case 1:
		return dsm.Turns
	}
	return dsm.At(int(p.hash(16, array, 0, 0) % uint64(p.m.Ranks())))
}

func newProgram(m *dsm.Memory, seed uint64) *program {
	p := &program{m: m, seed: seed}
	p.phases = 2 + int(p.hash(10, 0, 0, 0)%3)
	p.plain = 300 + int(p.hash(11, 0, 0, 0)%1500)
	p.sets = 1 + int(p.hash(12, 0, 0, 0)%5)
	p.each = 1 + int(p.hash(13, 0, 0, 0)%5)
	p.rounds = int(p.hash(14, 0, 0, 0) % 7)
	p.bytes = dsm.Alloc[uint8](m, p.plain, p.homes(0))
	p.words = dsm.Alloc[uint64](m, p.plain, p.homes(1))
	p.odd = dsm.Alloc[[3]uint16](m, p.plain, p.homes(2))
	p.locked = dsm.Alloc[uint32](m, p.each*p.sets*97, p.homes(3))
	p.over = dsm.Alloc[uint64](m, 512*overPages, p.homes(4))
	return p
}

func (p *program) element(i, phase int) error {
	w := p.writer(i, phase)
	if w != p.m.Rank() && w < p.m.Ranks() {
		return nil
	}
	v := p.value(i, phase)
	got := [3]uint64{uint64(p.bytes.At(i)), p.words.At(i), uint64(p.odd.At(i)[1])}
	if got != [3]uint64{v & 0xff, v, v & 0xffff} {
		return fmt.Errorf("seed %d, phase %d, element %d: %x, want %x", p.seed, phase, i, got, v)
	}
	if w == p.m.Rank() {
		v = p.hash(4, i, phase, 0)
		p.bytes.Set(i, uint8(v))
		p.words.Set(i, v)
		p.odd.Set(i, [3]uint16{1, uint16(v), 2})
	}
	return nil
}

// critical adds one to all elements of a set, under its lock, and of the next set meanwhile.
func (p *program) critical(set int) error {
	at := func(set, j int) int { return j*p.sets*97 + set }
	p.m.Lock(set)
	v := p.locked.At(at(set, 0))
	for j := 1; j < p.each; j++ {
		if got := p.locked.At(at(set, j)); got != v {
			return fmt.Errorf("seed %d, set %d: element %d is %d, element 0 is %d", p.seed, set, j, got, v)
		}
		p.locked.Set(at(set, j), v+1)
	}
	if next := set + 1; next < p.sets {
		p.m.Lock(next)
		for j := range p.each {
			p.locked.Set(at(next, j), p.locked.At(at(next, j))+1)
		}
		p.m.Unlock(next)
	}
	p.locked.Set(at(set, 0), p.locked.At(at(set, 0))+1)
	p.m.Unlock(set)
	return nil
}

// holder is the rank that has the lock of over during the barrier of a phase; Ranks: none.
func (p *program) holder(phase int) int { return int(p.hash(17, phase, 0, 0) % uint64(p.m.Ranks()+1)) }

// held is how often it was taken in the phases before.
func (p *program) held(phase int) (n uint64) {
	for ph := range phase {
		if p.holder(ph) < p.m.Ranks() {
			n++
		}
	}
	return n
}

// hold takes the lock of over before the barrier of a phase, if that is this rank's turn, and changes half of over.
func (p *program) hold(phase int) error {
	if p.holder(phase) != p.m.Rank() {
		return nil
	}
	p.m.Lock(overLock)
	n := p.held(phase)
	for i := range overPages {
		if got := p.over.At(512 * i); got != n {
			return fmt.Errorf("seed %d, phase %d, over %d: %d, want %d", p.seed, phase, i, got, n)
		}
	}
	for i := range overPages / 2 {
		p.over.Set(512*i, n+1)
	}
	return nil
}

// let changes the other half behind the barrier, if this rank has the lock, and gives it back.
func (p *program) let(phase int) {
	if phase < 0 || p.holder(phase) != p.m.Rank() {
		return
	}
	for i := overPages / 2; i < overPages; i++ {
		p.over.Set(512*i, p.held(phase)+1)
	}
	p.m.Unlock(overLock)
}

// early is whether the lock goes back at once in a phase, and not behind everything else.
func (p *program) early(phase int) bool { return p.hash(18, phase, 0, 0)%2 == 0 }

// phase is what a rank does up to a barrier.
func (p *program) phase(phase int) error {
	if p.early(phase) {
		p.let(phase - 1)
	}
	for i := range p.plain {
		if err := p.element(i, phase); err != nil {
			return err
		}
	}
	for k := range p.rounds {
		if err := p.critical(p.set(p.m.Rank(), phase, k)); err != nil {
			return err
		}
	}
	if !p.early(phase) {
		p.let(phase - 1)
	}
	return p.hold(phase)
}

func (p *program) set(rank, phase, k int) int { return int(p.hash(5, rank, phase, k) % uint64(p.sets)) }

// sums compares all sets with what all ranks together must have added.
func (p *program) sums() error {
	want := make([]uint32, p.sets+1)
	for rank := range p.m.Ranks() {
		for phase := range p.phases {
			for k := range p.rounds {
				want[p.set(rank, phase, k)]++
				want[p.set(rank, phase, k)+1]++
			}
		}
	}
	for set := range p.sets {
		if got := p.locked.At(set); got != want[set] {
			return fmt.Errorf("seed %d: set %d is %d at the end, want %d", p.seed, set, got, want[set])
		}
	}
	p.m.Lock(overLock)
	last := p.over.At(512 * (overPages - 1))
	p.m.Unlock(overLock)
	if last != p.held(p.phases) {
		return fmt.Errorf("seed %d: over is %d at the end, want %d", p.seed, last, p.held(p.phases))
	}
	return nil
}

// random runs programs of seeds from one on, one after the other.
func random(seed, programs uint64) func(*dsm.Memory) error {
	return func(m *dsm.Memory) error {
		for s := seed; s < seed+programs; s++ {
			p := newProgram(m, s)
			for phase := range p.phases {
				if err := p.phase(phase); err != nil {
					return err
				}
				m.Barrier()
			}
			p.let(p.phases - 1)
			if err := p.sums(); err != nil {
				return err
			}
			m.Barrier() // nobody holds the lock of over over a barrier of the next, while others look at this one's
		}
		return nil
	}
}

// runRandom runs random programs on several ranks, of which those in C are in C.
func (w *world) runRandom(name string, ranks int, inC func(rank int) bool, seed, programs uint64, log int) {
	w.t.Helper()
	var waits []func() error
	var processes []*process
	for rank := range ranks {
		if inC(rank) {
			processes = append(processes, w.start(name, rank, ranks, "random", strconv.FormatUint(seed, 10),
				strconv.FormatUint(programs, 10), strconv.Itoa(log)))
			continue
		}
		c := dsm.Config{Ranks: ranks, Size: 4 << 20, Locks: overLock + 1, Log: log}
		waits = append(waits, w.inGo(name, rank, c, random(seed, programs)))
	}
	for _, p := range processes {
		var faults, refreshes, overruns, waited int
		_, err := fmt.Sscanf(p.well(), "faults %d refreshes %d overruns %d waits %d", &faults, &refreshes, &overruns,
			&waited)
		if err != nil {
			w.t.Error(err)
		}
		if faults == 0 || refreshes == 0 || waited == 0 || log == 16 && overruns == 0 {
			w.t.Errorf("the programs do not reach everything: %s", p.stdout.String())
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			w.t.Error(err)
		}
	}
}

// Two ranks in C, and three of which two are in C and one in Go, either of them rank 0, find what a sequential run
// finds. Links are cut meanwhile.
func TestRandom(t *testing.T) {
	w := newWorld(t, 3)
	stop := w.cut()
	w.runRandom("two", 2, func(int) bool { return true }, 1, 20, 0)
	w.runRandom("short log", 2, func(int) bool { return true }, 100, 20, 16)
	w.runRandom("Go is rank 0", 3, func(rank int) bool { return rank > 0 }, 200, 20, 64)
	w.runRandom("C is rank 0", 3, func(rank int) bool { return rank != 1 }, 300, 20, 0)
	w.runRandom("four", 4, func(rank int) bool { return rank%2 == 0 }, 400, 20, 16)
	if cuts := stop(); cuts < 3 {
		t.Errorf("%d cuts", cuts)
	}
}
