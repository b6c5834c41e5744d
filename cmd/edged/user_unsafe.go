package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setGroups sets the supplementary groups of the calling thread alone; package unix sets those of all threads.
func setGroups(list []uint32) error {
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)),
		uintptr(unsafe.Pointer(unsafe.SliceData(list))), 0)
	if e != 0 {
		return e
	}
	return nil
}
