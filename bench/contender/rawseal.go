package contender

import (
	"crypto/cipher"
	"encoding/binary"

	"multiedge/internal/aesgcm"
)

const (
	rawTag   = aesgcm.TagSize // bytes that sealing adds to a frame
	rawClear = 64             // bytes of a frame's head that are authenticated: all that says something
)

// rawSeal seals and opens the payloads of raw frames, with a key that everybody knows: it is there for what it costs.
type rawSeal struct {
	aead    cipher.AEAD
	sealed  uint64 // frames, the nonce of the next
	nonce   [12]byte
	scratch []byte
}

func newRawSeal(stdlib bool) *rawSeal {
	key := make([]byte, aesgcm.KeySize)
	s := &rawSeal{aead: aesgcm.New(key), scratch: make([]byte, 1<<16)}
	if stdlib {
		s.aead = aesgcm.NewStandard(key)
	}
	return s
}

// seal appends the sealed payload to head, which has room for it, and says in it which nonce was used.
func (s *rawSeal) seal(head, payload []byte) []byte {
	s.sealed++
	binary.BigEndian.PutUint64(head[rawPlace+12:], s.sealed)
	return s.aead.Seal(head, s.nonceOf(s.sealed), payload, head[:rawClear])
}

// open returns the payload of length bytes in frame, nil if it was changed. It is valid until the next call.
func (s *rawSeal) open(frame []byte, length uint64) []byte {
	if uint64(len(frame)) < rawHead+length+rawTag {
		return nil
	}
	payload, err := s.aead.Open(s.scratch[:0], s.nonceOf(binary.BigEndian.Uint64(frame[rawPlace+12:])),
		frame[rawHead:rawHead+length+rawTag], frame[:rawClear])
	if err != nil {
		return nil
	}
	return payload
}

func (s *rawSeal) nonceOf(n uint64) []byte {
	binary.BigEndian.PutUint64(s.nonce[4:], n)
	return s.nonce[:]
}
