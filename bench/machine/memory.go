package machine

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

const (
	coldMemory = 256 << 20              // at most, where touching it is quick
	touchBatch = 64                     // pages
	touchTime  = 150 * time.Millisecond // for all touching
)

// memory measures the first touch of pages and copies through memory that no cache holds. It touches as much as it can
// within touchTime; the lower half is then copied to the upper one.
func memory(c *report.Card) error {
	fd, err := unix.MemfdCreate("machine", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("machine: memory: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, coldMemory); err != nil {
		return fmt.Errorf("machine: memory: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, coldMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("machine: memory: %w", err)
	}
	defer unix.Munmap(mem)
	touched := 0
	c.FirstTouch, touched = firstTouch(mem)
	c.ColdBytes = touched &^ (2*block - 1)
	if c.ColdBytes == 0 {
		return nil
	}
	half := c.ColdBytes / 2
	at := 0
	turns := max(1, half/block/3) // of a batch: three batches are at most one pass, in which no block comes twice
	c.CopyCold = float64(block) * 1e9 / least(2*each, turns, func(n int) {
		for range n {
			copy(mem[half+at:half+at+block], mem[at:at+block])
			at = (at + block) % half
		}
	})
	return nil
}

// firstTouch writes to one page after the other until the time is over, and returns the nanoseconds for a page, of the
// fastest batch, and how many bytes were touched.
func firstTouch(mem []byte) (ns float64, touched int) {
	page := os.Getpagesize()
	began := time.Now()
	for touched+touchBatch*page <= len(mem) && time.Since(began) < touchTime {
		from := time.Now()
		for range touchBatch {
			mem[touched] = 1
			touched += page
		}
		if v := float64(time.Since(from).Nanoseconds()) / touchBatch; ns == 0 || v < ns {
			ns = v
		}
	}
	return ns, touched
}
