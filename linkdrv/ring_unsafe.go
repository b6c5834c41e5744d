package linkdrv

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// slotHeader views the start of a slot, which is at least 64 bytes long and aligned, as its header.
func slotHeader(slot []byte) *unix.Tpacket2Hdr {
	_ = slot[unsafe.Sizeof(unix.Tpacket2Hdr{})-1]
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(unsafe.SliceData(slot)))
}
