package regmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"multiedge/internal/abi"
)

// Perm is a set of accesses that a peer has.
type Perm = abi.Perm

const (
	RemoteRead   = abi.RemoteRead
	RemoteWrite  = abi.RemoteWrite
	RemoteAtomic = abi.RemoteAtomic
)

// Key names a grant on the wire: 64 random bits, so that a key that was not told cannot be guessed. Zero is never a
// key. A key is a secret between the two ends of a connection and is not printed in logs.
type Key uint64

// keyTries bounds the draws for one key. With 64 good bits a second draw is already a rarity; a source that repeats
// itself is broken.
const keyTries = 64

// newKey draws a key that is neither zero nor all ones, nor taken.
func newKey(rand io.Reader, buf *[8]byte, taken func(Key) bool) (Key, error) {
	for range keyTries {
		if _, err := io.ReadFull(rand, buf[:]); err != nil {
			return 0, fmt.Errorf("regmem: no randomness for a key: %w", err)
		}
		k := Key(binary.LittleEndian.Uint64(buf[:]))
		if k != 0 && k != ^Key(0) && !taken(k) {
			return k, nil
		}
	}
	return 0, errors.New("regmem: the random source repeats itself; use crypto/rand")
}
