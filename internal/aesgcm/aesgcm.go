// Package aesgcm is AES-128-GCM (NIST SP 800-38D) for the frames of a session: what crypto/cipher gives, and faster
// where the processor encrypts two or four blocks at once.
//
// A frame's payload is the largest single cost of an encrypted transport, and the standard library works on one block
// an instruction (golang.org/issue/42726). Processors with VAES and VPCLMULQDQ run four_amd64.s if they have AVX-512
// (Intel's Xeons from Ice Lake on, AMD's from Zen 4 on), and else two_amd64.s (AMD's Zen 3, Intel's from Alder Lake
// on). No branch and no address there depends on a key, a text or a tag. Every other processor runs the standard
// library, and the bytes are the same.
package aesgcm

import (
	"crypto/aes"
	"crypto/cipher"
	"reflect"
)

const (
	KeySize   = 16 // bytes
	NonceSize = 12 // bytes
	TagSize   = 16 // bytes, what sealing adds
)

// New returns AES-128-GCM with key, of KeySize bytes, which it does not keep. As always, nonces have NonceSize, buffers
// overlap exactly or not at all, and Open leaves zeros where it would have put what it refuses.
func New(key []byte) cipher.AEAD {
	if w := Width(); w > 1 {
		return newVector(key, w == 4)
	}
	return NewStandard(key)
}

// NewStandard is New by the standard library.
func NewStandard(key []byte) cipher.AEAD {
	block := newBlock(key)
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("BUG: aesgcm: " + err.Error())
	}
	if reflect.TypeOf(aead).String() == "*gcm.GCM" { // it has a copy
		wipe(block)
	}
	return aead
}

// Erase overwrites the key of a, which New returned: it is of no use afterwards.
func Erase(a cipher.AEAD) {
	if w, ok := a.(interface{ erase() }); ok {
		w.erase()
	}
	wipe(a)
}

// wipe overwrites the struct that v points to, which the standard library keeps its keys in.
func wipe(v any) {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer {
		p.Elem().SetZero()
	}
}

func newBlock(key []byte) cipher.Block {
	if len(key) != KeySize {
		panic("BUG: aesgcm: a key is 16 bytes long")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("BUG: aesgcm: " + err.Error())
	}
	return block
}
