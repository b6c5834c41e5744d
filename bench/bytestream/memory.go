package bytestream

import (
	"fmt"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

// Memory returns size bytes of touched memory, to be given back with Free.
func Memory(size int) ([]byte, error) {
	m, err := Untouched(size)
	if err == nil {
		Touch(m)
	}
	return m, err
}

// Untouched returns size bytes of memory that has no pages yet, to be given back with Free.
func Untouched(size int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", report.Bytes(size), err)
	}
	return m, nil
}

// Touch writes to every page of m. The memory of every contender, edge's regions among them, passes through here before
// a clock starts: the first touch of a page costs as much as copying many, and would be measured as the transport's.
// Every word gets a value, since the kernel may keep pages of zeros once for all.
func Touch(m []byte) {
	for i := 0; i < len(m); i += 8 {
		m[i] = byte(i >> 3)
	}
}

// Free gives memory back; nil is none.
func Free(m []byte) {
	if m != nil {
		_ = unix.Munmap(m) // fails only for what Untouched did not return
	}
}
