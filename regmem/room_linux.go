package regmem

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How many bytes may be filled between two looks at what is free: lookEvery in any case, since a look costs more than
// pinning less than that, and where the latest one found a lot, a small part of it, lookMost at most. That counts for
// as long as the machine would take to fill half of it.
const (
	lookEvery = 1 << 20
	lookMost  = 64 << 20
	lookShare = 64 // of what was free beyond what is promised and spared
	lookFresh = time.Second
	fillRate  = 32 << 30 // bytes that all processors fill in a second at most
)

// room is what Reserve promised.
var room struct {
	sync.Mutex
	promised uint64 // bytes that may not be filled yet
	unseen   uint64 // bytes that were granted since the last look, less than lookMost
	spared   uint64 // bytes that must stay free

	free uint64    // bytes that the last look found
	at   time.Time // of it
}

// unlooked is how many bytes may be granted without a look. The lock is held.
func unlooked() uint64 {
	taken := room.promised + max(room.spared, leastSpared)
	if room.free <= taken {
		return lookEvery
	}
	more := room.free - taken
	if fresh := time.Duration(float64(more) / 2 / fillRate * float64(time.Second)); time.Since(room.at) >
		min(fresh, lookFresh) {
		return lookEvery
	}
	return min(max(more/lookShare, lookEvery), lookMost)
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
// groups of this process: without it the kernel does not refuse them but kills a process. done, which is not nil unless
// err is, ends the reservation, once the bytes are filled or are not to be. What others in the same group take
// meanwhile cannot be known. Errors wrap ErrSize or, as a *GroupError, ErrMemlock.
func Reserve(n int) (done func(), err error) {
	need := uint64(n)
	room.Lock()
	defer room.Unlock()
	if room.unseen+need < lookEvery || room.unseen+need < unlooked() {
		room.unseen += need
		return func() {}, nil
	}
	free, err := look(need, room.promised, max(room.spared, leastSpared))
	if err != nil {
		return nil, err
	}
	room.unseen, room.free, room.at = 0, free, time.Now()
	room.promised += need
	return func() {
		room.Lock()
		defer room.Unlock()
		room.promised -= need
	}, nil
}

// look refuses what does not fit beside what is promised already, and returns how many bytes are free.
func look(need, promised, spared uint64) (free uint64, err error) {
	free = math.MaxUint64
	if n, ok := procBytes("/proc/meminfo", "MemAvailable:"); ok {
		if free = n; need+promised+spared > free {
			return 0, fmt.Errorf("%w: cannot pin %d bytes, the machine has %d available, %d are promised and %d must "+
				"stay free (limits.reserve)", ErrSize, need, free, promised, spared)
		}
	}
	if g, ok := TightestGroup(); ok {
		if !g.fits(need+promised, spared) {
			return 0, &GroupError{Need: need, Spared: spared, Group: g}
		}
		free = min(free, g.Room())
	}
	return free, nil
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

// Swaps reports whether the kernel could take memory that is not pinned to swap.
func Swaps() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) != nil || info.Totalswap > 0
}

// readText reads a file of the kernel's. The runtime puts its own files into the set that it polls, and takes them out
// again, which is five further system calls for each.
func readText(file string) (string, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for b := make([]byte, 0, 1024); ; {
		if len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case n == 0:
			return string(b), nil
		default:
			b = b[:len(b)+n]
		}
	}
}
