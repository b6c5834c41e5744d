package shard

import (
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// regionSet holds a client's regions by number: offered ones, which the client has yet to map, and ready ones, which
// operations and exports may use. A number names a place and a generation: numbers of deregistered regions are refused
// until 65,535 others have used the place. The zero value is empty; zero is never a number.
type regionSet struct {
	slots []regionSlot
	free  []uint32
	n     int

	offered int // of n
}

type regionSlot struct {
	region *regmem.Region // nil: free
	id     uint32
	ready  bool
}

const regionIndexBits = 16

// add numbers a region, or reports false when limit are there already.
func (rs *regionSet) add(r *regmem.Region, limit int) bool {
	if rs.n >= limit {
		return false
	}
	var i uint32
	if k := len(rs.free); k > 0 {
		i = rs.free[k-1]
		rs.free = rs.free[:k-1]
	} else {
		i = uint32(len(rs.slots))
		rs.slots = append(rs.slots, regionSlot{id: i})
	}
	s := &rs.slots[i]
	s.id += 1 << regionIndexBits
	if s.id < 1<<regionIndexBits { // wrapped to generation zero
		s.id += 1 << regionIndexBits
	}
	s.region, s.ready, r.ID = r, false, s.id
	rs.n++
	rs.offered++
	return true
}

// slot returns the place of that number, or nil.
func (rs *regionSet) slot(id uint32) *regionSlot {
	i := id & (1<<regionIndexBits - 1)
	if i >= uint32(len(rs.slots)) || rs.slots[i].id != id || rs.slots[i].region == nil {
		return nil
	}
	return &rs.slots[i]
}

// get returns the region of that number if it is ready, or nil.
func (rs *regionSet) get(id uint32) *regmem.Region {
	s := rs.slot(id)
	if s == nil || !s.ready {
		return nil
	}
	return s.region
}

// any returns the region of that number, ready or offered, or nil.
func (rs *regionSet) any(id uint32) *regmem.Region {
	if s := rs.slot(id); s != nil {
		return s.region
	}
	return nil
}

// pending returns the region of that number if it is offered, or nil.
func (rs *regionSet) pending(id uint32) *regmem.Region {
	s := rs.slot(id)
	if s == nil || s.ready {
		return nil
	}
	return s.region
}

// finish makes an offered region ready.
func (rs *regionSet) finish(r *regmem.Region) {
	rs.slot(r.ID).ready = true
	rs.offered--
}

// offer undoes finish.
func (rs *regionSet) offer(r *regmem.Region) {
	if s := rs.slot(r.ID); s.ready {
		s.ready = false
		rs.offered++
	}
}

// remove forgets a region that is in the set.
func (rs *regionSet) remove(r *regmem.Region) {
	i := r.ID & (1<<regionIndexBits - 1)
	if !rs.slots[i].ready {
		rs.offered--
	}
	rs.slots[i].region = nil
	rs.free = append(rs.free, i)
	rs.n--
}

// all calls f for every region, offered ones too.
func (rs *regionSet) all(f func(*regmem.Region)) {
	for i := range rs.slots {
		if r := rs.slots[i].region; r != nil {
			f(r)
		}
	}
}

// some calls f for every region in at most n places, from the place from on, and returns where to go on: 0 at the end.
func (rs *regionSet) some(from, n int, f func(*regmem.Region)) (next int) {
	end := min(from+n, len(rs.slots))
	for i := from; i < end; i++ {
		if r := rs.slots[i].region; r != nil {
			f(r)
		}
	}
	if end >= len(rs.slots) {
		return 0
	}
	return end
}

// local returns the bytes a submission names, or StatusLocal. An empty range needs no region.
func (rs *regionSet) local(region uint32, off, n uint64) ([]byte, *regmem.Region, ipc.Status) {
	if n == 0 && region == 0 {
		return nil, nil, ipc.StatusOK
	}
	r := rs.get(region)
	if r == nil {
		return nil, nil, ipc.StatusLocal
	}
	mem := r.Mem.Bytes()
	size := uint64(len(mem))
	if off > size || n > size-off {
		return nil, nil, ipc.StatusLocal
	}
	return mem[off : off+n : off+n], r, ipc.StatusOK
}
