package machine

import (
	"crypto/cipher"
	"hash/crc32"
	"time"

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
