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
)

// Secret is what the keys of one direction are made from, and with an exchange those that follow them (clause 10.6).
type Secret [sha256.Size]byte

// Generation is the keys of one direction that one exchange gave (clause 10.6).
type Generation struct {
	aead   cipher.AEAD
	iv     [12]byte
	secret Secret
	epoch  uint8 // 1 to 255, in the frame's header
}

// begin makes the keys from their secret.
func (g *Generation) begin(secret *Secret, epoch uint8) {
	g.secret, g.epoch = *secret, epoch
	key, iv := expand(secret[:], "multiedge key", aesgcm.KeySize), expand(secret[:], "multiedge iv", len(g.iv))
	g.aead = aesgcm.New(key)
	copy(g.iv[:], iv)
	clear(key)
	clear(iv)
}

// Erase overwrites the keys. Nobody uses them any more.
func (g *Generation) Erase() {
	if g != nil && g.aead != nil {
		aesgcm.Erase(g.aead)
		*g = Generation{}
	}
}

func expand(secret []byte, label string, n int) []byte {
	b, err := hkdf.Expand(sha256.New, secret, label, n)
	if err != nil {
		panic("BUG: secure: " + err.Error())
	}
	return b
}

// nonce is the generation's iv with path and packet number added: never the same twice, because no packet number is
// (clause 3.2). It is written in the words that ciphers read, which need not wait for parts of them then.
func (g *Generation) nonce(n *Nonce, path uint8, pn uint64) []byte {
	binary.BigEndian.PutUint64(n[:], binary.BigEndian.Uint64(g.iv[:])^uint64(path)<<32^pn>>32)
	binary.BigEndian.PutUint32(n[8:], binary.BigEndian.Uint32(g.iv[8:])^uint32(pn))
	return n[:]
}

// payloadNonce is the nonce of a frame's second part.
func (g *Generation) payloadNonce(n *Nonce, path uint8, pn uint64) []byte {
	binary.BigEndian.PutUint64(n[:], binary.BigEndian.Uint64(g.iv[:])^1<<63^uint64(path)<<32^pn>>32)
	binary.BigEndian.PutUint32(n[8:], binary.BigEndian.Uint32(g.iv[8:])^uint32(pn))
	return n[:]
}

// Sealer seals the frames of one direction of a session with the keys of one generation. Not safe for concurrent use.
type Sealer struct {
	Generation
	n Nonce
	// Left counts down, one for each frame; what it means is its owner's affair.
	Left uint64
}

// NewSealer returns the sealer of a direction's first secret.
func NewSealer(secret *Secret) *Sealer {
	s := &Sealer{}
	s.begin(secret, 1)
	return s
}

// Epoch is what the next frame's header must say.
func (s *Sealer) Epoch() uint8 { return s.epoch }

// Seal encrypts frame, from its fixed header on, in place, and returns it with its tag; its capacity must allow
// Overhead bytes more. The first ClearLen bytes are only authenticated.
func (s *Sealer) Seal(frame []byte, path uint8, pn uint64) []byte {
	body := s.aead.Seal(frame[ClearLen:ClearLen], s.nonce(&s.n, path, pn), frame[ClearLen:], frame[:ClearLen])
	s.Left--
	return frame[:ClearLen+len(body)]
}

// SealParts seals a frame with a payload, which is encrypted from where it lies: frame is the rest, from the fixed
// header on, in place, with room for the payload and PartsOverhead bytes more. It returns the sealed frame (clause
// 10.5).
func (s *Sealer) SealParts(frame, payload []byte, path uint8, pn uint64) []byte {
	const head = ClearLen + 2
	n := len(frame) - ClearLen
	frame = frame[:head+n]
	copy(frame[head:], frame[ClearLen:])
	binary.BigEndian.PutUint16(frame[ClearLen:], uint16(n))
	aead, clear := s.aead, frame[:head]
	first := aead.Seal(frame[head:head], s.nonce(&s.n, path, pn), frame[head:], clear)
	at := head + len(first)
	second := aead.Seal(frame[at:at], s.payloadNonce(&s.n, path, pn), payload, clear)
	s.Left--
	return frame[:at+len(second)]
}

// Opener opens the frames of one direction of a session: those of two generations at most. Any goroutine may open, each
// with a Nonce of its own; one alone, its owner, calls Add, Drop and Keys.
type Opener struct{ keys atomic.Pointer[keys] }

// keys are what an Opener opens with, the older ones first if there are two.
type keys [2]*Generation

// Nonce is room for the nonces of one who opens.
type Nonce [12]byte

// NewOpener returns the opener of a direction's first secret.
func NewOpener(secret *Secret) *Opener {
	g, o := &Generation{}, &Opener{}
	g.begin(secret, 1)
	o.keys.Store(&keys{g})
	return o
}

// Add has the opener open frames of g too, and of the latest before it. It returns what it opened besides, nil if
// nothing: whoever opens at the moment may still use that.
func (o *Opener) Add(g *Generation) (gone *Generation) {
	k := *o.keys.Load()
	if k[1] == nil {
		k[1] = g
	} else {
		gone, k = k[0], keys{k[1], g}
	}
	o.keys.Store(&k)
	return gone
}

// Drop has the opener open frames of the latest generation alone. It returns the one before as Add does.
func (o *Opener) Drop() (gone *Generation) {
	k := *o.keys.Load()
	if k[1] == nil {
		return nil
	}
	o.keys.Store(&keys{k[1]})
	return k[0]
}

// Close has the opener open nothing any more. It returns what it opened as Add does.
func (o *Opener) Close() []*Generation { return o.keys.Swap(&keys{})[:] }

// Knows reports whether there is a key of that epoch.
func (o *Opener) Knows(epoch uint8) bool { return o.keys.Load().of(epoch) != nil }

// Open decrypts frame, from its fixed header on, into scratch, which is long enough and does not overlap it, and
// returns the opened frame there. ok is false, and what scratch holds means nothing, if the frame is not authentic.
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
	return scratch[:ClearLen+len(body)], true
}

// OpenParts is Open for a frame that was sealed in two parts. The payload stands at offset head of the opened frame,
// after the headers, where it was before it was taken out to be sealed.
func (o *Opener) OpenParts(n *Nonce, scratch, frame []byte, head int, epoch, path uint8, pn uint64) (opened []byte,
	ok bool) {
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
	return scratch[:end], true
}

// of returns the keys of an epoch, nil if there are none.
func (k *keys) of(epoch uint8) *Generation {
	for _, g := range k {
		if g != nil && g.epoch == epoch {
			return g
		}
	}
	return nil
}
