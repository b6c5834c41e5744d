package shard

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollUntold is ppoll(2) for at most so long, of which the runtime is not told. It returns -1 for a signal.
func pollUntold(set []unix.PollFd, most time.Duration) int {
	left := unix.NsecToTimespec(int64(most))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&set[0])), uintptr(len(set)),
		uintptr(unsafe.Pointer(&left)), 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(n)
}

// schedAttr reads the scheduling attributes of the calling thread; unix.SchedGetAttr would allocate them.
func schedAttr(a *unix.SchedAttr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(a)), unix.SizeofSchedAttr, 0, 0,
		0)
	if errno != 0 {
		return errno
	}
	return nil
}
