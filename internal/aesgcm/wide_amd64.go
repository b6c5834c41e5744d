package aesgcm

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/cpu"
)

var (
	wide = cpu.X86.HasAES && cpu.X86.HasAVX && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ &&
		cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VAES && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasBMI2
	errRefused = errors.New("aesgcm: message authentication failed")
)

// Wide reports whether this processor encrypts four blocks at once.
func Wide() bool { return wide }

// wideAEAD is a cipher with its key.
type wideAEAD struct {
	key      wideKey
	standard cipher.AEAD // for additional data of more than one vector
}

// wideKey is a key as aesgcm_amd64.s wants it; the offsets are known there.
type wideKey struct {
	rounds [12][16]byte // 11 round keys
	steps  [16][16]byte // four times each of the 16th, 12th, 8th and 4th power
	powers [16][16]byte // of H times x, from the 16th to the first, as POLYVAL has them
	_      [176]byte    // read with the last powers, and multiplied with zero
}

// most is the longest text of one nonce, in bytes (SP 800-38D, 5.2.1.1).
const most = 1<<36 - 32

// vector is the longest additional data that aesgcm_amd64.s takes, in bytes.
const vector = 64

func newWide(key []byte) cipher.AEAD {
	a := &wideAEAD{standard: NewStandard(key)}
	var h [16]byte
	block := newBlock(key)
	block.Encrypt(h[:], h[:])
	wipe(block)
	k := &a.key
	expand(&k.rounds[0][0], &key[0])
	first := timesX(h)
	k.powers[15] = first
	for i := 14; i >= 0; i-- {
		mul(&k.powers[i][0], &k.powers[i+1][0], &first[0])
	}
	for i := range k.steps {
		k.steps[i] = k.powers[i&^3]
	}
	return a
}

// timesX is mulX_POLYVAL of RFC 8452, appendix A, of a block whose bytes are reversed.
func timesX(h [16]byte) (out [16]byte) {
	high, low := binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])
	carry := -(high >> 63)
	binary.LittleEndian.PutUint64(out[:], low<<1^carry&1)
	binary.LittleEndian.PutUint64(out[8:], high<<1^low>>63^carry&0xc200000000000000)
	return out
}

func (a *wideAEAD) erase()         { wipe(a.standard) }
func (a *wideAEAD) NonceSize() int { return NonceSize }
func (a *wideAEAD) Overhead() int  { return TagSize }

func (a *wideAEAD) Seal(dst, nonce, plaintext, additional []byte) []byte {
	if len(additional) > vector || uint64(len(plaintext)) > most {
		return a.standard.Seal(dst, nonce, plaintext, additional)
	}
	all, out := grow(dst, len(plaintext)+TagSize)
	check(out, plaintext, nonce, additional)
	seal(&a.key, &out[0], start(plaintext), len(plaintext), start(additional), len(additional), &nonce[0],
		&out[len(plaintext)])
	return all
}

func (a *wideAEAD) Open(dst, nonce, ciphertext, additional []byte) ([]byte, error) {
	n := len(ciphertext) - TagSize
	if n < 0 || len(additional) > vector || uint64(n) > most {
		return a.standard.Open(dst, nonce, ciphertext, additional)
	}
	all, out := grow(dst, n)
	check(out, ciphertext, nonce, additional)
	var tag [TagSize]byte
	open(&a.key, start(out), &ciphertext[0], n, start(additional), len(additional), &nonce[0], &tag[0])
	if subtle.ConstantTimeCompare(tag[:], ciphertext[n:]) != 1 {
		clear(out)
		return nil, errRefused
	}
	return all, nil
}

// check panics where crypto/cipher does.
func check(out, text, nonce, additional []byte) {
	if len(nonce) != NonceSize {
		panic("BUG: aesgcm: a nonce is 12 bytes long")
	}
	if overlap(out, text) && &out[0] != &text[0] || overlap(out, additional) {
		panic("BUG: aesgcm: buffers overlap, but not exactly")
	}
}

// grow returns dst with n bytes more, and these.
func grow(dst []byte, n int) (all, more []byte) {
	if total := len(dst) + n; total <= cap(dst) {
		all = dst[:total]
	} else {
		all = make([]byte, total)
		copy(all, dst)
	}
	return all, all[len(dst):]
}

func start(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	return &b[0]
}

//go:noescape
func seal(k *wideKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func open(k *wideKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func mul(product, a, b *byte)

//go:noescape
func expand(rounds, secret *byte)
