package secure

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"multiedge/internal/aesgcm"
)

const (
	// ClearLen is the part of a frame that is authenticated but not encrypted, in bytes (clause 2.2).
	ClearLen = 16
	// Overhead is what sealing adds to a frame, in bytes.
	Overhead = 16
	// PartsOverhead is what sealing in two parts adds, in bytes: the length of the first, and a tag for each.
	PartsOverhead = 2 + 2*Overhead
	// RekeyAfter is how many frames one key seals. AES-128-GCM keeps its margin up to some 2^23 frames of 64 KiB (RFC 9001 appendix B.1.1).
	RekeyAfter = 1 << 22
)

// generation is one key of one direction. Keys follow each other by HKDF, so an old one cannot be had from a new one (clause 10.6).
type generation struct {
	aead   cipher.AEAD
	iv     [12]byte
	secret []byte
	epoch  uint8 // 1 to 255, in the frame's header
}

func newGeneration(secret []byte, epoch uint8) generation {
	g := generation{secret: secret, epoch: epoch}
	copy(g.iv[:], expand(secret, "multiedge iv", 12))
	g.aead = aesgcm.New(expand(secret, "multiedge key", aesgcm.KeySize))
	return g
}

func (g *generation) next() generation {
	return newGeneration(expand(g.secret, "multiedge next", sha256.Size), g.epoch%255+1)
}

func expand(secret []byte, label string, n int) []byte {
	b, err := hkdf.Expand(sha256.New, secret, label, n)
	if err != nil {
		panic("BUG: secure: " + err.Error())
	}
	return b
}

// nonce is the generation's iv with path and packet number added: never the same twice, because no packet number is (clause 3.2).
func (g *generation) nonce(n *Nonce, path uint8, pn uint64) []byte {
	*n = g.iv
	n[3] ^= path
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^pn)
	return n[:]
}

// payloadNonce is the nonce of a frame's second part.
func (g *generation) payloadNonce(n *Nonce, path uint8, pn uint64) []byte {
	g.nonce(n, path, pn)
	n[0] ^= 0x80
	return n[:]
}

// Sealer seals the frames of one direction of a session. Not safe for concurrent use.
type Sealer struct {
	now generation
	n   Nonce
	// Left is how many more frames the present key seals, Life how many each later one does; changed by tests alone.
	Left, Life uint64
}

// NewSealer returns the sealer of a direction's secret.
func NewSealer(secret []byte) *Sealer {
	return &Sealer{now: newGeneration(secret, 1), Left: RekeyAfter, Life: RekeyAfter}
}

// Epoch is what the next frame's header must say.
func (s *Sealer) Epoch() uint8 { return s.now.epoch }

// Seal encrypts frame, from its fixed header on, in place, and returns it with its tag; its capacity must allow Overhead bytes more. The first ClearLen bytes are only
// authenticated.
func (s *Sealer) Seal(frame []byte, path uint8, pn uint64) []byte {
	body := s.now.aead.Seal(frame[ClearLen:ClearLen], s.now.nonce(&s.n, path, pn), frame[ClearLen:], frame[:ClearLen])
	s.used()
	return frame[:ClearLen+len(body)]
}

// SealParts seals a frame with a payload, which is encrypted from where it lies: frame is the rest, from the fixed header on, in place, with room for the
// payload and PartsOverhead bytes more. It returns the sealed frame (clause 10.5).
func (s *Sealer) SealParts(frame, payload []byte, path uint8, pn uint64) []byte {
	const head = ClearLen + 2
	n := len(frame) - ClearLen
	frame = frame[:head+n]
	copy(frame[head:], frame[ClearLen:])
	binary.BigEndian.PutUint16(frame[ClearLen:], uint16(n))
	aead, clear := s.now.aead, frame[:head]
	first := aead.Seal(frame[head:head], s.now.nonce(&s.n, path, pn), frame[head:], clear)
	at := head + len(first)
	second := aead.Seal(frame[at:at], s.now.payloadNonce(&s.n, path, pn), payload, clear)
	s.used()
	return frame[:at+len(second)]
}

// used counts a frame, and goes on to the next key in time.
func (s *Sealer) used() {
	if s.Left--; s.Left == 0 {
		s.now, s.Left = s.now.next(), s.Life
	}
}

// Opener opens the frames of one direction of a session: those of the present key, of the one before, and of the one after, which then becomes the
// present one. Any goroutine may open, each with a Nonce of its own.
type Opener struct{ keys atomic.Pointer[keys] }

// keys are what an Opener opens with, until a frame of after comes.
type keys struct{ before, now, after generation }

// Nonce is room for the nonces of one who opens.
type Nonce [12]byte

// NewOpener returns the opener of a direction's secret.
func NewOpener(secret []byte) *Opener {
	k := &keys{now: newGeneration(secret, 1)}
	k.after = k.now.next()
	o := &Opener{}
	o.keys.Store(k)
	return o
}

// Open decrypts frame, from its fixed header on, into scratch, which is long enough and does not overlap it, and returns the opened frame there. ok is
// false, and what scratch holds means nothing, if the frame is not authentic.
func (o *Opener) Open(n *Nonce, scratch, frame []byte, epoch, path uint8, pn uint64) (opened []byte, ok bool) {
	k := o.keys.Load()
	g := k.of(epoch)
	if len(frame) < ClearLen+Overhead || len(frame)-Overhead > len(scratch) || g == nil {
		return nil, false
	}
	body, err := g.aead.Open(scratch[ClearLen:ClearLen], g.nonce(n, path, pn), frame[ClearLen:], frame[:ClearLen])
	if err != nil {
		return nil, false
	}
	copy(scratch, frame[:ClearLen])
	o.opened(k, g)
	return scratch[:ClearLen+len(body)], true
}

// OpenParts is Open for a frame that was sealed in two parts. The payload stands at offset head of the opened frame, after the headers, where it was before it
// was taken out to be sealed.
func (o *Opener) OpenParts(n *Nonce, scratch, frame []byte, head int, epoch, path uint8, pn uint64) (opened []byte, ok bool) {
	const start = ClearLen + 2
	k := o.keys.Load()
	g := k.of(epoch)
	if len(frame) < start+2*Overhead || 2*len(frame) > len(scratch) || g == nil {
		return nil, false
	}
	first := int(binary.BigEndian.Uint16(frame[ClearLen:]))
	if first < head-ClearLen || first > len(frame)-start-2*Overhead {
		return nil, false
	}
	at, clear := start+first+Overhead, frame[:start]
	rest := scratch[len(frame):]
	rest, err := g.aead.Open(rest[:0], g.nonce(n, path, pn), frame[start:at], clear)
	if err != nil {
		return nil, false
	}
	payload, err := g.aead.Open(scratch[head:head], g.payloadNonce(n, path, pn), frame[at:], clear)
	if err != nil {
		return nil, false
	}
	copy(scratch, frame[:ClearLen])
	copy(scratch[ClearLen:], rest[:head-ClearLen])
	end := head + len(payload)
	end += copy(scratch[end:], rest[head-ClearLen:])
	o.opened(k, g)
	return scratch[:end], true
}

// of returns the key of an epoch, nil if it is none of the three.
func (k *keys) of(epoch uint8) *generation {
	for _, g := range [...]*generation{&k.now, &k.after, &k.before} {
		if g.epoch == epoch && g.aead != nil {
			return g
		}
	}
	return nil
}

// opened notes that a frame of g, one of k, was authentic.
func (o *Opener) opened(k *keys, g *generation) {
	if g == &k.after {
		o.keys.CompareAndSwap(k, &keys{before: k.now, now: k.after, after: k.after.next()}) // else another goroutine has
	}
}
