package machine

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// word is a futex in memory that two processes share.
type word = atomic.Uint32

// words lie at the beginning of the shared page, each in a cache line of its own.
type words struct {
	question word
	_        [60]byte
	answer   word
	_        [60]byte
	over     word // the peer is to end, or has
}

func mapWords(fd int) (*words, error) {
	mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("machine: mapping the shared page: %w", err)
	}
	return (*words)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

func (w *words) unmap() error {
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(w)), os.Getpagesize()))
}

// Operations of futex(2), between processes.
const (
	opWait = 0
	opWake = 1
)

func futexWait(w *word, v uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWait, uintptr(v), 0, 0, 0)
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		return fmt.Errorf("machine: futex: %w", errno)
	}
	return nil
}

func futexWake(w *word) error {
	if _, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWake, 1, 0, 0, 0); errno != 0 {
		return fmt.Errorf("machine: futex: %w", errno)
	}
	return nil
}
