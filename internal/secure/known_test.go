package secure

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"strings"
	"testing"
	"time"
)

// byHand is clauses 10.5 and 10.6 written again, with the standard library's parts alone.
type byHand struct {
	aead cipher.AEAD
	iv   []byte
}

func expanded(secret []byte, label string, n int) []byte {
	b, err := hkdf.Expand(sha256.New, secret, label, n)
	if err != nil {
		panic(err)
	}
	return b
}

func newByHand(t *testing.T, secret []byte) byHand {
	t.Helper()
	block, err := aes.NewCipher(expanded(secret, "multiedge key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return byHand{aead, expanded(secret, "multiedge iv", 12)}
}

// seal seals with the iv exclusive-or first, path and packet number.
func (h byHand) seal(text, clear []byte, first, path byte, pn uint64) []byte {
	nonce := make([]byte, 12)
	nonce[0], nonce[3] = first, path
	binary.BigEndian.PutUint64(nonce[4:], pn)
	for i, b := range h.iv {
		nonce[i] ^= b
	}
	return h.aead.Seal(nil, nonce, text, clear)
}

// Clauses 10.5 and 10.6: both ends are this code, so a frame that opens does not say that its nonces are what they
// should be, and that the two of a frame in two parts differ.
func TestFramesAsTheProtocolSays(t *testing.T) {
	const path, pn = 0x3f, 0x0102030405060708
	s, h := NewSealer(secretOf(5)), newByHand(t, secretOf(5)[:])
	s.Left = 2
	frame := []byte("0123456789abcdef and a tail")
	want := append(bytes.Clone(frame[:16]), h.seal(frame[16:], frame[:16], 0, path, pn)...)
	if got := s.Seal(append(make([]byte, 0, 100), frame...), path, pn); !bytes.Equal(got, want) {
		t.Errorf("sealed\n%x, want\n%x", got, want)
	}
	clear := append(bytes.Clone(frame[:16]), 0, byte(len(frame)-16))
	want = append(bytes.Clone(clear), h.seal(frame[16:], clear, 0, path, pn)...)
	want = append(want, h.seal([]byte("payload"), clear, 0x80, path, pn)...)
	got := s.SealParts(append(make([]byte, 0, 200), frame...), []byte("payload"), path, pn)
	if !bytes.Equal(got, want) {
		t.Errorf("sealed in two parts\n%x, want\n%x", got, want)
	}
	if s.Left != 0 {
		t.Errorf("%d frames left of two, and two were sealed", s.Left)
	}
}

// Clause 10.6: how generations follow each other.
func TestExchangeAsTheProtocolSays(t *testing.T) {
	for range 4 { // either half may be the smaller
		x, y := NewExchange(), NewExchange()
		private, err := ecdh.X25519().NewPrivateKey(bytes.Clone(x.private[:]))
		if err != nil {
			t.Fatal(err)
		}
		public, err := ecdh.X25519().NewPublicKey(y.Public[:])
		if err != nil {
			t.Fatal(err)
		}
		z, err := private.ECDH(public)
		if err != nil {
			t.Fatal(err)
		}
		p, q := string(x.Public[:]), string(y.Public[:])
		if p > q {
			p, q = q, p
		}
		was := PresentOf(NewSealer(secretOf(3)), NewOpener(secretOf(4)))
		w, r, err := x.Next(was, &y.Public)
		if err != nil {
			t.Fatal(err)
		}
		if *was != (Present{}) {
			t.Error("the secrets before are not erased")
		}
		for name, c := range map[string]struct {
			before *Secret
			got    Secret
		}{"write": {secretOf(3), w.secret}, "read": {secretOf(4), r.secret}} {
			prk, err := hkdf.Extract(sha256.New, z, c.before[:])
			if err != nil {
				t.Fatal(err)
			}
			if want := expanded(prk, "multiedge fresh"+p+q, 32); !bytes.Equal(c.got[:], want) {
				t.Errorf("next secret to %s: %x, want %x", name, c.got, want)
			}
		}
	}
}

// The shortest frames open; what there is no room for, or claims lengths that it has not, does not.
func TestOpenBounds(t *testing.T) {
	o := NewOpener(secretOf(1))
	sealed := NewSealer(secretOf(1)).Seal(make([]byte, ClearLen, 100), 1, 1)
	for room, want := range map[int]bool{ClearLen - 1: false, ClearLen: true} {
		got, ok := o.Open(new(Nonce), make([]byte, room), sealed, 1, 1, 1)
		if ok != want || ok && len(got) != ClearLen {
			t.Errorf("with %d bytes of room: %v, %d bytes", room, ok, len(got))
		}
	}
	const head = 64
	parts := NewSealer(secretOf(1)).SealParts(make([]byte, head, 200), nil, 1, 1)
	open := func(head, room int, epoch uint8) bool {
		_, ok := o.OpenParts(new(Nonce), make([]byte, room), parts, head, epoch, 1, 1)
		return ok
	}
	room := 2 * len(parts)
	if !open(head, room, 1) || open(head, room-1, 1) || open(head+1, room, 1) || open(head, room, 2) {
		t.Errorf("headers alone %v; with less room %v, headers longer than the part %v, another key %v",
			open(head, room, 1), open(head, room-1, 1), open(head+1, room, 1), open(head, room, 2))
	}
	parts = NewSealer(secretOf(1)).SealParts(make([]byte, ClearLen, 200), nil, 1, 1)
	if !open(ClearLen, 2*len(parts), 1) {
		t.Error("the shortest frame in two parts does not open")
	}
}

// A generation of keys that was dropped opens no frame, even before it is erased.
func TestDropped(t *testing.T) {
	was := NewSealer(secretOf(3))
	e := &end{NewSealer(secretOf(4)), NewOpener(secretOf(3))}
	if e.r.Drop() != nil || !e.r.Knows(1) {
		t.Error("the only generation is dropped")
	}
	x, y := NewExchange(), NewExchange()
	_, r, err := x.Next(PresentOf(e.w, e.r), &y.Public)
	if err != nil {
		t.Fatal(err)
	}
	e.r.Add(r)
	sealed := was.Seal(make([]byte, 40, 100), 1, 1)
	opens := func() bool {
		_, ok := e.r.Open(new(Nonce), make([]byte, 100), sealed, 1, 1, 1)
		return ok
	}
	if !opens() || !e.r.Knows(1) || !e.r.Knows(2) {
		t.Error("two generations do not open together")
	}
	if e.r.Drop(); opens() || e.r.Knows(1) || !e.r.Knows(2) {
		t.Error("the generation that was dropped opens")
	}
}

// Secrets that were handed out, or whose handshake is over, are not kept.
func TestHandshakeKeepsNoSecrets(t *testing.T) {
	a, b, _, pb := pair(t, true, true)
	c, s := a.Dial(pb, nil), b.Answer(nil)
	if err := run(c, s); err != nil {
		t.Fatal(err)
	}
	given := []*secrets{{c.data.read, c.data.write}, {s.handshake.read, s.handshake.write}}
	if w, r := c.DataKeys(); w == nil || r == nil || c.data.read != nil || c.data.write != nil {
		t.Error("secrets are kept that were handed out")
	}
	c.Close()
	s.Close()
	for _, g := range given {
		if !bytes.Equal(append(g.read, g.write...), make([]byte, 64)) {
			t.Error("a secret is not overwritten")
		}
	}
}

// A peer proves itself by exactly one certificate, with an Ed25519 key.
func TestOtherCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *tls.Certificate){
		"not an Ed25519 key": func(c *tls.Certificate) {
			*c = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
		},
		"2 certificates, want one": func(c *tls.Certificate) { c.Certificate = append(c.Certificate, der) },
	} {
		for _, answers := range []bool{false, true} {
			a, b, _, pb := pair(t, true, true)
			if answers {
				change(&b.cert)
			} else {
				change(&a.cert)
			}
			c, s := a.Dial(pb, nil), b.Answer(nil)
			err := run(c, s)
			if err == nil || !strings.Contains(err.Error(), want) || answers && c.Done() || !answers && s.Done() {
				t.Errorf("%s, of the answering end %v: %v", want, answers, err)
			}
			c.Close()
			s.Close()
		}
	}
}

func TestPeerNames(t *testing.T) {
	key := NewPrivateKey().Public()
	for name, want := range map[string]bool{"a": true, strings.Repeat("n", 64): true, "ö.example-1_": true, "": false,
		strings.Repeat("n", 65): false, "a b": false, "a\tb": false, "a\x00": false, "#a": false, "a\x7f": false} {
		if _, err := NewPeers(Peer{Name: name, Key: key}); (err == nil) != want {
			t.Errorf("NewPeers, %q: %v", name, err)
		}
	}
	for name, want := range map[string]bool{strings.Repeat("n", 64): true, strings.Repeat("n", 65): false,
		"a\x7f": false, "a\x01": false} {
		if _, err := ParsePeers([]byte("\n"+key.String()+" "+name), "peers"); (err == nil) != want || err != nil &&
			!strings.HasPrefix(err.Error(), "peers:2: ") {
			t.Errorf("ParsePeers, %q: %v", name, err)
		}
	}
	if _, err := ParsePeers([]byte("\n#"+strings.Repeat("x", 64<<10)), "peers"); err == nil ||
		err.Error() != "peers:2: a line is longer than 64 KiB" {
		t.Errorf("a long line: %v", err)
	}
	known, err := NewPeers(Peer{Name: "a", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Peers{nil, {}, known} {
		_, byName := p.ByName("b")
		_, byNode := p.ByNode([8]byte{})
		if byName || byNode || p == nil && p.List() != nil {
			t.Errorf("%+v has a peer nobody named", p)
		}
	}
	if l := known.List(); len(l) != 1 || l[0].Name != "a" {
		t.Errorf("List: %v", l)
	}
}
