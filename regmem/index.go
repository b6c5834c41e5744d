package regmem

import "math/bits"

// index finds a grant by key: open addressing with linear probing, at most half full, no tombstones (removal moves later entries of the
// run back). An empty slot has key zero and a nil grant, so that looking for the key zero finds nothing without a special case.
//
// A peer chooses which keys are looked up but not which are stored, so it cannot build long runs.
type index struct {
	slots []slot // length is a power of two, at least minSlots once used
	shift uint8  // 64 - log2(len(slots))
	n     int
}

type slot struct {
	key Key
	g   *grant
}

const minSlots = 16

// home is the slot a key belongs to: Fibonacci hashing, since the source of keys is injected and may be less random in a simulation.
func (x *index) home(k Key) uint64 { return uint64(k) * 0x9E3779B97F4A7C15 >> x.shift }

// find returns the grant of k, or nil.
func (x *index) find(k Key) *grant {
	if len(x.slots) == 0 {
		return nil
	}
	mask := uint64(len(x.slots) - 1)
	for i := x.home(k); ; i++ {
		s := &x.slots[i&mask]
		if s.key == k || s.key == 0 {
			return s.g
		}
	}
}

// insert adds g under k, which must be neither zero nor present.
func (x *index) insert(k Key, g *grant) {
	if 2*(x.n+1) > len(x.slots) {
		x.grow()
	}
	x.place(k, g)
	x.n++
}

func (x *index) place(k Key, g *grant) {
	mask := uint64(len(x.slots) - 1)
	i := x.home(k) & mask
	for x.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = slot{k, g}
}

func (x *index) grow() {
	old := x.slots
	x.slots = make([]slot, max(minSlots, 2*len(old)))
	x.shift = uint8(64 - bits.TrailingZeros(uint(len(x.slots))))
	for _, s := range old {
		if s.key != 0 {
			x.place(s.key, s.g)
		}
	}
}

// remove deletes k, which must be present, and closes the gap: each later entry of the run moves into it unless that would put the
// entry before its home.
func (x *index) remove(k Key) {
	mask := uint64(len(x.slots) - 1)
	gap := x.home(k) & mask
	for x.slots[gap].key != k {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; x.slots[i].key != 0; i = (i + 1) & mask {
		if fromHome := (i - x.home(x.slots[i].key)) & mask; fromHome >= (i-gap)&mask {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = slot{}
	x.n--
}
