//go:build linux

package regmem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Blank gives up the pages of memory from Map and its descriptor, and keeps the addresses, which show zeros from then
// on and cannot be written: for readers who take no lock against Close. Close follows when there can be none any more.
func (m *Memory) Blank() error {
	if len(m.buf) == 0 || m.unmap == nil {
		return ErrClosed
	}
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&m.buf[0]), uintptr(len(m.buf)), unix.PROT_READ,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("regmem: mmap of %d bytes in place of others: %w", len(m.buf), err)
	}
	m.setPinned(false) // replacing a mapping unlocks
	if m.fd >= 0 {
		err = unix.Close(m.fd)
		m.fd = -1
	}
	return err
}

// inCore returns how many pages of b, which has at most 16 of 4 KiB, are in memory, mapped by this process or not.
// Pages that are swapped out are not.
func inCore(b []byte) (n int) {
	var pages [pinPiece / 4096]byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return 0
	}
	for _, p := range pages[:(len(b)+pageSize-1)/pageSize] {
		n += int(p & 1)
	}
	return n
}

var pageSize = unix.Getpagesize()

// lockOnFault locks each page of b when it is first used (mlock2).
func lockOnFault(b []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return errno
	}
	return nil
}
