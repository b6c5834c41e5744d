package secure

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// PrivateKey is a node's identity: the 32-byte seed of an Ed25519 key.
type PrivateKey [32]byte

// PublicKey is what peers authorise: an Ed25519 public key.
type PublicKey [32]byte

// NewPrivateKey makes an identity.
func NewPrivateKey() (k PrivateKey) {
	rand.Read(k[:]) // never fails
	return k
}

func (k PrivateKey) signer() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(k[:]) }

// Public returns the key that peers know this node by.
func (k PrivateKey) Public() PublicKey { return PublicKey(k.signer().Public().(ed25519.PublicKey)) }

// Text returns the private key as it stands in a key file: 44 characters of base64. It is a secret.
func (k PrivateKey) Text() string { return base64.StdEncoding.EncodeToString(k[:]) }

// String hides the key, so that no log shows it.
func (k PrivateKey) String() string { return "(private key)" }

// GoString hides the key from %#v.
func (k PrivateKey) GoString() string { return k.String() }

// String returns the public key as `edgectl key` prints it: 44 characters of base64.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Node returns the identity of the node that holds the key: it cannot be claimed without it.
func (k PublicKey) Node() (id [8]byte) {
	sum := sha256.Sum256(append([]byte("multiedge node "), k[:]...))
	copy(id[:], sum[:])
	return id
}

// ParsePrivateKey reads the text of a private key; blanks around it are ignored.
func ParsePrivateKey(s string) (k PrivateKey, err error) {
	return k, parseKey(k[:], s)
}

// ParsePublicKey reads the text of a public key; blanks around it are ignored.
func ParsePublicKey(s string) (k PublicKey, err error) {
	return k, parseKey(k[:], s)
}

func parseKey(dst []byte, s string) error {
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) != len(dst) {
		return fmt.Errorf("a key is 44 characters of base64, as `edgectl key show` prints it, not %d characters",
			len(strings.TrimSpace(s)))
	}
	copy(dst, b)
	return nil
}
