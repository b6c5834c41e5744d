package regmem

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Addresses for heap grants are there wherever Go's heap begins: here a page of something else lies in the middle of
// what a process has.
func TestAddressesAreThereAboveOrBelowTheHeap(t *testing.T) {
	const middle, page = 1 << 46, 4096
	at, err := unix.MmapPtr(-1, 0, unsafe.Add(unsafe.Pointer(nil), middle-page), page, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.MunmapPtr(at, page)
	all, err := setAside()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Munmap(all); err != nil || len(all) < MaxHeap*7/8 {
		t.Errorf("%d bytes, %v", len(all), err)
	}
}
