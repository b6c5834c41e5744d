//go:build linux

package remap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapOver makes mem show the file from offset on, with all its pages present. The kernel replaces the mapping under a
// lock that page faults take, so other threads see the old pages until they see the new ones.
func mapOver(fd int, offset int64, mem []byte) error {
	_, err := unix.MmapPtr(fd, offset, unsafe.Pointer(&mem[0]), uintptr(len(mem)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE)
	return err
}
