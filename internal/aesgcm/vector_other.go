//go:build !amd64

package aesgcm

import "crypto/cipher"

// Width returns how many blocks this processor encrypts at once: 1, which is left to the standard library.
func Width() int { return 1 }

func newVector(key []byte, _ bool) cipher.AEAD { return NewStandard(key) }
