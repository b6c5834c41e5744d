package regmem

import "math/bits"

// index finds a grant by key: open addressing with linear probing, at most half full, no tombstones (removal moves
// later entries of the run back). It is cut into parts that grow one by one: to put a million keys anew into a larger
// table would keep everybody waiting for tens of milliseconds, a part does so for microseconds.
//
// A slot has half of the key's hash and the grant's place, so that other keys of a run are passed over without a look
// at their grants. A peer chooses which keys are looked up but not which are stored, so it cannot build long runs.
type index struct {
	parts [indexParts]part
	slab  *slab
	n     int
}

const (
	partBits   = 6
	indexParts = 1 << partBits
)

// part holds the keys whose hash begins with its number.
type part struct {
	slots []slot // length is a power of two, at least minSlots once used
	n     int
}

type slot struct {
	tag uint32 // the low half of the hash
	ref ref    // 0: empty
}

const minSlots = 4

// hash spreads keys: Fibonacci hashing, since the source of keys is injected and may be less random in a simulation.
// Its first bits choose the part, the next ones the home of the key there.
func hash(k Key) uint64 { return uint64(k) * 0x9E3779B97F4A7C15 }

func (p *part) home(h uint64) uint64 {
	return h << partBits >> (64 - bits.TrailingZeros(uint(len(p.slots))))
}

// find returns the grant of k, or 0 and nil.
func (x *index) find(k Key) (ref, *grant) {
	h := hash(k)
	p := &x.parts[h>>(64-partBits)]
	if len(p.slots) == 0 {
		return 0, nil
	}
	mask := uint64(len(p.slots) - 1)
	for i := p.home(h); ; i++ {
		s := p.slots[i&mask]
		if s.ref == 0 {
			return 0, nil
		}
		if s.tag == uint32(h) {
			if g := x.slab.at(s.ref); g.key == k {
				return s.ref, g
			}
		}
	}
}

// insert adds r under k, which must be neither zero nor present.
func (x *index) insert(k Key, r ref) {
	h := hash(k)
	p := &x.parts[h>>(64-partBits)]
	if 2*(p.n+1) > len(p.slots) {
		x.resize(p, max(minSlots, 2*len(p.slots)))
	}
	p.place(h, r)
	p.n++
	x.n++
}

func (p *part) place(h uint64, r ref) {
	mask := uint64(len(p.slots) - 1)
	i := p.home(h)
	for p.slots[i].ref != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slot{uint32(h), r}
}

func (x *index) resize(p *part, n int) {
	old := p.slots
	p.slots = make([]slot, n)
	for _, s := range old {
		if s.ref != 0 {
			p.place(hash(x.slab.at(s.ref).key), s.ref)
		}
	}
}

// remove deletes k, which must be present, and closes the gap: each later entry of the run moves into it unless that
// would put the entry before its home. A part that became nearly empty gives memory back.
func (x *index) remove(k Key) {
	h := hash(k)
	p := &x.parts[h>>(64-partBits)]
	mask := uint64(len(p.slots) - 1)
	gap := p.home(h)
	for r, _ := x.find(k); p.slots[gap].ref != r; {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; p.slots[i].ref != 0; i = (i + 1) & mask {
		home := p.home(hash(x.slab.at(p.slots[i].ref).key))
		if fromHome := (i - home) & mask; fromHome >= (i-gap)&mask {
			p.slots[gap] = p.slots[i]
			gap = i
		}
	}
	p.slots[gap] = slot{}
	p.n--
	x.n--
	switch {
	case p.n == 0:
		p.slots = nil
	case 16*p.n < len(p.slots):
		x.resize(p, len(p.slots)/4)
	}
}
