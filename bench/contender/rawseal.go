package contender

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
)

const rawTag = 16 // bytes that sealing adds to a frame

// rawSeal seals and opens the payloads of raw frames, with a key that everybody knows: it is there for what it costs.
type rawSeal struct {
	aead    cipher.AEAD
	sealed  uint64 // frames, the nonce of the next
	nonce   [12]byte
	scratch []byte
}

func newRawSeal() *rawSeal {
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		panic("BUG: contender: " + err.Error())
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("BUG: contender: " + err.Error())
	}
	return &rawSeal{aead: aead, scratch: make([]byte, 1<<16)}
}

// seal appends the sealed payload to head, which has room for it, and says in it which nonce was used.
func (s *rawSeal) seal(head, payload []byte) []byte {
	s.sealed++
	binary.BigEndian.PutUint64(head[rawPlace+12:], s.sealed)
	return s.aead.Seal(head, s.nonceOf(s.sealed), payload, head)
}

// open returns the payload of length bytes in frame, nil if it was changed. It is valid until the next call.
func (s *rawSeal) open(frame []byte, length uint64) []byte {
	if uint64(len(frame)) < rawHead+length+rawTag {
		return nil
	}
	payload, err := s.aead.Open(s.scratch[:0], s.nonceOf(binary.BigEndian.Uint64(frame[rawPlace+12:])), frame[rawHead:rawHead+length+rawTag], frame[:rawHead])
	if err != nil {
		return nil
	}
	return payload
}

func (s *rawSeal) nonceOf(n uint64) []byte {
	binary.BigEndian.PutUint64(s.nonce[4:], n)
	return s.nonce[:]
}
