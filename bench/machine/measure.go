package machine

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
)

// Measure returns the card of this machine. What cannot be measured, since a resource was refused, is left at zero.
func Measure() report.Card {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	cores := allowed(&before)
	if len(cores) > 0 {
		defer unix.SchedSetaffinity(0, &before)
	}
	var c report.Card
	c.SystemCall = systemCall()
	if len(cores) > 0 {
		handOvers(&c, cores)
	}
	_ = kit.Try(func() { memory(&c) }) // refused memory leaves its figures at zero
	processor(&c)
	return c
}

// allowed returns the processors that this thread may run on, and stores the set.
func allowed(set *unix.CPUSet) (cores []int) {
	if unix.SchedGetaffinity(0, set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores
}

// bind binds this thread to a processor.
func bind(core int) error {
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set)
}

// least runs batches of n turns for some time, at least three, and returns the nanoseconds of a turn in the fastest.
func least(d time.Duration, n int, batch func(n int)) float64 {
	best := 0.0
	began := time.Now()
	for i := 0; i < 3 || time.Since(began) < d; i++ {
		from := time.Now()
		batch(n)
		if ns := float64(time.Since(from).Nanoseconds()) / float64(n); best == 0 || ns < best {
			best = ns
		}
	}
	return best
}

func systemCall() float64 {
	return least(10*time.Millisecond, 1000, func(n int) {
		for range n {
			unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
	})
}
