package ipc

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// futexWait sleeps while the word has that value, as a client's thread does. It returns ETIMEDOUT if nobody woke it.
func futexWait(word *atomic.Uint32, value uint32, most time.Duration) error {
	const wait = 0 // FUTEX_WAIT
	left := unix.NsecToTimespec(most.Nanoseconds())
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wait, uintptr(value),
		uintptr(unsafe.Pointer(&left)), 0, 0)
	if errno != 0 && errno != unix.EAGAIN { // it was taken before it slept
		return errno
	}
	return nil
}
