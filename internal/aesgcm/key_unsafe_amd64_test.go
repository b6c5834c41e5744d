package aesgcm

import (
	"bytes"
	"testing"
	"unsafe"
)

// TestNothingBeyondKey has a key end where memory ends, and begin where it begins.
func TestNothingBeyondKey(t *testing.T) {
	for _, c := range []struct {
		width      int
		seal, open func(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)
	}{{2, seal2, open2}, {4, seal4, open4}} {
		if c.width > Width() {
			continue // this processor has no such vectors
		}
		s := newSource(5)
		secret := s.bytes(KeySize)
		std, key := NewStandard(secret), newVector(secret, c.width == 4).(*vectorAEAD).key
		m := room(t)
		for _, at := range []uintptr{0, uintptr(len(m)) - unsafe.Sizeof(key)} {
			k := (*vectorKey)(unsafe.Pointer(&m[at]))
			*k = key
			for n := range 520 {
				additional, plain, nonce := s.bytes(n%65), s.bytes(n), s.bytes(NonceSize)
				want := std.Seal(nil, nonce, plain, additional)
				got := make([]byte, n+TagSize)
				c.seal(k, &got[0], start(plain), n, start(additional), len(additional), &nonce[0], &got[n])
				if !bytes.Equal(got, want) {
					t.Fatalf("%d blocks, %d bytes: sealed differs", c.width, n)
				}
				opened, tag := make([]byte, n), make([]byte, TagSize)
				c.open(k, start(opened), &want[0], n, start(additional), len(additional), &nonce[0], &tag[0])
				if !bytes.Equal(opened, plain) || !bytes.Equal(tag, want[n:]) {
					t.Fatalf("%d blocks, %d bytes: opened differs", c.width, n)
				}
			}
		}
	}
}

// TestEraseVectors fails if a key of vectors, or the standard library's beside it, is kept by Erase.
func TestEraseVectors(t *testing.T) {
	if Width() == 1 {
		return // New returns the standard library's: TestErase
	}
	a := New(bytes.Repeat([]byte{1}, KeySize)).(*vectorAEAD)
	standard := a.standard
	seal := func() (b []byte) {
		defer func() { recover() }()
		return standard.Seal(nil, make([]byte, NonceSize), []byte("text"), nil)
	}
	before := seal()
	Erase(a)
	if a.key != (vectorKey{}) {
		t.Error("the key of vectors is still there")
	}
	if before == nil || bytes.Equal(seal(), before) {
		t.Error("the standard library's key beside it is still there")
	}
}
