package aesgcm

import (
	"bytes"
	"crypto/cipher"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns the standard library's cipher and this package's, which is the same where processors encrypt one block
// at a time (TestWidthHere says so).
func pair(t testing.TB, key []byte) (standardOne, ours cipher.AEAD) {
	t.Helper()
	return NewStandard(key), New(key)
}

func TestWidthHere(t *testing.T) {
	std, ours := pair(t, make([]byte, KeySize))
	t.Logf("width %d: New returns a %T", Width(), ours)
	if (fmt.Sprintf("%T", std) == fmt.Sprintf("%T", ours)) != (Width() == 1) {
		t.Errorf("the width is %d, and New returns a %T", Width(), ours)
	}
}

// TestNarrower runs the other tests where vectors that the processor has are said to be missing.
func TestNarrower(t *testing.T) {
	for _, c := range []struct {
		off  string
		most int
	}{{"avx512f", 2}, {"avx2", 1}} {
		t.Run(c.off, func(t *testing.T) {
			t.Parallel()
			width := min(c.most, Width())
			cmd := exec.Command(os.Args[0], "-test.skip", "^TestNarrower$", "-test.v")
			cmd.Env = append(os.Environ(), "GODEBUG=cpu."+c.off+"=off")
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, fmt.Appendf(nil, "width %d:", width)) ||
				!bytes.Contains(out, []byte("PASS: TestMisuse")) {
				t.Errorf("want width %d: %v: %s", width, err, out)
			}
		})
	}
}

// source makes the bytes of a test from its seed.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 2026))} }

func (s source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

// TestKnownAnswers has test cases 1 to 4 of McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B.
func TestKnownAnswers(t *testing.T) {
	const (
		key   = "feffe9928665731c6d6a8f9467308308"
		nonce = "cafebabefacedbaddecaf888"
		plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72" +
			"1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
		coded = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e" +
			"21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
	)
	for _, c := range []struct{ name, key, nonce, plain, additional, sealed string }{
		{"1", "00000000000000000000000000000000", "000000000000000000000000", "", "",
			"58e2fccefa7e3061367f1d57a4e7455a"},
		{"2", "00000000000000000000000000000000", "000000000000000000000000", "00000000000000000000000000000000", "",
			"0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"},
		{"3", key, nonce, plain, "", coded + "4d5c2af327cd64a62cf35abd2ba6fab4"},
		{"4", key, nonce, plain[:120], "feedfacedeadbeeffeedfacedeadbeefabaddad2",
			coded[:120] + "5bc94fbc3221a5db94fae95ae7121a47"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New(unhex(t, c.key))
			sealed := a.Seal(nil, unhex(t, c.nonce), unhex(t, c.plain), unhex(t, c.additional))
			if got := hex.EncodeToString(sealed); got != c.sealed {
				t.Errorf("sealed %s, want %s", got, c.sealed)
			}
			opened, err := a.Open(nil, unhex(t, c.nonce), sealed, unhex(t, c.additional))
			if err != nil || hex.EncodeToString(opened) != c.plain {
				t.Errorf("opened %x, %v; want %s", opened, err, c.plain)
			}
		})
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSameAsStandard seals every length around the turns of 128 and 256 bytes, others up to the largest frame, and one
// whose counter needs three bytes, behind bytes that are kept and at every place within a cache line.
func TestSameAsStandard(t *testing.T) {
	const seed = 1
	s := newSource(seed)
	lengths := []int{1360, 4096, 8144, 8192, 8937, 16384, 65400, 65535, 1<<20 + 77}
	for n := range 1200 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		std, ours := pair(t, s.bytes(KeySize))
		nonce, plain, additional, kept := s.bytes(NonceSize), s.bytes(n + 64)[s.IntN(64):][:n], s.bytes(n%67),
			s.bytes(s.IntN(80))
		want := std.Seal(bytes.Clone(kept), nonce, plain, additional)
		if got := ours.Seal(bytes.Clone(kept), nonce, plain, additional); !bytes.Equal(got, want) {
			t.Fatalf("seed %d, %d bytes, %d additional: sealed differs from byte %d on", seed, n, len(additional),
				differ(got, want))
		}
		got, err := ours.Open(bytes.Clone(kept), nonce, want[len(kept):], additional)
		if err != nil || !bytes.Equal(got, append(kept, plain...)) {
			t.Fatalf("seed %d, %d bytes, %d additional: opened differs from byte %d on: %v", seed, n, len(additional),
				differ(got, plain), err)
		}
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestInPlace seals and opens where the text lies, behind a prefix and before other bytes, with every length of
// additional data; what is refused is cleared, and nothing else.
func TestInPlace(t *testing.T) {
	const before, behind = 16, 40
	s := newSource(2)
	for al := range 81 {
		for _, n := range []int{0, 1, 15, 16, 17, 63, 64, 65, 80, 81, 127, 128, 129, 192, 193, 240, 241, 255, 256, 257,
			320, 321, 511, 512, 513, 767, 768, 775} {
			std, ours := pair(t, s.bytes(KeySize))
			nonce, additional, frame := s.bytes(NonceSize), s.bytes(al), s.bytes(before+n+TagSize+behind)
			end := before + n + TagSize
			was := bytes.Clone(frame)
			want := append(std.Seal(bytes.Clone(was[:before]), nonce, was[before:before+n], additional), was[end:]...)
			if got := ours.Seal(frame[:before], nonce, frame[before:before+n], additional); !bytes.Equal(frame, want) ||
				len(got) != end || &got[0] != &frame[0] {
				t.Fatalf("%d bytes, %d additional: sealed differs", n, al)
			}
			bad := bytes.Clone(frame)
			bad[end-1] ^= 1
			want = bytes.Clone(bad)
			clear(want[before : before+n])
			if got, err := ours.Open(bad[:before], nonce, bad[before:end], additional); err == nil || got != nil ||
				!bytes.Equal(bad, want) {
				t.Fatalf("%d bytes, %d additional: %v, and left %x, want %x", n, al, err, bad, want)
			}
			if got, err := ours.Open(frame[:before], nonce, frame[before:end], additional); err != nil ||
				!bytes.Equal(got, was[:before+n]) {
				t.Fatalf("%d bytes, %d additional: opened differs: %v", n, al, err)
			}
		}
	}
}

// TestChangedIsRefused changes every bit of what is sealed, of the nonce and of the additional data.
func TestChangedIsRefused(t *testing.T) {
	s := newSource(3)
	for _, n := range []int{0, 1, 16, 63, 64, 65, 255, 256, 257, 600} {
		a := New(s.bytes(KeySize))
		nonce, additional := s.bytes(NonceSize), s.bytes(18)
		sealed := a.Seal(nil, nonce, s.bytes(n), additional)
		for _, part := range [][]byte{sealed, nonce, additional} {
			for bit := range 8 * len(part) {
				part[bit/8] ^= 1 << (bit % 8)
				out := bytes.Repeat([]byte{0xaa}, n+1)
				if opened, err := a.Open(out[:0], nonce, sealed, additional); err == nil || opened != nil {
					t.Fatalf("%d bytes: opened although bit %d of %d was changed", n, bit, 8*len(part))
				}
				if !bytes.Equal(out[:n], make([]byte, n)) || out[n] != 0xaa {
					t.Fatalf("%d bytes, bit %d: refused, and left %x", n, bit, out)
				}
				part[bit/8] ^= 1 << (bit % 8)
			}
		}
		if _, err := a.Open(nil, nonce, sealed, additional); err != nil {
			t.Fatalf("%d bytes: refused unchanged: %v", n, err)
		}
		for short := range min(len(sealed), TagSize+3) {
			if _, err := a.Open(nil, nonce, sealed[:short], additional); err == nil {
				t.Fatalf("opened the first %d of %d bytes", short, len(sealed))
			}
		}
	}
}

// room is two pages between pages that nobody may touch.
func room(t *testing.T) []byte {
	const page = 4096
	m, err := unix.Mmap(-1, 0, 4*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	if err := unix.Mprotect(m[page:3*page], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	return m[page : 3*page]
}

// TestNothingBeyond has every buffer end where memory ends, and then begin where it begins: who reads or writes beyond
// dies.
func TestNothingBeyond(t *testing.T) {
	s := newSource(4)
	plain, sealed, back, additional, nonce := room(t), room(t), room(t), room(t), room(t)
	for _, atEnd := range []bool{true, false} {
		cut := func(m []byte, n int) []byte {
			if atEnd {
				return m[len(m)-n:]
			}
			return m[:n:n]
		}
		for n := range 700 {
			std, ours := pair(t, s.bytes(KeySize))
			p, c, b, a, v := cut(plain, n), cut(sealed, n+TagSize), cut(back, n), cut(additional, n%65),
				cut(nonce, NonceSize)
			copy(p, s.bytes(n))
			copy(a, s.bytes(len(a)))
			copy(v, s.bytes(len(v)))
			ours.Seal(c[:0], v, p, a)
			if !bytes.Equal(c, std.Seal(nil, v, p, a)) {
				t.Fatalf("%d bytes: sealed differs", n)
			}
			if _, err := ours.Open(b[:0], v, c, a); err != nil || !bytes.Equal(b, p) {
				t.Fatalf("%d bytes: opened differs: %v", n, err)
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	a, b, nonce := New(make([]byte, KeySize)), make([]byte, 600), make([]byte, NonceSize)
	for name, f := range map[string]func(){
		"short key":              func() { New(make([]byte, 15)) },
		"long key":               func() { New(make([]byte, 32)) },
		"short nonce":            func() { a.Seal(nil, make([]byte, 11), nil, nil) },
		"long nonce, to open":    func() { a.Open(nil, make([]byte, 13), make([]byte, 16), nil) },
		"sealed over its source": func() { a.Seal(b[8:8], nonce, b[:300], nil) },
		"opened over its source": func() { a.Open(b[8:8], nonce, b[:300], nil) },
		"tag over its source":    func() { a.Seal(b[:0], nonce, b[300:600], nil) },
		"sealed over additional": func() { a.Seal(b[:0], nonce, b[:300], b[:16]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocations(t *testing.T) {
	a, nonce, plain, out := New(make([]byte, KeySize)), make([]byte, NonceSize), make([]byte, 8144),
		make([]byte, 0, 8144+TagSize)
	sealed := a.Seal(nil, nonce, plain, nonce)
	if n := testing.AllocsPerRun(100, func() {
		a.Seal(out, nonce, plain, nonce)
		if _, err := a.Open(out, nonce, sealed, nonce); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations to seal and open", n)
	}
}

// FuzzSame seals and opens whatever comes, by both.
func FuzzSame(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte("nonce 96 bit"), []byte("plaintext"), []byte("additional"))
	f.Add(make([]byte, KeySize), make([]byte, NonceSize), make([]byte, 600), make([]byte, 64))
	f.Fuzz(func(t *testing.T, key, nonce, text, additional []byte) {
		if len(key) != KeySize || len(nonce) != NonceSize || len(additional) > 1000 {
			return
		}
		std, ours := pair(t, key)
		want := std.Seal(nil, nonce, text, additional)
		if got := ours.Seal(nil, nonce, text, additional); !bytes.Equal(got, want) {
			t.Fatalf("sealed %x, want %x", got, want)
		}
		if opened, err := ours.Open(nil, nonce, want, additional); err != nil || !bytes.Equal(opened, text) {
			t.Fatalf("opened %x, %v", opened, err)
		}
		a, err := std.Open(nil, nonce, text, additional)
		b, err2 := ours.Open(nil, nonce, text, additional)
		if (err == nil) != (err2 == nil) || !bytes.Equal(a, b) {
			t.Fatalf("opened %x, %v, want %x, %v", b, err2, a, err)
		}
	})
}

func BenchmarkAEAD(b *testing.B) {
	std, ours := pair(b, make([]byte, KeySize))
	for _, c := range []struct {
		name string
		aead cipher.AEAD
	}{{"standard", std}, {"ours", ours}} {
		for _, n := range []int{16, 64, 256, 1360, 8144} {
			nonce, additional := make([]byte, NonceSize), make([]byte, 18)
			b.Run(fmt.Sprintf("%s/seal/%d", c.name, n), func(b *testing.B) {
				plain, out := make([]byte, n), make([]byte, 0, n+TagSize)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					c.aead.Seal(out, nonce, plain, additional)
				}
			})
			b.Run(fmt.Sprintf("%s/open/%d", c.name, n), func(b *testing.B) {
				sealed, out := c.aead.Seal(nil, nonce, make([]byte, n), additional), make([]byte, 0, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.aead.Open(out, nonce, sealed, additional); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		// Payloads of a large region, which no cache holds, into a few frames.
		b.Run(c.name+"/seal/cold", func(b *testing.B) {
			const n = 8144
			region, frames, nonce := make([]byte, 256<<20), make([]byte, 32*(n+TagSize)), make([]byte, NonceSize)
			for i := range region {
				region[i] = byte(i)
			}
			b.SetBytes(n)
			at := 0
			for b.Loop() {
				c.aead.Seal(frames[at%32*(n+TagSize):][:0], nonce, region[at%(len(region)/n)*n:][:n], nil)
				at++
			}
		})
	}
}

// An erased cipher has no key left, in whatever it is made of.
func TestErase(t *testing.T) {
	for name, a := range map[string]cipher.AEAD{"New": New(make([]byte, KeySize)),
		"NewStandard": NewStandard(bytes.Repeat([]byte{1}, KeySize))} {
		seal := func() (b []byte) {
			defer func() { recover() }()
			return a.Seal(nil, make([]byte, NonceSize), []byte("text"), make([]byte, 65))
		}
		before := seal()
		if Erase(a); before == nil || bytes.Equal(seal(), before) {
			t.Errorf("%s: the key is still there", name)
		}
	}
}
