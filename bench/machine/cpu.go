package machine

import (
	"crypto/cipher"
	"hash/crc32"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/aesgcm"
)

const (
	// block is what is copied at a time: with its copy it stays within a core's own cache.
	block = 128 << 10
	// frame is what is sealed and summed at a time: about the payload of a frame at MTU 9000.
	frame = 8 << 10

	each = 15 * time.Millisecond // for each figure
)

// processor measures what one core does with bytes that its cache holds.
func processor(c *report.Card) {
	from, to := make([]byte, block), make([]byte, block)
	c.CopyHot = rate(block, func() { copy(to, from) })
	key := make([]byte, aesgcm.KeySize)
	seal := func(a cipher.AEAD) float64 {
		nonce, out := make([]byte, aesgcm.NonceSize), make([]byte, 0, frame+aesgcm.TagSize)
		return rate(frame, func() { out = a.Seal(out[:0], nonce, from[:frame], nil) })
	}
	c.AESGCM, c.AESGCMStandard = seal(aesgcm.New(key)), seal(aesgcm.NewStandard(key))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := uint32(0)
	c.CRC32C = rate(frame, func() { sum = crc32.Update(sum, table, from[:frame]) })
}

// rate is bytes per second of something that takes so many bytes a turn.
func rate(bytes int, turn func()) float64 {
	return float64(bytes) * 1e9 / least(each, 20, func(n int) {
		for range n {
			turn()
		}
	})
}

const (
	coldMemory = 256 << 20              // at most, where touching it is quick
	touchBatch = 64                     // pages
	touchTime  = 150 * time.Millisecond // for all touching
)

// memory measures the first touch of pages and copies through memory that no cache holds. It touches as much as it can
// within touchTime; the lower half is then copied to the upper one. It ends by kit.Check where memory is refused.
func memory(c *report.Card) {
	fd := kit.Get(unix.MemfdCreate("machine", unix.MFD_CLOEXEC))
	defer unix.Close(fd)
	kit.Check(unix.Ftruncate(fd, coldMemory))
	mem := kit.Get(unix.Mmap(fd, 0, coldMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	defer unix.Munmap(mem)
	touched := 0
	c.FirstTouch, touched = firstTouch(mem)
	c.ColdBytes = touched &^ (2*block - 1)
	if c.ColdBytes == 0 {
		return
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
