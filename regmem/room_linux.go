package regmem

import (
	"fmt"
	"os"
	"sync"
)

// lookEvery is how many bytes may be filled between two looks at what is free; a look costs more than pinning less than
// that.
const lookEvery = 1 << 20

// room is what Reserve promised.
var room struct {
	sync.Mutex
	promised uint64 // bytes that may not be filled yet
	unseen   uint64 // bytes that were granted since the last look, less than lookEvery
	spared   uint64 // bytes that must stay free
}

// leastSpared is what must stay free at least, in bytes, in the machine and in each control group: the process itself
// goes on needing memory, and the kernel kills it when there is none.
const leastSpared = 16 << 20

// Spare sets how many bytes Reserve leaves free in the machine and in the control groups; leastSpared at least.
func Spare(bytes uint64) {
	room.Lock()
	defer room.Unlock()
	room.spared = bytes
}

// Reserve makes sure that there is room for n bytes that the caller is about to fill, in the machine and in the control
// groups of this process: where there is not, the kernel does not refuse them but kills a process. done, which is not
// nil unless err is, ends the reservation, once they are filled or not wanted any more. What others in the same group
// take meanwhile cannot be known. Errors wrap ErrSize or, as a *GroupError, ErrMemlock.
func Reserve(n int) (done func(), err error) {
	need := uint64(n)
	room.Lock()
	defer room.Unlock()
	if room.unseen+need < lookEvery {
		room.unseen += need
		return func() {}, nil
	}
	if err := look(need, room.promised, max(room.spared, leastSpared)); err != nil {
		return nil, err
	}
	room.unseen = 0
	room.promised += need
	return func() {
		room.Lock()
		defer room.Unlock()
		room.promised -= need
	}, nil
}

// look refuses what does not fit beside what is promised already.
func look(need, promised, spared uint64) error {
	if free, ok := procBytes("/proc/meminfo", "MemAvailable:"); ok && need+promised+spared > free {
		return fmt.Errorf("%w: cannot pin %d bytes, the machine has %d available, %d are promised and %d must stay "+
			"free (limits.reserve)", ErrSize, need, free, promised, spared)
	}
	if g, ok := TightestGroup(); ok && !g.fits(need+promised, spared) {
		return &GroupError{Need: need, Spared: spared, Group: g}
	}
	return nil
}

// TightestGroup returns that of this process's control groups which has the least room. ok is false when none limits
// memory.
func TightestGroup() (least Group, ok bool) {
	cgroup, err := readText("/proc/self/cgroup")
	if err != nil {
		return least, false
	}
	mountinfo, err := readText("/proc/self/mountinfo")
	if err != nil {
		return least, false
	}
	for _, dir := range groupDirs(cgroup, mountinfo) {
		if g, limited := groupIn(dir, readText); limited && (!ok || g.Room() < least.Room()) {
			least, ok = g, true
		}
	}
	return least, ok
}

func readText(file string) (string, error) {
	b, err := os.ReadFile(file)
	return string(b), err
}
