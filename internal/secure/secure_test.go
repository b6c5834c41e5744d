package secure

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func pair(t *testing.T, knows, known bool) (a, b *Node, pa, pb Peer) {
	t.Helper()
	ka, kb := NewPrivateKey(), NewPrivateKey()
	pa, pb = Peer{Name: "a", Key: ka.Public()}, Peer{Name: "b", Key: kb.Public()}
	table := func(ok bool, p Peer) *Peers {
		if !ok {
			return nil
		}
		ps, err := NewPeers(p)
		if err != nil {
			t.Fatal(err)
		}
		return ps
	}
	return NewNode(ka, table(knows, pb)), NewNode(kb, table(known, pa)), pa, pb
}

// run carries a handshake to its end; meanwhile is done before each end speaks.
func run(c, s *Handshake, meanwhile ...func()) error {
	var sent [2][Levels]int
	for range 10 {
		for i, h := range []*Handshake{c, s} {
			for _, f := range meanwhile {
				f()
			}
			other := []*Handshake{s, c}[i]
			for l := range Levels {
				out := h.Out(l)[sent[i][l]:]
				sent[i][l] += len(out)
				if len(out) > 0 {
					if err := other.Receive(l, out); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func TestHandshake(t *testing.T) {
	a, b, pa, pb := pair(t, true, true)
	c, s := a.Dial(pb, []byte("from a")), b.Answer([]byte("from b"))
	defer c.Close()
	defer s.Close()
	if err := run(c, s); err != nil {
		t.Fatal(err)
	}
	if !c.Done() || !s.Done() || c.Peer() != pb || s.Peer() != pa || string(c.Params()) != "from b" ||
		string(s.Params()) != "from a" {
		t.Fatalf("client done %v peer %v params %q, server done %v peer %v params %q", c.Done(), c.Peer(), c.Params(),
			s.Done(), s.Peer(), s.Params())
	}
	cw, cr := c.DataKeys()
	sw, sr := s.DataKeys()
	check := func(w *Sealer, r *Opener) {
		t.Helper()
		frame := make([]byte, 100)
		copy(frame, "0123456789abcdefpayload")
		sealed := w.Seal(append(make([]byte, 0, 200), frame...), 3, 7)
		if got, ok := r.Open(new(Nonce), make([]byte, 200), sealed, 1, 3, 7); !ok || !bytes.Equal(got, frame) {
			t.Fatalf("opened %v %q", ok, got)
		}
	}
	check(cw, sr)
	check(sw, cr)
	t.Logf("client says %d + %d bytes, server %d + %d", len(c.Out(0)), len(c.Out(1)), len(s.Out(0)), len(s.Out(1)))
}

// The wall clock of each node is far from the other's, and moves on by more than a century while they talk, beyond the
// end of their certificates.
func TestWallClocksDiffer(t *testing.T) {
	a, b, pa, pb := pair(t, true, true)
	synctest.Test(t, func(t *testing.T) {
		c, s := a.Dial(pb, nil), b.Answer(nil)
		defer c.Close()
		defer s.Close()
		cert, err := x509.ParseCertificate(a.cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		// before the client's hello arrives, the server's certificate, the client's
		years := []time.Duration{125, 125, 10}
		err = run(c, s, func() {
			if len(years) > 0 {
				time.Sleep(years[0] * 365 * 24 * time.Hour)
				years = years[1:]
			}
			if now := time.Now(); len(years) == 1 && !now.After(cert.NotAfter) {
				t.Errorf("it is only %v when certificates arrive, and they end at %v", now, cert.NotAfter)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if !c.Done() || !s.Done() || c.Peer() != pb || s.Peer() != pa {
			t.Errorf("client done %v peer %v, server done %v peer %v", c.Done(), c.Peer(), s.Done(), s.Peer())
		}
	})
}

func TestStrangers(t *testing.T) {
	a, b, _, pb := pair(t, true, false)
	c, s := a.Dial(pb, nil), b.Answer(nil)
	defer c.Close()
	defer s.Close()
	if err := run(c, s); !errors.Is(err, ErrStranger) || s.Done() {
		t.Errorf("a node that is not authorised: %v, done %v", err, s.Done())
	}
	_, other, _, _ := pair(t, true, true)
	c, s = a.Dial(pb, nil), other.Answer(nil)
	defer c.Close()
	defer s.Close()
	if err := run(c, s); !errors.Is(err, ErrStranger) || c.Done() {
		t.Errorf("another node in the place of the one that was dialled: %v, done %v", err, c.Done())
	}
}

func secretOf(b byte) *Secret { return (*Secret)(bytes.Repeat([]byte{b}, 32)) }

func TestOpenRefuses(t *testing.T) {
	const path, pn = 2, 1<<40 + 5
	plain := append([]byte("0123456789abcdef"), bytes.Repeat([]byte("payload "), 20)...)
	sealed := NewSealer(secretOf(1)).Seal(append(make([]byte, 0, 500), plain...), path, pn)
	scratch := make([]byte, 500)
	open := func(o *Opener, frame []byte, epoch, path uint8, pn uint64) bool {
		_, ok := o.Open(new(Nonce), scratch, frame, epoch, path, pn)
		return ok
	}
	o := NewOpener(secretOf(1))
	if !open(o, sealed, 1, path, pn) {
		t.Fatal("the frame itself does not open")
	}
	for i := range sealed {
		forged := bytes.Clone(sealed)
		forged[i] ^= 1 << (i % 8)
		if open(o, forged, 1, path, pn) {
			t.Errorf("opens with byte %d changed", i)
		}
	}
	for n := range len(sealed) {
		if open(o, sealed[:n], 1, path, pn) {
			t.Errorf("opens cut to %d bytes", n)
		}
	}
	for name, ok := range map[string]bool{
		"other path": open(o, sealed, 1, path+1, pn), "other number": open(o, sealed, 1, path, pn+1),
		"other direction": open(NewOpener(secretOf(2)), sealed, 1, path, pn),
		"next key":        open(o, sealed, 2, path, pn), "plaintext": open(o, sealed, 0, path, pn),
		"far key": open(o, sealed, 77, path, pn),
		"longer":  open(o, append(sealed[:len(sealed):len(sealed)], 0), 1, path, pn),
	} {
		if ok {
			t.Errorf("opens with %s", name)
		}
	}
}

// end is one end of a session.
type end struct {
	w *Sealer
	r *Opener
}

// renew has both ends exchange fresh keys; the first one keeps what it seals with.
func renew(t *testing.T, a, b *end) (w [2]*Sealer) {
	t.Helper()
	xa, xb := NewExchange(), NewExchange()
	var err error
	for i, e := range []*end{a, b} {
		ours, theirs := xa, xb.Public
		if i == 1 {
			ours, theirs = xb, xa.Public
		}
		var r *Generation
		if w[i], r, err = ours.Next(PresentOf(e.w, e.r), &theirs); err != nil {
			t.Fatal(err)
		}
		e.r.Add(r).Erase()
		if ours.private != [PublicLen]byte{} {
			t.Error("our half is not erased")
		}
	}
	return w
}

// Fresh keys follow each other: those before open as long as they are kept, those after as soon as they are made, and
// the epochs go round (clause 10.6).
func TestExchange(t *testing.T) {
	a, b := &end{NewSealer(secretOf(3)), NewOpener(secretOf(4))}, &end{NewSealer(secretOf(4)), NewOpener(secretOf(3))}
	scratch := make([]byte, 200)
	seen := map[uint8]bool{}
	pn := uint64(0)
	opens := func(w *Sealer, r *Opener) bool {
		pn++
		sealed := w.Seal(make([]byte, 40, 100), 1, pn)
		_, ok := r.Open(new(Nonce), scratch, sealed, w.Epoch(), 1, pn)
		return ok
	}
	for n := range 3 * 255 {
		seen[a.w.Epoch()] = true
		if !opens(a.w, b.r) || !opens(b.w, a.r) {
			t.Fatalf("generation %d does not open", n)
		}
		next := renew(t, a, b)
		if !opens(a.w, b.r) || !opens(next[0], b.r) || !opens(b.w, a.r) || !opens(next[1], a.r) {
			t.Fatalf("generations %d and %d do not open together", n, n+1)
		}
		b.r.Drop().Erase()
		if opens(a.w, b.r) || !opens(next[0], b.r) {
			t.Fatalf("generation %d opens though it was dropped", n)
		}
		a.w.Erase()
		b.w.Erase()
		a.w, b.w = next[0], next[1]
	}
	if len(seen) != 255 || seen[0] {
		t.Errorf("%d key epochs, zero among them: %v", len(seen), seen[0])
	}
}

// Who has every secret of a session but neither private half has nothing of what follows.
func TestExchangeIsFresh(t *testing.T) {
	a, b := &end{NewSealer(secretOf(3)), NewOpener(secretOf(4))}, &end{NewSealer(secretOf(4)), NewOpener(secretOf(3))}
	thief := &end{NewSealer(secretOf(3)), NewOpener(secretOf(4))}
	xa, xb, xt := NewExchange(), NewExchange(), NewExchange()
	public := xb.Public
	wa, _, err := xa.Next(PresentOf(a.w, a.r), &public)
	if err != nil {
		t.Fatal(err)
	}
	public = xa.Public
	if _, rb, err := xb.Next(PresentOf(b.w, b.r), &public); err != nil || rb.secret != wa.secret {
		t.Fatalf("the ends do not agree: %v", err)
	}
	xt.Public = xa.Public // he was told all that was said
	w, r, err := xt.Next(PresentOf(thief.w, thief.r), &xb.Public)
	if err != nil || w.secret == wa.secret || r.secret == wa.secret {
		t.Errorf("a third one has the secret: %v", err)
	}
	xt = NewExchange()
	if _, _, err := xt.Next(PresentOf(thief.w, thief.r), &[PublicLen]byte{}); err == nil {
		t.Error("a half of zeros, which everybody shares a secret with, is taken")
	}
}

// What is erased is gone: secret, iv and the cipher's own key.
func TestErase(t *testing.T) {
	w := NewSealer(secretOf(9))
	aead := w.aead
	before := aead.Seal(nil, make([]byte, 12), []byte("text"), nil)
	w.Erase()
	if w.Generation != (Generation{}) {
		t.Errorf("%+v is left", w.Generation)
	}
	after := func() (b []byte) {
		defer func() { recover() }() // a cipher without its key may not work at all
		return aead.Seal(nil, make([]byte, 12), []byte("text"), nil)
	}()
	if bytes.Equal(before, after) {
		t.Error("the cipher still has its key")
	}
	kb := NewPrivateKey()
	pb, err := NewPeers(Peer{Name: "b", Key: kb.Public()})
	if err != nil {
		t.Fatal(err)
	}
	h := NewNode(NewPrivateKey(), pb).Dial(Peer{Name: "b", Key: kb.Public()}, nil)
	secret := bytes.Repeat([]byte{1}, 32)
	h.data.read = secret
	if h.Close(); !bytes.Equal(secret, make([]byte, 32)) {
		t.Error("a handshake that is over keeps a secret")
	}
}

func TestSealAllocatesNothing(t *testing.T) {
	w, r := NewSealer(secretOf(4)), NewOpener(secretOf(4))
	frame, scratch := make([]byte, 8192, 8192+Overhead), make([]byte, 9000)
	pn := uint64(0)
	var nonce Nonce
	if n := testing.AllocsPerRun(100, func() {
		sealed := w.Seal(frame, 1, pn)
		if _, ok := r.Open(&nonce, scratch, sealed, 1, 1, pn); !ok {
			t.Fatal("does not open")
		}
		pn++
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

func TestKeysAsText(t *testing.T) {
	k := NewPrivateKey()
	back, err := ParsePrivateKey(" " + k.Text() + "\n")
	if err != nil || back != k {
		t.Errorf("private key: %v", err)
	}
	pub, err := ParsePublicKey(k.Public().String())
	if err != nil || pub != k.Public() {
		t.Errorf("public key: %v", err)
	}
	for _, s := range []string{"", "abc", k.Text()[:43], k.Text() + "A", k.Text()[:43] + "!"} {
		if _, err := ParsePublicKey(s); err == nil {
			t.Errorf("%q is taken for a key", s)
		}
	}
}

func TestParsePeers(t *testing.T) {
	x, y := NewPrivateKey().Public(), NewPrivateKey().Public()
	p, err := ParsePeers([]byte("# who may talk\n\n"+x.String()+" alpha # rack 1\n\t"+y.String()+"\tbeta\r\n"), "peers")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := p.ByName("alpha"); !ok || got.Key != x {
		t.Error("alpha is not found by name")
	}
	if got, ok := p.ByNode(y.Node()); !ok || got.Name != "beta" {
		t.Error("beta is not found by identity")
	}
	for text, want := range map[string]string{
		x.String(): "peers:1: want a line", "x alpha": "peers:1: a key is 44", "\n" + x.String() +
			" a b": `peers:2: endpoint "b"`, x.String() + " a b:1 c": "want a line",
		x.String() + " a\n" + y.String() + " a": "two keys", x.String() + " a\n" + x.String() + " b": "the same key",
	} {
		if _, err := ParsePeers([]byte(text), "peers"); err == nil || !bytes.Contains([]byte(err.Error()),
			[]byte(want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParsePeers(f *testing.F) {
	f.Add([]byte("# comment\n" + NewPrivateKey().Public().String() + " name\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePeers(text, "f")
		if err != nil {
			return
		}
		for _, e := range p.List() {
			if got, ok := p.ByName(e.Name); !ok || got != e {
				t.Fatalf("%v is listed but not found", e)
			}
		}
	})
}

// FuzzAnswer gives a node arbitrary bytes as a peer's handshake: it may fail, and nothing else.
func FuzzAnswer(f *testing.F) {
	node := NewNode(PrivateKey{1}, nil)
	c := node.Dial(Peer{Name: "x", Key: PrivateKey{2}.Public()}, []byte("params"))
	f.Add(c.Out(Initial), []byte{})
	c.Close()
	f.Fuzz(func(t *testing.T, first, second []byte) {
		h := node.Answer(nil)
		defer h.Close()
		if h.Receive(Initial, first) == nil {
			h.Receive(Protected, second)
		}
		if h.Done() {
			t.Fatal("done with nobody authorised")
		}
	})
}

func BenchmarkSeal8K(b *testing.B) {
	w := NewSealer(secretOf(5))
	frame := make([]byte, 8192, 8192+Overhead)
	b.SetBytes(8192)
	b.ReportAllocs()
	for pn := uint64(0); b.Loop(); pn++ {
		w.Seal(frame, 1, pn)
	}
}

func BenchmarkOpen8K(b *testing.B) {
	frame, scratch := make([]byte, 8192, 8192+Overhead), make([]byte, 9000)
	sealed := NewSealer(secretOf(5)).Seal(frame, 1, 1)
	r := NewOpener(secretOf(5))
	b.SetBytes(8192)
	b.ReportAllocs()
	for b.Loop() {
		r.Open(new(Nonce), scratch, sealed, 1, 1, 1)
	}
}

func BenchmarkHandshake(b *testing.B) {
	ka, kb := NewPrivateKey(), NewPrivateKey()
	pa, _ := NewPeers(Peer{Name: "a", Key: ka.Public()})
	x, y := NewNode(ka, nil), NewNode(kb, pa)
	b.ReportAllocs()
	for b.Loop() {
		c, s := x.Dial(Peer{Name: "b", Key: kb.Public()}, nil), y.Answer(nil)
		if err := run(c, s); err != nil {
			b.Fatal(err)
		}
		c.Close()
		s.Close()
	}
}

// A frame in two parts: head bytes of headers, a payload sealed from elsewhere, a tail.
func TestParts(t *testing.T) {
	const head = 64
	for _, tail := range []int{0, 7, 100} {
		plain := bytes.Repeat([]byte("headers "), 8)[:head]
		plain = append(plain, bytes.Repeat([]byte{0xAB}, tail)...)
		payload := bytes.Repeat([]byte("payload."), 128)
		whole := append(append(bytes.Clone(plain[:head]), payload...), plain[head:]...)
		kept := bytes.Clone(payload)
		sealed := NewSealer(secretOf(7)).SealParts(append(make([]byte, 0, 4096), plain...), payload, 3, 9)
		if len(sealed) != len(whole)+PartsOverhead || !bytes.Equal(payload, kept) || bytes.Contains(sealed,
			payload[:16]) || bytes.Contains(sealed, plain[20:40]) {
			t.Fatalf("tail of %d bytes: sealed to %d bytes from %d", tail, len(sealed), len(whole))
		}
		scratch := make([]byte, 8192)
		o := NewOpener(secretOf(7))
		if got, ok := o.OpenParts(new(Nonce), scratch, sealed, head, 1, 3, 9); !ok || !bytes.Equal(got, whole) {
			t.Fatalf("tail of %d bytes: opened %v, %d bytes", tail, ok, len(got))
		}
		for i := range sealed {
			forged := bytes.Clone(sealed)
			forged[i] ^= 1 << (i % 8)
			if _, ok := o.OpenParts(new(Nonce), scratch, forged, head, 1, 3, 9); ok {
				t.Errorf("opens with byte %d changed", i)
			}
			if _, ok := o.OpenParts(new(Nonce), scratch, sealed[:i], head, 1, 3, 9); ok {
				t.Errorf("opens cut to %d bytes", i)
			}
		}
		if _, ok := o.OpenParts(new(Nonce), scratch, sealed, head, 1, 3, 10); ok {
			t.Error("opens with another number")
		}
		if _, ok := o.Open(new(Nonce), scratch, sealed, 1, 3, 9); ok {
			t.Error("opens as a frame in one part")
		}
	}
	w, r := NewSealer(secretOf(8)), NewOpener(secretOf(8))
	frame, payload, scratch := make([]byte, 100, 9000), make([]byte, 8000), make([]byte, 20000)
	var nonce Nonce
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := r.OpenParts(&nonce, scratch, w.SealParts(frame, payload, 1, 1), head, 1, 1, 1); !ok {
			t.Fatal("does not open")
		}
		clear(frame)
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}
