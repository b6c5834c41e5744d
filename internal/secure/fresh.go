package secure

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
)

// PublicLen is how long the public half of an Exchange is, in bytes.
const PublicLen = 32

// Exchange is our half of an exchange of fresh keys inside a session (clause 10.6): an X25519 key that nothing else is
// made with. The session itself proves whose the other half is.
type Exchange struct {
	Public  [PublicLen]byte
	private [PublicLen]byte
}

// NewExchange draws a key.
func NewExchange() *Exchange {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic("BUG: secure: " + err.Error())
	}
	x := &Exchange{}
	copy(x.Public[:], key.PublicKey().Bytes())
	copy(x.private[:], key.Bytes())
	return x
}

// Erase overwrites our half.
func (x *Exchange) Erase() { clear(x.private[:]) }

// Present is the secrets that a session's present keys were made from.
type Present struct {
	write, read Secret
	epoch       uint8
}

// PresentOf copies the secrets of a session that seals with w and opens with the latest generation of r.
func PresentOf(w *Sealer, r *Opener) *Present {
	k := r.keys.Load()
	return &Present{write: w.secret, read: k.of(w.epoch).secret, epoch: w.epoch}
}

// Next returns the generations that follow was, with theirs, the peer's half. Our half and was are erased. It fails if
// theirs is none that an honest peer sends.
func (x *Exchange) Next(was *Present, theirs *[PublicLen]byte) (w *Sealer, r *Generation, err error) {
	defer func() { *was = Present{} }()
	defer x.Erase()
	private, err := ecdh.X25519().NewPrivateKey(x.private[:])
	if err != nil {
		return nil, nil, err
	}
	public, err := ecdh.X25519().NewPublicKey(theirs[:])
	if err != nil {
		return nil, nil, err
	}
	shared, err := private.ECDH(public)
	if err != nil {
		return nil, nil, err
	}
	defer clear(shared)
	low, high := x.Public[:], theirs[:]
	if bytes.Compare(low, high) > 0 {
		low, high = high, low
	}
	epoch := was.epoch%255 + 1
	next := func(g *Generation, s *Secret) {
		prk, err := hkdf.Extract(sha256.New, shared, s[:])
		if err != nil {
			panic("BUG: secure: " + err.Error())
		}
		secret := (*Secret)(expand(prk, "multiedge fresh"+string(low)+string(high), sha256.Size))
		clear(prk)
		defer clear(secret[:])
		g.begin(secret, epoch)
	}
	w, r = &Sealer{}, &Generation{}
	next(&w.Generation, &was.write)
	next(r, &was.read)
	return w, r, nil
}
