package daemon

import (
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// regionSet holds a client's regions by number. A number names a place and a generation: numbers of deregistered regions are refused until
// 65,535 others have used the place. The zero value is empty; zero is never a number.
type regionSet struct {
	slots []regionSlot
	free  []uint32
	n     int
}

type regionSlot struct {
	region *regmem.Region // nil: free
	id     uint32
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
	s.region, r.ID = r, s.id
	rs.n++
	return true
}

// get returns the region of that number, or nil.
func (rs *regionSet) get(id uint32) *regmem.Region {
	i := id & (1<<regionIndexBits - 1)
	if i >= uint32(len(rs.slots)) || rs.slots[i].id != id {
		return nil
	}
	return rs.slots[i].region
}

// remove forgets a region that is in the set.
func (rs *regionSet) remove(r *regmem.Region) {
	i := r.ID & (1<<regionIndexBits - 1)
	rs.slots[i].region = nil
	rs.free = append(rs.free, i)
	rs.n--
}

// all calls f for every region.
func (rs *regionSet) all(f func(*regmem.Region)) {
	for i := range rs.slots {
		if r := rs.slots[i].region; r != nil {
			f(r)
		}
	}
}

// local returns the bytes a submission names, or StatusLocal. An empty range needs no region.
func (rs *regionSet) local(e *ipc.SQE) ([]byte, *regmem.Region, ipc.Status) {
	if e.Len == 0 && e.Region == 0 {
		return nil, nil, ipc.StatusOK
	}
	r := rs.get(e.Region)
	if r == nil {
		return nil, nil, ipc.StatusLocal
	}
	mem := r.Mem.Bytes()
	size := uint64(len(mem))
	if e.LocalOff > size || e.Len > size-e.LocalOff {
		return nil, nil, ipc.StatusLocal
	}
	return mem[e.LocalOff : e.LocalOff+e.Len : e.LocalOff+e.Len], r, ipc.StatusOK
}
