package wire

import (
	"bytes"
	"testing"
)

// The committed corpora in testdata/fuzz run with every go test; to search on: go test -fuzz FuzzSegment
// ./internal/wire

// FuzzFrame: decoding never panics nor reaches outside, and a frame that is accepted is laid out again as it was,
// padding aside (clause 2.4).
func FuzzFrame(f *testing.F) {
	f.Add(build(plainHeader, nil, nil, ping))
	f.Add(build(Header{Type: TypeData, Flags: FlagPayloadSum}, theBulk(), []byte("payload!"), ping))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr Frame
		if fr.Decode(b[:len(b):len(b)]) != nil {
			return
		}
		fr.PayloadIntact()
		var peeked Frame
		if err := peeked.Peek(b[:len(b):len(b)]); err != nil || peeked.Header != fr.Header || fr.Flags&FlagBulk != 0 &&
			peeked.Bulk != fr.Bulk ||
			!bytes.Equal(peeked.Payload, fr.Payload) || !bytes.Equal(peeked.Tail, fr.Tail) {
			t.Errorf("peeked: %v %+v, want %+v", err, peeked, fr)
		}
		for cut := range min(len(b), 200) {
			if peeked.Peek(b[:cut:cut]) == nil && peeked.Header != fr.Header {
				t.Errorf("peeked at %d bytes: %+v, want %+v", cut, peeked.Header, fr.Header)
			}
		}
		var bulk *Bulk
		if fr.Flags&FlagBulk != 0 {
			bulk = &fr.Bulk
		}
		again := build(fr.Header, bulk, fr.Payload, fr.Tail)
		if len(again) > len(b) || !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("encoding differs:\n got %x\nfrom %x", again, b)
		}
		var fr2 Frame
		if err := fr2.Decode(again); err != nil || fr2.Header != fr.Header || !bytes.Equal(fr2.Payload, fr.Payload) ||
			!bytes.Equal(fr2.Tail, fr.Tail) || bulk != nil && fr2.Bulk != fr.Bulk {
			t.Errorf("decoded again: %v %+v, want %+v", err, fr2, fr)
		}
	})
}

// FuzzSegment decodes a whole tail. There is one encoding of each segment: what was accepted is encoded as it was
// received.
func FuzzSegment(f *testing.F) {
	for i := range messages {
		m := &messages[i]
		f.Add(append(unhex(f, m.before), unhex(f, m.golden)...))
	}
	f.Fuzz(func(t *testing.T, tail []byte) {
		var s, s2 Segment
		for rest := tail[:len(tail):len(tail)]; len(rest) > 0; {
			before := rest
			prev := s
			var err error
			if rest, err = s.Next(rest); err != nil {
				return
			}
			used := before[:len(before)-len(rest)]
			again := s.AppendTo(nil)
			if !bytes.Equal(again, used) || s.Len() != len(used) {
				t.Fatalf("%+v is encoded as %x (Len %d), was %x", s, again, s.Len(), used)
			}
			s2 = prev
			if more, err := s2.Next(again); err != nil || len(more) != 0 || !equal(&s, &s2) {
				t.Fatalf("decoded again: %v %+v, want %+v", err, s2, s)
			}
			for w := range s.Words() {
				s.Word(w)
			}
		}
	})
}

// fuzzBody checks that a set-up body that is accepted is encoded as it was received.
func fuzzBody(f *testing.F, m *body, decode func([]byte) ([]byte, error)) {
	f.Add(unhex(f, m.golden))
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, err := decode(b[:len(b):len(b)]); err == nil && !bytes.Equal(again, b) {
			t.Errorf("%s: encoded as %x, was %x", m.name, again, b)
		}
	})
}

func FuzzHello(f *testing.F) {
	fuzzBody(f, &bodies[0], func(b []byte) ([]byte, error) {
		var h Hello
		err := h.Decode(b)
		return h.AppendTo(nil),
			err
	})
}

func FuzzInit(f *testing.F) {
	fuzzBody(f, &bodies[1], func(b []byte) ([]byte, error) {
		var i Init
		err := i.Decode(b)
		return i.AppendTo(nil),
			err
	})
}

func FuzzReset(f *testing.F) {
	fuzzBody(f, &bodies[2], func(b []byte) ([]byte, error) {
		var r Reset
		err := r.Decode(b)
		return r.AppendTo(nil),
			err
	})
}

func FuzzRetry(f *testing.F) {
	fuzzBody(f, &bodies[3], func(b []byte) ([]byte, error) { var r Retry; err := r.Decode(b); return r.Cookie, err })
}

func FuzzCrypto(f *testing.F) {
	fuzzBody(f, &bodies[4], func(b []byte) ([]byte, error) {
		var c Crypto
		err := c.Decode(b)
		return c.AppendTo(nil),
			err
	})
}

func FuzzLinkInfo(f *testing.F) {
	fuzzBody(f, &bodies[5], func(b []byte) ([]byte, error) {
		var l LinkInfo
		err := l.Decode(b)
		return l.AppendTo(nil),
			err
	})
}

func FuzzParams(f *testing.F) {
	fuzzBody(f, &bodies[6], func(b []byte) ([]byte, error) {
		var p Params
		err := p.Decode(b)
		return p.AppendTo(nil),
			err
	})
}

// FuzzOpened is FuzzFrame for frames that were sealed: what their clear part says stays said once they are open
// (clauses 2.2 and 10.5).
func FuzzOpened(f *testing.F) {
	f.Add(buildOpened(sealedHeader, nil, nil, ping))
	f.Add(buildOpened(sealedHeader, theBulk(), []byte("payload!"), ping))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		var h Header
		clear := h.DecodeClear(b)
		if clear == nil && !Sealed(b) {
			t.Error("a frame that is not sealed has a clear part")
		}
		var fr Frame
		if fr.DecodeOpened(b) != nil {
			return
		}
		if len(b) >= FixedLen+TagLen && (clear != nil || h.Type != fr.Type || h.KeyEpoch != fr.KeyEpoch ||
			h.Path != fr.Path || h.Flags != fr.Flags || h.Session != fr.Session || h.PN != fr.PN) {
			t.Errorf("clear part: %v %+v, opened %+v", clear, h, fr.Header)
		}
		var bulk *Bulk
		if fr.Flags&FlagBulk != 0 {
			bulk = &fr.Bulk
		}
		if again := buildOpened(fr.Header, bulk, fr.Payload, fr.Tail); len(again) > len(b) || !bytes.Equal(again,
			b[:len(again)]) {
			t.Errorf("encoding differs:\n got %x\nfrom %x", again, b)
		}
	})
}
