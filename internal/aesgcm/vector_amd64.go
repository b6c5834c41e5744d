package aesgcm

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/cpu"
)

// width is how many blocks this processor encrypts at once.
var width = widthHere()

func widthHere() int {
	const vaes, vpclmulqdq = 1 << 9, 1 << 10 // CPUID 7, ECX; x/sys/cpu tells them of processors with AVX-512 alone
	x := &cpu.X86
	if !x.HasAES || !x.HasAVX2 || leaf7()&(vaes|vpclmulqdq) != vaes|vpclmulqdq {
		return 1
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2 {
		return 4
	}
	return 2
}

// Width returns how many blocks this processor encrypts at once: 4, 2, or 1, which is left to the standard library.
func Width() int { return width }

var errRefused = errors.New("aesgcm: message authentication failed")

// vectorAEAD is a cipher with its key.
type vectorAEAD struct {
	key      vectorKey
	four     bool        // blocks at once, instead of two
	standard cipher.AEAD // for additional data of more than one vector
}

// vectorKey is a key as four_amd64.s and two_amd64.s want it; the offsets are known there.
type vectorKey struct {
	rounds [12][16]byte // 11 round keys
	// of four: four times each of the 16th, 12th, 8th and 4th power; of two: twice each of the 8th, 6th, 4th and 2nd,
	// and then for each of these the sum of its halves, in both halves
	steps  [16][16]byte
	powers [16][16]byte // of H times x, from the 16th to the first, as POLYVAL has them
	_      [176]byte    // read with the last powers, and multiplied with zero
	sums   [8][16]byte  // of the halves of the powers from the 8th on, in both halves; for two
	_      [112]byte    // read with the last sums, and multiplied with zero
}

// most is the longest text of one nonce, in bytes (SP 800-38D, 5.2.1.1).
const most = 1<<36 - 32

// vector is the longest additional data that both take, in bytes.
const vector = 64

// newVector returns a cipher that encrypts four blocks at once, or two.
func newVector(key []byte, four bool) cipher.AEAD {
	a := &vectorAEAD{four: four, standard: NewStandard(key)}
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
		switch {
		case four:
			k.steps[i] = k.powers[i&^3]
		case i < 8:
			k.steps[i] = k.powers[8+i&^1]
			k.sums[i] = sumOfHalves(k.powers[8+i])
		default:
			k.steps[i] = sumOfHalves(k.steps[i-8])
		}
	}
	clear(h[:])
	clear(first[:])
	return a
}

func sumOfHalves(b [16]byte) (out [16]byte) {
	for i := range out {
		out[i] = b[i&7] ^ b[i&7+8]
	}
	return out
}

// timesX is mulX_POLYVAL of RFC 8452, appendix A, of a block whose bytes are reversed.
func timesX(h [16]byte) (out [16]byte) {
	high, low := binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])
	carry := -(high >> 63)
	binary.LittleEndian.PutUint64(out[:], low<<1^carry&1)
	binary.LittleEndian.PutUint64(out[8:], high<<1^low>>63^carry&0xc200000000000000)
	return out
}

func (a *vectorAEAD) erase()         { wipe(a.standard) }
func (a *vectorAEAD) NonceSize() int { return NonceSize }
func (a *vectorAEAD) Overhead() int  { return TagSize }

func (a *vectorAEAD) Seal(dst, nonce, plaintext, additional []byte) []byte {
	if len(additional) > vector || uint64(len(plaintext)) > most {
		return a.standard.Seal(dst, nonce, plaintext, additional)
	}
	all, out := grow(dst, len(plaintext)+TagSize)
	check(out, plaintext, nonce, additional)
	k, to, from, n, about := &a.key, &out[0], start(plaintext), len(plaintext), start(additional)
	if a.four {
		seal4(k, to, from, n, about, len(additional), &nonce[0], &out[n])
	} else {
		seal2(k, to, from, n, about, len(additional), &nonce[0], &out[n])
	}
	return all
}

func (a *vectorAEAD) Open(dst, nonce, ciphertext, additional []byte) ([]byte, error) {
	n := len(ciphertext) - TagSize
	if n < 0 || len(additional) > vector || uint64(n) > most {
		return a.standard.Open(dst, nonce, ciphertext, additional)
	}
	all, out := grow(dst, n)
	check(out, ciphertext, nonce, additional)
	var tag [TagSize]byte
	k, to, from, about := &a.key, start(out), &ciphertext[0], start(additional)
	if a.four {
		open4(k, to, from, n, about, len(additional), &nonce[0], &tag[0])
	} else {
		open2(k, to, from, n, about, len(additional), &nonce[0], &tag[0])
	}
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
func seal4(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func open4(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func seal2(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func open2(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)

//go:noescape
func mul(product, a, b *byte)

//go:noescape
func expand(rounds, secret *byte)

func leaf7() (ecx uint32)
