package splash

import "multiedge/edge/dsm"

// Keys have 20 bits, which are sorted by in two digits.
const (
	digitBits = 10
	digits    = 1 << digitBits
)

func radixBytes(n, ranks int) int { return 8*n + 4*digits*ranks + 3*4096 }

// radix sorts n keys.
func radix(m *dsm.Memory, n int) (work func(), result func() uint64) {
	keys := [2]dsm.Array[uint32]{dsm.Alloc[uint32](m, n, dsm.Blocks), dsm.Alloc[uint32](m, n, dsm.Blocks)}
	counts := dsm.Alloc[uint32](m, m.Ranks()*digits, dsm.Blocks)
	lo, hi := m.Share(n)
	w := keys[0].Own(lo, hi)
	for i := range w {
		w[i] = uint32(random(lo+i) & (1<<(2*digitBits) - 1))
	}
	work = func() {
		pass(m, keys[0], keys[1], counts, 0)
		m.Barrier()
		pass(m, keys[1], keys[0], counts, digitBits)
	}
	return work, func() (d uint64) {
		for _, k := range keys[0].Read(0, n) {
			d = add(d, uint64(k))
		}
		return d
	}
}

// pass sorts by one digit, stably: each rank counts its keys' digits, finds out where the first key of each goes, and
// puts its keys there.
func pass(m *dsm.Memory, from, to, counts dsm.Array[uint32], shift int) {
	lo, hi := m.Share(from.Len())
	digit := func(k uint32) uint32 { return k >> shift & (digits - 1) }
	mine := counts.Own(m.Rank()*digits, (m.Rank()+1)*digits)
	clear(mine)
	for _, k := range from.Read(lo, hi) {
		mine[digit(k)]++
	}
	m.Barrier()
	to.Prefetch(0, to.Len()) // keys go everywhere
	all := counts.Read(0, m.Ranks()*digits)
	var at [digits]uint32
	before := uint32(0)
	for d := range digits {
		for r := range m.Ranks() {
			if r == m.Rank() {
				at[d] = before
			}
			before += all[r*digits+d]
		}
	}
	for _, k := range from.Read(lo, hi) {
		d := digit(k)
		to.Set(int(at[d]), k)
		at[d]++
	}
}
