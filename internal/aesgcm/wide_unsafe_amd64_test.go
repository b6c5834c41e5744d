package aesgcm

import (
	"bytes"
	"testing"
	"unsafe"
)

// TestNothingBeyondKey has a key end where memory ends, and begin where it begins.
func TestNothingBeyondKey(t *testing.T) {
	if !Wide() {
		return // there is no such key
	}
	s := newSource(5)
	std, ours := pair(t, s.bytes(KeySize))
	key := ours.(*wideAEAD).key
	m := room(t)
	for _, at := range []uintptr{0, uintptr(len(m)) - unsafe.Sizeof(key)} {
		k := (*wideKey)(unsafe.Pointer(&m[at]))
		*k = key
		for n := range 520 {
			additional, plain, nonce := s.bytes(n%65), s.bytes(n), s.bytes(NonceSize)
			want := std.Seal(nil, nonce, plain, additional)
			got := make([]byte, n+TagSize)
			seal(k, &got[0], start(plain), n, start(additional), len(additional), &nonce[0], &got[n])
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: sealed differs", n)
			}
			opened, tag := make([]byte, n), make([]byte, TagSize)
			open(k, start(opened), &want[0], n, start(additional), len(additional), &nonce[0], &tag[0])
			if !bytes.Equal(opened, plain) || !bytes.Equal(tag, want[n:]) {
				t.Fatalf("%d bytes: opened differs", n)
			}
		}
	}
}
