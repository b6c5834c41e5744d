package svm

import "fmt"

const (
	radixBits   = 10
	radixSize   = 1 << radixBits
	radixPasses = 2
	keyBytes    = 4
)

// radix sorts keys, digit by digit: every process counts the digits of its keys, all add up the counts, and every
// process writes its keys to where
// they belong in the other array, most of which is of others.
type radix struct {
	n        int
	at       [2]uint64
	counts   uint64 // address of counts by process and digit
	keys     [2][]uint32
	count    [][]int // by process and digit: how many, then where the next goes
	rank     []int   // where each digit begins
	rankAddr uint64
}

func buildRadix(w *World, scale float64) (func(*Proc), string) {
	r := newRadix(w, scale)
	return r.run, fmt.Sprintf("%d keys, radix %d, %d passes", r.n, radixSize, radixPasses)
}

func newRadix(w *World, scale float64) *radix {
	r := &radix{n: max(w.P()*1024, int(scale*(4<<20))), rank: make([]int, radixSize+1)}
	for i := range r.at {
		r.at[i], r.keys[i] = w.Alloc(keyBytes*r.n, w.Blocks), make([]uint32, r.n)
	}
	r.counts = w.Alloc(w.P()*radixSize*4, w.Blocks)
	r.rankAddr = w.Alloc(radixSize*4, w.Blocks)
	r.count = make([][]int, w.P())
	for i := range r.count {
		r.count[i] = make([]int, radixSize)
	}
	for _, p := range w.procs {
		lo, hi := share(p.ID, w.P(), r.n)
		for i := lo; i < hi; i++ {
			r.keys[0][i] = uint32(p.Rand.Uint64N(1 << (radixBits * radixPasses)))
		}
	}
	return r
}

func (r *radix) run(p *Proc) {
	lo, hi := share(p.ID, p.w.P(), r.n)
	for pass := range radixPasses {
		from, to := pass%2, 1-pass%2
		digit := func(key uint32) int { return int(key>>(radixBits*pass)) & (radixSize - 1) }
		mine := r.count[p.ID]
		clear(mine)
		p.Read(r.at[from]+uint64(keyBytes*lo), keyBytes*(hi-lo))
		for _, key := range r.keys[from][lo:hi] {
			mine[digit(key)]++
		}
		p.Write(r.counts+uint64(p.ID*radixSize*4), radixSize*4)
		p.Work(2 * (hi - lo))
		p.Barrier()
		r.addUp(p)
		p.Barrier()
		for _, key := range r.keys[from][lo:hi] {
			d := digit(key)
			at := mine[d]
			mine[d]++
			p.Write(r.at[to]+uint64(keyBytes*at), keyBytes)
			r.keys[to][at] = key
			p.Work(4)
		}
		p.Barrier()
	}
}

// addUp turns counts into places: every process adds up its share of the digits, and the first one the digits' totals.
func (r *radix) addUp(p *Proc) {
	lo, hi := share(p.ID, p.w.P(), radixSize)
	for q := range p.w.P() {
		p.Read(r.counts+uint64((q*radixSize+lo)*4), (hi-lo)*4)
	}
	for d := lo; d < hi; d++ {
		total := 0
		for q := range p.w.P() {
			r.count[q][d], total = total, total+r.count[q][d]
		}
		r.rank[d+1] = total
	}
	for q := range p.w.P() {
		p.Write(r.counts+uint64((q*radixSize+lo)*4), (hi-lo)*4)
	}
	p.Write(r.rankAddr+uint64(lo*4), (hi-lo)*4)
	p.Work((hi - lo) * p.w.P())
	p.Barrier()
	p.Read(r.rankAddr, radixSize*4)
	p.Read(r.counts+uint64(p.ID*radixSize*4), radixSize*4)
	p.Work(radixSize)
	sum := 0
	for d := range radixSize {
		r.count[p.ID][d] += sum
		sum += r.rank[d+1]
	}
}
