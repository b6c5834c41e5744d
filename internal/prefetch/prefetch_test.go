package prefetch

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestBeyondMemory fetches what cannot be read, and where nothing is: a fault would end the test's process.
func TestBeyondMemory(t *testing.T) {
	const page = 4096
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 63, 64, 65, page} {
		One(mem[page-n : page])
		One(mem[page : page+n])
		One(mem[page-n:])
		Four(mem[:n], mem[page-n:page], mem[page:page+n], mem[page:])
		Four(mem, mem[1:], mem[63:], mem[64:])
		Four(nil, mem, mem, mem)
		Load(mem[page-n : page])
	}
	for _, n := range []int{1, 63, 64, 65, page} { // on any processor
		one(&mem[page-n], n)
		one(&mem[page], n)
		four(&mem[0], &mem[page-n], &mem[page], &mem[page], n)
		load(&mem[page-n], n) // what is asked for behind it is not there
	}
	gone := mem
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	One(gone)
	Four(gone, gone, gone, gone)
}
